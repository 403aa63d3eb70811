"""Scores of validation, by the names of scikit-learn: what early stopping and the choice of the best weights look at.

Higher is better. Where a score is taken class by class (areas under curves of several classes), it is the mean over the
classes that the validation samples have.

Shapes: n samples, k classes or targets.
"""

import numpy as np
from jaxtyping import Float64, Int64, Shaped

OF_CLASSES = ("accuracy", "average_precision", "f1_macro", "neg_log_loss", "roc_auc", "roc_auc_ovr")
OF_NUMBERS = ("neg_mean_absolute_error", "neg_mean_squared_error", "r2")
CURVES = ("roc_auc", "roc_auc_ovr", "average_precision")  # of scores of a class against the others

Weights = Float64[np.ndarray, "n"]


def class_score(
    scoring: str,
    probabilities: Float64[np.ndarray, "n k"],
    classes: Int64[np.ndarray, "n"],
    weights: Weights | None = None,
) -> float:
    """The score of probabilities; of two classes the second is the positive one."""
    from sklearn import metrics

    require_defined(scoring, classes, weights)
    if scoring == "neg_log_loss":
        every_class = np.arange(probabilities.shape[1])
        return -float(metrics.log_loss(classes, probabilities, labels=every_class, sample_weight=weights))
    predicted = probabilities.argmax(1)
    if scoring == "accuracy":
        return float(metrics.accuracy_score(classes, predicted, sample_weight=weights))
    if scoring == "f1_macro":
        score = metrics.f1_score(classes, predicted, average="macro", sample_weight=weights, zero_division=0)
        return float(score)
    area = metrics.average_precision_score if scoring == "average_precision" else metrics.roc_auc_score
    positive = [1] if probabilities.shape[1] == 2 else _counted(classes, weights).tolist()
    areas = [area(classes == k, probabilities[:, k], sample_weight=weights) for k in positive]
    return float(np.mean(areas))


def number_score(
    scoring: str,
    predicted: Float64[np.ndarray, "n k"],
    targets: Float64[np.ndarray, "n k"],
    weights: Weights | None = None,
) -> float:
    """The score of numbers in the data's own units; of several targets the mean."""
    from sklearn import metrics

    require_defined(scoring, targets, weights)
    if scoring == "r2":
        return float(metrics.r2_score(targets, predicted, sample_weight=weights))
    is_squared = scoring == "neg_mean_squared_error"
    error = metrics.mean_squared_error if is_squared else metrics.mean_absolute_error
    return -float(error(targets, predicted, sample_weight=weights))


def require_known(scoring: str | None, known: tuple[str, ...]) -> None:
    """Refuse a score that there is not."""
    if scoring is not None and scoring not in known:
        raise ValueError(f"there is no scoring {scoring!r} here; there are {', '.join(known)}, or None for the loss")


def require_defined(scoring: str, targets: Shaped[np.ndarray, "n *k"], weights: Weights | None) -> None:
    """Refuse validation samples that a score says nothing of."""
    if scoring in CURVES and len(_counted(targets, weights)) < 2:
        raise ValueError(
            f"scoring={scoring!r} holds one class against the others, and the validation samples have one class alone; "
            "validate on more samples, or choose another score"
        )
    n = len(targets) if weights is None else int((weights > 0).sum())
    if scoring == "r2" and n < 2:
        raise ValueError(
            f"scoring='r2' compares errors with the spread of targets, and there is {n} validation sample; validate on "
            "more samples, or choose another score"
        )


def require_two_classes(scoring: str | None, n_classes: int) -> None:
    """Refuse the score of two classes for more of them."""
    if scoring == "roc_auc" and n_classes > 2:
        raise ValueError(
            f"scoring='roc_auc' is that of two classes, and there are {n_classes}; use 'roc_auc_ovr', the mean over "
            "each class against the others"
        )


def _counted(classes: Int64[np.ndarray, "n"], weights: Weights | None) -> Int64[np.ndarray, "c"]:
    """The classes of the samples that count."""
    return np.unique(classes if weights is None else classes[weights > 0])

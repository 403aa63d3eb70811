"""Metrics: how good predictions are.

Predictions and targets are arrays or tensors of one shape, or lists of them, one per sample and of any lengths. Every
mean is over all elements, however they are spread over samples: sums and counts are added up and divided once. For
data that come in parts, add up the `Mean` of each part.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64, Int64, Real, Shaped

Numbers = Any  # an array, a tensor or a number, or a list of them
KINDS = dict.fromkeys("biuf", "numbers") | {"U": "names", "S": "bytes"}  # of classes, by the letter of a dtype


@dataclass(frozen=True, slots=True)
class Mean:
    """A sum and the number of things summed; add up as many as you like, then ask for the value."""

    total: float = 0.0
    count: int = 0

    def __add__(self, other: "Mean") -> "Mean":
        return Mean(self.total + other.total, self.count + other.count)

    @property
    def value(self) -> float:
        if self.count == 0:
            raise ValueError("the mean of nothing has no value: no element was counted")
        return self.total / self.count


def squared_error(prediction: Numbers, target: Numbers) -> Mean:
    """Squared differences, element by element."""
    return _mean((_flat(prediction) - _flat_like(target, prediction)) ** 2)


def squared_distance(prediction: Numbers, target: Numbers) -> Mean:
    """Squared distances, point by point: the last axis holds the coordinates of a point."""
    errors = squared_error(prediction, target)
    sizes = {np.shape(part)[-1] if np.ndim(part) else 1 for part in _parts(target)}
    if len(sizes) != 1:
        raise ValueError(f"points must all have the same number of coordinates, not {sorted(sizes)}")
    if 0 in sizes:
        raise ValueError("points need at least one coordinate, and the last axis of these is empty")
    return Mean(errors.total, errors.count // sizes.pop())


def gaussian_surprise(mean: Numbers, variance: Numbers, target: Numbers) -> Mean:
    """The negative log-density of each element under its own Gaussian, in nats."""
    variances = _flat_like(variance, target, "variances")
    if not (variances > 0).all():
        raise ValueError(f"variances must be above 0, and the smallest is {variances.min()}")
    deviation = _flat(target) - _flat_like(mean, target, "means")
    return _mean(0.5 * (np.log(2 * math.pi * variances) + deviation**2 / variances))


def inside(lower: Numbers, upper: Numbers, target: Numbers) -> Mean:
    """1 for each target between its bounds, ends included, and 0 for the others."""
    low, high = _flat_like(lower, target, "lower bounds"), _flat_like(upper, target, "upper bounds")
    if not (low <= high).all():
        raise ValueError(f"lower bounds must not lie above upper ones, and element {int((low > high).argmax())} does")
    x = _flat(target)
    return _mean(((low <= x) & (x <= high)).astype(np.float64))


def spectral_error(prediction: Numbers, target: Numbers) -> Mean:
    """Squared differences of the amplitude spectra of evenly spaced series, which run along the last axis.

    Amplitudes are in the data's units: a sinusoid of amplitude 1 that fits the series has a line of height 1.
    """
    parts = list(_parts(target))
    _flat_like(prediction, target, "predictions")
    errors = (
        (_amplitudes(one) - _amplitudes(other)) ** 2 for one, other in zip(_parts(prediction), parts, strict=True)
    )
    return sum((_mean(error.ravel()) for error in errors), Mean())


def mse(prediction: Numbers, target: Numbers) -> float:
    """The mean squared error."""
    return squared_error(prediction, target).value


def rmse(prediction: Numbers, target: Numbers) -> float:
    """The root of the mean squared error."""
    return math.sqrt(mse(prediction, target))


def distance_rmse(prediction: Numbers, target: Numbers) -> float:
    """The root of the mean squared distance between points; in the plane, sqrt(mean of dx² + dy²)."""
    return math.sqrt(squared_distance(prediction, target).value)


def gaussian_nll(mean: Numbers, variance: Numbers, target: Numbers) -> float:
    """The mean negative log-likelihood under Gaussians."""
    return gaussian_surprise(mean, variance, target).value


def coverage(lower: Numbers, upper: Numbers, target: Numbers) -> float:
    """The share of targets that lie between their bounds."""
    return inside(lower, upper, target).value


def accuracy(prediction: Numbers, target: Numbers) -> float:
    """The share of samples whose class is right."""
    prediction, target = _classes(prediction, target)
    return float((prediction == target).mean())


def balanced_accuracy(prediction: Numbers, target: Numbers) -> float:
    """The mean over the classes of the target of the share found."""
    from sklearn.metrics import recall_score

    prediction, target = _classes(prediction, target)
    return float(recall_score(target, prediction, labels=np.unique(target), average="macro", zero_division=0))


def macro_f1(prediction: Numbers, target: Numbers) -> float:
    """The mean over the classes, those of the target and those predicted, of the F1 score."""
    from sklearn.metrics import f1_score

    prediction, target = _classes(prediction, target)
    return float(f1_score(target, prediction, average="macro", zero_division=0))


def confusion(prediction: Numbers, target: Numbers, n_classes: int) -> Int64[np.ndarray, "k k"]:
    """How many samples of each class of the target (rows) were taken for each class (columns)."""
    from sklearn.metrics import confusion_matrix

    prediction, target = _classes(prediction, target)
    for name, found in (("prediction", prediction), ("target", target)):
        _require_indices(found, n_classes, name)
    return confusion_matrix(target.astype(np.int64), prediction.astype(np.int64), labels=np.arange(n_classes))


def f1_by_class(counts: Real[np.ndarray, "k k"]) -> Float64[np.ndarray, "k"]:
    """The F1 score of each class, from counts of true classes in rows and predicted ones in columns."""
    return 2 * np.diag(counts) / np.maximum(counts.sum(axis=0) + counts.sum(axis=1), 1)


def auroc(score: Numbers, target: Numbers) -> float:
    """The area under the receiver operating characteristic; `target` is 1 where `score` should be high, else 0."""
    from sklearn.metrics import roc_auc_score

    score, target = _scores(score, target)
    return float(roc_auc_score(target, score))


def auprc(score: Numbers, target: Numbers) -> float:
    """The average precision: the area under the precision-recall curve, in steps."""
    from sklearn.metrics import average_precision_score

    score, target = _scores(score, target)
    return float(average_precision_score(target, score))


def _mean(elements: Float64[np.ndarray, "n"]) -> Mean:
    return Mean(float(elements.sum()), elements.size)


def _amplitudes(series: Float64[np.ndarray, "*b n"]) -> Float64[np.ndarray, "*b k"]:
    n = series.shape[-1]
    sides = np.where((np.arange(n // 2 + 1) == 0) | (np.arange(n // 2 + 1) == n / 2), 1.0, 2.0)
    return np.abs(np.fft.rfft(series)) * sides / n


def _parts(x: Numbers) -> list[Float64[np.ndarray, "..."]]:
    """The arrays of a list of them; a single array is a list of one."""
    if isinstance(x, list | tuple) and any(np.ndim(part) for part in x):
        return [_array(part) for part in x]
    return [_array(x)]


def _array(x: Numbers) -> Float64[np.ndarray, "..."]:
    if isinstance(x, torch.Tensor):
        return x.detach().double().cpu().numpy()
    if isinstance(x, list | tuple):
        x = [_array(part) if isinstance(part, torch.Tensor) else part for part in x]
    try:
        return np.asarray(x, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"metrics need numbers: {error}") from None


def _flat(x: Numbers) -> Float64[np.ndarray, "n"]:
    return np.concatenate([part.ravel() for part in _parts(x)])


def _flat_like(x: Numbers, like: Numbers, name: str = "targets") -> Float64[np.ndarray, "n"]:
    """All elements in a row, once their shapes agree with another's; broadcasting would count some of them twice."""
    shapes, others = ([list(part.shape) for part in _parts(y)] for y in (x, like))
    if len(shapes) != len(others):
        raise ValueError(f"{name} come in {len(shapes)} parts, but what they are compared with in {len(others)}")
    for index, (shape, other) in enumerate(zip(shapes, others, strict=True)):
        if shape != other:
            raise ValueError(
                f"{name} must have the shape of what they are compared with: {shape} is not {other}, part {index}"
            )
    flat = _flat(x)
    if not (np.isfinite(flat).all() and np.isfinite(_flat(like)).all()):
        raise ValueError(f"{name} and what they are compared with must be finite; leave missing elements out")
    return flat


def _classes(prediction: Numbers, target: Numbers) -> tuple[Shaped[np.ndarray, "b"], Shaped[np.ndarray, "b"]]:
    predicted, true = _labels(prediction), _labels(target)
    _require_pairs(predicted, true)
    kind, other = KINDS[predicted.dtype.kind], KINDS[true.dtype.kind]
    if kind != other:
        raise TypeError(f"predicted classes are {kind} and true ones {other}, which are never equal; give both alike")
    return predicted, true


def _scores(score: Numbers, target: Numbers) -> tuple[Float64[np.ndarray, "b"], Shaped[np.ndarray, "b"]]:
    scores, true = _array(score), _labels(target)
    _require_pairs(scores, true)
    found = np.unique(true).tolist()
    if found != [0, 1]:
        raise ValueError(
            f"the area under a curve needs targets of both classes, 0 and 1, and only those; got {found[:5]}"
        )
    if not np.isfinite(scores).all():
        raise ValueError(f"scores must be finite, and that of sample {int((~np.isfinite(scores)).argmax())} is not")
    return scores, true


def _labels(x: Numbers) -> Shaped[np.ndarray, "..."]:
    """Classes as an array: all names, or all whole numbers."""
    labels = _as_given(x)
    if labels.dtype.kind not in KINDS:
        types = sorted({type(one).__name__ for one in labels.ravel().tolist()})
        raise TypeError(f"classes must be all names or all whole numbers, and these are of the types {types}")
    if labels.dtype.kind == "f":
        is_score = ~np.isfinite(labels) | (labels != labels.round())
        if is_score.any():
            raise ValueError(
                f"classes must be names or whole numbers, and one is {labels[is_score][0]}; of scores take argmax(-1), "
                "or compare them with a threshold"
            )
    return labels


def _as_given(x: Numbers) -> Shaped[np.ndarray, "..."]:
    """An array of what is in a tensor, an array or a list; a list of mixed types stays mixed."""
    if isinstance(x, torch.Tensor):
        return _array(x) if x.is_floating_point() else x.cpu().numpy()
    try:
        labels = np.asarray(x)
    except ValueError:
        raise ValueError("classes must be one per sample, and these are lists of several lengths") from None
    if labels.dtype.kind in "OT" and labels.ndim and not isinstance(x, list | tuple):
        return _as_given(labels.tolist())
    is_renamed = labels.dtype.kind == "U" and isinstance(x, list | tuple) and any(not isinstance(y, str) for y in x)
    return np.asarray(x, dtype=object) if is_renamed else labels


def _require_pairs(predicted: Shaped[np.ndarray, "..."], true: Shaped[np.ndarray, "..."]) -> None:
    if predicted.ndim != 1 or predicted.shape != true.shape:
        raise ValueError(
            f"classes must be one per sample in predictions and targets, not {list(predicted.shape)} and "
            f"{list(true.shape)}; of logits take argmax(-1)"
        )
    if predicted.size == 0:
        raise ValueError("there is no sample to compare: predictions and targets are empty")


def _require_indices(labels: Shaped[np.ndarray, "b"], n_classes: int, name: str) -> None:
    kind = KINDS[labels.dtype.kind]
    if kind != "numbers":
        raise TypeError(f"classes must be given as numbers from 0 to {n_classes - 1} to be counted, not as {kind}")
    is_outside = (labels < 0) | (labels >= n_classes)
    if is_outside.any():
        sample = int(is_outside.argmax())
        raise ValueError(
            f"classes must be from 0 to {n_classes - 1}, and the {name} of sample {sample} is {labels[sample]}; "
            "let n_classes count all of them"
        )

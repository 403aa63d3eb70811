"""Estimators that learn from labels: pre-training on all series, then classification or regression."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Number
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float64, Shaped
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import Tags, check_array, column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from romae.data.columns import require_told_apart
from romae.data.scaling import Method
from romae.data.schema import SampleSet
from romae.data.sources import schema_of
from romae.estimators.base import Estimator
from romae.estimators.inputs import Tokens
from romae.estimators.labels import labels_of
from romae.inference import predictions as inference
from romae.model.config import Size
from romae.tokens.sample import Sample
from romae.training.stages import Classify, Regress

# Against learning by heart, which few samples invite: tokens left out, dropout, and targets that are not certain.
DROP_TOKENS, DROPOUT, CONFIDENCE = 0.5, 0.1, 0.9


class _Supervised(Estimator):
    """Settings of the two estimators that learn from labels; docs/estimators.md explains them."""

    epochs: int | None
    frozen: bool

    def __init__(
        self,
        *,
        size: str | Size | Mapping[str, int] | None = None,
        pretrain_epochs: int | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        mask_ratio: float = 0.5,
        scaling: Method = "standard",
        tokens: Tokens | None = None,
        columns: Any = None,
        pretrained: str | Path | None = None,
        frozen: bool = False,
        early_stopping: bool = True,
        validation_fraction: float | None = None,
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.size = size
        self.pretrain_epochs = pretrain_epochs
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.mask_ratio = mask_ratio
        self.scaling = scaling
        self.tokens = tokens
        self.columns = columns
        self.pretrained = pretrained
        self.frozen = frozen
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def _labels(self, X: Any, samples: Sequence[Sample], y: Any) -> Shaped[np.ndarray, "b *k"]:
        return labels_of(X, samples, y, who=type(self).__name__)

    def _judged(self, X: Any, y: Any) -> tuple[Sequence[Sample], Shaped[np.ndarray, "b *k"]]:
        """The samples to score on and their labels."""
        samples = self._asked(X, with_labels=y is None)
        return samples, self._labels(X, samples, y)


class RoMAEClassifier(ClassifierMixin, _Supervised):
    """Tells the class of a series. Labels are of any kind that scikit-learn takes for classes."""

    _saved: ClassVar[tuple[str, ...]] = (*Estimator._saved, "classes_")
    classes_: Shaped[np.ndarray, "k"]

    def fit(self, X: Any, y: Any = None, unlabelled: Any = None) -> "RoMAEClassifier":
        """Pre-train on the series, and on more that have no labels, then learn the classes.

        Without y, the labels are those that samples or a table bring along. `unlabelled` must fit the names of X.
        """
        before = self._begin()
        samples = self._read(X, before, with_labels=y is None)
        y = column_or_1d(self._labels(X, samples, y), warn=True)
        check_classification_targets(y)
        classes, index = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"there is only one class in y, {classes.tolist()[0]!r}; a classifier needs at least two")
        labelled = _with_targets(samples, index, tuple(map(_plain, classes.tolist())))
        last = Classify(
            n_classes=len(classes),
            confidence=CONFIDENCE,
            frozen=self.frozen,
            drop_tokens=DROP_TOKENS,
            dropout=DROPOUT,
        )
        self._train(labelled, before, unlabelled=self._more(unlabelled, samples, before), groups=index, last=last)
        self.classes_ = classes
        return self

    def predict_proba(self, X: Any) -> Float64[np.ndarray, "b k"]:
        """The probability of each class, in the order of `classes_`."""
        samples = self._asked(X)
        return inference.predict_proba(self.task_, samples)

    def predict(self, X: Any) -> Shaped[np.ndarray, "b"]:
        """The most probable class of each series."""
        chances = self.predict_proba(X)
        return self.classes_[chances.argmax(1)]

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The share of series whose class is told right."""
        samples, labels = self._judged(X, y)
        return float(super().score(samples, labels, sample_weight))


class RoMAERegressor(RegressorMixin, _Supervised):
    """Tells one or several numbers of a series."""

    _saved: ClassVar[tuple[str, ...]] = (*Estimator._saved, "n_outputs_", "is_flat_")
    n_outputs_: int
    is_flat_: bool

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _labels(self, X: Any, samples: Sequence[Sample], y: Any) -> Shaped[np.ndarray, "b *k"]:
        labels = super()._labels(X, samples, y)
        _require_numbers(labels)
        return labels

    def fit(self, X: Any, y: Any = None, unlabelled: Any = None) -> "RoMAERegressor":
        """Pre-train on the series, and on more that have no labels, then learn the numbers y: [b], or [b, k].

        Without y, the numbers are those that samples or a table bring along. `unlabelled` must fit the names of X.
        """
        before = self._begin()
        samples = self._read(X, before, with_labels=y is None)
        y = check_array(self._labels(X, samples, y), ensure_2d=False, dtype=np.float64, input_name="y")
        if y.ndim > 2:
            raise ValueError(f"y must be [b] or [b, k], got shape {list(y.shape)}")
        require_told_apart(y.reshape(len(y), -1), ["y"] if y.ndim == 1 else [f"y[:, {i}]" for i in range(y.shape[1])])
        n_outputs = 1 if y.ndim == 1 else y.shape[1]
        labelled = _with_targets(samples, y.reshape(len(y), -1), None)
        last = Regress(n_targets=n_outputs, frozen=self.frozen, drop_tokens=DROP_TOKENS, dropout=DROPOUT)
        self._train(labelled, before, unlabelled=self._more(unlabelled, samples, before), last=last)
        self.is_flat_, self.n_outputs_ = y.ndim == 1, n_outputs
        return self

    def predict(self, X: Any) -> Float64[np.ndarray, "b *k"]:
        """The numbers of each series, shaped as y was."""
        samples = self._asked(X)
        numbers = np.asarray(inference.predict(self.task_, samples))
        return numbers.reshape(len(samples)) if self.is_flat_ else numbers.reshape(len(samples), -1)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The coefficient of determination R²: 1 is perfect, 0 as good as the mean of y."""
        samples, labels = self._judged(X, y)
        return float(super().score(samples, labels, sample_weight))


def _require_numbers(labels: Shaped[np.ndarray, "b *k"]) -> None:
    """Refuse text, even where it looks like a number, and dates, of which scikit-learn would count nanoseconds."""
    if labels.dtype.kind in "iufbc":
        return
    wrong = [one for one in labels.ravel() if labels.dtype != object or not isinstance(one, Number)]
    if wrong:
        raise TypeError(
            f"a regressor learns numbers, and y holds {str(wrong[0])!r}; convert it, with y.astype(float) where "
            "numbers are written as text, or use RoMAEClassifier for names of classes"
        )


def _plain(name: Any) -> Any:
    """A label as a schema holds it."""
    return name if isinstance(name, str | int | bool) else str(name)


def _with_targets(
    samples: Sequence[Sample], targets: Shaped[np.ndarray, "b *k"], classes: tuple[Any, ...] | None
) -> Sequence[Sample]:
    targets = np.array(targets)  # a copy: the caller's may be read-only
    found = [replace(sample, target=target) for sample, target in zip(samples, targets, strict=True)]
    schema = schema_of(samples)
    return found if schema is None else SampleSet(found, replace(schema, classes=classes))

"""Estimators that learn without labels: curves through sparse measurements, and vectors for series."""

from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float32, Float64
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags

from romae import inference
from romae.data.columns import numbers_from_dates
from romae.data.scaling import Method, Scaling
from romae.data.series import Schema
from romae.estimators.base import Estimator
from romae.estimators.inputs import Tokens
from romae.evaluation import evaluate
from romae.model import Size
from romae.tasks import MaskedReconstruction

U = TypeVar("U", bound="_Unsupervised")


class _Unsupervised(Estimator):
    """Settings of the two estimators that learn by masked pre-training alone; docs/estimators.md explains them."""

    def __init__(
        self,
        *,
        size: str | Size | None = None,
        pretrain_epochs: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        mask_ratio: float = 0.5,
        scaling: Method = "standard",
        tokens: Tokens | None = None,
        columns: Any = None,
        pretrained: str | Path | None = None,
        early_stopping: bool = True,
        validation_fraction: float | None = None,
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.size = size
        self.pretrain_epochs = pretrain_epochs
        self.batch_size = batch_size
        self.lr = lr
        self.mask_ratio = mask_ratio
        self.scaling = scaling
        self.tokens = tokens
        self.columns = columns
        self.pretrained = pretrained
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self: U, X: Any, y: Any = None) -> U:
        """Learn to predict hidden measurements from the others. y is not looked at."""
        before = self._begin()
        self._train(self._read(X, before), before)
        return self


class RoMAEInterpolator(_Unsupervised):
    """Tells the values of a series at any time, from its own measurements and from what others have taught."""

    def fit(self, X: Any, y: Any = None) -> "RoMAEInterpolator":
        """Learn to predict hidden measurements from the others. y is not looked at."""
        super().fit(X)
        if not isinstance(self.task_, MaskedReconstruction):
            found = type(self.task_).__name__
            del self.task_
            raise ValueError(
                f"the pretrained model is a {found}, which has no decoder to interpolate with; give it one with "
                "pretrain_epochs above 0"
            )
        return self

    def interpolate(self, X: Any, times: Any) -> list[Float64[np.ndarray, "_ c"]] | Float64[np.ndarray, "b q c"]:
        """The values of all channels at these times, in the units of the data.

        `times` is one array for all series, which gives an array [b, q, c], or a list with one for each, which gives a
        list of arrays [q, c]. Where data have more position axes than time and channel, positions [q, d] take the place
        of times, as in `romae.interpolate`.
        """
        samples = self._asked(X)
        if not hasattr(times, "__len__") or len(times) == 0:
            raise ValueError("times are empty; give one array for all series, or one for each")
        is_shared = np.ndim(times[0]) == 0
        asked = [times] * len(samples) if is_shared else times
        schema = self.task_.schema
        if schema is not None and schema.channel is not None and all(np.ndim(one) == 1 for one in asked):
            values = inference.interpolate(self.task_, samples, [_for_each_channel(one, schema) for one in asked])
            values = [x.reshape(-1, len(schema.channels)) for x in values]
        else:
            values = inference.interpolate(self.task_, samples, asked)
        return np.stack(values) if is_shared else values

    def score(self, X: Any, y: Any = None) -> float:
        """How well measurements are predicted once the share `mask_ratio` of them is hidden.

        1 is perfect, and 0 as good as the mean of the training data in each channel.
        """
        samples = self._asked(X)
        scaling = self.task_.scaling or Scaling()
        return 1.0 - evaluate(self.task_, [scaling.apply(sample) for sample in samples])


class RoMAEEmbedder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, _Unsupervised):
    """Turns each series into a vector, for whatever comes next in a pipeline."""

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags

    def transform(self, X: Any) -> Float32[np.ndarray, "b w"]:
        """The encoder's view of each series."""
        samples = self._asked(X)
        return np.asarray(inference.embed(self.task_, samples))

    @property
    def _n_features_out(self) -> int:
        return self.task_.config.encoder.width


def _for_each_channel(times: Any, schema: Schema) -> Float64[np.ndarray, "q 2"]:
    """The positions of all channels at each time, one time after the other."""
    times = np.asarray(times)
    if times.dtype.kind == "M":
        if schema.time_unit is None:
            raise TypeError("times are dates, but those of the data are numbers; give them in the same unit")
        times = numbers_from_dates(times, schema.time_unit)
    channels = np.arange(len(schema.channels), dtype=np.float64)
    return np.stack([np.repeat(times, len(channels)), np.tile(channels, len(times))], axis=1)

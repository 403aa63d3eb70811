"""MiniRocket (arXiv 2012.08791): what people would take to classify series of equal length, to stand beside the model.

Thousands of features, each the share of a dilated convolution's outputs above a bias, and a ridge classifier on them.
The regularisation is the one with the smallest leave-one-out error.

Shapes: b series, c channels, n time steps, k features of a series.
"""

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64, Shaped
from torch import Tensor

from romae.estimators.convolutions import LENGTH, features_of, fit_banks

ALPHAS = tuple(np.logspace(-3, 3, 10).tolist())


class MiniRocketClassifier:
    """The transform and the ridge classifier, with the interface of scikit-learn."""

    def __init__(self, seed: int, *, n_features: int = 10_000) -> None:
        self.seed, self.n_features = seed, n_features

    def fit(self, series: Float[np.ndarray, "b c n"], labels: Shaped[np.ndarray, "b"]) -> "MiniRocketClassifier":
        from sklearn.linear_model import RidgeClassifierCV
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        if len(series) != len(labels):
            raise ValueError(f"{len(series)} series but {len(labels)} labels: each series needs one")
        tensor = _as_tensor(series)
        banks = fit_banks(tensor, self.n_features, np.random.default_rng(self.seed))
        self.ridge = make_pipeline(StandardScaler(), RidgeClassifierCV(ALPHAS)).fit(features_of(banks, tensor), labels)
        self.banks, self.shape = banks, series.shape[1:]
        return self

    def predict(self, series: Float[np.ndarray, "b c n"]) -> Shaped[np.ndarray, "b"]:
        features = self.features(series)
        return self.ridge.predict(features)

    def features(self, series: Float[np.ndarray, "b c n"]) -> Float64[np.ndarray, "b k"]:
        """The numbers that the ridge classifier sees."""
        from sklearn.exceptions import NotFittedError

        if not hasattr(self, "banks"):
            raise NotFittedError("this classifier has not been fitted yet; call fit(series, labels) first")
        tensor = _as_tensor(series)
        if tensor.shape[1:] != self.shape:
            raise ValueError(
                f"series must have {self.shape[0]} channels and {self.shape[1]} time steps like those that the "
                f"classifier was fitted to, not {tensor.shape[1]} and {tensor.shape[2]}"
            )
        return features_of(self.banks, tensor)


def _as_tensor(series: Float[np.ndarray, "b c n"]) -> Float32[Tensor, "b c n"]:
    if series.ndim != 3 or series.shape[-1] < LENGTH:
        raise ValueError(f"series must be [b, c, n] with at least {LENGTH} time steps, not {list(series.shape)}")
    tensor = torch.from_numpy(np.ascontiguousarray(series, dtype=np.float32))
    is_bad = ~tensor.isfinite().all(-1).all(-1)
    if is_bad.any():
        raise ValueError(f"series must be finite, and series {int(is_bad.int().argmax())} is not; fill its gaps first")
    return tensor

"""Baselines: what people would use instead, to stand beside the model in every table.

For interpolation, functions from observed times and values to predictions at other times. Times may come in any order;
values at equal times are averaged first. None of them leaves the range of the observed times with a slope: outside
of it `linear` and `cubic_spline` hold the nearest value. For classification, the nearest neighbour of interpolated
series, and summary features with two standard classifiers.

Shapes: n observed times, m distinct ones, q query times, c channels, b samples, k features.
"""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64, Shaped
from torch import Tensor

from romae.inference.baselines import (
    Method,
    Predictions,
    Queries,
    Times,
    Values,
    as_columns,
    in_order,
    last_value,
    linear,
    mean,
)
from romae.inference.baselines import fill as fill
from romae.inference.baselines import truth as truth
from romae.tokens.sample import Sample

BRIGHT = 5.0  # times the error of a flux


def constant(samples: Sequence[Sample]) -> Method:
    """A method that predicts the mean of all values of these samples, whatever is observed."""
    _require_samples(samples)
    average = np.concatenate([as_columns(sample)[2] for sample in samples]).mean(axis=0)

    def predict(times: Times, values: Values, queries: Queries) -> Predictions:
        return np.tile(average, (len(queries), 1))

    return predict


def cubic_spline(times: Times, values: Values, queries: Queries) -> Predictions:
    """The cubic spline through the observed values; a parabola through three, a line through two, or one value."""
    from scipy.interpolate import CubicSpline

    times, values = in_order(times, values)
    if len(times) == 1:
        return np.repeat(values, len(queries), axis=0)
    return CubicSpline(times, values)(queries.clip(times[0], times[-1]))


def gaussian_process(times: Times, values: Values, queries: Queries) -> Predictions:
    """The posterior mean of a Gaussian process with a squared-exponential kernel and noise.

    Amplitude, length scale and noise are those of the highest likelihood for these values, the same for all channels;
    far from the data the prediction is their mean. One observed value is predicted everywhere.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    times, values = in_order(times, values)
    if len(times) == 1 or len(queries) == 0:
        return np.repeat(values[:1], len(queries), axis=0)
    start, extent = times[0], times[-1] - times[0]
    kernel = ConstantKernel(1.0, (1e-2, 1e3)) * RBF(0.1, (1e-3, 1e1)) + WhiteKernel(1e-2, (1e-8, 1e1))
    process = GaussianProcessRegressor(kernel, normalize_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a parameter at its bound is an answer like any other
        process.fit(((times - start) / extent)[:, None], values)
    return process.predict(((queries - start) / extent)[:, None]).reshape(len(queries), -1)


METHODS: MappingProxyType[str, Method] = MappingProxyType(
    {
        "mean": mean,
        "last value": last_value,
        "linear": linear,
        "cubic spline": cubic_spline,
        "gaussian process": gaussian_process,
    }
)


def nearest_neighbour(
    train: Sequence[Sample], test: Sequence[Sample], *, n_points: int = 100
) -> Shaped[np.ndarray, "b"]:
    """The class of the training series nearest to each test series.

    All are linearly interpolated at the same times, evenly spaced over those of the training series, and every channel
    is divided by its standard deviation in them; the distance is Euclidean.
    """
    from sklearn.neighbors import KNeighborsClassifier

    _require_samples(train)
    _require_samples(test)
    bounds = [(as_columns(sample)[0].min(), as_columns(sample)[0].max()) for sample in train]
    grid = np.linspace(min(low for low, _ in bounds), max(high for _, high in bounds), n_points)
    series, others = _resampled(train, grid), _resampled(test, grid)
    deviation = series.std(axis=(0, 1))
    scale = np.where(deviation > 0, deviation, 1.0)
    model = KNeighborsClassifier(1).fit((series / scale).reshape(len(train), -1), classes(train))
    return model.predict((others / scale).reshape(len(test), -1))


def classes(samples: Sequence[Sample]) -> Int64[np.ndarray, "b"]:
    """The class of each sample."""
    for index, sample in enumerate(samples):
        if sample.target is None or sample.target.ndim or sample.target.is_floating_point():
            raise ValueError(f"sample {index} has no class: its target must be a whole number")
    return np.array([int(sample.target) for sample in samples], dtype=np.int64)


def summary_features(samples: Sequence[Sample], *, n_variables: int = 1) -> Float[np.ndarray, "b k"]:
    """Mean, minimum, maximum, last value and standard deviation of every channel, and the count, per variable.

    The first position is the time, a second one the variable, from 0 to `n_variables` - 1. What a sample never
    measured is NaN, with a count of 0.
    """
    _require_samples(samples)
    columns = [as_columns(sample) for sample in samples]
    times, variables, values = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    unknown = (variables < 0) | (variables >= n_variables) | (variables != variables.round())
    if unknown.any():
        raise ValueError(
            f"variables must be whole numbers from 0 to {n_variables - 1}, and one is {variables[unknown][0]}"
        )
    sample_of_token = np.repeat(np.arange(len(samples)), [len(sample) for sample in samples])
    cell = sample_of_token * n_variables + variables.astype(np.int64)
    order = np.lexsort((times, cell))
    cell, values = cell[order], values[order]
    present, starts, counts = np.unique(cell, return_index=True, return_counts=True)
    average = np.add.reduceat(values, starts) / counts[:, None]
    deviation = np.sqrt(np.add.reduceat((values - np.repeat(average, counts, axis=0)) ** 2, starts) / counts[:, None])
    features = np.full((len(samples) * n_variables, 5 * values.shape[1] + 1), np.nan)
    features[:, -1] = 0
    features[present] = np.concatenate(
        [
            average,
            np.minimum.reduceat(values, starts),
            np.maximum.reduceat(values, starts),
            values[starts + counts - 1],
            deviation,
            counts[:, None],
        ],
        axis=1,
    )
    return features.reshape(len(samples), -1)


def light_curve_features(samples: Sequence[Sample], *, n_bands: int) -> Float[np.ndarray, "b k"]:
    """What is easily said about light curves: values are (flux, its error), positions (days, band).

    In each band: `summary_features` of the flux and of the flux over its error, and the highest flux beside that of
    the brightest band. Of the whole: the share of points far above their error and the days from the first to the last
    of those (-1 without any), the day of the highest, the last day, and the mean change from point to point.
    """
    _require_samples(samples)
    both = [
        replace(sample, values=torch.stack([sample.values[:, 0].double(), _over_error(sample)], dim=1))
        for sample in samples
    ]
    bands = summary_features(both, n_variables=n_bands).reshape(len(samples), n_bands, -1)
    highest = bands[:, :, 4]  # after two means and two lowest values
    colours = highest / np.maximum(np.nanmax(np.abs(highest), axis=1, keepdims=True), 1e-6)
    whole = np.array([_of_the_whole(sample) for sample in both])
    return np.concatenate([bands.reshape(len(samples), -1), colours, whole], axis=1)


def _over_error(sample: Sample) -> Float64[Tensor, "n"]:
    flux, error = sample.values.double().unbind(1)
    return flux / error.clamp(min=1e-6)


def _of_the_whole(sample: Sample) -> list[float]:
    order = np.argsort(sample.positions[:, 0].numpy(), kind="stable")
    days, ratio = sample.positions[order, 0].numpy(), sample.values[order, 1].numpy()
    is_bright = np.abs(ratio) > BRIGHT
    spell = float(np.ptp(days[is_bright])) if is_bright.any() else -1.0
    change = float(np.abs(np.diff(ratio)).mean()) if len(ratio) > 1 else 0.0
    return [float(is_bright.mean()), spell, float(days[ratio.argmax()]), float(days[-1]), change]


def logistic_regression(freedom: float = 0.01) -> Any:
    """A scikit-learn classifier for summary features: missing ones take the mean, all are standardised.

    `freedom` is the inverse strength of its regularisation, C there. The default is what cross-validation prefers on
    the mortality of PhysioNet's set a.
    """
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    imputer = SimpleImputer(keep_empty_features=True)
    return make_pipeline(imputer, StandardScaler(), LogisticRegression(C=freedom, max_iter=2000))


def gradient_boosting(seed: int) -> Any:
    """A scikit-learn classifier for summary features: boosted trees, to which a missing feature is one more answer."""
    from sklearn.compose import make_column_transformer
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.pipeline import make_pipeline

    trees = HistGradientBoostingClassifier(learning_rate=0.05, max_iter=200, random_state=seed)
    return make_pipeline(make_column_transformer(("passthrough", _is_measured)), trees)


def _is_measured(features: Float[np.ndarray, "b k"]) -> Bool[np.ndarray, "k"]:
    """True on the features that at least one sample has; trees cannot be fitted to the others."""
    return ~np.isnan(features).all(axis=0)


def _require_samples(samples: Sequence[Sample]) -> None:
    if len(samples) == 0:
        raise ValueError("there is no sample to learn from or to describe: the list is empty")


def _resampled(samples: Sequence[Sample], grid: Float[np.ndarray, "n"]) -> Float[np.ndarray, "b n c"]:
    for index, sample in enumerate(samples):
        if sample.positions.shape[1] != 1:
            raise ValueError(f"sample {index} is not a series with the time as its only position")
    return np.stack([linear(times, values, grid) for times, _, values in map(as_columns, samples)])

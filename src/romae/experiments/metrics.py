"""Errors of predictions for samples of any lengths; scikit-learn has the metrics of arrays.

Predictions and targets are arrays or tensors of one shape, or lists of them, one per sample and of any lengths. Every
mean is over all elements, however they are spread over samples.
"""

import math
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64, Int64

Numbers = Any  # an array, a tensor or a number, or a list of them


def mse(prediction: Numbers, target: Numbers) -> float:
    """The mean squared error."""
    return _mean(*_squared(prediction, target))


def rmse(prediction: Numbers, target: Numbers) -> float:
    """The root of the mean squared error."""
    return math.sqrt(mse(prediction, target))


def mae(prediction: Numbers, target: Numbers) -> float:
    """The mean absolute error."""
    error = np.abs(_flat(prediction) - _flat_like(target, prediction))
    return _mean(float(error.sum()), error.size)


def macro(
    errors: Float64[np.ndarray, "n"], variables: Int64[np.ndarray, "n"], n_variables: int | None = None
) -> tuple[float, Float64[np.ndarray, "v"]]:
    """The mean over variables of the mean error of each, whatever their numbers, and the latter, NaN where none is."""
    n = int(variables.max(initial=-1)) + 1 if n_variables is None else n_variables
    counts = np.bincount(variables, minlength=n)
    totals = np.bincount(variables, weights=errors, minlength=n)
    means = np.divide(totals, counts, out=np.full(n, np.nan), where=counts > 0)
    return _mean(float(np.nansum(means)), int((counts > 0).sum())), means


def distance_rmse(prediction: Numbers, target: Numbers) -> float:
    """The root of the mean squared distance between points; in the plane, sqrt(mean of dx² + dy²).

    The last axis holds the coordinates of a point.
    """
    total, n_numbers = _squared(prediction, target)
    sizes = {np.shape(part)[-1] if np.ndim(part) else 1 for part in _parts(target)}
    if len(sizes) != 1:
        raise ValueError(f"points must all have the same number of coordinates, not {sorted(sizes)}")
    if 0 in sizes:
        raise ValueError("points need at least one coordinate, and the last axis of these is empty")
    return math.sqrt(_mean(total, n_numbers // sizes.pop()))


def spectral_error(prediction: Numbers, target: Numbers) -> float:
    """The mean squared difference of the amplitude spectra of evenly spaced series, which run along the last axis.

    Amplitudes are in the data's units: a sinusoid of amplitude 1 that fits the series has a line of height 1.
    """
    _flat_like(prediction, target)
    pairs = zip(_parts(prediction), _parts(target), strict=True)
    errors = [(_amplitudes(series) - _amplitudes(truth)) ** 2 for series, truth in pairs]
    return _mean(sum(float(error.ravel().sum()) for error in errors), sum(error.size for error in errors))


def _squared(prediction: Numbers, target: Numbers) -> tuple[float, int]:
    """The sum of the squared differences, and of how many."""
    errors = (_flat(prediction) - _flat_like(target, prediction)) ** 2
    return float(errors.sum()), errors.size


def _mean(total: float, count: int) -> float:
    if count == 0:
        raise ValueError("the mean of nothing has no value: no element was counted")
    return total / count


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

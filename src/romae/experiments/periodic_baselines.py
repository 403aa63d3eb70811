"""What stands beside a model of periodic series: sinusoids, and a Gaussian process, both with a period that is known.

Each answers one series from its visible measurements and a period that comes from them. What varies twice in a period,
such as two stars that eclipse each other, is found at half of it: both methods try the double as well. Without a period
(NaN), sinusoids are the mean, and the process has a kernel without one.

Shapes: n visible measurements, q that are asked for, p parameters.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from romae.experiments.zero_baselines import KERNELS, Kernel, Matrix, Process, Slopes

MOST_HARMONICS = 10
PER_PARAMETER = 3  # measurements, at least, for each parameter of a sum of sinusoids
LENGTHS, ROUGHNESS = (1e-1, 1e2), (1e-1, 1e1)  # bounds: how long a cycle lasts, in spans; how fine it is


class Seen(NamedTuple):
    """The visible measurements of a series, with their errors."""

    times: Float64[np.ndarray, "n"]
    values: Float64[np.ndarray, "n"]
    errors: Float64[np.ndarray, "n"]


def harmonics(seen: Seen, period: float, queries: Float64[np.ndarray, "q"]) -> Float64[np.ndarray, "q"]:
    """A mean and sinusoids of the period and its overtones by weighted least squares, within the range of what is seen.

    Their number, and whether the period is doubled, are those of the least Bayesian information criterion (BIC).
    """
    mean = np.full(len(queries), seen.values.mean())
    n, most = len(seen.times), min(MOST_HARMONICS, (len(seen.times) // PER_PARAMETER - 1) // 2)
    if not period > 0 or most < 1:
        return mean
    weight = 1 / seen.errors
    best: tuple[float, float, int] = (math.inf, period, 0)
    for candidate in (period, 2 * period):
        rows = _sinusoids(seen.times, candidate, most) * weight[:, None]
        # One decomposition gives what the first columns leave, whatever their number.
        orthogonal, _ = np.linalg.qr(rows)
        explained = np.cumsum((orthogonal.T @ (seen.values * weight)) ** 2)
        left = np.maximum(np.sum((seen.values * weight) ** 2) - explained[::2], 1e-12)
        criterion = n * np.log(left / n) + np.log(n) * (2 * np.arange(most + 1) + 1)
        best = min(best, (float(criterion.min()), candidate, int(criterion.argmin())))
    _, chosen, order = best
    rows = _sinusoids(seen.times, chosen, order)
    amplitudes = np.linalg.lstsq(rows * weight[:, None], seen.values * weight, rcond=None)[0]
    fitted = _sinusoids(queries, chosen, order) @ amplitudes
    return fitted.clip(seen.values.min(), seen.values.max())  # sinusoids swing far out where nothing is measured


def periodic_process(seen: Seen, period: float, queries: Float64[np.ndarray, "q"]) -> Float64[np.ndarray, "q"]:
    """The mean of a Gaussian process whose kernel repeats with the period, and forgets over a length that is fitted.

    Its parameters have the highest marginal likelihood; errors are noise of their own.
    """
    start, extent = seen.times.min(), float(np.ptp(seen.times)) or 1.0
    level, scale = seen.values.mean(), float(seen.values.std()) or 1.0
    times, values, known = (seen.times - start) / extent, (seen.values - level) / scale, (seen.errors / scale) ** 2
    kernels = [_repeating(candidate / extent) for candidate in (period, 2 * period)] if period > 0 else KERNELS[:1]
    fits = [Process.fitted(kernel, times, values, known) for kernel in kernels]
    middle, _ = max(fits, key=lambda fit: fit.log_likelihood).predict((queries - start) / extent)
    return middle * scale + level


def _sinusoids(times: Float64[np.ndarray, "n"], period: float, most: int) -> Float64[np.ndarray, "n p"]:
    """A column of ones, then cosine and sine of each harmonic."""
    angles = 2 * np.pi * times[:, None] / period * np.arange(1, most + 1)
    waves = np.stack([np.cos(angles), np.sin(angles)], axis=-1).reshape(len(times), 2 * most)
    return np.concatenate([np.ones((len(times), 1)), waves], axis=1)


def _repeating(period: float) -> Kernel:
    """The quasi-periodic kernel of a period that is given: over thousands of cycles its likelihood has many peaks."""

    def correlation(distance: Matrix, parameters: Sequence[float]) -> tuple[Matrix, Slopes]:
        length, roughness = parameters
        z, sine = (distance / length) ** 2, np.sin(np.pi * distance / period) / roughness
        repeated = np.exp(-0.5 * z - 2 * sine**2)
        return repeated, [z * repeated, 4 * sine**2 * repeated]

    return Kernel(correlation, (3.0, 1.0), (LENGTHS, ROUGHNESS))

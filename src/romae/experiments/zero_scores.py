"""Scores of answers to questions about series, in deviations of what is visible of each.

The score of a series is the mean over what is asked of it, and every series counts alike. A number without a
distribution is one in which all lies at a point: its CRPS is its absolute error. The absolute error of a distribution
is that of its median, the squared one that of its mean.

Shapes: b series, q numbers that are asked of one, t those of all, l levels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from romae.experiments.zero_sets import Question
from romae.inference.distributions import Distribution, joined
from romae.model.conformal import FEWEST, fitted_levels

LEVELS = (0.5, 0.8, 0.9)  # of central intervals
EVEN = (np.arange(200) + 0.5) / 200
AT_ONCE = 20  # of them, so that they fit into memory

WORST = 1e9  # deviations; JSON knows nothing above, where an answer overflows
OfSeries = tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """The scores of one method on one set, asked in one way.

    Parameters
    ----------
    crps, mae, mse : tuple of float
        Of each series.
    coverage : dict of float, optional
        The share of what is asked that lies in central intervals of each level; of points there is none.
    calibrated : dict of float, optional
        The same after split conformal calibration over series, if there are enough of them.
    seconds : float, optional
        Processor time of all answers.
    """

    crps: OfSeries
    mae: OfSeries
    mse: OfSeries
    coverage: Mapping[str, float] | None = None
    calibrated: Mapping[str, float] | None = None
    seconds: float | None = None

    def mean(self, name: str) -> float:
        """Of the crps, the mae or the mse."""
        return float(np.mean(getattr(self, name)))


def of_points(questions: Sequence[Question], points: Sequence[Float64[np.ndarray, "q"]]) -> Scores:
    """The scores of single numbers."""
    errors = _in_deviations(questions, points)
    absolute = _rounded(np.abs(error).mean() for error in errors)
    return Scores(crps=absolute, mae=absolute, mse=_rounded(np.square(error).mean() for error in errors))


def of_normals(
    questions: Sequence[Question],
    means: Sequence[Float64[np.ndarray, "q"]],
    deviations: Sequence[Float64[np.ndarray, "q"]],
) -> Scores:
    """The scores of normal distributions."""
    from scipy.special import ndtr

    points = of_points(questions, means)
    crps, levels = [], []
    for question, mean, deviation in zip(questions, means, deviations, strict=True):
        z = (question.truth - mean) / deviation
        crps.append((crps_of_standard_normal(z) * deviation).mean() / question.scale)
        levels.append(ndtr(z))
    return Scores(crps=_rounded(crps), mae=points.mae, mse=points.mse, coverage=_coverage(levels))


def of_distributions(
    questions: Sequence[Question], parts: Sequence[Distribution], seconds: float | None = None
) -> Scores:
    """The scores of a model's distributions [q, 1] of each question."""
    whole, truth = joined(parts), np.concatenate([question.truth for question in questions])
    counts = [len(question.truth) for question in questions]
    ends, scales = np.cumsum(counts)[:-1], [question.scale for question in questions]
    quantiles = _even_quantiles(whole)
    error = truth - quantiles
    scores = 2 * np.maximum(EVEN[:, None] * error, (EVEN[:, None] - 1) * error).mean(0)
    crps = _rounded(x.mean() / scale for x, scale in zip(np.split(scores, ends), scales, strict=True))
    return Scores(
        crps=crps,
        mae=of_points(questions, np.split(whole.median(), ends)).mae,
        mse=of_points(questions, np.split(quantiles.mean(0), ends)).mse,
        coverage=_coverage(np.split(whole.cdf(truth), ends)),
        calibrated=_calibrated(whole, truth, np.repeat(np.arange(len(counts)), counts)),
        seconds=seconds,
    )


def spread(questions: Sequence[Question]) -> float:
    """The mean distance of what is asked from the mean of what is visible.

    The mean absolute error over it is the NMAE, which is 1 for who answers that mean.
    """
    parts = [np.abs(q.truth - q.seen.values.mean()).mean() / q.scale for q in questions]
    return float(np.mean(parts))


def crps_of_standard_normal(z: Float64[np.ndarray, "q"]) -> Float64[np.ndarray, "q"]:
    """In closed form (Gneiting and Raftery, 2007)."""
    from scipy.special import ndtr

    return z * (2 * ndtr(z) - 1) + 2 * np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi) - 1 / np.sqrt(np.pi)


def _even_quantiles(whole: Distribution) -> Float64[np.ndarray, "l t"]:
    """Quantiles at even levels, of which a mean and a CRPS are made; those of the distribution search them anew."""
    n = len(whole)
    parts = []
    for levels in np.array_split(EVEN, len(EVEN) // AT_ONCE):
        several = whole[np.broadcast_to(np.arange(n), (len(levels), n))]
        parts.append(several.at_levels(np.broadcast_to(levels[:, None], several.shape)))
    return np.concatenate(parts)


def _in_deviations(
    questions: Sequence[Question], points: Sequence[Float64[np.ndarray, "q"]]
) -> list[Float64[np.ndarray, "q"]]:
    return [(x - question.truth) / question.scale for question, x in zip(questions, points, strict=True)]


def _coverage(levels: Sequence[Float64[np.ndarray, "q"]]) -> dict[str, float]:
    """By the probability of at most what came: it lies in a central interval if this is near a half."""
    return {
        f"{level:.0%}": round(float(np.mean([(np.abs(u - 0.5) <= level / 2).mean() for u in levels])), 4)
        for level in LEVELS
    }


def _calibrated(
    whole: Distribution, truth: Float64[np.ndarray, "t"], series: Int64[np.ndarray, "t"]
) -> dict[str, float] | None:
    """Coverage where every second series calibrates the intervals of the others, and the other way round."""
    n_series = int(series.max()) + 1
    if n_series < 2 * FEWEST:
        return None
    scores = whole.normal_score(truth)
    levels = [np.zeros(0)] * n_series
    for half in (0, 1):
        is_held_out = series % 2 == half
        conformal = fitted_levels(scores[is_held_out], series[is_held_out] // 2, by="global")
        rest = ~is_held_out
        below = whole[rest].with_calibration(conformal).cdf(truth[rest])
        for i in range(1 - half, n_series, 2):
            levels[i] = below[series[rest] == i]
    return _coverage(levels)


def _rounded(numbers: Any) -> OfSeries:
    return tuple(float(f"{x:.5g}") if x < WORST else WORST for x in numbers)  # NaN is as bad

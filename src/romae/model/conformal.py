"""Conformal calibration: intervals that hold what they promise, by numbers that were not trained on.

A level is a probability, and the normal score of a level is the number that a standard normal stays below with it. What
is kept of held-out numbers is a map of scores: the calibrated quantile of a level is the quantile of the model at the
score that the map gives. So it is the same in all units and for every likelihood, and rises as levels do.

Numbers of one sample are not exchangeable, samples are: each counts once, its numbers share that, and one sample more,
of which nothing is known, lies outside. With n samples the central interval of level a then holds at least a share a of
the numbers of a new sample, on average over samples, for every level in `LEVELS` up to 1 - 2 / (n + 1).

Shapes: t held-out numbers, *s that of the predictions.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float64, Int64

from romae.config import check_types

By = Literal["global", "channel", "distance"]
Array = Float64[np.ndarray, "*s"]

# Of the central intervals of 99, 98, 95, 90, 80, 70, … 10 %, and the median.
_LOWER = (0.005, 0.01, 0.025, *(k / 20 for k in range(1, 10)))
LEVELS = (*_LOWER, 0.5, *(1 - level for level in reversed(_LOWER)))
FEWEST = 20  # samples: of fewer, no interval of 90 % has a finite end
ENOUGH = 100  # samples that decide by themselves, where nobody asks for it: ends of 90 % are 89 % to 95 % by chance
MOST_GROUPS = 4  # by distance
LEAST_SLOPE = 0.01  # of a map, so that what it gives can be undone


@dataclass(frozen=True, slots=True, kw_only=True)
class Conformal:
    """What is done to the levels of predicted distributions; `romae.calibrate` fits it.

    Parameters
    ----------
    by : {"global", "channel", "distance"}
        What decides which map a number has: nothing, its channel (or its place among several targets), or how far the
        nearest observation of its channel is.
    levels : tuple of float
        The levels of which maps are known, rising.
    scores : tuple of tuples of float
        The maps: for each of the levels the normal score of the model's level, rising. The first one is of all numbers.
    n_samples : tuple of int
        How many samples each map was fitted to.
    groups : tuple of int, default ()
        The number of the map of each channel, or of each distance; all others have the first one.
    edges : tuple of float, default ()
        Distances, as the model sees positions, at which one group ends and the next begins.

    Raises
    ------
    ValueError
        If levels or scores do not rise, or lengths do not agree.
    """

    by: By = "global"
    levels: tuple[float, ...]
    scores: tuple[tuple[float, ...], ...]
    n_samples: tuple[int, ...]
    groups: tuple[int, ...] = ()
    edges: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        check_types(self)
        levels = self.levels
        if len(levels) < 2 or not 0 < levels[0] or not levels[-1] < 1 or not _rises(levels):
            raise ValueError(f"the levels of a calibration rise between 0 and 1, not {list(levels)}")
        if not self.scores or any(len(scores) != len(levels) or not _rises(scores) for scores in self.scores):
            raise ValueError(f"a map of a calibration has {len(levels)} rising scores, one for each level")
        if len(self.n_samples) != len(self.scores):
            raise ValueError(
                f"a calibration of {len(self.scores)} maps has as many n_samples, not {len(self.n_samples)}"
            )
        if not all(0 <= group < len(self.scores) for group in self.groups):
            raise ValueError(f"groups are numbers of the {len(self.scores)} maps, not {list(self.groups)}")
        if self.edges and (not _rises(self.edges) or len(self.groups) != len(self.edges) + 1):
            raise ValueError("edges rise, and lie between as many groups and one more")

    def map_of(self, places: Array) -> Int64[np.ndarray, "*s"]:
        """The number of the map of each place, which is the number of a channel, or a distance."""
        if not self.groups:
            return np.zeros(np.shape(places), dtype=np.int64)
        is_distance = self.by == "distance"
        number = np.searchsorted(np.array(self.edges), places) if is_distance else places.astype(np.int64)
        last = len(self.groups) - 1
        return np.where(number <= last, np.array(self.groups)[np.minimum(number, last)], 0)

    def to_model(self, score: Array, places: Array) -> Array:
        """The scores of the model's levels, for the scores of calibrated ones."""
        result, nominal = np.empty(np.shape(score)), _scores_of(self.levels)
        for here, scores in self._by_map(places):
            result[here] = _joined(score[here], nominal, scores)
        return result

    def from_model(self, score: Array, places: Array) -> tuple[Array, Array]:
        """The scores of calibrated levels, for those of the model's, and how fast the first rise with the second."""
        result, slope, nominal = np.empty(np.shape(score)), np.empty(np.shape(score)), _scores_of(self.levels)
        for here, scores in self._by_map(places):
            result[here] = _joined(score[here], scores, nominal)
            below, above = _end_slopes(scores, nominal)
            slopes = np.concatenate([[below], np.diff(nominal) / np.diff(scores), [above]])
            slope[here] = slopes[np.searchsorted(scores, score[here])]
        return result, slope

    def _by_map(self, places: Array) -> Iterator[tuple[Bool[np.ndarray, "*s"], Float64[np.ndarray, "l"]]]:
        """Which of the places have a map, and its scores."""
        number = self.map_of(places)
        for i in np.unique(number).tolist():
            yield number == i, np.array(self.scores[i])


def fitted_levels(
    scores: Float64[np.ndarray, "t"],
    sample: Int64[np.ndarray, "t"],
    *,
    by: By = "global",
    places: Float64[np.ndarray, "t"] | None = None,
    weights: Float64[np.ndarray, "b"] | None = None,
    enough: int = FEWEST,
) -> Conformal:
    """The calibration that suits held-out numbers.

    `scores` are the normal scores of the model's probabilities of at most these numbers, `sample` and `places` say
    whose they are and where, `weights` how much each sample counts. A group of fewer samples than `enough` has the map
    of all numbers.
    """
    weights = np.ones(int(sample.max(initial=-1)) + 1) if weights is None else weights
    counts = weights[sample] > 0
    places = np.zeros(len(scores)) if places is None else places
    scores, sample, places = scores[counts], sample[counts], places[counts]
    n = len(np.unique(sample))
    if n == 0 or _n_equal(weights[np.unique(sample)]) < FEWEST:
        raise ValueError(
            f"a calibration of numbers needs {FEWEST} samples that were not trained on, each with something to "
            f"predict, and there are {n}; of fewer, no interval of 90 % has an end"
        )
    if by == "channel" and (places == places[0]).all():
        by = "global"
    edges: tuple[float, ...] = ()
    number = np.zeros(len(scores), dtype=np.int64)
    if by == "channel":
        number = places.astype(np.int64)
    elif by == "distance":
        edges = _edges(places, sample, enough)
        number = np.searchsorted(np.array(edges), places)
    maps, n_samples, groups = [_map_of(scores, sample, weights)], [n], []
    for i in range(int(number.max()) + 1 if by == "channel" or edges else 0):
        here = number == i
        here_samples = np.unique(sample[here])
        n_here, is_enough = len(here_samples), _n_equal(weights[here_samples]) >= enough if len(here_samples) else False
        groups.append(len(maps) if is_enough else 0)
        if is_enough:
            maps.append(_map_of(scores[here], sample[here], weights))
            n_samples.append(n_here)
    if len(maps) == 1:
        by, groups, edges = "global", [], ()
    return Conformal(
        by=by, levels=LEVELS, scores=tuple(maps), n_samples=tuple(n_samples), groups=tuple(groups), edges=edges
    )


def _edges(distances: Float64[np.ndarray, "t"], sample: Int64[np.ndarray, "t"], enough: int) -> tuple[float, ...]:
    """Distances that part numbers into as many groups of about the same size as there are samples for."""
    finite = distances[np.isfinite(distances)]
    for n_groups in range(MOST_GROUPS, 1, -1):
        if len(finite) == 0:
            break
        levels = np.arange(1, n_groups) / n_groups
        edges = np.unique(np.quantile(finite, levels, method="inverted_cdf"))
        has_lonely = not np.isfinite(distances).all()
        if has_lonely:
            edges = np.unique([*edges, finite.max()])  # where there is no observation is a group of its own
        else:
            edges = edges[edges < finite.max()]
        number = np.searchsorted(edges, distances)
        # The lonely ones may be too few for a map of their own, which says nothing of the others.
        of_group = [len(np.unique(sample[number == i])) for i in range(len(edges) + (not has_lonely))]
        if len(edges) > 0 and min(of_group) >= enough:
            return tuple(edges.tolist())
    return ()


def _map_of(
    scores: Float64[np.ndarray, "t"], sample: Int64[np.ndarray, "t"], weights: Float64[np.ndarray, "b"]
) -> tuple[float, ...]:
    """The scores of the model's levels, one for each of `LEVELS`."""
    n = _n_equal(weights[np.unique(sample)])
    mass = (weights / np.maximum(np.bincount(sample, minlength=len(weights)), 1))[sample]
    mass = mass / mass.sum() * n / (n + 1)  # the rest is that of one sample more, which lies outside
    nominal, middle = _scores_of(LEVELS), len(LEVELS) // 2
    above = _reached(scores, mass, np.array(LEVELS[middle:]))
    below = -_reached(-scores, mass, 1 - np.array(LEVELS[middle::-1]))
    above[0] = below[0] = (above[0] + below[0]) / 2
    upper = _outwards(above, nominal[middle:])
    lower = -_outwards(-below, -nominal[middle::-1])
    return tuple([*lower[:0:-1].tolist(), *upper.tolist()])


def _n_equal(weights: Float64[np.ndarray, "b"]) -> float:
    """How many samples of equal weights would say as much."""
    return float(weights.sum() ** 2 / (weights**2).sum()) + 1e-9


def _reached(
    scores: Float64[np.ndarray, "t"], mass: Float64[np.ndarray, "t"], levels: Float64[np.ndarray, "l"]
) -> Float64[np.ndarray, "l"]:
    """The lowest score up to which there is as much mass as each level; infinite where there is not as much at all."""
    order = np.argsort(scores, kind="stable")
    ordered = np.append(scores[order], np.inf)
    return ordered[np.searchsorted(np.cumsum(mass[order]), levels - 1e-9)]


def _outwards(scores: Float64[np.ndarray, "l"], nominal: Float64[np.ndarray, "l"]) -> Float64[np.ndarray, "l"]:
    """From the median on: steps that are too small are made larger, and what is not known goes on as it was."""
    n_known = int(np.isfinite(scores).sum())
    known, steps = scores[:n_known].copy(), np.diff(nominal)
    for i in range(1, n_known):
        known[i] = max(known[i], known[i - 1] + LEAST_SLOPE * steps[i - 1])
    slope = (known[-1] - known[0]) / (nominal[n_known - 1] - nominal[0])
    return np.concatenate([known, known[-1] + slope * (nominal[n_known:] - nominal[n_known - 1])])


def _scores_of(levels: tuple[float, ...]) -> Float64[np.ndarray, "l"]:
    """The normal scores of levels."""
    return np.array([NormalDist().inv_cdf(level) for level in levels])


def _joined(at: Float64[np.ndarray, "n"], x: Float64[np.ndarray, "l"], y: Float64[np.ndarray, "l"]) -> Any:
    """Lines through points; beyond the last one a line goes on with the mean slope from the middle one."""
    below, above = _end_slopes(x, y)
    inside = np.interp(at, x, y)
    return np.where(at < x[0], y[0] + below * (at - x[0]), np.where(at > x[-1], y[-1] + above * (at - x[-1]), inside))


def _end_slopes(x: Float64[np.ndarray, "l"], y: Float64[np.ndarray, "l"]) -> tuple[float, float]:
    middle = len(x) // 2
    below, above = (y[middle] - y[0]) / (x[middle] - x[0]), (y[-1] - y[middle]) / (x[-1] - x[middle])
    return float(below), float(above)


def _rises(numbers: tuple[float, ...]) -> bool:
    return all(map(isfinite, numbers)) and all(a < b for a, b in pairwise(numbers))

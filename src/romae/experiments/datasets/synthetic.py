"""Synthetic series: smooth random curves seen at a few noisy points (the paper's Table 7).

Ten independent standard normal numbers stand at reference times, and the curve is their average weighted by
exp(-120 (t - reference)²). Everything is linear and Gaussian, so the best prediction is known exactly, and so is its
error: a model with a smaller one has seen what it should not.

Shapes: b series, n times, q query times, r references.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from jaxtyping import Float

from romae.experiments.datasets.streams import streams
from romae.tokens.sample import Sample

COUNTS = MappingProxyType({"train": 1_600, "validation": 200, "test": 200})

NOISE = 0.1  # standard deviation
SHARPNESS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The times of the points and of the references, and how many points are observed, from fewest to most."""

    times: tuple[float, ...]
    references: tuple[float, ...]
    fewest: int
    most: int

    def __post_init__(self) -> None:
        if not 0 < self.fewest <= self.most < len(self.times):
            raise ValueError(
                f"the observed points, {self.fewest} to {self.most}, must be some and not all of {len(self.times)}"
            )


def _evenly(first: float, last: float, n: int) -> tuple[float, ...]:
    return tuple(np.linspace(first, last, n).tolist())


GRIDS = MappingProxyType(
    {
        "romae": Grid(times=_evenly(0.02, 1, 50), references=_evenly(0.1, 1, 10), fewest=3, most=10),
        "hetvae": Grid(times=_evenly(0, 1, 51), references=_evenly(0, 1, 10), fewest=3, most=9),
    }
)


def generate(*, seed: int, grid: Grid = GRIDS["romae"], counts: Mapping[str, int] = COUNTS) -> dict[str, list[Sample]]:
    """Series of each split, noise included.

    Training samples carry no mask, so that a new one may be drawn at each step; all others are `hidden` where
    they are not observed. Splits are drawn independently, so the size of one does not change the others.
    """
    return {
        split: _series(counts[split], grid, random, has_mask=split != "train")
        for split, random in streams(seed, counts).items()
    }


def _series(n_series: int, grid: Grid, random: np.random.Generator, has_mask: bool) -> list[Sample]:
    times = np.array(grid.times)
    latent = random.standard_normal((n_series, len(grid.references)))
    noise = random.normal(0, NOISE, (n_series, len(times)))
    values = latent @ weights(times, grid).T + noise
    n_observed = random.integers(grid.fewest, grid.most, n_series, endpoint=True)
    rank = random.random(values.shape).argsort(axis=1).argsort(axis=1)
    hidden = rank >= n_observed[:, None]
    return [
        Sample(series[:, None], times[:, None], hidden=mask if has_mask else None)
        for series, mask in zip(values, hidden, strict=True)
    ]


def weights(times: Float[np.ndarray, "n"], grid: Grid) -> Float[np.ndarray, "n r"]:
    """How much each reference counts at each time; they add up to 1."""
    closeness = np.exp(-SHARPNESS * (times[:, None] - np.array(grid.references)) ** 2)
    return closeness / closeness.sum(axis=1, keepdims=True)


def posterior(
    times: Float[np.ndarray, "n"], values: Float[np.ndarray, "n"], queries: Float[np.ndarray, "q"], grid: Grid
) -> tuple[Float[np.ndarray, "q"], Float[np.ndarray, "q"]]:
    """The mean and the variance of noisy values at the query times, given those observed: nothing can do better."""
    observed, queried = weights(times, grid), weights(queries, grid)
    precision = observed.T @ observed / NOISE**2 + np.eye(len(grid.references))
    covariance = np.linalg.inv(precision)
    mean = queried @ covariance @ observed.T @ values / NOISE**2
    variance = np.einsum("qr,rs,qs->q", queried, covariance, queried) + NOISE**2
    return mean, variance


def floor(samples: Sequence[Sample], grid: Grid) -> float:
    """The smallest mean squared error that can be expected on the hidden points of these samples."""
    total, n_points = 0.0, 0
    for index, sample in enumerate(samples):
        if sample.hidden is None:
            raise ValueError(f"sample {index} hides no point, so there is nothing to predict in it")
        times, hidden = sample.positions[:, 0].numpy(), sample.hidden.numpy()
        visible = np.zeros(int((~hidden).sum()))  # the variance does not depend on the values
        _, variance = posterior(times[~hidden], visible, times[hidden], grid)
        total, n_points = total + variance.sum(), n_points + len(variance)
    return float(total / n_points)

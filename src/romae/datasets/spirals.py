"""Spirals: fill in the missing points of noisy curves in the plane (the paper's Table 7).

Half of the spirals are wound inwards and half outwards. The first half of each curve is taken; both coordinates are
scaled to 0 to 1 over all spirals. A token is one point (x, y) with noise, its position the time, its target the
point without noise. Row A observes 50 of the 75 points under noise 0.05 (ContiFormer's protocol), row B 30 under 0.1
(RoMAE's); noise is given in the units before scaling. As in ContiFormer's script, all spirals of a split are
observed at the same times. How hard a split is then hangs on one draw, above all on whether the first point, where the
inward spirals are fastest, is in it: compare numbers on the same seed only.

Shapes: b spirals, f points of a whole spiral, n of its first half.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from jaxtyping import Bool, Float

from romae.tokens import Sample

COUNTS = MappingProxyType({"train": 160, "validation": 40, "test": 100})

N_POINTS, N_FIRST_HALF = 150, 75
LAST_TIME = 6 * np.pi


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """How many points of the first half are observed, the standard deviation of their noise, and where they are.

    `is_shared` observes all spirals of a split at the same times; otherwise each has times of its own.
    """

    n_observed: int
    noise: float
    is_shared: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.n_observed < N_FIRST_HALF:
            raise ValueError(f"n_observed must leave some of the {N_FIRST_HALF} points hidden, not {self.n_observed}")
        if self.noise < 0:
            raise ValueError(f"the standard deviation of the noise cannot be negative, and it is {self.noise}")

    @property
    def ratio(self) -> float:
        """The share of points to hide."""
        return 1 - self.n_observed / N_FIRST_HALF


ROWS = MappingProxyType({"A": Row(n_observed=50, noise=0.05), "B": Row(n_observed=30, noise=0.1)})


def generate(*, seed: int, row: Row = ROWS["A"], counts: Mapping[str, int] = COUNTS) -> dict[str, list[Sample]]:
    """Spirals of each split.

    Training samples carry no mask, so that a new one may be drawn at each step; all others are `hidden` where
    they are not observed. Splits are drawn independently, but the scale is common to all of them.
    """
    streams = np.random.default_rng(seed).spawn(len(counts))
    clean = {name: _curves(n, random) for (name, n), random in zip(counts.items(), streams, strict=True)}
    points = np.concatenate([curves.reshape(-1, 2) for curves in clean.values()])
    lowest, extent = points.min(axis=0), np.ptp(points, axis=0)
    times = np.linspace(0, LAST_TIME, N_POINTS)[:N_FIRST_HALF, None]
    splits = {}
    for (name, curves), random in zip(clean.items(), streams, strict=True):
        curves = curves[:, :N_FIRST_HALF]
        noisy = curves + random.normal(0, row.noise, curves.shape)
        hidden = _hidden(len(curves), row, random)
        splits[name] = [
            Sample(
                values=(seen - lowest) / extent,
                positions=times,
                target=(true - lowest) / extent,
                hidden=None if name == "train" else mask.copy(),
            )
            for seen, true, mask in zip(noisy, curves, hidden, strict=True)
        ]
    return splits


def _curves(n_spirals: int, random: np.random.Generator) -> Float[np.ndarray, "b f 2"]:
    """Spirals without noise, in random order of the two kinds."""
    start = random.normal(0, 0.02, (n_spirals, 1))
    growth = random.normal(0.3, 0.02, (n_spirals, 1))
    time = np.linspace(0, LAST_TIME, N_POINTS)
    back = (LAST_TIME + 1 - time)[::-1]
    inwards = _polar(start + 50 * growth / back, back) + [-5, 0]
    outwards = _polar(start + growth * time, time) + [5, 0]
    is_inwards = random.permutation(n_spirals) < n_spirals / 2
    return np.where(is_inwards[:, None, None], inwards, outwards)


def _polar(radius: Float[np.ndarray, "b f"], angle: Float[np.ndarray, "f"]) -> Float[np.ndarray, "b f 2"]:
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1)


def _hidden(n_spirals: int, row: Row, random: np.random.Generator) -> Bool[np.ndarray, "b n"]:
    rank = random.random((1 if row.is_shared else n_spirals, N_FIRST_HALF)).argsort(axis=1).argsort(axis=1)
    return np.broadcast_to(rank >= row.n_observed, (n_spirals, N_FIRST_HALF))

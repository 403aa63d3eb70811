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

from romae.experiments.datasets.streams import streams
from romae.tokens.sample import Sample

COUNTS = MappingProxyType({"train": 160, "validation": 40, "test": 100})

N_POINTS, N_FIRST_HALF = 150, 75
LAST_TIME = 6 * np.pi
SPREAD = 0.02  # standard deviation of a spiral's start and growth


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
    clean, lowest, extent, randoms = _clean(seed, counts)
    times = np.linspace(0, LAST_TIME, N_POINTS)[:N_FIRST_HALF, None]
    splits = {}
    for name, random in randoms.items():
        curves = clean[name][0][:, :N_FIRST_HALF]
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


def floor(split: str, *, seed: int, row: Row = ROWS["A"], counts: Mapping[str, int] = COUNTS) -> float:
    """The smallest distance (root of the mean square) to expect on the hidden points of a split.

    A spiral of a known kind is linear in its two random numbers, so what the observed points say of them is known
    exactly. Which of the two kinds it is, is plain to see.
    """
    clean, _, extent, randoms = _clean(seed, counts)
    (curves, is_inwards), random = clean[split], randoms[split]
    random.normal(0, row.noise, (len(curves), N_FIRST_HALF, 2))  # the noise, drawn before the mask
    total, n_points = 0.0, 0
    for hidden, inwards in zip(_hidden(len(curves), row, random), is_inwards, strict=True):
        design = _design(inwards)[:N_FIRST_HALF]
        seen, unseen = design[~hidden].reshape(-1, 2), design[hidden]
        variance = np.einsum("nci,ij,ncj->nc", unseen, _covariance(seen, row.noise), unseen) / extent**2
        total, n_points = total + variance.sum(), n_points + len(unseen)
    return float(np.sqrt(total / n_points))


def _clean(
    seed: int, counts: Mapping[str, int]
) -> tuple[dict[str, tuple[np.ndarray, np.ndarray]], np.ndarray, np.ndarray, dict[str, np.random.Generator]]:
    """The curves and kinds of each split without noise, the common scale, and the streams to go on drawing from."""
    randoms = streams(seed, counts)
    clean = {name: _curves(counts[name], random) for name, random in randoms.items()}
    if not any(counts.values()):
        raise ValueError("spirals share one scale, which takes at least one of them; give a split some samples")
    points = np.concatenate([curves.reshape(-1, 2) for curves, _ in clean.values()])
    return clean, points.min(axis=0), np.ptp(points, axis=0), randoms


def _curves(n_spirals: int, random: np.random.Generator) -> tuple[Float[np.ndarray, "b f 2"], Bool[np.ndarray, "b"]]:
    """Spirals without noise, in random order of the two kinds, and which are wound inwards."""
    start = random.normal(0, SPREAD, (n_spirals, 1))
    growth = random.normal(0.3, SPREAD, (n_spirals, 1))
    time = np.linspace(0, LAST_TIME, N_POINTS)
    back = (LAST_TIME + 1 - time)[::-1]
    inwards = _polar(start + 50 * growth / back, back) + [-5, 0]
    outwards = _polar(start + growth * time, time) + [5, 0]
    is_inwards = random.permutation(n_spirals) < n_spirals / 2
    return np.where(is_inwards[:, None, None], inwards, outwards), is_inwards


def _design(inwards: bool | np.bool) -> Float[np.ndarray, "f 2 2"]:
    """How each coordinate of each point hangs on the start and the growth of a spiral."""
    time = np.linspace(0, LAST_TIME, N_POINTS)
    angle = (LAST_TIME + 1 - time)[::-1] if inwards else time
    by_growth = 50 / angle if inwards else angle
    return np.stack([_polar(np.ones_like(angle)[None], angle)[0], _polar(by_growth[None], angle)[0]], axis=-1)


def _covariance(seen: Float[np.ndarray, "m 2"], noise: float) -> Float[np.ndarray, "2 2"]:
    """Of a spiral's start and growth, once m coordinates that hang on them so have been seen under noise."""
    if noise > 0:
        return np.linalg.inv(seen.T @ seen / noise**2 + np.eye(2) / SPREAD**2)
    axes = np.linalg.svd(seen, full_matrices=False)[2]
    unknown = axes[np.linalg.matrix_rank(seen) :]  # without noise, the others are known exactly
    return SPREAD**2 * unknown.T @ unknown


def _polar(radius: Float[np.ndarray, "b f"], angle: Float[np.ndarray, "f"]) -> Float[np.ndarray, "b f 2"]:
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1)


def _hidden(n_spirals: int, row: Row, random: np.random.Generator) -> Bool[np.ndarray, "b n"]:
    rank = random.random((1 if row.is_shared else n_spirals, N_FIRST_HALF)).argsort(axis=1).argsort(axis=1)
    return np.broadcast_to(rank >= row.n_observed, (n_spirals, N_FIRST_HALF))

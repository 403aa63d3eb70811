"""Rules: what is not said follows from the data, by a few lines that hold from 40 to 100 000 samples.

Small data need many passes with small batches and a shallow model; large data need few passes. Each rule is a
function of the number of samples and of their lengths, so that the same data give the same settings everywhere.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int64, Shaped

from romae.model.config import SIZES, Size
from romae.tokens.sample import Sample

SHALLOW_BELOW = 1_000  # samples
TOKENS_PER_BATCH = 32_768
SMALLEST_SPLIT = 20  # samples; of fewer, none can be spared


class Course(NamedTuple):
    """How a stage goes: its rate at the smallest width, and its steps within limits of passes over the data."""

    lr: float
    n_steps: int
    at_least: int
    at_most: int


PRETRAINING = Course(lr=1e-3, n_steps=1_500, at_least=5, at_most=60)
FINE_TUNING = Course(lr=5e-4, n_steps=1_500, at_least=10, at_most=60)
PROBING = Course(lr=1e-2, n_steps=1_500, at_least=10, at_most=60)  # a head on a frozen encoder


def fitting_size(n_samples: int) -> Size:
    """Two layers for up to a thousand samples, the paper's smallest model for more."""
    return SIZES["tiny-shallow" if n_samples < SHALLOW_BELOW else "tiny"]


def fitting_batch(lengths: Int64[np.ndarray, "b"]) -> int:
    """An eighth of the samples, as a power of two from 8 to 128, and no more tokens than fit into memory."""
    power = 2 ** int(np.log2(max(len(lengths) / 8, 1)))
    return int(np.clip(power, 8, max(1, min(128, TOKENS_PER_BATCH // max(int(lengths.mean()), 1)))))


def fitting_epochs(n_samples: int, batch_size: int, course: Course) -> int:
    """Passes enough for the steps that are wanted, within limits."""
    return int(np.clip(-(-course.n_steps * batch_size // n_samples), course.at_least, course.at_most))


def fitting_rate(size: Size, course: Course) -> float:
    """That of the course up to the smallest width, and less in proportion for wider models."""
    smallest = SIZES["tiny"].width
    return course.lr * smallest / max(size.width, smallest)


def fitting_patience(epochs: int) -> int:
    """A quarter of all passes, but at least five, may go by without improvement."""
    return max(5, epochs // 4)


def fitting_share(n_samples: int) -> float:
    """The share of samples to validate on: a fifth of some hundred, a tenth of many, none of a handful."""
    return 0.0 if n_samples < SMALLEST_SPLIT else float(np.clip(100 / n_samples, 0.1, 0.2))


def held_out(groups: Shaped[np.ndarray, "b"], share: float, random: np.random.Generator) -> Bool[np.ndarray, "b"]:
    """True on the samples to validate on: the same share of every group, of which at least one member stays."""
    chosen = np.zeros(len(groups), dtype=bool)
    for group in np.unique(groups):
        members = random.permutation(np.flatnonzero(groups == group))
        n_chosen = min(int(share * len(members) + random.uniform()), len(members) - 1)
        chosen[members[:n_chosen]] = True
    return chosen


def first_time(samples: Sequence[Sample]) -> float:
    """When the first of the samples begins: the origin of a clock that they share."""
    return min(float(sample.positions[:, 0].min()) for sample in samples)

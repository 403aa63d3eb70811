"""Random numbers for the splits of a generator, drawn independently, so that the size of one changes no other."""

from collections.abc import Mapping
from numbers import Integral

import numpy as np


def streams(seed: int, counts: Mapping[str, int]) -> dict[str, np.random.Generator]:
    """One stream for each split; a split may be empty, and counts that cannot be are refused."""
    if not counts:
        raise ValueError("counts names no split; give at least one, such as {'train': 100}")
    for split, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, Integral) or count < 0:
            raise ValueError(f"the number of samples in {split!r} must be a whole number from 0, not {count!r}")
    return dict(zip(counts, np.random.default_rng(seed).spawn(len(counts)), strict=True))

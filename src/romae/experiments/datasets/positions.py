"""Position reconstruction: tokens that hold nothing but their position (the paper's Table 1 and Figure 2).

Every value is 1, and the target of each token is its own position.
"""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from romae.experiments.datasets.streams import streams
from romae.tokens.sample import Sample

COUNTS = MappingProxyType({"train": 20_000, "validation": 2_000, "test": 4_000})


def generate(
    *, seed: int, n_tokens: int = 10, low: float = 0.0, high: float = 50.0, counts: Mapping[str, int] = COUNTS
) -> dict[str, list[Sample]]:
    """Samples of each split, their positions uniform between `low` and `high`.

    Splits are drawn independently, so the size of one does not change the others.
    """
    _require_range(low, high)
    if n_tokens < 1:
        raise ValueError(f"a sample needs at least one token, not {n_tokens}")
    return {
        split: [_sample(positions) for positions in random.uniform(low, high, (counts[split], n_tokens, 1))]
        for split, random in streams(seed, counts).items()
    }


def evenly_spaced(n_samples: int = 500, *, low: float = 0.0, high: float = 100.0) -> list[Sample]:
    """Samples of a single token each, at evenly spaced positions from `low` to `high`: the abscissa of Figure 2."""
    _require_range(low, high)
    if n_samples < 1:
        raise ValueError(f"n_samples must be at least 1, not {n_samples}")
    return [_sample(position) for position in np.linspace(low, high, n_samples).reshape(-1, 1, 1)]


def variance(low: float = 0.0, high: float = 50.0) -> float:
    """The variance of the positions: the least error of a model that cannot see where its tokens lie."""
    _require_range(low, high)
    return (high - low) ** 2 / 12


def _sample(positions: np.ndarray) -> Sample:
    return Sample(np.ones(positions.shape, dtype=np.float32), positions, target=positions)


def _require_range(low: float, high: float) -> None:
    if not low < high:
        raise ValueError(f"positions need a range that climbs, not from {low} to {high}")

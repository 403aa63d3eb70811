"""How sure predictions are, as columns of a table: deviation, interval and quantiles beside the mean.

Shapes: *s that of the predictions, k numbers that are told of each.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float64

Array = Float64[np.ndarray, "*s"]


@runtime_checkable
class Uncertain(Protocol):
    """Predicted numbers with their distributions, such as `romae.inference.distributions.Distribution`."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the predictions."""
        ...

    def mean(self) -> Array:
        """The mean."""
        ...

    def std(self) -> Array:
        """The standard deviation."""
        ...

    def quantile(self, level: float) -> Array:
        """The number that lies above a prediction with this probability."""
        ...

    def interval(self, level: float) -> tuple[Array, Array]:
        """The central interval of a probability. (Tensors have all of the others.)"""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """What is told of a distribution beside its mean and deviation.

    `interval` is the probability of a central interval, `quantiles` are levels, which are sorted.
    """

    interval: float | None = None
    quantiles: Sequence[float] | None = None

    def __post_init__(self) -> None:
        if self.interval is not None:
            require_level(self.interval)
        if self.quantiles is not None:
            object.__setattr__(self, "quantiles", require_levels(self.quantiles))

    @property
    def is_asked(self) -> bool:
        """Whether anything is told beside the mean."""
        return self.interval is not None or self.quantiles is not None

    @property
    def endings(self) -> tuple[str, ...]:
        """What the columns of a number are called, each behind its name."""
        ends = () if self.interval is None else ("_lower", "_upper")
        return ("", "_std", *ends, *(f"_q{level:g}" for level in self.quantiles or ()))

    def names(self, names: Sequence[str]) -> list[str]:
        """The columns of numbers of these names."""
        return [f"{name}{ending}" for name in names for ending in self.endings]

    def told(self, distribution: Uncertain) -> Float64[np.ndarray, "*s k"]:
        """The mean, the deviation, the ends of the interval and the quantiles of each number."""
        ends = () if self.interval is None else ((1 - self.interval) / 2, (1 + self.interval) / 2)
        levels = (*ends, *(self.quantiles or ()))
        parts = [distribution.mean(), distribution.std(), *(distribution.quantile(level) for level in levels)]
        return np.stack(parts, axis=-1).astype(np.float64)


def require_level(level: Any) -> float:
    """The level of an interval, if it is one."""
    if isinstance(level, bool) or not isinstance(level, Real) or not 0 < float(level) < 1:
        raise ValueError(f"an interval has a level above 0 and below 1, such as 0.9, not {level!r}")
    return float(level)


def require_levels(levels: Any) -> tuple[float, ...]:
    """The levels of quantiles from the lowest to the highest, if they are some, each once."""
    if isinstance(levels, str) or not hasattr(levels, "__iter__"):
        raise ValueError(f"quantiles are a list of levels, such as [0.1, 0.5, 0.9], not {levels!r}")
    given = list(levels)
    if not given:
        raise ValueError("quantiles are a list of levels, such as [0.1, 0.5, 0.9], and this one is empty")
    for level in given:
        if isinstance(level, bool) or not isinstance(level, Real) or not 0 < float(level) < 1:
            raise ValueError(f"a quantile has a level above 0 and below 1, such as 0.5, not {level!r}")
    once = sorted({float(level) for level in given})
    if len(once) < len(given):
        twice = next(level for level in once if given.count(level) > 1)
        raise ValueError(f"the quantile {twice:g} is asked twice; give each level once")
    return tuple(once)

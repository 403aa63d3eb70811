"""How the phase of samples is found: what a schema, a store and a checkpoint keep of it.

Shapes: n tokens, d position axes, e of them with or without the phase.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from romae.config import check_types
from romae.tokens.ladder import Ladder


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """How the phase of samples was found, so that that of others is found in the same way.

    The phase is the second position axis: the time since a sample's first visible measurement, in periods. Where a
    sample has no significant period it is 0 for all tokens, and turns nothing.

    Parameters
    ----------
    period : {"auto", "fact", "given"}, default "auto"
        Where periods come from: the periodogram of what is visible of a sample, a static fact, or numbers that were
        handed over.
    harmonics : int, default 4
        How many wavelengths the axis has: 1, 1/2, 1/3, … of a cycle.
    fact : str, optional
        The static fact that is the period.
    shortest : float, optional
        The shortest period to look for; by default it follows from the cadence of a sample.
    longest : float, optional
        The longest period to look for; by default half the span of a sample.
    false_alarm : float, default 0.01
        The false-alarm probability above which a period is not significant.
    errors : str, optional
        The column of values that holds the errors of the others; by default one that is called so, such as flux_err.

    Raises
    ------
    ValueError
        If a number lies outside its range, or a fact is named that is not used, or the other way round.
    TypeError
        If a setting is of another type.

    Examples
    --------
    >>> from romae.data.phase import Phase
    >>> Phase(harmonics=3).ladder.wavelengths
    (1.0, 0.5, 0.3333333333333333)
    """

    period: Literal["auto", "fact", "given"] = "auto"
    harmonics: int = 4
    fact: str | None = None
    shortest: float | None = None
    longest: float | None = None
    false_alarm: float = 0.01
    errors: str | None = None

    def __post_init__(self) -> None:
        check_types(self)
        if not 1 <= self.harmonics <= 64:
            raise ValueError(f"harmonics is how many wavelengths a phase has, from 1 to 64, not {self.harmonics}")
        for name in ("shortest", "longest"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"the {name} period must be a number above 0, not {value}")
        if self.shortest is not None and self.longest is not None and self.shortest >= self.longest:
            raise ValueError(f"the shortest period ({self.shortest}) must be below the longest ({self.longest})")
        if not 0 < self.false_alarm <= 1:
            raise ValueError(f"false_alarm is a probability above 0 and at most 1, not {self.false_alarm}")
        if (self.fact is not None) != (self.period == "fact"):
            raise ValueError("name a static fact with period='fact', and with no other period")

    @property
    def ladder(self) -> Ladder:
        """The wavelengths of the axis, in cycles."""
        return Ladder(wavelengths=tuple(1.0 / harmonic for harmonic in range(1, self.harmonics + 1)))


PHASE_AXIS = 1  # behind the time: the channel stays last, and further positions keep their order


def without_axis(positions: Float[Tensor, "n d"]) -> Float[Tensor, "n e"]:
    """Positions without their phase."""
    return torch.cat([positions[:, :PHASE_AXIS], positions[:, PHASE_AXIS + 1 :]], dim=1)


def with_axis(positions: Float[Tensor, "n d"], phase: Float64[Tensor, "n"]) -> Float64[Tensor, "n e"]:
    """Positions with a phase behind the time, in double precision: there may be many cycles."""
    x = positions.double()
    return torch.cat([x[:, :PHASE_AXIS], phase.to(x.device).unsqueeze(1), x[:, PHASE_AXIS:]], dim=1)

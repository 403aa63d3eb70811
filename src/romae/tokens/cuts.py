"""Cuts: the moment after which the future of each sample begins, in the data's own time and as a model sees it.

Positions reach a mask as the model sees them: each sample's origin is subtracted, and they are divided by a unit. A
cut in the data's own time goes the same way, in the same arithmetic, so that both agree to the last bit.

Shapes: t tokens of all samples end to end, b samples, d position axes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Float64
from torch import Tensor

from romae.tokens.layout import Layout

Since = Literal["clock", "first", "last"]
Length = float | str | timedelta | np.timedelta64
Moment = Length | datetime | np.datetime64


class Drawn(NamedTuple):
    """What a masking has drawn for each token: which are hidden, and which are left out altogether, if any.

    `lacks_past` and `lacks_future` are True on samples that could not be cut, because nothing to predict lies before
    the cut or after it; of them nothing is hidden.
    """

    hidden: Bool[Tensor, "t"]
    left_out: Bool[Tensor, "t"] | None = None
    lacks_past: Bool[Tensor, "b"] | None = None
    lacks_future: Bool[Tensor, "b"] | None = None


@dataclass(frozen=True, eq=False)
class Clock:
    """How the positions that a model sees follow from those of the data: seen = (own - origin) / unit.

    `origins` are those of each sample, None where they are not known. `schema` names channels and reads dates
    (`romae.data.schema.Schema`).
    """

    units: tuple[float, ...] = ()
    origins: Float64[Tensor, "b d"] | None = None
    schema: Any = None

    def seen(self, times: Float64[Tensor, "b"], axis: int) -> Float32[Tensor, "b"]:
        """Times of the data as the model sees them, each in its sample."""
        if self.origins is None:
            raise ValueError(
                "a cut in the data's own time needs the origin of each sample's positions, and these were scaled by "
                "hand; hand samples over as they were read, with train(…, scaling=…), or give the cut as a share: "
                "Future(share=0.5)"
            )
        unit = torch.tensor(self.unit(axis), dtype=torch.float64, device=times.device)
        return ((times - self.origins[:, axis].to(times.device)) / unit).float()

    def unit(self, axis: int) -> float:
        """What coordinates of an axis were divided by."""
        return self.units[axis] if self.units else 1.0

    def time(self, moment: float | str) -> float:
        """A moment in the data's own time as a number."""
        if self.schema is None:
            if not isinstance(moment, str):
                return moment
            raise ValueError(f"the moment {moment!r} is a date, and the times of these samples are numbers")
        return float(self.schema.moment(moment, f"the cut {moment!r}"))

    def duration(self, length: float | str) -> float:
        """A length of time in the unit of the data as a number."""
        if not isinstance(length, str):
            return length
        if self.schema is None:
            raise ValueError(f"the duration {length!r} has a unit of time, and the times of these samples have none")
        return float(self.schema.duration(length, f"the length of time {length!r}"))

    def is_known(self, positions: Float32[Tensor, "t d"], channels: Sequence[str | int]) -> Bool[Tensor, "t"]:
        """True on the tokens of these channels, by name or number."""
        if self.schema is not None:
            numbers = self.schema.numbers_of_channels(channels)
        elif all(isinstance(channel, int) for channel in channels):
            numbers = [int(channel) for channel in channels]
        else:
            raise ValueError(f"known={tuple(channels)!r} names channels, and the names of these samples are not known")
        index = positions[:, -1].round().long()
        known = torch.zeros_like(index, dtype=torch.bool)
        for number in numbers:
            known |= index == number
        return known


def plain_moment(moment: Any) -> Any:
    """A date or a duration of Python, numpy or pandas as text, which a file can hold; anything else stays."""
    if isinstance(moment, np.timedelta64):
        return f"{moment / np.timedelta64(1, 's'):.17g}s"
    if isinstance(moment, timedelta):
        return f"{moment.total_seconds():.17g}s"
    if isinstance(moment, np.datetime64):
        return str(moment)
    return moment.isoformat() if isinstance(moment, datetime) else moment


def extremes(times: Float[Tensor, "t"], layout: Layout) -> tuple[Float[Tensor, "b"], Float[Tensor, "b"]]:
    """The first and the last time of each sample; of one without tokens they are no numbers that compare."""
    rows = times.unsqueeze(-1)
    lengths = layout.device_lengths.long()
    first, last = (
        torch.segment_reduce(rows, which, lengths=lengths, axis=0, unsafe=True).squeeze(-1) for which in ("min", "max")
    )
    return first, last


def counts(is_counted: Bool[Tensor, "t"], layout: Layout) -> Float64[Tensor, "b"]:
    """How many tokens of each sample are True."""
    total = torch.zeros(layout.n_samples, dtype=torch.float64, device=is_counted.device)
    return total.index_add_(0, layout.sample_of_token, is_counted.double())

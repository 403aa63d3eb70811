"""Series in units of their own: what is visible of a series decides, and nothing else.

A model that needs no training knows no units. Time is counted from the first visible one, in shares of the visible
span; values of a channel lie about their visible median, in units of their visible spread, bent where they are far out,
so that one outlier squashes nothing. Channels are told apart by a coordinate. So an affine change of the units of time
or of any channel, or another order of channels or tokens, changes answers exactly so.

Shapes: t tokens, b samples, k cells of a sample and a channel, q queries.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from romae.data.fitting import BENT, Method
from romae.inference.distributions import Units
from romae.prior.draws import Draws
from romae.tokens.sample import Sample
from romae.tokens.tokens import PackedSamples

SPAN = 64.0  # of the visible times, as the model sees them
WIDEST = 256.0  # coordinates of channels lie between 0 and this
METHOD: Method = "robust-asinh"
# Deviations beyond so many median ones count as so many, when the spread of what is visible is taken.
FAR = 4.0
# Of a channel whose visible values are all one number nothing says how it varies: it is taken to vary by a share of it.
SHARE_OF_CONSTANT = 0.05
# The golden ratio: however many channels there are, multiples of it lie evenly between 0 and 1.
GOLDEN = 0.6180339887498949


@dataclass(frozen=True, eq=False)
class OwnUnits:
    """The units of each sample, and of each of its channels.

    Parameters
    ----------
    begin, span : Float64 Tensor [b]
        The first visible time, and how long after it the last one lies.
    level, spread : Float64 Tensor [k]
        The middle of the visible values of each cell, and their deviation about it; NaN where none is visible.
    coordinate : Float64 Tensor [k]
        Where the channel of each cell lies on the axis of channels.
    n_channels : int
        Cells of a sample.
    """

    begin: Float64[Tensor, "b"]
    span: Float64[Tensor, "b"]
    level: Float64[Tensor, "k"]
    spread: Float64[Tensor, "k"]
    coordinate: Float64[Tensor, "k"]
    n_channels: int

    @classmethod
    def of(cls, packed: PackedSamples, n_channels: int, seed: int | None = None) -> "OwnUnits":
        """The units of samples, by what they do not hide.

        Parameters
        ----------
        packed : PackedSamples
            Positions are time and channel; of the values the first column counts.
        n_channels : int
            How many channels there are.
        seed : int, optional
            Draws the coordinates of channels at random by the ids of samples, which are whole numbers, as training
            does. By default they follow from what is visible, so that the order of channels does not matter.

        Returns
        -------
        OwnUnits
            For these samples.
        """
        sample, channel, time, value = _visible(packed)
        n_samples, n_cells = len(packed), len(packed) * n_channels
        begin = torch.full((n_samples,), torch.inf, dtype=torch.float64, device=time.device)
        end = (-begin).scatter_reduce(0, sample, time, "amax")
        begin = begin.scatter_reduce(0, sample, time, "amin")
        span = torch.where(end > begin, end - begin, 1.0)
        cells = _Cells.of(sample * n_channels + channel, n_cells)
        cell, count = cells.cell, cells.count
        level = cells.medians(value)
        deviation = (value - level[cell]).abs()
        middle, mean = cells.medians(deviation), cells.means(deviation)
        usual = torch.where(middle > 0, 1.4826 * middle, 1.2533 * mean)  # of a normal distribution, its deviation
        spread = cells.means(torch.minimum(deviation, FAR * usual[cell]).square()).sqrt()
        # A single value may be anything: it is as large as it is.
        constant = torch.where(count > 1, SHARE_OF_CONSTANT, 1.0) * level.nan_to_num().abs()
        spread = torch.where(spread > 1e-9 * level.nan_to_num().abs(), spread, torch.where(constant > 0, constant, 1.0))
        spread = torch.where(count > 0, spread, torch.nan)
        if seed is None:
            y, x = (value - level[cell]) / spread[cell], (time - begin[sample]) / span[sample]
            coordinate = WIDEST * torch.frac(0.5 + GOLDEN * cells.ranks(y, x, n_channels).double())
        else:
            ids = torch.tensor([int(name) for name in packed.ids], device=time.device)  # type: ignore[call-overload]
            coordinate = WIDEST * Draws(seed, ids).uniform(n_channels).double().flatten()
        return cls(begin, span, level, spread, coordinate, n_channels)

    def times(self, time: Float64[Tensor, "t"], sample: Int64[Tensor, "t"]) -> Float64[Tensor, "t"]:
        """Times as the model sees them."""
        return (time - self.begin[sample]) / self.span[sample] * SPAN

    def values(self, value: Float64[Tensor, "t"], cell: Int64[Tensor, "t"]) -> Float64[Tensor, "t"]:
        """Values as the model sees them."""
        bend = BENT[METHOD]
        return bend * torch.asinh((value - self.level[cell]) / self.spread[cell] / bend)

    def units(self, cell: Int64[Tensor, "q"]) -> Units:
        """What leads from predictions for these cells to the data's own units."""
        one = np.ones(len(cell))
        scale, centre = (x[cell].cpu().numpy() for x in (self.spread, self.level))
        return Units(gain=one, level=0 * one, scale=scale, centre=centre, method=METHOD)

    def apply(self, packed: PackedSamples) -> PackedSamples:
        """The samples as the model sees them."""
        sample = packed.layout.sample_of_token
        cell = sample * self.n_channels + packed.positions[:, -1].long()
        time = self.times(packed.positions[:, 0].double(), sample)
        values = self.values(packed.values[:, 0].double(), cell)
        positions = torch.stack([time, self.coordinate[cell]], 1)
        return replace(packed, values=values.float().unsqueeze(1), positions=positions)


@dataclass(frozen=True, slots=True, kw_only=True)
class InOwnUnits:
    """Brings the samples of a prior to units of their own: what training does between drawing and learning.

    Parameters
    ----------
    n_channels : int
        The most channels of a sample.
    seed : int, default 0
        Draws the coordinates of channels.
    """

    n_channels: int
    seed: int = 0

    def apply(self, sample: Sample) -> Sample:
        """One sample."""
        return self.apply_packed(PackedSamples.of([sample])).sample(0)

    def apply_packed(self, packed: PackedSamples) -> PackedSamples:
        """Samples end to end."""
        return OwnUnits.of(packed, self.n_channels, self.seed).apply(packed)


def _visible(
    packed: PackedSamples,
) -> tuple[Int64[Tensor, "t"], Int64[Tensor, "t"], Float64[Tensor, "t"], Float64[Tensor, "t"]]:
    """The sample, the channel, the time and the value of each token that is not hidden."""
    sample, positions, value = packed.layout.sample_of_token, packed.positions, packed.values[:, 0].double()
    if packed.hidden is not None:
        keep = ~packed.hidden
        sample, positions, value = sample[keep], positions[keep], value[keep]
    return sample, positions[:, -1].long(), positions[:, 0].double(), value


@dataclass(frozen=True, eq=False)
class _Cells:
    """The cell of each token, how many tokens each cell has, and the tokens sorted by their cells."""

    cell: Int64[Tensor, "t"]
    count: Int64[Tensor, "k"]

    @classmethod
    def of(cls, cell: Int64[Tensor, "t"], n_cells: int) -> "_Cells":
        return cls(cell, torch.bincount(cell, minlength=n_cells))

    def medians(self, x: Float64[Tensor, "t"]) -> Float64[Tensor, "k"]:
        """The median of each cell; NaN of an empty one."""
        by_value = x.argsort()
        order = by_value[self.cell[by_value].argsort(stable=True)]
        first, last = self.count.cumsum(0) - self.count, len(x) - 1
        low, high = ((first + n).clamp(max=last) for n in ((self.count - 1).clamp(min=0) // 2, self.count // 2))
        middle = (x[order[low]] + x[order[high]]) / 2
        return torch.where(self.count > 0, middle, torch.nan)

    def means(self, x: Float64[Tensor, "t"]) -> Float64[Tensor, "k"]:
        """The mean of each cell; 0 of an empty one."""
        return torch.bincount(self.cell, weights=x, minlength=len(self.count)) / self.count.clamp(min=1)

    def ranks(self, value: Float64[Tensor, "t"], time: Float64[Tensor, "t"], n_channels: int) -> Int64[Tensor, "k"]:
        """The place of each channel among those of its sample, by what was measured and not by its number.

        The channel that was measured most is the first; among equals it is the one measured earlier, then the one that
        rises more. Means are rounded, so that another order of tokens, which adds up in another order, changes no rank.
        """
        when, rise, skew = (self.means(x).mul(1e9).round() for x in (time, value * time, value**3))
        sample = torch.arange(len(self.count), device=self.count.device) // n_channels
        order = torch.arange(len(self.count), device=self.count.device)
        for key in (skew, rise, when, -self.count, sample):  # the last one decides first
            order = order[key[order].argsort(stable=True)]
        place = torch.arange(len(self.count), device=self.count.device) % n_channels
        return torch.empty_like(place).scatter(0, order, place)

"""Series in units of their own: what is visible of a series decides, and nothing else.

A model that needs no training knows no units. Time is counted from the first visible one, in shares of the visible
span; values of a channel lie about their visible median, in units of their visible spread, bent where they are far out,
so that one outlier squashes nothing. Channels are told apart by a coordinate. So an affine change of the units of time
or of any channel, or another order of channels or tokens, changes answers exactly so.

What is to be predicted may be the deviation from the line between visible neighbours instead of the value, so that a
model need not learn where they lie.

Shapes: t tokens, b samples, k cells of a sample and a channel, q queries.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from romae.data.bends import Method, bent, steepness, straightened
from romae.tokens.layout import Layout
from romae.tokens.tokens import PackedSamples, Tokens

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
    def of(cls, packed: PackedSamples, n_channels: int | None = None) -> "OwnUnits":
        """The units of samples, by what they do not hide.

        Parameters
        ----------
        packed : PackedSamples
            Positions are time and channel; of the columns the first is the value, and a second one its error.
        n_channels : int, optional
            How many channels there are; by default as many as tokens tell.

        Returns
        -------
        OwnUnits
            For these samples. Coordinates of channels follow from what is visible, so that their order does not matter.

        Raises
        ------
        ValueError
            If positions are not time and channel.
        """
        if packed.positions.shape[1] != 2:
            raise ValueError(
                f"series in units of their own have the position axes time and channel, and these have "
                f"{packed.positions.shape[1]} axes"
            )
        if n_channels is None:
            n_channels = int(packed.positions[:, 1].max()) + 1
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
        y, x = (value - level[cell]) / spread[cell], (time - begin[sample]) / span[sample]
        coordinate = WIDEST * torch.frac(0.5 + GOLDEN * cells.ranks(y, x, n_channels).double())
        return cls(begin, span, level, spread, coordinate, n_channels)

    def times(self, time: Float64[Tensor, "t"], sample: Int64[Tensor, "t"]) -> Float64[Tensor, "t"]:
        """Times as the model sees them."""
        return (time - self.begin[sample]) / self.span[sample] * SPAN

    def places(self, positions: Float64[Tensor, "q 2"], sample: Int64[Tensor, "q"]) -> Float64[Tensor, "q 2"]:
        """Times and channels of these samples as the model sees them."""
        return torch.stack([self.times(positions[:, 0], sample), self.coordinate[self.cells(positions, sample)]], 1)

    def cells(self, positions: Float64[Tensor, "q 2"], sample: Int64[Tensor, "q"]) -> Int64[Tensor, "q"]:
        """The cell of each position."""
        return sample * self.n_channels + positions[:, 1].long()

    def values(self, value: Float64[Tensor, "t"], cell: Int64[Tensor, "t"]) -> Float64[Tensor, "t"]:
        """Values as the model sees them."""
        return bent((value - self.level[cell]) / self.spread[cell], METHOD)

    def original(self, value: Float64[Tensor, "t"], cell: Int64[Tensor, "t"]) -> Float64[Tensor, "t"]:
        """The inverse of `values`, of values themselves."""
        return straightened(value, METHOD) * self.spread[cell] + self.level[cell]

    def errors(
        self, error: Float64[Tensor, "t"], value: Float64[Tensor, "t"], cell: Int64[Tensor, "t"]
    ) -> Float64[Tensor, "t"]:
        """Measurement errors in the units of these values as the model sees them; 0 where they are not known."""
        spread = self.spread[cell]
        slope = steepness(((value - self.level[cell]) / spread).unsqueeze(1), METHOD).squeeze(1)
        return error / spread * slope

    def apply(self, packed: PackedSamples, *, from_lines: bool = False) -> PackedSamples:
        """The samples as the model sees them: values, and their errors where these are a second column.

        With `from_lines`, what is hidden, which a model is to predict, is how far it lies from the line between its
        visible neighbours.
        """
        sample, positions = packed.layout.sample_of_token, packed.positions.double()
        cell = self.cells(positions, sample)
        value, *error = packed.values.double().unbind(1)
        columns = [self.values(value, cell), *(self.errors(e, value, cell) for e in error)]
        places = self.places(positions, sample)
        if from_lines and packed.hidden is not None:
            hidden, keep, seen = packed.hidden, ~packed.hidden, columns[0]
            line = lines(cell[keep], places[keep, 0], seen[keep], cell[hidden], places[hidden, 0])
            columns[0] = seen.masked_scatter(hidden, seen[hidden] - line)
        return replace(packed, values=torch.stack(columns, 1).float(), positions=places)


def lines_at(visible: Tokens, positions: Float[Tensor, "q 2"], layout: Layout) -> Float64[Tensor, "q"]:
    """What lines between the visible values of the same series and channel say, all as a model sees it.

    Parameters
    ----------
    visible : Tokens
        What is visible of each series.
    positions : Tensor [q, 2]
        Times and coordinates of channels.
    layout : Layout
        Where those of each series lie.

    Returns
    -------
    Float64 Tensor [q]
        On the device of the positions; before the first and after the last value these, and 0 where there is none.
    """
    device = positions.device
    seen, asked = visible.positions.double().to(device), positions.double()
    # A series and a coordinate make a cell; coordinates lie between 0 and 256.
    of_seen = visible.layout.sample_of_token.to(device) * (2 * WIDEST) + seen[:, 1]
    of_asked = layout.sample_of_token.to(device) * (2 * WIDEST) + asked[:, 1]
    _, cell = torch.cat([of_seen, of_asked]).unique(return_inverse=True)
    values = visible.values[:, 0].double().to(device)
    return lines(cell[: len(seen)], seen[:, 0], values, cell[len(seen) :], asked[:, 0])


def lines(
    cell: Int64[Tensor, "t"],
    time: Float64[Tensor, "t"],
    value: Float64[Tensor, "t"],
    of_query: Int64[Tensor, "q"],
    at: Float64[Tensor, "q"],
) -> Float64[Tensor, "q"]:
    """Linear interpolation within cells; before the first and after the last value these, and 0 in an empty cell."""
    if len(cell) == 0:
        return torch.zeros_like(at)
    # Times lie between 0 and SPAN, so that cells and times together are one axis: 3 cells of visible times
    # |0..64|    |0..64|    |0..64|, the next cell 128 after the one before it.
    axis = 2 * SPAN * cell + time
    order = axis.argsort(stable=True)
    axis, cell, time, value = axis[order], cell[order], time[order], value[order]
    at = at.clamp(0, SPAN)
    after = torch.searchsorted(axis, (2 * SPAN * of_query + at).contiguous(), right=True)
    left, right = (after - 1).clamp(min=0), after.clamp(max=len(cell) - 1)
    has_left, has_right = cell[left] == of_query, cell[right] == of_query
    # Of equal times the last one is on the left, so that what lies on the right is later.
    share = ((at - time[left]) / (time[right] - time[left]).clamp(min=1e-12)).clamp(0, 1)
    between = value[left] + share * (value[right] - value[left])
    of_one = torch.where(has_left, value[left], torch.where(has_right, value[right], 0.0))
    return torch.where(has_left & has_right, between, of_one)


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

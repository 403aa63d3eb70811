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
from jaxtyping import Bool, Float64, Int64

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
    begin, span : Float64 array [b]
        The first visible time, and how long after it the last one lies.
    level, spread : Float64 array [k]
        The middle of the visible values of each cell, and their deviation about it; NaN where none is visible.
    coordinate : Float64 array [k]
        Where the channel of each cell lies on the axis of channels.
    n_channels : int
        Cells of a sample.
    """

    begin: Float64[np.ndarray, "b"]
    span: Float64[np.ndarray, "b"]
    level: Float64[np.ndarray, "k"]
    spread: Float64[np.ndarray, "k"]
    coordinate: Float64[np.ndarray, "k"]
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
        n_samples = len(packed)
        begin, end = np.full(n_samples, np.inf), np.full(n_samples, -np.inf)
        np.minimum.at(begin, sample, time)
        np.maximum.at(end, sample, time)
        span = np.where(end > begin, end - begin, 1.0)
        cell = sample * n_channels + channel
        n_cells = n_samples * n_channels
        count = np.bincount(cell, minlength=n_cells)
        level = _medians(value, cell, count)
        deviation = np.abs(value - level[cell])
        middle, mean = _medians(deviation, cell, count), _means(deviation, cell, count)
        usual = np.where(middle > 0, 1.4826 * middle, 1.2533 * mean)  # of a normal distribution, its deviation
        limited = np.minimum(deviation, FAR * usual[cell])
        spread = np.sqrt(_means(limited**2, cell, count))
        # A single value may be anything: it is as large as it is.
        constant = np.where(count > 1, SHARE_OF_CONSTANT, 1.0) * np.abs(np.nan_to_num(level))
        spread = np.where(spread > 1e-9 * np.abs(level), spread, np.where(constant > 0, constant, 1.0))
        spread = np.where(count > 0, spread, np.nan)
        if seed is None:
            y, x = (value - level[cell]) / spread[cell], (time - begin[sample]) / span[sample]
            coordinate = WIDEST * np.mod(0.5 + GOLDEN * _ranks(y, x, cell, count, n_channels), 1.0)
        else:
            ids = torch.tensor([int(name) for name in packed.ids])  # type: ignore[call-overload]
            coordinate = WIDEST * Draws(seed, ids).uniform(n_channels).double().numpy().ravel()
        return cls(begin, span, level, spread, coordinate, n_channels)

    def times(self, time: Float64[np.ndarray, "t"], sample: Int64[np.ndarray, "t"]) -> Float64[np.ndarray, "t"]:
        """Times as the model sees them."""
        return (time - self.begin[sample]) / self.span[sample] * SPAN

    def values(self, value: Float64[np.ndarray, "t"], cell: Int64[np.ndarray, "t"]) -> Float64[np.ndarray, "t"]:
        """Values as the model sees them."""
        bend = BENT[METHOD]
        return bend * np.arcsinh((value - self.level[cell]) / self.spread[cell] / bend)

    def units(self, cell: Int64[np.ndarray, "q"]) -> Units:
        """What leads from predictions for these cells to the data's own units."""
        one = np.ones(len(cell))
        return Units(gain=one, level=0 * one, scale=self.spread[cell], centre=self.level[cell], method=METHOD)

    def apply(self, packed: PackedSamples) -> PackedSamples:
        """The samples as the model sees them."""
        sample = packed.layout.sample_of_token.numpy()
        channel = packed.positions[:, -1].numpy().astype(np.int64)
        cell = sample * self.n_channels + channel
        time = self.times(packed.positions[:, 0].double().numpy(), sample)
        values = self.values(packed.values[:, 0].double().numpy(), cell)
        positions = np.stack([time, self.coordinate[cell]], 1)
        return replace(
            packed,
            values=torch.from_numpy(values).float().unsqueeze(1),
            positions=torch.from_numpy(positions),
        )


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


def _visible(packed: PackedSamples) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The sample, the channel, the time and the value of each token that is not hidden."""
    keep: Bool[np.ndarray, t] | slice = slice(None) if packed.hidden is None else ~packed.hidden.numpy()
    return (
        packed.layout.sample_of_token.numpy()[keep],
        packed.positions[:, -1].numpy()[keep].astype(np.int64),
        packed.positions[:, 0].double().numpy()[keep],
        packed.values[:, 0].double().numpy()[keep],
    )


def _medians(
    x: Float64[np.ndarray, "t"], cell: Int64[np.ndarray, "t"], count: Int64[np.ndarray, "k"]
) -> Float64[np.ndarray, "k"]:
    """The median of each cell; NaN of an empty one."""
    ordered = np.append(x[np.lexsort((x, cell))], np.nan)
    first = np.cumsum(count) - count
    low, high = first + np.maximum(count - 1, 0) // 2, first + count // 2
    return np.where(count > 0, (ordered[np.minimum(low, len(x))] + ordered[np.minimum(high, len(x))]) / 2, np.nan)


def _means(
    x: Float64[np.ndarray, "t"], cell: Int64[np.ndarray, "t"], count: Int64[np.ndarray, "k"]
) -> Float64[np.ndarray, "k"]:
    return np.bincount(cell, weights=x, minlength=len(count)) / np.maximum(count, 1)


def _ranks(
    value: Float64[np.ndarray, "t"],
    time: Float64[np.ndarray, "t"],
    cell: Int64[np.ndarray, "t"],
    count: Int64[np.ndarray, "k"],
    n_channels: int,
) -> Int64[np.ndarray, "k"]:
    """The place of each channel among those of its sample, by what was measured and not by its number.

    The channel that was measured most is the first; among equals it is the one measured earlier, then the one that
    rises more. Sums are rounded, so that another order of tokens, which adds up in another order, changes no rank.
    """
    when, rise = (np.round(_means(x, cell, count), 9) for x in (time, value * time))
    skew = np.round(_means(value**3, cell, count), 9)
    n_cells = len(count)
    sample = np.arange(n_cells) // n_channels
    order = np.lexsort((skew, rise, when, -count, sample))
    ranks = np.empty(n_cells, dtype=np.int64)
    ranks[order] = np.arange(n_cells) % n_channels
    return ranks

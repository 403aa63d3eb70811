"""Which tokens to hide.

A strategy is a value: it scores the tokens of each sample and hides those with the highest scores, so that the
number hidden is exact for every sample. A sample that can be divided never has all or none of its tokens hidden; one
of a single token, or for `Rows` of a single row, keeps it and is not trained on. Random numbers come from a
generator, drawn where it is, by default on the host, or from `SampleKeys`: either way one seed hides the same tokens
on every device.

Shapes: t tokens of all samples end to end, b samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int64
from torch import Tensor

from romae.config import check_types
from romae.tokens.cuts import Clock, Drawn, Length, Moment, Since, counts, extremes, plain_moment
from romae.tokens.layout import Layout
from romae.tokens.packed import sample_extreme
from romae.tokens.sample import Sample
from romae.tokens.tokens import Tokens, collate

# Of a random number between 0 and 1. A float32 has 24 bits of mantissa: n / 2**24 is exact, and no two are rounded to
# one. So a score is the same number on every device, and a whole number of 24 bits can stand for it in a sort.
SCORE_BITS = 24


class SampleKeys:
    """Random numbers of which every sample has its own, so that they do not depend on the batch it comes in.

    They follow from the seed, the epoch and the sample's index, on every device, in any order, on any number of ranks.
    """

    def __init__(self, seed: int, epoch: int, indices: Int64[Tensor, "b"]) -> None:
        # Mixed after every addition: of seed + epoch + index alone, seed 0 in epoch 1 would be seed 1 in epoch 0.
        self.keys = mixed(mixed(mixed(indices.new_tensor(seed)) + epoch) + indices)
        self.n_drawn = 0

    def draw(self, layout: Layout) -> Float32[Tensor, "t"]:
        """A number in [0, 1) for every token of a layout of these samples."""
        self.n_drawn += 1
        sample = layout.sample_of_token
        place = torch.arange(layout.n_tokens, device=layout.device) - layout.offsets[sample]
        keys = mixed(self.keys.to(layout.device, non_blocking=layout.device.type == "cuda") + self.n_drawn)
        bits = mixed(keys[sample] + place)
        # The highest bits; a shift of a signed number draws in copies of its sign, which the mask takes away.
        return ((bits >> (64 - SCORE_BITS)) & (2**SCORE_BITS - 1)).float() / 2**SCORE_BITS

    def again(self) -> "SampleKeys":
        """The same keys at the same place: what they go on to draw is what these would."""
        same = object.__new__(SampleKeys)
        same.keys, same.n_drawn = self.keys, self.n_drawn
        return same

    def apart(self) -> "SampleKeys":
        """Keys of the same samples that have nothing in common with these."""
        other = self.again()
        other.keys = mixed(~self.keys)
        return other


def mixed(x: Int64[Tensor, "*n"]) -> Int64[Tensor, "*n"]:
    """Every bit of the result depends on every bit of x (the finaliser of splitmix64, in wrapping arithmetic).

    torch has signed numbers only: the constants are those of the literature less 2**64, and every shift is followed by
    the mask that makes it one of an unsigned number.
    """
    x = x + -0x61C8864680B583EB  # 0x9E3779B97F4A7C15
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * -0x40A7B892E31B1A47  # 0xBF58476D1CE4E5B9; 34 bits are left
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * -0x6B2FB644ECCEEE15  # 0x94D049BB133111EB; 37 bits are left
    return x ^ ((x >> 31) & 0x1FFFFFFFF)


RandomSource = torch.Generator | SampleKeys | None


def noise(layout: Layout, source: RandomSource) -> Float32[Tensor, "t"]:
    """A random number in [0, 1) for every token. A generator draws where it is, by default on the host."""
    if isinstance(source, SampleKeys):
        return source.draw(layout)
    drawn = torch.rand(layout.n_tokens, generator=source, device="cpu" if source is None else source.device)
    return drawn.to(layout.device, non_blocking=layout.device.type == "cuda")


@runtime_checkable
class Masking(Protocol):
    """What a masking strategy is: an object that says which tokens of a batch are hidden.

    `MaskedReconstruction` takes any object with this method. Checkpoints and run folders hold the strategies of romae
    alone, because a class of your own cannot be read back from JSON.

    See Also
    --------
    UniformTokens, Rows, Channels, Spans, Future, Mixed : the strategies of romae.

    Examples
    --------
    Hide what lies beyond position 1:

    >>> import romae
    >>> class Beyond:
    ...     def hidden(self, tokens, source=None):
    ...         return tokens.positions[:, 0] > 1.0
    >>> isinstance(Beyond(), romae.Masking)
    True
    >>> batch = romae.collate([romae.Sample([[0.1], [0.2]], [[0.5], [1.5]])])
    >>> Beyond().hidden(batch.tokens)
    tensor([False,  True])
    """

    def hidden(self, tokens: Tokens, source: RandomSource = None) -> Bool[Tensor, "t"]:
        """The mask of a batch.

        Parameters
        ----------
        tokens : Tokens
            The tokens of a batch.
        source : torch.Generator, SampleKeys or None, default None
            The source of random numbers; None is the global generator of torch.

        Returns
        -------
        Bool Tensor [t]
            True on the tokens to hide. A sample should keep at least one visible.
        """
        ...


def visible_and_hidden(
    tokens: Tokens, masking: Masking, source: RandomSource = None, clock: Clock | None = None
) -> tuple[Tokens, Tokens]:
    """The tokens that a masking leaves visible, and those that it hides; `clock` is for cuts in the data's own time."""
    drawn = drawn_by(masking, tokens, source, _clock_of(tokens) if clock is None else clock)
    # A fixed share of the tokens needs no counting on the device.
    n_hidden = masking.n_hidden(tokens.layout) if isinstance(masking, _Share) and masking.is_by_count else None
    n_visible = None if n_hidden is None else tokens.layout.lengths - n_hidden
    gone = drawn.hidden if drawn.left_out is None else drawn.hidden | drawn.left_out
    return tokens.select(~gone, n_visible), tokens.select(drawn.hidden, n_hidden)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Share:
    """A share of each sample's tokens, rounded to a whole number."""

    ratio: float = 0.75

    def __post_init__(self) -> None:
        check_types(self)
        if not 0 < self.ratio < 1:
            raise ValueError(f"ratio is the share of tokens to hide, between 0 and 1, not {self.ratio}")

    @property
    def is_by_count(self) -> bool:
        """Whether the number of hidden tokens follows from the length of a sample."""
        return True

    def n_hidden(self, layout: Layout) -> Int64[Tensor, "b"]:
        """The number of tokens to hide in each sample.

        Parameters
        ----------
        layout : Layout
            The samples of a batch.

        Returns
        -------
        Int64 Tensor [b]
            On the host; never all tokens of a sample, and at least one where there are two or more.
        """
        return share_of(layout.lengths, self.ratio)


@dataclass(frozen=True, slots=True, kw_only=True)
class UniformTokens(_Share):
    """Masking of tokens uniformly at random, as in the masked autoencoder (MAE).

    Parameters
    ----------
    ratio : float, default 0.75
        The mask ratio: the share of each sample's tokens to hide, between 0 and 1. Images bear 0.75; sparse series are
        better served by 0.5.
    kind : "tokens"
        The name of this strategy in a configuration file.

    Raises
    ------
    ValueError
        If the ratio does not lie between 0 and 1.
    TypeError
        If the ratio is no number.

    Notes
    -----
    The number of hidden tokens is exact for every sample. A sample with a single token keeps it and is not trained on.

    Examples
    --------
    >>> import torch
    >>> import romae
    >>> batch = romae.collate([romae.Sample(torch.zeros(8, 1), torch.arange(8.0)[:, None])])
    >>> romae.UniformTokens(ratio=0.25).hidden(batch.tokens).sum()
    tensor(2)
    """

    kind: Literal["tokens"] = "tokens"

    def hidden(self, tokens: Tokens, source: RandomSource = None) -> Bool[Tensor, "t"]:
        """The mask of a batch: tokens at random.

        Parameters
        ----------
        tokens : Tokens
            The tokens of a batch.
        source : torch.Generator, SampleKeys or None, default None
            The source of random numbers; None is the global generator of torch.

        Returns
        -------
        Bool Tensor [t]
            True on the tokens to hide.
        """
        return hide_at_random(noise(tokens.layout, source), tokens.layout, self.n_hidden(tokens.layout))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Masking of whole rows: all tokens of a sample that share a coordinate on one axis.

    With times on the first axis, a row is everything that was measured at one time, so that a value cannot be read off
    from another channel at the same moment.

    Parameters
    ----------
    ratio : float, default 0.5
        The share of each sample's rows to hide, between 0 and 1.
    axis : int, default 0
        The position axis whose coordinates make the rows; negative ones count from the last.
    kind : "rows"
        The name of this strategy in a configuration file.

    Raises
    ------
    ValueError
        If the ratio does not lie between 0 and 1.
    TypeError
        If a setting is of another type.

    Notes
    -----
    A sample with a single row keeps it and is not trained on.

    Examples
    --------
    >>> import torch
    >>> import romae
    >>> positions = [[0.0, 0], [0.0, 1], [2.5, 0], [2.5, 1]]  # time, channel
    >>> batch = romae.collate([romae.Sample(torch.zeros(4, 1), positions)])
    >>> hidden = romae.Rows(ratio=0.5, axis=0).hidden(batch.tokens, torch.Generator().manual_seed(0))
    >>> bool(hidden[0] == hidden[1]), bool(hidden[2] == hidden[3]), int(hidden.sum())
    (True, True, 2)
    """

    ratio: float = 0.5
    axis: int = 0
    kind: Literal["rows"] = "rows"

    def __post_init__(self) -> None:
        check_types(self)
        if not 0 < self.ratio < 1:
            raise ValueError(f"ratio is the share of rows to hide, between 0 and 1, not {self.ratio}")

    def hidden(self, tokens: Tokens, source: RandomSource = None) -> Bool[Tensor, "t"]:
        """The mask of a batch: whole rows at random.

        Parameters
        ----------
        tokens : Tokens
            The tokens of a batch.
        source : torch.Generator, SampleKeys or None, default None
            The source of random numbers; None is the global generator of torch.

        Returns
        -------
        Bool Tensor [t]
            True on the tokens to hide.

        Raises
        ------
        ValueError
            If the tokens have no such axis.
        """
        rows, row_of_token = _distinct_rows(tokens, _axis(tokens, self.axis))
        hidden_rows = hide_at_random(noise(rows, source), rows, share_of(rows.lengths, self.ratio))
        return hidden_rows[row_of_token]


@dataclass(frozen=True, slots=True, kw_only=True)
class Channels(Rows):
    """Masking of whole channels, where the last position axis is the index of a token's channel.

    It trains a model to predict one sensor, band or variable from the others. For data with one token per scalar, as
    `from_table(channel=…)` and `from_arrays(tokens="scalars")` make them.

    Parameters
    ----------
    ratio : float, default 0.5
        The share of each sample's channels to hide, between 0 and 1.
    axis : int, default -1
        The position axis that holds the channel.
    kind : "channels"
        The name of this strategy in a configuration file.

    Raises
    ------
    ValueError
        If the ratio does not lie between 0 and 1.
    TypeError
        If a setting is of another type.

    Examples
    --------
    >>> import torch
    >>> import romae
    >>> positions = [[0.0, 0], [0.0, 1], [2.5, 0], [2.5, 1]]  # time, channel
    >>> batch = romae.collate([romae.Sample(torch.zeros(4, 1), positions)])
    >>> hidden = romae.Channels(ratio=0.5).hidden(batch.tokens, torch.Generator().manual_seed(0))
    >>> bool(hidden[0] == hidden[2]), bool(hidden[1] == hidden[3]), int(hidden.sum())
    (True, True, 2)
    """

    axis: int = -1
    kind: Literal["channels"] = "channels"  # type: ignore[assignment]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans(_Share):
    """Masking of contiguous spans: the tokens nearest to a few random ones.

    Parameters
    ----------
    ratio : float, default 0.75
        The share of each sample's tokens to hide, between 0 and 1.
    axes : tuple of int, optional
        The position axes over which distance is measured; None means all. A span is a box in these axes and a tube
        along the others: `axes=(0,)` hides stretches of time, with all channels or pixels in them.
    n_spans : int, default 1
        How many spans a sample has, at least 1.
    kind : "spans"
        The name of this strategy in a configuration file.

    Raises
    ------
    ValueError
        If the ratio does not lie between 0 and 1, no axis is named, or there is no span.
    TypeError
        If a setting is of another type.

    Notes
    -----
    Each axis is measured in units of the sample's extent along it, so that seconds and pixels can be mixed.

    Examples
    --------
    >>> import torch
    >>> import romae
    >>> batch = romae.collate([romae.Sample(torch.zeros(10, 1), torch.arange(10.0)[:, None])])
    >>> hidden = romae.Spans(ratio=0.3).hidden(batch.tokens, torch.Generator().manual_seed(0))
    >>> (hidden.nonzero().diff(dim=0) == 1).all(), int(hidden.sum())  # neighbours
    (tensor(True), 3)
    """

    axes: tuple[int, ...] | None = None
    n_spans: int = 1
    kind: Literal["spans"] = "spans"

    def __post_init__(self) -> None:
        _Share.__post_init__(self)
        if self.axes is not None and not self.axes:
            raise ValueError(
                "axes names the position axes that a span is limited on, and none is named; leave it out for all"
            )
        if self.n_spans < 1:
            raise ValueError(f"n_spans must be at least 1, not {self.n_spans}")

    def hidden(self, tokens: Tokens, source: RandomSource = None) -> Bool[Tensor, "t"]:
        """The mask of a batch: contiguous spans.

        Parameters
        ----------
        tokens : Tokens
            The tokens of a batch.
        source : torch.Generator, SampleKeys or None, default None
            The source of random numbers; None is the global generator of torch.

        Returns
        -------
        Bool Tensor [t]
            True on the tokens to hide.

        Raises
        ------
        ValueError
            If the tokens have no such axis.
        """
        layout = tokens.layout
        axes = range(tokens.position_dims) if self.axes is None else [_axis(tokens, axis) for axis in self.axes]
        positions = tokens.positions[:, list(axes)]
        sample = layout.sample_of_token
        extent = (sample_extreme(positions, layout, "max") - sample_extreme(positions, layout, "min"))[sample]
        scaled = positions / torch.where(extent > 0, extent, 1.0)
        distance = torch.full((layout.n_tokens,), torch.inf, device=tokens.device)
        for _ in range(self.n_spans):
            place = noise(Layout.singles(layout.n_samples, tokens.device), source) * layout.device_lengths
            # A number just below 1 times a length may be rounded to the length, one place behind the last token.
            centre = layout.offsets[:-1] + place.long().clamp(max=layout.device_lengths.long() - 1)
            # The largest distance over the axes: what lies within some distance is then a box.
            distance = distance.minimum((scaled - scaled[centre][sample]).abs().amax(-1))
        return hide_highest(-distance, layout, self.n_hidden(layout), noise(layout, source))


@dataclass(frozen=True, slots=True, kw_only=True)
class Future(_Share):
    """Masking of the end of each sample along an axis: training for forecasts.

    Where the future begins is said in one of three ways: as a share of the tokens (`ratio`, the default), in the data's
    own time (`after`), or as a share of the time that each sample spans (`share`). A pair of numbers is a range, of
    which a cut is drawn for each sample and epoch.

    Parameters
    ----------
    ratio : float, default 0.75
        The share of each sample's tokens to hide, the last ones, between 0 and 1. It says nothing where `after` or
        `share` is given.
    axis : int, default 0
        The position axis that is time.
    after : float, str, date or pair of them, optional
        The cut in the data's own time, whatever its scaling: what lies later is hidden. A number, a date where times
        are dates ("2024-03-01"), or a duration where they are durations ("24:00"). What `since` says counts
        differently.
    share : float or pair of float, optional
        The cut as a share of the time from a sample's first to its last measurement, between 0 and 1.
    since : {"clock", "first", "last"}, default "clock"
        What `after` counts from: the data's own clock, or the first or the last measurement of each sample. `after` is
        then a length of time, a number or text such as "24h"; before the last it is negative.
    horizon : float or str, optional
        How far to predict, as a length of time. What lies later still is neither shown nor predicted. None predicts all
        of it.
    known : tuple of str or int, default ()
        Channels that may be seen after the cut, such as a calendar or a weather forecast; they are never hidden. For
        samples with a token for each number, whose last position axis is the channel.
    kind : "future"
        The name of this strategy in a configuration file.

    Raises
    ------
    ValueError
        If a number lies outside its range, or the cut is said twice.
    TypeError
        If a setting is of another type.

    Notes
    -----
    What lies at the cut itself is seen. A sample with nothing to predict before or after the cut is left as it is, so
    that it counts nothing in the loss; training tells how many there are. With `ratio` alone nothing is random: among
    equal coordinates, tokens that come first in the sample are hidden first.

    Examples
    --------
    >>> import torch
    >>> import romae
    >>> batch = romae.collate([romae.Sample(torch.zeros(4, 1), [[0.0], [1.0], [5.0], [9.0]])])
    >>> romae.Future(ratio=0.5).hidden(batch.tokens)
    tensor([False, False,  True,  True])
    >>> romae.Future(share=0.5).hidden(batch.tokens)  # after 4.5
    tensor([False, False,  True,  True])
    >>> romae.Future(after=5.0).hidden(batch.tokens)
    tensor([False, False, False,  True])
    """

    axis: int = 0
    after: Moment | tuple[Moment, Moment] | None = None
    share: float | tuple[float, float] | None = None
    since: Since = "clock"
    horizon: Length | None = None
    known: tuple[str | int, ...] = ()
    kind: Literal["future"] = "future"

    def __post_init__(self) -> None:
        after = self.after
        pair = isinstance(after, list | tuple)
        object.__setattr__(self, "after", tuple(map(plain_moment, after)) if pair else plain_moment(after))  # type: ignore[arg-type]
        object.__setattr__(self, "horizon", plain_moment(self.horizon))
        if isinstance(self.known, str | int):
            object.__setattr__(self, "known", (self.known,))
        _Share.__post_init__(self)
        if self.after is not None and self.share is not None:
            raise ValueError("after= and share= both say where the future begins; leave one of them out")
        if self.is_by_count and (self.since != "clock" or self.horizon is not None):
            raise ValueError("since= and horizon= belong to a cut in time; give after= or share= with them")
        if self.share is not None and self.since != "clock":
            raise ValueError("share= is a share of each sample's own span, and since= belongs to after=; leave it out")
        for share in _pair(self.share) if self.share is not None else ():
            if not 0 < share < 1:
                raise ValueError(f"share is the part of the span that is seen, between 0 and 1, not {share}")
        for ends in (self.after, self.share):
            low, high = _pair(ends)
            if isinstance(ends, tuple) and not isinstance(low, str) and not isinstance(high, str) and not low < high:
                raise ValueError(f"the range of a cut goes from a lower to a higher number, not {[low, high]}")
        if isinstance(self.horizon, float) and not self.horizon > 0:
            raise ValueError(f"horizon is how far to predict, above 0, not {self.horizon}")

    @property
    def is_by_count(self) -> bool:
        """Whether a share of the tokens is hidden, and not what lies after a moment."""
        return self.after is None and self.share is None

    def hidden(self, tokens: Tokens, source: RandomSource = None) -> Bool[Tensor, "t"]:
        """The mask of a batch: what lies after the cut of each sample.

        Parameters
        ----------
        tokens : Tokens
            The tokens of a batch, at positions in the data's own units; tasks take what their scaling does into
            account.
        source : torch.Generator, SampleKeys or None, default None
            The source of random numbers; None is the global generator of torch.

        Returns
        -------
        Bool Tensor [t]
            True on the tokens to hide.

        Raises
        ------
        ValueError
            If the tokens have no such axis.
        """
        return self.drawn(tokens, source, _clock_of(tokens)).hidden

    def drawn(self, tokens: Tokens, source: RandomSource, clock: Clock) -> Drawn:
        """The mask of a batch, and what else is known of it.

        Parameters
        ----------
        tokens : Tokens
            The tokens of a batch, as the model sees them.
        source : torch.Generator, SampleKeys or None
            The source of random numbers.
        clock : Clock
            How positions follow from those of the data.

        Returns
        -------
        Drawn
            What is hidden, what is left out, and which samples could not be cut.
        """
        if not self.known:
            return self._drawn(tokens, source, clock)
        known = clock.is_known(tokens.positions, self.known)
        rest = self._drawn(tokens.select(~known), source, clock)
        return _spread_out(rest, ~known)

    def _drawn(self, tokens: Tokens, source: RandomSource, clock: Clock) -> Drawn:
        axis, layout = _axis(tokens, self.axis), tokens.layout
        times = tokens.positions[:, axis]
        if self.is_by_count:
            return Drawn(hide_highest(times, layout, self.n_hidden(layout)))
        cut, end = self._cut(times, layout, source, clock, axis)
        sample = layout.sample_of_token
        hidden = times > cut[sample]
        past = counts(~hidden, layout)
        left_out = None
        if end is not None:
            left_out = times > end[sample]
            hidden = hidden & ~left_out
        n_hidden = counts(hidden, layout)
        is_cut = (past > 0) & (n_hidden > 0)
        hidden = hidden & is_cut[sample]
        left_out = None if left_out is None else left_out & is_cut[sample]
        has_tokens = layout.device_lengths > 0
        return Drawn(hidden, left_out, (past == 0) & has_tokens, (n_hidden == 0) & (past > 0))

    def _cut(
        self, times: Float32[Tensor, "t"], layout: Layout, source: RandomSource, clock: Clock, axis: int
    ) -> tuple[Float32[Tensor, "b"], Float32[Tensor, "b"] | None]:
        """The cut of each sample as the model sees time, and where the horizon ends."""
        low, high = _pair(self.after if self.share is None else self.share)
        read = float if self.share is not None else clock.time if self.since == "clock" else clock.duration
        low, high = read(low), read(high)
        if not low <= high:
            raise ValueError(
                f"the range of a cut goes from an earlier to a later moment, not {list(_pair(self.after))}"
            )
        drawn = torch.zeros(layout.n_samples, dtype=torch.float64, device=times.device)
        if low < high:
            drawn = noise(Layout.singles(layout.n_samples, times.device), source).double()
        point = low + drawn * (high - low)
        length = None if self.horizon is None else clock.duration(self.horizon)  # type: ignore[arg-type]
        if self.after is not None and self.since == "clock":
            return clock.seen(point, axis), None if length is None else clock.seen(point + length, axis)
        first, last = (x.double() for x in extremes(times, layout))
        if self.share is not None:
            cut = first + point * (last - first)
        else:
            cut = (first if self.since == "first" else last) + point / clock.unit(axis)
        return cut.float(), None if length is None else (cut + length / clock.unit(axis)).float()


def _pair(ends: Any) -> tuple[Any, Any]:
    """A range; a single number is one from it to itself."""
    return ends if isinstance(ends, tuple) else (ends, ends)


def _clock_of(tokens: Tokens) -> Clock:
    """That of positions in the data's own units."""
    origins = torch.zeros(len(tokens), tokens.position_dims, dtype=torch.float64, device=tokens.device)
    return Clock(origins=origins)


def _spread_out(drawn: Drawn, places: Bool[Tensor, "t"]) -> Drawn:
    """What is drawn for some tokens as masks of all, False on the others."""

    def spread(mask: Bool[Tensor, "u"]) -> Bool[Tensor, "t"]:
        whole = torch.zeros_like(places)
        whole[places] = mask
        return whole

    return drawn._replace(
        hidden=spread(drawn.hidden), left_out=None if drawn.left_out is None else spread(drawn.left_out)
    )


Simple = UniformTokens | Rows | Channels | Spans | Future


@dataclass(frozen=True, slots=True)
class Mixed:
    """Masking by one of several strategies, drawn for each sample and epoch.

    Parameters
    ----------
    parts : tuple of (strategy, float)
        The strategies, each with its weight above 0. A sample's mask is that of the strategy that is drawn for it.
    kind : "mixed"
        The name of this strategy in a configuration file.

    Raises
    ------
    ValueError
        If there is no strategy, or a weight is not above 0.
    TypeError
        If something else is given.

    Examples
    --------
    Half of the samples learn to fill gaps, half to look ahead:

    >>> import torch
    >>> import romae
    >>> masking = romae.Mixed(((romae.UniformTokens(ratio=0.5), 0.5), (romae.Future(share=(0.3, 0.9)), 0.5)))
    >>> batch = romae.collate([romae.Sample(torch.zeros(8, 1), torch.arange(8.0)[:, None])])
    >>> bool(masking.hidden(batch.tokens, torch.Generator().manual_seed(0)).any())
    True
    """

    parts: tuple[tuple[Simple, float], ...]
    kind: Literal["mixed"] = field(default="mixed", kw_only=True)

    def __post_init__(self) -> None:
        check_types(self)
        if not self.parts:
            raise ValueError("a mixed masking needs strategies, such as ((UniformTokens(ratio=0.5), 1.0),)")
        for strategy, weight in self.parts:
            if not 0 < weight < float("inf"):
                raise ValueError(f"the weight of {strategy} must be above 0, not {weight}")

    def hidden(self, tokens: Tokens, source: RandomSource = None) -> Bool[Tensor, "t"]:
        """The mask of a batch: for each sample that of a strategy which is drawn.

        Parameters
        ----------
        tokens : Tokens
            The tokens of a batch, at positions in the data's own units.
        source : torch.Generator, SampleKeys or None, default None
            The source of random numbers; None is the global generator of torch.

        Returns
        -------
        Bool Tensor [t]
            True on the tokens to hide.
        """
        return self.drawn(tokens, source, _clock_of(tokens)).hidden

    def drawn(self, tokens: Tokens, source: RandomSource, clock: Clock) -> Drawn:
        """The mask of a batch, and what else is known of it.

        Parameters
        ----------
        tokens : Tokens
            The tokens of a batch, as the model sees them.
        source : torch.Generator, SampleKeys or None
            The source of random numbers. Of `SampleKeys`, each strategy gets those that it would get alone.
        clock : Clock
            How positions follow from those of the data.

        Returns
        -------
        Drawn
            What is hidden, what is left out, and which samples could not be cut.
        """
        choice = self.chosen(tokens.layout, source)
        chosen_of_token = choice[tokens.layout.sample_of_token]
        hidden, left_out = torch.zeros_like(chosen_of_token, dtype=torch.bool), None
        lacks_past = torch.zeros_like(choice, dtype=torch.bool)
        lacks_future = lacks_past
        n_drawn = 0
        for number, (strategy, _) in enumerate(self.parts):
            own = source.again() if isinstance(source, SampleKeys) else source
            drawn = drawn_by(strategy, tokens, own, clock)
            n_drawn = max(n_drawn, own.n_drawn) if isinstance(own, SampleKeys) else 0
            hidden = torch.where(chosen_of_token == number, drawn.hidden, hidden)
            if drawn.left_out is not None:
                before = torch.zeros_like(hidden) if left_out is None else left_out
                left_out = torch.where(chosen_of_token == number, drawn.left_out, before)
            if drawn.lacks_past is not None and drawn.lacks_future is not None:
                lacks_past = torch.where(choice == number, drawn.lacks_past, lacks_past)
                lacks_future = torch.where(choice == number, drawn.lacks_future, lacks_future)
        if isinstance(source, SampleKeys):
            source.n_drawn = n_drawn
        return Drawn(hidden, left_out, lacks_past, lacks_future)

    def chosen(self, layout: Layout, source: RandomSource) -> Int64[Tensor, "b"]:
        """Which strategy each sample is given.

        Parameters
        ----------
        layout : Layout
            The samples of a batch.
        source : torch.Generator, SampleKeys or None
            The source of random numbers; what is drawn of `SampleKeys` for this is drawn for nothing else.

        Returns
        -------
        Int64 Tensor [b]
            The place of the strategy among the parts.
        """
        own = source.apart() if isinstance(source, SampleKeys) else source
        drawn = noise(Layout.singles(layout.n_samples, layout.device), own).double()
        weights = torch.tensor([weight for _, weight in self.parts], dtype=torch.float64)
        ends = (weights.cumsum(0) / weights.sum())[:-1].to(drawn.device)
        return torch.searchsorted(ends, drawn, right=True)


def is_static(positions: Float[Tensor, "t d"], static_from: int) -> Bool[Tensor, "t"]:
    """True on static facts: tokens whose index on the last position axis begins with this one."""
    return positions[:, -1] > static_from - 0.5


@dataclass(frozen=True, slots=True)
class SparingStatic:
    """A masking that hides measurements alone: of static facts it is not told, so that it never hides them."""

    masking: Masking
    static_from: int

    def hidden(self, tokens: Tokens, source: RandomSource = None) -> Bool[Tensor, "t"]:
        """The mask of a batch: that of its measurements, and False on static facts."""
        return self.drawn(tokens, source, _clock_of(tokens)).hidden

    def drawn(self, tokens: Tokens, source: RandomSource, clock: Clock) -> Drawn:
        """The same, and what else is known of it."""
        measured = ~is_static(tokens.positions, self.static_from)
        drawn = drawn_by(self.masking, tokens.select(measured), source, clock)
        return _spread_out(drawn, measured)


def drawn_by(masking: Masking, tokens: Tokens, source: RandomSource, clock: Clock) -> Drawn:
    """What a masking draws for a batch, cuts in the data's own time included."""
    if isinstance(masking, Future | Mixed | SparingStatic):
        return masking.drawn(tokens, source, clock)
    return Drawn(masking.hidden(tokens, source))


def futures_in(masking: Any) -> list[Future]:
    """The strategies of a masking that hide what lies ahead."""
    if isinstance(masking, Mixed):
        return [strategy for strategy, _ in masking.parts if isinstance(strategy, Future)]
    return [masking] if isinstance(masking, Future) else []


def share_of(numbers: Int64[Tensor, "b"], ratio: float) -> Int64[Tensor, "b"]:
    """A share of each number, rounded, but never all of it, and never nothing where there are two or more."""
    share = (numbers.double() * ratio).round().long()
    return share.clamp(min=1).minimum(numbers - 1).clamp(min=0)


def hide_highest(
    scores: Float[Tensor, "t"],
    layout: Layout,
    n_hidden: Int64[Tensor, "b"],
    ties: Float[Tensor, "t"] | None = None,
) -> Bool[Tensor, "t"]:
    """True on the `n_hidden` tokens of each sample with the highest scores.

    Among equal scores those with the lower `ties` go first, or else those that stand first.
    """
    # Sorted by the last criterion first: a stable sort leaves what is equal in the order that it was in.
    by_tie = torch.arange(layout.n_tokens, device=scores.device) if ties is None else ties.argsort()
    by_score = by_tie[scores[by_tie].argsort(descending=True, stable=True)]
    return _first_hidden(by_score[layout.sample_of_token[by_score].argsort(stable=True)], layout, n_hidden)


def hide_at_random(drawn: Float[Tensor, "t"], layout: Layout, n_hidden: Int64[Tensor, "b"]) -> Bool[Tensor, "t"]:
    """What `hide_highest` does, for scores from 0 to below 1: one sort is enough, and sorting is most of the work."""
    n_bits = layout.longest.bit_length()
    # Sample, score and place have to fit below the sign of 64 bits: 2**19 samples of 2**18 tokens do.
    if drawn.device.type == "cpu" and layout.n_samples.bit_length() + SCORE_BITS + n_bits < 64:
        return _first_hidden(_ranked_on_host(drawn, layout, n_bits), layout, n_hidden)
    # Sample 0 has the keys from above -1 up to 0, sample 1 those up to 1: by sample, and within it by falling score.
    key = layout.sample_of_token.double() - drawn.double()  # exact: scores have 24 bits, which leaves 29 for samples
    return _first_hidden(key.argsort(stable=True), layout, n_hidden)


def _ranked_on_host(drawn: Float[Tensor, "t"], layout: Layout, n_bits: int) -> Int64[Tensor, "t"]:
    """The tokens by sample, falling score and place, by one sort of whole numbers.

    A host sorts bare numbers far faster than numbers with an index, so that the place of a token in its sample is the
    end of its number:

        sample  |  24 bits: how far its score is from the highest  |  n_bits: its place
    """
    sample = layout.sample_of_token
    first = layout.offsets[sample]
    place = torch.arange(layout.n_tokens) - first
    lowness = 2**SCORE_BITS - 1 - (drawn * 2**SCORE_BITS).long()
    key = (((sample << SCORE_BITS) | lowness) << n_bits) | place
    key.numpy().sort()  # in place, in the tensor's memory
    return (key & (2**n_bits - 1)) + first


def _first_hidden(ranked: Int64[Tensor, "t"], layout: Layout, n_hidden: Int64[Tensor, "b"]) -> Bool[Tensor, "t"]:
    """True on the first `n_hidden` tokens of each sample, as they are ranked sample by sample.

    Samples of 3 and 2 tokens, ranked 2 0 1 | 4 3, of which 2 and 1 are hidden: 2, 0 and 4.
    """
    sample = layout.sample_of_token
    rank = torch.arange(layout.n_tokens, device=ranked.device) - layout.offsets[sample]
    is_hidden = rank < n_hidden.to(ranked.device, non_blocking=True)[sample]
    return torch.empty_like(is_hidden).scatter(0, ranked, is_hidden)


def _axis(tokens: Tokens, axis: int) -> int:
    dims = tokens.position_dims
    if not -dims <= axis < dims:
        raise ValueError(f"axis {axis} is outside the {dims} position dimensions of these tokens")
    return axis % dims


def _distinct_rows(tokens: Tokens, axis: int) -> tuple[Layout, Int64[Tensor, "t"]]:
    """The layout of the distinct coordinates in each sample, and the row that each token belongs to.

    Coordinates 5 2 5 | 2 2 are in order 2 5 5 | 2 2, of which 2 5 . | 2 . are new: rows 0 1 | 2, and the tokens are in
    rows 1 0 1 | 2 2.
    """
    sample, coordinate = tokens.layout.sample_of_token, tokens.positions[:, axis]
    by_coordinate = coordinate.argsort(stable=True)
    order = by_coordinate[sample[by_coordinate].argsort(stable=True)]
    is_new = torch.ones_like(order, dtype=torch.bool)
    is_new[1:] = (coordinate[order].diff() != 0) | (sample[order].diff() != 0)
    row_of_ordered = is_new.cumsum(0) - 1
    lengths = torch.bincount(sample[order][is_new], minlength=len(tokens)).cpu()
    return Layout.of(lengths, tokens.device), torch.empty_like(order).scatter(0, order, row_of_ordered)


Strategy = UniformTokens | Rows | Channels | Spans | Future | Mixed


def hide(
    samples: Sequence[Sample], masking: Strategy, seed: int | np.integer = 0, numbers: Sequence[int] | None = None
) -> list[Sample]:
    """Hide tokens of samples once and for all, for a test that is the same each time.

    Parameters
    ----------
    samples : sequence of Sample
        The samples. A mask that a sample has already is replaced.
    masking : UniformTokens, Rows, Channels, Spans, Future or Mixed
        The strategy that chooses the tokens. What lies beyond the horizon of a `Future` is taken out of the samples.
    seed : int, default 0
        What is hidden follows from the seed and the number of the sample.
    numbers : sequence of int, optional
        A number for each sample; by default its place in the list. Give numbers that belong to the samples if the masks
        are to stay the same in another order.

    Returns
    -------
    list of Sample
        The samples with `Sample.hidden` set. A sample that cannot be divided, such as one with a single token, is left
        out.

    Raises
    ------
    ValueError
        If there are no samples, not as many numbers, or the seed is negative.
    TypeError
        If something else than samples, a strategy or whole numbers is given.

    Examples
    --------
    >>> import numpy as np
    >>> import romae
    >>> samples = romae.from_arrays(np.random.default_rng(0).normal(size=(3, 8, 1)))
    >>> masked = romae.hide(samples, romae.UniformTokens(ratio=0.5), seed=1)
    >>> [int(sample.hidden.sum()) for sample in masked]
    [4, 4, 4]
    """
    if not isinstance(masking, Strategy):
        raise TypeError(f"masking is a strategy such as UniformTokens(ratio=0.5), not {masking!r}")
    places = np.asarray(range(len(samples)) if numbers is None else numbers)
    if len(samples) == 0 or places.shape != (len(samples),):
        raise ValueError(f"give samples, and as many numbers if any, not {len(samples)} and {places.size}")
    if places.dtype.kind not in "iu":
        raise TypeError(f"numbers of samples are whole numbers, not {places.dtype}")
    if not all(isinstance(sample, Sample) for sample in samples):
        raise TypeError("hide takes samples; make them with Sample, from_table or from_arrays")
    if not isinstance(seed, int | np.integer) or not 0 <= seed < 2**63:
        raise ValueError(f"a seed is a whole number from 0 on, not {seed!r}")
    keys = SampleKeys(int(seed), 0, torch.from_numpy(places.astype(np.int64)))
    tokens = collate([_from_first_time(sample) for sample in samples]).tokens
    first = {getattr(sample.schema, "static_from", None) for sample in samples}
    if len(first) > 1:
        raise ValueError("some of these samples have static facts and others have not; read them in the same way")
    (static_from,) = first
    hiding = masking if static_from is None else SparingStatic(masking, static_from)
    origins = torch.zeros(len(samples), tokens.position_dims, dtype=torch.float64)
    origins[:, 0] = torch.tensor([float(sample.positions[0, 0]) for sample in samples], dtype=torch.float64)
    drawn = drawn_by(hiding, tokens, keys, Clock(origins=origins, schema=samples[0].schema))
    lengths = [len(sample) for sample in samples]
    masks = drawn.hidden.split(lengths)
    left_out = [None] * len(samples) if drawn.left_out is None else drawn.left_out.split(lengths)
    return [
        _masked(sample, hidden, gone)
        for sample, hidden, gone in zip(samples, masks, left_out, strict=True)
        if bool(hidden.any())
    ]


def _masked(sample: Sample, hidden: Bool[Tensor, "n"], left_out: Bool[Tensor, "n"] | None) -> Sample:
    """A sample that hides tokens, without those that are left out."""
    if left_out is None or not bool(left_out.any()):
        return replace(sample, hidden=hidden)
    keep = ~left_out
    target = sample.target[keep] if sample.target is not None and sample.target.ndim == 2 else sample.target
    return replace(
        sample, values=sample.values[keep], positions=sample.positions[keep], hidden=hidden[keep], target=target
    )


def _from_first_time(sample: Sample) -> Sample:
    """The sample with its times counted from its first token, so that Julian dates fit into single precision."""
    origin = torch.zeros_like(sample.positions[:1])
    origin[:, :1] = sample.positions[:1, :1]
    return replace(sample, positions=sample.positions - origin, hidden=None)

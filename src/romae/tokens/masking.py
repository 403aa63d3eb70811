"""Which tokens to hide.

A strategy is a value: it scores the tokens of each sample and hides those with the highest scores, so that the
number hidden is exact for every sample. A sample that can be divided never has all or none of its tokens hidden; one
of a single token, or for `Rows` of a single row, keeps it and is not trained on. Random numbers come from a
generator, drawn where it is, by default on the host, or from `SampleKeys`: either way one seed hides the same tokens
on every device.

Shapes: t tokens of all samples end to end, b samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int64
from torch import Tensor

from romae.config import check_types
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
    UniformTokens, Rows, Channels, Spans, Future : the strategies of romae.

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


def visible_and_hidden(tokens: Tokens, masking: Masking, source: RandomSource = None) -> tuple[Tokens, Tokens]:
    """The tokens that a masking leaves visible, and those that it hides."""
    hidden = masking.hidden(tokens, source)
    # A fixed share of the tokens needs no counting on the device.
    n_hidden = masking.n_hidden(tokens.layout) if isinstance(masking, _Share) else None
    n_visible = None if n_hidden is None else tokens.layout.lengths - n_hidden
    return tokens.select(~hidden, n_visible), tokens.select(hidden, n_hidden)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Share:
    """A share of each sample's tokens, rounded to a whole number."""

    ratio: float = 0.75

    def __post_init__(self) -> None:
        check_types(self)
        if not 0 < self.ratio < 1:
            raise ValueError(f"ratio is the share of tokens to hide, between 0 and 1, not {self.ratio}")

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

    Parameters
    ----------
    ratio : float, default 0.75
        The share of each sample's tokens to hide, the last ones, between 0 and 1.
    axis : int, default 0
        The position axis that is time.
    kind : "future"
        The name of this strategy in a configuration file.

    Raises
    ------
    ValueError
        If the ratio does not lie between 0 and 1.
    TypeError
        If a setting is of another type.

    Notes
    -----
    Nothing is random here. Among equal coordinates, tokens that come first in the sample are hidden first.

    Examples
    --------
    >>> import torch
    >>> import romae
    >>> batch = romae.collate([romae.Sample(torch.zeros(4, 1), [[0.0], [1.0], [5.0], [9.0]])])
    >>> romae.Future(ratio=0.5).hidden(batch.tokens)
    tensor([False, False,  True,  True])
    """

    axis: int = 0
    kind: Literal["future"] = "future"

    def hidden(self, tokens: Tokens, source: RandomSource = None) -> Bool[Tensor, "t"]:
        """The mask of a batch: the last tokens along the axis.

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
        return hide_highest(tokens.positions[:, _axis(tokens, self.axis)], tokens.layout, self.n_hidden(tokens.layout))


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
        static = is_static(tokens.positions, self.static_from)
        hidden = torch.zeros_like(static)
        hidden[~static] = self.masking.hidden(tokens.select(~static), source)
        return hidden


def share_of(counts: Int64[Tensor, "b"], ratio: float) -> Int64[Tensor, "b"]:
    """A share of each count, rounded, but never all of it, and never nothing where there are two or more."""
    share = (counts.double() * ratio).round().long()
    return share.clamp(min=1).minimum(counts - 1).clamp(min=0)


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


Strategy = UniformTokens | Rows | Channels | Spans | Future


def hide(
    samples: Sequence[Sample], masking: Strategy, seed: int | np.integer = 0, numbers: Sequence[int] | None = None
) -> list[Sample]:
    """Hide tokens of samples once and for all, for a test that is the same each time.

    Parameters
    ----------
    samples : sequence of Sample
        The samples. A mask that a sample has already is replaced.
    masking : UniformTokens, Rows, Channels, Spans or Future
        The strategy that chooses the tokens.
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
    masks = hiding.hidden(tokens, keys).split([len(sample) for sample in samples])
    return [replace(sample, hidden=hidden) for sample, hidden in zip(samples, masks, strict=True) if bool(hidden.any())]


def _from_first_time(sample: Sample) -> Sample:
    """The sample with its times counted from its first token, so that Julian dates fit into single precision."""
    origin = torch.zeros_like(sample.positions[:1])
    origin[:, :1] = sample.positions[:1, :1]
    return replace(sample, positions=sample.positions - origin, hidden=None)

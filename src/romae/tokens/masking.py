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
        self.keys = _mixed(_mixed(_mixed(indices.new_tensor(seed)) + epoch) + indices)
        self.n_drawn = 0

    def draw(self, layout: Layout) -> Float32[Tensor, "t"]:
        """A number in [0, 1) for every token of a layout of these samples."""
        self.n_drawn += 1
        sample = layout.sample_of_token
        place = torch.arange(layout.n_tokens, device=layout.device) - layout.offsets[sample]
        keys = _mixed(self.keys.to(layout.device, non_blocking=layout.device.type == "cuda") + self.n_drawn)
        bits = _mixed(keys[sample] + place)
        # The highest bits; a shift of a signed number draws in copies of its sign, which the mask takes away.
        return ((bits >> (64 - SCORE_BITS)) & (2**SCORE_BITS - 1)).float() / 2**SCORE_BITS


def _mixed(x: Int64[Tensor, "*n"]) -> Int64[Tensor, "*n"]:
    """Every bit of the result depends on every bit of x (the finaliser of splitmix64, in wrapping arithmetic).

    torch has signed numbers only: the constants are those of the literature less 2**64, and every shift is followed by
    the mask that makes it one of an unsigned number.
    """
    x = x + -0x61C8864680B583EB  # 0x9E3779B97F4A7C15
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * -0x40A7B892E31B1A47  # 0xBF58476D1CE4E5B9; 34 bits are left
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * -0x6B2FB644ECCEEE15  # 0x94D049BB133111EB; 37 bits are left
    return x ^ ((x >> 31) & 0x1FFFFFFFF)


Source = torch.Generator | SampleKeys | None


def noise(layout: Layout, source: Source) -> Float32[Tensor, "t"]:
    """A random number in [0, 1) for every token. A generator draws where it is, by default on the host."""
    if isinstance(source, SampleKeys):
        return source.draw(layout)
    drawn = torch.rand(layout.n_tokens, generator=source, device="cpu" if source is None else source.device)
    return drawn.to(layout.device, non_blocking=layout.device.type == "cuda")


@runtime_checkable
class Masking(Protocol):
    """A way to hide tokens."""

    def hidden(self, tokens: Tokens, source: Source = None) -> Bool[Tensor, "t"]: ...


def split(tokens: Tokens, masking: Masking, source: Source = None) -> tuple[Tokens, Tokens]:
    """The visible and the hidden tokens."""
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
        return share_of(layout.lengths, self.ratio)


@dataclass(frozen=True, slots=True, kw_only=True)
class UniformTokens(_Share):
    """Tokens at random, each as likely as the next."""

    kind: Literal["tokens"] = "tokens"

    def hidden(self, tokens: Tokens, source: Source = None) -> Bool[Tensor, "t"]:
        return hide_at_random(noise(tokens.layout, source), tokens.layout, self.n_hidden(tokens.layout))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Whole rows: all tokens that share a coordinate on one axis, such as every variable measured at one time.

    A sample with a single row keeps it.
    """

    ratio: float = 0.5
    axis: int = 0
    kind: Literal["rows"] = "rows"

    def __post_init__(self) -> None:
        check_types(self)
        if not 0 < self.ratio < 1:
            raise ValueError(f"ratio is the share of rows to hide, between 0 and 1, not {self.ratio}")

    def hidden(self, tokens: Tokens, source: Source = None) -> Bool[Tensor, "t"]:
        rows, row_of_token = _rows(tokens, _axis(tokens, self.axis))
        hidden_rows = hide_at_random(noise(rows, source), rows, share_of(rows.lengths, self.ratio))
        return hidden_rows[row_of_token]


@dataclass(frozen=True, slots=True, kw_only=True)
class Channels(Rows):
    """Whole channels, where the last position axis says which channel a token belongs to."""

    axis: int = -1
    kind: Literal["channels"] = "channels"  # type: ignore[assignment]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans(_Share):
    """Contiguous spans: the tokens nearest to `n_spans` random ones.

    Distance is measured over `axes` (default: all), each in units of the sample's extent, so a span is a box
    in those axes and a tube along the others.
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

    def hidden(self, tokens: Tokens, source: Source = None) -> Bool[Tensor, "t"]:
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
    """The last share of each sample along an axis: a forecast."""

    axis: int = 0
    kind: Literal["future"] = "future"

    def hidden(self, tokens: Tokens, source: Source = None) -> Bool[Tensor, "t"]:
        return hide_highest(tokens.positions[:, _axis(tokens, self.axis)], tokens.layout, self.n_hidden(tokens.layout))


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


def _rows(tokens: Tokens, axis: int) -> tuple[Layout, Int64[Tensor, "t"]]:
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
    """The samples with what a strategy hides of them, for a test that asks the same each time.

    What is hidden follows from the seed and the number of a sample, which is its place unless `numbers` are given. What
    a sample hid before counts as seen. A sample that cannot be divided is left out.
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
    tokens = collate([_from_its_first(sample) for sample in samples]).tokens
    masks = masking.hidden(tokens, keys).split([len(sample) for sample in samples])
    return [replace(sample, hidden=hidden) for sample, hidden in zip(samples, masks, strict=True) if bool(hidden.any())]


def _from_its_first(sample: Sample) -> Sample:
    """The sample with its times counted from its first token, so that Julian dates fit into single precision."""
    origin = torch.zeros_like(sample.positions[:1])
    origin[:, :1] = sample.positions[:1, :1]
    return replace(sample, positions=sample.positions - origin, hidden=None)

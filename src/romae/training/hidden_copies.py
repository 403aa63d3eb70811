"""Series as a model that needs no training is fine-tuned on them: copies that each hide something else.

Such a model sees a series in units that follow from what is visible of it, so that masks come before units here, and
not behind the scaling as in ordinary pre-training:

    series of scalar tokens ── masking ──> hidden ── what is visible ──> units of the series' own ──> what a task takes

Shapes: t tokens, b samples, k cells of a sample and a channel, c channels.
"""

from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from romae.data.own_units import OwnUnits
from romae.data.scalars import Scalars
from romae.data.sources import Indices, InMemory, SampleSource, Source, as_source
from romae.data.windows import FEWEST, WINDOW, cut
from romae.prior.times import FEWEST_VISIBLE
from romae.tokens.cuts import Clock
from romae.tokens.layout import Layout
from romae.tokens.masking import Masking, SampleKeys, Strategy, drawn_by, hide_highest
from romae.tokens.tokens import PackedSamples, Tokens

MOST_ASKED = WINDOW  # hidden tokens of a copy: a long series hides others in other copies


class Masks(NamedTuple):
    """What each token of samples is: visible, asked for, or neither."""

    visible: Bool[Tensor, "t"]
    asked: Bool[Tensor, "t"]


class HiddenCopies(Source):
    """Copies of series, each with a mask of its own, in the units that follow from what it leaves visible.

    Copy k of series i is sample k n + i, where n is the number of series that something can be asked of, those with a
    channel of at least three values. What a series hides itself (`Sample.hidden`) every copy hides. Hidden values of a
    channel with fewer than two visible ones are left out, since they have no unit. Of a long series a copy has one of
    the windows that it is answered for in.

    Parameters
    ----------
    samples : sequence of Sample
        Series with one time axis, as they were read.
    masking : UniformTokens, Rows, Channels, Spans, Future, Mixed or Masking
        What is hidden, drawn from the positions in the data's own units.
    n_copies : int
        How many copies there are of each.
    seed : int
        Draws the masks, by the number of a copy's sample.
    with_errors : bool
        Whether tokens have their measurement errors in a second column.
    from_lines : bool, default False
        Whether what is hidden is a deviation from the line between its visible neighbours.

    Raises
    ------
    ValueError
        If the samples have further position axes, or none has three values of a channel.
    """

    is_quick = True
    schema = None  # positions are no longer those of the data

    def __init__(
        self,
        samples: SampleSource,
        masking: Strategy | Masking,
        *,
        n_copies: int,
        seed: int,
        with_errors: bool,
        from_lines: bool = False,
    ) -> None:
        if n_copies < 1:
            raise ValueError(f"at least one copy of each series is made, n_copies=1 or more, not {n_copies}")
        source = Scalars.of(as_source(samples, with_targets=False), with_errors=with_errors)
        assert source.schema is not None
        self.masking, self.n_copies, self.seed, self.names = masking, n_copies, seed, source.schema
        self.from_lines = from_lines
        self.n_channels = len(source.schema.channels)
        self.all = replace(source.packed(np.arange(len(source))), target=None, is_target_per_token=False)
        self.kept = np.flatnonzero(self._can_be_asked().numpy())
        if len(self.kept) == 0:
            raise ValueError(
                "nothing can be learned from these series: none has a channel with three values, of which one is "
                "hidden; give longer series"
            )

    @property
    def n_series(self) -> int:
        """How many series there are a copy of."""
        return len(self.kept)

    @cached_property
    def lengths(self) -> Int64[np.ndarray, "n"]:  # type: ignore[override]
        """The most tokens of each copy."""
        most = WINDOW + FEWEST * self.n_channels + MOST_ASKED
        return np.tile(np.minimum(self.all.layout.lengths.numpy()[self.kept], most), self.n_copies)

    def __len__(self) -> int:
        return self.n_copies * self.n_series

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self.packed(np.array([range(len(self))[index]])).sample(0)

    def packed(self, indices: Indices) -> PackedSamples:
        """Copies end to end, in units of their own."""
        hiding = self.hiding(indices)
        return OwnUnits.of(hiding, self.n_channels).apply(hiding, from_lines=self.from_lines)

    def in_memory(self) -> InMemory:
        """All copies, drawn now, for a validation that asks the same each time."""
        return InMemory.of_packed(self.packed(np.arange(len(self))))

    def hiding(self, indices: Indices) -> PackedSamples:
        """Copies end to end in the units of the data, with what they hide."""
        indices = np.asarray(indices, dtype=np.int64)
        packed = self.all.take(self.kept[indices % self.n_series])
        keys = SampleKeys(self.seed, 0, torch.from_numpy(indices))
        masks = self._in_windows(packed, self._drawn(packed, keys), keys.apart())
        layout, index = packed.layout.selected(masks.visible | masks.asked)
        return PackedSamples(
            packed.values[index],
            packed.positions[index],
            layout,
            ids=packed.ids,
            hidden=masks.asked[index],
            weight=packed.weight,
        )

    def _cells(self, packed: PackedSamples) -> Int64[Tensor, "t"]:
        return packed.layout.sample_of_token * self.n_channels + packed.positions[:, 1].long()

    def _can_be_asked(self) -> Bool[Tensor, "b"]:
        """Whether something can be hidden of a series, or what it hides itself can be asked."""
        cell, n_cells = self._cells(self.all), len(self.all) * self.n_channels
        count = torch.bincount(cell, minlength=n_cells)
        can = (count > FEWEST_VISIBLE).view(-1, self.n_channels).any(1)
        if self.all.hidden is None:
            return can
        hidden = self.all.hidden
        n_visible = torch.bincount(cell[~hidden], minlength=n_cells)
        by_itself = ((count > n_visible) & (n_visible >= FEWEST_VISIBLE)).view(-1, self.n_channels).any(1)
        return torch.where(self.all.n_hidden > 0, by_itself, can)

    def _drawn(self, packed: PackedSamples, keys: SampleKeys) -> Masks:
        """The masks of whole series."""
        layout, sample = packed.layout, packed.layout.sample_of_token
        origins = torch.zeros(len(packed), 2, dtype=torch.float64)
        origins[:, 0] = packed.positions[layout.host_offsets[:-1], 0].double()
        tokens = Tokens(packed.values, (packed.positions.double() - origins[sample]).float(), layout)
        drawn = drawn_by(self.masking, tokens, keys, Clock(origins=origins, schema=self.names))
        hidden = drawn.hidden
        gone = torch.zeros_like(hidden) if drawn.left_out is None else drawn.left_out
        if packed.hidden is not None:
            by_itself = (packed.n_hidden > 0)[sample]
            hidden, gone = torch.where(by_itself, packed.hidden, hidden), gone & ~by_itself
        visible = ~hidden & ~gone
        cell = self._cells(packed)
        n_visible = torch.bincount(cell[visible], minlength=len(packed) * self.n_channels)
        asked = hidden & (n_visible >= FEWEST_VISIBLE)[cell]
        is_idle = (torch.bincount(sample[asked], minlength=len(packed)) == 0)[sample]
        if bool(is_idle.any()):  # the cut left nothing to ask, or too little of every channel
            last = self._last(packed, tokens.positions[:, 0])
            visible, asked = torch.where(is_idle, ~last, visible), torch.where(is_idle, last, asked)
        return Masks(visible, asked)

    def _last(self, packed: PackedSamples, time: Tensor) -> Bool[Tensor, "t"]:
        """True on the last token of each sample's channel that was measured most."""
        cell = self._cells(packed)
        count = torch.bincount(cell, minlength=len(packed) * self.n_channels).view(-1, self.n_channels)
        most = count.argmax(1) + self.n_channels * torch.arange(len(packed))
        score = torch.where(cell == most[packed.layout.sample_of_token], time.double(), -torch.inf)
        return hide_highest(score, packed.layout, torch.ones(len(packed), dtype=torch.int64))

    def _in_windows(self, packed: PackedSamples, masks: Masks, keys: SampleKeys) -> Masks:
        """The masks with what is beyond one window of each long series left out."""
        layout, sample = packed.layout, packed.layout.sample_of_token
        counts = torch.stack([torch.bincount(sample[mask], minlength=len(packed)) for mask in masks])
        long = torch.nonzero((counts[0] > WINDOW) | (counts[1] > MOST_ASKED)).flatten().tolist()
        if not long:
            return masks
        visible, asked = (mask.clone() for mask in masks)
        share = keys.draw(Layout.singles(len(packed))).double().numpy()
        order = keys.draw(layout).numpy()
        positions: Float64[np.ndarray, "t 2"] = packed.positions.double().numpy()
        offsets = layout.host_offsets.tolist()
        for i in long:
            rows = np.arange(offsets[i], offsets[i + 1])
            seen, wanted = rows[visible[rows].numpy()], rows[asked[rows].numpy()]
            if len(seen) > WINDOW:
                parts, place = cut(positions[seen], positions[wanted, 0], self.n_channels)
                window = round(float(place[int(share[i] * len(wanted))]))
                seen, wanted = seen[parts[window]], wanted[place.round() == window]
            wanted = wanted[np.argsort(order[wanted], kind="stable")[:MOST_ASKED]]
            visible[rows], asked[rows] = False, False
            visible[torch.from_numpy(seen)], asked[torch.from_numpy(wanted)] = True, True
        return Masks(visible, asked)

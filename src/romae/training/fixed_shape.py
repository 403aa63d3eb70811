"""Batches of one fixed shape, for what wants the same shapes and the same memory at every step.

A compiled block or a captured CUDA graph is made for one shape, and ragged batches all differ. So a batch is filled up
with samples that do not count, until it has a fixed number of samples and of tokens:

    samples of 5, 3 and 6 tokens, in a shape of 5 samples and 18 tokens:   5 3 6 | 2 2      real: 1 1 1 0 0

The fillers are short, so that attention costs next to nothing, and few. All tensors of a batch lie in one stretch of
memory, which goes to the device in one copy.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Int64, UInt8
from torch import Tensor
from torch.nn import functional as F

from romae.data.sources import Gather
from romae.tokens.layout import Layout
from romae.tokens.tokens import Batch, Tokens

ALIGNMENT = 64  # bytes at which each tensor begins: a cache line of the host, and more than any kernel asks for
TOKEN_MULTIPLE = 16  # tokens of a batch are a multiple of it, as the tiles of matrix products are
DEVIATIONS = 3.0  # room above the mean number of tokens of a batch: all but one batch in a thousand fit
LONGER = 0.1  # room above the longest sample seen, since later batches may hold a longer one
# The smallest batch to come is taken for this share of the smallest one seen; what it leaves free must still fit into
# fillers that are no longer than the longest sample.
SMALLER = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRoom:
    """Room for so many tokens, in samples of at most `longest`, or of exactly that many where all are equal."""

    n_tokens: int
    longest: int
    is_equal: bool = False

    @classmethod
    def around(cls, layouts: Sequence[Layout], n_samples: int, bound: int) -> "TokenRoom":
        """Room for batches like these, and for somewhat larger ones; no sample is longer than `bound`."""
        longest = max(layout.longest for layout in layouts)
        if all(layout.is_equal and layout.longest == longest for layout in layouts):
            return cls(n_tokens=n_samples * longest, longest=longest, is_equal=True)
        sizes = torch.tensor([float(layout.n_tokens) for layout in layouts])
        deviation = float(sizes.std()) if len(sizes) > 1 else 0.0
        most = max(float(sizes.max()), float(sizes.mean()) + DEVIATIONS * deviation)
        n_tokens = -(-int(most) // TOKEN_MULTIPLE) * TOKEN_MULTIPLE
        return cls(n_tokens=n_tokens, longest=min(bound, longest + -(-longest // round(1 / LONGER))))

    def filled(self, layout: Layout, n_samples: int, at_least: int) -> Layout | None:
        """The layout with fillers of `at_least` so many tokens behind its samples; None where there is no room."""
        n_fillers, n_missing = n_samples - layout.n_samples, self.n_tokens - layout.n_tokens
        if n_fillers == 0 and n_missing == 0 and layout.longest <= self.longest:
            return layout
        if n_fillers <= 0 or n_missing < n_fillers * at_least or layout.longest > self.longest:
            return None
        # As even as can be: 7 missing tokens in 3 fillers are 3, 2, 2.
        lengths = torch.full((n_fillers,), n_missing // n_fillers)
        lengths[: n_missing % n_fillers] += 1
        return None if int(lengths[0]) > self.longest else Layout.of(torch.cat([layout.lengths, lengths]))


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedShape:
    """The shape of a batch: samples, tokens to see, tokens to predict."""

    n_samples: int
    tokens: TokenRoom
    hidden: TokenRoom | None
    is_target_per_token: bool = False
    is_weighted: bool = False

    @classmethod
    def around(cls, batches: Sequence[Batch], n_samples: int, longest: int) -> "FixedShape":
        """A shape that batches like these fit into, of up to so many samples of up to `longest` tokens."""
        parts = [[batch.tokens.layout for batch in batches]]
        if batches[0].hidden is not None:
            parts.append([batch.hidden.layout for batch in batches if batch.hidden is not None])
        rooms = [TokenRoom.around(layouts, n_samples, longest) for layouts in parts]
        if not all(room.is_equal for room in rooms):
            rooms, n_samples = _with_fillers(rooms, parts, n_samples)
        n_rows = [0 if batch.target is None else len(batch.target) for batch in batches]
        n_tokens = [batch.tokens.layout.n_tokens for batch in batches]
        per_token = n_rows == n_tokens and n_tokens != [len(batch) for batch in batches]
        hidden = rooms[1] if len(rooms) > 1 else None
        return cls(
            n_samples=n_samples,
            tokens=rooms[0],
            hidden=hidden,
            is_target_per_token=per_token,
            is_weighted=any(batch.weight is not None for batch in batches),
        )

    def filled(self, batch: Batch) -> Batch | None:
        """The batch, on the host, with samples that do not count up to this shape; None where it does not fit."""
        tokens = _filled(batch.tokens, self.tokens.filled(batch.tokens.layout, self.n_samples, at_least=1))
        hidden = None
        if self.hidden is not None and batch.hidden is not None:
            hidden = _filled(batch.hidden, self.hidden.filled(batch.hidden.layout, self.n_samples, at_least=0))
        if tokens is None or (hidden is None) != (self.hidden is None):
            return None
        weight = batch.weight
        if weight is not None and not self.is_weighted:  # no batch had weights that the shape was made around
            return None
        if self.is_weighted:
            weight = _extended(torch.ones(len(batch)) if weight is None else weight, self.n_samples)
        target = batch.target
        if target is not None:
            n_rows = tokens.layout.n_tokens if self.is_target_per_token else self.n_samples
            target = _extended(target, n_rows)
        real = torch.arange(self.n_samples) < len(batch)
        return replace(batch, tokens=tokens, hidden=hidden, target=target, real=real, weight=weight)


def _with_fillers(rooms: list[TokenRoom], parts: list[list[Layout]], n_samples: int) -> tuple[list[TokenRoom], int]:
    """Room for as many fillers as the smallest batch needs, and the number of samples with them."""
    rooms = [replace(room, is_equal=False) for room in rooms]
    n_fillers = 1 + max(
        int((room.n_tokens - SMALLER * min(layout.n_tokens for layout in layouts)) / room.longest)
        for room, layouts in zip(rooms, parts, strict=True)
    )
    n_samples += n_fillers
    # Every filler has a token at least, also where samples are missing.
    needed = [max(layout.n_tokens + n_samples - layout.n_samples for layout in layouts) for layouts in parts]
    rooms = [
        replace(room, n_tokens=max(room.n_tokens + n_fillers, least)) for room, least in zip(rooms, needed, strict=True)
    ]
    return rooms, n_samples


def _filled(tokens: Tokens, layout: Layout | None) -> Tokens | None:
    if layout is None:
        return None
    n = layout.n_tokens
    rows = None if tokens.rows is None else _extended(tokens.rows, n)
    return Tokens(_extended(tokens.values, n), _extended(tokens.positions, n), layout, rows)


def _extended(x: Tensor, n_rows: int) -> Tensor:
    """More rows of zeros."""
    return x if len(x) == n_rows else F.pad(x, [0, 0] * (x.ndim - 1) + [0, n_rows - len(x)])


@dataclass(frozen=True, eq=False)
class FlatBatch:
    """A batch of fixed shape as one stretch of memory, on its way to the device; `n_tokens` of its tokens count."""

    memory: UInt8[Tensor, "bytes"]
    n_tokens: int
    ids: tuple[Hashable, ...]
    indices: Int64[Tensor, "b"] | None

    @classmethod
    def of(cls, batch: Batch, n_tokens: int, *, pin: bool = False) -> "FlatBatch":
        """The tensors of a filled batch end to end, each at a multiple of ALIGNMENT."""
        fields = _fields(batch)
        memory = torch.empty(sum(map(_n_bytes, fields)), dtype=torch.uint8, pin_memory=pin)
        start = 0
        for field in fields:
            raw = field.contiguous().flatten().view(torch.uint8)
            memory[start : start + len(raw)] = raw
            start += _n_bytes(field)
        return cls(memory, n_tokens, batch.ids, batch.indices)

    def pin_memory(self) -> "FlatBatch":
        return replace(self, memory=self.memory.pin_memory())


def _fields(batch: Batch) -> list[Tensor]:
    """The tensors of a batch of fixed shape, in an order that does not change."""
    assert batch.real is not None
    fields = [batch.real] if batch.weight is None else [batch.real, batch.weight]
    for part in (batch.tokens, batch.hidden):
        if part is not None:
            fields += [part.values if part.rows is None else part.rows, part.positions, part.layout.offsets]
    return fields if batch.target is None else [*fields, batch.target]


def _n_bytes(field: Tensor) -> int:
    """What a tensor takes, up to where the next may begin."""
    return -(-field.numel() * field.element_size() // ALIGNMENT) * ALIGNMENT


class DeviceBuffer:
    """Memory on the device that batches of one fixed shape are copied into, and the batch that it holds.

    A batch comes to the device beside the work that is under way there, and moves to its place when that is done.
    With `gather`, all values lie on the device already, and batches bring the rows of theirs.
    """

    def __init__(self, shape: FixedShape, example: Batch, device: torch.device, gather: Gather | None = None) -> None:
        fields = _fields(example)
        self.gather = gather
        self.gathered: list[tuple[Tensor, Tensor]] = []  # the rows that a batch brings, and the place of their values
        self.memory = torch.zeros(sum(map(_n_bytes, fields)), dtype=torch.uint8, device=device)
        self.arriving = torch.empty_like(self.memory)
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        views = self._views(fields)
        real = next(views)
        weight = None if example.weight is None else next(views)
        tokens = self._tokens(views, shape.tokens)
        hidden = None if shape.hidden is None else self._tokens(views, shape.hidden)
        target = next(views, None)
        self.batch = Batch(tokens, target=target, hidden=hidden, is_prepared=True, real=real, weight=weight)

    def _views(self, fields: Sequence[Tensor]) -> Iterator[Tensor]:
        """The parts of the memory, each with the type and shape of its field."""
        start = 0
        for field in fields:
            raw = self.memory[start : start + field.numel() * field.element_size()]
            yield raw.view(field.dtype).view(field.shape)
            start += _n_bytes(field)

    def _tokens(self, views: Iterator[Tensor], room: TokenRoom) -> Tokens:
        values, positions, offsets = next(views), next(views), next(views)
        if self.gather is not None:
            rows, values = values, self.gather(values)
            self.gathered.append((rows, values))
        return Tokens(values, positions, Layout.fixed(offsets, room.n_tokens, room.longest, room.is_equal))

    def load(self, flat: FlatBatch) -> None:
        """Put a batch into its place."""
        self._move(flat)
        for rows, values in self.gathered:
            assert self.gather is not None
            values.copy_(self.gather(rows))

    def _move(self, flat: FlatBatch) -> None:
        if self.stream is None:
            self.memory.copy_(flat.memory)
            return
        # Two copies: over the bus on its own stream while the step before still reads `memory`, then on the device.
        here = torch.cuda.current_stream()
        with torch.cuda.stream(self.stream):
            self.arriving.copy_(flat.memory, non_blocking=True)
        here.wait_stream(self.stream)
        self.memory.copy_(self.arriving)
        self.moved = torch.cuda.Event()
        self.moved.record()
        self.stream.wait_event(self.moved)  # the next batch comes when this one has left its place of arrival

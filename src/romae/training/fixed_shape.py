"""Batches of a fixed size, for what wants the same shapes and the same memory at every step.

A compiled model or a captured CUDA graph is made for one shape, and ragged batches all differ. So a batch is filled up
with samples that do not count, until it has a fixed number of samples and of tokens; they are short, so that attention
costs next to nothing, and few. All of a batch lies in one stretch of memory, which goes to the device in one copy.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Int64, UInt8
from torch import Tensor
from torch.nn import functional as F

from romae.tokens.layout import Layout
from romae.tokens.tokens import Batch, Tokens

ALIGNED = 64  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Room for so many tokens, in samples of at most `longest`, or of exactly that many where all are equal."""

    n_tokens: int
    longest: int
    is_equal: bool = False

    @classmethod
    def around(cls, layouts: Sequence[Layout], n_samples: int, bound: int) -> "Room":
        """Room for batches like these, and for somewhat larger ones; no sample is longer than `bound`."""
        sizes = torch.tensor([float(layout.n_tokens) for layout in layouts])
        longest = max(layout.longest for layout in layouts)
        if all(layout.is_equal and layout.longest == longest for layout in layouts):
            return cls(n_tokens=n_samples * longest, longest=longest, is_equal=True)
        spread = float(sizes.std()) if len(sizes) > 1 else 0.0
        most = max(float(sizes.max()), float(sizes.mean()) + 3 * spread)
        return cls(n_tokens=-(-int(most) // 16) * 16, longest=min(bound, longest + -(-longest // 10)))

    def filled(self, layout: Layout, n_samples: int, at_least: int) -> Layout | None:
        """The layout with fillers of `at_least` so many tokens behind its samples; None where there is no room."""
        n_fillers, n_missing = n_samples - layout.n_samples, self.n_tokens - layout.n_tokens
        if n_fillers == 0 and n_missing == 0 and layout.longest <= self.longest:
            return layout
        if n_fillers <= 0 or n_missing < n_fillers * at_least or layout.longest > self.longest:
            return None
        lengths = torch.full((n_fillers,), n_missing // n_fillers)
        lengths[: n_missing % n_fillers] += 1
        return None if int(lengths[0]) > self.longest else Layout.of(torch.cat([layout.lengths, lengths]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The fixed size of a batch: samples, tokens to see, tokens to predict."""

    n_samples: int
    tokens: Room
    hidden: Room | None
    is_target_per_token: bool = False

    @classmethod
    def around(cls, batches: Sequence[Batch], n_samples: int, longest: int) -> "Capacity":
        """A size that batches like these fit into, of up to so many samples of up to `longest` tokens."""
        parts = [[batch.tokens.layout for batch in batches]]
        if batches[0].hidden is not None:
            parts.append([batch.hidden.layout for batch in batches if batch.hidden is not None])
        rooms = [Room.around(layouts, n_samples, longest) for layouts in parts]
        if not all(room.is_equal for room in rooms):
            # What the smallest batch leaves free must fit into fillers that are no longer than any sample.
            rooms = [replace(room, is_equal=False) for room in rooms]
            free = [
                (room.n_tokens - 0.8 * min(layout.n_tokens for layout in layouts)) / room.longest
                for room, layouts in zip(rooms, parts, strict=True)
            ]
            n_fillers = int(max(free)) + 1
            n_samples += n_fillers
            # Every filler has a token at least, also where samples are missing.
            needed = [max(one.n_tokens + n_samples - one.n_samples for one in layouts) for layouts in parts]
            rooms = [
                replace(room, n_tokens=max(room.n_tokens + n_fillers, least))
                for room, least in zip(rooms, needed, strict=True)
            ]
        n_rows = [0 if batch.target is None else len(batch.target) for batch in batches]
        n_tokens = [batch.tokens.layout.n_tokens for batch in batches]
        per_token = n_rows == n_tokens and n_tokens != [len(batch) for batch in batches]
        hidden = rooms[1] if len(rooms) > 1 else None
        return cls(n_samples=n_samples, tokens=rooms[0], hidden=hidden, is_target_per_token=per_token)

    def filled(self, batch: Batch) -> Batch | None:
        """The batch, on the host, with samples that do not count up to this size; None where it does not fit."""
        tokens = _filled(batch.tokens, self.tokens.filled(batch.tokens.layout, self.n_samples, at_least=1))
        hidden = None
        if self.hidden is not None and batch.hidden is not None:
            hidden = _filled(batch.hidden, self.hidden.filled(batch.hidden.layout, self.n_samples, at_least=0))
        if tokens is None or (hidden is None) != (self.hidden is None):
            return None
        target = batch.target
        if target is not None:
            n_rows = tokens.layout.n_tokens if self.is_target_per_token else self.n_samples
            target = _extended(target, n_rows)
        real = torch.arange(self.n_samples) < len(batch)
        return replace(batch, tokens=tokens, hidden=hidden, target=target, real=real)


def _filled(tokens: Tokens, layout: Layout | None) -> Tokens | None:
    if layout is None:
        return None
    n = layout.n_tokens
    return Tokens(_extended(tokens.values, n), _extended(tokens.positions, n), layout)


def _extended(x: Tensor, n_rows: int) -> Tensor:
    return x if len(x) == n_rows else F.pad(x, [0, 0] * (x.ndim - 1) + [0, n_rows - len(x)])


@dataclass(frozen=True, eq=False)
class Filled:
    """A batch of fixed size as one stretch of memory, on its way to the device."""

    memory: UInt8[Tensor, "bytes"]
    n_tokens: int
    ids: tuple[Hashable, ...]
    indices: Int64[Tensor, "b"] | None

    def pin_memory(self) -> "Filled":
        return replace(self, memory=self.memory.pin_memory())


def _fields(batch: Batch) -> list[Tensor]:
    """The tensors of a batch of fixed size, in an order that does not change."""
    assert batch.real is not None
    fields = [batch.real]
    for part in (batch.tokens, batch.hidden):
        fields += [] if part is None else [part.values, part.positions, part.layout.offsets]
    return fields if batch.target is None else [*fields, batch.target]


def _room(field: Tensor) -> int:
    return -(-field.numel() * field.element_size() // ALIGNED) * ALIGNED


def flattened(batch: Batch, n_tokens: int, *, pin: bool = False) -> Filled:
    """A filled batch in one stretch of memory; `n_tokens` is how many of its tokens count."""
    fields = _fields(batch)
    memory = torch.empty(sum(_room(field) for field in fields), dtype=torch.uint8, pin_memory=pin)
    start = 0
    for field in fields:
        raw = field.contiguous().flatten().view(torch.uint8)
        memory[start : start + len(raw)] = raw
        start += _room(field)
    return Filled(memory, n_tokens, batch.ids, batch.indices)


def with_values(batch: Batch, gather: Callable[[Tensor], Tensor]) -> Batch:
    """A batch that names the rows of its values, with the values themselves."""

    def filled(part: Tokens) -> Tokens:
        return replace(part, values=gather(part.values.squeeze(1)))

    return replace(batch, tokens=filled(batch.tokens), hidden=None if batch.hidden is None else filled(batch.hidden))


class Buffer:
    """Memory on the device that batches of one fixed size are copied into, and the batch that it holds.

    A batch comes to the device beside the work that is under way there, and moves to its place when that is done.
    With `gather`, all values lie on the device already, and batches bring the numbers of their rows.
    """

    def __init__(
        self, capacity: Capacity, like: Batch, device: torch.device, gather: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        fields = _fields(like)
        self.gather = gather
        self.gathered: list[tuple[Tensor, Tensor]] = []  # rows that a batch names, and the values they stand for
        self.memory = torch.zeros(sum(_room(field) for field in fields), dtype=torch.uint8, device=device)
        self.arriving = torch.empty_like(self.memory)
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        views, start = [], 0
        for field in fields:
            raw = self.memory[start : start + field.numel() * field.element_size()]
            views.append(raw.view(field.dtype).view(field.shape))
            start += _room(field)
        rest = iter(views)
        real = next(rest)

        def part(room: Room) -> Tokens:
            held, positions, offsets = next(rest), next(rest), next(rest)
            if gather is not None:
                rows, held = held.squeeze(1), gather(held.squeeze(1))
                self.gathered.append((rows, held))
            return Tokens(held, positions, Layout.fixed(offsets, room.n_tokens, room.longest, room.is_equal))

        tokens = part(capacity.tokens)
        hidden = None if capacity.hidden is None else part(capacity.hidden)
        self.batch = Batch(tokens, target=next(rest, None), hidden=hidden, is_prepared=True, real=real)

    def fill(self, filled: Filled) -> None:
        self._move(filled)
        for rows, values in self.gathered:
            assert self.gather is not None
            values.copy_(self.gather(rows))

    def _move(self, filled: Filled) -> None:
        if self.stream is None:
            self.memory.copy_(filled.memory)
            return
        here = torch.cuda.current_stream()
        with torch.cuda.stream(self.stream):
            self.arriving.copy_(filled.memory, non_blocking=True)
        here.wait_stream(self.stream)
        self.memory.copy_(self.arriving)
        self.moved = torch.cuda.Event()
        self.moved.record()
        self.stream.wait_event(self.moved)  # the next batch comes when this one has left its place of arrival

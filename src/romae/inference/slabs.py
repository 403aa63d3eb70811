"""Slabs: many samples brought to the device at once, and checked, scaled and sorted by length there.

A thread makes the next slab on a stream of its own while the device answers for the one before.

Shapes: b samples, n of them, t tokens, q queries, d position dimensions, c values.
"""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64
from torch import Tensor

from romae.tokens.layout import Layout
from romae.tokens.tokens import Batch, PackedSamples, Tokens

T = TypeVar("T")


class Places(NamedTuple):
    """The positions that samples are asked for, as the model sees them, and how many each; what undoes the scaling."""

    positions: Float32[Tensor, "q d"]
    counts: Int64[np.ndarray, "b"]
    centre: Float64[Tensor, "_ c"]
    scale: Float64[Tensor, "_ c"]


class Slab(NamedTuple):
    """Many samples on the device, scaled and sorted by length, and their places in the source.

    `sizes` are their tokens, `origins` what scaling has subtracted from their positions, and `places` what they are
    asked for.
    """

    indices: Int64[np.ndarray, "b"]
    sizes: Int64[np.ndarray, "b"]
    tokens: Tokens
    origins: Float64[Tensor, "b d"] | None
    places: Places | None = None

    @property
    def tensors(self) -> list[Tensor]:
        """All that lies on the device."""
        found = [self.tokens.values, self.tokens.positions, self.tokens.layout.offsets]
        found += [] if self.origins is None else [self.origins]
        return found if self.places is None else [*found, self.places.positions, self.places.centre, self.places.scale]


def slab_of(
    packed: PackedSamples,
    indices: Int64[np.ndarray, "b"],
    device: torch.device,
    prepare: Callable[[PackedSamples], Batch],
) -> Slab:
    """Samples that hide nothing, brought to the device, prepared and sorted there.

    What is wrong with them is found on the device; who it is, is asked on the host once more.
    """
    try:
        batch = prepare(on_device(packed, device))
    except (ValueError, TypeError, RuntimeError):
        batch = prepare(packed)
    return sorted_by_length(batch, packed, indices)


def on_device(packed: PackedSamples, device: torch.device) -> PackedSamples:
    """Samples in the data's own units, brought to the device."""
    values, positions = packed.values.to(device), packed.positions.to(device)
    return replace(packed, values=values, positions=positions, layout=packed.layout.to(device))


def sorted_by_length(batch: Batch, packed: PackedSamples, indices: Int64[np.ndarray, "b"]) -> Slab:
    """What was made of samples, on the device that it is on."""
    sizes = packed.layout.lengths.numpy()
    order = np.argsort(sizes, kind="stable")
    origins = batch.origins
    if origins is not None:
        origins = origins.index_select(0, torch.from_numpy(order).to(origins.device))
    return Slab(indices[order], sizes[order], taken(batch.tokens, sizes, order), origins)


def taken(tokens: Tokens, sizes: Int64[np.ndarray, "b"], order: Int64[np.ndarray, "n"]) -> Tokens:
    """The samples at these places, gathered on the device that they are on."""
    chosen = sizes[order]
    shifts = (np.cumsum(sizes) - sizes)[order] - (np.cumsum(chosen) - chosen)
    device, n = tokens.device, int(chosen.sum())
    lengths, by = (torch.from_numpy(x).to(device) for x in (chosen, shifts))
    rows = torch.repeat_interleave(by, lengths, output_size=n) + torch.arange(n, device=device)
    values, positions = tokens.values.index_select(0, rows), tokens.positions.index_select(0, rows)
    return Tokens(values, positions, Layout.of(torch.from_numpy(chosen), device))


class Aside:
    """Work of another thread on a stream of its own, so that what it waits for is its own alone."""

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def slabs(self, make: Iterator[Slab]) -> Iterator[tuple[Slab, Any]]:
        """The slabs, each with what tells that it is there; to be asked for by the other thread."""
        while True:
            with nullcontext() if self.stream is None else torch.cuda.stream(self.stream):
                slab = next(make, None)
                if slab is None:
                    return
                arrived = None if self.stream is None else self.stream.record_event()
            yield slab, arrived


def here(slab: Slab, arrived: Any) -> Slab:
    """A slab for this thread's stream, which waits for it."""
    if arrived is not None:
        now = torch.cuda.current_stream(slab.tokens.device)
        now.wait_event(arrived)
        for part in slab.tensors:
            part.record_stream(now)  # its memory is not given to the next slab while this stream reads it
    return slab


class Leaving:
    """Rows on their way to the host, which does not wait for them until they are asked for."""

    def __init__(self, rows: Tensor) -> None:
        self.event = None
        if rows.device.type == "cuda":
            self.rows = torch.empty(rows.shape, dtype=rows.dtype, pin_memory=True)
            self.rows.copy_(rows, non_blocking=True)
            self.event = torch.cuda.current_stream(rows.device).record_event()
        else:
            self.rows = rows

    def get(self) -> Tensor:
        """The rows on the host."""
        if self.event is not None:
            self.event.synchronize()
        return self.rows


def in_advance(items: Iterator[T], n: int) -> Iterator[T]:
    """The same items, up to n of them made by a thread before they are asked for; an error comes in its place."""
    end: Any = object()
    with ThreadPoolExecutor(1) as thread:
        waiting = deque(thread.submit(next, items, end) for _ in range(n))
        while (item := waiting.popleft().result()) is not end:
            waiting.append(thread.submit(next, items, end))
            yield item

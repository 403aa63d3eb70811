"""Samples in memory, packed once, so that a batch is gathered instead of put together sample by sample."""

import copy
import os
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float, Int32, Int64
from torch import Tensor

from romae.data.schema import SampleSet
from romae.tokens.layout import Layout
from romae.tokens.sample import Sample
from romae.tokens.tokens import Batch, Tokens, collate

Gather = Callable[[Int32[Tensor, "t"]], Float[Tensor, "t c"]]
LARGEST = 0.125  # of the machine's memory; samples that take more are not copied
USUAL_MEMORY = 8 << 30  # bytes; what a machine is taken to have that does not say


class Packed:
    """All samples of a list end to end."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self.all = collate(samples)
        # A copy, since torch moves what it hands to worker processes to other memory, under the eyes of numpy.
        self.lengths = self.all.tokens.layout.lengths.numpy().copy()
        self.starts = self.all.tokens.layout.host_offsets[:-1]
        target = self.all.target
        self.is_target_per_token = target is not None and target.ndim == 2 and samples[0].target.ndim == 2

    def __len__(self) -> int:
        return len(self.lengths)

    def numbered(self) -> "Packed":
        """The same samples, each token with the number of its row among all values in the place of its values.

        For values that lie on a device already (`settled`): a batch then brings four bytes for each of its tokens,
        however many values those have, and gathers the values there.
        """
        tokens = self.all.tokens
        rows = torch.arange(tokens.layout.n_tokens, dtype=torch.int32).unsqueeze(1)
        numbered = copy.copy(self)
        numbered.all = replace(self.all, tokens=replace(tokens, values=rows))
        return numbered

    @property
    def n_bytes(self) -> int:
        """What `settled` takes on a device."""
        return self.all.tokens.values.nbytes

    def settled(self, device: torch.device) -> Gather:
        """All values on a device, to be gathered there by the numbers of their rows."""
        values = self.all.tokens.values.to(device)
        return lambda rows: values.index_select(0, rows)

    def batch(self, indices: Int64[np.ndarray, "b"]) -> Batch:
        """The samples at these indices as a packed batch."""
        chosen, whole = torch.from_numpy(indices), self.all
        layout = Layout.of(whole.tokens.layout.lengths[chosen])
        shifts = self.starts[chosen] - layout.host_offsets[:-1]
        rows = torch.repeat_interleave(shifts, layout.lengths) + torch.arange(layout.n_tokens)
        values, positions = (x.index_select(0, rows) for x in (whole.tokens.values, whole.tokens.positions))
        target = whole.target
        if target is not None:
            target = target.index_select(0, rows if self.is_target_per_token else chosen)
        ids = tuple(map(whole.ids.__getitem__, indices.tolist()))
        return Batch(Tokens(values, positions, layout), target=target, ids=ids)


def packed(samples: Sequence[Sample]) -> Packed | None:
    """The samples packed, or None where they are made as they are asked for, choose their own masks, or are large."""
    held = samples.samples if isinstance(samples, SampleSet) else samples
    if not isinstance(held, list | tuple) or any(type(one) is not Sample or one.hidden is not None for one in held):
        return None
    n_bytes = sum(one.values.numel() * one.values.element_size() for one in held)
    return Packed(held) if n_bytes <= LARGEST * _memory() else None


def _memory() -> int:
    """The memory of this machine in bytes: all of it, since what is free would differ from run to run."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # Windows has no sysconf
        return USUAL_MEMORY

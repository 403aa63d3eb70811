"""Samples in memory, packed once, so that a batch is gathered instead of put together sample by sample."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Int64

from romae.data.series import SampleSet
from romae.layout import Layout
from romae.tokens import Batch, Sample, Tokens, collate

LARGEST = 1 << 30  # bytes of values; what is larger is not copied


class Packed:
    """All samples of a list end to end."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self.all = collate(samples)
        self.lengths = self.all.tokens.layout.lengths.numpy()
        self.starts = self.all.tokens.layout.host_offsets[:-1]
        target = self.all.target
        self.is_target_per_token = target is not None and target.ndim == 2 and samples[0].target.ndim == 2

    def __len__(self) -> int:
        return len(self.lengths)

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
        return Batch(Tokens(values, positions, layout), target=target, ids=tuple(whole.ids[i] for i in indices))


def packed(samples: Sequence[Sample]) -> Packed | None:
    """The samples packed, or None where they are made as they are asked for, choose their own masks, or are large."""
    held = samples.samples if isinstance(samples, SampleSet) else samples
    if not isinstance(held, list | tuple) or any(type(one) is not Sample or one.hidden is not None for one in held):
        return None
    n_bytes = sum(one.values.numel() * one.values.element_size() for one in held)
    return Packed(held) if n_bytes <= LARGEST else None

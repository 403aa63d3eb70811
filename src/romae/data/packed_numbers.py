"""The numbers of training data end to end, as what is fitted to them reads them.

Shapes: t tokens of all samples, b samples, c columns of values, d position axes.
"""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float64, Int64

from romae.data.ranges import sample_of_token
from romae.data.sources import Source
from romae.tokens.tokens import channel_index

# Numbers that a scaling is fitted to at most: half a gigabyte in double precision. Of more, samples are taken evenly,
# by their lengths alone, so that a store and a list of the same samples are fitted alike.
MOST_NUMBERS = 1 << 26


class PackedNumbers(NamedTuple):
    """All samples end to end; `starts` is the first token of each."""

    values: Float64[np.ndarray, "t c"]
    positions: Float64[np.ndarray, "t d"]
    starts: Int64[np.ndarray, "b"]

    @classmethod
    def of(cls, source: Source) -> "PackedNumbers":
        """The samples of a source, or where they hold more than `MOST_NUMBERS` an even share of them."""
        first = source[0]
        n_numbers = int(source.lengths.sum()) * (first.values.shape[1] + first.positions.shape[1])
        step = -(-n_numbers // MOST_NUMBERS)
        packed = source.packed(np.arange(0, len(source), step))
        starts = packed.layout.host_offsets[:-1].numpy()
        return cls(packed.values.double().numpy(), packed.positions.double().numpy(), starts)

    def without_errors(self, n_errors: int) -> "PackedNumbers":
        """The same without the last columns, which are measurement errors."""
        return self._replace(values=self.values[:, : self.values.shape[1] - n_errors]) if n_errors else self

    def errors_alone(self, n_errors: int) -> "PackedNumbers":
        """The same with measurement errors in the place of values."""
        return self._replace(values=self.values[:, self.values.shape[1] - n_errors :])

    def sample(self) -> Int64[np.ndarray, "t"]:
        """The number of the sample that each token belongs to."""
        return sample_of_token(self.starts, len(self.values))

    def channel(self, n_channels: int) -> Int64[np.ndarray, "t"]:
        """The channel of each token: its index on the last position axis."""
        return channel_index(torch.from_numpy(self.positions), n_channels).numpy()

    def cell(self, n_channels: int | None) -> Int64[np.ndarray, "t"]:
        """The number of the channel of a sample that each token belongs to; without channels, of the sample."""
        if n_channels is None:
            return self.sample()
        return self.sample() * n_channels + self.channel(n_channels)

    def median_gap(self, axis: int, group: Int64[np.ndarray, "t"]) -> float | None:
        """The median gap between neighbouring coordinates of a group; None where no group has two coordinates."""
        x = self.positions[:, axis]
        order = np.lexsort((x, group))
        gaps = np.diff(x[order])
        gaps = gaps[(np.diff(group[order]) == 0) & (gaps > 0)]
        return float(np.median(gaps)) if len(gaps) else None

    def longest_span(self, axis: int) -> float:
        """The longest distance between two coordinates of a sample."""
        x = self.positions[:, axis]
        return float((np.maximum.reduceat(x, self.starts) - np.minimum.reduceat(x, self.starts)).max())

"""Levels: the mean of what is visible in each channel of each sample, and values relative to it.

A channel of a sample is a cell, and cells are numbered through: of 2 samples with 3 channels,

    sample 0, channels 0 1 2; sample 1, channels 0 1 2  ──>  cells 0 1 2 3 4 5

Shapes: t tokens, b samples, m channels (1 where they are columns of values), k = b x m cells, c columns of values.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from romae.tokens.layout import Layout
from romae.tokens.tokens import Tokens

# Of the level that labels and embeddings see. An encoder that was pre-trained on centred values does worse the farther
# they are shifted: of 500 variable stars (ASAS) it told 41 % of the classes right with the whole level, 51 % with a
# quarter, 54 % with a tenth and 59 % with none; embeddings told the level with R2 0.94, 0.85, 0.71 and 0.30.
LEVEL_SHARE = 0.25


@dataclass(frozen=True, eq=False)
class Levels:
    """The level of each cell, and by how much deviations from it are enlarged.

    A cell with no visible token has the level 0, which is the centre of the training data, and the gain 1: its values
    stay as they are.
    """

    level: Float64[Tensor, "k c"]
    gain: Float64[Tensor, "k c"]
    n_channels: int

    @classmethod
    def of(
        cls,
        visible: Tokens,
        gain: Float64[Tensor, "rows columns"],
        n_channels: int = 1,
        *,
        static_from: int | None = None,
    ) -> "Levels":
        """The levels of these tokens: what is hidden must not be among them.

        With more than one channel, the last position axis is the channel. `gain` has a row for each channel, or one
        for all. Static facts, which are channels from `static_from` on, have one value a sample, which is all that they
        tell, and stay as they are. Nothing here makes the host wait for the device.
        """
        n_samples, values = visible.layout.n_samples, visible.values.double()
        cell = cells(visible.positions, visible.layout, n_channels)
        count = cell.new_zeros(n_samples * n_channels).index_add(0, cell, torch.ones_like(cell))
        # Sorted and added up cell by cell: index_add would add in any order on a GPU, and runs would not repeat.
        order = cell.argsort(stable=True)
        total = torch.segment_reduce(values[order], "sum", lengths=count, axis=0, unsafe=True, initial=0)
        is_centred = (count > 0).unsqueeze(1)
        if static_from is not None:
            channel = torch.arange(n_channels, device=cell.device).repeat(n_samples)
            is_centred = is_centred & (channel < static_from).unsqueeze(1)
        row = gain.expand(n_channels, values.shape[1]).repeat(n_samples, 1)
        level = torch.where(is_centred, total / count.clamp(min=1).unsqueeze(1), 0.0)
        return cls(level, torch.where(is_centred, row, 1.0), n_channels)

    def relative(self, tokens: Tokens) -> Tokens:
        """The tokens with their deviations from the level, enlarged."""
        cell = cells(tokens.positions, tokens.layout, self.n_channels)
        values = (tokens.values.double() - self.level[cell]) * self.gain[cell]
        return replace(tokens, values=values.to(tokens.values.dtype))

    def enlarged(self, tokens: Tokens) -> Tokens:
        """The tokens with their deviations enlarged, about a share of the level: for labels, to which it may matter."""
        cell = cells(tokens.positions, tokens.layout, self.n_channels)
        level = self.level[cell]
        values = (tokens.values.double() - level) * self.gain[cell] + LEVEL_SHARE * level
        return replace(tokens, values=values.to(tokens.values.dtype))

    def absolute(
        self, values: Float[Tensor, "t c"], positions: Float[Tensor, "t d"], layout: Layout
    ) -> Float64[Tensor, "t c"]:
        """Values that are relative to the level, brought back: the inverse of `relative`."""
        cell = cells(positions, layout, self.n_channels)
        return values.double() / self.gain[cell] + self.level[cell]

    def cpu(self) -> "Levels":
        """The same on the host."""
        return Levels(self.level.cpu(), self.gain.cpu(), self.n_channels)


def cells(positions: Float[Tensor, "t d"], layout: Layout, n_channels: int) -> Int64[Tensor, "t"]:
    """The cell of each token."""
    sample = layout.sample_of_token
    return sample if n_channels == 1 else sample * n_channels + positions[:, -1].long()

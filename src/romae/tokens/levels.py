"""Levels: the mean of what is visible in each channel of each sample, and values relative to it and to their spread.

A channel of a sample is a cell, and cells are numbered through: of 2 samples with 3 channels,

    sample 0, channels 0 1 2; sample 1, channels 0 1 2  ──>  cells 0 1 2 3 4 5

Shapes: t tokens, b samples, m channels (1 where they are columns of values), k = b x m cells, c columns of values.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from romae.tokens.errors import enlarged_errors
from romae.tokens.layout import Layout
from romae.tokens.tokens import Tokens

# Of the level that labels and embeddings see. An encoder that was pre-trained on centred values does worse the farther
# they are shifted: of 500 variable stars (ASAS) it told 41 % of the classes right with the whole level, 51 % with a
# quarter, 54 % with a tenth and 59 % with none; embeddings told the level with R2 0.94, 0.85, 0.71 and 0.30.
LEVEL_SHARE = 0.25
# Likewise of the spread, as a power: of values that vary 16 times as much as usual, labels and embeddings see a spread
# of 2. Of 1000 variable stars (ASAS), embeddings told the logarithm of the spread with R2 0.50, 0.75, 0.89, 0.90 and
# 0.94 for powers of 0, 0.1, 0.25, 0.5 and 1, and the class with 0.58, 0.58, 0.56, 0.57 and 0.52 of 300 stars.
SPREAD_SHARE = 0.25
FEWEST = 4  # visible values that have a spread of their own: 1 / variance of 3 normal numbers has no mean
FLATTEST = 1e-3  # of the usual spread: what varies less counts as constant, and a step beside it stays a finite target


@dataclass(frozen=True, eq=False)
class Levels:
    """The level of each cell, and by how much deviations from it are enlarged.

    A cell with no visible token has the level 0, which is the centre of the training data, and the gain 1: its values
    stay as they are. `usual_gain` is that of the training data, where cells have gains by their own spread.
    """

    level: Float64[Tensor, "k c"]
    gain: Float64[Tensor, "k c"]
    n_channels: int
    usual_gain: Float64[Tensor, "k c"] | None = None

    @classmethod
    def of(
        cls,
        visible: Tokens,
        gain: Float64[Tensor, "rows columns"],
        n_channels: int = 1,
        *,
        static_from: int | None = None,
        own_spread: bool = False,
        n_errors: int = 0,
    ) -> "Levels":
        """The levels of these tokens: what is hidden must not be among them. The last `n_errors` columns have none.

        With more than one channel, the last position axis is the channel. `gain` has a row for each channel, or one
        for all. With `own_spread` it is 1 / the standard deviation of a cell instead, where `FEWEST` values or more are
        visible and vary. Static facts, which are channels from `static_from` on, have one value a sample, which is all
        that they tell, and stay as they are. Nothing here makes the host wait for the device.
        """
        n_samples, values = visible.layout.n_samples, visible.values.double()
        values = values[:, : values.shape[1] - n_errors]
        cell = cells(visible.positions, visible.layout, n_channels)
        count = cell.new_zeros(n_samples * n_channels).index_add(0, cell, torch.ones_like(cell))
        # Sorted and added up cell by cell: index_add would add in any order on a GPU, and runs would not repeat.
        order = cell.argsort(stable=True)

        def total(x: Float64[Tensor, "t c"]) -> Float64[Tensor, "k c"]:
            return torch.segment_reduce(x[order], "sum", lengths=count, axis=0, unsafe=True, initial=0)

        return cls.of_cells(values, cell, count, total, gain, n_channels, static_from, own_spread)

    @classmethod
    def of_cells(
        cls,
        values: Float64[Tensor, "t c"],
        cell: Int64[Tensor, "t"],
        count: Int64[Tensor, "k"],
        total: Callable[[Float64[Tensor, "t c"]], Float64[Tensor, "k c"]],
        gain: Float64[Tensor, "rows columns"],
        n_channels: int,
        static_from: int | None,
        own_spread: bool,
    ) -> "Levels":
        """`of` for values in numbered cells, of which `count` says how many are in each, and `total` adds them up."""
        n_samples = count.shape[0] // n_channels
        is_centred = (count > 0).unsqueeze(1)
        if static_from is not None:
            channel = torch.arange(n_channels, device=cell.device).repeat(n_samples)
            is_centred = is_centred & (channel < static_from).unsqueeze(1)
        row = gain.expand(n_channels, values.shape[1]).repeat(n_samples, 1)
        divisor = count.clamp(min=1).unsqueeze(1)
        level = torch.where(is_centred, total(values) / divisor, 0.0)
        usual = torch.where(is_centred, row, 1.0)
        if not own_spread:
            return cls(level, usual, n_channels)
        deviation = (total((values - level[cell]).square()) / divisor).sqrt()
        has_spread = is_centred & (count >= FEWEST).unsqueeze(1) & (deviation * usual > FLATTEST)
        # Divided where it is not wanted as well, by 1, so that nothing is infinite there.
        own = 1 / torch.where(has_spread, deviation, 1.0)
        return cls(level, torch.where(has_spread, own, usual), n_channels, usual)

    def relative(self, tokens: Tokens) -> Tokens:
        """The tokens with their deviations from the level, enlarged."""
        values = self.relative_in(cells(tokens.positions, tokens.layout, self.n_channels), tokens.values)
        return replace(tokens, values=values.to(tokens.values.dtype))

    def relative_in(self, cell: Int64[Tensor, "t"], values: Float[Tensor, "t c"]) -> Float64[Tensor, "t c"]:
        """`relative` for values in numbered cells."""
        gain, n = self.gain[cell], self.level.shape[1]
        return _beside((values[:, :n].double() - self.level[cell]) * gain, values[:, n:], gain)

    def enlarged(self, tokens: Tokens) -> Tokens:
        """The tokens with their deviations enlarged, about a share of the level: for labels, to which it may matter.

        Of the spread a share stays as well where cells have gains by their own.
        """
        values = self.enlarged_in(cells(tokens.positions, tokens.layout, self.n_channels), tokens.values)
        return replace(tokens, values=values.to(tokens.values.dtype))

    def enlarged_in(self, cell: Int64[Tensor, "t"], values: Float[Tensor, "t c"]) -> Float64[Tensor, "t c"]:
        """`enlarged` for values in numbered cells."""
        level, gain = self.level[cell], self.gain
        if self.usual_gain is not None:
            gain = gain * (self.usual_gain / gain) ** SPREAD_SHARE
        gain, n = gain[cell], level.shape[1]
        return _beside((values[:, :n].double() - level) * gain + LEVEL_SHARE * level, values[:, n:], gain)

    def absolute(
        self, values: Float[Tensor, "t c"], positions: Float[Tensor, "t d"], layout: Layout
    ) -> Float64[Tensor, "t c"]:
        """Values that are relative to the level, brought back: the inverse of `relative`."""
        return self.absolute_in(cells(positions, layout, self.n_channels), values)

    def absolute_in(self, cell: Int64[Tensor, "t"], values: Float[Tensor, "t c"]) -> Float64[Tensor, "t c"]:
        """`absolute` for values in numbered cells."""
        return values.double() / self.gain[cell] + self.level[cell]

    def cpu(self) -> "Levels":
        """The same on the host."""
        usual = None if self.usual_gain is None else self.usual_gain.cpu()
        return Levels(self.level.cpu(), self.gain.cpu(), self.n_channels, usual)


def _beside(
    values: Float64[Tensor, "t c"], errors: Float[Tensor, "t e"], gain: Float64[Tensor, "t c"]
) -> Float64[Tensor, "t columns"]:
    """Values that were enlarged, and behind them their errors, if they have such."""
    return torch.cat([values, enlarged_errors(errors.double(), gain)], 1) if errors.shape[1] else values


def cells(positions: Float[Tensor, "t d"], layout: Layout, n_channels: int) -> Int64[Tensor, "t"]:
    """The cell of each token."""
    sample = layout.sample_of_token
    return sample if n_channels == 1 else sample * n_channels + positions[:, -1].long()

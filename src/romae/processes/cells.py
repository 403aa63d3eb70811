"""Visible tokens and queries by the channel that they belong to, and rows of them side by side.

Shapes: t visible tokens, q queries, k cells (a channel of a sample), b rows of a group, n tokens of the longest,
r rows and w queries that are answered at a time.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from romae.data.own_units import SPAN
from romae.tokens.errors import variances
from romae.tokens.layout import Layout
from romae.tokens.tokens import Tokens

NUMBERS_AT_ONCE = 2_000_000  # of matrices; half of it or twice as many are slower


@dataclass(frozen=True, eq=False)
class Group:
    """Some cells, or samples, side by side: their visible tokens, padded to the longest.

    Where a row is padded, times and values are 0, and `valid` is not.
    """

    rows: Int64[Tensor, "b"]
    valid: Bool[Tensor, "b n"]
    time: Float64[Tensor, "b n"]
    value: Float64[Tensor, "b n"]
    variance: Float64[Tensor, "b n"]
    cell: Int64[Tensor, "b n"]

    @property
    def n(self) -> Float64[Tensor, "b 1"]:
        """How many tokens each row has."""
        return self.valid.sum(1, keepdim=True).double()

    @property
    def lag(self) -> Float64[Tensor, "b n n"]:
        """How far apart tokens of a row are in time."""
        return (self.time.unsqueeze(2) - self.time.unsqueeze(1)).abs()

    @property
    def pairs(self) -> Bool[Tensor, "b n n"]:
        """Whether both tokens of a pair are there."""
        return self.valid.unsqueeze(2) & self.valid.unsqueeze(1)


@dataclass(frozen=True, eq=False)
class Cells:
    """Visible tokens and queries, and the cell, a channel of a sample, that each belongs to."""

    time: Float64[Tensor, "t"]
    value: Float64[Tensor, "t"]
    variance: Float64[Tensor, "t"]
    cell_of_token: Int64[Tensor, "t"]
    sample_of_token: Int64[Tensor, "t"]
    query_time: Float64[Tensor, "q"]
    cell_of_query: Int64[Tensor, "q"]
    sample_of_query: Int64[Tensor, "q"]
    count: Int64[Tensor, "k"]
    n_samples: int

    @classmethod
    def of(cls, visible: Tokens, positions: Tensor, layout: Layout, device: torch.device) -> "Cells":
        seen, asked = (x.to(device).double() for x in (visible.positions, positions))
        values = visible.values.to(device).double()
        samples = visible.layout.sample_of_token.to(device), layout.sample_of_token.to(device)
        # A sample and a coordinate make a cell; that of a channel is the same in what is visible and what is asked.
        coordinates = torch.cat([seen[:, 1], asked[:, 1]]).float().double()
        apart = 1 + 2 * float(coordinates.abs().max()) if len(coordinates) else 1.0
        names, cell = (torch.cat(samples) * apart + coordinates).unique(return_inverse=True)
        variance = variances(values[:, 1]) if values.shape[1] > 1 else torch.zeros_like(values[:, 0])
        return cls(
            seen[:, 0] / SPAN,
            values[:, 0],
            variance,
            cell[: len(seen)],
            samples[0],
            asked[:, 0] / SPAN,
            cell[len(seen) :],
            samples[1],
            torch.bincount(cell[: len(seen)], minlength=len(names)),
            visible.layout.n_samples,
        )

    def groups(
        self, row_of_token: Int64[Tensor, "t"], count: Int64[Tensor, "r"], n_matrices: int, rows: Tensor | None = None
    ) -> Iterator[Group]:
        """Rows of like lengths side by side, so many that their matrices fit; rows without tokens are left out."""
        order = row_of_token.argsort(stable=True)
        first = count.cumsum(0) - count
        rows = count.nonzero().squeeze(1) if rows is None else rows
        rows = rows[count[rows].argsort(stable=True)]
        lengths = count[rows].tolist()
        start = 0
        while start < len(lengths):
            stop = start + 1
            while stop < len(lengths) and (stop + 1 - start) * n_matrices * (lengths[stop] + 1) ** 2 < NUMBERS_AT_ONCE:
                stop += 1
            part, n = rows[start:stop], lengths[stop - 1]
            place = torch.arange(n, device=rows.device)
            valid = place < count[part].unsqueeze(1)
            tokens = order[(first[part].unsqueeze(1) + place).clamp(max=len(order) - 1)]
            time, value, variance = (torch.where(valid, x[tokens], 0.0) for x in (self.time, self.value, self.variance))
            yield Group(part, valid, time, value, variance, self.cell_of_token[tokens])
            start = stop

    def rounds(
        self, group: Group, row_of_query: Int64[Tensor, "q"], n_matrices: int
    ) -> Iterator[tuple[Int64[Tensor, "r"], Int64[Tensor, "r w"], Bool[Tensor, "r w"]]]:
        """Queries of the rows of a group, some of each at a time: the rows, their queries, and which are no padding."""
        n_rows = int(max(int(row_of_query.max()) if len(row_of_query) else 0, int(group.rows.max()))) + 1
        count = torch.bincount(row_of_query, minlength=n_rows)
        order, first = row_of_query.argsort(stable=True), count.cumsum(0) - count
        own = count[group.rows]
        width = max(16, NUMBERS_AT_ONCE // (n_matrices * group.valid.numel()))
        for start in range(0, int(own.max()), width):
            row = (own > start).nonzero().squeeze(1)
            place = start + torch.arange(min(width, int(own.max()) - start), device=own.device)
            inside = place < own[row].unsqueeze(1)
            index = (first[group.rows[row]].unsqueeze(1) + place).clamp(max=len(order) - 1)
            yield row, order[index], inside

    def ranges(self) -> tuple[Float64[Tensor, "k"], Float64[Tensor, "k"]]:
        """The lowest and the highest visible value of each cell, and 0 where there is none."""
        zeros = torch.zeros(len(self.count), dtype=torch.float64, device=self.value.device)
        low, high = (
            zeros.scatter_reduce(0, self.cell_of_token, self.value, how, include_self=False) for how in ("amin", "amax")
        )
        return low, high

    def repeated(self) -> Float64[Tensor, "k"]:
        """The share of the visible values of each cell that occur more than once."""
        if len(self.value) == 0:
            return torch.zeros(len(self.count), dtype=torch.float64, device=self.value.device)
        by_value = self.value.argsort()
        order = by_value[self.cell_of_token[by_value].argsort(stable=True)]
        cell, value = self.cell_of_token[order], self.value[order]
        is_next = (cell[1:] == cell[:-1]) & (value[1:] == value[:-1])
        again = torch.zeros_like(value)
        again[order[1:][is_next]] = 1.0
        again[order[:-1][is_next]] = 1.0
        return torch.bincount(self.cell_of_token, weights=again, minlength=len(self.count)) / self.count.clamp(min=1)

    def distances(self) -> Float64[Tensor, "q"]:
        """How far the nearest visible time of the same cell is from each query; 1 where there is none."""
        if len(self.time) == 0:
            return torch.ones_like(self.query_time)
        # Times and queries end to end on one axis, the cells of it apart from each other.
        far = 4.0 + 2 * float(torch.cat([self.time.abs(), self.query_time.abs()]).max())
        axis, order = (self.cell_of_token * far + self.time).sort()
        at = self.cell_of_query * far + self.query_time
        after = torch.searchsorted(axis, at.contiguous())
        found = torch.ones_like(at)
        for place in (after - 1, after):
            near = order[place.clamp(0, len(order) - 1)]
            is_own = self.cell_of_token[near] == self.cell_of_query
            gap = (self.time[near] - self.query_time).abs()
            found = torch.where(is_own, torch.where(place == after - 1, gap, torch.minimum(found, gap)), found)
        return found


def for_each(groups: Iterable[Group], work: Callable[[Group], None], device: torch.device) -> None:
    """Do the work of each group, on a CPU in as many threads as PyTorch has.

    Small matrices are factorised one after the other in one thread, however many there are for large ones.
    """
    n_threads = torch.get_num_threads() if device.type == "cpu" else 1
    if n_threads == 1:
        for group in groups:
            work(group)
        return
    # Whether tensors are for inference alone is a matter of each thread.
    is_inference = torch.is_inference_mode_enabled()

    def alike(group: Group) -> None:
        with torch.inference_mode(is_inference):
            work(group)

    with ThreadPoolExecutor(n_threads) as pool:
        for _ in pool.map(alike, groups):
            pass

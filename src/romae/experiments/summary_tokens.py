"""Summary statistics as tokens: what trees are given, in a form that a model can read, hide and predict.

Seven statistics of each variable of a sample, each brought to a normal distribution by its rank among the training
samples. A statistic becomes a token of a kind of its own at time 0, with kinds that follow the variables. In
pre-training it is hidden and predicted like any other token; a variable that was never measured has none.

Shapes: n measurements of all samples, b samples, v variables, s statistics, k features.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64

from romae.tokens.sample import Sample

STATISTICS = ("minimum", "maximum", "mean", "last", "first", "count", "recent mean")
RECENT = 12.0  # hours before the last measurement of a variable


@dataclass(frozen=True, eq=False)
class Numbers:
    """The measurements of many samples end to end: numbers of a variable at a time."""

    sample: Int64[np.ndarray, "n"]
    time: Float64[np.ndarray, "n"]
    variable: Int64[np.ndarray, "n"]
    value: Float64[np.ndarray, "n"]
    n_samples: int

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> "Numbers":
        """Of samples whose tokens are single numbers at (time, variable)."""
        positions = torch.cat([sample.positions for sample in samples]).double().numpy()
        return cls(
            sample=np.repeat(np.arange(len(samples)), [len(sample) for sample in samples]),
            time=positions[:, 0],
            variable=positions[:, 1].astype(np.int64),
            value=torch.cat([sample.values[:, 0] for sample in samples]).double().numpy(),
            n_samples=len(samples),
        )

    def among(self, variables: Sequence[int]) -> "Numbers":
        """The numbers of these variables, which are counted anew in this order."""
        place = np.full(max(int(self.variable.max(initial=0)), *variables) + 1, -1)
        place[list(variables)] = np.arange(len(variables))
        keep = place[self.variable] >= 0
        return Numbers(self.sample[keep], self.time[keep], place[self.variable[keep]], self.value[keep], self.n_samples)


def statistics(numbers: Numbers, n_variables: int, *, recent: float = RECENT) -> Float64[np.ndarray, "b v s"]:
    """The statistics of each variable of each sample; NaN where it was never measured, and its count 0.

    The recent mean is that of what was measured in the last `recent` units of time before the variable's last
    measurement.
    """
    cell = numbers.sample * n_variables + numbers.variable
    order = np.lexsort((numbers.time, cell))
    cell, time, value = cell[order], numbers.time[order], numbers.value[order]
    present, starts, counts = np.unique(cell, return_index=True, return_counts=True)
    ends = starts + counts - 1
    table = np.full((numbers.n_samples * n_variables, len(STATISTICS)), np.nan)
    table[:, STATISTICS.index("count")] = 0
    if len(present):
        is_recent = time >= np.repeat(time[ends], counts) - recent
        columns = (
            np.minimum.reduceat(value, starts),
            np.maximum.reduceat(value, starts),
            np.add.reduceat(value, starts) / counts,
            value[ends],
            value[starts],
            counts,
            np.add.reduceat(value * is_recent, starts) / np.add.reduceat(is_recent.astype(np.int64), starts),
        )
        table[present] = np.stack(columns, axis=1)
    return table.reshape(numbers.n_samples, n_variables, len(STATISTICS))


@dataclass(frozen=True, eq=False)
class NormalScores:
    """Columns brought to a normal distribution by ranks among those of the training samples, which are kept sorted.

    Equal values share the middle of their ranks; what is missing stays missing.
    """

    seen: tuple[Float64[np.ndarray, "_"], ...]

    @classmethod
    def of(cls, train: Float[np.ndarray, "b k"]) -> "NormalScores":
        return cls(tuple(np.sort(column[~np.isnan(column)]).astype(np.float64) for column in train.T))

    def __call__(self, table: Float[np.ndarray, "b k"]) -> Float64[np.ndarray, "b k"]:
        from scipy.special import ndtri

        scores = np.full(table.shape, np.nan)
        for i, (column, seen) in enumerate(zip(table.T, self.seen, strict=True)):
            there = ~np.isnan(column)
            low, high = (np.searchsorted(seen, column[there], side=side) for side in ("left", "right"))
            scores[there, i] = ndtri((low + high + 1) / 2 / (len(seen) + 1))
        return scores


def summary_names(variables: Sequence[str]) -> tuple[str, ...]:
    """The names of the statistics of these variables, in the order of the kinds."""
    return tuple(f"{variable} {statistic}" for variable in variables for statistic in STATISTICS)


def without_counts_of_nothing(table: Float64[np.ndarray, "b v s"]) -> Float64[np.ndarray, "b k"]:
    """The statistics in one row for each sample, without the count of 0 where a variable was never measured."""
    count = table[:, :, STATISTICS.index("count")]
    return np.where((count > 0)[:, :, None], table, np.nan).reshape(len(table), -1)


def with_tokens(samples: Sequence[Sample], table: Float64[np.ndarray, "b k"], first_kind: int) -> list[Sample]:
    """Samples with a token at time 0 for each number of their row, of the kinds from `first_kind` on."""
    return [_joined(sample, row, ~np.isnan(row), first_kind) for sample, row in zip(samples, table, strict=True)]


def _joined(sample: Sample, row: Float64[np.ndarray, "k"], has: Bool[np.ndarray, "k"], first_kind: int) -> Sample:
    kinds = np.flatnonzero(has)
    positions = torch.zeros(len(kinds), sample.positions.shape[1], dtype=sample.positions.dtype)
    positions[:, -1] = torch.from_numpy(kinds + first_kind).to(positions.dtype)
    values = torch.from_numpy(row[kinds, None]).to(sample.values.dtype)
    return replace(
        sample, values=torch.cat([sample.values, values]), positions=torch.cat([sample.positions, positions])
    )

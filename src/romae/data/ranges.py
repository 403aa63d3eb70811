"""Ranges: between which numbers the training data lay, so that a model can tell when it is asked about others.

Shapes: t tokens of all samples, b samples, m channels (1 where they are columns), c columns of values, d position axes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

FEW = 0.01  # share of samples that may be shorter or denser than what is kept: slips and fragments


@dataclass(frozen=True, kw_only=True)
class Ranges:
    """Between which numbers the data lay that a scaling was fitted on, in their own units.

    `lowest` and `highest` have one row for each index on the last position axis where that axis is the channel
    (`by_channel`), else a single one, with a number for each column of values; the row of a channel that the data did
    not have is empty. `earliest` and `latest` belong to position axes, with each sample's origin subtracted.
    `shortest_gap` and `shortest_span` are the mean gap between the times of a sample and the time that it covers, of
    all but the most extreme hundredth of the samples; None where no sample has two times. `horizon` is how far training
    has looked ahead, from the last time that it saw of a sample; None where it has not (`training/ahead.py`).
    """

    by_channel: bool = False
    lowest: tuple[tuple[float, ...], ...] = ()
    highest: tuple[tuple[float, ...], ...] = ()
    earliest: tuple[float, ...] = ()
    latest: tuple[float, ...] = ()
    shortest_gap: float | None = None
    shortest_span: float | None = None
    horizon: float | None = None

    def __post_init__(self) -> None:
        if [len(row) for row in self.lowest] != [len(row) for row in self.highest]:
            raise ValueError("the ranges of a scaling need a lowest and a highest value for each column")
        if len(self.earliest) != len(self.latest):
            raise ValueError("the ranges of a scaling need an earliest and a latest coordinate for each position axis")

    def joined(self, other: "Ranges") -> "Ranges":
        """The ranges of both data sets together."""
        return Ranges(
            by_channel=self.by_channel,
            lowest=_joined(self.lowest, other.lowest, min),
            highest=_joined(self.highest, other.highest, max),
            earliest=tuple(map(min, self.earliest, other.earliest)),
            latest=tuple(map(max, self.latest, other.latest)),
            shortest_gap=_lesser(self.shortest_gap, other.shortest_gap),
            shortest_span=_lesser(self.shortest_span, other.shortest_span),
            horizon=max((x for x in (self.horizon, other.horizon) if x is not None), default=None),
        )


def ranges_of(
    values: Float64[np.ndarray, "t c"],
    positions: Float64[np.ndarray, "t d"],
    starts: Int64[np.ndarray, "b"],
    origins: Float64[np.ndarray, "b d"],
    channel: Int64[np.ndarray, "t"] | None,
    n_channels: int,
) -> Ranges:
    """The ranges of samples that lie end to end; `starts` is the first token of each, `origins` is subtracted from it.

    Without the `channel` of each token, all values of a column share one range.
    """
    sample = sample_of_token(starts, len(values))
    own = positions - origins[sample]
    groups = [values] if channel is None else [values[channel == i] for i in range(n_channels)]
    gaps, spans = gaps_and_spans(positions[:, 0], sample, len(starts))
    has_gap = gaps > 0
    return Ranges(
        by_channel=channel is not None,
        lowest=tuple(tuple(group.min(0).tolist()) if len(group) else () for group in groups),
        highest=tuple(tuple(group.max(0).tolist()) if len(group) else () for group in groups),
        earliest=tuple(own.min(0).tolist()),
        latest=tuple(own.max(0).tolist()),
        shortest_gap=float(np.quantile(gaps[has_gap], FEW)) if has_gap.any() else None,
        shortest_span=float(np.quantile(spans[has_gap], FEW)) if has_gap.any() else None,
    )


def sample_of_token(starts: Int64[np.ndarray, "b"], n_tokens: int) -> Int64[np.ndarray, "t"]:
    """The number of the sample that each token belongs to."""
    sample = np.zeros(n_tokens, dtype=np.int64)
    sample[starts[1:]] = 1
    return np.cumsum(sample)


def gaps_and_spans(
    times: Float64[np.ndarray, "t"], sample: Int64[np.ndarray, "t"], n_samples: int
) -> tuple[Float64[np.ndarray, "b"], Float64[np.ndarray, "b"]]:
    """The mean gap between the distinct times of each sample, 0 where it has one time alone, and its span."""
    steps, is_within = np.diff(times), np.diff(sample) == 0
    if (steps[is_within] < 0).any() or (np.diff(sample) < 0).any():  # most are in order, and to sort them takes longer
        order = np.lexsort((times, sample))
        times, sample = times[order], sample[order]
        steps, is_within = np.diff(times), np.diff(sample) == 0
    counts_as_gap = is_within & (steps > 0)
    sample_of_step = sample[1:][counts_as_gap]
    spans = np.bincount(sample_of_step, weights=steps[counts_as_gap], minlength=n_samples)
    n_gaps = np.bincount(sample_of_step, minlength=n_samples)
    spans = spans.astype(np.float64)  # of no steps, numpy counts in integers
    return spans / np.maximum(n_gaps, 1), spans


def _joined(
    rows: Sequence[tuple[float, ...]], others: Sequence[tuple[float, ...]], extreme: Callable[[float, float], float]
) -> tuple[tuple[float, ...], ...]:
    """Row by row; one that is empty, or that the other data do not have, is that of the other."""
    longer = max(len(rows), len(others))
    padded = ([*part, *[()] * (longer - len(part))] for part in (rows, others))
    return tuple(tuple(map(extreme, a, b)) if a and b else a or b for a, b in zip(*padded, strict=True))


def _lesser(a: float | None, b: float | None) -> float | None:
    return min((x for x in (a, b) if x is not None), default=None)

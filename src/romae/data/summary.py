"""Summary features: what simple statistics say about each sample, one row per sample.

Shapes: b samples, t tokens, s cells (a kind of token within a sample), c values of a token, k features, f static facts.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float64, Int64

from romae.data.schema import Fact, Schema
from romae.data.sources import SampleSource, as_source, schema_of
from romae.tokens.tokens import PackedSamples

PER_VALUE = ("mean", "std", "min", "q25", "median", "q75", "max", "first", "last", "change", "slope")
PER_KIND = ("count", "since_last")
PER_SAMPLE = ("n_tokens", "duration")
CHUNK = 4_096  # samples read at once, so that a store on disk stays there


class SummaryFeatures(NamedTuple):
    """Features with their names.

    Attributes
    ----------
    values : Float64 array [b, k]
        One row per sample; NaN for what a sample never measured.
    names : tuple of str
        One per column, such as "HR mean" or "g max".
    """

    values: Float64[np.ndarray, "b k"]
    names: tuple[str, ...]


def summary_features(samples: SampleSource, *, n_kinds: int | None = None) -> SummaryFeatures:
    """Statistics of each channel of each sample: the features that trees and linear models are usually given.

    Parameters
    ----------
    samples : sequence of Sample
        The samples, whose first position is the time. What a sample hides is left out.
    n_kinds : int, optional
        The number of channels where the last position is the channel; by default what the names of the data say, and
        one channel where they say nothing.

    Returns
    -------
    SummaryFeatures
        The features, in this order: for each channel and each value its mean, standard deviation, minimum, quartiles,
        maximum, first and last value, mean absolute change from one time to the next, and slope over time; for each
        channel the count, and the time from its last value to the end of the sample; then the number of tokens
        and the duration. Static facts follow as they are: numbers, NaN where they are missing, and 1 or 0 for each
        category.

    Raises
    ------
    ValueError
        If a channel lies outside the range.

    Examples
    --------
    >>> import romae
    >>> samples = romae.from_arrays([[[1.0], [3.0], [2.0]]])
    >>> table = romae.summary_features(samples)
    >>> dict(zip(table.names, table.values[0].tolist()))["max"]
    3.0
    """
    source = as_source(samples, with_targets=False)
    schema = schema_of(samples)
    if n_kinds is None:
        n_kinds = None if schema is None else schema.n_channels
    facts = () if schema is None else schema.static
    n_kinds = None if n_kinds is None else n_kinds - len(facts)
    parts = []
    for start in range(0, len(source), CHUNK):
        packed = source.packed(np.arange(start, min(start + CHUNK, len(source))))
        measured, of_facts = _split(packed, facts, n_kinds)
        parts.append(np.concatenate([_of_packed(measured, n_kinds), of_facts], axis=1))
    n_values = source[0].values.shape[1]
    names = _names(schema, n_values, n_kinds)
    return SummaryFeatures(np.concatenate(parts), (*names, *(fact.name for fact in facts)))


def _split(
    packed: PackedSamples, facts: Sequence[Fact], n_channels: int | None
) -> tuple[PackedSamples, Float64[np.ndarray, "b f"]]:
    """The measurements of samples, and their static facts, one column each."""
    table = np.tile([np.nan if fact.category is None else 0.0 for fact in facts], (len(packed), 1))
    if not facts or n_channels is None:
        return packed, table.astype(np.float64)
    is_fact = packed.positions[:, -1] > n_channels - 0.5
    kind = packed.positions[is_fact, -1].long().numpy() - n_channels
    table[packed.layout.sample_of_token[is_fact].numpy(), kind] = packed.values[is_fact, 0].double().numpy()
    own = torch.zeros_like(is_fact) if packed.hidden is None else packed.hidden
    return replace(packed, hidden=own | is_fact), table


def _of_packed(packed: PackedSamples, n_kinds: int | None) -> Float64[np.ndarray, "b k"]:
    """Features of packed samples: tokens are sorted once by cell and time, once by cell and value."""
    values, positions = packed.values.double().numpy(), packed.positions.double().numpy()
    sample = np.repeat(np.arange(len(packed)), packed.layout.lengths.numpy())
    if packed.hidden is not None:
        visible = ~packed.hidden.numpy()
        values, positions, sample = values[visible], positions[visible], sample[visible]
    time, kind = positions[:, 0], np.zeros(len(values), dtype=np.int64)
    if n_kinds is not None:
        kind = positions[:, -1].astype(np.int64)
        if ((kind < 0) | (kind >= n_kinds) | (kind != positions[:, -1])).any():
            raise ValueError(f"channels must be whole numbers from 0 to {n_kinds - 1}, and one of a token is not")
    n_cells = len(packed) * (n_kinds or 1)
    cell = sample * (n_kinds or 1) + kind
    order = np.lexsort((time, cell))
    cell, time, values = cell[order], time[order], values[order]
    present, starts, counts = np.unique(cell, return_index=True, return_counts=True)

    per_value = np.full((n_cells, values.shape[1], len(PER_VALUE)), np.nan)
    per_value[present] = np.stack([_statistics(time, column, cell, starts, counts) for column in values.T], axis=1)
    # The end of a sample is its last visible time, whatever the channel.
    end, begin = np.full(len(packed), np.nan), np.full(len(packed), np.nan)
    np.fmax.at(end, cell // (n_kinds or 1), time)
    np.fmin.at(begin, cell // (n_kinds or 1), time)
    per_kind = np.full((n_cells, len(PER_KIND)), np.nan)
    per_kind[:, 0] = 0
    per_kind[present] = np.stack([counts, end[present // (n_kinds or 1)] - time[starts + counts - 1]], axis=1)
    n_tokens = np.bincount(cell // (n_kinds or 1), minlength=len(packed))
    rows = len(packed), -1
    return np.concatenate(
        [per_value.reshape(rows), per_kind.reshape(rows), n_tokens[:, None], (end - begin)[:, None]], axis=1
    )


def _statistics(
    time: Float64[np.ndarray, "t"],
    column: Float64[np.ndarray, "t"],
    cell: Int64[np.ndarray, "t"],
    starts: Int64[np.ndarray, "s"],
    counts: Int64[np.ndarray, "s"],
) -> Float64[np.ndarray, "s k"]:
    """The statistics PER_VALUE of one column in every cell; tokens are in order of cell and time."""
    ends = starts + counts - 1
    mean = np.add.reduceat(column, starts) / counts
    centred = column - np.repeat(mean, counts)
    deviation = np.sqrt(np.add.reduceat(centred**2, starts) / counts)
    by_value = column[np.lexsort((column, cell))]

    def quantile(share: float) -> Float64[np.ndarray, "s"]:
        place = starts + share * (counts - 1)
        low = np.floor(place).astype(np.int64)
        high = np.minimum(low + 1, ends)
        return by_value[low] + (place - low) * (by_value[high] - by_value[low])

    is_inner = np.diff(cell) == 0  # two neighbours of one cell
    change = np.zeros(len(column))
    change[1:] = np.abs(np.diff(column)) * is_inner
    mean_change = np.add.reduceat(change, starts) / np.maximum(counts - 1, 1)
    late = time - np.repeat(np.add.reduceat(time, starts) / counts, counts)
    spread = np.add.reduceat(late**2, starts)
    slope = np.add.reduceat(late * centred, starts) / np.where(spread > 0, spread, 1.0)
    columns = (
        mean,
        deviation,
        by_value[starts],
        quantile(0.25),
        quantile(0.5),
        quantile(0.75),
        by_value[ends],
        column[starts],
        column[ends],
        mean_change,
        slope,
    )
    return np.stack(columns, axis=1)


def _names(schema: Schema | None, n_values: int, n_kinds: int | None) -> tuple[str, ...]:
    kinds = [""] if n_kinds is None else [f"channel {i} " for i in range(n_kinds)]
    values = [""] if n_values == 1 else [f"value {i} " for i in range(n_values)]
    if schema is not None and n_kinds is not None and schema.channels and len(schema.channels) == n_kinds:
        kinds = [f"{name} " for name in schema.channels]
    columns = () if schema is None else (*schema.values, *schema.error_names)
    if n_values > 1 and len(columns) == n_values:
        values = [f"{name} " for name in columns]
    per_value = [f"{kind}{value}{statistic}" for kind in kinds for value in values for statistic in PER_VALUE]
    per_kind = [f"{kind}{statistic}" for kind in kinds for statistic in PER_KIND]
    return (*per_value, *per_kind, *PER_SAMPLE)

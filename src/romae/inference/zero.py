"""Answers of a model that needs no training: any series, in context, in units of its own.

Shapes: t tokens, b samples, q queries of a sample, c channels.
"""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from romae.data.columns import to_numpy
from romae.data.dates import positions_as_numbers
from romae.data.queries import channel_numbers
from romae.data.schema import Schema
from romae.data.sources import InMemory, SampleSource, as_source
from romae.inference.distributions import Distribution
from romae.inference.predictions import TOKENS_PER_BATCH, interpolate
from romae.inference.relative import OwnUnits
from romae.model.tasks import MaskedReconstruction
from romae.tokens.layout import Layout
from romae.tokens.tokens import PackedSamples, channel_index


def answers(
    task: MaskedReconstruction,
    samples: SampleSource,
    positions: Any,
    *,
    channels: Any = None,
    tokens_per_batch: int = TOKENS_PER_BATCH,
) -> list[Distribution]:
    """The distributions of values at any positions, by a model trained on random functions alone.

    Parameters
    ----------
    task : MaskedReconstruction
        Such a model.
    samples : sequence of Sample
        Series with one time axis, each for itself: what a sample hides is not shown.
    positions : list of arrays [q] or [q, 2]
        For each sample times, of which every channel is asked, or times and numbers of channels.
    channels : sequence of str or int, optional
        Which channels to ask at times, by name or number; all by default.
    tokens_per_batch : int, default 32768
        The most tokens at once; it does not change the results.

    Returns
    -------
    list of Distribution
        One for each sample, of the shape [q, c] for times, with a column for each channel, and [q, 1] for times and
        channels. Where a series has no visible value of a channel, nothing is known of its units and all is NaN.

    Raises
    ------
    ValueError
        If samples have further position axes, or positions do not fit them.
    TypeError
        If positions are no numbers.
    """
    source = as_source(samples, with_targets=False)
    packed, n_channels, names = scalars(source.packed(np.arange(len(source))), source.schema)
    asked = list(range(n_channels)) if channels is None else channel_numbers(channels, names)
    queries = _queries(positions, len(source), source.schema or Schema(), asked, n_channels)
    own = OwnUnits.of(packed, n_channels)
    counts = np.array([len(q) for q, _ in queries])
    sample = torch.arange(len(source)).repeat_interleave(torch.from_numpy(counts))
    whole = torch.from_numpy(np.concatenate([q for q, _ in queries]))
    cell = sample * n_channels + whole[:, 1].long()
    _warn_of_unseen(own, cell, len(source))
    places = torch.stack([own.times(whole[:, 0], sample), own.coordinate[cell]], 1).numpy()
    ends = np.cumsum(counts)[:-1]
    inner = InMemory.of_packed(own.apply(packed))
    raw = interpolate(task, inner, np.split(places, ends), returns="distribution", tokens_per_batch=tokens_per_batch)
    units = cell.split(counts.tolist())
    return [
        Distribution(part.likelihood, part.raw[:, 0], own.units(cells)).reshape(shape)
        for part, cells, (_, shape) in zip(raw, units, queries, strict=True)
    ]


def scalars(packed: PackedSamples, schema: Schema | None) -> tuple[PackedSamples, int, Sequence[Any]]:
    """Samples with a token for each number, at its time and its channel; how many channels there are, and their names.

    A time step with several values becomes as many tokens.
    """
    n_axes, n_columns = packed.positions.shape[1], packed.values.shape[1]
    has_channels = schema is not None and schema.channel is not None
    if n_axes == 2 and has_channels and n_columns == 1:
        assert schema is not None
        names = schema.channels
        n_channels = len(names) if names else int(packed.positions[:, 1].max()) + 1
        channel_index(packed.positions, n_channels)
        return packed, n_channels, names or range(n_channels)
    if n_axes != 1:
        raise ValueError(
            f"the model that needs no training answers for series with one time axis, and these samples have {n_axes} "
            f"position axes and {n_columns} values; fit a model to them: romae.RoMAEInterpolator().fit(…)"
        )
    has_names = schema is not None and len(schema.values) == n_columns
    channel = torch.arange(n_columns).repeat(len(packed.values)).to(packed.positions.dtype)
    spread = replace(
        packed,
        values=packed.values.reshape(-1, 1),
        positions=torch.stack([packed.positions[:, 0].repeat_interleave(n_columns), channel], 1),
        layout=Layout.of(packed.layout.lengths * n_columns),
        hidden=None if packed.hidden is None else packed.hidden.repeat_interleave(n_columns),
        target=None,
    )
    return spread, n_columns, schema.values if schema is not None and has_names else range(n_columns)


def _queries(
    positions: Any, n: int, clock: Schema, asked: Sequence[int], n_channels: int
) -> list[tuple[Float64[np.ndarray, "q 2"], tuple[int, int]]]:
    """Times and channels of each sample, and the shape of its answers."""
    if not hasattr(positions, "__len__") or isinstance(positions, str | bytes):
        raise TypeError(f"expected a list with one array of positions per sample, not {type(positions).__name__}")
    if len(positions) != n:
        raise ValueError(
            f"positions for {len(positions)} samples, but there are {n}; give one array for each, such as "
            "[positions] * len(samples)"
        )
    queries = []
    for i, given in enumerate(positions):
        where = f"the positions for sample {i}"
        x = positions_as_numbers(
            to_numpy(given), clock.time_unit, clock.time_zone, where, are_durations=clock.durations
        )
        if x.dtype.kind not in "fiu" and x.size:
            raise TypeError(f"{where} must be numbers, not {x.dtype}")
        x = x.astype(np.float64)
        if x.ndim == 1 or (x.ndim == 2 and x.shape[1] == 1):
            times = np.repeat(x.ravel(), len(asked))
            pairs, shape = np.stack([times, np.tile(asked, x.size)], 1), (x.size, len(asked))
        elif x.ndim == 2 and x.shape[1] == 2:
            pairs, shape = x, (len(x), 1)
        else:
            raise ValueError(f"{where} must be times [q], or times and channels [q, 2], got shape {list(x.shape)}")
        if not np.isfinite(pairs).all():
            raise ValueError(f"{where} must be finite, and {pairs[~np.isfinite(pairs).all(1)][0].tolist()} is not")
        try:
            channel_index(torch.from_numpy(pairs), n_channels)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
        queries.append((pairs, shape))
    return queries


def _warn_of_unseen(own: OwnUnits, cell: Int64[Tensor, "q"], n: int) -> None:
    unseen = cell[own.level[cell].isnan()]
    if len(unseen):
        n_unseen = len((unseen // own.n_channels).unique())
        warnings.warn(
            f"in {n_unseen} of {n} series a channel that is asked for has no visible value, so that its units are not "
            "known there; these answers are NaN",
            stacklevel=3,
        )

"""Answers of a model that needs no training: any series, in context, in units of its own.

A long series is answered for in windows of neighbours that overlap by half. A query between the middles of two windows
is asked of both, and what they say is blended by how near it is to either, so that answers have no seams.

Shapes: t tokens, b samples, q queries, w windows, c channels, p raw parameters.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from romae.checkpoints.native import load
from romae.data.columns import to_numpy
from romae.data.dates import positions_as_numbers
from romae.data.own_units import METHOD, SPAN, OwnUnits
from romae.data.queries import channel_numbers
from romae.data.scalars import Scalars
from romae.data.schema import Schema
from romae.data.sources import InMemory, SampleSource, as_source
from romae.data.windows import WINDOW, cut
from romae.inference.blending import blended_mixtures
from romae.inference.distributions import Distribution, Joint, Units
from romae.inference.predictions import TOKENS_PER_BATCH, Precision, interpolate
from romae.model.conformal import Conformal
from romae.model.likelihoods import Mixture
from romae.model.tasks import MaskedReconstruction, Task
from romae.tokens.layout import Layout
from romae.tokens.tokens import PackedSamples, channel_index

ZERO = "romae/zero"
FARTHEST = 1.5  # spans of what is visible: the prior's earliest cut shows 0.4 of a series, and asks for 0.6
IN_WINDOWS = "a series that shows nothing, is asked nothing or is answered for in windows has no curves drawn as wholes"


@lru_cache(maxsize=1)
def zero_model() -> MaskedReconstruction:
    """The bundled model that needs no training, loaded once."""
    task = load(ZERO)
    assert isinstance(task, MaskedReconstruction)
    return task


def is_in_own_units(task: Any) -> bool:
    """Whether a task takes each series in units of its own, as a model that needs no training does."""
    scaling = task.scaling if isinstance(task, Task) else None
    return scaling is not None and scaling.own_units


def answers(
    task: MaskedReconstruction,
    samples: SampleSource,
    positions: Any,
    *,
    channels: Any = None,
    calibrated: bool = True,
    tokens_per_batch: int = TOKENS_PER_BATCH,
    precision: Precision = "auto",
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
    calibrated : bool, default True
        Whether a calibration of the task is applied, where it has one.
    tokens_per_batch : int, default 32768
        The most tokens at once; it does not change the results.
    precision : {"auto", "float32", "tf32", "bf16"}, default "auto"
        What products are computed in, as in `interpolate`.

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
    if not is_in_own_units(task):
        raise ValueError("this model does not take series in units of their own; ask it with romae.interpolate")
    source = Scalars.of(as_source(samples, with_targets=False), with_errors=bool(task.config.errors))
    assert source.schema is not None
    packed, names = source.packed(np.arange(len(source))).visible(), source.schema.channels
    asked = list(range(len(names))) if channels is None else channel_numbers(channels, names)
    queries = _queries(positions, len(source), source.schema, asked, len(names))
    counts = np.array([len(q) for q, _ in queries])
    whole = torch.from_numpy(np.concatenate([q for q, _ in queries]))
    sample = torch.arange(len(source)).repeat_interleave(torch.from_numpy(counts))
    _warn_of_unseen(packed, whole, sample, len(names))
    windows = _Windows.of(packed, whole.numpy(), counts, len(names))
    # Times are numbers by now, whatever they were.
    places = windows.places(len(names))
    _warn_of_far(places)
    inner = InMemory.of_packed(windows.packed, replace(source.schema, time_unit=None, time_zone=None, durations=False))
    raw = interpolate(
        task,
        inner,
        places,
        returns="distribution",
        calibrated=calibrated,
        tokens_per_batch=tokens_per_batch,
        precision=precision,
    ) if len(inner) else []  # fmt: skip
    blended = windows.blended(raw, task, len(whole), len(names), task.calibration if calibrated else None)
    ends = np.cumsum(counts)
    parts = [blended[end - n : end] for end, n in zip(ends, counts, strict=True)]
    curves = windows.curves(raw, parts)
    return [part.reshape(shape).drawn_by(curve) for part, (_, shape), curve in zip(parts, queries, curves, strict=True)]


@dataclass(frozen=True, eq=False)
class _InData:
    """Curves that are drawn as a model sees them, in the data's own units."""

    curves: Joint
    units: Units

    @property
    def n_columns(self) -> int:
        return 1

    def __call__(
        self, rows: Int64[np.ndarray, "r"], levels: Float64[np.ndarray, "n r c"]
    ) -> Float64[np.ndarray, "n r c"]:
        scale, centre = self.units.scale[rows][:, None], self.units.centre[rows][:, None]
        units = Units(np.ones(scale.shape), np.zeros(scale.shape), scale, centre, METHOD)
        return units.to_data(self.curves(rows, levels))


@dataclass(frozen=True, eq=False)
class _Windows:
    """Series cut into windows, the queries that each is asked, and by how much what it says of them counts.

    `query` and `share` have an entry for each question to a window, window after window, so many as `counts` says.
    """

    packed: PackedSamples
    positions: Float64[np.ndarray, "a 2"]
    query: Int64[np.ndarray, "a"]
    share: Float64[np.ndarray, "a"]
    counts: Int64[np.ndarray, "w"]
    sample: Int64[np.ndarray, "w"]

    @classmethod
    def of(
        cls, packed: PackedSamples, queries: Float64[np.ndarray, "q 2"], counts: Int64[np.ndarray, "b"], n_channels: int
    ) -> "_Windows":
        """The windows of samples that hide nothing; those that show or are asked nothing have none."""
        offsets, ends = packed.layout.host_offsets.tolist(), np.cumsum(counts)
        at = packed.positions.double().numpy()
        tokens: list[np.ndarray] = []
        asked: list[np.ndarray] = []
        shares: list[np.ndarray] = []
        of_sample: list[int] = []
        for i, (start, end) in enumerate(zip(offsets[:-1], offsets[1:], strict=True)):
            own = np.arange(ends[i] - counts[i], ends[i])
            if end == start or len(own) == 0:
                continue
            if end - start <= WINDOW:
                tokens.append(np.arange(start, end))
                asked.append(own)
                shares.append(np.ones(len(own)))
                of_sample.append(i)
                continue
            parts, place = cut(at[start:end], queries[own, 0], n_channels)
            for k, part in enumerate(parts):
                share = np.clip(1 - np.abs(place - k), 0.0, 1.0)
                if share.any():
                    tokens.append(start + part)
                    asked.append(own[share > 0])
                    shares.append(share[share > 0])
                    of_sample.append(i)
        rows = torch.from_numpy(np.concatenate([*tokens, np.zeros(0, dtype=np.int64)]))
        query = np.concatenate([*asked, np.zeros(0, dtype=np.int64)])
        return cls(
            PackedSamples(
                packed.values[rows],
                packed.positions[rows],
                Layout.of([len(x) for x in tokens]),
                ids=tuple(range(len(tokens))),
            ),
            queries[query],
            query,
            np.concatenate([*shares, np.zeros(0)]),
            np.array([len(x) for x in asked], dtype=np.int64),
            np.array(of_sample, dtype=np.int64),
        )

    def curves(self, raw: Sequence[Distribution], parts: Sequence[Distribution]) -> "list[Joint | str]":
        """What draws whole curves of each sample: that of its window, if it has one alone."""
        found: list[Joint | str] = [IN_WINDOWS] * len(parts)
        n_windows = np.bincount(self.sample, minlength=len(parts))
        for window, i in enumerate(self.sample.tolist()):
            if n_windows[i] == 1:
                joint = raw[window].joint
                found[i] = joint if isinstance(joint, str) else _InData(joint, parts[i].units)
        return found

    def _own(self, n_channels: int) -> tuple[OwnUnits, Int64[Tensor, "a"]]:
        window = torch.arange(len(self.counts)).repeat_interleave(torch.from_numpy(self.counts))
        return OwnUnits.of(self.packed, n_channels), window

    def places(self, n_channels: int) -> list[Float64[np.ndarray, "_ 2"]]:
        """The queries of each window as the model sees them."""
        if len(self.counts) == 0:
            return []
        own, window = self._own(n_channels)
        places = own.places(torch.from_numpy(self.positions), window).numpy()
        return np.split(places, np.cumsum(self.counts)[:-1])

    def blended(
        self,
        raw: Sequence[Distribution],
        task: MaskedReconstruction,
        n: int,
        n_channels: int,
        calibration: Conformal | None,
    ) -> Distribution:
        """What the windows say of n queries, in the data's own units; NaN where none is asked."""
        likelihood = raw[0].likelihood if raw else task.likelihood
        assert likelihood is not None
        scale, centre, line = np.full(n, np.nan), np.full(n, np.nan), np.zeros(n)
        parameters, group = np.zeros((n, likelihood.n_parameters)), np.zeros(n)
        if len(self.counts):
            own, window = self._own(n_channels)
            cell = own.cells(torch.from_numpy(self.positions), window)
            spread, level = own.spread[cell].numpy(), own.level[cell].numpy()
            scale[self.query], centre[self.query] = 0.0, 0.0
            np.add.at(scale, self.query, self.share * spread)
            np.add.at(centre, self.query, self.share * level)
            np.add.at(line, self.query, self.share * np.concatenate([x.units.level[:, 0] for x in raw]))
            nearest = self.share >= 0.5
            group[self.query[nearest]] = np.concatenate([x.places[:, 0] for x in raw])[nearest]
            of_windows = np.concatenate([x.raw[:, 0] for x in raw])
            if task.gate is None or bool((self.share == 1).all()):
                np.add.at(parameters, self.query, self.share[:, None] * of_windows)
            else:
                assert isinstance(task.likelihood, Mixture)
                one, zero = np.ones(1), np.zeros(1)
                before = Units(one, zero, spread, level, METHOD)
                after = Units(one, zero, scale[self.query], centre[self.query], METHOD)
                sides = (window.numpy() - np.searchsorted(self.sample, self.sample)[window.numpy()]) % 2
                likelihood, parameters = blended_mixtures(
                    of_windows, task.likelihood.n, self.query, self.share, sides, n, (before, after)
                )
        units = Units(np.ones(n), line, scale, centre, METHOD)
        return Distribution(likelihood, parameters, units, calibration=calibration, places=group)


def central_windows(
    packed: PackedSamples, n_channels: int
) -> tuple[PackedSamples, Int64[np.ndarray, "a"], Int64[np.ndarray, "a"]]:
    """Series in windows that say something of each token: of a long one that in whose middle it lies.

    Parameters
    ----------
    packed : PackedSamples
        With a token for each number; what is hidden is a part of them.
    n_channels : int
        How many channels there are.

    Returns
    -------
    tuple of PackedSamples and two Int64 arrays [a]
        The windows, one after the other; the tokens of all samples, each once; and where each lies among those of all
        windows.
    """
    offsets, at = packed.layout.host_offsets.tolist(), packed.positions.double().numpy()
    parts: list[np.ndarray] = []
    tokens: list[np.ndarray] = []
    places: list[np.ndarray] = []
    n_before = 0
    for start, end in zip(offsets[:-1], offsets[1:], strict=True):
        pieces, place = [np.arange(end - start)], np.zeros(end - start)
        if end - start > WINDOW:
            pieces, place = cut(at[start:end], at[start:end, 0], n_channels)
        nearest = np.rint(place).astype(np.int64)
        for k, part in enumerate(pieces):
            central = np.flatnonzero(nearest[part] == k)
            tokens.append(start + part[central])
            places.append(n_before + central)
            parts.append(start + part)
            n_before += len(part)
    rows = torch.from_numpy(np.concatenate(parts))
    windows = PackedSamples(
        packed.values[rows],
        packed.positions[rows],
        Layout.of([len(part) for part in parts]),
        ids=tuple(range(len(parts))),
        hidden=None if packed.hidden is None else packed.hidden[rows],
    )
    return windows, np.concatenate(tokens), np.concatenate(places)


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


def _warn_of_far(places: Sequence[Float64[np.ndarray, "_ 2"]]) -> None:
    """One warning for times that lie further before or after what is visible than training has looked."""
    times = np.concatenate([*(place[:, 0] for place in places), np.zeros(0)])
    far = np.maximum(times - SPAN, -times) / SPAN
    if (n_far := int((far > FARTHEST).sum())) > 0:
        warnings.warn(
            f"{n_far} of {len(times)} times lie further from what is visible than the model that needs no training has "
            f"learned to look: up to {far.max():.3g} times as far as the visible part is long, and {FARTHEST:g} in "
            "training; do not rely on answers there",
            stacklevel=4,
        )


def _warn_of_unseen(
    packed: PackedSamples, queries: Float64[Tensor, "q 2"], sample: Int64[Tensor, "q"], n_channels: int
) -> None:
    """One warning for channels that are asked for where nothing is visible of them."""
    cell = packed.layout.sample_of_token * n_channels + packed.positions[:, 1].long()
    is_seen = torch.bincount(cell, minlength=len(packed) * n_channels) > 0
    unseen = ~is_seen[sample * n_channels + queries[:, 1].long()]
    if bool(unseen.any()):
        warnings.warn(
            f"in {len(sample[unseen].unique())} of {len(packed)} series a channel that is asked for has no visible "
            "value, so that its units are not known there; these answers are NaN",
            stacklevel=3,
        )

"""Ladders that suit a data set: from its gaps to its spans."""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from romae.data.packed_numbers import PackedNumbers
from romae.data.phase import PHASE_AXIS, Phase
from romae.data.scaling import Scaling, scaled
from romae.data.schema import Schema
from romae.data.sources import SampleSource
from romae.tokens.ladder import Ladder


def fit_ladders(
    samples: SampleSource, scaling: Scaling | None = None, *, per: Literal["sample", "channel"] | None = None
) -> tuple[Ladder, ...]:
    """Fit the wavelengths of the rotary embedding to the gaps and spans of data.

    The wavelengths of an axis grow from 2π median gaps between neighbouring coordinates to 2π times the longest span of
    a sample, so that neighbours and ends can both be told apart.

    Parameters
    ----------
    samples : sequence of Sample
        The training data.
    scaling : Scaling, optional
        The scaling that the model is trained with; ladders are for positions as it leaves them.
    per : {"sample", "channel"} or None, default None
        Between which coordinates there are gaps: those of a sample, or those of each of its channels (the index on the
        last position axis). By default "channel" where the schema has such an axis. Where several filters or sensors
        are read one after the other, gaps between channels are those of the readout and not of what is observed. The
        axis of channels itself has its gaps within samples.

    Returns
    -------
    tuple of Ladder
        One per position axis, for `ModelConfig(ladders=…)`. An axis on which no sample has two coordinates keeps the
        default, and a phase has its harmonics: 1, 1/2, 1/3, … of a cycle.

    Raises
    ------
    ValueError
        If there are no samples, or `per` is something else or asks for channels that samples do not have.
    TypeError
        If the scaling is none.

    Examples
    --------
    >>> import numpy as np
    >>> import romae
    >>> samples = romae.from_arrays(np.zeros((2, 11, 1)), times=np.arange(11) * 0.5)
    >>> ladder = romae.fit_ladders(samples)[0]
    >>> ladder.scale, round(ladder.longest / ladder.shortest)
    (0.5, 10)
    """
    source = scaled(samples, scaling)
    packed, schema = PackedNumbers.of(source), source.schema or Schema()
    if per is None:
        per = "sample" if schema.channel is None else "channel"
    if per not in ("sample", "channel"):
        raise ValueError(f"per must be 'sample' or 'channel', not {per!r}")
    n_dims, sample = packed.positions.shape[1], packed.sample()
    if per == "channel" and (schema.channel is None or n_dims < 2):
        raise ValueError("these samples have no axis of channels; use per='sample'")
    # The scaling may have moved the axis of channels: equal coordinates are one channel wherever they lie.
    by_channel = sample
    if per == "channel":
        names, channel = np.unique(packed.positions[:, -1], return_inverse=True)
        by_channel = sample * len(names) + channel
    ladders = []
    for axis in range(n_dims):
        if axis == PHASE_AXIS and schema.phase is not None:
            ladders.append(schema.phase.ladder)
            continue
        is_channel = per == "channel" and axis == n_dims - 1
        gap = packed.median_gap(axis, sample if is_channel else by_channel)
        if gap is None and not is_channel:
            gap = packed.median_gap(axis, sample)  # each channel was read once in a sample
        if gap is None:
            ladders.append(Ladder())
            continue
        longest = 2 * math.pi * max(packed.longest_span(axis) / gap, 1.0)
        ladders.append(Ladder(scale=gap, shortest=2 * math.pi, longest=longest))
    return tuple(ladders)


def with_given(
    given: Sequence[Ladder], n_dims: int, fitted: Sequence[Ladder] | None, phase: Phase | None = None
) -> tuple[Ladder, ...]:
    """Ladders for all position axes: those given for the first of them, then those fitted, or else the paper's.

    A phase has its own, and is none of the axes that ladders are given for.
    """
    others = fitted or (Ladder(),) * n_dims
    if phase is None:
        return (*given, *others[len(given) :])
    without_phase = (*others[:PHASE_AXIS], *others[PHASE_AXIS + 1 :])
    ladders = (*given, *without_phase[len(given) :])
    return (*ladders[:PHASE_AXIS], phase.ladder, *ladders[PHASE_AXIS:])

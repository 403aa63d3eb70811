"""Periods of samples, from what is visible of them, and samples with their phase as one more position axis.

Shapes: b samples, n tokens of one, t tokens of all, d position axes.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from romae.data.columns import to_numpy
from romae.data.periodogram import Band, Peak, highest_peak
from romae.data.phase import PHASE_AXIS, Phase, with_axis, without_axis
from romae.data.schema import SampleSet, Schema
from romae.data.sources import Indices, SampleSource, Source, as_source, ids_of
from romae.tokens.sample import Sample
from romae.tokens.tokens import PackedSamples

if TYPE_CHECKING:
    import pandas as pd

# What columns of errors are called, beside a value {} or alone.
NAMES_OF_ERRORS = ("{}_err", "{}_error", "{} err", "{} error", "{}err", "{}error", "{}_sigma", "sigma_{}", "e_{}")
NAMES_ALONE = ("err", "error", "errors", "sigma", "uncertainty")
WORTH_THREADS = 8  # samples
MANY = 256  # samples, from which on a terminal shows a bar


def find_periods(
    samples: SampleSource,
    *,
    shortest: float | None = None,
    longest: float | None = None,
    errors: str | None = None,
    quiet: bool = False,
) -> "pd.DataFrame":
    """The period of each sample, by the Lomb–Scargle periodogram of what is visible of it.

    Parameters
    ----------
    samples : sequence of Sample
        The samples, in the data's own units. Tokens that a sample hides have no influence.
    shortest : float, optional
        The shortest period to look for. By default evenly sampled series are searched down to twice their step
        (Nyquist), and others up to 50 frequencies per measurement in the span, far below their gaps.
    longest : float, optional
        The longest period to look for; by default half the span of a sample, so that two cycles are seen.
    errors : str, optional
        The column of values that holds the errors of the others, which then count by 1 / error². By default one that is
        called so, such as flux_err beside flux.
    quiet : bool, default False
        Whether to show no progress.

    Returns
    -------
    pandas.DataFrame
        A row for each sample: its id, `period`, `power` (the share of chi squared that sinusoids of this period
        explain), `false_alarm` (about the probability that noise alone has such a peak) and `runner_up` (the
        period of the second peak). Where too little is visible, or nothing varies, periods are NaN and the probability
        is 1.

    Raises
    ------
    ValueError
        If there are no samples, a number lies outside its range, or errors are not above 0.

    See Also
    --------
    add_phase : the phase as a position axis.

    Notes
    -----
    Each channel, and each column of values, is a band with a mean, an amplitude and a phase of its own, and all of them
    share the period (the multi-band periodogram of VanderPlas and Ivezić with no common part). Without errors, bands
    count by their number of measurements, whatever their units. Two stars that eclipse each other look alike after half
    a period, which is then found.

    Examples
    --------
    >>> import numpy as np
    >>> import romae
    >>> random = np.random.default_rng(0)
    >>> times = np.sort(random.uniform(0, 100, size=(3, 60)), axis=1)
    >>> values = np.sin(2 * np.pi * times / [[0.7], [3.1], [12.0]])
    >>> samples = romae.from_arrays(values[:, :, None], times)
    >>> romae.find_periods(samples)["period"].round(1).tolist()
    [0.7, 3.1, 12.0]
    """
    import pandas as pd

    phase = Phase(shortest=shortest, longest=longest, errors=errors)
    source = as_source(samples, with_targets=False)
    peaks = _peaks(source.packed(np.arange(len(source))), _schema(source), phase, quiet=quiet)
    table = pd.DataFrame(peaks, columns=Peak._fields)
    table.insert(0, "id", ids_of(samples))
    return table


def add_phase(
    samples: SampleSource,
    period: Any = "auto",
    *,
    harmonics: int = 4,
    shortest: float | None = None,
    longest: float | None = None,
    false_alarm: float = 0.01,
    errors: str | None = None,
    quiet: bool = False,
) -> SampleSet:
    """Samples with one more rotary coordinate: the phase, which is the time in periods.

    Parameters
    ----------
    samples : sequence of Sample
        The samples, in the data's own units. They come into memory.
    period : "auto", array [b], dict or str, default "auto"
        The period of each sample: "auto" finds it in what is visible (`find_periods`); numbers in the order of the
        samples, or a dictionary from ids to numbers, are taken as they are, where NaN means none; text is the column of
        a static fact, or that of the targets.
    harmonics : int, default 4
        The wavelengths of the axis: 1, 1/2, 1/3, … of a cycle.
    shortest : float, optional
        The shortest period to look for, as in `find_periods`.
    longest : float, optional
        The longest period to look for, as in `find_periods`.
    false_alarm : float, default 0.01
        The false-alarm probability above which a period that was found counts as none.
    errors : str, optional
        The column of values that holds the errors of the others, as in `find_periods`.
    quiet : bool, default False
        Whether to show no progress.

    Returns
    -------
    SampleSet
        Samples whose positions are time, phase, further axes, and the channel last. Their schema keeps how the phase
        was found.

    Raises
    ------
    ValueError
        If there are no samples, they have a phase already or more axes than names, a period is not above 0, or there is
        no such fact.
    TypeError
        If the period is something else.

    See Also
    --------
    find_periods : the periods with their powers and false-alarm probabilities.

    Notes
    -----
    The phase is the time since the first visible measurement of a sample over its period; without a period it is 0 for
    all tokens and turns nothing. Scalings leave it alone, and `fit_ladders` gives it its harmonics, for which whole
    periods are nothing. A task that was trained on such samples takes samples without a phase as well and adds it by
    the same rule, unless periods were handed over; queries never need one. Hide tokens before the phase is added: what
    is hidden afterwards has had a part in the period.

    Examples
    --------
    >>> import numpy as np
    >>> import romae
    >>> times = np.sort(np.random.default_rng(0).uniform(0, 100, size=(2, 60)), axis=1)
    >>> samples = romae.from_arrays(np.sin(2 * np.pi * times / 3.1)[:, :, None], times)
    >>> phased = romae.add_phase(samples)
    >>> phased[0].positions.shape, phased.schema.coordinates
    (torch.Size([60, 2]), ('time', 'phase'))
    >>> romae.fit_ladders(phased)[1].wavelengths
    (1.0, 0.5, 0.3333333333333333, 0.25)
    """
    source = as_source(samples, with_targets=False)
    schema = _schema(source)
    found: dict[str, Any] = {"shortest": shortest, "longest": longest, "false_alarm": false_alarm, "errors": errors}
    given = None
    if isinstance(period, str) and period == "auto":
        phase = Phase(harmonics=harmonics, **found)
    else:
        if any(found[name] is not None for name in ("shortest", "longest", "errors")):
            raise ValueError("shortest, longest and errors are for periods that are to be found, with period='auto'")
        if isinstance(period, str) and period in [fact.name for fact in schema.static]:
            phase = Phase(period="fact", harmonics=harmonics, fact=period)
        else:
            phase = Phase(period="given", harmonics=harmonics)
            given = _given_periods(period, samples, schema)
    return _with_phase(samples, source, phase, given, quiet=quiet)


def phased(samples: SampleSource, phase: Phase, *, quiet: bool = True) -> SampleSet:
    """Samples with a phase that is found by a rule, such as that of a model; those that have one stay as they are."""
    source = as_source(samples, with_targets=False)
    if source.schema is not None and source.schema.phase is not None:
        return (
            samples
            if isinstance(samples, SampleSet)
            else SampleSet([source[i] for i in range(len(source))], source.schema)
        )
    return _with_phase(samples, source, phase, None, quiet=quiet)


def without_phase(samples: Sequence[Sample]) -> Sequence[Sample]:
    """Samples without a phase that a model can add itself, from what is visible of them now."""
    first = samples[0].schema if len(samples) else None
    if first is None or first.phase is None or first.phase.period != "auto":
        return samples
    schema = replace(first, phase=None)
    return SampleSet(
        [replace(sample, positions=without_axis(sample.positions), schema=schema) for sample in samples], schema
    )


class Phased(Source):
    """A source whose samples get their phase when they are asked for; each period is looked for once."""

    def __init__(
        self,
        source: Source,
        phase: Phase,
        given: Float64[np.ndarray, "b"] | None = None,
        *,
        schema: Schema | None = None,
        quiet: bool = True,
    ) -> None:
        names = source.schema or schema or _schema(source)
        if given is None and phase.period == "given":
            raise ValueError(
                "the model was trained with periods that were handed over, and these samples have none; add them: "
                "romae.add_phase(samples, period=…)"
            )
        if phase.period == "fact" and phase.fact not in [fact.name for fact in names.static]:
            raise ValueError(f"the period is the static fact {phase.fact!r}, which these samples do not have")
        self.source, self.phase, self.quiet = source, phase, quiet
        self.plain_schema = names
        self.schema = replace(names, phase=phase)
        self.is_quick = source.is_quick
        self.periods = np.zeros(len(source)) if given is None else given
        self.is_known = np.full(len(source), given is not None)

    @property
    def lengths(self) -> Int64[np.ndarray, "n"]:  # type: ignore[override]
        return self.source.lengths

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        positions = self.packed(np.array([place])).positions
        return replace(self.source[place], positions=positions, schema=self.schema)

    def packed(self, indices: Indices) -> PackedSamples:
        packed = self.source.packed(indices)
        unknown = np.flatnonzero(~self.is_known[indices])
        if len(unknown) > 0:
            part = packed if len(unknown) == len(indices) else packed.take(unknown)
            self.periods[indices[unknown]] = _periods(part, self.plain_schema, self.phase, quiet=self.quiet)
            self.is_known[indices[unknown]] = True
        return _packed_with_phase(packed, self.plain_schema, self.periods[indices])


def found_without_phase(source: Source) -> Source:
    """The same samples without a phase that a model finds itself, by what is visible when it is asked."""
    phase = None if source.schema is None else source.schema.phase
    if phase is None or phase.period != "auto":
        return source
    if isinstance(source, Phased):
        return source.source
    return as_source(without_phase([source[i] for i in range(len(source))]))


def phase_at(positions: Float64[Tensor, "t d"], counts: Sequence[int], samples: PackedSamples) -> Float64[Tensor, "t"]:
    """The phase of queries, of which so many belong to each sample: that of the straight line through its tokens."""
    times, phases = samples.positions[:, 0].double(), samples.positions[:, PHASE_AXIS].double()
    ends = samples.layout.host_offsets.tolist()
    parts = []
    for queries, start, stop in zip(positions[:, 0].double().split(list(counts)), ends, ends[1:], strict=False):
        t, p = times[start:stop], phases[start:stop]
        first, last = t.argmin(), t.argmax()
        span = t[last] - t[first]
        rate = (p[last] - p[first]) / torch.where(span > 0, span, 1.0)
        parts.append(p[first] + (queries - t[first]) * rate)
    return torch.cat(parts)


def _with_phase(
    samples: SampleSource, source: Source, phase: Phase, given: Float64[np.ndarray, "b"] | None, *, quiet: bool
) -> SampleSet:
    with_axis_source = Phased(source, phase, given, quiet=quiet)
    packed = with_axis_source.packed(np.arange(len(source)))
    parts = packed.positions.split(packed.layout.lengths.tolist())
    members = samples.samples if isinstance(samples, SampleSet) else samples  # with their targets
    schema = with_axis_source.schema
    assert schema is not None
    return SampleSet([replace(members[i], positions=part, schema=schema) for i, part in enumerate(parts)], schema)


def _schema(source: Source) -> Schema:
    """The names of samples without a phase; series of one axis need none."""
    schema = source.schema
    if schema is None:
        first = source[0]
        if first.positions.shape[1] != 1:
            raise ValueError(
                f"samples with {first.positions.shape[1]} position axes do not say which of them is a channel; read "
                "them with from_table or from_arrays, or give them a Schema"
            )
        n = first.values.shape[1]
        return Schema(values=("value",) if n == 1 else tuple(f"value_{i}" for i in range(n)))
    if schema.phase is not None:
        raise ValueError("these samples have a phase already; hand over those that it was added to")
    return schema


def _given_periods(period: Any, samples: SampleSource, schema: Schema) -> Float64[np.ndarray, "b"]:
    """The period of each sample as it was handed over; NaN where there is none."""
    ids = ids_of(samples)
    if isinstance(period, str):
        if period != schema.label or schema.classes is not None:
            facts = [fact.name for fact in schema.static]
            raise ValueError(
                f"there are no periods in {period!r}: it is no static fact ({', '.join(facts) or 'there are none'}) "
                "and no target that is a number; give 'auto', numbers or such a name"
            )
        numbers = [float("nan") if sample.target is None else float(sample.target) for sample in samples]  # type: ignore[attr-defined]
    elif isinstance(period, Mapping):
        if missing := [name for name in ids if name not in period]:
            raise ValueError(f"there is no period for sample {missing[0]!r}; NaN says that it has none")
        numbers = [period[name] for name in ids]
    else:
        numbers = period
    try:
        array = to_numpy(numbers).astype(np.float64)
    except (TypeError, ValueError):
        raise TypeError(
            f"period is 'auto', one number for each sample, a dictionary or a name, not {period!r}"
        ) from None
    if array.shape != (len(ids),):
        raise ValueError(f"give one period for each of {len(ids)} samples, not an array of shape {list(array.shape)}")
    wrong = ~np.isnan(array) & ~((array > 0) & np.isfinite(array))
    if wrong.any():
        i = int(wrong.argmax())
        raise ValueError(f"the period of sample {ids[i]!r} is {array[i]}; periods are above 0, or NaN for none")
    return array


def _periods(packed: PackedSamples, schema: Schema, phase: Phase, *, quiet: bool) -> Float64[np.ndarray, "b"]:
    """The period of each sample by the rule, NaN where it has none."""
    if phase.period == "auto":
        peaks = _peaks(packed, schema, phase, quiet=quiet)
        return np.array([peak.period if peak.false_alarm <= phase.false_alarm else np.nan for peak in peaks])
    kind = [fact.name for fact in schema.static].index(str(phase.fact)) + len(schema.channels)
    is_period = (packed.positions[:, -1] == kind).cpu().numpy()
    periods = np.full(len(packed), np.nan)
    periods[packed.layout.sample_of_token.cpu().numpy()[is_period]] = (
        packed.values[:, 0].double().cpu().numpy()[is_period]
    )
    wrong = periods <= 0
    if wrong.any():
        i = int(wrong.argmax())
        raise ValueError(f"the period of sample {packed.ids[i]!r} is {periods[i]}; periods are above 0, or missing")
    return periods


def _is_seen(packed: PackedSamples, schema: Schema) -> Bool[np.ndarray, "t"]:
    """True on measurements that are visible: on no static fact."""
    seen = np.ones(len(packed.values), dtype=bool) if packed.hidden is None else ~packed.hidden.cpu().numpy()
    if schema.static_from is not None:
        seen &= (packed.positions[:, -1] < schema.static_from).cpu().numpy()
    return seen


def _peaks(packed: PackedSamples, schema: Schema, phase: Phase, *, quiet: bool) -> list[Peak]:
    """The highest peak of the periodogram of each sample; what is hidden is not looked at."""
    seen = _is_seen(packed, schema)
    positions, values = packed.positions.double().cpu().numpy(), packed.values.double().cpu().numpy()
    channel = positions[:, -1] if schema.channel is not None else np.zeros(len(positions))
    pairs = columns_with_errors(schema.values, phase.errors)
    if schema.n_errors and phase.errors is None:
        pairs = [(column, len(schema.values) + column) for column in range(len(schema.values))]
    ends = packed.layout.host_offsets.tolist()

    def peak(i: int) -> Peak:
        here = np.flatnonzero(seen[ends[i] : ends[i + 1]]) + ends[i]
        here = here[np.lexsort((values[here, 0], channel[here], positions[here, 0]))]  # whatever their order was
        bands = []
        for name in np.unique(channel[here]):
            rows = here[channel[here] == name]
            for column, error in pairs:
                errors = None if error is None else values[rows, error]
                if error is not None and errors is not None and error >= len(schema.values) and not errors.all():
                    errors = None  # some of them are not known
                if errors is not None and not (errors > 0).all():
                    raise ValueError(
                        f"sample {packed.ids[i]!r} has an error of {errors.min():g} in column "
                        f"{schema.values[error]!r}; errors are above 0"  # type: ignore[index]
                    )
                bands.append(Band.of(positions[rows, 0], values[rows, column], errors))
        return highest_peak([band for band in bands if band is not None], phase.shortest, phase.longest)

    n = len(packed)
    if n < WORTH_THREADS:
        return [peak(i) for i in range(n)]
    with ThreadPoolExecutor(_n_threads()) as threads:
        found = threads.map(peak, range(n))
        return list(found if quiet or n < MANY or not sys.stderr.isatty() else _shown(found, n))


def _n_threads() -> int:
    """As many as this process may use: numpy lets go of the interpreter where most of the time goes."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _shown(items: Any, n: int) -> Any:
    from rich.console import Console
    from rich.progress import track

    return track(items, "periods", total=n, console=Console(stderr=True), transient=True)


def columns_with_errors(names: Sequence[str], errors: str | None) -> list[tuple[int, int | None]]:
    """The columns of values to look at, each with that of its errors, if there is one."""
    if errors is not None:
        if errors not in names or len(names) == 1:
            raise ValueError(f"there is no column of errors {errors!r} beside values; columns of values are {[*names]}")
        place = list(names).index(errors)
        return [(i, place) for i in range(len(names)) if i != place]
    lower = [name.lower() for name in names]
    error_of: dict[int, int] = {}
    for i, name in enumerate(lower):
        wanted = [pattern.format(name) for pattern in NAMES_OF_ERRORS] + (list(NAMES_ALONE) if len(lower) == 2 else [])
        matches = [j for j, other in enumerate(lower) if other in wanted and j != i]
        if matches:
            error_of[i] = matches[0]
    return [(i, error_of.get(i)) for i in range(len(lower)) if i not in error_of.values()]


def _packed_with_phase(packed: PackedSamples, schema: Schema, periods: Float64[np.ndarray, "b"]) -> PackedSamples:
    """Samples with the phase as an axis: the time since the first that is seen, in periods; 0 where there are none."""
    times = packed.positions[:, 0].double()
    sample = packed.layout.sample_of_token
    seen = torch.from_numpy(_is_seen(packed, schema)).to(times.device)
    # A sample of static facts alone has no such time, and no period either.
    first = times.new_full((len(packed),), torch.inf).scatter_reduce(
        0, sample[seen], times[seen], reduce="amin", include_self=True
    )
    rate = torch.from_numpy(np.where(periods > 0, 1 / np.where(periods > 0, periods, 1.0), 0.0)).to(times.device)
    origin = torch.where(torch.isfinite(first), first, 0.0)
    phase = (times - origin[sample]) * rate[sample]
    return replace(packed, positions=with_axis(packed.positions, phase))

"""Forecasts: values after the last time that is seen of each sample, at times that follow from the samples.

Shapes: b samples, q times, c channels or columns of values, d position axes.
"""

import re
import warnings
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64

from romae.data.columns import to_numpy
from romae.data.dates import positions_as_numbers
from romae.data.fitting import READ_AT_ONCE
from romae.data.queries import MOST_TIMES, channel_numbers
from romae.data.schema import Schema
from romae.data.sources import Source, as_source
from romae.inference.interpolation import interpolate, with_task
from romae.inference.predictions import TOKENS_PER_BATCH, Precision, Returns, source_for
from romae.inference.zero import is_in_own_units
from romae.model.tasks import MaskedReconstruction, Task
from romae.tokens.masking import futures_in

LENIENT = 1e-6  # share of a length of time that rounding may make of it
_LENGTH = re.compile(r"[0-9.]+\s*[a-zA-Z]")  # how "24h" and "2 days" begin, and no date


class Forecast(NamedTuple):
    """What is forecast of a sample.

    Attributes
    ----------
    times : Float64 array [q]
        The times, in the data's own unit; positions [q, d], without the channel, where they were asked for.
    values : Float64 array [q, c] or Distribution
        The values, with a column for each channel that was asked for.
    """

    times: Float64[np.ndarray, "q *d"]
    values: Any


@dataclass(frozen=True)
class Seen:
    """Until when each sample is seen, and the median step between its times; NaN where there is none.

    Channels that may be known ahead and static facts do not count.
    """

    last: Float64[np.ndarray, "b"]
    step: Float64[np.ndarray, "b"]

    @classmethod
    def of(cls, task: Task, source: Source) -> "Seen":
        """That of samples, whatever holds them."""
        known = known_channels(task)
        first_static = task.config.static_from
        last, step = np.full(len(source), np.nan), np.full(len(source), np.nan)
        for start in range(0, len(source), READ_AT_ONCE):
            indices = np.arange(start, min(start + READ_AT_ONCE, len(source)))
            packed = source.packed(indices).visible()
            positions = packed.positions.double().cpu().numpy()
            counts = np.ones(len(positions), dtype=bool)
            if known:
                counts &= ~np.isin(positions[:, -1].round(), known)
            if first_static is not None:
                counts &= positions[:, -1] < first_static - 0.5
            ends = packed.layout.host_offsets.tolist()
            for i, (begin, end) in enumerate(zip(ends[:-1], ends[1:], strict=True), start=start):
                times = np.unique(positions[begin:end, 0][counts[begin:end]])
                if len(times):
                    last[i] = times[-1]
                if len(times) > 1:
                    step[i] = np.median(np.diff(times))
        return cls(last, step)


def known_channels(task: Task) -> list[int]:
    """The numbers of the channels that a model has learned to be shown ahead."""
    names = [name for future in futures_in(getattr(task, "masking", None)) for name in future.known]
    if not names or task.schema is None or task.schema.channel is None:
        return [name for name in names if isinstance(name, int)]
    return sorted(set(task.schema.numbers_of_channels(names)))


def forecast(
    task: Any = None,
    samples: Any = None,
    *,
    until: Any = None,
    positions: Any = None,
    channels: Any = None,
    step: Any = None,
    returns: Returns = "mean",
    tokens_per_batch: int = TOKENS_PER_BATCH,
    precision: Precision = "auto",
) -> list[Forecast]:
    """Forecast values after the last time that is seen of each sample.

    `forecast(samples, until="+24h")` needs no training: it asks the bundled model `romae.load("romae/zero")`.

    Parameters
    ----------
    task : MaskedReconstruction, optional
        A trained task, such as `romae.load` gives, best trained with the masking `Future`. It may be left out for
        series with one time axis.
    samples : sequence of Sample
        The samples, as they were read: they are scaled as the training data were. Tokens that a sample hides are not
        shown to the model. What is known ahead, of the channels that `Future(known=…)` names, is a part of them.
    until : float, str, date or duration, optional
        How far to forecast. In the form of the times of the data, such as a number or a date, it is a moment, the same
        for all; a text with a plus before it, such as "+24" or "+24h", is a length of time after the last time of
        each sample, and so is a duration where times are dates ("24h").
    positions : array [q] or list of arrays [q] or [q, d], optional
        The times instead, the same for all samples or an array for each, in the form of those of the data; [q, d] where
        there are further position axes, without that of channels.
    channels : sequence of str or int, optional
        Which channels to forecast, by name or by number from 0 on. By default all but those that are known ahead or
        that training did not have.
    step : float, str or duration, optional
        The time between one forecast and the next up to `until`. By default the median step between the times of a
        sample; of one with a single time, that of the others.
    returns : {"mean", "distribution"}, default "mean"
        "distribution" gives a `Distribution` in place of the values, for models with a likelihood.
    tokens_per_batch : int, default 32768
        The most tokens at once; lower it if memory is short. It does not change the results.
    precision : {"auto", "float32", "tf32", "bf16"}, default "auto"
        What products are computed in, as in `interpolate`.

    Returns
    -------
    list of Forecast
        A named tuple (times, values) for each sample: times [q] in the data's own unit, and values [q, c] with a column
        for each channel. Samples of which nothing is seen, and those that go on until then already, have none; one
        warning tells how many.

    Raises
    ------
    ValueError
        If neither or both of `until` and `positions` are given, they do not fit the data, or a time lies before the
        last one that is seen.
    TypeError
        If the task is no MaskedReconstruction.

    Warns
    -----
    UserWarning
        If times lie further ahead than training has looked, or the model was not trained to look ahead.

    Examples
    --------
    >>> import numpy as np
    >>> import romae
    >>> times = np.arange(0.0, 12.0, 0.5)
    >>> samples = romae.from_arrays(np.sin(times + np.arange(16)[:, None])[..., None], times=times)
    >>> size = romae.Size(width=16, heads=2, depth=1)
    >>> model = romae.ModelConfig(channels=1, position_dims=1, encoder=size, decoder=size)
    >>> task = romae.MaskedReconstruction(model, masking=romae.Future(share=(0.4, 0.9)))
    >>> config = romae.TrainConfig(epochs=2, batch_size=8, device="cpu")
    >>> _ = romae.train(task, samples, config, scaling=romae.fit_scaling(samples, origin="first"), quiet=True)
    >>> ahead = romae.forecast(task, samples[:2], until="+2")
    >>> ahead[0].times.tolist(), ahead[0].values.shape
    ([12.0, 12.5, 13.0, 13.5], (4, 1))
    """
    if (until is None) == (positions is None):
        raise ValueError("say how far to forecast: with until= or with positions=, one of them")
    if positions is not None and step is not None:
        raise ValueError("step= says at which times to forecast up to until=, and positions= say it themselves")
    task, samples, _ = with_task(task, samples)
    if not isinstance(task, MaskedReconstruction):
        raise TypeError(f"only a MaskedReconstruction task can forecast, not {type(task).__name__}")
    is_own = is_in_own_units(task)
    source = source_for(task, samples) if is_own else as_source(samples, with_targets=False)
    schema = source.schema or task.schema or Schema()
    seen = Seen.of(task, source)
    if positions is not None:
        places = _positions(positions, len(source), schema)
    else:
        has_phase = task.schema is not None and task.schema.phase is not None  # which the task adds by itself
        if schema.positions or task.config.position_dims > 1 + (is_own or _has_axis(task)) + has_phase:
            raise ValueError("until= leaves the further position axes of these samples open; ask with positions=")
        places = times_up_to(
            seen, ends_of(seen, until, schema), None if step is None else schema.duration(step, "step")
        )
    asked = [x if x.ndim == 1 else x[:, 0] for x in places]
    _require_ahead(asked, seen, source)
    if is_own:
        chosen = (
            channel_numbers(channels, schema.channels) if channels is not None else list(range(len(schema.channels)))
        )
    else:
        _warn_of_far(task, asked, seen)
        chosen = chosen_channels(task, channels)
    values = interpolate(
        task,
        source if is_own else samples,
        places,
        channels=chosen,
        returns=returns,
        tokens_per_batch=tokens_per_batch,
        precision=precision,
    )
    return [Forecast(x, y) for x, y in zip(places, values, strict=True)]


def chosen_channels(task: Task, channels: Any) -> list[int]:
    """The numbers of the channels to forecast; by default all but those that are known ahead or were never seen."""
    schema = task.schema
    if not _has_axis(task) or schema is None:
        names = range(task.config.n_values) if schema is None else schema.values
        return list(range(task.config.n_values)) if channels is None else channel_numbers(channels, names)
    if channels is not None:
        return channel_numbers(channels, schema.channels)
    n, known = len(schema.channels), known_channels(task)
    is_trained = [True] * n if task.scaling is None else task.scaling.is_known(n).tolist()
    chosen = [i for i in range(n) if i not in known and is_trained[i]]
    if not chosen:
        raise ValueError("every channel is known ahead, so that nothing is left to forecast")
    return chosen


def _has_axis(task: Task) -> bool:
    return task.schema is not None and task.schema.channel is not None


def times_up_to(
    seen: Seen, ends: Float64[np.ndarray, "b"], step: float | None = None
) -> list[Float64[np.ndarray, "_"]]:
    """The times of each sample's forecast: every step after its last time up to its end, or the end where none fits.

    The step is that of the sample unless it is given. Of samples that have no times, one warning tells how many.
    """
    steps = np.full(len(ends), np.nan if step is None else step)
    if step is None:
        typical = np.nanmedian(seen.step) if np.isfinite(seen.step).any() else np.nan
        steps = np.where(np.isfinite(seen.step), seen.step, typical)
        if not np.isfinite(typical) and (ends > seen.last).any():
            raise ValueError("no sample has two times that a step could follow from; give step=")
    elif not step > 0:
        raise ValueError(f"step is the time between one forecast and the next, above 0, not {step}")
    lengths = np.where(ends > seen.last, ends - seen.last, 0.0)
    n = np.where(lengths > 0, np.maximum(np.floor(lengths / steps * (1 + LENIENT)), 1), 0).astype(np.int64)
    if (total := int(n.sum())) > MOST_TIMES:
        raise ValueError(f"the forecasts would have {total:,} times; give a longer step=, or an earlier until=")
    if n_empty := int((n == 0).sum()):
        warnings.warn(
            f"{n_empty} of {len(n)} samples have no forecast: nothing is seen of them, or they go on until then",
            stacklevel=4,
        )
    times = [last + width * np.arange(1, k + 1) for last, width, k in zip(seen.last, steps, n.tolist(), strict=True)]
    return [np.minimum(x, end) for x, end in zip(times, ends, strict=True)]


def ends_of(seen: Seen, until: Any, schema: Schema) -> Float64[np.ndarray, "b"]:
    """Until when each sample is forecast, in the unit of the data."""
    has_dates = schema.time_unit is not None and not schema.durations
    text = until.strip() if isinstance(until, str) else ""
    if text.startswith("+"):
        length = schema.duration(text[1:], "until")
    elif has_dates and (isinstance(until, timedelta | np.timedelta64) or _LENGTH.match(text)):
        try:
            length = schema.duration(until, "until")
        except ValueError:  # "1 March 2024" begins as a duration does
            return np.full(len(seen.last), schema.moment(until, "until"))
    else:
        return np.full(len(seen.last), schema.moment(until, "until"))
    if not length > 0:
        raise ValueError(f"until is a length of time after the last, above 0, not {until!r}")
    return seen.last + length


def _positions(positions: Any, n: int, schema: Schema) -> list[Float64[np.ndarray, "_ *d"]]:
    """The positions of each sample as numbers."""
    if not hasattr(positions, "__len__") or isinstance(positions, str | bytes):
        raise TypeError(f"positions are one array for all samples, or one for each, not {type(positions).__name__}")
    positions = positions.to_numpy() if hasattr(positions, "iloc") else positions
    if len(positions) and np.ndim(positions[0]) == 0:
        positions = [positions] * n
    if len(positions) != n:
        raise ValueError(f"positions for {len(positions)} samples, but there are {n}; give one array for each")
    zone, unit = schema.time_zone, schema.time_unit
    return [
        positions_as_numbers(to_numpy(x), unit, zone, f"the positions for sample {i}", are_durations=schema.durations)
        .astype(np.float64)
        .copy()
        for i, x in enumerate(positions)
    ]


def _require_ahead(asked: list[Float64[np.ndarray, "_"]], seen: Seen, source: Source) -> None:
    for i, (times, last) in enumerate(zip(asked, seen.last, strict=True)):
        if len(times) and not times.min() > last:
            name = source.packed(np.array([i])).ids[0]
            what = "of which nothing is seen" if np.isnan(last) else f"which is seen until {last:.6g}"
            raise ValueError(
                f"a forecast at {times.min():.6g} is asked of sample {i if name is None else name!r}, {what}; "
                "interpolate answers at times between those that are seen"
            )


def _warn_of_far(task: MaskedReconstruction, asked: list[Float64[np.ndarray, "_"]], seen: Seen) -> None:
    """One warning for times further ahead than training looked, or for a model that never did."""
    if not any(map(len, asked)):
        return
    ranges = None if task.scaling is None else task.scaling.seen
    horizon = None if ranges is None else ranges.horizon
    if horizon is None:
        if not futures_in(task.masking):
            warnings.warn(
                f"this model was trained with {type(task.masking).__name__}, to predict between what it sees and not "
                "ahead of it; train it with masking=Future(share=(0.3, 0.9)), or Mixed, for forecasts",
                stacklevel=4,
            )
        return
    ahead = np.concatenate([x - last for x, last in zip(asked, seen.last, strict=True)])
    n_far = int((ahead > horizon * (1 + LENIENT)).sum())
    if n_far:
        warnings.warn(
            f"{n_far} of {len(ahead)} times lie further ahead than training looked: up to {ahead.max():.4g} after the "
            f"last that is seen, and {horizon:.4g} in training; do not rely on forecasts there",
            stacklevel=4,
        )

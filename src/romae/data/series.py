"""Series: arrays of measurements at times become samples. Shapes: n tokens or time steps, c channels."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Float64, Shaped
from torch import Tensor

from romae.data.codes import warn_of_codes
from romae.data.columns import (
    Name,
    as_numbers,
    encode_labels,
    frame_columns,
    in_order,
    read_errors,
    require_distinct,
    require_no_index,
    require_values,
    require_variation_kept,
    to_numpy,
)
from romae.data.containers import is_data_array, labelled_array, of_dictionary
from romae.data.dates import ReadTimes, TimeUnit, numbers_from_dates, read_times, require_unit
from romae.data.schema import SampleSet, Schema
from romae.data.static import with_static
from romae.data.tables import static_facts
from romae.tokens.arrays import require_exact
from romae.tokens.sample import Sample


def from_arrays(
    X: Any,
    times: Any = None,
    y: Any = None,
    *,
    tokens: Literal["steps", "scalars"] = "steps",
    layout: Literal["bnc", "bcn"] = "bnc",
    ids: Sequence[Hashable] | None = None,
    channels: Sequence[Name] | None = None,
    classes: Sequence[Name] | None = None,
    time_unit: TimeUnit = "second",
    time_zone: str | None = None,
    for_training: bool = True,
    static: Any = None,
    errors: Any = None,
) -> SampleSet:
    """Samples from arrays of time series, regular or irregular, of any length; NaN means missing.

    Parameters
    ----------
    X : array [b, n, c] or list of arrays [n, c], or dict
        n time steps of c channels for each of b series. Pandas tables name their channels by their columns. The
        coordinates of a DataArray of xarray are ids, times and channels, where these are not given. A dictionary, as
        PyPOTS takes it, holds the array under "X" and perhaps labels under "y".
    times : array [n] or list of arrays [n], optional
        One array for all series or one for each: numbers, dates, which are counted in `time_unit` since 1970, or
        durations and times of day ("08:30"), which are counted in it from 0. Without them, steps are counted from 0.
    y : sequence, optional
        One label per series (text and integers are classes, floats are numbers), a vector [k] per series, or one row
        per time step [n, k]. A pandas column may be indexed by `ids`.
    tokens : {"steps", "scalars"}, default "steps"
        What a token is: a time step with all its channels as values (steps that are missing altogether are left out),
        or a single number with the index of its channel as last position, so that any of them may be missing.
    layout : {"bnc", "bcn"}, default "bnc"
        The order of dimensions: channels last, or channels first.
    ids : sequence of hashable, optional
        A name for each series; by default 0, 1, 2, …
    channels : sequence of str, int or bool, optional
        A name for each channel.
    classes : sequence of str, int or bool, optional
        The names of the classes in their order, such as those known from training; others are then an error.
    time_unit : {"second", "minute", "hour", "day"}, default "second"
        What dates and durations are counted in.
    time_zone : str, optional
        The zone of dates that have none, such as "Europe/Paris".
    for_training : bool, default True
        Refuse data whose variation single precision would lose. False for data that are only to be predicted.
    static : table, dict or list of dict, optional
        Static facts, as in `from_table`: one row for each series, in their order or by `ids`. It needs
        tokens="scalars".
    errors : array [b, n, c] or list of arrays [n, c], optional
        The measurement error of each value, a standard deviation in its units; one that is missing or 0 is not known.
        A model reads them beside the values and does not predict them, as in `from_table(…, error=…)`.

    Returns
    -------
    SampleSet
        One sample per series, in the units of the arrays, with a schema.

    Raises
    ------
    ValueError
        If shapes do not agree, a series has no measurement, a time step lacks some of its channels with tokens="steps",
        numbers are infinite, or errors are negative.
    TypeError
        If something cannot be read as an array.

    Examples
    --------
    >>> import numpy as np
    >>> import romae
    >>> series = [np.array([[1.0], [2.0], [3.0]]), np.array([[4.0], [5.0]])]
    >>> samples = romae.from_arrays(series, times=[[0.0, 0.4, 2.5], [1.0, 1.1]], y=["up", "down"])
    >>> samples
    SampleSet(2 samples of channel_0, 2 classes)

    Sensors that are read at different times:

    >>> gaps = np.array([[[1.0, np.nan], [np.nan, 7.0]]])
    >>> romae.from_arrays(gaps, tokens="scalars")[0].positions.tolist()  # time, channel
    [[0.0, 0.0], [1.0, 1.0]]
    """
    if tokens not in ("steps", "scalars"):
        raise ValueError(f"tokens must be 'steps' or 'scalars', not {tokens!r}")
    require_unit(time_unit)
    if isinstance(X, Mapping):
        X, own_y = of_dictionary(X)
        y = own_y if y is None else y
    if is_data_array(X):
        X, own_times, own_ids, own_channels = labelled_array(X, channels_last=layout != "bcn")
        times, ids = own_times if times is None else times, own_ids if ids is None else ids
        channels = own_channels if channels is None else channels
    arrays = _read_arrays(X, layout, has_times=times is not None)
    names = _read_ids(ids, len(arrays))
    if len(names) != len(arrays):
        raise ValueError(f"{len(names)} ids for {len(arrays)} samples: each sample needs one")
    require_distinct(names, "ids")
    n_channels = arrays[0].shape[1]
    for i, x in enumerate(arrays):
        if x.shape[1] != n_channels:
            raise ValueError(f"sample {names[i]!r} has {x.shape[1]} channels, sample {names[0]!r} has {n_channels}")
    if layout == "bnc" and channels is None:
        channels = frame_columns(X, has_times=times is not None)
    elif layout == "bnc" and times is None:
        require_no_index(X)
    all_errors = _read_errors(errors, arrays, names, layout)
    channels = None if channels is None else _read_channels(channels, n_channels, tokens, has_labels=y is not None)
    clocks = _read_times(times, arrays, names, time_unit, time_zone)
    targets, class_names = _read_targets(y, arrays, names, classes, tokens, for_training=for_training)
    columns = ("value",) if tokens == "scalars" else tuple(str(name) for name in channels or _numbered(n_channels))
    schema = Schema(
        channel="channel" if tokens == "scalars" else None,
        values=columns,
        errors=() if errors is None else tuple(f"{name}_error" for name in columns),
        label=None if y is None else "label",
        channels=tuple(channels or range(n_channels)) if tokens == "scalars" else (),
        classes=class_names,
        time_unit=clocks[0].unit,
        time_zone=clocks[0].zone,
        durations=clocks[0].are_durations,
    )
    samples = []
    for name, x, error, (clock, *_), target in zip(names, arrays, all_errors, clocks, targets, strict=True):
        keep = _measured(x, clock, f"sample {name!r}", allow_gaps=tokens == "scalars")
        if tokens == "scalars":
            row, column = np.nonzero(~np.isnan(x))
            numbers = np.stack([part[row, column] for part in (x, error) if part.shape[1]], 1)
            samples.append(Sample(numbers, np.stack([clock[row], column], 1), target, name))
        else:
            target = target[keep] if np.ndim(target) == 2 else target
            rows = np.concatenate([x[keep], error[keep]], 1) if error.shape[1] else x[keep]
            samples.append(Sample(rows, clock[keep, None], target, name))
    if for_training:
        fix = "subtract an offset first, or read data that are only to be predicted with for_training=False"
        require_variation_kept(arrays, [f"channel {name!r}" for name in channels or range(n_channels)], fix)
        warn_of_codes(np.concatenate(arrays), list(channels or range(n_channels)))
    read = SampleSet(samples, schema)
    return read if static is None else with_static(read, static_facts(static, read))


def _read_ids(ids: Sequence[Hashable] | None, n_samples: int) -> Sequence[Hashable]:
    if ids is None:
        return range(n_samples)
    _require_sequence(ids, "ids")
    names = list(ids)
    for i, name in enumerate(names):
        if not isinstance(name, Hashable):
            raise TypeError(f"an id is text or a number, and that of sample {i} is {name!r}; give one for each sample")
    return names


def _read_channels(channels: Sequence[Name], n_channels: int, tokens: str, *, has_labels: bool) -> list[Name]:
    """The names of the channels, which are columns where a token holds them all."""
    _require_sequence(channels, "channels")
    names = [name.item() if isinstance(name, np.generic) else name for name in channels]
    if len(names) != n_channels:
        shown = f"{', '.join(map(repr, names[:3]))}{', …' * (len(names) > 3)}"
        raise ValueError(
            f"the series have {n_channels} columns of values, but {len(names)} channels are named ({shown}); name each "
            "column once, or give series with all of these channels"
        )
    for name in names:
        if not isinstance(name, Hashable):
            raise TypeError(f"a channel is called by text or a number, not {name!r}; name each column once")
    reserved = {"id", "time", *(["label"] if has_labels else [])}
    clash = [name for name in names if name in reserved]
    if clash and tokens == "steps":
        raise ValueError(
            f"a channel is called {clash[0]!r}, but so is the column of each sample's {clash[0]}; call it otherwise, "
            f"for example '{clash[0]}_value'"
        )
    return names


def _numbered(n_channels: int) -> list[str]:
    return [f"channel_{i}" for i in range(n_channels)]


def _read_arrays(X: Any, layout: str, *, has_times: bool) -> list[Float[np.ndarray, "_ _"]]:
    if layout not in ("bnc", "bcn"):
        raise ValueError(f"layout must be 'bnc' (channels last) or 'bcn' (channels first), not {layout!r}")
    _require_sequence(X, "X")
    n_dims = getattr(X, "ndim", 3)
    if n_dims != 3:
        hint = "; for one channel use X[:, :, None]" if n_dims == 2 else ""
        raise ValueError(f"X must be a list of [n, c] arrays or one array [b, n, c], got shape {list(X.shape)}{hint}")
    if len(X) == 0:
        raise ValueError("X holds no samples")
    if layout == "bnc" and not has_times:
        _require_no_pairs(X)
    arrays = [_float_array(x, f"sample {i}") for i, x in enumerate(X)]
    for i, x in enumerate(arrays):
        if x.ndim != 2:
            column = "x.to_frame()" if hasattr(X[i], "to_frame") else "x[:, None]"
            hint = f"; for one channel use {column}" if x.ndim == 1 else ""
            raise ValueError(f"sample {i} must be a [n, c] array, got shape {list(x.shape)}{hint}")
    return [x.T for x in arrays] if layout == "bcn" else arrays


def _read_errors(
    errors: Any, arrays: Sequence[np.ndarray], names: Sequence[Hashable], layout: str
) -> list[Float64[np.ndarray, "_ _"]]:
    """The measurement errors of each sample; without any, arrays that have no columns."""
    if errors is None:
        return [np.zeros((len(x), 0)) for x in arrays]
    read = _read_arrays(errors, layout, has_times=True)
    if len(read) != len(arrays):
        raise ValueError(f"errors for {len(read)} samples, but there are {len(arrays)} samples; each value has one")
    for x, error, name in zip(arrays, read, names, strict=True):
        if error.shape != x.shape:
            raise ValueError(
                f"sample {name!r} has values of shape {list(x.shape)} and errors of shape {list(error.shape)}; each "
                "value has one error"
            )

    def place(name: Hashable) -> Callable[[int, int], str]:
        return lambda row, column: f"sample {name!r}, row {row}, channel {column}"

    return [read_errors(error, place(name)) for error, name in zip(read, names, strict=True)]


def _require_no_pairs(X: Any) -> None:
    """Refuse times and values as a pair, which would be read as two time steps.

    Lists are refused only where they look so throughout, since two time steps may come as a list too.
    """
    apart = "hand the times over apart: from_arrays([values[:, None], …], times=[times, …])"
    for i, x in enumerate(X):
        if isinstance(x, tuple) and len(x) == 2 and _is_flat(x[0]):
            raise ValueError(f"sample {i} is a pair, as of times and values; {apart}")
    if all(_is_two_rows(x) and _climbs(x[0]) for x in X) and not all(_climbs(x[1]) for x in X):
        raise ValueError(
            f"every sample is a list of two rows, of which the first climbs like times; {apart}, or two time steps as "
            "an array: np.array(x)"
        )


def _is_two_rows(x: Any) -> bool:
    return isinstance(x, list) and len(x) == 2 and all(map(_is_flat, x)) and len(x[0]) == len(x[1]) > 2


def _is_flat(x: Any) -> bool:
    if hasattr(x, "ndim"):
        return x.ndim == 1
    return isinstance(x, list | tuple) and not any(hasattr(entry, "__len__") for entry in x)


def _climbs(row: Any) -> bool:
    x = to_numpy(row)
    return x.dtype.kind in "iuf" and bool((np.diff(x) > 0).all())


def _require_sequence(x: Any, name: str) -> None:
    if (
        not (hasattr(x, "__len__") and hasattr(x, "__getitem__"))
        or isinstance(x, str | Mapping)
        or getattr(x, "ndim", 1) == 0
    ):
        raise TypeError(f"{name} must be a list or an array, not {x!r}")


def _float_array(x: Any, name: str) -> Float[np.ndarray, "..."]:
    try:
        x = to_numpy(x)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} cannot be read as an array: {error}") from None
    if x.dtype.kind == "f":
        return x
    if x.dtype.kind in "iub":
        read = x.astype(np.float64)
        require_exact(read, lambda: len(np.unique(x)), name)
        return read
    import pandas as pd

    return as_numbers(pd.Series(x.ravel(), dtype=object), name, lambda i: f"its element {i}").reshape(x.shape)


def _read_times(
    times: Any, arrays: Sequence[np.ndarray], names: Sequence[Hashable], unit: TimeUnit, zone: str | None
) -> list[ReadTimes]:
    """The times of each sample as numbers, with their unit and time zone if they were dates; all are of one form."""
    if times is None:
        return [ReadTimes(np.arange(len(x), dtype=np.float64)) for x in arrays]
    _require_sequence(times, "times")
    if len(times) == 0:
        raise ValueError("times are empty; leave them out to count the steps from 0")
    times = to_numpy(times) if isinstance(times, Tensor | np.ndarray) or hasattr(times, "iloc") else times
    is_shared = np.ndim(to_numpy(times[0])) == 0
    if not is_shared and len(times) != len(arrays):
        raise ValueError(f"times for {len(times)} samples, but there are {len(arrays)} samples")
    clocks = [to_numpy(times)] * len(arrays) if is_shared else [to_numpy(clock) for clock in times]
    clock_names = [f"the times of sample {name!r}" for name in names]
    for clock, x, clock_name in zip(clocks, arrays, clock_names, strict=True):
        if clock.shape != (len(x),):
            raise ValueError(f"{clock_name} have shape {list(clock.shape)}, but it has {len(x)} time steps")
    if is_shared:
        return [_read_clock(clocks[0], unit, zone, clock_names[0])] * len(arrays)
    read = [_read_clock(clock, unit, zone, clock_name) for clock, clock_name in zip(clocks, clock_names, strict=True)]

    def form(clock: ReadTimes) -> tuple[Any, ...]:
        return clock.unit, clock.zone is None, clock.are_durations

    for i, one in enumerate(read):
        if form(one) != form(read[0]):
            raise ValueError(
                f"{clock_names[i]} are {clocks[i].dtype}, those of sample {names[0]!r} are of another kind; give "
                "numbers for all samples, durations, or dates, all with a time zone or all without"
            )
    return read


def _read_clock(clock: Shaped[np.ndarray, "n"], unit: TimeUnit, zone: str | None, where: str) -> ReadTimes:
    if clock.dtype.kind in "fiub":
        return ReadTimes(_float_array(clock, where).astype(np.float64))
    if clock.dtype.kind == "M" and zone is None:
        return ReadTimes(numbers_from_dates(clock, unit), unit)
    import pandas as pd

    return read_times(pd.Series(clock), unit, zone, where, lambda i: f"its element {i}")


def _read_targets(
    y: Any,
    arrays: Sequence[np.ndarray],
    names: Sequence[Hashable],
    classes: Sequence[Name] | None,
    tokens: str,
    *,
    for_training: bool,
) -> tuple[Sequence[Any], tuple[Name, ...] | None]:
    """The target of each sample, and the names of the classes if they are classes."""
    if y is None:
        return [None] * len(arrays), None if classes is None else tuple(classes)
    _require_sequence(y, "y")
    if hasattr(y, "iloc"):  # a pandas column, indexed by ids or by its own places
        y = (y if isinstance(names, range) else in_order(names, y)).to_numpy()
    y = to_numpy(y) if isinstance(y, Tensor | np.ndarray) else y
    if len(y) != len(arrays):
        raise ValueError(f"y has {len(y)} entries for {len(arrays)} samples: each sample needs one")
    if np.ndim(to_numpy(y[0])) == 0:
        import pandas as pd

        try:
            column, place = pd.Series(y), lambda i: f"sample {names[i]!r}"
        except UnicodeEncodeError as error:
            raise ValueError(f"a label is no valid text, since it has half of a character: {error.object!r}") from None
        labels, class_names = encode_labels(column, classes, place, for_training=for_training)
        return labels.tolist(), class_names
    if classes is not None:
        raise ValueError("classes are named, but y holds arrays of numbers; give one label per sample")
    targets = [np.array(_float_array(target, f"the target of sample {names[i]!r}")) for i, target in enumerate(y)]
    for i, (target, x) in enumerate(zip(targets, arrays, strict=True)):
        where = f"the target of sample {names[i]!r}"
        if target.ndim == 2 and tokens == "scalars":
            raise ValueError(f"{where} has one row per time step, which needs tokens='steps'")
        if target.ndim != targets[0].ndim or target.shape[-1] != targets[0].shape[-1]:
            raise ValueError(
                f"{where} has shape {list(target.shape)}, that of sample {names[0]!r} {list(targets[0].shape)}; for "
                "one target per time step use [n, 1] arrays"
            )
        if target.ndim == 2 and len(target) != len(x):
            raise ValueError(f"{where} has {len(target)} rows for {len(x)} time steps")
        measured = target[~np.isnan(x).all(1)] if target.ndim == 2 else target
        if not np.isfinite(measured).all():
            raise ValueError(f"{where} has a missing or infinite number; leave such samples out")
    return targets, None


def _measured(
    x: Float[np.ndarray, "n c"], clock: Float64[np.ndarray, "n"], where: str, *, allow_gaps: bool
) -> Bool[np.ndarray, "n"]:
    """Which time steps have a measurement; what cannot be used is an error."""
    missing = np.isnan(x)
    keep = ~missing.all(1)
    if not keep.any():
        raise ValueError(f"{where} has no measurement: every value is missing; leave it out")
    partly = keep & missing.any(1)
    if partly.any() and not allow_gaps:
        row = int(partly.argmax())
        raise ValueError(
            f"{where}, row {row} lacks channel {int(missing[row].argmax())} but has others; use tokens='scalars' for "
            "series whose channels are measured at different times"
        )
    require_values(x, lambda row, column: f"{where}, row {row}, channel {column}")
    wrong = np.isinf(clock) | (np.isnan(clock) & keep)
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(f"{where}, row {row} has the time {clock[row]}; times must be finite")
    return keep

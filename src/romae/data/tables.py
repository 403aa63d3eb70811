"""Tables: one row per measurement becomes one token of a sample, or each number of a row one.

Messages name rows by their place in the table, counting from 0.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64

from romae.data.codes import warn_of_codes
from romae.data.columns import (
    Name,
    as_numbers,
    encode_labels,
    encode_names,
    read_errors,
    require_values,
    require_variation_kept,
)
from romae.data.containers import as_table, id_and_time, is_table
from romae.data.dates import TimeUnit, read_times, require_same_zone
from romae.data.frames import column_names, read_frame
from romae.data.labels import with_labels
from romae.data.schema import SampleSet, Schema
from romae.data.skipping import Skipped, refused_parts
from romae.data.sources import InMemory
from romae.data.static import one_row_per_id, with_static
from romae.tokens.arrays import LARGEST_EXACT
from romae.tokens.layout import Layout
from romae.tokens.sample import Sample
from romae.tokens.tokens import PackedSamples

if TYPE_CHECKING:
    import pandas as pd

TokenForm = Literal["steps", "scalars"]


def from_table(
    table: Any,
    *,
    id: str | None = None,
    time: str | None = None,
    channel: str | None = None,
    values: str | Sequence[str] | None = None,
    error: str | Sequence[str] | None = None,
    tokens: TokenForm | None = None,
    label: str | Sequence[str] | None = None,
    separator: str | None = None,
    positions: str | Sequence[str] = (),
    channels: Sequence[Name] | None = None,
    classes: Sequence[Name] | None = None,
    time_unit: TimeUnit = "second",
    static: Any = None,
) -> SampleSet:
    """Samples from a long table: one row per measurement, for irregularly sampled time series.

    Parameters
    ----------
    table : table, str or Path
        A table of pandas, polars, pyarrow or anything else with the Arrow stream interface, an xarray Dataset or
        DataArray, a Hugging Face dataset, or the path of a CSV (also .csv.gz) or Parquet file. Rows may come in any
        order. Named levels of a pandas index, and dimensions of xarray, serve as columns. A row may hold a whole
        series: lists in the columns of times, values and positions are read as one row per entry.
    id : str, optional
        The column that says which series a row belongs to. For a pandas table with an index of two levels, these are
        the id and the time by default, and all other columns are values.
    time : str, optional
        The column of times: numbers, dates, which are counted in `time_unit` since 1970, to the microsecond, or
        durations and times of day ("08:30", "48:00"), which are counted in it from 0. Times of day must not go back
        within a series, since nobody could tell whether it goes on after midnight.
    channel : str, optional
        The column that names what was measured (a band, a sensor, a laboratory value), where each row holds one of
        several. The index of the channel becomes the last position axis.
    values : str or sequence of str, optional
        The column or columns with what was measured at that time.
    error : str or sequence of str, optional
        The column or columns of measurement errors, one for each column of values: standard deviations in the units of
        the values. One that is missing or 0 is not known. A model reads them beside the values and does not predict
        them; where it learns a distribution, the error of each measurement is accounted for.
    tokens : {"steps", "scalars"}, optional
        What a token is: a row with all its values, or a single number with the index of its column as last position,
        so that any of them may be missing. By default it is a row, unless some rows have a part of their values and
        there is no channel column: then it is a number, and a warning says so.
    label : str or sequence of str, optional
        The column with the target, the same in all rows of an id. Text and integers are classes, floats are numbers. A
        list of columns are several labels, of which any number may be true: each column holds 0 and 1, and targets are
        vectors of them.
    separator : str, optional
        What stands between the names of several labels in one column, such as "|" in "pulsating|binary". An empty cell
        has none of them.
    positions : str or sequence of str, default ()
        Further columns with coordinates, such as longitude and latitude; they follow the time.
    channels : sequence of str, int or bool, optional
        The names of the channels in their order. Others are then an error. By default they are those of the table,
        sorted.
    classes : sequence of str, int or bool, optional
        The names of the classes in their order, likewise; with a separator those of the labels.
    time_unit : {"second", "minute", "hour", "day"}, default "second"
        What dates and durations are counted in.
    static : str, sequence of str, table or dict, optional
        Static facts, which hold for a sample as a whole: columns of this table that are the same in all rows of an id,
        or another table with a row for each id. Numbers are one fact each, text and booleans one for each category. A
        missing fact is left out. They are tokens that are never hidden and never asked for; without a channel column,
        each number is a token then (`tokens="scalars"`).

    Returns
    -------
    SampleSet
        One sample per id, sorted by id, its tokens sorted by position, in the units of the table, with its schema.

    Raises
    ------
    ValueError
        If a column is not there, holds text among numbers, positions are infinite, errors are negative or infinite,
        labels contradict each other, or a sample has no complete row. The message names the row and the column.
    TypeError
        If the table is of another type.

    Warns
    -----
    UserWarning
        If rows lack a value and are dropped, or if they lack some and `tokens` leaves the choice open; it counts them.

    See Also
    --------
    from_table_like : a table to predict, read as the training table was.
    from_arrays : series in arrays.

    Examples
    --------
    >>> import pandas as pd
    >>> import romae
    >>> table = pd.DataFrame({"star": ["a", "a", "b"], "day": [0.0, 1.5, 3.0], "flux": [1.0, 2.0, 3.0]})
    >>> table["type"] = ["x", "x", "y"]
    >>> samples = romae.from_table(table, id="star", time="day", values="flux", label="type")
    >>> samples
    SampleSet(2 samples of flux, 2 classes)
    >>> samples[0]
    Sample('a': 2 tokens, 1 channels, 1 position dims, target 0)

    A column for each of several sensors, which are read at different times:

    >>> vitals = pd.DataFrame({"id": 1, "hour": [0.0, 2.0], "pulse": [80.0, 84.0], "pressure": [None, 120.0]})
    >>> romae.from_table(vitals, id="id", time="hour", values=["pulse", "pressure"], tokens="scalars")[0]
    Sample(1: 3 tokens, 1 channels, 2 position dims)

    An index that says what is an id and what is a time:

    >>> romae.from_table(vitals.set_index(["id", "hour"]), tokens="scalars")[0]
    Sample(1: 3 tokens, 1 channels, 2 position dims)
    """
    if tokens not in (None, "steps", "scalars"):
        raise ValueError(f"tokens must be 'steps', 'scalars' or None, not {tokens!r}")
    errors = () if error is None else _listed(error, "error")
    targets = () if label is None else _listed(label, "label")
    others = [*_listed(positions, "positions"), *errors, *targets, *(() if channel is None else (channel,))]
    id, time, values = columns_of_index(table, others, id, time, values)
    table = as_table(table)
    schema = Schema(
        id=id,
        time=time,
        positions=_listed(positions, "positions"),
        channel=channel,
        values=_listed(values, "values"),
        time_unit=time_unit,
        errors=errors,
    )
    known = None if classes is None else _listed(classes, "classes")
    if channel is None and channels is not None:
        raise ValueError("channels are named, but no channel column is; say which it is with channel=")
    if label is None and classes is not None:
        raise ValueError("classes are named, but no label column is; say which it is with label=")
    several = labelled(schema, label, separator, known)
    schema = schema if several.has_several_labels else several
    tokens = "scalars" if static is not None and tokens is None and channel is None else tokens
    samples = _samples(table, schema, channels, tokens)
    samples = samples if static is None else with_static(samples, static_facts(static, samples, table))
    return with_labels(samples, table, several) if several.has_several_labels else samples


def labelled(
    schema: Schema, label: str | Sequence[str] | None, separator: str | None, known: tuple[Name, ...] | None = None
) -> Schema:
    """A schema with the column of targets, or with those of several labels; `known` are the names of all of them."""
    schema = schema.without_label
    if label is None or (isinstance(label, str) and separator is None):
        if separator is not None:
            raise ValueError("a separator stands between the labels of a column; say which it is with label=")
        return replace(schema, label=label, classes=known)
    columns = _listed(label, "label")
    if separator is not None and len(columns) != 1:
        raise ValueError(
            f"a separator is for one column with the names of labels, and label names {len(columns)} "
            f"({', '.join(map(str, columns))}), each of 0 and 1; leave the separator out, or name one column"
        )
    if separator is not None:
        return replace(schema, label=columns[0], separator=separator, labels=known)
    if not columns or not all(isinstance(name, str) for name in columns):
        raise TypeError(f"label must be a column or a list of columns, not {label!r}")
    if known is not None:
        raise ValueError("labels in columns of their own are called like these; leave classes out")
    return replace(schema, labels=columns)


def columns_of_index(table: Any, others: Sequence[str], id: Any, time: Any, values: Any) -> tuple[Any, Any, Any]:
    """The columns of ids, times and values; those that are not named follow from the two levels of a pandas index."""
    if None not in (id, time, values):
        return id, time, values
    levels = id_and_time(table) if id is None or time is None else (id, time)
    if levels is None:
        lacking = next(name for name, given in (("id", id), ("time", time)) if given is None)
        raise ValueError(
            f"say which column holds the {lacking}, with {lacking}=; only a pandas table with an index of two levels, "
            "id and time, says so itself"
        )
    id, time = (given or level for given, level in zip((id, time), levels, strict=True))
    if values is None:
        values = [name for name in column_names(as_table(table)) if name not in (id, time, *others)]
    return id, time, values


def _listed(names: Any, argument: str) -> tuple[Any, ...]:
    """The names that an argument lists; a single one need not be in a list."""
    if isinstance(names, str):
        return (names,)
    if not isinstance(names, Iterable) or getattr(names, "ndim", 1) != 1:
        raise TypeError(f"{argument} must be a name or a list of names, not {names!r}")
    return tuple(names)


def from_table_like(table: Any, schema: Schema) -> SampleSet:
    """Samples from another table with the columns, channels and classes of a schema, such as a table to predict.

    Parameters
    ----------
    table : table, str or Path
        What `from_table` reads. The label column may be absent. Where a schema has channels, a table without the
        channel column may have a column for each of them instead.
    schema : Schema
        That of the training samples (`samples.schema`) or of a model (`task.schema`).

    Returns
    -------
    SampleSet
        With this schema: channels and classes have the indices that they had in training.

    Raises
    ------
    ValueError
        If the table lacks a column, has a channel or class that training did not have, or dates where the schema has
        numbers.
    TypeError
        If the schema is none.

    Notes
    -----
    Dates without a time zone are taken in that of the schema. Where the schema names a label but no classes, labels are
    numbers.

    Examples
    --------
    >>> import pandas as pd
    >>> import romae
    >>> training = pd.DataFrame({"id": [1, 1], "time": [0.0, 1.5], "band": ["g", "r"], "flux": [1.0, 2.0]})
    >>> schema = romae.from_table(training, id="id", time="time", channel="band", values="flux").schema
    >>> new = pd.DataFrame({"id": [9], "time": [0.5], "band": ["r"], "flux": [4.0]})
    >>> romae.from_table_like(new, schema)[0].positions.tolist()  # the time, and r is still channel 1
    [[0.5, 1.0]]
    """
    if not isinstance(schema, Schema):
        raise TypeError(f"the schema is that of other samples, such as samples.schema, not {type(schema).__name__}")
    table = as_table(table)
    if schema.has_several_labels:
        samples = from_table_like(table, schema.without_label)
        columns = schema.labels if schema.separator is None else (schema.label,)
        has_labels = set(map(str, columns or ())) <= set(column_names(table))
        return with_labels(samples, table, schema) if has_labels else SampleSet(samples.samples, schema)
    label = schema.label if schema.label in column_names(table) else None
    schema = replace(schema, phase=None)  # which is no column, and is added to samples once they are read
    table_schema = replace(schema, label=label, classes=None if label is None else schema.classes)
    channels = None if schema.channel is None else schema.channels
    samples = _samples(
        table, table_schema, channels, "steps", labels_are_numbers=schema.classes is None, for_training=False
    )
    if (samples.schema.time_unit, samples.schema.durations) != (schema.time_unit, schema.durations):
        actual, expected = samples.schema.form_of_times, schema.form_of_times
        raise ValueError(f"column {schema.time!r} holds {actual}, but the schema expects {expected}")
    require_same_zone(samples.schema.time_zone, schema.time_zone, _column(schema.time))
    if schema.static:
        facts = static_facts([*dict.fromkeys(fact.column for fact in schema.static)], samples, table)
        samples = with_static(SampleSet(samples.samples, replace(schema, static=())), facts, schema.static)
    return SampleSet(samples.samples, schema)


def from_schema(
    table: Any,
    schema: Schema,
    channels: Sequence[Name] | None = None,
    *,
    tokens: TokenForm | None = None,
    for_training: bool = True,
    row_numbers: Int64[np.ndarray, "n"] | None = None,
    packed: bool = False,
) -> SampleSet:
    """Samples from the columns that a schema names, in its time zone where dates have none; labels are what they are.

    `channels` fix the names of the channels and their order; `tokens` are as in `from_table`. Data read `for_training`
    are refused where single precision would lose the variation of a column. `row_numbers` are what messages call the
    rows of a part of a table. `packed` leaves samples end to end and makes each when it is asked for, which is faster
    where nobody asks for any.
    """
    schema, table = replace(schema, classes=None, phase=None), as_table(table)
    return _samples(table, schema, channels, tokens, for_training=for_training, row_numbers=row_numbers, packed=packed)


def readable_rows(
    table: Any,
    schema: Schema,
    channels: Sequence[Name] | None,
    read: Callable[["pd.DataFrame", Int64[np.ndarray, "n"]], Any],
) -> tuple["pd.DataFrame", Int64[np.ndarray, "n"], list[Skipped], int]:
    """The rows of all ids that can be read, with their numbers, what is left out of how many ids, and why.

    `read` takes a part of the table and the numbers of its rows. In a CSV file one slip makes a column text; what is
    written as a number or, where the schema has such, as a date is read as that here.
    """
    import pandas as pd

    table = as_table(table)
    existing = column_names(table)
    facts = [fact.column for fact in schema.static]
    named = dict.fromkeys([*schema.columns, *schema.errors, *map(str, channels or ()), *facts])
    wanted = [name for name in named if name in existing]
    if schema.id not in existing:
        read_frame(table, [schema.id], {})  # says so
    vocabularies: dict[str, Any] = {schema.id: None} | ({} if schema.channel is None else {schema.channel: channels})
    frame = read_frame(table, wanted, {name: known for name, known in vocabularies.items() if name in existing})
    if isinstance(table, str | Path):
        for name in wanted:
            if name not in vocabularies and name not in facts:
                has_dates = name == schema.time and schema.time_unit is not None and not schema.durations
                frame[name] = _without_slips(frame[name], has_dates=has_dates)
    try:
        id_of_row, ids = pd.factorize(frame[schema.id])
    except TypeError:
        id_of_row, ids = np.zeros(len(frame), dtype=np.int64), pd.Index([None])  # no ids; reading says so

    def attempt(part: Int64[np.ndarray, "part"]) -> None:
        rows = np.flatnonzero(np.isin(id_of_row, part))
        read(frame.iloc[rows], rows)

    if len(ids) == 0:
        read(frame, np.arange(len(frame)))  # says why there are none
    refused = refused_parts(len(ids), attempt)
    skipped = [Skipped(ids.tolist()[i], reason) for i, reason in sorted(refused.items())]
    # Rows without an id are not of those that are left out; whoever reads the others counts them.
    rows = np.flatnonzero(~np.isin(id_of_row, list(refused)))
    return frame.iloc[rows], rows, skipped, len(ids)


def _without_slips(column: "pd.Series", *, has_dates: bool) -> "pd.Series":
    """A column of text in which the numbers, or the dates, are such; what is neither stays text."""
    import pandas as pd
    from pandas.api import types

    if not (types.is_string_dtype(column.dtype) or column.dtype == object):
        return column
    try:
        read = (
            pd.to_datetime(column, errors="coerce", format="ISO8601")
            if has_dates
            else pd.to_numeric(column, errors="coerce")
        )
    except ValueError:  # dates of several time zones
        return column
    if read.notna().equals(column.notna()):
        return read
    return read.astype(object).where(read.notna(), column.astype(object))


def are_columns(static: Any) -> bool:
    """Whether facts are named by the columns of the table that series come from."""
    return isinstance(static, str) or (
        isinstance(static, list | tuple) and bool(static) and all(isinstance(name, str) for name in static)
    )


def static_facts(static: Any, samples: SampleSet, table: Any = None) -> "pd.DataFrame":
    """One row for each sample, in their order; what is not known of one is missing."""
    import pandas as pd

    ids = [sample.id for sample in samples]
    name_of_id = samples.schema.id
    if are_columns(static):
        if table is None:
            raise ValueError("static facts are named by columns, but the series are no table; hand over the facts")
        names = [static] if isinstance(static, str) else list(static)
        frame = read_frame(table, [name_of_id, *names], {name_of_id: None})
        return one_row_per_id(frame, name_of_id, ids)
    if is_table(static):
        given = as_table(static)
        if not isinstance(given, pd.DataFrame) or name_of_id in column_names(given):
            names = [name for name in column_names(given) if name != name_of_id]
            return one_row_per_id(read_frame(given, [name_of_id, *names], {name_of_id: None}), name_of_id, ids)
        if isinstance(given, pd.DataFrame) and not given.index.equals(pd.RangeIndex(len(given))):
            return one_row_per_id(given.rename_axis(name_of_id).reset_index(), name_of_id, ids)
        frame = given
    elif isinstance(static, Mapping) and static and all(isinstance(row, Mapping) for row in static.values()):
        frame = pd.DataFrame.from_dict(dict(static), orient="index").rename_axis(name_of_id).reset_index()
        return one_row_per_id(frame, name_of_id, ids)
    elif isinstance(static, Mapping | list | tuple):
        frame = pd.DataFrame(static if isinstance(static, Mapping) else list(static))
    else:
        raise TypeError(
            "static facts are names of columns, a table by id, a dictionary of columns or a list with a dictionary for "
            f"each sample, not {type(static).__name__}"
        )
    if len(frame) != len(samples):
        raise ValueError(f"static facts for {len(frame)} samples, but there are {len(samples)}: each needs a row")
    return frame.reset_index(drop=True)


def _samples(
    table: Any,
    schema: Schema,
    channels: Sequence[Name] | None,
    tokens: TokenForm | None,
    *,
    labels_are_numbers: bool = False,
    for_training: bool = True,
    row_numbers: Int64[np.ndarray, "n"] | None = None,
    packed: bool = False,
) -> SampleSet:
    """Samples from the columns of a schema, which comes back with what was found in them."""

    def row_number(i: int) -> str:
        return f"row {i if row_numbers is None else row_numbers[i]}"

    if schema.channel is not None and channels and _has_column_per_channel(table, schema.channel, channels):
        scalar_names = (schema.channel, schema.values[0])
        if schema.errors and len(schema.errors) != len(channels):
            raise ValueError(
                f"the table has a column per channel, and the measurement errors of training were in one column, "
                f"{schema.errors[0]!r}; name channels in a column {schema.channel!r}, with that one beside it"
            )
        columns = tuple(map(str, channels))
        schema, tokens = replace(schema, channel=None, channels=(), values=columns), "scalars"
    else:
        scalar_names = _names_of_scalars(column_names(table))
    id, time, channel = schema.id, schema.time, schema.channel
    if tokens == "scalars" and channel is not None and len(schema.values) > 1:
        raise ValueError(
            f"tokens='scalars' is for a table with a column per channel, but column {channel!r} names the channel of "
            "each row, whose values are one token; leave out one of both"
        )
    names = {id: None} | ({} if channel is None else {channel: channels})
    if schema.label is not None and not labels_are_numbers:
        names[schema.label] = schema.classes
    frame = read_frame(table, schema.columns, names)
    if len(frame) == 0:
        raise ValueError("the table has no rows")
    if schema.label is not None and labels_are_numbers:
        frame[schema.label] = as_numbers(frame[schema.label], _column(schema.label), row_number)
    sample_of_row, ids = encode_names(frame[id], None, f"id in column {id!r}", row_number)
    times = read_times(
        frame[time], schema.time_unit or "second", schema.time_zone, _column(time), row_number, sample_of_row
    )
    if times.unit is None:
        _require_apart(sample_of_row, frame[time], times.numbers, _column(time))
    coordinates = {time: times.numbers} | {
        name: as_numbers(frame[name], _column(name), row_number) for name in schema.positions
    }
    measured = {name: as_numbers(frame[name], _column(name), row_number) for name in schema.values}
    missing = {id: sample_of_row < 0} | {name: np.isnan(x) for name, x in (coordinates | measured).items()}
    channel_names: tuple[Name, ...] = ()
    if channel is not None:
        index, channel_names = encode_names(frame[channel], channels, f"channel in column {channel!r}", row_number)
        coordinates[channel], missing[channel] = index.astype(np.float64), index < 0
    for name, x in coordinates.items():
        if np.isinf(x).any():
            row = row_number(int(np.isinf(x).argmax()))
            raise ValueError(f"{row}, column {name!r} is infinite; positions must be finite")
    value_table, errors = np.stack(list(measured.values()), axis=1), schema.error_names
    error_table = np.zeros((len(frame), 0))
    if errors:
        read = [as_numbers(frame[name], _column(name), row_number) for name in errors]
        error_table = read_errors(np.stack(read, 1), lambda row, i: f"{row_number(row)}, column {errors[i]!r}")
    require_values(value_table, lambda row, i: f"{row_number(row)}, column {schema.values[i]!r}")
    if for_training:
        fix = "subtract an offset first, or read data that are only to be predicted with from_table_like"
        require_variation_kept(value_table, [_column(name) for name in schema.values], fix)

    is_scalar = channel is None and _are_scalars(tokens, missing, schema.values)
    if is_scalar:
        lacks_all = np.logical_and.reduce([missing.pop(name) for name in schema.values])
        missing[" and ".join(schema.values)] = lacks_all
    rows = _complete_rows(missing, sample_of_row, ids)
    positions = np.stack([x[rows] for x in coordinates.values()], axis=1)
    values = np.concatenate([value_table[rows], error_table[rows]], 1) if errors else value_table[rows]
    if is_scalar:
        rows, positions, values = _scalars(rows, positions, value_table[rows], error_table[rows])
        channel_names = schema.values
        schema = replace(schema, channel=scalar_names[0], values=scalar_names[1:], channels=channel_names)
    # Ties are broken by the values, so that the result does not depend on the order of the rows.
    keys = [sample_of_row[rows], *positions.T, *values.T]
    if not _are_sorted(keys):
        order = _order(keys)
        rows, positions, values = rows[order], positions[order], values[order]
    counts = np.bincount(sample_of_row[rows], minlength=len(ids))
    targets, class_names = _read_targets(frame, schema, rows, counts, ids, for_training=for_training)
    schema = replace(
        schema,
        channels=channel_names,
        classes=class_names,
        time_unit=times.unit,
        time_zone=times.zone,
        durations=times.are_durations,
        static=(),  # whoever reads them adds them
    )
    measurements = values[:, : len(schema.values)]
    if for_training and schema.channel is not None:
        columns = () if is_scalar else schema.values
        warn_of_codes(measurements, columns, positions[:, -1].astype(np.int64), channel_names, stacklevel=3)
    elif for_training:
        warn_of_codes(measurements, schema.values, stacklevel=3)

    singles = torch.from_numpy(values.astype(np.float32))
    if packed and schema.label is None and bool(torch.isfinite(singles).all()):
        whole = PackedSamples(singles, torch.from_numpy(positions), Layout.of(counts.tolist()), ids=tuple(ids))
        return SampleSet(InMemory.of_packed(whole, schema), schema)
    all_values = singles.split(counts.tolist())
    all_positions = torch.from_numpy(positions).split(counts.tolist())
    parts = zip(all_values, all_positions, targets, ids, strict=True)
    return SampleSet([Sample(v, p, target=target, id=name) for v, p, target, name in parts], schema)


def _are_sorted(keys: Sequence[np.ndarray]) -> bool:
    """Whether rows are in order of the first key, of the second where they agree in that, and so on."""
    is_open = np.ones(max(len(keys[0]) - 1, 0), dtype=bool)  # pairs of neighbours that agree so far
    for key in keys:
        before, after = key[:-1], key[1:]
        if (is_open & (before > after)).any():
            return False
        is_open &= before == after
    return True


def _order(keys: Sequence[np.ndarray]) -> Int64[np.ndarray, "n"]:
    """What `np.lexsort(keys[::-1])` gives, several times as fast where the first two keys leave few ties."""
    first, second = (torch.from_numpy(np.ascontiguousarray(key)) for key in keys[:2])
    by_second = second.argsort(stable=True)
    order = by_second[first[by_second].argsort(stable=True)].numpy()
    is_tied = np.logical_and(*(key[order][1:] == key[order][:-1] for key in keys[:2]))
    group = np.concatenate([[0], np.cumsum(~is_tied)])
    places = np.flatnonzero(np.append(is_tied, False) | np.insert(is_tied, 0, False))
    tied = order[places]
    order[places] = tied[np.lexsort([*(key[tied] for key in keys[:1:-1]), group[places]])]
    return order


def _has_column_per_channel(table: Any, channel: str, channels: Sequence[Name]) -> bool:
    """Whether a table has a column for each channel instead of the one that names it."""
    existing = column_names(table)
    if channel in existing or not any(name in existing for name in channels):
        return False
    if lacking := [name for name in channels if name not in existing]:
        raise ValueError(
            f"the table has a column per channel, but none for {lacking[0]!r}; give it one, empty where nothing was "
            f"measured, or name channels in a column {channel!r}"
        )
    return True


def _names_of_scalars(existing: Sequence[Any]) -> tuple[str, str]:
    """What the channel and the value of a single number are called; the table has no columns of these names."""
    channel, value = "channel", "value"
    while channel in existing:
        channel += "_"
    while value in existing:
        value += "_"
    return channel, value


def _are_scalars(tokens: TokenForm | None, missing: Mapping[str, Bool[np.ndarray, "n"]], values: Sequence[str]) -> bool:
    """Whether each number is a token: where nobody says so, if rows have a part of their values and nothing else lacks.

    Complete rows would be all that is left otherwise, and often few are: sensors have times of their own.
    """
    if tokens is not None:
        return tokens == "scalars"
    lacks = np.stack([missing[name] for name in values])
    is_placed = ~np.logical_or.reduce([mask for name, mask in missing.items() if name not in values])
    n_partial = int((is_placed & lacks.any(0) & ~lacks.all(0)).sum())
    if n_partial:
        warnings.warn(
            f"{n_partial} of {lacks.shape[1]} rows have a part of {', '.join(values)}, so that each number becomes a "
            "token with its column as channel; say tokens='scalars' if it should, or tokens='steps' to drop these rows",
            stacklevel=4,
        )
    return n_partial > 0


def _scalars(
    rows: Int64[np.ndarray, "m"],
    positions: Float64[np.ndarray, "m d"],
    values: Float64[np.ndarray, "m c"],
    errors: Float64[np.ndarray, "m e"],
) -> tuple[Int64[np.ndarray, "t"], Float64[np.ndarray, "t axes"], Float64[np.ndarray, "t k"]]:
    """A token for each number of these rows: its row, its position with its column last, itself, and its error."""
    row, column = np.nonzero(~np.isnan(values))
    numbers = [part[row, column] for part in (values, errors) if part.shape[1]]
    return rows[row], np.column_stack([positions[row], column.astype(np.float64)]), np.stack(numbers, 1)


def _column(name: str) -> str:
    return f"column {name!r}"


def _require_apart(
    sample_of_row: Int64[np.ndarray, "n"], column: "pd.Series", read: Float64[np.ndarray, "n"], name: str
) -> None:
    """Refuse different whole numbers of one sample that double precision makes the same, as it does beyond 2**53."""
    import pandas as pd

    if not (np.abs(read) > LARGEST_EXACT).any():
        return
    times = pd.DataFrame({"sample": sample_of_row, "given": column.to_numpy(), "read": read})
    times = times[times["read"].notna()].drop_duplicates(["sample", "given"])
    if times.duplicated(["sample", "read"]).any():
        raise ValueError(
            f"{name} cannot be read in double precision, which makes different times of up to "
            f"{np.nanmax(np.abs(read)):.3g} in one sample the same; subtract an offset first"
        )


def _complete_rows(
    missing: dict[str, Bool[np.ndarray, "n"]], sample_of_row: Int64[np.ndarray, "n"], ids: Sequence[Name]
) -> Int64[np.ndarray, "m"]:
    """The rows that lack nothing; a warning counts the others, and every sample must keep one."""
    if not ids:
        raise ValueError("every row of the table lacks an id")
    complete = ~np.logical_or.reduce(list(missing.values()))
    rows = np.flatnonzero(complete)
    n_kept = np.bincount(sample_of_row[rows], minlength=len(ids))
    if not n_kept.all():
        empty = [name for name, n in zip(ids, n_kept, strict=True) if n == 0]
        which = f"sample {empty[0]!r} has" if len(empty) == 1 else f"{len(empty)} samples ({empty[:5]}) have"
        raise ValueError(f"{which} no row without a missing value; leave such samples out of the table")
    if len(rows) < len(complete):
        counts = ", ".join(f"{name!r}: {int(mask.sum())}" for name, mask in missing.items() if mask.any())
        n_dropped = len(complete) - len(rows)
        warnings.warn(
            f"dropped {n_dropped} of {len(complete)} rows with a missing value (in column {counts})", stacklevel=4
        )
    return rows


def _read_targets(
    frame: "pd.DataFrame",
    schema: Schema,
    rows: Int64[np.ndarray, "m"],
    counts: Int64[np.ndarray, "b"],
    ids: Sequence[Name],
    *,
    for_training: bool,
) -> tuple[Sequence[Any], tuple[Name, ...] | None]:
    """The target of each sample, which all its rows must agree on, and the names of the classes."""
    if schema.label is None:
        return [None] * len(ids), schema.classes
    sample_of_row = np.repeat(np.arange(len(ids)), counts)

    def place(i: int) -> str:
        return f"row {rows[i]} (sample {ids[sample_of_row[i]]!r})"

    column = frame[schema.label].iloc[rows]
    labels, class_names = encode_labels(column, schema.classes, place, for_training=for_training)
    first = np.cumsum(counts) - counts
    differs = labels != labels[first][sample_of_row]
    if differs.any():
        i = int(differs.argmax())
        start = int(rows[first[sample_of_row[i]]])
        originals = [frame[schema.label].iloc[row] for row in (start, int(rows[i]))]
        raise ValueError(
            f"sample {ids[sample_of_row[i]]!r} has different labels: {originals[0]!r} in row {start}, {originals[1]!r} "
            f"in row {int(rows[i])}; a label belongs to the whole sample"
        )
    return labels[first].tolist(), class_names

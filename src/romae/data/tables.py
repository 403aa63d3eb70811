"""Tables: one row per measurement becomes one token of a sample.

Messages name rows by their place in the table, counting from 0.
"""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64

from romae.data.columns import (
    Name,
    TimeUnit,
    as_numbers,
    encode_labels,
    encode_names,
    numbers_from_dates,
    require_values,
)
from romae.data.series import SampleSet, Schema
from romae.tokens import Sample

if TYPE_CHECKING:
    import pandas as pd


def from_table(
    table: Any,
    *,
    id: str,
    time: str,
    channel: str | None = None,
    values: str | Sequence[str],
    label: str | None = None,
    positions: str | Sequence[str] = (),
    channels: Sequence[Name] | None = None,
    classes: Sequence[Name] | None = None,
    time_unit: TimeUnit = "second",
) -> SampleSet:
    """Samples from a long table: a pandas or pyarrow table, or the path of a CSV or Parquet file.

    Each row is one measurement of the sample `id` at `time`, with one or more `values` (flux and its error). Its
    position is the time, then the further `positions`, then the index of its `channel` if there is such a column.
    Rows may come in any order: samples are sorted by id, tokens by position, and repeated times are kept. Times may
    be dates, which become numbers counted in `time_unit` since 1970, to the microsecond.

    The `label` is one per sample: text and integers are classes, floats are numbers to predict. `channels` and
    `classes` fix the names and their order, for example those known from training; others are then an error. Rows
    that lack a value are dropped and counted in one warning.
    """
    schema = Schema(
        id=id,
        time=time,
        positions=(positions,) if isinstance(positions, str) else tuple(positions),
        channel=channel,
        values=(values,) if isinstance(values, str) else tuple(values),
        label=label,
    )
    if channel is None and channels is not None:
        raise ValueError("channels are named, but no channel column is; say which it is with channel=")
    frame = read_frame(table, schema.columns)
    if len(frame) == 0:
        raise ValueError("the table has no rows")
    sample_of_row, ids = encode_names(frame[id], None, f"id in column {id!r}", row_number)
    times, unit, zone = read_times(frame[time], time_unit)
    coordinates = {time: times} | {
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
            raise ValueError(f"row {int(np.isinf(x).argmax())}, column {name!r} is infinite; positions must be finite")
    value_table = np.stack(list(measured.values()), axis=1)
    require_values(value_table, lambda row, i: f"row {row}, column {schema.values[i]!r}")

    rows = _complete_rows(missing, sample_of_row, ids)
    # Ties are broken by the values, so that the result does not depend on the order of the rows.
    keys = [sample_of_row, *coordinates.values(), *measured.values()]
    rows = rows[np.lexsort([key[rows] for key in reversed(keys)])]
    counts = np.bincount(sample_of_row[rows], minlength=len(ids))
    targets, class_names = _read_targets(frame, schema, rows, counts, ids, classes)
    schema = replace(schema, channels=channel_names, classes=class_names, time_unit=unit, time_zone=zone)

    all_values = torch.from_numpy(value_table[rows].astype(np.float32)).split(counts.tolist())
    all_positions = torch.from_numpy(np.stack([x[rows] for x in coordinates.values()], 1)).split(counts.tolist())
    parts = zip(all_values, all_positions, targets, ids, strict=True)
    return SampleSet([Sample(v, p, target=target, id=name) for v, p, target, name in parts], schema)


def from_table_like(table: Any, schema: Schema) -> SampleSet:
    """Samples from another table with the columns, channels and classes of a schema, such as that of the training set.

    The label column may be absent.
    """
    label = schema.label if schema.label in _column_names(table) else None
    found = from_table(
        table,
        id=schema.id,
        time=schema.time,
        channel=schema.channel,
        values=schema.values,
        label=label,
        positions=schema.positions,
        channels=None if schema.channel is None else schema.channels,
        classes=None if label is None else schema.classes,
        time_unit=schema.time_unit or "second",
    )
    expected, actual = ("numbers" if one.time_unit is None else "dates" for one in (schema, found.schema))
    if expected != actual:
        raise ValueError(f"column {schema.time!r} holds {actual}, but the schema expects {expected}")
    return SampleSet(found.samples, schema)


def row_number(i: int) -> str:
    return f"row {i}"


def _column(name: str) -> str:
    return f"column {name!r}"


def _column_names(table: Any) -> list[Any]:
    import pandas as pd
    import pyarrow as pa
    from pyarrow import csv, parquet

    if isinstance(table, pd.DataFrame):
        return list(table.columns)
    if isinstance(table, pa.Table):
        return list(table.column_names)
    if not isinstance(table, str | Path):
        raise TypeError(f"expected a pandas DataFrame, a pyarrow Table or a path, not {type(table).__name__}")
    path = Path(table)
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    try:
        if path.suffix in (".parquet", ".pq"):
            return list(parquet.read_schema(path).names)
        if ".csv" in path.suffixes:
            with csv.open_csv(path) as reader:
                return list(reader.schema.names)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"cannot read {path}: {error}") from None
    raise ValueError(f"cannot tell what {path.name} is: expected .csv, .csv.gz or .parquet")


def read_frame(table: Any, columns: Sequence[str]) -> "pd.DataFrame":
    """The columns as a pandas table whose rows are numbered from 0."""
    import pandas as pd
    import pyarrow as pa
    from pyarrow import csv, parquet

    existing = _column_names(table)
    for column in columns:
        if existing.count(column) != 1:
            problem = "occurs more than once" if column in existing else "is not there"
            raise ValueError(f"column {column!r} {problem}; the table has {existing}")
    if isinstance(table, pd.DataFrame):
        return table[list(columns)].reset_index(drop=True)
    if not isinstance(table, pa.Table):
        try:
            if Path(table).suffix in (".parquet", ".pq"):
                table = parquet.read_table(table, columns=list(columns))
            else:
                options = csv.ConvertOptions(include_columns=list(columns), strings_can_be_null=True)
                table = csv.read_csv(table, convert_options=options)
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"cannot read {table}: {error}") from None
    return table.select(list(columns)).to_pandas(date_as_object=False, ignore_metadata=True)


def read_times(column: "pd.Series", unit: TimeUnit) -> tuple[Float64[np.ndarray, "n"], TimeUnit | None, str | None]:
    """Times as numbers, with their unit and time zone if they were dates."""
    from pandas.api import types

    if column.dtype == object:
        column = column.infer_objects()
    if types.is_datetime64_any_dtype(column.dtype):
        zone = column.dt.tz
        if zone is not None:
            column = column.dt.tz_convert("UTC").dt.tz_localize(None)
        dates = column.to_numpy(dtype="datetime64[us]")
        return numbers_from_dates(dates, unit), unit, None if zone is None else str(zone)
    try:
        return as_numbers(column, _column(str(column.name)), row_number), None, None
    except TypeError as error:
        raise TypeError(f"{error}; if these are dates, convert the column with pandas.to_datetime") from None


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
            f"dropped {n_dropped} of {len(complete)} rows with a missing value (in column {counts})", stacklevel=3
        )
    return rows


def _read_targets(
    frame: "pd.DataFrame",
    schema: Schema,
    rows: Int64[np.ndarray, "m"],
    counts: Int64[np.ndarray, "b"],
    ids: Sequence[Name],
    classes: Sequence[Name] | None,
) -> tuple[Sequence[Any], tuple[Name, ...] | None]:
    """The target of each sample, which all its rows must agree on, and the names of the classes."""
    if schema.label is None:
        return [None] * len(ids), None if classes is None else tuple(classes)
    sample_of_row = np.repeat(np.arange(len(ids)), counts)

    def place(i: int) -> str:
        return f"row {rows[i]} (sample {ids[sample_of_row[i]]!r})"

    labels, class_names = encode_labels(frame[schema.label].iloc[rows], classes, place)
    first = np.cumsum(counts) - counts
    differs = labels != labels[first][sample_of_row]
    if differs.any():
        i = int(differs.argmax())
        start = int(rows[first[sample_of_row[i]]])
        found = [frame[schema.label].iloc[row] for row in (start, int(rows[i]))]
        raise ValueError(
            f"sample {ids[sample_of_row[i]]!r} has different labels: {found[0]!r} in row {start}, {found[1]!r} in row "
            f"{int(rows[i])}; a label belongs to the whole sample"
        )
    return labels[first].tolist(), class_names

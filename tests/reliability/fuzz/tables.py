"""Tables in memory, of pandas and pyarrow, with columns, cells and arguments that are not as they should be.

The oracle reads the same table cell by cell in plain Python. Every number that the table holds must be in the samples,
under its id, time, positions and name, and no other.
"""

import math
from collections import Counter
from datetime import timedelta
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

import romae
from fuzz import hostile
from fuzz.judging import Trial, answered, require

COLUMNS = ("id", "time", "depth", "band", "value", "error", "kind")
Number = tuple[Any, ...]  # id, time, further positions, channel, column, value


def sound_table(trial: Trial) -> pd.DataFrame:
    """A long table in which nothing is wrong."""
    random, n_ids = trial.random, trial.number(2, 4)
    names: Any = trial.choose([["a", "b", "c", "d"], [3, 1, 2, 9], [10, 200, 3000, 40000], ["x 1", "ü", "7", "=2"]])
    counts = random.integers(2, 5, size=n_ids)
    ids = np.repeat(np.array(names[:n_ids], dtype=object), counts)
    n = len(ids)
    frame = pd.DataFrame({"id": pd.Series(ids).infer_objects()})
    frame["time"] = np.round(random.uniform(-50, 1000, size=n), 3)
    frame["depth"] = random.integers(0, 5, size=n).astype(float)
    frame["band"] = random.choice(["g", "r", "i"], size=n)
    frame["value"] = np.round(random.normal(size=n), 4)
    frame["error"] = np.round(random.uniform(0.1, 1, size=n), 4)
    frame["kind"] = np.repeat(random.choice(["up", "down"], size=n_ids), counts)
    if trial.chance(0.25):
        frame["time"] = pd.Timestamp("2024-03-01") + pd.to_timedelta(random.integers(0, 10**6, size=n), unit="s")
        if trial.chance(0.4):
            frame["time"] = frame["time"].dt.tz_localize("UTC")
    if trial.chance(0.2):
        frame["kind"] = np.repeat(np.round(random.normal(size=n_ids), 3), counts)
    return frame.iloc[random.permutation(n)].reset_index(drop=True)


def sound_arguments(trial: Trial) -> dict[str, Any]:
    """The arguments of `from_table` that fit `sound_table`."""
    arguments: dict[str, Any] = {"id": "id", "time": "time", "values": trial.choose(["value", ["value", "error"]])}
    if trial.chance(0.4):
        arguments["channel"] = "band"
    if trial.chance(0.3):
        arguments["positions"] = trial.choose(["depth", ["depth"]])
    if trial.chance(0.4):
        arguments["label"] = "kind"
    if trial.chance(0.2):
        arguments["time_unit"] = trial.choose(["second", "minute", "hour", "day"])
    return arguments


def attempt(trial: Trial) -> None:
    frame, arguments = sound_table(trial), sound_arguments(trial)
    n_changes = trial.number(0, 3) if trial.chance(0.9) else 0
    trial.is_sound = n_changes == 0
    for _ in range(n_changes):
        change = trial.choose([_cell, _cell, _cell, _dtype, _whole_column, _columns, _rows, _argument, _mixed_ids])
        before = frame
        frame = change(trial, frame, arguments)
        if frame is None:  # pandas itself has no such table
            frame = before
    trial.note(arguments)
    table: Any = frame
    if trial.chance(0.25):
        try:
            table = pa.Table.from_pandas(frame, preserve_index=False)
            frame = table.to_pandas(date_as_object=False, ignore_metadata=True)
        except (pa.ArrowException, ValueError, TypeError, OverflowError, AttributeError, KeyError):
            trial.note("no Arrow table")
        else:
            trial.note("Arrow")
    samples = romae.from_table(table, **arguments)
    with answered("samples of a table"):
        expected, found = numbers_of_table(frame, arguments), numbers_of_samples(samples, arguments)
        trial.note(_difference(expected, found))
        require(expected == found, "the numbers of the samples are not those of the table")
        _check_labels(samples, frame, arguments)
    if trial.chance(0.3):
        again = romae.from_table_like(table, samples.schema)
        with answered("from_table_like of the same table"):
            require(numbers_of_samples(again, arguments) == found, "from_table_like reads other numbers")
    if trial.chance(0.3):
        with answered("to_table"):
            back = romae.to_table(samples)
            require(len(back) == sum(map(len, samples)), "to_table has other rows")


def _difference(expected: Counter, found: Counter) -> str:
    lacking, extra = list((expected - found).items()), list((found - expected).items())
    return f"{len(lacking)} numbers lacking, {len(extra)} too many"


# Changes


def _cell(trial: Trial, frame: pd.DataFrame, arguments: dict[str, Any]) -> pd.DataFrame:
    column = trial.choose(COLUMNS)
    if column not in frame or isinstance(frame[column], pd.DataFrame) or not len(frame):
        return frame
    row, cell = trial.number(0, len(frame) - 1), hostile.thing(trial)
    if trial.chance(0.4):
        cell = None
    trial.note(f"row {row} of {column} is {cell!r}"[:100])
    cells = list(frame[column])
    cells[row] = cell
    return _with(frame, column, cells, infer=trial.chance(0.7))


def _with(frame: pd.DataFrame, column: str, cells: list[Any], *, infer: bool = True) -> Any:
    filled = np.empty(len(cells), dtype=object)
    for i, cell in enumerate(cells):
        filled[i] = cell
    changed = frame.copy()
    try:
        objects = pd.Series(filled, dtype=object, index=frame.index)
        changed[column] = objects.infer_objects() if infer else objects
    except (ValueError, TypeError, OverflowError):
        return None
    return changed


def _dtype(trial: Trial, frame: pd.DataFrame, arguments: dict[str, Any]) -> Any:
    column = trial.choose(COLUMNS)
    dtype = trial.choose(
        [
            *("object", "category", "Int64", "Float32", "float16", "float32", "int8", "uint64", "bool", "boolean"),
            *("string", "complex128", "timedelta64[ns]", "datetime64[ns]", "datetime64[s, Asia/Tokyo]", "str", ">f8"),
            *("int64[pyarrow]", "double[pyarrow]", "string[pyarrow]", "Sparse[float64]", "period[D]", "longdouble"),
        ]
    )
    trial.note(f"{column} as {dtype}")
    try:
        return frame.astype({column: dtype})
    except (ValueError, TypeError, KeyError, NotImplementedError, OverflowError, AttributeError, pa.ArrowException):
        return None


def _whole_column(trial: Trial, frame: pd.DataFrame, arguments: dict[str, Any]) -> Any:
    column, cell = trial.choose(COLUMNS), hostile.thing(trial)
    trial.note(f"all of {column} is {cell!r}"[:100])
    return _with(frame, column, [cell] * len(frame)) if column in frame else frame


def _columns(trial: Trial, frame: pd.DataFrame, arguments: dict[str, Any]) -> Any:
    kind, column = trial.choose(["renamed", "dropped", "twice", "numbered", "levels"]), trial.choose(COLUMNS)
    trial.note(f"column {column} {kind}")
    if kind == "renamed":
        return frame.rename(columns={column: hostile.text(trial)})
    if kind == "dropped":
        return frame.drop(columns=column, errors="ignore")
    if kind == "twice":
        return pd.concat([frame, frame[[column]]], axis=1) if column in frame else frame
    changed = frame.copy()
    changed.columns = range(len(frame.columns)) if kind == "numbered" else pd.MultiIndex.from_product([["a"], frame])  # type: ignore[assignment]
    return changed


def _rows(trial: Trial, frame: pd.DataFrame, arguments: dict[str, Any]) -> Any:
    kind = trial.choose(["none", "one", "doubled", "indexed", "reversed"])
    trial.note(f"rows: {kind}")
    if kind in ("none", "one"):
        return frame.iloc[: int(kind == "one")]
    if kind == "doubled":
        return pd.concat([frame, frame])
    if kind == "indexed":
        return frame.set_index(pd.Index([hostile.text(trial)] * len(frame), dtype=object))
    return frame.iloc[::-1] if len(frame) else frame


def _mixed_ids(trial: Trial, frame: pd.DataFrame, arguments: dict[str, Any]) -> Any:
    mixtures: list[list[Any]] = [
        [1, True, 1.0],
        [1, "1"],
        [0, False],
        [1.0, 2.0, 2],
        [2**53, float(2**53)],
        ["a", None],
    ]
    mixture = [*mixtures, [2**63, 1], [-0.0, 0], ["a", "a "], [math.nan, 1], [pd.NA, "x"], [np.int8(1), 1, True]]
    column, names = trial.choose(["id", "id", "band", "kind"]), trial.choose(mixture)
    trial.note(f"{column} of {names}")
    if column not in frame:
        return frame
    cells = np.empty(len(frame), dtype=object)
    for i in range(len(frame)):
        cells[i] = names[i % len(names)]
    return frame.assign(**{column: pd.Series(cells, dtype=object, index=frame.index)})


def _argument(trial: Trial, frame: pd.DataFrame, arguments: dict[str, Any]) -> Any:
    name = trial.choose(["id", "time", "values", "channel", "positions", "label", "time_unit", "channels", "classes"])
    others: list[Any] = [
        hostile.thing(trial),
        *COLUMNS,
        ["value", "value"],
        ["g", "r", "i"],
        ("up", "down"),
        [],
        [1, 2],
    ]
    arguments[name] = trial.choose(others)
    trial.note(f"{name}={arguments[name]!r}"[:100])
    return frame


# The oracle


def is_missing(cell: Any) -> bool:
    """None, NaN and their kin."""
    if cell is None or cell is pd.NA or cell is pd.NaT or cell is np.ma.masked:
        return True
    if isinstance(cell, np.datetime64):
        return bool(np.isnat(cell))
    try:
        return bool(cell != cell)
    except (TypeError, ValueError, ArithmeticError):
        return True  # a signalling NaN


SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}


def _time(cell: Any, unit: str) -> float:
    if isinstance(cell, np.timedelta64 | timedelta):  # pandas' durations are timedeltas too
        return pd.Timedelta(cell).value / (SECONDS[unit] * 10**9)
    if isinstance(cell, np.datetime64 | pd.Timestamp) or hasattr(cell, "tzinfo"):
        stamp = pd.Timestamp(cell)
        stamp = stamp.tz_convert("UTC").tz_localize(None) if stamp.tzinfo is not None else stamp
        microseconds = int(np.datetime64(stamp, "us").astype(np.int64))
        return microseconds / (SECONDS[unit] * 10**6)
    return float(cell)


def _name(cell: Any) -> tuple[str, Any]:
    if isinstance(cell, str):
        return ("text", str(cell))
    if isinstance(cell, bool | np.bool_):
        return ("bool", bool(cell))
    if isinstance(cell, int | np.integer):
        return ("int", int(cell))
    return ("float", float(cell))


def _names(cells: list[Any]) -> list[Any]:
    """Each cell as a name; floats that are whole are integers if they are among themselves."""
    names = [None if is_missing(cell) else _name(cell) for cell in cells]
    kinds = {name[0] for name in names if name is not None}
    if kinds == {"float"}:
        names = [None if name is None else ("int", int(name[1])) for name in names]
    return names


def _columns_of(arguments: dict[str, Any], role: str) -> list[str]:
    named = arguments.get(role, ())
    return [named] if isinstance(named, str) else [] if named is None else list(named)


def numbers_of_table(frame: pd.DataFrame, arguments: dict[str, Any]) -> Counter:
    """Every number of a table that has an id, a time, its positions and a channel."""
    unit = arguments.get("time_unit") or "second"
    cells = {name: list(frame[name]) for name in frame.columns if isinstance(name, str)}
    ids, times = _names(cells[arguments["id"]]), cells[arguments["time"]]
    axes = [cells[name] for name in _columns_of(arguments, "positions")]
    channel = arguments.get("channel")
    bands = [("", "")] * len(frame) if channel is None else _names(cells[channel])
    numbers: Counter = Counter()
    for i in range(len(frame)):
        coordinates = [times[i], *(axis[i] for axis in axes)]
        if ids[i] is None or bands[i] is None or any(map(is_missing, coordinates)):
            continue
        columns = _columns_of(arguments, "values")
        if channel is not None and any(is_missing(cells[name][i]) for name in columns):
            continue  # the values of a channel belong together; the warning counts such rows
        for name in columns:
            if not is_missing(cells[name][i]):
                place = (_time(times[i], unit), *(float(x) for x in coordinates[1:]))
                with np.errstate(over="ignore"):
                    value = float(np.float32(float(cells[name][i])))
                numbers[(ids[i], place, bands[i], name, value)] += 1
    return numbers


def numbers_of_samples(samples: Any, arguments: dict[str, Any]) -> Counter:
    """Every number of the samples, as `numbers_of_table` tells them."""
    schema, numbers = samples.schema, Counter()  # type: ignore[var-annotated]
    has_own_channel = schema.channel is not None and arguments.get("channel") is None  # values became channels
    for sample in samples:
        for row, place in zip(sample.values.tolist(), sample.positions.tolist(), strict=True):
            band: tuple[str, Any] = ("", "")
            if schema.channel is not None:
                *place, index = place
                band = _name(schema.channels[int(index)])
            for column, value in zip(schema.values, row, strict=True):
                name = str(band[1]) if has_own_channel else column
                numbers[(_name(sample.id), tuple(place), ("", "") if has_own_channel else band, name, value)] += 1
    return numbers


def _check_labels(samples: Any, frame: pd.DataFrame, arguments: dict[str, Any]) -> None:
    label = arguments.get("label")
    if label is None:
        return
    of_id = dict(zip(_names(list(frame[arguments["id"]])), list(frame[label]), strict=True))
    for sample in samples:
        labels = [
            x for i, x in zip(_names(list(frame[arguments["id"]])), frame[label], strict=True) if i == _name(sample.id)
        ]
        require(of_id[_name(sample.id)] is not None, "a missing label was accepted")
        if samples.schema.classes is None:
            require(any(float(np.float32(float(x))) == float(sample.target) for x in labels), "another label")
        else:
            name = _name(samples.schema.classes[int(sample.target)])
            require(name in _names(labels), "another class")

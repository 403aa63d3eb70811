"""Queries: the positions and channels of which people want to know values, from a table or as an even grid of times.

Shapes: q queries, d position dimensions.
"""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from romae.data import frames
from romae.data.columns import Name, as_numbers, encode_names
from romae.data.dates import read_times, require_same_zone
from romae.data.schema import SampleSet, Schema

MOST_TIMES = 10**7  # of a grid, in 80 MB for each channel


def channel_numbers(channels: Any, known: Sequence[Name]) -> list[int]:
    """The numbers of channels that are asked for by name or by number from 0 on; a name goes before a number.

    One of them need not be in a list. Others than those that are known are refused, and so is one that is named twice.
    """
    requested = [channels] if isinstance(channels, str | int | np.integer) else channels
    if not isinstance(requested, Sequence | np.ndarray) or not all(
        isinstance(channel, str | int | np.integer) for channel in requested
    ):
        raise TypeError(f"channels are names or numbers of channels, such as {list(known[:2])}, not {channels!r}")
    if len(requested) == 0:
        raise ValueError("channels are empty; name at least one, or leave them out for all")
    by_name = {str(name): i for i, name in enumerate(known)}
    by_number = {str(i): i for i in range(len(known))}
    numbers = []
    for channel in requested:
        number = by_name.get(str(channel), by_number.get(str(channel)))
        if number is None:
            raise ValueError(
                f"unknown channel {channel!r}; there are {_shortened(', '.join(map(str, known)), 1000)}, or by number "
                f"0 to {len(known) - 1}"
            )
        if number in numbers:
            raise ValueError(f"channel {known[number]!r} is asked for twice; name it once")
        numbers.append(number)
    return numbers


def grid_of_times(text: str, schema: Schema, channels: Sequence[int] | None = None) -> Float64[np.ndarray, "n d"]:
    """Evenly spaced times, written as start:stop:n, for every channel or for those of these numbers."""
    if schema.positions:
        raise ValueError(
            f"a grid of times leaves the positions {list(schema.positions)} open; ask with a table of queries instead"
        )
    *ends, count = text.split(":")
    half = len(ends) // 2  # a date may itself hold colons
    if len(ends) < 2 or len(ends) % 2 or not count.isdecimal() or not count.strip("0"):
        raise ValueError(f"cannot read the grid {_shortened(text)!r}; write it as start:stop:n, for example 0:10:101")
    if len(count) > len(str(MOST_TIMES)) or int(count) > MOST_TIMES:
        raise ValueError(
            f"there is not enough memory for the grid {_shortened(text)!r}; ask for {MOST_TIMES:,} times at most"
        )
    start, stop = (_time(":".join(end), schema) for end in (ends[:half], ends[half:]))
    times = np.linspace(start, stop, int(count))
    if schema.channel is None:
        return times[:, None]
    index = np.array(range(len(schema.channels)) if channels is None else channels, dtype=np.float64)
    return np.stack([np.tile(times, len(index)), np.repeat(index, len(times))], axis=1)


def _time(text: str, schema: Schema) -> float:
    import pandas as pd

    zone = schema.time_zone
    try:
        if schema.time_unit is None or (schema.durations and ":" not in text):
            number = float(text)
        else:
            cell = pd.Series([text if schema.durations else pd.Timestamp(text)])
            times = read_times(cell, schema.time_unit, schema.time_zone, "the grid", frames.row_number)
            number, zone = float(times.numbers[0]), times.zone
    except (ValueError, TypeError, OverflowError):
        number = float("nan")
    require_same_zone(zone, schema.time_zone, "the grid")
    if not np.isfinite(number):
        expected, such_as = (
            ("a number", "48.5")
            if schema.time_unit is None
            else ("a duration", "36:00")
            if schema.durations
            else ("a date", "2024-03-01")
        )
        raise ValueError(
            f"cannot read {_shortened(text)!r} as {expected}, which the times in column {schema.time!r} are; write it "
            f"as {such_as}"
        )
    return number


def _shortened(text: str, length: int = 40) -> str:
    """A text as messages show it: whole, or its first characters."""
    return text if len(text) <= length else f"{text[:length]}…"


def read_queries(
    table: Any, samples: SampleSet, left_out: Sequence[Hashable] = ()
) -> tuple[list[Float64[np.ndarray, "_ d"]], Int64[np.ndarray, "q"]]:
    """The positions asked for in each sample, and where each query lies once they are laid end to end.

    Queries for ids that are left out are left out as well.
    """
    schema = samples.schema
    optional = [] if schema.channel is None else [schema.channel]
    try:
        vocabularies = {schema.id: [sample.id for sample in samples]} | dict.fromkeys(optional, schema.channels)
        frame = frames.read_frame(table, [schema.id, schema.time, *schema.positions, *optional], vocabularies)
        if left_out:
            frame = frame[~frame[schema.id].isin(left_out)].reset_index(drop=True)
        if len(frame) == 0:
            raise ValueError("the table has no rows")
        ids, names = encode_names(frame[schema.id], None, f"id in column {schema.id!r}", frames.row_number)
        unit, time_column = schema.time_unit or "second", f"column {schema.time!r}"
        every = np.arange(len(frame))  # queries come in any order
        times = read_times(frame[schema.time], unit, schema.time_zone, time_column, frames.row_number, every)
        require_same_clock(
            replace(schema, time_unit=times.unit, durations=times.are_durations), schema, subject=time_column
        )
        require_same_zone(times.zone, schema.time_zone, time_column)
        coordinates = {schema.time: times.numbers}
        for axis in schema.positions:
            coordinates[axis] = as_numbers(frame[axis], f"column {axis!r}", frames.row_number)
        if schema.channel is not None:
            role = f"channel in column {schema.channel!r}"
            index, _ = encode_names(frame[schema.channel], schema.channels, role, frames.row_number)
            coordinates[schema.channel] = np.where(index < 0, np.nan, index)
        wrong = {schema.id: ids < 0} | {name: ~np.isfinite(x) for name, x in coordinates.items()}
        for column, mask in wrong.items():
            if mask.any():
                raise ValueError(
                    f"row {int(mask.argmax())}, column {column!r} is missing or infinite; a query needs it"
                )
        place: dict[Hashable, int] = {sample.id: i for i, sample in enumerate(samples)}
        for i, name in enumerate(names):
            if name not in place:
                raise ValueError(f"row {int((ids == i).argmax())} asks for {schema.id} {name!r}, which the data lack")
    except (ValueError, TypeError) as error:
        raise ValueError(f"the table of queries: {error}") from None
    sample_of_row = np.array([place[name] for name in names])[ids]
    by_sample = np.argsort(sample_of_row, kind="stable")
    counts = np.bincount(sample_of_row, minlength=len(samples))
    rows = np.stack(list(coordinates.values()), axis=1)[by_sample]
    return np.split(rows, np.cumsum(counts)[:-1]), np.argsort(by_sample)


def require_same_clock(schema: Schema, expected: Schema, *, subject: str) -> None:
    """Refuse times of another form than expected, such as numbers for dates, or dates that are counted otherwise."""
    if (schema.time_unit, schema.durations) != (expected.time_unit, expected.durations):
        raise ValueError(f"{subject} holds {schema.form_of_times}, but {expected.form_of_times} are expected")

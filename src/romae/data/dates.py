"""Dates and durations as numbers and back, in a unit: the time since 1970, with or without a time zone, or since 0.

Times of day, such as 08:30, are durations since midnight. Shapes: n times.
"""

import contextlib
import re
from datetime import datetime, time, timedelta, timezone, tzinfo
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float64, Int64, Shaped

from romae.data.columns import Place, as_numbers, inferred, is_number, missing_in

if TYPE_CHECKING:
    import pandas as pd

TimeUnit = Literal["second", "minute", "hour", "day"]

_UTC = ("UTC", "UTC+00:00", "Etc/UTC", "tzutc()")
_MICROSECONDS = {"second": 10**6, "minute": 60 * 10**6, "hour": 3600 * 10**6, "day": 86400 * 10**6}
# 08:30, 48:00, 08:30:15.25, and what pandas makes of a duration in a CSV file: 2 days 08:30:00, -1 days +23:00:00
_CLOCK = re.compile(r"(?:(-?[0-9]+) days? \+?)?(-?)([0-9]+):([0-5][0-9])(?::([0-5][0-9])(?:\.([0-9]{1,9}))?)?")


class ReadTimes(NamedTuple):
    """Times as numbers; the unit and the time zone that dates were counted in, or the unit of durations."""

    numbers: Float64[np.ndarray, "n"]
    unit: TimeUnit | None = None
    zone: str | None = None
    are_durations: bool = False


def require_unit(unit: Any) -> None:
    """Refuse a unit of time that there is not."""
    if not isinstance(unit, str) or unit not in _MICROSECONDS:
        raise ValueError(f"there is no time unit {unit!r}; there are second, minute, hour and day")


def _microseconds(unit: TimeUnit) -> int:
    require_unit(unit)
    return _MICROSECONDS[unit]


def read_times(
    column: "pd.Series",
    unit: TimeUnit,
    zone: str | None,
    name: str,
    place: Place,
    series: Int64[np.ndarray, "n"] | None = None,
) -> ReadTimes:
    """Times as numbers, with their unit and time zone if they were dates; `zone` is that of dates without one.

    Nanoseconds of several samples may become the same number; those of one sample are for the caller to look at.
    `series` says which rows belong together: times of day must not go back within one. By default all do.
    """
    import pandas as pd
    from pandas.api import types

    if column.dtype == object:
        column = inferred(column)
    if types.is_datetime64_any_dtype(column.dtype):
        dates = pd.DatetimeIndex(column)
        own = dates.tz
        dates = in_utc(dates, zone, lambda i: f"{place(i)}, {name}")
        own_zone = zone if own is None else _zone_name(own, name)
        return ReadTimes(numbers_from_dates(dates.to_numpy(), unit), unit, own_zone)
    if getattr(column.dtype, "kind", "") == "m":  # also that of pyarrow
        return ReadTimes(_numbers_from_durations(pd.TimedeltaIndex(column).to_numpy(), unit), unit, None, True)
    if (durations := _times_of_day(column, name, place, series)) is not None:
        return ReadTimes(_numbers_from_durations(durations, unit), unit, None, True)
    try:
        return ReadTimes(as_numbers(column, name, place, exact=False))
    except TypeError as error:
        strange = next(value for value in column.dropna() if not is_number(value))
        raise TypeError(f"{error}; {_advice_on_time(strange)}") from None


def _times_of_day(
    column: "pd.Series", name: str, place: Place, series: Int64[np.ndarray, "n"] | None
) -> Shaped[np.ndarray, "n"] | None:
    """Clock times, text or objects, as durations since midnight; None where the column does not begin with one.

    Rows that go on after midnight look like rows in no order. Neither is guessed: a series goes forward, or it says
    with hours from 24 on that they count on.
    """
    from pandas.api import types

    if types.is_numeric_dtype(column.dtype):
        return None
    rows = np.flatnonzero(~missing_in(column, place))
    if not len(rows) or _clock(column.iloc[rows[0]]) is None:
        return None
    durations = np.full(len(column), np.timedelta64("NaT"), dtype="timedelta64[us]")
    cells = column.tolist()
    for row in rows.tolist():
        duration = _clock(cells[row])
        if duration is None:
            raise TypeError(
                f"{name} holds times of day such as {cells[rows[0]]!s}, and {place(row)} is {cells[row]!r}; write all "
                "of them as HH:MM or HH:MM:SS"
            )
        durations[row] = duration
    rows = rows if series is None else rows[series[rows] >= 0]  # those without an id belong to none
    group = np.zeros(len(rows), dtype=np.int64) if series is None else series[rows]
    by_series = np.argsort(group, kind="stable")  # in the order of their rows within each
    ordered, group, rows = durations[rows][by_series], group[by_series], rows[by_series]
    goes_on = np.isin(group, group[(ordered >= np.timedelta64(1, "D")) | (ordered < np.timedelta64(0))])
    goes_back = (np.diff(ordered) < np.timedelta64(0)) & (np.diff(group) == 0) & ~goes_on[1:]
    if goes_back.any():
        i = int(goes_back.argmax())
        before, after = rows[i : i + 2].tolist()
        raise ValueError(
            f"{name} goes back from {cells[before]!s} to {cells[after]!s} within one series ({place(after)}); if it "
            "goes on after midnight, give dates, such as 2024-03-01 23:50, or count the hours on, such as 24:10; else "
            "sort the rows by time"
        )
    return durations


def _clock(cell: Any) -> np.timedelta64 | None:
    """The time since midnight that a cell says, to the microsecond; None where it says none."""
    if isinstance(cell, time):
        if cell.tzinfo is not None:
            return None
        seconds = 3600 * cell.hour + 60 * cell.minute + cell.second
        return np.timedelta64(10**6 * seconds + cell.microsecond, "us")
    match = _CLOCK.fullmatch(cell.strip()) if isinstance(cell, str) else None
    if match is None or len(cell) > 40:  # of more digits none is a time
        return None
    days, sign, hours, minutes, seconds_text, fraction = match.groups()
    seconds = 3600 * int(hours) + 60 * int(minutes) + int(seconds_text or 0)
    microseconds = 10**6 * seconds + int((fraction or "0")[:6].ljust(6, "0"))
    microseconds = (-microseconds if sign else microseconds) + _MICROSECONDS["day"] * int(days or 0)
    return np.timedelta64(microseconds, "us") if abs(microseconds) < 2**62 else None


def _numbers_from_durations(durations: Shaped[np.ndarray, "n"], unit: TimeUnit) -> Float64[np.ndarray, "n"]:
    """Durations in a unit, of nanoseconds too; NaN for missing ones."""
    is_fine = durations.dtype == np.dtype("timedelta64[ns]")  # others may be too long to be counted in nanoseconds
    exact = durations if is_fine else durations.astype("timedelta64[us]")
    per_unit = _microseconds(unit) * (1_000 if is_fine else 1)
    return np.where(np.isnat(exact), np.nan, exact.astype(np.int64) / per_unit)


def durations_from_numbers(numbers: Float64[np.ndarray, "n"], unit: TimeUnit) -> "pd.TimedeltaIndex":
    """Durations in a unit as those of pandas, to the microsecond."""
    import pandas as pd

    return pd.TimedeltaIndex(np.rint(numbers * _microseconds(unit)).astype(np.int64).astype("timedelta64[us]"))


def _advice_on_time(value: Any) -> str:
    """What to do with a time that is neither a number nor a date."""
    import pandas as pd

    if isinstance(value, timedelta | np.timedelta64):
        return "make all times durations, or count them in a unit, for example in hours: x / pandas.Timedelta(hours=1)"
    if isinstance(value, pd.Period):
        return "turn periods into dates first: x.dt.to_timestamp(), or x.to_timestamp() of an index"
    if isinstance(value, time) or re.fullmatch(r"[0-9]+:[0-9]+(:[0-9.]+)?", str(value).strip()):
        return "times of day are HH:MM or HH:MM:SS throughout, with minutes and seconds below 60 and no time zone"
    if isinstance(value, datetime):  # pandas makes no column of dates in several zones
        return "bring dates of several time zones into one: pandas.to_datetime(x, utc=True)"
    return "if these are dates, convert the column with pandas.to_datetime, or write them as 2024-03-01 08:00"


def _zone_name(zone: tzinfo, column: str) -> str:
    """The name by which pandas knows a time zone."""
    import pandas as pd

    offset = zone.utcoffset(None)  # None where it changes over the year
    for name in [str(zone), *([] if offset is None else [str(timezone(offset))])]:
        try:
            pd.Timestamp(0, tz=name)
            return name
        except (KeyError, ValueError):
            continue
    raise ValueError(
        f"the time zone {zone} of {column} has no name to keep it by; convert the dates with "
        ".dt.tz_convert('Europe/Berlin') or the like"
    )


def require_same_zone(own_zone: tzinfo | str | None, expected_zone: str | None, name: str) -> None:
    """Refuse dates with a time zone where none is expected, or the reverse: they would be hours apart.

    UTC is welcome where none is expected, since such dates are counted like it.
    """
    if (own_zone is None) == (expected_zone is None) or (expected_zone is None and str(own_zone) in _UTC):
        return
    has, have = ("no time zone" if zone is None else f"the time zone {zone}" for zone in (own_zone, expected_zone))
    fix = (
        "give them theirs: x.dt.tz_localize(…)"
        if own_zone is None
        else "bring them to the same clock and drop the zone: x.dt.tz_convert(…).dt.tz_localize(None)"
    )
    raise ValueError(f"the dates of {name} have {has}, but those that are known have {have}; {fix}")


def numbers_from_dates(dates: np.ndarray, unit: TimeUnit) -> Float64[np.ndarray, "n"]:
    """Dates as numbers: the time since 1970 in a unit, read to the microsecond; NaN for missing dates."""
    exact = dates.astype("datetime64[us]")
    return np.where(np.isnat(exact), np.nan, exact.astype(np.int64) / _microseconds(unit))


def in_utc(dates: "pd.DatetimeIndex", zone: str | None, place: Place) -> "pd.DatetimeIndex":
    """Dates in UTC; those without a time zone are taken in this one, if it is given."""
    if dates.tz is not None:
        return dates.tz_convert("UTC").tz_localize(None)
    if zone is None:
        return dates
    try:
        localised = dates.tz_localize(zone, ambiguous="NaT", nonexistent="NaT")
    except (KeyError, ValueError):
        raise ValueError(f"there is no time zone {zone!r}; give a name such as 'Europe/Berlin' or 'UTC'") from None
    unclear = localised.isna() & dates.notna()
    if unclear.any():
        i = int(unclear.argmax())
        raise ValueError(
            f"{place(i)}: {dates[i]} comes twice or never in {zone}, where the clocks change; give the dates with "
            "their time zone, such as UTC"
        )
    return localised.tz_convert("UTC").tz_localize(None)


def positions_as_numbers(
    x: np.ndarray, unit: TimeUnit | None, zone: str | None, where: str, *, are_durations: bool = False
) -> np.ndarray:
    """Positions that were asked for, dates and durations as numbers; dates without a zone are in that of the data.

    Of positions [q, d] the first column is the time; the others hold numbers, also beside dates.
    """
    import pandas as pd

    form = _form_of_times(x)
    if form is None or (form == "times of day" and not are_durations):
        return x
    known = "numbers" if unit is None else "durations" if are_durations else "dates"
    if (form == "dates") != (known == "dates") or unit is None:
        raise TypeError(f"{where} are {form}, but the times of the data are {known}; give them in the same form")
    times, *others = x.T if x.ndim == 2 and x.size else [x.ravel()]
    if form == "dates":
        columns = [_date_numbers(times, unit, zone, where)]
    else:
        every = np.arange(len(times))  # queries come in any order
        columns = [read_times(pd.Series(times), unit, None, where, lambda i: f"query {i}", every).numbers]
    for axis, column in enumerate(others, start=1):
        columns.append(as_numbers(pd.Series(column), f"column {axis} of {where}", lambda i: f"query {i}"))
    return np.stack(columns, axis=1).reshape(x.shape)


def _form_of_times(x: np.ndarray) -> Literal["dates", "durations", "times of day"] | None:
    """What positions hold that are no numbers, by the first of them that tells."""
    if x.dtype.kind in "Mm":
        return "dates" if x.dtype.kind == "M" else "durations"
    if x.dtype == object and any(map(_is_date, x.flat)):
        return "dates"
    if x.dtype == object and any(isinstance(entry, timedelta | np.timedelta64) for entry in x.flat):
        return "durations"
    if x.dtype.kind in "UO" and any(_clock(entry) is not None for entry in x.flat):
        return "times of day"
    return None


def _is_date(x: Any) -> bool:
    return isinstance(x, datetime | np.datetime64)


def _date_numbers(
    times: Shaped[np.ndarray, "n"], unit: TimeUnit, zone: str | None, where: str
) -> Float64[np.ndarray, "n"]:
    import pandas as pd

    is_date = np.ones(len(times), dtype=bool) if times.dtype.kind == "M" else np.array([*map(_is_date, times)])
    if not is_date.all():
        i = int(is_date.argmin())
        raise TypeError(f"{where} hold dates, but the time of query {i} is {times[i]!r}; give dates throughout")
    try:
        dates = pd.DatetimeIndex(times)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{where} cannot be read as dates: {error}") from None
    if dates.tz is not None:
        require_same_zone(dates.tz, zone, where)
    return numbers_from_dates(in_utc(dates, zone, lambda i: f"{where}, number {i}").to_numpy(), unit)


def dates_from_numbers(numbers: Float64[np.ndarray, "n"], unit: TimeUnit, zone: str | None) -> "pd.DatetimeIndex":
    """The inverse of `numbers_from_dates`, in a time zone if one is given."""
    import pandas as pd

    dates = pd.DatetimeIndex(np.rint(numbers * _microseconds(unit)).astype(np.int64).astype("datetime64[us]"))
    return dates if zone is None else dates.tz_localize("UTC").tz_convert(zone)


def moment_as_number(
    moment: Any, unit: TimeUnit | None, zone: str | None, where: str, *, are_durations: bool = False
) -> float:
    """A moment in the form of the times of the data, also as text, as a number; anything else is refused."""
    import pandas as pd

    if is_number(moment):
        if unit is not None:
            form = "durations" if are_durations else "dates"
            raise TypeError(f"{where} is the number {moment}, but the times of the data are {form}; give one of these")
        return float(moment)
    if unit is None:
        try:
            return float(moment)
        except (TypeError, ValueError):
            raise TypeError(f"{where} is {moment!r}, but the times of the data are numbers; give a number") from None
    if are_durations:
        return duration_as_number(moment, unit, where)
    if isinstance(moment, timedelta | np.timedelta64):
        raise TypeError(f"{where} is a duration, but the times of the data are dates; give a date")
    try:
        date = pd.Timestamp(moment)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(
            f"{where} is {moment!r}, which is no date; write it as 2024-03-01 or 2024-03-01 08:00"
        ) from None
    if date is pd.NaT:
        raise ValueError(f"{where} is no date")
    return float(_date_numbers(np.array([date], dtype=object), unit, zone, where)[0])


def duration_as_number(length: Any, unit: TimeUnit | None, where: str) -> float:
    """A length of time in the unit of the data: a number in it, a duration, or text such as "24h" or "2 days"."""
    import pandas as pd

    is_text = isinstance(length, str)
    with contextlib.suppress(ValueError):
        if is_number(length) or is_text:
            return float(length)
    if unit is None:
        raise TypeError(f"{where} is {length!r}, but the times of the data are numbers without a unit; give a number")
    try:
        clock = _clock(length) if is_text else None
        duration = pd.Timedelta(length if clock is None else clock)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(
            f'{where} is {length!r}, which is no duration; write it as "24h", "30min" or "2 days"'
        ) from None
    if duration is pd.NaT:
        raise ValueError(f"{where} is no duration")
    return float(duration / pd.Timedelta(microseconds=_microseconds(unit)))

"""Dates as numbers and back: the time since 1970 in a unit, with or without a time zone. Shapes: n times."""

import re
from datetime import datetime, time, timedelta, timezone, tzinfo
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float64, Shaped

from romae.data.columns import Place, as_numbers, inferred, is_number

if TYPE_CHECKING:
    import pandas as pd

TimeUnit = Literal["second", "minute", "hour", "day"]

_UTC = ("UTC", "UTC+00:00", "Etc/UTC", "tzutc()")
_MICROSECONDS = {"second": 10**6, "minute": 60 * 10**6, "hour": 3600 * 10**6, "day": 86400 * 10**6}


def require_unit(unit: Any) -> None:
    """Refuse a unit of time that there is not."""
    if not isinstance(unit, str) or unit not in _MICROSECONDS:
        raise ValueError(f"there is no time unit {unit!r}; there are second, minute, hour and day")


def _microseconds(unit: TimeUnit) -> int:
    require_unit(unit)
    return _MICROSECONDS[unit]


def read_times(
    column: "pd.Series", unit: TimeUnit, zone: str | None, name: str, place: Place
) -> tuple[Float64[np.ndarray, "n"], TimeUnit | None, str | None]:
    """Times as numbers, with their unit and time zone if they were dates; `zone` is that of dates without one.

    Nanoseconds of several samples may become the same number; those of one sample are for the caller to look at.
    """
    import pandas as pd
    from pandas.api import types

    if column.dtype == object:
        column = inferred(column)
    if types.is_datetime64_any_dtype(column.dtype):
        dates = pd.DatetimeIndex(column)
        own = dates.tz
        dates = in_utc(dates, zone, lambda i: f"{place(i)}, {name}")
        return numbers_from_dates(dates.to_numpy(), unit), unit, zone if own is None else _zone_name(own, name)
    try:
        return as_numbers(column, name, place, exact=False), None, None
    except TypeError as error:
        strange = next(value for value in column.dropna() if not is_number(value))
        raise TypeError(f"{error}; {_advice_on_time(strange)}") from None


def _advice_on_time(value: Any) -> str:
    """What to do with a time that is neither a number nor a date."""
    import pandas as pd

    if isinstance(value, timedelta | np.timedelta64):
        return "count durations in a unit first, for example in hours: x / pandas.Timedelta(hours=1)"
    if isinstance(value, pd.Period):
        return "turn periods into dates first: x.dt.to_timestamp(), or x.to_timestamp() of an index"
    if isinstance(value, time) or re.fullmatch(r"[0-9]+:[0-9]+(:[0-9.]+)?", str(value).strip()):
        return "a time of day lacks its day: write 2024-03-01 08:00, or a number such as that of hours"
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


def positions_as_numbers(x: np.ndarray, unit: TimeUnit | None, zone: str | None, where: str) -> np.ndarray:
    """Positions that were asked for, dates as numbers; dates without a time zone are taken in that of the data.

    Of positions [q, d] the first column is the time; the others hold numbers, also beside dates.
    """
    import pandas as pd

    if x.dtype.kind != "M" and not (x.dtype == object and any(map(_is_date, x.flat))):
        return x
    if unit is None:
        raise TypeError(f"{where} are dates, but the times of the data are numbers; give them in the same unit")
    times, *others = x.T if x.ndim == 2 and x.size else [x.ravel()]
    columns = [_date_numbers(times, unit, zone, where)]
    for axis, column in enumerate(others, start=1):
        columns.append(as_numbers(pd.Series(column), f"column {axis} of {where}", lambda i: f"query {i}"))
    return np.stack(columns, axis=1).reshape(x.shape)


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

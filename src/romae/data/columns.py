"""Columns: what every reader of series and tables checks and converts.

Numbers, names, labels and dates come in as lists, arrays or pandas columns and leave as numpy arrays; messages name
the place of whatever cannot be used. Shapes: n rows, c columns.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from datetime import datetime
from numbers import Integral, Number
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64, Shaped
from torch import Tensor

from romae.arrays import native

if TYPE_CHECKING:
    import pandas as pd

Name = str | int | bool
TimeUnit = Literal["second", "minute", "hour", "day"]
Place = Callable[[int], str]

_MICROSECONDS = {"second": 10**6, "minute": 60 * 10**6, "hour": 3600 * 10**6, "day": 86400 * 10**6}
_LARGEST_EXACT = 2**53 - 1  # beyond it, floats stand for several integers
_LARGEST_VALUE = np.float64(np.finfo(np.float32).max)
_LOST = 0.05  # of a column's deviation


def to_numpy(x: Any) -> np.ndarray:
    """An array, a list or a tensor on any device as a numpy array of numbers that torch and pandas know.

    What is masked becomes missing: NaN, NaT or None. Numbers are in the byte order of this machine, and those of more
    than 64 bits are rounded to 64.
    """
    if isinstance(x, Tensor):
        return (x.float() if x.dtype == torch.bfloat16 else x).detach().cpu().numpy()  # numpy has no bfloat16
    holds_masked = isinstance(x, list | tuple) and any(isinstance(one, np.ma.MaskedArray) and one.ndim for one in x)
    found = _unmasked(np.ma.array(x)) if holds_masked or isinstance(x, np.ma.MaskedArray) else np.asarray(x)
    return found.astype(native(found.dtype), copy=False)


def _unmasked(x: np.ma.MaskedArray) -> np.ndarray:
    if not np.ma.is_masked(x):
        return x.data
    kind: np.dtype = x.dtype
    missing: Any = np.nan
    if kind.kind in "iub":
        kind = np.dtype(np.float64)  # integers have no NaN
    elif kind.kind in "mM":
        missing = "NaT"
    elif kind.kind not in "fc":
        kind, missing = np.dtype(object), None
    found = x.data.astype(kind)
    found[np.ma.getmaskarray(x)] = missing
    return found


def require_distinct(names: Sequence[Hashable], what: str) -> None:
    """Refuse names that occur twice."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"{what} must be distinct, and {twice[:5]} occur more than once")


def require_values(x: Float[np.ndarray, "n c"], place: Callable[[int, int], str]) -> None:
    """Refuse values that are infinite or overflow float32; NaN is for others to judge."""
    wrong = np.abs(x) > _LARGEST_VALUE
    if wrong.any():
        row, column = np.argwhere(wrong)[0].tolist()
        raise ValueError(f"{place(row, column)} holds {x[row, column]}; values must be finite and fit into float32")


def require_told_apart(x: Float[np.ndarray, "n c"], names: Sequence[Hashable]) -> None:
    """Refuse columns that lose their variation in single precision: a twentieth of their deviation or more."""
    if x.dtype.itemsize < 8 or len(x) == 0:
        return
    known = np.isfinite(x)
    with np.errstate(over="ignore", invalid="ignore"):
        moved = np.where(known, np.abs(x - x.astype(np.float32)), 0.0).max(axis=0)
    for i in np.flatnonzero(moved).tolist():
        column = x[known[:, i], i]
        deviation = float(column.std())
        if moved[i] > _LOST * deviation and np.ptp(column) > 0:
            raise ValueError(
                f"{names[i]} would move by up to {moved[i]:.3g} in single precision, with a standard deviation of "
                f"{deviation:.3g}; subtract an offset first"
            )


def as_numbers(column: "pd.Series", what: str, place: Place) -> Float64[np.ndarray, "n"]:
    """A column as float64 with NaN for missing; text is refused even where it looks like a number."""
    from pandas.api import types

    if not (types.is_numeric_dtype(column.dtype) and not types.is_complex_dtype(column.dtype)):
        is_missing = column.isna().to_numpy(dtype=bool)
        wrong = {
            i: value
            for i, value in enumerate(column)
            if not is_missing[i] and (not isinstance(value, Number) or isinstance(value, complex))
        }
        if wrong:  # one slip makes a whole column of a CSV file text
            slip = next((i for i, value in wrong.items() if not _reads_as_number(value)), min(wrong))
            raise TypeError(f"{what} must hold numbers, and {place(slip)} is {wrong[slip]!r}")
        column = column.astype(object).where(~is_missing, np.nan)
        return column.to_numpy().astype(np.float64)
    return column.to_numpy(dtype=np.float64, na_value=np.nan)


def _reads_as_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def encode_names(
    column: "pd.Series", known: Sequence[Name] | None, what: str, place: Place
) -> tuple[Int64[np.ndarray, "n"], tuple[Name, ...]]:
    """The index of each name, -1 for missing ones, and the names: the known ones, or those found, sorted."""
    import pandas as pd

    try:
        codes, uniques = pd.factorize(column)
    except TypeError:
        raise TypeError(f"each {what} must be text or an integer, and {place(0)} is {column.iloc[0]!r}") from None
    found = [_plain_name(name, what) for name in uniques.tolist()]
    kinds = {type(name) for name in found}
    if len(kinds) > 1 or not kinds <= {str, int, bool}:
        raise TypeError(
            f"each {what} must be text or an integer, the same kind throughout; found {sorted(map(repr, found))[:5]}"
        )
    names = tuple(sorted(found)) if known is None else tuple(known)
    index = {name: i for i, name in enumerate(names)}
    for code, name in enumerate(found):
        if name not in index:
            row = int(np.argmax(codes == code))
            raise ValueError(f"{what} {name!r} of {place(row)} is unknown; known are {list(names)}")
    order = np.array([*(index[name] for name in found), -1], dtype=np.int64)
    return order[codes], names


def _plain_name(name: Any, what: str) -> Any:
    if isinstance(name, str):
        return str(name)
    if isinstance(name, float) and name.is_integer():
        if abs(name) > _LARGEST_EXACT:
            raise ValueError(
                f"{what} {name} is a float too large to be exact, so that others may have become the same; read the "
                "column as 'Int64' or as text"
            )
        return int(name)  # pandas makes floats of integers as soon as one of them is missing
    return name.item() if isinstance(name, np.generic) else name


def frame_columns(X: Any, *, has_times: bool) -> list[str] | None:
    """What the columns of samples are called that are all pandas tables; None where they have no names."""
    import pandas as pd

    names: list[Any] = []
    for i, x in enumerate(X if isinstance(X, list | tuple) else ()):
        here = list(x.columns) if isinstance(x, pd.DataFrame) else None
        if i == 0 and here is None:
            return None
        names = names or here or []
        if here != names:
            raise ValueError(f"sample {i} has the columns {here}, sample 0 has {names}; give all of them the same")
        if not has_times and not x.index.equals(pd.RangeIndex(len(x))):
            raise ValueError(
                f"sample {i} has an index of its own, which may be its times; hand it over as its times, or drop it: "
                "x.reset_index(drop=True)"
            )
    return None if not names or names == list(range(len(names))) else [str(name) for name in names]


def in_order(ids: Sequence[Hashable], y: "pd.Series | pd.DataFrame") -> Any:
    """A pandas column in the order of the samples: by id where its index holds their ids, else as it is.

    Splitters of scikit-learn hand over parts of y whose index tells places, so that whole numbers which are not just
    the ids are taken for places.
    """
    import pandas as pd

    if isinstance(y.index, pd.RangeIndex) and y.index.equals(pd.RangeIndex(len(y))):
        return y
    ids, index = list(ids), y.index.tolist()
    wanted, found = set(ids), set(index)
    if index == ids or wanted.isdisjoint(found) or None in wanted:
        return y
    are_numbers = all(isinstance(one, Integral) for one in ids)
    if are_numbers and wanted != found:
        return y
    if are_numbers and wanted == set(range(len(ids))):
        raise ValueError(
            "the index of y holds the ids of X in another order, but numbers from 0 on may be places as well; hand "
            "over y.loc[ids], with the ids of X, if they are ids, y.to_numpy() if y is in the order of X"
        )
    if wanted - found:
        lacking = next(one for one in ids if one not in found)
        raise ValueError(
            f"y is indexed by ids, and it has no label for the id {lacking!r}; each sample needs one, and where both "
            "are split, y must be in the order of X: y.loc[ids], with the ids of X"
        )
    require_one_label(y)
    place = {name: i for i, name in enumerate(index)}
    return y.iloc[[place[one] for one in ids]]


def require_one_label(y: Any) -> None:
    """Refuse a pandas column that has several labels for an id."""
    if y.index.has_duplicates:
        twice = y.index[y.index.duplicated()].tolist()[0]
        raise ValueError(f"y has several labels for the id {twice!r}; each id has one")


def encode_labels(
    column: "pd.Series", classes: Sequence[Name] | None, place: Place
) -> tuple[Int64[np.ndarray, "n"] | Float64[np.ndarray, "n"], tuple[Name, ...] | None]:
    """Class indices and class names for text, integers and booleans; the numbers themselves for floats."""
    from pandas.api import types

    missing = column.isna().to_numpy(dtype=bool)
    if missing.any():
        raise ValueError(
            f"labels are missing in part: {place(int(missing.argmax()))} has none "
            f"({int(missing.sum())} of {len(missing)} lack one); leave those out or read without labels"
        )
    column = column.infer_objects()  # a column of objects may hold nothing but floats
    if not types.is_float_dtype(column.dtype):
        return encode_names(column, classes, "class", place)
    if classes is not None:
        raise TypeError(f"labels are {column.dtype} numbers, but classes {list(classes)} are expected")
    numbers = column.to_numpy(dtype=np.float64)
    if not np.isfinite(numbers).all():
        raise ValueError(f"the label of {place(int(np.isinf(numbers).argmax()))} is infinite; labels must be finite")
    require_told_apart(numbers[:, None], ["the labels"])
    return numbers, None


def _microseconds(unit: TimeUnit) -> int:
    if unit not in _MICROSECONDS:
        raise ValueError(f"there is no time unit {unit!r}; there are second, minute, hour and day")
    return _MICROSECONDS[unit]


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
    known = dates.tz_localize(zone, ambiguous="NaT", nonexistent="NaT")
    unclear = known.isna() & dates.notna()
    if unclear.any():
        i = int(unclear.argmax())
        raise ValueError(
            f"{place(i)}: {dates[i]} comes twice or never in {zone}, where the clocks change; give the dates with "
            "their time zone, such as UTC"
        )
    return known.tz_convert("UTC").tz_localize(None)


def asked_numbers(x: np.ndarray, unit: TimeUnit | None, zone: str | None, where: str) -> np.ndarray:
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
    return numbers_from_dates(in_utc(dates, zone, lambda i: f"{where}, number {i}").to_numpy(), unit)


def dates_from_numbers(numbers: Float64[np.ndarray, "n"], unit: TimeUnit, zone: str | None) -> "pd.DatetimeIndex":
    """The inverse of `numbers_from_dates`, in a time zone if one is given."""
    import pandas as pd

    dates = pd.DatetimeIndex(np.rint(numbers * _microseconds(unit)).astype(np.int64).astype("datetime64[us]"))
    return dates if zone is None else dates.tz_localize("UTC").tz_convert(zone)

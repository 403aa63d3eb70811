"""Columns: what every reader of series and tables checks and converts.

Numbers, names and labels come in as lists, arrays or pandas columns and leave as numpy arrays; messages name
the place of whatever cannot be used. Shapes: n rows, c columns.
"""

import re
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from decimal import Decimal
from numbers import Complex, Integral, Number, Real
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64, Shaped
from torch import Tensor

from romae.tokens.arrays import LARGEST_EXACT, native, require_dense, require_exact

if TYPE_CHECKING:
    import pandas as pd

Name = str | int | bool
Place = Callable[[int], str]

_LARGEST_VALUE = np.float64(np.finfo(np.float32).max)
_LARGEST_DOUBLE = int(np.finfo(np.float64).max)
_FORMULA = r"[=+\-@\t\r]"  # what a formula begins with in a spreadsheet
_LOST = 0.05  # of a column's deviation


def to_numpy(x: Any) -> np.ndarray:
    """An array, a list or a tensor on any device as a numpy array of numbers that torch and pandas know.

    What is masked becomes missing: NaN, NaT or None. Numbers are in the byte order of this machine, and those of more
    than 64 bits are rounded to 64.
    """
    if isinstance(x, Tensor):
        require_dense(x)
        return (x.float() if x.dtype == torch.bfloat16 else x).detach().cpu().numpy()  # numpy has no bfloat16
    holds_masked = isinstance(x, list | tuple) and any(
        isinstance(entry, np.ma.MaskedArray) and entry.ndim for entry in x
    )
    try:
        array = _unmasked(np.ma.array(x)) if holds_masked or isinstance(x, np.ma.MaskedArray) else np.asarray(x)
    except ValueError as error:  # lists of lists that differ in length
        raise ValueError(f"a list cannot be read as an array: {error}") from None
    return array.astype(native(array.dtype), copy=False)


def _unmasked(x: np.ma.MaskedArray) -> np.ndarray:
    if not np.ma.is_masked(x):
        return x.data
    dtype: np.dtype = x.dtype
    missing: Any = np.nan
    if dtype.kind in "iub":
        dtype = np.dtype(np.float64)  # integers have no NaN
    elif dtype.kind in "mM":
        missing = "NaT"
    elif dtype.kind not in "fc":
        dtype, missing = np.dtype(object), None
    filled = x.data.astype(dtype)
    filled[np.ma.getmaskarray(x)] = missing
    return filled


def require_distinct(names: Sequence[Hashable], role: str, fix: str | None = None) -> None:
    """Refuse names that occur twice."""
    try:
        twice = [name for name, count in Counter(names).items() if count > 1]
    except TypeError:
        raise TypeError(f"{role} must be text or numbers, not {list(names)[:5]}") from None
    if twice:
        advice = "" if fix is None else f"; {fix}"
        raise ValueError(f"{role} must be distinct, and {twice[:5]} occur more than once{advice}")


def require_values(x: Float[np.ndarray, "n c"], place: Callable[[int, int], str]) -> None:
    """Refuse values that are infinite or overflow float32; NaN is for others to judge."""
    wrong = np.abs(x) > _LARGEST_VALUE
    if wrong.any():
        row, column = np.argwhere(wrong)[0].tolist()
        raise ValueError(f"{place(row, column)} holds {x[row, column]}; values must be finite and fit into float32")


def read_errors(x: Float[np.ndarray, "n c"], place: Callable[[int, int], str]) -> Float64[np.ndarray, "n c"]:
    """Measurement errors, 0 where they are not known; negative and infinite ones are refused."""
    wrong = (x < 0) | (x > _LARGEST_VALUE)
    if wrong.any():
        row, column = np.argwhere(wrong)[0].tolist()
        raise ValueError(
            f"{place(row, column)} holds the measurement error {x[row, column]}; errors are standard deviations, "
            "finite and above 0, and missing or 0 where they are not known"
        )
    return np.nan_to_num(x.astype(np.float64), nan=0.0)


def require_variation_kept(
    x: Shaped[np.ndarray, "n c"] | Sequence[Shaped[np.ndarray, "_ c"]],
    names: Sequence[Hashable],
    fix: str = "subtract an offset first",
) -> None:
    """Refuse columns that lose their variation in single precision: a twentieth of their deviation or more.

    The rows may come in several parts. Variation of the size of rounding in double precision is none.
    """
    parts = [part for part in ([x] if isinstance(x, np.ndarray) else x) if len(part)]
    if all(part.dtype.itemsize < 8 for part in parts):
        return
    for i in _in_doubt(parts):
        column = np.concatenate([part[:, i] for part in parts])
        column = column[~np.isnan(column)].astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            moved, deviation = float(np.abs(column - column.astype(np.float32)).max()), float(column.std())
        if moved > _LOST * deviation:
            raise ValueError(
                f"{names[i]} would move by up to {moved:.3g} in single precision, with a standard deviation of "
                f"{deviation:.3g}; {fix}"
            )


def _in_doubt(parts: Sequence[Shaped[np.ndarray, "_ c"]]) -> list[int]:
    """The columns that may lose too much, by their ranges alone: n numbers deviate by range / sqrt(2 n) or more."""
    low = np.fmin.reduce([np.fmin.reduce(part, axis=0) for part in parts]).astype(np.float64)
    high = np.fmax.reduce([np.fmax.reduce(part, axis=0) for part in parts]).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        size, extent = np.maximum(np.abs(low), np.abs(high)), high - low
    moved = np.where(size > _LARGEST_VALUE, np.inf, size * 2.0**-24 + 2.0**-150)
    deviation = extent / np.sqrt(2 * sum(map(len, parts)))
    varies = extent > 8 * np.finfo(np.float64).eps * size
    return np.flatnonzero(varies & (moved > _LOST * deviation)).tolist()


def as_numbers(column: "pd.Series", name: str, place: Place, *, exact: bool = True) -> Float64[np.ndarray, "n"]:
    """A column as float64 with NaN for missing; text is refused even where it looks like a number.

    If they are to be `exact`, whole numbers that double precision makes the same are refused as well.
    """
    from pandas.api import types

    if types.is_numeric_dtype(column.dtype) and not types.is_complex_dtype(column.dtype):
        read = column.to_numpy(dtype=np.float64, na_value=np.nan)
        if exact and types.is_integer_dtype(column.dtype):
            require_exact(read, column.nunique, name)
        return read
    is_missing = missing_in(column, place)
    wrong = {i: value for i, value in enumerate(column) if not is_missing[i] and not is_number(value)}
    if wrong:  # one slip makes a whole column of a CSV file text
        slip = next((i for i, value in wrong.items() if not _reads_as_number(value)), min(wrong))
        has_comma = re.fullmatch(r"[+-]?[0-9]+,[0-9]+", str(wrong[slip]).strip())
        advice = "; write a point for the decimal comma" if has_comma else ""
        raise TypeError(f"{name} must hold numbers, and {place(slip)} is {wrong[slip]!r}{advice}")
    column = column.astype(object).where(~is_missing, np.nan)
    try:
        read = column.to_numpy().astype(np.float64)
    except OverflowError:
        i = next(i for i, value in enumerate(column) if abs(value) > _LARGEST_DOUBLE)
        raise ValueError(f"{name} holds a number beyond 1.8e308 in {place(i)}; give it in larger units") from None
    if exact:
        require_exact(read, column.nunique, name)
    return read


def missing_in(column: "pd.Series", place: Place) -> Bool[np.ndarray, "n"]:
    """Where a column has no value; a NaN that may not be looked at is refused."""
    try:
        return column.isna().to_numpy(dtype=bool)
    except ArithmeticError:
        i = next(i for i, cell in enumerate(column) if isinstance(cell, Decimal) and cell.is_snan())
        raise ValueError(f"{place(i)} holds the decimal number {column.iloc[i]}, a signalling NaN; use None") from None


def inferred(column: "pd.Series") -> "pd.Series":
    """A column of objects as one of the type that all of them have; others stay as they are."""
    try:
        return column.infer_objects()
    except UnicodeEncodeError:  # pandas makes no text of one that has half of a character
        return column


def is_number(value: Any) -> bool:
    """Whether this is a real number; numpy takes durations for integers."""
    is_complex = isinstance(value, Complex) and not isinstance(value, Real)
    return isinstance(value, Number) and not is_complex and not isinstance(value, np.timedelta64)


def _reads_as_number(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    try:
        float(value)
    except ValueError:
        return False
    return True


def encode_names(
    column: "pd.Series", vocabulary: Sequence[Name] | None, role: str, place: Place
) -> tuple[Int64[np.ndarray, "n"], tuple[Name, ...]]:
    """The index of each name, -1 for missing ones, and the names: the vocabulary, or those of the column, sorted."""
    import pandas as pd

    if column.dtype == object:
        _require_one_type(column, role, place)
    try:
        codes, uniques = pd.factorize(column)
    except TypeError:
        raise TypeError(f"each {role} must be text or an integer, and {place(0)} is {column.iloc[0]!r}") from None
    distinct = [_plain_name(name, role) for name in uniques.tolist()]
    types = {type(name) for name in distinct}
    if len(types) > 1 or not types <= {str, int, bool}:
        raise TypeError(
            f"each {role} must be text or an integer, the same kind throughout; found {sorted(map(repr, distinct))[:5]}"
        )
    names = tuple(sorted(distinct)) if vocabulary is None else tuple(vocabulary)
    index = {name: i for i, name in enumerate(names)}
    for code, name in enumerate(distinct):
        if name not in index:
            row = int(np.argmax(codes == code))
            raise ValueError(f"{role} {name!r} of {place(row)} is unknown; known are {list(names)}")
    order = np.array([*(index[name] for name in distinct), -1], dtype=np.int64)
    return order[codes], names


def _require_one_type(column: "pd.Series", role: str, place: Place) -> None:
    """Refuse names of several types among objects: 1, 1.0 and True are equal, and would become one name."""
    rows = np.flatnonzero(~missing_in(column, place))
    types = [*map(type, column.iloc[rows])]
    families = {_name_family(kind): int(rows[types.index(kind)]) for kind in set(types)}
    if len(families) > 1:
        shown = " and ".join(f"{place(i)} is {column.iloc[i]!r}" for i in sorted(families.values())[:2])
        raise TypeError(
            f"each {role} must be text or an integer, the same kind throughout, and {shown}; convert the column, for "
            "example with .astype(str)"
        )


def _name_family(kind: type) -> type:
    """What a type of names is taken for: text, truth values, whole numbers or floats, of Python or numpy."""
    families = ((str, str), (bool | np.bool_, bool), (Integral, int), (Real, float))
    return next((family for members, family in families if issubclass(kind, members)), kind)


def _plain_name(name: Any, role: str) -> Any:
    if isinstance(name, str):
        return str(name)
    if isinstance(name, float) and name.is_integer():
        if abs(name) > LARGEST_EXACT:
            raise ValueError(
                f"{role} {name} is a float too large to be exact, so that others may have become the same; read the "
                "column as 'Int64' or as text"
            )
        return int(name)  # pandas makes floats of integers as soon as one of them is missing
    return name.item() if isinstance(name, np.generic) else name


def escaped_for_spreadsheets(table: "pd.DataFrame") -> "pd.DataFrame":
    """A table whose text no spreadsheet takes for a formula: what begins like one gets an apostrophe before it.

    Text that begins so behind apostrophes gets one more, so that `unescaped` gives all of it back. Numbers stay.
    """
    from pandas.api import types

    escaped = table.copy(deep=False)
    for i, dtype in enumerate(table.dtypes):
        if not (types.is_numeric_dtype(dtype) or types.is_datetime64_any_dtype(dtype)):
            escaped.isetitem(i, table.iloc[:, i].astype(object).map(_escaped))
    escaped.columns = [_escaped(name) for name in table.columns]
    return escaped


def _escaped(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and re.match(f"'*{_FORMULA}", cell) else cell


def unescaped(texts: Sequence[str | None]) -> list[str | None] | None:
    """The texts without the apostrophes of `escaped_for_spreadsheets`, or None if they are not of its making.

    It leaves no text that begins like a formula, so that where one does, an apostrophe is a letter of a name.
    """
    present = [text for text in texts if text is not None]
    if any(re.match(_FORMULA, text) for text in present) or not any(re.match(f"'+{_FORMULA}", x) for x in present):
        return None
    return [x[1:] if x is not None and re.match(f"'+{_FORMULA}", x) else x for x in texts]


def frame_columns(X: Any, *, has_times: bool) -> list[Any] | None:
    """What the columns of samples are called that are pandas tables; None where they have no names."""
    import pandas as pd

    if not has_times:
        require_no_index(X)
    names_of_sample = [
        _given_names(x.columns) if isinstance(x, pd.DataFrame) else None
        for x in (X if isinstance(X, list | tuple) else ())
    ]
    for i, names in enumerate(names_of_sample):
        if names != names_of_sample[0]:
            has, first = (
                "no column names" if columns is None else f"the columns {columns}"
                for columns in (names, names_of_sample[0])
            )
            raise ValueError(f"sample {i} has {has}, sample 0 has {first}; give all of them the same")
    return names_of_sample[0] if names_of_sample else None


def _given_names(columns: "pd.Index") -> list[Name] | None:
    """The names of columns, if they were given any: text and integers as they are."""
    names = [x.item() if isinstance(x, np.generic) else x for x in columns]
    return None if names == list(range(len(names))) else [x if isinstance(x, str | int) else str(x) for x in names]


def require_no_index(X: Any) -> None:
    """Refuse samples in pandas whose index does more than count their rows."""
    import pandas as pd

    for i, x in enumerate(X if isinstance(X, list | tuple) else ()):
        has_labels = isinstance(x, pd.DataFrame | pd.Series) and not x.index.equals(pd.RangeIndex(len(x)))
        has_coordinates = bool(getattr(x, "dims", ())) and hasattr(x, "coords") and x.dims[0] in x.coords  # of xarray
        if has_labels or has_coordinates:
            raise ValueError(
                f"sample {i} has an index of its own, which may be its times; hand it over as its times, or drop it: "
                f"{'x.to_numpy()' if has_coordinates else 'x.reset_index(drop=True)'}"
            )


def in_order(ids: Sequence[Hashable], y: "pd.Series | pd.DataFrame", name: str = "y", noun: str = "label") -> Any:
    """A pandas column in the order of the samples: by id where its index holds their ids, else as it is.

    Splitters of scikit-learn hand over parts of y whose index tells places, so that whole numbers which are not just
    the ids are taken for places.
    """
    import pandas as pd

    if isinstance(y.index, pd.RangeIndex) and y.index.equals(pd.RangeIndex(len(y))):
        return y
    ids, index = list(ids), y.index.tolist()
    sample_ids, labelled_ids = set(ids), set(index)
    if index == ids or sample_ids.isdisjoint(labelled_ids) or None in sample_ids:
        return y
    are_numbers = all(isinstance(sample_id, Integral) for sample_id in ids)
    if are_numbers and sample_ids != labelled_ids:
        return y
    if are_numbers and sample_ids == set(range(len(ids))):
        raise ValueError(
            f"the index of {name} holds the ids of X in another order, but numbers from 0 on may be places as well; "
            f"hand over {name}.loc[ids], with the ids of X, if they are ids, {name}.to_numpy() if it is in the order "
            "of X"
        )
    if sample_ids - labelled_ids:
        lacking = next(sample_id for sample_id in ids if sample_id not in labelled_ids)
        raise ValueError(
            f"{name} is indexed by ids, and it has no {noun} for the id {lacking!r}; each sample needs one, and where "
            f"both are split, {name} must be in the order of X: {name}.loc[ids], with the ids of X"
        )
    require_one_label(y, name, noun)
    place = {label_id: i for i, label_id in enumerate(index)}
    return y.iloc[[place[sample_id] for sample_id in ids]]


def require_one_label(y: Any, name: str = "y", noun: str = "label") -> None:
    """Refuse a pandas column that has several labels for an id."""
    if y.index.has_duplicates:
        twice = y.index[y.index.duplicated()].tolist()[0]
        raise ValueError(f"{name} has several {noun}s for the id {twice!r}; each id has one")


def encode_labels(
    column: "pd.Series", classes: Sequence[Name] | None, place: Place, *, for_training: bool
) -> tuple[Int64[np.ndarray, "n"] | Float64[np.ndarray, "n"], tuple[Name, ...] | None]:
    """Class indices and class names for text, integers and booleans; the numbers themselves for floats."""
    from pandas.api import types

    missing = missing_in(column, place)
    if missing.any():
        raise ValueError(
            f"labels are missing in part: {place(int(missing.argmax()))} has none "
            f"({int(missing.sum())} of {len(missing)} lack one); leave those out or read without labels"
        )
    column = inferred(column)  # a column of objects may hold nothing but floats
    if not types.is_float_dtype(column.dtype):
        return encode_names(column, classes, "class", place)
    if classes is not None:
        raise TypeError(f"labels are {column.dtype} numbers, but classes {list(classes)} are expected")
    numbers = column.to_numpy(dtype=np.float64)
    if not np.isfinite(numbers).all():
        raise ValueError(f"the label of {place(int(np.isinf(numbers).argmax()))} is infinite; labels must be finite")
    if for_training:
        require_variation_kept(numbers[:, None], ["the labels"])
    return numbers, None

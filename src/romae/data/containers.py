"""Containers: tables and arrays of other libraries become those of pandas, pyarrow and numpy.

None of these libraries is imported. An object says by its methods what it is: the Arrow stream interface of polars,
DuckDB and others, the frames of xarray, the formats of Hugging Face datasets.
"""

from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from romae.data.columns import require_distinct

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

READABLE = (
    "a pandas, polars or pyarrow table, an xarray Dataset, a Hugging Face dataset, anything with the Arrow stream "
    "interface, or the path of a CSV or Parquet file"
)
# What a dictionary of PyPOTS holds beside X and y: the values that were taken out to be imputed, and which they are.
BESIDE = ("X_ori", "X_holdout", "indicating_mask", "missing_mask")


def is_table(x: Any) -> bool:
    """Whether x is what `as_table` reads; a DataArray, which may as well be an array, is not."""
    return (
        isinstance(x, str | Path)
        or (
            not is_data_array(x)
            and any(hasattr(x, name) for name in ("iloc", "column_names", "__arrow_c_stream__", "data_vars"))
        )
        or _is_lazy(x)
    )


def is_data_array(x: Any) -> bool:
    """Whether x is an array of xarray."""
    return all(hasattr(x, name) for name in ("dims", "coords", "to_dataframe")) and not hasattr(x, "data_vars")


def _is_lazy(x: Any) -> bool:
    """Whether x is a query of polars that has not been run."""
    return hasattr(x, "collect") and hasattr(x, "collect_schema")


def as_table(table: Any) -> "pd.DataFrame | pa.Table | str | Path":
    """Any table as a pandas or pyarrow table, or as the path of a file; what is one of these stays as it is.

    A stream can be read once, so that whoever looks at a table twice has to hand over the result. Of a pandas table
    with an index of two levels without names, these are called id and time.
    """
    import pandas as pd
    import pyarrow as pa

    if isinstance(table, pd.DataFrame):
        return _with_named_levels(table)
    if isinstance(table, str | Path | pa.Table):
        return table
    if isinstance(table, Mapping) and hasattr(table, "column_names"):
        raise TypeError(f"this holds several splits of a data set; choose one: data[{next(iter(table), 'train')!r}]")
    # Newer versions of xarray have the stream as well; all of them have frames.
    if hasattr(table, "data_vars"):
        return table.to_dataframe()
    if is_data_array(table):
        return table.to_dataframe(name="value" if table.name is None else table.name)
    if _is_lazy(table):
        table = table.collect()
    if hasattr(table, "__arrow_c_stream__"):
        try:
            return _without_views(pa.table(table))
        except (TypeError, ValueError, pa.ArrowException) as error:
            raise TypeError(f"the Arrow stream of {type(table).__name__} is no table: {error}") from None
    if hasattr(table, "with_format") and hasattr(table, "column_names"):
        if not hasattr(table, "__getitem__"):
            raise TypeError("this data set is a stream; load it as a whole, with streaming=False")
        return table.with_format("arrow")[:]
    raise TypeError(f"expected {READABLE}, not {type(table).__name__}")


def _without_views(table: "pa.Table") -> "pa.Table":
    """A table whose lists of text are plain ones: pyarrow makes no pandas columns of those that polars has."""
    import pyarrow as pa

    for i, field in enumerate(table.schema):
        inner = field.type.value_type if pa.types.is_list(field.type) or pa.types.is_large_list(field.type) else None
        if inner is not None and pa.types.is_string_view(inner):
            table = table.set_column(i, field.name, table.column(i).cast(pa.large_list(pa.large_string())))
    return table


def _with_named_levels(frame: "pd.DataFrame") -> "pd.DataFrame":
    if frame.columns.nlevels > 1:
        raise ValueError(
            f"the columns of the table have {frame.columns.nlevels} levels; move one of them to the rows with "
            "table.stack(0), or make one name of them: table.columns = table.columns.map('_'.join)"
        )
    names = list(frame.index.names)
    if len(names) != 2 or None not in names:
        return frame
    return frame.rename_axis([given or name for given, name in zip(names, ("id", "time"), strict=True)])


def level_names(frame: "pd.DataFrame") -> list[Hashable]:
    """The levels of an index that have names of their own, which serve as columns."""
    return [name for name in frame.index.names if name is not None and name not in frame.columns]


def id_and_time(table: Any) -> tuple[str, str] | None:
    """The two levels of a pandas index that are the id and the time of each row; None where there are none.

    This is the order in which other libraries for series have them. One whose first level holds dates is refused.
    """
    import pandas as pd

    if not isinstance(table, pd.DataFrame) or table.index.nlevels != 2:
        return None
    if pd.api.types.is_datetime64_any_dtype(table.index.levels[0].dtype):
        raise ValueError(
            "the first level of the index holds dates, and by themselves the levels are id and time; turn them round "
            "with table.swaplevel(), or say which column or level is which"
        )
    id, time = _with_named_levels(table).index.names
    return str(id), str(time)


def unfolded(frame: "pd.DataFrame") -> "pd.DataFrame":
    """A table with a row for each entry of the lists in its cells, where a row holds a whole series.

    The first column is that of ids, which are no lists. Lists of one row have the same length. One that is empty leaves
    a row in which all of it is missing, so that its series is noticed.
    """
    import pandas as pd

    lists = {name: frame[name].tolist() for name in frame.columns[1:] if _holds_lists(frame[name])}
    if not lists:
        return frame
    cells: dict[Hashable, list[np.ndarray]] = {}
    for name, column in lists.items():
        cells[name] = [_entries(cell, f"row {row}, column {name!r}") for row, cell in enumerate(column)]
    first, *others = cells
    lengths = np.array([len(cell) for cell in cells[first]])
    for name in others:
        differs = lengths != [len(cell) for cell in cells[name]]
        if differs.any():
            row = int(differs.argmax())
            raise ValueError(
                f"row {row} has {lengths[row]} entries in column {first!r} and {len(cells[name][row])} in column "
                f"{name!r}; the lists of a row are measured together, so that they have the same length"
            )
    flat = frame.drop(columns=list(lists)).iloc[np.repeat(np.arange(len(frame)), np.maximum(lengths, 1))]
    flat = flat.reset_index(drop=True)
    for name, arrays in cells.items():
        entries = [array if len(array) else np.array([None], dtype=object) for array in arrays]
        flat[name] = pd.Series(np.concatenate(entries)).infer_objects()
    return flat[list(frame)]


def _holds_lists(column: "pd.Series") -> bool:
    if getattr(column.dtype, "kind", "O") != "O":
        return False
    first = column.first_valid_index()
    return first is not None and isinstance(column.loc[first], list | tuple | np.ndarray)


def _entries(cell: Any, where: str) -> np.ndarray:
    """The list in a cell as an array; a missing one is empty."""
    if cell is None or (isinstance(cell, float) and np.isnan(cell)):
        return np.zeros(0)
    try:
        entries = np.asarray(cell)
    except ValueError:
        entries = np.zeros((0, 0))
    if entries.ndim != 1:
        raise TypeError(
            f"{where} holds {type(cell).__name__} where other rows hold lists of numbers; give each row one list for "
            "each column, or one row per measurement"
        )
    return entries


class LabelledArray(NamedTuple):
    """An array [b, n, c] or [b, n], and what its coordinates are; None where they have none."""

    values: np.ndarray
    times: np.ndarray | None
    ids: list[Hashable] | None
    channels: list[Any] | None


def labelled_array(x: Any, *, channels_last: bool = True) -> LabelledArray:
    """An array of xarray: its dimensions are samples, steps and channels in this order, or channels before steps."""
    if len(x.dims) not in (2, 3):
        raise ValueError(
            f"a DataArray of series has the dimensions samples, time steps and perhaps channels, and this one has "
            f"{list(x.dims)}; choose from the others first, for example x.isel({x.dims[-1] if x.dims else 'level'}=0)"
        )
    coordinates = [x.coords[name].values if name in x.coords else None for name in x.dims]
    samples, *rest = coordinates
    steps, *channels = rest if channels_last or len(rest) == 1 else rest[::-1]
    ids = None if samples is None else list(samples) if samples.dtype.kind in "mM" else samples.tolist()
    if ids is not None:
        require_distinct(ids, f"the coordinates {x.dims[0]!r} of samples")
    names = None if not channels or channels[0] is None else channels[0].tolist()
    return LabelledArray(x.values, steps, ids, names)


def of_dictionary(data: Mapping[str, Any]) -> tuple[Any, Any]:
    """X and y of a dictionary as PyPOTS takes it; y is None where there is none."""
    if "X" not in data:
        raise ValueError(
            f"a dictionary of series holds them under 'X', and perhaps labels under 'y'; this has {list(data)}"
        )
    if unknown := [name for name in data if name not in ("X", "y", *BESIDE)]:
        raise ValueError(f"a dictionary of series holds X, y and {', '.join(BESIDE)}; take out {unknown[0]!r}")
    if isinstance(data["X"], str | Path):
        raise TypeError("X is the name of a file; read it first, for example with h5py, and hand over its array")
    return data["X"], data.get("y")

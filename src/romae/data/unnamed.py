"""Columns of text that were named as nothing, but may say which rows belong together or what each row measures."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from romae.data.containers import as_table, level_names
from romae.data.frames import is_arrow, is_parquet, opened_arrow
from romae.data.schema import Schema

if TYPE_CHECKING:
    import pandas as pd

N_ROWS = 10_000  # the first ones, which are read quickly and tell enough


def note_on_unnamed(table: Any, schema: Schema, *, has_ids: bool = True, also_read: Iterable[str] = ()) -> str | None:
    """A sentence on columns of text that are not read, although rows that differ in them are read as one series.

    Without it, several machines or sensors in one table would silently become one series. None where there is nothing
    to say. `also_read` are columns that are read beside those of the schema, such as labels.
    """
    if schema.channel is not None:
        return None
    frame = first_rows(table)
    frame = frame.loc[:, ~frame.columns.duplicated(keep=False)]
    read = {*schema.columns, *also_read}
    words = [name for name in frame if str(name) not in read and _holds_names(frame[name])]
    if not has_ids:
        if not words:
            return None
        shown = f"column {words[0]!r} holds" if len(words) == 1 else f"columns {_listed(words)} hold"
        return (
            f"the table is read as one series, and its {shown} text: name the column that says which rows belong "
            "together with id= (--id), and one that says what each row measures with channel= (--channel)"
        )
    if schema.id not in frame:
        return None
    varying = [name for name in words if frame.groupby(schema.id, observed=True)[name].nunique().max() > 1]
    if not varying:
        return None
    return (
        f"column {varying[0]!r} differs between rows of one {schema.id!r} and is not read; if it says what each row "
        "measures, such as a sensor or a band, name it with channel= (--channel)"
    )


def date_columns(table: Any) -> list[str]:
    """The columns of a table that hold dates, as far as its first rows say."""
    from pandas.api import types

    return [str(name) for name, column in first_rows(table).items() if types.is_datetime64_any_dtype(column)]


def first_rows(table: Any) -> "pd.DataFrame":
    """The first rows of a table or file, with all of its columns."""
    import pandas as pd
    import pyarrow as pa
    from pyarrow import csv, parquet

    table = as_table(table)
    if isinstance(table, pd.DataFrame):
        return table.head(N_ROWS).reset_index(level=level_names(table))
    if isinstance(table, pa.Table):
        rows = table.slice(0, N_ROWS)
    elif is_parquet(table):
        rows = next(parquet.ParquetFile(table).iter_batches(batch_size=N_ROWS), None)
    elif is_arrow(table):
        with opened_arrow(table) as reader:
            rows = reader.get_batch(0).slice(0, N_ROWS) if reader.num_record_batches else None
    else:
        with csv.open_csv(table, parse_options=csv.ParseOptions(newlines_in_values=True)) as batches:
            rows = batches.read_next_batch().slice(0, N_ROWS)
    return pd.DataFrame() if rows is None else rows.to_pandas(ignore_metadata=True)


def _holds_names(column: "pd.Series") -> bool:
    """Whether a column holds text that comes again and again, and not another in each row as remarks do."""
    from pandas.api import types

    if not (types.is_object_dtype(column) or types.is_string_dtype(column) or isinstance(column.dtype, _categories())):
        return False
    texts = column.dropna()
    if len(texts) == 0 or not all(isinstance(text, str) for text in texts):
        return False
    return 1 < texts.nunique() <= len(texts) / 2


def _categories() -> type:
    import pandas as pd

    return pd.CategoricalDtype


def _listed(names: list[str]) -> str:
    shown = [repr(name) for name in names]
    return f"{', '.join(shown[:-1])} and {shown[-1]}"

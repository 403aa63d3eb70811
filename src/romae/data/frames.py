"""Tables as they are handed over, frames in memory or files, and their columns as one pandas table.

Files are CSV, Parquet, and Arrow files (.arrow, .feather). Messages name rows by their place in the table, from 0 on.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from romae.config import near_miss
from romae.data.columns import Name, encode_names, unescaped
from romae.data.containers import as_table, level_names, unfolded

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyarrow import csv

ENDINGS = ".csv, .csv.gz, .parquet or .arrow"
STORE = "romae_store"  # is noted in the file of a store, which is no table


def row_number(i: int) -> str:
    """How a message names a row."""
    return f"row {i}"


def is_parquet(path: str | Path) -> bool:
    """Whether a file is one of Parquet, by its name."""
    return Path(path).suffix in (".parquet", ".pq")


def is_arrow(path: str | Path) -> bool:
    """Whether a file is one of Arrow, by its name."""
    return Path(path).suffix in (".arrow", ".feather")


@contextmanager
def opened_arrow(path: str | Path) -> Iterator["pa.ipc.RecordBatchFileReader"]:
    """The batches of an Arrow file, which is mapped into memory."""
    import pyarrow as pa

    with pa.memory_map(str(path)) as mapped, pa.ipc.open_file(mapped) as reader:
        if STORE.encode() in (reader.schema.metadata or {}):
            raise ValueError(f"{path} is a store of samples and no table; open it with romae.Store")
        yield reader


def column_names(table: Any) -> list[Any]:
    """The columns of a table that `as_table` has looked at, the named levels of its index among them."""
    import pandas as pd
    import pyarrow as pa
    from pyarrow import parquet

    if isinstance(table, pd.DataFrame):
        return [*level_names(table), *table.columns]
    if isinstance(table, pa.Table):
        return list(table.column_names)
    path = Path(table)
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    try:
        if is_parquet(path):
            return list(parquet.read_schema(path).names)
        if is_arrow(path):
            with opened_arrow(path) as reader:
                return list(reader.schema.names)
        if ".csv" in path.suffixes:
            _require_commas(path)
            names = _header(path)
            return unescaped(names) or names
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from None
    raise ValueError(f"cannot tell what {path.name} is: expected {ENDINGS}")


def written_names(path: str | Path) -> dict[str, str]:
    """What each column is called in a CSV file, by the name that it has without an escape."""
    return dict(zip(column_names(path), _header(path), strict=True))


def _header(path: str | Path) -> list[str]:
    """The names of the columns of a CSV file as they are written there."""
    from pyarrow import csv

    with csv.open_csv(path, parse_options=csv.ParseOptions(newlines_in_values=True)) as reader:
        return list(reader.schema.names)


def _read_csv(path: str | Path, options: "csv.ConvertOptions") -> "pa.Table":
    """The columns of a CSV file. Few have cells of several lines, for which all files would be read more slowly."""
    import pyarrow as pa
    from pyarrow import csv

    try:
        return csv.read_csv(path, convert_options=options)
    except pa.ArrowInvalid:
        return csv.read_csv(path, parse_options=csv.ParseOptions(newlines_in_values=True), convert_options=options)


def _require_commas(path: Path) -> None:
    """Refuse a file whose columns are separated by something else, as Excel writes it where commas are decimal."""
    import pyarrow as pa

    with pa.input_stream(str(path)) as stream:
        header = stream.read(65536).splitlines()[:1]
    for sign in (b";", b"\t"):
        if header and sign in header[0] and b"," not in header[0]:
            raise ValueError(
                f"the columns of {path} are separated by {sign.decode()!r}, where commas are expected; write it with "
                "commas between columns and points in numbers, or hand over the table: pandas.read_csv(path, "
                f"sep={sign.decode()!r}), with decimal=',' where its numbers have decimal commas"
            )


def unreadable(path: str | Path, error: Exception) -> ValueError:
    is_encoding = isinstance(error, UnicodeDecodeError) or "invalid UTF8" in str(error)
    return ValueError(f"cannot read {path}: {'its text is not UTF-8; save it as UTF-8' if is_encoding else error}")


# Names of columns where none was said, and what says it: in Python, and without a plural on the command line.
USUAL = {"id": "id", "time": "time", "value": "values", "channel": "channel"}


def require_columns(table: Any, columns: Sequence[str]) -> None:
    """Refuse a table, or a file that holds one, without one of the columns or with two of the same name."""
    existing = column_names(table)
    for column in columns:
        if existing.count(column) != 1:
            if column in existing:
                raise ValueError(f"column {column!r} occurs more than once; the table has {existing}")
            raise ValueError(missing_column(column, existing))


def missing_column(column: str, existing: Sequence[str]) -> str:
    """That a column is not there, what there is, and how to name it: by a near miss, or where it was never named."""
    text = f"column {column!r} is not there; the table has {list(existing)}"
    if hint := near_miss(column, map(str, existing)):
        return text + hint
    if column in USUAL:
        return f"{text}; name it with {USUAL[column]}= (--{USUAL[column].removesuffix('s')})"
    return text


def read_frame(table: Any, columns: Sequence[str], names: Mapping[str, Sequence[Hashable] | None]) -> "pd.DataFrame":
    """The columns, that of ids first, as a pandas table whose rows are numbered from 0.

    Where cells hold lists, each of their entries gets a row. `names` are the columns that hold names, with their
    vocabulary if it is fixed: in a CSV file it tells text from integers.
    """
    import pandas as pd
    import pyarrow as pa
    from pyarrow import csv, parquet

    table = as_table(table)
    require_columns(table, columns)
    if isinstance(table, pd.DataFrame):
        levels = [name for name in level_names(table) if name in columns]
        frame = table.reset_index(level=levels)[list(columns)].reset_index(drop=True)
        dtypes = {
            name: dtype for name, dtype in frame.dtypes.items() if isinstance(dtype, np.dtype) and not dtype.isnative
        }
        # Pandas sorts and groups no columns in the other byte order, which those of a FITS file have.
        return unfolded(frame.astype({name: dtype.newbyteorder("=") for name, dtype in dtypes.items()}))
    if not isinstance(table, pa.Table):
        try:
            if is_parquet(table):
                table = parquet.read_table(table, columns=list(columns))
            elif is_arrow(table):
                with opened_arrow(table) as reader:
                    table = reader.read_all().select(list(columns))
            else:
                written = written_names(table)
                options = csv.ConvertOptions(
                    include_columns=[written[name] for name in columns],
                    column_types={written[name]: pa.string() for name in names},
                    strings_can_be_null=True,
                )
                table = _read_csv(table, options).rename_columns(list(columns))
                for name, vocabulary in names.items():
                    is_text = vocabulary and all(isinstance(word, str) for word in vocabulary)
                    column = names_in_csv(table[name], is_text=bool(is_text))
                    table = table.set_column(table.column_names.index(name), name, column)
        except (pa.ArrowException, OSError) as error:
            raise unreadable(table, error) from None
    # Without its metadata, in which pandas notes what is not needed here, and which may be damaged.
    return unfolded(
        table.select(list(columns))
        .replace_schema_metadata(None)
        .to_pandas(
            date_as_object=False,
            ignore_metadata=True,
            # The integers of numpy have no missing ones: pandas would make floats of them.
            types_mapper=lambda dtype: pd.ArrowDtype(dtype) if pa.types.is_integer(dtype) else None,
        )
    )


def names_in_csv(texts: "pa.ChunkedArray", *, is_text: bool) -> "pa.ChunkedArray":
    """The names in a column of a CSV file, in their type where they are not said to be text.

    An apostrophe that was put before what a spreadsheet would take for a formula is taken away; it was put before text.
    """
    import pyarrow as pa

    distinct = texts.unique().to_pylist()
    originals = unescaped(distinct)
    if originals is None:
        return texts if is_text else _typed_names(texts)
    original_of = dict(zip(distinct, originals, strict=True))
    return pa.chunked_array([[original_of[text] for text in texts.to_pylist()]], pa.string())


def _typed_names(texts: "pa.ChunkedArray") -> "pa.ChunkedArray":
    """The texts as integers, booleans or floats if all are written so; 007, +7, 0x7, 12e4 and beyond 64 bits stay text.

    Programs write 120000.0, 1.2e5 or 1e+05, so that digits, an e and digits, such as 12e4, are a name.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    words = pc.utf8_trim_whitespace(texts)
    if (integers := _cast(words, pa.int64())) is not None:
        return integers if integers.cast(pa.string()).equals(words) else texts
    if pc.all(pc.match_substring_regex(words, "^[+-]?[0-9]+$")).as_py():
        return texts
    if pc.any(pc.match_substring_regex(words, "^[+-]?[0-9]+[eE][0-9]+$")).as_py():
        return texts
    if pc.all(pc.match_substring_regex(words, "^(true|false)$", ignore_case=True)).as_py():
        return words.cast(pa.bool_())
    floats = _cast(words, pa.float64())
    return texts if floats is None else floats


def names_in_table(table: Any, column: str) -> list[Name] | None:
    """The distinct names in a column of a table, sorted; None where it holds floats, which are no names."""
    names = read_frame(table, [column], {column: None})[column].dropna()
    if names.dtype.kind == "f":
        return None
    return list(encode_names(names.reset_index(drop=True), None, f"name in column {column!r}", row_number)[1])


def _cast(words: "pa.ChunkedArray", dtype: "pa.DataType") -> "pa.ChunkedArray | None":
    import pyarrow as pa

    try:
        return words.cast(dtype)
    except pa.ArrowInvalid:
        return None


def text_of_csv(path: str | Path) -> "pd.DataFrame":
    """The cells of a CSV file as they are written there, under the names that its columns are given there."""
    import pyarrow as pa
    from pyarrow import csv

    types = {name: pa.string() for name in _header(path)}
    return _read_csv(path, csv.ConvertOptions(column_types=types, strings_can_be_null=False)).to_pandas().astype(object)

"""Tables larger than memory: read in parts, each of which holds whole series.

A table on disk is looked at once for its ids alone. Where the rows of every id lie together, parts are cut between ids
as they come. Where they do not, rows are first gathered by id into temporary files, each for a range of ids, so that
the parts are those of a sorted table. What a part holds is then read by `from_table` and its kin, as a small table is.

Shapes: r runs of rows with one id.
"""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Int64, UInt64

from romae.data.frames import (
    is_arrow,
    is_parquet,
    names_in_csv,
    opened_arrow,
    require_columns,
    unreadable,
    written_names,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import csv

ROWS_AT_ONCE = 65_536
CSV_BLOCK = 16 << 20  # bytes; the first one says of what type a column is
MOST_FILES = 400  # that are written at once, below what systems allow a process
NO_NUMBER = -(2**31)  # stands for an id that is missing among whole numbers
SMALLEST_ROW = 8  # bytes, of a row of a CSV file, to tell that it has few rows; a tenth of that if it is compressed
SAMPLED = 200_000  # ids that tell where to divide the range of ids


class Part(NamedTuple):
    """Some rows of a table, from `start` up to `stop`, that hold whole series."""

    start: int
    stop: int
    table: "pa.Table"


class Ids(NamedTuple):
    """What a look at the ids of a table says: how many rows it has, whether those of each id lie together, and some ids
    in their order, of which as many rows lie between one and the next."""

    n_rows: int
    are_together: bool
    marks: np.ndarray


@dataclass(frozen=True)
class TableFile:
    """A CSV, Parquet or Arrow file whose columns are read a few rows at a time.

    `id` is the column of ids, and `names` are columns that hold names, with their vocabulary if it is fixed; `columns`
    are all that are read.
    """

    path: Path
    id: str
    columns: tuple[str, ...]
    texts: frozenset[str] = frozenset()  # columns of names that are text, whatever is written there
    names: tuple[str, ...] = ()  # columns that hold names

    def has_at_most(self, n: int) -> bool:
        """Whether it has no more than n rows, as far as can be told without reading it."""
        import pyarrow as pa
        from pyarrow import parquet

        if is_parquet(self.path):
            return parquet.read_metadata(self.path).num_rows <= n
        if is_arrow(self.path):
            n_rows = 0
            try:
                with opened_arrow(self.path) as reader:
                    for i in range(reader.num_record_batches):
                        n_rows += reader.get_batch(i).num_rows
                        if n_rows > n:
                            return False
            except (pa.ArrowException, OSError) as error:
                raise unreadable(self.path, error) from None
            return True
        smallest = SMALLEST_ROW / (10 if self.path.suffix == ".gz" else 1)
        return self.path.stat().st_size < n * smallest

    def batches(self, columns: Sequence[str] | None = None, *, skip: int = 0) -> Iterator["pa.Table"]:
        """Its rows in order, a few at a time, without the first `skip`; all of the columns, or some."""
        import pyarrow as pa

        chosen = list(self.columns if columns is None else columns)
        read = self._csv_batches
        if is_parquet(self.path) or is_arrow(self.path):
            read = self._parquet_batches if is_parquet(self.path) else self._arrow_batches
        try:
            for batch in read(chosen, skip):
                if len(batch):
                    yield batch
        except (pa.ArrowException, OSError) as error:
            raise unreadable(self.path, error) from None

    def _parquet_batches(self, columns: list[str], skip: int) -> Iterator["pa.Table"]:
        import pyarrow as pa
        from pyarrow import parquet

        with parquet.ParquetFile(self.path, pre_buffer=False) as file:  # else all that was read stays in memory
            groups, before, begin = [], 0, 0
            for i in range(file.num_row_groups):
                before += file.metadata.row_group(i).num_rows
                if before > skip:
                    groups.append(i)
                else:
                    begin = before
            if not groups:
                return
            rest = skip - begin
            for batch in file.iter_batches(ROWS_AT_ONCE, row_groups=groups, columns=columns):
                table = pa.Table.from_batches([batch]).select(columns).replace_schema_metadata(None)
                cut = min(rest, len(table))
                rest -= cut
                yield table.slice(cut)

    def _arrow_batches(self, columns: list[str], skip: int) -> Iterator["pa.Table"]:
        import pyarrow as pa

        with opened_arrow(self.path) as reader:
            rest = skip
            for i in range(reader.num_record_batches):
                table = pa.Table.from_batches([reader.get_batch(i)]).select(columns).replace_schema_metadata(None)
                cut = min(rest, len(table))
                rest -= cut
                for start in range(cut, len(table), ROWS_AT_ONCE):
                    yield table.slice(start, ROWS_AT_ONCE)

    def _csv_batches(self, columns: list[str], skip: int) -> Iterator["pa.Table"]:
        import pyarrow as pa
        from pyarrow import csv

        written = written_names(self.path)
        options = csv.ConvertOptions(
            include_columns=[written[name] for name in columns],
            column_types={written[name]: dtype for name, dtype in self._csv_types.items() if name in columns},
            strings_can_be_null=True,
        )
        rest, begin = skip, 0
        with self._opened(options) as reader:
            for batch in reader:
                table = pa.Table.from_batches([batch]).rename_columns(columns)
                cut = min(rest, len(table))
                rest, table = rest - cut, table.slice(cut)
                for name in self.names:
                    if name in columns and len(table):
                        table = self._with_names(table, name, begin + cut)
                begin += cut + len(table)
                yield table

    @contextmanager
    def _opened(self, options: "csv.ConvertOptions") -> Iterator[Any]:
        from pyarrow import csv

        with csv.open_csv(
            self.path,
            read_options=csv.ReadOptions(block_size=CSV_BLOCK),
            parse_options=csv.ParseOptions(newlines_in_values=True),
            convert_options=options,
        ) as reader:
            yield reader

    @cached_property
    def _csv_types(self) -> dict[str, "pa.DataType"]:
        """The types of columns by the first block: text for names; whole numbers may have points later."""
        import pyarrow as pa
        from pyarrow import csv

        written = written_names(self.path)
        texts = {written[name]: pa.string() for name in self.names}
        options = csv.ConvertOptions(
            include_columns=[written[name] for name in self.columns], column_types=texts, strings_can_be_null=True
        )
        with self._opened(options) as reader:
            found = dict(zip(self.columns, reader.schema.types, strict=True))
        are_numbers = (pa.types.is_integer, pa.types.is_null)
        return {
            name: pa.float64() if any(check(dtype) for check in are_numbers) else dtype for name, dtype in found.items()
        }

    @cached_property
    def _name_types(self) -> dict[str, "pa.DataType"]:
        """What names are by the first block: text, whole numbers or truth values."""
        import pyarrow as pa
        from pyarrow import csv

        written = written_names(self.path)
        types = {written[name]: self._csv_types[name] for name in self.names}
        options = csv.ConvertOptions(include_columns=list(types), column_types=types, strings_can_be_null=True)
        with self._opened(options) as reader:
            first = reader.read_next_batch()
        table = pa.Table.from_batches([first]).rename_columns(list(self.names))
        return {name: names_in_csv(table[name], is_text=name in self.texts).type for name in self.names}

    def _with_names(self, table: "pa.Table", name: str, row: int) -> "pa.Table":
        """The table with a column of names in the type of the first block."""
        import pyarrow as pa

        expected = self._name_types[name]
        column = names_in_csv(table[name], is_text=pa.types.is_string(expected))
        if column.type != expected and not pa.types.is_null(column.type):
            raise ValueError(
                f"column {name!r} holds {_word(expected)} at the beginning of {self.path} and something else in the "
                f"rows from {row} on; write the table as Parquet, where a column has a type"
            )
        return table.set_column(table.column_names.index(name), name, column.cast(expected))

    def look_at_ids(self) -> Ids:
        """Read the ids alone."""
        known, n_rows, last, are_together = _Known(), 0, _NOTHING, True
        sampler = _Sampler()
        for batch in self.batches([self.id]):
            starts, ids = _runs(batch, self.id)
            n_rows += len(batch)
            sampler.add(ids, np.diff(np.append(starts, len(batch))))
            if not are_together:
                continue
            if len(ids) and ids[0] == last:
                ids = ids[1:]
            are_together = known.add(_hashes(ids)) if len(ids) else True
            last = ids[-1] if len(ids) else last
        return Ids(n_rows, are_together, sampler.marks())


def table_file(path: str | Path, id: str, columns: Sequence[str], names: dict[str, Sequence[Any] | None]) -> TableFile:
    """A table on disk, if it has these columns; `names` are as in `read_frame`."""
    path = Path(path)
    require_columns(path, columns)
    texts = frozenset(name for name, words in names.items() if words and all(isinstance(word, str) for word in words))
    return TableFile(path, id, tuple(columns), texts, tuple(names))


def parts_together(file: TableFile, n_per_part: int, *, skip: int = 0) -> Iterator[Part]:
    """Parts of about so many rows of a table whose ids lie together; an id with more rows is a part of its own."""
    import pyarrow as pa

    start, waiting, n = skip, [], 0
    for batch in file.batches(skip=skip):
        waiting.append(batch)
        n += len(batch)
        while n >= n_per_part:
            table = pa.concat_tables(waiting)
            cut = _last_cut(table, file.id, n_per_part)
            if cut is None:
                break  # one id, which goes on
            yield Part(start, start + cut, table.slice(0, cut))
            start, n, waiting = start + cut, n - cut, [table.slice(cut)]
    if n:
        yield Part(start, start + n, pa.concat_tables(waiting))


def _last_cut(table: "pa.Table", id: str, n: int) -> int | None:
    """Where to cut off about n rows between two ids, not at the end, where an id may go on; None if there is no place.

    That is the last place within n rows, or else the first beyond.
    """
    starts = _runs(table, id)[0][1:]
    if not len(starts):
        return None
    within = starts[starts <= n]
    return int(within[-1] if len(within) else starts[0])


def gather(file: TableFile, ids: Ids, folder: Path, n_per_part: int) -> list[Path]:
    """Write the rows of a table to files in a folder, each with those of a range of ids; returns them in order.

    What is in the folder is begun anew.
    """
    import pyarrow as pa

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    n_files = min(max(-(-ids.n_rows // n_per_part), 1), MOST_FILES)
    borders = ids.marks[np.linspace(0, len(ids.marks), n_files + 1).astype(int)[1:-1]] if n_files > 1 else ids.marks[:0]
    borders = np.unique(borders)
    paths = [folder / f"{i:04d}.arrow" for i in range(len(borders) + 1)]
    writers: dict[int, Any] = {}
    try:
        for batch in file.batches():
            starts, found = _runs(batch, file.id)
            of_run = (
                np.searchsorted(borders, found.astype(borders.dtype), side="right")
                if len(borders)
                else np.zeros(len(found), dtype=np.int64)
            )
            of_row = np.repeat(of_run, np.diff(np.append(starts, len(batch))))
            order = np.argsort(of_row, kind="stable")
            cuts = np.searchsorted(of_row[order], np.arange(len(paths) + 1))
            moved = batch.take(pa.array(order))
            for i in np.unique(of_row).tolist():
                if i not in writers:
                    writers[i] = pa.ipc.new_stream(str(paths[i]), batch.schema)
                writers[i].write_table(moved.slice(cuts[i], cuts[i + 1] - cuts[i]).combine_chunks())
    finally:
        for writer in writers.values():
            writer.close()
    return [paths[i] for i in sorted(writers)]


def parts_gathered(paths: Sequence[Path], id: str, *, skip: int = 0) -> Iterator[Part]:
    """The parts that `gather` wrote, each sorted by id; rows are counted through all of them."""
    import pyarrow as pa

    start = 0
    for path in paths:
        with pa.OSFile(str(path)) as opened, pa.ipc.open_stream(opened) as reader:
            table = reader.read_all()
        if start >= skip:
            yield Part(start, start + len(table), table.take(pa.compute.sort_indices(table, [(id, "ascending")])))
        start += len(table)


def order_of_ids(table: "pa.Table", id: str) -> list[Any]:
    """The ids of a part as they come, each once."""
    return list(dict.fromkeys(_runs(table, id)[1].tolist()))


def _runs(table: "pa.Table", id: str) -> tuple[Int64[np.ndarray, "r"], np.ndarray]:
    """Where runs of one id begin, and their ids; rows without one are a run of their own."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = table[id].combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.null_count:
        is_whole = pa.types.is_integer(column.type)
        column = pc.fill_null(column if is_whole else column.cast(pa.string()), NO_NUMBER if is_whole else "")
    values = column.to_numpy(zero_copy_only=False)
    changes = np.flatnonzero(values[1:] != values[:-1]) + 1
    starts = np.concatenate([[0], changes]).astype(np.int64)
    ids = values[starts]
    return starts, ids.astype(str) if ids.dtype == object else ids


def _hashes(ids: np.ndarray) -> UInt64[np.ndarray, "r"]:
    from pandas.util import hash_array

    return hash_array(ids.astype(object) if ids.dtype.kind == "U" else ids, categorize=False)


def _word(dtype: "pa.DataType") -> str:
    import pyarrow as pa

    if pa.types.is_string(dtype):
        return "text"
    return "whole numbers" if pa.types.is_integer(dtype) else str(dtype)


_NOTHING = object()


class _Known:
    """The ids that have ended, as numbers of 8 bytes, in sorted arrays of which few are of like size."""

    def __init__(self) -> None:
        self.arrays: list[np.ndarray] = []

    def add(self, hashes: UInt64[np.ndarray, "r"]) -> bool:
        """Add ids, of which none may be known, nor come twice; whether that is so."""
        new = np.unique(hashes)
        if len(new) < len(hashes):
            return False
        for known in self.arrays:
            places = np.searchsorted(known, new)
            if (known[np.minimum(places, len(known) - 1)] == new).any():
                return False
        while self.arrays and len(self.arrays[-1]) <= len(new):
            new = np.sort(np.concatenate([self.arrays.pop(), new]))
        self.arrays.append(new)
        return True


class _Sampler:
    """Ids of rows at even distances, as many as are kept in memory at once."""

    def __init__(self) -> None:
        self.step, self.n, self.kept = 1, 0, [np.zeros(0, dtype=np.int64)]

    def add(self, ids: np.ndarray, counts: Int64[np.ndarray, "r"]) -> None:
        """Add runs of rows."""
        ends = self.n + np.cumsum(counts)
        first = -(-self.n // self.step) * self.step
        places = np.arange(first, int(ends[-1]), self.step)
        self.kept.append(ids[np.searchsorted(ends, places, side="right")])
        self.n = int(ends[-1])
        while sum(map(len, self.kept)) > SAMPLED:
            self.kept = [np.concatenate([part for part in self.kept if len(part)])[::2]]
            self.step *= 2

    def marks(self) -> np.ndarray:
        """The sampled ids, sorted."""
        parts = [part for part in self.kept if len(part)]
        return np.sort(np.concatenate(parts)) if parts else np.zeros(0, dtype=np.int64)

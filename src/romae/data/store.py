"""A store: samples of any length in one Arrow file, written once in a stream, then mapped and read at random.

A row is a sample. Batches are gathered straight from the mapped file, without making `Sample`s on the way, and what
has been read is handed back to the system when it exceeds the memory budget.

A last record batch without rows carries checksums as its metadata: of the numbers in pieces, which are checked when
they are first read, and of all the rest, which is checked when the store is opened. Stores of 0.1 have none.
"""

import json
import math
import mmap
import numbers
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
import pyarrow as pa
import torch
from jaxtyping import Int64
from torch import Tensor

from romae.config import from_dict, to_dict
from romae.data.checksums import Pieces, Range, checksum, checksum_of_frame, checksums_of_pieces
from romae.data.frames import STORE
from romae.data.schema import Schema
from romae.data.sources import Source
from romae.files import readable_path, write_whole
from romae.tokens.layout import Layout
from romae.tokens.sample import Sample
from romae.tokens.tokens import Batch, PackedSamples

FORMAT = "1"
CHUNK_TOKENS = 1 << 20
NUMBERS = {
    pa.float32(): torch.float32,
    pa.float64(): torch.float64,
    pa.int64(): torch.int64,
    pa.uint8(): torch.uint8,
}


def write_store(samples: Iterable[Sample], path: str | Path, *, metadata: Mapping[str, Any] | None = None) -> "Store":
    """Write samples to a file on disk, one after the other, for data that do not fit into memory.

    Parameters
    ----------
    samples : iterable of Sample
        The samples; a generator will do. No more than a chunk is held in memory.
    path : str or Path
        The file to write, such as "curves.arrow". It appears when it is whole; one that is there already is replaced.
    metadata : mapping, optional
        What to keep beside the samples, as JSON. The schema of the data is kept in any case.

    Returns
    -------
    Store
        The store, opened.

    Raises
    ------
    ValueError
        If there is no sample, samples do not agree, the path is a folder, or the metadata cannot be written as JSON.
    TypeError
        If something else than samples is given.

    Examples
    --------
    >>> import numpy as np
    >>> import romae
    >>> samples = romae.from_arrays(np.zeros((4, 3, 1)))
    >>> store = romae.write_store(samples, "zeros.arrow", metadata={"channels": ["flux"]})
    >>> store, store.metadata
    (Store('zeros.arrow': 4 samples, 12 tokens), {'channels': ['flux']})
    """
    path = readable_path(path)
    if not isinstance(samples, Iterable):
        raise TypeError(f"a store is written from samples, such as a list of them, not from {type(samples).__name__}")
    stream = iter(samples)
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give the name of a file, such as {path / 'samples.arrow'}")
    first = next(stream, None)
    if first is None:
        raise ValueError("a store needs at least one sample, and there is none")
    names = getattr(samples, "schema", None) or getattr(first, "schema", None)
    notes = {STORE: FORMAT, "metadata": _as_json(metadata or {}), "schema": json.dumps(to_dict(names))}
    notes["checksums"] = "sha256"
    schema = _schema(first, 0).with_metadata(notes)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise ValueError(f"there is a file where the folder {path.parent} of the store should be") from None

    def write(to: Path) -> None:
        pieces = []
        with pa.OSFile(str(to), "wb") as file, pa.ipc.new_file(file, schema) as writer:
            for chunk in _chunks(first, stream):
                batch = _record_batch(chunk, schema)
                pieces += [checksums_of_pieces(flat) for flat in _Chunk(batch).numbers.values()]
                writer.write_batch(batch)
            sums = "".join(pieces)
            seal = checksum(sums.encode())  # stands for the checksum of the frame until the file is whole
            writer.write_batch(batch.slice(0, 0), custom_metadata={"pieces": sums, "frame": seal})
        _set_seal(to, seal)

    write_whole(path, write)
    return Store(path)


class Store(Source):
    """Samples on disk, memory-mapped and read as they are asked for.

    A sequence of samples, written by `write_store`, that `train`, `Loader`, `predict` and `fit_scaling` take like a
    list.

    Parameters
    ----------
    path : str or Path
        The file.
    memory_budget : int, default 1 GiB
        The bytes that may be read before their pages are handed back to the system.

    Raises
    ------
    ValueError
        If there is no such file, it is damaged, or no store. Numbers that are not those that were written are refused
        when they are first read, or all of them by `verify`.

    Warns
    -----
    UserWarning
        If the store was written by romae 0.1, without checksums, so that damage to its numbers goes unnoticed.

    Examples
    --------
    >>> import numpy as np
    >>> import romae
    >>> _ = romae.write_store(romae.from_arrays(np.zeros((4, 3, 1))), "zeros.arrow")
    >>> store = romae.Store("zeros.arrow")
    >>> len(store), store[0], store.lengths.tolist()
    (4, Sample(0: 3 tokens, 1 channels, 1 position dims), [3, 3, 3, 3])
    """

    is_quick = True

    def __init__(self, path: str | Path, *, memory_budget: int = 1 << 30) -> None:
        self._open(path, memory_budget)
        if self._pieces is None:
            warnings.warn(
                f"{path} has no checksums, since an earlier version wrote it: damage to its numbers goes unnoticed; "
                "write it again with write_store(store, path)",
                stacklevel=2,
            )

    def _open(self, path: str | Path, memory_budget: int) -> None:
        self.path, self.memory_budget = readable_path(path).absolute(), memory_budget
        if not self.path.is_file():
            raise ValueError(f"there is no store at {path}; write one with write_store")
        with self.path.open("rb") as file:
            try:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                reader = pa.ipc.open_file(pa.py_buffer(self._map))
                notes = reader.schema.metadata or {}
                if notes.get(STORE.encode()) != FORMAT.encode():
                    raise ValueError("it is an Arrow file of another kind or version; write it with write_store")
                self.metadata: dict[str, Any] = json.loads(notes.get(b"metadata", b""))
                names = json.loads(notes.get(b"schema", b"null"))  # stores of 0.1 have none
                self.schema = None if names is None else from_dict(Schema, names, where="schema")
                self._chunks, sums = _read_chunks(reader, pa.py_buffer(self._map).address)
                if not any(len(chunk.lengths) for chunk in self._chunks):
                    raise ValueError("it holds no samples")
                self._pieces = None
                if sums or b"checksums" in notes:
                    self._pieces = _checked_pieces(memoryview(self._map), self._chunks, sums)
            except (pa.ArrowException, ValueError, TypeError, OSError, RecursionError) as error:
                raise ValueError(f"{path} is damaged or no store: {error}") from None
        self.lengths = np.concatenate([chunk.lengths for chunk in self._chunks]).astype(np.int64)
        self._starts = np.cumsum([0, *(len(chunk.lengths) for chunk in self._chunks)])
        self._n_touched = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self.path, self.memory_budget)  # a worker process maps the file itself

    def __repr__(self) -> str:
        return f"Store({self.path.name!r}: {len(self)} samples, {int(self.lengths.sum())} tokens)"

    def __len__(self) -> int:
        return len(self.lengths)

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> list[Sample]: ...
    def __getitem__(self, index: int | slice) -> Sample | list[Sample]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        [(chunk, row)] = places = self._places(self._checked([index]))
        self._check_numbers(places)
        values, positions = chunk.rows("values", row).copy(), chunk.rows("positions", row).copy()
        target = chunk.target(row).copy() if chunk.has("target") else None
        hidden = chunk.rows("hidden", row).astype(bool) if chunk.has("hidden") else None
        weight = chunk.numbers["weight"][row] if chunk.has("weight") else None
        try:
            sample = Sample(values, positions, target, chunk.id(row), hidden, self.schema, weight)
        except ValueError as error:
            raise ValueError(f"sample {chunk.id(row)!r} of {self.path} cannot be used: {error}") from None
        self._release(values.nbytes + positions.nbytes)
        return sample

    def packed(self, indices: Sequence[int] | np.ndarray) -> PackedSamples:
        """Samples end to end, gathered straight from the file.

        Parameters
        ----------
        indices : sequence of int or array
            Which samples; negative ones count from the end.

        Returns
        -------
        PackedSamples
            In the data's own units.

        Raises
        ------
        ValueError
            If a sample is damaged, empty, or has numbers that are not finite.
        """
        checked = self._checked(indices)
        places = self._places(checked)
        self._check_numbers(places)

        def gathered(name: str) -> Tensor:
            return torch.from_numpy(np.concatenate([chunk.rows(name, row) for chunk, row in places]))

        values, positions = gathered("values"), gathered("positions")
        target = _targets(places)
        self._release(values.nbytes + positions.nbytes)
        packed = PackedSamples(
            values,
            positions,
            Layout.of(torch.from_numpy(self.lengths[checked])),
            target=target,
            ids=tuple(chunk.id(row) for chunk, row in places),
            hidden=gathered("hidden").bool() if self._chunks[0].has("hidden") else None,
            is_target_per_token=self._chunks[0].has_targets_per_token,
            weight=_weights(places),
        )
        if not _is_sound(packed):
            for i in checked.tolist():
                self[i]  # says which sample it is, and what is wrong with it
        return packed

    def batch(self, indices: Sequence[int] | np.ndarray) -> Batch:
        """The samples at these indices as a packed batch, gathered straight from the file.

        Parameters
        ----------
        indices : sequence of int or array
            Which samples; negative ones count from the end.

        Returns
        -------
        Batch
            On the host.
        """
        return self.packed(indices).batch()

    def verify(self) -> None:
        """Check all numbers now, rather than each when it is first read.

        Raises
        ------
        ValueError
            If some are not those that were written.

        Notes
        -----
        A store of romae 0.1 has no checksums, and nothing to be checked by.

        Examples
        --------
        >>> import numpy as np
        >>> import romae
        >>> romae.write_store(romae.from_arrays(np.zeros((4, 3, 1))), "zeros.arrow").verify()
        """
        for chunk in self._chunks:
            for name, place in chunk.ranges.items():
                self._check_range(place, 0, place[1] - place[0], f"the column {name}")

    def _check_numbers(self, places: list[tuple["_Chunk", int]]) -> None:
        """Compare what is about to be read with its checksums, where that has not been done."""
        if self._pieces is None or not self._pieces.n_left:
            return
        for chunk, row in places:
            for name, place in chunk.ranges.items():
                self._check_range(place, *chunk.byte_range(name, row), f"the {name} of a sample")

    def _check_range(self, numbers: Range, start: int, stop: int, what: str) -> None:
        if self._pieces is None:
            return
        try:
            n_read = self._pieces.check(numbers, start, stop)
        except ValueError as error:
            raise ValueError(f"{self.path} is damaged in {what}: {error}; copy or write it again") from None
        if n_read:
            self._release(n_read)

    def _checked(self, indices: Sequence[Any] | np.ndarray) -> Int64[np.ndarray, "b"]:
        """Indices from 0 on, whatever end they were counted from."""
        if len(indices) == 0:
            raise ValueError("a batch needs at least one sample, and this one is empty")
        array = np.asarray(indices)
        if array.dtype.kind not in "iu" or array.ndim != 1:
            raise TypeError(f"samples of a store are asked for by whole numbers, not by {indices!r}")
        outside = (array < -len(self)) | (array >= len(self))
        if outside.any():
            raise IndexError(f"there is no sample {array[outside][0]} in a store of {len(self)}")
        return array.astype(np.int64) % len(self)

    def _places(self, indices: Int64[np.ndarray, "b"]) -> list[tuple["_Chunk", int]]:
        """The chunk and the row in it where each sample lies."""
        owners = np.searchsorted(self._starts, indices, side="right") - 1
        rows = (indices - self._starts[owners]).tolist()
        return [(self._chunks[owner], row) for owner, row in zip(owners.tolist(), rows, strict=True)]

    def _release(self, n_bytes: int) -> None:
        self._n_touched += max(n_bytes, mmap.PAGESIZE)
        if self._n_touched > self.memory_budget:
            _hand_back(self._map)
            self._n_touched = 0


def _hand_back(mapped: mmap.mmap) -> None:
    """Let the system take the pages of a mapped file back, where it can be told so."""
    if hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


def _reopened(path: Path, memory_budget: int) -> Store:
    """A store in another process, which need not say again that it has no checksums."""
    store = object.__new__(Store)
    store._open(path, memory_budget)
    return store


def _read_chunks(reader: pa.ipc.RecordBatchFileReader, origin: int) -> tuple[list["_Chunk"], dict[bytes, bytes]]:
    """The chunks of a file that is mapped at this address, and the metadata of the last batch, if it has any."""
    chunks: list[_Chunk] = []
    sums: dict[bytes, bytes] = {}
    for i in range(reader.num_record_batches):
        batch, notes = reader.get_batch_with_custom_metadata(i)
        sums |= dict(notes or {})
        chunks.append(_Chunk(batch, origin))
    return chunks, sums


def _ranges(chunks: list["_Chunk"]) -> list[Range]:
    """Where the numbers of all chunks lie in their file."""
    return [numbers for chunk in chunks for numbers in chunk.ranges.values()]


def _checked_pieces(file: memoryview, chunks: list["_Chunk"], sums: dict[bytes, bytes]) -> Pieces:
    """The pieces of a file whose frame is as it was written; others are refused."""
    if not {b"pieces", b"frame"} <= sums.keys():
        raise ValueError("its checksums are missing")
    seal, numbers = sums[b"frame"].decode(), _ranges(chunks)
    if checksum_of_frame(file, numbers, seal) != seal:
        raise ValueError("its header or its index is not what was written; copy or write it again")
    return Pieces(file, numbers, sums[b"pieces"].decode())


def _set_seal(path: Path, seal: str) -> None:
    """Put the checksum of the frame in the place of what stands for it."""
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        buffer = pa.py_buffer(mapped)
        chunks, _ = _read_chunks(pa.ipc.open_file(buffer), buffer.address)
        frame = checksum_of_frame(memoryview(mapped), _ranges(chunks), seal)
        place = mapped.rfind(seal.encode())
        del buffer, chunks  # a file that something looks at cannot be closed
        file.seek(place)
        file.write(frame.encode())


def _is_sound(packed: PackedSamples) -> bool:
    """Whether each of these samples could be a `Sample`: it has tokens, finite numbers, and a mask that hides some."""
    lengths = packed.layout.lengths
    numbers = (packed.values, packed.positions, packed.target, packed.weight)
    floats = [x for x in numbers if x is not None and x.is_floating_point()]
    if packed.weight is not None and bool((packed.weight < 0).any()):
        return False
    if packed.hidden is not None:
        n_hidden = packed.n_hidden
        if not bool(((n_hidden > 0) & (n_hidden < lengths)).all()):
            return False
    return bool(lengths.all()) and all(map(_is_finite, floats))


def _is_finite(x: Tensor) -> bool:
    # One number that is not finite makes the sum so, which is cheaper to see; a sum may also be too large.
    return math.isfinite(x.sum().item()) or bool(torch.isfinite(x).all())


class _Chunk:
    """One record batch as flat arrays over the mapped file."""

    def __init__(self, batch: pa.RecordBatch, origin: int = 0) -> None:
        missing = [name for name in ("id", "values", "positions") if name not in batch.schema.names]
        if missing:
            raise ValueError(f"it has no column {' and '.join(missing)}")
        batch.validate(full=True)
        self._columns = {name: batch.column(name) for name in batch.schema.names}
        self._flat = {name: _flat(column) for name, column in self._columns.items() if name != "id"}
        # Where the numbers of each column lie behind the address `origin`, which is that of a mapped file.
        self.ranges = {name: _range(flat, origin) for name, flat in self._flat.items() if flat.nbytes}
        for name, dtype in (("values", np.float32), ("positions", np.float64)):
            arrow_type, flat = self._columns[name].type, self._flat[name]
            if not pa.types.is_list(arrow_type) or flat.ndim != 2 or flat.dtype != dtype:
                raise ValueError(f"its column {name} holds {arrow_type}")
        self.offsets = self._columns["values"].offsets.to_numpy()
        self.lengths = np.diff(self.offsets)
        self.is_ragged = {name: pa.types.is_list(column.type) for name, column in self._columns.items()}
        for name, column in self._columns.items():
            if pa.types.is_list(column.type) and not np.array_equal(column.offsets.to_numpy(), self.offsets):
                raise ValueError(f"its columns values and {name} differ in length")

    @property
    def numbers(self) -> dict[str, np.ndarray]:
        """The numbers of each column, end to end."""
        return self._flat

    def byte_range(self, name: str, row: int) -> Range:
        """Where the numbers of a sample lie among those of a column, in bytes."""
        flat = self._flat[name]
        first, last = self.offsets[row : row + 2].tolist() if self.is_ragged[name] else (row, row + 1)
        return first * flat.strides[0], last * flat.strides[0]

    def id(self, row: int) -> Any:
        return self._columns["id"][row].as_py()

    def has(self, name: str) -> bool:
        return name in self._columns

    @property
    def has_targets_per_token(self) -> bool:
        return self.has("target") and pa.types.is_list(self._columns["target"].type)

    def rows(self, name: str, row: int) -> np.ndarray:
        return self._flat[name][self.offsets[row] : self.offsets[row + 1]]

    def target(self, row: int) -> np.ndarray | np.generic:
        if pa.types.is_list(self._columns["target"].type):
            return self.rows("target", row)
        return self._flat["target"][row]


def _range(flat: np.ndarray, origin: int) -> Range:
    start = flat.__array_interface__["data"][0] - origin
    return start, start + flat.nbytes


def _flat(column: pa.Array) -> np.ndarray:
    """The numbers of a column without its outer list: [rows, width], or [rows] for plain numbers."""
    if pa.types.is_list(column.type):
        column = column.values
    if pa.types.is_fixed_size_list(column.type):
        return column.flatten().to_numpy(zero_copy_only=True).reshape(-1, column.type.list_size)
    return column.to_numpy(zero_copy_only=True)


def _as_json(metadata: Mapping[str, Any]) -> str:
    try:
        return json.dumps(dict(metadata))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"metadata is kept as JSON, and this cannot be: {error}") from None


def _schema(sample: Sample, number: int) -> pa.Schema:
    """The columns that a store of samples like this one needs."""
    if not isinstance(sample, Sample):
        raise TypeError(f"a store keeps Samples, and number {number} is of type {type(sample).__name__}")
    fields = [
        pa.field("id", _id_type(sample.id, number)),
        pa.field("values", pa.list_(pa.list_(pa.float32(), sample.values.shape[1]))),
        pa.field("positions", pa.list_(pa.list_(pa.float64(), sample.positions.shape[1]))),
    ]
    if sample.target is not None:
        dtype = pa.float32() if sample.target.is_floating_point() else pa.int64()
        row = dtype if sample.target.ndim == 0 else pa.list_(dtype, sample.target.shape[-1])
        fields.append(pa.field("target", pa.list_(row) if sample.target.ndim == 2 else row))
    if sample.hidden is not None:
        fields.append(pa.field("hidden", pa.list_(pa.uint8())))
    if sample.weight is not None:
        fields.append(pa.field("weight", pa.float32()))
    return pa.schema(fields)


def _id_type(id: Any, number: int) -> pa.DataType:
    if id is None:
        return pa.null()
    is_whole = isinstance(id, numbers.Integral) and not isinstance(id, bool | np.timedelta64)
    if is_whole and -(2**63) <= int(id) < 2**63:
        return pa.int64()
    if not isinstance(id, str):
        raise ValueError(
            f"a store keeps ids that are text or integers, not {id!r} as in sample {number} (an integer has at most "
            "64 bits); use str(id)"
        )
    try:
        id.encode()
    except UnicodeEncodeError:
        raise ValueError(f"the id {id!r} of sample {number} is no valid text: it has half of a character") from None
    return pa.string()


def _chunks(first: Sample, rest: Iterator[Sample]) -> Iterator[list[Sample]]:
    expected = _schema(first, 0)
    chunk, n_tokens = [first], len(first)
    for number, sample in enumerate(rest, start=1):
        if (schema := _schema(sample, number)) != expected:
            raise ValueError(
                f"sample {number} does not match sample 0: {_schema_differences(schema, expected)}; a store holds "
                "samples with the same channels, position dimensions, and kinds of target and id"
            )
        if n_tokens + len(sample) > CHUNK_TOKENS:
            yield chunk
            chunk, n_tokens = [], 0
        chunk.append(sample)
        n_tokens += len(sample)
    yield chunk


def _schema_differences(schema: pa.Schema, expected: pa.Schema) -> str:
    types = {field.name: field.type for field in expected}
    changed = [f"{f.name} is {f.type} instead of {types.get(f.name)}" for f in schema if f.type != types.get(f.name)]
    return ", ".join([*changed, *(f"{name} is missing" for name in types if name not in schema.names)])


def _record_batch(chunk: list[Sample], schema: pa.Schema) -> pa.RecordBatch:
    offsets = pa.array(np.cumsum([0, *(len(sample) for sample in chunk)]), pa.int32())
    columns = []
    for field in schema:
        if field.name == "id":
            ids: list[Any] = [sample.id for sample in chunk]
            columns.append(pa.array([int(id) for id in ids] if pa.types.is_integer(field.type) else ids, field.type))
            continue
        is_ragged = pa.types.is_list(field.type)
        item = field.type.value_type if is_ragged else field.type
        is_wide = pa.types.is_fixed_size_list(item)
        dtype = NUMBERS[item.value_type if is_wide else item]
        tensors = [getattr(sample, field.name).detach().to("cpu", dtype) for sample in chunk]
        flat = (torch.cat(tensors) if is_ragged else torch.stack(tensors)).numpy().reshape(-1)
        array: pa.Array = pa.array(flat)
        if is_wide:
            array = pa.FixedSizeListArray.from_arrays(array, item.list_size)
        columns.append(pa.ListArray.from_arrays(offsets, array) if is_ragged else array)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _targets(places: list[tuple[_Chunk, int]]) -> Tensor | None:
    if not places[0][0].has("target"):
        return None
    targets = [chunk.target(row) for chunk, row in places]
    return torch.from_numpy(np.concatenate(targets) if targets[0].ndim == 2 else np.stack(targets))


def _weights(places: list[tuple[_Chunk, int]]) -> Tensor | None:
    if not places[0][0].has("weight"):
        return None
    return torch.from_numpy(np.stack([chunk.numbers["weight"][row] for chunk, row in places]))

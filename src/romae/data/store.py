"""A store: samples of any length in one Arrow file, written once in a stream, then mapped and read at random.

A row is a sample. Batches are gathered straight from the mapped file, without making `Sample`s on the way, and what
has been read is handed back to the system when it exceeds the memory budget.
"""

import contextlib
import json
import mmap
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from romae.tokens import Batch, Layout, Sample, Tokens, collate

FORMAT = "1"
CHUNK_TOKENS = 1 << 20


def write_store(samples: Iterable[Sample], path: str | Path, *, metadata: Mapping[str, Any] | None = None) -> "Store":
    """Write samples one after the other, holding no more than a chunk in memory; whole or not at all.

    `metadata` is kept beside the samples, as JSON: the place for scaling, channel names and class names.
    """
    path, stream = Path(path), iter(samples)
    first = next(stream, None)
    if first is None:
        raise ValueError("a store needs at least one sample, and there is none")
    schema = _schema(first).with_metadata({"romae_store": FORMAT, "metadata": json.dumps(dict(metadata or {}))})
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    os.close(handle)
    try:
        with pa.OSFile(name, "wb") as file, pa.ipc.new_file(file, schema) as writer:
            for chunk in _chunks(first, stream):
                writer.write_batch(_record_batch(chunk, schema))
        os.chmod(name, 0o644)
        os.replace(name, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
    return Store(path)


class Store(Sequence[Sample]):
    """Samples on disk, read as they are asked for."""

    def __init__(self, path: str | Path, *, memory_budget: int = 1 << 30) -> None:
        self.path, self.memory_budget = Path(path), memory_budget
        if not self.path.is_file():
            raise ValueError(f"there is no store at {self.path}; write one with write_store")
        with self.path.open("rb") as file:
            try:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                reader = pa.ipc.open_file(pa.py_buffer(self._map))
                batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
            except (pa.ArrowInvalid, pa.ArrowException, ValueError, OSError) as error:
                raise ValueError(f"{self.path} is damaged or no store: {error}") from None
        notes = reader.schema.metadata or {}
        if notes.get(b"romae_store") != FORMAT.encode():
            raise ValueError(f"{self.path} is an Arrow file but no store of this version; write it with write_store")
        self.metadata: dict[str, Any] = json.loads(notes[b"metadata"])
        self._chunks = [_Chunk(batch) for batch in batches]
        self.lengths = np.concatenate([chunk.lengths for chunk in self._chunks])
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
        if not -len(self) <= index < len(self):
            raise IndexError(f"sample {index} of a store of {len(self)}")
        index %= len(self)
        number = int(np.searchsorted(self._starts, index, side="right")) - 1
        chunk, row = self._chunks[number], index - int(self._starts[number])
        return Sample(
            chunk.rows("values", row).copy(),
            chunk.rows("positions", row).copy(),
            target=chunk.target(row).copy() if chunk.has("target") else None,
            id=chunk.ids[row],
            hidden=chunk.rows("hidden", row).astype(bool) if chunk.has("hidden") else None,
        )

    def batch(self, indices: Sequence[int] | np.ndarray) -> Batch:
        """The samples at these indices as a packed batch."""
        if len(indices) == 0:
            raise ValueError("a batch needs at least one sample, and this one is empty")
        indices = np.asarray(indices)
        if self._chunks[0].has("hidden"):  # rare, and not worth a second way
            return collate([self[int(i)] for i in indices])
        numbers = np.searchsorted(self._starts, indices, side="right") - 1
        places = list(
            zip(map(self._chunks.__getitem__, numbers), (indices - self._starts[numbers]).tolist(), strict=True)
        )
        values = np.concatenate([chunk.rows("values", row) for chunk, row in places])
        positions = np.concatenate([chunk.rows("positions", row) for chunk, row in places])
        self._release(values.nbytes + positions.nbytes)
        return Batch(
            Tokens(
                torch.from_numpy(values),
                torch.from_numpy(positions).float(),
                Layout.of(torch.from_numpy(self.lengths[indices].astype(np.int64))),
            ),
            target=_targets(places),
            ids=tuple(chunk.ids[row] for chunk, row in places),
        )

    def _release(self, n_bytes: int) -> None:
        self._n_touched += max(n_bytes, mmap.PAGESIZE)
        if self._n_touched > self.memory_budget and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)
            self._n_touched = 0


def _reopened(path: Path, memory_budget: int) -> Store:
    return Store(path, memory_budget=memory_budget)


class _Chunk:
    """One record batch as flat arrays over the mapped file."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._columns = {name: batch.column(name) for name in batch.schema.names}
        self._flat = {name: _flat(column) for name, column in self._columns.items() if name != "id"}
        offsets = self._columns["values"].offsets.to_numpy()
        self.offsets, self.lengths = offsets, np.diff(offsets)
        self.ids = _Ids(self._columns["id"])

    def has(self, name: str) -> bool:
        return name in self._columns

    def rows(self, name: str, row: int) -> np.ndarray:
        return self._flat[name][self.offsets[row] : self.offsets[row + 1]]

    def target(self, row: int) -> np.ndarray | np.generic:
        if pa.types.is_list(self._columns["target"].type):
            return self.rows("target", row)
        return self._flat["target"][row]


class _Ids:
    """The identifiers of a chunk, read one at a time."""

    def __init__(self, column: pa.Array) -> None:
        self._column = column

    def __getitem__(self, row: int) -> Any:
        return self._column[row].as_py()


def _flat(column: pa.Array) -> np.ndarray:
    """The numbers of a column without its outer list: [rows, width], or [rows] for plain numbers."""
    if pa.types.is_list(column.type):
        column = column.values
    if pa.types.is_fixed_size_list(column.type):
        return column.flatten().to_numpy(zero_copy_only=True).reshape(-1, column.type.list_size)
    return column.to_numpy(zero_copy_only=True)


def _schema(sample: Sample) -> pa.Schema:
    """The columns that a store of samples like this one needs."""
    if not isinstance(sample.id, int | str | type(None)):
        raise ValueError(f"a store keeps ids that are text or integers, not {sample.id!r}; use str(id)")
    fields = [
        pa.field("id", pa.null() if sample.id is None else pa.int64() if isinstance(sample.id, int) else pa.string()),
        pa.field("values", pa.list_(pa.list_(pa.float32(), sample.values.shape[1]))),
        pa.field("positions", pa.list_(pa.list_(pa.float64(), sample.positions.shape[1]))),
    ]
    if sample.target is not None:
        number = pa.float32() if sample.target.is_floating_point() else pa.int64()
        row = number if sample.target.ndim == 0 else pa.list_(number, sample.target.shape[-1])
        fields.append(pa.field("target", pa.list_(row) if sample.target.ndim == 2 else row))
    if sample.hidden is not None:
        fields.append(pa.field("hidden", pa.list_(pa.uint8())))
    return pa.schema(fields)


def _chunks(first: Sample, rest: Iterator[Sample]) -> Iterator[list[Sample]]:
    expected = _schema(first)
    chunk, n_tokens = [first], len(first)
    for number, sample in enumerate(rest, start=1):
        if _schema(sample) != expected:
            raise ValueError(
                f"sample {number} does not match sample 0: {_differences(_schema(sample), expected)}; a store holds "
                "samples with the same channels, position dimensions, and kinds of target and id"
            )
        if n_tokens + len(sample) > CHUNK_TOKENS:
            yield chunk
            chunk, n_tokens = [], 0
        chunk.append(sample)
        n_tokens += len(sample)
    yield chunk


def _differences(found: pa.Schema, expected: pa.Schema) -> str:
    kinds = {field.name: field.type for field in expected}
    changed = [f"{f.name} is {f.type} instead of {kinds.get(f.name)}" for f in found if f.type != kinds.get(f.name)]
    return ", ".join([*changed, *(f"{name} is missing" for name in kinds if name not in found.names)])


def _record_batch(chunk: list[Sample], schema: pa.Schema) -> pa.RecordBatch:
    offsets = pa.array(np.cumsum([0, *(len(sample) for sample in chunk)]), pa.int32())
    columns = []
    for field in schema:
        if field.name == "id":
            columns.append(pa.array([sample.id for sample in chunk], field.type))
            continue
        tensors = [getattr(sample, field.name) for sample in chunk]
        is_ragged = pa.types.is_list(field.type)
        numbers = (torch.cat(tensors) if is_ragged else torch.stack(tensors)).cpu().numpy()
        item = field.type.value_type if is_ragged else field.type
        if pa.types.is_fixed_size_list(item):
            flat = pa.array(np.ascontiguousarray(numbers).reshape(-1), item.value_type)
            array: pa.Array = pa.FixedSizeListArray.from_arrays(flat, item.list_size)
        else:
            array = pa.array(numbers, item)
        columns.append(pa.ListArray.from_arrays(offsets, array) if is_ragged else array)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _targets(places: list[tuple[_Chunk, int]]) -> Tensor | None:
    if not places[0][0].has("target"):
        return None
    found = [chunk.target(row) for chunk, row in places]
    return torch.from_numpy(np.concatenate(found) if found[0].ndim == 2 else np.stack(found))

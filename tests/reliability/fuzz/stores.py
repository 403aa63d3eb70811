"""Stores: samples that are written to disk and read again, from files that were damaged in between.

The oracle: whatever a store hands out is what was written, number by number.
"""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import torch

import romae
from fuzz import hostile
from fuzz.judging import Trial, answered, require


def _samples(trial: Trial) -> list[Any]:
    c, d, n_samples = trial.number(1, 3), trial.number(1, 2), trial.number(1, 6)
    target, ids, hides = (
        trial.choose([None, "class", "number", "tokens"]),
        trial.choose(["int", "str", None]),
        trial.chance(0.2),
    )
    samples = []
    for i in range(n_samples):
        n = trial.number(2, 8)
        targets: Any = {None: None, "class": trial.number(0, 3), "number": float(i) / 7, "tokens": np.ones((n, 2)) * i}[
            target
        ]
        samples.append(
            romae.Sample(
                trial.random.normal(size=(n, c)).astype(np.float32),
                trial.random.normal(size=(n, d)),
                target=targets,
                id={"int": 10 * i, "str": f"ü{i}", None: None}[ids],
                hidden=np.arange(n) < 1 if hides else None,
            )
        )
    return samples


def attempt(trial: Trial) -> None:
    trial.choose([_damaged, _damaged, _damaged, _hostile, _foreign])(trial)


def _damaged(trial: Trial) -> None:
    samples, path = _samples(trial), trial.folder / "samples.arrow"
    metadata = {"channels": ["flux"], "n": len(samples)}
    romae.write_store(samples, path, metadata=metadata)
    trial.is_sound = trial.chance(0.1)
    if not trial.is_sound:
        path.write_bytes(hostile.damaged(trial, path.read_bytes()))
    _read_right(trial, romae.Store(path), samples, metadata)


def _read_right(trial: Trial, store: Any, samples: list[Any], metadata: Any) -> None:
    with answered("a store"):
        require(store.metadata == metadata, "other metadata")
        require(len(store) == len(samples), "another number of samples")
        require(store.lengths.tolist() == [len(sample) for sample in samples], "other lengths")
        repr(store)
    if trial.chance(0.5):
        for i, sample in enumerate(samples):
            read = store[i]
            with answered("a sample of a store"):
                require(_same(read, sample), "another sample")
    batch = store.batch(range(len(store)))
    with answered("a batch of a store"):
        expected = romae.collate(samples)
        require(torch.equal(batch.tokens.values, expected.tokens.values), "a batch with other values")
        require(torch.equal(batch.tokens.positions, expected.tokens.positions), "a batch with other positions")
        require(_equal(batch.target, expected.target), "a batch with other targets")


def _same(a: Any, b: Any) -> bool:
    is_same = torch.equal(a.values, b.values) and torch.equal(a.positions.double(), b.positions.double())
    return is_same and _equal(a.target, b.target) and _equal(a.hidden, b.hidden) and a.id == b.id


def _equal(a: Any, b: Any) -> bool:
    return a is None and b is None if a is None or b is None else torch.equal(a, b)


def _hostile(trial: Trial) -> None:
    """Samples and metadata that a store cannot keep."""
    samples: Any = _samples(trial)
    metadata: Any = {"a": 1}
    path: Any = trial.folder / "samples.arrow"
    kind = trial.choose(["id", "id", "mixed", "thing", "metadata", "metadata", "path", "order", "budget", "index"])
    trial.note(kind)
    index: Any = 0
    if kind == "id":
        name = hostile.thing(trial)
        trial.note(repr(name)[:60])
        samples[-1] = romae.Sample(samples[-1].values, samples[-1].positions, target=samples[-1].target, id=name)
    elif kind == "mixed":
        samples.append(romae.Sample([[1.0]], [[0.0]], id=trial.choose([None, 1, "a"])))
    elif kind == "thing":
        samples = trial.choose(
            [hostile.thing(trial), [hostile.thing(trial)], [*samples, hostile.thing(trial)], iter(())]
        )
    elif kind == "metadata":
        metadata = trial.choose([hostile.thing(trial), {"a": hostile.thing(trial)}, {hostile.text(trial): 1}, {1: 2}])
        trial.note(repr(metadata)[:60])
    elif kind == "path":
        path = trial.choose(
            [trial.folder, hostile.thing(trial), trial.folder / ("x" * 300), trial.folder / "a" / "b.arrow"]
        )
        path = path if isinstance(path, type(trial.folder)) else trial.folder / str(hostile.text(trial)).strip("/~.")
        trial.note(repr(path)[-60:])
    elif kind == "order":
        samples = (sample for sample in samples)
    elif kind == "index":
        index = hostile.thing(trial)
        trial.note(repr(index)[:60])
    before = list(samples) if isinstance(samples, list) else None
    store = romae.write_store(samples, path, metadata=metadata)
    if kind == "index":
        read = store[index]
        with answered("an index that was accepted"):
            place = index.indices(len(store)) if isinstance(index, slice) else None
            require(place is not None or _same(read, before[int(index)]), "another sample")  # type: ignore[index]
    elif before is not None:
        with answered("a store that was written"):
            require(store.metadata == json.loads(json.dumps(dict(metadata or {}))), "other metadata")
        _read_right(trial, store, before, store.metadata)


def _foreign(trial: Trial) -> None:
    """Arrow files of other programs, and stores whose columns were changed by one."""
    samples, path = _samples(trial), trial.folder / "samples.arrow"
    romae.write_store(samples, path)
    with pa.ipc.open_file(pa.py_buffer(path.read_bytes())) as reader:
        table, schema = reader.read_all(), reader.schema
    kind = trial.choose(
        ["no notes", "no values", "nan", "type", "lengths", "rows", "nulls", "none", "version", "notes"]
    )
    trial.note(kind)
    notes = dict(schema.metadata or {})
    if kind == "no notes":
        table = table.replace_schema_metadata(None)
    elif kind == "no values":
        table = table.drop_columns([trial.choose(["values", "positions", "id"])])
    elif kind in ("nan", "lengths", "nulls"):
        rows = table["values"].to_pylist()
        rows[0] = {"nan": [[float("nan")] * len(rows[0][0])] * len(rows[0]), "lengths": rows[0][:1], "nulls": None}[
            kind
        ]
        column = pa.array(rows, type=table.schema.field("values").type)
        table = table.set_column(table.column_names.index("values"), table.schema.field("values"), column)
    elif kind == "type":
        dtype = trial.choose([pa.string(), pa.list_(pa.float32()), pa.list_(pa.list_(pa.float32())), pa.float64()])
        odd = pa.nulls(len(table), dtype)
        table = table.set_column(1, "values", odd)
    elif kind in ("rows", "none"):
        table = table.slice(0, 0) if kind == "none" else pa.concat_tables([table, table])
    elif kind == "version":
        table = table.replace_schema_metadata({**notes, b"romae_store": trial.choose([b"2", b"", b"x", b"9" * 30])})
    else:
        key = trial.choose(sorted(notes))
        odd_note = hostile.damaged_json(trial, {"a": 1}).encode("utf-8", "surrogatepass")
        table = table.replace_schema_metadata({**notes, key: odd_note})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    store = romae.Store(path)
    expected = samples * 2 if kind == "rows" else samples
    _read_right(trial, store, expected, store.metadata)

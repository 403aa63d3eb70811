"""Containers: the same data are the same samples, bit for bit, whatever holds them."""

import ast
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

import romae
from messages import refused
from romae.data.containers import as_table, is_table

COLUMNS = {"id": "star", "time": "day", "channel": "band", "values": ["flux", "error"], "label": "kind"}


def long_table() -> pd.DataFrame:
    random = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "star": np.repeat(["b", "a", "c"], 4),
            "day": random.uniform(0, 9, 12),
            "band": np.tile(["g", "r"], 6),
            "flux": random.normal(size=12),
            "error": random.uniform(size=12),
            "kind": np.repeat([2, 1, 2], 4),
        }
    )
    return table.sample(frac=1, random_state=0, ignore_index=True)


def same(first, second) -> bool:
    def equal(x, y):
        return (x is None) == (y is None) and (x is None or torch.equal(x, y))

    return (
        len(first) == len(second)
        and first.schema == second.schema
        and all(
            a.id == b.id and equal(a.values, b.values) and equal(a.positions, b.positions) and equal(a.target, b.target)
            for a, b in zip(first, second, strict=True)
        )
    )


class Stream:
    """Anything that has the Arrow stream interface, which may be read once."""

    def __init__(self, table: pa.Table) -> None:
        self.reader = table.to_reader()

    def __arrow_c_stream__(self, requested_schema=None):
        reader, self.reader = self.reader, None
        return reader.__arrow_c_stream__(requested_schema)


class Dataset:
    """What a data set of Hugging Face has: a format in which rows are asked for, all of them by [:]."""

    def __init__(self, table: pa.Table, is_arrow: bool = False) -> None:
        self.table, self.is_arrow, self.column_names = table, is_arrow, table.column_names

    def with_format(self, name):
        return Dataset(self.table, name == "arrow")

    def __getitem__(self, rows):
        return self.table[rows] if self.is_arrow else self.table[rows].to_pydict()


def polars(table):
    return pytest.importorskip("polars", reason="needs polars").DataFrame(table)


def xarray(table):
    pytest.importorskip("xarray", reason="needs xarray")
    return table.rename_axis("row").to_xarray()


def hugging_face(table):
    datasets = pytest.importorskip("datasets", reason="needs datasets")
    if not hasattr(datasets, "Dataset"):  # a folder of the tests has this name
        pytest.skip("needs datasets")
    return datasets.Dataset.from_pandas(table, preserve_index=False)


CONTAINERS = {
    "pyarrow": pa.Table.from_pandas,
    "a stream": lambda table: Stream(pa.Table.from_pandas(table)),
    "a reader": lambda table: pa.Table.from_pandas(table).to_reader(),
    "polars": polars,
    "a query of polars": lambda table: polars(table).lazy(),
    "categories of polars": lambda table: polars(table).with_columns(
        **{name: polars(table)[name].cast(sys.modules["polars"].Categorical) for name in ("star", "band")}
    ),
    "levels": lambda table: table.set_index(["star", "day"]),
    "other levels": lambda table: table.set_index(["band", "day"], append=True),
    "one level": lambda table: table.set_index("day"),
    "xarray": xarray,
    "Hugging Face": hugging_face,
    "like Hugging Face": lambda table: Dataset(pa.Table.from_pandas(table)),
    "a series in each row": lambda table: nested(table),
    "lists of pyarrow": lambda table: pa.Table.from_pandas(nested(table)),
    "lists of polars": lambda table: polars(pa.Table.from_pandas(nested(table))),
}


def nested(table):
    columns = {name: ("kind", "first") if name == "kind" else (name, list) for name in table if name != "star"}
    return table.groupby("star").agg(**columns).reset_index()


@pytest.mark.parametrize("container", CONTAINERS)
def test_every_container_of_a_table_gives_the_same_samples(container):
    wanted = romae.from_table(long_table(), **COLUMNS)
    assert same(romae.from_table(CONTAINERS[container](long_table()), **COLUMNS), wanted)
    assert same(romae.from_table_like(CONTAINERS[container](long_table()), wanted.schema), wanted)
    assert is_table(CONTAINERS[container](long_table()))


@pytest.mark.filterwarnings("ignore:dropped")
def test_a_column_for_each_sensor_with_gaps_is_the_same_in_every_container():
    random = np.random.default_rng(0)
    wide = pd.DataFrame(random.normal(size=(20, 3)), columns=["x", "y", "z"])
    wide = wide.mask(random.uniform(size=wide.shape) < 0.4).assign(id=np.arange(20) // 5, time=np.arange(20.0))
    columns = {"id": "id", "time": "time", "values": ["x", "y", "z"], "tokens": "scalars"}
    wanted = romae.from_table(wide, **columns)
    long = wide.melt(["id", "time"], var_name="channel", value_name="value").dropna()
    assert same(romae.from_table(long, id="id", time="time", channel="channel", values="value"), wanted)
    forms = [pa.Table.from_pandas(wide), wide.set_index(["id", "time"])]
    forms += [polars(wide), polars(wide).fill_nan(None)]  # both say that nothing was measured
    for form in forms:
        assert same(romae.from_table(form, **columns), wanted)
    assert same(romae.from_table(wide.set_index(["id", "time"]), tokens="scalars"), wanted)


def test_an_index_of_two_levels_says_what_they_are():
    table = long_table().drop(columns=["band", "kind"]).set_index(["star", "day"])
    wanted = romae.from_table(table, id="star", time="day", values=["flux", "error"])
    assert same(romae.from_table(table), wanted)
    unnamed = romae.from_table(table.rename_axis([None, None]))
    assert (unnamed.schema.id, unnamed.schema.time) == ("id", "time")
    assert all(torch.equal(x.positions, y.positions) for x, y in zip(unnamed, wanted, strict=True))
    with refused(ValueError, "the id", "id=", "two levels"):
        romae.from_table(table.reset_index())
    dated = table.set_index(pd.MultiIndex.from_product([pd.date_range("2024", periods=12), ["a"]]))
    with refused(ValueError, "first level", "dates", "swaplevel"):
        romae.from_table(dated)
    with refused(ValueError, "2 levels", "stack"):
        romae.from_table(pd.DataFrame({("a", "b"): [1.0]}), id="id", time="time", values="x")


def test_the_dimensions_of_xarray_are_columns():
    xr = pytest.importorskip("xarray", reason="needs xarray")
    values = np.random.default_rng(0).normal(size=(2, 3, 2))
    names = {"station": ["k", "l"], "hour": [0.0, 0.5, 4.0], "sensor": ["x", "y"]}
    array = xr.DataArray(values, names, ("station", "hour", "sensor"))
    wanted = romae.from_arrays(values, [0.0, 0.5, 4.0], tokens="scalars", ids=["k", "l"], channels=["x", "y"])
    assert same(romae.from_arrays(array, tokens="scalars"), wanted)
    turned = array.transpose("station", "sensor", "hour")
    assert same(romae.from_arrays(turned, tokens="scalars", layout="bcn"), wanted)
    assert same(romae.from_arrays(array, times=[0.0, 0.5, 4.0], ids=["k", "l"], tokens="scalars"), wanted)
    columns = {"id": "station", "time": "hour", "channel": "sensor", "values": "value"}
    for form in (array, array.rename("value").to_dataset()):
        table = romae.from_table(form, **columns)
        assert [x.positions.tolist() for x in table] == [x.positions.tolist() for x in wanted]
        assert all(torch.equal(x.values, y.values) for x, y in zip(table, wanted, strict=True))
    with refused(ValueError, "'station'", "isel"):
        romae.from_arrays(array.expand_dims("level"))
    with refused(ValueError, "sample 0", "index of its own", "to_numpy"):
        romae.from_arrays(list(array))


def test_a_dictionary_of_pypots_is_its_array():
    X = np.random.default_rng(0).normal(size=(4, 5, 2))
    wanted = romae.from_arrays(X, y=[0, 1, 1, 0])
    assert same(romae.from_arrays({"X": X, "y": np.array([0, 1, 1, 0]), "X_ori": X}), wanted)
    assert same(romae.from_arrays({"X": X}), romae.from_arrays(X))
    assert same(romae.from_arrays({"X": X, "y": [0, 0, 0, 0]}, y=[0, 1, 1, 0]), wanted)
    with refused(ValueError, "'X'", "['x']"):
        romae.from_arrays({"x": X})
    with refused(ValueError, "'times'", "take out"):
        romae.from_arrays({"X": X, "times": X})
    with refused(TypeError, "file", "h5py"):
        romae.from_arrays({"X": "train.h5"})


def test_lists_that_do_not_fit_get_a_sentence():
    table = pd.DataFrame({"id": ["a", "b"], "time": [[0.0, 1.0], [2.0]], "x": [[1.0, 2.0], [3.0]]})
    columns = {"id": "id", "time": "time", "values": "x"}
    assert [len(x) for x in romae.from_table(table, **columns)] == [2, 1]
    with refused(ValueError, "row 1", "'time'", "'x'", "same length"):
        romae.from_table(table.assign(x=[[1.0, 2.0], [3.0, 4.0]]), **columns)
    with refused(TypeError, "row 1, column 'x'", "float"):
        romae.from_table(table.assign(x=[[1.0, 2.0], 3.0]), **columns)
    with refused(TypeError, "row 0, column 'x'", "one list"):
        romae.from_table(table.assign(x=[[[1.0], [2.0]], [[3.0]]]), **columns)
    for empty in ([], None):
        with refused(ValueError, "'b'", "missing value"):
            romae.from_table(table.assign(time=[[0.0, 1.0], empty], x=[[1.0, 2.0], empty]), **columns)


@pytest.mark.parametrize(
    ("container", "parts"),
    [
        ({"train": Dataset(pa.table({"a": [1]}))}, ["polars", "dict"]),
        (type("Splits", (dict,), {"column_names": {}})(train=1), ["splits", "data['train']"]),
        (type("Streamed", (), {"column_names": [], "with_format": None})(), ["stream", "streaming=False"]),
        (pa.chunked_array([[1, 2]]), ["Arrow stream", "ChunkedArray"]),
        (3, ["polars", "int"]),
    ],
)
def test_what_is_no_table_gets_a_sentence(container, parts):
    with refused(TypeError, *parts):
        as_table(container)


def test_no_library_is_imported_for_it():
    package = Path(romae.__file__).parent
    compares_with_it = package / "experiments" / "peers" / "fitting.py"
    for path in set(package.rglob("*.py")) - {compares_with_it}:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.split(".")[0] for name in names} & {"polars", "xarray", "datasets", "pypots"}, path

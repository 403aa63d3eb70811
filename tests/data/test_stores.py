"""Many stores as one: what they give is what one store of all tables gives."""

import json
import pickle

import numpy as np
import pandas as pd
import pytest
import torch

import romae
from messages import refused
from romae.data.sources import as_source

COLUMNS = {"id": "star", "time": "day", "channel": "band", "values": "flux", "label": "type"}


def night(first, bands, types):
    """A table of three stars."""
    random = np.random.default_rng(first)
    rows = pd.DataFrame({"star": np.repeat(np.arange(first, first + 3), [4, 2, 5])})
    rows["day"] = random.uniform(0, 9, len(rows))
    rows["band"] = np.resize(bands, len(rows))
    rows["flux"] = random.normal(size=len(rows))
    rows["type"] = np.repeat(np.resize(types, 3), [4, 2, 5])
    return rows


@pytest.fixture
def tables(tmp_path):
    nights = [night(0, ["g", "r"], ["a", "b"]), night(10, ["r", "z"], ["c"]), night(20, ["g"], ["b"])]
    paths = [tmp_path / f"{i}.parquet" for i in range(3)]
    for rows, path in zip(nights, paths, strict=True):
        rows.to_parquet(path)
    return paths, pd.concat(nights)


def test_stores_give_what_one_store_of_all_tables_gives(tables, tmp_path):
    paths, rows = tables
    stores = romae.write_stores(paths, tmp_path / "stores", workers=0, **COLUMNS)
    whole = romae.from_table(rows, **COLUMNS)
    assert len(stores) == 9 and stores.schema == whole.schema, "channels and classes are those of all tables"
    assert stores.lengths.tolist() == [len(sample) for sample in whole]
    for one, other in zip(stores, whole, strict=True):
        assert one.id == other.id and one.target == other.target
        assert torch.equal(one.values, other.values) and torch.equal(one.positions, other.positions)
    for indices in ([8, 0, 4, 1, 3], [3], list(range(9))):
        got, expected = (as_source(x).packed(np.array(indices)) for x in (stores, whole))
        assert got.ids == expected.ids
        assert torch.equal(got.values, expected.values) and torch.equal(got.target, expected.target)
    again = pickle.loads(pickle.dumps(stores))
    assert repr(again) == "Stores('stores': 3 stores, 9 samples, 33 tokens)" and again[-1].id == 22
    stores.verify()


def test_processes_write_what_one_process_writes(tables, tmp_path):
    paths, _ = tables
    here, there = (romae.write_stores(paths, tmp_path / f"{n}", workers=n, **COLUMNS) for n in (0, 2))
    for one, other in zip(here.stores, there.stores, strict=True):
        assert one.path.read_bytes() == other.path.read_bytes()


def test_training_takes_stores_as_it_takes_a_list(tables, tmp_path):
    paths, rows = tables
    size = romae.Size(width=16, heads=2, depth=1)
    model = romae.ModelConfig(channels=1, position_dims=2, encoder=size, decoder=size)
    losses = []
    stores = romae.write_stores(paths, tmp_path / "stores", workers=0, **COLUMNS)
    for samples in (stores, romae.from_table(rows, **COLUMNS)):
        torch.manual_seed(0)
        task = romae.Classification(model, n_classes=3)
        config = romae.TrainConfig(epochs=2, batch_size=4, device="cpu")
        history = romae.train(task, samples, config, scaling=romae.fit_scaling(samples), quiet=True)
        losses.append(history.last["loss"])
    assert losses[0] == losses[1]


def test_labels_that_are_numbers_stay_numbers(tables, tmp_path):
    paths, rows = tables
    for path in paths:
        table = pd.read_parquet(path)
        table.assign(type=table["star"] / 2).to_parquet(path)
    stores = romae.write_stores(paths, tmp_path / "stores", workers=0, **COLUMNS)
    assert stores.schema.classes is None and float(stores[-1].target) == 11.0


def test_bad_tables_and_folders_are_refused_and_leave_nothing(tables, tmp_path):
    paths, _ = tables
    folder = tmp_path / "stores"
    with refused(ValueError, "0.parquet", "whole series"):
        romae.write_stores([*paths, paths[0]], folder, workers=0, **COLUMNS)
    with refused(ValueError, "1.parquet", "'colour'"):
        romae.write_stores(paths[1:], folder, workers=0, **(COLUMNS | {"values": "colour"}))
    with refused(ValueError, "no tables"):
        romae.write_stores([], folder)
    assert not folder.exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with refused(ValueError, "something else", "another folder"):
        romae.write_stores(paths, tmp_path / "mine", workers=0, **COLUMNS)
    with refused(ValueError, "write_stores"):
        romae.Stores(tmp_path / "mine")
    stores = romae.write_stores(paths, folder, workers=0, **COLUMNS)
    index = json.loads((folder / "index.json").read_text())
    (folder / "index.json").write_text(json.dumps({"stores": index["stores"]}))
    with refused(ValueError, "index.json", "damaged"):
        romae.Stores(stores.folder)

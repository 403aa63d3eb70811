"""Tables that are answered in parts: as those that are answered at once, in any order of rows, stopped or not."""

import gzip
import json
import pickle
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pandas.testing import assert_frame_equal

import romae
from messages import assert_says, refused
from romae.data import streams
from romae.data.schema import Schema
from romae.data.streams import parts_together, table_file
from romae.inference import predictor as predictors
from romae.inference import streaming
from romae.inference.predictor import Predictor
from romae.inference.streaming import answer_file
from romae.inference.tables import embed_table, interpolate_table, predict_table

SIZE = romae.Size(width=16, heads=2, depth=1)
MODEL = romae.ModelConfig(channels=1, position_dims=2, encoder=SIZE, decoder=SIZE, kinds=2, cls=False)
SCHEMA = Schema(id="star", time="day", channel="band", channels=("g", "r"), values=("flux",))


def saved(task, folder, **schema):
    task.scaling, task.schema = romae.Scaling(), replace(SCHEMA, **schema)
    task.save(folder)
    return folder


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "classifier"
    return saved(romae.Classification(MODEL, n_classes=2), folder, label="type", classes=("a", "b"))


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    return saved(romae.MaskedReconstruction(MODEL), tmp_path_factory.mktemp("models") / "pretrained")


def measurements(n_ids=40, ids=None):
    """Rows of ids with 1 to 9 measurements each, sorted by id."""
    random = np.random.default_rng(0)
    ids = list(range(100, 100 + n_ids)) if ids is None else ids
    parts = [
        pd.DataFrame(
            {
                "star": name,
                "day": np.sort(random.uniform(0, 9, n)),
                "band": random.choice(["g", "r"], n),
                "flux": random.normal(size=n),
            }
        )
        for name, n in zip(ids, random.integers(1, 10, len(ids)), strict=True)
    ]
    return pd.concat(parts, ignore_index=True)


def written(table, path):
    if path.suffix == ".arrow":
        whole = pa.Table.from_pandas(table)
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, whole.schema) as writer:
            writer.write_table(whole, max_chunksize=17)
    elif path.suffix == ".feather":
        table.to_feather(path, compression="lz4")
    else:
        table.to_parquet(path, row_group_size=17) if path.suffix == ".parquet" else table.to_csv(path, index=False)
    return path


def read(path):
    return pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)


def asked(model, answer):
    return Predictor(model, answer, at="0:9:3" if answer == "interpolate" else None, device="cpu")


def at_once(model, answer, table):
    config = predictors.CONFIGS[answer](device="cpu")
    more = {"at": "0:9:3"} if answer == "interpolate" else {}
    function = {"predict": predict_table, "embed": embed_table, "interpolate": interpolate_table}[answer]
    return function(config, table, model, **more)


@pytest.fixture
def small_reads(monkeypatch):
    """Few rows at a time, so that ids are cut where they are read."""
    monkeypatch.setattr(streams, "ROWS_AT_ONCE", 7)
    monkeypatch.setattr(streams, "CSV_BLOCK", 400)


@pytest.mark.parametrize("answer", ["predict", "embed", "interpolate"])
@pytest.mark.parametrize("ending", [".parquet", ".csv", ".csv.gz"])
def test_parts_give_what_the_whole_gives(answer, ending, tmp_path, classifier, pretrained, small_reads):
    model = classifier if answer == "predict" else pretrained
    table = measurements()
    data, out = written(table, tmp_path / f"data{ending}"), tmp_path / f"out{ending}"
    streamed = answer_file(asked(model, answer), data, out, rows_per_part=25, quiet=True)
    expected = at_once(model, answer, table)
    assert_frame_equal(read(out), expected.astype(read(out).dtypes), check_exact=False, rtol=1e-5)
    assert streamed.n_rows == len(expected) and streamed.columns == list(expected.columns)
    assert not (tmp_path / f"out{ending}.parts").exists(), "nothing is left behind"


@pytest.mark.parametrize("ending", [".arrow", ".feather"])
@pytest.mark.parametrize("rows_per_part", [25, 1_000])
def test_arrow_files_are_tables_as_those_of_parquet_are(ending, rows_per_part, tmp_path, classifier, small_reads):
    table, answers = measurements(), []
    for data in (tmp_path / "data.parquet", tmp_path / f"data{ending}"):
        out = tmp_path / f"out{len(answers)}.parquet"
        answer_file(asked(classifier, "predict"), written(table, data), out, rows_per_part=rows_per_part, quiet=True)
        answers.append(read(out))
    assert_frame_equal(*answers)
    file = table_file(tmp_path / f"data{ending}", "star", ["star", "flux"], {"star": None})
    assert file.has_at_most(len(table)) and not file.has_at_most(len(table) - 1)
    rest = pa.concat_tables(file.batches(skip=30)).to_pandas()
    assert_frame_equal(rest, table[["star", "flux"]].iloc[30:].reset_index(drop=True))


def test_a_store_of_samples_is_no_table_and_says_what_it_is(tmp_path, classifier):
    store = tmp_path / "night.arrow"
    romae.write_store(romae.from_arrays(np.zeros((3, 4, 1))), store)
    with refused(ValueError, "night.arrow", "store", "romae.Store"):
        answer_file(asked(classifier, "predict"), store, tmp_path / "out.csv", quiet=True)
    with refused(ValueError, "night.arrow", "romae.Store"):
        romae.from_table(store, id="star", time="day", values="flux")
    for name in ("data.arrow", "data.feather"):
        (tmp_path / name).write_bytes(b"ARROW1, but no more")
        with refused(ValueError, f"cannot read {tmp_path / name}"):
            answer_file(asked(classifier, "predict"), tmp_path / name, tmp_path / "out.csv", quiet=True)
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize("ending", [".parquet", ".arrow", ".csv"])
@pytest.mark.parametrize("ids", [None, [f"star {i % 7}{chr(97 + i)}" for i in range(26)]], ids=["numbers", "text"])
def test_rows_in_any_order_give_the_answers_of_the_sorted_table(ending, ids, tmp_path, pretrained, small_reads, capsys):
    table = measurements(ids=ids)
    mixed = table.sample(frac=1, random_state=0)
    data, out = written(mixed, tmp_path / f"data{ending}"), tmp_path / "out.parquet"
    answer_file(asked(pretrained, "embed"), data, out, rows_per_part=25, quiet=True)
    assert_frame_equal(read(out), at_once(pretrained, "embed", table), rtol=1e-5)
    assert_says(capsys.readouterr().err, "do not lie together", "gathered first")


def test_ids_that_lie_together_keep_their_order(tmp_path, pretrained, small_reads):
    table = measurements()
    ids = np.random.default_rng(1).permutation(table["star"].unique())
    together = pd.concat([table[table["star"] == name] for name in ids], ignore_index=True)
    data = written(together, tmp_path / "data.parquet")
    for n in (10, 60):
        answer_file(asked(pretrained, "interpolate"), data, tmp_path / f"{n}.parquet", rows_per_part=n, quiet=True)
    assert_frame_equal(read(tmp_path / "10.parquet"), read(tmp_path / "60.parquet"), rtol=1e-5)
    assert read(tmp_path / "10.parquet")["star"].unique().tolist() == ids.tolist()


def test_a_run_that_was_stopped_goes_on_and_answers_nothing_twice(tmp_path, pretrained, small_reads, monkeypatch):
    table = measurements()
    for name, rows in (("sorted", table), ("mixed", table.sample(frac=1, random_state=0))):
        data, out = written(rows, tmp_path / f"{name}.parquet"), tmp_path / f"{name}-out.csv"
        predictor = asked(pretrained, "embed")
        answer_file(predictor, data, tmp_path / f"{name}-whole.csv", rows_per_part=25, quiet=True)
        calls, frame = [], Predictor.frame

        def stopping(self, part, skipped=None, calls=calls, frame=frame):
            calls.append(sum(map(len, part.samples)))
            if len(calls) == 4:
                raise KeyboardInterrupt
            return frame(self, part, skipped)

        monkeypatch.setattr(Predictor, "frame", stopping)
        with pytest.raises(KeyboardInterrupt):
            answer_file(predictor, data, out, rows_per_part=25, quiet=True)
        assert not out.exists()
        with refused(ValueError, "out.csv.parts", "--resume"):
            answer_file(predictor, data, out, rows_per_part=25, quiet=True)
        with refused(ValueError, "another job", "rows_per_part"):
            answer_file(predictor, data, out, rows_per_part=26, resume=True, quiet=True)
        answer_file(predictor, data, out, rows_per_part=25, resume=True, quiet=True)
        monkeypatch.setattr(Predictor, "frame", frame)
        assert out.read_bytes() == (tmp_path / f"{name}-whole.csv").read_bytes()
        assert sum(calls) - calls[3] == len(table), "every row once, but for the part that was stopped"


def test_what_is_left_out_is_listed_through_all_parts_and_a_stop(tmp_path, pretrained, small_reads):
    table = measurements()
    table.loc[table["star"].isin([101, 130]), "flux"] = np.inf
    data, out = written(table, tmp_path / "data.parquet"), tmp_path / "out.parquet"
    predictor = Predictor(pretrained, "embed", device="cpu", on_error="skip")
    with pytest.warns(UserWarning) as told:
        streamed = answer_file(predictor, data, out, rows_per_part=25, quiet=True)
    assert [one.id for one in streamed.skipped] == ["101", "130"] and "inf" in streamed.skipped[0].reason
    assert len(told) == 1 and "more parts" in str(told[0].message), "the like is told once"
    assert len(read(out)) == 38


def test_a_part_of_which_nothing_can_be_read_leaves_the_others(tmp_path, pretrained, small_reads):
    table = measurements()
    table.loc[table["star"] < 110, "flux"] = np.inf  # more than the first part
    data, out = written(table, tmp_path / "data.parquet"), tmp_path / "out.csv"
    predictor = Predictor(pretrained, "embed", device="cpu", on_error="skip")
    with pytest.warns(UserWarning, match="skipped"):
        streamed = answer_file(predictor, data, out, rows_per_part=15, quiet=True)
    assert [int(one.id) for one in streamed.skipped] == list(range(100, 110)) and len(read(out)) == 30
    with refused(ValueError, "flux"):
        answer_file(asked(pretrained, "embed"), data, tmp_path / "other.csv", rows_per_part=15, quiet=True)
    table["flux"] = np.inf
    written(table, data)
    with refused(ValueError, "nothing of", "100"):
        answer_file(predictor, data, out, rows_per_part=15, quiet=True, force=True)


def test_a_folder_of_the_users_is_left_alone(tmp_path, pretrained):
    data = written(measurements(), tmp_path / "data.parquet")
    (tmp_path / "out.csv.parts").mkdir()
    (tmp_path / "out.csv.parts" / "letter.txt").write_text("dear")
    for how in ({"force": True}, {"resume": True}):
        with refused(ValueError, "out.csv.parts", "something else"):
            answer_file(asked(pretrained, "embed"), data, tmp_path / "out.csv", quiet=True, **how)
    assert (tmp_path / "out.csv.parts" / "letter.txt").read_text() == "dear"


def test_small_tables_are_answered_at_once(tmp_path, pretrained, monkeypatch):
    table = measurements().sample(frac=1, random_state=0)
    data = written(table, tmp_path / "data.csv")
    monkeypatch.setattr(streaming, "_begin", None)  # nothing is kept on the way
    answer_file(asked(pretrained, "embed"), data, tmp_path / "out.csv.gz", quiet=True)
    with gzip.open(tmp_path / "out.csv.gz", "rt") as opened:
        assert len(pd.read_csv(opened)) == 40


def test_an_id_larger_than_a_part_stays_whole(tmp_path, small_reads):
    table = pd.DataFrame({"star": [1] * 30 + [2] * 3, "day": np.arange(33.0)})
    file = table_file(written(table, tmp_path / "data.parquet"), "star", ["star", "day"], {"star": None})
    parts = list(parts_together(file, 10))
    assert [(part.start, part.stop) for part in parts] == [(0, 30), (30, 33)]
    assert [part.start for part in parts_together(file, 10, skip=30)] == [30]


def test_ids_of_a_csv_file_that_change_their_type_are_refused_with_the_way_out(tmp_path, pretrained, small_reads):
    table = measurements(n_ids=60)
    table["star"] = table["star"].astype(object)
    table.loc[table["star"] == 150, "star"] = "a50"
    data = written(table, tmp_path / "data.csv")
    with refused(ValueError, "'star'", "whole numbers", "Parquet"):
        answer_file(asked(pretrained, "embed"), data, tmp_path / "out.csv", rows_per_part=25, quiet=True)
    assert not (tmp_path / "out.csv").exists()


def test_progress_is_told_by_rows_and_the_time_that_is_left(tmp_path, pretrained, small_reads, monkeypatch, capsys):
    monkeypatch.setattr(streaming, "FIRST_LINE", 0.0)
    data = written(measurements(), tmp_path / "data.parquet")
    answer_file(asked(pretrained, "embed"), data, tmp_path / "out.csv", rows_per_part=25)
    assert_says(capsys.readouterr().err, "rows/s", "left", "embed: ")


# The predictor


def test_a_predictor_travels_and_loads_its_model_once(classifier, monkeypatch):
    table = pa.Table.from_pandas(measurements())
    loaded, load_model = [], predictors.load_model
    monkeypatch.setattr(predictors, "load_model", lambda path: loaded.append(path) or load_model(path))
    predictors._loaded.cache_clear()
    predictor = pickle.loads(pickle.dumps(Predictor(classifier, device="cpu")))
    first, second = predictor(table), predictor(table.combine_chunks().to_batches()[0])
    assert first.equals(second) and len(loaded) == 1
    expected = predict_table(predictors.InferenceConfig(device="cpu"), measurements(), classifier)
    assert_frame_equal(first.to_pandas(), expected)
    assert repr(predictor) == f"Predictor({str(classifier)!r}, 'predict')"
    assert len(pickle.dumps(predictor)) < 2_000, "the model itself stays where it is"


def test_another_process_needs_the_pickle_alone(classifier, tmp_path):
    (tmp_path / "predictor").write_bytes(pickle.dumps(Predictor(classifier, device="cpu")))
    measurements(3).to_parquet(tmp_path / "data.parquet")
    code = (
        "import pickle, sys, pyarrow.parquet as pq; p = pickle.load(open(sys.argv[1], 'rb')); "
        "print(p(pq.read_table(sys.argv[2])).num_rows)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "predictor"), str(tmp_path / "data.parquet")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "3\n"


def test_bad_questions_are_refused_before_anything_is_loaded(without_shape_checks):
    with refused(ValueError, "cluster", "predict"):
        Predictor("nowhere", "cluster")
    with refused(ValueError, "until="):
        Predictor("nowhere", "forecast")
    with refused(ValueError, "start:stop:n"):
        Predictor("nowhere", "interpolate")
    with refused(ValueError, "'epochs'", "device"):
        Predictor("nowhere", epochs=3)
    with refused(ValueError, "config=", "device"):
        Predictor("nowhere", config=predictors.InferenceConfig(), device="cpu")


def test_the_job_is_written_down(tmp_path, pretrained, small_reads, monkeypatch):
    data = written(measurements(), tmp_path / "data.parquet")
    monkeypatch.setattr(streaming, "_put_together", lambda paths, out: pytest.fail("stop here"))
    with pytest.raises(pytest.fail.Exception):
        answer_file(asked(pretrained, "embed"), data, tmp_path / "out.csv", rows_per_part=25, quiet=True)
    job = json.loads((tmp_path / "out.csv.parts" / "job.json").read_text())
    assert job["answer"] == "embed" and job["rows_per_part"] == 25 and job["data"] == str(data.resolve())


def test_what_was_read_of_a_parquet_file_does_not_stay_in_memory(tmp_path):
    """Recent versions of pyarrow keep all that they have read of a file unless they are told otherwise."""
    from pyarrow import parquet

    random, n = np.random.default_rng(0), 100_000
    data = pa.table({"star": np.arange(20 * n), "flux": random.normal(size=20 * n)})
    parquet.write_table(data, tmp_path / "long.parquet", row_group_size=n)
    n_bytes = (tmp_path / "long.parquet").stat().st_size
    del data
    before, most = pa.total_allocated_bytes(), 0
    for batch in table_file(tmp_path / "long.parquet", "star", ["star", "flux"], {"star": None}).batches():
        most = max(most, pa.total_allocated_bytes() - before - batch.nbytes)
    assert most < n_bytes / 2

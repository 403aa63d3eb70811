"""How sure a model is, in tables: the same columns from Python, from the command line and in parts."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from pandas.testing import assert_frame_equal

import romae
from messages import assert_says, refused
from romae.config import from_dict, to_dict
from romae.data.uncertainty import Spread
from romae.inference import streaming
from romae.inference.predictor import Predictor
from romae.inference.streaming import answer_file
from romae.inference.tables import InferenceConfig, InterpolateConfig, PredictConfig, interpolate_table, predict_table
from romae.model.likelihoods import Mixture
from romae.training import tables
from romae.training.tables import FinetuneConfig, PretrainConfig, read_job
from test_cli_own_data import COLUMNS, TINY, run  # noqa: F401  (a fixture)
from test_streaming import MODEL, SCHEMA, measurements, saved

ASKED = {"interval": 0.8, "quantiles": (0.1, 0.5)}
TOLD = ["flux", "flux_std", "flux_lower", "flux_upper", "flux_q0.1", "flux_q0.5"]


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "pretrained"
    return saved(romae.MaskedReconstruction(MODEL, likelihood="student"), folder)


@pytest.fixture(scope="module")
def regressor(tmp_path_factory):
    task = romae.Regression(MODEL, n_targets=1, likelihood="student")
    return saved(task, tmp_path_factory.mktemp("models") / "regressor", label="mass")


def test_columns_are_the_numbers_of_the_distribution(pretrained):
    config, data = InterpolateConfig(device="cpu", **ASKED), measurements(4)
    table = interpolate_table(config, data, pretrained, at="0:9:4")
    assert list(table.columns) == ["star", "day", "band", *TOLD]
    plain = interpolate_table(InterpolateConfig(device="cpu"), data, pretrained, at="0:9:4")
    assert list(plain.columns) == ["star", "day", "band", "flux"]
    assert_allclose(table.flux, plain.flux, rtol=1e-4, atol=1e-5)
    assert_allclose(table["flux_lower"], table["flux_q0.1"])  # of 80 %
    assert (table["flux_lower"] < table["flux_q0.5"]).all() and (table["flux_q0.5"] < table["flux_upper"]).all()
    samples = romae.from_table(data, id="star", time="day", channel="band", values=["flux"])
    queries = [np.array([[1.0, 0.0], [2.0, 1.0]])] * len(samples)
    whole = romae.interpolate(romae.load(pretrained), samples, queries, returns="distribution")
    told = romae.to_table(samples, whole, positions=queries, interval=0.8, quantiles=[0.5, 0.1])
    assert list(told.columns) == ["star", "day", "band", *TOLD]
    assert_allclose(told["flux_upper"], np.concatenate([one.quantile(0.9)[:, 0] for one in whole]))
    assert list(romae.to_table(samples, whole, positions=queries).columns)[3:] == ["flux", "flux_std"]
    asked = romae.to_table(samples, whole, positions=queries, columns=["light"], interval=0.5)
    assert list(asked.columns)[3:] == ["light", "light_std", "light_lower", "light_upper"]


def test_a_number_of_each_id_is_told_alike(regressor):
    table = predict_table(PredictConfig(device="cpu", **ASKED), measurements(5), regressor)
    assert list(table.columns) == ["star", *(name.replace("flux", "mass") for name in TOLD)] and len(table) == 5
    plain = predict_table(InferenceConfig(device="cpu"), measurements(5), regressor)
    assert_allclose(table.mass, plain.mass, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("answer", ["predict", "interpolate"])
def test_parts_are_as_the_whole_also_when_stopped(answer, pretrained, regressor, tmp_path, monkeypatch):
    data, out = tmp_path / "data.parquet", tmp_path / "out.parquet"
    measurements().to_parquet(data, index=False)
    model, at = (regressor, None) if answer == "predict" else (pretrained, "0:9:3")
    predictor = Predictor(model, answer, at=at, device="cpu", **ASKED)
    expected = predictor.frame(data)
    real, calls = streaming.write_table, []

    def stop_at_the_third(table, path, **how):
        calls.append(path)
        if len(calls) == 3:
            raise KeyboardInterrupt
        real(table, path, **how)

    monkeypatch.setattr(streaming, "write_table", stop_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        answer_file(predictor, data, out, rows_per_part=60, quiet=True)
    monkeypatch.setattr(streaming, "write_table", real)
    other = Predictor(model, answer, at=at, device="cpu", interval=0.5)
    with refused(ValueError, "another job", "interval"):
        answer_file(other, data, out, rows_per_part=60, resume=True, quiet=True)
    answer_file(predictor, data, out, rows_per_part=60, resume=True, quiet=True)
    assert_frame_equal(pd.read_parquet(out), expected, rtol=1e-4, atol=1e-5)


def test_parts_of_an_older_version_go_on(regressor, tmp_path, monkeypatch):
    data, out = tmp_path / "data.parquet", tmp_path / "out.parquet"
    measurements().to_parquet(data, index=False)
    predictor = Predictor(regressor, device="cpu")
    job = streaming._job(predictor, data, 60)
    job["settings"] = {name: value for name, value in job["settings"].items() if name not in ("interval", "quantiles")}
    folder = tmp_path / "out.parquet.parts"
    folder.mkdir()
    (folder / "job.json").write_text(json.dumps(job))
    assert answer_file(predictor, data, out, rows_per_part=60, resume=True, quiet=True).n_rows == 40


def test_levels_are_sorted_and_what_is_none_is_refused():
    assert PredictConfig(quantiles=(0.9, 0.1)).quantiles == (0.1, 0.9) == Spread(quantiles=(0.9, 0.1)).quantiles
    for settings, *said in (
        ({"interval": 0.0}, "above 0 and below 1", "0.9"),
        ({"interval": 90.0}, "below 1", "90"),
        ({"quantiles": (0.1, 1.0)}, "quantile", "below 1"),
        ({"quantiles": (0.1, 0.5, 0.1)}, "0.1 is asked twice", "once"),
        ({"quantiles": ()}, "empty"),
    ):
        for config in (PredictConfig, InterpolateConfig, Spread):
            with refused(ValueError, *said):
                config(**settings)


def test_numbers_without_a_distribution_have_no_interval(pretrained):
    plain = saved_in_memory(romae.MaskedReconstruction(MODEL))
    with refused(ValueError, "without a likelihood", "--set likelihood=mixture"):
        interpolate_table(InterpolateConfig(device="cpu", interval=0.9), measurements(2), plain, at="0:9:4")
    classifier = saved_in_memory(romae.Classification(MODEL, n_classes=2), label="type", classes=("a", "b"))
    with refused(ValueError, "classifier", "probability of each class"):
        predict_table(PredictConfig(device="cpu", quantiles=(0.5,)), measurements(2), classifier)
    samples = romae.from_arrays(np.zeros((2, 3, 1)), ids=["a", "b"])
    with refused(ValueError, "returns='distribution'"):
        romae.to_table(samples, [np.zeros((3, 1))] * 2, interval=0.9)
    with refused(ValueError, "returns='distribution'"):
        romae.to_sample_table(samples, [1.0, 2.0], quantiles=[0.5])


def saved_in_memory(task, **schema):
    task.scaling, task.schema = romae.Scaling(), replace(SCHEMA, **schema)
    return task


def test_jobs_keep_their_likelihood_and_older_ones_have_none(tmp_path):
    for config in (PretrainConfig(likelihood="mixture"), FinetuneConfig(likelihood=Mixture(n=3))):
        stored = json.loads(json.dumps(to_dict(config)))
        assert from_dict(type(config), stored) == config
        del stored["likelihood"]
        (tmp_path / "job.json").write_text(json.dumps(stored))
        assert read_job(type(config), tmp_path / "job.json").likelihood is None
    classes = pd.DataFrame({"star": ["a", "a", "b", "b"], "day": 0.0, "flux": 1.0, "kind": ["x", "x", "y", "y"]})
    classes = pd.concat([classes, classes.assign(star=classes.star + "2")])
    model = saved_in_memory(romae.MaskedReconstruction(romae.ModelConfig(channels=1, position_dims=1, encoder="mini")))
    model.schema = replace(SCHEMA, channel=None, channels=())
    model.save(tmp_path / "model")
    with refused(ValueError, "'kind' holds classes", "leave likelihood out"):
        tables.finetune(
            FinetuneConfig(label="kind", likelihood="normal"), classes, tmp_path / "model", tmp_path / "out"
        )


def test_the_command_line_asks_how_sure(run, tmp_path):  # noqa: F811
    done = run("pretrain", "curves.parquet", *COLUMNS, *TINY, "--likelihood", "mixture", "--out", "model")
    assert done.code == 0, done.err
    grid = ("interpolate", "curves.parquet", "--model", "model", "--at", "59000:59006:3", "--out", "out.csv")
    done = run(*grid, "--interval", "0.9", "--quantiles", "0.9,0.5")
    assert done.code == 0, done.err
    names = ["star", "mjd", "band", "flux", "flux_std", "flux_lower", "flux_upper", "flux_q0.5", "flux_q0.9"]
    assert list(pd.read_csv("out.csv").columns) == names
    for wrong, *said in (
        (["--interval", "0"], "above 0", "not 0.0"),
        (["--interval", "95"], "below 1", "95"),
        (["--quantiles", "a,b"], "--quantiles", "0.1,0.5,0.9"),
        (["--quantiles", "0.5,0.5"], "0.5 is asked twice"),
        (["--quantiles", ","], "empty"),
    ):
        done = run(*grid, *wrong, "--force")
        assert done.code == 2
        assert_says(done.err, *said)
    tune = ("finetune", "curves.parquet", "--pretrained", "model", *TINY[2:], "--out", "tuned")
    done = run(*tune, "--label", "freq", "--likelihood", "student")
    assert done.code == 0, done.err
    done = run("predict", "curves.parquet", "--model", "tuned", "--interval", "0.5", "--out", "told.csv")
    assert done.code == 0, done.err
    told = pd.read_csv("told.csv")
    assert list(told.columns) == ["star", "freq", "freq_std", "freq_lower", "freq_upper"]
    assert (told.freq_lower < told.freq_upper).all()
    done = run("pretrain", "curves.parquet", *COLUMNS, *TINY, "--likelihood", "gauss", "--out", "other")
    assert done.code == 2
    assert_says(done.err, "likelihood", "'mixture'", "gauss")

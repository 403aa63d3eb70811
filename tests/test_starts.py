"""Estimators that start from the model that needs no training: as it is, fine-tuned, or beside new weights."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
import torch

import romae
from messages import assert_says, refused
from romae import RoMAEEmbedder, RoMAEForecaster, RoMAEInterpolator
from romae.estimators import base, starts
from romae.inference.zero import answers
from romae.training.in_context import with_masking
from test_in_context import HALF, rising, sines, untrained

pytestmark = pytest.mark.usefixtures("without_shape_checks")

SETTINGS = {"device": "cpu", "random_state": 0}
TRAIN = {"epochs": 2, "batch_size": 16, "lr": 1e-2, "compile": False}
TIMES = [0.5, 2.0, 3.5]


@pytest.fixture(autouse=True)
def zero(monkeypatch):
    task = untrained()
    for parameter in task.head.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    for module in (base, starts):
        monkeypatch.setattr(module, "zero_model", lambda: task)
    return task


def pairs(samples):
    return [(sample.positions[:, 0].numpy(), sample.values.numpy()) for sample in samples]


def test_without_epochs_the_model_answers_as_it_is(zero, capsys, tmp_path):
    samples = sines(6)
    curves = RoMAEInterpolator(start="zero", pretrain_epochs=0, **SETTINGS).fit(pairs(samples))
    assert_says(capsys.readouterr().err, "zero-shot", "pretrain_epochs=0")
    assert curves.start_ == "zero-shot" and curves.starts_ is None and curves.histories_ == []
    own = answers(zero, samples, [TIMES] * 6)
    np.testing.assert_allclose(curves.interpolate(pairs(samples), TIMES), [x.median() for x in own], rtol=1e-5)
    low, high = curves.predict_interval(pairs(samples), TIMES)
    assert low.shape == (6, 3, 1) and (low < high).all()
    _, deviation = curves.interpolate(pairs(samples), TIMES, return_std=True)
    assert (deviation > 0).all()
    assert np.isfinite(curves.score(pairs(samples)))
    curves.save(tmp_path / "curves")
    again = RoMAEInterpolator.load(tmp_path / "curves")
    assert again.start_ == "zero-shot"
    np.testing.assert_array_equal(again.interpolate(pairs(samples), TIMES), curves.interpolate(pairs(samples), TIMES))
    assert zero.schema is None  # the bundled model stays as it was


def test_its_name_says_where_to_start():
    curves = RoMAEInterpolator(pretrained="romae/zero", pretrain_epochs=0, verbose=-1, **SETTINGS).fit(sines(4))
    assert curves.start_ == "zero-shot"
    vectors = RoMAEEmbedder(pretrained="romae/zero", pretrain_epochs=0, verbose=-1, **SETTINGS).fit_transform(sines(4))
    assert len(vectors) == 4 and np.isfinite(vectors).all()


def table(n=5):
    rows = [
        pd.DataFrame({"id": i, "day": t, "channel": c, "value": np.sin(t + i) + (10 if c == "b" else 0)})
        for i in range(n)
        for c, t in (("a", np.arange(0, 9, 0.7)), ("b", np.arange(0.3, 9, 1.1)))
    ]
    return pd.concat(rows, ignore_index=True)


LONG = {"id": "id", "time": "day", "channel": "channel", "values": "value"}


def test_tables_are_answered_by_id():
    curves = RoMAEInterpolator(start="zero", pretrain_epochs=0, columns=LONG, verbose=-1, **SETTINGS).fit(table())
    told = curves.interpolate(table(), TIMES)
    assert list(told.columns) == ["a", "b"] and len(told) == 15 and told.notna().all().all()
    assert list(curves.predict_interval(table(), TIMES).columns) == ["a_lower", "a_upper", "b_lower", "b_upper"]
    assert list(curves.interpolate(table(), TIMES, channels=["b"]).columns) == ["b"]
    assert np.isfinite(curves.score(table()))
    wide = table().assign(day=lambda x: x["day"].round()).pivot_table(index=["id", "day"], columns="channel")["value"]
    columns = {"id": "id", "time": "day", "values": ["a", "b"]}
    curves = RoMAEInterpolator(start="zero", pretrain_epochs=0, columns=columns, verbose=-1, **SETTINGS)
    told = curves.fit(wide.dropna().reset_index()).interpolate(wide.dropna().reset_index(), TIMES)
    assert list(told.columns) == ["a", "b"] and len(told) == 15
    assert np.isfinite(curves.score(wide.dropna().reset_index()))


def test_forecasts_need_no_training_either(zero, tmp_path):
    samples = rising(6, seed=0)
    ahead = RoMAEForecaster(0.5, start="zero", pretrain_epochs=0, verbose=-1, **SETTINGS).fit(pairs(samples))
    (times, values), *_ = ahead.predict(pairs(samples))
    (own,) = answers(zero, samples[:1], [times])
    np.testing.assert_allclose(values, own.median(), rtol=1e-5)
    low, high = ahead.predict_interval(pairs(samples), times=[1.6, 1.9])
    assert low.shape == (6, 2, 1) and (low < high).all()
    assert np.isfinite(ahead.score(pairs(samples)))
    ahead.save(tmp_path / "ahead")
    again = RoMAEForecaster.load(tmp_path / "ahead")
    np.testing.assert_array_equal(again.predict(pairs(samples))[0][1], values)
    by_id = RoMAEForecaster(2.0, start="zero", pretrain_epochs=0, columns=LONG, verbose=-1, **SETTINGS).fit(table())
    assert list(by_id.predict(table()).columns) == ["a", "b"]
    known = RoMAEForecaster(2.0, known="b", start="zero", pretrain_epochs=0, columns=LONG, verbose=-1, **SETTINGS)
    assert list(known.fit(table()).predict(table()).columns) == ["a"]
    assert np.isfinite(known.score(table()))


def test_fine_tuning_is_kept_where_it_does_better_on_held_out_series(capsys):
    samples = rising(20, seed=0)
    settings = {**SETTINGS, "start": "zero", "train": {**TRAIN, "epochs": 4, "batch_size": 8}}
    ahead = RoMAEForecaster(0.5, **settings).fit(samples)
    assert ahead.start_ == "fine-tuned" and ahead.starts_["fine-tuned"] < ahead.starts_["zero-shot"]
    assert_says(
        capsys.readouterr().err, "fine-tuned did best", "4 held-out series", f"{ahead.starts_['zero-shot']:.3f}"
    )
    assert len(ahead.histories_[0]) == 4 and ahead.task_.calibration is None


def test_of_few_series_the_model_stays_as_it_is_unless_epochs_are_given():
    few = sines(6)
    assert RoMAEInterpolator(start="zero", verbose=-1, **SETTINGS).fit(few).start_ == "zero-shot"
    asked = {**SETTINGS, "pretrain_epochs": 1, "batch_size": 8, "verbose": -1}
    tuned = RoMAEInterpolator(start="zero", **asked).fit(few)
    assert tuned.start_ == "fine-tuned" and tuned.starts_ is None and len(tuned.histories_) == 1


def test_auto_compares_all_three(capsys):
    settings = {**SETTINGS, "start": "auto", "pretrain_epochs": 2, "batch_size": 16, "lr": 1e-2}
    ahead = RoMAEForecaster(0.5, size={"width": 16, "heads": 2, "depth": 1}, **settings).fit(rising(20, seed=0))
    assert set(ahead.starts_) == {"zero-shot", "fine-tuned", "from scratch"}
    assert ahead.start_ == min(ahead.starts_, key=ahead.starts_.get)
    assert_says(capsys.readouterr().err, ahead.start_, "held-out series")
    assert np.isfinite(ahead.score(rising(20, seed=0)))


def test_auto_trains_from_new_weights_what_the_model_cannot_take(capsys):
    random = np.random.default_rng(0)
    X = [romae.Sample(random.normal(size=(6, 1)), random.uniform(size=(6, 3))) for _ in range(6)]
    settings = {**SETTINGS, "pretrain_epochs": 1, "size": {"width": 24, "heads": 2, "depth": 1}}
    fitted = RoMAEInterpolator(start="auto", **settings).fit(X)
    assert fitted.start_ == "from scratch" and fitted.starts_ is None
    assert_says(capsys.readouterr().err, "from scratch", "3 position axes")
    with refused(ValueError, "3 position axes", "start="):
        RoMAEInterpolator(start="zero", **SETTINGS).fit(X)


@pytest.fixture
def one_pass(monkeypatch):
    monkeypatch.setattr(starts.rules, "fitting_epochs", lambda *_: 1)


def judged(monkeypatch, as_it_is, new):
    """Held-out series say this of the model that needs no training, and of new weights."""
    told = lambda _, task: as_it_is if starts.is_in_own_units(task) else new  # noqa: E731
    monkeypatch.setattr(starts.Judge, "error", told)


@pytest.mark.parametrize("estimator", [RoMAEInterpolator(**SETTINGS), RoMAEForecaster(0.5, **SETTINGS)])
def test_by_default_new_weights_give_way_to_the_model_as_it_is_where_that_does_better(
    estimator, one_pass, monkeypatch, capsys
):
    samples = rising(20, seed=0)
    judged(monkeypatch, 0.5, 0.6)
    estimator.fit(samples)
    assert estimator.start_ == "zero-shot" and estimator.starts_ == {"zero-shot": 0.5, "from scratch": 0.6}
    assert starts.is_in_own_units(estimator.task_) and estimator.histories_ == []
    assert_says(capsys.readouterr().err, "zero-shot did best", "4 held-out series", "0.600")
    assert np.isfinite(estimator.score(samples))
    judged(monkeypatch, 0.7, 0.6)
    estimator.fit(samples)
    assert estimator.start_ == "from scratch" and len(estimator.histories_[0]) == 1


def test_new_weights_stay_where_the_model_as_it_is_would_not_answer(one_pass, monkeypatch, capsys):
    """Of a channel of which a series shows nothing, new weights know what it is like elsewhere."""
    judged(monkeypatch, 0.0, 1.0)
    rows = table(20)
    rows = rows[(rows["channel"] == "a") | (rows["day"] < rows["id"].map(lambda i: 9 if i % 2 else 1))]
    fitted = RoMAEInterpolator(columns=LONG, **SETTINGS).fit(rows)
    assert fitted.start_ == "from scratch" and fitted.starts_ is None
    assert_says(capsys.readouterr().err, "from scratch", "channel that is not")
    assert fitted.interpolate(rows, TIMES).notna().all(axis=None)


def test_the_comparison_changes_nothing_of_new_weights(one_pass, monkeypatch):
    judged(monkeypatch, 1.0, 0.5)
    samples = rising(20, seed=0)
    default, alone = (
        RoMAEInterpolator(start=start, verbose=-1, **SETTINGS).fit(samples) for start in ("best", "scratch")
    )
    assert default.starts_ is not None and alone.starts_ is None
    for ours, theirs in zip(default.task_.parameters(), alone.task_.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("settings", "n"),
    [
        ({"size": {"width": 16, "heads": 2, "depth": 1}}, 20),
        ({"center": "sample"}, 20),
        ({"masking": HALF}, 20),
        ({"time_limit": 5.0}, 20),
        ({}, 6),
    ],
)
def test_whoever_says_what_to_train_or_has_few_series_gets_new_weights(settings, n, one_pass, monkeypatch):
    judged(monkeypatch, 0.0, 1.0)
    fitted = RoMAEInterpolator(verbose=-1, **SETTINGS, **settings).fit(rising(n, seed=0))
    assert fitted.start_ == "from scratch" and fitted.starts_ is None


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"size": "mini"}, ("size",)),
        ({"likelihood": "normal"}, ("likelihood",)),
        ({"model": {"cls": True}}, ("model",)),
        ({"pretrained": "a folder"}, ("start=", "pretrained=")),
        ({"phase": True}, ("phase",)),
    ],
)
def test_what_the_model_has_of_its_own_is_refused(settings, parts):
    with refused(ValueError, *parts):
        RoMAEInterpolator(start="zero", **settings, **SETTINGS).fit(sines(4))


def test_labels_are_learned_from_its_vectors_alone():
    with refused(ValueError, "RoMAEEmbedder"):
        romae.RoMAEClassifier(pretrained="romae/zero", **SETTINGS).fit(sines(4), [0, 1, 0, 1])
    with refused(ValueError, "start"):
        RoMAEInterpolator(start="zeros", **SETTINGS).fit(sines(4))


def test_series_that_cannot_be_read_are_left_out():
    curves = RoMAEInterpolator(start="zero", pretrain_epochs=0, verbose=-1, **SETTINGS).fit(pairs(sines(4)))
    X = [*pairs(sines(3)), (np.array([0.0]), np.array([np.inf]))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert curves.interpolate(X, TIMES, on_error="skip").shape == (3, 3, 1)
    assert len(curves.skipped_) == 1


def test_a_time_limit_shortens_fine_tuning():
    limited = RoMAEInterpolator(start="zero", time_limit=1e-3, batch_size=16, verbose=-1, **SETTINGS).fit(sines(20))
    assert limited.starts_ is not None and len(limited.histories_) in (0, 1)
    assert all(records[-1]["epoch"] == 1 for records in limited.histories_)


def test_one_command_compares_starts_on_series_that_nothing_was_learned_from(zero, tmp_path, capsys):
    from romae.experiments import zero_finetune

    zero.save(tmp_path / "model")
    zero_finetune.main(["--out", str(tmp_path / "table.json"), "--quick", "--model", str(tmp_path / "model")])
    rows = json.loads((tmp_path / "table.json").read_text())["rows"]
    assert [row["start"] for row in rows] == list(zero_finetune.STARTS)
    assert all(row["error"] > 0 and 0 <= row["balanced accuracy"] <= 1 for row in rows)
    assert_says(capsys.readouterr().out, "oscillators", "from scratch", f"{rows[0]['error']:.3f}")


def test_held_out_series_calibrate_a_fine_tuned_model(zero):
    tuned = with_masking(zero, HALF)
    held_out = list(sines(60, scale=250.0))
    RoMAEInterpolator(**SETTINGS)._calibrate_in_context(tuned, held_out, seed=0)
    assert tuned.calibration is not None
    other = romae.hide(list(sines(60, seed=5, scale=250.0)), HALF)
    places = [sample.positions[sample.hidden].numpy() for sample in other]
    truth = np.concatenate([sample.values[sample.hidden].numpy() for sample in other])

    def share(calibrated):
        ends = [one.interval(0.8) for one in answers(tuned, other, places, calibrated=calibrated)]
        low, high = (np.concatenate(x) for x in zip(*ends, strict=True))
        return ((low <= truth) & (truth <= high)).mean()

    assert abs(share(True) - 0.8) < 0.08 and abs(share(True) - 0.8) <= abs(share(False) - 0.8)
    few = with_masking(zero, HALF)
    RoMAEInterpolator(**SETTINGS)._calibrate_in_context(few, held_out[:19], seed=0)
    assert few.calibration is None

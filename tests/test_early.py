"""Early classification: what lies after a cut has no influence, and what is left out of a score is said."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import romae
from messages import assert_says, refused
from romae.pages import charts
from romae.training.scoring import OF_CLASSES, class_score

COLUMNS = {"id": "star", "time": "day", "channel": "band", "values": "flux", "error": "flux_err", "label": "kind"}
TIMES = [0.0, 2.0, 5.0, 100.0]
SIZE = romae.Size(width=24, heads=1, depth=1)
CONFIG = romae.TrainConfig(epochs=3, batch_size=8, lr=5e-3, device="cpu")


def curves(n: int = 24, phase: bool = False, **more) -> romae.SampleSet:
    random, rows = np.random.default_rng(0), []
    for i in range(n):
        day = np.sort(random.uniform(0, 10, 16))
        day[0] = 0.1 * i
        flux = np.where(day > 3, 20.0 * (1 + i % 2), 0.0) + random.normal(size=16)
        rows.append(pd.DataFrame({"star": f"s{i}", "day": day, "flux": flux, "band": np.arange(16) % 2}))
        rows[-1]["kind"] = ["nova", "flare"][i % 2]
        rows[-1]["age"] = float(i)
    frame = pd.concat(rows, ignore_index=True).assign(flux_err=1.0)
    samples = romae.from_table(frame, **COLUMNS, **more)
    return romae.add_phase(samples, false_alarm=1.0) if phase else samples


def trained(samples: romae.SampleSet) -> romae.Classification:
    scaling = romae.fit_scaling(samples, origin="first")
    model = romae.ModelConfig.for_samples(samples, scaling=scaling, encoder=SIZE)
    task = romae.Classification(model, n_classes=2)
    romae.train(task, samples, CONFIG, scaling=scaling, quiet=True)
    return task


@pytest.fixture(scope="module", params=["plain", "static", "phase"])
def told(request) -> tuple[romae.Classification, romae.SampleSet]:
    samples = curves(static=["age"]) if request.param == "static" else curves(phase=request.param == "phase")
    return trained(samples), samples


def truth(samples) -> np.ndarray:
    return np.array([int(sample.target) for sample in samples])


@pytest.mark.parametrize("scoring", OF_CLASSES)
def test_at_the_largest_time_the_score_is_that_of_whole_samples(told, scoring):
    task, samples = told
    table = romae.early_scores(task, samples, times=TIMES, scoring=scoring)
    assert list(table.columns) == ["time", "score", "n"] and table["time"].tolist() == TIMES
    expected = class_score(scoring, romae.predict_proba(task, samples), truth(samples))
    assert table["score"].iloc[-1] == pytest.approx(expected, rel=1e-5)
    assert (table["n"] == len(samples)).all()


def test_what_lies_after_a_cut_has_no_influence(told):
    task, samples = told
    spoiled = []
    for sample in samples:
        day, values = sample.positions[:, 0], sample.values.clone()
        values[day > day.min() + 5, 0] *= -50
        spoiled.append(replace(sample, values=values))
    one, other = (romae.early_scores(task, part, times=TIMES, scoring="neg_log_loss") for part in (samples, spoiled))
    assert_allclose(one["score"][:3], other["score"][:3], rtol=1e-6)
    assert one["score"][3] != pytest.approx(other["score"][3], rel=1e-3)


def test_each_score_is_that_of_samples_that_end_there(told):
    task, samples = told
    if samples.schema.phase is not None or samples.schema.static:
        pytest.skip("such samples are cut in other ways")
    cut = []
    for sample in samples:
        keep = sample.positions[:, 0] <= sample.positions[:, 0].min() + 5
        cut.append(replace(sample, values=sample.values[keep], positions=sample.positions[keep]))
    expected = class_score("neg_log_loss", romae.predict_proba(task, cut), truth(samples))
    table = romae.early_scores(task, samples, times=[5.0], scoring="neg_log_loss")
    assert table["score"][0] == pytest.approx(expected, rel=1e-5)


def test_the_order_of_samples_does_not_matter(told):
    task, samples = told
    order = np.random.default_rng(0).permutation(len(samples))
    tables = [romae.early_scores(task, part, times=TIMES, scoring="neg_log_loss") for part in (samples, samples[order])]
    assert_allclose(tables[0]["score"], tables[1]["score"], rtol=1e-6)


@pytest.fixture(scope="module")
def plain() -> tuple[romae.Classification, romae.SampleSet]:
    samples = curves()
    return trained(samples), samples


def test_a_detection_is_the_first_measurement_that_is_significant(plain):
    task, samples = plain
    masks = [(sample.values[:, 0].abs() >= 5 * sample.values[:, 1]).numpy() for sample in samples]
    by_noise = romae.early_scores(task, samples, times=TIMES, since=5.0)
    by_mask = romae.early_scores(task, samples, times=TIMES, since=masks)
    pd.testing.assert_frame_equal(by_noise, by_mask)
    cut = []
    for sample, mask in zip(samples, masks, strict=True):
        keep = sample.positions[:, 0] <= sample.positions[mask, 0].min() + 2
        cut.append(replace(sample, values=sample.values[keep], positions=sample.positions[keep]))
    table = romae.early_scores(task, samples, times=[2.0], since=5, scoring="neg_log_loss")
    expected = class_score("neg_log_loss", romae.predict_proba(task, cut), truth(samples))
    assert table["score"][0] == pytest.approx(expected, rel=1e-5)


def of_cuts(caught) -> str:
    """What is said of cuts; that beginnings are shorter than what was trained on is said as well."""
    (told,) = (str(one.message) for one in caught if "visible" in str(one.message))
    return told


def test_samples_with_nothing_before_a_cut_are_said_and_left_out(plain):
    task, samples = plain
    with pytest.warns(UserWarning) as caught:
        table = romae.early_scores(task, samples, times=[-1.0, 1.05, 9.0], since="clock")
    assert_says(of_cuts(caught), "24 of 24", "time -1")
    n_begun = sum(float(sample.positions[:, 0].min()) <= 1.05 for sample in samples)
    assert table["n"].tolist() == [0, n_begun, 24] and 0 < n_begun < 24 and np.isnan(table["score"][0])
    masks = [np.zeros(len(sample), dtype=bool) for sample in samples]
    for mask in masks[:20]:
        mask[5] = True
    with pytest.warns(UserWarning) as caught:
        table = romae.early_scores(task, samples, times=[0.0, 50.0], since=masks, scoring="accuracy")
    assert_says(of_cuts(caught), "4 of 24", "never detected")
    whole = class_score("accuracy", romae.predict_proba(task, samples[:20]), truth(samples[:20]))
    assert table["n"].tolist() == [20, 20] and table["score"][1] == pytest.approx(whole)


def test_hidden_measurements_stay_hidden(plain):
    task, samples = plain
    hidden = romae.hide(samples, romae.UniformTokens(ratio=0.5), seed=0)
    table = romae.early_scores(task, hidden, times=TIMES, scoring="neg_log_loss")
    expected = class_score("neg_log_loss", romae.predict_proba(task, hidden), truth(samples))
    assert table["score"].iloc[-1] == pytest.approx(expected, rel=1e-5)


def test_targets_by_name_and_containers_change_nothing(plain, tmp_path):
    task, samples = plain
    expected = romae.early_scores(task, samples, times=TIMES)
    names = [samples.schema.classes[i] for i in truth(samples)]
    bare = [replace(sample, target=None) for sample in samples]
    romae.write_store(samples, tmp_path / "store")
    for part, targets in ((bare, names), (list(samples), None), (romae.Store(tmp_path / "store"), None)):
        pd.testing.assert_frame_equal(romae.early_scores(task, part, targets, times=TIMES), expected)


def test_dates_and_durations_are_cuts():
    frame = pd.DataFrame({"id": np.repeat(range(6), 4), "kind": np.repeat([0, 1] * 3, 4), "value": np.arange(24.0)})
    frame["time"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.tile([0, 6, 24, 48], 6), unit="h")
    samples = romae.from_table(frame, id="id", time="time", values="value", label="kind")
    task = trained(samples)
    table = romae.early_scores(task, samples, times=["12h", "2 days"])
    assert table["time"].iloc[1] == 4 * table["time"].iloc[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        moments = romae.early_scores(task, samples, times=["2024-01-01 12:00", "2024-01-03"], since="clock")
    assert_array_equal(moments["score"], table["score"])


@pytest.mark.parametrize(
    ("error", "changes", "parts"),
    [
        (ValueError, {"times": []}, ["one or more cuts"]),
        (ValueError, {"times": 5.0}, ["cuts", "5.0"]),
        (ValueError, {"times": [np.nan]}, ["finite", "nan"]),
        (ValueError, {"scoring": "r2"}, ["'r2'", "f1_macro"]),
        (ValueError, {"since": "peak"}, ["'peak'", "'first'"]),
        (ValueError, {"since": 1e9}, ["ever detected"]),
        (ValueError, {"since": [np.zeros(3, dtype=bool)]}, ["24 samples"]),
        (ValueError, {"since": [np.zeros(3, dtype=bool)] * 24}, ["'s0'", "16 booleans"]),
        (ValueError, {"targets": ["nova"]}, ["1 targets", "24 samples"]),
        (ValueError, {"targets": ["nova", "comet"] * 12}, ["'comet'", "'flare'"]),
        (TypeError, {"task": None}, ["Classification", "NoneType"]),
    ],
)
def test_bad_input_is_one_sentence(plain, error, changes, parts, without_shape_checks):
    task, samples = plain
    arguments = {"task": task, "samples": samples, "times": TIMES} | changes
    with refused(error, *parts):
        romae.early_scores(**arguments)


def test_without_targets_or_errors_a_sample_is_named(plain):
    task, samples = plain
    with refused(ValueError, "'s0'", "targets="):
        romae.early_scores(task, [replace(sample, target=None) for sample in samples], times=TIMES)
    bare = romae.from_arrays(np.zeros((4, 3, 1)), y=[0, 1, 0, 1])
    with refused(ValueError, "signal to noise", "masks"):
        romae.early_scores(trained(bare), bare, times=[1.0], since=5)


def test_a_chart_has_a_curve_for_each_classifier(plain):
    task, samples = plain
    table = romae.early_scores(task, samples, times=TIMES)
    figure = charts.early_scores({"romae": table, "<b>": table}, y="macro F1")
    assert [trace.name for trace in figure.data] == ["romae", "&lt;b&gt;"]
    assert_array_equal(figure.data[0].y, table["score"])
    assert_array_equal(figure.data[0].customdata, table["n"])
    assert figure.layout.yaxis.title.text == "macro F1"

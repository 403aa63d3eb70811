"""Anomalies: p-values that are uniform on normal data, answers that never see their own measurement, outliers first."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

import romae
from messages import assert_says, refused
from romae.data.schema import Fact, SampleSet, Schema
from romae.inference.anomalies import LEAST_P, conformal, dealt, judge
from romae.inference.distributions import Distribution, Units
from romae.model.likelihoods import Normal
from test_cli import romae as romae_command

SIZE = romae.Size(width=16, heads=2, depth=1)
SCHEMA = Schema(id="star", time="day", channel="band", channels=("g", "r"))
ONE_PERCENT = 1.63  # over the root of n: what a Kolmogorov-Smirnov statistic exceeds one time in a hundred
PLAIN = Units(np.ones(()), np.zeros(()), np.ones(()), np.zeros(()))


def star(random, name, length):
    band, time = np.arange(length) % 2, np.sort(random.uniform(0, 9, length))
    values = 15 + 3 * random.normal() + band + np.sin(time) + 0.1 * random.normal(size=length)
    return romae.Sample(values[:, None], np.stack([time, band], axis=1), id=f"star {name}")


def stars(n=24, seed=0, length=24):
    random = np.random.default_rng(seed)
    return SampleSet([star(random, i, length + i % 5) for i in range(n)], SCHEMA)


@pytest.fixture(autouse=True)
def quiet():
    """Far outliers are what is looked for here; one test says what is told of them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="data far outside")
        yield


def trained(samples, epochs=1, center="sample", likelihood="normal", **model):
    torch.manual_seed(0)
    dims, columns = samples[0].positions.shape[1], samples[0].values.shape[1]
    config = romae.ModelConfig(
        **{"channels": columns, "position_dims": dims, "encoder": SIZE, "decoder": SIZE, "cls": False} | model
    )
    task = romae.MaskedReconstruction(config, masking=romae.UniformTokens(ratio=0.3), likelihood=likelihood)
    scaling = romae.fit_scaling(samples, center=center, origin="first")
    config = romae.TrainConfig(epochs=epochs, batch_size=8, device="cpu", lr=5e-3)
    romae.train(task, samples, config, scaling=scaling, quiet=True)
    return task


@pytest.fixture(scope="module", params=["global", "sample", "instance"])
def model(request):
    return trained(stars(), center=request.param, kinds=2)


@pytest.fixture(scope="module")
def good():
    return trained(stars(), epochs=15, kinds=2)


def changed(samples, i, token, value):
    values = samples[i].values.clone()
    values[token] = value
    edited = list(samples)
    edited[i] = replace(samples[i], values=values)
    return SampleSet(edited, samples.schema)


# Laws


@pytest.mark.parametrize("folds", [10, None])
def test_what_is_expected_does_not_depend_on_the_measurement_itself(model, folds):
    samples = stars(3)
    before = romae.anomaly(model, samples, folds=folds).measurements
    for token in (0, 7):
        after = romae.anomaly(model, changed(samples, 1, token, 40.0), folds=folds).measurements
        row = np.flatnonzero(before["star"] == "star 1")[token]
        for name in ("expected", "lower", "upper"):
            assert_allclose(after[name][row], before[name][row], rtol=1e-6)
        assert after["value"][row] == 40 and after["score"][row] > before["score"][row]
        others = np.flatnonzero(before["star"] == "star 1")[[token + 1, token + 2]]
        assert (abs(after["expected"] - before["expected"])[others] > 1e-6).all(), "the others do see it"


def test_an_encoder_that_has_seen_a_measurement_gives_it_away(good):
    """Why a mask in the decoder will not do: asked where it was measured, the model answers with what it was shown."""
    samples, asked = stars(1), stars(1)[0].positions
    before, after = (romae.interpolate(good, one, [asked])[0] for one in (samples, changed(samples, 0, 7, 17.0)))
    assert abs(after - before)[7] > 100 * 1e-6 * abs(before[7])


def test_leaving_each_out_is_asking_without_it(model):
    samples = stars(2)
    found = romae.anomaly(model, samples, folds=None, level=0.8).measurements
    for token in (0, 5):
        hidden = torch.arange(len(samples[1])) == token
        (alone,) = romae.predict(model, [replace(samples[1], hidden=hidden)], returns="distribution")
        row = found.iloc[len(samples[0]) + token]
        assert_allclose(row["expected"], alone.median()[0, 0], rtol=1e-6)
        assert_allclose(row[["lower", "upper"]].astype(float), np.ravel(alone.interval(0.8)), rtol=1e-6)
        below = float(alone.cdf(samples[1].values[token].item())[0, 0])
        assert_allclose(row["p_value"], 2 * min(below, 1 - below), rtol=1e-4)
        assert_allclose(row["score"], -np.log10(row["p_value"]))


@pytest.mark.parametrize("folds", [4, None])
def test_p_values_are_uniform_on_data_that_the_model_draws(good, folds):
    """One measurement of each sample is drawn from what the model says of it, given all that are not hidden with it."""
    samples, asked, drawn = stars(200, seed=1, length=12), [], []
    chosen = [i % len(sample) for i, sample in enumerate(samples)]
    for sample, token in zip(samples, chosen, strict=True):
        groups = np.arange(len(sample)) if folds is None else dealt(sample.positions.numpy(), folds)
        asked.append(replace(sample, hidden=torch.from_numpy(groups == groups[token])))
    told = romae.predict(good, asked, returns="distribution")
    for i, (sample, token, one) in enumerate(zip(asked, chosen, told, strict=True)):
        values, place = sample.values.clone(), int(sample.hidden[:token].sum())
        values[token] = float(one[place : place + 1].sample(1, seed=i)[0, 0, 0])
        drawn.append(replace(samples[i], values=values))
    table = romae.anomaly(good, SampleSet(drawn, SCHEMA), folds=folds).measurements
    first = np.cumsum([0, *map(len, drawn[:-1])])
    p = table["p_value"].to_numpy()[first + chosen]
    assert stats.kstest(p, "uniform").statistic < ONE_PERCENT / np.sqrt(len(p))


@pytest.fixture(scope="module")
def of_known_form():
    """A head that says nothing of its input predicts a normal with the mean and the spread of the training data."""
    samples = romae.from_arrays(np.random.default_rng(0).normal(5.0, 2.0, size=(40, 30, 1)))
    task = trained(samples, center="global")
    with torch.no_grad():
        for parameter in task.head.parameters():
            parameter.zero_()
    return task, samples


def test_a_model_of_known_form_gives_the_p_values_of_the_book(of_known_form):
    task, samples = of_known_form
    table = romae.anomaly(task, samples).measurements
    values = table["value"].to_numpy()
    centre, scale = values.mean(), values.std()
    assert_allclose(table["p_value"], 2 * stats.norm.sf(abs(values - centre) / scale), rtol=1e-3)
    assert_allclose(table["expected"], centre, rtol=1e-5)
    assert_allclose(table["upper"] - table["lower"], 2 * 1.6449 * scale, rtol=1e-4)
    assert stats.kstest(table["p_value"], "uniform").statistic < ONE_PERCENT / np.sqrt(len(table))


@pytest.mark.parametrize("common", [0.8, 1.0])
def test_the_p_value_of_a_sample_is_valid_though_its_measurements_depend_on_each_other(of_known_form, common):
    task, samples = of_known_form
    all_values = np.concatenate([sample.values.numpy() for sample in samples])
    random = np.random.default_rng(1)
    z = np.sqrt(common) * random.normal(size=(250, 1, 1)) + np.sqrt(1 - common) * random.normal(size=(250, 10, 1))
    p = romae.anomaly(task, romae.from_arrays(all_values.mean() + all_values.std() * z)).samples["p_value"]
    for level in (0.02, 0.1, 0.3):
        assert (p <= level).mean() <= level + 2.6 * np.sqrt(level * (1 - level) / 250)


def test_the_p_value_beside_a_reference_is_uniform_and_counts_the_sample_itself():
    random = np.random.default_rng(0)
    reference = random.normal(size=99)
    assert_allclose(conformal(np.array([-9.0, 9.0, np.nan]), reference), [1, 0.01, np.nan])
    assert_allclose(conformal(np.array([1.0, 2.0]), np.array([1.0, 1.0, np.nan])), [1, 1 / 3])
    p = [conformal(scores, random.normal(size=99))[0] for scores in random.normal(size=(2_000, 1))]
    assert stats.kstest(p, "uniform").statistic < ONE_PERCENT / np.sqrt(2_000) + 0.01


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 12), st.integers(1, 6), st.integers(12, 60), st.integers(0, 99))
def test_neighbours_in_a_channel_are_in_different_groups_of_about_one_size(folds, n_channels, n, seed):
    random = np.random.default_rng(seed)
    positions = np.stack([random.uniform(0, 9, n), random.integers(0, n_channels, n)], axis=1)
    groups = dealt(positions, folds)
    assert groups.min() >= 0 and groups.max() < folds
    counts = np.bincount(groups, minlength=folds)
    assert counts.max() <= 2 * -(-n // folds) and counts.max() < n
    for channel in np.unique(positions[:, 1]):
        line = groups[positions[:, 1] == channel][np.argsort(positions[positions[:, 1] == channel, 0])]
        if counts.max() - counts.min() <= n_channels:  # else the plain order was taken
            assert all(len(set(line[i : i + folds])) == len(line[i : i + folds]) for i in range(len(line)))


def test_on_a_grid_neighbours_along_every_axis_are_in_different_groups():
    for shape, folds in (((20, 20), 10), ((40, 10), 10), ((9, 6, 6), 7)):
        grid = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), -1).reshape(-1, len(shape))
        groups = dealt(grid.astype(float), folds).reshape(shape)
        for axis in range(len(shape)):
            assert (np.diff(groups, axis=axis) != 0).all()
        assert np.bincount(groups.ravel()).max() <= grid.shape[0] / folds + shape[-1]


# Tables


def test_a_planted_outlier_is_the_first_and_so_is_its_sample(good):
    samples = changed(stars(8, seed=3), 5, 9, float(stars(8, seed=3)[5].values[9]) + 4)
    found = romae.anomaly(good, samples, false_discovery=0.05)
    table = found.measurements
    first = table.loc[table["score"].idxmax()]
    assert first["star"] == "star 5" and first["value"] == samples[5].values[9].item()
    assert not first["lower"] < first["value"] < first["upper"]
    assert found.samples.loc[found.samples["score"].idxmax(), "star"] == "star 5"
    assert table["flagged"].dtype == bool and table["flagged"][table["score"].idxmax()]
    assert table["flagged"].mean() < 0.1
    expected = stats.false_discovery_control(table["p_value"]) <= 0.05
    assert_array_equal(table["flagged"], expected)
    mean = romae.anomaly(good, samples, combine="mean")
    assert mean.samples["p_value"].isna().all()
    assert_allclose(mean.samples["score"], table.groupby("star", sort=False)["score"].mean())
    beside = romae.anomaly(good, samples, reference=stars(19, seed=4)).samples
    assert beside["p_value"][5] == pytest.approx(1 / 20) and beside["p_value"].between(1 / 20, 1).all()
    worst = table.groupby("star", sort=False)["p_value"].min() * table.groupby("star", sort=False).size()
    assert_allclose(found.samples["p_value"], np.minimum(worst, 1), rtol=1e-6)


def test_a_table_has_the_names_of_the_data_and_a_row_for_each_measurement(good):
    samples = stars(3)
    found = romae.anomaly(good, samples)
    names = ["star", "day", "band", "value", "expected", "lower", "upper", "p_value", "score"]
    assert list(found.measurements.columns) == names
    pd.testing.assert_frame_equal(found.measurements[names[:4]], romae.to_table(samples))
    assert list(found.samples.columns) == ["star", "n_measurements", "score", "p_value"]
    assert found.samples["n_measurements"].tolist() == [24, 25, 26]


def test_columns_of_values_have_a_row_each():
    random = np.random.default_rng(0)
    samples = romae.from_arrays(random.normal(size=(8, 12, 2)), channels=["speed", "torque"])
    table = romae.anomaly(trained(samples, center="global"), samples).measurements
    assert list(table.columns)[:4] == ["id", "time", "channel", "value"] and len(table) == 8 * 12 * 2
    assert table["channel"][:4].tolist() == ["speed", "torque"] * 2
    assert_allclose(table["value"][:2], samples[0].values[0])


def test_samples_without_names_have_plain_ones():
    random = np.random.default_rng(0)
    samples = [romae.Sample(random.normal(size=(9, 1)), random.uniform(size=(9, 3))) for _ in range(8)]
    size = romae.Size(width=12, heads=2, depth=1)
    task = trained(samples, center="global", encoder=size, decoder=size)
    assert list(romae.anomaly(task, samples).measurements)[:5] == ["id", "time", "position_1", "position_2", "value"]


def test_static_facts_are_shown_and_not_scored():
    schema = Schema(channel="sign", channels=("pulse", "heat"), static=(Fact(column="age"),))
    random, samples = np.random.default_rng(0), []
    for i in range(8):
        positions = np.stack([np.append(np.arange(6.0), 0.0), [0, 1, 0, 1, 0, 1, 2]], axis=1)
        samples.append(romae.Sample(random.normal(size=(7, 1)), positions, id=i))
    samples = SampleSet(samples, schema)
    task = trained(samples, center="global", kinds=3, static_from=2)
    found = romae.anomaly(task, samples)
    assert found.samples["n_measurements"].tolist() == [6] * 8 and set(found.measurements["sign"]) == {"pulse", "heat"}
    older = changed(samples, 0, 6, 3.0)
    assert not np.allclose(romae.anomaly(task, older).measurements["expected"][:6], found.measurements["expected"][:6])


def test_hidden_measurements_are_scored_and_never_shown(good):
    samples = stars(2)
    hidden = torch.zeros(len(samples[0]), dtype=torch.bool)
    hidden[[3, 4]] = True
    masked = SampleSet([replace(samples[0], hidden=hidden), samples[1]], SCHEMA)
    far = changed(masked, 0, 3, 99.0)
    before, after = (romae.anomaly(good, given).measurements for given in (masked, far))
    assert_allclose(after["expected"], before["expected"])
    (asked,) = romae.predict(good, [masked[0]], returns="distribution")
    assert_allclose(before["expected"][3:5], asked.median()[:, 0], rtol=1e-6)


def test_a_measurement_that_stands_alone_has_no_score(good):
    random = np.random.default_rng(0)
    found = romae.anomaly(good, SampleSet([star(random, 0, 1), star(random, 1, 2)], SCHEMA))
    assert found.measurements["score"].isna().tolist() == [True, False, False]
    assert np.isnan(found.samples["score"][0]) and np.isnan(found.samples["p_value"][0])
    assert romae.anomaly(good, SampleSet([star(random, 0, 1)], SCHEMA), false_discovery=0.1).measurements[
        "flagged"
    ].tolist() == [False]


def test_the_budget_and_the_container_change_nothing(good, tmp_path):
    samples = stars(4)
    whole = romae.anomaly(good, samples)
    small = romae.anomaly(good, samples, tokens_per_batch=30)
    romae.write_store(samples, tmp_path / "store")
    stored = romae.anomaly(good, romae.Store(tmp_path / "store"))
    for other in (small, stored):
        pd.testing.assert_frame_equal(other.measurements, whole.measurements, rtol=1e-4, atol=1e-6)
        pd.testing.assert_frame_equal(other.samples, whole.samples, rtol=1e-4, atol=1e-6)


def test_far_beyond_the_digits_of_a_p_value_scores_still_rise():
    one = Distribution(Normal(), np.zeros((4, 1, 2)), PLAIN)
    rows = judge(one, np.array([[20.0], [200.0], [-200.0], [9e9]]), 0.9)[:, 0]
    assert (rows[:, 3] == LEAST_P).all() and rows[1, 4] == pytest.approx(rows[2, 4])
    assert rows[0, 4] < rows[1, 4] < rows[3, 4]


def test_one_warning_tells_what_lies_outside_and_counts_each_number_once(good):
    samples = changed(stars(3), 0, 2, 1e6)
    with pytest.warns(UserWarning, match="1 of 38 values of 'g'") as record:
        romae.anomaly(good, samples)
    assert len(record) == 1


# Bad input


def test_what_cannot_be_scored_is_refused_with_the_way_out(good, without_shape_checks):
    samples = stars(2)
    with refused(ValueError, "no distribution", "likelihood='mixture'"):
        romae.anomaly(romae.MaskedReconstruction(good.config), samples)
    with refused(TypeError, "MaskedReconstruction", "Classification"):
        romae.anomaly(romae.Classification(good.encoder, 2), samples)
    for given_, *said in (
        ({"folds": 1}, "folds", "at least 2", "None"),
        ({"folds": 2.5}, "folds", "2.5"),
        ({"folds": True}, "folds"),
        ({"level": 1.0}, "level", "below 1"),
        ({"combine": "fisher"}, "'largest', 'mean'", "'fisher'"),
        ({"false_discovery": 0.0}, "false_discovery", "above 0"),
    ):
        with refused(ValueError, *said):
            romae.anomaly(good, samples, **given_)


# The command line


@pytest.fixture
def folder(good, tmp_path, monkeypatch):
    good.save(tmp_path / "model")
    romae.to_table(stars(6, seed=2)).to_parquet(tmp_path / "stars.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_from_a_table_to_scores_of_measurements_and_of_ids(folder, good):
    command = ["anomaly", "stars.parquet", "--model=model", "--out=scores.parquet", "--set=device=cpu"]
    done = romae_command(*command, "--level=0.5", "--json")
    assert done.returncode == 0, done.stderr
    expected = romae.anomaly(good, stars(6, seed=2), level=0.5)
    assert json.loads(done.stdout)["columns"] == list(expected.measurements.columns)
    table = pd.read_parquet("scores.parquet")
    pd.testing.assert_frame_equal(table, expected.measurements, rtol=1e-4, atol=1e-6)
    assert romae_command(*command).returncode == 2, "what is there is not overwritten"
    assert romae_command(*command, "--force", "--per=sample", "--folds=0").returncode == 0
    expected = romae.anomaly(good, stars(6, seed=2), folds=None)
    pd.testing.assert_frame_equal(pd.read_parquet("scores.parquet"), expected.samples, rtol=1e-3, atol=1e-5)
    done = romae_command(*command, "--force", "--level=2")
    assert done.returncode == 2
    assert_says(done.stderr, "level", "below 1")


def test_bad_rows_are_skipped_and_listed(folder):
    table = pd.read_parquet("stars.parquet").astype({"value": object})
    table.loc[0, "value"] = "bad"
    table.to_csv("spoiled.csv", index=False)
    command = ["anomaly", "spoiled.csv", "--model=model", "--out=scores.csv", "--set=device=cpu"]
    assert romae_command(*command).returncode == 2
    with pytest.warns(UserWarning, match="skipped 1 of 6"):
        done = romae_command(*command, "--on-error=skip")
    assert done.returncode == 0, done.stderr
    assert pd.read_csv("scores.skipped.csv")["id"].tolist() == ["star 0"]
    assert set(pd.read_csv("scores.csv")["star"]) == {f"star {i}" for i in range(1, 6)}

"""How sure estimators are: intervals that cover what they say, in the form that people asked in, saved and pickled."""

import pickle

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from sklearn.base import clone

import romae
from messages import refused
from romae.estimators.conformal import HeldOutErrors
from romae.model.likelihoods import Mixture, Normal

SIZE = {"width": 16, "heads": 2, "depth": 1}
QUICK = {"size": SIZE, "device": "cpu", "random_state": 0}
TIMES = [0.0, 2.5, 5.0]


def waves(n, seed=0, length=12):
    random = np.random.default_rng(seed)
    times = [np.sort(random.uniform(0, 10, length)) for _ in range(n)]
    return [(t, np.sin(t + random.uniform(0, 6)) + random.normal(0, 0.1, length)) for t in times]


@pytest.fixture(scope="module")
def interpolator():
    return romae.RoMAEInterpolator(**QUICK, likelihood=Mixture(n=2), pretrain_epochs=2).fit(waves(24))


@pytest.fixture(scope="module")
def regressor():
    X, settings = waves(40), {**QUICK, "pretrain_epochs": 0, "epochs": 1, "n_models": 2, "features": None}
    return romae.RoMAERegressor(**settings, likelihood="normal").fit(X, [values.mean() for _, values in X])


# Split conformal


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9])
def test_intervals_cover_exchangeable_series_as_often_as_they_say(level):
    random, n, trials = np.random.default_rng(0), 19, 2_000
    errors = random.standard_cauchy((n + 1, trials))  # however they are distributed; a trial is a target
    known = HeldOutErrors.of(errors[:n], np.zeros((n, trials)), np.ones((n, trials)), None)
    covered = np.abs(errors[n]) <= known.half_width(np.ones((1, trials)), level)[0]
    exact = np.ceil(level * (n + 1)) / (n + 1)
    assert np.mean(covered) == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / trials))
    assert exact >= level


def test_an_interval_is_the_error_of_the_rank_that_the_level_asks_for():
    errors = np.arange(1.0, 20.0)[:, None]  # 1 to 19
    known = HeldOutErrors.of(errors, np.zeros((19, 1)), np.ones((19, 1)), None)
    for level, rank in ((0.5, 10), (0.9, 18), (0.95, 19), (0.05, 1)):
        assert known.half_width(np.array([[1.0], [2.0]]), level).tolist() == [[rank], [2 * rank]]
    assert known.deviation(np.ones((1, 1)))[0, 0] == pytest.approx(np.sqrt((errors**2).mean()))
    with refused(ValueError, "0.96", "at least 24 series", "there are 19", "at most 0.95"):
        known.half_width(np.ones((1, 1)), 0.96)


def test_a_series_of_weight_2_counts_as_two():
    random = np.random.default_rng(0)
    errors, weights = random.normal(size=(30, 1)), np.tile([1.0, 2.0], 15)
    zero, one = np.zeros((30, 1)), np.ones((30, 1))
    weighted = HeldOutErrors.of(errors, zero, one, weights)
    scaled = HeldOutErrors.of(errors, zero, one, 7 * weights)
    twice = np.repeat(errors, weights.astype(int), axis=0)
    repeated = HeldOutErrors.of(twice, np.zeros_like(twice), np.ones_like(twice), None)
    assert weighted.deviation(one[:1]) == pytest.approx(repeated.deviation(one[:1]))
    assert weighted.half_width(one[:1], 0.8) == scaled.half_width(one[:1], 0.8)


# The regressor


def test_a_regressor_has_intervals_around_its_own_answers(regressor):
    X = waves(9, seed=1)
    numbers, deviations = regressor.predict(X, return_std=True)
    assert_array_equal(numbers, regressor.predict(X))
    assert deviations.shape == (9,) and (deviations > 0).all()
    before = None
    for level in (0.5, 0.8, 0.95):
        lower, upper = regressor.predict_interval(X, level)
        assert lower.shape == (9,)
        assert_allclose((lower + upper) / 2, numbers, rtol=1e-9)
        assert before is None or (upper - lower > before).all()
        before = upper - lower
    assert np.ptp(before) > 1e-6, "with a likelihood series differ in how much is known of them"
    assert regressor.task_.calibration.n_samples == (40,), "that of the networks alone"
    assert len(regressor.held_out_errors_) == 40, "two networks hold out every series once"


def test_intervals_of_a_regressor_cover_new_series():
    X, new = waves(40), waves(200, seed=2)
    y, truth = ([values.mean() for _, values in some] for some in (X, new))
    fitted = romae.RoMAERegressor(**QUICK, pretrain_epochs=0, epochs=1, n_models=1, validation_fraction=0.5).fit(X, y)
    assert fitted.has_stack_, "trees and a linear model answer with the network"
    lower, upper = fitted.predict_interval(new, 0.8)
    assert_allclose((lower + upper) / 2, fitted.predict(new), rtol=1e-9)
    assert np.ptp(upper - lower) < 1e-9, "without a likelihood all are as wide"
    covered = np.mean((lower <= truth) & (truth <= upper))
    assert covered > stats.binom(200, 0.8).ppf(0.001) / 200 - 3 * np.sqrt(0.16 / 20)


def test_a_unit_of_the_target_is_a_unit_of_its_intervals():
    X = waves(30)
    y = np.array([values.mean() for _, values in X])
    in_units = [
        romae.RoMAERegressor(**QUICK, pretrain_epochs=0, epochs=1, n_models=2, features=None)
        .fit(X, factor * y + shift)
        .predict_interval(X[:3], 0.8)
        for factor, shift in ((1.0, 0.0), (1000.0, 50.0))
    ]
    for one, other in zip(*in_units, strict=True):
        assert_allclose(1000 * one + 50, other, rtol=1e-3, atol=1)


def test_several_targets_have_intervals_of_their_own_and_a_table_has_columns():
    rows = [
        {"star": f"s{i}", "time": t, "flux": v, "mass": float(i % 5), "age": 10.0 * (i % 3)}
        for i, (times, values) in enumerate(waves(24))
        for t, v in zip(times, values, strict=True)
    ]
    table = pd.DataFrame(rows)
    columns = {"id": "star", "time": "time", "values": ["flux"], "label": "mass"}
    settings = {**QUICK, "pretrain_epochs": 0, "epochs": 1, "features": None, "columns": columns}
    one = romae.RoMAERegressor(**settings).fit(table.drop(columns="age"))
    told = one.predict(table.drop(columns="age"), return_std=True)
    assert list(told.columns) == ["mass", "mass_std"] and told.index.name == "star" and len(told) == 24
    ends = one.predict_interval(table.drop(columns="age"), 0.5)
    assert list(ends.columns) == ["mass_lower", "mass_upper"] and (ends.mass_lower < ends.mass_upper).all()
    X = waves(24)
    both = np.stack([np.arange(24) % 5, 10.0 * (np.arange(24) % 3)], axis=1)
    several = romae.RoMAERegressor(**QUICK, pretrain_epochs=0, epochs=1, features=None).fit(X, both)
    lower, upper = several.predict_interval(X[:4], 0.5)
    assert lower.shape == (4, 2) and (lower < upper).all()


def test_without_series_that_were_held_out_there_is_no_interval():
    X = waves(12)
    small = romae.RoMAERegressor(**QUICK, pretrain_epochs=0, epochs=1, features=None).fit(X, np.arange(12.0))
    for ask in (lambda: small.predict_interval(X), lambda: small.predict(X, return_std=True)):
        with refused(ValueError, "held out", "validation_fraction"):
            ask()
    X = waves(24)
    few = romae.RoMAERegressor(**QUICK, pretrain_epochs=0, epochs=1, n_models=1, features=None).fit(X, np.arange(24.0))
    with refused(ValueError, "at least 9 series", "at most"):
        few.predict_interval(X)


@pytest.mark.parametrize("level", [0, 1, -0.1, 1.5, float("nan")])
def test_a_level_that_is_no_probability_is_refused(regressor, interpolator, level):
    X = waves(2)
    for ask in (lambda: regressor.predict_interval(X, level), lambda: interpolator.predict_interval(X, TIMES, level)):
        with refused(ValueError, "above 0 and below 1"):
            ask()


def test_intervals_of_a_regressor_come_back_from_disk_and_pickle(regressor, tmp_path):
    X = waves(4, seed=3)
    regressor.save(tmp_path / "saved")
    for again in (romae.RoMAERegressor.load(tmp_path / "saved"), pickle.loads(pickle.dumps(regressor))):
        assert again.likelihood in ("normal", Normal())
        for one, other in zip(again.predict_interval(X, 0.8), regressor.predict_interval(X, 0.8), strict=True):
            assert_array_equal(one, other)


# The interpolator


def test_an_interpolator_answers_with_distributions_deviations_and_intervals(interpolator, tmp_path):
    X = waves(5, seed=1)
    means = interpolator.interpolate(X, TIMES)
    whole = interpolator.interpolate(X, TIMES, returns="distribution")
    assert [one.shape for one in whole] == [(3, 1)] * 5
    again, deviations = interpolator.interpolate(X, TIMES, return_std=True)
    lower, upper = interpolator.predict_interval(X, TIMES, level=0.8)
    assert means.shape == again.shape == deviations.shape == lower.shape == (5, 3, 1)
    assert_allclose(again, means, rtol=1e-4, atol=1e-5)
    assert_allclose(deviations, np.stack([one.std() for one in whole]))
    assert_allclose(np.stack([lower, upper]), np.stack([one.interval(0.8) for one in whole], axis=1))
    interpolator.save(tmp_path / "saved")
    loaded = romae.RoMAEInterpolator.load(tmp_path / "saved")
    assert loaded.likelihood == Mixture(n=2) == clone(interpolator).likelihood
    for other in (loaded, pickle.loads(pickle.dumps(interpolator))):
        assert_array_equal(other.predict_interval(X, TIMES, level=0.8)[0], lower)


def test_ragged_times_give_lists(interpolator):
    X = waves(2, seed=1)
    lower, upper = interpolator.predict_interval(X, [[1.0], [2.0, 3.0]])
    assert [len(one) for one in lower] == [1, 2] == [len(one) for one in upper]


def test_channels_keep_their_columns_and_one_that_was_never_measured_is_nan():
    random = np.random.default_rng(0)
    rows = [
        {"star": f"s{i}", "time": t, "band": "gr"[j % 2], "flux": random.normal()}
        for i in range(8)
        for j, t in enumerate(np.sort(random.uniform(0, 10, 10)))
    ]
    table = pd.DataFrame(rows)
    table["band"] = pd.Categorical(table.band, ["g", "r", "z"])
    columns = {"id": "star", "time": "time", "channel": "band", "values": ["flux"]}
    curves = romae.RoMAEInterpolator(**QUICK, likelihood="student", pretrain_epochs=1, columns=columns).fit(table)
    told = curves.interpolate(table, [1.0, 2.0], return_std=True)
    names = [name for name in told.columns if not str(name).startswith("z")]
    assert names == ["g", "g_std", "r", "r_std"] and len(told) == 16
    assert_allclose(told.g, curves.interpolate(table, [1.0, 2.0]).g, rtol=1e-4, atol=1e-5)
    ends = curves.predict_interval(table, [1.0, 2.0], channels=["r"])
    assert list(ends.columns) == ["r_lower", "r_upper"] and (ends.r_lower < ends.r_upper).all()
    whole = curves.interpolate(table, [1.0, 2.0], channels=["r", "g"], returns="distribution")
    assert len(whole) == 8 and whole[0].shape == (2, 2)
    assert_allclose(whole[0].quantile(0.95)[:, 0], ends.r_upper[:2])


def test_an_interpolator_without_a_likelihood_says_what_to_do():
    X = waves(8)
    plain = romae.RoMAEInterpolator(**QUICK, likelihood=None, pretrain_epochs=1).fit(X)
    for ask in (
        lambda: plain.predict_interval(X, TIMES),
        lambda: plain.interpolate(X, TIMES, return_std=True),
        lambda: plain.interpolate(X, TIMES, returns="distribution"),
    ):
        with refused(ValueError, "no distribution", "likelihood="):
            ask()
    with refused(ValueError, "return_std", "returns='distribution'"):
        plain.interpolate(X, TIMES, return_std=True, returns="distribution")


def test_curves_are_calibrated_on_what_was_held_out_and_few_series_are_not(interpolator):
    assert interpolator.task_.calibration is None, "a fifth of 24 series are too few"
    fitted = romae.RoMAEInterpolator(**QUICK, likelihood="normal", pretrain_epochs=1, validation_fraction=0.5).fit(
        waves(48)
    )
    assert fitted.task_.calibration.n_samples == (24,)
    new = waves(100, seed=5)
    seen, asked = [(t[::2], x[::2]) for t, x in new], [t[1::2] for t, _ in new]
    truth = np.concatenate([x[1::2] for _, x in new])
    for level in (0.5, 0.8):
        lower, upper = (np.concatenate(end)[:, 0] for end in fitted.predict_interval(seen, asked, level))
        assert np.mean((lower <= truth) & (truth <= upper)) > level - 0.1


def test_a_likelihood_that_is_none_is_refused_before_training(interpolator, tmp_path):
    for given in ("gauss", 3, {"kind": "poisson"}):
        with pytest.raises((ValueError, TypeError), match="likelihood"):
            romae.RoMAEInterpolator(**QUICK, likelihood=given).fit(waves(4))
        with pytest.raises((ValueError, TypeError), match="likelihood"):
            romae.RoMAERegressor(**QUICK, likelihood=given).fit(waves(4), range(4))
    interpolator.save(tmp_path / "saved")
    with refused(ValueError, "keeps its own likelihood", "pretrain_epochs"):
        romae.RoMAEInterpolator(pretrained=tmp_path / "saved", likelihood="normal", device="cpu").fit(waves(4))
    ready = romae.RoMAEInterpolator(pretrained=tmp_path / "saved", device="cpu").fit(waves(4))
    assert len(ready.predict_interval(waves(4), TIMES)) == 2

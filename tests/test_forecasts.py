"""Forecasts: times that follow from the samples, what is refused and told, and the estimator."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import romae
from messages import refused, warned
from romae.estimators.forecasting import skill
from romae.inference import baselines
from romae.inference.forecasts import Seen, ends_of, times_up_to

SIZE = {"width": 16, "heads": 2, "depth": 1}
QUICK = {"size": SIZE, "pretrain_epochs": 1, "random_state": 0, "device": "cpu", "early_stopping": False}


def series(n: int = 16, seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    random = np.random.default_rng(seed)
    made = []
    for _ in range(n):
        times = np.sort(random.uniform(0, 20, 24))
        made.append((times, np.sin(times * random.uniform(0.8, 1.2) + random.uniform(0, 6))))
    return made


def dated(n: int = 12, channels: tuple[str, ...] = ("a", "b", "plan")) -> pd.DataFrame:
    """A table of two channels and a plan that is known a day longer than they are, hourly from midnight."""
    random, rows = np.random.default_rng(0), []
    for i in range(n):
        start = pd.Timestamp("2024-03-01") + pd.Timedelta(days=i)
        for hour in range(72):
            for name in channels:
                if name == "plan" or hour < 48:
                    rows.append((i, start + pd.Timedelta(hours=hour), name, random.normal()))
    return pd.DataFrame(rows, columns=["id", "time", "what", "value"])


COLUMNS = {"id": "id", "time": "time", "channel": "what", "values": "value"}


@pytest.fixture(scope="module")
def task() -> romae.MaskedReconstruction:
    return romae.RoMAEForecaster(5.0, likelihood="normal", **QUICK).fit(series()).task_


@pytest.fixture(scope="module")
def dated_forecaster() -> romae.RoMAEForecaster:
    return romae.RoMAEForecaster("12h", known="plan", columns=COLUMNS, **QUICK).fit(dated())


def test_times_follow_from_the_sample():
    seen = Seen(last=np.array([10.0, 4.0, 7.0, np.nan]), step=np.array([1.0, 0.25, np.nan, np.nan]))
    with warned(UserWarning, "1 of 4 samples"):
        times = times_up_to(seen, seen.last + 2.0)
    expected = [[11, 12], np.arange(4.25, 6.1, 0.25), [7.625, 8.25, 8.875], []]  # 0.625 is the median of the others
    for x, y in zip(times, expected, strict=True):
        np.testing.assert_allclose(x, y)
    with warned(UserWarning, "2 of 4 samples"):
        at_six = times_up_to(seen, np.full(4, 8.0), 3.0)
    np.testing.assert_allclose(at_six[1], [7.0])
    np.testing.assert_allclose(at_six[2], [8.0])  # the end, where no step fits


def test_until_is_a_moment_or_a_length_of_time():
    seen = Seen(last=np.array([10.0, 30.0]), step=np.ones(2))
    numbers, dates = romae.Schema(), romae.Schema(time_unit="hour")
    durations = romae.Schema(time_unit="hour", durations=True)
    assert ends_of(seen, 40, numbers).tolist() == [40.0, 40.0]
    assert ends_of(seen, "+5", numbers).tolist() == [15.0, 35.0]
    for until in ("24h", "+24h", "1 day", pd.Timedelta(days=1), np.timedelta64(1, "D")):
        assert ends_of(seen, until, dates).tolist() == [34.0, 54.0]
    for until in ("1970-01-03", pd.Timestamp("1970-01-03"), "3 January 1970"):
        assert ends_of(seen, until, dates).tolist() == [48.0, 48.0]
    assert ends_of(seen, "40:00", durations).tolist() == ends_of(seen, "40h", durations).tolist() == [40.0, 40.0]
    assert ends_of(seen, "+1h", durations).tolist() == [11.0, 31.0]
    for until, schema in ((40, dates), ("soon", dates), ("24h", numbers), ("+0", numbers)):
        with refused((ValueError, TypeError), "until"):
            ends_of(seen, until, schema)


def test_what_comes_after_the_last_visible_time_is_what_interpolate_says(task):
    samples = romae.from_arrays([y[:, None] for _, y in series(3)], times=[t for t, _ in series(3)])
    ahead = romae.forecast(task, samples, until="+2", step=0.5)
    asked = [sample.positions[-1, 0].item() + np.array([0.5, 1.0, 1.5, 2.0]) for sample in samples]
    values = romae.interpolate(task, samples, asked)
    for one, times, expected in zip(ahead, asked, values, strict=True):
        np.testing.assert_allclose(one.times, times)
        np.testing.assert_allclose(one.values, expected)
    sure = romae.forecast(task, samples, positions=[30.0], returns="distribution")
    assert sure[0].values.shape == (1, 1) and sure[0].values.std() > 0


def test_what_is_hidden_is_not_seen(task):
    """Values after the cut change nothing, and the forecast begins at the cut."""
    samples = list(romae.from_arrays([y[:, None] for _, y in series(4)], times=[t for t, _ in series(4)]))
    masked = romae.hide(samples, romae.Future(after=12.0))
    changed = romae.hide(
        [romae.Sample(s.values + 9 * (s.positions > 12), s.positions) for s in samples], romae.Future(after=12.0)
    )
    a, b = (romae.forecast(task, x, until="+3") for x in (masked, changed))
    for x, y, sample in zip(a, b, masked, strict=True):
        assert x.times[0] > sample.positions[~sample.hidden].max() and np.array_equal(x.values, y.values)
        assert x.times[0] < 13.5


def test_questions_beyond_the_horizon_are_told_once_with_counts(task):
    samples = romae.from_arrays([y[:, None] for _, y in series(2)], times=[t for t, _ in series(2)])
    last = [float(sample.positions.max()) for sample in samples]
    with warned(UserWarning, "2 of 4 times", "5 in training"):
        romae.forecast(task, samples, positions=[[x + 4.0, x + 6.0] for x in last])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        romae.forecast(task, samples, until="+5")
    unlike = romae.RoMAEInterpolator(**QUICK).fit(series()).task_
    with warned(UserWarning, "UniformTokens", "masking=Future"):
        romae.forecast(unlike, samples, until="+2")


def test_what_is_no_question_is_refused(task):
    samples = romae.from_arrays([y[:, None] for _, y in series(2)], times=[t for t, _ in series(2)], ids=["x", "y"])
    with refused(ValueError, "until=", "positions="):
        romae.forecast(task, samples)
    with refused(ValueError, "step="):
        romae.forecast(task, samples, positions=[30.0], step=1.0)
    with refused(ValueError, "'x'", "interpolate"):
        romae.forecast(task, samples, positions=[3.0])
    with refused(ValueError, "above 0"):
        romae.forecast(task, samples, until="+2", step=-1.0)


def test_channels_that_are_known_ahead_are_used_and_not_forecast(dated_forecaster):
    table = dated(2)
    ahead = dated_forecaster.predict(table)
    assert list(ahead.columns) == ["a", "b"] and len(ahead) == 24
    first = ahead.loc[0].index
    assert first[0] == pd.Timestamp("2024-03-03 00:00") and first[-1] == pd.Timestamp("2024-03-03 11:00")
    is_ahead = (table.what == "plan") & (table.time >= pd.Timestamp("2024-03-03 00:00"))
    changed = dated_forecaster.predict(table.assign(value=table.value + 3 * is_ahead))
    assert not np.allclose(changed, ahead)
    samples = romae.from_table(table, **COLUMNS)
    named = romae.forecast(dated_forecaster.task_, samples, until="2024-03-03 12:00", channels=["b"])
    np.testing.assert_allclose(named[0].values[:12, 0], ahead.loc[0]["b"])


def test_answers_have_the_form_of_the_questions(tmp_path):
    X = series()
    forecaster = romae.RoMAEForecaster(4.0, likelihood="normal", weights="channel", **QUICK).fit(X)
    pairs = forecaster.predict(X)
    assert forecaster.horizon_ == 4.0 and len(pairs) == len(X)
    for (times, values), (seen, _) in zip(pairs, X, strict=True):
        assert seen.max() < times[0] and times[-1] <= seen.max() + 4.0 + 1e-6 and values.shape == (len(times), 1)
    shared = forecaster.predict(X, times=[20.5, 21.0])
    assert shared.shape == (16, 2, 1)
    mean, std = forecaster.predict(X, times=[20.5, 21.0], return_std=True)
    lower, upper = forecaster.predict_interval(X, [20.5, 21.0], level=0.8)
    assert (std > 0).all() and (lower < upper).all()
    np.testing.assert_allclose((lower + upper) / 2, mean, atol=1e-6)
    np.testing.assert_allclose(mean, shared)
    forecaster.save(tmp_path / "forecaster")
    again = romae.RoMAEForecaster.load(tmp_path / "forecaster")
    np.testing.assert_array_equal(again.predict(X, times=[21.0]), forecaster.predict(X, times=[21.0]))
    assert again.horizon_ == 4.0 and clone(again).get_params()["weights"] == "channel"
    assert forecaster.score(X) == again.score(X) < 1


def test_a_fit_repeats_and_time_shifts_change_nothing():
    X, times = series(), np.array([20.5, 22.0])
    one, two = (romae.RoMAEForecaster(**QUICK).fit(X) for _ in range(2))
    assert one.histories_ == two.histories_ and one.horizon_ == pytest.approx(5.0, abs=1.0)
    later = [(t + 1000.0, y) for t, y in X]
    np.testing.assert_allclose(one.predict(later, times + 1000.0), one.predict(X, times), atol=1e-4)


def test_skill_is_one_for_the_truth_and_none_for_the_reference():
    random = np.random.default_rng(0)
    truth, last = random.normal(size=(40, 1)), random.normal(size=(40, 1))
    channel = np.repeat([0, 1], 20)
    assert skill(truth, truth, last, channel) == 1 and skill(truth, last, last, channel) == 0
    with refused(ValueError, "last value"):
        skill(truth, last, truth, channel)


def test_settings_that_contradict_each_other_are_refused():
    for settings, word in (
        ({"horizon": -1.0}, "above 0"),
        ({"known": ("a",), "masking": romae.Future(share=0.5)}, "known="),
        ({"horizon": "2h"}, "2h"),
    ):
        with refused((ValueError, TypeError), word):
            romae.RoMAEForecaster(**QUICK, **settings).fit(series())
    with refused(ValueError, "likelihood"):
        romae.RoMAEForecaster(5.0, **QUICK).fit(series()).predict(series(), return_std=True)


@pytest.mark.parametrize("estimator", [romae.RoMAEInterpolator, romae.RoMAEEmbedder])
def test_other_estimators_take_these_masks(estimator):
    mixed = {
        "kind": "mixed",
        "parts": [[{"kind": "tokens", "ratio": 0.5}, 1.0], [{"kind": "future", "share": [0.3, 0.9]}, 1.0]],
    }
    fitted = estimator(masking=mixed, **QUICK).fit(series())
    assert isinstance(fitted.task_.masking, romae.Mixed)


def test_baselines_that_look_ahead():
    times, values = np.arange(8.0), np.stack([2 + 3 * np.arange(8.0), np.tile([0.0, 1.0, 5.0, 1.0], 2)], axis=1)
    np.testing.assert_allclose(baselines.trend(times, values, np.array([10.0]))[:, 0], [32.0])
    np.testing.assert_allclose(baselines.trend(times[:1], values[:1], np.array([3.0])), values[:1])
    ahead = baselines.seasonal(4.0)(times, values, np.array([8.0, 9.0, 10.0, 14.0]))
    np.testing.assert_allclose(ahead[:, 1], [0.0, 1.0, 5.0, 5.0])
    with refused(ValueError, "period"):
        baselines.seasonal(0.0)


def test_oscillations_are_forecast_better_than_by_the_last_value():
    """A known answer: sines of one frequency and any phase, of which the last value knows little."""
    random, X = np.random.default_rng(0), []
    for _ in range(80):
        times = np.sort(random.uniform(0, 12, 12))
        X.append((times, np.sin(times + random.uniform(0, 2 * np.pi))))
    how = {"size": SIZE, "pretrain_epochs": 20, "batch_size": 16, "lr": 5e-3, "early_stopping": False}
    forecaster = romae.RoMAEForecaster(3.0, random_state=0, device="cpu", **how)
    assert forecaster.fit(X[:64]).score(X[64:]) > 0.5

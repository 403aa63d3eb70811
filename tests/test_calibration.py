"""Calibration of predicted numbers: intervals hold what they promise, in any units and for every likelihood."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

import romae
from messages import assert_says, refused
from romae.cli.main import main
from romae.config import from_dict, to_dict
from romae.data.schema import SampleSet, Schema
from romae.inference.calibrated_models import CalibrateConfig, calibrate_run, calibrate_table
from romae.inference.calibration import conformal_of, held_out_distributions
from romae.inference.distributions import Distribution, joined
from romae.inference.predictions import places_in
from romae.inference.reliability import cross_fitted, reliability
from romae.model.calibration import Calibration
from romae.model.conformal import FEWEST, LEVELS, Conformal, fitted_levels
from romae.tokens.layout import Layout
from romae.tokens.tokens import Tokens
from romae.training.tables import Trained
from test_distributions import ALL, BENT, MOVED, NAMES, PLAIN, drawn, made

SIZE = romae.Size(width=16, heads=2, depth=1)
SCHEMA = Schema(time="day", channel="band", channels=("g", "r"))


def ends(calibration, level, place=0.0):
    """The scores of the model between which the central interval of a level lies."""
    half = norm.ppf((1 + level) / 2)
    return calibration.to_model(np.array([-half, half]), np.full(2, place))


def wrong(n=5_000, seed=0):
    """A calibration of a model whose deviations are too small by 1.7, and that is off by 0.1."""
    return fitted_levels(np.random.default_rng(seed).normal(0.1, 1.7, n), np.arange(n))


# The promise


@pytest.mark.parametrize(("n", "level"), [(20, 0.9), (20, 0.5), (45, 0.95), (33, 0.8)])
def test_intervals_hold_at_least_what_they_promise_of_new_samples_however_few_there_were(n, level):
    random, coverage = np.random.default_rng(n), []
    for _ in range(300):
        low, high = ends(fitted_levels(random.normal(0.3, 2.0, n), np.arange(n)), level)
        coverage.append(norm.cdf(high, 0.3, 2.0) - norm.cdf(low, 0.3, 2.0))
    error = np.std(coverage) / np.sqrt(len(coverage))
    assert np.mean(coverage) > level - 3 * error  # without the sample that is added, 0.81 in place of 0.905
    assert np.mean(coverage) < level + 2 / n  # and no more than two samples could say


def test_samples_count_once_and_share_what_their_numbers_have_in_common():
    random, coverage = np.random.default_rng(0), []

    def samples(n):
        """Long samples spread more, and the numbers of a sample go together."""
        lengths = random.choice([1, 30], size=n)
        spread = np.where(lengths == 1, 0.5, 3.0)
        scores = [spread[i] * (random.normal() + 0.3 * random.normal(size=lengths[i])) for i in range(n)]
        return np.concatenate(scores), np.repeat(np.arange(n), lengths)

    fresh, of_sample = samples(3_000)
    for _ in range(60):
        low, high = ends(fitted_levels(*samples(60)), 0.8)
        within = (low <= fresh) & (fresh <= high)
        coverage.append(np.mean(np.bincount(of_sample, within) / np.bincount(of_sample)))
    assert 0.8 - 0.015 < np.mean(coverage) < 0.86  # as if all numbers were one crowd, 0.88


def test_a_calibration_of_what_is_calibrated_changes_next_to_nothing():
    random, first = np.random.default_rng(1), wrong()
    scores, _ = first.from_model(random.normal(0.1, 1.7, 5_000), np.zeros(5_000))
    again = fitted_levels(scores, np.arange(5_000))
    inner = slice(2, -2)
    assert_allclose(again.scores[0][inner], norm.ppf(LEVELS)[inner], atol=0.12)
    assert abs(ends(wrong(), 0.9)[1] - 2.9) < 0.15, "which the first one did not"


def test_the_weights_of_samples_count_and_their_unit_does_not():
    random = np.random.default_rng(2)
    scores, sample = random.normal(size=400), np.arange(400)
    once, twice = (fitted_levels(scores, sample, weights=np.full(400, weight)) for weight in (1.0, 2.5))
    assert_allclose(once.scores, twice.scores)
    far = np.concatenate([scores, random.normal(9, 1, 400)])
    apart = fitted_levels(far, np.arange(800), weights=np.repeat([1.0, 0.0], 400))
    assert apart == fitted_levels(scores, sample)


def test_scores_far_out_and_atoms_give_maps_that_rise():
    random = np.random.default_rng(3)
    scores = np.where(random.random(300) < 0.4, 0.25, random.standard_cauchy(300) * 100)
    found = fitted_levels(scores, np.arange(300))
    assert (np.diff(found.scores[0]) > 0).all()
    at = np.linspace(-6, 6, 101)
    back, slope = found.from_model(found.to_model(at, np.zeros(101)), np.zeros(101))
    assert_allclose(back, at, atol=1e-9)
    assert (slope > 0).all() and np.isfinite(slope).all()
    low, high = ends(found, 0.9)
    assert ((scores >= low) & (scores <= high)).mean() >= 0.9


# Groups


def test_channels_and_distances_have_maps_of_their_own_where_there_are_enough_samples():
    random = np.random.default_rng(4)
    channel = np.repeat([0.0, 1.0, 2.0], [300, 300, 5])
    scores, sample = random.normal(size=605) * np.array([1.0, 3.0, 9.0])[channel.astype(int)], np.arange(605)
    by_channel = fitted_levels(scores, sample, by="channel", places=channel)
    assert by_channel.groups == (1, 2, 0) and by_channel.n_samples == (605, 300, 300)
    assert ends(by_channel, 0.9, 1.0)[1] > 2.2 * ends(by_channel, 0.9, 0.0)[1]
    for few in (2.0, 7.0):  # too few, and never seen
        assert_array_equal(ends(by_channel, 0.9, few), ends(fitted_levels(scores, sample), 0.9))
    distance = np.where(random.random(605) < 0.1, np.inf, random.uniform(0, 4, 605))
    by_distance = fitted_levels(scores * (1 + np.minimum(distance, 9)), sample, by="distance", places=distance)
    assert len(by_distance.groups) == len(by_distance.edges) + 1 == 5
    widths = [np.ptp(ends(by_distance, 0.5, place)) for place in (0.1, 3.9, np.inf)]
    assert widths[0] < widths[1] < widths[2]
    assert fitted_levels(scores, sample, by="distance", places=np.zeros(605)).by == "global"
    lonely = np.where(np.arange(605) < 3, np.inf, random.uniform(0, 4, 605))
    with_lonely = fitted_levels(scores, sample, by="distance", places=lonely)
    assert len(with_lonely.groups) == 5 and with_lonely.groups[-1] == 0, "three of them undo no other group"


def test_the_distance_is_to_what_is_seen_of_the_same_sample_and_channel():
    config = romae.ModelConfig(channels=1, position_dims=2, kinds=2, encoder=SIZE, decoder=SIZE, cls=False)
    task = romae.MaskedReconstruction(config, likelihood="normal")
    seen = torch.tensor([[0.0, 0], [4.0, 0], [1.0, 1], [7.0, 0]])
    visible = Tokens(torch.zeros(4, 1), seen, Layout.of([3, 1]))
    asked = torch.tensor([[1.0, 0], [3.5, 0], [3.5, 1], [1.0, 0], [1.0, 1]])
    found = places_in(task, "distance", visible, asked, Layout.of([3, 2]))
    assert_allclose(found[:, 0], [1.0, 0.5, 2.5, 6.0, np.inf])
    assert_array_equal(places_in(task, "channel", visible, asked, Layout.of([3, 2]))[:, 0], [0, 0, 1, 0, 1])


# Distributions


@pytest.mark.parametrize("units", [PLAIN, MOVED, BENT], ids=["plain", "moved", "bent"])
@pytest.mark.parametrize("likelihood", ALL, ids=NAMES)
def test_all_that_a_calibrated_distribution_tells_belongs_together(likelihood, units):
    learned = made(likelihood, units, shape=(3,))
    one = learned.with_calibration(wrong())
    levels = np.array([0.001, 0.02, 0.31, 0.5, 0.77, 0.985, 0.999])
    values = np.stack([one.quantile(level) for level in levels])
    assert (np.diff(values, axis=0) > 0).all()
    for level, x in zip(levels, values, strict=True):
        assert_allclose(one.cdf(x), level, rtol=1e-6)
        assert_allclose(one.normal_score(x), norm.ppf(level), rtol=1e-5, atol=1e-6)
    for x in values[[1, 2, 4, 5]]:  # the levels at which two lines meet are others
        step = 1e-6 * learned.std()
        slope = (one.cdf(x + step) - one.cdf(x - step)) / (2 * step)
        assert_allclose(np.exp(one.log_prob(x)), slope, rtol=2e-3)
    numbers = one.sample(1_000, seed=0)
    assert (np.abs((numbers < one.quantile(0.3)).mean(0) - 0.3) < 0.06).all()
    assert_array_equal(one.mean(), learned.mean())
    assert (one.std() > learned.std()).all() and (one.crps(values[3]) > 1.2 * learned.crps(learned.median())).all()
    assert_array_equal(one.with_calibration(None).quantile(0.1), learned.quantile(0.1))
    assert_allclose(one[1:].quantile(0.2), one.quantile(0.2)[1:])
    assert "calibrated" in repr(one) and "calibrated" not in repr(learned)


@settings(max_examples=10, deadline=None)
@given(
    st.sampled_from(ALL),
    st.lists(st.floats(-40, 40), min_size=FEWEST, max_size=40),
    st.lists(st.floats(1e-9, 1 - 1e-9), min_size=2, max_size=2, unique=True),
)
def test_quantiles_rise_with_their_levels_whatever_the_calibration(likelihood, scores, levels):
    calibration = fitted_levels(np.array(scores), np.arange(len(scores)))
    one = Distribution(likelihood, drawn(likelihood, shape=(2,)), PLAIN, calibration=calibration)
    low, high = (one.quantile(level) for level in sorted(levels))
    assert np.isfinite([low, high]).all() and (low <= high).all()


@pytest.mark.parametrize("likelihood", ALL, ids=NAMES)
def test_scores_are_those_of_the_probabilities_and_do_not_end_where_these_do(likelihood):
    one = made(likelihood, MOVED, shape=(3,))
    for level in (1e-9, 0.2, 0.9, 1 - 1e-9):
        assert_allclose(one.normal_score(one.quantile(level)), norm.ppf(level), rtol=1e-5)
    far = [one.normal_score(one.mean() + side * one.std()) for side in (-1e4, -1e3, 1e3, 1e4)]
    assert np.isfinite(far).all() and (np.diff(far, axis=0) > 0).all()


# From a model


def stars(n, seed, factor=1.0, shift=0.0):
    random, samples = np.random.default_rng(seed), []
    for i in range(n):
        length = 6 + i % 5
        band = np.arange(length) % 2
        values = 2 * random.normal() + band + (0.3 + band) * random.normal(size=length)
        values = np.round(values * 64) / 64  # so that a factor of 2 and a shift by whole numbers lose nothing
        positions = np.stack([np.sort(random.uniform(0, 9, length)), band], axis=1)
        samples.append(romae.Sample((values * factor + shift)[:, None], positions, id=i))
    return SampleSet(samples, SCHEMA)


@pytest.fixture(scope="module")
def model():
    samples = stars(24, 0)
    torch.manual_seed(0)
    config = romae.ModelConfig(channels=1, position_dims=2, kinds=2, encoder=SIZE, decoder=SIZE, cls=False)
    task = romae.MaskedReconstruction(config, likelihood="normal", masking=romae.UniformTokens(ratio=0.4))
    scaling = romae.fit_scaling(samples)
    romae.train(task, samples, romae.TrainConfig(epochs=2, batch_size=8, device="cpu"), scaling=scaling, quiet=True)
    with torch.no_grad():
        task.head.linear.bias[1] -= 0.7  # half as wide as it has learned
    return task


@pytest.fixture
def task(model):
    model.calibration = None
    return model


def test_a_calibrated_model_covers_what_it_promises_and_keeps_its_mean(task):
    fresh = romae.hide(stars(300, 2), task.masking)
    before, means = reliability(task, fresh), romae.predict(task, fresh[:3])
    calibration = romae.calibrate(task, stars(200, 1), by="channel")
    assert task.calibration is calibration and calibration.groups == (1, 2)
    after = reliability(task, fresh)
    off = [np.abs(np.subtract(part.coverage, part.levels)).max() for part in (before, after)]
    assert off[1] < 0.05 < off[0]
    assert reliability(task, fresh, calibrated=False) == before
    told = romae.predict(task, fresh[:3], returns="distribution")
    for one, mean in zip(told, means, strict=True):
        assert_allclose(one.mean(), mean, rtol=1e-5)
    assert_array_equal(romae.predict(task, fresh[:3])[0], means[0])
    how = {"positions": [np.linspace(0, 9, 4)], "channels": ["g", "r"], "returns": "distribution"}
    on, off = (romae.interpolate(task, list(fresh[:1]), calibrated=now, **how)[0] for now in (True, False))
    task.calibration = None
    [learned] = romae.interpolate(task, list(fresh[:1]), **how)
    assert_array_equal(off.quantile(0.9), learned.quantile(0.9))
    half = norm.ppf(0.9)
    for channel in (0, 1):
        score = calibration.to_model(np.full(4, half), np.full(4, float(channel)))
        assert_allclose(on.quantile(0.9)[:, channel], learned.quantile(norm.cdf(score[0]))[:, channel], rtol=1e-6)


@pytest.mark.parametrize("by", ["global", "channel"])
def test_a_calibration_that_is_taken_afterwards_is_that_of_each_channel_as_well(task, by):
    fresh = romae.hide(stars(20, 2), task.masking)
    plain = romae.predict(task, fresh, returns="distribution")
    calibration = romae.calibrate(task, stars(200, 1), by=by)
    for told, learned in zip(romae.predict(task, fresh, returns="distribution"), plain, strict=True):
        assert_array_equal(learned.with_calibration(calibration).quantile(0.9), told.quantile(0.9))
        assert_array_equal(told.with_calibration(None).quantile(0.9), learned.quantile(0.9))


def test_distances_that_nobody_has_measured_are_no_zeros(task):
    [learned] = romae.predict(task, romae.hide(stars(1, 2), task.masking), returns="distribution")
    calibration = romae.calibrate(task, stars(120, 1), by="distance")
    with refused(ValueError, "distances", "task.calibration before predicting"):
        learned.with_calibration(calibration)
    bare = Distribution(learned.likelihood, learned.raw, learned.units)
    with refused(ValueError, "channels"):
        bare.with_calibration(romae.calibrate(task, stars(200, 1), by="channel"))


def test_a_sample_that_is_asked_nothing_changes_no_other(task, monkeypatch):
    romae.calibrate(task, stars(40, 1), by="global")
    monkeypatch.setattr(task, "scaling", romae.fit_scaling(stars(24, 0), values="asinh"))
    first, second = stars(2, 3)
    at = np.array([[0.5, 0.0], [3.0, 1.0]])
    alone = romae.interpolate(task, [second], [at], returns="distribution")
    nothing, same = romae.interpolate(task, [first, second], [at[:0], at], returns="distribution")
    assert_array_equal(joined([nothing, same]).quantile(0.8), alone[0].quantile(0.8).ravel())


def test_units_change_no_map_and_intervals_as_they_change_data(task):
    other = romae.MaskedReconstruction(
        task.encoder.config, likelihood="normal", masking=romae.UniformTokens(ratio=0.4)
    ).eval()
    other.load_state_dict(task.state_dict())
    other.scaling = romae.fit_scaling(stars(24, 0, factor=4.0, shift=-8.0))
    other.schema = task.schema
    one = romae.calibrate(task, stars(40, 1), by="global")
    two = romae.calibrate(other, stars(40, 1, factor=4.0, shift=-8.0), by="global")
    assert_allclose(two.scores, one.scores, rtol=1e-4, atol=1e-4)
    how = {"positions": [np.linspace(0, 9, 5)], "channels": ["r"], "returns": "distribution"}
    [first] = romae.interpolate(task, stars(1, 3), **how)
    [second] = romae.interpolate(other, stars(1, 3, factor=4.0, shift=-8.0), **how)
    assert_allclose(np.stack(second.interval(0.8)), np.stack(first.interval(0.8)) * 4 - 8, rtol=1e-3, atol=1e-3)


def test_neither_the_order_of_samples_nor_what_holds_them_changes_a_calibration(task, tmp_path):
    samples = stars(40, 1)
    romae.write_store(samples, tmp_path / "stars.arrow")
    expected = romae.calibrate(task, samples, by="channel")
    assert romae.calibrate(task, list(samples), by="channel") == expected
    assert romae.calibrate(task, romae.Store(tmp_path / "stars.arrow"), by="channel") == expected
    backwards = romae.calibrate(task, samples[::-1], by="channel")
    assert_allclose(backwards.scores, expected.scores, rtol=1e-4, atol=1e-4)
    assert romae.calibrate(task, samples, by="channel", seed=1) != expected, "other masks"


@pytest.mark.parametrize("by", ["global", "channel", "distance"])
def test_a_saved_model_answers_the_same_bit_for_bit(task, tmp_path, by):
    plain = to_dict(task.settings)
    romae.calibrate(task, stars(120, 1), by=by)
    task.save(tmp_path / by)
    again, at = romae.load(tmp_path / by), [[[0.5, 0], [3.0, 1], [8.5, 1]]]
    assert again.calibration == task.calibration and again.calibration.by == by
    answers = [
        romae.interpolate(one, stars(1, 3), at, returns="distribution")[0].interval(0.9) for one in (task, again)
    ]
    assert_array_equal(*answers)
    task.calibration = None
    assert to_dict(task.settings) == plain, "as in files of older versions"
    assert from_dict(Conformal, json.loads(json.dumps(to_dict(again.calibration)))) == again.calibration


def test_what_samples_hide_themselves_is_held_out_and_others_hide_as_in_training(task):
    samples = list(stars(5, 1))
    samples[0] = replace(samples[0], hidden=np.arange(len(samples[0])) == 2)
    lonely = romae.Sample([[0.1]], [[0.0, 1.0]], id="lonely", schema=SCHEMA)
    kept, told, truth = held_out_distributions(task, [*samples, lonely])
    assert [len(part) for part in truth] == [1, *(round(0.4 * len(sample)) for sample in samples[1:])]
    assert truth[0] == samples[0].values[2].double().numpy() and len(kept) == len(told) == 5


@pytest.mark.parametrize("per", ["sample", "token"])
def test_targets_are_calibrated_each_by_itself(per):
    random = np.random.default_rng(0)
    samples = [
        romae.Sample(
            random.normal(size=(4, 1)),
            np.arange(4.0)[:, None],
            target=random.normal(100, [1, 10], size=(2,) if per == "sample" else (4, 2)),
        )
        for _ in range(120)
    ]
    config = romae.ModelConfig(channels=1, position_dims=1, encoder=SIZE, cls=False)
    torch.manual_seed(0)
    task = romae.Regression(config, 2, per=per, likelihood="normal")
    task.scaling = romae.fit_scaling(samples, target=True)
    found = romae.calibrate(task, samples)
    assert found.groups == (1, 2) and found.n_samples == (120, 120, 120)
    after = reliability(task, samples)
    assert list(after.parts) == ["target 1", "target 2"]
    assert all(0.89 < part["coverage"][2] < 0.94 for part in after.parts.values())
    with refused(ValueError, "distance", "by='channel'"):
        romae.calibrate(task, samples, by="distance")
    with refused(ValueError, "distance"):
        task.calibration = replace(found, by="distance")


def test_parts_of_a_split_are_calibrated_together(task):
    samples = stars(40, 1)
    whole = conformal_of([(task, samples)])
    assert_allclose(conformal_of([(task, samples[:25]), (task, samples[25:])]).scores, whole.scores, rtol=1e-4)


def test_what_cannot_be_calibrated_says_why(task, without_shape_checks):
    with refused(ValueError, "20 samples", "there are 7"):
        romae.calibrate(task, stars(7, 1))
    with refused(ValueError, "'band'", "'auto', 'global', 'channel', 'distance'"):
        romae.calibrate(task, stars(40, 1), by="band")
    with refused(ValueError, "seed", "-1"):
        romae.calibrate(task, stars(40, 1), seed=-1)
    config, samples = task.encoder.config, stars(40, 1)
    for other in (romae.MaskedReconstruction(config), romae.Regression(config)):
        with refused(ValueError, "no distribution", "likelihood="):
            romae.calibrate(other, samples)
        with refused(ValueError, "no distribution", "likelihood="):
            other.calibration = wrong()
    with refused(ValueError, "targets", "sample 0"):
        romae.calibrate(romae.Regression(config, likelihood="normal"), samples)
    with refused(TypeError, "Conformal"):
        task.calibration = Calibration(bias=(0.0, 0.0))
    with refused(TypeError, "Calibration"):
        romae.Classification(config, 2).calibration = wrong()
    assert task.calibration is None
    good = wrong()
    for change, part in (
        ({"levels": good.levels[::-1]}, "levels"),
        ({"scores": (good.scores[0][:-1],)}, "scores"),
        ({"scores": ((0.0,) * len(LEVELS),)}, "rising"),
        ({"n_samples": (1, 2)}, "n_samples"),
        ({"groups": (1,)}, "groups"),
        ({"edges": (1.0,)}, "edges"),
    ):
        with refused(ValueError, part):
            replace(good, **change)


# What is shown


def test_true_distributions_have_a_flat_histogram_and_the_coverage_that_they_promise(task):
    samples, told, truth = held_out_distributions(task, stars(400, 5))
    random = np.random.default_rng(0)
    drawn_ones = [
        replace(sample, values=torch.from_numpy(np.where(sample.hidden.numpy()[:, None], 0.0, sample.values.numpy())))
        for sample in samples
    ]
    for sample, one in zip(drawn_ones, told, strict=True):  # the truth is drawn from what is predicted
        sample.values[sample.hidden] = torch.from_numpy(one.sample(1, seed=int(random.integers(2**31)))[0]).float()
    shown = reliability(task, drawn_ones)
    assert_allclose(shown.coverage, shown.levels, atol=0.035)
    assert_allclose(shown.pit, 1 / 20, atol=0.025)
    assert sum(shown.pit) == pytest.approx(1) and shown.n == 400 and list(shown.parts) == ["g", "r"]
    mean_width = np.average([part["width"] for part in shown.parts.values()], axis=0)
    assert_allclose(shown.width, mean_width, rtol=0.1)


def test_what_a_calibration_brings_is_measured_on_samples_that_it_did_not_see(task):
    before, after = cross_fitted(task, stars(200, 1), by="global")
    off = [np.abs(np.subtract(part.coverage, part.levels)).max() for part in (before, after)]
    assert off[1] < off[0] and task.calibration is None
    assert after.coverage[2] >= 0.88


def test_a_classifier_has_a_reliability_diagram():
    random = np.random.default_rng(0)
    classes = random.integers(2, size=200)
    samples = romae.from_arrays(random.normal(size=(200, 3, 1)) + classes[:, None, None], y=classes.tolist())
    config = romae.ModelConfig(channels=1, position_dims=1, encoder=SIZE)
    torch.manual_seed(0)
    task = romae.Classification(config, 2)
    romae.train(task, samples[:100], romae.TrainConfig(epochs=2, batch_size=10, lr=3e-3, device="cpu"), quiet=True)
    before = reliability(task, samples[100:])
    assert sum(before.counts) == before.n == 100 and len(before.confidence) == len(before.accuracy) <= 10
    assert before.error == pytest.approx(
        np.average(np.abs(np.subtract(before.confidence, before.accuracy)), weights=before.counts)
    )
    assert isinstance(romae.calibrate(task, samples[100:]), Calibration)
    raw, told = (romae.predict_proba(task, samples[100:], calibrated=now) for now in (False, True))
    assert np.abs(raw - told).max() > 1e-3
    assert_array_equal(romae.predict(task, samples[100:], calibrated=False), raw.argmax(1))
    assert reliability(task, samples[100:]).log_loss < before.log_loss
    assert reliability(task, samples[100:], calibrated=False) == before
    assert [part.n for part in cross_fitted(task, samples[100:])] == [100, 100]


# From tables and runs


def table_of(samples):
    return romae.to_table(samples, [sample.values.numpy() for sample in samples], SCHEMA, columns=["value"])


def test_a_table_calibrates_a_model_and_a_run_its_own(task, tmp_path):
    task.save(tmp_path / "best")
    made_of = calibrate_table(CalibrateConfig(by="global", device="cpu"), table_of(stars(60, 1)), tmp_path / "best")
    assert made_of.n == 60 and made_of.calibration.n_samples == (60,)
    assert made_of.after.coverage[2] > 0.85
    trained = Trained(tmp_path / "best", task, None, 24, stars(60, 1), None)
    found = calibrate_run(trained, device="cpu")
    assert found == task.calibration == romae.load(tmp_path / "best").calibration
    assert_allclose(found.scores[0], made_of.calibration.scores[0], atol=0.3)
    few = trained._replace(validation=stars(19, 1))
    assert calibrate_run(few, device="cpu") is None
    assert calibrate_run(trained._replace(validation=None), device="cpu") is None


def test_the_command_writes_a_calibrated_model_and_says_what_it_brings(
    task, tmp_path, monkeypatch, capsys, without_shape_checks
):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["romae", "calibrate", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        return stopped.value.code or 0, *capsys.readouterr()

    monkeypatch.chdir(tmp_path)
    task.save("model")
    table_of(stars(60, 1)).to_csv("stars.csv", index=False)
    code, out, _ = run("stars.csv", "--model", "model", "--out", "calibrated", "--by", "distance", "--set=device=cpu")
    assert code == 0
    assert_says(out, "60 ids", "coverage before", "width after", "90%", "CRPS")
    assert romae.load("calibrated").calibration.by == "distance" and romae.load("model").calibration is None
    code, out, _ = run("stars.csv", "--model", "model", "--out", "calibrated", "--force", "--json", "--set=device=cpu")
    summary = json.loads(out)
    assert summary["ids"] == 60 and summary["before"]["levels"] == [0.5, 0.8, 0.9, 0.95]
    assert set(summary["after"]["parts"]) == {"g", "r"} and romae.load("calibrated").calibration.by == "global"
    for out, parts in (("calibrated", ["--force"]), ("model", ["model that is read"])):
        code, _, err = run("stars.csv", "--model", "model", "--out", out)
        assert code == 2
        assert_says(err, *parts)
    assert run("stars.csv", "--model", "model", "--out", "new", "--by", "band", "--set=device=cpu")[0] == 2
    assert not Path("new").exists()

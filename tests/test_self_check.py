"""The errors of a model at values that are hidden for it: laws that hold for any model, and known answers."""

from functools import partial

import numpy as np
import pytest

import romae
from messages import assert_says, refused
from romae.inference.distributions import Distribution, Units
from romae.inference.self_check import MOST_STRETCHES, held_out_score
from romae.inference.zero import answers
from romae.model.likelihoods import LOG_RANGE, Normal
from test_zero import task  # noqa: F401


def waves(n=12, length=40, n_channels=2, noise=0.0):
    random = np.random.default_rng(0)
    times = [np.sort(random.uniform(0, 20, length)) for _ in range(n)]
    phases = np.arange(n_channels)
    return romae.from_arrays(
        [np.sin(t[:, None] + phases) + noise * random.normal(size=(length, n_channels)) for t in times], times=times
    )


def truth_of(samples, positions):
    """A model that knows the waves: whoever sees hidden tokens could not do better."""
    n_channels = samples[0].values.shape[1]
    return [np.sin(x[:, :1] + np.arange(n_channels)) for x in positions]


def normal(mean, deviation):
    raw = np.stack([mean, np.full(mean.shape, LOG_RANGE * np.arctanh(np.log(deviation) / LOG_RANGE))], -1)
    one, zero = np.ones(()), np.zeros(())
    return Distribution(Normal(), raw, Units(one, zero, one, zero))


@pytest.mark.parametrize("holes", ["scattered", "ahead"])
def test_a_model_that_knows_the_truth_has_no_error_and_is_best(holes):
    score = held_out_score(truth_of, waves(), holes=holes)
    assert score.model.mae < 1e-6 and score.best is score.model and score.model.coverage is None
    assert all(other.mae > 0.1 for other in score.methods[1:])
    assert_says(score.verdict(), "best here", "beside")


def test_a_model_that_loses_is_told_so():
    score = held_out_score(lambda samples, positions: [np.full((len(x), 2), 9.0) for x in positions], waves())
    assert score.best.method == "linear interpolation" and score.model.mae > 5
    assert_says(score.verdict(), "linear interpolation is best", "not the model")
    assert score.to_dict()["best"] == "linear interpolation"


def test_what_is_hidden_is_a_fifth_of_each_channel_and_is_hidden_from_the_model():
    shown = []

    def look(samples, positions):
        shown.extend(zip(samples, positions, strict=True))
        return truth_of(samples, positions)

    samples = waves()
    score = held_out_score(look, samples)
    assert score.n_values == 12 * 8 * 3 * 2 and score.n_series == 12  # three times, since they are few
    for sample, asked in shown:
        assert np.array_equal(sample.positions[sample.hidden][:, 0].numpy(), asked[:, 0])
    shown.clear()
    held_out_score(look, samples, holes="ahead")
    assert [len(asked) for _, asked in shown[:12]] == [8] * 12
    for sample, asked in shown:
        assert asked.min() > sample.positions[~sample.hidden].max()


def test_a_seed_repeats_the_score_and_another_hides_other_values():
    first, second, other = (held_out_score(truth_of, waves(noise=0.3), seed=seed) for seed in (0, 0, 1))
    assert first == second != other


def test_errors_are_in_spreads_and_do_not_change_with_units():
    def scaled(gain):
        samples = [romae.Sample(s.values * gain, s.positions, schema=s.schema) for s in waves(noise=0.3, n_channels=1)]
        return held_out_score(lambda s, x: [gain * y for y in truth_of(s, x)], samples)

    one, thousand = scaled(1.0), scaled(1000.0)
    assert thousand.model.mae == pytest.approx(one.model.mae, rel=1e-4)
    assert thousand.spread == pytest.approx(1000 * one.spread, rel=1e-4)
    row = thousand.rows()[0]
    assert row[f"MAE of {thousand.channel}"] == pytest.approx(thousand.model.mae * thousand.spread)


def test_scores_of_distributions_are_those_that_noise_has():
    noise = 0.3
    score = held_out_score(
        lambda samples, positions: [normal(x, noise) for x in truth_of(samples, positions)],
        waves(n=60, noise=noise, n_channels=1),
        level=0.5,
    )
    assert score.model.coverage == pytest.approx(0.5, abs=0.06)
    expected = noise / np.sqrt(np.pi) / score.spread  # the CRPS of a normal distribution that is true
    assert score.model.crps == pytest.approx(expected, rel=0.1)
    assert_says(score.verdict(), "inside its intervals")


def test_long_series_and_many_are_judged_in_part():
    counts = []

    def count(samples, positions):
        counts.append((len(samples), max(map(len, samples)), sum(map(len, positions))))
        return truth_of(samples, positions)

    held_out_score(count, waves(n=200, length=20, n_channels=1))
    held_out_score(count, waves(n=1, length=20_000, n_channels=1))
    assert counts[0] == (64, 20, 256) and counts[1][0] == MOST_STRETCHES
    assert counts[1][1] <= 512 and counts[1][2] == 2_000


@pytest.mark.parametrize("holes", ["scattered", "ahead"])
def test_small_tables_are_judged_several_times_over_and_few_values_are_told(holes):
    single = held_out_score(truth_of, waves(n=1, length=20, n_channels=1), holes=holes)
    assert single.n_series == 1 and 10 < single.n_values <= 20
    assert_says(single.verdict(), "few values")


def test_where_nothing_can_be_hidden_there_is_no_score():
    constant = romae.from_arrays(np.ones((4, 9, 1)))
    assert held_out_score(truth_of, constant) is None
    assert held_out_score(truth_of, waves(length=2)) is None


def test_series_that_lack_a_channel_and_static_facts_are_no_trouble(task):  # noqa: F811
    import pandas as pd

    random = np.random.default_rng(0)
    table = pd.DataFrame({"id": np.repeat([1, 2, 3], 10), "time": np.tile(np.arange(10.0), 3)})
    table["a"], table["b"] = random.normal(size=(2, 30))
    table.loc[table.id == 2, "b"] = np.nan
    samples = romae.from_table(table, id="id", time="time", values=["a", "b"], tokens="scalars")
    for holes in ("scattered", "ahead"):
        score = held_out_score(partial(answers, task), samples, holes=holes)
        assert score.n_values >= 25 and 0 <= score.model.coverage <= 1
    table["age"] = table.id.astype(float)
    facts = romae.from_table(table, id="id", time="time", values=["a", "b"], static="age")

    def never_of_facts(shown, positions):
        assert all((x[:, 1] < 2).all() for x in positions)
        return [np.zeros((len(x), 1)) for x in positions]

    assert held_out_score(never_of_facts, facts).n_values == 50


def test_a_trained_task_is_asked_as_it_answers():
    samples = waves(n=8)
    size = romae.Size(width=8, heads=2, depth=1)
    for likelihood in (None, "normal"):
        config = romae.ModelConfig(channels=2, position_dims=1, encoder=size, decoder=size)
        own = romae.MaskedReconstruction(config, likelihood=likelihood)
        settings = romae.TrainConfig(epochs=1, batch_size=8, device="cpu")
        romae.train(own, samples, settings, scaling=romae.fit_scaling(samples, origin="first"), quiet=True)
        score = held_out_score(own, samples)
        assert np.isfinite(score.model.crps) and (score.model.coverage is None) == (likelihood is None)


def test_shares_and_levels_that_are_none_are_refused():
    for changes in ({"share": 0.0}, {"level": 1.0}):
        with refused(ValueError, "above 0 and below", *changes):
            held_out_score(truth_of, waves(), **changes)

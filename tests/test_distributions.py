"""Distributions of predictions: those of the books, in any units, through any scaling."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import stats

import romae
from messages import refused
from romae.data.schema import SampleSet, Schema
from romae.inference.distributions import Distribution, Units
from romae.model.conformal import Conformal
from romae.model.likelihoods import Mixture, Normal, Quantiles, Student, scale_of

ALL = [Normal(), Student(), Mixture(n=3), Quantiles(n=19)]
NAMES = [one.kind for one in ALL]


def units(gain=1.0, level=0.0, scale=1.0, centre=0.0, method="none"):
    return Units(*(np.array(part) for part in (gain, level, scale, centre)), method)


PLAIN, MOVED = units(), units(gain=2.0, level=0.5, scale=10.0, centre=-3.0)
BENT = units(gain=2.0, level=0.5, scale=10.0, centre=-3.0, method="robust-asinh")


def drawn(likelihood, shape=(4, 2), seed=0):
    return np.random.default_rng(seed).normal(0, 0.4, (*shape, likelihood.n_parameters))


def made(likelihood, given=PLAIN, **more):
    return Distribution(likelihood, drawn(likelihood, **more), given)


def test_a_normal_and_a_student_are_those_of_the_books():
    for likelihood, book in ((Normal(), lambda raw, m, s: stats.norm(m, s)), (Student(), _student)):
        one = made(likelihood, MOVED)
        raw = torch.from_numpy(one.raw)
        centre, scale = (raw[..., 0].numpy() / 2 + 0.5) * 10 - 3, scale_of(raw[..., 1]).numpy() * 5
        true, x = book(raw, centre, scale), centre + scale * np.array([-2.0, 0.3])
        assert_allclose(one.mean(), true.mean())
        assert_allclose(one.std(), true.std())
        assert_allclose(one.cdf(x), true.cdf(x))
        assert_allclose(one.log_prob(x), true.logpdf(x))
        assert_allclose(one.quantile(0.2), true.ppf(0.2))
        assert_allclose(np.stack(one.interval(0.8)), np.stack(true.interval(0.8)))


def _student(raw, centre, scale):
    return stats.t(Student().freedom(raw).numpy(), centre, scale)


def test_the_score_of_a_normal_is_that_of_the_formula():
    one, x = made(Normal(), MOVED), np.linspace(-9, 9, 8).reshape(4, 2)
    z, spread = (x - one.mean()) / one.std(), one.std()
    formula = spread * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi))
    assert_allclose(one.crps(x), formula, rtol=1e-12)


@pytest.mark.parametrize("likelihood", ALL, ids=NAMES)
def test_a_score_is_the_squared_distance_of_the_probabilities(likelihood):
    one = made(likelihood, MOVED, shape=(2,))
    x, step = one.mean() + one.std() * np.array([-1.2, 0.4]), np.linspace(0, 60, 20_001)[:, None] * one.std()
    wide = Distribution(likelihood, np.broadcast_to(one.raw, (*step.shape, one.raw.shape[-1])), one.units)
    below, above = wide.cdf(x - step) ** 2, (1 - wide.cdf(x + step)) ** 2
    distance = np.trapezoid(below + above, step, axis=0)
    assert_allclose(one.crps(x), distance, rtol=0.005 if likelihood.kind == "quantiles" else 1e-5)


@pytest.mark.parametrize("given_", [PLAIN, MOVED, BENT], ids=["plain", "moved", "bent"])
@pytest.mark.parametrize("likelihood", ALL, ids=NAMES)
def test_all_that_is_told_belongs_to_one_distribution(likelihood, given_):
    one = made(likelihood, given_)
    levels = np.array([0.001, 0.02, 0.31, 0.5, 0.77, 0.99, 0.999])
    values = np.stack([one.quantile(level) for level in levels])
    assert (np.diff(values, axis=0) > 0).all()
    for level, x in zip(levels, values, strict=True):
        assert_allclose(one.cdf(x), level, rtol=1e-6)
    assert_allclose(one.median(), values[3])
    for x in values[[1, 2, 4, 5]]:  # a density is the slope of the probability; at the median two lines may meet
        step = 1e-6 * one.std()
        slope = (one.cdf(x + step) - one.cdf(x - step)) / (2 * step)
        assert_allclose(np.exp(one.log_prob(x)), slope, rtol=2e-3)
    numbers = one.sample(2_000, seed=0)
    if likelihood.kind != "student" or given_ is not BENT:  # whose bent tails have hardly a mean
        assert (np.abs(numbers.mean(0) - one.mean()) < 6 * one.std() / np.sqrt(2_000)).all()
    assert (np.abs((numbers < one.quantile(0.3)).mean(0) - 0.3) < 0.05).all()
    np.testing.assert_array_equal(numbers, one.sample(2_000, seed=0))


@settings(max_examples=10, deadline=None)
@given(
    st.sampled_from(ALL),
    st.integers(0, 99),
    st.floats(-5, 5),
    st.floats(0.01, 100),
    st.sampled_from(["none", "asinh", "robust-asinh"]),
)
def test_a_shift_and_a_factor_of_the_units_change_nothing_else(likelihood, seed, shift, factor, method):
    one = made(likelihood, units(gain=1.5, level=0.2, method=method), seed=seed)
    other = made(likelihood, units(gain=1.5, level=0.2, scale=factor, centre=shift, method=method), seed=seed)
    for ask in (Distribution.mean, Distribution.median, lambda of: of.quantile(0.1), lambda of: of.interval(0.5)[1]):
        assert_allclose(ask(other), ask(one) * factor + shift, rtol=1e-7, atol=1e-7 * factor)
    assert_allclose(other.std(), one.std() * factor, rtol=1e-7)
    x = one.quantile(0.37)
    assert_allclose(other.log_prob(x * factor + shift), one.log_prob(x) - np.log(factor), rtol=1e-6, atol=1e-6)
    assert_allclose(other.crps(x * factor + shift), one.crps(x) * factor, rtol=1e-6)


def test_a_part_is_the_distribution_of_that_part():
    gain = np.linspace(1, 2, 8).reshape(4, 2)
    one = Distribution(Mixture(n=3), drawn(Mixture(n=3)), Units(gain, gain, gain, gain, "asinh"))
    assert_allclose(one[1:3, 0].quantile(0.9), one.quantile(0.9)[1:3, 0])
    assert one[2].shape == (2,) and len(one) == 4 and "mixture" in repr(one) and "(4, 2)" in repr(one)


def test_what_is_no_level_and_numbers_that_do_not_fit_are_refused():
    one = made(Normal())
    for ask in (one.quantile, one.interval):
        for level in (0.0, 1.0, -1.0, 90.0, float("nan")):
            with refused(ValueError, "above 0 and below 1"):
                ask(level)
    for ask in (one.cdf, one.log_prob, one.crps):
        with refused(ValueError, "(3,)", "(4, 2)"):
            ask(np.zeros(3))
    with refused(ValueError, "n=1"):
        one.sample(0)


# From a model

SIZE = romae.Size(width=16, heads=2, depth=1)
SCHEMA = Schema(time="day", channel="band", channels=("g", "r"))


def stars(n=12, seed=0):
    random, samples = np.random.default_rng(seed), []
    for i in range(n):
        length = 6 + i % 5
        band = np.arange(length) % 2
        values = 15 + 3 * random.normal() + band + 0.3 * random.normal(size=length)
        positions = np.stack([np.sort(random.uniform(0, 9, length)), band], axis=1)
        samples.append(romae.Sample(values[:, None], positions, id=i))
    return SampleSet(samples, SCHEMA)


@pytest.fixture(scope="module", params=[("standard", "global"), ("robust-asinh", "global"), ("standard", "sample")])
def model(request):
    method, center = request.param
    samples = stars()
    torch.manual_seed(0)
    config = romae.ModelConfig(channels=1, position_dims=2, kinds=2, encoder=SIZE, decoder=SIZE, cls=False)
    task = romae.MaskedReconstruction(config, likelihood=Mixture(n=3))
    scaling = romae.fit_scaling(samples, values=method, center=center)
    romae.train(task, samples, romae.TrainConfig(epochs=2, batch_size=4, device="cpu"), scaling=scaling, quiet=True)
    return task


def test_a_model_tells_distributions_at_any_position_in_the_units_of_the_data(model):
    samples, places = stars(4, seed=1), [np.linspace(0, 9, n) for n in (3, 0, 5, 2)]
    told = romae.interpolate(model, samples, places, channels=["r", "g"], returns="distribution")
    means = romae.interpolate(model, samples, places, channels=["r", "g"])
    assert [one.shape for one in told] == [(3, 2), (0, 2), (5, 2), (2, 2)] == [one.shape for one in means]
    low, high = told[0].interval(0.9)
    assert (low < told[0].median()).all() and (told[0].median() < high).all() and (high - low > 0.01).all()
    assert 5 < told[0].mean().mean() < 25, "magnitudes, as the data are"
    if model.scaling.method == "standard":
        assert_allclose(told[0].mean(), means[0], rtol=1e-5)
    alone = romae.interpolate(model, samples[2:3], places[2:3], returns="distribution", channels=["g"])
    assert_allclose(alone[0].quantile(0.2)[:, 0], told[2].quantile(0.2)[:, 1], rtol=1e-4)


def test_hidden_values_have_the_density_that_the_loss_is_of(model):
    samples = romae.hide(stars(5, seed=2), romae.UniformTokens(ratio=0.5))
    told = romae.predict(model, samples, returns="distribution")
    means = romae.predict(model, samples)
    assert [one.shape for one in told] == [one.shape for one in means]
    truth = [sample.values[sample.hidden].double().numpy() for sample in samples]
    logarithms = np.concatenate([one.log_prob(x) for one, x in zip(told, truth, strict=True)])
    slopes = np.concatenate([one.units.log_slope(x) for one, x in zip(told, truth, strict=True)])
    batch = romae.collate([model.scaling.apply(sample) for sample in samples])
    with torch.no_grad():
        loss = float(model.eval()(batch).mean)
    assert -(logarithms - slopes).mean() == pytest.approx(loss, rel=1e-3)


@pytest.mark.parametrize("per", ["sample", "token"])
def test_numbers_come_as_distributions_too(per):
    random = np.random.default_rng(0)
    samples = [
        romae.Sample(
            random.normal(size=(5, 1)),
            np.arange(5.0)[:, None],
            target=100 + 10 * random.normal(size=(2,) if per == "sample" else (5, 2)),
        )
        for _ in range(8)
    ]
    torch.manual_seed(0)
    config = romae.ModelConfig(channels=1, position_dims=1, encoder=SIZE, decoder=SIZE, cls=False)
    task = romae.Regression(config, n_targets=2, per=per, likelihood="student")
    scaling = romae.fit_scaling(samples, target=True)
    romae.train(task, samples, romae.TrainConfig(epochs=1, batch_size=4, device="cpu"), scaling=scaling, quiet=True)
    told, means = romae.predict(task, samples, returns="distribution"), romae.predict(task, samples)
    whole, expected = (told, means) if per == "sample" else (told[3], means[3])
    assert whole.shape == expected.shape and ((whole.std() > 1) & (whole.std() < 100)).all()
    assert_allclose(whole.mean(), expected, rtol=1e-6)


def test_what_has_learned_no_distribution_says_so(without_shape_checks):
    config = romae.ModelConfig(channels=1, position_dims=1, encoder=SIZE, decoder=SIZE, cls=False)
    samples = romae.from_arrays(np.zeros((2, 4, 1)))
    for task in (romae.MaskedReconstruction(config), romae.Regression(config)):
        with refused(ValueError, "no distribution", "likelihood"):
            romae.predict(task, samples, returns="distribution")
    with refused(ValueError, "predict_proba"):
        romae.predict(romae.Classification(config, n_classes=2), samples, returns="distribution")
    with refused(ValueError, "'std'", "'distribution'"):
        romae.interpolate(romae.MaskedReconstruction(config), samples, [[0.5]] * 2, returns="std")


def test_many_quantiles_of_mixtures_at_once_are_those_that_are_found_one_by_one():
    random = np.random.default_rng(0)
    raw = random.normal(size=(40, 3 * 4)) * np.array([1.0, 2.0, 0.6]).repeat(4)
    one, zero = np.ones(40), np.zeros(40)
    told = Distribution(Mixture(n=4), raw, Units(one, zero, one, zero))
    levels = (0.0025, 0.1, 0.5, 0.9975)
    together = told._quantiles(np.broadcast_to(np.array(levels)[:, None], (4, 40)))
    for row, level in zip(together, levels, strict=True):
        assert_allclose(row, told.quantile(level), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("farthest", [1.0, 7.0], ids=["near", "far out"])
def test_calibrated_quantiles_of_mixtures_at_once_are_those_that_are_found_one_by_one(farthest):
    random = np.random.default_rng(0)
    raw = random.normal(size=(30, 3 * 4)) * np.array([1.0, 2.0, 0.6]).repeat(4)
    one, zero, channel = np.ones(30), np.zeros(30), np.arange(30) % 3
    calibration = Conformal(
        by="channel",
        levels=(0.1, 0.5, 0.9),
        scores=((-1.0, 0.1, 1.2), (-2.0, 0.0, 1.5), (-1.4 * farthest, -0.2, farthest)),
        n_samples=(90, 30, 30),
        groups=(1, 2),
    )
    told = Distribution(Mixture(n=4), raw, Units(one, zero, one, zero), calibration=calibration, places=channel)
    levels = (0.0025, 0.1, 0.5, 0.9975)
    together = told._quantiles(np.broadcast_to(np.array(levels)[:, None], (4, 30)))
    for row, level in zip(together, levels, strict=True):
        assert_allclose(row, told.quantile(level), rtol=1e-4, atol=1e-6)
        assert_allclose(told.cdf(told.quantile(level)), level, rtol=1e-6)
    # Far out the tail is what decides, and both ways lead to it.
    farther = told.quantile(1e-9)
    assert (farther < together[0]).all()
    assert_allclose(told.cdf(farther), 1e-9, rtol=1e-6)

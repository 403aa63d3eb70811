"""Distributions of predictions: those of the books, in any units, through any scaling."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import stats

from messages import refused
from romae.inference.distributions import Distribution, Units
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
    assert_allclose(one.crps(x), formula, rtol=0.01)


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

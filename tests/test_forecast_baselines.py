"""Baselines of forecasts: independent calculations on small samples, and what they may not know."""

from dataclasses import replace

import numpy as np
import pytest

from messages import refused
from romae.experiments import metrics
from romae.experiments.forecast_baselines import METHODS, Boosting, Observed, weight_of_second
from romae.inference import baselines
from romae.tokens.sample import Sample


@pytest.fixture(scope="module")
def samples():
    """Lines with slopes and levels of their own in two variables; a third is asked for and never shown."""
    random = np.random.default_rng(0)
    made = []
    for i in range(40):
        times = np.sort(random.uniform(0, 10, 24))
        variable = random.integers(0, 2, 24)
        variable[-1] = 2
        level, slope = random.normal(size=2)
        values = level + slope * times + 5 * variable
        order = random.permutation(24)
        hidden = (times > 7) | (variable == 2)
        columns = np.stack([times, variable], axis=1)
        made.append(Sample(values[order, None], columns[order], hidden=hidden[order], id=i))
    return made


def test_last_value_and_mean_are_those_of_each_sample_and_variable(samples):
    observed = Observed.of(samples, 3)
    of_variable = observed.means()[2]
    for name, method in (("last value", baselines.last_value), ("mean", baselines.mean)):
        one_by_one = np.concatenate([baselines.fill(method, one, default=of_variable)[:, 0] for one in samples])
        np.testing.assert_allclose(METHODS[name](observed, observed), one_by_one, rtol=1e-6)
    assert (METHODS["constant"](observed, observed) == observed.means()[observed.asked]).all()


def test_a_trend_continues_a_line_and_a_single_value_is_one(samples):
    observed = Observed.of(samples, 3)
    answers, on_line = METHODS["linear trend"](observed, observed), observed.asked < 2
    np.testing.assert_allclose(answers[on_line], observed.truth[on_line], atol=1e-4)
    two = Sample([[4.0], [9.0]], [[1.0, 0], [5.0, 0]], hidden=[False, True])
    assert METHODS["linear trend"](observed, Observed.of([two], 3)).tolist() == [4.0]


@pytest.mark.parametrize("method", [*METHODS.values(), lambda train, test: Boosting(train, n_trees=5)(test)])
def test_no_method_knows_what_a_test_sample_hides(samples, method):
    train, test = Observed.of(samples[:20], 3), Observed.of(samples[20:], 3)
    other = replace(test, value=np.where(test.hidden, 1e3, test.value))
    np.testing.assert_array_equal(method(train, test), method(train, other))


def test_trees_learn_to_continue_a_trend_where_the_last_value_cannot(samples):
    train, test = Observed.of(samples[:30], 3), Observed.of(samples[30:], 3)
    on_line = test.asked < 2
    errors = [
        np.abs(answers - test.truth)[on_line].mean()
        for answers in (Boosting(train, n_trees=50)(test), METHODS["last value"](train, test))
    ]
    assert errors[0] < 0.8 * errors[1]


@pytest.mark.parametrize("macro", [True, False])
def test_no_other_weight_has_a_lower_error_than_the_chosen_one(samples, macro):
    observed = Observed.of(samples, 3)
    noise = np.random.default_rng(1).normal(size=(2, len(observed.asked)))
    first, second = observed.truth + noise[0] * (1 + observed.asked), observed.truth + 2 * noise[1]

    def error(weight):
        squared = ((1 - weight) * first + weight * second - observed.truth) ** 2
        return metrics.macro(squared, observed.asked)[0] if macro else squared.mean()

    chosen = weight_of_second(first, second, observed, macro=macro)
    assert 0.05 < chosen < 0.95
    assert error(chosen) < min(error(chosen - 0.01), error(chosen + 0.01))


def test_a_weight_lies_between_none_and_all(samples):
    observed = Observed.of(samples, 3)
    off = observed.truth + 1
    assert weight_of_second(observed.truth, off, observed) == 0 == weight_of_second(off, off, observed)
    assert weight_of_second(off, observed.truth, observed) == 1 == weight_of_second(off + 1, off, observed)


def test_macro_errors_are_means_of_means():
    mean, by_variable = metrics.macro(np.array([1.0, 3.0, 10.0]), np.array([0, 0, 3]), 5)
    assert mean == 6 and by_variable[[0, 3]].tolist() == [2, 10] and np.isnan(by_variable[[1, 2, 4]]).all()
    assert metrics.mae([[1.0, -1.0]], [[0.0, 1.0]]) == 1.5


def test_samples_without_a_future_are_named():
    with refused(ValueError, "hides nothing", "hidden"):
        Observed.of([Sample([[1.0]], [[0.0, 0]])], 1)
    with refused(ValueError, "no sample", "empty"):
        Observed.of([], 1)

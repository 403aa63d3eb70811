"""Baselines: what each predicts, from one point to many, for one variable or several."""

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score

from messages import refused
from romae import Sample
from romae.experiments import baselines, metrics

METHODS = pytest.mark.parametrize("method", baselines.METHODS.values(), ids=baselines.METHODS)


@METHODS
def test_one_observed_value_is_predicted_everywhere(method):
    predictions = method(np.array([3.0]), np.array([[2.0, -1.0]]), np.array([0.0, 3.0, 9.0]))
    np.testing.assert_allclose(predictions, [[2.0, -1.0]] * 3)


@METHODS
def test_a_constant_stays_constant(method):
    times = np.array([0.0, 1.0, 4.0, 5.0])
    np.testing.assert_allclose(method(times, np.full((4, 1), 7.0), np.linspace(-1, 6, 9)), 7.0, atol=1e-6)


@METHODS
def test_order_does_not_matter_and_equal_times_are_averaged(method):
    random = np.random.default_rng(0)
    times, values = np.arange(8.0), random.normal(size=(8, 2))
    queries = random.uniform(0, 7, 5)
    expected = method(times, values, queries)
    order = random.permutation(8)
    np.testing.assert_allclose(method(times[order], values[order], queries), expected, atol=1e-4)
    if method is not baselines.mean:
        twice = np.concatenate([values - 1, values + 1])
        np.testing.assert_allclose(method(np.tile(times, 2), twice, queries), expected, atol=1e-4)


@METHODS
def test_there_must_be_something_observed_and_there_may_be_nothing_to_predict(method):
    with refused(ValueError, "no observed value"):
        method(np.zeros(0), np.zeros((0, 1)), np.zeros(2))
    for n in (0, 1):
        assert method(np.arange(4.0), np.ones((4, 2)), np.zeros(n)).shape == (n, 2)


def test_each_method_gives_its_known_answer():
    times, values = np.array([0.0, 1.0, 3.0]), np.array([[0.0], [2.0], [6.0]])
    queries = np.array([-1.0, 0.5, 1.0, 2.0, 5.0])
    assert baselines.mean(times, values, queries).ravel() == pytest.approx([8 / 3] * 5)
    assert baselines.last_value(times, values, queries).ravel() == pytest.approx([0, 0, 2, 2, 6])
    assert baselines.linear(times, values, queries).ravel() == pytest.approx([0, 1, 2, 4, 6])


def test_a_spline_goes_through_cubics_and_holds_its_ends():
    times = np.array([0.0, 1.0, 2.5, 4.0, 5.0])
    cubic = np.polynomial.Polynomial([1, -2, 0.5, 0.3])
    queries = np.linspace(0, 5, 11)
    found = baselines.cubic_spline(times, cubic(times)[:, None], queries)
    np.testing.assert_allclose(found[:, 0], cubic(queries), atol=1e-9)
    ends = baselines.cubic_spline(times, cubic(times)[:, None], np.array([-3.0, 9.0]))
    np.testing.assert_allclose(ends[:, 0], cubic(times[[0, -1]]))
    line = baselines.cubic_spline(times[:2], times[:2, None], np.array([0.25]))
    assert float(line[0, 0]) == pytest.approx(0.25)


def test_a_gaussian_process_beats_lines_on_noisy_smooth_curves():
    random = np.random.default_rng(0)
    times, queries = np.sort(random.uniform(0, 6, 40)), np.linspace(0.5, 5.5, 50)
    values = np.sin(times)[:, None] + random.normal(0, 0.2, (40, 1))
    errors = [
        metrics.mse(method(times, values, queries), np.sin(queries)[:, None])
        for method in (baselines.gaussian_process, baselines.linear)
    ]
    assert errors[0] < 0.5 * errors[1]


def test_a_gaussian_process_does_not_care_about_units():
    random = np.random.default_rng(0)
    times, values, queries = np.arange(12.0), random.normal(size=(12, 1)).cumsum(0), np.array([2.5, 7.1])
    found = baselines.gaussian_process(times, values, queries)
    scaled = baselines.gaussian_process(1e6 + 500 * times, 100 + 1e3 * values, 1e6 + 500 * queries)
    np.testing.assert_allclose(scaled, 100 + 1e3 * found, rtol=1e-3)


def test_variables_are_filled_one_by_one():
    positions = [[0, 0], [1, 0], [2, 0], [0, 1], [2, 1], [5, 7]]
    hidden = [False, True, False, False, True, True]
    sample = Sample([[0.0], [9.0], [2.0], [5.0], [9.0], [9.0]], positions, hidden=hidden)
    np.testing.assert_allclose(baselines.fill(baselines.linear, sample)[:, 0], [1, 5, 0])
    np.testing.assert_allclose(baselines.fill(baselines.linear, sample, default=-3.0)[:, 0], [1, 5, -3])
    np.testing.assert_allclose(baselines.truth(sample), [[9], [9], [9]])


def test_the_truth_is_the_target_of_each_token_where_there_is_one():
    clean = [[1.0], [2.0], [3.0]]
    sample = Sample([[1.1], [2.1], [3.1]], [[0.0], [1.0], [2.0]], target=clean, hidden=[False, True, True])
    np.testing.assert_allclose(baselines.truth(sample), [[2], [3]])
    labelled = Sample(sample.values, sample.positions, target=1, hidden=sample.hidden)
    np.testing.assert_allclose(baselines.truth(labelled), [[2.1], [3.1]], rtol=1e-6)


def test_samples_made_of_what_is_differentiated_have_a_truth():
    x = torch.tensor([[1.0], [2.0]], requires_grad=True)
    np.testing.assert_allclose(baselines.truth(Sample(x, x, hidden=[False, True])), [[2]])


def test_the_constant_is_the_mean_over_all_training_tokens():
    train = [Sample([[0.0]], [[0.0]]), Sample([[2.0], [4.0], [6.0]], [[0.0], [1.0], [2.0]])]
    sample = Sample([[9.0], [9.0]], [[0.0], [1.0]], hidden=[True, False])
    np.testing.assert_allclose(baselines.fill(baselines.constant(train), sample), [[3.0]])


def test_what_cannot_be_filled_is_refused():
    with refused(ValueError, "hides no token"):
        baselines.fill(baselines.linear, Sample([[1.0]], [[0.0]]))
    with refused(ValueError, "3 axes"):
        baselines.fill(baselines.linear, Sample([[1.0], [1.0]], np.zeros((2, 3)), hidden=[True, False]))


@METHODS
def test_bad_observations_are_refused_in_a_sentence(method, without_shape_checks):
    with refused(ValueError, "3 times", "[2, 1]"):
        method(np.arange(3.0), np.ones((2, 1)), np.zeros(1))
    with refused(ValueError, "not [3]"):
        method(np.arange(3.0), np.ones(3), np.zeros(1))
    with refused(ValueError, "leave missing measurements"):
        method(np.arange(2.0), np.array([[1.0], [np.nan]]), np.zeros(1))


def test_an_empty_list_of_samples_is_refused():
    for call in (baselines.constant, baselines.summary_features, lambda none: baselines.nearest_neighbour(none, none)):
        with refused(ValueError, "list is empty"):
            call([])


def _waves(n_samples: int, seed: int) -> list[Sample]:
    """Two classes of waves, slow and fast, at times of their own."""
    random = np.random.default_rng(seed)
    samples = []
    for index in range(n_samples):
        times = np.sort(random.choice(50, 35, replace=False)).astype(float)
        wave = np.sin(times * (0.1 if index % 2 else 0.25))
        values = np.stack([wave, 1e4 * random.normal(size=35)], axis=1)  # a loud channel that says nothing
        samples.append(Sample(values + random.normal(0, 0.1, (35, 2)), times[:, None], target=index % 2))
    return samples


def test_the_nearest_neighbour_knows_series_at_irregular_times():
    train, test = _waves(60, 0), _waves(20, 1)
    found = baselines.nearest_neighbour(train, test)
    assert np.mean(found == baselines.classes(test)) >= 0.95
    np.testing.assert_array_equal(baselines.nearest_neighbour(train, train), baselines.classes(train))


def test_series_to_classify_need_a_class_and_a_single_axis():
    wave = Sample([[1.0]], [[0.0]], target=0)
    with refused(ValueError, "sample 1", "no class"):
        baselines.nearest_neighbour([wave, Sample([[1.0]], [[0.0]])], [wave])
    with refused(ValueError, "only position"):
        baselines.nearest_neighbour([wave], [Sample([[1.0]], [[0.0, 1.0]], target=0)])


def test_summary_features_have_their_known_values():
    first = Sample([[1.0], [3.0], [5.0], [8.0]], [[2, 0], [1, 0], [0, 0], [0, 2]])
    second = Sample([[4.0]], [[0, 1]])
    found = baselines.summary_features([first, second], n_variables=3).reshape(2, 3, 6)
    missing = [np.nan] * 5 + [0]
    np.testing.assert_allclose(found[0, 0], [3, 1, 5, 1, np.sqrt(8 / 3), 3])  # the last in time, not in order
    np.testing.assert_allclose(found[0, 1:], [missing, [8, 8, 8, 8, 0, 1]])
    np.testing.assert_allclose(found[1], [missing, [4, 4, 4, 4, 0, 1], missing])


def test_summary_features_of_series_treat_each_channel():
    sample = Sample([[1.0, 10.0], [3.0, 20.0]], [[0.0], [1.0]])
    found = baselines.summary_features([sample])
    np.testing.assert_allclose(found, [[2, 15, 1, 10, 3, 20, 3, 20, 1, 5, 2]])


@pytest.mark.parametrize("variable", [-1, 3, 0.5])
def test_summary_features_refuse_variables_they_do_not_know(variable):
    with refused(ValueError, "0 to 2"):
        baselines.summary_features([Sample([[1.0]], [[0.0, variable]])], n_variables=3)


def _light_curve(order: np.ndarray | slice = slice(None)) -> Sample:
    """Six points in two bands, two of them on the same day."""
    values = np.array([[10.0, 1.0], [1.0, 1.0], [30.0, 2.0], [-8.0, 1.0], [2.0, 1.0], [4.0, 2.0]])
    positions = np.array([[0.0, 0], [1.0, 1], [1.0, 0], [3.0, 1], [7.0, 0], [9.0, 1]])
    return Sample(values[order], positions[order])


def test_light_curve_features_of_the_whole_have_their_known_values():
    whole = baselines.light_curve_features([_light_curve()], n_bands=2)[0, -5:]
    changes = np.abs(np.diff([10, 1, 15, -8, 2, 2]))  # flux over error; on equal days in the order of the tokens
    np.testing.assert_allclose(whole, [3 / 6, 3.0, 1.0, 9.0, changes.mean()])


def test_light_curve_features_do_not_depend_on_the_order_of_tokens():
    turned = [_light_curve(order) for order in (np.array([5, 1, 0, 4, 2, 3]), np.array([3, 4, 5, 1, 2, 0]))]
    expected = baselines.light_curve_features([_light_curve()] * 2, n_bands=2)
    # The same numbers added in another order: equal but for the last bits.
    np.testing.assert_allclose(baselines.light_curve_features(turned, n_bands=2), expected, rtol=1e-12)


@pytest.mark.parametrize(
    "model", [baselines.logistic_regression(), baselines.gradient_boosting(0)], ids=["linear", "trees"]
)
def test_classifiers_learn_from_summary_features_with_gaps(model):
    random = np.random.default_rng(0)
    label = random.integers(0, 2, 300)
    features = random.normal(size=(300, 4)) + label[:, None] * [2, 0, 0, 0]
    features[random.random((300, 4)) < 0.1] = np.nan
    features[:, 3] = np.nan
    score = model.fit(features[:200], label[:200]).predict_proba(features[200:])[:, 1]
    assert roc_auc_score(label[200:], score) > 0.85


@pytest.fixture
def stays(real_data, stays_read_once):
    from romae.experiments.datasets import physionet2012

    return physionet2012.load("ab", folder=real_data / "physionet2012")


@pytest.mark.slow
def test_summary_features_predict_mortality_as_well_as_the_protocol_says(stays):
    features = baselines.summary_features(stays.samples(), n_variables=int(stays.variables.max()) + 1)
    is_a, died = np.arange(len(stays)) < 4000, stays.died
    # The first 80 of 200 trees take less than half of the time, and have the area that the protocol has with all.
    trees = baselines.gradient_boosting(0).set_params(histgradientboostingclassifier__max_iter=80)
    for model, known in ((baselines.logistic_regression(), 0.852), (trees, 0.859)):
        score = model.fit(features[is_a], died[is_a]).predict_proba(features[~is_a])[:, 1]
        assert roc_auc_score(died[~is_a], score) > known - 0.005
        assert average_precision_score(died[~is_a], score) > 0.515

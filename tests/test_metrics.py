"""Metrics: means over all elements, known answers, and refusals."""

import math

import numpy as np
import pytest
import torch

from messages import refused
from romae.experiments import metrics


def test_means_are_over_all_elements_however_they_are_spread_over_samples():
    random = np.random.default_rng(0)
    lengths = (1, 7, 30)
    prediction = [random.normal(size=(n, 2)) for n in lengths]
    target = [random.normal(size=(n, 2)) for n in lengths]
    all_errors = np.concatenate(prediction) - np.concatenate(target)
    assert metrics.mse(prediction, target) == pytest.approx((all_errors**2).mean())
    assert metrics.rmse(prediction, target) == pytest.approx(math.sqrt((all_errors**2).mean()))
    assert metrics.distance_rmse(prediction, target) == pytest.approx(math.sqrt((all_errors**2).sum(1).mean()))
    by_sample = (metrics.squared_error(one, other) for one, other in zip(prediction, target, strict=True))
    assert sum(by_sample, metrics.Mean()).value == pytest.approx(metrics.mse(prediction, target))
    means_of_means = np.mean([((p - t) ** 2).mean() for p, t in zip(prediction, target, strict=True)])
    assert metrics.mse(prediction, target) != pytest.approx(means_of_means, rel=0.01)


def test_the_distance_of_points_in_the_plane():
    assert metrics.distance_rmse([[3.0, 0.0]], [[0.0, 4.0]]) == pytest.approx(5)
    assert metrics.rmse([[3.0, 0.0]], [[0.0, 4.0]]) == pytest.approx(5 / math.sqrt(2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_tensors_are_taken_with_and_without_gradients(dtype):
    prediction = torch.tensor([1, 2, 4], dtype=dtype)
    if dtype.is_floating_point:
        prediction.requires_grad_()
    assert metrics.mse(prediction, torch.tensor([1, 2, 2])) == pytest.approx(4 / 3)
    assert metrics.accuracy(torch.tensor([0, 1]), torch.tensor([0, 0])) == 0.5


def test_the_likelihood_is_that_of_scipy_and_smallest_at_the_true_variance():
    from scipy.stats import norm

    random = np.random.default_rng(0)
    mean, variance = random.normal(size=500), random.uniform(0.5, 2, size=500)
    target = random.normal(mean, np.sqrt(variance))
    found = metrics.gaussian_nll(mean, variance, target)
    assert found == pytest.approx(-norm.logpdf(target, mean, np.sqrt(variance)).mean())
    assert found < metrics.gaussian_nll(mean, 2 * variance, target)
    assert found < metrics.gaussian_nll(mean, 0.5 * variance, target)


def test_coverage_counts_both_ends():
    assert metrics.coverage([0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 0.5, 1.01]) == 0.75
    target = np.random.default_rng(0).normal(size=20_000)
    bound = np.full_like(target, 1.959964)
    assert metrics.coverage(-bound, bound, target) == pytest.approx(0.95, abs=0.01)


def test_the_spectrum_is_in_the_units_of_the_data_and_blind_to_phase():
    time = np.arange(100) / 100
    wave = np.sin(2 * np.pi * 7 * time)
    assert metrics.spectral_error(wave, 0 * wave).total == pytest.approx(1)
    assert metrics.spectral_error(wave, np.cos(2 * np.pi * 7 * time)).value == pytest.approx(0, abs=1e-20)
    assert metrics.spectral_error(np.full(100, 3.0), np.zeros(100)).total == pytest.approx(9)
    both = metrics.spectral_error([wave, wave[None, :50]], [0 * wave, wave[None, :50]])
    assert (both.total, both.count) == (pytest.approx(1), 51 + 26)


def test_metrics_of_classes_have_the_known_values():
    target = [0, 0, 0, 0, 1, 1, 2]
    prediction = [0, 0, 0, 1, 1, 0, 0]
    assert metrics.accuracy(prediction, target) == pytest.approx(4 / 7)
    assert metrics.balanced_accuracy(prediction, target) == pytest.approx((3 / 4 + 1 / 2 + 0) / 3)
    assert metrics.macro_f1(prediction, target) == pytest.approx((2 * 3 / 9 + 2 * 1 / 4 + 0) / 3)


def test_a_predicted_class_that_does_not_exist_costs_accuracy_without_a_warning(recwarn):
    assert metrics.balanced_accuracy([0, 5, 1], [0, 0, 1]) == pytest.approx(0.75)
    assert not recwarn.list


def test_areas_have_the_known_values():
    target = np.array([0, 0, 1, 1])
    score = np.array([0.1, 0.4, 0.35, 0.8])
    assert metrics.auroc(score, target) == pytest.approx(0.75)
    assert metrics.auprc(score, target) == pytest.approx(0.5 * 1 + 0.5 * 2 / 3)
    assert metrics.auroc(torch.tensor(score), torch.tensor(target)) == pytest.approx(0.75)
    assert metrics.auroc(np.exp(5 * score), target) == pytest.approx(0.75)  # only the order counts


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_scores_are_taken_with_and_without_gradients(dtype):
    score, target = torch.tensor([0.1, 0.4, 0.35, 0.8], dtype=dtype, requires_grad=True), torch.tensor([0, 0, 1, 1])
    assert metrics.auroc(score, target) == metrics.auroc(list(score), target.to(dtype)) == pytest.approx(0.75)
    assert metrics.auprc(score, target) == metrics.auprc(score.detach(), target) == pytest.approx(5 / 6)


def test_classes_may_be_names_or_whole_numbers_of_any_type():
    names = ["a", "b", "b"]
    for chosen in (np.array(names), np.array(names, dtype=object), tuple(names)):
        assert metrics.accuracy(chosen, ["a", "b", "c"]) == pytest.approx(2 / 3)
        assert metrics.balanced_accuracy(chosen, ["a", "b", "b"]) == metrics.macro_f1(chosen, names) == 1
    for chosen in ([0, 1], [0.0, 1.0], [False, True], torch.tensor([0, 1], dtype=torch.bfloat16)):
        assert metrics.accuracy(chosen, [0, 0]) == 0.5


@pytest.mark.parametrize(
    ("call", "parts"),
    [
        (lambda: metrics.mse(np.zeros((3, 1)), np.zeros(3)), ["[3] is not [3, 1]"]),
        (lambda: metrics.mse([np.zeros(2)], [np.zeros(2), np.zeros(3)]), ["2 parts"]),
        (lambda: metrics.mse([1.0, math.nan], [1.0, 2.0]), ["must be finite"]),
        (lambda: metrics.mse(np.zeros(0), np.zeros(0)), ["mean of nothing"]),
        (lambda: metrics.mse(["a"], [1.0]), ["need numbers"]),
        (
            lambda: metrics.distance_rmse([np.zeros((2, 2)), np.zeros((2, 3))], [np.zeros((2, 2)), np.zeros((2, 3))]),
            ["same"],
        ),
        (lambda: metrics.distance_rmse(np.zeros((3, 0)), np.zeros((3, 0))), ["at least one coordinate"]),
        (lambda: metrics.gaussian_nll([0.0], [0.0], [0.0]), ["above 0"]),
        (lambda: metrics.coverage([1.0], [0.0], [0.5]), ["element 0"]),
        (lambda: metrics.accuracy(np.zeros((4, 3)), np.zeros(4)), ["argmax"]),
        (lambda: metrics.accuracy([[0, 1], [1]], [0, 1]), ["several lengths"]),
        (lambda: metrics.accuracy([], []), ["no sample"]),
        (lambda: metrics.accuracy(["a", "b"], [0, 1]), ["are names", "ones numbers"]),
        (lambda: metrics.macro_f1([0, 1], np.array(["a", "b"], dtype=object)), ["numbers", "ones names"]),
        (lambda: metrics.accuracy(["a", 1], ["a", "1"]), ["types ['int', 'str']"]),
        (lambda: metrics.accuracy([0, None], [0, 1]), ["types ['NoneType', 'int']"]),
        (lambda: metrics.accuracy([0.2, 0.9], [0, 1]), ["0.2", "argmax"]),
        (lambda: metrics.balanced_accuracy([0, 1], torch.tensor([0.0, math.nan])), ["one is nan"]),
        (lambda: metrics.confusion([0, 5, 1], [0, 1, 7], 3), ["0 to 2", "sample 1 is 5"]),
        (lambda: metrics.confusion([0, 1, 1], [0, 1, -1], 3), ["0 to 2", "sample 2 is -1"]),
        (lambda: metrics.confusion(["a"], ["a"], 1), ["0 to 0", "not as names"]),
        (lambda: metrics.auroc([0.1, 0.2], [1, 1]), ["both classes"]),
        (lambda: metrics.auprc([0.1, 0.2, 0.3], [0, 1, 2]), ["both classes"]),
        (lambda: metrics.auroc([0.1, math.nan], [0, 1]), ["finite"]),
        (lambda: metrics.auroc(np.zeros((2, 2)), [0, 1]), ["one per sample", "[2, 2] and [2]"]),
    ],
)
def test_what_cannot_be_compared_is_refused_in_a_sentence(call, parts):
    with refused((ValueError, TypeError), *parts):
        call()


def test_confusion_counts_every_sample_once():
    truth, chosen = np.array([0, 0, 1, 2, 2]), np.array([0, 1, 1, 2, 0])
    assert metrics.confusion(chosen, truth, 4).tolist() == [[1, 1, 0, 0], [0, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0]]


def test_the_mean_of_the_scores_of_all_classes_is_the_macro_score():
    random = np.random.default_rng(0)
    predicted, truth = random.integers(0, 4, 60), np.arange(60) % 4
    by_class = metrics.f1_by_class(metrics.confusion(predicted, truth, 4))
    assert by_class.mean() == pytest.approx(metrics.macro_f1(predicted, truth))

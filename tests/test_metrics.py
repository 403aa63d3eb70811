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


def test_the_spectrum_is_in_the_units_of_the_data_and_blind_to_phase():
    time = np.arange(100) / 100
    wave = np.sin(2 * np.pi * 7 * time)
    assert metrics.spectral_error(wave, 0 * wave) == pytest.approx(1 / 51)
    assert metrics.spectral_error(wave, np.cos(2 * np.pi * 7 * time)) == pytest.approx(0, abs=1e-20)
    assert metrics.spectral_error(np.full(100, 3.0), np.zeros(100)) == pytest.approx(9 / 51)
    # The line at half the sampling rate has no mirror image: it counts once, where the length is even.
    assert metrics.spectral_error([1.0, -1.0] * 50, np.zeros(100)) == pytest.approx(1 / 51)
    fastest = np.cos(2 * np.pi * 50 * np.arange(101) / 101)
    assert metrics.spectral_error(fastest, np.zeros(101)) == pytest.approx(1 / 51)
    both = metrics.spectral_error([wave, wave[None, :50]], [0 * wave, wave[None, :50]])
    assert both == pytest.approx(1 / (51 + 26))


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
    ],
)
def test_what_cannot_be_compared_is_refused_in_a_sentence(call, parts):
    with refused((ValueError, TypeError), *parts):
        call()

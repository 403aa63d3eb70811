"""MiniRocket: its features are shares counted one by one, and its ridge classifier is that of scikit-learn."""

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError

from messages import refused
from romae.estimators.convolutions import LENGTH, Bank, fit_banks
from romae.experiments.minirocket import MiniRocketClassifier


@pytest.fixture
def series() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(12, 3, 40))


def fitted(series: np.ndarray, n_features: int = 1000, seed: int = 0) -> list[Bank]:
    return fit_banks(torch.from_numpy(series).float(), n_features, np.random.default_rng(seed))


def shares_one_by_one(series: np.ndarray, bank: Bank, kernel: int) -> list[float]:
    """The features of one kernel by the definition: multiply, add up, compare, count."""
    length, reach = series.shape[-1], LENGTH // 2
    centres = range(length)
    if not bank.padded[kernel]:
        centres = range(reach * bank.dilation, length - reach * bank.dilation)
    outputs = []
    for centre in centres:
        places = [centre + (j - reach) * bank.dilation for j in range(LENGTH)]
        total = 0.0
        for channel, weights in enumerate(bank.weights[kernel].numpy()):
            total += sum(w * series[channel, p] for w, p in zip(weights, places, strict=True) if 0 <= p < length)
        outputs.append(total)
    return [float(np.mean(np.array(outputs) > bias)) for bias in bank.biases[kernel].numpy()]


def test_a_feature_is_the_share_of_outputs_above_a_bias(series):
    for bank in fitted(series):
        found = bank(torch.from_numpy(series[:1]).float())[0]
        wanted = [share for kernel in range(84) for share in shares_one_by_one(series[0], bank, kernel)]
        np.testing.assert_allclose(np.sort(found), np.sort(wanted), atol=1e-6)


@pytest.mark.parametrize("length", [9, 10, 36, 182])
@pytest.mark.parametrize("n_features", [84, 1000, 10_000])
def test_kernels_fit_into_the_series_and_give_as_many_features_as_asked_for(length, n_features):
    banks = fitted(np.random.default_rng(1).normal(size=(4, 2, length)), n_features)
    assert sum(bank.biases.numel() for bank in banks) == n_features // 84 * 84
    assert banks[0].dilation == 1 and max(bank.dilation for bank in banks) * (LENGTH - 1) <= length - 1
    for bank in banks:
        kernels = bank.weights[bank.weights != 0].reshape(-1, LENGTH)
        assert bool((kernels.sum(1) == 0).all()), "three weights of 2 and six of -1"
        assert bool((bank.weights != 0).any(-1).any(-1).all()), "every kernel looks at a channel"


def test_without_padding_a_shift_of_all_values_changes_nothing(series):
    for bank in fitted(series):
        inner = bank._replace(padded=torch.zeros(84, dtype=torch.bool))
        x = torch.from_numpy(series.round(1)).float()
        torch.testing.assert_close(inner(x + 4), inner(x), atol=0.03, rtol=0)  # a tie or two may be broken


def test_waves_are_told_apart_by_their_frequency():
    random = np.random.default_rng(3)
    labels = np.array(["slow", "fast"] * 30)
    times = np.arange(60) + random.uniform(0, 60, (60, 1))
    waves = np.sin(times * np.where(labels == "fast", 0.5, 0.35)[:, None])
    series = np.stack([waves, random.normal(size=waves.shape)], axis=1) + 0.3 * random.normal(size=(60, 2, 60))
    model = MiniRocketClassifier(0, n_features=1000).fit(series[:40], labels[:40])
    assert (model.predict(series[40:]) == labels[40:]).mean() > 0.9
    again = MiniRocketClassifier(0, n_features=1000).fit(series[:40], labels[:40])
    assert (model.features(series) == again.features(series)).all()


def test_bad_series_are_refused(series, without_shape_checks):
    with refused(ValueError, "12 series", "11 labels"):
        MiniRocketClassifier(0).fit(series, np.zeros(11))
    with refused(ValueError, "9 time steps", "[12, 3, 8]"):
        MiniRocketClassifier(0).fit(series[..., :8], np.zeros(12))


@pytest.mark.parametrize("gap", [np.nan, np.inf])
def test_series_with_gaps_are_refused_in_fit_and_predict(series, gap):
    labels = np.arange(12) % 2
    model = MiniRocketClassifier(0, n_features=84).fit(series, labels)
    series[5, 1, 7] = gap
    for ask in (lambda: MiniRocketClassifier(0).fit(series, labels), lambda: model.predict(series)):
        with refused(ValueError, "finite", "series 5", "fill its gaps"):
            ask()


def test_series_of_another_shape_than_the_fitted_ones_are_refused(series):
    model = MiniRocketClassifier(0, n_features=84).fit(series, np.arange(12) % 2)
    for other, found in ((series[:, :2], "2 and 40"), (series[..., :20], "3 and 20")):
        with refused(ValueError, "3 channels", "40 time steps", f"not {found}"):
            model.predict(other)


def test_a_classifier_that_was_not_fitted_says_so(series):
    model = MiniRocketClassifier(0)
    for ask in (model.predict, model.features):
        with refused(NotFittedError, "not been fitted", "call fit"):
            ask(series)

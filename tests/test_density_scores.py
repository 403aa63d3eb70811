"""Scores of predicted distributions: known answers, units, and what simple methods come to."""

import numpy as np
import pytest
import torch
from scipy.stats import norm

from romae.experiments.density_scores import LEVELS, Lines, Predicted, climatology_crps, crps_of_quantiles
from romae.experiments.zero_scores import crps_of_standard_normal
from romae.inference.distributions import Distribution, Units
from romae.model.likelihoods import Normal, raw_of_scale
from romae.tokens.sample import Sample


def normals(middle: np.ndarray, deviation: np.ndarray, columns: int = 1) -> Distribution:
    """Normal distributions in the data's own units."""
    raw = np.stack([middle, raw_of_scale(torch.from_numpy(deviation)).numpy()], -1).reshape(-1, columns, 2)
    one, zero = np.ones((len(raw), columns)), np.zeros((len(raw), columns))
    return Distribution(Normal(), raw, Units(one, zero, one, zero))


@pytest.fixture
def predicted() -> Predicted:
    random = np.random.default_rng(0)
    middle, deviation = random.normal(size=4_000), np.exp(random.normal(size=4_000))
    truth = middle + deviation * random.normal(size=4_000)
    parts = [
        normals(x, s) for x, s in zip(np.split(middle, [30, 1_000]), np.split(deviation, [30, 1_000]), strict=True)
    ]
    return Predicted(parts, truth, np.ones(4_000))


def test_normals_have_the_scores_of_the_textbook_and_intervals_hold_what_they_say(predicted):
    scores = predicted.scores()
    middle, deviation = (
        np.concatenate([np.asarray(getattr(part, name)()).ravel() for part in predicted.parts])
        for name in ("mean", "std")
    )
    z = (predicted.truth - middle) / deviation
    assert scores["crps"] == pytest.approx(np.mean(deviation * crps_of_standard_normal(z)), rel=1e-6)
    assert scores["nll"] == pytest.approx(-np.mean(norm.logpdf(predicted.truth, middle, deviation)), rel=1e-6)
    for level in LEVELS:
        name = f"{level * 100:.0f}"
        assert scores[f"coverage_{name}"] == pytest.approx(level, abs=4 * np.sqrt(level * (1 - level) / 4_000))
        assert scores[f"width_{name}"] == pytest.approx(2 * norm.ppf((1 + level) / 2) * deviation.mean(), rel=1e-5)


def test_a_unit_is_that_of_scores(predicted):
    unit = np.full(4_000, 5.0)
    ours, theirs = predicted.scores(), Predicted(predicted.parts, predicted.truth, unit).scores()
    for name, score in ours.items():
        changed = score - np.log(5) if name == "nll" else score if name.startswith("coverage") else score / 5
        assert theirs[name] == pytest.approx(changed)


def test_parts_of_several_columns_are_scored_number_by_number():
    random = np.random.default_rng(1)
    middle, truth = random.normal(size=12), random.normal(size=12)
    flat = Predicted([normals(middle, np.ones(12))], truth, np.ones(12)).by_number()
    wide = Predicted([normals(middle[:8], np.ones(8), 2), normals(middle[8:], np.ones(4), 2)], truth, np.ones(12))
    for name, numbers in wide.by_number().items():
        np.testing.assert_allclose(numbers, flat[name])


def test_the_score_of_quantiles_approaches_that_of_their_distribution_and_of_one_is_the_absolute_error():
    truth = np.array([-1.0, 0.3, 2.5])
    levels = (np.arange(2_000) + 0.5) / 2_000
    many = crps_of_quantiles(np.tile(norm.ppf(levels), (3, 1)), truth)
    np.testing.assert_allclose(many, crps_of_standard_normal(truth), atol=1e-3)
    np.testing.assert_allclose(crps_of_quantiles(np.zeros((3, 1)), truth), np.abs(truth))


def test_what_training_values_are_like_is_told_by_channel_and_for_unknown_channels_of_all():
    seen, of_seen = np.array([1.0, 1.0, 5.0, 5.0]), np.array([0, 0, 1, 1])
    scores = climatology_crps(seen, of_seen, np.array([1.0, 5.0, 3.0]), np.array([0, 1, 2]))
    np.testing.assert_allclose(scores[:2], 0, atol=1e-12)
    assert 0 < scores[2] <= 2


def test_lines_are_as_sure_as_their_residuals_and_know_distances_and_channels():
    random = np.random.default_rng(2)

    def drawn(n: int) -> tuple[list[Sample], list[np.ndarray]]:
        samples, channels = [], []
        for _ in range(n):
            times = np.arange(20.0)
            noise = [0.0, 1.0]
            values = np.concatenate([0.3 * times + scale * random.normal(size=20) for scale in noise])
            positions = np.stack([np.tile(times, 2), np.repeat([0.0, 1.0], 20)], 1)
            hidden = torch.from_numpy(np.tile(random.random(20) < 0.4, 2))
            samples.append(Sample(values[:, None].astype(np.float32), positions, hidden=hidden))
            channels.append(positions[hidden.numpy(), 1].astype(np.int64))
        return samples, channels

    training, test = drawn(60), drawn(40)
    scores, channel = Lines(*training).crps(*test), np.concatenate(test[1])
    inside = scores[channel == 0]
    assert np.median(inside) < 0.01  # a line is exact between its neighbours
    # Of a normal distribution, whose deviation is that of noise and of the mean of two neighbours, or of one.
    assert 0.5 < scores[channel == 1].mean() < 0.9

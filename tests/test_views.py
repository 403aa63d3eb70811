"""Views: they show what the task says, where it says it, and stay small."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

import romae
from romae.experiments import views
from romae.experiments.views import N_CLASSES, N_NUMBERS
from romae.inference.predictions import predict, predict_proba
from romae.model.config import ModelConfig, Size
from romae.model.tasks import Classification, MaskedReconstruction, Regression
from romae.tokens.masking import UniformTokens
from romae.tokens.sample import Sample

MODEL = ModelConfig(channels=1, position_dims=1, encoder=Size(width=8, heads=2, depth=1))


def series(n: int = 9, **more) -> list[Sample]:
    random = np.random.default_rng(0)
    made = [np.sort(random.uniform(0, 5, (random.integers(4, 9), 1)), axis=0) for _ in range(n)]
    return [Sample(np.sin(t), t, id=i, **{key: make(i, t) for key, make in more.items()}) for i, t in enumerate(made)]


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def test_every_sample_is_counted_where_it_was_put():
    task, samples = Classification(MODEL, 3).eval(), series(target=lambda i, _: i % 3)
    counts = views.of(task, samples, with_examples=False)["confusion"]["counts"]
    chosen = predict_proba(task, samples).argmax(1)
    assert counts.sum(axis=1).tolist() == [3, 3, 3]
    assert np.trace(counts) == (chosen == np.arange(9) % 3).sum()


def test_a_map_has_as_many_of_each_class_as_there_are():
    classes = np.repeat([0, 1, 2], [90, 3, 7])
    chosen = views.balanced(classes, 20)
    assert np.bincount(classes[chosen]).tolist() == [10, 3, 7] and chosen == sorted(set(chosen))
    assert views.balanced(classes, 1000) == list(range(100))


def test_a_matrix_too_large_to_be_read_is_left_out():
    task, samples = Classification(MODEL, N_CLASSES + 1).eval(), series(target=lambda i, _: i)
    assert views.of(task, samples, with_examples=False) == {}
    assert set(views.of(task, samples, with_examples=True)) == {"embeddings"}


@pytest.mark.parametrize("per", ["sample", "token"])
def test_numbers_stand_beside_the_true_ones(per):
    samples = series(target=lambda i, t: np.hstack([t, -t]) if per == "token" else np.array([i, -i], dtype=float))
    task = Regression(MODEL, 2, per=per).eval()
    view = views.of(task, samples, with_examples=True)["agreement"]
    truth = np.concatenate([sample.target.reshape(-1, 2).numpy() for sample in samples])
    assert_allclose(view["truth"], truth.T)
    assert_allclose(view["predicted"], np.concatenate([np.reshape(x, (-1, 2)) for x in predict(task, samples)]).T)


def test_views_of_many_samples_stay_small():
    samples = series(2 * N_NUMBERS, target=lambda i, t: t)
    found = views.of(Regression(MODEL, per="token").eval(), samples, with_examples=True)
    assert found["agreement"]["truth"].shape == (1, N_NUMBERS)
    assert len(found["embeddings"]["points"]) == views.N_MAPPED
    assert views.of(Regression(MODEL).eval(), samples, with_examples=False) == {}


def test_points_are_seen_or_hidden_and_hidden_ones_are_predicted():
    task = MaskedReconstruction(MODEL, masking=UniformTokens()).eval()
    samples = series(hidden=lambda i, t: np.arange(len(t)) % 2 == 1)
    shown = views.of(task, samples, with_examples=True)["reconstructions"]
    assert [one["name"] for one in shown] == [str(i) for i in range(views.N_SHOWN)]
    answers = predict(task, samples)
    for sample, answer, view in zip(samples, answers, shown, strict=False):
        (panel,) = view["channels"]
        times, hidden = sample.positions[:, 0].numpy(), sample.hidden.numpy()
        assert_allclose(panel["observed"][0], times[~hidden])
        assert_allclose(panel["hidden"], [times[hidden], sample.values[hidden, 0]])
        assert_allclose(panel["predicted"], answer[:, 0], rtol=1e-4, atol=1e-6)


def test_channels_have_their_names_whether_they_share_tokens_or_not():
    X = np.random.default_rng(0).normal(size=(2, 5, 3))
    together = romae.from_arrays(X, channels=["a", "b", "c"])
    apart = romae.from_arrays(X, channels=["a", "b", "c"], tokens="scalars")
    for samples in (together, apart):
        found = views.channels(samples[0], samples.schema)
        assert [one.name for one in found] == ["a", "b", "c"]
        for i, one in enumerate(found):
            assert_allclose(samples[0].values[one.is_here, one.column], X[0, :, i], rtol=1e-6)
    assert [one.name for one in views.channels(together[0], None)] == ["value 1", "value 2", "value 3"]


def test_points_are_spread_from_the_first_to_the_last():
    assert views.spread(3, 100) == [0, 1, 2] and views.spread(0, 5) == []
    many = views.spread(1000, 100)
    assert len(many) == 100 and (many[0], many[-1]) == (0, 999)

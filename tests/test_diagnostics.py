"""Diagnostics: they show what the task predicts, where it predicts it, and stay small."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose

import romae
from romae.data import subsets
from romae.inference.predictions import predict, predict_proba
from romae.model.config import ModelConfig, Size
from romae.model.tasks import Classification, MaskedReconstruction, Regression
from romae.pages import diagnostics
from romae.pages.diagnostics import N_CLASSES, N_NUMBERS, diagnose
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
    counts = diagnose(task, samples, with_examples=False)["confusion"]["counts"]
    chosen = predict_proba(task, samples).argmax(1)
    assert counts.sum(axis=1).tolist() == [3, 3, 3]
    assert np.trace(counts) == (chosen == np.arange(9) % 3).sum()


def test_a_map_has_as_many_of_each_class_as_there_are():
    classes = np.repeat([0, 1, 2], [90, 3, 7])
    chosen = subsets.balanced(classes, 20)
    assert np.bincount(classes[chosen]).tolist() == [10, 3, 7] and chosen == sorted(set(chosen))
    assert subsets.balanced(classes, 1000) == list(range(100))


def test_a_matrix_too_large_to_be_read_is_left_out():
    task, samples = Classification(MODEL, N_CLASSES + 1).eval(), series(target=lambda i, _: i)
    assert diagnose(task, samples, with_examples=False) == {}
    assert set(diagnose(task, samples, with_examples=True)) == {"embeddings"}


@pytest.mark.parametrize("per", ["sample", "token"])
def test_numbers_stand_beside_the_true_ones(per):
    samples = series(target=lambda i, t: np.hstack([t, -t]) if per == "token" else np.array([i, -i], dtype=float))
    task = Regression(MODEL, 2, per=per).eval()
    shown = diagnose(task, samples, with_examples=True)["agreement"]
    truth = np.concatenate([sample.target.reshape(-1, 2).numpy() for sample in samples])
    assert_allclose(shown["truth"], truth.T)
    assert_allclose(shown["predicted"], np.concatenate([np.reshape(x, (-1, 2)) for x in predict(task, samples)]).T)


def test_diagnostics_of_many_samples_stay_small():
    samples = series(2 * N_NUMBERS, target=lambda i, t: t)
    found = diagnose(Regression(MODEL, per="token").eval(), samples, with_examples=True)
    assert found["agreement"]["truth"].shape == (1, N_NUMBERS)
    assert len(found["embeddings"]["points"]) == diagnostics.N_EMBEDDED
    assert diagnose(Regression(MODEL).eval(), samples, with_examples=False) == {}


def test_points_are_seen_or_hidden_and_hidden_ones_are_predicted():
    task = MaskedReconstruction(MODEL, masking=UniformTokens()).eval()
    samples = series(hidden=lambda i, t: np.arange(len(t)) % 2 == 1)
    shown = diagnose(task, samples, with_examples=True)["reconstructions"]
    assert [one["name"] for one in shown] == [str(i) for i in range(diagnostics.N_SAMPLES)]
    answers = predict(task, samples)
    for sample, answer, drawn in zip(samples, answers, shown, strict=False):
        (panel,) = drawn["channels"]
        times, hidden = sample.positions[:, 0].numpy(), sample.hidden.numpy()
        assert_allclose(panel["observed"][0], times[~hidden])
        assert_allclose(panel["hidden"], [times[hidden], sample.values[hidden, 0]])
        assert_allclose(panel["predicted"], answer[:, 0], rtol=1e-4, atol=1e-6)


def test_channels_have_their_names_whether_they_share_tokens_or_not():
    X = np.random.default_rng(0).normal(size=(2, 5, 3))
    together = romae.from_arrays(X, channels=["a", "b", "c"])
    apart = romae.from_arrays(X, channels=["a", "b", "c"], tokens="scalars")
    for samples in (together, apart):
        found = diagnostics.channels(samples[0], samples.schema)
        assert [one.name for one in found] == ["a", "b", "c"]
        for i, one in enumerate(found):
            assert_allclose(samples[0].values[one.is_here, one.column], X[0, :, i], rtol=1e-6)
    assert [one.name for one in diagnostics.channels(together[0], None)] == ["value 1", "value 2", "value 3"]


def test_points_are_spread_from_the_first_to_the_last():
    assert subsets.evenly_spread(3, 100) == [0, 1, 2] and subsets.evenly_spread(0, 5) == []
    many = subsets.evenly_spread(1000, 100)
    assert len(many) == 100 and (many[0], many[-1]) == (0, 999)


def test_curves_are_the_answers_of_the_model_and_lines_between_observed_points():
    table = {"id": [0] * 6, "time": [0.0, 1, 2, 4, 5, 6], "x": [0.0, 2, 4, 8, 10, 12], "y": [1.0, 3, 2, 5, 4, 6]}
    samples = romae.from_table(pd.DataFrame(table), id="id", time="time", values=["x", "y"])
    sample = replace(samples[0], hidden=np.array([0, 1, 0, 1, 0, 0], dtype=bool))
    task = MaskedReconstruction(replace(MODEL, channels=2), masking=UniformTokens()).eval()
    answer = predict(task, romae.SampleSet([sample], samples.schema))[0]
    first, second = diagnostics.panels(sample, answer, samples.schema, task)
    assert (first.title, second.title) == ("x", "y")
    assert_allclose(first.baseline[1], 2 * first.baseline[0], rtol=1e-6)  # x is a line over time
    for column, panel in enumerate((first, second)):
        at_hidden = [np.interp(time, *panel.curve) for time in panel.hidden[0]]
        assert_allclose(at_hidden, answer[:, column], atol=1e-2)
    without = diagnostics.panels(sample, answer, samples.schema)
    assert all(len(panel.curve[0]) == len(panel.baseline[0]) == 0 for panel in without)


def test_a_model_with_a_likelihood_has_bands_around_its_curve():
    table = {"id": [0] * 6, "time": [0.0, 1, 2, 4, 5, 6], "x": [0.0, 2, 4, 8, 10, 12]}
    samples = romae.from_table(pd.DataFrame(table), id="id", time="time", values=["x"])
    sample = replace(samples[0], hidden=np.array([0, 1, 0, 1, 0, 0], dtype=bool))
    task = MaskedReconstruction(MODEL, masking=UniformTokens(), likelihood="normal").eval()
    answer = predict(task, romae.SampleSet([sample], samples.schema))[0]
    (panel,) = diagnostics.panels(sample, answer, samples.schema, task)
    wide, narrow = panel.bands
    assert (wide.level, narrow.level) == (0.9, 0.5)
    times, curve = panel.curve
    assert (wide.lower < narrow.lower).all() and (narrow.lower < curve).all()
    assert (curve < narrow.upper).all() and (narrow.upper < wide.upper).all()
    told = romae.interpolate(task, [sample], [times], returns="distribution")[0]
    assert_allclose(wide.upper, told.quantile(0.95)[:, 0])
    plain = MaskedReconstruction(MODEL, masking=UniformTokens()).eval()
    assert diagnostics.panels(sample, answer, samples.schema, plain)[0].bands == ()


def test_ranks_count_the_samples_of_the_same_class_before():
    assert subsets.rank_in_class(np.array([1, 0, 1, 1, 0])).tolist() == [0, 0, 1, 2, 1]


def test_principal_components_keep_the_distances_of_points_in_a_plane():
    random = np.random.default_rng(0)
    plane, basis = random.normal(size=(20, 2)), np.linalg.qr(random.normal(size=(7, 2)))[0]
    projected = diagnostics.principal_components(plane @ basis.T)
    distances = [np.linalg.norm(x[:, None] - x[None], axis=-1) for x in (plane, projected)]
    assert_allclose(*distances, atol=1e-9)
    assert diagnostics.principal_components(np.ones((1, 7))).tolist() == [[0, 0]]

"""Curves drawn as wholes: as independent draws where nothing depends on anything, correlated where values are."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

import romae
from messages import refused
from romae.data.schema import Schema
from romae.inference.distributions import Distribution, Units
from romae.inference.joint import coarse_to_fine, drawn
from romae.model.likelihoods import LOG_RANGE, Normal
from romae.tokens.layout import Layout
from romae.tokens.tokens import Tokens

SIZE = romae.Size(width=16, heads=2, depth=1)
CONFIG = romae.ModelConfig(channels=1, position_dims=1, encoder=SIZE, decoder=SIZE, cls=False)
TIMES = np.array([0.5, 1.5, 4.0, 2.5])


def waves(n=8, channels=1, seed=0):
    random = np.random.default_rng(seed)
    return romae.from_arrays(5 + 3 * random.normal(size=(n, 6, channels)), times=[np.arange(6.0)] * n)


def model(config=CONFIG, likelihood="mixture", scaling=None, **settings):
    torch.manual_seed(0)
    task = romae.MaskedReconstruction(config, likelihood=likelihood, **settings)
    task.scaling = romae.fit_scaling(waves(channels=config.channels)) if scaling is None else scaling
    return task


def told(task, samples, times=TIMES, **how):
    return romae.interpolate(task, samples, [times] * len(samples), returns="distribution", **how)


@pytest.mark.parametrize("likelihood", ["normal", "student", "mixture", "quantiles"])
@pytest.mark.parametrize("center", ["global", "sample"])
def test_one_query_is_drawn_as_it_is_alone(likelihood, center):
    scaling = romae.fit_scaling(waves(), values="standard" if center == "sample" else "asinh", center=center)
    one = told(model(likelihood=likelihood, scaling=scaling), waves(1), TIMES[:1])[0]
    assert_allclose(one.sample(50, seed=3, joint=True), one.sample(50, seed=3), rtol=1e-4, atol=1e-4)


def test_where_answers_depend_on_no_value_draws_are_independent():
    task = model(likelihood="normal")
    with torch.no_grad():
        task.head.requires_grad_(False)
        for parameter in task.head.parameters():
            parameter.mul_(0.0)  # the same distribution everywhere, whatever is seen
    one = told(task, waves(1))[0]
    assert_allclose(one.sample(30, seed=1, joint=True), one.sample(30, seed=1), rtol=1e-5)


def test_draws_of_exact_conditionals_are_draws_of_the_joint_distribution():
    times = np.linspace(0, 3, 7)
    cover = np.exp(-0.5 * (times[:, None] - times) ** 2) + 1e-6 * np.eye(7)
    asked = []

    def exact(visible, i):
        n = visible.layout.n_samples
        seen = visible.values.reshape(n, -1).double().numpy()[:, 1:]  # the first stands for what was observed
        known = cover[np.ix_(asked, asked)]
        weight = np.linalg.solve(known, cover[asked, i]) if asked else np.zeros(0)
        spread = np.sqrt(cover[i, i] - weight @ cover[asked, i])
        raw = np.stack([seen @ weight, np.full(n, LOG_RANGE * np.arctanh(np.log(spread) / LOG_RANGE))], axis=-1)
        asked.append(i)
        zero, one = np.zeros((n, 1)), np.ones((n, 1))
        return Distribution(Normal(), raw[:, None], Units(2 * one, 0.5 + zero, 3 * one, 7 * one))

    visible = Tokens(torch.zeros(1, 1, dtype=torch.float64), torch.zeros(1, 1), Layout.of([1]))
    levels = np.random.default_rng(0).uniform(size=(4_000, 7, 1))

    # What is seen are z / 2 + 0.5, so that the model must undo it.
    def undone(visible, i):
        inner = replace(visible, values=torch.cat([visible.values]).sub(0.5).mul(2.0))
        return exact(inner, i)

    curves = drawn(undone, visible, torch.from_numpy(times[:, None]).float(), levels, coarse_to_fine(times[:, None]))
    z = ((curves[..., 0] - 7) / 3 - 0.5) * 2
    assert_allclose(np.cov(z.T), cover, atol=0.1)
    assert_allclose(z.mean(0), 0, atol=0.08)


def test_neighbours_of_a_curve_that_was_learned_go_together():
    random = np.random.default_rng(0)
    values = random.normal(size=(256, 1)) + 0.5 * random.normal(size=(256, 5))  # a level of each series, and noise
    series = romae.from_arrays(values[..., None], times=[np.arange(5.0)] * 256)
    torch.manual_seed(0)
    task = romae.MaskedReconstruction(CONFIG, masking=romae.UniformTokens(ratio=0.5), likelihood="normal")
    config = romae.TrainConfig(epochs=8, batch_size=32, lr=1e-2, device="cpu")
    romae.train(task, series, config, scaling=romae.fit_scaling(series), quiet=True)
    one = told(task, [romae.Sample([[0.5]], [[0.0]])], np.array([1.0, 2.0, 3.0]))[0]
    independent, joint = (one.sample(600, seed=0, joint=joint)[..., 0] for joint in (False, True))
    alone, together = (np.corrcoef(curves.T)[0, 1] for curves in (independent, joint))
    assert abs(alone) < 0.15 and together > 0.25, "0.44 for a model that has learned all"
    assert 0.6 < joint.std() / independent.std() < 1.6


def test_seeds_parts_and_the_budget_of_tokens():
    task, samples = model(), waves(2)
    one = told(task, samples)[1]
    curves = one.sample(9, seed=5, joint=True)
    assert curves.shape == (9, 4, 1)
    assert_array_equal(one.sample(9, seed=5, joint=True), curves)
    assert not np.allclose(one.sample(9, seed=6, joint=True), curves)
    small = told(task, samples, tokens_per_batch=16)[1]
    assert_allclose(small.sample(9, seed=5, joint=True), curves, rtol=1e-3, atol=1e-3)
    alone = told(task, samples[1:], TIMES)[0]
    assert_allclose(alone.sample(9, seed=5, joint=True), curves, rtol=1e-3, atol=1e-3)
    part = one[1:3, 0]
    assert part.sample(9, seed=5, joint=True).shape == (9, 2)
    assert_allclose(one[:1].sample(9, seed=5, joint=True), one[:1].sample(9, seed=5), rtol=1e-3, atol=1e-3)
    assert told(task, samples, np.zeros((0, 1)))[0].sample(2, seed=0, joint=True).shape == (2, 0, 1)


def test_columns_and_channels_keep_their_places():
    wide = model(replace(CONFIG, channels=2))
    two = romae.interpolate(wide, waves(1, channels=2), [TIMES], channels=[1], returns="distribution")[0]
    assert two.sample(5, seed=0, joint=True).shape == (5, 4, 1)
    axis = model(replace(CONFIG, position_dims=2, kinds=3), scaling=romae.Scaling())
    axis.schema = Schema(channel="band", channels=("g", "r", "z"), values=("flux",))
    sample = romae.Sample([[1.0], [2.0]], [[0.0, 0.0], [1.0, 1.0]])
    by_channel = romae.interpolate(axis, [sample], [TIMES], channels=["z", "g"], returns="distribution")[0]
    assert by_channel.sample(5, seed=0, joint=True).shape == (5, 4, 2)


def test_queries_go_from_coarse_to_fine_and_forecasts_in_time():
    places = np.array([3.0, 0.0, 4.0, 1.0, 2.0])[:, None]
    assert places[coarse_to_fine(places), 0].tolist() == [0, 4, 2, 1, 3]
    assert places[coarse_to_fine(places, in_time=True), 0].tolist() == [0, 1, 2, 3, 4]
    for n in (1, 2, 3, 17):
        assert sorted(coarse_to_fine(np.random.default_rng(n).normal(size=(n, 2))).tolist()) == list(range(n))


def test_curves_that_cannot_be_drawn_are_refused(without_shape_checks):
    one = told(model(), waves(1))[0]
    with refused(ValueError, "n=1 or more"):
        one.sample(0, joint=True)
    hidden = romae.Sample([[1.0], [2.0]], [[0.0], [1.0]], hidden=[True, False])
    predicted = romae.predict(model(), [hidden], returns="distribution")[0]
    with refused(ValueError, "romae.interpolate", "leave joint out"):
        predicted.sample(2, joint=True)
    with refused(ValueError, "windows", "leave joint out"):
        told(model(replace(CONFIG, window=2, queries="joint")), waves(1))[0].sample(2, joint=True)
    with refused(ValueError, "grouped=True", "leave joint out"):
        told(model(replace(CONFIG, queries="joint")), waves(1), grouped=True)[0].sample(2, joint=True)
    copy = pickle.loads(pickle.dumps(one))
    assert_array_equal(copy.sample(3, seed=0), one.sample(3, seed=0))
    with refused(ValueError, "copy", "leave joint out"):
        copy.sample(2, joint=True)

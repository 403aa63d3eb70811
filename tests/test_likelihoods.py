"""Likelihoods: densities that are those of the books, losses that no far value blows up, quantiles that rise."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch.testing import assert_close

import romae
from messages import refused
from romae.model import likelihoods
from romae.model.likelihoods import Mixture, Normal, Quantiles, Student, as_likelihood, loss_of_normal, scale_of

ALL = [Normal(), Student(), Mixture(n=3), Quantiles(n=7)]
DENSITIES = ALL[:3]


def drawn(likelihood, n=5, k=2, seed=0, factor=1.0):
    generator = torch.Generator().manual_seed(seed)
    return factor * torch.randn(n, k, likelihood.n_parameters, generator=generator, dtype=torch.float64)


def test_densities_are_those_of_the_books():
    x = torch.linspace(-1, 1, 10, dtype=torch.float64).reshape(5, 2)  # within six scales of any centre
    raw = drawn(Normal(), factor=0.3)
    expected = stats.norm(raw[..., 0], scale_of(raw[..., 1])).logpdf(x)
    np.testing.assert_allclose(Normal().log_density(raw, x), expected, rtol=1e-12)
    raw = drawn(Student())
    freedom = Student().freedom(raw)
    expected = stats.t(freedom, raw[..., 0], scale_of(raw[..., 1])).logpdf(x)
    np.testing.assert_allclose(Student().log_density(raw, x), expected, rtol=1e-10)
    assert float(Student().freedom(torch.zeros(1, 1, 3, dtype=torch.float64))) == pytest.approx(8)
    assert float(freedom.min()) > 2.1 and float(freedom.max()) < 100
    weight, centre, scale = Mixture(n=3).parts(raw := drawn(Mixture(n=3), factor=0.3))
    density = (weight.exp() * torch.from_numpy(stats.norm(centre, scale).pdf(x.unsqueeze(-1).numpy()))).sum(-1)
    np.testing.assert_allclose(Mixture(n=3).log_density(raw, x), density.log(), rtol=1e-12)


@pytest.mark.parametrize("likelihood", DENSITIES, ids=lambda one: one.kind)
def test_a_density_has_the_mean_that_is_told_and_an_area_of_one(likelihood):
    raw = drawn(likelihood, n=3, factor=0.5)
    # Of Student's distribution 2e-7 lies beyond, and a tenth of a thousandth of its mean.
    x = torch.linspace(-3_000, 3_000, 60_001, dtype=torch.float64)
    for i in range(3):
        row = raw[i : i + 1, :1].expand(len(x), 1, -1)
        density = likelihood.log_density(row, x.unsqueeze(-1)).squeeze(-1).exp()
        assert float(torch.trapezoid(density, x)) == pytest.approx(1, abs=1e-6)
        mean = float(torch.trapezoid(density * x, x))
        assert mean == pytest.approx(float(likelihood.mean(raw)[i, 0]), abs=1e-4)


@pytest.mark.parametrize("likelihood", ALL, ids=lambda one: one.kind)
@pytest.mark.parametrize("far", [6_251.0, -1e6, 1e18])
def test_a_value_far_out_has_a_finite_loss_and_a_gradient_that_is_bounded(likelihood, far):
    raw = drawn(likelihood).float().requires_grad_()
    loss = likelihood.loss(raw, torch.full((5, 2), far))
    loss.sum().backward()
    assert torch.isfinite(loss).all() and torch.isfinite(raw.grad).all()
    most = 60 * (np.log(abs(far)) if likelihood.kind == "student" else 1)  # its tails are learned from such values
    assert float(raw.grad.abs().max()) < most, "that of a squared error would be twice the distance"


@pytest.mark.parametrize("likelihood", ALL, ids=lambda one: one.kind)
def test_raw_parameters_of_any_size_are_a_distribution(likelihood):
    for factor in (0.0, 1e3, 1e8):
        raw = drawn(likelihood, factor=factor).float()
        assert torch.isfinite(likelihood.mean(raw)).all()
        assert torch.isfinite(likelihood.loss(raw, torch.zeros(5, 2))).all()
    assert float(scale_of(torch.tensor(0.0))) == 1
    assert float(scale_of(torch.tensor(-1e9))) > 9e-4 and float(scale_of(torch.tensor(1e9))) < 1_100


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1_000), st.sampled_from([3, 7, 19]), st.floats(0.1, 30))
def test_quantiles_rise_and_begin_as_those_of_a_normal(seed, n, factor):
    likelihood = Quantiles(n=n)
    values = likelihood.values(drawn(likelihood, seed=seed, factor=factor))
    assert bool((values.diff() > 0).all())
    start = likelihood.values(torch.zeros(1, 1, n, dtype=torch.float64))[0, 0]
    np.testing.assert_allclose(start, stats.norm.ppf(np.arange(1, n + 1) / (n + 1)), atol=1e-12)


def test_the_pinball_loss_is_least_at_the_quantiles_and_about_the_crps():
    random = np.random.default_rng(0)
    x = torch.from_numpy(random.normal(2.0, 3.0, 20_000)).unsqueeze(-1)
    likelihood = Quantiles(n=99)
    raw = torch.zeros(1, 1, 99, dtype=torch.float64)
    raw[..., 0], raw[..., 1:] = 2.0, likelihoods.LOG_RANGE * np.arctanh(np.log(3.0) / likelihoods.LOG_RANGE)
    true = likelihood.loss(raw.expand(len(x), -1, -1), x).mean()
    assert float(true) == pytest.approx(3 / np.sqrt(np.pi), rel=0.02), "the CRPS of a normal under itself"
    for shift in (-0.1, 0.1):
        moved = raw.clone()
        moved[..., 0] += shift
        assert likelihood.loss(moved.expand(len(x), -1, -1), x).mean() > true


@pytest.mark.parametrize("likelihood", DENSITIES, ids=lambda one: one.kind)
def test_known_noise_widens_a_density_by_its_variance(likelihood):
    raw, x = drawn(likelihood, n=1, k=1, factor=0.3), torch.tensor([[0.7]], dtype=torch.float64)
    variance = torch.tensor([[2.25]], dtype=torch.float64)
    noisy = float(likelihood.log_density(raw, x, variance).exp())
    if likelihood.kind == "student":  # its scale is widened; of the sum there is no formula
        wider = raw.clone()
        scale = torch.sqrt(scale_of(raw[..., 1]).square() + 2.25)
        wider[..., 1] = likelihoods.LOG_RANGE * torch.atanh(scale.log() / likelihoods.LOG_RANGE)
        assert noisy == pytest.approx(float(likelihood.log_density(wider, x).exp()))
        return
    noise = torch.linspace(-15, 15, 20_001, dtype=torch.float64)
    inner = likelihood.log_density(raw.expand(len(noise), -1, -1), x - noise.unsqueeze(-1)).squeeze(-1).exp()
    weight = torch.from_numpy(stats.norm(0, 1.5).pdf(noise))
    assert noisy == pytest.approx(float(torch.trapezoid(inner * weight, noise)), rel=1e-6)


def test_quantiles_refuse_known_noise():
    with refused(ValueError, "measurement errors", "'normal'"):
        Quantiles().loss(torch.zeros(1, 1, 19), torch.zeros(1, 1), torch.ones(1, 1))


@pytest.mark.parametrize("likelihood", ALL, ids=lambda one: one.kind)
def test_the_squared_error_of_the_mean_is_added_as_it_is_weighed(likelihood):
    weighed = type(likelihood)(**{**vars(likelihood), "mean_weight": 0.5})
    raw, x = drawn(likelihood), torch.ones(5, 2, dtype=torch.float64)
    expected = likelihood.loss(raw, x) + 0.5 * (likelihood.mean(raw) - x).square()
    assert_close(weighed.loss(raw, x), expected)


def test_a_simple_prediction_has_the_loss_of_a_normal():
    x, mean = torch.tensor([[0.5, -1.0]], dtype=torch.float64), torch.zeros(1, 2, dtype=torch.float64)
    spread = torch.tensor(1.7, dtype=torch.float64)
    raw = torch.zeros(1, 2, 2, dtype=torch.float64)
    raw[..., 1] = likelihoods.LOG_RANGE * torch.atanh(spread.log() / likelihoods.LOG_RANGE)
    assert_close(loss_of_normal(Normal(), x, mean, spread), Normal().loss(raw, x))
    steps = torch.zeros(1, 2, 7, dtype=torch.float64)
    steps[..., 1:] = raw[..., 1:]
    assert_close(loss_of_normal(Quantiles(n=7), x, mean, spread), Quantiles(n=7).loss(steps, x))
    assert_close(loss_of_normal(Mixture(mean_weight=1.0), x, mean, spread), Normal(mean_weight=1.0).loss(raw, x))


def test_what_is_no_likelihood_is_refused():
    assert (
        as_likelihood("mixture") == Mixture() and as_likelihood(None) is None and as_likelihood(Student()) == Student()
    )
    for given_ in ("gauss", 3, Normal):
        with refused(ValueError, "likelihood", "'mixture'"):
            as_likelihood(given_)
    for make, *said in (
        (lambda: Mixture(n=0), "component", "n=1"),
        (lambda: Quantiles(n=4), "odd", "median, not 4"),
        (lambda: Quantiles(n=1), "odd"),
        (lambda: Normal(mean_weight=-1), "mean_weight"),
        (lambda: Student(mean_weight=float("nan")), "mean_weight"),
    ):
        with refused(ValueError, *said):
            make()


# In tasks

SIZE = romae.Size(width=16, heads=2, depth=1)
MODEL = romae.ModelConfig(channels=2, position_dims=1, encoder=SIZE, decoder=SIZE, cls=False)


def tasks_of(likelihood):
    torch.manual_seed(0)
    return [
        romae.MaskedReconstruction(MODEL, likelihood=likelihood),
        romae.Regression(MODEL, n_targets=3, likelihood=likelihood),
        romae.Regression(MODEL, n_targets=1, per="token", likelihood=likelihood),
    ]


def samples_of(task, n=6):
    random, samples = np.random.default_rng(0), []
    for i in range(n):
        length = 4 + i
        target = None
        if isinstance(task, romae.Regression):
            target = random.normal(size=(3,) if task.per == "sample" else (length, 1))
        samples.append(romae.Sample(random.normal(size=(length, 2)), np.arange(length)[:, None], target=target, id=i))
    return samples


@pytest.mark.parametrize("likelihood", ALL, ids=lambda one: one.kind)
@pytest.mark.parametrize("i", range(3))
def test_a_task_predicts_the_mean_and_its_loss_is_that_of_the_distribution(likelihood, i, tmp_path):
    task = tasks_of(likelihood)[i].eval()
    batch = task.prepare(romae.collate(samples_of(task)), torch.Generator().manual_seed(0))
    outputs = []
    task.head.register_forward_hook(lambda module, inputs, output: outputs.append(output))
    with torch.no_grad():
        loss, told = task(batch), task.predict(batch)
    raw = outputs[0].unflatten(-1, (-1, likelihood.n_parameters))
    target = batch.hidden.values if i == 0 else batch.target.reshape(told.shape)
    assert_close(told, likelihood.mean(raw))
    assert_close(loss.mean.float(), likelihood.loss(raw, target.float()).mean())
    assert int(loss.weight) == target.numel() and bool(torch.isfinite(task.trivial(batch).mean))
    task.save(tmp_path / "model")
    again = romae.load(tmp_path / "model").eval()
    assert again.likelihood == likelihood
    with torch.no_grad():
        assert_close(again.predict(batch), told, rtol=0, atol=0)


def test_samples_that_only_fill_a_batch_and_weights_count_as_in_a_squared_error():
    for task in tasks_of(Mixture(n=2))[:2]:
        batch = task.eval().prepare(romae.collate(samples_of(task)), torch.Generator().manual_seed(0))
        plain = task(batch)
        doubled = task(replace(batch, weight=torch.full((6,), 2.0)))
        assert_close(doubled.mean, plain.mean)
        assert_close(doubled.weight, 2 * plain.weight)
        some = replace(batch, real=torch.tensor([True] * 5 + [False]))
        assert float(task(some).weight) < float(plain.weight) and bool(torch.isfinite(task(some).mean))


def noisy(n, seed):
    """Targets around 0 whose spread is told by the values: 0.2 where they are 0, 2 where they are 1."""
    random, samples = np.random.default_rng(seed), []
    for i in range(n):
        is_wide = i % 2
        target = (2.0 if is_wide else 0.2) * random.normal(size=1)
        samples.append(romae.Sample(np.full((3, 1), float(is_wide)), np.arange(3.0)[:, None], target=target, id=i))
    return samples


@pytest.mark.parametrize("likelihood", ["normal", "student", "mixture", "quantiles"])
def test_the_spread_is_learned_where_it_differs(likelihood):
    torch.manual_seed(0)
    model = romae.ModelConfig(channels=1, position_dims=1, encoder=SIZE, decoder=SIZE, cls=False)
    task = romae.Regression(model, likelihood=likelihood)
    config = romae.TrainConfig(epochs=12, batch_size=32, lr=1e-2, device="cpu")
    history = romae.train(task, noisy(320, 0), config, quiet=True)
    test = romae.collate(noisy(2, 1))
    outputs = []
    task.head.register_forward_hook(lambda module, inputs, output: outputs.append(output))
    with torch.no_grad():
        task.eval().predict(test)
    raw, one = outputs[0].unflatten(-1, (1, -1)), task.likelihood
    if one.kind == "quantiles":
        spreads = one.values(raw)[:, 0].diff().sum(-1) / 3.29  # 90 % of a normal
    elif one.kind == "mixture":
        weight, centre, scale = one.parts(raw)
        second = (weight.exp() * (centre.square() + scale.square())).sum(-1)
        spreads = (second - one.mean(raw).square()).sqrt()[:, 0]
    else:
        spreads = scale_of(raw[:, 0, 1])
    assert 0.1 < float(spreads[0]) < 0.35 and 1.3 < float(spreads[1]) < 2.8
    assert history.records[-1]["loss"] < float(task.trivial(romae.collate(noisy(320, 0))).mean)

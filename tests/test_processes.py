"""Gaussian processes in closed form: batched answers are the textbook's, and channels are used where they help."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import romae
from romae.inference.zero import answers
from romae.model.gate import N_FEATURES, N_OUTPUTS, Gate
from romae.model.likelihoods import Mixture
from romae.prior.exact import GaussianSeries
from romae.processes import alone, together
from romae.processes.average import averaged
from romae.processes.cells import Cells
from romae.processes.evidence import SHAPE
from romae.tokens.layout import Layout
from romae.tokens.tokens import Tokens


def tokens(*series):
    """Series of (time from 0 to 1, channel, value), with no known errors, as the model sees them."""
    values = [np.stack([s[2], np.full(len(s[2]), -7.0)], 1) for s in series]
    positions = [np.stack([64 * s[0], 10.0 * s[1]], 1) for s in series]
    return Tokens(
        torch.from_numpy(np.concatenate(values)),
        torch.from_numpy(np.concatenate(positions)).float(),
        Layout.of([len(s[0]) for s in series]),
    )


def asked(*queries):
    """Queries of (time, channel) for each series."""
    at = [np.stack([64 * q[0], 10.0 * q[1]], 1) for q in queries]
    return torch.from_numpy(np.concatenate(at)).float(), Layout.of([len(x) for x in at])


def moments(result):
    share = result.log_weight.exp()
    mean = (share * result.centre).sum(1)
    return mean.numpy(), (share * (result.scale**2 + (result.centre - mean[:, None]) ** 2)).sum(1).sqrt().numpy()


def one_channel(n=25, seed=0, noise=0.1):
    random = np.random.default_rng(seed)
    times = np.sort(random.uniform(0, 1, n))
    times = (times - times[0]) / (np.ptp(times) or 1.0)
    return times, np.zeros(n), np.sin(7 * times) + noise * random.normal(size=n)


def textbook(times, values, queries):
    """Each kernel and noise by itself, with dense inverses: log evidence, mean and deviation at the queries."""
    from scipy.special import gammaln

    lag, across = np.abs(times[:, None] - times), np.abs(times[:, None] - queries)
    cells = Cells.of(tokens((times, 0 * times, values)), *asked((queries, 0 * queries)), torch.device("cpu"))
    (group,) = cells.groups(cells.cell_of_token, cells.count, 1)
    periods = alone.periods_of(group)[0].tolist()
    kernels = [lambda r, s=s: np.exp(-0.5 * (r / s) ** 2) for s in alone.SMOOTH]
    kernels += [lambda r, s=s: (1 + math.sqrt(3) * r / s) * np.exp(-math.sqrt(3) * r / s) for s in alone.ROUGH]
    kernels += [lambda r, s=s: np.exp(-r / s) for s in alone.ROUGHEST]
    n_plain = len(kernels)
    for p in periods:
        kernels += [
            lambda r, s=s, w=w, p=p: np.exp(-0.5 * (r / s) ** 2 - 2 * (np.sin(np.pi * r / p) / w) ** 2)
            for s, w in alone.PERIODIC
        ]
    n, found = len(times), []
    for i, kernel in enumerate(kernels):
        odds = 1.0 if i < n_plain else alone.ODDS_OF_PERIODS * n_plain / (len(kernels) - n_plain)
        for noise in alone.NOISES:
            covariance = kernel(lag) + alone.OFFSET + noise**2 * np.eye(n)
            inverse = np.linalg.inv(covariance)
            square = values @ inverse @ values
            shape, rate = SHAPE + n / 2, SHAPE + square / 2
            evidence = (
                gammaln(shape) - gammaln(SHAPE) + SHAPE * np.log(SHAPE) - shape * np.log(rate)
                - 0.5 * np.linalg.slogdet(covariance)[1] - n / 2 * np.log(2 * np.pi) + np.log(odds)
            )  # fmt: skip
            between = kernel(across) + alone.OFFSET
            mean = between.T @ inverse @ values
            variance = 1 + alone.OFFSET + noise**2 - np.einsum("nq,nm,mq->q", between, inverse, between)
            found.append((evidence, mean, np.sqrt(variance * rate / (shape - 1))))
    return found


def test_many_processes_at_once_are_those_of_the_textbook():
    times, channel, values = one_channel(noise=0.3)
    queries = np.array([-0.1, 0.33, 0.5, 1.2])
    result = averaged(tokens((times, channel, values)), *asked((queries, 0 * queries)))
    best = sorted(textbook(times, values, queries), key=lambda one: -one[0])[:6]
    weights = np.exp([one[0] for one in best])
    assert np.allclose(result.log_weight.exp()[0], weights / weights.sum(), rtol=1e-2)
    assert np.allclose(result.centre.T, [one[1] for one in best], atol=1e-4)
    assert np.allclose(result.scale.T, [one[2] for one in best], rtol=1e-3)


def test_neighbours_in_a_batch_change_nothing():
    many = [one_channel(n, seed) for n, seed in ((5, 0), (40, 1), (23, 2), (1, 3), (64, 4))]
    queries = [(np.linspace(-0.2, 1.3, 3 + i), np.zeros(3 + i)) for i in range(len(many))]
    whole = averaged(tokens(*many), *asked(*queries))
    start = 0
    for series, query in zip(many, queries, strict=True):
        part = averaged(tokens(series), *asked(query))
        for name in ("log_weight", "centre", "scale", "surprise", "distance"):
            assert torch.allclose(
                getattr(whole, name)[start : start + len(query[0])], getattr(part, name), atol=1e-3
            ), name
        start += len(query[0])


def test_a_value_that_is_left_out_is_predicted_as_if_it_had_never_been_there():
    times, channel, values = one_channel(12, noise=0.3)
    visible = tokens((times, channel, values))
    cells = Cells.of(visible, *asked((times[:1], channel[:1])), torch.device("cpu"))
    (group,) = cells.groups(cells.cell_of_token, cells.count, 1)
    posterior = alone.each_alone(group, alone.periods_of(group))
    precision = posterior.inverse.square().sum(2)
    lag = group.lag
    among = alone.kernels(lag, alone.periods_of(group)) + alone.OFFSET
    first = int(posterior.chosen[0, 0])
    covariance = among[0, first // len(alone.NOISES)].numpy() + alone.NOISES[first % len(alone.NOISES)] ** 2 * np.eye(
        12
    )
    for i in range(12):
        rest = np.arange(12) != i
        weights = np.linalg.solve(covariance[np.ix_(rest, rest)], covariance[rest, i])
        miss = values[i] - weights @ values[rest]
        variance = covariance[i, i] - weights @ covariance[rest, i]
        assert math.isclose(float(posterior.weights[0, 0, i] / precision[0, 0, i]), miss, abs_tol=1e-6)
        assert math.isclose(float(1 / precision[0, 0, i]), variance, rel_tol=1e-6)


def test_a_sine_without_noise_goes_on():
    times = np.sort(np.random.default_rng(0).uniform(0, 1, 40))
    times = (times - times[0]) / np.ptp(times)
    queries = np.linspace(0, 1.25, 60)
    result = averaged(tokens((times, 0 * times, np.sin(20 * times))), *asked((queries, 0 * queries)))
    mean, deviation = moments(result)
    assert np.abs(mean - np.sin(20 * queries)).max() < 0.05
    assert deviation[queries < 1].max() < 0.05 < deviation[-1] + 0.05


def test_on_gaussian_functions_averages_are_near_the_exact_posterior():
    series = GaussianSeries.drawn(96, seed=7, n_observed=32, n_queries=8)
    times, values, queries = (x.numpy() for x in (series.times, series.values, series.queries))
    begin, span = times.min(1, keepdims=True), np.ptp(times, axis=1)[:, None]
    many = [(t, 0 * t, x) for t, x in zip((times - begin) / span, values, strict=True)]
    mean, deviation = moments(averaged(tokens(*many), *asked(*((q, 0 * q) for q in (queries - begin) / span))))
    exact, least = (x.numpy().ravel() for x in series.posterior())
    truth = series.truth.numpy().ravel()
    assert np.mean((mean - truth) ** 2) < 1.5 * np.mean((exact - truth) ** 2) < 0.6 * np.mean(truth**2)
    assert abs(np.mean(np.abs(truth - mean) < 1.645 * deviation) - 0.9) < 0.04
    assert np.mean((exact - truth) ** 2 / least**2) < 1.2  # the floor is one


def three_channels(seed=0, n=30):
    """Two channels of noise that no smoothness tells, and a third that is their mean; it is hidden in places."""
    random = np.random.default_rng(seed)
    times = np.sort(random.uniform(0, 1, n))
    times = (times - times[0]) / np.ptp(times)
    first, second = np.sin(6 * times) + random.normal(size=n), random.normal(size=n)
    third = (first + second) / 1.6
    hidden = np.zeros(n, dtype=bool)
    hidden[3::5] = True
    seen = ~hidden
    all_times = np.concatenate([times, times, times[seen]])
    channel = np.repeat([0.0, 1.0, 2.0], [n, n, seen.sum()])
    return (all_times, channel, np.concatenate([first, second, third[seen]])), (times[hidden], third[hidden])


def test_a_channel_that_follows_from_two_others_is_told_from_them():
    series, (when, truth) = three_channels()
    with_others = averaged(tokens(series), *asked((when, np.full(len(when), 2.0))))
    own = series[1] == 2
    by_itself = averaged(tokens(tuple(x[own] for x in series)), *asked((when, np.full(len(when), 2.0))))
    assert float(with_others.together.min()) > 0.99
    errors = [np.abs(moments(result)[0] - truth).mean() for result in (with_others, by_itself)]
    assert errors[0] < 0.25 * errors[1]
    assert moments(with_others)[1].mean() < 0.5 * moments(by_itself)[1].mean()


def test_channels_that_are_strangers_are_answered_for_by_themselves():
    one, other = one_channel(30, 1, noise=0.2), one_channel(30, 2, noise=0.2)
    other = other[0], other[1] + 1, np.cos(23 * other[0]) + 0.2 * np.random.default_rng(5).normal(size=30)
    both = tuple(np.concatenate(pair) for pair in zip(one, other, strict=True))
    queries = np.linspace(0, 1, 9), np.zeros(9)
    together_, apart = averaged(tokens(both), *asked(queries)), averaged(tokens(one), *asked(queries))
    assert float(together_.together.max()) < 0.5
    assert np.abs(moments(together_)[0] - moments(apart)[0]).max() < 0.1


def test_what_is_too_long_for_a_look_at_all_channels_is_answered_channel_by_channel():
    n = together.MOST_TOKENS
    times = np.linspace(0, 1, n)
    series = np.concatenate([times, times]), np.repeat([0.0, 1.0], n), np.tile(np.sin(9 * times), 2)
    result = averaged(tokens(series), *asked((np.array([0.5]), np.array([1.0]))))
    assert float(result.together) == 0
    assert abs(moments(result)[0][0] - np.sin(4.5)) < 0.02


def test_a_channel_of_which_nothing_is_visible_is_a_standard_normal():
    result = averaged(tokens(one_channel()), *asked((np.array([0.5, 0.5]), np.array([0.0, 3.0]))))
    mean, deviation = moments(result)
    assert (mean[1], deviation[1]) == (0.0, 1.0) != (mean[0], deviation[0])
    assert torch.isfinite(result.centre).all()


def test_no_answer_lies_farther_out_than_twice_the_visible_range():
    times = np.linspace(0, 1, 12)
    result = averaged(tokens((times, 0 * times, 3 * times)), *asked((np.array([5.0, 50.0]), np.zeros(2))))
    assert float(result.centre.abs().max()) <= 3 + 2 * 3 + 1e-9


def test_what_the_gate_looks_at_is_counted_per_channel():
    times = np.array([0.0, 0.25, 0.5, 1.0, 0.0, 1.0])
    channel, values = np.array([0.0, 0, 0, 0, 1, 1]), np.array([1.0, 2.0, 1.0, 3.0, 1.0, 2.0])
    queries = np.array([0.4, 2.0, 0.25]), np.array([0.0, 0.0, 1.0])
    result = averaged(tokens((times, channel, values)), *asked(queries))
    assert np.allclose(result.repeated, [0.5, 0.5, 0.0])  # of the first channel, 1 occurs twice
    assert np.allclose(result.distance, [0.1, 1.0, 0.25])
    assert (result.n_own.tolist(), result.n_others.tolist()) == ([4, 4, 2], [2, 2, 4])


# The gate


def gate(share=0.0, units=2):
    """A gate that says the same of everything: a share of the processes by its logit, and no other widths."""
    rows = tuple((0.0,) * (N_FEATURES + 1) for _ in range(units))
    return Gate(hidden=rows, output=tuple((0.0,) * units + (bias,) for bias in (share, 0.0, 0.0)))


@pytest.fixture(scope="module")
def task():
    torch.manual_seed(0)
    size = romae.Size(width=24, heads=2, depth=1)
    config = romae.ModelConfig(channels=2, errors=1, position_dims=2, encoder=size, decoder=size, cls=False)
    task = romae.MaskedReconstruction(config, likelihood=Mixture(n=3))
    task.scaling = romae.Scaling(centre=((0.0,),), scale=((1.0,),), errors=1, own_units=True)
    return task.eval()


def sine(n=40, seed=0):
    times = np.sort(np.random.default_rng(seed).uniform(0, 10, n))
    return romae.Sample(100 + 5 * np.sin(times)[:, None], times[:, None])


def test_a_gate_is_kept_with_the_model_and_leaves_others_as_they_were(task, tmp_path):
    task.gate = None
    task.save(tmp_path / "before")
    assert '"gate"' not in (tmp_path / "before" / "config.json").read_text()
    task.gate = gate(0.7)
    task.save(tmp_path / "after")
    loaded = romae.load(tmp_path / "after")
    assert loaded.gate == task.gate and romae.load(tmp_path / "before").gate is None


def test_the_share_of_the_processes_decides_the_answer(task):
    when = np.linspace(1, 9, 30)
    errors = []
    for share in (None, -20.0, 20.0):
        task.gate = None if share is None else gate(share)
        [told] = answers(task, [sine()], [when])
        errors.append(np.abs(told.median()[:, 0] - 100 - 5 * np.sin(when)).mean())
    network, few, most = errors
    assert abs(few - network) < 0.1 * network  # an untrained one
    assert most < 0.02 < 1 < network


def test_a_stretch_widens_both_answers_and_changes_no_share():
    features = torch.from_numpy(np.random.default_rng(0).normal(size=(5, N_FEATURES)))
    narrow, wide = gate(0.3)(features), replace(gate(0.3), stretch=1.5)(features)
    assert torch.equal(narrow[0], wide[0])
    assert torch.allclose(1.5 * narrow[1], wide[1]) and torch.allclose(1.5 * narrow[2], wide[2])


def test_curves_that_are_drawn_have_the_distributions_that_are_told(task):
    task.gate = gate(3.0)
    [told] = answers(task, [sine(12)], [np.array([2.0, 2.2, 7.5])])
    draws = told.sample(400, seed=0, joint=True)[..., 0]
    low, high = (told.quantile(level)[:, 0] for level in (0.1, 0.9))
    assert np.abs(((low <= draws) & (draws <= high)).mean(0) - 0.8).max() < 0.1


def test_a_channel_too_long_for_processes_is_the_networks(task):
    n = alone.MOST_TOKENS + 40
    times = np.linspace(0, 50, n)
    sample = romae.Sample(np.sin(times)[:, None], times[:, None], hidden=np.arange(n) % 20 == 5)
    told = []
    for one in (gate(20.0), None):
        task.gate = one
        told.append(romae.predict(task, [sample])[0])
    assert np.allclose(*told, atol=1e-6)


@pytest.mark.parametrize(
    "rows, words",
    [
        ({"hidden": ((0.0,),)}, "weights and a bias"),
        ({"output": ((0.0,),)}, "3 outputs"),
        ({"stretch": 0.0}, "above 0"),
    ],
)
def test_a_gate_of_another_shape_is_refused(rows, words):
    given = {"hidden": gate().hidden, "output": gate().output}
    with pytest.raises(ValueError, match=words):
        Gate(**(given | rows))
    assert N_OUTPUTS == 3


def test_only_mixtures_of_single_numbers_can_have_a_gate(task):
    with pytest.raises(TypeError, match="gate is Gate"):
        task.gate = 0.5
    with pytest.raises(ValueError, match="mixture"):
        romae.MaskedReconstruction(romae.ModelConfig(channels=1, position_dims=1, encoder="tiny-shallow"), gate=gate())

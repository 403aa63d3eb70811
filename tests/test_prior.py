"""The prior: random numbers, functions, times, measurements and questions, and what is known exactly of them."""

import numpy as np
import pytest
import torch

import romae
from romae.prior import dynamics
from romae.prior.draws import Draws
from romae.prior.exact import GaussianSeries
from romae.prior.functions import KERNELS, Kernel, composed, events, gaussian, seasons, walk, waves
from romae.prior.measuring import measured
from romae.prior.relative import InOwnUnits
from romae.prior.times import questions

FAMILIES = {
    "gaussian": gaussian,
    "seasons": seasons,
    "walk": walk,
    "events": events,
    "oscillators": dynamics.oscillators,
}
PRIOR = romae.Prior(most=64, errors=True)


@pytest.fixture(scope="module")
def packed():
    return PRIOR.series(400, seed=3).packed(np.arange(400))


def test_a_sample_draws_the_same_numbers_in_any_batch():
    def numbers(indices):
        draws = Draws(5, torch.tensor(indices))
        first = draws.uniform(3, 4)
        part = draws.of(torch.tensor([len(indices) - 1]))
        return first[-1], draws.normal(7)[-1], part.log_uniform(low=0.1, high=2.0)[-1]

    for alone, together in zip(numbers([9]), numbers([4, 7, 1, 9]), strict=True):
        assert torch.equal(alone, together)


def test_a_longer_axis_begins_with_the_same_numbers():
    short, long = Draws(0, torch.arange(3)), Draws(0, torch.arange(3))
    assert torch.equal(short.uniform(2, 5), long.uniform(2, 9)[..., :5])
    assert torch.equal(short.normal(4), long.normal(6)[:, :4])


def test_numbers_are_as_they_are_meant_to_be():
    draws = Draws(1, torch.arange(200))
    u, z = draws.uniform(500).flatten(), draws.normal(500).flatten()
    assert abs(float(u.mean()) - 0.5) < 0.004 and abs(float(u.var()) - 1 / 12) < 0.001
    assert abs(float(z.mean())) < 0.013 and abs(float(z.var()) - 1) < 0.02 and bool(z.isfinite().all())
    assert abs(float((z.reshape(200, 500)[:-1] * z.reshape(200, 500)[1:]).mean())) < 0.013  # samples are strangers
    counts = torch.bincount(draws.choice((1.0, 0.0, 3.0), 500).flatten(), minlength=3) / 1e5
    assert counts[1] == 0 and abs(float(counts[2]) - 0.75) < 0.006
    assert torch.bincount(draws.whole(500, low=2, high=4).flatten()).tolist()[:2] == [0, 0]


@pytest.mark.parametrize("name", KERNELS)
def test_a_gaussian_function_has_the_covariance_that_its_kernel_states(name):
    n = 6000
    draws = Draws(2, torch.arange(n))
    one = Kernel.drawn(draws)
    kernel = Kernel(torch.full((n,), KERNELS.index(name)), one.scale, one.period, one.width, one.twice_alpha)
    times = torch.tensor([0.3, 0.31, 0.35, 0.5, 0.9]).expand(n, -1)
    values = waves(kernel.frequencies(draws), draws)(times)
    covariance = kernel.covariance(times - times[:, :1])
    # Over samples of different parameters: of 6000 products of normal numbers the mean is known to 0.02.
    assert torch.allclose((values * values[:, :1]).mean(0), covariance.mean(0), atol=0.06)
    sharp = one.scale < 0.1
    assert torch.allclose((values * values[:, :1])[sharp].mean(0), covariance[sharp].mean(0), atol=0.1)


@pytest.mark.parametrize("name", FAMILIES)
def test_functions_have_unit_variance_and_no_gaps(name):
    n = 400
    function = FAMILIES[name](Draws(3, torch.arange(n)))
    times = torch.linspace(0, 1, 200).expand(n, -1)
    values = function(times)
    assert bool(values.isfinite().all())
    assert abs(float(values.square().mean()) - 1) < 0.12
    assert torch.equal(function(times[:, :7]), values[:, :7])  # asked again, it is the same function
    assert bool(function(times - 0.4).isfinite().all())


def test_parts_of_a_composed_function_do_not_depend_on_the_batch():
    families = tuple((1.0, family) for family in FAMILIES.values())
    times = torch.linspace(0, 1, 9)
    together = composed(Draws(4, torch.arange(30)), families)(times.expand(30, -1))
    alone = composed(Draws(4, torch.tensor([17])), families)(times.expand(1, -1))
    assert torch.allclose(together[17], alone[0], atol=1e-5)


def test_trajectories_solve_their_equations():
    """Against a solver of scipy with tight tolerances, and what friction-free springs conserve."""
    from scipy.integrate import solve_ivp

    p = np.array([[0.3, 0.6], [0.5, 0.2], [0.4, 0.9]])
    for name, system in dynamics.SYSTEMS.items():
        begin = np.full((system.n_states, 2), 0.7)
        begin[0] = [0.5, 1.2]
        states = dynamics.trajectories(system, begin, p, 12)
        for i in range(2):

            def slope(t, x, i=i, system=system):
                return system.slope(t, x[:, None], p[:, i : i + 1])[:, 0]

            span = (0, 11 * system.step)
            exact = solve_ivp(slope, span, begin[:, i], method="DOP853", rtol=1e-10, atol=1e-12).y[:, -1]
            assert np.allclose(states[-1, :, i], exact, rtol=2e-3, atol=2e-3), name
    free = np.zeros((3, 1))
    a, b, c, d = dynamics.trajectories(dynamics.SYSTEMS["coupled"], np.array([[1.0], [0], [0], [0.5]]), free, 60)[
        :, :, 0
    ].T
    energy = b**2 + 0.5 * a**2 + d**2 + 0.5 * c**2
    assert np.allclose(energy, energy[0], rtol=1e-4)


def test_a_bank_of_trajectories_is_standard(tmp_path):
    kept = dynamics.bank(0)
    assert bool(kept.isfinite().all())
    assert torch.allclose(kept.mean(1), torch.zeros(len(kept)), atol=0.05)
    assert torch.allclose(kept.std(1), torch.ones(len(kept)), atol=0.1)


def test_series_are_the_same_in_any_order_batch_or_slice(packed):
    series = PRIOR.series(400, seed=3)
    some = series.packed(np.array([301, 7, 399]))
    for place, i in enumerate((301, 7, 399)):
        one, other = some.sample(place), packed.sample(i)
        for name in ("values", "positions"):
            assert torch.allclose(getattr(one, name), getattr(other, name), atol=1e-4)
        assert torch.equal(one.hidden, other.hidden)
        assert len(one) == series.lengths[i]
    assert [sample.id for sample in series[5:8]] == [5, 6, 7]


def test_series_in_memory_are_those_that_are_drawn_when_they_are_asked_for(packed):
    prior = romae.Prior(most=16)
    series = prior.series(40, seed=2)
    kept = series.in_memory(InOwnUnits(n_channels=prior.most_channels))
    asked = series.scaled(InOwnUnits(n_channels=prior.most_channels)).packed(np.arange(40))
    assert torch.allclose(kept.all.values, asked.values, atol=1e-4)
    assert torch.allclose(kept.all.positions, asked.positions, atol=1e-4)
    assert torch.equal(kept.all.hidden, asked.hidden) and kept.all.ids == asked.ids


def test_another_seed_draws_other_series():
    first, second = (PRIOR.series(5, seed=seed)[0] for seed in (0, 1))
    assert len(first) != len(second) or not torch.equal(first.values, second.values)


def test_every_series_asks_for_something_and_shows_enough_of_every_channel_it_asks_for(packed):
    assert bool(packed.values.isfinite().all()) and bool(packed.values[:, 1].ge(0).all())
    assert float(packed.positions[:, 0].min()) >= 0 and float(packed.positions[:, 0].max()) <= 1
    for i in range(len(packed)):
        sample = packed.sample(i)
        channel = sample.positions[:, 1].long()
        for asked in channel[sample.hidden].unique():
            assert int(((channel == asked) & ~sample.hidden).sum()) >= 1
        assert channel.max() < PRIOR.most_channels


def test_series_have_one_channel_or_several_measured_together_or_apart(packed):
    n_channels, n_rows, lengths = [], [], []
    for i in range(len(packed)):
        positions = packed.sample(i).positions
        n_channels.append(len(positions[:, 1].unique()))
        n_rows.append(len(positions[:, 0].unique()))
        lengths.append(len(positions))
        assert len(positions.unique(dim=0)) >= 0.9 * len(positions)  # a cell is measured once, but for times that clash
    n_channels, n_rows, lengths = map(np.array, (n_channels, n_rows, lengths))
    assert 0.25 < (n_channels == 1).mean() < 0.75 and n_channels.max() > 4
    several = n_channels > 1
    assert 0.2 < (n_rows[several] < 0.8 * lengths[several]).mean() < 0.8


def test_stated_errors_are_the_noise_and_now_and_then_wrong():
    n, k = 2000, 32
    draws = Draws(7, torch.arange(n))
    flat, channel = torch.zeros(n, k), torch.zeros(n, k, dtype=torch.long)
    values, errors = measured(draws, flat, channel, 1)
    known = (errors > 0).all(1)
    assert 0.15 < float(known.float().mean()) < 0.35
    centred = values[known] - values[known].median(1, keepdim=True).values
    ratio = (centred / errors[known]).abs().median(1).values / 0.6745
    assert abs(float(ratio.median()) - 1) < 0.06
    assert float(((ratio < 0.5) | (ratio > 2)).float().mean()) > 0.03


def test_the_future_and_gaps_hide_what_they_say():
    n, k = 500, 24
    draws = Draws(8, torch.arange(n))
    times, channel = draws.uniform(k), torch.zeros(n, k, dtype=torch.long)
    hidden = questions(draws, times, channel, torch.ones(n, k, dtype=torch.bool), 1)
    assert bool(hidden.any(1).all()) and not bool(hidden.all(1).any())
    latest_visible = torch.where(hidden, -1.0, times).amax(1)
    earliest_hidden = torch.where(hidden, times, 2.0).amin(1)
    is_future = latest_visible < earliest_hidden
    assert 0.15 < float(is_future.float().mean()) < 0.45


def test_the_exact_posterior_is_calibrated_and_nothing_beats_it():
    series = GaussianSeries.drawn(400, seed=0)
    mean, deviation = series.posterior()
    z = (series.truth - mean) / deviation
    assert abs(float(z.square().mean()) - 1) < 0.06
    assert abs(float((z.abs() < 1.645).double().mean()) - 0.9) < 0.02
    exact = (series.truth - mean).square().mean()
    for rival in (0.9 * mean, 1.1 * mean, mean + 0.1 * deviation):
        assert (series.truth - rival).square().mean() > exact


def test_functions_of_a_users_own():
    def line(draws):
        slope = draws.normal().unsqueeze(1)
        return lambda times: slope * (times - 0.5) / 0.29

    prior = romae.Prior(most_channels=1, gaussian=0, seasons=0, oscillators=0, walks=0, events=0.001)
    series = prior.series(30, seed=0, functions={"line": (1000.0, line)})
    assert series.digest() != prior.series(30, seed=0).digest()
    assert bool(series.packed(np.arange(30)).values.isfinite().all())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"fewest": 4}, ("8 tokens", "fewest is 4")),
        ({"fewest": 50, "most": 40}, ("most 40",)),
        ({"most_channels": 0}, ("at least one channel",)),
        ({"gaussian": -1.0}, ("weights of at least 0",)),
        ({"gaussian": 0.0, "seasons": 0.0, "oscillators": 0.0, "walks": 0.0, "events": 0.0}, ("not all 0",)),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, words):
    with pytest.raises(ValueError) as refusal:
        romae.Prior(**settings)
    assert all(word in str(refusal.value) for word in words)
    with pytest.raises(ValueError, match="at least one series"):
        romae.Prior().series(0)

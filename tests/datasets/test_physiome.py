"""Physiome-ODE: laws of the systems, another solver, and samples that follow from their seed."""

from types import SimpleNamespace

import numpy as np
import pytest

from messages import refused
from romae.experiments.datasets.physiome import NOISE, SYSTEMS, generate, series


def published(system, **changes):
    """States and constants as they are published, but for some."""
    states = np.array([changes.get(name, value) for name, value in system.states.items()])
    return states, np.array([changes.get(name, value) for name, value in system.constants.items()])


def rates(system, states, time=0.0, **changes):
    constants = SimpleNamespace(**{**system.constants, **changes})
    return np.array(system.rates(time, [states.get(name, value) for name, value in system.states.items()], constants))


@pytest.mark.parametrize("name", sorted({*SYSTEMS} - {"dup02", "bor01"}))
def test_another_solver_at_a_tighter_tolerance_agrees(name):
    from scipy.integrate import solve_ivp

    system = SYSTEMS[name]
    states, constants = published(system)
    times = np.linspace(0, system.duration / 10, 8)  # chaos and oscillations take errors with them later on
    named = SimpleNamespace(**system.constants)
    exact = solve_ivp(
        lambda t, x: system.rates(t, x.tolist(), named),
        (0, times[-1]),
        states,
        "LSODA" if name in ("phi01", "vil01") else "DOP853",
        times,
        rtol=1e-9,
        atol=1e-9,
    ).y.T
    solved = system.solve(times, states, constants)
    assert (np.abs(solved - exact) < 3e-4 * np.abs(exact).max(axis=0)).all()


def test_stiff_systems_keep_their_balance_of_calcium():
    """What leaves the pools is what was supplied: d(Z + Y)/dt = supply - k Z, whatever passes between the pools."""
    for name, supply, leak in (("dup02", "v0 v1beta", "k"), ("bor01", "Vin", "K")):
        system = SYSTEMS[name]
        times = np.linspace(0, 1, 2001)
        solved = system.solve(times, *published(system))
        z, y = (solved[:, list(system.states).index(state)] for state in "ZY")
        into = sum(system.constants[part] for part in supply.split())
        lost = system.constants[leak] * np.trapezoid(z, times)
        assert (z + y)[-1] - (z + y)[0] == pytest.approx(into - lost, abs=2e-3)


def test_genes_are_free_or_bound_and_never_more():
    system = SYSTEMS["vil01"]
    solved = system.solve(np.linspace(0, 10, 50), *published(system))
    by_name = dict(zip(system.states, solved.T, strict=True))
    np.testing.assert_allclose(by_name["DA"] + by_name["DAp"], 1, atol=1e-6)
    np.testing.assert_allclose(by_name["DR"] + by_name["DRp"], 2, atol=1e-6)


def test_under_full_therapy_infectious_virus_decays_exponentially():
    system, times = SYSTEMS["nel01"], np.linspace(0, 3, 7)
    virus = system.solve(times, *published(system))[:, list(system.states).index("VI")]
    np.testing.assert_allclose(virus, 134_000 * np.exp(-3 * times), rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "states", "changes"),
    [
        ("len01", {"x": 1, "y": 1, "z": 1}, {"D": 0}),
        ("rev01", {"x": 200, "v": 0, "y": 0, "w": 0, "z": 0}, {}),
        ("wod01", {"x": 0, "v": 0, "y": 0}, {}),
        ("nel01", {"T": 5 / 0.03, "VI": 0, "Tstar": 0, "VNI": 0}, {}),
        ("hod01", {"V": 0, "m": 0.05293, "h": 0.59612, "n": 0.31768}, {}),
        ("wol02", {}, {"J0": 0, "k1": 0, "k2": 0, "k3": 0, "k4": 0, "k5": 0, "k6": 0, "k": 0, "kappa": 0}),
    ],
)
def test_known_fixed_points_stay(name, states, changes):
    assert np.abs(rates(SYSTEMS[name], states, **changes)).max() < 5e-3


def test_a_stimulus_comes_when_it_is_told_to():
    axon, calcium = SYSTEMS["hod01"], SYSTEMS["dup03"]
    assert rates(axon, {}, 10.2)[0] - rates(axon, {}, 9.9)[0] == pytest.approx(-20)
    assert rates(calcium, {}, 4.0)[0] - rates(calcium, {}, 3.9)[0] == pytest.approx(7.3 * 0.96)
    assert rates(SYSTEMS["gup01"], {}, 0.9)[0] > rates(SYSTEMS["gup01"], {}, 1.0)[0]


def test_samples_follow_from_their_seed_and_series_do_not():
    first, again, other = (generate("len02", seed=seed, n_series=30) for seed in (3, 3, 4))
    assert [len(first[part]) for part in ("train", "validation", "test")] == [21, 6, 3]
    for one, same in zip(first["train"], again["train"], strict=True):
        assert one.id == same.id and bool((one.values == same.values).all())
        assert bool((one.positions == same.positions).all())
    assert [one.id for one in first["train"]] != [one.id for one in other["train"]]
    assert (series("len02", 30) == series("len02", 40)[:30]).all(), "more series change none"


def test_the_second_half_is_hidden_and_a_fifth_is_measured_with_noise():
    parts = generate("len02", seed=0, n_series=40)
    samples = [sample for part in parts.values() for sample in part]
    for sample in samples:
        times = sample.positions[:, 0]
        assert ((times > 0.5) == sample.hidden).all() and times.max() < 1
    off = np.concatenate([(sample.values - sample.target).numpy()[:, 0] for sample in samples])
    assert off.std() == pytest.approx(NOISE, rel=0.03) and abs(off.mean()) < 3e-3
    assert len(off) / len(samples) == pytest.approx(0.2 * 99 * 3, rel=0.05)
    clean = np.concatenate([sample.target.numpy()[:, 0] for sample in samples])
    assert clean.std() == pytest.approx(1, abs=0.1), "values are in standard deviations"


def test_draws_that_no_solver_can_follow_are_replaced_and_unknown_systems_named():
    system = SYSTEMS["len01"]
    states, constants = published(system, a=5e3, b=5e3)
    assert system.solve(np.linspace(0, 30, 10), 0.0 * states, constants) is None
    with refused(ValueError, "'dup09'", "dup01"):
        generate("dup09", seed=0)
    with refused(ValueError, "n_series", "at least 10"):
        generate("len02", seed=0, n_series=3)

"""Trajectories of oscillators that are damped, driven, coupled or non-linear, from their differential equations.

Those of one system are solved together by the classical method of Runge and Kutta and kept as a bank, from which
samples take windows. (In numpy: of arrays this small, torch would spend its time on calling.)

Shapes: b trajectories, s state variables, g points in time.
"""

from collections.abc import Callable
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from romae.prior.draws import Draws
from romae.prior.functions import Function, standardised

N_TRAJECTORIES, N_POINTS, N_BURN_IN, N_STEPS = 1022, 1024, 128, 2  # steps between two points
_FIRST = 1 << 30  # the numbers of trajectories, apart from those of samples

State = Float64[np.ndarray, "s b"]
Slope = Callable[[float, State, Float64[np.ndarray, "3 b"]], State]


class System(NamedTuple):
    """A system of differential equations: how many states it has, the time between two points, and the slope.

    The slope takes the time, the states, and three numbers between 0 and 1 that make each trajectory another.
    """

    n_states: int
    step: float
    slope: Slope


def damped(t, x, p):  # type: ignore[no-untyped-def]
    """A spring with friction, driven from outside."""
    a, b = x
    return np.stack([b, -a - 0.3 * p[1] * b + 0.5 * p[2] * np.cos((0.5 + p[0]) * t)])


def van_der_pol(t, x, p):  # type: ignore[no-untyped-def]
    """Friction that is negative near rest: swings of one size, from sines to sudden turns."""
    a, b = x
    return np.stack([b, (0.3 + 3 * p[0]) * (1 - a * a) * b - a])


def duffing(t, x, p):  # type: ignore[no-untyped-def]
    """Two wells, driven from outside: now and then chaotic."""
    a, b = x
    return np.stack([b, a - a**3 - 0.25 * p[1] * b + 0.6 * p[2] * np.cos((0.5 + p[0]) * t)])


def lotka_volterra(t, x, p):  # type: ignore[no-untyped-def]
    """Prey and predators."""
    a, b = x
    return np.stack([a * (0.6 + p[0] - b), b * (a - 0.6 - p[1])])


def fitzhugh_nagumo(t, x, p):  # type: ignore[no-untyped-def]
    """A nerve that fires again and again."""
    a, b = x
    return np.stack([a - a**3 / 3 - b + 0.3 + 0.5 * p[0], 0.08 * (a + 0.7 - 0.8 * b)])


def lorenz(t, x, p):  # type: ignore[no-untyped-def]
    """Convection, chaotic."""
    a, b, c = x
    return np.stack([10 * (b - a), a * (22 + 10 * p[0] - c) - b, a * b - (8 / 3) * c])


def coupled(t, x, p):  # type: ignore[no-untyped-def]
    """Two springs that pull at each other: beats."""
    a, b, c, d = x
    pull = 0.4 * p[2] * (c - a)
    return np.stack([b, -(0.5 + p[0]) * a + pull, d, -(0.5 + p[1]) * c - pull])


SYSTEMS = MappingProxyType(
    {
        "damped": System(2, 0.2, damped),
        "van der pol": System(2, 0.1, van_der_pol),
        "duffing": System(2, 0.2, duffing),
        "lotka-volterra": System(2, 0.2, lotka_volterra),
        "fitzhugh-nagumo": System(2, 0.5, fitzhugh_nagumo),
        "lorenz": System(3, 0.04, lorenz),
        "coupled": System(4, 0.2, coupled),
    }
)


def trajectories(
    system: System, x: State, p: Float64[np.ndarray, "3 b"], n_points: int, n_steps: int = N_STEPS
) -> Float64[np.ndarray, "g s b"]:
    """The states at even times, from where they begin.

    Parameters
    ----------
    system : System
        The equations.
    x : Float64 array [s, b]
        The states at the beginning.
    p : Float64 array [3, b]
        What makes each trajectory another.
    n_points : int
        How many points in time, the beginning among them.
    n_steps : int
        Steps of the solver from one point to the next.

    Returns
    -------
    Float64 array [g, s, b]
        The states.
    """
    h, f, states = system.step / n_steps, system.slope, [x]
    for i in range((n_points - 1) * n_steps):
        t = i * h
        k1 = f(t, x, p)
        k2 = f(t + h / 2, x + h / 2 * k1, p)
        k3 = f(t + h / 2, x + h / 2 * k2, p)
        k4 = f(t + h, x + h * k3, p)
        x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        if (i + 1) % n_steps == 0:
            states.append(x)
    return np.stack(states)


@lru_cache(maxsize=4)
def bank(seed: int, n: int = N_TRAJECTORIES) -> Float[Tensor, "b g"]:
    """Trajectories of all systems, as many of each: the first state variable, of mean 0 and deviation 1.

    It is made when it is asked for first, which takes about a second.

    Parameters
    ----------
    seed : int
        Another seed begins elsewhere, with other parameters.
    n : int, default 1022
        How many, rounded down to a multiple of the systems.

    Returns
    -------
    Float Tensor [b, g]
        On the host.
    """
    n_each, parts = n // len(SYSTEMS), []
    for number, (name, system) in enumerate(SYSTEMS.items()):
        draws = Draws(seed, torch.arange(n_each) + _FIRST + number * n_each)
        begin, p = draws.normal(4).T[: system.n_states].double().numpy(), draws.uniform(3).T.double().numpy()
        begin = np.abs(begin) + 0.2 if name == "lotka-volterra" else begin
        parts.append(trajectories(system, begin, p, N_POINTS + N_BURN_IN)[N_BURN_IN:, 0].T)
    paths = torch.from_numpy(np.concatenate(parts))
    mean, deviation = paths.mean(1, keepdim=True), paths.std(1, keepdim=True)
    return ((paths - mean) / deviation).clamp(-8, 8).float().contiguous()


def oscillators(draws: Draws, seed: int = 0) -> Function:
    """A window of a trajectory, some two to forty swings long."""
    kept = bank(seed).to(draws.device)
    which = draws.whole(low=0, high=len(kept) - 1)
    n_points = kept.shape[1]
    # So many points are within the span from 0 to 1; half as many lie before it, and after it.
    length = draws.log_uniform(low=60.0, high=n_points / 2 - 1).unsqueeze(1)
    begin = 0.5 * length + draws.uniform().unsqueeze(1) * (n_points - 1 - 2 * length)

    def function(times: Float[Tensor, "b n"]) -> Float[Tensor, "b n"]:
        place = (begin + times * length).clamp(0, n_points - 1)
        before = place.floor().long().clamp(max=n_points - 2)
        share = place - before
        row, flat = which.unsqueeze(1) * n_points, kept.flatten()
        return flat[row + before] * (1 - share) + flat[row + before + 1] * share

    return standardised(function, draws)

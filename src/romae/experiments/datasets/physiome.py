"""Physiome-ODE: forecasts of biological systems, generated from their equations (sixteen of the benchmark's fifty).

A series is a solution with first states and constants of its own, each drawn around its published value. Of a stretch
of 100 even times, the first half may be seen and the second is asked for; each value is measured with a chance of one
in five, with noise. Values are in standard deviations of all series of the system. Equations, spreads and sampling are
those of the paper (Klötergens et al., ICLR 2025) and of the models that it names; the code is our own, and so are the
random numbers, so that these are other draws of the same distribution. A sample's target is its series without noise.

As in the benchmark, exponents and thresholds count among the constants, and a constant that follows from others is
drawn by itself; what no rate depends on is left out.

Shapes: b series, n times, s states.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import cos, exp, expm1, pi, sin
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
from jaxtyping import Float64

from romae.data.schema import Schema
from romae.experiments.datasets.streams import streams
from romae.tokens.sample import Sample

N_SERIES, N_TIMES = 2_000, 100
NOISE, MEASURED = 0.05, 0.2  # standard deviations of a channel; the chance of a value to be measured
SHARES = MappingProxyType({"train": 0.7, "validation": 0.2})  # and the rest is the test
FARTHEST, LARGEST, MOST_TRIES = 10.0, 1e15, 20

States = Sequence[float]
Rates = tuple[float, ...]
Constants = Any  # a namespace of the constants of a system by their published names


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """Equations with the published values of states and constants, and how far series spread around them.

    `rates(time, states, constants)` are the derivatives of the states. A state or constant is drawn between its value
    times 1 minus the spread and 1 plus it. `duration` is in the model's own time, of which a series shows half.
    `published` is the lowest error in the benchmark's table.
    """

    name: str
    title: str
    model: str
    rates: Callable[[float, States, Constants], Rates]
    states: Mapping[str, float]
    constants: Mapping[str, float]
    duration: float
    state_spread: float
    constant_spread: float
    published: float

    @property
    def schema(self) -> Schema:
        """The names of the data."""
        return Schema(id="series", time="time", channel="state", channels=tuple(self.states))

    def solve(
        self,
        times: Float64[np.ndarray, "n"],
        states: Float64[np.ndarray, "s"],
        constants: Float64[np.ndarray, "k"],
        *,
        tolerance: float = 1e-6,
    ) -> Float64[np.ndarray, "n s"] | None:
        """The states at these times, from the first on; None where the solver finds no way."""
        from scipy.integrate import odeint

        named = SimpleNamespace(**dict(zip(self.constants, constants.tolist(), strict=True)))

        def rates(time: float, state: np.ndarray) -> Rates:
            return self.rates(time, state.tolist(), named)

        step = self.duration / N_TIMES  # no longer, so that a short pulse is not stepped over
        settings = {"rtol": tolerance, "atol": tolerance, "hmax": step, "mxstep": 5_000}
        try:
            solved, how = odeint(rates, states, times, tfirst=True, full_output=True, printmessg=False, **settings)
        except (OverflowError, TypeError, ZeroDivisionError):  # a root of a negative number is complex: no solution
            return None
        is_good = how["message"].startswith("Integration successful") and np.isfinite(solved).all()
        return solved if is_good and np.abs(solved).max() < LARGEST else None


@lru_cache(maxsize=4)
def series(name: str, n_series: int = N_SERIES, seed: int = 0) -> Float64[np.ndarray, "b n s"]:
    """Solutions of a system: 100 times of 200, from a random one of the first half on. Each has a stream of its own."""
    system = SYSTEMS[name]
    times = np.linspace(0, system.duration, 2 * N_TIMES)
    solved = [_solution(system, times, random) for random in np.random.default_rng(seed).spawn(n_series)]
    result = np.stack(solved)
    result.flags.writeable = False  # kept for the next seed
    return result


def _solution(
    system: System, times: Float64[np.ndarray, "m"], random: np.random.Generator
) -> Float64[np.ndarray, "n s"]:
    for _ in range(MOST_TRIES):
        states, constants = (
            np.array(list(values.values())) * random.uniform(1 - spread, 1 + spread, len(values))
            for values, spread in (
                (system.states, system.state_spread),
                (system.constants, system.constant_spread),
            )
        )
        with np.errstate(all="ignore"):
            solved = system.solve(times, states, constants)
        start = int(random.integers(N_TIMES))
        if solved is not None:
            return solved[start : start + N_TIMES]
    raise ValueError(f"{system.name}: no solution in {MOST_TRIES} draws of states and constants; lower their spread")


def generate(name: str, *, seed: int, n_series: int = N_SERIES) -> dict[str, list[Sample]]:
    """Samples of each split: 70 % training, 20 % validation, 10 % test. The seed is the benchmark's fold.

    It decides noise, what is measured and the division; the series behind it are the same for all seeds. Times are from
    0 to 1, and what is asked for lies between 0.5 and 1. A series that goes astray by 10 standard deviations is left
    out, and so is a sample of which nothing is seen or asked.
    """
    if name not in SYSTEMS:
        raise ValueError(f"there is no system {name!r}; there are {', '.join(SYSTEMS)}")
    if n_series < 10:
        raise ValueError(f"n_series must be at least 10, so that each split has a series, not {n_series}")
    times = np.arange(N_TIMES) / (N_TIMES - 1)
    clean = series(name, n_series)[:, times < 1]  # the last one is neither seen nor asked for
    times = times[times < 1]
    clean = (clean - clean.mean(axis=(0, 1))) / clean.std(axis=(0, 1))
    clean = clean[(np.abs(clean) <= FARTHEST).all(axis=(1, 2))]
    random = streams(seed, {"noise": 0, "measured": 0, "order": 0})
    noisy = clean + random["noise"].normal(0, NOISE, clean.shape)
    is_measured = random["measured"].random(clean.shape) < MEASURED
    samples = [
        _sample(times, noisy[i], clean[i], is_measured[i], i) for i in random["order"].permutation(len(clean)).tolist()
    ]
    bounds = np.cumsum([int(share * len(samples)) for share in SHARES.values()]).tolist()
    parts = zip((*SHARES, "test"), [0, *bounds], [*bounds, len(samples)], strict=True)
    return {part: [one for one in samples[first:last] if one is not None] for part, first, last in parts}


def _sample(
    times: Float64[np.ndarray, "n"],
    noisy: Float64[np.ndarray, "n s"],
    clean: Float64[np.ndarray, "n s"],
    is_measured: np.ndarray,
    i: int,
) -> Sample | None:
    row, state = np.nonzero(is_measured)
    hidden = times[row] > 0.5
    if hidden.all() or not hidden.any():
        return None
    values = noisy[row, state, None].astype(np.float32)
    positions = np.stack([times[row], state], axis=1)
    return Sample(values, positions, target=clean[row, state, None].astype(np.float32), id=i, hidden=hidden)


# The equations, in the names of the published models


def _hill(x: float, k: float, n: float) -> float:
    """The share x^n / (k^n + x^n)."""
    return x**n / (k**n + x**n)


def _two_pools(z: float, y: float, supply: float, c: Constants) -> tuple[float, float]:
    """Calcium of the cytosol (z) and of a pool (y) from which calcium itself releases it."""
    pumped, released = c.VM2 * _hill(z, c.K2, c.n), c.VM3 * _hill(y, c.KR, c.m) * _hill(z, c.KA, c.p)
    return supply - pumped + released + c.kf * y - c.k * z, pumped - released - c.kf * y


def _dupont_1991a(t: float, x: States, c: Constants) -> Rates:
    return _two_pools(x[0], x[1], c.v0 + c.v1 * c.beta, c)


def _dupont_1991b(t: float, x: States, c: Constants) -> Rates:
    beta = c.betaf * exp(-0.2 * (t - c.tp)) if t >= c.tp else 0.0  # a pulse of the stimulus, which fades
    return _two_pools(x[0], x[1], c.v0 + c.v1 * beta, c)


def _dupont_1992b(t: float, x: States, c: Constants) -> Rates:
    z, y, w = x
    phosphorylated = c.vMK * _hill(z, c.Ka, c.q) * (1 - w) / (c.K1w + 1 - w)
    return *_two_pools(z, y, c.v0 + c.v1beta, c), (phosphorylated - c.vP * w / (c.K2w + w)) / c.WT


def _borghans_1997a(t: float, x: States, c: Constants) -> Rates:
    z, y, rho = x
    gamma = c.a / c.d * z**4
    pumped = c.VM2 * _hill(z, c.K2, 2)
    released = c.beta * rho * gamma / (1 + gamma) * c.VM3 * _hill(y, c.Ky, 2)
    return (
        c.Vin - pumped + released + c.Kf * y - c.K * z,
        pumped - released - c.Kf * y,
        c.kr * (1 - rho) - c.kd * z**4 * rho,
    )


def _jelic_fig4(t: float, x: States, c: Constants, supply: float = 1.0) -> Rates:
    a, g = x
    converted = a * g**2
    return (
        c.K * supply - (1 + c.alpha + c.beta) * a - converted,
        (1 - c.alpha) * a + converted - c.L - c.gamma * g,
    )


def _jelic_fig5(t: float, x: States, c: Constants) -> Rates:
    turn = pi * t / c.C0 / 86_400  # half a turn a day: t / C0 are seconds
    return _jelic_fig4(t, x, c, 0.735 + 0.1563 * sin(2 * turn) + 0.3127 * abs(sin(turn)))


def _wolf_heinrich(t: float, x: States, c: Constants) -> Rates:
    s1, s2, s3, s4, s4_out, a3, n2 = x
    v1 = c.k1 * s1 * a3 / (1 + (a3 / c.KI) ** c.q)
    v2, v3, v4 = c.k2 * s2 * (c.N - n2), c.k3 * s3 * (c.A - a3), c.k4 * s4 * n2
    v6, out = c.k6 * s2 * n2, c.kappa * (s4 - s4_out)
    return (
        c.J0 - v1,
        2 * v1 - v2 - v6,
        v2 - v3,
        v3 - v4 - out,
        c.phi * out - c.k * s4_out,
        2 * v3 - 2 * v1 - c.k5 * a3,
        v2 - v4 - v6,
    )


def _lenbury_1991(t: float, s: States, c: Constants) -> Rates:
    x, y, z = s
    return (
        c.alpha * exp(c.a * (1 - z**2) + c.b * (1 - y**2)) + c.D * cos(c.omega * t) - c.alpha * x,
        c.beta * x * exp(c.b * (1 - z**2)) - c.beta * y,
        c.gamma * (y - z),
    )


def _revilla(t: float, s: States, c: Constants) -> Rates:
    x, v, y, w, z = s
    infected, twice = c.beta * x * v, c.alpha * w * y
    return (
        c.lamda - c.d * x - infected,
        c.k * y - c.u * v,
        infected - c.a * y - twice,
        c.c * z - c.q * w,
        twice - c.b * z,
    )


def _hodgkin_huxley(t: float, s: States, c: Constants) -> Rates:
    v, m, h, n = s
    stimulus = -20.0 if 10 <= t <= 10.5 else 0.0
    current = c.gNa * m**3 * h * (v - c.ENa) + c.gK * n**4 * (v - c.EK) + c.gL * (v - c.EL)
    return (
        (stimulus - current) / c.Cm,
        _opening(v + 25) * (1 - m) - 4 * exp(v / 18) * m,
        0.07 * exp(v / 20) * (1 - h) - h / (exp((v + 30) / 10) + 1),
        0.1 * _opening(v + 10) * (1 - n) - 0.125 * exp(v / 80) * n,
    )


def _opening(v: float) -> float:
    """0.1 v / (exp(v / 10) - 1), which is 1 at 0."""
    return 1.0 if abs(v) < 1e-9 else 0.1 * v / expm1(v / 10)


def _gupta_a(t: float, x: States, c: Constants) -> Rates:
    cortisone, o, a, r = x
    stress = 1.0 if t < 1 else 0.0
    bound = (o * r) ** 2
    return (
        (1 + stress) / (1 + o / c.ki1) - c.kcd * cortisone,
        a - o,
        cortisone / (1 + o * r / c.ki2) - c.kad * a,
        bound / (c.k + bound) + c.kcr - c.krd * r,
    )


def _phillips(t: float, x: States, c: Constants) -> Rates:
    v, m, h = x
    firing_v, firing_m = (c.Qmax / (1 + exp(-(u - c.theta) / c.sigma)) for u in (v, m))
    sleepiness = c.vvc * (c.c0 + cos(c.omega * t)) + c.vvh * h
    return (
        3600 * (c.vvm * firing_m + sleepiness - v) / c.tauv,
        3600 * (c.vmaQao + c.vmv * firing_v - m) / c.taum,
        (c.mu * firing_m - h) / c.chi,
    )


def _wodarz_b(t: float, s: States, c: Constants) -> Rates:
    x, v, y = s
    room = 1 - (x + y) / c.k
    infected = c.beta * x * v
    return c.r * x * v * room - c.d * x - infected, c.eta * y - c.u * v, infected + c.r * y * v * room - c.a * y


def _nelson(t: float, s: States, c: Constants) -> Rates:
    cells, infectious, infected, harmless = s
    newly, burst = c.k * infectious * cells, c.N * c.delta * infected
    return (
        c.lamda - c.delta1 * cells - newly,
        (1 - c.np) * burst - c.c * infectious,
        newly - c.delta * infected,
        c.np * burst - c.c * harmless,
    )


def _lenbury_2001a(t: float, s: States, c: Constants) -> Rates:
    x, y, z = s
    return (
        z * (c.r1 * y - c.r2 * x + c.c1),
        c.epsilon * (c.r3 / z - c.r4 * x + c.c2),
        (c.r5 * (y - c.yhat) + c.r6 * z) * (c.zhat - z) - c.r7 * z,
    )


def _vilar(t: float, s: States, c: Constants) -> Rates:
    a, complexed, da, da_bound, dr, dr_bound, ma, mr, r = s
    joined = c.Gamma1 * a * r
    on_a = c.Gamma2 * a * da - c.Theta1 * da_bound
    on_r = c.Gamma3 * a * dr - c.Theta2 * dr_bound
    return (
        c.BetaA * ma - joined - c.Delta1 * a - on_a - on_r,
        joined - c.Delta2 * complexed,
        -on_a,
        on_a,
        -on_r,
        on_r,
        c.Alpha1 * da + c.Alpha2 * da_bound - c.Delta4 * ma,
        c.Alpha3 * dr + c.Alpha4 * dr_bound - c.Delta5 * mr,
        c.BetaR * mr - joined - c.Delta3 * r + c.Delta2 * complexed,
    )


def _values(text: str) -> dict[str, float]:
    """Names and numbers, written as "k=10 n=2"."""
    pairs = (part.split("=") for part in text.split())
    return {name: float(number) for name, number in pairs}


_POOLS = "VM2=65 VM3=500 KR=2 KA=0.9 kf=1 k=10 K2=1 n=2 m=2 p=4"
_GONADS = "alpha=0.008 beta=1.485 K=30 gamma=11.385 L=0.1"

# Name, model, what it is, equations, states, constants, duration, spread of states and of constants, published error.
_TABLE: tuple[
    tuple[str, str, str, Callable[[float, States, Constants], Rates], str, str, float, float, float, float], ...
]
_TABLE = (
    (
        "dup01", "dupont_1991a", "calcium oscillations, two pools", _dupont_1991a,
        "Z=0.52 Y=0.93", f"v0=1 v1=7.3 beta=0.6 {_POOLS}", 30, 0.3, 0.05, 0.951,
    ),
    (
        "dup02", "dupont_1992b", "calcium oscillations and a phosphorylated protein", _dupont_1992b,
        "Z=0.2281 Y=1.454 Wstar=0.8916",
        f"v0=1 v1beta=2.4 K1w=0.01 K2w=0.01 WT=10 vMK=100 Ka=1 q=4 vP=4.45 {_POOLS}", 30, 0.1, 0.05, 0.718,
    ),
    (
        "dup03", "dupont_1991b", "calcium after a pulse of the stimulus", _dupont_1991b,
        "Z=0.1 Y=0.64", f"v0=1 v1=7.3 betaf=0.96 tp=4 {_POOLS}", 10, 0.3, 0.05, 0.622,
    ),
    (
        "bor01", "borghans_dupont_goldbeter_1997a", "calcium oscillations, one pool, receptors that desensitise",
        _borghans_1997a, "Z=0.3 Y=2.7 rho=0.2",
        "Kf=1 K=10 beta=1 VM2=6.5 K2=0.1 Ky=0.2 VM3=50 kd=5000 kr=5 a=10000 d=100 Vin=2", 30, 0.1, 0.05, 0.709,
    ),
    (
        "jel01", "jelic_cupic_kolaranic_2005_Fig4", "hormones of adrenal glands", _jelic_fig4,
        "a=4.39927 g=1.96477", _GONADS, 30, 0.5, 0.05, 0.935,
    ),
    (
        "jel02", "jelic_cupic_kolaranic_2005_Fig5", "hormones of adrenal glands over the day", _jelic_fig5,
        "a=4.39927 g=1.96477", f"{_GONADS} C0=6e-4", 30, 0.5, 0.05, 0.674,
    ),
    (
        "wol02", "wolf_heinrich_2000", "glycolysis of coupled yeast cells", _wolf_heinrich,
        "S1=5.8 S2=0.9 S3=0.2 S4=0.2 S4out=0.1 A3=2.4 N2=0.1",
        "J0=3 phi=0.1 A=4 N=1 KI=0.52 k1=100 q=4 k2=6 k3=16 k4=100 k5=1.28 k6=12 k=1.3 kappa=13", 30, 0.1, 0.1, 0.645,
    ),
    (
        "len01", "lenbury_pacheenburawana_1991", "cortisol under a daily drive", _lenbury_1991,
        "x=1.5 y=0.95 z=1", "alpha=0.5 omega=2 D=0.8228 a=8.1252 b=1.091 beta=0.38 gamma=0.6", 30, 0.1, 0.1, 0.387,
    ),
    (
        "rev01", "revilla_garcia-ramos_2003", "HIV and a virus that fights it", _revilla,
        "x=3 v=149 y=6 w=1 z=0", "lamda=2 d=0.01 beta=0.004 a=0.33 alpha=0.004 b=2 k=50 u=2 c=2000 q=2",
        30, 0.5, 0.3, 0.597,
    ),
    (
        "hod01", "hodgkin_huxley_1952_variant01", "the squid's axon after a stimulus", _hodgkin_huxley,
        "V=0 m=0.05 h=0.6 n=0.325", "Cm=1 gNa=120 gK=36 gL=0.3 ENa=-115 EK=12 EL=-10.613", 30, 0.5, 0.3, 0.409,
    ),
    (
        "gup01", "gupta_aslakson_gurbaxani_vernon_2007_a", "hormones of stress", _gupta_a,
        "c=0.6 o=0.055 a=0.055 r=0.08", "kcd=1 ki1=0.1 kad=10 ki2=0.1 kcr=0.05 krd=0.9 k=0.001", 30, 0.5, 0.05, 0.018,
    ),
    (
        "phi01", "phillips_2007", "sleep and waking", _phillips, "Vv=0 Vm=0 H=15",
        "tauv=10 vvm=-1.9 Qmax=100 theta=10 sigma=3 taum=10 vmv=-1.9 vmaQao=1 chi=10.8 mu=3.6 c0=1 vvc=-6.3 vvh=0.19 "
        f"omega={2 * pi / 24!r}", 30, 0.1, 0.1, 0.131,
    ),
    (
        "wod01", "wodarz_hamer_2007_b", "a virus that makes its own target cells", _wodarz_b,
        "x=0.1 v=1 y=0", "r=1 k=10 d=0.1 beta=0.2 a=0.2 u=0.5 eta=1", 30, 0.1, 0.1, 0.113,
    ),
    (
        "nel01", "nelson_murray_perelson_2000_general", "HIV under therapy", _nelson, "T=180 VI=134000 Tstar=3.6 VNI=0",
        "lamda=5 delta1=0.03 delta=0.5 np=1 c=3 k=3.43e-5 N=480", 30, 0.1, 0.3, 0.007,
    ),
    (
        "len02", "lenbury_ruktamatakul_amornsamarnkul_2001_a", "insulin, glucose and beta cells", _lenbury_2001a,
        "x=4 y=0 z=1", "r1=0.2 r2=0.1 c1=0.1 r3=0.1 r4=0.1 c2=0.1 epsilon=0.1 r5=0.1 r6=0.1 r7=0.05 zhat=2 yhat=1.24",
        30, 0.5, 0.1, 0.039,
    ),
    (
        "vil01", "vilar_kueh_barkai_leibler_2002", "a genetic clock", _vilar,
        "A=0 C=0 DA=1 DAp=0 DR=1 DRp=1 MA=0 MR=0 R=0",
        "Gamma1=2 Delta1=1 Delta2=1 Delta3=0.2 Gamma2=1 Theta1=50 Alpha1=50 Alpha2=500 Delta4=10 BetaA=50 Gamma3=1 "
        "Theta2=100 Alpha3=0.01 Alpha4=50 Delta5=0.5 BetaR=5", 30, 0.1, 0.3, 0.344,
    ),
)  # fmt: skip
SYSTEMS: Mapping[str, System] = MappingProxyType(
    {
        name: System(
            name=name,
            title=title,
            model=model,
            rates=rates,
            states=_values(states),
            constants=_values(constants),
            duration=float(duration),
            state_spread=state_spread,
            constant_spread=constant_spread,
            published=published,
        )
        for name, model, title, rates, states, constants, duration, state_spread, constant_spread, published in _TABLE
    }
)

"""Random functions of time, drawn for many samples at once.

A family takes `Draws` for b samples and gives a function: times [b, n] to values [b, n], of about unit variance, which
may be asked at any times again. Gaussian ones have the covariance that their kernel states; their sums, products and
change points are Gaussian given the parts.

Shapes: b samples, n times, m features of a Gaussian function, g points of a grid, k events of a sample.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from romae.prior.draws import Draws

Function = Callable[[Float[Tensor, "b n"]], Float[Tensor, "b n"]]
Family = Callable[[Draws], Function]

# In units of the span that is looked at, from 0 to 1.
SHORTEST, LONGEST_SCALE = 0.02, 1.5
SHORTEST_PERIOD = 0.03
# Functions on a grid are asked before and after the span too, since channels lag behind each other.
GRID_FROM, GRID_TO, N_GRID = -0.5, 1.5, 1024
TINY = 1e-8
N_FEATURES = 64  # of a Gaussian function: cosines and sines of random frequencies

KERNELS = ("rbf", "matern12", "matern32", "matern52", "quadratic", "periodic", "quasi-periodic")
_SHARES = (0.25, 0.12, 0.14, 0.12, 0.12, 0.07, 0.18)
_FREEDOM = {"matern12": 1, "matern32": 3, "matern52": 5}


@dataclass(frozen=True, eq=False)
class Kernel:
    """The kernel of each sample: its name by number in `KERNELS`, and its numbers.

    Parameters
    ----------
    name : Int64 Tensor [b]
        Which of `KERNELS`.
    scale : Float Tensor [b]
        The length scale.
    period : Float Tensor [b]
        The period of those that have one.
    width : Float Tensor [b]
        How smooth a period is: near 0 a spike, above 1 a sine.
    twice_alpha : Int64 Tensor [b]
        Twice the exponent of a rational quadratic kernel.
    """

    name: Int64[Tensor, "b"]
    scale: Float[Tensor, "b"]
    period: Float[Tensor, "b"]
    width: Float[Tensor, "b"]
    twice_alpha: Int64[Tensor, "b"]

    @classmethod
    def drawn(cls, draws: Draws) -> "Kernel":
        """A kernel for each sample."""
        return cls(
            draws.choice(_SHARES),
            draws.log_uniform(low=SHORTEST, high=LONGEST_SCALE),
            draws.log_uniform(low=SHORTEST_PERIOD, high=1.0),
            draws.log_uniform(low=0.3, high=2.0),
            torch.tensor((1, 2, 3, 5), device=draws.device)[draws.whole(low=0, high=3)],
        )

    def covariance(self, lag: Float[Tensor, "b *n"]) -> Float[Tensor, "b *n"]:
        """The covariance of values that lie so far apart in time."""
        shape = (-1, *[1] * (lag.ndim - 1))
        scale, period, width, alpha = (
            x.to(lag.dtype).reshape(shape) for x in (self.scale, self.period, self.width, self.twice_alpha / 2)
        )
        r = lag.abs() / scale
        root3, root5 = math.sqrt(3) * r, math.sqrt(5) * r
        wave = torch.exp(-2 * (torch.sin(math.pi * lag / period) / width).square())
        smooth = torch.exp(-0.5 * r.square())
        of_each = (
            smooth,
            torch.exp(-r),
            (1 + root3) * torch.exp(-root3),
            (1 + root5 + root5.square() / 3) * torch.exp(-root5),
            (1 + r.square() / (2 * alpha)) ** -alpha,
            wave,
            wave * smooth,
        )
        return torch.stack(of_each).gather(0, self.name.reshape(1, *shape).expand(1, *lag.shape))[0]

    def frequencies(self, draws: Draws, n_features: int = N_FEATURES) -> Float[Tensor, "b m"]:
        """Angular frequencies, drawn from the spectrum of the kernel, whose cosines have its covariance on average."""
        z = draws.normal(n_features)
        # Squares of 1, 3 and 5 normal numbers, since those of two add up to an exponential one; of 2 for the others.
        pairs = -2 * draws.uniform(2, n_features).clamp(min=TINY).log().cumsum(1)
        one = draws.normal(n_features).square()
        squares = torch.stack([one, pairs[:, 0], one + pairs[:, 0], torch.zeros_like(one), one + pairs[:, 1]], 1)
        harmonic = self._harmonics(draws.uniform(n_features))
        name, scale = self.name.unsqueeze(1), self.scale.unsqueeze(1)
        # Of a Matérn kernel the spectrum is a Student's t; a rational quadratic one is a mixture of smooth ones.
        factor = torch.ones_like(z)
        for kernel, freedom in _FREEDOM.items():
            factor = torch.where(name == KERNELS.index(kernel), (freedom / squares[:, freedom - 1]).sqrt(), factor)
        n = self.twice_alpha.unsqueeze(1)
        chi = squares.gather(1, (n - 1).unsqueeze(2).expand(-1, 1, n_features)).squeeze(1)
        factor = torch.where(name == KERNELS.index("quadratic"), (chi / n).sqrt(), factor)
        turning = 2 * math.pi * harmonic / self.period.unsqueeze(1)
        wander = torch.where(name == KERNELS.index("periodic"), 0.0, z * factor / scale)
        return torch.where(name >= KERNELS.index("periodic"), turning, 0.0) + wander

    def _harmonics(self, u: Float[Tensor, "b m"]) -> Float[Tensor, "b m"]:
        """Which harmonic of its period each feature has: the Fourier series of a periodic kernel, as probabilities."""
        n = 256  # of a width of 0.3 harmonics above the twentieth have nothing left
        angle = torch.arange(n, device=u.device, dtype=torch.float64) * 2 * math.pi / n
        kappa = 1 / self.width.double().square().unsqueeze(1)
        share = torch.fft.rfft(torch.exp(kappa * (torch.cos(angle) - 1))).real / n
        share[:, 1:-1] *= 2
        edges = share.clamp(min=0).cumsum(1)
        return torch.searchsorted(edges / edges[:, -1:], u.double(), right=True).clamp(max=n // 2).to(u.dtype)


def waves(frequencies: Float[Tensor, "b m"], draws: Draws) -> Function:
    """A Gaussian function with these frequencies: given them, all its values are jointly normal."""
    n_features = frequencies.shape[1]
    a, b = draws.normal(2, n_features).unbind(1)

    def function(times: Float[Tensor, "b n"]) -> Float[Tensor, "b n"]:
        angle = times.unsqueeze(2) * frequencies.unsqueeze(1)
        values = torch.einsum("bnm,bm->bn", angle.cos(), a) + torch.einsum("bnm,bm->bn", angle.sin(), b)
        return values / math.sqrt(n_features)

    return function


def gaussian(draws: Draws) -> Function:
    """Smooth, rough, periodic and nearly periodic functions: one kernel, the sum of two, or their product."""
    first, second = Kernel.drawn(draws), Kernel.drawn(draws)
    slow, fast = first.frequencies(draws), second.frequencies(draws)
    form = draws.choice((0.5, 0.3, 0.2)).unsqueeze(1)
    share = draws.uniform().unsqueeze(1)
    from_first = draws.uniform(N_FEATURES) < share
    # The spectrum of a sum is a mixture of both, that of a product the sum of both frequencies.
    frequencies = torch.where(form == 0, slow, torch.where(form == 1, torch.where(from_first, slow, fast), slow + fast))
    return waves(frequencies, draws)


def seasons(draws: Draws) -> Function:
    """One to three periods with harmonics, whose form repeats exactly: days and years, tides, variable stars."""
    n_seasons, n_harmonics = 3, 6
    period = draws.log_uniform(n_seasons, low=SHORTEST_PERIOD, high=1.2)
    size = draws.log_uniform(n_seasons, low=0.1, high=1.0)
    size = torch.where(
        torch.arange(n_seasons, device=draws.device) <= draws.choice((0.5, 0.35, 0.15)).unsqueeze(1), size, 0.0
    )
    order = torch.arange(1, n_harmonics + 1, device=draws.device)
    falls = draws.uniform(n_seasons, low=0.7, high=3.0).unsqueeze(2)
    amplitude = size.unsqueeze(2) * order**-falls * draws.normal(n_seasons, n_harmonics)
    frequency = 2 * math.pi * order / period.unsqueeze(2)
    phase = draws.uniform(n_seasons, n_harmonics, high=2 * math.pi)

    def function(times: Float[Tensor, "b n"]) -> Float[Tensor, "b n"]:
        angle = times[:, :, None, None] * frequency.unsqueeze(1) + phase.unsqueeze(1)
        return (amplitude.unsqueeze(1) * angle.sin()).sum((2, 3))

    return standardised(function, draws)


def walk(draws: Draws) -> Function:
    """Random walks, with steps of one size or, now and then, with jumps."""
    steps = draws.normal(N_GRID)
    jumps = torch.where(draws.uniform(N_GRID) < 0.02, 12.0, 1.0)
    has_jumps = draws.chance(0.3).unsqueeze(1)
    path = torch.where(has_jumps, steps * jumps, steps).cumsum(1)
    return standardised(on_grid(path), draws)


def events(draws: Draws) -> Function:
    """One to four events: trends, steps, ramps, bumps, flares and decays."""
    n = 4
    shape = draws.choice((0.15, 0.2, 0.15, 0.2, 0.15, 0.15), n)
    place = draws.uniform(n, low=-0.1, high=1.1)
    width = draws.log_uniform(n, low=0.01, high=0.7)
    size = draws.normal(n)
    size = torch.where(torch.arange(n, device=draws.device) <= draws.whole(low=0, high=n - 1).unsqueeze(1), size, 0.0)

    def function(times: Float[Tensor, "b n"]) -> Float[Tensor, "b n"]:
        x = (times.unsqueeze(2) - place.unsqueeze(1)) / width.unsqueeze(1)
        after = x.clamp(min=0)
        of_each = torch.stack(
            (
                x * width.unsqueeze(1) * 2,  # a line, however wide
                torch.sigmoid(x * 20),
                after.clamp(max=1),
                torch.exp(-0.5 * x.square()),
                after * torch.exp(1 - after),
                (x > 0) * torch.exp(-after),
            )
        )
        chosen = of_each.gather(0, shape.reshape(1, len(shape), 1, n).expand(1, *x.shape))[0]
        return (chosen * size.unsqueeze(1)).sum(2)

    return standardised(function, draws)


def on_grid(values: Float[Tensor, "b g"]) -> Function:
    """What values on the grid from `GRID_FROM` to `GRID_TO` say in between, by lines."""
    last = values.shape[1] - 1

    def function(times: Float[Tensor, "b n"]) -> Float[Tensor, "b n"]:
        place = ((times - GRID_FROM) / (GRID_TO - GRID_FROM)).clamp(0, 1) * last
        before = place.floor().long().clamp(max=last - 1)
        share = place - before
        return values.gather(1, before) * (1 - share) + values.gather(1, before + 1) * share

    return function


def standardised(function: Function, draws: Draws) -> Function:
    """The same function, of mean 0 and deviation 1 over the span; one that is constant there is 0."""
    grid = torch.linspace(0, 1, 128, device=draws.device).expand(len(draws), -1)
    values = function(grid)
    mean, deviation = values.mean(1, keepdim=True), values.std(1, keepdim=True)
    gain = torch.where(deviation > 1e-6, 1 / deviation.clamp(min=1e-6), 0.0)
    return lambda times: (function(times) - mean) * gain


def one_of(draws: Draws, families: tuple[tuple[float, Family], ...]) -> Function:
    """A function from one of several families, each drawn as often as its weight says."""
    which = draws.choice(tuple(weight for weight, _ in families))
    parts: list[tuple[Tensor, Function]] = []
    for number, (_, family) in enumerate(families):
        rows = (which == number).nonzero().squeeze(1)
        own = draws.of(rows)  # also where there are none, so that what follows does not depend on the batch
        if len(rows):
            parts.append((rows, family(own)))

    def function(times: Float[Tensor, "b n"]) -> Float[Tensor, "b n"]:
        values = torch.zeros_like(times)
        for rows, part in parts:
            values = values.index_copy(0, rows, part(times.index_select(0, rows)))
        return values

    return function


def composed(draws: Draws, families: tuple[tuple[float, Family], ...]) -> Function:
    """A function as it is, the sum or the product of two, or one that turns into another at some time."""
    first, second = one_of(draws, families), one_of(draws, families)
    form = draws.choice((0.55, 0.25, 0.08, 0.12)).unsqueeze(1)
    share = draws.uniform().unsqueeze(1)
    when = draws.uniform(low=0.15, high=0.85).unsqueeze(1)
    width = draws.log_uniform(low=0.002, high=0.1).unsqueeze(1)

    def function(times: Float[Tensor, "b n"]) -> Float[Tensor, "b n"]:
        a, b = first(times), second(times)
        after = torch.sigmoid((times - when) / width)
        turned = a * (1 - after) + b * after
        both = share.sqrt() * a + (1 - share).sqrt() * b
        return torch.where(form == 0, a, torch.where(form == 1, both, torch.where(form == 2, a * b, turned)))

    return function

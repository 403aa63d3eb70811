"""Likelihoods: what a head says of a number beyond its mean, and the loss that teaches it.

A likelihood reads a few raw parameters for each number, of any size, and makes a distribution of them. Numbers are as
the model sees them: scaled, of the order of 1.

Shapes: n rows, k numbers in a row, p raw parameters of each, m components, l levels.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

Name = Literal["normal", "student", "mixture", "quantiles"]
Raw = Float[Tensor, "n k p"]
Numbers = Float[Tensor, "n k"]

# Scales lie between exp(-7) and exp(7), so that a step is bounded, and so is a density: its logarithm is at most
# LOG_RANGE - log(2 pi) / 2 = 6.08, also where values are one exact number.
LOG_RANGE = 7.0
FAR = 6.0  # scales; beyond, a loss grows as a logarithm and not as a square, so that one value decides no step
LEAST_FREEDOM, MOST_FREEDOM = 2.1, 100.0  # degrees of freedom; of fewer than two there is no variance
HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)


def scale_of(raw: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """A scale above 0: the exponential of a raw parameter, which is bounded smoothly. 1 for 0."""
    return torch.exp(LOG_RANGE * torch.tanh(raw / LOG_RANGE))


def raw_of_scale(scale: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """The raw parameter of a scale, the inverse of `scale_of`; scales beyond its bounds count as those."""
    bounded = (scale.log() / LOG_RANGE).clamp(-1 + 1e-9, 1 - 1e-9)
    return LOG_RANGE * torch.atanh(bounded)


def with_noise(scale: Float[Tensor, "*n"], variance: Numbers | None) -> Float[Tensor, "*n"]:
    """The scale of a sum with independent noise of a known variance."""
    if variance is None:
        return scale
    return torch.sqrt(scale.square() + (variance if scale.ndim == variance.ndim else variance.unsqueeze(-1)))


def _log_normal(z: Float[Tensor, "*n"], scale: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """The logarithm of a normal density, z scales from its centre; far out, where 2e-9 lies, it falls as a power."""
    far = z.abs().clamp(min=FAR) / FAR
    return -0.5 * z.clamp(-FAR, FAR).square() - FAR**2 * torch.log(far) - torch.log(scale) - HALF_LOG_TAU


@dataclass(frozen=True, kw_only=True)
class _Weighted:
    """What teaches a distribution may teach its mean besides, by a squared error of some weight."""

    mean_weight: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.mean_weight < math.inf:
            raise ValueError(f"mean_weight is how much the squared error counts, 0 or more, not {self.mean_weight}")


class _Density(_Weighted):
    """A distribution that is taught by its density; its mean is the first raw parameter unless it says otherwise."""

    def mean(self, raw: Raw) -> Numbers:
        """The mean."""
        return raw[..., 0]

    def loss(self: Any, raw: Raw, x: Numbers, variance: Numbers | None = None) -> Numbers:
        """What training makes small."""
        return _squared(self, raw, x, variance) - self.log_density(raw, x, variance)


@dataclass(frozen=True, kw_only=True)
class Normal(_Density):
    """A normal distribution: a mean and a standard deviation.

    Parameters
    ----------
    mean_weight : float, default 0.0
        How much the squared error of the mean counts beside the logarithm of the density.
    kind : "normal"
        The name of this likelihood in a configuration file.

    Raises
    ------
    ValueError
        If `mean_weight` is negative.
    """

    kind: Literal["normal"] = "normal"

    @property
    def n_parameters(self) -> int:
        """How many raw parameters a number has."""
        return 2

    def log_density(self, raw: Raw, x: Numbers, variance: Numbers | None = None) -> Numbers:
        """The logarithm of the density at x, of numbers that were measured with noise of a known variance."""
        scale = with_noise(scale_of(raw[..., 1]), variance)
        return _log_normal((x - raw[..., 0]) / scale, scale)


@dataclass(frozen=True, kw_only=True)
class Student(_Density):
    """Student's t distribution: a centre, a scale and degrees of freedom, for values that now and then lie far out.

    Parameters
    ----------
    mean_weight : float, default 0.0
        How much the squared error of the mean counts beside the logarithm of the density.
    kind : "student"
        The name of this likelihood in a configuration file.

    Raises
    ------
    ValueError
        If `mean_weight` is negative.
    """

    kind: Literal["student"] = "student"

    @property
    def n_parameters(self) -> int:
        """How many raw parameters a number has."""
        return 3

    def freedom(self, raw: Raw) -> Numbers:
        """The degrees of freedom; 8 for a raw parameter of 0."""
        low, high = math.log(LEAST_FREEDOM), math.log(MOST_FREEDOM)
        middle = (math.log(8.0) - low) / (high - low)
        return torch.exp(low + (high - low) * torch.sigmoid(raw[..., 2] + math.log(middle / (1 - middle))))

    def log_density(self, raw: Raw, x: Numbers, variance: Numbers | None = None) -> Numbers:
        """The logarithm of the density at x; with noise of a known variance, which is added to that of the scale."""
        scale, freedom = with_noise(scale_of(raw[..., 1]), variance), self.freedom(raw)
        z = (x - raw[..., 0]) / scale
        norm = torch.lgamma((freedom + 1) / 2) - torch.lgamma(freedom / 2) - 0.5 * torch.log(freedom * math.pi)
        return norm - torch.log(scale) - (freedom + 1) / 2 * torch.log1p(z.square() / freedom)


@dataclass(frozen=True, kw_only=True)
class Mixture(_Density):
    """A mixture of normal distributions, for values of several levels, skewed or with heavy tails.

    Parameters
    ----------
    n : int, default 8
        The number of components.
    mean_weight : float, default 0.0
        How much the squared error of the mean counts beside the logarithm of the density.
    kind : "mixture"
        The name of this likelihood in a configuration file.

    Raises
    ------
    ValueError
        If there is no component, or `mean_weight` is negative.
    """

    n: int = 8
    kind: Literal["mixture"] = "mixture"

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ValueError(f"a mixture has at least one component, n=1 or more, not {self.n}")
        super().__post_init__()

    @property
    def n_parameters(self) -> int:
        """How many raw parameters a number has."""
        return 3 * self.n

    def parts(self, raw: Raw) -> tuple[Float[Tensor, "n k m"], Float[Tensor, "n k m"], Float[Tensor, "n k m"]]:
        """The logarithms of the weights, the centres and the scales of the components.

        Where the raw parameters are 0, centres are spread over the bulk of a standard normal, so that components differ
        from the start.
        """
        weight, centre, scale = raw.unflatten(-1, (3, self.n)).unbind(-2)
        levels = (torch.arange(self.n, device=raw.device, dtype=raw.dtype) + 0.5) / self.n
        return F.log_softmax(weight, -1), centre + torch.special.ndtri(levels), scale_of(scale)

    def raw(self, weight: Float[Tensor, "n k m"], centre: Float[Tensor, "n k m"], scale: Float[Tensor, "n k m"]) -> Raw:
        """The raw parameters of components, the inverse of `parts`."""
        levels = (torch.arange(self.n, device=centre.device, dtype=centre.dtype) + 0.5) / self.n
        return torch.stack([weight, centre - torch.special.ndtri(levels), raw_of_scale(scale)], -2).flatten(-2)

    def log_density(self, raw: Raw, x: Numbers, variance: Numbers | None = None) -> Numbers:
        """The logarithm of the density at x, of numbers that were measured with noise of a known variance."""
        weight, centre, scale = self.parts(raw)
        scale = with_noise(scale, variance)
        return torch.logsumexp(weight + _log_normal((x.unsqueeze(-1) - centre) / scale, scale), -1)

    def mean(self, raw: Raw) -> Numbers:
        """The mean."""
        weight, centre, _ = self.parts(raw)
        return (weight.exp() * centre).sum(-1)


@dataclass(frozen=True, kw_only=True)
class Quantiles(_Weighted):
    """Quantiles of levels that are evenly spaced, which assume nothing about the form of a distribution.

    Parameters
    ----------
    n : int, default 19
        The number of quantiles, an odd one, so that the median is among them: 19 are those of 0.05, 0.10, … 0.95.
    mean_weight : float, default 0.0
        How much the squared error of the mean counts beside that of the quantiles.
    kind : "quantiles"
        The name of this likelihood in a configuration file.

    Raises
    ------
    ValueError
        If n is no odd number of at least 3, or `mean_weight` is negative.
    """

    n: int = 19
    kind: Literal["quantiles"] = "quantiles"

    def __post_init__(self) -> None:
        if self.n < 3 or self.n % 2 == 0:
            raise ValueError(f"the number of quantiles is odd and at least 3, so that one is the median, not {self.n}")
        super().__post_init__()

    @property
    def n_parameters(self) -> int:
        """How many raw parameters a number has."""
        return self.n

    def levels(self, like: Tensor) -> Float[Tensor, "l"]:
        """The levels, from the lowest to the highest."""
        return torch.arange(1, self.n + 1, device=like.device, dtype=like.dtype) / (self.n + 1)

    def values(self, raw: Raw) -> Float[Tensor, "n k l"]:
        """The quantiles, in rising order: the median, and the steps from each to the next.

        Where the raw parameters are 0, they are those of a standard normal.
        """
        middle = self.n // 2
        steps = torch.special.ndtri(self.levels(raw)).diff() * scale_of(raw[..., 1:])
        median = raw[..., :1]
        below = median - steps[..., :middle].flip(-1).cumsum(-1).flip(-1)
        return torch.cat([below, median, median + steps[..., middle:].cumsum(-1)], -1)

    def mean(self, raw: Raw) -> Numbers:
        """The mean: quantiles are joined by lines, and tails fall off as exponentials."""
        values, low, high = self._tails(raw)
        between = (values[..., 1:] + values[..., :-1]).sum(-1) / 2
        return (between + (values[..., 0] - low) + (values[..., -1] + high)) / (self.n + 1)

    def spread(self, raw: Raw) -> Numbers:
        """The standard deviation."""
        values, low, high = self._tails(raw)
        mean = self.mean(raw)
        values = values - mean.unsqueeze(-1)
        a, b = values[..., :-1], values[..., 1:]
        between = ((a.square() + a * b + b.square()) / 3).sum(-1)
        ends = (values[..., 0] - low).square() + low.square() + (values[..., -1] + high).square() + high.square()
        return torch.sqrt((between + ends) / (self.n + 1))

    def quantile(self, raw: Raw, level: Numbers) -> Numbers:
        """The quantile of any level."""
        values, low, high = self._tails(raw)
        step = level * (self.n + 1)  # the k-th quantile lies at k
        i = step.floor().clamp(1, self.n - 1).long()
        before, after = values.gather(-1, (i - 1).unsqueeze(-1)), values.gather(-1, i.unsqueeze(-1))
        inside = (before + (after - before) * (step - i).unsqueeze(-1)).squeeze(-1)
        below = values[..., 0] + low * torch.log(step.clamp(max=1))
        above = values[..., -1] - high * torch.log((self.n + 1 - step).clamp(max=1))
        return torch.where(step < 1, below, torch.where(step > self.n, above, inside))

    def cdf(self, raw: Raw, x: Numbers) -> Numbers:
        """The probability of a number of at most x."""
        values, low, high = self._tails(raw)
        i = (x.unsqueeze(-1) >= values).sum(-1).clamp(1, self.n - 1)
        before, after = values.gather(-1, (i - 1).unsqueeze(-1)), values.gather(-1, i.unsqueeze(-1))
        inside = i + ((x.unsqueeze(-1) - before) / (after - before)).squeeze(-1)
        below = torch.exp(((x - values[..., 0]) / low).clamp(max=0))
        above = self.n + 1 - torch.exp(((values[..., -1] - x) / high).clamp(max=0))
        step = torch.where(x < values[..., 0], below, torch.where(x > values[..., -1], above, inside))
        return step / (self.n + 1)

    def log_density(self, raw: Raw, x: Numbers) -> Numbers:
        """The logarithm of the density at x."""
        values, low, high = self._tails(raw)
        i = (x.unsqueeze(-1) >= values).sum(-1).clamp(1, self.n - 1)
        gap = (values.gather(-1, i.unsqueeze(-1)) - values.gather(-1, (i - 1).unsqueeze(-1))).squeeze(-1)
        below = (x - values[..., 0]) / low - torch.log(low)
        above = (values[..., -1] - x) / high - torch.log(high)
        logarithm = torch.where(x < values[..., 0], below, torch.where(x > values[..., -1], above, -torch.log(gap)))
        return logarithm - math.log(self.n + 1)

    def log_tails(self, raw: Raw, x: Numbers) -> tuple[Numbers, Numbers]:
        """The logarithms of the probabilities of at most x, and of more."""
        values, low, high = self._tails(raw)
        inside = self.cdf(raw, x)
        end = math.log(self.n + 1)
        below = torch.where(x < values[..., 0], (x - values[..., 0]) / low - end, torch.log(inside))
        above = torch.where(x > values[..., -1], (values[..., -1] - x) / high - end, torch.log1p(-inside))
        return below, above

    def quantile_of_log(self, raw: Raw, below: Numbers, above: Numbers) -> Numbers:
        """The quantile of a level, by its logarithm and that of 1 less the level."""
        values, low, high = self._tails(raw)
        end = math.log(self.n + 1)
        inside = self.quantile(raw, below.exp().clamp(1 / (self.n + 1), self.n / (self.n + 1)))
        return torch.where(
            below < -end,
            values[..., 0] + low * (below + end),
            torch.where(above < -end, values[..., -1] - high * (above + end), inside),
        )

    def _tails(self, raw: Raw) -> tuple[Float[Tensor, "n k l"], Numbers, Numbers]:
        """The quantiles, and the lengths of the two tails, whose densities go on where those between quantiles end."""
        values = self.values(raw)
        return values, values[..., 1] - values[..., 0], values[..., -1] - values[..., -2]

    def loss(self, raw: Raw, x: Numbers, variance: Numbers | None = None) -> Numbers:
        """Twice the mean pinball loss: about the continuous ranked probability score."""
        if variance is not None:
            raise ValueError("quantiles know nothing of measurement errors; take 'normal', 'student' or 'mixture'")
        return _pinball(self.values(raw), x, self.levels(raw)) + _squared(self, raw, x)


Likelihood = Normal | Student | Mixture | Quantiles
NAMES: dict[str, type[Normal] | type[Student] | type[Mixture] | type[Quantiles]] = {
    "normal": Normal,
    "student": Student,
    "mixture": Mixture,
    "quantiles": Quantiles,
}


def as_likelihood(given: object) -> Likelihood | None:
    """A likelihood as it is given: one of these, its name, or None for a squared error."""
    if given is None or isinstance(given, Likelihood):
        return given
    if isinstance(given, str) and given in NAMES:
        return NAMES[given]()
    names = ", ".join(map(repr, NAMES))
    raise ValueError(f"likelihood is one of {names}, or a value such as Mixture(n=4), or None, not {given!r}")


def loss_of_normal(
    likelihood: Likelihood, x: Numbers, mean: Numbers, spread: Tensor, variance: Numbers | None = None
) -> Numbers:
    """The loss of numbers under normal distributions around means: what a simple prediction would have.

    The spread holds the variance of measurement errors already, which is told for the squared error.
    """
    z = (x - mean) / spread
    squared = likelihood.mean_weight * _calmed((x - mean).square(), variance)
    if isinstance(likelihood, Quantiles):
        levels = likelihood.levels(x)
        quantiles = mean.unsqueeze(-1) + torch.special.ndtri(levels) * spread
        return _pinball(quantiles, x, levels) + squared
    return squared - _log_normal(z, torch.as_tensor(spread, dtype=x.dtype, device=x.device).expand_as(z))


def _squared(likelihood: Any, raw: Raw, x: Numbers, variance: Numbers | None = None) -> Numbers | float:
    if likelihood.mean_weight == 0:
        return 0.0
    return likelihood.mean_weight * _calmed((likelihood.mean(raw) - x).square(), variance)


def _calmed(squared: Numbers, variance: Numbers | None) -> Numbers:
    """Squared errors, each counting less the less its number was known: else the worst measurement decides a step."""
    return squared if variance is None else squared / (1 + variance)


def _pinball(quantiles: Float[Tensor, "n k l"], x: Numbers, levels: Float[Tensor, "l"]) -> Numbers:
    error = x.unsqueeze(-1) - quantiles
    return 2 * torch.maximum(levels * error, (levels - 1) * error).mean(-1)

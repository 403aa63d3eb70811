"""Distributions of predicted numbers, in the data's own units.

A model tells the distribution of a number as it sees it. In the data's own units that is the distribution of a rising
function of it: levels and scales are undone, and what was bent is straightened. Quantiles, intervals, probabilities and
samples go through that function exactly, and so do densities by its slope; means and deviations, where values are bent,
through quantiles of 200 levels.

Shapes: *s that of the predictions, p raw parameters of each, m components, l levels.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from romae.data.scaling import BENT, Method
from romae.model.likelihoods import Likelihood, Mixture, Normal, Quantiles, Student, scale_of, with_noise

N_LEVELS = 200  # for means of what is bent, and for scores
AT_ONCE = 20  # levels
N_HALVINGS = 50  # of an interval that a quantile of a mixture lies in

Array = Float64[np.ndarray, "*s"]


@dataclass(frozen=True, eq=False)
class Units:
    """What leads from a number as the model sees it to the data's own units, for each of the predictions.

    It is divided by `gain`, `level` is added, it is straightened, multiplied by `scale`, and `centre` is added.
    """

    gain: Float64[np.ndarray, "..."]
    level: Float64[np.ndarray, "..."]
    scale: Float64[np.ndarray, "..."]
    centre: Float64[np.ndarray, "..."]
    method: Method = "none"

    @property
    def is_straight(self) -> bool:
        """Whether nothing was bent."""
        return self.method not in BENT

    def to_data(self, z: Array) -> Array:
        """In the data's own units."""
        y = z / self.gain + self.level
        bend = BENT.get(self.method)
        straight = y if bend is None else bend * np.sinh(y / bend)
        return straight * self.scale + self.centre

    def to_model(self, x: Array) -> Array:
        """As the model sees it."""
        y = (x - self.centre) / self.scale
        bend = BENT.get(self.method)
        bent = y if bend is None else bend * np.arcsinh(y / bend)
        return (bent - self.level) * self.gain

    def log_slope(self, x: Array) -> Array:
        """The logarithm of the derivative of `to_model`."""
        y = (x - self.centre) / self.scale
        bend = BENT.get(self.method)
        slope = 0.0 if bend is None else -0.5 * np.log1p((y / bend) ** 2)
        return slope - np.log(self.scale) + np.log(self.gain)


class Distribution:
    """The distributions of predicted numbers, in the data's own units.

    `romae.interpolate(…, returns="distribution")` and `romae.predict` give it for models with a likelihood. Its methods
    give arrays in the shape of the predictions; a part of it is taken as of an array, `distribution[3]`.

    Parameters
    ----------
    likelihood : Normal, Student, Mixture or Quantiles
        What the model has learned.
    raw : array [*s, p]
        The output of its head.
    units : Units
        What leads to the data's own units, in arrays of the shape [*s].
    variance : array [*s], optional
        The variance of independent noise that is added, as the model sees numbers; `with_noise` takes it in the data's
        own units.

    Attributes
    ----------
    shape : tuple of int
        The shape of the predictions.
    """

    def __init__(
        self,
        likelihood: Likelihood,
        raw: Float64[np.ndarray, "*s p"],
        units: Units,
        variance: Float64[np.ndarray, "..."] | None = None,
    ) -> None:
        self.likelihood, self.raw = likelihood, raw
        self.variance = None if variance is None else np.broadcast_to(variance, raw.shape[:-1])
        gain, level, scale, centre = (
            np.broadcast_to(part, raw.shape[:-1]) for part in (units.gain, units.level, units.scale, units.centre)
        )
        self.units = Units(gain, level, scale, centre, units.method)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the predictions."""
        return self.raw.shape[:-1]

    def __repr__(self) -> str:
        return f"Distribution({self.likelihood.kind}, shape {self.shape})"

    def __len__(self) -> int:
        return len(self.raw)

    def __getitem__(self, index: Any) -> "Distribution":
        return self._at(np.arange(int(np.prod(self.shape))).reshape(self.shape)[index])

    def reshape(self, shape: tuple[int, ...]) -> "Distribution":
        """The same distributions in another shape.

        Parameters
        ----------
        shape : tuple of int
            The shape.

        Returns
        -------
        Distribution
            Of this shape.
        """
        return self._at(np.arange(int(np.prod(self.shape))).reshape(shape))

    def _at(self, places: Any) -> "Distribution":
        """The distributions at places in the flattened array."""
        given = self.units
        gain, level, scale, centre = (
            part.reshape(-1)[places] for part in (given.gain, given.level, given.scale, given.centre)
        )
        raw = self.raw.reshape(-1, self.raw.shape[-1])[places]
        variance = None if self.variance is None else self.variance.reshape(-1)[places]
        return Distribution(self.likelihood, raw, Units(gain, level, scale, centre, given.method), variance)

    def with_noise(self, error: Any) -> "Distribution":
        """The distributions of measurements, which add noise of their own to what they measure.

        A model that was trained with measurement errors tells the distribution of what is measured, without their
        noise. Noise is added to the scale of a prediction, or of each component of a mixture, as in training; where
        values are bent, it is that of a small error at the median.

        Parameters
        ----------
        error : array
            The standard deviation of the noise, in the data's own units, of a shape that fits the predictions; where it
            is missing or 0, nothing is added.

        Returns
        -------
        Distribution
            Of the same shape.

        Raises
        ------
        ValueError
            If an error is negative or infinite, or the model has learned quantiles.

        Examples
        --------
        >>> import numpy as np
        >>> import romae
        >>> random = np.random.default_rng(0)
        >>> samples = romae.from_arrays(random.normal(size=(8, 6, 1)), errors=np.full((8, 6, 1), 0.3))
        >>> scaling = romae.fit_scaling(samples)
        >>> size = romae.Size(width=16, heads=2, depth=1)
        >>> model = romae.ModelConfig.for_samples(samples, encoder=size)
        >>> task = romae.MaskedReconstruction(model, likelihood="normal")
        >>> config = romae.TrainConfig(epochs=1, batch_size=8, device="cpu")
        >>> _ = romae.train(task, samples, config, scaling=scaling, quiet=True)
        >>> [flux] = romae.interpolate(task, samples[:1], [[2.5]], returns="distribution")
        >>> measured = flux.with_noise(0.4)
        >>> np.allclose(measured.std() ** 2, flux.std() ** 2 + 0.4**2)
        True
        """
        if isinstance(self.likelihood, Quantiles):
            raise ValueError(
                "quantiles know nothing of measurement errors; train with the likelihood 'normal', 'student' or "
                "'mixture'"
            )
        error = np.nan_to_num(self._fitting(error), nan=0.0, posinf=np.inf, neginf=-np.inf)
        if not ((error >= 0) & (error < np.inf)).all():
            raise ValueError("measurement errors are standard deviations, finite and at least 0")
        slope = np.exp(self.units.log_slope(self.median()))
        before = 0.0 if self.variance is None else self.variance
        return Distribution(self.likelihood, self.raw, self.units, before + (error * slope) ** 2)

    def mean(self) -> Array:
        """The mean.

        Returns
        -------
        Float64 array
            In the shape of the predictions.
        """
        if self.units.is_straight:
            return self.units.to_data(self._moments()[0])
        return self._quantiles(self._even_levels()).mean(0)

    def std(self) -> Array:
        """The standard deviation.

        Returns
        -------
        Float64 array
            In the shape of the predictions.
        """
        if self.units.is_straight:
            return self._moments()[1] / self.units.gain * self.units.scale
        return self._quantiles(self._even_levels()).std(0)

    def median(self) -> Array:
        """The median.

        Returns
        -------
        Float64 array
            In the shape of the predictions.
        """
        return self.quantile(0.5)

    def quantile(self, level: float) -> Array:
        """The number that lies above a prediction with this probability.

        Parameters
        ----------
        level : float
            The probability, between 0 and 1.

        Returns
        -------
        Float64 array
            In the shape of the predictions.

        Raises
        ------
        ValueError
            If the level is no probability above 0 and below 1.
        """
        if not 0 < level < 1:
            raise ValueError(f"a quantile has a level above 0 and below 1, not {level}")
        return self.units.to_data(self._quantile(np.full(self.shape, float(level))))

    def interval(self, level: float = 0.9) -> tuple[Array, Array]:
        """The central interval in which a prediction lies with this probability.

        Parameters
        ----------
        level : float, default 0.9
            The probability, between 0 and 1.

        Returns
        -------
        tuple of two Float64 arrays
            Its lower and its upper end, each in the shape of the predictions.

        Raises
        ------
        ValueError
            If the level is no probability above 0 and below 1.
        """
        if not 0 < level < 1:
            raise ValueError(f"an interval has a level above 0 and below 1, not {level}")
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)

    def cdf(self, x: Any) -> Array:
        """The probability of a number of at most x.

        Parameters
        ----------
        x : array
            In the data's own units, of a shape that fits the predictions.

        Returns
        -------
        Float64 array
            In the shape of the predictions.
        """
        return self._cdf(self.units.to_model(self._fitting(x)))

    def log_prob(self, x: Any) -> Array:
        """The logarithm of the density at x.

        Parameters
        ----------
        x : array
            In the data's own units, of a shape that fits the predictions.

        Returns
        -------
        Float64 array
            In the shape of the predictions.
        """
        x = self._fitting(x)
        return self._log_density(self.units.to_model(x)) + self.units.log_slope(x)

    def sample(self, n: int, seed: int | None = None) -> Float64[np.ndarray, "n *s"]:
        """Draw numbers, each independent of the others.

        Parameters
        ----------
        n : int
            How many of each.
        seed : int, optional
            Draws the same numbers each time.

        Returns
        -------
        Float64 array [n, …]
            In the data's own units.

        Raises
        ------
        ValueError
            If n is below 1.
        """
        if n < 1:
            raise ValueError(f"at least one number can be drawn, n=1 or more, not {n}")
        levels = np.random.default_rng(seed).uniform(size=(n, *self.shape))
        return self._quantiles(np.clip(levels, np.finfo(float).tiny, 1 - np.finfo(float).epsneg))

    def crps(self, x: Any) -> Array:
        """The continuous ranked probability score of what came: how far the distribution was from it, 0 the best.

        Parameters
        ----------
        x : array
            What came, in the data's own units, of a shape that fits the predictions.

        Returns
        -------
        Float64 array
            In the shape of the predictions and the units of the data.
        """
        error = self._fitting(x) - self._quantiles(self._even_levels())
        levels = self._even_levels()
        return 2 * np.maximum(levels * error, (levels - 1) * error).mean(0)

    def _fitting(self, x: Any) -> Array:
        try:
            return np.broadcast_to(np.asarray(x, dtype=np.float64), self.shape)
        except ValueError:
            raise ValueError(f"numbers of shape {np.shape(x)} do not fit predictions of shape {self.shape}") from None

    def _even_levels(self) -> Float64[np.ndarray, "l *s"]:
        levels = (np.arange(N_LEVELS) + 0.5) / N_LEVELS
        return np.broadcast_to(levels.reshape(-1, *[1] * len(self.shape)), (N_LEVELS, *self.shape))

    def _quantiles(self, levels: Float64[np.ndarray, "l *s"]) -> Float64[np.ndarray, "l *s"]:
        """In the data's own units, some levels at once, so that they fit into memory."""
        parts = []
        for part in np.array_split(levels, -(-len(levels) // AT_ONCE)):
            raw = np.broadcast_to(self.raw, (len(part), *self.raw.shape))
            whole = Distribution(self.likelihood, raw, self.units, self.variance)
            parts.append(self.units.to_data(whole._quantile(part)))
        return np.concatenate(parts)

    # As the model sees numbers

    def _tensor(self) -> Float64[Tensor, "n 1 p"]:
        return torch.from_numpy(np.ascontiguousarray(self.raw)).double().reshape(-1, 1, self.raw.shape[-1])

    def _flat(self, x: Array) -> Float64[Tensor, "n 1"]:
        return torch.from_numpy(np.ascontiguousarray(x)).reshape(-1, 1)

    def _shaped(self, x: Tensor) -> Array:
        return x.reshape(self.shape).numpy()

    def _noise(self) -> Float64[Tensor, "n 1"] | None:
        return None if self.variance is None else torch.from_numpy(np.array(self.variance)).reshape(-1, 1)

    def _moments(self) -> tuple[Array, Array]:
        """The mean and the standard deviation."""
        raw, likelihood = self._tensor(), self.likelihood
        mean = likelihood.mean(raw)
        if isinstance(likelihood, Normal):
            spread = with_noise(scale_of(raw[..., 1]), self._noise())
        elif isinstance(likelihood, Student):
            freedom = likelihood.freedom(raw)
            spread = with_noise(scale_of(raw[..., 1]), self._noise()) * torch.sqrt(freedom / (freedom - 2))
        elif isinstance(likelihood, Mixture):
            weight, centre, scale = self._parts(raw)
            second = (weight.exp() * (scale.square() + (centre - mean.unsqueeze(-1)).square())).sum(-1)
            spread = second.sqrt()
        else:
            spread = likelihood.spread(raw)
        return self._shaped(mean), self._shaped(spread)

    def _log_density(self, z: Array) -> Array:
        if isinstance(self.likelihood, Quantiles):
            return self._shaped(self.likelihood.log_density(self._tensor(), self._flat(z)))
        return self._shaped(self.likelihood.log_density(self._tensor(), self._flat(z), self._noise()))

    def _parts(self, raw: Float64[Tensor, "n 1 p"]) -> tuple[Tensor, Tensor, Tensor]:
        """The components of a mixture, their noise included."""
        assert isinstance(self.likelihood, Mixture)
        weight, centre, scale = self.likelihood.parts(raw)
        return weight, centre, with_noise(scale, self._noise())

    def _cdf(self, z: Array) -> Array:
        from scipy.special import stdtr

        raw, likelihood, x = self._tensor(), self.likelihood, self._flat(z)
        if isinstance(likelihood, Quantiles):
            return self._shaped(likelihood.cdf(raw, x))
        if isinstance(likelihood, Mixture):
            weight, centre, scale = self._parts(raw)
            return self._shaped((weight.exp() * torch.special.ndtr((x.unsqueeze(-1) - centre) / scale)).sum(-1))
        standard = (x - raw[..., 0]) / with_noise(scale_of(raw[..., 1]), self._noise())
        if isinstance(likelihood, Student):
            return self._shaped(torch.from_numpy(stdtr(likelihood.freedom(raw).numpy(), standard.numpy())))
        return self._shaped(torch.special.ndtr(standard))

    def _quantile(self, level: Array) -> Array:
        from scipy.special import stdtrit

        raw, likelihood, u = self._tensor(), self.likelihood, self._flat(level)
        if isinstance(likelihood, Quantiles):
            return self._shaped(likelihood.quantile(raw, u))
        if isinstance(likelihood, Mixture):
            return self._shaped(_mixture_quantile(*self._parts(raw), u))
        if isinstance(likelihood, Student):
            standard = torch.from_numpy(stdtrit(likelihood.freedom(raw).numpy(), u.numpy()))
        else:
            standard = torch.special.ndtri(u)
        return self._shaped(raw[..., 0] + with_noise(scale_of(raw[..., 1]), self._noise()) * standard)


def _mixture_quantile(
    weight: Float64[Tensor, "n k m"],
    centre: Float64[Tensor, "n k m"],
    scale: Float64[Tensor, "n k m"],
    level: Float64[Tensor, "n k"],
) -> Float64[Tensor, "n k"]:
    """By halving an interval: a quantile lies between the lowest and the highest of those of the components."""
    of_components = centre + scale * torch.special.ndtri(level).unsqueeze(-1)
    low, high = of_components.amin(-1), of_components.amax(-1)
    for _ in range(N_HALVINGS):
        middle = (low + high) / 2
        below = (weight.exp() * torch.special.ndtr((middle.unsqueeze(-1) - centre) / scale)).sum(-1) < level
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return (low + high) / 2

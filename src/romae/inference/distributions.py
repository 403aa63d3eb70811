"""Distributions of predicted numbers, in the data's own units.

A model tells the distribution of a number as it sees it. In the data's own units that is the distribution of a rising
function of it: levels and scales are undone, and what was bent is straightened. Quantiles, intervals, probabilities and
samples go through that function exactly, and so do densities by its slope; means and deviations, where values are bent,
through quantiles of 200 levels. A calibration changes which of the model's levels a level is, and no mean.

Shapes: *s that of the predictions, p raw parameters of each, m components, l levels.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from romae.data.bends import BENT, Method
from romae.model.conformal import By, Conformal
from romae.model.likelihoods import Likelihood, Mixture, Normal, Quantiles, Student, scale_of, with_noise

N_LEVELS = 200  # for means of what is bent, and for scores
AT_ONCE = 20  # levels
N_STEPS, FARTHEST_STEP = 33, 5.0  # of each component of a mixture, in deviations, where its distribution is looked up
NEAR = 5.0  # scores, up to which 1 less a probability is exact enough
MIXTURES_AT_ONCE = 1_000
TINY = 1e-300  # of a density
MEDIANS_AT_ONCE = 1 << 16  # predictions whose medians are found together
N_HALVINGS = 50  # of an interval that a quantile of a mixture lies in
N_FIRST, N_NEWTON, CLOSE = 10, 5, 1e-13  # halvings before steps of Newton, those, and when they are done
FARTHEST = 1e4  # scores; what lies farther out is told apart by nobody
SMALLEST = 1e-300  # probability
MOST_LOG = 300.0  # of a number, so that it stays finite
POWER_LAW = math.log(1e-40)  # of a tail of Student's distribution, beyond which scipy's inverse has no number

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


@runtime_checkable
class Joint(Protocol):
    """What draws numbers that belong together: at some of the positions, each of its level given those before it."""

    @property
    def n_columns(self) -> int:
        """How many numbers there are at a position."""
        ...

    def __call__(
        self, rows: Int64[np.ndarray, "r"], levels: Float64[np.ndarray, "n r c"]
    ) -> Float64[np.ndarray, "n r c"]:
        """The numbers."""
        ...


NO_CURVES = "curves are drawn jointly from what romae.interpolate returns, and these distributions are none of it"


def _inside(levels: Float64[np.ndarray, "..."]) -> Float64[np.ndarray, "..."]:
    """Levels that are neither 0 nor 1."""
    return np.clip(levels, np.finfo(float).tiny, 1 - np.finfo(float).epsneg)


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
    calibration : Conformal, optional
        What is done to levels (`romae.calibrate`); None leaves them as the model has learned them.
    places : array, optional
        The number of the channel of each prediction, or its distance to what was observed, as the calibration asks.
    by : {"channel", "distance"}, optional
        Which of both places are; by default what the calibration goes by, channels without one.

    Attributes
    ----------
    shape : tuple of int
        The shape of the predictions.

    Notes
    -----
    A calibration moves quantiles, intervals, probabilities, densities, samples and the standard deviation. The mean
    stays that of the model, which `romae.predict` gives as well.
    """

    def __init__(
        self,
        likelihood: Likelihood,
        raw: Float64[np.ndarray, "*s p"],
        units: Units,
        variance: Float64[np.ndarray, "..."] | None = None,
        calibration: Conformal | None = None,
        places: Any = None,
        by: By | None = None,
    ) -> None:
        self.likelihood, self.raw, self.calibration = likelihood, raw, calibration
        self.by = by
        if by is None and places is not None:
            self.by = "distance" if calibration is not None and calibration.by == "distance" else "channel"
        if calibration is not None and calibration.groups and calibration.by != self.by:
            of_what = "distances to the nearest observation" if calibration.by == "distance" else "channels"
            raise ValueError(
                f"this calibration has maps of its own for {of_what}, and these distributions do not know theirs; set "
                "task.calibration before predicting"
            )
        self.variance = None if variance is None else np.broadcast_to(variance, raw.shape[:-1])
        gain, level, scale, centre = (
            np.broadcast_to(part, raw.shape[:-1]) for part in (units.gain, units.level, units.scale, units.centre)
        )
        self.units = Units(gain, level, scale, centre, units.method)
        self.places = np.broadcast_to(np.asarray(0.0 if places is None else places, dtype=np.float64), raw.shape[:-1])
        self._joint: Joint | str = NO_CURVES
        self._entries: Int64[np.ndarray, "*s"] | None = None  # where a part lies among all that were asked

    def drawn_by(self, joint: "Joint | str") -> "Distribution":
        """The same distributions with what draws whole curves of them, or the reason why nothing does.

        Parameters
        ----------
        joint : callable or str
            Takes the rows to draw and a level for each number, and gives the numbers.

        Returns
        -------
        Distribution
            This one.
        """
        self._joint, self._entries = joint, np.arange(int(np.prod(self.shape))).reshape(self.shape)
        return self

    @property
    def joint(self) -> "Joint | str":
        """What draws whole curves, or the reason why nothing does."""
        return self._joint

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_joint": "curves cannot be drawn jointly from a copy, which holds no model"}

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the predictions."""
        return self.raw.shape[:-1]

    def __repr__(self) -> str:
        calibrated = "" if self.calibration is None else ", calibrated"
        return f"Distribution({self.likelihood.kind}, shape {self.shape}{calibrated})"

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
            np.asarray(part.reshape(-1)[places]) for part in (given.gain, given.level, given.scale, given.centre)
        )
        raw = self.raw.reshape(-1, self.raw.shape[-1])[places]
        units = Units(gain, level, scale, centre, given.method)
        variance = None if self.variance is None else self.variance.reshape(-1)[places]
        part = self._changed(raw=raw, units=units, variance=variance, places=self.places.reshape(-1)[places])
        part._joint = self._joint
        part._entries = None if self._entries is None else np.asarray(self._entries.reshape(-1)[places])
        return part

    def _changed(self, **changes: Any) -> "Distribution":
        names = ("likelihood", "raw", "units", "variance", "calibration", "places", "by")
        given = {name: getattr(self, name) for name in names} | changes
        return Distribution(**(given if self.by is not None else given | {"places": None}))

    def with_calibration(self, calibration: Conformal | None) -> "Distribution":
        """The same distributions under another calibration.

        Parameters
        ----------
        calibration : Conformal or None
            What is done to levels; None leaves them as the model has learned them.

        Returns
        -------
        Distribution
            Of the same shape.

        Raises
        ------
        ValueError
            If the calibration goes by the distance to the nearest observation, and these were predicted without it.
        """
        return self._changed(calibration=calibration)

    def in_units(self, units: Units) -> "Distribution":
        """The same distributions of what the model sees, with other units that lead to the data's own.

        Parameters
        ----------
        units : Units
            In arrays of the shape of the predictions.

        Returns
        -------
        Distribution
            Of the same shape.
        """
        return self._changed(units=units)

    def with_noise(self, error: Any) -> "Distribution":
        """The distributions of measurements, which add noise of their own to what they measure.

        A model that was trained with measurement errors tells the distribution of what is measured, without their
        noise. Noise is added to the scale of a prediction, or of each component of a mixture, as in training. Where
        values are bent, a measurement one error above the median and one below stay as far apart as they are.

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
        # Not the slope at the median: it knows nothing of the bend, and an error far beyond it would become a noise
        # of thousands where bent values end at ten.
        median = self.median()
        noise = (self.units.to_model(median + error) - self.units.to_model(median - error)) / 2
        before = 0.0 if self.variance is None else self.variance
        return self._changed(variance=before + noise**2)

    def mean(self) -> Array:
        """The mean, which a calibration does not change.

        Returns
        -------
        Float64 array
            In the shape of the predictions.
        """
        if self.units.is_straight:
            return self.units.to_data(self._moments()[0])
        return self.with_calibration(None)._quantiles(self._even_levels()).mean(0)

    def std(self) -> Array:
        """The standard deviation.

        Returns
        -------
        Float64 array
            In the shape of the predictions.
        """
        if self.units.is_straight and self.calibration is None:
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
        z = self.units.to_model(self._fitting(x))
        return self._cdf(z) if self.calibration is None else _normal_cdf(self._calibrated_score(z)[0])

    def normal_score(self, x: Any) -> Array:
        """How surprising x is: the number that a standard normal stays below with the probability `cdf(x)`.

        For numbers that the distributions are true of, these are standard normal. Far out, where a probability is 0 or
        1 in double precision, they still tell how far.

        Parameters
        ----------
        x : array
            In the data's own units, of a shape that fits the predictions.

        Returns
        -------
        Float64 array
            In the shape of the predictions.
        """
        z = self.units.to_model(self._fitting(x))
        return self._score(z) if self.calibration is None else self._calibrated_score(z)[0]

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
        z = self.units.to_model(x)
        density = self._log_density(z) + self.units.log_slope(x)
        if self.calibration is None:
            return density
        score, slope = self._calibrated_score(z)  # of the model's probability: a density times the slope of the levels
        return density + np.log(slope) + 0.5 * (self._score(z) ** 2 - score**2)

    def sample(self, n: int, seed: int | None = None, *, joint: bool = False) -> Float64[np.ndarray, "n *s"]:
        """Draw numbers, each independent of the others, or whole curves.

        Parameters
        ----------
        n : int
            How many of each.
        seed : int, optional
            Draws the same numbers each time.
        joint : bool, default False
            Whether the numbers of a draw belong together, as those of a curve. Each is then drawn from what the model
            says once the numbers drawn before it are visible: those far apart first, those between them later, and in
            the order of time for models that were taught to look ahead (`Future`). That takes as many passes of the
            model as there are positions, each over n samples. Several values of one measurement are drawn
            independently of each other. For what `romae.interpolate` returns, and parts of it.

        Returns
        -------
        Float64 array [n, …]
            In the data's own units.

        Raises
        ------
        ValueError
            If n is below 1, or curves are to be drawn of distributions that did not come from `romae.interpolate`, or
            of a model with windows or queries that were decoded together.
        """
        if n < 1:
            raise ValueError(f"at least one number can be drawn, n=1 or more, not {n}")
        random = np.random.default_rng(seed)
        levels = _inside(random.uniform(size=(n, *self.shape)))
        if not joint:
            return self._quantiles(levels)
        if isinstance(self._joint, str) or self._entries is None:
            raise ValueError(f"{self._joint}; leave joint out to draw each number by itself")
        if self.raw.size == 0:
            return np.zeros((n, *self.shape))
        entries, n_columns = self._entries.reshape(-1), self._joint.n_columns
        rows, row = np.unique(entries // n_columns, return_inverse=True)
        # A token holds all values of a measurement: those that are not asked for are drawn as well.
        whole = _inside(random.spawn(1)[0].uniform(size=(n, len(rows), n_columns)))
        whole[:, row, entries % n_columns] = levels.reshape(n, -1)
        return self._joint(rows, whole)[:, row, entries % n_columns].reshape(n, *self.shape)

    def at_levels(self, levels: Array) -> Array:
        """Quantiles of a level of their own for each prediction.

        Parameters
        ----------
        levels : Float64 array
            Probabilities between 0 and 1, in the shape of the predictions.

        Returns
        -------
        Float64 array
            In the shape of the predictions.
        """
        return self._quantiles(levels[None])[0]

    def crps(self, x: Any) -> Array:
        """The continuous ranked probability score of what came: how far the distribution was from it, 0 the best.

        By the formulas of normal and Student's distributions and mixtures; by quantiles of 200 levels where values are
        bent or levels calibrated.

        Parameters
        ----------
        x : array
            What came, in the data's own units, of a shape that fits the predictions.

        Returns
        -------
        Float64 array
            In the shape of the predictions and the units of the data.
        """
        if self.units.is_straight and self.calibration is None and not isinstance(self.likelihood, Quantiles):
            return self._crps(self.units.to_model(self._fitting(x))) / self.units.gain * self.units.scale
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
        rows = levels.reshape(len(levels), -1)
        is_shared = rows.shape[1] > 0 and bool((rows == rows[:, :1]).all())
        if is_shared and isinstance(self.likelihood, Mixture):
            return self.units.to_data(self._shared_quantiles(rows[:, 0]).T.reshape(levels.shape))
        parts = []
        for part in np.array_split(levels, -(-len(levels) // AT_ONCE)):
            raw = np.broadcast_to(self.raw, (len(part), *self.raw.shape))
            several = self._changed(raw=raw)
            parts.append(self.units.to_data(several._quantile(part)))
        return np.concatenate(parts)

    # As the model sees numbers

    def _shared_quantiles(self, levels: Float64[np.ndarray, "l"]) -> Float64[np.ndarray, "n l"]:
        """Quantiles of the same levels for every mixture."""
        weights, centres, scales = self._parts(self._tensor())
        weight, centre, scale = (part.squeeze(1) for part in (weights, centres, scales))
        if self.calibration is None:
            return _mixture_quantiles(weight, centre, scale, torch.from_numpy(levels.copy())).numpy()
        places = np.broadcast_to(self.places, self.shape).reshape(-1)
        told, maps = np.empty((len(weight), len(levels))), self.calibration.map_of(places)
        for number in np.unique(maps):
            here = np.flatnonzero(maps == number)
            score = self.calibration.to_model(_normal_quantile(levels), np.repeat(places[here[:1]], len(levels)))
            near, far = np.flatnonzero(np.abs(score) <= NEAR), np.flatnonzero(np.abs(score) > NEAR)
            if len(near):
                chances = torch.from_numpy(_normal_cdf(score[near]))
                told[np.ix_(here, near)] = _mixture_quantiles(weight[here], centre[here], scale[here], chances)
            # A few levels, in tails of which 1 less a probability says too little.
            for level in far:
                of_all = torch.full((len(here), 1), float(score[level]), dtype=torch.float64)
                found = _mixture_quantile_at(weights[here], centres[here], scales[here], of_all)
                told[here, level] = found.numpy()[:, 0]
        return told

    def _tensor(self) -> Float64[Tensor, "n 1 p"]:
        return torch.from_numpy(np.array(self.raw)).double().reshape(-1, 1, self.raw.shape[-1])

    def _flat(self, x: Array) -> Float64[Tensor, "n 1"]:
        return torch.from_numpy(np.array(x)).reshape(-1, 1)

    def _shaped(self, x: Tensor) -> Array:
        return x.reshape(self.shape).numpy()

    def _noise(self) -> Float64[Tensor, "n 1"] | None:
        return None if self.variance is None else torch.from_numpy(np.array(self.variance)).reshape(-1, 1)

    def _moments(self) -> tuple[Array, Array]:
        """The mean and the standard deviation."""
        raw, likelihood = self._tensor(), self.likelihood
        mean = likelihood.mean(raw)
        if isinstance(likelihood, Normal):
            spread = self._scale(raw)
        elif isinstance(likelihood, Student):
            freedom = likelihood.freedom(raw)
            spread = self._scale(raw) * torch.sqrt(freedom / (freedom - 2))
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
        standard = (x - raw[..., 0]) / self._scale(raw)
        if isinstance(likelihood, Student):
            return self._shaped(torch.from_numpy(stdtr(likelihood.freedom(raw).numpy(), standard.numpy())))
        return self._shaped(torch.special.ndtr(standard))

    def _calibrated_score(self, z: Array) -> tuple[Array, Array]:
        """The normal scores of calibrated probabilities, and how fast they rise with those of the model's."""
        assert self.calibration is not None
        return self.calibration.from_model(self._score(z), self.places)

    def _score(self, z: Array) -> Array:
        """The normal score of the model's probability of at most z, which is told apart in both tails."""
        raw, likelihood, x = self._tensor(), self.likelihood, self._flat(z)
        if isinstance(likelihood, Normal):
            return np.clip(self._shaped((x - raw[..., 0]) / self._scale(raw)), -FARTHEST, FARTHEST)
        below, above = self._log_tails(raw, x)
        score = torch.where(below < above, _score_of_log(below), -_score_of_log(above))
        return np.clip(self._shaped(score), -FARTHEST, FARTHEST)

    def _quantile(self, level: Array) -> Array:
        from scipy.special import stdtrit

        raw, likelihood, u = self._tensor(), self.likelihood, self._flat(level)
        if self.calibration is not None:
            score = self.calibration.to_model(_normal_quantile(level), self.places)
            return self._shaped(self._quantile_at(raw, self._flat(score)))
        if isinstance(likelihood, Quantiles):
            return self._shaped(likelihood.quantile(raw, u))
        if isinstance(likelihood, Mixture):
            return self._shaped(_mixture_quantile(*self._parts(raw), u))
        if isinstance(likelihood, Student):
            standard = torch.from_numpy(stdtrit(likelihood.freedom(raw).numpy(), u.numpy()))
        else:
            standard = torch.special.ndtri(u)
        return self._shaped(raw[..., 0] + self._scale(raw) * standard)

    def _scale(self, raw: Float64[Tensor, "n k p"]) -> Float64[Tensor, "n k"]:
        return with_noise(scale_of(raw[..., 1]), self._noise())

    def _log_tails(
        self, raw: Float64[Tensor, "n k p"], x: Float64[Tensor, "n k"]
    ) -> tuple[Float64[Tensor, "n k"], Float64[Tensor, "n k"]]:
        """The logarithms of the probabilities of at most x, and of more."""
        from scipy.special import stdtr

        likelihood = self.likelihood
        if isinstance(likelihood, Quantiles):
            return likelihood.log_tails(raw, x)
        if isinstance(likelihood, Mixture):
            weight, centre, scale = self._parts(raw)
            z = (x.unsqueeze(-1) - centre) / scale
            below, above = (torch.logsumexp(weight + torch.special.log_ndtr(side), -1) for side in (z, -z))
            return below, above
        assert isinstance(likelihood, Student)
        freedom, t = likelihood.freedom(raw).numpy(), ((x - raw[..., 0]) / self._scale(raw)).numpy()
        below, above = (torch.from_numpy(np.log(stdtr(freedom, side) + SMALLEST)) for side in (t, -t))
        return below, above

    def _crps(self, z: Array) -> Array:
        """The score as the model sees numbers, in closed form (Jordan et al. 2019)."""
        from scipy.special import beta, stdtr

        raw, likelihood, x = self._tensor(), self.likelihood, self._flat(z)
        if isinstance(likelihood, Mixture):
            weight, centre, scale = self._parts(raw)
            return self._shaped(mixture_crps(x, weight, centre, scale))
        scale = self._scale(raw)
        if isinstance(likelihood, Student):
            freedom, t = likelihood.freedom(raw).numpy(), ((x - raw[..., 0]) / scale).numpy()
            density = (1 + t**2 / freedom) ** (-(freedom + 1) / 2) / (np.sqrt(freedom) * beta(0.5, freedom / 2))
            spread = np.sqrt(freedom) * beta(0.5, freedom - 0.5) / beta(0.5, freedom / 2) ** 2
            score = t * (2 * stdtr(freedom, t) - 1) + 2 * (density * (freedom + t**2) - spread) / (freedom - 1)
            return self._shaped(scale) * score.reshape(self.shape)
        return self._shaped(_mean_distance(x - raw[..., 0], scale) - scale / math.sqrt(math.pi))

    def _quantile_at(self, raw: Float64[Tensor, "n k p"], score: Float64[Tensor, "n k"]) -> Float64[Tensor, "n k"]:
        """The quantile of the level whose normal score is given, in the upper tail as far out as in the lower one."""
        from scipy.special import stdtrit

        likelihood = self.likelihood
        if isinstance(likelihood, Quantiles):
            return likelihood.quantile_of_log(raw, torch.special.log_ndtr(score), torch.special.log_ndtr(-score))
        if isinstance(likelihood, Mixture):
            (weight, centre, scale), is_far = self._parts(raw), (score.abs() > NEAR).squeeze(-1)
            # Several times as fast as logarithms of tails.
            told = _mixture_quantile(weight, centre, scale, torch.special.ndtr(score.clamp(-NEAR, NEAR)))
            if bool(is_far.any()):
                told[is_far] = _mixture_quantile_at(weight[is_far], centre[is_far], scale[is_far], score[is_far])
            return told
        if isinstance(likelihood, Student):
            freedom, tail = likelihood.freedom(raw), torch.special.log_ndtr(-score.abs())
            standard = torch.from_numpy(stdtrit(freedom.numpy(), tail.clamp(min=POWER_LAW).exp().numpy()))
            farther = torch.exp(((POWER_LAW - tail).clamp(min=0) / freedom).clamp(max=MOST_LOG))
            score = -torch.sign(score) * standard * farther
        return raw[..., 0] + self._scale(raw) * score


def mixture_crps(
    x: Float64[Tensor, "*n"],
    weight: Float64[Tensor, "*n m"],
    centre: Float64[Tensor, "*n m"],
    scale: Float64[Tensor, "*n m"],
) -> Float64[Tensor, "*n"]:
    """The score of mixtures of normal distributions at x; of weights, the logarithms (Grimit et al. 2006)."""
    share = weight.exp()
    to_x = (share * _mean_distance(x.unsqueeze(-1) - centre, scale)).sum(-1)
    apart = centre.unsqueeze(-1) - centre.unsqueeze(-2)
    scales = torch.hypot(scale.unsqueeze(-1), scale.unsqueeze(-2))
    within = (share.unsqueeze(-1) * share.unsqueeze(-2) * _mean_distance(apart, scales)).sum((-1, -2))
    return to_x - within / 2


def _mixture_quantile(
    weight: Float64[Tensor, "n k m"],
    centre: Float64[Tensor, "n k m"],
    scale: Float64[Tensor, "n k m"],
    level: Float64[Tensor, "n k"],
) -> Float64[Tensor, "n k"]:
    """By halving an interval, at whose ends are the lowest and the highest quantile of the components.

    Once it is short, Newton's method takes a few steps within it, and only what they leave open is halved on.
    """
    share, of_components = weight.exp(), centre + scale * torch.special.ndtri(level).unsqueeze(-1)
    low, high = of_components.amin(-1), of_components.amax(-1)
    low, high = _halved(share, centre, scale, level, low, high, N_FIRST)
    x = (low + high) / 2
    is_open = torch.ones_like(x, dtype=torch.bool)
    for _ in range(N_NEWTON):
        below, density = _cdf_and_density(x, share, centre, scale)
        excess = below - level
        low, high = torch.where(excess < 0, x, low), torch.where(excess < 0, high, x)
        following = (x - excess / density.clamp(min=TINY)).clamp(low, high)
        is_open, x = (following - x).abs() > CLOSE * (1 + x.abs()), following
    if bool(is_open.any()):
        share, centre, scale, level = (part[is_open] for part in (share, centre, scale, level))
        low, high = _halved(share, centre, scale, level, low[is_open], high[is_open], N_HALVINGS)
        x[is_open] = (low + high) / 2
    return x


def _cdf_and_density(x: Tensor, share: Tensor, centre: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """The probability of at most x under mixtures, and their density there."""
    z = (x.unsqueeze(-1) - centre) / scale
    density = (share * torch.exp(-0.5 * z.square()) / scale).sum(-1) / math.sqrt(2 * math.pi)
    return (share * torch.special.ndtr(z)).sum(-1), density


def _halved(
    share: Tensor, centre: Tensor, scale: Tensor, level: Tensor, low: Tensor, high: Tensor, n: int
) -> tuple[Tensor, Tensor]:
    """The interval in which a quantile lies, halved n times."""
    for _ in range(n):
        middle = (low + high) / 2
        below = (share * torch.special.ndtr((middle.unsqueeze(-1) - centre) / scale)).sum(-1) < level
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return low, high


def _mixture_quantiles(
    weight: Float64[Tensor, "n m"],
    centre: Float64[Tensor, "n m"],
    scale: Float64[Tensor, "n m"],
    levels: Float64[Tensor, "l"],
) -> Float64[Tensor, "n l"]:
    """Quantiles of the same levels for every mixture: its distribution is looked up once, and then read backwards.

    It is looked up at even steps of every component, so closely where anything happens. Between two of these points a
    quantile is found by Newton's method, from where a line has it.
    """
    steps = torch.linspace(-FARTHEST_STEP, FARTHEST_STEP, N_STEPS, dtype=torch.float64)
    parts = []
    for w, c, s in zip(*(part.split(MIXTURES_AT_ONCE) for part in (weight.exp(), centre, scale)), strict=True):
        mixture = w.unsqueeze(1), c.unsqueeze(1), s.unsqueeze(1)
        points = (c.unsqueeze(-1) + s.unsqueeze(-1) * steps).flatten(1).sort(1).values
        chances = _cdf_and_density(points, *mixture)[0].cummax(1).values
        u = levels.expand(len(w), -1).contiguous()
        after = torch.searchsorted(chances, u).clamp(1, points.shape[1] - 1)
        (low, high), (p, q) = ((x.gather(1, after - 1), x.gather(1, after)) for x in (points, chances))
        x = low + (high - low) * ((u - p) / (q - p).clamp(min=TINY)).clamp(0, 1)
        for _ in range(2):
            below, density = _cdf_and_density(x, *mixture)
            x = (x - (below - u) / density.clamp(min=TINY)).clamp(low, high)
        parts.append(x)
    return torch.cat(parts)


def _normal_cdf(score: Array) -> Array:
    from scipy.special import ndtr  # that of torch is 0 below -8

    return np.asarray(ndtr(score))


def _normal_quantile(level: Array) -> Array:
    return torch.special.ndtri(torch.from_numpy(np.array(level))).numpy()


def _score_of_log(log_level: Tensor) -> Tensor:
    """The normal score of a level of at most a half, by its logarithm."""
    from scipy.special import ndtri_exp

    return torch.from_numpy(np.asarray(ndtri_exp(log_level.numpy())))


def _mean_distance(offset: Tensor, scale: Tensor) -> Tensor:
    """The mean distance of a normal number from 0, by its mean and its deviation."""
    z = offset / scale
    density = torch.exp(-0.5 * z.square()) / math.sqrt(2 * math.pi)
    return 2 * scale * density + offset * (2 * torch.special.ndtr(z) - 1)


def _mixture_quantile_at(
    weight: Float64[Tensor, "n k m"],
    centre: Float64[Tensor, "n k m"],
    scale: Float64[Tensor, "n k m"],
    score: Float64[Tensor, "n k"],
) -> Float64[Tensor, "n k"]:
    """As `_mixture_quantile`, with the probability of the nearer tail, which does not end at 1e-16."""
    of_components = centre + scale * score.unsqueeze(-1)
    low, high = of_components.amin(-1), of_components.amax(-1)
    side = torch.where(score > 0, -1.0, 1.0)
    tail = torch.special.log_ndtr(-score.abs())
    for _ in range(N_HALVINGS):
        middle = (low + high) / 2
        z = side.unsqueeze(-1) * (middle.unsqueeze(-1) - centre) / scale
        is_below = (torch.logsumexp(weight + torch.special.log_ndtr(z), -1) < tail) == (side > 0)
        low, high = torch.where(is_below, middle, low), torch.where(is_below, high, middle)
    return (low + high) / 2


def joined(parts: Sequence[Distribution]) -> Distribution:
    """All predictions of several distributions in one row; they have one likelihood, one bend and one calibration."""
    # A sample that is asked nothing knows neither bend nor calibration.
    first = next((part for part in parts if part.raw.size), parts[0])

    def row(arrays: Any) -> Any:
        return np.concatenate([array.reshape(-1) for array in arrays])

    gain, level, scale, centre = (
        row(getattr(part.units, name) for part in parts) for name in ("gain", "level", "scale", "centre")
    )
    units = Units(gain, level, scale, centre, first.units.method)
    raw = np.concatenate([part.raw.reshape(-1, part.raw.shape[-1]) for part in parts])
    places = row(part.places for part in parts)
    # Of some parts errors are known and of others not.
    has_noise = any(part.variance is not None for part in parts)
    noise = [np.zeros(part.shape) if part.variance is None else part.variance for part in parts]
    variance = row(noise) if has_noise else None
    return Distribution(first.likelihood, raw, units, variance, first.calibration, places, first.by)


def medians(parts: Sequence[Distribution]) -> list[Array]:
    """The median of each of several distributions, many at once: one by one, each would take some milliseconds."""
    told: list[Array] = []
    sizes = [int(np.prod(part.shape)) for part in parts]
    group = np.cumsum([0, *sizes[:-1]]) // MEDIANS_AT_ONCE if parts else np.zeros(0)
    for number in np.unique(group):
        members = [part for part, own in zip(parts, group, strict=True) if own == number]
        ends = np.cumsum([int(np.prod(part.shape)) for part in members])
        rows = np.split(joined(members).median(), ends[:-1])
        told += [row.reshape(part.shape) for row, part in zip(rows, members, strict=True)]
    return told

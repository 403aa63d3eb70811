"""What the demonstration's model stands beside: a Gaussian process, MiniRocket, and sine waves, which know the formula.

Shapes: b series, c sensors, t times of the grid, f frequencies, n visible readings, m hidden ones.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int64

from romae.data.schema import SampleSet
from romae.experiments import baselines
from romae.experiments.datasets.oscillators import DURATION, FASTEST, SCHEMA, SLOWEST, SPEEDS
from romae.experiments.minirocket import MiniRocketClassifier
from romae.inference.interpolation import interpolate
from romae.model.tasks import MaskedReconstruction
from romae.tokens.sample import Sample

GRID = np.linspace(0, DURATION, 32)  # five times in the fastest oscillation and more
N_FEATURES = 2_000
SENSORS = range(len(SCHEMA.channels))
FREQUENCIES = np.linspace(SLOWEST / 2, 1.5 * FASTEST, 161)
PENALTY = 1e-2  # of the squares of amplitudes, which are about 1 where deviations of the noise are 0.05
N_FITTED = 60  # training series that say what the Gaussian process is like
LENGTHS, NOISES = np.geomspace(0.1, 2.0, 16).tolist(), (0.02, 0.05, 0.1, 0.2)

Curves = Float64[np.ndarray, "b c t"]


def by_lines(samples: Sequence[Sample]) -> Curves:
    """The visible readings of each sensor on an even grid, by straight lines between them."""
    curves = []
    for sample in samples:
        times, sensors, values = baselines.as_columns(sample)
        seen = ~sample.hidden.numpy()
        rows = [seen & (sensors == sensor) for sensor in SENSORS]
        curves.append([baselines.linear(times[row], values[row], GRID)[:, 0] for row in rows])
    return np.array(curves, dtype=np.float64)


def by_model(task: MaskedReconstruction, samples: Sequence[Sample]) -> Curves:
    """What a model draws on the same grid from the same readings."""
    queries = np.concatenate([np.column_stack([GRID, np.full_like(GRID, sensor)]) for sensor in SENSORS])
    drawn = interpolate(task, SampleSet(list(samples), SCHEMA), [queries] * len(samples))
    return np.stack(drawn).reshape(len(samples), len(SENSORS), len(GRID)).astype(np.float64)


def rocket(
    curves_of: Callable[[Sequence[Sample]], Curves], training: Sequence[Sample], testing: Sequence[Sample], seed: int
) -> Int64[np.ndarray, "b"]:
    """The speeds that MiniRocket predicts from curves."""
    classifier = MiniRocketClassifier(seed, n_features=N_FEATURES)
    return classifier.fit(curves_of(training), baselines.classes(training)).predict(curves_of(testing))


class SineWave(NamedTuple):
    """The wave of least squares through the visible readings of both sensors, of one frequency and two phases."""

    frequency: float
    filled: Float64[np.ndarray, "m 1"]

    @property
    def speed(self) -> int:
        """The class of the frequency."""
        share = (self.frequency - SLOWEST) / (FASTEST - SLOWEST)
        return int(np.clip(len(SPEEDS) * share, 0, len(SPEEDS) - 1))

    @classmethod
    def through(cls, sample: Sample) -> "SineWave":
        """That of one series: a Lomb-Scargle periodogram of both sensors together."""
        times, sensors, values = baselines.as_columns(sample)
        angle = 2 * np.pi * FREQUENCIES[:, None] * times
        is_sensor = [sensors == sensor for sensor in SENSORS]
        waves = np.stack(
            [wave(angle) * here for here in is_sensor for wave in (np.sin, np.cos)], axis=-1
        )  # f, n + m, 4
        hidden = sample.hidden.numpy()
        seen, y = waves[:, ~hidden], values[~hidden, 0].astype(np.float64)
        moments = seen.transpose(0, 2, 1)
        amplitudes = np.linalg.solve(moments @ seen + PENALTY * np.eye(4), (moments @ y)[..., None])[..., 0]
        error = ((np.einsum("fnk,fk->fn", seen, amplitudes) - y) ** 2).sum(1) + PENALTY * (amplitudes**2).sum(1)
        best = int(error.argmin())
        return cls(float(FREQUENCIES[best]), (waves[best, hidden] @ amplitudes[best])[:, None])


class Process(NamedTuple):
    """A Gaussian process of one sensor: a squared exponential around 0, with noise."""

    variance: float
    length: float
    noise: float

    @classmethod
    def fitted(cls, training: Sequence[Sample]) -> "Process":
        """The one under which the training series are most probable, each sensor by itself, hidden readings too."""
        columns = [baselines.as_columns(sample) for sample in training[:N_FITTED]]
        variance = float(np.mean([np.mean(values**2) for _, _, values in columns]))
        parts = [
            (times[sensors == sensor].astype(np.float64), values[sensors == sensor, 0].astype(np.float64))
            for times, sensors, values in columns
            for sensor in SENSORS
        ]
        choices = [cls(variance, length, noise) for length in LENGTHS for noise in NOISES]
        return max(choices, key=lambda process: sum(process.log_likelihood(*part) for part in parts))

    def log_likelihood(self, times: Float64[np.ndarray, "n"], values: Float64[np.ndarray, "n"]) -> float:
        """How probable values are, but for a constant."""
        root = np.linalg.cholesky(self._covariance(times, times) + self.noise**2 * np.eye(len(times)))
        return float(-0.5 * np.sum(np.linalg.solve(root, values) ** 2) - np.log(np.diag(root)).sum())

    def predict(self, times: np.ndarray, values: np.ndarray, queries: np.ndarray) -> np.ndarray:
        """The posterior mean, a method as `fill` takes it."""
        covariance = self._covariance(times, times) + self.noise**2 * np.eye(len(times))
        return self._covariance(queries, times) @ np.linalg.solve(covariance, values.astype(np.float64))

    def _covariance(self, a: Float64[np.ndarray, "n"], b: Float64[np.ndarray, "m"]) -> Float64[np.ndarray, "n m"]:
        lag = a[:, None].astype(np.float64) - b.astype(np.float64)
        return self.variance * np.exp(-0.5 * (lag / self.length) ** 2)

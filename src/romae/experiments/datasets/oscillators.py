"""Two sensors watch one oscillator, each at times of its own; how fast it is, is the class."""

import numpy as np

from romae.data.schema import Schema
from romae.tokens.sample import Sample

DURATION, NOISE, N_READINGS = 6.0, 0.05, 24
SLOWEST, FASTEST, SPEEDS = 0.2, 0.6, ("slow", "medium", "fast")
SCHEMA = Schema(id="series", channel="sensor", values=("reading",), channels=("left", "right"))


def oscillators(n_samples: int, seed: int) -> list[Sample]:
    """Series of scalar readings at (time, sensor), half of them hidden; the target is the index of the speed."""
    random = np.random.default_rng(seed)
    samples = []
    for i in range(n_samples):
        frequency, phase, lag = random.uniform(SLOWEST, FASTEST), random.uniform(0, 2 * np.pi), np.pi / 2
        times = random.uniform(0, DURATION, N_READINGS)
        sensor = np.arange(N_READINGS) % 2
        clean = np.sin(2 * np.pi * frequency * times + phase + lag * sensor)
        values = clean + random.normal(0, NOISE, N_READINGS)
        hidden = np.zeros(N_READINGS, dtype=bool)
        for which in (0, 1):
            hidden[random.permutation(np.flatnonzero(sensor == which))[: N_READINGS // 4]] = True
        speed = int(len(SPEEDS) * (frequency - SLOWEST) / (FASTEST - SLOWEST))
        samples.append(Sample(values[:, None], np.stack([times, sensor], 1), target=speed, id=i, hidden=hidden))
    return samples

"""A weather station's log with holes: temperature and humidity at uneven times, readings missing, each sensor once out.

Made, not measured: days and nights, weather that wanders over a day or two, and air that is drier when it is warm.
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Shaped

if TYPE_CHECKING:
    import pandas as pd

N_DAYS, PER_DAY = 20, 9
MISSING = 0.25  # of the readings of each sensor
OUTAGES = {"temperature": (6.0, 8.5), "humidity": (13.0, 15.0)}  # days
SENSORS = tuple(OUTAGES)
NOISE = {"temperature": 0.3, "humidity": 1.0}
BEGIN = np.datetime64("2026-03-01T00:00:00")
STEP = 0.25  # hours, of the weather


class Station(NamedTuple):
    """Readings [n, 2] of both sensors, and which of them the log lacks.

    Attributes
    ----------
    hours : Float64 array [n]
        When, since the begin.
    values : Float64 array [n, 2]
        What the sensors would have read.
    lacks : Bool array [n, 2]
        Which readings are not in the log.
    """

    hours: Float64[np.ndarray, "n"]
    values: Float64[np.ndarray, "n 2"]
    lacks: Bool[np.ndarray, "n 2"]

    def table(self) -> "pd.DataFrame":
        """The log: a column of times and one for each sensor, with empty cells."""
        import pandas as pd

        readings = np.where(self.lacks, np.nan, self.values.round(1))
        return pd.DataFrame({"time": dates(self.hours)} | dict(zip(SENSORS, readings.T, strict=True)))


def dates(hours: Float64[np.ndarray, "n"]) -> Shaped[np.ndarray, "n"]:
    """Moments, by the hours since the begin."""
    return BEGIN + (hours * 3600).round().astype("timedelta64[s]")


def station(seed: int) -> Station:
    """The log of one station; another seed is another one."""
    random = np.random.default_rng(seed)
    hours = np.sort(random.uniform(0, 24 * N_DAYS, N_DAYS * PER_DAY)).round(2)
    grid = np.arange(0, 24 * N_DAYS + STEP, STEP)
    warm, dry, bright = (np.interp(hours, grid, _wandering(random, len(grid), lasting)) for lasting in (36, 24, 60))
    day = np.sin(2 * np.pi * (hours - 9) / 24)
    temperature = 12 + 5 * day * (1 + 0.25 * bright) + 3 * warm
    humidity = 65 - 2.8 * (temperature - 12) + 5 * dry
    values = np.stack([temperature, humidity], 1) + random.normal(size=(len(hours), 2)) * list(NOISE.values())
    lacks = random.random(values.shape) < MISSING
    for column, (first, last) in enumerate(OUTAGES.values()):
        lacks[:, column] |= (first <= hours / 24) & (hours / 24 < last)
    return Station(hours, values, lacks)


def _wandering(random: np.random.Generator, n: int, lasting: float) -> Float64[np.ndarray, "n"]:
    """Weather: steps that are forgotten over so many hours, smoothed twice, of variance 1."""
    from scipy.signal import lfilter

    keep = np.exp(-3 * STEP / lasting)
    path = random.normal(size=n + 2_000)
    for _ in range(3):
        path = lfilter([1 - keep], [1, -keep], path)
    path = path[2_000:]
    return (path - path.mean()) / path.std()

"""Intervals around any prediction, by split conformal: how far off it was for series that were not trained on.

An error counts in units of a spread that the model gives of each series, or in those of the target where it gives none.
An interval of level 0.9 is as wide as nine tenths of these errors ask for, and one more for the series that comes. It
covers new series of the same kind with at least this probability, whatever the model is (Lei et al. 2018).

Shapes: v series that were held out, b series to predict for, o targets.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

MOST = 100_000  # series to keep; more of them change no interval that anyone could see
SMALLEST = 1e-12  # spread, so that an error can be divided by it
CLOSE = 1e-9  # levels are rounded numbers


@dataclass(frozen=True, eq=False)
class HeldOutErrors:
    """The errors of predictions for series that were not trained on, in units of their spreads, and their weights."""

    errors: Float64[np.ndarray, "v o"]
    weights: Float64[np.ndarray, "v"]

    @classmethod
    def of(
        cls,
        truth: Float64[np.ndarray, "v o"],
        predicted: Float64[np.ndarray, "v o"],
        spread: Float64[np.ndarray, "v o"],
        weights: Float64[np.ndarray, "v"] | None,
    ) -> "HeldOutErrors":
        """Those of predictions; weights are divided by their mean."""
        errors = np.abs(truth - predicted) / np.maximum(spread, SMALLEST)
        weights = np.ones(len(errors)) if weights is None else np.asarray(weights, dtype=np.float64)
        chosen = np.linspace(0, len(errors) - 1, min(len(errors), MOST)).round().astype(int)
        return cls(errors[chosen], weights[chosen] / weights[chosen].mean())

    def deviation(self, spread: Float64[np.ndarray, "b o"]) -> Float64[np.ndarray, "b o"]:
        """The standard deviation of new errors, from the spreads of new series."""
        return spread * np.sqrt(np.average(self.errors**2, axis=0, weights=self.weights))

    def half_width(self, spread: Float64[np.ndarray, "b o"], level: float) -> Float64[np.ndarray, "b o"]:
        """How far the ends of an interval lie from a prediction, from the spreads of new series."""
        most = self.weights.sum() / (self.weights.sum() + 1)
        if level > most + CLOSE:
            needed = math.ceil(level / (1 - level) - CLOSE)
            raise ValueError(
                f"an interval of level {level:g} needs at least {needed} series that were not trained on, and there "
                f"are {len(self.errors)}; ask for a level of at most {math.floor(1000 * most) / 1000:g}, or fit "
                "with more series"
            )
        return spread * np.array([self._quantile(column, level) for column in self.errors.T])

    def _quantile(self, errors: Float64[np.ndarray, "v"], level: float) -> float:
        """The smallest error that as much of the weight lies below as the level says, of one series more."""
        order = np.argsort(errors, kind="stable")
        below = np.cumsum(self.weights[order])
        enough = level * (below[-1] + 1) - CLOSE * len(errors)
        return float(errors[order][min(int(np.searchsorted(below, enough)), len(errors) - 1)])

"""What stands beside the model that needs no training: a fitted Gaussian process, and what needs no fit.

Each answers one series from what is visible of it alone. Shapes: n visible measurements, q that are asked for.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from romae.data.periods import find_periods
from romae.experiments.zero_sets import Pressures, Question
from romae.inference.baselines import last_value, linear, mean, seasonal
from romae.tokens.sample import Sample

N_RESTARTS = 1  # of the optimiser, from another random point
FALSE_ALARM = 0.01  # above which a period counts as none
LEAST_DEVIATION = 1e-6  # of a regression whose residuals are 0, in deviations of the visible values

Points = list[Float64[np.ndarray, "q"]]
Normals = tuple[Float64[np.ndarray, "q"], Float64[np.ndarray, "q"]]


def fitted_process(question: Question) -> Normals:
    """The mean and the deviation, noise included, of the Gaussian process that suits what is visible.

    Of a Matérn kernel with ν = 3/2, a squared exponential and a quasi-periodic one, each plus white noise, the one of
    the highest marginal likelihood. Measurement errors that are known are noise of their own.
    """
    seen = question.seen
    start, extent = seen.times[0], float(np.ptp(seen.times)) or 1.0
    level, scale = seen.values.mean(), question.scale
    known = np.zeros(len(seen.times)) if seen.errors is None else (seen.errors / scale) ** 2
    times, queries = (seen.times - start) / extent, (question.queries - start) / extent
    fits = [Process.fitted(kernel, times, (seen.values - level) / scale, known) for kernel in KERNELS]
    middle, deviation = max(fits, key=lambda fit: fit.log_likelihood).predict(queries)
    return middle * scale + level, np.hypot(deviation * scale, question.errors)


Matrix = Float64[np.ndarray, "n m"]
Slopes = list[Matrix]
BOUNDS = {"variance": (1e-2, 1e2), "noise": (1e-6, 1e1)}
JITTER = 1e-10


class Kernel(NamedTuple):
    """Correlations by the distances of times, with their derivatives by the logarithms of its parameters.

    Each parameter begins at a value and stays within two bounds; times and values are in units of their visible span
    and deviation.
    """

    correlation: Callable[[Matrix, Sequence[float]], tuple[Matrix, Slopes]]
    begins: tuple[float, ...]
    bounds: tuple[tuple[float, float], ...]


def _matern(distance: Matrix, parameters: Sequence[float]) -> tuple[Matrix, Slopes]:
    z = np.sqrt(3) * distance / parameters[0]
    decay = np.exp(-z)
    return (1 + z) * decay, [z**2 * decay]


def _squared_exponential(distance: Matrix, parameters: Sequence[float]) -> tuple[Matrix, Slopes]:
    z = (distance / parameters[0]) ** 2
    correlation = np.exp(-0.5 * z)
    return correlation, [z * correlation]


def _quasi_periodic(distance: Matrix, parameters: Sequence[float]) -> tuple[Matrix, Slopes]:
    length, roughness, period = parameters
    z, angle = (distance / length) ** 2, np.pi * distance / period
    sine = np.sin(angle) / roughness
    correlation = np.exp(-0.5 * z - 2 * sine**2)
    by_period = 4 * sine * np.cos(angle) / roughness * angle * correlation
    return correlation, [z * correlation, 4 * sine**2 * correlation, by_period]


KERNELS = (
    Kernel(_matern, (0.1,), ((1e-2, 1e1),)),
    Kernel(_squared_exponential, (0.1,), ((1e-2, 1e1),)),
    Kernel(_quasi_periodic, (1.0, 1.0, 0.2), ((1e-1, 1e1), (1e-1, 1e1), (3e-2, 1.0))),
)


class Process(NamedTuple):
    """A Gaussian process around 0 with noise, fitted to values at times.

    scikit-learn's is the same and takes five times as long, most of it not in arithmetic; a test holds this one
    against it.
    """

    kernel: Kernel
    parameters: Float64[np.ndarray, "p"]
    log_likelihood: float
    times: Float64[np.ndarray, "n"]
    values: Float64[np.ndarray, "n"]
    known: Float64[np.ndarray, "n"]

    @classmethod
    def fitted(
        cls,
        kernel: Kernel,
        times: Float64[np.ndarray, "n"],
        values: Float64[np.ndarray, "n"],
        known: Float64[np.ndarray, "n"],
    ) -> "Process":
        """The one of the highest marginal likelihood, from two places; `known` are variances beside the noise."""
        from scipy.optimize import minimize

        distance = np.abs(times[:, None] - times)
        bounds = np.log([BOUNDS["variance"], *kernel.bounds, BOUNDS["noise"]])
        random = np.random.default_rng(0)
        starts = [np.log([1.0, *kernel.begins, 0.1])]
        starts += [random.uniform(bounds[:, 0], bounds[:, 1]) for _ in range(N_RESTARTS)]

        def loss(logs: Float64[np.ndarray, "p"]) -> tuple[float, Float64[np.ndarray, "p"]]:
            return _negative_log_likelihood(kernel, logs, distance, values, known)

        ends = [minimize(loss, at, jac=True, method="L-BFGS-B", bounds=bounds) for at in starts]
        best = min(ends, key=lambda end: end.fun)
        return cls(kernel, np.exp(best.x), -float(best.fun), times, values, known)

    def predict(self, queries: Float64[np.ndarray, "q"]) -> tuple[Float64[np.ndarray, "q"], Float64[np.ndarray, "q"]]:
        """The mean and the deviation at other times, the noise of the process included."""
        from scipy.linalg import cho_solve, cholesky, solve_triangular

        variance, *inner, noise = self.parameters.tolist()
        among, _ = self.kernel.correlation(np.abs(self.times[:, None] - self.times), inner)
        between = variance * self.kernel.correlation(np.abs(self.times[:, None] - queries), inner)[0]
        factor = cholesky(variance * among + np.diag(self.known + noise + JITTER), lower=True)
        explained = np.square(solve_triangular(factor, between, lower=True)).sum(0)
        mean = between.T @ cho_solve((factor, True), self.values)
        return mean, np.sqrt((variance - explained).clip(min=0) + noise)


def _negative_log_likelihood(
    kernel: Kernel,
    logs: Float64[np.ndarray, "p"],
    distance: Matrix,
    values: Float64[np.ndarray, "n"],
    known: Float64[np.ndarray, "n"],
) -> tuple[float, Float64[np.ndarray, "p"]]:
    """And its gradient (Rasmussen and Williams, 2006, equations 5.8 and 5.9)."""
    from scipy.linalg.lapack import dpotrf, dpotri

    variance, *inner, noise = np.exp(logs).tolist()
    correlation, slopes = kernel.correlation(distance, inner)
    covariance = variance * correlation
    total = covariance.copy()
    total.flat[:: len(values) + 1] += known + noise + JITTER
    factor, failed = dpotrf(total, lower=1)
    if failed:  # singular in double precision: as good as impossible
        return 1e25, np.zeros_like(logs)
    half, _ = dpotri(factor, lower=1)
    inverse = np.tril(half) + np.tril(half, -1).T
    weights = inverse @ values
    value = 0.5 * values @ weights + np.log(factor.diagonal()).sum() + 0.5 * len(values) * np.log(2 * np.pi)
    inner_part = inverse - np.outer(weights, weights)
    gradient = [np.vdot(inner_part, slope) for slope in (covariance, *(variance * slope for slope in slopes))]
    return float(value), 0.5 * np.array([*gradient, noise * np.trace(inner_part)])


def seasonal_naive(questions: Sequence[Question]) -> Points:
    """The value a period before, where the periodogram of what is visible has a period; else the last value."""
    samples = [Sample(q.seen.values[:, None], q.seen.times[:, None]) for q in questions]
    found = find_periods(samples, quiet=True)
    methods = [
        seasonal(period) if chance < FALSE_ALARM else last_value
        for period, chance in zip(found["period"].tolist(), found["false_alarm"].tolist(), strict=True)
    ]
    return [_filled(method, question) for method, question in zip(methods, questions, strict=True)]


def _filled(method: Callable[..., np.ndarray], question: Question) -> Float64[np.ndarray, "q"]:
    seen = question.seen
    return method(seen.times, seen.values[:, None], question.queries)[:, 0]


POINT_METHODS: Mapping[str, Callable[[Sequence[Question]], Points]] = MappingProxyType(
    {
        "linear": lambda questions: [_filled(linear, question) for question in questions],
        "seasonal naive": seasonal_naive,
        "last value": lambda questions: [_filled(last_value, question) for question in questions],
        "mean": lambda questions: [_filled(mean, question) for question in questions],
    }
)


def regression(stay: Pressures) -> Normals:
    """The mean pressure by least squares on the other two of its minute, fitted to the visible minutes of the stay."""
    rows, question = stay.complete_rows, stay.map_beside_both
    design = np.column_stack([np.ones(len(rows)), rows[:, :2]])
    weights, *_ = np.linalg.lstsq(design, rows[:, 2], rcond=None)
    deviation = np.sqrt(np.square(rows[:, 2] - design @ weights).sum() / (len(rows) - design.shape[1]))
    both = [one.seen for one in stay.questions[:2]]
    at = np.column_stack([one.values[np.searchsorted(one.times, question.queries)] for one in both])
    middle = weights[0] + at @ weights[1:]
    return middle, np.full(len(middle), max(deviation, LEAST_DEVIATION * question.scale))

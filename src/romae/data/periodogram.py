"""The Lomb–Scargle periodogram of a series in one or several bands, with a mean and an amplitude for each band.

In each band a sinusoid with a mean is fitted at every frequency, with the band's own amplitude and phase (Zechmeister
and Kürster 2009), and the reductions of chi squared are added up. The sums over measurements that this takes are one
Fourier transform for all frequencies: measurements are spread over a fine grid by a smooth kernel, and what the kernel
does to frequencies is divided out (Dutt and Rokhlin 1993).

Shapes: n measurements, f frequencies, m points of a grid.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Complex128, Float64, Int64

PER_PEAK = 5  # frequencies in the width of a peak, which is 1 / span
DENSEST = 50.0  # frequencies up to so many per measurement and span: irregular times tell periods far below their gaps
MOST_FREQUENCIES = 500_000  # where nobody says what the shortest period is
MOST_GIVEN = 8_000_000  # of a range that was asked for: half a gigabyte
FEWEST_IN_BAND = 5  # a mean, an amplitude and a phase go through three measurements whatever they are
FEWEST = 10
WIDTH = 8  # grid points of the kernel: the sums are right to some 1e-6 of their size
BETA = 2.05 * WIDTH  # the shape of the kernel, for a grid of 1.5 times the points that are needed or more
ON_A_GRID = 0.05  # of the smallest gap: times whose gaps are multiples of it to this are evenly sampled
SMALLEST_DETERMINANT = 1e-6


class Band(NamedTuple):
    """The measurements of one band: times, values without their mean, and weights, which add up to 1.

    `weight` is what the band counts beside others: the sum of 1 / error², or the number over the variance.
    """

    times: Float64[np.ndarray, "n"]
    values: Float64[np.ndarray, "n"]
    weights: Float64[np.ndarray, "n"]
    weight: float

    @classmethod
    def of(
        cls,
        times: Float64[np.ndarray, "n"],
        values: Float64[np.ndarray, "n"],
        errors: Float64[np.ndarray, "n"] | None = None,
    ) -> "Band | None":
        """A band, or None where it has too few measurements, or constants."""
        if len(np.unique(times)) < FEWEST_IN_BAND:
            return None
        raw = np.ones(len(values)) if errors is None else errors**-2.0
        weights = raw / raw.sum()
        centred = values - weights @ values
        variance = float(weights @ centred**2)
        if not variance > 1e-24 * float(weights @ values**2):
            return None
        return cls(times, centred, weights, len(values) / variance if errors is None else float(raw.sum()))

    @property
    def total(self) -> float:
        """Chi squared of a constant."""
        return self.weight * float(self.weights @ self.values**2)


class Peak(NamedTuple):
    """The highest peak of a periodogram, and the period of the second one; NaN where there is none.

    `power` is the share of chi squared that the sinusoids explain, and `false_alarm` the probability that noise alone
    has a peak as high: that of one frequency times their number, close to an upper bound.
    """

    period: float = math.nan
    power: float = math.nan
    false_alarm: float = 1.0
    runner_up: float = math.nan


def highest_peak(bands: Sequence[Band], shortest: float | None = None, longest: float | None = None) -> Peak:
    """The period of a series, by what its bands have in common.

    By default periods go from `search_range` says.
    """
    n = sum(len(band.times) for band in bands)
    if not bands or n < FEWEST:
        return Peak()
    span = _span(bands)
    step = 1 / (PER_PEAK * span)
    low, high = search_range(bands, shortest, longest)
    first, last = max(math.ceil(low / step), 1), math.floor(high / step)
    if last < first:
        return Peak()
    if last > MOST_GIVEN:
        raise ValueError(
            f"periods down to {1 / high:.4g} over a span of {span:.4g} are {last:,} frequencies; look for longer ones "
            "with shortest="
        )
    total = sum(band.total for band in bands)
    power = sum(band.weight * _reductions(band, first, last, step) for band in bands) / total
    assert isinstance(power, np.ndarray)
    best = int(power.argmax())
    frequency, height = _refined(bands, (first + best) * step, step)
    # The second peak is the highest point of the curve outside of the first, whose foot is 1 / span away.
    foot = int(1.5 * PER_PEAK)
    others = power.copy()
    others[max(best - foot, 0) : best + foot + 1] = 0
    second = int(others.argmax())
    runner_up = 1 / _refined(bands, (first + second) * step, step)[0] if others[second] > 0 else math.nan
    height /= total
    return Peak(1 / frequency, height, false_alarm(height, n, len(bands), len(power)), runner_up)


def search_range(
    bands: Sequence[Band], shortest: float | None = None, longest: float | None = None
) -> tuple[float, float]:
    """The lowest and the highest frequency to look at.

    The longest period is half the span, so that two cycles are seen. Evenly sampled times tell no period below twice
    their step (Nyquist), of each band alone; others tell much shorter ones than their gaps, and frequencies go up to
    `DENSEST` times as many as there are times in the span.
    """
    times = np.unique(np.concatenate([band.times for band in bands]))
    span = _span(bands)
    low = 2 / span if longest is None else 1 / longest
    if shortest is not None:
        return low, 1 / shortest
    high = max(_highest(np.unique(band.times), len(times) / span) for band in bands)
    return low, min(high, MOST_FREQUENCIES / (PER_PEAK * span))


def _highest(times: Float64[np.ndarray, "n"], rate: float) -> float:
    """The highest frequency that the times of a band tell from others."""
    gaps = np.diff(times)
    step = float(gaps.min())
    steps = gaps / step
    # Of a clock that drifts, errors grow with the gap; a long gap says little about the step.
    is_even = bool((np.abs(steps - steps.round()) <= ON_A_GRID).all())
    return 0.5 / step if is_even else DENSEST * rate


def false_alarm(power: float, n: int, n_bands: int, n_frequencies: int) -> float:
    """The probability that normal noise has a peak of this power at any of so many frequencies, about.

    Of one frequency it is that of a beta distribution: of what n numbers leave after a mean in each band, the share
    that 2 parameters a band explain. It is a finite sum, since their half is a whole number.
    """
    half = (n - 3 * n_bands) / 2
    if half <= 0:
        return 1.0
    rest = max(1 - power, 1e-300)
    terms = [
        math.lgamma(half + j) - math.lgamma(half) - math.lgamma(j + 1) + j * math.log(max(power, 1e-300))
        for j in range(n_bands)
    ]
    largest = max(terms)
    log = half * math.log(rest) + largest + math.log(sum(math.exp(term - largest) for term in terms))
    return math.exp(min(log + math.log(n_frequencies), 0.0))


def _span(bands: Sequence[Band]) -> float:
    first, last = min(band.times.min() for band in bands), max(band.times.max() for band in bands)
    return float(last - first)


def _reductions(band: Band, first: int, last: int, step: float) -> Float64[np.ndarray, "f"]:
    """By how much a sinusoid of each frequency reduces the variance; frequencies are multiples of the step."""
    x = (band.times - band.times.min()) * step  # below 1 / PER_PEAK
    wy = _fourier_sums(x, band.weights * band.values, last)[first:]
    w = _fourier_sums(x, band.weights, 2 * last)
    return _reduction_of_sums(wy, w[first : last + 1], w[2 * first :: 2], float(band.weights @ band.values**2))


def _reduction_of_sums(
    wy: Complex128[np.ndarray, "f"],
    w: Complex128[np.ndarray, "f"],
    w_twice: Complex128[np.ndarray, "f"],
    variance: float,
) -> Float64[np.ndarray, "f"]:
    """The same from sums over exp(-i 2π f t): of weighted values, of weights, and of weights at twice the frequency."""
    yc, ys, c, s = wy.real, -wy.imag, w.real, -w.imag
    cc = 0.5 * (1 + w_twice.real) - c**2
    ss = 0.5 * (1 - w_twice.real) - s**2
    cs = -0.5 * w_twice.imag - c * s
    determinant = cc * ss - cs**2
    is_told = determinant > SMALLEST_DETERMINANT  # else sine and cosine are the same at these times
    reduction = ss * yc**2 + cc * ys**2 - 2 * cs * yc * ys
    reduction = np.divide(reduction, determinant, out=np.zeros_like(reduction), where=is_told)
    return np.clip(reduction, 0, variance)


def _fourier_sums(
    x: Float64[np.ndarray, "n"], numbers: Float64[np.ndarray, "n"], last: int
) -> Complex128[np.ndarray, "f"]:
    """Sums of numbers times exp(-i 2π k x) for k from 0 to `last`, with x from 0 to below 1 less the kernel."""
    m = _fast_size(max(3 * last, 64))  # half of it is 1.5 times the highest k
    place = x * m
    corner = np.ceil(place - WIDTH / 2).astype(np.int64)
    points: Int64[np.ndarray, "n w"] = corner[:, None] + np.arange(WIDTH)
    distance = (points - place[:, None]) * (2 / WIDTH)
    kernel = np.i0(BETA * np.sqrt(np.clip(1 - distance**2, 0, None)))
    grid = np.bincount((points % m).ravel(), (kernel * numbers[:, None]).ravel(), minlength=m)
    sums = np.fft.rfft(grid)[: last + 1]
    # The Fourier transform of the kernel (Kaiser and Bessel).
    root = np.sqrt(BETA**2 - (math.pi * WIDTH / m * np.arange(last + 1)) ** 2)
    return sums / (WIDTH * np.sinh(root) / root)


def _fast_size(at_least: int) -> int:
    """The next number that is a power of two, or 3 or 5 times one: Fourier transforms of these are quick."""
    power = 1 << (at_least - 1).bit_length()
    return min(size for size in (power, power * 3 // 4, power * 5 // 8) if size >= at_least)


def _refined(bands: Sequence[Band], frequency: float, step: float) -> tuple[float, float]:
    """The top of the peak beside a frequency, and the reduction of chi squared there: exact sums, ever closer."""
    height = 0.0
    for _ in range(2):
        frequencies = frequency + step * np.linspace(-1, 1, 21)
        heights = np.zeros(len(frequencies))
        for band in bands:
            turns = np.exp(-2j * math.pi * frequencies[:, None] * (band.times - band.times.min()))
            variance = float(band.weights @ band.values**2)
            sums = turns @ (band.weights * band.values), turns @ band.weights, turns**2 @ band.weights
            heights += band.weight * _reduction_of_sums(*sums, variance)
        top = int(heights.argmax())
        frequency, height, step = float(frequencies[top]), float(heights[top]), step / 10
    return frequency, height

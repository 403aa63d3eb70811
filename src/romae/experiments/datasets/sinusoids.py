"""Frequencies: waves of known frequency, half of whose points are hidden (the paper's Appendix B.4).

A series is a sum of one or two waves of amplitude 1 and phase 0, with whole frequencies from 0 to 24 Hz, at 100
evenly spaced times from 0 to 1, plus noise. Training knows sinusoids only; the evaluation also has square waves and
cycloids. A sample's target is the series without noise, and its id the tuple of its frequencies.

Shapes: b series, n times.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal

import numpy as np
from jaxtyping import Float

from romae.experiments.datasets.streams import streams
from romae.tokens.sample import Sample

COUNTS = MappingProxyType({"train": 10_000, "validation": 1_000})

N_POINTS, N_OBSERVED = 100, 50
HIGHEST = 24  # Hz
NOISE = 0.1  # standard deviation; the paper gives the variance, 0.01
NEWTON_STEPS = 60

Waveform = Literal["sine", "square", "cycloid"]


def generate(*, seed: int, counts: Mapping[str, int] = COUNTS) -> dict[str, list[Sample]]:
    """Sinusoids of each split: one or two, with equal chance, and two always differ in frequency.

    Training samples carry no mask, so that a new one may be drawn at each step; all others are `hidden` where
    they are not observed. Splits are drawn independently, so the size of one does not change the others.
    """
    return {
        split: _samples(_random_frequencies(counts[split], random), "sine", random, has_mask=split != "train")
        if counts[split]
        else []
        for split, random in streams(seed, counts).items()
    }


def evaluation(
    frequencies: Sequence[int], *, seed: int, n_series: int = 200, waveform: Waveform = "sine"
) -> list[Sample]:
    """Series that all have these frequencies (one or two), and differ in noise and in what is `hidden`."""
    if not 1 <= len(frequencies) <= 2:
        raise ValueError(f"a series has one or two frequencies, not {list(frequencies)}")
    if n_series < 1:
        raise ValueError(f"n_series must be at least 1, not {n_series}")
    random = np.random.default_rng([seed, *frequencies])
    return _samples([tuple(frequencies)] * n_series, waveform, random, has_mask=True)


def wave(times: Float[np.ndarray, "n"], frequency: int, waveform: Waveform = "sine") -> Float[np.ndarray, "n"]:
    """One wave between -1 and 1. At 0 Hz it stays at what it is at time 0: sine 0, square 1, cycloid -1."""
    if frequency < 0 or frequency != int(frequency):
        raise ValueError(f"frequencies are whole numbers of Hz from 0, not {frequency}")
    cycles = np.round(frequency * times, 9) % 1  # so that a whole cycle does not end up a hair below 1
    if waveform == "sine":
        return np.sin(2 * np.pi * cycles)
    if waveform == "square":
        return np.where(cycles < 0.5, 1.0, -1.0)
    if waveform == "cycloid":
        return -np.cos(_rolled(2 * np.pi * cycles))
    raise ValueError(f"waveform must be 'sine', 'square' or 'cycloid', not {waveform!r}")


def _rolled(path: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    """How far a wheel of radius 1 has turned when the point on its rim is at x = path: turn - sin(turn) = path."""
    turn = np.full_like(path, np.pi)
    for _ in range(NEWTON_STEPS):  # convergence is monotone from π, and slow only near the cusps
        slope = np.maximum(1 - np.cos(turn), 1e-12)
        turn = np.clip(turn - (turn - np.sin(turn) - path) / slope, 0, 2 * np.pi)
    return turn


def _random_frequencies(n_series: int, random: np.random.Generator) -> list[tuple[int, ...]]:
    first = random.integers(0, HIGHEST, n_series, endpoint=True)
    second = (first + random.integers(1, HIGHEST, n_series, endpoint=True)) % (HIGHEST + 1)
    is_pair = random.random(n_series) < 0.5
    return [
        (min(frequency, other), max(frequency, other)) if pair else (frequency,)
        for frequency, other, pair in zip(first.tolist(), second.tolist(), is_pair.tolist(), strict=True)
    ]


def _samples(
    frequencies: Sequence[tuple[int, ...]], waveform: Waveform, random: np.random.Generator, has_mask: bool
) -> list[Sample]:
    times = np.linspace(0, 1, N_POINTS)
    waves = {
        frequency: wave(times, frequency, waveform)
        for frequency in sorted({frequency for group in frequencies for frequency in group})
    }
    clean = np.stack([sum((waves[frequency] for frequency in group), np.zeros(N_POINTS)) for group in frequencies])
    noisy = clean + random.normal(0, NOISE, clean.shape)
    rank = random.random(clean.shape).argsort(axis=1).argsort(axis=1)
    return [
        Sample(
            values=seen[:, None],
            positions=times[:, None],
            target=true[:, None],
            id=group,
            hidden=mask if has_mask else None,
        )
        for seen, true, mask, group in zip(noisy, clean, rank >= N_OBSERVED, frequencies, strict=True)
    ]

"""Sounds for the tests of audio."""

import numpy as np
import torch

from romae.data.audio import read_waveform
from romae.data.filterbank import log_mel

RATE = 16_000


def tone(hertz: float, seconds: float = 1.0, rate: int = RATE) -> np.ndarray:
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(int(seconds * rate)) / rate)).astype(np.float32)


def noise(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.1, n).astype(np.float32)


def spectrogram(sound: np.ndarray) -> torch.Tensor:
    return log_mel(read_waveform(sound, RATE), RATE)

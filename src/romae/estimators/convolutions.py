"""Convolutions of series on an even grid: the features of MiniRocket (arXiv 2012.08791).

Each feature is the share of a dilated convolution's outputs above a bias. All kernels have nine weights, three of them
2 and six -1. Biases are quantiles of what a kernel gives on training series.

Shapes: b series, c channels, n time steps, m kernels, k features of a series, f features of a kernel at one dilation.
"""

import math
from itertools import combinations
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float32, Float64
from torch import Tensor
from torch.nn import functional as F

LENGTH = 9  # of a kernel
MOST_DILATIONS = 32
MOST_CHANNELS = 9  # that one kernel looks at
GOLDEN = (math.sqrt(5) + 1) / 2
SERIES_AT_ONCE = 128


class Bank(NamedTuple):
    """All kernels at one dilation. A kernel has weight zero on the channels that it does not look at."""

    weights: Float32[Tensor, "m c 9"]
    dilation: int
    padded: Bool[Tensor, "m"]
    biases: Float32[Tensor, "m f"]

    def __call__(self, series: Float32[Tensor, "b c n"]) -> Float32[Tensor, "b k"]:
        """The share of each kernel's outputs above each of its biases."""
        outputs = convolved(series, self.weights, self.dilation)
        margin = _margin(self.dilation)
        whole, inner = outputs[:, self.padded], outputs[:, ~self.padded, margin : outputs.shape[-1] - margin]
        shares = []
        for bias in self.biases.T.unsqueeze(-1):
            parts = (whole > bias[self.padded], inner > bias[~self.padded])
            shares += [part.float().mean(-1) for part in parts]
        return torch.cat(shares, dim=1)


def fit_banks(series: Float32[Tensor, "b c n"], n_features: int, random: np.random.Generator) -> list[Bank]:
    """A bank for each dilation. Which channels a kernel looks at and where its biases come from is drawn."""
    shapes = kernels()
    n_per_kernel = max(n_features // len(shapes), 1)
    banks, n_done = [], 0
    for number, (dilation, n) in enumerate(_dilations(series.shape[-1], n_per_kernel)):
        weights = shapes.unsqueeze(1) * _channels(len(shapes), series.shape[1], random).unsqueeze(-1)
        padded = (torch.arange(len(shapes)) + number) % 2 == 0
        places = torch.arange(n_done + 1, n_done + n * len(shapes) + 1, dtype=torch.float64) * GOLDEN % 1
        biases = _quantiles(series, weights, dilation, padded, places.reshape(n, len(shapes)).T, random)
        banks.append(Bank(weights, dilation, padded, biases))
        n_done += places.numel()
    return banks


def features_of(banks: list[Bank], series: Float32[Tensor, "b c n"]) -> Float64[np.ndarray, "b k"]:
    rows = [torch.cat([bank(part) for bank in banks], dim=1) for part in series.split(SERIES_AT_ONCE)]
    return torch.cat(rows).double().numpy()


def convolved(
    series: Float32[Tensor, "b c n"], weights: Float32[Tensor, "m c 9"], dilation: int
) -> Float32[Tensor, "b m n"]:
    """Series with zeros on either side under dilated kernels; as long as before."""
    return F.conv1d(series, weights, dilation=dilation, padding=_margin(dilation))


def _margin(dilation: int) -> int:
    """How far a kernel reaches to either side."""
    return LENGTH // 2 * dilation


def kernels() -> Float32[Tensor, "84 9"]:
    """All kernels of six weights -1 and three weights 2."""
    kernels = torch.full((math.comb(LENGTH, 3), LENGTH), -1.0)
    for row, places in enumerate(combinations(range(LENGTH), 3)):
        kernels[row, list(places)] = 2.0
    return kernels


def _dilations(length: int, n_per_kernel: int) -> list[tuple[int, int]]:
    """Dilations from 1 up to where a kernel spans the series, evenly in their logarithm, and the features of each."""
    n = min(n_per_kernel, MOST_DILATIONS)
    exponents = np.linspace(0, math.log2((length - 1) / (LENGTH - 1)), n)
    dilations, counts = np.unique((2**exponents).astype(int), return_counts=True)
    shares = counts * n_per_kernel // n
    shares[: n_per_kernel - shares.sum()] += 1  # what rounding left over
    return [(dilation, share) for dilation, share in zip(dilations.tolist(), shares.tolist(), strict=True) if share]


def _channels(n_kernels: int, n_channels: int, random: np.random.Generator) -> Bool[Tensor, "m c"]:
    """True on the channels that each kernel looks at: few more often than many."""
    most = min(n_channels, MOST_CHANNELS)
    counts = (2 ** random.uniform(0, math.log2(most + 1), n_kernels)).astype(int)
    order = random.random((n_kernels, n_channels)).argsort(axis=1)
    return torch.from_numpy(order < counts[:, None])


def _quantiles(
    series: Float32[Tensor, "b c n"],
    weights: Float32[Tensor, "m c 9"],
    dilation: int,
    padded: Bool[Tensor, "m"],
    places: Float64[Tensor, "m f"],
    random: np.random.Generator,
) -> Float32[Tensor, "m f"]:
    """Quantiles of the outputs of each kernel on one training series, drawn for each kernel."""
    margin, length = _margin(dilation), series.shape[-1]
    rows = []
    for kernel, drawn in enumerate(random.integers(len(series), size=len(weights)).tolist()):
        output = convolved(series[drawn : drawn + 1], weights[kernel : kernel + 1], dilation).flatten()
        if not padded[kernel]:
            output = output[margin : length - margin]
        rows.append(output.double().quantile(places[kernel]).float())
    return torch.stack(rows)

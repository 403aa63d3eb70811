"""Pooling over layers: what the tokens of a sample are like, before the first layer, after the middle one and the last.

In each of these layers and each coordinate of their embeddings: the mean over tokens, the logarithm of the deviation,
the highest and the lowest token in deviations from the mean, and the logarithm of the mean change from one time to
the next. Where tokens are of kinds, the first four again over the means of the kinds, so that what is measured often
does not outweigh what is measured once. Where there is a CLS token, that of the last layer.

Logarithms and extremes in deviations say the shape of a distribution apart from its width, which a linear model on
vectors could not find out by itself.

Shapes: t tokens, b samples, m cells (tokens of one sample at one position, or of one kind), w width, k = `n_pooled`.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Float32, Float64, Int64
from torch import Tensor

from romae.model.config import ModelConfig
from romae.tokens.layout import Layout
from romae.tokens.packed import sample_extreme, sample_mean, second_part
from romae.tokens.tokens import Tokens

# Deviations below this are as good as none: the logarithm of zero has to be a number, and rounding no signal.
SMALLEST = 1e-3
OF_TOKENS, OF_KINDS = 5, 4  # statistics


def pooled_layers(config: ModelConfig) -> tuple[int, ...]:
    """The layers that are pooled, by their number; 0 is what enters the first of them."""
    depth = config.encoder.depth
    return tuple(sorted({0, depth // 2, depth}))


def n_pooled(config: ModelConfig) -> int:
    """The length of a vector."""
    per_layer = OF_TOKENS + (0 if config.kinds is None else OF_KINDS)
    return config.encoder.width * (per_layer * len(pooled_layers(config)) + config.cls)


def pool_layers(layers: Sequence[Tokens], config: ModelConfig) -> Float32[Tensor, "b k"]:
    """One vector per sample of the outputs of `pooled_layers`, whatever the order of its tokens."""
    last = layers[-1]
    layout, positions = last.layout, last.positions
    if config.cls:
        singles = Layout.singles(layout.n_samples, layout.device)
        layout = Layout.of(layout.lengths - 1, layout.device)
        positions = second_part(positions, singles, layout)
    places = _Cells.of(positions, layout)
    kinds = None if config.kinds is None else _Cells.of(positions[:, -1:], layout)
    parts = []
    for tokens in layers:
        x = second_part(tokens.values, singles, layout) if config.cls else tokens.values
        x = x.double()  # a deviation is a small difference of sums
        parts += [*_distribution(x, layout), _change(x, places)]
        if kinds is not None:
            parts += _distribution(kinds.mean(x), kinds.layout)
    if config.cls:
        parts.append(last.first().double())
    return torch.cat(parts, dim=1).float()


def _distribution(x: Float64[Tensor, "t w"], layout: Layout) -> list[Float64[Tensor, "b w"]]:
    """Mean, log deviation, and the highest and the lowest row of each sample in deviations from the mean."""
    mean = sample_mean(x, layout)
    centred = x - mean[layout.sample_of_token]
    deviation = sample_mean(centred.square(), layout).sqrt() + SMALLEST
    highest, lowest = (sample_extreme(centred, layout, which) for which in ("max", "min"))
    return [mean, deviation.log(), highest / deviation, lowest / deviation]


def _change(x: Float64[Tensor, "t w"], places: "_Cells") -> Float64[Tensor, "b w"]:
    """The log mean absolute change from one time to the next, other positions being equal."""
    rows = places.mean(x)
    change = torch.zeros_like(rows)
    change[1:] = (rows[1:] - rows[:-1]).abs() * places.follows[1:].unsqueeze(1)
    n_changes = sample_mean(places.follows.double().unsqueeze(1), places.layout)  # as a share of the cells
    return (sample_mean(change, places.layout) / n_changes.clamp(min=1e-12) + SMALLEST).log()


class _Cells:
    """The tokens of each sample that are at one place, in the order of sample, further axes and time.

    Of one sample with two kinds, b measured twice at time 2:

        time, kind   (0, a) (2, b) (1, a) (2, b) (3, b)
        cells        (0, a) (1, a) (2, b) (3, b)
        follows      no     yes    no     yes
    """

    def __init__(
        self,
        order: Int64[Tensor, "t"],
        counts: Int64[Tensor, "m"],
        layout: Layout,
        follows: Bool[Tensor, "m"],
    ) -> None:
        self.order, self.counts, self.layout, self.follows = order, counts, layout, follows

    @classmethod
    def of(cls, positions: Float[Tensor, "t d"], layout: Layout) -> "_Cells":
        sample = layout.sample_of_token
        order = torch.arange(len(positions), device=positions.device)
        for key in (*positions.unbind(1), sample):  # sorted by the last key first
            order = order[key[order].argsort(stable=True)]
        places, sample = positions[order], sample[order]
        is_same_sample = sample[1:] == sample[:-1]
        is_same_row = is_same_sample & (places[1:, 1:] == places[:-1, 1:]).all(1)
        is_new = torch.ones_like(sample, dtype=torch.bool)
        is_new[1:] = ~(is_same_row & (places[1:, 0] == places[:-1, 0]))
        follows = torch.zeros_like(is_new)
        follows[1:] = is_same_row
        first = is_new.nonzero().squeeze(1)
        counts = torch.cat([first, first.new_tensor([len(order)])]).diff()
        n_cells = torch.bincount(sample[first], minlength=layout.n_samples)
        return cls(order, counts, Layout.of(n_cells.cpu(), layout.device), follows[first])

    def mean(self, x: Float64[Tensor, "t w"]) -> Float64[Tensor, "m w"]:
        """The mean of each cell."""
        return torch.segment_reduce(x[self.order], "mean", lengths=self.counts, axis=0, unsafe=True)

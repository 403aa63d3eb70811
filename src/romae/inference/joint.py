"""Curves drawn as wholes: each value is drawn from what a model says once the values drawn before it are visible.

Values are asked one after the other, those far apart first and those between them later, so that the first ones fix the
shape of a curve. A model that was taught to look ahead alone (`Future`) is asked in the order of time. For r queries
the model is asked r times, of as many samples as curves are drawn, which grow by a token each time.

Shapes: n draws, t tokens of the sample, r queries, c columns of values, d position dimensions.
"""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64
from torch import Tensor
from torch.nn import functional as F

from romae.inference.distributions import Distribution
from romae.tokens.errors import LEAST
from romae.tokens.layout import Layout
from romae.tokens.tokens import Tokens

# The distributions [n, c] of the values at a query, given what is visible of each draw.
Ask = Callable[[Tokens, int], Distribution]


def coarse_to_fine(positions: Float64[np.ndarray, "r d"], *, in_time: bool = False) -> Int64[np.ndarray, "r"]:
    """The order of queries: along the first axis the ends, then the middle between those that there are, and so on."""
    along = np.argsort(positions[:, 0], kind="stable")
    if in_time or len(along) < 3:
        return along
    order, gaps = [0, len(along) - 1], [(0, len(along) - 1)]
    while gaps:
        finer = []
        for start, stop in gaps:
            if stop - start > 1:
                middle = (start + stop) // 2
                order.append(middle)
                finer += [(start, middle), (middle, stop)]
        gaps = finer
    return along[np.array(order)]


def drawn(
    ask: Ask,
    visible: Tokens,
    positions: Float32[Tensor, "r d"],
    levels: Float64[np.ndarray, "n r c"],
    order: Int64[np.ndarray, "r"],
) -> Float64[np.ndarray, "n r c"]:
    """Values at the positions in the data's own units, each the quantile of its level given those drawn before.

    `visible` is one sample as the model sees it, and so are the positions.
    """
    n, device = len(levels), visible.device
    values = visible.values.expand(n, -1, -1)
    places = visible.positions.expand(n, -1, -1)
    result = np.empty(levels.shape)
    for i in order.tolist():
        layout = Layout.of([values.shape[1]] * n, device)
        told = ask(Tokens(values.flatten(0, 1), places.flatten(0, 1), layout), i)
        result[:, i] = told.at_levels(levels[:, i])
        units = told.units
        seen = torch.from_numpy(units.to_model(result[:, i]) / units.gain + units.level)
        # What is drawn has no measurement error that the model could know of.
        seen = F.pad(seen, (0, values.shape[2] - seen.shape[1]), value=LEAST)
        values = torch.cat([values, seen.to(values).unsqueeze(1)], 1)
        places = torch.cat([places, positions[i].to(places).expand(n, 1, -1)], 1)
    return result

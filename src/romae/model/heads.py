"""Heads: what turns embeddings into numbers.

Shapes: n embeddings, w width, k outputs.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from romae.model.kernels.aligned import AlignedNorm


class Head(nn.Module):
    """Embeddings to outputs: RMSNorm, then a linear layer."""

    def __init__(self, width: int, n_outputs: int, eps: float) -> None:
        super().__init__()
        self.norm = AlignedNorm(width, eps)
        self.linear = nn.Linear(width, n_outputs)
        nn.init.trunc_normal_(self.linear.weight, std=0.02)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: Float[Tensor, "*n w"]) -> Float[Tensor, "*n k"]:
        if self.training or not torch.is_autocast_enabled(x.device.type):
            return self.linear(self.norm(x))
        # Answers are given in the precision of the weights, also where all before was computed in half precision: eight
        # bits would be what is left of a number.
        with torch.autocast(x.device.type, enabled=False):
            return self.linear(self.norm(x.to(self.norm.weight.dtype)))

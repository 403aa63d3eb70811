"""Layers that can compute with sizes that a GPU's matrix units like, without changing any result.

In half precision the fast kernels want every row to begin at a multiple of 16 bytes, 8 numbers; a width of 180 with
heads of 60, which is RoMAE-tiny, runs at less than half their speed. So there a stack of blocks computes with weights
padded by zeros, 192 wide with heads of 64: the channels that are added hold zeros from the first layer to the last.

    a head of 60 on two axes:       15 15 15 15              four groups, two of channel pairs for each axis
    with zeros, a head of 64:       15+1 15+1 15+1 15+1      every group by itself, so that pairs stay pairs

Shapes: t tokens, i channels in, o channels out.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

HALF = (torch.float16, torch.bfloat16)


def is_half_on_gpu(x: Tensor) -> bool:
    """Whether alignment pays for these activations."""
    return x.device.type == "cuda" and x.dtype in HALF


def wide(size: int) -> int:
    """The size to compute with: a multiple of 8, or else the next multiple of 64, the tile of a matrix product."""
    return size if size % 8 == 0 else -(-size // 64) * 64


def wide_group(channels: int, n_groups: int) -> int:
    """The channels that each group of a head needs so that the head is a multiple of 8."""
    while channels * n_groups % 8:
        channels += 1
    return channels


def padded(x: Float[Tensor, "*n i"], width: int) -> Float[Tensor, "*n o"]:
    """Zeros behind the last channel, up to this width."""
    missing = width - x.shape[-1]
    return F.pad(x, (0, missing)) if missing else x


class Groups(NamedTuple):
    """How the channels on one side of a weight are padded: `n` groups of `size` channels become as many of `wide`."""

    n: int
    size: int
    wide: int

    @classmethod
    def whole(cls, size: int) -> "Groups":
        """Channels that belong together, such as those of a token."""
        return cls(1, size, wide(size))

    @classmethod
    def of_heads(cls, n_heads: int, head_dim: int, n_groups: int) -> "Groups":
        """The channels of heads, each of which is made up of groups."""
        size = head_dim // n_groups
        return cls(n_heads * n_groups, size, wide_group(size, n_groups))


class AlignedLinear(nn.Linear):
    """An `nn.Linear` without bias that computes with its weight padded by zeros where its caller asks for that.

    Then inputs and outputs have the wide groups. Whether they have cannot be told from the input alone: a width of 720
    needs no padding, and its heads of 60 do.
    """

    def __init__(self, source: Groups, target: Groups) -> None:
        super().__init__(source.n * source.size, target.n * target.size, bias=False)
        self.source, self.target = source, target

    def forward(self, x: Float[Tensor, "*n i"], is_aligned: bool = False) -> Float[Tensor, "*n o"]:
        return F.linear(x, self.aligned_weight() if is_aligned else self.weight)

    def aligned_weight(self) -> Float[Tensor, "wide_o wide_i"]:
        """The weight with zeros behind each group of its rows and columns, in as few operations as can be.

        Each is launched by the host, forwards and backwards, which small models wait for: no groups, no reshaping.
        """
        source, target, weight = self.source, self.target, self.weight
        more_in, more_out = source.wide - source.size, target.wide - target.size
        if more_in == more_out == 0:
            return weight
        if source.n == target.n == 1:
            return F.pad(weight, (0, more_in, 0, more_out))
        if source.n == 1:  # rows are groups: [n, size, i]
            return F.pad(weight.unflatten(0, (target.n, -1)), (0, more_in, 0, more_out)).flatten(0, 1)
        if target.n == 1:  # columns are groups: [o, n, size]
            return F.pad(weight.unflatten(1, (source.n, -1)), (0, more_in, 0, 0, 0, more_out)).flatten(1)
        groups = weight.reshape(target.n, target.size, source.n, source.size)
        return F.pad(groups, (0, more_in, 0, 0, 0, more_out)).flatten(2).flatten(0, 1)


class AlignedNorm(nn.RMSNorm):
    """An `nn.RMSNorm` over the channels that it has weights for; those beyond are zero and stay so.

    It computes in the precision of its input, where an `nn.RMSNorm` would leave half precision under autocast.
    """

    def __init__(self, width: int, eps: float) -> None:
        super().__init__(width, eps=eps)

    def forward(self, x: Float[Tensor, "*n i"]) -> Float[Tensor, "*n i"]:
        assert self.eps is not None
        width, wider = self.weight.shape[0], x.shape[-1]
        if x.dtype == self.weight.dtype and width == wider:
            return super().forward(x)
        # The mean over all channels is smaller than that over those with weights; the factor makes up for it.
        share = width / wider
        weight = padded(self.weight * share**0.5, wider).to(x.dtype)
        return F.rms_norm(x, (wider,), weight, self.eps * share)


def without_alignment(model: nn.Module) -> nn.Module:
    """Every `AlignedLinear` of a model becomes an `nn.Linear` with the same weight, in place; no result changes.

    For tools that look for that very type, as `torch.ao.quantization.quantize_dynamic` does.
    """
    for layer in model.modules():
        if type(layer) is AlignedLinear:
            del layer.source, layer.target
            layer.__class__ = nn.Linear  # type: ignore[assignment]
    return model

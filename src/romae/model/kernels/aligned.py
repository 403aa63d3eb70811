"""Sizes that a GPU's matrix units like, without changing any result.

In half precision the fast kernels want every row to begin at a multiple of 16 bytes; a width of 180 with heads of 60,
which is RoMAE-tiny, runs at less than half their speed. So there a stack of blocks computes with weights padded by
zeros, 192 wide with heads of 64: the channels that are added hold zeros from the first layer to the last.

Shapes: t tokens, w width, f feed-forward, h heads, g channels in each of several groups that make up a head.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

HALF = (torch.float16, torch.bfloat16)


def is_aligned(x: Tensor) -> bool:
    """Whether these activations are computed with padded weights."""
    return x.device.type == "cuda" and x.dtype in HALF


def wide(size: int) -> int:
    """The size to compute with: a multiple of 8, or else the next multiple of 64."""
    return size if size % 8 == 0 else -(-size // 64) * 64


def wide_group(channels: int, n_groups: int) -> int:
    """The channels that each group of a head needs so that the head is a multiple of 8."""
    while channels * n_groups % 8:
        channels += 1
    return channels


def padded(weight: Float[Tensor, "*n"], *sizes: int) -> Float[Tensor, "*m"]:
    """Zeros after the end of every dimension, up to these sizes."""
    missing = [size - has for size, has in zip(sizes, weight.shape, strict=True)]
    if not any(missing):
        return weight
    return F.pad(weight, [one for size in reversed(missing) for one in (0, size)])


def padded_rows(weight: Float[Tensor, "heads_out w"], n_heads: int, n_groups: int, width: int) -> Tensor:
    """A weight that makes heads, with each of their groups padded, for inputs of this width."""
    size = weight.shape[0] // (n_heads * n_groups)
    groups = weight.unflatten(0, (n_heads * n_groups, size))
    return padded(groups, len(groups), wide_group(size, n_groups), width).flatten(0, 1)


def padded_columns(weight: Float[Tensor, "w heads_in"], n_heads: int, n_groups: int, width: int) -> Tensor:
    """A weight that reads heads made by `padded_rows`, for outputs of this width."""
    size = weight.shape[1] // (n_heads * n_groups)
    groups = weight.unflatten(1, (n_heads * n_groups, size))
    return padded(groups, width, groups.shape[1], wide_group(size, n_groups)).flatten(1)


def norm(x: Float[Tensor, "t w"], module: nn.RMSNorm) -> Float[Tensor, "t w"]:
    """RMSNorm over the channels that the module knows; those beyond are zero and stay so."""
    assert module.eps is not None and module.weight is not None
    width, wider = module.weight.shape[0], x.shape[-1]
    if x.dtype == module.weight.dtype and width == wider:
        return module(x)
    # The mean over all channels is smaller than that over the known ones; the factor makes up for it.
    share = width / wider
    weight = padded(module.weight * share**0.5, wider).to(x.dtype)
    return F.rms_norm(x, (wider,), weight, module.eps * share)

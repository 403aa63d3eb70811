"""A small Triton kernel: queries and keys turned by their positions, where kernels/attention.py does not do it itself.

It reads the output of one matrix product and writes queries, keys and values apart, as attention kernels want them;
backwards it writes the gradient of that product in one go. The angles of a token are read once for all of its heads.

    joint, a token's row of qkv:    q of head 0, 1, …    k of head 0, 1, …    v of head 0, 1, …
    apart, its rows of q, k, v:     q of head 0, 1, …  |  k of head 0, 1, …  |  v of head 0, 1, …

Shapes: t tokens, h heads, e head size.
"""

from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

N_TOKENS, WARPS = 16, 4  # of a program, which does little but load and store


@triton.jit
@no_type_check  # shape checks would come between Triton and the source
def _turn(
    qkv, q, k, v, cos, sin, n_tokens,
    heads: tl.constexpr, size: tl.constexpr, pairs: tl.constexpr, lanes: tl.constexpr, width: tl.constexpr,
    rows: tl.constexpr, is_back: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * rows + tl.arange(0, rows)  # 64 bits: tokens times channels pass 2**31
    half: tl.constexpr = size // 2
    lane, channel = tl.arange(0, lanes), tl.arange(0, width)
    is_pair = (row < n_tokens)[:, None] & (lane < half)[None, :]
    is_channel = (row < n_tokens)[:, None] & (channel < size)[None, :]
    c = tl.load(cos + row[:, None] * half + lane[None, :], mask=is_pair, other=1.0)
    s = tl.load(sin + row[:, None] * half + lane[None, :], mask=is_pair, other=0.0)
    s = -s if is_back else s
    first = (lane + lane // pairs * pairs)[None, :]  # of each pair; kernels/attention.py has a drawing
    dtype = qkv.dtype.element_ty
    for head in tl.static_range(heads):
        for part in tl.static_range(2):  # queries, then keys
            joint = qkv + row[:, None] * (3 * heads * size) + (part * heads + head) * size + first
            apart = (q if part == 0 else k) + row[:, None] * (heads * size) + head * size + first
            source, to = (apart, joint) if is_back else (joint, apart)
            a = tl.load(source, mask=is_pair, other=0.0).to(tl.float32)
            b = tl.load(source + pairs, mask=is_pair, other=0.0).to(tl.float32)
            tl.store(to, (a * c - b * s).to(dtype), mask=is_pair)
            tl.store(to + pairs, (b * c + a * s).to(dtype), mask=is_pair)
        joint = qkv + row[:, None] * (3 * heads * size) + (2 * heads + head) * size + channel[None, :]
        apart = v + row[:, None] * (heads * size) + head * size + channel[None, :]
        source, to = (apart, joint) if is_back else (joint, apart)
        tl.store(to, tl.load(source, mask=is_channel, other=0.0), mask=is_channel)


def _launch(qkv: Tensor, apart: tuple[Tensor, ...], cos: Tensor, sin: Tensor, is_back: bool) -> None:
    n_tokens, _, heads, size = qkv.shape
    # Ranges in Triton are powers of two.
    lanes, width = (triton.next_power_of_2(n) for n in (size // 2, size))
    _turn[(triton.cdiv(n_tokens, N_TOKENS),)](
        qkv, *apart, cos, sin, n_tokens,
        heads=heads, size=size, pairs=cos.shape[-1], lanes=lanes, width=width, rows=N_TOKENS, is_back=is_back,
        num_warps=WARPS,
    )  # fmt: skip


@torch.library.custom_op("romae::turn", mutates_args=())
def turn(qkv: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values [t, h, e] of qkv [t, 3, h, e]; cos and sin are [t, d, pairs]."""
    q, k, v = (qkv.new_empty(qkv.shape[0], *qkv.shape[2:]) for _ in range(3))
    _launch(qkv, (q, k, v), cos, sin, is_back=False)
    return q, k, v


@torch.library.custom_op("romae::turn_back", mutates_args=())
def _turn_back(q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    qkv = q.new_empty(q.shape[0], 3, *q.shape[1:])
    _launch(qkv, (q, k, v), cos, sin, is_back=True)
    return qkv


# Shapes alone: what torch.compile knows of the two operators.


@turn.register_fake
def _(qkv: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = (qkv.new_empty(qkv.shape[0], *qkv.shape[2:]) for _ in range(3))
    return q, k, v


@_turn_back.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return q.new_empty(q.shape[0], 3, *q.shape[1:])


def _keep(ctx: Any, inputs: tuple, output: tuple) -> None:
    ctx.save_for_backward(*inputs[1:])


def _gradients(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
    return _turn_back(*(gradient.contiguous() for gradient in gradients), *ctx.saved_tensors), None, None


turn.register_autograd(_gradients, setup_context=_keep)

"""One small Triton kernel: rotation and attention of short samples, forward and backward, in a single pass.

General kernels cut long sequences into tiles. Where a whole sample fits into one tile, nothing needs to be kept
between tiles: a program takes one head of one sample, turns its queries and keys, and goes over the queries in
strides. The backward pass computes everything again from the same input, so that no score, no rotated copy and no
sum is ever stored. `attention.py` decides when it is used; on a machine without Triton it never is.

In the words of the literature, with Q and K turned by their positions, and row sums over the keys:

    S = scale · Q Kᵀ      P = softmax(S)      O = P V
    dV = Pᵀ dO            dP = dO Vᵀ          dS = scale · P (dP - rowsum(P dP))
    dQ = dS K             dK = dSᵀ Q          and dQ, dK turned back, since a rotation's inverse is its transpose

Shapes: t tokens of all samples end to end, h heads, e head size, half = e / 2 channel pairs.
"""

from typing import Any, NamedTuple, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

LONGEST = 128  # tokens of a sample that fit into one tile: all keys and values of a head stay on the chip


class Plan(NamedTuple):
    """How a kernel is launched; found by trying on an H200 (`romae benchmark steps` shows the whole step)."""

    tiles: tuple[int, ...]  # of keys, besides that of the longest: shorter samples do not pay for it
    stride: int  # queries at a time
    warps: dict[int, int]  # by tile: a larger one has more rows to share out
    stages: dict[int, int]  # by tile: loads that run ahead of the arithmetic, at the price of memory on the chip


# In trials a tile of 64 beside that of 128 paid backward, where there are eight products instead of three. Forward it
# did not, nor did tiles of 32, two stages in the larger tiles, or four warps backward (docs/performance.md).
FORWARD = Plan((), 64, {16: 1, 32: 2, 64: 2, 128: 4}, {16: 1, 32: 1, 64: 1, 128: 1})
BACKWARD = Plan((64,), 128, {16: 1, 32: 2, 64: 4, 128: 8}, {16: 2, 32: 2, 64: 1, 128: 1})


# Where the two channels of a pair lie. Each axis has its `pairs` first channels and then their partners; a lane is a
# pair, counted over all axes. A head of 12 on two axes, so that pairs = 3 and half = 6:
#
#     channel    0   1   2   3   4   5   6   7   8   9  10  11
#                a0  a1  a2  b0  b1  b2  a3  a4  a5  b3  b4  b5
#     lane       0   1   2               3   4   5                    a: lane + lane // 3 * 3,  b: 3 channels behind


@triton.jit
@no_type_check  # shape checks would come between Triton and the source
def _turned(
    base, rows, valid, cos, sin, row_stride, angle_stride: tl.constexpr,
    half: tl.constexpr, pairs: tl.constexpr, lanes: tl.constexpr,
):  # fmt: skip
    """The two channels of every pair of some tokens, turned by their angles, and the angles."""
    lane = tl.arange(0, lanes)
    mask = valid[:, None] & (lane < half)[None, :]
    at = rows[:, None] * row_stride + (lane + lane // pairs * pairs)[None, :]
    a = tl.load(base + at, mask=mask, other=0.0)
    b = tl.load(base + at + pairs, mask=mask, other=0.0)
    angle = rows[:, None] * angle_stride + lane[None, :]  # a stride of 0: one row of angles for all tokens
    c = tl.load(cos + angle, mask=mask, other=1.0)
    s = tl.load(sin + angle, mask=mask, other=0.0)
    return (a * c - b * s).to(a.dtype), (b * c + a * s).to(a.dtype), c, s


@triton.jit
@no_type_check  # shape checks would come between Triton and the source
def _store_turned_back(
    base, rows, valid, a, b, c, s, row_stride, half: tl.constexpr, pairs: tl.constexpr, lanes: tl.constexpr
):
    """Write gradients of turned channel pairs, turned back: by the angle's negative."""
    lane = tl.arange(0, lanes)
    mask = valid[:, None] & (lane < half)[None, :]
    at = rows[:, None] * row_stride + (lane + lane // pairs * pairs)[None, :]
    dtype = base.dtype.element_ty
    tl.store(base + at, (a * c + b * s).to(dtype), mask=mask)
    tl.store(base + at + pairs, (b * c - a * s).to(dtype), mask=mask)


@triton.jit
@no_type_check  # shape checks would come between Triton and the source
def _softmax(q1, q2, k1, k2, is_key, scale, precision: tl.constexpr):
    """P: softmax of the scores over the keys of one sample."""
    # A product over all channels is the sum of those over either half, so that the halves need not be put together.
    S = tl.dot(q1, tl.trans(k1), input_precision=precision)
    S += tl.dot(q2, tl.trans(k2), input_precision=precision)
    S = tl.where(is_key[None, :], S * scale, float("-inf"))  # the end of the tile belongs to no token
    exponentials = tl.exp(S - tl.max(S, 1)[:, None])
    return exponentials / tl.sum(exponentials, 1)[:, None]


@triton.jit
@no_type_check  # shape checks would come between Triton and the source
def _forward(
    qkv, cos, sin, offsets, out, scale,
    heads: tl.constexpr, size: tl.constexpr, pairs: tl.constexpr, precision: tl.constexpr,
    angle_stride: tl.constexpr, stride: tl.constexpr, above: tl.constexpr, tile: tl.constexpr,
    lanes: tl.constexpr, width: tl.constexpr,
):  # fmt: skip
    sample, head = tl.program_id(0), tl.program_id(1)
    start = tl.load(offsets + sample).to(tl.int64)
    n = tl.load(offsets + sample + 1).to(tl.int64) - start
    if n <= above or n > tile:  # another launch takes it
        return
    half: tl.constexpr = size // 2
    row_stride = 3 * heads * size  # a token's row: queries of all heads, then keys, then values
    q_head, k_head, v_head = qkv + head * size, qkv + (heads + head) * size, qkv + (2 * heads + head) * size
    key, channel = tl.arange(0, tile), tl.arange(0, width)
    is_key = key < n
    k1, k2, _c, _s = _turned(k_head, start + key, is_key, cos, sin, row_stride, angle_stride, half, pairs, lanes)
    key_mask = is_key[:, None] & (channel < size)[None, :]
    v = tl.load(v_head + (start + key)[:, None] * row_stride + channel[None, :], mask=key_mask, other=0.0)
    for first in range(0, n, stride):
        query = first + tl.arange(0, stride)
        q1, q2, c, s = _turned(q_head, start + query, query < n, cos, sin, row_stride, angle_stride, half, pairs, lanes)
        P = _softmax(q1, q2, k1, k2, is_key, scale, precision)
        o = tl.dot(P.to(v.dtype), v, input_precision=precision)
        mask = (query < n)[:, None] & (channel < size)[None, :]
        to = out + (start + query)[:, None] * (heads * size) + head * size + channel[None, :]
        tl.store(to, o.to(out.dtype.element_ty), mask=mask)


@triton.jit
@no_type_check  # shape checks would come between Triton and the source
def _backward(
    qkv, cos, sin, offsets, d_out, d_qkv, scale,
    heads: tl.constexpr, size: tl.constexpr, pairs: tl.constexpr, precision: tl.constexpr,
    angle_stride: tl.constexpr, stride: tl.constexpr, above: tl.constexpr, tile: tl.constexpr,
    lanes: tl.constexpr, width: tl.constexpr,
):  # fmt: skip
    sample, head = tl.program_id(0), tl.program_id(1)
    start = tl.load(offsets + sample).to(tl.int64)
    n = tl.load(offsets + sample + 1).to(tl.int64) - start
    if n <= above or n > tile:  # another launch takes it
        return
    half: tl.constexpr = size // 2
    row_stride = 3 * heads * size
    # Offsets within a token's row, the same in qkv and in its gradient.
    q_head, k_head, v_head = head * size, (heads + head) * size, (2 * heads + head) * size
    key, channel = tl.arange(0, tile), tl.arange(0, width)
    is_key = key < n
    k1, k2, key_cos, key_sin = _turned(
        qkv + k_head, start + key, is_key, cos, sin, row_stride, angle_stride, half, pairs, lanes
    )
    key_mask = is_key[:, None] & (channel < size)[None, :]
    at_values = (start + key)[:, None] * row_stride + v_head + channel[None, :]
    v = tl.load(qkv + at_values, mask=key_mask, other=0.0)
    # A key's gradient comes from all queries, stride by stride; a query's is whole after its own stride.
    dK1 = tl.zeros((tile, lanes), tl.float32)
    dK2 = tl.zeros((tile, lanes), tl.float32)
    dV = tl.zeros((tile, width), tl.float32)
    for first in range(0, n, stride):
        query = first + tl.arange(0, stride)
        q1, q2, c, s = _turned(
            qkv + q_head, start + query, query < n, cos, sin, row_stride, angle_stride, half, pairs, lanes
        )
        mask = (query < n)[:, None] & (channel < size)[None, :]
        at = d_out + (start + query)[:, None] * (heads * size) + head * size + channel[None, :]
        dO = tl.load(at, mask=mask, other=0.0)  # zero behind the last query, which so adds nothing to dK and dV
        P = _softmax(q1, q2, k1, k2, is_key, scale, precision)
        dV += tl.dot(tl.trans(P.to(dO.dtype)), dO, input_precision=precision)
        dP = tl.dot(dO, tl.trans(v), input_precision=precision)
        dS = P * (dP - tl.sum(P * dP, 1)[:, None]) * scale
        dS = dS.to(q1.dtype)
        dK1 += tl.dot(tl.trans(dS), q1, input_precision=precision)
        dK2 += tl.dot(tl.trans(dS), q2, input_precision=precision)
        dQ1 = tl.dot(dS, k1, input_precision=precision)
        dQ2 = tl.dot(dS, k2, input_precision=precision)
        _store_turned_back(d_qkv + q_head, start + query, query < n, dQ1, dQ2, c, s, row_stride, half, pairs, lanes)
    _store_turned_back(d_qkv + k_head, start + key, is_key, dK1, dK2, key_cos, key_sin, row_stride, half, pairs, lanes)
    tl.store(d_qkv + at_values, dV.to(d_qkv.dtype.element_ty), mask=key_mask)


def _launch(
    kernel: Any,
    plan: Plan,
    qkv: Tensor,
    cos: Tensor,
    sin: Tensor,
    offsets: Tensor,
    others: tuple[Tensor, ...],
    longest: int,
    scale: float,
) -> None:
    """One launch for each tile, with a program for every head of every sample, most of which may return at once.

    With tiles of 64 and 128 and samples of 20, 64 and 100 tokens, the first launch computes those above 0 and up to
    64, the second the one above 64. So lengths need not be known on the host.
    """
    _, _, heads, size = qkv.shape
    # Ranges in Triton are powers of two, and its matrix products have 16 rows and columns at least.
    largest = max(16, triton.next_power_of_2(longest))
    tiles = [tile for tile in plan.tiles if tile < largest] + [largest]
    lanes, width = (max(16, triton.next_power_of_2(n)) for n in (size // 2, size))
    stride = plan.stride if qkv.element_size() == 2 else 32  # twice the size needs twice the room
    single = "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"
    for above, tile in zip([0, *tiles], tiles, strict=False):
        kernel[(len(offsets) - 1, heads)](
            qkv, cos, sin, offsets, *others, scale,
            heads=heads, size=size, pairs=cos.shape[-1], precision=single if qkv.dtype == torch.float32 else "tf32",
            angle_stride=size // 2 if len(cos) > 1 else 0, stride=min(tile, stride), above=above, tile=tile,
            lanes=lanes, width=width,
            num_warps=plan.warps[tile], num_stages=plan.stages[tile],
        )  # fmt: skip


@torch.library.custom_op("romae::attend_short", mutates_args=())
def attend_short(qkv: Tensor, cos: Tensor, sin: Tensor, offsets: Tensor, longest: int, scale: float) -> Tensor:
    """Rotated attention within samples of at most `longest` tokens.

    qkv is [t, 3, h, e], cos and sin are [t, d, pairs], or [1, d, pairs] for angles that all tokens share: within an
    axis of 2 pairs, channel i turns with i + pairs.
    """
    out = qkv.new_empty(qkv.shape[0], *qkv.shape[2:])
    _launch(_forward, FORWARD, qkv, cos, sin, offsets, (out,), longest, scale)
    return out


@torch.library.custom_op("romae::attend_short_backward", mutates_args=())
def _attend_short_backward(
    gradient: Tensor, qkv: Tensor, cos: Tensor, sin: Tensor, offsets: Tensor, longest: int, scale: float
) -> Tensor:
    out = torch.empty_like(qkv)
    _launch(_backward, BACKWARD, qkv, cos, sin, offsets, (gradient, out), longest, scale)
    return out


# Shapes alone: what torch.compile knows of the two operators.


@attend_short.register_fake
def _(qkv: Tensor, cos: Tensor, sin: Tensor, offsets: Tensor, longest: int, scale: float) -> Tensor:
    return qkv.new_empty(qkv.shape[0], *qkv.shape[2:])


@_attend_short_backward.register_fake
def _(gradient: Tensor, qkv: Tensor, cos: Tensor, sin: Tensor, offsets: Tensor, longest: int, scale: float) -> Tensor:
    return torch.empty_like(qkv)


def _keep(ctx: Any, inputs: tuple, output: Tensor) -> None:
    *tensors, ctx.longest, ctx.scale = inputs
    ctx.save_for_backward(*tensors)


def _gradients(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    """Of qkv alone: angles are not trained, and the rest are whole numbers."""
    qkv, cos, sin, offsets = ctx.saved_tensors
    d_qkv = _attend_short_backward(gradient.contiguous(), qkv, cos, sin, offsets, ctx.longest, ctx.scale)
    return d_qkv, None, None, None, None, None


attend_short.register_autograd(_gradients, setup_context=_keep)

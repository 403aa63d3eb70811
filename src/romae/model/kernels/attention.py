"""One small Triton kernel: rotation and attention of short samples, forward and backward, in a single pass.

General kernels cut long sequences into tiles. Where a whole sample fits into one tile, nothing needs to be kept
between tiles: a program takes one head of one sample, turns its queries and keys, and goes over the queries in
strides. The backward pass computes everything again from the same input, so that no score, no rotated copy and no
sum is ever stored. `attention.py` decides when it is used; on a machine without Triton it never is.

Shapes: t tokens of all samples end to end, h heads, e head size, half = e / 2 channel pairs.
"""

from typing import Any, NamedTuple, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

LONGEST = 128  # tokens of a sample that fit into one tile


class Plan(NamedTuple):
    """How a kernel is launched; found by trying on an H200 (`romae benchmark steps` shows the whole step)."""

    tiles: tuple[int, ...]  # besides that of the longest: shorter samples do not pay for it
    stride: int  # queries at a time
    warps: dict[int, int]
    stages: dict[int, int]


FORWARD = Plan((), 64, {16: 1, 32: 2, 64: 2, 128: 4}, {16: 1, 32: 1, 64: 1, 128: 1})
BACKWARD = Plan((64,), 128, {16: 1, 32: 2, 64: 4, 128: 8}, {16: 2, 32: 2, 64: 1, 128: 1})


@triton.jit
@no_type_check  # shape checks would come between Triton and the source
def _turned(
    base, rows, valid, cos, sin, stride, angle_row: tl.constexpr,
    half: tl.constexpr, pairs: tl.constexpr, lanes: tl.constexpr,
):  # fmt: skip
    """The two halves of every channel pair of some tokens, turned by their angles, and the angles."""
    lane = tl.arange(0, lanes)
    mask = valid[:, None] & (lane < half)[None, :]
    first = rows[:, None] * stride + (lane + lane // pairs * pairs)[None, :]
    a = tl.load(base + first, mask=mask, other=0.0)
    b = tl.load(base + first + pairs, mask=mask, other=0.0)
    angle = rows[:, None] * angle_row + lane[None, :]
    c = tl.load(cos + angle, mask=mask, other=1.0)
    s = tl.load(sin + angle, mask=mask, other=0.0)
    return (a * c - b * s).to(a.dtype), (b * c + a * s).to(a.dtype), c, s


@triton.jit
@no_type_check  # shape checks would come between Triton and the source
def _store_turned_back(
    base, rows, valid, a, b, c, s, stride, half: tl.constexpr, pairs: tl.constexpr, lanes: tl.constexpr
):
    """Write gradients of turned channel pairs, turned back."""
    lane = tl.arange(0, lanes)
    mask = valid[:, None] & (lane < half)[None, :]
    first = rows[:, None] * stride + (lane + lane // pairs * pairs)[None, :]
    kind = base.dtype.element_ty
    tl.store(base + first, (a * c + b * s).to(kind), mask=mask)
    tl.store(base + first + pairs, (b * c - a * s).to(kind), mask=mask)


@triton.jit
@no_type_check  # shape checks would come between Triton and the source
def _weights(q1, q2, k1, k2, is_key, scale, precision: tl.constexpr):
    """Softmax over the keys of one sample."""
    scores = tl.dot(q1, tl.trans(k1), input_precision=precision)
    scores += tl.dot(q2, tl.trans(k2), input_precision=precision)
    scores = tl.where(is_key[None, :], scores * scale, float("-inf"))
    raised = tl.exp(scores - tl.max(scores, 1)[:, None])
    return raised / tl.sum(raised, 1)[:, None]


@triton.jit
@no_type_check  # shape checks would come between Triton and the source
def _forward(
    qkv, cos, sin, offsets, out, scale,
    heads: tl.constexpr, size: tl.constexpr, pairs: tl.constexpr, precision: tl.constexpr,
    angle_row: tl.constexpr, stride_rows: tl.constexpr, above: tl.constexpr, tile: tl.constexpr,
    lanes: tl.constexpr, width: tl.constexpr,
):  # fmt: skip
    sample, head = tl.program_id(0), tl.program_id(1)
    start = tl.load(offsets + sample).to(tl.int64)
    n = tl.load(offsets + sample + 1).to(tl.int64) - start
    if n <= above or n > tile:  # another launch takes it
        return
    half: tl.constexpr = size // 2
    row = 3 * heads * size
    q, k, v = qkv + head * size, qkv + (heads + head) * size, qkv + (2 * heads + head) * size
    place, channel = tl.arange(0, tile), tl.arange(0, width)
    is_key = place < n
    k1, k2, _c, _s = _turned(k, start + place, is_key, cos, sin, row, angle_row, half, pairs, lanes)
    key_mask = is_key[:, None] & (channel < size)[None, :]
    values = tl.load(v + (start + place)[:, None] * row + channel[None, :], mask=key_mask, other=0.0)
    for first in range(0, n, stride_rows):
        here = first + tl.arange(0, stride_rows)
        q1, q2, c, s = _turned(q, start + here, here < n, cos, sin, row, angle_row, half, pairs, lanes)
        weights = _weights(q1, q2, k1, k2, is_key, scale, precision)
        answer = tl.dot(weights.to(values.dtype), values, input_precision=precision)
        mask = (here < n)[:, None] & (channel < size)[None, :]
        to = out + (start + here)[:, None] * (heads * size) + head * size + channel[None, :]
        tl.store(to, answer.to(out.dtype.element_ty), mask=mask)


@triton.jit
@no_type_check  # shape checks would come between Triton and the source
def _backward(
    qkv, cos, sin, offsets, gradient, out, scale,
    heads: tl.constexpr, size: tl.constexpr, pairs: tl.constexpr, precision: tl.constexpr,
    angle_row: tl.constexpr, stride_rows: tl.constexpr, above: tl.constexpr, tile: tl.constexpr,
    lanes: tl.constexpr, width: tl.constexpr,
):  # fmt: skip
    sample, head = tl.program_id(0), tl.program_id(1)
    start = tl.load(offsets + sample).to(tl.int64)
    n = tl.load(offsets + sample + 1).to(tl.int64) - start
    if n <= above or n > tile:  # another launch takes it
        return
    half: tl.constexpr = size // 2
    row = 3 * heads * size
    q, k, v = head * size, (heads + head) * size, (2 * heads + head) * size
    place, channel = tl.arange(0, tile), tl.arange(0, width)
    is_key = place < n
    k1, k2, key_cos, key_sin = _turned(qkv + k, start + place, is_key, cos, sin, row, angle_row, half, pairs, lanes)
    key_mask = is_key[:, None] & (channel < size)[None, :]
    at_keys = (start + place)[:, None] * row + v + channel[None, :]
    values = tl.load(qkv + at_keys, mask=key_mask, other=0.0)
    dk1 = tl.zeros((tile, lanes), tl.float32)
    dk2 = tl.zeros((tile, lanes), tl.float32)
    dv = tl.zeros((tile, width), tl.float32)
    for first in range(0, n, stride_rows):
        here = first + tl.arange(0, stride_rows)
        q1, q2, c, s = _turned(qkv + q, start + here, here < n, cos, sin, row, angle_row, half, pairs, lanes)
        mask = (here < n)[:, None] & (channel < size)[None, :]
        at = gradient + (start + here)[:, None] * (heads * size) + head * size + channel[None, :]
        wanted = tl.load(at, mask=mask, other=0.0)
        weights = _weights(q1, q2, k1, k2, is_key, scale, precision)
        dv += tl.dot(tl.trans(weights.to(wanted.dtype)), wanted, input_precision=precision)
        change = tl.dot(wanted, tl.trans(values), input_precision=precision)
        change = weights * (change - tl.sum(weights * change, 1)[:, None]) * scale
        change = change.to(q1.dtype)
        dk1 += tl.dot(tl.trans(change), q1, input_precision=precision)
        dk2 += tl.dot(tl.trans(change), q2, input_precision=precision)
        dq1 = tl.dot(change, k1, input_precision=precision)
        dq2 = tl.dot(change, k2, input_precision=precision)
        _store_turned_back(out + q, start + here, here < n, dq1, dq2, c, s, row, half, pairs, lanes)
    _store_turned_back(out + k, start + place, is_key, dk1, dk2, key_cos, key_sin, row, half, pairs, lanes)
    tl.store(out + at_keys, dv.to(out.dtype.element_ty), mask=key_mask)


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
    """Samples of similar length go together, each kind with a tile of its own."""
    _, _, heads, size = qkv.shape
    largest = max(16, triton.next_power_of_2(longest))
    tiles = [tile for tile in plan.tiles if tile < largest] + [largest]
    lanes, width = (max(16, triton.next_power_of_2(n)) for n in (size // 2, size))
    stride = plan.stride if qkv.element_size() == 2 else 32  # twice the size needs twice the room
    single = "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"
    for above, tile in zip([0, *tiles], tiles, strict=False):
        kernel[(len(offsets) - 1, heads)](
            qkv, cos, sin, offsets, *others, scale,
            heads=heads, size=size, pairs=cos.shape[-1], precision=single if qkv.dtype == torch.float32 else "tf32",
            angle_row=size // 2 if len(cos) > 1 else 0, stride_rows=min(tile, stride), above=above, tile=tile,
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
    qkv, cos, sin, offsets = ctx.saved_tensors
    found = _attend_short_backward(gradient.contiguous(), qkv, cos, sin, offsets, ctx.longest, ctx.scale)
    return found, None, None, None, None, None


attend_short.register_autograd(_gradients, setup_context=_keep)

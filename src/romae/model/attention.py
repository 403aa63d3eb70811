"""Attention within samples: the only place that chooses a kernel.

Shapes: t queries and u keys of all samples end to end, h heads, e head size.
"""

from importlib.util import find_spec

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional as F

from romae.model.by_length import Keys, Queries, by_length, dense
from romae.model.kernels.aligned import HALF
from romae.model.rope import Rotation, rotate
from romae.tokens.layout import Layout

HAS_TRITON = find_spec("triton") is not None  # imported where a kernel is called, and not before
# On a GPU, full precision and dropout are padded up to this many times their tokens: a few large kernels beat many
# small ones. Nested tensors took several times as long on light curves and failed the test of gradients under dropout.
MOST_PADDING = 4.0


def attend_within(
    qkv: Float[Tensor, "t 3 h e"],
    rotation: Rotation | None,
    layout: Layout,
    dropout: float = 0.0,
    *,
    scale: float | None = None,
) -> Queries:
    """Each token attends to all tokens of its own sample, queries and keys turned by their positions."""
    if dropout == 0 and _is_short(qkv, layout):
        from romae.model.kernels.attention import attend_short

        cos, sin = _angles(qkv, rotation)
        return attend_short(qkv.contiguous(), cos, sin, layout.offsets, layout.longest, scale or qkv.shape[-1] ** -0.5)
    return attend(*turned(qkv, rotation), layout, dropout, scale=scale)


def turned(qkv: Float[Tensor, "t 3 h e"], rotation: Rotation | None) -> tuple[Queries, Keys, Keys]:
    """Queries, keys and values, the former two turned by their positions; on a GPU by a kernel of ours.

    In full precision that is not for speed alone: of a rotation that was compiled with what lies around it, Triton 3.6
    made code with wrong gradients (head size 12, two axes).
    """
    if rotation is not None and HAS_TRITON and qkv.device.type == "cuda" and qkv.dtype in (*HALF, torch.float32):
        from romae.model.kernels.rotation import turn

        return turn(qkv.contiguous(), *_angles(qkv, rotation))
    if rotation is None or qkv.device.type == "cpu":  # there, parts that fit into the cache are best
        q, k, v = qkv.unbind(1)
        if rotation is None:
            return q, k, v
        if torch.is_grad_enabled() or q.dtype != torch.float32 or torch.compiler.is_compiling():
            return rotate(q, rotation), rotate(k, rotation), v
        rows = rotation.rows(q.shape[1])
        return rows.turn(q), rows.turn(k), v
    pair, v = qkv.split((2, 1), dim=1)
    q, k = rotate(pair.flatten(1, 2), rotation).unflatten(1, (2, -1)).unbind(1)
    return q, k, v.squeeze(1)


def _angles(qkv: Tensor, rotation: Rotation | None) -> tuple[Float[Tensor, "t d pairs"], Float[Tensor, "t d pairs"]]:
    """Cosines and sines for the fused kernels; without a rotation, one row that turns nothing."""
    if rotation is not None:
        return rotation.cos.squeeze(1).contiguous(), rotation.sin.squeeze(1).contiguous()
    half = qkv.shape[-1] // 2  # one axis of this many pairs; cos = 1 and sin = 0 leave a pair as it is
    return qkv.new_ones(1, 1, half, dtype=torch.float32), qkv.new_zeros(1, 1, half, dtype=torch.float32)


def attend(
    q: Queries,
    k: Keys,
    v: Keys,
    layout: Layout,
    dropout: float = 0.0,
    *,
    context: Layout | None = None,
    scale: float | None = None,
) -> Queries:
    """Each query attends to all keys of its own sample; scores are scaled by 1/√e unless told otherwise.

    `layout` says where the samples of the queries lie, `context` where those of the keys do, if they differ.
    """
    context = layout if context is None else context
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    if len(q) == 0:  # nothing is asked: no kernel takes that
        return q
    # docs/performance.md has the table of which samples go where, and what that brings.
    if layout.is_equal and context.is_equal:
        query_shape, key_shape = (layout.n_samples, layout.longest), (layout.n_samples, context.longest)
        return dense(q, k, v, query_shape, key_shape, dropout, scale)
    on_gpu = q.device.type == "cuda"
    if on_gpu and q.dtype in HALF and dropout == 0:
        return _varlen(q, k, v, layout, context, scale)
    # A batch of fixed size has no lengths on the host to sort by, whatever padding costs.
    if layout.is_fixed or (on_gpu and max(_padding(layout), _padding(context)) <= MOST_PADDING):
        return _padded(q, k, v, layout, context, dropout, scale)
    if torch.compiler.is_compiling():
        from romae.model.uncompiled import by_length as uncompiled

        return uncompiled(q, k, v, layout, context, dropout, scale)
    return by_length(q, k, v, layout, context, dropout, scale)


def _is_fast(qkv: Tensor) -> bool:
    """Whether the fused kernels take these; in full precision they do where TF32 is allowed."""
    is_tf32 = qkv.dtype == torch.float32 and torch.backends.cuda.matmul.allow_tf32
    return HAS_TRITON and qkv.device.type == "cuda" and (qkv.dtype in HALF or is_tf32)


def _is_short(qkv: Tensor, layout: Layout) -> bool:
    """Whether every sample fits into one tile of the fused kernel."""
    if not _is_fast(qkv) or qkv.shape[-1] % 2:
        return False
    from romae.model.kernels.attention import LONGEST

    return 0 < layout.longest <= LONGEST


def _padding(layout: Layout) -> float:
    """How many times as many tokens there would be, if all samples were padded to the longest."""
    return layout.n_samples * layout.longest / layout.n_tokens


def _varlen(q: Queries, k: Keys, v: Keys, layout: Layout, context: Layout, scale: float) -> Queries:
    """Flash attention over packed samples."""
    from torch.nn.attention.varlen import varlen_attn

    size = q.shape[-1]
    q, k, v = _whole_heads(q, k, v)
    offsets, keys = layout.offsets, context.offsets
    out = varlen_attn(q, k, v, offsets, keys, layout.longest, context.longest, scale=scale)
    assert isinstance(out, Tensor)
    return out[..., :size]


def _padded(q: Queries, k: Keys, v: Keys, layout: Layout, context: Layout, dropout: float, scale: float) -> Queries:
    """Pad to the longest sample and mask the padding; no score between real tokens changes."""
    size = q.shape[-1]
    q, k, v = _whole_heads(q, k, v)
    query_places, key_places = _places(layout), _places(context)

    def padded(x: Tensor, layout: Layout, places: Tensor) -> Tensor:
        rows = x.new_zeros(layout.n_samples * layout.longest, *x.shape[1:]).index_copy(0, places, x)
        return rows.unflatten(0, (layout.n_samples, layout.longest)).transpose(1, 2)

    columns = torch.arange(context.longest, device=q.device)
    valid = columns < context.device_lengths.unsqueeze(-1)  # [samples, keys]; padded queries are left out at the end
    q, k, v = padded(q, layout, query_places), padded(k, context, key_places), padded(v, context, key_places)
    mask = valid[:, None, None, :]
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, scale=scale)
    return out.transpose(1, 2).flatten(0, 1).index_select(0, query_places)[..., :size]


def _places(layout: Layout) -> Int64[Tensor, "t"]:
    """Where each token stands among samples padded to the longest.

    Lengths 2, 3, 1 are tokens 0 1 | 2 3 4 | 5, and padded to three 0 1 . | 3 4 5 | 6 . . : places 0 1 3 4 5 6.
    """
    sample = layout.sample_of_token
    place = torch.arange(layout.n_tokens, device=layout.device) - layout.offsets[sample]
    return sample * layout.longest + place


def _whole_heads(*heads: Float[Tensor, "_ h e"]) -> tuple[Float[Tensor, "_ h whole"], ...]:
    """The fused kernels want head sizes in multiples of 8; zeros change no score and no sum."""
    padding = -heads[0].shape[-1] % 8
    return tuple(F.pad(x, (0, padding)) if padding else x.contiguous() for x in heads)

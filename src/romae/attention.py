"""Attention within samples: the only place that chooses a kernel.

Shapes: t queries and u keys of all samples end to end, h heads, e head size.
"""

from importlib.util import find_spec

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional as F

from romae.alignment import HALF
from romae.layout import Layout
from romae.ragged import taken
from romae.rope import Rotation, rotate

Queries = Float[Tensor, "t h e"]
Keys = Float[Tensor, "u h e"]
HAS_TRITON = find_spec("triton") is not None
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
        from romae.fused_attention import attend_short

        cos, sin = _angles(qkv, rotation)
        return attend_short(qkv.contiguous(), cos, sin, layout.offsets, layout.longest, scale or qkv.shape[-1] ** -0.5)
    return attend(*turned(qkv, rotation), layout, dropout, scale=scale)


def turned(qkv: Float[Tensor, "t 3 h e"], rotation: Rotation | None) -> tuple[Queries, Keys, Keys]:
    """Queries, keys and values, the former two turned by their positions; on a GPU by a kernel of ours.

    In full precision that is not for speed alone: of a rotation that was compiled with what lies around it, Triton 3.6
    made code with wrong gradients (head size 12, two axes).
    """
    if rotation is not None and HAS_TRITON and qkv.device.type == "cuda" and qkv.dtype in (*HALF, torch.float32):
        from romae.fused_rotation import turn

        return turn(qkv.contiguous(), *_angles(qkv, rotation))
    if rotation is None or qkv.device.type == "cpu":  # there, parts that fit into the cache are best
        q, k, v = qkv.unbind(1)
        return (q, k, v) if rotation is None else (rotate(q, rotation), rotate(k, rotation), v)
    pair, v = qkv.split((2, 1), dim=1)
    q, k = rotate(pair.flatten(1, 2), rotation).unflatten(1, (2, -1)).unbind(1)
    return q, k, v.squeeze(1)


def _angles(qkv: Tensor, rotation: Rotation | None) -> tuple[Float[Tensor, "t d pairs"], Float[Tensor, "t d pairs"]]:
    """Cosines and sines for the fused kernels; without a rotation, one row that turns nothing."""
    if rotation is not None:
        return rotation.cos.squeeze(1).contiguous(), rotation.sin.squeeze(1).contiguous()
    half = qkv.shape[-1] // 2
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
    if layout.is_equal and context.is_equal:
        rows, key_rows = (layout.n_samples, layout.longest), (layout.n_samples, context.longest)
        return _dense(q, k, v, rows, key_rows, dropout, scale)
    on_gpu = q.device.type == "cuda"
    if on_gpu and q.dtype in HALF and dropout == 0:
        return _varlen(q, k, v, layout, context, scale)
    if layout.is_fixed or (on_gpu and max(_padding(layout), _padding(context)) <= MOST_PADDING):
        return _padded(q, k, v, layout, context, dropout, scale)
    return _by_length(q, k, v, layout, context, dropout, scale)


def _is_fast(qkv: Tensor) -> bool:
    """Whether the fused kernels take these; in full precision they do where TF32 is allowed."""
    is_tf32 = qkv.dtype == torch.float32 and torch.backends.cuda.matmul.allow_tf32
    return HAS_TRITON and qkv.device.type == "cuda" and (qkv.dtype in HALF or is_tf32)


def _is_short(qkv: Tensor, layout: Layout) -> bool:
    """Whether every sample fits into one tile of the fused kernel."""
    if not _is_fast(qkv) or qkv.shape[-1] % 2:
        return False
    from romae.fused_attention import LONGEST

    return 0 < layout.longest <= LONGEST


def _padding(layout: Layout) -> float:
    """How many times as many tokens there would be, if all samples were padded to the longest."""
    return layout.n_samples * layout.longest / layout.n_tokens


def _dense(
    q: Queries, k: Keys, v: Keys, query_rows: tuple[int, int], key_rows: tuple[int, int], dropout: float, scale: float
) -> Queries:
    """Samples of one length are a dense batch of (samples, tokens)."""
    q, k, v = (x.unflatten(0, rows).transpose(1, 2) for x, rows in ((q, query_rows), (k, key_rows), (v, key_rows)))
    out = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, scale=scale)
    return out.transpose(1, 2).flatten(0, 1)


@torch.compiler.disable
def _by_length(q: Queries, k: Keys, v: Keys, layout: Layout, context: Layout, dropout: float, scale: float) -> Queries:
    """Sort the samples by length and treat those of one length as a dense batch: no padding, few calls.

    In trials on two cores no other way was better throughout: padding to the longest sample and padding within groups
    lost on long samples, a loop over the samples on short ones (`romae benchmark attention` has the first).
    """
    sizes, of_sample = torch.stack([context.lengths, layout.lengths], 1).unique(dim=0, return_inverse=True)
    order = of_sample.argsort(stable=True)
    counts = of_sample.bincount().tolist()
    gather, gather_keys = (_token_order(one, order).to(q.device) for one in (layout, context))
    query_rows, key_rows = (list(zip(counts, sizes[:, i].tolist(), strict=True)) for i in (1, 0))
    queries = taken(q, gather).split([n * size for n, size in query_rows])
    keys, values = (taken(x, gather_keys).split([n * size for n, size in key_rows]) for x in (k, v))
    groups = zip(queries, keys, values, query_rows, key_rows, strict=True)
    out = torch.cat([_dense(q, k, v, rows, others, dropout, scale) for q, k, v, rows, others in groups if len(q)])
    return torch.empty_like(out).index_copy(0, gather, out)


def _token_order(layout: Layout, order: Int64[Tensor, "b"]) -> Int64[Tensor, "t"]:
    """The indices of all tokens, sample by sample in this order of the samples."""
    lengths = layout.lengths[order]
    shifts = layout.host_offsets[order] - (lengths.cumsum(0) - lengths)
    return torch.repeat_interleave(shifts, lengths) + torch.arange(layout.n_tokens)


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
    valid = columns < context.device_lengths.unsqueeze(-1)
    q, k, v = padded(q, layout, query_places), padded(k, context, key_places), padded(v, context, key_places)
    mask = valid[:, None, None, :]
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, scale=scale)
    return out.transpose(1, 2).flatten(0, 1).index_select(0, query_places)[..., :size]


def _places(layout: Layout) -> Int64[Tensor, "t"]:
    """Where each token stands among samples padded to the longest."""
    sample = layout.sample_of_token
    place = torch.arange(layout.n_tokens, device=layout.device) - layout.offsets[sample]
    return sample * layout.longest + place


def _whole_heads(*heads: Float[Tensor, "_ h e"]) -> tuple[Float[Tensor, "_ h whole"], ...]:
    """The fused kernels want head sizes in multiples of 8; zeros change no score and no sum."""
    padding = -heads[0].shape[-1] % 8
    return tuple(F.pad(x, (0, padding)) if padding else x.contiguous() for x in heads)

"""Attention within samples: the only place that chooses a kernel.

Shapes: t queries and u keys of all samples end to end, h heads, e head size.
"""

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional as F

from romae.layout import Layout

Queries = Float[Tensor, "t h e"]
Keys = Float[Tensor, "u h e"]
HALF = (torch.float16, torch.bfloat16)
# On a GPU, full precision and dropout are padded up to this many times their tokens: a few large kernels beat many
# small ones. Nested tensors took several times as long on light curves and failed the test of gradients under dropout.
MOST_PADDING = 4.0


def attend(
    q: Queries, k: Keys, v: Keys, layout: Layout, dropout: float = 0.0, *, context: Layout | None = None
) -> Queries:
    """Each query attends to all keys of its own sample, scaled by 1/√e.

    `layout` says where the samples of the queries lie, `context` where those of the keys do, if they differ.
    """
    context = layout if context is None else context
    if len(q) == 0:  # nothing is asked: no kernel takes that
        return q
    if layout.is_equal and context.is_equal:
        return _dense(q, k, v, (layout.n_samples, layout.longest), (layout.n_samples, context.longest), dropout)
    on_gpu = q.device.type == "cuda"
    if on_gpu and q.dtype in HALF and dropout == 0:
        return _varlen(q, k, v, layout, context)
    if on_gpu and _padding(layout) <= MOST_PADDING and _padding(context) <= MOST_PADDING:
        return _padded(q, k, v, layout, context, dropout)
    return _by_length(q, k, v, layout, context, dropout)


def _padding(layout: Layout) -> float:
    """How many times as many tokens there would be, if all samples were padded to the longest."""
    return layout.n_samples * layout.longest / layout.n_tokens


def _dense(
    q: Queries, k: Keys, v: Keys, query_rows: tuple[int, int], key_rows: tuple[int, int], dropout: float
) -> Queries:
    """Samples of one length are a dense batch of (samples, tokens)."""
    q, k, v = (x.unflatten(0, rows).transpose(1, 2) for x, rows in ((q, query_rows), (k, key_rows), (v, key_rows)))
    out = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout)
    return out.transpose(1, 2).flatten(0, 1)


@torch.compiler.disable
def _by_length(q: Queries, k: Keys, v: Keys, layout: Layout, context: Layout, dropout: float) -> Queries:
    """Sort the samples by length and treat those of one length as a dense batch: no padding, few calls.

    In trials on two cores no other way was better throughout: padding to the longest sample and padding within groups
    lost on long samples, a loop over the samples on short ones (`romae benchmark attention` has the first).
    """
    sizes, of_sample = torch.stack([layout.lengths, context.lengths], 1).unique(dim=0, return_inverse=True)
    order = of_sample.argsort(stable=True)
    counts = of_sample.bincount().tolist()
    gather, gather_keys = (_token_order(one, order).to(q.device) for one in (layout, context))
    query_rows, key_rows = (list(zip(counts, sizes[:, i].tolist(), strict=True)) for i in (0, 1))
    queries = q.index_select(0, gather).split([n * size for n, size in query_rows])
    keys, values = (x.index_select(0, gather_keys).split([n * size for n, size in key_rows]) for x in (k, v))
    groups = zip(queries, keys, values, query_rows, key_rows, strict=True)
    out = torch.cat([_dense(q, k, v, rows, others, dropout) for q, k, v, rows, others in groups if len(q)])
    back = torch.empty_like(gather).scatter_(0, gather, torch.arange(layout.n_tokens, device=q.device))
    return out.index_select(0, back)


def _token_order(layout: Layout, order: Int64[Tensor, "b"]) -> Int64[Tensor, "t"]:
    """The indices of all tokens, sample by sample in this order of the samples."""
    lengths = layout.lengths[order]
    shifts = layout.host_offsets[order] - (lengths.cumsum(0) - lengths)
    return torch.repeat_interleave(shifts, lengths) + torch.arange(layout.n_tokens)


def _varlen(q: Queries, k: Keys, v: Keys, layout: Layout, context: Layout) -> Queries:
    """Flash attention over packed samples."""
    from torch.nn.attention.varlen import varlen_attn

    size = q.shape[-1]
    q, k, v = _whole_heads(q, k, v)
    offsets, keys = layout.offsets, context.offsets
    out = varlen_attn(q, k, v, offsets, keys, layout.longest, context.longest, scale=size**-0.5)
    assert isinstance(out, Tensor)
    return out[..., :size]


def _padded(q: Queries, k: Keys, v: Keys, layout: Layout, context: Layout, dropout: float) -> Queries:
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
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, scale=size**-0.5)
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

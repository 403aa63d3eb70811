"""Attention without padding and without a kernel of its own: samples of one length are a dense batch.

Shapes: t queries and u keys of all samples end to end, h heads, e head size.
"""

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional as F

from romae.tokens.layout import Layout
from romae.tokens.packed import take_rows

Queries = Float[Tensor, "t h e"]
Keys = Float[Tensor, "u h e"]


def dense(
    q: Queries, k: Keys, v: Keys, query_shape: tuple[int, int], key_shape: tuple[int, int], dropout: float, scale: float
) -> Queries:
    """Samples of one length are a dense batch of (samples, tokens)."""
    q, k, v = (x.unflatten(0, shape).transpose(1, 2) for x, shape in ((q, query_shape), (k, key_shape), (v, key_shape)))
    out = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, scale=scale)
    return out.transpose(1, 2).flatten(0, 1)


def by_length(q: Queries, k: Keys, v: Keys, layout: Layout, context: Layout, dropout: float, scale: float) -> Queries:
    """Sort the samples by length and treat those of one length as a dense batch: no padding, few calls.

    In trials on two cores no other way was better throughout: padding to the longest sample and padding within groups
    lost on long samples, a loop over the samples on short ones (`romae benchmark attention` has the first).

    Lengths 3, 1, 3, tokens 0 1 2 | 3 | 4 5 6: in order 3 | 0 1 2 | 4 5 6, one batch of 1 x 1 and one of 2 x 3.
    """
    # Queries and keys of a sample may differ in number: samples go together where both lengths are the same.
    sizes, of_sample = torch.stack([context.lengths, layout.lengths], 1).unique(dim=0, return_inverse=True)
    order = of_sample.argsort(stable=True)
    counts = of_sample.bincount().tolist()
    gather, gather_keys = (_token_order(side, order).to(q.device) for side in (layout, context))
    query_shapes, key_shapes = (list(zip(counts, sizes[:, i].tolist(), strict=True)) for i in (1, 0))
    queries = take_rows(q, gather).split([n * size for n, size in query_shapes])
    keys, values = (take_rows(x, gather_keys).split([n * size for n, size in key_shapes]) for x in (k, v))
    groups = zip(queries, keys, values, query_shapes, key_shapes, strict=True)
    out = torch.cat(
        [dense(q, k, v, query_shape, key_shape, dropout, scale) for q, k, v, query_shape, key_shape in groups if len(q)]
    )
    return torch.empty_like(out).index_copy(0, gather, out)


def _token_order(layout: Layout, order: Int64[Tensor, "b"]) -> Int64[Tensor, "t"]:
    """The indices of all tokens, sample by sample in this order of the samples."""
    lengths = layout.lengths[order]
    # How far the tokens of a sample move: from where they will begin to where they begin now.
    shifts = layout.host_offsets[order] - (lengths.cumsum(0) - lengths)
    return torch.repeat_interleave(shifts, lengths) + torch.arange(layout.n_tokens)

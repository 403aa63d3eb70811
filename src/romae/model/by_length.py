"""Attention without padding and without a kernel of its own: samples of one length are a dense batch.

Shapes: t queries and u keys of all samples end to end, h heads, e head size.
"""

from typing import NamedTuple
from weakref import WeakKeyDictionary

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
    plan = _plan(layout, context)
    q, k, v = (x if index is None else take_rows(x, index.to(x.device)) for x, index in plan.gathered(q, k, v))
    queries = q.split([n * size for n, size in plan.queries])
    keys, values = (x.split([n * size for n, size in plan.keys]) for x in (k, v))
    groups = zip(queries, keys, values, plan.queries, plan.keys, strict=True)
    out = torch.cat(
        [dense(q, k, v, query_shape, key_shape, dropout, scale) for q, k, v, query_shape, key_shape in groups if len(q)]
    )
    return out if plan.gather is None else torch.empty_like(out).index_copy(0, plan.gather.to(out.device), out)


class _Plan(NamedTuple):
    """The order of queries and keys in which samples of one length stand together, None where they do already.

    `queries` and `keys` are the numbers of samples of each length, and that length.
    """

    gather: Int64[Tensor, "t"] | None
    gather_keys: Int64[Tensor, "u"] | None
    queries: tuple[tuple[int, int], ...]
    keys: tuple[tuple[int, int], ...]

    def gathered(self, q: Queries, k: Keys, v: Keys) -> tuple[tuple[Tensor, Tensor | None], ...]:
        return (q, self.gather), (k, self.gather_keys), (v, self.gather_keys)


_PLANS: WeakKeyDictionary[Layout, _Plan] = WeakKeyDictionary()  # of tokens among themselves: all layers have the same


def _plan(layout: Layout, context: Layout) -> _Plan:
    if layout is not context:
        return _planned(layout, context)
    plan = _PLANS.get(layout)
    if plan is None:
        plan = _PLANS[layout] = _planned(layout, layout)
    return plan


def _planned(layout: Layout, context: Layout) -> _Plan:
    # Queries and keys of a sample may differ in number: samples go together where both lengths are the same.
    sizes, of_sample = torch.stack([context.lengths, layout.lengths], 1).unique(dim=0, return_inverse=True)
    counts = of_sample.bincount().tolist()
    queries, keys = (tuple(zip(counts, sizes[:, i].tolist(), strict=True)) for i in (1, 0))
    if bool((of_sample.diff() >= 0).all()):  # as samples to predict for come, sorted by length
        return _Plan(None, None, queries, keys)
    order = of_sample.argsort(stable=True)
    return _Plan(_token_order(layout, order), _token_order(context, order), queries, keys)


def _token_order(layout: Layout, order: Int64[Tensor, "b"]) -> Int64[Tensor, "t"]:
    """The indices of all tokens, sample by sample in this order of the samples."""
    lengths = layout.lengths[order]
    # How far the tokens of a sample move: from where they will begin to where they begin now.
    shifts = layout.host_offsets[order] - (lengths.cumsum(0) - lengths)
    return torch.repeat_interleave(shifts, lengths) + torch.arange(layout.n_tokens)

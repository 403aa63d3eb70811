"""Attention within a window, for samples too long for all pairs: an approximation, linear in the number of tokens.

The tokens of a sample stand in order of their first coordinate. Each attends to those up to `window` places before and
behind it, and to CLS; CLS attends to all. With a window as long as the sample, nothing is left out. Samples are cut
into stretches of `window` tokens, and a stretch looks at itself and at its two neighbours.

Shapes: t tokens of all samples end to end, h heads, e head size, s stretches, w window.
"""

import torch
from jaxtyping import Bool, Float, Float32, Int64
from torch import Tensor
from torch.nn import functional as F

from romae.model.attention import attend
from romae.tokens.layout import Layout

Heads = Float[Tensor, "t h e"]


def order_along(positions: Float32[Tensor, "t d"], layout: Layout, has_cls: bool) -> Int64[Tensor, "t"]:
    """The tokens of each sample by their first coordinate, CLS first."""
    coordinate = positions[:, 0]
    if has_cls:
        coordinate = coordinate.index_fill(0, layout.offsets[:-1].long(), -torch.inf)
    by_coordinate = coordinate.argsort(stable=True)
    return by_coordinate[layout.sample_of_token[by_coordinate].argsort(stable=True)]


def attend_window(
    q: Heads, k: Heads, v: Heads, layout: Layout, window: int, has_cls: bool, dropout: float, scale: float
) -> Heads:
    """Attention of ordered tokens to their neighbours."""
    if layout.is_fixed:
        raise ValueError("windows are cut by the lengths of samples, which a batch of fixed size does not know")
    n_first = int(has_cls)
    stretches = _Stretches(layout, window, n_first)
    queries, keys = stretches.queries(), stretches.keys()
    mask = stretches.mask(queries, keys)
    if has_cls:
        keys = torch.cat([stretches.first.unsqueeze(-1), keys], dim=1)
        mask = F.pad(mask, (1, 0), value=True)
    clamped = (x.clamp(0, len(q) - 1) for x in (queries, keys, keys))
    near_q, near_k, near_v = (x[index].transpose(1, 2) for x, index in zip((q, k, v), clamped, strict=True))
    mask = mask | ~mask.any(-1, keepdim=True)  # a place behind the end of its sample looks anywhere, and is left out
    out = F.scaled_dot_product_attention(
        near_q, near_k, near_v, attn_mask=mask.unsqueeze(1), dropout_p=dropout, scale=scale
    )
    is_token = queries < stretches.end.unsqueeze(-1)
    output = q.new_zeros(q.shape).index_copy(0, queries[is_token], out.transpose(1, 2)[is_token].to(q.dtype))
    return _with_cls(output, q, k, v, layout, dropout, scale) if has_cls else output


class _Stretches:
    """Where each stretch begins, and where the tokens of its sample begin and end."""

    def __init__(self, layout: Layout, window: int, n_first: int) -> None:
        counts = (layout.lengths - n_first + window - 1) // window
        sample = torch.repeat_interleave(torch.arange(layout.n_samples), counts)
        number = torch.arange(len(sample)) - (counts.cumsum(0) - counts)[sample]
        offsets = layout.host_offsets
        self.window = window
        self.first = offsets[sample].to(layout.device)
        self.begin = (offsets[sample] + n_first).to(layout.device)
        self.end = offsets[sample + 1].to(layout.device)
        self.start = self.begin + (number * window).to(layout.device)

    def queries(self) -> Int64[Tensor, "s w"]:
        return self.start.unsqueeze(-1) + torch.arange(self.window, device=self.start.device)

    def keys(self) -> Int64[Tensor, "s u"]:
        return self.start.unsqueeze(-1) + torch.arange(-self.window, 2 * self.window, device=self.start.device)

    def mask(self, queries: Int64[Tensor, "s w"], keys: Int64[Tensor, "s u"]) -> Bool[Tensor, "s w u"]:
        is_token = (keys >= self.begin.unsqueeze(-1)) & (keys < self.end.unsqueeze(-1))
        is_near = (queries.unsqueeze(-1) - keys.unsqueeze(-2)).abs() <= self.window
        is_query = queries < self.end.unsqueeze(-1)
        return is_token.unsqueeze(-2) & is_near & is_query.unsqueeze(-1)


def _with_cls(output: Heads, q: Heads, k: Heads, v: Heads, layout: Layout, dropout: float, scale: float) -> Heads:
    """CLS attends to its whole sample: one query for each."""
    first = layout.offsets[:-1].long()
    single = Layout.singles(layout.n_samples, q.device)
    attended = attend(q.index_select(0, first), k, v, single, dropout, context=layout, scale=scale)
    return output.index_copy(0, first, attended.to(output.dtype))

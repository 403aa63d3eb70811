"""Rows of many samples end to end: selected, split, and reduced for each sample.

Shapes: t rows, b samples, w any width.
"""

from typing import Any, Literal

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from romae.tokens.layout import Layout


class _TakeRows(torch.autograd.Function):
    """Rows that are taken once each. Their gradient is copied to where they came from, where torch would add it."""

    @staticmethod
    def forward(x: Tensor, index: Tensor) -> Tensor:
        return x.index_select(0, index)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        x, index = inputs
        ctx.n_rows = len(x)
        ctx.save_for_backward(index)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        rows = gradient.new_zeros(ctx.n_rows, *gradient.shape[1:])
        return rows.index_copy_(0, index, gradient), None


def take_rows(x: Float[Tensor, "t *w"], index: Int64[Tensor, "u"]) -> Float[Tensor, "u *w"]:
    """The rows at these indices, none of them twice."""
    rows: Tensor = _TakeRows.apply(x, index)
    return rows


def second_part(values: Float[Tensor, "t w"], first: Layout, second: Layout) -> Float[Tensor, "u w"]:
    """The values that belong to `second` in tokens laid out as `first.joined(second)`."""
    if first.is_equal and second.is_equal:
        shape = (first.n_samples, first.longest + second.longest)
        return values.unflatten(0, shape)[:, first.longest :].flatten(0, 1)
    return take_rows(values, first.places_in_joined(second)[1])


def sample_mean(x: Float[Tensor, "t w"], layout: Layout) -> Float[Tensor, "b w"]:
    """The mean over each sample's tokens."""
    require_tokens(layout)
    if layout.is_equal:
        return x.unflatten(0, (layout.n_samples, layout.longest)).mean(1)
    total = x.new_zeros(layout.n_samples, x.shape[-1], dtype=torch.promote_types(x.dtype, torch.float32))
    total = total.index_add(0, layout.sample_of_token, x.to(total.dtype))
    return (total / layout.device_lengths.unsqueeze(-1)).to(x.dtype)


def kind_mean(
    x: Float[Tensor, "t w"], kind_of_token: Int64[Tensor, "t"], n_kinds: int, layout: Layout
) -> Float[Tensor, "b w"]:
    """The mean over the kinds of each sample, of which each is the mean of its tokens."""
    cell = layout.sample_of_token * n_kinds + kind_of_token
    ones = torch.ones_like(cell, dtype=torch.float32)
    counts = ones.new_zeros(layout.n_samples * n_kinds).index_add(0, cell, ones)
    n_present = (counts.unflatten(0, (-1, n_kinds)) > 0).sum(1)
    weight = (layout.device_lengths / n_present)[layout.sample_of_token] / counts[cell]  # 1 on average
    return sample_mean(x * weight.unsqueeze(-1), layout).to(x.dtype)


def sample_extreme(x: Float[Tensor, "t w"], layout: Layout, which: Literal["max", "min"]) -> Float[Tensor, "b w"]:
    """The highest or the lowest of each sample's numbers."""
    return torch.segment_reduce(x, which, lengths=layout.device_lengths.long(), axis=0, unsafe=True)


def require_tokens(layout: Layout) -> None:
    if not torch.compiler.is_compiling() and not layout.is_fixed and not bool(layout.lengths.all()):
        raise ValueError(f"sample {int((layout.lengths == 0).nonzero()[0])} has no token left")

"""Pre-norm transformer blocks over packed tokens, and stacks of them.

Shapes: t tokens, b samples, w width, h heads, e head size, d position dimensions.
"""

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Float32
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from romae.model.attention import attend, attend_within, turned
from romae.model.config import ModelConfig, Size
from romae.model.kernels.aligned import is_aligned, norm, padded, padded_columns, padded_rows, wide, wide_group
from romae.model.rope import AxialRope, Rotation, Sinusoid
from romae.model.windowed import attend_window, order_along
from romae.tokens.layout import Layout
from romae.tokens.packed import taken
from romae.tokens.tokens import Tokens


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)).

    On a GPU in half precision x comes with channels of zeros, and the weights are padded to match (kernels/aligned.py).
    """

    rate: Tensor

    def __init__(self, size: Size, config: ModelConfig, drop: float) -> None:
        super().__init__()
        self.heads, self.head_dim = size.heads, size.head_dim
        self.may_be_left_out, self.is_plain = drop > 0, drop == config.dropout == 0
        # A tensor, since a number would be compiled in, for each layer anew.
        self.register_buffer("rate", torch.tensor(drop), persistent=False)
        self.groups = 2 * config.position_dims if config.positions == "rope" else 1
        self.score_dropout, self.dropout = config.score_dropout, config.dropout
        self.window, self.has_cls = config.window, config.cls
        self.attention_norm = nn.RMSNorm(size.width, eps=config.norm_eps)
        self.qkv = nn.Linear(size.width, 3 * size.width, bias=False)
        self.out = nn.Linear(size.width, size.width, bias=False)
        self.mlp_norm = nn.RMSNorm(size.width, eps=config.norm_eps)
        self.up = nn.Linear(size.width, size.hidden, bias=False)
        self.down = nn.Linear(size.hidden, size.width, bias=False)

    def forward(
        self, x: Float[Tensor, "t w"], rotation: Rotation | None, layout: Layout, queries: Layout | None = None
    ) -> Float[Tensor, "t w"]:
        if torch.compiler.is_compiling() and x.is_cuda and self.training and self.is_plain:
            # The compiler would keep every tensor that the backward pass reads; norms and SiLU are cheaper to repeat.
            # Not on a CPU, where attention to samples of various lengths is not compiled, nor could be what holds it.
            return checkpoint(self._forward, x, rotation, layout, queries, use_reentrant=False, context_fn=_keeping)
        return self._forward(x, rotation, layout, queries)

    def _forward(
        self, x: Float[Tensor, "t w"], rotation: Rotation | None, layout: Layout, queries: Layout | None
    ) -> Float[Tensor, "t w"]:
        x = x + self._dropped(self.attention(norm(x, self.attention_norm), rotation, layout, queries), layout, queries)
        return x + self._dropped(self.mlp(norm(x, self.mlp_norm)), layout, queries)

    def attention(
        self, x: Float[Tensor, "t w"], rotation: Rotation | None, layout: Layout, queries: Layout | None
    ) -> Float[Tensor, "t w"]:
        """Tokens attend within their sample; queries, which follow all of them, attend to tokens alone."""
        into, out_of = self.qkv.weight, self.out.weight
        if is_aligned(x):
            into = padded_rows(into, 3 * self.heads, self.groups, x.shape[-1])
            out_of = padded_columns(out_of, self.heads, self.groups, x.shape[-1])
        qkv = F.linear(x, into).unflatten(-1, (3, self.heads, -1))
        dropout, scale = self.score_dropout if self.training else 0.0, self.head_dim**-0.5
        if self.window is not None:
            q, k, v = turned(qkv, rotation)
            near = attend_window(q, k, v, layout, self.window, self.has_cls, dropout, scale)
            return F.linear(near.flatten(1), out_of)
        if queries is None:
            return F.linear(attend_within(qkv, rotation, layout, dropout, scale=scale).flatten(1), out_of)
        q, k, v = turned(qkv, rotation)
        n = layout.n_tokens
        among_tokens = attend(q[:n], k[:n], v[:n], layout, dropout, scale=scale)
        to_tokens = attend(q[n:], k[:n], v[:n], queries, dropout, context=layout, scale=scale)
        return F.linear(torch.cat([among_tokens, to_tokens]).flatten(1), out_of)

    def mlp(self, x: Float[Tensor, "t w"]) -> Float[Tensor, "t w"]:
        up, down = self.up.weight, self.down.weight
        if is_aligned(x):
            hidden = wide(len(up))
            up, down = padded(up, hidden, x.shape[-1]), padded(down, x.shape[-1], hidden)
        return F.linear(F.dropout(F.silu(F.linear(x, up)), self.dropout, self.training), down)

    def _dropped(
        self, branch: Float[Tensor, "t w"], layout: Layout, queries: Layout | None = None
    ) -> Float[Tensor, "t w"]:
        """Stochastic depth: the branch of a whole sample is left out, the others make up for it."""
        if not self.training or not self.may_be_left_out:
            return branch
        kept = torch.rand(layout.n_samples, device=branch.device) >= self.rate
        factor = kept.to(branch.dtype) / (1 - self.rate)
        sample = layout.sample_of_token
        if queries is not None:
            sample = torch.cat([sample, queries.sample_of_token])
        return branch * factor[sample].unsqueeze(-1)


def _kept(context: Any, operation: Any, *inputs: Any, **settings: Any) -> CheckpointPolicy:
    """Keep the results of matrix products, rotations and attention, and compute all else again."""
    name = str(operation)
    is_kept = any(part in name for part in ("mm.", "linear.", "turn.", "stack.", "attend", "attn", "attention"))
    return CheckpointPolicy.MUST_SAVE if is_kept else CheckpointPolicy.PREFER_RECOMPUTE


def _keeping() -> Any:
    return create_selective_checkpoint_contexts(_kept)


class Transformer(nn.Module):
    """A stack of blocks. The angles of all tokens are computed once and handed to every block."""

    def __init__(self, size: Size, config: ModelConfig) -> None:
        super().__init__()
        self.checkpointing, self.window, self.has_cls = config.checkpointing, config.window, config.cls
        is_rope = config.positions == "rope"
        dims, ladders = config.position_dims, config.ladders
        self.rope = AxialRope(size.head_dim, dims, keep=config.keep, ladders=ladders) if is_rope else None
        self.sinusoid = None if is_rope else Sinusoid(size.width, dims, ladders=ladders)
        rates = [config.stochastic_depth * layer / size.depth for layer in range(1, size.depth + 1)]
        self.blocks = nn.ModuleList(Block(size, config, rate) for rate in rates)
        _initialise(self, size)

    def forward(self, tokens: Tokens) -> Tokens:
        return replace(tokens, values=self.run(tokens.values, tokens.positions, tokens.layout))

    def run(
        self,
        x: Float[Tensor, "t w"],
        positions: Float32[Tensor, "t d"],
        layout: Layout,
        queries: Layout | None = None,
    ) -> Float[Tensor, "t w"]:
        """The blocks in turn. With `queries`, the tokens of `layout` are followed by queries that only look."""
        order = None
        if self.window is not None:
            order = order_along(positions, layout, self.has_cls)
            x, positions = taken(x, order), positions.index_select(0, order)
        rotation = None if self.rope is None else self.rope(positions)
        if self.sinusoid is not None:
            x = x + self.sinusoid(positions).to(x.dtype)
        width = x.shape[-1]
        if is_aligned(x):
            x = padded(x, len(x), wide(width))
            if rotation is not None:
                rotation = rotation.padded(wide_group(rotation.n_pairs, 2 * rotation.n_axes))
        for block in self.blocks:
            if self.checkpointing and self.training:
                x = checkpoint(block, x, rotation, layout, queries, use_reentrant=False)
            else:
                x = block(x, rotation, layout, queries)
        x = x[:, :width]
        return x if order is None else torch.empty_like(x).index_copy(0, order, x)


def _initialise(transformer: Transformer, size: Size) -> None:
    """Variance-preserving layers; those that end a residual branch shrink with depth, so that x keeps its scale."""
    gain = (2 * size.depth) ** -0.5
    for block in transformer.blocks:
        assert isinstance(block, Block)
        for layer, factor in ((block.qkv, 1.0), (block.up, 1.0), (block.out, gain), (block.down, gain)):
            spread_weights(layer, factor)


def spread_weights(layer: nn.Linear, gain: float) -> None:
    nn.init.trunc_normal_(layer.weight, std=gain * layer.in_features**-0.5)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)

"""Pre-norm transformer blocks over packed tokens, and stacks of them.

Shapes: t tokens, b samples, w width, h heads, e head size, d position dimensions.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Float32
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from romae.model.attention import HAS_TRITON, attend, attend_within, turned
from romae.model.config import ModelConfig, Size
from romae.model.kernels.aligned import AlignedLinear, AlignedNorm, Groups, is_half_on_gpu, padded, wide, wide_group
from romae.model.rope import AxialRope, Rotation, Sinusoid
from romae.model.windowed import attend_window, order_along
from romae.tokens.layout import Layout
from romae.tokens.packed import take_rows
from romae.tokens.tokens import Tokens


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)).

    Where it `is_aligned`, x comes with channels of zeros, and its layers pad their weights (kernels/aligned.py).
    """

    rate: Tensor

    def __init__(self, size: Size, config: ModelConfig, drop: float) -> None:
        super().__init__()
        self.heads, self.head_dim = size.heads, size.head_dim
        self.may_be_left_out, self.is_plain = drop > 0, drop == config.dropout == 0
        # A tensor, since a number would be compiled in, for each layer anew.
        self.register_buffer("rate", torch.tensor(drop), persistent=False)
        self.score_dropout, self.dropout = config.score_dropout, config.dropout
        self.window, self.has_cls = config.window, config.cls
        n_groups = 2 * config.position_dims if config.positions == "rope" else 1
        width, hidden = Groups.whole(size.width), Groups.whole(size.hidden)
        self.attention_norm = AlignedNorm(size.width, config.norm_eps)
        self.qkv = AlignedLinear(width, Groups.of_heads(3 * size.heads, size.head_dim, n_groups))
        self.out = AlignedLinear(Groups.of_heads(size.heads, size.head_dim, n_groups), width)
        self.mlp_norm = AlignedNorm(size.width, config.norm_eps)
        self.up, self.down = AlignedLinear(width, hidden), AlignedLinear(hidden, width)

    @property
    def can_be_aligned(self) -> bool:
        """Whether all layers know how to pad, as those that others put in their place, such as LoRA's, do not."""
        linears, norms = (self.qkv, self.out, self.up, self.down), (self.attention_norm, self.mlp_norm)
        return all(isinstance(x, AlignedLinear) for x in linears) and all(isinstance(x, AlignedNorm) for x in norms)

    def forward(
        self,
        x: Float[Tensor, "t w"],
        rotation: Rotation | None,
        layout: Layout,
        queries: Layout | None = None,
        is_aligned: bool = False,
    ) -> Float[Tensor, "t w"]:
        if torch.compiler.is_compiling() and x.is_cuda and self.training and self.is_plain:
            # The compiler would keep every tensor that the backward pass reads; norms and SiLU are cheaper to repeat.
            # Not on a CPU, where attention to samples of various lengths is not compiled, nor could be what holds it.
            inputs = (x, rotation, layout, queries, is_aligned)
            return checkpoint(self._forward, *inputs, use_reentrant=False, context_fn=_checkpoint_contexts)
        return self._forward(x, rotation, layout, queries, is_aligned)

    def _forward(
        self,
        x: Float[Tensor, "t w"],
        rotation: Rotation | None,
        layout: Layout,
        queries: Layout | None,
        is_aligned: bool,
    ) -> Float[Tensor, "t w"]:
        attended = self.attention(self.attention_norm(x), rotation, layout, queries, is_aligned)
        x = x + self._with_stochastic_depth(attended, layout, queries)
        return x + self._with_stochastic_depth(self.mlp(self.mlp_norm(x), is_aligned), layout, queries)

    def attention(
        self,
        x: Float[Tensor, "t w"],
        rotation: Rotation | None,
        layout: Layout,
        queries: Layout | None,
        is_aligned: bool = False,
    ) -> Float[Tensor, "t w"]:
        """Tokens attend within their sample; queries, which follow all of them, attend to tokens alone."""
        qkv = _linear(self.qkv, x, is_aligned).unflatten(-1, (3, self.heads, -1))
        dropout, scale = self.score_dropout if self.training else 0.0, self.head_dim**-0.5
        if self.window is not None:
            attended = attend_window(*turned(qkv, rotation), layout, self.window, self.has_cls, dropout, scale)
        elif queries is None:
            attended = attend_within(qkv, rotation, layout, dropout, scale=scale)
        else:
            q, k, v = turned(qkv, rotation)
            n = layout.n_tokens
            among_tokens = attend(q[:n], k[:n], v[:n], layout, dropout, scale=scale)
            to_tokens = attend(q[n:], k[:n], v[:n], queries, dropout, context=layout, scale=scale)
            attended = torch.cat([among_tokens, to_tokens])
        return _linear(self.out, attended.flatten(1), is_aligned)

    def mlp(self, x: Float[Tensor, "t w"], is_aligned: bool = False) -> Float[Tensor, "t w"]:
        hidden = F.silu(_linear(self.up, x, is_aligned))
        return _linear(self.down, F.dropout(hidden, self.dropout, self.training), is_aligned)

    def _with_stochastic_depth(
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


def _linear(layer: nn.Module, x: Float[Tensor, "t i"], is_aligned: bool) -> Float[Tensor, "t o"]:
    """Calls a layer. One that others put in the place of ours takes x alone, and is never aligned."""
    return layer(x, is_aligned=True) if is_aligned else layer(x)


def kept_operators() -> list[Any]:
    """The operators whose results a block keeps for its backward pass: matrix products, rotations and attention.

    All else, norms and SiLU above all, is cheaper to compute again than to write to memory and read.
    """
    from torch.nn.attention import varlen  # noqa: F401  # makes its operator known

    aten = torch.ops.aten
    # A linear layer is mm. The others are for layers that users bring: with a bias, with more dimensions, in fp8.
    products = [aten.mm, aten.addmm, aten.bmm, aten.baddbmm, aten.linear, aten._scaled_mm]
    # What scaled_dot_product_attention becomes depends on the card, the precision and the mask.
    attention = [
        aten.scaled_dot_product_attention,
        aten._scaled_dot_product_flash_attention,
        aten._scaled_dot_product_efficient_attention,
        aten._scaled_dot_product_cudnn_attention,
        aten._scaled_dot_product_flash_attention_for_cpu,
        aten._flash_attention_forward,
        aten._efficient_attention_forward,
        torch.ops.torch_attn._varlen_attn,
    ]
    rotation = [aten.stack]  # ends `rotate`, where no kernel of ours takes its place
    if HAS_TRITON:
        import romae.model.kernels.attention
        import romae.model.kernels.rotation  # noqa: F401  # both make their operators known

        attention.append(torch.ops.romae.attend_short)
        rotation.append(torch.ops.romae.turn)
    return [operator.default for operator in products + attention + rotation]


def _checkpoint_contexts() -> Any:
    return create_selective_checkpoint_contexts(kept_operators())


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

    @property
    def can_be_aligned(self) -> bool:
        """Whether every block can: channels of zeros go through all of them, or through none."""
        return all(getattr(block, "can_be_aligned", False) for block in self.blocks)

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
        (x,) = self.layers(x, positions, layout, queries, numbers=(len(self.blocks),))
        return x

    def layers(
        self,
        x: Float[Tensor, "t w"],
        positions: Float32[Tensor, "t d"],
        layout: Layout,
        queries: Layout | None = None,
        *,
        numbers: Collection[int],
    ) -> list[Float[Tensor, "t w"]]:
        """What enters the first block (number 0), and what comes out of the others, for the numbers that are asked."""
        order = None
        if self.window is not None:
            order = order_along(positions, layout, self.has_cls)
            x, positions = take_rows(x, order), positions.index_select(0, order)
        rotation = None if self.rope is None else self.rope(positions)
        if self.sinusoid is not None:
            x = x + self.sinusoid(positions).to(x.dtype)
        width, is_aligned = x.shape[-1], is_half_on_gpu(x) and self.can_be_aligned
        if is_aligned:
            x = padded(x, wide(width))
            if rotation is not None:
                rotation = rotation.padded(wide_group(rotation.n_pairs, 2 * rotation.n_axes))
        outputs = [x] if 0 in numbers else []
        for number, block in enumerate(self.blocks, start=1):
            if self.checkpointing and self.training:
                x = checkpoint(block, x, rotation, layout, queries, is_aligned, use_reentrant=False)
            else:
                x = block(x, rotation, layout, queries, is_aligned)
            if number in numbers:
                outputs.append(x)
        outputs = [x[:, :width] for x in outputs]
        return outputs if order is None else [torch.empty_like(x).index_copy(0, order, x) for x in outputs]


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

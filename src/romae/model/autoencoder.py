"""The model: pre-norm transformer blocks over packed tokens, an encoder and a smaller decoder.

Shapes: t tokens, b samples, w width, h heads, e head size, c channels, d position dimensions.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

import torch
from jaxtyping import Float, Float32
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from romae.config import check_types
from romae.model.attention import attend, attend_within, turned
from romae.model.kernels.aligned import is_aligned, norm, padded, padded_columns, padded_rows, wide, wide_group
from romae.model.rope import AxialRope, Ladder, Rotation, Sinusoid, nearest_multiples
from romae.model.windowed import attend_window, order_along
from romae.tokens.layout import Layout
from romae.tokens.packed import second_part, taken
from romae.tokens.tokens import Tokens, concat, require_kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Width, heads and depth of a stack of blocks; the feed-forward layer is four times the width by default."""

    width: int
    heads: int
    depth: int
    feed_forward: int | None = None

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("width", "heads", "depth", "feed_forward"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        if self.width % self.heads:
            raise ValueError(
                f"width {self.width} must be a multiple of {self.heads} heads; "
                f"the nearest are {nearest_multiples(self.width, self.heads)}"
            )

    @property
    def head_dim(self) -> int:
        return self.width // self.heads

    @property
    def hidden(self) -> int:
        return self.feed_forward or 4 * self.width


SIZES: Mapping[str, Size] = MappingProxyType(
    {
        "tiny-shallow": Size(width=180, heads=3, depth=2),
        "tiny": Size(width=180, heads=3, depth=12),
        "small": Size(width=432, heads=6, depth=12),
        "base": Size(width=720, heads=12, depth=12),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """What a model is made of. Data is known by its channels and position dimensions alone.

    `queries` says what the decoder's MASK tokens see: the encoded tokens alone, so that a prediction does not depend
    on what else is asked (independent), or each other too, as in the paper (joint).
    `keep` is the share p of rotary frequencies in use; `ladders` sets them per axis (default: the paper's).
    Rotations tell tokens how far apart they are, not what they are. With `kinds`, the last position is the number of a
    token's kind, below `kinds` (a variable, a band), and each kind has an embedding of its own, whose numbers begin
    with the deviation `kinds_spread`: near 1 kinds are told apart from the start, near 0 they are learned as one until
    they prove different. A scaling has to leave that axis as it is.
    A model without CLS sums a sample up by the mean of its tokens. With `pool="kinds"` that is the mean of the means of
    its kinds, so that what is measured often does not drown what is measured once.
    `dropout` acts on attention scores and on the feed-forward layer, `attention_dropout` overrides it for the
    scores; stochastic depth grows linearly over the layers up to its value. `window` lets tokens attend to so many
    neighbours on either side along the first position axis, and to CLS, instead of all: an approximation for very long
    samples; it is for `queries="joint"`, or for encoders alone.
    `positions="absolute"` adds sines and cosines of the positions instead of rotating, which is the paper's baseline.
    `checkpointing` computes each block again in the backward pass: less memory, more time. `norm_eps` keeps norms away
    from a division by zero.
    """

    channels: int
    position_dims: int
    encoder: Size = SIZES["tiny"]
    decoder: Size = SIZES["tiny-shallow"]
    cls: bool = True
    positions: Literal["rope", "absolute"] = "rope"
    queries: Literal["independent", "joint"] = "independent"
    keep: float = 0.75
    ladders: tuple[Ladder, ...] | None = None
    kinds: int | None = None
    kinds_spread: float = 0.1
    pool: Literal["tokens", "kinds"] = "tokens"
    dropout: float = 0.0
    attention_dropout: float | None = None
    stochastic_depth: float = 0.0
    norm_eps: float = 1e-6
    checkpointing: bool = False
    window: int | None = None

    def __post_init__(self) -> None:
        check_types(self)
        if self.channels < 1 or self.position_dims < 1:
            raise ValueError(
                f"a model needs at least one channel and one position dimension, not {self.channels} and "
                f"{self.position_dims}"
            )
        if self.kinds is not None and self.kinds < 1:
            raise ValueError(f"kinds is how many kinds of tokens there are, at least 1, or none, not {self.kinds}")
        if not 0 < self.kinds_spread < math.inf:
            raise ValueError(f"kinds_spread is a deviation, a number above 0, not {self.kinds_spread}")
        if self.pool == "kinds" and (self.kinds is None or self.cls):
            raise ValueError('pool="kinds" takes the mean of each kind: it needs kinds=…, and cls=False')
        if not self.norm_eps > 0:
            raise ValueError(f"norm_eps must be above 0, not {self.norm_eps}")
        if not 0 <= self.keep <= 1:
            raise ValueError(f"keep is the share of frequencies that rotate, between 0 and 1, not {self.keep}")
        if self.window is not None and self.window < 1:
            raise ValueError(f"window is a number of neighbours on either side, at least 1, not {self.window}")
        for name in ("dropout", "attention_dropout", "stochastic_depth"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise ValueError(f"{name} must be at least 0 and below 1, not {value}")
        if self.ladders is not None and len(self.ladders) != self.position_dims:
            raise ValueError(f"{len(self.ladders)} ladders for {self.position_dims} position dimensions")
        self.require_fit("encoder", self.encoder)

    def require_fit(self, part: str, size: Size) -> None:
        """Refuse a stack whose heads cannot be split over the position axes."""
        step = 2 * self.position_dims
        if self.positions == "rope" and size.head_dim % step:
            raise ValueError(
                f"the {part}'s head size {size.head_dim} must be a multiple of 2 x {self.position_dims} "
                f"position dimensions; with {size.heads} heads the nearest widths are "
                f"{nearest_multiples(size.width, step * size.heads)}"
            )

    @property
    def score_dropout(self) -> float:
        return self.dropout if self.attention_dropout is None else self.attention_dropout


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


class Kinds(nn.Module):
    """An embedding of its own for each kind of token: x stretched and shifted, by what belongs to the kind."""

    def __init__(self, n_kinds: int, width: int, spread: float) -> None:
        super().__init__()
        self.n_kinds = n_kinds
        self.stretch, self.shift = (nn.Linear(n_kinds, width, bias=False) for _ in range(2))
        nn.init.zeros_(self.stretch.weight)
        nn.init.normal_(self.shift.weight, std=spread)

    def forward(self, tokens: Tokens) -> Tokens:
        x, positions = tokens.values, tokens.positions
        if positions.device.type == "cpu" and not torch.compiler.is_compiling():
            require_kinds(tokens, self.n_kinds)  # on a GPU, who looks would wait: tasks look before
        # A product with ones and zeros, since the gradient of a look-up adds in no fixed order on a GPU.
        own = (positions[:, -1:] == torch.arange(self.n_kinds, device=positions.device)).to(x.dtype)
        return replace(tokens, values=x * (1 + self.stretch(own)) + self.shift(own))


def _kinds(config: ModelConfig, size: Size) -> Kinds | None:
    return None if config.kinds is None else Kinds(config.kinds, size.width, config.kinds_spread)


class Encoder(nn.Module):
    """Values [t, c] to embeddings [t, w]; with CLS, one more token at the front of each sample, at position 0."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.projection = nn.Linear(config.channels, config.encoder.width)
        nn.init.zeros_(self.projection.bias)
        self.kinds = _kinds(config, config.encoder)
        self.cls = nn.Parameter(torch.randn(config.encoder.width) * 0.02) if config.cls else None
        self.transformer = Transformer(config.encoder, config)

    def forward(self, tokens: Tokens) -> Tokens:
        config = self.config
        if tokens.channels != config.channels:
            raise ValueError(f"the model takes {config.channels} channels, but the tokens have {tokens.channels}")
        if tokens.position_dims != config.position_dims:
            raise ValueError(
                f"the model takes {config.position_dims} position dimensions, but the tokens have "
                f"{tokens.position_dims}"
            )
        values, dtype = tokens.values, self.projection.weight.dtype
        if not torch.is_autocast_enabled(tokens.device.type):
            if torch.promote_types(values.dtype, dtype) != dtype:
                raise TypeError(
                    f"the model computes in {dtype}, but the values are {values.dtype}; convert them with "
                    "tokens.to(dtype=…)"
                )
            values = values.to(dtype)  # data may be kept in half precision
        embedded = replace(tokens, values=self.projection(values))
        if self.kinds is not None:
            embedded = self.kinds(embedded)
        if self.cls is not None:
            embedded = concat(_repeated(self.cls, embedded), embedded)
        return self.transformer(embedded)

    def rebuilt(self, **changes: Any) -> "Encoder":
        """A new encoder with every weight of this one and some settings changed, for example dropout=0.2."""
        encoder = Encoder(replace(self.config, **changes))
        weight = self.projection.weight
        encoder.to(device=weight.device, dtype=weight.dtype).train(self.training)
        if lost := misfits(encoder, self.state_dict()):
            raise ValueError(
                f"{sorted(changes)} cannot change here: {'; '.join(lost[:3])}. Build a new Encoder for that"
            )
        encoder.load_state_dict(self.state_dict())
        return encoder


def misfits(module: nn.Module, weights: Mapping[str, Tensor]) -> list[str]:
    """What is missing, unexpected or of another shape where weights meet a module, in words."""
    expected = module.state_dict()
    found = [f"missing {key}" for key in expected if key not in weights]
    found += [f"unexpected {key}" for key in weights if key not in expected]
    return found + [
        f"{key} is {list(weights[key].shape)} instead of {list(value.shape)}"
        for key, value in expected.items()
        if key in weights and weights[key].shape != value.shape
    ]


class Decoder(nn.Module):
    """Encoded tokens and the positions of hidden ones to a vector at each hidden position."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        size = config.decoder
        config.require_fit("decoder", size)
        if config.window is not None and config.queries == "independent":
            raise ValueError(
                "window cuts one ordered set of tokens, and independent queries stand beside it; use queries='joint'"
            )
        self.is_joint = config.queries == "joint"
        self.projection = nn.Linear(config.encoder.width, size.width)
        _spread(self.projection, 1.0)
        self.mask_token = nn.Parameter(torch.randn(size.width) * 0.02)
        self.kinds = _kinds(config, size)
        self.transformer = Transformer(size, config)

    def forward(self, encoded: Tokens, positions: Float32[Tensor, "q d"], layout: Layout) -> Float[Tensor, "q w"]:
        context = replace(encoded, values=self.projection(encoded.values))
        queries = Tokens(self.mask_token.to(context.values.dtype).expand(len(positions), -1), positions, layout)
        if self.kinds is not None:
            queries = self.kinds(queries)
        if self.is_joint:
            joined = self.transformer(concat(context, queries))
            return second_part(joined.values, context.layout, layout)
        x = torch.cat([context.values, queries.values])
        x = self.transformer.run(x, torch.cat([context.positions, positions]), context.layout, layout)
        return x[context.layout.n_tokens :]


def _repeated(cls: Float[Tensor, "w"], like: Tokens) -> Tokens:
    """One CLS token for each sample, at position 0, where a rotation does nothing."""
    n_samples = like.layout.n_samples
    positions = like.positions.new_zeros(n_samples, like.position_dims)
    values = cls.to(like.values.dtype).expand(n_samples, -1)
    return Tokens(values, positions, Layout.singles(n_samples, like.device))


def _initialise(transformer: Transformer, size: Size) -> None:
    """Variance-preserving layers; those that end a residual branch shrink with depth, so that x keeps its scale."""
    gain = (2 * size.depth) ** -0.5
    for block in transformer.blocks:
        assert isinstance(block, Block)
        for layer, factor in ((block.qkv, 1.0), (block.up, 1.0), (block.out, gain), (block.down, gain)):
            _spread(layer, factor)


def _spread(layer: nn.Linear, gain: float) -> None:
    nn.init.trunc_normal_(layer.weight, std=gain * layer.in_features**-0.5)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)

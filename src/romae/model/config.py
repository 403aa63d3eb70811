"""What a model is made of, as a value: its sizes and its settings."""

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from romae.config import check_types
from romae.tokens.ladder import Ladder, nearest_multiples


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

    @classmethod
    def named(cls, name: str) -> "Size":
        """The size of a name, one of `SIZES`."""
        if name in SIZES:
            return SIZES[name]
        near = difflib.get_close_matches(name, SIZES, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}? There" if near else "there"
        raise ValueError(
            f"there is no size {name!r}; {hint} are {sorted(SIZES)}, or give its width, heads and depth: "
            "romae.Size(width=…, heads=…, depth=…)"
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


if TYPE_CHECKING:
    SizeOrName = Size | Any  # for type checkers: written as a Size or its name, read as a Size
else:
    SizeOrName = Size | str


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
    encoder: SizeOrName = SIZES["tiny"]
    decoder: SizeOrName = SIZES["tiny-shallow"]
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

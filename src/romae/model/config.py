"""What a model is made of, as a value: its sizes and its settings."""

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from romae.config import check_types, from_dict
from romae.tokens.ladder import Ladder, nearest_multiples

WIDEST, MOST_LAYERS = 2**20, 10_000  # beyond any model: a size that is a slip must not fill the memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Size of a transformer: width, heads and depth.

    Parameters
    ----------
    width : int
        The size of an embedding, a multiple of `heads`.
    heads : int
        Attention heads per layer.
    depth : int
        Layers.
    feed_forward : int, optional
        The width of the hidden layer of the MLP; by default four times the width.

    Raises
    ------
    ValueError
        If a number is below 1 or beyond any model, or the width is no multiple of the heads.
    TypeError
        If a number is not whole.

    Examples
    --------
    >>> import romae
    >>> romae.Size(width=64, heads=4, depth=3).head_dim
    16
    >>> romae.Size.named("tiny")
    Size(width=180, heads=3, depth=12, feed_forward=None)
    """

    width: int
    heads: int
    depth: int
    feed_forward: int | None = None

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("width", "heads", "depth", "feed_forward"):
            value = getattr(self, name)
            most = MOST_LAYERS if name == "depth" else WIDEST
            if value is not None and not 1 <= value <= most:
                raise ValueError(f"{name} must be at least 1 and at most {most}, not {value}")
        if self.width % self.heads:
            raise ValueError(
                f"width {self.width} must be a multiple of {self.heads} heads; "
                f"the nearest are {nearest_multiples(self.width, self.heads)}"
            )

    @classmethod
    def named(cls, name: str) -> "Size":
        """The size of a name.

        Parameters
        ----------
        name : str
            One of `SIZES`: "mini", "tiny-shallow", "tiny", "small" or "base".

        Returns
        -------
        Size
            Its width, heads and depth.

        Raises
        ------
        ValueError
            If there is no such name; the nearest is named.
        """
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
        """The size of a head."""
        return self.width // self.heads

    @property
    def hidden(self) -> int:
        """The width of the hidden layer of the MLP."""
        return self.feed_forward or 4 * self.width


SIZES: Mapping[str, Size] = MappingProxyType(
    {
        "mini": Size(width=72, heads=3, depth=2),
        "tiny-shallow": Size(width=180, heads=3, depth=2),
        "tiny": Size(width=180, heads=3, depth=12),
        "small": Size(width=432, heads=6, depth=12),
        "base": Size(width=720, heads=12, depth=12),
    }
)
"""Sizes by name: those of the paper, "tiny-shallow", "tiny", "small" and "base", and "mini" for a CPU.

`ModelConfig(encoder="small")` takes the name.
"""

# Samples; of fewer, a deep model learns no more than a shallow one.
SHALLOW_BELOW = 1_000


if TYPE_CHECKING:
    from romae.data.scaling import Scaling
    from romae.data.sources import SampleSource

    SizeOrName = Size | Any  # for type checkers: written as a Size or its name, read as a Size
else:
    SizeOrName = Size | str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Architecture of a model: its inputs, its sizes, and how positions enter.

    Parameters
    ----------
    channels : int
        Values per token.
    position_dims : int
        Position axes per token.
    encoder : Size or str, default "tiny"
        The size of the encoder, or its name in `SIZES`.
    decoder : Size or str, default "tiny-shallow"
        The size of the decoder, which pre-training and interpolation use.
    cls : bool, default True
        Whether each sample gets a CLS token, from which it is classified. A model without one takes the mean of all
        tokens, and does not notice when all positions of a sample shift.
    positions : {"rope", "absolute"}, default "rope"
        Rotary embeddings, or sines and cosines added to the tokens, the paper's baseline.
    queries : {"independent", "joint"}, default "independent"
        What the decoder's MASK tokens attend to: the encoded tokens alone, so that a prediction does not depend on what
        else is asked, or each other too, as in the paper.
    keep : float, default 0.75
        The share of rotary frequencies in use (the p of p-RoPE), from 0 to 1.
    ladders : tuple of Ladder, optional
        The wavelengths of each position axis, such as `fit_ladders` finds; by default the paper's.
    kinds : int, optional
        The number of kinds of tokens (variables, bands, sensors), each with an embedding of its own. The last position
        axis must then be the index of a token's kind, below `kinds`, and a scaling must leave it alone.
    kinds_spread : float, default 0.1
        The standard deviation of those embeddings at the start. Near 1, kinds differ from the start; near 0, they are
        treated alike until they prove different.
    pool : {"tokens", "kinds"}, default "tokens"
        What a model without CLS averages: all tokens, or the means of the kinds, so that what is measured often does
        not outweigh what is measured once.
    dropout : float, default 0.0
        Dropout of attention scores and of the MLP.
    attention_dropout : float, optional
        Dropout of attention scores, if it differs.
    stochastic_depth : float, default 0.0
        The probability that the last layer is skipped for a sample; it grows linearly over the layers.
    norm_eps : float, default 1e-6
        Keeps norms away from a division by zero.
    checkpointing : bool, default False
        Activation checkpointing: compute each block again in the backward pass, for less memory and more time.
    window : int, optional
        Let tokens attend to so many neighbours on either side along the first axis, and to CLS, instead of all: an
        approximation for samples of ten thousand tokens. It needs queries="joint", or an encoder alone.
    static_from : int, optional
        The index on the last position axis from which on tokens are static facts (`Schema.static_from`), which are
        never hidden and never dropped.
    errors : int, default 0
        How many of the `channels`, the last ones, are measurement errors, one for each column of values
        (`Schema.errors`). They are read beside the values and never predicted.

    Raises
    ------
    ValueError
        If a number lies outside its range, there is no size of that name, or heads cannot be split over the position
        axes (the message names the nearest widths).
    TypeError
        If a setting is of another type.

    Examples
    --------
    >>> import romae
    >>> config = romae.ModelConfig(channels=1, position_dims=2, encoder="small")
    >>> config.encoder
    Size(width=432, heads=6, depth=12, feed_forward=None)
    >>> romae.ModelConfig(channels=1, position_dims=1, encoder="smal")
    Traceback (most recent call last):
    ...
    ValueError: there is no size 'smal'; did you mean 'small'? ...
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
    static_from: int | None = None
    errors: int = 0

    def __post_init__(self) -> None:
        check_types(self)
        if self.channels < 1 or self.position_dims < 1:
            raise ValueError(
                f"a model needs at least one channel and one position dimension, not {self.channels} and "
                f"{self.position_dims}"
            )
        if self.static_from is not None and self.static_from < 1:
            raise ValueError(
                f"static_from is the first kind of static facts, at least 1, or none, not {self.static_from}"
            )
        if self.errors not in (0, self.channels - self.errors):
            raise ValueError(
                f"errors is how many of {self.channels} channels are measurement errors, one for each column of "
                f"values: 0 or half of them, not {self.errors}"
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

    @classmethod
    def for_samples(
        cls, samples: "SampleSource", /, *, scaling: "Scaling | None" = None, device: str = "auto", **settings: Any
    ) -> "ModelConfig":
        """The model that suits samples: what is not given follows from them, and its size from the device as well.

        Parameters
        ----------
        samples : sequence of Sample
            The training data.
        scaling : Scaling, optional
            The scaling that the model is trained with; wavelengths are for positions as it leaves them.
        device : str, default "auto"
            Where it is to be trained: "auto", "cpu", "cuda" or "cuda:1".
        **settings : Any
            Any setting of `ModelConfig`, which then does not follow from the samples. An encoder without a decoder gets
            one of its own width, of two layers at most.

        Returns
        -------
        ModelConfig
            Values per token, position axes, kinds and wavelengths are those of the samples. Kinds differ from the
            start (`kinds_spread=1`) and count alike (`pool="kinds"`). There is no CLS token, unless the scaling
            measures time from one moment for all samples, which only a model with CLS can see. The encoder is "mini"
            on a CPU; on a GPU it is "tiny-shallow" below 1000 samples, else "tiny".

        Raises
        ------
        ValueError
            If there are no samples, a number lies outside its range, or there is no size of that name.
        TypeError
            If there is no such setting, or it is of another type.

        Examples
        --------
        >>> import numpy as np
        >>> import romae
        >>> samples = romae.from_arrays(np.zeros((2, 11, 3)))
        >>> config = romae.ModelConfig.for_samples(samples, device="cpu")
        >>> config.channels, config.encoder == romae.SIZES["mini"], config.decoder.depth
        (3, True, 2)
        >>> romae.ModelConfig.for_samples(samples, encoder="small", dropout=0.1).encoder.width
        432
        """
        from romae.data.ladders import fit_ladders
        from romae.data.sources import as_source

        source = as_source(samples, with_targets=False)
        schema, first = source.schema, source[0]
        chosen: dict[str, Any] = {"channels": first.values.shape[1], "position_dims": first.positions.shape[1]}
        # Without CLS only differences of positions are seen: right for series that have each its own origin.
        has_shared_origin = scaling is not None and len(scaling.origins) > 0 and not isinstance(scaling.origins[0], str)
        chosen |= {"cls": has_shared_origin, "kinds": None if schema is None else schema.n_channels}
        chosen["static_from"] = None if schema is None else schema.static_from
        chosen["errors"] = 0 if schema is None else schema.n_errors
        chosen |= settings
        if chosen["kinds"] is not None:
            chosen = {"kinds_spread": 1.0, "pool": "tokens" if chosen["cls"] else "kinds"} | chosen
        if "encoder" not in settings:
            n_pairs = 0 if schema is None or schema.phase is None else schema.phase.harmonics
            chosen["encoder"] = fitting_size(
                len(source), chosen["position_dims"], is_on_gpu=_has_gpu(device), fewest_pairs=n_pairs
            )
        if isinstance(chosen["encoder"], str):
            chosen["encoder"] = Size.named(chosen["encoder"])
        if "decoder" not in settings and isinstance(encoder := chosen["encoder"], Size):
            chosen["decoder"] = replace(encoder, depth=min(encoder.depth, 2))
        if "ladders" not in settings:
            chosen["ladders"] = fit_ladders(samples, scaling)
        return from_dict(cls, chosen)

    def require_fit(self, part: str, size: Size) -> None:
        """Refuse a transformer whose heads cannot be split over the position axes.

        Parameters
        ----------
        part : str
            What to call it in the message, such as "encoder".
        size : Size
            Its size.

        Raises
        ------
        ValueError
            With the nearest widths that fit.
        """
        step = 2 * self.position_dims
        if self.positions == "rope" and size.head_dim % step:
            raise ValueError(
                f"the {part}'s head size {size.head_dim} must be a multiple of 2 x {self.position_dims} "
                f"position dimensions; with {size.heads} heads the nearest widths are "
                f"{nearest_multiples(size.width, step * size.heads)}"
            )

    @property
    def n_values(self) -> int:
        """How many numbers a token measures, errors not counted: what masked reconstruction predicts."""
        return self.channels - self.errors

    @property
    def score_dropout(self) -> float:
        """Dropout of attention scores."""
        return self.dropout if self.attention_dropout is None else self.attention_dropout


def fitting_size(n_samples: int, n_axes: int, *, is_on_gpu: bool, fewest_pairs: int = 0) -> Size:
    """The size for so many samples on a device, its heads wide enough to be split over the position axes.

    Each axis then has the `fewest_pairs` that the harmonics of a phase need.
    """
    size = SIZES["mini" if not is_on_gpu else "tiny-shallow" if n_samples < SHALLOW_BELOW else "tiny"]
    step = 2 * n_axes
    return replace(size, width=size.heads * step * max(-(-size.head_dim // step), fewest_pairs))


def _has_gpu(device: str) -> bool:
    import torch

    return device != "cpu" and torch.cuda.is_available()

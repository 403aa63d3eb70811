"""The autoencoder: an encoder of visible tokens, and a smaller decoder for the positions of hidden ones.

Shapes: t tokens, b samples, w width, c channels, d position dimensions, q hidden tokens.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Float32
from torch import Tensor, nn

from romae.model.blocks import Transformer, spread_weights
from romae.model.config import ModelConfig, Size
from romae.tokens.layout import Layout
from romae.tokens.packed import second_part
from romae.tokens.tokens import Tokens, concat, require_kinds


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
            require_kinds(tokens, self.n_kinds)  # on a GPU this would wait for the device: tasks look before
        # A product with ones and zeros, since the gradient of a look-up adds in no fixed order on a GPU.
        one_hot = (positions[:, -1:] == torch.arange(self.n_kinds, device=positions.device)).to(x.dtype)
        return replace(tokens, values=x * (1 + self.stretch(one_hot)) + self.shift(one_hot))


def _kind_embedding(config: ModelConfig, size: Size) -> Kinds | None:
    return None if config.kinds is None else Kinds(config.kinds, size.width, config.kinds_spread)


class Encoder(nn.Module):
    """The encoder: a transformer over the tokens of each sample, with rotary positions.

    Parameters
    ----------
    config : ModelConfig
        The architecture.

    Examples
    --------
    >>> import torch
    >>> import romae
    >>> encoder = romae.Encoder(romae.ModelConfig(channels=1, position_dims=1, encoder="tiny-shallow"))
    >>> batch = romae.collate([romae.Sample([[0.1], [0.2], [0.3]], [[0.0], [0.4], [2.5]])])
    >>> encoder(batch.tokens)  # CLS and three tokens
    Tokens(1 samples of 4 tokens, 4 in all; 180 channels, 1 position dims, float32 on cpu)
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.projection = nn.Linear(config.channels, config.encoder.width)
        nn.init.zeros_(self.projection.bias)
        self.kinds = _kind_embedding(config, config.encoder)
        self.cls = nn.Parameter(torch.randn(config.encoder.width) * 0.02) if config.cls else None
        self.transformer = Transformer(config.encoder, config)

    def forward(self, tokens: Tokens) -> Tokens:
        """Encode a batch.

        Parameters
        ----------
        tokens : Tokens
            Values [t, c] at positions [t, d].

        Returns
        -------
        Tokens
            Embeddings [t, w]; with CLS, one more token at the front of each sample, at position 0.

        Raises
        ------
        ValueError
            If the tokens have other channels or position axes than the model.
        TypeError
            If the values have a higher precision than the model.
        """
        return self.transformer(self._embedded(tokens))

    def layers(self, tokens: Tokens, numbers: Collection[int]) -> list[Tokens]:
        """The outputs of some layers, for those who look inside.

        Parameters
        ----------
        tokens : Tokens
            Values [t, c] at positions [t, d].
        numbers : collection of int
            Which layers, from 1 to the depth; 0 is what enters the first.

        Returns
        -------
        list of Tokens
            Embeddings [t, w] of each, from the first layer to the last; with CLS, one more token at the front of each
            sample.

        Raises
        ------
        ValueError
            If the tokens have other channels or position axes than the model.
        TypeError
            If the values have a higher precision than the model.
        """
        embedded = self._embedded(tokens)
        outputs = self.transformer.layers(embedded.values, embedded.positions, embedded.layout, numbers=numbers)
        return [replace(embedded, values=x) for x in outputs]

    def _embedded(self, tokens: Tokens) -> Tokens:
        """What enters the first layer."""
        config = self.config
        if tokens.channels != config.channels:
            raise ValueError(f"the model takes {config.channels} channels, but the tokens have {tokens.channels}")
        if tokens.position_dims != config.position_dims:
            raise ValueError(
                f"the model takes {config.position_dims} position dimensions, but the tokens have "
                f"{tokens.position_dims}"
            )
        values, dtype = tokens.values, next(self.parameters()).dtype  # `projection` may be anyone's
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
        return embedded

    def rebuilt(self, **changes: Any) -> "Encoder":
        """A new encoder with the weights of this one and some settings changed, such as for fine-tuning.

        Parameters
        ----------
        **changes
            Settings of `ModelConfig`, such as dropout=0.2.

        Returns
        -------
        Encoder
            A copy; this one stays as it is.

        Raises
        ------
        ValueError
            If the weights do not fit the changed settings.
        """
        encoder = Encoder(replace(self.config, **changes))
        like = next(self.parameters())
        encoder.to(device=like.device, dtype=like.dtype).train(self.training)
        if lost := misfits(encoder, self.state_dict()):
            raise ValueError(
                f"{sorted(changes)} cannot change here: {'; '.join(lost[:3])}. Build a new Encoder for that"
            )
        encoder.load_state_dict(self.state_dict())
        return encoder


def misfits(module: nn.Module, weights: Mapping[str, Any]) -> list[str]:
    """What is missing, unexpected or of another shape where weights, or what a file says of them, meet a module."""
    expected = module.state_dict()
    problems = [f"missing {key}" for key in expected if key not in weights]
    problems += [f"unexpected {key}" for key in weights if key not in expected]
    return problems + [
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
        spread_weights(self.projection, 1.0)
        self.mask_token = nn.Parameter(torch.randn(size.width) * 0.02)
        self.kinds = _kind_embedding(config, size)
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

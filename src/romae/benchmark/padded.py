"""The same mathematics padded, as most code does it: the baseline for speed, and in double precision the truth.

Every sample is padded to the longest of its batch, and attention is told by a mask what is padding. The weights are
those of a task, so that results can be compared number by number.

Shapes: b samples, n tokens of the longest, c channels, d position dimensions, w width.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from romae.model.autoencoder import Kinds
from romae.model.blocks import Block, Transformer
from romae.model.rope import Rotation, rotate
from romae.model.tasks import Loss, MaskedReconstruction
from romae.tokens.tokens import Batch, Tokens


class PaddedReconstruction(nn.Module):
    """A task computed on padded batches."""

    def __init__(self, task: MaskedReconstruction) -> None:
        super().__init__()
        if task.normalise:
            raise ValueError("the padded baseline knows plain targets only; build the task with normalise=False")
        self.task = task

    def forward(self, batch: Batch) -> Loss:
        output, target, is_query = self._outputs(batch)
        error = (output - target).square() * is_query.unsqueeze(-1)
        return Loss(error.sum(), is_query.sum().double() * target.shape[-1])

    def predict(self, batch: Batch) -> Float[Tensor, "q c"]:
        """What the task predicts for the hidden tokens, sample after sample."""
        output, _, is_query = self._outputs(batch)
        return output[is_query]

    def _outputs(self, batch: Batch) -> tuple[Float[Tensor, "b n c"], Float[Tensor, "b n c"], Bool[Tensor, "b n"]]:
        """The output at every hidden token, what it should be, and which of these are no padding."""
        assert batch.hidden is not None
        encoder, decoder = self.task.encoder, self.task.decoder
        x, positions, valid = _padded(batch.tokens)
        x = _of_kinds(encoder.kinds, encoder.projection(x.to(encoder.projection.weight.dtype)), positions)
        if encoder.cls is not None:
            x = torch.cat([encoder.cls.to(x.dtype).expand(len(x), 1, -1), x], dim=1)
            positions, valid = F.pad(positions, (0, 0, 1, 0)), F.pad(valid, (1, 0), value=True)
        x = decoder.projection(_stack(encoder.transformer, x, positions, valid))
        target, queries, is_query = _padded(batch.hidden)
        masks = _of_kinds(decoder.kinds, decoder.mask_token.to(x.dtype).expand(*queries.shape[:2], -1), queries)
        # Whether queries are seen, by each other and by the visible tokens, is all that the two kinds differ in.
        positions = torch.cat([positions, queries], dim=1)
        valid = torch.cat([valid, is_query if decoder.is_joint else torch.zeros_like(is_query)], dim=1)
        x = _stack(decoder.transformer, torch.cat([x, masks], dim=1), positions, valid)[:, -queries.shape[1] :]
        return self.task.head(x.flatten(0, 1)).unflatten(0, x.shape[:2]), target, is_query


def _of_kinds(kinds: Kinds | None, x: Float[Tensor, "b n w"], positions: Float[Tensor, "b n d"]) -> Tensor:
    """Each token stretched and shifted as its kind is, looked up in the tables."""
    if kinds is None:
        return x
    number = positions[..., -1].long()
    return x * (1 + kinds.stretch.weight.T[number]) + kinds.shift.weight.T[number]


def _padded(tokens: Tokens) -> tuple[Float[Tensor, "b n c"], Float[Tensor, "b n d"], Bool[Tensor, "b n"]]:
    """Like `Tokens.to_padded`, without asking the device for numbers."""
    layout = tokens.layout
    valid = torch.arange(layout.longest, device=tokens.device) < layout.device_lengths.unsqueeze(-1)
    sample = layout.sample_of_token
    place = sample * layout.longest + torch.arange(layout.n_tokens, device=tokens.device) - layout.offsets[sample]
    dtype = torch.promote_types(tokens.values.dtype, torch.float32)
    values = tokens.values.new_zeros(valid.numel(), tokens.channels, dtype=dtype)
    values = values.index_copy(0, place, tokens.values.to(dtype))
    positions = tokens.positions.new_zeros(valid.numel(), tokens.position_dims).index_copy(0, place, tokens.positions)
    return values.unflatten(0, valid.shape), positions.unflatten(0, valid.shape), valid


def _stack(stack: Transformer, x: Tensor, positions: Tensor, valid: Tensor) -> Tensor:
    assert stack.rope is not None
    rotation = stack.rope(positions.flatten(0, 1))
    for block in stack.blocks:
        assert isinstance(block, Block)
        x = x + _attention(block, _norm(block.attention_norm, x), rotation, valid)
        x = x + block.down(F.silu(block.up(_norm(block.mlp_norm, x))))
    return x


def _norm(layer: nn.RMSNorm, x: Tensor) -> Tensor:
    """What an `nn.RMSNorm` does, as most code has it; ours would stay in half precision under autocast."""
    return F.rms_norm(x, layer.normalized_shape, layer.weight, layer.eps)


def _attention(block: Block, x: Tensor, rotation: Rotation, valid: Tensor) -> Tensor:
    q, k, v = block.qkv(x).unflatten(-1, (3, block.heads, -1)).unbind(2)
    q, k = (rotate(part.flatten(0, 1), rotation).unflatten(0, x.shape[:2]) for part in (q, k))
    q, k, v = (part.transpose(1, 2) for part in (q, k, v))
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=valid[:, None, None, :])
    return block.out(out.transpose(1, 2).flatten(2))

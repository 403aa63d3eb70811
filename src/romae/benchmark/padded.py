"""The same mathematics padded, as most code does it: the baseline for speed, and in double precision the truth.

Every sample is padded to the longest of its batch, and attention is told by a mask what is padding; where all samples
are of one length it needs none, and may take the kernels that know no mask. Independent queries are keys of nobody. The
weights are those of a task, so that results can be compared number by number. Nothing asks the device for a number, so
that a step can be recorded, and a block can be compiled.

Shapes: t tokens, b samples, n tokens of the longest, m keys of the longest, c channels, d position dimensions, w width.
"""

import torch
from jaxtyping import Bool, Float, Int64
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
        self.block = _block

    def compile_blocks(self, backend: str = "inductor") -> None:
        """Compile what a block does, once for all of them: their weights are inputs."""
        self.block = torch.compile(_block, dynamic=False, backend=backend)

    def forward(self, batch: Batch) -> Loss:
        output, target, is_query = self._outputs(batch)
        error = (output - target).square() * is_query.unsqueeze(-1)
        return Loss(error.sum(), is_query.sum().double() * target.shape[-1])

    def predict(self, batch: Batch) -> Float[Tensor, "q c"]:
        """What the task predicts for the hidden tokens, sample after sample."""
        assert batch.hidden is not None
        output, _, _ = self._outputs(batch)
        return output.flatten(0, 1).index_select(0, _places(batch.hidden))

    def _outputs(self, batch: Batch) -> tuple[Float[Tensor, "b n c"], Float[Tensor, "b n c"], Bool[Tensor, "b n"]]:
        """The output at every hidden token, what it should be, and which of these are no padding."""
        assert batch.hidden is not None
        encoder, decoder = self.task.encoder, self.task.decoder
        x, positions, valid = _padded(batch.tokens)
        x = _of_kinds(encoder.kinds, encoder.projection(x.to(encoder.projection.weight.dtype)), positions)
        if encoder.cls is not None:
            x = torch.cat([encoder.cls.to(x.dtype).expand(len(x), 1, -1), x], dim=1)
            positions, valid = F.pad(positions, (0, 0, 1, 0)), F.pad(valid, (1, 0), value=True)
        keys = None if batch.tokens.layout.is_equal else valid
        x = decoder.projection(self._stack(encoder.transformer, x, positions, keys))
        target, queries, is_query = _padded(batch.hidden)
        masks = _of_kinds(decoder.kinds, decoder.mask_token.to(x.dtype).expand(*queries.shape[:2], -1), queries)
        # Whether queries are seen, by each other and by the visible tokens, is all that the two kinds differ in.
        positions, n_keys = torch.cat([positions, queries], dim=1), x.shape[1]
        if decoder.is_joint:
            n_keys += queries.shape[1]
            is_equal = keys is None and batch.hidden.layout.is_equal
            keys = None if is_equal else torch.cat([valid, is_query], dim=1)
        x = torch.cat([x, masks], dim=1)
        x = self._stack(decoder.transformer, x, positions, keys, n_keys)[:, -queries.shape[1] :]
        return self.task.head(x.flatten(0, 1)).unflatten(0, x.shape[:2]), target, is_query

    def _stack(
        self, stack: Transformer, x: Tensor, positions: Tensor, keys: Tensor | None, n_keys: int | None = None
    ) -> Float[Tensor, "b n w"]:
        """All blocks, in which every token attends to the first keys, all by default, that are no padding."""
        assert stack.rope is not None
        rotation, n_keys = stack.rope(positions.flatten(0, 1)), x.shape[1] if n_keys is None else n_keys
        for block in stack.blocks:
            assert isinstance(block, Block)
            x = self.block(block, x, rotation.cos, rotation.sin, keys, n_keys)
        return x


def _of_kinds(kinds: Kinds | None, x: Float[Tensor, "b n w"], positions: Float[Tensor, "b n d"]) -> Tensor:
    """Each token stretched and shifted as its kind is, looked up in the tables."""
    if kinds is None:
        return x
    number = positions[..., -1].long()
    return x * (1 + kinds.stretch.weight.T[number]) + kinds.shift.weight.T[number]


def _padded(tokens: Tokens) -> tuple[Float[Tensor, "b n c"], Float[Tensor, "b n d"], Bool[Tensor, "b n"]]:
    """Like `Tokens.to_padded`, without asking the device for numbers."""
    layout, place = tokens.layout, _places(tokens)
    valid = torch.arange(layout.longest, device=tokens.device) < layout.device_lengths.unsqueeze(-1)
    dtype = torch.promote_types(tokens.values.dtype, torch.float32)
    values = tokens.values.new_zeros(valid.numel(), tokens.channels, dtype=dtype)
    values = values.index_copy(0, place, tokens.values.to(dtype))
    positions = tokens.positions.new_zeros(valid.numel(), tokens.position_dims).index_copy(0, place, tokens.positions)
    return values.unflatten(0, valid.shape), positions.unflatten(0, valid.shape), valid


def _places(tokens: Tokens) -> Int64[Tensor, "t"]:
    """Where each token lies among padded samples that stand end to end."""
    layout, sample = tokens.layout, tokens.layout.sample_of_token
    return sample * layout.longest + torch.arange(layout.n_tokens, device=tokens.device) - layout.offsets[sample]


def _block(
    block: Block, x: Float[Tensor, "b n w"], cos: Tensor, sin: Tensor, keys: Bool[Tensor, "b m"] | None, n_keys: int
) -> Float[Tensor, "b n w"]:
    x = x + _attention(block, _norm(block.attention_norm, x), Rotation(cos, sin), keys, n_keys)
    return x + block.down(F.silu(block.up(_norm(block.mlp_norm, x))))


def _norm(layer: nn.RMSNorm, x: Tensor) -> Tensor:
    """What an `nn.RMSNorm` does, as most code has it; ours would stay in half precision under autocast."""
    return F.rms_norm(x, layer.normalized_shape, layer.weight, layer.eps)


def _attention(
    block: Block, x: Float[Tensor, "b n w"], rotation: Rotation, keys: Bool[Tensor, "b m"] | None, n_keys: int
) -> Float[Tensor, "b n w"]:
    q, k, v = block.qkv(x).unflatten(-1, (3, block.heads, -1)).unbind(2)
    q, k = (rotate(part.flatten(0, 1), rotation).unflatten(0, x.shape[:2]) for part in (q, k))
    q, k, v = (part.transpose(1, 2) for part in (q, k[:, :n_keys], v[:, :n_keys]))
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=None if keys is None else keys[:, None, None, :])
    return block.out(out.transpose(1, 2).flatten(2))

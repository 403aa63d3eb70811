"""A model as one function of arrays, for export: scaling, network and calibration, with nothing read on the host.

Tokens stand in rows. Packed inputs are a single row with the tokens of all samples, padded inputs a row per sample:

    packed, [1, t]    sample  0 0 0 1 1 2
    padded, [b, n]    sample  0 0 0 | 1 1 1 | 2 2 2    valid  + + + | + + - | + - -

Either way a token attends to what is valid in its own row and belongs to its own sample. CLS tokens and queries are
added at the end of the rows: to attention, the order of tokens means nothing.

A graph cannot refuse bad input with a sentence. Where `romae.predict` would, the answer for that sample is NaN.

Shapes: r rows, n tokens and m queries of a row, l tokens of a row with CLS, b samples, g groups of tokens, c channels,
d position axes, w width.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import torch
from jaxtyping import Bool, Float, Float32, Float64, Int64, Shaped
from torch import Tensor, nn
from torch.nn import functional as F

from romae.data.bends import bent, steepness, straightened
from romae.data.scaling import Scaling
from romae.model.autoencoder import Kinds
from romae.model.blocks import Block, Transformer
from romae.model.rope import rotate
from romae.model.tasks import Classification, MaskedReconstruction, Regression, Task
from romae.tokens.errors import scaled_errors
from romae.tokens.levels import Levels

Answer = Literal["predict", "embed", "interpolate"]
Inputs = Literal["packed", "padded"]
# Added to the scores of what a token does not attend to, so that its weight is 0. Not infinity: where a token sees
# nothing at all, softmax would make NaN of it, which spreads.
UNSEEN = -1e30

if TYPE_CHECKING:
    Count = int
else:
    Count = int | torch.SymInt  # which stands for any number while the graph is traced


@dataclass(frozen=True, eq=False)
class Rows:
    """To which sample each token of each row belongs, and whether it counts; `first` is the first of each sample."""

    sample: Int64[Tensor, "r n"]
    valid: Bool[Tensor, "r n"]
    n_samples: Count
    first: Int64[Tensor, "b"]

    @classmethod
    def packed(cls, offsets: Int64[Tensor, "ends"], n_tokens: Count) -> "Rows":
        """One row; where offsets do not fit it, nothing in it counts."""
        place, n_samples = torch.arange(n_tokens, device=offsets.device), offsets.shape[0] - 1
        sample = (place.unsqueeze(1) >= offsets[1:]).sum(1).clamp(max=n_samples - 1)
        fits = (offsets[0] == 0) & (offsets[-1] == n_tokens) & (offsets[1:] >= offsets[:-1]).all()
        valid = torch.ones_like(place, dtype=torch.bool) & fits
        first = offsets[:-1].clamp(min=0, max=n_tokens - 1)
        return cls(sample.unsqueeze(0), valid.unsqueeze(0), n_samples, first)

    @classmethod
    def padded(cls, valid: Bool[Tensor, "b n"]) -> "Rows":
        """A row for each sample."""
        n_samples, n = valid.shape
        number = torch.arange(n_samples, device=valid.device)
        sample = torch.zeros_like(valid, dtype=torch.int64) + number.unsqueeze(1)
        return cls(sample, valid, n_samples, number * n + valid.to(torch.int32).argmax(1))

    @property
    def singles(self) -> "Rows":
        """One token for each sample, in as many rows."""
        number = torch.arange(self.n_samples, device=self.sample.device)
        sample = number.reshape(self.sample.shape[0], -1)
        return Rows(sample, torch.ones_like(sample, dtype=torch.bool), self.n_samples, number)

    def followed_by(self, others: "Rows") -> "Rows":
        """Each row, and behind it that of the others."""
        sample, valid = torch.cat([self.sample, others.sample], 1), torch.cat([self.valid, others.valid], 1)
        return replace(self, sample=sample, valid=valid)

    def sums(self, x: Shaped[Tensor, "r n *k"], group: Int64[Tensor, "r n"], n_groups: Count) -> Shaped[Tensor, "g *k"]:
        """The sum of what counts in each group of tokens, such as a sample."""
        counted = torch.where(self.valid.reshape(*self.valid.shape, *(1,) * (x.ndim - 2)), x, 0)
        return x.new_zeros(n_groups, *x.shape[2:]).index_add(0, group.flatten(), counted.flatten(0, 1))

    def counts(self, group: Int64[Tensor, "r n"], n_groups: Count) -> Int64[Tensor, "g"]:
        """How many tokens of each group count."""
        return self.sums(torch.ones_like(group), group, n_groups)

    def lowest(self, x: Float64[Tensor, "r n"]) -> Float64[Tensor, "b"]:
        """The lowest number of each sample."""
        counted = torch.where(self.valid, x, torch.inf).flatten()
        return x.new_full((self.n_samples,), torch.inf).scatter_reduce(0, self.sample.flatten(), counted, "amin")


@dataclass(frozen=True, eq=False)
class _Scaled:
    """Tokens as the model sees them, and of which samples something can be said; what is wrong does not count."""

    rows: Rows
    values: Float32[Tensor, "r n c"]
    positions: Float32[Tensor, "r n d"]
    channel: Int64[Tensor, "r n"]
    origin: Float64[Tensor, "b d"]
    is_answered: Bool[Tensor, "b"]


class Graph(nn.Module):
    """What a task answers, from arrays in the data's own units to arrays in the data's own units.

    It computes with the layers of the task itself. `forward` takes values, positions and, packed, the offsets of
    samples, or, padded, a mask that is True on tokens; to interpolate also the positions of queries and, packed, their
    offsets.
    """

    def __init__(self, task: Task, answer: Answer, inputs: Inputs) -> None:
        super().__init__()
        self.task, self.answer, self.is_packed = task, answer, inputs == "packed"
        self.scaling: Scaling = Scaling() if task.scaling is None else task.scaling
        self.n_known, self.n_askable = known_channels(task)
        if self.scaling.method != "none":
            for name, table in (("centre", self.scaling.centre), ("scale", self.scaling.scale)):
                self.register_buffer(name, torch.tensor(table, dtype=torch.float64))
        self.centre: Float64[Tensor, "m c"]
        self.scale: Float64[Tensor, "m c"]
        self.register_buffer("gain", self.scaling.gain if self.scaling.centres_samples else None)
        self.gain: Float64[Tensor, "rows columns"] | None

    def forward(
        self,
        values: Float32[Tensor, "*tokens c"],
        positions: Float64[Tensor, "*tokens d"],
        offsets_or_mask: Shaped[Tensor, "*places"],
        query_positions: Float64[Tensor, "*queries d"] | None = None,
        query_offsets: Int64[Tensor, "ends"] | None = None,
    ) -> Float[Tensor, "*answers k"]:
        if self.is_packed:
            rows = Rows.packed(offsets_or_mask, values.shape[0])
            tokens = self._scaled(rows, values.unsqueeze(0), positions.unsqueeze(0))
        else:
            tokens = self._scaled(Rows.padded(offsets_or_mask), values, positions)
        if self.answer != "interpolate":
            return self._of_samples(tokens)
        assert query_positions is not None
        if not self.is_packed:
            is_asked = torch.ones_like(query_positions[..., 0], dtype=torch.bool)
            return self._interpolated(tokens, Rows.padded(is_asked), query_positions)
        assert query_offsets is not None
        asked = Rows.packed(query_offsets, query_positions.shape[0])
        return self._interpolated(tokens, asked, query_positions.unsqueeze(0)).squeeze(0)

    # From the data's own units, and back to them

    def _scaled(self, rows: Rows, values: Float32[Tensor, "r n c"], positions: Float64[Tensor, "r n d"]) -> _Scaled:
        origin = self._origin(rows, positions)
        channel, is_sound = self._channel(positions, self.n_known)
        if self.scaling.errors:
            is_sound = is_sound & (values[..., self.scaling.errors :] >= 0).all(-1)
        values = self._scaled_values(values, channel)
        coordinates = self._coordinates(rows, positions, origin)
        is_sound = is_sound & torch.isfinite(values).all(-1) & torch.isfinite(coordinates).all(-1)
        n_wrong = rows.sums((~is_sound).long(), rows.sample, rows.n_samples)
        is_answered = (n_wrong == 0) & (rows.counts(rows.sample, rows.n_samples) > 0)
        rows = replace(rows, valid=rows.valid & is_sound)
        # Zeros elsewhere: the weight of what does not count is 0, but 0 x NaN is NaN.
        values, coordinates = (torch.where(rows.valid.unsqueeze(-1), x, 0) for x in (values, coordinates))
        return _Scaled(rows, values, coordinates, channel, origin, is_answered)

    def _scaled_values(
        self, values: Float32[Tensor, "r n c"], channel: Int64[Tensor, "r n"]
    ) -> Float32[Tensor, "r n c"]:
        """Values as the model sees them, and their errors behind them."""
        method, n = self.scaling.method, self.task.config.n_values
        if method == "none" and self.scaling.errors == 0:
            return values
        measured, errors = values[..., :n].double(), values[..., n:].double()
        centre, scale = (measured.new_zeros(n), measured.new_ones(n)) if method == "none" else self._tables(channel)
        relative = (measured - centre) / scale
        scaled = bent(relative, method)
        if self.scaling.errors:
            scaled = torch.cat([scaled, scaled_errors(errors, scale / steepness(relative, method))], -1)
        return scaled.float()

    def _origin(self, rows: Rows, positions: Float64[Tensor, "r n d"]) -> Float64[Tensor, "b d"]:
        """What is subtracted from the positions of each sample."""
        origins = [positions.new_zeros(rows.n_samples) for _ in range(positions.shape[-1])]
        for axis, rule in enumerate(self.scaling.origins):
            if rule == "first":
                origins[axis] = positions.flatten(0, 1)[rows.first, axis]
            elif rule == "min":
                origins[axis] = rows.lowest(positions[..., axis])
            elif rule != "none":
                origins[axis] = torch.full_like(origins[axis], float(rule))
        return torch.stack(origins, 1)

    def _coordinates(
        self, rows: Rows, positions: Float64[Tensor, "r n d"], origin: Float64[Tensor, "b d"]
    ) -> Float32[Tensor, "r n d"]:
        """Positions as the model sees them."""
        scaled = self.scaling.scale_positions(positions.flatten(0, 1), origin[rows.sample.flatten()])
        return scaled.float().reshape(positions.shape)

    def _channel(
        self, positions: Float64[Tensor, "r n d"], n_known: int | None
    ) -> tuple[Int64[Tensor, "r n"], Bool[Tensor, "r n"]]:
        """The channel of each token, the last position, and whether the model knows it; 0 where it does not."""
        number = positions[..., -1]
        if n_known is None:
            return torch.zeros_like(number, dtype=torch.int64), torch.ones_like(number, dtype=torch.bool)
        is_known = (number == number.round()) & (number >= 0) & (number < n_known)
        channel = torch.where(is_known, number, 0).long()
        if self.scaling.by_channel:
            is_known = is_known & (self.scale != 0).all(1)[channel]  # else the training data did not have it
        return channel, is_known

    def _tables(self, channel: Int64[Tensor, "r n"]) -> tuple[Float64[Tensor, "*n c"], Float64[Tensor, "*n c"]]:
        """What is subtracted from values, and what they are divided by."""
        is_by_channel = self.scaling.by_channel
        return (self.centre[channel], self.scale[channel]) if is_by_channel else (self.centre, self.scale)

    # Levels, where samples are centred by themselves

    def _cell(self, rows: Rows, channel: Int64[Tensor, "r n"]) -> Int64[Tensor, "t"]:
        n_channels = self.scaling.n_channels or 1
        return (rows.sample if n_channels == 1 else rows.sample * n_channels + channel).flatten()

    def _levels(self, tokens: _Scaled) -> Levels | None:
        if self.gain is None:
            return None
        rows, n_channels = tokens.rows, self.scaling.n_channels or 1
        cell, n_cells = self._cell(rows, tokens.channel).reshape(rows.sample.shape), rows.n_samples * n_channels

        def total(x: Float64[Tensor, "t c"]) -> Float64[Tensor, "g c"]:
            return rows.sums(x.reshape(*rows.sample.shape, x.shape[-1]), cell, n_cells)

        return Levels.of_cells(
            tokens.values[..., : self.task.config.n_values].flatten(0, 1).double(),
            cell.flatten(),
            rows.counts(cell, n_cells),
            total,
            self.gain,
            n_channels,
            static_from=self.task.config.static_from,
            own_spread=self.scaling.center == "instance",
        )

    # The network

    def _of_samples(self, tokens: _Scaled) -> Float[Tensor, "*answers k"]:
        """Probabilities, numbers or embeddings; NaN where there is no answer."""
        task, rows, values = self.task, tokens.rows, tokens.values
        if (levels := self._levels(tokens)) is not None:
            enlarged = levels.enlarged_in(self._cell(rows, tokens.channel), values.flatten(0, 1))
            values = enlarged.float().reshape(values.shape)
        encoded, _, _ = self._encoded(rows, values, tokens.positions)
        if self.answer == "predict" and isinstance(task, Regression) and task.per == "token":
            numbers = self.scaling.invert_target(task.point(task.head(encoded[:, : values.shape[1]]).float()))
            is_answered = rows.valid & tokens.is_answered[rows.sample]
            numbers = torch.where(is_answered.unsqueeze(-1), numbers, torch.nan)
            return numbers.squeeze(0) if self.is_packed else numbers
        output = self._pooled(rows, encoded, tokens.positions)
        if self.answer == "predict":
            assert isinstance(task, Classification | Regression)
            output = task.point(task.head(output).float())
            if isinstance(task, Classification):
                if task.calibration is not None:
                    output = task.calibration.apply(output, task.confidence).float()
                output = output.double().softmax(-1)
            else:
                output = self.scaling.invert_target(output)
        return torch.where(tokens.is_answered.unsqueeze(-1), output, torch.nan)

    def _interpolated(
        self, tokens: _Scaled, asked: Rows, positions: Float64[Tensor, "r m d"]
    ) -> Float64[Tensor, "r m c"]:
        """Values at the queries; NaN where there is no answer."""
        task, rows, values = self.task, tokens.rows, tokens.values
        assert isinstance(task, MaskedReconstruction)
        channel, is_askable = self._channel(positions, self.n_askable)
        places = self._coordinates(asked, positions, tokens.origin)
        is_askable = is_askable & torch.isfinite(places).all(-1) & tokens.is_answered[asked.sample]
        asked = replace(asked, valid=asked.valid & is_askable)
        places = torch.where(asked.valid.unsqueeze(-1), places, 0)
        if (levels := self._levels(tokens)) is not None:
            relative = levels.relative_in(self._cell(rows, tokens.channel), values.flatten(0, 1))
            values = relative.float().reshape(values.shape)
        encoded, seen, context = self._encoded(rows, values, tokens.positions)
        decoder = task.decoder
        queries = _of_kind(decoder.kinds, decoder.mask_token.expand(*asked.sample.shape, -1), places)
        x, seen = torch.cat([decoder.projection(encoded), queries], 1), torch.cat([seen, places], 1)
        joined = context.followed_by(asked)
        x = _transformed(decoder.transformer, x, seen, joined, joined if decoder.is_joint else context)
        output = task.point(task.head(x[:, encoded.shape[1] :]).double())
        if levels is not None:
            output = levels.absolute_in(self._cell(asked, channel), output.flatten(0, 1)).reshape(output.shape)
        if self.scaling.method != "none":
            centre, scale = self._tables(channel)
            output = straightened(output, self.scaling.method) * scale + centre
        return torch.where(asked.valid.unsqueeze(-1), output, torch.nan)

    def _encoded(
        self, rows: Rows, values: Float32[Tensor, "r n c"], positions: Float32[Tensor, "r n d"]
    ) -> tuple[Float32[Tensor, "r l w"], Float32[Tensor, "r l d"], Rows]:
        """The output of the encoder with its positions, CLS tokens at the end of the rows."""
        encoder = self.task.encoder
        x = _of_kind(encoder.kinds, encoder.projection(values), positions)
        if encoder.cls is not None:
            singles = rows.singles
            x = torch.cat([x, encoder.cls.expand(*singles.sample.shape, -1)], 1)
            positions = torch.cat([positions, positions.new_zeros(*singles.sample.shape, positions.shape[-1])], 1)
            rows = rows.followed_by(singles)
        return _transformed(encoder.transformer, x, positions, rows, rows), positions, rows

    def _pooled(
        self, rows: Rows, encoded: Float32[Tensor, "r l w"], positions: Float32[Tensor, "r n d"]
    ) -> Float32[Tensor, "b w"]:
        """One vector per sample: its CLS, or the mean of its tokens or kinds."""
        config, n_samples = self.task.config, rows.n_samples
        if config.cls:
            return encoded[0, positions.shape[1] :] if self.is_packed else encoded[:, -1]
        if config.pool != "kinds" or config.kinds is None:
            return _mean(rows.sums(encoded, rows.sample, n_samples), rows.counts(rows.sample, n_samples))
        cell, n_cells = rows.sample * config.kinds + positions[..., -1].long(), n_samples * config.kinds
        count = rows.counts(cell, n_cells)
        of_kinds = _mean(rows.sums(encoded, cell, n_cells), count).reshape(n_samples, config.kinds, -1)
        return _mean(of_kinds.sum(1), (count.reshape(n_samples, -1) > 0).sum(1))


def known_channels(task: Task) -> tuple[int | None, int | None]:
    """How many channels tokens and queries may name on the last position axis; None where it holds no channels."""
    scaling, schema = task.scaling or Scaling(), task.schema
    limits = [n for n in (task.config.kinds, scaling.n_channels) if n is not None]
    limits += [len(scaling.scale)] if scaling.by_channel else []
    of_queries = limits.copy()
    if schema is not None and schema.channels and (schema.static or not scaling.by_channel):
        of_queries.append(len(schema.channels))  # static facts are known, and nobody asks for them
    return min(limits, default=None), min(of_queries, default=None)


def _of_kind(
    kinds: Kinds | None, x: Float32[Tensor, "r n w"], positions: Float32[Tensor, "r n d"]
) -> Float32[Tensor, "r n w"]:
    """What `Kinds` does to tokens."""
    if kinds is None:
        return x
    one_hot = (positions[..., -1:] == torch.arange(kinds.n_kinds, device=positions.device)).to(x.dtype)
    return x * (1 + kinds.stretch(one_hot)) + kinds.shift(one_hot)


def _mean(total: Float32[Tensor, "g w"], count: Int64[Tensor, "g"]) -> Float32[Tensor, "g w"]:
    return total / count.clamp(min=1).unsqueeze(-1)


def _transformed(
    transformer: Transformer, x: Float32[Tensor, "r l w"], positions: Float32[Tensor, "r l d"], rows: Rows, keys: Rows
) -> Float32[Tensor, "r l w"]:
    """The blocks in turn; tokens attend to `keys`, with which the rows begin."""
    shape, n_keys = x.shape, keys.sample.shape[1]
    x, positions = x.flatten(0, 1), positions.flatten(0, 1)
    rotation = None if transformer.rope is None else transformer.rope(positions)
    if transformer.sinusoid is not None:
        x = x + transformer.sinusoid(positions).to(x.dtype)
    is_seen = (rows.sample.unsqueeze(2) == keys.sample.unsqueeze(1)) & keys.valid.unsqueeze(1)
    unseen = torch.where(is_seen, 0.0, UNSEEN).unsqueeze(1)

    def by_head(part: Float32[Tensor, "t h e"]) -> Float32[Tensor, "r h l e"]:
        return _copied(part).reshape(shape[0], -1, *part.shape[1:]).transpose(1, 2)

    for block in transformer.blocks:
        assert isinstance(block, Block)
        q, k, v = block.qkv(block.attention_norm(x)).unflatten(-1, (3, block.heads, -1)).unbind(1)
        if rotation is not None:
            q, k = rotate(q, rotation), rotate(k, rotation)
        k, v = by_head(k)[:, :, :n_keys], by_head(v)[:, :, :n_keys]
        attended = F.scaled_dot_product_attention(by_head(q), k, v, attn_mask=unseen)
        x = x + block.out(_copied(attended.transpose(1, 2)).reshape(x.shape[0], -1))
        x = x + block.mlp(block.mlp_norm(x))
    return x.reshape(shape)


def _copied(x: Float32[Tensor, "*n"]) -> Float32[Tensor, "*n"]:
    """The numbers in one piece. Else a reshape would depend on whether a size is 1, which no trace may."""
    return x.clone(memory_format=torch.contiguous_format)

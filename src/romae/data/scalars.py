"""Series of any form as tokens of one number each, at a time and a channel: what a model that needs no training takes.

Shapes: t tokens, c columns of values.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from romae.data.schema import Schema
from romae.data.sources import Indices, Source
from romae.tokens.layout import Layout
from romae.tokens.tokens import PackedSamples, channel_index

CHANNEL, VALUE, ERROR = "channel", "value", "error"


class Scalars(Source):
    """Samples with a token for each number, whatever they had: columns of values, an axis of channels, a phase, facts.

    A time step of several values becomes as many tokens. Static facts, which have no time, and phases are left out.
    Behind its value a token has its measurement error, 0 where none is known, if the model reads errors.

    Parameters
    ----------
    source : Source
        Series with one time axis.
    with_errors : bool
        Whether tokens have errors.

    Raises
    ------
    ValueError
        If the samples have further position axes.
    """

    is_quick = True

    def __init__(self, source: Source, *, with_errors: bool) -> None:
        self.source, self.with_errors = source, with_errors
        given = Schema() if source.schema is None else source.schema
        first = source.packed(np.array([0]))
        n_axes = first.positions.shape[1] - (given.phase is not None)
        self.n_columns = first.values.shape[1] - given.n_errors
        self.has_axis = given.channel is not None
        if n_axes != 1 + self.has_axis or (self.has_axis and self.n_columns != 1):
            raise ValueError(
                f"the model that needs no training answers for series with one time axis, and these samples have "
                f"{n_axes} position axes and {self.n_columns} values; fit a model to them: "
                "romae.RoMAEInterpolator().fit(…)"
            )
        self.first_static = given.static_from
        names: Sequence[Any] = given.channels if self.has_axis else given.values
        if not self.has_axis and len(names) != self.n_columns:
            names = [VALUE] if self.n_columns == 1 else [f"{VALUE}_{i}" for i in range(self.n_columns)]
        if self.has_axis and not names:
            positions = source.packed(np.arange(len(source))).positions
            names = range(int(positions[:, -1].max()) + 1)
        self.schema: Schema = replace(
            given,
            positions=(),
            channel=given.channel if self.has_axis else _unused(CHANNEL, given),
            channels=tuple(names),
            values=given.values if self.has_axis else (_unused(VALUE, given),),
            errors=self._errors(given),
            static=(),
            phase=None,
        )
        self.lengths = source.lengths if self._is_same else np.asarray(self._lengths())

    @classmethod
    def of(cls, source: Source, *, with_errors: bool) -> "Source":
        """The samples in this form; those that have it stay as they are."""
        schema = source.schema
        has_form = schema is not None and schema.channel is not None and schema.channels and not schema.positions
        if has_form and schema is not None and not schema.static and schema.phase is None:
            first = source.packed(np.array([0]))
            if first.positions.shape[1] == 2 and first.values.shape[1] == 1 + with_errors:
                return source
        return cls(source, with_errors=with_errors)

    def _errors(self, given: Schema) -> tuple[str, ...]:
        if not self.with_errors:
            return ()
        return given.errors if self.has_axis and given.errors else (_unused(ERROR, given),)

    @property
    def n_channels(self) -> int:
        """How many channels there are."""
        return len(self.schema.channels)

    @property
    def _is_same(self) -> bool:
        return self.has_axis and self.first_static is None

    def _lengths(self) -> Int64[np.ndarray, "n"]:
        if not self.has_axis:
            return self.source.lengths * self.n_columns
        packed = self.source.packed(np.arange(len(self.source)))
        is_series = packed.positions[:, -1] < (self.first_static or 0) - 0.5
        return torch.bincount(packed.layout.sample_of_token[is_series], minlength=len(packed)).numpy()

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self.packed(np.array([range(len(self))[index]])).sample(0).with_schema(self.schema)

    def packed(self, indices: Indices) -> PackedSamples:
        packed = self.source.packed(indices)
        if packed.is_target_per_token:
            packed = replace(packed, target=None, is_target_per_token=False)
        time = packed.positions[:, 0]
        if self.has_axis:
            channel = packed.positions[:, -1]
            values, hidden = packed.values, packed.hidden
            layout = packed.layout
            if self.first_static is not None:
                is_series = channel < self.first_static - 0.5
                layout, index = packed.layout.selected(is_series)
                time, channel, values = time[index], channel[index], values[index]
                hidden = None if hidden is None else hidden[index]
            positions = torch.stack([time, channel], 1)
            channel_index(positions, self.n_channels)
        else:
            n, c = packed.values.shape[0], self.n_columns
            channel = torch.arange(c, dtype=packed.positions.dtype).repeat(n)
            positions = torch.stack([time.repeat_interleave(c), channel], 1)
            values = packed.values.unflatten(1, (-1, c)).transpose(1, 2).flatten(0, 1)
            hidden = None if packed.hidden is None else packed.hidden.repeat_interleave(c)
            layout = Layout.of(packed.layout.lengths * c)
        return replace(
            packed, values=self._with_errors(values), positions=positions, layout=layout, hidden=hidden, rows=None
        )

    def _with_errors(self, values: Tensor) -> Tensor:
        value, *error = values.split(1, dim=1)
        return torch.cat([value, *(error or [torch.zeros_like(value)])], 1) if self.with_errors else value


def _unused(name: str, schema: Schema) -> str:
    """A name for a column that no other column has."""
    taken = set(schema.columns)
    return next(x for x in (name, *(f"{name}_{i}" for i in range(len(taken) + 1))) if x not in taken)

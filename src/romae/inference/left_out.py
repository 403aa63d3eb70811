"""Samples with some of their tokens left out, as many times over as there are things to leave out.

What is left out of a sample is a group of its tokens, and each group makes one copy of the sample, which exists only
while a batch of it is answered for. Tables of what came of it have a row for each measurement.

Shapes: b samples, k copies, n tokens of one sample, t of all, c columns of values, d position dimensions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int64

from romae.data.export import position_columns
from romae.data.phase import without_axis
from romae.data.schema import Schema
from romae.data.sources import Source
from romae.model.tasks import Task
from romae.tokens.masking import is_static
from romae.tokens.tokens import PackedSamples

NO_GROUP = -1  # of tokens that are never left out

Groups = Int64[np.ndarray, "n"]


@dataclass(frozen=True, eq=False)
class Originals:
    """The samples that are asked about, in memory: their values and positions end to end, in the data's own units."""

    packed: PackedSamples
    is_fact: Bool[np.ndarray, "t"]
    is_hidden: Bool[np.ndarray, "t"]
    schema: Schema

    @classmethod
    def of(cls, task: Task, source: Source) -> "Originals":
        """All samples of a source, with the names of theirs or else of the task's training data."""
        packed = replace(source.packed(np.arange(len(source))), target=None)
        schema = source.schema or task.schema or unnamed(packed.values.shape[1], packed.positions.shape[1])
        first, n = task.config.static_from or schema.static_from, packed.layout.n_tokens
        is_fact = np.zeros(n, dtype=bool) if first is None else is_static(packed.positions, first).numpy()
        is_hidden = np.zeros(n, dtype=bool) if packed.hidden is None else packed.hidden.numpy()
        return cls(packed, is_fact, is_hidden, schema)

    @property
    def parts(self) -> list[slice]:
        """Where the tokens of each sample lie."""
        ends = self.packed.layout.host_offsets.tolist()
        return [slice(start, end) for start, end in zip(ends[:-1], ends[1:], strict=True)]

    @property
    def ids(self) -> list[Any]:
        """The id of each sample, or its place where it has none."""
        return [i if name is None else name for i, name in enumerate(self.packed.ids)]

    @property
    def channel(self) -> Int64[np.ndarray, "t"] | None:
        """The channel of each token, static facts behind the channels; None where no axis tells it."""
        if self.schema.channel is None:
            return None
        return self.packed.positions[:, -1].numpy().astype(np.int64)

    @property
    def value_names(self) -> list[str]:
        """What the columns of values and errors are called; of further ones than the schema names, their numbers."""
        names, n = [*self.schema.values, *self.schema.error_names], self.packed.values.shape[1]
        return names[:n] + [f"value_{i}" for i in range(len(names), n)]

    def columns(self, rows: Bool[np.ndarray, "t"], n_columns: int, *, by_column: bool = True) -> dict[str, Any]:
        """The columns that say which measurement a row of a table is for: id, position, channel and value.

        Tokens of several values have a row for each of the first `n_columns`, with the name of its column as the
        channel, or one in all with their values in columns of their own.
        """
        places = torch.from_numpy(np.flatnonzero(rows))
        counts = [int(rows[part].sum()) for part in self.parts]
        names, n = self.value_names[:n_columns], n_columns
        positions = self.packed.positions[places].double()
        if self.schema.phase is not None:
            positions = without_axis(positions)
        table = position_columns(positions, counts, self.ids, self.schema, facts=True)
        values = self.packed.values[places, :n].double().numpy()
        if not by_column and n > 1:
            return table | {name: values[:, i] for i, name in enumerate(names)}
        if n > 1:
            table = {name: np.repeat(np.asarray(column, dtype=_kept(column)), n) for name, column in table.items()}
            table["column" if self.schema.channel is not None else "channel"] = names * len(places)
        return table | {"value": values.reshape(-1)}


def _kept(column: Any) -> Any:
    """The type that keeps what a list holds."""
    return object if isinstance(column, list) else getattr(column, "dtype", None)


def unnamed(n_values: int, n_dims: int) -> Schema:
    """Names for samples that have none."""
    values = ("value",) if n_values == 1 else tuple(f"value_{i}" for i in range(n_values))
    return Schema(positions=tuple(f"position_{i}" for i in range(1, n_dims)), values=values)


class LeftOut(Source):
    """Copies of samples, of which each hides one of the groups that the tokens of its sample are dealt into.

    `groups` has for each sample the group of each token, from 0 on, or `NO_GROUP`. Copies that would show nothing are
    not there. Static facts, which no sample may hide, are taken out instead. `sample` and `group` tell the copies.
    """

    is_quick = True

    def __init__(self, source: Source, originals: Originals, groups: Sequence[Groups]) -> None:
        self.source, self.originals, self.groups, self.schema = source, originals, groups, source.schema
        copies = [
            (i, group)
            for i, (part, here) in enumerate(zip(originals.parts, groups, strict=True))
            for group in np.unique(here[here != NO_GROUP]).tolist()
            if bool((~originals.is_hidden[part] & (here != group)).any())
        ]
        self.sample = np.array([i for i, _ in copies], dtype=np.int64)
        self.group = np.array([group for _, group in copies], dtype=np.int64)
        self.lengths = source.lengths[self.sample]

    def __len__(self) -> int:
        return len(self.sample)

    def __getitem__(self, index: Any) -> Any:
        return self.packed(np.array([range(len(self))[index]])).sample(0).with_schema(self.schema)

    def packed(self, indices: Int64[np.ndarray, "b"]) -> PackedSamples:
        samples, copy_of = np.unique(self.sample[indices], return_inverse=True)
        packed = replace(self.source.packed(samples), target=None).take(copy_of)  # each is read once
        is_left_out = torch.from_numpy(
            np.concatenate([self.groups[self.sample[i]] == self.group[i] for i in indices.tolist()])
        )
        parts = self.originals.parts
        is_fact = torch.from_numpy(
            np.concatenate([self.originals.is_fact[parts[self.sample[i]]] for i in indices.tolist()])
        )
        hidden = is_left_out & ~is_fact
        if packed.hidden is not None:
            hidden = hidden | packed.hidden
        whole = replace(packed, hidden=hidden)
        return whole if not bool((is_left_out & is_fact).any()) else _without(whole, is_left_out & is_fact)


def _without(packed: PackedSamples, gone: torch.Tensor) -> PackedSamples:
    """The samples without some tokens."""
    taken_out = replace(packed, hidden=gone).visible()
    assert packed.hidden is not None
    return replace(taken_out, hidden=packed.hidden[~gone])

"""A table as it comes, without a model that says which columns there are: read, and its empty cells found.

A long table names in a column what each row measures, a wide one has a column for each channel. Without a column of ids
a table is one series. Shapes: r rows, k columns of values, t cells.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float64, Int64

from romae.data.columns import as_numbers
from romae.data.containers import as_table
from romae.data.frames import column_names, missing_column, read_frame, row_number
from romae.data.queries import read_queries
from romae.data.schema import SampleSet, Schema
from romae.data.unnamed import date_columns, note_on_unnamed
from romae.training.tables import Columns, read_table

if TYPE_CHECKING:
    import pandas as pd

ONE_SERIES = "series"  # the id of a table without ids


@dataclass(frozen=True, eq=False)
class OwnTable:
    """A table with the names of its columns.

    Parameters
    ----------
    frame : pandas.DataFrame
        All of its columns and rows, in their order, and a column of ids where it has none.
    schema : Schema
        Which columns hold what.
    has_ids : bool
        Whether the column of ids is the table's own.
    values : tuple of str
        The columns of values: one for each channel of a wide table.
    numbers : array [r, k]
        What these columns hold; NaN in empty cells.
    is_placed : array [r]
        Whether a row says of which series it is, when, and of which channel.
    model_schema : Schema, optional
        That of a model, whose names the table has.
    static : tuple of str, optional
        The columns of static facts.
    """

    frame: "pd.DataFrame"
    schema: Schema
    has_ids: bool
    values: tuple[str, ...]
    numbers: Float64[np.ndarray, "r k"]
    is_placed: Bool[np.ndarray, "r"]
    model_schema: Schema | None = None
    static: tuple[str, ...] | None = None

    @classmethod
    def read(cls, data: Any, columns: Columns, model_schema: Schema | None = None) -> "OwnTable":
        """Read a table.

        Parameters
        ----------
        data : table, str or Path
            What `from_table` reads.
        columns : Columns
            The columns that were named. Without a model the others are `id`, if there is one, `time`, and `value` or
            else every column of numbers.
        model_schema : Schema, optional
            That of a model, whose names hold for what was not named.

        Returns
        -------
        OwnTable
            The table.

        Raises
        ------
        ValueError
            If a column is not there, or holds no numbers.
        """
        data = as_table(data)
        existing = column_names(data)
        base = (model_schema or Schema()).without_label
        schema = columns.schema(base)
        has_ids = columns.id is not None or model_schema is not None or schema.id in existing
        if schema.time not in existing:
            dated = date_columns(data)
            hint = f"; do you mean --time {dated[0]}, which holds dates?" if len(dated) == 1 else ""
            raise ValueError(
                f"column {schema.time!r} of times is not there; say which it is with --time: the table has "
                f"{existing}{hint}"
            )
        if schema.channel not in existing and columns.channel is None:
            schema = replace(schema, channel=None)
        named: dict[str, Any] = {schema.id: None} if has_ids else {}  # these hold names, also where they are digits
        if schema.channel is not None:
            named[schema.channel] = base.channels or None
        frame = read_frame(data, [*dict.fromkeys([*named, *existing])], named)
        frame = frame[[name for name in existing if name in frame]]
        if not has_ids:
            schema = replace(schema, id=_free_name("id", existing))
            frame.insert(0, schema.id, ONE_SERIES)
        if model_schema is None:
            taken = [schema.id, schema.time, schema.channel, *schema.positions, *schema.errors, *(columns.static or ())]
            others = [name for name in frame if name not in taken]
            values = columns.values or _columns_of_values(frame, others, is_long=schema.channel is not None)
            schema = replace(schema, values=tuple(values), channels=())
        else:
            is_wide = model_schema.channel is not None and schema.channel is None
            values = tuple(map(str, model_schema.channels)) if is_wide else schema.values
            schema = replace(schema, channel=model_schema.channel)
        if lacking := [name for name in values if name not in frame]:
            raise ValueError(missing_column(lacking[0], existing))
        read_also = [*(columns.static or ()), *values]
        if note := note_on_unnamed(frame, schema, has_ids=has_ids, also_read=read_also):
            warnings.warn(note, stacklevel=2)
        numbers = [as_numbers(frame[name], f"column {name!r}", row_number) for name in values]
        places = [schema.id, schema.time, *schema.positions]
        places += [schema.channel] if schema.channel is not None and schema.channel in existing else []
        is_placed = frame[places].notna().all(axis=1).to_numpy()
        return cls(frame, schema, has_ids, tuple(values), np.stack(numbers, 1), is_placed, model_schema, columns.static)

    @property
    def is_long(self) -> bool:
        """Whether a column names what each row measures."""
        return self.schema.channel is not None and self.schema.channel in self.frame

    @property
    def has_numbers_as_tokens(self) -> bool:
        """Whether each number is read for itself, so that a row may have some of its values."""
        if self.is_long or len(self.values) == 1:
            return True
        return self.model_schema is None or self.model_schema.channel is not None

    def samples(self) -> SampleSet:
        """What was measured, as samples; series of which nothing was measured are none.

        Returns
        -------
        SampleSet
            One sample for each id.

        Raises
        ------
        ValueError
            If nothing was measured at all.
        """
        is_there = ~np.isnan(self.numbers)
        has_values = is_there.any(1) if self.has_numbers_as_tokens else is_there.all(1)
        rows = np.flatnonzero(self.is_placed & has_values)
        if not len(rows):
            raise ValueError(
                f"no row has a time and a value in {', '.join(self.values)}, so that there is nothing to go by; name "
                "the columns of values with --value"
            )
        is_wide = not self.is_long and len(self.values) > 1
        tokens: Any = "scalars" if self.model_schema is None and is_wide else None
        return read_table(
            self.frame.iloc[rows].reset_index(drop=True),
            self.schema,
            self.model_schema,
            tokens=tokens,
            for_training=self.model_schema is None,
            row_numbers=rows,
            static=self.static,
        )

    def empty_cells(self, samples: SampleSet) -> "EmptyCells":
        """The cells that samples can be asked for: of a series that is known, at a time, of a channel that is known.

        Parameters
        ----------
        samples : SampleSet
            Those of this table.

        Returns
        -------
        EmptyCells
            Where they are, and what to ask.
        """
        is_empty, schema = np.isnan(self.numbers), samples.schema
        is_known = self.frame[schema.id].isin([sample.id for sample in samples]).to_numpy()
        if self.is_long:
            is_known = is_known & self.frame[str(schema.channel)].isin(list(schema.channels)).to_numpy()
        rows, columns = np.nonzero(is_empty & (self.is_placed & is_known)[:, None])
        asked = self.frame.iloc[rows].reset_index(drop=True)
        if schema.channel is not None and not self.is_long:
            asked[schema.channel] = np.array(self.values, dtype=object)[columns]
        if not len(rows):
            width = schema.position_dims
            return EmptyCells(rows, columns, [np.zeros((0, width))] * len(samples), rows, int(is_empty.sum()))
        positions, order = read_queries(asked, samples)
        return EmptyCells(rows, columns, positions, order, int(is_empty.sum()))


@dataclass(frozen=True, eq=False)
class EmptyCells:
    """Empty cells and the positions to ask for each.

    Parameters
    ----------
    rows, columns : array [t]
        Where each cell is: its row in the table, its column among those of values.
    positions : list of arrays [q, d]
        What is asked of each sample.
    order : array [t]
        Where the answer for each cell lies once those of all samples are laid end to end.
    n_empty : int
        How many empty cells the table has, those that nobody can ask for among them.
    """

    rows: Int64[np.ndarray, "t"]
    columns: Int64[np.ndarray, "t"]
    positions: list[Float64[np.ndarray, "_ d"]]
    order: Int64[np.ndarray, "t"]
    n_empty: int

    @property
    def columns_by_sample(self) -> list[Int64[np.ndarray, "_"]]:
        """The column of each question, as positions are."""
        asked = np.empty_like(self.columns)
        asked[self.order] = self.columns
        return np.split(asked, np.cumsum([len(x) for x in self.positions])[:-1])


def is_csv(path: Any) -> bool:
    """Whether this is the path of a CSV file."""
    return isinstance(path, str | Path) and str(path).endswith((".csv", ".csv.gz"))


def _columns_of_values(frame: "pd.DataFrame", others: Sequence[str], *, is_long: bool) -> tuple[str, ...]:
    """The column `value`, or else every column of numbers that is nothing else."""
    from pandas.api import types

    if "value" in others:
        return ("value",)
    numbers = tuple(
        name
        for name in others
        if types.is_numeric_dtype(frame[name].dtype)
        and not types.is_bool_dtype(frame[name].dtype)
        and frame[name].notna().any()
    )
    if not numbers or (is_long and len(numbers) > 1):
        found = f"{', '.join(numbers)} hold numbers" if numbers else f"none of {', '.join(others)} holds numbers"
        raise ValueError(f"say which column holds the values, with --value; {found if others else 'there is no other'}")
    return numbers


def _free_name(name: str, existing: Sequence[str]) -> str:
    while name in existing:
        name += "_"
    return name

"""Answers as people asked: by id where they handed over a table, in arrays where they handed over series.

Shapes: b samples, k columns, q times, c channels, v values of a measurement.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float64, Shaped

from romae.data.columns import require_distinct
from romae.data.containers import is_table
from romae.data.dates import dates_from_numbers, durations_from_numbers
from romae.data.export import to_table
from romae.data.schema import Schema
from romae.data.sources import schema_of
from romae.tokens.sample import Sample


def by_id(
    X: Any, samples: Sequence[Sample], answers: Shaped[np.ndarray, "b *k"], *, columns: Any = None, name: Any = None
) -> Any:
    """One answer per sample: for a table a pandas column or table indexed by its ids, else the array itself."""
    if not is_table(X):
        return answers
    import pandas as pd

    schema = schema_of(samples) or Schema()
    index = pd.Index([sample.id for sample in samples], name=schema.id)
    if answers.ndim == 1:
        return pd.Series(answers, index=index, name=name)
    return pd.DataFrame(answers, index=index, columns=None if columns is None else pd.Index(columns))


def curves_by_id(
    samples: Sequence[Sample],
    schema: Schema,
    numbers: Sequence[Float64[np.ndarray, "_"]],
    values: Sequence[Float64[np.ndarray, "_ *c"]],
    channels: Sequence[int],
) -> Any:
    """Values at times as a pandas table indexed by id and time, with a column for each of the channels.

    Where channels have several values each, the columns have two levels. `numbers` are the times of each sample.
    """
    import pandas as pd

    times: Any = np.concatenate(numbers)
    if schema.time_unit is not None:
        times = (
            durations_from_numbers(times, schema.time_unit)
            if schema.durations
            else dates_from_numbers(times, schema.time_unit, schema.time_zone)
        )
    ids = np.repeat(np.arange(len(samples)), [len(x) for x in numbers])
    names = pd.Index([sample.id for sample in samples])
    index = pd.MultiIndex.from_arrays([names[ids], times], names=[schema.id, schema.time])
    rows = np.concatenate(values)
    columns: Any = [schema.channels[i] for i in channels]
    if rows.ndim == 3:
        columns = pd.MultiIndex.from_product([columns, schema.values], names=[schema.channel, None])
    return pd.DataFrame(rows.reshape(len(rows), -1), index=index, columns=columns)


def points_by_id(
    samples: Sequence[Sample],
    schema: Schema,
    positions: Sequence[Any],
    values: Sequence[Any],
    columns: Sequence[str] | None = None,
) -> Any:
    """Values at positions as a pandas table indexed by id and all coordinates; `columns` are those that are given."""
    table = to_table(samples, values, schema, positions=positions, columns=columns)
    return table.set_index([name for name in table.columns if name not in schema.values])


def beside(parts: Mapping[str, Any]) -> Any:
    """Tables of the same columns as one: those of a column beside each other, each with the ending of its part."""
    import pandas as pd

    first = next(iter(parts.values()))
    ended = [part.set_axis([_ended(name, ending) for name in part.columns], axis=1) for ending, part in parts.items()]
    order = [_ended(name, ending) for name in first.columns for ending in parts]
    require_distinct([*map(str, order)], "the columns of a table", "rename the channels or values")
    table = pd.concat(ended, axis=1)[order]
    if first.columns.nlevels > 1:
        table.columns = pd.MultiIndex.from_tuples(order, names=first.columns.names)
    return table


def _ended(name: Any, ending: str) -> Any:
    if isinstance(name, tuple):
        return (*name[:-1], f"{name[-1]}{ending}")
    return f"{name}{ending}" if ending else name

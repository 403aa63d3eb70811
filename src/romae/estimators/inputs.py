"""Inputs: any form of series becomes samples.

Series come as a list of (times, values) pairs or of arrays, as one array with NaN for what is missing, as a DataArray
of xarray, as a dictionary of PyPOTS, as samples of any on-ramp, or as a long table of any library. Shapes: b samples,
n time steps, c channels.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Int64, Shaped

from romae.data.columns import Name, frame_columns, to_numpy
from romae.data.containers import (
    as_table,
    id_and_time,
    is_data_array,
    is_table,
    labelled_array,
    of_dictionary,
)
from romae.data.schema import SampleSet, Schema, require_same_names
from romae.data.series import from_arrays
from romae.data.skipping import Skipped, refused_parts
from romae.data.sources import Source, schema_of
from romae.data.static import with_static
from romae.data.tables import columns_of_index, labelled, static_facts
from romae.tokens.sample import Sample
from romae.training.tables import read_table, read_table_in_part

Tokens = Literal["steps", "scalars"]
COLUMNS = ("id", "time", "values", "error", "channel", "positions", "label", "separator", "time_unit")


def read_input(
    X: Any,
    *,
    columns: Mapping[str, Any] | None = None,
    tokens: Tokens | None = None,
    expected_schema: Schema | None = None,
    with_labels: bool = True,
    for_training: bool = True,
    static: Any = None,
) -> Sequence[Sample]:
    """Samples from any form of input, with the names of the data where there are any.

    `columns` says what the columns of a table hold, in the words of `from_table`; its label is read `with_labels`
    alone. `expected_schema` is that of the data that a model was trained on, or is to be trained on together with
    these: they must fit it, and channels are numbered as in it. Without `tokens`, each time step is a token unless some
    lack a part of their channels. What single precision loses is refused `for_training` alone. `static` facts are as in
    `from_table`; with them, each number is a token.
    """
    if tokens not in (None, "steps", "scalars"):
        raise ValueError(f"tokens must be 'steps', 'scalars' or None, not {tokens!r}")
    X = opened(X, columns)
    if is_table(X):
        samples: Sequence[Sample] = _from_table(X, columns, tokens, expected_schema, with_labels, for_training, static)
    else:
        tokens = "scalars" if tokens is None and static is not None else tokens
        samples = _from_series(X, tokens, expected_schema, with_labels, for_training)
        samples = _with_facts(samples, static, expected_schema)
    return samples if expected_schema is None else _under(samples, expected_schema)


def _under(samples: Sequence[Sample], expected_schema: Schema) -> Sequence[Sample]:
    """The samples with all channels that are expected, if their names fit."""
    schema = schema_of(samples)
    if schema is None:
        return samples
    require_same_names(schema, expected_schema, subject="samples", others="those they must fit have")
    return SampleSet(list(samples), replace(schema, channels=expected_schema.channels))


class Kept(NamedTuple):
    """Samples that could be read, what was left out of how many, and the places of those kept; None for a table."""

    samples: Sequence[Sample]
    skipped: list[Skipped]
    n: int
    places: list[int] | None


def read_kept(
    X: Any,
    *,
    columns: Mapping[str, Any] | None,
    tokens: Tokens | None,
    expected_schema: Schema | None,
    check: Callable[[Sequence[Sample]], None],
    static: Any = None,
) -> Kept:
    """Samples to predict for, without those that cannot be read or that a check refuses."""
    X = opened(X, columns)
    if is_table(X) and expected_schema is not None:
        schema = _table_schema(X, columns, expected_schema, with_labels=False)
        samples, skipped, n = read_table_in_part(X, schema, expected_schema, static)
        check(samples)
        return Kept(_under(samples, expected_schema), skipped, n, None)
    X = of_dictionary(X)[0] if isinstance(X, Mapping) else X
    if not hasattr(X, "__len__") or isinstance(X, Sample):
        _listed(X)  # says what is wrong with it

    def read(part: Int64[np.ndarray, "part"]) -> Sequence[Sample]:
        series = X[part] if hasattr(X, "ndim") else [X[i] for i in part.tolist()]
        read_samples = read_input(
            series,
            columns=columns,
            tokens=tokens,
            expected_schema=expected_schema,
            with_labels=False,
            for_training=False,
            static=None if static is None else _rows_of(static, part),
        )
        check(read_samples)
        return read_samples

    refused = refused_parts(len(X), read)
    places = [i for i in range(len(X)) if i not in refused]
    skipped = [Skipped(i, reason) for i, reason in sorted(refused.items())]
    return Kept(read(np.array(places, dtype=np.int64)), skipped, len(X), places)


def _rows_of(static: Any, part: Int64[np.ndarray, "part"]) -> Any:
    """The static facts of some series, of which each has a row."""
    import pandas as pd

    return pd.DataFrame(static).iloc[part].reset_index(drop=True)


def opened(X: Any, columns: Mapping[str, Any] | None) -> Any:
    """A table of any library as one that can be read again and again; what is no table stays as it is.

    With `columns`, a DataArray of xarray is a table too; without, it is an array.
    """
    return as_table(X) if is_table(X) or (columns is not None and is_data_array(X)) else X


def _from_series(
    X: Any, tokens: Tokens | None, expected_schema: Schema | None, with_labels: bool, for_training: bool
) -> Sequence[Sample]:
    if isinstance(X, SampleSet | Source):
        return X
    labels, ids, own_names = None, None, None
    if isinstance(X, Mapping):
        X, labels = of_dictionary(X)
    if is_data_array(X):
        X, own_times, ids, own_names = labelled_array(X)
        X = X if own_times is None else [(own_times, series) for series in X]
    X = _listed(X)
    if isinstance(X[0], Sample):
        strangers = [i for i, sample in enumerate(X) if not isinstance(sample, Sample)]
        if strangers:
            raise TypeError(f"X holds samples, but number {strangers[0]} is {type(X[strangers[0]]).__name__}")
        return list(X)
    times, arrays, errors, names = _series(X, expected_schema)
    names = own_names or names
    if expected_schema is not None:
        tokens = "steps" if expected_schema.channel is None else "scalars"
    elif tokens is None:
        tokens = "scalars" if any(_has_gaps(x) for x in arrays) else "steps"
    return from_arrays(
        arrays,
        times,
        labels if with_labels else None,
        tokens=tokens,
        ids=ids,
        channels=expected_schema.channels
        if names is None and expected_schema is not None and tokens == "scalars"
        else names,
        time_unit=(None if expected_schema is None else expected_schema.time_unit) or "second",
        time_zone=None if expected_schema is None else expected_schema.time_zone,
        for_training=for_training,
        errors=errors,
    )


def _from_table(
    table: Any,
    columns: Mapping[str, Any] | None,
    tokens: Tokens | None,
    expected_schema: Schema | None,
    with_labels: bool,
    for_training: bool,
    static: Any,
) -> SampleSet:
    schema = _table_schema(table, columns, expected_schema, with_labels=with_labels)
    return read_table(table, schema, expected_schema, tokens=tokens, for_training=for_training, static=static)


def _with_facts(samples: Sequence[Sample], static: Any, expected_schema: Schema | None) -> Sequence[Sample]:
    """Series with their static facts; those that the training data had must be there."""
    schema = schema_of(samples)
    expected = () if expected_schema is None else expected_schema.static
    if static is None:
        if expected and (schema is None or not schema.static):
            names = ", ".join(dict.fromkeys(fact.column for fact in expected))
            raise ValueError(f"the training data had the static facts {names}; hand those of X over with static=")
        return samples
    if schema is None or schema.static:
        raise ValueError(
            "these samples have static facts already, or no names; add facts where they are read: "
            "from_table(…, static=…) or from_arrays(…, static=…)"
        )
    named = SampleSet(list(samples), schema)
    return with_static(named, static_facts(static, named), expected)


def _table_schema(
    table: Any, columns: Mapping[str, Any] | None, expected_schema: Schema | None, *, with_labels: bool
) -> Schema:
    """What the columns of a table hold, as it was said, as in training, or as two levels of an index say."""
    if columns is None and expected_schema is None and id_and_time(table) is not None:
        id, time, values = columns_of_index(table, (), None, None, None)
        columns = {"id": id, "time": time, "values": values}
    schema = expected_schema if columns is None else _schema(columns)
    if schema is not None and expected_schema is not None and schema.time_unit is None:
        schema = replace(schema, time_unit=expected_schema.time_unit)
    if schema is None:
        raise ValueError(
            "X is a table; say what its columns hold, for example columns={'id': 'star', 'time': 'day', 'values': "
            "'flux'}, or hand over an array [samples, time steps]"
        )
    return schema if with_labels else schema.without_label


def _schema(columns: Mapping[str, Any]) -> Schema:
    """The names of a table's columns, strict."""
    if not isinstance(columns, Mapping):
        raise TypeError(f"columns must be a dictionary such as {{'id': 'star', 'time': 'day'}}, not {columns!r}")
    if unknown := sorted(set(columns) - set(COLUMNS)):
        raise ValueError(f"columns has the unknown key {unknown[0]!r}; there are {list(COLUMNS)}")
    if missing := [name for name in ("id", "time", "values") if name not in columns]:
        raise ValueError(f"columns must also say which column is {missing[0]!r}")
    several = {name: column_names(columns, name) for name in ("values", "positions") if name in columns}
    errors = () if columns.get("error") is None else column_names(columns, "error")
    for name in ("id", "time", "channel"):
        if name in ("id", "time") or columns.get(name) is not None:
            _require_text(columns[name], columns, name)
    targets = () if columns.get("label") is None else column_names(columns, "label")
    label = columns.get("label") if isinstance(columns.get("label"), str) else targets or None
    rest = {name: column for name, column in columns.items() if name not in ("error", "label", "separator")}
    return labelled(Schema(**{**rest, **several, "errors": errors}), label, columns.get("separator"))


def column_names(columns: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """The one or several columns that hold this."""
    names = columns[name]
    has_order = isinstance(names, Iterable) and not isinstance(names, str | Mapping | set | frozenset)
    names = tuple(names) if has_order else (names,)
    for column in names:
        _require_text(column, columns, name)
    return names


def _require_text(column: Any, columns: Mapping[str, Any], name: str) -> None:
    if not isinstance(column, str):
        raise TypeError(
            f"columns says that {name!r} is {columns[name]!r}, and the name of a column is text; where the columns of "
            "the table are numbered, rename them with table.rename(columns=str)"
        )


def _listed(X: Any) -> Any:
    """A list or an array with one entry per sample, or a sentence that says what is wrong with it."""
    if isinstance(X, Sample):
        raise TypeError("X is a single sample; hand over a list: [sample]")
    if hasattr(X, "tocsr"):
        raise TypeError("X is sparse, and zeros are measurements here; hand over a dense array: X.toarray()")
    X = to_numpy(X) if hasattr(X, "__array__") else X
    if not hasattr(X, "__len__") or isinstance(X, Mapping):
        raise TypeError(f"X must be a list of series, an array, samples or a table, not {type(X).__name__}")
    if len(X) == 0:
        raise ValueError("X holds no samples")
    if isinstance(X, np.ndarray) and X.size == 0:
        raise ValueError(
            f"the series in X are empty: 0 feature(s) (shape={X.shape}) while a minimum of 1 is required, one time step"
        )
    if not isinstance(X[0], Sample | tuple | list) and np.ndim(X[0]) == 0:
        raise ValueError("X is a flat list of numbers. Reshape your data: X[None, :] if it is one series")
    if _is_single_pair(X):
        raise TypeError(
            "X is a single pair (times, values); hand over [(times, values)], or list(zip(times, values)) where both "
            "hold many series"
        )
    return X


def _is_single_pair(X: Any) -> bool:
    """Whether it is one tuple (times, values), and no tuple of two samples or of two such pairs."""
    if not isinstance(X, tuple) or len(X) != 2 or isinstance(X[0], Sample):
        return False
    return not (isinstance(X[0], tuple) and len(X[0]) == 2 and _shape(X[0][0]) != ())


def _series(
    X: Any, expected_schema: Schema | None
) -> tuple[
    list[Any] | None, list[Shaped[np.ndarray, "_ _"]], list[Shaped[np.ndarray, "_ _"]] | None, list[Name] | None
]:
    """The times of each sample, where they are given, its values [n, c], their errors and what columns are called."""
    if _are_triples(X, expected_schema):
        times, values, errors = ([series[i] for series in X] for i in range(3))
        columns = [[_columns(series, i) for i, series in enumerate(part)] for part in (values, errors)]
        return times, columns[0], columns[1], frame_columns(values, has_times=True)
    is_pair = [isinstance(series, tuple) and len(series) == 2 for series in X]
    if not any(is_pair):
        if expected_schema is None:  # else those of the training have decided
            _require_arrays(X)
        return None, [_columns(series, i) for i, series in enumerate(X)], None, frame_columns(X, has_times=False)
    if not all(is_pair):
        raise TypeError(f"X holds (times, values) pairs, but sample {is_pair.index(False)} is none")
    names = frame_columns([values for _, values in X], has_times=True)
    return [times for times, _ in X], [_columns(values, i) for i, (_, values) in enumerate(X)], None, names


def _are_triples(X: Any, expected_schema: Schema | None) -> bool:
    """Whether each sample is a tuple of times, values and errors.

    Tuples of three short sequences may be three time steps; they are taken for these where no series is longer, unless
    the training data had errors.
    """
    if not all(isinstance(series, tuple) and len(series) == 3 for series in X):
        return False
    shapes = [[_shape(part) for part in series] for series in X]
    if not all(len(times) == 1 and values[:1] == times and errors == values for times, values, errors in shapes):
        return False
    return max(times[0] for times, _, _ in shapes) > 3 if expected_schema is None else bool(expected_schema.errors)


def _require_arrays(X: Any) -> None:
    """Refuse what may be pairs of times and values although it is no list of such tuples."""
    for i, series in enumerate(X):
        if isinstance(series, tuple) and len(series) > 2 and max(_shape(series[0]), default=0) > len(series):
            raise TypeError(
                f"sample {i} is a tuple of {len(series)}; hand over a pair (times, values), with values [n, c] for "
                "several channels, a triple (times, values, errors), or an array [n, c] without times"
            )
    # Two steps of one or two channels are too short for a series of pairs.
    if all(map(_may_be_pair, X)) and {_shape(values) for _, values in X} not in ({(1,)}, {(2,)}):
        raise TypeError(
            "each sample in X is a list of two sequences, which may be times and values or two time steps; hand over "
            "tuples (times, values), or arrays [n, c] if they are time steps"
        )


def _may_be_pair(series: Any) -> bool:
    if not isinstance(series, list) or len(series) != 2:
        return False
    times, values = map(_shape, series)
    return len(times) == 1 and len(values) in (1, 2) and times[0] == values[0]


def _shape(x: Any) -> tuple[int, ...]:
    """The shape of an array or of nested lists; lists of unequal length have one that fits nothing."""
    try:
        return tuple(np.shape(x))
    except ValueError:
        return (-1, -1, -1)


def _columns(values: Any, number: int) -> Shaped[np.ndarray, "n c"]:
    try:
        x = to_numpy(values)
        x = x.astype(np.float64) if x.dtype == object else x
    except (TypeError, ValueError) as error:
        raise type(error)(f"sample {number} cannot be read as numbers: {error}") from None
    if np.iscomplexobj(x):
        raise ValueError("Complex data not supported; use the real and the imaginary part as two channels")
    if x.ndim not in (1, 2):
        raise ValueError(f"sample {number} must be [n] or [n, c], got shape {list(x.shape)}")
    return x[:, None] if x.ndim == 1 else x


def _has_gaps(x: Shaped[np.ndarray, "n c"]) -> bool:
    """Whether a time step has some of its channels and lacks others."""
    missing = np.isnan(x) if x.dtype.kind == "f" else np.zeros(x.shape, dtype=bool)
    return bool((missing.any(1) & ~missing.all(1)).any())

"""Export: predictions as tables, under the names and in the units of the data they are made for.

Shapes: b samples, n tokens of one, t tokens of all, c columns of values.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from romae.data.columns import require_distinct, to_numpy
from romae.data.dates import dates_from_numbers, durations_from_numbers, positions_as_numbers
from romae.data.phase import without_axis
from romae.data.schema import Schema
from romae.data.sources import SampleSource, as_source, ids_of, schema_of
from romae.data.static import without_static
from romae.data.uncertainty import Spread, Uncertain
from romae.tokens.sample import Sample
from romae.tokens.tokens import channel_index

if TYPE_CHECKING:
    import pandas as pd


def to_table(
    samples: SampleSource,
    predictions: Any = None,
    schema: Schema | None = None,
    *,
    positions: Any = None,
    columns: Sequence[str] | None = None,
    interval: float | None = None,
    quantiles: Sequence[float] | None = None,
) -> "pd.DataFrame":
    """A long table of predictions or samples: one row per token.

    Parameters
    ----------
    samples : sequence of Sample
        The samples, in the data's own units.
    predictions : list of arrays [n, c] or of Distribution, or array [t, c], optional
        Values at every token, one array per sample or all of them end to end, in the data's own units. Where samples
        hide tokens, predictions of the hidden ones alone are taken as well. Without predictions the table holds the
        samples themselves, as `from_table` reads them, less the label. Distributions are told by their means and
        standard deviations (`flux`, `flux_std`), and by what follows.
    schema : Schema, optional
        The names of the columns; that of a `SampleSet` by default.
    positions : list of arrays [q, d] or [q], optional
        Where the predictions belong, if not at the samples' own tokens: what `interpolate` was asked.
    columns : sequence of str, optional
        Names for what is predicted, if not those of the values.
    interval : float, optional
        Of distributions the probability of a central interval, whose ends are `flux_lower` and `flux_upper`.
    quantiles : sequence of float, optional
        Of distributions the levels of quantiles, such as 0.1 for `flux_q0.1`.

    Returns
    -------
    pandas.DataFrame
        Id, time (as a date or a duration if it was one), further positions, channel by name, and the values.

    Raises
    ------
    ValueError
        If there is no sample, no schema, shapes and names do not fit, levels lie outside 0 and 1, or an interval is
        asked of numbers that are no distributions.
    TypeError
        If positions are no numbers or dates.

    Examples
    --------
    >>> import numpy as np
    >>> import romae
    >>> samples = romae.from_arrays([np.array([[1.0], [2.0]])], times=[[0.0, 2.5]], ids=["a"], channels=["flux"])
    >>> print(romae.to_table(samples).to_string(index=False))
    id  time  flux
     a   0.0   1.0
     a   2.5   2.0
    """
    members: Sequence[Sample] = samples if isinstance(samples, Sequence) else as_source(samples)
    schema = _schema_of(members, schema)
    if predictions is None:
        members = without_static(members)
    names: Sequence[str] = schema.values if predictions is not None else (*schema.values, *schema.error_names)
    names = names if columns is None else tuple(columns)
    if predictions is None:
        predictions = [sample.values for sample in members]
    predictions, names = _told(predictions, names, Spread(interval=interval, quantiles=quantiles))
    all_positions = _positions_of(members, positions, predictions, schema)
    counts = [len(x) for x in all_positions]
    rows = _stacked(predictions, counts, lambda i: _name(i, members[i]))
    if rows.shape[1] != len(names):
        raise ValueError(f"predictions have {rows.shape[1]} columns, but {list(names)} are to be named; use columns=")
    table = position_columns(torch.cat(all_positions), counts, ids_of(members), schema)
    require_distinct([*table, *names], "the columns of a table", "name the predictions otherwise, with columns=")
    return _frame(table | {name: rows[:, i] for i, name in enumerate(names)})


def to_sample_table(
    samples: SampleSource,
    predictions: Any,
    schema: Schema | None = None,
    *,
    columns: Sequence[str] | None = None,
    interval: float | None = None,
    quantiles: Sequence[float] | None = None,
) -> "pd.DataFrame":
    """A table of predictions with one row per sample: classes or labels with their probabilities, or numbers.

    Parameters
    ----------
    samples : sequence of Sample
        The samples.
    predictions : array [b] or [b, k], or Distribution
        Probabilities of the classes or labels, where the schema has such (`predict_proba`), or numbers (`predict`),
        which may be a distribution.
    schema : Schema, optional
        The names of columns and classes; that of a `SampleSet` by default.
    columns : sequence of str, optional
        Names for predicted numbers, if not that of the label.
    interval : float, optional
        Of a distribution the probability of a central interval, whose ends are `label_lower` and `label_upper`.
    quantiles : sequence of float, optional
        Of a distribution the levels of quantiles, such as 0.1 for `label_q0.1`.

    Returns
    -------
    pandas.DataFrame
        The id; then the most probable class in the column of the label, and `probability_<class>` for each; or what the
        training table had of several labels, each with a probability of at least one half, and
        `probability_<label>`; or the numbers.

    Raises
    ------
    ValueError
        If shapes or names do not fit, probabilities do not sum to 1 (logits need a softmax first), levels lie outside 0
        and 1, or an interval is asked of what is no distribution.

    Examples
    --------
    >>> import numpy as np
    >>> import romae
    >>> samples = romae.from_arrays(np.zeros((2, 3, 1)), y=["up", "down"], ids=["a", "b"])
    >>> print(romae.to_sample_table(samples, [[0.2, 0.8], [0.5, 0.5]]).to_string(index=False))
    id label  probability_down  probability_up
     a    up               0.2             0.8
     b  down               0.5             0.5
    """
    members: Sequence[Sample] = samples if isinstance(samples, Sequence) else as_source(samples)
    schema = _schema_of(members, schema)
    spread = Spread(interval=interval, quantiles=quantiles)
    if spread.is_asked and not isinstance(predictions, Uncertain):
        raise ValueError(_NO_DISTRIBUTION)
    rows = to_numpy(predictions.mean() if isinstance(predictions, Uncertain) else predictions).astype(np.float64)
    rows = rows[:, None] if rows.ndim == 1 else rows
    if rows.ndim != 2 or len(rows) != len(members):
        raise ValueError(f"expected one row of predictions for each of {len(samples)} samples, got {list(rows.shape)}")
    label = schema.label or "label"
    table: dict[str, Any] = {schema.id: ids_of(members)}
    if schema.classes is not None:
        _require_probabilities(rows, members, schema.classes, "classes")
        table[label] = [schema.classes[i] for i in rows.argmax(1)]
        names = [f"probability_{name}" for name in schema.classes]
    elif schema.labels is not None and columns is None:
        _require_probabilities(rows, members, schema.labels, "labels")
        if schema.separator is None:
            table |= {str(name): (rows[:, i] >= 0.5).astype(np.int64) for i, name in enumerate(schema.labels)}
        else:
            true = [[str(name) for name, p in zip(schema.labels, row, strict=True) if p >= 0.5] for row in rows]
            table[label] = [schema.separator.join(part) for part in true]
        names = [f"probability_{name}" for name in schema.labels]
    elif columns is not None:
        names = list(columns)
    else:
        names = [label] if rows.shape[1] == 1 else [f"{label}_{i}" for i in range(rows.shape[1])]
    if len(names) != rows.shape[1]:
        raise ValueError(f"predictions have {rows.shape[1]} columns, but {names} are named")
    if isinstance(predictions, Uncertain):
        rows, names = spread.told(predictions).reshape(len(rows), -1), spread.names(names)
    require_distinct([*table, *names], "the columns of a table", "name the predictions otherwise, with columns=")
    return _frame(table | {name: rows[:, i] for i, name in enumerate(names)})


_NO_DISTRIBUTION = (
    "an interval and quantiles are those of distributions, and these are plain numbers; predict them with "
    "returns='distribution'"
)


def _told(predictions: Any, names: Sequence[str], spread: Spread) -> tuple[Any, Sequence[str]]:
    """Distributions as columns, and how these are called; what is none stays as it is."""
    is_list = isinstance(predictions, list | tuple)
    if not is_list or not predictions or not all(isinstance(one, Uncertain) for one in predictions):
        if spread.is_asked:
            raise ValueError(_NO_DISTRIBUTION)
        return predictions, names
    told, n_columns = spread.names(names), len(names)
    shapes = {one.shape[1:] for one in predictions}
    if shapes != {(n_columns,)}:
        raise ValueError(f"distributions for {list(names)} must be of shape [n, {n_columns}] each; use columns=")
    return [spread.told(one).reshape(-1, len(told)) for one in predictions], told


def _frame(columns: dict[str, Any]) -> "pd.DataFrame":
    import pandas as pd

    return pd.DataFrame(columns)


def _schema_of(samples: Sequence[Sample], schema: Schema | None) -> Schema:
    if len(samples) == 0:
        raise ValueError("there are no samples to make a table of")
    if schema is not None:
        return schema
    names = schema_of(samples)
    if names is None:
        raise ValueError("these samples do not say what their columns are called; hand over a schema")
    return names


def _name(i: int, sample: Sample) -> str:
    return f"sample {i if sample.id is None else sample.id!r}"


def _positions_of(samples: Sequence[Sample], positions: Any, predictions: Any, schema: Schema) -> list[Tensor]:
    """Where each sample's predictions belong."""
    if positions is not None:
        if len(positions) != len(samples):
            raise ValueError(f"positions for {len(positions)} samples, but there are {len(samples)} samples")
        return [_query_positions(to_numpy(queries), i, schema) for i, queries in enumerate(positions)]
    everywhere = [sample.positions.double() for sample in samples]
    if schema.phase is not None:
        everywhere = [without_axis(x) if x.shape[1] == schema.position_dims else x for x in everywhere]
    if any(sample.hidden is None for sample in samples):
        return everywhere
    is_packed = getattr(predictions, "ndim", None) == 2
    n_predictions = len(predictions) if is_packed else sum(map(len, predictions))
    if n_predictions != sum(int(sample.hidden.sum()) for sample in samples):
        return everywhere
    return [x[sample.hidden] for x, sample in zip(everywhere, samples, strict=True)]


def _query_positions(x: np.ndarray, i: int, schema: Schema) -> Float64[Tensor, "q d"]:
    """Positions that were asked for as numbers, a row for each."""
    where = f"the positions for sample {i}"
    x = positions_as_numbers(x, schema.time_unit, schema.time_zone, where, are_durations=schema.durations)
    if x.dtype.kind not in "fiu" or x.ndim not in (1, 2):
        raise TypeError(f"{where} must be numbers [q] or [q, d], not {x.dtype} {list(x.shape)}")
    if x.size == 0:
        return torch.zeros(0, replace(schema, phase=None).position_dims, dtype=torch.float64)
    queries = torch.from_numpy((x[:, None] if x.ndim == 1 else x).astype(np.float64))
    has_phase = schema.phase is not None and queries.shape[1] == schema.position_dims
    return without_axis(queries) if has_phase else queries


def _stacked(predictions: Any, counts: list[int], name: Callable[[int], str]) -> Float64[np.ndarray, "t c"]:
    """The predictions of all samples end to end."""
    if getattr(predictions, "ndim", None) == 2:
        if len(predictions) != sum(counts):
            raise ValueError(f"{len(predictions)} rows of predictions for {sum(counts)} tokens")
        return to_numpy(predictions).astype(np.float64)
    if len(predictions) != len(counts):
        raise ValueError(f"predictions for {len(predictions)} samples, but there are {len(counts)} samples")
    parts = [to_numpy(prediction) for prediction in predictions]
    for i, (part, count) in enumerate(zip(parts, counts, strict=True)):
        if part.ndim != 2 or len(part) != count or part.shape[1] != parts[0].shape[1]:
            raise ValueError(
                f"{name(i)} needs predictions of shape [{count}, {parts[0].shape[-1]}], got {list(part.shape)}"
            )
    return np.concatenate(parts).astype(np.float64)


def position_columns(
    positions: Tensor, counts: list[int], all_ids: Sequence[Any], schema: Schema, *, facts: bool = False
) -> dict[str, Any]:
    """The columns that say which sample, when, where and which channel; `facts` may be among the channels.

    A phase is none of them, since it follows from time.
    """
    if schema.phase is not None:
        schema = replace(schema, phase=None)
    if positions.shape[1] != schema.position_dims:
        raise ValueError(f"{positions.shape[1]} position axes, but the schema names {schema.position_dims}")
    ids = np.empty(len(all_ids), dtype=object)
    ids[:] = all_ids
    x = positions.numpy()
    time: Any = x[:, 0]
    if schema.time_unit is not None:
        time = (
            durations_from_numbers(time, schema.time_unit)
            if schema.durations
            else dates_from_numbers(time, schema.time_unit, schema.time_zone)
        )
    table: dict[str, Any] = {schema.id: np.repeat(ids, counts).tolist(), schema.time: time}
    table |= {name: x[:, i + 1] for i, name in enumerate(schema.positions)}
    if schema.channel is not None:
        names = np.array(schema.kind_names if facts else schema.channels, dtype=object)
        table[schema.channel] = names[channel_index(positions, len(names)).numpy()].tolist()
    return table


def _require_probabilities(
    rows: Float64[np.ndarray, "b k"], samples: Sequence[Sample], names: Sequence[Any], of: Literal["classes", "labels"]
) -> None:
    """Those of classes sum to 1, and each of several labels has one of its own."""
    if rows.shape[1] != len(names):
        raise ValueError(f"{rows.shape[1]} probabilities per sample for {len(names)} {of} {list(names)}")
    is_right = ((rows >= 0) & ((rows <= 1) | (of == "classes"))).all(1)
    if of == "classes":
        is_right &= np.isclose(rows.sum(1), 1, atol=1e-3)
    if is_right.all():
        return
    i = int(is_right.argmin())
    whose = _name(i, samples[i])
    if of == "labels":
        raise ValueError(
            f"a probability of {whose} lies outside 0 and 1; turn logits into probabilities with a sigmoid"
        )
    raise ValueError(
        f"the probabilities of {whose} do not sum to 1 ({rows[i].sum():.4g}); "
        "turn logits into probabilities with softmax"
    )

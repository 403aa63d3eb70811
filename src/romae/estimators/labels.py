"""Labels: any form of them becomes one array, in the order of the samples.

Shapes: b samples, k numbers of each.
"""

from collections.abc import Collection, Mapping, Sequence
from numbers import Number
from typing import Any

import numpy as np
from jaxtyping import Bool, Shaped
from torch import Tensor

from romae.data.columns import Name, in_order, require_one_label, to_numpy
from romae.data.containers import is_table
from romae.data.frames import read_frame
from romae.data.labels import from_columns, from_names
from romae.data.schema import Schema
from romae.data.sources import schema_of
from romae.tokens.sample import Sample


def labels_of(X: Any, samples: Sequence[Sample], y: Any, *, estimator_name: str) -> Shaped[np.ndarray, "b *k"]:
    """One label per sample: those of y, or without it the targets that the samples bring along.

    For a table, y is a pandas column or a dictionary that gives the label of each id. Where X holds samples, a pandas
    column that is indexed by their ids is brought into their order; any other y is in that order already.
    """
    if y is None:
        return _own_labels(samples, estimator_name)
    return _as_labels(in_order_of(X, samples, y), samples)


def classes_or_labels(
    X: Any, samples: Sequence[Sample], y: Any, *, estimator_name: str, known: Sequence[Name] | None = None
) -> tuple[Shaped[np.ndarray, "b *k"], Sequence[Name] | None]:
    """One class per sample or, of several labels, a row of 0 and 1 and what these are called.

    Several labels are an array of 0 and 1 with two columns or more, which may be a pandas table or sparse, or a set of
    names for each sample, or a list of text. `known` are the names of labels that were fitted, in their order.
    """
    if y is None:
        labels, schema = _own_labels(samples, estimator_name), schema_of(samples)
        names = None if schema is None else schema.labels
        if schema is not None and schema.separator is not None and names is not None and known is not None:
            # Such a column names the labels that occur in it, which may be a part of those that were fitted.
            rows = [[name for name, is_true in zip(names, row, strict=True) if is_true] for row in labels]
            return from_names(rows, known, lambda i: _name_of(samples, i))
        is_several = names is not None or (labels.ndim == 2 and labels.shape[1] > 1)
    else:
        y = in_order_of(X, samples, y)
        y = y.toarray() if hasattr(y, "tocsr") else y
        names = _names_of_columns(y)
        entries = y.tolist() if getattr(y, "ndim", 0) == 1 else y
        if isinstance(entries, list | tuple) and _are_names(entries):
            _require_one_each(len(entries), samples)
            _require_labels(np.array([not isinstance(entry, Collection) for entry in entries]), samples)
            indicator, names = from_names(entries, known, lambda i: _name_of(samples, i))
            return indicator, names
        labels = _as_labels(y, samples)
        is_several = labels.ndim == 2 and labels.shape[1] > 1
    if not is_several:
        return labels, None
    if labels.ndim != 2:
        raise ValueError(
            f"several labels are a row of 0 and 1 for each sample, and y has the shape {list(labels.shape)}"
        )
    expected = range(labels.shape[1]) if known is None else known
    if labels.shape[1] != len(expected):
        raise ValueError(f"y has {labels.shape[1]} labels, and {len(expected)} were fitted: {list(expected)}")
    names = tuple(expected) if names is None else tuple(names)
    if known is not None and set(names) != set(known):
        raise ValueError(f"y has the labels {list(names)}, and fitted were {list(known)}; give these, in any order")
    if known is not None:
        labels, names = labels[:, [names.index(name) for name in known]], tuple(known)
    return from_columns([*labels.T], names, lambda i: _name_of(samples, i)).truth, names


def _names_of_columns(y: Any) -> tuple[Name, ...] | None:
    """What the columns of a pandas table are called, where these are names and no numbers."""
    columns = y.columns.tolist() if hasattr(y, "iloc") and getattr(y, "ndim", 0) == 2 else []
    return tuple(columns) if columns and all(isinstance(name, str) for name in columns) else None


def _are_names(entries: Sequence[Any]) -> bool:
    """Whether each sample has a set of names, or a list of text.

    Lists of one entry each are a column of classes, as scikit-learn takes them.
    """
    given = [entry for entry in entries if isinstance(entry, set | frozenset | list | tuple)]
    if not given or any(isinstance(entry, str | bytes | Number) for entry in entries):
        return False
    if all(isinstance(entry, set | frozenset) for entry in given):
        return True
    are_text = all(isinstance(name, str) for entry in given for name in entry)
    return are_text and {len(entry) for entry in given} != {1}


def _name_of(samples: Sequence[Sample], i: int) -> str:
    return f"sample {i if samples[i].id is None else samples[i].id!r}"


def _as_labels(y: Any, samples: Sequence[Sample]) -> Shaped[np.ndarray, "b *k"]:
    y = [to_numpy(label) if isinstance(label, Tensor) else label for label in y] if isinstance(y, list | tuple) else y
    try:
        labels, entries = np.asarray(y), np.asarray(y, dtype=object)
    except ValueError as error:
        raise ValueError(f"y cannot be read as labels: {error}") from None
    if labels.ndim == 0:
        raise TypeError(
            f"y must be a list or an array with a label for each of the {len(samples)} samples, in their order, and it "
            f"is of type {type(y).__name__}"
        )
    _require_one_each(len(labels), samples)
    _require_labels(_is_missing(entries), samples)
    _require_one_type(entries)
    are_numbers = labels.dtype == object and labels.ndim == 1 and isinstance(labels[0], Number)
    return np.array(labels.tolist()) if are_numbers else labels  # scikit-learn takes objects for text alone


def _require_one_each(n: int, samples: Sequence[Sample]) -> None:
    if n != len(samples):
        raise ValueError(f"y has {n} labels for {len(samples)} samples: each sample needs one")


def in_order_of(X: Any, samples: Sequence[Sample], y: Any, name: str = "y", noun: str = "label") -> Any:
    """Labels, or whatever else there is one of for each sample, in the order of the samples.

    Messages call them by `name`, and one of them by `noun`.
    """
    if is_table(X):
        y = _labels_by_id(X, samples, y, name, noun)
    elif hasattr(y, "iloc") and not isinstance(X, Mapping) and isinstance(X[0], Sample):
        y = in_order([sample.id for sample in samples], y, name, noun)
    return to_numpy(y) if isinstance(y, Tensor | np.ndarray) else y


def _own_labels(samples: Sequence[Sample], estimator_name: str) -> Shaped[np.ndarray, "b *k"]:
    targets = [sample.target for sample in samples]
    is_missing = np.array([target is None for target in targets])
    if is_missing.all():
        raise ValueError(
            f"{estimator_name} requires y to be passed, but the target y is None and the data bring no labels "
            "of their own"
        )
    _require_labels(is_missing, samples)
    if any(target.ndim > 1 for target in targets):
        raise ValueError(
            f"{estimator_name} learns one label per sample, and these samples have one row of targets per token"
        )
    labels = np.stack([to_numpy(target) for target in targets])
    schema = schema_of(samples)
    return labels if schema is None or schema.classes is None else np.array(schema.classes)[labels]


def _labels_by_id(table: Any, samples: Sequence[Sample], y: Any, name: str, noun: str) -> Any:
    ids, is_pandas = [sample.id for sample in samples], hasattr(y, "iloc")
    if not is_pandas and not isinstance(y, Mapping):
        or_column = "; or name the column of labels with columns={…, 'label': …} and leave y out" * (name == "y")
        raise TypeError(
            f"for a table, {name} gives the {noun} of each id: a pandas column indexed by the ids or a dictionary"
            f"{or_column}"
        )
    if is_pandas:
        _require_by_id(table, samples, y, name, noun)
    places = {label_id: i for i, label_id in enumerate(y.index if is_pandas else y)}
    for sample_id in ids:
        if sample_id not in places:
            raise ValueError(f"{name} has no {noun} for the id {sample_id!r}; it needs one for each id of the table")
    if not is_pandas:
        return [y[sample_id] for sample_id in ids]
    labels = y.iloc[[places[sample_id] for sample_id in ids]]
    return labels.tolist() if hasattr(labels, "tolist") else labels


def _require_by_id(table: Any, samples: Sequence[Sample], y: Any, name: str, noun: str) -> None:
    """Refuse a pandas column that goes by the rows of the table, or by numbers that may be rows."""
    import pandas as pd

    column = (schema_of(samples) or Schema()).id
    id_of_row = read_frame(table, [column], {column: None})[column].tolist()
    rows = table.index if hasattr(table, "iloc") else pd.RangeIndex(len(id_of_row))
    if y.index.equals(rows) and (y.index.has_duplicates or y.index.tolist() != id_of_row):
        label = repr(y.name) if isinstance(getattr(y, "name", None), str) else "…"
        by_column = f"name its column with columns={{…, 'label': {label}}} and leave y out, or " * (name == "y")
        raise ValueError(
            f"{name} has one entry per row of the table; {by_column}give one {noun} per id, as a dictionary or as a "
            "pandas column indexed by the ids"
        )
    require_one_label(y, name, noun)
    ids = {sample.id for sample in samples}
    label_ids, row_numbers = set(y.index), set(rows)
    if y.index.name is None and ids < label_ids and (label_ids <= row_numbers or row_numbers <= label_ids):
        other = next(label_id for label_id in y.index.tolist() if label_id not in ids)
        raise ValueError(
            f"the index of {name} holds more than the ids of the table, such as {other!r}, and numbers may be rows as "
            f"well; if they are ids, name the index like their column: {name}.rename_axis({column!r})"
        )


def _is_missing(labels: Shaped[np.ndarray, "b *k"]) -> Bool[np.ndarray, "b"]:
    """Whether a label, or one of several numbers, is None or NaN."""
    import pandas as pd

    return np.logical_or.reduce(np.asarray(pd.isna(labels)).reshape(len(labels), -1), axis=1)


def _require_labels(is_missing: Bool[np.ndarray, "b"], samples: Sequence[Sample]) -> None:
    """Refuse labels of which some are missing."""
    if is_missing.any():
        first = int(is_missing.argmax())
        name = first if samples[first].id is None else samples[first].id
        raise ValueError(
            f"labels are missing in part: sample {name!r} has none ({int(is_missing.sum())} of {len(is_missing)} lack "
            "one); leave those out, or hand them to fit as unlabelled"
        )


def _require_one_type(labels: Shaped[np.ndarray, "b *k"]) -> None:
    """Refuse text among numbers, of which numpy makes text, and booleans among numbers, which become numbers."""
    for column in labels.reshape(len(labels), -1).T:
        examples: dict[str, Any] = {}
        for label in column:
            examples.setdefault(_type_name(label), label)
        if len(examples) > 1:
            first, second = (x.item() if isinstance(x, np.generic) else x for x in list(examples.values())[:2])
            raise TypeError(
                f"y mixes labels of several kinds, such as {first!r} and {second!r}; make all of them text, or "
                "all numbers"
            )


def _type_name(label: Any) -> str:
    if isinstance(label, bool | np.bool_):
        return "boolean"
    if isinstance(label, str):
        return "text"
    return "number" if isinstance(label, Number) else type(label).__name__

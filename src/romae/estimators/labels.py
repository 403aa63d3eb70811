"""Labels: whatever people give for the answers becomes one array, in the order of the samples.

Shapes: b samples, k numbers of each.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Shaped
from torch import Tensor

from romae.data.columns import in_order, require_one_label, to_numpy
from romae.data.series import SampleSet
from romae.data.store import Store
from romae.estimators.inputs import is_table
from romae.tokens import Sample


def labels_of(X: Any, samples: Sequence[Sample], y: Any, *, who: str) -> Shaped[np.ndarray, "b *k"]:
    """One label per sample: those of y, or without it the targets that the samples bring along.

    For a table, y is a pandas column or a dictionary that gives the label of each id. Where X holds samples, a pandas
    column that is indexed by their ids is brought into their order; any other y is in that order already.
    """
    if y is None:
        return _own_labels(samples, who)
    if is_table(X):
        y = _labels_by_id(samples, y)
    elif hasattr(y, "iloc") and (isinstance(X, SampleSet | Store) or isinstance(X[0], Sample)):
        y = in_order([sample.id for sample in samples], y)
    y = to_numpy(y) if isinstance(y, Tensor | np.ndarray) else y
    try:
        labels, entries = np.asarray(y), np.asarray(y, dtype=object)
    except ValueError as error:
        raise ValueError(f"y cannot be read as labels: {error}") from None
    if labels.ndim == 0 or len(labels) != len(samples):
        found = "a single one" if labels.ndim == 0 else len(labels)
        raise ValueError(f"y has {found} labels for {len(samples)} samples: each sample needs one")
    _require_labels(_is_missing(entries), samples)
    return labels


def _own_labels(samples: Sequence[Sample], who: str) -> Shaped[np.ndarray, "b *k"]:
    targets = [sample.target for sample in samples]
    is_missing = np.array([target is None for target in targets])
    if is_missing.all():
        raise ValueError(
            f"{who} requires y to be passed, but the target y is None and the data bring no labels of their own"
        )
    _require_labels(is_missing, samples)
    if any(target.ndim > 1 for target in targets):
        raise ValueError(f"{who} learns one label per sample, and these samples have one row of targets per token")
    labels = np.stack([target.numpy() for target in targets])
    classes = samples.schema.classes if isinstance(samples, SampleSet) else None
    return labels if classes is None else np.array(classes)[labels]


def _labels_by_id(samples: Sequence[Sample], y: Any) -> list[Any]:
    if hasattr(y, "index") and hasattr(y, "to_dict"):
        require_one_label(y)
    by_id = y.to_dict() if hasattr(y, "to_dict") else y
    if not isinstance(by_id, Mapping):
        raise TypeError(
            "for a table, y gives the label of each id: a pandas column indexed by the ids or a dictionary; or name "
            "the column of labels with columns={…, 'label': …} and leave y out"
        )
    for sample in samples:
        if sample.id not in by_id:
            raise ValueError(f"y has no label for the id {sample.id!r}; it needs one for each id of the table")
    return [by_id[sample.id] for sample in samples]


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

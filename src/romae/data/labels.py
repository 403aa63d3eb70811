"""Several labels of a sample, of which any number may be true: in any form they become vectors of 0 and 1.

Tables have a column of 0 and 1 for each label, or one with the names of those that are true. Shapes: b samples,
k labels.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Int64, Shaped

from romae.data.columns import Name, require_distinct
from romae.data.frames import read_frame
from romae.data.schema import SampleSet, Schema

if TYPE_CHECKING:
    import pandas as pd


class Labels(NamedTuple):
    """1 where a label is true of a sample, and what the labels are called."""

    truth: Int64[np.ndarray, "b k"]
    names: tuple[Name, ...]


def with_labels(samples: SampleSet, table: Any, schema: Schema) -> SampleSet:
    """Samples with the labels of their ids as targets, from the columns of a table that a schema names.

    The schema has the names of labels, or a column and the separator of the names in it.
    """
    ids, id = [sample.id for sample in samples], samples.schema.id
    columns = list(map(str, schema.labels or ())) if schema.separator is None else [str(schema.label)]
    require_distinct(columns, "columns of labels")
    if doubled := [name for name in columns if name in samples.schema.columns]:
        raise ValueError(f"column {doubled[0]!r} is read as a label and as something else; name it once")
    frame = read_frame(table, [id, *columns], {id: None} | ({} if schema.separator is None else {columns[0]: ("",)}))
    rows = _one_row_per_id(frame, id, ids)

    def place(i: int) -> str:
        return f"{id} {ids[i]!r}"

    if schema.separator is None:
        labels = from_columns([rows[name].to_numpy(dtype=object) for name in columns], tuple(columns), place)
    else:
        cells = rows[columns[0]].astype(object).where(rows[columns[0]].notna(), "")
        parts = [[part.strip() for part in str(cell).split(schema.separator)] for cell in cells]
        labels = from_names([{part for part in row if part} for row in parts], schema.labels, place)
    read = replace(samples.schema, label=schema.label, labels=labels.names, separator=schema.separator)
    return SampleSet([replace(sample, target=row) for sample, row in zip(samples, labels.truth, strict=True)], read)


def from_names(
    rows: Sequence[Collection[Name]], known: Sequence[Name] | None = None, place: Callable[[int], str] = str
) -> Labels:
    """The labels whose names each sample has; `known` are all of them, which are else those of the samples, sorted."""
    named = {name: i for i, row in reversed(list(enumerate(rows))) for name in row}
    if len({type(name) for name in named}) > 1:
        raise TypeError(f"labels are all text, or all numbers, and these are of both: {sorted(map(repr, named))[:5]}")
    names = tuple(sorted(named) if known is None else known)
    if not names:
        raise ValueError("no sample has a label; a model of several labels needs at least one")
    if unknown := [name for name in named if name not in names]:
        raise ValueError(f"the label {unknown[0]!r} of {place(named[unknown[0]])} is unknown; known are {list(names)}")
    return Labels(np.array([[name in row for name in names] for row in rows], dtype=np.int64), names)


def from_columns(
    columns: Sequence[Shaped[np.ndarray, "b"]], names: tuple[Name, ...], place: Callable[[int], str] = str
) -> Labels:
    """The labels whose columns are 1 at each sample; anything but 0 and 1 is refused."""
    for name, column in zip(names, columns, strict=True):
        is_known = np.array([cell in (0, 1) if np.isscalar(cell) else False for cell in column.tolist()], dtype=bool)
        if not is_known.all():
            i = int((~is_known).argmax())
            raise ValueError(
                f"the label {name!r} of {place(i)} is {column.tolist()[i]!r}; each of several labels is 0 or 1, and "
                "names of labels go into sets, or into one column with a separator"
            )
    return Labels(np.stack([column.astype(np.int64) for column in columns], axis=1), names)


def strata(truth: Int64[np.ndarray, "b k"]) -> Int64[np.ndarray, "b"]:
    """The rarest label of each sample, by its rank, or -1: what splits spread evenly, so that no label is all in one.

    Ranks follow from the samples and not from the order of the labels.
    """
    counts = truth.sum(0)
    ranked = sorted(range(truth.shape[1]), key=lambda k: (counts[k], truth[:, k].tobytes()))
    by_rank = truth[:, ranked]
    return np.where(by_rank.any(axis=1), by_rank.argmax(axis=1), -1)


def _one_row_per_id(frame: "pd.DataFrame", id: str, ids: Sequence[Any]) -> "pd.DataFrame":
    """The cells of each id, which all its rows must agree on."""
    grouped = frame.groupby(id, sort=False, observed=True)
    for name in frame.columns.drop(id):
        counts = grouped[name].nunique(dropna=False)
        if (counts > 1).any():
            first = counts.index[(counts > 1).to_numpy()].tolist()[0]
            raise ValueError(
                f"{id} {first!r} has different labels in column {name!r}; a label belongs to the whole sample"
            )
    return frame.drop_duplicates(id).set_index(id).reindex(ids).reset_index(drop=True)

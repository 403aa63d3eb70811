"""Folds of a long table: rows of one series in training and in test make any score meaningless.

Cross-validation of scikit-learn splits a table by its rows. A sample of the training then comes back with its other
rows, and a model that knows the series by heart is taken for one that has learned. Predicting for samples of the
training as they were, or for another table that numbers its ids anew, is none of this.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import UInt64

from romae.data.containers import is_table
from romae.data.frames import read_frame
from romae.data.schema import Schema

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class TableRows:
    """The rows that an estimator was fitted on, as hashes: their ids, and what tells the rows of an id apart.

    That is the index of a pandas table, which stays with a row wherever a splitter puts it, or else its positions.
    """

    ids: UInt64[np.ndarray, "n"]
    rows: UInt64[np.ndarray, "t"]
    has_index: bool
    index_names: tuple[Any, ...] = ()  # another index, such as id and time, tells other rows

    @classmethod
    def of(cls, X: Any, schema: Schema | None) -> "TableRows | None":
        """Those of a table in memory; a file, or what is no table, cannot be split by rows."""
        if schema is None or not is_table(X) or isinstance(X, str | Path):
            return None
        ids = _hashes(_columns(X, schema)[[schema.id]])
        if hasattr(X, "iloc") and len(X) == len(ids):  # where a row holds a whole series, rows are no measurements
            rows = _hashes_by_index(X, ids)
            if len(np.unique(rows)) == len(rows):
                return cls(np.unique(ids), rows, True, tuple(X.index.names))
        return cls(np.unique(ids), _hashes(_columns(X, schema)), False)

    def require_no_fold(self, X: Any, schema: Schema | None) -> None:
        """Refuse a table with other rows of the same ids, and none of those that were there in fit."""
        if (
            schema is None
            or not is_table(X)
            or isinstance(X, str | Path)
            or (self.has_index and (not hasattr(X, "iloc") or tuple(X.index.names) != self.index_names))
        ):
            return
        columns = _columns(X, schema)
        ids = _hashes(columns[[schema.id]])
        is_known = np.isin(ids, self.ids)
        if not is_known.any():
            return
        rows = _hashes_by_index(X, ids) if self.has_index else _hashes(columns)
        if np.isin(rows[is_known], self.rows).any():
            return
        name = columns[schema.id].tolist()[int(is_known.argmax())]
        raise ValueError(
            f"the table was split by rows: {len(np.unique(ids[is_known]))} of its ids, such as {name!r}, were in fit "
            "with other rows, so that a score would mean nothing; split by id, with cv=GroupKFold(5) and "
            f"groups=table[{schema.id!r}], or split the samples that romae.from_table makes of it; to predict from new "
            "rows of ids that are known, hand over samples as well"
        )


def _columns(X: Any, schema: Schema) -> "pd.DataFrame":
    """What says which row is which: the id and the positions."""
    channel = [] if schema.channel is None else [schema.channel]
    return read_frame(X, [schema.id, schema.time, *schema.positions, *channel], dict.fromkeys([schema.id, *channel]))


def _hashes(columns: "pd.DataFrame") -> UInt64[np.ndarray, "t"]:
    import pandas as pd

    return pd.util.hash_pandas_object(columns, index=False).to_numpy()


def _hashes_by_index(X: Any, ids: UInt64[np.ndarray, "t"]) -> UInt64[np.ndarray, "t"]:
    import pandas as pd

    return _hashes(pd.DataFrame({"id": ids, "row": pd.util.hash_pandas_object(X.index).to_numpy()}))

"""Many stores as one: tables on disk become a store each, in parallel, and are read as if they were a single one.

A folder of stores holds `index.json`, which names them in order with their numbers of samples, and the stores, one for
each table. Nothing is copied to join them.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from romae.config import from_dict, parsed_json, to_dict
from romae.data.frames import names_in_table
from romae.data.schema import Schema
from romae.data.sources import Indices, Source
from romae.data.store import Store, write_store
from romae.data.tables import from_table
from romae.files import readable_path, write_whole_folder
from romae.tokens.tokens import PackedSamples

INDEX = "index.json"


def write_stores(
    tables: Sequence[str | Path], folder: str | Path, *, workers: int | None = None, **columns: Any
) -> "Stores":
    """Write tables on disk to a folder of stores, one for each, several at once.

    Parameters
    ----------
    tables : sequence of str or Path
        CSV or Parquet files, each with whole series: an id in two of them is refused. Each is read as a whole by one
        process.
    folder : str or Path
        The folder to write. It appears when it is whole; one that is there already is replaced if it holds stores.
    workers : int, optional
        How many processes read at once; by default as many as there are processors. 0 reads them here.
    **columns
        What `from_table` takes: `id`, `time`, `channel`, `values`, `label` and the others. Channels and classes that
        are not named are those of all tables.

    Returns
    -------
    Stores
        All samples, in the order of the tables.

    Raises
    ------
    ValueError
        If there is no table, one cannot be read, or an id is in two of them; the file is named.

    Examples
    --------
    >>> import pandas as pd
    >>> import romae
    >>> for night in (1, 2):
    ...     rows = pd.DataFrame({"star": [night] * 3, "day": [0.0, 1.0, 2.0], "flux": [1.0, 2.0, 3.0]})
    ...     rows.to_parquet(f"night{night}.parquet")
    >>> nights = ["night1.parquet", "night2.parquet"]
    >>> romae.write_stores(nights, "nights", id="star", time="day", values="flux", workers=0)
    Stores('nights': 2 stores, 2 samples, 6 tokens)
    """
    paths, folder = [Path(table) for table in tables], Path(folder)
    if not paths:
        raise ValueError("there are no tables to write stores of")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / INDEX).is_file():
        raise ValueError(f"{folder} is there and holds something else than stores; name another folder")
    n_workers = min(os.cpu_count() or 1 if workers is None else workers, len(paths))
    if n_workers < 0:
        raise ValueError(f"workers must be 0 or more, not {workers}")
    columns = dict(columns)

    def write(to: Path) -> None:
        places = [to / f"{i:05d}.arrow" for i in range(len(paths))]
        with _processes(n_workers) as each:
            if columns.get("separator") is not None and columns.get("classes") is None:
                raise ValueError("the labels in a column differ from table to table; name all of them with classes=[…]")
            for vocabulary, column in (("channels", columns.get("channel")), ("classes", columns.get("label"))):
                if isinstance(column, str) and columns.get(vocabulary) is None:
                    found = each(names_in_table, paths, [column] * len(paths))
                    names = sorted({name for part in found if part is not None for name in part})
                    if None not in found:  # labels that are numbers have no names
                        columns[vocabulary] = names
            parts = each(_write_one, paths, places, [columns] * len(paths))
        _require_each_id_once(paths, [ids for ids, _ in parts])
        index = {
            "stores": [{"name": place.name, "table": path.name} for place, path in zip(places, paths, strict=True)],
            "schema": parts[0][1],
        }
        (to / INDEX).write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")

    write_whole_folder(folder, write)
    return Stores(folder)


@contextmanager
def _processes(n_workers: int) -> Iterator[Callable[..., list[Any]]]:
    """A `map` to a list, by processes that start once."""
    if n_workers <= 1:
        yield lambda function, *arguments: list(map(function, *arguments))
        return
    # Not forked: threads of torch, which may be waiting for a lock, would not come along.
    with ProcessPoolExecutor(n_workers, mp_context=get_context("spawn")) as pool:
        yield lambda function, *arguments: list(pool.map(function, *arguments))


def _write_one(path: Path, place: Path, columns: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Write the store of a table; returns its ids and the names of the data."""
    try:
        samples = from_table(path, **columns)
    except (ValueError, TypeError) as error:
        raise type(error)(f"{path}: {error}") from None
    write_store(samples, place)
    return [sample.id for sample in samples], to_dict(samples.schema)


def _require_each_id_once(paths: Sequence[Path], ids: Sequence[list[Any]]) -> None:
    home: dict[Any, Path] = {}
    for path, names in zip(paths, ids, strict=True):
        for name in names:
            if name in home:
                raise ValueError(
                    f"the rows of {name!r} are in {home[name]} and in {path}; a table must hold whole series"
                )
            home[name] = path


class Stores(Source):
    """A folder of stores, read as one.

    A sequence of samples, written by `write_stores`, that `train`, `Loader`, `predict` and `fit_scaling` take like a
    list.

    Parameters
    ----------
    folder : str or Path
        The folder.
    memory_budget : int, default 1 GiB
        The bytes that may be read before their pages are handed back to the system, shared by the stores.

    Raises
    ------
    ValueError
        If there is no such folder, or a store in it is missing or damaged.

    Examples
    --------
    >>> import pandas as pd
    >>> import romae
    >>> rows = pd.DataFrame({"star": [1, 1, 2], "day": [0.0, 1.0, 2.0], "flux": [1.0, 2.0, 3.0]})
    >>> rows.to_parquet("night.parquet")
    >>> _ = romae.write_stores(["night.parquet"], "stores", id="star", time="day", values="flux", workers=0)
    >>> romae.Stores("stores").lengths.tolist()
    [2, 1]
    """

    is_quick = True

    def __init__(self, folder: str | Path, *, memory_budget: int = 1 << 30) -> None:
        self.folder, self.memory_budget = readable_path(folder).absolute(), memory_budget
        if not (self.folder / INDEX).is_file():
            raise ValueError(f"there is no folder of stores at {folder}; write one with write_stores")
        try:
            index = parsed_json((self.folder / INDEX).read_text(encoding="utf-8"))
            names = [entry["name"] for entry in index["stores"]]
            self.schema = from_dict(Schema, index["schema"], where="schema")
        except (ValueError, TypeError, KeyError, OSError) as error:
            raise ValueError(f"{self.folder / INDEX} is damaged: {error}; write the stores again") from None
        share = max(memory_budget // max(len(names), 1), 1)
        self.stores = [Store(self.folder / Path(name).name, memory_budget=share) for name in names]
        self.lengths = np.concatenate([store.lengths for store in self.stores])
        self._starts = np.cumsum([0, *map(len, self.stores)])

    def __reduce__(self) -> tuple[Any, ...]:
        return Stores, (self.folder,)  # a worker process maps the files itself

    def __repr__(self) -> str:
        n_tokens = int(self.lengths.sum())
        return f"Stores({self.folder.name!r}: {len(self.stores)} stores, {len(self)} samples, {n_tokens} tokens)"

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        number = range(len(self))[index]
        store = int(np.searchsorted(self._starts, number, side="right")) - 1
        return self.stores[store][number - int(self._starts[store])].with_schema(self.schema)

    def packed(self, indices: Indices) -> PackedSamples:
        """Samples end to end, gathered straight from the files.

        Parameters
        ----------
        indices : Int64 array
            Which samples.

        Returns
        -------
        PackedSamples
            In the data's own units.
        """
        numbers = np.arange(len(self))[np.asarray(indices, dtype=np.int64)]
        store_of = np.searchsorted(self._starts, numbers, side="right") - 1
        order = np.argsort(store_of, kind="stable")
        parts = [
            self.stores[store].packed(numbers[order][store_of[order] == store] - self._starts[store])
            for store in np.unique(store_of).tolist()
        ]
        joined = parts[0] if len(parts) == 1 else PackedSamples.joined(parts)
        return joined if (order == np.arange(len(order))).all() else joined.take(np.argsort(order))

    def verify(self) -> None:
        """Check all numbers now, rather than each when it is first read.

        Raises
        ------
        ValueError
            If a store is not as it was written.
        """
        for store in self.stores:
            store.verify()

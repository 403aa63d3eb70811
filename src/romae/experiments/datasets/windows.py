"""Windows of long series for forecasts: the beginning of a window is seen, what comes after is asked for.

Records of several variables are divided into training, validation and test, and each is cut into windows. A window
becomes a sample with one token per measured number at the position (time since the window began, index of the
variable), and hides its future. So everything that is trained or judged on windows is asked the same.

Shapes: r records (o = r + 1), m measurements of all records, v variables.
"""

import math
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
from jaxtyping import Float64, Int64

from romae.experiments.datasets.files import MissingFile, require_bounded_zip
from romae.tokens.sample import Sample

PER_RECORD, PER_ROW = ("id", "length"), ("time", "value", "mask")


@dataclass(frozen=True, eq=False)
class Records:
    """The measurements of all records end to end, sorted by record and time; record i holds those from `offsets[i]` to
    `offsets[i + 1]`."""

    ids: tuple[str, ...]
    offsets: Int64[np.ndarray, "o"]
    times: Float64[np.ndarray, "m"]
    variables: Int64[np.ndarray, "m"]
    values: Float64[np.ndarray, "m"]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def last_times(self) -> Float64[np.ndarray, "r"]:
        """When each record ends."""
        return self.times[self.offsets[1:] - 1]

    def as_min_max(self, chosen: Int64[np.ndarray, "k"]) -> "Records":
        """Each variable brought to what lies between its lowest and its highest value in the chosen records: 0 to 1."""
        seen = np.isin(np.repeat(np.arange(len(self)), np.diff(self.offsets)), chosen)
        n_variables = int(self.variables.max(initial=0)) + 1
        lowest, highest = np.full(n_variables, np.inf), np.full(n_variables, -np.inf)
        np.minimum.at(lowest, self.variables[seen], self.values[seen])
        np.maximum.at(highest, self.variables[seen], self.values[seen])
        is_known = np.isfinite(lowest)  # of a variable that they do not have, values stay as they are
        low = np.where(is_known, lowest, 0.0)
        extent = np.where(is_known & (highest > lowest), highest - low, 1.0)
        return replace(self, values=(self.values - low[self.variables]) / extent[self.variables])


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """How a record is cut: windows begin at 0, `stride`, … before `end` - `history`, and last `history` + `horizon`.

    The first `history` of a window is seen. `end` is None where each record's own last time counts. A measurement at
    the very end of a window belongs to the last one of its record alone.
    """

    history: float
    horizon: float
    stride: float
    end: float | None = None

    def starts(self, last_time: float) -> Float64[np.ndarray, "w"]:
        """Where the windows of a record begin that ends at this time."""
        end = last_time if self.end is None else self.end
        return np.arange(0.0, end - self.history, self.stride)

    def n_windows(self, records: Records) -> Int64[np.ndarray, "r"]:
        """How many windows each record has, those included in which nothing is asked."""
        return np.array([len(self.starts(last)) for last in records.last_times.tolist()], dtype=np.int64)

    def samples(self, records: Records, chosen: Int64[np.ndarray, "k"], most: int | None = None) -> list[Sample]:
        """The windows of these records, or the first of them; one that shows or asks nothing is left out."""
        return list(islice((sample for i in chosen.tolist() for sample in self._windows(records, i)), most))

    def _windows(self, records: Records, i: int) -> Iterator[Sample]:
        first, last = records.offsets[i : i + 2].tolist()
        times = records.times[first:last]
        starts = self.starts(times[-1])
        lows = np.searchsorted(times, starts, side="left")
        highs = np.searchsorted(times, starts + self.history + self.horizon, side="left")
        if len(starts) > 0:
            highs[-1] = np.searchsorted(times, starts[-1] + self.history + self.horizon, side="right")
        for start, low, high in zip(starts.tolist(), lows.tolist(), highs.tolist(), strict=True):
            since = times[low:high] - start
            hidden = since >= self.history
            if hidden.any() and not hidden.all():
                here = slice(first + low, first + high)
                yield Sample(
                    records.values[here, None].astype(np.float32),
                    np.stack([since, records.variables[here]], axis=1),
                    id=records.ids[i] if len(starts) == 1 else f"{records.ids[i]}@{start:g}",
                    hidden=hidden,
                )


def divided(n_records: int, seed: int) -> dict[str, Int64[np.ndarray, "k"]]:
    """The records of each split, in the order of the benchmark: a permutation whose first fifth is the test.

    Of the rest, three quarters are for training and the others for validation.
    """
    order = np.random.RandomState(seed).permutation(n_records)
    n_test = n_records - int(0.8 * n_records)
    n_train = int(0.75 * (n_records - n_test))
    test, train, validation = np.split(order, [n_test, n_test + n_train])
    return {"train": train, "validation": validation, "test": test}


def in_parts(
    records: Records,
    parts: Mapping[str, Int64[np.ndarray, "k"]],
    cut: Cut,
    most: int | None = None,
    train_stride: float | None = None,
) -> dict[str, list[Sample]]:
    """The windows of each split, or the first few of them; those of training may begin at another stride."""
    if train_stride is not None and not 0 < train_stride < math.inf:
        raise ValueError(f"windows of training begin at a stride above 0, not {train_stride}")
    if most is not None and most < 1:
        raise ValueError(f"the number of windows must be at least 1, or none for all, not {most}")
    cuts = {"train": cut if train_stride is None else replace(cut, stride=train_stride)}
    return {name: cuts.get(name, cut).samples(records, chosen, most) for name, chosen in parts.items()}


def counted(records: Records, cut: Cut, seed: int, expected: Mapping[str, int], what: str) -> str:
    """A short report of records and their windows, for `romae data check`; other counts than the benchmark's raise."""
    counts = cut.n_windows(records)
    found = {name: int(counts[chosen].sum()) for name, chosen in divided(len(records), seed).items()}
    if found != dict(expected):
        raise ValueError(f"{len(records)} {what} have windows {found} instead of {dict(expected)}")
    return f"{len(records)} {what}, {counts.sum()} windows"


def read_records(path: Path, n_variables: int) -> Records:
    """Records from one .npz file: identifiers and lengths, and times, values and masks of all rows end to end."""
    if not path.exists():
        raise MissingFile(f"cannot find {path}; put the records of the benchmark there")
    try:
        require_bounded_zip(path)
        with np.load(path, allow_pickle=False) as arrays:
            columns = {name: arrays[name] for name in (*PER_RECORD, *PER_ROW)}
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(f"cannot read {path}: {error}") from None
    lengths = columns["length"]
    n_rows = int(lengths.sum())
    shapes = {"id": (len(lengths),), "time": (n_rows,)} | dict.fromkeys(("value", "mask"), (n_rows, n_variables))
    for name, shape in shapes.items():
        if columns[name].shape != shape:
            raise ValueError(f"{path}: {name} has the shape {list(columns[name].shape)} instead of {list(shape)}")
    record_of_row = np.repeat(np.arange(len(lengths)), lengths)
    rows = np.lexsort((columns["time"], record_of_row))  # some recordings have rows that go back in time
    row, variables = np.nonzero(columns["mask"][rows])
    row = rows[row]
    times, values = columns["time"][row].astype(np.float64), columns["value"][row, variables].astype(np.float64)
    for name, numbers in (("time", times), ("value", values)):
        if not np.isfinite(numbers).all():
            raise ValueError(f"{path}: {name} has entries that are no finite numbers")
    counts = np.bincount(record_of_row[row], minlength=len(lengths))
    if not counts.all():
        raise ValueError(f"{path}: record {columns['id'][counts.argmin()]} holds no measurement")
    ids = tuple(map(str, columns["id"].tolist()))
    return Records(ids, np.concatenate([[0], np.cumsum(counts)]), times, variables, values)

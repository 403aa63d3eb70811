"""P12 and P19: who died in intensive care, and who got sepsis, on the five splits that published tables share.

Records, labels and splits (80/10/10) are those of Raindrop's public files, `raindrop/p12.npz` and `raindrop/p19.npz`;
measurements come from the challenges' own files.

P12 has 11 988 stays of the sets a, b and c of PhysioNet 2012: 36 series and five facts on admission, of which a weight
that is taken again later is the first one. P19 has 38 803 stays of PhysioNet 2019 with 34 series by the hour and six
facts of their first row. A stay with sepsis ends where its label begins, which leaves 1 to 60 hours, and so does any
other stay: how long a stay is (`hours`) says much about its label.

Shapes: r records, m measurements of all records, f facts, k records of a part.
"""

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from jaxtyping import Float64, Int64

from romae.data.schema import Fact
from romae.experiments.datasets import physionet2012, physionet2019
from romae.experiments.datasets.catalogue import DataSet
from romae.experiments.datasets.files import MissingFile, data_root, require_bounded_zip

Name = Literal["p12", "p19"]
N_SPLITS = 5
PARTS = ("train", "validation", "test")
LABELS: Mapping[str, str] = {"p12": "died", "p19": "sepsis"}
COUNTS: Mapping[str, tuple[int, int]] = {"p12": (11_988, 1_707), "p19": (38_803, 1_626)}
ON_ADMISSION = ("Age", "Gender", "Height", "ICUType", "Weight")
SERIES: Mapping[str, tuple[str, ...]] = {
    "p12": tuple(name for name in physionet2012.VARIABLES if name not in ON_ADMISSION),
    "p19": physionet2019.SERIES,
}
FACTS: Mapping[str, tuple[Fact, ...]] = {
    "p12": (
        *(Fact(column=name) for name in ("Age", "Gender", "Height", "Weight")),
        *(Fact(column="ICUType", category=unit) for unit in ("1", "2", "3", "4")),
    ),
    "p19": tuple(Fact(column=name) for name in physionet2019.FACTS),
}


@dataclass(frozen=True, eq=False)
class Cohort:
    """The measurements of all records end to end, sorted by record and time; record i holds those from `offsets[i]` to
    `offsets[i + 1]`, which may be none.

    Times are in hours since admission (P12) or since the first row (P19). `facts` has one row for each record, and
    `hours` how many rows it has, of P19 alone. `parts` are the records of the parts of each split, from 1 on.
    """

    ids: tuple[str, ...]
    labels: Int64[np.ndarray, "r"]
    offsets: Int64[np.ndarray, "o"]
    times: Float64[np.ndarray, "m"]
    variables: Int64[np.ndarray, "m"]
    values: Float64[np.ndarray, "m"]
    facts: pd.DataFrame
    hours: Int64[np.ndarray, "r"] | None
    parts: Mapping[tuple[str, int], Int64[np.ndarray, "k"]]

    def __len__(self) -> int:
        return len(self.ids)


def split_of(seed: int) -> int:
    """The split that a seed has: 1 to 5 are their own, and 6 is the first again."""
    return (seed - 1) % N_SPLITS + 1


def load(name: Name, *, root: Path | None = None) -> Cohort:
    """The records of a benchmark, in the order of its files, which lie in folders of the data root."""
    root = root or data_root()
    arrays = _read_arrays(root / "raindrop" / f"{name}.npz", LABELS[name])
    read = _read_p12 if name == "p12" else _read_p19
    return read(arrays, root)


def _read_arrays(path: Path, label: str) -> dict[str, np.ndarray]:
    """Record names, labels and the indices of all parts, in the order of `PARTS`."""
    if not path.exists():
        raise MissingFile(f"cannot find {path}; put the splits of the benchmark there")
    names = ("record", label, *(f"{part}{split}" for part in PARTS for split in range(1, N_SPLITS + 1)))
    try:
        require_bounded_zip(path)
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in names}
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(f"cannot read {path}: {error}") from None
    n = len(arrays["record"])
    if len(np.unique(arrays["record"])) < n:
        raise ValueError(f"{path} names a record twice")
    if arrays[label].shape != (n,) or not np.isin(arrays[label], (0, 1)).all():
        raise ValueError(f"{path}: {label} must have one entry for each record, 0 or 1")
    for split in range(1, N_SPLITS + 1):
        together = np.sort(np.concatenate([arrays[f"{part}{split}"] for part in PARTS]))
        if not np.array_equal(together, np.arange(n)):
            raise ValueError(f"{path}: the parts of split {split} must hold each of the {n} records once")
    return arrays


def _parts(arrays: Mapping[str, np.ndarray]) -> dict[tuple[str, int], Int64[np.ndarray, "k"]]:
    return {
        (part, split): arrays[f"{part}{split}"].astype(np.int64) for part in PARTS for split in range(1, N_SPLITS + 1)
    }


def _read_p12(arrays: Mapping[str, np.ndarray], root: Path) -> Cohort:
    stays = physionet2012.load("abc", folder=root / "physionet2012")
    chosen = _places(arrays["record"], stays.record_ids, "the sets a, b and c")
    labels = arrays["died"].astype(np.int64)
    _require_same(labels, stays.died[chosen], arrays["record"], "who died")
    index = np.array([SERIES["p12"].index(name) if name in SERIES["p12"] else -1 for name in physionet2012.VARIABLES])
    # The place of each stay among the chosen ones, which may come in another order than the files.
    place = np.full(len(stays), -1)
    place[chosen] = np.arange(len(chosen))
    record = place[stays.record_of_measurement]
    facts = _first_values(stays, record, len(chosen))
    keep = (record >= 0) & (index[stays.variables] >= 0)
    order = np.flatnonzero(keep)[np.argsort(record[keep], kind="stable")]
    counts = np.bincount(record[order], minlength=len(chosen))
    return Cohort(
        ids=tuple(map(str, arrays["record"].tolist())),
        labels=labels,
        offsets=np.concatenate([[0], np.cumsum(counts)]),
        times=stays.minutes[order] / 60,
        variables=index[stays.variables[order]],
        values=stays.values[order],
        facts=facts,
        hours=None,
        parts=_parts(arrays),
    )


def _first_values(stays: physionet2012.Stays, record: Int64[np.ndarray, "m"], n_records: int) -> pd.DataFrame:
    """What was noted on admission; the kind of unit as a word."""
    columns = {}
    for name in ON_ADMISSION:
        here = np.flatnonzero((stays.variables == physionet2012.VARIABLES.index(name)) & (record >= 0))[::-1]
        column = np.full(n_records, np.nan)
        column[record[here]] = stays.values[here]  # from the last to the first, which stays
        columns[name] = column
    units = pd.Series(columns.pop("ICUType"))
    return pd.DataFrame(columns).assign(ICUType=units.map(lambda unit: f"{unit:g}", na_action="ignore"))


def _read_p19(arrays: Mapping[str, np.ndarray], root: Path) -> Cohort:
    stays = physionet2019.load(folder=root / "physionet2019")
    chosen = _places(arrays["record"], np.array(stays.names), "the sets A and B")
    labels, hours = arrays["sepsis"].astype(np.int64), stays.n_before_label()[chosen]
    is_positive = hours < np.diff(stays.offsets)[chosen]
    _require_same(labels, is_positive.astype(np.int64), arrays["record"], "who got sepsis")
    if (empty := hours == 0).any():
        raise ValueError(f"the label of stay {arrays['record'][empty.argmax()]} begins with its first hour")
    starts = stays.offsets[:-1][chosen]
    record = np.repeat(np.arange(len(chosen)), hours)
    hour = np.arange(len(record)) - np.repeat(np.cumsum(hours) - hours, hours)
    rows = stays.rows[starts[record] + hour, : len(SERIES["p19"])]
    row, variables = np.nonzero(~np.isnan(rows))
    counts = np.bincount(record[row], minlength=len(chosen))
    facts = stays.rows[starts][:, len(SERIES["p19"]) : -1].astype(np.float64)
    return Cohort(
        ids=tuple(map(str, arrays["record"].tolist())),
        labels=labels,
        offsets=np.concatenate([[0], np.cumsum(counts)]),
        times=hour[row].astype(np.float64),
        variables=variables.astype(np.int64),
        values=rows[row, variables].astype(np.float64),
        facts=pd.DataFrame(facts, columns=list(physionet2019.FACTS)),
        hours=hours,
        parts=_parts(arrays),
    )


def _places(wanted: np.ndarray, there: np.ndarray, where: str) -> Int64[np.ndarray, "r"]:
    """Where the wanted records are."""
    order = np.argsort(there, kind="stable")
    places = order[np.searchsorted(there[order], wanted).clip(max=len(there) - 1)]
    if (absent := there[places] != wanted).any():
        raise ValueError(f"record {wanted[absent.argmax()]} of the benchmark is not in {where}")
    return places


def _require_same(
    labels: Int64[np.ndarray, "r"], found: Int64[np.ndarray, "r"], records: np.ndarray, what: str
) -> None:
    if (differs := labels != found).any():
        raise ValueError(f"splits and records do not agree on {what}: look at record {records[differs.argmax()]}")


def check(name: Name, folder: Path) -> str:
    """Read a benchmark and compare its counts with the published ones."""
    cohort = load(name, root=folder.parent)
    counts = len(cohort), int(cohort.labels.sum())
    if counts != COUNTS[name]:
        raise ValueError(f"{name} in {folder} has {counts[0]} records, {counts[1]} positive, instead of {COUNTS[name]}")
    lengths = np.diff(cohort.offsets)
    return f"{name}: {counts[0]} records, {counts[1]} positive, {lengths.mean():.0f} measurements on average"


def _describe(name: Name, title: str) -> DataSet:
    return DataSet(
        name=f"raindrop-{name}",
        title=title,
        files=(),
        licence="splits: MIT; measurements: those of physionet2012 and physionet2019",
        citation="Zhang et al., Graph-guided network for irregularly sampled multivariate time series, ICLR (2022)",
        homepage="https://github.com/mims-harvard/Raindrop",
        check=partial(check, name),
        folder="raindrop",
    )


DATASETS = (
    _describe("p12", "P12: five splits of PhysioNet 2012, in-hospital death"),
    _describe("p19", "P19: five splits of PhysioNet 2019, sepsis"),
)

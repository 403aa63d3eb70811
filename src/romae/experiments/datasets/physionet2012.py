"""PhysioNet Challenge 2012: the first 48 hours of 4 000 intensive-care stays in each of the sets a, b and c.

A stay becomes a sample with one token per measured number at the position (minutes since admission, index of the
variable); the target is 1 if the patient died in hospital. Measurements of one variable in one minute are averaged.
Shapes: r records, m measurements of all records.
"""

import io
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float64, Int64

from romae.data.schema import Schema
from romae.experiments.datasets.catalogue import DataFile, DataSet, hint
from romae.experiments.datasets.files import MissingFile, data_root, is_filled, members, shortened
from romae.tokens.sample import Sample

VARIABLES = tuple(
    "Age Gender Height ICUType Weight Albumin ALP ALT AST Bilirubin BUN Cholesterol Creatinine DiasABP FiO2 GCS "
    "Glucose HCO3 HCT HR K Lactate Mg MAP MechVent Na NIDiasABP NIMAP NISysABP PaCO2 PaO2 pH Platelets RespRate SaO2 "
    "SysABP Temp TroponinI TroponinT Urine WBC".split()
)
SCHEMA = Schema(id="record", time="minutes", channel="variable", channels=VARIABLES)
LAST_MINUTE = 48 * 60
MOST_DIGITS = 18  # of a number with 64 bits
HEADER = b"Time,Parameter,Value"
OUTCOME_COLUMNS = ("RecordID", "SAPS-I", "SOFA", "Length_of_stay", "Survival", "In-hospital_death")


@dataclass(frozen=True, eq=False)
class Stays:
    """The measurements of all records end to end, sorted by record, minute and variable; record i holds those from
    `offsets[i]` to `offsets[i + 1]`. `outcomes` has one row per record, with the columns of the outcome files."""

    record_ids: Int64[np.ndarray, "r"]
    offsets: Int64[np.ndarray, "r+1"]
    minutes: Float64[np.ndarray, "m"]
    variables: Int64[np.ndarray, "m"]
    values: Float64[np.ndarray, "m"]
    outcomes: pd.DataFrame

    def __len__(self) -> int:
        return len(self.record_ids)

    @property
    def died(self) -> Int64[np.ndarray, "r"]:
        return self.outcomes["In-hospital_death"].to_numpy(np.int64)

    @property
    def record_of_measurement(self) -> Int64[np.ndarray, "m"]:
        """The index of the record that each measurement belongs to."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    def samples(self) -> list[Sample]:
        positions = np.stack([self.minutes, self.variables.astype(np.float64)], axis=1)
        parts = zip(
            np.split(self.values[:, None].astype(np.float32), self.offsets[1:-1]),
            np.split(positions, self.offsets[1:-1]),
            self.died.tolist(),
            self.record_ids.tolist(),
            strict=True,
        )
        return [Sample(values, where, target=died, id=record) for values, where, died, record in parts]


def load(sets: str = "ab", *, minus_one: str = "missing", folder: Path | None = None) -> Stays:
    """The records of the sets named by their letters, in the order of the letters and of the record numbers.

    A value of -1 is the source's code for "not known" and is left out; "keep" takes it for a measurement, as many
    published pipelines do. Rows without a parameter name are dropped.
    """
    if not sets or not set(sets) <= set("abc") or len(set(sets)) < len(sets):
        raise ValueError(f"sets must be some of the letters a, b and c, such as 'ab', not {sets!r}")
    if minus_one not in ("missing", "keep"):
        raise ValueError(f"minus_one must be 'missing' or 'keep', not {minus_one!r}")
    folder = folder or data_root() / "physionet2012"
    parts = [_read_set(letter, minus_one, folder) for letter in sets]
    starts = np.cumsum([0, *(len(part.values) for part in parts)])
    return Stays(
        record_ids=np.concatenate([part.record_ids for part in parts]),
        offsets=np.concatenate([[0], *(part.offsets[1:] + start for part, start in zip(parts, starts, strict=False))]),
        minutes=np.concatenate([part.minutes for part in parts]),
        variables=np.concatenate([part.variables for part in parts]),
        values=np.concatenate([part.values for part in parts]),
        outcomes=pd.concat([part.outcomes for part in parts], ignore_index=True),
    )


class Rows(NamedTuple):
    """The rows of a set as they stand in its files, record after record.

    `variables` is -1 where a row names no variable; those that repeat the record's number are left out.
    """

    record_ids: Int64[np.ndarray, "r"]
    records: Int64[np.ndarray, "m"]
    minutes: Int64[np.ndarray, "m"]
    variables: Int64[np.ndarray, "m"]
    values: Float64[np.ndarray, "m"]


def read_rows(letter: str, folder: Path) -> Rows:
    """The rows of a set, in the order of the record numbers."""
    files = _files(letter)
    source, _ = _places(letter, folder)
    if not source.exists():
        raise MissingFile(f"cannot find {source}; {hint(files[0], folder)}")
    texts = _record_texts(source)
    record_ids = np.array(sorted(texts), dtype=np.int64)
    return Rows(record_ids, *_measurements([texts[record] for record in record_ids.tolist()], record_ids))


def _places(letter: str, folder: Path) -> tuple[Path, Path]:
    """Where the records of a set are, unpacked or not, and its outcomes."""
    archive, outcomes = _files(letter)
    unpacked = folder / f"set-{letter}"
    return unpacked if is_filled(unpacked) else folder / archive.path, folder / outcomes.path


def _read_set(letter: str, minus_one: str, folder: Path) -> Stays:
    source, outcomes = _places(letter, folder)
    for path, file in zip((source, outcomes), _files(letter), strict=True):
        if not path.exists():
            raise MissingFile(f"cannot find {path}; {hint(file, folder)}")
    record_ids, *columns = read_rows(letter, folder)
    valid = columns[2] >= 0
    if minus_one == "missing":
        valid &= columns[3] != -1
    rows, minutes, variables, values = (column[valid] for column in columns)

    # One number per place in (record, minute, variable), so that sorting and averaging are one call each.
    n_minutes, n_variables = int(minutes.max(initial=0)) + 1, len(VARIABLES)
    places, inverse = np.unique((rows * n_minutes + minutes) * n_variables + variables, return_inverse=True)
    means = np.bincount(inverse, weights=values) / np.bincount(inverse)
    rows, minutes, variables = (
        places // (n_minutes * n_variables),
        places // n_variables % n_minutes,
        places % n_variables,
    )
    lengths = np.bincount(rows, minlength=len(record_ids))
    if not lengths.all():
        raise ValueError(f"record {record_ids[lengths.argmin()]} of {source} holds no measurement")
    return Stays(
        record_ids=record_ids,
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        minutes=minutes.astype(np.float64),
        variables=variables,
        values=means,
        outcomes=_read_outcomes(outcomes, record_ids),
    )


def _record_texts(source: Path) -> dict[int, bytes]:
    """The lines of each record below its header, by record number."""
    texts: dict[int, bytes] = {}
    paths: dict[int, PurePosixPath] = {}
    for member in members(source):
        path = PurePosixPath(member.name)
        if path.suffix != ".txt" or path.name.startswith("."):
            continue  # the public folders come with web pages
        if not path.stem.isdecimal() or len(path.stem) > MOST_DIGITS:
            raise ValueError(f"{source}/{shortened(str(path))} is not named after a record number such as 132539.txt")
        record = int(path.stem)
        if record in paths:
            raise ValueError(f"{source} holds record {record} twice, as {paths[record]} and as {path}; remove one")
        paths[record], texts[record] = path, _below_header(member.read(), f"{source}/{path}")
    if not texts:
        raise ValueError(f"{source} holds no record files such as 132539.txt")
    return texts


def _below_header(content: bytes, where: str) -> bytes:
    """The lines of a record below its header, each ended by a line feed."""
    content = content.replace(b"\r\n", b"\n")
    if b"\r" in content:
        line = content.partition(b"\r")[0].count(b"\n") + 1
        raise ValueError(f"{where}, line {line}: a carriage return stands alone; end lines with a line feed")
    header, _, body = content.partition(b"\n")
    if header.strip() != HEADER:
        raise ValueError(f"{where} does not begin with {HEADER.decode()!r}")
    return body.strip(b"\n") + b"\n" if body.strip() else b""


def _measurements(
    texts: list[bytes], record_ids: Int64[np.ndarray, "r"]
) -> tuple[Int64[np.ndarray, "m"], Int64[np.ndarray, "m"], Int64[np.ndarray, "m"], Float64[np.ndarray, "m"]]:
    """The record's index, minute, variable and value of every row but those that hold the record's number."""
    import pyarrow as pa
    from pyarrow import csv

    word = pa.dictionary(pa.int32(), pa.string())
    try:
        table = csv.read_csv(
            io.BytesIO(b"".join(texts)),
            csv.ReadOptions(column_names=["time", "parameter", "value"]),
            csv.ParseOptions(ignore_empty_lines=False),
            csv.ConvertOptions(column_types={"time": word, "parameter": word, "value": pa.float64()}),
        )
    except pa.ArrowInvalid:
        raise _bad_row(texts, record_ids) from None
    times, parameters = table["time"].combine_chunks(), table["parameter"].combine_chunks()
    values = table["value"].to_numpy()
    try:
        minute_of = np.array([_minute(time) for time in times.dictionary.to_pylist()], dtype=np.int64)
        index_of = {**{name: i for i, name in enumerate(VARIABLES)}, "": -1, "RecordID": -2}
        variable_of = np.array([index_of[name] for name in parameters.dictionary.to_pylist()], dtype=np.int64)
    except (KeyError, ValueError):
        raise _bad_row(texts, record_ids) from None
    minutes, variables = minute_of[times.indices.to_numpy()], variable_of[parameters.indices.to_numpy()]
    rows = np.repeat(np.arange(len(texts)), [text.count(b"\n") for text in texts])
    if len(values) != len(rows) or not np.isfinite(values).all():
        raise _bad_row(texts, record_ids)
    is_stray = (variables == -2) & (values != record_ids[rows])
    if is_stray.any():
        record, other = record_ids[rows[is_stray][0]], values[is_stray][0]
        raise ValueError(f"record {record} says of itself that it is record {other:.12g}; mend its name or that row")
    rest = variables > -2
    return rows[rest], minutes[rest], variables[rest], values[rest]


def _minute(time: str) -> int:
    """The minute of a time within 48 hours, written as hours and minutes; the seconds of a longer one are rounded."""
    hours, minutes, *seconds = time.split(":")
    if not 0 <= int(minutes) < 60 or int(hours) < 0 or len(seconds) > 1 or not all(0 <= float(s) < 60 for s in seconds):
        raise ValueError(time)
    minute = 60 * int(hours) + int(minutes) + (round(float(seconds[0]) / 60) if seconds else 0)
    if minute > LAST_MINUTE:
        raise ValueError(time)
    return minute


def _bad_row(texts: list[bytes], record_ids: Int64[np.ndarray, "r"]) -> ValueError:
    """The first row that cannot be read, in a sentence: looked for only once something is wrong."""
    for record, text in zip(record_ids.tolist(), texts, strict=True):
        for i, line in enumerate(text.decode(errors="replace").split("\n")[:-1], start=2):
            try:
                time, parameter, value = line.split(",")
                _minute(time)
                is_good = np.isfinite(float(value)) and parameter in (*VARIABLES, "RecordID", "")
            except ValueError:
                is_good = False
            if not is_good:
                return ValueError(
                    f"record {record}, line {i}: cannot read {shortened(line)!r} as time up to 48:00, known variable "
                    "and number"
                )
    return ValueError("the records cannot be read: no measurement in any of them")


def _read_outcomes(path: Path, record_ids: Int64[np.ndarray, "r"]) -> pd.DataFrame:
    try:
        table = pd.read_csv(path, skipinitialspace=True)
    except (ValueError, OSError) as error:
        raise ValueError(f"cannot read {path}: {error}") from None
    if absent := [name for name in OUTCOME_COLUMNS if name not in table]:
        raise ValueError(f"{path} lacks the columns {absent}; it has {list(table.columns)}")
    if not all(pd.api.types.is_integer_dtype(table[name]) for name in OUTCOME_COLUMNS):
        raise ValueError(f"{path} holds something that is not a whole number")
    table = table[list(OUTCOME_COLUMNS)].drop_duplicates()
    if len(twice := table["RecordID"][table["RecordID"].duplicated()]):
        raise ValueError(f"{path} has rows for record {twice.iloc[0]} that differ; keep one of them")
    outcomes = table.set_index("RecordID").reindex(record_ids)
    died = outcomes["In-hospital_death"]
    if len(unknown := died[died.isna()]):
        raise ValueError(f"{path} has no row for record {unknown.index[0]}")
    if len(wrong := died[~died.isin((0, 1))]):
        raise ValueError(f"{path}: In-hospital_death of record {wrong.index[0]} is {wrong.iloc[0]}, not 0 or 1")
    return outcomes.astype(np.int64).rename_axis("RecordID").reset_index()[list(OUTCOME_COLUMNS)]


def _files(letter: str) -> tuple[DataFile, DataFile]:
    address = "https://physionet.org/files/challenge-2012/1.0.0"
    archive = f"set-{letter}.tar.gz"
    return (
        DataFile(path=archive, url=f"{address}/{archive}", unpacked=f"set-{letter}"),
        DataFile(path=f"Outcomes-{letter}.txt", url=f"{address}/Outcomes-{letter}.txt"),
    )


def check(sets: str, folder: Path) -> str:
    """Read the sets and compare the number of records with the published one."""
    stays = load(sets, folder=folder)
    if len(stays) != 4000 * len(sets):
        raise ValueError(f"sets {sets} in {folder} have {len(stays)} records instead of {4000 * len(sets)}")
    lengths = np.diff(stays.offsets)
    return (
        f"{len(stays)} records, {lengths.mean():.0f} tokens on average (median {np.median(lengths):.0f}, at most "
        f"{lengths.max()}), {stays.died.mean():.1%} died in hospital"
    )


def _describe(name: str, title: str, sets: str) -> DataSet:
    return DataSet(
        name=name,
        title=title,
        files=tuple(file for letter in sets for file in _files(letter)),
        licence="Open Data Commons Attribution License 1.0",
        citation="Silva et al., Predicting in-hospital mortality of ICU patients: the PhysioNet/Computing in "
        "Cardiology challenge 2012, Computing in Cardiology 39 (2012)",
        homepage="https://physionet.org/content/challenge-2012/1.0.0/",
        check=partial(check, sets),
        folder="physionet2012",
    )


DATASETS = (
    _describe("physionet2012", "PhysioNet Challenge 2012, sets a and b: intensive-care stays", "ab"),
    _describe("physionet2012-c", "PhysioNet Challenge 2012, set c", "c"),
)

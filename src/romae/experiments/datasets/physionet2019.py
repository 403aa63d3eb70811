"""PhysioNet Challenge 2019: hourly rows of 40 336 intensive-care stays, and from when on sepsis was foreseeable.

Two archives, `training_setA.tar.gz` and `training_setB.tar.gz`, or the folders that they unpack to, hold one `.psv`
file for each stay: a row for each hour, 34 series of vital signs and laboratory values, six facts of the stay and the
label, which is 1 from six hours before the onset of sepsis on.

Shapes: r records, m rows of all records, k columns.
"""

import io
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
from jaxtyping import Bool, Float32, Int64

from romae.experiments.datasets.catalogue import DataSet
from romae.experiments.datasets.files import MissingFile, data_root, is_filled, members, shortened

SERIES = tuple(
    "HR O2Sat Temp SBP MAP DBP Resp EtCO2 BaseExcess HCO3 FiO2 pH PaCO2 SaO2 AST BUN Alkalinephos Calcium Chloride "
    "Creatinine Bilirubin_direct Glucose Lactate Magnesium Phosphate Potassium Bilirubin_total TroponinI Hct Hgb PTT "
    "WBC Fibrinogen Platelets".split()
)
FACTS = ("Age", "Gender", "Unit1", "Unit2", "HospAdmTime", "ICULOS")
LABEL = "SepsisLabel"
COLUMNS = (*SERIES, *FACTS, LABEL)
SETS = ("A", "B")
N_RECORDS, N_POSITIVE = 40_336, 2_932


@dataclass(frozen=True, eq=False)
class Stays:
    """The rows of all stays end to end, in the order of their names; stay i has those from `offsets[i]` to
    `offsets[i + 1]`. The columns of `rows` are `COLUMNS`, NaN where nothing was written."""

    names: tuple[str, ...]
    offsets: Int64[np.ndarray, "o"]
    rows: Float32[np.ndarray, "m k"]

    def __len__(self) -> int:
        return len(self.names)

    @property
    def labels(self) -> Bool[np.ndarray, "m"]:
        """True on rows from six hours before the onset of sepsis on."""
        return self.rows[:, -1] == 1

    def n_before_label(self) -> Int64[np.ndarray, "r"]:
        """The number of rows of each stay before its label begins: all of them where it never does."""
        lengths = np.diff(self.offsets)
        place = np.arange(len(self.rows)) - np.repeat(self.offsets[:-1], lengths)
        first = np.minimum.reduceat(np.where(self.labels, place, len(self.rows)), self.offsets[:-1])
        return np.minimum(first, lengths)


def load(*, folder: Path | None = None) -> Stays:
    """All stays of both sets; reading takes some twenty seconds."""
    folder = folder or data_root() / "physionet2019"
    texts: dict[str, bytes] = {}
    for letter in SETS:
        _read_set(folder, letter, texts)
    names = sorted(texts)
    lengths = [texts[name].count(b"\n") for name in names]
    return Stays(tuple(names), np.concatenate([[0], np.cumsum(lengths)]), _rows(names, texts))


def _read_set(folder: Path, letter: str, texts: dict[str, bytes]) -> None:
    """Add the rows of each stay of a set below its header, by the name of its file."""
    unpacked, archive = folder / f"training_set{letter}", folder / f"training_set{letter}.tar.gz"
    source = unpacked if is_filled(unpacked) else archive
    if not source.exists():
        raise MissingFile(f"cannot find {source}; take it from {HOMEPAGE} and put it there")
    header, n_before = "|".join(COLUMNS).encode(), len(texts)
    for member in members(source):
        path = PurePosixPath(member.name)
        if path.suffix != ".psv" or path.name.startswith("."):
            continue
        if path.stem in texts:
            raise ValueError(f"{source} holds stay {shortened(path.stem)}, which is there already; remove one of them")
        first, _, body = member.read().replace(b"\r\n", b"\n").partition(b"\n")
        if first.strip() != header:
            raise ValueError(f"{source}/{shortened(str(path))} does not begin with {'|'.join(COLUMNS[:3])}|…|{LABEL}")
        if not body.strip():
            raise ValueError(f"{source}/{shortened(str(path))} has no rows below its header")
        texts[path.stem] = body.strip(b"\n") + b"\n"
    if len(texts) == n_before:
        raise ValueError(f"{source} holds no stays such as p000001.psv")


def _rows(names: list[str], texts: dict[str, bytes]) -> Float32[np.ndarray, "m k"]:
    import pyarrow as pa
    from pyarrow import csv

    try:
        table = csv.read_csv(
            io.BytesIO(b"".join(texts[name] for name in names)),
            csv.ReadOptions(column_names=list(COLUMNS)),
            csv.ParseOptions(delimiter="|", ignore_empty_lines=False),
            csv.ConvertOptions(null_values=["NaN", ""], column_types=dict.fromkeys(COLUMNS, pa.float32())),
        )
    except pa.ArrowInvalid:
        raise _bad_row(names, texts) from None
    rows = np.stack([table[name].to_numpy() for name in COLUMNS], axis=1)
    if np.isinf(rows).any() or not np.isin(rows[:, -1], (0, 1)).all():
        raise _bad_row(names, texts)
    return rows


def _bad_row(names: list[str], texts: dict[str, bytes]) -> ValueError:
    """The first row that cannot be read, in a sentence: looked for only once something is wrong."""
    for name in names:
        for i, line in enumerate(texts[name].decode(errors="replace").split("\n")[:-1], start=2):
            cells = line.split("|")
            try:
                numbers = [float(cell) if cell else np.nan for cell in cells]
                is_good = len(numbers) == len(COLUMNS) and not np.isinf(numbers).any() and numbers[-1] in (0, 1)
            except ValueError:
                is_good = False
            if not is_good:
                return ValueError(
                    f"stay {name}, line {i}: cannot read {shortened(line)!r} as {len(COLUMNS)} numbers or NaN, "
                    "of which the last, the label, is 0 or 1"
                )
    return ValueError("the stays cannot be read: no row in any of them")


def check(folder: Path) -> str:
    """Read everything and compare counts with those of the public files."""
    stays = load(folder=folder)
    n_positive = int((stays.n_before_label() < np.diff(stays.offsets)).sum())
    if (len(stays), n_positive) != (N_RECORDS, N_POSITIVE):
        raise ValueError(
            f"{folder} has {len(stays)} stays, {n_positive} with sepsis, instead of {N_RECORDS} and {N_POSITIVE}"
        )
    return f"{len(stays)} stays, {len(stays.rows)} hours, {n_positive} with sepsis"


HOMEPAGE = "https://physionet.org/content/challenge-2019/1.0.0/"
DATASETS = (
    DataSet(
        name="physionet2019",
        title="PhysioNet Challenge 2019: hours of intensive-care stays, and sepsis",
        files=(),
        licence="Creative Commons Attribution 4.0",
        citation="Reyna et al., Early prediction of sepsis from clinical data: the PhysioNet/Computing in Cardiology "
        "Challenge 2019, Critical Care Medicine 48 (2020)",
        homepage=HOMEPAGE,
        check=check,
    ),
)

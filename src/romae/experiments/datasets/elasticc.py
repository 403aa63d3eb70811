"""ELAsTiCC: 1.8 million simulated light curves of 32 models, read from the published SNANA files or from Parquet.

The published form is a folder `ELASTICC_TRAIN_<model>` per model with pairs of tables, `…_HEAD.FITS.gz` (one row per
object: SNID and the rows of its points) and `…_PHOT.FITS.gz` (one row per point). The other form is a table
`<model>.parquet` with one row per point. Points have MJD, BAND, FLUXCAL, FLUXCALERR and PHOTFLAG.
"""

import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float64, Int64

from romae.experiments.datasets.catalogue import DataSet, Labelled
from romae.experiments.datasets.files import BoundedGzip, MissingFile, data_root
from romae.experiments.datasets.light_curves import BANDS, light_curves
from romae.extras import require_extra
from romae.tokens.sample import Sample

HOMEPAGE = "https://portal.nersc.gov/cfs/lsst/DESC_TD_PUBLIC/ELASTICC/TRAINING_SAMPLES/"

# The 20 classes of the published comparison and the models in each; the class index is the place in this table.
CLASSES = {
    "AGN": ("AGN",),
    "CART": ("CART",),
    "Cepheid": ("Cepheid",),
    "Delta Scuti": ("d-Sct",),
    "Dwarf nova": ("dwarf-nova",),
    "EB": ("EB",),
    "ILOT": ("ILOT",),
    "KN": ("KN_B19", "KN_K17"),
    "M-dwarf flare": ("Mdwarf-flare",),
    "PISN": ("PISN",),
    "RR Lyrae": ("RRL",),
    "SLSN": ("SLSN-I+host", "SLSN-I_no_host"),
    "SN 91bg": ("SNIa-91bg",),
    "SN Ia": ("SNIa-SALT2",),
    "SN Iax": ("SNIax",),
    "SN Ib/c": ("SNIb+HostXT_V19", "SNIb-Templates", "SNIc+HostXT_V19", "SNIc-Templates", "SNIcBL+HostXT_V19"),
    "SN II": ("SNII+HostXT_V19", "SNII-NMF", "SNII-Templates", "SNIIn+HostXT_V19", "SNIIn-MOSFIT"),
    "SN IIb": ("SNIIb+HostXT_V19",),
    "TDE": ("TDE",),
    "Microlensing": ("uLens-Binary", "uLens-Single-GenLens", "uLens-Single_PyLIMA"),
}
CLASS_OF_MODEL = {model: i for i, models in enumerate(CLASSES.values()) for model in models}

SATURATED, DETECTION, FIRST_ALERT = 1024, 4096, 6144
DAYS_BEFORE_ALERT = 30.0
POINT_COLUMNS = ("MJD", "BAND", "FLUXCAL", "FLUXCALERR", "PHOTFLAG")


def load(*, alerts_only: bool = True, folder: Path | None = None) -> Labelled:
    """All samples in memory; `stream` hands them out one by one."""
    return Labelled(list(stream(alerts_only=alerts_only, folder=folder)), tuple(CLASSES))


def stream(*, alerts_only: bool = True, folder: Path | None = None) -> Iterator[Sample]:
    """The light curves, file by file; ids are `<model>/<SNID>`.

    With `alerts_only`, what a broker would have seen: the points from 30 days before the first alert to the last
    detection, without saturated ones. Objects that never raise an alert are left out and counted in a warning.
    """
    n_objects, n_left_out = 0, 0
    for model, path in _sources(folder or data_root() / "elasticc"):
        points = _fits_points(path) if path.suffix != ".parquet" else _parquet_points(path)
        keep = alert_mask(points.objects, points.mjd, points.flags) if alerts_only else np.ones(len(points.mjd), bool)
        samples = light_curves(
            points.objects[keep],
            points.mjd[keep],
            points.bands[keep],
            points.flux[keep],
            points.flux_error[keep],
            [CLASS_OF_MODEL[model]] * len(points.names),
            [f"{model}/{name}" for name in points.names],
        )
        n_objects, n_left_out = n_objects + len(points.names), n_left_out + len(points.names) - len(samples)
        yield from samples
    if n_left_out:
        reason = "never raise an alert" if alerts_only else "have no points"
        warnings.warn(f"{n_left_out} of {n_objects} objects {reason} and were left out", stacklevel=2)


def alert_mask(
    objects: Int64[np.ndarray, "p"], mjd: Float64[np.ndarray, "p"], flags: Int64[np.ndarray, "p"]
) -> Bool[np.ndarray, "p"]:
    """True on the points from 30 days before the object's first alert to its last detection, except saturated ones."""
    n_objects = int(objects.max(initial=-1)) + 1
    first, last = np.full(n_objects, np.inf), np.full(n_objects, -np.inf)
    is_alert, is_detection = (flags & FIRST_ALERT) == FIRST_ALERT, (flags & DETECTION) != 0
    np.minimum.at(first, objects[is_alert], mjd[is_alert])
    np.maximum.at(last, objects[is_detection], mjd[is_detection])
    is_seen = (mjd >= first[objects] - DAYS_BEFORE_ALERT) & (mjd <= last[objects])
    return is_seen & ((flags & SATURATED) == 0)


class _Points(NamedTuple):
    """The points of one file; `objects` is an index into the objects' names."""

    names: list[str]
    objects: Int64[np.ndarray, "p"]
    mjd: Float64[np.ndarray, "p"]
    bands: Int64[np.ndarray, "p"]
    flux: Float[np.ndarray, "p"]
    flux_error: Float[np.ndarray, "p"]
    flags: Int64[np.ndarray, "p"]


def _sources(folder: Path) -> list[tuple[str, Path]]:
    """Every HEAD or Parquet file with the model it belongs to."""
    sources = []
    for path in sorted(folder.rglob("*")):
        if re.search(r"_HEAD\.FITS(\.gz)?$", path.name, re.IGNORECASE):
            model = re.sub(r"^ELASTICC_TRAIN(FIX)?_", "", path.parent.name)
        elif path.suffix == ".parquet":
            model = path.stem
        else:
            continue
        if model not in CLASS_OF_MODEL:
            raise ValueError(f"{path} belongs to no known model: {model!r} is not among {sorted(CLASS_OF_MODEL)}")
        sources.append((model, path))
    if not sources:
        raise MissingFile(
            f"there is no light curve in {folder}; download the folders ELASTICC_TRAIN_<model> from {HOMEPAGE} and put "
            "them there"
        )
    return sources


def _fits_points(path: Path) -> _Points:
    head = read_table(path, ("SNID", "PTROBS_MIN", "PTROBS_MAX"))
    pair = path.with_name(re.sub("_HEAD(?=[.][^_]*$)", "_PHOT", path.name))
    if not pair.exists():
        raise MissingFile(f"cannot find {pair}, which holds the points of {path.name}")
    table = read_table(pair, POINT_COLUMNS)
    first, last = head["PTROBS_MIN"].astype(np.int64) - 1, head["PTROBS_MAX"].astype(np.int64)
    wrong = (first < 0) | (last < first) | (last > len(table["MJD"]))
    if wrong.any():
        raise ValueError(f"{path}, row {int(wrong.argmax()) + 1}: its points lie outside {pair.name}")
    lengths = last - first
    objects = np.repeat(np.arange(len(first)), lengths)
    rows = np.arange(len(objects)) + np.repeat(first - np.cumsum(lengths) + lengths, lengths)
    names = [_text(snid) for snid in head["SNID"].tolist()]
    return _checked(pair, names, objects, {name: column[rows] for name, column in table.items()})


def read_table(path: Path, columns: Sequence[str]) -> dict[str, np.ndarray]:
    """The named columns of the first binary table in a .FITS or .FITS.gz file, one value for each row."""
    require_extra("experiments", "reading FITS files needs", "astropy")
    from astropy.io import fits
    from astropy.utils.exceptions import AstropyUserWarning

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", AstropyUserWarning)  # of what is cut off astropy warns, and goes on
            content = BoundedGzip(path) if path.suffix == ".gz" else path.open("rb")
            with content, fits.open(content, memmap=False) as parts:
                table = next((part for part in parts if isinstance(part, fits.BinTableHDU)), None)
                arrays = {} if table is None else {name: np.asarray(table.data[name]) for name in table.columns.names}
    except Exception as error:  # astropy and the decoders that it asks raise what they like
        raise ValueError(f"cannot read {path}: {' '.join(str(error).split())}") from None
    if table is None:
        raise ValueError(f"{path} holds no binary table, or is cut off before its end")
    if table.columns.dtype.itemsize != table.header["NAXIS1"]:
        raise ValueError(f"{path} is damaged: its columns are not as wide as its rows")
    if absent := [name for name in columns if name not in arrays]:
        raise ValueError(f"{path} lacks the columns {absent}; it has {list(arrays)}")
    for name in columns:
        if arrays[name].ndim != 1:
            raise ValueError(f"{path}: column {name} has more than one value in a row, which is not read here")
    return {name: arrays[name].astype(arrays[name].dtype.newbyteorder("=")) for name in columns}


def _parquet_points(path: Path) -> _Points:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path, pre_buffer=False) as file:
            names = file.schema_arrow.names
            if absent := [name for name in ("SNID", *POINT_COLUMNS) if name not in names]:
                raise ValueError(f"{path} lacks the columns {absent}; it has {names}")
            table = file.read(["SNID", *POINT_COLUMNS])
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"cannot read {path}: {error}") from None
    for name in table.column_names:
        if table[name].null_count:
            raise ValueError(f"{path}: {name} has {table[name].null_count} empty cells")
    columns = {name: table[name].to_numpy() for name in POINT_COLUMNS}
    snids, objects = np.unique(table["SNID"].to_numpy(), return_inverse=True)
    return _checked(path, [_text(snid) for snid in snids.tolist()], objects, columns)


def _text(word: object) -> str:
    return (word.decode("latin-1") if isinstance(word, bytes) else str(word)).strip()


def _checked(path: Path, names: list[str], objects: Int64[np.ndarray, "p"], columns: dict[str, Any]) -> _Points:
    """The points with their bands as indices, once every number is known to be finite."""
    numbers = {}
    for name in ("MJD", "FLUXCAL", "FLUXCALERR"):
        try:
            numbers[name] = columns[name].astype(np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"{path}: {name} does not hold numbers") from None
        if not np.isfinite(numbers[name]).all():
            place = int((~np.isfinite(numbers[name])).argmax())
            raise ValueError(f"{path}: {name} of object {names[objects[place]]} is {numbers[name][place]}")
    words, word_of_point = np.unique(columns["BAND"], return_inverse=True)
    letters = [_text(word).removeprefix("LSST-").replace("y", "Y") for word in words.tolist()]
    if unknown := [letter for letter in letters if letter not in tuple(BANDS)]:
        raise ValueError(f"{path}: BAND is {unknown[0]!r}, which is none of {', '.join(BANDS)}")
    bands = np.array([BANDS.index(letter) for letter in letters], dtype=np.int64)[word_of_point]
    if columns["PHOTFLAG"].dtype.kind not in "iu":
        raise ValueError(f"{path}: PHOTFLAG does not hold whole numbers")
    flags = columns["PHOTFLAG"].astype(np.int64)
    return _Points(names, objects, numbers["MJD"], bands, numbers["FLUXCAL"], numbers["FLUXCALERR"], flags)


def check(folder: Path) -> str:
    """Read everything that is there and say what it is; a part of the 32 models is allowed."""
    models, n_objects, n_points = {model for model, _ in _sources(folder)}, 0, 0
    for sample in stream(alerts_only=False, folder=folder):
        n_objects, n_points = n_objects + 1, n_points + len(sample)
    n_classes = len({CLASS_OF_MODEL[model] for model in models})
    return f"{n_objects} objects, {n_points} points, {len(models)} of 32 models in {n_classes} of 20 classes"


DATASETS = (
    DataSet(
        name="elasticc",
        title="ELAsTiCC, training sample: simulated light curves and alerts of the Rubin observatory in six bands",
        files=(),
        licence="public; see the page of the challenge",
        citation="Narayan et al., The Extended LSST Astronomical Time-series Classification Challenge (2023)",
        homepage=HOMEPAGE,
        check=check,
    ),
)

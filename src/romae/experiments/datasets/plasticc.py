"""PLAsTiCC: simulated light curves in six bands. The training set, with its 7 848 objects of 14 classes."""

import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from romae.experiments.datasets.catalogue import DataFile, DataSet, Labelled, hint
from romae.experiments.datasets.files import BoundedGzip, MissingFile, data_root, shortened
from romae.experiments.datasets.light_curves import BANDS, light_curves

# The codes of the challenge and what they stood for; the class index is the place in this table.
CLASSES = {
    6: "single microlensing",
    15: "tidal disruption event",
    16: "eclipsing binary",
    42: "supernova II",
    52: "supernova Iax",
    53: "Mira",
    62: "supernova Ibc",
    64: "kilonova",
    65: "M-dwarf flare",
    67: "supernova Ia-91bg",
    88: "active galactic nucleus",
    90: "supernova Ia",
    92: "RR Lyrae",
    95: "superluminous supernova I",
}

_ADDRESS = "https://zenodo.org/records/2539456/files"
FILES = tuple(
    DataFile(path=name, url=f"{_ADDRESS}/{name}?download=1", unpacked=name.removesuffix(".gz"))
    for name in ("plasticc_train_lightcurves.csv.gz", "plasticc_train_metadata.csv.gz")
)
WHOLE_NUMBERS = ("object_id", "passband", "target")


def load(*, folder: Path | None = None) -> Labelled:
    """One sample per object, in the order of their numbers; flux and its error are in the data's own units."""
    folder = folder or data_root() / "plasticc"
    points = _read(FILES[0], folder, ["object_id", "mjd", "passband", "flux", "flux_err"])
    about = _read(FILES[1], folder, ["object_id", "target"]).sort_values("object_id")
    ids, codes = about["object_id"].to_numpy(np.int64), about["target"].to_numpy(np.int64)
    if len(twice := ids[1:][np.diff(ids) == 0]):
        raise ValueError(f"{folder / FILES[1].path} lists object {twice[0]} more than once")
    if len(unknown := np.setdiff1d(codes, list(CLASSES))):
        raise ValueError(f"{folder / FILES[1].path} has the class {unknown[0]}, which is not among {list(CLASSES)}")
    objects, bands = points["object_id"].to_numpy(np.int64), points["passband"].to_numpy(np.int64)
    if len(outside := np.flatnonzero((bands < 0) | (bands >= len(BANDS)))):
        raise ValueError(f"{folder / FILES[0].path}, row {outside[0] + 1}: there is no band {bands[outside[0]]}")
    if len(strange := np.setdiff1d(objects, ids)):
        raise ValueError(f"object {strange[0]} has points but no row in {folder / FILES[1].path}")
    if len(empty := np.setdiff1d(ids, objects)):
        raise ValueError(f"object {empty[0]} has no point in {folder / FILES[0].path}")
    index_of = {code: i for i, code in enumerate(CLASSES)}
    samples = light_curves(
        np.searchsorted(ids, objects),
        points["mjd"].to_numpy(np.float64),
        bands,
        points["flux"].to_numpy(np.float64),
        points["flux_err"].to_numpy(np.float64),
        [index_of[code] for code in codes.tolist()],
        ids.tolist(),
    )
    return Labelled(samples, tuple(CLASSES.values()))


def _read(file: DataFile, folder: Path, columns: Sequence[str]) -> pd.DataFrame:
    """Columns of a table, or of the same table unpacked; every one must be finite numbers."""
    path = folder / file.path
    path = path if path.exists() else path.with_suffix("")
    if not path.exists():
        raise MissingFile(f"cannot find {folder / file.path}; {hint(file, folder)}")
    try:
        with BoundedGzip(path) if path.suffix == ".gz" else path.open("rb") as content:
            table = pd.read_csv(content, skipinitialspace=True, usecols=lambda name: name.strip() in columns)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise ValueError(f"cannot read {path}: {error}") from None
    if absent := [name for name in columns if name not in table]:
        raise ValueError(f"{path} lacks the columns {absent}; is it the file that the challenge published?")
    for name in columns:
        numbers = pd.to_numeric(table[name], errors="coerce").to_numpy(np.float64)
        is_bad = ~np.isfinite(numbers) | ((numbers % 1 != 0) & (name in WHOLE_NUMBERS))
        if is_bad.any():
            row, expected = int(is_bad.argmax()), "a whole number" if name in WHOLE_NUMBERS else "a finite number"
            raise ValueError(
                f"{path}, row {row + 1}: {name} is {shortened(str(table[name].iloc[row]))}, which is not {expected}"
            )
        table[name] = numbers
    return table


def check(folder: Path) -> str:
    """Read everything and compare with the published counts."""
    samples, class_names = load(folder=folder)
    n_points = sum(len(sample) for sample in samples)
    n_classes = len({int(sample.target) for sample in samples})
    if (len(samples), n_points, n_classes) != (7848, 1421705, 14):
        raise ValueError(
            f"{folder} has {len(samples)} objects, {n_points} points and {n_classes} classes instead of 7848, "
            "1421705 and 14"
        )
    return f"{len(samples)} objects, {n_points} points, {n_classes} classes, {len(BANDS)} bands"


DATASETS = (
    DataSet(
        name="plasticc",
        title="PLAsTiCC, training set: simulated light curves of the Rubin observatory in six bands",
        files=FILES,
        licence="Creative Commons Attribution 4.0",
        citation="The PLAsTiCC team and the modelers, Unblinded data for PLAsTiCC, doi 10.5281/zenodo.2539456 (2019)",
        homepage="https://zenodo.org/records/2539456",
        check=check,
    ),
)

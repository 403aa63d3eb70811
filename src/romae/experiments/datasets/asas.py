"""ASAS: light curves of 13 909 variable stars in the V band, in 10 classes.

The reader takes one file, `asas.npz`: the points of all stars end to end (`time` in days, `mag`, `err`) and, for each
star, `id`, `label` and `length`. A star becomes a sample with one token per point that holds magnitude and error; the
position is the time in days since the star's first point. Classes are sorted by name.
Shapes: o stars, p points of all stars.
"""

import zipfile
from pathlib import Path

import numpy as np

from romae.data.schema import Schema
from romae.experiments.datasets.catalogue import Labelled
from romae.experiments.datasets.files import MissingFile, data_root, require_bounded_zip
from romae.tokens.sample import Sample

FILE = "asas.npz"
OF_STARS, OF_POINTS = ("id", "label", "length"), ("time", "mag", "err")


def load(*, fewest: int = 1, folder: Path | None = None) -> Labelled:
    """One sample per star, in the order of the file; classes with fewer than `fewest` stars are left out."""
    path = (folder or data_root() / "asas") / FILE
    arrays = _read(path)
    names, counts = np.unique(arrays["label"], return_counts=True)
    names = names[counts >= fewest]
    schema = Schema(id="star", time="days", values=("magnitude", "error"), label="class", classes=tuple(names.tolist()))
    ends = np.cumsum(arrays["length"])
    samples = []
    for star, label, end, n in zip(arrays["id"], arrays["label"], ends, arrays["length"], strict=True):
        if label not in names:
            continue
        part = slice(end - n, end)
        days = arrays["time"][part] - arrays["time"][part].min()
        values = np.stack([arrays["mag"][part], arrays["err"][part]], axis=1)
        target = int(np.searchsorted(names, label))
        samples.append(Sample(values, days[:, None], target=target, id=str(star)).with_schema(schema))
    return Labelled(samples, tuple(names.tolist()))


def _read(path: Path) -> dict[str, np.ndarray]:
    """The arrays of the file, if they fit together."""
    if not path.is_file():
        raise MissingFile(f"cannot find {path}; put the arrays {', '.join((*OF_STARS, *OF_POINTS))} of all stars there")
    try:
        require_bounded_zip(path)
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in (*OF_STARS, *OF_POINTS)}
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(f"cannot read {path} as light curves of ASAS: {error}; take a copy that is whole") from None
    lengths = arrays["length"]
    if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or len(lengths) == 0 or lengths.min() < 1:
        raise ValueError(f"{path}: length must be the number of points of each star, at least 1")
    for names, n in ((OF_STARS, len(lengths)), (OF_POINTS, int(lengths.sum()))):
        for name in names:
            if arrays[name].shape != (n,):
                raise ValueError(f"{path}: {name} has shape {list(arrays[name].shape)} instead of [{n}]")
    for name in OF_POINTS:
        if arrays[name].dtype.kind != "f" or not np.isfinite(arrays[name]).all():
            raise ValueError(f"{path}: {name} must be finite numbers")
    return arrays

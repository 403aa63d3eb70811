"""ASAS: 13 909 variable stars of ten classes, their brightness in the V band over some 2 500 days.

A token is (magnitude, its error), its position the days since the star's first point. The one file is `asas.npz`:
identifiers, classes and lengths of the stars, and times (heliocentric Julian days), magnitudes and errors of all points
end to end. `periods.npz`, which `save_periods` writes beside it, spares the machine that reads it the search for them.

Experiments hide points and find periods in what is left: `shown` says what that is, `peaks` finds them. That takes a
quarter of an hour of a core for each share of the points, so that it is done once:

    python -m romae.experiments.datasets.asas --share 1 0.7 0.5     writes peaks.npz beside the light curves
    python -m romae.experiments.datasets.asas --out FOLDER          the same elsewhere, to be carried to another machine

The file says of which points its periods are. Those of other points are looked for when they are asked for.

Shapes: s stars, p points of all stars.
"""

import argparse
import sys
import zipfile
import zlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Float32, Float64
from joblib import Parallel, delayed
from rich.console import Console
from rich.progress import track

from romae.data.periodogram import Peak
from romae.data.periods import find_periods
from romae.data.schema import SampleSet, Schema
from romae.experiments.datasets.catalogue import DataSet, Labelled
from romae.experiments.datasets.files import MissingFile, data_root, require_bounded_zip
from romae.extras import require_extra
from romae.files import write_whole
from romae.tokens.masking import UniformTokens, hide
from romae.tokens.sample import Sample

FILE, PERIODS, PEAKS = "asas.npz", "periods.npz", "peaks.npz"
SCHEMA = Schema(id="star", time="days", values=("magnitude",), errors=("error",))
SHARES = (1.0, 0.7, 0.5)  # of the points of a star that the recipes show
PER_STAR, PER_POINT = ("id", "label", "length"), ("time", "mag", "err")
N_STARS, N_POINTS, N_CLASSES = 13_909, 6_334_240, 10
LONGEST, SHORTEST = 500.0, 0.1  # days, of periods that are looked for
MANY = 64  # stars, whose periods are worth the start of processes
AT_ONCE = 7  # stars that a process is given; of so few `find_periods` makes no threads


def load(*, folder: Path | None = None) -> Labelled:
    """One sample per star, in the order of the file, with its class as the target; classes are in order of names."""
    folder = folder or data_root() / "asas"
    path = folder / FILE
    if not path.exists():
        raise MissingFile(f"cannot find {path}; put the light curves of the stars there")
    try:
        require_bounded_zip(path)
        with np.load(path, allow_pickle=False) as arrays:
            stars, points = ({name: arrays[name] for name in names} for names in (PER_STAR, PER_POINT))
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(f"cannot read {path}: {error}") from None
    lengths = stars["length"]
    for name, column in {**stars, **points}.items():
        n = len(lengths) if name in PER_STAR else int(lengths.sum())
        if column.shape != (n,):
            raise ValueError(f"{path}: {name} has the shape {list(column.shape)}, and there are {n} of them")
        if name in PER_POINT and not np.isfinite(column).all():
            raise ValueError(f"{path}: {name} has values that are no finite numbers")
    if (lengths < 1).any():
        raise ValueError(f"{path}: star {stars['id'][(lengths < 1).argmax()]} has no point")
    names, classes = np.unique(stars["label"], return_inverse=True)
    ends = np.cumsum(lengths)
    first = np.repeat(ends - lengths, lengths)
    days = np.split((points["time"] - points["time"][first])[:, None], ends[:-1])
    values = np.split(np.stack([points["mag"], points["err"]], axis=1).astype(np.float32), ends[:-1])
    samples = [
        Sample(values[i], days[i], target=int(classes[i]), id=str(star)) for i, star in enumerate(stars["id"].tolist())
    ]
    return Labelled(samples, tuple(map(str, names.tolist())))


def periods(samples: Sequence[Sample], *, folder: Path | None = None) -> Float64[np.ndarray, "s"]:
    """The period of each star in days: the highest peak of its Lomb-Scargle periodogram.

    They come from the file that `save_periods` has written, where it is there and knows all of the stars.
    """
    path = (folder or data_root() / "asas") / PERIODS
    if path.exists():
        with np.load(path, allow_pickle=False) as arrays:
            known = dict(zip(arrays["id"].tolist(), arrays["period"].tolist(), strict=True))
        if all(sample.id in known for sample in samples):
            return np.array([known[sample.id] for sample in samples])
    return _found(samples)


def save_periods(samples: Sequence[Sample], folder: Path) -> Path:
    """Find the periods of stars and write them, for `periods`."""
    found = _found(samples)
    ids = np.array([str(sample.id) for sample in samples])
    path = folder / PERIODS

    def write(to: Path) -> None:
        with to.open("wb") as file:  # a bare path would get a suffix of numpy's own
            np.savez_compressed(file, id=ids, period=found)

    write_whole(path, write)
    return path


def _found(samples: Sequence[Sample]) -> Float64[np.ndarray, "s"]:
    """The periods of stars, of many in processes: a star takes about a second."""
    require_extra("experiments", "periods of stars are found with", "astropy")
    stars = [(sample.positions[:, 0].numpy(), sample.values.double().numpy()) for sample in samples]
    n_jobs = 1 if len(stars) < MANY else -1
    return np.array(Parallel(n_jobs=n_jobs)(delayed(_period)(star) for star in stars))


def _period(star: tuple[Float64[np.ndarray, "n"], Float64[np.ndarray, "n 2"]]) -> float:
    from astropy.timeseries import LombScargle

    days, (magnitude, error) = star[0], star[1].T
    frequency, power = LombScargle(days, magnitude, error.clip(min=1e-3)).autopower(
        minimum_frequency=1 / LONGEST, maximum_frequency=1 / SHORTEST, samples_per_peak=5
    )
    return float(1 / frequency[power.argmax()])


def shown(samples: Sequence[Sample], share: float) -> list[Sample]:
    """The stars with all but this share of their points hidden.

    What is hidden of a star follows from its id alone: in each fold it is the same, and periods are looked for once.
    """
    if share == 1:
        return list(samples)
    numbers = [zlib.crc32(str(sample.id).encode()) for sample in samples]
    return hide(samples, UniformTokens(ratio=1 - share), 0, numbers)


def peaks(samples: Sequence[Sample], *, shortest: float = SHORTEST, folder: Path | None = None) -> pd.DataFrame:
    """The highest peak of the Lomb-Scargle periodogram of what is visible of each star, by `romae.find_periods`.

    A row for each star: `period` in days, NaN where there are too few points, `power`, `false_alarm` and `runner_up`.
    What `save_peaks` has written for these very points is taken from there. Periods down to a day or so are found in a
    tenth of the time.
    """
    path = (folder or data_root() / "asas") / PEAKS
    kept = _kept_peaks(path, path.stat().st_mtime_ns) if path.exists() and shortest == SHORTEST else {}
    keys = [_visible_points(sample) for sample in samples]
    missing = {key: sample for key, sample in zip(keys, samples, strict=True) if key not in kept}
    if missing:
        found = _peaks_of(list(missing.values()), shortest).to_numpy().tolist()
        kept = kept | dict(zip(missing, map(tuple, found), strict=True))
    rows = np.array([kept[key] for key in keys], dtype=np.float64)
    return pd.DataFrame(rows.reshape(-1, len(Peak._fields)), columns=list(Peak._fields))


def save_peaks(samples: Sequence[Sample], folder: Path, shares: Sequence[float] = SHARES) -> Path:
    """Find the peaks of stars of which these shares are shown, and write them, for `peaks`."""
    several = [star for share in shares for star in shown(samples, share)]
    found = _peaks_of(several, SHORTEST)
    ids, *sums = zip(*map(_visible_points, several), strict=True)
    path = folder / PEAKS

    def write(to: Path) -> None:
        with to.open("wb") as file:
            np.savez_compressed(file, id=np.array(ids), points=np.array(sums, dtype=np.float64), peaks=found.to_numpy())

    write_whole(path, write)
    return path


Points = tuple[str, float, float, float]  # the id of a star; how many points are visible, and the sums of both columns


def _visible_points(sample: Sample) -> Points:
    """What tells the visible points of a star from other points."""
    seen = slice(None) if sample.hidden is None else ~sample.hidden
    days, magnitudes = sample.positions[seen, 0].double(), sample.values[seen, 0].double()
    return str(sample.id), float(len(days)), round(float(days.sum()), 4), round(float(magnitudes.sum()), 4)


@cache
def _kept_peaks(path: Path, written: int) -> dict[Points, tuple[float, ...]]:
    """What the file holds that was `written` at this time."""
    try:
        require_bounded_zip(path)
        with np.load(path, allow_pickle=False) as arrays:
            ids, points, rows = (arrays[name] for name in ("id", "points", "peaks"))
        keys = zip(ids.tolist(), *points.tolist(), strict=True)
        return dict(zip(keys, map(tuple, rows.tolist()), strict=True))
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(f"cannot read {path}: {error}; remove it, and write it again with `save_peaks`") from None


def _peaks_of(samples: Sequence[Sample], shortest: float) -> pd.DataFrame:
    """The peaks of stars, of many in processes, each with one thread for its matrices: more are in each other's way."""
    stars = []
    for sample in samples:
        seen = slice(None) if sample.hidden is None else ~sample.hidden
        stars.append((sample.positions[seen, :1].double().numpy(), sample.values[seen].numpy()))
    parts = [stars[i : i + AT_ONCE] for i in range(0, len(stars), AT_ONCE)]
    processes = Parallel(n_jobs=1 if len(stars) < MANY else -1, return_as="generator")
    found = processes(delayed(_peaks_of_some)(part, shortest) for part in parts)
    if len(stars) >= MANY and sys.stderr.isatty():
        found = track(found, "periods", total=len(parts), console=Console(stderr=True), transient=True)
    return pd.concat(list(found), ignore_index=True)


def _peaks_of_some(
    stars: list[tuple[Float64[np.ndarray, "n 1"], Float32[np.ndarray, "n 2"]]], shortest: float
) -> pd.DataFrame:
    samples = SampleSet([Sample(values, days) for days, values in stars], SCHEMA)
    return find_periods(samples, shortest=shortest, longest=LONGEST, quiet=True)[list(Peak._fields)]


def check(folder: Path) -> str:
    """Read everything and compare with the counts of the file that was used here."""
    samples, class_names = load(folder=folder)
    n_points = sum(map(len, samples))
    if (len(samples), n_points, len(class_names)) != (N_STARS, N_POINTS, N_CLASSES):
        raise ValueError(
            f"{folder} has {len(samples)} stars, {n_points} points and {len(class_names)} classes instead of "
            f"{N_STARS}, {N_POINTS} and {N_CLASSES}"
        )
    return f"{len(samples)} stars, {n_points} points, {len(class_names)} classes"


DATASETS = (
    DataSet(
        name="asas",
        title="ASAS: light curves of variable stars in one band, ten classes",
        files=(),
        licence="free for research with citation",
        citation="Pojmanski, The All Sky Automated Survey, Acta Astronomica 52, 397 (2002)",
        homepage="https://www.astrouw.edu.pl/asas/",
        check=check,
    ),
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Find the periods that the recipes ask for, and write them."""
    parser = argparse.ArgumentParser(prog="python -m romae.experiments.datasets.asas", description=main.__doc__)
    parser.add_argument("--share", type=float, nargs="+", default=list(SHARES), help="shares of the points shown")
    parser.add_argument("--out", type=Path, help="the folder to write to, if not that of the light curves")
    given = parser.parse_args(arguments)
    try:
        print(f"written to {save_peaks(load().samples, given.out or data_root() / 'asas', given.share)}")
    except (ValueError, OSError) as error:
        print(f"romae: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()

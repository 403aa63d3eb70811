"""ASAS: 13 909 variable stars of ten classes, their brightness in the V band over some 2 500 days.

A token is (magnitude, its error), its position the days since the star's first point. The one file is `asas.npz`:
identifiers, classes and lengths of the stars, and times (heliocentric Julian days), magnitudes and errors of all points
end to end. `periods.npz`, which `save_periods` writes beside it, spares the machine that reads it the search for them.

Shapes: s stars, p points of all stars.
"""

import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float64
from joblib import Parallel, delayed

from romae.experiments.datasets.catalogue import DataSet, Labelled
from romae.experiments.datasets.files import MissingFile, data_root, require_bounded_zip
from romae.extras import require_extra
from romae.files import write_whole
from romae.tokens.sample import Sample

FILE, PERIODS = "asas.npz", "periods.npz"
PER_STAR, PER_POINT = ("id", "label", "length"), ("time", "mag", "err")
N_STARS, N_POINTS, N_CLASSES = 13_909, 6_334_240, 10
LONGEST, SHORTEST = 500.0, 0.1  # days, of periods that are looked for
MANY = 50  # stars, whose periods are worth the start of processes


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

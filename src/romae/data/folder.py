"""A folder of files, one sample each: images and audio are read through it.

The lengths of samples come from the headers of their files. For many files they are kept in the user's cache folder, so
that the next start only asks the system whether the files have changed.
"""

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
from jaxtyping import Int64

from romae.data.schema import Schema
from romae.data.sources import Indices, Source
from romae.files import cache_folder, write_whole
from romae.tokens.sample import Sample
from romae.tokens.tokens import PackedSamples

KEPT_FROM = 2_000  # files whose lengths are worth keeping: fewer headers are read within a second


@dataclass(frozen=True)
class Folder(Source):
    """The files of a folder as samples: each is read when it is asked for, and a slice is a smaller folder.

    A sample's id is its path within the folder. `targets` are indices into `class_names`. `measure` tells the number of
    tokens of a file from its header; without it each file is read once for that.
    """

    root: Path
    files: tuple[Path, ...]
    read: Callable[..., Sample]
    targets: tuple[int, ...] | None = None
    class_names: tuple[str, ...] = ()
    measure: "partial[int] | None" = None

    @classmethod
    def of(
        cls,
        root: str | Path,
        suffixes: Sequence[str],
        read: Callable[..., Sample],
        *,
        has_classes: bool,
        classes: Sequence[str] | None = None,
        measure: "partial[int] | None" = None,
    ) -> "Folder":
        """The files with one of these suffixes in a folder and all folders in it, in the order of their names.

        Names that start with a dot are passed over, and links are followed where they lie directly inside. With
        `has_classes` each folder directly inside is a class, also an empty one. Classes are sorted by name, unless
        `classes` names them in the order of training.
        """
        root = Path(root)
        if not root.is_dir():
            raise ValueError(f"{root} is not a folder")
        if classes is not None and not has_classes:
            raise ValueError("classes= is for folders of classes; say has_classes=True as well")
        folders = [path for path in root.iterdir() if path.is_dir() and not path.name.startswith(".")]
        # As lists of names, which compare like paths, but a hundred times as fast.
        parts = sorted(_files_in(root, folders, tuple(suffixes)))
        if not parts:
            raise ValueError(f"{root} holds no file that ends in {', '.join(suffixes)}")
        files = tuple(root.joinpath(*names) for names in parts)
        if not has_classes:
            return cls(root, files, read, measure=measure)
        for names, path in zip(parts, files, strict=True):
            if len(names) == 1:
                raise ValueError(f"{path} lies in no class: with has_classes each file is in the folder of its class")
        class_names = _class_names([path.name for path in folders], classes)
        index = {name: i for i, name in enumerate(class_names)}
        return cls(root, files, read, tuple(index[names[0]] for names in parts), class_names, measure)

    def map(self, change: Callable[[Sample], Sample]) -> "Folder":
        """The same files with every sample changed after it is read, also in its length."""
        return replace(self, read=_ReadAndChange(self.read, change), measure=None)

    @property
    def schema(self) -> Schema | None:  # type: ignore[override]
        """A folder names its classes by `class_names`, and has no columns."""
        return None

    @cached_property
    def lengths(self) -> Int64[np.ndarray, "n"]:  # type: ignore[override]
        """The tokens of each file, from its header."""
        if self.measure is None:
            return np.array([len(self[i]) for i in range(len(self))], dtype=np.int64)
        return _file_lengths(self.root, self.files, self.measure)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        if isinstance(index, slice):
            targets = None if self.targets is None else self.targets[index]
            return replace(self, files=self.files[index], targets=targets)
        path = self.files[index]
        target = None if self.targets is None else self.targets[index]
        return self.read(path, target=target, id=path.relative_to(self.root).as_posix())

    def packed(self, indices: Indices) -> PackedSamples:
        samples = [self[int(i)] for i in indices]
        for i, sample in zip(indices.tolist(), samples, strict=True):
            if len(sample) != self.lengths[i]:
                raise ValueError(
                    f"{self.files[i]} has {len(sample)} tokens where its header promised {self.lengths[i]}; it has "
                    "changed since, or is damaged"
                )
        return PackedSamples.of(samples)

    def digest(self) -> str:
        """What tells these files from others: their names, their sizes, when they were changed, and their classes."""
        digest = hashlib.sha256("\n".join(path.relative_to(self.root).as_posix() for path in self.files).encode())
        digest.update(_stamps(self.files).tobytes())
        digest.update(repr((self.targets, self.class_names)).encode())
        return digest.hexdigest()


@dataclass(frozen=True)
class _ReadAndChange:
    """Read a sample and change it, also in a worker process."""

    read: Callable[..., Sample]
    change: Callable[[Sample], Sample]

    def __call__(self, path: Path, **arguments: Any) -> Sample:
        return self.change(self.read(path, **arguments))


def _files_in(root: Path, folders: Sequence[Path], suffixes: tuple[str, ...]) -> list[list[str]]:
    """The names on the way to each file with one of these endings, none of which begins with a dot.

    By os.walk, which asks the system for the files of a folder at once: a million files take seconds, not minutes.
    """
    files = [[path.name] for path in root.iterdir() if _is_wanted(path.name, suffixes) and path.is_file()]
    for folder in folders:
        for place, inner, names in os.walk(folder):
            inner[:] = [name for name in inner if not name.startswith(".")]
            way = Path(place).relative_to(root).parts
            files += [[*way, name] for name in names if _is_wanted(name, suffixes)]
    return files


def _is_wanted(name: str, suffixes: tuple[str, ...]) -> bool:
    return not name.startswith(".") and name.lower().endswith(suffixes)


def _class_names(folders: Sequence[str], training: Sequence[str] | None) -> tuple[str, ...]:
    """The names of the folders in order, or the classes of training, if all folders are among them."""
    if training is None:
        return tuple(sorted(folders))
    if isinstance(training, str):
        raise TypeError(f"classes must be a list of names, not {training!r}")
    if len(set(training)) != len(training):
        raise ValueError(f"classes must be different names, not {list(training)}")
    for name in sorted(folders):
        if name not in training:
            raise ValueError(f"the folder {name} is none of the classes; known are {list(training)}")
    return tuple(training)


def _stamps(files: Sequence[Path]) -> Int64[np.ndarray, "n 2"]:
    """The size of each file and the time of its last change, which a header that was read before still belongs to."""
    stats = [os.stat(path) for path in files]
    return np.array([(stat.st_size, stat.st_mtime_ns) for stat in stats], dtype=np.int64)


def _file_lengths(root: Path, files: Sequence[Path], measure: "partial[int]") -> Int64[np.ndarray, "n"]:
    """The tokens of each file, of which those that have not changed are not opened again."""
    if len(files) < KEPT_FROM:
        return np.array([measure(path) for path in files], dtype=np.int64)
    settings = f"{measure.func.__module__}.{measure.func.__qualname__} {sorted(measure.keywords.items())!r}"
    names = hashlib.sha256("\n".join(map(str, files)).encode()).hexdigest()
    key = hashlib.sha256(f"{root.resolve()}\n{settings}\n{names}".encode()).hexdigest()
    kept, stamps = cache_folder() / "lengths" / f"{key[:32]}.npy", _stamps(files)
    rows = np.zeros((len(files), 3), dtype=np.int64)  # size, time of change, length
    try:
        before = np.load(kept, allow_pickle=False)
        rows = before if before.shape == rows.shape and before.dtype == rows.dtype else rows
    except (OSError, ValueError, EOFError):
        pass  # none are kept, or not whole: all headers are read
    changed = np.flatnonzero((rows[:, :2] != stamps).any(1))
    if len(changed):
        rows = rows.copy()
        rows[:, :2] = stamps
        rows[changed, 2] = [measure(files[i]) for i in changed.tolist()]
        try:
            write_whole(kept, lambda to: _save(to, rows))
        except OSError:
            pass  # a cache that cannot be written costs time, not answers
    return rows[:, 2]


def _save(path: Path, rows: Int64[np.ndarray, "n 3"]) -> None:
    with path.open("wb") as file:
        np.save(file, rows)

"""How a data set describes itself: what it is, the files it needs, where they come from, and how to check them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from romae.experiments.datasets.files import MissingFile, data_root, download, extract, is_filled, verify_file
from romae.tokens.sample import Sample


class Labelled(NamedTuple):
    """Samples whose target is a class index, and the names of the classes in that order."""

    samples: list[Sample]
    class_names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A file of a data set; size and checksum are None where the publisher does not give them.

    `path` lies in the data set's folder. `unpacked` is what the archive leaves there when unpacked beside itself:
    a reader that finds this does not need the archive. With `unpack`, `DataSet.get` unpacks it.
    """

    path: str
    url: str
    size: int | None = None
    sha256: str | None = None
    unpacked: str | None = None
    unpack: bool = False

    def is_in(self, folder: Path) -> bool:
        """Whether a reader finds what it needs there."""
        has_unpacked = self.unpacked is not None and is_filled(folder / self.unpacked)
        return has_unpacked or (not self.unpack and (folder / self.path).exists())


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """A public data set, for `romae data list | get | check`.

    `check(folder)` reads the files, compares counts with the published ones, and returns a short report; it raises
    ValueError where they differ. `folder` is the data set's folder under the data root; by default it is the name.
    """

    name: str
    title: str
    files: tuple[DataFile, ...]
    licence: str
    citation: str
    homepage: str
    check: Callable[[Path], str] = field(repr=False)
    folder: str = ""

    @property
    def home(self) -> Path:
        return data_root() / (self.folder or self.name)

    def missing(self, folder: Path | None = None) -> list[DataFile]:
        """The files that are not there yet."""
        return [file for file in self.files if not file.is_in(folder or self.home)]

    def is_present(self, folder: Path | None = None) -> bool:
        """Whether its files are there, as far as one can say without reading them."""
        return (folder or self.home).is_dir() and not self.missing(folder)

    def get(self, folder: Path | None = None, report: Callable[[str, int, int | None], None] | None = None) -> Path:
        """Download what is missing, unpack what must be, and return the folder.

        `report` is called with a file's name, the bytes so far and the bytes in all, where they are known.
        """
        folder = folder or self.home
        if not self.files:
            raise ValueError(f"{self.name} has no fixed list of files; take them from {self.homepage} to {folder}")
        for file in self.missing(folder):
            target = folder / file.path
            progress = None if report is None else lambda n, total, name=file.path: report(name, n, total)
            download(file.url, target, file.size, file.sha256, progress)
            if file.unpack:
                extract(target, target.parent)
        return folder

    def verify(self, folder: Path | None = None) -> str:
        """Check that the files are there, their sizes and checksums where known, and their content."""
        folder = folder or self.home
        if absent := self.missing(folder):
            raise MissingFile(f"{self.name} is not complete: {'; '.join(hint(file, folder) for file in absent)}")
        for file in self.files:
            if (folder / file.path).exists():
                verify_file(folder / file.path, file.size, file.sha256)
        return self.check(folder)


def hint(file: DataFile, folder: Path) -> str:
    """Which file to put where, for messages."""
    return f"download {file.url} and put it at {folder / file.path}"

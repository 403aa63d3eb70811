"""A folder of files, one sample each: images and audio are read through it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, SupportsIndex

from romae.tokens.sample import Sample


@dataclass(frozen=True)
class Folder(Sequence):  # of samples; were that said here, a type checker at run time would read files
    """The files of a folder as samples: each is read when it is asked for, and a slice is a smaller folder.

    A sample's id is its path within the folder. `targets` are indices into `class_names`.
    """

    root: Path
    files: tuple[Path, ...]
    read: Callable[..., Sample]
    targets: tuple[int, ...] | None = None
    class_names: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        root: str | Path,
        suffixes: Sequence[str],
        read: Callable[..., Sample],
        *,
        has_classes: bool,
        classes: Sequence[str] | None = None,
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
        paths = chain(root.glob("*"), *(folder.rglob("*") for folder in folders))
        files = tuple(sorted(path for path in paths if _is_sample(path, root, suffixes)))
        if not files:
            raise ValueError(f"{root} holds no file that ends in {', '.join(suffixes)}")
        if not has_classes:
            return cls(root, files, read)
        for path in files:
            if path.parent == root:
                raise ValueError(f"{path} lies in no class: with has_classes each file is in the folder of its class")
        class_names = _class_names([path.name for path in folders], classes)
        index = {name: i for i, name in enumerate(class_names)}
        targets = tuple(index[path.relative_to(root).parts[0]] for path in files)
        return cls(root, files, read, targets, class_names)

    def map(self, change: Callable[[Sample], Sample]) -> "Folder":
        """The same files with every sample changed after it is read."""
        return replace(self, read=_Then(self.read, change))

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        if isinstance(index, slice):
            targets = None if self.targets is None else self.targets[index]
            return replace(self, files=self.files[index], targets=targets)
        path = self.files[index]
        target = None if self.targets is None else self.targets[index]
        return self.read(path, target=target, id=path.relative_to(self.root).as_posix())


@dataclass(frozen=True)
class _Then:
    """Read a sample and change it, also in a worker process."""

    read: Callable[..., Sample]
    change: Callable[[Sample], Sample]

    def __call__(self, path: Path, **told: Any) -> Sample:
        return self.change(self.read(path, **told))


def _is_sample(path: Path, root: Path, suffixes: Sequence[str]) -> bool:
    """Whether this is a file with one of the suffixes that no dot hides below the root."""
    if path.suffix.lower() not in suffixes or not path.is_file():
        return False
    return not any(part.startswith(".") for part in path.relative_to(root).parts)


def _class_names(found: Sequence[str], known: Sequence[str] | None) -> tuple[str, ...]:
    """The names of the folders in order, or the known classes, if all folders are among them."""
    if known is None:
        return tuple(sorted(found))
    if isinstance(known, str):
        raise TypeError(f"classes must be a list of names, not {known!r}")
    if len(set(known)) != len(known):
        raise ValueError(f"classes must be different names, not {list(known)}")
    for name in sorted(found):
        if name not in known:
            raise ValueError(f"the folder {name} is none of the classes; known are {list(known)}")
    return tuple(known)

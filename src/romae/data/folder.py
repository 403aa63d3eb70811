"""A folder of files, one sample each: images and audio are read through it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, SupportsIndex

from romae.tokens import Sample


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
        cls, root: str | Path, suffixes: Sequence[str], read: Callable[..., Sample], *, has_classes: bool
    ) -> "Folder":
        """The files with one of these suffixes in a folder and all folders in it, in the order of their names."""
        root = Path(root)
        if not root.is_dir():
            raise ValueError(f"{root} is not a folder")
        files = tuple(
            path
            for path in sorted(root.rglob("*"))
            if path.suffix.lower() in suffixes and not path.name.startswith(".") and path.is_file()
        )
        if not files:
            raise ValueError(f"{root} holds no file that ends in {', '.join(suffixes)}")
        if not has_classes:
            return cls(root, files, read)
        for path in files:
            if path.parent == root:
                raise ValueError(f"{path} lies in no class: with has_classes each file is in the folder of its class")
        classes = [path.relative_to(root).parts[0] for path in files]
        class_names = tuple(sorted(set(classes)))
        index = {name: i for i, name in enumerate(class_names)}
        return cls(root, files, read, tuple(index[name] for name in classes), class_names)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        if isinstance(index, slice):
            targets = None if self.targets is None else self.targets[index]
            return replace(self, files=self.files[index], targets=targets)
        path = self.files[index]
        target = None if self.targets is None else self.targets[index]
        return self.read(path, target=target, id=path.relative_to(self.root).as_posix())

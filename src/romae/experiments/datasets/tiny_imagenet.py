"""Tiny ImageNet-200: 100 000 colour images of 64 x 64 pixels in 200 classes, and 10 000 more as the validation set.

The reader takes the public folders: `train/<wnid>/images/*.JPEG`, `val/images/*.JPEG`, `val/val_annotations.txt`,
`wnids.txt` and `words.txt`. Grey files are converted to colour. A class is the index of its WordNet id among the
sorted ids. `pack` puts the same files end to end into a few that are easily moved, byte for byte, and the reader takes
those as well. Shapes: r images, h height, w width.
"""

import os
import tempfile
import zipfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Int64, UInt8

from romae.data.images import Statistic, from_image
from romae.data.pixels import Pixels
from romae.experiments.datasets.catalogue import DataFile, DataSet, hint
from romae.experiments.datasets.files import MissingFile, data_root, require_bounded_zip
from romae.tokens.sample import Sample

Split = Literal["train", "val"]

SIZE = 64
N_CLASSES = 200
N_IMAGES = {"train": 100_000, "val": 10_000}
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, as the paper has them


@dataclass(frozen=True, eq=False)
class Pictures:
    """The images of a split, their classes and their names (`n01443537_0.JPEG`); class i is `class_names[i]`."""

    images: UInt8[np.ndarray, "r h w 3"]
    targets: Int64[np.ndarray, "r"]
    names: tuple[str, ...]
    class_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.images)

    def sample(
        self,
        index: int,
        patch: Sequence[int],
        *,
        size: tuple[int, int] | None = None,
        mean: Statistic = MEAN,
        std: Statistic = STD,
    ) -> Sample:
        """One image as a sample; `size` scales it first, for example to (224, 224)."""
        target, name = int(self.targets[index]), self.names[index]
        return from_image(self.images[index], patch, channels=-1, size=size, mean=mean, std=std, target=target, id=name)

    def samples(self, patch: tuple[int, int], *, size: tuple[int, int] | None = None) -> Pixels:
        """All images as samples, which are made as they are asked for; `size` scales them, and rounds to levels."""
        images, targets = torch.from_numpy(self.images), torch.from_numpy(self.targets)
        return Pixels(images=images, targets=targets, ids=self.names, patch=patch, size=size, mean=MEAN, std=STD)


def load(
    split: Split, *, folder: Path | None = None, n_classes: int | None = None, per_class: int | None = None
) -> Pictures:
    """The images of a split, or those of the first `n_classes` classes, or the first `per_class` of each class."""
    for name, n in (("n_classes", n_classes), ("per_class", per_class)):
        if n is not None and n < 1:
            raise ValueError(f"{name} must be at least 1, or None for all, not {n}")
    files = _files(split, folder)
    files = files.first(n_classes or len(files.class_names), per_class or len(files.names))
    images = np.empty((len(files.names), SIZE, SIZE, 3), dtype=np.uint8)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for i, image in enumerate(pool.map(_pixels, files.sources, files.names)):
            images[i] = image
    return Pictures(images, np.array(files.targets, dtype=np.int64), tuple(files.names), files.class_names)


def pack(split: Split, out: Path, *, folder: Path | None = None, part_bytes: int = 50_000_000) -> list[Path]:
    """Write the files of a split, byte for byte, to parts of about this size, and return them.

    `load` reads them from the folder `out`. All parts are written, or none.
    """
    if part_bytes < 1:
        raise ValueError(f"part_bytes must be at least 1, not {part_bytes}")
    files = _files(split, folder)
    contents = [_content(source) for source in files.sources]
    lengths = np.array([len(content) for content in contents])
    part = (np.cumsum(lengths) - 1) // part_bytes
    cuts = [0, *(np.flatnonzero(np.diff(part)) + 1).tolist(), len(contents)]
    written = []
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out, prefix=".packing-") as temporary:
            for number, (start, stop) in enumerate(zip(cuts[:-1], cuts[1:], strict=True), start=1):
                written.append(Path(temporary, f"{split}-{number}-of-{len(cuts) - 1}.npz"))
                np.savez(
                    written[-1],
                    content=np.frombuffer(b"".join(contents[start:stop]), dtype=np.uint8),
                    lengths=lengths[start:stop],
                    targets=np.array(files.targets[start:stop], dtype=np.int64),
                    names=np.array(files.names[start:stop]),
                    class_names=np.array(files.class_names),
                )
            for path in written:
                os.replace(path, out / path.name)
    except OSError as error:
        raise ValueError(f"cannot write the packed images to {out}: {error.strerror or error}") from None
    return [out / path.name for path in written]


class _Files(NamedTuple):
    """The files of a split: where each is, or what is in it, its name and its class."""

    sources: Sequence[Path | bytes]
    names: list[str]
    targets: list[int]
    class_names: tuple[str, ...]

    def first(self, n_classes: int, per_class: int) -> "_Files":
        """The first files of each of the first classes."""
        n_seen: Counter[int] = Counter()
        kept = []
        for i, target in enumerate(self.targets):
            n_seen[target] += 1
            if target < n_classes and n_seen[target] <= per_class:
                kept.append(i)
        return self._replace(
            sources=[self.sources[i] for i in kept],
            names=[self.names[i] for i in kept],
            targets=[self.targets[i] for i in kept],
        )


def _files(split: Split, folder: Path | None) -> _Files:
    if split not in N_IMAGES:
        raise ValueError(f"split must be 'train' or 'val', not {split!r}")
    folder = folder or data_root() / "tiny_imagenet"
    if parts := sorted(folder.glob(f"{split}-*-of-*.npz")):
        return _packed_files(parts)
    folder = _home(folder)
    wnids = sorted(set(_lines(folder / "wnids.txt")))
    files, targets = _train_files(folder, wnids) if split == "train" else _val_files(folder, wnids)
    return _Files(files, [path.name for path in files], targets, _class_names(folder, wnids))


def _packed_files(present: list[Path]) -> _Files:
    """The files in all parts of a split."""
    split, _, _, total = present[0].stem.rsplit("-", 3)
    if not total.isdecimal() or len(total) > 4:
        raise ValueError(f"{present[0]} is not named after a number of parts such as {split}-1-of-4.npz")
    parts = [present[0].with_name(f"{split}-{number}-of-{total}.npz") for number in range(1, int(total) + 1)]
    if missing := [part for part in parts if part not in present]:
        raise MissingFile(f"{missing[0]} is missing, though {present[0].name} is there; copy it, or pack again")
    if len(present) > len(parts):
        raise ValueError(f"{present[0].parent} holds parts of two packings of {split}; remove those of the older one")
    files = [_packed_part(part) for part in parts]
    sources, names, targets = ([x for part in files for x in part[column]] for column in range(3))
    return _Files(sources, names, targets, files[0].class_names)  # type: ignore[arg-type]


def _packed_part(path: Path) -> _Files:
    try:
        require_bounded_zip(path)
        with np.load(path, allow_pickle=False) as arrays:
            content, ends = arrays["content"].tobytes(), np.cumsum(arrays["lengths"]).tolist()
            sources = [content[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]
            names, targets, class_names = (arrays[key].tolist() for key in ("names", "targets", "class_names"))
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        EOFError,
        MemoryError,
        zipfile.BadZipFile,
    ) as error:
        raise ValueError(f"{path} cannot be read as packed images ({error}); copy it, or pack again") from None
    return _Files(sources, names, targets, tuple(class_names))


def _train_files(folder: Path, wnids: list[str]) -> tuple[list[Path], list[int]]:
    files, targets = [], []
    for target, wnid in enumerate(wnids):
        paths = sorted((folder / "train" / wnid / "images").glob("*.JPEG"), key=_number)
        if not paths:
            raise MissingFile(f"there are no images of class {wnid} in {folder / 'train' / wnid / 'images'}")
        files += paths
        targets += [target] * len(paths)
    return files, targets


def _number(path: Path) -> tuple[int, str]:
    """The number in `n01443537_12.JPEG`, so that 2 comes before 12."""
    number = path.stem.rpartition("_")[2]
    return int(number) if number.isdecimal() else -1, path.name


def _val_files(folder: Path, wnids: list[str]) -> tuple[list[Path], list[int]]:
    annotations = folder / "val" / "val_annotations.txt"
    index = {wnid: i for i, wnid in enumerate(wnids)}
    files, targets = [], []
    for i, line in enumerate(_lines(annotations), start=1):
        name, _, rest = line.partition("\t")
        wnid = rest.split("\t")[0]
        if wnid not in index:
            raise ValueError(f"{annotations}, line {i}: {wnid!r} is not one of the classes in wnids.txt")
        files.append(folder / "val" / "images" / Path(name).name)
        targets.append(index[wnid])
    return files, targets


def _class_names(folder: Path, wnids: list[str]) -> tuple[str, ...]:
    words = dict(line.split("\t", 1) for line in _lines(folder / "words.txt") if "\t" in line)
    for wnid in wnids:
        if wnid not in words:
            raise ValueError(f"{folder / 'words.txt'} has no words for class {wnid}")
    return tuple(words[wnid].strip() for wnid in wnids)


def _lines(path: Path) -> list[str]:
    """The lines of a text file, without empty ones at its end."""
    try:
        lines = path.read_text(encoding="utf-8").rstrip().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    if not lines:
        raise ValueError(f"{path} is empty")
    return lines


def _content(source: Path | bytes) -> bytes:
    if isinstance(source, bytes):
        return source
    try:
        return source.read_bytes()
    except OSError as error:
        raise ValueError(f"cannot read the image {source}: {error.strerror}") from None


def _pixels(source: Path | bytes, name: str) -> UInt8[np.ndarray, "h w 3"]:
    from PIL import Image  # comes with matplotlib

    content, where = _content(source), name if isinstance(source, bytes) else source
    try:
        with Image.open(BytesIO(content)) as image:
            pixels = np.asarray(image.convert("RGB"))
    except Exception as error:  # decoders raise what they like
        raise ValueError(f"cannot read the image {where}: {error}") from None
    if pixels.shape != (SIZE, SIZE, 3):
        raise ValueError(f"{where} has {pixels.shape[0]} x {pixels.shape[1]} pixels instead of {SIZE} x {SIZE}")
    return pixels


def _home(folder: Path) -> Path:
    """The folder that holds the lists: the one given, or the one that the archive unpacks to in it."""
    for home in (folder, folder / UNPACKED):
        if (home / "wnids.txt").is_file():
            return home
    raise MissingFile(f"cannot find {folder / UNPACKED / 'wnids.txt'}; {hint(ARCHIVE, folder)}, and unpack it there")


def check(folder: Path) -> str:
    """Read every image and compare the numbers of images and classes with the published ones."""
    reports = []
    for split, n_images in N_IMAGES.items():
        pictures = load(split, folder=folder)  # type: ignore[arg-type]
        sizes = (len(pictures), len(pictures.class_names))
        if sizes != (n_images, N_CLASSES):
            size_names = f"images and classes in its {split} split"
            raise ValueError(f"Tiny ImageNet in {folder} has {sizes} {size_names} instead of {(n_images, N_CLASSES)}")
        if len(set(np.bincount(pictures.targets).tolist())) != 1:
            raise ValueError(f"Tiny ImageNet in {folder} does not have equally many images of each class in {split}")
        reports.append(f"{len(pictures)} images ({split})")
    return f"{' and '.join(reports)} of {SIZE} x {SIZE} pixels, {N_CLASSES} classes"


UNPACKED = "tiny-imagenet-200"
ARCHIVE = DataFile(
    path="tiny-imagenet-200.zip",
    url="https://cs231n.stanford.edu/tiny-imagenet-200.zip",
    size=248_100_043,
    unpacked=UNPACKED,
    unpack=True,
)

DATASETS = (
    DataSet(
        name="tiny_imagenet",
        title="Tiny ImageNet-200, images of 64 x 64 pixels",
        files=(ARCHIVE,),
        licence="ImageNet's terms of access: research and education, not for commerce",
        citation="Le and Yang, Tiny ImageNet visual recognition challenge, CS 231N, Stanford (2015)",
        homepage="https://cs231n.stanford.edu/",
        check=check,
    ),
)

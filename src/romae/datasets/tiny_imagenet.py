"""Tiny ImageNet-200: 100 000 colour images of 64 x 64 pixels in 200 classes, and 10 000 more as the validation set.

The reader takes the public folders: `train/<wnid>/images/*.JPEG`, `val/images/*.JPEG`, `val/val_annotations.txt`,
`wnids.txt` and `words.txt`. Grey files are converted to colour. A class is the index of its WordNet id among the
sorted ids. Shapes: r images, h height, w width.
"""

import os
import tempfile
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Int64, UInt8

from romae.data.images import Statistic, from_image, open_image
from romae.datasets.catalogue import DataFile, DataSet, hint
from romae.datasets.files import MissingFile, data_root
from romae.tokens import Sample

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


def load(split: Split, *, folder: Path | None = None, cache: Path | None = None) -> Pictures:
    """The images of a split. With `cache` they are packed into that file at first, and read from it from then on."""
    if split not in N_IMAGES:
        raise ValueError(f"split must be 'train' or 'val', not {split!r}")
    folder = _home(folder or data_root() / "tiny_imagenet")
    wnids = sorted(set(_lines(folder / "wnids.txt")))
    files, targets = _train_files(folder, wnids) if split == "train" else _val_files(folder, wnids)
    names = tuple(path.name for path in files)
    if cache is not None and cache.exists():
        images = _read_packed(cache, names)
    else:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            images = np.empty((len(files), SIZE, SIZE, 3), dtype=np.uint8)
            for i, image in enumerate(pool.map(_pixels, files)):
                images[i] = image
        if cache is not None:
            _write_packed(cache, names, images)
    return Pictures(images, np.array(targets, dtype=np.int64), names, _class_names(folder, wnids))


def _train_files(folder: Path, wnids: list[str]) -> tuple[list[Path], list[int]]:
    files, targets = [], []
    for target, wnid in enumerate(wnids):
        found = sorted((folder / "train" / wnid / "images").glob("*.JPEG"), key=_number)
        if not found:
            raise MissingFile(f"there are no images of class {wnid} in {folder / 'train' / wnid / 'images'}")
        files += found
        targets += [target] * len(found)
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


def _pixels(path: Path) -> UInt8[np.ndarray, "h w 3"]:
    pixels = np.asarray(open_image(path).convert("RGB"))
    if pixels.shape != (SIZE, SIZE, 3):
        raise ValueError(f"{path} has {pixels.shape[0]} x {pixels.shape[1]} pixels instead of {SIZE} x {SIZE}")
    return pixels


def _write_packed(cache: Path, names: tuple[str, ...], images: UInt8[np.ndarray, "r h w 3"]) -> None:
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache.parent, prefix=".packing-") as temporary:
            part = Path(temporary, "images.npz")
            np.savez(part, images=images, names=np.array(names))
            os.replace(part, cache)
    except OSError as error:
        raise ValueError(f"cannot write the packed images to {cache}: {error.strerror or error}") from None


def _read_packed(cache: Path, names: tuple[str, ...]) -> UInt8[np.ndarray, "r h w 3"]:
    try:
        with np.load(cache, allow_pickle=False) as arrays:
            packed_names, images = tuple(arrays["names"].tolist()), arrays["images"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{cache} cannot be read as packed images ({error}); remove it to pack them again") from None
    if packed_names != names or images.shape != (len(names), SIZE, SIZE, 3) or images.dtype != np.uint8:
        raise ValueError(f"{cache} was packed from other files than those at hand; remove it to pack them again")
    return images


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
        found = (len(pictures), len(pictures.class_names))
        if found != (n_images, N_CLASSES):
            what = f"images and classes in its {split} split"
            raise ValueError(f"Tiny ImageNet in {folder} has {found} {what} instead of {(n_images, N_CLASSES)}")
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

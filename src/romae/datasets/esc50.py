"""ESC-50: 2 000 sounds of five seconds in 50 classes and 5 folds.

The reader takes the public layout, `meta/esc50.csv` and `audio/`, with the clips as WAV at 44.1 kHz or stored again
in another format or at another rate. All spectrograms fit into memory in 8 bits (127 MB), and from there onto a
device. Shapes: r clips, f frames, m mel bins.
"""

import csv
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path

import torch
from jaxtyping import Float32, Int64, UInt8
from torch import Tensor

from romae.data.audio import RATE, from_spectrogram, read_waveform
from romae.data.filterbank import SILENCE, dequantise, log_mel, quantise
from romae.datasets.catalogue import DataFile, DataSet, hint
from romae.datasets.files import MissingFile, data_root
from romae.tokens import Sample

N_CLIPS, N_CLASSES, N_FOLDS, N_FRAMES = 2000, 50, 5, 498
TENSORS = ("codes", "low", "step", "targets", "folds")
COLUMNS = ("filename", "fold", "target", "category")


@dataclass(frozen=True, slots=True)
class Clip:
    """One sound: its name without suffix, its file, and what the table says of it."""

    name: str
    path: Path
    fold: int
    target: int
    category: str


@dataclass(frozen=True, eq=False)
class Spectrograms:
    """The log-mel spectrograms of clips in 8 bits, each with its own range; see `quantise` for what that costs."""

    codes: UInt8[Tensor, "r f m"]
    low: Float32[Tensor, "r"]
    step: Float32[Tensor, "r"]
    targets: Int64[Tensor, "r"]
    folds: Int64[Tensor, "r"]
    names: tuple[str, ...]
    class_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.codes)

    def of_folds(self, folds: Sequence[int]) -> "Spectrograms":
        """The clips of these folds, in order."""
        keep = torch.tensor(_in_folds(self.folds.tolist(), folds), device=self.folds.device)
        parts = {key: getattr(self, key)[keep] for key in TENSORS}
        return replace(self, names=tuple(compress(self.names, keep.tolist())), **parts)

    def to(self, device: torch.device | str) -> "Spectrograms":
        """The same on another device."""
        return replace(self, **{key: getattr(self, key).to(device) for key in TENSORS})

    def values(self, index: Int64[Tensor, "k"] | slice = slice(None)) -> Float32[Tensor, "k f m"]:
        """The spectrograms of some clips, or of all, as numbers on their device."""
        low, step = self.low[index], self.step[index]
        return dequantise(self.codes[index], low[:, None, None], step[:, None, None])

    def mean_and_std(self) -> tuple[float, float]:
        """The mean and the standard deviation over all clips, frames and bins."""
        total = squares = 0.0
        for i in range(0, len(self), 50):
            x = self.values(slice(i, i + 50)).double()
            total, squares = total + x.sum().item(), squares + x.square().sum().item()
        mean = total / self.codes.numel()
        return mean, (squares / self.codes.numel() - mean**2) ** 0.5

    def samples(
        self,
        *,
        patch: Sequence[int] = (16, 16),
        frames: int | None = 512,
        fill: float = SILENCE,
        mean: float = 0.0,
        std: float = 1.0,
    ) -> list[Sample]:
        """One sample per clip, with its class as the target; see `from_audio` for the arguments."""
        return [
            from_spectrogram(x, patch=patch, frames=frames, fill=fill, mean=mean, std=std, target=target, id=name)
            for x, target, name in zip(self.values(), self.targets.tolist(), self.names, strict=True)
        ]


def load(folds: Sequence[int] | None = None, *, folder: Path | None = None) -> Spectrograms:
    """The spectrograms of all clips, or of some folds, made from the audio files on all processors."""
    everything = clips(folder=folder)
    chosen = everything if folds is None else _of_folds(everything, folds)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        parts = list(pool.map(_quantised, [clip.path for clip in chosen]))
    for clip, (codes, _, _) in zip(chosen, parts, strict=True):
        if codes.shape != parts[0][0].shape:
            raise ValueError(f"{clip.path} has {len(codes)} frames, but {chosen[0].path} has {len(parts[0][0])}")
    names = {clip.target: clip.category for clip in everything}
    return Spectrograms(
        codes=torch.stack([codes for codes, _, _ in parts]),
        low=torch.tensor([low for _, low, _ in parts]),
        step=torch.tensor([step for _, _, step in parts]),
        targets=torch.tensor([clip.target for clip in chosen]),
        folds=torch.tensor([clip.fold for clip in chosen]),
        names=tuple(clip.name for clip in chosen),
        class_names=tuple(names[target] for target in range(len(names))),
    )


def _quantised(path: Path) -> tuple[UInt8[Tensor, "f m"], float, float]:
    return quantise(log_mel(read_waveform(path), RATE))


def clips(folds: Sequence[int] | None = None, *, folder: Path | None = None) -> list[Clip]:
    """The clips of the table, all or those of some folds, in its order; `read_waveform(clip.path)` is the sound."""
    folder = _home(folder or data_root() / "esc50")
    table = folder / "meta" / "esc50.csv"
    try:
        with open(table, newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            if absent := [name for name in COLUMNS if name not in (reader.fieldnames or ())]:
                raise ValueError(f"{table} lacks the columns {absent}; it has {list(reader.fieldnames or ())}")
            rows = [_read_row(row, folder, f"{table}, line {reader.line_num}") for row in reader]
    except (csv.Error, UnicodeDecodeError, OSError) as error:
        raise ValueError(f"cannot read {table}: {error}") from None
    _require_classes(rows, table)
    return rows if folds is None else _of_folds(rows, folds)


def _read_row(row: dict[str, str], folder: Path, where: str) -> Clip:
    try:
        name, fold, target, category = (row[column] for column in COLUMNS)
        clip = Clip(Path(name).stem, folder / "audio" / Path(name).name, int(fold), int(target), category)
    except (TypeError, ValueError):
        raise ValueError(f"{where}: cannot read {row} as file name, fold, class and its name") from None
    if not 1 <= clip.fold <= N_FOLDS or not 0 <= clip.target < N_CLASSES:
        raise ValueError(f"{where}: fold {clip.fold} or class {clip.target} is not one of 1 to 5 and 0 to 49")
    for path in (clip.path, clip.path.with_suffix(".ogg"), clip.path.with_suffix(".flac")):
        if path.is_file():
            return replace(clip, path=path)
    raise MissingFile(f"{where}: there is no file {clip.path}, nor one of that name as .ogg or .flac")


def _require_classes(rows: list[Clip], table: Path) -> None:
    if not rows:
        raise ValueError(f"{table} lists no clips")
    names: dict[int, str] = {}
    for clip in rows:
        if names.setdefault(clip.target, clip.category) != clip.category:
            raise ValueError(f"{table} calls class {clip.target} both {names[clip.target]!r} and {clip.category!r}")
    if sorted(names) != list(range(len(names))):
        raise ValueError(f"{table} has no clip of class {min(set(range(len(names))) - set(names))}")


def _of_folds(rows: list[Clip], folds: Sequence[int]) -> list[Clip]:
    return list(compress(rows, _in_folds([clip.fold for clip in rows], folds)))


def _in_folds(fold_of_clip: list[int], folds: Sequence[int]) -> list[bool]:
    if not folds or not set(folds) <= set(range(1, N_FOLDS + 1)):
        raise ValueError(f"folds must be some of the numbers 1 to {N_FOLDS}, not {list(folds)}")
    keep = [fold in folds for fold in fold_of_clip]
    if not any(keep):
        raise ValueError(f"no clip is in the folds {list(folds)}; there are {sorted(set(fold_of_clip))}")
    return keep


def _home(folder: Path) -> Path:
    """The folder that holds the table: the one given, or the one that the archive unpacks to in it."""
    for home in (folder, folder / ARCHIVE.unpacked):
        if (home / "meta" / "esc50.csv").is_file():
            return home
    raise MissingFile(f"cannot find {folder / 'meta' / 'esc50.csv'}; {hint(ARCHIVE, folder)}, and unpack it there")


def check(folder: Path) -> str:
    """Read every clip and compare the numbers of clips, classes and frames with the published ones."""
    made = load(folder=folder)
    per_class, per_fold = made.targets.bincount(), made.folds.bincount()[1:]
    found = (len(made), len(per_class), len(per_fold), made.codes.shape[1])
    if found != (N_CLIPS, N_CLASSES, N_FOLDS, N_FRAMES):
        what = "clips, classes, folds, frames"
        raise ValueError(
            f"ESC-50 in {folder} has {found} ({what}) instead of {(N_CLIPS, N_CLASSES, N_FOLDS, N_FRAMES)}"
        )
    if per_class.unique().tolist() != [40] or per_fold.unique().tolist() != [400]:
        raise ValueError(f"ESC-50 in {folder} does not have 40 clips of each class and 400 in each fold")
    mean, std = made.mean_and_std()
    return (
        f"{len(made)} clips of 5 s, {len(per_class)} classes, {N_FOLDS} folds; log-mel mean {mean:.2f}, std {std:.2f}"
    )


class _Archive(DataFile):
    """The public archive, which nobody needs where its content lies without the folder around it."""

    __slots__ = ()
    unpacked: str

    def is_in(self, folder: Path) -> bool:
        return (folder / "meta" / "esc50.csv").is_file() or DataFile.is_in(self, folder)


ARCHIVE = _Archive(
    path="ESC-50-master.zip",
    url="https://github.com/karolpiczak/ESC-50/archive/master.zip",
    unpacked="ESC-50-master",
    unpack=True,
)

DATASETS = (
    DataSet(
        name="esc50",
        title="ESC-50, environmental sounds",
        files=(ARCHIVE,),
        licence="Creative Commons Attribution-NonCommercial 3.0",
        citation="Piczak, ESC: dataset for environmental sound classification, ACM Multimedia (2015)",
        homepage="https://github.com/karolpiczak/ESC-50",
        check=check,
    ),
)

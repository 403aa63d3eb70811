"""ESC-50: 2 000 sounds of five seconds in 50 classes and 5 folds.

The reader takes the public layout, `meta/esc50.csv` and `audio/`, with the clips as WAV at 44.1 kHz or stored again
in another format or at another rate. All spectrograms fit into memory in 8 bits (127 MB), and from there onto a
device. Where the audio cannot be, `load` takes them from one compact file that `Spectrograms.save` has written.
Shapes: r clips, f frames, m mel bins.
"""

import csv
import os
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, Int64, UInt8
from torch import Tensor

from romae.data.audio import RATE, from_spectrogram, read_waveform
from romae.data.filterbank import SILENCE, dequantise, log_mel, quantise
from romae.experiments.datasets.catalogue import DataFile, DataSet, hint
from romae.experiments.datasets.files import MissingFile, data_root, require_bounded_zip
from romae.tokens.sample import Sample

N_CLIPS, N_CLASSES, N_FOLDS, N_FRAMES = 2000, 50, 5, 498
TENSORS = ("codes", "low", "step", "targets", "folds")
WORDS = ("names", "class_names")
COLUMNS = ("filename", "fold", "target", "category")
PREPARED = "spectrograms.npz"  # in the data set's folder
PREPARED_STEP = 0.5


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

    def coarser(self, step: float) -> "Spectrograms":
        """The same with codes at least `step` apart: off by half of it more, and easier to compress."""
        if not step > 0:
            raise ValueError(f"the step from one code to the next must be above 0, not {step}")
        wide = self.step.clamp(min=step)
        codes = (self.codes * (self.step / wide)[:, None, None]).round().to(torch.uint8)
        return replace(self, codes=codes, step=wide)

    def save(self, path: str | Path, *, step: float = PREPARED_STEP) -> Path:
        """Write everything to one compressed file, with codes `step` apart or more.

        A step of 0.5 adds an error of up to 0.25, about one decibel, and brings ESC-50 to 49 MB.
        """
        path, kept = Path(path), self.coarser(step).to("cpu")
        arrays = {key: getattr(kept, key).numpy() for key in TENSORS}
        arrays |= {key: np.array(getattr(kept, key)) for key in WORDS}
        part = path.with_name(path.name + ".part")
        try:
            with zipfile.ZipFile(part, "w", zipfile.ZIP_BZIP2) as archive:
                for key, array in arrays.items():
                    with archive.open(f"{key}.npy", "w") as file:
                        np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)
            return part.replace(path)
        except OSError as error:
            raise ValueError(f"cannot write {path}: {error.strerror or error}") from None
        finally:
            part.unlink(missing_ok=True)

    @classmethod
    def read(cls, path: str | Path) -> "Spectrograms":
        """What `save` has written."""
        try:
            require_bounded_zip(Path(path))
            with np.load(path, allow_pickle=False) as arrays:
                parts: dict[str, Any] = {key: torch.from_numpy(arrays[key]) for key in TENSORS}
                parts |= {key: tuple(arrays[key].tolist()) for key in WORDS}
            for key in (*TENSORS, "names"):
                if len(parts[key]) != len(parts["codes"]):
                    raise ValueError(f"{len(parts[key])} {key} for {len(parts['codes'])} clips")
            return cls(**parts)
        except (OSError, EOFError, KeyError, ValueError, TypeError, MemoryError, zipfile.BadZipFile) as error:
            raise ValueError(f"cannot read {path} as prepared spectrograms: {error}; write it again") from None

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
    """The spectrograms of all clips, or of some folds, made from the audio files on all processors.

    Where there is no audio, they are those of the prepared file, if there is one.
    """
    folder = folder or data_root() / "esc50"
    if _home(folder) is None and (folder / PREPARED).is_file():
        prepared = Spectrograms.read(folder / PREPARED)
        return prepared if folds is None else prepared.of_folds(folds)
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
    place = folder or data_root() / "esc50"
    home = _home(place)
    if home is None:
        raise MissingFile(f"cannot find {place / 'meta' / 'esc50.csv'}; {hint(ARCHIVE, place)}, and unpack it there")
    table = home / "meta" / "esc50.csv"
    try:
        with open(table, newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            if absent := [name for name in COLUMNS if name not in (reader.fieldnames or ())]:
                raise ValueError(f"{table} lacks the columns {absent}; it has {list(reader.fieldnames or ())}")
            rows = [_read_row(row, home, f"{table}, line {reader.line_num}") for row in reader]
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


def _home(folder: Path) -> Path | None:
    """The folder that holds the table, if there is one: that given, or the one that the archive unpacks to in it."""
    homes = (folder, folder / ARCHIVE.unpacked)
    return next((home for home in homes if (home / "meta" / "esc50.csv").is_file()), None)


def check(folder: Path) -> str:
    """Read every clip and compare the numbers of clips, classes and frames with the published ones."""
    spectrograms = load(folder=folder)
    per_class, per_fold = spectrograms.targets.bincount(), spectrograms.folds.bincount()[1:]
    sizes = (len(spectrograms), len(per_class), len(per_fold), spectrograms.codes.shape[1])
    if sizes != (N_CLIPS, N_CLASSES, N_FOLDS, N_FRAMES):
        size_names = "clips, classes, folds, frames"
        raise ValueError(
            f"ESC-50 in {folder} has {sizes} ({size_names}) instead of {(N_CLIPS, N_CLASSES, N_FOLDS, N_FRAMES)}"
        )
    if per_class.unique().tolist() != [40] or per_fold.unique().tolist() != [400]:
        raise ValueError(f"ESC-50 in {folder} does not have 40 clips of each class and 400 in each fold")
    mean, std = spectrograms.mean_and_std()
    return (
        f"{len(spectrograms)} clips of 5 s, {len(per_class)} classes, {N_FOLDS} folds; "
        f"log-mel mean {mean:.2f}, std {std:.2f}"
    )


class _Archive(DataFile):
    """The public archive, which nobody needs where its content lies without the folder around it, or is prepared."""

    __slots__ = ()
    unpacked: str

    def is_in(self, folder: Path) -> bool:
        return any((folder / name).is_file() for name in ("meta/esc50.csv", PREPARED)) or DataFile.is_in(self, folder)


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

"""The UEA archive of multivariate time series: its .ts files, read from the zip or from a folder.

Every case becomes a sample with one token per time step that holds all channels; the position is the index of the
step (or the time stamp, where the file has them). The target is the class index: classes are sorted, numbers by
value, so that both halves of a set agree whatever the order of their headers.
"""

import re
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from romae.data.schema import Schema
from romae.experiments.datasets.catalogue import DataFile, DataSet, Labelled
from romae.experiments.datasets.files import MissingFile, data_root, members, shortened
from romae.tokens.sample import Sample

# The sets of the paper: cases to train on and to test on, channels, shortest and longest case, classes.
SIZES = {
    "BasicMotions": (40, 40, 6, 100, 100, 4),
    "CharacterTrajectories": (1422, 1436, 3, 60, 182, 20),
    "Epilepsy": (137, 138, 3, 206, 206, 4),
    "Heartbeat": (204, 205, 61, 405, 405, 2),
    "LSST": (2459, 2466, 6, 36, 36, 14),
}


def load(name: str, split: str, *, missing: float | str = "error", folder: Path | None = None) -> Labelled:
    """One half of a set, by its name in the archive and its official split.

    `missing` says what to do with values written `?` or `NaN`: "error" refuses them, "drop" leaves out the time
    steps that have one, and a number takes their place. CharacterTrajectories wants 0.0: its source cut zeros off
    the end of some channels, and zero restores them.
    """
    if split not in ("train", "test"):
        raise ValueError(f"split must be 'train' or 'test', not {split!r}")
    where, text = _read_text(name, f"{name}_{split.upper()}.ts", folder)
    return parse(text, missing=missing, where=where, prefix=f"{split}/")


def parse(text: str, *, missing: float | str = "error", where: str = "the .ts text", prefix: str = "") -> Labelled:
    """The samples of a .ts file's text; `where` names the file in messages, `prefix` begins the samples' ids."""
    if isinstance(missing, str) and missing not in ("error", "drop"):
        raise ValueError(f"missing must be 'error', 'drop' or a number, not {missing!r}")
    lines = text.splitlines()
    header, n_header = _read_header(lines, where)
    samples: list[Sample] = []
    for i, line in enumerate(lines[n_header:], start=n_header + 1):
        if line.strip() and not line.startswith("#"):
            samples.append(_read_case(line.strip(), header, missing, f"{where}, line {i}", f"{prefix}{len(samples)}"))
    if not samples:
        raise ValueError(f"{where} has no cases after @data")
    schema = Schema(
        time="step",
        values=tuple(f"channel {i}" for i in range(samples[0].values.shape[1])),
        label="class" if header.has_classes else None,
        classes=header.class_names if header.has_classes else None,
    )
    return Labelled([sample.with_schema(schema) for sample in samples], header.class_names)


def thinned(sample: Sample, drop: float, seed: tuple[int, ...]) -> Sample:
    """The sample without a share of its time steps; the others stay where they are."""
    n_kept = max(len(sample) - round(drop * len(sample)), 1)
    kept = np.sort(np.random.default_rng(seed).permutation(len(sample))[:n_kept])
    return replace(sample, values=sample.values[kept], positions=sample.positions[kept])


@dataclass
class _Header:
    has_times: bool = False
    n_channels: int | None = None
    length: int | None = None
    is_equal: bool = False
    has_classes: bool = False
    class_names: tuple[str, ...] = ()


def _read_header(lines: list[str], where: str) -> tuple[_Header, int]:
    """What the directives say, and the number of lines up to and including @data."""
    header = _Header()
    for i, line in enumerate(lines, start=1):
        key, *words = line.split() or [""]
        first = words[0].lower() if words else ""
        try:
            match key.lower():
                case "@timestamps":
                    header.has_times = _flag(first)
                case "@univariate":
                    header.n_channels = 1 if _flag(first) else header.n_channels
                case "@dimensions" | "@dimension":
                    header.n_channels = int(first)
                case "@equallength":
                    header.is_equal = _flag(first)
                case "@serieslength":
                    header.length = int(first)
                case "@classlabel":
                    header.has_classes = _flag(first)
                    header.class_names = tuple(sorted(words[1:], key=_class_order))
                case "@data":
                    return header, i
        except ValueError:
            raise ValueError(f"{where}, line {i}: cannot read the directive {shortened(line.strip())!r}") from None
        if key and key[0] not in "@#":
            raise ValueError(f"{where}, line {i}: expected a directive such as @data before the cases")
    raise ValueError(f"{where} is not a .ts file: it has no @data line")


def _class_order(name: str) -> tuple[float, str]:
    return (float(name), name) if _is_number(name) else (np.inf, name)


def _flag(word: str) -> bool:
    if word not in ("true", "false"):
        raise ValueError(word)
    return word == "true"


def _read_case(line: str, header: _Header, missing: float | str, where: str, id: str) -> Sample:
    *channels, label = line.split(":") if header.has_classes else [*line.split(":"), ""]
    header.n_channels = header.n_channels or len(channels)
    if len(channels) != header.n_channels:
        raise ValueError(f"{where}: {len(channels)} channels instead of {header.n_channels}")
    target = None
    if header.has_classes:
        if label.strip() not in header.class_names:
            raise ValueError(f"{where}: class {shortened(label.strip())!r} is not among {list(header.class_names)}")
        target = header.class_names.index(label.strip())
    if header.has_times:
        times, values = _timed_values(channels, where)
    else:
        values = _values(channels, where)
        times = np.arange(len(values), dtype=np.float64)
        if header.is_equal and header.length not in (None, len(values)):
            raise ValueError(f"{where}: {len(values)} time steps instead of {header.length}")
    absent = np.isnan(values)
    if absent.any():
        step, channel = np.argwhere(absent)[0]
        if missing == "error":
            raise ValueError(
                f"{where}: channel {channel} has no value at step {step}; choose missing='drop' or missing=<a number>"
            )
        if missing == "drop":
            keep = ~absent.any(1)
            values, times = values[keep], times[keep]
            if not len(values):
                raise ValueError(f"{where}: every time step lacks a value; choose missing=<a number>")
        else:
            values = np.where(absent, missing, values)
    return Sample(values, times[:, None], target=target, id=id)


def _values(channels: list[str], where: str) -> Float64[np.ndarray, "n c"]:
    columns = [channel.replace("?", "nan").split(",") for channel in channels]
    for i, column in enumerate(columns):
        if len(column) != len(columns[0]):
            raise ValueError(f"{where}: channel {i} has {len(column)} time steps, but channel 0 has {len(columns[0])}")
    return np.stack([_parse_floats(column, f"{where}, channel {i}") for i, column in enumerate(columns)], axis=1)


def _timed_values(channels: list[str], where: str) -> tuple[Float64[np.ndarray, "n"], Float64[np.ndarray, "n c"]]:
    """Channels written as (time,value) pairs, joined on their times; NaN where a channel lacks a time."""
    pairs = []
    for i, channel in enumerate(channels):
        if not re.fullmatch(r"\s*\([^()]*\)(\s*,\s*\([^()]*\))*\s*", channel):
            raise ValueError(f"{where}, channel {i}: expected (time,value) pairs, as @timeStamps true announces")
        texts = [pair.split(",") for pair in re.findall(r"\(([^()]*)\)", channel.replace("?", "nan"))]
        if any(len(pair) != 2 for pair in texts):
            raise ValueError(f"{where}, channel {i}: expected (time,value) pairs, as @timeStamps true announces")
        pairs.append(_parse_floats([x for pair in texts for x in pair], f"{where}, channel {i}").reshape(-1, 2))
    times = np.unique(np.concatenate([pair[:, 0] for pair in pairs]))
    if not np.isfinite(times).all():
        raise ValueError(f"{where}: a time stamp is missing or not finite")
    values = np.full((len(times), len(channels)), np.nan)
    for i, pair in enumerate(pairs):
        places = np.searchsorted(times, pair[:, 0])
        if len(np.unique(places)) < len(places):
            raise ValueError(f"{where}, channel {i}: a time stamp occurs twice")
        values[places, i] = pair[:, 1]
    return times, values


def _parse_floats(words: list[str], where: str) -> Float64[np.ndarray, "n"]:
    try:
        numbers = np.array(words, dtype=np.float64)
    except ValueError:
        i, word = next((i, word) for i, word in enumerate(words) if not _is_number(word))
        raise ValueError(f"{where}: {shortened(word.strip())!r} at step {i} is not a number") from None
    if np.isinf(numbers).any():
        raise ValueError(f"{where}: the value at step {int(np.isinf(numbers).argmax())} is infinite")
    return numbers


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _read_text(name: str, file_name: str, folder: Path | None) -> tuple[str, str]:
    """The path and the text of a .ts file: unpacked, unpacked in a folder of the set's name, or in the zip."""
    _require_name(name)
    folder = folder or data_root() / "uea"
    archive = folder / f"{name}.zip"
    for path in (folder / name / file_name, folder / file_name):
        if path.exists():
            return str(path), _decoded(path.read_bytes())
    names = []
    for member in members(archive) if archive.exists() else ():
        names.append(member.name)
        if member.name.split("/")[-1] == file_name:
            return f"{archive}/{member.name}", _decoded(member.read())
    reason = f"{archive} holds only {names}" if names else f"there is no {archive}"
    raise MissingFile(f"cannot find {file_name}: {reason}; download {_address(name)} and put it there")


def _require_name(name: str) -> None:
    """Names become parts of paths, and must not lead elsewhere."""
    if not re.fullmatch(r"[\w-]+", name):
        raise ValueError(f"{name!r} is not the name of a set of the UEA archive, such as BasicMotions")


def _decoded(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content.decode("latin-1")  # some of the archive's comments are


def _address(name: str) -> str:
    return f"https://timeseriesclassification.com/aeon-toolkit/{name}.zip"


def check(name: str, folder: Path) -> str:
    """Read both halves and compare their sizes with the published ones, where this library knows them."""
    halves = [load(name, "train", missing=0.0, folder=folder), load(name, "test", missing=0.0, folder=folder)]
    if halves[0].class_names != halves[1].class_names:
        raise ValueError(f"the two halves of {name} in {folder} name different classes")
    lengths = [len(sample) for half in halves for sample in half.samples]
    n_channels = halves[0].samples[0].values.shape[1]
    n_train, n_test, n_classes = len(halves[0].samples), len(halves[1].samples), len(halves[0].class_names)
    sizes = (n_train, n_test, n_channels, min(lengths), max(lengths), n_classes)
    if sizes != SIZES.get(name, sizes):
        size_names = "cases to train, cases to test, channels, shortest, longest, classes"
        raise ValueError(f"{name} in {folder} has {sizes} ({size_names}) instead of {SIZES[name]}")
    return (
        f"{n_train} cases to train and {n_test} to test, {n_channels} channels, "
        f"{min(lengths)} to {max(lengths)} time steps, {n_classes} classes"
    )


def describe(name: str) -> DataSet:
    """The description of any set of the archive."""
    _require_name(name)
    return DataSet(
        name=f"uea/{name}",
        title=f"{name}, UEA archive of multivariate time series classification",
        files=(DataFile(path=f"{name}.zip", url=_address(name), unpacked=name),),
        licence="free for research; see the page of the set",
        citation="Bagnall et al., The UEA multivariate time series classification archive, arXiv 1811.00075 (2018)",
        homepage=f"https://timeseriesclassification.com/description.php?Dataset={name}",
        check=partial(check, name),
        folder="uea",
    )


DATASETS = tuple(describe(name) for name in SIZES)

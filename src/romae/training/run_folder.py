"""A run on disk: from its states it can be resumed as if it had never stopped.

A run's folder holds

    config.json       what the run is: the settings of training, the task, and what tells its samples from others
    history.jsonl     one line per report
    job.json          of a table: the settings of the whole job
    test_ids.json     of a table: the ids that were kept out of training and of validation, where there are such
    metrics.json      of a table: the scores on ids that were not trained on, once the run has ended
    states/00000120/  weights, optimiser and counters after step 120; the last few are kept
    best/, last/      checkpoints that `romae.load` reads
    .lock             held by the process that writes to the folder

A state is written under another name and moved into place when it is whole. Its description lists the digest of every
file, so that a torn or altered one is found when it is read, and the state before it is used. Nothing is pickled.
"""

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

from torch import Tensor

from romae.checkpoints.native import read_weights, require_place
from romae.config import parsed_json
from romae.files import write_whole_text

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]

DESCRIPTION, LOCK = "state.json", ".lock"
CONFIG, JOB, DATA, TEST_IDS, METRICS = "config.json", "job.json", "data.json", "test_ids.json", "metrics.json"
# And what stands in each.
NOTES = {CONFIG: "train", JOB: "train", DATA: "training", TEST_IDS: "ids", METRICS: "metrics"}
# What a killed process leaves half-written: names of `tempfile`, with the prefixes of romae.files and of states.
_LEFT_IN_RUN = re.compile(
    rf"\.(?P<name>best|last|history\.jsonl|{'|'.join(map(re.escape, NOTES))})-(?P<is_aside>old-)?[a-z0-9_]{{8}}"
)
_LEFT_IN_STATES = re.compile(r"\.[a-z0-9_]{8}")
_CLAIMED: set[Path] = set()  # the folders to which this process writes: a lock keeps out other processes alone


class State(NamedTuple):
    """All that a run needs to go on: named groups of tensors, and numbers."""

    tensors: dict[str, dict[str, Tensor]]
    numbers: dict[str, Any]


@dataclass(slots=True)
class History:
    """Losses of a training run over time, one record per report.

    Parameters
    ----------
    records : list of dict
        Each with "step", "epoch", "loss" (the mean since the last report), "lr" and, where there are validation
        samples, "validation" (the loss on them) and, with `TrainConfig(scoring=…)`, "score".
    seconds : float, default 0.0
        The time that this process spent.
    n_skipped : int, default 0
        Batches that were skipped because their loss was not a number.

    Examples
    --------
    >>> import romae
    >>> history = romae.History([{"epoch": 1, "loss": 0.9}, {"epoch": 2, "loss": 0.4}, {"epoch": 3, "loss": 0.5}])
    >>> history.best["epoch"], history.last["loss"]
    (2, 0.5)
    """

    records: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    n_skipped: int = 0

    @property
    def last(self) -> dict[str, Any]:
        """The record of the last report."""
        return self.records[-1]

    @property
    def best(self) -> dict[str, Any]:
        """The record with the highest score, or the lowest validation loss, or else the lowest training loss."""

        def rank(record: dict[str, Any]) -> tuple[float, float]:
            return -(record.get("score") or 0.0), record.get("validation", record["loss"])

        return min(self.records, key=rank)


class RunFolder:
    """The folder of a run. `notes` are further files, by name, that are written down when it begins."""

    def __init__(self, folder: str | Path, *, n_states: int = 2, notes: Mapping[str, Any] | None = None) -> None:
        self.folder, self.n_states, self.notes = Path(folder), n_states, dict(notes or {})
        self.lock: IO[str] | None = None
        self.claimed: Path | None = None  # the folder, wherever this process goes
        self.before: set[Path] | None = None  # what was in the folder when it was claimed, if it was there
        self._require_own()

    def _require_own(self) -> None:
        """Refuse a folder with a model, or with files and folders of a run's names that no run has written."""
        if not self.is_fresh:
            return  # a run, damaged or not
        if (self.folder / "model.safetensors").exists():
            raise ValueError(f"{self.folder} holds a model; choose an empty or a new folder for the run")
        for name, word in NOTES.items():
            path = self.folder / name
            if path.is_file() and word not in _json_object(path):
                raise ValueError(
                    f"{path} is torn, or not of a run, which would write over it; remove it, or choose an empty or a "
                    "new folder"
                )
        for name in ("best", "last"):
            require_place(self.folder / name)

    def claim(self) -> None:
        """Make the folder and keep others out of it until `release`, or the end of this process, where it can be."""
        place = self.folder.resolve()
        if place in _CLAIMED:
            raise RuntimeError(f"this process is already writing to {self.folder}; choose another folder")
        before = set(self.folder.iterdir()) if self.folder.is_dir() else None
        try:
            (self.folder / "states").mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=self.folder).close()
        except OSError as error:
            raise ValueError(
                f"cannot write to the folder {self.folder}: {error.strerror}; choose another one"
            ) from None
        self._lock()
        self.claimed, self.before = place, before
        _CLAIMED.add(place)

    def _lock(self) -> None:
        if fcntl is None:
            return
        self.lock = (self.folder / LOCK).open("w")
        try:
            fcntl.lockf(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.lock.close()
            self.lock = None
            if error.errno in (errno.EACCES, errno.EAGAIN):  # other errors: a file system without locks
                raise RuntimeError(
                    f"another process is writing to {self.folder}; wait for its end, or choose another folder"
                ) from None

    def release(self) -> None:
        """Let others write to the folder again."""
        if self.claimed is not None:
            _CLAIMED.discard(self.claimed)
            self.claimed = None
        if self.lock is not None:
            self.lock.close()
            self.lock = None

    def forget(self) -> None:
        """Remove what this process has created in the folder, if the run never got as far as a state or a report."""
        if self.claimed is None or not self.is_fresh:
            return
        created = {self.folder} if self.before is None else set(self.folder.iterdir()) - self.before
        for path in created:
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def write_notes(self) -> None:
        """Write down what the run is, for those who go on with it."""
        for name, note in self.notes.items():
            write_whole_text(self.folder / name, json.dumps(note, indent=2) + "\n")

    @property
    def history(self) -> Path:
        return self.folder / "history.jsonl"

    def states(self) -> list[Path]:
        """The states that are there, oldest first."""
        numbered = [path for path in (self.folder / "states").glob("*") if re.fullmatch("[0-9]+", path.name)]
        return sorted(numbered, key=lambda path: int(path.name))  # names have 8 digits, or more in very long runs

    @property
    def is_fresh(self) -> bool:
        return not self.states() and not self.history.exists()

    def last_state(self) -> str:
        """The newest state, in words."""
        states = self.states()
        return f"the last state is {states[-1]}" if states else "no state has been written yet"

    def write(self, step: int, state: State) -> Path:
        """Write a state, whole or not at all, then forget the oldest ones."""
        from safetensors import SafetensorError
        from safetensors.torch import save_file

        place = self.folder / "states" / f"{step:08d}"
        place.parent.mkdir(parents=True, exist_ok=True)
        written = Path(tempfile.mkdtemp(prefix=".", dir=place.parent))
        try:
            digests = {}
            for name, tensors in state.tensors.items():
                file = written / f"{name}.safetensors"
                save_file({key: value.detach().cpu().contiguous() for key, value in tensors.items()}, file)
                digests[file.name] = _digest(file)
            description = json.dumps({"files": digests, "numbers": state.numbers}, indent=1)
            body = json.dumps({"digest": hashlib.sha256(description.encode()).hexdigest(), "body": description})
            (written / DESCRIPTION).write_text(body)
            for file in written.iterdir():
                _flush(file)
            _discard(place)
            os.replace(written, place)
            _flush(place.parent)
        except (OSError, SafetensorError) as error:
            raise self._cannot_write(error, place) from error
        finally:
            shutil.rmtree(written, ignore_errors=True)
        self._discard_old()
        return place

    def _discard_old(self) -> None:
        for old in self.states()[: -self.n_states]:
            _discard(old)

    def read(self) -> State | None:
        """The newest state that is whole; those that are not are named in a warning."""
        states = self.states()
        for number, path in reversed(list(enumerate(states))):
            try:
                return _read_state(path)
            except ValueError as error:
                instead = "going back to the state before it" if number else "there is no other, so the run begins anew"
                warnings.warn(f"{error}; {instead}", stacklevel=2)
        return None

    def log(self, record: Mapping[str, Any]) -> None:
        """Append a line to the history."""
        try:
            with self.history.open("a") as file:
                file.write(json.dumps(record) + "\n")
                file.flush()
        except OSError as error:
            raise self._cannot_write(error, self.history) from error

    def sweep(self, step: int) -> None:
        """Remove what a killed process left half-written, and states after the step that the run goes on from.

        Those could not be read, and would pass for the newest ones.
        """
        for path in (self.folder / "states").iterdir():
            if _LEFT_IN_STATES.fullmatch(path.name):
                shutil.rmtree(path, ignore_errors=True)
        for path in self.folder.iterdir():
            if (left := _LEFT_IN_RUN.fullmatch(path.name)) is None:
                continue
            place = self.folder / left["name"]
            if left["is_aside"] and not place.exists():
                os.replace(path, place)  # the model of before, when the new one was about to take its place
            elif path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        for path in self.states():
            if int(path.name) > step:
                _discard(path)
        self._discard_old()

    def rewrite(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Set the history back to what it was when a state was written."""
        write_whole_text(self.history, "".join(json.dumps(record) + "\n" for record in records))

    def _cannot_write(self, error: Exception, path: Path) -> RuntimeError:
        is_full = f"os error {errno.ENOSPC}" in str(error) or getattr(error, "errno", None) == errno.ENOSPC
        reason = "the disk is full" if is_full else getattr(error, "strerror", None) or str(error)
        return RuntimeError(f"cannot write {path}: {reason}; {self.last_state()}, from which the run can be resumed")


def _json_object(path: Path) -> Any:
    """The content of a JSON file if it is an object, else an empty dictionary."""
    try:
        content = parsed_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        content = None
    return content if isinstance(content, dict) else {}


def _read_state(path: Path) -> State:
    """A state as it was written; refused where a single byte differs."""
    file = path / DESCRIPTION
    try:
        outer = json.loads(file.read_text(encoding="utf-8"))
        if hashlib.sha256(outer["body"].encode()).hexdigest() != outer["digest"]:
            raise ValueError("its digest differs")
        description, tensors = json.loads(outer["body"]), {}
        for name, digest in description["files"].items():
            file = path / name
            if _digest(file) != digest:
                raise ValueError("its digest differs")
            tensors[name.removesuffix(".safetensors")] = read_weights(file)
        return State(tensors, description["numbers"])
    except (OSError, LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise ValueError(f"{file} is torn, altered or missing ({error})") from None


def _discard(state: Path) -> None:
    """Remove a state, if it is there; when this is cut short, nothing that is not whole bears a state's number."""
    if not state.exists():
        return
    aside = Path(tempfile.mkdtemp(prefix=".", dir=state.parent))
    with contextlib.suppress(OSError):
        aside.rmdir()  # only its name was wanted; Windows replaces no folder
        os.replace(state, aside)
    for path in (state, aside):
        shutil.rmtree(path, ignore_errors=True)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(path: Path) -> None:
    """Have a file, or where the system knows how the list of a folder, on the disk before anything relies on it."""
    if path.is_dir() and os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

"""One division of one problem, every method on it, and what came of it, on disk.

A trial is written to FOLDER/MACHINE/PROBLEM/FOLD.json, where the machine is "cpu" or the name of a GPU. Scores of all
methods are from the same samples. Times are those of the wall, from the samples in memory to the answers.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from romae.config import from_dict, parsed_json, to_dict
from romae.data.sources import lengths_of
from romae.experiments.compare.methods import METHODS, answer, standard_scaling
from romae.experiments.compare.problems import Division, Problem, find
from romae.experiments.results import commit, device_name, numbered_files, versions
from romae.files import require_free, write_whole_text
from romae.inference.baselines import truth

SEED = 0
TRIALS = "quick"  # the folder of rehearsals, which count for nothing
NOTE = "note.md"  # of a machine, what there is to say of its trials
CHOICES = "choices"  # the folder of what defaults were chosen by


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What the methods scored on a fold of a problem, and how many seconds each took."""

    problem: str
    fold: int
    metric: str
    scores: Mapping[str, float]
    seconds: Mapping[str, float]
    n_train: int
    n_test: int
    n_tokens: int
    machine: str
    n_threads: int
    commit: str
    versions: Mapping[str, str]
    quick: bool = False


def run(
    problem: Problem,
    fold: int,
    folder: str | Path,
    *,
    device: str = "auto",
    methods: Sequence[str] | None = None,
    quick: bool = False,
    force: bool = False,
    report: Callable[[str, float, float], None] | None = None,
) -> Path:
    """Let the methods answer, judge them, and write the trial; returns where it is.

    A trial that is there and lacks methods gets these; with `methods`, only they run, again where they have been, and
    what it says of others is kept. `report` hears the name, score and seconds of each method when it is done.
    """
    path = trial_path(folder, problem, fold, machine_name(device), quick=quick)
    known = METHODS[problem.task]
    for name in methods or ():
        if name not in known:
            raise ValueError(f"there is no method {name!r} for {problem.name}; there are {', '.join(known)}")
    keeps = methods is not None or not force
    before = read(path).scores if path.exists() and keeps else {}
    names = list(methods or [name for name in known if name not in before])
    require_free(path, force=force or bool(names), is_ours=lambda _: False)
    division = problem.division(fold, quick=quick)
    for i, name in enumerate(names):
        begin = time.perf_counter()
        answers = answer(problem.task, name, division, seed=SEED, device=device)
        spent, reached = round(time.perf_counter() - begin, 1), score(problem, division, answers)
        if report is not None:
            report(name, reached, spent)
        there = read(path) if path.exists() and (keeps or i) else None  # now: another process may have written to it
        scores = {**({} if there is None else there.scores), name: reached}
        seconds = {**({} if there is None else there.seconds), name: spent}
        trial = Trial(
            problem=problem.name,
            fold=fold,
            metric=problem.metric,
            scores={name: scores[name] for name in known if name in scores},
            seconds={name: seconds[name] for name in known if name in seconds},
            quick=quick,
            **circumstances(division, device),
        )
        write_whole_text(path, json.dumps(to_dict(trial), indent=1) + "\n")  # what is done stays if the next is killed
    return path


def circumstances(division: Division, device: str) -> dict[str, Any]:
    """How much there was to learn from and to ask, and what it ran on."""
    import torch

    return {
        "n_train": len(division.train),
        "n_test": len(division.test),
        "n_tokens": int(lengths_of(division.train).sum()),
        "machine": device_name(device),
        "n_threads": torch.get_num_threads(),
        "commit": commit(),
        "versions": versions(),
    }


def is_complete(path: Path, problem: Problem) -> bool:
    """Whether a trial is there that has every method."""
    return path.exists() and set(METHODS[problem.task]) <= set(read(path).scores)


def score(problem: Problem, division: Division, answers: np.ndarray) -> float:
    """How good the answers are, the higher the better."""
    from sklearn.metrics import accuracy_score, f1_score, roc_auc_score

    if problem.task == "interpolation":
        return _variance_told(division, answers)
    if problem.task == "regression":
        return _r2(answers, np.asarray(division.truth, dtype=np.float64))
    if problem.metric == "AUROC":
        margin = np.where(answers[:, 1] == answers[:, 0], 0.0, answers[:, 1] - answers[:, 0])
        return float(roc_auc_score(division.truth, margin))
    told = answers.argmax(axis=1)
    if problem.metric == "accuracy":
        return float(accuracy_score(division.truth, told))
    return float(f1_score(division.truth, told, average="macro"))


def _variance_told(division: Division, answers: np.ndarray) -> float:
    """R² of hidden values, each in standard deviations of its channel in the training samples."""
    scaling = standard_scaling(division)
    asked = [sample for sample in division.test if sample.hidden is not None]
    positions = [sample.positions[sample.hidden] for sample in asked]
    ends = np.cumsum([len(part) for part in positions])[:-1]

    def standard(values: Sequence[np.ndarray]) -> np.ndarray:
        import torch

        parts = (scaling.scale_values(torch.as_tensor(v), p) for v, p in zip(values, positions, strict=True))
        return np.concatenate([part.double().numpy() for part in parts])

    expected = standard([truth(sample) for sample in asked])
    told = standard(np.split(answers, ends))
    return float(1 - ((told - expected) ** 2).sum() / (expected**2).sum())


def _r2(answers: np.ndarray, expected: np.ndarray) -> float:
    from sklearn.metrics import r2_score

    return float(r2_score(expected, answers))


def machine_name(device: str) -> str:
    """The folder of this machine's trials."""
    return device_name(device).lower().replace(" ", "-")


def trial_path(folder: str | Path, problem: Problem, fold: int, machine: str, *, quick: bool) -> Path:
    """Where a trial belongs."""
    return Path(folder, *([TRIALS] if quick else []), machine, problem.name, f"{fold}.json")


def read(path: Path) -> Trial:
    """A trial that was written; what is none is named."""
    try:
        return from_dict(Trial, parsed_json(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} is no trial of the comparison: {error}; remove it and run it again") from None


def read_all(folder: str | Path, machine: str) -> dict[str, list[Trial]]:
    """The trials of a machine by problem, in the order of folds."""
    found: dict[str, list[Trial]] = {}
    root = Path(folder, machine)
    for home in sorted(root.iterdir()) if root.is_dir() else ():
        if home.is_dir():
            find(home.name)  # a folder of no problem is refused by name
            found[home.name] = [read(path) for path in sorted(numbered_files(home), key=lambda path: int(path.stem))]
    return {name: trials for name, trials in found.items() if trials}

"""How defaults are chosen: our estimator with other settings, on a part of a problem's training data.

A choice is written to FOLDER/choices/MACHINE/PROBLEM/NAME.json, whose name follows from the settings. The table of
defaults in docs/estimators.md cites these files.
"""

import hashlib
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from romae.config import from_dict, parsed_json, to_dict
from romae.experiments.compare.methods import METHODS, OURS, VECTORS, answer
from romae.experiments.compare.problems import Problem, smaller
from romae.experiments.compare.trial import CHOICES, SEED, TRIALS, circumstances, machine_name, score
from romae.files import require_free, write_whole_text

LONGEST_NAME = 60


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What settings score on a part of the training data, and how many seconds learning and answering took."""

    problem: str
    settings: Mapping[str, Any]
    metric: str
    score: float
    seconds: float
    n_train: int
    n_test: int
    n_tokens: int
    machine: str
    n_threads: int
    commit: str
    versions: Mapping[str, str]
    method: str = OURS
    quick: bool = False


def run(
    problem: Problem,
    settings: Mapping[str, Any],
    folder: str | Path,
    *,
    method: str = OURS,
    device: str = "auto",
    quick: bool = False,
    force: bool = False,
) -> Path:
    """Fit the estimator with these settings, judge it, and write what came of it; returns where that is.

    `method` is one of ours: the estimator of the problem's task, or the embedder under a linear model.
    """
    if method not in (OURS, VECTORS) or method not in METHODS[problem.task]:
        raise ValueError(f"{method!r} has no defaults that could be chosen on {problem.name}; try {OURS!r}")
    parts = [TRIALS] if quick else []
    name = name_of(settings) if method == OURS else f"vectors-{name_of(settings)}"
    path = Path(folder, *parts, CHOICES, machine_name(device), problem.name, f"{name}.json")
    require_free(path, force=force, is_ours=lambda _: False)
    division = problem.for_choosing(SEED)
    division = smaller(division) if quick else division
    begin = time.perf_counter()
    answers = answer(problem.task, method, division, seed=SEED, device=device, settings=settings)
    seconds = time.perf_counter() - begin
    choice = Choice(
        problem=problem.name,
        settings=dict(settings),
        metric=problem.metric,
        score=score(problem, division, answers),
        seconds=round(seconds, 1),
        method=method,
        quick=quick,
        **circumstances(division, device),
    )
    write_whole_text(path, json.dumps(to_dict(choice), indent=1) + "\n")
    return path


def name_of(settings: Mapping[str, Any]) -> str:
    """A file name for settings: what they say, or a digest of it where that is long."""
    text = json.dumps(settings, sort_keys=True)
    words = re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-") or "defaults"
    return words if len(words) <= LONGEST_NAME else hashlib.sha256(text.encode()).hexdigest()[:12]


def read_settings(text: str) -> dict[str, Any]:
    """Settings as they are written on the command line."""
    try:
        settings = parsed_json(text)
    except ValueError as error:
        raise ValueError(
            f'settings are written as JSON, such as {{"epochs": 9}}, and {text!r} is not: {error}'
        ) from None
    if not isinstance(settings, dict):
        raise ValueError(f'settings are written as a JSON object, such as {{"epochs": 9}}, not {text!r}')
    for name in ("random_state", "device"):
        if name in settings:
            raise ValueError(f"{name} is not tried: all choices have the same, and --device says where they are made")
    return settings


def read(path: Path) -> Choice:
    """A choice that was written."""
    return from_dict(Choice, parsed_json(path.read_text(encoding="utf-8")))

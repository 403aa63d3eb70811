"""What the evaluation of the model that needs no training gave: a file for each set, and one of times."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from romae.config import from_dict, parsed_json, to_dict
from romae.experiments.zero_scores import Scores
from romae.experiments.zero_sets import SETS
from romae.files import write_whole_text

OURS, PROCESS, EXACT = "RoMAE", "Gaussian process", "exact posterior"
ALONE = f"{OURS}, each channel alone"
TOGETHER = "physionet-pressures"  # the set of several channels
CHANNELS, BESIDE = "together", "MAP beside both"  # its ways
NAMES = (*SETS, TOGETHER)
SPEED = "speed.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What methods scored on a set that was asked in one way.

    Parameters
    ----------
    n : int
        Series.
    spread : float
        The mean distance of what is asked from the mean of what is visible, in deviations: by it, errors become NMAE.
    scores : dict
        By method.
    """

    n: int
    spread: float
    scores: Mapping[str, Scores]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetResult:
    """What a model and the methods beside it scored on a set; `model` is the digest of its weights."""

    set: str
    title: str
    is_development: bool
    is_real: bool
    is_smooth: bool
    ways: Mapping[str, Asked]
    model: str
    n_parameters: int
    commit: str
    device: str
    n_threads: int
    versions: Mapping[str, str]
    quick: bool = False


def write_result(result: SetResult, folder: Path) -> None:
    """Write a result to its file, with a line for each method."""
    body = to_dict(result)
    asked = body.pop("ways")
    head = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in body.items())
    rows = []
    for way, numbers in asked.items():
        by_method = ",\n".join(f"  {json.dumps(name)}: {json.dumps(x)}" for name, x in numbers["scores"].items())
        rows.append(
            f'{json.dumps(way)}: {{"n": {numbers["n"]}, "spread": {numbers["spread"]:.5g}, "scores": '
            f"{{\n{by_method}\n}}}}"
        )
    text = f'{{\n{head},\n"ways": {{\n' + ",\n".join(rows) + "\n}\n}\n"
    write_whole_text(folder / f"{result.set}.json", text)


def read_result(path: Path) -> SetResult:
    """What was written for a set; a file that is torn or something else is named."""
    try:
        return from_dict(SetResult, read_json(path))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} is no result of this command ({error}); remove it and run the set again") from None


def results_in(folder: Path) -> dict[str, SetResult]:
    """What was written to a folder, by the names of sets, in their order."""
    found = {name: folder / f"{name}.json" for name in NAMES}
    return {name: read_result(path) for name, path in found.items() if path.exists()}


def speeds_in(folder: Path) -> dict[str, float]:
    """Seconds for a thousand series by where they were answered, as far as they were measured."""
    path = folder / SPEED
    return dict(read_json(path)["seconds"]) if path.exists() else {}


def read_json(path: Path) -> Any:
    """What a file of this evaluation says; one that is torn is named."""
    try:
        return parsed_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot read {path}: {error}; remove it and run this again") from None

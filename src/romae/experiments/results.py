"""Results: what one run of a recipe measured, with all that is needed to believe it, as one JSON file.

A real result lies at results/<recipe>/<seed>.json. What was quick, or run with other settings than the recipe's, is a
trial: it says so itself, lies in results/trials, and is never counted. Settings of how a step is taken, such as
train.workers and train.compile, make no trial.
"""

import hashlib
import json
import math
import os
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from romae import __version__
from romae.config import from_dict, parsed_json, to_dict
from romae.data.subsets import evenly_spread
from romae.files import write_whole_text
from romae.training.config import FREE

TRIALS = "trials"
DIGITS = 4  # of the numbers that figures are drawn from
N_REPORTS = 100  # of a stage that are kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """The course of one stage, at some of its reports. Without validation samples, `validation` is empty."""

    stage: str
    step: tuple[int, ...]
    loss: tuple[float | None, ...]
    validation: tuple[float | None, ...] = ()

    @classmethod
    def of(cls, stage: str, records: Sequence[Mapping[str, Any]]) -> "Losses":
        """Of a history, its first and last report and up to a hundred in all, evenly spread, as they were."""
        kept = [records[i] for i in evenly_spread(len(records), N_REPORTS)]
        columns = {
            key: tuple(_finite(compact(record[key])) for record in kept if key in record)
            for key in ("step", "loss", "validation")
        }
        return cls(stage=stage, **columns)

    @property
    def records(self) -> list[dict[str, Any]]:
        """The reports that are kept."""
        validation = self.validation or [None] * len(self.step)
        columns = zip(self.step, self.loss, validation, strict=True)
        return [dict(zip(("step", "loss", "validation"), row, strict=True)) for row in columns]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The numbers of one seed. Baselines and floor are on the same data, in the units of the recipe's metric.

    A metric without a number is that of a seed that failed. `figure`, `losses` and `views` hold what the report draws,
    `n_samples` the sizes of the splits. `commit` ends with +changes where the source was not as committed. `seconds`
    are those of the process that ended the run; where it was `resumed`, others went before.
    """

    recipe: str
    protocol: str
    seed: int
    metrics: dict[str, float | None]
    baselines: dict[str, float]
    floor: float | None
    published: float | None
    config: dict[str, Any]
    overrides: tuple[str, ...]
    quick: bool
    commit: str
    device: str
    versions: dict[str, str]
    seconds: float
    figure: dict[str, Any]
    losses: tuple[Losses, ...] = ()
    views: dict[str, Any] = field(default_factory=dict)
    n_samples: dict[str, int] = field(default_factory=dict)
    resumed: bool = False

    @property
    def is_trial(self) -> bool:
        return _is_trial(self.overrides, self.quick)

    @property
    def summary(self) -> dict[str, Any]:
        """All but what is there to be drawn, ready for JSON."""
        body = to_dict(replace(self, figure={}, losses=(), views={}))
        return _finite({key: value for key, value in body.items() if key not in ("figure", "losses", "views")})

    def path(self, folder: str | Path) -> Path:
        """Where this result belongs."""
        return result_path(folder, self.recipe, self.seed, self.overrides, quick=self.quick)


def result_path(folder: str | Path, recipe: str, seed: int, overrides: Sequence[str], *, quick: bool) -> Path:
    """Where the result of a run belongs, which is known before it is run."""
    if not _is_trial(overrides, quick):
        return Path(folder) / recipe / f"{seed}.json"
    digest = hashlib.sha256("\n".join(overrides).encode()).hexdigest()[:8] if overrides else ""
    name = "-".join(part for part in (str(seed), "quick" if quick else "", digest) if part)
    return Path(folder) / TRIALS / recipe / f"{name}.json"


def is_result(path: Path) -> bool:
    """Whether a file is the result of a recipe, which another run may take the place of."""
    try:
        read_result(path)
    except ValueError:
        return False
    return True


def _is_trial(overrides: Sequence[str], quick: bool) -> bool:
    return quick or not all(_is_free(setting) for setting in overrides)


def write_result(result: Result, folder: str | Path) -> Path:
    """Write a result to its place, whole or not at all, and return where it is."""
    path = result.path(folder)
    body = to_dict(replace(result, figure=compact(result.figure), views=compact(result.views)))
    lines = [f"{json.dumps(key)}: {json.dumps(_finite(value))}" for key, value in body.items()]
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    write_whole_text(path, text)
    return path


def read_result(path: str | Path) -> Result:
    """Read a result; a file that is torn or is no result is named."""
    try:
        body = migrated(parsed_json(Path(path).read_text(encoding="utf-8")))
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"{path} is torn or no JSON ({error}); run this seed again, or remove the file") from None
    try:
        return from_dict(Result, body)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} is no result of a recipe: {error}") from None


def results_of(recipe: str, folder: str | Path) -> list[Result]:
    """The results of a recipe by seed, trials left out."""
    by_seed: dict[int, Result] = {}
    for name in (re.sub(r"\btuned\b", "house", recipe), recipe):  # what was run again replaces what 0.1 wrote
        for path in numbered_files(Path(folder, name)):
            result = read_result(path)
            if (result.recipe, result.seed) != (recipe, int(path.stem)):
                place = f"{result.recipe}, seed {result.seed}"
                raise ValueError(f"{path} holds the result of {place}; it is in a wrong place")
            by_seed[result.seed] = result
    return [result for _, result in sorted(by_seed.items()) if not result.is_trial]


def renamed(text: str) -> str:
    """The name of a recipe of 0.1, or a sentence about it, in today's words: "house" settings are "tuned" now."""
    return re.sub(r"\bhouse\b", "tuned", text)


def migrated(body: Any) -> Any:
    """What 0.1 wrote to a result file, with the name and the protocol of its recipe as they are today."""
    if not isinstance(body, dict):
        return body
    words = {key: renamed(body[key]) for key in ("recipe", "protocol") if isinstance(body.get(key), str)}
    return {**body, **words}


def _is_free(setting: str) -> bool:
    """Whether a setting, of all stages or of one, changes how a step is taken and not what it computes."""
    name = setting.partition("=")[0].strip()
    return re.sub(r"^stages\.\d+\.", "", name) in FREE


def numbered_files(folder: Path) -> list[Path]:
    """The files in a folder that are called after a seed."""
    return [path for path in folder.glob("*.json") if is_seed(path.stem)]


def is_seed(text: str) -> bool:
    """Whether a text is a whole number as we write it."""
    return text.isascii() and text.isdigit()


def compact(x: Any) -> Any:
    """Arrays as lists, numbers with a few digits."""
    if isinstance(x, Mapping):
        return {str(key): compact(value) for key, value in x.items()}
    if isinstance(x, np.ndarray):
        return compact(x.tolist())
    if isinstance(x, Sequence) and not isinstance(x, str):
        return [compact(element) for element in x]
    return float(f"{x:.{DIGITS}g}") if isinstance(x, float) else x


def commit() -> str:
    """The commit that the source was at, from git or else from ROMAE_COMMIT."""
    source = Path(__file__).resolve().parents[1]

    def git(*command: str) -> str:
        done = subprocess.run(["git", "-C", str(source), *command], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")  # else this is some other project's repository
        return git("rev-parse", "--short=12", "HEAD") + ("+changes" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return os.environ.get("ROMAE_COMMIT", "unknown")


def device_name(device: str) -> str:
    """The device that a run uses, in words."""
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() and device != "cpu" else "cpu"


def versions() -> dict[str, str]:
    import torch

    return {"romae": __version__, "python": platform.python_version(), "torch": torch.__version__}


def _finite(x: Any) -> Any:
    """JSON knows no NaN; what is not a number is null."""
    if isinstance(x, dict):
        return {key: _finite(value) for key, value in x.items()}
    if isinstance(x, list):
        return [_finite(element) for element in x]
    return None if isinstance(x, float) and not math.isfinite(x) else x

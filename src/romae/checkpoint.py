"""Models on disk: a folder with the weights (safetensors) and one JSON file that says what they belong to.

Nothing here reads or writes pickle, so a checkpoint from a stranger cannot run code.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from romae import __version__
from romae.config import from_dict, read_arguments, to_dict
from romae.model import Encoder, ModelConfig
from romae.tasks import TASKS, Task

FORMAT = 1
WEIGHTS, CONFIG = "model.safetensors", "config.json"


def save(task: Task, directory: str | Path) -> None:
    """Write a task to a folder, whole or not at all; a checkpoint that is already there is replaced."""
    from safetensors.torch import save_file

    directory = Path(directory)
    if directory.exists() and not (directory / CONFIG).is_file() and any(directory.iterdir()):
        raise ValueError(f"{directory} holds something else than a checkpoint; choose an empty or a new folder")
    description = {
        "format": FORMAT,
        "romae": __version__,
        "task": type(task).__name__,
        "model": to_dict(task.config),
        "settings": to_dict(task.settings),
    }
    directory.parent.mkdir(parents=True, exist_ok=True)
    written = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        weights = {key: value.detach().cpu().contiguous() for key, value in task.state_dict().items()}
        save_file(weights, written / WEIGHTS, metadata={"format": "pt"})
        (written / CONFIG).write_text(json.dumps(description, indent=2) + "\n")
        _swap(written, directory)
    finally:
        shutil.rmtree(written, ignore_errors=True)


def load(directory: str | Path) -> Task:
    """Read a task back, strictly: every weight has its place and every place its weight."""
    directory = Path(directory)
    description = read_json(directory / CONFIG)
    found = description.get("format") if isinstance(description, dict) else None
    if found != FORMAT:
        raise ValueError(f"{directory / CONFIG} has format {found!r}; this version of romae reads format {FORMAT}")
    name = description.get("task")
    if name not in TASKS:
        raise ValueError(f"{directory / CONFIG} names the task {name!r}; there are {sorted(TASKS)}")
    encoder = Encoder(from_dict(ModelConfig, description["model"], where="model"))
    settings = read_arguments(TASKS[name], description["settings"], where="settings", given=["encoder"])
    task = TASKS[name](encoder, **settings)
    fill(task, read_weights(directory / WEIGHTS), str(directory))
    return task.eval()


def fill(module: nn.Module, weights: Mapping[str, Tensor], where: str) -> None:
    """Load weights strictly, with a report of all that does not fit."""
    expected = module.state_dict()
    problems = [f"missing {key}" for key in expected if key not in weights]
    problems += [f"unexpected {key}" for key in weights if key not in expected]
    problems += [
        f"{key} is {list(weights[key].shape)} instead of {list(value.shape)}"
        for key, value in expected.items()
        if key in weights and weights[key].shape != value.shape
    ]
    if problems:
        shown = "; ".join(problems[:6]) + (f"; and {len(problems) - 6} more" if len(problems) > 6 else "")
        raise ValueError(f"the weights in {where} do not fit its configuration: {shown}")
    module.load_state_dict(weights)


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors in a safetensors file."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not path.is_file():
        raise ValueError(f"{path} does not exist; a checkpoint is a folder that holds it")
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} is damaged or no safetensors file: {error}") from None


def read_json(path: Path) -> Any:
    if not path.is_file():
        raise ValueError(f"{path} does not exist; a checkpoint is a folder that holds it")
    try:
        return json.loads(path.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is damaged or no JSON: {error}") from None


def _swap(written: Path, directory: Path) -> None:
    """Put a finished folder in its place. A crash leaves the old one, the new one, or the old one set aside."""
    for file in written.iterdir():
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
    os.chmod(written, 0o755)
    if not directory.exists():
        os.replace(written, directory)
        return
    aside = Path(tempfile.mkdtemp(prefix=f".{directory.name}-old-", dir=directory.parent))
    os.replace(directory, aside)
    os.replace(written, directory)
    shutil.rmtree(aside)

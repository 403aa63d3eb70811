"""Checkpoints, estimators and states of runs on disk, damaged or written by a stranger.

The oracle: what is loaded has the weights and the settings that were saved, bit for bit. A stranger's config.json may
ask for anything; it gets a refusal before it gets memory.
"""

import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import torch

import romae
from fuzz import fixtures, hostile
from fuzz.judging import Trial, answered, require
from romae.config import to_dict
from romae.training.run_folder import RunFolder


def attempt(trial: Trial) -> None:
    trial.choose([_bytes, _bytes, _bytes, _config, _config, _missing, _estimator, _estimator, _state])(trial)


@cache
def _saved(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    task = romae.load(folder)
    return task.state_dict(), _said(task)


def _said(task: Any) -> dict[str, Any]:
    return to_dict(
        {
            "task": type(task).__name__,
            "model": task.config,
            "settings": task.settings,
            "scaling": task.scaling,
            "schema": task.schema,
        }
    )


def _loaded_right(folder: Path, original: Path, *, same_settings: bool = True) -> None:
    task = romae.load(folder)
    with answered("a checkpoint"):
        weights, said = _saved(original)
        now = task.state_dict()
        require(now.keys() == weights.keys(), "other weights")
        require(all(torch.equal(now[key], weights[key]) for key in weights), "weights with other numbers")
        require(not same_settings or _said(task) == said, "other settings")


def _copy(trial: Trial, folder: Path) -> Path:
    return Path(shutil.copytree(folder, trial.folder / "model"))


def _bytes(trial: Trial) -> None:
    folder = _copy(trial, fixtures.checkpoint())
    trial.is_sound = trial.chance(0.1)
    if not trial.is_sound:
        name = trial.choose(["model.safetensors", "model.safetensors", "config.json"])
        trial.note(name)
        path = folder / name
        path.write_bytes(hostile.damaged(trial, path.read_bytes()))
    _loaded_right(folder, fixtures.checkpoint())


HUGE = {
    "model.encoder.width": (8 * 10**6, 2**40, 10**400),
    "model.encoder.depth": (10**6, 10**9, 2**63),
    "model.encoder.feed_forward": (10**9, 10**15),
    "model.channels": (10**9, 10**12, 2**70),
    "model.position_dims": (10**7, 10**9),
    "model.decoder.width": (2**30,),
    "model.decoder.depth": (10**9,),
    "settings.n_classes": (10**9, 10**12, 2**64),
    "model.kinds": (10**9, 10**12),
}


def _config(trial: Trial) -> None:
    """A stranger's config.json: valid JSON as a rule, with another setting, or one that asks for all memory."""
    folder = _copy(trial, fixtures.checkpoint())
    path = folder / "config.json"
    body = json.loads(path.read_bytes())
    if trial.chance(0.4):
        for name in trial.random.choice(sorted(HUGE), size=trial.number(1, 2), replace=False).tolist():
            *parents, key = name.split(".")
            place = body
            for parent in parents:
                place = place[parent]
            place[key] = trial.choose(HUGE[name])
            trial.note(f"{name}={place[key]}"[:60])
        path.write_text(json.dumps(body))
    else:
        path.write_bytes(hostile.damaged_json(trial, body).encode("utf-8", "surrogatepass"))
    _loaded_right(folder, fixtures.checkpoint(), same_settings=False)


def _missing(trial: Trial) -> None:
    folder = _copy(trial, fixtures.checkpoint())
    kind = trial.choose(["weights", "config", "both", "folder for a file", "another's", "path", "inside"])
    trial.note(kind)
    if kind in ("weights", "both"):
        (folder / "model.safetensors").unlink()
    if kind in ("config", "both"):
        (folder / "config.json").unlink()
    if kind == "folder for a file":
        (folder / "config.json").unlink()
        (folder / "config.json").mkdir()
    if kind == "another's":
        shutil.copy(fixtures.run() / "best" / "model.safetensors", folder)
    path: Any = folder
    if kind == "path":
        path = trial.choose([hostile.thing(trial), folder / "no", folder / "config.json", "./" + hostile.text(trial)])
        trial.note(repr(path)[:60])
    if kind == "inside":
        (folder / "best").mkdir()
        trial.is_sound = True
    _loaded_right(path, fixtures.checkpoint())


def _estimator(trial: Trial) -> None:
    folder = Path(shutil.copytree(fixtures.estimator(), trial.folder / "estimator"))
    names = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*.json"))]
    name = trial.choose(names)
    path = folder / name
    trial.is_sound = trial.chance(0.1)
    if not trial.is_sound:
        trial.note(name)
        body = json.loads(path.read_bytes())
        is_text = trial.chance(0.6)
        changed = hostile.damaged_json(trial, body).encode("utf-8", "surrogatepass") if is_text else None
        path.write_bytes(hostile.damaged(trial, path.read_bytes()) if changed is None else changed)
    loaded = romae.RoMAEClassifier.load(folder)
    with answered("an estimator"):
        sound = romae.RoMAEClassifier.load(fixtures.estimator())
        require(callable(loaded.predict), "an attribute that replaces a method")
        extra = set(vars(loaded)) - set(vars(sound))
        require(not extra, f"attributes that the library does not know: {sorted(extra)}")
        if trial.is_sound:
            series = torch.zeros(2, 5, 1).numpy()
            require((loaded.predict_proba(series) == sound.predict_proba(series)).all(), "other answers")


def _state(trial: Trial) -> None:
    """The newest state of a run, damaged: the one before it is read, or none; never another."""
    folder = Path(shutil.copytree(fixtures.run(), trial.folder / "run"))
    [*_, last] = sorted((folder / "states").iterdir())
    sound = RunFolder(fixtures.run()).read()
    trial.is_sound = trial.chance(0.1)
    if not trial.is_sound:
        path = trial.choose(sorted(last.iterdir()))
        trial.note(path.name)
        path.write_bytes(hostile.damaged(trial, path.read_bytes()))
    state = RunFolder(folder).read()
    with answered("a state"):
        if state is None:
            require(not trial.is_sound, "no state")
            return
        assert sound is not None
        require(state.numbers == sound.numbers, "other numbers")
        for group, tensors in sound.tensors.items():
            require(all(torch.equal(state.tensors[group][key], x) for key, x in tensors.items()), "other tensors")

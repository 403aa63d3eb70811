"""Configurations: dictionaries, JSON and TOML files and settings of the command line, with strange keys and values.

The oracle: what is accepted says what was given, setting by setting, and comes back the same from its own dictionary.
"""

import json
import math
from functools import cache
from typing import Any

import romae
from fuzz import hostile
from fuzz.judging import Trial, answered, require
from romae.config import flat, from_dict, load_config, override, to_dict
from romae.data.scaling import Scaling
from romae.inference.tables import InferenceConfig, InterpolateConfig
from romae.pages.run_page import PageConfig
from romae.training.tables import FinetuneConfig, PretrainConfig, read_job


@cache
def _sound() -> tuple[Any, ...]:
    size = romae.Size(width=8, heads=1, depth=1)
    return (
        romae.ModelConfig(channels=2, position_dims=1, encoder=size, decoder=size),
        romae.TrainConfig(),
        PretrainConfig(),
        PretrainConfig(),
        FinetuneConfig(label="kind"),
        InferenceConfig(),
        InterpolateConfig(),
        PageConfig(),
        romae.Schema(channel="band", channels=("g", "r"), label="kind", classes=("up", "down"), time_unit="day"),
        Scaling(),
        size,
    )


def attempt(trial: Trial) -> None:
    config = trial.choose(_sound())
    trial.note(type(config).__name__)
    body = to_dict(config)
    trial.choose([_dictionary, _file, _file, _settings, _settings, _job])(trial, type(config), config, body)


def _dictionary(trial: Trial, kind: type, config: Any, body: Any) -> None:
    given: Any = body
    trial.is_sound = trial.chance(0.1)
    if not trial.is_sound:
        place, way = body, []
        while isinstance(place, dict) and place:
            key = trial.choose(sorted(place))
            way.append(key)
            if not isinstance(place[key], dict) or trial.chance(0.3):
                break
            place = place[key]
        new = hostile.thing(trial)
        trial.note(f"{'.'.join(way)} = {new!r}"[:100])
        if trial.chance(0.1):
            key = trial.choose(["", "a", "__init__", 3, None])
        if trial.chance(0.05):
            given = new
        else:
            place[key] = new
    made = from_dict(kind, given)
    _same_settings(trial, made, given)


def _file(trial: Trial, kind: type, config: Any, body: Any) -> None:
    trial.is_sound = trial.chance(0.1)
    path = trial.folder / trial.choose(["settings.json", "settings.json", "settings", "SETTINGS.JSON"])
    text = json.dumps(body) if trial.is_sound else hostile.damaged_json(trial, body)
    content = text.encode("utf-8", "surrogatepass")
    if not trial.is_sound and trial.chance(0.15):
        content = hostile.damaged(trial, content)
    if not trial.is_sound and trial.chance(0.1):
        path = path.with_name(trial.choose(["settings.toml", "settings.yaml", "set\ntings.json"]))
        trial.note(path.name)
    path.write_bytes(content)
    made = load_config(kind, path)
    if path.suffix.lower() != ".toml":
        _same_settings(trial, made, json.loads(content))


def _settings(trial: Trial, kind: type, config: Any, body: Any) -> None:
    paths = [path for path, _ in flat(body)]
    trial.is_sound = trial.chance(0.05)
    words = []
    for _ in range(0 if trial.is_sound else trial.number(1, 2)):
        path = trial.choose(paths)
        if trial.chance(0.2):
            path = trial.choose(["", ".", "a", f"{path}.b", path.split(".")[0], "a.b.c", "=", "train.", "masking.kind"])
        value = trial.choose(
            [
                *(
                    hostile.text(trial),
                    str(hostile.number(trial)),
                    "none",
                    "true",
                    "[1, 2]",
                    "{a=1}",
                    '"x"',
                    "1e-3",
                    ".5",
                ),
                *(
                    "tiny",
                    "[" * 3000,
                    "1" * 5000,
                    "0b101",
                    "2024-03-01",
                    "nan",
                    "inf",
                    "-1",
                    "[[1],[2]]",
                    "'''",
                    "1\na=2",
                ),
            ]
        )
        words.append(trial.choose([f"{path}={value}", f"{path}={value}", path, f" {path} = {value} "]))
    trial.note(repr(words)[:150])
    made = override(config, *words)
    with answered("a configuration that was accepted"):
        require(_equal(to_dict(from_dict(kind, to_dict(made))), to_dict(made)), "it does not come back as it is")
        changed = {path for path, value in flat(to_dict(made)) if not _equal(dict(flat(body)).get(path, ...), value)}
        named = [word.partition("=")[0].strip() for word in words]
        for path in changed:
            require(any(path.startswith(name) or name.startswith(path) for name in named), "another setting changed")


def _job(trial: Trial, kind: type, config: Any, body: Any) -> None:
    path = trial.folder / "job.json"
    trial.is_sound = trial.chance(0.1)
    path.write_bytes(
        (json.dumps(body) if trial.is_sound else hostile.damaged_json(trial, body)).encode("utf-8", "surrogatepass")
    )
    if kind in (PretrainConfig, FinetuneConfig):
        _same_settings(trial, read_job(kind, path), json.loads(path.read_bytes()), but=("model.kinds",))


def _same_settings(trial: Trial, made: Any, given: Any, but: tuple[str, ...] = ()) -> None:
    """Every setting that was given is in what was made of it."""
    with answered("a configuration that was accepted"):
        again = to_dict(made)
        require(_equal(to_dict(from_dict(type(made), again)), again), "it does not come back as it is")
        json.dumps(again, allow_nan=True)
        now = dict(flat(again))
        for path, value in flat(to_dict(given)):
            if path in now and path not in but:
                require(_equal(now[path], value), f"{path} is not what was given")


def _equal(a: Any, b: Any) -> bool:
    """The same values; whole numbers may have become floats, and what holds NaN is the same as itself."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_equal, a, b))
    if isinstance(a, bool) != isinstance(b, bool):
        return False
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b):
        return True
    if isinstance(a, float) and isinstance(b, int):
        return a == float(b)
    return bool(a == b) or (isinstance(a, dict) and isinstance(b, str))  # sizes have names

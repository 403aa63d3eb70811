"""Configurations: frozen dataclasses to and from dictionaries, JSON and TOML, strict in both directions."""

import contextlib
import dataclasses
import inspect
import json
import tomllib
import types
import typing
from collections.abc import Container, Iterable, Mapping
from datetime import date, time
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

C = TypeVar("C")
LARGEST = 2**64 - 1  # of whole numbers: what a table or an array can hold
LONGEST_SHOWN = 300  # characters of a value in a message
DEEPEST = 100  # tables and lists within each other: ours are a dozen


def to_dict(config: Any) -> Any:
    """Plain dictionaries, lists and scalars, ready for JSON."""
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        return {f.name: to_dict(getattr(config, f.name)) for f in dataclasses.fields(config)}
    if isinstance(config, Mapping):
        return {str(key): to_dict(value) for key, value in config.items()}
    if isinstance(config, tuple | list):
        return [to_dict(value) for value in config]
    return _plain(config)


def from_dict(cls: type[C], data: Mapping[str, Any], *, where: str = "") -> C:
    """Build a configuration; unknown keys, missing keys and values of the wrong type are refused."""
    return cls(**read_arguments(cls, data, where=where))


def read_arguments(
    cls: type, data: Mapping[str, Any], *, where: str = "", given: Container[str] = ()
) -> dict[str, Any]:
    """Settings read as the arguments that a class is built with, less those already given; strict."""
    if not isinstance(data, Mapping):
        raise TypeError(f"{where or cls.__name__} must be a table of settings, not {_shown(data)}")
    open_ones = {key: parameter for key, parameter in parameters(cls).items() if key not in given}
    for key in data:
        if key not in open_ones:
            hint = near_miss(str(key), open_ones)
            raise ValueError(f"unknown key {_join(where, key)!r}; {cls.__name__} has {sorted(open_ones)}{hint}")
    missing = [key for key, p in open_ones.items() if p.default is inspect.Parameter.empty and key not in data]
    if missing:
        raise ValueError(f"{where or cls.__name__} lacks {missing}")
    return {key: _read(open_ones[key].annotation, value, _join(where, key)) for key, value in data.items()}


def near_miss(name: str, known: Iterable[str], *, likeness: float = 0.6) -> str:
    """The end of a sentence: which of the known names may be meant, or nothing."""
    near = get_close_matches(name, list(known), n=2, cutoff=likeness)
    return f"; do you mean {' or '.join(map(repr, near))}?" if near else ""


def parameters(cls: type) -> Mapping[str, inspect.Parameter]:
    """What a class is built with, by name and type; where it hands `**settings` on, also what the class above takes."""
    return _parameters(cls)


@cache
def _parameters(cls: type) -> Mapping[str, inspect.Parameter]:
    collected: dict[str, inspect.Parameter] = {}
    for base in cls.__mro__:
        if "__init__" not in vars(base):
            continue
        own = list(inspect.signature(base.__init__).parameters.values())[1:]  # type: ignore[misc]
        hints = typing.get_type_hints(base.__init__)  # type: ignore[misc]
        for p in own:
            if p.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
                collected.setdefault(p.name, p.replace(annotation=hints.get(p.name, Any)))
        if not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in own):
            break
    return types.MappingProxyType(collected)


def parsed_json(text: str | bytes) -> Any:
    """What a JSON text says; one that is damaged, or nested or long beyond use, is refused."""
    try:
        content = json.loads(text)
    except RecursionError:
        raise ValueError(f"it is nested more than {DEEPEST} deep") from None
    level = [content]
    for _ in range(DEEPEST):
        level = [child for node in level for child in _children(node) if isinstance(child, dict | list)]
        if not level:
            return content
    raise ValueError(f"it is nested more than {DEEPEST} deep")


def _children(node: Any) -> Iterable[Any]:
    return node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()


def load_config(cls: type[C], path: str | Path) -> C:
    """Read a configuration from a .json or .toml file."""
    path = Path(path)
    if path.suffix.lower() not in (".toml", ".json", ""):
        raise ValueError(f"settings are read from a .toml or a .json file, and {path} is none")
    try:
        text = path.read_text(encoding="utf-8")
        data = tomllib.loads(text) if path.suffix.lower() == ".toml" else parsed_json(text)
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid {path.suffix.lstrip('.').upper() or 'JSON'}: {error}") from None
    return from_dict(cls, data)


def override(config: C, *settings: str) -> C:
    """A configuration with settings replaced, each written as `a.b=3` (the value in TOML; bare words are text)."""
    data = to_dict(config)
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals or not path.strip():
            raise ValueError(f"cannot read setting {setting!r}; write it as key=value, for example train.epochs=6")
        *parents, key = path.strip().split(".")
        place = data
        for i, parent in enumerate(parents):
            if not isinstance(place.get(parent, {}), dict):
                raise ValueError(f"{'.'.join(parents[: i + 1])!r} is a single value and has no setting {key!r}")
            place = place.setdefault(parent, {})
        place[key] = _parsed(text.strip())
        if key == "kind" and isinstance(place[key], str):
            _keep_settings_of_kind(_hint_at(type(config), parents), place)
        if place[key] is None:
            place[key] = _none_or_text(type(config), data, place, key, text.strip())
    return from_dict(type(config), data)


def _hint_at(cls: type, path: Iterable[str]) -> Any:
    """The annotation of a setting within tables of single types; None where the path leads elsewhere."""
    hint: Any = cls
    for name in path:
        hint = _hints(hint).get(name) if dataclasses.is_dataclass(hint) else None  # type: ignore[arg-type]
    return hint


def _keep_settings_of_kind(hint: Any, place: dict[str, Any]) -> None:
    """Take away the settings that another kind had and this one has not, so that they need not be named."""
    for one in get_args(hint):
        if dataclasses.is_dataclass(one) and "kind" in one.__annotations__:
            names = _hints(one)  # type: ignore[arg-type]
            if names["kind"].__args__[0] == place["kind"]:
                for name in [name for name in place if name not in names]:
                    del place[name]


def _none_or_text(cls: type, data: Mapping[str, Any], place: dict[str, Any], key: str, text: str) -> str | None:
    """None where the setting takes it, or else the word itself, which some settings have among their values."""
    try:
        from_dict(cls, data)
    except (TypeError, ValueError):
        place[key] = text
        with contextlib.suppress(TypeError, ValueError):
            from_dict(cls, data)
            return text
    return None


def flat(settings: Any, where: str = "") -> list[tuple[str, Any]]:
    """Every single setting of a dictionary by its path, such as train.epochs or stages.0.kind."""
    if isinstance(settings, dict):
        pairs = list(settings.items())
    elif isinstance(settings, list) and settings and isinstance(settings[0], dict):
        pairs = [(str(i), value) for i, value in enumerate(settings)]
    else:
        return [(where, settings)]
    return [setting for key, value in pairs for setting in flat(value, _join(where, key))]


def differences(before: Any, now: Any) -> list[str]:
    """The paths of the settings that two dictionaries do not share, or in which they differ."""
    old, new = dict(flat(before)), dict(flat(now))
    missing = object()
    return sorted(path for path in old | new if old.get(path, missing) != new.get(path, missing))


def check_types(config: Any) -> None:
    """For `__post_init__`: hold every field of a frozen configuration against its annotation.

    Numbers of numpy become Python's, lists become tuples, and whole numbers are welcome where a float is asked for.
    """
    cls: Any = type(config)
    for name, hint in _hints(cls).items():
        value = getattr(config, name)
        object.__setattr__(config, name, _read(hint, value, name))


@cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _parsed(text: str) -> Any:
    if text.lower() in ("none", "null"):
        return None
    try:
        value = tomllib.loads(f"value = {text}")["value"]
        return text if isinstance(value, date | time) else value  # dates are text in our settings
    except (ValueError, RecursionError):  # no TOML, or numbers and lists without end
        pass
    try:
        return float(text)  # TOML does not know 1e-3 without a digit after the point, nor .5
    except ValueError:
        return text


def _join(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def _read(hint: Any, value: Any, where: str) -> Any:
    """The value as the type that the annotation names, or a sentence that says why not."""
    if hint is Any:
        return value
    value = _plain(value)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _read_union(arguments, value, where)
    if origin is Literal:
        if value not in arguments:
            raise ValueError(f"{where} must be one of {list(arguments)}, not {_shown(value)}")
        return value
    if origin is tuple:
        return _read_tuple(arguments, value, where)
    if origin in (dict, Mapping) or hint is dict:
        if not isinstance(value, Mapping):
            raise TypeError(f"{where} must be a table, not {_shown(value)}")
        return {
            key: _read(arguments[1] if arguments else Any, entry, _join(where, key)) for key, entry in value.items()
        }
    if dataclasses.is_dataclass(hint):
        if isinstance(value, hint):  # type: ignore[arg-type]
            return value
        if isinstance(value, str) and hasattr(hint, "named"):
            return hint.named(value)
        if not isinstance(value, Mapping):
            raise TypeError(f"{where} must be a {hint.__name__}, not {_shown(value)}")  # type: ignore[union-attr]
        return from_dict(hint, value, where=where)  # type: ignore[arg-type]
    if hint in (int, float) and type(value) is int and abs(value) > LARGEST:
        raise ValueError(f"{where} is a whole number of {len(str(abs(value)))} digits; the largest is 2**64 - 1")
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(hint, type) or not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise TypeError(f"{where} must be {getattr(hint, '__name__', hint)}, not {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    """A value in a message: the beginning of a long one."""
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def _plain(value: Any) -> Any:
    """A number of numpy as Python's."""
    is_numpy = type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0
    return value.item() if is_numpy else value


def _read_tuple(arguments: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise TypeError(f"{where} must be a list, not {_shown(value)}")
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        if set(map(type, value)) <= _as_they_are(arguments[0]):
            return tuple(value)
        return tuple(_read(arguments[0], entry, f"{where}[{i}]") for i, entry in enumerate(value))
    if len(arguments) != len(value):
        raise ValueError(f"{where} must have {len(arguments)} entries, not {len(value)}")
    return tuple(
        _read(hint, entry, f"{where}[{i}]") for i, (hint, entry) in enumerate(zip(arguments, value, strict=True))
    )


@cache
def _as_they_are(hint: Any) -> frozenset[type]:
    """The types whose values need not be looked at one by one: long lists of numbers are read at once."""
    hints = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    return frozenset(hints) if set(hints) <= {float, str, bool, type(None)} else frozenset()


def _read_union(arguments: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in arguments:
        return None
    hints = [hint for hint in arguments if hint is not type(None)]
    named = {_hints(hint)["kind"].__args__[0]: hint for hint in hints if "kind" in getattr(hint, "__annotations__", ())}
    if named and isinstance(value, Mapping):
        if not isinstance(value.get("kind"), str) or value["kind"] not in named:
            raise ValueError(f"{where} must say its kind, one of {sorted(named)}, not {value.get('kind')!r}")
        return _read(named[value["kind"]], value, where)
    reasons: list[Exception] = []
    for hint in hints:
        if dataclasses.is_dataclass(hint) and isinstance(value, hint):  # type: ignore[arg-type]
            return value
        if getattr(hint, "_is_protocol", False):
            if isinstance(value, hint):
                return value
            continue
        try:
            return _read(hint, value, where)
        except (TypeError, ValueError) as error:
            if isinstance(value, str) and hasattr(hint, "named"):
                raise  # a name that is misspelt is no text for the next type
            reasons.append(error)
    if len(reasons) == 1:
        raise reasons[0]
    tables = [i for i, hint in enumerate(hints) if dataclasses.is_dataclass(hint)]
    if isinstance(value, Mapping) and len(tables) == 1 and len(reasons) == len(hints):
        raise reasons[tables[0]]
    raise TypeError(f"{where} must be {' or '.join(map(_type_name, hints))}, not {_shown(value)}")


def _type_name(hint: Any) -> str:
    """A type as people write it; choices by their values."""
    if typing.get_origin(hint) is typing.Literal:
        return " or ".join(map(repr, typing.get_args(hint)))
    return getattr(hint, "__name__", str(hint))

"""A fitted estimator on disk: its networks, the simpler models beside them, and what else fitting leaves, as JSON."""

import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from romae.checkpoints import native as checkpoint
from romae.config import to_dict
from romae.estimators.stacking import N_LABELS, LabelStacks, Stack
from romae.model.tasks import Task

DESCRIPTION, MODEL, STACK = checkpoint.ESTIMATOR_FILES
DIGEST = "digest"  # in the description: of all else in it
MOST_BYTES = 2**24  # of an array in a description


def model_name(number: int) -> str:
    """The folder of a network within that of an estimator: model, model-1, model-2, …"""
    return f"{MODEL}-{number}" if number else MODEL


def is_model(name: str) -> bool:
    """Whether that is the name of such a folder."""
    return name == MODEL or (name.startswith(f"{MODEL}-") and name.removeprefix(f"{MODEL}-").isdigit())


def as_files(task: Task) -> dict[str, bytes]:
    """The files of a checkpoint, for pickle."""
    with tempfile.TemporaryDirectory() as folder:
        task.save(Path(folder) / MODEL)
        return {file.name: file.read_bytes() for file in (Path(folder) / MODEL).iterdir()}


def from_files(files: Mapping[str, bytes]) -> Task:
    """What `as_files` gave."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            (Path(folder) / name).write_bytes(content)
        return checkpoint.load(folder)


def stack_bytes(stack: Stack | LabelStacks) -> bytes:
    """The file of the models beside a network."""
    from safetensors.numpy import save

    arrays = {name: np.ascontiguousarray(array) for name, array in stack.arrays().items()}
    return save(arrays, metadata={DIGEST: _digest_of(arrays)})


def read_stack(path: Path) -> Stack | LabelStacks:
    """The models beside a network, from a file that holds numbers alone."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise ValueError(f"{path} is missing, so that the estimator is not whole; take a copy that is")
    try:
        with safe_open(path, framework="numpy") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (it is no dictionary)
            digest = (file.metadata() or {}).get(DIGEST)
    except (SafetensorError, ValueError) as error:
        raise ValueError(f"{path} is damaged: {error}") from None
    if digest != _digest_of(arrays):
        raise ValueError(f"{path} is damaged: its digest is another; take a copy that is whole")
    return LabelStacks.from_arrays(arrays) if N_LABELS in arrays else Stack.from_arrays(arrays)


def _digest_of(arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def written(value: Any) -> Any:
    """A fitted attribute as JSON can hold it."""
    return {"array": value.tolist(), "type": value.dtype.str} if isinstance(value, np.ndarray) else to_dict(value)


def fitted_attributes(cls: type, saved: Sequence[str], stored: Any) -> dict[str, Any]:
    """What fitting left, from a file: the attributes that a class saves, each of the type that it declares.

    One that the class has a value for may be missing, for older versions did not save it.
    """
    if not isinstance(stored, dict) or not set(stored) <= set(saved):
        unknown = sorted(set(stored) - set(saved)) if isinstance(stored, dict) else stored
        raise ValueError(f"{unknown} is nothing that fitting leaves in a {cls.__name__}")
    if missing := [name for name in saved if name not in stored and not hasattr(cls, name)]:
        raise ValueError(f"it lacks {missing}")
    hints, fitted = get_type_hints(cls), {name: _revived(value) for name, value in stored.items()}
    for name, value in fitted.items():
        if not is_of_type(value, hints[name]):
            raise ValueError(f"{name} is of another type than fitting gives it")
    return fitted


def is_of_type(value: Any, hint: Any) -> bool:
    """Whether a value out of JSON is what an annotation says; arrays are known by being arrays."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(is_of_type(value, part) for part in inner)
    if origin is list:
        return isinstance(value, list) and all(is_of_type(entry, inner[0]) for entry in value)
    if origin is dict or hint is dict:
        return isinstance(value, dict)
    if hint is Any:
        return True
    if hint in (bool, int, float, str, type(None)):
        return type(value) is hint or (hint is float and type(value) is int)
    return isinstance(value, np.ndarray)


def _revived(value: Any) -> Any:
    """A fitted attribute as it was before `written`."""
    if not isinstance(value, dict) or set(value) != {"array", "type"}:
        return value
    entries, dtype = value["array"], np.dtype(str(value["type"]).replace("|O", "O"))
    if not isinstance(entries, list) or any(isinstance(entry, list | dict) for entry in entries):
        raise ValueError("an array in it is no list of numbers or words")
    if dtype.kind not in "biufUO" or dtype.itemsize * len(entries) > MOST_BYTES:
        raise ValueError(f"an array in it has the type {value['type']!r}")
    return np.array(entries, dtype=dtype)

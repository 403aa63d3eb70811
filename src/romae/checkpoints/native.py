"""Models on disk: a folder with the weights (safetensors) and one JSON file that says what they belong to.

Nothing here reads or writes pickle, so a checkpoint from a stranger cannot run code. Nor can its configuration ask for
memory: a model is built without weights, on the meta device, and compared with the header of the file of weights
before any is read. Both files carry digests, so that damage to either is found when they are read.
"""

import contextlib
import hashlib
import json
import math
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from romae import __version__
from romae.config import from_dict, parameters, parsed_json, read_arguments, to_dict
from romae.data.scaling import Scaling
from romae.data.schema import Schema
from romae.files import readable_path, write_whole_folder, write_whole_text
from romae.model.autoencoder import Encoder, misfits
from romae.model.config import ModelConfig
from romae.model.tasks import TASKS, MaskedReconstruction, Task

BUNDLED = "romae/"  # names of models that come with the library
FORMAT = FIRST_WITH_DIGESTS = 3
WEIGHTS, CONFIG, CARD = "model.safetensors", "config.json", "README.md"
ESTIMATOR_FILES = ("estimator.json", "model", "stack.safetensors")  # what an estimator is, its network, its trees
DIGESTS = "digests"  # in the description: one of the file of weights, one of all else in the description
PRECISIONS = {torch.float32: "float32", torch.float64: "float64"}  # that 16 bits can stand for
FLOATS = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}  # by safetensors
RESTORE = "restore"  # in the metadata of weights: the precision that they had, and get back


def save(task: Task, directory: str | Path, *, half: bool = False, card: str | None = None) -> None:
    """Write a task to a folder, whole or not at all; a checkpoint that is already there is replaced.

    `half` stores weights in 16 bits, in half the space; they come back in full precision, rounded. `card` is the text
    of a README.md beside them; one that is there already stays unless another is given.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    directory = require_place(directory)
    description = {"format": FORMAT, "romae": __version__, **described(task)}
    weights, metadata = {key: value.detach().cpu() for key, value in task.state_dict().items()}, {"format": "pt"}
    _require_one_precision({str(value.dtype) for value in weights.values()}, "this task cannot be saved")
    _require_finite(weights, "this task cannot be saved")
    if half and (before := PRECISIONS.get(next(iter(weights.values())).dtype)):
        weights, metadata = _halved(weights), metadata | {RESTORE: before}
    kept = (directory / CARD).read_bytes() if (directory / CARD).is_file() else None
    kept = kept if card is None else card.encode()

    def write(to: Path) -> None:
        save_file({key: value.contiguous() for key, value in weights.items()}, to / WEIGHTS, metadata=metadata)
        (to / CONFIG).write_text(_with_digests(description, to / WEIGHTS))
        if kept is not None:
            (to / CARD).write_bytes(kept)

    try:
        write_whole_folder(directory, write)
    except SafetensorError as error:
        raise OSError(f"cannot write {directory}: {error}") from None


def described(task: Task) -> dict[str, Any]:
    """All of a task but its weights, as JSON has it; refused where it would not come back as it is."""
    settings = dict(task.settings)
    if "drop_tokens" not in parameters(type(task)):  # a task of the user's own that says itself how many it drops
        settings.pop("drop_tokens", None)
    description = {
        "task": type(task).__name__,
        "model": to_dict(task.config),
        "settings": to_dict(settings),
        "scaling": to_dict(task.scaling),
        "schema": to_dict(task.schema),
    }
    try:
        same = read_arguments(type(task), json.loads(json.dumps(description["settings"])), given=["encoder"])
    except (TypeError, ValueError) as error:
        reason = f"its settings cannot be read back: {error}"
        raise ValueError(
            f"this task cannot be saved: {reason}; its class takes them by these names, as numbers, words or values "
            "of romae, such as the strategies in romae.masking"
        ) from None
    if same != settings:
        raise ValueError(f"this task cannot be saved: its settings {settings} would not come back as they are")
    return description


def require_place(directory: str | Path) -> Path:
    """The folder for a checkpoint; refused where something else is."""
    directory = Path(directory).resolve()
    if directory.exists() and not directory.is_dir():
        raise ValueError(f"{directory} is a file; a checkpoint is a folder")
    present = set(os.listdir(directory)) if directory.exists() else set()
    # A README.md without a checkpoint is someone's own.
    ours = {WEIGHTS, CONFIG, CARD} if CONFIG in present else {WEIGHTS}
    if others := sorted(present - ours):
        raise ValueError(f"{directory} holds {others[0]!r} beside a checkpoint; choose an empty or a new folder")
    if present and not _is_ours(directory):
        raise ValueError(f"{directory} holds a model that is not romae's; choose an empty or a new folder")
    return directory


def _is_ours(directory: Path) -> bool:
    """Whether a folder holds a checkpoint that may be replaced."""
    try:
        _current(read_json(directory / CONFIG), directory / CONFIG)
    except ValueError:
        return False
    return (directory / WEIGHTS).is_file()


def load(
    path: str | Path,
    *,
    revision: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | Path | None = None,
    task: type[Task] | None = None,
) -> Task:
    """Load a trained model from a folder, or by its name on the Hugging Face Hub.

    Parameters
    ----------
    path : str or Path
        The folder of a checkpoint, the name of a model that comes with romae ("romae/zero", "romae/light-curves",
        "romae/icu", "romae/icu-mortality"), or a name on the Hub such as "someone/light-curves". What looks like a path
        (it begins with ".", "/" or "~", ends in a separator, holds several of them, or names a file in a folder that
        exists) is never looked up on the Hub.
    revision : str, optional
        A branch, tag or commit on the Hub; by default the newest.
    token : str or bool, optional
        An access token for private models; by default the one that `hf auth login` stored. False sends none.
    cache_dir : str or Path, optional
        The folder for downloads; by default the cache of huggingface_hub.
    task : type, optional
        The class of a task of your own (a subclass of `Task`); the library's are found by their names.

    Returns
    -------
    MaskedReconstruction, Classification, MultiLabel, Regression or `task`
        The task, in evaluation mode, with its scaling and schema. Every weight has its place and vice versa.

    Raises
    ------
    ValueError
        If there is no such checkpoint, it is damaged, its weights do not fit its configuration, it holds another task
        than `task`, or it was written by a newer version.
    TypeError
        If the path or `task` is something else.

    See Also
    --------
    Task.save : writes such a folder.
    Task.push_to_hub : uploads it.

    Notes
    -----
    A checkpoint is safetensors and JSON. No pickle is read and no class is looked for by a name in a file, so that one
    from a stranger cannot run code. Its configuration is compared with the header of its weights before any memory is
    taken for them. Both files carry digests, which are checked; older checkpoints have none and load with a warning.

    Examples
    --------
    >>> import romae
    >>> config = romae.ModelConfig(channels=1, position_dims=1, encoder="tiny-shallow")
    >>> romae.Classification(config, n_classes=3).save("model")
    >>> romae.load("model").n_classes
    3
    >>> romae.load("./modle")
    Traceback (most recent call last):
    ...
    ValueError: there is no checkpoint folder ./modle; ...
    """
    if task is not None and not (isinstance(task, type) and issubclass(task, Task)):
        raise TypeError(f"task is the class of a task, such as romae.Classification, not {task!r}")
    directory = _local(path, revision, token, cache_dir)
    stored = read_json(directory / CONFIG)
    description = _current(stored, directory / CONFIG)
    digests = stored.get(DIGESTS)
    if digests is None and stored["format"] < FIRST_WITH_DIGESTS:
        warnings.warn(
            f"{directory} has no digests, being of an older version, so that damage to it cannot be seen; "
            f"`romae digest {directory}` adds them",
            stacklevel=2,
        )
    else:
        _require_digest(digests, "config", _config_digest(stored), directory, CONFIG)
    return _read_task(directory, description | {DIGESTS: digests}, task)


def write_digests(path: str | Path, *, task: type[Task] | None = None) -> None:
    """Write the digests of a checkpoint as it is: one of an older version, or one that was changed by hand."""
    directory = _checkpoint_folder(Path(path))
    description = _current(read_json(directory / CONFIG), directory / CONFIG) | {DIGESTS: None}
    _read_task(directory, description, task)  # what cannot be loaded gets none
    write_whole_text(directory / CONFIG, _with_digests(description, directory / WEIGHTS))


def _read_task(directory: Path, description: dict[str, Any], own_class: type[Task] | None) -> Task:
    """Build what a description says, and fill it with the weights beside it once they are known to fit."""
    keys = {"format", "romae", "task", "model", "settings", "scaling", "schema", DIGESTS}
    if wrong := sorted(keys ^ set(description)):
        raise ValueError(f"{directory / CONFIG} lacks or has too much: {wrong}")
    task_class = _task_class(description["task"], own_class, directory / CONFIG)
    try:
        config = from_dict(ModelConfig, description["model"], where="model")
        settings = read_arguments(task_class, description["settings"], where="settings", given=["encoder"])
        scaling, schema = (
            None if description[name] is None else from_dict(part, description[name], where=name)
            for name, part in (("scaling", Scaling), ("schema", Schema))
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"{directory / CONFIG} cannot be read: {error}") from None
    header = read_header(directory / WEIGHTS)
    _require_one_precision({entry.dtype for entry in header.values()}, f"{directory / WEIGHTS} is damaged")
    require_room(config, header, directory, with_decoder=issubclass(task_class, MaskedReconstruction))

    def build() -> Task:
        return task_class(Encoder(config), **settings)

    task = without_weights(build, directory)
    require_fit(task, header, str(directory))
    if description[DIGESTS] is not None:
        _require_digest(description[DIGESTS], "weights", file_digest(directory / WEIGHTS), directory, WEIGHTS)
    weights = read_weights(directory / WEIGHTS)
    _require_finite(weights, f"{directory / WEIGHTS} is damaged")
    task = filled(task, weights, build)
    task.scaling, task.schema = scaling, schema
    return task.eval()


def _task_class(name: Any, own_class: type[Task] | None, path: Path) -> type[Task]:
    """The class that a checkpoint names. One of the user's own is never looked for, but handed over."""
    if own_class is not None:
        if own_class.__name__ != name:
            raise ValueError(f"{path} names the task {name!r}, and task is {own_class.__name__}; hand over that class")
        return own_class
    if not isinstance(name, str) or name not in TASKS:
        raise ValueError(
            f"{path} names the task {name!r}; there are {sorted(TASKS)}; one of your own is loaded with its class: "
            "romae.load(…, task=…)"
        )
    return TASKS[name]


# Digests


def _with_digests(description: dict[str, Any], weights: Path) -> str:
    """The text of a configuration: all of a description, and the digests of both files."""
    said = {key: value for key, value in description.items() if key != DIGESTS}
    stored: dict[str, Any] = {**said, "format": FORMAT, DIGESTS: {"weights": file_digest(weights)}}
    stored[DIGESTS]["config"] = _config_digest(stored)
    return json.dumps(stored, indent=2) + "\n"


def _config_digest(stored: Mapping[str, Any]) -> str:
    """The digest of all that a configuration says, but for itself."""
    digests = stored.get(DIGESTS)
    others = {key: value for key, value in digests.items() if key != "config"} if isinstance(digests, dict) else None
    return json_digest({**stored, DIGESTS: others})


def json_digest(content: Any) -> str:
    """The digest of what a JSON file says, however its lines end and its words are spaced."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def file_digest(path: Path) -> str:
    """The digest of a file."""
    if not path.is_file():
        raise ValueError(f"{path} does not exist; a checkpoint is a folder that holds it")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _require_digest(digests: Any, name: str, digest: str, directory: Path, file: str) -> None:
    if not isinstance(digests, dict) or digests.get(name) != digest:
        raise ValueError(
            f"{directory / file} is damaged or was changed since it was saved: its digest is another; take a copy that "
            f"is whole or, if you changed it yourself, run `romae digest {directory}`"
        )


# Models without weights


class Stored(NamedTuple):
    """What the header of a file says of a tensor."""

    shape: tuple[int, ...]
    dtype: str


class _OnMeta(TorchFunctionMode):
    """Layers are made on the meta device, where they have a shape and no memory; what is computed is there as ever.

    Not by `torch.device("meta")`, which would take the rotary frequencies along, and no file holds those. First values
    are left out: they would be replaced, and arithmetic on the meta device loads the compiler of torch, for seconds.
    """

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in (torch.empty, torch.randn):  # weights before their first values; CLS and MASK tokens
            options = {key: value for key, value in (kwargs or {}).items() if key != "generator"}
            return torch.empty(*args, **{**options, "device": "meta"})
        first = args[0] if args else (kwargs or {}).get("tensor")  # as torch.nn.init hands it over
        is_first_value = (
            getattr(function, "__module__", "") == "torch.nn.init"  # slots of tensors have no module
            or getattr(function, "__name__", "") in _FIRST_VALUES
        )
        if is_first_value and isinstance(first, Tensor) and first.is_meta:
            return first
        return function(*args, **(kwargs or {}))


_FIRST_VALUES = {"uniform_", "normal_", "zero_", "fill_", "copy_", "erfinv_", "mul_", "add_", "clamp_", "mul"}


def without_weights(build: Callable[[], Task], where: Path) -> Task:
    """A task that is built without memory for its weights."""
    try:
        with _OnMeta():
            return build()
    except (OverflowError, RuntimeError, TypeError) as error:  # sizes that torch cannot count, or a task of one's own
        raise ValueError(f"{where} describes a model that cannot be built: {str(error).splitlines()[0]}") from error


def filled(task: Task, weights: Mapping[str, Tensor], build: Callable[[], Task]) -> Task:
    """A task that was built without weights, with those that fit it, in their precision, on the device of the time."""
    # Copies: what safetensors gives are views of a file that someone may write to.
    task.load_state_dict({key: value.clone() for key, value in weights.items()}, assign=True)
    if any(part.is_meta for part in (*task.parameters(), *task.buffers())):  # a buffer of one's own that no file holds
        task = build()
        task.load_state_dict(dict(weights))
    dtype = next(iter(weights.values())).dtype
    return task.to(device=torch.get_default_device(), dtype=dtype)


def require_room(
    config: ModelConfig, header: Mapping[str, Stored] | Mapping[str, Tensor], where: Path, *, with_decoder: bool
) -> None:
    """Refuse sizes that the weights cannot have, before layers are made, which cost memory even without weights."""
    parts = {"encoder": config.encoder} | ({"decoder": config.decoder} if with_decoder else {})
    largest = max((math.prod(entry.shape) for entry in header.values()), default=0)
    for name, size in parts.items():
        if size.depth > len(header) or size.width > largest:
            raise ValueError(
                f"the weights in {where} do not fit its configuration: {len(header)} tensors of up to {largest} "
                f"numbers are no {name} of {size.depth} layers of width {size.width}"
            )


def push_to_hub(task: Task, name: str, *, private: bool = False, half: bool = False, card: str | None = None) -> str:
    """Upload a task to the Hugging Face Hub and return its address; `half` and `card` are as in `save`."""
    from huggingface_hub import HfApi

    if not isinstance(name, str) or not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name):
        raise ValueError(f"a model on the Hub has a name such as someone/light-curves, not {name!r}")
    hub = HfApi()
    with tempfile.TemporaryDirectory() as folder:
        save(task, Path(folder) / "model", half=half, card=card)
        try:
            hub.create_repo(name, private=private, exist_ok=True)
            hub.upload_folder(repo_id=name, folder_path=str(Path(folder) / "model"))
        except Exception as error:  # no connection, no right to write, and whatever else the Hub has to say
            raise ValueError(
                f"the model could not be uploaded as {name}: {error}; log in with `hf auth login`"
            ) from None
    return f"https://huggingface.co/{name}"


def _local(path: str | Path, revision: str | None, token: str | bool | None, cache_dir: str | Path | None) -> Path:
    """The folder itself, or the files of a name on the Hub."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"a model is loaded from a folder or by its name on the Hub, not from {path!r}")
    folder = readable_path(Path(path).expanduser())
    if folder.is_dir():
        if revision is not None:
            raise ValueError(f"{path} is a folder here, which has no revision {revision!r}; leave revision out")
        return _checkpoint_folder(folder)
    if str(path).startswith(BUNDLED) and revision is None:
        return bundled(str(path).removeprefix(BUNDLED), WEIGHTS)
    if not _is_hub_name(str(path)):
        raise ValueError(
            f"there is no checkpoint folder {path}; give one that exists, or the name of a model on the Hub, such as "
            "someone/light-curves"
        )
    from huggingface_hub import snapshot_download

    try:
        return Path(
            snapshot_download(
                str(path),
                allow_patterns=[CONFIG, WEIGHTS],
                revision=revision,
                token=token,
                cache_dir=cache_dir,
            )
        )
    except Exception as error:
        raise ValueError(f"there is no folder {path}, and the Hub has no such model for us: {error}") from None


def bundled(name: str, file: str = CARD) -> Path:
    """The folder of a model, or of example data, that comes with the library.

    Parameters
    ----------
    name : str
        Such as "zero", "stays" for records of intensive care, or "weather" for weather stations.
    file : str, default "README.md"
        A file that it holds.

    Returns
    -------
    Path
        Beside the modules of the library, or in a clone of its repository.

    Raises
    ------
    ValueError
        If nothing of that name comes with the library.
    """
    package = Path(__file__).resolve().parents[1]
    places = [place for place in (package / "models", package.parents[1] / "models") if place.is_dir()]
    names = sorted({folder.parent.name for place in places for folder in place.glob(f"*/{file}")})
    if name not in names:
        raise ValueError(f"no {BUNDLED}{name} comes with romae; there are {[BUNDLED + x for x in names]}")
    return next(place / name for place in places if (place / name / file).is_file())


def _is_hub_name(text: str) -> bool:
    """Whether a text can be a name on the Hub: owner/model. What looks like a path here is never asked of the Hub."""
    is_file = Path(text).suffix != "" and Path(text).parent.is_dir()
    return re.fullmatch(r"\w[\w.-]*/[\w.-]+", text) is not None and not is_file


def _checkpoint_folder(folder: Path) -> Path:
    """The folder; one that only holds a checkpoint, as runs and estimators do, is refused with the place of it."""
    inner = [folder / name for name in ("best", "last", "model") if (folder / name / WEIGHTS).is_file()]
    if inner and not (folder / WEIGHTS).exists():
        raise ValueError(f"{folder} is no checkpoint, but holds one: load {inner[0]}")
    return folder


def _current(description: Any, path: Path) -> dict[str, Any]:
    """The description in today's format; older ones are brought up to it, newer ones refused."""
    version = description.get("format") if isinstance(description, dict) else None
    if type(version) is not int or version < 1:
        raise ValueError(f"{path} does not say which format it has; it is no checkpoint of romae")
    if version > FORMAT:
        raise ValueError(f"{path} has format {version}; this version of romae reads up to {FORMAT}: update romae")
    for older in range(version, FORMAT):
        description = _MIGRATIONS[older](description)
    return description


def _with_scaling(description: dict[str, Any]) -> dict[str, Any]:
    """Format 1 knew nothing of the data that a model was trained on."""
    return {"scaling": None, "schema": None, **description}


def _without_digests(description: dict[str, Any]) -> dict[str, Any]:
    """Format 2 had no digests."""
    return {**description, DIGESTS: None}


_MIGRATIONS = {1: _with_scaling, 2: _without_digests}


def require_fit(module: nn.Module, weights: Mapping[str, Any], where: str) -> None:
    """Refuse weights that do not fit a module, with a report of all that does not."""
    problems = misfits(module, weights)
    if problems:
        shown = "; ".join(problems[:6]) + (f"; and {len(problems) - 6} more" if len(problems) > 6 else "")
        raise ValueError(f"the weights in {where} do not fit its configuration: {shown}")


def _require_one_precision(dtypes: set[str], complaint: str) -> None:
    """Refuse weights that are not all of one precision; dtypes are called as by torch or by safetensors."""
    if len(dtypes) > 1 or not dtypes <= {*FLOATS, *map(str, FLOATS.values())}:
        raise ValueError(f"{complaint}: its weights are {', '.join(sorted(dtypes))}, not of one precision")


def _require_finite(weights: Mapping[str, Tensor], complaint: str) -> None:
    for key, value in weights.items():
        # A sum is finite if all is, unless it overflows, and takes a tenth of the time.
        if not math.isfinite(value.sum().item()) and not bool(torch.isfinite(value).all()):
            raise ValueError(f"{complaint}: {key} holds values that are no numbers")


def _halved(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights in 16 bits; a number too large for them is named."""
    halved = {key: value.half() for key, value in weights.items()}
    for key, value in halved.items():
        if not bool(torch.isfinite(value).all()):
            raise ValueError(f"{key} holds numbers that 16 bits cannot; save without half=True")
    return halved


def read_header(path: Path) -> dict[str, Stored]:
    """What a safetensors file says of its tensors; none is read, and together they are no longer than the file."""
    with _opened(path) as file:
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
        return {name: Stored(tuple(part.get_shape()), part.get_dtype()) for name, part in slices.items()}


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors in a safetensors file, in the precision that they had before they were saved."""
    with _opened(path) as file:
        before = (file.metadata() or {}).get(RESTORE, "")
        weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    dtype = {name: dtype for dtype, name in PRECISIONS.items()}.get(before)
    return {name: x if dtype is None or x.dtype != torch.half else x.to(dtype) for name, x in weights.items()}


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise ValueError(f"{path} does not exist; a checkpoint is a folder that holds it")
    try:
        with safe_open(path, "pt") as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} is damaged or no safetensors file: {error}") from None


def read_json(path: Path) -> Any:
    if not path.is_file():
        raise ValueError(f"{path} does not exist; a checkpoint is a folder that holds it")
    try:
        return parsed_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged or no JSON: {error}") from None

"""Models on disk: a folder with the weights (safetensors) and one JSON file that says what they belong to.

Nothing here reads or writes pickle, so a checkpoint from a stranger cannot run code.
"""

import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from romae import __version__
from romae.config import from_dict, read_arguments, to_dict
from romae.data.scaling import Scaling
from romae.data.schema import Schema
from romae.files import write_whole_folder
from romae.model.autoencoder import Encoder, misfits
from romae.model.config import ModelConfig
from romae.model.tasks import TASKS, Task

FORMAT = 2
WEIGHTS, CONFIG, CARD = "model.safetensors", "config.json", "README.md"
PRECISIONS = {torch.float32: "float32", torch.float64: "float64"}  # that 16 bits can stand for
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
    _require_sound(weights, "this task cannot be saved")
    if half and (before := PRECISIONS.get(next(iter(weights.values())).dtype)):
        weights, metadata = _halved(weights), metadata | {RESTORE: before}
    kept = (directory / CARD).read_bytes() if (directory / CARD).is_file() else None
    kept = kept if card is None else card.encode()

    def write(to: Path) -> None:
        save_file({key: value.contiguous() for key, value in weights.items()}, to / WEIGHTS, metadata=metadata)
        (to / CONFIG).write_text(json.dumps(description, indent=2) + "\n")
        if kept is not None:
            (to / CARD).write_bytes(kept)

    try:
        write_whole_folder(directory, write)
    except SafetensorError as error:
        raise OSError(f"cannot write {directory}: {error}") from None


def described(task: Task) -> dict[str, Any]:
    """All of a task but its weights, as JSON has it; refused where it would not come back as it is."""
    description = {
        "task": type(task).__name__,
        "model": to_dict(task.config),
        "settings": to_dict(task.settings),
        "scaling": to_dict(task.scaling),
        "schema": to_dict(task.schema),
    }
    try:
        same = read_arguments(type(task), json.loads(json.dumps(description["settings"])), given=["encoder"])
    except (TypeError, ValueError) as error:
        raise ValueError(f"this task cannot be saved: {error}; use one of the strategies in romae.masking") from None
    if same != task.settings:
        raise ValueError(f"this task cannot be saved: its settings {task.settings} would not come back as they are")
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
) -> Task:
    """Load a trained model from a folder, or by its name on the Hugging Face Hub.

    Parameters
    ----------
    path : str or Path
        The folder of a checkpoint, or a name such as "someone/light-curves". What looks like a path (it begins with
        ".", "/" or "~", ends in a separator, holds several of them, or names a file in a folder that exists) is never
        looked up on the Hub.
    revision : str, optional
        A branch, tag or commit on the Hub; by default the newest.
    token : str or bool, optional
        An access token for private models; by default the one that `hf auth login` stored. False sends none.
    cache_dir : str or Path, optional
        The folder for downloads; by default the cache of huggingface_hub.

    Returns
    -------
    MaskedReconstruction, Classification or Regression
        The task, in evaluation mode, with its scaling and schema. Every weight has its place and vice versa.

    Raises
    ------
    ValueError
        If there is no such checkpoint, it is damaged, or was written by a newer version.
    TypeError
        If the path is something else.

    See Also
    --------
    Task.save : writes such a folder.
    Task.push_to_hub : uploads it.

    Notes
    -----
    A checkpoint is safetensors and JSON. No pickle is read, so that one from a stranger cannot run code.

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
    directory = _local(path, revision, token, cache_dir)
    description = _current(read_json(directory / CONFIG), directory / CONFIG)
    name = description.get("task")
    if not isinstance(name, str) or name not in TASKS:
        raise ValueError(f"{directory / CONFIG} names the task {name!r}; there are {sorted(TASKS)}")
    keys = {"format", "romae", "task", "model", "settings", "scaling", "schema"}
    if wrong := sorted(keys ^ set(description)):
        raise ValueError(f"{directory / CONFIG} lacks or has too much: {wrong}")
    encoder = Encoder(from_dict(ModelConfig, description["model"], where="model"))
    settings = read_arguments(TASKS[name], description["settings"], where="settings", given=["encoder"])
    weights = read_weights(directory / WEIGHTS)
    _require_sound(weights, f"{directory / WEIGHTS} is damaged")
    task = TASKS[name](encoder, **settings)
    task.to(dtype=weights.get("encoder.projection.weight", torch.empty(0)).dtype)
    load_weights(task, weights, str(directory))
    if description["scaling"] is not None:
        task.scaling = from_dict(Scaling, description["scaling"], where="scaling")
    if description["schema"] is not None:
        task.schema = from_dict(Schema, description["schema"], where="schema")
    return task.eval()


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
    folder = Path(path).expanduser()
    if folder.is_dir():
        if revision is not None:
            raise ValueError(f"{path} is a folder here, which has no revision {revision!r}; leave revision out")
        return _checkpoint_folder(folder)
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


_MIGRATIONS = {1: _with_scaling}


def load_weights(module: nn.Module, weights: Mapping[str, Tensor], where: str) -> None:
    """Load weights strictly, with a report of all that does not fit."""
    problems = misfits(module, weights)
    if problems:
        shown = "; ".join(problems[:6]) + (f"; and {len(problems) - 6} more" if len(problems) > 6 else "")
        raise ValueError(f"the weights in {where} do not fit its configuration: {shown}")
    module.load_state_dict(weights)


def _require_sound(weights: Mapping[str, Tensor], complaint: str) -> None:
    """Refuse weights that are not all real numbers of one precision."""
    dtypes = {value.dtype for value in weights.values()}
    if len(dtypes) > 1 or not dtypes <= {torch.float64, torch.float32, torch.float16, torch.bfloat16}:
        raise ValueError(f"{complaint}: its weights are {', '.join(sorted(map(str, dtypes)))}, not of one precision")
    for key, value in weights.items():
        if not bool(torch.isfinite(value).all()):
            raise ValueError(f"{complaint}: {key} holds values that are no numbers")


def _halved(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights in 16 bits; a number too large for them is named."""
    halved = {key: value.half() for key, value in weights.items()}
    for key, value in halved.items():
        if not bool(torch.isfinite(value).all()):
            raise ValueError(f"{key} holds numbers that 16 bits cannot; save without half=True")
    return halved


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors in a safetensors file, in the precision that they had before they were saved."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise ValueError(f"{path} does not exist; a checkpoint is a folder that holds it")
    try:
        with safe_open(path, "pt") as file:
            before = (file.metadata() or {}).get(RESTORE, "")
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} is damaged or no safetensors file: {error}") from None
    dtype = {name: dtype for dtype, name in PRECISIONS.items()}.get(before)
    return {name: x if dtype is None or x.dtype != torch.half else x.to(dtype) for name, x in weights.items()}


def read_json(path: Path) -> Any:
    if not path.is_file():
        raise ValueError(f"{path} does not exist; a checkpoint is a folder that holds it")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is damaged or no JSON: {error}") from None

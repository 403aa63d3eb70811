"""What a run is: its settings, its task, and what tells its samples from others. It is resumed as that alone."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from romae.checkpoints.native import described, read_json
from romae.config import differences, from_dict, to_dict
from romae.data.scaling import Scaling
from romae.data.sources import N_DIGEST, Source, digest_of, digests, evenly
from romae.model.config import ModelConfig
from romae.model.tasks import Task
from romae.tokens.masking import Strategy
from romae.training.config import FREE, TrainConfig
from romae.training.run_folder import CONFIG, DATA, RunFolder

SEEN = "scaling.seen"


@dataclass(frozen=True)
class _Hiding:
    """The masking of a run, to fill in the settings that are newer than the run."""

    masking: Strategy


def identity(task: Task, config: TrainConfig, data: dict[str, str | None]) -> dict[str, Any]:
    """What a run writes down when it begins; `data` are the digests of its samples."""
    return {"train": to_dict(config), **described(task), "data": data}


def older_digests(source: Source, validation: Source | None, n_read: int | None) -> dict[str, str | None]:
    """The same as 0.1 wrote it down: of all samples read one by one, or of `n_read` of them."""

    def older(part: Source) -> str:
        return digest_of(part, np.arange(len(part)) if n_read is None else evenly(len(part), n_read))

    return {"training": older(source), "validation": None if validation is None else older(validation)}


def was_made_from(folder: Path, source: Source, validation: Source | None) -> bool:
    """Whether the run in a folder was made from these samples, as they were before they were scaled."""
    if (folder / DATA).is_file():  # 0.1 kept it apart
        written = read_json(folder / DATA)
        return all(written.get(name) == digest for name, digest in older_digests(source, validation, None).items())
    stored = read_json(folder / CONFIG)
    return isinstance(stored, dict) and stored.get("data") == digests(source, validation)


def require_same_run(run: RunFolder, now: dict[str, Any], source: Source, validation: Source | None) -> None:
    """Refuse to go on with a run that was another one; 0.1 wrote down what samples are once they are scaled."""
    stored = _stored_identity(run.folder / CONFIG)
    if stored.get("data") != now["data"]:
        for n_read in (None, N_DIGEST):
            if stored.get("data") == (older := older_digests(source, validation, n_read)):
                now = now | {"data": older}
    # What the data held follows from them, and they are compared; runs of older versions do not say it.
    compared = [name for name in differences(stored, now) if not name.startswith(SEEN)]
    if changed := [name for name in compared if name not in FREE]:
        raise ValueError(
            f"{run.folder} was started with other settings ({', '.join(changed)}); leave them as they were, or start a "
            "new run in another folder"
        )


def _stored_identity(path: Path) -> dict[str, Any]:
    """What a run was started with; settings that are newer than the run have their defaults."""
    stored, parts = read_json(path), {"train": TrainConfig, "model": ModelConfig}
    try:
        if not isinstance(stored, dict) or not parts.keys() <= stored.keys():
            raise ValueError("it lacks the settings of training or model")
        if stored.get("scaling") is not None:
            parts["scaling"] = Scaling
        settings = stored.get("settings")
        if isinstance(settings, dict) and isinstance(settings.get("masking"), dict):
            masking = from_dict(_Hiding, {"masking": settings["masking"]}).masking
            stored = stored | {"settings": settings | {"masking": to_dict(masking)}}
        return stored | {name: to_dict(from_dict(part, stored[name], where=name)) for name, part in parts.items()}
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged, or of a newer version: {error}; start a new run") from None

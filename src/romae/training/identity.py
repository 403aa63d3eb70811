"""What a run is: its settings, its task, and what tells its samples from others. It is resumed as that alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from romae.checkpoints.native import described, read_json
from romae.config import differences, from_dict, to_dict
from romae.model.config import ModelConfig
from romae.model.tasks import Task
from romae.tokens.sample import Sample
from romae.training.config import FREE, TrainConfig
from romae.training.run_folder import CONFIG, Run, digest_of


def identity(
    task: Task, config: TrainConfig, samples: Sequence[Sample], validation: Sequence[Sample] | None
) -> dict[str, Any]:
    """What a run writes down when it begins."""
    return {"train": to_dict(config), **described(task), "data": digests(samples, validation)}


def digests(
    samples: Sequence[Sample], validation: Sequence[Sample] | None, n_read: int | None = None
) -> dict[str, str | None]:
    """What tells samples to train and to validate on from others."""
    parts = {"training": samples, "validation": validation}
    return {name: None if part is None else digest_of(part, n_read) for name, part in parts.items()}


def require_same_run(
    run: Run, now: dict[str, Any], samples: Sequence[Sample], validation: Sequence[Sample] | None
) -> None:
    """Refuse to go on with a run that was another one."""
    was = _known(run.folder / CONFIG)
    if was.get("data") == (few := digests(samples, validation, n_read=16)):
        now = now | {"data": few}  # an older run, which looked at few samples
    if changed := [name for name in differences(was, now) if name not in FREE]:
        raise ValueError(f"{run.folder} was started with other settings ({', '.join(changed)}); start a new run")


def _known(path: Path) -> dict[str, Any]:
    """What a run was started with; settings that are newer than the run have their defaults."""
    was, parts = read_json(path), {"train": TrainConfig, "model": ModelConfig}
    try:
        if not isinstance(was, dict) or not parts.keys() <= was.keys():
            raise ValueError("it lacks the settings of training or model")
        return was | {name: to_dict(from_dict(kind, was[name], where=name)) for name, kind in parts.items()}
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged, or of a newer version: {error}; start a new run") from None

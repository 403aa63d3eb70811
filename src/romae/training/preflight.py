"""What training refuses before it begins, so that nothing is changed or written by a call that cannot succeed."""

from collections.abc import Sequence
from typing import Any

import torch

from romae.data.scaling import Scaling
from romae.data.schema import SampleSet, require_same_names
from romae.model.tasks import Classification, Regression, Task
from romae.tokens.sample import Sample
from romae.training.config import TrainConfig, chosen_device


def require_trainable(task: Any, samples: Any, config: Any, validation: Any, scaling: Any) -> None:
    """Refuse a call of `train` that cannot succeed."""
    if not isinstance(task, Task):
        raise TypeError(
            f"task is a MaskedReconstruction, Classification, Regression or a Task of your own, not "
            f"{type(task).__name__}"
        )
    if not isinstance(config, TrainConfig):
        raise TypeError(f"config is a TrainConfig, for example TrainConfig(epochs=5), not {type(config).__name__}")
    if not isinstance(scaling, Scaling | None):
        raise TypeError(f"scaling is what romae.fit_scaling(samples) gives, not {scaling!r}")
    require_samples(samples, "samples to train on")
    if validation is not None:
        require_samples(validation, "validation samples")
    _require_gradients(task)
    _require_names_alike(task, samples, validation)
    for part in (samples, validation):
        require_labels(task, part)
    if scaling is None and task.scaling is not None:
        raise ValueError(
            "the task has a scaling, which its predictions apply; train with it, scaling=task.scaling, or forget it: "
            "task.scaling = None"
        )
    if scaling is not None and task.config.kinds is not None:
        scaling.require_still_channels()
    if config.patience is not None and validation is None:
        raise ValueError("patience stops when the validation loss no longer falls; give validation samples as well")
    if chosen_device(config.device) == "cpu" and config.precision == "fp16":
        raise ValueError("precision 'fp16' needs a GPU; use 'bf16' or 'float32' on a CPU")
    require_trackers(config.trackers)


def require_samples(samples: Any, what: str) -> None:
    """Refuse what is no sequence of samples, or an empty one."""
    kinds = f"{what} are a list, a SampleSet or a store, not {type(samples).__name__}"
    if isinstance(samples, Sample):
        raise TypeError(f"{kinds}; put a single sample into a list")
    if not hasattr(samples, "__len__") or not hasattr(samples, "__getitem__"):
        raise TypeError(f"{kinds}; list(…) makes one")
    if len(samples) == 0:
        raise ValueError(f"there are no {what}: the list is empty")
    try:
        first = samples[0]
    except (KeyError, TypeError):  # a dictionary, or a pandas Series
        raise TypeError(f"{kinds}; list(…) makes one") from None
    if not isinstance(first, Sample):
        raise TypeError(
            f"{what} are instances of Sample, and the first is {type(first).__name__}; romae.from_arrays, from_table "
            "and the like make them"
        )


def require_labels(task: Task, samples: Sequence[Sample] | None) -> None:
    """Refuse classes where numbers are to be learned, and more or fewer of them than the task tells apart."""
    classes = samples.schema.classes if isinstance(samples, SampleSet) else None
    if samples is None or classes is None or samples[0].target is None:
        return
    shown = f"{', '.join(map(repr, classes[:3]))}{', …' * (len(classes) > 3)}"
    if isinstance(task, Regression) and not samples[0].target.is_floating_point():
        raise ValueError(
            f"the labels {shown} were read as classes, and a regression learns numbers; give them as floats, for "
            "example y.astype(float)"
        )
    if isinstance(task, Classification) and len(classes) != task.n_classes:
        raise ValueError(
            f"the samples have {len(classes)} classes ({shown}), and the task tells {task.n_classes} apart; make it "
            f"with n_classes={len(classes)}, or name all classes where the samples are read: classes=[…]"
        )


def require_trackers(trackers: tuple[str, ...]) -> None:
    """Refuse trackers whose package is missing: Accelerate would leave them out in silence."""
    from accelerate.tracking import get_available_trackers

    here = [str(getattr(tracker, "value", tracker)) for tracker in get_available_trackers()]
    for tracker in trackers:
        if tracker not in here:
            package = f"'romae[{tracker}]'" if tracker in ("tensorboard", "wandb") else tracker
            raise ValueError(f"the tracker {tracker!r} is not installed: pip install {package}; there are {here}")


def _require_gradients(task: Task) -> None:
    if not torch.is_grad_enabled():
        raise RuntimeError("training needs gradients, which are off here; call train outside of torch.no_grad()")
    if not any(parameter.requires_grad for parameter in task.parameters()):
        raise ValueError("every weight of the task is frozen, so that nothing is learned; unfreeze its head at least")


def _require_names_alike(task: Task, samples: Sequence[Sample], validation: Sequence[Sample] | None) -> None:
    """Refuse samples that call other things by the same numbers than the task, or than the other samples."""
    known = samples.schema if isinstance(samples, SampleSet) else task.schema
    if isinstance(samples, SampleSet) and task.schema is not None:
        others = "the task knows"
        require_same_names(samples.schema, task.schema, whose="samples", others=others, with_classes=True)
    if isinstance(validation, SampleSet) and known is not None:
        others = "the samples to train on have"
        require_same_names(validation.schema, known, whose="validation samples", others=others, with_classes=True)

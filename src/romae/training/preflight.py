"""What training refuses before it begins, so that nothing is changed or written by a call that cannot succeed."""

from typing import Any

import torch

from romae.data.scaling import Scaling
from romae.data.schema import require_same_names
from romae.data.sources import Profile
from romae.model.tasks import Classification, MultiLabel, Regression, Task
from romae.training.config import TrainConfig, chosen_device
from romae.training.scoring import OF_CLASSES, OF_NUMBERS, require_known, require_two_classes


def require_trainable(task: Any, config: Any, scaling: Any, *, has_validation: bool) -> None:
    """Refuse a call of `train` that cannot succeed, whatever its samples are."""
    if not isinstance(task, Task):
        raise TypeError(
            f"task is a MaskedReconstruction, Classification, MultiLabel, Regression or a Task of your own, not "
            f"{type(task).__name__}"
        )
    if not isinstance(config, TrainConfig):
        raise TypeError(f"config is a TrainConfig, for example TrainConfig(epochs=5), not {type(config).__name__}")
    if not isinstance(scaling, Scaling | None):
        raise TypeError(f"scaling is what romae.fit_scaling(samples) gives, not {scaling!r}")
    _require_gradients(task)
    if scaling is None and task.scaling is not None:
        raise ValueError(
            "the task has a scaling, which its predictions apply; train with it, scaling=task.scaling, or forget it: "
            "task.scaling = None"
        )
    if scaling is not None and (task.config.kinds is not None or task.config.static_from is not None):
        scaling.require_still_channels()
    if task.config.errors != (0 if scaling is None else scaling.errors):
        raise ValueError(
            f"the model reads {task.config.errors} columns of measurement errors, and the scaling knows "
            f"{0 if scaling is None else scaling.errors}, which brings them to the units of the values; train with "
            "scaling=romae.fit_scaling(samples)"
        )
    if config.patience is not None and not has_validation:
        raise ValueError("patience stops when the validation loss no longer falls; give validation samples as well")
    if config.scoring is not None and not has_validation:
        raise ValueError("scoring says which validation is the best; give validation samples as well")
    require_scoring(task, config.scoring)
    if chosen_device(config.device) == "cpu" and config.precision == "fp16":
        raise ValueError("precision 'fp16' needs a GPU; use 'bf16' or 'float32' on a CPU")
    require_trackers(config.trackers)


def require_scoring(task: Task, scoring: str | None) -> None:
    """Refuse a score that says nothing of what a task predicts."""
    if scoring is None:
        return
    if isinstance(task, Classification):
        require_known(scoring, OF_CLASSES)
        require_two_classes(scoring, task.n_classes)
    elif isinstance(task, Regression):
        require_known(scoring, OF_NUMBERS)
    else:
        raise ValueError(
            f"scoring={scoring!r} is for a Classification or a Regression, and this is a {type(task).__name__}; leave "
            "it out, and the loss decides"
        )


def require_samples(task: Task, training: Profile, validation: Profile | None) -> None:
    """Refuse samples that call other things by the same numbers than the task, or than the other samples."""
    names = training.schema or task.schema
    static_from = None if training.schema is None else training.schema.static_from
    if training.schema is not None and static_from != task.config.static_from:
        raise ValueError(
            f"the samples have static facts from kind {static_from} on, and the model from {task.config.static_from} "
            "on; build it with ModelConfig(static_from=samples.schema.static_from), so that they are never hidden"
        )
    n_errors = 0 if training.schema is None else training.schema.n_errors
    if training.schema is not None and n_errors != task.config.errors:
        raise ValueError(
            f"the samples have {n_errors} columns of measurement errors, and the model {task.config.errors}; build it "
            "with ModelConfig(errors=samples.schema.n_errors), so that they are read and never predicted"
        )
    if training.schema is not None and task.schema is not None:
        others = "the task knows"
        require_same_names(training.schema, task.schema, subject="samples", others=others, with_classes=True)
    if validation is not None and validation.schema is not None and names is not None:
        others = "the samples to train on have"
        require_same_names(validation.schema, names, subject="validation samples", others=others, with_classes=True)
    for profile in (training, validation):
        if profile is not None:
            require_labels(task, profile)


def require_labels(task: Task, samples: Profile) -> None:
    """Refuse classes where numbers are to be learned, and more or fewer of them than the task tells apart."""
    labels = None if samples.schema is None else samples.schema.labels
    if isinstance(task, MultiLabel) and labels is not None and len(labels) != task.n_labels:
        raise ValueError(
            f"the samples have {len(labels)} labels ({', '.join(map(repr, labels[:3]))}{', …' * (len(labels) > 3)}), "
            f"and the task {task.n_labels}; make it with n_labels={len(labels)}"
        )
    classes = None if samples.schema is None else samples.schema.classes
    if classes is None or samples.has_numbers is None:
        return
    shown = f"{', '.join(map(repr, classes[:3]))}{', …' * (len(classes) > 3)}"
    if isinstance(task, Regression) and not samples.has_numbers:
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

    available = [str(getattr(tracker, "value", tracker)) for tracker in get_available_trackers()]
    for tracker in trackers:
        if tracker not in available:
            package = f"'romae[{tracker}]'" if tracker in ("tensorboard", "wandb") else tracker
            raise ValueError(f"the tracker {tracker!r} is not installed: pip install {package}; there are {available}")


def _require_gradients(task: Task) -> None:
    if not torch.is_grad_enabled():
        raise RuntimeError("training needs gradients, which are off here; call train outside of torch.no_grad()")
    if not any(parameter.requires_grad for parameter in task.parameters()):
        raise ValueError("every weight of the task is frozen, so that nothing is learned; unfreeze its head at least")

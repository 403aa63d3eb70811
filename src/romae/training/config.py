"""How to train: all settings of the loop, as a value."""

import math
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from romae.config import check_types, from_dict
from romae.training.scoring import OF_CLASSES, OF_NUMBERS, require_known

if TYPE_CHECKING:
    from romae.data.sources import SampleSource
    from romae.model.config import ModelConfig

# What may differ when a run is resumed, because it changes how a step is taken and not what it computes.
FREE = {f"train.{name}" for name in ("workers", "compile", "graph", "shard", "n_states", "trackers", "device")}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """Settings of training: batches, optimiser, precision, device, and when to validate, save and stop.

    Parameters
    ----------
    epochs : int, default 10
        Passes over the training data.
    batch_size : int, default 64
        Samples per step, over all ranks and pieces.
    tokens_per_batch : int, optional
        Tokens per step instead of samples: as many samples as fit.
    accumulate : int, default 1
        Gradient accumulation: into how many pieces each rank cuts its share of a batch. It changes memory, not the
        result.
    group : bool, default False
        Whether to put samples of similar length into one batch.
    optimiser : {"adamw", "sgd"}, default "adamw"
        The optimiser.
    lr : float, default 1e-3
        The peak learning rate.
    betas : tuple of float, default (0.9, 0.95)
        The betas of AdamW.
    momentum : float, default 0.9
        The momentum of SGD.
    weight_decay : float, default 0.05
        Decoupled weight decay, of matrices alone.
    warmup : float, default 0.1
        Steps of linear warm-up, or a share of all steps if below 1; after it the rate falls along a cosine to 0.
    clip : float or None, default 1.0
        The largest norm of all gradients; None leaves them alone.
    ema : float, optional
        The decay of an exponential moving average of the weights, such as 0.999, which is then validated and saved.
    precision : {"float32", "tf32", "bf16", "fp16"}, default "float32"
        The precision of matrix products; weights stay in float32.
    device : str, default "auto"
        "auto" takes a GPU that CUDA or ROCm knows, else the CPU (the GPUs of Apple have no 64-bit floats, which losses
        are summed in); or "cpu", "cuda", or one GPU of several, "cuda:1". A GPU that is not there is refused.
    workers : int, default 0
        Processes that read and prepare batches ahead.
    seed : int, default 0
        Decides the order of samples, masks and dropout. First weights are yours to seed (`torch.manual_seed`), or those
        of `run_stages`.
    validate_every : int, optional
        Steps between validations; by default an epoch.
    save_every : int, optional
        Steps between states on disk; by default an epoch.
    n_states : int, default 2
        How many states are kept.
    patience : int, optional
        Early stopping: the number of validations without improvement after which training stops.
    scoring : str, optional
        The score that decides which validation is the best, by its name in scikit-learn: of classes "accuracy",
        "average_precision", "f1_macro", "neg_log_loss", "roc_auc" (two classes) or "roc_auc_ovr" (each against the
        others), of numbers "r2", "neg_mean_squared_error" or "neg_mean_absolute_error". Among equal scores the lower
        loss decides. None looks at the loss alone.
    nonfinite : {"stop", "skip"}, default "stop"
        What to do about a loss that is not a number: stop with a report, or skip the batch and count it, which costs a
        synchronisation per step.
    compile : bool, optional
        Whether to use torch.compile; by default on one GPU, where there are steps enough to make up for its start.
    graph : bool, optional
        Whether to record a step as a CUDA graph; by default likewise.
    shard : bool, default False
        Whether to shard the model over all processes (FSDP).
    trackers : tuple of str, default ()
        What records a run, such as "tensorboard" or "wandb".

    Raises
    ------
    ValueError
        If a number lies outside its range, or the device has no such name.
    TypeError
        If a setting is of another type.

    Examples
    --------
    >>> from dataclasses import replace
    >>> import romae
    >>> config = romae.TrainConfig(epochs=30, batch_size=32, lr=5e-4, device="cpu")
    >>> replace(config, lr=1e-3).lr
    0.001
    >>> romae.TrainConfig(device="gpu")
    Traceback (most recent call last):
    ...
    ValueError: device must be 'auto', 'cpu', 'cuda' or one GPU of several, such as 'cuda:1', not 'gpu'
    """

    epochs: int = 10
    batch_size: int = 64
    tokens_per_batch: int | None = None
    accumulate: int = 1
    group: bool = False
    optimiser: Literal["adamw", "sgd"] = "adamw"
    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.95)
    momentum: float = 0.9
    weight_decay: float = 0.05
    warmup: float = 0.1
    clip: float | None = 1.0
    ema: float | None = None
    precision: Literal["float32", "tf32", "bf16", "fp16"] = "float32"
    device: str = "auto"
    workers: int = 0
    seed: int = 0
    validate_every: int | None = None
    save_every: int | None = None
    n_states: int = 2
    patience: int | None = None
    scoring: str | None = None
    nonfinite: Literal["stop", "skip"] = "stop"
    compile: bool | None = None
    graph: bool | None = None
    shard: bool = False
    trackers: tuple[str, ...] = ()

    @classmethod
    def for_samples(
        cls,
        samples: "SampleSource",
        model: "ModelConfig",
        *,
        labels: bool = False,
        validated: bool = True,
        **settings: Any,
    ) -> "TrainConfig":
        """How to train a model on samples: what is not given follows from them, from its size and from the device.

        Parameters
        ----------
        samples : sequence of Sample
            The training data.
        model : ModelConfig
            The architecture.
        labels : bool, default False
            Whether the task is classification or regression; else it is masked reconstruction.
        validated : bool, default True
            Whether there are validation samples, so that training can stop early.
        **settings : Any
            Any setting of `TrainConfig`, which then does not follow from the samples; None leaves one open.

        Returns
        -------
        TrainConfig
            With epochs for about five minutes on two CPU cores or two on a GPU, but within bounds
            (`romae.training.rules`), a batch of an eighth of the samples, from 8 to 128, a rate of 0.001, less for wide
            models, bfloat16 on GPUs that have it, and, where epochs are not given, the patience of a quarter of them.

        Raises
        ------
        ValueError
            If there are no samples, or a number lies outside its range.
        TypeError
            If there is no such setting, or it is of another type.

        Examples
        --------
        >>> import numpy as np
        >>> import romae
        >>> samples = romae.from_arrays(np.zeros((256, 11, 3)))
        >>> model = romae.ModelConfig.for_samples(samples, device="cpu")
        >>> config = romae.TrainConfig.for_samples(samples, model, device="cpu", ema=0.99)
        >>> config.batch_size, config.lr, config.ema
        (32, 0.001, 0.99)
        """
        from romae.data.sources import as_source
        from romae.training import rules

        given = {name: value for name, value in settings.items() if value is not None}
        lengths = as_source(samples, with_targets=False).lengths
        place = chosen_device(given.get("device", "auto"))
        device = rules.CPU if place == "cpu" else rules.GPU
        course = rules.FINE_TUNING if labels else rules.PRETRAINING
        batch_size = given.get("batch_size") or rules.fitting_batch(lengths)
        epochs = given.get("epochs") or rules.fitting_epochs(lengths, batch_size, model.encoder, course, device)
        chosen: dict[str, Any] = {"epochs": epochs, "batch_size": batch_size}
        chosen["lr"] = rules.fitting_rate(model.encoder, course)
        chosen["precision"] = rules.fitting_precision(place)
        if validated and "epochs" not in given:
            chosen["patience"] = rules.fitting_patience(epochs)
        return from_dict(cls, chosen | given)

    def __post_init__(self) -> None:
        check_types(self)
        require_device_name(self.device)
        whole = ("epochs", "batch_size", "tokens_per_batch", "accumulate", "n_states", "validate_every", "save_every")
        for name in (*whole, "patience"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed must be at least 0 and have 63 bits at most, not {self.seed}")
        if self.lr is not None and not 0 < self.lr < math.inf:
            raise ValueError(f"lr must be above 0, not {self.lr}")
        if not 0 <= self.warmup < math.inf:
            raise ValueError(f"warmup is a number of steps or a share of them, not {self.warmup}")
        if not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"weight_decay must be at least 0, not {self.weight_decay}")
        for name, value in (("betas", self.betas[0]), ("betas", self.betas[1]), ("momentum", self.momentum)):
            if not 0 <= value < 1:
                raise ValueError(f"{name} must be from 0 to below 1, not {getattr(self, name)}")
        if self.clip is not None and not self.clip > 0:
            raise ValueError(f"clip must be above 0, or none to leave gradients alone, not {self.clip}")
        require_known(self.scoring, (*OF_CLASSES, *OF_NUMBERS))
        if self.ema is not None and not 0 < self.ema < 1:
            raise ValueError(f"ema is the weight of the past, between 0 and 1, not {self.ema}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSettings(TrainConfig):
    """Settings of training in which epochs, batch size, rate, precision and patience may be left open.

    What is None follows from the data, as `TrainConfig.for_samples` says.
    """

    epochs: int | None = None  # type: ignore[assignment]
    batch_size: int | None = None  # type: ignore[assignment]
    lr: float | None = None  # type: ignore[assignment]
    precision: Literal["float32", "tf32", "bf16", "fp16"] | None = None  # type: ignore[assignment]


def require_device_name(device: str) -> None:
    """Refuse what is no name of a device; whether this machine has it is checked when it is used."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", device):
        raise ValueError(
            f"device must be 'auto', 'cpu', 'cuda' or one GPU of several, such as 'cuda:1', not {device!r}"
        )


def chosen_device(device: str) -> str:
    """Where a model is trained and predicts: "cpu", "cuda" or "cuda:1"; a GPU that is not there is refused.

    A GPU with a number becomes the current one of torch, because kernels are launched there.
    """
    import torch

    require_device_name(device)
    n_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device == "auto":
        return "cuda" if n_gpus else "cpu"
    if device == "cpu":
        return device
    number = device.partition(":")[2]
    if int(number or 0) >= n_gpus:
        there = "no GPU that torch can use" if n_gpus == 0 else f"{n_gpus} GPUs, cuda:0 to cuda:{n_gpus - 1}"
        raise ValueError(f"device={device!r}, but this machine has {there}; use 'cpu', or 'auto' to take what is there")
    if number and int(os.environ.get("WORLD_SIZE", 1)) > 1:
        raise ValueError(f"each process has a GPU of its own, so device={device!r} cannot be had; use 'cuda'")
    if number:
        torch.cuda.set_device(device)
    return device

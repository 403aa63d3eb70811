"""How to train: all settings of the loop, as a value."""

import math
import os
import re
from dataclasses import dataclass
from typing import Literal

from romae.config import check_types

# What may differ when a run is resumed, because it changes how a step is taken and not what it computes.
FREE = {f"train.{name}" for name in ("workers", "compile", "graph", "shard", "n_states", "trackers", "device")}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """How to train.

    - Batches: one of `batch_size` samples, or of `tokens_per_batch` tokens, makes one step; ranks share it, and each
      rank takes its share in `accumulate` pieces. `group` puts samples of like lengths into one batch. `workers` are
      processes that read and prepare batches ahead.
    - Optimiser: `optimiser`, `lr`, `weight_decay`, `betas` of AdamW, `momentum` of SGD. `warmup` is a number of steps,
      or a share of all steps if it is below 1; after it the rate falls along a cosine to 0. `clip` is the largest norm
      of all gradients. `ema` averages the weights, which are then validated and saved.
    - Precision and device: `precision` is that of matrix products, weights stay in float32. `device="auto"` takes a
      GPU that CUDA or ROCm knows, else the CPU; Apple's have no 64-bit floats, which losses are summed in.
    - Times: `validate_every` and `save_every` count steps; by default both happen after each epoch. The newest
      `n_states` states are kept. `patience` stops after so many validations without improvement.
    - `nonfinite="skip"` leaves out batches whose loss is not a number, and counts them; it costs a look at the loss in
      every step.
    - Speed: `compile` fuses what lies between matrix products, which takes some seconds first; `graph` records a step
      as one CUDA graph and plays it back. Both fill batches up to a fixed size. By default they are used on one GPU
      where there are steps enough to make up for their preparation. `shard` spreads the model over all processes.
    - `trackers` names what records a run, "tensorboard" or "wandb" for example; `seed` decides all that is random.
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
    nonfinite: Literal["stop", "skip"] = "stop"
    compile: bool | None = None
    graph: bool | None = None
    shard: bool = False
    trackers: tuple[str, ...] = ()

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
        if not 0 < self.lr < math.inf:
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
        if self.ema is not None and not 0 < self.ema < 1:
            raise ValueError(f"ema is the weight of the past, between 0 and 1, not {self.ema}")


def require_device_name(device: str) -> None:
    """Refuse what is no name of a device; whether this machine has it is asked when it is used."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", device):
        raise ValueError(
            f"device must be 'auto', 'cpu', 'cuda' or one GPU of several, such as 'cuda:1', not {device!r}"
        )


def chosen_device(device: str) -> str:
    """Where a model is trained and asked: "cpu", "cuda" or "cuda:1"; a GPU that is not there is refused.

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

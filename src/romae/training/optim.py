"""Optimisers: which parameters decay, and the learning rate as a pure function of the step."""

import contextlib
import math
from collections.abc import Iterator, Mapping
from typing import Literal

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn


def parameter_groups(module: nn.Module, weight_decay: float) -> list[dict]:
    """Matrices decay; norms, biases, CLS and MASK tokens, which are all vectors, and embeddings of kinds do not."""
    parameters = [(p, p.ndim >= 2 and "kinds" not in name.split(".")) for name, p in module.named_parameters()]
    parameters = [(p, decays) for p, decays in parameters if p.requires_grad]
    return [
        {"params": [p for p, decays in parameters if decays], "weight_decay": weight_decay},
        {"params": [p for p, decays in parameters if not decays], "weight_decay": 0.0},
    ]


def optimiser(
    module: nn.Module,
    name: Literal["adamw", "sgd"],
    *,
    lr: float,
    betas: tuple[float, float],
    momentum: float,
    weight_decay: float,
    is_fused: bool = False,
    is_captured: bool = False,
) -> torch.optim.Optimizer:
    """`is_fused` takes one kernel for all parameters; `is_captured` keeps all that changes on the device."""
    groups = parameter_groups(module, weight_decay)
    if name == "adamw":
        return torch.optim.AdamW(groups, lr=lr, betas=betas, fused=is_fused or None, capturable=is_captured)
    return torch.optim.SGD(groups, lr=lr, momentum=momentum, fused=is_fused or None)


def warmup_cosine(step: int, *, n_steps: int, n_warmup: int) -> float:
    """The share of the base learning rate at a step: a straight climb to exactly 1 at `n_warmup`, a cosine to 0."""
    if step < n_warmup:
        return (step + 1) / (n_warmup + 1)
    progress = min((step - n_warmup) / max(n_steps - n_warmup, 1), 1.0)
    return 0.5 * (1 + math.cos(math.pi * progress))


class WeightAverage:
    """An exponential moving average of a module's weights.

    Not `torch.optim.swa_utils.AveragedModel`: that one copies the module, and looks at a counter on the device at every
    update, which a recorded step cannot. The arithmetic is its own.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.module, self.decay = module, decay
        self.lerp = get_ema_multi_avg_fn(decay)
        self.now = list(module.state_dict().values())
        self.weights = {name: value.detach().clone() for name, value in module.state_dict().items()}

    @torch.no_grad()
    def update(self) -> None:
        self.lerp(list(self.weights.values()), self.now, 0)

    def load(self, weights: Mapping[str, Tensor]) -> None:
        for name, value in self.weights.items():
            value.copy_(weights[name])

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Put the average into the module for a while."""
        own = {name: value.detach().clone() for name, value in self.module.state_dict().items()}
        self.module.load_state_dict(self.weights)
        try:
            yield
        finally:
            self.module.load_state_dict(own)

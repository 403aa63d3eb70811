"""Optimisers: which parameters decay, and the learning rate as a pure function of the step."""

import math
from typing import Literal

import torch
from torch import nn


def parameter_groups(module: nn.Module, weight_decay: float) -> list[dict]:
    """Matrices decay; norms, biases, CLS and MASK tokens, which are all vectors, do not."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    return [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]


def optimiser(
    module: nn.Module,
    kind: Literal["adamw", "sgd"],
    *,
    lr: float,
    betas: tuple[float, float],
    momentum: float,
    weight_decay: float,
) -> torch.optim.Optimizer:
    groups = parameter_groups(module, weight_decay)
    if kind == "adamw":
        return torch.optim.AdamW(groups, lr=lr, betas=betas)
    return torch.optim.SGD(groups, lr=lr, momentum=momentum)


def warmup_cosine(step: int, *, n_steps: int, n_warmup: int) -> float:
    """The share of the base learning rate at a step: a straight climb to exactly 1 at `n_warmup`, a cosine to 0."""
    if step < n_warmup:
        return (step + 1) / (n_warmup + 1)
    progress = min((step - n_warmup) / max(n_steps - n_warmup, 1), 1.0)
    return 0.5 * (1 + math.cos(math.pi * progress))

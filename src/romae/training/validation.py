"""The loss on samples that are kept out of training, and the weights that do best there."""

import contextlib
from typing import Any

import torch
from torch import Tensor

from romae.data.loader import Loader
from romae.data.sources import SampleSource, Source, as_source
from romae.training.batches import NOTHING, VALIDATION, Preparation
from romae.training.config import TrainConfig
from romae.training.step import Stepper, uncompiled

N_TOKENS = 16_384  # of a batch; without gradients there is room for more than in training


@torch.no_grad()
def evaluate(task: Any, samples: SampleSource, *, seed: int = 0, workers: int = 0, accelerator: Any = None) -> float:
    """The mean loss over samples, on all ranks, with masks that depend on the seed and the sample alone."""
    source = as_source(samples)
    was_training = task.training
    task.eval()
    try:
        plain = task if accelerator is None else accelerator.unwrap_model(task)
        device = next(plain.parameters()).device
        prepare = Preparation(plain, seed, is_training=False)
        sums = torch.zeros(2, dtype=torch.float64, device=device)
        loader = Loader(
            source,
            tokens_per_batch=max(N_TOKENS, int(source.lengths.max())),
            rank=0 if accelerator is None else accelerator.process_index,
            n_ranks=1 if accelerator is None else accelerator.num_processes,
            workers=workers,
        )
        for batch in loader.epoch():
            part = 0.0 if batch is None else 1.0
            prepared = prepare((loader.stand_in() if batch is None else batch).to(device), VALIDATION)
            with uncompiled(), contextlib.nullcontext() if accelerator is None else accelerator.autocast():
                loss = plain(prepared)
            sums += torch.stack([loss.total.double(), loss.weight]) * part
        if accelerator is not None:
            sums = accelerator.reduce(sums, "sum")
    finally:
        task.train(was_training)
    total, weight = sums.tolist()
    if weight == 0:
        raise ValueError(f"the samples cannot be judged: {NOTHING}")
    return total / weight


class BestWeights:
    """The weights of the best validation so far, and how long ago it was."""

    def __init__(self, source: Source, config: TrainConfig) -> None:
        self.source, self.config = source, config
        self.loss, self.step, self.n_worse = float("inf"), 0, 0
        self.weights: dict[str, Tensor] | None = None

    def validate(self, stepper: Stepper, step: int) -> float:
        """The validation loss now, of the averaged weights where there are any, which are kept if it is the lowest."""
        with stepper.averaged():
            loss = evaluate(
                stepper.model,
                self.source,
                seed=self.config.seed,
                workers=self.config.workers,
                accelerator=stepper.accelerator,
            )
            if loss < self.loss:
                self.loss, self.step, self.n_worse = loss, step, 0
                self.weights = {name: x.detach().cpu().clone() for name, x in stepper.weights().items()}
            else:
                self.n_worse += 1
        return loss

    @property
    def is_patience_over(self) -> bool:
        return self.config.patience is not None and self.n_worse >= self.config.patience

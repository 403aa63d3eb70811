"""The loss on samples that are kept out of training, and the weights that do best there."""

import contextlib
from typing import Any

import torch
from torch import Tensor

from romae.data.loader import Loader
from romae.data.sources import SampleSource, Source, as_source
from romae.model.kernels.onednn import without_onednn
from romae.training.batches import NOTHING, VALIDATION, Preparation
from romae.training.config import TrainConfig
from romae.training.step import Stepper, uncompiled

N_TOKENS = 16_384  # of a batch; without gradients there is room for more than in training


@torch.no_grad()
@without_onednn()
def evaluate(task: Any, samples: SampleSource, *, seed: int = 0, workers: int = 0, accelerator: Any = None) -> float:
    """Mean loss of a task over samples, with masks that depend on the seed and the sample alone.

    Parameters
    ----------
    task : Task
        The task.
    samples : sequence of Sample
        The samples, as the model sees them: scale them with `task.scaling.apply` first.
    seed : int, default 0
        Decides the masks. That of the training run gives the validation losses of its history.
    workers : int, default 0
        Processes that read batches ahead.
    accelerator : accelerate.Accelerator, optional
        Where several processes share the work.

    Returns
    -------
    float
        The mean over all targets.

    Raises
    ------
    ValueError
        If the samples have nothing to predict.

    Examples
    --------
    >>> import numpy as np
    >>> import romae
    >>> random = np.random.default_rng(0)
    >>> samples = romae.from_arrays(random.normal(size=(16, 8, 1)), y=[0, 1] * 8)
    >>> size = romae.Size(width=16, heads=2, depth=1)
    >>> model = romae.ModelConfig(channels=1, position_dims=1, encoder=size, decoder=size)
    >>> config = romae.TrainConfig(epochs=2, batch_size=8, device="cpu")
    >>> task = romae.MaskedReconstruction(model)
    >>> history = romae.train(task, samples[:12], config, validation=samples[12:], quiet=True)
    >>> abs(romae.evaluate(task, samples[12:]) - history.best["validation"]) < 1e-6
    True
    """
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

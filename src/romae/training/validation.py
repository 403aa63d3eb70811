"""The loss and the score on samples that are kept out of training, and the weights that do best there."""

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float64, Shaped
from torch import Tensor, nn

from romae.data.loader import Loader
from romae.data.sources import InMemory, SampleSource, Source, as_source
from romae.model.kernels.onednn import without_onednn
from romae.model.tasks import Classification, Task
from romae.tokens.tokens import Batch
from romae.training.batches import NOTHING, VALIDATION, Preparation
from romae.training.config import TrainConfig
from romae.training.scoring import class_score, number_score, require_defined
from romae.training.step import Stepper, uncompiled

N_TOKENS = 16_384  # of a batch; without gradients there is room for more than in training


class Judged(NamedTuple):
    """How a task does on samples: its loss, and its score where one is asked for and the loss is a number."""

    loss: float
    score: float | None = None


class _Answers(NamedTuple):
    """What the head of a task says of the samples of a batch, or of their tokens, and what is true; by rows."""

    outputs: Float64[np.ndarray, "n k"]
    targets: Shaped[np.ndarray, "n *k"]
    weights: Float64[np.ndarray, "n"] | None

    @classmethod
    def of(cls, output: Tensor, batch: Batch) -> "_Answers":
        assert batch.target is not None
        weights = batch.weight
        if weights is not None and len(output) != len(weights):  # targets belong to tokens
            weights = weights[batch.tokens.layout.sample_of_token]
        by_row = None if weights is None else weights.double().cpu().numpy()
        return cls(output.double().cpu().numpy(), batch.target.cpu().numpy(), by_row)

    @classmethod
    def joined(cls, parts: list["_Answers"]) -> "_Answers":
        weights = None
        if any(part.weights is not None for part in parts):
            weights = np.concatenate(
                [np.ones(len(part.outputs)) if part.weights is None else part.weights for part in parts]
            )
        outputs, targets = (np.concatenate([getattr(part, name) for part in parts]) for name in ("outputs", "targets"))
        return cls(outputs, targets, weights)

    def score(self, task: Task, scoring: str) -> float:
        """The score, in the data's own units."""
        if isinstance(task, Classification):
            probabilities = torch.from_numpy(self.outputs).softmax(-1).numpy()
            return class_score(scoring, probabilities, self.targets, self.weights)
        numbers = [torch.from_numpy(x.reshape(self.outputs.shape)).double() for x in (self.outputs, self.targets)]
        if task.scaling is not None:
            numbers = [task.scaling.invert_target(x) for x in numbers]
        return number_score(scoring, numbers[0].numpy(), numbers[1].numpy(), self.weights)


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
    return _judged(task, as_source(samples), None, seed=seed, workers=workers, accelerator=accelerator).loss


@torch.no_grad()
@without_onednn()
def _judged(task: Any, source: Source, scoring: str | None, *, seed: int, workers: int, accelerator: Any) -> Judged:
    """The mean loss of a task over samples and, from the same outputs, its score."""
    was_training = task.training
    task.eval()
    try:
        plain = task if accelerator is None else accelerator.unwrap_model(task)
        device = next(plain.parameters()).device
        prepare = Preparation(plain, seed, is_training=False)
        sums = torch.zeros(2, dtype=torch.float64, device=device)
        answers: list[_Answers] = []
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
            with (
                uncompiled(),
                contextlib.nullcontext() if accelerator is None else accelerator.autocast(),
                _outputs_of(plain.head if scoring is not None else None) as outputs,
            ):
                loss = plain(prepared)
            sums += torch.stack([loss.total.double(), loss.weight]) * part
            if scoring is not None and batch is not None:
                answers.append(_Answers.of(plain.point(outputs[0].float()), prepared))
        if accelerator is not None:
            sums = accelerator.reduce(sums, "sum")
        if scoring is not None and accelerator is not None and accelerator.num_processes > 1:
            from accelerate.utils import gather_object

            answers = gather_object(answers)
    finally:
        task.train(was_training)
    total, weight = sums.tolist()
    if weight == 0:
        raise ValueError(f"the samples cannot be judged: {NOTHING}")
    mean = total / weight
    if scoring is None or not np.isfinite(mean):
        return Judged(mean)
    return Judged(mean, _Answers.joined(answers).score(plain, scoring))


@contextlib.contextmanager
def _outputs_of(head: nn.Module | None) -> Iterator[list[Tensor]]:
    """What a head gives within, so that nothing is computed twice for a score."""
    outputs: list[Tensor] = []
    if head is None:
        yield outputs
        return
    hook = head.register_forward_hook(lambda module, inputs, output: outputs.append(output.detach()))
    try:
        yield outputs
    finally:
        hook.remove()


def require_scorable(scoring: str | None, source: Source) -> None:
    """Refuse validation samples in memory that a score says nothing of; others are known once they are read."""
    if scoring is not None and isinstance(source, InMemory) and source.all.target is not None:
        weight = source.all.weight
        by_sample = None if weight is None or source.all.is_target_per_token else weight.double().numpy()
        require_defined(scoring, source.all.target.numpy(), by_sample)


class BestWeights:
    """The weights of the best validation so far, and how long ago it was.

    The best has the lowest loss or, where a score is asked for, the highest score and among equal ones the lowest loss.
    """

    def __init__(self, source: Source, config: TrainConfig) -> None:
        self.source, self.config = source, config
        self.loss, self.step, self.n_worse = float("inf"), 0, 0
        self.score: float | None = None
        self.weights: dict[str, Tensor] | None = None

    def validate(self, stepper: Stepper, step: int) -> Judged:
        """How it stands now, with the averaged weights where there are any, which are kept if none did better."""
        with stepper.averaged():
            judged = _judged(
                stepper.model,
                self.source,
                self.config.scoring,
                seed=self.config.seed,
                workers=self.config.workers,
                accelerator=stepper.accelerator,
            )
            if self._is_better(judged):
                self.loss, self.score, self.step, self.n_worse = judged.loss, judged.score, step, 0
                self.weights = {name: x.detach().cpu().clone() for name, x in stepper.weights().items()}
            else:
                self.n_worse += 1
        return judged

    def _is_better(self, judged: Judged) -> bool:
        if judged.score is None or self.score is None or judged.score == self.score:
            return judged.loss < self.loss
        return judged.score > self.score

    @property
    def is_patience_over(self) -> bool:
        return self.config.patience is not None and self.n_worse >= self.config.patience

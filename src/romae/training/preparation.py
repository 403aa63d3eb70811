"""From a batch of a loader to what a step takes: masks drawn, tokens dropped, filled up to a fixed size."""

import numpy as np

from romae.data.loader import Loader
from romae.model.tasks import Task
from romae.tokens.masking import SampleKeys
from romae.tokens.tokens import Batch
from romae.training.fixed_shape import Capacity, Filled, flattened

N_PROBES = 12
Piece = Batch | Filled | None


class Preparation:
    """Draws what a task draws, by the keys of the samples; in a worker process or here, the result is the same."""

    def __init__(self, task: Task, seed: int, *, is_training: bool) -> None:
        self.task, self.seed, self.is_training = task, seed, is_training

    def __call__(self, batch: Batch, epoch: int) -> Batch:
        assert batch.indices is not None
        # Said rather than asked of the task, which may be in validation while a thread makes the next batch.
        keys = SampleKeys(self.seed, epoch, batch.indices)
        return self.task.prepare(batch, keys, is_training=self.is_training)


class Filling:
    """Prepares a batch and fills it up to a fixed size; one that is too large is handed on as it is."""

    def __init__(self, prepare: Preparation, capacity: Capacity, *, pin: bool = False) -> None:
        self.prepare, self.capacity, self.pin = prepare, capacity, pin

    def __call__(self, batch: Batch, epoch: int) -> Batch | Filled:
        batch = self.prepare(batch, epoch)
        filled = self.capacity.filled(batch)
        n_tokens = batch.tokens.layout.n_tokens + (0 if batch.hidden is None else batch.hidden.layout.n_tokens)
        return batch if filled is None else flattened(filled, n_tokens, pin=self.pin)


def fitting_capacity(loader: Loader, prepare: Preparation) -> tuple[Capacity, Batch]:
    """A size that nearly all batches fit into, judged by some of the first epochs, and an example of it."""
    plans = [(epoch, indices) for epoch in range(3) for indices in loader.plan(epoch)]
    n_shares = loader.n_ranks * loader.pieces
    n_samples = max(-(-len(indices) // n_shares) for _, indices in plans)
    if loader.tokens_per_batch is not None:
        n_samples += -(-n_samples // 20)  # a later epoch may have a batch of more and shorter samples
    is_simple = loader.lengths.min() == loader.lengths.max() and prepare.task.drop_tokens == 0
    chosen = [0] if is_simple else np.linspace(0, len(plans) - 1, N_PROBES).round().astype(int).tolist()
    if not is_simple:
        n_tokens = [loader.lengths[indices].sum() for _, indices in plans]
        longest = [loader.lengths[indices].max() for _, indices in plans]
        chosen += [int(np.argmax(n_tokens)), int(np.argmax(longest))]
    full = [i for i in sorted(set(chosen)) if len(plans[i][1]) > n_samples * n_shares // 2]
    probes = []
    for epoch, indices in [plans[i] for i in full or sorted(set(chosen))]:
        probes.append(prepare(loader.batch(indices[::n_shares]), epoch))
    capacity = Capacity.around(probes, n_samples, int(loader.lengths.max()))
    fitting = (filled for probe in probes if (filled := capacity.filled(probe)) is not None)
    return capacity, next(fitting)

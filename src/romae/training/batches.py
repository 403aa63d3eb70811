"""The batches of all epochs, as training takes them: masks drawn, in a fixed shape if need be, on their device.

source ── Loader ──> Batch ── Preparation ──> masks drawn, tokens dropped ── ToFixedShape ──> FlatBatch
       (here, or in a worker process)                                        (compiled or recorded steps alone)
pieces of this rank's share of a step ── StepShare ──> batches on the device, one after the other
"""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch

from romae.data.loader import Loader
from romae.data.sources import Gather, Source
from romae.model.tasks import Task
from romae.tokens.masking import SampleKeys, Strategy
from romae.tokens.tokens import Batch, Tokens
from romae.training.config import TrainConfig
from romae.training.fixed_shape import DeviceBuffer, FixedShape, FlatBatch

if TYPE_CHECKING:
    from accelerate import Accelerator

VALIDATION = -1  # an epoch of its own, so that validation masks are the same every time
NOTHING = (
    "none of them has anything to predict, for example because each has a single token, none of which is hidden, "
    "nothing lies after the cut of the masking, or all have the weight 0"
)

N_TRIVIAL = 512  # samples that the trivial loss is judged by
TOKENS_TRIVIAL = 16_384  # of samples that are not in memory, which it must not fill
SHARE_OF_DEVICE = 0.25  # of its free memory, for the values of all samples
FEWEST_CHANNELS = 4  # with fewer, the rows of values would hardly be fewer bytes than the values
N_PROBES = 12  # batches of the first epochs that a fixed shape is judged by
PROBED_EPOCHS = 3
MORE_SAMPLES = 20  # where batches have a budget of tokens, a later one may have a twentieth more and shorter samples

Piece = Batch | FlatBatch | None  # None where a short last batch has no sample left for a rank


class Preparation:
    """Draws what a task draws, by the keys of the samples; in a worker process or here, the result is the same."""

    def __init__(self, task: Task, seed: int, *, is_training: bool) -> None:
        self.task, self.seed, self.is_training = task, seed, is_training

    def __call__(self, batch: Batch, epoch: int) -> Batch:
        assert batch.indices is not None
        # An argument, not `task.training`: the task may be in validation while a thread makes the next batch.
        keys = SampleKeys(self.seed, epoch, batch.indices)
        return self.task.prepare(batch, keys, is_training=self.is_training)


class ToFixedShape:
    """Prepares a batch and fills it up to a fixed shape; one that is too large is handed on as it is."""

    def __init__(self, prepare: Preparation, shape: FixedShape, *, pin: bool = False) -> None:
        self.prepare, self.shape, self.pin = prepare, shape, pin

    def __call__(self, batch: Batch, epoch: int) -> Batch | FlatBatch:
        batch = self.prepare(batch, epoch)
        filled = self.shape.filled(batch)
        n_tokens = batch.tokens.layout.n_tokens + (0 if batch.hidden is None else batch.hidden.layout.n_tokens)
        return batch if filled is None else FlatBatch.of(filled, n_tokens, pin=self.pin)


def probe_shape(loader: Loader, prepare: Preparation) -> tuple[FixedShape, Batch]:
    """A shape that nearly all batches fit into, judged by some of the first epochs, and an example of it."""
    plans = [(epoch, indices) for epoch in range(PROBED_EPOCHS) for indices in loader.plan(epoch)]
    n_shares = loader.n_ranks * loader.pieces
    n_samples = max(-(-len(indices) // n_shares) for _, indices in plans)
    if loader.tokens_per_batch is not None:
        n_samples += -(-n_samples // MORE_SAMPLES)
    is_simple = loader.lengths.min() == loader.lengths.max() and prepare.task.drop_tokens == 0
    probed = {0}
    if not is_simple:
        n_tokens = [loader.lengths[indices].sum() for _, indices in plans]
        longest = [loader.lengths[indices].max() for _, indices in plans]
        probed = {*np.linspace(0, len(plans) - 1, N_PROBES).round().astype(int).tolist()}
        probed |= {int(np.argmax(n_tokens)), int(np.argmax(longest))}
    # The last batch of an epoch may be hardly filled, and would ask for many fillers: it is taken as it comes.
    full = [i for i in sorted(probed) if len(plans[i][1]) > n_samples * n_shares // 2]
    probes = [prepare(loader.batch(plans[i][1][::n_shares]), plans[i][0]) for i in full or sorted(probed)]
    longest_of_all = int(loader.lengths.max())
    shape = FixedShape.around(probes, n_samples, longest_of_all)
    for probe in probes:
        if (example := shape.filled(probe)) is not None:
            return shape, example
    # No probe fits together with the others, so unlike are they: the largest one alone makes the shape.
    largest = max(probes, key=lambda probe: probe.tokens.layout.n_tokens)
    shape = FixedShape.around([largest], n_samples, longest_of_all)
    example = shape.filled(largest)
    assert example is not None, "a batch fits into a shape that is made around it"
    return shape, example


@dataclass(frozen=True, eq=False)
class StepShare:
    """This rank's share of one step: its pieces wait on the host until they are asked for."""

    pieces: list[Piece]
    n_tokens_of_step: int  # over all ranks
    arrive: Callable[[Piece], tuple[Batch, float]]

    def __len__(self) -> int:
        return len(self.pieces)

    def batches(self) -> Iterator[tuple[Batch, float]]:
        """Each piece on the device, with 1, or with 0 if it is there to keep ranks together and counts nothing."""
        return (self.arrive(piece) for piece in self.pieces)

    @property
    def has_fixed_shape(self) -> bool:
        return isinstance(self.pieces[0], FlatBatch)

    @property
    def ids(self) -> list[Hashable]:
        return [name for piece in self.pieces if piece is not None for name in piece.ids]

    @property
    def n_tokens(self) -> int:
        return sum(
            piece.n_tokens if isinstance(piece, FlatBatch) else piece.tokens.layout.n_tokens
            for piece in self.pieces
            if piece is not None
        )


class Batches:
    """The batches of a run, from the disk or memory to the device."""

    def __init__(self, task: Task, source: Source, config: TrainConfig, accelerator: "Accelerator") -> None:
        self.task, self.source, self.config, self.device = task, source, config, accelerator.device
        self.loader = Loader(
            source,
            batch_size=None if config.tokens_per_batch else config.batch_size,
            tokens_per_batch=config.tokens_per_batch,
            shuffle=True,
            seed=config.seed,
            group=config.group,
            rank=accelerator.process_index,
            n_ranks=accelerator.num_processes,
            pieces=config.accumulate,
            workers=config.workers,
            pin=self.device.type == "cuda",
        )
        self.n_batches = [self.loader.n_batches(epoch) for epoch in range(config.epochs)]
        self.generator = torch.Generator(self.device)  # of what changes images at random
        self.buffer: DeviceBuffer | None = None  # where batches of a fixed shape lie
        self.gather: Gather | None = None  # values by their rows, where those of all samples lie on the device

    @property
    def padding_factor(self) -> float:
        """By how much attention pads batches of a fixed shape: the longest over the mean length, or 1 if not at all."""
        if self.config.precision == "bf16" and self.task.config.score_dropout == 0:
            return 1.0
        return float(self.loader.lengths.max() / self.loader.lengths.mean())

    def make_ready(self, *, is_fixed: bool) -> None:
        """Say where batches are prepared, and in what shape; called in training mode, in which tokens are dropped."""
        prepare = Preparation(self.task, self.config.seed, is_training=True)
        if is_fixed:
            self.gather = self._values_on_device()
            self.loader.by_row = self.gather is not None
            shape, example = probe_shape(self.loader, prepare)
            self.buffer = DeviceBuffer(shape, example, self.device, self.gather)
            is_made_here = self.config.workers == 0 and self.device.type == "cuda"
            self.loader.transform = ToFixedShape(prepare, shape, pin=is_made_here)
        elif self.config.workers:
            self.loader.transform = prepare  # else on the device, in `_arrived`

    def shares(self, epoch: int, batch: int) -> Iterator[StepShare]:
        """What is left from this batch of this epoch on: for each step, this rank's share of its batch."""
        pieces = self.loader.epochs(epoch, self.config.epochs, start=batch)
        for number in range(epoch, self.config.epochs):
            for indices in self.loader.plan(number)[batch if number == epoch else 0 :]:
                n_tokens = int(self.loader.lengths[indices].sum())
                share = [next(pieces) for _ in range(self.config.accumulate)]
                yield StepShare(share, n_tokens, partial(self._arrived, epoch=number))

    def _arrived(self, piece: Piece, epoch: int) -> tuple[Batch, float]:
        """A piece as it is on the device, and whether it counts."""
        if isinstance(piece, FlatBatch):
            return self._in_place(piece), 1.0
        if piece is None:
            return self._prepared(self.loader.stand_in(), epoch), 0.0
        return self.task.augmented(self._prepared(piece, epoch), self.generator), 1.0

    def _in_place(self, flat: FlatBatch) -> Batch:
        """A batch of fixed shape, where a recorded step looks for it."""
        assert self.buffer is not None
        self.buffer.load(flat)
        batch = self.buffer.batch
        if self.task.augment is not None:
            batch.tokens.values.copy_(self.task.augmented(batch, self.generator).tokens.values)
        return batch

    def _prepared(self, batch: Batch, epoch: int) -> Batch:
        prepare = Preparation(self.task, self.config.seed, is_training=epoch != VALIDATION)
        if self.device.type != "cpu" and not batch.is_prepared:
            self.task.require_kinds(batch)  # on the host, since reading values back from the device would wait for it
        batch = prepare(batch.to(self.device, non_blocking=True), epoch)
        return batch if self.gather is None else _with_values(batch, self.gather)

    def _values_on_device(self) -> Gather | None:
        """All values on the device, and batches that only name their rows; None where they do not fit or are needed."""
        source, masking = self.source, getattr(self.task, "masking", None)
        if not source.is_in_memory or not isinstance(masking, Strategy | None):
            return None  # values are read from a disk, or a masking of the user's own may look at them
        if self.task.config.channels < FEWEST_CHANNELS:
            return None
        if source.n_value_bytes > SHARE_OF_DEVICE * torch.cuda.mem_get_info(self.device)[0]:
            return None
        return source.values_on(self.device)

    def trivial_loss(self, source: Source, problem: str) -> float:
        """The loss of a model that learns nothing, on some samples of a source that must have something to predict.

        They are taken evenly from all, which may lie in the order of their classes.
        """
        n_judged = N_TRIVIAL
        if not source.is_in_memory:
            n_judged = min(N_TRIVIAL, max(1, int(TOKENS_TRIVIAL / source.lengths.mean())))
        step = -(-len(source) // n_judged)
        was_training = self.task.training
        self.task.eval()
        try:
            for first in range(step):  # as a rule the first few will do
                indices = np.arange(first, len(source), step)
                batch = replace(source.batch(indices), indices=torch.from_numpy(indices))
                loss = self.task.trivial(self._prepared(batch, VALIDATION))
                if float(loss.weight) > 0:
                    return float(loss.total / loss.weight)
        finally:
            self.task.train(was_training)
        raise ValueError(f"{problem}: {NOTHING}")

    def trivial_loss_of(self, share: StepShare) -> float | None:
        """The same from the first piece of a step, for samples that are not in memory: no file is read twice for it.

        None where that piece has nothing to predict, or comes in a fixed shape, whose fillers would count.
        """
        if not isinstance(share.pieces[0], Batch):
            return None
        loss = self.task.trivial(share.arrive(share.pieces[0])[0])
        return float(loss.total / loss.weight) if float(loss.weight) > 0 else None


def _with_values(batch: Batch, gather: Gather) -> Batch:
    """A batch that names the rows of its values, with the values themselves."""

    def gathered(part: Tokens | None) -> Tokens | None:
        return part if part is None or part.rows is None else replace(part, values=gather(part.rows), rows=None)

    tokens = gathered(batch.tokens)
    assert tokens is not None
    return replace(batch, tokens=tokens, hidden=gathered(batch.hidden))

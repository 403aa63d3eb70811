"""What training is fed with: the batches of all epochs, prepared, in a fixed size if need be, on their device."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from romae.data.loader import Loader
from romae.data.packed import Gather, Packed, packed
from romae.data.pixels import Pixels
from romae.model.tasks import Task
from romae.tokens.masking import Strategy
from romae.tokens.sample import Sample
from romae.tokens.tokens import Batch
from romae.training.config import TrainConfig
from romae.training.fixed_shape import Buffer, Filled, with_values
from romae.training.preparation import Filling, Piece, Preparation, fitting_capacity
from romae.training.validation import NOTHING, VALIDATION

if TYPE_CHECKING:
    from accelerate import Accelerator

FEW = 512  # samples that the trivial loss is told from
SETTLED = 0.25  # of the free memory of a device, for the values of all samples


class Feed:
    """The samples of a run, from the disk or memory to the device, piece by piece."""

    def __init__(self, task: Task, samples: Sequence[Sample], config: TrainConfig, accelerator: "Accelerator") -> None:
        self.task, self.config, self.device = task, config, accelerator.device
        self.held: Sequence[Sample] | Packed = packed(samples) or samples
        self.loader = Loader(
            self.held,
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
        self.buffer: Buffer | None = None  # where batches of a fixed size lie
        self.gather: Gather | None = None  # values by their rows, where those of all samples lie on the device
        self.planned: tuple[int, list[np.ndarray]] | None = None

    @property
    def padding_factor(self) -> float:
        """By how much attention pads batches of a fixed size: the longest over the mean length, or 1 if it does not."""
        if self.config.precision == "bf16" and self.task.config.score_dropout == 0:
            return 1.0
        lengths = self.loader.lengths
        return float(lengths.max() / lengths.mean())

    def make_ready(self, *, is_fixed: bool) -> None:
        """Say where batches are prepared, and in what size; called in training mode, in which tokens are dropped."""
        prepare = Preparation(self.task, self.config.seed, is_training=True)
        if is_fixed:
            self.gather = self._settled()
            capacity, example = fitting_capacity(self.loader, prepare)
            self.buffer = Buffer(capacity, example, self.device, self.gather)
            is_made_here = self.config.workers == 0 and self.device.type == "cuda"
            self.loader.transform = Filling(prepare, capacity, pin=is_made_here)
        elif self.config.workers:
            self.loader.transform = prepare  # else on the device, in `arrived`

    def batches(self, epoch: int, batch: int) -> Iterator[list[Piece]]:
        """What is left from this batch of this epoch on: for each step, the pieces of this rank's share of a batch."""
        pieces = self.loader.epochs(epoch, self.config.epochs, start=batch)
        for piece in pieces:
            yield [piece, *(next(pieces) for _ in range(self.config.accumulate - 1))]

    def n_tokens(self, epoch: int, batch: int) -> int:
        """The number of tokens in a batch, over all ranks."""
        if self.planned is None or self.planned[0] != epoch:
            self.planned = epoch, self.loader.plan(epoch)
        return int(self.loader.lengths[self.planned[1][batch]].sum())

    def arrived(self, piece: Piece, epoch: int) -> tuple[Batch, float]:
        """A piece as it is on the device, and whether it counts."""
        if isinstance(piece, Filled):
            return self.in_place(piece), 1.0
        if piece is None:
            return self._prepared(self.loader.stand_in(), epoch), 0.0
        return self.task.augmented(self._prepared(piece, epoch), self.generator), 1.0

    def in_place(self, filled: Filled) -> Batch:
        """A batch of fixed size, where a recorded step looks for it."""
        assert self.buffer is not None
        self.buffer.fill(filled)
        batch = self.buffer.batch
        if self.task.augment is not None:
            batch.tokens.values.copy_(self.task.augmented(batch, self.generator).tokens.values)
        return batch

    def trivial_loss(self, loader: Loader, complaint: str) -> float:
        """What a model that learns nothing would get on some of the samples; refused where there is nothing to get.

        They are taken evenly from all, which may lie in the order of their classes.
        """
        n = len(loader.lengths)
        was_training = self.task.training
        self.task.eval()
        try:
            for first in range(-(-n // FEW)):  # as a rule the first few will do
                some = np.arange(first, n, -(-n // FEW))
                loss = self.task.trivial(self._prepared(loader.batch(some), VALIDATION))
                if float(loss.weight) > 0:
                    break
        finally:
            self.task.train(was_training)
        if float(loss.weight) == 0:
            raise ValueError(f"{complaint}: {NOTHING}")
        return float(loss.total / loss.weight)

    def _settled(self) -> Gather | None:
        """All values on the device, and batches that only name their rows; None where they do not fit or are needed."""
        masking, held = getattr(self.task, "masking", None), self.held
        if not isinstance(held, Packed | Pixels) or not isinstance(masking, Strategy | None):
            return None  # a masking of the user's own may look at values
        if self.task.config.channels < 4:  # the numbers of rows would hardly be fewer bytes
            return None
        if held.n_bytes > SETTLED * torch.cuda.mem_get_info(self.device)[0]:
            return None
        self.loader.samples = held.numbered()
        return held.settled(self.device)

    def _prepared(self, batch: Batch, epoch: int) -> Batch:
        prepare = Preparation(self.task, self.config.seed, is_training=epoch != VALIDATION)
        if self.device.type != "cpu" and not batch.is_prepared:
            self.task.require_kinds(batch)  # on the device, who looks would wait
        batch = prepare(batch.to(self.device, non_blocking=True), epoch)
        return batch if self.gather is None else with_values(batch, self.gather)

"""How long a fit takes: told before it begins, from a few steps that are timed, and brought within a limit."""

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Int64

from romae.data.scaling import Scaling
from romae.data.sources import lengths_of
from romae.model.autoencoder import Encoder
from romae.model.config import ModelConfig, Size
from romae.tokens.sample import Sample
from romae.training import rules
from romae.training.progress import in_words
from romae.training.stages import Stage, run_stages

WORTH_SAYING = 20.0  # seconds; nobody wonders what a shorter fit is doing
N_TIMED = 3  # steps
WORTH_REPEATING = 0.5  # seconds; of steps that take longer, one is enough
N_RECORDED = 100  # steps, where a GPU records them: what it plays back is far quicker than the first few
LONG_STEP = 0.03  # seconds; such a step is no quicker for being recorded


class Work(NamedTuple):
    """A stage, what it is trained on, and how many models go through it."""

    stage: Stage
    samples: Sequence[Sample]
    n_models: int = 1

    def seconds(self, size: Size, device: rules.Device) -> float:
        """About how long it takes on the machine that the rules were made on."""
        lengths, batch_size = lengths_of(self.samples), self.stage.train.batch_size
        n_steps = -(-len(lengths) // batch_size)
        one_pass = n_steps * rules.step_seconds(lengths, n_steps, size, device)
        return self.n_models * self.stage.train.epochs * one_pass


def slowness(
    work: Work, model: ModelConfig | Encoder, size: Size, scaling: Scaling, device: rules.Device, seed: int
) -> float:
    """How many times as long as by the rules a few steps take here; the model is not changed."""
    batch_size = work.stage.train.batch_size
    lengths = lengths_of(work.samples)
    order = np.argsort(np.abs(lengths - lengths.mean()), kind="stable")  # those of about the mean length
    expected = rules.step_seconds(lengths[order[:batch_size]], 1, size, device)
    n_batches = min(1 + (N_TIMED if expected < WORTH_REPEATING else 1), len(lengths) // batch_size)

    def seconds(n_batches: int, epochs: int = 1) -> float:
        few = [work.samples[i] for i in order[: n_batches * batch_size].tolist()]
        train = replace(work.stage.train, epochs=epochs, patience=None, scoring=None, validate_every=None)
        begin = time.perf_counter()
        run_stages(
            model, [replace(work.stage, train=train, weights="last")], few, scaling=scaling, seed=seed, quiet=True
        )
        return time.perf_counter() - begin

    seconds(1)  # what only the first step of a process does
    if n_batches < 2:
        return 1.0
    if device is rules.GPU and expected < LONG_STEP:
        epochs = -(-N_RECORDED // n_batches)
        measured = (seconds(n_batches, 2 * epochs) - seconds(n_batches, epochs)) / (epochs * n_batches)
    else:
        measured = (seconds(n_batches) - seconds(1)) / (n_batches - 1)
    return max(measured / expected, 0.05)


def shortened(works: Sequence[Work], seconds: float, limit: float) -> list[Stage]:
    """The stages with fewer passes, each by the same factor, so that they take no longer than a limit."""
    factor = min(1.0, limit / max(seconds, 1e-9))
    stages = []
    for work in works:
        epochs = max(1, int(work.stage.train.epochs * factor))
        patience = None if work.stage.train.patience is None else rules.fitting_patience(epochs)
        stages.append(replace(work.stage, train=replace(work.stage.train, epochs=epochs, patience=patience)))
    return stages


def announce(name: str, seconds: float, lengths: Int64[np.ndarray, "b"], *, is_on_gpu: bool) -> None:
    """Say on stderr how long a fit will take."""
    print(
        f"{name}: about {in_words(seconds)} at most on this {'GPU' if is_on_gpu else 'CPU'} ({len(lengths):,} series, "
        f"{int(lengths.sum()):,} tokens); time_limit= shortens it, verbose=1 shows how far it is",
        file=sys.stderr,
        flush=True,
    )

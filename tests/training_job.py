"""A small run in a process of its own, for the tests that kill it.

Processes are forked from one that has imported everything and done nothing, since importing takes longer than the run.
"""

import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import torch

from romae.config import override
from romae.model.config import ModelConfig, Size
from romae.model.tasks import MaskedReconstruction
from romae.tokens.sample import Sample
from romae.training.config import TrainConfig
from romae.training.loop import train

N_SAMPLES = 41  # with batches of 8, the last one has a single sample


def samples() -> list[Sample]:
    random = np.random.default_rng(0)
    made = []
    for i in range(N_SAMPLES):
        times = np.sort(random.uniform(0, 10, random.integers(2, 12)))
        made.append(Sample(np.sin(times + random.uniform(0, 6))[:, None], times[:, None], id=f"series {i}"))
    return made


def task() -> MaskedReconstruction:
    torch.manual_seed(0)
    size = Size(width=16, heads=2, depth=1)
    return MaskedReconstruction(ModelConfig(channels=1, position_dims=1, encoder=size, decoder=size))


def config(*settings: str) -> TrainConfig:
    return override(TrainConfig(epochs=4, batch_size=8, lr=3e-3, device="cpu", save_every=1, ema=0.9), *settings)


def slowed(seconds: float) -> None:
    from romae.training.loop import _Loop

    step = _Loop._step

    def slow(self, *parts):
        time.sleep(seconds)
        return step(self, *parts)

    _Loop._step = slow


def work(folder: Path, settings: tuple[str, ...], seconds: float, environment: dict[str, str], spoken: Path) -> None:
    """The run, in its process; what it says goes to a file."""
    os.environ.update(environment)
    with spoken.open("w") as file:
        os.dup2(file.fileno(), sys.stderr.fileno())
    torch.set_num_threads(1)
    slowed(seconds)
    spoken.with_suffix(".ready").touch()
    data = samples()
    train(task(), data, config(*settings), validation=data[:9], out=folder, resume=True)


FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["training_job", "accelerate", "torch._dynamo"])


class Job:
    """A run under way. Each setting is key=value for TrainConfig; `seconds` slows every step down."""

    def __init__(self, folder: Path, *settings: str, seconds: float = 0.0, **environment: str) -> None:
        folder.parent.mkdir(parents=True, exist_ok=True)
        self.spoken = folder.parent / f"{folder.name}-{time.monotonic_ns()}.err"
        self.process = FORKS.Process(target=work, args=(folder, settings, seconds, environment, self.spoken))
        self.process.start()

    def wait_until_ready(self) -> None:
        while not self.spoken.with_suffix(".ready").exists() and self.process.is_alive():
            time.sleep(0.01)

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def ended(self, timeout: float = 120) -> tuple[int, str]:
        """Its exit code and what it said, once it is over."""
        self.process.join(timeout)
        assert self.process.exitcode is not None, "the run goes on and on"
        return self.process.exitcode, self.spoken.read_text()

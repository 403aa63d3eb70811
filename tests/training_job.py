"""A small run in a process of its own, for the tests that kill it: python training_job.py FOLDER SETTINGS…

Each setting is key=value for TrainConfig. SECONDS_PER_STEP in the environment slows it down. With RANK and WORLD_SIZE
set, it is one of several ranks.
"""

import os
import sys
import time

import numpy as np
import torch

from romae.config import override
from romae.model import ModelConfig, Size
from romae.tasks import MaskedReconstruction
from romae.tokens import Sample
from romae.train_config import TrainConfig
from romae.training import REQUEUE, Interrupted, train

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
    from romae.training import _Trainer

    step = _Trainer._step

    def slow(self, pieces):
        time.sleep(seconds)
        return step(self, pieces)

    _Trainer._step = slow


def main() -> None:
    torch.set_num_threads(1)
    folder, *settings = sys.argv[1:]
    slowed(float(os.environ.get("SECONDS_PER_STEP", "0")))
    print("ready", flush=True)
    data = samples()
    try:
        train(task(), data, config(*settings), validation=data[:9], out=folder, resume=True)
    except Interrupted as stopped:
        print(stopped, file=sys.stderr)
        sys.exit(REQUEUE)


if __name__ == "__main__":
    main()

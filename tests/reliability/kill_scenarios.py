"""The runs that the campaign of kills takes: one for each way to train that docs/scaling.md names.

Each is tiny, writes a state after nearly every step, and goes on with what is in its folder.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pandas as pd
import torch

import training_job
from romae.data.store import Store, write_store
from romae.model.config import ModelConfig, Size
from romae.model.tasks import Task
from romae.tokens.sample import Sample
from romae.training.config import TrainConfig, TrainSettings
from romae.training.loop import train
from romae.training.run_folder import History
from romae.training.stages import Classify, Pretrain, run_stages
from romae.training.tables import Columns, ModelSettings, PretrainConfig, pretrain

Trained = tuple[Task, tuple[History, ...]]
N_VALIDATION = 9
SIZE = Size(width=16, heads=2, depth=1)


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A run: what it calls, its settings, its processes, and settings that change from start to start."""

    run: Callable[[Path, TrainConfig, Path], Trained]  # the run's folder, its settings, the campaign's data
    settings: tuple[str, ...] = ()
    n_ranks: int = 1
    n_workers_of_start: tuple[int, ...] = ()  # the first start has the first of them, and so on

    def start(self, folder: Path, data: Path, number: int) -> Trained:
        """Begin the run, or go on with it for the `number`-th time."""
        settings = list(self.settings)
        if self.n_workers_of_start:
            settings.append(f"workers={self.n_workers_of_start[number % len(self.n_workers_of_start)]}")
        return self.run(folder, training_job.config(*settings), data)


def make_data(folder: Path) -> None:
    """What runs read from the disk."""
    write_store(training_job.samples(), folder / "samples.arrow")
    tables = [
        pd.DataFrame({"id": sample.id, "time": sample.positions[:, 0], "value": sample.values[:, 0]})
        for sample in training_job.samples()
    ]
    pd.concat(tables).to_csv(folder / "samples.csv", index=False)


def _in_memory(folder: Path, config: TrainConfig, data: Path) -> Trained:
    samples, task = training_job.samples(), training_job.task()
    history = train(task, samples, config, validation=samples[:N_VALIDATION], out=folder, resume=True, quiet=True)
    return task, (history,)


def _from_store(folder: Path, config: TrainConfig, data: Path) -> Trained:
    store, task = Store(data / "samples.arrow"), training_job.task()
    validation = training_job.samples()[:N_VALIDATION]
    history = train(task, store, config, validation=validation, out=folder, resume=True, quiet=True)
    return task, (history,)


def _with_a_bad_sample(folder: Path, config: TrainConfig, data: Path) -> Trained:
    samples, task = training_job.samples(), training_job.task()
    samples[7] = Sample([[1e30], [1e30], [2e30]], [[0.0], [1.0], [2.0]], id="bad")
    history = train(task, samples, config, out=folder, resume=True, quiet=True)
    return task, (history,)


def _in_stages(folder: Path, config: TrainConfig, data: Path) -> Trained:
    samples = [replace(sample, target=torch.tensor(i % 2)) for i, sample in enumerate(training_job.samples())]
    model = ModelConfig(channels=1, position_dims=1, encoder=SIZE, decoder=SIZE)
    stages = [Pretrain(train=config), Classify(n_classes=2, train=config, dropout=0.1, drop_tokens=0.3)]
    outcome = run_stages(model, stages, samples, validation=samples[:N_VALIDATION], out=folder, resume=True, quiet=True)
    return outcome.task, outcome.histories


def _from_table(folder: Path, config: TrainConfig, data: Path) -> Trained:
    """What `romae pretrain --resume` calls."""
    model = ModelSettings(encoder=SIZE, decoder=SIZE)
    settings = PretrainConfig(columns=Columns(), model=model, train=TrainSettings(**asdict(config)))
    trained = pretrain(settings, str(data / "samples.csv"), folder, resume=True)
    return trained.task, (trained.history,)


SCENARIOS = {
    "one process": Scenario(run=_in_memory),
    "workers": Scenario(run=_in_memory, settings=("workers=2", "save_every=2")),
    "other workers at each start": Scenario(run=_in_memory, n_workers_of_start=(0, 1, 2)),
    "accumulation": Scenario(run=_in_memory, settings=("accumulate=3", "n_states=1")),
    "tokens per batch": Scenario(run=_in_memory, settings=("tokens_per_batch=60", "group=true", "n_states=3")),
    "bf16": Scenario(run=_in_memory, settings=("precision=bf16",)),
    "no average, early stopping": Scenario(
        run=_in_memory, settings=("ema=none", "validate_every=1", "patience=2", "lr=0.03", "optimiser=sgd")
    ),
    "bad batches left out": Scenario(run=_with_a_bad_sample, settings=("nonfinite=skip", "batch_size=4", "epochs=2")),
    "store": Scenario(run=_from_store, settings=("workers=1",)),
    "table": Scenario(run=_from_table),
    "stages": Scenario(run=_in_stages, settings=("epochs=2",)),
    "two processes": Scenario(run=_in_memory, settings=("epochs=2",), n_ranks=2),
    "two processes, accumulation, workers": Scenario(
        run=_in_memory, settings=("accumulate=2", "workers=1", "epochs=2"), n_ranks=2
    ),
    "shards": Scenario(run=_in_memory, settings=("shard=true", "epochs=2"), n_ranks=2),
}

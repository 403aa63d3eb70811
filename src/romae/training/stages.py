"""Stages: what an encoder goes through, one after the other, such as pre-training and then classification.

A stage is a value. Recipes, estimators and whoever wants more than one round of training hand their stages to
`run_stages`, which builds each task around the encoder of the one before and calls the only loop.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from romae.config import check_types
from romae.data.scaling import Scaling
from romae.data.schema import Schema
from romae.data.sources import SampleSource, Source, as_source
from romae.model.autoencoder import Encoder
from romae.model.config import ModelConfig
from romae.model.tasks import Classification, MaskedReconstruction, Regression, Task
from romae.seeds import seed_everything
from romae.tokens.augmentation import Augmentation, Noise
from romae.tokens.masking import Masking, Strategy, UniformTokens
from romae.training.config import TrainConfig
from romae.training.loop import Log, train
from romae.training.preflight import require_labels, require_trackers
from romae.training.run_folder import History


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stage:
    """What all stages have in common.

    Up to the share `drop_tokens` of a sample's tokens is left out at each step. `dropout` and `stochastic_depth` stay
    as the model has them unless they are given. With validation samples, `weights` says whether the stage ends with
    those of its best validation or with its last ones, in which case nothing is validated.
    """

    train: TrainConfig = TrainConfig()
    drop_tokens: float = 0.0
    dropout: float | None = None
    stochastic_depth: float | None = None
    weights: Literal["best", "last"] = "best"

    def __post_init__(self) -> None:
        check_types(self)

    @property
    def changes(self) -> dict[str, float]:
        """The settings of the model that this stage changes."""
        given = {"dropout": self.dropout, "stochastic_depth": self.stochastic_depth}
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pretrain(_Stage):
    """Predict hidden tokens from visible ones."""

    masking: Strategy | Masking = UniformTokens()
    normalise: bool = False
    kind: Literal["pretrain"] = "pretrain"

    def task(self, encoder: Encoder) -> Task:
        return MaskedReconstruction(
            encoder, masking=self.masking, normalise=self.normalise, drop_tokens=self.drop_tokens
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Classify(_Stage):
    """Tell the class of a sample. A `frozen` encoder keeps its weights, and only the head learns.

    `augment` changes values at random at each step.
    """

    n_classes: int
    confidence: float = 1.0
    frozen: bool = False
    augment: Augmentation | None = None
    kind: Literal["classify"] = "classify"

    def task(self, encoder: Encoder) -> Task:
        encoder.requires_grad_(not self.frozen)
        return Classification(
            encoder,
            self.n_classes,
            confidence=self.confidence,
            drop_tokens=self.drop_tokens,
            augment=self.augment,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Regress(_Stage):
    """Tell numbers of a sample, or of each of its tokens. A `frozen` encoder keeps its weights.

    `augment` changes values at random at each step.
    """

    n_targets: int = 1
    per: Literal["sample", "token"] = "sample"
    frozen: bool = False
    augment: Noise | None = None
    kind: Literal["regress"] = "regress"

    def task(self, encoder: Encoder) -> Task:
        encoder.requires_grad_(not self.frozen)
        return Regression(encoder, self.n_targets, per=self.per, drop_tokens=self.drop_tokens, augment=self.augment)


Stage = Pretrain | Classify | Regress

TITLES = {"pretrain": "pre-training", "classify": "classification", "regress": "regression"}


class Outcome(NamedTuple):
    """The task of the last stage, what happened in each, and the seconds that this process spent in training."""

    task: Task
    histories: tuple[History, ...]
    seconds: float


def run_stages(
    model: ModelConfig | Encoder,
    stages: Sequence[Stage],
    training: SampleSource,
    *,
    validation: SampleSource | None = None,
    unlabelled: SampleSource | None = None,
    scaling: Scaling | None = None,
    schema: Schema | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    resume: bool = False,
    log: Log | None = None,
    quiet: bool = False,
) -> Outcome:
    """Train through all stages and return the last task.

    Samples are handed over as they were read and scaled here; the task keeps scaling and schema for its predictions.
    Pre-training learns from `unlabelled` samples where there are any, else from the training samples. `seed` stands in
    for that of every stage and decides the first weights. An encoder that is handed over is not changed.

    With `out`, each stage has a folder of its own in it, and `resume=True` goes on where the run stopped. `log` also
    hears the number of the stage. `quiet` shows no progress.
    """
    _require_stages(model, stages, training, validation, unlabelled, scaling, out)
    histories: list[History] = []
    for number, stage in enumerate(stages):
        seed_everything(seed, number)  # before each, so that a resumed run makes the same heads
        task = stage.task(_encoder(model, stage))
        task.schema = schema
        history = train(
            task,
            unlabelled if stage.kind == "pretrain" and unlabelled is not None else training,
            replace(stage.train, seed=seed),
            validation=validation if stage.weights == "best" else None,
            scaling=scaling,
            out=None if out is None else Path(out) / f"{number}-{stage.kind}",
            resume=resume,
            log=None if log is None else _numbered(log, number),
            title=TITLES[stage.kind],
            quiet=quiet,
        )
        histories.append(history)
        model = task.encoder
    return Outcome(task, tuple(histories), sum(history.seconds for history in histories))


def _encoder(model: ModelConfig | Encoder, stage: Stage) -> Encoder:
    if isinstance(model, Encoder):
        return model.rebuilt(**stage.changes)
    return Encoder(replace(model, **stage.changes))  # type: ignore[arg-type]


def _numbered(log: Log, number: int) -> Log:
    return lambda step, record: log(step, {"stage": number, **record})


def _require_stages(
    model: ModelConfig | Encoder,
    stages: Sequence[Stage],
    training: SampleSource,
    validation: SampleSource | None,
    unlabelled: SampleSource | None,
    scaling: Scaling | None,
    out: Any,
) -> None:
    """Find what is wrong with a later stage before the first one has taken its hours."""
    if len(stages) == 0:
        raise ValueError("there is no stage to run; give at least one, such as Pretrain()")
    if len(training) == 0:
        raise ValueError("there are no samples to train on: the list is empty")
    for stage in stages:
        if not isinstance(stage, Stage):
            raise TypeError(f"a stage is Pretrain, Classify or Regress, not {stage!r}")
    if unlabelled is not None and not any(stage.kind == "pretrain" for stage in stages):
        raise ValueError("unlabelled samples are for pre-training, and no stage is Pretrain")
    for stage in stages:
        with torch.device("meta"):
            task = stage.task(_encoder(model.config if isinstance(model, Encoder) else model, stage))
        require_trackers(stage.train.trackers)
        if stage.train.patience is not None and (validation is None or stage.weights == "last"):
            raise ValueError(
                f"the stage {stage.kind!r} has patience, which needs validation samples and weights='best'"
            )
        if stage.kind == "pretrain":
            if out is not None and not isinstance(stage.masking, Strategy):
                raise ValueError(
                    "a run with a folder saves its task, which needs a strategy of romae.masking, not "
                    f"{stage.masking!r}"
                )
            continue
        for samples in (training, validation):
            if samples is not None and len(samples) > 0:
                _require_targets(task, stage, as_source(samples), scaling)


def _require_targets(task: Task, stage: Classify | Regress, source: Source, scaling: Scaling | None) -> None:
    """Whether the stage can learn from these targets, judged by some samples, and by all that are in memory."""
    n = len(source)
    if source[0].target is None:
        raise ValueError(f"the stage {stage.kind!r} learns from targets, and the samples have none")
    require_labels(task, source.profile())
    indices = np.unique([0, n // 2, n - 1])
    if stage.kind == "classify" and source.is_in_memory:
        targets = source.packed(np.arange(n)).target
        if targets is not None and targets.ndim == 1 and len(targets) == n:
            indices = np.append(indices, int(targets.argmax()))  # the one that may be too large
    batch = task.prepare(source.scaled(scaling).batch(indices), torch.Generator().manual_seed(0))
    if task.augment is not None:
        task.augmented(batch, torch.Generator().manual_seed(0))

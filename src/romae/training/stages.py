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
from romae.model.likelihoods import Likelihood, Name
from romae.model.tasks import Classification, MaskedReconstruction, MultiLabel, Regression, Task
from romae.seeds import generators_as_before, seed_everything
from romae.tokens.augmentation import Augmentation, Noise
from romae.tokens.masking import Masking, Strategy, UniformTokens
from romae.training.config import TrainConfig
from romae.training.loop import Log, train
from romae.training.preflight import require_labels, require_scoring, require_trackers
from romae.training.run_folder import History
from romae.training.validation import require_scorable


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
    """A stage of masked pre-training: predict hidden tokens from visible ones.

    Parameters
    ----------
    train : TrainConfig, default TrainConfig()
        The settings of training. The seed is that of `run_stages`.
    drop_tokens : float, default 0.0
        The largest share of each sample's tokens that is dropped at each step, from 0 to below 1.
    dropout : float, optional
        Dropout of the model in this stage; None leaves it as it is.
    stochastic_depth : float, optional
        Stochastic depth of the model in this stage; None leaves it as it is.
    weights : {"best", "last"}, default "best"
        Whether the stage ends with the weights of its best validation, where there are validation samples, or with its
        last ones, in which case nothing is validated.
    masking : UniformTokens, Rows, Channels, Spans, Future, Mixed or Masking, default UniformTokens(ratio=0.75)
        Which tokens to hide.
    normalise : bool, default False
        Whether each token's target is brought to mean 0 and variance 1 over its own channels, for image patches.
    likelihood : {"normal", "student", "mixture", "quantiles"} or a likelihood, optional
        The distribution that is learned of each hidden number; None learns its mean alone, by a squared error.
    loss_weights : "channel" or None, default None
        Whether every channel of a batch counts alike in the loss, and not every hidden number (`weights` of
        `MaskedReconstruction`).
    kind : "pretrain"
        The name of this stage in a configuration file.

    Raises
    ------
    ValueError
        If a setting has no such value.
    TypeError
        If a setting is of another type.

    See Also
    --------
    run_stages : trains through a list of stages.

    Examples
    --------
    >>> import romae
    >>> stage = romae.Pretrain(masking=romae.Spans(ratio=0.5), train=romae.TrainConfig(epochs=50))
    >>> stage.masking.ratio, stage.train.epochs
    (0.5, 50)
    """

    masking: Strategy | Masking = UniformTokens()
    normalise: bool = False
    likelihood: Likelihood | Name | None = None
    loss_weights: Literal["channel"] | None = None
    kind: Literal["pretrain"] = "pretrain"

    def task(self, encoder: Encoder) -> Task:
        """The task of this stage.

        Parameters
        ----------
        encoder : Encoder
            The encoder to train.

        Returns
        -------
        MaskedReconstruction
            Around this encoder.
        """
        return MaskedReconstruction(
            encoder,
            masking=self.masking,
            normalise=self.normalise,
            drop_tokens=self.drop_tokens,
            likelihood=self.likelihood,
            weights=self.loss_weights,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Classify(_Stage):
    """A stage of classification: fine-tuning, or linear probing of a frozen encoder.

    Parameters
    ----------
    train : TrainConfig, default TrainConfig()
        The settings of training. The seed is that of `run_stages`.
    drop_tokens : float, default 0.0
        The largest share of each sample's tokens that is dropped at each step, from 0 to below 1.
    dropout : float, optional
        Dropout of the model in this stage; None leaves it as it is.
    stochastic_depth : float, optional
        Stochastic depth of the model in this stage; None leaves it as it is.
    weights : {"best", "last"}, default "best"
        Whether the stage ends with the weights of its best validation, where there are validation samples, or with its
        last ones, in which case nothing is validated.
    n_classes : int
        The number of classes.
    confidence : float, default 1.0
        The probability that the target gives to the true class; below 1 it is label smoothing.
    frozen : bool, default False
        Whether the encoder keeps its weights, and only the head is trained (linear probing).
    augment : RandAugment or Noise, optional
        Augmentation of values.
    kind : "classify"
        The name of this stage in a configuration file.

    Raises
    ------
    ValueError
        If a setting has no such value.
    TypeError
        If a setting is of another type.

    See Also
    --------
    run_stages : trains through a list of stages.

    Examples
    --------
    >>> import romae
    >>> romae.Classify(n_classes=3, frozen=True, dropout=0.1).changes
    {'dropout': 0.1}
    """

    n_classes: int
    confidence: float = 1.0
    frozen: bool = False
    augment: Augmentation | None = None
    kind: Literal["classify"] = "classify"

    def task(self, encoder: Encoder) -> Task:
        """The task of this stage.

        Parameters
        ----------
        encoder : Encoder
            The encoder to train.

        Returns
        -------
        Classification
            Around this encoder.
        """
        encoder.requires_grad_(not self.frozen)
        return Classification(
            encoder,
            self.n_classes,
            confidence=self.confidence,
            drop_tokens=self.drop_tokens,
            augment=self.augment,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifyLabels(_Stage):
    """A stage of multi-label classification: each of several labels has a probability of its own.

    Parameters
    ----------
    train : TrainConfig, default TrainConfig()
        The settings of training. The seed is that of `run_stages`.
    drop_tokens : float, default 0.0
        The largest share of each sample's tokens that is dropped at each step, from 0 to below 1.
    dropout : float, optional
        Dropout of the model in this stage; None leaves it as it is.
    stochastic_depth : float, optional
        Stochastic depth of the model in this stage; None leaves it as it is.
    weights : {"best", "last"}, default "best"
        Whether the stage ends with the weights of its best validation, where there are validation samples, or with its
        last ones, in which case nothing is validated.
    n_labels : int
        The number of labels; targets are vectors of 0 and 1.
    frozen : bool, default False
        Whether the encoder keeps its weights, and only the head is trained (linear probing).
    augment : Noise, optional
        Augmentation of values.
    kind : "multilabel"
        The name of this stage in a configuration file.

    Raises
    ------
    ValueError
        If a setting has no such value.
    TypeError
        If a setting is of another type.

    See Also
    --------
    run_stages : trains through a list of stages.

    Examples
    --------
    >>> import romae
    >>> romae.ClassifyLabels(n_labels=3, drop_tokens=0.5).kind
    'multilabel'
    """

    n_labels: int
    frozen: bool = False
    augment: Noise | None = None
    kind: Literal["multilabel"] = "multilabel"

    def task(self, encoder: Encoder) -> Task:
        """The task of this stage.

        Parameters
        ----------
        encoder : Encoder
            The encoder to train.

        Returns
        -------
        MultiLabel
            Around this encoder.
        """
        encoder.requires_grad_(not self.frozen)
        return MultiLabel(encoder, self.n_labels, drop_tokens=self.drop_tokens, augment=self.augment)


@dataclass(frozen=True, slots=True, kw_only=True)
class Regress(_Stage):
    """A stage of regression: numbers of a sample, or of each of its tokens.

    Parameters
    ----------
    train : TrainConfig, default TrainConfig()
        The settings of training. The seed is that of `run_stages`.
    drop_tokens : float, default 0.0
        The largest share of each sample's tokens that is dropped at each step, from 0 to below 1.
    dropout : float, optional
        Dropout of the model in this stage; None leaves it as it is.
    stochastic_depth : float, optional
        Stochastic depth of the model in this stage; None leaves it as it is.
    weights : {"best", "last"}, default "best"
        Whether the stage ends with the weights of its best validation, where there are validation samples, or with its
        last ones, in which case nothing is validated.
    n_targets : int, default 1
        The number of targets.
    per : {"sample", "token"}, default "sample"
        Whether targets belong to samples or to tokens.
    frozen : bool, default False
        Whether the encoder keeps its weights, and only the head is trained (linear probing).
    augment : Noise, optional
        Augmentation of values.
    likelihood : {"normal", "student", "mixture", "quantiles"} or a likelihood, optional
        The distribution that is learned of each target; None learns its mean alone, by a squared error.
    kind : "regress"
        The name of this stage in a configuration file.

    Raises
    ------
    ValueError
        If a setting has no such value.
    TypeError
        If a setting is of another type.

    See Also
    --------
    run_stages : trains through a list of stages.

    Examples
    --------
    >>> import romae
    >>> romae.Regress(n_targets=2, drop_tokens=0.5).kind
    'regress'
    """

    n_targets: int = 1
    per: Literal["sample", "token"] = "sample"
    frozen: bool = False
    augment: Noise | None = None
    likelihood: Likelihood | Name | None = None
    kind: Literal["regress"] = "regress"

    def task(self, encoder: Encoder) -> Task:
        """The task of this stage.

        Parameters
        ----------
        encoder : Encoder
            The encoder to train.

        Returns
        -------
        Regression
            Around this encoder.
        """
        encoder.requires_grad_(not self.frozen)
        return Regression(
            encoder,
            self.n_targets,
            per=self.per,
            drop_tokens=self.drop_tokens,
            augment=self.augment,
            likelihood=self.likelihood,
        )


Stage = Pretrain | Classify | ClassifyLabels | Regress

TITLES = {
    "pretrain": "pre-training",
    "classify": "classification",
    "multilabel": "multi-label classification",
    "regress": "regression",
}


class Outcome(NamedTuple):
    """The task of the last stage, what happened in each, and the seconds that this process spent in training."""

    task: Task
    histories: tuple[History, ...]
    seconds: float


@generators_as_before()
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
    """Train through several stages, such as pre-training and then classification, with one encoder.

    Parameters
    ----------
    model : ModelConfig or Encoder
        The architecture of a new encoder, or an encoder to start from, which is not changed.
    stages : sequence of Pretrain, Classify, ClassifyLabels or Regress
        What to train, in order.
    training : sequence of Sample
        The training samples, as they were read; they are scaled here.
    validation : sequence of Sample, optional
        Samples to validate every stage on that ends with its best weights.
    unlabelled : sequence of Sample, optional
        Samples to pre-train on instead of the training samples.
    scaling : Scaling, optional
        The normalisation; the task keeps it for its predictions.
    schema : Schema, optional
        The names of the data; the task keeps them. By default those of a `SampleSet`.
    seed : int, default 0
        Stands in for the seed of every stage, and decides the first weights.
    out : str or Path, optional
        A folder for the run; each stage has a folder of its own in it.
    resume : bool, default False
        Whether to go on where the run in `out` stopped.
    log : callable, optional
        `log(step, values)`, called at every report; values also hold the number of the stage.
    quiet : bool, default False
        Whether to show no progress.

    Returns
    -------
    Outcome
        A named tuple: the `task` of the last stage, the `histories` of all, and the `seconds` they took.

    Raises
    ------
    ValueError
        If there is no stage or sample, or a later stage could not be trained; found out before the first begins.
    TypeError
        If a stage is something else.

    Examples
    --------
    >>> import numpy as np
    >>> import romae
    >>> random = np.random.default_rng(0)
    >>> samples = romae.from_arrays(random.normal(size=(16, 8, 1)), y=[0, 1] * 8)
    >>> size = romae.Size(width=16, heads=2, depth=1)
    >>> model = romae.ModelConfig(channels=1, position_dims=1, encoder=size, decoder=size)
    >>> config = romae.TrainConfig(epochs=2, batch_size=8, device="cpu")
    >>> stages = [romae.Pretrain(train=config), romae.Classify(n_classes=2, train=config)]
    >>> outcome = romae.run_stages(model, stages, samples, scaling=romae.fit_scaling(samples), quiet=True)
    >>> type(outcome.task).__name__, len(outcome.histories)
    ('Classification', 2)
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
            raise TypeError(f"a stage is Pretrain, Classify, ClassifyLabels or Regress, not {stage!r}")
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
        require_scoring(task, stage.train.scoring)
        if stage.train.scoring is not None and (validation is None or stage.weights == "last"):
            raise ValueError(f"the stage {stage.kind!r} has scoring, which needs validation samples and weights='best'")
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
        if validation is not None:
            require_scorable(stage.train.scoring, as_source(validation))


def _require_targets(
    task: Task, stage: Classify | ClassifyLabels | Regress, source: Source, scaling: Scaling | None
) -> None:
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

"""What all estimators have in common: reading, splitting, training through the stages, saving and pickling."""

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Int64, Shaped
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted

from romae.checkpoints import native as checkpoint
from romae.config import from_dict, to_dict
from romae.data.fitting import READ_AT_ONCE, Center, Values
from romae.data.ladders import fit_ladders, with_given
from romae.data.periods import phased
from romae.data.phase import Phase
from romae.data.scaling import Origin, Scaling, fit_scaling, seen_also
from romae.data.schema import SampleSet, Schema, measured_values
from romae.data.skipping import OnError, Skipped, require_on_error, warn_of
from romae.data.sources import as_source, lengths_of, schema_of
from romae.data.static import n_measured
from romae.estimators import timing
from romae.estimators.folds import TableRows
from romae.estimators.inputs import Kept, Tokens, opened, read_input, read_kept
from romae.estimators.saved import (
    DESCRIPTION,
    DIGEST,
    MODEL,
    STACK,
    as_files,
    fitted_attributes,
    from_files,
    is_model,
    model_name,
    read_stack,
    stack_bytes,
    written,
)
from romae.estimators.stacking import LabelStacks, Stack
from romae.estimators.weights import ClassWeight, require_class_weight, sample_weights
from romae.files import write_whole_folder
from romae.inference.calibration import calibration_of, conformal_of, with_hidden
from romae.inference.outside import Outside
from romae.inference.predictions import Pooling, refused_by
from romae.inference.zero import ZERO, is_in_own_units, zero_model
from romae.model.autoencoder import Encoder
from romae.model.config import ModelConfig, Size
from romae.model.conformal import FEWEST
from romae.model.likelihoods import Likelihood, Name, as_likelihood
from romae.model.tasks import Classification, MaskedReconstruction, MultiLabel, Task
from romae.tokens.ladder import Ladder
from romae.tokens.masking import Masking, Strategy, UniformTokens
from romae.tokens.sample import Sample
from romae.training import rules
from romae.training.config import TrainConfig, chosen_device
from romae.training.scoring import require_defined, require_known
from romae.training.stages import Pretrain, Stage, run_stages
from romae.training.tables import load_model

E = TypeVar("E", bound="Estimator")
FORMAT = 1

Clock = Literal["sample", "shared"]
Start = Literal["best", "scratch", "zero", "auto"]
MASK_RATIO = 0.5
# Settings of training that estimators have themselves.
SAID_OTHERWISE = {"device": "device", "seed": "random_state", "scoring": "scoring"}


class Part(NamedTuple):
    """Which samples a model is trained on, and which are held out for its validation."""

    training: Int64[np.ndarray, "t"]
    held_out: Int64[np.ndarray, "v"]


@dataclass(frozen=True, kw_only=True)
class _SettingTypes:
    """What each setting may be; random_state is scikit-learn's, and `read_input` checks the others."""

    size: str | Size | None
    pretrain_epochs: int | None
    epochs: int | None
    batch_size: int | None
    lr: float | None
    mask_ratio: float
    model: ModelConfig | dict[str, Any] | None
    train: TrainConfig | dict[str, Any] | None
    scaling: Values
    center: Center
    clock: Clock
    learn_hidden: bool
    pooling: Pooling
    frozen: bool
    features: Literal["auto", "summary"] | None
    n_models: int | None
    time_limit: float | None
    early_stopping: bool
    validation_fraction: float | None
    class_weight: Literal["balanced"] | dict[Any, float] | None
    scoring: str | None
    device: str
    verbose: int | bool
    ladders: tuple[Ladder, ...] | None
    phase: bool | dict[str, Any] | None
    start: Start


class Estimator(BaseEstimator):
    """The settings and the one way of training that the estimators share. What is None follows from the data."""

    _saved: ClassVar[tuple[str, ...]] = ("n_features_in_", "histories_", "n_models_", "has_stack_")
    _scores: ClassVar[tuple[str, ...]] = ()  # that validation can be judged by

    # Settings: each estimator's own __init__ names those it has.
    size: str | Size | Mapping[str, int] | None
    pretrain_epochs: int | None
    batch_size: int | None
    lr: float | None
    mask_ratio: float
    model: ModelConfig | Mapping[str, Any] | None
    masking: Strategy | Masking | Mapping[str, Any] | None
    train: TrainConfig | Mapping[str, Any] | None
    time_limit: float | None
    scaling: Any
    center: Center
    clock: Clock
    tokens: Tokens | None
    columns: Mapping[str, Any] | None
    ladders: Sequence[Ladder] | None
    phase: bool | Mapping[str, Any] | None
    pretrained: str | Path | None
    early_stopping: bool
    validation_fraction: float | None
    device: Any
    random_state: Any
    verbose: int
    epochs: int | None = None  # these six belong to estimators that learn from labels
    frozen: bool = False
    features: Literal["auto", "summary"] | None = None
    n_models: int | None = 1
    class_weight: ClassWeight | None = None
    scoring: str | None = None
    learn_hidden: bool = False  # these two to those that learn without
    pooling: Pooling = "model"
    start: Start = "scratch"
    likelihood: Likelihood | Name | Mapping[str, Any] | None = None  # and this to those that answer with numbers

    # What fitting leaves. Several networks answer together; `task_` is the first of them.
    task_: Task
    tasks_: list[Task]
    n_models_: int = 1
    has_stack_: bool = False
    n_features_in_: int
    histories_: list[list[dict[str, Any]]]
    stack_: Stack | LabelStacks | None = None
    skipped_: list[Skipped]  # by the latest answers with on_error="skip"
    _rows_of_fit: TableRows | None = None  # not saved: splitting, fitting and scoring go on in one process

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = True
        return tags

    # Reading

    def _begin(self) -> Task | None:
        """Check the settings that nothing below checks, and load the model to start from, if there is one."""
        from_dict(_SettingTypes, {field.name: getattr(self, field.name) for field in fields(_SettingTypes)})
        chosen_device(self.device)  # refused before anything is read
        self._masking()
        self._likelihood()
        if self.time_limit is not None and not self.time_limit > 0:
            raise ValueError(f"time_limit is a number of seconds above 0, not {self.time_limit}")
        if self.n_models is not None and self.n_models < 1:
            raise ValueError(f"n_models must be at least 1, not {self.n_models}")
        self._require_said_once()
        require_class_weight(self.class_weight)
        require_known(self.scoring, self._scores)
        if self.scoring is not None and not self.early_stopping:
            raise ValueError(
                "scoring= says what early stopping looks at, and with early_stopping=False nothing does; leave one of "
                "them out"
            )
        if self.size is not None:
            _size_in_full(self.size)
        self._phase()
        if self.validation_fraction is not None and not 0 < self.validation_fraction < 1:
            raise ValueError(f"validation_fraction lies between 0 and 1, not at {self.validation_fraction}")
        if self.pretrain_epochs is not None and self.pretrain_epochs < 0:
            raise ValueError(f"pretrain_epochs must be at least 0, not {self.pretrain_epochs}")
        if self._start in ("zero", "auto") and self.pretrained not in (None, ZERO):
            raise ValueError(f"start={self.start!r} and pretrained= both say where to start; leave one of them out")
        if self.pretrained is None and self._start != "zero":
            return None
        if not isinstance(self.pretrained, str | os.PathLike | None):
            raise TypeError(
                "pretrained takes the folder of a saved estimator, a checkpoint or a name on the Hub, and it is of "
                f"type {type(self.pretrained).__name__}; save an estimator first: estimator.save(folder)"
            )
        if self.size is not None:
            raise ValueError("a pretrained model has its own size; leave size out")
        if self.ladders is not None:
            raise ValueError("a pretrained model has its own ladders; leave ladders out")
        if self.phase:
            raise ValueError("a pretrained model has its own rule for the phase of series; leave phase out")
        if self._start == "zero":
            before: Task = zero_model()
        else:
            assert self.pretrained is not None
            inner = Path(self.pretrained) / MODEL
            before = load_model(inner if inner.is_dir() else self.pretrained)
        if is_in_own_units(before):
            self._require_in_context()
        return before

    @property
    def _start(self) -> Start:
        """Where a fit starts: the name of the bundled model says it too."""
        if self.start in ("best", "scratch") and self.pretrained is not None:
            return "zero" if self.pretrained == ZERO else "scratch"
        return self.start

    def _require_in_context(self) -> None:
        """Refuse a model in units of its own, which knows neither a scaling nor labels; some estimators take it."""
        raise ValueError(
            f"a {type(self).__name__} cannot start from the model that needs no training; give its vectors to a "
            "classifier: romae.RoMAEEmbedder(pretrained='romae/zero')"
        )

    def _phase(self) -> Phase | None:
        """How the phase of series is found, where they get one."""
        if not self.phase:
            return None
        phase = from_dict(Phase, {} if self.phase is True else self.phase, where="phase")
        if phase.period == "given":
            raise ValueError(
                "periods that are known go to add_phase(samples, period=…), whose samples an estimator takes; leave "
                "phase= out"
            )
        return phase

    def _masking(self) -> Strategy | Masking:
        """What pre-training hides."""
        if self.masking is None:
            return UniformTokens(ratio=self.mask_ratio)
        if isinstance(self.masking, Mapping):
            return from_dict(Pretrain, {"masking": self.masking}).masking
        return Pretrain(masking=self.masking).masking

    def _likelihood(self) -> Likelihood | None:
        """The distribution that is learned, if there is one."""
        if isinstance(self.likelihood, Mapping):
            return as_likelihood(from_dict(Pretrain, {"likelihood": self.likelihood}).likelihood)
        return as_likelihood(self.likelihood)

    def _require_said_once(self) -> None:
        """Refuse a setting that is given twice, once by its own name and once within model= or train=."""
        if isinstance(self.model, ModelConfig) or "encoder" in (self.model or {}):
            _require_none(self, "model", ("size",))
        if self.model is not None and (self.pretrained is not None or self._start == "zero"):
            raise ValueError("a pretrained model has an architecture of its own; leave model out")
        if self.masking is not None and self.mask_ratio != MASK_RATIO:
            raise ValueError("mask_ratio= and masking= both say what is hidden; leave one of them out")
        if isinstance(self.train, TrainConfig):
            _require_none(self, "train", ("epochs", "pretrain_epochs", "batch_size", "lr"))
            if self.train.device not in ("auto", self.device):
                raise ValueError(
                    f"device= says {self.device!r} and train= {self.train.device!r}; leave one of them out"
                )
            if self.train.scoring is not None and self._scores:
                raise ValueError("scoring is no matter of train=: say scoring=")
        for name in self.train if isinstance(self.train, Mapping) else ():
            if name in SAID_OTHERWISE and (name != "scoring" or self._scores):
                raise ValueError(f"{name} is no matter of train=: say {SAID_OTHERWISE[name]}=")
            _require_none(self, "train", ("epochs", "pretrain_epochs") if name == "epochs" else (name,))

    def _read(self, X: Any, before: Task | None, *, with_labels: bool = False, static: Any = None) -> Sequence[Sample]:
        """The samples to learn from."""
        expected_schema = None if before is None else before.schema
        samples = read_input(
            X,
            columns=self.columns,
            tokens=self.tokens,
            expected_schema=expected_schema,
            with_labels=with_labels,
            static=static,
        )
        if before is None:
            _require_dimensions(samples, _dimensions(samples), "the other samples have")
        else:
            self._require_fitting(samples, before)
        samples = samples if self.learn_hidden else _visible(samples)
        phase = self._phase() if before is None else _phase_of(before.schema)
        return samples if phase is None else phased(samples, phase, quiet=self.verbose <= 0)

    def _require_fitting(self, samples: Sequence[Sample], task: Task) -> None:
        """Refuse samples of other dimensions than a model takes."""
        _require_dimensions_of_model(samples, task)

    def _read_unlabelled(self, unlabelled: Any, samples: Sequence[Sample], before: Task | None) -> Sequence[Sample]:
        """Further samples to pre-train on, read under the names of those that have labels."""
        if unlabelled is None:
            return ()
        expected_schema = None if before is None else before.schema
        expected_schema = schema_of(samples) or expected_schema
        try:
            more = read_input(
                unlabelled, columns=self.columns, tokens=self.tokens, expected_schema=expected_schema, with_labels=False
            )
            phase = _phase_of(schema_of(samples))
            more = _visible(more)
            more = more if phase is None else phased(more, phase, quiet=self.verbose <= 0)
            _require_dimensions(more, _dimensions(samples), "the labelled ones have")
        except (ValueError, TypeError) as error:
            raise ValueError(f"unlabelled: {error}") from None
        return more

    def _read_to_predict(
        self, X: Any, *, with_labels: bool = False, on_error: OnError = "raise", static: Any = None
    ) -> Sequence[Sample]:
        """The samples to predict for, read as those of the training were."""
        check_is_fitted(self, "task_")
        require_on_error(on_error)
        if on_error == "skip":
            return self._read_kept(X, static).samples
        samples = read_input(
            X,
            columns=self.columns,
            tokens=self.tokens,
            expected_schema=self.task_.schema,
            with_labels=with_labels,
            for_training=False,
            static=static,
        )
        self._require_fitting(samples, self.task_)
        phase = _phase_of(self.task_.schema)  # found once, for all networks
        return samples if phase is None else phased(samples, phase)

    def _read_kept(self, X: Any, static: Any = None) -> Kept:
        """The samples to predict for, without those that cannot be read or that the model refuses, which are told."""
        check_is_fitted(self, "task_")
        kept = read_kept(
            X,
            columns=self.columns,
            tokens=self.tokens,
            expected_schema=self.task_.schema,
            check=lambda samples: self._require_fitting(samples, self.task_),
            static=static,
        )
        refused = refused_by(self.task_, kept.samples)
        good = [i for i in range(len(kept.samples)) if i not in refused]
        places = None if kept.places is None else [kept.places[i] for i in good]
        skipped = [*kept.skipped]
        for i, reason in refused.items():
            skipped.append(Skipped(kept.samples[i].id if kept.places is None else kept.places[i], reason))
        warn_of(skipped, kept.n, stacklevel=4)
        self.skipped_ = skipped
        schema, samples = schema_of(kept.samples), [kept.samples[i] for i in good]
        left = samples if schema is None else SampleSet(samples, schema)
        phase = _phase_of(self.task_.schema)
        return Kept(left if phase is None else phased(left, phase), skipped, kept.n, places)

    def _read_to_judge(
        self, X: Any, *, with_labels: bool = False, on_error: OnError = "raise", static: Any = None
    ) -> Sequence[Sample]:
        """The same, for answers that are held against the truth: a table must not be a fold of that of the training."""
        X = opened(X, self.columns)
        samples = self._read_to_predict(X, with_labels=with_labels, on_error=on_error, static=static)
        if self._rows_of_fit is not None:
            self._rows_of_fit.require_no_fold(X, schema_of(samples))
        return samples

    # Training

    def _train(
        self,
        samples: Sequence[Sample],
        before: Task | None,
        *,
        unlabelled: Sequence[Sample] = (),
        groups: Shaped[np.ndarray, "b"] | None = None,
        last: Stage | None = None,
        seed: int | None = None,
    ) -> None:
        """Pre-train, then go through the last stage; without one, pre-training is validated on the held-out samples.

        Several models share their pre-training, and each holds out a part of its own in the last stage. Values are
        scaled by all samples, those held out too, so that none has a channel without a scale. What was fitted before
        stays until all is done.
        """
        schema = schema_of(samples)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1)) if seed is None else seed
        device = rules.CPU if chosen_device(self.device) == "cpu" else rules.GPU
        everything = _pooled([*samples, *unlabelled], schema)
        scaling = self._scaling(everything, before)
        model = self._model(everything, scaling, before)
        parts = self._parts(samples, groups, seed, model, device, is_by_hiding=last is None)
        pool = _pooled(_chosen(samples, parts[0].training), schema, weighted=True) if last is None else everything
        is_validated = all(len(part.held_out) > 0 for part in parts)
        self._require_scorable(samples, parts, is_validated)
        pretraining = self._pretraining(model, pool, device, last, is_validated, has_more=len(unlabelled) > 0)
        finetuning = None
        if last is not None:
            smallest = _chosen(samples, min((part.training for part in parts), key=len))
            finetuning = self._last(model, smallest, device, last, is_validated, len(parts), pretraining is not None)
        beside = 0.0 if last is None else self._stacking_seconds(samples, parts)
        works = [timing.Work(pretraining, pool)] if pretraining is not None else []
        works += [timing.Work(finetuning, samples, len(parts))] if finetuning is not None else []
        stages = self._in_time(works, model, scaling, device, beside, seed)
        pretraining = stages[0] if pretraining is not None else None  # type: ignore[assignment]
        finetuning = stages[-1] if finetuning is not None else None
        quiet, tasks, histories = self.verbose <= 0, [], []
        task, start = before, model
        if pretraining is not None:
            validation = _chosen(samples, parts[0].held_out) or None if last is None else None
            outcome = run_stages(
                model,
                [pretraining],
                pool,
                validation=validation,
                scaling=scaling,
                schema=schema,
                seed=seed,
                quiet=quiet,
            )
            task, start = outcome.task, outcome.task.encoder
            histories += [history.records for history in outcome.histories]
        for number, part in enumerate(parts if finetuning is not None else ()):
            assert finetuning is not None
            training, validation = _chosen(samples, part.training), _chosen(samples, part.held_out) or None
            outcome = run_stages(
                start,
                [finetuning],
                training,
                validation=validation,
                scaling=scaling.with_target(training) if finetuning.kind == "regress" else scaling,
                schema=schema,
                seed=seed + number,
                quiet=quiet,
            )
            tasks.append(outcome.task)
            histories += [history.records for history in outcome.histories]
        if not tasks:
            assert task is not None
            tasks = [task]
        tasks = [self._on_device(task) for task in tasks]
        if histories:  # what was trained before, and is not trained again, stays as it is
            self._calibrate(tasks, samples, parts)
        stack: Stack | LabelStacks | None = None
        if last is not None:
            classifiers = [task for task in tasks if isinstance(task, Classification | MultiLabel)]
            if classifiers:
                held_out = [_chosen(samples, part.held_out) for part in parts]
                calibration = calibration_of(list(zip(classifiers, held_out, strict=True)))
                for classifier in classifiers:
                    classifier.calibration = calibration
            stack = self._stack(tasks, samples, parts, seed)
            if not isinstance(stack, LabelStacks):  # of which none answers with numbers
                self._learn_errors(tasks, samples, parts, stack)
                stack = None if stack is None else replace(stack, held_out=None)
        self.tasks_, self.task_, self.n_models_ = tasks, tasks[0], len(tasks)
        self.histories_, self.n_features_in_ = histories, _n_channels(samples)
        self.stack_, self.has_stack_ = stack, stack is not None

    def _require_scorable(self, samples: Sequence[Sample], parts: Sequence["Part"], is_validated: bool) -> None:
        """Refuse held-out samples that the score says nothing of, and warn where there are none."""
        if self.scoring is None:
            return
        if not is_validated:
            warnings.warn(
                f"scoring={self.scoring!r} decides nothing: no series are held out, as of fewer than "
                f"{rules.SMALLEST_SPLIT} or of classes with a single one; validation_fraction= asks for a share",
                stacklevel=4,
            )
            return
        targets, weights = np.stack([np.asarray(sample.target) for sample in samples]), sample_weights(samples)
        for part in parts:
            require_defined(self.scoring, targets[part.held_out], None if weights is None else weights[part.held_out])

    def _stacking_seconds(self, samples: Sequence[Sample], parts: Sequence["Part"]) -> float:
        """About how long the models beside the network take, for estimators that have such."""
        return 0.0

    def _stack(
        self, tasks: Sequence[Task], samples: Sequence[Sample], parts: Sequence["Part"], seed: int
    ) -> Stack | LabelStacks | None:
        """Models that stand beside the network, for estimators that have such."""
        return None

    def _calibrate(self, tasks: Sequence[Task], samples: Sequence[Sample], parts: Sequence["Part"]) -> None:
        """Calibrate the distributions of numbers, if any are learned, on what was held out; of few series they stay."""
        held_out = [_chosen(samples, part.held_out) for part in parts]
        learned = [task for task in tasks if getattr(task, "likelihood", None) is not None]
        if not learned:
            return
        given = [
            # Of some nothing can be hidden.
            (task, with_hidden(task, some, seed=0) if isinstance(task, MaskedReconstruction) else some)
            for task, some in zip(learned, held_out, strict=True)
            if some
        ]
        if sum(len(some) for _, some in given) < FEWEST:
            return
        calibration = conformal_of([(task, some) for task, some in given if some])
        for task in learned:
            task.calibration = calibration

    def _learn_errors(
        self, tasks: Sequence[Task], samples: Sequence[Sample], parts: Sequence["Part"], stack: Stack | None
    ) -> None:
        """What errors are like for samples that were not trained on, for estimators that answer with numbers."""

    def _parts(
        self,
        samples: Sequence[Sample],
        groups: Shaped[np.ndarray, "b"] | None,
        seed: int,
        model: ModelConfig | Encoder,
        device: rules.Device,
        *,
        is_by_hiding: bool,
    ) -> list["Part"]:
        """For each model the samples to train on and to validate on, of which there are none without early stopping.

        Where validation hides tokens, samples of a single one are all for training.
        """
        lengths = lengths_of(samples)
        groups = np.zeros(len(samples)) if groups is None else groups
        n_models = self.n_models
        can_fold = self.early_stopping and self.validation_fraction is None and len(samples) >= rules.SMALLEST_SPLIT
        if n_models is None:
            n_models = rules.fitting_models(lengths, _size_of(model), device) if can_fold else 1
        if can_fold and n_models > 1:
            fold_of = rules.folds(groups, n_models, np.random.default_rng(seed))
            return [Part(np.flatnonzero(fold_of != k), np.flatnonzero(fold_of == k)) for k in range(n_models)]
        share = rules.fitting_share(len(samples)) if self.validation_fraction is None else self.validation_fraction
        if (schema := schema_of(samples)) is not None and schema.static:
            lengths = np.array([n_measured(sample) for sample in samples])
        can_validate = lengths > (1 if is_by_hiding else 0)
        parts = []
        for number in range(n_models):
            chosen = np.zeros(len(samples), dtype=bool)
            random = np.random.default_rng(seed + number)
            if self.early_stopping:
                chosen[can_validate] = rules.held_out(groups[can_validate], share, random)
            parts.append(Part(np.flatnonzero(~chosen), np.flatnonzero(chosen)))
        return parts

    def _scaling(self, samples: Sequence[Sample], before: Task | None) -> Scaling:
        """That of the model to start from, or one fitted to the data."""
        if before is None:
            origin: Origin = "min" if self.clock == "sample" else rules.first_time(samples)
            return fit_scaling(samples, values=self.scaling, origin=origin, center=self.center)
        scaling = (before.scaling or Scaling()).without_target()
        outside, source = Outside(scaling, before.schema), as_source(samples)
        for start in range(0, len(source), READ_AT_ONCE):
            outside.add(source.packed(np.arange(start, min(start + READ_AT_ONCE, len(source)))))
        outside.warn(stacklevel=4)
        return seen_also(scaling, samples)

    def _model(self, pool: Sequence[Sample], scaling: Scaling, before: Task | None) -> ModelConfig | Encoder:
        if before is not None:
            return before.encoder
        if isinstance(self.model, ModelConfig):
            _require_dimensions(pool, (self.model.channels, self.model.position_dims), "the model takes")
            return self.model
        settings = dict(self.model or {})
        if self.size is not None:
            settings["encoder"] = _size_in_full(self.size)
        if self.ladders is not None:
            n_dims = pool[0].positions.shape[1]
            fitted = fit_ladders(pool, scaling)
            settings["ladders"] = with_given(self.ladders, n_dims, fitted, _phase_of(schema_of(pool)))
        return ModelConfig.for_samples(pool, scaling=scaling, device=self.device, **settings)

    def _pretraining(
        self,
        model: ModelConfig | Encoder,
        pool: Sequence[Sample],
        device: rules.Device,
        last: Stage | None,
        is_validated: bool,
        *,
        has_more: bool,
    ) -> Pretrain | None:
        """Pre-training, unless there is nothing to gain from it."""
        lengths, size, is_new = lengths_of(pool), _size_of(model), not isinstance(model, Encoder)
        batch_size = self._batch_size(lengths)
        can_hide = any(n_measured(sample) > 1 for sample in pool)
        epochs = self.pretrain_epochs
        if epochs is None and is_new and can_hide:
            share = 1.0 if last is None else rules.UNLABELLED_SHARE if has_more else rules.PRETRAINING_SHARE
            epochs = rules.fitting_epochs(lengths, batch_size, size, rules.PRETRAINING, device, share)
            if last is not None:
                epochs = min(epochs, rules.MOST_PASSES)
                epochs = epochs if has_more or epochs >= rules.FEWEST_PASSES else 0
        epochs = epochs or 0
        if epochs > 0 and not can_hide:
            raise ValueError(
                "pre-training hides a part of each series, and every one has a single token, as of an array with "
                "1 feature(s); give longer series or, where there are labels, set pretrain_epochs=0"
            )
        if epochs == 0:
            if last is None and is_new:
                raise ValueError(
                    "nothing can be learned: pretrain_epochs is 0 without a pretrained model, or no series has two "
                    "tokens"
                )
            return None
        train = self._settings(size, batch_size, epochs, rules.PRETRAINING, is_validated and last is None)
        return Pretrain(
            train=train,
            masking=self._masking(),
            likelihood=self._likelihood() if last is None else None,
            weights="best" if last is None else "last",
        )

    def _last(
        self,
        model: ModelConfig | Encoder,
        training: Sequence[Sample],
        device: rules.Device,
        last: Stage,
        is_validated: bool,
        n_models: int,
        is_pretrained: bool,
    ) -> Stage:
        """The last stage with all that was left open."""
        lengths, size = lengths_of(training), _size_of(model)
        batch_size = self._batch_size(lengths)
        course = rules.PROBING if self.frozen else rules.FINE_TUNING
        epochs = self.epochs
        if epochs is None:
            share = (1 - rules.PRETRAINING_SHARE if is_pretrained else 1.0) / n_models
            epochs = rules.fitting_epochs(lengths, batch_size, size, course, device, share)
            epochs = epochs if n_models == 1 else min(epochs, rules.PASSES_OF_EACH)
        train = self._settings(size, batch_size, epochs, course, is_validated)
        return replace(last, train=replace(train, scoring=self.scoring if is_validated else None))

    def _batch_size(self, lengths: Int64[np.ndarray, "b"]) -> int:
        return rules.fitting_batch(lengths) if self.batch_size is None else self.batch_size

    def _settings(
        self, size: Size, batch_size: int, epochs: int, course: rules.Course, is_validated: bool
    ) -> TrainConfig:
        """How to train a stage: by the rules, then what `train` says; patience is for stages that are validated."""
        if isinstance(self.train, TrainConfig):
            return replace(self.train, device=self.device, patience=self.train.patience if is_validated else None)
        chosen = {
            "epochs": epochs,
            "batch_size": batch_size,
            "lr": rules.fitting_rate(size, course) if self.lr is None else self.lr,
            "precision": rules.fitting_precision(chosen_device(self.device)),
            "device": self.device,
            "patience": rules.fitting_patience(epochs) if is_validated else None,
        }
        config = from_dict(TrainConfig, chosen | dict(self.train or {}), where="train")
        return config if is_validated else replace(config, patience=None)

    def _in_time(
        self,
        works: Sequence[timing.Work],
        model: ModelConfig | Encoder,
        scaling: Scaling,
        device: rules.Device,
        beside: float,
        seed: int,
    ) -> list[Stage]:
        """The stages, shortened to the time limit if there is one; a fit that takes long is announced.

        `beside` are seconds that the models beside the network take.
        """
        size = _size_of(model)
        seconds = sum(work.seconds(size, device) for work in works)
        if not works or (self.time_limit is None and seconds + beside < timing.WORTH_SAYING):
            return [work.stage for work in works]
        if len(works[0].samples) > 1:
            seconds *= timing.slowness(works[0], model, size, scaling, device, seed)
        stages = [work.stage for work in works]
        if self.time_limit is not None:
            left = max(self.time_limit - beside, 0.1 * self.time_limit)
            stages = timing.shortened(works, seconds, left)
            seconds = min(seconds, left)
        if seconds + beside >= timing.WORTH_SAYING and self.verbose >= 0:
            lengths = lengths_of(works[-1].samples)
            timing.announce(type(self).__name__, seconds + beside, lengths, is_on_gpu=device is rules.GPU)
        return stages

    def _on_device(self, task: Task) -> Task:
        """The task on the device of its predictions; on a CPU where it was fitted on a GPU that is not here."""
        try:
            return task.to(chosen_device(self.device))
        except ValueError as error:
            warnings.warn(f"the estimator answers on the CPU: {error}", stacklevel=3)
            return task

    # Saving

    def save(self, path: str | Path) -> None:
        """Write the estimator to a folder, whole or not at all.

        Its part `model` is a checkpoint like any other, for `romae.load`, the command line and `pretrained=`.

        Parameters
        ----------
        path : str or Path
            A new or empty folder, or that of an estimator, which is replaced.

        Raises
        ------
        ValueError
            If the folder holds something else.
        NotFittedError
            If the estimator has not been fitted.
        """
        check_is_fitted(self, "task_")
        path = Path(path).resolve()
        if path.exists() and not (path / DESCRIPTION).is_file() and (path.is_file() or any(path.iterdir())):
            raise ValueError(f"{path} is there already and no estimator; choose an empty or a new folder")
        own = {DESCRIPTION, STACK}
        if path.is_dir() and (
            others := sorted(name for name in os.listdir(path) if not is_model(name) and name not in own)
        ):
            raise ValueError(f"{path} holds {others[0]!r} beside an estimator; choose an empty or a new folder")

        def write(to: Path) -> None:
            for number, task in enumerate(self.tasks_):
                task.save(to / model_name(number))
            if self.stack_ is not None:
                (to / STACK).write_bytes(stack_bytes(self.stack_))
            (to / DESCRIPTION).write_text(self._described() + "\n")

        write_whole_folder(path, write)

    @classmethod
    def load(cls: type[E], path: str | Path) -> E:
        """Read an estimator from the folder that `save` wrote.

        Parameters
        ----------
        path : str or Path
            The folder.

        Returns
        -------
        Estimator
            Fitted. One that was fitted on a GPU answers on the CPU where there is none, with a warning.

        Raises
        ------
        ValueError
            If the folder holds no estimator of this class, is damaged, or was written by a newer version.
        """
        path = Path(path)
        description = checkpoint.read_json(path / DESCRIPTION)
        parts = {"format", "estimator", "settings", "fitted"}
        if not isinstance(description, dict) or not parts <= set(description) <= parts | {DIGEST}:
            raise ValueError(f"{path / DESCRIPTION} is no description of an estimator: it must hold {sorted(parts)}")
        if description["format"] != FORMAT:
            raise ValueError(f"{path} has format {description['format']}; this version reads {FORMAT}: update romae")
        if description["estimator"] != cls.__name__:
            raise ValueError(f"{path} holds a {description['estimator']}; load it with {description['estimator']}.load")
        digest = description.pop(DIGEST, None)  # older versions wrote none
        if digest is not None and digest != checkpoint.json_digest(description):
            raise ValueError(
                f"{path / DESCRIPTION} is damaged or was changed since it was saved: its digest is another; take a "
                "copy that is whole or, if you changed it yourself, take the digest out of it"
            )
        try:
            estimator = cls._with_settings(description["settings"])
            for name, value in fitted_attributes(cls, cls._saved, description["fitted"]).items():
                setattr(estimator, name, value)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"{path / DESCRIPTION} is damaged: {error}") from None
        if estimator.n_models_ < 1:
            raise ValueError(
                f"{path / DESCRIPTION} is damaged: an estimator has a network, and this has {estimator.n_models_}"
            )
        n_classes = len(getattr(estimator, "classes_", ()))
        estimator.tasks_ = []
        for number in range(estimator.n_models_):
            task = checkpoint.load(path / model_name(number))
            expected = "n_labels" if getattr(estimator, "is_multilabel_", False) else "n_classes"
            if n_classes and getattr(task, expected, None) != n_classes:
                raise ValueError(
                    f"{path} names {n_classes} classes, and its model was not made for them; it is damaged"
                )
            estimator.tasks_.append(estimator._on_device(task))
        estimator.task_ = estimator.tasks_[0]
        # Before it was written down whether there are such models, a setting said so.
        is_old = "has_stack_" not in description["fitted"]
        if estimator.has_stack_ or (is_old and description["settings"].get("features") == "summary"):
            estimator.has_stack_ = True
            estimator.stack_ = read_stack(path / STACK)
        return estimator

    @classmethod
    def _with_settings(cls: type[E], settings: Any) -> E:
        """An estimator with settings from a file; one that it does not have, or of another type, is refused."""
        if not isinstance(settings, dict) or not set(settings) <= (names := set(cls._get_param_names())):
            unknown = sorted(set(settings) - names) if isinstance(settings, dict) else settings
            raise ValueError(f"its settings {unknown} are none of {cls.__name__}")
        if isinstance(settings.get("size"), Mapping):
            settings = settings | {"size": from_dict(Size, settings["size"], where="size")}
        if isinstance(settings.get("ladders"), list):
            ladders = [from_dict(Ladder, ladder, where="ladders") for ladder in settings["ladders"]]
            settings = settings | {"ladders": tuple(ladders)}
        if isinstance(settings.get("likelihood"), Mapping):
            settings = settings | {"likelihood": from_dict(Pretrain, {"likelihood": settings["likelihood"]}).likelihood}
        if isinstance(settings.get("class_weight"), list):
            settings = settings | {"class_weight": dict(settings["class_weight"])}
        estimator = cls(**settings)
        from_dict(_SettingTypes, {field.name: getattr(estimator, field.name) for field in fields(_SettingTypes)})
        return estimator

    def _described(self) -> str:
        try:
            description = json.loads(json.dumps(self._description()))
            return json.dumps({**description, DIGEST: checkpoint.json_digest(description)}, indent=2)
        except TypeError as error:
            raise ValueError(f"this estimator cannot be saved: {error}; labels are text, numbers or booleans") from None

    def _description(self) -> dict[str, Any]:
        settings = {
            name: str(value) if isinstance(value, Path) else value
            for name, value in self.get_params(deep=False).items()
        }
        if isinstance(settings["random_state"], np.random.RandomState):
            settings["random_state"] = None  # its stream has gone on since
        if isinstance(self.class_weight, Mapping):  # as pairs: the keys of an object in JSON would all be text
            settings["class_weight"] = list(self.class_weight.items())
        return {
            "format": FORMAT,
            "estimator": type(self).__name__,
            "settings": to_dict(settings),
            "fitted": {name: written(getattr(self, name)) for name in self._saved},
        }

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and its relatives: the model travels as the files of its checkpoint."""
        state = dict(super().__getstate__())
        state.pop("_rows_of_fit", None)
        if "task_" in state:
            state.pop("tasks_")
            state["task_"] = [as_files(task) for task in self.tasks_]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        models = state.pop("task_", None)
        super().__setstate__(state)
        if models is not None:
            models = [models] if isinstance(models, dict) else models  # older versions had one
            self.tasks_ = [self._on_device(from_files(files)) for files in models]
            self.task_ = self.tasks_[0]


def _size_of(model: ModelConfig | Encoder) -> Size:
    return model.encoder if isinstance(model, ModelConfig) else model.config.encoder


def _chosen(samples: Sequence[Sample], indices: Int64[np.ndarray, "i"]) -> list[Sample]:
    return [samples[i] for i in indices.tolist()]


def _require_none(estimator: Estimator, within: str, names: Sequence[str]) -> None:
    """Refuse plain settings that another one says as well; no pre-training at all goes with everything."""
    for name in names:
        if getattr(estimator, name, None) not in (None, 0):
            raise ValueError(f"{name}= and {within}= both say how; leave one of them out")


def _size_in_full(size: str | Size | Mapping[str, int]) -> Size:
    if isinstance(size, str):
        return Size.named(size)
    return from_dict(Size, size, where="size") if isinstance(size, Mapping) else size


def _n_channels(samples: Sequence[Sample]) -> int:
    """The number of channels, whether they share a token or each has its own."""
    schema = schema_of(samples)
    return len(schema.channels) if schema is not None and schema.channels else measured_values(samples[0]).shape[1]


def _visible(samples: Sequence[Sample]) -> Sequence[Sample]:
    """The samples without the tokens that they hide, which are to be predicted and not to be learned."""
    schema = schema_of(samples)
    if all(sample.hidden is None for sample in samples):
        return samples
    shown = [
        sample
        if sample.hidden is None
        else replace(
            sample, values=sample.values[~sample.hidden], positions=sample.positions[~sample.hidden], hidden=None
        )
        for sample in samples
    ]
    return shown if schema is None else SampleSet(shown, schema)


def _pooled(samples: Sequence[Sample], schema: Schema | None, *, weighted: bool = False) -> Sequence[Sample]:
    """Samples without their targets and, unless they are to be `weighted`, weights, under the names of the data."""
    pool = [replace(sample, target=None, weight=sample.weight if weighted else None) for sample in samples]
    return pool if schema is None else SampleSet(pool, schema)


def _dimensions(samples: Sequence[Sample]) -> tuple[int, int]:
    """The numbers of columns of values and of position axes."""
    return samples[0].values.shape[1], samples[0].positions.shape[1]


def _require_dimensions_of_model(samples: Sequence[Sample], task: Task) -> None:
    """Refuse samples of other dimensions than a model takes; a phase that they lack is added later."""
    schema, n_axes = schema_of(samples), task.config.position_dims
    if _phase_of(task.schema) is not None:
        is_lacking = len(samples) and samples[0].positions.shape[1] == n_axes - 1
        n_axes -= is_lacking if schema is None else schema.phase is None
    _require_dimensions(samples, (task.config.channels, n_axes), "the model takes")


def _phase_of(schema: Schema | None) -> Phase | None:
    """How the phase of these samples is found, if they have one."""
    return None if schema is None else schema.phase


def _require_dimensions(samples: Sequence[Sample], expected: tuple[int, int], expected_by: str) -> None:
    for i, sample in enumerate(samples):
        dimensions = _dimensions([sample])
        if dimensions != expected:
            raise ValueError(
                f"sample {i} has {dimensions[0]} channels at {dimensions[1]} position axes, but {expected_by} "
                f"{expected[0]} at {expected[1]}"
            )

"""Where a fit starts: from new weights, or from the model that needs no training, which is fine-tuned or kept as it is.

What did best on hidden values of held-out series is kept, and one line says what that was.

Shapes: t hidden tokens, c columns of values.
"""

import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any, ClassVar, TypeVar

import numpy as np
from jaxtyping import Float64, Int64
from sklearn.base import clone
from sklearn.utils import check_random_state

from romae.data.queries import channel_numbers
from romae.data.scalars import Scalars
from romae.data.schema import SampleSet, Schema, measured_values
from romae.data.sources import as_source, lengths_of, schema_of
from romae.estimators import timing
from romae.estimators.base import Estimator, _chosen, _dimensions, _n_channels, _require_dimensions
from romae.inference import predictions
from romae.inference.baselines import channels_of, filled_along_time, mean
from romae.inference.calibration import conformal_of
from romae.inference.interpolation import interpolate
from romae.inference.zero import is_in_own_units, zero_model
from romae.model.conformal import FEWEST
from romae.model.tasks import MaskedReconstruction, Task
from romae.tokens.masking import Masking, Strategy, UniformTokens, hide
from romae.tokens.sample import Sample
from romae.training import rules
from romae.training.config import TrainConfig, chosen_device
from romae.training.hidden_copies import HiddenCopies
from romae.training.in_context import finetune_in_context, n_judged, with_masking

S = TypeVar("S", bound="StartingFromZero")

ZERO_SHOT, FINE_TUNED, FROM_SCRATCH = "zero-shot", "fine-tuned", "from scratch"
FEWEST_JUDGED = 60  # series; of fewer, several parts are hidden one after the other
SECONDS_WORTH_COMPARING = 60.0
# Whoever says one of these wants a network that is new.
OF_NEW_WEIGHTS = (
    "size",
    "model",
    "ladders",
    "phase",
    "likelihood",
    "scaling",
    "center",
    "clock",
    "masking",
    "mask_ratio",
    "pretrain_epochs",
    "batch_size",
    "lr",
    "train",
    "early_stopping",
)


class StartingFromZero(Estimator):
    """What estimators do that can start from the model that needs no training."""

    _saved: ClassVar[tuple[str, ...]] = (*Estimator._saved, "start_", "starts_")

    start_: str | None = None  # "zero-shot", "fine-tuned" or "from scratch"
    starts_: dict[str, float] | None = None  # the error of each on held-out series, where several were compared

    def _learn(self, samples: Sequence[Sample], before: Task | None) -> None:
        """Fit from the start that is asked for, or from the one that does best on held-out series."""
        start = self._start
        if start in ("best", "scratch") and not is_in_own_units(before):
            seed = int(check_random_state(self.random_state).randint(2**31 - 1))
            self._train(samples, before, seed=seed)
            self.start_, self.starts_ = FROM_SCRATCH, None
            if start == "best" and self._is_left_open() and _obstacle(samples) is None:
                self._compare_as_it_is(samples, seed)
            return
        obstacle = _obstacle(samples)
        if obstacle is not None and start != "auto":
            raise ValueError(f"{obstacle}; leave start= and pretrained= out, for a model from new weights")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        if obstacle is not None:
            self._train(samples, None, seed=seed)
            self.start_, self.starts_ = FROM_SCRATCH, None
            self._say(f"{FROM_SCRATCH}, since {obstacle}")
            return
        given = zero_model() if before is None else before
        assert isinstance(given, MaskedReconstruction)
        self._train_in_context(samples, given, seed)

    def _train_in_context(self, samples: Sequence[Sample], given: MaskedReconstruction, seed: int) -> None:
        """Fine-tune a model in units of its own, train another from new weights if asked to, and keep the best."""
        device = rules.CPU if chosen_device(self.device) == "cpu" else rules.GPU
        (part,) = self._parts(samples, None, seed, given.encoder, device, is_by_hiding=True)[:1]
        training, held_out = _chosen(samples, part.training), _chosen(samples, part.held_out)
        judge = Judge.of(held_out, samples, self._masking(), seed) if held_out else None
        as_given = with_masking(given, self._masking())
        as_given.schema = schema_of(samples)
        candidates: dict[str, tuple[Task, list[list[dict[str, Any]]]]] = {ZERO_SHOT: (as_given, [])}
        if self._is_tuned(judge):
            tuned = with_masking(as_given, self._masking())
            tuned.calibration = None
            config = self._in_context_settings(tuned, training, len(held_out), seed)
            history = finetune_in_context(tuned, training, config, validation=held_out or None, quiet=self.verbose <= 0)
            self._calibrate_in_context(tuned, held_out, seed)
            candidates[FINE_TUNED] = (tuned, [history.records])
        if self._start == "auto" and judge is not None and self.pretrain_epochs != 0:
            scratch = self._from_scratch(samples, seed)
            candidates[FROM_SCRATCH] = (scratch.task_, scratch.histories_)
        candidates = {name: (self._on_device(task), records) for name, (task, records) in candidates.items()}
        scores = None
        if judge is not None and len(candidates) > 1:
            scores = {name: judge.error(task) for name, (task, _) in candidates.items()}
            kept = min(scores, key=scores.__getitem__)
        else:
            kept = FINE_TUNED if FINE_TUNED in candidates else ZERO_SHOT
        task, self.histories_ = candidates[kept]
        self.tasks_, self.task_, self.n_models_ = [task], task, 1
        self.n_features_in_, self.stack_, self.has_stack_ = _n_channels(samples), None, False
        self.start_, self.starts_ = kept, scores
        self._say(self._sentence(kept, scores, len(held_out)))

    def _is_left_open(self) -> bool:
        """Whether nothing is said of the network and of its training, so that it need not be a new one.

        A comparison takes some seconds, which a short time limit has not.
        """
        defaults = {name: parameter.default for name, parameter in signature(type(self).__init__).parameters.items()}
        is_long = self.time_limit is None or self.time_limit >= SECONDS_WORTH_COMPARING
        given = [(getattr(self, name), defaults[name]) for name in OF_NEW_WEIGHTS if name in defaults]
        return is_long and all(value is usual or (type(value), value) == (type(usual), usual) for value, usual in given)

    def _compare_as_it_is(self, samples: Sequence[Sample], seed: int) -> None:
        """Keep the model that needs no training where it does better on what new weights were validated on."""
        device = rules.CPU if chosen_device(self.device) == "cpu" else rules.GPU
        (part,) = self._parts(samples, None, seed, self.task_.encoder, device, is_by_hiding=True)
        held_out = _chosen(samples, part.held_out[:FEWEST_JUDGED])
        judge = Judge.of(held_out, samples, self._masking(), seed) if held_out else None
        if judge is None:
            return
        untrained = with_masking(zero_model(), self._masking())
        untrained.schema = schema_of(samples)
        as_it_is = self._on_device(untrained)
        if np.isnan(_answers_in_context(as_it_is, judge.samples)).any():
            self._say(
                f"{FROM_SCRATCH}, since the model that needs no training says nothing of a channel that is not seen"
            )
            return
        scores = {ZERO_SHOT: judge.error(as_it_is), FROM_SCRATCH: judge.error(self.task_)}
        if scores[ZERO_SHOT] < scores[FROM_SCRATCH]:
            self.tasks_, self.task_, self.histories_, self.start_ = [as_it_is], as_it_is, [], ZERO_SHOT
        self.starts_ = scores
        assert self.start_ is not None
        self._say(self._sentence(self.start_, scores, len(held_out)))

    def _is_tuned(self, judge: "Judge | None") -> bool:
        """Whether there is fine-tuning: where nobody says so, it needs series that are held out to judge it."""
        if self.pretrain_epochs is not None:
            return self.pretrain_epochs > 0
        is_asked = self._start != "scratch"  # of other pretrained models, none unless epochs are given
        return is_asked and (judge is not None or self.train is not None or not self.early_stopping)

    def _in_context_settings(
        self, task: MaskedReconstruction, training: Sequence[Sample], n_held_out: int, seed: int
    ) -> TrainConfig:
        """How fine-tuning goes: by the rules and what is said, within the time limit."""
        lengths, size = lengths_of(training), task.config.encoder
        is_on_gpu = chosen_device(self.device) != "cpu"
        device = rules.GPU if is_on_gpu else rules.CPU
        batch_size, limit = self._batch_size(lengths), self.time_limit
        epochs = self.pretrain_epochs or rules.fitting_epochs(lengths, batch_size, size, rules.IN_CONTEXT, device)
        config = replace(self._settings(size, batch_size, epochs, rules.IN_CONTEXT, n_held_out > 0), seed=seed)
        n_steps = -(-len(training) // config.batch_size)
        seconds = config.epochs * n_steps * rules.step_seconds(lengths, n_steps, size, device)
        if limit is None and seconds < timing.WORTH_SAYING:
            return config
        per_pass = n_steps * _seconds_of_step(task, training, config)
        # A step goes forward and back, a validation forward alone: a third of the time for each sample.
        per_pass *= 1 + n_judged(n_held_out) * n_held_out / (3 * len(training))
        seconds = config.epochs * per_pass
        if limit is not None:
            limit = limit / 2 if self._start == "auto" else limit  # the other half is for new weights
            epochs = max(1, int(config.epochs * min(1.0, limit / max(seconds, 1e-9))))
            patience = None if config.patience is None else rules.fitting_patience(epochs)
            config, seconds = replace(config, epochs=epochs, patience=patience), min(seconds, limit)
        if seconds >= timing.WORTH_SAYING and self.verbose >= 0:
            timing.announce(type(self).__name__, seconds, lengths, is_on_gpu=is_on_gpu)
        return config

    def _calibrate_in_context(self, task: MaskedReconstruction, held_out: Sequence[Sample], seed: int) -> None:
        """Calibrate a fine-tuned model on what it was validated on; of few series it stays as it is."""
        if len(held_out) < FEWEST or task.likelihood is None:
            return
        copies = HiddenCopies(
            _with_schema(held_out), task.masking, n_copies=1, seed=seed, with_errors=bool(task.config.errors)
        )
        if len(copies) < FEWEST:
            return
        hiding = copies.hiding(np.arange(len(copies)))
        asked = [hiding.sample(i).with_schema(copies.names) for i in range(len(hiding))]
        task.calibration = conformal_of([(task, asked)], by="global")

    def _from_scratch(self: S, samples: Sequence[Sample], seed: int) -> S:
        """The same estimator fitted from new weights, which holds out the same series."""
        scratch = clone(self).set_params(start="scratch")
        scratch.time_limit = None if self.time_limit is None else self.time_limit / 2
        if hasattr(self, "_length"):
            scratch._length = self._length
        scratch._begin()
        scratch._train(samples, None, seed=seed)
        return scratch

    def _sentence(self, kept: str, scores: dict[str, float] | None, n_held_out: int) -> str:
        if scores is not None:
            told = ", ".join(f"{name} {score:.3f}" for name, score in scores.items())
            return (
                f"{kept} did best on hidden values of {n_held_out} held-out series: mean absolute errors in deviations "
                f"of their channel are {told}"
            )
        if kept == FINE_TUNED:
            return f"{kept} from a model that needs no training; no series were held out to compare it with that model"
        why = (
            "pretrain_epochs=0" if self.pretrain_epochs == 0 else "too few series to hold some out, or no epochs given"
        )
        return f"{kept}: nothing was trained ({why})"

    def _say(self, sentence: str) -> None:
        if self.verbose >= 0:
            print(f"{type(self).__name__}: {sentence}", file=sys.stderr, flush=True)

    def _require_in_context(self) -> None:
        if self.likelihood is not None:
            raise ValueError("the model that needs no training keeps its own likelihood; leave likelihood out")

    def _require_fitting(self, samples: Sequence[Sample], task: Task) -> None:
        if is_in_own_units(task):
            _require_dimensions(samples, _dimensions(samples), "the other samples have")
        else:
            super()._require_fitting(samples, task)


@dataclass(frozen=True, eq=False)
class Judge:
    """Held-out series that hide values, and by how much the values of each channel and column vary.

    Parameters
    ----------
    samples : list of Sample
        What is asked.
    spread : Float64 array [m, c]
        The mean deviation of the values of each channel from their median, over all series: an error of 1 is that of
        saying the median everywhere.
    """

    samples: list[Sample]
    spread: Float64[np.ndarray, "m c"]

    @classmethod
    def of(
        cls, held_out: Sequence[Sample], samples: Sequence[Sample], masking: Strategy | Masking, seed: int
    ) -> "Judge | None":
        """Hide values of held-out series as training does; None where nothing can be hidden."""
        schema = schema_of(samples) or Schema()
        hiding = masking if isinstance(masking, Strategy) else UniformTokens(ratio=0.5)
        own = [sample for sample in held_out if sample.hidden is not None]
        if not own:
            n_times = max(1, -(-FEWEST_JUDGED // len(held_out)))
            own = [sample for number in range(n_times) for sample in hide(list(held_out), hiding, seed + number)]
        if not own:
            return None
        values = np.concatenate([measured_values(sample).double().numpy() for sample in samples])
        channel = np.concatenate([channels_of(sample, schema) for sample in samples]).astype(np.int64)
        spread = np.ones((int(channel.max()) + 1, values.shape[1]))
        for number in np.unique(channel):
            here = values[channel == number]
            deviation = np.abs(here - np.median(here, axis=0)).mean(0)
            spread[number] = np.where(deviation > 0, deviation, 1.0)
        return cls([sample.with_schema(schema) for sample in own], spread)

    def error(self, task: Task) -> float:
        """The mean absolute error of a task in these units."""
        assert isinstance(task, MaskedReconstruction)
        schema = schema_of(self.samples) or Schema()
        truth = np.concatenate([_hidden_values(sample) for sample in self.samples])
        channel = _hidden_channels(self.samples, schema)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            told = hidden_predictions(task, self.samples)
        return float(np.mean(np.abs(told - truth) / self.spread[channel]))


def hidden_predictions(task: Task, samples: Sequence[Sample]) -> Float64[np.ndarray, "t c"]:
    """What a task says of the values that samples hide, end to end.

    A model in units of its own knows nothing of a channel of which a series shows nothing: there it is the mean of what
    the others show.
    """
    if not is_in_own_units(task):
        return np.concatenate(predictions.predict(task, samples))
    schema, told = schema_of(samples) or Schema(), _answers_in_context(task, samples)
    if np.isnan(told).any():
        means = filled_along_time(mean, SampleSet([sample.with_schema(schema) for sample in samples], schema))
        told = np.where(np.isnan(told), means, told)
    return told


def _answers_in_context(task: Task, samples: Sequence[Sample]) -> Float64[np.ndarray, "t c"]:
    """What a model in units of its own says of them: NaN of a channel of which a series shows nothing."""
    n_axes = 1 + ((schema_of(samples) or Schema()).channel is not None)
    places = [sample.positions[sample.hidden][:, [*range(-n_axes, 0)]].double().numpy() for sample in samples]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of channels of which nothing is visible
        return np.concatenate(interpolate(task, _with_schema(samples), places))


def asked_channels(task: Task, samples: Sequence[Sample], channels: Any, known: Sequence[int]) -> list[int]:
    """The numbers of the channels to forecast by a model in units of its own: all but those that are known ahead."""
    names = predictions.source_for(task, samples).schema.channels  # type: ignore[union-attr]
    if channels is not None:
        return channel_numbers(channels, names)
    return [number for number in range(len(names)) if number not in known]


def _hidden_values(sample: Sample) -> Float64[np.ndarray, "t c"]:
    return measured_values(sample)[sample.hidden].double().numpy()


def _hidden_channels(samples: Sequence[Sample], schema: Schema) -> Int64[np.ndarray, "t"]:
    hidden = [channels_of(s, schema)[s.hidden.numpy()] for s in samples if s.hidden is not None]
    return np.concatenate(hidden).astype(np.int64)


def _with_schema(samples: Sequence[Sample]) -> Any:
    """Samples as a list, each with the schema that all have."""
    schema = schema_of(samples)
    return list(samples) if schema is None else [sample.with_schema(schema) for sample in samples]


def _obstacle(samples: Sequence[Sample]) -> str | None:
    """Why the model that needs no training cannot take these series, if it cannot."""
    schema = schema_of(samples)
    if schema is not None and schema.static:
        return "the model that needs no training takes no static facts"
    if schema is not None and schema.phase is not None:
        return "the model that needs no training takes no phase"
    try:
        Scalars.of(as_source(_with_schema(samples[:1]), with_targets=False), with_errors=True)
    except ValueError as error:
        return str(error).split(";")[0]
    return None


def _seconds_of_step(task: MaskedReconstruction, training: Sequence[Sample], config: TrainConfig) -> float:
    """How long a step takes here, from a few that are timed on a copy."""
    lengths = lengths_of(training)
    order = np.argsort(np.abs(lengths - lengths.mean()), kind="stable")[: config.batch_size]
    few = _chosen(training, order)

    def seconds(n_steps: int) -> float:
        begin = time.perf_counter()
        once = replace(config, epochs=n_steps, patience=None, scoring=None, validate_every=None)
        finetune_in_context(with_masking(task, task.masking), few, once, quiet=True)
        return time.perf_counter() - begin

    seconds(1)  # what only the first step of a process does
    return max(seconds(1 + timing.N_TIMED) - seconds(1), 1e-4) / timing.N_TIMED

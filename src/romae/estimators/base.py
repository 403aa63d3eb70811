"""What all estimators have in common: reading, splitting, training through the stages, saving and pickling."""

import hashlib
import json
import os
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import UnionType
from typing import Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from jaxtyping import Shaped
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted

from romae.checkpoints import native as checkpoint
from romae.config import from_dict, to_dict
from romae.data.scaling import READ_AT_ONCE, Method, Origin, Scaling, fit_ladders, fit_scaling, seen_also
from romae.data.schema import SampleSet, Schema
from romae.data.skipping import OnError, Skipped, require_on_error, warn_of
from romae.data.sources import as_source, lengths_of, schema_of
from romae.data.static import n_measured
from romae.estimators import rules
from romae.estimators.folds import TableRows
from romae.estimators.inputs import Kept, Tokens, opened, read_input, read_kept
from romae.estimators.stacking import Stack
from romae.files import write_whole_folder
from romae.inference.calibration import calibration_of
from romae.inference.outside import Outside
from romae.inference.predictions import refused_by
from romae.model.autoencoder import Encoder
from romae.model.config import ModelConfig, Size
from romae.model.tasks import Classification, Task
from romae.tokens.masking import UniformTokens
from romae.tokens.sample import Sample
from romae.training.config import TrainConfig, chosen_device
from romae.training.stages import Pretrain, Stage, run_stages
from romae.training.tables import load_model

E = TypeVar("E", bound="Estimator")
FORMAT = 1
DESCRIPTION, MODEL, STACK = "estimator.json", "model", "stack.safetensors"
DIGEST = "digest"  # in the description: of all else in it
MOST_BYTES = 2**24  # of an array in a description

Clock = Literal["sample", "shared"]


@dataclass(frozen=True, kw_only=True)
class _SettingTypes:
    """What each setting may be; random_state is scikit-learn's, and `read_input` checks the others."""

    size: str | Size | None
    pretrain_epochs: int | None
    epochs: int | None
    batch_size: int | None
    lr: float | None
    mask_ratio: float
    scaling: Method
    clock: Clock
    learn_hidden: bool
    frozen: bool
    features: Literal["summary"] | None
    early_stopping: bool
    validation_fraction: float | None
    device: str
    verbose: int | bool


class Estimator(BaseEstimator):
    """The settings and the one way of training that the estimators share. What is None follows from the data."""

    _saved: ClassVar[tuple[str, ...]] = ("n_features_in_", "histories_")

    # Settings: each estimator's own __init__ names those it has.
    size: str | Size | Mapping[str, int] | None
    pretrain_epochs: int | None
    batch_size: int | None
    lr: float | None
    mask_ratio: float
    scaling: Any
    clock: Clock
    tokens: Tokens | None
    columns: Mapping[str, Any] | None
    pretrained: str | Path | None
    early_stopping: bool
    validation_fraction: float | None
    device: Any
    random_state: Any
    verbose: int
    epochs: int | None = None  # these three belong to estimators that learn from labels
    frozen: bool = False
    features: Literal["summary"] | None = None
    learn_hidden: bool = False  # this one to those that learn without

    # What fitting leaves.
    task_: Task
    n_features_in_: int
    histories_: list[list[dict[str, Any]]]
    stack_: Stack | None = None
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
        if self.size is not None:
            _size_in_full(self.size)
        if self.validation_fraction is not None and not 0 < self.validation_fraction < 1:
            raise ValueError(f"validation_fraction lies between 0 and 1, not at {self.validation_fraction}")
        if self.pretrain_epochs is not None and self.pretrain_epochs < 0:
            raise ValueError(f"pretrain_epochs must be at least 0, not {self.pretrain_epochs}")
        if self.pretrained is None:
            return None
        if not isinstance(self.pretrained, str | os.PathLike):
            raise TypeError(
                "pretrained takes the folder of a saved estimator, a checkpoint or a name on the Hub, and it is of "
                f"type {type(self.pretrained).__name__}; save an estimator first: estimator.save(folder)"
            )
        if self.size is not None:
            raise ValueError("a pretrained model has its own size; leave size out")
        inner = Path(self.pretrained) / MODEL
        return load_model(inner if inner.is_dir() else self.pretrained)

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
            _require_dimensions_of_model(samples, before)
        return samples if self.learn_hidden else _visible(samples)

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
            _require_dimensions(more, _dimensions(samples), "the labelled ones have")
        except (ValueError, TypeError) as error:
            raise ValueError(f"unlabelled: {error}") from None
        return _visible(more)

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
        _require_dimensions_of_model(samples, self.task_)
        return samples

    def _read_kept(self, X: Any, static: Any = None) -> Kept:
        """The samples to predict for, without those that cannot be read or that the model refuses, which are told."""
        check_is_fitted(self, "task_")
        kept = read_kept(
            X,
            columns=self.columns,
            tokens=self.tokens,
            expected_schema=self.task_.schema,
            check=lambda samples: _require_dimensions_of_model(samples, self.task_),
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
        return Kept(samples if schema is None else SampleSet(samples, schema), skipped, kept.n, places)

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
    ) -> None:
        """Pre-train, then go through the last stage; without one, pre-training is validated on the held-out samples.

        Values are scaled by all samples, those held out too, so that none has a channel without a scale. What was
        fitted before stays until all is done.
        """
        schema = schema_of(samples)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        training, validation = self._split(samples, groups, seed, is_by_hiding=last is None)
        pool = _pooled([*(training if last is None else samples), *unlabelled], schema)
        scaling = self._scaling(_pooled([*samples, *unlabelled], schema), before)
        if last is not None and last.kind == "regress":
            scaling = scaling.with_target(training)
        model = self._model(pool, scaling, before, None if schema is None else schema.n_channels)
        stages = self._stages(model, pool, len(training), last, is_validated=validation is not None)
        task, histories = before, []
        if stages:
            outcome = run_stages(
                model,
                stages,
                training,
                validation=validation,
                unlabelled=pool if any(stage.kind == "pretrain" for stage in stages) else None,
                scaling=scaling,
                schema=schema,
                seed=seed,
                quiet=self.verbose <= 0,
            )
            task, histories = outcome.task, [history.records for history in outcome.histories]
        assert task is not None
        task = self._on_device(task)
        if isinstance(task, Classification) and last is not None:
            task.calibration = calibration_of(task, validation or ())
        stack = None if last is None else self._stack(task, training, validation, seed)
        self.task_, self.histories_, self.n_features_in_ = task, histories, _n_channels(samples)
        self.stack_ = stack

    def _stack(
        self, task: Task, training: Sequence[Sample], validation: Sequence[Sample] | None, seed: int
    ) -> Stack | None:
        """Models that stand beside the network, for estimators that have such."""
        return None

    def _split(
        self, samples: Sequence[Sample], groups: Shaped[np.ndarray, "b"] | None, seed: int, *, is_by_hiding: bool
    ) -> tuple[list[Sample], list[Sample] | None]:
        """Samples to train on and to validate on; the latter are None without early stopping.

        Where validation hides tokens, samples of a single one are all for training.
        """
        share = rules.fitting_share(len(samples)) if self.validation_fraction is None else self.validation_fraction
        if not self.early_stopping:
            share = 0.0
        groups = np.zeros(len(samples)) if groups is None else groups
        lengths = lengths_of(samples)
        if (schema := schema_of(samples)) is not None and schema.static:
            lengths = np.array([n_measured(sample) for sample in samples])
        can_validate = lengths > (1 if is_by_hiding else 0)
        chosen = np.zeros(len(samples), dtype=bool)
        chosen[can_validate] = rules.held_out(groups[can_validate], share, np.random.default_rng(seed))
        held_out = [samples[i] for i in np.flatnonzero(chosen).tolist()]
        return [samples[i] for i in np.flatnonzero(~chosen).tolist()], held_out or None

    def _scaling(self, samples: Sequence[Sample], before: Task | None) -> Scaling:
        """That of the model to start from, or one fitted to the data."""
        if before is None:
            origin: Origin = "min" if self.clock == "sample" else rules.first_time(samples)
            return fit_scaling(samples, values=self.scaling, origin=origin)
        scaling = (before.scaling or Scaling()).without_target()
        outside, source = Outside(scaling, before.schema), as_source(samples)
        for start in range(0, len(source), READ_AT_ONCE):
            outside.add(source.packed(np.arange(start, min(start + READ_AT_ONCE, len(source)))))
        outside.warn(stacklevel=4)
        return seen_also(scaling, samples)

    def _model(
        self, pool: Sequence[Sample], scaling: Scaling, before: Task | None, n_kinds: int | None
    ) -> ModelConfig | Encoder:
        if before is not None:
            return before.encoder
        size = rules.fitting_size(len(pool)) if self.size is None else _size_in_full(self.size)
        return ModelConfig(
            channels=pool[0].values.shape[1],
            position_dims=pool[0].positions.shape[1],
            encoder=size,
            decoder=replace(size, depth=min(size.depth, 2)),
            ladders=fit_ladders(pool, scaling),
            kinds=n_kinds,
            static_from=None if (schema := schema_of(pool)) is None else schema.static_from,
        )

    def _stages(
        self,
        model: ModelConfig | Encoder,
        pool: Sequence[Sample],
        n_training: int,
        last: Stage | None,
        is_validated: bool,
    ) -> list[Stage]:
        """Pre-training unless there is nothing to gain from it, then the last stage, with all that was left open."""
        is_new = not isinstance(model, Encoder)
        size = model.encoder if isinstance(model, ModelConfig) else model.config.encoder
        batch_size = rules.fitting_batch(lengths_of(pool)) if self.batch_size is None else self.batch_size
        stages: list[Stage] = []
        epochs = self.pretrain_epochs
        can_hide = any(n_measured(sample) > 1 for sample in pool)
        if epochs is None:
            epochs = rules.fitting_epochs(len(pool), batch_size, rules.PRETRAINING) if is_new and can_hide else 0
        if epochs > 0 and not can_hide:
            raise ValueError(
                "pre-training hides a part of each series, and every one has a single token, as of an array with "
                "1 feature(s); give longer series or, where there are labels, set pretrain_epochs=0"
            )
        if epochs > 0:
            train = self._settings(size, batch_size, epochs, rules.PRETRAINING, is_validated and last is None)
            weights: Any = "best" if last is None else "last"
            stages.append(Pretrain(train=train, masking=UniformTokens(ratio=self.mask_ratio), weights=weights))
        elif last is None and is_new:
            raise ValueError(
                "nothing can be learned: pretrain_epochs is 0 without a pretrained model, or no series has two tokens"
            )
        if last is not None:
            course = rules.PROBING if self.frozen else rules.FINE_TUNING
            epochs = rules.fitting_epochs(n_training, batch_size, course) if self.epochs is None else self.epochs
            stages.append(replace(last, train=self._settings(size, batch_size, epochs, course, is_validated)))
        return stages

    def _settings(
        self, size: Size, batch_size: int, epochs: int, course: rules.Course, is_validated: bool
    ) -> TrainConfig:
        return TrainConfig(
            epochs=epochs,
            batch_size=batch_size,
            lr=rules.fitting_rate(size, course) if self.lr is None else self.lr,
            device=self.device,
            patience=rules.fitting_patience(epochs) if is_validated else None,
        )

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
        if path.is_dir() and (others := sorted(set(os.listdir(path)) - {DESCRIPTION, MODEL, STACK})):
            raise ValueError(f"{path} holds {others[0]!r} beside an estimator; choose an empty or a new folder")

        def write(to: Path) -> None:
            self.task_.save(to / MODEL)
            if self.stack_ is not None:
                (to / STACK).write_bytes(_stack_bytes(self.stack_))
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
            for name, value in _fitted(cls, description["fitted"]).items():
                setattr(estimator, name, value)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"{path / DESCRIPTION} is damaged: {error}") from None
        task = checkpoint.load(path / MODEL)
        n_classes = len(getattr(estimator, "classes_", ()))
        if n_classes and getattr(task, "n_classes", None) != n_classes:
            raise ValueError(f"{path} names {n_classes} classes, and its model was not made for them; it is damaged")
        estimator.task_ = estimator._on_device(task)
        if estimator.features is not None:
            estimator.stack_ = _read_stack(path / STACK)
        return estimator

    @classmethod
    def _with_settings(cls: type[E], settings: Any) -> E:
        """An estimator with settings from a file; one that it does not have, or of another type, is refused."""
        if not isinstance(settings, dict) or not set(settings) <= (names := set(cls._get_param_names())):
            unknown = sorted(set(settings) - names) if isinstance(settings, dict) else settings
            raise ValueError(f"its settings {unknown} are none of {cls.__name__}")
        if isinstance(settings.get("size"), Mapping):
            settings = settings | {"size": from_dict(Size, settings["size"], where="size")}
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
        return {
            "format": FORMAT,
            "estimator": type(self).__name__,
            "settings": to_dict(settings),
            "fitted": {name: _written(getattr(self, name)) for name in self._saved},
        }

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and its relatives: the model travels as the files of its checkpoint."""
        state = dict(super().__getstate__())
        state.pop("_rows_of_fit", None)
        if "task_" in state:
            with tempfile.TemporaryDirectory() as folder:
                state["task_"].save(Path(folder) / MODEL)
                state["task_"] = {file.name: file.read_bytes() for file in (Path(folder) / MODEL).iterdir()}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        files = state.pop("task_", None)
        super().__setstate__(state)
        if files is not None:
            with tempfile.TemporaryDirectory() as folder:
                for name, content in files.items():
                    (Path(folder) / name).write_bytes(content)
                self.task_ = self._on_device(checkpoint.load(folder))


def _stack_bytes(stack: Stack) -> bytes:
    from safetensors.numpy import save

    arrays = {name: np.ascontiguousarray(array) for name, array in stack.arrays().items()}
    return save(arrays, metadata={DIGEST: _digest_of(arrays)})


def _read_stack(path: Path) -> Stack:
    """The models beside a network, from a file that holds numbers alone."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise ValueError(f"{path} is missing, so that the estimator is not whole; take a copy that is")
    try:
        with safe_open(path, framework="numpy") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (it is no dictionary)
            digest = (file.metadata() or {}).get(DIGEST)
    except (SafetensorError, ValueError) as error:
        raise ValueError(f"{path} is damaged: {error}") from None
    if digest != _digest_of(arrays):
        raise ValueError(f"{path} is damaged: its digest is another; take a copy that is whole")
    return Stack.from_arrays(arrays)


def _digest_of(arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _size_in_full(size: str | Size | Mapping[str, int]) -> Size:
    if isinstance(size, str):
        return Size.named(size)
    return from_dict(Size, size, where="size") if isinstance(size, Mapping) else size


def _written(value: Any) -> Any:
    """A fitted attribute as JSON can hold it."""
    return {"array": value.tolist(), "type": value.dtype.str} if isinstance(value, np.ndarray) else to_dict(value)


def _fitted(cls: type[Estimator], stored: Any) -> dict[str, Any]:
    """What fitting left, from a file: the attributes that the class says it saves, each of the type that it declares.

    One that the class has a value for may be missing, for older versions did not save it.
    """
    if not isinstance(stored, dict) or not set(stored) <= set(cls._saved):
        unknown = sorted(set(stored) - set(cls._saved)) if isinstance(stored, dict) else stored
        raise ValueError(f"{unknown} is nothing that fitting leaves in a {cls.__name__}")
    if missing := [name for name in cls._saved if name not in stored and not hasattr(cls, name)]:
        raise ValueError(f"it lacks {missing}")
    hints, fitted = get_type_hints(cls), {name: _revived(value) for name, value in stored.items()}
    for name, value in fitted.items():
        if not _is_of_type(value, hints[name]):
            raise ValueError(f"{name} is of another type than fitting gives it")
    return fitted


def _is_of_type(value: Any, hint: Any) -> bool:
    """Whether a value out of JSON is what an annotation says; arrays are known by being arrays."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_is_of_type(value, part) for part in inner)
    if origin is list:
        return isinstance(value, list) and all(_is_of_type(entry, inner[0]) for entry in value)
    if origin is dict or hint is dict:
        return isinstance(value, dict)
    if hint is Any:
        return True
    if hint in (bool, int, float, str, type(None)):
        return type(value) is hint or (hint is float and type(value) is int)
    return isinstance(value, np.ndarray)


def _revived(value: Any) -> Any:
    """A fitted attribute as it was before `_written`."""
    if not isinstance(value, dict) or set(value) != {"array", "type"}:
        return value
    entries, dtype = value["array"], np.dtype(str(value["type"]).replace("|O", "O"))
    if not isinstance(entries, list) or any(isinstance(entry, list | dict) for entry in entries):
        raise ValueError("an array in it is no list of numbers or words")
    if dtype.kind not in "biufUO" or dtype.itemsize * len(entries) > MOST_BYTES:
        raise ValueError(f"an array in it has the type {value['type']!r}")
    return np.array(entries, dtype=dtype)


def _n_channels(samples: Sequence[Sample]) -> int:
    """The number of channels, whether they share a token or each has its own."""
    schema = schema_of(samples)
    return len(schema.channels) if schema is not None and schema.channels else samples[0].values.shape[1]


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


def _pooled(samples: Sequence[Sample], schema: Schema | None) -> Sequence[Sample]:
    """Samples without their targets, under the names of the data."""
    pool = [replace(sample, target=None) for sample in samples]
    return pool if schema is None else SampleSet(pool, schema)


def _dimensions(samples: Sequence[Sample]) -> tuple[int, int]:
    """The numbers of columns of values and of position axes."""
    return samples[0].values.shape[1], samples[0].positions.shape[1]


def _require_dimensions_of_model(samples: Sequence[Sample], task: Task) -> None:
    """Refuse samples of other dimensions than a model takes."""
    _require_dimensions(samples, (task.config.channels, task.config.position_dims), "the model takes")


def _require_dimensions(samples: Sequence[Sample], expected: tuple[int, int], expected_by: str) -> None:
    for i, sample in enumerate(samples):
        dimensions = _dimensions([sample])
        if dimensions != expected:
            raise ValueError(
                f"sample {i} has {dimensions[0]} channels at {dimensions[1]} position axes, but {expected_by} "
                f"{expected[0]} at {expected[1]}"
            )

"""From a table on disk and a configuration to a trained model.

The command line calls these functions, and scores their models with inference/scores.py. Training leaves in its folder,
beside the run,

    job.json        the configuration with all that followed from the data filled in; given back, it makes the same run
    test_ids.json   the ids that were kept out for the test, if any
"""

import warnings
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Int64

from romae.checkpoints.native import ESTIMATOR_FILES, load, read_json
from romae.config import C, differences, from_dict, to_dict
from romae.data.bends import Method
from romae.data.containers import as_table
from romae.data.dates import TimeUnit
from romae.data.fitting import Center
from romae.data.labels import with_labels
from romae.data.ladders import fit_ladders, with_given
from romae.data.periods import phased
from romae.data.phase import Phase
from romae.data.queries import require_same_clock
from romae.data.scaling import Origin, Scaling, Unit, fit_scaling, seen_also
from romae.data.schema import Fact, SampleSet, Schema
from romae.data.skipping import Skipped
from romae.data.static import n_measured, with_static
from romae.data.tables import TokenForm, are_columns, from_schema, labelled, readable_rows, static_facts
from romae.data.unnamed import note_on_unnamed
from romae.model.config import ModelConfig, Size
from romae.model.likelihoods import Likelihood, Name
from romae.model.tasks import Classification, MaskedReconstruction, MultiLabel, Regression, Task
from romae.seeds import generators_as_before, seed_everything
from romae.tokens.ladder import Ladder
from romae.tokens.masking import Strategy, UniformTokens
from romae.training.config import FREE, TrainConfig, TrainSettings
from romae.training.loop import train
from romae.training.run_folder import JOB, TEST_IDS, History, RunFolder
from romae.training.splits import (
    HoldoutConfig,
    SplitConfig,
    holdout_note,
    holdout_split,
    read_test_ids,
    validation_split,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Which columns of a table hold what.

    What is not named is called as in the data that the model was trained on, or in pre-training id, time and value.
    Times that are dates or durations are counted in `time_unit`; `tokens`, `static` and `error` are as
    in `from_table`.
    """

    id: str | None = None
    time: str | None = None
    channel: str | None = None
    values: tuple[str, ...] | None = None
    positions: tuple[str, ...] | None = None
    time_unit: TimeUnit | None = None
    tokens: TokenForm | None = None
    static: tuple[str, ...] | None = None
    error: tuple[str, ...] | None = None

    def schema(self, base: Schema) -> Schema:
        """The columns to read, with the channels and classes of another schema."""
        given = {
            name: value
            for name, value in asdict(self).items()
            if value is not None and name not in ("tokens", "static", "error")
        }
        errors = self.error
        if self.are_channels_of(base):
            columns = given.pop("values")
            if errors is not None and len(errors) == len(columns):
                errors = tuple(dict(zip(columns, errors, strict=True))[str(name)] for name in base.channels)
        elif errors is None and "values" in given and len(given["values"]) != len(base.values):
            errors = ()  # else those of other columns would be taken for theirs
        return replace(base, **given | ({} if errors is None else {"errors": errors}))

    def are_channels_of(self, schema: Schema) -> bool:
        """Whether the columns of values are the channels of a schema: each number of a row is a token."""
        return self.channel is None and len(self.values or ()) > 1 and set(self.values or ()) == set(schema.channels)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingConfig:
    """The arguments of `fit_scaling`. Times count from each sample's first one unless another origin is given."""

    values: Method = "standard"
    per: Literal["all", "column", "channel"] | None = None
    origin: Origin | tuple[Origin, ...] = "first"
    unit: Unit | tuple[Unit, ...] = 1.0
    center: Center = "auto"

    def fitted(self, samples: SampleSet) -> Scaling:
        """The scaling that suits these samples."""
        return fit_scaling(
            samples, values=self.values, per=self.per, origin=self.origin, unit=self.unit, center=self.center
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """The parts of a `ModelConfig` that the data leave open. Sizes are given by name or in full.

    What is None follows from the data and the device, as `ModelConfig.for_samples` says. `ladder` takes the frequencies
    of positions from the gaps and spans of the data, or from the paper; `ladders` are those of the first axes in full.
    `gaps` are those of each channel or of a sample, as `per` in `fit_ladders`. `kinds` gives each channel of the table
    an embedding of its own, which begins with the deviation `kinds_spread`.
    """

    encoder: str | Size | None = None
    decoder: str | Size | None = None
    cls: bool | None = None
    ladder: Literal["data", "paper"] = "data"
    ladders: tuple[Ladder, ...] | None = None
    gaps: Literal["sample", "channel"] | None = None
    kinds: bool = True
    kinds_spread: float = 1.0
    pool: Literal["tokens", "kinds"] | None = None
    queries: Literal["independent", "joint"] = "independent"
    dropout: float = 0.0

    def __post_init__(self) -> None:
        for size in (self.encoder, self.decoder):
            if isinstance(size, str):
                Size.named(size)

    def config(self, samples: SampleSet, scaling: Scaling, device: str) -> ModelConfig:
        """The model for these samples and their scaling."""
        given: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("encoder", "decoder", "cls", "pool")
            if getattr(self, name) is not None
        }
        fitted = fit_ladders(samples, scaling, per=self.gaps) if self.ladder == "data" else None
        n_dims = samples.schema.position_dims
        phase = samples.schema.phase
        if self.ladders is None and phase is None:
            given["ladders"] = fitted
        else:
            given["ladders"] = with_given(self.ladders or (), n_dims, fitted, phase)
        if self.kinds:
            given["kinds_spread"] = self.kinds_spread
        else:
            given["kinds"] = None
        return ModelConfig.for_samples(
            samples,
            scaling=scaling,
            device=device,
            queries=self.queries,
            dropout=self.dropout,
            **given,
        )

    def filled(self, model: ModelConfig) -> "ModelSettings":
        """These settings with what followed from the data."""
        return replace(self, encoder=model.encoder, decoder=model.decoder, cls=model.cls, pool=model.pool)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobConfig:
    """The settings of every training. At each step up to the share `drop_tokens` of a sample's tokens is left out.

    The ids of `test` are neither trained nor validated on: what is scored on them is what to expect of new data.
    """

    columns: Columns = Columns()
    validation: SplitConfig = SplitConfig()
    test: HoldoutConfig = HoldoutConfig()
    drop_tokens: float = 0.0
    train: TrainSettings = TrainSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class PretrainConfig(JobConfig):
    """Masked pre-training on a table without labels.

    The `likelihood` is the distribution that is learned of hidden values; without one their mean alone is. With
    `weights` "channel" every channel of a batch counts alike in the loss. With a `phase`, it is a position axis, and
    found for each id.
    """

    phase: Phase | None = None
    scaling: ScalingConfig = ScalingConfig()
    model: ModelSettings = ModelSettings()
    masking: Strategy = UniformTokens()
    likelihood: Likelihood | Name | None = None
    weights: Literal["channel"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FinetuneConfig(JobConfig):
    """Learning a label, one per id. Values and positions are scaled as they were in pre-training.

    Without a `kind`, text and integers are classes and floats are numbers. Several columns of 0 and 1 are several
    labels, of which any number may be true, and so are the names in one column with a `separator` between them;
    `kind` "multilabel" makes one of a single column too. A `frozen` encoder keeps its weights, only the head learns.
    The `likelihood` is the distribution that is learned of numbers; without one their mean alone is.
    """

    label: str | tuple[str, ...] | None = None
    separator: str | None = None
    kind: Literal["classify", "multilabel", "regress"] | None = None
    frozen: bool = False
    dropout: float = 0.0
    likelihood: Likelihood | Name | None = None


class Trained(NamedTuple):
    """The result of training; `model` is the folder that `romae.load` reads.

    `validation` are the samples that chose its weights, `test` those that it has had nothing to do with.
    """

    model: Path
    task: Task
    history: History
    n_training: int
    validation: SampleSet | None
    test: SampleSet | None

    @property
    def n_validation(self) -> int:
        return 0 if self.validation is None else len(self.validation)

    @property
    def n_test(self) -> int:
        return 0 if self.test is None else len(self.test)


@generators_as_before()
def pretrain(
    config: PretrainConfig, data: Any, out: str | Path, *, resume: bool = False, quiet: bool = False
) -> Trained:
    """Train a model to predict hidden rows of a table, which is whatever `from_table` reads, from the others."""
    schema = config.columns.schema(Schema())
    samples = read_table(data, schema, None, tokens=config.columns.tokens, static=config.columns.static)
    if note := note_on_unnamed(data, schema, also_read=config.columns.static or ()):
        warnings.warn(note, stacklevel=3)
    if all(n_measured(sample) == 1 for sample in samples):
        raise ValueError(
            f"every sample has a single row, so that nothing can be hidden; is {samples.schema.id!r} the column that "
            "says which rows belong together?"
        )
    samples = samples if config.phase is None else phased(samples, _of_tables(config.phase), quiet=quiet)
    rest, test = holdout_split(samples, config.test)
    training, validation = validation_split(rest, config.validation)
    scaling = config.scaling.fitted(training)
    model = config.model.config(training, scaling, config.train.device)
    config = replace(config, model=config.model.filled(model))
    seed_everything(config.train.seed)
    task = MaskedReconstruction(
        model,
        masking=config.masking,
        drop_tokens=config.drop_tokens,
        likelihood=config.likelihood,
        weights=config.weights,
    )
    return _trained(config, task, scaling, training, validation, test, Path(out), resume, quiet, "pre-training")


@generators_as_before()
def finetune(
    config: FinetuneConfig,
    data: Any,
    pretrained: str | Path,
    out: str | Path,
    *,
    resume: bool = False,
    quiet: bool = False,
) -> Trained:
    """Train the encoder of a model, with a new head, to tell the label of each id of a table."""
    if config.label is None:
        raise ValueError("fine-tuning needs a label to learn; name its column with label= (--label)")
    before = load_model(pretrained)
    schema = _with_label(config.columns.schema(before.schema or Schema()), config)
    require_columns(before, schema, f"the model in {pretrained}")
    samples = _labelled(read_table(data, schema, before.schema, static=config.columns.static), config.kind)
    if before.schema is not None and before.schema.phase is not None:
        samples = phased(samples, before.schema.phase, quiet=quiet)
    # Ids whose values pre-training has not seen either make the better test.
    rest, test = holdout_split(samples, config.test, first=read_test_ids(pretrained))
    training, validation = validation_split(rest, config.validation)
    scaling = seen_also((before.scaling or Scaling()).without_target(), training)
    seed_everything(config.train.seed)
    encoder = before.encoder.rebuilt(dropout=config.dropout)
    task: Task
    classes, labels = samples.schema.classes, samples.schema.labels
    if classes is None and labels is None:
        scaling = scaling.with_target(training)
        task = Regression(encoder, drop_tokens=config.drop_tokens, likelihood=config.likelihood)
    elif config.likelihood is not None:
        raise ValueError(
            f"column {config.label!r} holds classes, which have probabilities and no likelihood; leave likelihood out, "
            "or learn them as numbers with kind='regress'"
        )
    elif labels is not None:
        task = MultiLabel(encoder, len(labels), drop_tokens=config.drop_tokens)
    else:
        task = Classification(encoder, len(classes or ()), drop_tokens=config.drop_tokens)
    task.encoder.requires_grad_(not config.frozen)
    config = replace(config, kind=_KIND_OF[type(task)])
    return _trained(config, task, scaling, training, validation, test, Path(out), resume, quiet, "fine-tuning")


_KIND_OF: dict[type[Task], Literal["classify", "multilabel", "regress"]] = {
    Classification: "classify",
    MultiLabel: "multilabel",
    Regression: "regress",
}


def load_model(path: str | Path) -> Task:
    """The task in a checkpoint, in the folder of a finished run (its best model, or else its last), or on the Hub.

    In the folder of an estimator it is the first of its networks, with a warning where others answer beside it.
    """
    description, inner, stack = ESTIMATOR_FILES
    if Path(path, description).is_file():
        if any(Path(path, name).exists() for name in (f"{inner}-1", stack)):
            warnings.warn(
                f"{path} holds an estimator of several models, and this asks one network of it, {Path(path, inner)}; "
                "romae predict asks all of them",
                stacklevel=2,
            )
        return load(Path(path, inner))
    checkpoints = [Path(path, name) for name in ("best", "last") if Path(path, name).is_dir()]
    if not checkpoints and Path(path, "states").is_dir():
        raise ValueError(f"the run in {path} has not finished, so that it holds no model yet; resume it first")
    return load(checkpoints[0] if checkpoints else path)


def read_table(
    data: Any,
    schema: Schema,
    model_schema: Schema | None,
    *,
    tokens: TokenForm | None = None,
    for_training: bool = True,
    row_numbers: Int64[np.ndarray, "n"] | None = None,
    static: Any = None,
) -> SampleSet:
    """Samples from a table; channels, tokens, the unit of time and its zone are those of a model, if there is one.

    `row_numbers` are what messages call the rows of a part of a table. Static facts are those of a model; by default
    they are in the columns that they were in then.
    """
    data = as_table(data)
    if schema.has_several_labels:
        bare = schema.without_label
        how: dict[str, Any] = {"tokens": tokens, "for_training": for_training, "row_numbers": row_numbers}
        return with_labels(read_table(data, bare, model_schema, static=static, **how), data, schema)
    if model_schema is None:
        schema = replace(schema, time_zone=None)
        tokens = "scalars" if static is not None and tokens is None and schema.channel is None else tokens
        samples = from_schema(data, schema, tokens=tokens, for_training=for_training, row_numbers=row_numbers)
        return samples if static is None else with_static(samples, static_facts(static, samples, data))
    schema = replace(schema, time_zone=model_schema.time_zone)
    channels = model_schema.channels if model_schema.channel and schema.channel else None
    tokens = "steps"
    if schema.channel is None and set(schema.values) == set(model_schema.channels):
        columns = tuple(map(str, model_schema.channels))
        errors = schema.errors
        if errors and schema.values != columns:
            errors = tuple(dict(zip(schema.values, errors, strict=True))[name] for name in columns)
        schema, tokens = replace(schema, values=columns, errors=errors), "scalars"
    has_facts = static is not None or bool(model_schema.static)
    samples = from_schema(
        data,
        schema,
        channels,
        tokens=tokens,
        for_training=for_training,
        row_numbers=row_numbers,
        packed=not (for_training or has_facts),
    )
    require_same_clock(samples.schema, model_schema, subject=f"column {samples.schema.time!r}")
    if not has_facts:
        return samples
    named = [*dict.fromkeys(fact.column for fact in model_schema.static)]
    return with_static(samples, static_facts(named if static is None else static, samples, data), model_schema.static)


def read_table_in_part(
    data: Any, schema: Schema, model_schema: Schema, static: Any = None
) -> tuple[SampleSet, list[Skipped], int]:
    """The samples of a table to predict that can be read, what was left out, and how many ids there were."""
    named = (
        tuple(Fact(column=name) for name in ([static] if isinstance(static, str) else static))
        if are_columns(static)
        else ()
    )
    clock = replace(
        schema,
        time_unit=model_schema.time_unit,
        durations=model_schema.durations,
        static=named or model_schema.static,
    )

    def read(part: Any, rows: Int64[np.ndarray, "n"]) -> SampleSet:
        return read_table(part, schema, model_schema, for_training=False, row_numbers=rows, static=static)

    part, rows, skipped, n = readable_rows(data, clock, model_schema.channels, read)
    return read(part, rows), skipped, n


def require_columns(task: Task, schema: Schema, model_name: str) -> None:
    """Refuse columns that are more or fewer than the model takes."""
    model, axes = task.config, [schema.time, *schema.positions, *([schema.channel] if schema.channel else [])]
    if bool(model.errors) != bool(schema.errors):
        has, lacks = ("reads", "none is named") if model.errors else ("knows no", f"{schema.errors[0]!r} is named")
        raise ValueError(f"{model_name} {has} measurement errors, and {lacks}; they are named with --error")
    has_phase = task.schema is not None and task.schema.phase is not None  # which is no column
    if (model.n_values, model.position_dims - has_phase) != (len(schema.values), len(axes)):
        raise ValueError(
            f"{model_name} takes {model.n_values} columns of values at {model.position_dims - has_phase} position "
            "axes, but the "
            f"table is read with {len(schema.values)} ({', '.join(schema.values)}) at {len(axes)} ({', '.join(axes)}); "
            "name others with --value, --position and --channel"
        )


def _trained(
    config: Any,
    task: Task,
    scaling: Scaling,
    training: SampleSet,
    validation: SampleSet | None,
    test: SampleSet | None,
    out: Path,
    resume: bool,
    quiet: bool,
    title: str,
) -> Trained:
    """The last part of pre-training and fine-tuning: write down the settings, then train."""
    schema = training.schema
    columns = {name: getattr(schema, name) for name in ("id", "time", "channel", "values", "positions", "time_unit")}
    columns["tokens"] = config.columns.tokens
    columns["static"] = config.columns.static
    columns["error"] = schema.errors or None
    if config.columns.are_channels_of(schema):
        columns |= {"channel": None, "values": schema.channels, "tokens": "scalars"}
    has_labels = not isinstance(task, MaskedReconstruction)
    train_config = TrainConfig.for_samples(
        training, task.config, labels=has_labels, validated=validation is not None, **asdict(config.train)
    )
    config = replace(config, columns=Columns(**columns), train=TrainSettings(**asdict(train_config)))
    task.schema = schema
    notes = {JOB: to_dict(config)}
    if test is not None:
        notes[TEST_IDS] = holdout_note(test)
    if resume and (out / JOB).is_file():
        _require_same_settings(out, to_dict(read_job(type(config), out / JOB)), notes[JOB])
        _require_same_test(out / TEST_IDS, notes.get(TEST_IDS))
    history = train(
        task,
        training,
        train_config,
        validation=validation,
        scaling=scaling,
        out=RunFolder(out, notes=notes),
        resume=resume,
        title=title,
        quiet=quiet,
    )
    model = out / ("last" if validation is None else "best")
    return Trained(model, task, history, len(training), validation, test)


def read_job(config_type: type[C], path: Path) -> C:
    """The settings of a run, as this version or an older one wrote them down."""
    settings = read_json(path)
    if isinstance(settings, dict) and isinstance(settings.get("model"), dict):
        model = settings["model"]
        model.setdefault("kinds", False)  # older versions lack these settings, or had others where nothing was said
        model.setdefault("pool", "tokens")
        model.setdefault("gaps", "sample")
        if model["kinds"]:
            model.setdefault("kinds_spread", 0.1)
    if isinstance(settings, dict) and isinstance(settings.get("columns"), dict):
        settings["columns"].setdefault("tokens", "steps")  # and this one
    if isinstance(settings, dict) and isinstance(settings.get("scaling"), dict):
        settings["scaling"].setdefault("center", "global")
    try:
        return from_dict(config_type, settings)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged, or of a newer version: {error}") from None


def _require_same_settings(folder: Path, before: Any, now: dict[str, Any]) -> None:
    """Refuse to resume a run with other settings."""
    if changed := [name for name in differences(before, now) if name not in FREE]:
        raise ValueError(
            f"{folder} was started with other settings ({', '.join(changed)}); leave them as they were, or start a "
            "new run in another folder"
        )


def _require_same_test(path: Path, now: dict[str, Any] | None) -> None:
    """Refuse to resume a run with other samples to test on; the loop compares those to train and to validate on."""
    if now is not None and path.is_file() and read_json(path) != now:
        raise ValueError(
            f"the run was started with other ids or rows to test on than there are now ({path}); give its own table, "
            "or start a new run in another folder"
        )


def _of_tables(phase: Phase) -> Phase:
    """The rule for the phase of a table, which hands over no periods but those in a column."""
    if phase.period == "given":
        raise ValueError(
            "a table holds its periods in a column: name it with --static (columns.static), and say phase.period=fact "
            "and phase.fact=NAME"
        )
    return phase


def _with_label(schema: Schema, config: FinetuneConfig) -> Schema:
    """The columns to read with those of the label, or of several labels."""
    label = config.label
    if isinstance(label, tuple) and len(label) == 1 and config.kind != "multilabel":
        label = label[0]
    elif isinstance(label, str) and config.kind == "multilabel" and config.separator is None:
        label = (label,)
    named = labelled(schema, label, config.separator)
    if named.has_several_labels and config.kind in ("classify", "regress"):
        raise ValueError(
            f"kind={config.kind!r} learns one label of an id, and several are named; leave kind or the other labels out"
        )
    return named


def schema_with_label(columns: Columns, trained: Schema, label: str | None) -> Schema:
    """The columns of a table with the label that a model has learned, in a column of another name if one is given."""
    schema = columns.schema(trained)
    if not trained.has_several_labels:
        return replace(schema, label=label or trained.label, classes=None)
    if label is not None and trained.separator is None:
        columns_of_labels = ", ".join(map(str, trained.labels or ()))
        raise ValueError(
            f"the model has learned several labels, each in a column of its own ({columns_of_labels}); leave label "
            "out, and call the columns like these"
        )
    return replace(schema, label=label or trained.label)


def _labelled(samples: SampleSet, objective: Literal["classify", "multilabel", "regress"] | None) -> SampleSet:
    """The samples with classes, several labels or numbers as their targets."""
    classes, label = samples.schema.classes, samples.schema.label
    if objective == "classify" and classes is None:
        raise ValueError(f"column {label!r} holds floats, which are numbers; make them integers or text to classify")
    if objective != "regress" or classes is None:
        return samples
    if any(isinstance(name, str | bool) for name in classes):
        raise ValueError(f"column {label!r} holds {classes[0]!r}, which is no number to regress")
    numbers = [float(name) for name in classes]
    relabelled = samples.map(lambda sample: replace(sample, target=numbers[int(sample.target)]))
    return SampleSet(relabelled.samples, replace(samples.schema, classes=None))

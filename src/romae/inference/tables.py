"""From a model and a table to a table of predictions, embeddings, values, scores or contributions, in its own names."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float64

from romae.data.columns import escaped_for_spreadsheets, require_distinct
from romae.data.export import to_sample_table, to_table
from romae.data.queries import channel_numbers, grid_of_times, read_queries
from romae.data.schema import SampleSet, Schema
from romae.data.skipping import OnError, Skipped, require_on_error, warn_of
from romae.data.uncertainty import Spread
from romae.files import write_whole
from romae.inference import forecasts
from romae.inference import predictions as inference
from romae.inference.anomalies import FOLDS, LEVEL, Combine, anomaly
from romae.inference.explanations import Method, Per, explain
from romae.inference.explanations import Units as UnitsOfClasses
from romae.inference.interpolation import interpolate
from romae.model.tasks import Classification, MultiLabel, Regression, Task
from romae.training.config import chosen_device, require_device_name
from romae.training.tables import Columns, load_model, read_table, read_table_in_part, require_columns

if TYPE_CHECKING:
    import pandas as pd

TABLE_ENDINGS = (".csv", ".csv.gz", ".parquet", ".pq")


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceConfig:
    """The settings of predicting, embedding and interpolating.

    With `escape`, text in CSV files that a spreadsheet would take for a formula gets an apostrophe before it. With
    `on_error` "skip", ids that cannot be read or that the model refuses are left out, told in one warning and listed.
    """

    columns: Columns = Columns()
    device: str = "auto"
    tokens_per_batch: int = inference.TOKENS_PER_BATCH
    precision: inference.Precision = "auto"
    escape: bool = True
    on_error: OnError = "raise"

    def __post_init__(self) -> None:
        require_device_name(self.device)
        if self.precision not in inference.PRECISIONS:
            raise ValueError(f"precision must be one of {', '.join(inference.PRECISIONS)}, not {self.precision!r}")
        require_on_error(self.on_error)

    @property
    def how(self) -> dict[str, Any]:
        """What every question takes."""
        return {"tokens_per_batch": self.tokens_per_batch, "precision": self.precision}


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedConfig(InferenceConfig):
    """`pooling` is what becomes the vector of an id: that of the model, or statistics of several layers."""

    pooling: inference.Pooling = "model"

    def __post_init__(self) -> None:
        InferenceConfig.__post_init__(self)
        inference.require_pooling(self.pooling)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictConfig(InferenceConfig):
    """Of models with a likelihood, `interval` and `quantiles` ask how sure they are.

    Beside each number, such as `flux`, its standard deviation `flux_std` is told then, with the ends `flux_lower` and
    `flux_upper` of a central interval of this probability, and quantiles of these levels such as `flux_q0.1`.
    """

    interval: float | None = None
    quantiles: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        InferenceConfig.__post_init__(self)
        if self.quantiles is not None:
            object.__setattr__(self, "quantiles", self.spread.quantiles)  # sorted
        _ = self.spread  # refuses what is no level

    @property
    def spread(self) -> Spread:
        """What is told beside the mean."""
        return Spread(interval=self.interval, quantiles=self.quantiles)


@dataclass(frozen=True, slots=True, kw_only=True)
class InterpolateConfig(PredictConfig):
    """Which `channels` to ask for, by name or number; all by default.

    For models with joint queries, `grouped` asks all queries of an id together, as they were in training.
    """

    grouped: bool = False
    channels: tuple[str | int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnomalyConfig(InferenceConfig):
    """How surprising measurements are: the arguments of `anomaly`, and what a row is for.

    With `folds` 0 each measurement is left out alone. The settings say nothing of a reference, which is for Python.
    """

    folds: int = FOLDS
    level: float = LEVEL
    combine: Combine = "largest"
    per: Literal["measurement", "sample"] = "measurement"

    def __post_init__(self) -> None:
        InferenceConfig.__post_init__(self)
        if self.per not in ("measurement", "sample"):
            raise ValueError(f"per must be 'measurement' or 'sample', not {self.per!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainConfig(InferenceConfig):
    """What contributes to predictions: the arguments of `explain`. Products are always computed in full precision."""

    target: str | None = None
    method: Method = "integrated-gradients"
    per: Per = "measurement"
    units: UnitsOfClasses = "logit"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastConfig(PredictConfig):
    """Which `channels` to forecast, by name or number, and at which `step`; both follow from the data."""

    channels: tuple[str | int, ...] | None = None
    step: float | str | None = None


def predict_table(
    config: InferenceConfig, data: Any, model: str | Path | Task, *, skipped: list[Skipped] | None = None
) -> "pd.DataFrame":
    """One row per id: its most probable class and the probability of each, its labels, or numbers predicted for it.

    What is left out with `on_error` "skip" is added to the list `skipped`.
    """
    task, samples, schema = read_to_predict(config, data, model, skipped)
    model_schema = task.schema or Schema()
    spread = _spread(config, task)
    if isinstance(task, Classification):
        probabilities = inference.predict_proba(task, samples, **config.how)
        classes = model_schema.classes or tuple(range(task.n_classes))
        return to_sample_table(samples, probabilities, replace(schema, classes=classes))
    if isinstance(task, MultiLabel):
        labels = model_schema.labels or tuple(f"label_{i}" for i in range(task.n_labels))
        probabilities = inference.predict_proba(task, samples, **config.how)
        return to_sample_table(samples, probabilities, replace(schema, labels=labels))
    if not isinstance(task, Regression):
        name = "the model" if isinstance(model, Task) else f"the model in {model}"
        raise ValueError(
            f"{name} was only pre-trained and has learned no label; finetune it first (romae finetune), or ask it with "
            "embed, interpolate or forecast"
        )
    asked = inference.predict(task, samples, returns=_returns(spread), **config.how)
    how_sure: dict[str, Any] = {"interval": spread.interval, "quantiles": spread.quantiles}
    if task.per == "sample":
        return to_sample_table(samples, asked, schema, **how_sure)
    label = model_schema.label or "label"
    names = [label] if task.n_targets == 1 else [f"{label}_{i}" for i in range(task.n_targets)]
    return to_table(samples, asked, schema, columns=names, **how_sure)


def read_to_predict(
    config: InferenceConfig, data: Any, model: str | Path | Task, skipped: list[Skipped] | None
) -> tuple[Task, SampleSet, Schema]:
    """A model, the samples of a table in its terms, and the names of its columns and of what the model has learned."""
    task, samples, _ = _load_and_read(config, data, model, skipped)
    model_schema = task.schema or Schema()
    targets = (model_schema.label, *(model_schema.labels or ()))
    if doubled := [name for name in targets if name in samples.schema.columns]:
        raise ValueError(
            f"column {doubled[0]!r} is read as something else, but answers go to a column of this name, which "
            "the model has learned; rename the table's"
        )
    names_of_targets = {name: getattr(model_schema, name) for name in ("label", "classes", "labels", "separator")}
    return task, samples, replace(samples.schema, **names_of_targets)


def embed_table(
    config: InferenceConfig, data: Any, model: str | Path | Task, *, skipped: list[Skipped] | None = None
) -> "pd.DataFrame":
    """One row per id: its embedding, in as many columns as the encoder is wide, or more with `pooling` "layers".

    What is left out with `on_error` "skip" is added to the list `skipped`.
    """
    task, samples, _ = _load_and_read(config, data, model, skipped)
    pooling = config.pooling if isinstance(config, EmbedConfig) else "model"
    rows = np.asarray(inference.embed(task, samples, pooling=pooling, **config.how))
    names = [f"embedding_{i}" for i in range(rows.shape[1])]
    return to_sample_table(samples, rows, samples.schema, columns=names)


def interpolate_table(
    config: InterpolateConfig,
    data: Any,
    model: str | Path | Task,
    *,
    queries: Any = None,
    at: str | None = None,
    skipped: list[Skipped] | None = None,
) -> "pd.DataFrame":
    """The values at each row of a table of queries, in its order, or on an even grid of times for every id and channel.

    With `channels` in the settings, a grid is asked of these alone, and of columns of values these alone are given.
    Queries have the columns of the data less the values; a grid is written as `start:stop:n`. What is left out with
    `on_error` "skip" is added to the list `skipped`, and queries for it are left out as well.
    """
    if (queries is None) == (at is None):
        raise ValueError("say where to interpolate: with a table of queries, or with a grid start:stop:n; one of them")
    task, samples, left_out = _load_and_read(config, data, model, skipped)
    schema, spread = samples.schema, _spread(config, task)
    has_axis, numbers = schema.channel is not None, None
    if config.channels is not None:
        numbers = channel_numbers(config.channels, schema.channels if has_axis else schema.values)
    if at is None and has_axis and numbers is not None:
        raise ValueError(
            f"the table of queries says itself which channel each row asks for, in column {schema.channel!r}; leave "
            "channels out, or ask with a grid"
        )
    if at is not None:
        positions = [grid_of_times(at, schema, numbers)] * len(samples)
        order = np.arange(sum(map(len, positions)))
    else:
        positions, order = read_queries(queries, samples, [name for name, _ in left_out])
    values: Any = interpolate(task, samples, positions, grouped=config.grouped, returns=_returns(spread), **config.how)
    columns = None
    if numbers is not None and not has_axis:
        values, columns = [x[:, numbers] for x in values], [schema.values[i] for i in numbers]
    how_sure: dict[str, Any] = {"interval": spread.interval, "quantiles": spread.quantiles}
    table = to_table(samples, values, schema, positions=positions, columns=columns, **how_sure)
    return table.iloc[order].reset_index(drop=True)


def anomaly_table(
    config: AnomalyConfig, data: Any, model: str | Path | Task, *, skipped: list[Skipped] | None = None
) -> "pd.DataFrame":
    """One row per measurement, or per id, with its score and its p-value.

    What is left out with `on_error` "skip" is added to the list `skipped`.
    """
    task, samples, _ = _load_and_read(config, data, model, skipped)
    found = anomaly(task, samples, folds=config.folds or None, level=config.level, combine=config.combine, **config.how)
    return found.measurements if config.per == "measurement" else found.samples


def explain_table(
    config: ExplainConfig, data: Any, model: str | Path | Task, *, skipped: list[Skipped] | None = None
) -> "pd.DataFrame":
    """One row per measurement, or per id and channel, with what it contributes to the prediction for the id.

    What is left out with `on_error` "skip" is added to the list `skipped`.
    """
    task, samples, _ = _load_and_read(config, data, model, skipped)
    if isinstance(task, MultiLabel):
        raise ValueError(f"the model in {model} tells several labels, and explain knows classes and numbers alone")
    if not isinstance(task, Classification | Regression):
        raise ValueError(
            f"the model in {model} was only pre-trained, so that there is no label to explain; finetune it, or explain "
            "a value at one position in Python: romae.explain(…, at=…)"
        )
    found = explain(
        task,
        samples,
        target=config.target,
        method=config.method,
        per=config.per,
        units=config.units,
        tokens_per_batch=config.tokens_per_batch,
    )
    names, id = ["target", "prediction"], samples.schema.id
    require_distinct([*found.contributions, *names], "the columns of the table", "rename those of the data")
    lengths = found.contributions.groupby(id, sort=False).size().reindex(found.samples[id]).to_numpy()
    asked = found.samples.loc[found.samples.index.repeat(lengths), names].reset_index(drop=True)
    return found.contributions.assign(**{name: asked[name] for name in names})


def forecast_table(
    config: ForecastConfig,
    data: Any,
    model: str | Path | Task,
    *,
    until: Any = None,
    skipped: list[Skipped] | None = None,
) -> "pd.DataFrame":
    """The values after the last row of each id up to a moment, one row per time, or per time and channel.

    `until` is as in `forecast`. What is known ahead stands in the same table, at later times. What is left out with
    `on_error` "skip" is added to the list `skipped`.
    """
    task, samples, _ = _load_and_read(config, data, model, skipped)
    schema = samples.schema
    has_axis = schema.channel is not None
    chosen = forecasts.chosen_channels(task, config.channels)
    spread = _spread(config, task)
    ahead = forecasts.forecast(
        task, samples, until=until, channels=chosen, step=config.step, returns=_returns(spread), **config.how
    )
    names = list(schema.values) if has_axis else [schema.values[i] for i in chosen]
    positions = [_asked(one.times, chosen if has_axis else None) for one in ahead]
    shapes = [(len(x), len(names)) for x in positions]
    if not spread.is_asked:
        rows = [np.reshape(one.values, shape) for one, shape in zip(ahead, shapes, strict=True)]
        return to_table(samples, rows, schema, positions=positions, columns=names)
    rows = [
        spread.told(one.values.reshape(shape)).reshape(len(x), -1)
        for one, shape, x in zip(ahead, shapes, positions, strict=True)
    ]
    return to_table(samples, rows, schema, positions=positions, columns=spread.names(names))


def _asked(times: Float64[np.ndarray, "q"], channels: list[int] | None) -> Float64[np.ndarray, "n d"]:
    """The positions of times, of every channel at each where channels are an axis."""
    if channels is None:
        return times[:, None]
    return np.stack([np.repeat(times, len(channels)), np.tile(np.array(channels, float), len(times))], axis=1)


def _spread(config: InferenceConfig, task: Task) -> Spread:
    """What is told beside the mean; refused where the model has learned no distribution."""
    spread = config.spread if isinstance(config, PredictConfig) else Spread()
    if not spread.is_asked:
        return spread
    if isinstance(task, Classification | MultiLabel):
        raise ValueError(
            "a classifier tells how sure it is by the probability of each class, and has no intervals; leave interval "
            "and quantiles out"
        )
    if getattr(task, "likelihood", None) is None:
        raise ValueError(
            "the model was trained without a likelihood, so that it has no intervals and no quantiles; train it with "
            "--likelihood mixture (--set likelihood=mixture), or leave interval and quantiles out"
        )
    return spread


def _returns(spread: Spread) -> Literal["mean", "distribution"]:
    return "distribution" if spread.is_asked else "mean"


def require_table_ending(path: str | Path) -> None:
    """Refuse the name of a table that `write_table` cannot write, before anything is worked out."""
    if not str(path).endswith(TABLE_ENDINGS):
        raise ValueError(f"cannot tell what {Path(path).name} should be: expected one of {', '.join(TABLE_ENDINGS)}")


def require_output(path: str | Path, *sources: Path | None) -> None:
    """Refuse the name of a table that cannot be written, or that would take the place of one that is read."""
    require_table_ending(path)
    if Path(path).resolve() in [source.resolve() for source in sources if source is not None]:
        raise ValueError(f"{path} is the table that is read; write the answers to another one")


def skipped_path(path: str | Path) -> Path:
    """Where the list of what was left out goes: beside the answers, as a CSV file."""
    path = Path(path)
    ending = next(ending for ending in TABLE_ENDINGS if path.name.endswith(ending))
    return path.with_name(f"{path.name.removesuffix(ending)}.skipped.csv")


def write_skipped(skipped: Sequence[Skipped], path: str | Path, *, escape: bool = True) -> None:
    """Write the ids that were left out, each with the reason."""
    import pandas as pd

    write_table(pd.DataFrame(list(skipped), columns=["id", "reason"]), path, escape=escape)


def write_table(table: "pd.DataFrame", path: str | Path, *, escape: bool = True) -> None:
    """Write a CSV or Parquet file, by its ending, whole or not at all.

    With `escape`, text in a CSV file that a spreadsheet would take for a formula gets an apostrophe before it, which
    `from_table` takes away again.
    """
    require_table_ending(path)
    path = Path(path)

    def write(to: Path) -> None:
        if path.suffix in (".parquet", ".pq"):
            table.to_parquet(to, index=False)
        else:
            cells = escaped_for_spreadsheets(table) if escape else table
            text = cells.select_dtypes(exclude=["number", "bool", "datetime", "datetimetz"])
            has_returns = any(isinstance(x, str) and "\r" in x for name in text for x in text[name])
            # A return within a cell ends a line where the cell has no quotes, and pandas sees to line feeds alone.
            quoting = csv.QUOTE_NONNUMERIC if has_returns else csv.QUOTE_MINIMAL
            compression = "gzip" if path.suffix == ".gz" else None
            cells.to_csv(to, index=False, compression=compression, quoting=quoting)

    write_whole(path, write)


@dataclass(frozen=True, eq=False)
class Read:
    """A table that was read before its answers are asked for, or the error that it gave."""

    samples: SampleSet | None
    left_out: list[Skipped]
    error: Exception | None = None

    @classmethod
    def of(cls, config: InferenceConfig, data: Any, task: Task) -> "Read":
        """Read a table for a model; an error is raised where answers are asked for."""
        left_out: list[Skipped] = []
        try:
            return cls(_load_and_read(config, data, task, left_out)[1], left_out)
        except (ValueError, TypeError) as error:
            return cls(None, left_out, error)


def _load_and_read(
    config: InferenceConfig, data: Any, model: str | Path | Task, skipped: list[Skipped] | None
) -> tuple[Task, SampleSet, list[Skipped]]:
    """A model, the samples of a table in its terms, and what is left out. A label that the table may have is not read.

    What is left out is added to `skipped` too.
    """
    if isinstance(data, Read):
        assert isinstance(model, Task)
        if skipped is not None:
            skipped += data.left_out
        if data.samples is None:
            assert data.error is not None
            raise data.error
        return model, data.samples, data.left_out
    task, name = (model, "the model") if isinstance(model, Task) else (load_model(model), f"the model in {model}")
    # Without the label, whose name another column of this table may have.
    schema = config.columns.schema((task.schema or Schema()).without_label)
    require_columns(task, schema, name)
    if config.on_error == "raise" or task.schema is None:
        samples = read_table(data, schema, task.schema, for_training=False, static=config.columns.static)
        return task.to(chosen_device(config.device)), samples, []
    samples, left_out, n = read_table_in_part(data, schema, task.schema, config.columns.static)
    task = task.to(chosen_device(config.device))
    refused = inference.refused_by(task, samples)
    left_out += [Skipped(samples[i].id, reason) for i, reason in refused.items()]
    warn_of(left_out, n, stacklevel=3)
    if skipped is not None:
        skipped += left_out
    kept = [i for i in range(len(samples)) if i not in refused]
    # A SampleSet takes index arrays as well as slices.
    return task, samples[kept], left_out  # type: ignore[call-overload]

"""The page of one run: its losses, its settings and, given a table, what its model predicts for it.

Reconstructions hide some points of a series from the model and show what it predicts there; a classifier shows its
confusion matrix and what speaks for its classes, a regression its numbers beside the true ones, and a model with a
likelihood what surprises it; every model shows its embeddings (PCA), and one that tells probabilities how far these can
be trusted, before its calibration and after.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Float64

from romae.checkpoints.native import read_json
from romae.config import flat, from_dict, parsed_json
from romae.data.schema import SampleSet, Schema
from romae.data.sources import as_source
from romae.data.static import n_measured
from romae.files import require_free
from romae.inference import baselines
from romae.inference import predictions as inference
from romae.inference.anomalies import LEVEL, anomaly
from romae.inference.explanations import explain
from romae.inference.reliability import ClassReliability, NumberReliability, reliability
from romae.inference.scores import NAMES, Scores, score
from romae.inference.tables import InferenceConfig
from romae.model.tasks import Classification, MaskedReconstruction, MultiLabel, Regression, Task
from romae.pages import charts, page
from romae.pages.diagnostics import (
    Channel,
    are_magnitudes,
    as_read,
    channels,
    class_names,
    confusion,
    dated,
    measured_errors,
    panels,
    principal_components,
    time_axis,
    value_axis,
)
from romae.pages.light_curves import Cycles
from romae.pages.page import Block, Chart, Choice, Section, Table, Text, choice
from romae.pages.plots import NOWHERE
from romae.tokens.masking import futures_in, hide
from romae.tokens.sample import Sample
from romae.training.identity import was_made_from
from romae.training.run_folder import CONFIG, JOB, METRICS, History
from romae.training.splits import SplitConfig, read_test_ids, validation_split, was_tested_on
from romae.training.tables import load_model, read_table, require_columns, schema_with_label

N_SHOWN, N_DRAWN = 12, 2000
N_JUDGED = 500  # samples whose probabilities are held against the truth
N_SCORED, N_MARKED = 60, 6  # samples that are looked through for anomalies, and those that are drawn
_PLAIN_NAMES = ("run", "out", "output", "model")
_FURTHER = " The model also knows {}; on the right the same points over {}."
_PHASE = " Beside the time the phase, in periods of {:.6g}, with each measurement in two cycles."


@dataclass(frozen=True, slots=True, kw_only=True)
class PageConfig(InferenceConfig):
    """What a page is told. `ratio` is the share of a series' points to hide, chosen by `seed`.

    `samples="kept out"` shows the ids alone that the run did not train on; it needs the table that the run was made
    from. "auto" shows these where there are any, and else all.
    """

    label: str | None = None
    samples: Literal["auto", "all", "kept out"] = "auto"
    ratio: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.ratio < 1:
            raise ValueError(f"ratio is the share of points to hide, between 0 and 1, not {self.ratio}")
        if self.seed < 0:
            raise ValueError(f"seed must be at least 0, not {self.seed}")


def write(
    run: str | Path,
    *,
    data: Any = None,
    config: PageConfig | None = None,
    out: str | Path | None = None,
    force: bool = False,
) -> Path:
    """Write the page of a run, `page.html` in its folder unless told otherwise, and return where it is.

    `data` is whatever `from_table` reads, or samples with their names: a table has no numbers for each token. A file
    that is no page of ours is only overwritten by `force`, and what is read never.
    """
    folder = Path(run)
    stages = sorted(folder.rglob("history.jsonl"))
    if not stages:
        raise ValueError(f"{folder} is not the folder of a run: it holds no history.jsonl, which every run writes")
    place = folder / "page.html" if out is None else Path(out)
    inputs = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".html"]
    if isinstance(data, str | os.PathLike):
        inputs.append(Path(data))
    require_free(place, force=force, inputs=inputs, is_ours=page.is_page)
    sections = [section for stage in stages for section in (_training(stage, folder), *_scores(stage.parent, folder))]
    if data is not None:
        has_model = any((folder / name).is_dir() for name in ("best", "last"))
        sections += _predictions(folder if has_model else stages[-1].parent, data, config or PageConfig())
    sections += [_settings(stage.parent, folder) for stage in stages]
    return page.write(place, _name(folder), sections)


class _NothingKeptOut(ValueError):
    """Nobody knows which samples a run did not train on, or there are none."""


def _name(folder: Path) -> str:
    """What a page is called: the folder of its run, and the one around it where the name alone says nothing."""
    place = folder.resolve()
    return f"{place.parent.name}/{place.name}" if place.name in _PLAIN_NAMES and place.parent.name else place.name


def _training(history: Path, folder: Path) -> Section:
    try:
        records = [parsed_json(line) for line in history.read_text(encoding="utf-8").splitlines()]
    except ValueError as error:
        raise ValueError(f"{history} is torn or was altered: {error}") from None
    for number, record in enumerate(records, start=1):
        numbers = [record.get(name) for name in ("step", "epoch", "loss")] if isinstance(record, dict) else [None]
        for name in ("validation", "score"):
            if isinstance(record, dict) and record.get(name) is not None:
                numbers.append(record[name])
        if not all(isinstance(value, int | float) and abs(value) <= sys.float_info.max for value in numbers):
            raise ValueError(f"{history} is torn or was altered: line {number} is no record of a run")
    if not records:
        return Section(title=_title("Training", history.parent, folder), blocks=[Text(text="No report yet.")])
    last = records[-1]
    judged = [record for record in records if record.get("validation") is not None]
    validation = f", at best {History(judged).best['validation']:.4g} in validation" if judged else ""
    caption = f"{last['step']:,} steps, {last['epoch']:,} epochs: loss {last['loss']:.4g}{validation}."
    chart = Chart(caption=caption, figure=charts.loss_curves({"": records}))
    return Section(title=_title("Training", history.parent, folder), blocks=[chart])


def _scores(stage: Path, folder: Path) -> list[Section]:
    """The scores that the command line wrote when the run ended, if it did."""
    path = stage / METRICS
    if not path.is_file():
        return []
    try:
        scores = Scores.read(read_json(path))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} is torn or was altered: {error}") from None
    blocks: list[Block] = [Text(text=f"On {scores.origin}.")]
    rows = []
    for name, value in scores.metrics.items():
        rows.append((f"{NAMES.get(name, name)} of RoMAE", f"{value:.4g}"))
        rows += [(f"of the {beside}", f"{other:.4g}") for beside, other in scores.baselines.get(name, {}).items()]
    if rows:
        blocks.append(Table(columns=("metric", "value"), rows=rows))
    columns = list(dict.fromkeys(name for part in scores.parts.values() for name in part))
    if columns:
        parts = [
            (name, *(f"{part[column]:.4g}" if column in part else "" for column in columns))
            for name, part in scores.parts.items()
        ]
        blocks.append(Table(columns=("", *(NAMES.get(name, name).replace("_", " ") for name in columns)), rows=parts))
    remarks = [f"{NAMES.get(name, name)} is left out: {reason}" for name, reason in scores.omitted.items()]
    blocks += [
        Text(text=f"{sentence[0].upper()}{sentence[1:]}.") for sentence in (*remarks, *scores.remarks) if sentence
    ]
    return [Section(title=_title("Scores", stage, folder), blocks=blocks)]


def _settings(stage: Path, folder: Path) -> Section:
    """The settings of the job where there was one, else those of its training."""
    path = stage / JOB if (stage / JOB).is_file() else stage / "config.json"
    rows = [(name, json.dumps(value)) for name, value in flat(read_json(path))]
    return Section(title=_title("Settings", stage, folder), blocks=[Table(columns=("setting", "value"), rows=rows)])


def _title(word: str, stage: Path, folder: Path) -> str:
    return word if stage == folder else f"{word}: {stage.relative_to(folder)}"


def _predictions(folder: Path, data: Any, config: PageConfig) -> list[Section]:
    """Predictions and embeddings of the model of a run for a table."""
    task = load_model(folder).cpu()
    samples = _read(data, task, config, f"the model in {folder}")
    origin = f"All {len(samples):,} ids of the data. If the model was trained on them, this is optimistic."
    if config.samples != "all":
        try:
            samples, origin = _kept_out(samples, folder)
        except _NothingKeptOut as reason:
            if config.samples == "kept out":
                raise ValueError(str(reason)) from None
    sections = []
    if isinstance(task, MaskedReconstruction):
        title = "Forecasts" if futures_in(task.masking) else "Reconstructions"
        sections.append(Section(title=title, blocks=_reconstructions(task, samples, config)))
        if task.likelihood is not None and not task.normalise:
            sections.append(Section(title="Anomalies", blocks=_anomalies(task, samples, config)))
    elif isinstance(task, Classification):
        sections.append(Section(title="Classification", blocks=_classification(task, samples)))
        sections.append(Section(title="Explanations", blocks=_explanations(task, samples, config)))
    elif isinstance(task, MultiLabel):
        sections.append(Section(title="Labels", blocks=_labels(task, samples)))
    elif isinstance(task, Regression):
        sections.append(Section(title="Regression", blocks=_regression(task, samples)))
    if blocks := _calibration(task, samples, config):
        sections.append(Section(title="Calibration", blocks=blocks))
    sections.append(Section(title="Embeddings", blocks=_embeddings(task, samples)))
    return [replace(section, blocks=[Text(text=origin, is_aside=True), *section.blocks]) for section in sections]


def _read(data: Any, task: Task, config: PageConfig, model: str) -> SampleSet:
    if isinstance(data, SampleSet):
        require_columns(task, data.schema, model)
        return data
    trained = task.schema or Schema()
    schema = schema_with_label(config.columns, trained, config.label)
    require_columns(task, schema, model)
    return read_table(data, schema, task.schema, for_training=False)


def _kept_out(samples: SampleSet, folder: Path) -> tuple[SampleSet, str]:
    """The samples that the run was tested on, or else validated on, and which these are; of another table none are."""
    for name in (JOB, CONFIG):
        if not (folder / name).is_file():
            raise _NothingKeptOut(f"{folder} holds no {name}, so that nobody knows what was kept out; show all samples")
    job = read_json(folder / JOB)
    if not isinstance(job, dict) or not isinstance(job.get("validation"), dict):
        raise ValueError(f"{folder / JOB} is torn or was altered: it does not say what was kept out; show all samples")
    config = from_dict(SplitConfig, job["validation"], where="validation")
    label = f" with the label {job['label']}" if job.get("label") else ""
    not_its_own = _NothingKeptOut(
        f"these are not the samples that the run in {folder} was made from, so that nobody knows which of them it kept "
        f"out; give its own table{label}, or show all samples"
    )
    own = samples.schema
    learned = list(own.labels) if own.label is None and own.labels is not None else own.label
    if "label" in job and learned != job["label"] and learned != [job["label"]]:
        raise not_its_own
    as_trained_on, test_ids = _as_trained_on(samples, job), read_test_ids(folder)
    is_test = np.array([sample.id in test_ids for sample in samples], dtype=bool)
    if is_test.all():
        raise not_its_own
    # A SampleSet takes masks as well as slices.
    test, rest = as_trained_on[is_test], as_trained_on[~is_test]  # type: ignore[call-overload]
    training, validation = validation_split(rest, config)
    if validation is None and not test_ids:
        raise _NothingKeptOut("the run kept nothing out of training (validation.share=0); show all samples")
    validation_source = None if validation is None else as_source(validation)
    if not (was_made_from(folder, as_source(training), validation_source) and was_tested_on(folder, test)):
        raise not_its_own
    if test_ids:
        shown = samples[is_test]  # type: ignore[call-overload]
        return shown, f"The {len(shown):,} ids of the data that the run kept out of training and of validation."
    chosen = {sample.id for sample in validation or ()}
    shown = samples[np.array([sample.id in chosen for sample in samples], dtype=bool)]  # type: ignore[call-overload]
    return shown, f"The {len(shown):,} ids of the data that the run kept out of training; they chose its weights."


def _as_trained_on(samples: SampleSet, job: Mapping[str, Any]) -> SampleSet:
    """The samples with the targets that the run had: none in pre-training, numbers where it took classes for such."""
    classes, without_classes = samples.schema.classes, replace(samples.schema, classes=None)
    if "label" not in job:
        bare = samples.map(lambda sample: replace(sample, target=None))
        return SampleSet(bare.samples, without_classes)
    if job.get("kind") == "regress" and classes is not None:
        numbers = [float(name) for name in classes]
        relabelled = samples.map(lambda sample: replace(sample, target=numbers[int(sample.target)]))
        return SampleSet(relabelled.samples, without_classes)
    return samples


def _reconstructions(task: MaskedReconstruction, samples: SampleSet, config: PageConfig) -> list[Block]:
    """The first samples with some of their points hidden, and the error at those beside two simple methods."""
    if task.normalise:
        return [
            Text(text="The model predicts normalised patches, so that it cannot be asked in the units of the data.")
        ]
    random, futures = np.random.default_rng(config.seed), futures_in(task.masking)
    several = [replace(sample, target=None) for sample in samples if n_measured(sample) > 1]
    if futures:
        masked = hide(several, futures[0], seed=config.seed) if several else []
    else:
        masked = [replace(sample, hidden=_hidden(sample, config.ratio, random)) for sample in several]
    if not masked:
        alone = "Every sample has a single point, so that none can be hidden."
        return [Text(text="No sample can be cut into a past and a future." if futures else alone)]
    masked_set = SampleSet(masked, samples.schema)
    predicted = list(inference.predict(task, masked_set, tokens_per_batch=config.tokens_per_batch))
    drawn = {
        str(sample.id): _reconstruction(task, sample, prediction, samples.schema)
        for sample, prediction in zip(masked[:N_SHOWN], predicted, strict=False)
    }
    return [Choice(label="Sample", charts=drawn), _errors(masked_set, predicted, ahead=bool(futures))]


def _hidden(sample: Sample, ratio: float, random: np.random.Generator) -> Bool[np.ndarray, "n"]:
    """True on a share of the points; at least one is hidden and one is seen. Static facts come last and are seen."""
    n, hidden = n_measured(sample), np.zeros(len(sample), dtype=bool)
    hidden[random.permutation(n)[: min(max(round(ratio * n), 1), n - 1)]] = True
    return hidden


def _errors(samples: SampleSet, predicted: Sequence[np.ndarray], *, ahead: bool = False) -> Table:
    """RoMAE beside simple methods, of which linear interpolation uses all axes that there are."""
    from sklearn.metrics import root_mean_squared_error

    further = samples.schema.positions
    others = {"linear interpolation": baselines.linear}
    if ahead:
        others = {"last value": baselines.last_value, "linear trend": baselines.trend}
    others["mean of the series"] = baselines.mean
    predictions = {"RoMAE": np.concatenate(predicted)}
    predictions |= {name: baselines.filled_along_time(method, samples) for name, method in others.items()}
    if further and not ahead:
        along = f"linear interpolation along {samples.schema.time}, linear in {_listed(further)}"
        predictions = {along if name == "linear interpolation" else name: x for name, x in predictions.items()}
        predictions[along] = baselines.filled_along_axes(samples)
    truth = np.concatenate([baselines.truth(sample) for sample in samples]).ravel()
    rows = [
        (name, f"{root_mean_squared_error(truth, prediction.ravel()):.4g}") for name, prediction in predictions.items()
    ]
    return Table(columns=("method", "RMSE at hidden points, all samples"), rows=rows)


def _reconstruction(
    task: MaskedReconstruction, sample: Sample, predicted: Float[np.ndarray, "m c"], schema: Schema
) -> Chart:
    n_hidden = int(sample.hidden.sum())
    caption = f"{schema.id} {sample.id}: {n_measured(sample) - n_hidden} points seen, {n_hidden} hidden."
    cut, beside = None, "linear interpolation"
    if futures_in(task.masking):
        times = sample.positions[:, 0].double()
        cut = float(times[(times < times[sample.hidden].min()) & ~sample.hidden].max())
        caption, beside = f"{caption} The forecast begins at the dotted line.", "last value"
    drawn = panels(sample, predicted, schema, task, cut=cut)
    cycles, folded, beside_time = Cycles.of(sample, task.schema), [], "phase"
    if cycles is not None:
        caption += _PHASE.format(cycles.period)
        folded = [
            cycles.folded(panel._replace(baseline=NOWHERE))
            for panel in panels(sample, predicted, schema, task, grid=cycles.grid)
        ]
    elif schema.positions:
        beside_time = schema.positions[0]
        folded = panels(sample, predicted, schema, axis=schema.coordinates.index(beside_time))
        caption += _FURTHER.format(_listed(schema.positions), beside_time)
    drawn, folded = (
        [panel._replace(title=value_axis(schema, panel.title)) for panel in part] for part in (drawn, folded)
    )
    figure = charts.reconstruction(
        [dated(panel, schema) for panel in drawn],
        x=time_axis(schema),
        baseline=beside,
        cut=None if cut is None else _moment(cut, schema),
        folded=folded,
        beside=beside_time,
    )
    return Chart(caption=caption + _left_out(schema, sample), figure=figure)


def _listed(names: Sequence[Any]) -> str:
    """Names as a sentence has them."""
    return " and ".join(filter(None, (", ".join(map(str, names[:-1])), str(names[-1]))))


def _moment(time: float, schema: Schema) -> Any:
    """A time as it is read."""
    at = as_read(np.array([time]), schema)[0]
    return str(at) if isinstance(at, np.datetime64) else float(at)


def _left_out(schema: Schema, sample: Sample) -> str:
    """Which channels are not drawn, where there are many."""
    n_drawn, n = len(channels(sample, schema)), len(channels(sample, schema, None))
    return "" if n_drawn == n else f" Of {n} channels the first {n_drawn} are drawn."


def _anomalies(task: MaskedReconstruction, samples: SampleSet, config: PageConfig) -> list[Block]:
    """The most surprising samples among the first, and the most surprising measurements in them."""
    shown = samples[:N_SCORED]
    found = anomaly(task, shown, tokens_per_batch=config.tokens_per_batch)
    table, scores = found.measurements, found.samples["score"].fillna(-np.inf).to_numpy()
    ends = np.cumsum(found.samples["n_measurements"].to_numpy())
    charted: dict[str, Chart] = {}
    for i in np.argsort(-scores, kind="stable")[:N_MARKED].tolist():
        sample, rows = shown[i], table.iloc[ends[i] - found.samples["n_measurements"][i] : ends[i]]
        by_token = {
            name: _by_token(sample, rows[name].to_numpy(), n_measured(sample)) for name in ("score", "lower", "upper")
        }
        panels = [
            charts.Marked(
                value_axis(samples.schema, channel.name),
                sample.positions[:, 0].numpy()[channel.is_here],
                sample.values[:, channel.column].double().numpy()[channel.is_here],
                by_token["score"][channel.is_here, channel.column],
                (
                    by_token["lower"][channel.is_here, channel.column],
                    by_token["upper"][channel.is_here, channel.column],
                ),
                _errors_of(sample, samples.schema, channel),
                are_magnitudes(samples.schema, channel.name),
            )
            for channel in channels(sample, samples.schema)
        ]
        caption = f"{samples.schema.id} {sample.id}: score {scores[i]:.3g}; the larger a point, the more surprising."
        figure, told = _marked(sample, task, panels, number="score", band=f"{LEVEL:.0%} interval")
        charted[str(sample.id)] = Chart(caption=caption + told, figure=figure)
    worst = table.nlargest(N_MARKED, "score")
    names = [name for name in worst.columns if name != "score"]
    rows_shown = [tuple(_cell(row[name]) for name in ["score", *names]) for _, row in worst.iterrows()]
    lead = (
        f"Each measurement of the first {len(shown):,} samples beside what the model expects where it is hidden. The "
        "score is -log10 of its p-value."
    )
    return [Text(text=lead), Choice(label="Sample", charts=charted), Table(columns=("score", *names), rows=rows_shown)]


def _explanations(task: Classification, samples: SampleSet, config: PageConfig) -> list[Block]:
    """What the measurements of the first samples contribute to their predicted classes, and how much channels do."""
    shown = samples[:N_MARKED]
    found = explain(task, shown, tokens_per_batch=config.tokens_per_batch)
    charted: dict[str, Chart] = {}
    start, n_columns = 0, shown[0].values.shape[1]
    for i, sample in enumerate(shown):
        stop = start + len(sample) * n_columns
        contribution = _by_token(sample, found.contributions["contribution"].to_numpy()[start:stop], len(sample))
        start = stop
        panels = [
            charts.Marked(
                value_axis(samples.schema, channel.name),
                sample.positions[:, 0].numpy()[channel.is_here],
                sample.values[:, channel.column].double().numpy()[channel.is_here],
                contribution[channel.is_here, channel.column],
                errors=_errors_of(sample, samples.schema, channel),
                inverted=are_magnitudes(samples.schema, channel.name),
            )
            for channel in channels(sample, samples.schema)
        ]
        target = found.samples["target"][i]
        caption = f"{samples.schema.id} {sample.id}: what speaks for {target} (to the log odds), and against it."
        figure, told = _marked(sample, task, panels, number="contribution", signed=True)
        charted[str(sample.id)] = Chart(caption=caption + told, figure=figure)
    lead = (
        f"Integrated gradients of the predicted class for the first {len(shown):,} samples: contributions add up to "
        "the difference from a sample whose values are all means. They say what the model does, not what causes what."
    )
    blocks: list[Block] = [Text(text=lead), Choice(label="Sample", charts=charted)]
    if len(found.channels) > 1:
        columns = tuple(name.replace("_", " ") for name in found.channels.columns)
        blocks.append(Table(columns=columns, rows=[tuple(map(_cell, row)) for row in found.channels.to_numpy()]))
    return blocks


def _marked(sample: Sample, task: Task, panels: Sequence[charts.Marked], **how: Any) -> tuple[Any, str]:
    """Measurements over time and over the phase or a further axis, and what is to be said of these."""
    schema, cycles = sample.schema, Cycles.of(sample, task.schema)
    dates = [panel._replace(x=as_read(panel.x, schema)) for panel in panels]
    told, how = _left_out(schema, sample), {"x": time_axis(schema), **how}
    if cycles is not None:
        how["folded"] = [cycles.folded_marks(panel) for panel in panels]
        told = _PHASE.format(cycles.period) + told
    elif schema.positions:
        name = how["beside"] = schema.positions[0]
        places = sample.positions[:, schema.coordinates.index(name)].double().numpy()
        shown = zip(panels, channels(sample, schema), strict=True)
        how["folded"] = [panel._replace(x=places[channel.is_here], band=None) for panel, channel in shown]
        told = _FURTHER.format(_listed(schema.positions), name) + told
    return charts.marked(dates, **how), told


def _errors_of(sample: Sample, schema: Schema, channel: Channel) -> Float64[np.ndarray, "m"] | None:
    """The errors of the measurements of a channel, if there are any."""
    errors = measured_errors(sample, schema, channel.column)
    return None if errors is None else errors[channel.is_here]


def _by_token(sample: Sample, rows: Float[np.ndarray, "rows"], n: int) -> Float64[np.ndarray, "n c"]:
    """Numbers of the first n tokens of a sample, one for each value; NaN for the others, which are static facts."""
    whole = np.full(sample.values.shape, np.nan)
    whole[:n] = rows.reshape(n, -1)
    return whole


def _cell(value: Any) -> str:
    if isinstance(value, pd.Timestamp):
        return str(value.round("s"))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _classification(task: Classification, samples: SampleSet) -> list[Block]:
    """Confusion matrix and accuracy, beside that of the majority class."""
    names, truth = class_names(task), _class_names(samples)
    if unknown := sorted(set(truth) - set(names)):
        raise ValueError(f"the data have the class {unknown[0]!r}, which the model does not know: {names}")
    counts = confusion(task, samples, np.array([names.index(name) for name in truth]))
    rows = [
        ("RoMAE", f"{np.trace(counts) / counts.sum():.4g}"),
        ("majority class", f"{counts.sum(axis=1).max() / counts.sum():.4g}"),
    ]
    caption = f"{len(truth):,} samples: true classes in rows, predicted ones in columns."
    drawn = Chart(caption=caption, figure=charts.confusion(counts, names))
    return [drawn, Table(columns=("method", "accuracy"), rows=rows)]


def _labels(task: MultiLabel, samples: SampleSet) -> list[Block]:
    """How each of several labels does, and all of them together."""
    if any(sample.target is None for sample in samples):
        return [Text(text="The data bring no labels to compare with.")]
    scores = score(task, samples, split="test")
    rows = [
        (name, f"{part['n']:.0f}", *(f"{part[one]:.3g}" for one in ("precision", "recall", "f1")))
        for name, part in scores.parts.items()
    ]
    beside = {name: [f"{value:.4g}" for value in other.values()] for name, other in scores.baselines.items()}
    whole = [(NAMES[name], f"{value:.4g}", *beside.get(name, [""])) for name, value in scores.metrics.items()]
    return [
        Table(columns=("metric", "RoMAE", "commonest set of labels"), rows=whole),
        Table(columns=("label", "samples that have it", "precision", "recall", "F1"), rows=rows),
    ]


def _class_names(samples: SampleSet) -> list[str]:
    classes = samples.schema.classes
    if classes is None:
        raise ValueError(f"the data have no classes in column {samples.schema.label!r}; name another with --label")
    return [str(classes[int(sample.target)]) for sample in samples]


def _regression(task: Regression, samples: SampleSet) -> list[Block]:
    """Predicted numbers against true ones, one chart for each target, and the errors beside those of their means."""
    from sklearn.metrics import root_mean_squared_error

    if any(sample.target is None for sample in samples):
        return [Text(text=f"The data bring no numbers for each {task.per} to compare with.")]
    truth = np.concatenate([_truth(task, sample, samples.schema) for sample in samples])
    predictions = inference.predict(task, samples)
    predicted = np.concatenate([np.reshape(rows, (-1, task.n_targets)) for rows in predictions]).astype(np.float64)
    names = _target_names(task, samples.schema.label or "label")
    errors = root_mean_squared_error(truth, predicted, multioutput="raw_values")
    rows = [
        (name, f"{error:.4g}", f"{spread:.4g}")
        for name, error, spread in zip(names, errors, truth.std(axis=0), strict=True)
    ]
    drawn = _agreements(task, samples, truth[:N_DRAWN], predicted[:N_DRAWN], names)
    return [drawn, Table(columns=("number", "RMSE of RoMAE", "RMSE of the mean of these numbers"), rows=rows)]


def _agreements(
    task: Regression,
    samples: SampleSet,
    truth: Float64[np.ndarray, "n k"],
    predicted: Float64[np.ndarray, "n k"],
    names: Sequence[str],
) -> Block:
    ids = [f"{samples.schema.id} {sample.id}" for sample in samples]
    if task.per == "token":
        moments = (as_read(sample.positions[:, 0].double().numpy(), samples.schema) for sample in samples)
        times = ([_as_text(time) for time in row] for row in moments)
        ids = [f"{name}, {samples.schema.time} {time}" for name, row in zip(ids, times, strict=True) for time in row]
    caption = f"One point for each {task.per}, {len(truth):,} in all. On the grey line a prediction is right."
    drawn = {
        name: Chart(caption=caption, figure=charts.agreement(truth[:, i], predicted[:, i], ids[: len(truth)], name))
        for i, name in enumerate(names)
    }
    return choice("Number", drawn)


def _as_text(time: Any) -> str:
    """A time in a hover text: a date to the second, or a number."""
    return str(time.astype("datetime64[s]")).replace("T", " ") if isinstance(time, np.datetime64) else f"{time:.6g}"


def _target_names(task: Regression, label: str) -> list[str]:
    return [label] if task.n_targets == 1 else [f"{label} {i}" for i in range(1, task.n_targets + 1)]


def _truth(task: Regression, sample: Sample, schema: Schema) -> Float64[np.ndarray, "n k"]:
    """The numbers of a sample, one row for itself or for each of its tokens; integers were read as classes."""
    target = sample.target if schema.classes is None else schema.classes[int(sample.target)]
    numbers, n_rows = np.asarray(target, dtype=np.float64), len(sample) if task.per == "token" else 1
    if numbers.size != n_rows * task.n_targets:
        raise ValueError(
            f"the model predicts {task.n_targets} numbers for each {task.per}, but {schema.id} {sample.id} has a label "
            f"of shape {list(numbers.shape)}; name another column with --label"
        )
    return numbers.reshape(n_rows, task.n_targets)


def _calibration(task: Task, samples: SampleSet, config: PageConfig) -> list[Block]:
    """What probabilities promise beside what comes true, for the first samples, before calibration and after."""
    shown = _with_targets(task, samples[:N_JUDGED])
    is_told = isinstance(task, Classification | MultiLabel) or getattr(task, "likelihood", None) is not None
    if shown is None or not is_told or getattr(task, "normalise", False):
        return []
    states = {"as learned": False} if task.calibration is None else {"before": False, "calibrated": True}
    found = {
        name: reliability(task, shown, calibrated=calibrated, seed=config.seed, **config.how)
        for name, calibrated in states.items()
    }
    classes = {name: part for name, part in found.items() if isinstance(part, ClassReliability)}
    if classes:
        drawn = charts.calibration(
            {name: (part.confidence, part.accuracy) for name, part in classes.items()},
            x="mean confidence",
            y="accuracy",
        )
        rows = [(name, f"{part.error:.3g}", f"{part.log_loss:.3g}") for name, part in classes.items()]
        return [
            Chart(caption="Reliability: samples in ten groups by the probability of what is predicted.", figure=drawn),
            Table(columns=("probabilities", "calibration error", "log loss"), rows=rows),
        ]
    numbers = {name: part for name, part in found.items() if isinstance(part, NumberReliability)}
    pit = {name: part.pit for name, part in numbers.items()}
    curves = {name: (part.levels, part.coverage) for name, part in numbers.items()}
    caption = f"Central intervals on {next(iter(numbers.values())).n:,} samples: how many of the numbers lie within."
    return [
        Chart(caption=caption, figure=charts.calibration(curves, x="level of the interval", y="coverage")),
        Chart(caption="Where the true numbers lie in what was predicted.", figure=charts.pit_histogram(pit)),
        _coverage_table(numbers),
    ]


def _coverage_table(numbers: Mapping[str, NumberReliability]) -> Table:
    """Coverage and mean width of the intervals of 50 to 95 %, then of those of 90 % in each channel."""
    first = next(iter(numbers.values()))
    rows = []
    for i, level in enumerate(first.levels):
        cells = [f"{x:.3g}" for part in numbers.values() for x in (part.coverage[i], part.width[i])]
        rows.append((f"{level:.0%}", *cells))
    at = first.levels.index(0.9)
    for name in first.parts if len(first.parts) > 1 else ():
        parts = [part.parts[name] for part in numbers.values()]
        rows.append(
            (f"90% of {name}", *(f"{x:.3g}" for part in parts for x in (part["coverage"][at], part["width"][at])))
        )
    columns = [f"{what}, {name}" for name in numbers for what in ("coverage", "mean width")]
    return Table(columns=("interval", *columns), rows=rows)


def _with_targets(task: Task, samples: SampleSet) -> SampleSet | None:
    """The samples with the targets that the task has learned, if they have any; pre-training needs none."""
    if isinstance(task, MaskedReconstruction):
        several = [sample for sample in samples if n_measured(sample) > 1]
        return SampleSet(several, samples.schema) if several else None
    if any(sample.target is None for sample in samples):
        return None
    if isinstance(task, Classification):
        names = class_names(task)
        index = [names.index(name) for name in _class_names(samples)]
        relabelled = [replace(sample, target=i) for sample, i in zip(samples, index, strict=True)]
    elif isinstance(task, Regression):
        rows = [_truth(task, sample, samples.schema) for sample in samples]
        relabelled = [
            replace(sample, target=row if task.per == "token" else row[0])
            for sample, row in zip(samples, rows, strict=True)
        ]
    else:
        return samples if isinstance(task, MultiLabel) else None
    return SampleSet(relabelled, replace(samples.schema, classes=None))


def _embeddings(task: Task, samples: SampleSet) -> list[Block]:
    """A map of the first samples, coloured by class where the table has classes."""
    shown = samples[:N_DRAWN]
    points = principal_components(inference.embed(task, shown))
    has_classes = shown.schema.label is not None and shown.schema.classes is not None
    groups = np.array(_class_names(shown)) if has_classes else None
    caption = f"The embeddings of {len(shown):,} samples: their first two principal components (PCA)."
    return [Chart(caption=caption, figure=charts.embedding(points, [sample.id for sample in shown], groups))]

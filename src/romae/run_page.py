"""The page of one run: its losses, its settings and, given a table, what its model says about it.

Reconstructions hide some points of a series from the model and show what it predicts there; a classifier shows its
confusion matrix, a regression its numbers beside the true ones; every model shows a map of its embeddings.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float

from romae import baselines, charts, inference, metrics, page
from romae.answers import InferenceConfig
from romae.checkpoint import read_json
from romae.config import flat, from_dict
from romae.data.scaling import channel_index
from romae.data.series import SampleSet, Schema
from romae.jobs import JOB, SplitConfig, load_model, read_samples, require_fit, split
from romae.page import Block, Choice, Section, Table, Text
from romae.plots import Panel
from romae.tasks import Classification, MaskedReconstruction, Regression, Task
from romae.tokens import Sample

N_SHOWN, N_CHANNELS, N_MAPPED, N_TIMES = 12, 4, 2000, 200


@dataclass(frozen=True, slots=True, kw_only=True)
class PageConfig(InferenceConfig):
    """What a page is told. `ratio` is the share of a series' points to hide, chosen by `seed`.

    `samples="kept out"` shows the ids alone that the run did not train on; it needs the table that the run was made
    from.
    """

    label: str | None = None
    samples: Literal["all", "kept out"] = "all"
    ratio: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.ratio < 1:
            raise ValueError(f"ratio is the share of points to hide, between 0 and 1, not {self.ratio}")


def write(
    run: str | Path, *, data: Any = None, config: PageConfig | None = None, out: str | Path | None = None
) -> Path:
    """Write the page of a run, `page.html` in its folder unless told otherwise, and return where it is.

    `data` is whatever `from_table` reads.
    """
    folder = Path(run)
    stages = sorted(folder.rglob("history.jsonl"))
    if not stages:
        raise ValueError(f"{folder} is not the folder of a run: it holds no history.jsonl, which every run writes")
    sections = [_training(stage, folder) for stage in stages]
    if data is not None:
        sections += _answers(folder, data, config or PageConfig())
    sections += [_settings(stage.parent, folder) for stage in stages]
    return page.write(out or folder / "page.html", f"Run {folder.resolve().name}", sections)


def principal_components(rows: Float[np.ndarray, "b w"]) -> Float[np.ndarray, "b 2"]:
    """The plane in which the rows differ most."""
    from sklearn.decomposition import PCA

    if min(rows.shape) < 2:
        return np.pad(rows[:, :1] - rows[:, :1].mean(), ((0, 0), (0, 1)))
    return PCA(2, svd_solver="full").fit_transform(rows.astype(np.float64))


def _training(history: Path, folder: Path) -> Section:
    try:
        records = [json.loads(line) for line in history.read_text().splitlines()]
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{history} is torn or was altered: {error}") from None
    if not records:
        return Section(title=_title("Training", history.parent, folder), blocks=[Text(text="No report yet.")])
    last = records[-1]
    best = min((one["validation"] for one in records if one.get("validation") is not None), default=None)
    kept_out = "" if best is None else f", at best {best:.4g} in validation"
    told = f"{last['step']:,} steps, {last['epoch']:,} epochs: loss {last['loss']:.4g}{kept_out}."
    return Section(title=_title("Training", history.parent, folder), blocks=[charts.losses(records, told)])


def _settings(stage: Path, folder: Path) -> Section:
    """The settings of the job where there was one, else those of its training."""
    path = stage / JOB if (stage / JOB).is_file() else stage / "config.json"
    rows = [(name, json.dumps(value)) for name, value in flat(read_json(path))]
    return Section(title=_title("Settings", stage, folder), blocks=[Table(columns=("setting", "value"), rows=rows)])


def _title(word: str, stage: Path, folder: Path) -> str:
    return word if stage == folder else f"{word}: {stage.relative_to(folder)}"


def _answers(folder: Path, data: Any, config: PageConfig) -> list[Section]:
    """What the model of a run says about a table."""
    task = load_model(folder).cpu()
    known = task.schema or Schema()
    label = config.label or known.label
    schema = replace(config.columns.schema(known), label=label, classes=None)
    require_fit(task, schema, f"the model in {folder}")
    samples = read_samples(data, schema, task.schema)
    origin = f"All {len(samples):,} ids of the table. If the model was trained on them, this flatters it."
    if config.samples == "kept out":
        samples = _kept_out(samples, folder)
        origin = f"The {len(samples):,} ids of the table that the run kept out of training."
    sections = []
    if isinstance(task, MaskedReconstruction):
        sections.append(Section(title="Reconstructions", blocks=_reconstructions(task, samples, config)))
    elif isinstance(task, Classification):
        sections.append(Section(title="Classes", blocks=_classes(task, samples)))
    elif isinstance(task, Regression) and task.per == "sample" and task.n_targets == 1:
        sections.append(Section(title="Numbers", blocks=_numbers(task, samples, label or "label")))
    sections.append(Section(title="Embeddings", blocks=_embeddings(task, samples)))
    return [replace(one, blocks=[Text(text=origin, is_aside=True), *one.blocks]) for one in sections]


def _kept_out(samples: SampleSet, folder: Path) -> SampleSet:
    if not (folder / JOB).is_file():
        raise ValueError(f"{folder} holds no {JOB}, so that nobody knows what was kept out; show all samples")
    told = from_dict(SplitConfig, read_json(folder / JOB)["validation"])
    validation = split(samples, told)[1]
    if validation is None:
        raise ValueError("the run kept nothing out of training (validation.share=0); show all samples")
    return validation


def _reconstructions(task: MaskedReconstruction, samples: SampleSet, config: PageConfig) -> list[Block]:
    """The first samples with some of their points hidden, and the error at those beside two simple methods."""
    if task.normalise:
        return [
            Text(text="The model predicts normalised patches, so that it cannot be asked in the units of the data.")
        ]
    random = np.random.default_rng(config.seed)
    several = [one for one in samples if len(one) > 1]
    hiding = [replace(one, hidden=_hidden(len(one), config.ratio, random), target=None) for one in several]
    if not hiding:
        return [Text(text="Every sample has a single point, so that none can be hidden.")]
    chosen = SampleSet(hiding, samples.schema)
    predicted = list(inference.predict(task, chosen, tokens_per_batch=config.tokens_per_batch))
    blocks: list[Block] = [_errors(chosen, predicted)] if samples.schema.position_dims <= 2 else []
    shown = SampleSet(hiding[:N_SHOWN], samples.schema)
    drawn = {}
    for sample, answer in zip(shown, predicted, strict=False):
        drawn[str(sample.id)] = _reconstruction(task, sample, answer, samples.schema)
    return [Choice(label="Sample", charts=drawn), *blocks]


def _hidden(n: int, ratio: float, random: np.random.Generator) -> Bool[np.ndarray, "n"]:
    """True on a share of the points; at least one is hidden and one is seen."""
    hidden = np.zeros(n, dtype=bool)
    hidden[random.permutation(n)[: min(max(round(ratio * n), 1), n - 1)]] = True
    return hidden


def _errors(samples: SampleSet, predicted: Sequence[np.ndarray]) -> Table:
    truth = np.concatenate([baselines.truth(sample) for sample in samples])
    errors = {"RoMAE": metrics.rmse(np.concatenate(predicted), truth)}
    average = float(np.concatenate([one.values[~one.hidden].numpy() for one in samples]).mean())
    for name, method in (("linear interpolation", baselines.linear), ("mean of the series", baselines.mean)):
        filled = np.concatenate([baselines.fill(method, sample, default=average) for sample in samples])
        errors[name] = metrics.rmse(filled, truth)
    rows = [(name, f"{value:.4g}") for name, value in errors.items()]
    return Table(columns=("method", "RMSE at hidden points, all samples"), rows=rows)


def _reconstruction(
    task: MaskedReconstruction, sample: Sample, predicted: Float[np.ndarray, "m c"], schema: Schema
) -> page.Chart:
    """One sample, its first channels one above the other, with the model's curve where time is the only other axis."""
    positions, values = sample.positions.double().numpy(), sample.values.double().numpy()
    hidden, rows = sample.hidden.numpy(), np.full(sample.values.shape, np.nan)
    rows[hidden] = predicted
    grid = np.linspace(positions[:, 0].min(), positions[:, 0].max(), N_TIMES)
    found = []
    for name, is_here, column, queries in _channels(sample, schema, grid):
        curve: tuple[np.ndarray, np.ndarray] = (np.zeros(0), np.zeros(0))
        if not schema.positions:
            answer = inference.interpolate(task, SampleSet([sample], schema), [queries])[0]
            curve = (grid, answer[:, column])
        seen, unseen = is_here & ~hidden, is_here & hidden
        observed, truth = ((positions[one, 0], values[one, column]) for one in (seen, unseen))
        panel = Panel(name, observed, truth, curve, (np.zeros(0), np.zeros(0)))
        found.append(charts.Reconstruction(panel, rows[unseen, column]))
    unit = "" if schema.time_unit is None else f" ({schema.time_unit}s since 1970)"
    caption = f"{schema.id} {sample.id}: {int((~hidden).sum())} points seen, {int(hidden.sum())} hidden."
    return charts.reconstruction(found, x=f"{schema.time}{unit}", caption=caption)


def _channels(
    sample: Sample, schema: Schema, grid: Float[np.ndarray, "k"]
) -> list[tuple[str, Bool[np.ndarray, "n"], int, Float[np.ndarray, "k d"]]]:
    """The first channels of a sample: name, where it is measured, column of values, and where to ask for its curve."""
    if schema.channel is None:
        everywhere = np.ones(len(sample), dtype=bool)
        return [(name, everywhere, i, grid[:, None]) for i, name in enumerate(schema.values[:N_CHANNELS])]
    index = channel_index(sample.positions, len(schema.channels)).numpy()
    return [
        (str(schema.channels[i]), index == i, 0, np.stack([grid, np.full_like(grid, i)], axis=1))
        for i in np.unique(index)[:N_CHANNELS].tolist()
    ]


def _classes(task: Classification, samples: SampleSet) -> list[Block]:
    """Confusion matrix and accuracy, beside what the commonest class would give."""
    names = np.array([str(name) for name in (task.schema or Schema()).classes or range(task.n_classes)])
    truth = _class_names(samples)
    if strangers := sorted(set(truth) - set(names.tolist())):
        raise ValueError(f"the table has the class {strangers[0]!r}, which the model does not know: {names.tolist()}")
    chosen = inference.predict_proba(task, samples).argmax(1)
    true = np.array([names.tolist().index(name) for name in truth])
    counts = metrics.confusion(chosen, true, len(names))
    rows = [
        ("RoMAE", f"{metrics.accuracy(chosen, true):.4g}"),
        ("the commonest class", f"{counts.sum(axis=1).max() / len(true):.4g}"),
    ]
    caption = f"{len(true):,} samples: true classes in rows, predicted ones in columns."
    drawn = charts.confusion(counts, names.tolist(), caption)
    return [drawn, Table(columns=("method", "accuracy"), rows=rows)]


def _class_names(samples: SampleSet) -> list[str]:
    classes = samples.schema.classes
    if classes is None:
        raise ValueError(f"the table has no classes in column {samples.schema.label!r}; name another with --label")
    return [str(classes[int(sample.target)]) for sample in samples]


def _numbers(task: Regression, samples: SampleSet, label: str) -> list[Block]:
    """Predicted numbers against true ones, and the error beside that of their mean."""
    truth = np.array([float(_number(sample, samples.schema)) for sample in samples])
    predicted = np.asarray(inference.predict(task, samples), dtype=np.float64)
    rows = [
        ("RoMAE", f"{metrics.rmse(predicted, truth):.4g}"),
        ("the mean of these numbers", f"{truth.std():.4g}"),
    ]
    drawn = charts.agreement(truth, predicted, [one.id for one in samples], label, f"{len(truth):,} samples.")
    return [drawn, Table(columns=("method", "RMSE"), rows=rows)]


def _number(sample: Sample, schema: Schema) -> Any:
    """The label of a sample; integers were read as classes."""
    return sample.target if schema.classes is None else schema.classes[int(sample.target)]


def _embeddings(task: Task, samples: SampleSet) -> list[Block]:
    """A map of the first samples, coloured by class where the table has classes."""
    shown = samples[:N_MAPPED]
    points = principal_components(np.asarray(inference.embed(task, shown)))
    has_classes = shown.schema.label is not None and shown.schema.classes is not None
    groups = np.array(_class_names(shown)) if has_classes else None
    caption = f"The embeddings of {len(shown):,} samples in the plane in which they differ most."
    return [charts.embedding_map(points, [one.id for one in shown], groups, caption)]

"""Diagnostics: what a trained task predicts for samples, as small arrays that a result can keep and a page can draw.

A classification has its confusion matrix, a regression its numbers beside the true ones, a masked reconstruction a few
samples with their hidden points; every task has the first two principal components of its embeddings. Shapes: b
samples, n tokens, m of them hidden, c channels.
"""

from collections.abc import Container, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int64

from romae.data.schema import SampleSet, Schema, measured_values
from romae.data.subsets import balanced, evenly_spread
from romae.inference import baselines
from romae.inference.interpolation import interpolate
from romae.inference.predictions import embed, predict, predict_proba
from romae.model.tasks import Classification, MaskedReconstruction, Regression, Task
from romae.pages.plots import Band, Panel
from romae.tokens.sample import Sample
from romae.tokens.tokens import channel_index

N_CLASSES, N_NUMBERS, N_EMBEDDED = 60, 500, 300
BANDS = (0.9, 0.5)  # levels of central intervals, the widest first
N_SAMPLES, N_CHANNELS, N_POINTS, N_TIMES = 6, 4, 400, 200


class Channel(NamedTuple):
    """A channel of one sample: its name and number, where it is measured, and its column among the values."""

    name: str
    number: int
    is_here: Bool[np.ndarray, "n"]
    column: int


def diagnose(
    task: Task, samples: Sequence[Sample], *, with_examples: bool, without: Container[str] = ()
) -> dict[str, Any]:
    """The diagnostics of a task by their names, `without` those that somebody else has.

    Examples are single samples and points, which one seed of several is enough for.
    """
    diagnostics: dict[str, Any] = {}
    if isinstance(task, Classification) and task.n_classes <= N_CLASSES and "confusion" not in without:
        truth = np.array([int(sample.target) for sample in samples])
        diagnostics["confusion"] = {"classes": class_names(task), "counts": confusion(task, samples, truth)}
    if not with_examples:
        return diagnostics
    if isinstance(task, Regression):
        diagnostics["agreement"] = _agreement(task, samples)
    elif isinstance(task, MaskedReconstruction) and not task.normalise:
        diagnostics["reconstructions"] = _reconstructions(task, samples)
    diagnostics["embeddings"] = _embeddings(task, samples)
    return {name: part for name, part in diagnostics.items() if part}


def confusion(
    task: Classification, samples: Sequence[Sample], truth: Int64[np.ndarray, "b"]
) -> Int64[np.ndarray, "k k"]:
    """How many samples of each true class (rows) were taken for each class (columns)."""
    from sklearn.metrics import confusion_matrix

    return confusion_matrix(truth, predict_proba(task, samples).argmax(1), labels=range(task.n_classes))


def class_names(task: Classification) -> list[str]:
    """The names of the classes, or else their numbers."""
    classes = None if task.schema is None else task.schema.classes
    return [str(name) for name in (range(task.n_classes) if classes is None else classes)]


def principal_components(embeddings: Any) -> Float[np.ndarray, "b 2"]:
    """Rows in the plane of their first two principal components."""
    from sklearn.decomposition import PCA

    rows = np.asarray(embeddings, dtype=np.float64)
    if min(rows.shape) < 2:
        return np.pad(rows[:, :1] - rows[:, :1].mean(), ((0, 0), (0, 1)))
    return PCA(2, svd_solver="full").fit_transform(rows)


def panels(
    sample: Sample,
    predicted: Float[np.ndarray, "m c"],
    schema: Schema | None,
    task: MaskedReconstruction | None = None,
    *,
    cut: float | None = None,
) -> list[Panel]:
    """The first channels of a sample with its observed points, its hidden ones, and what was predicted there.

    With a task, and with no position beside the time, there are also the curve of the model and that of linear
    interpolation, and bands of a model with a likelihood; with a cut both curves begin there, and the latter is the
    last value.
    """
    times, hidden = sample.positions[:, 0].numpy(), sample.hidden.numpy()
    values = measured_values(sample).double().numpy()
    truth, prediction = np.full(values.shape, np.nan), np.full(values.shape, np.nan)
    truth[hidden], prediction[hidden] = baselines.truth(sample), predicted
    grid = np.linspace(
        times.min() if cut is None else cut, times.max() if cut is None else times[hidden].max(), N_TIMES
    )
    method = baselines.linear if cut is None else baselines.last_value
    drawn = []
    for name, number, is_here, column in channels(sample, schema):
        seen, unseen = is_here & ~hidden, is_here & hidden
        observed, queried = (times[seen], values[seen, column]), (times[unseen], truth[unseen, column])
        panel = Panel(name, observed, queried, predicted=(times[unseen], prediction[unseen, column]))
        if task is not None and schema is not None and not schema.positions:
            queries = grid[:, None] if schema.channel is None else np.stack([grid, np.full_like(grid, number)], axis=1)
            curve, bands = _curve(task, SampleSet([sample], schema), queries, column)
            panel = panel._replace(curve=(grid, curve), bands=tuple(Band(level, grid, *ends) for level, ends in bands))
            if seen.any():
                line = method(times[seen], values[seen], grid)[:, column]
                panel = panel._replace(baseline=(grid, line))
        drawn.append(panel)
    return drawn


def _curve(
    task: MaskedReconstruction, sample: SampleSet, queries: Float[np.ndarray, "q d"], column: int
) -> tuple[Float[np.ndarray, "q"], list[tuple[float, tuple[Float[np.ndarray, "q"], Float[np.ndarray, "q"]]]]]:
    """What a model answers at positions of one sample, and its central intervals if it says how sure it is."""
    if task.likelihood is None:
        return interpolate(task, sample, [queries])[0][:, column], []
    told = interpolate(task, sample, [queries], returns="distribution")[0][:, column]
    return told.mean(), [(level, told.interval(level)) for level in BANDS]


def channels(sample: Sample, schema: Schema | None) -> list[Channel]:
    """The first channels of a sample, whether they share its tokens or each has its own."""
    if schema is not None and schema.channel is not None:
        index = channel_index(sample.positions, len(schema.kind_names)).numpy()
        first = np.unique(index[index < len(schema.channels)])[:N_CHANNELS].tolist()  # static facts have no curve
        return [Channel(str(schema.channels[i]), i, index == i, 0) for i in first]
    n_columns, everywhere = measured_values(sample).shape[1], np.ones(len(sample), dtype=bool)
    names = schema.values if schema is not None and len(schema.values) == n_columns else _numbered(n_columns)
    return [Channel(name, i, everywhere, i) for i, name in enumerate(names[:N_CHANNELS])]


def _agreement(task: Regression, samples: Sequence[Sample]) -> dict[str, Any]:
    """Numbers of some samples, or of all their tokens: one row for each target."""
    shown = [samples[i] for i in evenly_spread(len(samples), N_NUMBERS)]
    truth = np.concatenate([sample.target.double().numpy().reshape(-1, task.n_targets) for sample in shown])
    predicted = np.concatenate([np.reshape(prediction, (-1, task.n_targets)) for prediction in predict(task, shown)])
    rows = evenly_spread(len(truth), N_NUMBERS)
    return {"truth": truth[rows, :N_CHANNELS].T, "predicted": predicted[rows, :N_CHANNELS].T}


def _reconstructions(task: MaskedReconstruction, samples: Sequence[Sample]) -> list[dict[str, Any]]:
    """The first samples with what was seen, what was hidden, and what was predicted there, against their first axis."""
    has_time = task.config.position_dims == (1 if task.schema is None else task.schema.position_dims)
    shown = [samples[i] for i in range(min(N_SAMPLES, len(samples)))]
    if not has_time or any(sample.hidden is None or len(sample) > N_POINTS for sample in shown):
        return []
    reconstructions = []
    for i, (sample, prediction) in enumerate(zip(shown, predict(task, shown), strict=True)):
        name = str(sample.id if isinstance(sample.id, str | int) else i)
        reconstructions.append(
            {"name": name, "channels": [_points(panel) for panel in panels(sample, prediction, task.schema)]}
        )
    return reconstructions


def _points(panel: Panel) -> dict[str, Any]:
    return {
        "title": panel.title,
        "observed": list(panel.observed),
        "hidden": list(panel.hidden),
        "predicted": panel.predicted[1],  # at the times of the hidden ones
    }


def _embeddings(task: Task, samples: Sequence[Sample]) -> dict[str, Any]:
    if not isinstance(task, Classification) or task.n_classes > N_CLASSES:
        shown = [samples[i] for i in evenly_spread(len(samples), N_EMBEDDED)]
        return {"points": principal_components(embed(task, shown))}
    names, classes = class_names(task), np.array([int(sample.target) for sample in samples])
    chosen = balanced(classes, N_EMBEDDED)
    points = principal_components(embed(task, [samples[i] for i in chosen]))
    return {"points": points, "groups": [names[i] for i in classes[chosen]]}


def _numbered(n: int) -> tuple[str, ...]:
    return ("value",) if n == 1 else tuple(f"value {i}" for i in range(1, n + 1))

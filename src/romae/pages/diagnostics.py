"""Diagnostics: what a trained task predicts for samples, as small arrays that a result can keep and a page can draw.

A classification has its confusion matrix, a regression its numbers beside the true ones, a masked reconstruction a few
samples with their hidden points; every task has the first two principal components of its embeddings. Shapes: b
samples, n tokens, m of them hidden, c channels.
"""

import re
from collections.abc import Container, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float64, Int64, Shaped

from romae.data.dates import dates_from_numbers
from romae.data.periods import columns_with_errors
from romae.data.schema import SampleSet, Schema, measured_values
from romae.data.subsets import balanced, evenly_spread
from romae.inference import baselines
from romae.inference.interpolation import interpolate
from romae.inference.predictions import embed, predict, predict_proba
from romae.inference.zero import is_in_own_units
from romae.model.tasks import Classification, MaskedReconstruction, Regression, Task
from romae.pages.plots import NOWHERE, Band, Panel
from romae.tokens.sample import Sample
from romae.tokens.tokens import channel_index

N_CLASSES, N_NUMBERS, N_EMBEDDED = 60, 500, 300
BANDS = (0.9, 0.5)  # levels of central intervals, the widest first
N_SAMPLES, N_CHANNELS, N_POINTS, N_TIMES = 6, 4, 400, 200
_MAGNITUDES = re.compile(r"(^|[^a-z])(magnitudes?|mags?|magpsf|psfmag)([^a-z]|$)")


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
    predicted: Float[np.ndarray, "m c"] | None,
    schema: Schema | None,
    task: MaskedReconstruction | None = None,
    *,
    cut: float | None = None,
    grid: Float[np.ndarray, "q"] | None = None,
    most: int | None = N_CHANNELS,
    axis: int = 0,
) -> list[Panel]:
    """The first channels of a sample with its observed points, its hidden ones, and what was predicted there.

    With a task, and with no position beside the time, there are also the curve of the model and that of linear
    interpolation, and bands of a model with a likelihood; with a cut both curves begin there, and the latter is the
    last value. Curves go over the times of the `grid`, or else over the whole sample. With `most=None` all channels are
    there. Points lie along another `axis` than time where one is given, without curves.
    """
    times, values = sample.positions[:, axis].numpy(), measured_values(sample).double().numpy().copy()
    hidden = np.zeros(len(sample), dtype=bool) if sample.hidden is None else sample.hidden.numpy()
    prediction = np.full(values.shape, np.nan)
    if predicted is not None:
        values[hidden], prediction[hidden] = baselines.truth(sample), predicted
    if grid is None:
        begin, end = (times.min(), times.max()) if cut is None else (cut, times[hidden].max())
        grid = np.linspace(begin, end, N_TIMES)
    method = baselines.linear if cut is None else baselines.last_value
    drawn, parts = [], channels(sample, schema, most)
    has_curves = task is not None and schema is not None and not schema.positions and axis == 0
    for name, _, is_here, column in parts:
        seen, unseen = is_here & ~hidden, is_here & hidden
        panel = Panel(
            name,
            (times[seen], values[seen, column]),
            (times[unseen], values[unseen, column]),
            predicted=NOWHERE if predicted is None else (times[unseen], prediction[unseen, column]),
        )
        panel = panel._replace(inverted=are_magnitudes(schema, name))
        if (errors := measured_errors(sample, schema, column)) is not None:
            panel = panel._replace(errors=(errors[seen], errors[unseen]))
        if has_curves and seen.any():
            panel = panel._replace(baseline=(grid, method(times[seen], values[seen], grid)[:, column]))
        drawn.append(panel)
    if task is None or schema is None or not has_curves or not drawn:
        return drawn
    curves = _curves(task, SampleSet([sample], schema), grid, parts)
    return [
        panel._replace(curve=(grid, curve), bands=tuple(Band(level, grid, *ends) for level, ends in bands))
        for panel, (curve, bands) in zip(drawn, curves, strict=True)
    ]


def _curves(
    task: MaskedReconstruction, sample: SampleSet, grid: Float[np.ndarray, "q"], parts: Sequence[Channel]
) -> list[tuple[Float[np.ndarray, "q"], list[tuple[float, tuple[Float[np.ndarray, "q"], Float[np.ndarray, "q"]]]]]]:
    """What a model answers over time for channels of one sample, and its central intervals if it says how sure it is.

    All channels are asked at once, so that the sample is encoded once.
    """
    queries = grid[:, None]
    if sample.schema.channel is not None:
        queries = np.concatenate([np.column_stack([grid, np.full_like(grid, part.number)]) for part in parts])
    n = len(grid)
    rows = [
        (slice(None) if sample.schema.channel is None else slice(i * n, (i + 1) * n), part.column)
        for i, part in enumerate(parts)
    ]
    if task.likelihood is None:
        values = interpolate(task, sample, [queries])[0]
        return [(values[place], []) for place in rows]
    told = interpolate(task, sample, [queries], returns="distribution")[0]
    centre = told.median() if is_in_own_units(task) else told.mean()  # as point answers of such a model are
    intervals = [(level, told.interval(level)) for level in BANDS]
    return [
        (centre[place], [(level, (lower[place], upper[place])) for level, (lower, upper) in intervals])
        for place in rows
    ]


def channels(sample: Sample, schema: Schema | None, most: int | None = N_CHANNELS) -> list[Channel]:
    """The first channels of a sample, or all, whether they share its tokens or each has its own."""
    if schema is not None and schema.channel is not None:
        index = channel_index(sample.positions, len(schema.kind_names)).numpy()
        first = np.unique(index[index < len(schema.channels)])[:most].tolist()  # static facts have no curve
        return [Channel(str(schema.channels[i]), i, index == i, 0) for i in first]
    n_columns, everywhere = measured_values(sample).shape[1], np.ones(len(sample), dtype=bool)
    names = schema.values if schema is not None and len(schema.values) == n_columns else _numbered(n_columns)
    return [Channel(name, i, everywhere, i) for i, name in enumerate(names[:most])]


def measured_errors(sample: Sample, schema: Schema | None, column: int) -> Float64[np.ndarray, "n"] | None:
    """The errors of a column of values, NaN where they are not known; None where there is no column of them.

    They stand behind the values, or are a column that is called like errors, such as flux_err beside flux.
    """
    if schema is None:
        return None
    place = dict(columns_with_errors(schema.values, None)).get(column)
    if schema.n_errors:
        place = len(schema.values) + column
    if place is None or place >= sample.values.shape[1]:
        return None
    errors = sample.values[:, place].double().numpy()
    return np.where(errors > 0, errors, np.nan)


def are_magnitudes(schema: Schema | None, channel: str) -> bool:
    """Whether the values of a channel are magnitudes, of which small ones are bright: the names of columns say so."""
    if schema is None:
        return _says_magnitudes(channel)
    if schema.channel is not None and _says_magnitudes(schema.values[0]):
        return True
    names = [str(name) for name in (schema.values if schema.channel is None else schema.channels)]
    no_errors = [names[i] for i, _ in columns_with_errors(names, None)]  # mag_err beside mag is no magnitude
    return _says_magnitudes(channel) and channel in no_errors


def _says_magnitudes(name: str) -> bool:
    return _MAGNITUDES.search(name.lower()) is not None


def time_axis(schema: Schema) -> str:
    """What the axis of time is called, with the unit of durations and the zone of dates."""
    told = f"{schema.time_unit}s" if schema.durations else schema.time_zone
    return schema.time if schema.time_unit is None or told is None else f"{schema.time} ({told})"


def value_axis(schema: Schema, channel: str) -> str:
    """What the axis of a channel's values is called: what was measured, and in which channel."""
    says_nothing = schema.channel is None or schema.values[0].lower() in ("value", "values")
    return channel if says_nothing else f"{schema.values[0]}, {channel}"


def as_read(times: Shaped[np.ndarray, "m"], schema: Schema) -> Shaped[np.ndarray, "m"]:
    """Times as they are read: dates in their own zone where they were dates."""
    if schema.time_unit is None or schema.durations:
        return times
    dates = dates_from_numbers(np.asarray(times, dtype=np.float64), schema.time_unit, schema.time_zone)
    return (dates if dates.tz is None else dates.tz_localize(None)).to_numpy()


def dated(panel: Panel, schema: Schema) -> Panel:
    """A panel over time with its dates as they are read."""
    parts = {name: getattr(panel, name) for name in ("observed", "hidden", "curve", "baseline", "predicted")}
    bands = tuple(band._replace(times=as_read(band.times, schema)) for band in panel.bands)
    as_dates: dict[str, Any] = {name: (as_read(x, schema), y) for name, (x, y) in parts.items()}
    return panel._replace(bands=bands, **as_dates)


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

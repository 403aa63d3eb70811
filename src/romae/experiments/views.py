"""Views: what a trained task says about samples, as small arrays that a result can hold and a page can draw.

A classification has its confusion matrix, a regression its numbers beside the true ones, a masked reconstruction a few
samples with their hidden points; every task has a map of its embeddings. Shapes: b samples, n tokens, m of them hidden,
c channels.
"""

from collections.abc import Container, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int64

from romae.data.schema import Schema
from romae.experiments import baselines
from romae.inference import predictions as inference
from romae.model.tasks import Classification, MaskedReconstruction, Regression, Task
from romae.tokens.sample import Sample
from romae.tokens.tokens import channel_index

N_CLASSES, N_NUMBERS, N_MAPPED = 60, 500, 300
N_SHOWN, N_CHANNELS, N_POINTS = 6, 4, 400


class Channel(NamedTuple):
    """A channel of one sample: its name and number, where it is measured, and its column among the values."""

    name: str
    number: int
    is_here: Bool[np.ndarray, "n"]
    column: int


def of(task: Task, samples: Sequence[Sample], *, with_examples: bool, without: Container[str] = ()) -> dict[str, Any]:
    """The views of a task, `without` those that somebody else has.

    Examples are single samples and points, which one seed of several is enough for.
    """
    found: dict[str, Any] = {}
    if isinstance(task, Classification) and task.n_classes <= N_CLASSES and "confusion" not in without:
        found["confusion"] = _confusion(task, samples)
    if not with_examples:
        return found
    if isinstance(task, Regression):
        found["agreement"] = _agreement(task, samples)
    elif isinstance(task, MaskedReconstruction) and not task.normalise:
        found["reconstructions"] = _reconstructions(task, samples)
    found["embeddings"] = _embeddings(task, samples)
    return {name: view for name, view in found.items() if view}


def channels(sample: Sample, schema: Schema | None) -> list[Channel]:
    """The first channels of a sample, whether they share its tokens or each has its own."""
    if schema is not None and schema.channel is not None:
        index = channel_index(sample.positions, len(schema.channels)).numpy()
        first = np.unique(index)[:N_CHANNELS].tolist()
        return [Channel(str(schema.channels[i]), i, index == i, 0) for i in first]
    n_columns, everywhere = sample.values.shape[1], np.ones(len(sample), dtype=bool)
    names = schema.values if schema is not None and len(schema.values) == n_columns else _numbered(n_columns)
    return [Channel(name, i, everywhere, i) for i, name in enumerate(names[:N_CHANNELS])]


def class_names(task: Classification) -> list[str]:
    """The names of the classes, or else their numbers."""
    known = None if task.schema is None else task.schema.classes
    return [str(name) for name in (range(task.n_classes) if known is None else known)]


def principal_components(rows: Float[np.ndarray, "b w"]) -> Float[np.ndarray, "b 2"]:
    """The plane in which the rows differ most."""
    from sklearn.decomposition import PCA

    if min(rows.shape) < 2:
        return np.pad(rows[:, :1] - rows[:, :1].mean(), ((0, 0), (0, 1)))
    return PCA(2, svd_solver="full").fit_transform(rows.astype(np.float64))


def spread(n: int, n_wanted: int) -> list[int]:
    """Up to so many numbers from 0 to n - 1, evenly spread, the first and the last among them."""
    return np.unique(np.linspace(0, n - 1, min(n, n_wanted)).round().astype(int)).tolist()


def rank_in_class(classes: Int64[np.ndarray, "b"]) -> Int64[np.ndarray, "b"]:
    """How many of the samples before it have the class of a sample."""
    order, counts = np.argsort(classes, kind="stable"), np.bincount(classes)
    ranks = np.empty_like(classes)
    ranks[order] = np.arange(len(classes)) - np.repeat(np.cumsum(counts) - counts, counts)
    return ranks


def balanced(classes: Int64[np.ndarray, "b"], n_wanted: int) -> list[int]:
    """Up to so many samples, as many of each class as there are, or as of the others."""
    return np.sort(np.argsort(rank_in_class(classes), kind="stable")[:n_wanted]).tolist()


def _confusion(task: Classification, samples: Sequence[Sample]) -> dict[str, Any]:
    from sklearn.metrics import confusion_matrix

    chosen = inference.predict_proba(task, samples).argmax(1)
    truth = np.array([int(sample.target) for sample in samples])
    counts = confusion_matrix(truth, chosen, labels=np.arange(task.n_classes))
    return {"classes": class_names(task), "counts": counts}


def _agreement(task: Regression, samples: Sequence[Sample]) -> dict[str, Any]:
    """Numbers of some samples, or of all their tokens: one row for each target."""
    chosen = [samples[i] for i in spread(len(samples), N_NUMBERS)]
    truth = np.concatenate([sample.target.double().numpy().reshape(-1, task.n_targets) for sample in chosen])
    predicted = np.concatenate([np.reshape(one, (-1, task.n_targets)) for one in inference.predict(task, chosen)])
    rows = spread(len(truth), N_NUMBERS)
    return {"truth": truth[rows, :N_CHANNELS].T, "predicted": predicted[rows, :N_CHANNELS].T}


def _reconstructions(task: MaskedReconstruction, samples: Sequence[Sample]) -> list[dict[str, Any]]:
    """The first samples with what was seen, what was hidden, and what was predicted there, against their first axis."""
    has_time = task.config.position_dims == (1 if task.schema is None else task.schema.position_dims)
    shown = [samples[i] for i in range(min(N_SHOWN, len(samples)))]
    if not has_time or any(one.hidden is None or len(one) > N_POINTS for one in shown):
        return []
    answers = inference.predict(task, shown)
    return [
        {"name": _name(sample, i), "channels": _panels(sample, answer, task.schema)}
        for i, (sample, answer) in enumerate(zip(shown, answers, strict=True))
    ]


def _panels(sample: Sample, answer: Float[np.ndarray, "m c"], schema: Schema | None) -> list[dict[str, Any]]:
    times, hidden = sample.positions[:, 0].numpy(), sample.hidden.numpy()
    values = sample.values.double().numpy()
    truth, predicted = np.full(values.shape, np.nan), np.full(values.shape, np.nan)
    truth[hidden], predicted[hidden] = baselines.truth(sample), answer
    found = []
    for name, _, is_here, column in channels(sample, schema):
        seen, unseen = is_here & ~hidden, is_here & hidden
        panel = {"title": name, "observed": [times[seen], values[seen, column]]}
        found.append(panel | {"hidden": [times[unseen], truth[unseen, column]], "predicted": predicted[unseen, column]})
    return found


def _embeddings(task: Task, samples: Sequence[Sample]) -> dict[str, Any]:
    names = class_names(task) if isinstance(task, Classification) and task.n_classes <= N_CLASSES else None
    chosen = balanced(baselines.classes(samples), N_MAPPED) if names else spread(len(samples), N_MAPPED)
    shown = [samples[i] for i in chosen]
    view = {"points": principal_components(np.asarray(inference.embed(task, shown)))}
    return view | {"groups": [names[int(sample.target)] for sample in shown]} if names else view


def _name(sample: Sample, number: int) -> str:
    return str(sample.id if isinstance(sample.id, str | int) else number)


def _numbered(n: int) -> tuple[str, ...]:
    return ("value",) if n == 1 else tuple(f"value {i}" for i in range(1, n + 1))

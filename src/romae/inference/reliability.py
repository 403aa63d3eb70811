"""How far probabilities can be trusted, as small arrays: what is said to happen, beside what does.

For classes a reliability diagram: among samples of which a class is said with a confidence of 0.8, which share has it?
For numbers the coverage of central intervals and their width, and the histogram of the probability integral transform
(PIT), which is flat where distributions are true. Samples count once, whatever number of values is held out of each.

Shapes: b samples, t held-out numbers, l levels, k classes or channels, m bins.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64

from romae.config import to_dict
from romae.data.sources import SampleSource
from romae.data.subsets import evenly_spread
from romae.inference.calibration import (
    Grouping,
    fitted_to,
    flat,
    grouping,
    held_out_distributions,
    logits_of,
    sample_of,
    truth_of,
    weights_of,
    with_targets,
)
from romae.inference.distributions import Distribution, joined
from romae.inference.predictions import TOKENS_PER_BATCH, Precision, predict_proba
from romae.model.conformal import ENOUGH, FEWEST, By, fitted_levels
from romae.model.tasks import Classification, MaskedReconstruction, MultiLabel, Regression, Task
from romae.tokens.sample import Sample

LEVELS = (0.5, 0.8, 0.9, 0.95)
N_BINS = 10  # of confidences
N_PIT_BINS = 20
N_FOLDS = 5
N_SCORED = 4_000  # numbers, evenly spread; a score under a calibration takes 200 quantiles


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberReliability:
    """How central intervals of numbers do.

    `coverage` and `width` are those of the intervals of `levels`, `pit` the shares of numbers whose probability of at
    most themselves lies in each of 20 bins, `crps` the mean score of up to 4 000 of them. `parts` has the coverage and
    the width of each channel or target.
    """

    n: int
    levels: tuple[float, ...]
    coverage: tuple[float, ...]
    width: tuple[float, ...]
    pit: tuple[float, ...]
    crps: float
    parts: dict[str, dict[str, tuple[float, ...]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassReliability:
    """How probabilities of classes do.

    For each bin of confidences that is not empty: their mean, the share of samples that have the class which is said,
    and how many samples there are. `error` is the expected calibration error, `log_loss` the mean of -log p. Of
    several labels each counts as a choice between no and yes, so that `n` is that of samples times that of labels.
    """

    n: int
    confidence: tuple[float, ...]
    accuracy: tuple[float, ...]
    counts: tuple[int, ...]
    error: float
    log_loss: float


Reliability = NumberReliability | ClassReliability


def reliability(
    task: Task,
    samples: SampleSource,
    *,
    calibrated: bool = True,
    seed: int = 0,
    tokens_per_batch: int = TOKENS_PER_BATCH,
    precision: Precision = "auto",
) -> Reliability:
    """How far the probabilities of a task can be trusted, on samples that it was not trained on.

    Parameters
    ----------
    task : Classification or MultiLabel, or MaskedReconstruction or Regression with a likelihood
        A trained task.
    samples : sequence of Sample
        The samples, as they were read, with their targets; of masked reconstruction those that hide nothing hide what
        the task's own masking hides.
    calibrated : bool, default True
        Whether a calibration of the task is applied, where it has one.
    seed : int, default 0
        Decides the masks.
    tokens_per_batch : int, default 32768
        The most tokens at once; lower it if memory is short.
    precision : {"auto", "float32", "tf32", "bf16"}, default "auto"
        What products are computed in, as in `predict`.

    Returns
    -------
    NumberReliability or ClassReliability
        Coverage, width and PIT of numbers, or the reliability diagram of classes.

    Raises
    ------
    ValueError
        If the task has learned no distribution, or samples lack their targets.
    TypeError
        If the task is none of these.
    """
    how: dict[str, Any] = {"tokens_per_batch": tokens_per_batch, "precision": precision}
    if isinstance(task, Classification | MultiLabel):
        kept = with_targets(samples)
        return _of_classes(*_choices(predict_proba(task, kept, calibrated=calibrated, **how), truth_of(kept)))
    held = _held(task, samples, None, seed, how)
    told = held.told if calibrated else held.told.with_calibration(None)
    scored = np.isin(np.arange(len(held.truth)), evenly_spread(len(held.truth), N_SCORED))
    return _of_numbers(held, _measured(told, held.truth, scored))


def cross_fitted(
    task: Task,
    samples: SampleSource,
    *,
    by: Grouping = "auto",
    seed: int = 0,
    tokens_per_batch: int = TOKENS_PER_BATCH,
    precision: Precision = "auto",
) -> tuple[Reliability, Reliability]:
    """What a calibration on samples brings: without one, and with one that was fitted on others of these samples.

    Each fifth of the samples is judged by a calibration that the other four made, so that what is shown is what to
    expect of new samples. The task stays as it is.
    """
    how: dict[str, Any] = {"tokens_per_batch": tokens_per_batch, "precision": precision}
    actual = grouping(task, by)
    if isinstance(task, Classification | MultiLabel):
        kept = with_targets(samples)
        return _cross_fitted_classes(task, kept, predict_proba(task, kept, calibrated=False, **how))
    held = _held(task, samples, actual, seed, how)
    learned = held.told.with_calibration(None)
    scored = np.isin(np.arange(len(held.truth)), evenly_spread(len(held.truth), N_SCORED))
    before, scores = _measured(learned, held.truth, scored), learned.normal_score(held.truth)
    after, fold = _Measured(*(np.empty_like(part) for part in before)), held.sample % N_FOLDS
    for i in range(N_FOLDS):
        here, rest = fold == i, fold != i
        if not here.any():
            continue
        calibration = fitted_levels(
            scores[rest],
            held.sample[rest],
            by=actual,
            places=learned.places[rest],
            weights=held.weights,
            enough=ENOUGH if by == "auto" else FEWEST,
        )
        part = _measured(learned[here].with_calibration(calibration), held.truth[here], scored[here])
        for whole, new in zip(after, part, strict=True):
            whole[..., here] = new
    return _of_numbers(held, before), _of_numbers(held, after)


def as_dict(reliability: Reliability) -> dict[str, Any]:
    """Plain values, ready for JSON."""
    return to_dict(reliability)


# Numbers


class _Held(NamedTuple):
    """Held-out numbers in one row: what is said of them, what they are, and which sample and channel they belong to."""

    told: Distribution
    truth: Float64[np.ndarray, "t"]
    sample: Int64[np.ndarray, "t"]
    weights: Float64[np.ndarray, "b"]
    channel: Int64[np.ndarray, "t"]
    names: list[str]


class _Measured(NamedTuple):
    """Probabilities of at most each number, the widths of intervals, and the scores of some."""

    pit: Float64[np.ndarray, "t"]
    width: Float64[np.ndarray, "l t"]
    crps: Float64[np.ndarray, "t"]


def _held(task: Task, samples: SampleSource, by: By | None, seed: int, how: dict[str, Any]) -> _Held:
    kept, told, truth = held_out_distributions(task, samples, by=by, seed=seed, **how)
    assert isinstance(task, MaskedReconstruction | Regression)
    channel, names = _channels(task, kept, truth)
    return _Held(joined(told), flat(truth), sample_of(truth), weights_of(kept), channel, names)


def _channels(
    task: MaskedReconstruction | Regression, samples: list[Sample], truth: list[Float64[np.ndarray, "..."]]
) -> tuple[Int64[np.ndarray, "t"], list[str]]:
    """The number of the channel or target of each held-out number, and the names of all."""
    schema = task.schema
    if isinstance(task, Regression):
        label = "target" if schema is None or schema.label is None else str(schema.label)
        columns = [np.arange(part.size) % task.n_targets for part in truth]
        return np.concatenate(columns), [label] if task.n_targets == 1 else _numbered(label, task.n_targets)
    n_values = task.config.n_values
    values = list(map(str, schema.values)) if schema is not None else []
    values = values if len(values) == n_values else _numbered("value", n_values)
    columns = [np.arange(part.size) % n_values for part in truth]
    if schema is None or schema.channel is None:
        return np.concatenate(columns), values
    index = [np.repeat(sample.positions[sample.hidden][:, -1].numpy().round(), n_values) for sample in samples]
    number = np.concatenate(index).astype(np.int64) * n_values + np.concatenate(columns)
    named = [str(name) for name in schema.channels]
    return number, named if n_values == 1 else [f"{name} {value}" for name in named for value in values]


def _numbered(name: str, n: int) -> list[str]:
    return [name] if n == 1 else [f"{name} {i}" for i in range(1, n + 1)]


def _measured(told: Distribution, truth: Float64[np.ndarray, "t"], scored: Bool[np.ndarray, "t"]) -> _Measured:
    intervals, crps = [told.interval(level) for level in LEVELS], np.full(len(truth), np.nan)
    if scored.any():
        crps[scored] = told[scored].crps(truth[scored])
    return _Measured(told.cdf(truth), np.stack([high - low for low, high in intervals]), crps)


def _of_numbers(held: _Held, measured: _Measured) -> NumberReliability:
    def means(here: Any) -> Callable[[Float64[np.ndarray, "t"]], float]:
        """Means over samples of what is here, a sample's own mean first."""
        sample = held.sample[here]
        share = (held.weights / np.maximum(np.bincount(sample, minlength=len(held.weights)), 1))[sample]
        return lambda x: float((x[here] * share).sum() / share.sum())

    # A probability of exactly 0.05 belongs to the interval of 90 %.
    covered = [(np.abs(measured.pit - 0.5) <= level / 2 + 1e-12).astype(float) for level in LEVELS]
    mean = means(slice(None))
    bin_of = np.minimum((measured.pit * N_PIT_BINS).astype(int), N_PIT_BINS - 1)
    parts = {}
    for i in np.unique(held.channel).tolist():
        of_channel = means(held.channel == i)
        parts[held.names[i]] = {
            "coverage": tuple(of_channel(part) for part in covered),
            "width": tuple(of_channel(part) for part in measured.width),
        }
    return NumberReliability(
        n=len(held.weights),
        levels=LEVELS,
        coverage=tuple(mean(part) for part in covered),
        width=tuple(mean(part) for part in measured.width),
        pit=tuple(mean((bin_of == i).astype(float)) for i in range(N_PIT_BINS)),
        crps=means(np.isfinite(measured.crps))(measured.crps),
        parts=parts,
    )


# Classes


def _choices(
    probabilities: Float64[np.ndarray, "b k"], truth: Int64[np.ndarray, "b *k"]
) -> tuple[Float64[np.ndarray, "n c"], Int64[np.ndarray, "n"]]:
    """Probabilities of classes and the true ones; of several labels each is a choice of its own, between no and yes."""
    if truth.ndim == 1:
        return probabilities, truth
    return np.stack([1 - probabilities.ravel(), probabilities.ravel()], axis=1), truth.ravel()


def _of_classes(probabilities: Float64[np.ndarray, "b k"], classes: Int64[np.ndarray, "b"]) -> ClassReliability:
    confidence, is_right = probabilities.max(1), (probabilities.argmax(1) == classes).astype(float)
    bin_of = np.minimum((confidence * N_BINS).astype(int), N_BINS - 1)
    bins = [bin_of == i for i in np.unique(bin_of)]
    off = [abs(float((confidence[here] - is_right[here]).sum())) for here in bins]
    return ClassReliability(
        n=len(classes),
        confidence=tuple(float(confidence[here].mean()) for here in bins),
        accuracy=tuple(float(is_right[here].mean()) for here in bins),
        counts=tuple(int(here.sum()) for here in bins),
        error=sum(off) / len(classes),
        log_loss=float(-np.log(np.maximum(probabilities[np.arange(len(classes)), classes], 1e-300)).mean()),
    )


def _cross_fitted_classes(
    task: Classification | MultiLabel, samples: list[Sample], probabilities: Float64[np.ndarray, "b k"]
) -> tuple[ClassReliability, ClassReliability]:
    logits, truth = (torch.from_numpy(x) for x in (logits_of(task, probabilities), truth_of(samples)))
    after, fold, weights = np.empty_like(probabilities), np.arange(len(samples)) % N_FOLDS, weights_of(samples)
    for i in range(N_FOLDS):
        rest = torch.from_numpy(fold != i)
        calibration = fitted_to(task, logits[rest], truth[rest], torch.from_numpy(weights)[rest])
        if isinstance(task, MultiLabel):
            after[fold == i] = calibration.apply(logits[~rest], 1.0).sigmoid().numpy()
        else:
            after[fold == i] = calibration.apply(logits[~rest], task.confidence).softmax(-1).numpy()
    return _of_classes(*_choices(probabilities, truth.numpy())), _of_classes(*_choices(after, truth.numpy()))

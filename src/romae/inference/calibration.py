"""A task is calibrated on samples that it was not trained on."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from romae.data.periods import without_phase
from romae.data.sources import SampleSource, as_source
from romae.inference.distributions import Distribution, joined
from romae.inference.predictions import (
    TOKENS_PER_BATCH,
    Precision,
    predict_proba,
    predicted_distributions,
    source_for,
)
from romae.model.calibration import Calibration, fitted, fitted_to_labels
from romae.model.conformal import ENOUGH, FEWEST, LEVELS, By, Conformal, fitted_levels
from romae.model.tasks import Classification, MaskedReconstruction, MultiLabel, Regression, Task
from romae.tokens.masking import SampleKeys, SparingStatic, drawn_by
from romae.tokens.sample import Sample
from romae.tokens.tokens import PackedSamples

Grouping = Literal["auto", "global", "channel", "distance"]


def calibrate(
    task: Task,
    samples: SampleSource,
    *,
    by: Grouping = "auto",
    seed: int = 0,
    tokens_per_batch: int = TOKENS_PER_BATCH,
    precision: Precision = "auto",
) -> Calibration | Conformal:
    """Calibrate a task on samples that it was not trained on, so that its probabilities mean what they say.

    A classifier gets a temperature and a bias for each class or label. A task with a likelihood gets conformal
    intervals: a map of levels, so that the central interval of 90 % holds at least 90 % of the numbers of new samples.

    Parameters
    ----------
    task : Classification or MultiLabel, or MaskedReconstruction or Regression with a likelihood
        A trained task. Its `calibration` is replaced; `task.save` keeps it.
    samples : sequence of Sample
        The samples, as they were read, with their targets. For masked reconstruction what they hide is held out
        (`Sample.hidden`), and of samples that hide nothing what the task's own masking hides.
    by : {"auto", "global", "channel", "distance"}, default "auto"
        Whether numbers have one map of levels together, one for each channel or target, or one by the distance to the
        nearest observation of the same channel. Channels of fewer than 20 samples share that of all numbers. "auto" is
        "channel" for those of at least 100 samples. Classes have one calibration whatever is asked.
    seed : int, default 0
        Decides the masks, together with what is in a sample, but not with its place among the others.
    tokens_per_batch : int, default 32768
        The most tokens at once; lower it if memory is short.
    precision : {"auto", "float32", "tf32", "bf16"}, default "auto"
        What products are computed in, as in `predict`.

    Returns
    -------
    Calibration or Conformal
        What is `task.calibration` from now on; None in its place switches it off.

    Raises
    ------
    ValueError
        If the task has learned no distribution, there are fewer than 20 samples, or samples lack their targets.
    TypeError
        If the task is none of these.

    See Also
    --------
    predict, interpolate : `returns="distribution"` gives calibrated distributions.

    Notes
    -----
    Each sample counts once, however many numbers it holds, since the numbers of a sample belong together (hierarchical
    split conformal prediction). The promise is about samples like these, at the positions that masks hide: it holds on
    average over them, and not for each one. It reaches to the central level 1 - 2 / (n + 1) of n samples; beyond,
    levels are extrapolated. A validation split that chose the weights flatters the model a little.

    Examples
    --------
    >>> import numpy as np
    >>> import romae
    >>> random = np.random.default_rng(0)
    >>> samples = romae.from_arrays(random.normal(size=(60, 8, 1)))
    >>> size = romae.Size(width=16, heads=2, depth=1)
    >>> model = romae.ModelConfig(channels=1, position_dims=1, encoder=size, decoder=size)
    >>> config = romae.TrainConfig(epochs=2, batch_size=8, device="cpu")
    >>> task = romae.MaskedReconstruction(model, likelihood="normal")
    >>> _ = romae.train(task, samples[:30], config, quiet=True)
    >>> calibration = romae.calibrate(task, samples[30:])
    >>> calibration.n_samples
    (30,)
    >>> told = romae.interpolate(task, samples[:1], [[0.5]], returns="distribution")
    >>> told[0]
    Distribution(normal, shape (1, 1), calibrated)
    """
    calibration: Calibration | Conformal
    grouping(task, by)
    if isinstance(task, Classification | MultiLabel):
        calibration = calibration_of([(task, with_targets(samples))])
    else:
        calibration = conformal_of(
            [(task, samples)], by=by, seed=seed, tokens_per_batch=tokens_per_batch, precision=precision
        )
    task.calibration = calibration
    return calibration


class HeldOut(NamedTuple):
    """Numbers that were held out, and what a task says of them without knowing them.

    `scores` are the normal scores of its probabilities of at most these numbers.
    """

    scores: Float64[np.ndarray, "t"]
    sample: Int64[np.ndarray, "t"]
    places: Float64[np.ndarray, "t"]
    weights: Float64[np.ndarray, "b"]


def conformal_of(
    parts: Sequence[tuple[Task, SampleSource]],
    *,
    by: Grouping = "auto",
    seed: int = 0,
    tokens_per_batch: int = TOKENS_PER_BATCH,
    precision: Precision = "auto",
) -> Conformal:
    """The calibration of distributions, by samples that were not trained on; no task is changed.

    Several tasks that were trained alike, each with the samples that it was not trained on, have one together.
    """
    actual = grouping(parts[0][0], by)
    found = [
        held_out(task, samples, by=actual, seed=seed, tokens_per_batch=tokens_per_batch, precision=precision)
        for task, samples in parts
    ]
    before = np.cumsum([0, *(len(part.weights) for part in found)])
    return fitted_levels(
        np.concatenate([part.scores for part in found]),
        np.concatenate([part.sample + n for part, n in zip(found, before[:-1], strict=True)]),
        by=actual,
        places=np.concatenate([part.places for part in found]),
        weights=np.concatenate([part.weights for part in found]),
        enough=ENOUGH if by == "auto" else FEWEST,
    )


def grouping(task: Task, by: Grouping) -> By:
    """What decides the map of a number."""
    if by not in get_args(Grouping):
        raise ValueError(f"by is one of {', '.join(map(repr, get_args(Grouping)))}, not {by!r}")
    if isinstance(task, Regression) and by == "distance":
        raise ValueError("targets have no distance to an observation; calibrate with by='channel' or 'global'")
    return "channel" if by == "auto" else by


def held_out(
    task: Task,
    samples: SampleSource,
    *,
    by: By = "global",
    seed: int = 0,
    tokens_per_batch: int = TOKENS_PER_BATCH,
    precision: Precision = "auto",
) -> HeldOut:
    """What a task says of numbers that it is not shown, without its calibration."""
    kept, told, truth = held_out_distributions(
        task, samples, by=by, seed=seed, tokens_per_batch=tokens_per_batch, precision=precision
    )
    row = joined(told).with_calibration(None)
    return HeldOut(row.normal_score(flat(truth)), sample_of(truth), row.places, weights_of(kept))


def flat(arrays: Sequence[Float64[np.ndarray, "..."]]) -> Float64[np.ndarray, "t"]:
    """All numbers of arrays in one row."""
    return np.concatenate([array.ravel() for array in arrays])


def sample_of(arrays: Sequence[Float64[np.ndarray, "..."]]) -> Int64[np.ndarray, "t"]:
    """Which of the arrays each of their numbers belongs to."""
    return np.repeat(np.arange(len(arrays)), [array.size for array in arrays])


def weights_of(samples: Sequence[Sample]) -> Float64[np.ndarray, "b"]:
    """How much each sample counts."""
    return np.array([1.0 if sample.weight is None else float(sample.weight) for sample in samples])


def held_out_distributions(
    task: Task,
    samples: SampleSource,
    *,
    by: By | None = None,
    seed: int = 0,
    tokens_per_batch: int = TOKENS_PER_BATCH,
    precision: Precision = "auto",
) -> tuple[list[Sample], list[Distribution], list[Float64[np.ndarray, "..."]]]:
    """Samples with something held out, the distributions of it, and what it was, in the data's own units.

    With `by`, distributions are without a calibration and know their places for it.
    """
    if not isinstance(task, MaskedReconstruction | Regression):
        raise TypeError(
            "only a Classification, a MultiLabel, a Regression or a MaskedReconstruction can be calibrated, and this "
            f"is a {type(task).__name__}"
        )
    if task.likelihood is None:
        raise ValueError(
            f"this {type(task).__name__} has learned no distribution that could be calibrated; train it with "
            "likelihood='mixture'"
        )
    how: dict[str, Any] = {"tokens_per_batch": tokens_per_batch, "precision": precision}
    calibration = task.calibration if by is None else _blank(by)
    if isinstance(task, Regression):
        kept = with_targets(samples)
        told: Any = predicted_distributions(task, kept, calibration, **how)
        told = told if isinstance(told, list) else [told[i : i + 1] for i in range(len(kept))]
        truth = [sample.target.double().numpy().reshape(one.shape) for sample, one in zip(kept, told, strict=True)]
        return kept, told, truth
    kept = with_hidden(task, samples, seed)
    if not kept:
        raise ValueError("no sample has a value to hide and another to see, so that nothing can be held out")
    # What is held out was measured, with the noise of its error where that is known.
    told = predicted_distributions(task, kept, calibration, noise=task.config.errors > 0, **how)
    n_values = task.config.n_values
    return kept, told, [sample.values[sample.hidden, :n_values].double().numpy() for sample in kept]


def _blank(by: By) -> Conformal:
    """A calibration that changes nothing, but asks for places."""
    straight = tuple(float(score) for score in torch.special.ndtri(torch.tensor(LEVELS, dtype=torch.float64)))
    return Conformal(by=by, levels=LEVELS, scores=(straight,), n_samples=(0,))


def with_targets(samples: SampleSource) -> list[Sample]:
    source = as_source(samples)
    kept = [source[i] for i in range(len(source))]
    for i, sample in enumerate(kept):
        if sample.target is None:
            name = i if sample.id is None else sample.id
            raise ValueError(f"a calibration compares predictions with targets, and sample {name!r} has none")
    return kept


def with_hidden(task: MaskedReconstruction, samples: SampleSource, seed: int) -> list[Sample]:
    """The samples that hide something: what they say themselves, or what the task's masking hides of them."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**63:
        raise ValueError(f"a seed is a whole number from 0 on, not {seed!r}")
    source = source_for(task, samples)
    all_samples = [source[i] for i in range(len(source))]
    undecided = [i for i, sample in enumerate(all_samples) if sample.hidden is None]
    first = task.config.static_from
    masking = task.masking if first is None else SparingStatic(task.masking, first)
    for start in range(0, len(undecided), 1024):
        part = undecided[start : start + 1024]
        packed = PackedSamples.of([replace(all_samples[i], target=None) for i in part])
        batch = (packed if task.scaling is None else task.scaling.apply_packed(packed)).batch()
        keys = SampleKeys(int(seed), 0, torch.tensor([_key(all_samples[i]) for i in part]))
        drawn = drawn_by(masking, batch.tokens, keys, task.clock(batch))
        gone = torch.zeros_like(drawn.hidden) if drawn.left_out is None else drawn.left_out
        lengths = [len(all_samples[i]) for i in part]
        for i, hidden, left_out in zip(part, drawn.hidden.split(lengths), gone.split(lengths), strict=True):
            if bool(hidden.any()) and not bool((hidden | left_out).all()):
                all_samples[i] = _masked(all_samples[i], hidden, ~left_out)
    # What is hidden has no part in a phase, which the task adds.
    return list(without_phase([sample for sample in all_samples if sample.hidden is not None]))


def _masked(sample: Sample, hidden: Bool[Tensor, "n"], kept: Bool[Tensor, "n"]) -> Sample:
    """The sample without what lies beyond the horizon of a mask, hiding what the mask hides."""
    return replace(sample, values=sample.values[kept], positions=sample.positions[kept], hidden=hidden[kept])


def _key(sample: Sample) -> int:
    """A number that belongs to what is in a sample, and stays when its values come in other units."""
    order = sample.values.double().argsort(dim=0, stable=True)
    content = sample.positions.double().numpy().tobytes() + order.numpy().tobytes()
    return int.from_bytes(hashlib.sha256(content).digest()[:8], "little", signed=True)


def calibration_of(parts: Sequence[tuple[Classification | MultiLabel, Sequence[Sample]]]) -> Calibration:
    """The calibration of a task by samples with classes or labels, such as its validation samples; there may be none.

    Several tasks that were trained alike, each with the samples that it was not trained on, have one together. Samples
    count by their weights, where they have such, so that probabilities are those of the weighted samples.
    """
    logits, truth, weights = [], [], []
    for task, samples in parts:
        if len(samples) == 0:
            continue
        probabilities = predict_proba(task, samples, calibrated=False)
        logits.append(torch.from_numpy(logits_of(task, probabilities)))
        truth.append(torch.from_numpy(truth_of(samples)))
        weights += [None if sample.weight is None else float(sample.weight) for sample in samples]
    first = parts[0][0]
    if not logits:
        return Calibration(bias=(0.0,) * (first.n_labels if isinstance(first, MultiLabel) else first.n_classes))
    by_sample = None
    if any(weight is not None for weight in weights):
        by_sample = torch.tensor([1.0 if weight is None else weight for weight in weights], dtype=torch.float64)
    return fitted_to(first, torch.cat(logits), torch.cat(truth), by_sample)


def logits_of(
    task: Classification | MultiLabel, probabilities: Float64[np.ndarray, "b k"]
) -> Float64[np.ndarray, "b k"]:
    """What gives these probabilities by a softmax or, of several labels, by a sigmoid of each."""
    logarithms = np.log(np.maximum(probabilities, 1e-300))
    return logarithms - np.log(np.maximum(1 - probabilities, 1e-300)) if isinstance(task, MultiLabel) else logarithms


def truth_of(samples: Sequence[Sample]) -> Int64[np.ndarray, "b *k"]:
    """The class of each sample, or its labels."""
    return np.stack([np.asarray(sample.target, dtype=np.int64) for sample in samples])


def fitted_to(
    task: Classification | MultiLabel,
    logits: Float64[Tensor, "b k"],
    truth: Int64[Tensor, "b *k"],
    weights: Float64[Tensor, "b"] | None,
) -> Calibration:
    """The calibration of a task's logits by what is true."""
    if isinstance(task, MultiLabel):
        return fitted_to_labels(logits, truth, weights)
    return fitted(logits, truth, task.confidence, weights)

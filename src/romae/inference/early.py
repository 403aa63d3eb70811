"""Early classification: how good a classifier is when it has seen the beginning of each sample alone.

Shapes: b samples, n tokens of one sample, k classes.
"""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float64, Int64

from romae.data.columns import to_numpy
from romae.data.periods import columns_with_errors, without_phase
from romae.data.schema import SampleSet, Schema
from romae.data.sources import SampleSource, as_source
from romae.inference.predictions import TOKENS_PER_BATCH, Precision, predict_proba
from romae.model.tasks import Classification
from romae.tokens.sample import Sample
from romae.training.scoring import CURVES, OF_CLASSES, class_score, require_known, require_two_classes

if TYPE_CHECKING:
    import pandas as pd


def early_scores(
    task: Classification,
    samples: SampleSource,
    targets: Any = None,
    *,
    times: Any,
    since: Any = "first",
    scoring: str = "f1_macro",
    calibrated: bool = True,
    tokens_per_batch: int = TOKENS_PER_BATCH,
    precision: Precision = "auto",
) -> "pd.DataFrame":
    """Score a classifier by how long it has seen each sample: early classification.

    Each sample is cut at each time, and the classifier is asked about what lies before the cut. What lies after it has
    no influence.

    Parameters
    ----------
    task : Classification
        A trained task, such as `romae.load` gives.
    samples : sequence of Sample
        Samples that it was not trained on, as they were read. Their first axis is the time. They come into memory.
    targets : array [b], optional
        The true class of each sample, by name where the task names its classes, else by index. By default those of the
        samples.
    times : sequence of float, or of durations or dates
        When to cut: lengths of time after the beginning, in the data's own unit or as text such as "12h"; with
        `since="clock"` moments. A measurement at the cut is seen.
    since : {"first", "clock"}, float or list of bool arrays [n], default "first"
        Where the time of a sample begins: at its first measurement, for none ("clock"), or at its first detection. A
        number is the signal to noise of a detection, where errors are known; masks are True on the detections of each
        sample. Samples that are never detected are left out; negative times lie before the detection.
    scoring : str, default "f1_macro"
        "accuracy", "average_precision", "f1_macro", "neg_log_loss", "roc_auc" or "roc_auc_ovr", as in scikit-learn.
    calibrated : bool, default True
        Whether a calibration of the task is applied, where it has one.
    tokens_per_batch : int, default 32768
        The most tokens at once; lower it if memory is short. It does not change the results.
    precision : {"auto", "float32", "tf32", "bf16"}, default "auto"
        What products are computed in, as in `predict_proba`.

    Returns
    -------
    pandas.DataFrame
        A row for each cut, in the order of `times`: `time`, `score`, and `n`, the number of samples of which something
        is visible by then. The score is that of these, and NaN where it is not defined: of none, or where it needs two
        classes and one is left.

    Raises
    ------
    ValueError
        If samples, targets, masks or times do not fit, there is no such scoring, or no sample is ever detected.
    TypeError
        If the task is no Classification, or times are no numbers.

    Warns
    -----
    UserWarning
        If nothing of some samples is visible at a cut, which are then left out of its score.

    See Also
    --------
    predict_proba : the probabilities for samples as they are.

    Notes
    -----
    Tokens that a sample hides stay hidden, static facts stay visible, and a phase that was found is found again in what
    is left. The samples of a row may be others than those of the next: compare rows of the same `n`.
    `romae.pages.charts.early_scores` draws tables.

    Examples
    --------
    >>> import numpy as np
    >>> import romae
    >>> random = np.random.default_rng(0)
    >>> samples = romae.from_arrays(random.normal(size=(16, 8, 1)), y=[0, 1] * 8)
    >>> size = romae.Size(width=16, heads=2, depth=1)
    >>> model = romae.ModelConfig(channels=1, position_dims=1, encoder=size, decoder=size)
    >>> task = romae.Classification(model, n_classes=2)
    >>> _ = romae.train(task, samples, romae.TrainConfig(epochs=2, batch_size=8, device="cpu"), quiet=True)
    >>> table = romae.early_scores(task, samples, times=[0, 3, 7], scoring="accuracy")
    >>> list(table.columns), table["n"].tolist()
    (['time', 'score', 'n'], [16, 16, 16])
    """
    import pandas as pd

    if not isinstance(task, Classification):
        raise TypeError(f"early classification needs a Classification task, not {type(task).__name__}")
    require_known(scoring, OF_CLASSES)
    require_two_classes(scoring, task.n_classes)
    source = as_source(samples)
    schema = source.schema or task.schema
    plain: Sequence[Sample] = [source[i] for i in range(len(source))]
    truth = _classes(task, plain, source.schema, targets)
    if source.schema is not None:
        plain = SampleSet(plain, source.schema)
    if task.schema is not None and task.schema.phase is not None:
        plain = without_phase(plain)  # the task finds it again, in what is left
    cuts = _cuts(times, since, schema)
    begins = _begins(plain, since, schema)
    seen = np.array([_n_visible(sample, begin + cuts) for sample, begin in zip(plain, begins, strict=True)])
    has_any = seen[:, :, 0] > 0
    parts, place = _parts(plain, begins[:, None] + cuts, seen, has_any)
    chances = np.full((len(parts), task.n_classes), np.nan)
    if parts:
        asked: Any = parts if source.schema is None else SampleSet(parts, parts[0].schema)
        how: dict[str, Any] = {"tokens_per_batch": tokens_per_batch, "precision": precision}
        chances = predict_proba(task, asked, calibrated=calibrated, **how)
    scores = [_score(scoring, chances[place[here, j]], truth[here]) for j, here in enumerate(has_any.T)]
    counts = has_any.sum(axis=0)
    if (counts < len(plain)).any():
        j, n_never = int(counts.argmin()), int(np.isnan(begins).sum())
        never = f"; {n_never} of them are never detected" if n_never else ""
        warnings.warn(
            f"nothing is visible yet of {len(plain) - counts[j]} of {len(plain)} samples at the time {cuts[j]:g}, and "
            f"they are left out of its score{never}; the column n says of how many each score is",
            stacklevel=2,
        )
    return pd.DataFrame({"time": cuts, "score": scores, "n": counts})


def _classes(
    task: Classification, samples: Sequence[Sample], schema: Schema | None, targets: Any
) -> Int64[np.ndarray, "b"]:
    """The true class of each sample as an index of the task."""
    names = None if task.schema is None else task.schema.classes
    given = None if schema is None else schema.classes
    if targets is None:
        if missing := [i for i, sample in enumerate(samples) if sample.target is None]:
            name = missing[0] if samples[missing[0]].id is None else samples[missing[0]].id
            raise ValueError(f"sample {name!r} has no target to compare with; hand over targets=")
        targets = [sample.target.item() if sample.target.numel() == 1 else None for sample in samples]
        if given is not None and names is not None:
            targets = [given[int(number)] for number in targets]
    elif len(targets) != len(samples):
        raise ValueError(f"there are {len(targets)} targets for {len(samples)} samples; give one for each")
    else:
        targets = to_numpy(targets).tolist()
        given = names
    if names is not None and given is not None:
        index = {str(name): i for i, name in enumerate(names)}
        if unknown := [name for name in targets if str(name) not in index]:
            raise ValueError(f"there is a target {unknown[0]!r}, which the task does not know: it has {list(names)}")
        return np.array([index[str(name)] for name in targets], dtype=np.int64)
    wrong = [x for x in targets if isinstance(x, str) or x is None or x != int(x) or not 0 <= x < task.n_classes]
    if wrong:
        raise ValueError(f"targets are class indices from 0 to {task.n_classes - 1}, and one is {wrong[0]!r}")
    return np.array(targets, dtype=np.int64)


def _cuts(times: Any, since: Any, schema: Schema | None) -> Float64[np.ndarray, "m"]:
    """The cuts as numbers in the data's own unit: moments of the clock, or lengths of time."""
    if isinstance(times, str | bytes) or not hasattr(times, "__len__") or np.ndim(times) != 1 or len(times) == 0:
        raise ValueError(f"times are one or more cuts in a list, such as times=[5, 10, 20], not {times!r}")
    names = schema or Schema()
    is_moment = isinstance(since, str) and since == "clock"
    read = [names.moment(x, "a time") if is_moment else names.duration(x, "a time") for x in times]
    cuts = np.array(read, dtype=np.float64)
    if not np.isfinite(cuts).all():
        raise ValueError(f"times are finite, and one is {cuts[~np.isfinite(cuts)][0]}")
    return cuts


def _begins(samples: Sequence[Sample], since: Any, schema: Schema | None) -> Float64[np.ndarray, "b"]:
    """When the time of each sample begins; NaN where it never does."""
    if isinstance(since, str):
        if since == "clock":
            return np.zeros(len(samples))
        if since != "first":
            raise ValueError(f"since is 'first', 'clock', a signal to noise or a mask for each sample, not {since!r}")
        masks = [np.ones(len(sample), dtype=bool) for sample in samples]
    elif isinstance(since, int | float | np.integer | np.floating) and not isinstance(since, bool):
        masks = [_is_detected(sample, float(since), schema) for sample in samples]
    else:
        if not hasattr(since, "__len__") or len(since) != len(samples):
            raise ValueError(f"since= has one mask for each of {len(samples)} samples, or is 'first' or a number")
        masks = [to_numpy(mask) for mask in since]
        for i, (mask, sample) in enumerate(zip(masks, samples, strict=True)):
            if mask.dtype != bool or mask.shape != (len(sample),):
                raise ValueError(
                    f"the detections of sample {i if sample.id is None else sample.id!r} are {len(sample)} booleans, "
                    f"not {mask.dtype} of shape {list(mask.shape)}"
                )
    begins = np.full(len(samples), np.nan)
    for i, (sample, mask) in enumerate(zip(samples, masks, strict=True)):
        times = sample.positions[:, 0].double().numpy()[mask & _is_visible(sample)]
        begins[i] = times.min() if len(times) else np.nan
    if np.isnan(begins).all():
        raise ValueError(f"no sample is ever detected with since={since if np.ndim(since) == 0 else 'these masks'}")
    return begins


def _is_detected(sample: Sample, least: float, schema: Schema | None) -> Bool[np.ndarray, "n"]:
    """True on tokens with a value that is at least so many times its error, upwards or downwards."""
    pairs = [] if schema is None else columns_with_errors(schema.values, None)
    if schema is not None and schema.n_errors:
        pairs = [(i, len(schema.values) + i) for i in range(len(schema.values))]
    known = [(column, error) for column, error in pairs if error is not None]
    if not known:
        raise ValueError(f"since={least:g} is a signal to noise, and these samples have no errors; hand over masks")
    values, detected = sample.values.double().numpy(), np.zeros(len(sample), dtype=bool)
    for column, error in known:
        detected |= (values[:, error] > 0) & (np.abs(values[:, column]) >= least * values[:, error])
    return detected


def _is_visible(sample: Sample) -> Bool[np.ndarray, "n"]:
    """True on measurements that are not hidden: on no static fact."""
    visible = ~_is_fact(sample)
    return visible if sample.hidden is None else visible & ~sample.hidden.numpy()


def _is_fact(sample: Sample) -> Bool[np.ndarray, "n"]:
    first = None if sample.schema is None else sample.schema.static_from
    return np.zeros(len(sample), dtype=bool) if first is None else (sample.positions[:, -1] > first - 0.5).numpy()


def _n_visible(sample: Sample, ends: Float64[np.ndarray, "m"]) -> Int64[np.ndarray, "m 2"]:
    """How many measurements are visible until each end, and how many there are, hidden ones included."""
    times, visible, measured = sample.positions[:, 0].double().numpy(), _is_visible(sample), ~_is_fact(sample)
    return np.array([[int((is_one & (times <= end)).sum()) for is_one in (visible, measured)] for end in ends])


def _parts(
    samples: Sequence[Sample],
    ends: Float64[np.ndarray, "b m"],
    seen: Int64[np.ndarray, "b m 2"],
    has_any: Bool[np.ndarray, "b m"],
) -> tuple[list[Sample], Int64[np.ndarray, "b m"]]:
    """The beginnings of samples, each once where several cuts leave the same of it, and which of them a cut leaves."""
    parts: list[Sample] = []
    place, numbers = np.full(ends.shape, -1, dtype=np.int64), {}
    for i, j in np.argwhere(has_any).tolist():
        key = (i, int(seen[i, j, 1]))
        if key not in numbers:
            numbers[key] = len(parts)
            parts.append(_until(samples[i], ends[i, j]))
        place[i, j] = numbers[key]
    return parts, place


def _until(sample: Sample, end: float) -> Sample:
    """The beginning of a sample, with its static facts."""
    keep = (sample.positions[:, 0].double().numpy() <= end) | _is_fact(sample)
    hidden = None if sample.hidden is None else sample.hidden[keep]
    hidden = None if hidden is None or not bool(hidden.any()) else hidden
    return replace(sample, values=sample.values[keep], positions=sample.positions[keep], target=None, hidden=hidden)


def _score(scoring: str, chances: Float64[np.ndarray, "n k"], truth: Int64[np.ndarray, "n"]) -> float:
    """The score of some samples; NaN where it is not defined."""
    if len(truth) == 0 or (scoring in CURVES and len(np.unique(truth)) < 2):
        return float("nan")
    return class_score(scoring, chances, truth)

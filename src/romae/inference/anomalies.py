"""Anomalies: how surprising each measurement is to a model that sees the others, and each sample by what it holds.

A measurement must not be seen by the encoder when it is asked for, or the answer would be the measurement itself. So
measurements are left out in groups, each group in a pass of its own over the sample.

Shapes: n measurements of one sample, t of all, q hidden in a batch, b samples, r of reference, c columns of values.
"""

from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
from jaxtyping import Bool, Float, Float64, Int64

from romae.data.columns import require_distinct
from romae.data.sources import InMemory, SampleSource, Source
from romae.data.windows import WINDOW
from romae.inference.interpolation import with_task
from romae.inference.left_out import NO_GROUP, Groups, LeftOut, Originals
from romae.inference.predictions import (
    TOKENS_PER_BATCH,
    Precision,
    answers_for_each,
    checked_source,
    hidden_distribution,
    require_distribution,
)
from romae.inference.zero import central_windows, is_in_own_units
from romae.model.tasks import MaskedReconstruction, Task

if TYPE_CHECKING:
    import pandas as pd

Combine = Literal["largest", "mean"]

FOLDS, LEVEL = 10, 0.9
LEAST_P = 1e-15  # 1 - p has no smaller digits
GOLDEN = 0.382  # of the folds that lines of neighbours are shifted by, so that no two near ones fall together


class Anomalies(NamedTuple):
    """A table with a row for each measurement, and one with a row for each sample."""

    measurements: "pd.DataFrame"
    samples: "pd.DataFrame"


def anomaly(
    task: Any = None,
    samples: Any = None,
    *,
    folds: int | None = FOLDS,
    level: float = LEVEL,
    combine: Combine = "largest",
    reference: SampleSource | None = None,
    false_discovery: float | None = None,
    tokens_per_batch: int = TOKENS_PER_BATCH,
    precision: Precision = "auto",
) -> Anomalies:
    """Score how surprising each measurement and each sample is, given the other measurements of the sample.

    `anomaly(samples)` needs no training: it asks the bundled model `romae.load("romae/zero")`.

    Parameters
    ----------
    task : MaskedReconstruction, optional
        A trained task with a likelihood, such as `romae.load` gives; it answers on the device that it is on. It may be
        left out for series with one time axis.
    samples : sequence of Sample
        The samples, as they were read. Tokens that a sample hides are never shown to the model, and are scored as well;
        static facts are always shown, and are not scored.
    folds : int or None, default 10
        In how many groups the measurements of a sample are hidden, so that the encoder passes over it as many times;
        neighbours in time and channel are in different groups. None hides each measurement alone, which takes as many
        passes as there are measurements; samples of no more measurements than folds are always asked in this way.
    level : float, default 0.9
        The probability of the interval from `lower` to `upper`.
    combine : {"largest", "mean"}, default "largest"
        What the score of a sample is: that of its most surprising measurement, corrected for their number, or the mean
        of all, for samples that are strange as a whole.
    reference : sequence of Sample, optional
        Samples that are normal and were not trained on. The p-value of a sample is then the share of them, itself
        counted, with a score as high.
    false_discovery : float, optional
        Adds the column `flagged`, True on measurements of which at most this share is normal (Benjamini-Hochberg).
    tokens_per_batch : int, default 32768
        The most tokens at once; lower it if memory is short.
    precision : {"auto", "float32", "tf32", "bf16"}, default "auto"
        What products are computed in, as in `predict`.

    Returns
    -------
    Anomalies
        `measurements` is a table with a row for each: id, position, channel, `value`, `expected` (the median), `lower`,
        `upper`, `p_value` and `score`. `samples` has a row for each sample: id, `n_measurements`, `score` and
        `p_value`. What nothing else of its sample could tell has NaN.

    Raises
    ------
    ValueError
        If the model has no likelihood, samples do not fit it, or a number lies outside its range.
    TypeError
        If the task is no MaskedReconstruction, or something else than samples is given.

    Notes
    -----
    The p-value of a measurement is two-sided: twice the probability of lying as far in its tail, or farther. It is
    uniform on data that follow the model's distributions; calibrate the model (or look at the p-values of normal
    samples) to know how far that holds. The score is -log10 of it: 2 is one in a hundred. Beyond 15 digits it grows by
    the logarithm of the distance from the median, in halves of the interval.

    Measurements of a sample depend on each other, so their p-values cannot be multiplied. With "largest" the p-value of
    a sample is the least of them times their number (Bonferroni), which is valid whatever the dependence, and its score
    -log10 of that. With "mean" it is NaN without `reference`. With a reference p-values are valid whatever the model,
    if the samples come from where the reference does, and at least 1 / (number of reference samples + 1).

    Examples
    --------
    >>> import numpy as np
    >>> import romae
    >>> random = np.random.default_rng(0)
    >>> samples = romae.from_arrays(random.normal(size=(16, 8, 1)))
    >>> size = romae.Size(width=16, heads=2, depth=1)
    >>> model = romae.ModelConfig(channels=1, position_dims=1, encoder=size, decoder=size)
    >>> task = romae.MaskedReconstruction(model, likelihood="normal")
    >>> config = romae.TrainConfig(epochs=20, batch_size=8, device="cpu")
    >>> _ = romae.train(task, samples, config, quiet=True)
    >>> samples[3].values[5] = 30.0
    >>> found = romae.anomaly(task, samples)
    >>> found.measurements.nlargest(1, "score")[["id", "time", "value"]].to_numpy().tolist()
    [[3.0, 5.0, 30.0]]
    >>> int(found.samples["score"].idxmax())
    3
    """
    import pandas as pd

    task, samples, _ = with_task(task, samples)
    if not isinstance(task, MaskedReconstruction):
        raise TypeError(
            f"anomalies need a MaskedReconstruction task, which predicts measurements, not {type(task).__name__}"
        )
    _require_options(task, folds, level, combine, false_discovery)
    source = checked_source(task, samples)
    how = {"tokens_per_batch": tokens_per_batch, "precision": precision}
    originals = Originals.of(task, source)
    is_scored, found = _scored(task, source, originals, folds, level, how)
    table = originals.columns(is_scored, found.shape[1])
    if "value" in list(table)[:-1]:
        raise ValueError("a column of positions is called 'value', as the measured number is here; rename it")
    names = ("expected", "lower", "upper", "p_value", "score")
    flat = found[is_scored].reshape(-1, len(names))
    require_distinct([*table, *names], "the columns of the table", "rename those of the data")
    measurements = pd.DataFrame(table | {name: flat[:, i] for i, name in enumerate(names)})
    if false_discovery is not None:
        measurements["flagged"] = _flagged(flat[:, 3], false_discovery)
    counts, scores, p_values = _of_samples(originals, is_scored, found, combine)
    if reference is not None:
        normal = checked_source(task, reference)
        theirs = Originals.of(task, normal)
        _, expected, _ = _of_samples(theirs, *_scored(task, normal, theirs, folds, level, how), combine)
        p_values = conformal(scores, expected)
    columns = {originals.schema.id: originals.ids, "n_measurements": counts, "score": scores, "p_value": p_values}
    return Anomalies(measurements, pd.DataFrame(columns))


def _require_options(task: Task, folds: int | None, level: float, combine: str, false_discovery: float | None) -> None:
    require_distribution(task)
    if folds is not None and (isinstance(folds, bool) or not isinstance(folds, Integral) or folds < 2):
        raise ValueError(f"folds is a whole number of at least 2, or None to leave out each measurement, not {folds!r}")
    if not 0 < level < 1:
        raise ValueError(f"level is the probability of an interval, above 0 and below 1, not {level}")
    if combine not in get_args(Combine):
        raise ValueError(f"combine is one of {', '.join(map(repr, get_args(Combine)))}, not {combine!r}")
    if false_discovery is not None and not 0 < false_discovery < 1:
        raise ValueError(f"false_discovery is a share above 0 and below 1, not {false_discovery}")


def _scored(
    task: MaskedReconstruction,
    source: Source,
    originals: Originals,
    folds: int | None,
    level: float,
    how: dict[str, Any],
    *,
    in_windows: bool = False,
) -> tuple[Bool[np.ndarray, "t"], Float64[np.ndarray, "t c five"]]:
    """Which tokens are scored, and of each value the median, the interval, the p-value and the score."""
    if is_in_own_units(task) and not in_windows and originals.packed.layout.longest > WINDOW:
        windows, tokens, places = central_windows(originals.packed, len(originals.schema.channels))
        inner = InMemory.of_packed(windows, originals.schema)
        _, of_windows = _scored(task, inner, Originals.of(task, inner), folds, level, how, in_windows=True)
        found = np.empty((len(tokens), *of_windows.shape[1:]))
        found[tokens] = of_windows[places]
        return ~originals.is_fact, found
    groups = [_groups_of(originals, part, task.config.position_dims, folds) for part in originals.parts]
    channel = originals.channel
    if is_in_own_units(task) and channel is not None:
        dealt_parts = zip(groups, originals.parts, strict=True)
        groups = [_answerable(one, channel[part], originals.is_hidden[part]) for one, part in dealt_parts]
    copies = LeftOut(source, originals, groups)

    def judged(work: Any) -> list[np.ndarray]:
        # What is judged was measured, with the noise of its error where that is known.
        whole = hidden_distribution(task, work, task.calibration, noise=task.config.errors > 0)
        values = work.samples.values[work.samples.hidden][:, : whole.shape[1]].double().numpy()
        rows = judge(whole, values, level)
        return np.split(rows, np.cumsum(work.batch.hidden.layout.lengths.numpy())[:-1])

    answers = answers_for_each(task, copies, judged, "scoring", **how)
    found = np.full((originals.packed.layout.n_tokens, task.config.n_values, 5), np.nan)
    parts = originals.parts
    for sample, group, rows in zip(copies.sample.tolist(), copies.group.tolist(), answers, strict=True):
        here, hidden = groups[sample] == group, originals.is_hidden[parts[sample]]
        found[parts[sample]][here] = rows[here[here | hidden]]
    return ~originals.is_fact, found


def judge(distribution: Any, values: Float64[np.ndarray, "q c"], level: float) -> Float64[np.ndarray, "q c five"]:
    """Of each value the median, the interval, the two-sided p-value and the score under its distribution."""
    median = distribution.median()
    lower, upper = distribution.interval(level)
    below = distribution.cdf(values)
    p_value = np.clip(2 * np.minimum(below, 1 - below), LEAST_P, 1.0)
    half = np.where(values > median, upper - median, median - lower)
    distance = np.abs(values - median) / np.maximum(half, np.finfo(float).tiny)
    beyond = np.where(p_value == LEAST_P, np.log10(np.maximum(distance, 1.0)), 0.0)
    score = beyond - np.log10(p_value)
    return np.stack([median, lower, upper, p_value, score], axis=-1)


def _groups_of(originals: Originals, part: slice, n_dims: int, folds: int | None) -> Groups:
    """The group of each token of a sample; what it hides itself is asked in a pass of its own."""
    is_fact, is_hidden = originals.is_fact[part], originals.is_hidden[part]
    groups = np.full(len(is_fact), NO_GROUP, dtype=np.int64)
    shown = ~is_fact & ~is_hidden
    n_shown = int(shown.sum())
    groups[~is_fact & is_hidden] = n_shown
    if folds is None or n_shown <= folds:
        groups[shown] = np.arange(n_shown)
    else:
        groups[shown] = dealt(originals.packed.positions[part].double().numpy()[shown], folds)
    return groups


def _answerable(groups: Groups, channel: Int64[np.ndarray, "n"], is_hidden: Bool[np.ndarray, "n"]) -> Groups:
    """The groups without one that would hide all of a channel, of which such a model then knows nothing.

    What is alone in its channel has no group, and is always shown.
    """
    groups, n_groups = groups.copy(), int(groups.max(initial=0)) + 1
    for number in np.unique(channel[groups != NO_GROUP]):
        asked = (channel == number) & (groups != NO_GROUP)
        shown = np.flatnonzero(asked & ~is_hidden)
        if len(shown) == 0:
            groups[asked] = NO_GROUP
        elif len(shown) == 1:
            groups[shown] = NO_GROUP
        elif len(np.unique(groups[shown])) == 1:
            groups[shown[0]] = (groups[shown[0]] + 1) % n_groups
    return groups


def dealt(positions: Float[np.ndarray, "n d"], folds: int) -> Int64[np.ndarray, "n"]:
    """The group of each measurement, so that neighbours along each axis are in different ones.

    Along time, the first axis, those of one line (that agree in all other axes, such as the channel) go to one group
    after the other; lines are shifted against each other. Of 2 channels at 5 times each, in 5 groups:

        channel 0: 0 1 2 3 4
        channel 1: 2 3 4 0 1
    """
    order = np.lexsort([*positions[:, :0:-1].T, positions[:, 0]])  # by time; ties by the other axes
    others = positions[order, 1:]
    _, line = np.unique(others, axis=0, return_inverse=True)
    place = _place_within(line.reshape(-1))
    shift, stride = np.zeros(len(positions), dtype=np.int64), _stride(folds)
    for axis in range(others.shape[1]):
        shift += stride ** (axis + 1) * np.unique(others[:, axis], return_inverse=True)[1].reshape(-1)
    groups = np.empty(len(positions), dtype=np.int64)
    groups[order] = (place + shift) % folds
    if np.bincount(groups).max() > 2 * -(-len(positions) // folds):  # lines of a single measurement each may agree
        groups[order] = np.arange(len(positions)) % folds
    return groups


def _place_within(line: Int64[np.ndarray, "n"]) -> Int64[np.ndarray, "n"]:
    """How many of the same line came before each."""
    by_line = np.argsort(line, kind="stable")
    counts = np.bincount(line)
    place = np.empty(len(line), dtype=np.int64)
    place[by_line] = np.arange(len(line)) - np.repeat(np.cumsum(counts) - counts, counts)
    return place


def _stride(folds: int) -> int:
    """The shift from line to line: near the golden section of the folds, and with no divisor in common with them."""
    without_divisor = [n for n in range(1, folds) if np.gcd(n, folds) == 1]
    return min(without_divisor, key=lambda n: abs(n - GOLDEN * folds))


def _of_samples(
    originals: Originals,
    is_scored: Bool[np.ndarray, "t"],
    found: Float64[np.ndarray, "t c five"],
    combine: Combine,
) -> tuple[list[int], Float64[np.ndarray, "b"], Float64[np.ndarray, "b"]]:
    """How many measurements each sample has, its score, and the p-value that holds without a reference."""
    counts = []
    scores, p_values = (np.full(len(originals.parts), np.nan) for _ in range(2))
    for i, part in enumerate(originals.parts):
        rows = found[part][is_scored[part]].reshape(-1, found.shape[-1])
        counts.append(len(rows))
        known = rows[~np.isnan(rows[:, 4])]
        if len(known) and combine == "largest":  # Bonferroni
            scores[i] = known[:, 4].max() - np.log10(len(known))
            p_values[i] = min(len(known) * known[:, 3].min(), 1.0)
        elif len(known):
            scores[i] = known[:, 4].mean()
    return counts, scores, p_values


def conformal(scores: Float64[np.ndarray, "b"], reference: Float64[np.ndarray, "r"]) -> Float64[np.ndarray, "b"]:
    """The share of the reference with a score as high, each sample itself counted; NaN has none."""
    known = np.sort(reference[~np.isnan(reference)])
    as_high = len(known) - np.searchsorted(known, scores, side="left")
    return np.where(np.isnan(scores), np.nan, (as_high + 1) / (len(known) + 1))


def _flagged(p_values: Float64[np.ndarray, "n"], rate: float) -> Bool[np.ndarray, "n"]:
    from scipy.stats import false_discovery_control

    is_known = ~np.isnan(p_values)
    flagged = np.zeros(len(p_values), dtype=bool)
    if is_known.any():
        flagged[is_known] = false_discovery_control(p_values[is_known]) <= rate
    return flagged

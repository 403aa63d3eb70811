"""How well a model answers for a table that nobody scored: it is asked for values that are hidden from it.

Some measured values are hidden at random, or those at the end of each series, and the answers stand beside what comes
for free: linear interpolation and the last value. Errors are in the spread of each channel within its series.

Shapes: n tokens of a sample, m of them that are asked for, c columns of values, t numbers that are judged.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64

from romae.config import to_dict
from romae.data.periods import without_phase
from romae.data.schema import SampleSet, Schema, measured_values
from romae.data.sources import SampleSource, as_source
from romae.data.static import n_measured
from romae.inference import baselines
from romae.inference.distributions import Distribution, joined
from romae.inference.interpolation import interpolate
from romae.model.tasks import MaskedReconstruction
from romae.tokens.sample import Sample
from romae.tokens.tokens import channel_index

Holes = Literal["scattered", "ahead"]
# Takes samples, some tokens of which are hidden, and positions for each; gives distributions or numbers [m, c].
Ask = Callable[[SampleSet, list[Float64[np.ndarray, "m d"]]], Sequence[Any]]

SHARE, LEVEL, SEED = 0.2, 0.9, 0
MOST_SERIES, MOST_VALUES, MOST_TOKENS = 64, 2_000, 512
MOST_STRETCHES = 24  # of 512 tokens, of few long series: a second or two on a CPU
LEFT = 2  # values of a channel that stay visible, so that its level and its spread are known
ENOUGH, MOST_ROUNDS = 200, 5  # values, for which those of small tables are hidden several times
FEW = 30  # values of which a score says little
N_LEVELS = 20  # quantiles of a score; with 200 it takes ten times as long and changes in the third digit
AS_GOOD = 0.01  # share by which errors differ that are called equal
OTHERS: dict[Holes, dict[str, baselines.Method]] = {
    "scattered": {"linear interpolation": baselines.linear, "last value": baselines.last_value},
    "ahead": {"last value": baselines.last_value, "linear trend": baselines.trend},
}
MODEL = "RoMAE"


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodScore:
    """The errors of one method, in spreads of the channels.

    Parameters
    ----------
    method : str
        Its name.
    mae, rmse : float
        Mean absolute and root mean squared error; of a distribution those of its median.
    crps : float
        Continuous ranked probability score; of a method that gives one number it is its absolute error.
    coverage : float, optional
        The share of values inside its intervals, where it has some.
    """

    method: str
    mae: float
    rmse: float
    crps: float
    coverage: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutScore:
    """What `held_out_score` measures.

    Parameters
    ----------
    methods : tuple of MethodScore
        The model first, then what it stands beside.
    holes : {"scattered", "ahead"}
        Which values were hidden.
    n_series, n_values : int
        Of how many series, and how many values.
    level : float
        The probability of the intervals.
    channel : str, optional
        Where there is one channel, what it is called.
    spread : float, optional
        Its spread in its own units then: errors times the spread are in these units.
    """

    methods: tuple[MethodScore, ...]
    holes: Holes
    n_series: int
    n_values: int
    level: float
    channel: str | None = None
    spread: float | None = None

    @property
    def model(self) -> MethodScore:
        """The score of the model."""
        return self.methods[0]

    @property
    def best(self) -> MethodScore:
        """The method with the least absolute error; of those that are as good the first."""
        least = min(one.mae for one in self.methods)
        return next(one for one in self.methods if one.mae <= least * (1 + AS_GOOD))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON, with the method that is best.

        Returns
        -------
        dict
            The fields of the score.
        """
        return to_dict(self) | {"best": self.best.method}

    def rows(self) -> list[dict[str, Any]]:
        """A row for each method, for tables; with one channel, errors in its units as well.

        Returns
        -------
        list of dict
            The columns of each row by their names.
        """
        rows = []
        for one in self.methods:
            row: dict[str, Any] = {"method": one.method, "MAE": one.mae, "RMSE": one.rmse, "CRPS": one.crps}
            if self.spread is not None:
                row |= {f"MAE of {self.channel}": one.mae * self.spread}
                row |= {f"RMSE of {self.channel}": one.rmse * self.spread}
            inside = "" if one.coverage is None else f"{one.coverage:.0%}"
            rows.append(row | {f"inside {self.level:.0%}": inside})
        return rows

    def title(self) -> str:
        """What was hidden, in words.

        Returns
        -------
        str
            Without a full stop.
        """
        which = "measured values hidden at random" if self.holes == "scattered" else "values at the ends of series"
        return f"Errors at {self.n_values:,} {which} ({self.n_series:,} series), in the spread of each channel"

    def verdict(self) -> str:
        """Which method is best, in words.

        Returns
        -------
        str
            Also where the model loses, and what its intervals hold.
        """
        sentences = [self._which_is_best()]
        if self.model.coverage is not None:
            sentences.append(f"{self.model.coverage:.0%} of the values lie inside its intervals of {self.level:.0%}.")
        if self.n_values < FEW:
            sentences.append("These are few values, which say little.")
        return " ".join(sentences)

    def _which_is_best(self) -> str:
        others = sorted(self.methods[1:], key=lambda one: one.mae)
        beside = " and ".join(f"{one.mae:.2g} of {_named(one)}" for one in others)
        if self.best is self.model:
            is_equal = others[0].mae <= self.model.mae * (1 + AS_GOOD)
            which = f"as good as {_named(others[0])}" if is_equal else "best here"
            return f"The model is {which}: a mean absolute error of {self.model.mae:.2g} beside {beside}."
        advice = (
            "its intervals still say how far off values may be"
            if self.model.crps < self.best.crps
            else "a model that is trained on this table may do better (romae pretrain)"
        )
        best = _named(self.best)
        return (
            f"{best[0].upper()}{best[1:]} is best here, not the model: a mean absolute error of {self.best.mae:.2g}, "
            f"and the model's is {self.model.mae:.2g}; {advice}."
        )


def held_out_score(
    task: MaskedReconstruction | Ask,
    samples: SampleSource,
    *,
    holes: Holes = "scattered",
    share: float = SHARE,
    level: float = LEVEL,
    seed: int = SEED,
    known: Sequence[int] = (),
    most_series: int = MOST_SERIES,
    most_values: int = MOST_VALUES,
    most_tokens: int = MOST_TOKENS,
) -> HeldOutScore | None:
    """Hide a part of what was measured, ask a model for it, and hold its answers against lines and the last value.

    Parameters
    ----------
    task : MaskedReconstruction or callable
        A model that answers by `romae.interpolate`, or a function of samples, whose hidden tokens it must not look at,
        and of positions for each, which gives a `Distribution` or an array [m, c] for each.
    samples : sequence of Sample
        What was measured; what samples hide themselves is left out. Many or long ones are judged in part.
    holes : {"scattered", "ahead"}, default "scattered"
        Hide values at random in each channel of each series, or the last ones of each series in time.
    share : float, default 0.2
        The share of values to hide.
    level : float, default 0.9
        The probability of the intervals whose coverage is measured.
    seed : int, default 0
        Another seed hides other values.
    known : sequence of int, default ()
        Numbers of channels that are known ahead, of which nothing is hidden.
    most_series, most_values, most_tokens : int
        At most so many series are judged, by so many values, and long ones in stretches of so many tokens.

    Returns
    -------
    HeldOutScore or None
        None where no channel of any series has enough values that differ.

    Raises
    ------
    ValueError
        If the share or the level is not above 0 and below 1.

    Examples
    --------
    >>> import numpy as np
    >>> import romae
    >>> from romae.inference.self_check import held_out_score
    >>> times = np.arange(0.0, 20.0, 0.5)
    >>> samples = romae.from_arrays(np.sin(times + np.arange(8)[:, None])[..., None], times=times)
    >>> def zeros(samples, positions):
    ...     return [np.zeros((len(x), 1)) for x in positions]
    >>> score = held_out_score(zeros, samples)
    >>> score.best.method, score.n_values
    ('linear interpolation', 256)
    """
    for name, number in (("share", share), ("level", level)):
        if not 0 < number < 1:
            raise ValueError(f"{name} lies above 0 and below 1, and {number} does not")
    random = np.random.default_rng(seed)
    chosen = _repeated(_chosen(samples, most_series, most_tokens, random), holes, share)
    hidden = [_hidden(sample, holes, share, known, random) for sample in chosen]
    chosen = [replace(sample, hidden=mask) for sample, mask in zip(chosen, hidden, strict=True) if mask.any()]
    if not chosen:
        return None
    shown = SampleSet(chosen, chosen[0].schema or Schema())
    asked = _asked([sample.hidden.numpy() for sample in shown], most_values, random)
    shown, asked = _asked_alone(shown, asked)
    ask = interpolating(task) if isinstance(task, MaskedReconstruction) else task
    positions = [sample.positions[rows].double().numpy() for sample, rows in zip(shown, asked, strict=True)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what is hidden here nobody has to be warned
        told = ask(shown, positions)
    truth, channel = _truth(shown, asked)
    spread = _spread(shown, int(channel.max()) + 1)[channel]
    points, uncertain = _answers(told, truth, level)
    predicted = {MODEL: points} | {name: _filled(method, shown, asked) for name, method in OTHERS[holes].items()}
    judged = np.logical_and.reduce([np.isfinite(x) for x in predicted.values()]) & (spread > 0)
    if not judged.any():
        return None
    scores = []
    for name, prediction in predicted.items():
        error = np.abs(prediction - truth)[judged] / spread[judged]
        crps, coverage = float(error.mean()), None
        if name == MODEL and uncertain is not None:
            crps = float((uncertain.crps[judged] / spread[judged]).mean())
            coverage = float(uncertain.is_inside[judged].mean())
        rmse = float(np.sqrt(np.square(error).mean()))
        scores.append(MethodScore(method=name, mae=float(error.mean()), rmse=rmse, crps=crps, coverage=coverage))
    numbers, schema = np.unique(channel[judged]), shown.schema
    names: Sequence[Any] = schema.values if schema.channel is None else schema.channels
    is_one = len(numbers) == 1 and int(numbers[0]) < len(names)
    return HeldOutScore(
        methods=tuple(scores),
        holes=holes,
        n_series=len({sample.id for sample in shown}),
        n_values=int(judged.sum()),
        level=level,
        channel=str(names[int(numbers[0])]) if is_one else None,
        spread=float(spread[judged][0]) if is_one else None,
    )


def _named(score: MethodScore) -> str:
    return score.method if score.method.endswith("interpolation") else f"the {score.method}"


def interpolating(task: MaskedReconstruction, **how: Any) -> Ask:
    """A model as a function of samples and positions: with distributions where it has learned some."""

    def ask(samples: SampleSet, positions: list[Any]) -> Sequence[Any]:
        if task.likelihood is None:
            return interpolate(task, samples, positions, **how)
        return interpolate(task, samples, positions, returns="distribution", **how)

    return ask


def _chosen(samples: SampleSource, n: int, most_tokens: int, random: np.random.Generator) -> list[Sample]:
    """Some of the samples, without what they hide, and of long ones some stretches of time."""
    source = as_source(samples, with_targets=False)
    numbers = np.arange(len(source))
    if len(source) > n:
        numbers = np.sort(random.choice(numbers, n, replace=False))
    packed, schema = source.packed(numbers).visible(), source.schema or Schema()
    members = [replace(packed.sample(i), target=None, id=i).with_schema(schema) for i in range(len(packed))]
    members = list(without_phase(members))  # what is hidden must have no part in it, so the task adds it
    n_stretches = max(MOST_STRETCHES // max(len(members), 1), 1)
    return [part for sample in members for part in _stretches(sample, most_tokens, n_stretches, random)]


def _repeated(samples: list[Sample], holes: Holes, share: float) -> list[Sample]:
    """The samples, several times where they are few, so that a score does not hang on a handful of values.

    Other values are hidden each time. Of the future that is hidden each time, a tenth more of the times is left out:
    forecasts then begin at several moments.
    """
    n_hidden = max(share * sum(map(n_measured, samples)), 1)
    n_rounds = min(int(np.ceil(ENOUGH / n_hidden)), MOST_ROUNDS)
    if holes == "scattered":
        return samples * n_rounds
    return samples + [part for i in range(1, n_rounds) for sample in samples for part in _until(sample, 1 - 0.1 * i)]


def _until(sample: Sample, share: float) -> list[Sample]:
    """A sample up to a share of its times; none where it has too few."""
    times = sample.positions[:, 0].double().numpy()
    moments = np.unique(times)
    n = int(share * len(moments))
    if n <= LEFT or n == len(moments):
        return []
    keep = times <= moments[n - 1]
    return [replace(sample, values=sample.values[keep], positions=sample.positions[keep])]


def _stretches(sample: Sample, n_tokens: int, most: int, random: np.random.Generator) -> list[Sample]:
    """The parts of a sample, each of at most so many tokens that follow each other in time, or some of them.

    Facts that hold for all of it stay in each.
    """
    n = n_measured(sample)
    if n <= n_tokens:
        return [sample]
    is_fact = _is_fact(sample)
    measured = np.flatnonzero(~is_fact)
    in_order = measured[np.argsort(sample.positions[measured, 0].numpy(), kind="stable")]
    parts = np.array_split(in_order, -(-n // n_tokens))
    numbers = np.arange(len(parts))
    if len(parts) > most:
        numbers = np.sort(random.choice(numbers, most, replace=False))
    keeps = [np.sort(np.concatenate([parts[i], np.flatnonzero(is_fact)])) for i in numbers]
    return [replace(sample, values=sample.values[keep], positions=sample.positions[keep]) for keep in keeps]


def _is_fact(sample: Sample) -> Bool[np.ndarray, "n"]:
    if sample.schema is None or not sample.schema.static:
        return np.zeros(len(sample), dtype=bool)
    return (sample.positions[:, -1] >= len(sample.schema.channels)).numpy()


def _channels(sample: Sample) -> Int64[np.ndarray, "n"]:
    """The number of the channel of each token; 0 where a token has the values of all."""
    schema = sample.schema
    if schema is None or schema.channel is None:
        return np.zeros(len(sample), dtype=np.int64)
    return channel_index(sample.positions, len(schema.kind_names)).numpy()


def _hidden(
    sample: Sample, holes: Holes, share: float, known: Sequence[int], random: np.random.Generator
) -> Bool[np.ndarray, "n"]:
    """Which tokens of a sample are hidden."""
    channel, times = _channels(sample), sample.positions[:, 0].double().numpy()
    is_free = ~_is_fact(sample) & ~np.isin(channel, known)
    hidden = np.zeros(len(sample), dtype=bool)
    if holes == "ahead":
        moments = np.unique(times[is_free])
        if len(moments) > LEFT:
            n = min(max(round(share * len(moments)), 1), len(moments) - LEFT)
            hidden = is_free & (times >= moments[-n])
        return hidden
    for number in np.unique(channel[is_free]):
        here = np.flatnonzero(is_free & (channel == number))
        # Rounded up or down at random, so that short series are judged as well: 0.2 of 3 values is one in 3 of 5 times.
        n = min(int(share * len(here) + random.uniform()), len(here) - LEFT)
        if n > 0:
            hidden[random.choice(here, n, replace=False)] = True
    return hidden


def _asked(hidden: list[Bool[np.ndarray, "_"]], most: int, random: np.random.Generator) -> list[Bool[np.ndarray, "_"]]:
    """Which of the hidden tokens are asked for."""
    whole, ends = np.concatenate(hidden), np.cumsum([len(x) for x in hidden])[:-1]
    places = np.flatnonzero(whole)
    if len(places) > most:
        whole = np.zeros(len(whole), dtype=bool)
        whole[random.choice(places, most, replace=False)] = True
    return np.split(whole, ends)


def _asked_alone(
    samples: SampleSet, asked: list[Bool[np.ndarray, "_"]]
) -> tuple[SampleSet, list[Bool[np.ndarray, "_"]]]:
    """The samples of which anything is asked."""
    keep = [i for i, rows in enumerate(asked) if rows.any()]
    return samples[np.array(keep)], [asked[i] for i in keep]  # type: ignore[call-overload]


def _truth(
    samples: SampleSet, asked: list[Bool[np.ndarray, "_"]]
) -> tuple[Float64[np.ndarray, "t"], Int64[np.ndarray, "t"]]:
    """The hidden numbers end to end, and the number of the channel or column of each."""
    values = [measured_values(sample)[rows].double().numpy() for sample, rows in zip(samples, asked, strict=True)]
    channel = [_channels(sample)[rows] for sample, rows in zip(samples, asked, strict=True)]
    n_columns = values[0].shape[1]
    columns = np.concatenate(channel)[:, None] * n_columns + np.arange(n_columns)
    return np.concatenate(values).ravel(), columns.ravel()


def _spread(samples: SampleSet, n_channels: int) -> Float64[np.ndarray, "k"]:
    """The standard deviation of each channel within series, of what is visible; 0 where it does not vary."""
    total, count = np.zeros(n_channels), np.zeros(n_channels)
    for sample in samples:
        visible = ~sample.hidden.numpy() & ~_is_fact(sample)
        values, channel = measured_values(sample).double().numpy()[visible], _channels(sample)[visible]
        for number in np.unique(channel):
            here = values[channel == number]
            for column in range(values.shape[1]):
                i = number * values.shape[1] + column
                if i < n_channels and len(here) > 1:
                    total[i] += np.square(here[:, column] - here[:, column].mean()).sum()
                    count[i] += len(here) - 1
    return np.sqrt(total / np.maximum(count, 1))


class _Uncertain(NamedTuple):
    """The scores of distributions, and whether their intervals hold what came."""

    crps: Float64[np.ndarray, "t"]
    is_inside: Bool[np.ndarray, "t"]


def _answers(
    told: Sequence[Any], truth: Float64[np.ndarray, "t"], level: float
) -> tuple[Float64[np.ndarray, "t"], _Uncertain | None]:
    """The median or the number that was told of each, and what distributions say beside it."""
    if not isinstance(told[0], Distribution):
        return np.concatenate([np.asarray(x, dtype=np.float64).ravel() for x in told]), None
    whole = joined(told)
    low, high = whole.interval(level)
    levels = (np.arange(N_LEVELS) + 0.5) / N_LEVELS
    errors = [truth - whole.quantile(one) for one in levels]
    crps = 2 * np.mean([np.maximum(p * e, (p - 1) * e) for p, e in zip(levels, errors, strict=True)], axis=0)
    return whole.median(), _Uncertain(crps, (low <= truth) & (truth <= high))


def _filled(
    method: baselines.Method, samples: SampleSet, asked: list[Bool[np.ndarray, "_"]]
) -> Float64[np.ndarray, "t"]:
    """What a simple method says, from time and channel alone; NaN where a series shows nothing of a channel."""
    axes = [0] if samples.schema.channel is None else [0, -1]
    rows = []
    for sample, here in zip(samples, asked, strict=True):
        flat = replace(sample, positions=sample.positions[:, axes])
        filled = baselines.fill(method, flat, default=np.nan)
        rows.append(filled[here[sample.hidden.numpy()]].ravel())
    return np.concatenate(rows)

"""What the model that needs no training is judged by: series it has never seen, and what is hidden of them.

Real series come from public data sets; generated ones are sines without noise, random functions of the prior drawn by
another seed than any training, and Gaussian functions whose exact posterior is known. Of a long series a window of 64
consecutive measurements is taken. Each is asked in three ways: random holes, one long gap, and the last quarter ahead.

Shapes: n measurements of a series, q those that are asked for.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64

from romae.data.schema import Schema
from romae.experiments.datasets import asas, human_activity, physionet2012, plasticc, uea, ushcn
from romae.experiments.datasets.files import data_root
from romae.experiments.datasets.light_curves import BANDS
from romae.experiments.datasets.windows import Records
from romae.prior.exact import GaussianSeries
from romae.prior.series import Prior
from romae.tokens.sample import Sample

FEWEST, MOST = 16, 64  # measurements of a series
HIDDEN = 0.3  # of the measurements, in holes and in a gap
AHEAD = 0.25  # of the measurements, ahead
SEED = 1_000_001  # of what is drawn here; training draws with multiples of 3, and 1 and 2 (zero_model.SEEDS)
N_GENERATED = 256
N_GAUSSIAN = 48  # measurements of each Gaussian function
VALUE = Schema(values=("value",))
VALUE_AND_ERROR = Schema(values=("value",), errors=("error",))

# These real sets, random functions and sines alone may be looked at when the prior or the model is chosen. They were
# named before anything was measured with this file; the others are for the final evaluation.
DEVELOPMENT = ("physionet-HR", "ushcn-3", "asas-V")


class Series(NamedTuple):
    """Times in climbing order, values, and their measurement errors where they are known."""

    times: Float64[np.ndarray, "n"]
    values: Float64[np.ndarray, "n"]
    errors: Float64[np.ndarray, "n"] | None = None

    def window(self, start: int, n: int) -> "Series":
        """Some consecutive measurements."""
        part = slice(start, start + n)
        return Series(self.times[part], self.values[part], None if self.errors is None else self.errors[part])


@dataclass(frozen=True, eq=False)
class Question:
    """A series of which a part is hidden, and asked for.

    Parameters
    ----------
    series : Series
        All of it.
    hidden : Bool array [n]
        What no method may see.
    asked : Bool array [n], optional
        What is asked for, if that is not all that is hidden.
    """

    series: Series
    hidden: Bool[np.ndarray, "n"]
    asked: Bool[np.ndarray, "n"] | None = None

    @property
    def seen(self) -> Series:
        """What a method may see."""
        return Series(*(None if column is None else column[~self.hidden] for column in self.series))  # type: ignore[arg-type]

    @property
    def queries(self) -> Float64[np.ndarray, "q"]:
        """When it is asked for values."""
        return self.series.times[self._asked]

    @property
    def truth(self) -> Float64[np.ndarray, "q"]:
        """The values there."""
        return self.series.values[self._asked]

    @property
    def errors(self) -> Float64[np.ndarray, "q"]:
        """The measurement errors there, 0 where they are not known; when and how something is measured is no secret."""
        return np.zeros(int(self._asked.sum())) if self.series.errors is None else self.series.errors[self._asked]

    @property
    def scale(self) -> float:
        """The standard deviation of the visible values: the unit of all scores."""
        return float(self.seen.values.std())

    @property
    def varies(self) -> bool:
        """Whether the visible values differ; in deviations of constants nothing can be scored."""
        return self.scale > 1e-6 * float(np.abs(self.seen.values).max())

    @property
    def sample(self) -> Sample:
        """As models take it."""
        columns = [self.series.values, *([] if self.series.errors is None else [self.series.errors])]
        schema = VALUE if self.series.errors is None else VALUE_AND_ERROR
        return Sample(np.stack(columns, 1), self.series.times[:, None], hidden=self.hidden, schema=schema)

    @property
    def digest(self) -> str:
        """What tells the same question from another one; digits that differ between machines do not count."""
        columns = [column for column in self.series if column is not None]
        text = ";".join(" ".join(f"{x:.5g}" for x in column - column[0]) for column in columns)
        marks = "".join("01"[int(mark)] for mark in np.concatenate([self.hidden, self._asked]))
        return hashlib.sha256(f"{text};{marks}".encode()).hexdigest()[:12]

    @property
    def _asked(self) -> Bool[np.ndarray, "n"]:
        return self.hidden if self.asked is None else self.asked


Way = Callable[[int, np.random.Generator], Bool[np.ndarray, "n"]]


def holes(n: int, random: np.random.Generator) -> Bool[np.ndarray, "n"]:
    """Measurements at random are hidden; the first and the last one stay."""
    hidden = np.zeros(n, dtype=bool)
    hidden[1 + random.permutation(n - 2)[: round(HIDDEN * n)]] = True
    return hidden


def gap(n: int, random: np.random.Generator) -> Bool[np.ndarray, "n"]:
    """Measurements in a row are hidden, somewhere between the first and the last one."""
    length = round(HIDDEN * n)
    start = int(random.integers(1, n - length))
    hidden = np.zeros(n, dtype=bool)
    hidden[start : start + length] = True
    return hidden


def ahead(n: int, random: np.random.Generator) -> Bool[np.ndarray, "n"]:
    """The last measurements are hidden."""
    return np.arange(n) >= n - round(AHEAD * n)


WAYS: Mapping[str, Way] = MappingProxyType({"holes": holes, "gap": gap, "ahead": ahead})


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationSet:
    """Series of one kind, of which `read` gives at most so many as there are, in a fixed order.

    `is_smooth` names sets whose values follow a smooth or seasonal function, with little noise.
    """

    name: str
    title: str
    read: Callable[[], Iterable[Series]]
    is_real: bool = True
    is_smooth: bool = False

    @property
    def is_development(self) -> bool:
        """Whether the prior may be chosen on it."""
        return self.name in DEVELOPMENT or not self.is_real

    def questions(self, way: str, n: int) -> list[Question]:
        """The first so many series, asked in a way; those whose visible values are all the same are left out."""
        return list(islice(self._questions(way), n))

    def _questions(self, way: str) -> Iterator[Question]:
        for i, series in enumerate(self.read()):
            # What is hidden of a series depends on nothing but its place and the way.
            random = np.random.default_rng([SEED, list(WAYS).index(way), i])
            question = Question(series, WAYS[way](len(series.times), random))
            if question.varies:
                yield question


def _windows(series: Sequence[Series], limit: int = MOST) -> Iterator[Series]:
    """In random order, a window of each series that is long enough."""
    for i in np.random.default_rng(SEED).permutation(len(series)).tolist():
        n = len(series[i].times)
        if n >= FEWEST:
            start = int(np.random.default_rng([SEED, i]).integers(0, max(n - limit, 0) + 1))
            yield series[i].window(start, limit)


def _in_windows(series: Sequence[Series]) -> list[Series]:
    """Long recordings cut into windows that do not overlap."""
    return [one.window(start, MOST) for one in series for start in range(0, len(one.times) - MOST + 1, MOST)]


# Readers. What is read stays in memory, by folder, since several sets come from the same files.


@cache
def _stays(folder: Path) -> physionet2012.Stays:
    return physionet2012.load("c", folder=folder)


def _physionet(variable: str) -> list[Series]:
    """A variable of the stays of set c, times in minutes."""
    stays = _stays(data_root() / "physionet2012")
    here = stays.variables == physionet2012.VARIABLES.index(variable)
    return _by_record(stays.record_of_measurement[here], stays.minutes[here], stays.values[here])


def _by_record(
    record: Int64[np.ndarray, "n"], times: Float64[np.ndarray, "n"], values: Float64[np.ndarray, "n"]
) -> list[Series]:
    """The series of each record that has any."""
    starts = np.flatnonzero(np.diff(record)) + 1
    return [Series(*part) for part in zip(np.split(times, starts), np.split(values, starts), strict=True)]


@cache
def _records(reader: Callable[..., Records], folder: Path) -> Records:
    return reader(folder=folder)


def _of_records(records: Records, variable: int) -> list[Series]:
    here = records.variables == variable
    record = np.repeat(np.arange(len(records)), np.diff(records.offsets))[here]
    return _by_record(record, records.times[here], records.values[here])


def _ushcn(variable: int) -> list[Series]:
    """A variable of the stations, times in months."""
    return _of_records(_records(ushcn.load, data_root() / "ushcn"), variable)


def _activity(variable: str) -> list[Series]:
    """A coordinate of a tag, times in milliseconds, in windows that do not overlap."""
    records = _records(human_activity.load, data_root() / "human_activity")
    return _in_windows(_of_records(records, human_activity.VARIABLES.index(variable)))


@cache
def _stars(folder: Path) -> list[Series]:
    return [_with_errors(sample) for sample in asas.load(folder=folder).samples]


@cache
def _objects(folder: Path) -> list[Sample]:
    return plasticc.load(folder=folder).samples


def _plasticc(band: str) -> list[Series]:
    """Fluxes of objects in a band, with their errors, times in days."""
    samples = _objects(data_root() / "plasticc")
    keep = [sample.positions[:, 1] == BANDS.index(band) for sample in samples]
    return [
        _with_errors(replace(sample, values=sample.values[here], positions=sample.positions[here, :1]))
        for sample, here in zip(samples, keep, strict=True)
    ]


def _with_errors(sample: Sample) -> Series:
    value, error = sample.values.double().numpy().T
    return Series(sample.positions[:, 0].numpy(), value, error)


@cache
def _cases(name: str, folder: Path) -> list[Sample]:
    return uea.load(name, "test", missing="drop", folder=folder).samples


def _uea(name: str) -> list[Series]:
    """The first channel of the test cases, times in steps."""
    samples = _cases(name, data_root() / "uea")
    return [Series(sample.positions[:, 0].numpy(), sample.values[:, 0].double().numpy()) for sample in samples]


def _sines() -> list[Series]:
    """Sines without noise of one to six cycles, at random times."""
    series = []
    for i in range(N_GENERATED):
        random = np.random.default_rng([SEED, i])
        times = np.sort(random.uniform(0, 1, int(random.integers(24, MOST + 1))))
        cycles, phase = random.uniform(1, 6), random.uniform(0, 2 * np.pi)
        series.append(Series(times, np.sin(2 * np.pi * cycles * times + phase)))
    return series


@cache
def _prior() -> list[Series]:
    """Random functions of the prior, of one channel, without stated errors."""
    packed = Prior(fewest=24, most=MOST, most_channels=1).series(N_GENERATED, SEED).packed(np.arange(N_GENERATED))
    drawn = [packed.sample(i) for i in range(N_GENERATED)]
    columns = [(sample.positions[:, 0].double().numpy(), sample.values[:, 0].double().numpy()) for sample in drawn]
    order = [np.argsort(times, kind="stable") for times, _ in columns]
    return [Series(times[by], values[by]) for (times, values), by in zip(columns, order, strict=True)]


@cache
def _gaussian_series() -> GaussianSeries:
    return GaussianSeries.drawn(N_GENERATED, SEED, n_observed=N_GAUSSIAN - 1, n_queries=1)


def _gaussian() -> list[Series]:
    """Gaussian functions of one kernel each, with noise."""
    drawn = _gaussian_series()
    times, values = torch.cat([drawn.times, drawn.queries], 1), torch.cat([drawn.values, drawn.truth], 1)
    order = times.argsort(1)
    pairs = zip(times.gather(1, order).numpy(), values.gather(1, order).numpy(), strict=True)
    return [Series(*pair) for pair in pairs]


def exact_posterior(
    questions: Sequence[Question],
) -> list[tuple[Float64[np.ndarray, "q"], Float64[np.ndarray, "q"]]]:
    """The mean and the deviation that nothing can beat, for the first so many Gaussian functions."""
    drawn, n = _gaussian_series(), len(questions)
    hidden = torch.from_numpy(np.stack([question.hidden for question in questions]))
    times, values = (torch.from_numpy(np.stack(x)) for x in zip(*(q.series[:2] for q in questions), strict=True))

    def part(x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        return x[keep].reshape(n, -1)  # of all functions, as many measurements are hidden

    # A kernel is a function of all series at once, so that the others are asked along and left out.
    def filled(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, x[:1].expand(N_GENERATED - n, -1)])

    asked = replace(
        drawn,
        times=filled(part(times, ~hidden)),
        values=filled(part(values, ~hidden)),
        queries=filled(part(times, hidden)),
        truth=filled(part(values, hidden)),
    )
    mean, deviation = (x.numpy()[:n] for x in asked.posterior())
    return list(zip(mean, deviation, strict=True))


def _real(name: str, title: str, read: Callable[[], Sequence[Series]], *, is_smooth: bool = False) -> EvaluationSet:
    return EvaluationSet(name=name, title=title, read=lambda: _windows(read()), is_smooth=is_smooth)


GAUSSIAN = "gaussian"
SETS: Mapping[str, EvaluationSet] = MappingProxyType(
    {
        one.name: one
        for one in (
            *(
                _real(f"physionet-{name}", f"PhysioNet 2012, {name}", partial(_physionet, name))
                for name in ("HR", "MAP", "Temp", "SysABP", "Urine", "GCS")
            ),
            *(_real(f"ushcn-{i + 1}", f"USHCN, {name}", partial(_ushcn, i)) for i, name in enumerate(ushcn.VARIABLES)),
            _real("asas-V", "ASAS, magnitudes of variable stars", lambda: _stars(data_root() / "asas")),
            *(_real(f"plasticc-{band}", f"PLAsTiCC, band {band}", partial(_plasticc, band)) for band in "ri"),
            *(
                _real(
                    f"activity-{name.replace(' ', '-')}", f"Human Activity, {name}", partial(_activity, name),
                    is_smooth=True,
                )
                for name in ("left ankle x", "chest y", "belt z")
            ),
            _real(
                "uea-CharacterTrajectories", "CharacterTrajectories, first channel",
                partial(_uea, "CharacterTrajectories"), is_smooth=True,
            ),
            _real("uea-Epilepsy", "Epilepsy, first channel", partial(_uea, "Epilepsy")),
            _real("uea-BasicMotions", "BasicMotions, first channel", partial(_uea, "BasicMotions")),
            EvaluationSet(name="sines", title="sines without noise", read=_sines, is_real=False, is_smooth=True),
            EvaluationSet(name="prior", title="random functions of the prior", read=_prior, is_real=False),
            EvaluationSet(name=GAUSSIAN, title="Gaussian functions", read=_gaussian, is_real=False),
        )
    }
)  # fmt: skip


# Several channels


PRESSURES = ("SysABP", "DiasABP", "MAP")
FEWEST_ROWS = 8  # in which all three pressures are visible, so that a regression can be fitted


@dataclass(frozen=True, eq=False)
class Pressures:
    """The invasive blood pressures of a stay, of which 30 % of all numbers are hidden.

    Parameters
    ----------
    questions : tuple of Question
        One for each channel, in the order of `PRESSURES`.
    """

    questions: tuple[Question, ...]

    @property
    def sample(self) -> Sample:
        """All channels as one sample, one after the other."""
        series = [question.series for question in self.questions]
        channel = np.repeat(np.arange(len(series)), [len(one.times) for one in series]).astype(np.float64)
        positions = np.stack([np.concatenate([one.times for one in series]), channel], 1)
        return Sample(
            np.concatenate([one.values for one in series])[:, None],
            positions,
            hidden=np.concatenate([question.hidden for question in self.questions]),
            schema=Schema(channel="channel", channels=PRESSURES, values=("value",)),
        )

    @property
    def queries(self) -> Float64[np.ndarray, "q 2"]:
        """What is asked of the sample: times and channels."""
        parts = [np.stack([q.queries, np.full(len(q.queries), i)], 1) for i, q in enumerate(self.questions)]
        return np.concatenate(parts).astype(np.float64)

    @property
    def map_beside_both(self) -> Question:
        """The mean pressure, asked for where both others of the same minute are visible."""
        systolic, diastolic, mean = self.questions
        both = np.intersect1d(systolic.seen.times, diastolic.seen.times)
        return replace(mean, asked=mean.hidden & np.isin(mean.series.times, both))

    @property
    def complete_rows(self) -> Float64[np.ndarray, "n 3"]:
        """Minutes in which all three are visible: systolic, diastolic and mean pressure."""
        seen = [question.seen for question in self.questions]
        minutes = np.intersect1d(np.intersect1d(seen[0].times, seen[1].times), seen[2].times)
        return np.stack([one.values[np.searchsorted(one.times, minutes)] for one in seen], 1)


def pressures(n: int) -> list[Pressures]:
    """The stays of set c, at most so many, in windows of 64 minutes in which a pressure was measured."""
    stays = _stays(data_root() / "physionet2012")
    names = [physionet2012.VARIABLES.index(name) for name in PRESSURES]
    found: list[Pressures] = []
    for i in np.random.default_rng(SEED).permutation(len(stays)).tolist():
        here = slice(*stays.offsets[i : i + 2].tolist())
        minutes, variables, values = stays.minutes[here], stays.variables[here], stays.values[here]
        distinct = np.unique(minutes[np.isin(variables, names)])
        if len(distinct) < FEWEST:
            continue
        random = np.random.default_rng([SEED, i])
        first = int(random.integers(0, max(len(distinct) - MOST, 0) + 1))
        window = np.isin(minutes, distinct[first : first + MOST])
        series = [Series(minutes[window & (variables == k)], values[window & (variables == k)]) for k in names]
        if min(len(one.times) for one in series) < FEWEST:
            continue
        ends = np.cumsum([len(one.times) for one in series])
        hidden = np.zeros(ends[-1], dtype=bool)
        hidden[random.permutation(ends[-1])[: round(HIDDEN * ends[-1])]] = True
        questions = tuple(Question(*pair) for pair in zip(series, np.split(hidden, ends[:-1]), strict=True))
        stay = Pressures(questions)
        is_asked = all(question.varies and len(question.queries) for question in questions)
        if is_asked and len(stay.map_beside_both.queries) and len(stay.complete_rows) >= FEWEST_ROWS:
            found.append(stay)
        if len(found) == n:
            break
    return found

"""The problems of the comparison: which data, divided how, judged by what.

Every score is better the higher it is: accuracies, macro F1, areas under curves, and R² of numbers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Int64, Shaped

from romae.data.schema import SampleSet, Schema
from romae.data.subsets import rank_in_class
from romae.experiments.datasets import (
    asas,
    esc50,
    light_curves,
    oscillators,
    pendulum,
    physionet2012,
    plasticc,
    synthetic,
    uea,
)
from romae.tokens.masking import UniformTokens, hide
from romae.tokens.sample import Sample
from romae.training.rules import held_out

TaskKind = Literal["classification", "regression", "interpolation"]
Metric = Literal["accuracy", "macro F1", "AUROC", "R²"]

HIDDEN = 0.5  # of the tokens of a test series that is to be interpolated
CHOOSING_SHARE = 0.25  # of the training data, as test where settings are chosen
QUICK = MappingProxyType({"train": 60, "test": 20})  # samples, for a rehearsal
FEWEST_OF_A_CLASS = 50  # stars; with and without them is another question


class Division(NamedTuple):
    """What is learned from and what is asked.

    Labels are class indices or numbers, and None where hidden tokens of the test samples are to be told.
    """

    train: Sequence[Sample]
    test: Sequence[Sample]
    labels: Shaped[np.ndarray, "b"] | None = None
    truth: Shaped[np.ndarray, "b"] | None = None


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A problem; `divide(fold)` reads its data. `is_chosen_on` tells whether defaults were chosen on its training data,
    by `for_choosing`."""

    name: str
    title: str
    task: TaskKind
    metric: Metric
    divide: Callable[[int], Division]
    n_folds: int = 1
    is_chosen_on: bool = False

    def division(self, fold: int, *, quick: bool = False) -> Division:
        """The training and test data of a fold, or a few of them."""
        if not 0 <= fold < self.n_folds:
            raise ValueError(f"{self.name} has the folds 0 to {self.n_folds - 1}, and not {fold}")
        whole = self.divide(fold)
        return smaller(whole) if quick else whole

    def for_choosing(self, seed: int) -> Division:
        """A division of the training data of the first fold, whose test data take no part."""
        whole = self.divide(0)
        groups = whole.labels if self.task == "classification" else None
        is_asked = held_out(
            np.zeros(len(whole.train)) if groups is None else groups, CHOOSING_SHARE, np.random.default_rng(seed)
        )
        train, asked = (_chosen(whole.train, np.flatnonzero(chosen)) for chosen in (~is_asked, is_asked))
        if self.task == "interpolation":
            return Division(train, _like(asked, _hidden(asked, seed)))
        assert whole.labels is not None
        return Division(train, asked, whole.labels[~is_asked], whole.labels[is_asked])


def find(name: str) -> Problem:
    """The problem of this name."""
    for problem in PROBLEMS:
        if problem.name == name:
            return problem
    raise ValueError(f"there is no problem {name!r}; there are {', '.join(problem.name for problem in PROBLEMS)}")


def _like(samples: Sequence[Sample], others: list[Sample]) -> Sequence[Sample]:
    """Others under the names of samples, where these have such."""
    return SampleSet(others, samples.schema) if isinstance(samples, SampleSet) else others


def _chosen(samples: Sequence[Sample], indices: Int64[np.ndarray, "i"]) -> Sequence[Sample]:
    return _like(samples, [samples[i] for i in indices.tolist()])


def smaller(division: Division, counts: Mapping[str, int] = QUICK) -> Division:
    """The first few samples, of every class where there are classes; for a rehearsal."""

    def first(labels: np.ndarray | None, samples: Sequence[Sample], n: int) -> Int64[np.ndarray, "i"]:
        order = np.arange(len(samples))
        if labels is not None and labels.dtype.kind == "i":
            order = np.argsort(rank_in_class(labels), kind="stable")
        return np.sort(order[:n])

    train = first(division.labels, division.train, counts["train"])
    test = first(division.truth, division.test, counts["test"])
    labels = None if division.labels is None else division.labels[train]
    truth = None if division.truth is None else division.truth[test]
    return Division(_chosen(division.train, train), _chosen(division.test, test), labels, truth)


def _hidden(samples: Sequence[Sample], seed: int) -> list[Sample]:
    """The same samples with half of their tokens hidden; those of a single token are left out."""
    return hide(samples, UniformTokens(ratio=HIDDEN), seed)


def _classes(samples: Sequence[Sample]) -> Int64[np.ndarray, "b"]:
    return np.array([int(sample.target) for sample in samples if sample.target is not None], dtype=np.int64)


def _bare(samples: Sequence[Sample]) -> list[Sample]:
    """Without targets, which methods are given apart."""
    return [replace(sample, target=None) for sample in samples]


def _classification(train: list[Sample], test: list[Sample], schema: Schema | None = None) -> Division:
    labels, truth = _classes(train), _classes(test)
    parts: list[Sequence[Sample]] = [_bare(train), _bare(test)]
    if schema is not None:
        parts = [SampleSet(list(part), schema) for part in parts]
    return Division(parts[0], parts[1], labels, truth)


def _fold_of(labels: Int64[np.ndarray, "b"], n_folds: int, fold: int) -> tuple[list[int], list[int]]:
    """All folds but one, and that one, with equal shares of every class."""
    from sklearn.model_selection import StratifiedKFold

    parts = list(StratifiedKFold(n_folds, shuffle=True, random_state=0).split(labels, labels))
    rest, chosen = parts[fold]
    return rest.tolist(), chosen.tolist()


# The data


def _uea(name: str, drop: float, fold: int) -> Division:
    train, test = (uea.load(name, half, missing=0.0).samples for half in ("train", "test"))
    return _classification(_thinned(train, drop, 0), _thinned(test, drop, 1))


def _heartbeat(drop: float, n_folds: int, fold: int) -> Division:
    """Of Heartbeat the training half alone is at hand: it is divided."""
    samples = _thinned(uea.load("Heartbeat", "train", missing=0.0).samples, drop, 0)
    rest, chosen = _fold_of(_classes(samples), n_folds, fold)
    return _classification([samples[i] for i in rest], [samples[i] for i in chosen])


def _thinned(samples: list[Sample], drop: float, half: int) -> list[Sample]:
    """Without a share of their time steps, drawn for each sample."""
    if drop == 0:
        return samples
    return [uea.thinned(sample, drop, (0, half, i)) for i, sample in enumerate(samples)]


def _mortality(fold: int) -> Division:
    train, test = (physionet2012.load(letter).samples() for letter in "ab")
    return _classification(train, test, physionet2012.SCHEMA)


def _stays(fold: int) -> Division:
    """As many stays of set a as make about a million tokens; some of set b with half of their numbers hidden."""
    train, test = physionet2012.load("a").samples()[:2_000], physionet2012.load("b").samples()[:400]
    return Division(
        SampleSet(_bare(train), physionet2012.SCHEMA), SampleSet(_hidden(_bare(test), 0), physionet2012.SCHEMA)
    )


def _plasticc(per_class: int | None, fold: int) -> Division:
    samples = plasticc.load().samples
    rest, chosen = _fold_of(_classes(samples), 5, fold)
    train = [samples[i] for i in rest]
    if per_class is not None:
        train = _few_of_each(train, per_class, fold)
    return _classification(train, [samples[i] for i in chosen], light_curves.SCHEMA)


def _few_of_each(samples: list[Sample], n: int, seed: int) -> list[Sample]:
    """So many of each class, drawn by the seed."""
    order = np.random.default_rng(seed).permutation(len(samples))
    ranks = rank_in_class(_classes(samples)[order])
    return [samples[i] for i in np.sort(order[ranks < n]).tolist()]


def _stars() -> list[Sample]:
    samples = asas.load().samples
    labels = _classes(samples)
    common = np.flatnonzero(np.bincount(labels) >= FEWEST_OF_A_CLASS)
    return [
        replace(sample, target=int(np.searchsorted(common, label)))
        for sample, label in zip(samples, labels.tolist(), strict=True)
        if label in common
    ]


def _asas(fold: int) -> Division:
    samples = _stars()
    rest, chosen = _fold_of(_classes(samples), 5, fold)
    return _classification(_few_of_each([samples[i] for i in rest], 100, 0), [samples[i] for i in chosen])


def _periods(fold: int) -> Division:
    samples = _stars()
    order = np.random.default_rng(0).permutation(len(samples))[:1_500].tolist()
    chosen = [samples[i] for i in order]
    targets = np.log10(asas.periods(chosen))
    bare = _bare(chosen)
    return Division(bare[:1_000], bare[1_000:], targets[:1_000], targets[1_000:])


def _sounds(fold: int) -> Division:
    """A clip is a series of frames, four of them (40 ms) in the mean, with the 128 bins as its channels."""
    everything = esc50.load()

    def series(clips: esc50.Spectrograms) -> list[Sample]:
        values = clips.values()
        n = values.shape[1] // 4
        means = values[:, : 4 * n].reshape(len(values), n, 4, -1).mean(2)
        steps = np.arange(n, dtype=np.float64)[:, None]
        return [
            Sample(x, steps, target=target, id=name)
            for x, target, name in zip(means, clips.targets.tolist(), clips.names, strict=True)
        ]

    others = [number for number in range(1, esc50.N_FOLDS + 1) if number != fold + 1]
    return _classification(series(everything.of_folds(others)), series(everything.of_folds([fold + 1])))


def _pendulum(fold: int) -> Division:
    """The height of the pendulum's end, the cosine of its angle, in the last frame of noisy ones."""
    splits = pendulum.generate(seed=0)
    train, test = splits["train"], splits["test"]

    def height(sample: Sample) -> float:
        assert sample.target is not None
        return float(sample.target[-1, 1])

    labels, truth = (np.array([height(sample) for sample in part]) for part in (train, test))
    return Division(_bare(train), _bare(test), labels, truth)


def _synthetic(fold: int) -> Division:
    splits = synthetic.generate(seed=0)
    return Division(_unhidden(splits["train"]), splits["test"])


def _unhidden(samples: Sequence[Sample]) -> list[Sample]:
    return [replace(sample, hidden=None, target=None) for sample in samples]


def _oscillators(fold: int) -> Division:
    train, test = oscillators.oscillators(1_500, 0), oscillators.oscillators(300, 1)
    return Division(SampleSet(_unhidden(train), oscillators.SCHEMA), SampleSet(_bare(test), oscillators.SCHEMA))


UEA = {"BasicMotions": False, "CharacterTrajectories": False, "Epilepsy": True, "LSST": True}  # chosen on?
DROPS = {"complete": 0.0, "thinned": 0.3}
WORDS = {"complete": "", "thinned": ", 30 % of the steps dropped"}


def _of_uea() -> list[Problem]:
    problems = []
    for form, drop in DROPS.items():
        for name, is_chosen_on in UEA.items():
            problems.append(
                Problem(
                    name=f"{name}-{form}",
                    title=f"{name}{WORDS[form]}",
                    task="classification",
                    metric="accuracy",
                    divide=partial(_uea, name, drop),
                    is_chosen_on=is_chosen_on and form == "complete",
                )
            )
        problems.append(
            Problem(
                name=f"Heartbeat-{form}",
                title=f"Heartbeat, its training half{WORDS[form]}",
                task="classification",
                metric="accuracy",
                divide=partial(_heartbeat, drop, 4),
                n_folds=4,
            )
        )
    return problems


PROBLEMS: tuple[Problem, ...] = (
    *_of_uea(),
    Problem(
        name="mortality",
        title="PhysioNet 2012: death in hospital, set a to set b",
        task="classification",
        metric="AUROC",
        divide=_mortality,
        is_chosen_on=True,
    ),
    Problem(
        name="plasticc",
        title="PLAsTiCC, all labels",
        task="classification",
        metric="macro F1",
        divide=partial(_plasticc, None),
        n_folds=5,
    ),
    Problem(
        name="plasticc-20",
        title="PLAsTiCC, 20 labels of each class",
        task="classification",
        metric="macro F1",
        divide=partial(_plasticc, 20),
        n_folds=5,
    ),
    Problem(
        name="asas-100",
        title="ASAS, 100 labels of each class",
        task="classification",
        metric="macro F1",
        divide=_asas,
        is_chosen_on=True,
    ),
    Problem(
        name="esc50",
        title="ESC-50, fold 1, log-mel frames of 40 ms",
        task="classification",
        metric="accuracy",
        divide=_sounds,
    ),
    Problem(name="pendulum", title="pendulum: its last height", task="regression", metric="R²", divide=_pendulum),
    Problem(name="asas-period", title="ASAS: log period", task="regression", metric="R²", divide=_periods),
    Problem(
        name="stays",
        title="PhysioNet 2012: half of the numbers hidden",
        task="interpolation",
        metric="R²",
        divide=_stays,
        is_chosen_on=True,
    ),
    Problem(
        name="synthetic", title="synthetic, 3 to 10 observed", task="interpolation", metric="R²", divide=_synthetic
    ),
    Problem(
        name="oscillators",
        title="oscillators of the demo",
        task="interpolation",
        metric="R²",
        divide=_oscillators,
        is_chosen_on=True,
    ),
)

"""What forecasts stand beside: the last value, a line, the mean, and boosted trees on lagged features.

Samples hide their future, as those of `datasets/windows.py` do: the first position is the time, the second one the
variable. All methods answer for the hidden numbers of all samples end to end, in the order of `Observed.asked`, and
know nothing of a sample but what it shows. Where it shows nothing of a variable, the mean of the training samples
stands in.

Shapes: n numbers of all samples, q hidden ones, s samples, v variables, k features.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from jaxtyping import Bool, Float, Float64, Int64

from romae.tokens.sample import Sample

N_TREES, MOST_ROWS = 300, 100_000  # of trees, and of numbers that they learn from: minutes on one core
CHUNK = 100_000  # rows at a time, whose features fit into memory

Answers = Float64[np.ndarray, "q"]


@dataclass(frozen=True, eq=False)
class Observed:
    """The numbers of many samples end to end."""

    sample: Int64[np.ndarray, "n"]
    time: Float64[np.ndarray, "n"]
    variable: Int64[np.ndarray, "n"]
    value: Float64[np.ndarray, "n"]
    hidden: Bool[np.ndarray, "n"]
    n_samples: int
    n_variables: int

    @classmethod
    def of(cls, samples: Sequence[Sample], n_variables: int) -> "Observed":
        """Of samples whose tokens are single numbers at (time, variable) and which all hide some."""
        if not samples:
            raise ValueError("there is no sample to forecast or to learn from: the list is empty")
        if any(sample.hidden is None for sample in samples):
            raise ValueError("a sample hides nothing, so there is nothing to forecast: set Sample(hidden=…)")
        positions = np.concatenate([sample.positions.double().numpy() for sample in samples])
        return cls(
            sample=np.repeat(np.arange(len(samples)), [len(sample) for sample in samples]),
            time=positions[:, 0],
            variable=positions[:, 1].astype(np.int64),
            value=np.concatenate([sample.values[:, 0].double().numpy() for sample in samples]),
            hidden=np.concatenate([sample.hidden.numpy() for sample in samples]),
            n_samples=len(samples),
            n_variables=n_variables,
        )

    @property
    def cell(self) -> Int64[np.ndarray, "n"]:
        """The pair of sample and variable that each number belongs to."""
        return self.sample * self.n_variables + self.variable

    @property
    def truth(self) -> Answers:
        """What was measured where it is asked."""
        return self.value[self.hidden]

    @property
    def asked(self) -> Int64[np.ndarray, "q"]:
        """The variables of what is asked."""
        return self.variable[self.hidden]

    def means(self) -> Float64[np.ndarray, "v"]:
        """The mean of each variable over all numbers, the hidden ones among them; 0 where there is none."""
        counts = np.bincount(self.variable, minlength=self.n_variables)
        return np.bincount(self.variable, self.value, self.n_variables) / np.maximum(counts, 1)


@dataclass(frozen=True, eq=False)
class History:
    """What each sample shows of each variable, as statistics; NaN where it shows nothing.

    `slope` is that of the line of least squares, 0 through a single time; `mean_time` is where it passes the mean.
    Ages are counted from `now`, the last time at which a sample shows anything.
    """

    now: Float64[np.ndarray, "s"]
    last: Float64[np.ndarray, "s v"]
    age: Float64[np.ndarray, "s v"]
    mean: Float64[np.ndarray, "s v"]
    slope: Float64[np.ndarray, "s v"]
    mean_time: Float64[np.ndarray, "s v"]
    count: Float64[np.ndarray, "s v"]

    @classmethod
    def of(cls, observed: Observed) -> "History":
        seen = ~observed.hidden
        cell, time, value = observed.cell[seen], observed.time[seen], observed.value[seen]
        shape = observed.n_samples, observed.n_variables
        n_cells = shape[0] * shape[1]
        order = np.lexsort((time, cell))
        cell, time, value = cell[order], time[order], value[order]
        count = np.bincount(cell, minlength=n_cells)
        with np.errstate(invalid="ignore", divide="ignore"):  # a variable that is not shown has 0 of 0
            mean = np.bincount(cell, value, n_cells) / count
            mean_time = np.bincount(cell, time, n_cells) / count
            since = time - mean_time[cell]
            spread = np.bincount(cell, since**2, n_cells)
            slope = np.bincount(cell, since * value, n_cells) / np.where(spread > 0, spread, np.inf)
        last, last_time = np.full(n_cells, np.nan), np.full(n_cells, np.nan)
        last[cell], last_time[cell] = value, time  # in the order of time: the last one stays
        now = np.full(shape[0], -np.inf)
        np.maximum.at(now, observed.sample[seen], observed.time[seen])
        cells = (last, np.repeat(now, shape[1]) - last_time, mean, slope, mean_time, count.astype(float))
        return cls(now, *(numbers.reshape(shape) for numbers in cells))


def constant(train: Observed, test: Observed) -> Answers:
    """The mean of the variable over the training samples."""
    return train.means()[test.asked]


def last_value(train: Observed, test: Observed) -> Answers:
    """The last value that is shown of the variable, carried forward (LOCF)."""
    return _or_mean(History.of(test).last.ravel()[test.cell[test.hidden]], train, test)


def visible_mean(train: Observed, test: Observed) -> Answers:
    """The mean of what is shown of the variable."""
    return _or_mean(History.of(test).mean.ravel()[test.cell[test.hidden]], train, test)


def linear_trend(train: Observed, test: Observed) -> Answers:
    """The line of least squares through what is shown of the variable, drawn on."""
    history, cell = History.of(test), test.cell[test.hidden]
    ahead = test.time[test.hidden] - history.mean_time.ravel()[cell]
    return _or_mean(history.mean.ravel()[cell] + history.slope.ravel()[cell] * ahead, train, test)


class Boosting:
    """Boosted trees (scikit-learn) for the change from the last value, one model for all variables.

    Features are the last value of every variable, its age, the mean and the slope; the same of the variable that is
    asked for, and its count; the variable, and how far ahead. With `macro` all variables count alike in the loss. They
    learn from at most 100 000 hidden numbers of the training samples, drawn by the seed.
    """

    def __init__(self, train: Observed, *, macro: bool = True, seed: int = 0, n_trees: int = N_TREES):
        from sklearn.ensemble import HistGradientBoostingRegressor

        asked = np.flatnonzero(train.hidden)
        chosen = np.sort(np.random.default_rng(seed).permutation(asked)[:MOST_ROWS])
        base, counts = last_value(train, train), np.bincount(train.variable[chosen], minlength=train.n_variables)
        change = train.value[chosen] - base[np.searchsorted(asked, chosen)]
        self._trees = HistGradientBoostingRegressor(
            max_iter=n_trees, learning_rate=0.05, min_samples_leaf=50, categorical_features=[0], random_state=seed
        )
        weights = 1 / counts[train.variable[chosen]] if macro else None
        features = _features(train, History.of(train), chosen)
        self._is_told = np.isfinite(features).any(axis=0)  # trees cannot be fitted to what no training sample shows
        self._trees.fit(features[:, self._is_told], change, sample_weight=weights)
        self._train = train

    def __call__(self, test: Observed) -> Answers:
        """What the trees answer where samples hide something."""
        history, rows = History.of(test), np.flatnonzero(test.hidden)
        parts = np.array_split(rows, -(-len(rows) // CHUNK))
        changes = [self._trees.predict(_features(test, history, part)[:, self._is_told]) for part in parts]
        return last_value(self._train, test) + np.concatenate(changes)


def weight_of_second(first: Answers, second: Answers, observed: Observed, *, macro: bool = True) -> float:
    """The weight, from 0 to 1, of the second answers in the mean of both whose squared error is the least.

    With `macro` the error is the mean over variables of the mean of each.
    """
    counts = np.bincount(observed.asked, minlength=observed.n_variables)
    weights = 1 / counts[observed.asked] if macro else np.ones(len(first))
    change = second - first
    size = float((weights * change**2).sum())
    return float(np.clip((weights * change * (observed.truth - first)).sum() / size, 0, 1)) if size > 0 else 0.0


Method = Callable[[Observed, Observed], Answers]
METHODS: Mapping[str, Method] = MappingProxyType(
    {"constant": constant, "mean": visible_mean, "linear trend": linear_trend, "last value": last_value}
)


def _features(observed: Observed, history: History, rows: Int64[np.ndarray, "q"]) -> Float[np.ndarray, "q k"]:
    """What trees are told of numbers that are asked."""
    sample, cell = observed.sample[rows], observed.cell[rows]
    statistics = (history.last, history.age, history.mean, history.slope)
    own = [numbers.ravel()[cell] for numbers in (*statistics, history.count)]
    ahead = observed.time[rows] - history.now[sample]
    columns = [observed.variable[rows], ahead, *own, *(numbers[sample].T for numbers in statistics)]
    return np.vstack(columns).astype(np.float32).T


def _or_mean(answers: Answers, train: Observed, test: Observed) -> Answers:
    """Answers, and where there is none the mean of the training samples."""
    return np.where(np.isnan(answers), train.means()[test.asked], answers)

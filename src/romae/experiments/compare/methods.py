"""What competes: the default estimators, and what people would take instead, as strong as it is quickly made.

A method learns from a division and answers for its test samples: scores of classes, whose highest is the answer;
numbers; or values of hidden tokens, one array of all.

Shapes: b samples, v of the test, k classes or features, t hidden tokens of the test, c columns, n points of a grid.
"""

import warnings
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64

from romae.data.grid import longest_duration, on_grid
from romae.data.scaling import Scaling, fit_scaling, scaled
from romae.data.sources import schema_of
from romae.data.summary import summary_features
from romae.estimators.convolutions import features_of, fit_banks
from romae.experiments import baselines
from romae.experiments.compare.problems import Division, TaskKind
from romae.experiments.minirocket import ALPHAS, MiniRocketClassifier

Scores = Float64[np.ndarray, "b k"]
Answers = np.ndarray
Method = Callable[..., Answers]  # of a division, a seed and a device

OURS, VECTORS = "RoMAE", "RoMAE vectors"
FEWEST_POINTS, MOST_POINTS = 32, 512  # of a grid
STRENGTHS = np.logspace(-4, 1, 6)  # inverse ones, of logistic regression
PENALTIES = np.logspace(-2, 4, 7)  # of ridge regression
N_FEATURES = 10_000  # of MiniRocket
NOTHING: Mapping[str, Any] = MappingProxyType({})


def answer(
    task: TaskKind, name: str, division: Division, *, seed: int, device: str, settings: Mapping[str, Any] = NOTHING
) -> Answers:
    """What the method of this name answers; `settings` are for our own, where defaults are chosen."""
    return METHODS[task][name](division, seed, device, **settings)


def _our_classes(division: Division, seed: int, device: str, **settings: Any) -> Scores:
    from romae.estimators.supervised import RoMAEClassifier

    classifier = RoMAEClassifier(random_state=seed, device=device, **settings).fit(division.train, division.labels)
    scores = np.zeros((len(division.test), _n_classes(division)))
    scores[:, classifier.classes_] = classifier.predict_proba(division.test)
    return scores


def _our_numbers(division: Division, seed: int, device: str, **settings: Any) -> Float64[np.ndarray, "b"]:
    from romae.estimators.supervised import RoMAERegressor

    regressor = RoMAERegressor(random_state=seed, device=device, **settings).fit(division.train, division.labels)
    return np.asarray(regressor.predict(division.test), dtype=np.float64)


def _our_values(division: Division, seed: int, device: str, **settings: Any) -> Float64[np.ndarray, "t c"]:
    from romae.estimators.unsupervised import RoMAEInterpolator
    from romae.inference.predictions import predict

    interpolator = RoMAEInterpolator(random_state=seed, device=device, **settings).fit(division.train)
    return np.concatenate([np.asarray(part, dtype=np.float64) for part in predict(interpolator.task_, division.test)])


def _features(division: Division) -> tuple[np.ndarray, np.ndarray]:
    train, test = (summary_features(part).values for part in (division.train, division.test))
    return train, test


def _boosted_classes(division: Division, seed: int, device: str) -> Scores:
    train, test = _features(division)
    model = baselines.gradient_boosting(seed).fit(train, division.labels)
    return _of_all_classes(model.predict_proba(test), model.classes_, division)


def _boosted_numbers(division: Division, seed: int, device: str) -> Float64[np.ndarray, "b"]:
    from sklearn.ensemble import HistGradientBoostingRegressor

    train, test = _features(division)
    trees = HistGradientBoostingRegressor(learning_rate=0.05, max_iter=200, random_state=seed)
    is_measured = ~np.isnan(train).all(axis=0)
    return trees.fit(train[:, is_measured], division.labels).predict(test[:, is_measured])


def _on_features(division: Division, seed: int, device: str) -> Scores:
    return _logistic(*_features(division), division, seed)


def _on_vectors(division: Division, seed: int, device: str, **settings: Any) -> Scores:
    """The vectors of a default embedder, which sees no label, under the same model as summary features."""
    from romae.estimators.unsupervised import RoMAEEmbedder

    embedder = RoMAEEmbedder(random_state=seed, device=device, **settings).fit(division.train)
    train, test = (np.asarray(embedder.transform(part), dtype=np.float64) for part in (division.train, division.test))
    return _logistic(train, test, division, seed)


def _logistic(
    train: Float64[np.ndarray, "b k"], test: Float64[np.ndarray, "v k"], division: Division, seed: int
) -> Float64[np.ndarray, "v c"]:
    """Logistic regression, its strength chosen by the log loss over folds of the training data."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.model_selection import GridSearchCV, StratifiedKFold

    assert division.labels is not None
    rarest = int(np.bincount(division.labels)[np.unique(division.labels)].min())
    model: Any = baselines.logistic_regression(0.01)
    if rarest >= 2:
        folds = StratifiedKFold(min(5, rarest), shuffle=True, random_state=seed)
        grid = {"logisticregression__C": STRENGTHS, "logisticregression__max_iter": [300]}
        model = GridSearchCV(model, grid, scoring="neg_log_loss", cv=folds)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(train, division.labels)
    return _of_all_classes(model.predict_proba(test), model.classes_, division)


def _ridge(division: Division, seed: int, device: str) -> Float64[np.ndarray, "b"]:
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    train, test = _features(division)
    model = make_pipeline(SimpleImputer(keep_empty_features=True), StandardScaler(), RidgeCV(PENALTIES))
    return model.fit(train, division.labels).predict(test)


def _grids(division: Division) -> tuple[Float64[np.ndarray, "b c n"], Float64[np.ndarray, "v c n"]]:
    """All series on an even grid with about as many points as a series has times; standardised, 0 where nothing is."""
    n_times = np.median([len(np.unique(sample.positions[:, 0].numpy())) for sample in division.train])
    times = np.linspace(0, longest_duration(division.train), int(np.clip(n_times, FEWEST_POINTS, MOST_POINTS)))
    schema = schema_of(division.train)
    n_kinds = None if schema is None else schema.n_channels
    train, test = (on_grid(part, times, n_kinds=n_kinds) for part in (division.train, division.test))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # channels that nobody measured
        centre, spread = np.nanmean(train, axis=(0, 2)), np.nanstd(train, axis=(0, 2))
    scale = np.where(spread > 0, spread, 1.0)
    train, test = (np.nan_to_num((part - centre[:, None]) / scale[:, None]) for part in (train, test))
    return train, test


def _rocket_classes(division: Division, seed: int, device: str) -> Scores:
    assert division.labels is not None
    train, test = _grids(division)
    model = MiniRocketClassifier(seed, n_features=N_FEATURES).fit(train, division.labels)
    scores = model.ridge.decision_function(model.features(test))
    scores = np.stack([-scores, scores], axis=1) if scores.ndim == 1 else scores
    return _of_all_classes(scores, model.ridge.classes_, division, lowest=-np.inf)


def _rocket_numbers(division: Division, seed: int, device: str) -> Float64[np.ndarray, "b"]:
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    train, test = (torch.from_numpy(grid.astype(np.float32)) for grid in _grids(division))
    banks = fit_banks(train, N_FEATURES, np.random.default_rng(seed))
    ridge = make_pipeline(StandardScaler(), RidgeCV(ALPHAS)).fit(features_of(banks, train), division.labels)
    return ridge.predict(features_of(banks, test))


def _nearest_class(division: Division, seed: int, device: str) -> Scores:
    from sklearn.neighbors import KNeighborsClassifier

    train, test = (grid.reshape(len(grid), -1) for grid in _grids(division))
    model = KNeighborsClassifier(1).fit(train, division.labels)
    return _of_all_classes(model.predict_proba(test), model.classes_, division)


def _nearest_number(division: Division, seed: int, device: str) -> Float64[np.ndarray, "b"]:
    from sklearn.neighbors import KNeighborsRegressor

    train, test = (grid.reshape(len(grid), -1) for grid in _grids(division))
    return KNeighborsRegressor(1).fit(train, division.labels).predict(test)


def standard_scaling(division: Division) -> Scaling:
    """Each channel by its mean and standard deviation in the training samples."""
    schema = schema_of(division.train)
    has_channels = schema is not None and schema.n_channels is not None
    return fit_scaling(division.train, values="standard", per="channel" if has_channels else "column", center="global")


def _filled(method: baselines.Method) -> Method:
    """A method that knows the visible tokens of a series alone, and the mean of a channel that has none of them."""

    def answers(division: Division, seed: int, device: str) -> Float64[np.ndarray, "t c"]:
        scaling, told = standard_scaling(division), []
        for sample, standard in zip(division.test, scaled(division.test, scaling), strict=True):
            filled = torch.from_numpy(baselines.fill(method, standard))  # 0, the mean, for channels never visible
            told.append(scaling.invert_values(filled, sample.positions[sample.hidden]).numpy())
        return np.concatenate(told)

    return answers


def _of_all_classes(scores: np.ndarray, classes: np.ndarray, division: Division, lowest: float = 0.0) -> Scores:
    """Scores of the classes that were learned, among those of all classes."""
    whole = np.full((len(scores), _n_classes(division)), lowest)
    whole[:, classes] = scores
    return whole


def _n_classes(division: Division) -> int:
    assert division.labels is not None and division.truth is not None
    return 1 + int(max(division.labels.max(), division.truth.max()))


METHODS: Mapping[TaskKind, Mapping[str, Method]] = MappingProxyType(
    {
        "classification": {
            OURS: _our_classes,
            "boosting": _boosted_classes,
            "linear model": _on_features,
            "MiniRocket": _rocket_classes,
            "1-NN": _nearest_class,
            VECTORS: _on_vectors,
        },
        "regression": {
            OURS: _our_numbers,
            "boosting": _boosted_numbers,
            "linear model": _ridge,
            "MiniRocket": _rocket_numbers,
            "1-NN": _nearest_number,
        },
        "interpolation": {
            OURS: _our_values,
            "linear": _filled(baselines.linear),
            "last value": _filled(baselines.last_value),
            "mean": _filled(baselines.mean),
            "Gaussian process": _filled(baselines.gaussian_process),
        },
    }
)

"""Models on summary features that an estimator keeps beside its network: boosted trees and a linear model.

Both are fitted by scikit-learn and kept as plain arrays, so that they are saved without pickle: a stranger's file
holds numbers and no code.

Shapes: b samples, k features, o outputs (logits of classes, or targets), n nodes of all trees, r rounds of boosting.
"""

import warnings
from dataclasses import dataclass, fields
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float64, Int64, Shaped

Features = Float64[np.ndarray, "b k"]
Scores = Float64[np.ndarray, "b o"]
Labels = Shaped[np.ndarray, "b *targets"]
A = TypeVar("A", bound="_Arrays")

ROUNDS, RATE = 200, 0.05
STRENGTHS = tuple(np.logspace(-4, 1, 6).tolist())  # inverse regularisation of classes; cross-validation takes one
PENALTIES = tuple(np.logspace(-2, 4, 7).tolist())  # of regression
FAR = 5.0  # standard deviations; a feature farther out counts as this far, so that one outlier decides nothing


@runtime_checkable
class Member(Protocol):
    """A fitted model on summary features."""

    def scores(self, features: Features) -> Scores:
        """Logits of the classes, or predicted targets."""
        ...

    def arrays(self) -> dict[str, np.ndarray]:
        """All that it has learned, for `from_arrays`."""
        ...


@dataclass(frozen=True, eq=False)
class _Arrays:
    def arrays(self) -> dict[str, np.ndarray]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_arrays(cls: type[A], arrays: dict[str, np.ndarray]) -> A:
        return cls(**arrays)


@dataclass(frozen=True, eq=False)
class Trees(_Arrays):
    """Gradient-boosted trees: the nodes of all trees in one table, and the root of each tree.

    A node sends a sample to `left` if its feature is at most the threshold, or if the feature is missing and
    `missing_left` says so. Leaves lead to themselves.
    """

    feature: Int64[np.ndarray, "n"]
    threshold: Float64[np.ndarray, "n"]
    missing_left: Bool[np.ndarray, "n"]
    left: Int64[np.ndarray, "n"]
    right: Int64[np.ndarray, "n"]
    value: Float64[np.ndarray, "n"]
    roots: Int64[np.ndarray, "r o"]
    baseline: Float64[np.ndarray, "o"]

    def scores(self, features: Features) -> Scores:
        totals = np.tile(self.baseline, (len(features), 1))
        rows = np.arange(len(features))[:, None]
        for roots in self.roots:  # a round: one tree for each output
            node = np.tile(roots, (len(features), 1))
            while (self.left[node] != node).any():
                asked = features[rows, self.feature[node]]
                goes_left = np.where(np.isnan(asked), self.missing_left[node], asked <= self.threshold[node])
                node = np.where(goes_left, self.left[node], self.right[node])
            totals += self.value[node]
        return totals

    @classmethod
    def fit(cls, features: Features, labels: Labels, *, n_classes: int | None, seed: int) -> "Trees":
        """Boosting with scikit-learn: of classes 0 to n - 1, or of one or several targets."""
        from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

        # Columns that nobody measured cannot be binned; as a constant they are never chosen.
        known = np.where(np.isnan(features).all(axis=0), 0.0, features)
        settings: dict[str, Any] = {"learning_rate": RATE, "max_iter": ROUNDS, "random_state": seed}
        settings |= {"early_stopping": False}
        if n_classes is not None:
            fitted = [HistGradientBoostingClassifier(**settings).fit(known, labels)]
        else:
            columns = labels.reshape(len(labels), -1).T
            fitted = [HistGradientBoostingRegressor(**settings).fit(known, column) for column in columns]
        trees = [[tree.nodes for model in fitted for tree in model._predictors[i]] for i in range(ROUNDS)]
        baseline = np.concatenate([np.ravel(model._baseline_prediction) for model in fitted])
        # Two classes have one tree a round, for the logit of the second beside 0: the first gets a tree of one leaf.
        is_pair = n_classes == 2
        return _in_one_table(trees, np.concatenate([[0.0], baseline]) if is_pair else baseline, is_pair=is_pair)


def _in_one_table(trees: list[list[np.ndarray]], baseline: Float64[np.ndarray, "o"], *, is_pair: bool) -> Trees:
    """All trees end to end after a leaf of value 0 at node 0."""
    tables = [nodes for one_round in trees for nodes in one_round]
    sizes = np.array([1, *(len(nodes) for nodes in tables)])
    starts = np.cumsum(sizes) - sizes
    nodes = np.concatenate(tables)
    first = np.repeat(starts[1:], sizes[1:])
    is_leaf = nodes["is_leaf"].astype(bool)
    itself = np.arange(1, sizes.sum())
    roots = starts[1:].reshape(len(trees), -1)

    def column(values: np.ndarray, at_zero: Any) -> np.ndarray:
        return np.concatenate([[at_zero], values])

    return Trees(
        feature=column(np.where(is_leaf, 0, nodes["feature_idx"]), 0).astype(np.int64),
        threshold=column(np.where(is_leaf, 0.0, nodes["num_threshold"]), 0.0),
        missing_left=column(nodes["missing_go_to_left"].astype(bool), True).astype(bool),
        left=column(np.where(is_leaf, itself, first + nodes["left"]), 0).astype(np.int64),
        right=column(np.where(is_leaf, itself, first + nodes["right"]), 0).astype(np.int64),
        value=column(np.where(is_leaf, nodes["value"], 0.0), 0.0),
        roots=np.concatenate([np.zeros_like(roots), roots], axis=1) if is_pair else roots,
        baseline=baseline.astype(np.float64),
    )


@dataclass(frozen=True, eq=False)
class Linear(_Arrays):
    """A regularised linear model on standardised features; a missing one takes its mean."""

    mean: Float64[np.ndarray, "k"]
    scale: Float64[np.ndarray, "k"]
    weight: Float64[np.ndarray, "k o"]
    bias: Float64[np.ndarray, "o"]

    def scores(self, features: Features) -> Scores:
        return _standardised(features, self.mean, self.scale) @ self.weight + self.bias

    @classmethod
    def fit(cls, features: Features, labels: Labels, *, n_classes: int | None, seed: int) -> "Linear":
        """Logistic or ridge regression with scikit-learn, its strength chosen by cross-validation."""
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import RidgeCV

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # columns that nobody measured
            mean, spread = np.nanmean(features, axis=0), np.nanstd(features, axis=0)
        mean, scale = np.nan_to_num(mean), np.where(spread > 0, spread, 1.0)
        standard = _standardised(features, mean, scale)
        if n_classes is None:
            columns = labels.reshape(len(labels), -1)
            ridge = RidgeCV(PENALTIES).fit(standard, columns)
            return cls(mean, scale, np.atleast_2d(ridge.coef_).T, np.ravel(ridge.intercept_))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # far enough for features that are alike
            model = _logistic(standard, labels, seed)
        weight, bias = model.coef_.T, model.intercept_
        if n_classes == 2:
            weight, bias = np.concatenate([0 * weight, weight], axis=1), np.concatenate([[0.0], bias])
        return cls(mean, scale, weight, bias)


def _standardised(
    features: Features, mean: Float64[np.ndarray, "k"], scale: Float64[np.ndarray, "k"]
) -> Float64[np.ndarray, "b k"]:
    return np.nan_to_num((features - mean) / scale).clip(-FAR, FAR)


def _logistic(standard: Features, labels: Labels, seed: int) -> Any:
    """Logistic regression of the strength with the best log loss over five folds, or fewer for rare classes."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    def model(strength: float) -> LogisticRegression:
        return LogisticRegression(C=strength, max_iter=200)

    n_folds = int(min(5, np.bincount(labels)[np.unique(labels)].min()))
    if n_folds < 2:
        return model(STRENGTHS[2]).fit(standard, labels)
    folds = StratifiedKFold(n_folds, shuffle=True, random_state=seed)
    losses = [
        log_loss(labels, cross_val_predict(model(strength), standard, labels, cv=folds, method="predict_proba"))
        for strength in STRENGTHS
    ]
    return model(STRENGTHS[int(np.argmin(losses))]).fit(standard, labels)

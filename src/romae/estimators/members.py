"""Models that an estimator keeps beside its network: boosted trees and a linear model on summary features, and
convolutions of the series on an even grid.

All are kept as plain arrays, so that they are saved without pickle: a stranger's file holds numbers and no code. Where
samples have weights, which are above 0, one of weight 2 counts as the sample twice.

Shapes: b samples, k features, o outputs (logits of classes, or targets), n nodes of all trees, r rounds of boosting;
c columns and p points of a grid, d dilations, m kernels, f features of a kernel at one dilation.
"""

import warnings
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float32, Float64, Int64, Shaped

from romae.estimators.convolutions import Bank, features_of, fit_banks, kernels

Features = Float64[np.ndarray, "b k"]
Grid = Float64[np.ndarray, "b c p"]
Scores = Float64[np.ndarray, "b o"]
Labels = Shaped[np.ndarray, "b *targets"]
Weights = Float64[np.ndarray, "b"]
A = TypeVar("A", bound="_Arrays")

# Small trees that see a tenth of the features at each split, or eight where there are few. Beside scikit-learn's own
# (31 leaves, all features) on a quarter of the training data: area under the curve of mortality 0.853 and 0.840, log
# loss 0.304 and 0.384; log loss of LSST 1.14 and 1.85, its accuracy 0.609 and 0.619; in less than half of the time.
ROUNDS, RATE, LEAVES, PENALTY = 200, 0.05, 16, 5.0
SHARE, FEWEST_FEATURES = 0.1, 8
STRENGTHS = tuple(np.logspace(-4, 1, 6).tolist())  # inverse regularisation of classes; cross-validation takes one
MANY = 30_000_000  # features of all samples and classes, from which on two folds choose the strength, and not five
PENALTIES = tuple(np.logspace(-2, 4, 7).tolist())  # of regression
N_CONVOLUTIONS = 2_016  # features of convolutions: 24 of each of 84 kernels, over all dilations
FAR = 5.0  # standard deviations; a feature farther out counts as this far, so that one outlier decides nothing


@runtime_checkable
class Member(Protocol):
    """A fitted model on summary features, or on a grid."""

    def scores(self, inputs: Any, /) -> Scores:
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
    def fit(
        cls, features: Features, labels: Labels, *, n_classes: int | None, seed: int, weights: Weights | None = None
    ) -> "Trees":
        """Boosting with scikit-learn: of classes 0 to n - 1, or of one or several targets."""
        from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

        # Columns that nobody measured cannot be binned; as a constant they are never chosen.
        known = np.where(np.isnan(features).all(axis=0), 0.0, features)
        settings: dict[str, Any] = {"learning_rate": RATE, "max_iter": ROUNDS, "random_state": seed}
        share = float(np.clip(FEWEST_FEATURES / features.shape[1], SHARE, 1.0))
        settings |= {"max_leaf_nodes": LEAVES, "l2_regularization": PENALTY, "max_features": share}
        settings |= {"early_stopping": False}
        if n_classes is not None:
            fitted = [HistGradientBoostingClassifier(**settings).fit(known, labels, weights)]
        else:
            columns = labels.reshape(len(labels), -1).T
            fitted = [HistGradientBoostingRegressor(**settings).fit(known, column, weights) for column in columns]
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
    def fit(
        cls, features: Features, labels: Labels, *, n_classes: int | None, seed: int, weights: Weights | None = None
    ) -> "Linear":
        """Logistic or ridge regression with scikit-learn, its strength chosen by cross-validation."""
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import RidgeCV

        mean, spread = _mean_and_spread(features, (0,), weights)
        mean, scale = np.nan_to_num(mean), np.where(spread > 0, spread, 1.0)
        standard = _standardised(features, mean, scale)
        if n_classes is None:
            columns = labels.reshape(len(labels), -1)
            ridge = RidgeCV(PENALTIES).fit(standard, columns, weights)
            return cls(mean, scale, np.atleast_2d(ridge.coef_).T, np.ravel(ridge.intercept_))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # far enough for features that are alike
            model = _logistic(standard, labels, seed, weights)
        weight, bias = model.coef_.T, model.intercept_
        if n_classes == 2:
            weight, bias = np.concatenate([0 * weight, weight], axis=1), np.concatenate([[0.0], bias])
        return cls(mean, scale, weight, bias)


@dataclass(frozen=True, eq=False)
class Convolutions(_Arrays):
    """Ridge regression on the features of MiniRocket, of series on an even grid whose columns are standardised.

    `looks` says at which columns each kernel looks, `padded` whether it looks beyond the ends; biases that a dilation
    does not have are NaN.
    """

    grid_mean: Float64[np.ndarray, "c"]
    grid_scale: Float64[np.ndarray, "c"]
    dilations: Int64[np.ndarray, "d"]
    looks: Bool[np.ndarray, "d m c"]
    padded: Bool[np.ndarray, "d m"]
    biases: Float64[np.ndarray, "d m f"]
    mean: Float64[np.ndarray, "k"]
    scale: Float64[np.ndarray, "k"]
    weight: Float64[np.ndarray, "k o"]
    bias: Float64[np.ndarray, "o"]

    def scores(self, grid: Grid) -> Scores:
        features = features_of(self._banks(), _as_tensor(grid, self.grid_mean, self.grid_scale))
        return (features - self.mean) / self.scale @ self.weight + self.bias

    def _banks(self) -> list[Bank]:
        shapes = kernels()
        banks = []
        for dilation, looks, padded, biases in zip(self.dilations, self.looks, self.padded, self.biases, strict=True):
            known = torch.from_numpy(biases[:, ~np.isnan(biases).all(axis=0)]).float()
            weights = shapes.unsqueeze(1) * torch.from_numpy(looks).unsqueeze(-1)
            banks.append(Bank(weights, int(dilation), torch.from_numpy(padded), known))
        return banks

    @classmethod
    def fit(
        cls, grid: Grid, labels: Labels, *, n_classes: int | None, seed: int, weights: Weights | None = None
    ) -> "Convolutions":
        """Convolutions with drawn columns and biases; the strength of the ridge has the least leave-one-out error."""
        grid_mean, spread = _mean_and_spread(grid, (0, 2), weights)
        grid_mean, grid_scale = np.nan_to_num(grid_mean), np.where(spread > 0, spread, 1.0)
        tensor = _as_tensor(grid, grid_mean, grid_scale)
        banks = fit_banks(tensor, N_CONVOLUTIONS, np.random.default_rng(seed))
        features = features_of(banks, tensor)
        mean, deviation = _mean_and_spread(features, (0,), weights)
        scale = np.where(deviation > 0, deviation, 1.0)
        targets = labels.reshape(len(labels), -1) if n_classes is None else 2 * np.eye(n_classes)[labels] - 1
        ridge = _ridge((features - mean) / scale, np.asarray(targets, dtype=np.float64), weights)
        # Scores of a ridge lie near 1 and -1, whatever they are worth: one factor makes logits of them.
        sharpness = 1.0 if n_classes is None else _sharpness(ridge.left_out, labels, weights)
        biases = np.full((len(banks), len(banks[0].weights), max(bank.biases.shape[1] for bank in banks)), np.nan)
        for row, bank in zip(biases, banks, strict=True):
            row[:, : bank.biases.shape[1]] = bank.biases.numpy()
        return cls(
            grid_mean=grid_mean,
            grid_scale=grid_scale,
            dilations=np.array([bank.dilation for bank in banks], dtype=np.int64),
            looks=np.stack([(bank.weights != 0).any(-1).numpy() for bank in banks]),
            padded=np.stack([bank.padded.numpy() for bank in banks]),
            biases=biases,
            mean=mean,
            scale=scale,
            weight=sharpness * ridge.weight,
            bias=sharpness * ridge.bias,
        )


def _as_tensor(
    grid: Grid, mean: Float64[np.ndarray, "c"], scale: Float64[np.ndarray, "c"]
) -> Float32[torch.Tensor, "b c p"]:
    """Standardised; a column that was never measured is at its mean."""
    return torch.from_numpy(np.nan_to_num((grid - mean[:, None]) / scale[:, None]).astype(np.float32))


class _Ridge(NamedTuple):
    """A fitted ridge regression, and what it says of each sample when fitted to the others."""

    weight: Float64[np.ndarray, "k o"]
    bias: Float64[np.ndarray, "o"]
    left_out: Float64[np.ndarray, "b o"]


def _ridge(standard: Features, targets: Float64[np.ndarray, "b o"], weights: Weights | None = None) -> _Ridge:
    """Ridge regression of the penalty with the least leave-one-out error, which has a closed form.

    Features are standardised, with the weights where there are such. To weigh a sample is to multiply its row by the
    root of its weight, which residuals are divided by again.
    """
    from scipy.linalg import eigh

    of_intercept = np.full(len(targets), 1 / len(targets)) if weights is None else weights / weights.sum()  # leverage
    offset = targets.mean(axis=0) if weights is None else of_intercept @ targets
    centred = targets - offset
    root = None if weights is None else np.sqrt(weights)[:, None]
    if root is not None:
        standard, centred = root * standard, root * centred
    is_wide = standard.shape[1] > standard.shape[0]
    gram = standard @ standard.T if is_wide else standard.T @ standard
    squares, vectors = eigh(gram, overwrite_a=True, check_finite=False)
    squares = squares.clip(min=0)
    kept = squares > 1e-9 * max(squares[-1], 1e-300)
    squares, vectors = squares[kept], vectors[:, kept]
    left = vectors if is_wide else standard @ vectors / np.sqrt(squares)
    turned = left.T @ centred
    best, least = None, np.inf
    for penalty in PENALTIES:
        share = squares / (squares + penalty)
        leverage = (left**2 @ share + of_intercept).clip(max=1 - 1e-9)
        residual = centred - left @ (share[:, None] * turned)
        left_out = targets - (residual if root is None else residual / root) / (1 - leverage)[:, None]
        error = float(np.average((left_out - targets) ** 2, axis=0, weights=weights).mean())
        if error < least:
            best, least = (share, left_out), error
    assert best is not None
    share, left_out = best
    along = (share / np.sqrt(squares))[:, None] * turned
    right = standard.T @ vectors / np.sqrt(squares) if is_wide else vectors
    return _Ridge(right @ along, offset, left_out)


def _sharpness(scores: Scores, labels: Int64[np.ndarray, "b"], weights: Weights | None = None) -> float:
    """The factor that makes scores the logits of the smallest log loss."""
    from scipy.optimize import minimize_scalar

    rows = np.arange(len(labels))

    def loss(logarithm: float) -> float:
        logits = np.exp(logarithm) * scores
        shifted = logits - logits.max(axis=1, keepdims=True)
        return float(np.average(np.log(np.exp(shifted).sum(axis=1)) - shifted[rows, labels], weights=weights))

    return float(np.exp(minimize_scalar(loss, bounds=(np.log(0.1), np.log(30.0)), method="bounded").x))


def _mean_and_spread(
    x: Float64[np.ndarray, "b ..."], axes: tuple[int, ...], weights: Weights | None
) -> tuple[Float64[np.ndarray, "c"], Float64[np.ndarray, "c"]]:
    """The mean and the standard deviation of each column; NaN for one that nobody measured."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of such columns
        if weights is None:
            return np.nanmean(x, axis=axes), np.nanstd(x, axis=axes)
        is_missing = np.isnan(x)
        by_entry = np.where(is_missing, 0.0, weights.reshape(-1, *[1] * (x.ndim - 1)))
        total, measured = by_entry.sum(axis=axes), np.where(is_missing, 0.0, x)
        mean = (by_entry * measured).sum(axis=axes) / total
        away = measured - np.expand_dims(mean, axes)
        return mean, np.sqrt((by_entry * away**2).sum(axis=axes) / total)


def _standardised(
    features: Features, mean: Float64[np.ndarray, "k"], scale: Float64[np.ndarray, "k"]
) -> Float64[np.ndarray, "b k"]:
    return np.nan_to_num((features - mean) / scale).clip(-FAR, FAR)


def _logistic(standard: Features, labels: Labels, seed: int, weights: Weights | None) -> Any:
    """Logistic regression of the strength with the best log loss over five folds, or fewer for rare classes.

    Strengths are tried from the weakest on, until one is worse than the one before: strong ones take longest.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss
    from sklearn.model_selection import StratifiedKFold

    def fitted(strength: float, rows: Int64[np.ndarray, "i"]) -> LogisticRegression:
        model = LogisticRegression(C=strength, max_iter=200)
        return model.fit(standard[rows], labels[rows], None if weights is None else weights[rows])

    everything = np.arange(len(labels))

    rarest = np.bincount(labels)[np.unique(labels)].min()
    n_folds = int(min(5 if standard.size * len(np.unique(labels)) < MANY else 2, rarest))
    if n_folds < 2:
        return fitted(STRENGTHS[2], everything)
    folds = list(StratifiedKFold(n_folds, shuffle=True, random_state=seed).split(standard, labels))
    losses = []
    for strength in STRENGTHS:
        probabilities = np.zeros((len(labels), len(np.unique(labels))))
        for training, held_out in folds:
            probabilities[held_out] = fitted(strength, training).predict_proba(standard[held_out])
        losses.append(log_loss(labels, probabilities, sample_weight=weights))
        if losses[-1] > min(losses):
            break
    return fitted(STRENGTHS[int(np.argmin(losses))], everything)

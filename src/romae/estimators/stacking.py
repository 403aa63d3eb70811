"""Stacking: a network beside simpler models, and how much each counts.

That follows from their predictions for samples that none of them was fitted on.

Classes are pooled by their logarithms (a weighted geometric mean of probabilities), numbers by a weighted mean. Weights
are not negative, and begin at equal parts, which few samples change little and many change freely. Where samples have
weights themselves, one of weight 2 counts as the sample twice.

Shapes: m models, b samples, k classes, o targets.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64, Int64

from romae.estimators.members import MANY, Convolutions, Features, Grid, Labels, Linear, Member, Trees, Weights

MEMBERS: Mapping[str, type[Trees] | type[Linear] | type[Convolutions]] = {
    "trees": Trees,
    "linear": Linear,
    "convolutions": Convolutions,
}
Outputs = Float64[np.ndarray, "b o"]

LONGEST = 60.0  # seconds of one fit; a model that takes longer by `fitting_seconds` is left out, whatever the machine
SMALLEST = 1e-12  # probability, so that its logarithm is a number
N_LABELS = "n_labels"  # the array that tells stacks of several labels from one
PRIOR_SAMPLES = 20.0  # about as many samples outweigh equal parts; fewer cannot tell models apart


class Views(NamedTuple):
    """What the models see of samples: summary features and, for series that are dense enough, an even grid."""

    summary: Features
    grid: Grid | None = None

    def rows(self, indices: Int64[np.ndarray, "i"]) -> "Views":
        """Some of the samples."""
        return Views(self.summary[indices], None if self.grid is None else self.grid[indices])

    def of(self, name: str) -> np.ndarray | None:
        """What the model of this name sees, if there is anything."""
        return self.grid if name == "convolutions" else self.summary


class ClassPool(NamedTuple):
    """Weights of the models, and what is added to each class so that on average probabilities are frequencies."""

    weights: Float64[np.ndarray, "m"]
    bias: Float64[np.ndarray, "k"]

    def log_probabilities(self, of_models: Sequence[Float64[np.ndarray, "b k"]]) -> Float64[np.ndarray, "b k"]:
        """The logarithms of the pooled probabilities, from those of each model."""
        return _log_softmax(np.tensordot(self.weights, np.stack(of_models), 1) + self.bias)


def fit_class_pool(
    of_models: Sequence[Float64[np.ndarray, "b k"]],
    labels: Int64[np.ndarray, "b"],
    sample_weights: Float64[np.ndarray, "b"] | None = None,
) -> ClassPool:
    """The weights of the smallest log loss, drawn towards equal parts."""
    from scipy.optimize import minimize

    stacked = np.stack(of_models)
    m, b, k = stacked.shape
    truth = np.eye(k)[labels]
    times = np.ones((b, 1)) if sample_weights is None else sample_weights[:, None]
    n = times.sum()
    start = np.concatenate([np.full(m, 1 / m), np.zeros(k)])

    def loss(parameters: Float64[np.ndarray, "p"]) -> tuple[float, Float64[np.ndarray, "p"]]:
        weights, bias = parameters[:m], parameters[m:]
        log_p = _log_softmax(np.tensordot(weights, stacked, 1) + bias)
        error = times * (np.exp(log_p) - truth)
        away = parameters - start
        strength = np.concatenate([np.full(m, PRIOR_SAMPLES), np.ones(k)])
        value = -(times * log_p * truth).sum() + 0.5 * (strength * away**2).sum()
        slope = np.concatenate([np.tensordot(stacked, error, ((1, 2), (0, 1))), error.sum(0)]) + strength * away
        return value / n, slope / n

    bounds = [(0, None)] * m + [(None, None)] * k
    best = minimize(loss, start, jac=True, bounds=bounds).x
    return ClassPool(best[:m], best[m:])


def fit_number_weights(
    of_models: Sequence[Float64[np.ndarray, "b o"]],
    targets: Float64[np.ndarray, "b o"],
    sample_weights: Float64[np.ndarray, "b"] | None = None,
) -> Float64[np.ndarray, "m"]:
    """Weights that sum to 1, of the smallest squared error over all targets, each counted in its own spread."""
    from scipy.optimize import nnls

    centre = np.average(targets, axis=0, weights=sample_weights)
    deviation = np.sqrt(np.average((targets - centre) ** 2, axis=0, weights=sample_weights))
    spread = np.where(deviation > 0, deviation, 1.0)
    root = 1.0 if sample_weights is None else np.sqrt(sample_weights)[:, None]  # of what squared errors count
    columns = np.stack([(root * (one - targets) / spread).ravel() for one in of_models], axis=1)
    n = len(columns) if sample_weights is None else float(sample_weights.sum()) * targets.shape[1]
    m, scale = columns.shape[1], max(float(np.sqrt((columns**2).sum() / (n * len(of_models)))), 1e-12)
    # Rows below the errors: equal parts as prior samples, and a heavy one that holds the sum at 1.
    prior = np.sqrt(PRIOR_SAMPLES) * scale * np.eye(m)
    heavy = 1e4 * scale * np.sqrt(n + PRIOR_SAMPLES)
    matrix = np.concatenate([columns, prior, np.full((1, m), heavy)])
    goal = np.concatenate([np.zeros(len(columns)), prior.sum(1) / m, [heavy]])
    weights, _ = nnls(matrix, goal)
    return weights / weights.sum()


def _log_softmax(logits: Float64[np.ndarray, "b k"]) -> Float64[np.ndarray, "b k"]:
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


class HeldOut(NamedTuple):
    """The samples that were judged by, fold by fold, and the answers that all models together give for them."""

    indices: Int64[np.ndarray, "v"]
    answers: Outputs


@dataclass(frozen=True, eq=False)
class Stack:
    """Models on summary features that stand beside a network, and the part of each in the answer, the network first.

    A classifier has a bias for each class, a regressor none. `times` are those of the grid, after a series' first.
    `held_out` is what fitting knows of numbers for samples that were not trained on; it is not saved.
    """

    members: Mapping[str, Member]
    weights: Float64[np.ndarray, "m"]
    bias: Float64[np.ndarray, "k"] | None
    times: Float64[np.ndarray, "p"] | None = None
    held_out: HeldOut | None = None

    def answers(self, network: Outputs, views: Views) -> Outputs:
        """Probabilities from logarithms of the network's, or numbers from its numbers."""
        scores = [member.scores(views.of(name)) for name, member in self.members.items()]
        if self.bias is None:
            return np.tensordot(self.weights, np.stack([network, *scores]), 1)
        logarithms = [_log_softmax(one) for one in scores]
        return np.exp(ClassPool(self.weights, self.bias).log_probabilities([network, *logarithms]))

    def arrays(self) -> dict[str, np.ndarray]:
        """All of it by name, for `from_arrays`."""
        flat = {f"{name}.{key}": array for name, one in self.members.items() for key, array in one.arrays().items()}
        own = {"weights": self.weights, "bias": self.bias, "times": self.times}
        return flat | {name: array for name, array in own.items() if array is not None}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> "Stack":
        """What `arrays` gave."""
        members: dict[str, Member] = {}
        for name, kind in MEMBERS.items():
            own = {key.partition(".")[2]: array for key, array in arrays.items() if key.startswith(f"{name}.")}
            if own:
                members[name] = kind.from_arrays(own)
        return cls(members, arrays["weights"], arrays.get("bias"), arrays.get("times"))


@dataclass(frozen=True, eq=False)
class LabelStacks:
    """A stack for each of several labels, of two classes: whether it is true or not. Networks give probabilities."""

    stacks: tuple[Stack, ...]
    times: Float64[np.ndarray, "p"] | None = None

    def answers(self, network: Outputs, views: Views) -> Outputs:
        """The probability of each label, from those of the network."""
        columns = [stack.answers(_as_pair(p), views)[:, 1] for stack, p in zip(self.stacks, network.T, strict=True)]
        return np.stack(columns, axis=1)

    def arrays(self) -> dict[str, np.ndarray]:
        """All of them by name, for `from_arrays`."""
        flat = {f"{k}.{name}": array for k, one in enumerate(self.stacks) for name, array in one.arrays().items()}
        return flat | {N_LABELS: np.array([len(self.stacks)])} | ({} if self.times is None else {"times": self.times})

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> "LabelStacks":
        """What `arrays` gave."""
        parts: list[dict[str, np.ndarray]] = [{} for _ in range(int(arrays[N_LABELS][0]))]
        for key, array in arrays.items():
            number, _, name = key.partition(".")
            if name:
                parts[int(number)][name] = array
        return cls(tuple(map(Stack.from_arrays, parts)), arrays.get("times"))


def _as_pair(probability: Float64[np.ndarray, "b"]) -> Float64[np.ndarray, "b 2"]:
    """The logarithms of the probabilities that a label is not true, and that it is."""
    return np.log(np.maximum(np.stack([1 - probability, probability], axis=1), SMALLEST))


class Fold(NamedTuple):
    """Samples to fit to, samples to judge by, and what a network that was not trained on the latter says of them."""

    training: Int64[np.ndarray, "t"]
    held_out: Int64[np.ndarray, "v"]
    network: Outputs


def fit_stack(
    views: Views,
    labels: Labels,
    folds: Sequence[Fold],
    *,
    n_classes: int | None,
    seed: int,
    sample_weights: Weights | None = None,
    n_alike: int = 1,
) -> Stack:
    """Fit the models to all samples, and the parts of the answer that they have to what was left out of each fold.

    A network says logarithms of probabilities, or numbers. Without folds, all have equal parts. Models that would take
    longer than `LONGEST`, in all of `n_alike` stacks, are left out, as trees for 50 classes and 2 000 features.
    """
    n_outputs = labels[0].size if n_classes is None else 1 if n_classes == 2 else n_classes
    n_points = 0 if views.grid is None else views.grid.shape[2]
    seconds = fitting_seconds(len(labels), n_outputs, views.summary.shape[1], n_points)
    names = [name for name in MEMBERS if views.of(name) is not None and n_alike * seconds[name] <= LONGEST]

    def weights_at(indices: Int64[np.ndarray, "i"]) -> Float64[np.ndarray, "i"] | None:
        return None if sample_weights is None else sample_weights[indices]

    def fitted(indices: Int64[np.ndarray, "i"]) -> dict[str, Member]:
        part, settings = views.rows(indices), {"n_classes": n_classes, "seed": seed, "weights": weights_at(indices)}
        return {name: MEMBERS[name].fit(part.of(name), labels[indices], **settings) for name in names}  # type: ignore[arg-type]

    everything = fitted(np.arange(len(labels)))
    n_models = 1 + len(names)
    if not folds:
        return Stack(everything, np.full(n_models, 1 / n_models), None if n_classes is None else np.zeros(n_classes))
    said: list[list[Outputs]] = []
    for fold in folds:
        part = views.rows(fold.held_out)
        members = fitted(fold.training)
        said.append([fold.network, *(member.scores(part.of(name)) for name, member in members.items())])
    of_models = [np.concatenate(parts) for parts in zip(*said, strict=True)]
    judged = np.concatenate([fold.held_out for fold in folds])
    truth = labels[judged]
    if n_classes is None:
        targets = np.asarray(truth, dtype=np.float64).reshape(len(truth), -1)
        weights = fit_number_weights(of_models, targets, weights_at(judged))
        held_out = HeldOut(judged, np.tensordot(weights, np.stack(of_models), 1))
        return Stack(everything, weights, None, held_out=held_out)
    logarithms = [of_models[0], *map(_log_softmax, of_models[1:])]
    pool = fit_class_pool(logarithms, np.asarray(truth, dtype=np.int64), weights_at(judged))
    return Stack(everything, pool.weights, pool.bias)


def fit_label_stacks(
    views: Views,
    labels: Int64[np.ndarray, "b k"],
    folds: Sequence[Fold],
    *,
    seed: int,
    sample_weights: Weights | None = None,
) -> LabelStacks:
    """A stack for each of several labels; networks say probabilities. For one that never changes, they answer alone."""
    stacks = []
    for k, own in enumerate(labels.T):
        if own.min() == own.max():
            stacks.append(Stack({}, np.ones(1), np.zeros(2)))
            continue
        # Where the others of a fold are all alike, nothing can be fitted to them.
        telling = [
            fold._replace(network=_as_pair(fold.network[:, k]))
            for fold in folds
            if own[fold.training].min() < own[fold.training].max()
        ]
        how: dict[str, Any] = {"seed": seed, "sample_weights": sample_weights, "n_alike": labels.shape[1]}
        stacks.append(fit_stack(views, own, telling, n_classes=2, **how))
    return LabelStacks(tuple(stacks))


def fitting_seconds(n_samples: int, n_outputs: int, n_features: int, n_points: int) -> dict[str, float]:
    """About how long each of the models beside the network takes on two cores; `n_points` are those of a grid, or 0.

    Measured: 2 459 samples of 14 classes and 70 features, on a grid of 36 points, 10, 5 and 6 s for trees, linear model
    and convolutions; 4 000 samples of two classes and 535 features 6 and 6 s; on one core. Two are not twice as fast.
    """
    trees = n_samples * n_outputs * (2.6e-4 + 2.5e-6 * n_features)
    linear = 2.4e-6 * n_samples * n_outputs * n_features * (0.4 if n_samples * n_outputs * n_features >= MANY else 1.0)
    convolutions = 2.0 + n_samples * (1e-3 + 2e-5 * n_points) if n_points > 0 else 0.0
    on_one_core = {"trees": trees, "linear": linear, "convolutions": convolutions}
    return {name: seconds / 1.5 for name, seconds in on_one_core.items()}

"""Stacking: a network beside models on summary features, and how much each counts.

That follows from their predictions for samples that none of them was fitted on.

Classes are pooled by their logarithms (a weighted geometric mean of probabilities), numbers by a weighted mean. Weights
are not negative, and begin at equal parts, which few samples change little and many change freely.

Shapes: m models, b samples, k classes, o targets.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int64

from romae.estimators.members import Features, Labels, Linear, Member, Trees

MEMBERS: Mapping[str, type[Trees] | type[Linear]] = {"trees": Trees, "linear": Linear}
Outputs = Float64[np.ndarray, "b o"]

PRIOR_SAMPLES = 20.0  # about as many samples outweigh equal parts; fewer cannot tell models apart


class ClassPool(NamedTuple):
    """Weights of the models, and what is added to each class so that on average probabilities are frequencies."""

    weights: Float64[np.ndarray, "m"]
    bias: Float64[np.ndarray, "k"]

    def log_probabilities(self, of_models: Sequence[Float64[np.ndarray, "b k"]]) -> Float64[np.ndarray, "b k"]:
        """The logarithms of the pooled probabilities, from those of each model."""
        return _log_softmax(np.tensordot(self.weights, np.stack(of_models), 1) + self.bias)


def fit_class_pool(of_models: Sequence[Float64[np.ndarray, "b k"]], labels: Int64[np.ndarray, "b"]) -> ClassPool:
    """The weights of the smallest log loss, drawn towards equal parts."""
    from scipy.optimize import minimize

    stacked = np.stack(of_models)
    m, b, k = stacked.shape
    truth = np.eye(k)[labels]
    start = np.concatenate([np.full(m, 1 / m), np.zeros(k)])

    def loss(parameters: Float64[np.ndarray, "p"]) -> tuple[float, Float64[np.ndarray, "p"]]:
        weights, bias = parameters[:m], parameters[m:]
        log_p = _log_softmax(np.tensordot(weights, stacked, 1) + bias)
        error = np.exp(log_p) - truth
        away = parameters - start
        strength = np.concatenate([np.full(m, PRIOR_SAMPLES), np.ones(k)])
        value = -(log_p * truth).sum() + 0.5 * (strength * away**2).sum()
        slope = np.concatenate([np.tensordot(stacked, error, ((1, 2), (0, 1))), error.sum(0)]) + strength * away
        return value / b, slope / b

    bounds = [(0, None)] * m + [(None, None)] * k
    best = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    return ClassPool(best[:m], best[m:])


def fit_number_weights(
    of_models: Sequence[Float64[np.ndarray, "b o"]], targets: Float64[np.ndarray, "b o"]
) -> Float64[np.ndarray, "m"]:
    """Weights that sum to 1, of the smallest squared error over all targets, each counted in its own spread."""
    from scipy.optimize import nnls

    spread = np.where((deviation := targets.std(axis=0)) > 0, deviation, 1.0)
    columns = np.stack([((one - targets) / spread).ravel() for one in of_models], axis=1)
    m, scale = columns.shape[1], max(float(np.sqrt((columns**2).mean())), 1e-12)
    # Rows below the errors: equal parts as prior samples, and a heavy one that holds the sum at 1.
    prior = np.sqrt(PRIOR_SAMPLES) * scale * np.eye(m)
    heavy = 1e4 * scale * np.sqrt(len(columns) + PRIOR_SAMPLES)
    matrix = np.concatenate([columns, prior, np.full((1, m), heavy)])
    goal = np.concatenate([np.zeros(len(columns)), prior.sum(1) / m, [heavy]])
    weights, _ = nnls(matrix, goal)
    return weights / weights.sum()


def _log_softmax(logits: Float64[np.ndarray, "b k"]) -> Float64[np.ndarray, "b k"]:
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


@dataclass(frozen=True, eq=False)
class Stack:
    """Models on summary features that stand beside a network, and the part of each in the answer, the network first.

    A classifier has a bias for each class, a regressor none.
    """

    members: Mapping[str, Member]
    weights: Float64[np.ndarray, "m"]
    bias: Float64[np.ndarray, "k"] | None

    def answers(self, network: Outputs, features: Features) -> Outputs:
        """Probabilities from logarithms of the network's, or numbers from its numbers."""
        scores = [member.scores(features) for member in self.members.values()]
        if self.bias is None:
            return np.tensordot(self.weights, np.stack([network, *scores]), 1)
        logarithms = [_log_softmax(one) for one in scores]
        return np.exp(ClassPool(self.weights, self.bias).log_probabilities([network, *logarithms]))

    def arrays(self) -> dict[str, np.ndarray]:
        """All of it by name, for `from_arrays`."""
        flat = {f"{name}.{key}": array for name, one in self.members.items() for key, array in one.arrays().items()}
        return flat | {"weights": self.weights} | ({} if self.bias is None else {"bias": self.bias})

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> "Stack":
        """What `arrays` gave."""
        members: dict[str, Member] = {}
        for name, kind in MEMBERS.items():
            own = {key.partition(".")[2]: array for key, array in arrays.items() if key.startswith(f"{name}.")}
            if own:
                members[name] = kind.from_arrays(own)
        return cls(members, arrays["weights"], arrays.get("bias"))


def fit_stack(
    training: tuple[np.ndarray, np.ndarray],
    validation: tuple[np.ndarray, np.ndarray, np.ndarray] | None,
    *,
    n_classes: int | None,
    seed: int,
) -> Stack:
    """Fit the models and the parts of the answer that they have.

    `training` holds features [b, k] and labels, `validation` also what the network says: logarithms of probabilities,
    or numbers. None of these samples is in the training. Once the parts are known, the models are fitted again to all
    samples. Without validation, all have equal parts.
    """

    def fitted(features: Features, labels: Labels) -> dict[str, Member]:
        return {name: kind.fit(features, labels, n_classes=n_classes, seed=seed) for name, kind in MEMBERS.items()}

    n_models = 1 + len(MEMBERS)
    if validation is None:
        bias = None if n_classes is None else np.zeros(n_classes)
        return Stack(fitted(*training), np.full(n_models, 1 / n_models), bias)
    features, labels, network = validation
    scores = [member.scores(features) for member in fitted(*training).values()]
    everything = fitted(*(np.concatenate(parts) for parts in zip(training, (features, labels), strict=True)))
    if n_classes is None:
        targets = np.asarray(labels, dtype=np.float64).reshape(len(labels), -1)
        return Stack(everything, fit_number_weights([network, *scores], targets), None)
    pool = fit_class_pool([network, *map(_log_softmax, scores)], np.asarray(labels, dtype=np.int64))
    return Stack(everything, pool.weights, pool.bias)

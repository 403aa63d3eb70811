"""Stacking: how much each of several models counts, from their predictions for samples that none was fitted on.

Classes are pooled by their logarithms (a weighted geometric mean of probabilities), numbers by a weighted mean. Weights
are not negative, and begin at equal parts, which few samples change little and many change freely.

Shapes: m models, b samples, k classes, o targets.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int64

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

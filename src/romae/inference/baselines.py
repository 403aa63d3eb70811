"""Simple baselines for hidden points: the mean, the last value, linear interpolation.

Functions from observed times and values to predictions at other times. Times may come in any order; values at equal
times are averaged first. Outside the range of the observed times the nearest value is held.

Shapes: n observed times, m distinct ones, q query times, c channels.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from romae.tokens.sample import Sample

Times = Float[np.ndarray, "n"]
Values = Float[np.ndarray, "n c"]
Queries = Float[np.ndarray, "q"]
Predictions = Float[np.ndarray, "q c"]
Method = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def mean(times: Times, values: Values, queries: Queries) -> Predictions:
    """The mean of the observed values, everywhere."""
    _require_observed(times, values)
    return np.repeat(values.mean(axis=0, keepdims=True, dtype=np.float64), len(queries), axis=0)


def last_value(times: Times, values: Values, queries: Queries) -> Predictions:
    """The last value observed at or before each time; before the first, the first."""
    times, values = in_order(times, values)
    return values[np.searchsorted(times, queries, side="right").clip(min=1) - 1]


def linear(times: Times, values: Values, queries: Queries) -> Predictions:
    """Straight lines between the observed values; with one of them, that value everywhere."""
    times, values = in_order(times, values)
    return np.stack([np.interp(queries, times, channel) for channel in values.T], axis=1)


def fill(method: Method, sample: Sample, *, default: float = 0.0) -> Predictions:
    """Predictions for the hidden tokens of a sample from its visible ones, in the order of the tokens.

    The first position is the time. A second one names the variable, and each variable is interpolated by itself;
    one that is never visible is predicted as `default`, which for standardised values is its mean.
    """
    times, variables, values = as_columns(sample)
    if sample.hidden is None:
        raise ValueError("the sample hides no token, so there is nothing to fill in: set Sample(hidden=…)")
    hidden = sample.hidden.numpy()
    predictions = np.full((len(times), values.shape[1]), default)
    for variable in np.unique(variables[hidden]):
        observed, queried = (variables == variable) & ~hidden, (variables == variable) & hidden
        if observed.any():
            predictions[queried] = method(times[observed], values[observed], times[queried])
    return predictions[hidden]


def truth(sample: Sample) -> Predictions:
    """What `fill` should predict: the target of each hidden token where the sample has one, else its values."""
    has_rows = sample.target is not None and sample.target.ndim == 2
    rows = sample.target if has_rows else sample.values
    return rows[sample.hidden].double().numpy()


def _require_observed(times: Times, values: Values) -> None:
    if len(times) == 0:
        raise ValueError("there is no observed value to predict from")
    if values.ndim != 2 or len(values) != len(times):
        raise ValueError(f"values must be [n, c] with a row for each of {len(times)} times, not {list(values.shape)}")
    if not (np.isfinite(values).all() and np.isfinite(times).all()):
        raise ValueError("observed times and values must be finite; leave missing measurements out")


def in_order(times: Times, values: Values) -> tuple[Float[np.ndarray, "m"], Float[np.ndarray, "m c"]]:
    """Distinct times in climbing order, with the mean of the values at each."""
    _require_observed(times, values)
    distinct, starts, counts = np.unique(np.sort(times), return_index=True, return_counts=True)
    ordered = values[np.argsort(times, kind="stable")].astype(np.float64)
    return distinct, np.add.reduceat(ordered, starts, axis=0) / counts[:, None]


def as_columns(sample: Sample) -> tuple[Float[np.ndarray, "n"], Float[np.ndarray, "n"], Float[np.ndarray, "n c"]]:
    """The times, variables and values of a sample; with a single position axis all tokens are of variable 0."""
    positions = sample.positions.double().numpy()
    if positions.shape[1] > 2:
        raise ValueError(
            f"baselines take positions (time) or (time, variable), and this sample has {positions.shape[1]} axes"
        )
    variables = positions[:, 1] if positions.shape[1] == 2 else np.zeros(len(positions))
    return positions[:, 0], variables, sample.values.double().numpy()

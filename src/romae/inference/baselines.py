"""Simple baselines for hidden points: the mean, the last value, lines through what is seen, the season before.

Functions from observed times and values to predictions at other times. Times may come in any order; values at equal
times are averaged first. Outside the range of the observed times the nearest value is held.

Shapes: n observed times, m distinct ones, q query times, c channels or columns, t hidden tokens of all samples.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from jaxtyping import Float, Float64, Int64

from romae.data.schema import SampleSet, Schema, measured_values
from romae.tokens.sample import Sample
from romae.tokens.tokens import channel_index

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


def trend(times: Times, values: Values, queries: Queries) -> Predictions:
    """The straight line of least squares through the observed values; of one time or at one time, their mean."""
    _require_observed(times, values)
    centre = times.mean(dtype=np.float64)
    x, y = times.astype(np.float64) - centre, values.astype(np.float64)
    spread = float(x @ x)
    slope = x @ (y - y.mean(0)) / spread if spread > 0 else np.zeros(y.shape[1])
    return y.mean(0) + (queries.astype(np.float64) - centre)[:, None] * slope


def seasonal(period: float) -> Method:
    """The seasonal naive forecast: the value that was observed nearest to a whole number of periods before.

    Of values as near as each other the latest counts; what lies less than a period ahead is asked one period before.
    """
    if not period > 0:
        raise ValueError(f"a period is above 0, not {period}")

    def method(times: Times, values: Values, queries: Queries) -> Predictions:
        times, values = in_order(times, values)
        back = np.ceil(np.maximum(queries - times[-1], 0) / period).clip(min=1)
        at = queries - back * period
        # Turned round, the first of several that are as near is the latest.
        nearest = np.abs(times[::-1] - at[:, None]).argmin(1)
        return values[::-1][nearest]

    return method


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
    rows = sample.target if has_rows else measured_values(sample)
    return rows[sample.hidden].double().numpy()


def filled_along_time(method: Method, samples: SampleSet) -> Float64[np.ndarray, "t c"]:
    """What a method predicts at the hidden points of all samples, end to end, from time and channel alone.

    In a channel of which a sample shows nothing, it is the average of all that is seen of it.
    """
    axes = [0] if samples.schema.channel is None else [0, -1]
    averages, rows = _averages(samples), []
    for sample in samples:
        filled = fill(method, replace(sample, positions=sample.positions[:, axes]), default=np.nan)
        channel = channels_of(sample, samples.schema)[sample.hidden.numpy()]
        rows.append(np.where(np.isnan(filled), averages[channel], filled))
    return np.concatenate(rows)


def filled_along_axes(samples: SampleSet) -> Float64[np.ndarray, "t c"]:
    """Linear interpolation that uses all axes: linear in the further ones, and along time in what that leaves.

    Without further axes it is linear interpolation along time, as it is in channels of few points.
    """
    schema = samples.schema
    if not schema.positions:
        return filled_along_time(linear, samples)
    first, averages, rows = schema.coordinates.index(schema.positions[0]), _averages(samples), []
    for sample in samples:
        channel, hidden = channels_of(sample, schema), sample.hidden.numpy()
        positions, values = sample.positions.double().numpy(), measured_values(sample).double().numpy()
        times, further = positions[:, 0], positions[:, first : first + len(schema.positions)]
        filled = averages[channel]
        for number in np.unique(channel[hidden]):
            seen, asked = (channel == number) & ~hidden, (channel == number) & hidden
            if seen.any():
                slopes = _slopes(times[seen], further[seen], values[seen])
                along_time = linear(times[seen], values[seen] - further[seen] @ slopes, times[asked])
                filled[asked] = along_time + further[asked] @ slopes
        rows.append(filled[hidden])
    return np.concatenate(rows)


def _slopes(times: Times, further: Float64[np.ndarray, "n k"], values: Values) -> Float64[np.ndarray, "k c"]:
    """The slopes along further axes of the plane of least squares over these and time; 0 where points are few."""
    n, k = further.shape
    if n < 2 * (k + 2):  # two points for each number of the plane
        return np.zeros((k, values.shape[1]))
    axes = np.column_stack([times, further])
    axes, centred = axes - axes.mean(axis=0), values.astype(np.float64) - values.mean(axis=0)
    spread = axes.std(axis=0)
    scale = np.where(spread > 0, spread, 1.0)
    return (np.linalg.lstsq(axes / scale, centred, rcond=1e-9)[0] / scale[:, None])[1:]


def channels_of(sample: Sample, schema: Schema) -> Int64[np.ndarray, "n"]:
    """The channel of each token; without a column of channels, all are of the first."""
    if schema.channel is None:
        return np.zeros(len(sample), dtype=np.int64)
    return channel_index(sample.positions, len(schema.kind_names)).numpy()


def _averages(samples: SampleSet) -> Float64[np.ndarray, "k c"]:
    """The mean of every column in each channel, of all that is seen; in a channel that never is, of all channels."""
    values = np.concatenate([measured_values(sample)[~sample.hidden].double().numpy() for sample in samples])
    channel = np.concatenate([channels_of(sample, samples.schema)[~sample.hidden.numpy()] for sample in samples])
    n_channels = len(samples.schema.channels) if samples.schema.channel else 1
    values, channel = values[channel < n_channels], channel[channel < n_channels]  # static facts are not averaged
    rows = [values[channel == i] for i in range(n_channels)]
    return np.stack([(part if len(part) else values).mean(axis=0) for part in rows])


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
    return positions[:, 0], variables, measured_values(sample).double().numpy()

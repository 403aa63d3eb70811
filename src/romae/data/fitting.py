"""The numbers of a scaling, from those of the training data.

Shapes: t tokens of all samples, n tokens of a group, m rows of a scaling (one for each channel, or one for all), c
columns of values.
"""

from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float64

from romae.data.bends import BENT, Method
from romae.data.packed_numbers import PackedNumbers
from romae.data.sources import Source
from romae.data.spread import QUARTILES_APART, SEVERAL, deviations, times_as_far_apart

Values = Literal["auto", "none", "standard", "robust", "asinh", "robust-asinh"]  # what may be asked for
Center = Literal["global", "sample", "instance", "auto"]

READ_AT_ONCE = 4_096  # samples


def fit_values(
    packed: PackedNumbers, method: Method, per: str, n_channels: int | None
) -> tuple[Float64[np.ndarray, "m c"], Float64[np.ndarray, "m c"]]:
    """The centre and the scale of values, in a row for all tokens or for each channel."""
    fitted = [_centre_and_scale(group, method) for group in _groups(packed, per, n_channels)]
    centre, scale = (np.stack(rows) for rows in zip(*fitted, strict=True))
    n = packed.values.shape[1]
    return (np.repeat(centre, n, 1), np.repeat(scale, n, 1)) if per == "all" else (centre, scale)


def median_errors(errors: PackedNumbers, per: str, n_channels: int | None) -> Float64[np.ndarray, "m c"]:
    """The median of the measurement errors that are known, in the rows of `fit_values`; 0 where none is."""
    rows = []
    for group in _groups(errors, per, n_channels):
        columns = [column[column > 0] for column in group.T]
        rows.append([np.median(known) if len(known) else 0.0 for known in columns])
    median = np.array(rows)
    return np.repeat(median, errors.values.shape[1], 1) if per == "all" else median


def _groups(packed: PackedNumbers, per: str, n_channels: int | None) -> list[Float64[np.ndarray, "_ _"]]:
    """The values that have a scale in common."""
    x = packed.values
    if per == "column":
        return [x]
    if per == "all":
        return [x.reshape(-1, 1)]
    if per != "channel":
        raise ValueError(f"per must be 'all', 'column' or 'channel', not {per!r}")
    n_channels = n_channels or int(packed.positions[:, -1].max()) + 1
    channel = packed.channel(n_channels)
    counts = np.bincount(channel, minlength=n_channels)
    return np.split(x[np.argsort(channel, kind="stable")], np.cumsum(counts)[:-1])


def fit_centring(
    packed: PackedNumbers,
    method: Method,
    per: str,
    n_channels: int | None,
    scale: Float64[np.ndarray, "m c"],
    center: Center,
) -> dict[str, Any]:
    """The fields of a scaling that say whether and how samples are centred by themselves."""
    if center not in ("global", "sample", "instance", "auto"):
        raise ValueError(f"center must be 'global', 'sample', 'instance' or 'auto', not {center!r}")
    if center == "global" or (center == "auto" and method in BENT):
        return {}
    if n_channels is None and per == "channel":
        n_channels = int(packed.positions[:, -1].max()) + 1
    channel = np.zeros(len(packed.values), dtype=np.int64) if n_channels is None else packed.channel(n_channels)
    cell = packed.cell(n_channels)
    if center == "auto" and times_as_far_apart(packed.values, cell, channel) <= SEVERAL:
        return {}
    within: list[list[float]] = []
    for row, row_scale in enumerate(scale):
        here = channel == row if per == "channel" else np.ones(len(channel), dtype=bool)
        x = deviations(packed.values[here], cell[here])
        x = x.reshape(-1, 1) if per == "all" else x
        # Of cells with a single value or of constants alone nothing is learned of the spread, and values keep theirs.
        spread = _centre_and_scale(x, method)[1] if len(x) else row_scale
        spread = np.where((np.abs(x).max(0, initial=0.0) > 0) & (row_scale > 0), spread, row_scale)
        within.append(spread.tolist())
    return {
        "center": "sample" if center == "auto" else center,
        "n_channels": n_channels,
        "within": tuple(map(tuple, within)),
    }


def _centre_and_scale(
    x: Float64[np.ndarray, "n c"], method: str
) -> tuple[Float64[np.ndarray, "c"], Float64[np.ndarray, "c"]]:
    if len(x) == 0:
        return np.zeros(x.shape[1]), np.zeros(x.shape[1])
    if method == "asinh":
        size = np.abs(x)
        scale = np.median(size, axis=0)
        scale = np.where(scale > 0, scale, size.mean(0))
        return np.zeros(x.shape[1]), np.where(scale > 0, scale, 1.0)
    if method == "standard":
        centre, scale = x.mean(0), x.std(0)
    elif method in ("robust", "robust-asinh"):
        low, centre, high = np.quantile(x, [0.25, 0.5, 0.75], axis=0)
        scale, deviation = (high - low) / QUARTILES_APART, x.std(0)
        scale = np.where(scale > 1e-6 * deviation, scale, deviation)  # else outliers would overflow
    else:
        raise ValueError(f"values must be 'none', 'standard', 'robust', 'asinh' or 'robust-asinh', not {method!r}")
    is_constant = x.min(0) == x.max(0)  # rounding can leave the deviation of a constant just above 0
    return np.where(is_constant, x[0], centre), np.where(is_constant, 1.0, scale)


def fit_target(source: Source) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The mean and the standard deviation of each target, each sample with its weight where some have such."""
    rows, weights = [], []
    for start in range(0, len(source), READ_AT_ONCE):
        packed = source.packed(np.arange(start, min(start + READ_AT_ONCE, len(source))))
        targets = packed.target
        if targets is None or not targets.is_floating_point():
            lack = "the samples have none" if targets is None else "these are classes"
            raise ValueError(f"targets to scale must be numbers, and {lack}")
        rows.append(targets.double().reshape(len(targets), -1))
        weight = torch.ones(len(packed)) if packed.weight is None else packed.weight
        weights.append(weight.repeat_interleave(packed.layout.lengths) if packed.is_target_per_token else weight)
    x, by_row = torch.cat(rows).numpy(), torch.cat(weights).double().numpy()
    is_weighted = (by_row != by_row[0]).any()
    centre, scale = _weighted(x, by_row) if is_weighted else _centre_and_scale(x, "standard")
    return tuple(centre.tolist()), tuple(scale.tolist())


def _weighted(
    x: Float64[np.ndarray, "n c"], weight: Float64[np.ndarray, "n"]
) -> tuple[Float64[np.ndarray, "c"], Float64[np.ndarray, "c"]]:
    """The mean and the standard deviation of rows that count by their weights."""
    x, weight = x[weight > 0], weight[weight > 0]
    centre = np.average(x, axis=0, weights=weight)
    scale = np.sqrt(np.average((x - centre) ** 2, axis=0, weights=weight))
    is_constant = x.min(0) == x.max(0)
    return np.where(is_constant, x[0], centre), np.where(is_constant, 1.0, scale)

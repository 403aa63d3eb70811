"""Codes for missing values: 99.99, -999, -1 in a column of positive numbers. They are found, and told in one warning.

A code that is taken for a measurement spoils the scale of its column, and a model learns to predict it. A false alarm
is worse than a miss, so a number counts as a code only if it is the lowest or the highest of its column, occurs several
times over, and nothing lies near it. Shapes: t tokens, n numbers of a column, c columns of values.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int64

from romae.data.spread import QUARTILES_APART

FEWEST = 3  # occurrences: fewer may be outliers, and spoil little
SPREADS = 100.0  # from the median of the other values, in robust standard deviations, where any number may be a code
SPREADS_OF_TYPICAL = 10.0  # the same for numbers that are codes in many catalogues
ALONE = 0.5  # of the way to the median there is no other value
DISTINCT = 10  # other values, so that a column of a few categories is none of measurements
MOST_NAMED = 4  # codes in a message; of more, their number is told


def warn_of_codes(
    values: Float[np.ndarray, "t c"],
    columns: Sequence[Any],
    channel: Int64[np.ndarray, "t"] | None = None,
    channels: Sequence[Any] = (),
    stacklevel: int = 2,
) -> None:
    """Warn once if columns hold what looks like a code for missing values; NaN does not count.

    With the `channel` of each token and the names of all `channels`, each channel is looked at by itself; without
    `columns`, channels were the columns of a table whose numbers are tokens of their own.
    """
    parts, names = [values], [repr(column) for column in columns]
    if channel is not None:
        counts = np.bincount(channel, minlength=len(channels))
        parts = np.split(values[np.argsort(channel, kind="stable")], np.cumsum(counts)[:-1])
        names = [f"{column!r} in channel {name!r}" for name in channels for column in columns]
        names = names or [repr(name) for name in channels]
    found = [
        f"column {name}: {value:g} ({count} times)"
        for name, x in zip(names, [x for part in parts for x in part.T], strict=True)
        for value, count in codes_of(x)
    ]
    if found:
        more = f"; and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
        warnings.warn(
            f"values that look like codes for missing ones: {'; '.join(found[:MOST_NAMED])}{more}; they are taken for "
            "measurements; leave those rows out, or write NaN there",
            stacklevel=stacklevel + 1,
        )


def codes_of(column: Float[np.ndarray, "n"]) -> list[tuple[float, int]]:
    """The codes of a column: each number and how often it occurs.

    The lowest and the highest number are looked at, and so on inwards while they are codes: -999 may hide -99.
    """
    column, codes = column[np.isfinite(column)], []
    for extreme in (np.min, np.max):
        while len(column) and (code := extreme(column)) is not None:
            is_code = column == code
            count, rest = int(is_code.sum()), column[~is_code]
            if count < FEWEST or len(rest) <= count or not _is_code(float(code), rest.astype(np.float64)):
                break
            codes.append((float(code), count))
            column = rest
    return codes


def _is_code(code: float, rest: Float[np.ndarray, "n"]) -> bool:
    """Whether an extreme number that occurs several times is no measurement like the others."""
    if code == -1 and rest.min() > 0:
        return len(np.unique(rest)) >= DISTINCT
    low, median, high = np.quantile(rest, [0.25, 0.5, 0.75]).tolist()
    # The larger of two spreads: quartiles of a column that is mostly 0 lie together, and it still has peaks.
    spread = max((high - low) / QUARTILES_APART, float(rest.std()))
    distance = abs(code - median)
    nearest = float(rest.min() if code < median else rest.max())
    if spread == 0 or abs(code - nearest) < ALONE * distance or len(np.unique(rest)) < DISTINCT:
        return False
    return distance > (SPREADS_OF_TYPICAL if _is_typical(code) else SPREADS) * spread


def _is_typical(code: float) -> bool:
    """Whether a number is written in nines alone, two of them or more: 99, -999, 99.99, -9999.0."""
    digits = f"{abs(code):.6g}".replace(".", "")
    return len(digits) > 1 and set(digits) == {"9"}

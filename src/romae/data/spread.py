"""The spread of values within samples beside that between them, which says whether samples are centred by themselves.

A cell is a channel of a sample, or a sample where channels are columns. Shapes: t tokens, k cells, c columns of values.
"""

import numpy as np
from jaxtyping import Float64, Int64

# Levels that lie so many times farther apart than values within a sample leave a model little to see of the rest: a
# tenth of the variance of standardised values. Variable stars (ASAS) have 7.0; PhysioNet 2012, PLAsTiCC, USHCN and five
# sets of UEA have 0.2 to 1.4, so that the choice does not hang on the limit.
SEVERAL = 3.0
QUARTILES_APART = 1.3489795003921634  # those of a normal distribution, in standard deviations


def deviations(values: Float64[np.ndarray, "t c"], cell: Int64[np.ndarray, "t"]) -> Float64[np.ndarray, "u c"]:
    """Values less the mean of their cell, of cells with two tokens or more: a single one says nothing of a spread."""
    _, cell, counts = np.unique(cell, return_inverse=True, return_counts=True)
    levels = _sums(values, cell, len(counts)) / counts[:, None]
    return (values - levels[cell])[counts[cell] > 1]


def times_as_far_apart(
    values: Float64[np.ndarray, "t c"], cell: Int64[np.ndarray, "t"], group: Int64[np.ndarray, "t"]
) -> float:
    """How many times farther apart the levels of cells lie than the values within a cell, as a rule.

    Levels are compared within their `group`, which is the channel. Medians and quartiles over cells, so that a few
    extreme samples do not decide; groups and columns count by their tokens.
    """
    _, cell, counts = np.unique(cell, return_inverse=True, return_counts=True)
    levels = _sums(values, cell, len(counts)) / counts[:, None]
    variances = _sums((values - levels[cell]) ** 2, cell, len(counts)) / np.maximum(counts - 1, 1)[:, None]
    group_of_cell = np.zeros(len(counts), dtype=np.int64)
    group_of_cell[cell] = group
    share_within, weights = [], []
    for number in np.unique(group):
        here = (group_of_cell == number) & (counts > 1)
        if here.sum() < 2:
            continue
        low, high = np.quantile(levels[here], [0.25, 0.75], axis=0)
        between = ((high - low) / QUARTILES_APART) ** 2
        within = np.median(variances[here], axis=0)
        within = np.where(within > 0, within, variances[here].mean(0))  # most of them constant, as of a switch
        varies = between + within > 0
        share_within.extend((within[varies] / (between + within)[varies]).tolist())
        weights.extend([float(counts[here].sum())] * int(varies.sum()))
    if not weights:
        return 0.0
    share = float(np.average(share_within, weights=weights))
    return float(np.sqrt((1 - share) / share)) if share > 0 else float("inf")


def _sums(rows: Float64[np.ndarray, "t c"], cell: Int64[np.ndarray, "t"], n: int) -> Float64[np.ndarray, "k c"]:
    return np.stack([np.bincount(cell, weights=column, minlength=n) for column in rows.T], axis=1)

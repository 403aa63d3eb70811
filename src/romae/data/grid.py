"""Series on an even grid: lines between what was measured, for methods that cannot do without one.

Shapes: b samples, c columns (values of a token, for each kind of token), n points of the grid.
"""

import numpy as np
from jaxtyping import Float64

from romae.data.sources import SampleSource, as_source


def on_grid(
    samples: SampleSource, times: Float64[np.ndarray, "n"], *, n_kinds: int | None = None
) -> Float64[np.ndarray, "b c n"]:
    """Each column of each sample at these times after the sample's first one; NaN where it was never measured.

    Beyond what was measured the nearest value is held. Hidden tokens are left out.
    """
    source = as_source(samples, with_targets=False)
    n_values = source[0].values.shape[1]
    grid = np.full((len(source), (n_kinds or 1) * n_values, len(times)), np.nan)
    for row in range(len(source)):
        sample = source[row]
        visible = slice(None) if sample.hidden is None else ~sample.hidden.numpy()
        values = sample.values.double().numpy()[visible]
        positions = sample.positions.double().numpy()[visible]
        if len(values) == 0:
            continue
        order = np.argsort(positions[:, 0], kind="stable")
        values, positions = values[order], positions[order]
        when = positions[:, 0] - positions[0, 0]
        kinds = np.zeros(len(when)) if n_kinds is None else positions[:, -1]
        for kind in np.unique(kinds).astype(int).tolist():
            at = kinds == kind
            for column in range(n_values):
                grid[row, kind * n_values + column] = np.interp(times, when[at], values[at, column])
    return grid


def longest_duration(samples: SampleSource) -> float:
    """From the first to the last time of the sample in which that is longest."""
    source = as_source(samples, with_targets=False)
    packed = source.packed(np.arange(len(source)))
    time, lengths = packed.positions[:, 0].double().numpy(), packed.layout.lengths.numpy()
    starts = np.cumsum(lengths) - lengths
    return float((np.maximum.reduceat(time, starts) - np.minimum.reduceat(time, starts)).max())

"""Figures. Every function returns a matplotlib figure and touches no display."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OBSERVED, HIDDEN, PREDICTED, BASELINE = "#1b1b1b", "#d1495b", "#00798c", "#b0b0b0"


class Panel(NamedTuple):
    """One channel of one sample: what was seen, what was hidden, and curves over time."""

    title: str
    observed: tuple[Float[np.ndarray, "n"], Float[np.ndarray, "n"]]
    hidden: tuple[Float[np.ndarray, "m"], Float[np.ndarray, "m"]]
    curve: tuple[Float[np.ndarray, "k"], Float[np.ndarray, "k"]]
    baseline: tuple[Float[np.ndarray, "k"], Float[np.ndarray, "k"]]


def interpolation(panels: Sequence[Panel], *, n_columns: int = 2, title: str = "") -> "Figure":
    """Observed points, hidden points, and the curves that were drawn through them."""
    from matplotlib.figure import Figure

    n_rows = -(-len(panels) // n_columns)
    figure = Figure(figsize=(5.5 * n_columns, 2.3 * n_rows + 0.7), layout="constrained")
    axes = figure.subplots(n_rows, n_columns, squeeze=False, sharex=True)
    for axis, panel in zip(axes.flat, panels, strict=False):
        axis.plot(*panel.baseline, color=BASELINE, lw=1.5, label="linear interpolation")
        axis.plot(*panel.curve, color=PREDICTED, lw=2, label="RoMAE")
        axis.plot(*panel.observed, "o", color=OBSERVED, ms=4, label="observed")
        axis.plot(*panel.hidden, "o", color=HIDDEN, ms=4, mfc="none", label="hidden from the model")
        axis.set_title(panel.title, fontsize=10, loc="left")
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes[-1]:
        axis.set_xlabel("time")
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    return figure

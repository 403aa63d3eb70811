"""Figures. Every function returns a matplotlib figure and touches no display."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float, Shaped

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OBSERVED, HIDDEN, PREDICTED, BASELINE = "#1b1b1b", "#d1495b", "#00798c", "#b0b0b0"
_COLOURS = (PREDICTED, BASELINE, "#edae49", HIDDEN, OBSERVED)


class Panel(NamedTuple):
    """One channel of one sample: what was seen, what was hidden, and curves over time."""

    title: str
    observed: tuple[Float[np.ndarray, "n"], Float[np.ndarray, "n"]]
    hidden: tuple[Float[np.ndarray, "m"], Float[np.ndarray, "m"]]
    curve: tuple[Float[np.ndarray, "k"], Float[np.ndarray, "k"]]
    baseline: tuple[Float[np.ndarray, "k"], Float[np.ndarray, "k"]]


class Line(NamedTuple):
    """A curve of several runs, of which the mean and the spread are drawn."""

    label: str
    x: Float[np.ndarray, "n"]
    runs: Float[np.ndarray, "s n"]


class Path2D(NamedTuple):
    """A curve in the plane: the points that were seen, the true points that were not, and those predicted."""

    title: str
    observed: Float[np.ndarray, "n 2"]
    hidden: Float[np.ndarray, "m 2"]
    predicted: Float[np.ndarray, "m 2"]


class Frame(NamedTuple):
    """An image of a pendulum, and its direction as it is and as it was predicted: sine and cosine, 0 downwards."""

    title: str
    image: Float[np.ndarray, "y x"]
    truth: Float[np.ndarray, "2"]
    predicted: Float[np.ndarray, "2"]


def interpolation(
    panels: Sequence[Panel], *, n_columns: int = 2, title: str = "", baseline: str = "linear interpolation"
) -> "Figure":
    """Observed points, hidden points, and the curves that were drawn through them."""
    from matplotlib.figure import Figure

    n_rows = -(-len(panels) // n_columns)
    figure = Figure(figsize=(max(5.5 * n_columns, 8), 2.3 * n_rows + 0.7), layout="constrained")
    axes = figure.subplots(n_rows, n_columns, squeeze=False, sharex=True)
    for axis, panel in zip(axes.flat, panels, strict=False):
        axis.plot(*panel.baseline, color=BASELINE, lw=1.5, label=baseline)
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


def bands(panels: Mapping[str, Sequence[Line]], *, x: str, y: str, log: bool = False) -> "Figure":
    """Curves with the standard deviation over runs as a band; one panel for each entry, side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.5 * len(panels), 3.4), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, (title, lines) in zip(axes, panels.items(), strict=True):
        for number, line in enumerate(lines):
            mean, spread = line.runs.mean(axis=0), line.runs.std(axis=0, ddof=min(len(line.runs) - 1, 1))
            colour = _COLOURS[number % len(_COLOURS)]
            axis.plot(line.x, mean, color=colour, lw=2, label=line.label)
            axis.fill_between(line.x, mean - spread, mean + spread, color=colour, alpha=0.2, lw=0)
        if log:
            axis.set_yscale("log")
        axis.set_title(title, fontsize=10, loc="left")
        axis.set_xlabel(x)
        axis.spines[["top", "right"]].set_visible(False)
        if len(lines) > 1:
            axis.legend(frameon=False, fontsize=9)
    axes[0].set_ylabel(y)
    return figure


def paths(curves: Sequence[Path2D]) -> "Figure":
    """Curves in the plane, side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.5 * len(curves), 4), layout="constrained")
    axes = figure.subplots(1, len(curves), squeeze=False)[0]
    for axis, curve in zip(axes, curves, strict=True):
        axis.plot(*curve.observed.T, "o", color=OBSERVED, ms=3, label="observed")
        axis.plot(*curve.hidden.T, "o", color=HIDDEN, ms=5, mfc="none", label="hidden from the model")
        axis.plot(*curve.predicted.T, "x", color=PREDICTED, ms=5, label="RoMAE")
        axis.set_title(curve.title, fontsize=10, loc="left")
        axis.set_aspect("equal")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(frameon=False, fontsize=9)
    return figure


def frames(shown: Sequence[Frame]) -> "Figure":
    """Images side by side with two hands: where the pendulum is, and where it was predicted to be."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.6 * len(shown), 2.1), layout="constrained")
    for axis, frame in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
        n_rows, n_columns = frame.image.shape
        axis.imshow(frame.image, cmap="gray_r", vmin=0, vmax=1)
        centre = np.array([(n_columns - 1) / 2, (n_rows - 1) / 2])
        for direction, colour, style in ((frame.truth, HIDDEN, "-"), (frame.predicted, PREDICTED, "--")):
            end = centre + 0.45 * n_rows * direction / max(float(np.hypot(*direction)), 1e-9)
            axis.plot(*np.stack([centre, end], axis=1), color=colour, ls=style, lw=2)
        axis.set_title(frame.title, fontsize=8)
        axis.set_axis_off()
    return figure


def heat(table: Float[np.ndarray, "n m"], *, x: str, y: str, title: str) -> "Figure":
    """Numbers over two axes as colours on a logarithmic scale; NaN stays blank."""
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 4), layout="constrained")
    axis = figure.subplots()
    positive = table[np.isfinite(table) & (table > 0)]
    norm = LogNorm(positive.min(), max(positive.max(), positive.min() * 1.01)) if positive.size else None
    image = axis.imshow(table, origin="lower", norm=norm, cmap="viridis")
    figure.colorbar(image)
    axis.set(xlabel=x, ylabel=y)
    axis.set_title(title, fontsize=10, loc="left")
    return figure


def pairs(names: Sequence[str], values: Mapping[str, Float[np.ndarray, "n"]], *, x: str, log: bool = False) -> "Figure":
    """Numbers of several methods for each name, as dots on a line of its own; the largest of the first on top."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.5, 0.2 * len(names) + 1.2), layout="constrained")
    axis = figure.subplots()
    order = np.argsort(next(iter(values.values())), kind="stable")
    for number, (label, numbers) in enumerate(values.items()):
        axis.plot(numbers[order], np.arange(len(names)), "o", color=_COLOURS[number % len(_COLOURS)], ms=5, label=label)
    if log:
        axis.set_xscale("log")
    axis.set_yticks(np.arange(len(names)), [names[i] for i in order], fontsize=8)
    axis.set_xlabel(x)
    axis.grid(axis="y", lw=0.4)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=9)
    return figure


def spectrograms(titles: Sequence[str], rows: Mapping[str, Sequence[Shaped[np.ndarray, "y x"]]]) -> "Figure":
    """Pictures of sounds, one sound in each column: time to the right, low frequencies below."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.4 * len(titles), 1.8 * len(rows)), layout="constrained")
    axes = figure.subplots(len(rows), len(titles), squeeze=False)
    for line, (label, images) in zip(axes, rows.items(), strict=True):
        for axis, image in zip(line, images, strict=True):
            axis.imshow(image, origin="lower", aspect="auto", cmap="magma", interpolation="nearest")
            axis.set(xticks=[], yticks=[])
        line[0].set_ylabel(label, fontsize=9)
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set_title(title, fontsize=10, loc="left")
    return figure

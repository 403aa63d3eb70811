"""Pictures to save: every function returns a matplotlib figure and touches no display. Pages have charts.py as well."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float, Shaped

from romae.extras import require_extra

if TYPE_CHECKING:
    from matplotlib.figure import Figure

require_extra("plots", "figures need", "matplotlib")

OBSERVED, HIDDEN, PREDICTED, BASELINE = "#1b1b1b", "#d1495b", "#00798c", "#8c8c8c"
COLOURS = (PREDICTED, HIDDEN, "#edae49", OBSERVED, "#8e6c8a", "#66a182", "#2e4057", BASELINE)
BAND_OPACITY = 0.18  # of one band; where two lie above each other it is about a third
NOWHERE = (np.zeros(0), np.zeros(0))
_MARKERS = ("o", "D", "P", "s", "^", "*", "X")  # seven beside eight colours, as in charts.py


class Band(NamedTuple):
    """The central interval of a curve: its level, the times, and its lower and upper ends there."""

    level: float
    times: Shaped[np.ndarray, "k"]
    lower: Float[np.ndarray, "k"]
    upper: Float[np.ndarray, "k"]

    @property
    def name(self) -> str:
        """What a legend calls it."""
        return f"RoMAE, {100 * self.level:g} %"


class Panel(NamedTuple):
    """One channel of one sample: what was seen, what was hidden and predicted there, and curves over time.

    Times are numbers or dates. Bands come with the widest first, so that the others lie above it. Errors are two
    arrays, of the observed and of the hidden points, NaN where one is not known. An `inverted` axis has small values at
    the top, as magnitudes are drawn.
    """

    title: str
    observed: tuple[Shaped[np.ndarray, "n"], Float[np.ndarray, "n"]]
    hidden: tuple[Shaped[np.ndarray, "m"], Float[np.ndarray, "m"]] = NOWHERE
    curve: tuple[Shaped[np.ndarray, "k"], Float[np.ndarray, "k"]] = NOWHERE
    baseline: tuple[Shaped[np.ndarray, "k"], Float[np.ndarray, "k"]] = NOWHERE
    predicted: tuple[Shaped[np.ndarray, "m"], Float[np.ndarray, "m"]] = NOWHERE
    bands: tuple[Any, ...] = ()  # of Band
    errors: tuple[Any, ...] = ()
    inverted: Any = False  # or True

    @property
    def bars(self) -> tuple[Float[np.ndarray, "n"] | None, Float[np.ndarray, "m"] | None]:
        """The errors of the observed and of the hidden points; None where there are none."""
        return (self.errors[0], self.errors[1]) if self.errors else (None, None)


class Frame(NamedTuple):
    """An image of a pendulum, and its direction as it is and as it was predicted: sine and cosine, 0 downwards."""

    title: str
    image: Float[np.ndarray, "y x"]
    truth: Float[np.ndarray, "2"]
    predicted: Float[np.ndarray, "2"]


def interpolation(
    panels: Sequence[Panel],
    *,
    n_columns: int = 2,
    title: str = "",
    baseline: str = "linear interpolation",
    x: str = "time",
) -> "Figure":
    """Observed points, hidden points, the curves that were drawn through them, and bands where a model has them."""
    n_rows = -(-len(panels) // n_columns)
    figure = _figure(max(5.5 * n_columns, 8), 2.3 * n_rows + 0.7)
    axes = figure.subplots(n_rows, n_columns, squeeze=False, sharex=True)
    for axis, panel in zip(axes.flat, panels, strict=False):
        for band in panel.bands:
            axis.fill_between(
                band.times, band.lower, band.upper, color=PREDICTED, alpha=BAND_OPACITY, lw=0, label=band.name
            )
        axis.plot(*panel.baseline, color=BASELINE, lw=1.5, label=baseline)
        axis.plot(*panel.curve, color=PREDICTED, lw=2, label="RoMAE")
        axis.errorbar(*panel.observed, panel.bars[0], fmt="o", color=OBSERVED, ms=4, elinewidth=1, label="observed")
        axis.plot(*panel.hidden, "o", color=HIDDEN, ms=4, mfc="none", label="hidden from the model")
        axis.set_title(panel.title, fontsize=10, loc="left")
        if panel.inverted:
            axis.invert_yaxis()
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes[-1]:
        axis.set_xlabel(x)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    n_side_by_side = 6 if n_columns > 1 else 3  # of these, what fits into the width
    figure.legend(
        handles, labels, loc="outside lower center", ncols=min(len(labels), n_side_by_side), frameon=False, fontsize=9
    )
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    return figure


def light_curve(
    panels: Sequence[Panel], numbers: Sequence[int], *, x: str, y: str, inverted: bool = False, title: str = ""
) -> "Figure":
    """The channels of one sample over one axis of values, which magnitudes have upside down.

    Each has a colour and a symbol by its number: filled where it was observed, open where it was hidden from the model.
    """
    figure = _figure(8, 4)
    axis = figure.subplots()
    for panel, number in zip(panels, numbers, strict=True):
        colour, marker = COLOURS[number % len(COLOURS)], _MARKERS[number % len(_MARKERS)]
        for band in panel.bands:
            axis.fill_between(band.times, band.lower, band.upper, color=colour, alpha=BAND_OPACITY, lw=0)
        axis.plot(*panel.curve, color=colour, lw=1.5)
        look: dict[str, Any] = {"fmt": marker, "color": colour, "ms": 5, "elinewidth": 1}
        axis.errorbar(*panel.observed, panel.bars[0], label=panel.title, **look)
        axis.errorbar(*panel.hidden, panel.bars[1], mfc="none", **look)
    axis.set(xlabel=x, ylabel=y)
    axis.spines[["top", "right"]].set_visible(False)
    if inverted:
        axis.invert_yaxis()
    if len(panels) > 1:
        figure.legend(loc="outside lower center", ncols=min(len(panels), 8), frameon=False, fontsize=9)
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    return figure


def frames(shown: Sequence[Frame]) -> "Figure":
    """Images side by side with two hands: where the pendulum is, and where it was predicted to be."""
    figure = _figure(1.6 * len(shown), 2.1)
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


def image_grid(
    rows: Mapping[str, Sequence[Shaped[np.ndarray, "y x *rgb"]]],
    *,
    titles: Sequence[str] = (),
    size: tuple[float, float] = (1, 1),
    **shown: Any,
) -> "Figure":
    """Images in named rows, each of a size in inches; `shown` is what else `imshow` is told."""
    n_columns = max(len(images) for images in rows.values())
    figure = _figure(size[0] * n_columns, size[1] * len(rows))
    axes = figure.subplots(len(rows), n_columns, squeeze=False)
    for line, (label, images) in zip(axes, rows.items(), strict=True):
        for axis, image in zip(line, images, strict=True):
            axis.imshow(image, **shown)
            axis.set(xticks=[], yticks=[])
            axis.spines[:].set_visible(False)
        line[0].set_ylabel(label, fontsize=9)
    for axis, title in zip(axes[0], titles, strict=False):
        axis.set_title(title, fontsize=10, loc="left")
    return figure


def _figure(width: float, height: float) -> "Figure":
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")

"""Figures of matplotlib as charts to hover over and zoom into.

What a recipe draws for a paper serves a page as well: curves, points, bands and maps are read from the figure's panels.
A figure that holds anything else, or panels without axes, stays the picture that it is.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from romae.pages.charts import numbers, plain, titled
from romae.pages.page import Chart, Choice, Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.collections import Collection
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage
    from matplotlib.lines import Line2D

_SYMBOLS = {"o": "circle", ".": "circle", "x": "x", "+": "cross", "s": "square", "D": "diamond", "^": "triangle-up"}
_DASHES = {"-": "solid", "--": "dash", ":": "dot", "-.": "dashdot"}
_N_COLOURS = 11
PIXELS = 90  # of an inch


def interactive(caption: str, figure: "Figure") -> Chart | Choice | Picture:
    """The figure as a chart, as a choice of charts where it has several panels, or else as a picture."""
    panels = [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]
    if not panels or not all(_is_known(axes) for axes in panels):
        return Picture(caption=caption, figure=figure)
    # Panels side by side share the labels that only the outer ones show.
    x, y = (next(filter(None, map(label, panels)), "") for label in (_x_label, _y_label))
    charts, titles = [_chart(axes, caption, x, y) for axes in panels], [_title(axes) for axes in panels]
    if len(charts) == 1:
        return replace(charts[0], caption=f"{caption}: {titles[0]}" if titles[0] else caption)
    is_distinct = len(set(titles)) == len(titles) and all(titles)
    names = titles if is_distinct else [f"{i} {title}".rstrip() for i, title in enumerate(titles, start=1)]
    return Choice(label="Panel", charts=dict(zip(names, charts, strict=True)))


def _is_known(axes: "Axes") -> bool:
    """Whether the panel holds nothing but curves and bands in its own coordinates, and at most one map."""
    from matplotlib.collections import PolyCollection

    is_drawn_elsewhere = any(line.get_transform() is not axes.transData for line in axes.lines)
    is_map = all(_filled(image).ndim == 2 and np.isfinite(_filled(image)).any() for image in axes.images)
    is_banded = all(isinstance(one, PolyCollection) for one in axes.collections)
    has_more = bool(axes.patches or axes.texts or axes.tables or axes.child_axes)
    return axes.axison and len(axes.images) <= 1 and is_map and is_banded and not is_drawn_elsewhere and not has_more


def _chart(axes: "Axes", caption: str, x: str, y: str) -> Chart:
    bands = [trace for collection in axes.collections for trace in _band(collection, axes)]
    lines = [_line(one) for one in axes.lines if np.size(one.get_xdata())]
    maps = [_map(image) for image in axes.images]
    layout: dict[str, Any] = {
        "xaxis": titled(_x_label(axes) or x) | _scale(axes.get_xscale()) | _names(axes.xaxis),
        "yaxis": titled(_y_label(axes) or y) | _scale(axes.get_yscale()) | _names(axes.yaxis),
        "height": _height(axes),
    }
    if maps or axes.get_aspect() == 1:
        layout["xaxis"] |= {"constrain": "domain"}
        layout["yaxis"] |= {"constrain": "domain", "scaleanchor": "x"}
        layout["height"] = max(layout["height"], 460)
    if maps and axes.yaxis_inverted():
        layout["yaxis"] |= {"autorange": "reversed"}
    return Chart(caption=caption, traces=[*maps, *bands, *lines], layout=layout)


def _x_label(axes: "Axes") -> str:
    return axes.get_xlabel()


def _y_label(axes: "Axes") -> str:
    return axes.get_ylabel()


def _title(axes: "Axes") -> str:
    return axes.get_title("left") or axes.get_title("center") or axes.get_title("right")


def _scale(name: str) -> dict[str, Any]:
    return {"type": "log"} if name == "log" else {}


def _names(axis: "Axis") -> dict[str, Any]:
    """The ticks of an axis on which names stand in place of numbers."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, FuncFormatter

    locator, formatter = axis.get_major_locator(), axis.get_major_formatter()
    if not isinstance(locator, FixedLocator) or not isinstance(formatter, FixedFormatter | FuncFormatter):
        return {}
    places = axis.get_majorticklocs()
    return {"tickvals": numbers(places), "ticktext": [plain(formatter(x, i)) for i, x in enumerate(places.tolist())]}


def _height(axes: "Axes") -> int:
    """Pixels for a panel: those of the page, or more where the figure is higher."""
    figure, place = axes.get_figure(root=True), axes.get_subplotspec()
    inches = 0.0 if figure is None else figure.get_figheight() / (1 if place is None else place.get_gridspec().nrows)
    return int(np.clip(PIXELS * inches, 380, 1200))


def _line(line: "Line2D") -> dict[str, Any]:
    from matplotlib.colors import to_hex

    label, symbol = str(line.get_label()), _SYMBOLS.get(str(line.get_marker()))
    dash = _DASHES.get(str(line.get_linestyle()))
    is_open = str(line.get_markerfacecolor()) == "none"
    return {
        "type": "scatter",
        "mode": "+".join(word for word, is_here in (("lines", dash), ("markers", symbol)) if is_here),
        "name": plain(label),
        "showlegend": not label.startswith("_"),
        "legendgroup": to_hex(line.get_color()),  # a curve and its band come and go together
        "x": numbers(np.asarray(line.get_xdata(orig=False), dtype=float)),
        "y": numbers(np.asarray(line.get_ydata(orig=False), dtype=float)),
        "line": {
            "color": to_hex(line.get_color()),
            "width": line.get_linewidth(),
            "dash": dash or "solid",
        },
        "marker": {
            "color": to_hex(line.get_color()),
            "size": 1.4 * line.get_markersize(),
            "symbol": f"{symbol}-open" if is_open and symbol == "circle" else symbol or "circle",
        },
    }


def _band(collection: "Collection", axes: "Axes") -> list[dict[str, Any]]:
    """The areas of a collection. What lies below a logarithmic axis ends at its edge, as in the figure."""
    from matplotlib.colors import to_hex

    red, green, blue, opacity = np.asarray(collection.get_facecolor())[0]
    lowest = axes.get_ylim()[0] if axes.get_yscale() == "log" else -np.inf
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "line": {"width": 0},
            "fill": "toself",
            "fillcolor": f"rgba({255 * red:.0f},{255 * green:.0f},{255 * blue:.0f},{opacity:.2g})",
            "legendgroup": to_hex((red, green, blue)),
            "x": numbers(x),
            "y": numbers(np.maximum(y, lowest)),
            "hoverinfo": "skip",
            "showlegend": False,
        }
        for x, y in (np.asarray(path.vertices).T for path in collection.get_paths())
    ]


def _map(image: "AxesImage") -> dict[str, Any]:
    """Colours over two axes, by the logarithm where the figure has it so; what is hovered over are the numbers."""
    from matplotlib.colors import LogNorm, to_hex

    z, is_log = _filled(image), isinstance(image.norm, LogNorm)
    left, right, bottom, top = image.get_extent()
    y = _centres(bottom, top, z.shape[0])
    image.autoscale_None()
    limits = np.array(image.get_clim(), dtype=float)
    with np.errstate(divide="ignore", invalid="ignore"):
        shown, ends = (np.log10(z), np.log10(limits)) if is_log else (z, limits)
    steps = np.linspace(0, 1, _N_COLOURS).tolist()
    return {
        "type": "heatmap",
        "x": numbers(_centres(left, right, z.shape[1])),
        "y": numbers(y if image.origin == "lower" else y[::-1]),
        "z": [numbers(row) for row in shown],
        "customdata": [numbers(row) for row in z],
        "hovertemplate": "%{x}, %{y}: %{customdata:.4g}<extra></extra>",
        "colorscale": [[step, to_hex(image.get_cmap()(step))] for step in steps],
        "zmin": float(ends[0]),
        "zmax": float(ends[1]),
        "showscale": image.colorbar is not None,
        "colorbar": _ticks(*ends.tolist()) if is_log else {},
    }


def _filled(image: "AxesImage") -> Float[np.ndarray, "n m *rgb"]:
    """The numbers of a map, with NaN where there is none."""
    return np.ma.MaskedArray(image.get_array(), dtype=float).filled(np.nan)


def _centres(start: float, stop: float, n: int) -> Float[np.ndarray, "n"]:
    return start + (stop - start) * (np.arange(n) + 0.5) / n


def _ticks(low: float, high: float) -> dict[str, Any]:
    """Whole powers of ten, or the two ends where there are none between them."""
    whole = np.arange(np.ceil(low), np.floor(high) + 1)
    values = whole if len(whole) > 1 else np.array([low, high])
    return {"tickvals": numbers(values), "ticktext": [f"{10.0**value:.2g}" for value in values.tolist()]}

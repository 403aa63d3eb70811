"""Interactive charts: numbers to what Plotly draws. The counterpart of plots.py for pages.

Shapes: b samples, n observed and m hidden points, k classes.
"""

import html
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int64, Shaped

from romae.pages.page import Chart
from romae.pages.plots import BASELINE, HIDDEN, OBSERVED, PREDICTED, Panel

_COLOURS = (PREDICTED, HIDDEN, "#edae49", OBSERVED, "#8e6c8a", "#66a182", "#2e4057", BASELINE)
_SYMBOLS = ("circle", "diamond-open", "cross", "square-open", "triangle-up", "star-open", "x")
_WIDE = 30  # times the smallest value: beyond that, small ones could not be told apart
_MANY = 20  # classes, beyond which there is no room to name or number each
_DIGITS = 10  # enough for a date in seconds; fewer would move it


class Reconstruction(NamedTuple):
    """One channel of one sample, and what was predicted at its hidden points."""

    panel: Panel
    predicted: Float[np.ndarray, "m"]


def losses(records: Sequence[Mapping[str, Any]], caption: str = "") -> Chart:
    """The training loss and, where there is one, the validation loss against steps."""
    return loss_curves({"": records}, caption)


def loss_curves(runs: Mapping[str, Sequence[Mapping[str, Any]]], caption: str = "") -> Chart:
    """The losses of several runs by their names; training has one colour, validation another."""
    traces = []
    for key, label, colour in (("loss", "training", PREDICTED), ("validation", "validation", HIDDEN)):
        found = {name: [one for one in records if one.get(key) is not None] for name, records in runs.items()}
        for number, (name, records) in enumerate((name, records) for name, records in found.items() if records):
            steps, values = (np.array([record[which] for record in records]) for which in ("step", key))
            width, mode = (2.0, "lines+markers") if len(runs) == 1 else (1.0, "lines")
            trace = _line(label, steps, values, colour, width=width, mode=mode)
            hover = {"hovertemplate": f"{plain(name)}, step %{{x}}: %{{y}}"} if name else {}
            traces.append(trace | {"legendgroup": label, "showlegend": number == 0} | hover)
    is_log = bool(traces) and all(value is not None and value > 0 for trace in traces for value in trace["y"])
    scale = {"type": "log"} if is_log else {}
    return Chart(caption=caption, traces=traces, layout={"xaxis": titled("step"), "yaxis": titled("loss") | scale})


def reconstruction(channels: Sequence[Reconstruction], *, x: str, caption: str, baseline: str = "") -> Chart:
    """Observed, hidden and predicted points of one sample, one chart above the other for each channel.

    Curves are drawn where there are any; `baseline` names the grey one.
    """
    traces: list[dict[str, Any]] = []
    layout: dict[str, Any] = {
        "height": 120 + 220 * len(channels),
        "grid": {"rows": len(channels), "columns": 1, "pattern": "independent", "ygap": 0.25},
        "annotations": [],
    }
    for number, (panel, predicted) in enumerate(channels, start=1):
        where = "" if number == 1 else str(number)
        drawn = [
            _line(baseline, *panel.baseline, BASELINE, width=1.5),
            _line("RoMAE", *panel.curve, PREDICTED),
            _points("observed", *panel.observed, OBSERVED),
            _points("hidden from the model", *panel.hidden, HIDDEN, symbol="circle-open"),
            _points("predicted", panel.hidden[0], predicted, PREDICTED, symbol="x"),
        ]
        place = {"xaxis": f"x{where}", "yaxis": f"y{where}", "showlegend": number == 1}
        traces += [trace | place | {"legendgroup": trace["name"]} for trace in drawn if trace["x"]]
        layout[f"yaxis{where}"] = titled(panel.title)
        layout[f"xaxis{where}"] = {"matches": "x"} if number > 1 else {}
    layout["xaxis" + ("" if len(channels) == 1 else str(len(channels)))] |= titled(x)
    return Chart(caption=caption, traces=traces, layout=layout)


def confusion(counts: Int64[np.ndarray, "k k"], names: Sequence[Any], caption: str) -> Chart:
    """How often samples of each class (rows) were taken for each class (columns); colours are shares of a row."""
    labels = [plain(name) for name in names]
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    trace = {
        "type": "heatmap",
        "x": labels,
        "y": labels,
        "z": [numbers(row) for row in shares],
        "text": counts.tolist(),
        "hovertemplate": "true %{y}<br>predicted %{x}<br>%{text} samples, %{z:.1%} of the class<extra></extra>",
        "colorscale": [[0, "#ffffff"], [1, PREDICTED]],
        "zmin": 0,
        "zmax": 1,
        "showscale": False,
    } | ({"texttemplate": "%{text}"} if len(labels) <= _MANY else {})
    layout = {
        "height": min(700, 160 + 60 * len(labels)),
        "xaxis": titled("predicted class") | {"type": "category"},
        "yaxis": titled("true class") | {"type": "category", "autorange": "reversed"},
    }
    return Chart(caption=caption, traces=[trace], layout=layout)


def embedding_map(
    points: Float[np.ndarray, "b 2"], ids: Sequence[Any], groups: Shaped[np.ndarray, "b"] | None, caption: str
) -> Chart:
    """Samples as points in the plane, by group in colours and then in symbols; a legend names up to twenty groups."""
    named = np.array(["samples"] * len(points)) if groups is None else groups.astype(str)
    traces, names = [], sorted(set(named.tolist()))
    for number, name in enumerate(names):
        here = np.flatnonzero(named == name)
        colour, symbol = _COLOURS[number % len(_COLOURS)], _SYMBOLS[number // len(_COLOURS) % len(_SYMBOLS)]
        trace = _points(plain(name), points[here, 0], points[here, 1], colour, symbol=symbol)
        trace |= {"text": [plain(ids[i]) for i in here.tolist()], "hovertemplate": "%{text}"}
        traces.append(trace | {"showlegend": 1 < len(names) <= _MANY})
    axes = {"xaxis": titled("first component"), "yaxis": titled("second component")}
    return Chart(caption=caption, traces=traces, layout=axes | {"height": 460})


def agreement(
    truth: Float[np.ndarray, "b"], predicted: Float[np.ndarray, "b"], ids: Sequence[Any], name: str, caption: str
) -> Chart:
    """Predicted against true numbers, with the line where both are equal."""
    ends = np.array([truth.min(), truth.max()])
    points = _points("samples", truth, predicted, PREDICTED)
    points |= {"text": [plain(one) for one in ids], "hovertemplate": "%{text}: %{x}, predicted %{y}<extra></extra>"}
    axes = {"xaxis": titled(f"true {name}"), "yaxis": titled(f"predicted {name}")}
    return Chart(caption=caption, traces=[_line("equal", ends, ends, BASELINE), points], layout=axes)


def comparison(values: Mapping[str, float], *, ours: str, metric: str, caption: str) -> Chart:
    """One dot for each method, ours in colour, in the order given from the top; logarithmic over a wide range."""
    found = np.array(list(values.values()))
    is_wide = bool((found > 0).all()) and found.max() > _WIDE * found.min()
    trace = {
        "type": "scatter",
        "mode": "markers",
        "x": numbers(found),
        "y": [plain(f"{name}: {value:.3g}") for name, value in values.items()],
        "marker": {"size": 12, "color": [PREDICTED if name == ours else BASELINE for name in values]},
        "hovertemplate": "%{y}<extra></extra>",
    }
    layout = {
        "height": 110 + 34 * len(values),
        "xaxis": titled(metric) | ({"type": "log"} if is_wide else {"rangemode": "tozero"}),
        "yaxis": {"type": "category", "autorange": "reversed"},
    }
    return Chart(caption=caption, traces=[trace], layout=layout)


def _line(name: str, x: np.ndarray, y: np.ndarray, colour: str, *, width: float = 2, mode: str = "lines") -> dict:
    line = {"color": colour, "width": width}
    return {"type": "scatter", "mode": mode, "name": name, "x": numbers(x), "y": numbers(y), "line": line}


def _points(name: str, x: np.ndarray, y: np.ndarray, colour: str, *, symbol: str = "circle") -> dict:
    marker = {"color": colour, "size": 7, "symbol": symbol}
    return {"type": "scatter", "mode": "markers", "name": name, "x": numbers(x), "y": numbers(y), "marker": marker}


def titled(title: str) -> dict[str, Any]:
    """An axis with its title."""
    return {"title": {"text": plain(title)}}


def plain(name: Any) -> str:
    """A name as it is read: Plotly would take <b> for a command."""
    return html.escape(str(name), quote=False)


def numbers(x: np.ndarray) -> list[Any]:
    """Numbers for JSON, rounded; what is no number is left blank."""
    return [float(f"{value:.{_DIGITS}g}") if np.isfinite(value) else None for value in x.tolist()]

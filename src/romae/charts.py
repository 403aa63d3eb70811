"""Interactive charts: numbers to what Plotly draws. The counterpart of plots.py for pages.

Shapes: b samples, n observed and m hidden points, k classes.
"""

import html
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int64, Shaped

from romae.page import Chart
from romae.plots import BASELINE, HIDDEN, OBSERVED, PREDICTED, Panel

_COLOURS = (PREDICTED, HIDDEN, "#edae49", OBSERVED, "#8e6c8a", "#66a182", "#2e4057", BASELINE)
_WIDE = 30  # times the smallest value: beyond that, small ones could not be told apart
_DIGITS = 10  # enough for a date in seconds; fewer would move it


class Reconstruction(NamedTuple):
    """One channel of one sample, and what was predicted at its hidden points."""

    panel: Panel
    predicted: Float[np.ndarray, "m"]


def losses(records: Sequence[Mapping[str, Any]], caption: str = "") -> Chart:
    """The training loss and, where there is one, the validation loss against steps."""
    traces = []
    for key, label, colour in (("loss", "training", PREDICTED), ("validation", "validation", HIDDEN)):
        found = [(record["step"], record[key]) for record in records if record.get(key) is not None]
        if found:
            steps, values = zip(*found, strict=True)
            traces.append(_line(label, np.array(steps), np.array(values), colour, mode="lines+markers"))
    is_log = bool(traces) and all(value is not None and value > 0 for trace in traces for value in trace["y"])
    scale = {"type": "log"} if is_log else {}
    return Chart(caption=caption, traces=traces, layout={"xaxis": _axis("step"), "yaxis": _axis("loss") | scale})


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
        layout[f"yaxis{where}"] = _axis(panel.title)
        layout[f"xaxis{where}"] = {"matches": "x"} if number > 1 else {}
    layout["xaxis" + ("" if len(channels) == 1 else str(len(channels)))] |= _axis(x)
    return Chart(caption=caption, traces=traces, layout=layout)


def confusion(counts: Int64[np.ndarray, "k k"], names: Sequence[Any], caption: str) -> Chart:
    """How often samples of each class (rows) were taken for each class (columns); colours are shares of a row."""
    labels = [_plain(name) for name in names]
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    trace = {
        "type": "heatmap",
        "x": labels,
        "y": labels,
        "z": [_numbers(row) for row in shares],
        "text": counts.tolist(),
        "hovertemplate": "true %{y}<br>predicted %{x}<br>%{text} samples, %{z:.1%} of the class<extra></extra>",
        "colorscale": [[0, "#ffffff"], [1, PREDICTED]],
        "zmin": 0,
        "zmax": 1,
        "showscale": False,
    } | ({"texttemplate": "%{text}"} if len(labels) <= 20 else {})
    layout = {
        "height": min(700, 160 + 60 * len(labels)),
        "xaxis": _axis("predicted class") | {"type": "category"},
        "yaxis": _axis("true class") | {"type": "category", "autorange": "reversed"},
    }
    return Chart(caption=caption, traces=[trace], layout=layout)


def embedding_map(
    points: Float[np.ndarray, "b 2"], ids: Sequence[Any], groups: Shaped[np.ndarray, "b"] | None, caption: str
) -> Chart:
    """Samples as points in the plane, coloured by group where there are groups."""
    named = np.array(["samples"] * len(points)) if groups is None else groups.astype(str)
    traces = []
    for number, name in enumerate(sorted(set(named.tolist()))):
        here = np.flatnonzero(named == name)
        colour = _COLOURS[number % len(_COLOURS)]
        trace = _points(_plain(name), points[here, 0], points[here, 1], colour)
        trace |= {"text": [_plain(ids[i]) for i in here.tolist()], "hovertemplate": "%{text}"}
        traces.append(trace | {"showlegend": groups is not None})
    axes = {"xaxis": _axis("first component"), "yaxis": _axis("second component")}
    return Chart(caption=caption, traces=traces, layout=axes | {"height": 460})


def agreement(
    truth: Float[np.ndarray, "b"], predicted: Float[np.ndarray, "b"], ids: Sequence[Any], name: str, caption: str
) -> Chart:
    """Predicted against true numbers, with the line where both are equal."""
    ends = np.array([truth.min(), truth.max()])
    points = _points("samples", truth, predicted, PREDICTED)
    points |= {"text": [_plain(one) for one in ids], "hovertemplate": "%{text}: %{x}, predicted %{y}<extra></extra>"}
    axes = {"xaxis": _axis(f"true {name}"), "yaxis": _axis(f"predicted {name}")}
    return Chart(caption=caption, traces=[_line("equal", ends, ends, BASELINE), points], layout=axes)


def comparison(values: Mapping[str, float], *, ours: str, metric: str, caption: str) -> Chart:
    """One dot for each method, ours in colour, in the order given from the top; logarithmic over a wide range."""
    numbers = np.array(list(values.values()))
    is_wide = bool((numbers > 0).all()) and numbers.max() > _WIDE * numbers.min()
    trace = {
        "type": "scatter",
        "mode": "markers",
        "x": _numbers(numbers),
        "y": [_plain(f"{name}: {value:.3g}") for name, value in values.items()],
        "marker": {"size": 12, "color": [PREDICTED if name == ours else BASELINE for name in values]},
        "hovertemplate": "%{y}<extra></extra>",
    }
    layout = {
        "height": 110 + 34 * len(values),
        "xaxis": _axis(metric) | ({"type": "log"} if is_wide else {"rangemode": "tozero"}),
        "yaxis": {"type": "category", "autorange": "reversed"},
    }
    return Chart(caption=caption, traces=[trace], layout=layout)


def _line(name: str, x: np.ndarray, y: np.ndarray, colour: str, *, width: float = 2, mode: str = "lines") -> dict:
    line = {"color": colour, "width": width}
    return {"type": "scatter", "mode": mode, "name": name, "x": _numbers(x), "y": _numbers(y), "line": line}


def _points(name: str, x: np.ndarray, y: np.ndarray, colour: str, *, symbol: str = "circle") -> dict:
    marker = {"color": colour, "size": 7, "symbol": symbol}
    return {"type": "scatter", "mode": "markers", "name": name, "x": _numbers(x), "y": _numbers(y), "marker": marker}


def _axis(title: str) -> dict[str, Any]:
    return {"title": {"text": _plain(title)}}


def _plain(name: Any) -> str:
    """A name as it is read: Plotly would take <b> for a command."""
    return html.escape(str(name), quote=False)


def _numbers(x: np.ndarray) -> list[Any]:
    """Numbers for JSON, rounded; what is no number is left blank."""
    return [float(f"{value:.{_DIGITS}g}") if np.isfinite(value) else None for value in x.tolist()]

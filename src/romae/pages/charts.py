"""Charts: numbers to plotly figures, to zoom into and hover over. The counterpart of plots.py for pages.

Every function returns a `plotly.graph_objects.Figure`. Shapes: b samples, k classes, n points, s runs.
"""

import html
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int64, Shaped

from romae.pages.plots import BAND_OPACITY, BASELINE, COLOURS, HIDDEN, OBSERVED, PREDICTED, Band, Panel

if TYPE_CHECKING:
    from plotly.graph_objects import Figure, Scatter

_BEFORE_AND_AFTER = (HIDDEN, PREDICTED)
# Symbols differ where colours do, for eyes that see some of these alike. There are seven beside eight colours, so that
# no pair comes back before the fifty-seventh.
_SYMBOLS = ("circle", "diamond-open", "cross", "square-open", "triangle-up", "star-open", "x")
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
_WIDE = 30  # times the smallest value: beyond that, small ones could not be told apart
_DEEP = "#00788b"  # behind white numbers, on a dark screen too
_BAR = 48  # pixels of a scale of colours above panels
_MANY = 20  # classes, beyond which there is no room to name or number each
_AXIS = {"gridcolor": "#e6e6e6", "zeroline": False, "linecolor": OBSERVED, "automargin": True}
_MARGIN = {"l": 56, "r": 12, "t": 36, "b": 44}
_TEMPLATE = {
    "layout": {
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": OBSERVED},
        "paper_bgcolor": "#fff",  # page.js has the counterparts of all these colours on a dark screen
        "plot_bgcolor": "#fff",
        "hovermode": "closest",
        "height": 380,
        "margin": _MARGIN,
        "legend": {"orientation": "h", "x": 0, "y": 0, "xanchor": "left", "yanchor": "bottom", "yref": "container"},
        "xaxis": _AXIS,
        "yaxis": _AXIS,
    }
}
_NAMES = {"type": "category", "autorange": "reversed"}  # from the top
_SQUARE = {"scaleanchor": "x", "constrain": "domain"}  # one unit is as long in y as in x


class Line(NamedTuple):
    """A curve of several runs, of which the mean and the spread are drawn."""

    label: str
    x: Shaped[np.ndarray, "n"]
    runs: Float[np.ndarray, "s n"]


class Marked(NamedTuple):
    """One channel of one sample: its measurements, a number for each, and a band around them where there is one.

    Errors are those of the measurements, NaN where one is not known. An `inverted` axis has small values at the top.
    """

    title: str
    x: Shaped[np.ndarray, "n"]
    y: Float[np.ndarray, "n"]
    number: Float[np.ndarray, "n"]
    band: tuple[Float[np.ndarray, "n"], Float[np.ndarray, "n"]] | None = None
    errors: Float[np.ndarray, "n"] | None = None
    inverted: bool = False


def loss_curves(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> "Figure":
    """The losses of runs by their names, against steps; training has one colour and dash, validation another."""
    traces = []
    width, mode = (2, "lines+markers") if len(runs) == 1 else (1, "lines")
    looks = (("loss", "training", PREDICTED), ("validation", "validation", HIDDEN))
    for number, (key, label, colour) in enumerate(looks):
        for name, records in runs.items():
            points = [(record["step"], record[key]) for record in records if record.get(key) is not None]
            hover = f"{plain(name)}, step %{{x}}: %{{y}}" if name else None
            if points:
                look: dict[str, Any] = {"symbol": _SYMBOLS[number], "hovertemplate": hover}
                trace = _scatter(label, np.array(points).T, mode, colour, width=width, **look)
                traces.append(trace.update(line_dash=_DASHES[number]))
    _name_once(traces)
    is_positive = all(bool((trace.y > 0).all()) for trace in traces)
    losses = np.concatenate([np.zeros(0), *(trace.y for trace in traces)])
    return _figure(
        traces, xaxis=_titled("step"), yaxis=_logarithmic("loss", losses) if is_positive else _titled("loss")
    )


def reconstruction(
    panels: Sequence[Panel],
    *,
    x: str,
    baseline: str = "linear interpolation",
    predicted: str = "predicted",
    cut: Any = None,
    folded: Sequence[Panel] = (),
    beside: str = "phase",
) -> "Figure":
    """Observed, hidden and predicted points of one sample, one panel above the other.

    Curves and bands are drawn where there are any; `baseline` names the grey curve, `predicted` the points that were
    predicted. At `cut`, a time where a forecast begins, there is a dotted line. The same channels over their phase are
    `folded`, or over another axis, which `beside` names; they stand on the right.
    """
    traces = []
    for column, part in enumerate((panels, folded), start=1):
        for row, panel in enumerate(part, start=1):
            drawn = (
                _scatter(baseline, panel.baseline, "lines", BASELINE),
                _scatter("RoMAE", panel.curve, "lines", PREDICTED),
                _scatter("observed", panel.observed, "markers", OBSERVED, error_y=_error_bars(panel.bars[0])),
                _scatter(
                    "hidden from the model",
                    panel.hidden,
                    "markers",
                    HIDDEN,
                    symbol="circle-open",
                    error_y=_error_bars(panel.bars[1]),
                ),
                _scatter(predicted, panel.predicted, "markers", symbol="x"),
            )
            bands = [_band(band) for band in panel.bands]
            place = {"yaxis": f"y{row}", "xaxis": f"x{column}"}
            traces += [trace.update(place) for trace in (*bands, *drawn) if len(trace.x)]
    _name_once(traces)
    lines = [
        {
            "type": "line",
            "x0": cut,
            "x1": cut,
            "xref": "x",
            "y0": 0,
            "y1": 1,
            "yref": f"y{row if row > 1 else ''} domain",
        }
        | {"line": {"dash": "dot", "width": 1, "color": BASELINE}}
        for row in range(1, len(panels) + 1 if cut is not None else 1)
    ]
    return _figure(traces, shapes=lines, **_panels(panels, x, beside if folded else ""))


def light_curve(
    panels: Sequence[Panel], numbers: Sequence[int], *, x: str, y: str, inverted: bool = False, title: str = ""
) -> "Figure":
    """The channels of one sample over one axis of values, which magnitudes have upside down.

    Each has a colour and a symbol by its number, which is open where it was hidden from the model. A click on its name
    in the legend hides its points, curve and bands.
    """
    traces = []
    for panel, number in zip(panels, numbers, strict=True):
        colour, symbol = COLOURS[number % len(COLOURS)], _SYMBOLS[number % len(_SYMBOLS)].removesuffix("-open")
        look: dict[str, Any] = {"mode": "markers", "colour": colour}
        drawn = [
            *(_band(band, colour) for band in panel.bands),
            _scatter("curve", panel.curve, "lines", colour, hoverinfo="skip"),
            _scatter("hidden", panel.hidden, symbol=f"{symbol}-open", error_y=_error_bars(panel.bars[1]), **look),
            _scatter("observed", panel.observed, symbol=symbol, error_y=_error_bars(panel.bars[0]), **look),
        ]
        drawn = [trace.update(name=plain(panel.title), legendgroup=panel.title) for trace in drawn if len(trace.x)]
        for trace in drawn:
            trace.update(showlegend=trace is drawn[-1] and len(panels) > 1)
        traces += drawn
    more = {"title": {"text": plain(title)}} if title else {}
    return _figure(traces, height=460, xaxis=_titled(x), yaxis=_values_axis(y, inverted), **more)


def early_scores(tables: Mapping[str, Any], *, x: str = "time since the first measurement", y: str) -> "Figure":
    """Scores of classifiers by their names, against how long samples were seen: tables of `romae.early_scores`."""
    traces = []
    for number, (name, table) in enumerate(tables.items()):
        trace = _scatter(
            name,
            (np.asarray(table["time"]), np.asarray(table["score"])),
            "lines+markers",
            COLOURS[number % len(COLOURS)],
            symbol=_SYMBOLS[number % len(_SYMBOLS)],
            customdata=np.asarray(table["n"]),
            hovertemplate="%{x}: %{y:.4g}, %{customdata} samples",
        )
        traces.append(trace.update(showlegend=len(tables) > 1))
    return _figure(traces, xaxis=_titled(x), yaxis=_titled(y))


def marked(
    panels: Sequence[Marked],
    *,
    x: str,
    number: str,
    band: str = "",
    signed: bool = False,
    folded: Sequence[Marked] = (),
    beside: str = "phase",
) -> "Figure":
    """Measurements of one sample, one panel above the other, in colours and sizes by a number of each.

    `number` and `band` name what is drawn; `signed` numbers have one colour and symbol below 0 and another above. The
    same channels over their phase are `folded`, or over another axis, which `beside` names; they stand on the right.
    """
    traces: list[Any] = []
    sizes = np.concatenate([np.abs(np.nan_to_num(panel.number)) for panel in panels])
    most = max(float(sizes.max(initial=0.0)), 1e-300)
    scale = [[0, HIDDEN], [0.5, "#f2f2f2"], [1, PREDICTED]] if signed else [[0, "#cfe3e6"], [1, HIDDEN]]
    places_of = [(row, 1, panel) for row, panel in enumerate(panels, start=1)]
    places_of += [(row, 2, panel) for row, panel in enumerate(folded, start=1)]
    for row, column, panel in places_of:
        order = np.argsort(panel.x, kind="stable")
        places, values, numbers = panel.x[order], panel.y[order], np.nan_to_num(panel.number[order])
        drawn = [_scatter("measured", (places, values), "lines", BASELINE, width=1)] if column == 1 else []
        if panel.band is not None:
            lower, upper = (end[order] for end in panel.band)
            known = np.flatnonzero(np.isfinite(lower) & np.isfinite(upper))
            there_and_back = np.concatenate([known, known[::-1]])
            edges = np.concatenate([upper[known], lower[known][::-1]])
            look: dict[str, Any] = {"fill": "toself", "opacity": 0.15, "hoverinfo": "skip"}
            drawn.append(_scatter(band, (places[there_and_back], edges), "lines", width=0, **look))
        points = _scatter(number, (places, values), "markers", text=[f"{one:.3g}" for one in numbers])
        points.update(hovertemplate=f"%{{x}}: %{{y}}<br>{plain(number)} %{{text}}<extra></extra>")
        bars = _error_bars(None if panel.errors is None else panel.errors[order])
        points.update(error_y=bars and bars | {"color": BASELINE})
        points.marker.update(
            color=numbers,
            colorscale=scale,
            cmin=-most if signed else 0,
            cmax=most,
            size=5 + 11 * np.abs(numbers) / most,
            line={"color": OBSERVED, "width": 0.5},
            showscale=(row, column) == (1, 1),
            # Above the panels: beside them it would take half the width of a phone.
            colorbar={
                "title": {"text": plain(number), "side": "top"},
                "orientation": "h",
                "thickness": 10,
                "len": 0.6,
                "x": 0,
                "xanchor": "left",
                "y": 1,
                "yanchor": "bottom",
                "nticks": 5,
                "outlinewidth": 0,
            },
        )
        if signed:
            points.marker.symbol = np.where(numbers < 0, "triangle-down", "triangle-up")
        traces += [trace.update(yaxis=f"y{row}", xaxis=f"x{column}") for trace in (*drawn, points)]
    _name_once(traces)
    layout = _panels(panels, x, beside if folded else "")
    layout["height"] += _BAR
    return _figure(traces, margin=_MARGIN | {"t": _MARGIN["t"] + _BAR}, **layout)


def _panels(panels: Sequence[Panel | Marked], x: str, beside: str = "") -> dict[str, Any]:
    """Panels one above the other, with one axis of x, and with another on the right where one is named."""
    axes = {f"yaxis{row}": _values_axis(panel.title, panel.inverted) for row, panel in enumerate(panels, start=1)}
    if beside:
        axes["xaxis2"] = _titled(beside)
    grid = {"rows": len(panels), "columns": 1 + bool(beside), "pattern": "coupled", "ygap": 0.15}
    return {"height": 120 + 220 * len(panels), "grid": grid, "xaxis": _titled(x)} | axes


def confusion(counts: Int64[np.ndarray, "k k"], names: Sequence[Any]) -> "Figure":
    """How often samples of each class (rows) were taken for each class (columns); colours are shares of a row."""
    import plotly.graph_objects as go

    labels = [plain(name) for name in names]
    trace = go.Heatmap(
        x=labels,
        y=labels,
        z=counts / np.maximum(counts.sum(axis=1, keepdims=True), 1),
        text=counts.tolist(),
        texttemplate="%{text}" if len(labels) <= _MANY else None,
        hovertemplate="true %{y}<br>predicted %{x}<br>%{text} samples, %{z:.1%} of the class<extra></extra>",
        colorscale=["#ffffff", _DEEP],
        zmin=0,
        zmax=1,
        showscale=False,
    )
    return _figure(
        [trace],
        height=min(700, 160 + 60 * len(labels)),
        xaxis=_titled("predicted class") | {"type": "category"},
        yaxis=_titled("true class") | _NAMES,
    )


def embedding(
    points: Float[np.ndarray, "b 2"], ids: Sequence[Any], groups: Shaped[np.ndarray, "b"] | None = None
) -> "Figure":
    """Samples in the plane of two components, by group in colours and symbols; a legend names up to twenty."""
    group = np.array(["samples"] * len(points)) if groups is None else groups.astype(str)
    traces, names = [], sorted(set(group.tolist()))
    for number, name in enumerate(names):
        members = np.flatnonzero(group == name)
        colour, symbol = COLOURS[number % len(COLOURS)], _SYMBOLS[number % len(_SYMBOLS)]
        trace = _scatter(
            name, points[members].T, "markers", colour, symbol=symbol, text=[ids[i] for i in members.tolist()]
        )
        traces.append(trace.update(hovertemplate="%{text}", showlegend=1 < len(names) <= _MANY))
    return _figure(traces, height=460, xaxis=_titled("first component"), yaxis=_titled("second component"))


def agreement(
    truth: Float[np.ndarray, "b"], predicted: Float[np.ndarray, "b"], ids: Sequence[Any], name: str
) -> "Figure":
    """Predicted against true numbers, with the line where both are equal."""
    ends = np.array([truth.min(), truth.max()])
    points = _scatter("samples", (truth, predicted), "markers", text=ids)
    points.update(hovertemplate="%{text}: %{x}, predicted %{y}<extra></extra>")
    traces = [_scatter("equal", (ends, ends), "lines", BASELINE), points]
    return _figure(traces, xaxis=_titled(f"true {name}"), yaxis=_titled(f"predicted {name}"))


def calibration(
    curves: Mapping[str, tuple[Sequence[float], Sequence[float]]], *, x: str, y: str, line: str = "as promised"
) -> "Figure":
    """Shares that came true against those that were promised, with the line where both are equal."""
    traces = [_scatter(line, ([0, 1], [0, 1]), "lines", BASELINE)]
    for number, (name, (promised, came)) in enumerate(curves.items()):
        points = np.array(promised), np.array(came)
        trace = _scatter(name, points, "lines+markers", _BEFORE_AND_AFTER[number % 2], symbol=_SYMBOLS[number % 2])
        traces.append(trace.update(line_dash=_DASHES[number % 2]))
    return _figure(traces, xaxis=_titled(x) | {"range": [0, 1]}, yaxis=_titled(y) | {"range": [0, 1]})


def pit_histogram(shares: Mapping[str, Sequence[float]]) -> "Figure":
    """How the probabilities of at most each number are spread: evenly, at 1, where distributions are true."""
    traces = [_scatter("true distributions", ([0, 1], [1, 1]), "lines", BASELINE)]
    for number, (name, part) in enumerate(shares.items()):
        edges = np.linspace(0, 1, len(part) + 1)
        density = np.array(part) * len(part)
        steps = np.repeat(edges, 2)[1:-1], np.repeat(density, 2)
        trace = _scatter(name, steps, "lines", _BEFORE_AND_AFTER[number % 2])
        traces.append(trace.update(line_dash=_DASHES[number % 2]))
    title = "probability of at most the true number (PIT)"
    return _figure(traces, xaxis=_titled(title), yaxis=_titled("density") | {"rangemode": "tozero"})


def comparison(values: Mapping[str, float], *, ours: str, metric: str) -> "Figure":
    """One dot for each method, ours in colour, in the order given from the top; logarithmic over a wide range."""
    numbers = np.array(list(values.values()))
    is_wide = bool((numbers > 0).all()) and numbers.max() > _WIDE * numbers.min()
    labels = [plain(f"{name}: {value:.3g}") for name, value in values.items()]
    trace = _scatter("", (numbers, labels), "markers", hovertemplate="%{y}<extra></extra>")
    trace.marker.update(size=12, color=[PREDICTED if name == ours else BASELINE for name in values])
    axis = _logarithmic(metric, numbers) if is_wide else _titled(metric) | {"rangemode": "tozero"}
    return _figure([trace], height=110 + 34 * len(values), xaxis=axis, yaxis=_NAMES)


def bands(lines: Sequence[Line], *, x: str, y: str, log: bool = False) -> "Figure":
    """Means over runs as curves, with the standard deviation as a band around each."""
    traces = []
    for number, line in enumerate(lines):
        mean, spread = line.runs.mean(axis=0), line.runs.std(axis=0, ddof=min(len(line.runs) - 1, 1))
        is_finite, colour = np.isfinite(mean), COLOURS[number % len(COLOURS)]
        places, mean, spread = line.x[is_finite], mean[is_finite], spread[is_finite]
        # A logarithmic axis has no place for 0: the band ends a little below the curve.
        lower = np.maximum(mean - spread, mean[mean > 0].min(initial=np.inf) / 2) if log else mean - spread
        around = np.concatenate([places, places[::-1]]), np.concatenate([mean + spread, lower[::-1]])
        band = _scatter(line.label, around, "lines", colour, width=0, fill="toself", opacity=0.2, hoverinfo="skip")
        curve = _scatter(line.label, (places, mean), "lines", colour).update(line_dash=_DASHES[number % len(_DASHES)])
        for trace, is_named in ((band, False), (curve, len(lines) > 1)):
            traces.append(trace.update(legendgroup=line.label, showlegend=is_named))
    means = np.concatenate([np.zeros(0), *(np.ravel(line.runs.mean(axis=0)) for line in lines)])
    return _figure(traces, xaxis=_titled(x), yaxis=_logarithmic(y, means) if log else _titled(y))


def paired(
    names: Sequence[str], values: Mapping[str, Float[np.ndarray, "n"]], *, x: str, log: bool = False
) -> "Figure":
    """Numbers of several methods for each name, as dots on a line of its own; the largest of the first on top."""
    order = np.argsort(next(iter(values.values())), kind="stable")
    labels = [plain(names[i]) for i in order]
    traces = [
        _scatter(
            name,
            (numbers[order], labels),
            "markers",
            COLOURS[i % len(COLOURS)],
            symbol=_SYMBOLS[i % len(_SYMBOLS)],
        )
        for i, (name, numbers) in enumerate(values.items())
    ]
    axis = _logarithmic(x, np.concatenate(list(values.values()))) if log else _titled(x)
    axes = {"xaxis": axis, "yaxis": {"type": "category"}}
    return _figure(traces, height=140 + 20 * len(names), **axes)


def heat_map(table: Float[np.ndarray, "n m"], *, x: str, y: str, title: str) -> "Figure":
    """Positive numbers over two axes as colours on a logarithmic scale; NaN stays blank."""
    import plotly.graph_objects as go

    trace = go.Heatmap(
        z=np.log10(table),
        customdata=table,
        hovertemplate="%{x}, %{y}: %{customdata:.4g}<extra></extra>",
        colorscale="Viridis",
        colorbar={"title": {"text": plain(title)}, "thickness": 12, **_log_ticks(table)},
    )
    return _figure([trace], height=460, xaxis=_titled(x) | {"constrain": "domain"}, yaxis=_titled(y) | _SQUARE)


def _log_ticks(numbers: Float[np.ndarray, "n m"]) -> dict[str, Any]:
    """Ticks of a scale of logarithms as the numbers themselves: powers of ten, and 2 and 5 times these if few."""
    known = numbers[np.isfinite(numbers) & (numbers > 0)]
    if not known.size:
        return {}
    low, high = math.log10(known.min()), math.log10(known.max())
    steps = (1, 2, 5) if high - low <= 2 else (1,)
    ticks = [step * 10.0**power for power in range(math.floor(low), math.ceil(high) + 1) for step in steps]
    ticks = [tick for tick in ticks if low - 1e-9 <= math.log10(tick) <= high + 1e-9] or [10**low, 10**high]
    return {"tickvals": [math.log10(tick) for tick in ticks], "ticktext": [f"{tick:.3g}" for tick in ticks]}


def path(
    observed: Float[np.ndarray, "n 2"], hidden: Float[np.ndarray, "m 2"], predicted: Float[np.ndarray, "m 2"]
) -> "Figure":
    """A curve in the plane: the points that were seen, the true points that were not, and those predicted."""
    traces = [
        _scatter("observed", observed.T, "markers", OBSERVED),
        _scatter("hidden from the model", hidden.T, "markers", HIDDEN, symbol="circle-open"),
        _scatter("RoMAE", predicted.T, "markers", symbol="x"),
    ]
    return _figure(traces, height=460, xaxis={"constrain": "domain"}, yaxis=_SQUARE)


def plain(name: Any) -> str:
    """A name as it is read: plotly would take <b> for a command."""
    return html.escape(str(name), quote=False)


def _figure(traces: Sequence[Any], **layout: Any) -> "Figure":
    import plotly.graph_objects as go

    return go.Figure(traces, {"template": _TEMPLATE, **layout})


def _scatter(
    name: str,
    points: Any,
    mode: str,
    colour: str = PREDICTED,
    *,
    width: float = 2,
    symbol: str = "circle",
    text: Sequence[Any] | None = None,
    **more: Any,
) -> "Scatter":
    """A trace through points (x, y), as lines or markers."""
    import plotly.graph_objects as go

    look: dict[str, Any] = {"line": {"color": colour, "width": width}}
    if "markers" in mode:
        look["marker"] = {"color": colour, "size": 7, "symbol": symbol}
    if text is not None:
        look["text"] = [plain(label) for label in text]
    return go.Scatter(name=plain(name), x=points[0], y=points[1], mode=mode, **look | more)


def _error_bars(errors: Float[np.ndarray, "n"] | None) -> dict[str, Any] | None:
    """Bars as long as errors that are known; of others none are seen."""
    if errors is None:
        return None
    return {"type": "data", "array": np.nan_to_num(errors), "thickness": 1, "width": 0}


def _band(band: Band, colour: str = PREDICTED) -> "Scatter":
    """The area between the ends of an interval."""
    around = (
        np.concatenate([band.times, band.times[::-1]]),
        np.concatenate([band.upper, band.lower[::-1]]),
    )
    look: dict[str, Any] = {"fill": "toself", "opacity": BAND_OPACITY, "hoverinfo": "skip"}
    return _scatter(band.name, around, "lines", colour, width=0, **look)


def _name_once(traces: "Sequence[Scatter]") -> None:
    """Traces of one name have one entry in the legend, which shows and hides them all."""
    names = [trace.name for trace in traces]
    for number, trace in enumerate(traces):
        trace.update(legendgroup=trace.name, showlegend=trace.name not in names[:number])


def _titled(title: str) -> dict[str, Any]:
    """An axis with its title."""
    return {"title": {"text": plain(title)}}


def _logarithmic(title: str, numbers: Any) -> dict[str, Any]:
    """An axis with its title and, at its ticks, whole numbers instead of the digits 2 and 5 alone.

    Within a decade ticks are evenly spaced; beyond, they are 1, 2 and 5 times powers of ten, where plotly would have
    all digits, of which the upper ones lie on top of each other; from three decades on they are powers of ten.
    """
    positive = np.asarray(numbers, dtype=np.float64)
    positive = positive[np.isfinite(positive) & (positive > 0)]
    ratio = positive.max() / positive.min() if positive.size else 1.0
    n_ticks = 6 if ratio <= 7 else 3 if ratio <= 20 else 4  # what plotly makes the above of
    return _titled(title) | {"type": "log", "tickformat": "~g", "nticks": n_ticks}


def _values_axis(title: str, inverted: bool) -> dict[str, Any]:
    """An axis of values, with the small ones at the top where it is inverted."""
    return _titled(title) | ({"autorange": "reversed"} if inverted else {})

"""Figures become charts with the same numbers; what a chart cannot hold stays a picture."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from numpy.testing import assert_allclose

from romae.pages import plots
from romae.pages.figure_charts import interactive
from romae.pages.page import Chart, Choice, Picture
from romae.pages.plots import Frame, Line, Panel, Path2D

X = np.array([1.0, 2.0, 3.0])
PAIR = (X, X**2)
PANELS = [Panel("left", PAIR, (X + 1, X), (X, -X), (X, 2 * X)), Panel("right", PAIR, PAIR, PAIR, PAIR)]


def figure_of(draw) -> Figure:
    figure = Figure()
    draw(figure.subplots())
    return figure


def test_panels_are_chosen_by_their_titles_and_keep_their_points():
    shown = interactive("Series", plots.interpolation(PANELS))
    assert isinstance(shown, Choice) and list(shown.charts) == ["left", "right"]
    traces = {trace["name"]: trace for trace in shown.charts["left"].traces}
    assert traces["observed"]["x"] == [1, 2, 3] and traces["observed"]["y"] == [1, 4, 9]
    assert traces["RoMAE"]["mode"] == "lines" and traces["observed"]["mode"] == "markers"
    assert traces["hidden from the model"]["marker"]["symbol"] == "circle-open"
    assert shown.charts["left"].layout["xaxis"]["title"]["text"] == "time"  # the figure shows it once, below


def test_panels_of_one_title_are_numbered():
    shown = interactive("Series", plots.interpolation([PANELS[0]] * 2))
    assert list(shown.charts) == ["1 left", "2 left"]


def test_a_band_is_mean_plus_and_minus_deviation():
    runs = np.array([[1.0, 2.0, 4.0], [3.0, 4.0, 8.0]])
    chart = interactive("Error", plots.bands({"": [Line("RoMAE", X, runs)]}, x="time", y="MSE", log=True))
    assert isinstance(chart, Chart) and chart.layout["yaxis"]["type"] == "log"
    band, line = chart.traces
    assert_allclose(line["y"], runs.mean(axis=0))
    assert band["fill"] == "toself" and band["legendgroup"] == line["legendgroup"]
    corners = set(zip(band["x"], band["y"], strict=True))
    wanted = runs.mean(axis=0) + runs.std(axis=0, ddof=1) * [[1], [-1]]
    assert {(x, float(f"{y:.10g}")) for row in wanted for x, y in zip(X, row, strict=True)} <= corners


def test_a_band_that_falls_below_zero_stays_on_a_logarithmic_axis():
    runs = np.array([[1.0, 2.0, 4.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    band = interactive("Error", plots.bands({"": [Line("RoMAE", X, runs)]}, x="x", y="y", log=True)).traces[0]
    assert min(band["y"]) > 0


def test_a_map_keeps_its_numbers_and_blanks():
    table = np.array([[np.nan, 0.01], [1.0, 100.0]])
    chart = interactive("Errors", plots.heat(table, x="higher", y="lower", title="MSE"))
    (trace,) = chart.traces
    assert trace["customdata"] == [[None, 0.01], [1.0, 100.0]] and trace["z"] == [[None, -2.0], [0.0, 2.0]]
    assert (trace["x"], trace["y"]) == ([0, 1], [0, 1])
    assert trace["colorbar"]["ticktext"] == ["0.01", "0.1", "1", "10", "1e+02"] and chart.caption == "Errors: MSE"


def test_a_map_with_its_first_row_on_top_stays_so():
    chart = interactive("Map", figure_of(lambda axes: axes.imshow(np.arange(6.0).reshape(2, 3))))
    assert chart.traces[0]["y"] == [0, 1] and chart.layout["yaxis"]["autorange"] == "reversed"


def test_names_stand_where_the_figure_has_them():
    def draw(axes):
        axes.plot([1, 2, 3], [0, 1, 2], "o")
        axes.set_yticks([0, 1, 2], ["pH", "<b>", "HR"])

    layout = interactive("Errors", figure_of(draw)).layout
    assert layout["yaxis"]["tickvals"] == [0, 1, 2] and layout["yaxis"]["ticktext"] == ["pH", "&lt;b&gt;", "HR"]
    assert "ticktext" not in layout["xaxis"]


def test_a_high_figure_becomes_a_high_chart():
    heights = [interactive("", Figure(figsize=(6, inches)).subplots().figure) for inches in (3, 9, 90)]
    assert [one.layout["height"] for one in heights] == [380, 810, 1200]


def test_curves_in_the_plane_keep_their_aspect():
    curve = Path2D("spiral", np.zeros((2, 2)), np.ones((1, 2)), np.ones((1, 2)))
    chart = interactive("Spirals", plots.paths([curve]))
    assert chart.layout["yaxis"]["scaleanchor"] == "x" and len(chart.traces) == 3


@pytest.mark.parametrize(
    "figure",
    [
        plots.frames([Frame("one", np.zeros((3, 3)), np.ones(2), np.ones(2))]),
        figure_of(lambda axes: axes.bar([1, 2], [3, 4])),
        figure_of(lambda axes: axes.imshow(np.zeros((2, 2, 3)))),
        figure_of(lambda axes: axes.axhline(1.0)),
        figure_of(lambda axes: axes.text(0, 0, "here")),
        figure_of(lambda axes: axes.scatter([1, 2], [3, 4])),
        Figure(),
    ],
    ids=["frames", "bars", "colours", "line across", "words", "scatter", "nothing"],
)
def test_what_a_chart_cannot_hold_stays_a_picture(figure):
    assert interactive("As it is", figure) == Picture(caption="As it is", figure=figure)


def test_one_run_has_no_band():
    band, _ = interactive("Error", plots.bands({"": [Line("RoMAE", X, X[None])]}, x="time", y="MSE")).traces
    assert set(band["y"]) == {1.0, 2.0, 3.0}

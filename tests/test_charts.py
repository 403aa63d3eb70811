"""Charts hold the numbers that they are told, and bands, maps and names are where the numbers say."""

import re
from importlib.resources import files
from itertools import pairwise

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from romae.pages import charts
from romae.pages.charts import Line, Marked
from romae.pages.plots import COLOURS, HIDDEN, Band, Panel, interpolation

X = np.array([1.0, 2.0, 3.0])


def test_a_reconstruction_has_a_panel_for_each_channel_and_one_legend():
    panels = [Panel("left", (X, X), (X + 1, X)), Panel("right", (X, -X), (X, X), (X, X), (X, 2 * X), (X, X + 5))]
    figure = charts.reconstruction(panels, x="time")
    names = [trace.name for trace in figure.data if trace.showlegend]
    assert sorted(names) == sorted({trace.name for trace in figure.data})
    (observed,) = (trace for trace in figure.data if trace.name == "observed" and trace.yaxis == "y2")
    assert_array_equal(observed.y, -X)
    titles = [figure.layout[axis].title.text for axis in ("xaxis", "yaxis", "yaxis2")]
    assert titles == ["time", "left", "right"]


def test_bands_of_curves_lie_between_their_ends_below_the_curve_and_have_one_name_each():
    bands = (Band(0.9, X, X - 2, X + 2), Band(0.5, X, X - 1, X + 1))
    shown = [Panel(name, (X, X), (X, X), curve=(X, X), bands=bands) for name in ("left", "right")]
    figure = charts.reconstruction(shown, x="time")
    wide, narrow = figure.data[:2]
    assert list(wide.y) == [*(X + 2), *(X - 2)[::-1]] and list(narrow.y) == [*(X + 1), *(X - 1)[::-1]]
    assert [trace.name for trace in figure.data if trace.showlegend][:2] == ["RoMAE, 90 %", "RoMAE, 50 %"]
    left, right = interpolation(shown).axes
    assert len(left.collections) == len(right.collections) == 2
    legend = interpolation(shown).legends[0]
    assert {"RoMAE, 90 %", "RoMAE, 50 %", "RoMAE"} <= {text.get_text() for text in legend.get_texts()}
    ends = left.collections[0].get_paths()[0].vertices[:, 1]
    assert (ends.min(), ends.max()) == (-1, 5)


def test_a_band_is_mean_plus_and_minus_deviation():
    runs = np.array([[1.0, 2.0, 4.0], [3.0, 4.0, 8.0]])
    band, line = charts.bands([Line("RoMAE", X, runs)], x="time", y="MSE").data
    mean, spread = runs.mean(axis=0), runs.std(axis=0, ddof=1)
    assert_allclose(line.y, mean)
    assert_allclose(band.y, [*(mean + spread), *(mean - spread)[::-1]])
    assert_allclose(band.x, [*X, *X[::-1]])
    assert band.legendgroup == line.legendgroup


def test_one_run_has_no_spread_and_what_is_not_known_is_left_out():
    band, line = charts.bands([Line("RoMAE", X, np.array([[1.0, np.nan, 3.0]]))], x="time", y="MSE").data
    assert list(line.x) == [1, 3] and set(band.y) == {1.0, 3.0}


def test_a_band_that_falls_below_zero_stays_on_a_logarithmic_axis():
    runs = np.array([[1.0, 2.0, 4.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    figure = charts.bands([Line("RoMAE", X, runs)], x="x", y="y", log=True)
    assert figure.layout.yaxis.type == "log" and min(figure.data[0].y) > 0


def test_losses_are_on_a_logarithmic_axis_where_all_are_positive():
    records = [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 0.5}]
    assert charts.loss_curves({"": records}).layout.yaxis.type == "log"
    assert charts.loss_curves({"": [*records, {"step": 3, "loss": -1.0}]}).layout.yaxis.type is None


def test_ticks_of_a_logarithmic_axis_are_whole_numbers():
    for largest in (2.0, 15.0, 1000.0):
        axis = charts.bands([Line("RoMAE", X, np.array([[1.0, 1.5, largest]]))], x="x", y="y", log=True).layout.yaxis
        assert axis.tickformat == "~g" and axis.nticks <= 6
    (trace,) = charts.heat_map(np.array([[0.01, 0.05], [1.0, np.nan]]), x="x", y="y", title="MSE").data
    assert trace.colorbar.ticktext == ("0.01", "0.02", "0.05", "0.1", "0.2", "0.5", "1")
    assert_allclose(10 ** np.array(trace.colorbar.tickvals), [float(text) for text in trace.colorbar.ticktext])


def test_lines_differ_in_more_than_their_colours():
    records = [{"step": 1, "loss": 2.0, "validation": 3.0}, {"step": 2, "loss": 0.5, "validation": 1.0}]
    curves = {"before": ([0.5, 0.9], [0.4, 0.7]), "calibrated": ([0.5, 0.9], [0.5, 0.9])}
    bars = {"before": [0.5, 0.5], "calibrated": [0.4, 0.6]}
    drawn = (charts.loss_curves({"": records}), charts.calibration(curves, x="p", y="q"), charts.pit_histogram(bars))
    for figure in drawn:
        first, second = figure.data[-2:]
        assert first.line.color != second.line.color and first.line.dash != second.line.dash
    numbers = np.array([-1.0, 0.5, 2.0])
    signed = charts.marked([Marked("g", X, X, numbers)], x="day", number="contribution", signed=True)
    assert list(signed.data[-1].marker.symbol) == ["triangle-down", "triangle-up", "triangle-up"]


def test_every_colour_of_charts_has_a_counterpart_on_a_dark_screen():
    there = (files("romae.pages") / "page.js").read_text()
    for colour in {*COLOURS, HIDDEN, "#fff", *re.findall(r"#[0-9a-f]{6}", str(charts._TEMPLATE))}:
        assert f'"{colour}": "#' in there, colour


def test_a_heat_map_keeps_its_numbers_and_blanks():
    table = np.array([[np.nan, 0.01], [1.0, 100.0]])
    (trace,) = charts.heat_map(table, x="higher", y="lower", title="MSE").data
    assert_array_equal(trace.customdata, table)
    assert_allclose(trace.z, [[np.nan, -2], [0, 2]])


def test_names_stand_at_their_numbers_the_largest_on_top():
    figure = charts.paired(["pH", "<b>", "HR"], {"RoMAE": np.array([3.0, 1, 2]), "linear": X}, x="MSE")
    ours, other = figure.data
    assert list(ours.y) == ["&lt;b&gt;", "HR", "pH"] and list(ours.x) == [1, 2, 3] and list(other.x) == [2, 3, 1]


def test_a_confusion_matrix_counts_and_colours_by_share_of_a_row():
    (trace,) = charts.confusion(np.array([[3, 1], [0, 0]]), ["a", "b"]).data
    assert trace.text == ([3, 1], [0, 0])
    assert_allclose(trace.z, [[0.75, 0.25], [0, 0]])


def test_groups_of_embeddings_differ_in_colours_and_in_symbols():
    points = np.arange(40.0).reshape(20, 2)
    figure = charts.embedding(points, range(20), np.array([f"class {i:02d}" for i in range(20)]))
    looks = {(trace.marker.color, trace.marker.symbol) for trace in figure.data}
    assert len(looks) == len(figure.data) == 20
    markers = [trace.marker for trace in figure.data]
    assert all(a.color != b.color and a.symbol != b.symbol for a, b in pairwise(markers))
    assert_array_equal([trace.x[0] for trace in figure.data], points[:, 0])


def test_a_curve_in_the_plane_keeps_its_aspect():
    figure = charts.path(np.zeros((2, 2)), np.ones((1, 2)), np.ones((1, 2)))
    assert figure.layout.yaxis.scaleanchor == "x" and len(figure.data) == 3


def test_the_larger_a_number_the_larger_its_point_and_signs_have_colours_of_their_own():
    numbers = np.array([-2.0, np.nan, 1.0])
    figure = charts.marked([Marked("<g>", X, X + 1, numbers), Marked("r", X[::-1], X, X)], x="day", number="score")
    first, second = (trace for trace in figure.data if trace.name == "score")
    assert_array_equal(first.y, X + 1)
    assert_allclose(first.marker.color, [-2, 0, 1])
    assert_allclose(first.marker.size, [5 + 11 * 2 / 3, 5, 5 + 11 / 3])
    assert_array_equal(second.x, X)  # along time, whatever the order of the measurements
    assert_array_equal(second.y, X[::-1])
    assert (first.yaxis, second.yaxis) == ("y", "y2") and figure.layout.yaxis.title.text == "&lt;g&gt;"
    assert (first.marker.cmin, first.marker.cmax) == (0, 3)
    signed = charts.marked([Marked("g", X, X, numbers)], x="day", number="contribution", signed=True)
    assert (signed.data[-1].marker.cmin, signed.data[-1].marker.cmax) == (-2, 2)


def test_a_band_lies_between_its_ends_where_both_are_known():
    band = (X - 1, np.array([2.0, np.nan, 4.0]))
    figure = charts.marked([Marked("g", X, X, X, band)], x="day", number="score", band="90% interval")
    (drawn,) = (trace for trace in figure.data if trace.name == "90% interval")
    assert list(drawn.x) == [1, 3, 3, 1] and list(drawn.y) == [2, 4, 2, 0] and drawn.fill == "toself"


def test_a_histogram_of_pit_has_a_mean_of_1_and_calibration_its_line():
    figure = charts.pit_histogram({"before": [0.5, 0.5, 0.0, 0.0]})
    line, steps = figure.data
    assert list(line.y) == [1, 1] and list(steps.x) == [0, 0.25, 0.25, 0.5, 0.5, 0.75, 0.75, 1]
    assert list(steps.y) == [2, 2, 2, 2, 0, 0, 0, 0]
    figure = charts.calibration({"before": ([0.5, 0.9], [0.4, 0.7]), "after": ([0.5, 0.9], [0.5, 0.9])}, x="p", y="q")
    assert list(figure.data[0].x) == list(figure.data[0].y) == [0, 1]
    assert [list(trace.y) for trace in figure.data[1:]] == [[0.4, 0.7], [0.5, 0.9]]
    assert figure.data[1].line.color != figure.data[2].line.color

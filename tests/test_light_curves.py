"""Light curves: every measurement is drawn with its band, error and phase, and curves are the answers of a model."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import romae
from messages import refused
from romae.data.phase import Phase
from romae.pages import run_page
from romae.pages.diagnostics import measured_errors
from romae.pages.light_curves import Cycles, light_curve
from test_page import figures_of

PERIOD = 0.57


def table(n_stars: int = 8, n: int = 40) -> pd.DataFrame:
    random, rows = np.random.default_rng(0), []
    for i in range(n_stars):
        day, band = np.sort(random.uniform(0, 30, n)), np.array(["g", "r"])[np.arange(n) % 2]
        mag = 15 + 0.4 * (band == "r") + 0.5 * np.sin(2 * np.pi * day / PERIOD)
        columns = {"star": f"V{i}", "day": day, "band": band, "mag": mag, "mag_err": random.uniform(0.01, 0.05, n)}
        rows.append(pd.DataFrame(columns | {"kind": ["a", "b"][i % 2]}))
    return pd.concat(rows, ignore_index=True)


COLUMNS = {"id": "star", "time": "day", "channel": "band", "values": "mag", "error": "mag_err"}
STARS = romae.from_table(table(), **COLUMNS)
SIZE = romae.Size(width=48, heads=2, depth=1)
CONFIG = romae.TrainConfig(epochs=1, batch_size=8, device="cpu")


@pytest.fixture(scope="module")
def task() -> romae.MaskedReconstruction:
    samples = romae.add_phase(STARS)
    scaling = romae.fit_scaling(samples, origin="first")
    model = romae.ModelConfig.for_samples(samples, scaling=scaling, encoder=SIZE, decoder=SIZE)
    made = romae.MaskedReconstruction(model, likelihood="normal")
    romae.train(made, samples, CONFIG, scaling=scaling, quiet=True)
    return made


def test_every_measurement_is_drawn_with_its_error_and_its_band():
    figure, picture = light_curve(STARS[0]), light_curve(STARS[0], returns="picture")
    values, band = STARS[0].values.double().numpy(), STARS[0].positions[:, 1].numpy()
    for i, trace in enumerate(figure.data):
        assert trace.name == "gr"[i] and trace.mode == "markers" and trace.showlegend
        assert_allclose(trace.x, STARS[0].positions[band == i, 0])
        assert_allclose(np.stack([trace.y, trace.error_y.array], 1), values[band == i])
    looks = [(trace.marker.color, trace.marker.symbol) for trace in figure.data]
    assert looks[0][0] != looks[1][0] and looks[0][1] != looks[1][1]
    assert (figure.layout.xaxis.title.text, figure.layout.yaxis.title.text) == ("day", "mag")
    assert [text.get_text() for text in picture.legends[0].get_texts()] == ["g", "r"]
    assert len(picture.axes[0].containers) == 4  # observed and hidden of each


def test_magnitudes_alone_stand_upside_down():
    assert light_curve(STARS[0]).layout.yaxis.autorange == "reversed"
    assert light_curve(STARS[0], returns="picture").axes[0].yaxis_inverted()
    assert light_curve(STARS[0], magnitudes=False).layout.yaxis.autorange is None
    for name, is_magnitude in (("flux", False), ("image", False), ("psfMag", True), ("mag_r", True), ("Vmag", False)):
        named = STARS[0].with_schema(replace(STARS.schema, values=(name,), errors=("e",)))
        assert (light_curve(named).layout.yaxis.autorange == "reversed") is is_magnitude, name
        assert not light_curve(named, magnitudes=False, returns="picture").axes[0].yaxis_inverted()


def test_a_band_keeps_its_colour_in_samples_without_the_others():
    red = table(1).query("band == 'r'")
    only_red = romae.from_table_like(red, STARS.schema)[0]
    (alone,) = light_curve(only_red).data
    assert alone.marker.color == light_curve(STARS[0]).data[1].marker.color


def test_errors_are_found_by_schema_or_by_name_and_unknown_ones_have_no_bar():
    sample = STARS[0]
    values = sample.values.clone()
    values[3, 1] = 0  # not known
    errors = measured_errors(replace(sample, values=values), sample.schema, 0)
    assert errors is not None and np.isnan(errors[3]) and np.isfinite(errors[:3]).all()
    by_name = romae.from_table(table(), **COLUMNS | {"values": ["mag", "mag_err"], "error": None})[0]
    assert_allclose(measured_errors(by_name, by_name.schema, 0), sample.values[:, 1])
    assert_allclose(light_curve(by_name).data[0].error_y.array, light_curve(sample).data[0].error_y.array)
    plain = romae.from_arrays(np.ones((1, 3, 2)), channels=["flux", "flux_err"])[0]
    assert [trace.name for trace in light_curve(plain).data] == ["flux"]  # errors are no band
    assert measured_errors(plain, plain.schema, 1) is None


@pytest.mark.parametrize("period", ["auto", PERIOD])
def test_folded_measurements_lie_in_two_cycles_where_their_times_say(period):
    figure = light_curve(STARS[0], period=period)
    times = STARS[0].positions[STARS[0].positions[:, 1] == 0, 0].numpy()
    found = romae.find_periods(STARS[:1])["period"][0] if period == "auto" else PERIOD
    phase = np.mod((times - STARS[0].positions[:, 0].min().item()) / found, 1)
    assert_allclose(figure.data[0].x, [*phase, *(phase + 1)])
    assert len(figure.data[0].y) == len(figure.data[0].error_y.array) == 2 * len(times)
    assert "phase" in figure.layout.xaxis.title.text


def test_the_period_of_the_phase_axis_is_taken_and_hidden_tokens_have_no_part():
    given = romae.add_phase(STARS[:1], [1.3])[0]
    cycles = Cycles.of(given)
    assert cycles is not None and cycles.period == pytest.approx(1.3)
    assert np.ptp(cycles.grid) == pytest.approx(2 * 1.3)
    assert cycles.first == given.positions[:, 0].min()
    hidden = romae.hide(STARS[:1], romae.UniformTokens(ratio=0.3), seed=0)[0]
    values = hidden.values.clone()
    values[hidden.hidden, 0] = 99
    trained = replace(STARS.schema, phase=Phase())
    assert Cycles.of(hidden, trained)[0] == Cycles.of(replace(hidden, values=values), trained)[0]
    assert Cycles.of(STARS[0], STARS.schema) is None


def test_curves_and_bands_are_those_of_the_model(task):
    figure = light_curve(STARS[0], task=task)
    wide, narrow, curve, points = figure.data[:4]
    assert {trace.name for trace in figure.data[:4]} == {"g"} and points.mode == "markers"
    queries = np.column_stack([curve.x, np.zeros(len(curve.x))])
    told = romae.interpolate(task, STARS[:1], [queries], returns="distribution")[0][:, 0]
    assert_allclose(curve.y, told.mean(), rtol=1e-5)
    for band, level in ((wide, 0.9), (narrow, 0.5)):
        lower, upper = told.interval(level)
        assert_allclose(band.y, [*upper, *lower[::-1]], rtol=1e-5)
    phased = light_curve(romae.add_phase(STARS[:1])[0], task=task)
    assert_allclose(phased.data[2].y, curve.y, rtol=1e-5)
    folded = light_curve(STARS[0], task=task, period=PERIOD).data[2]
    assert (folded.x[0], folded.x[-1]) == pytest.approx((0, 2))


def test_the_model_that_needs_no_training_draws_curves_and_hidden_points_are_open():
    sample = romae.hide(STARS[:1], romae.UniformTokens(ratio=0.3), seed=0)[0]
    figure = light_curve(romae.add_phase([sample])[0], task="romae/zero")
    assert [trace.mode for trace in figure.data] == ["lines", "lines", "lines", "markers", "markers"] * 2
    hidden, seen = figure.data[3:5]
    assert (hidden.marker.symbol, seen.marker.symbol) == ("circle-open", "circle")
    assert len(hidden.x) + len(seen.x) == 20 and not hidden.showlegend


@pytest.mark.parametrize(
    ("error", "ask", "parts"),
    [
        (TypeError, lambda: light_curve(STARS), ["one sample", "SampleSet"]),
        (ValueError, lambda: light_curve(STARS[0], returns="svg"), ["picture", "'svg'"]),
        (ValueError, lambda: light_curve(romae.Sample([[1.0]], [[0.0]])), ["names", "from_table"]),
        (ValueError, lambda: light_curve(STARS[0], period=0), ["above 0", "not 0"]),
        (ValueError, lambda: light_curve(STARS[0], period="long"), ["above 0", "'long'"]),
        (ValueError, lambda: light_curve(romae.from_arrays(np.ones((1, 3, 1)))[0], period="auto"), ["no significant"]),
        (TypeError, lambda: light_curve(STARS[0], task="romae/light-curves"), ["MaskedReconstruction"]),
    ],
)
def test_bad_input_is_one_sentence(error, ask, parts, without_shape_checks):
    with refused(error, *parts):
        ask()


@pytest.mark.parametrize("objective", ["reconstruction", "classification"])
def test_the_page_of_a_run_has_error_bars_and_the_phase_beside_the_time(task, tmp_path, objective):
    samples = STARS
    made = task
    if objective == "classification":
        samples = romae.from_table(table(), **COLUMNS, label="kind")
        made = romae.Classification(task.encoder.rebuilt(), n_classes=2)
    romae.train(made, romae.add_phase(samples), CONFIG, scaling=task.scaling, out=tmp_path / "run", quiet=True)
    text = run_page.write(tmp_path / "run", data=samples).read_text()
    charted = [chart for group in figures_of(text) for chart in group if "phase" in str(chart["layout"].get("xaxis2"))]
    n = 6 if objective == "classification" else 8 + 6
    assert len(charted) == n
    for chart in charted:
        assert chart["layout"]["grid"]["columns"] == 2
        beside = [trace for trace in chart["data"] if trace["xaxis"] == "x2" and trace["mode"] == "markers"]
        assert all(0 <= min(trace["x"]) and max(trace["x"]) <= 2 for trace in beside)
        measured = [trace for trace in chart["data"] if trace.get("error_y")]
        assert {trace["xaxis"] for trace in measured} == {"x", "x2"}
        assert all(len(trace["error_y"]["array"]) == len(trace["x"]) for trace in measured)
    assert "with each measurement in two cycles" in text

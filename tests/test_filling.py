"""Tables filled and forecast without a model of their own: what comes back, what is new, and what is said."""

import json

import numpy as np
import pandas as pd
import pytest

from messages import assert_says, refused
from romae.inference import zero
from romae.inference.filling import FillConfig, fill_table
from romae.training.tables import Columns
from test_cli import romae
from test_zero import task  # noqa: F401

STATION = Columns(id="station")


pytestmark = pytest.mark.parametrize("task", ["with processes"], indirect=True)  # as it comes with the library


@pytest.fixture(autouse=True)
def without_training(task, monkeypatch):  # noqa: F811
    """The model that needs no training has random weights here."""
    monkeypatch.setattr(zero, "zero_model", lambda: task)


def weather() -> pd.DataFrame:
    """Two stations in no order, of which one never measures the wind."""
    random, n = np.random.default_rng(0), 40
    table = pd.DataFrame(
        {
            "time": pd.date_range("2024-03-01", periods=n, freq="h").repeat(2),
            "station": ["b", "a"] * n,
            "temp": 10 + np.sin(np.arange(2 * n) / 8),
            "wind": 0.1 * np.cos(np.arange(2 * n) / 8),
            "note": "x",
        }
    )
    table.loc[random.random(2 * n) < 0.2, "temp"] = np.nan
    table.loc[random.random(2 * n) < 0.3, "wind"] = np.nan
    table.loc[table.station == "a", "wind"] = np.nan
    return table.sample(frac=1, random_state=1).reset_index(drop=True)


def filled(table=None, columns=STATION, **settings):
    options = {name: settings.pop(name) for name in ("at", "every", "verbatim") if name in settings}
    data = weather() if table is None else table
    return fill_table(FillConfig(columns=columns, device="cpu", **settings), data, **options)


# What comes back


def test_rows_and_what_was_measured_come_back_unchanged_and_the_empty_cells_are_filled():
    before, answered = weather(), filled()
    after = answered.table
    assert list(after.columns[: before.shape[1]]) == list(before.columns)
    pd.testing.assert_frame_equal(after[["time", "station", "note"]], before[["time", "station", "note"]])
    for name in ("temp", "wind"):
        was_empty = before[name].isna()
        can_be_told = was_empty & ((before.station == "b") | (name == "temp"))
        pd.testing.assert_series_equal(after[name][~was_empty], before[name][~was_empty])
        assert after[f"{name}_filled"].tolist() == can_be_told.tolist()
        assert after[name].isna().tolist() == (was_empty & ~can_be_told).tolist()
        told = after[can_be_told]
        assert ((told[f"{name}_lower"] <= told[name]) & (told[name] <= told[f"{name}_upper"])).all()
        assert after[f"{name}_lower"].notna().tolist() == can_be_told.tolist()
    assert answered.n_filled == after.temp_filled.sum() + after.wind_filled.sum()


def test_of_a_channel_that_a_series_never_measures_cells_stay_empty_and_that_is_said_once():
    (note,) = filled().notes
    assert_says(note, "40 cells stay empty", "in wind", "nothing was measured")


def test_a_long_table_is_filled_as_a_wide_one():
    wide = weather().drop(columns="note")
    long = wide.melt(["time", "station"], var_name="what").sample(frac=1, random_state=2)
    columns = Columns(id="station", channel="what")
    after = filled(long, columns).table.drop(columns=["value_lower", "value_upper", "value_filled"])
    key = ["station", "time"]
    expected = filled(wide).table[[*key, "temp", "wind"]].sort_values(key).reset_index(drop=True)
    again = after.pivot(index=key, columns="what", values="value").reset_index()[expected.columns.tolist()]
    pd.testing.assert_frame_equal(again, expected, check_names=False, check_dtype=False, rtol=1e-4)


def test_the_order_of_rows_changes_no_answer():
    table = weather()
    turned = filled(table[::-1].reset_index(drop=True)).table[::-1].reset_index(drop=True)
    pd.testing.assert_frame_equal(turned, filled(table).table, rtol=1e-5)


def test_a_wider_interval_holds_a_narrower_one():
    ends = [filled(interval=level).table[["temp_lower", "temp_upper"]].dropna() for level in (0.5, 0.9, 0.99)]
    for narrow, wide in zip(ends[:-1], ends[1:], strict=True):
        assert (wide.temp_lower < narrow.temp_lower).all() and (wide.temp_upper > narrow.temp_upper).all()


def test_without_a_column_of_ids_the_table_is_one_series():
    table = weather().query("station == 'b'").drop(columns="station")
    with_ids = filled(table.assign(id=7), Columns()).table.drop(columns="id")
    pd.testing.assert_frame_equal(filled(table, Columns()).table, with_ids)


def test_only_the_columns_that_are_named_are_filled():
    after = filled(columns=Columns(id="station", values=("temp",))).table
    assert "temp_filled" in after and "wind_filled" not in after and after.temp.notna().all()
    pd.testing.assert_series_equal(after.wind, weather().wind)


def test_rows_that_do_not_say_when_are_left_as_they_are():
    table = weather()
    table.loc[table.temp.isna().idxmax(), "time"] = pd.NaT
    answered = filled(table, Columns(id="station", values=("temp",)))
    assert answered.table.temp.isna().sum() == 1
    assert_says(answered.notes[0], "1 cell stays empty", "time")


def test_a_grid_has_the_form_of_the_table():
    wide = filled(at="2024-03-01:2024-03-02:5", channels=("temp",)).table
    assert list(wide.columns) == ["station", "time", "temp", "temp_lower", "temp_upper"] and len(wide) == 10
    long = weather().drop(columns="note").melt(["time", "station"], var_name="what")
    hourly = filled(long, Columns(id="station", channel="what"), every="6h").table
    assert list(hourly.columns) == ["station", "time", "what", "value", "value_lower", "value_upper"]
    assert (hourly.time.dt.hour % 6 == 0).all() and hourly.groupby(["station", "what"]).size().tolist() == [7, 7, 7]
    same = filled(every="6h").table
    np.testing.assert_allclose(hourly.query("what == 'wind'").value, same.wind.dropna(), rtol=1e-4)


def test_a_model_of_ones_own_fills_its_table(tmp_path):
    import romae as library

    table = weather().query("station == 'b'")
    many = pd.concat([table.assign(station=i) for i in range(8)])
    many = many.dropna(subset=["temp", "wind"], how="all")
    samples = library.from_table(many, id="station", time="time", values=["temp", "wind"], tokens="scalars")
    size = library.Size(width=8, heads=2, depth=1)
    scaling = library.fit_scaling(samples, origin="first")
    config = library.ModelConfig.for_samples(samples, scaling=scaling, encoder=size, decoder=size)
    own = library.MaskedReconstruction(config)
    library.train(own, samples, library.TrainConfig(epochs=1, device="cpu"), scaling=scaling, quiet=True)
    answered = fill_table(FillConfig(device="cpu"), table.assign(station=3), own)
    assert answered.table[["temp", "wind"]].notna().all(axis=None) and answered.is_trained
    assert "temp_lower" not in answered.table  # it has learned no distribution
    assert answered.table.temp_filled.tolist() == table.temp.isna().tolist()


# Mistakes


def test_mistakes_are_told_before_anything_is_computed():
    empty = weather().assign(temp=np.nan, wind=np.nan)
    for table, columns, parts in (
        (None, Columns(id="nowhere"), ("'nowhere'", "not there")),
        (None, Columns(id="station", time="day"), ("'day'", "--time")),
        (None, Columns(id="station", values=("rain",)), ("'rain'", "not there")),
        (empty, Columns(id="station", values=("temp",)), ("temp", "--value")),
        (empty, STATION, ("--value", "numbers")),
        (weather().fillna(0.0), STATION, ("nothing to fill", "--at")),
        (weather().assign(temp_filled=1.0), STATION, ("temp_filled", "rename")),
    ):
        with refused(ValueError, *parts):
            filled(table, columns)
    with refused(ValueError, "interval", "above 0"):
        filled(interval=1.5)
    with refused(ValueError, "--at", "--every"):
        filled(at="0:1:2", every="1h")
    with refused(ValueError, "--every", "above 0"):
        filled(every="-1h")
    with refused(ValueError, "no duration"):
        filled(every="soon")


# The command line


@pytest.fixture
def folder(tmp_path):
    weather().to_csv(tmp_path / "weather.csv", index=False)
    weather().to_parquet(tmp_path / "weather.parquet")
    return tmp_path


def test_a_csv_file_and_a_parquet_file_are_filled_alike_and_text_stays_as_it_was_written(folder):
    text = weather().assign(time=lambda x: x.time.dt.strftime("%Y-%m-%d %H:%M"), note="007", sign="=1+1")
    text["temp"] = text["temp"].map(lambda x: "" if np.isnan(x) else f"{x:.4f}0")
    text.to_csv(folder / "text.csv", index=False)
    for name, out in (("text.csv", "a.csv"), ("weather.parquet", "b.parquet"), ("weather.csv", "c.parquet")):
        done = romae("fill", folder / name, "--id=station", "--value=temp", "--out", folder / out)
        assert done.returncode == 0, done.stderr
    as_text = pd.read_csv(folder / "a.csv", dtype=str, keep_default_na=False)
    was_filled = as_text.temp_filled == "True"
    pd.testing.assert_frame_equal(as_text[["time", "note", "sign"]], text[["time", "note", "sign"]].astype(str))
    assert as_text.temp[~was_filled].tolist() == text.temp[~was_filled].tolist()
    tables = [pd.read_csv(folder / "a.csv"), *(pd.read_parquet(folder / name) for name in ("b.parquet", "c.parquet"))]
    for other in tables[1:]:
        for column in ("temp", "temp_lower", "temp_upper"):
            # Rounded to four digits, a curve without noise is one with some.
            np.testing.assert_allclose(tables[0][column], other[column], atol=0.01)
    assert tables[1].temp_filled.dtype == bool and tables[2].time.dtype.kind == "M"


def test_the_scores_are_printed_beside_lines_and_the_last_value(folder):
    done = romae("fill", folder / "weather.csv", "--id=station", "--out", folder / "out.csv")
    assert done.returncode == 0, done.stderr
    assert_says(done.stdout, "80 rows", "interval of 90%", "linear interpolation", "last value", "inside 90%", "best")
    assert done.stdout.count("stay empty") == 1 and "warning" not in done.stderr
    told = json.loads(
        romae("fill", folder / "weather.csv", "--id=station", "--out", folder / "two.csv", "--json").stdout
    )
    assert told["rows"] == 80 and told["answers"] > 10 and len(told["notes"]) == 1
    assert [one["method"] for one in told["score"]["methods"]] == ["RoMAE", "linear interpolation", "last value"]


def test_nothing_is_written_over_and_mistakes_end_with_2(folder):
    (folder / "mine.csv").write_text("mine")
    (folder / "mine.html").write_text("mine")
    data, out = folder / "weather.csv", folder / "out.csv"
    for arguments, parts in (
        ((data, "--id=station", "--out", folder / "mine.csv"), ("mine.csv", "--force")),
        ((data, "--id=station", "--out", out, "--page", folder / "mine.html"), ("mine.html", "--force")),
        ((data, "--id=station", "--out", data, "--force"), ("weather.csv", "table that is read")),
        ((data, "--id=nowhere", "--out", out), ("'nowhere'", "not there")),
        ((data, "--id=station", "--out", out, "--interval=2"), ("interval", "above 0")),
        ((data, "--id=station", "--out", out, "--channels=temp"), ("--channels", "--value")),
        ((folder / "no.csv", "--out", out), ("no.csv",)),
        ((data, "--id=station", "--out", folder / "out.txt"), ("out.txt", ".parquet")),
        ((data, "--id=station", "--out", out, "--page", folder / "page.txt"), ("page.txt", ".html")),
    ):
        done = romae("fill", *arguments)
        assert done.returncode == 2 and "Traceback" not in done.stderr, done.stdout
        assert_says(done.stderr, *parts)
    assert not out.exists() and (folder / "mine.csv").read_text() == "mine" == (folder / "mine.html").read_text()


def test_a_page_shows_curves_bands_points_and_scores(folder):
    pytest.importorskip("plotly")
    page = folder / "filled.html"
    arguments = ["fill", folder / "weather.csv", "--id=station", "--out", folder / "out.csv", "--page", page]
    assert romae(*arguments).returncode == 0
    text = page.read_text()
    assert_says(text, "RoMAE, 90 %", "RoMAE, 50 %", "observed", "linear interpolation", "stay empty", "2024-03-01")
    assert 'src="http' not in text and romae(*arguments, "--force").returncode == 0
    assert page.read_text() == text


# Forecasts


def test_a_forecast_needs_no_model(folder):
    pytest.importorskip("plotly")
    page = folder / "ahead.html"
    data, out = folder / "weather.csv", folder / "ahead.csv"
    done = romae("forecast", data, "--id=station", "--for", "6h", "--out", out, "--page", page)
    assert done.returncode == 0, done.stderr
    assert_says(done.stdout, "12 rows", "last value", "linear trend", "interval of 90%")
    ahead = pd.read_csv(out, parse_dates=["time"])
    assert list(ahead.columns[:5]) == ["station", "time", "temp", "temp_lower", "temp_upper"]
    assert ahead.time.min() > weather().time.max() and len(ahead) == 12
    assert (ahead.temp_lower < ahead.temp).all() and ahead[ahead.station == "a"].wind.isna().all()
    assert_says(page.read_text(), "Forecasts", "forecast", "RoMAE, 50 %")
    again = folder / "again.csv"
    options = ["--until", "+6h", "--quantiles", "0.1,0.9", "--channels", "temp", "--interval", "0.5"]
    assert romae("forecast", data, "--id=station", *options, "--out", again).returncode == 0
    narrow = pd.read_csv(again)
    np.testing.assert_allclose(narrow.temp, ahead.temp)
    assert (narrow["temp_q0.1"] < narrow.temp_lower).all() and "wind" not in narrow


def test_forecasts_of_a_long_table_are_long(folder):
    weather().drop(columns="note").melt(["time", "station"], var_name="what").to_csv(folder / "long.csv", index=False)
    arguments = ["--id=station", "--channel=what", "--until=2024-03-02 20:00", "--out", folder / "ahead.csv"]
    assert romae("forecast", folder / "long.csv", *arguments).returncode == 0
    ahead = pd.read_csv(folder / "ahead.csv")
    assert list(ahead.columns) == ["station", "time", "what", "value", "value_lower", "value_upper"]
    assert ahead.groupby(["station", "what"]).size().to_dict() == {("a", "temp"): 5, ("b", "temp"): 5, ("b", "wind"): 5}


def test_forecasts_say_how_far_once_and_what_is_for_models_alone(folder):
    data, out = folder / "weather.csv", folder / "out.csv"
    for options, parts in (
        ((), ("--until", "--for")),
        (("--until=+6h", "--for=6h"), ("--until", "--for", "one of them")),
        (("--for=6h", "--resume"), ("--resume", "--model")),
        (("--for=6h", "--on-error=skip"), ("--on-error", "--model")),
        (("--for=soon",), ("'soon'", "duration")),
    ):
        done = romae("forecast", data, "--id=station", *options, "--out", out)
        assert done.returncode == 2, done.stdout
        assert_says(done.stderr, *parts)
    assert not out.exists()

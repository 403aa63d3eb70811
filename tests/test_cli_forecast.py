"""Forecasts on the command line: from a table to a model, and to a table of what comes next."""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import romae
from messages import assert_says
from romae.cli import main as cli
from romae.inference.predictor import Predictor
from romae.inference.streaming import answer_file
from romae.inference.tables import ForecastConfig, forecast_table

SIZE = "{width=8,heads=2,depth=1}"
TINY = [f"--set=model.encoder={SIZE}", f"--set=model.decoder={SIZE}", "--set=train.epochs=2", "--set=train.device=cpu"]
COLUMNS = ["--id=station", "--time=time", "--channel=what", "--value=value"]


def weather(n: int = 24) -> pd.DataFrame:
    random, rows = np.random.default_rng(0), []
    for i in range(n):
        phase = random.uniform(0, 6)
        for hour in np.sort(random.choice(72, 40, replace=False)):
            time = pd.Timestamp("2024-03-01") + pd.Timedelta(hours=int(hour))
            rows += [(f"s{i}", time, "wind", np.sin(hour / 4 + phase)), (f"s{i}", time, "rain", random.normal())]
        for day in range(5):
            rows.append((f"s{i}", pd.Timestamp("2024-03-01") + pd.Timedelta(days=day), "holiday", float(day % 2)))
    return pd.DataFrame(rows, columns=["station", "time", "what", "value"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with a table and a model that was trained on it by the command line."""
    home = tmp_path_factory.mktemp("weather")
    weather().to_parquet(home / "weather.parquet")
    arguments = [home / "weather.parquet", "--out", home / "run", "--horizon=12h", "--known=holiday", *COLUMNS, *TINY]
    assert called("pretrain", *arguments, "--set=likelihood=normal", "--set=weights=channel") == 0
    return home


def called(*arguments) -> int:
    before, sys.argv = sys.argv, ["romae", *map(str, arguments)]
    try:
        with pytest.raises(SystemExit) as stopped:
            cli.main()
    finally:
        sys.argv = before
    return stopped.value.code if isinstance(stopped.value.code, int) else 0


def test_the_scores_of_a_forecaster_stand_beside_the_last_value_and_the_trend(folder):
    scores = json.loads((folder / "run" / "metrics.json").read_text())
    assert set(scores["baselines"]["r2"]) == {"last value", "linear trend"}
    assert set(scores["parts"]) == {"wind", "rain"} and scores["metrics"]["skill"] < 1
    task = romae.load(folder / "run" / "best")
    assert task.masking.known == ("holiday",) and task.masking.horizon == "12h" and task.weights == "channel"
    assert 0 < task.scaling.seen.horizon <= 12 * 3600


def test_a_table_of_what_comes_next(folder, tmp_path, capsys):
    out, table = tmp_path / "ahead.csv", folder / "weather.parquet"
    assert called("forecast", table, "--model", folder / "run", "--until=+6h", "--interval=0.8", "--out", out) == 0
    assert_says(capsys.readouterr().out, "rows of station")
    ahead = pd.read_csv(out, parse_dates=["time"])
    assert list(ahead.columns) == ["station", "time", "what", "value", "value_std", "value_lower", "value_upper"]
    assert set(ahead.what) == {"wind", "rain"} and (ahead.value_lower < ahead.value_upper).all()
    last = weather().query("what != 'holiday'").groupby("station").time.max()
    since = ahead.time - ahead.station.map(last)
    assert since.min() > pd.Timedelta(0) and since.max() <= pd.Timedelta(hours=6)
    task, samples = romae.load(folder / "run" / "best"), romae.from_table_like(weather(), schema_of(folder))
    first = romae.forecast(task, samples, until="+6h")[0]
    np.testing.assert_allclose(first.values.ravel(), ahead[ahead.station == "s0"].value, rtol=1e-5)


def schema_of(folder: Path) -> romae.Schema:
    return romae.load(folder / "run" / "best").schema


def test_parts_answer_as_the_whole_does_and_go_on(folder, tmp_path):
    weather().sort_values("station", kind="stable").to_csv(tmp_path / "weather.csv", index=False)
    predictor = Predictor(folder / "run", "forecast", until="+6h", config=ForecastConfig(step="2h", device="cpu"))
    whole = answer_file(predictor, tmp_path / "weather.csv", tmp_path / "whole.csv", quiet=True)
    parts = answer_file(predictor, tmp_path / "weather.csv", tmp_path / "parts.csv", rows_per_part=400, quiet=True)
    assert whole.n_rows == parts.n_rows == 24 * 3 * 2
    key = ["station", "time", "what"]
    a, b = (pd.read_csv(tmp_path / name).sort_values(key) for name in ("whole.csv", "parts.csv"))
    np.testing.assert_allclose(a.value, b.value, atol=1e-5)
    assert forecast_table(ForecastConfig(channels=("rain",)), weather(3), folder / "run", until="2024-03-04 06:00")[
        "what"
    ].unique().tolist() == ["rain"]


def test_bad_questions_are_told_in_one_sentence(folder, tmp_path, capsys):
    table, out = folder / "weather.parquet", tmp_path / "ahead.csv"
    for settings, parts in (
        (["--until=soon"], ("'soon'", "no date")),
        (["--until=+6h", "--channels=snow"], ("'snow'", "wind")),
        (["--until=+6h", "--interval=2"], ("interval", "above 0 and below 1")),
        (["--until=+6h", "--step=-1"], ("step", "above 0")),
    ):
        assert called("forecast", table, "--model", folder / "run", *settings, "--out", out) == 2
        assert_says(capsys.readouterr().err, *parts)
    assert called("pretrain", table, "--out", tmp_path / "run", "--masking=spans", "--horizon=3", *COLUMNS) == 2
    assert_says(capsys.readouterr().err, "--horizon", "spans")


def test_the_page_of_a_run_shows_forecasts_with_their_cut(folder, tmp_path):
    pytest.importorskip("plotly")
    from romae.pages import run_page

    page = run_page.write(folder / "run", data=folder / "weather.parquet", out=tmp_path / "page.html").read_text()
    assert_says(page, "Forecasts", "dotted line", "last value", "linear trend")
    assert '"dash":"dot"' in page.replace(" ", "")

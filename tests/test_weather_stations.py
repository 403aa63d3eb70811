"""The weather stations of the tutorial: which they are, what their table holds, and that its commands run."""

import re
import shlex
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import romae
from romae.checkpoints.native import bundled
from romae.cli import main as cli
from romae.experiments import weather_stations
from romae.experiments.datasets import ushcn
from romae.experiments.datasets.windows import divided

TUTORIAL = Path(__file__).resolve().parents[1] / "docs" / "tutorials" / "weather.md"


def table() -> pd.DataFrame:
    return pd.read_csv(bundled("weather") / weather_stations.FILE)


def test_the_table_is_small_and_says_where_it_is_from():
    assert table()["station"].nunique() == weather_stations.N_STATIONS
    assert (bundled("weather") / weather_stations.FILE).stat().st_size < 300_000
    about = (bundled("weather") / "README.md").read_text(encoding="utf-8")
    assert "public domain" in about and "standardised" in about and f"{len(table()):,} rows" in about


def test_the_command_writes_the_very_files_and_the_stations_are_of_the_training(real_data, tmp_path, monkeypatch):
    monkeypatch.setenv("ROMAE_DATA", str(real_data))
    weather_stations.main(["--out", str(tmp_path / "weather")])
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "weather" / weather_stations.FILE), table())
    written, bundle = (folder / "README.md" for folder in (tmp_path / "weather", bundled("weather")))
    assert written.read_text(encoding="utf-8") == bundle.read_text(encoding="utf-8")
    records = ushcn.load()
    parts, station = divided(len(records), ushcn.SPLIT), int(table()["station"][0])
    of = {name: {int(records.ids[i]) for i in part} for name, part in parts.items()}
    assert set(table()["station"]) <= of["train"] and not set(table()["station"]) & of["test"]
    i = records.ids.index(str(station))
    here, mine = slice(*records.offsets[i : i + 2].tolist()), table()[table()["station"] == station]
    np.testing.assert_allclose(mine["value"], records.values[here], atol=5.1e-4)
    assert mine["variable"].tolist() == [ushcn.VARIABLES[variable] for variable in records.variables[here]]


@pytest.mark.slow
def test_the_commands_of_the_tutorial_run_and_the_page_marks_where_forecasts_begin(tmp_path, monkeypatch):
    pytest.importorskip("plotly")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)  # the command line sets its own
    few = table()[lambda rows: rows["station"].isin(rows["station"].unique()[:10])]
    few.to_csv("stations.csv", index=False)
    text = TUTORIAL.read_text(encoding="utf-8")
    (block,) = re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    for line in block.replace("\\\n", "").splitlines():
        quick = ("--set", "train.epochs=1", "--device", "cpu") if " pretrain " in line else ()
        monkeypatch.setattr(sys, "argv", [*shlex.split(line), *quick])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        assert not stopped.value.code, line
    ahead = pd.read_csv("ahead.csv")
    last = few.groupby("station")["month"].max()
    since = ahead["month"] - ahead["station"].map(last)
    assert since.min() > 0 and since.max() <= 1.001
    assert set(ahead["variable"]) == set(ushcn.VARIABLES)
    assert {"value", "value_lower", "value_upper"} <= set(ahead.columns)
    page = Path("run/page.html").read_text(encoding="utf-8")
    assert "The forecast begins at the dotted line." in page and '"dash":"dot"' in page.replace(" ", "")


def test_the_page_of_a_run_cuts_each_forecast_at_the_last_thing_that_was_seen():
    pytest.importorskip("plotly")
    from romae.pages import run_page

    samples = romae.from_table(
        table()[lambda rows: rows["station"].isin(rows["station"].unique()[:2])],
        id="station",
        time="month",
        channel="variable",
        values="value",
    )
    small = romae.Size(width=16, heads=2, depth=1)
    model = romae.ModelConfig.for_samples(samples, encoder=small, decoder=small)
    task = romae.MaskedReconstruction(model, masking=romae.Future(after=36.0, horizon=6.0))
    task.schema = samples.schema
    (cut,) = romae.hide(samples[:1], task.masking)
    (predicted,) = romae.predict(task, [cut])
    figure = run_page._reconstruction(task, cut, predicted, samples.schema).figure
    seen = cut.positions[~cut.hidden, 0].max().item()
    lines = figure.layout.shapes
    assert seen <= 36.0 < cut.positions[cut.hidden, 0].min().item()
    assert len(lines) == 4 and [line.x0 for line in lines] == [line.x1 for line in lines] == pytest.approx([seen] * 4)


def test_a_model_that_finds_the_year_itself_answers_until_a_time_and_for_anomalies():
    samples = romae.from_table(
        table()[lambda rows: rows["station"].isin(rows["station"].unique()[:3]) & (rows["month"] < 36)],
        id="station",
        time="month",
        channel="variable",
        values="value",
    )
    size, year = {"width": 24, "heads": 2, "depth": 1}, {"shortest": 11.5, "longest": 12.5, "harmonics": 2}
    forecaster = romae.RoMAEForecaster(
        12.0, phase=year, likelihood="quantiles", size=size, pretrain_epochs=1, device="cpu", random_state=0
    ).fit(samples)
    ahead = romae.forecast(forecaster.task_, samples, until="+1", step=0.25)
    last = [sample.positions[:, 0].max().item() for sample in samples]
    for forecast, end in zip(ahead, last, strict=True):
        np.testing.assert_allclose(forecast.times, end + np.arange(0.25, 1.01, 0.25))
        assert forecast.values.shape == (4, 5) and np.isfinite(forecast.values).all()
    found = romae.anomaly(forecaster.task_, samples[:1]).measurements
    assert list(found.columns[:4]) == ["station", "month", "variable", "value"] and len(found) == len(samples[0])

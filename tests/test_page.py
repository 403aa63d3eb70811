"""Pages: self-contained, the same every time, true to what they are told, and alive in a real browser."""

import base64
import json
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

import romae
from messages import assert_says, refused
from romae.cli.main import main
from romae.config import override
from romae.experiments import report
from romae.experiments.recipe import discover, find
from romae.experiments.summary import all_rows
from romae.inference.baselines import truth
from romae.inference.predictions import predict
from romae.model.config import ModelConfig, Size
from romae.model.tasks import Regression
from romae.pages import charts, diagnostics, page, plots, run_page
from romae.pages.page import Chart, Choice, Section, Table, Text, to_html
from romae.pages.plots import Panel
from romae.pages.run_page import PageConfig
from romae.training.stages import Classify, Pretrain, run_stages
from romae.training.tables import Columns, FinetuneConfig, PretrainConfig, finetune, pretrain
from test_report import LOSSES, VIEWS, judge, result
from test_training_tables import CURVES

SCREENS = {"phone": (390, 844), "desktop": (1440, 900)}
SIZE = "{width=8,heads=2,depth=1}"
ALL = PageConfig(samples="all")
COLUMNS = {"id": "star", "time": "mjd", "channel": "band", "values": ("flux",)}


def series(shift: float) -> Chart:
    times = np.linspace(0, 1, 5)
    pair = (times, times + shift)
    panel = Panel("flux", pair, (times, times), curve=(times, times), predicted=pair)
    return Chart(caption=f"by {shift}", figure=charts.reconstruction([panel] * 2, x="time"))


def example(text: str = "A sentence.") -> str:
    blocks = [
        Text(text=text),
        Table(columns=("name", "value"), rows=[(text, "1")]),
        Choice(label="Sample", charts={"first": series(0.0), "second": series(5.0)}),
        Chart(caption=text, figure=charts.confusion(np.array([[3, 1], [0, 4]]), [text, "b"])),
        Chart(caption=text, figure=plots.image_grid({text: [np.zeros((2, 2))]})),
    ]
    return to_html(text, [Section(title=text, blocks=blocks)])


def decoded(value: Any) -> Any:
    """What plotly wrote, with its arrays of bytes as lists."""
    if isinstance(value, dict) and "bdata" in value:
        flat = np.frombuffer(base64.b64decode(value["bdata"]), dtype=value["dtype"])
        return flat.reshape([int(n) for n in value.get("shape", str(len(flat))).split(",")]).tolist()
    if isinstance(value, dict):
        return {key: decoded(part) for key, part in value.items()}
    return [decoded(part) for part in value] if isinstance(value, list) else value


def figures_of(text: str) -> list[list[dict[str, Any]]]:
    """The charts of every figure of a page: one, or those to choose from."""
    figures = re.findall(r"<figure>(.*?)</figure>", text.split("<script>")[0], re.DOTALL)
    charts = r'<script type="application/json">(.*?)</script>'
    return [[decoded(json.loads(chart)) for chart in re.findall(charts, figure)] for figure in figures]


def test_the_same_blocks_give_the_same_page():
    assert example() == example()


def test_a_page_is_drawn_with_a_seed_from_0_on():
    with refused(ValueError, "seed", "at least 0", "not -1"):
        PageConfig(seed=-1)


def test_a_page_asks_the_network_for_nothing():
    ours = example().split("<script>")[0]
    assert "default-src 'none'" in ours and "connect-src" not in ours
    assert not re.search(r'(src|href)="(?!data:|#)', ours) and "@import" not in ours


def test_what_a_page_is_told_stays_text():
    nasty = "</script><script>alert(1)</script><b>&\"'"
    text = example(nasty)
    assert "alert(1)</script>" not in text and "<b>" not in text.split("<script>")[0]
    assert figures_of(text)[1][0]["data"][0]["x"][0].startswith("&lt;/script&gt;")


def test_a_page_without_charts_carries_no_plotting_library():
    assert len(to_html("Short", [Section(title="One", blocks=[Text(text="word")])])) < 10_000


def test_a_long_page_begins_with_links_to_its_sections():
    many = [Section(title=f"Part {i}", blocks=[Text(text="word")]) for i in range(20)]
    text = to_html("Long", many)
    ids = re.findall(r'<section id="(.*?)">', text)
    assert len(set(ids)) == 20 and re.findall(r'<a href="#(.*?)">', text) == ids
    assert "<nav>" not in to_html("Short", many[:3])


def test_a_choice_of_nothing_is_refused():
    with refused(ValueError, "nothing to choose", "'Sample'"):
        to_html("Empty", [Section(title="One", blocks=[Choice(label="Sample", charts={})])])


def test_losses_that_are_no_numbers_are_left_blank():
    records = [{"step": 1, "loss": 2.0}, {"step": 2, "loss": float("nan")}, {"step": 3, "loss": 1.0, "validation": 3.0}]
    training, validation = charts.loss_curves({"": records}).data
    assert_array_equal(training.y, [2.0, np.nan, 1.0])
    assert (list(validation.x), list(validation.y)) == ([3.0], [3.0])


# The page of a run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A pre-trained model and a classifier, both tiny, and their table."""
    folder = tmp_path_factory.mktemp("runs")
    short = ("train.epochs=2", "train.device=cpu")
    told = PretrainConfig(columns=Columns(**COLUMNS))
    told = override(told, f"model.encoder={SIZE}", f"model.decoder={SIZE}", *short)
    pretrain(told, CURVES, folder / "run")
    finetune(override(FinetuneConfig(label="kind"), *short), CURVES, folder / "run", folder / "classifier")
    CURVES.to_parquet(folder / "curves.parquet")
    return folder


def test_a_page_takes_the_place_of_a_page_and_of_nothing_else(runs, tmp_path):
    place = tmp_path / "page.html"
    run_page.write(runs / "run", out=place)
    written = place.read_text()
    place.write_text(written.replace('<meta name="generator" content="romae">\n', ""))  # as 0.1 wrote it
    assert run_page.write(runs / "run", out=place).read_text() == written
    for mine in ("<!doctype html><p>mine", "a,b\n1,2\n", ""):
        place.write_text(mine)
        with refused(ValueError, "page.html", "--force"):
            run_page.write(runs / "run", out=place)
        assert place.read_text() == mine
    assert run_page.write(runs / "run", out=place, force=True).read_text() == written


def test_a_page_is_never_written_over_what_it_shows(runs, tmp_path):
    table = tmp_path / "curves.parquet"
    CURVES.to_parquet(table)
    (tmp_path / "link.html").symlink_to(table)
    inputs = [table, tmp_path / "link.html", *(path for path in (runs / "run").rglob("*") if path.is_file())]
    assert len(inputs) > 8
    before = {path: path.read_bytes() for path in inputs}
    for path in inputs:
        with refused(ValueError, path.name, "is read", "another"):
            run_page.write(runs / "run", data=str(table), out=path, force=True)
    assert {path: path.read_bytes() for path in inputs} == before


@pytest.mark.parametrize("job", ["[]", "{}", '{"validation": 3}'])
def test_a_job_that_says_nothing_of_what_was_kept_out_is_named(runs, tmp_path, job):
    folder = shutil.copytree(runs / "run", tmp_path / "run")
    (folder / "job.json").write_text(job)
    with refused(ValueError, "job.json", "kept out"):
        run_page.write(folder, data=CURVES, config=PageConfig(samples="kept out"))


def test_without_data_a_page_shows_losses_and_settings(runs, tmp_path):
    text = run_page.write(runs / "run", out=tmp_path / "page.html").read_text()
    n_reports = len((runs / "run" / "history.jsonl").read_text().splitlines())
    assert len(figures_of(text)[0][0]["data"][0]["x"]) == n_reports
    assert "<td>train.epochs</td><td>2</td>" in text and "Reconstructions" not in text.split("<script>")[0]


def test_hidden_points_are_those_that_are_predicted(runs, tmp_path):
    text = run_page.write(runs / "run", data=CURVES, config=ALL, out=tmp_path / "page.html").read_text()
    for chart in figures_of(text)[1]:
        named = {(trace["name"], trace["yaxis"]): trace for trace in chart["data"]}
        for (name, axis), trace in named.items():
            if name == "predicted":
                assert trace["x"] == named["hidden from the model", axis]["x"]
    assert "this is optimistic" in text


@pytest.mark.parametrize("samples", ["kept out", "auto"])
def test_kept_out_samples_alone_are_shown(runs, tmp_path, samples):
    told, place = PageConfig(samples=samples), tmp_path / "page.html"
    text = run_page.write(runs / "run", data=CURVES, config=told, out=place).read_text()
    n_kept_out = round(0.1 * CURVES["star"].nunique())
    assert len(figures_of(text)[1]) == n_kept_out
    assert_says(text, "kept out of training")


def test_all_samples_are_shown_where_nobody_knows_which_were_kept_out(runs, tmp_path):
    other = CURVES.assign(flux=CURVES["flux"] + 1)
    text = run_page.write(runs / "run", data=other, out=tmp_path / "page.html").read_text()
    assert len(figures_of(text)[1]) == run_page.N_SHOWN
    assert_says(text, "All 16 ids", "optimistic")
    with refused(ValueError, "torn"):
        folder = shutil.copytree(runs / "run", tmp_path / "run")
        (folder / "job.json").write_text("[]")
        run_page.write(folder, data=CURVES)


@pytest.mark.parametrize(("folder", "title"), [("stars", "stars"), ("run-3", "run-3"), ("stars/run", "stars/run")])
def test_a_page_is_called_like_its_run(runs, tmp_path, folder, title):
    run = shutil.copytree(runs / "run", tmp_path / folder)
    assert f"<title>{title}</title>" in run_page.write(run).read_text()


@pytest.mark.parametrize("run", ["run", "classifier"])
def test_kept_out_samples_of_another_table_are_refused(runs, tmp_path, run):
    told = PageConfig(samples="kept out")
    more = pd.concat([CURVES, CURVES[CURVES["star"] == "s00"].assign(star="s99")])
    other = CURVES.assign(flux=CURVES["flux"] + 1)
    for table in (more, other, CURVES[CURVES["star"] != "s03"]):
        with refused(ValueError, "not the samples", str(run)):
            run_page.write(runs / run, data=table, config=told, out=tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    ("label", "kind"), [("kind", "classify"), ("freq", "regress"), ("count", "classify"), ("count", "regress")]
)
def test_kept_out_samples_are_known_whatever_the_label(runs, tmp_path, label, kind):
    told, short = PageConfig(samples="kept out", label=label), ("train.epochs=1", "train.device=cpu")
    text = run_page.write(runs / "run", data=CURVES, config=told, out=tmp_path / "page.html").read_text()
    assert_says(text, "The 2 ids", "kept out")
    finetune(override(FinetuneConfig(label=label, kind=kind), *short), CURVES, runs / "run", tmp_path / "one")
    assert_says(run_page.write(tmp_path / "one", data=CURVES, config=told).read_text(), "The 2 ids")
    with refused(ValueError, "own table", f"label {label}"):
        other = replace(told, label="freq" if label == "kind" else "kind")
        run_page.write(tmp_path / "one", data=CURVES, config=other)


def errors_of(samples: romae.SampleSet, *hidden: list[int]) -> dict[str, str]:
    """What the table beside reconstructions says of a model that is always right, and of the simple methods."""
    hiding = [replace(one, hidden=np.array(mask, dtype=bool)) for one, mask in zip(samples, hidden, strict=True)]
    shown = romae.SampleSet(hiding, samples.schema)
    return dict(run_page._errors(shown, [truth(sample) for sample in shown]).rows)


@pytest.mark.parametrize("positions", [[], ["depth"], ["depth", "width"]])
def test_simple_methods_go_along_time_whatever_other_positions_there_are(positions):
    times, depth = np.arange(5.0), np.array([3.0, 1.0, 4.0, 1.5, 9.0])
    table = pd.DataFrame({"id": 0, "time": times, "depth": depth, "width": depth, "x": 2 * times, "y": -times})
    samples = romae.from_table(table, id="id", time="time", values=["x", "y"], positions=positions)
    shown = errors_of(samples, [0, 1, 0, 1, 0])
    (linear,) = (name for name in shown if "linear interpolation" in name)
    assert shown[linear] == "0" and shown["mean of the series"] != "0"
    assert all(name in linear for name in positions)


@pytest.mark.parametrize("channel", [None, "band"])
def test_linear_interpolation_uses_further_axes(channel):
    random = np.random.default_rng(0)
    table = pd.DataFrame({"id": np.repeat([0, 1], 40), "time": random.uniform(0, 9, 80), "band": ["g", "r"] * 40})
    table["depth"], table["width"] = random.uniform(0, 50, 80), 3.0
    table["x"] = 2 * table["time"] - 0.3 * table["depth"] + (table["band"] == "r")
    read = {"id": "id", "time": "time", "values": ["x"], "positions": ["depth", "width"], "channel": channel}
    if channel is None:
        table = table.assign(x=table["x"] - (table["band"] == "r"))
    samples = romae.from_table(table, **read)
    hidden = (random.random((2, 40)) < 0.3).tolist()
    shown = errors_of(samples, *hidden)
    error = float(shown["linear interpolation along time, linear in depth and width"])
    assert error < 0.2 < float(shown["mean of the series"])


@pytest.mark.parametrize("positions", [[], ["depth"]])
def test_times_are_dates_where_they_were_and_further_axes_have_panels(tmp_path, positions):
    random, noon = np.random.default_rng(0), pd.Timestamp("2024-03-01 12:00", tz="Europe/Vienna")
    table = pd.DataFrame({"buoy": np.repeat(range(6), 8), "date": noon})
    table["date"] += pd.to_timedelta(np.tile(np.arange(8), 6), "D")
    table["depth"], table["salinity"] = random.uniform(0, 50, 48), random.normal(size=48)
    samples = romae.from_table(table, id="buoy", time="date", values="salinity", positions=positions)
    scaling = romae.fit_scaling(samples, origin="first")
    model = ModelConfig.for_samples(samples, scaling=scaling, encoder=Size(width=8, heads=2, depth=1))
    task = romae.MaskedReconstruction(model, likelihood="normal")
    task.scaling = scaling
    romae.train(task, samples, romae.TrainConfig(epochs=1, device="cpu"), scaling=scaling, out=tmp_path, quiet=True)
    groups = figures_of(run_page.write(tmp_path, data=samples).read_text())
    axis = "date (Europe/Vienna)"
    charted = [chart for group in groups for chart in group]
    shown = [chart for chart in charted if chart["layout"].get("xaxis", {}).get("title", {}).get("text") == axis]
    assert len(shown) == 6 + 6  # reconstructions and anomalies
    for chart in shown:
        over = {axis: [x for one in chart["data"] if one["xaxis"] == axis for x in one["x"]] for axis in ("x", "x2")}
        assert {str(x)[:10] for x in over["x"]} <= set(table["date"].dt.strftime("%Y-%m-%d"))
        assert "2024-03-01T12:00" in str(over["x"])
        assert chart["layout"].get("xaxis2", {}).get("title", {}).get("text") == (positions[0] if positions else None)
        assert bool(over["x2"]) == bool(positions) and all(0 <= x <= 50 for x in over["x2"])


@pytest.mark.parametrize("positions", [[], ["depth"]])
def test_a_channel_that_is_not_seen_has_the_averages_of_its_own_columns(positions):
    one = pd.DataFrame({"time": [0.0, 1.0], "band": ["a", "b"], "flux": [5.0, 12.0], "error": 1000.0, "depth": [7, 8]})
    table = pd.concat([one.assign(id=i) for i in range(2)])
    read = {"id": "id", "time": "time", "channel": "band", "values": ["flux", "error"]}
    shown = errors_of(romae.from_table(table, **read, positions=positions), [0, 1], [1, 0])
    assert set(shown.values()) == {"0"}


def test_a_classifier_shows_each_sample_in_its_confusion_matrix(runs, tmp_path):
    text = run_page.write(runs / "classifier", data=CURVES, config=ALL, out=tmp_path / "page.html").read_text()
    (matrix,) = (group[0]["data"][0] for group in figures_of(text) if group[0]["data"][0]["type"] == "heatmap")
    per_class = CURVES.drop_duplicates("star")["kind"].value_counts()
    assert {name: sum(row) for name, row in zip(matrix["y"], matrix["text"], strict=True)} == per_class.to_dict()


def marked(text: str, number: str) -> list[dict[str, Any]]:
    """The points of every chart of the page that are marked by a number of this name."""
    charts = [chart for group in figures_of(text) for chart in group]
    return [trace for chart in charts for trace in chart["data"] if trace.get("name") == number]


def test_a_classifier_shows_what_speaks_for_its_classes(runs, tmp_path):
    text = run_page.write(runs / "classifier", data=CURVES, config=ALL, out=tmp_path / "page.html").read_text()
    task = romae.load(runs / "classifier" / "best")
    samples = romae.from_table_like(CURVES, task.schema)[: run_page.N_MARKED]
    expected = romae.explain(task, samples).contributions
    shown = np.concatenate([trace["marker"]["color"] for trace in marked(text, "contribution")])
    assert_allclose(np.sort(shown), np.sort(expected["contribution"]), rtol=1e-3, atol=1e-6)


def test_a_model_with_a_likelihood_shows_what_surprises_it(tmp_path):
    random = np.random.default_rng(0)
    samples = romae.from_arrays(random.normal(size=(9, 8, 2)), channels=["speed", "torque"])
    samples[4].values[3, 1] = 30.0
    model = ModelConfig(channels=2, position_dims=1, encoder=Size(width=8, heads=2, depth=1))
    torch.manual_seed(0)
    task = romae.MaskedReconstruction(model, likelihood="normal")
    romae.train(task, samples, romae.TrainConfig(epochs=1, device="cpu"), out=tmp_path / "run", quiet=True)
    text = run_page.write(tmp_path / "run", data=samples).read_text()
    expected = romae.anomaly(task, samples).measurements
    shown = marked(text, "score")  # six samples of two channels, the most surprising first
    assert len(shown) == 2 * run_page.N_MARKED and "speed" in text
    assert_allclose(shown[1]["marker"]["color"][3], expected["score"].max(), rtol=1e-3)
    assert shown[1]["y"][3] == 30 and f"<td>{expected['score'].max():.4g}</td>" in text


def light_curves(value: str, error: str | None, **more) -> romae.SampleSet:
    """Stars in two bands, whose values and errors are called like this."""
    random = np.random.default_rng(0)
    rows = {"star": np.repeat(np.arange(8), 10), "day": random.uniform(0, 5, 80), "band": ["g", "r"] * 40}
    rows |= {value: random.normal(15, 1, 80), "error": random.uniform(0.01, 0.2, 80), "kind": np.repeat([0, 1] * 4, 10)}
    columns = {"id": "star", "time": "day", "channel": "band", "values": value, "error": error}
    return romae.from_table(pd.DataFrame(rows), **columns, **more)


def page_of(task: romae.model.tasks.Task, samples: romae.SampleSet, folder: Path) -> list[dict[str, Any]]:
    """The charts of measurements on the page of a task that was trained for an epoch."""
    config = romae.TrainConfig(epochs=1, device="cpu")
    romae.train(task, samples, config, scaling=task.scaling, out=folder, quiet=True)
    charts_of = [chart for group in figures_of(run_page.write(folder, data=samples).read_text()) for chart in group]
    bands = {f"{samples.schema.values[0]}, {band}" for band in ("g", "r")}
    return [chart for chart in charts_of if chart["layout"].get("yaxis", {}).get("title", {}).get("text") in bands]


@pytest.mark.parametrize("value", ["mag", "flux"])
@pytest.mark.parametrize("objective", ["reconstruction", "classification"])
def test_magnitudes_stand_upright_with_their_errors_and_bands(tmp_path, value, objective):
    torch.manual_seed(0)
    if objective == "reconstruction":
        samples = light_curves(value, "error")
    else:
        samples = light_curves(value, "error", label="kind")
    scaling = romae.fit_scaling(samples, origin="first")
    model = ModelConfig.for_samples(samples, scaling=scaling, encoder=Size(width=8, heads=2, depth=1))
    task = romae.MaskedReconstruction(model, likelihood="normal")
    task = task if objective == "reconstruction" else romae.Classification(model, n_classes=2)
    task.scaling = scaling
    shown = page_of(task, samples, tmp_path / "run")
    assert len(shown) == (8 + run_page.N_MARKED if objective == "reconstruction" else run_page.N_MARKED)
    measured = {round(float(x), 4) for sample in samples for x in sample.values[:, 0]}
    for chart in shown:
        axes = [axis for name, axis in chart["layout"].items() if name.startswith("yaxis")]
        assert len(axes) == 2 and all((axis.get("autorange") == "reversed") is (value == "mag") for axis in axes)
        points = [trace for trace in chart["data"] if trace.get("error_y")]
        assert points and all(min(trace["error_y"]["array"]) > 0 for trace in points)  # lengths, whatever the axis
        assert {round(float(y), 4) for trace in points for y in trace["y"]} <= measured  # values as they are
        for band in (trace for trace in chart["data"] if trace.get("fill") == "toself"):
            half = len(band["y"]) // 2  # the upper end there, the lower one back
            assert all(upper > lower for upper, lower in zip(band["y"][:half], band["y"][half:][::-1], strict=True))


def test_each_channel_decides_for_itself_whether_it_is_a_magnitude():
    rows = pd.DataFrame({"id": 1, "time": [0.0, 1.0], "mag": 15.0, "mag_err": 0.1, "flux": 3.0})
    for tokens, upright in (("steps", [True, False, False]), ("scalars", [True, False, False])):
        columns = {"values": ["mag", "mag_err", "flux"], "tokens": tokens}
        sample = romae.from_table(rows, id="id", time="time", **columns)[0]
        panels = diagnostics.panels(sample, None, sample.schema)
        assert [panel.inverted for panel in panels] == upright, tokens
        axes = charts.reconstruction(panels, x="day").layout
        assert [axes[f"yaxis{i}"].autorange == "reversed" for i in ("", 2, 3)] == upright
        drawn = plots.interpolation(panels, n_columns=1)
        assert [axis.yaxis_inverted() for axis in drawn.axes] == upright


def agreements(text: str) -> list[dict[str, list]]:
    """What every chart of the page that holds predicted beside true numbers shows: true, predicted, and whose."""
    shown = [chart["data"][1] for group in figures_of(text) for chart in group if chart["data"][0]["name"] == "equal"]
    return [{key: trace[key] for key in ("x", "y", "text")} for trace in shown]


@pytest.mark.parametrize("label", ["freq", "count"])  # floats, and whole numbers, which tables take for classes
def test_a_regression_shows_the_number_of_each_sample_beside_the_true_one(runs, tmp_path, label):
    told = override(FinetuneConfig(label=label, kind="regress"), "train.epochs=1", "train.device=cpu")
    task = finetune(told, CURVES, runs / "run", tmp_path / "numbers").task
    (shown,) = agreements(run_page.write(tmp_path / "numbers", data=CURVES, config=ALL).read_text())
    truth = CURVES.groupby("star")[label].first()
    assert_allclose(shown["x"], truth)
    assert shown["text"] == [f"star {name}" for name in truth.index]
    samples = romae.from_table_like(CURVES.drop(columns=label), task.schema)
    assert_allclose(shown["y"], predict(task.cpu(), samples), rtol=1e-5)


@pytest.mark.parametrize(("per", "n_targets"), [("token", 1), ("token", 2), ("sample", 2)])
def test_a_regression_shows_every_number_of_samples_and_tokens(tmp_path, per, n_targets):
    random = np.random.default_rng(0)
    X = [random.normal(size=(n, 1)) for n in (4, 6, 5)]
    y = [random.normal(size=(len(x), n_targets) if per == "token" else n_targets) for x in X]
    samples = romae.from_arrays(X, y=y)
    task = Regression(
        ModelConfig(channels=1, position_dims=1, encoder=Size(width=8, heads=2, depth=1)), n_targets, per=per
    )
    romae.train(task, samples, romae.TrainConfig(epochs=1, device="cpu"), out=tmp_path / "run", quiet=True)
    text = run_page.write(tmp_path / "run", data=samples).read_text()
    truth = np.concatenate([one.reshape(-1, n_targets) for one in y])
    predicted = np.concatenate([one.reshape(-1, n_targets) for one in predict(task, samples)])
    shown = agreements(text)
    assert_allclose(np.stack([one["x"] for one in shown], axis=1), truth, rtol=1e-6)
    assert_allclose(np.stack([one["y"] for one in shown], axis=1), predicted, rtol=1e-6)
    assert shown[0]["text"][:2] == (["id 0, time 0", "id 0, time 1"] if per == "token" else ["id 0", "id 1"])
    error, spread = np.sqrt(((predicted - truth) ** 2).mean(axis=0)), truth.std(axis=0)
    assert all(f"<td>{a:.4g}</td><td>{b:.4g}</td>" in text for a, b in zip(error, spread, strict=True))
    without = run_page.write(tmp_path / "run", data=romae.from_arrays(X), out=tmp_path / "page.html").read_text()
    assert agreements(without) == [] and f"no numbers for each {per}" in without


def test_a_page_shows_how_far_probabilities_can_be_trusted_before_and_after(runs, tmp_path):
    random = np.random.default_rng(0)
    samples = romae.from_arrays(random.normal(size=(40, 4, 1)), y=random.normal(size=40).tolist())
    task = Regression(
        ModelConfig(channels=1, position_dims=1, encoder=Size(width=8, heads=2, depth=1)), likelihood="normal"
    )
    romae.train(task, samples, romae.TrainConfig(epochs=1, device="cpu"), out=tmp_path / "run", quiet=True)
    for names in ([], ["before", "calibrated"]):
        if names:
            romae.calibrate(task, samples, by="global")
            task.save(tmp_path / "run" / "last")
        text = run_page.write(tmp_path / "run", data=samples).read_text()
        charted = [{trace["name"]: trace for trace in chart["data"]} for group in figures_of(text) for chart in group]
        (coverage,) = (traces for traces in charted if "as promised" in traces)
        (pit,) = (traces for traces in charted if "true distributions" in traces)
        assert [*coverage][1:] == [*pit][1:] == (names or ["as learned"])
    assert_allclose(coverage["calibrated"]["x"], [0.5, 0.8, 0.9, 0.95])
    assert all(came >= at for at, came in zip(coverage["calibrated"]["x"], coverage["calibrated"]["y"], strict=True))
    assert "coverage, before" in text and "mean width, calibrated" in text
    classifier = run_page.write(runs / "classifier", data=CURVES, out=tmp_path / "page.html").read_text()
    assert "Reliability" in classifier and "log loss" in classifier


def test_the_model_of_a_run_through_stages_is_that_of_the_last(tmp_path):
    random = np.random.default_rng(0)
    samples = romae.from_arrays(random.normal(size=(8, 5, 1)), y=["a", "b"] * 4)
    size, short = Size(width=8, heads=2, depth=1), romae.TrainConfig(epochs=1, device="cpu")
    model = ModelConfig(channels=1, position_dims=1, encoder=size, decoder=size)
    stages = (Pretrain(train=short), Classify(n_classes=2, train=short))
    run_stages(model, stages, samples, schema=samples.schema, out=tmp_path / "run", quiet=True)
    text = run_page.write(tmp_path / "run", data=samples).read_text()
    assert "Training: 0-pretrain" in text and "Training: 1-classify" in text
    assert "Classification" in text.split("<script>")[0] and "Reconstructions" not in text.split("<script>")[0]


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["page", "nowhere"], ["nowhere", "folder of a run"]),
        (["page", "run", "--kept-out"], ["--data"]),
        (["page", "run", "--data", "curves.parquet", "--set", "ratio=2"], ["ratio", "share of points"]),
        (["page", "run", "--data", "none.csv"], ["none.csv"]),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_no_page(runs, monkeypatch, capsys, arguments, parts):
    monkeypatch.chdir(runs)
    monkeypatch.setattr(sys, "argv", ["romae", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert_says(capsys.readouterr().err, *parts)
    assert not list(runs.rglob("*.html"))


# In a browser


@pytest.fixture(scope="module")
def reproduction(tmp_path_factory):
    """A page of the reproduction, of one experiment with results, which shares plotly.js with the others."""
    names = ["pendulum/paper", *(name for name in discover() if name.startswith("positions/"))][:9]
    found = {}
    for name in names:
        drawn = result(0).figure if "pendulum" in name else {}
        changes = {"recipe": name, "metrics": {find(name).metric: 1.0}, "losses": (LOSSES,), "figure": drawn}
        found[name] = [result(seed, views=VIEWS, **changes) for seed in (0, 1)]
    folder, rows = tmp_path_factory.mktemp("reproduction"), all_rows(found)
    for name, text in report.to_pages(report.Contents(results=found, rows=rows, judged=judge(rows, "nowhere"))).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder / "report" / "positions.html"


@pytest.mark.slow
@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("which", ["run", "reproduction"])
def test_a_browser_shows_the_page_without_errors_and_the_chooser_changes_the_plot(
    browser, runs, reproduction, tmp_path, which, screen
):
    path = reproduction
    if which == "run":
        path = run_page.write(runs / "run", data=CURVES, out=tmp_path / "page.html")
    width, height = SCREENS[screen]
    opened = browser.new_page(viewport={"width": width, "height": height})
    problems, asked = [], []
    opened.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("request", lambda request: asked.append(request.url))
    opened.goto(path.as_uri())
    figure = opened.locator("figure:has(label:has-text('Sample'))").first
    figure.scroll_into_view_if_needed()
    figure.locator("svg.main-svg").first.wait_for()
    plot, caption = figure.locator("div.chart:visible"), figure.locator("figcaption:visible").inner_text()
    before = plot.screenshot()
    figure.locator("select").select_option(index=1)
    figure.locator("div.choice:nth-of-type(2) svg.main-svg").first.wait_for()
    opened.wait_for_timeout(300)
    assert plot.screenshot() != before
    assert figure.locator("figcaption:visible").inner_text() != caption
    assert opened.evaluate("document.documentElement.scrollWidth") <= width
    assert problems == [] and [url for url in asked if url.startswith("http")] == []
    opened.close()


@pytest.mark.slow
def test_points_tell_their_numbers_and_charts_are_zoomed(browser, tmp_path):
    figure = charts.agreement(np.array([0.0, 1.0, 2.0]), np.array([0.5, 0.25, 1.5]), ["a", "b", "c"], "mass")
    chart = Chart(caption="", figure=figure)
    path = page.write(tmp_path / "page.html", "One", [Section(title="One", blocks=[chart])])
    opened = browser.new_page(viewport={"width": 1440, "height": 900})
    opened.goto(path.as_uri())
    opened.locator("path.point").nth(1).hover(force=True)
    assert opened.locator("g.hovertext").first.text_content() == "b: 1, predicted 0.25"
    box = opened.locator("rect.nsewdrag").bounding_box()
    seen = "document.querySelector('div.chart').layout.xaxis.range"
    before = opened.evaluate(seen)
    opened.mouse.move(box["x"] + 100, box["y"] + 50)
    opened.mouse.down()
    opened.mouse.move(box["x"] + 400, box["y"] + 150, steps=5)
    opened.mouse.up()
    opened.wait_for_timeout(500)
    zoomed = opened.evaluate(seen)
    assert before[0] < zoomed[0] < zoomed[1] < before[1]
    opened.close()


@pytest.mark.slow
def test_charts_of_a_long_page_are_drawn_when_they_come_into_sight(browser, reproduction):
    opened = browser.new_page(viewport={"width": 1440, "height": 900})
    opened.goto(reproduction.as_uri())
    charts = opened.locator("div.chart:visible")
    first, last = charts.first, charts.last
    first.scroll_into_view_if_needed()
    first.locator("svg.main-svg").first.wait_for()
    assert last.locator("svg").count() == 0
    last.scroll_into_view_if_needed()
    last.locator("svg.main-svg").first.wait_for()
    opened.emulate_media(media="print")
    opened.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    shown = "[...document.querySelectorAll('div.chart')].filter(one => one.offsetParent)"
    assert opened.evaluate(f"{shown}.every(one => one.querySelector('svg'))")
    opened.close()

"""Pages: self-contained, the same every time, true to what they are told, and alive in a real browser."""

import json
import re
import shutil
import sys

import numpy as np
import pytest

from romae import charts, page, run_page
from romae.cli import main
from romae.config import override
from romae.jobs import Columns, FinetuneConfig, PretrainConfig, finetune, pretrain
from romae.page import Chart, Choice, Section, Table, Text, to_html
from romae.plots import Panel
from romae.run_page import PageConfig
from test_jobs import CURVES

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SCREENS = {"phone": (390, 844), "desktop": (1440, 900)}
SIZE = "{width=8,heads=2,depth=1}"
COLUMNS = {"id": "star", "time": "mjd", "channel": "band", "values": ("flux",)}


def series(shift: float) -> Chart:
    times = np.linspace(0, 1, 5)
    panel = Panel("flux", (times, times + shift), (times, times), (times, times), (np.zeros(0), np.zeros(0)))
    return charts.reconstruction([charts.Reconstruction(panel, times + shift)] * 2, x="time", caption=f"by {shift}")


def example(text: str = "A sentence.") -> str:
    blocks = [
        Text(text=text),
        Table(columns=("name", "value"), rows=[(text, "1")]),
        Choice(label="Sample", charts={"first": series(0.0), "second": series(5.0)}),
        charts.confusion(np.array([[3, 1], [0, 4]]), [text, "b"], text),
    ]
    return to_html(text, [Section(title=text, blocks=blocks)])


def data_of(text: str) -> list:
    found = re.search(r'<script type="application/json" id="charts">(.*?)</script>', text, re.DOTALL)
    assert found
    return json.loads(found[1])


def test_the_same_blocks_give_the_same_page():
    assert example() == example()


def test_a_page_asks_the_network_for_nothing():
    ours = example().replace(page._own("page.js"), "").split("<script>")[0]
    assert "default-src 'none'" in ours and "connect-src" not in ours
    assert not re.search(r'(src|href)="(?!data:)', ours) and "@import" not in ours


def test_what_a_page_is_told_stays_text():
    nasty = "</script><script>alert(1)</script><b>&\"'"
    text = example(nasty)
    assert "alert(1)</script>" not in text and "<b>" not in text.split("<script>")[0]
    assert data_of(text)[1][0]["traces"][0]["x"][0].startswith("&lt;/script&gt;")


def test_a_page_without_charts_carries_no_plotting_library():
    assert len(to_html("Short", [Section(title="One", blocks=[Text(text="word")])])) < 10_000


def test_a_choice_of_nothing_is_refused():
    with pytest.raises(ValueError, match="nothing to choose from under 'Sample'"):
        to_html("Empty", [Section(title="One", blocks=[Choice(label="Sample", charts={})])])


def test_losses_that_are_no_numbers_are_left_blank():
    records = [{"step": 1, "loss": 2.0}, {"step": 2, "loss": float("nan")}, {"step": 3, "loss": 1.0, "validation": 3.0}]
    training, validation = charts.losses(records).traces
    assert training["y"] == [2.0, None, 1.0] and (validation["x"], validation["y"]) == ([3.0], [3.0])


def test_principal_components_keep_the_distances_of_points_in_a_plane():
    random = np.random.default_rng(0)
    plane, basis = random.normal(size=(20, 2)), np.linalg.qr(random.normal(size=(7, 2)))[0]
    found = run_page.principal_components(plane @ basis.T)
    distances = [np.linalg.norm(x[:, None] - x[None], axis=-1) for x in (plane, found)]
    np.testing.assert_allclose(*distances, atol=1e-9)


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


def test_without_data_a_page_shows_losses_and_settings(runs, tmp_path):
    text = run_page.write(runs / "run", out=tmp_path / "page.html").read_text()
    n_reports = len((runs / "run" / "history.jsonl").read_text().splitlines())
    assert len(data_of(text)[0][0]["traces"][0]["x"]) == n_reports
    assert "<td>train.epochs</td><td>2</td>" in text and "Reconstructions" not in text.split("<script>")[0]


def test_hidden_points_are_those_that_are_predicted(runs, tmp_path):
    text = run_page.write(runs / "run", data=CURVES, out=tmp_path / "page.html").read_text()
    for chart in data_of(text)[1]:
        named = {(trace["name"], trace["yaxis"]): trace for trace in chart["traces"]}
        for (name, axis), trace in named.items():
            if name == "predicted":
                assert trace["x"] == named["hidden from the model", axis]["x"]
    assert "this flatters it" in text


def test_kept_out_samples_alone_are_shown(runs, tmp_path):
    told = PageConfig(samples="kept out")
    text = run_page.write(runs / "run", data=CURVES, config=told, out=tmp_path / "page.html").read_text()
    n_kept_out = round(0.1 * CURVES["star"].nunique())
    assert len(data_of(text)[1]) == n_kept_out and "that the run kept out of training" in text


def test_a_classifier_shows_each_sample_in_its_confusion_matrix(runs, tmp_path):
    text = run_page.write(runs / "classifier", data=CURVES, out=tmp_path / "page.html").read_text()
    (matrix,) = (group[0]["traces"][0] for group in data_of(text) if group[0]["traces"][0]["type"] == "heatmap")
    per_class = CURVES.drop_duplicates("star")["kind"].value_counts()
    assert {name: sum(row) for name, row in zip(matrix["y"], matrix["text"], strict=True)} == per_class.to_dict()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["page", "nowhere"], "nowhere is not the folder of a run"),
        (["page", "run", "--kept-out"], "give it with --data"),
        (["page", "run", "--data", "curves.parquet", "--set", "ratio=2"], "ratio is the share of points to hide"),
        (["page", "run", "--data", "none.csv"], "none.csv"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_no_page(runs, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(runs)
    monkeypatch.setattr(sys, "argv", ["romae", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2 and message in capsys.readouterr().err
    assert not list(runs.rglob("*.html"))


# In a browser


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="needs pip install playwright")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"needs a browser: one of {', '.join(BROWSERS)}")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.mark.slow
@pytest.mark.parametrize("screen", SCREENS)
def test_a_browser_shows_the_page_without_errors_and_the_chooser_changes_the_plot(browser, runs, tmp_path, screen):
    path = run_page.write(runs / "run", data=CURVES, out=tmp_path / "page.html")
    width, height = SCREENS[screen]
    opened = browser.new_page(viewport={"width": width, "height": height})
    problems, asked = [], []
    opened.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("request", lambda request: asked.append(request.url))
    opened.goto(path.as_uri())
    opened.wait_for_function("document.querySelectorAll('div.chart svg.main-svg').length > 0")
    plot, chooser = opened.locator("figure:has(select) div.chart").first, opened.locator("select").first
    before, caption = plot.screenshot(), opened.locator("figure:has(select) figcaption").first.inner_text()
    chooser.select_option(index=1)
    opened.wait_for_timeout(300)
    assert plot.screenshot() != before
    assert opened.locator("figure:has(select) figcaption").first.inner_text() != caption
    assert opened.evaluate("document.documentElement.scrollWidth") <= width
    assert problems == [] and [url for url in asked if url.startswith("http")] == []
    opened.close()

"""Pages in a browser, on a desktop and on a phone, in light and in dark: no error, nothing cut off, all readable."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from romae.config import override
from romae.experiments import demo, report
from romae.experiments.recipe import discover, find
from romae.experiments.summary import all_rows
from romae.model.config import Size
from romae.pages import run_page
from romae.pages.run_page import PageConfig
from romae.training.tables import Columns, FinetuneConfig, PretrainConfig, finetune, pretrain
from test_report import LOSSES, VIEWS, judge, result

pytestmark = pytest.mark.slow

WIDTHS = {"desktop": (1280, 900), "phone": (390, 844)}
SCHEMES = ("light", "dark")
READABLE = 4.5  # the contrast of text that WCAG asks for at level AA
SIZE = "{width=8,heads=2,depth=1}"
DRAW_ALL = "document.querySelectorAll(':not([hidden]) > div.chart:not(.js-plotly-plot)').forEach((one) => draw(one))"
WIDEST = "document.documentElement.scrollWidth"
UNDRAWN = """() => [...document.querySelectorAll('div.chart')].filter((one) => one.offsetParent
    && !one.querySelector('.trace, .heatmaplayer image, .heatmaplayer path')).length"""
# All text outside of coloured cells, with its contrast against what lies behind it: the page, or the paper of a chart.
PALE = """(least) => {
  const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (colour) => {
    const [r, g, b] = parts(colour).slice(0, 3).map((x) => x / 255)
      .map((x) => (x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [low, high] = [light(a), light(b)].sort((x, y) => x - y);
    return (high + 0.05) / (low + 0.05);
  };
  const page = getComputedStyle(document.body).backgroundColor, pale = [];
  const words = 'h1, h2, p, li, a, td, th, figcaption, label, select';
  for (const one of document.querySelectorAll(words)) {
    const colour = getComputedStyle(one).color;
    if (one.offsetParent && one.textContent.trim() && contrast(colour, page) < least)
      pale.push([one.tagName, one.textContent.slice(0, 40), colour, page]);
  }
  for (const one of document.querySelectorAll('div.chart svg text')) {
    if (one.closest('.heatmaplayer, .hoverlayer') || !one.textContent.trim()) continue;
    const chart = one.closest('div.chart').querySelector('svg.main-svg');
    const style = getComputedStyle(one), paper = getComputedStyle(chart);
    if (contrast(style.fill, paper.backgroundColor) < least)
      pale.push(['text', one.textContent.slice(0, 40), style.fill, paper.backgroundColor]);
  }
  return pale;
}"""


def stars() -> pd.DataFrame:
    """Light curves in two bands with dates and errors, of two kinds, and names that are long or look like code."""
    random, n = np.random.default_rng(0), 12
    table = pd.DataFrame(
        {"star": np.repeat([f"a-star-with-a-name-{i}" for i in range(n)], 10), "band": ["g", "r"] * 60}
    )
    table["date"] = pd.Timestamp("2024-03-01") + pd.to_timedelta(random.uniform(0, 60, 120), "D")
    table["mag"], table["error"] = random.normal(15, 1, 120), 0.1
    return table.assign(kind=np.repeat(["pulsating <b>", "eclipsing"] * (n // 2), 10))


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder, short = tmp_path_factory.mktemp("runs"), ("train.epochs=2", "train.device=cpu")
    told = PretrainConfig(columns=Columns(id="star", time="date", channel="band", values=("mag",), error=("error",)))
    pretrain(override(told, f"model.encoder={SIZE}", f"model.decoder={SIZE}", *short), stars(), folder / "pretrained")
    told = override(FinetuneConfig(label="kind"), *short)
    finetune(told, stars(), folder / "pretrained", folder / "stars")
    return run_page.write(folder / "stars", data=stars(), config=PageConfig(samples="all"))


@pytest.fixture(scope="module")
def demonstration(tmp_path_factory) -> Path:
    small = Size(width=8, heads=2, depth=1)
    tiny = replace(demo.QUICK, n_train=24, n_test=12, encoder=small, decoder=small, epochs=1)
    return demo.run(tmp_path_factory.mktemp("demo"), settings=tiny).page


@pytest.fixture(scope="module")
def experiment(tmp_path_factory) -> Path:
    """The page of one experiment of a report, which shares plotly.js with the others."""
    found = {}
    for name in [name for name in discover() if name.startswith("positions/")][:2]:
        changes: dict[str, Any] = {"recipe": name, "metrics": {find(name).metric: 1.0}, "losses": (LOSSES,)}
        found[name] = [result(seed, views=VIEWS, figure={}, **changes) for seed in (0, 1)]
    folder, rows = tmp_path_factory.mktemp("report"), all_rows(found)
    for name, text in report.to_pages(report.Contents(results=found, rows=rows, judged=judge(rows, "nowhere"))).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder / "report" / "positions.html"


@pytest.fixture(scope="module")
def results(experiment) -> Path:
    """The first page of that report."""
    return experiment.parents[1] / "report.html"


@pytest.mark.parametrize("which", ["run", "demonstration", "experiment", "results"])
def test_pages_are_whole_and_readable_at_any_width_and_in_both_schemes(browser, request, which):
    path = request.getfixturevalue(which)
    opened = browser.new_page(viewport={"width": 1280, "height": 900})
    problems, asked = [], []
    opened.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("request", lambda told: asked.append(told.url))
    opened.goto(path.as_uri())
    opened.evaluate(DRAW_ALL)
    papers = set()
    for screen, (width, height) in WIDTHS.items():
        opened.set_viewport_size({"width": width, "height": height})
        for scheme in SCHEMES:
            opened.emulate_media(color_scheme=scheme)
            where = f"{which}, {screen}, {scheme}"
            for _ in range(50):  # charts follow the width of the page and its colours a moment later
                opened.wait_for_timeout(200)
                if opened.evaluate(WIDEST) <= width:
                    break
            assert opened.evaluate(WIDEST) <= width, where
            assert opened.evaluate(UNDRAWN) == 0, where
            assert opened.evaluate(PALE, READABLE) == [], where
            papers.add((scheme, opened.evaluate("getComputedStyle(document.body).backgroundColor")))
    assert len({paper for _, paper in papers}) == len(SCHEMES)
    assert problems == [] and [url for url in asked if url.startswith("http")] == []
    opened.close()


def test_a_dark_page_is_printed_on_white_paper(browser, experiment):
    opened = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="dark")
    opened.goto(experiment.as_uri())
    paper = "getComputedStyle(document.querySelector('svg.main-svg')).backgroundColor"
    opened.locator("svg.main-svg").first.wait_for()
    dark = opened.evaluate(paper)
    opened.emulate_media(media="print", color_scheme="dark")
    opened.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    opened.wait_for_timeout(200)
    assert opened.evaluate(paper) == "rgb(255, 255, 255)" != dark
    assert opened.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert opened.evaluate(PALE, READABLE) == []
    opened.emulate_media(media="screen", color_scheme="dark")
    opened.evaluate("window.dispatchEvent(new Event('afterprint'))")
    opened.wait_for_timeout(200)
    assert opened.evaluate(paper) == dark
    opened.close()

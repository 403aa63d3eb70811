"""The site is whole: every page is listed and reached, every link leads somewhere, every public name is explained."""

import json
import re
import runpy
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

import romae
from test_docs import blocks

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?![a-z]+:)(?P<path>[^)#\s]*)(?:#(?P<anchor>[^)\s]*))?\)")
MOST_BYTES = 100_000  # of a picture

outside = SimpleNamespace(**runpy.run_path(str(DOCS / "outside.py")))
BESIDE = [ROOT / name for name in ("README.md", *outside.PAGES)]
PAGES = [*BESIDE, *sorted(DOCS.rglob("*.md"))]


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def prose(page: Path) -> str:
    return CODE.sub("", page.read_text(encoding="utf-8"))


def links(page: Path) -> list[tuple[Path, str | None]]:
    """The files that a page links to or shows, and the heading in each."""
    found = LINK.finditer(prose(page))
    return [((page.parent / link["path"]).resolve() if link["path"] else page, link["anchor"]) for link in found]


def anchors(page: Path) -> set[str]:
    """The headings of a page as they are written in addresses."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    plain = [re.sub(r"[^\w\s-]", "", line).strip().lower() for line in re.findall(r"^#+ (.*)$", text, re.MULTILINE)]
    return {re.sub(r"[-\s]+", "-", line) for line in plain}


def listed(entries: Any) -> list[str]:
    """The pages of a navigation, through all its sections."""
    if isinstance(entries, str):
        return [entries]
    inner = entries.values() if isinstance(entries, dict) else entries
    return [page for one in inner for page in listed(one)]


def test_the_navigation_lists_every_page_once():
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    pages = [page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")] + list(outside.PAGES.values())
    assert sorted(listed(settings["nav"])) == sorted(pages)


def test_every_page_is_reached_from_the_readme():
    reached, ahead = set(), [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        reached.add(page)
        ahead += [one for one, _ in links(page) if one.suffix == ".md" and one.exists() and one not in reached]
    assert not [name(page) for page in PAGES if page not in reached]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_somewhere(page):
    for target, anchor in links(page):
        assert target.exists() or target == ROOT / outside.REPORT, f"{name(page)} links to {target}"
        assert anchor is None or anchor in anchors(target), f"{name(page)} links to {target.name}#{anchor}"


def test_links_that_leave_docs_stay_on_the_site():
    def on_site(link: str, page: str) -> str:
        return outside.on_page_markdown(f"[a]({link})", SimpleNamespace(file=SimpleNamespace(src_uri=page)))[4:-1]

    assert on_site("../REPRODUCTION.md#floor", "faq.md") == "numbers.md#floor"
    assert on_site("../../REPRODUCTION.md", "api/data.md") == "../numbers.md"
    assert on_site("docs/experiments.md", "numbers.md") == "experiments.md"
    assert on_site("../results/benchmark/cpu.json", "performance.md") == "results/benchmark/cpu.json"
    for same in ("data.md#arrays", "#arrays", "../faq.md", "https://arxiv.org/abs/2505.20535"):
        assert on_site(same, "api/data.md") == same


@pytest.mark.parametrize("page", sorted((DOCS / "tutorials").glob("*.md")), ids=name)
def test_a_tutorial_is_a_notebook_of_the_code_that_the_tests_run(page):
    made = json.loads(outside.notebook(page.read_text(encoding="utf-8")))
    cells = ["".join(cell["source"]) for cell in made["cells"] if cell["cell_type"] == "code"]
    assert cells == [block.code.strip() for block in blocks(page) if block.is_run]
    shown = "\n".join("".join(cell["source"]) for cell in made["cells"] if cell["cell_type"] == "markdown")
    assert ".md)" not in shown and ".png)" not in shown and shown.startswith("# ")
    assert made["nbformat"] == 4 and outside.notebook(page.read_text(encoding="utf-8")) == outside.notebook(
        page.read_text(encoding="utf-8")
    )


def test_the_search_leaves_lists_of_trials_and_changes_out():
    def is_left_out(page: str) -> bool:
        meta: dict[str, Any] = {}
        outside.on_page_markdown("", SimpleNamespace(file=SimpleNamespace(src_uri=page), meta=meta))
        return meta == {"search": {"exclude": True}}

    assert {page for page in ("log.md", "changes.md", "data.md", "numbers.md") if is_left_out(page)} == {
        "log.md",
        "changes.md",
    }


def contrast(one: str, other: str) -> float:
    """Of two colours as #rrggbb, as WCAG has it."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_links_and_the_head_of_a_page_are_readable():
    light, dark = (DOCS / "site.css").read_text(encoding="utf-8").split('"slate"', maxsplit=1)
    of = {
        (name, variable): re.search(rf"{variable}: (#\w{{6}});", part)[1]
        for name, part in (("light", light), ("dark", dark))
        for variable in ("--md-primary-fg-color", "--md-typeset-a-color")
    }
    assert contrast(of["light", "--md-typeset-a-color"], "#ffffff") > 4.5
    assert contrast(of["dark", "--md-typeset-a-color"], "#1e2129") > 4.5
    assert contrast(of["light", "--md-primary-fg-color"], "#ffffff") > 4.5
    assert contrast(of["dark", "--md-primary-fg-color"], "#ffffff") > 4.5


def test_links_are_called_by_titles_and_not_by_files():
    for page in PAGES:
        for text, target in re.findall(r"\[([^\]\n]*)\]\(([^)\s]*)\)", prose(page)):
            assert not re.fullmatch(r"[\w/.-]+\.md", text), f"{name(page)}: [{text}]({target})"


def test_code_fits_the_window():
    """A line of 125 letters is as wide as a page is in a window of 1400 pixels; output and logs may be wider."""
    for page in PAGES:
        if page.name in ("log.md", "experiments.md"):
            continue
        for language, code in re.findall(r"^```(\w+)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S):
            if language not in ("text", "bibtex"):
                assert max(map(len, code.splitlines())) <= 125, f"{name(page)}: {code}"


def test_a_page_says_its_version_and_offers_others_where_there_are_some(monkeypatch):
    config = SimpleNamespace(extra={})
    assert outside.on_config(config).copyright == f"romae {romae.__version__}" and not config.extra
    monkeypatch.setenv(outside.VERSIONED, "0.2")
    assert outside.on_config(config).extra == {"version": {"provider": "mike"}}


@pytest.fixture(scope="module")
def brought() -> dict[str, str | None]:
    """The files that stand beside docs/ on the site, with the content of those that are made."""

    class File:
        def __init__(self, name: str, content: str | None) -> None:
            self.name, self.content = name, content

        @classmethod
        def generated(cls, config: None, name: str, *, abs_src_path: str | None = None, content: str | None = None):
            return cls(name, content)

    with pytest.MonkeyPatch.context() as patch:
        for module in ("mkdocs", "mkdocs.structure", "mkdocs.structure.files"):
            patch.setitem(sys.modules, module, SimpleNamespace(File=File))
        return {file.name: file.content for file in outside.on_files([], None)}


def pages_of_the_report(brought: dict[str, str | None]) -> dict[str, str]:
    return {name.removeprefix("results/"): text for name, text in brought.items() if name.startswith("results/report")}


def test_the_site_brings_the_page_of_the_reproduction(brought):
    assert {*outside.PAGES.values(), "results/benchmark/cpu.json"} <= set(brought)
    report = pages_of_the_report(brought)
    pages = {name: text for name, text in report.items() if name.endswith(".html")}
    assert len(pages) > 8 and sum(text.count("<figure>") for text in pages.values()) > 50
    assert all("Plotly.react" in text for text in pages.values())
    assert "plotly.js v" in report["report/plotly.min.js"][:1000]
    assert ROOT / outside.REPORT in [target for target, _ in links(DOCS / "reproduction.md")]


def test_every_picture_is_shown_and_small():
    shown = {target for page in PAGES for target, _ in links(page)}
    for picture in (DOCS / "images").iterdir():
        assert picture in shown, f"no page shows {picture.name}"
        assert picture.stat().st_size < MOST_BYTES, f"{picture.name} is too large"


@pytest.mark.slow
def test_the_figures_of_the_concepts_are_those_that_the_script_draws(tmp_path):
    runpy.run_path(str(DOCS / "figures.py"))["main"](tmp_path)
    drawn = {figure.name for figure in tmp_path.iterdir()}
    assert drawn == {target.name for target, _ in links(DOCS / "concepts.md") if target.suffix == ".svg"}


def test_the_reference_names_every_public_name_once():
    text = "\n".join(page.read_text(encoding="utf-8") for page in (DOCS / "api").glob("*.md"))
    assert Counter(re.findall(r"^::: (.*)$", text, re.MULTILINE)) == Counter(f"romae.{one}" for one in romae.__all__)


# Builds the site with the report that is made already, which takes as long as all the rest.
BUILD = """
import json, sys
from pathlib import Path
from mkdocs.__main__ import cli
from romae.experiments import report

pages = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
report.to_pages = lambda contents, name: pages
cli(["build", "--strict", "--site-dir", sys.argv[2]])
"""


@pytest.mark.slow
def test_the_site_builds_without_a_warning(brought, tmp_path):
    for module in ("mkdocs", "material", "mkdocstrings_handlers"):
        if find_spec(module) is None:
            pytest.skip("needs MkDocs: pip install 'romae[docs]'")
    (tmp_path / "report.json").write_text(json.dumps(pages_of_the_report(brought)), encoding="utf-8")
    site = tmp_path / "site"
    command = [sys.executable, "-c", BUILD, str(tmp_path / "report.json"), str(site)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    reference = "\n".join(page.read_text(encoding="utf-8") for page in (site / "api").glob("*.html"))
    assert not [one for one in romae.__all__ if f'id="romae.{one}"' not in reference]
    assert "positions/tuned-tiny-cls" in (site / "numbers.html").read_text(encoding="utf-8")
    assert 'href="results/report.html"' in (site / "reproduction.html").read_text(encoding="utf-8")
    assert 'class="chart"' in (site / outside.REPORT).read_text(encoding="utf-8")

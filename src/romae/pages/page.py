"""Pages: titles, sentences, tables, pictures and interactive charts become one HTML file that needs no network.

A page carries its style, its script and plotly.js inside, and tells the browser to fetch nothing; several pages in one
folder may share a file of plotly.js beside them. The same blocks give the same bytes. What a page is made of is in
page.html, look and behaviour in page.css and page.js.
"""

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from romae.extras import require_extra
from romae.files import write_whole_text

require_extra("plots", "pages need")

_FEW_COLUMNS = 5  # for which a phone has room
_MANY_SECTIONS = 8  # as many are not found by scrolling
_HEAD = 1000  # bytes that hold the marks of a page
_MARKS = (b'<meta name="generator" content="romae">', b"script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src")


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A paragraph; `is_aside` sets it small and grey."""

    text: str
    is_aside: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of text under column names.

    `marks` gives each row a class of the style: reached, missed or nothing. `links` gives the first cell of each row
    the address that it leads to.
    """

    columns: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    marks: Sequence[str] = ()
    links: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A figure of plotly, which is interactive, or one of matplotlib, which is shown as a picture."""

    caption: str
    figure: Any

    @property
    def is_picture(self) -> bool:
        return hasattr(self.figure, "savefig")

    @property
    def height(self) -> int:
        """Pixels that an interactive figure takes."""
        layout = self.figure.layout
        return layout.height or layout.template.layout.height or 450

    def json(self) -> str:
        """Traces and layout for plotly.js; plotly escapes what could end a script."""
        return self.figure.to_json(validate=False, engine="json")

    def svg(self) -> str:
        """A picture in base 64, the same bytes every time."""
        from matplotlib import rc_context

        written = io.BytesIO()
        with rc_context({"svg.hashsalt": "romae"}):
            self.figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
        return base64.b64encode(written.getvalue()).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Charts of which the reader chooses one by its name; the first is shown."""

    label: str
    charts: Mapping[str, Chart]

    def __post_init__(self) -> None:
        if not self.charts:
            raise ValueError(f"there is nothing to choose from under {self.label!r}; leave the block out")


Block = Text | Table | Chart | Choice


def choice(label: str, charts: Mapping[str, Chart]) -> Chart | Choice:
    """The only chart, or a choice of several."""
    return next(iter(charts.values())) if len(charts) == 1 else Choice(label=label, charts=charts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading and what stands under it."""

    title: str
    blocks: Sequence[Block]


def to_html(
    title: str, sections: Sequence[Section], *, lead: str = "", back: tuple[str, str] | None = None, plotly: str = ""
) -> str:
    """One page; self-contained unless `plotly` is the address of a file of plotly.js that pages share.

    `back` is the text and the address of a link above the title.
    """
    from jinja2 import Environment

    page = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(_resource("page.html"))
    blocks = [block for section in sections for block in section.blocks]
    charts = [chart for block in blocks if isinstance(block, Choice) for chart in block.charts.values()]
    charts += [block for block in blocks if isinstance(block, Chart)]
    is_interactive = not all(chart.is_picture for chart in charts)
    return page.render(
        title=title,
        lead=lead,
        sections=sections,
        has_contents=len(sections) >= _MANY_SECTIONS,
        few_columns=_FEW_COLUMNS,
        style=_resource("page.css"),
        back=back,
        plotly_at=plotly if is_interactive else "",
        plotly=plotly_script() if is_interactive and not plotly else "",
        is_interactive=is_interactive,
        script=_resource("page.js"),
    )


def write(path: str | Path, title: str, sections: Sequence[Section], *, lead: str = "") -> Path:
    """Write a page, whole or not at all, and return where it is."""
    write_whole_text(Path(path), to_html(title, sections, lead=lead))
    return Path(path)


def plotly_script() -> str:
    """The text of plotly.js, which draws interactive charts."""
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def is_plotly(path: Path) -> bool:
    """Whether a file is plotly.js of some version, which another may take the place of."""
    with path.open("rb") as file:
        return b"plotly.js v" in file.read(_HEAD)


def is_page(path: Path) -> bool:
    """Whether a file is a page of ours, which another may take the place of; those of 0.1 are known by their policy."""
    with path.open("rb") as file:
        head = file.read(_HEAD)
    return head.lstrip().startswith(b"<!doctype html>") and any(mark in head for mark in _MARKS)


def _resource(name: str) -> str:
    return files("romae.pages").joinpath(name).read_text(encoding="utf-8")

"""Pages: titles, sentences, tables, pictures and interactive charts become one HTML file that needs no network.

A page carries its style, its script and the plotting library (Plotly) inside, and tells the browser to fetch nothing.
The same blocks give the same bytes. Look and behaviour are in page.css and page.js.
"""

import base64
import html
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from romae.files import write_whole_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Whatever is in the page, the browser runs what the page carries and asks nobody for more.
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"

_MANY_COLUMNS = 5  # more than a phone has room for
_MANY_SECTIONS = 8  # more than are found by scrolling


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A paragraph; `is_aside` sets it small and grey."""

    text: str
    is_aside: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of text under column names. `marks` gives each row a class of the style: reached, missed or nothing."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    marks: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A matplotlib figure, which stays as it is."""

    caption: str
    figure: "Figure"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """An interactive chart in the terms of Plotly: traces, and what the layout says beyond the look of every chart."""

    caption: str
    traces: Sequence[Mapping[str, Any]]
    layout: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Charts of which the reader chooses one by its name; the first is shown."""

    label: str
    charts: Mapping[str, Chart]


Block = Text | Table | Picture | Chart | Choice


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading and what stands under it."""

    title: str
    blocks: Sequence[Block]


def to_html(title: str, sections: Sequence[Section], *, lead: str = "") -> str:
    """One self-contained page."""
    from plotly.offline import get_plotlyjs

    charts: list[list[Chart]] = []
    body = "".join(_section(section, number, charts) for number, section in enumerate(sections))
    scripts = ""
    if charts:
        data = [[{"traces": one.traces, "layout": one.layout} for one in group] for group in charts]
        # An escaped < keeps text of the data from ending the script; JSON reads it back as <.
        told = json.dumps(data, allow_nan=False).replace("<", "\\u003c")
        scripts = (
            f'<script type="application/json" id="charts">{told}</script>\n'
            f"<script>{get_plotlyjs()}</script>\n<script>{_own('page.js')}</script>\n"
        )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>\n{_own('page.css')}</style>\n</head>\n<body>\n"
        f"<header><h1>{html.escape(title)}</h1>{_paragraph(lead) if lead else ''}</header>\n"
        f"{_contents(sections)}<main>\n{body}</main>\n{scripts}</body>\n</html>\n"
    )


def write(path: str | Path, title: str, sections: Sequence[Section], *, lead: str = "") -> Path:
    """Write a page, whole or not at all, and return where it is."""
    text = to_html(title, sections, lead=lead)
    write_whole_text(Path(path), text)
    return Path(path)


def _own(name: str) -> str:
    return files("romae").joinpath(name).read_text(encoding="utf-8")


def _contents(sections: Sequence[Section]) -> str:
    """Links to the sections of a long page."""
    if len(sections) < _MANY_SECTIONS:
        return ""
    links = "".join(
        f'<li><a href="#{number}">{html.escape(section.title)}</a></li>' for number, section in enumerate(sections)
    )
    return f"<nav><ul>{links}</ul></nav>\n"


def _section(section: Section, number: int, charts: list[list[Chart]]) -> str:
    """A section; its charts are put on the list, and their place in the page says which they are."""
    body = "".join(_block(block, charts) for block in section.blocks)
    return f'<section id="{number}"><h2>{html.escape(section.title)}</h2>\n{body}</section>\n'


def _block(block: Block, charts: list[list[Chart]]) -> str:
    if isinstance(block, Text):
        return _paragraph(block.text, "aside" if block.is_aside else "")
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, Picture):
        return _picture(block)
    names, shown = ("", {"": block}) if isinstance(block, Chart) else (block.label, block.charts)
    if not shown:
        raise ValueError(f"there is nothing to choose from under {names!r}; leave the block out")
    charts.append(list(shown.values()))
    number, captions = len(charts) - 1, [html.escape(one.caption) for one in shown.values()]
    chooser = _chooser(block, number, captions) if isinstance(block, Choice) else ""
    plot = f'<div class="chart" data-charts="{number}"></div>'
    return f"<figure>{chooser}{plot}<figcaption>{captions[0]}</figcaption></figure>\n"


def _chooser(choice: Choice, number: int, captions: Sequence[str]) -> str:
    options = "".join(
        f'<option value="{i}" data-caption="{caption}">{html.escape(name)}</option>'
        for i, (name, caption) in enumerate(zip(choice.charts, captions, strict=True))
    )
    return f'<label>{html.escape(choice.label)} <select data-charts="{number}">{options}</select></label>'


def _paragraph(text: str, style: str = "") -> str:
    return f'<p class="{style}">{html.escape(text)}</p>\n' if style else f"<p>{html.escape(text)}</p>\n"


def _table(table: Table) -> str:
    """A table that scrolls by itself where the screen is narrow."""
    marks = table.marks or [""] * len(table.rows)
    head = "".join(f"<th>{html.escape(name)}</th>" for name in table.columns)
    body = "".join(
        f'<tr class="{mark}">{"".join(f"<td>{html.escape(cell)}</td>" for cell in row)}</tr>\n'
        for row, mark in zip(table.rows, marks, strict=True)
    )
    width = ' class="wide"' if len(table.columns) > _MANY_COLUMNS else ""
    return f'<div class="scroll"><table{width}><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>\n'


def _picture(picture: Picture) -> str:
    """A figure as an image inside the page, the same bytes every time."""
    import matplotlib

    written = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "romae"}):
        picture.figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    data, caption = base64.b64encode(written.getvalue()).decode(), html.escape(picture.caption)
    return (
        f'<figure><img alt="{caption}" src="data:image/svg+xml;base64,{data}">'
        f"<figcaption>{caption}</figcaption></figure>\n"
    )

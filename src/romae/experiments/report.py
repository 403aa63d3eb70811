"""The report: results on disk to pages in Markdown and for the browser. Nothing is run again.

In Markdown these are one page of results, the paper's tables, and every run. In the browser, the first page has the
verdicts, and each experiment a page of its own in a folder beside it, with the one file that draws their charts. The
same results give the same report, byte for byte.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from romae.experiments import figures, result_pages
from romae.experiments.paper import FILE, Judgement, judge, read_items
from romae.experiments.recipe import Recipe, discover
from romae.experiments.results import TRIALS, Result, is_seed, renamed
from romae.experiments.rivals import Beside, read_beside
from romae.experiments.summary import Row, all_rows, ours, read_all, target
from romae.experiments.tasks import Line, experiment_of, lines
from romae.files import require_free, write_whole_text
from romae.pages import charts
from romae.pages.page import (
    Block,
    Chart,
    Choice,
    Section,
    Table,
    Text,
    is_page,
    is_plotly,
    plotly_script,
    to_html,
)

OURS = "RoMAE"


def strangers(folder: str | Path) -> list[str]:
    """Folders that hold what looks like results, but of no recipe that is known."""
    root, names = Path(folder), set()
    for path in root.rglob("*.json"):
        name = path.parent.relative_to(root).as_posix()
        if is_seed(path.stem) and renamed(name) not in discover() and not name.startswith((f"{TRIALS}/", "compare/")):
            names.add(name)
    return sorted(names)


def write(
    folder: str | Path,
    *,
    markdown: str | Path = "REPRODUCTION.md",
    page: str | Path | None = None,
    force: bool = False,
) -> list[Path]:
    """Write the pages of a folder of results, and return where those in Markdown and the first of the browser are.

    Files that are no report are only overwritten by `force`, and those that the report is made from never.
    """
    places = [Path(markdown), Path(folder) / "report.html" if page is None else Path(page)]
    require_results(folder)
    _require_places(places, Path(folder), force)
    contents = Contents.read(folder)
    of_browser = {places[1].parent / name: text for name, text in to_pages(contents, places[1].name).items()}
    in_markdown = to_markdown(contents, places[0], Path(folder))
    texts = in_markdown | of_browser
    for path in texts:
        if path.parent.exists() and not path.parent.is_dir():
            raise ValueError(
                f"{path.parent} is a file, where the pages of experiments go; move it, or name another --page"
            )
        if path not in places and path.exists():
            require_free(path, force=force, is_ours=IS_OURS[path.suffix])
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole_text(path, text)
    return [*in_markdown, places[1]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What a report is made from: the results of every recipe, their rows, the paper's tables, and peers."""

    results: Mapping[str, Sequence[Result]]
    rows: Sequence[Row]
    judged: Sequence[Judgement] = ()
    beside: Beside = field(default_factory=Beside)

    @classmethod
    def read(cls, folder: str | Path) -> "Contents":
        """Those of a folder of results."""
        results = read_all(folder)
        rows = all_rows(results)
        judged = judge(read_items(folder), rows, Path(folder) / "benchmark")
        return cls(results=results, rows=rows, judged=judged, beside=read_beside(folder))

    @property
    def lines(self) -> list[Line]:
        """One for each task."""
        return lines(self.rows, self.beside)


def to_markdown(contents: Contents, front: Path, folder: Path) -> dict[Path, str]:
    """The pages in Markdown by where they lie: the page of results, and those in the folder of results."""
    return result_pages.pages(contents.rows, contents.lines, contents.judged, front, folder)


def require_results(folder: str | Path) -> None:
    """Refuse a folder that is not there."""
    if not Path(folder).is_dir():
        raise ValueError(f"there is no folder of results {folder}; `romae run NAME` makes one")


def _require_places(places: Sequence[Path], folder: Path, force: bool) -> None:
    """Refuse what could not be written, or would be written over, before anything is."""
    every = [*places, folder / result_pages.RUNS, folder / result_pages.PAPER]
    for i, place in enumerate(every):
        if place.resolve() in {other.resolve() for other in every[:i]}:
            raise ValueError(f"two pages of the report cannot both be {place}; give them two names")
    inputs = [*folder.rglob("*.json"), folder / FILE]
    for place, is_ours in zip(places, (result_pages.is_page, is_page), strict=True):
        require_free(place, force=force, inputs=inputs, is_ours=is_ours)


IS_OURS = {".md": result_pages.is_page, ".html": is_page, ".js": is_plotly}


# The pages of the browser


def to_pages(contents: Contents, name: str = "report.html") -> dict[str, str]:
    """The first page, with all verdicts; one for each experiment that has results; and what draws their charts.

    They come by their addresses from where the first one lies.
    """
    beside = Path(name).stem if Path(name).suffix else f"{name}-pages"
    experiments = list(dict.fromkeys(experiment_of(recipe) for recipe, runs in contents.results.items() if runs))
    address = {one: f"{beside}/{one}.html" for one in experiments}
    sections = [*_overview(contents, address), *_tables_of_the_paper(contents.judged)]
    sections += [*_comparisons(contents.rows), *_missing(contents.rows), _words()]
    pages = {name: to_html("Results", sections, lead=_lead(contents.lines), plotly=f"{beside}/{_PLOTLY}")}
    for one in experiments:
        sections = [
            _section(discover()[recipe], runs, [row for row in contents.rows if row.recipe == recipe])
            for recipe, runs in contents.results.items()
            if runs and experiment_of(recipe) == one
        ]
        back = ("All results", f"../{name}")
        pages[address[one]] = to_html(one, sections, lead=_LEAD, back=back, plotly=_PLOTLY)
    return pages | {f"{beside}/{_PLOTLY}": plotly_script()}


def _overview(contents: Contents, address: Mapping[str, str]) -> list[Section]:
    """The lines of the page of results, each leading to the page of its experiment."""
    return [
        Section(
            title=heading,
            blocks=[
                Table(
                    columns=result_pages.COLUMNS,
                    rows=[[_unbroken(cell) for cell in result_pages.cells(line)] for line in of_group],
                    marks=[_MARKS.get(line.verdict, "") for line in of_group],
                    links=[address.get(experiment_of(line.task), "") for line in of_group],
                )
            ],
        )
        for heading, of_group in result_pages.grouped(contents.lines).items()
    ]


def _unbroken(cell: str) -> str:
    """A number and its spread on one line."""
    return cell.replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}")


def _tables_of_the_paper(judged: Sequence[Judgement]) -> list[Section]:
    blocks: list[Block] = []
    for judgement in judged:
        blocks.append(Text(text=f"{judgement.item.name}: {judgement.item.about}. {judgement.reason}"))
        if judgement.numbers:
            rows = [result_pages.answered_cells(numbers) for numbers in judgement.numbers]
            blocks.append(Table(columns=result_pages.PAPER_COLUMNS, rows=rows))
    return [Section(title="The paper's tables and figures", blocks=blocks)] if blocks else []


def _comparisons(rows: Sequence[Row]) -> list[Section]:
    bars = {row.recipe: _bars(row) for row in rows if row.is_headline and row.mean is not None}
    return [Section(title="Every recipe", blocks=[Choice(label="Recipe", charts=bars)])] if bars else []


def _missing(rows: Sequence[Row]) -> list[Section]:
    names = result_pages.not_run(rows).values()
    return [Section(title="Not run yet", blocks=[Text(text=", ".join(some)) for some in names])] if names else []


def _lead(of: Sequence[Line]) -> str:
    return f"{result_pages.tally(of)} ↓ lower is better, ↑ higher is better; what does not compare is in brackets."


def _words() -> Section:
    """What the verdicts mean."""
    table = Table(columns=("verdict", "meaning"), rows=list(result_pages.VERDICTS.items()))
    return Section(title="What the verdicts mean", blocks=[table])


_PLOTLY = "plotly.min.js"  # a page of its own would carry its 5 MB each time
_MARKS = {"ahead": "reached", "behind": "missed", "suspect": "missed"}
_LEAD = "Every experiment beside baselines on the same test data, floors and published values. Nothing is run again."


def _bars(row: Row) -> Chart:
    """The headline of one recipe beside all that it is compared with, smallest first."""
    assert row.mean is not None
    values = {OURS: row.mean, **row.baselines}
    if row.floor is not None:
        values["floor"] = row.floor
    if row.published is not None:
        values["published" if row.is_comparable else "published (not comparable)"] = row.published
    ordered = dict(sorted(values.items(), key=lambda item: item[1]))
    caption = f"{row.paper}: {row.title}. Ours is {ours(row)}."
    return Chart(caption=caption, figure=charts.comparison(ordered, ours=OURS, metric=row.metric))


def _section(recipe: Recipe, results: Sequence[Result], of_recipe: Sequence[Row]) -> Section:
    """One recipe: its numbers, where they come from, and all there is to see."""
    rows = [(row.metric, ours(row)) for row in of_recipe]
    known = [f"target: {target(row)}" for row in of_recipe if row.target] + [recipe.remark]
    devices, commits = (sorted({getattr(result, name) for result in results}) for name in ("device", "commit"))
    origin = f"{', '.join(devices)}; commit {', '.join(commits)}; {_spent(results)}"
    return Section(
        title=recipe.title,
        blocks=[
            Text(text="; ".join(filter(None, [f"{recipe.name}: {recipe.protocol}", *known]))),
            Table(columns=("metric", "ours"), rows=rows),
            Text(text=origin, is_aside=True),
            *figures.blocks(recipe, results),
        ],
    )


def _spent(results: Sequence[Result]) -> str:
    """The seconds of a seed, from those that were run in one go."""
    whole = [result.seconds for result in results if not result.resumed]
    return f"{np.mean(whole):.0f} s a seed" if whole else "resumed, so that its seconds are not known"

"""The report: results on disk to a table beside the paper's, and to pages with all figures. Nothing is run again.

The first page has the verdicts, and each experiment a page of its own in a folder beside it, with the one file that
draws their charts. The same results give the same report, byte for byte.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from romae.experiments import figures
from romae.experiments.paper import FILE, Judgement, judge, read_items
from romae.experiments.recipe import Recipe, discover
from romae.experiments.results import TRIALS, Result, is_seed, renamed
from romae.experiments.summary import Row, all_rows, number, ours, published, read_all, summarise, target
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

INTRODUCTION = """\
# Reproduction

Written by `romae report` from the files in `results/`; no number of ours is entered by hand. Ours is mean ± standard
deviation over (n) seeds, each with weights and training masks of its own. Data that are generated, and folds, are its
own too; official splits, and PhysioNet's one split with its test masks, are the same for all. Baselines and floors are
computed on the same test data, over the same seeds.
A floor is what the best possible prediction leaves: a number below it would be a mistake of ours. How each row is run:
`romae show NAME`; what was tried: [Trials](docs/log.md).

A published number is reproduced if ours differs from it by no more than the spread over seeds, but 1 % at least and 5 %
at most; it is beaten or missed if ours is better or worse than that. One in other units or on other data is not
comparable. Targets, in the second table, are our own; where one is another recipe, the gain over it is the mean
difference ± standard deviation over (n) seeds that both have. How to read all this, and a page with the plots:
[Reproduction](docs/reproduction.md).
"""


_BEGINNING = INTRODUCTION[: INTRODUCTION.index(" from the files")].encode()


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
    """Write the table and the pages of a folder of results, and return where the table and the first page are.

    Files that are no report are only overwritten by `force`, and those that the report is made from never.
    """
    places = [Path(markdown), Path(folder) / "report.html" if page is None else Path(page)]
    require_results(folder)
    _require_places(places, Path(folder), force)
    table, pages = rendered(folder, places[1].name)
    texts = {places[0]: table} | {places[1].parent / name: text for name, text in pages.items()}
    for path in texts:
        if path.parent.exists() and not path.parent.is_dir():
            raise ValueError(
                f"{path.parent} is a file, where the pages of experiments go; move it, or name another --page"
            )
        if path not in places and path.exists():
            require_free(path, force=force, is_ours=is_plotly if path.suffix == ".js" else is_page)
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole_text(path, text)
    return places


def rendered(folder: str | Path, name: str = "report.html") -> tuple[str, dict[str, str]]:
    """The table of a folder of results, and its pages by their addresses from where the first one, `name`, lies."""
    results = read_all(folder)
    rows = all_rows(results)
    judged = judge(read_items(folder), rows, Path(folder) / "benchmark")
    return to_markdown(rows, judged), to_pages(results, rows, judged, name)


def require_results(folder: str | Path) -> None:
    """Refuse a folder that is not there."""
    if not Path(folder).is_dir():
        raise ValueError(f"there is no folder of results {folder}; `romae run NAME` makes one")


def _require_places(places: Sequence[Path], folder: Path, force: bool) -> None:
    """Refuse what could not be written, or would be written over, before anything is."""
    if len({place.resolve() for place in places}) < len(places):
        raise ValueError(f"the table and the page cannot both be {places[0]}; give them two names")
    inputs = [*folder.rglob("*.json"), folder / FILE]
    for place, is_ours in zip(places, (_is_table, is_page), strict=True):
        require_free(place, force=force, inputs=inputs, is_ours=is_ours)


def _is_table(path: Path) -> bool:
    """Whether a file is the table of a report."""
    with path.open("rb") as file:
        return file.read(len(_BEGINNING)) == _BEGINNING


# The table


def to_markdown(rows: Sequence[Row], judged: Sequence[Judgement]) -> str:
    """What became of the paper's tables and figures, the headline of every recipe, then all other numbers."""
    headlines = [row for row in rows if row.is_headline]
    others = [row for row in rows if not row.is_headline]
    lines = [INTRODUCTION]
    if judged:
        lines += [
            "## The paper's tables and figures",
            "",
            *_markdown_table(_JUDGED, [_judgement_cells(judgement) for judgement in judged]),
            "",
        ]
    lines += ["## Every experiment", "", *_markdown_table(_COLUMNS, [_cells(row) for row in headlines])]
    if others:
        lines += ["", "## Further numbers of the same runs", ""]
        lines += _markdown_table(("recipe", "metric", "ours"), [(row.recipe, row.metric, ours(row)) for row in others])
    return "\n".join(lines) + "\n"


_JUDGED = ("of the paper", "with its settings", "with ours", "numbers", "why")
_COLUMNS = ("experiment", "protocol", "ours", "baseline", "floor", "published", "target", "remark")


def _judgement_cells(judgement: Judgement) -> tuple[str, ...]:
    return (
        f"{judgement.item.name}: {judgement.item.about}",
        judgement.paper,
        judgement.tuned,
        judgement.numbers,
        judgement.reason,
    )


def _cells(row: Row) -> tuple[str, ...]:
    return (
        f"{row.paper}: `{row.recipe}`, {row.metric}",
        row.protocol,
        ours(row),
        ", ".join(f"{name} {number(value)}" for name, value in sorted(row.baselines.items(), key=lambda item: item[1])),
        number(row.floor),
        published(row),
        target(row),
        row.remark,
    )


def _markdown_table(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    body = [" | ".join(cell.replace("|", "\\|") for cell in line) for line in cells]
    return [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns), *(f"| {line} |" for line in body)]


# The page


def to_pages(
    results: dict[str, list[Result]], rows: Sequence[Row], judged: Sequence[Judgement], name: str = "report.html"
) -> dict[str, str]:
    """The first page, with verdicts and tables; one for each experiment that has results; and what draws their charts.

    They come by their addresses from where the first one lies.
    """
    beside = Path(name).stem if Path(name).suffix else f"{name}-pages"
    headlines = [row for row in rows if row.is_headline]
    experiments = list(dict.fromkeys(_experiment(row.recipe) for row in headlines))
    with_page = [one for one in experiments if any(runs and _experiment(n) == one for n, runs in results.items())]
    address = {one: f"{beside}/{one}.html" for one in with_page}
    verdicts = [Counter[str](row.verdict for row in headlines if _experiment(row.recipe) == one) for one in experiments]
    summary = Table(
        columns=("experiment", "rows", *_VERDICTS, "others"),
        rows=[
            [one, str(of.total()), *(str(of[word] or "") for word in _VERDICTS), _others(of)]
            for one, of in zip(experiments, verdicts, strict=True)
        ],
        links=[address.get(one, "") for one in experiments],
    )
    cells = [[cell.replace("`", "") for cell in _cells(row)] for row in headlines]
    overview: list[Block] = [
        Table(
            columns=_COLUMNS,
            rows=cells,
            marks=[_MARKS.get(row.verdict, "") for row in headlines],
            links=[address.get(_experiment(row.recipe), "") if row.n else "" for row in headlines],
        )
    ]
    if bars := {row.recipe: _bars(row) for row in headlines if row.mean is not None}:
        overview.insert(0, Choice(label="Experiment", charts=bars))
    first = [Section(title="Targets, by experiment", blocks=[summary]), Section(title="Every row", blocks=overview)]
    if judged:
        paper = Table(columns=_JUDGED, rows=[_judgement_cells(judgement) for judgement in judged])
        first.insert(1, Section(title="The paper's tables and figures", blocks=[paper]))
    pages = {name: to_html("Reproduction", first, lead=_LEAD, plotly=f"{beside}/{_PLOTLY}")}
    for one in with_page:
        recipes = [(discover()[n], runs) for n, runs in results.items() if runs and _experiment(n) == one]
        sections = [_section(recipe, runs) for recipe, runs in recipes]
        back = ("All experiments", f"../{name}")
        pages[address[one]] = to_html(one, sections, lead=_LEAD, back=back, plotly=_PLOTLY)
    return pages | {f"{beside}/{_PLOTLY}": plotly_script()}


_PLOTLY = "plotly.min.js"  # a page of its own would carry its 5 MB each time
_VERDICTS = ("reached", "missed")


def _experiment(recipe: str) -> str:
    """What a recipe is a row of: the first part of its name."""
    return recipe.split("/")[0]


def _others(verdicts: Counter[str]) -> str:
    """How often there is any other verdict than those that have a column of their own."""
    return ", ".join(f"{n} {verdict}" for verdict, n in verdicts.items() if verdict not in _VERDICTS)


_MARKS = {"reached": "reached", "missed": "missed", "below its floor": "missed", "seeds failed": "missed"}
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


def _section(recipe: Recipe, results: Sequence[Result]) -> Section:
    """One recipe: its numbers, where they come from, and all there is to see."""
    rows = [(row.metric, ours(row)) for row in summarise(recipe, results)]
    devices, commits = (sorted({getattr(result, name) for result in results}) for name in ("device", "commit"))
    origin = f"{', '.join(devices)}; commit {', '.join(commits)}; {_spent(results)}"
    return Section(
        title=recipe.title,
        blocks=[
            Text(text=f"{recipe.name}: {recipe.protocol}"),
            Table(columns=("metric", "ours"), rows=rows),
            Text(text=origin, is_aside=True),
            *figures.blocks(recipe, results),
        ],
    )


def _spent(results: Sequence[Result]) -> str:
    """The seconds of a seed, from those that were run in one go."""
    whole = [result.seconds for result in results if not result.resumed]
    return f"{np.mean(whole):.0f} s a seed" if whole else "resumed, so that its seconds are not known"

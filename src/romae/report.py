"""The report: results on disk to a table beside the paper's, and to one page with all figures. Nothing is run again.

A row is one metric of one recipe over its seeds. The same results give the same report, byte for byte.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from romae import result_blocks
from romae.charts import comparison
from romae.jobs import write_whole
from romae.page import Block, Chart, Choice, Section, Table, Text, to_html
from romae.recipe import Recipe, discover
from romae.results import TRIALS, Result, results_of

OURS = "RoMAE"
Verdict = Literal["reached", "missed", "no target", "no result", "below its floor"]

INTRODUCTION = """\
# Reproduction

Written by `romae report` from the files in `results/`; nothing is entered by hand. Ours is mean ± standard deviation
over (n) seeds, each with data, weights and masks of its own. Baselines and floors are computed on the same test data.
A floor is what the best possible prediction leaves: a number below it would be a mistake of ours. How each row is run:
`romae show NAME`; what was tried: [docs/experiments.md](docs/experiments.md).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One metric of one recipe. Only the headline metric has baselines, a floor, a published value and a verdict."""

    recipe: str
    title: str
    paper: str
    protocol: str
    metric: str
    is_headline: bool
    mean: float | None
    std: float | None
    n: int
    n_planned: int
    missing_seeds: tuple[int, ...]
    baselines: dict[str, float]
    floor: float | None
    published: float | None
    is_comparable: bool
    target: str
    limit: float | None
    verdict: Verdict
    remark: str


def summarise(recipe: Recipe, results: Sequence[Result]) -> list[Row]:
    """The rows of one recipe, the headline first; without results, a row that says so."""
    names = [recipe.metric]
    names += sorted({name for result in results for name in result.metrics} - {recipe.metric})
    return [_row(recipe, results, name) for name in names]


def _row(recipe: Recipe, results: Sequence[Result], metric: str) -> Row:
    is_headline = metric == recipe.metric
    values = [result.metrics[metric] for result in results if result.metrics.get(metric) is not None]
    seeds = {result.seed for result in results}
    baselines, floor, limit = _beside(recipe, results) if is_headline else ({}, None, None)
    mean = float(np.mean(values)) if values else None
    return Row(
        recipe=recipe.name,
        title=recipe.title,
        paper=recipe.paper,
        protocol=recipe.protocol,
        metric=metric,
        is_headline=is_headline,
        mean=mean,
        std=float(np.std(values, ddof=1)) if len(values) > 1 else None,
        n=len(values),
        n_planned=len(recipe.seeds),
        missing_seeds=tuple(seed for seed in recipe.seeds if seed not in seeds),
        baselines=baselines,
        floor=floor,
        published=recipe.published if is_headline else None,
        is_comparable=recipe.comparable,
        target=recipe.target.words(recipe.better) if is_headline and recipe.target else "",
        limit=limit,
        verdict=_verdict(recipe, mean, floor, limit),
        remark=recipe.remark if is_headline else "",
    )


def _beside(recipe: Recipe, results: Sequence[Result]) -> tuple[dict[str, float], float | None, float | None]:
    """The mean of each baseline and of the floor over seeds, and what the target makes of them."""
    names = sorted({name for result in results for name in result.baselines})
    baselines = {
        name: float(np.mean([one.baselines[name] for one in results if name in one.baselines])) for name in names
    }
    floors = [result.floor for result in results if result.floor is not None]
    floor = float(np.mean(floors)) if floors else None
    return baselines, floor, recipe.target.limit(baselines, floor, recipe.better) if recipe.target else None


def _verdict(recipe: Recipe, mean: float | None, floor: float | None, limit: float | None) -> Verdict:
    if mean is None:
        return "no result"
    sign = 1 if recipe.better == "lower" else -1
    if floor is not None and sign * mean < sign * floor:
        return "below its floor"
    if limit is None:
        return "no target"
    return "reached" if sign * mean <= sign * limit else "missed"


def read_all(folder: str | Path) -> dict[str, list[Result]]:
    """The results of every recipe by its name, in the order of the recipes."""
    return {name: results_of(name, folder) for name in discover()}


def all_rows(results: dict[str, list[Result]]) -> list[Row]:
    return [row for name, found in results.items() for row in summarise(discover()[name], found)]


def strangers(folder: str | Path) -> list[str]:
    """Folders that hold what looks like results, but of no recipe that is known."""
    root, found = Path(folder), set()
    for path in root.rglob("*.json"):
        name = path.parent.relative_to(root).as_posix()
        if path.stem.isdigit() and name not in discover() and not name.startswith(f"{TRIALS}/"):
            found.add(name)
    return sorted(found)


def write(
    folder: str | Path, *, markdown: str | Path = "REPRODUCTION.md", page: str | Path | None = None
) -> list[Path]:
    """Write the table and the page of a folder of results, and return where they are."""
    if not Path(folder).is_dir():
        raise ValueError(f"there is no folder of results {folder}; `romae run NAME` makes one")
    results = read_all(folder)
    page = Path(folder) / "report.html" if page is None else Path(page)
    texts = {Path(markdown): to_markdown(all_rows(results)), page: to_page(results)}
    for path, text in texts.items():
        write_whole(path, partial(Path.write_text, data=text, encoding="utf-8"))
    return list(texts)


def as_json(row: Row) -> dict[str, Any]:
    return asdict(row)


# The table


def to_markdown(rows: Sequence[Row]) -> str:
    """The headline of every recipe in one table, then all other numbers."""
    headlines = [row for row in rows if row.is_headline]
    others = [row for row in rows if not row.is_headline]
    lines = [INTRODUCTION, *_markdown_table(_COLUMNS, [_cells(row) for row in headlines])]
    if others:
        lines += ["", "## Further numbers of the same runs", ""]
        lines += _markdown_table(("recipe", "metric", "ours"), [(row.recipe, row.metric, ours(row)) for row in others])
    return "\n".join(lines) + "\n"


_COLUMNS = ("experiment", "protocol", "ours", "baseline", "floor", "published", "target", "remark")


def _cells(row: Row) -> tuple[str, ...]:
    return (
        f"{row.paper}: `{row.recipe}`, {row.metric}",
        row.protocol,
        ours(row),
        ", ".join(f"{name} {number(value)}" for name, value in sorted(row.baselines.items(), key=lambda one: one[1])),
        number(row.floor),
        published(row),
        f"{row.target}: {row.verdict}" if row.target else row.verdict,
        row.remark,
    )


def ours(row: Row) -> str:
    """Mean ± standard deviation (n), and how many seeds are missing."""
    if row.mean is None:
        return "no result yet"
    spread = "" if row.std is None else f" ± {row.std:.2g}"
    missing = f", {len(row.missing_seeds)} of {row.n_planned} seeds missing" if row.missing_seeds else ""
    return f"{number(row.mean)}{spread} ({row.n}{missing})"


def published(row: Row) -> str:
    if row.published is None:
        return ""
    return number(row.published) + ("" if row.is_comparable else " (not comparable)")


def number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _markdown_table(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    body = [" | ".join(cell.replace("|", "\\|") for cell in line) for line in cells]
    return [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns), *(f"| {line} |" for line in body)]


# The page


def to_page(results: dict[str, list[Result]]) -> str:
    """One self-contained page: the table, then numbers and figures of every recipe that has results."""
    headlines = [row for row in all_rows(results) if row.is_headline]
    cells = [[cell.replace("`", "") for cell in _cells(row)] for row in headlines]
    marks = [_MARKS.get(row.verdict, "") for row in headlines]
    overview: list[Block] = [Table(columns=_COLUMNS, rows=cells, marks=marks)]
    if bars := {row.recipe: _bars(row) for row in headlines if row.mean is not None}:
        overview.insert(0, Choice(label="Experiment", charts=bars))
    sections = [_section(discover()[name], found) for name, found in results.items() if found]
    return to_html("Reproduction", [Section(title="All experiments", blocks=overview), *sections], lead=_LEAD)


_MARKS = {"reached": "reached", "missed": "missed", "below its floor": "missed"}
_LEAD = "Every experiment beside baselines on the same test data, floors and published values. Nothing is run again."


def _bars(row: Row) -> Chart:
    """The headline of one recipe beside all that it is compared with, smallest first."""
    assert row.mean is not None
    values = {OURS: row.mean, **row.baselines}
    if row.floor is not None:
        values["floor"] = row.floor
    if row.published is not None:
        values["published" if row.is_comparable else "published (not comparable)"] = row.published
    ordered = dict(sorted(values.items(), key=lambda one: one[1]))
    caption = f"{row.paper}: {row.title}. Ours is {ours(row)}."
    return comparison(ordered, ours=OURS, metric=row.metric, caption=caption)


def _section(recipe: Recipe, results: Sequence[Result]) -> Section:
    """One recipe: its numbers, where they come from, and all there is to see."""
    rows = [(row.metric, ours(row)) for row in summarise(recipe, results)]
    devices, commits = (sorted({getattr(one, name) for one in results}) for name in ("device", "commit"))
    seconds = float(np.mean([result.seconds for result in results]))
    origin = f"{', '.join(devices)}; commit {', '.join(commits)}; {seconds:.0f} s a seed"
    return Section(
        title=recipe.title,
        blocks=[
            Text(text=f"{recipe.name}: {recipe.protocol}"),
            Table(columns=("metric", "ours"), rows=rows),
            Text(text=origin, is_aside=True),
            *result_blocks.blocks(recipe, results),
        ],
    )

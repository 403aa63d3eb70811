"""Rows of the report: what the results of a recipe come to, beside what they are compared with.

A row is one metric of one recipe over its seeds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from romae.recipe import Recipe, Target, discover
from romae.results import Result, results_of

Verdict = Literal["reached", "missed", "no target", "no result", "nothing to compare with yet", "below its floor"]


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
    better: Literal["lower", "higher"]
    target: str
    limit: float | None
    verdict: Verdict
    remark: str


def read_all(folder: str | Path) -> dict[str, list[Result]]:
    """The results of every recipe by its name, in the order of the recipes."""
    return {name: results_of(name, folder) for name in discover()}


def all_rows(results: Mapping[str, Sequence[Result]]) -> list[Row]:
    """The rows of all recipes; those whose target is another recipe are held against its mean."""
    means = {name: _mean(found, discover()[name].metric) for name, found in results.items()}
    return [row for name, found in results.items() for row in summarise(discover()[name], found, means)]


def summarise(recipe: Recipe, results: Sequence[Result], means: Mapping[str, float | None] | None = None) -> list[Row]:
    """The rows of one recipe, the headline first; without results, a row that says so.

    `means` are the headlines of other recipes by their names.
    """
    names = [recipe.metric]
    names += sorted({name for result in results for name in result.metrics} - {recipe.metric})
    return [_row(recipe, results, name, means or {}) for name in names]


def _values(results: Sequence[Result], metric: str) -> list[float]:
    return [result.metrics[metric] for result in results if result.metrics.get(metric) is not None]


def _mean(results: Sequence[Result], metric: str) -> float | None:
    values = _values(results, metric)
    return float(np.mean(values)) if values else None


def _row(recipe: Recipe, results: Sequence[Result], metric: str, means: Mapping[str, float | None]) -> Row:
    is_headline = metric == recipe.metric
    values, mean = _values(results, metric), _mean(results, metric)
    seeds = {result.seed for result in results}
    baselines, floor = _beside(results) if is_headline else ({}, None)
    target = recipe.target if is_headline else None
    limit = None if target is None else target.limit(baselines, floor, recipe.better, means)
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
        better=recipe.better,
        target="" if target is None else target.words(recipe.better),
        limit=limit,
        verdict=_verdict(target, recipe.better, mean, floor, limit, means),
        remark=recipe.remark if is_headline else "",
    )


def _beside(results: Sequence[Result]) -> tuple[dict[str, float], float | None]:
    """The mean of each baseline and of the floor over seeds."""
    names = sorted({name for result in results for name in result.baselines})
    baselines = {
        name: float(np.mean([one.baselines[name] for one in results if name in one.baselines])) for name in names
    }
    floors = [result.floor for result in results if result.floor is not None]
    return baselines, float(np.mean(floors)) if floors else None


def _verdict(
    target: Target | None,
    better: Literal["lower", "higher"],
    mean: float | None,
    floor: float | None,
    limit: float | None,
    means: Mapping[str, float | None],
) -> Verdict:
    if mean is None:
        return "no result"
    sign = 1 if better == "lower" else -1
    if floor is not None and sign * mean < sign * floor:
        return "below its floor"
    if limit is not None and sign * mean > sign * limit:
        return "missed"
    if target is not None and any(means.get(name) is None for name, _ in target.beyond):
        return "nothing to compare with yet"
    return "no target" if limit is None else "reached"


# In words


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

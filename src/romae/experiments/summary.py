"""Rows of the report: what the results of a recipe come to, beside what they are compared with.

A row is one metric of one recipe over its seeds. A seed whose result holds no number failed: it is named, and where
one did, nothing is called reached. Nor is it where seeds are missing, or where results were made with other settings
than the recipe has now.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from romae.config import flat
from romae.experiments.recipe import Better, Recipe, Target, discover, gained
from romae.experiments.results import Result, results_of

Verdict = Literal[
    "reached",
    "missed",
    "no target",
    "no result",
    "nothing to compare with yet",
    "below its floor",
    "seeds failed",
    "settings changed since",
    "not all seeds yet",
]
CHANCE = 0.05  # of calling a gain one that is none


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """By how much a recipe is better than another, from seed to seed: of the seeds that both have, mean and spread."""

    over: str
    margin: float
    mean: float
    std: float | None
    n: int

    @property
    def least(self) -> float | None:
        """What it must exceed: the margin or, where none is asked, what chance gives; one seed cannot tell."""
        from scipy.special import stdtrit  # scipy.stats takes a second more to import

        if self.margin:
            return self.margin
        return None if self.std is None else float(stdtrit(self.n - 1, 1 - CHANCE)) * self.std / math.sqrt(self.n)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One metric of one recipe. Only the headline metric has baselines, a floor, a published value and a verdict.

    `stage` is the kind of the last stage of training, which says what is answered.
    """

    recipe: str
    title: str
    paper: str
    protocol: str
    stage: str
    metric: str
    is_headline: bool
    by_seed: dict[int, float]
    mean: float | None
    std: float | None
    n: int
    n_planned: int
    missing_seeds: tuple[int, ...]
    failed_seeds: tuple[int, ...]
    changed_settings: tuple[str, ...]
    baselines: dict[str, float]
    floor: float | None
    published: float | None
    is_comparable: bool
    better: Better
    target: str
    limit: float | None
    gains: tuple[Gain, ...]
    verdict: Verdict
    remark: str


def read_all(folder: str | Path) -> dict[str, list[Result]]:
    """The results of every recipe by its name, in the order of the recipes."""
    return {name: results_of(name, folder) for name in discover()}


def all_rows(results: Mapping[str, Sequence[Result]]) -> list[Row]:
    """The rows of all recipes; those whose target is another recipe are held against it, seed by seed."""
    others = {name: _unchanged(discover()[name], runs) for name, runs in results.items()}
    return [row for name, runs in results.items() for row in summarise(discover()[name], runs, others)]


def summarise(
    recipe: Recipe, results: Sequence[Result], others: Mapping[str, Mapping[int, float]] | None = None
) -> list[Row]:
    """The rows of one recipe, the headline first; without results, a row that says so.

    `others` are the headlines of other recipes by their names and seeds.
    """
    names = [recipe.metric]
    names += sorted({name for result in results for name in result.metrics} - {recipe.metric})
    changed = {result.seed: _changed(recipe, result) for result in results}
    return [_row(recipe, results, name, others or {}, changed) for name in names]


def _value_by_seed(results: Sequence[Result], metric: str) -> dict[int, float]:
    """The metric by seed, of those that have a number."""
    values = {result.seed: result.metrics.get(metric) for result in results}
    return {seed: value for seed, value in values.items() if value is not None and math.isfinite(value)}


def _unchanged(recipe: Recipe, results: Sequence[Result]) -> dict[int, float]:
    """The headline by seed, of the results that were made with the settings of today."""
    return _value_by_seed([result for result in results if not _changed(recipe, result)], recipe.metric)


def _row(
    recipe: Recipe,
    results: Sequence[Result],
    metric: str,
    others: Mapping[str, Mapping[int, float]],
    changes: Mapping[int, Sequence[str]],
) -> Row:
    is_headline = metric == recipe.metric
    numbers = _value_by_seed(results, metric)
    mean, std = _mean_and_std(list(numbers.values()))
    seeds = {result.seed for result in results if is_headline or metric in result.metrics}
    failed = tuple(sorted(seeds - set(numbers)))
    baselines, floor = (
        _baselines_and_floor([result for result in results if result.seed in numbers]) if is_headline else ({}, None)
    )
    target = recipe.target if is_headline else None
    limit = None if target is None else target.limit(baselines, floor, recipe.better)
    gains = () if target is None else _gains(target, recipe.better, numbers, others)
    verdict = _verdict(target, recipe.better, mean, floor, limit, gains)
    changed = tuple(sorted({path for seed in numbers for path in changes[seed]}))
    missing = tuple(seed for seed in recipe.seeds if seed not in {*numbers, *failed})
    if seeds and verdict != "below its floor":
        is_short = bool(missing) or any(gain.n < len(numbers) for gain in gains)
        verdict = blemish(failed, changed, is_short) or verdict
    return Row(
        recipe=recipe.name,
        title=recipe.title,
        paper=recipe.paper,
        protocol=recipe.protocol,
        stage=recipe.stages[-1].kind,
        metric=metric,
        is_headline=is_headline,
        by_seed=dict(sorted(numbers.items())),
        mean=mean,
        std=std,
        n=len(numbers),
        n_planned=len(recipe.seeds),
        missing_seeds=missing,
        failed_seeds=failed,
        changed_settings=changed,
        baselines=baselines,
        floor=floor,
        published=recipe.published if is_headline else None,
        is_comparable=recipe.comparable,
        better=recipe.better,
        target="" if target is None else target.words(recipe.better),
        limit=limit,
        gains=gains,
        verdict=verdict,
        remark=recipe.remark if is_headline else "",
    )


def _changed(recipe: Recipe, result: Result) -> list[str]:
    """The settings in which a result differs from its recipe.

    Where it ran, wavelengths from its data and settings that there were not yet do not count.
    """
    free = ("model.ladders",) if recipe.ladder == "data" else ()
    then, now = (dict(flat(config)) for config in (result.config, recipe.overridden(*result.overrides).config))
    changed = [path for path, value in then.items() if path not in now or now[path] != value]
    return [path for path in changed if not path.startswith(free) and not path.endswith(".train.device")]


def _mean_and_std(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Mean and standard deviation, as far as there are values enough."""
    mean = float(np.mean(values)) if len(values) > 0 else None
    return mean, float(np.std(values, ddof=1)) if len(values) > 1 else None


def _gains(
    target: Target,
    better: Better,
    numbers: Mapping[int, float],
    others: Mapping[str, Mapping[int, float]],
) -> tuple[Gain, ...]:
    """What is gained over each recipe of the target that shares seeds with this one."""
    gains = []
    for name, margin in target.beyond:
        theirs = others.get(name, {})
        mean, std = _mean_and_std(
            [gained(ours, theirs[seed], better) for seed, ours in numbers.items() if seed in theirs]
        )
        if mean is not None:
            gains.append(Gain(over=name, margin=margin, mean=mean, std=std, n=len(numbers.keys() & theirs)))
    return tuple(gains)


def _baselines_and_floor(results: Sequence[Result]) -> tuple[dict[str, float], float | None]:
    """The mean of each baseline and of the floor over seeds."""
    names = sorted({name for result in results for name in result.baselines})
    baselines = {
        name: float(np.mean([result.baselines[name] for result in results if name in result.baselines]))
        for name in names
    }
    floors = [result.floor for result in results if result.floor is not None]
    return baselines, float(np.mean(floors)) if floors else None


def _verdict(
    target: Target | None,
    better: Better,
    mean: float | None,
    floor: float | None,
    limit: float | None,
    gains: Sequence[Gain],
) -> Verdict:
    if mean is None:
        return "no result"
    if floor is not None and gained(mean, floor, better) > 0:
        return "below its floor"
    falls_short = limit is not None and gained(mean, limit, better) < 0
    if falls_short or any(gain.mean <= (gain.least or 0) for gain in gains):
        return "missed"
    if target is not None and sum(gain.least is not None for gain in gains) < len(target.beyond):
        return "nothing to compare with yet"
    return "no target" if limit is None and not gains else "reached"


def blemish(failed: Sequence[int], changed: Sequence[str], is_short: bool) -> Verdict | None:
    """Why nothing can be said of a row yet."""
    if failed:
        return "seeds failed"
    if changed:
        return "settings changed since"
    return "not all seeds yet" if is_short else None


# In words


def ours(row: Row) -> str:
    """Mean ± standard deviation (n), how many seeds are not there, which failed, and which settings are others now."""
    failed = f"seed{'s' * (len(row.failed_seeds) > 1)} {', '.join(map(str, row.failed_seeds))} failed"
    if row.mean is None:
        return f"no number: {failed}" if row.failed_seeds else "no result yet"
    label = "seeds missing" if row.is_headline else "without it"
    missing = f", {len(row.missing_seeds)} of {row.n_planned} {label}" if row.missing_seeds else ""
    changed = f", with another {', '.join(row.changed_settings)} than now" if row.changed_settings else ""
    return f"{with_spread(row)} ({row.n}{missing}{f', {failed}' if row.failed_seeds else ''}{changed})"


def target(row: Row) -> str:
    """What is asked, what is gained over other recipes, and the verdict."""
    gains = "".join(f"; gain over {gain.over} {with_spread(gain)} ({gain.n})" for gain in row.gains)
    return f"{row.target}{gains}: {row.verdict}" if row.target else row.verdict


def with_spread(score: Row | Gain) -> str:
    """Mean ± standard deviation, or as much of it as there is."""
    if score.std is None or score.mean is None:
        return number(score.mean)
    std = 0.0 if score.std < 1e-9 * abs(score.mean) else score.std  # not what rounding leaves
    return f"{number(score.mean)} ± {std:.2g}"


def published(row: Row) -> str:
    """The published number, in brackets where it is not comparable."""
    text = number(row.published)
    return text if row.is_comparable or not text else f"({text})"


def number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"

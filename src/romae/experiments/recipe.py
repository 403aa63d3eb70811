"""Recipes: an experiment is a value.

A recipe says where its data come from, which model goes through which stages, how the answer is judged, and which
numbers it stands beside. Each row of a table is a recipe; the rows of one table share a file of the folder `recipes`,
which lists them in `RECIPES`.
"""

import difflib
import math
import pkgutil
import re
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

from romae.config import override, to_dict
from romae.data.ladders import fit_ladders
from romae.data.scaling import Scaling
from romae.data.schema import Schema
from romae.experiments import results
from romae.experiments.results import Losses, Result
from romae.extras import require_extra
from romae.model.config import ModelConfig
from romae.model.tasks import Task
from romae.tokens.sample import Sample
from romae.training.stages import Stage, run_stages

require_extra("experiments", "recipes need", "matplotlib")  # the others are asked for where they are used

C = TypeVar("C")
Better = Literal["lower", "higher"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Splits:
    """The data of one seed. Nothing is chosen on `test`; `unlabelled` samples are for pre-training only."""

    train: Sequence[Sample]
    test: Sequence[Sample]
    validation: Sequence[Sample] | None = None
    unlabelled: Sequence[Sample] | None = None
    scaling: Scaling | None = None
    schema: Schema | None = None
    seed: int = 0

    @classmethod
    def of(cls, parts: Mapping[str, Sequence[Sample]], seed: int, *, scaling: Scaling | None = None) -> "Splits":
        """The splits that a generator made: train, test and perhaps validation."""
        validation = parts.get("validation") or None
        return cls(train=parts["train"], test=parts["test"], validation=validation, scaling=scaling, seed=seed)


class Measured(NamedTuple):
    """How a task did on the test samples.

    Baselines and the floor are in the units of the recipe's metric and computed on the same data. `figure` holds small
    arrays that the source can draw from.
    """

    metrics: dict[str, float]
    baselines: dict[str, float] = {}  # noqa: RUF012
    floor: float | None = None
    figure: dict[str, Any] = {}  # noqa: RUF012


@runtime_checkable
class Source(Protocol):
    """Where the data of an experiment come from and how an answer is judged: a frozen value."""

    def splits(self, seed: int) -> Splits:
        """The data of a seed."""
        ...

    def measure(self, task: Task, splits: Splits) -> Measured:
        """Hold the final task against the test samples."""
        ...

    def shaped(self, model: ModelConfig) -> ModelConfig:
        """The model for these data, where settings of theirs decide what a token and its position are."""
        return model

    def draw(self, figures: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """Figures of what was measured over all seeds, by their captions; a dictionary of figures is a choice.

        Those of plotly can be zoomed into (pages/charts.py), those of matplotlib are pictures (pages/plots.py).
        """
        return {}


def gained(ours: float, other: float, better: Better) -> float:
    """By how much a number is better than another."""
    difference = ours - other
    return difference if better == "higher" else -difference


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a number has to reach: a value, a multiple of the floor, multiples of baselines; all that are given.

    The baseline "best" is whichever is the best. `beyond` names other recipes, and by how much theirs must be beaten,
    seed by seed. Over several seeds, floor and baselines are means like the number.
    """

    value: float | None = None
    of_floor: float | None = None
    of_baselines: tuple[tuple[str, float], ...] = ()
    beyond: tuple[tuple[str, float], ...] = ()

    def limit(self, baselines: Mapping[str, float], floor: float | None, better: Better) -> float | None:
        """The strictest of value, floor and baselines; what is not known sets none."""
        strictest = min if better == "lower" else max
        limits = [] if self.value is None else [self.value]
        if self.of_floor is not None and floor is not None:
            limits.append(self.of_floor * floor)
        with_best = {**baselines, "best": strictest(baselines.values())} if baselines else {}
        limits += [factor * with_best[name] for name, factor in self.of_baselines if name in with_best]
        return strictest(limits) if limits else None

    def words(self, better: Better) -> str:
        """Such as: ≤ best baseline, ≤ 0.5 x linear."""
        phrases = [] if self.value is None else [f"{self.value:g}"]
        phrases += [] if self.of_floor is None else [f"{self.of_floor:g} x floor"]
        for name, factor in self.of_baselines:
            phrases.append(("" if factor == 1 else f"{factor:g} x ") + ("best baseline" if name == "best" else name))
        for name, margin in self.beyond:
            phrases.append(name + (f" {'-' if better == 'lower' else '+'} {margin:g}" if margin else ""))
        return ", ".join(f"{'≤' if better == 'lower' else '≥'} {phrase}" for phrase in phrases)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One row of a table.

    With `ladder="data"` the wavelengths of positions are fitted to the training samples; else they are the paper's.
    `published` counts as a comparison only if it is `comparable`. `trivial` names the baseline that anything learned
    must beat. `quick` holds settings for a run of seconds, which shows that all works and nothing else. `data_set`, a
    name of `romae data list`, and `limits` are for the cards of its models.
    """

    name: str
    title: str
    paper: str
    protocol: str
    data: Source
    model: ModelConfig
    stages: tuple[Stage, ...]
    metric: str
    better: Better = "lower"
    ladder: Literal["paper", "data"] = "paper"
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    published: float | None = None
    comparable: bool = True
    target: Target | None = None
    trivial: str | None = "constant"
    remark: str = ""
    quick: tuple[str, ...] = ()
    data_set: str = ""
    limits: str = ""
    about: str = field(default="", compare=False)

    def overridden(self, *settings: str) -> "Recipe":
        """The recipe with settings replaced: model.…, data.…, ladder, train.… for all stages, or stages.0.… for one."""
        settings_by_part: dict[str, list[str]] = {}
        for setting in settings:
            for part, rest in _addressed(setting, len(self.stages)):
                settings_by_part.setdefault(part, []).append(rest)

        def changed(config: C, part: str) -> C:
            return override(config, *settings_by_part.pop(part)) if part in settings_by_part else config

        stages = tuple(changed(stage, f"stages.{number}") for number, stage in enumerate(self.stages))
        model, data = changed(self.model, "model"), changed(self.data, "data")
        ladder = settings_by_part.pop("ladder", [self.ladder])[-1]
        if settings_by_part:
            number = next(iter(settings_by_part)).removeprefix("stages.")
            raise ValueError(f"{self.name} has no stage {number!r}; its stages are 0 to {len(stages) - 1}")
        return replace(self, stages=stages, model=data.shaped(model), data=data, ladder=ladder)  # type: ignore[arg-type]

    @property
    def config(self) -> dict[str, Any]:
        """All settings, ready for JSON."""
        names = ("data", "model", "ladder", "stages")
        return {name: to_dict(getattr(self, name)) for name in names}


class Finished(NamedTuple):
    """What a run gave, and the model that gave it."""

    result: Result
    task: Task


def run(
    recipe: Recipe,
    seed: int | None = None,
    *,
    quick: bool = False,
    overrides: Sequence[str] = (),
    device: str = "auto",
    out: str | Path | None = None,
    resume: bool = False,
    quiet: bool = False,
) -> Finished:
    """Make the data of a seed, train, and measure.

    The seed decides data, first weights, masks and order; without one, it is that of the settings (train.seed).
    `out` keeps the states of the run in a folder, from which it can be resumed.
    """
    seed, overrides = effective_seed(seed, overrides)
    recipe = recipe.overridden(*(recipe.quick if quick else ()), *overrides)
    recipe = recipe if device == "auto" else recipe.overridden(f"train.device={device}")
    started = time.perf_counter()
    splits = recipe.data.splits(seed)
    _require_samples(recipe, splits)
    model = recipe.model
    if recipe.ladder == "data":
        # Gaps within samples, also where channels are an axis: published results were made so.
        model = replace(model, ladders=fit_ladders(splits.train, splits.scaling, per="sample"))
    is_resumed = resume and out is not None and any(Path(out).glob("*/states/[0-9]*"))
    outcome = run_stages(
        model,
        recipe.stages,
        splits.train,
        validation=splits.validation,
        unlabelled=splits.unlabelled,
        scaling=splits.scaling,
        schema=splits.schema,
        seed=seed,
        out=out,
        resume=resume,
        quiet=quiet,
    )
    measured = recipe.data.measure(outcome.task, splits)
    _require_sound(recipe, measured)
    result = Result(
        recipe=recipe.name,
        protocol=recipe.protocol,
        seed=seed,
        metrics={**measured.metrics},
        baselines=measured.baselines,
        floor=measured.floor,
        published=recipe.published,
        config=replace(recipe, model=model).config,
        overrides=tuple(overrides),
        quick=quick,
        commit=results.commit(),
        device=results.device_name(recipe.stages[-1].train.device),
        versions=results.versions(),
        seconds=round(time.perf_counter() - started, 2),
        n_samples=_sizes(splits),
        resumed=is_resumed,
        figure=measured.figure,
        losses=tuple(
            Losses.of(stage.kind, history.records)
            for stage, history in zip(recipe.stages, outcome.histories, strict=True)
        ),
        views=_diagnostics(outcome.task, splits.test, measured, with_examples=seed == recipe.seeds[0]),
    )
    return Finished(result, outcome.task)


@cache
def discover() -> dict[str, Recipe]:
    """All recipes by name, found in the files of romae/experiments/recipes, each with the docstring of its file."""
    folder = import_module("romae.experiments.recipes")
    recipes: dict[str, Recipe] = {}
    for module in sorted(pkgutil.iter_modules(folder.__path__), key=lambda module: module.name):
        file = import_module(f"romae.experiments.recipes.{module.name}")
        for recipe in getattr(file, "RECIPES", ()):
            if recipe.name in recipes:
                raise ValueError(f"two recipes are called {recipe.name!r}; the second is in {file.__file__}")
            recipes[recipe.name] = replace(recipe, about=(file.__doc__ or "").strip())
    return recipes


def n_parts(share: float) -> int:
    """Into how many parts samples are divided so that one of them is this share."""
    n = round(1 / share) if 0 < share < 1 else 0
    if n < 2 or abs(n * share - 1) > 1e-6:
        raise ValueError(
            f"validation is one part of so many, such as 0.1, 0.125, 0.2 or 0.5 of the samples, not {share:g}"
        )
    return n


def find(name: str) -> Recipe:
    """The recipe of this name; a name of 0.1 is taken for one version, with a warning."""
    if name not in discover() and (today := results.renamed(name)) in discover():
        warnings.warn(f"the recipe {name} is called {today} now; use this name", FutureWarning, stacklevel=2)
        return discover()[today]
    if name not in discover():
        family = [recipe_name for recipe_name in discover() if recipe_name.startswith(f"{name}/")]
        near = family or difflib.get_close_matches(name, discover(), n=3, cutoff=0.4)
        hint = f"do you mean {' or '.join(near)}?" if near else "`romae list` shows what there is"
        raise ValueError(f"there is no recipe {name!r}; {hint}")
    return discover()[name]


def effective_seed(seed: int | None, overrides: Sequence[str]) -> tuple[int, list[str]]:
    """The seed of a run, and the settings without it."""
    for setting in overrides:
        if re.match(r"\s*stages\.\w+\.train(\.seed\s*=|\s*=.*\bseed\b)", setting):
            raise ValueError(f"{setting!r} would be ignored: one seed decides the whole run; give train.seed or --seed")
    seed_settings = [setting for setting in overrides if setting.replace(" ", "").startswith("train.seed=")]
    if not seed_settings:
        return 0 if seed is None else seed, list(overrides)
    text = seed_settings[-1].partition("=")[2].strip()
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"train.seed must be a whole number from 0, not {text!r}")
    if seed is not None and seed != int(text):
        raise ValueError(f"the seed is given twice, as {seed} and by {seed_settings[-1]}; give it once")
    return int(text), [setting for setting in overrides if setting not in seed_settings]


def _sizes(splits: Splits) -> dict[str, int]:
    """How many samples there are of each split that there is."""
    by_name = {name: getattr(splits, name) for name in ("train", "validation", "unlabelled", "test")}
    return {name: len(samples) for name, samples in by_name.items() if samples is not None}


def _require_samples(recipe: Recipe, splits: Splits) -> None:
    for name in ("train", "test"):
        if len(getattr(splits, name)) == 0:
            raise ValueError(f"the data of {recipe.name} have no {name} samples; look at the settings data.…")


def _require_sound(recipe: Recipe, measured: Measured) -> None:
    if recipe.metric not in measured.metrics:
        raise ValueError(f"{recipe.name} promises {recipe.metric!r}, but measured {sorted(measured.metrics)}")
    for name, value in measured.baselines.items():
        if not math.isfinite(value):
            raise ValueError(f"{recipe.name} measured {value} as the baseline {name!r}, which is no number; mend it")


def _diagnostics(task: Task, test: Sequence[Sample], measured: Measured, *, with_examples: bool) -> dict[str, Any]:
    """What a page shows of the task on the test samples, beside what the source has to show itself."""
    from romae.pages.diagnostics import diagnose

    try:
        return diagnose(task, test, with_examples=with_examples, without=measured.figure)
    except Exception as error:  # a source may have samples of its own type; hours of training are not lost for a figure
        warnings.warn(f"the report will show no samples of this run: {error}", stacklevel=3)
        return {}


def _addressed(setting: str, n_stages: int) -> list[tuple[str, str]]:
    """The parts of a recipe that a setting addresses, each with the rest of it."""
    part, dot, rest = setting.partition(".")
    if part == "train" and dot:
        return [(f"stages.{i}", setting) for i in range(n_stages)]
    if part == "stages" and dot:
        number, _, rest = rest.partition(".")
        return [(f"stages.{number}", rest)]
    if part in ("model", "data") and dot:
        return [(part, rest)]
    if setting in ("ladder=paper", "ladder=data"):
        return [("ladder", setting.removeprefix("ladder="))]
    raise ValueError(
        f"a recipe has no setting {setting!r}; there are model.…, data.…, train.…, stages.0.…, ladder=paper or data, "
        "as in train.epochs=6"
    )

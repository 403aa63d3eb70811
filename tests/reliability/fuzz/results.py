"""Results of recipes on disk, damaged: read one by one, listed, and rendered as the report.

The oracle: what is read says what the file says, rows have the mean of the numbers in the files, and no command
changes a result.
"""

import json
import math
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fuzz import hostile
from fuzz.commands import digests, require_untouched, run_command
from fuzz.judging import Trial, answered, require
from romae.config import to_dict
from romae.experiments import report, summary
from romae.experiments.paper import read_items
from romae.experiments.recipe import discover
from romae.experiments.results import Result, read_result

KEPT = Path(__file__).resolve().parents[3] / "results"
RECIPES = ("positions/tiny-cls", "spirals/a-tuned", "pendulum/tuned", "physionet/mortality-tuned")


@cache
def _bodies(recipe: str) -> tuple[dict[str, Any], ...]:
    files = [KEPT / recipe / f"{seed}.json" for seed in (0, 1)]
    bodies = [json.loads(path.read_bytes()) for path in files if path.is_file()]
    return tuple(_shortened(body) for body in bodies)


def _shortened(body: dict[str, Any]) -> dict[str, Any]:
    """A result with a few of its reports and points, which are as good as all for what is tried here."""
    for stage in body.get("losses", ()):
        for key in ("step", "loss", "validation"):
            stage[key] = stage.get(key, [])[:4]
    views = body.get("views", {})
    if "reconstructions" in views:
        views["reconstructions"] = views["reconstructions"][:1]
    return body


def attempt(trial: Trial) -> None:
    trial.choose([_one, _one, _one, _one, _rows, _rows, _listed, _report, _figures, _paper])(trial)


def _damaged(trial: Trial, body: dict[str, Any]) -> bytes:
    if trial.chance(0.2):
        return hostile.damaged(trial, json.dumps(body).encode())
    return hostile.damaged_json(trial, body).encode("utf-8", "surrogatepass")


def _folder(trial: Trial, recipe: str) -> list[Path]:
    paths = []
    for seed, body in enumerate(_bodies(recipe)):
        path = trial.folder / "results" / recipe / f"{seed}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(body))
        paths.append(path)
    trial.note(recipe)
    if not trial.is_sound:
        paths[0].write_bytes(_damaged(trial, _bodies(recipe)[0]))
    return paths


def _one(trial: Trial) -> None:
    trial.is_sound = trial.chance(0.1)
    [path, *_] = _folder(trial, trial.choose(RECIPES))
    result = read_result(path)
    with answered("a result"):
        _says_the_same(result, json.loads(path.read_bytes()))


def _says_the_same(result: Result, body: dict[str, Any]) -> None:
    said = to_dict(result)
    for key, value in body.items():
        require(_equal(said[key], value), f"{key} is not what the file says")
    json.dumps(result.summary)
    result.path("results")


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return set(b) <= set(a) and all(_equal(a[key], b[key]) for key in b)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_equal, a, b))
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b):
        return True
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)


def _rows(trial: Trial) -> None:
    trial.is_sound = trial.chance(0.1)
    recipe = trial.choose(RECIPES)
    paths = _folder(trial, recipe)
    results = summary.results_of(recipe, trial.folder / "results")
    rows = summary.summarise(discover()[recipe], results)
    with answered("the rows of a recipe"):
        metric = discover()[recipe].metric
        numbers = [json.loads(path.read_bytes())["metrics"].get(metric) for path in paths]
        numbers = [x for x in numbers if isinstance(x, int | float) and math.isfinite(x)]
        if len(results) == len(paths):
            expected = float(np.mean(numbers)) if numbers else None
            require(rows[0].mean == expected or math.isclose(rows[0].mean, expected, rel_tol=1e-9), "another mean")  # type: ignore[arg-type]
        for row in rows:
            summary.ours(row), summary.published(row), summary.target(row)


def _listed(trial: Trial) -> None:
    trial.is_sound = trial.chance(0.1)
    _folder(trial, trial.choose(RECIPES))
    before = digests(trial.folder)
    command = trial.choose([["list"], ["list", "--json"], ["report", "--json"]])
    ended = run_command(trial, [*command, "--results", str(trial.folder / "results")])
    require(ended.code == 0 or not trial.is_sound, "refused sound results")
    require_untouched(before, trial.folder)
    if ended.code == 0 and "--json" in command:
        with answered("JSON on the screen"):
            json.loads(ended.out)


def _report(trial: Trial) -> None:
    """The whole report, also where its places are files that are there already."""
    trial.is_sound = trial.chance(0.3)
    recipe = trial.choose(["positions/tiny-cls", "spirals/a-tuned"])
    paths = _folder(trial, recipe)
    (trial.folder / "mine.csv").write_text("id,value\n1,2\n")
    (trial.folder / "notes.md").write_text("# my notes\n")
    places = ["new.md", "sub/new.md", "mine.csv", "notes.md", f"results/{recipe}/0.json", "results", "no/way/x.md"]
    markdown, page = trial.choose(places), trial.choose(["page.html", *places])
    is_asked = {markdown, page} <= {"new.md", "sub/new.md", "page.html", "no/way/x.md"} and markdown != page
    trial.note(markdown, page)
    before = digests(trial.folder)
    words = ["report", "--results", str(trial.folder / "results")]
    ended = run_command(trial, [*words, "--markdown", str(trial.folder / markdown), "--page", str(trial.folder / page)])
    require(ended.code == 0 or not (trial.is_sound and is_asked), "refused sound results")
    written = [place for place in (markdown, page) if place not in before] if ended.code == 0 else []
    require_untouched(before, trial.folder, may_change=written)
    require(paths[0].exists(), "a result is gone")


def _figures(trial: Trial) -> None:
    """The section of one recipe, with its figures and without the rest of the report."""
    trial.is_sound = trial.chance(0.1)
    recipe = trial.choose(RECIPES)
    _folder(trial, recipe)
    results = summary.results_of(recipe, trial.folder / "results")
    rows = summary.summarise(discover()[recipe], results)
    section = report._section(discover()[recipe], results, rows)
    with answered("the section of a recipe"):
        require(section.blocks, "a section without anything in it")


@cache
def _paper_text() -> str:
    return (KEPT / "paper.toml").read_text()


def _paper(trial: Trial) -> None:
    """The list of what the paper has, which people edit by hand."""
    content = _paper_text().encode()
    trial.is_sound = trial.chance(0.1)
    if not trial.is_sound:
        content = hostile.damaged(trial, content)
    (trial.folder / "paper.toml").write_bytes(content)
    items = read_items(trial.folder)
    with answered("the list of the paper"):
        tomllib.loads(content.decode())
        require(items, "nothing was read")

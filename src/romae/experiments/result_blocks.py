"""What the report shows of one recipe beside its numbers: test samples, figures, and how the losses fell."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from romae.experiments.recipe import Recipe
from romae.experiments.results import Result
from romae.pages import charts
from romae.pages.charts import Reconstruction
from romae.pages.figure_charts import interactive
from romae.pages.page import Block, Chart, Choice
from romae.pages.plots import Panel
from romae.training.stages import TITLES

_NOTHING = (np.zeros(0), np.zeros(0))


def blocks(recipe: Recipe, results: Sequence[Result]) -> list[Block]:
    """All that the results hold to be drawn; those of older versions hold less."""
    return [*_views(results), *_figures(recipe, results), *_losses(results)]


def _figures(recipe: Recipe, results: Sequence[Result]) -> list[Block]:
    held = [result.figure for result in results if result.figure]
    drawn = recipe.data.draw(held) if held else {}
    return [
        figure if isinstance(figure, Chart | Choice) else interactive(caption, figure)
        for caption, figure in drawn.items()
    ]


def _losses(results: Sequence[Result]) -> list[Block]:
    """One chart for each stage, with all seeds in it."""
    held = [result for result in results if result.losses]
    if not held:
        return []
    shown = {}
    for number, stage in enumerate(held[0].losses):
        runs = {f"seed {one.seed}": one.losses[number].records for one in held if number < len(one.losses)}
        name = TITLES.get(stage.stage, stage.stage)
        shown[f"{number + 1}: {name}"] = charts.loss_curves(runs, f"Loss in {name}, {_seeds(len(runs))}.")
    return list(shown.values()) if len(shown) == 1 else [Choice(label="Stage", charts=shown)]


def _views(results: Sequence[Result]) -> list[Block]:
    drawers: dict[str, Callable[[list[Result]], Block]] = {
        "reconstructions": _reconstructions,
        "agreement": _agreement,
        "confusion": _confusion,
        "embeddings": _embeddings,
    }
    found = {name: [result for result in results if name in result.views] for name in drawers}
    return [draw(found[name]) for name, draw in drawers.items() if found[name]]


def _reconstructions(results: list[Result]) -> Choice:
    first = results[0]
    drawn = {}
    for sample in first.views["reconstructions"]:
        channels = [_channel(one) for one in sample["channels"]]
        caption = f"Test sample {sample['name']} of seed {first.seed}, with its hidden points and what was predicted."
        drawn[sample["name"]] = charts.reconstruction(channels, x="position", caption=caption)
    return Choice(label="Sample", charts=drawn)


def _channel(held: Mapping[str, Any]) -> Reconstruction:
    observed, hidden = ((_array(held[name][0]), _array(held[name][1])) for name in ("observed", "hidden"))
    return Reconstruction(Panel(held["title"], observed, hidden, _NOTHING, _NOTHING), _array(held["predicted"]))


def _agreement(results: list[Result]) -> Chart | Choice:
    first = results[0]
    truth, predicted = (_array(first.views["agreement"][name]) for name in ("truth", "predicted"))
    caption = (
        f"{truth.shape[1]} numbers of the test samples of seed {first.seed}. On the grey line a prediction is right."
    )
    points = [f"number {i}" for i in range(truth.shape[1])]
    drawn = {
        f"number {i}": charts.agreement(*pair, points, "number", caption)
        for i, pair in enumerate(zip(truth, predicted, strict=True), start=1)
    }
    return next(iter(drawn.values())) if len(drawn) == 1 else Choice(label="Target", charts=drawn)


def _confusion(results: list[Result]) -> Chart:
    """The matrices of all seeds added up."""
    names = results[0].views["confusion"]["classes"]
    same = [one.views["confusion"] for one in results if one.views["confusion"]["classes"] == names]
    counts = np.sum([np.array(one["counts"], dtype=np.int64) for one in same], axis=0)
    caption = f"Test samples of {_seeds(len(same))}: true classes in rows, predicted ones in columns."
    return charts.confusion(counts, names, caption)


def _embeddings(results: list[Result]) -> Chart:
    held = results[0].views["embeddings"]
    points, groups = _array(held["points"]), held.get("groups")
    caption = (
        f"Embeddings of {len(points)} test samples of seed {results[0].seed}, in the plane in which they differ most."
    )
    named = None if groups is None else np.array(groups)
    return charts.embedding_map(points, [f"sample {i}" for i in range(len(points))], named, caption)


def _array(held: Any) -> np.ndarray:
    """Numbers as they were stored; what was none is null there."""
    return np.array(held, dtype=float)


def _seeds(n: int) -> str:
    return "one seed" if n == 1 else f"{n} seeds"

"""Figures of a recipe's results: diagnostics on test samples, what the source draws, and how the losses fell."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from romae.experiments.recipe import Recipe
from romae.experiments.results import Result
from romae.pages import charts
from romae.pages.page import Block, Chart, Choice, choice
from romae.pages.plots import Panel
from romae.training.stages import TITLES


def blocks(recipe: Recipe, results: Sequence[Result]) -> list[Block]:
    """All that the results hold to be drawn; those of older versions hold less, and what is torn is named."""
    drawers: list[Callable[[Sequence[Result]], list[Block]]] = [_diagnostics, partial(_figures, recipe), _losses]
    try:
        return [block for draw in drawers for block in draw(results)]
    except _TORN as error:
        for result in results:
            for draw in drawers:
                _require_drawn(draw, result)
        raise ValueError(
            f"the results of {recipe.name} cannot be drawn together: {_reason(error)}; run the seed again that differs "
            "from the others, or remove its file"
        ) from error


_TORN = (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError)


def _require_drawn(draw: Callable[[Sequence[Result]], list[Block]], result: Result) -> None:
    """Refuse a result that cannot be drawn by itself."""
    try:
        draw([result])
    except _TORN as error:
        raise ValueError(
            f"the result of {result.recipe}, seed {result.seed}, is torn or was altered where it says what to draw: "
            f"{_reason(error)}; run this seed again, or remove its file"
        ) from error


def _reason(error: Exception) -> str:
    return f"it lacks {error}" if isinstance(error, KeyError) else str(error).partition("\n")[0]


def _figures(recipe: Recipe, results: Sequence[Result]) -> list[Block]:
    measured = [result.figure for result in results if result.figure]
    drawn: list[Block] = []
    for caption, figure in (recipe.data.draw(measured) if measured else {}).items():
        several = figure if isinstance(figure, Mapping) else {"": figure}
        drawn.append(choice("Panel", {name: Chart(caption=caption, figure=panel) for name, panel in several.items()}))
    return drawn


def _losses(results: Sequence[Result]) -> list[Block]:
    """One chart for each stage, with all seeds in it."""
    recorded = [result for result in results if result.losses]
    if not recorded:
        return []
    shown = {}
    for number, stage in enumerate(recorded[0].losses):
        runs = {
            f"seed {result.seed}": result.losses[number].records for result in recorded if number < len(result.losses)
        }
        name = TITLES.get(stage.stage, stage.stage)
        caption = f"Loss in {name}, {_seeds(len(runs))}."
        shown[f"{number + 1}: {name}"] = Chart(caption=caption, figure=charts.loss_curves(runs))
    return [choice("Stage", shown)]


def _diagnostics(results: Sequence[Result]) -> list[Block]:
    """What the model did on test samples, of the results that say so."""
    drawers: dict[str, Callable[[list[Result]], Block]] = {
        "reconstructions": _reconstructions,
        "agreement": _agreement,
        "confusion": _confusion,
        "embeddings": _embeddings,
    }
    holders = {name: [result for result in results if name in result.views] for name in drawers}
    return [draw(holders[name]) for name, draw in drawers.items() if holders[name]]


def _reconstructions(results: list[Result]) -> Block:
    first, drawn = results[0], {}
    for sample in first.views["reconstructions"]:
        caption = f"Test sample {sample['name']} of seed {first.seed}, with its hidden points and what was predicted."
        figure = charts.reconstruction([_panel(channel) for channel in sample["channels"]], x="position")
        drawn[sample["name"]] = Chart(caption=caption, figure=figure)
    return Choice(label="Sample", charts=drawn)


def _panel(stored: Mapping[str, Any]) -> Panel:
    observed, hidden = ((_array(stored[name][0]), _array(stored[name][1])) for name in ("observed", "hidden"))
    return Panel(stored["title"], observed, hidden, predicted=(hidden[0], _array(stored["predicted"])))


def _agreement(results: list[Result]) -> Block:
    first = results[0]
    truth, predicted = (_array(first.views["agreement"][name]) for name in ("truth", "predicted"))
    caption = (
        f"{truth.shape[1]} numbers of the test samples of seed {first.seed}. On the grey line a prediction is right."
    )
    points = [f"number {i}" for i in range(truth.shape[1])]
    drawn = {
        f"number {i}": Chart(caption=caption, figure=charts.agreement(*pair, points, "number"))
        for i, pair in enumerate(zip(truth, predicted, strict=True), start=1)
    }
    return choice("Target", drawn)


def _confusion(results: list[Result]) -> Chart:
    """The matrices of all seeds added up."""
    names = results[0].views["confusion"]["classes"]
    alike = [result for result in results if result.views["confusion"]["classes"] == names]
    counts = np.sum([np.array(result.views["confusion"]["counts"], dtype=np.int64) for result in alike], axis=0)
    caption = f"Test samples of {_seeds(len(alike))}: true classes in rows, predicted ones in columns."
    return Chart(caption=caption, figure=charts.confusion(counts, names))


def _embeddings(results: list[Result]) -> Chart:
    stored = results[0].views["embeddings"]
    points, groups = _array(stored["points"]), stored.get("groups")
    caption = (
        f"Embeddings of {len(points)} test samples of seed {results[0].seed}: their first two principal components "
        "(PCA)."
    )
    ids = [f"sample {i}" for i in range(len(points))]
    return Chart(caption=caption, figure=charts.embedding(points, ids, None if groups is None else np.array(groups)))


def _array(stored: Any) -> np.ndarray:
    """Numbers as they were stored; what was none is null there."""
    return np.array(stored, dtype=float)


def _seeds(n: int) -> str:
    return "one seed" if n == 1 else f"{n} seeds"

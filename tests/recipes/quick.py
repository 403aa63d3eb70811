"""What every quick run must show, whatever its data are."""

import json
from dataclasses import replace
from pathlib import Path

from romae.experiments.recipe import Recipe, run
from romae.experiments.results import Result, read_result, write_result


def check_quick(recipe: Recipe, folder: Path, *, learns: bool = True) -> Result:
    """Run from data to a result on disk and back; what was learned beats what can be said without learning.

    Of rows that differ in one setting one learns, for the others an epoch of each stage has to do.
    """
    if not learns:
        recipe = replace(recipe, quick=(*recipe.quick, "train.epochs=1"))
    result = run(recipe, seed=0, quick=True, device="cpu").result
    number, sign = result.metrics[recipe.metric], 1 if recipe.better == "lower" else -1
    if recipe.trivial is None:
        assert result.floor is not None and result.floor <= number < 1.1 * result.floor
    elif learns:
        assert sign * number < sign * result.baselines[recipe.trivial]
        assert result.floor is None or sign * number > sign * result.floor
    path = write_result(result, folder)
    assert path.stat().st_size < 200_000 and isinstance(read_result(path), Result)
    stored = json.loads(path.read_text())
    assert set(stored) >= {"recipe", "protocol", "seed", "metrics", "baselines", "floor", "published", "config"}
    drawn = recipe.data.draw([stored["figure"]])  # from what was stored
    figures = [one for figure in drawn.values() for one in (figure.values() if isinstance(figure, dict) else [figure])]
    assert figures and all(figure.axes if hasattr(figure, "axes") else figure.data for figure in figures)
    return result

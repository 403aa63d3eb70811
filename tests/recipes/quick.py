"""What every quick run must show, whatever its data are."""

import json
from pathlib import Path

from romae.experiments.recipe import Recipe, run
from romae.experiments.results import Result, read_result, write_result


def check_quick(recipe: Recipe, folder: Path, *, learns: bool = True) -> Result:
    """Run from data to a result on disk and back; what was learned beats what can be said without learning."""
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
    captions = recipe.data.draw([stored["figure"]])  # drawn from what was stored
    assert captions and all(figure.axes for figure in captions.values())
    return result

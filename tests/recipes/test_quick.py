"""Every recipe runs from data to a result in seconds, and what it learns beats what can be said without learning."""

import json

import pytest

from romae.recipe import discover, run
from romae.results import Result, read_result, write_result


@pytest.mark.parametrize("name", discover())
def test_a_quick_run_beats_the_trivial_prediction(name, tmp_path):
    recipe = discover()[name]
    result = run(recipe, seed=0, quick=True, device="cpu")
    number = result.metrics[recipe.metric]
    if recipe.trivial is None:
        assert result.floor <= number < 1.1 * result.floor
    else:
        assert number < result.baselines[recipe.trivial]
        assert result.floor is None or number > result.floor
    path = write_result(result, tmp_path)
    assert path.stat().st_size < 100_000 and isinstance(read_result(path), Result)
    stored = json.loads(path.read_text())
    assert set(stored) >= {"recipe", "protocol", "seed", "metrics", "baselines", "floor", "published", "config"}
    captions = recipe.data.draw([stored["figure"]])  # drawn from what was stored
    assert captions and all(figure.axes for figure in captions.values())

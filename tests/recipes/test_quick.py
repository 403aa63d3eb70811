"""Every recipe runs from data to a result in seconds, and what it learns beats what can be said without learning."""

import pytest
from quick import check_quick

from romae.experiments.datasets.files import MissingFile
from romae.experiments.recipe import discover

# Of recipes with one reader, whose files take far longer to read than a quick run takes, one does so here. Real files
# of the others are read in the tests of their data sets, and all recipes have tests of their own, on small files.
READ_ELSEWHERE = (
    "asas",
    "esc50",
    "human_activity",
    "physionet2012",
    "plasticc",
    "raindrop-p12",
    "raindrop-p19",
    "ushcn",
)
ON_REAL_FILES = {
    recipe.data_set.split("/")[0]: name
    for name, recipe in sorted(discover().items(), key=lambda item: ("tuned" in item[0], "epilepsy" in item[0]))
    if not name.endswith("scratch") and recipe.data_set not in READ_ELSEWHERE
}
# The systems of Physiome-ODE differ in their equations alone, which have tests of their own: one stands for all.
CHOSEN = [
    name
    for name, recipe in discover().items()
    if (not recipe.data_set or name in ON_REAL_FILES.values())
    and (not name.startswith("forecasting/physiome-") or name.endswith("-gup01"))
]
# These have rows beside them that learn: with other queries, without CLS, or of other spirals.
FOR_ONE_EPOCH = ("frequencies/paper", "pendulum/paper-cls", "spirals/b-paper", "spirals/b-tuned")


@pytest.mark.parametrize("name", CHOSEN)
def test_a_quick_run_beats_the_trivial_prediction(name, tmp_path, without_shape_checks):
    try:
        check_quick(discover()[name], tmp_path, learns=name not in FOR_ONE_EPOCH)
    except MissingFile as error:
        pytest.skip(f"set ROMAE_DATA to run it on the real files: {error}")

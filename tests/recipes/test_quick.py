"""Every recipe runs from data to a result in seconds, and what it learns beats what can be said without learning."""

import pytest
from quick import check_quick

from romae.experiments.datasets.files import MissingFile
from romae.experiments.recipe import discover

# 72 % of Heartbeat's cases are of one class, and few patients die: seconds on real files show little there.
HARD = ("uea/heartbeat", "physionet/mortality")

# Of recipes that read the same files, which take far longer to read than a quick run takes, one does so here; all of
# them have tests of their own, on small files that those write.
ON_REAL_FILES = {
    recipe.data_set: name
    for name, recipe in sorted(discover().items(), key=lambda item: "tuned" in item[0])
    if not name.endswith("scratch")
}
# The systems of Physiome-ODE differ in their equations alone, which have tests of their own: one stands for all.
CHOSEN = [
    name
    for name, recipe in discover().items()
    if (not recipe.data_set or name in ON_REAL_FILES.values())
    and (not name.startswith("forecasting/physiome-") or name.endswith("-gup01"))
]


@pytest.mark.parametrize("name", CHOSEN)
def test_a_quick_run_beats_the_trivial_prediction(name, tmp_path, without_shape_checks):
    try:
        check_quick(discover()[name], tmp_path, learns=not name.startswith(HARD))
    except MissingFile as error:
        pytest.skip(f"set ROMAE_DATA to run it on the real files: {error}")

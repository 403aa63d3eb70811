"""The recipes that say how sure run on small files, and score what they say they score."""

import numpy as np
import pytest
from quick import check_quick
from test_lightcurves import root  # noqa: F401
from test_physionet import files  # noqa: F401

from messages import refused
from romae.experiments.datasets import physionet2012, physionet_grid, synthetic
from romae.experiments.datasets.physionet2012 import VARIABLES
from romae.experiments.density_scores import LEVELS
from romae.experiments.recipe import find
from romae.experiments.recipes.uncertainty import (
    LikelyGrid,
    LikelySeries,
    LikelyStays,
    _is_exact,
    _posterior,
    _units,
)
from romae.tokens.sample import Sample

NAMES = {f"coverage_{level * 100:.0f}" for level in LEVELS} | {"crps", "nll"}


def check(name: str, folder, *, learns: bool = True, is_calibrated: bool = True) -> None:
    result = check_quick(find(f"uncertainty/{name}"), folder, learns=learns)
    assert set(result.metrics) >= NAMES | ({f"{name}_calibrated" for name in NAMES} if is_calibrated else set())
    held = [result.metrics[f"coverage_{level * 100:.0f}"] for level in LEVELS]
    assert held == sorted(held) and 0 <= held[0] and held[-1] <= 1


@pytest.mark.parametrize("hide", ["tokens", "rows"])
def test_stays_on_small_files(files, hide, without_shape_checks):  # noqa: F811
    # A twenty-fifth of so few stays is too few to calibrate on.
    check(f"physionet-{hide}", files / "results", learns=False, is_calibrated=False)


def test_the_grid_on_small_files(files, without_shape_checks):  # noqa: F811
    result = check_quick(find("uncertainty/physionet-grid"), files / "results", learns=False)
    assert set(result.metrics) >= NAMES | {"mae", "mse", "mae_linear", "mse_linear", "crps_process_of_some"}
    assert result.metrics["crps"] < result.metrics["mae"], "a distribution gives away less than its median alone"


def test_scores_of_the_grid_are_z_scores_and_training_holds_nothing_of_what_it_hides(files):  # noqa: F811
    splits = LikelyGrid().splits(0)
    np.testing.assert_array_equal(_units(splits.test, splits), 1.0)
    grid = physionet_grid.load(0)["train"]
    assert all(sample.hidden is None for sample in splits.train) and grid.hidden.any()
    assert sum(map(len, splits.train)) == int((~np.isnan(grid.visible)).sum())
    assert {sample.id for sample in splits.test}.isdisjoint(sample.id for sample in splits.train)
    chosen = LikelyGrid(tested_on="validation").splits(0)
    assert [sample.id for sample in chosen.test] == [sample.id for sample in splits.validation]
    with refused(ValueError, "data.n_records", "at least 1"):
        LikelyGrid(n_records=0).splits(0)


def test_light_curves_on_small_files(root, tmp_path, monkeypatch, without_shape_checks):  # noqa: F811
    monkeypatch.setenv("ROMAE_DATA", str(root))
    check("plasticc", tmp_path, learns=False, is_calibrated=False)


def test_units_are_the_deviations_of_variables(files):  # noqa: F811
    data = LikelyStays(hide="tokens", minutes=5.0)
    splits = data.splits(0)
    values = {}
    for sample in splits.train:
        for value, variable in zip(sample.values[:, 0].tolist(), sample.positions[:, 1].tolist(), strict=True):
            values.setdefault(variable, []).append(value)
    of = np.concatenate([sample.positions[sample.hidden, 1].numpy() for sample in splits.test])
    expected = [np.std(values[variable]) or 1.0 for variable in of]
    np.testing.assert_allclose(_units(splits.test, splits), expected, rtol=1e-4)


def test_exact_numbers_are_counted_by_variable(files):  # noqa: F811
    hr, temp = VARIABLES.index("HR"), VARIABLES.index("Temp")
    positions = np.array([[float(i), float(temp if i % 2 else hr)] for i in range(40)])
    values = np.where(positions[:, 1] == temp, 37.0, np.arange(40.0))[:, None].astype(np.float32)
    train = [Sample(values, positions) for _ in range(3)]
    found = _is_exact(np.array([37.0, 37.0, 36.5]), np.array([temp, hr, temp]), train, physionet2012.SCHEMA)
    assert found.tolist() == [True, False, False]


def test_the_floor_of_synthetic_series_is_what_samples_of_the_posterior_come_to():
    data = LikelySeries(n_train=8, n_validation=4, n_test=4)
    sample, grid = data.splits(0).test[0], synthetic.GRIDS["romae"]
    mean, deviation = _posterior(sample, grid)
    assert len(mean) == int(sample.hidden.sum()) and (deviation >= synthetic.NOISE).all()

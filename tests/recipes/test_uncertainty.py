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
    LikelyMinutes,
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


def test_minutes_on_small_files(files, without_shape_checks):  # noqa: F811
    result = check_quick(find("uncertainty/physionet-minutes"), files / "results", learns=False)
    assert set(result.metrics) >= NAMES | {"mae", "mse", "mae_linear", "mse_linear", "crps_process_of_some"}


def cells_of(sample, hidden: bool) -> set[tuple[int, int]]:
    """The hours and variables of what a sample hides, or shows."""
    chosen = sample.positions[sample.hidden == hidden].numpy()
    return {(int(hour), int(variable)) for hour, variable in chosen}


def test_minutes_ask_for_the_cells_of_the_grid_and_show_nothing_of_them(files):  # noqa: F811
    # A second measurement in an hour that has one, and two in one minute: a cell of three numbers.
    path = files / "physionet2012" / "set-a" / "1000.txt"
    line = next(line for line in path.read_text().splitlines() if ",HR," in line)
    more = "\n".join(f"{line[:2]}:{minute},HR,{value}" for minute, value in ((10, 90), (10, 70)))
    path.write_text(f"{path.read_text().rstrip()}\n{more}\n")
    n_checked = 0
    for seed in (0, 1, 2):
        grid, minutes = physionet_grid.load(seed), LikelyMinutes().splits(seed)
        for part, samples in (("test", minutes.test), ("validation", minutes.validation)):
            expected = grid[part].samples()
            assert [one.id for one in samples] == [one.id for one in expected]
            for sample, cells in zip(samples, expected, strict=True):
                assert cells_of(sample, True) == cells_of(cells, True) and cells_of(sample, False) == cells_of(
                    cells, False
                )
                assert cells_of(sample, True).isdisjoint(cells_of(sample, False))
                assert bool((sample.positions[sample.hidden, 0] % 1 == 0.5).all()), "asked at the middle of the hour"
                by_cell = dict(
                    zip(map(tuple, cells.positions.long().tolist()), cells.values[:, 0].tolist(), strict=True)
                )
                asked = [(int(t), int(v)) for t, v in sample.positions[sample.hidden].tolist()]
                assert sample.values[sample.hidden, 0].tolist() == [by_cell[cell] for cell in asked]
                # Visible numbers are those of the hour: their mean is the cell, but where a minute has two.
                n_checked += int((~sample.hidden).sum())
        shown = {
            (one.id, *cell) for one in minutes.train for is_hidden in (False, True) for cell in cells_of(one, is_hidden)
        }
        allowed = {
            (record, *cell)
            for record, values in zip(grid["train"].record_ids.tolist(), grid["train"].visible, strict=True)
            for cell in np.argwhere(~np.isnan(values)).tolist()
        }
        assert shown == allowed, "training sees and asks what the grid shows, and nothing of what it hides"
        assert len(minutes.train) == LikelyMinutes().n_draws * len(grid["train"])
        for sample in minutes.train:
            assert cells_of(sample, True).isdisjoint(cells_of(sample, False))
    assert n_checked > 0


def test_numbers_stand_at_their_own_minutes(files):  # noqa: F811
    path = files / "physionet2012" / "set-a" / "1000.txt"
    path.write_text("Time,Parameter,Value\n00:00,RecordID,1000\n01:10,HR,90\n01:10,HR,70\n01:40,HR,110\n03:00,HR,80\n")
    part = next(part for part in physionet_grid.load_minutes(0).values() if 1000 in part.grid.record_ids)
    i = part.grid.record_ids.tolist().index(1000)
    here = part.records == i
    assert part.minutes[here].tolist() == [70, 100, 180]
    one, two, three = part.values[here]
    assert three == pytest.approx(one), "80 is the mean of 90 and 70"
    hr = physionet_grid.VARIABLES.index("HR")
    mean = part.grid.values[i, 1, hr]
    assert mean == pytest.approx((2 * one + two) / 3), "a cell is the mean of its rows, as in the grid"


@pytest.mark.parametrize("setting", [{"n_records": 0}, {"share": 1.0}, {"n_draws": 0}])
def test_settings_of_minutes_that_cannot_be_used_are_refused(setting):
    with refused(ValueError, f"data.{next(iter(setting))}"):
        LikelyMinutes(**setting).splits(0)

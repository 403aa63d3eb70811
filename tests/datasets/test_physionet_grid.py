"""PhysioNet 2012 on an hourly grid: which cells there are, how they are split, scaled and hidden."""

import numpy as np
import pytest

from romae.experiments import baselines
from romae.experiments.datasets.physionet2012 import OUTCOME_COLUMNS
from romae.experiments.datasets.physionet_grid import HIDDEN, N_HOURS, N_RECORDS, VARIABLES, divided, load, read

HR, TEMP = VARIABLES.index("HR"), VARIABLES.index("Temp")
FIRST = ["00:00,Age,60", "00:10,HR,70", "00:50,HR,80", "00:50,HR,90", "02:00,Temp,37", "02:00,Weight,80", "48:00,HR,1"]
ONE_HOUR = ["00:00,Age,60", "00:30,HR,70", "00:59,Temp,36"]
ONLY_LATE = ["00:00,Age,60", "48:00,HR,70", "00:00,MechVent,1"]


def write_set(folder, records: dict[int, list[str]], deaths: set[int]):
    """Set a with these rows of records."""
    (folder / "set-a").mkdir(parents=True)
    outcomes = [",".join(OUTCOME_COLUMNS)]
    for record, rows in records.items():
        text = "\n".join(["Time,Parameter,Value", f"00:00,RecordID,{record}", *rows]) + "\n"
        (folder / "set-a" / f"{record}.txt").write_text(text)
        outcomes.append(f"{record},1,1,1,1,{int(record in deaths)}")
    (folder / "Outcomes-a.txt").write_text("\n".join(outcomes) + "\n")
    return folder


@pytest.fixture
def means():
    """Fifty records in which half of the cells are observed, about 5 with a deviation of 2; a fifth died."""
    random = np.random.default_rng(0)
    values = random.normal(5.0, 2.0, size=(50, N_HOURS, len(VARIABLES)))
    values[random.random(values.shape) < 0.5] = np.nan
    values[..., TEMP] = np.where(np.isnan(values[..., TEMP]), np.nan, 37.0)  # a constant
    return np.arange(100, 150), values, (np.arange(50) % 5 == 0).astype(np.int64)


def test_the_variables_are_the_35_of_the_protocol():
    assert len(VARIABLES) == 35
    assert not set(VARIABLES) & {"Age", "Gender", "Height", "ICUType", "Weight", "MechVent"}


def test_a_cell_is_the_mean_of_its_hour(tmp_path):
    folder = write_set(tmp_path, {7: FIRST, 8: ONE_HOUR, 9: ONLY_LATE, 10: FIRST}, {10})
    ids, values, died = read(folder=folder)
    assert ids.tolist() == [7, 9, 10] and died.tolist() == [0, 0, 1], "a record of a single hour is left out"
    observed = np.argwhere(~np.isnan(values[0])).tolist()
    assert observed == [[0, HR], [2, TEMP]], "hour 48, weight and age are no cells"
    assert values[0, 0, HR] == 80 and values[0, 2, TEMP] == 37, "of rows, not of minutes"
    assert np.isnan(values[1]).all()


def test_parts_are_stratified_scaled_by_training_and_follow_from_the_seed(means):
    ids, values, died = means
    parts = divided(*means, seed=3)
    assert [len(grid) for grid in parts.values()] == [32, 8, 10]
    assert np.sort(np.concatenate([grid.record_ids for grid in parts.values()])).tolist() == ids.tolist()
    assert sum(died[np.isin(ids, parts["test"].record_ids)]) == 2
    train = parts["train"].values
    np.testing.assert_allclose(np.nanmean(train, (0, 1)), 0, atol=1e-12)
    spread = np.nanstd(train, (0, 1))
    np.testing.assert_allclose(np.delete(spread, TEMP), 1)
    assert spread[TEMP] == 0, "a constant has the scale 1"
    again, other = divided(*means, seed=3), divided(*means, seed=4)
    for name, grid in parts.items():
        np.testing.assert_array_equal(grid.hidden, again[name].hidden)
        assert grid.record_ids.tolist() != other[name].record_ids.tolist()


def test_a_tenth_of_the_observed_cells_is_hidden_in_every_part(means):
    for grid in divided(*means, seed=0).values():
        observed = ~np.isnan(grid.values)
        assert not (grid.hidden & ~observed).any()
        assert grid.hidden.sum() == round(HIDDEN * observed.sum())
        np.testing.assert_array_equal(~np.isnan(grid.visible), observed & ~grid.hidden)


def test_samples_hold_the_cells_and_those_to_learn_from_none_that_is_hidden(means):
    grid = divided(*means, seed=0)["train"]
    for sample, values, hidden in zip(grid.samples(), grid.values, grid.hidden, strict=True):
        hours, variables = sample.positions.long().numpy().T
        assert len(sample) == (~np.isnan(values)).sum() and (np.diff(hours) >= 0).all()
        np.testing.assert_array_equal(sample.values[:, 0].numpy(), values[hours, variables].astype(np.float32))
        np.testing.assert_array_equal(sample.hidden.numpy(), hidden[hours, variables])
    for sample, hidden in zip(grid.visible_samples(), grid.hidden, strict=True):
        hours, variables = sample.positions.long().numpy().T
        assert sample.hidden is None and not hidden[hours, variables].any()
    assert sum(map(len, grid.visible_samples())) == (~np.isnan(grid.visible)).sum()


def test_a_record_that_asks_or_shows_nothing_is_no_sample(means):
    grid = divided(*means, seed=0)["test"]
    grid.hidden[0] = False
    grid.hidden[1] = ~np.isnan(grid.values[1])
    assert [sample.id for sample in grid.samples()] == grid.record_ids[2:].tolist()
    assert [sample.id for sample in grid.visible_samples()] == grid.record_ids[[0, *range(2, 10)]].tolist()
    assert len(grid.first(3)) == 3 and len(grid.first(None)) == 10


@pytest.mark.slow
def test_lines_have_the_error_that_the_protocol_says(real_data, stays_read_once):
    parts = load(0, folder=real_data / "physionet2012")
    assert sum(map(len, parts.values())) == N_RECORDS
    assert [len(grid) for grid in parts.values()] == [2557, 640, 800]
    off = np.concatenate([baselines.fill(baselines.linear, x) - baselines.truth(x) for x in parts["test"].samples()])
    assert 0.35 < np.abs(off).mean() < 0.37, "0.366 where it was published"

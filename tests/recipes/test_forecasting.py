"""The recipes of forecasts keep to their protocols, and run on small files of the benchmarks' formats."""

import io
import tarfile

import numpy as np
import pytest
from quick import check_quick

from romae.experiments import metrics
from romae.experiments.datasets import human_activity, physionet2012, ushcn
from romae.experiments.forecast_baselines import Observed, last_value
from romae.experiments.recipe import find
from romae.experiments.recipes.forecasting import RECIPES
from romae.experiments.recipes.physiome import RECIPES as SYSTEMS


def write_records(folder, module, n_records, n_rows, spacing):
    """Records of slow waves whose level is their own, each row with one variable."""
    random = np.random.default_rng(len(module.VARIABLES))
    n_variables = len(module.VARIABLES)
    time = np.tile(np.arange(n_rows) * spacing, n_records)
    variable = np.tile(np.arange(n_rows) % n_variables, n_records)
    level = np.repeat(random.normal(size=n_records), n_rows)
    value = np.zeros((len(time), n_variables))
    value[np.arange(len(time)), variable] = (
        level + 0.2 * np.sin(time / (20 * spacing)) + 0.05 * random.normal(size=len(time))
    )
    mask = np.eye(n_variables, dtype=np.uint8)[variable]
    folder.mkdir()
    ids, lengths = np.arange(n_records).astype(str), np.full(n_records, n_rows)
    np.savez(folder / module.FILE, id=ids, length=lengths, time=time.astype(np.float32), value=value, mask=mask)


def write_stays(folder, n_records=14):
    """Stays of two variables whose level is their own; all sets alike."""
    random = np.random.default_rng(0)
    folder.mkdir()
    for number, letter in enumerate("abc"):
        outcomes = [",".join(physionet2012.OUTCOME_COLUMNS)]
        with tarfile.open(folder / f"set-{letter}.tar.gz", "w:gz") as archive:
            for record in range(1000 * number + 1000, 1000 * number + 1000 + n_records):
                lines = ["Time,Parameter,Value", f"00:00,RecordID,{record}", "00:00,Age,60", "00:00,Weight,-1"]
                level = random.normal()
                for hour in range(0, 48, 2):
                    for minute, name, mean, size in (("05", "HR", 80, 15), ("20", "MAP", 75, 10), ("40", "HR", 80, 15)):
                        value = mean + size * (level + 0.1 * random.normal())
                        lines.append(f"{hour:02d}:{minute},{name},{value:.3f}")
                content = ("\n".join(lines) + "\n").encode()
                info = tarfile.TarInfo(f"set-{letter}/{record}.txt")
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
                outcomes.append(f"{record},1,1,1,1,0")
        (folder / f"Outcomes-{letter}.txt").write_text("\n".join(outcomes) + "\n")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_records(folder / "human_activity", human_activity, 10, 300, 50.0)
    write_records(folder / "ushcn", ushcn, 10, 200, 0.24)
    write_stays(folder / "physionet2012")
    return folder


@pytest.mark.parametrize("recipe", RECIPES[1:], ids=lambda recipe: recipe.name)  # the first is much like the second
def test_a_quick_run_on_small_files_beats_the_trivial_prediction(
    files, tmp_path, monkeypatch, recipe, without_shape_checks
):
    monkeypatch.setenv("ROMAE_DATA", str(files))
    result = check_quick(recipe, tmp_path)
    locf, numbers = result.baselines["last value"], result.metrics
    assert numbers["ratio"] == pytest.approx(numbers[recipe.metric] / locf)
    assert numbers["mse"] > 0 and numbers["mae"] > 0 and "boosting" in result.baselines


def test_the_ratio_is_the_headline_where_published_values_cannot_be_compared(files, monkeypatch):
    monkeypatch.setenv("ROMAE_DATA", str(files))
    by_name = {recipe.name.partition("/")[2]: recipe for recipe in RECIPES}
    for name, recipe in by_name.items():
        assert (recipe.metric == "ratio") == (name == "physionet") == (not recipe.comparable)
    assert by_name["physionet"].published is None and "cannot be compared" in by_name["physionet"].remark


def test_physionet_has_five_splits_with_five_seeds_each(files, monkeypatch):
    monkeypatch.setenv("ROMAE_DATA", str(files))
    recipe = find("forecasting/physionet")
    splits = [recipe.data.split_of(seed) for seed in recipe.seeds]
    assert {split: splits.count(split) for split in set(splits)} == dict.fromkeys(range(42, 47), 5)
    tests = [{sample.id for sample in recipe.data.splits(seed).test} for seed in (0, 5, 1)]
    assert tests[0] == tests[1] != tests[2]


@pytest.mark.parametrize("name", ["activity", "physionet-hourly"])
def test_errors_are_macro_or_over_all_numbers_as_the_benchmark_has_them(files, monkeypatch, name):
    monkeypatch.setenv("ROMAE_DATA", str(files))
    data = find(f"forecasting/{name}").overridden("data.n_trees=0").data
    splits = data.splits(0)
    n_variables = len(data.schema().channels)
    train, test = (Observed.of(part, n_variables) for part in (splits.train, splits.test))
    answers = last_value(train, test)
    squared = (answers - test.truth) ** 2
    mean = metrics.macro(squared, test.asked)[0] * 1e3 if name == "activity" else squared.mean()
    assert data.errors(data.baselines(splits), test)[0]["last value"] == pytest.approx(mean)


def test_settings_can_be_chosen_without_a_look_at_the_test(files, monkeypatch):
    monkeypatch.setenv("ROMAE_DATA", str(files))
    chosen, judged = (
        find("forecasting/ushcn").overridden(f"data.tested_on={part}").data.splits(0) for part in ("validation", "test")
    )
    assert [one.id for one in chosen.test] == [one.id for one in judged.validation]
    assert not {one.id for one in chosen.test} & {one.id for one in judged.test}


def test_the_floor_of_a_system_is_the_noise_and_its_seeds_are_folds():
    recipe = find("forecasting/physiome-wod01").overridden("data.n_series=40", "data.n_trees=0")
    assert len(SYSTEMS) >= 10 and not any(row.comparable for row in SYSTEMS)
    splits = recipe.data.splits(1)
    test = Observed.of(splits.test, 3)
    clean = np.concatenate([sample.target[sample.hidden, 0].double().numpy() for sample in splits.test])
    floor = recipe.data.errors({"floor": clean}, test)[0]["floor"]
    assert floor == pytest.approx(0.05**2, rel=0.3)
    answers = recipe.data.baselines(splits)
    assert floor < min(recipe.data.errors(answers, test)[0].values())
    assert [one.id for one in splits.train] != [one.id for one in recipe.data.splits(0).train]

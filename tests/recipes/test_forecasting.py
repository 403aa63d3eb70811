"""The recipes of forecasts keep to their protocols, and run on small files of the benchmarks' formats."""

import io
import json
import tarfile
from dataclasses import replace

import numpy as np
import pytest
from quick import check_quick

import romae
from romae.experiments import forecasts, metrics
from romae.experiments.datasets import human_activity, physionet2012, ushcn
from romae.experiments.forecast_baselines import Observed, last_value
from romae.experiments.recipe import find, run
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
    assert numbers["ratio_with_boosting"] == pytest.approx(
        numbers["mse_with_boosting"] / numbers["mse"] * numbers["ratio"]
    )
    assert "RoMAE with boosting" in result.figure["by_variable"] and "RoMAE with boosting" not in result.baselines


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
    data = find(f"forecasting/{name}").overridden("data.n_trees=0", "data.masked_by=window").data
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


def test_training_windows_may_leave_their_masks_to_the_stages_and_baselines_still_know_them(files, monkeypatch):
    monkeypatch.setenv("ROMAE_DATA", str(files))
    given, free = (
        find("forecasting/ushcn").overridden(f"data.masked_by={by}", "data.n_trees=2").data
        for by in ("window", "stage")
    )
    own, drawn = given.splits(0), free.splits(0)
    assert all(sample.hidden is None for sample in drawn.train)
    assert all(sample.hidden is not None for part in (drawn.validation, drawn.test) for sample in part)
    expected, found = given.baselines(own), free.baselines(drawn)
    assert set(found) == set(expected)
    for name, answer in expected.items():
        np.testing.assert_array_equal(found[name], answer)


def test_with_a_likelihood_the_absolute_error_is_that_of_the_median(files, tmp_path, monkeypatch, without_shape_checks):
    monkeypatch.setenv("ROMAE_DATA", str(files))
    recipe = find("forecasting/ushcn").overridden("data.n_trees=0", "stages.0.likelihood=normal")
    result, task = run(recipe, 0, quick=True)
    splits = recipe.overridden(*recipe.quick).data.splits(0)
    test = recipe.data.observed(splits.test)
    median = np.concatenate([part.median()[:, 0] for part in romae.predict(task, splits.test, returns="distribution")])
    error = metrics.macro(np.abs(median - test.truth), test.asked)[0] * 10
    assert result.metrics["mae"] == pytest.approx(error, rel=1e-6)


class Shifted:
    """What `predict` answers in the place of a model that is off by a constant."""

    def __init__(self, by):
        self.by = by

    def __call__(self, task, samples):
        return [sample.values[sample.hidden].numpy() + self.by for sample in samples]


def test_the_weight_of_boosting_is_chosen_on_validation_windows_alone(files, monkeypatch, without_shape_checks):
    monkeypatch.setenv("ROMAE_DATA", str(files))
    data = find("forecasting/ushcn").overridden("data.n_trees=5").data
    splits = data.splits(0)
    known = replace(splits, test=splits.test[:40])
    monkeypatch.setattr(forecasts, "predict", Shifted(0.3))
    first, second = (data.measure(None, one).metrics for one in (splits, known))
    assert first["weight_of_boosting"] == second["weight_of_boosting"] and first["mse"] == pytest.approx(0.9)
    assert 0 < first["weight_of_boosting"] < 1 and first["mse_with_boosting"] < first["mse"]
    monkeypatch.setattr(forecasts, "predict", Shifted(0.0))
    assert data.measure(None, splits).metrics["weight_of_boosting"] == 0
    # Nothing is left to choose it on where validation windows are the test, or without trees.
    for setting in ("data.tested_on=validation", "data.n_trees=0"):
        other = find("forecasting/ushcn").overridden("data.n_trees=5", setting).data
        assert not [name for name in other.measure(None, other.splits(0)).metrics if "with_boosting" in name]


def test_figures_of_results_without_the_combination_are_drawn_as_well(files, monkeypatch, without_shape_checks):
    monkeypatch.setenv("ROMAE_DATA", str(files))
    data = find("forecasting/ushcn").overridden("data.n_trees=5").data
    monkeypatch.setattr(forecasts, "predict", Shifted(0.3))
    figure = json.loads(json.dumps(data.measure(None, data.splits(0)).figure, default=np.ndarray.tolist))
    before = {
        key: {name: x for name, x in part.items() if name != forecasts.COMBINED} if key != "ahead" else part
        for key, part in figure.items()
    }
    for figures, n_lines in (([figure], 4), ([figure, before], 3)):
        drawn = data.draw(figures)
        names = {trace.name for one in drawn.values() for trace in one.data}
        assert len(names) == n_lines


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

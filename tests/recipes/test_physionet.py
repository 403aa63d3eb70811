"""The PhysioNet recipes keep to their protocol, and run on small files of the challenge's format."""

from dataclasses import replace

import numpy as np
import pytest
from quick import check_quick

from messages import refused
from romae.experiments import baselines, metrics
from romae.experiments.datasets import physionet2012
from romae.experiments.datasets.physionet2012 import OUTCOME_COLUMNS, VARIABLES
from romae.experiments.recipe import find
from romae.experiments.recipes.physionet import MASKING, RECIPES, Mortality, Stays, _standardised
from romae.experiments.stays import recall_by_alarms

MEASURED = {"HR": (80, 15), "Temp": (37, 0.8), "MAP": (75, 10)}
N_RECORDS = 60


def write_records(folder, letter: str, first: int) -> None:
    """Patients whose level is their own, in all variables together; those with the highest levels die."""
    random = np.random.default_rng(first)
    levels = random.normal(size=N_RECORDS)
    (folder / f"set-{letter}").mkdir(parents=True)
    outcomes = [",".join(OUTCOME_COLUMNS)]
    for record, level in enumerate(levels, start=first):
        lines = ["Time,Parameter,Value", f"00:00,RecordID,{record}", "00:00,Age,60", "00:00,Height,-1"]
        for hour in np.sort(random.permutation(48)[:10]):
            for name, (mean, deviation) in MEASURED.items():
                value = mean + deviation * (level + 0.2 * random.normal())
                lines.append(f"{hour:02d}:30,{name},{value:.3f}")
        (folder / f"set-{letter}" / f"{record}.txt").write_text("\n".join(lines) + "\n")
        outcomes.append(f"{record},1,1,1,1,{int(level > 0.7)}")
    (folder / f"Outcomes-{letter}.txt").write_text("\n".join(outcomes) + "\n")


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.setenv("ROMAE_DATA", str(tmp_path))
    write_records(tmp_path / "physionet2012", "a", 1000)
    write_records(tmp_path / "physionet2012", "b", 2000)
    write_records(tmp_path / "physionet2012", "c", 3000)
    return tmp_path


# What is hidden, what is asked for and kinds decide whether anything is learned; the other rows run for one epoch.
LEARN = ("rows-paper", "tokens-tuned", "mortality-tuned", "mortality-kinds")


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_a_quick_run_on_small_files_beats_the_trivial_prediction(files, recipe, without_shape_checks):
    check_quick(recipe, files / "results", learns=recipe.name.endswith(LEARN))


@pytest.mark.parametrize("source", [Stays(n_records=0), Mortality(n_records=-5)])
def test_no_records_are_no_data(files, source):
    with refused(ValueError, "data.n_records", "at least 1"):
        source.splits(0)


def test_a_task_knows_the_variables_by_their_names(files):
    """And so does what is saved of it."""
    assert Stays().splits(0).schema.channels == Mortality().splits(0).schema.channels == VARIABLES


def test_settings_can_be_chosen_without_a_look_at_the_test(files):
    choosing, judged = (Stays(tested_on=part).splits(0) for part in ("validation", "test"))
    held_out, test = ({sample.id for sample in one.test} for one in (choosing, judged))
    assert held_out == {sample.id for sample in judged.validation} and not held_out & test
    assert all(sample.hidden is not None for sample in choosing.test)


@pytest.mark.parametrize("both", [False, True])
def test_settings_of_mortality_can_be_chosen_within_set_a(files, both):
    splits = Mortality(tested_on="a", both=both).splits(0)
    train, validation, test = ({one.id for one in part} for part in (splits.train, splits.validation, splits.test))
    assert not train & validation and not test & (train | validation)
    assert train | validation | test == {one.id for one in physionet2012.load("a").samples()} and len(test) == 15
    unlabelled = None if splits.unlabelled is None else {one.id for one in splits.unlabelled}
    assert unlabelled == (train | test if both else None)


@pytest.mark.parametrize("hide", ["rows", "tokens"])
def test_split_and_test_masks_do_not_depend_on_the_seed(files, hide):
    one, other = (Stays(hide=hide).splits(seed) for seed in (0, 1))
    for name, n in (("train", 92), ("validation", 4), ("test", 24)):
        ids = [sample.id for sample in getattr(one, name)]
        assert ids == [sample.id for sample in getattr(other, name)] and len(ids) == n
    assert len({sample.id for part in (one.train, one.validation, one.test) for sample in part}) == 120
    for a, b in zip(one.test, other.test, strict=True):
        assert bool((a.hidden == b.hidden).all())
    masks = {sample.id: sample.hidden.tolist() for sample in one.test}
    assert len({tuple(mask) for mask in masks.values()}) > 12, "each record has a mask of its own"


def test_fewer_records_stay_in_their_parts(files):
    """Settings are chosen in trials on fewer records, which must neither train nor validate on those of the test."""
    whole, fewer = Stays().splits(0), Stays(n_records=60).splits(0)
    for name, n in (("train", 46), ("validation", 2), ("test", 12)):
        ids = {sample.id for sample in getattr(fewer, name)}
        assert len(ids) == n and ids < {sample.id for sample in getattr(whole, name)}
    masks = {sample.id: sample.hidden.tolist() for sample in whole.test}
    assert all(masks[sample.id] == sample.hidden.tolist() for sample in fewer.test), "a mask follows from the record"


def test_half_is_hidden_in_whole_times_or_in_single_numbers(files):
    for sample in Stays(hide="rows").splits(0).test:
        times, hidden = sample.positions[:, 0], sample.hidden
        assert not set(times[hidden].tolist()) & set(times[~hidden].tolist())
        assert len(set(times[hidden].tolist())) == round(len(set(times.tolist())) / 2)
    for sample in Stays(hide="tokens").splits(0).test:
        assert int(sample.hidden.sum()) == round(len(sample) / 2)
    assert find("physionet/rows-tuned").stages[0].masking == MASKING["rows"], "training hides what the test hides"
    assert find("physionet/tokens-paper").stages[0].masking == MASKING["tokens"]


def test_errors_are_in_standard_deviations_of_the_training_stays(files):
    splits = Stays().splits(0)
    tokens = [(int(p[1]), float(v[0])) for s in splits.train for p, v in zip(s.positions, s.values, strict=True)]
    rates = np.array([value for variable, value in tokens if VARIABLES[variable] == "HR"])
    sample, index = splits.test[0], VARIABLES.index("HR")
    is_rate = (sample.positions[:, 1] == index) & sample.hidden
    raised = [one.values[one.hidden].double().numpy() + 3 * rates.std() for one in splits.test]
    lifted = _standardised(raised, splits)[: int(sample.hidden.sum())]
    wanted = (sample.values[is_rate].double().numpy() - rates.mean()) / rates.std() + 3
    np.testing.assert_allclose(lifted[is_rate[sample.hidden].numpy()], wanted, rtol=1e-5)


def test_units_of_time_change_positions_alone(files):
    paper, tuned = find("physionet/rows-paper").data.splits(0), find("physionet/rows-tuned").data.splits(0)
    one, other = paper.scaling.apply(paper.train[0]), tuned.scaling.apply(tuned.train[0])
    assert bool((one.values == other.values).all()) and bool((one.positions[:, 1] == other.positions[:, 1]).all())
    np.testing.assert_allclose(one.positions[:, 0] * 2880, other.positions[:, 0] * 5)


def test_mortality_learns_from_set_a_alone(files):
    splits = Mortality().splits(0)
    assert {sample.id for sample in (*splits.train, *splits.validation)} == set(range(1000, 1000 + N_RECORDS))
    assert [sample.id for sample in splits.test] == list(range(2000, 2000 + N_RECORDS))
    assert splits.unlabelled is None, "pre-training sees the training stays and nothing else"
    shares = [baselines.classes(part).mean() for part in (splits.train, splits.validation)]
    assert shares[0] == pytest.approx(shares[1], abs=0.1)


def test_pre_training_on_both_sets_keeps_validation_stays_out_and_changes_nothing_else(files):
    one, both = Mortality().splits(0), Mortality(both=True).splits(0)
    assert [sample.id for sample in both.unlabelled] == [sample.id for sample in (*one.train, *one.test)]
    assert [[sample.id for sample in getattr(both, part)] for part in ("train", "validation", "test")] == [
        [sample.id for sample in getattr(one, part)] for part in ("train", "validation", "test")
    ]
    assert both.scaling == one.scaling


def test_a_scratch_row_is_the_tuned_row_without_pre_training():
    tuned, scratch = find("physionet/mortality-tuned"), find("physionet/mortality-scratch")
    assert scratch.stages == tuned.stages[1:] and (scratch.data, scratch.model) == (tuned.data, tuned.model)


@pytest.mark.parametrize("row", ["mortality-tuned", "mortality-both", "mortality-scratch"])
def test_a_row_with_kinds_is_the_row_without_but_for_them(row):
    tuned, kinds = find(f"physionet/{row}"), find(f"physionet/{row.removesuffix('-tuned')}-kinds")
    assert replace(kinds.model, kinds=None, kinds_spread=tuned.model.kinds_spread, pool="tokens") == tuned.model
    assert (kinds.model.kinds, kinds.model.pool) == (len(VARIABLES), "kinds")
    assert "distances alone" not in kinds.remark
    assert (kinds.data, kinds.stages, kinds.ladder) == (tuned.data, tuned.stages, tuned.ladder)


def test_deaths_found_rise_from_none_to_all_and_a_perfect_score_finds_them_first():
    died = np.array([1, 0, 0, 0, 1, 0, 0, 0, 0, 0])
    perfect, chance = recall_by_alarms(died.astype(float), died), recall_by_alarms(-np.arange(10.0), died)
    assert perfect[0] == 0 and perfect[10] == 1 and perfect[-1] == 1 == chance[-1]
    assert chance[5] == 0.5 and (np.diff(chance) >= 0).all()


@pytest.mark.slow
def test_lines_have_their_known_error_on_the_real_stays(real_data, monkeypatch, stays_read_once, without_shape_checks):
    """The protocol has 0.471 for lines and 0.987 for nothing, on another split."""
    monkeypatch.setenv("ROMAE_DATA", str(real_data))
    splits = Stays().splits(0)
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [6080, 320, 1598]
    assert 152633 in {sample.id for sample in splits.train}, "the record with a WBC of 6251.9"
    scaled = [splits.scaling.apply(sample) for sample in splits.test]
    truth = [baselines.truth(sample) for sample in scaled]
    by_line = metrics.mse([baselines.fill(baselines.linear, sample) for sample in scaled], truth)
    assert by_line == pytest.approx(0.457, abs=0.001)
    assert metrics.mse([0 * one for one in truth], truth) == pytest.approx(0.972, abs=0.001)

"""The comparison: divisions that do not overlap, methods that answer alike, trials on disk, ranks and tables."""

import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import romae
from messages import refused
from romae.cli.main import app
from romae.config import to_dict
from romae.data.schema import SampleSet, Schema
from romae.experiments.compare import choices, methods, table, trial
from romae.experiments.compare.methods import METHODS, OURS, VECTORS
from romae.experiments.compare.problems import PROBLEMS, Division, Problem, find
from romae.tokens.masking import UniformTokens, hide
from romae.tokens.sample import Sample

SCHEMA = Schema(time="day", channel="band", channels=("g", "r"))


def waves(n, *, seed=0):
    """Two bands of a sine, whose frequency is the class, 0 or 1."""
    random, samples = np.random.default_rng(seed), []
    for i in range(n):
        times, band = np.sort(random.uniform(0, 6, 36)), np.arange(36) % 2
        values = np.sin((1 + 3 * (i % 2)) * times + band) + random.normal(0, 0.05, 36)
        samples.append(Sample(values[:, None], np.stack([times, band], axis=1), id=i))
    return SampleSet(samples, SCHEMA)


def divided(task):
    train, test = waves(60), waves(20, seed=1)
    if task == "interpolation":
        return Division(train, SampleSet(hide(test, UniformTokens(ratio=0.5), 0), SCHEMA))
    labels, truth = np.arange(60) % 2, np.arange(20) % 2
    if task == "regression":
        labels, truth = 1.0 * labels, 1.0 * truth
    return Division(train, test, labels, truth)


def problem(task, metric):
    return Problem(name=task, title=task, task=task, metric=metric, divide=lambda fold: divided(task))


KINDS = [("classification", "accuracy"), ("regression", "R²"), ("interpolation", "R²")]


@pytest.mark.parametrize(("task", "metric"), KINDS)
def test_simple_methods_answer_and_most_of_them_well(task, metric):
    one = problem(task, metric)
    division = one.division(0)
    scores = {}
    for name, method in METHODS[task].items():
        if name not in (OURS, VECTORS):
            answers = method(division, 0, "cpu")
            scores[name] = trial.score(one, division, answers)
    assert max(scores.values()) > (0.4 if task == "interpolation" else 0.9)
    assert all(np.isfinite(score) for score in scores.values())


@pytest.mark.parametrize(("task", "metric"), KINDS)
def test_a_perfect_answer_scores_one_and_a_mean_at_most_zero_or_a_half(task, metric):
    one = problem(task, metric)
    division = one.division(0)
    if task == "classification":
        assert trial.score(one, division, np.eye(2)[division.truth]) == 1
        assert trial.score(replace(one, metric="AUROC"), division, np.eye(2)[division.truth]) == 1
        assert trial.score(replace(one, metric="AUROC"), division, np.ones((20, 2))) == 0.5
        assert trial.score(replace(one, metric="macro F1"), division, np.ones((20, 2))) == pytest.approx(1 / 3)
    elif task == "regression":
        assert trial.score(one, division, division.truth) == 1
        assert trial.score(one, division, np.full(20, division.truth.mean())) == 0
    else:
        truth = np.concatenate([sample.values[sample.hidden].numpy() for sample in division.test])
        assert trial.score(one, division, truth) == pytest.approx(1)
        assert trial.score(one, division, METHODS[task]["mean"](division, 0, "cpu")) < 0.2


def test_a_trial_is_written_once_and_a_method_can_be_run_again(tmp_path, monkeypatch):
    few = {name: METHODS["classification"][name] for name in ("1-NN", "boosting", "linear model")}
    monkeypatch.setattr(trial, "METHODS", {"classification": few})
    monkeypatch.setattr(methods, "METHODS", {"classification": few})
    one = problem("classification", "accuracy")
    quick = {"device": "cpu", "methods": ["1-NN", "boosting"]}
    path = trial.run(one, 0, tmp_path, **quick)
    assert path == tmp_path / "cpu" / "classification" / "0.json"
    first = trial.read(path)
    assert set(first.scores) == {"1-NN", "boosting"} == set(first.seconds) and first.n_tokens == 60 * 36
    body = json.loads(path.read_text())
    path.write_text(json.dumps(body | {"scores": body["scores"] | {"boosting": 0.125}}))
    trial.run(one, 0, tmp_path, device="cpu", methods=["1-NN"])
    assert trial.read(path).scores["boosting"] == 0.125
    assert not trial.is_complete(path, one)
    trial.run(one, 0, tmp_path, device="cpu")
    assert trial.is_complete(path, one) and trial.read(path).scores["boosting"] == 0.125, "only what it lacked"
    with refused(ValueError, "0.json", "force"):
        trial.run(one, 0, tmp_path, device="cpu")
    with refused(ValueError, "'2-NN'", "1-NN"):
        trial.run(one, 0, tmp_path, device="cpu", methods=["2-NN"])
    path.write_text("{}")
    with refused(ValueError, str(path), "no trial"):
        trial.run(one, 0, tmp_path, device="cpu", methods=["1-NN"])


def test_processes_that_run_methods_of_one_trial_keep_what_the_other_wrote(tmp_path, monkeypatch):
    one, known = problem("classification", "accuracy"), METHODS["classification"]

    def slow(division, seed, device):
        trial.run(one, 0, tmp_path, device="cpu", methods=["1-NN"])  # ends while this is under way
        return known["1-NN"](division, seed, device)

    monkeypatch.setitem(known, "boosting", slow)
    path = trial.run(one, 0, tmp_path, device="cpu", methods=["boosting"])
    assert set(trial.read(path).scores) == {"1-NN", "boosting"}


def test_our_estimators_take_part_with_their_defaults(monkeypatch):
    """Which settings they are given is the point: none but the seed and the device."""
    given = []

    class Stub:
        def __init__(self, **settings):
            given.append(settings)
            self.classes_ = np.array([0, 1])

        def fit(self, X, y):
            return self

        def predict_proba(self, X):
            return np.tile([0.25, 0.75], (len(X), 1))

        def predict(self, X):
            return np.zeros(len(X))

    monkeypatch.setattr("romae.estimators.supervised.RoMAEClassifier", Stub)
    monkeypatch.setattr("romae.estimators.supervised.RoMAERegressor", Stub)
    for task in ("classification", "regression"):
        METHODS[task][OURS](divided(task), 3, "cpu")
    assert given == [{"random_state": 3, "device": "cpu"}] * 2


def test_vectors_and_summary_features_go_to_the_same_linear_model(monkeypatch):
    division = divided("classification")

    class Stub:
        def __init__(self, **settings):
            assert settings == {"random_state": 0, "device": "cpu"}

        def fit(self, X):
            return self

        def transform(self, X):
            return romae.summary_features(X).values

    monkeypatch.setattr("romae.estimators.unsupervised.RoMAEEmbedder", Stub)
    vectors, features = (METHODS["classification"][name](division, 0, "cpu") for name in (VECTORS, "linear model"))
    np.testing.assert_array_equal(vectors, features)


def test_the_interpolator_is_asked_for_hidden_tokens(monkeypatch):
    quick = {"pretrain_epochs": 2, "size": {"width": 24, "heads": 2, "depth": 1}}
    real = romae.RoMAEInterpolator
    monkeypatch.setattr("romae.estimators.unsupervised.RoMAEInterpolator", lambda **given: real(**given, **quick))
    division = divided("interpolation")
    answers = METHODS["interpolation"][OURS](division, 0, "cpu")
    assert len(answers) == sum(int(sample.hidden.sum()) for sample in division.test)


def test_settings_are_tried_on_training_data_and_written_under_their_name(tmp_path, monkeypatch):
    asked = []

    def stub(division, seed, device, **settings):
        asked.append((division, settings))
        return np.eye(2)[division.truth]

    monkeypatch.setitem(METHODS["classification"], OURS, stub)
    one = problem("classification", "accuracy")
    path = choices.run(one, {"scaling": "standard"}, tmp_path, device="cpu")
    assert path == tmp_path / "choices" / "cpu" / "classification" / "scaling-standard.json"
    division, settings = asked[0]
    assert settings == {"scaling": "standard"} and choices.read(path).score == 1
    train = {sample.id for sample in one.divide(0).train}
    ids = [{sample.id for sample in part} for part in (division.train, division.test)]
    assert ids[0] | ids[1] == train and not ids[0] & ids[1]
    assert one.divide(0).test[0].values.tolist() not in [sample.values.tolist() for sample in division.test]
    with refused(ValueError, "scaling-standard.json", "force"):
        choices.run(one, {"scaling": "standard"}, tmp_path, device="cpu")
    assert choices.name_of({}) == "defaults"
    assert choices.name_of({"a": 1, "b": 2}) == choices.name_of({"b": 2, "a": 1})
    assert len(choices.name_of({"a" * 90: 1})) == 12
    for text, *said in (("{", "JSON"), ("[1]", "object"), ('{"device": "cpu"}', "--device")):
        with refused(ValueError, *said):
            choices.read_settings(text)


def of(name, fold=0, **scores):
    return trial.Trial(
        problem=name,
        fold=fold,
        metric="accuracy",
        scores=scores,
        seconds=dict.fromkeys(scores, 1.0),
        n_train=1,
        n_test=1,
        n_tokens=1,
        machine="cpu",
        n_threads=2,
        commit="",
        versions={},
    )


def test_ranks_share_ties_and_ours_is_held_against_the_best_other():
    trials = {
        "Epilepsy-complete": [of("Epilepsy-complete", RoMAE=0.9, boosting=0.9, MiniRocket=0.5)],
        "plasticc": [
            of("plasticc", RoMAE=0.4, boosting=0.6, MiniRocket=0.1),
            of("plasticc", RoMAE=0.6, boosting=0.42, MiniRocket=0.1),
        ],
    }
    rows = table.rows(trials)
    assert [row.n_folds for row in rows] == [1, 2]
    assert rows[1].scores[OURS] == 0.5 and rows[1].ahead == pytest.approx(-0.01)
    with_vectors = of("LSST-complete", RoMAE=0.5, **{"linear model": 0.4, VECTORS: 0.9})
    (row,) = table.rows({"LSST-complete": [with_vectors]})
    assert row.ahead == pytest.approx(0.1) and table.mean_ranks([row]) == {"RoMAE": 1.0, "linear model": 2.0}
    assert "vectors than on summary features in 1 of 1" in table.to_markdown({"cpu": {"LSST-complete": [with_vectors]}})
    assert table.mean_ranks(rows) == {"boosting": 1.25, "RoMAE": 1.75, "MiniRocket": 3.0}
    assert "## cpu (" in (noted := table.to_markdown({"cpu": trials}, {"cpu": "Beside other work.\n"}))
    assert noted.split("## cpu")[1].split("###")[0].endswith("\n\nBeside other work.\n\n")
    text = table.to_markdown({"cpu": trials})
    assert "nowhere" in text and "(2 folds)" in text and "**0.510**" in text
    trials["plasticc"][0] = of("plasticc", RoMAE=0.3, boosting=0.6, MiniRocket=0.1)
    assert "PLAsTiCC, all labels (-0.060)" in table.to_markdown({"cpu": trials})


@pytest.mark.parametrize("name", ["oscillators", "synthetic", "pendulum"])
def test_problems_that_make_their_data_divide_them(name, monkeypatch):
    from romae.experiments.datasets import oscillators, pendulum, synthetic

    few = {"train": 20, "validation": 1, "test": 10}
    for generator in (pendulum, synthetic):
        real = generator.generate
        monkeypatch.setattr(generator, "generate", partial(real, counts=few))
    make = oscillators.oscillators
    monkeypatch.setattr(oscillators, "oscillators", lambda n, seed: make(n // 30, seed))
    one = find(name)
    division = one.division(0, quick=True)
    assert 0 < len(division.train) <= 60 and 0 < len(division.test) <= 20
    if one.task == "interpolation":
        assert all(sample.hidden is not None and sample.hidden.any() for sample in division.test)
        assert all(sample.hidden is None for sample in division.train)
    choosing = one.for_choosing(0)
    whole = {sample.values.numpy().tobytes() for sample in one.divide(0).test}
    parts = [{sample.values.numpy().tobytes() for sample in part} for part in (choosing.train, choosing.test)]
    assert not parts[0] & parts[1] and not (parts[0] | parts[1]) & whole


def test_folds_and_names_are_checked():
    assert len({one.name for one in PROBLEMS}) == len(PROBLEMS) == 20
    with refused(ValueError, "'nothing'", "mortality"):
        find("nothing")
    with refused(ValueError, "plasticc", "folds 0 to 4"):
        find("plasticc").division(5)


def test_the_command_shows_what_there_is(tmp_path):
    one = replace(problem("classification", "accuracy"), name="LSST-complete")
    trial.run(one, 0, tmp_path, device="cpu", methods=["1-NN", "boosting"])
    options = ["compare", "--table", "--results", str(tmp_path), "--markdown", str(tmp_path / "table.md")]
    done = CliRunner().invoke(app, options)
    assert done.exit_code == 0, done.output
    assert "LSST-complete" in done.output and "mean ranks on cpu" in done.output
    assert (tmp_path / "table.md").read_text().startswith(table.TITLE)
    assert "PLAsTiCC" in CliRunner().invoke(app, ["compare", "--list"]).output


def test_the_command_runs_what_is_missing_and_nothing_twice(tmp_path, monkeypatch):
    one = replace(problem("classification", "accuracy"), name="LSST-complete", n_folds=2)
    monkeypatch.setattr("romae.experiments.compare.problems.find", lambda name: one)
    ran = []
    monkeypatch.setattr(trial, "run", lambda problem, fold, folder, **settings: ran.append((problem.name, fold)))
    options = ["compare", "LSST-complete", "--results", str(tmp_path), "--device", "cpu"]
    CliRunner().invoke(app, options)
    assert ran == [("LSST-complete", 0), ("LSST-complete", 1)]
    place = trial.trial_path(tmp_path, one, 0, "cpu", quick=False)
    place.parent.mkdir(parents=True)
    every = dict.fromkeys(METHODS["classification"], 0.5)
    place.write_text(json.dumps(to_dict(of("LSST-complete", **every))))
    CliRunner().invoke(app, options)
    assert ran[2:] == [("LSST-complete", 1)]
    CliRunner().invoke(app, [*options, "--folds", "1"])
    assert ran[3:] == [("LSST-complete", 1)]


def test_complete_and_thinned_series_are_of_the_same_cases(real_data, monkeypatch):
    monkeypatch.setenv("ROMAE_DATA", str(real_data))
    whole, thin = (find(f"BasicMotions-{form}").division(0) for form in ("complete", "thinned"))
    np.testing.assert_array_equal(whole.labels, thin.labels)
    assert {len(sample) for sample in whole.train} == {100} and {len(sample) for sample in thin.train} == {70}
    for full, part in zip(whole.test, thin.test, strict=True):
        kept = part.positions[:, 0].long()
        assert (full.values[kept] == part.values).all()
    assert all(sample.target is None for sample in (*whole.train, *whole.test))


def test_what_needs_no_gpu_is_run_on_a_cpu_alone_and_ours_says_which_folds_count():
    name = "plasticc"
    on_cpu = [of(name, 0, RoMAE=0.3, boosting=0.5), of(name, 1, boosting=0.7)]
    on_gpu = [of(name, 0, RoMAE=0.6), of(name, 1, RoMAE=0.8, boosting=0.1)]
    whole = table.completed({"cpu": {name: on_cpu}, "gpu": {name: on_gpu}})
    assert [trial.scores for trial in whole["gpu"][name]] == [
        {"RoMAE": 0.6, "boosting": 0.5},
        {"RoMAE": 0.8, "boosting": 0.1},
    ], "ours is never taken over, and what a machine has run stays"
    assert whole["cpu"][name] == on_cpu
    (row,) = table.rows(whole["cpu"])
    assert row.n_folds == 1 and row.scores == {"RoMAE": 0.3, "boosting": 0.5}
    (row,) = table.rows({name: [of(name, 0, boosting=0.5), of(name, 1, boosting=0.7)]})
    assert row.n_folds == 2


def test_settings_of_the_embedder_are_chosen_too(tmp_path, monkeypatch):
    monkeypatch.setitem(METHODS["classification"], VECTORS, lambda division, *_, **__: np.eye(2)[division.truth])
    one = problem("classification", "accuracy")
    path = choices.run(one, {}, tmp_path, method=VECTORS, device="cpu")
    assert path.name == "vectors-defaults.json" and choices.read(path).method == VECTORS
    with refused(ValueError, "'boosting'", OURS):
        choices.run(one, {}, tmp_path, method="boosting", device="cpu")
    with refused(ValueError, VECTORS, "regression"):
        choices.run(problem("regression", "R²"), {}, tmp_path, method=VECTORS, device="cpu")


def test_what_the_table_of_defaults_calls_measured_is_in_the_files():
    root = Path(__file__).resolve().parents[1]
    found = [choices.read(path) for path in (root / "results" / "compare" / "choices").rglob("*.json")]
    scores = {f"{one.score:.3f}" for one in found}
    text = (root / "docs" / "estimators.md").read_text(encoding="utf-8")
    table = text.partition("| setting | rule | measured |\n|---|---|---|\n")[2].partition("\n\n")[0]
    rows = [line.split(" | ") for line in table.splitlines()]
    told = [number for row in rows for number in re.findall(r"\b[01]\.\d{3}\b", row[2])]
    assert len(rows) > 10 and len(told) > 30 and all(re.findall(r"\b[01]\.\d{3}\b", row[2]) for row in rows)
    assert set(told) <= scores and not any(one.quick for one in found)


ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def committed():
    """All committed trials, with the methods that use no GPU in both tables."""
    folder = ROOT / "results" / "compare"
    return table.completed({home: trial.read_all(folder, home) for home in ("cpu", "nvidia-h200")})


def test_the_committed_table_is_that_of_the_committed_trials(committed):
    folder = ROOT / "results" / "compare"
    trials = {home: trial.read_all(folder, home) for home in committed}
    notes = {home: (folder / home / trial.NOTE).read_text(encoding="utf-8") for home in committed}
    written = (ROOT / "COMPARISON.md").read_text(encoding="utf-8")
    assert table.to_markdown(trials, notes) == written, "run `romae compare --table --markdown COMPARISON.md`"


def test_what_the_readme_says_of_ranks_is_what_the_trials_say(committed):
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    cpu, gpu = (table.mean_ranks(table.rows(trials)) for trials in committed.values())
    for ranks in (cpu, gpu):
        assert min(ranks, key=ranks.get) == OURS
    shown = {
        name: (f"{cpu[name]:.1f}", f"{gpu[name]:.1f}") for name in (OURS, "MiniRocket", "boosting", "linear model")
    }
    assert f"mean rank is {shown[OURS][0]} on two CPU cores and {shown[OURS][1]} on an H200" in text
    assert f"MiniRocket ({shown['MiniRocket'][0]} and {shown['MiniRocket'][1]})" in text
    assert shown["boosting"][0] == shown["boosting"][1] and f"boosting ({shown['boosting'][0]} on both)" in text
    assert f"({shown['linear model'][0]} and {shown['linear model'][1]}) on summary features" in text
    ahead = [row.ahead for trials in committed.values() for row in table.rows(trials) if row.ahead is not None]
    assert min(ahead) >= -table.BEHIND

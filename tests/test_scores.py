"""What a finished run is judged by: on ids that it never saw, counted as scikit-learn counts, and written down."""

import json
import shutil
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import f1_score, r2_score, roc_auc_score

import romae
from messages import assert_says, refused
from romae.inference import scores as scores_module
from romae.inference.scores import Scores, score, score_run
from romae.model.config import ModelConfig
from romae.model.tasks import Classification, MaskedReconstruction, Regression
from romae.training.run_folder import METRICS, TEST_IDS
from romae.training.splits import HoldoutConfig, SplitConfig, holdout_split, read_test_ids
from romae.training.tables import finetune, pretrain
from test_cli_own_data import COLUMNS, TINY, interrupted, run  # noqa: F401  (fixtures)
from test_training_tables import CURVES, FINETUNE, PRETRAIN, SHUFFLED, SMALL, contents, samples_of

MODEL = ModelConfig(channels=1, position_dims=1, encoder=SMALL, decoder=SMALL)
TESTED = replace(PRETRAIN, test=HoldoutConfig(share=0.25))


def labelled(classes):
    """Series with these classes, or numbers, as their labels."""
    values = np.random.default_rng(0).normal(size=(len(classes), 4, 1))
    return romae.from_arrays(values, y=classes)


def told(monkeypatch, function, answer):
    """Lets the model say this, so that the counting alone is tested."""
    monkeypatch.setattr(scores_module.inference, function, lambda task, samples, **_: answer)


# Which ids are kept out


@pytest.mark.parametrize("share", [0.1, 0.2, 0.37, 0.5])
def test_every_class_has_the_same_share_of_its_ids_tested_on(share):
    classes = ["a"] * 50 + ["b"] * 23 + ["c"] * 9 + ["d"] * 3
    samples = labelled(classes)
    rest, test = holdout_split(samples, HoldoutConfig(share=share, seed=3))
    names = [samples.schema.classes[int(sample.target)] for sample in test]
    counts = Counter(names)
    assert len(test) == round(share * len(samples))
    assert all(abs(counts[name] - share * n) <= 1 for name, n in Counter(classes).items())
    assert sorted([s.id for s in rest] + [s.id for s in test]) == [s.id for s in samples]


def test_the_test_ids_follow_the_seed_and_not_the_order_of_rows():
    def drawn(table, seed):
        return [s.id for s in holdout_split(samples_of(table, "kind"), HoldoutConfig(share=0.25, seed=seed))[1]]

    assert drawn(CURVES, 1) == drawn(SHUFFLED, 1) != drawn(CURVES, 2)
    assert holdout_split(samples_of(CURVES), HoldoutConfig())[1] is None


def test_a_class_or_a_channel_is_never_wholly_kept_out():
    samples = labelled(["a"] * 6 + ["b"])
    for seed in range(20):
        rest, _ = holdout_split(samples, HoldoutConfig(share=0.5, seed=seed))
        assert {int(sample.target) for sample in rest} == {0, 1}
    star = CURVES["star"].iloc[0]
    alone = samples_of(CURVES.assign(band=CURVES["band"].where(CURVES["star"] != star, "z")))
    for seed in range(20):
        _, test = holdout_split(alone, HoldoutConfig(share=0.5, seed=seed))
        assert star not in [sample.id for sample in test]


def test_ids_that_pre_training_kept_out_are_tested_on_first():
    samples = samples_of(CURVES, "kind")
    first = {"s03", "s04", "s09", "s10"}
    _, test = holdout_split(samples, HoldoutConfig(share=0.25), first=first)
    assert {sample.id for sample in test} == first


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (lambda: HoldoutConfig(share=1.0), ["share is", "to test on", "not 1.0"]),
        (lambda: HoldoutConfig(seed=-1), ["test.seed", "at least 0"]),
        (lambda: holdout_split(labelled(["a", "b"]), HoldoutConfig(share=0.9)), ["2 of 2 ids", "test.share"]),
        (lambda: holdout_split(labelled(["a", "b"]), HoldoutConfig(share=0.5)), ["class", "test.share=0"]),
    ],
)
def test_a_test_that_cannot_be_is_refused(make, parts):
    with refused(ValueError, *parts):
        make()


# What is counted


def test_classes_are_scored_as_scikit_learn_does(monkeypatch):
    samples = labelled(["a", "b", "c"] * 10)
    truth = np.array([int(sample.target) for sample in samples])
    probabilities = np.random.default_rng(1).dirichlet(np.ones(3), 30)
    told(monkeypatch, "predict_proba", probabilities)
    scores = score(Classification(MODEL, 3), samples, split="test")
    predicted = probabilities.argmax(1)
    assert scores.metrics == pytest.approx(
        {
            "accuracy": (predicted == truth).mean(),
            "macro_f1": f1_score(truth, predicted, average="macro"),
            "auroc": roc_auc_score(truth, probabilities, multi_class="ovr"),
        }
    )
    assert scores.baselines == {"accuracy": {"majority class": pytest.approx(1 / 3)}} and scores.omitted == {}
    assert scores.parts["b"]["n"] == 10


def test_two_classes_have_the_area_of_the_second(monkeypatch):
    samples = labelled([False, False, True, True])
    told(monkeypatch, "predict_proba", np.array([[0.9, 0.1], [0.4, 0.6], [0.7, 0.3], [0.2, 0.8]]))
    scores = score(Classification(MODEL, 2), samples, split="test")
    assert scores.metrics["auroc"] == 0.75  # of 4 pairs, 3 are in order
    assert scores.metrics["accuracy"] == 0.5


def test_a_class_that_is_never_predicted_is_named_with_its_share(monkeypatch):
    samples = labelled(["x"] * 4 + ["y"] * 116)
    told(monkeypatch, "predict_proba", np.tile([0.1, 0.9], (120, 1)))
    scores = score(Classification(MODEL, 2), samples, split="test")
    (remark,) = scores.remarks
    assert remark == "class 'x' (4 of 120 test series) is never predicted"  # what the issue asks for, word by word
    assert remark in "\n".join(scores.lines())
    told(monkeypatch, "predict_proba", np.eye(2)[[0, *[1] * 119]])
    assert score(Classification(MODEL, 2), samples, split="test").remarks == ()


def test_an_area_without_ids_of_a_class_is_left_out_with_the_reason(monkeypatch):
    samples = labelled(["a", "b", "c", "a"])
    kept = romae.SampleSet([sample for sample in samples if int(sample.target) != 1], samples.schema)
    told(monkeypatch, "predict_proba", np.tile([0.6, 0.2, 0.2], (3, 1)))
    scores = score(Classification(MODEL, 3), kept, split="validation")
    assert "auroc" not in scores.metrics
    assert_says(scores.omitted["auroc"], "'b'", "3 validation ids")
    assert_says(scores.remarks[0], "'c' (1 of 3")
    assert_says("\n".join(scores.lines()), "AUROC is left out", "optimistic", "--test-share 0.2")


def test_numbers_have_r2_and_an_error_in_their_own_unit(monkeypatch):
    truth, predicted = [1000.0, 1002.0, 1004.0, 1010.0], np.array([1001.0, 1001.0, 1005.0, 1009.0])
    told(monkeypatch, "predict", predicted)
    scores = score(Regression(MODEL), labelled(truth), split="test")
    assert scores.metrics == pytest.approx({"r2": r2_score(truth, predicted), "rmse": 1.0})
    assert scores.baselines["rmse"]["mean of the test ids"] == pytest.approx(np.std(truth))
    told(monkeypatch, "predict", np.array([1001.0]))
    scores = score(Regression(MODEL), labelled([1000.0]), split="test")
    assert scores.metrics == {"rmse": 1.0}
    assert_says(scores.omitted["r2"], "two numbers that differ")


def test_hidden_values_are_scored_by_channel_beside_lines(monkeypatch):
    """A model that is right in one band and says the mean of the other has R² of 1 and 0."""
    samples = samples_of(CURVES.assign(flux=np.where(CURVES["band"] == "g", 1.0 + CURVES["mjd"], CURVES["flux"])))
    truths = {}

    def predict(task, masked):
        rows = [sample.values[sample.hidden].double().numpy() for sample in masked]
        bands = [sample.positions[sample.hidden, -1].numpy() for sample in masked]
        truths["red"] = np.concatenate(rows)[np.concatenate(bands) == 1].mean()
        return [np.where(b[:, None] == 1, truths["red"], x) for x, b in zip(rows, bands, strict=True)]

    monkeypatch.setattr(scores_module.inference, "predict", predict)
    task = MaskedReconstruction(replace(MODEL, position_dims=2), masking=romae.UniformTokens(ratio=0.5))
    scores = score(task, samples, split="test")
    assert {name: part["r2"] for name, part in scores.parts.items()} == pytest.approx({"g": 1.0, "r": 0.0}, abs=1e-6)
    assert scores.metrics["r2"] == pytest.approx(0.5) and scores.n == 16
    assert scores.parts["g"]["linear_interpolation"] > scores.parts["r"]["linear_interpolation"]
    assert_says("\n".join(scores.lines()), "g 1, r", "linear interpolation", "50% of all")
    constant = samples_of(CURVES.assign(flux=np.where(CURVES["band"] == "g", 7.0, CURVES["flux"])))
    scores = score(task, constant, split="test")
    assert scores.parts.keys() == {"r"}
    assert_says(scores.omitted["R² of g"], "two numbers that differ")


def test_series_of_which_nothing_can_be_hidden_have_no_score():
    samples = romae.from_arrays([np.ones((1, 1))] * 3)
    scores = score(MaskedReconstruction(MODEL), samples, split="validation")
    assert scores.metrics == {}
    assert_says(scores.omitted["r2"], "no id")


def test_scores_survive_the_way_through_a_file():
    scores = Scores(split="test", n=3, metrics={"r2": 0.5}, parts={"g": {"n": 2, "r2": 0.5}}, remarks=("so it is",))
    assert Scores.read(json.loads(json.dumps(scores.to_dict()))) == scores
    for content in ([], {"metrics": {}}, scores.to_dict() | {"metrics": {"r2": "good"}}):
        with pytest.raises((TypeError, ValueError)):
            Scores.read(content)


# What a run does with them


@pytest.fixture(scope="module")
def tested(tmp_path_factory):
    trained = pretrain(TESTED, CURVES, tmp_path_factory.mktemp("tested") / "run")
    score_run(trained, device="cpu")
    return trained


def test_what_is_tested_on_changes_nothing_of_the_model(tested, tmp_path):
    """Other values in the rows of the test ids give the same scaling and the same weights, bit for bit."""
    test = read_test_ids(tested.model.parent)
    assert len(test) == 4 == tested.n_test and tested.n_training + tested.n_validation == 12
    is_test = CURVES["star"].isin(test)
    other = pretrain(TESTED, CURVES.assign(flux=CURVES["flux"].where(~is_test, -CURVES["flux"])), tmp_path / "run")
    assert contents(other.model) == contents(tested.model)
    gone = pretrain(replace(PRETRAIN, columns=TESTED.columns), CURVES[~is_test], tmp_path / "gone")
    assert contents(gone.model) == contents(tested.model)


def test_a_run_is_not_resumed_with_other_test_ids_or_rows(tested, tmp_path):
    folder = shutil.copytree(tested.model.parent, tmp_path / "run")
    before = contents(folder)
    again = pretrain(TESTED, SHUFFLED, folder, resume=True)
    score_run(again, device="cpu")
    assert contents(folder) == before
    is_test = CURVES["star"].isin(read_test_ids(folder))
    with refused(ValueError, "rows to test on", TEST_IDS, "own table"):
        pretrain(TESTED, CURVES.assign(flux=CURVES["flux"].where(~is_test, -CURVES["flux"])), folder, resume=True)
    with refused(ValueError, "other settings", "test.share"):
        pretrain(replace(TESTED, test=HoldoutConfig(share=0.3)), CURVES, folder, resume=True)
    assert contents(folder) == before


def test_the_scores_of_a_run_are_those_of_its_model_on_disk(tested):
    written = Scores.read(json.loads((tested.model.parent / METRICS).read_text()))
    assert written == score(romae.load(tested.model), tested.test, split="test") and written.n == 4
    assert written.parts.keys() == {"g", "r"}


def test_fine_tuning_tests_on_what_pre_training_has_not_seen(tested, tmp_path):
    config = replace(FINETUNE, label="kind", test=HoldoutConfig(share=0.125, seed=5))
    trained = finetune(config, CURVES, tested.model, tmp_path / "run")
    kept_out = read_test_ids(tested.model)  # of whom a fast and a slow one are drawn
    kinds = dict(zip(CURVES["star"], CURVES["kind"], strict=True))
    assert {kinds[name] for name in kept_out} == {"fast", "slow"}, "choose another seed"
    assert read_test_ids(tmp_path / "run") <= kept_out and trained.n_test == 2


def test_without_test_ids_the_validation_ids_are_scored_and_without_those_nothing_is(tmp_path):
    trained = pretrain(PRETRAIN, CURVES, tmp_path / "validated")
    scores = score_run(trained, device="cpu")
    assert (scores.split, scores.n) == ("validation", 4) and not (tmp_path / "validated" / TEST_IDS).exists()
    trained = pretrain(replace(PRETRAIN, validation=SplitConfig(share=0)), CURVES, tmp_path / "all")
    assert score_run(trained) is None and not (tmp_path / "all" / METRICS).exists()


def test_a_file_of_another_origin_is_not_written_over(tmp_path):
    (tmp_path / METRICS).write_text('{"mine": 1}')
    with refused(ValueError, METRICS, "another", "folder"):
        pretrain(PRETRAIN, CURVES, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [METRICS]


def test_the_command_line_ends_with_scores(run):  # noqa: F811
    done = run("pretrain", "curves.parquet", *COLUMNS, "--out", "run", *TINY, "--test-share", "0.25")
    assert done.code == 0
    assert_says(done.out, "scores on 4 test", "kept out of training", "R²", "linear interpolation", "R² of each: g")
    done = run("finetune", "curves.parquet", "--pretrained=run", "--label=kind", "--out=clf", *TINY[2:], "--json")
    summary = json.loads(done.out)
    assert summary["scores"] == json.loads(Path("clf/metrics.json").read_text()) and summary["test"] == 0
    assert (
        summary["scores"]["split"] == "validation" and {"accuracy", "macro_f1"} <= summary["scores"]["metrics"].keys()
    )
    without = ("--set=validation.share=0", "--label=freq", "--out=number")
    done = run("finetune", "curves.parquet", "--pretrained=run", *without, *TINY[2:])
    assert_says(done.out, "no scores", "--test-share 0.2")
    for share in ("1.5", "-0.1", "nan"):
        done = run("pretrain", "curves.parquet", *COLUMNS, "--out", "other", *TINY, "--test-share", share)
        assert done.code == 2 and not Path("other").exists()
        assert_says(done.err, "share is", "from 0 to below", share)


def test_a_run_with_test_ids_that_was_stopped_ends_like_one_that_was_not(run, interrupted):  # noqa: F811
    given = ("curves.parquet", *COLUMNS, *TINY, "--test-share", "0.25")
    assert run("pretrain", *given, "--out", "whole").code == 0
    interrupted(signal.SIGINT)
    assert run("pretrain", *given, "--out", "stopped").code == 130
    assert Path("stopped", TEST_IDS).exists() and not Path("stopped", METRICS).exists()
    interrupted()
    assert run("pretrain", "curves.parquet", "--out", "stopped", "--resume").code == 0
    assert contents(Path("stopped")) == contents(Path("whole"))


def test_the_page_of_a_run_shows_its_scores_and_the_ids_it_was_tested_on(tested, tmp_path):
    run_page = pytest.importorskip("romae.pages.run_page", reason="needs romae[plots]")
    folder = shutil.copytree(tested.model.parent, tmp_path / "run")
    kept_out = run_page.PageConfig(samples="kept out")
    text = run_page.write(folder, data=CURVES, config=kept_out).read_text()
    assert_says(text, "Scores", "On 4 test ids", "The 4 ids", "out of training and")
    spoiled = CURVES.assign(flux=CURVES["flux"].where(~CURVES["star"].isin(read_test_ids(folder)), -1 * CURVES["flux"]))
    for other in (spoiled, CURVES[CURVES["star"].isin(read_test_ids(folder))]):
        with refused(ValueError, "not the samples", "own table"):
            run_page.write(folder, data=other, config=kept_out)
    (folder / METRICS).write_text('{"metrics": 3}')
    with refused(ValueError, METRICS, "altered"):
        run_page.write(folder)

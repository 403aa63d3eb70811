"""Several labels of an id or a series, in the estimator and on the command line: what they learn, read and refuse."""

import itertools
import json
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from sklearn.model_selection import cross_val_score
from sklearn.utils.multiclass import type_of_target

import romae
from messages import assert_says, refused
from romae.cli import main as cli
from romae.data.labels import from_names, strata
from romae.estimators import stacking
from romae.estimators.members import Linear
from romae.model.calibration import fitted, fitted_to_labels
from romae.training.splits import HoldoutConfig, holdout_split
from test_page import figures_of

pytestmark = pytest.mark.usefixtures("without_shape_checks")  # as for users

NAMES = ("rising", "bright", "early")
FAST = {
    "size": {"width": 16, "heads": 2, "depth": 1},
    "pretrain_epochs": 0,
    "epochs": 1,
    "batch_size": 16,
    "lr": 1e-2,
    "features": None,
    "n_models": 1,
    "device": "cpu",
    "random_state": 0,
}


def series(n: int) -> tuple[list[tuple[np.ndarray, np.ndarray]], np.ndarray]:
    """Series with a slope, a high level and a bump at their beginning, each or none of them."""
    random, every = np.random.default_rng(0), np.array(list(itertools.product((0, 1), repeat=3)))
    truth = np.concatenate(
        [random.permutation(every) for _ in range(n // len(every))]
    )  # each label in half of any part
    X = []
    for rising, bright, early in truth:
        times = np.sort(random.uniform(0, 4, 12))
        values = 2 * rising * (times - 2) + 4 * bright + 5 * early * (times < 1) + 0.1 * random.normal(size=12)
        X.append((times, values))
    return X, truth


X, Y = series(96)
SETS = [{name for name, is_true in zip(NAMES, row, strict=True) if is_true} for row in Y]


def table(n: int = 24, **more) -> pd.DataFrame:
    """The same as a table with a column for each label, and all of them in one."""
    parts = [
        pd.DataFrame({"star": f"s{i:02}", "day": times, "flux": values})
        .assign(**dict(zip(NAMES, row, strict=True)), kinds="|".join(sorted(names)))
        .assign(**more)
        for i, ((times, values), row, names) in enumerate(zip(X[:n], Y[:n], SETS[:n], strict=True))
    ]
    return pd.concat(parts, ignore_index=True)


def fitted_on(y, **more) -> romae.RoMAEClassifier:
    return romae.RoMAEClassifier(**FAST | more).fit(X[: y.shape[0] if hasattr(y, "shape") else len(y)], y)


@pytest.fixture(scope="module")
def learned() -> romae.RoMAEClassifier:
    return fitted_on(Y[:72], epochs=20, random_state=1)


# The estimator


@pytest.fixture
def linear_models(monkeypatch):
    """The linear model alone beside the network: boosted trees take seconds for each label."""
    monkeypatch.setattr(stacking, "MEMBERS", {"linear": Linear})


def test_labels_are_learned_far_above_their_base_rates(learned):
    said, chances = learned.predict(X[72:]), learned.predict_proba(X[72:])
    assert type_of_target(said) == "multilabel-indicator" and said.dtype == Y.dtype and chances.shape == (24, 3)
    base = np.maximum(Y[72:].mean(0), 1 - Y[72:].mean(0))
    right = (said == Y[72:]).mean(0)
    assert (base == 0.5).all() and (right > 0.7).all() and right.mean() > 0.85
    assert learned.score(X[72:], Y[72:]) == (said == Y[72:]).all(1).mean()  # subset accuracy
    assert_array_equal(said, chances >= 0.5)
    assert learned.classes_.tolist() == [0, 1, 2] and learned.is_multilabel_
    assert isinstance(learned.task_, romae.MultiLabel) and learned.task_.calibration is not None


def test_labels_are_the_same_in_every_form():
    chances = fitted_on(Y[:24]).predict_proba(X[:4])
    frame = pd.DataFrame(Y[:24], columns=NAMES)
    for y in (Y[:24] == 1, Y[:24].astype(float), Y[:24].tolist(), csr_array(Y[:24]), torch.tensor(Y[:24]), frame):
        assert_array_equal(fitted_on(y).predict_proba(X[:4]), chances)
    order = np.argsort(NAMES)  # names are sorted
    for y in (SETS[:24], [sorted(names) for names in SETS[:24]], pd.Series(SETS[:24])):
        named = fitted_on(y)
        assert named.classes_.tolist() == sorted(NAMES)
        assert_allclose(named.predict_proba(X[:4]), chances[:, order], atol=1e-4)
        assert named.score(X[:24], SETS[:24]) == named.score(X[:24], frame[frame.columns[[2, 0, 1]]])
    named = romae.from_arrays([values[:, None] for _, values in X[:24]], [times for times, _ in X[:24]], y=Y[:24])
    assert romae.RoMAEClassifier(**FAST).fit(named).classes_.tolist() == [0, 1, 2]


def test_permuted_columns_give_permuted_answers():
    order = [2, 0, 1]
    straight, permuted = fitted_on(Y[:40], epochs=3), fitted_on(Y[:40][:, order], epochs=3)
    assert_allclose(permuted.predict_proba(X[40:]), straight.predict_proba(X[40:])[:, order], atol=1e-3)


def test_one_label_in_sets_has_one_column_and_one_in_an_array_is_a_class():
    alone = fitted_on([names & {"bright"} for names in SETS[:24]])
    assert alone.classes_.tolist() == ["bright"]
    assert alone.predict(X[:5]).shape == alone.predict_proba(X[:5]).shape == (5, 1)
    with pytest.warns(UserWarning, match="column-vector"):  # what scikit-learn makes of it
        assert fitted_on(Y[:24, :1]).predict_proba(X[:5]).shape == (5, 2)


def test_a_table_has_a_column_for_each_label():
    columns = {"id": "star", "time": "day", "values": "flux"}
    answers = []
    for label in ({"label": list(NAMES)}, {"label": "kinds", "separator": "|"}):
        classifier = romae.RoMAEClassifier(**FAST, columns=columns | label).fit(table())
        said = classifier.predict(table().drop(columns=[*NAMES, "kinds"]))
        assert said.index.name == "star" and set(said.columns) == set(NAMES)
        assert classifier.score(table()) == (said[list(NAMES)].to_numpy() == Y[:24]).all(1).mean()
        answers.append(classifier.predict_proba(table())[list(NAMES)])
    assert_allclose(answers[0], answers[1], atol=1e-4)
    few = table()[table()["early"] == 0]  # in whose column of names one label does not occur
    assert 0 <= classifier.score(few) <= 1
    by_id = {f"s{i:02}": names for i, names in enumerate(SETS[:24])}
    given = romae.RoMAEClassifier(**FAST, columns=columns).fit(table(), by_id)
    assert_allclose(given.predict_proba(table())[list(NAMES)], answers[0], atol=1e-4)


@pytest.mark.parametrize("features", [None, "summary"])
def test_a_saved_estimator_answers_alike(tmp_path, features, linear_models):
    never = np.column_stack([Y[:40], np.zeros(40, dtype=int)])  # a label that no series has
    before = fitted_on(never, features=features)
    chances = before.predict_proba(X[40:])
    assert ((chances >= 0) & (chances <= 1)).all() and np.isfinite(chances).all()
    before.save(tmp_path / "saved")
    after = romae.RoMAEClassifier.load(tmp_path / "saved")
    assert_array_equal(after.predict_proba(X[40:]), chances)
    assert after.is_multilabel_ and (after.stack_ is None) == (features is None)
    told = romae.load(tmp_path / "saved" / "model")
    assert isinstance(told, romae.MultiLabel) and told.n_labels == 4


def test_an_estimator_goes_from_labels_to_classes_and_back():
    classifier = fitted_on(Y[:24])
    classifier.fit(X[:24], Y[:24, 0])
    assert not classifier.is_multilabel_ and classifier.predict(X[:3]).shape == (3,)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(cross_val_score(classifier, X[:24], Y[:24], cv=2)) == 2


def test_simpler_models_beside_the_network_help_each_label(linear_models):
    alone, together = fitted_on(Y[:48]), fitted_on(Y[:48], features="summary")
    right = [(one.predict(X[48:]) == Y[48:]).mean() for one in (alone, together)]
    assert right[1] > max(right[0], 0.85)


@pytest.mark.parametrize(
    ("y", "error", "parts"),
    [
        (Y[:24] * 2, ValueError, ["0 or 1", "label 0", "sets"]),
        (np.where(Y[:24] == 1, np.nan, 0.0), ValueError, ["missing in part"]),
        (Y[:23], ValueError, ["23", "24 samples"]),
        (SETS[:23], ValueError, ["23", "24 samples"]),
        ([None, *SETS[1:24]], ValueError, ["missing in part", "sample 0"]),
        ([set()] * 24, ValueError, ["no sample has"]),
        ([{1}, {"a"}] * 12, TypeError, ["all text"]),
        (np.zeros((24, 2, 2)), ValueError, ["dim 3"]),
        (np.array([["a", "b"]] * 24), ValueError, ["0 or 1", "'a'"]),
    ],
    ids=["twos", "nan", "short", "short sets", "none", "empty", "mixed", "cube", "text"],
)
def test_bad_labels_are_refused_in_one_sentence(y, error, parts):
    with refused(error, *parts):
        romae.RoMAEClassifier(**FAST).fit(X[:24], y)


def test_settings_of_classes_are_refused(learned):
    for setting, value in (("class_weight", "balanced"), ("scoring", "f1_macro")):
        with refused(ValueError, setting, "several labels"):
            fitted_on(Y[:24], **{setting: value})
    with refused(ValueError, "2 labels", "3 were fitted"):
        learned.score(X[:8], Y[:8, :2])
    with refused(ValueError, "'dim'", "unknown"):
        fitted_on(SETS[:24]).score(X[:8], [{"dim"}] * 8)


# Splits and calibration


def test_splits_go_by_the_rarest_label_whatever_the_order():
    truth = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 0], [1, 1, 1], [1, 0, 0]])
    groups = strata(truth)
    assert groups.tolist() == [1, 2, -1, 0, 2]
    assert_array_equal(strata(truth[:, [2, 0, 1]]), groups)
    samples = romae.from_table(table(), id="star", time="day", values="flux", label=list(NAMES))
    rest, test = holdout_split(samples, HoldoutConfig(share=0.25))
    assert len(test) == 6 and all(sum(int(sample.target[k]) for sample in rest) for k in range(3))


def test_the_calibration_of_one_label_is_that_of_two_classes():
    torch.manual_seed(0)
    logits, truth = 3 * torch.randn(200, 1), torch.rand(200, 1)
    truth = (truth < logits.sigmoid() ** 2).long()
    one = fitted_to_labels(logits, truth)
    two = fitted(torch.cat([0 * logits, logits], dim=1), truth[:, 0], 1.0)
    assert one.temperature == pytest.approx(two.temperature, rel=1e-4)
    assert one.bias[0] == pytest.approx(two.bias[1] - two.bias[0], abs=1e-4)


def test_calibrated_labels_are_as_frequent_as_promised():
    torch.manual_seed(0)
    probability = torch.rand(4000, 2)
    truth = (torch.rand(4000, 2) < probability).long()
    logits = torch.logit(probability.clamp(1e-4, 1 - 1e-4)) * 2 + torch.tensor([1.0, -2.0])
    calibration = fitted_to_labels(logits, truth)
    calibrated = calibration.apply(logits, 1.0).sigmoid()
    assert calibration.temperature == pytest.approx(2, rel=0.1)
    assert_allclose(calibrated.mean(0), truth.double().mean(0), atol=0.01)


def test_a_calibration_of_other_labels_is_refused(learned):
    task = learned.task_
    with refused(ValueError, "2 labels", "has 3"):
        task.calibration = replace(task.calibration, bias=(0.0, 0.0))
    before = romae.predict_proba(
        task, samples := romae.from_arrays([v[:, None] for _, v in X[:9]], [t for t, _ in X[:9]])
    )
    try:
        kept, task.calibration = task.calibration, None
        assert_array_equal(romae.predict_proba(task, samples), romae.predict_proba(task, samples, calibrated=False))
    finally:
        task.calibration = kept
    assert_array_equal(romae.predict_proba(task, samples), before)


# Tables


COLUMNS = {"id": "star", "time": "day", "values": "flux"}


def test_columns_of_labels_and_names_in_one_are_the_same(tmp_path):
    columns = romae.from_table(table(), **COLUMNS, label=list(NAMES))
    joined = romae.from_table(table(), **COLUMNS, label="kinds", separator="|", classes=NAMES)
    assert columns.schema.labels == joined.schema.labels == NAMES and "3 labels" in repr(columns)
    for samples in (columns, joined):
        assert_array_equal(np.stack([sample.target for sample in samples]), Y[:24])
    for ending in ("csv", "parquet"):
        path = tmp_path / f"table.{ending}"
        table().to_csv(path, index=False) if ending == "csv" else table().to_parquet(path)
        read = romae.from_table(path, **COLUMNS, label="kinds", separator="|")
        assert read.schema.labels == tuple(sorted(NAMES))
        again = romae.from_table_like(path, columns.schema)
        assert_array_equal(np.stack([sample.target for sample in again]), Y[:24])
    bare = romae.from_table_like(table().drop(columns=list(NAMES)), columns.schema)
    assert bare.schema == columns.schema and bare[0].target is None
    store = romae.write_stores([path], tmp_path / "stores", **COLUMNS, label=list(NAMES), workers=0)
    assert store.schema.labels == NAMES and store[3].target.tolist() == Y[3].tolist()


def test_tables_of_several_labels_are_refused_in_one_sentence():
    for frame, more, error, parts in (
        (table(rising=2), {"label": list(NAMES)}, ValueError, ["'rising'", "'s00'", "0 or 1"]),
        (table(rising=None), {"label": list(NAMES)}, ValueError, ["'rising'", "0 or 1"]),
        (table(), {"label": ["rising", "flux"]}, ValueError, ["'flux'", "something else"]),
        (table(), {"label": ["rising", "dim"]}, ValueError, ["'dim'", "not there"]),
        (table(), {"label": list(NAMES), "separator": "|"}, ValueError, ["separator", "one column"]),
        (table(), {"separator": "|"}, ValueError, ["separator", "label="]),
        (table(), {"label": "kinds", "separator": "|", "classes": ["early"]}, ValueError, ["unknown", "'early'"]),
        (table(), {"label": list(NAMES), "classes": NAMES}, ValueError, ["classes"]),
        (table().assign(rising=np.arange(24 * 12) % 2), {"label": list(NAMES)}, ValueError, ["'s00'", "different"]),
        (table(kinds=""), {"label": "kinds", "separator": "|"}, ValueError, ["no sample has"]),
    ):
        with refused(error, *parts):
            romae.from_table(frame, **COLUMNS, **more)


def test_answers_for_several_labels_are_the_columns_of_the_training():
    samples = romae.from_table(table(2), **COLUMNS, label="kinds", separator="|", classes=NAMES)
    chances = [[0.9, 0.2, 0.6], [0.1, 0.4, 0.3]]
    told = romae.to_sample_table(samples, chances)
    assert told["kinds"].tolist() == ["rising|early", ""]
    assert_allclose(told[[f"probability_{name}" for name in NAMES]], chances)
    told = romae.to_sample_table(romae.from_table(table(2), **COLUMNS, label=list(NAMES)), chances)
    assert_array_equal(told[list(NAMES)], [[1, 0, 1], [0, 0, 0]])
    with refused(ValueError, "outside 0 and 1", "sigmoid"):
        romae.to_sample_table(samples, [[1.2, 0.0, 0.0]] * 2)


def test_names_in_sets_are_sorted_and_numbers_serve_too():
    assert from_names([{3, 1}, set(), {1}]).names == (1, 3)
    assert_array_equal(from_names([{3, 1}, set(), {1}]).truth, [[1, 1], [0, 0], [1, 0]])


# The command line


TINY = ["--set=train.epochs=3", "--set=train.device=cpu", "--set=train.batch_size=8", "--quiet"]
SIZES = [f"--set=model.{part}={{width=8,heads=2,depth=1}}" for part in ("encoder", "decoder")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with a table and a model that was pre-trained on it."""
    folder = tmp_path_factory.mktemp("labels")
    table(40).to_parquet(folder / "stars.parquet")
    columns = romae.training.tables.Columns(id="star", time="day", values=("flux",))
    model = romae.training.tables.ModelSettings(
        **dict.fromkeys(("encoder", "decoder"), romae.Size(width=8, heads=2, depth=1))
    )
    config = romae.training.tables.PretrainConfig(columns=columns, model=model)
    config = romae.config.override(config, "train.epochs=2", "train.device=cpu", "train.batch_size=8")
    romae.training.tables.pretrain(config, folder / "stars.parquet", folder / "run", quiet=True)
    return folder


@pytest.fixture
def run(monkeypatch, capsys, folder):
    """Runs the command line in this process, in the folder with the table and the model."""
    monkeypatch.chdir(folder)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["romae", *map(str, arguments)])
        monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        return stopped.value.code or 0, *capsys.readouterr()

    return call


LABELS = {
    "columns": [f"--label={name}" for name in NAMES],
    "joined": ["--label=kinds", "--separator=|"],
}


@pytest.mark.parametrize("form", LABELS)
def test_from_a_table_of_labels_to_predictions(run, folder, form):
    learn = ["finetune", "stars.parquet", "--pretrained=run", *LABELS[form], *TINY, "--test-share=0.2"]
    code, out, _ = run(*learn, f"--out={form}", "--json")
    summary = json.loads(out)
    assert code == 0 and summary["task"] == "MultiLabel" and summary["test"] == 8
    scores = summary["scores"]
    assert set(scores["parts"]) == set(NAMES) and 0 <= scores["metrics"]["subset_accuracy"] <= 1
    job = json.loads((folder / form / "job.json").read_text())
    assert job["kind"] == "multilabel"
    code, *_ = run("predict", "stars.parquet", f"--model={form}", f"--out={form}.csv", "--quiet", "--force")
    told = pd.read_csv(folder / f"{form}.csv", keep_default_na=False)
    assert code == 0 and len(told) == 40
    chances = told[[f"probability_{name}" for name in NAMES]].to_numpy()
    if form == "columns":
        said = told[list(NAMES)].to_numpy()
    else:
        said = np.array([[name in cell.split("|") for name in NAMES] for cell in told["kinds"]])
    assert_array_equal(said, chances >= 0.5)
    samples = romae.from_table(table(40), **COLUMNS)
    expected = romae.predict_proba(romae.load(folder / form / "best"), samples)
    order = [romae.load(folder / form / "best").schema.labels.index(name) for name in NAMES]
    assert_allclose(chances, expected[:, order], atol=1e-6)


def test_a_run_of_labels_is_repeated_by_its_settings_calibrated_and_shown(run, folder):
    learn = ["finetune", "stars.parquet", "--pretrained=run", *LABELS["columns"], *TINY]
    assert run(*learn, "--out=first")[0] == 0
    again = ["finetune", "stars.parquet", "--pretrained=run", "--config=first/job.json", "--out=second", "--quiet"]
    assert run(*again)[0] == 0
    tasks = [romae.load(folder / name / "best") for name in ("first", "second")]
    samples = romae.from_table(table(40), **COLUMNS)
    assert_array_equal(*(romae.predict_proba(task, samples) for task in tasks))
    code, out, _ = run("calibrate", "stars.parquet", "--model=first", "--out=calibrated")
    assert code == 0 and "MultiLabel" in out
    assert len(romae.load(folder / "calibrated").calibration.bias) == 3
    code, *_ = run("page", "first", "--data=stars.parquet")
    page = (folder / "first" / "page.html").read_text()
    assert code == 0 and "Labels" in page and all(f"<td>{name}</td>" in page for name in NAMES)
    assert figures_of(page)
    assert run("page", "first", "--data=stars.parquet", "--kept-out")[0] == 0


def test_a_single_column_is_a_class_unless_it_is_said_to_be_a_label(run, folder):
    learn = ["finetune", "stars.parquet", "--pretrained=run", "--label=rising", *TINY, "--json"]
    assert json.loads(run(*learn, "--out=class")[1])["task"] == "Classification"
    assert json.loads(run(*learn, "--out=label", "--set=kind=multilabel")[1])["task"] == "MultiLabel"


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--label=rising", "--label=flux"], ["'flux'", "something else"]),
        (["--label=rising", "--label=kinds"], ["'kinds'", "0 or 1", "separator"]),
        (["--label=rising", "--label=dim"], ["'dim'", "not there"]),
        (["--label=rising", "--label=early", "--separator=|"], ["separator", "one column"]),
        (["--separator=|"], ["label", "--label"]),
        (["--label=rising", "--label=early", "--set=kind=regress"], ["'regress'", "several"]),
        (["--label=rising", "--label=early", "--likelihood=normal"], ["likelihood"]),
        (["--label=rising", "--label=early", "--set=train.scoring=f1_macro"], ["scoring", "MultiLabel"]),
    ],
    ids=["value", "text", "absent", "separator", "no label", "kind", "likelihood", "scoring"],
)
def test_bad_input_is_one_sentence_and_exit_code_2(run, folder, arguments, parts):
    code, _, err = run("finetune", "stars.parquet", "--pretrained=run", "--out=bad", *TINY, *arguments)
    assert code == 2 and not (folder / "bad").exists()
    assert_says(err, *parts)


def test_what_knows_no_labels_says_so(run):
    learn = ["finetune", "stars.parquet", "--pretrained=run", *LABELS["columns"], *TINY, "--out=only"]
    assert run(*learn)[0] == 0
    for command, parts in (
        (["explain"], ["several labels"]),
        (["predict", "--interval=0.9"], ["probability", "interval"]),
    ):
        code, _, err = run(*command, "stars.parquet", "--model=only", "--out=answers.csv")
        assert code == 2
        assert_says(err, *parts)
    code, _, err = run("calibrate", "stars.parquet", "--model=only", "--out=other", "--label=kinds")
    assert code == 2
    assert_says(err, "column of its own", "rising")

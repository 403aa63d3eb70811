"""Weights of series and of classes in the estimators, and the score that decides when to stop."""

import json
import pickle

import numpy as np
import pandas as pd
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.metrics import recall_score
from sklearn.model_selection import cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.class_weight import compute_class_weight, compute_sample_weight

import romae
from messages import refused, warned
from romae import RoMAEClassifier, RoMAERegressor
from romae.estimators import members
from romae.estimators.weights import class_factors, normalised
from romae.training.config import TrainConfig

pytestmark = pytest.mark.usefixtures("without_shape_checks")  # as for users

SMALL = {
    "size": {"width": 16, "heads": 2, "depth": 1},
    "pretrain_epochs": 0,
    "epochs": 2,
    "batch_size": 16,
    "lr": 1e-2,
    "device": "cpu",
    "random_state": 0,
    "n_models": 1,
}
CLASSIFIER, REGRESSOR = RoMAEClassifier(**SMALL, features=None), RoMAERegressor(**SMALL, features=None)
STACKED = RoMAEClassifier(**SMALL), RoMAERegressor(**SMALL)


@pytest.fixture(autouse=True)
def few_rounds(monkeypatch):
    monkeypatch.setattr(members, "ROUNDS", 5)
    monkeypatch.setattr(members, "STRENGTHS", (1e-2, 1e-1, 1.0))


def series(n: int = 40, seed: int = 0, rare: int = 2, shift: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Noise around 0 or shifted: every so many series is of the second class."""
    random = np.random.default_rng(seed)
    y = (np.arange(n) % rare == 0).astype(int)
    return random.normal(size=(n, 6, 1)) + shift * y[:, None, None], y


X, Y = series()
WEIGHTS = np.random.default_rng(1).uniform(0.2, 3, len(X))


def answers(estimator, X=X):
    return estimator.predict_proba(X) if isinstance(estimator, RoMAEClassifier) else estimator.predict(X)


def fitted(estimator, X=X, y=Y, **given):
    y = y if isinstance(estimator, RoMAEClassifier) else np.asarray(y, dtype=float)
    return clone(estimator).fit(X, y, **given)


@pytest.fixture(params=STACKED, ids=["classifier", "regressor"])
def estimator(request):
    return request.param


# Laws


def test_equal_weights_are_none_bit_for_bit(estimator):
    plain = answers(fitted(estimator))
    for weights in (np.ones(len(X)), [0.1] * len(X), 7, pd.Series(np.full(len(X), 3))):
        assert_array_equal(answers(fitted(estimator, sample_weight=weights)), plain)


def test_a_factor_of_all_weights_changes_nothing(estimator):
    once = answers(fitted(estimator, sample_weight=WEIGHTS))
    assert_array_equal(answers(fitted(estimator, sample_weight=1e-3 * WEIGHTS)), once)
    assert np.abs(once - answers(fitted(estimator))).max() > 1e-3


def test_a_series_of_weight_0_is_as_good_as_not_given(estimator):
    weights = np.where(np.arange(len(X)) % 4 == 1, 0, WEIGHTS)
    kept = weights > 0
    expected = answers(fitted(estimator, X[kept], Y[kept], sample_weight=weights[kept]))
    assert_array_equal(answers(fitted(estimator, sample_weight=weights)), expected)
    three = np.where(kept, Y, 2)  # a class that weighs nothing
    assert fitted(CLASSIFIER, y=three, sample_weight=kept.astype(float)).classes_.tolist() == [0, 1]


def test_series_that_weigh_next_to_nothing_teach_nothing(estimator):
    """Half of the labels are the opposite of the truth."""
    many, truth = series(120)
    wrong = np.arange(120) // 2 % 2 == 0
    y = np.where(wrong, 1 - truth, truth)
    learned = fitted(estimator, many, y, sample_weight=np.where(wrong, 1e-4, 1.0))
    plain = fitted(estimator, many, y).score(many, truth.astype(float))
    assert learned.score(many, truth.astype(float)) > plain + 0.3


# Weights of classes


def test_balanced_classes_are_those_of_scikit_learn():
    many, y = series(60, rare=6)
    balanced = answers(fitted(clone(STACKED[0]).set_params(class_weight="balanced"), many, y), many)
    by_class = dict(enumerate(compute_class_weight("balanced", classes=np.array([0, 1]), y=y).tolist()))
    for class_weight, sample_weight in ((by_class, None), (None, compute_sample_weight("balanced", y))):
        same = clone(STACKED[0]).set_params(class_weight=class_weight)
        assert_allclose(answers(fitted(same, many, y, sample_weight=sample_weight), many), balanced, atol=1e-6)


def test_weights_of_classes_multiply_those_of_series_and_balance_what_series_weigh():
    index, weights = np.array([0, 0, 0, 1]), np.array([1.0, 1.0, 2.0, 8.0])
    classes = np.array(["a", "b"])
    assert_allclose(class_factors("balanced", classes, index, None), [4 / 6, 2])
    assert_allclose(class_factors("balanced", classes, index, weights), [1.5, 0.75])
    assert_allclose(class_factors({"b": 3.0}, classes, index, weights), [1, 3])
    assert_allclose(class_factors({"a": 2.0, "b": 3.0, "c": 9.0}, classes, index, None), [2, 3])
    assert normalised(weights * np.array([1, 1, 0.5, 0.125])) is None
    assert normalised(weights).mean() == pytest.approx(1)


@pytest.mark.parametrize("features", [None, "auto"])
def test_balanced_classes_find_more_of_the_rare_one(features):
    many, y = series(200, rare=10, shift=0.6)
    others, truth = series(200, seed=1, rare=10, shift=0.6)
    settings = SMALL | {"epochs": 5, "features": features}
    plain, balanced = (RoMAEClassifier(**settings, class_weight=weight).fit(many, y) for weight in (None, "balanced"))
    recall = [recall_score(truth, classifier.predict(others)) for classifier in (plain, balanced)]
    assert recall[1] > recall[0] + 0.3 and recall[1] > 0.5


@pytest.mark.parametrize("features", [None, "auto"])
def test_probabilities_are_those_of_the_weighted_series(features):
    """Nothing tells which tenth of the series is of the class: balanced, each is as likely as not."""
    random = np.random.default_rng(0)
    many, y = random.normal(size=(200, 6, 1)), (np.arange(200) % 10 == 0).astype(int)
    balanced = RoMAEClassifier(**SMALL | {"lr": 1e-3}, features=features, class_weight="balanced").fit(many, y)
    weights = compute_sample_weight("balanced", y)
    assert np.average(balanced.predict_proba(many)[:, 1], weights=weights) == pytest.approx(0.5, abs=0.1)


# Every form of weights


def table() -> pd.DataFrame:
    parts = [pd.DataFrame({"star": f"s{i:02}", "day": np.arange(6.0), "flux": x[:, 0]}) for i, x in enumerate(X)]
    return pd.concat(parts, ignore_index=True)


def test_weights_come_by_id_or_in_order():
    columns = {"id": "star", "time": "day", "values": "flux"}
    names = [f"s{i:02}" for i in range(len(X))]
    by_id, labels = pd.Series(WEIGHTS, index=names), pd.Series(Y, index=names)
    shuffled = by_id.sample(frac=1, random_state=0)
    from_table = clone(CLASSIFIER).set_params(columns=columns)
    in_order = from_table.fit(table(), labels, sample_weight=by_id.to_dict()).predict_proba(table())
    assert_array_equal(from_table.fit(table(), labels, sample_weight=shuffled).predict_proba(table()), in_order)
    samples = romae.from_arrays(list(X), y=Y, ids=names)
    listed = fitted(CLASSIFIER, samples, Y, sample_weight=WEIGHTS)
    expected = answers(listed, samples)
    assert_array_equal(answers(fitted(CLASSIFIER, samples, Y, sample_weight=shuffled), samples), expected)
    assert_allclose(np.asarray(in_order.loc[names]), expected, atol=1e-6)
    own = [romae.Sample(s.values, s.positions, s.target, s.id, weight=w) for s, w in zip(samples, WEIGHTS, strict=True)]
    assert_allclose(answers(fitted(CLASSIFIER, own, Y), own), expected, atol=1e-5)
    assert_array_equal(
        answers(fitted(CLASSIFIER, own, Y, sample_weight=np.ones(len(X))), own),
        answers(fitted(CLASSIFIER, samples, Y), own),
    )
    score = listed.score(samples, Y, sample_weight=WEIGHTS)
    assert listed.score(samples, Y, sample_weight=shuffled) == score
    assert score == pytest.approx(np.average(listed.predict(samples) == Y, weights=WEIGHTS))


@pytest.mark.parametrize(
    ("weights", "parts"),
    [
        ([1.0] * 39, ["sample_weight", "39", "40 samples"]),
        (np.ones((40, 1)), ["sample_weight", "[40, 1]"]),
        ([1.0] * 39 + [-0.5], ["sample_weight", "-0.5", "negative"]),
        ([1.0] * 39 + [np.nan], ["sample_weight", "nan", "sample 39"]),
        ([np.inf] + [1.0] * 39, ["sample_weight", "inf", "sample 0"]),
        ([0] * 40, ["sample_weight", "zero"]),
        (0, ["sample_weight", "zero"]),
        (["heavy"] * 40, ["sample_weight", "number for each"]),
        ({0: 1.0}, ["sample_weight", "list or an array"]),
        ("balanced", ["sample_weight", "list or an array"]),
    ],
    ids=str,
)
def test_bad_weights_of_series_get_a_sentence(weights, parts):
    for estimator in (CLASSIFIER, REGRESSOR):
        with refused((ValueError, TypeError), *parts):
            fitted(estimator, sample_weight=weights)
    with refused((ValueError, TypeError), *parts):
        fitted(CLASSIFIER).score(X, Y, sample_weight=weights)


def test_weights_of_the_rows_of_a_table_or_of_other_ids_are_refused():
    named = clone(CLASSIFIER).set_params(columns={"id": "star", "time": "day", "values": "flux"})
    labels = {f"s{i:02}": int(y) for i, y in enumerate(Y)}
    for weights, parts in (
        (WEIGHTS, ["sample_weight", "weight of each id"]),
        (table()["day"], ["sample_weight", "entry per row", "weight per id"]),
        ({"s00": 1.0}, ["sample_weight", "no weight", "'s01'"]),
        (pd.Series([1.0, 2.0], index=["s00", "s00"]), ["sample_weight", "several weights", "'s00'"]),
    ):
        with refused((ValueError, TypeError), *parts):
            named.fit(table(), labels, sample_weight=weights)


def test_one_class_that_weighs_anything_is_too_few():
    with refused(ValueError, "one class", "weight above 0", "at least two"):
        fitted(CLASSIFIER, sample_weight=Y)


@pytest.mark.parametrize(
    ("class_weight", "parts"),
    [
        ("even", ["class_weight", "'balanced'", "'even'"]),
        ([1, 2], ["class_weight", "[1, 2]"]),
        ({0: "much"}, ["class_weight", "'much'"]),
        ({0: 0.0}, ["class_weight", "above 0", "leave its series"]),
        ({0: -1}, ["class_weight", "above 0"]),
        ({1: float("nan")}, ["class_weight", "above 0"]),
        ({"one": 2.0}, ["class_weight", "'one'", "[0, 1]"]),
    ],
    ids=str,
)
def test_bad_weights_of_classes_get_a_sentence(class_weight, parts):
    with refused((ValueError, TypeError), *parts):
        fitted(clone(CLASSIFIER).set_params(class_weight=class_weight))


# The score that decides


def test_the_weights_that_are_kept_have_the_best_score_on_the_held_out_series():
    for estimator, scoring in (
        (CLASSIFIER, "roc_auc"),
        (CLASSIFIER, "f1_macro"),
        (REGRESSOR, "neg_mean_absolute_error"),
    ):
        learned = fitted(clone(estimator).set_params(scoring=scoring, epochs=6), sample_weight=WEIGHTS)
        records = learned.histories_[-1]
        best = romae.History(records).best
        assert best["score"] == max(record["score"] for record in records)
    plain = fitted(clone(CLASSIFIER).set_params(epochs=6))
    assert all("score" not in record for record in plain.histories_[-1])


def test_several_networks_and_pre_training_go_with_a_score():
    settings = {"scoring": "average_precision", "pretrain_epochs": 1, "n_models": 3, "time_limit": 500.0}
    histories = fitted(clone(CLASSIFIER).set_params(**settings)).histories_
    assert ["score" in history[-1] for history in histories] == [False, True, True, True]


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"scoring": "auc"}, ["'auc'", "roc_auc", "f1_macro", "None"]),
        ({"scoring": "r2"}, ["'r2'", "roc_auc"]),
        ({"scoring": 3}, ["scoring", "str"]),
        ({"scoring": "roc_auc", "early_stopping": False}, ["scoring", "early_stopping=False", "leave one"]),
        ({"train": {"scoring": "roc_auc"}}, ["scoring", "train="]),
        (
            {
                "train": TrainConfig(scoring="roc_auc"),
                "epochs": None,
                "pretrain_epochs": None,
                "batch_size": None,
                "lr": None,
            },
            ["scoring", "train="],
        ),
    ],
    ids=str,
)
def test_bad_scores_get_a_sentence(settings, parts):
    with refused((ValueError, TypeError), *parts):
        fitted(clone(CLASSIFIER).set_params(**settings))


def test_scores_of_a_regressor_are_those_of_numbers():
    with refused(ValueError, "'accuracy'", "r2"):
        fitted(clone(REGRESSOR).set_params(scoring="accuracy"))
    with refused(ValueError, "two classes", "'roc_auc_ovr'"):
        fitted(clone(CLASSIFIER).set_params(scoring="roc_auc"), y=np.arange(40) % 3)
    with refused(ValueError, "'r2'", "MaskedReconstruction"):
        romae.RoMAEEmbedder(train={"scoring": "r2"}, size=SMALL["size"], device="cpu").fit(X)


def test_a_score_without_a_split_is_said_to_decide_nothing():
    with warned(UserWarning, "'roc_auc'", "decides nothing", "validation_fraction="):
        fitted(clone(CLASSIFIER).set_params(scoring="roc_auc"), X[:12], Y[:12])


def test_a_split_of_one_class_is_refused_before_anything_is_trained():
    y = np.array([0] * 38 + [1] * 2)
    settings = {"scoring": "roc_auc", "pretrain_epochs": 10_000, "validation_fraction": 0.1}
    with refused(ValueError, "'roc_auc'", "one class", "another score"):
        fitted(clone(CLASSIFIER).set_params(**settings), y=y)


# In company


@pytest.mark.parametrize(
    ("names", "class_weight"),
    [
        (["no", "yes"], {"yes": 3.0, "no": 1.0}),
        ([0, 1], {1: 3}),
        ([False, True], {np.True_: 3.0}),
        ([1.0, 2.0], {2.0: 3.0}),
    ],
    ids=str,
)
def test_weights_of_classes_and_scores_are_saved_with_the_kind_of_their_classes(names, class_weight, tmp_path):
    y = np.array(names)[Y]
    learned = fitted(clone(CLASSIFIER).set_params(class_weight=class_weight, scoring="roc_auc"), y=y)
    learned.save(tmp_path / "saved")
    for same in (RoMAEClassifier.load(tmp_path / "saved"), pickle.loads(pickle.dumps(learned))):
        assert same.class_weight == class_weight and same.scoring == "roc_auc"
        assert_array_equal(answers(same), answers(learned))
        assert_array_equal(answers(clone(same).fit(X, y)), answers(learned))


def test_estimators_that_were_saved_before_there_were_weights_load(tmp_path):
    learned = fitted(CLASSIFIER)
    learned.save(tmp_path / "saved")
    path = tmp_path / "saved" / "estimator.json"
    description = json.loads(path.read_text())
    del description["digest"], description["settings"]["class_weight"], description["settings"]["scoring"]
    path.write_text(json.dumps(description))
    assert_array_equal(answers(RoMAEClassifier.load(tmp_path / "saved")), answers(learned))
    for pairs in ([["a"]], [[["a"], 1.0]], [["a", "b"]], 3):
        description["settings"]["class_weight"] = pairs
        path.write_text(json.dumps(description))
        with refused(ValueError, "estimator.json", "damaged"):
            RoMAEClassifier.load(tmp_path / "saved")


def test_weights_go_through_pipelines_and_cross_validation():
    pipeline = make_pipeline(FunctionTransformer(), clone(CLASSIFIER))
    pipeline.fit(X, Y, romaeclassifier__sample_weight=WEIGHTS)
    assert_array_equal(pipeline.predict_proba(X), answers(fitted(CLASSIFIER, sample_weight=WEIGHTS)))
    with sklearn.config_context(enable_metadata_routing=True):
        routed = clone(CLASSIFIER).set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        scores = cross_validate(routed, X, Y, cv=2, params={"sample_weight": WEIGHTS}, error_score="raise")
        assert len(scores["test_score"]) == 2
        stacked = clone(STACKED[0]).set_fit_request(sample_weight=True)
        assert answers(stacked.fit(X, Y, sample_weight=WEIGHTS)).shape == (40, 2)

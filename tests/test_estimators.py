"""Estimators: any form of input gives the same answer, the seed decides everything, and scikit-learn finds its own."""

import copy
import json
import os
import pickle
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks

import romae
from messages import refused, warned
from romae import RoMAEClassifier, RoMAEEmbedder, RoMAEInterpolator, RoMAERegressor, Size
from romae.estimators import base, supervised, timing
from romae.estimators import saved as saved_form
from romae.estimators.folds import TableRows
from romae.estimators.inputs import read_input
from romae.estimators.labels import labels_of
from romae.estimators.stacking import Stack
from romae.experiments.datasets import uea
from romae.inference import predictions as inference
from romae.model.config import ModelConfig
from romae.model.tasks import Classification, MaskedReconstruction
from romae.training import rules
from romae.training.stages import Pretrain, run_stages

pytestmark = pytest.mark.usefixtures("without_shape_checks")  # as for users

SMALL = {
    "size": Size(width=16, heads=2, depth=1),
    "pretrain_epochs": 1,
    "batch_size": 32,
    "lr": 1e-2,
    "device": "cpu",
    "random_state": 0,
}
ALONE = {"features": None, "n_models": 1}  # the network, without simpler models beside it
CLASSIFIER = RoMAEClassifier(epochs=3, **SMALL, **ALONE)
REGRESSOR = RoMAERegressor(epochs=3, **SMALL, **ALONE)
INTERPOLATOR = RoMAEInterpolator(**SMALL)
EMBEDDER = RoMAEEmbedder(**SMALL)
ALL = (CLASSIFIER, REGRESSOR, INTERPOLATOR, EMBEDDER)

LENGTHS = "series of any length are welcome, so their length is no number of features"
COUNTED = "columns of a 2-D array are time steps, and n_features_in_ counts channels"
TABLES = "a table whose columns are not named is refused, because it may be a long one"
REPEATED = "steps over parts of the series differ where some are repeated; tests/test_weights.py has what holds"


def failures(estimator):
    """The checks that do not hold, each with the reason."""
    found = {"check_n_features_in": COUNTED, "check_n_features_in_after_fitting": COUNTED}
    if isinstance(estimator, RoMAEClassifier | RoMAERegressor):
        found |= {
            "check_sample_weights_pandas_series": TABLES,
            "check_sample_weight_equivalence_on_dense_data": REPEATED,
        }
    if isinstance(estimator, RoMAEClassifier):
        found |= {"check_classifiers_train": LENGTHS, "check_classifier_data_not_an_array": TABLES}
    elif isinstance(estimator, RoMAERegressor):
        found |= {
            "check_regressors_train": "one epoch of a model of sixteen channels does not learn enough",
            "check_regressor_data_not_an_array": TABLES,
        }
    elif isinstance(estimator, RoMAEEmbedder):
        found |= {"check_transformer_general": LENGTHS}
    return found


ONE_STAGE = {"epochs": 1, "pretrain_epochs": 0}  # the unsupervised ones show that pre-training is as it should be
BRIEF = (clone(CLASSIFIER).set_params(**ONE_STAGE), clone(REGRESSOR).set_params(**ONE_STAGE), INTERPOLATOR, EMBEDDER)


@parametrize_with_checks(list(BRIEF), expected_failed_checks=failures)
def test_scikit_learn_finds_what_it_expects(estimator, check):
    check(estimator)


def of_any_length(kind):
    """The estimator with tags that keep scikit-learn from trying other lengths."""

    class AnyLength(kind):
        def __sklearn_tags__(self):
            tags = super().__sklearn_tags__()
            tags.no_validation, tags.requires_fit = True, False
            return tags

    return AnyLength


@pytest.mark.parametrize(
    ("check", "estimator"),
    [
        (estimator_checks.check_classifiers_train, of_any_length(RoMAEClassifier)(epochs=10, **SMALL, **ALONE)),
        (estimator_checks.check_transformer_general, of_any_length(RoMAEEmbedder)(**SMALL)),
    ],
    ids=["classifier", "transformer"],
)
def test_what_else_is_in_a_check_of_lengths_holds(check, estimator):
    check(type(estimator).__name__, estimator)


# Series of two kinds, slow and fast sines, of unequal length at times of their own


def waves(n=32, seed=0):
    random = np.random.default_rng(seed)
    times = [np.sort(random.uniform(0, 6, random.integers(8, 14))) for _ in range(n)]
    kinds = np.arange(n) % 2
    return [(t, np.sin((1 + 2 * kind) * t)) for t, kind in zip(times, kinds, strict=True)], kinds


PAIRS, KINDS = waves()
NAMES = np.array(["slow", "fast"])[KINDS]


def table_of(pairs, kinds):
    parts = [
        pd.DataFrame({"star": i, "day": times, "flux": values, "kind": kinds[i]})
        for i, (times, values) in enumerate(pairs)
    ]
    return pd.concat(parts)


COLUMNS = {"id": "star", "time": "day", "values": "flux", "label": "kind"}


@pytest.fixture(scope="module")
def classifier():
    return clone(CLASSIFIER).fit(PAIRS, NAMES)


@pytest.fixture(scope="module")
def interpolator():
    return clone(INTERPOLATOR).fit(PAIRS)


def test_every_form_of_one_data_set_gives_one_model(classifier):
    wanted = classifier.predict_proba(PAIRS)
    samples = romae.from_arrays([v[:, None] for _, v in PAIRS], [t for t, _ in PAIRS])
    table = table_of(PAIRS, NAMES)
    by_id = pd.Series(NAMES, index=range(len(NAMES)))
    forms = {
        "samples": clone(classifier).fit(samples, NAMES).predict_proba(samples),
        "list of samples": clone(classifier).fit(list(samples), NAMES).predict_proba(list(samples)),
        "columns": clone(classifier).fit([(t, v[:, None]) for t, v in PAIRS], list(NAMES)).predict_proba(PAIRS),
        "table": clone(classifier).set_params(columns=COLUMNS).fit(table).predict_proba(table.drop(columns="kind")),
        "table and y": clone(classifier)
        .set_params(columns={k: v for k, v in COLUMNS.items() if k != "label"})
        .fit(table, by_id.sample(frac=1, random_state=0))
        .predict_proba(table),
    }
    for name, found in forms.items():
        assert_allclose(found, wanted, atol=1e-5, err_msg=name)


def test_missing_values_are_as_good_as_absent():
    """An array with NaN, and the list of what is left with its times."""
    random = np.random.default_rng(0)
    X = random.normal(size=(24, 10, 2))
    X[random.uniform(size=X.shape[:2]) < 0.3] = np.nan
    kept = [~np.isnan(x).any(1) for x in X]
    pairs = [(np.flatnonzero(keep), x[keep]) for x, keep in zip(X, kept, strict=True)]
    one, other = (clone(EMBEDDER).fit(data).transform(data) for data in (X, pairs))
    assert_allclose(one, other, atol=1e-6)
    assert_allclose(*(clone(EMBEDDER).fit(x).transform(x) for x in (X[..., 0], X[..., :1])), atol=1e-6)


def test_what_is_masked_is_missing():
    X = np.random.default_rng(0).normal(size=(24, 6, 2))
    mask = np.zeros(X.shape, dtype=bool)
    mask[:, 2, 0] = True
    masked = np.ma.array(np.where(mask, 1e20, X), mask=mask)
    plain = clone(EMBEDDER).fit(masked.filled(np.nan))
    for form in (masked, list(masked)):
        assert_array_equal(clone(EMBEDDER).fit(form).transform(form), plain.transform(masked.filled(np.nan)))
    for y in (np.ma.array(KINDS, mask=np.arange(32) == 3), np.ma.array(NAMES, mask=np.arange(32) == 3)):
        with refused(ValueError, "labels", "sample 3"):
            clone(CLASSIFIER).fit(PAIRS, y)
    with refused(ValueError, "labels", "sample 3"):
        clone(REGRESSOR).fit(PAIRS, np.ma.array(np.stack([KINDS, KINDS], 1), mask=np.arange(64).reshape(32, 2) == 7))


def test_steps_with_gaps_make_each_number_a_token():
    X = np.random.default_rng(0).normal(size=(24, 6, 3))
    X[:, 2, 1] = np.nan
    embedder, whole = clone(EMBEDDER).fit(X), clone(EMBEDDER).fit(X[..., ::2])
    assert embedder.task_.config.position_dims == 2 and whole.task_.config.position_dims == 1
    assert embedder.n_features_in_ == 3 and whole.n_features_in_ == 2
    filled = np.nan_to_num(X)
    assert embedder.transform(filled).shape == (24, 16 * 2 * (5 + 4))  # what has no gaps is read in the same way
    with refused(ValueError, "lacks channel"):
        whole.transform(X[..., :2])


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["b", "a"]),
        np.array([7, -2]),
        np.array([True, False]),
        np.array([2.0, 1.0]),
        np.array(["x", "y"], object),
    ],
    ids=lambda labels: labels.dtype.name,
)
def test_labels_come_back_as_they_were(labels, tmp_path):
    y = labels[KINDS]
    fitted = clone(CLASSIFIER).fit(PAIRS, y)
    fitted.save(tmp_path / "saved")
    for one in (fitted, RoMAEClassifier.load(tmp_path / "saved")):
        assert_array_equal(one.classes_, np.unique(y))
        assert one.classes_.dtype == y.dtype and one.predict(PAIRS).dtype == y.dtype
        assert set(one.predict(PAIRS)) <= set(labels)
    assert_allclose(fitted.predict_proba(PAIRS).sum(1), 1)


def test_the_class_that_is_predicted_is_the_most_probable(monkeypatch):
    probabilities = np.array([[0.2, 0.5, 0.3], [0.6, 0.3, 0.1]])
    monkeypatch.setattr(RoMAEClassifier, "predict_proba", lambda self, X, **options: probabilities)
    estimator = RoMAEClassifier()
    estimator.classes_ = np.array(["a", "b", "c"])
    assert estimator.predict(PAIRS[:2]).tolist() == ["b", "a"]


def test_a_classifier_learns_what_can_be_learned():
    pairs, kinds = waves(64)
    fitted = RoMAEClassifier(**SMALL | ALONE | {"epochs": 40, "pretrain_epochs": 5}).fit(pairs, kinds)
    others, truth = waves(64, seed=1)
    assert fitted.score(others, truth) > 0.9


def test_a_regressor_takes_one_number_or_several_in_units_of_the_data():
    random = np.random.default_rng(0)
    levels = random.normal(size=64)
    X = levels[:, None] + 0.1 * random.normal(size=(64, 6))
    y = np.stack([1000 + 50 * levels, -levels], axis=1)
    fitted = RoMAERegressor(**SMALL | ALONE | {"epochs": 40}).fit(X, y)
    assert fitted.predict(X).shape == y.shape and fitted.score(X, y) > 0.8
    for shape in ((64,), (64, 1)):
        assert clone(REGRESSOR).fit(X, y[:, 0].reshape(shape)).predict(X).shape == shape


def test_own_labels_serve_where_no_others_are_given(classifier):
    samples = romae.from_arrays([v[:, None] for _, v in PAIRS], [t for t, _ in PAIRS], y=NAMES)
    fitted = clone(classifier).fit(samples)
    assert_array_equal(fitted.predict(samples), classifier.predict(PAIRS))
    assert fitted.score(samples) == classifier.score(PAIRS, NAMES)


def test_a_table_is_scored_by_the_labels_it_holds(tmp_path):
    """Also where they are whole numbers, which a table takes for classes."""
    table = table_of(PAIRS, 10 * KINDS + 5)
    by_id = dict(enumerate((10 * KINDS + 5).tolist()))
    for estimator in (CLASSIFIER, REGRESSOR):
        fitted = clone(estimator).set_params(columns=COLUMNS).fit(table)
        fitted.save(tmp_path / "saved")
        for one in (fitted, type(fitted).load(tmp_path / "saved")):
            assert one.score(table) == one.score(table.drop(columns="kind"), by_id)
        (tmp_path / "saved").rename(tmp_path / type(fitted).__name__)
    assert fitted.predict(table).min() > 0


def test_interpolation_answers_at_any_time_in_the_shape_of_the_question(interpolator):
    shared = interpolator.interpolate(PAIRS[:3], np.linspace(0, 6, 5))
    assert shared.shape == (3, 5, 1)
    own = interpolator.interpolate(PAIRS[:2], [np.linspace(0, 6, 5), np.array([1.0])])
    assert [x.shape for x in own] == [(5, 1), (1, 1)]
    assert_allclose(own[0], shared[0], atol=1e-5)
    column = pd.Series(np.linspace(0, 6, 5), index=range(5, 10))
    assert_array_equal(interpolator.interpolate(PAIRS[:3], column), shared)


def test_interpolation_of_scalar_tokens_gives_every_channel():
    """Asked for times, it answers as if asked for each channel at each time."""
    X = np.random.default_rng(0).normal(size=(24, 6, 2)) + [0, 100]
    fitted = clone(INTERPOLATOR).set_params(tokens="scalars").fit(X)
    assert fitted.task_.config.kinds == 2
    found = fitted.interpolate(X, [0.5, 3.0, 4.0])
    assert found.shape == (24, 3, 2) and (abs(found - [0, 100]) < 10).all()
    positions = [np.array([[3.0, 1.0]])] * len(X)
    assert_allclose(np.stack(fitted.interpolate(X, positions))[:, 0, 0], found[:, 1, 1], rtol=1e-5)


def in_bands(**columns) -> pd.DataFrame:
    """A flux near 100, 200 and 300 in three bands, with errors near 1, of eight objects."""
    random = np.random.default_rng(0)
    flux = {"g": 100.0, "i": 200.0, "r": 300.0}
    rows = [(f"o{i}", t, band, flux[band], 1.0) for i in range(8) for t in range(6) for band in flux]
    frame = pd.DataFrame(rows, columns=["id", "t", "band", "flux", "err"])
    frame["flux"] += random.normal(size=len(frame))
    frame["err"] += random.normal(scale=0.01, size=len(frame))
    return frame.assign(**columns)


IN_BANDS = {"id": "id", "time": "t", "channel": "band"}


def test_interpolation_keeps_channels_and_columns_of_values_apart():
    fitted = RoMAEInterpolator(**SMALL, columns=IN_BANDS | {"values": ["flux", "err"]}).fit(in_bands())
    table = fitted.interpolate(in_bands().query("id < 'o2'"), [2.0, 5.0])
    assert table.shape == (4, 6) and table[("r", "err")].shape == (4,)
    found = table.to_numpy().reshape(2, 2, 3, 2)
    assert_allclose(found[..., 0], np.broadcast_to([100, 200, 300], (2, 2, 3)), rtol=0.05)
    assert_allclose(found[..., 1], 1, rtol=0.1)


def test_a_channel_that_was_never_measured_is_nan_in_between():
    X = np.stack([np.sin(np.linspace(0, 6, 12)), np.full(12, np.nan), np.ones(12)], axis=-1)[None].repeat(6, axis=0)
    fitted = clone(INTERPOLATOR).fit(X)
    found = fitted.interpolate(X[:1], [0.5, 3.0])
    assert_array_equal(np.isnan(found[0]), [[False, True, False]] * 2)
    assert np.isnan(fitted.interpolate(X[:1], [0.5, 3.0], channels=[1])).all()
    assert_array_equal(fitted.interpolate(X[:1], [0.5, 3.0], channels=[1, 0])[0, 0, 1:], found[0, 0, :1])


def test_a_table_with_a_column_per_channel_keeps_every_number():
    columns = {"id": "id", "time": "t", "values": ["g", "r", "i"]}
    wide = in_bands().pivot(index=["id", "t"], columns="band", values="flux").reset_index()
    gappy = wide.assign(g=wide["g"].where(wide["t"] > 0))
    with warned(UserWarning, "g, r, i", "tokens='scalars'"):
        samples = read_input(gappy, columns=columns)
    assert sum(map(len, samples)) == int(gappy[["g", "r", "i"]].notna().to_numpy().sum())
    again = read_input(wide, columns=columns, expected_schema=samples.schema)
    assert again.schema == samples.schema and sum(map(len, again)) > sum(map(len, samples))
    assert read_input(wide, columns=columns, tokens="scalars").schema == samples.schema
    assert read_input(wide, columns=columns).schema.channel is None


def test_dates_without_a_time_zone_are_in_that_of_the_training_data():
    zoned = pd.Timestamp("2024-01-01", tz="America/New_York") + pd.to_timedelta(in_bands()["t"], unit="D")
    table, bare = in_bands(t=zoned), in_bands(t=zoned.dt.tz_localize(None))
    settings = {"columns": IN_BANDS | {"values": "flux", "time_unit": "day"}}
    fitted = RoMAEInterpolator(**SMALL, **settings).fit(table)
    times = zoned[:3] + pd.Timedelta("5h")
    found = [fitted.interpolate(x, t) for x, t in ((table, times), (bare, times.dt.tz_localize(None)))]
    assert_array_equal(*found)
    known = fitted.task_.schema
    positions = [torch.cat([one.positions for one in read_input(x, expected_schema=known)]) for x in (table, bare)]
    assert_array_equal(*positions)


def test_dates_of_a_series_are_in_the_unit_of_the_training_data():
    days = pd.date_range("2024-01-01", periods=3)
    known = read_input(in_bands(t=days[0]), columns=IN_BANDS | {"values": "flux", "time_unit": "day"}).schema
    (sample,) = read_input([(days, np.ones((3, 3)))], expected_schema=known)
    assert_array_equal(np.unique(np.diff(sample.positions[:, 0])), [0, 1])


def test_embeddings_of_a_table_are_a_frame_by_id():
    fitted = RoMAEEmbedder(**SMALL, columns=IN_BANDS | {"values": "flux"}).fit(in_bands())
    vectors = fitted.transform(in_bands())
    found = fitted.set_output(transform="pandas").transform(in_bands())
    assert_array_equal(found.to_numpy(), vectors)
    assert list(found.index) == [f"o{i}" for i in range(8)] and list(found.columns[:1]) == ["romaeembedder0"]


def test_an_interpolator_is_scored_against_the_mean():
    constant = RoMAEInterpolator(**SMALL | {"pretrain_epochs": 60, "lr": 3e-3}).fit(np.tile([[1.0], [-1.0]], (24, 8)))
    assert constant.score(np.tile([[1.0], [-1.0]], (8, 8))) > 0.9


@pytest.mark.parametrize("scaling", ["standard", "robust", "asinh", "none"])
def test_noise_cannot_be_predicted_in_any_scaling(scaling):
    noise = 0.01 * np.random.default_rng(0).normal(size=(48, 8))
    assert clone(INTERPOLATOR).set_params(scaling=scaling).fit(noise).score(noise) < 0.2


def test_a_score_is_1_for_what_is_true_and_0_for_the_mean_of_each_channel(monkeypatch):
    """Whatever the sizes of channels are; a channel whose hidden values are all alike has no share in it."""
    X = np.random.default_rng(0).normal(size=(24, 8, 3)) * [0.01, 1, 0] + [0, 100, 5]
    fitted = clone(INTERPOLATOR).set_params(tokens="scalars", scaling="asinh").fit(X)

    def truth(task, samples):
        return [one.values[one.hidden].double().numpy() for one in samples]

    def means(task, samples):
        channels = [one.positions[one.hidden, 1].numpy() for one in samples]
        x, channel = np.concatenate(truth(task, samples)), np.concatenate(channels)
        return [np.array([x[channel == one].mean(0) for one in own]) for own in channels]

    for answer, wanted in ((truth, 1.0), (means, 0.0)):
        monkeypatch.setattr(inference, "predict", answer)
        assert fitted.score(X) == pytest.approx(wanted, abs=1e-9)


def test_the_share_to_hide_is_that_of_the_estimator(saved, monkeypatch):
    asked = []
    predict = inference.predict
    monkeypatch.setattr(inference, "predict", lambda task, samples: asked.extend(samples) or predict(task, samples))
    RoMAEInterpolator(pretrained=saved, mask_ratio=0.25, device="cpu").fit(PAIRS).score(PAIRS)
    assert [int(one.hidden.sum()) for one in asked] == [round(0.25 * len(times)) for times, _ in PAIRS]


def test_a_score_does_not_depend_on_the_order_of_series(interpolator):
    assert interpolator.score(PAIRS[::-1]) == pytest.approx(interpolator.score(PAIRS), rel=1e-4)


def test_a_score_asks_for_what_samples_hide(interpolator):
    samples = list(read_input(PAIRS))
    hidden = [replace(one, hidden=np.arange(len(one)) < 2) for one in samples]
    found = np.concatenate(romae.predict(interpolator.task_, hidden))
    truth = np.concatenate([values[:2] for _, values in PAIRS])
    assert interpolator.score(hidden) == pytest.approx(r2_score(truth, found), rel=1e-4)


def test_dates_can_be_scored():
    """Though they are too large for single precision until they are scaled."""
    dates = [(np.datetime64("2024-01-01") + (1000 * t).astype("timedelta64[ms]"), values) for t, values in PAIRS]
    assert clone(INTERPOLATOR).fit(dates).score(dates) < 1


def test_a_score_needs_something_to_hide_and_to_tell_apart(interpolator):
    with refused(ValueError, "no series", "two"):
        interpolator.score([([1.0], [5.0])])
    with refused(ValueError, "all alike"):
        interpolator.score([([1.0, 2.0], [5.0, 5.0])])


def test_unlabelled_series_and_pretraining_change_the_model(classifier):
    more, _ = waves(16, seed=5)
    wanted = classifier.predict_proba(PAIRS)
    assert not np.allclose(clone(classifier).fit(PAIRS, NAMES, unlabelled=more).predict_proba(PAIRS), wanted)
    without = clone(classifier).set_params(pretrain_epochs=0).fit(PAIRS, NAMES)
    assert len(without.histories_) == 1 and len(classifier.histories_) == 2


BANDS = {"id": "star", "time": "day", "values": "flux", "channel": "band", "label": "kind"}
LEVELS = {"a": 0.0, "b": 100.0, "c": 1000.0}


def banded(bands, n=24):
    """A table of stars in bands of very different brightness."""
    random = np.random.default_rng(0)
    rows = [(i, day, bands[day % len(bands)]) for i in range(n) for day in range(6)]
    table = pd.DataFrame(rows, columns=["star", "day", "band"])
    table["flux"] = table["band"].map(LEVELS) + random.normal(size=len(table))
    return table.assign(kind=np.where(table["star"] % 2, "odd", "even"))


def dated(table):
    return table.assign(day=pd.Timestamp("2024-01-01") + pd.to_timedelta(table["day"], unit="D"))


def from_bands(table):
    return romae.from_table(table, **BANDS)


FAST = {**SMALL, "epochs": 1, "columns": BANDS}


def test_unlabelled_series_are_read_under_the_names_of_the_others():
    fitted = RoMAEClassifier(**FAST).fit(banded("abc"), unlabelled=banded("bc").drop(columns="kind"))
    assert_allclose(np.ravel(fitted.task_.scaling.centre), list(LEVELS.values()), atol=1)
    gaps = np.random.default_rng(0).normal(size=(24, 6, 2))
    gaps[0, 1, 0] = np.nan
    clone(CLASSIFIER).fit(gaps, KINDS[:24], unlabelled=np.nan_to_num(gaps))


@pytest.mark.parametrize(
    ("X", "unlabelled", "parts"),
    [
        (banded("bc"), banded("abc"), ["unlabelled", "column 'band'", "'a'"]),
        (banded("abc"), from_bands(banded("bc")), ["unlabelled", "channels"]),
        (banded("abc"), dated(banded("abc")), ["unlabelled", "column 'day'", "dates"]),
        (from_bands(banded("abc")), from_bands(dated(banded("abc"))), ["unlabelled", "time unit"]),
        (from_bands(banded("abc")).samples, PAIRS, ["unlabelled", "1 columns", "3 channels"]),
    ],
    ids=["more channels", "other channels", "dates", "dates as samples", "fewer axes"],
)
def test_unlabelled_series_of_another_kind_are_refused(X, unlabelled, parts):
    with refused(ValueError, *parts):
        RoMAEClassifier(**FAST).fit(X, unlabelled=unlabelled)


def test_gaps_in_unlabelled_series_alone_are_named():
    X = np.random.default_rng(0).normal(size=(24, 6, 2))
    gaps = X.copy()
    gaps[0, 1, 0] = np.nan
    with refused(ValueError, "unlabelled", "sample 0, row 1", "tokens='scalars'"):
        clone(CLASSIFIER).fit(X, KINDS[:24], unlabelled=gaps)


def test_the_seed_decides_everything(classifier):
    wanted = classifier.predict_proba(PAIRS)
    assert_array_equal(clone(classifier).fit(PAIRS, NAMES).predict_proba(PAIRS), wanted)
    state = np.random.RandomState(0)
    same = clone(classifier).set_params(random_state=state).fit(PAIRS, NAMES)
    assert_array_equal(same.predict_proba(PAIRS), wanted)
    again = same.fit(PAIRS, NAMES)  # the state has gone on
    assert not np.array_equal(again.predict_proba(PAIRS), wanted)


@pytest.mark.parametrize("estimator", [CLASSIFIER, INTERPOLATOR], ids=lambda estimator: type(estimator).__name__)
def test_series_that_decide_when_to_stop_are_not_trained_on(estimator, monkeypatch):
    told = {}

    def listening(*arguments, **settings):
        told.update(settings, training=arguments[2])
        return run_stages(*arguments, **settings)

    monkeypatch.setattr(base, "run_stages", listening)
    fitted = clone(estimator).fit(PAIRS, NAMES)
    held_out, training = ({one.id for one in told[name]} for name in ("validation", "training"))
    assert not held_out & training and held_out | training == set(range(len(PAIRS)))
    assert {KINDS[i] for i in held_out} == {0, 1} or estimator is INTERPOLATOR
    assert all("validation" in record for record in fitted.histories_[-1])
    whole = clone(estimator).set_params(early_stopping=False).fit(PAIRS, NAMES)
    assert told["validation"] is None and len(told["training"]) == len(PAIRS)
    assert not any("validation" in record for history in whole.histories_ for record in history)


@pytest.mark.parametrize("seed", range(4))
def test_series_of_a_single_measurement_do_not_decide_when_to_stop(seed):
    X = [np.arange(1.0 + (i % 8 == 0)) for i in range(32)]
    fitted = clone(EMBEDDER).set_params(random_state=seed, validation_fraction=0.1).fit(X)
    assert fitted.transform(X).shape == (32, 16 * 2 * 5)


def test_training_stops_when_nothing_improves():
    still = clone(CLASSIFIER).set_params(epochs=20, lr=1e-12).fit(PAIRS, NAMES)
    assert len(still.histories_[-1]) == 1 + rules.fitting_patience(20)
    on = clone(CLASSIFIER).set_params(epochs=20, lr=1e-12, early_stopping=False).fit(PAIRS, NAMES)
    assert len(on.histories_[-1]) == 20


# A model that was trained before


def weights_of(estimator):
    return {name: value.clone() for name, value in estimator.task_.encoder.state_dict().items()}


def test_saving_leaves_what_is_not_its_own(saved, interpolator, monkeypatch):
    (saved / "notes.txt").write_text("mine")
    with refused(ValueError, "'notes.txt'", "estimator"):
        interpolator.save(saved)
    (saved / "notes.txt").unlink()
    move = os.replace

    def torn(here, there):
        return 1 / 0 if Path(there).name == saved.name and "-old-" not in Path(here).name else move(here, there)

    monkeypatch.setattr(os, "replace", torn)
    with pytest.raises(ZeroDivisionError):
        interpolator.save(saved)
    assert isinstance(RoMAEInterpolator.load(saved), RoMAEInterpolator), "the old one is back"


@pytest.mark.parametrize("text", ["[]", '{"format": 1}'])
def test_a_damaged_description_is_named(saved, text):
    (saved / "estimator.json").write_text(text)
    with refused(ValueError, "estimator.json", "must hold"):
        RoMAEInterpolator.load(saved)


def changed(folder: Path, **parts):
    """A description with some entries added, without a digest, as a stranger could write it."""
    path = folder / "estimator.json"
    description = {key: value for key, value in json.loads(path.read_text()).items() if key != "digest"}
    for part, entries in parts.items():
        description[part] = description[part] | entries if isinstance(entries, dict) else entries
    path.write_text(json.dumps(description))
    return folder


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"fitted": {"predict": "yes"}}, ["'predict'", "RoMAEClassifier"]),
        ({"fitted": {"task_": 3}}, ["'task_'"]),
        ({"fitted": {"__class__": "int"}}, ["'__class__'"]),
        ({"fitted": {"n_features_in_": "1"}}, ["n_features_in_", "type"]),
        ({"fitted": {"n_features_in_": True}}, ["n_features_in_", "type"]),
        ({"fitted": {"histories_": [{"loss": 1}]}}, ["histories_", "type"]),
        ({"fitted": {"histories_": [[{"loss": 1}], {"loss": 1}]}}, ["histories_", "type"]),
        ({"fitted": {"classes_": ["a", "b"]}}, ["classes_", "type"]),
        ({"fitted": {"classes_": {"array": ["a", "b"], "type": "<U1000000000"}}}, ["<U1000000000"]),
        ({"fitted": {"classes_": {"array": [["a"], ["b"]], "type": "<U1"}}}, ["no list"]),
        ({"fitted": {"classes_": {"array": [1, 2], "type": "nonsense"}}}, ["nonsense"]),
        ({"fitted": {"classes_": {"array": ["a"], "type": "<U1"}}}, ["1 classes", "damaged"]),
        ({"fitted": []}, ["fitting leaves"]),
        ({"settings": {"predict": 1}}, ["'predict'"]),
        ({"settings": {"epochs": "ten"}}, ["epochs"]),
        ({"settings": {"size": {"width": 3}}}, ["size", "lacks"]),
    ],
)
def test_a_description_sets_what_fitting_leaves_and_nothing_else(classifier, tmp_path, parts, words):
    classifier.save(tmp_path / "saved")
    with refused(ValueError, str(tmp_path), *words):
        RoMAEClassifier.load(changed(tmp_path / "saved", **parts))


@pytest.mark.parametrize(
    ("value", "hint", "is_of_it"),
    [
        (1, int, True),
        (1, float, True),  # JSON writes 1.0 as 1 in other languages
        (1.5, float, True),
        (1.5, int, False),
        (1, bool, False),
        (1, str, False),
        (True, float, False),
        ("1", float, False),
        ("1", int | str, True),
        (None, int | str, False),
        ([], list[int], True),
        ([1, 2], list[int], True),
        ([1, "2"], list[int], False),
    ],
)
def test_a_number_out_of_a_file_is_of_its_type_and_whole_ones_are_floats(value, hint, is_of_it):
    assert saved_form.is_of_type(value, hint) is is_of_it


def test_a_description_without_a_digest_is_read(classifier, tmp_path):
    classifier.save(tmp_path / "saved")
    assert_array_equal(RoMAEClassifier.load(changed(tmp_path / "saved")).classes_, classifier.classes_)


def test_a_class_that_is_called_otherwise_is_noticed(classifier, tmp_path):
    classifier.save(tmp_path / "saved")
    path = tmp_path / "saved" / "estimator.json"
    name = str(classifier.classes_[0])
    path.write_text(path.read_text().replace(f'"{name}"', f'"{name[:-1]}{chr(ord(name[-1]) ^ 1)}"'))
    with refused(ValueError, "estimator.json", "its digest"):
        RoMAEClassifier.load(tmp_path / "saved")


def test_tables_in_a_list_are_known_by_their_columns():
    random = np.random.default_rng(0)
    frames = [pd.DataFrame(random.normal(size=(6, 2)), columns=["u", "v"]) for _ in range(8)]
    fitted = RoMAEEmbedder(**SMALL).fit(frames)
    assert fitted.transform(frames).shape[0] == 8
    with refused(ValueError, "'v', 'u'"):
        fitted.transform([frame[["v", "u"]] for frame in frames])
    with refused(ValueError, "sample 1", "columns"):
        RoMAEEmbedder(**SMALL).fit([frames[0], frames[1][["v", "u"]]])
    with refused(ValueError, "sample 0", "index", "times"):
        RoMAEEmbedder(**SMALL).fit([frame.set_axis(np.arange(6.0) * 3) for frame in frames])


def test_numbers_that_single_precision_cannot_tell_apart_are_refused():
    with refused(ValueError, "y would move", "31", "subtract an offset"):
        RoMAERegressor(**SMALL, **ALONE).fit(PAIRS, 1.7e9 + np.arange(float(len(PAIRS))))


def test_asking_nothing_of_one_series_is_no_error():
    fitted = RoMAEInterpolator(**SMALL, tokens="scalars").fit(PAIRS)
    none, one = fitted.interpolate(PAIRS[:2], [[], [1.0]])
    assert none.shape == (0, 1) and one.shape == (1, 1)


@pytest.fixture
def saved(interpolator, tmp_path):
    interpolator.save(tmp_path / "curves")
    return tmp_path / "curves"


def test_labels_that_a_file_cannot_hold_are_named_and_nothing_is_written(tmp_path):
    y = pd.to_datetime(["2024-01-01", "2024-01-02"] * 4).to_numpy()
    fitted = clone(CLASSIFIER).fit(PAIRS[:8], y)
    with refused(ValueError, "cannot be saved", "text, numbers or booleans"):
        fitted.save(tmp_path / "dates")
    assert not list(tmp_path.iterdir())


def test_a_frozen_encoder_stays_and_another_learns(saved, interpolator):
    settings = {**SMALL, "size": None, "pretrain_epochs": None, "pretrained": saved}
    before = weights_of(interpolator)
    frozen = RoMAEClassifier(epochs=2, frozen=True, **settings, **ALONE).fit(PAIRS, NAMES)
    thawed = RoMAEClassifier(epochs=2, **settings, **ALONE).fit(PAIRS, NAMES)
    assert all(torch.equal(before[name], value) for name, value in weights_of(frozen).items())
    assert not all(torch.equal(before[name], value) for name, value in weights_of(thawed).items())
    assert len(frozen.histories_) == len(thawed.histories_) == 1
    assert frozen.task_.scaling == interpolator.task_.scaling


def test_a_pretrained_model_answers_without_more_training(saved, interpolator):
    settings = {**SMALL, "size": None, "pretrain_epochs": None}
    same = RoMAEInterpolator(pretrained=saved, **settings).fit(PAIRS)
    assert_allclose(same.interpolate(PAIRS, [1.0, 2.0]), interpolator.interpolate(PAIRS, [1.0, 2.0]))
    vectors = RoMAEEmbedder(pretrained=str(saved / "model"), **settings).fit(PAIRS).transform(PAIRS)
    assert_allclose(vectors, romae.embed(interpolator.task_, read_input(PAIRS), pooling="layers"), atol=1e-6)


@pytest.fixture(scope="module")
def three_bands(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bands") / "curves"
    RoMAEInterpolator(**SMALL, columns={k: v for k, v in BANDS.items() if k != "label"}).fit(banded("abc")).save(folder)
    return folder


def test_samples_and_tables_mean_the_same_to_a_pretrained_model(three_bands):
    """Channels are told apart by their names, so that samples which number them otherwise are refused."""
    settings = {"pretrained": three_bands, "epochs": 1, "device": "cpu"}
    assert RoMAEClassifier(columns=BANDS, **settings, **ALONE).fit(banded("bc")).task_.schema.channels == (
        "a",
        "b",
        "c",
    )
    with refused(ValueError, "channels", "from_table_like"):
        RoMAEClassifier(**settings, **ALONE).fit(from_bands(banded("bc")))
    with refused(ValueError, "channels", "from_table_like"):
        RoMAEInterpolator.load(three_bands).score(from_bands(banded("bc")))
    fitted = RoMAEClassifier(**settings, **ALONE).fit(from_bands(banded("ab")))
    assert fitted.task_.schema.channels == ("a", "b", "c") and len(fitted.predict(from_bands(banded("abc")))) == 24


def test_samples_of_fewer_channels_are_read_under_the_names_of_the_training_data():
    known = from_bands(banded("abc", n=2)).schema
    samples = from_bands(banded("ab", n=2))
    assert samples.schema.channels == ("a", "b")
    assert read_input(samples, expected_schema=known).schema.channels == ("a", "b", "c")


def test_times_of_another_kind_are_refused_where_answers_are_asked_for(classifier):
    dates = [(np.datetime64("2024-01-01") + (60 * times).astype("timedelta64[s]"), values) for times, values in PAIRS]
    with refused(ValueError, "time unit"):
        classifier.predict(dates)


def test_columns_may_have_other_names_than_in_pretraining(three_bands):
    table = dated(banded("abc")).rename(columns={"star": "object", "day": "night"})
    columns = {"id": "object", "time": "night", "values": "flux", "channel": "band"}
    with refused(ValueError, "column 'night'", "dates"):
        RoMAEEmbedder(pretrained=three_bands, columns=columns, device="cpu").fit(table)
    table = banded("abc").rename(columns={"star": "object", "day": "night"})
    embedder = RoMAEEmbedder(pretrained=three_bands, columns=columns, device="cpu").fit(table)
    wanted = RoMAEEmbedder(pretrained=three_bands, device="cpu").fit(banded("abc")).transform(banded("abc"))
    assert_array_equal(embedder.transform(table), wanted)
    curves = RoMAEInterpolator(pretrained=three_bands, columns=columns, device="cpu").fit(table)
    assert curves.interpolate(table, [1.0, 2.0]).shape == (24 * 2, 3)  # by id and time, under the names of this table


def test_the_unit_of_dates_is_that_of_the_pretrained_model(tmp_path):
    columns = {k: v for k, v in BANDS.items() if k != "label"}
    table = dated(banded("abc"))
    RoMAEEmbedder(**SMALL, columns={**columns, "time_unit": "day"}).fit(table).save(tmp_path / "days")
    embedder = RoMAEEmbedder(pretrained=tmp_path / "days", columns=columns, device="cpu").fit(table)
    assert_array_equal(embedder.transform(table), RoMAEEmbedder.load(tmp_path / "days").transform(table))


def test_what_cannot_interpolate_is_refused(classifier, tmp_path):
    classifier.save(tmp_path / "kinds")
    model = RoMAEInterpolator(pretrained=tmp_path / "kinds", device="cpu")
    with refused(ValueError, "no decoder"):
        model.fit(PAIRS)
    assert not hasattr(model, "task_")


# Saving


def answers(estimator):
    name = next(name for name in ("predict_proba", "predict", "transform", "score") if hasattr(estimator, name))
    return getattr(estimator, name)(PAIRS)


@pytest.mark.parametrize("estimator", ALL, ids=lambda estimator: type(estimator).__name__)
def test_saving_and_pickling_keep_settings_and_answers(estimator, tmp_path):
    fitted = clone(estimator).fit(PAIRS, KINDS)
    fitted.save(tmp_path / "saved")
    fitted.save(tmp_path / "saved")  # the second takes the place of the first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["saved"]
    for copied in (type(estimator).load(tmp_path / "saved"), pickle.loads(pickle.dumps(fitted)), copy.deepcopy(fitted)):
        assert copied.get_params() == fitted.get_params()
        assert copied.n_features_in_ == 1 and copied.histories_ == fitted.histories_
        assert_array_equal(answers(copied), answers(fitted))
    task = romae.load(tmp_path / "saved" / "model")
    assert task.config == fitted.task_.config


def test_a_pickle_holds_no_pickled_tensor(classifier):
    state = classifier.__getstate__()
    (files,) = state["task_"]
    assert set(files) == {"model.safetensors", "config.json"} and "tasks_" not in state
    assert json.loads(files["config.json"])["task"] == "Classification"
    assert b"torch" not in pickle.dumps(classifier).replace(files["model.safetensors"], b"")
    older = copy.copy(classifier)  # had one model
    older.__setstate__(state | {"task_": files})
    assert_array_equal(older.predict_proba(PAIRS), classifier.predict_proba(PAIRS))


def test_nothing_is_overwritten_that_is_no_estimator(classifier, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    with refused(ValueError, "no estimator"):
        classifier.save(tmp_path / "thesis")
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "years of work"
    assert len(list(tmp_path.iterdir())) == 1
    with pytest.raises(NotFittedError):
        clone(classifier).save(tmp_path / "unfitted")
    (tmp_path / "kinds").mkdir()
    classifier.save(tmp_path / "kinds")  # an empty folder is as good as none
    with refused(ValueError, "RoMAEClassifier.load"):
        RoMAERegressor.load(tmp_path / "kinds")


# Labels under the names of samples


def named(names):
    return romae.from_arrays([v[:, None] for _, v in PAIRS], [t for t, _ in PAIRS], ids=names)


@pytest.mark.parametrize(
    "names", [[f"o{i}" for i in range(32)], [7 * i + 100 for i in range(32)]], ids=["text", "numbers"]
)
@pytest.mark.parametrize("form", [named, lambda names: list(named(names))], ids=["set", "list"])
def test_labels_by_id_are_brought_into_the_order_of_samples(names, form):
    samples = form(names)
    y = pd.Series(NAMES, index=names)
    for given in (y, y.sort_index(key=lambda one: one.astype(str)), y[::-1]):
        assert_array_equal(labels_of(samples, samples, given, estimator_name="it"), NAMES)
    several = pd.DataFrame({"a": KINDS, "b": 2 * KINDS}, index=names)
    assert_array_equal(labels_of(samples, samples, several[::-1], estimator_name="it"), several.to_numpy())


def test_labels_of_more_ids_than_there_are_samples_are_looked_up():
    samples = named([f"o{i}" for i in range(32)])
    y = pd.Series(NAMES, index=[sample.id for sample in samples])
    assert_array_equal(labels_of(samples[5:9], samples[5:9], y, estimator_name="it"), NAMES[5:9])
    with refused(ValueError, "several labels", "'o0'"):
        labels_of(samples, samples, pd.concat([y[::-1], y[:1]]), estimator_name="it")


def test_labels_whose_index_tells_nothing_of_the_ids_stay_in_their_order():
    """Also those of a splitter, whose index tells places, and of arrays, which have no ids of their own."""
    order = np.random.default_rng(0).permutation(32)
    texts, places, catalogue = named([f"o{i}" for i in range(32)]), named(None), named([i + 3 for i in range(32)])
    y = pd.Series(NAMES)
    for samples in (texts, places, catalogue):
        for part in (order, order[:10], order[:1]):
            assert_array_equal(labels_of(samples[part], samples[part], y.iloc[part], estimator_name="it"), NAMES[part])
        assert_array_equal(labels_of(samples[order], samples[order], y, estimator_name="it"), NAMES)
        strange = pd.Series(NAMES, index=pd.date_range("2024", periods=32))
        assert_array_equal(labels_of(samples, samples, strange, estimator_name="it"), NAMES)
    shuffled = [PAIRS[i] for i in order]
    assert_array_equal(labels_of(shuffled, places, y.iloc[order], estimator_name="it"), NAMES[order])


def test_labels_that_may_be_by_place_or_by_id_are_refused():
    samples = named(None)
    with refused(ValueError, "numbers from 0", "y.loc[ids]"):
        clone(CLASSIFIER).fit(samples, pd.Series(NAMES)[::-1])
    texts = named([f"o{i}" for i in range(32)])
    y = pd.Series(NAMES, index=[sample.id for sample in texts])
    with refused(ValueError, "indexed by ids", "'o31'"):
        clone(CLASSIFIER).fit(texts, y.rename({"o31": "o32"}))
    with refused(ValueError, "order of X", "y.loc"):
        cross_val_score(CLASSIFIER, texts, y.sort_index(), cv=2, error_score="raise")


# Company


def test_it_works_in_pipelines_cross_validation_and_grid_search():
    fast = clone(CLASSIFIER).set_params(epochs=1)
    assert cross_val_score(fast, PAIRS, NAMES, cv=2).shape == (2,)
    search = GridSearchCV(fast, {"lr": [1e-2, 1e-9]}, cv=2, error_score="raise").fit(PAIRS, NAMES)
    assert search.predict(PAIRS).shape == NAMES.shape
    pipeline = make_pipeline(clone(EMBEDDER).set_params(pooling="model"), LogisticRegression())
    assert pipeline.fit(PAIRS, NAMES).score(PAIRS, NAMES) >= 0.5
    assert len(pipeline[:-1].get_feature_names_out()) == 16


def test_scikit_learn_splits_sample_sets_as_it_splits_lists():
    fast = clone(CLASSIFIER).set_params(epochs=1)
    samples = romae.from_arrays([v[:, None] for _, v in PAIRS], [t for t, _ in PAIRS], y=NAMES)
    part, rest = train_test_split(samples, random_state=0)
    assert isinstance(part, romae.SampleSet) and part.schema == samples.schema and len(part) + len(rest) == len(samples)
    assert_array_equal(*(cross_val_score(fast, X, NAMES, cv=2, error_score="raise") for X in (samples, PAIRS)))
    search = GridSearchCV(fast, {"lr": [1e-2, 1e-9]}, cv=2, error_score="raise").fit(samples, NAMES)
    assert search.predict(samples).shape == NAMES.shape


def test_verbose_shows_progress_and_silence_is_the_default(capsys):
    clone(EMBEDDER).fit(PAIRS)
    assert capsys.readouterr() == ("", "")
    clone(EMBEDDER).set_params(verbose=1).fit(PAIRS)
    assert "pre-training: step" in capsys.readouterr().err


# Several networks


@pytest.mark.parametrize("estimator", [CLASSIFIER, REGRESSOR], ids=lambda estimator: type(estimator).__name__)
def test_several_networks_hold_out_every_series_once_and_answer_with_their_mean(estimator, monkeypatch, tmp_path):
    told = []

    def listening(model, stages, training, **settings):
        told.append((stages[0].kind, {one.id for one in training}, {one.id for one in settings["validation"] or ()}))
        return run_stages(model, stages, training, **settings)

    monkeypatch.setattr(base, "run_stages", listening)
    y = NAMES if estimator is CLASSIFIER else KINDS.astype(float)
    fitted = clone(estimator).set_params(n_models=3, epochs=1).fit(PAIRS, y)
    first, *others = told
    everything = set(range(len(PAIRS)))
    assert first == ("pretrain", everything, set()) and len(others) == fitted.n_models_ == len(fitted.tasks_) == 3
    assert all(training | held_out == everything and not training & held_out for _, training, held_out in others)
    assert sorted(i for _, _, held_out in others for i in held_out) == sorted(everything)
    ask = romae.predict_proba if estimator is CLASSIFIER else romae.predict
    answers = [np.asarray(ask(task, read_input(PAIRS)), dtype=float) for task in fitted.tasks_]
    wanted = np.mean(answers, axis=0)
    found = fitted.predict_proba(PAIRS) if estimator is CLASSIFIER else fitted.predict(PAIRS)
    assert_allclose(found, wanted.reshape(found.shape), rtol=1e-6)
    assert not np.allclose(answers[0], answers[1])
    fitted.save(tmp_path / "saved")
    fitted.save(tmp_path / "saved")
    for again in (type(fitted).load(tmp_path / "saved"), pickle.loads(pickle.dumps(fitted))):
        assert len(again.tasks_) == 3 and again.task_ is again.tasks_[0]
        assert_array_equal(again.predict(PAIRS), fitted.predict(PAIRS))


def test_without_early_stopping_several_networks_differ_by_their_seeds():
    fitted = clone(CLASSIFIER).set_params(n_models=2, epochs=1, early_stopping=False).fit(PAIRS, NAMES)
    one, other = (romae.predict_proba(task, read_input(PAIRS)) for task in fitted.tasks_)
    assert np.abs(one - other).max() > 1e-4
    with refused(ValueError, "n_models", "at least 1"):
        clone(CLASSIFIER).set_params(n_models=0).fit(PAIRS, NAMES)


# All that a recipe can set


def test_architecture_masking_and_training_can_be_set_as_values_and_as_dictionaries():
    given = {"model": {"keep": 1.0, "cls": True}, "masking": {"kind": "spans", "ratio": 0.4}, "train": {"ema": 0.9}}
    fitted = clone(INTERPOLATOR).set_params(**given).fit(PAIRS)
    assert fitted.task_.config.keep == 1 and fitted.task_.config.cls and fitted.task_.masking == romae.Spans(ratio=0.4)
    plain = clone(INTERPOLATOR).fit(PAIRS)
    assert plain.task_.masking == romae.UniformTokens(ratio=0.5) and not plain.task_.config.cls
    values = {
        "model": replace(fitted.task_.config, dropout=0.0),
        "masking": romae.Spans(ratio=0.4),
        "train": romae.TrainConfig(epochs=1, batch_size=32, lr=1e-2, ema=0.9, patience=5),
        "size": None,
        "pretrain_epochs": None,
        "batch_size": None,
        "lr": None,
    }
    same = clone(INTERPOLATOR).set_params(**values).fit(PAIRS)
    assert_array_equal(same.interpolate(PAIRS[:2], [1.0]), fitted.interpolate(PAIRS[:2], [1.0]))
    assert not np.array_equal(plain.interpolate(PAIRS[:2], [1.0]), fitted.interpolate(PAIRS[:2], [1.0]))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"model": {"encoder": "tiny"}}, ["size=", "model="]),
        ({"model": {"heads": 3}}, ["unknown key 'heads'", "kinds_spread"]),
        ({"model": {"channels": 2}}, ["model takes 2 channels"]),
        ({"train": {"lr": 0.1}}, ["lr=", "train="]),
        ({"train": {"epoch": 3}}, ["unknown key", "epoch"]),
        ({"train": romae.TrainConfig()}, ["epochs=", "train="]),
        ({"train": {"device": "cpu"}}, ["device", "say device="]),
        ({"train": {"seed": 3}}, ["seed", "say random_state="]),
        ({"masking": {"kind": "spans"}, "mask_ratio": 0.3}, ["mask_ratio=", "masking="]),
        ({"masking": {"kind": "holes"}}, ["holes"]),
        ({"time_limit": 0.0}, ["time_limit", "above 0"]),
    ],
)
def test_a_setting_that_does_not_exist_or_is_given_twice_is_refused(given, words):
    with refused(ValueError, *words):
        clone(CLASSIFIER).set_params(**given).fit(PAIRS, NAMES)


# Time


def test_a_time_limit_shortens_all_stages_alike_and_a_long_fit_says_so_first(capsys, monkeypatch):
    monkeypatch.setattr(timing, "slowness", lambda *arguments: 1000.0)
    plan = {"pretrain_epochs": 4, "epochs": 8, "random_state": 0}
    fitted = clone(CLASSIFIER).set_params(**plan, time_limit=40.0).fit(PAIRS, NAMES)
    seconds = sum(
        1000 * epochs * timing.Work(stage, read_input(PAIRS)).seconds(SMALL["size"], rules.CPU)
        for epochs, stage in ((4, Pretrain(train=romae.TrainConfig(epochs=1, batch_size=32))),)
    )
    assert seconds > 40 and [len(history) for history in fitted.histories_][0] < 4
    said = capsys.readouterr().err
    assert "RoMAEClassifier: about 40 s at most on this CPU (32 series" in said and "time_limit=" in said
    clone(CLASSIFIER).fit(PAIRS, NAMES)
    assert capsys.readouterr() == ("", "")


def test_how_slow_this_machine_is_follows_from_steps_that_are_timed():
    samples = read_input(PAIRS)
    model = ModelConfig.for_samples(samples, device="cpu", encoder=SMALL["size"])
    work = timing.Work(Pretrain(train=romae.TrainConfig(epochs=1, batch_size=8, device="cpu")), samples)
    torch.manual_seed(3)
    before = torch.get_rng_state()
    factor = timing.slowness(work, model, SMALL["size"], romae.fit_scaling(samples), rules.CPU, 0)
    assert 0.05 <= factor < 100 and torch.equal(torch.get_rng_state(), before)


# Rules


@pytest.mark.parametrize("n", [2, 40, 137, 999, 1_000, 20_000, 100_000])
@pytest.mark.parametrize("length", [1, 70, 5_000])
def test_rules_hold_from_small_data_to_large(n, length):
    lengths, size = np.full(n, length), romae.SIZES["mini"]
    batch = rules.fitting_batch(lengths)
    assert 1 <= batch <= 128 and (batch == 1 or batch * length <= max(rules.TOKENS_PER_BATCH, 8 * length))
    for course in (rules.PRETRAINING, rules.FINE_TUNING, rules.PROBING):
        for device in (rules.CPU, rules.GPU):
            epochs = rules.fitting_epochs(lengths, batch, size, course, device)
            assert course.at_least <= epochs <= course.at_most
            n_steps = -(-n // batch)
            seconds = epochs * n_steps * rules.step_seconds(lengths, n_steps, size, device)
            assert seconds <= device.budget or epochs == course.at_least
            assert (epochs - 1) * n_steps <= course.n_steps or epochs == course.at_least
    assert 0 <= rules.fitting_share(n) <= 0.2


def test_a_split_keeps_shares_and_leaves_every_class_in_training():
    groups = np.repeat([0, 1, 2], [100, 20, 1])
    chosen = rules.held_out(groups, 0.2, np.random.default_rng(0))
    assert [abs(chosen[groups == k].sum() - n) <= 1 for k, n in ((0, 20), (1, 4))] == [True, True]
    assert not chosen[groups == 2].any()
    assert not rules.held_out(groups, 0.0, np.random.default_rng(0)).any()


def test_the_only_member_of_a_class_is_never_held_out():
    for seed in range(20):  # chance decides: at such a share nineteen of twenty would be taken
        assert not rules.held_out(np.array(["rare"]), 0.95, np.random.default_rng(seed)).any()
        assert rules.held_out(np.array(["a", "a"]), 0.95, np.random.default_rng(seed)).sum() <= 1


def test_a_batch_is_an_eighth_of_the_samples():
    assert [rules.fitting_batch(np.full(n, 10)) for n in (10, 128, 255, 256, 512, 4_000)] == [8, 16, 16, 32, 64, 128]


# Time


def later(pairs, days):
    return [(times + days, values) for times, values in pairs]


@pytest.mark.parametrize("days", [30, 1_000, 100_000])
def test_data_recorded_later_get_the_same_answers(classifier, interpolator, days, recwarn):
    assert_allclose(classifier.predict_proba(later(PAIRS, days)), classifier.predict_proba(PAIRS), atol=1e-6)
    times = np.linspace(0, 6, 5)
    now, then = interpolator.interpolate(PAIRS, times), interpolator.interpolate(later(PAIRS, days), times + days)
    assert_allclose(then, now, atol=1e-5)
    assert not recwarn.list


def test_a_shared_clock_is_asked_for_and_tells_what_lies_outside(recwarn):
    fitted = clone(CLASSIFIER).set_params(clock="shared", epochs=1).fit(later(PAIRS, 5.0), NAMES)
    assert fitted.task_.scaling.origins == (min(times.min() for times, _ in PAIRS) + 5.0,)
    same = fitted.predict_proba(later(PAIRS, 5.0))
    assert not recwarn.list
    with warned(UserWarning, "'time'", f"{sum(len(times) for times, _ in PAIRS)} of", "30 to", "origin of times"):
        other = fitted.predict_proba(later(PAIRS, 35.0))
    assert np.abs(other - same).max() > 1e-3
    with refused(ValueError, "clock", "'shared'"):
        clone(CLASSIFIER).set_params(clock="wall").fit(PAIRS, NAMES)


# Probabilities


def test_a_rare_class_is_predicted_at_its_rate():
    """One series in ten is of the class, and nothing tells which: taught with smoothing, each would be at a fifth."""
    random = np.random.default_rng(0)
    X, y = random.normal(size=(300, 3, 1)), np.arange(300) % 10 == 0
    settings = SMALL | {"pretrain_epochs": 0, "batch_size": 16, "lr": 3e-3}
    fitted = RoMAEClassifier(epochs=6, **settings, **ALONE).fit(X, y)
    probabilities = fitted.predict_proba(X)[:, 1]
    assert abs(probabilities.mean() - 0.1) < 0.01
    assert fitted.task_.confidence == 1
    fitted.task_.calibration = None
    assert abs(fitted.predict_proba(X)[:, 1].mean() - 0.1) < 0.05


def test_the_calibration_is_saved_and_pickled(classifier, tmp_path):
    assert classifier.task_.calibration is not None
    classifier.save(tmp_path / "model")
    for same in (RoMAEClassifier.load(tmp_path / "model"), pickle.loads(pickle.dumps(classifier))):
        assert same.task_.calibration == classifier.task_.calibration
        assert_array_equal(same.predict_proba(PAIRS), classifier.predict_proba(PAIRS))


def test_without_a_validation_split_probabilities_are_those_of_the_network():
    fitted = clone(CLASSIFIER).set_params(epochs=1, early_stopping=False).fit(PAIRS[:8], NAMES[:8])
    assert fitted.task_.calibration.bias == (0.0, 0.0) and fitted.task_.calibration.temperature == 1
    calibrated = fitted.predict_proba(PAIRS)
    fitted.task_.calibration = None
    assert_allclose(fitted.predict_proba(PAIRS), calibrated, atol=1e-6)


# Folds of a table


def test_a_table_split_by_rows_is_refused_with_the_way_out():
    table = table_of(PAIRS, NAMES).reset_index(drop=True)
    estimator = clone(CLASSIFIER).set_params(columns=COLUMNS, epochs=1)
    train, test = next(KFold(4, shuffle=True, random_state=0).split(table))
    fitted = estimator.fit(table.iloc[train])
    for ask in (fitted.score, fitted.predict, fitted.predict_proba):
        with refused(ValueError, "split by rows", "GroupKFold", "groups=table['star']", "from_table"):
            ask(table.iloc[test])
    assert len(fitted.predict(table.iloc[train])) == len(PAIRS)  # the training series on purpose
    assert len(fitted.predict(table.iloc[train].drop(columns="kind")[:20])) >= 1
    assert len(fitted.predict(table_of(later(PAIRS, 3.3), NAMES).reset_index(drop=True)[:40])) >= 1  # ids numbered anew
    samples = romae.from_table_like(table.iloc[test].drop(columns="kind"), fitted.task_.schema)
    assert len(fitted.predict(samples)) == len(samples)  # new rows of known ids, on purpose
    by_position = clone(estimator).fit(pa.Table.from_pandas(table.iloc[train]))
    with refused(ValueError, "split by rows"):
        by_position.predict(pa.Table.from_pandas(table.iloc[test]))


def test_rows_are_known_by_the_index_of_a_pandas_table_and_else_by_their_positions():
    table = pd.DataFrame({"star": [0, 0, 1, 1], "day": [0.0, 1.0, 0.0, 1.0], "flux": 1.0})
    schema = read_input(table, columns=BY_ID).schema
    known, rest = TableRows.of(table[:3], schema), table[3:]
    assert known.has_index
    with refused(ValueError, "split by rows", "1 of its ids", "such as 1"):
        known.require_no_fold(rest, schema)
    known.require_no_fold(table, schema)
    known.require_no_fold(table[:3].assign(day=7.0), schema)  # ids numbered anew: the index is the same
    known.require_no_fold(rest.assign(star=2), schema)
    known.require_no_fold(pa.Table.from_pandas(rest), schema)  # without the index nothing can be told
    known = TableRows.of(table[:3].set_axis([0, 0, 0]), schema)
    assert not known.has_index
    known.require_no_fold(table.set_axis([5, 6, 7, 8]), schema)
    for form in (rest, pa.Table.from_pandas(rest)):
        with refused(ValueError, "split by rows"):
            known.require_no_fold(form, schema)


def test_a_table_split_by_id_is_cross_validated():
    table = table_of(PAIRS, NAMES)
    estimator = clone(CLASSIFIER).set_params(columns=COLUMNS, epochs=1)
    scores = cross_val_score(estimator, table, cv=GroupKFold(2), groups=table["star"], error_score="raise")
    assert ((scores >= 0) & (scores <= 1)).all()


def test_a_score_of_hidden_measurements_is_refused_on_a_fold():
    table = table_of(PAIRS, NAMES).reset_index(drop=True)
    fitted = clone(INTERPOLATOR).set_params(columns=COLUMNS).fit(table[::2])
    with refused(ValueError, "split by rows"):
        fitted.score(table[1::2])
    others = table[1::2].drop(columns="kind")  # nor are labels asked for
    assert len(fitted.interpolate(others, [1.0])) == len(PAIRS)  # curves through new measurements are no score


def test_a_table_to_predict_from_needs_no_labels():
    size, samples = SMALL["size"], read_input(ROWS, columns=COLUMNS)
    assert samples.schema.label == "kind"
    embedder = RoMAEEmbedder(columns=COLUMNS, device="cpu", pooling="model")
    embedder.task_ = MaskedReconstruction(ModelConfig(channels=1, position_dims=1, encoder=size, decoder=size))
    embedder.task_.schema = samples.schema
    assert embedder.transform(ROWS.drop(columns="kind")).shape == (32, 16)


# What samples hide


def hiding(outlier):
    """Series that each hide one measurement, which is an outlier."""
    samples = []
    for times, values in PAIRS:
        hidden = np.arange(len(times)) == 3
        samples.append(romae.Sample(np.where(hidden, outlier, values)[:, None], times[:, None], hidden=hidden))
    return samples


@pytest.mark.parametrize("estimator", [INTERPOLATOR, EMBEDDER], ids=["interpolator", "embedder"])
def test_what_samples_hide_is_not_shown_to_training(estimator):
    one, other = (clone(estimator).fit(hiding(outlier)) for outlier in (5.0, 500.0))
    assert one.task_.scaling == other.task_.scaling and one.histories_ == other.histories_
    for (name, x), y in zip(one.task_.state_dict().items(), other.task_.state_dict().values(), strict=True):
        assert torch.equal(x, y), name


def test_what_samples_hide_is_not_shown_to_a_classifier_or_a_regressor():
    for estimator, y in ((CLASSIFIER, NAMES), (REGRESSOR, KINDS.astype(float))):
        one, other = (clone(estimator).set_params(epochs=1).fit(hiding(outlier), y) for outlier in (5.0, 500.0))
        assert one.task_.scaling == other.task_.scaling
        assert torch.equal(one.task_.head.linear.weight, other.task_.head.linear.weight)


def test_what_samples_hide_is_learned_when_asked():
    one, other = (clone(INTERPOLATOR).set_params(learn_hidden=True).fit(hiding(outlier)) for outlier in (5.0, 500.0))
    assert one.task_.scaling != other.task_.scaling
    assert one.histories_ != other.histories_


# Other units


def test_values_and_times_in_other_units_are_told_in_one_warning(classifier, recwarn):
    n = sum(len(times) for times, _ in PAIRS)
    fahrenheit = [(times, 32 + 1.8 * values) for times, values in PAIRS]
    with warned(UserWarning, f"{n} of {n} values", "'channel_0'", "check units") as record:
        classifier.predict(fahrenheit)
    assert len(record) == 1
    with warned(UserWarning, "32 of 32 samples", "mean gaps", "'time'"):
        classifier.predict([(times / 60, values) for times, values in PAIRS])
    with warned(UserWarning, "on the axis 'time'", "each sample's first"):
        classifier.predict([(times * 60, values) for times, values in PAIRS])


def test_a_pretrained_model_tells_of_data_unlike_its_own_and_learns_their_range(saved):
    unlike = [(times, 100 + values) for times, values in PAIRS]
    settings = {"pretrained": saved, "epochs": 1, "device": "cpu", "random_state": 0}
    with warned(UserWarning, "far outside", "values of 'channel_0'"):
        fitted = RoMAEClassifier(**settings, **ALONE).fit(unlike, NAMES)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted.predict(unlike)


# Bad input


@pytest.mark.parametrize(
    ("X", "parts"),
    [
        ([], ["no samples"]),
        (np.zeros(5), ["Reshape your data"]),
        ([(np.arange(3), np.zeros(3)), np.zeros(3)], ["sample 1 is none"]),
        ([(np.arange(2), np.zeros(3))], ["3 time steps"]),
        (np.full((2, 3), np.nan), ["no measurement"]),
        ([[1.0, np.inf]], ["must be finite"]),
        (table_of(PAIRS, NAMES), ["columns hold"]),
        ([np.zeros((3, 1)), np.zeros((3, 2))], ["channels"]),
        (np.zeros((24, 1)), ["single token"]),
        (PAIRS[0], ["single pair", "[(times, values)]"]),
        (tuple(map(tuple, PAIRS[0])), ["a single pair"]),
        (([t for t, _ in PAIRS], [v for _, v in PAIRS]), ["list(zip(times, values))"]),
        (([t for t, _ in PAIRS[:2]], [v for _, v in PAIRS[:2]]), ["list(zip(times, values))"]),
        ([[t, v] for t, v in PAIRS], ["two sequences", "tuples (times, values)"]),
        ([[[0.0, 1.0, 2.0], [5.0, 6.0, 7.0]]] * 24, ["two sequences"]),
        ([[t[:8], v[:8, None]] for t, v in PAIRS], ["two sequences"]),
        ([(t, v, v) for t, v in PAIRS], ["sample 0", "row 5", "measurement error", "standard deviations"]),  # triples
        ([(t, v, v, v) for t, v in PAIRS], ["sample 0", "tuple of 4", "(times, values)"]),
        (named(None)[0], ["single sample", "[sample]"]),
    ],
)
def test_bad_series_get_a_sentence(X, parts):
    with refused((ValueError, TypeError), *parts):
        clone(EMBEDDER).fit(X)


@pytest.mark.parametrize(
    ("X", "shapes"),
    [
        ([[[1.0], [2.0]]] * 3, [(2, 1)] * 3),
        ([[[1.0, 3.0], [2.0, 4.0]]] * 3, [(2, 2)] * 3),
        ([[[1.0, 2.0, 3.0]] * 2, [[1.0, 2.0, 3.0]] * 4], [(2, 3), (4, 3)]),
        ([np.zeros((2, 5))] * 3, [(2, 5)] * 3),
        ([[1.0, 2.0]] * 3, [(2, 1)] * 3),
        (tuple(PAIRS[:2]), [values[:, None].shape for _, values in PAIRS[:2]]),
        ((np.zeros((2, 5)),) * 3, [(2, 5)] * 3),
    ],
    ids=[
        "one channel",
        "two channels",
        "two steps among others",
        "arrays",
        "flat",
        "two pairs in a tuple",
        "arrays in a tuple",
    ],
)
def test_two_time_steps_are_no_pair(X, shapes):
    assert [tuple(sample.values.shape) for sample in read_input(X)] == shapes


def test_one_series_is_asked_about_in_a_list(classifier, interpolator):
    for answer in (classifier.predict, interpolator.score, lambda X: interpolator.interpolate(X, [1.0, 2.0])):
        with refused(TypeError, "a single pair"):
            answer(PAIRS[0])
        with refused(TypeError, "a single sample"):
            answer(read_input(PAIRS)[0])


@pytest.mark.parametrize("times", [3.0, None, np.array(3.0), "2024", {3.0}, {0: 3.0}], ids=str)
def test_times_that_are_no_list_get_a_sentence(interpolator, times):
    with refused(TypeError, "times must", "one array", "list"):
        interpolator.interpolate(PAIRS, times)
    with refused(ValueError, "times are empty"):
        interpolator.interpolate(PAIRS, [])


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"size": "huge"}, ["no size"]),
        ({"epochs": 0}, ["epochs", "at least 1"]),
        ({"pretrain_epochs": -1}, ["pretrain_epochs"]),
        ({"validation_fraction": 1.0}, ["validation_fraction"]),
        ({"device": "toaster"}, ["device"]),
        ({"tokens": "words"}, ["tokens must be"]),
        ({"scaling": "minmax"}, ["scaling", "one of"]),
        ({"pretrained": "no/such/folder"}, ["no checkpoint folder"]),
        ({"pretrained": CLASSIFIER}, ["pretrained", "RoMAEClassifier", "save an estimator"]),
        ({"size": 64}, ["size", "str or Size", "not 64"]),
        ({"size": {"width": 16}}, ["size lacks", "['heads', 'depth']"]),
        ({"epochs": "5"}, ["epochs", "be int", "not '5'"]),
        ({"pretrain_epochs": "5"}, ["pretrain_epochs", "be int", "not '5'"]),
        ({"pretrain_epochs": 1.5}, ["pretrain_epochs", "be int", "not 1.5"]),
        ({"validation_fraction": "a"}, ["validation_fraction", "float", "not 'a'"]),
        ({"mask_ratio": "a"}, ["mask_ratio", "float", "not 'a'"]),
        ({"early_stopping": "no"}, ["early_stopping", "bool", "not 'no'"]),
        ({"verbose": None}, ["verbose", "int or bool", "not None"]),
    ],
)
def test_bad_settings_get_a_sentence(settings, parts):
    settings = {"size": None, **settings} if "pretrained" in settings else settings
    with refused((ValueError, TypeError), *parts):
        clone(CLASSIFIER).set_params(**settings).fit(PAIRS, NAMES)


@pytest.mark.parametrize(
    "columns",
    [{"values": 3}, {"values": None}, {"values": ["flux", 3]}, {"positions": 3}, {"id": None}, {"label": 3}],
    ids=str,
)
def test_columns_that_are_no_names_get_a_sentence(columns):
    name, value = next(iter(columns.items()))
    with refused(TypeError, "columns", f"{name!r} is {value!r}", "name of a column"):
        clone(CLASSIFIER).set_params(columns=COLUMNS | columns).fit(table_of(PAIRS, NAMES))


def test_a_size_may_be_given_as_on_the_command_line(classifier, tmp_path):
    fitted = clone(clone(CLASSIFIER).set_params(size={"width": 16, "heads": 2, "depth": 1})).fit(PAIRS, NAMES)
    assert_array_equal(fitted.predict_proba(PAIRS), classifier.predict_proba(PAIRS))
    fitted.save(tmp_path / "saved")
    assert RoMAEClassifier.load(tmp_path / "saved").size == SMALL["size"]


@pytest.mark.parametrize(
    ("y", "parts"),
    [
        (None, ["requires y"]),
        (["slow"] * len(PAIRS), ["only one class", "'slow'"]),
        (["slow"], ["1 labels", "32 samples"]),
        (np.linspace(0, 1, len(PAIRS)), ["Unknown label type"]),
        ([[0], [0, 1]] * 16, ["read as labels"]),
        (dict(enumerate(NAMES)), ["32 samples", "order", "type dict"]),
        (set(NAMES), ["y must", "list", "type set"]),
        ("ab" * 16, ["y must", "list", "type str"]),
        ([1, "b"] * 16, ["mixes labels", "1 and 'b'"]),
        (np.array([1, "b"] * 16, dtype=object), ["mixes labels", "1 and 'b'"]),
        ([True, "b"] * 16, ["mixes labels", "True and 'b'"]),
        ([1, "b", True, 2] * 8, ["mixes labels", "1 and 'b'"]),
        ([True, 2] * 16, ["mixes labels", "True and 2"]),
    ],
)
def test_bad_labels_get_a_sentence(y, parts):
    with refused((ValueError, TypeError), *parts):
        clone(CLASSIFIER).fit(PAIRS, y)


@pytest.mark.parametrize(
    "y",
    [NAMES, NAMES.astype(object), KINDS.astype(str), pd.date_range("2024", periods=32)],
    ids=["text", "objects", "numbers as text", "dates"],
)
def test_a_regressor_learns_numbers_alone(y):
    with refused(TypeError, "numbers", f"holds '{y[0]!s:.8}", "RoMAEClassifier"):
        clone(REGRESSOR).fit(PAIRS, y)


def test_numbers_among_objects_are_numbers():
    for y in (KINDS, KINDS + 0.5, KINDS > 0):
        found = labels_of(PAIRS, read_input(PAIRS), pd.Series(y, dtype=object), estimator_name="it")
        assert found.dtype == y.dtype and (found == y).all()


def test_labels_and_values_leave_their_gradients_behind():
    samples = [replace(one, target=[0.5 * i]) for i, one in enumerate(read_input(PAIRS))]
    wanted = np.arange(32) / 2
    tracked = [
        replace(
            one, **{name: getattr(one, name).clone().requires_grad_() for name in ("values", "positions", "target")}
        )
        for one in samples
    ]
    for X in (tracked, romae.SampleSet(tracked, named(None).schema)):
        found = read_input(X)
        assert not any(x.requires_grad for one in found for x in (one.values, one.positions, one.target))
        assert_array_equal(labels_of(X, X, None, estimator_name="it")[:, 0], wanted)
    y = [torch.tensor(number, requires_grad=True) for number in wanted]
    assert_array_equal(labels_of(samples, samples, y, estimator_name="it"), wanted)


@pytest.mark.parametrize("missing", [np.nan, None, pd.NA], ids=str)
@pytest.mark.parametrize("form", [list, tuple, pd.Series, lambda y: np.array(y, dtype=object)])
def test_a_missing_label_is_no_class(form, missing):
    y = form([*NAMES[:-1].tolist(), missing])
    with refused(ValueError, "labels", "sample 31", "1 of 32"):
        clone(CLASSIFIER).fit(PAIRS, y)
    columns = {k: v for k, v in COLUMNS.items() if k != "label"}
    with refused(ValueError, "labels", "sample 31"):
        clone(CLASSIFIER).set_params(columns=columns).fit(table_of(PAIRS, NAMES), dict(enumerate(y)))


def test_a_missing_number_is_refused_too():
    y = np.stack([KINDS, KINDS], axis=1).astype(float)
    y[3, 1] = np.nan
    with refused(ValueError, "labels", "sample 3"):
        clone(REGRESSOR).fit(PAIRS, y)
    samples = list(romae.from_arrays([v[:, None] for _, v in PAIRS], y=NAMES))
    samples[5] = replace(samples[5], target=None)
    with refused(ValueError, "labels", "sample 5"):
        clone(CLASSIFIER).fit(samples)


def test_a_refit_that_fails_leaves_what_was_fitted(saved):
    """Also one that fails late, for the sake of settings."""
    fitted = clone(CLASSIFIER).fit(PAIRS, NAMES)
    wanted = fitted.predict_proba(PAIRS)
    with refused(ValueError, "lr"):
        fitted.set_params(lr=-1.0).fit([np.zeros((4, 2))] * 30, ["p", "q", "r"] * 10)
    assert fitted.classes_.tolist() == ["fast", "slow"] and fitted.n_features_in_ == 1 and len(fitted.histories_) == 2
    assert_array_equal(fitted.predict_proba(PAIRS), wanted)
    numbers = clone(REGRESSOR).fit(PAIRS, KINDS)
    with refused(ValueError, "lr"):
        numbers.set_params(lr=-1.0).fit(PAIRS, np.stack([KINDS, KINDS], axis=1))
    assert numbers.n_outputs_ == 1 and numbers.predict(PAIRS).shape == (32,)
    fitted.set_params(lr=1e-2).save(saved.parent / "kinds")
    curves = RoMAEInterpolator.load(saved)
    with refused(ValueError, "no decoder"):
        curves.set_params(size=None, pretrain_epochs=None, pretrained=saved.parent / "kinds").fit(PAIRS)
    assert curves.interpolate(PAIRS, [1.0]).shape == (32, 1, 1)


def test_a_channel_of_one_held_out_series_has_a_scale():
    table = banded("ab")
    table.loc[table.index[-1], ["band", "flux"]] = ["c", 1000.0]
    for seed in range(8):
        embedder = RoMAEEmbedder(**SMALL | {"random_state": seed, "columns": {**BANDS, "label": "kind"}}).fit(table)
        assert embedder.transform(table).shape == (24, 16 * 2 * (5 + 4))


def test_a_table_needs_its_columns_and_labels_by_id(classifier):
    table = table_of(PAIRS, NAMES)
    with refused(ValueError, "unknown key 'star'"):
        clone(classifier).set_params(columns={"star": "id"}).fit(table)
    with refused(ValueError, "which column", "'id'"):
        clone(classifier).set_params(columns={"time": "day", "values": "flux"}).fit(table)
    columns = {"id": "star", "time": "day", "values": "flux"}
    with refused(TypeError, "label", "each id"):
        clone(classifier).set_params(columns=columns).fit(table, NAMES)
    with refused(ValueError, "no label", "id 31"):
        clone(classifier).set_params(columns=columns).fit(table, dict(enumerate(NAMES[:-1])))
    twice = pd.Series([*NAMES, NAMES[0]], index=[*range(len(NAMES)), 7])
    with refused(ValueError, "several labels", "id 7"):
        clone(classifier).set_params(columns=columns).fit(table, twice)


ROWS = table_of(PAIRS, NAMES).reset_index(drop=True)
BY_ID = {k: v for k, v in COLUMNS.items() if k != "label"}


def labels_in(table, y):
    return labels_of(table, read_input(table, columns=BY_ID), y, estimator_name="it")


@pytest.mark.parametrize(
    "table",
    [
        ROWS,
        table_of(PAIRS, NAMES),
        ROWS[::-1],
        ROWS[3:],
        ROWS.set_index("star", drop=False),
        ROWS.set_index(ROWS["day"]),
    ],
    ids=["numbered", "numbered by star", "backwards", "a part", "by star", "by day"],
)
def test_labels_by_the_rows_of_a_table_are_refused(table):
    """Since a row is not an id, even where both are numbers."""
    for y in (table["kind"], table[["kind"]]):
        with refused(ValueError, "row of the table", *(["columns={…, 'label': 'kind'}"] if y.ndim == 1 else [])):
            labels_in(table, y)


def test_labels_by_the_rows_of_a_table_neither_train_nor_score(classifier):
    fitted = clone(classifier).set_params(columns=BY_ID, pretrain_epochs=0, epochs=1).fit(ROWS, dict(enumerate(NAMES)))
    for answer in (fitted.fit, fitted.score, clone(REGRESSOR).set_params(columns=BY_ID).fit):
        with refused(ValueError, "row of the table"):
            answer(ROWS, ROWS["kind"])


def test_labels_of_numbers_that_are_more_than_the_ids_may_go_by_row(tmp_path):
    ROWS.to_csv(tmp_path / "stars.csv", index=False)
    arrow = pa.Table.from_pandas(ROWS, preserve_index=False)
    with refused(ValueError, "row of the table"):
        labels_in(arrow, ROWS["kind"])
    with refused(ValueError, "row of the table"):
        labels_in(tmp_path / "stars.csv", ROWS["kind"])
    with refused(ValueError, "such as 32", "y.rename_axis('star')"):
        labels_in(ROWS[ROWS["flux"] > 0], ROWS["kind"])


def test_labels_by_id_serve_in_any_order_and_form():
    y = pd.Series(NAMES)[::-1]
    texts = ROWS.assign(star="o" + ROWS["star"].astype(str).str.zfill(2))
    numbers = pd.DataFrame({"a": KINDS, "b": 2 * KINDS})[::-1]
    catalogue = pd.concat([y, pd.Series(["slow"] * 9, index=range(32, 41))])
    catalogue.index = [f"o{i:02}" for i in catalogue.index]
    more = pd.Series([*NAMES, "slow"]).rename_axis("star")
    for table, given in (
        (ROWS, y),
        (ROWS, y.to_dict()),
        (ROWS, more),
        (texts, catalogue),
        (texts, catalogue.to_dict()),
    ):
        assert_array_equal(labels_in(table, given), NAMES)
    assert_array_equal(labels_in(ROWS, numbers), numbers.to_numpy()[::-1])


def test_labels_of_a_table_with_one_row_per_id_must_be_clear():
    single = ROWS.drop_duplicates("star", ignore_index=True)
    assert_array_equal(labels_in(single, single["kind"]), NAMES)
    mixed = single.sample(frac=1, random_state=0, ignore_index=True)
    with refused(ValueError, "row of the table"):
        labels_in(mixed, mixed["kind"])
    assert_array_equal(labels_in(mixed, mixed.set_index("star")["kind"]), NAMES)


def test_a_model_refuses_series_with_other_channels(classifier):
    with refused(ValueError, "2 channels"):
        classifier.predict([np.zeros((4, 2))])


def test_a_head_on_a_frozen_encoder_learns_at_the_rate_of_probing(saved, monkeypatch):
    rates = []

    def recorded(model, stages, *args, **kwargs):
        rates.append(stages[-1].train.lr)
        raise KeyboardInterrupt

    monkeypatch.setattr(base, "run_stages", recorded)
    for frozen in (True, False):
        with pytest.raises(KeyboardInterrupt):
            RoMAEClassifier(pretrained=saved, frozen=frozen, device="cpu", epochs=2).fit(PAIRS, NAMES)
    assert rates == [rules.PROBING.lr, rules.FINE_TUNING.lr]


def test_a_learning_rate_that_is_given_is_that_of_every_course():
    for course in (rules.PRETRAINING, rules.FINE_TUNING, rules.PROBING):
        rates = [
            RoMAEClassifier(lr=lr)._settings(SMALL["size"], 8, 1, course, is_validated=False).lr for lr in (0.25, None)
        ]
        assert rates == [0.25, rules.fitting_rate(SMALL["size"], course)]


def test_classes_of_a_ts_file_keep_their_names():
    cases = "\n".join(f"{i},{i + 1},{i}:{['walk', 'run'][i % 2]}" for i in range(8))
    text = f"@univariate true\n@classLabel true walk run\n@data\n{cases}"
    samples = uea.parse(text).samples
    fitted = clone(CLASSIFIER).set_params(epochs=1).fit(samples)
    assert fitted.classes_.tolist() == ["run", "walk"] and fitted.task_.schema.classes == ("run", "walk")


@pytest.mark.slow
def test_defaults_do_well_on_basic_motions_with_steps_missing(real_data):
    """Official split, 65 % of the time steps of every series left out, nothing tuned but the time that it may take."""
    random = np.random.default_rng(0)

    def thinned(split: str) -> tuple[list[romae.Sample], np.ndarray]:
        samples, _ = uea.load("BasicMotions", split, folder=real_data / "uea")
        kept = [np.sort(random.permutation(len(one))[: round(0.35 * len(one))]) for one in samples]
        thin = [
            replace(one, values=one.values[k], positions=one.positions[k]) for one, k in zip(samples, kept, strict=True)
        ]
        return [replace(one, target=None) for one in thin], np.array([int(one.target) for one in samples])

    (seen, known), (asked, truth) = thinned("train"), thinned("test")
    classifier = RoMAEClassifier(device="cpu", random_state=0, time_limit=20).fit(seen, known)
    assert classifier.score(asked, truth) >= 0.95


def test_a_series_that_was_good_among_others_is_good_alone():
    """What single precision loses is a matter of the training data, whatever few are asked for later."""
    random = np.random.default_rng(0)
    X = 300 + 10 * random.normal(size=(12, 8, 1))
    X[0] = 300 + 1e-6 * random.normal(size=(8, 1))
    y = ["a", "b"] * 6
    fitted = RoMAEClassifier(epochs=1, **SMALL, **ALONE).fit(X, y)
    np.testing.assert_allclose(fitted.predict_proba(X[:1]), fitted.predict_proba(X)[:1], atol=1e-5)
    table = pd.DataFrame({"id": np.repeat(range(12), 8), "time": np.tile(range(8), 12), "value": X.ravel()})
    columns = {"id": "id", "time": "time", "values": "value"}
    fitted = RoMAEClassifier(epochs=1, columns=columns, **SMALL, **ALONE).fit(table, dict(enumerate(y)))
    assert len(fitted.predict(table[:8])) == 1
    with refused(ValueError, "single precision", "subtract an offset"):
        RoMAEClassifier(epochs=1, **SMALL, **ALONE).fit(X[[0, 0]], ["a", "b"])


def test_what_was_read_in_fit_is_read_in_parts():
    """Nested lists of which a part has two steps, and labels of more objects than a table holds."""
    random = np.random.default_rng(0)
    X = [random.normal(size=(2 + i % 2, 3)).tolist() for i in range(8)]
    fitted = RoMAEClassifier(epochs=1, **SMALL, **ALONE).fit(X, ["a", "b"] * 4)
    assert len(fitted.predict(X[:1])) == 1
    steps = [((1.0, 2.0), (3.0, 4.0), (5.0, 6.0))] * 4
    assert RoMAEEmbedder(**SMALL, pooling="model").fit(steps).transform(steps).shape == (4, 16)
    ids = 58 * 10**17 + np.arange(6)
    table = pd.DataFrame({"id": np.repeat(ids, 4), "time": np.tile(range(4), 6), "value": random.normal(size=24)})
    columns = {"id": "id", "time": "time", "values": {"value": 0}.keys()}
    labels = pd.Series(["a", "b"] * 3, index=ids)
    fitted = RoMAEClassifier(epochs=1, columns=columns, **SMALL, **ALONE).fit(table[table["id"] != ids[0]], labels)
    assert fitted.classes_.dtype.kind == "U" and fitted.score(table, labels) >= 0


@pytest.fixture(scope="module")
def stacked() -> tuple[RoMAEClassifier, np.ndarray, np.ndarray]:
    """Series whose class is the size of their values, and a network that has hardly been trained."""
    random = np.random.default_rng(0)
    y = np.array(["calm", "wild"] * 40)
    X = random.normal(size=(80, 10, 1)) * np.where(y == "wild", 3, 1)[:, None, None]
    return RoMAEClassifier(features="summary", n_models=1, epochs=1, **SMALL).fit(X, y), X, y


def test_what_statistics_say_is_contained(stacked):
    classifier, X, y = stacked
    fresh = np.random.default_rng(1).normal(size=(80, 10, 1)) * np.where(y == "wild", 3, 1)[:, None, None]
    alone = RoMAEClassifier(epochs=1, **SMALL, **ALONE).fit(X, y)
    assert classifier.score(fresh, y) > 0.9 > alone.score(fresh, y)
    assert classifier.predict_proba(fresh).sum(1) == pytest.approx(np.ones(80))
    assert classifier.stack_.weights[0] < classifier.stack_.weights[1:].min(), "the split has shown who knows more"


def test_patience_can_be_set_where_pre_training_comes_first():
    fitted = clone(CLASSIFIER).set_params(train={"patience": 2}, epochs=9, lr=1e-12).fit(PAIRS, NAMES)
    assert len(fitted.histories_[-1]) == 3


def test_models_beside_the_network_of_before_are_read_too(stacked, tmp_path):
    """A setting said that there are such, and nothing else did."""
    classifier, X, _ = stacked
    classifier.save(tmp_path / "saved")
    path = tmp_path / "saved" / "estimator.json"
    description = json.loads(path.read_text())
    del description["digest"], description["fitted"]["has_stack_"], description["fitted"]["n_models_"]
    path.write_text(json.dumps(description))
    assert_array_equal(RoMAEClassifier.load(tmp_path / "saved").predict_proba(X), classifier.predict_proba(X))
    description["fitted"]["n_models_"] = 0
    path.write_text(json.dumps(description))
    with refused(ValueError, "estimator.json", "damaged", "has 0"):
        RoMAEClassifier.load(tmp_path / "saved")


def test_the_models_beside_the_network_are_saved_and_pickled(stacked, tmp_path):
    classifier, X, _ = stacked
    classifier.save(tmp_path / "saved")
    classifier.save(tmp_path / "saved")  # takes the place of one of before
    for again in (RoMAEClassifier.load(tmp_path / "saved"), pickle.loads(pickle.dumps(classifier))):
        np.testing.assert_array_equal(again.predict_proba(X), classifier.predict_proba(X))


def test_models_beside_the_network_that_are_damaged_or_gone_are_refused(stacked, tmp_path):
    stacked[0].save(tmp_path / "saved")
    file = tmp_path / "saved" / "stack.safetensors"
    content = bytearray(file.read_bytes())
    content[-9] ^= 4
    file.write_bytes(content)
    with refused(ValueError, "stack.safetensors", "damaged"):
        RoMAEClassifier.load(tmp_path / "saved")
    file.unlink()
    with refused(ValueError, "stack.safetensors", "missing"):
        RoMAEClassifier.load(tmp_path / "saved")


def test_a_regressor_beside_trees_predicts_what_statistics_say():
    random = np.random.default_rng(0)
    X = random.normal(size=(80, 10, 2))
    y = np.stack([X[:, :, 0].mean(1), 100 * X[:, :, 1].max(1)], axis=1)
    fitted = RoMAERegressor(features="summary", n_models=1, epochs=1, **SMALL).fit(X, y)
    assert fitted.predict(X).shape == (80, 2) and fitted.score(X, y) > 0.8


def test_models_beside_the_network_are_weighed_on_the_validation_split(monkeypatch):
    given = []
    nothing = Stack({}, np.ones(1), None)
    monkeypatch.setattr(supervised, "fit_stack", lambda *splits, **settings: given.append(splits) or nothing)
    samples = [replace(one, target=kind) for one, kind in zip(read_input(PAIRS), KINDS, strict=True)]
    task = Classification(ModelConfig(channels=1, position_dims=1, encoder=SMALL["size"], decoder=SMALL["size"]), 2)
    indices = np.arange(len(samples))
    for n_training in (20, len(samples)):
        part = base.Part(indices[:n_training], indices[n_training:])
        RoMAEClassifier(features="summary")._stack([task], samples, [part], seed=0)
    (views, labels, (fold,)), (_, _, without) = given
    assert len(views.summary) == len(labels) == len(samples) and without == []
    assert_array_equal(labels, KINDS)
    assert_array_equal(fold.training, indices[:20])
    assert_array_equal(fold.held_out, indices[20:])
    assert_allclose(np.exp(fold.network), romae.predict_proba(task, samples[20:]), rtol=1e-6)


def test_summary_features_are_those_of_series():
    samples = [romae.Sample(np.ones((3, 1)), np.random.default_rng(i).uniform(size=(3, 3))) for i in range(6)]
    with refused(ValueError, "3 position axes", "leave features out"):
        RoMAEClassifier(features="summary", n_models=1, epochs=1, **SMALL).fit(samples, ["a", "b"] * 3)

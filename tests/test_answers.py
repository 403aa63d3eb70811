"""Answers: by id for tables, in arrays for series; what cannot be read is left out where that is asked for."""

import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import romae
from messages import refused, warned
from romae import RoMAEClassifier, RoMAEEmbedder, RoMAEInterpolator, RoMAERegressor, Size
from romae.data.skipping import refused_parts
from romae.estimators.answers import by_id
from romae.estimators.inputs import read_input

pytestmark = pytest.mark.usefixtures("without_shape_checks")  # as for users

SMALL = {
    "size": Size(width=16, heads=2, depth=1),
    "pretrain_epochs": 1,
    "batch_size": 32,
    "device": "cpu",
    "random_state": 0,
}
COLUMNS = {"id": "star", "time": "day", "channel": "band", "values": "flux"}
LABELLED = COLUMNS | {"label": "kind"}


def light_curves(n=8):
    random = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "star": np.repeat([f"s{i}" for i in range(n)], 6),
            "day": random.uniform(0, 9, 6 * n),
            "band": np.tile(["g", "r"], 3 * n),
            "flux": random.normal(size=6 * n),
            "kind": np.repeat(["x", "y"] * (n // 2), 6),
        }
    )
    return table.sample(frac=1, random_state=0, ignore_index=True)


TABLE = light_curves()
STARS = [f"s{i}" for i in range(8)]


@pytest.fixture(scope="module")
def classifier():
    return RoMAEClassifier(epochs=1, columns=LABELLED, **SMALL).fit(TABLE)


@pytest.fixture(scope="module")
def interpolator():
    return RoMAEInterpolator(columns=COLUMNS, **SMALL).fit(TABLE)


@pytest.fixture(scope="module")
def embedder():
    return RoMAEEmbedder(columns=COLUMNS, **SMALL).fit(TABLE)


def test_answers_for_a_table_are_indexed_by_its_ids(classifier):
    samples = romae.from_table_like(TABLE, classifier.task_.schema)
    labels, probabilities = classifier.predict(TABLE), classifier.predict_proba(TABLE)
    assert isinstance(labels, pd.Series) and isinstance(probabilities, pd.DataFrame)
    for answer in (labels, probabilities):
        assert answer.index.tolist() == STARS and answer.index.name == "star"
    assert labels.name == "kind" and probabilities.columns.tolist() == ["x", "y"]
    assert_array_equal(labels, classifier.predict(samples))
    assert_array_equal(probabilities, classifier.predict_proba(samples))
    assert isinstance(classifier.predict(samples), np.ndarray)
    assert classifier.score(TABLE) == (labels == TABLE.groupby("star")["kind"].first()).mean()


def test_every_container_of_a_table_gets_the_same_answers(classifier):
    wanted = classifier.predict_proba(TABLE)
    forms = [pa.Table.from_pandas(TABLE), pa.Table.from_pandas(TABLE).to_reader(), TABLE.set_index(["star", "day"])]
    try:
        import polars
    except ImportError:
        pass
    else:
        forms += [polars.DataFrame(TABLE), polars.DataFrame(TABLE).lazy()]
    for form in forms:
        pd.testing.assert_frame_equal(classifier.predict_proba(form), wanted, check_exact=True)


def same(first, second):
    return all(
        torch.equal(a.values, b.values) and torch.equal(a.positions, b.positions)
        for a, b in zip(first, second, strict=True)
    )


def test_every_container_of_arrays_gives_the_same_samples():
    xr = pytest.importorskip("xarray", reason="needs xarray")
    random = np.random.default_rng(0)
    X, hours = random.normal(size=(8, 5, 2)), np.cumsum(random.uniform(size=5))
    X[random.uniform(size=X.shape) < 0.2] = np.nan
    array = xr.DataArray(X, {"hour": hours, "sensor": ["u", "v"]}, ("patient", "hour", "sensor"))
    wanted = read_input([(hours, x) for x in X])
    assert same(read_input(array), wanted) and read_input(array).schema.channels == ("u", "v")
    columns = {"id": "patient", "time": "hour", "channel": "sensor", "values": "value"}
    with pytest.warns(UserWarning, match="dropped"):
        assert same(read_input(array, columns=columns), wanted)


def test_a_dictionary_of_pypots_brings_its_labels():
    X, y = np.random.default_rng(0).normal(size=(8, 5, 2)), np.arange(8) % 2
    assert same(read_input({"X": X, "y": y}), read_input(X))
    found = RoMAEClassifier(epochs=1, **SMALL).fit({"X": X, "y": y})
    assert_array_equal(found.predict_proba({"X": X}), found.predict_proba(X))
    assert found.score({"X": X, "y": y}) == found.score(X, y)


def test_an_index_of_id_and_time_needs_no_columns():
    frame = TABLE.drop(columns=["band", "kind"]).set_index(["star", "day"])
    columns = {"id": "star", "time": "day", "values": "flux"}
    wanted = read_input(frame.reset_index(), columns=columns)
    assert same(read_input(frame), wanted) and read_input(frame).schema == wanted.schema


def test_numbers_of_a_table_are_a_column_or_a_table_by_id():
    y = pd.DataFrame({"a": np.arange(8.0), "b": np.arange(8.0) ** 2}, index=pd.Index(STARS, name="star"))
    two = RoMAERegressor(epochs=1, columns=COLUMNS, **SMALL).fit(TABLE, y).predict(TABLE)
    assert isinstance(two, pd.DataFrame) and two.shape == (8, 2) and two.index.tolist() == STARS
    one = by_id(TABLE, romae.from_table(TABLE, **COLUMNS), np.arange(8.0), name="a")
    assert isinstance(one, pd.Series) and one.index.tolist() == STARS and one.name == "a"


def test_embeddings_of_a_table_go_by_id_through_a_pipeline(embedder):
    vectors = embedder.transform(TABLE)
    assert vectors.index.tolist() == STARS and vectors.columns[0] == "romaeembedder0"
    assert_array_equal(vectors, embedder.transform(romae.from_table_like(TABLE, embedder.task_.schema)))
    y = TABLE.groupby("star")["kind"].first()
    pipeline = make_pipeline(FrozenEstimator(embedder), LogisticRegression()).fit(TABLE, y)
    assert pipeline.predict(TABLE).shape == (8,)


def test_curves_of_a_table_are_indexed_by_id_and_time(interpolator):
    samples = romae.from_table_like(TABLE, interpolator.task_.schema)
    curves = interpolator.interpolate(TABLE, [0.0, 2.5, 5.0])
    assert curves.index.names == ["star", "day"] and curves.columns.tolist() == ["g", "r"]
    assert_array_equal(curves.to_numpy().reshape(8, 3, 2), interpolator.interpolate(samples, [0.0, 2.5, 5.0]))
    assert curves.loc[("s3", 2.5)].shape == (2,)
    uneven = interpolator.interpolate(TABLE, [np.arange(1.0 + i) for i in range(8)])
    assert uneven.loc["s4"].index.tolist() == [0, 1, 2, 3, 4]
    points = interpolator.interpolate(TABLE, [[[1.0, 0.0], [2.0, 1.0]]] * 8)
    assert points.index.names == ["star", "day", "band"] and points.columns.tolist() == ["flux"]
    # asked alone or among others, an answer is the same but for the order of additions
    assert_allclose(points.loc[("s2", 2.0, "r")], curves_at(interpolator, samples[2], [[2.0, 1.0]]), rtol=1e-5)


def curves_at(interpolator, sample, positions):
    return romae.interpolate(interpolator.task_, [sample], [positions])[0][0]


def test_curves_of_some_channels_are_those_of_all(interpolator):
    whole = interpolator.interpolate(TABLE, [0.0, 2.5, 5.0])
    for channels, names in ((["r"], ["r"]), (["r", "g"], ["r", "g"]), (1, ["r"])):
        some = interpolator.interpolate(TABLE, [0.0, 2.5, 5.0], channels=channels)
        assert some.columns.tolist() == names and some.index.equals(whole.index)
        assert_allclose(some, whole[names], rtol=1e-5)
    samples = romae.from_table_like(TABLE, interpolator.task_.schema)
    assert interpolator.interpolate(samples, [0.0, 2.5], channels=["r"]).shape == (8, 2, 1)
    with refused(ValueError, "'z'", "g, r"):
        interpolator.interpolate(TABLE, [0.0], channels=["z"])
    with refused(ValueError, "last column", "leave channels out"):
        interpolator.interpolate(TABLE, [[[1.0, 0.0]]] * 8, channels=["g"])


def test_curves_at_dates_come_back_at_dates():
    days = pd.Timestamp("2024-03-01") + pd.to_timedelta(TABLE["day"], "D").dt.round("us")
    dated = RoMAEInterpolator(columns=COLUMNS | {"time_unit": "day"}, **SMALL).fit(TABLE.assign(day=days))
    asked = pd.date_range("2024-03-02", periods=2)
    curves = dated.interpolate(TABLE.assign(day=days), asked)
    assert curves.index.get_level_values("day").unique().tolist() == list(asked)


# Skipping


def spoiled():
    """The table with samples that cannot be read for various reasons, and what a message must say of each."""
    table = TABLE.astype({"flux": object})

    def of(star):
        return table.index[table["star"] == star]

    table.loc[of("s1")[0], "flux"] = "bad"
    table.loc[of("s3")[1], "flux"] = np.inf
    table.loc[of("s4")[2], "band"] = "z"
    table.loc[of("s6"), "day"] = np.nan
    table.loc[of("s7")[0], "day"] = -np.inf
    row_of_bad = int(of("s1")[0])
    return table, {"s1": f"row {row_of_bad} is 'bad'", "s3": "inf", "s4": "'z'", "s6": "missing", "s7": "infinite"}


def answers(estimator, X, **options):
    if isinstance(estimator, RoMAEInterpolator):
        return estimator.interpolate(X, [0.0, 1.0], **options)
    return (
        estimator.transform(X, **options) if isinstance(estimator, RoMAEEmbedder) else estimator.predict(X, **options)
    )


@pytest.mark.parametrize("name", ["classifier", "embedder", "interpolator"])
def test_what_cannot_be_read_is_left_out_and_listed(name, request, tmp_path):
    estimator = request.getfixturevalue(name)
    table, reasons = spoiled()
    wanted = answers(estimator, TABLE[~TABLE["star"].isin(list(reasons))])
    with pytest.raises((ValueError, TypeError)):
        answers(estimator, table)
    table.to_csv(tmp_path / "a.csv", index=False)
    forms = [table, tmp_path / "a.csv", table.set_index(["star", "day"])] if name == "classifier" else [table]
    for form in forms:
        with warned(UserWarning, "skipped 5 of 8", "'s1'", "and 2 more"):
            found = answers(estimator, form, on_error="skip")
        assert found.equals(wanted)
        skipped = dict(estimator.skipped_)
        assert sorted(skipped) == sorted(reasons)
        assert all(part in skipped[star] for star, part in reasons.items()), skipped


def test_nothing_to_skip_changes_nothing(classifier):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert classifier.predict_proba(TABLE, on_error="skip").equals(classifier.predict_proba(TABLE))
    assert classifier.skipped_ == []


def test_series_are_skipped_by_place(embedder):
    good = [(np.arange(4.0), np.ones((4, 2))), (np.arange(3.0), np.zeros((3, 2)))]
    bad = [(np.arange(2.0), np.full((2, 2), np.nan)), (np.arange(3.0), np.ones((2, 2))), ("ab", np.ones((2, 2)))]
    wanted = embedder.transform(good)
    with warned(UserWarning, "skipped 3 of 5", "no measurement"):
        found = embedder.transform([bad[0], good[0], bad[1], good[1], bad[2]], on_error="skip")
    assert_array_equal(found, wanted)
    assert [place for place, _ in embedder.skipped_] == [0, 2, 4]
    X = np.ones((4, 3, 2))
    X[2] = np.nan
    with warned(UserWarning, "skipped 1 of 4"):
        assert len(embedder.transform(X, on_error="skip")) == 3
    with warned(UserWarning, "skipped 1 of 4"):
        assert len(embedder.transform({"X": X}, on_error="skip")) == 3
    assert embedder.skipped_[0].id == 2


def test_times_of_each_series_go_with_those_that_are_kept(interpolator):
    good = [(np.arange(4.0), np.ones((4, 2))), (np.arange(3.0), np.zeros((3, 2)))]
    wanted = interpolator.interpolate(good, [[0.5], [1.0, 2.0]])
    with warned(UserWarning, "skipped 1 of 3"):
        found = interpolator.interpolate([good[0], None, good[1]], [[0.5], [9.0], [1.0, 2.0]], on_error="skip")
    assert all(map(np.array_equal, found, wanted))
    with refused(ValueError, "one array of times"):
        interpolator.interpolate(TABLE, [[0.5]] * 8, on_error="skip")


def test_what_the_model_refuses_is_skipped_too(classifier):
    """A time that single precision does not hold."""
    far = TABLE.copy()
    far.loc[far.index[far["star"] == "s5"][0], "day"] = 1e300
    with pytest.raises(ValueError):
        classifier.predict(far)
    with pytest.warns(UserWarning, match="skipped 1 of 8"):
        assert classifier.predict(far, on_error="skip").index.tolist() == [star for star in STARS if star != "s5"]
    assert classifier.skipped_[0].id == "s5"


def test_where_nothing_is_left_the_error_is_raised(classifier):
    with refused(ValueError, "'flux'", "is not there"):
        classifier.predict(TABLE.drop(columns="flux"), on_error="skip")
    with refused(ValueError, "'flux'", "inf"):
        classifier.predict(TABLE.assign(flux=np.inf), on_error="skip")
    with refused(ValueError, "'star'", "is not there"):
        classifier.predict(TABLE.drop(columns="star"), on_error="skip")
    with refused(ValueError, "on_error", "'ignore'"):
        classifier.predict(TABLE, on_error="ignore")
    with refused(TypeError, "list of series"):
        classifier.predict(3, on_error="skip")


def test_few_attempts_find_what_is_refused():
    n_attempts = 0

    def attempt(part):
        nonlocal n_attempts
        n_attempts += 1
        if {17, 5000} & set(part.tolist()):
            raise ValueError("no")

    assert refused_parts(10_000, attempt) == {17: "no", 5000: "no"}
    assert n_attempts < 60

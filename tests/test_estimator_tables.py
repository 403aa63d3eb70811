"""A saved estimator answers for tables as in Python, and what is asked of one of its networks says so."""

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import romae
from messages import assert_says
from romae.cli.main import app
from romae.data.unnamed import note_on_unnamed
from romae.estimators.tables import EstimatorPredictor
from romae.inference.own_tables import OwnTable
from romae.inference.predictor import Predictor
from romae.training.tables import Columns, load_model

COLUMNS = {"id": "star", "time": "day", "channel": "band", "values": "flux"}
random = np.random.default_rng(0)
STARS = np.repeat(np.arange(24), 12)
POINTS = pd.DataFrame(
    {
        "star": STARS,
        "day": random.uniform(0, 10, STARS.size),
        "band": np.resize(["g", "r"], STARS.size),
        "flux": random.normal(size=STARS.size) + 3.0 * (STARS % 2),
    }
)
LABELS = {"kind": {i: "variable" if i % 2 else "constant" for i in range(24)}, "level": {i: 3.0 * i for i in range(24)}}
QUICK = {"pretrain_epochs": 1, "epochs": 1, "n_models": 2, "columns": COLUMNS, "random_state": 0, "device": "cpu"}


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    """A folder with a classifier, a regressor and an interpolator, and a table of stars."""
    folder = tmp_path_factory.mktemp("saved")
    romae.RoMAEClassifier(**QUICK).fit(POINTS, pd.Series(LABELS["kind"], name="kind")).save(folder / "classifier")
    romae.RoMAERegressor(**QUICK, features=None).fit(POINTS, pd.Series(LABELS["level"], name="level")).save(
        folder / "regressor"
    )
    curves = romae.RoMAEInterpolator(pretrain_epochs=1, columns=COLUMNS, random_state=0, start="scratch")
    curves.fit(POINTS).save(folder / "curves")
    POINTS.sample(frac=1, random_state=0).to_csv(folder / "points.csv", index=False)
    return folder


def answered(saved: Path, model: str, *words: str) -> pd.DataFrame:
    """What the command line writes for the table, whose columns it is not told."""
    from typer.testing import CliRunner

    out = saved / "answers.csv"
    command = ["predict", str(saved / "points.csv"), "--model", str(saved / model), "--out", str(out), "--force"]
    CliRunner().invoke(app, [*command, "--device", "cpu", *words], catch_exceptions=False)
    return pd.read_csv(out).set_index("star").sort_index()


def test_the_command_line_answers_with_all_models_of_a_classifier(saved):
    classifier = romae.RoMAEClassifier.load(saved / "classifier")
    assert classifier.n_models_ > 1
    table, truth = answered(saved, "classifier"), classifier.predict_proba(POINTS)
    for name in classifier.classes_:
        np.testing.assert_allclose(table[f"probability_{name}"], truth[name], atol=1e-6)
    assert (table.iloc[:, 0] == classifier.predict(POINTS)).all()


def test_the_command_line_answers_with_all_models_of_a_regressor(saved):
    regressor = romae.RoMAERegressor.load(saved / "regressor")
    table, ends = answered(saved, "regressor", "--interval", "0.5"), regressor.predict_interval(POINTS, 0.5)
    means, deviations, lower, upper = (table.iloc[:, i] for i in range(4))
    np.testing.assert_allclose(means, regressor.predict(POINTS), rtol=1e-5)
    np.testing.assert_allclose(np.stack([lower, upper], 1), ends, rtol=1e-5)
    assert (deviations > 0).all() and [name.split("_")[-1] for name in table][1:] == ["std", "lower", "upper"]
    with pytest.raises(ValueError) as error:
        answered(saved, "regressor", "--quantiles", "0.1")
    assert_says(str(error.value), "--interval", "--quantiles")


def test_what_predicts_no_labels_says_what_to_ask_it(saved):
    with pytest.raises(ValueError) as error:
        answered(saved, "curves")
    assert_says(str(error.value), "RoMAEInterpolator", "romae interpolate")
    with pytest.raises(ValueError) as error:
        Predictor(saved / "classifier")
    assert_says(str(error.value), "EstimatorPredictor")


def test_one_network_of_several_models_is_never_taken_silently(saved):
    with pytest.warns(UserWarning, match="several models"):
        network = load_model(saved / "classifier")
    assert network.n_classes == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isinstance(load_model(saved / "curves"), romae.MaskedReconstruction)


def test_a_pickled_predictor_gives_the_same_answers(saved):
    import pickle

    predictor = EstimatorPredictor(saved / "classifier", device="cpu")
    copy = pickle.loads(pickle.dumps(predictor))
    assert copy(POINTS).equals(predictor(POINTS)) and copy.model == predictor.model


# Columns that nobody named


def schema(**names: str) -> romae.Schema:
    return romae.Schema(**({"id": "star", "time": "day", "values": ("flux",)} | names))


def test_columns_of_text_that_are_not_read_are_told_where_rows_of_one_series_differ_in_them(tmp_path):
    table = POINTS.assign(remark=[f"{i} seen" for i in range(len(POINTS))], kind=np.where(STARS % 2, "a", "b"))
    files = {"points.csv": table.to_csv, "points.parquet": table.to_parquet}
    for name, write in files.items():
        write(tmp_path / name, index=False)
    for data in (table, table.set_index("star"), *(tmp_path / name for name in files)):
        note = note_on_unnamed(data, schema())
        assert_says(note, "'band'", "'star'", "--channel")
        assert "kind" not in note and "remark" not in note  # one for each star; another in each row
        assert_says(note_on_unnamed(data, schema(id="id"), has_ids=False), "'band'", "'kind'", "one series", "--id")
        assert note_on_unnamed(data, schema(channel="band")) is None
        assert note_on_unnamed(data, schema(), also_read=["band"]) is None
    assert note_on_unnamed(POINTS.drop(columns="band"), schema(id="id"), has_ids=False) is None


def test_a_column_of_dates_is_offered_where_times_are_not_named(tmp_path):
    table = POINTS.assign(date=pd.Timestamp("2024-05-01") + pd.to_timedelta(POINTS["day"].round(2), unit="D"))
    table.to_csv(tmp_path / "points.csv", index=False)
    for data in (table, tmp_path / "points.csv"):
        with pytest.raises(ValueError) as error:
            OwnTable.read(data, Columns())
        assert_says(str(error.value), "column 'time'", "--time date")

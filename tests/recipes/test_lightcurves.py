"""The recipes for light curves, on small files of the published schemas that the tests write."""

import gzip
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from quick import check_quick
from torch.testing import assert_close

from fits_files import write_pair
from messages import assert_says, refused
from romae.data.scaling import fit_scaling
from romae.experiments import baselines
from romae.experiments.datasets import elasticc
from romae.experiments.recipe import find
from romae.experiments.recipes.lightcurves import RECIPES, Elasticc, HiddenPoints, Plasticc, adjusted
from romae.tokens.sample import Sample

CODES = {88: "active galactic nucleus", 90: "supernova Ia", 92: "RR Lyrae"}
MODELS = ("AGN", "SNIa-SALT2", "RRL")
N_OBJECTS, N_POINTS = 12, 30


def flux(kind: int, days: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """A slow change, a single rise and fall, or a fast oscillation."""
    shapes = (100 + 0.5 * days, 300 * np.exp(-(((days - 40) / 10) ** 2)), 5_000 * np.sin(days))
    return random.uniform(0.5, 2) * shapes[kind] + random.normal(0, 5, len(days))


@pytest.fixture(scope="session")
def root(tmp_path_factory) -> Path:
    """The folder that ROMAE_DATA names: twelve objects of each of three classes in PLAsTiCC, and again in ELAsTiCC."""
    root, random = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    points = []
    for number in range(3 * N_OBJECTS):
        days = np.sort(random.uniform(0, 100, N_POINTS))
        band = np.arange(N_POINTS) % 6
        one = {"object_id": 10 + number, "mjd": 59_000 + days, "passband": band, "flux": flux(number % 3, days, random)}
        points.append(pd.DataFrame(one | {"flux_err": 5.0, "detected_bool": 1}))
    about = pd.DataFrame({"object_id": 10 + np.arange(3 * N_OBJECTS), "target": list(CODES) * N_OBJECTS})
    (root / "plasticc").mkdir()
    for name, table in (("lightcurves", pd.concat(points)), ("metadata", about)):
        packed = gzip.compress(table.to_csv(index=False).encode())
        (root / "plasticc" / f"plasticc_train_{name}.csv.gz").write_bytes(packed)
    (root / "elasticc").mkdir()
    for kind, model in enumerate(MODELS):
        table = _as_elasticc(pd.concat(points[kind::3]))
        if kind == 0:
            _write_fits(root / "elasticc", model, table)
        else:
            table.to_parquet(root / "elasticc" / f"{model}.parquet")
    return root


def _write_fits(folder: Path, model: str, table: pd.DataFrame) -> None:
    """The published form: one table of objects, which says where their points begin and end, and one of points."""
    last = N_POINTS * np.arange(1, N_OBJECTS + 1)
    ids = table["SNID"].to_numpy()[last - 1].astype(str)
    head = {"SNID": (ids, "16A"), "PTROBS_MIN": (last - N_POINTS + 1, "1J"), "PTROBS_MAX": (last, "1J")}
    forms = {"MJD": "1D", "BAND": "12A", "PHOTFLAG": "1J", "FLUXCAL": "1E", "FLUXCALERR": "1E"}
    write_pair(folder, model, head, {name: (table[name].to_numpy(), form) for name, form in forms.items()})


def _as_elasticc(points: pd.DataFrame) -> pd.DataFrame:
    """The same points in the other schema: an alert at the third point, detections up to the last but three."""
    place = np.tile(np.arange(N_POINTS), N_OBJECTS)
    flags = np.select([place == 2, (place > 2) & (place < N_POINTS - 3)], [elasticc.FIRST_ALERT, elasticc.DETECTION])
    bands = np.array(list("ugrizY"))[points["passband"].to_numpy()]
    columns = {"SNID": points["object_id"], "MJD": points["mjd"], "BAND": bands, "PHOTFLAG": flags.astype(np.int32)}
    return pd.DataFrame(columns | {"FLUXCAL": points["flux"], "FLUXCALERR": points["flux_err"]})


@pytest.fixture
def data(root, monkeypatch) -> Path:
    monkeypatch.setenv("ROMAE_DATA", str(root))
    return root


# A quick run replaces the encoder, so that the shallow rows are those of the tuned.
DISTINCT = [recipe for recipe in RECIPES if "shallow" not in recipe.name]


@pytest.mark.slow
@pytest.mark.parametrize("recipe", DISTINCT, ids=lambda recipe: recipe.name)
def test_a_quick_run_learns(recipe, data, tmp_path, without_shape_checks):
    result = check_quick(recipe, tmp_path)
    if recipe.metric == "mse":
        assert "linear" in result.baselines and result.views["reconstructions"]
    else:
        is_adjusted = {"adjustment", "adjustment_boosting", "validation_macro_f1"} <= set(result.metrics)
        assert is_adjusted == ("gradient boosting, adjusted" in result.baselines) == (recipe.data.validation > 0)
        assert "gradient boosting" in result.baselines and result.figure["confusion"].sum() > 0
        assert set(result.views["embeddings"]["groups"]) <= {*CODES.values(), *elasticc.CLASSES}


@pytest.mark.slow
def test_elasticc_runs_without_the_alert_mask_too(data, tmp_path):
    recipe = find("lightcurves/elasticc")
    check_quick(replace(recipe, data=replace(recipe.data, alerts_only=False)), tmp_path)


def test_the_alert_mask_is_a_setting_of_the_data(data):
    masked, whole = (Elasticc(alerts_only=only).splits(0) for only in (True, False))
    assert {len(one) for one in whole.train} == {N_POINTS} and {len(one) for one in masked.train} == {N_POINTS - 3}
    assert Counter(baselines.classes(whole.test).tolist()) == dict.fromkeys(
        (elasticc.CLASS_OF_MODEL[model] for model in MODELS), N_OBJECTS // 2
    )


def test_five_seeds_test_every_object_once_and_train_on_none_that_they_test(data):
    tested = []
    for seed in range(5):
        made = Plasticc(validation=0.2).splits(seed)
        parts = [{one.id for one in part} for part in (made.train, made.validation, made.test)]
        assert sum(map(len, parts)) == len(set.union(*parts)) == 3 * N_OBJECTS
        assert made.unlabelled is None
        tested += [one.id for one in made.test]
        for part in (made.train, made.validation, made.test):
            counts = np.bincount(baselines.classes(part), minlength=14)
            assert np.ptp(counts[counts > 0]) <= 1 and (counts > 0).sum() == 3
    assert len(tested) == len(set(tested)) == 3 * N_OBJECTS
    other, again = ({one.id for one in Plasticc().splits(seed).test} for seed in (5, 0))
    assert other != again == set(tested[: len(again)])


def test_with_few_labels_pretraining_still_sees_all_training_objects(data):
    whole, few, other = (
        Plasticc().splits(0),
        Plasticc(labels_per_class=2).splits(0),
        Plasticc(labels_per_class=2).splits(1),
    )
    assert np.bincount(baselines.classes(few.train))[np.unique(baselines.classes(few.train))].tolist() == [2, 2, 2]
    seen, labelled = ({one.id for one in part} for part in (few.unlabelled, few.train))
    assert labelled < seen == {one.id for one in whole.train} and few.scaling == whole.scaling
    assert [one.id for one in few.test] == [one.id for one in whole.test]
    assert labelled != {one.id for one in other.train}
    assert Plasticc(labels_per_class=2, uses_unlabelled=False).splits(0).unlabelled is None
    with refused(ValueError, "data.labels_per_class", "at least 1", "not 0"):
        Plasticc(labels_per_class=0).splits(0)


def test_the_scaling_is_that_of_the_training_objects(data):
    made = Plasticc(validation=0.2).splits(1)
    assert made.scaling == fit_scaling(made.train, values="asinh", per="channel", origin="first")


def test_dates_may_be_given_in_place_of_days_since_the_first_point(data):
    """What is saved with a model takes both."""
    made = Plasticc().splits(0)
    one = made.test[0]
    dated = replace(one, positions=one.positions.double() + torch.tensor([59_580.0, 0.0]))
    assert_close(made.scaling.apply(dated).positions, made.scaling.apply(one).positions, rtol=0, atol=1e-4)


def test_validation_is_the_share_that_was_asked_for(data):
    made = Plasticc(validation=0.25).splits(0)
    assert len(made.validation) / (len(made.train) + len(made.validation)) == pytest.approx(0.25, abs=0.05)
    with refused(ValueError, "one part", "not 0.4"):
        Plasticc(validation=0.4).splits(0)


def test_scaled_flux_fits_into_16_bits_where_flux_itself_does_not():
    """What it costs is 0.4 % of the flux, and nothing where it is near zero."""
    flux = torch.tensor([0.0, -0.3, 2.0, -80.0, 7e3, 2.4e6], dtype=torch.float64)
    samples = [Sample(torch.stack([flux, flux.abs() / 10 + 1], dim=1).float(), torch.zeros(6, 2))]
    scaling = fit_scaling(samples, values="asinh", per="channel")
    seen = scaling.apply(samples[0])
    back = scaling.invert_values(seen.values.half(), seen.positions)[:, 0]
    assert torch.isinf(samples[0].values.half()).any() and torch.isfinite(seen.values.half()).all()
    assert_close(back, flux, rtol=4e-3, atol=1e-3 * scaling.scale[0][0])


def test_half_of_the_points_of_a_test_object_are_hidden_and_always_the_same(data):
    first, second = (HiddenPoints().splits(2) for _ in range(2))
    assert {int(one.hidden.sum()) for one in first.test} == {N_POINTS // 2}
    assert all(torch.equal(a.hidden, b.hidden) for a, b in zip(first.test, second.test, strict=True))
    assert len({tuple(one.hidden.tolist()) for one in first.test}) == len(first.test)
    assert all(one.hidden is None for one in first.train)


def test_classes_are_judged_without_their_frequency():
    """Bayes' rule: what is left of a posterior without the prior is the likelihood."""
    random = np.random.default_rng(0)
    counts, likelihood = np.array([500, 20, 80, 0]), random.uniform(0.1, 1, (50, 4))
    posterior = likelihood * (counts + 1e-9)
    posterior /= posterior.sum(axis=1, keepdims=True)
    assert (adjusted(posterior, counts, 0.0) == posterior.argmax(1)).all()
    assert (adjusted(posterior, counts, 1.0) == likelihood[:, :3].argmax(1)).all()
    assert (adjusted(np.eye(4), counts, 1.0) != 3).all(), "what was never seen is never chosen"


def test_a_band_without_points_is_missing_from_the_features_and_the_rest_is_there():
    points = Sample(np.array([[3.0, 1.0], [9.0, 1.0]]), np.array([[0.0, 0.0], [2.0, 5.0]]), target=0)
    made = baselines.light_curve_features([points, points], n_bands=6)
    bands, colours = made[0, :66].reshape(6, 11), made[0, 66:72]
    assert np.isnan(bands[1:5, :-1]).all() and (bands[1:5, -1] == 0).all() and np.isfinite(bands[[0, 5]]).all()
    assert colours[[0, 5]].tolist() == [pytest.approx(1 / 3), 1.0] and np.isfinite(made[0, 72:]).all()
    assert made[0, 72:].tolist() == [0.5, 0.0, 2.0, 2.0, 6.0]


def test_the_paper_row_has_the_papers_settings():
    pretrain, classify = find("lightcurves/elasticc").stages
    assert (pretrain.train.batch_size, pretrain.train.lr, pretrain.train.betas) == (16_384, 6.4e-3, (0.9, 0.95))
    assert (classify.train.batch_size, classify.train.lr, classify.train.betas) == (4_096, 8e-4, (0.9, 0.999))
    for name in ("lightcurves/elasticc", "lightcurves/plasticc-paper"):
        pretrain, classify = find(name).stages
        assert pretrain.masking.ratio == 0.5 and classify.dropout == classify.stochastic_depth == 0.2
        for stage, batch_size, lr in ((pretrain, 16_384, 6.4e-3), (classify, 4_096, 8e-4)):
            assert stage.train.clip == 10 and stage.train.weight_decay == 0.05 and stage.weights == "last"
            assert stage.train.lr == pytest.approx(lr * (stage.train.batch_size / batch_size) ** 0.5)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("lightcurves/plasticc-tuned", ["plasticc_train_lightcurves.csv.gz", "download https"]),
        ("lightcurves/elasticc", ["download", "ELASTICC_TRAIN_<model>", "from https"]),
    ],
)
def test_without_files_one_sentence_says_what_belongs_where(name, parts, tmp_path, monkeypatch, capsys):
    from romae.cli.main import main

    monkeypatch.setenv("ROMAE_DATA", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["romae", "run", name, "--results", str(tmp_path / "results")])
    with pytest.raises(SystemExit) as ended:
        main()
    told = capsys.readouterr().err
    assert ended.value.code == 2 and str(tmp_path) in told
    assert_says(told, *parts)
    assert not (tmp_path / "results").exists()

"""The recipes for variable stars, on a small file that the tests write: folds, labels, and what is hidden."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from messages import refused
from romae.experiments import baselines
from romae.experiments.datasets import asas
from romae.experiments.periodic_baselines import Seen, harmonics, periodic_process
from romae.experiments.recipe import Recipe, find, run
from romae.experiments.recipes.asas import (
    CLASSIFIERS,
    METHODS,
    RECIPES,
    Classes,
    HiddenPoints,
    Periods,
    _answer,
    _scores,
)
from romae.experiments.results import read_result, write_result
from romae.experiments.variable_stars import FACTS, OF_PERIOD

NAMES = ("Detached", "Mira", "RR Lyrae, Fundamental Mode")
DAYS = (4.0, 30.0, 1.5)
N_STARS, N_POINTS = 12, 60
COARSE = {"shortest": 1.0}  # a tenth of the frequencies


def columns() -> dict[str, np.ndarray]:
    """Twelve stars of each of three classes: eclipses, a large sine, and a small one with an overtone."""
    random = np.random.default_rng(0)
    stars, points = [], []
    for number in range(3 * N_STARS):
        kind, n = number % 3, N_POINTS + number
        days = np.sort(random.uniform(0, 200, n))
        angle = 2 * np.pi * days / (DAYS[kind] * random.uniform(0.9, 1.1))
        shape = (0.5 * (np.cos(angle) > 0.8), np.sin(angle), 0.3 * np.sin(angle) + 0.1 * np.cos(2 * angle))[kind]
        stars.append((f"star{number:02d}", NAMES[kind], n))
        points.append((2_451_000.5 + number + days, random.uniform(9, 14) + shape + random.normal(0, 0.03, n)))
    ids, labels, lengths = zip(*stars, strict=True)
    days, magnitudes = (np.concatenate(parts) for parts in zip(*points, strict=True))
    return {
        "id": np.array(ids),
        "label": np.array(labels),
        "length": np.array(lengths),
        "time": days,
        "mag": magnitudes.astype(np.float32),
        "err": np.full(len(days), 0.03, dtype=np.float32),
    }


def write(root: Path, **changes: np.ndarray) -> Path:
    (root / "asas").mkdir(parents=True)
    np.savez(root / "asas" / "asas.npz", **columns() | changes)
    return root


@pytest.fixture(scope="session")
def root(tmp_path_factory) -> Path:
    return write(tmp_path_factory.mktemp("stars"))


@pytest.fixture
def data(root, monkeypatch) -> Path:
    monkeypatch.setenv("ROMAE_DATA", str(root))
    return root / "asas"


@pytest.fixture
def few_trees(monkeypatch) -> None:
    """A tenth of the trees that stand beside the model."""

    def fewer(name: str, **settings: int):
        return lambda seed: CLASSIFIERS[name](seed).set_params(**settings)

    smaller = {
        "gradient boosting": fewer("gradient boosting", histgradientboostingclassifier__max_iter=20),
        "random forest": fewer("random forest", n_estimators=50, n_jobs=1),
    }
    assert smaller.keys() == CLASSIFIERS.keys()
    monkeypatch.setattr("romae.experiments.recipes.asas.CLASSIFIERS", smaller)


def small(recipe: Recipe, *settings: str) -> Recipe:
    """The recipe with the settings of its quick run, for the classes of these stars."""
    stages = enumerate(recipe.stages)
    classes = [f"stages.{i}.n_classes={len(NAMES)}" for i, stage in stages if stage.kind == "classify"]
    quick = (*recipe.quick, "data.rare=1", "data.most_per_class=12", "model.encoder.depth=1", *classes, *settings)
    return replace(recipe, quick=quick)


# Runs


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_a_quick_run_of_each_row_gives_a_result_with_figures(recipe, data, few_trees, tmp_path, without_shape_checks):
    learns = recipe.name == "asas/hidden-points"
    settings = () if learns else ("train.epochs=1",)
    settings += ("data.n_processes=2",) if recipe.metric == "rmse" else ()
    result = run(small(recipe, *settings), 0, quick=True, device="cpu").result
    stored = read_result(write_result(result, tmp_path))
    assert recipe.metric in result.metrics and result.baselines and all(recipe.data.draw([stored.figure]).values())
    assert "best" in dict(recipe.target.of_baselines) if recipe.target else True
    if recipe.metric == "macro_f1":
        assert {"macro_f1_common", "accuracy", "accuracy_common", "accuracy_gradient_boosting"} <= set(result.metrics)
        assert ("unlabelled" in result.n_samples) == (recipe.stages[0].kind == "pretrain")
        assert ("adjustment" in result.metrics) == (recipe.data.validation > 0)
        assert result.baselines["random forest"] > result.baselines["constant"]
    elif recipe.metric == "r2":
        assert ("Lomb-Scargle" in result.baselines) == (recipe.data.share < 1)
        assert result.baselines.get("Lomb-Scargle", 1.0) > 0.9  # half of the points have the same periods here
    else:
        assert result.baselines["harmonics"] < 0.5 * result.baselines["mean"]
        assert result.metrics["rmse_process_of_some"] < 0.5 * result.metrics["rmse_mean_of_some"]
    if learns:
        assert result.metrics["rmse"] < result.baselines["mean"]


@pytest.mark.slow
def test_pretraining_is_the_same_in_all_rows_of_a_fold_and_may_be_copied(
    data, few_trees, tmp_path, without_shape_checks
):
    first, other = (small(find(f"asas/{name}"), "train.epochs=1") for name in ("classes-20", "classes"))
    whole = run(first, 1, quick=True, device="cpu", out=tmp_path / "first").result
    shutil.copytree(tmp_path / "first" / "0-pretrain", tmp_path / "other" / "0-pretrain")
    again = run(other, 1, quick=True, device="cpu", out=tmp_path / "other", resume=True).result
    assert again.resumed and again.losses[0] == whole.losses[0] and again.n_samples["train"] > whole.n_samples["train"]


# Folds and labels


@pytest.mark.parametrize("source", [Classes(**COARSE), Periods(**COARSE, rare=1), HiddenPoints(**COARSE)])
def test_five_seeds_test_every_star_once_and_learn_from_none_that_they_test(source, data):
    class_of, tested = {star.id: int(star.target) for star in asas.load().samples}, []
    for seed in range(5):
        splits = source.splits(seed)
        learned = {star.id for part in (splits.train, splits.unlabelled or ()) for star in part}
        here = [star.id for star in splits.test]
        assert not learned & set(here) and len(learned) + len(here) == 3 * N_STARS
        assert np.ptp(np.bincount([class_of[name] for name in here], minlength=3)) <= 1
        tested += here
    assert sorted(tested) == sorted(class_of)


def test_labels_are_as_many_as_they_say_and_pretraining_sees_all_training_stars(data):
    whole = Classes(**COARSE).splits(2)
    several = {n: Classes(**COARSE, labels_per_class=n).splits(2) for n in (3, 6)}
    for n, splits in several.items():
        assert np.bincount(baselines.classes(splits.train)).tolist() == [n] * 3
        assert [star.id for star in splits.unlabelled] == [star.id for star in whole.unlabelled]
        assert splits.scaling == whole.scaling
    few, more = ({star.id for star in splits.train} for splits in several.values())
    other = {star.id for star in Classes(**COARSE, labels_per_class=3).splits(3).train}
    assert few < more < {star.id for star in whole.train} and few != other
    assert Classes(**COARSE, uses_unlabelled=False).splits(2).unlabelled is None


def test_stars_for_validation_are_of_every_class_and_none_is_trained_on(data):
    splits = Classes(**COARSE, validation=0.3).splits(0)
    held, learned = ({star.id for star in part} for part in (splits.validation, splits.train))
    assert not held & learned and held | learned == {star.id for star in splits.unlabelled}
    assert len(np.unique(baselines.classes(splits.validation))) == 3


def test_settings_without_sense_are_refused(data):
    with refused(ValueError, "labels_per_class", "at least 1"):
        Classes(labels_per_class=0).splits(0)
    with refused(ValueError, "validation=0"):
        Classes(labels_per_class=3, validation=0.1).splits(0)
    with refused(ValueError, "data.share", "at most 1"):
        Classes(share=1.5).splits(0)
    with refused(ValueError, "most_per_class", "at least 5"):
        Classes(most_per_class=3).splits(0)
    with refused(ValueError, "50 stars", "data.rare"):
        Periods(**COARSE).splits(0)


# What is hidden


def test_what_is_hidden_of_a_star_follows_from_its_id():
    stars = [asas.Sample(np.zeros((40, 2)), np.arange(40.0)[:, None], id=f"s{i}") for i in range(4)]
    first, again = asas.shown(stars, 0.7), asas.shown(stars[::-1], 0.7)[::-1]
    masks = [star.hidden for star in first]
    assert [int(mask.sum()) for mask in masks] == [12] * 4 and not torch.equal(masks[0], masks[1])
    assert all(torch.equal(mask, other.hidden) for mask, other in zip(masks, again, strict=True))
    assert asas.shown(stars, 1.0) == stars


@pytest.mark.parametrize("features", ["none", "summary"])
def test_hidden_points_have_no_part_in_periods_features_or_answers(features, data, tmp_path, monkeypatch):
    source = HiddenPoints(**COARSE, features=features)
    stars = source.stars()
    is_hidden = np.concatenate([star.hidden.numpy() for star in stars.samples])
    changed = np.where(is_hidden, np.random.default_rng(1).uniform(5, 20, len(is_hidden)), columns()["mag"])
    monkeypatch.setenv("ROMAE_DATA", str(write(tmp_path, mag=changed.astype(np.float32))))
    others = source.stars()
    assert others is not stars and others.features.equals(stars.features) and others.periods.equals(stars.periods)
    assert stars.periods.notna().mean() > 0.9
    test, other_test = (source.inputs(part, part.samples, asas.SCHEMA) for part in (stars, others))
    for star, other in zip(test, other_test, strict=True):
        assert torch.equal(star.positions, other.positions) and torch.equal(star.hidden, other.hidden)
        assert torch.equal(star.values[~star.hidden], other.values[~star.hidden])
        assert not torch.equal(star.values, other.values)
        for method in METHODS.values():
            assert_array_equal(_answer(method, star, stars), _answer(method, other, others))


def test_training_stars_show_all_points_under_the_phase_that_a_share_of_them_gives(data):
    source = HiddenPoints(**COARSE)
    splits, stars = source.splits(0), source.stars()
    star = splits.train[0]
    assert star.hidden is None and splits.test[0].hidden is not None
    rates = (star.positions[1:, 1] - star.positions[0, 1]) / (star.positions[1:, 0] - star.positions[0, 0])
    assert_allclose(rates.numpy(), 1 / stars.periods[star.id], rtol=1e-6)
    assert splits.schema.phase.period == "auto"  # so that a saved model finds phases by itself
    found = asas.peaks([one for one in stars.samples if one.id == star.id], shortest=1.0)["period"]
    assert found.tolist() == [stars.periods[star.id]]


def test_the_log_period_is_that_of_all_points_and_half_of_them_are_seen(data):
    splits = Periods(**COARSE, rare=1).splits(0)
    lengths = {star.id: len(star) for star in asas.load().samples}
    kinds = {star.id: DAYS[int(star.target)] for star in asas.load().samples}
    for star in (*splits.train, *splits.test):
        is_point = star.positions[:, -1] == 0
        assert abs(2 * int(is_point.sum()) - lengths[star.id]) <= 1 and star.hidden is None
        assert abs(float(star.values[is_point, 0].mean())) < 1e-5
        assert float(star.target) == pytest.approx(np.log10(kinds[star.id]), abs=0.06)
    unaided = find("asas/log-period-unaided").data
    star = replace(unaided, **COARSE, rare=1).splits(0).test[0]
    assert len(star) == lengths[star.id] and star.positions.shape[1] == 1


def test_peaks_that_were_written_are_used_for_these_points_alone(data, tmp_path):
    stars = asas.load().samples[:3]
    shown = asas.shown(stars, 0.7)
    found = asas.peaks(shown, folder=tmp_path)
    path = asas.save_peaks(stars, tmp_path, [0.7])
    kept = dict(np.load(path))
    np.savez(path, **kept | {"peaks": kept["peaks"] + 1})
    assert_allclose(asas.peaks(shown, folder=tmp_path), found + 1)
    assert_allclose(asas.peaks(shown[:1], folder=tmp_path), found[:1] + 1)
    others = asas.peaks(stars, folder=tmp_path)
    assert not np.isclose(others["power"], found["power"] + 1).any()
    coarse = asas.peaks(shown, shortest=1.0, folder=tmp_path)
    assert not np.isclose(coarse["power"], found["power"] + 1).any()
    path.write_bytes(b"PK no archive")
    with refused(ValueError, "cannot read", "peaks.npz", "save_peaks"):
        asas.peaks(shown, folder=tmp_path)


def test_the_command_writes_peaks(data, tmp_path, capsys):
    # More stars than these would start processes.
    asas.main(["--share", "0.5", "--out", str(tmp_path)])
    assert "peaks.npz" in capsys.readouterr().out
    with np.load(tmp_path / "peaks.npz") as arrays:
        assert len(arrays["id"]) == 3 * N_STARS and arrays["points"].shape == (3, 3 * N_STARS)


# Models


def test_the_model_follows_the_settings_of_the_data():
    row = find("asas/classes-20")
    assert row == row.overridden()
    assert (row.model.position_dims, row.model.kinds, row.model.static_from) == (3, 1 + len(OF_PERIOD), 1)
    plain = row.overridden("data.phase=false", "data.features=none").model
    assert (plain.position_dims, plain.kinds, plain.static_from, plain.pool) == (1, None, None, "tokens")
    whole = row.overridden("data.features=summary").model
    assert whole.kinds == 1 + len(FACTS["summary"]) and whole.errors == 1 and whole.encoder == row.model.encoder
    fine = find("asas/hidden-points").overridden("data.ladder.shortest=0.2").model
    assert fine.ladders[0].shortest == 0.2 and fine.ladders[1].wavelengths == (1.0, 0.5, 1 / 3, 0.25)
    assert find("asas/hidden-points-time").model.position_dims == 1


def test_facts_are_tokens_that_say_what_the_periodogram_says(data):
    source = Classes(**COARSE, features="period")
    star, stars = source.splits(0).test[0], source.stars()
    is_fact = star.positions[:, -1] > 0
    assert star.positions[is_fact, -1].tolist() == [1, 2, 3]
    assert_allclose(star.values[is_fact, 0], stars.features.loc[star.id, list(OF_PERIOD)].to_numpy(), rtol=1e-5)
    assert star.values[is_fact, 1].tolist() == [0, 0, 0]
    assert 10 ** float(star.values[is_fact, 0][0]) == pytest.approx(stars.periods[star.id], rel=1e-5)


# Scores and baselines


def test_scores_of_common_classes_leave_out_the_stars_of_rare_ones():
    truth, told = np.array([0, 0, 1, 1, 2]), np.array([0, 0, 1, 2, 0])
    scores = _scores(truth, told, np.array([True, True, False]))
    assert scores["accuracy"] == pytest.approx(3 / 5) and scores["accuracy_common"] == pytest.approx(3 / 4)
    assert scores["macro_f1_common"] == pytest.approx((1 + 2 / 3) / 2)
    assert scores["macro_f1"] == pytest.approx((4 / 5 + 2 / 3 + 0) / 3)
    assert set(_scores(truth, told, np.zeros(3, dtype=bool))) == {"macro_f1", "accuracy"}


# What eclipses twice in a period is found at half of it.
@pytest.mark.parametrize(("method", "factor"), [(harmonics, 1.0), (harmonics, 0.5), (periodic_process, 0.5)])
def test_with_its_period_a_periodic_series_is_known_everywhere(method, factor):
    random = np.random.default_rng(0)
    times, queries = np.sort(random.uniform(0, 300, 50)), np.array([37.1, 150.0, 299.0])

    def light(days: np.ndarray) -> np.ndarray:
        angle = 2 * np.pi * days / 2.3
        return 11 + 0.2 * np.cos(angle) + 0.4 * np.cos(2 * angle)

    errors = np.full(50, 0.01)
    seen = Seen(times, light(times) + random.normal(0, 0.01, 50), errors)
    assert_allclose(method(seen, 2.3 * factor, queries), light(queries), atol=0.03)


def test_without_a_period_sinusoids_are_the_mean():
    random = np.random.default_rng(0)
    seen = Seen(np.arange(30.0), random.normal(10, 1, 30), np.full(30, 0.1))
    queries = np.array([3.5, 40.0])
    assert_allclose(harmonics(seen, np.nan, queries), seen.values.mean())
    assert np.isfinite(periodic_process(seen, np.nan, queries)).all()
    few = Seen(*(column[:5] for column in seen))  # too few for a sinusoid
    assert_allclose(harmonics(few, 2.0, queries), few.values.mean())
    wide = harmonics(seen, 2.7, np.linspace(0, 100, 50))
    assert seen.values.min() <= wide.min() and wide.max() <= seen.values.max()

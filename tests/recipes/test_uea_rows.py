"""The UEA recipes keep to their protocol, and run on small files of the archive's format."""

import json
import sys

import numpy as np
import pytest
from quick import check_quick

from messages import refused
from romae.experiments import baselines
from romae.experiments.datasets.uea import SIZES, load
from romae.experiments.minirocket import MiniRocketClassifier
from romae.experiments.recipe import discover, find
from romae.experiments.recipes.uea import SETS, Uea, _resampled
from romae.model.config import ModelConfig, Size
from romae.model.tasks import Classification

LENGTH = 20
RECIPES = [name for name in discover() if name.startswith("uea/")]


def write_half(folder, name: str, half: str, n_per_class: int, lengths: tuple[int, ...] = (LENGTH,)) -> None:
    """Waves whose frequency is the class, with the channels and classes of a set."""
    _, _, n_channels, _, _, n_classes = SIZES[name]
    random = np.random.default_rng(len(half))
    lines = [f"@dimensions {n_channels}", "@classLabel true " + " ".join(map(str, range(n_classes))), "@data"]
    for number in range(n_per_class * n_classes):
        label, times = number % n_classes, np.arange(lengths[number % len(lengths)])
        wave = np.cos((label + 0.5) * np.pi * times / LENGTH) + 0.05 * random.normal(size=(n_channels, len(times)))
        lines.append(":".join([*(",".join(f"{x:.4f}" for x in channel) for channel in wave), str(label)]))
    folder.mkdir(exist_ok=True)
    (folder / f"{name}_{half.upper()}.ts").write_text("\n".join(lines) + "\n")


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """A data root with a folder for the archive, in which there is nothing yet."""
    monkeypatch.setenv("ROMAE_DATA", str(tmp_path))
    (tmp_path / "uea").mkdir()
    return tmp_path / "uea"


def written(archive, name: str, n_per_class: int = 6, lengths: tuple[int, ...] = (LENGTH,)) -> None:
    write_half(archive, name, "train", n_per_class, lengths)
    if name != "Heartbeat":
        write_half(archive, name, "test", n_per_class, lengths)


# A scratch row is the second stage of a tuned row. Quick runs replace the rates and epochs in which the paper's rows
# differ, and the tuned ones differ in their sets: of each kind one or two learn, the others run for one epoch.
LEARN = ("lsst-paper", "lsst-tuned", "character-trajectories-tuned", "motions-scratch")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in RECIPES if "scratch" not in name or "motions" in name])
def test_a_quick_run_on_small_files_beats_the_majority(archive, tmp_path, name, without_shape_checks):
    recipe = find(name)
    written(archive, recipe.data.set, 24 if recipe.data.set == "Heartbeat" else 6)
    result = check_quick(recipe, tmp_path / "results", learns=name.endswith(LEARN))
    assert set(result.baselines) == {"constant", "1-NN", "MiniRocket"}
    counts = np.array(result.figure["confusion"])
    assert counts.diagonal().sum() / counts.sum() == pytest.approx(result.metrics["accuracy"])


def test_thirty_percent_of_the_steps_are_dropped_and_the_others_stay_where_they_are(archive):
    written(archive, "Epilepsy", lengths=(20, 13, 31))
    source = Uea(set="Epilepsy")
    splits = source.splits(3)
    for half, thinned in (("train", splits.train), ("test", splits.test)):
        for whole, sample in zip(load("Epilepsy", half).samples, thinned, strict=True):
            assert len(whole) - len(sample) == round(0.3 * len(whole))
            kept = sample.positions[:, 0].long()
            assert bool((kept.diff() > 0).all()) and bool((whole.values[kept] == sample.values).all())
    places = [[sample.positions.flatten().tolist() for sample in source.splits(seed).test] for seed in (3, 3, 4)]
    assert places[0] == places[1] and places[0] != places[2]
    assert len({tuple(one) for one in places[0][::3]}) > 1, "every sample drops steps of its own"


def test_a_share_of_dropped_steps_that_cannot_be_is_refused(archive):
    with refused(ValueError, "data.drop", "time steps"):
        find("uea/lsst-tuned").overridden("data.drop=-3").data.splits(0)


def test_settings_can_be_chosen_without_a_look_at_the_test_half(archive):
    """There is no TEST file here."""
    write_half(archive, "BasicMotions", "train", 20)
    splits = Uea(set="BasicMotions", split="train", validation=0.2).splits(0)
    parts = [splits.train, splits.validation, splits.test]
    assert [len(part) for part in parts] == [48, 12, 20]
    assert len({sample.id for part in parts for sample in part}) == 80, "no case is in two parts"
    assert [np.bincount(baselines.classes(part)).tolist() for part in parts] == [[12] * 4, [3] * 4, [5] * 4]


def test_baselines_learn_from_the_validation_cases_too(archive, monkeypatch):
    written(archive, "BasicMotions")
    source, seen = Uea(set="BasicMotions", validation=0.2, n_features=84), []

    def nearest_neighbour(known, test):
        seen.append(len(known))
        return np.zeros(len(test), dtype=int)

    monkeypatch.setattr(baselines, "nearest_neighbour", nearest_neighbour)
    splits = source.splits(0)
    task = Classification(ModelConfig(channels=6, position_dims=1, encoder=Size(width=8, heads=2, depth=1)), 4)
    measured = source.measure(task, splits)
    assert seen == [24] and len(splits.train) == 20 and len(splits.validation) == 4
    assert measured.baselines["1-NN"] == measured.baselines["constant"] == 0.25


@pytest.mark.parametrize(
    ("slug", "lr", "batch_size", "epochs", "clip", "dropout", "confidence", "published"),
    [
        ("basic-motions", 1e-2, 8, 50, 1, 0, 1, 0.9917),
        ("character-trajectories", 8e-3, 16, 100, 1, 0, 0.9, 0.9882),
        ("epilepsy", 2e-3, 16, 150, 1, 0.2, 0.8, 0.9517),
        ("heartbeat", 2e-2, 32, 30, 2, 0, 1, None),
        ("lsst", 3e-2, 16, 15, 10, 0.2, 0.9, 0.6225),
    ],
)
def test_the_paper_rows_have_the_papers_settings(slug, lr, batch_size, epochs, clip, dropout, confidence, published):
    recipe = find(f"uea/{slug}-paper")
    pretrain, classify = recipe.stages
    train = pretrain.train
    assert (train.epochs, train.lr, train.batch_size, train.warmup, train.clip) == (400, 3e-4, 64, 0.1, 1)
    assert (train.betas, train.weight_decay, pretrain.masking.ratio) == ((0.9, 0.95), 0.05, 0.75)
    train = classify.train
    assert (train.optimiser, train.momentum, train.weight_decay, train.warmup) == ("sgd", 0.9, 0, 0.1)
    assert (train.lr, train.batch_size, train.epochs, train.clip) == (lr, batch_size, epochs, clip)
    assert classify.dropout == classify.stochastic_depth == dropout and classify.confidence == confidence
    assert recipe.published == published and recipe.ladder == "paper" and recipe.model.queries == "joint"
    assert {stage.weights for stage in recipe.stages} == {"last"} and recipe.data.validation == 0


def test_a_scratch_row_is_the_tuned_row_without_pre_training():
    for slug in SETS:
        tuned, scratch = find(f"uea/{slug}-tuned"), find(f"uea/{slug}-scratch")
        assert scratch.stages == tuned.stages[1:] and (scratch.data, scratch.model) == (tuned.data, tuned.model)


def test_without_files_a_run_says_where_they_belong_and_list_and_show_work(archive, tmp_path, monkeypatch, capsys):
    from romae.cli.main import main

    def call(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["romae", *arguments])
        try:
            main()
        except SystemExit as end:
            return int(end.code or 0)
        return 0

    results = str(tmp_path / "results")
    assert call("run", "uea/lsst-tuned", "--results", results) == 2
    error = capsys.readouterr().err
    assert str(archive / "LSST.zip") in error and error.count("\n") == 1 and not (tmp_path / "results").exists()
    assert call("list", "--results", results, "--json") == 0
    assert {row["recipe"] for row in json.loads(capsys.readouterr().out)} >= set(RECIPES)
    assert call("show", "uea/lsst-tuned") == 0 and "data.set = " in capsys.readouterr().out


def test_minirocket_gives_its_known_accuracy_on_the_real_files(real_data, monkeypatch):
    monkeypatch.setenv("ROMAE_DATA", str(real_data))
    splits, grid = Uea(set="Epilepsy").splits(0), np.arange(206.0)
    model = MiniRocketClassifier(0).fit(_resampled(splits.train, grid), baselines.classes(splits.train))
    predicted = model.predict(_resampled(splits.test, grid))
    assert predicted.tolist() == baselines.classes(splits.test).tolist()

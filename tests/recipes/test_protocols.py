"""The recipes keep to their protocols: what training shows is what the test asks, and floors are floors."""

import numpy as np
import pytest
import torch

from romae.experiments import baselines, metrics
from romae.experiments.datasets import pendulum, spirals, synthetic
from romae.experiments.recipe import discover, find
from romae.model.config import SIZES
from romae.tokens.masking import SampleKeys
from romae.tokens.tokens import collate
from romae.training.stages import Encoder


@pytest.mark.parametrize("grid", ["romae", "hetvae"])
@pytest.mark.parametrize("row", ["paper", "tuned"])
def test_training_on_synthetic_series_shows_as_many_points_as_the_test(grid, row):
    recipe = find(f"synthetic/{grid}-{row}").overridden(*find(f"synthetic/{grid}-{row}").quick, "data.n_train=1000")
    told = synthetic.GRIDS[grid]
    samples = recipe.data.splits(0).train
    task = recipe.stages[0].task(Encoder(recipe.model)).train()
    batch = task.prepare(collate(samples), SampleKeys(0, 0, torch.arange(len(samples))))
    n_visible = batch.tokens.layout.lengths
    counts = torch.bincount(n_visible)[told.fewest :]
    assert int(n_visible.min()) == told.fewest and int(n_visible.max()) == told.most
    assert counts.sum() == 1000 and bool((counts > 0.7 * 1000 / len(counts)).all())  # each as likely as the next


@pytest.mark.parametrize("row", ["A", "B"])
def test_training_on_spirals_shows_as_many_points_as_the_test(row):
    recipe = find(f"spirals/{row.lower()}-paper")
    splits = recipe.overridden("data.n_train=8", "data.n_test=8").data.splits(0)
    task = recipe.overridden(*recipe.quick).stages[0].task(Encoder(recipe.overridden(*recipe.quick).model)).train()
    seen = task.prepare(collate(splits.train), None).tokens.layout.lengths
    assert (
        seen.tolist() == [int((~sample.hidden).sum()) for sample in splits.test] == [spirals.ROWS[row].n_observed] * 8
    )


@pytest.mark.parametrize("row", ["A", "B"])
def test_the_floor_of_spirals_is_what_the_exact_posterior_leaves(row):
    """An independent check: fit start and growth of each spiral, with what is known of them beforehand."""
    told, counts = spirals.ROWS[row], {"train": 20, "validation": 0, "test": 200}
    test = spirals.generate(seed=3, row=told, counts=counts)["test"]
    clean, lowest, extent, _ = spirals._clean(3, counts)
    predicted = []
    for sample, inwards in zip(test, clean["test"][1], strict=True):
        hidden, centre = sample.hidden.numpy(), np.array([-5.0 if inwards else 5.0, 0.0])
        seen = sample.values.double().numpy()[~hidden] * extent + lowest - centre
        turn = np.linspace(0, 6 * np.pi, 150)[:75]
        angle = np.linspace(1, 6 * np.pi + 1, 150)[:75] if inwards else turn
        growth = 50 / angle if inwards else angle
        ray = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        design = np.stack([ray, growth[:, None] * ray], axis=-1)
        rows, wanted = design[~hidden].reshape(-1, 2) / told.noise, seen.ravel() / told.noise
        rows, wanted = np.concatenate([rows, np.eye(2) / 0.02]), np.concatenate([wanted, [0, 0.3 / 0.02]])
        numbers = np.linalg.lstsq(rows, wanted, rcond=None)[0]
        predicted.append((design[hidden] @ numbers + centre - lowest) / extent)
    found = metrics.distance_rmse(predicted, [baselines.truth(sample) for sample in test])
    assert found == pytest.approx(spirals.floor("test", seed=3, row=told, counts=counts), rel=0.1)


def test_clarity_says_how_much_of_a_frame_is_image():
    """A corner of the image is empty, so all that is seen in it is noise, of mean 1/2."""
    counts = {"train": 1, "test": 60}
    corner = np.stack([s.values.numpy()[:, 0] for s in pendulum.generate(seed=5, counts=counts)["test"]])
    clarity = pendulum.clarity_of("test", seed=5, counts=counts)
    assert clarity.shape == corner.shape
    assert (corner[clarity == 1] == 0).all()
    assert (corner <= 1 - clarity + 1e-6).all()
    assert corner[clarity == 0].mean() == pytest.approx(0.5, abs=0.05)


STAYS = {"epochs": 200, "batch_size": 16, "lr": 1e-4, "weight_decay": 0.01}


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("positions/tiny-cls", {"epochs": 10, "batch_size": 64, "lr": 5e-4, "warmup": 625, "clip": None}),
        ("positions/range-1000", {"optimiser": "sgd", "momentum": 0.9, "lr": 5e-7, "epochs": 10, "warmup": 625}),
        ("pendulum/paper", {"epochs": 50, "batch_size": 16, "lr": 3e-4, "warmup": 1000, "clip": 1.0}),
        ("spirals/b-paper", {"epochs": 500, "batch_size": 32, "lr": 3e-4, "warmup": 2000, "clip": 1.0}),
        ("synthetic/hetvae-paper", {"epochs": 50, "batch_size": 8, "lr": 1e-3, "warmup": 200, "clip": 1.0}),
        ("frequencies/paper", {"epochs": 200}),
        ("physionet/rows-paper", {**STAYS, "warmup": 100, "clip": 1.0}),
        ("physionet/tokens-paper", {**STAYS, "warmup": 100, "clip": 1.0}),
    ],
)
def test_the_paper_rows_have_the_papers_settings(name, settings):
    recipe = find(name)
    train = recipe.stages[0].train
    assert {key: getattr(train, key) for key in settings} == settings
    assert train.betas == (0.9, 0.999) and train.ema is None and recipe.ladder == "paper"
    assert recipe.model.queries == "joint" and recipe.model.ladders is None and recipe.model.keep == 0.75
    assert recipe.stages[0].weights == "last"


@pytest.mark.parametrize("name", ["physionet/rows-paper", "physionet/tokens-paper", "lightcurves/plasticc-paper"])
def test_the_papers_rows_on_irregular_data_are_tiny_with_cls(name):
    model = find(name).model
    assert model.encoder == SIZES["tiny"] and model.cls and model.position_dims == 2


def test_every_recipe_says_how_it_is_run_and_what_it_promises():
    for name, recipe in discover().items():
        assert "romae run" in recipe.about and "Expected" in recipe.about, name
        assert "CPU" in recipe.about and "H200" in recipe.about, name
        assert name.split("/")[0] in recipe.about and recipe.quick, name

"""Tiny ImageNet's recipes, on a small folder of the public layout that the tests draw."""

from pathlib import Path

import numpy as np
import pytest
import torch
from quick import check_quick
from torch.testing import assert_close

from messages import refused
from romae.experiments.datasets import tiny_imagenet
from romae.experiments.datasets.files import MissingFile
from romae.experiments.recipe import find
from romae.experiments.recipes.tiny_imagenet import RECIPES, TinyImageNet, _from_text
from romae.model.autoencoder import Decoder, Encoder
from romae.tokens.tokens import Tokens

Image = pytest.importorskip("PIL.Image", reason="needs pillow: pip install 'romae[images]'")

WNIDS = [f"n{i:02d}" for i in range(4)]
COLOURS = np.array([(200, 60, 40), (50, 180, 70), (60, 70, 190), (170, 170, 60)])


def draw(path: Path, kind: int, random: np.random.Generator) -> None:
    """A soft wave in the colour of the class, which lies in another direction for every class."""
    y, x = np.mgrid[:64, :64] / 64 + random.uniform(0, 1, (2, 1, 1))
    angle = np.pi * kind / len(WNIDS)
    wave = np.sin(2 * np.pi * 2 * (np.cos(angle) * x + np.sin(angle) * y))[..., None]
    image = COLOURS[kind] * (0.7 + 0.3 * wave) + random.normal(0, 6, (64, 64, 3))
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image.clip(0, 255).astype(np.uint8)).save(path, "JPEG")


@pytest.fixture(scope="session")
def root(tmp_path_factory) -> Path:
    """The folder that ROMAE_DATA names: sixteen images of four classes to train on, eight of each to test."""
    root, random = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    folder = root / "tiny_imagenet"
    for kind, wnid in enumerate(WNIDS):
        for i in range(16):
            draw(folder / "train" / wnid / "images" / f"{wnid}_{i}.JPEG", kind, random)
    rows = []
    for i in range(32):
        draw(folder / "val" / "images" / f"val_{i}.JPEG", i % 4, random)
        rows.append(f"val_{i}.JPEG\t{WNIDS[i % 4]}\t0\t0\t62\t62\n")
    (folder / "val" / "val_annotations.txt").write_text("".join(rows))
    (folder / "wnids.txt").write_text("\n".join(WNIDS) + "\n")
    (folder / "words.txt").write_text("".join(f"{wnid}\tthing {wnid}\n" for wnid in WNIDS))
    return root


@pytest.fixture
def data(root, monkeypatch) -> Path:
    monkeypatch.setenv("ROMAE_DATA", str(root))
    return root / "tiny_imagenet"


# With CLS, 224 pixels or without pre-training the model and the data are those of the rows that learn.
LEARN = ("b-no-cls", "b-absolute", "pretrain")


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_a_quick_run_learns(recipe, data, tmp_path, without_shape_checks):
    learns = recipe.name.endswith(LEARN)
    result = check_quick(recipe, tmp_path, learns=learns)
    if recipe.metric == "macro_f1":
        assert not learns or min(result.metrics["macro_f1"], result.metrics["accuracy"]) > 0.5
        assert result.baselines["constant"] < 0.15 < result.baselines["logistic regression"]


@pytest.mark.parametrize("name", [recipe.name for recipe in RECIPES if recipe.metric == "macro_f1"])
def test_the_rows_have_the_papers_settings(name):
    recipe = find(name)
    *first, classify = recipe.stages
    is_ours = name.endswith("tuned")
    assert recipe.seeds == (0,) and recipe.better == "higher" and recipe.ladder == "paper"
    assert (recipe.model.encoder.width, recipe.model.encoder.heads, recipe.model.encoder.depth) == (432, 6, 12)
    assert recipe.model.keep == 0.75 and (recipe.model.queries == "joint") != is_ours
    assert recipe.model.cls == name.endswith(("b-cls", "absolute"))
    assert recipe.model.channels == 3 * recipe.data.patch**2
    assert (classify.n_classes, classify.confidence, classify.train.batch_size) == (200, 0.9, 1024)
    assert (classify.augment.n, classify.augment.magnitude) == (2, 9)
    assert classify.augment.size == (recipe.data.size,) * 2 and classify.augment.patch == (recipe.data.patch,) * 2
    assert classify.train.precision == "bf16" and classify.train.betas == (0.9, 0.999)
    if not is_ours:
        assert (classify.train.epochs, classify.train.lr, classify.train.warmup) == (15, 1e-3, 500)
        assert classify.weights == "last" and classify.train.ema is None
    for stage in first:
        assert stage.masking.ratio == 0.75 and stage.normalise and stage.train.betas == (0.9, 0.95)
        assert is_ours or (stage.train.epochs, stage.train.lr, stage.train.warmup) == (200, 2e-4, 2000)
    for stage in recipe.stages:
        assert (stage.train.batch_size, stage.train.weight_decay, stage.train.clip) == (1024, 0.05, 1.0)
    assert len(first) == (0 if name.endswith("scratch") else 1)


def test_rows_have_as_many_tokens_as_the_protocol_says(data):
    for name, n_tokens in (("b-no-cls", 64), ("a-no-cls", 196)):
        splits = find(f"tiny_imagenet/{name}").data.splits(0)
        assert len(splits.train[0]) == len(splits.test[0]) == n_tokens
        assert len(splits.train) == 64 and len(splits.test) == 32 and splits.validation is None


def test_validation_is_carved_from_the_training_images_and_from_every_class(data):
    whole, parted = TinyImageNet().splits(0), TinyImageNet(validation_every=4).splits(0)
    train, validation = set(parted.train.ids), set(parted.validation.ids)
    assert not train & validation and train | validation == set(whole.train.ids)
    assert parted.test.ids == whole.test.ids and all(id.startswith("val") for id in parted.test.ids)
    assert torch.bincount(parted.validation.targets).tolist() == [4, 4, 4, 4]
    again = TinyImageNet(validation_every=4).splits(7)
    assert again.validation.ids == parted.validation.ids  # whatever the seed


def test_absolute_positions_tell_rows_from_columns_in_encoder_and_decoder():
    """Two-dimensional, at each token's own place: tokens that change rows or columns change what comes out."""
    quick = find("tiny_imagenet/b-absolute").overridden(*find("tiny_imagenet/b-absolute").quick)
    torch.manual_seed(0)
    encoder, decoder = Encoder(quick.model).eval(), Decoder(quick.model).eval()
    values = torch.randn(6, 192)
    places = torch.tensor([[0.0, 0], [0, 1], [1, 0], [2, 3], [3, 2], [1, 1]])
    moves = [torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])]
    with torch.no_grad():
        tokens = Tokens.pack([values], [places])
        encoded = encoder(tokens)
        outputs = [encoder(Tokens.pack([values], [places + move])).values for move in moves]
        layout = tokens.layout
        guesses = [decoder(encoded, tokens.positions + move, layout) for move in (torch.zeros(1, 2), *moves)]
    for other in outputs:
        assert float((other - encoded.values).abs().max()) > 1e-3
    assert float((outputs[0] - outputs[1]).abs().max()) > 1e-3
    assert min(float((a - b).abs().max()) for a, b in zip(guesses, guesses[1:], strict=False)) > 1e-3


def test_packed_parts_serve_the_recipes_too(data, tmp_path, monkeypatch):
    for split in ("train", "val"):
        tiny_imagenet.pack(split, tmp_path / "tiny_imagenet", folder=data, part_bytes=20_000)
    expected = TinyImageNet().splits(0)
    monkeypatch.setenv("ROMAE_DATA", str(tmp_path))
    found = TinyImageNet().splits(0)
    assert torch.equal(found.train.images, expected.train.images) and found.test.ids == expected.test.ids


def test_without_files_a_sentence_says_where_they_belong(tmp_path, monkeypatch):
    monkeypatch.setenv("ROMAE_DATA", str(tmp_path))
    with refused(MissingFile, "cannot find", "wnids.txt", "download http"):
        find("tiny_imagenet/b-no-cls").data.splits(0)


def test_the_picture_shows_visible_patches_as_they_are(data):
    from romae.experiments.recipes.tiny_imagenet import _as_text, _reconstructions

    recipe = find("tiny_imagenet/pretrain").overridden(*find("tiny_imagenet/pretrain").quick)
    task = recipe.stages[0].task(Encoder(recipe.model)).eval()
    test = recipe.data.splits(0).test
    rows = _reconstructions(task, test)
    images, seen, made = rows.reshape(3, 64, 8, 64, 3).transpose(0, 2, 1, 3, 4).astype(int)
    assert np.array_equal(images[0], test.images[0].numpy())
    patches = (seen == images).reshape(8, 8, 8, 8, 8, 3).all((2, 4, 5))
    assert (patches.sum((1, 2)) == 16).all()  # a quarter of 64 is visible
    is_visible = patches.repeat(8, 1).repeat(8, 2)
    assert (made == images)[is_visible].all() and not (made == images)[~is_visible].all()
    assert_close(_from_text(_as_text(rows)).astype(float).mean(), rows.mean(), rtol=0.02, atol=1)

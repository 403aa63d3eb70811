"""Pixels: images that stay bytes give the samples and the batches that images of floats would give."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from messages import refused
from romae.data.images import from_image
from romae.data.loader import Loader
from romae.data.pixels import Pixels
from romae.model.autoencoder import Encoder
from romae.model.config import ModelConfig, Size
from romae.tokens.tokens import collate

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@pytest.fixture
def pixels() -> Pixels:
    """Twelve soft images, as photographs are."""
    noise = torch.rand(12, 3, 5, 5, generator=torch.Generator().manual_seed(0))
    images = torch.nn.functional.interpolate(noise, size=(16, 24), mode="bicubic").clamp(0, 1)
    images = (images * 255).to(torch.uint8).movedim(1, -1).contiguous()
    ids = tuple(f"image {i}" for i in range(12))
    return Pixels(images=images, targets=torch.arange(12) % 5, ids=ids, patch=(8, 8), mean=MEAN, std=STD)


def as_floats(pixels: Pixels, i: int):
    return from_image(
        pixels.images[i], pixels.patch, channels=-1, size=pixels.size, mean=MEAN, std=STD, target=pixels.targets[i]
    )


def test_a_sample_is_that_of_its_image(pixels):
    for i in (0, 5, -1):
        found, expected = pixels[i], as_floats(pixels, i)
        assert_close(found.values, expected.values)
        assert torch.equal(found.positions, expected.positions)
        assert found.target == expected.target and found.id == pixels.ids[i]


@pytest.mark.parametrize("size", [None, (32, 40)])
def test_a_batch_is_what_its_samples_make(pixels, size):
    pixels = replace(pixels, size=size)
    indices = np.array([7, 0, 7, 3])
    found, expected = pixels.batch(indices), collate([pixels[i] for i in indices])
    assert torch.equal(found.tokens.values, expected.tokens.values)
    assert torch.equal(found.tokens.positions, expected.tokens.positions)
    assert torch.equal(found.target, expected.target) and found.ids == expected.ids
    assert torch.equal(found.tokens.layout.offsets, expected.tokens.layout.offsets)
    assert pixels.lengths.tolist() == [len(sample) for sample in pixels]


@pytest.mark.parametrize("size", [(56, 48), (8, 8), (8, 32)])
def test_scaled_images_are_rounded_by_half_a_level_at_most(pixels, size):
    pixels = replace(pixels, size=size)
    for i in range(12):
        difference = (pixels[i].values - as_floats(pixels, i).values).abs()
        assert float(difference.max()) <= 0.501 / 255 / min(STD)


def test_rounding_to_levels_matters_less_to_a_model_than_half_precision_does(pixels):
    """What is lost by keeping scaled images as bytes is harmless: bf16, in which the recipes train, loses more."""
    pixels = replace(pixels, size=(64, 64))
    torch.manual_seed(0)
    model = ModelConfig(channels=192, position_dims=2, encoder=Size(width=48, heads=2, depth=6), cls=False)
    encoder = Encoder(model).eval()
    exact, rounded = collate([as_floats(pixels, i) for i in range(12)]).tokens, pixels.batch(np.arange(12)).tokens
    with torch.no_grad():
        truth, by_rounding = encoder(exact).values, encoder(rounded).values
        with torch.autocast("cpu", torch.bfloat16):
            by_half = encoder(exact).values.float()
    assert not torch.equal(truth, by_rounding)
    assert float((by_rounding - truth).pow(2).mean()) < float((by_half - truth).pow(2).mean())


@pytest.mark.parametrize("size", [None, (32, 40)])
def test_rows_of_all_patches_are_what_a_batch_holds(pixels, size, monkeypatch):
    monkeypatch.setattr("romae.data.pixels.IMAGES_AT_ONCE", 5)
    pixels = replace(pixels, size=size)
    indices = np.array([11, 2, 4])
    rows = pixels.batch(indices, by_row=True).tokens.rows
    patches = pixels.all_patches()
    assert patches.dtype == torch.uint8 and len(patches) == 12 * len(pixels[0])
    assert torch.equal(pixels.values_of(patches[rows.long()]), pixels.batch(indices).tokens.values)


def test_a_loader_gives_the_same_batches_as_for_samples_in_a_list(pixels):
    settings = {"batch_size": 5, "shuffle": True, "seed": 3}
    for one, other in zip(Loader(pixels, **settings).epoch(), Loader(list(pixels), **settings).epoch(), strict=True):
        assert torch.equal(one.tokens.values, other.tokens.values) and one.ids == other.ids


def test_a_part_is_like_the_whole(pixels):
    part = pixels.chosen(np.array([3, 1]))
    assert len(part) == 2 and part[0].id == "image 3" and torch.equal(part[1].values, pixels[1].values)
    assert [sample.id for sample in pixels[10:]] == ["image 10", "image 11"]
    with pytest.raises(IndexError):
        pixels[12]


def test_what_does_not_belong_together_is_refused(pixels):
    with refused(ValueError, "12 images", "12 targets", "2 ids"):
        replace(pixels, ids=("a", "b"))
    with refused(ValueError, "number", "3 channels"):
        replace(pixels, mean=(0.5,))
    with refused(ValueError, "size 16", "patches of 5"):
        replace(pixels, patch=(5, 8))

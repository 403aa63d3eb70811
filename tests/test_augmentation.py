"""RandAugment: every operation is Pillow's, every image has its own, and one seed decides them all."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from messages import refused
from romae.checkpoints import native as checkpoint
from romae.config import from_dict, override, to_dict
from romae.model.config import ModelConfig, Size
from romae.model.tasks import Classification, Regression
from romae.tokens.augmentation import OPERATIONS, STRONGEST, Noise, RandAugment, changed
from romae.tokens.patches import patchify
from romae.tokens.sample import Sample
from romae.tokens.tokens import collate
from romae.training.stages import Classify

Image = pytest.importorskip("PIL.Image", reason="needs pillow: pip install 'romae[images]'")
from PIL import ImageEnhance, ImageOps  # noqa: E402

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
AUGMENT = RandAugment(size=(24, 32), patch=(8, 8), mean=MEAN, std=STD)
SMALL = Size(width=8, heads=2, depth=1)
MODEL = ModelConfig(channels=192, position_dims=2, encoder=SMALL, decoder=SMALL)


def pictures(n: int = 8, height: int = 24, width: int = 32, channels: int = 3) -> torch.Tensor:
    """Noise on slopes, of another contrast in each image; the first has one level, the second two."""
    random = np.random.default_rng(0)
    slope = np.linspace(0, 1, width) * np.linspace(0.2, 1, height)[:, None]
    noise = random.uniform(0, 1, (n, channels, height, width)) * random.uniform(0.1, 1, (n, channels, 1, 1))
    images = (np.clip(0.7 * slope + 0.4 * noise, 0, 1) * random.uniform(120, 255, (n, channels, 1, 1))).astype(np.uint8)
    images[0], images[1] = 77, np.where(images[1] > 90, 200, 30)
    return torch.from_numpy(images)


def values_of(images: torch.Tensor) -> torch.Tensor:
    mean, std = (torch.tensor(x).reshape(-1, 1, 1) for x in (MEAN, STD))
    return patchify((images.float() / 255 - mean) / std, (8, 8), channels=0).flatten(0, 1)


def by_pillow(name: str, image, strength: float):
    """What Pillow makes of an image; `strength` has the sign of the operation's direction."""
    affine = {
        "shear-x": (1, 0.3 * strength, 0, 0, 1, 0),
        "shear-y": (1, 0, 0, 0.3 * strength, 1, 0),
        "translate-x": (1, 0, -int(150 / 331 * image.width * strength), 0, 1, 0),
        "translate-y": (1, 0, 0, 0, 1, -int(150 / 331 * image.height * strength)),
    }
    enhancers = {
        "brightness": ImageEnhance.Brightness,
        "colour": ImageEnhance.Color,
        "contrast": ImageEnhance.Contrast,
        "sharpness": ImageEnhance.Sharpness,
    }
    if name in affine:
        return image.transform(image.size, Image.Transform.AFFINE, affine[name], Image.Resampling.NEAREST)
    if name in enhancers:
        return enhancers[name](image).enhance(1 + 0.9 * strength)
    others = {
        "identity": lambda: image,
        "rotate": lambda: image.rotate(30 * strength, Image.Resampling.NEAREST),
        "posterise": lambda: ImageOps.posterize(image, 8 - round(4 * abs(strength))),
        "solarise": lambda: ImageOps.solarize(image, 255 * (1 - abs(strength))),
        "autocontrast": lambda: ImageOps.autocontrast(image),
        "equalise": lambda: ImageOps.equalize(image),
    }
    return others[name]()


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("magnitude", [9, 24])
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_is_that_of_pillow(name, magnitude, sign, channels):
    images = pictures(channels=channels)
    operation = torch.full((len(images),), OPERATIONS.index(name))
    found = changed(images, operation, torch.full((len(images),), float(sign)), magnitude)
    arrays = images.permute(0, 2, 3, 1).numpy()
    expected = np.stack(
        [
            np.asarray(
                by_pillow(name, Image.fromarray(x.squeeze(-1) if channels == 1 else x), sign * magnitude / STRONGEST)
            )
            for x in arrays
        ]
    ).reshape(arrays.shape)
    differences = np.abs(found.permute(0, 2, 3, 1).numpy().astype(int) - expected)
    is_geometric = name.startswith(("shear", "translate", "rotate"))
    if is_geometric:  # a pixel on the line between two may come from either
        assert (differences > 0).mean() < 0.002
    else:
        assert differences.max() <= 1 and (differences > 0).mean() < 0.05
    assert name == "identity" or channels == 1 or not np.array_equal(expected, arrays)


def test_every_image_goes_through_its_own_operations():
    """What an image becomes does not depend on the others, and follows from the operations that were drawn for it."""
    images = pictures(n=200)
    found = AUGMENT(values_of(images), torch.Generator().manual_seed(5))
    operations, signs = AUGMENT.drawn(200, torch.Generator().manual_seed(5), "cpu")
    for i in range(0, 200, 7):
        one = images[i : i + 1]
        for operation, sign in zip(operations[:, i : i + 1], signs[:, i : i + 1], strict=True):
            one = changed(one, operation, sign, AUGMENT.magnitude)
        assert_close(found.unflatten(0, (200, -1))[i], values_of(one))
    assert len({tuple(pair) for pair in operations.T.tolist()}) > 100


def test_images_that_drew_nothing_but_identity_stay_to_the_last_bit():
    values = torch.randn(300 * 12, 192, generator=torch.Generator().manual_seed(1))  # no whole levels at all
    operations, _ = AUGMENT.drawn(300, torch.Generator().manual_seed(2), "cpu")
    is_same = (operations == 0).all(0)
    found = AUGMENT(values, torch.Generator().manual_seed(2)).unflatten(0, (300, -1))
    assert is_same.any() and torch.equal(found[is_same], values.unflatten(0, (300, -1))[is_same])
    assert not torch.isclose(found[~is_same], values.unflatten(0, (300, -1))[~is_same]).flatten(1).all(1).any()


def test_whole_levels_come_back_as_they_were():
    """At magnitude 0 most operations do nothing, and what is cut into patches and put together again is the same."""
    gentle = replace(AUGMENT, magnitude=0, n=1)
    images = pictures(n=100)
    operations, _ = gentle.drawn(100, torch.Generator().manual_seed(0), "cpu")
    acting = [OPERATIONS.index(name) for name in ("autocontrast", "equalise", "solarise")]
    is_still = ~torch.isin(operations[0], torch.tensor(acting))
    found = gentle(values_of(images), torch.Generator().manual_seed(0)).unflatten(0, (100, -1))
    assert_close(found[is_still], values_of(images).unflatten(0, (100, -1))[is_still])


def test_one_seed_decides_and_another_decides_otherwise():
    values = values_of(pictures())
    one, same, other = (AUGMENT(values, torch.Generator().manual_seed(seed)) for seed in (3, 3, 4))
    assert torch.equal(one, same) and not torch.equal(one, other)


def test_operations_and_directions_are_equally_likely():
    operations, signs = AUGMENT.drawn(20_000, torch.Generator().manual_seed(0), "cpu")
    counts = torch.bincount(operations.flatten(), minlength=len(OPERATIONS))
    expected = operations.numel() / len(OPERATIONS)
    assert len(counts) == 14 and bool(((counts - expected).abs() < 5 * math.sqrt(expected)).all())
    assert set(signs.unique().tolist()) == {-1.0, 1.0} and abs(float(signs.mean())) < 0.03
    assert abs(float(torch.corrcoef(operations.float())[0, 1])) < 0.03  # the second does not hang on the first


def batch_of(images: torch.Tensor):
    positions = torch.cartesian_prod(torch.arange(3.0), torch.arange(4.0))
    values = values_of(images).unflatten(0, (len(images), -1))
    return collate([Sample(one, positions, target=i % 2) for i, one in enumerate(values)])


def test_a_task_changes_the_values_of_a_batch_and_nothing_else():
    batch = batch_of(pictures())
    task = Classification(MODEL, 2, augment=AUGMENT)
    found = task.augmented(batch, torch.Generator().manual_seed(0))
    assert torch.equal(found.tokens.values, AUGMENT(batch.tokens.values, torch.Generator().manual_seed(0)))
    assert found.tokens.positions is batch.tokens.positions and found.tokens.layout is batch.tokens.layout
    assert found.target is batch.target and found.ids == batch.ids
    assert Classification(MODEL, 2).augmented(batch) is batch and Regression(MODEL).augmented(batch) is batch


def test_samples_that_fill_a_batch_do_not_change_the_others():
    images = torch.cat([pictures(), torch.zeros(3, 3, 24, 32, dtype=torch.uint8)])
    full = Classification(MODEL, 2, augment=AUGMENT).augmented(batch_of(images), torch.Generator().manual_seed(0))
    operations, signs = AUGMENT.drawn(11, torch.Generator().manual_seed(0), "cpu")
    expected = pictures()
    for operation, sign in zip(operations[:, :8], signs[:, :8], strict=True):
        expected = changed(expected, operation, sign, AUGMENT.magnitude)
    assert_close(full.tokens.values[: 8 * 12], values_of(expected))


def test_augmentation_is_a_setting_like_any_other(tmp_path):
    stage = Classify(n_classes=2, augment=AUGMENT)
    assert from_dict(Classify, to_dict(stage)) == stage
    assert override(stage, "augment.magnitude=5").augment == replace(AUGMENT, magnitude=5)
    assert override(stage, "augment=none").augment is None
    with refused(ValueError, "unknown key 'augment.strength'"):
        override(stage, "augment.strength=5")
    from romae.checkpoints.native import load

    Classification(MODEL, 2, augment=AUGMENT).save(tmp_path / "model")
    assert load(tmp_path / "model").augment == AUGMENT


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (lambda: replace(AUGMENT, n=0), ["operations", "at least 1"]),
        (lambda: replace(AUGMENT, magnitude=31), ["magnitude", "0 and 30", "not 31"]),
        (lambda: replace(AUGMENT, size=(24, 30)), ["size 30", "patches of 8"]),
        (lambda: replace(AUGMENT, size=(2, 8), patch=(1, 1)), ["3 x 3 pixels", "2 x 8"]),
        (lambda: replace(AUGMENT, std=(0.0,)), ["std", "above 0"]),
        (lambda: replace(AUGMENT, mean=(0.5, 0.5))(torch.zeros(12, 192)), ["2 numbers", "3 channels"]),
        (lambda: AUGMENT(torch.zeros(12, 48)), ["64 or 192 values", "have 48", "give the patch"]),
        (lambda: AUGMENT(torch.zeros(20, 192)), ["12 tokens", "the 20"]),
        (lambda: Classification(MODEL, 2, augment=AUGMENT, drop_tokens=0.1), ["augment", "whole images"]),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(make, parts):
    with refused(ValueError, *parts):
        make()


def test_a_batch_of_anything_but_whole_images_is_refused():
    batch = batch_of(pictures())
    parts = replace(batch, tokens=batch.tokens.select(torch.arange(96) % 12 < 6))
    with refused(ValueError, "augment", "12 tokens"):
        Classification(MODEL, 2, augment=AUGMENT).augmented(parts)


def test_nothing_asks_the_device_for_a_number():
    """On a device without numbers, asking for one is an error."""
    assert AUGMENT(torch.zeros(24, 192, device="meta")).shape == (24, 192)


@pytest.mark.cuda
def test_on_a_gpu_nothing_waits_and_the_result_is_the_same():
    images = pictures(n=64)
    operations, signs = (x.cuda() for x in AUGMENT.drawn(64, torch.Generator().manual_seed(0), "cpu"))
    on_gpu, values = images.cuda(), values_of(images).cuda()
    generator = torch.Generator("cuda").manual_seed(0)
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = changed(on_gpu, operations[0], signs[0], 9)
        AUGMENT(values, generator)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    expected = changed(images, operations[0].cpu(), signs[0].cpu(), 9)
    differences = (found.cpu().int() - expected.int()).abs()
    assert float((differences > 1).float().mean()) < 1e-3


def test_noise_has_a_strength_of_its_own_on_every_token():
    noise = Noise(scale=0.5)
    values = torch.zeros(2000, 400)
    changed = noise(values, torch.Generator().manual_seed(0))
    strengths = changed.std(dim=1)
    assert strengths.max() < 0.55 and strengths.min() < 0.02 and abs(strengths.mean() - 0.25) < 0.02
    assert abs(float(changed.mean())) < 1e-2
    assert torch.equal(changed, noise(values, torch.Generator().manual_seed(0)))
    with refused(ValueError, "scale", "above 0", "not 0"):
        Noise(scale=0.0)


def test_noise_goes_with_ragged_samples_dropped_tokens_and_a_saved_task(tmp_path):
    config = ModelConfig(channels=2, position_dims=1, encoder=Size(width=8, heads=1, depth=1))
    samples = [Sample(torch.ones(n, 2), torch.rand(n, 1), target=torch.rand(n, 1)) for n in (3, 5)]
    task = Regression(config, per="token", drop_tokens=0.5, augment=Noise(scale=0.1))
    batch = task.prepare(collate(samples), torch.Generator().manual_seed(0), is_training=True)
    assert not torch.equal(task.augmented(batch).tokens.values, batch.tokens.values)
    task.save(tmp_path / "task")
    assert checkpoint.load(tmp_path / "task").augment == Noise(scale=0.1)


def test_the_strongest_shift_is_150_of_331_pixels():
    image = torch.zeros(1, 1, 1, 331, dtype=torch.uint8)
    image[..., 165] = 255
    for sign in (1.0, -1.0):
        moved = changed(image, torch.tensor([OPERATIONS.index("translate-x")]), torch.tensor([sign]), 30)
        assert abs(int(moved.argmax()) - 165) == 150 and int(moved.max()) == 255

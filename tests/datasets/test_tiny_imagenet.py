"""Tiny ImageNet: a small folder of the public layout that the test draws, and what happens to a broken one."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from messages import refused
from romae.experiments.datasets import find, tiny_imagenet
from romae.experiments.datasets.files import MissingFile

Image = pytest.importorskip("PIL.Image", reason="needs pillow: pip install 'romae[images]'")

WNIDS = ("n02", "n01", "n03")  # not sorted, as in the public file
SHADES = {"n01": 40, "n02": 120, "n03": 200}


def draw(path: Path, shade: int, mode: str = "RGB", size: int = 64) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, (size, size), (shade, 0, 255 - shade) if mode == "RGB" else shade).save(path, "JPEG", quality=95)


@pytest.fixture
def folder(tmp_path) -> Path:
    """Three classes of three images to train on (one of each is grey) and five to validate on."""
    for wnid, shade in SHADES.items():
        for i in (0, 2, 10):
            draw(tmp_path / "train" / wnid / "images" / f"{wnid}_{i}.JPEG", shade + i, "L" if i == 2 else "RGB")
        (tmp_path / "train" / wnid / f"{wnid}_boxes.txt").write_text(f"{wnid}_0.JPEG\t0\t0\t62\t62\n")
    rows = []
    for i, wnid in enumerate(["n03", "n01", "n02", "n03", "n01"]):
        draw(tmp_path / "val" / "images" / f"val_{i}.JPEG", SHADES[wnid])
        rows.append(f"val_{i}.JPEG\t{wnid}\t0\t32\t44\t62\n")
    (tmp_path / "val" / "val_annotations.txt").write_text("".join(rows))
    (tmp_path / "wnids.txt").write_text("\n".join(WNIDS) + "\n")
    words = "n00\tentity\nn01\tgoldfish, Carassius auratus\nn02\tteapot\nn03\tpier\n"
    (tmp_path / "words.txt").write_text(words)
    return tmp_path


def test_train_is_read_class_by_class_and_grey_becomes_colour(folder):
    pictures = tiny_imagenet.load("train", folder=folder)
    assert pictures.images.shape == (9, 64, 64, 3) and pictures.images.dtype == np.uint8
    assert pictures.targets.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert pictures.names[:3] == ("n01_0.JPEG", "n01_2.JPEG", "n01_10.JPEG")
    assert pictures.class_names == ("goldfish, Carassius auratus", "teapot", "pier")
    assert abs(pictures.images[0].mean((0, 1)) - [40, 0, 215]).max() <= 2
    assert abs(pictures.images[4].mean((0, 1)) - [122, 122, 122]).max() <= 2


def test_val_has_the_classes_of_its_annotations(folder):
    pictures = tiny_imagenet.load("val", folder=folder)
    assert pictures.targets.tolist() == [2, 0, 1, 2, 0]
    assert pictures.names == tuple(f"val_{i}.JPEG" for i in range(5))
    assert np.abs(pictures.images[:, 0, 0, 0].astype(int) - [200, 40, 120, 200, 40]).max() <= 2


def test_a_sample_is_the_normalised_image_in_patches(folder):
    pictures = tiny_imagenet.load("val", folder=folder)
    sample = pictures.sample(1, (8, 8))
    assert sample.values.shape == (64, 192)
    assert int(sample.target) == 0 and sample.id == "val_1.JPEG"
    pixel = (torch.tensor(pictures.images[1, 0, 0] / 255) - torch.tensor(tiny_imagenet.MEAN)) / torch.tensor(
        tiny_imagenet.STD
    )
    assert_close(sample.values[0, :3], pixel.float())
    assert pictures.sample(1, (16, 16), size=(224, 224)).values.shape == (196, 768)


def test_samples_are_those_of_single_images(folder):
    pictures = tiny_imagenet.load("train", folder=folder)
    samples = pictures.samples((8, 8))
    for i in (0, 4, 8):
        assert_close(samples[i].values, pictures.sample(i, (8, 8)).values)
        assert samples[i].id == pictures.names[i] and int(samples[i].target) == pictures.targets[i]
    assert len(samples[:3]) == 3 and samples[:3][1].id == "n01_2.JPEG"


def test_the_first_of_each_class(folder):
    pictures = tiny_imagenet.load("train", folder=folder, per_class=2)
    assert pictures.names == tuple(f"{wnid}_{i}.JPEG" for wnid in ("n01", "n02", "n03") for i in (0, 2))
    assert set(tiny_imagenet.load("train", folder=folder, n_classes=2).targets.tolist()) == {0, 1}
    assert tiny_imagenet.load("val", folder=folder, per_class=1).names == ("val_0.JPEG", "val_1.JPEG", "val_2.JPEG")


@pytest.mark.parametrize("n", [0, -1])
def test_less_than_one_is_refused(folder, n):
    for name in ("n_classes", "per_class"):
        with refused(ValueError, name, "None for all", f"not {n}"):
            tiny_imagenet.load("train", folder=folder, **{name: n})
    with refused(ValueError, "part_bytes", "at least 1", f"not {n}"):
        tiny_imagenet.pack("train", folder / "packed", folder=folder, part_bytes=n)


@pytest.mark.parametrize("part_bytes", [50_000_000, 2_000, 1])
def test_packed_parts_hold_the_same_images_and_classes(folder, tmp_path_factory, part_bytes):
    out = tmp_path_factory.mktemp("packed")
    parts = tiny_imagenet.pack("train", out, folder=folder, part_bytes=part_bytes)
    assert sorted(out.iterdir()) == sorted(parts) and len(parts) == {50_000_000: 1, 1: 9}.get(part_bytes, len(parts))
    assert part_bytes != 2_000 or 1 < len(parts) < 9
    one, other = tiny_imagenet.load("train", folder=folder), tiny_imagenet.load("train", folder=out)
    assert np.array_equal(one.images, other.images) and np.array_equal(one.targets, other.targets)
    assert (one.names, one.class_names) == (other.names, other.class_names)
    again = tiny_imagenet.pack("train", out / "again", folder=out, part_bytes=part_bytes)
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in parts]  # nothing is encoded anew


def test_parts_that_are_lost_damaged_or_mixed_are_named(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("packed")
    parts = tiny_imagenet.pack("val", out, folder=folder, part_bytes=1)
    whole = parts[3].read_bytes()
    parts[3].unlink()
    with refused(MissingFile, "val-4-of-5.npz is missing", "val-1-of-5.npz"):
        tiny_imagenet.load("val", folder=out)
    parts[3].write_bytes(whole[:-500])
    with refused(ValueError, "val-4-of-5.npz", "cannot be read"):
        tiny_imagenet.load("val", folder=out)
    parts[3].write_bytes(whole)
    tiny_imagenet.pack("val", out, folder=folder)
    with refused(ValueError, "two packings", "val", "remove"):
        tiny_imagenet.load("val", folder=out)
    with refused(MissingFile, "cannot find", "wnids.txt"):
        tiny_imagenet.load("train", folder=out)


def test_a_broken_image_is_named_and_a_missing_one_is_not_packed(folder):
    path = folder / "train" / "n02" / "images" / "n02_2.JPEG"
    path.write_bytes(path.read_bytes()[:-100])
    with refused(ValueError, "cannot read", "n02_2.JPEG"):
        tiny_imagenet.load("train", folder=folder)
    draw(path, 0, size=32)
    with refused(ValueError, "n02_2.JPEG", "32 x 32", "64 x 64"):
        tiny_imagenet.load("train", folder=folder)
    (folder / "val" / "images" / "val_3.JPEG").unlink()
    with refused(ValueError, "val_3.JPEG", "No such file"):
        tiny_imagenet.pack("val", folder / "packed", folder=folder)
    assert not (folder / "packed").exists()


def test_what_is_missing_is_named(folder, tmp_path_factory):
    (folder / "val" / "images" / "val_3.JPEG").unlink()
    with refused(ValueError, "val_3.JPEG", "No such file"):
        tiny_imagenet.load("val", folder=folder)
    (folder / "wnids.txt").write_text("n01\nn02\n")
    with refused(ValueError, "val_annotations.txt, line 1", "'n03'"):
        tiny_imagenet.load("val", folder=folder)
    (folder / "wnids.txt").write_text("n01\nn09\n")
    with refused(MissingFile, "no images", "n09"):
        tiny_imagenet.load("train", folder=folder)
    (folder / "words.txt").write_text("n02\tteapot\n")
    (folder / "wnids.txt").write_text("n01\n")
    with refused(ValueError, "words.txt", "n01"):
        tiny_imagenet.load("train", folder=folder)
    empty = tmp_path_factory.mktemp("empty")
    with refused(MissingFile, "wnids.txt", "download http", "put it at"):
        tiny_imagenet.load("train", folder=empty)


def test_an_unknown_split_is_refused(folder, without_shape_checks):
    with refused(ValueError, "split", "'train' or 'val'", "not 'test'"):
        tiny_imagenet.load("test", folder=folder)


def test_the_unpacked_archive_is_found_and_check_refuses_another_size(folder, tmp_path_factory):
    outside = tmp_path_factory.mktemp("data")
    (outside / "tiny-imagenet-200").symlink_to(folder)
    assert len(tiny_imagenet.load("val", folder=outside)) == 5
    assert find("tiny_imagenet").missing(outside) == []
    with refused(ValueError, "(9, 3)", "train split", "(100000"):
        find("tiny_imagenet").verify(outside)

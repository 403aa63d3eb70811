"""Tiny ImageNet: a small folder of the public layout that the test draws, and what happens to a broken one."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from romae.datasets import find, tiny_imagenet

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


def test_the_packed_file_gives_the_same_and_is_read_instead(folder, monkeypatch):
    cache = folder / "packed" / "val.npz"
    first = tiny_imagenet.load("val", folder=folder, cache=cache)
    assert [path.name for path in cache.parent.iterdir()] == ["val.npz"]
    monkeypatch.setattr(tiny_imagenet, "_pixels", None)
    again = tiny_imagenet.load("val", folder=folder, cache=cache)
    assert np.array_equal(first.images, again.images) and np.array_equal(first.targets, again.targets)
    with pytest.raises(ValueError, match="val.npz was packed from other files"):
        tiny_imagenet.load("train", folder=folder, cache=cache)
    cache.write_bytes(cache.read_bytes()[:-500])
    with pytest.raises(ValueError, match="val.npz cannot be read as packed images .*; remove it"):
        tiny_imagenet.load("val", folder=folder, cache=cache)


def test_a_broken_image_leaves_no_packed_file(folder):
    path = folder / "train" / "n02" / "images" / "n02_2.JPEG"
    path.write_bytes(path.read_bytes()[:-100])
    cache = folder / "packed" / "train.npz"
    with pytest.raises(ValueError, match="cannot read the image .*n02_2.JPEG"):
        tiny_imagenet.load("train", folder=folder, cache=cache)
    assert not cache.parent.exists()
    draw(path, 0, size=32)
    with pytest.raises(ValueError, match="n02_2.JPEG has 32 x 32 pixels instead of 64 x 64"):
        tiny_imagenet.load("train", folder=folder)


def test_what_is_missing_is_named(folder, tmp_path_factory):
    (folder / "val" / "images" / "val_3.JPEG").unlink()
    with pytest.raises(ValueError, match="cannot read the image .*val_3.JPEG: No such file"):
        tiny_imagenet.load("val", folder=folder)
    (folder / "wnids.txt").write_text("n01\nn02\n")
    with pytest.raises(ValueError, match="val_annotations.txt, line 1: 'n03' is not one of the classes"):
        tiny_imagenet.load("val", folder=folder)
    (folder / "wnids.txt").write_text("n01\nn09\n")
    with pytest.raises(ValueError, match="no images of class n09"):
        tiny_imagenet.load("train", folder=folder)
    (folder / "words.txt").write_text("n02\tteapot\n")
    (folder / "wnids.txt").write_text("n01\n")
    with pytest.raises(ValueError, match="words.txt has no words for class n01"):
        tiny_imagenet.load("train", folder=folder)
    empty = tmp_path_factory.mktemp("empty")
    with pytest.raises(ValueError, match="cannot find .*wnids.txt; download http.* and put it at"):
        tiny_imagenet.load("train", folder=empty)


def test_an_unknown_split_is_refused(folder, without_shape_checks):
    with pytest.raises(ValueError, match="split must be 'train' or 'val', not 'test'"):
        tiny_imagenet.load("test", folder=folder)


def test_the_unpacked_archive_is_found_and_check_refuses_another_size(folder, tmp_path_factory):
    outside = tmp_path_factory.mktemp("data")
    (outside / "tiny-imagenet-200").symlink_to(folder)
    assert len(tiny_imagenet.load("val", folder=outside)) == 5
    assert find("tiny_imagenet").missing(outside) == []
    with pytest.raises(ValueError, match=r"has \(9, 3\) images and classes in its train split instead of \(100000"):
        find("tiny_imagenet").verify(outside)

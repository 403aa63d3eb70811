"""Folders of files: which files count, and which class has which index."""

from pathlib import Path

import pytest

from messages import refused
from romae.data.folder import Folder


def filled(root: Path, *names: str) -> Path:
    """A folder with empty files of these names, and with empty folders where a name ends in a slash."""
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir() if name.endswith("/") else path.touch()
    return root


def classes_of(root: Path, **options: object) -> Folder:
    return Folder.of(root, [".png"], lambda path, **_: path, has_classes=True, **options)


def test_an_empty_class_keeps_its_index(tmp_path):
    train = classes_of(filled(tmp_path / "train", "ant/1.png", "bee/1.png", "cat/1.png"))
    test = classes_of(filled(tmp_path / "test", "ant/", "bee/1.png", "cat/1.png"))
    assert test.class_names == train.class_names == ("ant", "bee", "cat")
    assert test.targets == (1, 2)


def test_a_link_to_a_folder_is_a_class(tmp_path):
    filled(tmp_path, "elsewhere/deep/1.png", "train/bee/1.png")
    (tmp_path / "train/ant").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    folder = classes_of(tmp_path / "train")
    assert folder.class_names == ("ant", "bee")
    assert [path.relative_to(folder.root).as_posix() for path in folder.files] == ["ant/deep/1.png", "bee/1.png"]
    assert folder.targets == (0, 1)


def test_indices_follow_the_classes_of_training(tmp_path):
    root = filled(tmp_path, "bee/1.png", "cat/1.png")
    folder = classes_of(root, classes=["dog", "cat", "bee"])
    assert folder.class_names == ("dog", "cat", "bee")
    assert folder.targets == (2, 1)
    assert folder[1:].class_names == folder.class_names


@pytest.mark.parametrize(
    ("classes", "parts"),
    [
        (["bee"], ["folder cat", "['bee']"]),
        (["bee", "cat", "bee"], ["different names", "['bee', 'cat', 'bee']"]),
        ("bee", ["list of names", "not 'bee'"]),
    ],
)
def test_classes_that_do_not_fit_are_refused(classes, parts, tmp_path):
    root = filled(tmp_path, "bee/1.png", "cat/")
    with refused((TypeError, ValueError), *parts):
        classes_of(root, classes=classes)


def test_classes_without_has_classes_are_refused(tmp_path):
    with refused(ValueError, "classes=", "has_classes=True"):
        Folder.of(filled(tmp_path, "1.png"), [".png"], lambda path: path, has_classes=False, classes=["bee"])


def test_hidden_files_and_folders_are_passed_over(tmp_path):
    names = ("bee/1.png", "bee/.2.png", "bee/.cache/3.png", ".ipynb_checkpoints/1-checkpoint.png")
    folder = classes_of(filled(tmp_path / ".data", *names))
    assert [path.name for path in folder.files] == ["1.png"]
    assert folder.class_names == ("bee",)

"""Imports written for 0.1 keep working: the old names lead to the same objects, with a warning that names the new."""

import importlib
import subprocess
import sys

import pytest

import romae
from messages import refused, warned
from romae.moved import MOVED, PACKAGES


@pytest.mark.parametrize("old", MOVED)
def test_an_old_module_is_the_new_one(old):
    new = importlib.import_module(f"romae.{MOVED[old]}")
    spec = new.__spec__
    sys.modules.pop(f"romae.{old}", None)
    with warned(DeprecationWarning, f"romae.{MOVED[old]}"):
        assert importlib.import_module(f"romae.{old}") is new
    assert new.__spec__ is spec and new.__name__ == f"romae.{MOVED[old]}"


def test_files_of_a_moved_package_are_found_by_their_old_names():
    new = importlib.import_module("romae.experiments.datasets.spirals")
    sys.modules.pop("romae.datasets.spirals", None)
    with pytest.warns(DeprecationWarning):
        assert importlib.import_module("romae.datasets.spirals") is new


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_holds_what_the_module_of_its_name_held(package):
    module = importlib.import_module(f"romae.{package}")
    for names in PACKAGES[package].values():
        for name in names:
            held = getattr(module, name)
            assert held is getattr(romae, name, held)
    with refused(AttributeError, "nonsense"):
        _ = module.nonsense


def test_what_never_was_is_not_found():
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("romae.nonsense")


def test_a_fresh_process_imports_by_old_names():
    code = "from romae.tokens import Sample; from romae.tasks import TASKS; import romae; assert romae.Sample is Sample"
    subprocess.run([sys.executable, "-c", code], check=True)

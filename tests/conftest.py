"""Tests run with the shapes in the signatures checked, but for those that ask for what users see."""

import functools
import gc
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jaxtyping
import pytest
import torch
from hypothesis import settings

import shape_checks

gc.disable()  # until all tests are imported, which leaves little to collect
shape_checks.install("romae")
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
if not torch.cuda.is_available():  # Triton's interpreter runs our kernels; it must be chosen before Triton is imported
    os.environ["TRITON_INTERPRET"] = "1"

settings.register_profile("romae", deadline=None, max_examples=50)  # the first call of anything is slow
settings.load_profile("romae")

SHARED = Path(__file__).resolve().parents[2] / "shared"


LONG = (  # with tests of ten seconds and more
    "test_compile.py",
    "test_docs.py",
    "test_ray.py",
    "test_export_model.py",
    "test_cli.py",
    "test_packaging.py",
    "test_extras.py",
    "test_site.py",
    "test_training_kill.py",
    "test_sources.py",
    "test_cli_help.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # What is long comes first, so that the end of the suite waits for none; then tests that share what is read once:
    # where they stand together, one process runs them all.
    items.sort(key=lambda item: (item.path.name not in LONG, "stays_read_once" not in item.fixturenames))
    if not torch.cuda.is_available():
        for item in items:
            if "cuda" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="needs a GPU"))


def pytest_collection_finish() -> None:
    """What is imported by now stays to the end: the garbage collector need not go through all of it again and again."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data sets: ROMAE_DATA, or a folder `shared/data` beside the project."""
    folder = Path(os.environ.get("ROMAE_DATA") or SHARED / "data")
    if not folder.is_dir():
        pytest.skip("needs the real data sets: set ROMAE_DATA to their folder")
    return folder


@pytest.fixture(scope="session")
def read_stays() -> Callable[[str, Path], tuple]:
    from romae.experiments.datasets import physionet2012

    return functools.cache(physionet2012.read_rows)


@pytest.fixture
def stays_read_once(monkeypatch, read_stays) -> None:
    """The files of the PhysioNet challenge are read once for all tests, because that takes seconds."""
    monkeypatch.setattr("romae.experiments.datasets.physionet2012.read_rows", read_stays)


@pytest.fixture
def without_shape_checks():
    """What users see: shapes in signatures are not looked at, so our own sentences must catch bad input."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs pip install playwright")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"needs a browser: one of {', '.join(BROWSERS)}")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()

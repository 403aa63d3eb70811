"""Every test runs with the shapes in the signatures checked."""

import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "2")

from jaxtyping import install_import_hook

install_import_hook("romae", "beartype.beartype")

import pytest
import torch

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data sets: ROMAE_DATA, or a folder `shared/data` beside the project."""
    folder = Path(os.environ.get("ROMAE_DATA", SHARED / "data"))
    if not folder.is_dir():
        pytest.skip("needs the real data sets: set ROMAE_DATA to their folder")
    return folder

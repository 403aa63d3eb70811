"""A compiled task computes what the eager one does."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_compiled_equals_eager_in_loss_and_gradients(device):
    if device == "cuda" and not shutil.which("g++"):
        pytest.skip("needs a C++ compiler: torch.compile builds its kernels with g++")
    script = Path(__file__).with_name("compiled.py")
    done = subprocess.run([sys.executable, script, device], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert float(done.stdout) < 1e-4

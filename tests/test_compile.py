"""What is compiled computes what the eager form does."""

import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from torch.testing import assert_close

import romae

pytestmark = pytest.mark.slow


@functools.cache
def compiled(device: str, *parts: str) -> dict[str, Any]:
    """What `compiled.py` finds; one process does all parts, because it takes many seconds to load the compiler."""
    # Processes to compile in would start as long as they save; to try which instructions there are takes ten seconds.
    settings = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "TORCHINDUCTOR_VEC_ISA_OK": "0"} if device == "cpu" else {}
    folders = [str(Path(romae.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(folders)} | settings
    command = [sys.executable, Path(__file__).with_name("compiled.py"), device, *parts]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def on_cpu() -> dict[str, Any]:
    return compiled("cpu", "tasks", "padded", *(["blocks"] if shutil.which("g++") else []))


def test_compiled_equals_eager_in_loss_and_gradients():
    assert on_cpu()["tasks"] < 1e-4


@pytest.mark.cuda
def test_compiled_equals_eager_in_loss_and_gradients_on_a_gpu():
    if not shutil.which("g++"):
        pytest.skip("needs a C++ compiler: torch.compile builds its kernels with g++")
    assert compiled("cuda", "tasks")["tasks"] < 1e-4


def test_the_compiled_padded_baseline_is_the_same_mathematics():
    """Traced, with its gradients; what a compiler makes of the trace is tested on a GPU."""
    error, n_graphs = on_cpu()["padded"]
    assert error < 1e-5 and 1 <= n_graphs <= 4  # encoder and decoder, not one for each block


def test_compiled_blocks_train_as_they_are_written():
    if not shutil.which("g++"):
        pytest.skip("needs a C++ compiler: torch.compile builds its kernels with g++")
    plain, blocks = on_cpu()["blocks"]
    assert_close(blocks, plain, rtol=1e-4, atol=1e-6)

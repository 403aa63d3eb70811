"""Runs that are killed at any moment and resumed: a few of what `make kill` does a thousand times."""

import json
import sys
from pathlib import Path

import pytest

from training_job import FORKS

sys.path.append(str(Path(__file__).parent / "reliability"))

import kill  # noqa: E402


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked after torch is imported")
def test_runs_that_are_killed_and_resumed_equal_runs_that_were_never_stopped(tmp_path):
    """In a process that has imported everything and done nothing, which this one has not."""
    names = [f"--scenario={name}" for name in ("one process", "stages", "two processes")]
    arguments = ["--kills=6", "--seed=0", "--jobs=2", f"--out={tmp_path / 'kept.json'}", *names]
    process = FORKS.Process(target=kill.main, args=(arguments,))
    process.start()
    process.join(300)
    assert process.exitcode == 0
    kept = json.loads((tmp_path / "kept.json").read_text())["kill"]
    assert kept["kills"] >= 6 and kept["mismatches"] == 0

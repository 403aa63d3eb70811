"""The base install: own data need no extra, and what does need one says what to install."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from messages import refused
from romae.extras import EXTRAS, require_extra

# A start of Python that does not find what the extras bring, also where it is only looked for, as torch does with onnx.
REFUSE = f"""
import sys

class Refuse:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {sorted({module for modules in EXTRAS.values() for module in modules})}:
            return None
        return self.finder.find_spec(name, path, target)

sys.meta_path[:] = map(Refuse, sys.meta_path)
"""

BASE = """
import numpy as np
import romae
from romae.cli.main import main

random = np.random.default_rng(0)
samples = [romae.Sample(random.normal(size=(6, 1)), np.arange(6.0)[:, None], target=i % 2) for i in range(8)]
size = romae.Size(width=24, heads=2, depth=1)
config = romae.ModelConfig(channels=1, position_dims=1, encoder=size, decoder=size)
task = romae.Classification(romae.Encoder(config), n_classes=2)
romae.train(task, samples, romae.TrainConfig(epochs=1, lr=1e-3))
assert len(romae.predict(task, samples)) == 8
romae.RoMAEEmbedder(size=size, pretrain_epochs=1).fit(samples).transform(samples)
for name in romae.__all__:
    getattr(romae, name)
sys.argv = ["romae", "pretrain", "--help"]
main()
"""

# Runs commands one after the other, and prints how each ended.
COMMANDS = """
import contextlib, io, json
from romae.cli.main import main

ended = []
for command in json.loads(sys.argv[1]):
    sys.argv = ["romae", *command]
    with contextlib.redirect_stderr(io.StringIO()) as errors, contextlib.redirect_stdout(io.StringIO()):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    ended.append((code, errors.getvalue()))
print(json.dumps(ended))
"""


def started(code: str, *arguments: str, folder: Path) -> str:
    """What a process without extras prints; its data sets are looked for in an empty folder."""
    command = [sys.executable, "-c", REFUSE + code, *arguments]
    environment = {**os.environ, "ROMAE_DATA": str(folder / "data")}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_training_prediction_estimators_and_commands_for_own_tables_need_no_extra(tmp_path):
    assert "Usage" in started(BASE, folder=tmp_path)


@pytest.mark.slow
def test_a_command_without_its_extra_says_what_to_install_and_writes_nothing(tmp_path):
    (tmp_path / "results").mkdir()
    commands = {
        "export": [["export", "on/hub", "--out", "model.onnx"]],
        "plots": [["demo"], ["page", "results"], ["benchmark", "attention"]],
        "experiments": [
            ["list"],
            ["show", "pendulum/paper"],
            ["run", "pendulum/paper", "--quick"],
            ["report"],
            ["data", "get", "uea/BasicMotions"],
        ],
    }
    pairs = [(extra, command) for extra, several in commands.items() for command in several]
    *ended, listed = json.loads(
        started(COMMANDS, json.dumps([*(command for _, command in pairs), ["data", "list"]]), folder=tmp_path)
    )
    for (extra, command), (code, errors) in zip(pairs, ended, strict=True):
        assert code == 2 and errors.count("\n") == 1, (command, errors)
        assert errors.endswith(f"pip install 'romae[{extra}]'\n"), (command, errors)
    assert listed == [0, ""], "what data sets there are is told without an extra"
    assert [path.name for path in tmp_path.rglob("*")] == ["results"]


def test_only_what_is_missing_is_named(monkeypatch):
    require_extra("plots", "pages need")
    monkeypatch.setitem(sys.modules, "plotly", None)
    with refused(ImportError, "pages need plotly", "pip install 'romae[plots]'"):
        require_extra("plots", "pages need")
    require_extra("plots", "pictures need", "matplotlib")  # which is there

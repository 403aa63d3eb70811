"""Compiled and recorded steps: the same mathematics, held against double precision and against steps as they come."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import romae
from messages import refused, warned
from romae.benchmark.steps import MODES, computed
from romae.benchmark.workloads import WORKLOADS, Workload
from romae.model.config import ModelConfig, Size
from romae.model.tasks import Classification, MaskedReconstruction, Regression
from romae.tokens.masking import Rows, UniformTokens
from romae.tokens.sample import Sample
from romae.training import step as steps
from romae.training.config import TrainConfig
from romae.training.loop import train

RAGGED = Workload(n_samples=12, shortest=3, longest=90, channels=2, size="tiny", ratio=0.5)
LONG = replace(RAGGED, longest=400)
EQUAL = replace(RAGGED, shortest=17, longest=17, size="small", ratio=0.75)
COMPILED = tuple(mode for mode in MODES if "compiled" in mode)
AS_IT_COMES = tuple(mode for mode in MODES if "compiled" not in mode)
CONFIG = ModelConfig(
    channels=1, position_dims=1, encoder=Size(width=36, heads=2, depth=2), decoder=Size(width=20, heads=1, depth=1)
)


CASES = {
    "ragged float32": (RAGGED, "float32", 1e-5),
    "ragged tf32": (RAGGED, "tf32", 5e-3),
    "ragged bf16": (RAGGED, "bf16", 3e-2),
    "long bf16": (LONG, "bf16", 3e-2),
    "equal bf16": (EQUAL, "bf16", 3e-2),
    "equal float32, independent": (replace(EQUAL, queries="independent"), "float32", 1e-5),
    "equal bf16, independent": (replace(EQUAL, queries="independent"), "bf16", 3e-2),
    "ragged bf16, independent": (replace(RAGGED, queries="independent"), "bf16", 3e-2),
}


def unchecked(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own, where signatures are not checked."""
    folders = [str(Path(__file__).parent), str(Path(romae.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(folders)}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)


def errors(modes: tuple[str, ...]) -> dict[str, float]:
    """How far outputs and gradients of each mode are from double precision, in units of the tolerance.

    The truth is the padded model: another way to the same numbers, which shares no kernel with those it is held to.
    """
    found = {}
    for name, (workload, precision, tolerance) in CASES.items():
        truth = computed(workload, "padded", "float64")
        for mode in modes:
            for what, error in computed(workload, mode, precision).errors(truth).items():
                found[f"{what}, {mode}, {name}"] = error / tolerance
    return found


@pytest.mark.cuda
def test_every_mode_has_the_outputs_and_gradients_of_double_precision():
    found = errors(AS_IT_COMES)
    assert len(found) == 2 * len(AS_IT_COMES) * len(CASES) and all(error < 1 for error in found.values()), found


@pytest.mark.cuda
@pytest.mark.slow
def test_compiled_modes_have_the_outputs_and_gradients_of_double_precision():
    """In a process of its own, where signatures are not checked: the compiler does not see through the checks."""
    code = f"import json, test_fast_modes as t; print(json.dumps(t.errors({COMPILED!r})))"
    done = unchecked(code)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == 2 * len(COMPILED) * len(CASES) and all(error < 1 for error in found.values()), found


@pytest.mark.parametrize("mode", ["eager", "fixed"])
@pytest.mark.parametrize("queries", ["joint", "independent"])
def test_batches_of_any_and_of_fixed_size_have_the_outputs_and_gradients_of_double_precision(queries, mode):
    workload = replace(RAGGED, size="tiny-shallow", longest=20, queries=queries)
    errors = computed(workload, mode, "float32").errors(computed(workload, "padded", "float64"))
    assert set(errors) == {"output_error", "error"} and all(error < 1e-5 for error in errors.values())


def series(n_samples: int, target: bool = False, n_kinds: int = 0) -> list[Sample]:
    random = np.random.default_rng(0)
    samples = []
    for _ in range(n_samples):
        times = np.sort(random.uniform(0, 10, random.integers(2, 30)))
        axes = [times, np.arange(len(times)) % n_kinds] if n_kinds else [times]
        positions = np.stack(axes, axis=1)
        samples.append(Sample(np.sin(times)[:, None], positions, target=len(times) % 2 if target else None))
    return samples


def series_for(name: str) -> list[Sample]:
    return series(70, target=name in ("classification", "regression"), n_kinds=3 if name == "kinds" else 0)


OF_KINDS = Size(width=40, heads=2, depth=2)
TASKS = {
    "reconstruction": lambda: MaskedReconstruction(CONFIG, masking=UniformTokens(ratio=0.5), drop_tokens=0.3),
    "rows": lambda: MaskedReconstruction(replace(CONFIG, queries="joint", cls=False), masking=Rows(ratio=0.5)),
    "classification": lambda: Classification(replace(CONFIG, cls=False), 2, drop_tokens=0.5),
    "regression": lambda: Regression(CONFIG, 1),
    "kinds": lambda: MaskedReconstruction(replace(CONFIG, position_dims=2, kinds=3, encoder=OF_KINDS)),
}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", TASKS)
def test_batches_of_a_fixed_size_train_as_batches_of_any(name, workers, monkeypatch):
    """Modes that want a fixed size are for a GPU; how they fill batches is the same everywhere."""
    samples = series_for(name)[:40]  # a batch that is not full and a step of one batch are among them
    config = TrainConfig(epochs=2, batch_size=16, lr=1e-2, device="cpu", workers=workers, accumulate=2)
    found = []
    for is_fixed in (False, True):
        monkeypatch.setattr(
            steps.Modes, "of", classmethod(lambda cls, *_, fixed=is_fixed, **__: cls(fixed, False, False))
        )
        torch.manual_seed(0)
        history = train(TASKS[name](), samples, config)
        found.append([record["loss"] for record in history.records])
    assert_close(found[1], found[0], rtol=1e-4, atol=1e-6)


@pytest.mark.cuda
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["adamw", "sgd"])
@pytest.mark.parametrize("name", TASKS)
def test_recorded_steps_train_as_steps_that_come(name, kind, workers):
    """Ragged batches, a short last one, and the moving average included."""
    samples = series_for(name)
    config = TrainConfig(
        epochs=4, batch_size=16, lr=1e-2, optimiser=kind, ema=0.9, workers=workers, graph=False, compile=False
    )
    found = []
    for settings in (config, replace(config, graph=True)):
        torch.manual_seed(0)
        task = TASKS[name]()
        history = train(task, samples, settings, validation=samples[:20])
        found.append([[r["loss"], r["validation"], r["lr"]] for r in history.records])
    assert_close(torch.tensor(found[1]), torch.tensor(found[0]), rtol=2e-3, atol=1e-5)


@pytest.mark.cuda
@pytest.mark.parametrize("name", TASKS)
def test_recorded_steps_count_weights_of_samples(name):
    samples = [replace(sample, weight=0.5 + i % 3) for i, sample in enumerate(series_for(name))]
    config = TrainConfig(epochs=4, batch_size=16, lr=1e-2, graph=False, compile=False)
    found = []
    for settings in (config, replace(config, graph=True)):
        torch.manual_seed(0)
        history = train(TASKS[name](), samples, settings, validation=samples[:20])
        found.append([[record["loss"], record["validation"]] for record in history.records])
    assert_close(torch.tensor(found[1]), torch.tensor(found[0]), rtol=2e-3, atol=1e-5)


@pytest.mark.cuda
def test_recorded_dropout_is_drawn_anew_at_every_step_and_follows_the_seed():
    def losses(seed: int) -> list[float]:
        torch.manual_seed(0)
        task = Regression(replace(CONFIG, dropout=0.5, attention_dropout=0.0), 1)
        config = TrainConfig(epochs=6, batch_size=32, lr=1e-30, graph=True, seed=seed, weight_decay=0.0)
        return [record["loss"] for record in train(task, series(32, target=True), config).records]

    first, again, other = losses(0), losses(0), losses(1)
    assert len(set(first)) == 6
    assert_close(again, first)
    assert all(abs(a - b) > 1e-4 * abs(a) for a, b in zip(first, other, strict=True))


class Peeking(Regression):
    """A task that asks the device for a number, which no graph can hold."""

    def forward(self, batch):
        loss = super().forward(batch)
        assert float(loss.total) >= 0
        return loss


@pytest.mark.cuda
def test_a_task_that_cannot_be_recorded_is_trained_as_it_comes():
    def losses(**how: bool) -> list[float]:
        torch.manual_seed(0)
        config = TrainConfig(epochs=40, batch_size=16, lr=1e-3, validate_every=60, **how)
        return [record["loss"] for record in train(Peeking(CONFIG, 1), series(48, target=True), config).records]

    with warned(UserWarning, "CUDA graph"):
        found = losses()
    assert_close(found, losses(graph=False), rtol=2e-3, atol=1e-5)
    with pytest.raises(RuntimeError):
        losses(graph=True)


@pytest.mark.parametrize("n_taken", range(steps.N_TRIALS + 1))
def test_a_recording_that_fails_leaves_nothing_of_its_trials(n_taken, monkeypatch):
    """In any trial, or once they are done; a CPU stands in for the device, on which trials change weights as well."""
    stream = SimpleNamespace(wait_stream=lambda other: None)
    for name in ("Stream", "current_stream", "CUDAGraph"):
        monkeypatch.setattr(torch.cuda, name, lambda: stream)
    for name in ("stream", "graph"):
        monkeypatch.setattr(torch.cuda, name, lambda *_, **__: contextlib.nullcontext())
    layer, n_calls = torch.nn.Linear(2, 2), 0
    optimiser = torch.optim.AdamW(layer.parameters(), lr=0.1)

    def work() -> torch.Tensor:
        nonlocal n_calls
        n_calls += 1
        if n_calls > n_taken:
            raise RuntimeError("this cannot be recorded")
        loss = layer(torch.ones(3, 2)).square().sum()
        loss.backward()
        optimiser.step()
        return loss

    before = [p.detach().clone() for p in layer.parameters()]
    with refused(RuntimeError, "cannot be recorded"):
        steps.Captured(work, lambda: steps.optimised(optimiser))
    assert_close([p.detach() for p in layer.parameters()], before, rtol=0, atol=0)
    assert all((x == 0).all() for state in optimiser.state.values() for x in state.values())


@pytest.mark.cuda
def test_a_recording_that_fails_leaves_the_run_as_if_it_had_not_been_tried():
    """With dropout, which the trials draw as well."""

    def weights(**how: bool) -> torch.Tensor:
        torch.manual_seed(0)
        task = Peeking(replace(CONFIG, dropout=0.3, attention_dropout=0.0), 1)
        train(task, series(48, target=True), TrainConfig(epochs=40, batch_size=16, lr=1e-3, **how), quiet=True)
        return torch.cat([p.detach().flatten().cpu() for p in task.parameters()])

    with warned(UserWarning, "CUDA graph"):
        found = weights(compile=False)
    assert_close(found, weights(graph=False, compile=False), rtol=2e-3, atol=1e-5)


@pytest.mark.cuda
def test_a_run_resumes_into_recorded_steps(tmp_path):
    config = TrainConfig(epochs=6, batch_size=16, lr=1e-2, graph=True, save_every=8)

    def run(name: str, **how: bool) -> torch.Tensor:
        torch.manual_seed(0)
        task = TASKS["reconstruction"]()
        train(task, series(70), config, out=tmp_path / name, **how)
        return torch.cat([p.detach().flatten().cpu() for p in task.parameters()])

    whole = run("whole")
    last = sorted((tmp_path / "whole" / "states").iterdir())[-1]
    shutil.copytree(tmp_path / "whole", tmp_path / "again")
    shutil.rmtree(tmp_path / "again" / "states" / last.name)
    assert_close(run("again", resume=True), whole, rtol=1e-3, atol=1e-5)


def test_a_graph_is_refused_where_it_cannot_be(tmp_path):
    with refused(ValueError, "CUDA graph", "no GPU"):
        train(
            TASKS["regression"](),
            series(8, True),
            TrainConfig(epochs=1, graph=True, device="cpu"),
            out=tmp_path / "run",
        )
    assert not (tmp_path / "run").exists()


def test_a_fixed_size_is_left_to_batches_that_padding_does_not_blow_up():
    """Without lengths on the host full precision pads to the longest sample, whatever the others are."""
    gpu = SimpleNamespace(device=torch.device("cuda"), num_processes=1)
    config, n_steps = TrainConfig(compile=False), steps.STEPS_TO_RECORD
    assert steps.Modes.of(config, gpu, n_steps, padding=3.0) == (True, False, True)
    assert steps.Modes.of(config, gpu, n_steps, padding=5.0) == (False, False, False)
    assert steps.Modes.of(replace(config, compile=True), gpu, n_steps, padding=5.0) == (False, True, False)
    with refused(ValueError, "4 times the mean"):
        steps.Modes.of(replace(config, graph=True), gpu, n_steps, padding=5.0)


@pytest.mark.parametrize(
    ("precision", "changes", "expected"),
    [("float32", {}, 4.5), ("bf16", {"dropout": 0.1}, 4.5), ("bf16", {"dropout": 0.1, "attention_dropout": 0.0}, 1.0)],
)
def test_what_a_fixed_size_would_pad_is_told_from_lengths_precision_and_dropout(
    precision, changes, expected, monkeypatch
):
    told = []
    choose = steps.Modes.of
    monkeypatch.setattr(
        steps.Modes, "of", staticmethod(lambda *a, **given: told.append(given["padding"]) or choose(*a, **given))
    )
    samples = [Sample(torch.zeros(n, 1), torch.rand(n, 1), target=n % 2) for n in (18, 1, 1, 1, 1, 1, 5, 4)]
    config = TrainConfig(epochs=1, device="cpu", precision=precision)
    train(Classification(replace(CONFIG, **changes), 2), samples, config)
    assert told == [expected]


def test_the_four_workloads_are_those_that_were_measured_before():
    assert list(WORKLOADS) == ["lightcurves", "images", "audio", "icu"]

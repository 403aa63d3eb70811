"""A run and the process that it runs in: how it ends when it is asked to stop, and what it leaves behind."""

import contextlib
import multiprocessing
import os
import re
import signal
import sys
import time
from pathlib import Path
from subprocess import PIPE, Popen, run

import psutil
import pytest
import torch
from accelerate import Accelerator
from torch.testing import assert_close

import romae
import training_job
from messages import refused
from romae.seeds import seed_everything, seed_step
from romae.training import loop
from romae.training.loop import REQUEUE, Interrupted, train
from romae.training.run_folder import RunFolder
from training_job import Job

DOCS = Path(__file__).parents[1] / "docs"


# Stopping


def test_an_interruption_ends_a_script_with_its_own_code_and_no_handler_of_errors_swallows_it():
    stopped = Interrupted("after step 3")
    assert isinstance(stopped, SystemExit) and not isinstance(stopped, Exception)
    assert (stopped.code, str(stopped)) == (REQUEUE, "after step 3") and REQUEUE == 75


def test_a_run_that_is_asked_to_stop_says_what_it_saved(tmp_path, capsys):
    def ask(step, record):
        signal.raise_signal(signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Interrupted) as caught:
        settings = training_job.config("epochs=2", "validate_every=2")
        train(training_job.task(), training_job.samples(), settings, out=tmp_path / "run", log=ask)
    assert "after step 2" in str(caught.value) and f"resume=True and the folder {tmp_path / 'run'}" in str(caught.value)
    assert "state after step 2" in capsys.readouterr().err
    assert RunFolder(tmp_path / "run").read().numbers["step"] == 2
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.slow
@pytest.mark.parametrize(("number", "settings"), [(signal.SIGTERM, ("workers=1",)), (signal.SIGUSR1, ())])
def test_a_signal_to_all_processes_of_a_run_saves_and_ends_with_a_code_to_requeue_on(tmp_path, number, settings):
    """Batch systems signal whatever runs in a job, the processes that load samples included."""
    job = Job(tmp_path / "run", *settings, seconds=0.1)
    while not any(tmp_path.glob("run/states/[0-9]*")):
        assert job.process.is_alive()
        time.sleep(0.01)
    for process in [*psutil.Process(job.process.pid).children(), job.process]:
        os.kill(process.pid, number)
    code, error = job.ended(60)
    assert code == REQUEUE, error
    assert f"state after step {RunFolder(tmp_path / 'run').read().numbers['step']} is saved" in error


@pytest.mark.skipif(not hasattr(signal, "sigwaitinfo"), reason="who sends a signal is not told here")
def test_a_worker_ends_when_its_own_process_says_so_and_at_no_signal_of_others():
    """Else it would be gone before a run has saved its state, or hold up the end of the process that it serves."""
    before = set(multiprocessing.active_children())
    pieces = romae.Loader(training_job.samples(), batch_size=8, workers=1).epoch()
    next(pieces)
    [worker] = set(multiprocessing.active_children()) - before
    for name in ("-TERM", "-USR1"):
        run(["kill", name, str(worker.pid)], check=True)
    time.sleep(0.05)
    assert worker.is_alive()
    with contextlib.suppress(RuntimeError):  # torch complains of a worker that ended
        worker.terminate()
        worker.join(20)
    assert worker.exitcode is not None


SRUN = """#!/bin/bash
SLURM_PROCID=0 SLURM_LOCALID=0 "$@" & echo $! > task.pid
wait $!
"""
SCONTROL = """#!/bin/bash
if [ "$1" = requeue ]; then echo "$2" > requeued; else echo localhost; fi
"""
SCRIPT = """
import sys, time
import romae, training_job
training_job.slowed(0.1)
data = training_job.samples()
config = training_job.config("validate_every=1", "save_every=1000")
romae.train(training_job.task(), data, config, out="runs/mine", resume=True)
"""


@pytest.mark.slow
def test_the_recipe_for_slurm_puts_the_job_back_into_the_queue(tmp_path):
    """The page's own lines, with commands in the place of Slurm's, which start one task and take note of a requeue."""
    blocks = re.findall(r"```console\n(.*?)```", (DOCS / "scaling.md").read_text(), flags=re.DOTALL)
    [recipe] = [block for block in blocks if "#SBATCH" in block]
    files = {"job.sh": recipe, "train.py": SCRIPT, "bin/srun": SRUN, "bin/scontrol": SCONTROL}
    files["bin/python"] = f'#!/bin/bash\nexec {sys.executable} "$@"\n'
    (tmp_path / "bin").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    places = [str(Path(__file__).parent), str(Path(romae.__file__).parents[1])]
    environment = os.environ | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": ":".join(places)}
    environment |= {"SLURM_JOB_ID": "17", "SLURM_NTASKS": "1", "SLURM_JOB_NODELIST": "here"}
    job = Popen(["bash", "job.sh"], cwd=tmp_path, env=environment, stderr=PIPE, text=True)
    while not (tmp_path / "runs/mine/history.jsonl").exists():
        assert job.poll() is None, job.communicate()
        time.sleep(0.05)
    os.kill(int((tmp_path / "task.pid").read_text()), signal.SIGUSR1)
    _, said = job.communicate(timeout=60)
    assert (tmp_path / "requeued").read_text() == "17\n", said
    assert "Traceback" not in said and RunFolder(tmp_path / "runs/mine").read().numbers["step"] > 0


# What belongs to everyone in the process


def settings_of_process(accelerator: Accelerator) -> dict[str, object]:
    matmuls = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)
    return {
        "Accelerate": (accelerator.mixed_precision, accelerator.device, accelerator.gradient_accumulation_steps),
        "products": (torch.get_float32_matmul_precision(), *(matmul.fp32_precision for matmul in matmuls)),
        "tf32": torch.backends.cuda.matmul.allow_tf32,
        "generator": torch.get_rng_state().tolist(),
    }


@pytest.fixture
def accelerator():
    """One of the user's own, and a precision of products that is not the default."""
    from accelerate.state import AcceleratorState, GradientState

    matmuls = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)
    before = torch.get_float32_matmul_precision(), [matmul.fp32_precision for matmul in matmuls]
    AcceleratorState._reset_state(reset_partial_state=True)
    torch.set_float32_matmul_precision("medium")
    yield Accelerator(mixed_precision="bf16", cpu=True, gradient_accumulation_steps=3)
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    torch.set_float32_matmul_precision(before[0])
    for matmul, precision in zip(matmuls, before[1], strict=True):
        matmul.fp32_precision = precision


@pytest.mark.parametrize("end", ["as planned", "refused", "failed", "interrupted"])
def test_a_run_leaves_the_process_as_it_was(tmp_path, accelerator, end):
    def log(step, record):
        if end == "failed":
            raise RuntimeError("stop here")
        if end == "interrupted":
            signal.raise_signal(signal.SIGTERM)

    samples = training_job.samples()
    if end == "refused":
        samples = [romae.Sample([[1.0]], [[0.0]])]  # found out once all parts of the run are there
    task, settings = training_job.task(), training_job.config("epochs=1", "accumulate=2", "precision=tf32")
    torch.manual_seed(41)
    before = settings_of_process(accelerator)
    try:
        train(task, samples, settings, out=tmp_path / "run", log=log, quiet=True)
        outcome = "as planned"
    except (ValueError, RuntimeError, Interrupted) as error:
        outcome = {ValueError: "refused", RuntimeError: "failed", Interrupted: "interrupted"}[type(error)]
    assert outcome == end
    assert settings_of_process(accelerator) == before


def test_products_may_be_set_by_the_newer_names_of_torch():
    """Which the older ones cannot be read beside; a run neither fails of it nor changes it."""
    cuda = torch.backends.cuda.matmul
    before = cuda.fp32_precision
    try:
        cuda.fp32_precision = "tf32"
        train(training_job.task(), training_job.samples(), training_job.config("epochs=1"), quiet=True)
        assert cuda.fp32_precision == "tf32"
    finally:
        cuda.fp32_precision = before


def test_stages_and_tables_leave_the_generator_alone():
    config = romae.TrainConfig(epochs=1, device="cpu")
    samples = romae.from_arrays(torch.ones(4, 5, 1).numpy())
    size = romae.Size(width=8, heads=1, depth=1)
    model = romae.ModelConfig(channels=1, position_dims=1, encoder=size, decoder=size)
    torch.manual_seed(41)
    before = torch.get_rng_state()
    romae.run_stages(model, [romae.Pretrain(train=config)], samples, quiet=True)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.cuda
@pytest.mark.parametrize("graph", [False, True])
def test_a_run_on_a_gpu_leaves_its_generator_as_it_was(graph):
    task = training_job.task()
    torch.cuda.manual_seed_all(41)
    before = torch.cuda.get_rng_state_all()
    settings = training_job.config("epochs=1", "batch_size=16", "device=cuda", f"graph={graph}".lower())
    train(task, training_job.samples(), settings, quiet=True)
    for state, other in zip(torch.cuda.get_rng_state_all(), before, strict=True):
        assert torch.equal(state, other)


def test_a_step_is_seeded_as_torch_would_be():
    seed = seed_step(3, 4, device=torch.device("cpu"))
    assert seed == seed_everything(3, 4)
    drawn = []
    for start in (lambda: seed_step(3, 4, device=torch.device("cpu")), lambda: torch.manual_seed(seed)):
        start()
        drawn.append([torch.rand(5), torch.nn.functional.dropout(torch.ones(50), 0.5)])
    assert_close(drawn[0], drawn[1], rtol=0, atol=0)


# Scaled losses (fp16), with a scaler on the CPU in the place of that of a GPU


@pytest.fixture
def scaled_losses(monkeypatch):
    """Losses are scaled as in fp16; only the products stay in single precision."""
    made, scalers = loop._accelerator, []

    def with_scaler(*arguments):
        accelerator = made(*arguments)
        accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        accelerator.native_amp, accelerator.state._mixed_precision = True, "fp16"
        accelerator.autocast = lambda *_: torch.autocast("cpu", enabled=False)
        scalers.append(accelerator.scaler)
        return accelerator

    monkeypatch.setattr(loop, "_accelerator", with_scaler)
    single = "accelerate.accelerator.get_mixed_precision_context_manager"
    monkeypatch.setattr(single, lambda *_, **__: torch.autocast("cpu", enabled=False))
    return scalers


def poisoned() -> list[romae.Sample]:
    data = training_job.samples()[:9]
    data[7] = romae.Sample([[1e30], [1e30], [2e30]], [[0.0], [1.0], [2.0]], id="the bad one")
    return data


def test_bad_batches_are_left_out_where_losses_are_scaled_and_the_scale_stays(scaled_losses):
    settings = training_job.config("batch_size=1", "nonfinite=skip", "epochs=2", "ema=none")
    task = training_job.task()
    history = train(task, poisoned(), settings, quiet=True)
    assert history.n_skipped == 2
    assert [scaler.get_scale() for scaler in scaled_losses] == [1024.0]
    assert all(torch.isfinite(p).all() for p in task.parameters())


def test_a_loss_that_is_no_number_stops_a_run_where_losses_are_scaled(scaled_losses):
    with refused(FloatingPointError, "loss became", "the bad one"):
        train(training_job.task(), poisoned(), training_job.config("batch_size=1"), quiet=True)


@pytest.mark.cuda
@pytest.mark.parametrize("nonfinite", ["skip", "stop"])
def test_bad_batches_in_half_precision_are_left_out_or_stop_the_run(nonfinite):
    settings = training_job.config(
        "precision=fp16", "batch_size=1", "epochs=2", "ema=none", "device=auto", f"nonfinite={nonfinite}"
    )
    task = training_job.task()
    if nonfinite == "stop":
        with refused(FloatingPointError, "loss became", "the bad one"):
            train(task, poisoned(), settings, quiet=True)
        return
    history = train(task, poisoned(), settings, quiet=True)
    assert history.n_skipped == 2 and all(torch.isfinite(p).all() for p in task.parameters())

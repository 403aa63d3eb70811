"""Where a model is trained and asked: by name, and never elsewhere than was asked for."""

import pickle

import numpy as np
import pytest
import torch

import romae
import training_job
from romae.config import override
from romae.training.config import TrainConfig, chosen_device
from romae.training.loop import _accelerator, train
from romae.training.process import process_as_before

ARRAYS = np.random.default_rng(0).normal(size=(8, 6, 1))


@pytest.fixture
def machine(monkeypatch):
    """A machine with as many GPUs as a test wants; returns those that were made the current one."""
    current: list[str] = []

    def with_gpus(n: int) -> list[str]:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: n > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: n)
        monkeypatch.setattr(torch.cuda, "set_device", current.append)
        return current

    return with_gpus


def test_auto_takes_a_gpu_where_there_is_one(machine):
    machine(0)
    assert chosen_device("auto") == chosen_device("cpu") == "cpu"
    machine(2)
    assert chosen_device("auto") == chosen_device("cuda") == "cuda" and chosen_device("cpu") == "cpu"


def test_a_gpu_with_a_number_becomes_the_current_one(machine):
    current = machine(2)
    assert chosen_device("cuda:1") == "cuda:1" and current == ["cuda:1"]


@pytest.mark.parametrize(
    ("n_gpus", "device", "parts"),
    [(0, "cuda", ("'cuda'", "no GPU", "'auto'")), (2, "cuda:2", ("'cuda:2'", "2 GPUs", "cuda:1"))],
)
def test_a_gpu_that_is_not_there_is_refused(n_gpus, device, parts, machine):
    machine(n_gpus)
    with pytest.raises(ValueError) as caught:
        chosen_device(device)
    assert all(part in str(caught.value) for part in parts)


def test_a_run_on_the_cpu_is_there_beside_a_gpu(machine):
    machine(1)
    with process_as_before(on_gpu=False):
        assert _accelerator(TrainConfig(device="cpu"), None).device.type == "cpu"


@pytest.mark.cuda
def test_a_run_is_where_it_was_asked_for_whatever_the_last_one_was():
    for device, kind in (("cpu", "cpu"), ("cuda:0", "cuda"), ("cpu", "cpu"), ("cuda", "cuda")):
        task = training_job.task()
        train(task, training_job.samples(), training_job.config("epochs=1", f"device={device}"), quiet=True)
        assert next(task.parameters()).device.type == kind


def test_processes_have_a_gpu_each(machine, monkeypatch):
    machine(2)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert chosen_device("cuda") == "cuda"
    with pytest.raises(ValueError) as caught:
        chosen_device("cuda:1")
    assert "'cuda'" in str(caught.value)


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:x", "tpu", ""])
def test_what_is_no_device_is_refused(device):
    for make in (lambda: romae.TrainConfig(device=device), lambda: override(romae.TrainConfig(), f"device={device!r}")):
        with pytest.raises(ValueError) as caught:
            make()
        assert repr(device) in str(caught.value) and "'cuda:1'" in str(caught.value)


def test_nothing_is_trained_on_another_device_than_was_asked_for(machine, tmp_path):
    machine(0)
    with pytest.raises(ValueError) as caught:
        train(training_job.task(), training_job.samples(), training_job.config("device=cuda"), out=tmp_path / "run")
    assert "'cuda'" in str(caught.value) and not (tmp_path / "run").exists()
    with pytest.raises(ValueError) as caught:
        romae.RoMAEEmbedder(device="cuda").fit(ARRAYS)
    assert "'cuda'" in str(caught.value)


def test_an_estimator_fitted_on_a_gpu_answers_where_there_is_none(machine):
    size = romae.Size(width=8, heads=2, depth=1)
    embedder = romae.RoMAEEmbedder(size=size, pretrain_epochs=1, device="cpu").fit(ARRAYS)
    machine(0)
    with pytest.warns(UserWarning) as caught:
        read = pickle.loads(pickle.dumps(embedder.set_params(device="cuda")))
    assert "CPU" in str(caught[0].message)
    assert np.array_equal(read.transform(ARRAYS), embedder.transform(ARRAYS))

"""Trackers get what the history gets."""

import json

import pytest
import torch

import training_job
from messages import refused
from romae.training.loop import train
from romae.training.run_folder import History


def tracked(tracker: str, folder, **arguments) -> History:
    config = training_job.config(f'trackers=["{tracker}"]', "epochs=3")
    samples = training_job.samples()
    return train(training_job.task(), samples, config, validation=samples[:4], out=folder, **arguments)


def series(history: History, name: str) -> list[tuple[int, float]]:
    return [(record["step"], record[name]) for record in history.records]


def test_tensorboard_holds_the_history(tmp_path):
    pytest.importorskip("tensorboard", reason="needs TensorBoard: pip install 'romae[tensorboard]'")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    history = tracked("tensorboard", tmp_path / "run")
    events = EventAccumulator(str(tmp_path / "run" / "romae")).Reload()
    assert len(history.records) == 3 and set(events.Tags()["scalars"]) == set(history.last) - {"step"}
    for name in events.Tags()["scalars"]:
        found = [(event.step, event.value) for event in events.Scalars(name)]
        assert found == [(step, torch.tensor(value).item()) for step, value in series(history, name)]


def test_weights_and_biases_holds_the_history_without_a_network(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="needs Weights & Biases: pip install 'romae[wandb]'")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    history = tracked("wandb", tmp_path / "run")
    (file,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    kept = file.read_bytes()
    for name in ("loss", "validation", "lr"):
        assert all(json.dumps(value).encode() in kept for _, value in series(history, name))


@pytest.fixture
def no_trackers(monkeypatch):
    monkeypatch.setattr("accelerate.tracking.get_available_trackers", list)


@pytest.mark.parametrize("tracker", ["tensorboard", "wandb"])
def test_a_tracker_that_is_missing_is_named_and_nothing_is_written(tmp_path, no_trackers, tracker):
    with refused(ValueError, f"'{tracker}'", "not installed", "pip install"):
        tracked(tracker, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("tracker", ["tensorboard", "wandb"])
def test_a_tracker_that_is_missing_names_the_extra(tmp_path, no_trackers, tracker):
    with refused(ValueError, f"pip install 'romae[{tracker}]'"):
        tracked(tracker, tmp_path / "run")

"""The loop: sums over real targets, whatever the ranks and pieces; resuming equals never having stopped."""

import contextlib
import errno
import hashlib
import json
import os
import random
import shutil
import signal
import socket
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch.testing import assert_close

import training_job
from messages import refused, warned
from romae.checkpoints import native as checkpoint
from romae.data.scaling import fit_scaling
from romae.data.series import from_arrays
from romae.data.sources import N_DIGEST, as_source, digest_of, evenly
from romae.inference.predictions import embed
from romae.model.config import ModelConfig, Size
from romae.model.tasks import Classification, MaskedReconstruction
from romae.tokens.augmentation import RandAugment
from romae.tokens.masking import UniformTokens
from romae.tokens.patches import grid_positions
from romae.tokens.sample import Sample
from romae.training.config import TrainConfig
from romae.training.loop import train
from romae.training.optim import WeightAverage, optimiser, parameter_groups, warmup_cosine
from romae.training.run_folder import RunFolder, State
from romae.training.validation import evaluate
from training_job import Job


def trained(*settings: str, **arguments):
    task = training_job.task()
    history = train(task, training_job.samples(), training_job.config(*settings), **arguments)
    return task, history


def assert_same_weights(one: torch.nn.Module, other: torch.nn.Module, **tolerance) -> None:
    for (name, a), (_, b) in zip(one.state_dict().items(), other.state_dict().items(), strict=True):
        assert_close(a, b, msg=lambda text, name=name: f"{name}: {text}", **(tolerance or {"rtol": 0, "atol": 0}))


# Learning


def test_a_run_learns_and_tells(tmp_path):
    lines = []
    task, history = trained(
        "epochs=12",
        "save_every=1000",
        validation=training_job.samples(),
        out=tmp_path / "run",
        log=lambda step, record: lines.append(step),
    )
    first, last = history.records[0], history.last
    assert last["loss"] < 0.7 * first["loss"] and last["validation"] < 0.7 * first["validation"]
    assert lines == [record["step"] for record in history.records] and last["step"] == 12 * 6
    written = [json.loads(line) for line in (tmp_path / "run" / "history.jsonl").read_text().splitlines()]
    assert written == history.records
    best = checkpoint.load(tmp_path / "run" / "best")
    assert_same_weights(best, task)
    again = evaluate(task, training_job.samples())
    assert again == pytest.approx(history.best["validation"], rel=1e-5)
    assert history.best["validation"] == min(record["validation"] for record in history.records)


def test_what_learning_nothing_gives_is_told_of_samples_of_all_classes(capsys):
    """Samples often lie class by class; the first hundreds would all be of one."""
    samples = [Sample(torch.randn(2, 1), torch.rand(2, 1), target=torch.tensor(i // 600)) for i in range(1200)]
    size = Size(width=8, heads=1, depth=1)
    task = Classification(ModelConfig(channels=1, position_dims=1, encoder=size), 2)
    train(task, samples, TrainConfig(epochs=1, batch_size=1200, device="cpu"))
    assert "trivial 0.6931" in capsys.readouterr().err


def test_a_gpu_without_64_bit_floats_is_left_alone(monkeypatch):
    """Accelerate would take that of a Mac, where no loss could be summed."""
    monkeypatch.setattr("accelerate.state.is_mps_available", lambda *_, **__: True)
    task, _ = trained("epochs=1", "device=auto")
    assert next(task.parameters()).device.type in ("cuda", "cpu")


def test_every_task_can_be_trained():
    data = [replace(s, target=i % 2) for i, s in enumerate(training_job.samples())]
    task = Classification(ModelConfig(channels=1, position_dims=1, encoder=Size(width=16, heads=2, depth=1)), 2)
    history = train(task, data, TrainConfig(epochs=2, device="cpu", optimiser="sgd", lr=0.1))
    assert history.last["loss"] < 1


@pytest.mark.parametrize("settings", [("accumulate=3",), ("workers=2",), ("batch_size=8", "save_every=5")])
def test_how_the_work_is_divided_does_not_matter(settings):
    assert_same_weights(trained()[0], trained(*settings)[0], rtol=1e-4, atol=1e-6)


def test_the_loss_is_divided_by_the_number_of_targets(monkeypatch):
    """One step over all samples equals a step by hand on the mean over all hidden elements."""
    data, config = training_job.samples(), training_job.config("epochs=1", "batch_size=100", "clip=none", "ema=none")
    config = replace(config, optimiser="sgd", momentum=0.0, weight_decay=0.0, warmup=0.0, lr=0.1, accumulate=3)
    task = training_job.task()
    history = train(task, data, config)
    by_hand = training_job.task()
    from romae.data.loader import Loader
    from romae.tokens.masking import SampleKeys

    batch = next(Loader(data, batch_size=100).epoch())
    loss = by_hand(by_hand.prepare(batch, SampleKeys(config.seed, 0, batch.indices)))
    loss.mean.backward()
    with torch.no_grad():
        for parameter in by_hand.parameters():
            parameter -= 0.1 * parameter.grad
    assert_same_weights(task, by_hand, rtol=1e-4, atol=1e-6)
    assert history.last["loss"] == pytest.approx(loss.mean.item(), rel=1e-5)


def test_sgd_has_momentum():
    """Under a constant gradient of 1, the second step is longer by the momentum."""
    layer = torch.nn.Linear(1, 1, bias=False)
    start = layer.weight.item()
    sgd = optimiser(layer, "sgd", lr=0.1, betas=(0.9, 0.95), momentum=0.7, weight_decay=0.0)
    for distance in (0.1, 0.1 + 0.1 * 1.7):
        layer.weight.grad = torch.ones(1, 1)
        sgd.step()
        assert layer.weight.item() == pytest.approx(start - distance)


def test_the_momentum_of_a_run_is_that_of_its_settings():
    settings = ("epochs=1", "optimiser=sgd")
    weights = [trained(*settings, f"momentum={m}")[0].head.linear.weight for m in (0.0, 0.9)]
    assert not torch.equal(*weights)


def test_the_seed_decides_everything():
    assert_same_weights(trained("seed=1")[0], trained("seed=1")[0])
    one, other = trained("seed=1")[0], trained("seed=2")[0]
    assert any(not torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_images_are_changed_in_training_and_nowhere_else():
    augment = RandAugment(n=1, magnitude=30, size=(4, 4), patch=(2, 2))
    config = ModelConfig(channels=12, position_dims=2, encoder=Size(width=16, heads=2, depth=1))
    random = torch.Generator().manual_seed(0)
    images = [Sample(torch.rand(4, 12, generator=random), grid_positions((2, 2)), target=i % 2) for i in range(16)]

    def learned(augment: RandAugment | None) -> tuple[Classification, float]:
        torch.manual_seed(0)
        task = Classification(config, 2, augment=augment)
        before = evaluate(task, images)
        train(task, images, TrainConfig(epochs=2, batch_size=4, device="cpu"))
        return task, before

    (changed, before), (again, _), (plain, expected) = learned(augment), learned(augment), learned(None)
    assert_same_weights(changed, again)
    assert before == expected
    assert not torch.equal(changed.head.linear.weight, plain.head.linear.weight)


def test_half_precision_trains_on_cpu_too():
    task, dtypes = training_job.task(), set()
    linear = next(module for module in task.modules() if isinstance(module, torch.nn.Linear))
    linear.register_forward_hook(lambda module, inputs, output: dtypes.add(output.dtype))
    history = train(task, training_job.samples(), training_job.config("precision=bf16", "epochs=5"))
    assert history.last["loss"] < history.records[0]["loss"] and dtypes == {torch.bfloat16}
    with refused(ValueError, "'fp16'", "GPU", "'bf16' or 'float32'"):
        trained("precision=fp16")


@pytest.mark.parametrize("end", ["as planned", "stopped", "refused"])
def test_a_precision_ends_with_its_run(tmp_path, end):
    """Else a second run in full precision would be one in bf16, and so would every loss that is asked for."""

    def stop(*_):
        raise RuntimeError("stop here")

    task, fresh = training_job.task(), training_job.task()
    how = {"stopped": {"log": stop}, "refused": {"out": tmp_path / "new", "resume": False}}.get(end, {})
    if end == "refused":
        trained("epochs=1", **how)  # which is there now
    with contextlib.nullcontext() if end == "as planned" else pytest.raises((RuntimeError, ValueError)):
        train(task, training_job.samples(), training_job.config("precision=bf16", "epochs=1"), **how)
    fresh.load_state_dict(task.state_dict())
    losses = [evaluate(one, training_job.samples()) for one in (task, fresh)]
    assert losses[0] == losses[1]


@pytest.mark.cuda
def test_fp16_leaves_out_steps_that_overflow_and_a_resumed_run_knows_its_scale(tmp_path):
    """On a GPU, where the loss is scaled; on a CPU it is not."""
    loud = [replace(one, values=300 * one.values) for one in training_job.samples()]
    config = training_job.config("precision=fp16", "n_states=99", "device=auto")

    def run(name: str, **how: bool) -> MaskedReconstruction:
        task = training_job.task()
        train(task, loud, config, out=tmp_path / name, **how)
        return task

    whole, states = run("whole"), sorted((tmp_path / "whole" / "states").iterdir())
    assert RunFolder(tmp_path / "whole").read().numbers["scaler"]["scale"] < 2**16  # what it begins with
    assert all(torch.isfinite(p).all() for p in whole.parameters())
    shutil.copytree(tmp_path / "whole", tmp_path / "again")
    for state in states[len(states) // 2 :]:
        shutil.rmtree(tmp_path / "again" / "states" / state.name)
    assert_same_weights(run("again", resume=True), whole, rtol=1e-3, atol=1e-5)


def test_patience_ends_a_run_that_no_longer_improves():
    data = training_job.samples()
    config = replace(training_job.config("epochs=50", "ema=none"), lr=1e-12, patience=3)
    history = train(training_job.task(), data, replace(config, lr=1e-30), validation=data)
    assert len(history.records) <= 6


def test_the_schedule_peaks_at_exactly_the_base_rate():
    shares = [warmup_cosine(step, n_steps=100, n_warmup=10) for step in range(100)]
    assert shares[10] == 1.0 == max(shares) and shares[9] < 1
    assert all(a < b for a, b in zip(shares[:10], shares[1:11], strict=True))
    assert all(a > b for a, b in zip(shares[10:], shares[11:], strict=False)) and 0 < shares[-1] < 1e-3
    assert warmup_cosine(100, n_steps=100, n_warmup=10) == 0
    assert warmup_cosine(0, n_steps=5, n_warmup=0) == 1


def test_vectors_do_not_decay():
    task = training_job.task()
    decayed, spared = (set(map(id, group["params"])) for group in parameter_groups(task, 0.05))
    names = {id(p): name for name, p in task.named_parameters()}
    assert {names[i] for i in spared} >= {"encoder.cls", "decoder.mask_token", "head.norm.weight", "head.linear.bias"}
    assert all(names[i].endswith("weight") and "norm" not in names[i] for i in decayed)


def test_embeddings_of_kinds_do_not_decay():
    task = MaskedReconstruction(replace(training_job.task().config, kinds=3))
    spared = set(map(id, parameter_groups(task, 0.05)[1]["params"]))
    assert {id(p) for kinds in (task.encoder.kinds, task.decoder.kinds) for p in kinds.parameters()} <= spared


def test_the_average_follows_the_weights():
    layer = torch.nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        layer.weight.fill_(1.0)
        average = WeightAverage(layer, 0.75)
        layer.weight.fill_(2.0)
    average.update()
    assert average.weights["weight"].item() == 1.25
    with average.applied():
        assert layer.weight.item() == 1.25
    assert layer.weight.item() == 2.0


# Guards


def poisoned() -> list[Sample]:
    data = training_job.samples()
    data[7] = Sample([[1e30], [1e30], [2e30]], [[0.0], [1.0], [2.0]], id="the bad one")
    return data


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_a_loss_that_is_no_number_stops_the_run_and_names_the_batch(tmp_path, precision):
    config = training_job.config("batch_size=1", "clip=none", f"precision={precision}")
    with refused(FloatingPointError, "loss became", "the bad one", "last state"):
        train(training_job.task(), poisoned(), config, out=tmp_path / "run")
    state = RunFolder(tmp_path / "run").read()
    assert all(torch.isfinite(x).all() for x in state.tensors["model"].values())


def test_bad_batches_can_be_left_out_and_counted():
    task, config = training_job.task(), training_job.config("batch_size=1", "nonfinite=skip", "epochs=2")
    history = train(task, poisoned(), config)
    assert history.n_skipped == 2
    assert all(torch.isfinite(p).all() for p in task.parameters())


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        (("epochs=0",), ["epochs", "at least 1"]),
        (("seed=-1",), ["seed", "at least 0"]),
        (("seed=9223372036854775808",), ["63 bits"]),
        (("lr=0",), ["lr must", "above 0"]),
        (("shard=true",), ["several processes"]),
        (("warmup=-1",), ["warmup"]),
        (("clip=0",), ["clip", "above 0"]),
        (("ema=1",), ["between 0 and 1"]),
        (("patience=2",), ["give validation samples"]),
        (('trackers=["crystal-ball"]',), ["'crystal-ball'", "not installed"]),
    ],
)
def test_settings_that_make_no_sense_get_a_sentence(settings, parts):
    with refused(ValueError, *parts):
        trained(*settings)


# Resuming


def test_a_torn_state_is_named_and_the_one_before_it_used(tmp_path):
    run = RunFolder(tmp_path, n_states=3)
    for step in (1, 2, 3):
        run.write(step, State({"model": {"w": torch.full((4,), float(step))}}, {"step": step}))
    newest = tmp_path / "states" / "00000003"
    whole = (newest / "model.safetensors").read_bytes()
    (newest / "model.safetensors").write_bytes(whole[:-1] + b"\x01")
    with warned(UserWarning, "00000003/model.safetensors", "is torn"):
        assert run.read().numbers["step"] == 2
    description = tmp_path / "states" / "00000002" / "state.json"
    description.write_text(description.read_text().replace('\\"step\\": 2', '\\"step\\": 9'))
    with warned(UserWarning, "00000002/state.json", "altered"):
        assert run.read().numbers["step"] == 1


def test_old_states_are_forgotten(tmp_path):
    run = RunFolder(tmp_path, n_states=2)
    for step in range(5):
        run.write(step, State({}, {"step": step}))
    assert [path.name for path in run.states()] == ["00000003", "00000004"]
    run.n_states = 1  # as a resumed run may have it
    run.sweep(4)
    assert [path.name for path in run.states()] == ["00000004"]


def names_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


LEFT = ("states/.ab_d5678", ".best-ab_d5678", ".last-ab_d5678", ".last-old-ab_d5678", ".history.jsonl-ab_d5678")


@pytest.mark.parametrize("is_begun", [True, False])
def test_what_killed_writes_left_is_swept_away_and_nothing_else(tmp_path, is_begun):
    """Of a run, or of one that was killed before its first state."""
    trained("epochs=1", out=tmp_path / "whole")
    if is_begun:
        trained("epochs=1", out=tmp_path / "run")
    for name in LEFT:
        if "old" in name and not is_begun:
            continue  # an older model is set aside when there is one
        (tmp_path / "run" / name).mkdir(parents=True)
        (tmp_path / "run" / name / "model.safetensors").write_bytes(b"torn")
    shutil.rmtree(tmp_path / "run" / LEFT[-1])
    (tmp_path / "run" / LEFT[-1]).write_text("torn")
    mine = {".best-of-mine", ".last-straw-of-mine", "states/.mine", "states/notes", "notes.txt"}
    for name in mine:
        (tmp_path / "run" / name).write_text("mine")
    trained("epochs=1", out=tmp_path / "run", resume=is_begun)
    assert names_in(tmp_path / "run") == names_in(tmp_path / "whole") | mine


def test_a_model_that_was_set_aside_when_a_run_was_killed_comes_back(tmp_path):
    run, task = RunFolder(tmp_path), training_job.task()
    run.claim()
    task.save(tmp_path / ".best-old-ab_d5678")
    task.save(tmp_path / "last")
    task.save(tmp_path / ".last-old-ab_d5678")
    run.sweep(step=0)
    run.release()
    assert names_in(tmp_path) - {"states", ".lock"} == {
        f"{name}{file}" for name in ("best", "last") for file in ("", "/config.json", "/model.safetensors")
    }


def test_states_are_in_the_order_of_their_steps_however_many_digits_these_have(tmp_path):
    run = RunFolder(tmp_path, n_states=2)
    for step in (99_999_998, 99_999_999, 100_000_000):
        run.write(step, State({}, {"step": step}))
    assert [path.name for path in run.states()] == ["99999999", "100000000"]
    assert run.read().numbers["step"] == 100_000_000


def broken_states() -> dict[str, bytes | None]:
    """What can become of a file of a state: bytes, or None where a folder is in its place."""
    outer = '{"digest": "%s", "body": %s}'
    return {
        "empty": b"",
        "cut short": b'{"digest": "ab',
        "no text": bytes(range(128, 256)),
        "a list": b"[]",
        "no description": b'{"body": null, "digest": "ab"}',
        "numbers for text": b'{"body": 5, "digest": 5}',
        "nested": b"[" * 100_000,
        "of another": (outer % ("0" * 64, '"{}"')).encode(),
        "without files": (outer % (hashlib.sha256(b"{}").hexdigest(), '"{}"')).encode(),
        "a folder": None,
    }


@pytest.mark.parametrize("name", ["state.json", "model.safetensors"])
@pytest.mark.parametrize("damage", broken_states())
def test_a_run_goes_back_over_a_state_that_is_damaged_in_any_way(tmp_path, damage, name):
    run = RunFolder(tmp_path)
    for step in (1, 2):
        run.write(step, State({"model": {"w": torch.full((4,), float(step))}}, {"step": step}))
    file, content = tmp_path / "states" / "00000002" / name, broken_states()[damage]
    file.unlink()
    file.mkdir() if content is None else file.write_bytes(content)
    with warned(UserWarning, f"00000002/{name}", "state before it"):
        assert run.read().numbers["step"] == 1
    run.sweep(step=1)
    assert [path.name for path in run.states()] == ["00000001"]  # or the damaged one would be kept as the newest


def test_a_run_of_which_no_state_is_whole_says_so_and_begins_anew(tmp_path):
    whole, _ = trained("epochs=1", out=tmp_path / "run")
    for state in (tmp_path / "run" / "states").iterdir():
        (state / "state.json").write_text("torn")
    with warned(UserWarning, "state.json", "begins anew"):
        again, _ = trained("epochs=1", out=tmp_path / "run", resume=True)
    assert_same_weights(again, whole)
    assert RunFolder(tmp_path / "run").read().numbers["step"] == 6


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), SafetensorError("I/O (os error 28)")])
def test_a_full_disk_leaves_the_last_state_whole(tmp_path, monkeypatch, error):
    run = RunFolder(tmp_path)
    run.write(1, State({"model": {"w": torch.ones(2)}}, {"step": 1}))

    def full(*_, **__):
        raise error

    monkeypatch.setattr("safetensors.torch.save_file", full)
    with refused(RuntimeError, "disk is full", "00000001", "resumed"):
        run.write(2, State({"model": {"w": torch.ones(2)}}, {"step": 2}))
    assert run.read().numbers["step"] == 1 and len(os.listdir(tmp_path / "states")) == 1


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such locks")
def test_no_two_processes_write_to_one_folder(tmp_path):
    job = Job(tmp_path / "run", seconds=0.5)
    while not (tmp_path / "run" / "config.json").exists():
        time.sleep(0.01)
    with refused(RuntimeError, "another process", str(tmp_path / "run"), "choose another"):
        trained(out=tmp_path / "run", validation=training_job.samples()[:9], resume=True)
    job.signal(signal.SIGKILL)
    job.ended()
    trained(out=tmp_path / "run", validation=training_job.samples()[:9], resume=True)


def test_no_two_runs_of_one_process_write_to_one_folder(tmp_path):
    steps = []

    def log(step, record):
        with refused(RuntimeError, "this process", str(tmp_path / "run"), "another folder"):
            trained("epochs=1", out=tmp_path / "run", resume=True)
        steps.append(step)

    train(training_job.task(), training_job.samples(), training_job.config(), out=tmp_path / "run", log=log, quiet=True)
    assert len(steps) == 4
    lines = [json.loads(line)["step"] for line in (tmp_path / "run" / "history.jsonl").read_text().splitlines()]
    assert lines == steps
    trained(out=tmp_path / "run", resume=True)


def test_a_run_is_resumed_on_no_other_samples_however_few_of_them_changed(tmp_path):
    data = training_job.samples()
    run = partial(train, config=training_job.config(), out=tmp_path, resume=True, quiet=True)
    run(training_job.task(), data)
    other = [*data[:6], replace(data[6], values=data[6].values + 1), *data[7:]]
    source, few = as_source(data), evenly(len(data), N_DIGEST)
    assert digest_of(as_source(other), few) == digest_of(source, few), "sample 6 is none of the few"
    with refused(ValueError, "other settings", "data.training", "new run"):
        run(training_job.task(), other)
    described = json.loads((tmp_path / "config.json").read_text())
    for read in (few, range(len(data))):  # as versions before this one wrote it down
        older = described | {"data": described["data"] | {"training": digest_of(source, read)}}
        (tmp_path / "config.json").write_text(json.dumps(older))
        run(training_job.task(), data)


@pytest.mark.parametrize("name", ["config.json", "data.json", "job.json"])
def test_a_run_writes_over_nothing_that_is_not_its_own(tmp_path, name):
    (tmp_path / name).write_text('{"mine": 1}')
    with refused(ValueError, name, "not of a run", "remove it"):
        trained("epochs=1", out=tmp_path)
    assert os.listdir(tmp_path) == [name]
    training_job.task().save(tmp_path / "model")
    with refused(ValueError, "holds a model", "new folder"):
        trained("epochs=1", out=tmp_path / "model")
    assert isinstance(checkpoint.load(tmp_path / "model"), MaskedReconstruction)


@pytest.mark.parametrize("name", ["best", "last"])
def test_a_folder_of_someone_in_the_place_of_a_model_is_found_before_training(tmp_path, name):
    (tmp_path / name).mkdir()
    (tmp_path / name / "notes.txt").write_text("mine")
    with refused(ValueError, name, "'notes.txt'", "choose an empty"):
        train(training_job.task(), training_job.samples(), training_job.config(), out=tmp_path, log=pytest.fail)
    assert os.listdir(tmp_path) == [name]


def test_a_folder_of_states_that_are_none_is_no_run(tmp_path):
    (tmp_path / "states").mkdir()
    (tmp_path / "states" / "notes.txt").write_text("mine")
    (tmp_path / "config.json").write_text("{}")
    with refused(ValueError, "config.json", "not of a run"):
        trained("epochs=1", out=tmp_path)


def test_a_refused_run_removes_its_own_files_and_no_other(tmp_path):
    (tmp_path / "figures").mkdir()
    for name in ("notes.txt", "figures/1.png"):
        (tmp_path / name).write_text("mine")
    before = names_in(tmp_path)
    with refused(ValueError, "nothing to learn"):
        train(training_job.task(), [Sample([[1.0]], [[0.0]])], training_job.config("epochs=1"), out=tmp_path)
    assert names_in(tmp_path) == before == {"notes.txt", "figures", "figures/1.png"}


@pytest.mark.parametrize("setting", ["workers=1", "n_states=1"])
def test_a_run_may_be_resumed_with_other_settings_that_change_no_result(tmp_path, setting):
    whole, _ = trained("epochs=1", out=tmp_path)
    again, _ = trained("epochs=1", setting, out=tmp_path, resume=True)
    assert_same_weights(again, whole)


def test_a_run_that_could_not_be_described_leaves_no_folder(tmp_path):
    class Nothing:
        def hidden(self, tokens, source=None):
            return torch.zeros(tokens.layout.n_tokens, dtype=torch.bool)

    task = MaskedReconstruction(training_job.task().config, masking=Nothing())
    with refused(ValueError, "cannot be saved"):
        train(task, training_job.samples(), training_job.config(), out=tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_refused_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    with refused(ValueError, "cannot write", "folder"):
        trained(out=tmp_path / "file" / "run")


def test_a_run_is_not_overwritten_and_not_resumed_with_other_settings(tmp_path):
    trained("epochs=1", out=tmp_path / "run")
    with refused(ValueError, "holds a run", "resume it"):
        trained("epochs=1", out=tmp_path / "run")
    with refused(ValueError, "other settings", "train.lr", "new run"):
        trained("epochs=1", "lr=0.5", out=tmp_path / "run", resume=True)
    with refused(ValueError, "where it is"):
        trained(resume=True)


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ("[]", ["lacks", "training or model"]),
        ('{"train": {}}', ["lacks", "training or model"]),
        ('{"train": {"hurry": true}, "model": {}}', ["unknown key", "'train.hurry'"]),
    ],
)
def test_settings_of_a_run_that_cannot_be_read_are_named(tmp_path, settings, parts):
    trained("epochs=1", out=tmp_path / "run")
    (tmp_path / "run" / "config.json").write_text(settings)
    with refused(ValueError, "config.json", *parts, "start a new"):
        trained("epochs=1", out=tmp_path / "run", resume=True)


def test_a_run_is_not_resumed_with_another_task_or_on_other_samples(tmp_path):
    samples, config = training_job.samples(), training_job.config("epochs=1")
    train(training_job.task(), samples, config, out=tmp_path / "run", quiet=True)
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    other = MaskedReconstruction(training_job.task().encoder, masking=UniformTokens(ratio=0.3))
    moved = [replace(sample, values=sample.values + 1) for sample in samples]
    hiding = [replace(sample, hidden=torch.arange(len(sample)) % 2 == 0) for sample in samples]
    for task, data, scaling, what in (
        (other, samples, None, "settings.masking.ratio"),
        (training_job.task(), moved, None, "data"),
        (training_job.task(), hiding, None, "data"),
        (training_job.task(), samples, fit_scaling(samples), "scaling"),
    ):
        with refused(ValueError, "other settings", f"({what}", "new run"):
            train(task, data, config, scaling=scaling, out=tmp_path / "run", resume=True, quiet=True)
    assert {path: path.read_bytes() for path in before} == before


def ranks(folder: Path, *settings: str, n_ranks: int, seconds: float = 0.0) -> list[Job]:
    if n_ranks == 1:
        return [Job(folder, *settings, seconds=seconds)]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "ACCELERATE_USE_CPU": "true"}
    shared |= {"WORLD_SIZE": str(n_ranks), "LOCAL_WORLD_SIZE": str(n_ranks)}
    return [
        Job(folder, *settings, seconds=seconds, **shared, RANK=str(rank), LOCAL_RANK=str(rank))
        for rank in range(n_ranks)
    ]


def finished(jobs: list[Job]) -> list[str]:
    codes, errors = zip(*(job.ended() for job in jobs), strict=True)
    assert set(codes) == {0}, errors
    return list(errors)


def kill_while_running(jobs: list[Job], chance: random.Random) -> None:
    for job in jobs:
        job.wait_until_ready()
    time.sleep(chance.uniform(0.3, 2.5))
    for job in jobs:
        job.signal(signal.SIGKILL)
    for job in jobs:
        job.ended()


@pytest.mark.slow
def test_the_workers_of_a_run_that_is_killed_end_with_it(tmp_path):
    job = Job(tmp_path / "run", "workers=1", seconds=0.3)
    while not any(tmp_path.glob("run/states/[0-9]*")):
        assert job.process.is_alive()
        time.sleep(0.05)
    workers = psutil.Process(job.process.pid).children(recursive=True)
    assert workers
    job.signal(signal.SIGKILL)
    _, alive = psutil.wait_procs(workers, timeout=30)
    assert not alive


@pytest.mark.slow
def test_a_run_goes_on_with_another_number_of_processes(tmp_path):
    """Begun by two with the weights spread out, and finished by one with workers."""
    kill_while_running(ranks(tmp_path / "two", "shard=true", n_ranks=2, seconds=0.2), random.Random(1))
    finished([Job(tmp_path / "two", "workers=1")])
    finished([Job(tmp_path / "one")])
    one, two = (
        [json.loads(x) for x in (tmp_path / name / "history.jsonl").read_text().splitlines()] for name in ("one", "two")
    )
    for a, b in zip(one, two, strict=True):
        assert a == pytest.approx(b, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("how", [(), ("shard=true", "accumulate=2")], ids=" ".join)
def test_two_ranks_learn_what_one_does(tmp_path, how):
    """Ragged samples, and a last batch of one sample, which only one rank can have; whole weights, or spread out."""
    settings = ("epochs=3", "clip=0.5")
    finished([Job(tmp_path / "one", *settings)])
    errors = finished(ranks(tmp_path / "two", *settings, *how, n_ranks=2))
    assert errors[0] and "step" not in errors[1]  # only the first rank speaks
    one, two = (
        [json.loads(x) for x in (tmp_path / name / "history.jsonl").read_text().splitlines()] for name in ("one", "two")
    )
    for a, b in zip(one, two, strict=True):
        assert a == pytest.approx(b, rel=1e-5)
    for name in ("best", "last"):
        a, b = (load_file(tmp_path / run / name / "model.safetensors") for run in ("one", "two"))
        for key in a:
            assert_close(a[key], b[key], rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_a_rank_that_dies_ends_the_others(tmp_path):
    first, second = ranks(tmp_path / "run", n_ranks=2, seconds=0.2)
    while not (tmp_path / "run" / "history.jsonl").exists():
        time.sleep(0.1)
    second.signal(signal.SIGKILL)
    code, error = first.ended(90)
    assert code != 0 and error.strip()
    second.ended()


@pytest.mark.cuda
def test_a_step_never_waits_for_the_device(tmp_path):
    data = training_job.samples() * 4
    config = replace(
        training_job.config("epochs=2", "batch_size=16"), device="auto", save_every=10**6, validate_every=10**6
    )
    task = MaskedReconstruction(training_job.task().config, masking=UniformTokens(ratio=0.5))
    from romae.training.loop import _Loop

    step, waits = _Loop._step, []

    def watched(self, *parts):
        torch.cuda.set_sync_debug_mode("error" if self.place.step > 2 else "default")
        try:
            return step(self, *parts)
        except RuntimeError as error:
            waits.append(str(error))
            raise
        finally:
            torch.cuda.set_sync_debug_mode("default")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Loop, "_step", watched)
        train(task, data, replace(config, precision="bf16"))
    assert not waits


def test_a_run_with_a_scaling_is_the_run_on_scaled_samples_and_its_task_keeps_the_scaling():
    random = torch.Generator().manual_seed(0)
    values = [5 + 40 * torch.randn(n, 1, generator=random) for n in (9, 6, 7, 8)]
    samples = from_arrays([x.numpy() for x in values], [torch.arange(float(len(x))).numpy() for x in values])
    scaling, config = fit_scaling(samples), TrainConfig(epochs=2, batch_size=2, lr=1e-3, device="cpu")
    one, other = training_job.task(), training_job.task()
    history = train(one, samples, config, validation=samples, scaling=scaling, quiet=True)
    scaled = samples.map(scaling.apply)
    assert train(other, scaled, config, validation=scaled, quiet=True).records == history.records
    assert (one.scaling, one.schema) == (scaling, samples.schema)
    assert (other.scaling, other.schema) == (None, samples.schema)
    with refused(ValueError, "has a scaling", "train with it"):
        train(one, samples, config, quiet=True)


def test_names_are_known_without_a_scaling():
    values, config = np.ones((4, 5, 2)), TrainConfig(epochs=1, device="cpu")
    size = Size(width=8, heads=1, depth=1)
    task = MaskedReconstruction(ModelConfig(channels=1, position_dims=2, encoder=size, decoder=size))
    train(task, from_arrays(values, tokens="scalars", channels=["a", "b"]), config, quiet=True)
    with refused(ValueError, "'a', 'b'"):
        embed(task, from_arrays(values[..., 1:], tokens="scalars", channels=["b"]))


def test_scaled_dates_are_not_kept_as_dates():
    dates = np.datetime64("2024-01-01") + np.arange(8).astype("timedelta64[D]")
    samples, task = from_arrays([np.ones((8, 1))] * 4, dates), training_job.task()
    scaling = fit_scaling(samples, origin="first", unit="gap")
    train(task, samples.map(scaling.apply), TrainConfig(epochs=1, device="cpu"), quiet=True)
    assert task.schema is None
    train(task, samples, TrainConfig(epochs=1, device="cpu"), scaling=scaling, quiet=True)
    assert task.schema == samples.schema


@pytest.mark.parametrize("n", [500, 1200])
def test_samples_of_which_nothing_can_be_hidden_are_refused_however_many_they_are(n):
    single = from_arrays([np.ones((1, 1))] * n)
    with refused(ValueError, "anything to predict"):
        train(training_job.task(), single, TrainConfig(epochs=1, device="cpu"), quiet=True)
    mixed = [*single[: n - 1], *from_arrays([np.ones((6, 1))])]
    assert train(training_job.task(), mixed, TrainConfig(epochs=1, device="cpu"), quiet=True).last["loss"] > 0


def test_names_that_a_task_has_are_kept_when_it_is_trained_on_others():
    samples = from_arrays([[[1.0], [2.0], [4.0]]] * 2, [[0.0, 1.0, 2.0]] * 2)
    task = training_job.task()
    task.schema = replace(samples.schema, time="hours")
    train(task, samples, TrainConfig(epochs=1, device="cpu"), scaling=fit_scaling(samples), quiet=True)
    assert task.schema.time == "hours"


def test_samples_of_which_nothing_can_be_hidden_are_refused_before_a_run_begins(tmp_path):
    several, single = training_job.samples(), [Sample([[1.0]], [[0.0]], id=i) for i in range(3)]
    config = training_job.config("epochs=1")
    with refused(ValueError, "nothing to learn", "anything to predict"):
        train(training_job.task(), single, config, quiet=True)
    with refused(ValueError, "validation samples", "judged"):
        train(training_job.task(), several, config, validation=single, out=tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()
    with refused(ValueError, "cannot be judged"):
        evaluate(training_job.task(), single)


def test_a_validation_loss_that_is_no_number_stops_the_run():
    far = [Sample([[1e30], [1e30]], [[0.0], [1.0]])]
    with refused(FloatingPointError, "validation loss", "no state"):
        train(training_job.task(), training_job.samples(), training_job.config(), validation=far, quiet=True)


def test_a_batch_that_is_left_out_has_no_report_and_the_run_goes_on():
    few = [Sample([[value], [value]], [[0.0], [1.0]]) for value in (1.0, 1e30, 2.0)]
    config = training_job.config("nonfinite=skip", "batch_size=1", "epochs=2", "validate_every=1", "ema=none")
    history = train(training_job.task(), few, config, quiet=True)
    assert history.n_skipped == 2 and len(history.records) == 4
    assert all(record["loss"] > 0 for record in history.records)


def test_a_run_in_which_every_batch_is_left_out_stops():
    far = [Sample([[1e30]] * 5, [[float(i)] for i in range(5)], id=i) for i in range(8)]
    config = training_job.config("nonfinite=skip", "batch_size=4", "epochs=2", "ema=none")
    with refused(FloatingPointError, "no loss", "4 batches"):
        train(training_job.task(), far, config, quiet=True)


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"weight_decay": -5.0}, ["weight_decay", "at least 0", "not -5.0"]),
        ({"weight_decay": float("nan")}, ["weight_decay", "at least 0"]),
        ({"warmup": float("inf")}, ["warmup", "steps or a share"]),
        ({"betas": (1.5, 0.9)}, ["betas", "below 1"]),
        ({"momentum": -1.0}, ["momentum", "below 1"]),
        ({"tokens_per_batch": 0}, ["tokens_per_batch", "at least 1"]),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, parts):
    with refused(ValueError, *parts):
        TrainConfig(**settings)


def test_a_worker_complains_as_the_loop_would():
    samples = [Sample([[1.0]], [[0.0]], target=0) for _ in range(600)]
    samples[-1] = replace(samples[-1], target=torch.tensor(7))
    size = Size(width=16, heads=2, depth=1)
    said = []
    for workers in (0, 1):
        task = Classification(ModelConfig(channels=1, position_dims=1, encoder=size, decoder=size), 2)
        with refused(ValueError, "classes", "0 to 1") as caught:
            train(task, samples, TrainConfig(epochs=1, batch_size=64, workers=workers, device="cpu"), quiet=True)
        said.append(str(caught.value))
    assert said[0] == said[1]

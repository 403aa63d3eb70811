"""Long jobs: samples scaled many at a time and answers of fixed shapes are those of batches as they come."""

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import romae
from messages import refused, warned
from romae.data.schema import Schema
from romae.inference import long_jobs, recordings, shapes
from romae.inference.long_jobs import answering
from romae.inference.predictions import TOKENS_PER_BATCH
from romae.inference.recordings import can_be_recorded, recorder_of
from romae.inference.shapes import class_of_samples, classes_of
from romae.inference.streaming import ROWS_PER_PART
from romae.model.config import ModelConfig, Size
from romae.model.tasks import Classification, MaskedReconstruction, MultiLabel, Regression

FEWEST_BATCHES = shapes.FEWEST_BATCHES  # before tests make it smaller
SIZE = Size(width=16, heads=2, depth=1)
CONFIG = ModelConfig(channels=1, position_dims=2, encoder=SIZE, decoder=SIZE, kinds=3, cls=False)
WITH_CLS = replace(CONFIG, cls=True)
SCHEMA = Schema(id="star", time="day", channel="band", channels=("g", "r", "i"), values=("flux",))
BUDGET = 256
TASKS = {
    "classification": lambda: Classification(CONFIG, 4),
    "calibrated classification": lambda: Classification(
        WITH_CLS, 3, confidence=0.9, calibration=romae.model.calibration.Calibration(bias=(0.1, 0.0, -0.1))
    ),
    "labels": lambda: MultiLabel(CONFIG, 3),
    "numbers": lambda: Regression(WITH_CLS, 2),
}


@pytest.fixture(autouse=True)
def small_slabs(monkeypatch):
    """Several slabs, and shapes from a batch or two on."""
    monkeypatch.setattr(long_jobs, "TOKENS_PER_SLAB", 1500)
    monkeypatch.setattr(long_jobs, "FEWEST_BATCHES", 2)
    monkeypatch.setattr(shapes, "FEWEST_BATCHES", 2)


def curves(n=150, longest=60, seed=0, equal=False):
    random = np.random.default_rng(seed)
    samples = []
    for i in range(n):
        k = longest if equal else int(random.integers(1, longest + 1))
        times = np.sort(random.uniform(5e4, 5.01e4, k))
        positions = np.stack([times, random.integers(0, 3, k)], 1)
        samples.append(romae.Sample(50 * random.normal(size=(k, 1)), positions, id=f"s{i}", schema=SCHEMA))
    return samples


def ready(task, samples=None, **settings):
    torch.manual_seed(0)
    for parameter in task.parameters():  # heads that begin with zeros would tell nothing of what comes before
        torch.nn.init.normal_(parameter, std=0.3)
    target = isinstance(task, Regression)
    task.scaling = romae.fit_scaling(samples or curves(), origin=("first", "none"), **settings)
    if target:
        task.scaling = replace(task.scaling, target_mean=(1.0, 2.0), target_scale=(3.0, 4.0))
    return task


def asked(task, samples, **how):
    how = {"tokens_per_batch": BUDGET} | how
    if isinstance(task, Classification | MultiLabel):
        return romae.predict_proba(task, samples, **how)
    return romae.predict(task, samples, **how)


@pytest.mark.parametrize("equal", [False, True], ids=["ragged", "equal"])
@pytest.mark.parametrize("name", TASKS)
def test_fixed_shapes_give_the_answers_of_batches_as_they_come(name, equal):
    task, samples = ready(TASKS[name]()), curves(equal=equal)
    expected = asked(task, samples)
    for graph in (True, False):
        with answering(slabs=True, graph=graph):
            found = asked(task, samples)
            assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
            assert_allclose(romae.embed(task, samples, tokens_per_batch=BUDGET), romae.embed(task, samples), atol=1e-4)
    assert recorder_of(task).recorded, "shapes were played"


@pytest.mark.parametrize("center", ["global", "sample", "instance"])
@pytest.mark.parametrize("likelihood", [None, "mixture"])
@pytest.mark.parametrize("cls", [False, True])
def test_queries_in_fixed_shapes_have_the_values_of_those_that_come(likelihood, center, cls):
    task = ready(MaskedReconstruction(replace(CONFIG, cls=cls), likelihood=likelihood), center=center)
    samples, random = curves(), np.random.default_rng(1)
    counts = random.integers(0, 31, len(samples))
    queries = [np.column_stack([random.uniform(5e4, 5.01e4, k), random.integers(0, 3, k)]) for k in counts]
    expected = romae.interpolate(task, samples, queries, tokens_per_batch=BUDGET)
    for graph in (True, False):
        with answering(slabs=True, graph=graph):
            found = romae.interpolate(task, samples, queries, tokens_per_batch=2 * BUDGET)
        assert [len(x) for x in found] == counts.tolist()
        for one, other in zip(found, expected, strict=True):
            assert_allclose(one, other, rtol=1e-3, atol=1e-3)
    assert recorder_of(task).recorded


def test_neither_the_order_of_samples_nor_the_size_of_batches_changes_answers():
    task, samples = ready(TASKS["classification"]()), curves()
    order = np.random.default_rng(3).permutation(len(samples))
    with answering(slabs=True):
        found = asked(task, samples)
        assert_allclose(asked(task, [samples[i] for i in order]), found[order], atol=1e-6)
        for budget in (100, 700, 5000):
            assert_allclose(asked(task, samples, tokens_per_batch=budget), found, atol=1e-6)
        assert_allclose(asked(task, samples[:1]), found[:1], atol=1e-6)


def test_grids_that_all_samples_share_are_read_once(monkeypatch):
    task, samples = ready(MaskedReconstruction(CONFIG)), curves(40)
    n_read = 0
    read = romae.inference.predictions._read_positions

    def counted(*parts, **more):
        nonlocal n_read
        n_read += 1
        return read(*parts, **more)

    monkeypatch.setattr("romae.inference.predictions._read_positions", counted)
    grid = np.array([[5e4, 0.0], [5.005e4, 2.0]])
    found = romae.interpolate(task, samples, [grid] * 40)
    assert n_read == 1
    with answering(slabs=True):
        again = romae.interpolate(task, samples, [grid.copy() for _ in range(40)], tokens_per_batch=BUDGET)
    assert n_read == 1, "arrays of numbers are read all at once"
    assert_allclose(np.stack(again), np.stack(found), rtol=1e-4, atol=1e-4)


def test_what_samples_hide_is_not_shown():
    task, samples = ready(TASKS["classification"]()), curves(60)
    hiding = [
        replace(sample, hidden=np.arange(len(sample)) == 0) if len(sample) > 1 and i % 2 else sample
        for i, sample in enumerate(samples)
    ]
    with answering(slabs=True):
        assert_allclose(asked(task, hiding), asked(task, hiding), atol=0)
        found = asked(task, hiding)
    assert_allclose(found, asked(task, hiding), atol=1e-6)


def test_errors_name_the_sample_and_warnings_count_all():
    task, samples = ready(TASKS["classification"]()), curves()
    wrong = list(samples)
    wrong[70] = romae.Sample([[1.0]], [[5e4, 7.0]], id="odd one")
    with answering(slabs=True), refused(ValueError, "odd one"):
        asked(task, wrong)
    far = [replace(sample, values=sample.values * 1e4) for sample in samples]
    with answering(slabs=True), warned(UserWarning, "far outside"):
        found = asked(task, far)
    with warned(UserWarning, "far outside"):
        assert_allclose(found, asked(task, far), atol=1e-6)
    grid = [np.array([[1e300, 0.0]])] * len(samples)
    filler = ready(MaskedReconstruction(CONFIG))
    for slabs in (True, False):
        with answering(slabs=slabs), pytest.raises(ValueError, match="finite|too far"):
            romae.interpolate(filler, samples, grid, tokens_per_batch=BUDGET)


def test_hooks_adapters_and_methods_of_a_users_own_are_called():
    task, samples, seen = ready(TASKS["classification"]()), curves(), []
    expected = asked(task, samples)
    handle = task.head.register_forward_hook(lambda module, inputs, output: seen.append(len(output)))
    with answering(slabs=True):
        assert not can_be_recorded(task)
        assert_allclose(asked(task, samples), expected, atol=1e-6)
        assert sum(seen) == len(samples), "each sample once, and no filler"
        handle.remove()
        assert can_be_recorded(task)

        class Adapter(torch.nn.Linear):
            pass

        task.head.linear.__class__ = Adapter
        assert not can_be_recorded(task)

    class Own(Classification):
        def predict(self, batch):
            assert batch.ids  # a batch as it always was
            return super().predict(batch) * 0

    own = ready(Own(CONFIG, 2))
    with answering(slabs=True):
        assert_allclose(asked(own, samples), 0.5)


def test_weights_that_change_in_their_place_are_read_and_others_recorded_anew():
    task, samples = ready(TASKS["classification"]()), curves()
    with answering(slabs=True):
        asked(task, samples)
        first = list(recorder_of(task).recorded.values())
        with torch.no_grad():
            task.head.linear.weight.mul_(-1)
        assert_allclose(asked(task, samples), _as_they_come(task, samples), atol=1e-6)
        assert set(map(id, first)) <= set(map(id, recorder_of(task).recorded.values()))
        task.head.linear.weight = torch.nn.Parameter(task.head.linear.weight.detach().clone())
        assert_allclose(asked(task, samples), _as_they_come(task, samples), atol=1e-6)
        assert not set(map(id, recorder_of(task).recorded.values())) & set(map(id, first))


def _as_they_come(task, samples):
    with answering(slabs=False):
        return asked(task, samples)


def test_a_shape_that_cannot_be_recorded_is_answered_as_it_comes(monkeypatch):
    task, samples = ready(TASKS["classification"]()), curves()

    def fails(self, ask, pool):
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    monkeypatch.setattr(recordings.Recorded, "record", fails)
    with answering(slabs=True), warned(UserWarning, "CUDA graph", "not permitted"):
        found = asked(task, samples)
    assert_allclose(found, asked(task, samples), atol=1e-6)
    with answering(slabs=True):
        assert_array_equal(asked(task, samples), found)  # and not tried again


def test_two_threads_do_not_share_the_memory_of_a_recording():
    task, samples = ready(TASKS["classification"]()), curves()
    expected, found = asked(task, samples), []

    def ask():
        with answering(slabs=True):
            found.append(asked(task, samples))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    for one in found:
        assert_allclose(one, expected, atol=1e-6)
    assert not recorder_of(task).lock.locked()


def test_recordings_go_with_their_task():
    task = ready(TASKS["classification"]())
    n = len(recordings._RECORDERS)
    with answering(slabs=True):
        asked(task, curves())
    assert len(recordings._RECORDERS) == n + 1
    del task
    import gc

    gc.collect()
    assert len(recordings._RECORDERS) <= n


counts = st.lists(st.integers(1, 300), min_size=1, max_size=400)


@given(counts, st.booleans(), st.integers(64, 3000), st.data())
@settings(deadline=None, max_examples=80)
def test_every_sample_is_in_one_batch_that_fits_its_shape(sizes, cls, budget, data):
    sizes = np.sort(np.array(sizes, dtype=np.int64))
    queries = None
    if data.draw(st.booleans()):
        most = data.draw(st.integers(1, 40))
        queries = np.array(data.draw(st.lists(st.integers(1, most), min_size=len(sizes), max_size=len(sizes))))
    classes = classes_of(sizes, queries, budget, cls=cls)
    chosen = class_of_samples(classes, sizes, queries)
    for number, one in enumerate(classes):
        mine = chosen == number
        if not mine.any():
            continue
        own, asked = sizes[mine], None if queries is None else queries[mine]
        end = 0
        for start, stop, layout, more in one.cuts(own, asked):
            assert start == end and layout.n_samples == one.shape.n_samples
            assert layout.lengths[: stop - start].tolist() == own[start:stop].tolist()
            assert layout.n_tokens == one.shape.tokens.n_tokens and layout.longest <= one.shape.tokens.longest
            if asked is not None:
                assert more.lengths[: stop - start].tolist() == asked[start:stop].tolist()
                assert more.n_tokens == one.shape.hidden.n_tokens
            end = stop
        assert end == len(own)
        n_seen = one.shape.tokens.n_tokens + (0 if queries is None else one.shape.hidden.n_tokens)
        assert n_seen <= budget + 16


def test_shapes_follow_from_classes_of_length_not_from_the_samples():
    random = np.random.default_rng(0)
    first, second = (np.sort(random.integers(20, 221, 20_000)) for _ in range(2))
    found = classes_of(first, None, 32_768, cls=False)
    assert found == classes_of(second, None, 32_768, cls=False)
    assert [one.longest for one in found] == [64, 128, 256]
    waste = [
        sum(one.shape.tokens.n_tokens for _ in one.cuts(first[class_of_samples(found, first, None) == i], None))
        for i, one in enumerate(found)
    ]
    assert sum(waste) < 1.1 * first.sum()


def test_a_small_job_is_answered_as_it_comes():
    task, samples = ready(TASKS["classification"]()), curves(5)
    asked(task, samples)
    assert task not in recordings._RECORDERS
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    assert not long_jobs.is_long(cpu, 10**9, 32_768, "bf16")
    assert long_jobs.is_long(cuda, 10**9, 32_768, "bf16")
    assert not long_jobs.is_long(cuda, 10**4, 32_768, "bf16")
    assert not long_jobs.is_long(cuda, 10**9, 32_768, "float32"), "the card is what takes the time"
    with answering(slabs=True):
        assert long_jobs.is_long(cuda, 10**9, 32_768, "float32")
        assert not long_jobs.is_long(cuda, 10**4, 32_768, "float32")
        assert long_jobs.is_long(cpu, 10**4, 32_768, "float32")
    with answering(slabs=False):
        assert not long_jobs.is_long(cuda, 10**9, 32_768, "bf16")


def test_parts_of_a_long_table_are_long_jobs():
    assert ROWS_PER_PART >= FEWEST_BATCHES * TOKENS_PER_BATCH


# On a GPU


@pytest.mark.cuda
@pytest.mark.parametrize("compile", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
@pytest.mark.parametrize("name", TASKS)
def test_recorded_answers_are_those_of_batches_that_come(name, precision, compile, without_shape_checks):
    task, samples = ready(TASKS[name]()).to("cuda"), curves(400)
    how = {"tokens_per_batch": 1024, "precision": precision}
    with answering(slabs=False):
        expected = asked(task, samples, **how)
    with answering(slabs=True, graph=True, compile=compile):
        found, again = asked(task, samples, **how), asked(task, samples[::-1], **how)[::-1]
        assert any(one is not None and one.captured for one in recorder_of(task).recorded.values())
    tolerance = {"float32": 1e-5, "tf32": 5e-3, "bf16": 2e-2}[precision] * max(np.abs(expected).max(), 1)
    assert_allclose(found, expected, atol=tolerance)
    assert_allclose(again, found, atol=tolerance)


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
@pytest.mark.parametrize("center", ["global", "instance"])
def test_recorded_values_are_those_of_batches_that_come(center, precision):
    task = ready(MaskedReconstruction(CONFIG), center=center).to("cuda")
    samples, random = curves(400), np.random.default_rng(1)
    queries = [np.column_stack([random.uniform(5e4, 5.01e4, 8), random.integers(0, 3, 8)]) for _ in samples]
    how = {"tokens_per_batch": 1024, "precision": precision}
    with answering(slabs=False):
        expected = np.concatenate(romae.interpolate(task, samples, queries, **how))
    with answering(slabs=True):
        found = np.concatenate(romae.interpolate(task, samples, queries, **how))
        assert any(one is not None and one.captured for one in recorder_of(task).recorded.values())
    tolerance = {"float32": 1e-5, "tf32": 5e-3, "bf16": 3e-2}[precision]
    assert_allclose(found, expected, atol=tolerance * np.abs(expected).max())


@pytest.mark.cuda
def test_recordings_read_weights_that_training_has_changed():
    task, samples = ready(TASKS["classification"]()).to("cuda"), curves(400)
    with answering(slabs=True):
        before = asked(task, samples, tokens_per_batch=1024)
        with torch.no_grad():
            for parameter in task.parameters():
                parameter.mul_(0.5)
        after = asked(task, samples, tokens_per_batch=1024)
    with answering(slabs=False):
        assert_allclose(after, asked(task, samples, tokens_per_batch=1024), atol=2e-2)
    assert np.abs(after - before).max() > 1e-3

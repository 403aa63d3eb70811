"""A batch filled up to a fixed size gives the loss and the gradients of the batch as it was."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from romae.data.sources import InMemory
from romae.model.config import ModelConfig, Size
from romae.model.tasks import Classification, MaskedReconstruction, Regression, Task
from romae.tokens.masking import SampleKeys, UniformTokens
from romae.tokens.sample import Sample
from romae.tokens.tokens import Batch, collate
from romae.training.batches import _with_values
from romae.training.fixed_shape import DeviceBuffer, FixedShape, FlatBatch

CONFIG = ModelConfig(
    channels=2, position_dims=1, encoder=Size(width=16, heads=2, depth=2), decoder=Size(width=8, heads=1, depth=1)
)
TASKS = {
    "reconstruction": lambda: MaskedReconstruction(CONFIG, masking=UniformTokens(ratio=0.5)),
    "joint reconstruction": lambda: MaskedReconstruction(replace(CONFIG, queries="joint", cls=False)),
    "classification": lambda: Classification(CONFIG, 3, confidence=0.9),
    "classification by the mean": lambda: Classification(replace(CONFIG, cls=False), 3),
    "regression": lambda: Regression(CONFIG, 1),
    "regression per token": lambda: Regression(CONFIG, 1, per="token"),
}


def prepared(task: Task, lengths: list[int], seed: int = 0) -> Batch:
    random = torch.Generator().manual_seed(seed)
    samples = []
    for n in lengths:
        values = torch.randn(n, 2, generator=random)
        target = {True: values[:, :1], False: n % 3}[isinstance(task, Regression) and task.per == "token"]
        samples.append(Sample(values, torch.rand(n, 1, generator=random) * 9, target=target, id=n))
    return task.prepare(collate(samples), torch.Generator().manual_seed(1))


def loss_and_gradients(task: Task, batch: Batch) -> list[torch.Tensor]:
    task.zero_grad()
    loss = task(batch)
    loss.mean.backward()
    return [loss.total.detach(), loss.weight, *(p.grad.clone() for p in task.parameters())]


@pytest.mark.parametrize("lengths", [[7, 3, 12, 5], [6, 6, 6], [9]], ids=["ragged", "equal", "one"])
@pytest.mark.parametrize("name", TASKS)
def test_fillers_change_neither_loss_nor_gradients(name, lengths):
    torch.manual_seed(0)
    task = TASKS[name]()
    batches = [prepared(task, lengths, seed) for seed in range(3)]
    capacity = FixedShape.around(batches, n_samples=len(lengths) + 1, longest=12)
    filled = capacity.filled(batches[0])
    assert filled is not None and filled.tokens.layout.n_tokens == capacity.tokens.n_tokens
    expected, found = loss_and_gradients(task, batches[0]), loss_and_gradients(task, filled)
    assert_close(found, expected, rtol=1e-4, atol=1e-6, check_dtype=False)
    buffer = DeviceBuffer(capacity, filled, torch.device("cpu"))
    buffer.load(FlatBatch.of(filled, n_tokens=0))
    assert_close(loss_and_gradients(task, buffer.batch), expected, rtol=1e-4, atol=1e-6, check_dtype=False)


def test_a_buffer_holds_whatever_was_copied_last():
    torch.manual_seed(0)
    task = TASKS["reconstruction"]()
    batches = [prepared(task, lengths, seed=5) for lengths in ([7, 3, 12, 5], [12, 4], [9, 9, 9, 2])]
    capacity = FixedShape.around(batches, n_samples=4, longest=12)
    filled = [capacity.filled(batch) for batch in batches]
    buffer = DeviceBuffer(capacity, filled[0], torch.device("cpu"))
    for batch, one in zip(batches, filled, strict=True):
        buffer.load(FlatBatch.of(one, n_tokens=0))
        assert_close(task(buffer.batch).mean, task(batch).mean)
    assert buffer.batch.tokens.layout.is_fixed


@given(st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=8), min_size=1, max_size=6))
@settings(deadline=None, max_examples=50)
def test_what_a_capacity_was_made_around_fits_unless_it_is_unlike_the_rest(batches):
    task = TASKS["reconstruction"]()
    made = [prepared(task, [n + 1 for n in lengths]) for lengths in batches]
    capacity = FixedShape.around(made, n_samples=8, longest=31)
    for batch in made:
        filled = capacity.filled(batch)
        if filled is None:
            continue
        assert filled.tokens.layout.n_tokens == capacity.tokens.n_tokens
        assert filled.hidden.layout.n_tokens == capacity.hidden.n_tokens
        assert len(filled) == capacity.n_samples and int(filled.real.sum()) == len(batch)
        assert filled.tokens.layout.longest <= capacity.tokens.longest
        assert int(filled.tokens.layout.lengths.min()) >= 1
    largest = max(made, key=lambda batch: batch.tokens.layout.n_tokens)
    assert capacity.filled(largest) is not None


def test_batches_that_are_equal_within_and_not_among_each_other_all_fit():
    task = TASKS["classification"]()
    batches = [prepared(task, lengths) for lengths in ([3, 3], [5, 5])]
    capacity = FixedShape.around(batches, n_samples=2, longest=5)
    assert not capacity.tokens.is_equal
    assert all(capacity.filled(batch) is not None for batch in batches)


def test_samples_that_show_as_many_tokens_and_hide_fewer_or_more_fit():
    """There are fillers where visible or hidden tokens ask for them, for a filler has both."""
    batch = prepared(TASKS["reconstruction"](), [5, 6])
    assert batch.tokens.layout.is_equal and not batch.hidden.layout.is_equal
    assert FixedShape.around([batch], n_samples=2, longest=6).filled(batch) is not None


def test_a_batch_that_hides_nothing_has_no_place_in_a_shape_with_hidden_tokens():
    """Samples of a classifier may hide tokens of their own, those of one batch and not those of another."""
    values, positions = torch.ones(4, 2), torch.arange(4.0)[:, None]
    hiding = collate([Sample(values, positions, target=1, hidden=[False, True, False, False])])
    plain = collate([Sample(values[:3], positions[:3], target=1)])
    capacity = FixedShape.around([hiding, plain], n_samples=1, longest=4)
    assert capacity.filled(hiding) is not None and capacity.filled(plain) is None


def test_targets_of_tokens_are_told_from_targets_of_samples_where_a_batch_has_single_tokens():
    task = TASKS["regression per token"]()
    batches = [prepared(task, lengths) for lengths in ([1, 1, 1], [4, 2, 1])]
    capacity = FixedShape.around(batches, 3, 4)
    assert capacity.is_target_per_token
    assert not FixedShape.around([prepared(TASKS["regression"](), [4, 2, 1])], 3, 4).is_target_per_token
    filled = capacity.filled(batches[1])
    assert len(filled.target) == filled.tokens.layout.n_tokens


def test_a_batch_that_is_too_large_is_not_squeezed_in():
    task = TASKS["classification"]()
    capacity = FixedShape.around([prepared(task, [5, 7])], n_samples=2, longest=9)
    assert capacity.filled(prepared(task, [5, 7])) is not None
    assert capacity.filled(prepared(task, [5, 7, 6])) is None
    assert capacity.filled(prepared(task, [5, 40])) is None


@pytest.mark.parametrize("name", TASKS)
def test_a_batch_that_names_the_rows_of_its_values_is_the_batch_that_holds_them(name):
    torch.manual_seed(0)
    task = TASKS[name]()
    is_per_token = name == "regression per token"
    samples = [
        Sample(torch.randn(n, 2), torch.rand(n, 1), target=torch.rand(n, 1) if is_per_token else n % 3, id=n)
        for n in (7, 3, 12, 5, 9)
    ]
    held = InMemory(samples)
    indices = [np.array(chosen) for chosen in ([4, 0, 2], [1, 3, 2])]

    def batches(by_row: bool) -> list[Batch]:
        keys = [SampleKeys(0, 1, torch.from_numpy(chosen)) for chosen in indices]
        chosen_batches = [held.batch(chosen, by_row=by_row) for chosen in indices]
        return [task.prepare(batch, key) for batch, key in zip(chosen_batches, keys, strict=True)]

    whole, numbered = batches(by_row=False), batches(by_row=True)
    gather = held.values_on(torch.device("cpu"))
    capacity = FixedShape.around(numbered, n_samples=3, longest=12)
    filled = [capacity.filled(batch) for batch in numbered]
    buffer = DeviceBuffer(capacity, filled[0], torch.device("cpu"), gather)
    for expected, rows, one in zip(whole, numbered, filled, strict=True):
        assert rows.tokens.values.shape[1] == 0 and rows.tokens.rows.dtype == torch.int32
        assert_close(task(_with_values(rows, gather)).mean, task(expected).mean, rtol=0, atol=0)
        buffer.load(FlatBatch.of(one, n_tokens=0))
        assert_close(task(buffer.batch).mean, task(expected).mean)

"""Weights of samples: a sample of weight 2 is the sample twice, one of weight 0 is not there, and ones are nothing."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from messages import refused
from romae.data.scaling import fit_scaling
from romae.data.sources import as_source
from romae.data.store import write_store
from romae.inference.calibration import calibration_of
from romae.inference.predictions import predict_proba
from romae.model.calibration import fitted
from romae.model.config import ModelConfig, Size
from romae.model.tasks import Classification, MaskedReconstruction, Regression, Task
from romae.tokens.sample import Sample
from romae.tokens.tokens import collate
from romae.training.config import TrainConfig
from romae.training.fixed_shape import DeviceBuffer, FixedShape, FlatBatch
from romae.training.loop import train
from romae.training.validation import evaluate

SIZE = Size(width=16, heads=2, depth=1)
CONFIG = ModelConfig(channels=2, position_dims=1, encoder=SIZE, decoder=SIZE)
TASKS = {
    "reconstruction": lambda: MaskedReconstruction(CONFIG),
    "classification": lambda: Classification(CONFIG, 3, confidence=0.9),
    "regression": lambda: Regression(CONFIG, 2),
    "regression per token": lambda: Regression(CONFIG, 1, per="token"),
}
TIMES = [2, 1, 3, 0, 1, 2]


def samples(task: Task, n: int = 6) -> list[Sample]:
    """Samples that hide tokens themselves where the task predicts such, so that nothing is drawn."""
    random = np.random.default_rng(0)
    made = []
    for i in range(n):
        length = int(random.integers(4, 9))
        values, times = random.normal(size=(length, 2)), np.sort(random.uniform(0, 9, (length, 1)), axis=0)
        target = {"Classification": i % 3, "MaskedReconstruction": None}.get(type(task).__name__, [0.1 * i, -1.0 * i])
        if isinstance(task, Regression) and task.per == "token":
            target = values[:, :1]
        hidden = np.arange(length) % 2 == 0 if isinstance(task, MaskedReconstruction) else None
        made.append(Sample(values, times, target=target, id=i, hidden=hidden))
    return made


def weighted(made: list[Sample], weights) -> list[Sample]:
    return [replace(sample, weight=weight) for sample, weight in zip(made, weights, strict=True)]


def repeated(made: list[Sample], times=TIMES) -> list[Sample]:
    return [sample for sample, n in zip(made, times, strict=True) for _ in range(n)]


def loss_and_gradients(task: Task, made: list[Sample]) -> list[torch.Tensor]:
    task.zero_grad()
    loss = task(collate(made)).mean
    loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in task.parameters() if p.grad is not None)]


@pytest.fixture(params=TASKS)
def task(request) -> Task:
    torch.manual_seed(0)
    return TASKS[request.param]()


def test_an_integer_weight_is_the_sample_so_many_times_and_0_is_none_of_it(task):
    made = samples(task)
    assert_close(loss_and_gradients(task, weighted(made, TIMES)), loss_and_gradients(task, repeated(made)))
    trivial = [task.trivial(collate(some)) for some in (weighted(made, TIMES), repeated(made))]
    assert_close(trivial[0].mean, trivial[1].mean)
    assert_close(trivial[0].weight, trivial[1].weight)


def test_ones_are_no_weights_bit_for_bit(task):
    made = samples(task)
    for one, other in zip(
        loss_and_gradients(task, weighted(made, [1.0] * 6)), loss_and_gradients(task, made), strict=True
    ):
        assert torch.equal(one, other)


def test_a_constant_factor_of_all_weights_changes_nothing(task):
    made, weights = samples(task), np.array([0.3, 2.0, 1.0, 0.7, 5.0, 1.1])
    expected = loss_and_gradients(task, weighted(made, weights))
    for factor in (1e-4, 1e4):  # also where they come to less than 1 in all
        assert_close(loss_and_gradients(task, weighted(made, factor * weights)), expected)


def test_a_sample_of_weight_0_may_lie_far_off_and_a_batch_of_them_has_no_loss(task):
    made = samples(task)
    far = replace(made[3], values=made[3].values * 1e30)
    some = weighted([*made[:3], far, *made[4:]], TIMES)
    assert_close(loss_and_gradients(task, some), loss_and_gradients(task, repeated(made)))
    nothing = task(collate(weighted(made, [0] * 6)))
    assert nothing.weight == 0 and nothing.mean == 0


def test_fillers_have_no_weight(task):
    made = samples(task)
    batch = task.prepare(collate(weighted(made, TIMES)))
    plain = task.prepare(collate(made))
    shape = FixedShape.around([plain, batch], n_samples=8, longest=9)
    for one, like in ((batch, batch), (plain, plain)):
        filled = shape.filled(one)
        assert filled is not None and filled.weight is not None and len(filled.weight) == shape.n_samples
        buffer = DeviceBuffer(shape, filled, torch.device("cpu"))
        buffer.load(FlatBatch.of(filled, n_tokens=0))
        assert_close(task(buffer.batch).mean, task(like).mean)
        assert_close(task(buffer.batch).weight, task(like).weight)
    assert FixedShape.around([plain], n_samples=8, longest=9).filled(batch) is None, "it is taken as it comes"


def trained(made: list[Sample], **settings) -> Task:
    torch.manual_seed(0)
    task = Classification(CONFIG, 3)
    train(task, made, TrainConfig(epochs=4, lr=1e-2, device="cpu", **settings), quiet=True)
    return task


def test_a_run_of_whole_batches_with_weights_is_the_run_on_repeated_samples():
    made = samples(Classification(CONFIG, 3))
    expected = trained(repeated(made), batch_size=64)
    for settings in ({"batch_size": 64}, {"batch_size": 64, "accumulate": 4}):
        assert_close(
            trained(weighted(made, TIMES), **settings).state_dict(), expected.state_dict(), rtol=1e-3, atol=1e-4
        )
    small = [0.01 * n for n in TIMES]  # of pieces of which each weighs less than 1
    same = trained(weighted(made, small), batch_size=64, accumulate=4)
    assert_close(same.state_dict(), expected.state_dict(), rtol=1e-3, atol=1e-4)


def test_the_validation_loss_is_weighted_too(task):
    made = samples(task)
    assert evaluate(task, weighted(made, TIMES)) == pytest.approx(evaluate(task, repeated(made)), rel=1e-5)
    with refused(ValueError, "cannot be judged", "weight"):
        evaluate(task, weighted(made, [0] * 6))


def test_targets_are_standardised_with_their_weights():
    for task in (Regression(CONFIG, 2), Regression(CONFIG, 1, per="token")):
        made = samples(task)
        by_weight, by_number = (
            fit_scaling(some, values="none", target=True) for some in (weighted(made, TIMES), repeated(made))
        )
        np.testing.assert_allclose(by_weight.target_mean, by_number.target_mean)
        np.testing.assert_allclose(by_weight.target_scale, by_number.target_scale)
        assert fit_scaling(weighted(made, [3] * 6), target=True) == fit_scaling(made, target=True)


def test_weights_stay_with_their_samples(tmp_path):
    made = weighted(samples(Classification(CONFIG, 3)), TIMES)
    store = write_store(made, tmp_path / "store.arrow")
    order = np.array([5, 2, 3])
    for source in (as_source(made), store, as_source(made).scaled(fit_scaling(made)), store.scaled(fit_scaling(made))):
        assert source.batch(order).weight.tolist() == [2, 3, 0]
        assert source[2].weight == 3
    assert as_source(made).digest() != as_source([replace(sample, weight=None) for sample in made]).digest()
    assert collate([made[0], replace(made[1], weight=None)]).weight.tolist() == [2, 1]
    assert "weight 3" in repr(made[2])


@pytest.mark.parametrize("weight", [-1, float("nan"), float("inf"), 1e39, [1.0, 2.0], "heavy", 1j], ids=str)
def test_what_is_no_weight_is_refused(weight):
    with refused((ValueError, TypeError), "weight"):
        Sample([[1.0]], [[0.0]], weight=weight)


@pytest.mark.parametrize("n", [12, 300])
def test_a_calibration_takes_weight_2_for_the_sample_twice(n):
    random = torch.Generator().manual_seed(0)
    classes, times = torch.arange(n) % 3, torch.arange(n) % 4
    logits = torch.randn(n, 3, generator=random) + 2 * torch.eye(3)[classes]
    logits[times == 3, 1] += 1
    by_weight = fitted(logits, classes, 0.9, times.double())
    by_number = fitted(logits.repeat_interleave(times, 0), classes.repeat_interleave(times), 0.9)
    assert by_weight.temperature == pytest.approx(by_number.temperature, rel=1e-3)
    assert by_weight.bias == pytest.approx(by_number.bias, abs=1e-3)
    ones, plain = fitted(logits, classes, 0.9, torch.ones(n, dtype=torch.float64)), fitted(logits, classes, 0.9)
    assert ones.bias == pytest.approx(plain.bias, abs=1e-6) and plain.bias != pytest.approx(by_weight.bias, abs=1e-2)


def test_a_classifier_is_calibrated_to_the_rates_of_weighted_samples():
    """A class of a tenth of the samples that weighs as much as the other one is predicted at a half."""
    torch.manual_seed(0)
    task = Classification(CONFIG, 2)
    random = np.random.default_rng(0)
    made = [Sample(random.normal(size=(3, 2)), np.arange(3.0)[:, None], target=i % 10 == 0) for i in range(100)]
    made = [replace(sample, target=int(sample.target)) for sample in made]
    for weights, rate in (([1] * 100, 0.1), ([9 if i % 10 == 0 else 1 for i in range(100)], 0.5)):
        task.calibration = calibration_of([(task, weighted(made, weights))])
        predicted = predict_proba(task, made)[:, 1]
        assert np.average(predicted, weights=weights) == pytest.approx(rate, abs=0.01)

"""Several labels per sample: independent probabilities, the loss of which is known, and refusals by name."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import romae
from messages import refused

SIZE = romae.Size(width=16, heads=2, depth=1)
MODEL = romae.ModelConfig(channels=1, position_dims=1, encoder=SIZE)


def series(n: int = 32, **more) -> list[romae.Sample]:
    """Label 0 says that there is a slope, label 1 that the level is high; both, one or none may be true."""
    random, samples = np.random.default_rng(0), []
    for i in range(n):
        times, labels = np.sort(random.uniform(0, 4, 9)), [i % 2, i // 2 % 2]
        values = labels[0] * (times - 2) + 3 * labels[1] + 0.1 * random.normal(size=9)
        samples.append(romae.Sample(values[:, None], times[:, None], target=labels, id=i, **more))
    return samples


def test_the_loss_is_the_mean_of_binary_cross_entropies_by_sample_and_label():
    torch.manual_seed(0)
    task, batch = romae.MultiLabel(MODEL, 2).eval(), romae.collate(series(6))
    torch.nn.init.normal_(task.head.linear.weight)
    p, target = task.predict(batch).double().sigmoid(), batch.target.double()
    expected = -(target * p.log() + (1 - target) * (1 - p).log())
    loss = task(batch)
    assert loss.weight == 12
    assert_close(loss.mean.double(), expected.mean(), rtol=1e-5, atol=0)
    weights = torch.tensor([0.0, 1, 2, 1, 0, 3])
    weighted = romae.collate([replace(one, weight=w) for one, w in zip(series(6), weights.tolist(), strict=True)])
    assert_close(task(weighted).mean.double(), (expected.mean(1) * weights).sum() / weights.sum(), rtol=1e-5, atol=0)


def test_a_label_does_not_depend_on_the_others():
    task, samples = romae.MultiLabel(MODEL, 2).eval(), series(6)
    before = romae.predict_proba(task, samples)
    with torch.no_grad():
        task.head.linear.weight[1] += 5
    after = romae.predict_proba(task, samples)
    np.testing.assert_array_equal(before[:, 0], after[:, 0])
    assert (before[:, 1] != after[:, 1]).any()


def test_the_trivial_loss_is_the_entropy_of_the_shares():
    samples = [replace(one, target=[1, int(i == 0)]) for i, one in enumerate(series(4))]
    p = 0.25
    entropy = -(p * np.log(p) + (1 - p) * np.log(1 - p)) / 2
    assert romae.MultiLabel(MODEL, 2).trivial(romae.collate(samples)).mean == pytest.approx(entropy)


def test_labels_are_learned_saved_and_told(tmp_path):
    torch.manual_seed(0)
    samples, task = series(64), romae.MultiLabel(MODEL, 2)
    config = romae.TrainConfig(epochs=30, batch_size=16, lr=1e-2, device="cpu")
    romae.train(task, samples[:48], config, validation=samples[48:], quiet=True)
    truth = np.array([sample.target.tolist() for sample in samples[48:]])
    told = romae.predict(task, samples[48:])
    assert told.dtype == bool and told.shape == (16, 2) and (told == truth).mean() > 0.9
    np.testing.assert_array_equal(told, romae.predict_proba(task, samples[48:]) >= 0.5)
    task.save(tmp_path / "model")
    loaded = romae.load(tmp_path / "model")
    assert isinstance(loaded, romae.MultiLabel) and loaded.n_labels == 2
    np.testing.assert_array_equal(romae.predict_proba(loaded, samples), romae.predict_proba(task, samples))


def test_what_does_not_fit_is_refused():
    task, config = romae.MultiLabel(MODEL, 2), romae.TrainConfig(epochs=1, device="cpu")
    with refused(ValueError, "at least one label", "n_labels"):
        romae.MultiLabel(MODEL, 0)
    for target, parts in ((1, ["2 numbers", "shape"]), ([1, 0, 1], ["2 numbers"]), ([0.5, 1.0], ["0 or 1"])):
        with refused(ValueError, *parts):
            romae.train(task, [replace(one, target=target) for one in series(4)], config, quiet=True)
    with refused(ValueError, "scoring", "MultiLabel"):
        romae.train(task, series(4), replace(config, scoring="f1_macro"), validation=series(4), quiet=True)
    with refused(ValueError, "distribution"):
        romae.predict(task, series(4), returns="distribution")
    with refused(TypeError, "explain", "MultiLabel"):
        romae.explain(task, series(4))

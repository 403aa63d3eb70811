"""Summary features: what numpy says of each channel of each sample, one at a time."""

import numpy as np
import pytest
import torch

import romae
from messages import refused
from romae.data.summary import PER_VALUE, summary_features


def one_by_one(sample: romae.Sample, n_kinds: int) -> np.ndarray:
    """The same features by the plainest code there is."""
    shown = np.ones(len(sample), bool) if sample.hidden is None else ~sample.hidden.numpy()
    values, positions = sample.values.double().numpy()[shown], sample.positions.double().numpy()[shown]
    per_value, per_kind, end = [], [], positions[:, 0].max()
    for kind in range(n_kinds):
        chosen = positions[:, 1] == kind
        order = np.argsort(positions[chosen, 0], kind="stable")
        time, rows = positions[chosen, 0][order], values[chosen][order]
        for column in rows.T:
            if len(column) == 0:
                per_value += [np.nan] * len(PER_VALUE)
                continue
            slope = np.polyfit(time, column, 1)[0] if len(column) > 1 else 0.0
            change = np.abs(np.diff(column)).mean() if len(column) > 1 else 0.0
            quartiles = np.quantile(column, [0.25, 0.5, 0.75])
            per_value += [column.mean(), column.std(), column.min(), *quartiles, column.max()]
            per_value += [column[0], column[-1], change, slope]
        per_kind += [len(time), end - time[-1] if len(time) else np.nan]
    return np.array([*per_value, *per_kind, shown.sum(), np.ptp(positions[:, 0])])


@pytest.fixture
def samples() -> list[romae.Sample]:
    random = np.random.default_rng(0)
    made = []
    for n in (5, 1, 30, 12):
        positions = np.stack([random.uniform(0, 9, n), random.integers(0, 3, n)], axis=1)
        hidden = random.uniform(size=n) < 0.3 if n > 10 else None
        made.append(romae.Sample(random.normal(size=(n, 2)), positions, hidden=hidden))
    return made


def test_features_are_those_of_each_channel_alone_without_what_is_hidden(samples):
    table = summary_features(samples, n_kinds=4)
    assert table.values.shape == (4, len(table.names))
    expected = np.stack([one_by_one(sample, 4) for sample in samples])
    np.testing.assert_allclose(table.values, expected, rtol=1e-6, atol=1e-9)


def test_the_order_of_tokens_and_other_samples_change_nothing(samples):
    order = torch.randperm(len(samples[2]), generator=torch.Generator().manual_seed(0))
    one = samples[2]
    turned = romae.Sample(one.values[order], one.positions[order], hidden=one.hidden[order])
    alone, among = summary_features([turned], n_kinds=3), summary_features(samples, n_kinds=3)
    np.testing.assert_allclose(alone.values[0], among.values[2], rtol=1e-12)


def test_columns_are_named_after_channels_and_values():
    schema = romae.Schema(channel="band", values=("flux", "error"), channels=("g", "r"))
    samples = romae.SampleSet([romae.Sample([[1.0, 2.0]], [[0.0, 1.0]])], schema)
    table = summary_features(samples)
    row = dict(zip(table.names, table.values[0], strict=True))
    assert row["r error max"] == 2 and row["r count"] == 1 and row["g count"] == 0 and np.isnan(row["g flux mean"])


def test_a_channel_out_of_range_is_refused(samples):
    with refused(ValueError, "from 0 to 1"):
        summary_features(samples, n_kinds=2)

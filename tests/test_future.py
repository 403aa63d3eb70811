"""Training on the future: cuts in the data's own time under every scaling, mixtures, and the loss by channel."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch.testing import assert_close

import romae
from messages import refused, warned
from romae.config import from_dict, to_dict
from romae.data.sources import as_source
from romae.tokens.masking import Future, Mixed, SampleKeys, SparingStatic, UniformTokens, drawn_by, hide
from romae.training.stages import Pretrain

SIZE = romae.Size(width=16, heads=2, depth=1)
HOUR = pd.Timedelta(hours=1)
SCALINGS = [
    {"origin": "none"},
    {"origin": "first", "unit": "gap"},
    {"origin": "min", "unit": 7.0},
    {"origin": 101.5, "unit": 0.1},
]


def series(n: int = 12, seed: int = 0, offset: float = 100.0, dates: bool = False) -> romae.SampleSet:
    """A table with two channels and a calendar, at times that begin elsewhere in each sample."""
    random = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        times = offset + np.sort(random.choice(480, size=20, replace=False)) / 10
        for t in times:
            rows += [(i, t, name, random.normal()) for name in ("a", "b", "calendar") if random.random() < 0.8]
    table = pd.DataFrame(rows, columns=["id", "time", "what", "value"])
    if dates:
        table["time"] = pd.Timestamp("2024-03-01") + (table["time"] * 60).round() * pd.Timedelta(minutes=1)
    unit = {"time_unit": "hour"} if dates else {}
    return romae.from_table(table, id="id", time="time", channel="what", values="value", **unit)


def task_for(samples: romae.SampleSet, masking, scaling=None, **settings) -> romae.MaskedReconstruction:
    model = romae.ModelConfig.for_samples(samples, scaling=scaling, device="cpu", encoder=SIZE, decoder=SIZE)
    task = romae.MaskedReconstruction(model, masking=masking, **settings)
    task.scaling, task.schema = scaling, samples.schema
    return task.eval()


def prepared(task, samples, seed: int = 0, epoch: int = 0):
    """A batch whose masks are drawn, and the times of what each sample hides, in the data's own units."""
    source = as_source(samples).scaled(task.scaling)
    indices = np.arange(len(samples))
    return task.prepare(source.batch(indices), SampleKeys(seed, epoch, torch.from_numpy(indices)), is_training=False)


def own_times(task, samples, part) -> list[np.ndarray]:
    scaling = task.scaling or romae.Scaling()
    return [
        scaling.invert_positions(positions, scaling.origin(sample.positions)).numpy()[:, 0]
        for sample, positions in zip(samples, part.positions.split(part.layout.lengths.tolist()), strict=True)
    ]


@pytest.mark.parametrize("how", SCALINGS)
@pytest.mark.parametrize(
    "after", [Future(after=124.0), Future(after=124.0, horizon=10.0), Future(after=20.0, since="first")], ids=str
)
def test_what_lies_after_the_cut_is_hidden_in_the_units_of_the_data_under_every_scaling(how, after):
    samples = series()
    task = task_for(samples, after, romae.fit_scaling(samples, **how))
    batch = prepared(task, samples)
    hidden, seen = own_times(task, samples, batch.hidden), own_times(task, samples, batch.tokens)
    for sample, later, before in zip(samples, hidden, seen, strict=True):
        times = sample.positions[:, 0].numpy()
        cut = 124.0 if after.since == "clock" else times.min() + 20.0
        end = np.inf if after.horizon is None else cut + after.horizon
        np.testing.assert_allclose(np.sort(later), np.sort(times[(times > cut) & (times <= end)]), atol=1e-3)
        np.testing.assert_allclose(np.sort(before), np.sort(times[times <= cut]), atol=1e-3)


def test_a_cut_may_be_a_date_and_a_horizon_a_duration():
    samples = series(dates=True)
    moment = pd.Timestamp("2024-03-01") + 124 * HOUR
    for after in (moment, moment.isoformat(), np.datetime64(moment)):
        masking = Future(after=after, horizon="10h")
        task = task_for(samples, masking, romae.fit_scaling(samples, origin="first", unit="gap"))
        number = moment.value / 3.6e12
        for sample, later in zip(samples, own_times(task, samples, prepared(task, samples).hidden), strict=True):
            times = sample.positions[:, 0].numpy()
            assert len(later) == ((times > number) & (times <= number + 10)).sum() > 0
        assert from_dict(Pretrain, {"masking": to_dict(masking)}).masking == masking
    with refused((ValueError, TypeError), "number", "dates"):
        prepared(task_for(samples, Future(after=124.0), romae.fit_scaling(samples)), samples)
    with refused((ValueError, TypeError), "numbers"):
        prepared(task_for(series(), Future(after="2024-03-01"), None), series())


def test_what_lies_at_the_cut_is_seen():
    samples = [romae.Sample(torch.zeros(30, 1), torch.arange(30.0)[:, None] * 0.1 + 1e6 / 3)]
    for i in range(5, 25):
        after = float(samples[0].positions[i, 0])
        for how in ({"origin": "first"}, {"origin": "min", "unit": 0.3}, {"origin": 3e5, "unit": 77.0}):
            scaling = romae.fit_scaling(samples, **how)
            model = romae.ModelConfig(channels=1, position_dims=1, encoder=SIZE, decoder=SIZE)
            task = romae.MaskedReconstruction(model, masking=Future(after=after))
            task.scaling = scaling
            assert int(prepared(task, samples).hidden.layout.lengths[0]) == 29 - i


def test_cuts_of_a_range_belong_to_the_sample_whatever_the_batch():
    samples = series(30)
    masking = Future(share=(0.2, 0.9))
    task = task_for(samples, masking, romae.fit_scaling(samples, origin="first"))
    source = as_source(samples).scaled(task.scaling)
    counts = []
    for size in (30, 7):
        parts = np.split(np.arange(30), range(size, 30, size))
        batches = [
            task.prepare(source.batch(part), SampleKeys(3, 1, torch.from_numpy(part)), is_training=False)
            for part in parts
        ]
        counts.append(torch.cat([batch.hidden.layout.lengths for batch in batches]).tolist())
    assert counts[0] == counts[1] and len(set(counts[0])) > 5
    assert counts[0] != prepared(task, samples, seed=3, epoch=2).hidden.layout.lengths.tolist()


def test_known_channels_and_static_facts_are_never_hidden():
    samples = series()
    masking = Future(after=124.0, known=("calendar",))
    task = task_for(samples, masking, romae.fit_scaling(samples, origin="first"))
    batch = prepared(task, samples)
    assert set(batch.hidden.positions[:, -1].tolist()) == {0.0, 1.0}
    n_known = sum(int((sample.positions[:, -1] == 2).sum()) for sample in samples)
    assert int((batch.tokens.positions[:, -1] == 2).sum()) == n_known
    by_number = task_for(samples, Future(after=124.0, known=(2,)), task.scaling)
    assert torch.equal(prepared(by_number, samples).hidden.positions, batch.hidden.positions)
    with refused((ValueError, TypeError), "'holiday'", "calendar"):
        prepared(task_for(samples, Future(after=124.0, known=("holiday",)), None), samples)


def test_static_facts_are_neither_cut_nor_counted():
    tokens = romae.Tokens.pack([torch.zeros(5, 1)], [torch.tensor([[0.0, 0], [1, 0], [2, 0], [3, 0], [0, 1]])])
    clock = romae.MaskedReconstruction(romae.ModelConfig(channels=1, position_dims=2, encoder=SIZE)).clock(
        romae.Batch(tokens)
    )
    drawn = drawn_by(SparingStatic(Future(share=0.5), 1), tokens, None, clock)
    assert drawn.hidden.tolist() == [False, False, True, True, False]


def test_nothing_after_the_cut_reaches_the_encoder():
    samples = series()
    task = task_for(samples, Future(after=124.0, known=("calendar",)), romae.fit_scaling(samples, origin="first"))
    before = task.predict(prepared(task, samples))
    changed = []
    for sample in samples:
        later = (sample.positions[:, 0] > 124.0) & (sample.positions[:, 1] < 2)
        values = torch.where(later[:, None], sample.values + 50.0, sample.values)
        changed.append(replace(sample, values=values))
    assert torch.equal(task.predict(prepared(task, changed)), before)
    calendar = []
    for sample in samples:
        later = (sample.positions[:, 0] > 124.0) & (sample.positions[:, 1] == 2)
        calendar.append(replace(sample, values=torch.where(later[:, None], sample.values + 1.0, sample.values)))
    assert not torch.equal(task.predict(prepared(task, calendar)), before)


def test_time_shifts_change_nothing_with_clocks_of_their_own():
    early, late = series(), series(offset=1100.0)
    for masking in (Future(share=(0.2, 0.9), horizon=5.0), Future(after=-9.0, since="last")):
        for origin in ("first", "min"):
            scaling = romae.fit_scaling(early, origin=origin, unit="gap")
            task = task_for(early, masking, scaling)
            a, b = prepared(task, early), prepared(task, late)
            assert_close(a.hidden.values, b.hidden.values)
            assert_close(a.tokens.positions, b.tokens.positions, atol=1e-4, rtol=1e-4)


def test_the_container_changes_nothing(tmp_path):
    samples = series()
    romae.write_store(samples, tmp_path / "store.romae")
    scaling = romae.fit_scaling(samples, origin="first")
    task = task_for(samples, Future(after=124.0, horizon=12.0), scaling)
    expected = prepared(task, samples)
    for other in (list(samples), romae.Store(tmp_path / "store.romae")):
        batch = prepared(task, other)
        assert torch.equal(batch.hidden.values, expected.hidden.values)
        assert torch.equal(batch.tokens.positions, expected.tokens.positions)


def test_a_mixed_mask_is_that_of_the_strategy_which_is_drawn():
    n, parts = 4000, ((UniformTokens(ratio=0.5), 1.0), (Future(share=(0.2, 0.8)), 2.0), (Future(ratio=0.3), 1.0))
    tokens = romae.Tokens.pack([torch.zeros(6, 1)] * n, [torch.arange(6.0)[:, None]] * n)
    keys = [SampleKeys(5, 2, torch.arange(n)) for _ in range(5)]
    mixed = Mixed(parts)
    hidden = mixed.hidden(tokens, keys[0]).reshape(n, 6)
    chosen = mixed.chosen(tokens.layout, keys[1])
    assert_close(torch.bincount(chosen).double() / n, torch.tensor([0.25, 0.5, 0.25]).double(), atol=0.03, rtol=0)
    for number, (strategy, _) in enumerate(parts):
        alone = strategy.hidden(tokens, keys[2 + number]).reshape(n, 6)
        assert torch.equal(hidden[chosen == number], alone[chosen == number])
    assert mixed == from_dict(Pretrain, {"masking": to_dict(mixed)}).masking
    with refused((ValueError, TypeError), "above 0"):
        Mixed(((UniformTokens(), 0.0),))
    with refused((ValueError, TypeError), "strategies"):
        Mixed(())


def test_samples_without_past_or_future_are_told_and_left_out():
    samples = series(20)
    far = [replace(s, positions=s.positions + torch.tensor([500.0, 0.0], dtype=s.positions.dtype)) for s in samples[:3]]
    config = romae.TrainConfig(epochs=1, batch_size=8, device="cpu")
    task = task_for(samples, Future(after=130.0))
    with warned(UserWarning, "3 of 20 samples", "before the cut"):
        romae.train(task, [*far, *samples[3:]], config, scaling=romae.fit_scaling(samples, origin="first"), quiet=True)
    with refused((ValueError, TypeError), "after the cut"), warned(UserWarning, "20 of 20"):
        romae.train(task_for(samples, Future(after=900.0)), samples, config, quiet=True)
    assert hide(far, Future(after=130.0)) == []


def test_a_fixed_hide_takes_away_what_lies_beyond_the_horizon():
    samples = series()
    for sample, masked in zip(samples, hide(samples, Future(after=120.0, horizon=8.0)), strict=True):
        times = sample.positions[:, 0]
        assert len(masked) == int((times <= 128.0).sum())
        assert torch.equal(masked.positions[masked.hidden, 0], times[(times > 120.0) & (times <= 128.0)])


def test_training_repeats_and_keeps_how_far_it_looked(tmp_path):
    samples, losses = series(24), []
    scaling = romae.fit_scaling(samples, origin="first")
    config = romae.TrainConfig(epochs=2, batch_size=8, device="cpu", seed=4)
    masking = Mixed(((UniformTokens(ratio=0.5), 0.5), (Future(share=(0.3, 0.9), horizon=6.0), 0.5)))
    for _ in range(2):
        torch.manual_seed(0)
        task = task_for(samples, masking)
        losses.append(romae.train(task, samples, config, scaling=scaling, validation=samples[:5], quiet=True).records)
    assert losses[0] == losses[1]
    assert task.scaling.seen.horizon == 6.0
    task.save(tmp_path / "model")
    again = romae.load(tmp_path / "model")
    assert again.masking == masking and again.scaling.seen == task.scaling.seen


def test_the_loss_by_channel_is_the_mean_over_channels():
    samples = series()
    plain = task_for(samples, Future(after=124.0), romae.fit_scaling(samples))
    macro = task_for(samples, Future(after=124.0), plain.scaling, weights="channel")
    macro.load_state_dict(plain.state_dict())
    batch = prepared(plain, samples)
    error = (plain.predict(batch) - batch.hidden.values).square().flatten().double()
    channel = batch.hidden.positions[:, -1].long()
    expected = torch.stack([error[channel == i].mean() for i in range(3)]).mean()
    loss = macro(batch)
    assert_close(loss.mean.double(), expected, atol=1e-5, rtol=1e-5)
    assert float(loss.weight) == pytest.approx(len(error))
    assert_close(plain(batch).mean.double(), error.mean(), atol=1e-5, rtol=1e-5)
    assert macro.settings["weights"] == "channel" and "weights" not in plain.settings


def test_channels_with_as_many_targets_count_as_they_did():
    positions = torch.tensor([[t, c] for t in range(6) for c in range(3)]).double()
    random = torch.Generator().manual_seed(0)
    samples = romae.SampleSet(
        [romae.Sample(torch.randn(18, 1, generator=random), positions) for _ in range(4)],
        romae.Schema(channel="what", channels=("a", "b", "c")),
    )
    plain = task_for(samples, Future(after=2.0), romae.fit_scaling(samples))
    macro = task_for(samples, Future(after=2.0), plain.scaling, weights="channel")
    macro.load_state_dict(plain.state_dict())
    batch = prepared(plain, samples)
    assert_close(macro(batch).total, plain(batch).total, atol=0, rtol=1e-6)
    assert_close(macro(batch).weight, plain(batch).weight)
    assert_close(macro.trivial(batch).total.double(), plain.trivial(batch).total.double(), atol=0, rtol=1e-6)


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"after": 1.0, "share": 0.5}, ("after", "share")),
        ({"share": 1.5}, ("between 0 and 1",)),
        ({"share": (0.9, 0.2)}, ("lower to a higher",)),
        ({"horizon": 3.0}, ("horizon", "share=")),
        ({"share": 0.5, "since": "last"}, ("since",)),
        ({"after": 1.0, "horizon": -1.0}, ("horizon",)),
    ],
)
def test_cuts_that_say_nothing_are_refused(settings, words):
    with refused(ValueError, *words):
        Future(**settings)

"""Fine-tuning of a model in units of its own: what a copy hides has no part in its units, and it learns."""

import numpy as np
import pytest
import torch

import romae
from messages import refused
from romae.data.own_units import SPAN
from romae.data.windows import FEWEST, WINDOW
from romae.model.likelihoods import Mixture
from romae.prior.relative import ANSWERING
from romae.training.hidden_copies import HiddenCopies
from romae.training.in_context import finetune_in_context, with_masking

SIZE = romae.Size(width=16, heads=2, depth=1)
HALF = romae.UniformTokens(ratio=0.5)


def untrained(errors=1, seed=0):
    torch.manual_seed(seed)
    config = romae.ModelConfig(
        channels=1 + errors, errors=errors, position_dims=2, encoder=SIZE, decoder=SIZE, cls=False, keep=1.0,
        ladders=(romae.Ladder(shortest=1.0, longest=512.0), romae.Ladder(shortest=2.0, longest=512.0)),
    )  # fmt: skip
    task = romae.MaskedReconstruction(config, likelihood=Mixture(n=3))
    task.scaling = ANSWERING if errors else romae.Scaling(own_units=True)
    return task.eval()


def sines(n=50, seed=0, scale=1.0):
    random = np.random.default_rng(seed)
    times = [np.sort(random.uniform(0, 10, random.integers(15, 30))) for _ in range(n)]
    phases = random.uniform(0, 6, n)
    return romae.from_arrays([scale * np.sin(t + p)[:, None] for t, p in zip(times, phases, strict=True)], times=times)


def copies(samples, masking=HALF, n_copies=2, seed=0, errors=True):
    return HiddenCopies(samples, masking, n_copies=n_copies, seed=seed, with_errors=errors)


def test_hidden_values_have_no_part_in_what_a_model_sees():
    samples = sines(8)
    source = copies(samples)
    hidden = [source.hiding(np.array([i])).hidden for i in range(8)]
    other = romae.from_arrays(
        [torch.where(h[:, None], 1e6, s.values).numpy() for h, s in zip(hidden, samples, strict=True)],
        times=[s.positions[:, 0].numpy() for s in samples],
    )
    before, after = (x.batch(np.arange(8)) for x in (source, copies(other)))
    assert torch.equal(before.tokens.values, after.tokens.values)
    assert torch.equal(before.tokens.positions, after.tokens.positions)
    assert torch.equal(before.hidden.positions, after.hidden.positions)
    assert not torch.equal(before.hidden.values, after.hidden.values)


def test_copies_hide_something_else_and_the_same_in_any_batch():
    source = copies(sines(6), n_copies=3)
    assert len(source) == 18 and source.n_series == 6
    whole = source.packed(np.arange(18))
    alone = source.packed(np.array([13]))
    here = slice(*whole.layout.host_offsets[13:15].tolist())
    assert torch.equal(whole.values[here], alone.values) and torch.equal(whole.hidden[here], alone.hidden)
    assert not torch.equal(source.packed(np.array([1])).hidden, alone.hidden)
    again = copies(sines(6), n_copies=3, seed=1).packed(np.array([13]))
    assert not torch.equal(again.hidden, alone.hidden)
    n_hidden = [int(h) for h in whole.n_hidden]
    assert n_hidden == [round(len(sines(6)[i % 6]) / 2) for i in range(18)]


def test_visible_times_fill_the_span_and_the_future_lies_beyond():
    ahead = copies(sines(20), romae.Future(share=(0.3, 0.9))).packed(np.arange(40))
    for i in range(40):
        sample = ahead.sample(i)
        visible, hidden = sample.positions[~sample.hidden, 0], sample.positions[sample.hidden, 0]
        assert float(visible.min()) == 0.0 and float(visible.max()) == pytest.approx(SPAN)
        assert float(hidden.min()) > SPAN


def test_what_a_series_hides_itself_every_copy_hides():
    samples = [romae.Sample(s.values, s.positions, hidden=torch.arange(len(s)) % 3 == 0) for s in sines(4)]
    packed = copies(samples).hiding(np.arange(8))
    for i in range(8):
        assert torch.equal(packed.sample(i).hidden, samples[i % 4].hidden)


def test_channels_of_which_too_little_is_visible_are_not_asked_for():
    schema = romae.Schema(channel="channel", channels=("often", "once"), values=("value",))
    positions = np.column_stack([np.arange(12.0), np.arange(12) == 5])
    samples = [romae.Sample(np.arange(12.0)[:, None], positions, schema=schema)]
    source = copies(samples, n_copies=20)
    packed = source.packed(np.arange(20))
    assert torch.isfinite(packed.values).all() and torch.isfinite(packed.positions).all()
    of_once = source.hiding(np.arange(20))
    assert not of_once.hidden[of_once.positions[:, 1] == 1].any()


def test_a_cut_that_leaves_nothing_to_ask_hides_the_last_value():
    sample = copies(sines(1), romae.Future(after=1e6), n_copies=1).hiding(np.array([0])).sample(0)
    assert sample.hidden.tolist() == [False] * (len(sample) - 1) + [True]


def test_of_long_series_copies_are_the_windows_that_answers_have():
    times = np.sort(np.random.default_rng(0).uniform(0, 100, 1500))
    source = copies(romae.from_arrays([np.sin(times)[:, None]], times=[times]), n_copies=12)
    packed = source.hiding(np.arange(12))
    n_visible = packed.layout.lengths - packed.n_hidden
    assert (n_visible >= WINDOW).all() and (n_visible <= WINDOW + FEWEST).all() and (packed.n_hidden > 0).all()
    assert (packed.layout.lengths.numpy() <= source.lengths).all()
    starts = {round(float(packed.sample(i).positions[:, 0].min()), 6) for i in range(12)}
    assert len(starts) > 3


def test_series_from_which_nothing_can_be_learned_are_refused():
    with refused(ValueError, "three values", "longer series"):
        copies(romae.from_arrays(np.zeros((3, 2, 1))))
    task = untrained()
    task.scaling = None
    with refused(ValueError, "units of their own", "romae.train"):
        finetune_in_context(task, sines(4), romae.TrainConfig(epochs=1, device="cpu"))


def rising(n, seed):
    """The first quarter of sines of any amplitude and level: what lies ahead is above what was seen."""
    random = np.random.default_rng(seed)
    times = [np.sort(random.uniform(0, 1.5, random.integers(12, 20))) for _ in range(n)]
    return romae.from_arrays(
        [random.uniform(1, 100) * np.sin(t)[:, None] + random.normal(scale=30) for t in times], times=times
    )


@pytest.mark.usefixtures("without_shape_checks")
def test_fine_tuning_lowers_the_error_of_what_is_hidden():
    ahead = romae.Future(share=(0.3, 0.9))
    held_out = romae.hide(list(rising(20, seed=1)), ahead)

    def error(task):
        misses = [
            float(np.abs(told - sample.values[sample.hidden].numpy()).mean() / sample.values.std())
            for told, sample in zip(romae.predict(task, held_out), held_out, strict=True)
        ]
        return np.mean(misses)

    task = untrained()
    before = error(task)
    config = romae.TrainConfig(epochs=20, batch_size=8, lr=1e-2, device="cpu", compile=False)
    history = finetune_in_context(task, rising(50, seed=0), config, masking=ahead, validation=rising(8, 2), quiet=True)
    assert error(task) < 0.7 * before
    assert task.scaling == ANSWERING
    epochs = [record["epoch"] for record in history.records]
    assert len(epochs) > 10 and epochs == list(range(1, len(epochs) + 1))
    assert history.records[-1]["validation"] < history.records[0]["validation"]


def test_a_copy_of_a_model_is_fine_tuned_and_the_model_is_not():
    task = untrained()
    before = {name: weight.clone() for name, weight in task.state_dict().items()}
    copy = with_masking(task, HALF)
    config = romae.TrainConfig(epochs=1, batch_size=4, lr=1e-2, device="cpu", compile=False)
    finetune_in_context(copy, sines(8), config, quiet=True)
    assert all(torch.equal(weight, before[name]) for name, weight in task.state_dict().items())
    assert any(not torch.equal(weight, before[name]) for name, weight in copy.state_dict().items())
    assert copy.masking == HALF

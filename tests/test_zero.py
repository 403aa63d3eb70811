"""Units of each series' own, and answers of a model that knows no other: the laws that hold for any weights."""

import json

import numpy as np
import pytest
import torch

import romae
from romae.inference.relative import SPAN, InOwnUnits, OwnUnits
from romae.inference.zero import answers, scalars
from romae.model.likelihoods import Mixture
from romae.tokens.tokens import PackedSamples

SIZE = romae.Size(width=32, heads=2, depth=2)


@pytest.fixture(scope="module")
def task():
    torch.manual_seed(0)
    config = romae.ModelConfig(
        channels=1,
        position_dims=2,
        encoder=SIZE,
        decoder=SIZE,
        cls=False,
        keep=1.0,
        ladders=(romae.Ladder(shortest=1.0, longest=512.0), romae.Ladder(shortest=2.0, longest=512.0)),
    )
    task = romae.MaskedReconstruction(config, likelihood=Mixture(n=3))
    for parameter in task.head.parameters():
        torch.nn.init.normal_(parameter, std=0.3)  # an untrained head would say the same of everything
    return task.double()  # so that another order of sums makes no difference


def table(n_channels=3, n=20, seed=0):
    random = np.random.default_rng(seed)
    times = np.sort(random.uniform(0, 10, n))
    channel = random.integers(0, n_channels, n)
    channel[: 2 * n_channels] = np.tile(np.arange(n_channels), 2)
    return times, channel, np.sin(times + channel) + 0.1 * random.normal(size=n)


def asked(task, times, channel, values, queries, n_channels=3):
    names = tuple(f"c{i}" for i in range(n_channels))
    schema = romae.Schema(channel="channel", channels=names, values=("value",))
    sample = romae.Sample(values[:, None], np.stack([times, channel], 1), schema=schema)
    (distribution,) = answers(task, [sample], [queries])
    return np.stack([distribution.quantile(level) for level in (0.1, 0.5, 0.9)])


QUERIES = np.array([[0.5, 0], [3.3, 1], [7.1, 2], [14.0, 0]])


def test_an_affine_change_of_a_channels_units_changes_answers_exactly_so(task):
    times, channel, values = table()
    before = asked(task, times, channel, values, QUERIES)
    gain, shift = np.array([3.0, 1e-3, 250.0]), np.array([100.0, -2.0, 1e4])
    after = asked(task, times, channel, values * gain[channel] + shift[channel], QUERIES)
    of_query = QUERIES[:, 1].astype(int)
    expected = before * gain[of_query][:, None] + shift[of_query][:, None]
    assert np.allclose(after, expected, rtol=1e-4, atol=1e-3 * gain[of_query][:, None])


def test_a_shift_or_a_stretch_of_time_changes_nothing(task):
    times, channel, values = table()
    before = asked(task, times, channel, values, QUERIES)
    moved = np.column_stack([QUERIES[:, 0] * 365.25 + 2.4e6, QUERIES[:, 1]])
    assert np.allclose(asked(task, times * 365.25 + 2.4e6, channel, values, moved), before, atol=1e-3)


def test_another_order_of_channels_or_tokens_changes_nothing(task):
    times, channel, values = table()
    before = asked(task, times, channel, values, QUERIES)
    order = np.random.default_rng(1).permutation(len(times))
    assert np.allclose(asked(task, times[order], channel[order], values[order], QUERIES), before, atol=1e-5)
    renamed = np.array([2, 0, 1])
    queries = np.column_stack([QUERIES[:, 0], renamed[QUERIES[:, 1].astype(int)]])
    assert np.allclose(asked(task, times, renamed[channel], values, queries), before, atol=1e-5)


def test_a_question_changes_no_other_answer(task):
    times, channel, values = table()
    together = asked(task, times, channel, values, QUERIES)
    alone = asked(task, times, channel, values, QUERIES[2:3])
    assert np.allclose(together[:, 2:3], alone, atol=1e-5)


def test_a_series_does_not_notice_its_neighbours(task):
    samples = [romae.Sample(v[:, None], t[:, None]) for t, _, v in (table(seed=seed, n=9 + seed) for seed in range(4))]
    times = [np.array([1.0, 2.0])] * 4
    together = answers(task, samples, times)
    for i, sample in enumerate(samples):
        (alone,) = answers(task, [sample], times[:1])
        assert np.allclose(together[i].median(), alone.median(), atol=1e-5)


def test_what_a_sample_hides_is_not_seen(task):
    times, _, values = table()
    hidden = np.zeros(len(times), dtype=bool)
    hidden[::3] = True
    other = np.where(hidden, 1e6, values)
    samples = [romae.Sample(v[:, None], times[:, None], hidden=hidden) for v in (values, other)]
    first, second = answers(task, samples, [times[hidden]] * 2)
    assert np.array_equal(first.median(), second.median())


def test_one_outlier_squashes_nothing():
    times, _, values = table(n=40)
    far = values.copy()
    far[5] = 6251.0
    units = [
        OwnUnits.of(scalars(PackedSamples.of([romae.Sample(v[:, None], times[:, None])]), None)[0], 1)
        for v in (values, far)
    ]
    assert units[1].spread[0] < 2 * units[0].spread[0]
    assert np.abs(units[1].values(torch.from_numpy(far), torch.zeros(40, dtype=torch.long)).numpy()).max() < 40


@pytest.mark.parametrize("values", [[3.0], [5.0, 5.0, 5.0], [0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 1.0]])
def test_single_points_constants_and_rare_bursts_have_finite_answers(task, values):
    sample = romae.Sample(np.array(values)[:, None], np.arange(len(values))[:, None] / 7)
    (distribution,) = answers(task, [sample], [[0.0, 0.3, 2.0]])
    low, high = distribution.interval(0.9)
    assert np.isfinite(low).all() and (high > low).all()


def test_a_channel_of_which_nothing_is_visible_is_not_known_and_that_is_said(task):
    schema = romae.Schema(channel="channel", channels=("a", "b"), values=("value",))
    samples = [
        romae.Sample([[1.0], [2.0]], [[0.0, 0], [1.0, 0]], schema=schema),
        romae.Sample([[1.0], [2.0]], [[0.0, 0], [1.0, 1]], schema=schema),
    ]
    with pytest.warns(UserWarning, match="in 1 of 2 series"):
        first, second = answers(task, samples, [[0.5]] * 2)
    assert np.isnan(first.median()).tolist() == [[False, True]] and np.isfinite(second.median()).all()
    (only,) = answers(task, samples[:1], [[0.5]], channels=["a"])
    assert only.shape == (1, 1)


def test_steps_of_several_values_are_channels(task):
    random = np.random.default_rng(0)
    times, values = np.arange(8.0), random.normal(size=(8, 2))
    (steps,) = answers(task, [romae.Sample(values, times[:, None])], [[2.5, 9.0]])
    channel = np.repeat([0, 1], 8)
    single = asked(task, np.tile(times, 2), channel, values.T.ravel(), np.array([[2.5, 0], [2.5, 1]]), 2)
    assert steps.shape == (2, 2)
    assert np.allclose(steps.quantile(0.9)[0], single[2, :, 0], atol=1e-5)


def test_training_sees_the_units_that_answers_have():
    prior = romae.Prior(most=24)
    packed = prior.series(50, seed=0).packed(np.arange(50))
    relative = InOwnUnits(n_channels=prior.most_channels).apply_packed(packed)
    visible = ~packed.hidden
    sample = packed.layout.sample_of_token
    for i in range(50):
        times = relative.positions[visible & (sample == i), 0]
        assert float(times.min()) == 0.0 and float(times.max()) in (0.0, SPAN)
    own = OwnUnits.of(packed, prior.most_channels)
    values = own.apply(packed).values
    assert torch.equal(values, relative.values)  # coordinates of channels are all that is drawn
    one = InOwnUnits(n_channels=prior.most_channels).apply(packed.sample(7))
    assert torch.allclose(one.positions, relative.sample(7).positions)


def test_series_that_it_cannot_answer_for_are_refused_with_the_way_out(task):
    with pytest.raises(ValueError, match="2 position axes.*RoMAEInterpolator"):
        answers(task, [romae.Sample([[1.0]], [[0.0, 1.0]])], [[0.5]])
    sample = romae.Sample([[1.0], [2.0]], [[0.0], [1.0]])
    for positions, words in (
        ([[np.nan]], "finite"),
        ([[1.0]] * 2, "positions for 2 samples"),
        ([[[1.0, 3.0]]], "channel"),
    ):
        with pytest.raises(ValueError, match=words):
            answers(task, [sample], positions)


def test_one_command_trains_on_random_series_goes_on_and_judges(tmp_path, capsys):
    from romae.experiments import zero_model

    for _ in range(2):  # the second time there is nothing left to train
        zero_model.main(["--out", str(tmp_path), "--quick", "--device", "cpu"])
    first, second = (line for line in capsys.readouterr().out.splitlines() if line.startswith("crps"))
    assert first == second
    scores = json.loads((tmp_path / "scores.json").read_text())
    assert scores["ratio"] > 1 and 0 < scores["share in 50%"] < scores["share in 90%"] <= 1
    assert isinstance(romae.load(tmp_path / "model"), romae.MaskedReconstruction)
    with pytest.raises(SystemExit) as stopped:
        zero_model.main(["--out", str(tmp_path / "other"), "--quick", "--width", "33"])
    assert stopped.value.code == 2 and "multiple" in capsys.readouterr().err

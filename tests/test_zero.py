"""Units of each series' own, and answers of a model that knows no other: the laws that hold for any weights."""

import json

import numpy as np
import pytest
import torch

import romae
from messages import refused
from romae.data.own_units import SPAN, OwnUnits
from romae.data.scalars import Scalars
from romae.data.sources import as_source
from romae.inference.zero import answers
from romae.model.gate import N_FEATURES, N_OUTPUTS, Gate
from romae.model.likelihoods import Mixture
from romae.prior.relative import ANSWERING, InOwnUnits

SIZE = romae.Size(width=32, heads=2, depth=2)


@pytest.fixture(scope="module", params=["the network alone", "with processes"])
def task(request):
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
    task.scaling = romae.Scaling(own_units=True)
    if request.param == "with processes":
        task.gate = some_gate()
    return task.double()  # so that another order of sums makes no difference


def some_gate(seed=0):
    random = np.random.default_rng(seed)
    hidden, output = 0.3 * random.normal(size=(4, N_FEATURES + 1)), 0.3 * random.normal(size=(N_OUTPUTS, 5))
    return Gate(hidden=tuple(map(tuple, hidden.tolist())), output=tuple(map(tuple, output.tolist())))


def scalars(samples):
    return Scalars.of(as_source(samples), with_errors=True)


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
        OwnUnits.of(scalars([romae.Sample(v[:, None], times[:, None])]).packed(np.array([0])), 1) for v in (values, far)
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
    task = romae.load(tmp_path / "model")
    assert isinstance(task, romae.MaskedReconstruction) and task.scaling.own_units
    zero_model.main(["--out", str(tmp_path / "next"), "--quick", "--device", "cpu", "--after", str(tmp_path)])
    capsys.readouterr()
    goes = json.loads((tmp_path / "next" / "goes.json").read_text())
    assert [go["run"] for go in goes] == [0, 0, 1] and goes[0]["steps"] == goes[2]["steps"] == 2
    card = (tmp_path / "next" / "model" / "README.md").read_text()
    assert "| 2 | 64 | 1 | 2 | 32 |" in card and f"{scores['ratio']:.3f}" not in ("", None)
    with pytest.raises(SystemExit) as stopped:
        zero_model.main(["--out", str(tmp_path / "other"), "--quick", "--width", "33"])
    assert stopped.value.code == 2 and "multiple" in capsys.readouterr().err
    fits_a_gate_beside_the_weights(tmp_path / "model", tmp_path / "gate.json", capsys)


def fits_a_gate_beside_the_weights(folder, out, capsys):
    """The second command, for the model that the first one made."""
    from romae.experiments import zero_gate

    before, limits = romae.load(folder), (folder / "README.md").read_text().split("## Limits")[1]
    zero_gate.main(["--model", str(folder), "--quick", "--device", "cpu", "--out", str(out)])
    assert "both: negative log density" in capsys.readouterr().out
    after, scores = romae.load(folder), json.loads(out.read_text())["scores"]
    assert before.gate is None and after.gate is not None
    assert all(torch.equal(x, after.state_dict()[name]) for name, x in before.state_dict().items())
    card = (folder / "README.md").read_text()
    assert f"| both, by the gate | {scores['both']['log score']:.3f} |" in card
    assert card.split("## Limits")[1] == limits and card.count("## Numbers") == 1
    with pytest.raises(SystemExit) as stopped:
        zero_gate.main(["--model", "romae/light-curves", "--quick"])
    assert stopped.value.code == 2 and "units of their own" in capsys.readouterr().err


@pytest.fixture(scope="module")
def task_with_errors():
    torch.manual_seed(0)
    config = romae.ModelConfig(
        channels=2, errors=1, position_dims=2, encoder=SIZE, decoder=SIZE, cls=False, keep=1.0,
        ladders=(romae.Ladder(shortest=1.0, longest=512.0), romae.Ladder(shortest=2.0, longest=512.0)),
    )  # fmt: skip
    task = romae.MaskedReconstruction(config, likelihood=Mixture(n=3))
    for parameter in task.head.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    task.scaling = ANSWERING
    return task.double()


def with_errors(task, errors, gain=1.0, shift=0.0):
    times, _, values = table(1)
    sample = romae.from_arrays([values[:, None] * gain + shift], times=[times], errors=[errors[:, None] * gain])[0]
    (distribution,) = answers(task, [sample], [QUERIES[:, 0]])
    return distribution.quantile(0.5)[:, 0]


def test_errors_are_read_in_units_of_their_values_and_those_that_are_not_known_count_as_none(task_with_errors):
    errors = np.random.default_rng(1).uniform(0.05, 0.5, 20)
    before = with_errors(task_with_errors, errors)
    np.testing.assert_allclose(with_errors(task_with_errors, errors, 250.0, -3e3), before * 250.0 - 3e3, rtol=1e-7)
    assert not np.allclose(with_errors(task_with_errors, 3 * errors), before)
    times, _, values = table(1)
    plain = romae.Sample(values[:, None], times[:, None])
    (unknown,) = answers(task_with_errors, [plain], [QUERIES[:, 0]])
    np.testing.assert_allclose(with_errors(task_with_errors, 0 * errors), unknown.quantile(0.5)[:, 0], rtol=1e-12)


def test_a_model_that_reads_no_errors_answers_as_if_there_were_none(task):
    errors = np.full(20, 0.3)
    np.testing.assert_array_equal(with_errors(task, errors), with_errors(task, 0 * errors))


def test_time_steps_with_several_values_and_errors_become_tokens_of_both():
    schema = romae.Schema(values=("a", "b"), errors=("da", "db"))
    sample = romae.Sample(np.array([[1.0, 2.0, 0.1, 0.2], [3.0, 4.0, 0.3, 0.4]]), np.array([[0.0], [1.0]]))
    source = scalars(romae.SampleSet([sample], schema))
    packed = source.packed(np.array([0]))
    assert source.schema.channels == ("a", "b") and source.lengths.tolist() == [4]
    np.testing.assert_allclose(packed.values.numpy(), [[1, 0.1], [2, 0.2], [3, 0.3], [4, 0.4]], rtol=1e-6)


def long_series(n=1000, seed=3):
    random = np.random.default_rng(seed)
    times = np.sort(random.uniform(0, 100, n))
    return romae.Sample((np.sin(times / 3) + 0.02 * times)[:, None], times[:, None])


def test_long_series_are_answered_in_windows_without_seams(task):
    sample = long_series()
    near = np.linspace(20, 80, 12_001)  # a hundred answers between two measurements
    (dense,) = answers(task, [sample], [near])
    steps = np.abs(np.diff(dense.median()[:, 0]))
    assert steps.max() < 20 * np.quantile(steps, 0.99)
    # What windows say of a moment differs: without blending answers would jump where one window follows another.
    assert steps.max() < 0.01 * np.ptp(dense.median())


def test_an_answer_of_a_long_series_follows_from_its_neighbours(task):
    sample = long_series()
    changed = sample.values.clone()
    changed[-300:] = 1e3
    (before,) = answers(task, [sample], [[10.0, 30.0]])
    (after,) = answers(task, [romae.Sample(changed, sample.positions)], [[10.0, 30.0]])
    assert np.array_equal(before.median(), after.median())


def test_channels_that_a_window_lacks_are_answered_from_their_nearest_tokens(task):
    times = np.concatenate([np.linspace(0, 100, 900), [1.0, 2.0]])
    channel = np.concatenate([np.zeros(900), np.ones(2)])
    values = np.concatenate([np.sin(times[:900]), [5.0, 6.0]])
    answer = asked(task, times, channel.astype(int), values, np.array([[90.0, 1]]), 2)
    assert np.isfinite(answer).all() and 0 < answer[1, 0, 0] < 12


def test_questions_of_other_samples_and_lengths_do_not_matter(task):
    samples = [long_series(500), long_series(40, seed=4), long_series(500, seed=5)]
    together = answers(task, samples, [[5.0, 50.0], [], [7.0]])
    assert [part.shape for part in together] == [(2, 1), (0, 1), (1, 1)]
    (alone,) = answers(task, samples[2:], [[7.0]])
    assert np.allclose(together[2].median(), alone.median(), atol=1e-9)


def test_interpolate_and_forecast_need_no_task(task, monkeypatch):
    from romae.inference import interpolation

    monkeypatch.setattr(interpolation, "zero_model", lambda: task)
    times, _, values = table(1)
    samples = romae.from_arrays([values[:, None]], times=[times])
    (own,) = answers(task, samples, [[1.0, 2.0]])
    for (curve,) in (
        romae.interpolate(samples, [[1.0, 2.0]], returns="distribution"),
        romae.interpolate(samples=samples, positions=[[1.0, 2.0]], returns="distribution"),
        romae.interpolate(samples, positions=[[1.0, 2.0]], returns="distribution"),
        romae.interpolate(task, samples, [[1.0, 2.0]], returns="distribution"),
    ):
        assert np.array_equal(curve.median(), own.median())
    (numbers,) = romae.interpolate(samples, [[1.0, 2.0]])
    assert np.array_equal(numbers, own.median())
    (ahead,) = romae.forecast(samples, until="+3", returns="distribution")
    assert ahead.times[0] > times[-1] and ahead.times[-1] <= times[-1] + 3
    (told,) = answers(task, samples, [ahead.times])
    assert np.array_equal(ahead.values.median(), told.median())
    (given,) = romae.forecast(samples, positions=[20.0])
    assert given.values.shape == (1, 1)


def test_what_samples_hide_is_predicted_in_the_datas_own_units(task):
    times, _, values = table(1)
    hidden = np.zeros(len(times), dtype=bool)
    hidden[[3, 7, 11]] = True
    sample = romae.Sample(250.0 * values[:, None] - 3e3, times[:, None], hidden=hidden)
    (own,) = answers(task, [sample], [times[hidden]])
    (predicted,) = romae.predict(task, [sample], returns="distribution")
    assert np.allclose(predicted.median(), own.median(), rtol=1e-6)
    assert np.allclose(romae.predict(task, [sample])[0], own.median(), rtol=1e-6)


def test_samples_that_hide_all_of_a_channel_get_a_sentence(task):
    """It spoke of values that are too large."""
    schema = romae.Schema(channel="channel", channels=("a", "b"), values=("value",))
    positions, hidden = [[0.0, 0], [1.0, 0], [0.5, 1]], [False, False, True]
    sample = romae.Sample([[1.0], [2.0], [5.0]], positions, hidden=hidden, id="bed 7", schema=schema)
    with refused(ValueError, "'bed 7'", "channel 1", "show it some"):
        romae.predict(task, [sample])


@pytest.mark.parametrize("folds", [None, 2, 10])
def test_a_measurement_that_is_alone_in_its_channel_has_no_surprise(task, folds):
    schema = romae.Schema(channel="channel", channels=("a", "b", "c"), values=("value",))
    random = np.random.default_rng(0)
    channel = np.array([0] * 9 + [1] + [2] * 2)  # one alone, and two that no group may hide together
    positions = np.stack([random.uniform(0, 9, len(channel)), channel], 1)
    samples = [romae.Sample(random.normal(size=(len(channel), 1)), positions, schema=schema)]
    found = romae.anomaly(task, samples, folds=folds).measurements.set_index("channel")["p_value"]
    assert np.isnan(found["b"]) and found[["a", "c"]].notna().all()


def test_anomalies_are_told_in_the_datas_own_units(task):
    times, _, values = table(1)
    samples = romae.from_arrays([250.0 * values[:, None] - 3e3], times=[times])
    found = romae.anomaly(task, samples, folds=None).measurements
    hidden = np.zeros(len(times), dtype=bool)
    hidden[5] = True
    (alone,) = romae.predict(
        task, [romae.Sample(250.0 * values[:, None] - 3e3, times[:, None], hidden=hidden)], returns="distribution"
    )
    row = found.iloc[5]
    assert np.isclose(row["expected"], alone.median()[0, 0], rtol=1e-6)
    assert row["lower"] < row["expected"] < row["upper"]


def test_vectors_of_series_do_not_depend_on_units(task):
    times, _, values = table(1)
    plain, other = (
        romae.from_arrays([x[:, None]], times=[t]) for x, t in ((values, times), (9 * values + 4, times / 7))
    )
    assert np.allclose(romae.embed(task, plain), romae.embed(task, other), atol=1e-4)


def test_static_facts_and_phases_are_left_out_of_series(task):
    times, _, values = table(1)
    plain = romae.from_arrays([values[:, None]], times=[times])
    phased = romae.add_phase(plain, period=[2.0])
    (expected,), (same,) = (answers(task, x, [[1.0, 2.0]]) for x in (plain, phased))
    assert np.array_equal(expected.median(), same.median())


def test_a_model_that_comes_with_the_library_is_loaded_by_its_name():
    with pytest.raises(ValueError, match="romae/zerro.*romae/"):
        romae.load("romae/zerro")
    assert isinstance(romae.load("romae/icu"), romae.MaskedReconstruction)


def test_anomalies_of_long_series_are_judged_by_their_neighbours(task):
    long = long_series(600)
    found = romae.anomaly(task, romae.SampleSet([long], romae.Schema()), folds=3).measurements
    assert len(found) == 600 and found["score"].notna().all()
    assert np.array_equal(found["value"], long.values[:, 0].numpy())
    changed = long.values.clone()
    changed[-200:] += 50.0
    far = romae.anomaly(
        task, romae.SampleSet([romae.Sample(changed, long.positions)], romae.Schema()), folds=3
    ).measurements
    assert np.array_equal(found["expected"][:150], far["expected"][:150])
    assert not np.array_equal(found["expected"][-150:], far["expected"][-150:])


def test_whole_curves_are_drawn_in_the_datas_own_units(task):
    times, _, values = table(1)
    first, second = (
        answers(task, romae.from_arrays([x[:, None]], times=[times]), [[1.0, 2.0, 20.0]])[0].sample(
            5, seed=0, joint=True
        )
        for x in (values, 250.0 * values - 3e3)
    )
    assert first.shape == (5, 3, 1) and np.ptp(first, axis=0).min() > 0
    assert np.allclose(second, 250.0 * first - 3e3, rtol=1e-4)
    (of_windows,) = answers(task, [long_series(400)], [[50.0]])
    with pytest.raises(ValueError, match="windows"):
        of_windows.sample(2, joint=True)


def test_anomalies_need_no_task(task, monkeypatch):
    from romae.inference import interpolation

    monkeypatch.setattr(interpolation, "zero_model", lambda: task)
    times, _, values = table(1)
    samples = romae.from_arrays([values[:, None]], times=[times])
    own, given = romae.anomaly(samples).measurements, romae.anomaly(task, samples).measurements
    assert own.equals(given)


def test_a_model_of_deviations_that_says_nothing_answers_with_lines(task):
    from copy import deepcopy

    from romae.data.own_units import lines

    quiet = deepcopy(task)
    quiet.gate, quiet.scaling = None, romae.Scaling(own_units=True, from_lines=True)  # of the network alone
    for parameter in quiet.head.linear.parameters():
        torch.nn.init.zeros_(parameter)
    times, channel, values = table()
    order = np.lexsort([times, channel])
    asked_for = np.array([-1.0, 0.3, 4.4, 12.0])
    for c in range(3):
        t, x = times[order][channel[order] == c], values[order][channel[order] == c]
        queries = np.column_stack([asked_for, np.full(4, c)])
        told = asked(quiet, times, channel, 1e4 + 50 * values, queries)
        bent = np.interp(asked_for, t, x)  # lines are drawn where values are bent: next to none at the middle
        assert np.allclose(told[1][:, 0], 1e4 + 50 * bent, atol=50 * 0.1)
    cell, at = torch.tensor([0, 0, 1, 1]), torch.tensor([0.0, 10.0, 5.0, 9.0]).double()
    found = lines(cell, at, torch.tensor([1.0, 3.0, 7.0, 8.0]).double(), torch.tensor([0, 0, 1, 1, 2]),
                  torch.tensor([5.0, 64.0, 0.0, 7.0, 1.0]).double())  # fmt: skip
    assert found.tolist() == [2.0, 3.0, 7.0, 7.5, 0.0]


def test_what_is_hidden_may_be_a_deviation_from_the_line_between_neighbours():
    packed = romae.Prior(most=24).series(20, seed=0).packed(np.arange(20))
    own = OwnUnits.of(packed)
    values, deviations = (own.apply(packed, from_lines=flag) for flag in (False, True))
    hidden = packed.hidden
    assert torch.equal(values.values[~hidden], deviations.values[~hidden])
    assert not torch.equal(values.values[hidden], deviations.values[hidden])
    assert values.values[hidden].square().mean() > deviations.values[hidden].square().mean()


def test_times_beyond_what_training_looked_at_warn(task):
    times, _, values = table(1)
    samples = romae.from_arrays([values[:, None]], times=[times])
    span = times.max() - times.min()
    with pytest.warns(UserWarning, match="1 of 2.*1.5"):
        answers(task, samples, [[times.max() + span, times.max() + 2 * span]])

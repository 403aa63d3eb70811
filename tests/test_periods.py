"""Periods and the phase axis: what is found does not depend on what is hidden, on the order or on the container."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import romae
from romae.cli.main import app
from romae.data.periodogram import Band, _reductions, false_alarm, highest_peak, search_range
from romae.data.periods import columns_with_errors, without_phase
from romae.data.phase import Phase

SIZE = romae.Size(width=16, heads=1, depth=1)
CONFIG = romae.TrainConfig(epochs=2, batch_size=8, lr=1e-3, device="cpu")
PERIODS = np.array([0.71, 1.9, 3.3, 5.2, 0.43])


def sinusoids(n: int = 40, noise: float = 0.02) -> romae.SampleSet:
    random = np.random.default_rng(0)
    times = np.sort(random.uniform(0, 60, size=(len(PERIODS), n)), axis=1)
    values = np.sin(2 * np.pi * times / PERIODS[:, None]) + noise * random.normal(size=times.shape)
    return romae.from_arrays(values[:, :, None], times, ids=[f"s{i}" for i in range(len(PERIODS))])


def in_bands(n: int = 20) -> romae.SampleSet:
    """Two bands at times of their own, with levels and phases of their own."""
    random = np.random.default_rng(1)
    rows = []
    for i, period in enumerate(PERIODS):
        for band, (level, shift) in {"g": (5.0, 0.0), "r": (-3.0, 0.3)}.items():
            times = np.sort(random.uniform(0, 60, n))
            flux = level + np.sin(2 * np.pi * (times / period + shift)) + 0.02 * random.normal(size=n)
            rows.append(pd.DataFrame({"id": f"s{i}", "time": times, "band": band, "flux": flux}))
    return romae.from_table(pd.concat(rows), id="id", time="time", channel="band", values="flux")


@pytest.fixture(scope="module")
def trained() -> tuple[romae.MaskedReconstruction, romae.SampleSet]:
    plain = in_bands()
    samples = romae.add_phase(plain)
    scaling = romae.fit_scaling(samples, origin="first", unit="gap")
    size = romae.Size(width=24, heads=1, depth=1)
    model = romae.ModelConfig.for_samples(samples, scaling=scaling, encoder=size, decoder=size)
    task = romae.MaskedReconstruction(model)
    romae.train(task, samples, CONFIG, scaling=scaling, quiet=True)
    return task, plain


# Periods


def test_sums_over_all_frequencies_are_those_of_astropy():
    astropy = pytest.importorskip("astropy.timeseries")
    random = np.random.default_rng(2)
    times, errors = np.sort(random.uniform(50_000, 50_300, 50)), random.uniform(0.1, 0.5, 50)
    values = random.normal(size=50)
    band = Band.of(times, values, errors)
    assert band is not None
    step = 1 / (5 * 300)
    ours = _reductions(band, 8, 4000, step) / float(band.weights @ band.values**2)
    theirs = astropy.LombScargle(times, values, errors).power(step * np.arange(8, 4001), method="slow")
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_false_alarms_of_noise_are_no_more_frequent_than_they_say():
    random = np.random.default_rng(3)
    times = np.sort(random.uniform(0, 30, size=(80, 2, 20)), axis=2)
    peaks = [highest_peak([Band.of(t, random.normal(size=20)) for t in bands]) for bands in times]  # type: ignore[list-item]
    alarms = np.array([peak.false_alarm for peak in peaks])
    assert (alarms < 0.1).mean() <= 0.1 and (alarms < 1).any()


@pytest.mark.parametrize("samples", [sinusoids(), in_bands()], ids=["one band", "two bands"])
def test_the_period_of_a_sinusoid_is_found(samples):
    table = romae.find_periods(samples)
    np.testing.assert_allclose(table["period"], PERIODS, rtol=1e-3)
    assert table["id"].tolist() == [sample.id for sample in samples]
    assert (table["false_alarm"] < 1e-6).all() and (table["runner_up"] > 0).all()


def test_hidden_values_have_no_part_in_the_period():
    samples = romae.hide(sinusoids(), romae.UniformTokens(ratio=0.3), seed=0)
    spoiled = []
    for sample in samples:
        values = sample.values.clone()
        values[sample.hidden] = 1e6
        spoiled.append(replace(sample, values=values))
    pd.testing.assert_frame_equal(romae.find_periods(samples), romae.find_periods(spoiled))
    for one, other in zip(romae.add_phase(samples), romae.add_phase(spoiled), strict=True):
        assert torch.equal(one.positions, other.positions)


def test_order_and_container_change_nothing(tmp_path):
    samples = in_bands()
    romae.write_store(samples, tmp_path / "store")
    expected = romae.add_phase(samples)
    backwards = romae.add_phase(list(samples)[::-1])[::-1]
    shuffled = []
    for sample in samples:
        order = torch.randperm(len(sample), generator=torch.Generator().manual_seed(0))
        back = order.argsort()
        phased = romae.add_phase([replace(sample, values=sample.values[order], positions=sample.positions[order])])[0]
        shuffled.append(phased.positions[back])
    for i, sample in enumerate(romae.add_phase(romae.Store(tmp_path / "store"))):
        assert torch.equal(sample.positions, expected[i].positions)
        assert torch.equal(backwards[i].positions, expected[i].positions)
        assert torch.equal(shuffled[i], expected[i].positions)


def test_too_few_measurements_constants_and_noise_have_no_period():
    random = np.random.default_rng(4)
    times = [np.sort(random.uniform(0, 50, n)) for n in (9, 60, 60)]
    values = [np.sin(times[0]), np.full(60, 3.3), random.normal(size=60)]
    samples = romae.from_arrays([x[:, None] for x in values], times)
    table = romae.find_periods(samples)
    assert table["period"].isna().tolist() == [True, True, False]
    assert (table["false_alarm"] > 0.01).all()
    for sample in romae.add_phase(samples):
        assert not sample.positions[:, 1].any()


def test_even_sampling_is_searched_down_to_nyquist_and_no_further():
    even = Band.of(np.arange(50.0), np.random.default_rng(0).normal(size=50))
    uneven = Band.of(np.sort(np.random.default_rng(0).uniform(0, 49, 50)), np.random.default_rng(0).normal(size=50))
    assert even is not None and uneven is not None
    assert search_range([even]) == pytest.approx((2 / 49, 0.5))
    assert search_range([uneven])[1] > 40
    assert search_range([uneven], shortest=0.5, longest=10) == pytest.approx((0.1, 2.0))


def test_errors_are_weights_and_no_band():
    assert columns_with_errors(("flux", "flux_err"), None) == [(0, 1)]
    assert columns_with_errors(("flux", "flux error"), None) == [(0, 1)]
    assert columns_with_errors(("g", "r", "g_err", "r_err"), None) == [(0, 2), (1, 3)]
    assert columns_with_errors(("x", "y"), None) == [(0, None), (1, None)]
    assert columns_with_errors(("x", "y"), "y") == [(0, 1)]
    random = np.random.default_rng(5)
    times = np.sort(random.uniform(0, 60, 60))
    errors = np.where(np.arange(60) % 2, 0.05, 20.0)
    values = np.sin(2 * np.pi * times / 1.7) + errors * random.normal(size=60)
    table = np.stack([values, errors], axis=1)
    weighted = romae.from_arrays([table], [times], channels=["flux", "flux_err"])
    ignored = romae.from_arrays([table[:, :1]], [times])
    assert romae.find_periods(weighted)["period"][0] == pytest.approx(1.7, rel=1e-3)
    assert romae.find_periods(ignored)["false_alarm"][0] > 0.01
    table[3, 1] = 0
    with pytest.raises(ValueError, match="error of 0 .*'flux_err'"):
        romae.find_periods(romae.from_arrays([table], [times], channels=["flux", "flux_err"]))


def test_a_false_alarm_probability_is_that_of_the_beta_distribution():
    from scipy.special import betaincc

    for n_bands in (1, 3):
        expected = 100 * betaincc(n_bands, (40 - 3 * n_bands) / 2, 0.7)
        assert false_alarm(0.7, 40, n_bands, 100) == pytest.approx(expected, rel=1e-9)
    assert false_alarm(0.99, 6, 2, 100) == 1.0


# The axis


def test_the_phase_stands_behind_the_time_and_the_channel_last():
    samples, plain = romae.add_phase(in_bands()), in_bands()
    for sample, before, period in zip(samples, plain, romae.find_periods(plain)["period"], strict=True):
        assert torch.equal(sample.positions[:, [0, 2]], before.positions.double())
        times = before.positions[:, 0].double()
        torch.testing.assert_close(sample.positions[:, 1], (times - times.min()) / period)
    assert samples.schema.coordinates == ("time", "phase") and samples.schema.position_dims == 3


def test_scaling_and_ladders_leave_the_phase_to_its_harmonics():
    samples = romae.add_phase(in_bands(), harmonics=3)
    scaling = romae.fit_scaling(samples, origin="first", unit="gap")
    assert scaling.origins == ("first", "none", "none") and scaling.units[1] == 1.0
    assert torch.equal(scaling.apply(samples[0]).positions[:, 1], samples[0].positions[:, 1])
    assert romae.fit_ladders(samples, scaling)[1].wavelengths == (1.0, 1 / 2, 1 / 3)
    model = romae.ModelConfig.for_samples(romae.add_phase(in_bands(), harmonics=9), device="cpu")
    assert model.encoder.head_dim == 2 * 3 * 9


def test_whole_periods_change_nothing_on_the_phase_axis(generator):
    model = romae.ModelConfig(
        channels=1, position_dims=2, encoder=SIZE, cls=False, ladders=(romae.Ladder(), Phase().ladder)
    )
    encoder = romae.Encoder(model).eval()
    values, positions = torch.randn(9, 1, generator=generator), torch.rand(9, 2, generator=generator) * 5
    turns = torch.randint(-9, 9, (9,), generator=generator).float()
    moved = positions + torch.stack([torch.zeros(9), turns], 1)
    tokens, shifted = (romae.collate([romae.Sample(values, x)]).tokens for x in (positions, moved))
    torch.testing.assert_close(encoder(tokens).values, encoder(shifted).values, atol=2e-5, rtol=2e-4)


def test_a_task_adds_the_phase_itself_and_takes_samples_that_have_one(trained):
    task, plain = trained
    phased = romae.add_phase(plain)
    np.testing.assert_array_equal(romae.embed(task, plain), romae.embed(task, phased))
    hidden = romae.hide(plain, romae.UniformTokens(ratio=0.3))
    for one, other in zip(romae.predict(task, hidden), romae.predict(task, romae.add_phase(hidden)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_queries_need_no_phase(trained):
    task, plain = trained
    times = np.linspace(0, 80, 5)
    queries = [np.column_stack([times, np.zeros(5)])] * len(plain)
    expected = romae.interpolate(task, plain, queries)
    phased = romae.add_phase(plain)
    np.testing.assert_allclose(romae.interpolate(task, phased, queries), expected)
    np.testing.assert_allclose(
        romae.interpolate(task, plain, [times] * len(plain), channels=["g"]), np.array(expected), rtol=1e-5
    )
    in_full = []
    for sample, period in zip(phased, romae.find_periods(plain)["period"], strict=True):
        phase = (times - float(sample.positions[:, 0].min())) / period
        in_full.append(np.column_stack([times, phase, np.zeros(5)]))
    np.testing.assert_allclose(romae.interpolate(task, plain, in_full), expected, atol=1e-5)
    assert len(romae.to_table(phased, expected, positions=queries)) == 5 * len(plain)
    assert list(romae.to_table(phased)) == ["id", "time", "band", "flux"]


def test_a_checkpoint_and_a_store_keep_the_rule(trained, tmp_path):
    task, plain = trained
    task.save(tmp_path / "model")
    loaded = romae.load(tmp_path / "model")
    assert loaded.schema.phase == Phase()
    np.testing.assert_array_equal(romae.embed(loaded, plain), romae.embed(task, plain))
    romae.write_store(romae.add_phase(plain), tmp_path / "store")
    store = romae.Store(tmp_path / "store")
    assert store.schema.phase == Phase()
    np.testing.assert_array_equal(romae.embed(task, store), romae.embed(task, plain))
    like = romae.from_table_like(romae.to_table(plain), task.schema)
    np.testing.assert_allclose(romae.embed(task, like), romae.embed(task, plain), atol=1e-5)


def test_periods_can_be_handed_over(trained):
    plain = in_bands()
    by_number = romae.add_phase(plain, PERIODS)
    by_id = romae.add_phase(plain, {f"s{i}": period for i, period in enumerate(PERIODS)})
    assert all(torch.equal(a.positions, b.positions) for a, b in zip(by_number, by_id, strict=True))
    assert not romae.add_phase(plain, np.full(len(PERIODS), np.nan))[0].positions[:, 1].any()
    frame = romae.to_table(plain)
    frame["period"] = frame["id"].map({f"s{i}": period for i, period in enumerate(PERIODS)})
    with_fact = romae.from_table(frame, id="id", time="time", channel="band", values="flux", static="period")
    facts = romae.add_phase(with_fact, "period")
    assert facts.schema.phase == Phase(period="fact", fact="period")
    torch.testing.assert_close(facts[0].positions[:-1, 1], by_number[0].positions[:, 1], rtol=1e-6, atol=1e-6)
    targets = romae.from_table(frame, id="id", time="time", channel="band", values="flux", label="period")
    torch.testing.assert_close(romae.add_phase(targets, "period")[0].positions, by_number[0].positions)
    task, _ = trained
    task.schema, before = by_number.schema, task.schema
    try:
        with pytest.raises(ValueError, match="handed over.*add_phase"):
            romae.embed(task, plain)
    finally:
        task.schema = before


def test_bad_periods_are_refused():
    samples = sinusoids()
    for period, words in (([1.0], "5 samples"), (np.zeros(5), "'s0' is 0"), ("colour", "'colour'")):
        with pytest.raises(ValueError, match=words):
            romae.add_phase(samples, period)
    with pytest.raises(ValueError, match="'s1'"):
        romae.add_phase(samples, {"s0": 1.0})
    with pytest.raises(TypeError, match="one number"):
        romae.add_phase(samples, ["a"] * 5)
    with pytest.raises(ValueError, match="already"):
        romae.add_phase(romae.add_phase(samples))
    with pytest.raises(ValueError, match="to be found"):
        romae.add_phase(samples, PERIODS, shortest=0.1)
    with pytest.raises(ValueError, match="shortest"):
        romae.find_periods(samples, shortest=2.0, longest=1.0)
    with pytest.raises(ValueError, match="longer ones"):
        romae.find_periods(samples, shortest=1e-9)
    with pytest.raises(ValueError, match="harmonics"):
        romae.add_phase(samples, harmonics=0)
    with pytest.raises(ValueError, match="Schema"):
        romae.add_phase([romae.Sample([[1.0], [2.0]], [[0.0, 0.0], [1.0, 1.0]])])
    with pytest.raises(ValueError, match="position dimensions"):
        romae.embed(
            romae.MaskedReconstruction(romae.ModelConfig.for_samples(samples, encoder=SIZE)),
            romae.add_phase(samples),
        )


# Where people meet it


def test_estimators_add_the_phase_in_fit_and_in_answers(tmp_path):
    samples = sinusoids()
    X = [(sample.positions[:, 0].numpy(), sample.values.numpy()) for sample in samples]
    settings = {"size": SIZE, "pretrain_epochs": 1, "random_state": 0, "device": "cpu"}
    estimator = romae.RoMAEInterpolator(phase={"harmonics": 3}, **settings).fit(X)
    assert estimator.task_.schema.phase == Phase(harmonics=3)
    assert estimator.task_.config.ladders[1].wavelengths == (1.0, 1 / 2, 1 / 3)
    curves = estimator.interpolate(X, times=[0.0, 1.0, 2.0])
    assert curves.shape == (5, 3, 1) and math.isfinite(estimator.score(X))
    estimator.save(tmp_path / "estimator")
    again = romae.RoMAEInterpolator.load(tmp_path / "estimator")
    np.testing.assert_array_equal(again.interpolate(X, times=[0.0, 1.0, 2.0]), curves)
    settings["pretrain_epochs"] = 0
    classifier = romae.RoMAEClassifier(phase=True, epochs=1, n_models=1, features=None, **settings).fit(X, PERIODS > 2)
    assert classifier.predict_proba(X).shape == (5, 2)
    assert len(classifier.predict(X, on_error="skip")) == 5
    with pytest.raises(ValueError, match="add_phase"):
        romae.RoMAEInterpolator(phase={"period": "given"}, **settings).fit(X)
    with pytest.raises(ValueError, match="harmonic"):
        romae.RoMAEInterpolator(phase={"harmonic": 3}, **settings).fit(X)


def test_the_score_of_an_estimator_finds_periods_without_what_it_hides():
    samples = romae.add_phase(sinusoids())
    assert without_phase(samples).schema.phase is None
    given = romae.add_phase(sinusoids(), PERIODS)
    assert without_phase(given) is given


def test_the_command_line_learns_with_a_phase_and_answers_plain_tables(tmp_path):
    romae.to_table(in_bands()).to_csv(tmp_path / "curves.csv", index=False)
    run, table = tmp_path / "run", str(tmp_path / "curves.csv")
    size = "{width=24,heads=1,depth=1}"
    options = [f"--set=model.encoder={size}", f"--set=model.decoder={size}", "--set=train.epochs=1"]
    options += ["--set=train.device=cpu", "--set=validation.share=0.2"]
    names = ["--id", "id", "--time", "time", "--channel", "band", "--value", "flux"]
    result = CliRunner().invoke(app, ["pretrain", table, *names, "--phase", "--out", str(run), *options])
    assert result.exit_code == 0, result.output
    assert romae.load(run / "best").schema.phase == Phase()
    out = tmp_path / "filled.csv"
    result = CliRunner().invoke(app, ["interpolate", table, "--model", str(run), "--at", "0:10:3", "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert len(pd.read_csv(out)) == 3 * 2 * 5


def test_known_measurement_errors_weigh_what_the_period_is_found_from():
    random = np.random.default_rng(0)
    times = np.sort(random.uniform(0, 100, size=(1, 80)), axis=1)
    clean = np.sin(2 * np.pi * times / 3.1)
    errors = np.where(random.uniform(size=times.shape) < 0.5, 0.02, 8.0)
    values = clean + errors * random.normal(size=times.shape)
    powers = []
    for known in (errors, np.zeros_like(errors)):  # 0: not known
        samples = romae.from_arrays(values[:, :, None], times, errors=known[:, :, None])
        found = romae.find_periods(samples)
        powers.append((abs(found["period"][0] - 3.1), found["power"][0]))
    assert powers[0][0] < 0.01 and powers[0][1] > 0.9
    assert powers[1][1] < 0.5

"""The evaluation of the model that needs no training: what is hidden, what methods score, and the files it writes."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import romae
from messages import assert_says
from romae.experiments import zero_bench, zero_sets
from romae.experiments.zero_baselines import (
    BOUNDS,
    KERNELS,
    POINT_METHODS,
    Process,
    fitted_process,
    regression,
    seasonal_naive,
)
from romae.experiments.zero_bench import PROCESSES, Evaluation, Processes, answered
from romae.experiments.zero_results import ALONE, BESIDE, OURS, PROCESS, TOGETHER, read_result, results_in
from romae.experiments.zero_scores import (
    WORST,
    crps_of_standard_normal,
    of_distributions,
    of_normals,
    of_points,
    spread,
)
from romae.experiments.zero_sets import (
    PRESSURES,
    SETS,
    WAYS,
    EvaluationSet,
    Pressures,
    Question,
    Series,
    exact_posterior,
)
from romae.inference.distributions import Distribution, Units
from romae.model.likelihoods import LOG_RANGE, Mixture, Normal

SIZE = romae.Size(width=32, heads=2, depth=1)


def model(errors=0):
    torch.manual_seed(0)
    config = romae.ModelConfig(
        channels=1 + errors,
        errors=errors,
        position_dims=2,
        encoder=SIZE,
        decoder=SIZE,
        cls=False,
        keep=1.0,
        ladders=(romae.Ladder(shortest=1.0, longest=512.0), romae.Ladder(shortest=2.0, longest=512.0)),
    )
    task = romae.MaskedReconstruction(config, likelihood=Mixture(n=3))
    task.scaling = romae.Scaling(centre=((0.0,),), scale=((1.0,),), errors=errors, own_units=True)
    return task


def wave(n=40, seed=0, noise=0.1, errors=None):
    random = np.random.default_rng(seed)
    times = np.sort(random.uniform(0, 10, n))
    return Series(times, np.sin(times) + noise * random.normal(size=n), errors)


def question(n=40, seed=0, way="holes", **given):
    series = wave(n, seed, **given)
    return Question(series, WAYS[way](n, np.random.default_rng(seed)))


# What is hidden


@pytest.mark.parametrize("n", [16, 17, 40, 64])
@pytest.mark.parametrize("seed", range(5))
def test_ways_hide_what_they_say(n, seed):
    holes, gap, ahead = (way(n, np.random.default_rng(seed)) for way in WAYS.values())
    assert holes.sum() == gap.sum() == round(0.3 * n) and ahead.sum() == round(0.25 * n)
    for hidden in (holes, gap):
        assert not hidden[0] and not hidden[-1]
    assert np.ptp(np.flatnonzero(gap)) == gap.sum() - 1
    assert ahead[-1] and not ahead[: n - ahead.sum()].any()


def test_no_method_is_shown_what_is_hidden():
    one = question()
    other = replace(one, series=one.series._replace(values=np.where(one.hidden, 1e6, one.series.values)))
    assert one.scale == other.scale and not np.isin(one.queries, one.seen.times).any()
    for method in POINT_METHODS.values():
        np.testing.assert_array_equal(method([one])[0], method([other])[0])
    for ours, theirs in zip(fitted_process(one), fitted_process(other), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    (first, second), _ = answered(model(), [one, other])
    np.testing.assert_array_equal(first.median(), second.median())


def test_scores_of_a_models_answers_are_those_of_the_library():
    one = question()
    parts, _ = answered(model(), [one])
    scores, truth = of_distributions([one], parts), one.truth[:, None]
    assert scores.crps[0] == pytest.approx(parts[0].crps(truth).mean() / one.scale, rel=1e-4)
    assert scores.mse[0] == pytest.approx(np.square(parts[0].mean() - truth).mean() / one.scale**2, rel=1e-4)


def test_a_question_is_known_by_what_it_shows_and_asks():
    one = question()
    assert one.digest == question().digest
    others = [question(seed=1), question(way="gap"), replace(one, asked=one.hidden & (one.series.times > 5))]
    assert len({one.digest, *(other.digest for other in others)}) == 4


def test_series_that_are_short_are_left_out_and_long_ones_cut():
    lengths = [10, 16, 40, 500]
    windows = list(zero_sets._windows([wave(n, seed=n) for n in lengths]))
    assert sorted(len(series.times) for series in windows) == [16, 40, 64]
    longest = max(windows, key=lambda series: len(series.times))
    assert np.isin(longest.times, wave(500, seed=500).times).all()


def test_series_whose_visible_values_are_all_the_same_are_left_out():
    constant = Series(np.arange(20.0), np.full(20, 15.0))
    one = EvaluationSet(name="some", title="some", read=lambda: [constant, wave(), constant, wave(seed=1)])
    assert [len(one.questions("gap", n)) for n in (1, 2, 3)] == [1, 2, 2]
    # What is hidden of a series does not depend on how many are asked.
    assert one.questions("gap", 1)[0].digest == one.questions("gap", 2)[0].digest


# Scores


def test_scores_of_points_are_exact():
    series = Series(np.arange(4.0), np.array([0.0, 2.0, 5.0, 2.0]))
    one = Question(series, np.array([False, False, True, False]))
    scale = np.std([0.0, 2.0, 2.0])
    scores = of_points([one], [np.array([4.0])])
    assert scores.mae[0] == pytest.approx(1 / scale, rel=1e-4) == scores.crps[0]
    assert scores.mse[0] == pytest.approx(1 / scale**2, rel=1e-4) and scores.coverage is None
    assert spread([one]) == pytest.approx((5 - 4 / 3) / scale)
    (by_mean,) = POINT_METHODS["mean"]([one])
    assert of_points([one], [np.array([np.inf])]).mse == (WORST,)
    assert of_points([one], [by_mean]).mae[0] / spread([one]) == pytest.approx(1, rel=1e-4)  # its NMAE


def test_scores_of_normals_are_those_of_the_distribution_of_the_library():
    one, random = question(), np.random.default_rng(0)
    n = len(one.queries)
    mean, deviation = random.normal(size=n), random.uniform(0.2, 2, n)
    raw = np.stack([mean, LOG_RANGE * np.arctanh(np.log(deviation) / LOG_RANGE)], -1)[:, None]
    unit, zero = np.ones(()), np.zeros(())
    part = Distribution(Normal(), raw, Units(unit, zero, unit, zero))
    ours, theirs = of_normals([one], [mean], [deviation]), of_distributions([one], [part])
    for name in ("crps", "mae", "mse"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-3)  # by 200 levels
    assert ours.coverage == theirs.coverage
    assert crps_of_standard_normal(np.zeros(1))[0] == pytest.approx((np.sqrt(2) - 1) / np.sqrt(np.pi))


def test_intervals_that_are_too_narrow_are_calibrated_on_other_series():
    random, questions, parts = np.random.default_rng(0), [], []
    unit, zero = np.ones(()), np.zeros(())
    for seed in range(120):
        one = question(seed=seed)
        truth = random.normal(size=len(one.queries))
        values = one.series.values.copy()
        values[one.hidden] = truth
        questions.append(replace(one, series=one.series._replace(values=values)))
        raw = np.zeros((len(truth), 1, 2))
        raw[..., 1] = LOG_RANGE * np.arctanh(np.log(0.5) / LOG_RANGE)  # half of the true deviation
        parts.append(Distribution(Normal(), raw, Units(unit, zero, unit, zero)))
    scores = of_distributions(questions, parts)
    assert scores.coverage["90%"] == pytest.approx(0.589, abs=0.03)
    for level in (0.5, 0.8, 0.9):
        assert scores.calibrated[f"{level:.0%}"] == pytest.approx(level, abs=0.04)
    assert of_distributions(questions[:39], parts[:39]).calibrated is None


# What stands beside


def test_the_fitted_process_recovers_a_smooth_function_and_its_noise():
    smooth = question(way="gap", noise=0.0)
    mean, deviation = fitted_process(smooth)
    assert np.abs(mean - smooth.truth).max() < 0.05
    noisy = question(n=64, noise=0.3)
    mean, deviation = fitted_process(noisy)
    assert np.abs(mean - np.sin(noisy.queries)).mean() < 0.2
    assert deviation.mean() == pytest.approx(0.3, abs=0.1)


@pytest.mark.parametrize("place", range(3))
def test_the_fitted_process_is_that_of_scikit_learn(place):
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, ExpSineSquared, Matern, WhiteKernel

    one, kernel = wave(24), KERNELS[place]
    known = np.random.default_rng(2).uniform(0, 0.1, 24)
    ours = Process.fitted(kernel, one.times / 10, one.values, known)
    variance, *inner, noise = ours.parameters
    theirs = [lambda p: Matern(*p, nu=1.5), lambda p: RBF(*p), lambda p: RBF(p[0]) * ExpSineSquared(*p[1:])][place]
    whole = ConstantKernel(variance) * theirs(inner) + WhiteKernel(noise)
    fixed = GaussianProcessRegressor(whole, alpha=known + 1e-10, optimizer=None).fit(
        one.times[:, None] / 10, one.values
    )
    assert fixed.log_marginal_likelihood_value_ == pytest.approx(ours.log_likelihood, abs=1e-6)
    # At a highest value nothing leads further up, but over a bound.
    slope, at = fixed.log_marginal_likelihood(fixed.kernel_.theta, eval_gradient=True)[1], np.log(ours.parameters)
    bounds = np.log([BOUNDS["variance"], *kernel.bounds, BOUNDS["noise"]])
    inside = ((at - bounds[:, 0] > 1e-6) & (bounds[:, 1] - at > 1e-6)).tolist()
    names = {"variance": slope[0], "noise": slope[-1]}
    assert abs(names["variance"]) < 0.05 or not inside[0]
    assert abs(names["noise"]) < 0.05 or not inside[-1]
    for expected, found in zip(
        fixed.predict(np.linspace(0, 1.2, 9)[:, None], return_std=True),
        ours.predict(np.linspace(0, 1.2, 9)),
        strict=True,
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_gradient_of_the_likelihood_is_its_slope(kernel):
    from scipy.optimize import check_grad

    from romae.experiments.zero_baselines import _negative_log_likelihood

    one, known = wave(12), np.full(12, 0.02)
    distance = np.abs(one.times[:, None] - one.times) / 10

    def of(logs, i):
        return _negative_log_likelihood(kernel, logs, distance, one.values, known)[i]

    at = np.log([0.8, *kernel.begins, 0.2]) + 0.1
    assert check_grad(lambda logs: of(logs, 0), lambda logs: of(logs, 1), at) < 1e-4


def test_the_fitted_process_takes_known_errors_for_noise():
    errors = np.where(np.arange(64) % 2 == 0, 0.01, 2.0)
    series = wave(64, noise=0.0)
    values = series.values + errors * np.random.default_rng(1).normal(size=64)
    one = Question(Series(series.times, values, errors), WAYS["holes"](64, np.random.default_rng(0)))
    mean, deviation = fitted_process(one)
    assert np.abs(mean - np.sin(one.queries)).mean() < 0.1
    assert (deviation[one.errors == 2.0] > 1.9).all() and (deviation[one.errors == 0.01] < 0.5).all()


def test_the_seasonal_naive_takes_the_value_a_period_before_and_without_a_period_the_last():
    times = np.arange(48.0)
    series = Series(times, np.sin(2 * np.pi * times / 8))
    (season,) = seasonal_naive([Question(series, WAYS["ahead"](48, np.random.default_rng(0)))])
    np.testing.assert_allclose(season, series.values[36:], atol=0.3)
    noise = Series(times, np.random.default_rng(0).normal(size=48))
    (last,) = seasonal_naive([Question(noise, WAYS["ahead"](48, np.random.default_rng(0)))])
    np.testing.assert_array_equal(last, np.full(12, noise.values[35]))


def stay(seed=0, n=30):
    """Pressures of which the mean is a third of the first and two thirds of the second."""
    random, minutes = np.random.default_rng(seed), np.arange(30.0) * 20
    systolic, diastolic = 120 + 10 * random.normal(size=n), 70 + 5 * random.normal(size=n)
    series = [Series(minutes, x) for x in (systolic, diastolic, systolic / 3 + diastolic * 2 / 3)]
    hidden = np.split(random.permutation(3 * n) < 27, 3)
    return Pressures(tuple(Question(*pair) for pair in zip(series, hidden, strict=True)))


def test_the_regression_is_fitted_to_visible_minutes_and_asked_where_both_others_are_visible():
    one = stay()
    beside = one.map_beside_both
    assert 0 < beside.asked.sum() < beside.hidden.sum()
    for other in one.questions[:2]:
        assert np.isin(beside.queries, other.seen.times).all()
    mean, deviation = regression(one)
    np.testing.assert_allclose(mean, beside.truth, atol=1e-6)
    assert (deviation > 0).all() and len(one.complete_rows) < 30
    assert len(one.queries) == int(one.sample.hidden.sum()) and set(one.queries[:, 1]) == {0, 1, 2}


def test_nothing_beats_the_exact_posterior_and_it_is_calibrated():
    for way in WAYS:
        questions = SETS["gaussian"].questions(way, 100)
        exact = of_normals(questions, *zip(*exact_posterior(questions), strict=True))
        assert exact.mean("crps") < of_points(questions, POINT_METHODS["linear"](questions)).mean("crps")
        for level in (0.5, 0.8, 0.9):
            assert exact.coverage[f"{level:.0%}"] == pytest.approx(level, abs=0.06)
    few = exact_posterior(questions[:3])
    np.testing.assert_allclose(few[2][0], exact_posterior(questions)[2][0])


def test_answers_of_a_model_with_errors_are_those_of_measurements():
    small, large = (question(errors=np.full(40, error)) for error in (0.01, 5.0))
    parts, seconds = answered(model(errors=1), [small, replace(large, hidden=small.hidden)])
    assert (parts[1].std() > 4.9).all() and (parts[0].std() < 4).all() and seconds >= 0


# The command


@pytest.fixture
def few(monkeypatch):
    """Two sets of three series, and no stay."""
    sets = {
        name: EvaluationSet(
            name=name, title=f"waves {i}", read=lambda i=i: [wave(20, seed) for seed in range(i, i + 9)]
        )
        for i, name in enumerate(("physionet-HR", "physionet-MAP"))
    }
    monkeypatch.setattr(zero_bench, "SETS", sets | {"gaussian": SETS["gaussian"]})
    monkeypatch.setattr(zero_bench, "NAMES", (*zero_bench.SETS, TOGETHER))
    monkeypatch.setattr(zero_bench, "pressures", lambda n: [stay(seed) for seed in range(2, n + 2)])
    monkeypatch.setattr(zero_bench, "fitted_process", lambda one: (0 * one.queries, 1 + 0 * one.queries))
    monkeypatch.setattr(zero_bench, "N_QUICK", 3)


def test_one_command_judges_a_model_and_writes_a_table(few, tmp_path, capsys):
    model().save(tmp_path / "model")
    sets = ["physionet-HR", "gaussian", TOGETHER]
    zero_bench.main(
        [*sets, "--model", str(tmp_path / "model"), "--out", str(tmp_path / "out"), "--quick", "--device", "cpu"]
    )
    assert_says(capsys.readouterr().out, "physionet-HR: holes CRPS", "x GP", "together CRPS")
    results = {path.stem: path for path in (tmp_path / "out" / "quick").glob("*.json")}
    assert set(results) == {"physionet-HR", "gaussian", "physionet-pressures", "speed"}
    one = read_result(results["physionet-HR"])
    assert one.quick and one.is_development and set(one.ways) == set(WAYS)
    assert {OURS, PROCESS, "linear", "mean"} <= set(one.ways["gap"].scores) and one.ways["gap"].n == 3
    together = read_result(results["physionet-pressures"])
    assert {"regression", ALONE} <= set(together.ways[BESIDE].scores)
    table = (tmp_path / "out" / "quick" / "README.md").read_text()
    assert_says(table, "waves 0 *", "Gaussian functions", "exact posterior", "missed", "CPU thread", "rehearsal")
    before = (tmp_path / "out" / "quick" / "README.md").read_text()
    zero_bench.main(["--table", "--out", str(tmp_path / "out"), "--quick"])
    assert (tmp_path / "out" / "quick" / "README.md").read_text() == before


def test_romae_run_judges_a_model_and_refuses_what_belongs_to_training(few, tmp_path):
    from typer.testing import CliRunner

    from romae.cli.main import app

    def started(*arguments):
        return CliRunner().invoke(app, ["run", *arguments, "--results", str(tmp_path), "--device", "cpu"])

    model().save(tmp_path / "model")
    setting = f"model={tmp_path / 'model'}"
    done = started("zero/physionet-HR", "--set", setting, "--quick")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "zero" / "quick" / "physionet-HR.json").exists()
    for arguments, words in (
        (["zero/all", "--seed", "3"], ("zero/all", "leave --seed out")),
        (["zero/all", "--set", "train.lr=1"], ("train.lr=1", "model=FOLDER")),
        (["zero/physionet-HRR", "--set", setting], ("physionet-HRR", "do you mean")),
    ):
        assert_says(str(started(*arguments).exception), *words)


def test_processes_are_fitted_once_and_not_at_all_if_they_shall_not(few, tmp_path, monkeypatch, capsys):
    zero_bench.main(["physionet-HR", "--out", str(tmp_path), "--quick"])
    kept = json.loads((tmp_path / PROCESSES / "physionet-HR.json").read_text())["series"]
    assert len(kept) == 9 and not (tmp_path / "quick").exists()  # three series in three ways
    monkeypatch.setattr(zero_bench, "fitted_process", lambda one: pytest.fail("fitted twice"))
    zero_bench.main(["physionet-HR", "--out", str(tmp_path), "--quick"])
    questions = zero_bench.SETS["physionet-HR"].questions("holes", 3)
    scores = Processes(tmp_path / PROCESSES / "physionet-HR.json").scores(questions, fit=False)
    expected = of_normals(questions, [0 * q.queries for q in questions], [1 + 0 * q.queries for q in questions])
    assert scores.crps == expected.crps and scores.coverage == expected.coverage
    more = zero_bench.SETS["physionet-HR"].questions("holes", 4)
    assert Processes(tmp_path / PROCESSES / "physionet-HR.json").scores(more, fit=False) is None
    done = zero_bench.evaluate(Evaluation(model(), tmp_path, quick=True, fits=False), zero_bench.SETS["physionet-MAP"])
    assert PROCESS not in done.ways["holes"].scores and "GP" not in zero_bench.in_one_line(done)


def test_what_cannot_be_judged_is_said_in_a_sentence(few, tmp_path, capsys):
    romae.Classification(model().config, n_classes=2).save(tmp_path / "classes")
    for arguments, words in (
        (["physionet-HRR"], ("physionet-HRR", "do you mean physionet-HR")),
        (["--model", str(tmp_path / "classes")], ("units of their own", "zero_model --out")),
        (["--table"], ("no result", "--model")),
    ):
        with pytest.raises(SystemExit) as stopped:
            zero_bench.main([*arguments, "--out", str(tmp_path / "out"), "--device", "cpu"])
        assert stopped.value.code == 2
        assert_says(capsys.readouterr().err, *words)
    (tmp_path / "out").mkdir(exist_ok=True)
    (tmp_path / "out" / "gaussian.json").write_text('{"set": 3}')
    with pytest.raises(ValueError, match=r"gaussian\.json is no result"):
        results_in(tmp_path / "out")


def test_development_sets_are_named_and_all_sets_have_series(real_data, monkeypatch):
    assert set(zero_bench.chosen([], development=True)) == {*zero_sets.DEVELOPMENT, "sines", "prior", "gaussian"}
    assert sum(one.is_real for one in SETS.values()) >= 12
    monkeypatch.setenv("ROMAE_DATA", str(real_data))
    for name in ("ushcn-1", "uea-BasicMotions", "sines"):
        questions = SETS[name].questions("gap", 5)
        assert len(questions) == 5 and len({one.digest for one in questions}) == 5
    assert PRESSURES == ("SysABP", "DiasABP", "MAP")

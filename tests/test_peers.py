"""Peers are given what the row is given and nothing more, and are judged as it is."""

import json
import math
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from clinical_files import write_p19
from messages import assert_says, refused
from romae.cli.main import main as romae_main
from romae.experiments.datasets.physionet_grid import VARIABLES, Grid
from romae.experiments.datasets.raindrop import Cohort
from romae.experiments.peers import command, imputation
from romae.experiments.peers.classification import chosen, hourly, of_facts, standardised
from romae.experiments.peers.command import main, read_seeds
from romae.experiments.peers.fitting import QUICK, Clock, Fit, settings_of, speed_up
from romae.experiments.peers.imputation import Answers, answers_of, crps_of_samples, handed_over, scores
from romae.experiments.peers.models import PEERS
from romae.experiments.zero_scores import crps_of_standard_normal
from romae.extras import require_extra

HOURS = 48


def grid(n: int, seed: int) -> Grid:
    random = np.random.default_rng(seed)
    level = random.normal(size=(n, 1, 1))
    values = level + 0.1 * random.normal(size=(n, HOURS, len(VARIABLES)))
    values[random.random(values.shape) < 0.5] = np.nan
    return Grid(np.arange(n), values, ~np.isnan(values) & (random.random(values.shape) < 0.1))


@pytest.fixture
def parts(monkeypatch):
    """Grids of 24 records, in the place of those of the data set."""
    made = {name: grid(24, i) for i, name in enumerate(("train", "validation", "test"))}
    monkeypatch.setattr(imputation, "load", lambda seed: made)
    return made


class Echo:
    """A model of samples that knows the truth, with a spread of its own, and one that says zero."""

    def __init__(self, truth, spread):
        self.truth, self.spread = truth, spread

    def predict(self, given, n_sampling_times=None):
        assert set(given) == {"X"}
        self.given = given["X"]
        if n_sampling_times is None:
            return {"imputation": np.nan_to_num(self.truth)}
        noise = np.random.default_rng(0).normal(size=(len(self.truth), n_sampling_times, *self.truth.shape[1:]))
        return {"imputation": np.nan_to_num(self.truth)[:, None] + self.spread * noise}


def test_nothing_that_is_hidden_is_handed_over_but_to_validation(parts):
    sets = handed_over(parts)
    assert {name: set(one) for name, one in sets.items()} == {
        "train": {"X"},
        "validation": {"X", "X_ori"},
        "test": {"X"},
    }
    for name, one in sets.items():
        hidden, values = parts[name].hidden, parts[name].values
        assert one["X"].shape == (24, HOURS, len(VARIABLES)) and one["X"].dtype == np.float32
        assert np.isnan(one["X"][hidden]).all() and hidden.any()
        seen = ~np.isnan(values) & ~hidden
        np.testing.assert_array_equal(one["X"][seen], values[seen].astype(np.float32))
    np.testing.assert_array_equal(
        sets["validation"]["X_ori"], parts["validation"].values.astype(np.float32), "where they are known"
    )


def test_the_crps_of_samples_of_a_normal_is_that_of_the_normal():
    random = np.random.default_rng(0)
    truth = random.normal(size=4_000)
    expected = crps_of_standard_normal(truth).mean()
    few, many = random.normal(size=(4_000, 5)), random.normal(size=(4_000, 400))
    assert crps_of_samples(few, truth).mean() == pytest.approx(expected, abs=0.015), "few samples are no worse"
    assert crps_of_samples(many, truth).mean() == pytest.approx(expected, abs=0.005)
    # Half of the mean distance of two numbers, 2 / sqrt(pi), is counted once too few for each of five.
    too_much = crps_of_samples(few, truth, is_whole=True).mean() - crps_of_samples(few, truth).mean()
    assert too_much == pytest.approx(1 / math.sqrt(math.pi) / 5, rel=0.02)


def test_the_crps_of_samples_is_what_the_definition_says():
    random = np.random.default_rng(1)
    samples, truth = random.normal(size=(6, 4)), random.normal(size=6)
    for x, y, whole in zip(samples, truth, crps_of_samples(samples, truth, is_whole=True), strict=True):
        pairs = np.abs(x[:, None] - x).mean()
        assert whole == pytest.approx(np.abs(x - y).mean() - pairs / 2)
    assert crps_of_samples(np.full((1, 3), 2.0), np.array([5.0])) == pytest.approx(3.0)


def test_scores_of_samples_and_of_a_number():
    random = np.random.default_rng(0)
    truth = random.normal(size=3_000)
    found = scores(Answers(None, random.normal(size=(3_000, 200))), truth)
    assert [found[f"coverage_{level}"] for level in (50, 80, 90, 95)] == pytest.approx([0.5, 0.8, 0.9, 0.95], abs=0.03)
    assert found["width_90"] == pytest.approx(2 * 1.645, rel=0.05) and found["mse"] == pytest.approx(1, abs=0.1)
    point = scores(Answers(np.zeros(3_000)), truth)
    assert set(point) == {"mae", "mse", "crps"} and point["crps"] == point["mae"] == np.abs(truth).mean()
    both = scores(Answers(np.zeros(3_000), np.ones((3_000, 4)), np.ones((3_000, 4))), truth)
    assert both["mae"] == point["mae"] and both["crps_of_curves"] == pytest.approx(np.abs(truth - 1).mean())


def test_products_in_bfloat16_are_nearly_those_of_float32_and_gradients_reach_the_weights():
    network = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
    model = SimpleNamespace(model=SimpleNamespace(backbone=SimpleNamespace(diff_model=network)))
    x = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
    before = network(x)
    speed_up("csdi", model, Fit(device="cpu", precision="bf16"))
    after = network(x)
    assert after.dtype == torch.float32 and not torch.equal(after, before)
    torch.testing.assert_close(after, before, rtol=0.05, atol=0.02)
    after.sum().backward()
    assert all(weight.grad is not None for weight in network.parameters())


def test_answers_are_those_of_the_hidden_cells(parts):
    test = parts["test"]
    visible, truth = handed_over(parts)["test"]["X"], test.values[test.hidden]
    model = Echo(test.values, 0.0)
    drawn = answers_of(PEERS["csdi"], model, visible, test, 3)
    assert drawn.point is None and drawn.samples.shape == (len(truth), 3)
    np.testing.assert_array_equal(drawn.samples, truth[:, None].repeat(3, 1))
    assert np.isnan(model.given[test.hidden]).all()
    number = answers_of(PEERS["saits"], model, visible, test, 3)
    np.testing.assert_array_equal(number.point, truth)
    assert number.samples is None


def test_a_fit_ends_with_its_time_but_not_within_the_first_pass():
    clock = Clock(3, minutes=1e-9)
    for _ in range(3):
        clock.tick()
    assert not clock.is_up
    with pytest.raises(KeyboardInterrupt):
        clock.tick()
    assert clock.ended_by(10) == "minutes"
    assert Clock(3, None, n_steps=30).ended_by(10) == "epochs" and Clock(3, None, n_steps=27).ended_by(10) == "patience"
    with pytest.raises(KeyboardInterrupt):  # by whoever runs it, which PyPOTS takes for an end
        Clock(3, None, n_steps=28).ended_by(10)


def test_a_quick_run_has_tiny_models_and_patience_never_exceeds_the_passes():
    assert settings_of(PEERS["csdi"], QUICK, 35)["n_channels"] == 8
    assert settings_of(PEERS["csdi"], QUICK, 35)["patience"] == 1
    assert settings_of(PEERS["csdi"], Fit(), 35)["n_channels"] == 128
    assert settings_of(PEERS["raindrop"], Fit(), 36)["d_model"] == 144
    assert all(set(peer.quick) <= {*peer.settings, "n_diffusion_steps"} for peer in PEERS.values())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--seeds", "2-0"], ("2-0", "0-2 or 0,3,5")),
        (["--epochs", "0"], ("--epochs", "at least 1")),
        (["--minutes", "-1"], ("--minutes", "above 0")),
        (["--minutes", "nan"], ("--minutes", "above 0")),
        (["--n-samples", "1"], ("--n-samples", "at least 2")),
        (["--device", "tpu"], ("--device", "auto, cpu or cuda")),
        (["--n-validation", "0"], ("--n-validation", "at least 1")),
        (["--data", "p12"], ("saits", "p12", "gru-d, raindrop")),
        (["--precision", "int8"], ("--precision", "float32, tf32 or bf16")),
        (["--precision", "bf16"], ("csdi", "saits without")),
        (["--compile"], ("csdi", "saits without")),
    ],
)
def test_bad_input_is_refused_in_a_sentence(tmp_path, capsys, arguments, said):
    with pytest.raises(SystemExit) as ended:
        main(["saits", "--out", str(tmp_path / "out"), *arguments])
    errors = capsys.readouterr().err
    assert ended.value.code == 2 and errors.count("\n") == 1 and all(word in errors for word in said)
    assert not (tmp_path / "out").exists()


def test_an_hourly_grid_holds_the_means_of_hours_and_facts_in_each_of_them():
    cohort = Cohort(
        ids=("x", "y", "z"),
        labels=np.array([0, 1, 0]),
        offsets=np.array([0, 3, 3, 5]),
        times=np.array([0.2, 0.9, 2.0, 1.5, 48.0]),
        variables=np.array([0, 0, 1, 0, 0]),
        values=np.array([1.0, 3.0, 7.0, 5.0, 99.0]),
        facts=pd.DataFrame(),
        hours=None,
        parts={},
    )
    grids = hourly(cohort, 4)
    nan = np.nan
    np.testing.assert_array_equal(grids[0], [[2, nan], [nan, nan], [nan, 7], [nan, nan]])
    assert np.isnan(grids[1]).all() and grids[2, 1, 0] == 5 and np.nansum(grids[2]) == 5, "hour 48 is none of four"
    facts = of_facts(pd.DataFrame({"age": [50.0, 70.0, nan], "unit": ["a", "b", "a"]}))
    scores = standardised(grids, facts, np.array([0, 1]))
    assert scores.shape == (3, 4, 5) and scores.dtype == np.float32
    np.testing.assert_allclose(scores[:, 0, 2], [-1, 1, nan])
    np.testing.assert_allclose(scores[:, :, 2], np.broadcast_to(scores[:, :1, 2], (3, 4)))
    assert scores[2, 1, 0] == 3, "a series that varies in no training record keeps its unit"


def test_a_part_is_that_of_the_split_and_a_quick_one_has_both_classes():
    labels, nothing = np.array([0] * 30 + [1] * 6), np.zeros(0)
    cohort = Cohort(
        ids=tuple(map(str, range(36))),
        labels=labels,
        offsets=np.zeros(37, dtype=np.int64),
        times=nothing,
        variables=nothing.astype(np.int64),
        values=nothing,
        facts=pd.DataFrame(),
        hours=None,
        parts={("validation", 2): np.arange(36)},
    )
    assert len(chosen(cohort, "validation", 2, Fit())) == 36
    few = chosen(cohort, "validation", 2, QUICK)
    assert set(labels[few]) == {0, 1} and len(few) < 24
    assert len(chosen(cohort, "validation", 2, Fit(n_validation=8))) == 8


def test_the_command_names_what_it_can_compare_with(tmp_path, capsys, monkeypatch):
    for arguments, said in (
        (["p12", "--with", "saits"], ("saits", "gru-d, raindrop")),
        (["--with", "saits"], ("physionet-grid, p12, p19", "name it")),
        (["p12", "physionet-grid", "--with", "gru-d"], ("physionet-grid, p12, p19", "name it")),
    ):
        monkeypatch.setattr(sys, "argv", ["romae", "compare", *arguments, "--results", str(tmp_path / "out")])
        with pytest.raises(SystemExit) as ended:
            romae_main()
        assert ended.value.code == 2
        assert_says(capsys.readouterr().err, *said)
    assert not (tmp_path / "out").exists()


def test_seeds_are_read():
    assert read_seeds("0-2") == [0, 1, 2] and read_seeds("0, 3,5-6") == [0, 3, 5, 6]


def test_a_missing_library_is_named_with_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pypots", None)
    with refused(ImportError, "pypots", "pip install 'romae[peers]'"):
        require_extra("peers", "peers need")
    with pytest.raises(SystemExit) as ended:
        main(["saits", "--seeds", "0", "--out", str(tmp_path), "--quick"])
    assert ended.value.code == 2 and "romae[peers]" in capsys.readouterr().err


def test_what_is_there_is_not_run_again(tmp_path, capsys, monkeypatch):
    ran = []

    def run(name, data, seed, fit):
        ran.append((name, seed))
        metrics = {"mae": 0.25, "mse": 0.3, "crps": 0.2}
        spent = {"seconds": {"fit": 1.0, "answer": 1.0}, "peak_memory_mb": 7, "quick": fit.is_quick}
        return {"peer": name, "seed": seed, "metrics": metrics, "epochs": 1.0, "ended_by": "epochs"} | spent

    monkeypatch.setattr(command, "run", run)
    out = ["--out", str(tmp_path), "--device", "cpu"]
    main(["saits", "csdi", "--seeds", "0", *out])
    main(["saits", "--seeds", "0-1", *out])
    assert ran == [("saits", 0), ("csdi", 0), ("saits", 1)]
    assert {path.name for path in tmp_path.iterdir()} == {"saits-0.json", "saits-1.json", "csdi-0.json"}
    assert "done before" in capsys.readouterr().out
    for damaged, said in ((None, "quick"), ("[]", "no result"), ("{", "no result")):
        if damaged is not None:
            (tmp_path / "saits-0.json").write_text(damaged)
        with pytest.raises(SystemExit):
            main(["saits", "--seeds", "0", *out, *(["--quick"] if damaged is None else [])])
        assert said in capsys.readouterr().err
    assert len(ran) == 3


@pytest.mark.slow
def test_peers_run(parts, tmp_path, without_shape_checks):
    pytest.importorskip("pypots", reason="needs PyPOTS: pip install 'romae[peers]'")
    imputers = [name for name, peer in PEERS.items() if peer.task == "imputation"]
    main([*imputers, "--seeds", "0", "--out", str(tmp_path), "--quick", "--device", "cpu"])
    for name in imputers:
        result = json.loads((tmp_path / f"{name}-0.json").read_text())
        metrics = result["metrics"]
        assert result["ended_by"] == "epochs" and result["steps"] == 3 and result["n_parameters"] > 0
        assert all(math.isfinite(value) for value in metrics.values()) and 0 < metrics["crps"] <= metrics["mae"]
        assert ("coverage_90" in metrics) == (PEERS[name].answers != "point") == (result["n_samples"] == 3)
    main(["saits", "--seeds", "1", "--out", str(tmp_path), "--quick", "--epochs", "50", "--minutes", "1e-6"])
    stopped = json.loads((tmp_path / "saits-1.json").read_text())
    assert stopped["ended_by"] == "minutes" and stopped["best_epoch"] == 1 and stopped["steps"] == 4


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, peer in PEERS.items() if peer.task == "classification"])
def test_peers_tell_classes_of_stays(tmp_path, monkeypatch, without_shape_checks, name):
    pytest.importorskip("pypots", reason="needs PyPOTS: pip install 'romae[peers]'")
    for library in PEERS[name].needs:
        pytest.importorskip(library, reason=f"{name} of PyPOTS needs {library}")
    monkeypatch.setenv("ROMAE_DATA", str(tmp_path))
    write_p19(tmp_path)
    out = tmp_path / "out"
    main([name, "--data", "p19", "--seeds", "1", "--quick", "--out", str(out), "--device", "cpu"])
    result = json.loads((out / f"{name}-1.json").read_text())
    assert set(result["metrics"]) == {"auroc", "auprc"} and 0 <= result["metrics"]["auroc"] <= 1
    assert result["data"] == "p19" and result["n_records"]["train"] <= 24 and result["ended_by"] == "epochs"

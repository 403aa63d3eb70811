"""Peers are given what the row is given and nothing more, and are judged as it is."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from messages import refused
from romae.experiments import peers
from romae.experiments.datasets.physionet_grid import VARIABLES, Grid
from romae.experiments.peers import (
    PEERS,
    QUICK,
    Answers,
    Clock,
    Fit,
    answers_of,
    crps_of_samples,
    handed_over,
    main,
    read_seeds,
    scores,
    settings_of,
)
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
    monkeypatch.setattr(peers, "load", lambda seed: made)
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
    peers.speed_up("csdi", model, Fit(device="cpu", precision="bf16"))
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
    assert settings_of(PEERS["csdi"], QUICK)["n_channels"] == 8 and settings_of(PEERS["csdi"], QUICK)["patience"] == 1
    assert settings_of(PEERS["csdi"], Fit())["n_channels"] == 128
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

    def run(name, seed, fit):
        ran.append((name, seed))
        metrics = {"mae": 0.25, "mse": 0.3, "crps": 0.2}
        seconds = {"fit": 1.0, "answer": 1.0}
        return {"metrics": metrics, "epochs": 1.0, "ended_by": "epochs", "seconds": seconds, "quick": fit.is_quick}

    monkeypatch.setattr(peers, "run", run)
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
    main([*PEERS, "--seeds", "0", "--out", str(tmp_path), "--quick", "--device", "cpu"])
    for name in PEERS:
        result = json.loads((tmp_path / f"{name}-0.json").read_text())
        metrics = result["metrics"]
        assert result["ended_by"] == "epochs" and result["steps"] == 3 and result["n_parameters"] > 0
        assert all(math.isfinite(value) for value in metrics.values()) and 0 < metrics["crps"] <= metrics["mae"]
        assert ("coverage_90" in metrics) == (name != "saits") == (result["n_samples"] == 3)
    main(["saits", "--seeds", "1", "--out", str(tmp_path), "--quick", "--epochs", "50", "--minutes", "1e-6"])
    stopped = json.loads((tmp_path / "saits-1.json").read_text())
    assert stopped["ended_by"] == "minutes" and stopped["best_epoch"] == 1 and stopped["steps"] == 4

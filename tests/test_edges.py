"""Edges of model, training and answers: the smallest, the empty and the last of what is taken."""

import ast
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from messages import refused
from romae.checkpoints.authors import _config
from romae.checkpoints.native import read_json
from romae.inference import baselines
from romae.inference.long_jobs import runs
from romae.inference.predictions import embed
from romae.model.autoencoder import Decoder
from romae.model.config import ModelConfig, Size
from romae.model.tasks import Classification
from romae.tokens.sample import Sample
from romae.training import progress
from romae.training.config import TrainConfig
from romae.training.progress import Progress

SIZE = Size(width=12, heads=1, depth=1)
CONFIG = ModelConfig(channels=1, position_dims=1, encoder=SIZE, decoder=SIZE)


@given(st.lists(st.integers(1, 9), max_size=12), st.integers(1, 12))
def test_runs_take_all_in_order_and_as_many_as_fit(costs, budget):
    found = list(runs(costs, budget))
    assert [i for run in found for i in range(len(costs))[run]] == list(range(len(costs)))
    assert all(run.start < run.stop for run in found)
    sums = [sum(costs[run]) for run in found]
    assert all(total <= budget or run.stop - run.start == 1 for run, total in zip(found, sums, strict=True))
    firsts = [costs[run.start] for run in found[1:]]
    assert all(total + first > budget for total, first in zip(sums, firsts, strict=False))  # the next one did not fit


def test_a_sample_has_all_of_its_numbers():
    with refused(TypeError, "sparse", "to_dense"):
        Sample(torch.ones(2, 1).to_sparse(), torch.arange(2.0)[:, None])


def test_what_some_samples_hide_is_not_seen_and_the_others_are_as_they_were():
    torch.manual_seed(0)
    task = Classification(CONFIG, 2)
    values, positions = torch.tensor([[1.0], [-2.0], [3.0]]), torch.arange(3.0)[:, None]
    hiding = Sample(values, positions, hidden=[False, True, False])
    plain = Sample(values, positions)
    found = embed(task, [hiding, plain])
    visible = Sample(values[[0, 2]], positions[[0, 2]])
    np.testing.assert_allclose(found, embed(task, [visible, plain]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("eps", [0.0, -1e-6])
def test_a_norm_needs_an_epsilon_above_zero(eps):
    with refused(ValueError, "norm_eps"):
        replace(CONFIG, norm_eps=eps)


def test_a_mask_token_begins_small():
    torch.manual_seed(0)
    token = Decoder(replace(CONFIG, decoder=Size(width=240, heads=2, depth=1))).mask_token
    assert 0.015 < float(token.detach().std()) < 0.025


def test_answers_are_quiet_where_there_is_no_terminal(capfd):
    embed(Classification(CONFIG, 2), [Sample([[1.0]], [[0.0]])])
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("method", [baselines.mean, baselines.last_value, baselines.linear])
@pytest.mark.parametrize("place", ["times", "values"])
def test_baselines_take_finite_times_and_values(method, place):
    observed = {"times": np.array([0.0, 1.0]), "values": np.array([[1.0], [2.0]])}
    observed[place] = np.full_like(observed[place], np.nan)
    with refused(ValueError, "must be finite", "leave missing"):
        method(observed["times"], observed["values"], np.array([0.5]))


def test_settings_have_the_defaults_that_their_page_gives():
    pattern = re.compile(r"^ *(\w+) : .*, default (.+)$", re.MULTILINE)
    given = {name: ast.literal_eval(value) for name, value in pattern.findall(TrainConfig.__doc__)}
    assert len(given) > 15 and given == {name: getattr(TrainConfig(), name) for name in given}


def test_a_run_of_which_no_step_is_taken_is_at_its_beginning(capsys):
    Progress("run", 3).report({"loss": 1.0})
    Progress("run", 3, start=2).report({"loss": 1.0})
    assert capsys.readouterr().err.splitlines() == ["run: step 0 of 3, loss 1", "run: step 2 of 3, loss 1"]


def test_a_run_says_how_long_it_will_take_after_a_few_seconds_and_then_each_minute(capsys, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: clock[0])
    run = Progress("run", 200, start=100)
    for _ in range(100):
        clock[0] += 2.0
        run.advance(10)
    said = [
        "step 103 of 200, about 3 min left",
        "step 133 of 200, about 2 min left",
        "step 163 of 200, about 74 s left",
    ]
    assert capsys.readouterr().err.splitlines() == [
        f"run: {line}" for line in [*said, "step 193 of 200, about 14 s left"]
    ]
    run.report({"loss": 1.0})
    assert "left" not in capsys.readouterr().err
    quiet = Progress("run", 200, is_shown=False)
    clock[0] += 1e4
    quiet.advance(10)
    assert capsys.readouterr().err == ""


def test_settings_of_the_authors_that_name_no_dropout_have_none():
    sizes = {"d_model": 12, "nhead": 1, "depth": 1, "dim_feedforward": 24, "layer_norm_eps": 1e-6}
    settings = {"encoder_config": sizes, "tubelet_size": [1, 1, 1], "n_channels": 1, "n_pos_dims": 1, "use_cls": True}
    config = _config(settings | {"p_rope_val": 0.75, "pos_encoding": "ropend"})
    assert config.dropout == config.attention_dropout == config.stochastic_depth == 0


def test_a_file_of_a_checkpoint_that_is_not_there_is_named(tmp_path):
    with refused(ValueError, str(tmp_path / "config.json"), "does not exist"):
        read_json(tmp_path / "config.json")

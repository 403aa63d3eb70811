"""Benchmarks measure what they say: the baseline is the same mathematics, and floors are what torch counts."""

import json
from dataclasses import replace
from importlib import import_module

import pytest
import torch
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from romae import benchmark
from romae.benchmark.floors import floor
from romae.benchmark.padded import PaddedReconstruction
from romae.benchmark.picture import write_picture
from romae.benchmark.steps import batch_for
from romae.benchmark.timing import Spread
from romae.benchmark.workloads import WORKLOADS, Workload
from romae.tasks import MaskedReconstruction

SMALL = Workload(n_samples=6, shortest=5, longest=30, channels=2, size="tiny-shallow", ratio=0.5)
CPU = torch.device("cpu")


@pytest.mark.parametrize("queries", ["joint", "independent"])
def test_the_padded_baseline_is_the_same_mathematics(queries):
    task = SMALL.task(queries=queries)
    batch = batch_for(task, SMALL, "eager", CPU)
    baseline = PaddedReconstruction(task)
    ours, padded = task(batch), baseline(batch)
    assert_close(padded.total, ours.total, rtol=1e-4, atol=1e-4)
    assert_close(padded.weight, ours.weight)
    assert_close(baseline.predict(batch), task.predict(batch), rtol=1e-4, atol=1e-4)


def test_the_padded_baseline_refuses_what_it_does_not_know():
    task = MaskedReconstruction(SMALL.task().config, normalise=True)
    with pytest.raises(ValueError, match="plain targets only"):
        PaddedReconstruction(task)


def test_the_arithmetic_of_a_floor_is_what_torch_counts():
    workload = replace(SMALL, shortest=20, longest=20)
    task = workload.task()
    batch = batch_for(task, workload, "eager", CPU)
    with FlopCounterMode(display=False) as counter:
        task(batch).mean.backward()
    # Torch counts the backward pass of attention as 2.5 forward passes, because flash attention repeats a product.
    assert floor(workload, "cpu")["tflop"] == pytest.approx(counter.get_total_flops() / 1e12, rel=0.05)


def test_a_known_device_has_a_floor_in_milliseconds():
    light_curves = floor(WORKLOADS["lightcurves"], "NVIDIA H200")
    assert 1 < light_curves["milliseconds"] < 10 and 1.5 < light_curves["tflop"] < 3.5
    assert "milliseconds" not in floor(SMALL, "an unknown device")


def test_sections_are_kept_side_by_side_and_measured_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(benchmark, "SECTIONS", {"one": lambda: {"rows": [1]}, "two": lambda: {"rows": [2]}})
    path, _ = benchmark.run(["one"], tmp_path)
    benchmark.run(["two"], tmp_path)
    monkeypatch.setattr(benchmark, "SECTIONS", {"one": lambda: {"rows": [3]}})
    benchmark.run(["one"], tmp_path)
    found = json.loads(path.read_text())
    assert found["one"]["rows"] == [3] and found["two"]["rows"] == [2] and found["one"]["machine"]["torch"]
    with pytest.raises(ValueError, match="no benchmark 'three'; there are one"):
        benchmark.run(["three"], tmp_path)


def test_what_was_measured_is_drawn_the_same_way_each_time(tmp_path):
    spread = {"median": 2.0, "low": 1.5, "high": 3.0}
    rows = [
        {"workload": name, "precision": "bf16", "mode": mode, "milliseconds": spread}
        for name in ("icu", "audio")
        for mode in ("padded", "graph")
    ]
    long = [
        {"tokens_per_sample": n, "tokens": 64, "checkpointing": on, "milliseconds": spread, "gib": 0.5}
        for n in (16, 64)
        for on in (False, True)
    ]
    here = {"machine": {"device": "a device"}}
    found = {"steps": {"rows": rows} | here, "lengths": {"rows": long} | here}
    first, second = (write_picture(found, tmp_path / f"{i}.svg").read_text() for i in range(2))
    assert first == second and all(word in first for word in ("padded", "graph", "icu", "a device", "Longer samples"))
    assert write_picture({"loading": {}}, tmp_path / "none.svg") is None and not (tmp_path / "none.svg").exists()


def test_ragged_attention_and_padding_agree_where_they_are_timed(monkeypatch):
    timed = import_module("romae.benchmark.attention")  # by its name alone the function of that name would come
    monkeypatch.setattr(timed, "milliseconds", lambda work, n_runs: Spread(1.0, 1.0, 1.0))
    rows = timed.attention()["rows"]
    assert len(rows) == 4 and all(row["largest_difference"] < 1e-4 for row in rows)

"""Benchmarks measure what they say: the baseline is the same mathematics, and floors are what torch counts."""

import json
from dataclasses import replace
from importlib import import_module

import pytest
import torch
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from messages import refused
from romae import benchmark
from romae.benchmark.floors import floor
from romae.benchmark.padded import PaddedReconstruction
from romae.benchmark.picture import write_picture
from romae.benchmark.steps import batch_for
from romae.benchmark.timing import Spread
from romae.benchmark.workloads import WORKLOADS, Workload
from romae.model.tasks import MaskedReconstruction
from romae.tokens.tokens import Tokens

SMALL = Workload(n_samples=6, shortest=5, longest=30, channels=2, size="tiny-shallow", ratio=0.5)
CPU = torch.device("cpu")


def of_kinds(tokens: Tokens, n: int) -> Tokens:
    positions = tokens.positions.clone()
    positions[:, -1] = torch.arange(len(positions)) % n
    return replace(tokens, positions=positions)


@pytest.mark.parametrize("kinds", [None, 4])
@pytest.mark.parametrize("queries", ["joint", "independent"])
def test_the_padded_baseline_is_the_same_mathematics(queries, kinds):
    task = SMALL.task(queries=queries)
    batch = batch_for(task, SMALL, "eager", CPU)
    if kinds:
        task = MaskedReconstruction(replace(task.config, kinds=kinds))
        torch.nn.init.normal_(task.encoder.kinds.stretch.weight)
        batch = replace(batch, tokens=of_kinds(batch.tokens, kinds), hidden=of_kinds(batch.hidden, kinds))
    baseline = PaddedReconstruction(task)
    ours, padded = task(batch), baseline(batch)
    assert_close(padded.total, ours.total, rtol=1e-4, atol=1e-4)
    assert_close(padded.weight, ours.weight)
    assert_close(baseline.predict(batch), task.predict(batch), rtol=1e-4, atol=1e-4)


def test_the_padded_baseline_refuses_what_it_does_not_know():
    task = MaskedReconstruction(SMALL.task().config, normalise=True)
    with refused(ValueError, "plain targets only"):
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
    assert floor(SMALL, "NVIDIA A100-SXM4-80GB")["milliseconds"] > 0
    assert "milliseconds" not in floor(SMALL, "an unknown device")


def test_sections_are_kept_side_by_side_and_measured_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(benchmark, "SECTIONS", {"one": lambda: {"rows": [1]}, "two": lambda: {"rows": [2]}})
    path, _ = benchmark.run(["one"], tmp_path)
    benchmark.run(["two"], tmp_path)
    monkeypatch.setattr(benchmark, "SECTIONS", {"one": lambda: {"rows": [3]}})
    benchmark.run(["one"], tmp_path)
    found = json.loads(path.read_text())
    assert found["one"]["rows"] == [3] and found["two"]["rows"] == [2] and found["one"]["machine"]["torch"]
    with refused(ValueError, "'three'", "there are one"):
        benchmark.run(["three"], tmp_path)


def test_a_torn_file_is_named_before_anything_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(benchmark, "SECTIONS", {"one": lambda: pytest.fail("it was measured in vain")})
    for text in ("{", "[1]"):
        (tmp_path / "cpu.json").write_text(text)
        with refused(ValueError, "cpu.json", "is torn", "remove it"):
            benchmark.run(["one"], tmp_path)


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
    attached = [{"workload": "icu", "workers": n, "share_of_the_rate_alone": 0.8 + n / 50} for n in (0, 8)]
    found = {
        "steps": {"rows": rows} | here,
        "lengths": {"rows": long, "inference": long[::2], "growing_batches": long[::2]} | here,
        "attached": {"rows": attached} | here,
        "positions": {"rows": [{"workload": "audio", "quantised_speed": 1, "continuous_speed": 0.9}], "mode": "graph"},
        "attention": {"rows": [{"case": "short", "precision": "bf16", "times_faster": 2.0}]},
    }
    first, second = (write_picture(found, tmp_path / f"{i}.svg").read_text() for i in range(2))
    titles = ("Longer samples", "Larger batches", "With loaders", "Kinds of positions", "Attention alone")
    assert first == second and all(word in first for word in ("padded", "graph", "icu", "a device", "8 workers"))
    assert all(title in first for title in titles)
    assert write_picture({"loading": {}}, tmp_path / "none.svg") is None and not (tmp_path / "none.svg").exists()


def test_every_way_of_attention_agrees_where_it_is_timed(monkeypatch):
    timed = import_module("romae.benchmark.attention")  # by its name alone the function of that name would come
    monkeypatch.setattr(timed, "milliseconds", lambda work, n_runs: Spread(1.0, 1.0, 1.0))
    rows = timed.attention(share=0.1)["rows"]
    errors = [value for row in rows for name, value in row.items() if name.endswith("_error")]
    assert len(rows) == 4 and len(errors) == 12 and all(error < 1e-5 for error in errors)


def test_steps_are_measured_and_held_against_the_truth():
    section = benchmark.steps(workloads={"small": SMALL}, modes=("padded", "eager"), n_runs=2)
    padded, eager = section["rows"]
    assert padded["times_padded"] == 1 and eager["times_padded"] == eager["times_padded_eager"]
    assert (padded["mode"], eager["mode"]) == ("padded", "eager") and section["floors"]["small"]["tflop"] > 0
    for row in section["rows"]:
        assert row["error"] < 1e-5 and row["output_error"] < 1e-5
        assert 0 < row["milliseconds"]["low"] <= row["milliseconds"]["median"] <= row["milliseconds"]["high"]


def test_each_way_of_taking_a_step_stands_beside_padding_by_the_same_means():
    from romae.benchmark.steps import MODES, beside

    assert {mode: beside(mode) for mode in MODES} == {
        "padded": "padded",
        "padded graph": "padded graph",
        "padded compiled": "padded compiled",
        "padded compiled graph": "padded compiled graph",
        "eager": "padded",
        "graph": "padded graph",
        "compiled": "padded compiled",
        "compiled graph": "padded compiled graph",
    }


@pytest.mark.parametrize("queries", ["joint", "independent"])
def test_the_padded_baseline_needs_no_mask_where_all_samples_are_as_long(queries, monkeypatch):
    equal = replace(SMALL, shortest=20, longest=20)
    task = equal.task(queries=queries)
    batch = batch_for(task, equal, "eager", CPU)
    attend, masks = torch.nn.functional.scaled_dot_product_attention, []

    def watched(*parts, attn_mask=None, **more):
        masks.append(attn_mask)
        return attend(*parts, attn_mask=attn_mask, **more)

    monkeypatch.setattr("romae.benchmark.padded.F.scaled_dot_product_attention", watched)
    padded = PaddedReconstruction(task)(batch)
    assert masks and all(mask is None for mask in masks)
    monkeypatch.undo()
    assert_close(padded.total, task(batch).total, rtol=1e-4, atol=1e-4)


def test_a_ratio_to_padding_needs_padding():
    rows = benchmark.steps(workloads={"a": SMALL, "b": SMALL}, modes=("eager",), n_runs=1)["rows"]
    assert len(rows) == 2 and not any("times_padded" in row for row in rows)


def test_a_loop_is_measured_with_its_loader():
    workload = replace(SMALL, shortest=20, longest=20)
    [row] = benchmark.attached(workloads={"small": workload}, n_steps=4, n_stretches=2, workers=(0,))["rows"]
    assert row["milliseconds"]["median"] > 0 and row["tokens_per_second"] > 0 and row["recompilations"] == 0
    assert row["loop_share"] > -1 and row["share_of_the_rate_alone"] > 0


def test_kinds_of_positions_are_measured_beside_each_other():
    rows = benchmark.positions(workloads={"images": SMALL, "audio": SMALL}, n_runs=2)["rows"]
    assert [row["workload"] for row in rows] == ["images", "audio"]
    assert all(row[f"{kind}_speed"] > 0 for row in rows for kind in ("quantised", "continuous"))
    assert all(row["absolute_milliseconds"]["median"] > 0 for row in rows)


def test_growing_samples_and_batches_are_measured_in_training_and_inference():
    section = benchmark.lengths(n_tokens=32, shortest=8, n_runs=1, size="tiny-shallow")
    assert [row["tokens_per_sample"] for row in section["rows"]] == [8, 8, 32, 32]
    assert [row["tokens_per_sample"] for row in section["inference"]] == [8, 32]
    assert [row["tokens"] for row in section["growing_batches"]] == [8, 8, 16, 32, 64, 128]


def test_answers_are_measured_end_to_end_and_by_stage(tmp_path, without_shape_checks):
    measured = benchmark.SECTIONS["answers"](tmp_path, n_samples=12)
    assert measured["samples"] == 12 and measured["queries"] == 12 * 50
    asked = {row["what"] for row in measured["rows"]}
    assert len(asked) == 5 and any("Parquet" in what for what in asked) and any("store" in what for what in asked)
    assert all(row["per_second"] > 0 and row["precision"] == "float32" for row in measured["rows"])
    [stages] = measured["stages_in_seconds"]
    assert {"pack", "copy", "scale", "encode", "gather"} < set(stages) and stages["mode"] == "as they come"
    assert set(measured["reading_seconds"]) == {"parquet", "store"}
    assert not list(tmp_path.iterdir()), "what was written to be read is taken away"


def test_a_long_table_is_answered_in_a_process_that_watches_its_memory(tmp_path, without_shape_checks):
    measured = benchmark.SECTIONS["streaming"](tmp_path, n_rows=1000)
    assert measured["table_rows"] == 1000 and measured["at_once"]["series"] == measured["series"]
    assert measured["at_once"]["rows_per_second"] > 0 and measured["at_once"]["mib_more_at_most"] >= 0
    assert not list(tmp_path.iterdir()), "what was written is taken away"

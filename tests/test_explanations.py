"""Explanations: contributions add up, ignore what the model cannot see, and are known for a linear model."""

import copy
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from torch import nn

import romae
from messages import assert_says, refused
from romae.data.schema import Fact, SampleSet, Schema
from romae.inference import explanations
from test_cli import romae as romae_command

SIZE = romae.Size(width=16, heads=2, depth=1)
SCHEMA = Schema(id="star", time="day", channel="band", channels=("g", "r"), label="kind", classes=("a", "b", "c"))
METHODS = ("integrated-gradients", "leave-out")


def stars(n=6, seed=0, numbers=False):
    random, samples = np.random.default_rng(seed), []
    for i in range(n):
        length = 6 + i % 4
        band = np.arange(length) % 2
        values = 15 + 3 * random.normal() + band + random.normal(size=length)
        positions = np.stack([np.sort(random.uniform(0, 9, length)), band], axis=1)
        target = random.normal(size=2) * 5 if numbers else i % 3
        samples.append(romae.Sample(values[:, None], positions, id=f"star {i}", target=target))
    return SampleSet(samples, replace(SCHEMA, classes=None) if numbers else SCHEMA)


def config(**more):
    return romae.ModelConfig(
        **{"channels": 1, "position_dims": 2, "kinds": 2, "encoder": SIZE, "decoder": SIZE, "cls": False} | more
    )


def given(task, samples, **scaling):
    """Weights drawn at random, with the biases of a trained model: norms of nothing at all are the hardest case."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in task.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    task.scaling, task.schema = romae.fit_scaling(samples, origin="first", **scaling), samples.schema
    return task


def made(kind, center="global"):
    torch.manual_seed(0)
    samples = stars(numbers=kind is romae.Regression)
    if kind is romae.Classification:
        return given(romae.Classification(config(), 3, confidence=0.9), samples, center=center), samples, {}
    if kind is romae.Regression:
        task = romae.Regression(config(), n_targets=2, likelihood="mixture")
        return given(task, samples, center=center, target=True), samples, {"target": 1}
    task = romae.MaskedReconstruction(config(), likelihood="normal")
    return given(task, samples, center=center), samples, {"at": [[3.0, 1]] * len(samples)}


KINDS = (romae.Classification, romae.Regression, romae.MaskedReconstruction)
CASES = [(kind, center) for kind in KINDS for center in ("global", "sample", "instance")]


def answered(task, samples, target=None, at=None):
    """The predictions of the public functions."""
    if isinstance(task, romae.Classification):
        p = romae.predict_proba(task, samples)
        return np.log(p.max(1) / (1 - p.max(1)))
    if isinstance(task, romae.Regression):
        return romae.predict(task, samples)[:, target]
    return np.concatenate(romae.interpolate(task, samples, [[place] for place in at]))[:, 0]


# Laws


@pytest.mark.parametrize(("kind", "center"), CASES)
def test_contributions_add_up_to_the_difference_from_the_baseline(kind, center):
    task, samples, what = made(kind, center)
    found = romae.explain(task, samples, tolerance=1e-3, **what)
    table = found.samples
    assert_allclose(table["prediction"], answered(task, samples, **what), rtol=1e-4, atol=1e-5)
    sizes = found.contributions["contribution"].abs().groupby(found.contributions["star"], sort=False).sum().to_numpy()
    assert (abs(table["total"] - (table["prediction"] - table["baseline"])) <= 2e-3 * sizes + 1e-5).all()
    sums = found.contributions.groupby("star", sort=False)["contribution"].sum()
    assert_allclose(sums, table["total"])
    assert sizes.min() > 1e-3, "there is something to add up"
    if center == "global":  # where the baseline is a sample that can be handed over: all values at their means
        means = task.scaling.centre
        level = SampleSet(
            [
                replace(s, values=torch.tensor([means[int(c)] for c in s.positions[:, 1]], dtype=torch.float32))
                for s in samples
            ],
            samples.schema,
        )
        if kind is not romae.Classification:
            assert_allclose(table["baseline"], answered(task, level, **what), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("kind", "center"), CASES[::2])
def test_what_is_left_out_is_what_the_prediction_loses_without_it(kind, center):
    task, samples, what = made(kind, center)
    found = romae.explain(task, samples, method="leave-out", **what)
    assert list(found.samples.columns) == ["star", "target", "prediction"]
    rows = found.contributions[found.contributions["star"] == "star 2"]["contribution"].to_numpy()
    for token in range(len(samples[2])):
        hidden = torch.arange(len(samples[2])) == token
        without = replace(samples[2], hidden=hidden, target=None)
        if kind is romae.Classification:
            p = romae.predict_proba(task, [without])[0]
            k = SCHEMA.classes.index(found.samples["target"][2])
            prediction = np.log(p[k] / (1 - p[k]))
        else:
            prediction = answered(task, [without], **what | ({"at": what["at"][:1]} if "at" in what else {}))[0]
        assert_allclose(rows[token], found.samples["prediction"][2] - prediction, rtol=1e-3, atol=1e-5)


class Additive(nn.Module):
    """An encoder that adds up what each token says by itself, so that contributions are known."""

    def __init__(self, encoder):
        super().__init__()
        self.config = encoder.config
        self.weight = nn.Parameter(torch.tensor([[2.0] + [0.0] * 15]))

    def forward(self, tokens):
        is_red = tokens.positions[:, -1:] > 0.5
        return replace(tokens, values=tokens.values @ self.weight * torch.where(is_red, -1.0, 3.0))


@pytest.mark.parametrize("method", METHODS)
def test_a_linear_model_has_the_contributions_of_its_weights(method):
    samples = stars(numbers=True)
    samples = samples.map(lambda sample: replace(sample, target=sample.target[:1]))
    task = romae.Regression(config(), n_targets=1)
    task.encoder = Additive(task.encoder)
    task.head = nn.Linear(16, 1)
    task.scaling, task.schema = romae.fit_scaling(samples, target=True), samples.schema
    found = romae.explain(task, samples, method=method).contributions
    scale = np.array([row[0] for row in task.scaling.scale])
    centre = np.array([row[0] for row in task.scaling.centre])
    for sample in samples:
        band = sample.positions[:, 1].long().numpy()
        z = (sample.values[:, 0].numpy() - centre[band]) / scale[band] * np.where(band == 1, -1, 3) * 2
        slope = float(task.head.weight.detach()[0, 0]) * task.scaling.target_scale[0]
        n, total = len(z), z.sum()
        expected = slope * z / n if method == "integrated-gradients" else slope * (total / n - (total - z) / (n - 1))
        rows = found[found["star"] == sample.id]["contribution"]
        assert_allclose(rows, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_the_model_cannot_see_contributes_nothing_and_changes_nothing(kind, method):
    task, samples, what = made(kind)
    hidden = torch.arange(len(samples[0])) == 2
    masked = SampleSet([replace(samples[0], hidden=hidden), *samples[1:]], samples.schema)
    found = romae.explain(task, masked, method=method, **what)
    assert found.contributions["contribution"][2] == 0
    rest = SampleSet(
        [replace(samples[0], values=samples[0].values[~hidden], positions=samples[0].positions[~hidden]), *samples[1:]],
        samples.schema,
    )
    without = romae.explain(task, rest, method=method, **what)
    kept = found.contributions.drop(index=2).reset_index(drop=True)
    pd.testing.assert_frame_equal(kept, without.contributions, rtol=1e-3, atol=1e-5)
    task.encoder.projection.weight.data.zero_()  # values weigh nothing
    if method == "integrated-gradients":
        assert_array_equal(romae.explain(task, samples, **what).contributions["contribution"], 0)


@pytest.mark.parametrize("method", METHODS)
def test_the_order_of_tokens_orders_contributions(method):
    task, samples, what = made(romae.Classification)
    order = torch.randperm(len(samples[3]), generator=torch.Generator().manual_seed(0))
    task.scaling = replace(task.scaling, origins=("min", "none"))  # the first token is no other's
    moved = replace(samples[3], values=samples[3].values[order], positions=samples[3].positions[order])
    rows, others = (romae.explain(task, [one], method=method).contributions for one in (samples[3], moved))
    assert_allclose(others["contribution"], rows["contribution"].to_numpy()[order.numpy()], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_the_task_stays_as_it_is_and_the_budget_changes_nothing(method):
    task, samples, what = made(romae.Classification)
    task.train()
    task.head.eval()
    before, modes = copy.deepcopy(task.state_dict()), [module.training for module in task.modules()]
    found = romae.explain(task, samples, method=method, **what)
    assert all(parameter.grad is None and parameter.requires_grad for parameter in task.parameters())
    assert [module.training for module in task.modules()] == modes
    assert all(torch.equal(before[name], value) for name, value in task.state_dict().items())
    small = romae.explain(task, samples, method=method, tokens_per_batch=10, **what)
    for one, other in zip(found, small, strict=True):
        pd.testing.assert_frame_equal(one, other, rtol=1e-3, atol=1e-5)


# What is explained


def test_units_of_classes_and_their_names():
    task, samples, _ = made(romae.Classification)
    best = romae.explain(task, samples).samples
    p = romae.predict_proba(task, samples)
    assert best["target"].tolist() == romae.predict(task, samples).tolist()
    by_name, by_index = (romae.explain(task, samples, target=target, units="probability") for target in ("b", 1))
    pd.testing.assert_frame_equal(by_name.contributions, by_index.contributions)
    assert_allclose(by_name.samples["prediction"], p[:, 1], rtol=1e-4)
    odds = romae.explain(task, samples, target="b").samples["prediction"]
    assert_allclose(odds, np.log(p[:, 1] / (1 - p[:, 1])), rtol=1e-3)


@pytest.mark.parametrize("method", METHODS)
def test_channels_are_summed_up_or_left_out_as_a_whole(method):
    task, samples, _ = made(romae.Classification)
    found = romae.explain(task, samples, method=method, per="channel")
    rows = found.contributions
    assert list(rows.columns) == ["star", "band", "contribution"] and rows["band"].tolist() == ["g", "r"] * 6
    each = romae.explain(task, samples, method=method)
    if method == "integrated-gradients":
        sums = each.contributions.groupby(["star", "band"], sort=True)["contribution"].sum()
        assert_allclose(rows["contribution"], sums)
    else:
        hidden = samples[1].positions[:, 1] == 1
        p = romae.predict_proba(task, [samples[1], replace(samples[1], hidden=hidden, target=None)])
        k = SCHEMA.classes.index(found.samples["target"][1])
        odds = np.log(p[:, k] / (1 - p[:, k]))
        assert_allclose(rows["contribution"][3], odds[0] - odds[1], rtol=1e-3)
    assert each.channels["share"].sum() == pytest.approx(1) and each.channels["band"].tolist() == ["g", "r"]
    mean = each.contributions.groupby("band")["contribution"]
    assert_allclose(each.channels["mean_contribution"], mean.mean())
    assert_allclose(each.channels["mean_size"], mean.apply(lambda one: one.abs().mean()))
    assert each.channels["n"].sum() == len(each.contributions)


def test_columns_of_values_and_static_facts():
    random = np.random.default_rng(0)
    samples = romae.from_arrays(random.normal(size=(6, 5, 2)), y=[0.5] * 6, channels=["speed", "torque"])
    task = given(romae.Regression(config(channels=2, position_dims=1, kinds=None)), samples, target=True)
    found = romae.explain(task, samples).contributions
    assert found["channel"][:2].tolist() == ["speed", "torque"] and len(found) == 60
    left = romae.explain(task, samples, method="leave-out")
    assert list(left.contributions.columns) == ["id", "time", "speed", "torque", "contribution"]
    assert len(left.contributions) == 30 and left.channels["channel"].tolist() == ["speed, torque"]
    with refused(ValueError, "share their tokens", "integrated-gradients"):
        romae.explain(task, samples, method="leave-out", per="channel")

    schema = Schema(channel="sign", channels=("pulse", "heat"), static=(Fact(column="age"),))
    samples = []
    for i in range(4):
        positions = np.stack([np.append(np.arange(4.0), 0.0), [0, 1, 0, 1, 2]], axis=1)
        samples.append(romae.Sample(random.normal(size=(5, 1)), positions, target=i % 2, id=i))
    samples = SampleSet(samples, schema)
    task = given(romae.Classification(config(kinds=3, static_from=2), 2), samples)
    for method in METHODS:
        rows = romae.explain(task, samples, method=method).contributions
        assert rows["sign"][:5].tolist() == ["pulse", "heat", "pulse", "heat", "age"]
        assert (rows["contribution"].abs() > 1e-7).all()


def test_a_measurement_that_stands_alone_cannot_be_left_out():
    task, samples, _ = made(romae.Classification)
    alone = replace(samples[0], values=samples[0].values[:1], positions=samples[0].positions[:1])
    assert romae.explain(task, [alone], method="leave-out").contributions["contribution"].isna().all()
    assert romae.explain(task, [alone]).contributions["contribution"].notna().all()


def test_contributions_that_do_not_add_up_are_told_in_one_warning(monkeypatch):
    task, samples, _ = made(romae.Classification)
    monkeypatch.setattr(explanations, "FEWEST_STEPS", 1)
    monkeypatch.setattr(explanations, "MOST_STEPS", 1)
    with pytest.warns(UserWarning, match="of 6 samples miss") as record:
        romae.explain(task, samples, tolerance=1e-6)
    assert len(record) == 1


# Bad input


def test_what_cannot_be_explained_is_refused_with_the_way_out(without_shape_checks):
    task, samples, _ = made(romae.Classification)
    masked, more, what = made(romae.MaskedReconstruction)
    regression, numbers, _ = made(romae.Regression)
    per_token = romae.Regression(config(), per="token")
    for call, error, *said in (
        (lambda: romae.explain(task, samples, target="d"), ValueError, "'d'", "a, b, c"),
        (lambda: romae.explain(task, samples, target=7), ValueError, "class 7"),
        (lambda: romae.explain(task, samples, method="shap"), ValueError, "'integrated-gradients', 'leave-out'"),
        (lambda: romae.explain(task, samples, per="token"), ValueError, "'measurement', 'channel'"),
        (lambda: romae.explain(task, samples, units="nat"), ValueError, "'logit', 'probability'"),
        (lambda: romae.explain(task, samples, tolerance=0), ValueError, "tolerance", "above 0"),
        (lambda: romae.explain(task, samples, at=[[1.0, 0]] * 6), ValueError, "at=", "Classification"),
        (lambda: romae.explain(masked, more), ValueError, "at="),
        (lambda: romae.explain(masked, more, at=[[1.0, 0]]), ValueError, "1 positions", "6 samples"),
        (lambda: romae.explain(masked, more, at=3.0), TypeError, "at="),
        (lambda: romae.explain(regression, numbers), ValueError, "target=", "0, 1"),
        (lambda: romae.explain(per_token, numbers), ValueError, "for each token"),
        (lambda: romae.explain(romae.Task, samples), TypeError, "task"),
    ):
        with refused(error, *said):
            call()


# The command line


def test_from_a_table_to_contributions(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    task, samples, _ = made(romae.Classification)
    task.save("model")
    romae.to_table(samples).to_csv("stars.csv", index=False)
    command = ["explain", "stars.csv", "--model=model", "--out=why.csv", "--set=device=cpu"]
    done = romae_command(*command, "--target=b")
    assert done.returncode == 0, done.stderr
    table, expected = pd.read_csv("why.csv"), romae.explain(task, samples, target="b")
    assert list(table.columns) == ["star", "day", "band", "value", "contribution", "target", "prediction"]
    assert_allclose(table["contribution"], expected.contributions["contribution"], rtol=1e-3, atol=1e-5)
    assert set(table["target"]) == {"b"} and table["prediction"].nunique() == 6
    done = romae_command(*command, "--force", "--method=leave-out", "--per=channel", "--json")
    assert json.loads(done.stdout)["rows"] == 12
    done = romae_command(*command, "--force", "--target=z")
    assert done.returncode == 2
    assert_says(done.stderr, "'z'", "a, b, c")
    masked, _, _ = made(romae.MaskedReconstruction)
    masked.save("masked")
    done = romae_command("explain", "stars.csv", "--model=masked", "--out=x.csv")
    assert done.returncode == 2
    assert_says(done.stderr, "pre-trained", "finetune", "at=")

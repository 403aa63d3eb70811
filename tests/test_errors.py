"""Measurement errors: columns beside the values, read by a model, never predicted, and undone with the scaling."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

import romae
from messages import refused
from romae.config import from_dict, to_dict
from romae.data.schema import SampleSet
from romae.inference.baselines import filled_along_time, linear, truth
from romae.inference.distributions import Distribution, Units
from romae.inference.predictions import prepared
from romae.model.likelihoods import LOG_RANGE, Mixture, Normal, Student
from romae.tokens.errors import LEAST, variances

SIZE = romae.Size(width=16, heads=2, depth=1)
CONFIG = romae.TrainConfig(epochs=1, batch_size=8, device="cpu")
COLUMNS = {"id": "star", "time": "day", "channel": "band", "values": "flux", "error": "flux_err"}
DENSITIES = [Normal(), Student(), Mixture(n=3)]


def curves(n=6, factor=1.0):
    random = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "star": np.repeat(np.arange(n), 8),
            "day": random.uniform(0, 30, 8 * n),
            "band": np.tile(["g", "r"], 4 * n),
            "flux": random.normal(40, 10, 8 * n) * factor,
            "flux_err": random.uniform(0.5, 5, 8 * n) * factor,
        }
    )
    table.loc[3, "flux_err"] = np.nan
    return table


TABLE = curves()
SAMPLES = romae.from_table(TABLE, **COLUMNS)
HIDDEN = [replace(sample, hidden=np.arange(8) % 2 == 1) for sample in SAMPLES]


def trained(samples=SAMPLES, likelihood="normal", seed=0, **scaling):
    torch.manual_seed(seed)
    model = romae.ModelConfig.for_samples(samples, encoder=SIZE, ladders=None)
    task = romae.MaskedReconstruction(model, masking=romae.UniformTokens(ratio=0.5), likelihood=likelihood)
    romae.train(task, samples, CONFIG, scaling=romae.fit_scaling(samples, **scaling), quiet=True)
    return task


@pytest.fixture(scope="module")
def task():
    return trained()


def with_errors(samples, errors, where=slice(None)):
    changed = []
    for sample in samples:
        values = sample.values.clone()
        values[where, 1] = errors
        changed.append(replace(sample, values=values))
    return changed


# Reading


def test_errors_stand_behind_the_values_and_what_is_missing_is_0():
    schema = SAMPLES.schema
    assert (schema.values, schema.errors, schema.n_errors) == (("flux",), ("flux_err",), 1)
    first = TABLE[TABLE.star == 0].sort_values("day")
    assert_allclose(SAMPLES[0].values.numpy(), first[["flux", "flux_err"]].fillna(0.0), rtol=1e-6)


def test_every_way_to_read_gives_the_same_samples(tmp_path):
    again = romae.from_table_like(TABLE, SAMPLES.schema)
    written = romae.write_store(SAMPLES, tmp_path / "stars")
    back = romae.from_table_like(romae.to_table(SAMPLES), SAMPLES.schema)
    for other in (again, written, back):
        assert other.schema == SAMPLES.schema
        assert all(torch.equal(a.values, b.values) for a, b in zip(other, SAMPLES, strict=True))


def test_errors_of_arrays_and_of_a_column_per_channel():
    X, errors = np.random.default_rng(0).normal(size=(2, 3, 2)), np.full((2, 3, 2), 0.5)
    steps = romae.from_arrays(X, errors=errors, channels=["a", "b"])
    assert steps.schema.errors == ("a_error", "b_error") and steps[0].values.shape == (3, 4)
    assert_array_equal(steps[0].values[:, 2:], errors[0])
    X[0, 0, 0], errors[0, 1, 1] = np.nan, np.nan
    scalars = romae.from_arrays(X, errors=errors, tokens="scalars")
    assert scalars[0].values.shape == (5, 2) and sorted(scalars[0].values[:, 1].tolist()) == [0, 0.5, 0.5, 0.5, 0.5]
    wide = pd.DataFrame({"id": 1, "time": [0.0, 1.0], "a": [1.0, 2.0], "b": [3.0, None], "ea": 0.1, "eb": [0.2, 0.3]})
    names = {"id": "id", "time": "time", "values": ["a", "b"], "error": ["ea", "eb"]}
    read = romae.from_table(wide, **names, tokens="scalars")
    assert_allclose(read[0].values, [[1.0, 0.1], [3.0, 0.2], [2.0, 0.1]])
    assert torch.equal(romae.from_table_like(wide, read.schema)[0].values, read[0].values)
    assert torch.equal(romae.from_table_like(romae.to_table(read), read.schema)[0].values, read[0].values)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"flux_err": -1.0}, ("row 5", "flux_err", "-1", "standard deviations")),
        ({"flux_err": np.inf}, ("row 5", "flux_err", "inf")),
    ],
)
def test_errors_that_are_none_are_refused(change, words):
    table = curves()
    for name, number in change.items():
        table.loc[5, name] = number
    with refused(ValueError, *words):
        romae.from_table(table, **COLUMNS)


def test_errors_that_fit_no_values_are_refused():
    with refused(ValueError, "error of its own", "2 are named"):
        romae.from_table(TABLE, **(COLUMNS | {"error": ["flux_err", "day"]}))
    with refused(ValueError, "[3, 1]", "[2, 1]"):
        romae.from_arrays(np.zeros((1, 3, 1)), errors=np.zeros((1, 2, 1)))
    with refused(ValueError, "sample 0", "row 0", "-1"):
        romae.from_arrays(np.zeros((1, 3, 1)), errors=-np.ones((1, 3, 1)))
    with refused(ValueError, "half", "3 channels"):
        romae.ModelConfig(channels=3, position_dims=1, errors=1)
    with refused(ValueError, "flux_err"):
        romae.from_table_like(TABLE.drop(columns="flux_err"), SAMPLES.schema)


# Scaling


@pytest.mark.parametrize("method", ["none", "standard", "robust", "asinh", "robust-asinh"])
def test_errors_are_scaled_like_small_differences_of_their_values_and_back(method):
    scaling = romae.fit_scaling(SAMPLES, values=method)
    for sample in SAMPLES:
        measured, error = sample.values.double().split(1, dim=1)
        scaled = scaling.scale_values(sample.values, sample.positions)
        step = 1e-6 * error
        moved = scaling.scale_values(torch.cat([measured + step, error], 1), sample.positions)
        slope = (moved - scaled)[:, 0] / step[:, 0]
        known = error[:, 0] > 0
        variance = variances(scaled[:, 1:])[:, 0]
        assert_allclose(variance[known], (error[:, 0] * slope)[known].square(), rtol=1e-4)
        assert (scaled[~known, 1] == LEAST).all() and (variance[~known] == 0).all()
        assert_allclose(scaling.invert_values(scaled, sample.positions), sample.values, rtol=1e-9)
        assert_allclose(scaling.invert_values(scaled[:, :1], sample.positions), measured, rtol=1e-9)


@pytest.mark.parametrize("center", ["global", "sample", "instance"])
def test_a_scaling_is_fitted_to_the_values_alone(center):
    plain = romae.from_table(TABLE.drop(columns="flux_err"), **{k: v for k, v in COLUMNS.items() if k != "error"})
    with_them, without = (romae.fit_scaling(samples, center=center) for samples in (SAMPLES, plain))
    assert replace(with_them, errors=0) == without
    assert from_dict(romae.Scaling, to_dict(with_them)) == with_them


@pytest.mark.parametrize("center", ["sample", "instance"])
def test_centring_enlarges_errors_with_the_deviations_of_their_values(center):
    task = trained(center=center)
    batch = next(prepared(task, HIDDEN))
    levels = task.levels(batch.tokens)
    seen, own = levels.relative(batch.tokens).values, batch.tokens.values
    gain = levels.gain[batch.tokens.layout.sample_of_token * 2 + batch.tokens.positions[:, 1].long()]
    known = own[:, 1] > LEAST
    assert not known.all()
    assert_allclose(variances(seen[:, 1])[known], (variances(own[:, 1]) * gain[:, 0].square())[known], rtol=1e-4)
    assert (seen[~known, 1] == LEAST).all()


# Learning


@pytest.mark.parametrize("center", ["global", "sample", "instance"])
def test_errors_of_hidden_tokens_change_no_prediction_and_visible_ones_do(center):
    task = trained(center=center)
    answer = romae.predict(task, HIDDEN)
    assert answer[0].shape == (4, 1)
    of_hidden = romae.predict(task, with_errors(HIDDEN, 99.0, where=HIDDEN[0].hidden))
    of_visible = romae.predict(task, with_errors(HIDDEN, 99.0, where=~HIDDEN[0].hidden))
    assert_array_equal(np.stack(answer), np.stack(of_hidden))
    assert not np.allclose(np.stack(answer), np.stack(of_visible))


@pytest.mark.parametrize("likelihood", DENSITIES, ids=lambda one: one.kind)
def test_the_loss_is_that_of_the_values_with_their_noise(likelihood):
    task = trained(likelihood=likelihood).eval()
    batch = next(prepared(task, HIDDEN))
    raw = task.output(batch.tokens, batch.hidden.positions, batch.hidden.layout, None).unflatten(-1, (1, -1))
    value, error = batch.hidden.values.split(1, dim=1)
    expected = -likelihood.log_density(raw, value, variances(error)).sum()
    loss = task(batch)
    assert int(loss.weight) == len(value) and loss.total.item() == pytest.approx(expected.item(), rel=1e-5)


def test_errors_that_are_not_known_leave_the_loss_of_values_alone(task):
    batch = next(prepared(task, with_errors(HIDDEN, 0.0, where=HIDDEN[0].hidden)))
    raw = task.output(batch.tokens, batch.hidden.positions, batch.hidden.layout, None).unflatten(-1, (1, -1))
    expected = -Normal().log_density(raw, batch.hidden.values[:, :1]).sum()
    assert task.eval()(batch).total.item() == pytest.approx(expected.item(), rel=1e-6)


def test_under_a_squared_error_errors_are_inputs_and_no_targets():
    task = trained(likelihood=None).eval()
    batch = next(prepared(task, HIDDEN))
    error = task.predict(batch) - batch.hidden.values[:, :1]
    assert task(batch).total.item() == pytest.approx(error.square().sum().item(), rel=1e-5)
    assert task.trivial(batch).weight.item() == task(batch).weight.item() == len(error)


@pytest.mark.parametrize("likelihood", DENSITIES, ids=lambda one: one.kind)
def test_under_huge_errors_all_that_is_left_is_noise(likelihood):
    values = torch.linspace(-2, 2, 5).reshape(5, 1)
    error = torch.full((5, 1), np.log(1e5))
    losses = [likelihood.loss(torch.randn(5, 1, likelihood.n_parameters), values, variances(error)) for _ in range(2)]
    assert_allclose(losses[0], losses[1], atol=0.5 if likelihood.kind == "student" else 1e-3)
    assert_allclose(losses[0], np.log(1e5) + 0.5 * np.log(2 * np.pi), atol=0.3)


@pytest.mark.parametrize("likelihood", [*DENSITIES, "quantiles"], ids=lambda one: getattr(one, "kind", one))
def test_a_value_far_out_blows_up_no_step(likelihood):
    random = np.random.default_rng(0)
    X = random.normal(10, 1, size=(8, 6, 1))
    scaling = romae.fit_scaling(romae.from_arrays(X))
    model = romae.ModelConfig(channels=1, position_dims=1, encoder=SIZE, decoder=SIZE)
    torch.manual_seed(0)
    task = romae.MaskedReconstruction(model, likelihood=likelihood)
    norms = []
    for value in (10.0, 6_251.0):
        X[3, 2] = value
        samples = [replace(scaling.apply(sample), hidden=np.arange(6) >= 2) for sample in romae.from_arrays(X)]
        task.zero_grad()
        loss = task(romae.collate(samples))
        loss.mean.backward()
        norms.append(float(torch.nn.utils.get_total_norm([p.grad for p in task.parameters() if p.grad is not None])))
        assert np.isfinite(loss.mean.item())
    assert norms[1] < 10 * norms[0], "under a squared error it is thousands of times as long"


@pytest.mark.parametrize("likelihood", DENSITIES, ids=lambda one: one.kind)
def test_a_density_has_a_bound_that_an_atom_cannot_break(likelihood):
    raw = torch.zeros(1, 1, likelihood.n_parameters)
    raw[..., 1 if likelihood.kind != "mixture" else slice(6, 9)] = -1e6
    at_peak = likelihood.log_density(raw, likelihood.mean(raw) if likelihood.kind != "mixture" else raw[..., 0])
    assert float(at_peak) <= LOG_RANGE - 0.5 * np.log(2 * np.pi) + 1e-4


def test_units_of_values_and_errors_change_answers_by_that_factor():
    larger = romae.from_table(curves(factor=4.0), **COLUMNS)
    hidden = [replace(sample, hidden=np.arange(8) % 2 == 1) for sample in larger]
    small, large = trained(), trained(larger)
    for noise in (False, True):
        a = romae.predict(small, HIDDEN, returns="distribution", noise=noise)
        b = romae.predict(large, hidden, returns="distribution", noise=noise)
        assert_allclose(np.stack([d.mean() for d in b]), 4 * np.stack([d.mean() for d in a]), rtol=1e-4)
        assert_allclose(np.stack([d.std() for d in b]), 4 * np.stack([d.std() for d in a]), rtol=1e-4)


def test_the_container_changes_nothing(task, tmp_path):
    stored = romae.write_store(SAMPLES, tmp_path / "stars")
    other = trained(stored)
    assert other.scaling == task.scaling
    for name, weight in task.state_dict().items():
        assert torch.equal(weight, other.state_dict()[name])
    written = romae.write_store(SampleSet(HIDDEN, SAMPLES.schema), tmp_path / "hidden")
    assert_array_equal(np.stack(romae.predict(task, HIDDEN)), np.stack(romae.predict(other, written)))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda config: romae.MaskedReconstruction(config, likelihood="quantiles"), ("'normal'", "leave the errors")),
        (
            lambda config: romae.MaskedReconstruction(replace(config, channels=4, errors=2), normalise=True),
            ("patches",),
        ),
        (lambda config: romae.train(romae.MaskedReconstruction(config), SAMPLES, CONFIG), ("fit_scaling",)),
    ],
)
def test_what_errors_do_not_go_with_is_refused(task, make, words):
    with refused(ValueError, *words):
        make(task.config)


def test_a_model_without_errors_refuses_samples_with_them():
    model = romae.ModelConfig(channels=2, position_dims=2, encoder=SIZE, decoder=SIZE)
    scaling = replace(romae.fit_scaling(SAMPLES), errors=0, method="none")
    task = romae.MaskedReconstruction(model)
    with refused(ValueError, "measurement errors", "n_errors"):
        romae.train(task, SAMPLES, CONFIG, scaling=scaling)


def test_a_checkpoint_of_before_loads_and_one_with_errors_answers_alike(task, tmp_path):
    config = to_dict(replace(task.config, errors=0))
    del config["errors"]
    assert from_dict(romae.ModelConfig, config).errors == 0
    task.save(tmp_path / "model")
    again = romae.load(tmp_path / "model")
    assert again.config.errors == 1 and again.scaling == task.scaling
    assert_array_equal(np.stack(romae.predict(again, HIDDEN)), np.stack(romae.predict(task, HIDDEN)))


# Answers


def test_noise_adds_the_variance_of_the_measurement(task):
    plain, noisy = (romae.predict(task, HIDDEN, returns="distribution", noise=noise) for noise in (False, True))
    for sample, a, b in zip(HIDDEN, plain, noisy, strict=True):
        error = sample.values[sample.hidden, 1:].double().numpy()
        assert_allclose(b.std() ** 2, a.std() ** 2 + error**2)
        assert_array_equal(a.mean(), b.mean())


@pytest.mark.parametrize("likelihood", DENSITIES, ids=lambda one: one.kind)
@pytest.mark.parametrize("method", ["standard", "robust-asinh"])
def test_a_distribution_with_noise_is_one(likelihood, method):
    task = trained(likelihood=likelihood, values=method)
    [plain] = romae.interpolate(task, SAMPLES[:1], [[[3.0, 0], [9.0, 1]]], returns="distribution")
    noisy = plain.with_noise([[3.0], [np.nan]])
    assert noisy.std()[0] > plain.std()[0] and noisy.std()[1] == plain.std()[1]
    level = noisy.cdf(noisy.quantile(0.3))
    assert_allclose(level, 0.3, atol=1e-6)
    x = np.linspace(-400, 500, 501)[:, None]
    density = np.exp(noisy[[0] * len(x)].log_prob(x))
    assert float(density.sum() * (x[1, 0] - x[0, 0])) == pytest.approx(1, abs=0.02)
    drawn = noisy.sample(500, seed=0)[:, 0, 0]
    assert np.median(drawn) == pytest.approx(noisy.median()[0, 0], abs=0.2 * noisy.std()[0, 0])


@pytest.mark.parametrize("method", ["none", "asinh", "robust-asinh"])
@pytest.mark.parametrize("error", [0.3, 3.0, 1e5])
def test_two_thirds_of_what_is_mostly_noise_lie_within_one_error(method, error):
    one = np.ones(3)
    units, median = Units(one, 0 * one, one, 0 * one, method), np.array([-2.0, 0.0, 4.0])
    exact = Distribution(Normal(), np.stack([units.to_model(median), -30 * one], -1), units)
    noisy = exact.with_noise(error)
    within = noisy.cdf(median + error) - noisy.cdf(median - error)
    assert_allclose(within, 0.683, atol=0.06)


def test_noise_is_refused_where_nothing_is_known_of_it(task):
    with refused(ValueError, "distribution"):
        romae.predict(task, HIDDEN, noise=True)
    [plain] = romae.interpolate(task, SAMPLES[:1], [[[3.0, 0]]], returns="distribution")
    with refused(ValueError, "at least 0"):
        plain.with_noise(-1.0)


def test_answers_tables_features_and_baselines_are_of_values(task):
    answers = romae.interpolate(task, SAMPLES, [[[3.0, 0]]] * 6)
    assert answers[0].shape == (1, 1)
    table = romae.to_table(SAMPLES, answers, positions=[[[3.0, 0]]] * 6)
    assert list(table) == ["star", "day", "band", "flux"] and romae.embed(task, SAMPLES).shape[0] == 6
    hidden = SampleSet(HIDDEN, SAMPLES.schema)
    assert filled_along_time(linear, hidden).shape == (24, 1) and truth(HIDDEN[0]).shape == (4, 1)
    assert "g flux_err mean" in romae.summary_features(SAMPLES).names


@pytest.mark.parametrize("answer", ["predict", "embed", "interpolate"])
@pytest.mark.parametrize("values", ["robust-asinh", "none"])
def test_an_exported_model_reads_errors_as_the_library_does(answer, values):
    from romae.inference.graph import Graph
    from romae.inference.parity import largest_difference

    task = trained(values=values, center="global") if answer != "predict" else classifier()
    if values == "none" and answer == "embed":
        task = trained(center="instance")
    graph = Graph(task.eval(), answer, "padded")

    def run(arrays):
        with torch.no_grad():
            return graph(*map(torch.from_numpy, arrays.values())).numpy()

    largest_difference(task, answer, "padded", run)  # refuses what differs


def classifier():
    samples = romae.from_table(TABLE.assign(kind=TABLE.star % 2), **COLUMNS, label="kind")
    task = romae.Classification(romae.ModelConfig.for_samples(samples, encoder=SIZE), n_classes=2)
    romae.train(task, samples, CONFIG, scaling=romae.fit_scaling(samples, center="sample"), quiet=True)
    return task


# Estimators and tables


def test_estimators_read_errors_from_tables_and_triples():
    small = {"size": SIZE, "pretrain_epochs": 1, "batch_size": 8, "device": "cpu", "random_state": 0}
    fitted = romae.RoMAEInterpolator(columns=COLUMNS, **small).fit(TABLE)
    assert fitted.task_.config.errors == 1 and np.isfinite(fitted.score(TABLE))
    assert list(fitted.interpolate(TABLE, [1.0, 2.0])) == ["g", "r"]
    X = [(group.day.to_numpy(), group.flux.to_numpy(), group.flux_err.to_numpy()) for _, group in TABLE.groupby("star")]
    triples = romae.RoMAEInterpolator(**small).fit(X)
    assert triples.task_.config.errors == 1 and triples.n_features_in_ == 1
    assert triples.interpolate([(x[:2], y[:2], e[:2]) for x, y, e in X], [1.0]).shape == (6, 1, 1)
    with refused(ValueError, "measurement errors", "none"):
        triples.interpolate([(x, y) for x, y, _ in X], [1.0])


def test_a_table_is_trained_on_and_answered_with_its_errors(tmp_path):
    from romae.inference.tables import InterpolateConfig, interpolate_table
    from romae.training.tables import Columns, PretrainConfig, TrainSettings, pretrain

    columns = Columns(**{k: (v,) if k in ("values", "error") else v for k, v in COLUMNS.items()})
    config = PretrainConfig(columns=columns, train=TrainSettings(epochs=1, batch_size=8, device="cpu"))
    config = replace(config, model=replace(config.model, encoder=SIZE, decoder=SIZE))
    done = pretrain(config, TABLE, tmp_path / "run")
    assert done.task.config.errors == 1
    table = interpolate_table(InterpolateConfig(device="cpu"), TABLE, done.model, at="0:30:3")
    assert list(table) == ["star", "day", "band", "flux"] and len(table) == 36


def test_columns_of_a_table_bring_their_errors_in_any_order():
    from romae.training.tables import Columns, read_table, require_columns

    wide = pd.DataFrame({"id": 1, "time": [0.0, 1.0], "a": [1.0, 2.0], "b": [3.0, None], "ea": 0.1, "eb": 0.2})
    schema = romae.from_table(
        wide, id="id", time="time", values=["b", "a"], error=["eb", "ea"], tokens="scalars"
    ).schema
    named = Columns(id="id", time="time", values=("a", "b"), error=("ea", "eb"))
    for columns in (named, Columns()):
        [sample] = read_table(wide, columns.schema(schema), schema)
        assert_allclose(sample.values, [[3.0, 0.2], [1.0, 0.1], [2.0, 0.1]])
    task = romae.MaskedReconstruction(romae.ModelConfig(channels=2, position_dims=2, encoder=SIZE, decoder=SIZE))
    with refused(ValueError, "flux_err", "--error"):
        require_columns(task, SAMPLES.schema, "the model")


def test_augmentation_leaves_errors_as_they_are():
    samples = romae.from_table(TABLE.assign(kind=TABLE.star % 2), **COLUMNS, label="kind")
    config = romae.ModelConfig.for_samples(samples, encoder=SIZE)
    task = romae.Classification(config, n_classes=2, augment=romae.Noise(scale=0.5))
    batch = romae.collate([romae.fit_scaling(samples).apply(sample) for sample in samples])
    values, changed = batch.tokens.values, task.augmented(batch).tokens.values
    assert torch.equal(values[:, 1], changed[:, 1]) and not torch.equal(values[:, 0], changed[:, 0])


# Atoms


def test_exact_numbers_are_told_by_channel_and_when_training_begins(capsys):
    random = np.random.default_rng(0)
    rain = np.where(random.uniform(size=(20, 30, 1)) < 0.4, 0.0, random.normal(size=(20, 30, 1)))
    samples = romae.from_arrays(np.concatenate([rain, random.normal(size=rain.shape)], 2), channels=["rain", "wind"])
    [(name, value, share)] = romae.atoms(samples)
    assert (name, value) == ("rain", 0.0) and share == pytest.approx((rain == 0).mean())
    scalars = romae.from_arrays(rain, channels=["rain"], tokens="scalars", errors=np.zeros_like(rain))
    assert [(atom.name, atom.value) for atom in romae.atoms(scalars)] == [("rain", 0.0)]
    model = romae.ModelConfig(channels=2, position_dims=1, encoder=SIZE, decoder=SIZE)
    for likelihood, is_told in (("normal", True), (None, False)):
        romae.train(romae.MaskedReconstruction(model, likelihood=likelihood), samples, CONFIG)
        assert ("of rain are 0" in capsys.readouterr().err) == is_told
    with refused(ValueError, "share"):
        romae.atoms(samples, share=0)

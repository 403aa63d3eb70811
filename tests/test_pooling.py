"""Vectors from several layers: statistics of a sample's tokens, whatever their order, their batch and their clock."""

import json
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

import romae
from messages import refused
from romae.data.scaling import Scaling
from romae.data.schema import SampleSet, Schema
from romae.data.store import write_store
from romae.estimators.inputs import read_input
from romae.model.pooling import SMALLEST, n_pooled, pool_layers, pooled_layers
from romae.tokens.packed import second_part
from romae.tokens.tokens import Layout

SIZE = {"encoder": romae.Size(width=16, heads=2, depth=3), "decoder": romae.Size(width=8, heads=1, depth=1)}
STEPS = romae.ModelConfig(channels=2, position_dims=1, cls=False, **SIZE)
SCALARS = romae.ModelConfig(channels=1, position_dims=2, cls=False, kinds=4, kinds_spread=1.0, pool="kinds", **SIZE)
CONFIGS = {
    "steps": STEPS,
    "with CLS": replace(STEPS, cls=True),
    "kinds": SCALARS,
    "kinds and CLS": replace(SCALARS, cls=True, pool="tokens"),
}
SETTINGS = {"size": {"width": 16, "heads": 2, "depth": 1}, "pretrain_epochs": 1, "device": "cpu", "random_state": 0}
close = {"rtol": 1e-3, "atol": 1e-4}


def make(config):
    torch.manual_seed(0)
    task = romae.MaskedReconstruction(config)
    origins = ("min",) if config.position_dims == 1 else ("min", "none")
    task.scaling = Scaling(origins=origins, units=(2.0, 1.0)[: config.position_dims])
    return task


def samples_of(config, lengths=(7, 1, 12, 3, 12)):
    """Samples with repeated times and, of kinds, repeated measurements."""
    random = np.random.default_rng(0)
    samples = []
    for i, n in enumerate(lengths):
        positions = [random.integers(0, 6, n).astype(float)]
        if config.position_dims == 2:
            positions.append(random.integers(0, 4, n).astype(float))
        samples.append(romae.Sample(random.normal(size=(n, config.channels)), np.stack(positions, 1), id=str(i)))
    return samples


def by_hand(task, sample):
    """The vector of one sample, computed place by place."""
    config, batch = task.config, task.scaling.apply(sample)
    tokens = romae.collate([batch]).tokens
    vector = []
    with torch.no_grad():
        layers = task.encoder.layers(tokens, pooled_layers(config))
    for layer in layers:
        x = layer.values[int(config.cls) :].double().numpy()
        places = [tuple(place) for place in sample.positions.numpy()]
        vector += distribution(x)
        means = {place: x[[p == place for p in places]].mean(0) for place in places}
        rows: dict = {}
        for place in sorted(means):
            rows.setdefault(place[1:], []).append(means[place])
        changes = [abs(b - a) for row in rows.values() for a, b in zip(row, row[1:], strict=False)]
        vector.append(np.log((np.mean(changes, 0) if changes else np.zeros(16)) + SMALLEST))
        if config.kinds is not None:
            kinds = np.array([place[1] for place in places])
            vector += distribution(np.array([x[kinds == kind].mean(0) for kind in np.unique(kinds)]))
    if config.cls:
        vector.append(layers[-1].values[0].numpy())
    return np.concatenate(vector)


def distribution(x):
    mean, deviation = x.mean(0), x.std(0) + SMALLEST
    return [mean, np.log(deviation), (x.max(0) - mean) / deviation, (x.min(0) - mean) / deviation]


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_vectors_are_what_a_loop_over_places_finds(config):
    task, samples = make(config), samples_of(config)
    vectors = romae.embed(task, samples, pooling="layers")
    assert vectors.shape == (5, n_pooled(config)) and vectors.dtype == np.float32
    for vector, sample in zip(vectors, samples, strict=True):
        assert_allclose(vector, by_hand(task, sample), **close)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_the_order_of_tokens_the_batch_and_the_clock_change_nothing(config):
    task, samples = make(config), samples_of(config)
    vectors = romae.embed(task, samples, pooling="layers")
    random = np.random.default_rng(1)
    later = torch.tensor([1e6] + [0.0] * (config.position_dims - 1), dtype=torch.float64)
    for change in ("order", "batch", "others", "clock"):
        asked, options, expected = samples, {}, vectors
        if change == "order":
            orders = [torch.tensor(random.permutation(len(sample))) for sample in samples]
            asked = [
                replace(sample, values=sample.values[order], positions=sample.positions[order])
                for sample, order in zip(samples, orders, strict=True)
            ]
        elif change == "batch":
            options = {"tokens_per_batch": 1}
        elif change == "others":
            asked, expected = samples[3:1:-1], vectors[3:1:-1]
        else:
            asked = [replace(sample, positions=sample.positions + later) for sample in samples]
        assert_allclose(romae.embed(task, asked, pooling="layers", **options), expected, **close)


def test_the_container_changes_nothing(tmp_path):
    schema = Schema(id="id", time="t", channel="kind", channels=tuple("abcd"), values=("v",))
    task, samples = make(SCALARS), [sample.with_schema(schema) for sample in samples_of(SCALARS)]
    vectors = romae.embed(task, samples, pooling="layers")
    store = write_store(samples, tmp_path / "store")
    for held in (tuple(samples), SampleSet(samples, schema), store):
        assert_array_equal(romae.embed(task, held, pooling="layers"), vectors)


def test_layers_are_those_of_the_encoder_and_the_last_is_its_output():
    task, samples = make(CONFIGS["kinds and CLS"]), samples_of(SCALARS)
    tokens = romae.collate([task.scaling.apply(sample) for sample in samples]).tokens
    with torch.no_grad():
        first, _, last = task.encode_layers(tokens)
        torch.testing.assert_close(last.values, task.encode(tokens).values)
        entering = second_part(first.values, Layout.singles(5), tokens.layout)
        torch.testing.assert_close(entering, task.encoder.kinds(_projected(task, tokens)).values)
    assert pooled_layers(STEPS) == (0, 1, 3)
    assert pooled_layers(replace(STEPS, encoder=romae.Size(width=16, heads=2, depth=1))) == (0, 1)


def _projected(task, tokens):
    return replace(tokens, values=task.encoder.projection(tokens.values))


def test_a_windowed_model_gives_its_layers_in_the_order_of_the_tokens():
    config = replace(STEPS, window=50, queries="joint")  # all tokens see each other, so nothing but the order differs
    task, samples = make(config), samples_of(config)
    assert_allclose(
        romae.embed(task, samples, pooling="layers"), romae.embed(make(STEPS), samples, pooling="layers"), **close
    )


def test_a_series_that_does_not_vary_has_a_vector_of_numbers():
    sample, single = romae.Sample(np.ones((5, 2)), np.arange(5.0)[:, None]), romae.Sample([[1.0, 1.0]], [[0.0]])
    vectors = romae.embed(make(STEPS), [sample, single], pooling="layers")
    assert np.isfinite(vectors).all()
    of_entering = vectors[:, : 5 * 16].reshape(2, 5, 16)
    assert_allclose(of_entering[:, 1], np.log(SMALLEST), atol=1e-2)
    assert_allclose(of_entering[:, 2:4], 0, atol=1e-2)


def test_other_samples_and_other_precision_leave_a_vector_in_single_precision():
    task = make(STEPS).to(torch.bfloat16)
    vectors = romae.embed(task, samples_of(STEPS), pooling="layers")
    assert vectors.dtype == np.float32 and np.isfinite(vectors).all()


# The estimator

PAIRS = [(np.sort(np.random.default_rng(i).uniform(0, 9, 8)), np.sin(np.arange(8) * i)) for i in range(12)]


@pytest.fixture(scope="module")
def embedder():
    return romae.RoMAEEmbedder(**SETTINGS).fit(PAIRS)


def test_the_pooling_of_an_embedder_may_change_after_fitting(embedder, without_shape_checks):
    assert embedder.transform(PAIRS).shape == (12, 160) == (12, len(embedder.get_feature_names_out()))
    samples = read_input(PAIRS)
    assert_array_equal(embedder.transform(PAIRS), romae.embed(embedder.task_, samples, pooling="layers"))
    try:
        embedder.set_params(pooling="model")
        assert_array_equal(embedder.transform(PAIRS), romae.embed(embedder.task_, samples))
        assert len(embedder.get_feature_names_out()) == 16
        embedder.set_params(pooling="mean")
        with refused(ValueError, "pooling must be", "'mean'"):
            embedder.transform(PAIRS)
    finally:
        embedder.set_params(pooling="layers")


def test_an_unknown_pooling_is_refused_before_training(without_shape_checks):
    with refused(ValueError, "pooling", "mean"):
        romae.RoMAEEmbedder(**SETTINGS, pooling="mean").fit(PAIRS)


def test_an_embedder_that_was_saved_before_there_was_a_choice_gives_the_vectors_it_gave(embedder, tmp_path):
    embedder.save(tmp_path / "new")
    assert romae.RoMAEEmbedder.load(tmp_path / "new").pooling == "layers"
    path = tmp_path / "new" / "estimator.json"
    description = json.loads(path.read_text())
    del description["settings"]["pooling"], description["digest"]
    path.write_text(json.dumps(description))
    old = romae.RoMAEEmbedder.load(tmp_path / "new")
    assert_array_equal(old.transform(PAIRS), romae.embed(embedder.task_, read_input(PAIRS)))
    state = embedder.__getstate__()
    del state["pooling"]
    unpickled = romae.RoMAEEmbedder.__new__(romae.RoMAEEmbedder)
    unpickled.__setstate__(state)
    assert_array_equal(unpickled.transform(PAIRS), old.transform(PAIRS))
    assert_array_equal(pickle.loads(pickle.dumps(embedder)).transform(PAIRS), embedder.transform(PAIRS))


def test_pool_layers_takes_layers_as_they_are():
    task, samples = make(STEPS), samples_of(STEPS)
    with torch.no_grad():
        layers = task.encode_layers(romae.collate([task.scaling.apply(sample) for sample in samples]).tokens)
        assert_allclose(pool_layers(layers, STEPS), romae.embed(task, samples, pooling="layers"), **close)

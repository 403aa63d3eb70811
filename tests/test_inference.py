"""Inference: the same answer whatever the batch, in the order of the request and in the units of the data."""

import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Event

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from messages import refused, warned
from romae.checkpoints import native as checkpoint
from romae.data.export import to_table
from romae.data.queries import channel_numbers
from romae.data.scaling import Scaling, fit_scaling
from romae.data.schema import Schema
from romae.data.series import from_arrays
from romae.data.store import write_store
from romae.data.tables import from_table
from romae.inference import predictions as inference
from romae.inference.predictions import embed, interpolate, predict, predict_proba
from romae.inference.slabs import in_advance
from romae.inference.tables import InferenceConfig, predict_table
from romae.model.config import ModelConfig, Size
from romae.model.tasks import Classification, MaskedReconstruction, Regression
from romae.tokens.masking import UniformTokens
from romae.tokens.sample import Sample
from romae.tokens.tokens import Layout, collate
from romae.training.config import TrainConfig
from romae.training.loop import train

LENGTHS = [6, 2, 11, 1, 11, 4, 30]
SMALL = {"encoder": Size(width=16, heads=2, depth=2), "decoder": Size(width=8, heads=1, depth=2)}
CONFIG = ModelConfig(channels=3, position_dims=1, dropout=0.5, **SMALL)
SCALING = Scaling(
    method="standard",
    centre=((10.0, -5.0, 100.0),),
    scale=((2.0, 0.5, 3.0),),
    origins=("min",),
    units=(4.0,),
    target_mean=(50.0,),
    target_scale=(7.0,),
)
close = {"rtol": 1e-5, "atol": 1e-5}


def make(kind, config=CONFIG, scaling=None, **settings):
    """A task whose weights are large enough for outputs to differ."""
    torch.manual_seed(0)
    task = kind(config, **settings)
    with torch.no_grad():
        task.head.linear.weight.normal_()
    task.scaling = scaling
    return task.eval()


def raw_samples(lengths=LENGTHS, dims=1, channels=3) -> list[Sample]:
    random = np.random.default_rng(0)
    return [Sample(random.normal(5, 9, (n, channels)), 59_000 + random.uniform(0, 40, (n, dims))) for n in lengths]


def masked_samples() -> list[Sample]:
    return [replace(s, hidden=torch.arange(len(s)) % 2 == 0) for s in raw_samples([6, 2, 11, 11, 4, 30])]


def times(samples, n_queries=(3, 0, 8, 1, 2, 40, 5)) -> list[np.ndarray]:
    random = np.random.default_rng(1)
    return [59_000 + random.uniform(-10, 50, n) for n, _ in zip(n_queries, samples, strict=False)]


# One call of each kind, with the samples it is for.
CALLS = {
    "classes": lambda s, **o: predict(make(Classification, n_classes=4, scaling=SCALING), s, **o),
    "probabilities": lambda s, **o: predict_proba(make(Classification, n_classes=4, scaling=SCALING), s, **o),
    "numbers": lambda s, **o: predict(make(Regression, scaling=SCALING), s, **o),
    "vectors": lambda s, **o: predict(make(Regression, n_targets=2), s, **o),
    "numbers per token": lambda s, **o: predict(make(Regression, per="token", scaling=SCALING), s, **o),
    "embeddings": lambda s, **o: embed(make(Classification, n_classes=4, scaling=SCALING), s, **o),
    "mean embeddings": lambda s, **o: embed(make(MaskedReconstruction, replace(CONFIG, cls=False)), s, **o),
    "embeddings of layers": lambda s, **o: embed(
        make(Classification, n_classes=4, scaling=SCALING), s, pooling="layers", **o
    ),
    "token embeddings": lambda s, **o: embed(make(Regression, scaling=SCALING), s, per="token", **o),
    "hidden values": lambda s, **o: predict(make(MaskedReconstruction, scaling=SCALING), s, **o),
    "normalised values": lambda s, **o: predict(make(MaskedReconstruction, normalise=True, scaling=SCALING), s, **o),
    "curves": lambda s, **o: interpolate(make(MaskedReconstruction, scaling=SCALING), s, [x.positions for x in s], **o),
    "joint curves": lambda s, **o: interpolate(
        make(MaskedReconstruction, replace(CONFIG, queries="joint"), scaling=SCALING), s, [x.positions for x in s], **o
    ),
}


def samples_for(name: str) -> list[Sample]:
    return masked_samples() if "values" in name else raw_samples()


def assert_alike(found, expected, tolerance=close):
    assert type(found) is type(expected) and len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        if isinstance(one, np.floating | np.ndarray):
            assert_allclose(one, other, **tolerance)
        else:
            assert one == other


@pytest.mark.parametrize("name", CALLS)
def test_results_do_not_depend_on_the_batch_size(name):
    samples = samples_for(name)
    whole = CALLS[name](samples)
    for budget in (1, 12, 40):
        assert_alike(CALLS[name](samples, tokens_per_batch=budget), whole)


@pytest.mark.parametrize("name", CALLS)
def test_results_do_not_depend_on_order_or_company(name):
    samples = samples_for(name)
    whole = CALLS[name](samples)
    assert_alike(CALLS[name](samples[::-1])[::-1], whole)
    for i in (0, 5):
        assert_alike(CALLS[name]([samples[i]]), whole[i : i + 1])


@torch.no_grad()
def test_without_scaling_results_are_those_of_the_task():
    samples, masked = raw_samples(), masked_samples()
    batch = collate(samples)
    task = make(Classification, n_classes=4)
    logits = task.predict(batch)
    assert_allclose(predict_proba(task, samples), logits.double().softmax(-1), **close)
    assert_array_equal(predict(task, samples), logits.argmax(1))
    task = make(Regression, n_targets=2)
    assert_allclose(predict(task, samples), task.predict(batch), **close)
    task = make(Regression, per="token")
    assert_allclose(np.concatenate(predict(task, samples)), task.predict(batch), **close)
    for settings in ({}, {"normalise": True}):
        task = make(MaskedReconstruction, **settings)
        assert_allclose(np.concatenate(predict(task, masked)), task.predict(collate(masked)), **close)
    task = make(MaskedReconstruction, replace(CONFIG, queries="joint"))
    assert_allclose(np.concatenate(predict(task, masked)), task.predict(collate(masked)), **close)


def test_probabilities_sum_to_one_and_the_class_is_the_most_probable():
    task, samples = make(Classification, n_classes=4), raw_samples()
    probabilities = predict_proba(task, samples)
    assert_allclose(probabilities.sum(1), 1, rtol=1e-12)
    assert probabilities.std() > 0.05
    task.schema = Schema(classes=("a", "b", "c", "d"))
    assert predict(task, samples).tolist() == ["abcd"[i] for i in probabilities.argmax(1)]
    task.schema = Schema(classes=(30, 10, 40, 20))
    assert predict(task, samples).tolist() == [(30, 10, 40, 20)[i] for i in probabilities.argmax(1)]


def test_one_target_is_a_number_and_several_are_a_vector():
    samples = raw_samples()
    assert predict(make(Regression), samples).shape == (7,)
    assert predict(make(Regression, n_targets=2), samples).shape == (7, 2)
    assert [x.shape for x in predict(make(Regression, per="token"), samples)] == [(n, 1) for n in LENGTHS]


@torch.no_grad()
def test_embeddings_are_cls_or_the_mean_and_tokens_come_without_cls():
    samples = raw_samples()
    for cls in (True, False):
        task = make(MaskedReconstruction, replace(CONFIG, cls=cls))
        encoded = [task.encoder(collate([sample]).tokens).values for sample in samples]
        pooled = torch.stack([x[0] if cls else x.mean(0) for x in encoded])
        assert_allclose(embed(task, samples), pooled, **close)
        assert_alike(embed(task, samples, per="token"), [x[int(cls) :].numpy() for x in encoded])


@torch.no_grad()
def test_a_scaled_task_does_by_itself_what_can_be_done_by_hand():
    samples, masked = raw_samples(), masked_samples()
    by_hand = [SCALING.apply(sample) for sample in samples]
    plain, scaled = make(Regression), make(Regression, scaling=SCALING)
    assert_allclose(predict(scaled, samples), predict(plain, by_hand) * 7 + 50, **close)
    assert_allclose(embed(scaled, samples), embed(plain, by_hand), **close)
    centre, scale = np.array(SCALING.centre), np.array(SCALING.scale)
    plain, scaled = make(MaskedReconstruction), make(MaskedReconstruction, scaling=SCALING)
    expected = predict(plain, [SCALING.apply(sample) for sample in masked])
    assert_alike(predict(scaled, masked), [x * scale + centre for x in expected])
    asked = times(samples)
    shifted = [(x - float(s.positions.min())) / 4 for x, s in zip(asked, samples, strict=True)]
    expected = interpolate(plain, by_hand, shifted)
    assert_alike(interpolate(scaled, samples, asked), [x * scale + centre for x in expected])


def test_large_positions_keep_their_precision():
    task = make(MaskedReconstruction, scaling=Scaling(origins=("first",), units=(1.0,)))
    near = [Sample(s.values, s.positions - 59_000) for s in raw_samples()]
    far = [Sample(s.values, s.positions + 2**40) for s in near]
    asked = [np.arange(5.0)] * len(near)
    found = interpolate(task, far, [x + 2**40 for x in asked])
    assert_alike(found, interpolate(task, near, asked), {"rtol": 1e-3, "atol": 1e-3})


def test_interpolation_at_hidden_positions_is_the_prediction_of_hidden_values():
    task, masked = make(MaskedReconstruction, scaling=SCALING), masked_samples()
    assert_alike(interpolate(task, masked, [s.positions[s.hidden] for s in masked]), predict(task, masked))


def test_curves_are_aligned_with_the_request():
    task, samples = make(MaskedReconstruction, scaling=SCALING), raw_samples()
    asked = times(samples)
    whole = interpolate(task, samples, asked)
    assert [x.shape for x in whole] == [(len(x), 3) for x in asked]
    assert all(x.dtype == np.float64 for x in whole)
    orders = [np.random.default_rng(2).permutation(len(x)) for x in asked]
    shuffled = interpolate(task, samples, [x[order] for x, order in zip(asked, orders, strict=True)])
    assert_alike(shuffled, [x[order] for x, order in zip(whole, orders, strict=True)])
    assert [len(x) for x in interpolate(task, samples, [[]] * len(samples))] == [0] * len(samples)


def test_some_channels_are_asked_for_by_name_or_number():
    """Of columns they are columns of the whole answer; of an axis, the answers at the positions of these channels."""
    task, samples = make(MaskedReconstruction, scaling=SCALING), raw_samples()
    asked = times(samples)
    whole = interpolate(task, samples, asked)
    assert_alike(interpolate(task, samples, asked, channels=[2, 0]), [x[:, [2, 0]] for x in whole])
    task.schema = Schema(values=("u", "v", "w"))
    assert_alike(interpolate(task, samples, asked, channels=["w", 0]), [x[:, [2, 0]] for x in whole])
    assert_alike(interpolate(task, samples, asked, channels="v"), [x[:, [1]] for x in whole])


def test_channels_of_an_axis_are_asked_for_at_each_position():
    task = make(MaskedReconstruction, replace(CONFIG, channels=1, position_dims=2))
    task.schema = Schema(channel="band", channels=("g", "r", "i"))
    samples = [Sample(torch.randn(4, 1), torch.tensor([[0.0, 0], [1, 1], [2, 2], [3, 0]])) for _ in range(2)]
    for positions in ([0.5, 2.5], []):
        found = interpolate(task, samples, [positions] * 2, channels=["i", "g"])
        assert [x.shape for x in found] == [(len(positions), 2)] * 2
    whole = interpolate(task, samples, [[[0.5, 2], [0.5, 0], [2.5, 2], [2.5, 0]]] * 2)
    found = interpolate(task, samples, [[0.5, 2.5]] * 2, channels=["i", "g"])
    assert_alike(found, [x.reshape(2, 2) for x in whole])
    with refused(ValueError, "positions", "channels= says which"):
        interpolate(task, samples, [[[0.5, 0.0]]] * 2, channels=["i", "g"])


@pytest.mark.parametrize(
    ("channels", "error", "parts"),
    [
        (["w", "x"], ValueError, ["unknown channel 'x'", "u, v, w", "0 to 2"]),
        ([3], ValueError, ["unknown channel 3"]),
        ([-1], ValueError, ["unknown channel -1"]),
        (["u", 0], ValueError, ["'u'", "twice"]),
        ([], ValueError, ["channels are empty"]),
        ([0.5], TypeError, ["names or numbers", "0.5"]),
        (0.5, TypeError, ["names or numbers"]),
    ],
)
def test_channels_that_there_are_not_are_refused(channels, error, parts):
    task, samples = make(MaskedReconstruction, scaling=SCALING), raw_samples()
    task.schema = Schema(values=("u", "v", "w"))
    with refused(error, *parts):
        interpolate(task, samples, times(samples), channels=channels)


@pytest.mark.parametrize(("channels", "numbers"), [(["1"], [0]), ([2], [1]), (["0"], [0]), (np.array([3]), [2])])
def test_the_name_of_a_channel_goes_before_its_number(channels, numbers):
    assert channel_numbers(channels, (1, 2, 3)) == numbers


@pytest.mark.parametrize("queries", ["independent", "joint"])
def test_a_result_does_not_depend_on_what_else_is_asked(queries):
    task = make(MaskedReconstruction, replace(CONFIG, queries=queries), scaling=SCALING)
    sample = raw_samples()[2]
    asked = np.linspace(59_000, 59_040, 9)
    whole = interpolate(task, [sample], [asked])[0]
    alone = [interpolate(task, [sample], [[x]])[0][0] for x in asked]
    assert_allclose(whole, alone, **close)
    together = interpolate(task, [sample], [asked], grouped=True)[0]
    assert np.allclose(together, whole, **close) == (queries == "independent")


@torch.no_grad()
def test_grouped_queries_of_a_joint_decoder_are_decoded_as_the_task_does():
    task, samples = make(MaskedReconstruction, replace(CONFIG, queries="joint")), raw_samples()
    samples = [Sample(s.values, s.positions - 59_000) for s in samples]
    asked = [x - 59_000 for x in times(samples)]
    positions, layout = torch.tensor(np.concatenate(asked))[:, None].float(), Layout.of([len(x) for x in asked])
    expected = task.reconstruct(collate(samples).tokens, positions, layout)
    for budget in (1, 10**6):
        found = interpolate(task, samples, asked, grouped=True, tokens_per_batch=budget)
        assert_allclose(np.concatenate(found), expected, **close)


def test_hidden_tokens_are_not_seen():
    masked = masked_samples()
    changed = [replace(s, values=torch.where(s.hidden[:, None], 1e3, s.values)) for s in masked]
    task = make(MaskedReconstruction)
    asked = [np.arange(59_000.0, 59_003)] * len(masked)
    assert_alike(interpolate(task, changed, asked), interpolate(task, masked, asked))
    assert_alike(predict(task, changed), predict(task, masked))
    visible = [Sample(s.values[~s.hidden], s.positions[~s.hidden]) for s in masked]
    assert_alike(embed(task, [*changed[:3], *visible[3:]]), embed(task, visible))


class Sizes:
    """The largest number of tokens that reached the encoder's and the decoder's blocks, and the number of calls."""

    def __init__(self, task):
        self.encoder, self.decoder = [], []
        task.encoder.transformer.register_forward_pre_hook(lambda _, args: self.encoder.append(args[0].layout.n_tokens))
        if isinstance(task, MaskedReconstruction):
            task.decoder.register_forward_pre_hook(
                lambda _, args: self.decoder.append(args[0].layout.n_tokens + args[2].n_tokens)
            )


@pytest.mark.parametrize("queries", ["independent", "joint"])
def test_memory_is_bounded_and_a_sample_is_encoded_once(queries):
    task = make(MaskedReconstruction, replace(CONFIG, queries=queries), scaling=SCALING)
    sizes = Sizes(task)
    n_queries = 100_000 if queries == "independent" else 2_000
    asked = [np.linspace(59_000, 59_040, n) for n in (3, 5, n_queries)]
    found = interpolate(task, raw_samples([6, 9, 20]), asked, tokens_per_batch=1000)
    assert [len(x) for x in found] == [3, 5, n_queries]
    assert max(sizes.decoder) <= 1000 and sum(sizes.encoder) == 7 + 10 + 21
    assert len(sizes.decoder) < 1.2 * (n_queries / 979 if queries == "independent" else n_queries / (1000 // 22))


def test_a_batch_holds_what_fits_and_a_long_sample_stands_alone():
    samples = raw_samples([1] * 50 + [200, 3, 99])
    for call in (predict, embed):
        task = make(Regression)
        sizes = Sizes(task)
        call(task, samples, tokens_per_batch=50)
        assert sorted(sizes.encoder) == [4, 50, 50, 100, 201]  # CLS counts
    task = make(MaskedReconstruction)
    sizes = Sizes(task)
    interpolate(task, samples, [np.arange(60.0)] * len(samples), tokens_per_batch=50)
    assert max(sizes.decoder) <= 201 + 25 and len(sizes.decoder) < 3 * len(samples)


def test_the_task_is_left_as_it_was():
    task, samples = make(Regression), raw_samples()
    expected = predict(task, samples)
    task.train()
    task.encoder.projection.eval()
    assert_allclose(predict(task, samples), expected, **close)  # no dropout
    assert task.training and task.encoder.training and not task.encoder.projection.training
    with refused(ValueError, "channels"):
        predict(task, raw_samples(channels=2))
    assert task.training and torch.is_grad_enabled()
    assert all(parameter.grad is None for parameter in task.parameters())


def test_targets_are_ignored_whatever_they_are():
    samples = raw_samples()
    odd = [replace(s, target=t) for s, t in zip(samples, [1, None, 2.5, [1.0, 2.0], None, 3, None], strict=True)]
    task = make(Regression, scaling=SCALING)
    assert_allclose(predict(task, odd), predict(task, samples), **close)


def test_half_precision_data_and_weights():
    task, samples = make(Regression), raw_samples()
    expected = predict(task, samples)
    half = [replace(s, values=s.values.half()) for s in samples]
    assert_allclose(predict(task, half), expected, rtol=0.05, atol=0.05)
    assert np.isfinite(predict(task.bfloat16(), half)).all()


def test_a_store_serves_as_well_as_a_list(tmp_path):
    samples = raw_samples()
    store = write_store(samples, tmp_path / "samples.arrow")
    task = make(Classification, n_classes=3, scaling=SCALING)
    assert_array_equal(predict_proba(task, store), predict_proba(task, samples))


def test_a_loaded_task_predicts_the_same_from_raw_data(tmp_path):
    task, samples = make(Classification, n_classes=3, scaling=SCALING), raw_samples()
    task.schema = Schema(values=("a", "b", "c"), classes=("x", "y", "z"))
    task.save(tmp_path / "model")
    loaded = checkpoint.load(tmp_path / "model")
    assert_array_equal(predict_proba(loaded, samples), predict_proba(task, samples))
    assert predict(loaded, samples).tolist() == predict(task, samples).tolist()


def scalar_task(data):
    task = make(MaskedReconstruction, ModelConfig(channels=1, position_dims=2, **SMALL))
    task.scaling, task.schema = fit_scaling(data, origin="min"), data.schema
    return task


def test_scalars_with_a_channel_axis_come_back_in_the_units_of_their_channel():
    random = np.random.default_rng(0)
    data = from_arrays(random.normal([1000, 0.001], [10, 0.0001], (4, 12, 2)), tokens="scalars", channels=["hot", "mv"])
    task = scalar_task(data)
    grid = np.array([[t, c] for t in (0.5, 3.5, 20) for c in (0, 1)])
    whole = interpolate(task, data, [grid] * 4)
    model = scalar_task(data)
    model.scaling = model.schema = None
    plain = interpolate(model, [task.scaling.apply(s) for s in data], [grid] * 4)
    centre, scale = np.array(task.scaling.centre), np.array(task.scaling.scale)
    for one, other in zip(whole, plain, strict=True):
        assert_allclose(one, other * scale[[0, 1] * 3] + centre[[0, 1] * 3], rtol=1e-5)
    for wrong in ([[0.0, 2.0]], [[0.0, 0.5]], [[0.0, -1.0]]):
        with refused(ValueError, "sample 2", "token 0", "0 to 1"):
            interpolate(task, data, [grid, grid, wrong, grid])
        with refused(ValueError, "as its channel"):
            task.scaling = None
            interpolate(task, data, [grid, grid, wrong, grid])
        task = scalar_task(data)
    with refused(ValueError, "sample 0", "[q, 2]", "[6]"):
        interpolate(task, data, [grid[:, 0]] * 4)


def test_a_channel_that_training_did_not_have_is_found_before_the_work():
    arrays = np.random.default_rng(0).normal(size=(2, 6, 3))
    arrays[..., 1] = np.nan
    data = from_arrays(arrays, tokens="scalars")
    task = scalar_task(data)
    task.schema, sizes = None, Sizes(task)
    with refused(ValueError, "sample 1", "channel 1", "training data"):
        interpolate(task, data, [[[0.5, 2.0]], [[0.5, 1.0]]])
    with refused(ValueError, "sample 0", "token 0 has 3.0", "channel"):
        interpolate(task, data, [[[0.5, 3.0]], [[0.5, 0.0]]])
    assert sizes.encoder == []


def test_times_may_be_dates_where_those_of_the_data_were():
    dates = pd.date_range("2024-03-01", periods=12, freq="D")
    table = pd.DataFrame({"id": 1, "day": dates, "x": np.arange(12.0)})
    data = from_table(table, id="id", time="day", values=["x"], time_unit="day")
    task = make(MaskedReconstruction, replace(CONFIG, channels=1), scaling=fit_scaling(data, origin="min"))
    task.schema = data.schema
    asked = dates[:5] + pd.Timedelta(hours=6)
    numbers = data[0].positions[:5, 0] + 0.25
    assert_alike(interpolate(task, data, [asked]), interpolate(task, list(data), [numbers]))
    task.schema = None
    with refused(TypeError, "sample 0", "dates", "numbers"):
        interpolate(task, [sample.with_schema(None) for sample in data], [asked])
    task.schema = replace(data.schema, time_unit="second")
    with refused(ValueError, "time unit day", "second"):
        predict(task, data)


def test_samples_whose_numbers_mean_something_else_are_refused():
    arrays = np.random.default_rng(0).normal(size=(2, 6, 2))
    named = from_arrays(arrays, tokens="scalars", channels=["g", "r"])
    task = scalar_task(named)
    for good in (named, from_arrays(arrays, tokens="scalars"), list(named)):
        assert embed(task, good).shape == (2, 16)
    for names in (["r", "g"], ["g", "z"]):
        with refused(ValueError, "channels [", "trained on ['g', 'r']"):
            embed(task, from_arrays(arrays, tokens="scalars", channels=names))
    with refused(ValueError, "channels ['r']"):
        embed(task, from_arrays(arrays[..., 1:], tokens="scalars", channels=["r"]))
    with refused(ValueError, "channels [0, 1, 2]"):
        embed(task, from_arrays(arrays[..., [0, 1, 1]], tokens="scalars"))
    task = make(Regression, replace(CONFIG, channels=2))
    task.schema = Schema(values=("flux", "error"))
    with refused(ValueError, "values", "'error', 'flux'", "from_table_like"):
        predict(task, from_arrays(arrays, channels=["error", "flux"]))


class Waiting(list):
    """Samples that say when the first is taken, and hand it over when they are told."""

    def __init__(self, samples, told):
        super().__init__(samples)
        self.taken, self.told = Event(), told

    def __getitem__(self, i):
        self.taken.set()
        assert self.told.wait(10)
        return super().__getitem__(i)


def test_threads_that_ask_one_task_get_no_dropout_and_leave_it_as_it_was(without_shape_checks):
    task, samples, is_over = make(Classification, n_classes=3).train(), raw_samples(), Event()
    alone = predict_proba(task, samples)
    second = Waiting(samples, told=is_over)
    first = Waiting(samples, told=second.taken)
    with ThreadPoolExecutor(2) as pool:
        early = pool.submit(predict_proba, task, first)
        assert first.taken.wait(10)
        late = pool.submit(predict_proba, task, second)
        assert_allclose(early.result(), alone, atol=1e-6)
        is_over.set()
        assert_allclose(late.result(), alone, atol=1e-6)
    assert all(module.training for module in task.modules())


def test_bad_input_is_a_sentence(without_shape_checks):
    samples = raw_samples()
    task, classifier = make(MaskedReconstruction), make(Classification, n_classes=3)
    with refused(ValueError, "3 channels", "sample 1 has 2"):
        predict(classifier, [samples[0], Sample(np.ones((3, 2)), np.ones((3, 1)))])
    with refused(ValueError, "1 position dimensions", "sample 'b' has 2"):
        predict(classifier, [samples[0], Sample(np.ones((3, 3)), np.ones((3, 2)), id="b")])
    with refused(ValueError, "list is empty"):
        predict(classifier, [])
    with refused(ValueError, "list is empty"):
        interpolate(task, [], [])
    with refused(TypeError, "not Sample", "into a list"):
        embed(task, samples[0])
    with refused(TypeError, "not generator"):
        embed(task, (sample for sample in samples))
    with refused(TypeError, "number 0 is ndarray", "Sample"):
        embed(task, [np.ones((3, 3))])
    for wrong in (0, None, 0.5, 2.5, True):
        with refused(ValueError, "tokens_per_batch", "at least 1", f"not {wrong}"):
            embed(task, samples, tokens_per_batch=wrong)
    with refused(ValueError, "'sample' or 'token'", "not 'batch'"):
        embed(task, samples, per="batch")
    with refused(ValueError, "pooling must be", "'layers'", "'all'"):
        embed(task, samples, pooling="all")
    with refused(ValueError, "per='token'", "leave one out"):
        embed(task, samples, per="token", pooling="layers")
    with refused(TypeError, "task", "not Encoder"):
        embed(task.encoder, samples)
    with refused(TypeError, "predict", "task", "not Encoder"):
        predict(task.encoder, samples)
    with refused(TypeError, "Classification", "not MaskedReconstruction"):
        predict_proba(task, samples)
    with refused(ValueError, "hidden tokens", "sample 3"):
        predict(task, samples)
    classifier.schema = Schema(classes=("a", "b"))
    with refused(ValueError, "3 classes", "schema names 2"):
        predict(classifier, samples)


def test_bad_queries_are_a_sentence(without_shape_checks):
    samples, asked = raw_samples([3, 4]), [[1.0, 2.0]] * 2
    task = make(MaskedReconstruction)
    with refused(TypeError, "MaskedReconstruction", "interpolate", "not Regression"):
        interpolate(make(Regression), samples, asked)
    with refused(ValueError, "normalise=True", "normalise=False"):
        interpolate(make(MaskedReconstruction, normalise=True), samples, asked)
    with refused(ValueError, "1 samples", "there are 2", "[positions] * len"):
        interpolate(task, samples, asked[:1])
    with refused(TypeError, "array of positions", "not float"):
        interpolate(task, samples, 1.0)
    with refused(ValueError, "sample 1", "[q, 1]", "[1, 2]"):
        interpolate(task, samples, [[1.0], [[1.0, 2.0]]])
    with refused(ValueError, "sample 0", "[q, 1]", "shape []"):
        interpolate(task, samples, [1.0, 2.0])
    with refused(ValueError, "sample 1", "query 2 has nan", "column 0"):
        interpolate(task, samples, [[1.0], [1.0, 2.0, np.nan]])
    with refused(ValueError, "sample 0", "query 0 has inf"):
        interpolate(task, samples, [[np.inf], [1.0]])
    with refused(TypeError, "sample 0", "numbers", "not <U1"):
        interpolate(task, samples, [["a"], ["b"]])
    with refused(ValueError, "sample 0", "cannot be read"):
        interpolate(task, samples, [[[1.0], [1.0, 2.0]], [1.0]])
    with refused(ValueError, "tokens_per_batch", "at least 1"):
        interpolate(task, samples, asked, tokens_per_batch=0)


def test_a_bar_is_for_long_work_on_a_terminal(monkeypatch, capsys):
    task, samples = make(Regression), raw_samples()
    monkeypatch.setattr(inference, "SECONDS_BEFORE_BAR", 0.0)
    predict(task, samples, tokens_per_batch=1)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    predict(task, samples, tokens_per_batch=1)
    assert "predicting" in capsys.readouterr().err
    monkeypatch.setattr(inference, "SECONDS_BEFORE_BAR", 60.0)
    predict(task, samples, tokens_per_batch=1)
    assert capsys.readouterr() == ("", "")


@pytest.mark.cuda
@pytest.mark.parametrize("name", ["probabilities", "curves", "joint curves", "normalised values"])
def test_the_device_makes_no_difference(name, monkeypatch):
    samples = samples_for(name)
    expected = CALLS[name](samples)
    on_host = make
    monkeypatch.setitem(globals(), "make", lambda *args, **settings: on_host(*args, **settings).cuda())
    monkeypatch.setattr(
        inference, "_computing", lambda task, precision, given=inference._computing: given(task, "float32")
    )
    assert_alike(CALLS[name](samples), expected, {"rtol": 1e-3, "atol": 1e-3})


def assert_answers_hold_in(precision, device):
    """Classes but for ties, and numbers to a twentieth of their spread."""
    samples = raw_samples((40, 3, 17, 90, 5, 60, 8) * 6)
    classifier, regressor, pretrained = (
        make(kind, scaling=fit_scaling(samples), **more).to(device)
        for kind, more in (
            (Classification, {"n_classes": 3}),
            (Regression, {"n_targets": 2}),
            (MaskedReconstruction, {}),
        )
    )
    with torch.no_grad():
        classifier.head.linear.weight /= 4  # logits of about 1, as those of a model that is not sure
    exact, fast = (predict_proba(classifier, samples, precision=one) for one in ("float32", precision))
    top = np.sort(exact, axis=1)
    is_clear = top[:, -1] - top[:, -2] > 1e-3
    assert_array_equal(exact.argmax(1)[is_clear], fast.argmax(1)[is_clear])
    most = {"cpu": 0.01, "cuda": 0.02}[torch.device(device).type]  # 0.018 on an H200, of random weights
    assert np.abs(exact - fast).max() < most and not np.array_equal(exact, fast)
    for ask in (
        lambda one: predict(regressor, samples, precision=one),
        lambda one: embed(pretrained, samples, precision=one),
        lambda one: np.concatenate(
            interpolate(pretrained, samples, [np.linspace(0, 1, 5)] * len(samples), precision=one)
        ),
    ):
        exact, fast = ask("float32"), ask(precision)
        # Sixteen channels of random weights average out less than those of a model.
        assert np.sqrt(np.mean((exact - fast) ** 2)) < 0.05 * exact.std()


def test_bfloat16_changes_no_answer_that_matters():
    assert_answers_hold_in("bf16", "cpu")


def test_classes_that_are_all_but_equal_are_decided_in_full_precision(monkeypatch):
    samples = raw_samples((40, 3, 17, 90, 5, 60, 8) * 6)
    task = make(Classification, n_classes=3, scaling=fit_scaling(samples))
    exact = predict_proba(task, samples, precision="float32")
    monkeypatch.setattr(inference, "CLOSE", 0.0)
    fast = predict_proba(task, samples, precision="bf16")
    gap = np.diff(np.sort(fast, axis=1)[:, -2:], axis=1)[:, 0]
    monkeypatch.setattr(inference, "CLOSE", np.median(gap))
    mixed = predict_proba(task, samples, precision="bf16")
    is_close = gap < np.median(gap)
    assert is_close.sum() == 21
    assert_allclose(mixed[is_close], exact[is_close], atol=1e-6)
    assert_array_equal(mixed[~is_close], fast[~is_close])
    assert np.abs(fast - exact)[is_close].max() > 1e-5, "bfloat16 would have said something else"


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["auto", "bf16", "tf32"])
def test_the_precision_of_a_gpu_changes_no_answer_that_matters(precision):
    assert_answers_hold_in(precision, "cuda")


def test_the_precision_is_that_of_the_weights_on_a_cpu_and_is_put_back():
    samples, task = raw_samples(), make(Classification, n_classes=3)
    assert_array_equal(predict_proba(task, samples), predict_proba(task, samples, precision="float32"))
    assert_array_equal(predict_proba(task, samples), predict_proba(task, samples, precision="tf32"))
    assert not torch.is_autocast_enabled("cpu") and not torch.backends.cuda.matmul.allow_tf32
    half = task.to(torch.bfloat16)
    assert_array_equal(predict_proba(half, samples), predict_proba(half, samples, precision="bf16"))


def test_precisions_that_there_are_not_are_refused(without_shape_checks):
    with refused(ValueError, "'int8'", "bf16"):
        predict_proba(make(Classification, n_classes=3), raw_samples(), precision="int8")
    with refused(ValueError, "'int8'", "bf16"):
        InferenceConfig(precision="int8")


@pytest.mark.parametrize("name", CALLS)
def test_batches_that_a_thread_prepares_change_nothing(name, monkeypatch):
    samples = samples_for(name)
    expected = CALLS[name](samples)
    ahead = []

    def through_a_thread(task, works):
        for work in in_advance(works, 2):
            ahead.append(work)
            yield work

    monkeypatch.setattr(inference, "_in_time", through_a_thread)
    assert_alike(CALLS[name](samples), expected, {"rtol": 0, "atol": 0})
    assert ahead


def test_what_is_prepared_ahead_comes_in_order_is_bounded_and_fails_in_its_place():
    made = []

    def items(n, fails_at=None):
        for i in range(n):
            if i == fails_at:
                raise ValueError(f"no {i}")
            made.append(i)
            yield i

    assert list(in_advance(items(20), 3)) == list(range(20)) and list(in_advance(items(0), 3)) == []
    made.clear()
    few = in_advance(items(20), 3)
    assert [next(few), next(few)] == [0, 1]
    few.close()
    assert made == list(range(len(made))) and len(made) <= 2 + 3
    seen = []
    with pytest.raises(ValueError, match="no 4"):
        for item in in_advance(items(9, fails_at=4), 3):
            seen.append(item)
    assert seen == [0, 1, 2, 3]


def sines(n_samples: int, seed: int) -> list[Sample]:
    random = np.random.default_rng(seed)
    samples = []
    for _ in range(n_samples):
        clock = 59_000 + np.sort(random.uniform(0, 100, 16))
        phase = random.uniform(0, 2 * np.pi)
        samples.append(Sample(wave(clock, phase), clock[:, None], id=phase))
    return samples


def wave(clock, phase):
    """Of wavelength 50 around 300, with an amplitude of 20: nothing a model could work with unscaled."""
    return 300 + 20 * np.sin(2 * np.pi * np.asarray(clock)[:, None] / 50 + phase)


def test_a_trained_model_interpolates_sines_better_than_their_mean():
    training = sines(200, seed=0)
    scaling = fit_scaling(training, origin=59_000.0, unit=8.0)
    torch.manual_seed(0)
    size = Size(width=32, heads=2, depth=2)
    config = ModelConfig(channels=1, position_dims=1, encoder=size, decoder=replace(size, depth=1), cls=False)
    task = MaskedReconstruction(config, masking=UniformTokens(ratio=0.5))
    settings = TrainConfig(epochs=6, batch_size=10, lr=6e-3, device="cpu")
    train(task, training, settings, scaling=scaling)
    testing = sines(20, seed=1)
    asked = [np.linspace(59_010, 59_090, 50)] * 20
    truth = [wave(x, sample.id) for x, sample in zip(asked, testing, strict=True)]
    error = np.sqrt(np.mean((np.stack(interpolate(task, testing, asked)) - np.stack(truth)) ** 2))
    assert error < 0.3 * 20 / np.sqrt(2)  # the last is the error of the mean; ours was 0.13 of it


def test_dates_and_numbers_are_not_taken_for_each_other():
    values, dates = np.ones((1, 4, 1)), np.datetime64("2024-03-01") + np.arange(4)
    dated, numbered = from_arrays(values, dates), from_arrays(values, np.arange(4.0))
    task = make(MaskedReconstruction, replace(CONFIG, channels=1))
    for known, asked in ((dated, numbered), (numbered, dated)):
        task.schema = known.schema
        with refused(ValueError, "time unit", "none"):
            embed(task, asked)


def test_a_position_is_not_taken_for_a_channel():
    table = pd.DataFrame({"id": 1, "time": np.arange(4.0), "value": 1.0, "depth": [0.0, 1, 0, 1], "band": list("grgr")})
    columns = {"id": "id", "time": "time", "values": ["value"]}
    by_band, by_depth = from_table(table, channel="band", **columns), from_table(table, positions=["depth"], **columns)
    with refused(ValueError, "column None", "trained on band"):
        embed(scalar_task(by_band), by_depth)


def test_channels_that_are_whole_numbers_are_names_as_well():
    arrays = np.random.default_rng(0).normal(size=(2, 6, 3))
    task = scalar_task(from_arrays(arrays, tokens="scalars", channels=[1, 2, 3]))
    with refused(ValueError, "channels [0, 1, 2]", "[1, 2, 3]"):
        embed(task, from_arrays(arrays, tokens="scalars", channels=[0, 1, 2]))


def test_dates_that_are_asked_for_are_in_the_time_zone_of_the_data():
    dates = pd.date_range("2024-03-30", periods=4, freq="12h", tz="Europe/Berlin")
    data = from_table(pd.DataFrame({"id": 1, "day": dates, "x": np.arange(4.0)}), id="id", time="day", values=["x"])
    scaling = fit_scaling(data, origin="min", unit=86400.0)
    task = make(MaskedReconstruction, replace(CONFIG, channels=1), scaling=scaling)
    task.schema = data.schema
    zoned = interpolate(task, data, [dates[1:3]])
    assert_alike(interpolate(task, data, [dates[1:3].tz_localize(None)]), zoned)
    assert_alike(interpolate(task, data, [dates[1:3].tz_convert("UTC")]), zoned)
    with refused(ValueError, "sample 0, number 0", "2024-03-31 02:30:00", "twice or never"):
        interpolate(task, data, [[np.datetime64("2024-03-31T02:30")]])


def test_what_is_no_sample_is_named(without_shape_checks):
    with refused(TypeError, "number 1 is NoneType", "Sample"):
        predict(make(Classification, n_classes=2), [raw_samples()[0], None])


def test_queries_beyond_single_precision_are_refused():
    task = make(MaskedReconstruction, scaling=replace(SCALING, units=(1e-3,)))
    samples = raw_samples([6])
    assert np.isfinite(interpolate(task, samples, [np.array([59_000.0, 1e9])])[0]).all()
    with refused(ValueError, "too far", "single precision"):
        interpolate(task, samples, [np.array([59_000.0, 3e37])])


def test_a_kind_that_the_model_does_not_know_is_named_before_the_work():
    task = make(MaskedReconstruction, replace(CONFIG, channels=1, position_dims=2, kinds=2))
    known, unknown = (Sample(np.ones((2, 1)), [[0.0, 0.0], [1.0, kind]], id="p7") for kind in (1.0, 2.0))
    parts = ["sample 'p7'", "kind 2", "kinds 0 to 1"]
    with refused(ValueError, *parts):
        embed(task, [known, unknown])
    with refused(ValueError, *parts):
        task.prepare(collate([replace(unknown, hidden=[False, True])]))
    with refused(ValueError, "sample 0", "token 0 has 5.0", "channel"):
        interpolate(task, [known], [[[0.5, 5.0]]])
    with refused(ValueError, *parts):
        train(task, [unknown] * 8, TrainConfig(epochs=1, batch_size=4, device="cpu"))


# Data unlike those of training


def named_samples(factor=1.0, hours=1.0):
    """Three series of two channels, each number a token."""
    random = np.random.default_rng(0)
    values = [random.uniform(36, 40, (n, 2)) * [factor, 1.0] for n in (6, 9, 12)]
    times = [100 + np.sort(random.uniform(0, 10, len(x))) * hours for x in values]
    return from_arrays(values, times, tokens="scalars", channels=["temperature", "pulse"])


def fitted_to(samples, kind=MaskedReconstruction, **settings):
    scaling = settings.pop("scaling", None) or fit_scaling(samples, origin="min")
    task = make(kind, ModelConfig(channels=1, position_dims=2, kinds=2, **SMALL), scaling, **settings)
    task.schema = samples.schema
    return task


ASKED = {
    "predict": (Regression, lambda task, samples: predict(task, samples)),
    "predict_proba": (lambda config: Classification(config, 2), lambda task, samples: predict_proba(task, samples)),
    "embed": (MaskedReconstruction, lambda task, samples: embed(task, samples)),
    "interpolate": (
        MaskedReconstruction,
        lambda task, samples: interpolate(task, samples, [[[101.0, 0.0]]] * len(samples), tokens_per_batch=20),
    ),
}


@pytest.mark.parametrize("question", ASKED)
def test_values_far_outside_training_are_told_once_with_counts_by_channel(question, recwarn):
    kind, ask = ASKED[question]
    task = fitted_to(named_samples(), kind)
    ask(task, named_samples())
    ask(task, named_samples(factor=1.03))  # fever, not another unit
    assert not recwarn.list
    with warned(UserWarning, "27 of 27 values", "'temperature'", "in training", "check units") as record:
        ask(task, named_samples(factor=2.2))
    assert len(record) == 1 and "'pulse'" not in str(record[0].message)
    task.scaling = replace(task.scaling, seen=None)  # a model of an older version
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ask(task, named_samples(factor=2.2))


@pytest.mark.parametrize(("hours", "part"), [(60.0, "tokens on the axis"), (1 / 60, "3 of 3 samples")])
def test_times_in_another_unit_are_told(hours, part):
    task = fitted_to(named_samples(), Regression)
    with warned(UserWarning, "'time'", part):
        predict(task, named_samples(hours=hours))


def test_single_outliers_and_queries_are_told_and_what_is_hidden_is_not(recwarn):
    samples = named_samples()
    task = fitted_to(samples)
    outlier = samples[0].values.clone()
    outlier[2] = 1e5
    with warned(UserWarning, "1 of 27 values", "'temperature'", "1e+05"):
        embed(task, [replace(samples[0], values=outlier), *samples[1:]])
    recwarn.clear()
    hidden = torch.arange(len(outlier)) == 2
    embed(task, [replace(samples[0], values=outlier, hidden=hidden), *samples[1:]])
    assert not recwarn.list
    with warned(UserWarning, "1 of 3 queries", "'time'", "9999"):
        interpolate(task, samples, [[[101.0, 0.0]], [[10_100.0, 1.0]], [[103.0, 0.0]]])


def test_a_shared_clock_tells_of_shifts_that_an_own_origin_does_not_see(recwarn):
    samples = named_samples()
    later = samples.map(lambda sample: replace(sample, positions=sample.positions + torch.tensor([4.0, 0.0])))
    predict(fitted_to(samples, Regression), later)
    assert not recwarn.list
    with warned(UserWarning, "'time'", "in training"):
        predict(fitted_to(samples, Regression, scaling=fit_scaling(samples, origin=100.0)), later)


def test_asinh_scaling_allows_for_orders_of_magnitude(recwarn):
    samples = from_arrays(np.geomspace(1, 1e6, 60).reshape(6, 10, 1))
    task = make(Regression, replace(CONFIG, channels=1), fit_scaling(samples, values="asinh", origin="min"))
    predict(task, samples.map(lambda sample: replace(sample, values=30 * sample.values)))
    assert not recwarn.list
    with warned(UserWarning, "of 60 values"):
        predict(task, samples.map(lambda sample: replace(sample, values=-1e9 * sample.values)))


def test_a_saved_model_tells_of_tables_in_other_units(tmp_path):
    """The command line asks through this, too."""
    fitted_to(named_samples(), Regression).save(tmp_path / "model")
    table = to_table(named_samples(factor=2.2), [sample.values.numpy() for sample in named_samples(factor=2.2)])
    with warned(UserWarning, "27 of 27 values", "'temperature'"):
        predict_table(InferenceConfig(device="cpu"), table, tmp_path / "model")

"""Samples that are centred by what is visible of them: nothing hidden leaks, and answers shift with the data."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch.testing import assert_close

from messages import refused
from romae.checkpoints.native import load
from romae.config import from_dict, to_dict
from romae.data.scaling import Scaling, fit_scaling, scaled
from romae.data.schema import SampleSet, Schema
from romae.data.store import Store, write_store
from romae.estimators.supervised import RoMAEClassifier
from romae.estimators.unsupervised import RoMAEInterpolator
from romae.inference.predictions import embed, interpolate, predict, predict_proba
from romae.model.config import ModelConfig, Size
from romae.model.tasks import Classification, MaskedReconstruction, Regression, Task
from romae.tokens.ladder import Ladder
from romae.tokens.levels import LEVEL_SHARE, SPREAD_SHARE, Levels
from romae.tokens.masking import SampleKeys, UniformTokens
from romae.tokens.sample import Sample
from romae.tokens.tokens import Layout, Tokens, collate
from romae.training.config import TrainConfig
from romae.training.fixed_shape import FixedShape
from romae.training.identity import _stored_identity, identity
from romae.training.loop import train

SCHEMA = Schema(channel="band", channels=("g", "r", "i"))
MODEL = ModelConfig(
    channels=1, position_dims=2, encoder=Size(width=16, heads=2, depth=1), decoder=Size(width=16, heads=2, depth=1)
)


def stars(n_samples: int = 12, seed: int = 0, hide: bool = False) -> SampleSet:
    """Light curves in three bands, whose levels differ more than their values do."""
    random, samples = np.random.default_rng(seed), []
    for i in range(n_samples):
        n = int(random.integers(9, 15))
        band = np.arange(n) % 3
        values = random.normal(14, 2) + 0.5 * band + random.normal(0, 0.1, n)
        hidden = np.arange(n) % 4 == 3 if hide else None
        positions = np.stack([np.sort(random.uniform(0, 50, n)), band], 1)
        samples.append(Sample(values[:, None], positions, target=i % 2, hidden=hidden, id=i))
    return SampleSet(samples, SCHEMA)


def centred(task: Task, center: str = "sample") -> Task:
    task.scaling = fit_scaling(stars(), center=center)
    return task.eval()


@pytest.fixture(params=["sample", "instance"])
def task(request) -> MaskedReconstruction:
    torch.manual_seed(0)
    return centred(MaskedReconstruction(MODEL, masking=UniformTokens(ratio=0.5)), request.param)


def inputs_of_encoder(task: Task, run) -> list[torch.Tensor]:
    """The values and positions that the encoder is given while something runs."""
    taken: list[torch.Tensor] = []
    handle = task.encoder.register_forward_pre_hook(lambda _, args: taken.extend((args[0].values, args[0].positions)))
    run()
    handle.remove()
    return taken


def shifted(sample: Sample, by: float, channel: int) -> Sample:
    move = by * (sample.positions[:, -1:] == channel)
    return replace(sample, values=sample.values + move.to(sample.values.dtype))


def test_levels_are_the_means_of_what_is_visible():
    random = torch.Generator().manual_seed(0)
    layout, n_channels = Layout.of([5, 1, 7]), 3
    values, channel = torch.randn(13, 2, generator=random), torch.randint(0, 3, (13,), generator=random)
    tokens = Tokens(values, torch.stack([torch.rand(13), channel.float()], 1), layout)
    gain = torch.tensor([[2.0, 3.0], [4.0, 5.0], [6.0, 7.0]], dtype=torch.float64)
    levels = Levels.of(tokens, gain, n_channels)
    for sample in range(3):
        for number in range(n_channels):
            rows = values[(layout.sample_of_token == sample) & (channel == number)].double()
            cell = sample * n_channels + number
            assert_close(levels.level[cell], rows.mean(0) if len(rows) else torch.zeros(2).double())
            assert_close(levels.gain[cell], gain[number] if len(rows) else torch.ones(2).double())
    relative = levels.relative(tokens)
    assert_close(levels.absolute(relative.values, tokens.positions, layout).float(), values)
    assert_close(Levels.of(relative, gain, n_channels).level, torch.zeros(9, 2).double(), atol=1e-6, rtol=0)
    # What is enlarged keeps a share of its level.
    kept = Levels.of(levels.enlarged(tokens), gain, n_channels).level
    assert_close(kept, LEVEL_SHARE * levels.level, atol=1e-6, rtol=0)


def test_a_hidden_value_changes_no_input_of_the_encoder(task):
    batch = scaled(stars(), task.scaling).batch(np.arange(12))
    prepared = task.prepare(batch, SampleKeys(0, 0, torch.arange(12)))
    is_hidden = torch.ones(batch.tokens.layout.n_tokens, dtype=torch.bool)
    for row in torch.cat([prepared.tokens.values, prepared.tokens.positions], 1):
        is_hidden &= (torch.cat([batch.tokens.values, batch.tokens.positions], 1) != row).any(1)
    assert is_hidden.sum() == prepared.hidden.layout.n_tokens
    other_values = torch.where(is_hidden[:, None], batch.tokens.values + 41.5, batch.tokens.values)
    other = task.prepare(
        replace(batch, tokens=replace(batch.tokens, values=other_values)), SampleKeys(0, 0, torch.arange(12))
    )
    seen = inputs_of_encoder(task, lambda: task(prepared))
    for x, y in zip(seen, inputs_of_encoder(task, lambda: task(other)), strict=True):
        assert torch.equal(x, y)
    assert task(prepared).total != task(other).total
    # The same for tokens that samples hide themselves.
    samples = stars(hide=True)
    changed = [replace(s, values=torch.where(s.hidden[:, None], s.values - 3, s.values)) for s in samples]
    first = inputs_of_encoder(task, lambda: predict(task, samples))
    for x, y in zip(first, inputs_of_encoder(task, lambda: predict(task, changed)), strict=True):
        assert torch.equal(x, y)


@pytest.mark.filterwarnings("ignore:data far outside")
def test_answers_shift_with_the_values_of_a_channel(task):
    samples = stars(4, seed=3, hide=True)
    moved = [shifted(sample, 5.25, channel=1) for sample in samples]
    for sample, before, after in zip(samples, predict(task, samples), predict(task, moved), strict=True):
        expected = 5.25 * (sample.positions[sample.hidden, -1:] == 1).double().numpy()
        np.testing.assert_allclose(after - before, expected, atol=1e-4)
    queries = [np.array([[t, c] for t in (0.0, 17.3, 60.0) for c in range(3)])] * 4
    for before, after in zip(interpolate(task, samples, queries), interpolate(task, moved, queries), strict=True):
        np.testing.assert_allclose(after - before, 5.25 * (queries[0][:, 1:] == 1), atol=1e-4)


def test_a_channel_that_is_not_visible_takes_the_global_centre(task):
    sample = next(iter(stars(1)))
    sample = replace(sample, hidden=sample.positions[:, -1] == 2)
    torch.nn.init.zeros_(task.head.linear.weight)
    torch.nn.init.zeros_(task.head.linear.bias)
    # A model that predicts 0 answers with the level: that of the training data where there is no other.
    answers = predict(task, [sample])[0]
    np.testing.assert_allclose(answers, np.full_like(answers, task.scaling.centre[2][0]), rtol=1e-6)
    shown = interpolate(task, [sample], [np.array([[3.0, 0.0]])])[0]
    own = float(sample.values[sample.positions[:, -1] == 0].double().mean())
    np.testing.assert_allclose(shown, [[own]], rtol=1e-6)


def test_the_loss_is_that_of_the_predictions_in_units_of_the_spread_within_samples(task):
    batch = task.prepare(scaled(stars(hide=True), task.scaling).batch(np.arange(12)))
    hidden = batch.hidden
    error = task.predict(batch).double() - hidden.values.double()
    gain = task.scaling.gain[hidden.positions[:, -1].long()]
    if task.scaling.center == "instance":
        gain = task.levels(batch.tokens).gain[hidden.layout.sample_of_token * 3 + hidden.positions[:, -1].long()]
    assert_close(task(batch).total.double(), (error * gain).square().sum(), rtol=1e-4, atol=1e-4)
    # Of values that lie within 0.1 of their level the loss is about 1, where the global scale would make it tiny.
    assert 0.3 < float(task.trivial(batch).mean) < 3
    by_layout = task.reconstruct(batch.tokens, hidden.positions, hidden.layout)
    assert_close(by_layout, task.predict(batch))


def test_the_trivial_loss_is_that_of_the_best_simple_answer():
    plain = MaskedReconstruction(MODEL)
    samples = stars(hide=True)
    plain.scaling = fit_scaling(samples)
    source = scaled(samples, plain.scaling)
    batch = plain.prepare(source.batch(np.arange(12)))
    errors = []
    for sample in source:
        for channel in range(3):
            here = sample.positions[:, -1] == channel
            rows, level = sample.values[here & sample.hidden], sample.values[here & ~sample.hidden].mean()
            errors.append((rows - level).square())
    trivial = plain.trivial(batch)
    assert_close(trivial.mean, torch.cat(errors).double().mean(), rtol=1e-5, atol=1e-6)
    # Where the scaling moves the axis of channels, a sample has one mean.
    plain.scaling = fit_scaling(samples, origin=["none", 2.0])
    assert float(plain.trivial(scaled(samples, plain.scaling).batch(np.arange(12))).mean) > 0
    target = batch.hidden.values
    assert float(trivial.mean) < 0.1 * float((target - target.mean()).square().mean())


def test_fillers_of_a_fixed_shape_change_nothing(task):
    source = scaled(stars(), task.scaling)
    batches = [task.prepare(source.batch(np.arange(k, k + 4)), SampleKeys(0, 0, torch.arange(4))) for k in (0, 4, 8)]
    shape = FixedShape.around(batches, n_samples=5, longest=15)
    filled = shape.filled(batches[0])
    assert filled is not None
    before, after = task(batches[0]), task(filled)
    assert before.weight == after.weight
    assert_close(before.total, after.total)


@pytest.mark.parametrize("make", [lambda: Classification(MODEL, 2), lambda: Regression(MODEL)], ids=["class", "number"])
def test_the_level_of_a_sample_is_not_lost_where_labels_are_learned(make):
    torch.manual_seed(0)
    task, sample = centred(make()), stars(1)[0]
    values, _ = inputs_of_encoder(task, lambda: task.predict(collate([task.scaling.apply(sample)])))
    raw = task.scaling.apply(sample).values
    channel = sample.positions[:, -1].long()
    for number in range(3):
        here = channel == number
        assert_close(values[here].mean(), LEVEL_SHARE * raw[here].mean(), atol=1e-5, rtol=1e-5)
        gain = float(task.scaling.gain[number, 0])
        assert gain > 3
        assert_close(values[here].std(), gain * raw[here].std(), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:data far outside")
def test_embeddings_and_classes_see_the_level(task):
    samples = stars(2)
    moved = [shifted(sample, 2.0, channel=0) for sample in samples]
    assert np.abs(embed(task, samples) - embed(task, moved)).max() > 1e-3
    classifier = centred(Classification(MODEL, 2))
    torch.nn.init.normal_(classifier.head.linear.weight, std=0.1)
    assert np.abs(predict_proba(classifier, samples) - predict_proba(classifier, moved)).max() > 1e-5


def test_a_checkpoint_keeps_the_choice(task, tmp_path):
    task.save(tmp_path / "model")
    again, samples = load(tmp_path / "model"), stars(3, hide=True)
    assert again.scaling == task.scaling and again.scaling.centres_samples
    for x, y in zip(predict(task, samples), predict(again, samples), strict=True):
        assert np.array_equal(x, y)
    assert not any("gain" in name for name in task.state_dict())


def test_a_model_in_half_precision_centres_in_full_precision(task):
    samples = stars(3, hide=True)
    expected = predict(task, samples)
    for x, y in zip(predict(task.bfloat16(), samples), expected, strict=True):
        np.testing.assert_allclose(x, y, atol=0.02)  # bfloat16 has steps of 0.06 at 14
    assert task._gain.dtype == torch.float64


def test_scalings_of_before_are_global_and_their_runs_can_be_resumed(tmp_path):
    new = to_dict(fit_scaling(stars()))
    old = {name: value for name, value in new.items() if name not in ("center", "n_channels", "within")}
    assert from_dict(Scaling, old) == fit_scaling(stars())
    plain = MaskedReconstruction(MODEL)
    plain.scaling = fit_scaling(stars())
    written = identity(plain, TrainConfig(), {})
    (tmp_path / "config.json").write_text(json.dumps({**written, "scaling": old}))
    assert _stored_identity(tmp_path / "config.json")["scaling"] == written["scaling"]


def test_a_store_and_a_list_train_alike_and_learn(tmp_path):
    samples = stars(16)
    write_store(samples, tmp_path / "store")
    answers, config = [], TrainConfig(epochs=2, batch_size=8, device="cpu")
    for container in (samples, Store(tmp_path / "store")):
        torch.manual_seed(0)
        task = MaskedReconstruction(MODEL)
        train(task, container, config, scaling=fit_scaling(container, center="auto"), quiet=True)
        assert task.scaling.center == "sample"
        answers.append(predict(task, stars(3, hide=True)))
    for x, y in zip(*answers, strict=True):
        assert np.array_equal(x, y)
        assert np.abs(x - 14).max() < 8


def test_queries_of_unknown_channels_are_refused(task):
    with refused(ValueError, "sample 0", "channel"):
        interpolate(task, stars(1), [np.array([[1.0, 3.0]])])
    everywhere = fit_scaling(stars(), per="all", center="sample")
    with refused(ValueError, "channel"):
        everywhere.apply(Sample([[1.0]], [[0.0, 7.0]]))


def test_the_interpolator_chooses_by_itself_and_takes_ladders(tmp_path):
    random = np.random.default_rng(0)
    X = [(np.sort(random.uniform(0, 10, 8)), random.normal(14, 2) + random.normal(0, 0.1, 8)) for _ in range(12)]
    small = {"size": Size(width=16, heads=2, depth=1), "pretrain_epochs": 1, "random_state": 0, "device": "cpu"}
    ladders = [Ladder(shortest=0.5, longest=30.0)]
    fitted = RoMAEInterpolator(**small, ladders=ladders).fit(X)
    assert fitted.task_.scaling.center == "sample" and fitted.task_.config.ladders == tuple(ladders)
    curves = fitted.interpolate(X, times=[1.0, 5.0])[..., 0]
    levels = np.array([[values.mean()] for _, values in X])
    assert np.abs(curves - levels).max() < 1.0  # from the first step on: the level is added, not learned
    fitted.save(tmp_path / "estimator")
    again = RoMAEInterpolator.load(tmp_path / "estimator")
    assert again.ladders == tuple(ladders) and np.array_equal(again.interpolate(X, times=[1.0, 5.0])[..., 0], curves)
    assert clone(again).get_params()["ladders"] == tuple(ladders)
    assert RoMAEInterpolator(**small, center="global").fit(X).task_.scaling.center == "global"
    labelled = RoMAEClassifier(**small, epochs=1).fit(X, [0, 1] * 6)
    assert labelled.task_.scaling.center == "sample"
    pretrained = {"pretrained": tmp_path / "estimator"}
    with refused(ValueError, "pretrained", "ladders"):
        RoMAEInterpolator(**pretrained, ladders=ladders).fit(X)


def test_static_facts_are_not_centred_by_themselves():
    """A fact has one value a sample: less its own mean, it would tell nothing."""
    positions = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [0.0, 1.0]])  # channel 1 is a fact
    tokens = Tokens(torch.tensor([[5.0], [7.0], [3.0], [9.0], [-3.0]]), positions, Layout.of([3, 2]))
    levels = Levels.of(tokens, torch.tensor([[2.0], [2.0]], dtype=torch.float64), 2, static_from=1)
    assert levels.relative(tokens).values.flatten().tolist() == [-2.0, 2.0, 3.0, 0.0, -3.0]
    assert levels.enlarged(tokens).values[2].item() == 3.0


# Values relative to their own spread


def waves(n_samples: int = 6, seed: int = 0, hide: bool = True) -> SampleSet:
    """Sines in three bands, with a dozen values in each, whose levels and amplitudes differ by sample and band."""
    random, samples = np.random.default_rng(seed), []
    for i in range(n_samples):
        band = np.arange(36) % 3
        times = np.sort(random.uniform(0, 10, 36))
        amplitude, level = np.exp(random.normal(0, 1, 3)), random.normal(0, 3, 3)
        values = level[band] + amplitude[band] * np.sin(times + random.uniform(0, 6))
        hidden = np.arange(36) % 5 == 1 if hide else None
        samples.append(Sample(values[:, None], np.stack([times, band], 1), hidden=hidden, id=i))
    return SampleSet(samples, SCHEMA)


def changed(sample: Sample, factor: float, by: float, channel: int) -> Sample:
    """The sample with one channel stretched and shifted."""
    is_here = sample.positions[:, -1:] == channel
    return replace(sample, values=torch.where(is_here, factor * sample.values.double() + by, sample.values.double()))


@pytest.fixture
def instance() -> MaskedReconstruction:
    torch.manual_seed(0)
    task = MaskedReconstruction(MODEL)
    task.scaling = fit_scaling(waves(), center="instance")
    torch.nn.init.normal_(task.head.linear.weight, std=0.5)
    return task.eval()


@pytest.mark.filterwarnings("ignore:data far outside")
@pytest.mark.parametrize(("factor", "by"), [(1.0, 40.0), (100.0, 0.0), (0.05, -3.0), (7.5, 12.0)])
def test_answers_stretch_and_shift_with_the_values_of_a_channel(instance, factor, by):
    samples = waves(4, seed=3)
    moved = [changed(sample, factor, by, channel=1) for sample in samples]
    queries = [np.array([[t, c] for t in (0.0, 4.3, 9.0) for c in range(3)])] * 4
    is_moved = queries[0][:, 1:] == 1
    before, after = interpolate(instance, samples, queries), interpolate(instance, moved, queries)
    for x, y in zip(before, after, strict=True):
        np.testing.assert_allclose(y, np.where(is_moved, factor * x + by, x), rtol=1e-4, atol=1e-4 * max(1, factor))
        assert np.ptp(x[is_moved]) > 0.01  # there is something to stretch
    for x, y, sample in zip(predict(instance, samples), predict(instance, moved), samples, strict=True):
        is_here = sample.positions[sample.hidden, -1:].numpy() == 1
        np.testing.assert_allclose(y, np.where(is_here, factor * x + by, x), rtol=1e-4, atol=1e-4 * max(1, factor))


def test_the_spread_is_that_of_what_is_visible_where_there_is_enough_of_it():
    layout = Layout.of([5, 5, 3, 4])
    values = torch.tensor([[1.0], [2], [3], [4], [5], [7], [7], [7], [7], [7], [1], [5], [9], [2], [2], [2], [2.00001]])
    gain = torch.tensor([[0.5]], dtype=torch.float64)
    levels = Levels.of(Tokens(values, torch.arange(17.0)[:, None], layout), gain, own_spread=True)
    # Five values with a deviation of sqrt(2); a constant; too few; and what varies by less than a thousandth of 2.
    assert_close(levels.gain.flatten(), torch.tensor([2**-0.5, 0.5, 0.5, 0.5], dtype=torch.float64))
    assert_close(levels.level.flatten(), torch.tensor([3.0, 7, 5, 2], dtype=torch.float64), atol=1e-5, rtol=0)


def test_labels_see_a_share_of_the_spread():
    tokens = Tokens(torch.tensor([[-4.0], [4], [-4], [4]]), torch.arange(4.0)[:, None], Layout.of([4]))
    levels = Levels.of(tokens, torch.ones(1, 1, dtype=torch.float64), own_spread=True)
    assert levels.relative(tokens).values.abs().flatten().tolist() == [1.0] * 4
    assert_close(levels.enlarged(tokens).values.abs(), torch.full((4, 1), 4**SPREAD_SHARE))
    assert_close(levels.cpu().enlarged(tokens).values, levels.enlarged(tokens).values)


@pytest.mark.filterwarnings("ignore:data far outside")
@pytest.mark.parametrize("n_visible", [0, 1, 2, 12])
@pytest.mark.parametrize("is_constant", [True, False])
def test_few_values_and_constants_have_finite_answers_that_shift(instance, n_visible, is_constant):
    sample = waves(1, hide=False)[0]
    sample = changed(sample, 0.0, 4.0, channel=0) if is_constant else sample
    is_here = sample.positions[:, -1] == 0
    hidden = is_here & (is_here.cumsum(0) > n_visible)
    hidden[1] = True  # of another channel, so that something is hidden
    sample = replace(sample, hidden=hidden)
    queries = [np.array([[1.0, 0.0], [30.0, 0.0]])]
    (answer,), (moved,) = (
        interpolate(instance, [one], queries) for one in (sample, changed(sample, 1.0, 5.0, channel=0))
    )
    assert np.isfinite(answer).all()
    np.testing.assert_allclose(moved, answer + (5.0 if n_visible else 0.0), atol=1e-3)


def test_settings_that_do_not_go_with_the_spread_of_samples_are_refused(without_shape_checks):
    with refused(ValueError, "'instance'", "values='none'", "'standard'"):
        fit_scaling(waves(), values="none", center="instance")
    with refused(ValueError, "asinh", "center='global'"):
        fit_scaling(waves(), values="asinh", center="instance")
    with refused(ValueError, "center", "'instance'", "not 'own'"):
        Scaling(center="own")


def test_estimators_take_the_spread_of_series(tmp_path):
    random = np.random.default_rng(0)
    X = [(np.sort(random.uniform(0, 10, 8)), size * random.normal(0, 1, 8)) for size in np.exp(np.arange(12.0) / 3)]
    small = {"size": Size(width=16, heads=2, depth=1), "pretrain_epochs": 1, "random_state": 0, "device": "cpu"}
    fitted = RoMAEInterpolator(**small, center="instance").fit(X)
    assert fitted.task_.scaling.center == "instance"
    fitted.save(tmp_path / "estimator")
    again = RoMAEInterpolator.load(tmp_path / "estimator")
    assert np.array_equal(again.interpolate(X, times=[1.0]), fitted.interpolate(X, times=[1.0]))

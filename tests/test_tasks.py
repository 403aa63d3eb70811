"""Tasks: losses that are sums over real things, targets handed back in the data's units."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from messages import refused
from romae.checkpoints.native import load
from romae.model.autoencoder import Encoder
from romae.model.calibration import Calibration
from romae.model.calibration import fitted as fitted_calibration
from romae.model.config import ModelConfig, Size
from romae.model.heads import Head
from romae.model.tasks import Classification, MaskedReconstruction, Regression
from romae.tokens.masking import Future, Rows, UniformTokens
from romae.tokens.sample import Sample
from romae.tokens.tokens import Batch, Layout, Tokens, collate

LENGTHS = [6, 2, 11, 11, 4]
CONFIG = ModelConfig(
    channels=3, position_dims=1, encoder=Size(width=16, heads=2, depth=2), decoder=Size(width=8, heads=1, depth=1)
)


def samples(generator: torch.Generator, target=None) -> list[Sample]:
    return [
        Sample(
            torch.randn(n, 3, generator=generator),
            torch.rand(n, 1, generator=generator) * 10,
            target=None if target is None else target(i, n),
        )
        for i, n in enumerate(LENGTHS)
    ]


def seeded(task, **settings):
    torch.manual_seed(0)
    return task(Encoder(CONFIG), **settings)


def test_reconstruction_is_the_mean_over_hidden_elements(generator):
    task = seeded(MaskedReconstruction, masking=UniformTokens(ratio=0.5)).eval()
    batch = task.prepare(collate(samples(generator)), generator)
    loss = task(batch)
    error = (task.predict(batch) - batch.hidden.values).square()
    assert_close(loss.total, error.sum())
    assert loss.weight == error.numel() == 3 * (3 + 1 + 6 + 6 + 2)
    assert_close(loss.mean, error.mean().double())


def test_the_loss_of_a_batch_is_the_sum_of_its_samples(generator):
    task = seeded(MaskedReconstruction, masking=Future(ratio=0.4)).eval()
    whole = task(collate(samples(generator)))
    generator.manual_seed(0)
    parts = [task(collate([sample])) for sample in samples(generator)]
    assert_close(whole.total, sum(part.total for part in parts), rtol=1e-4, atol=1e-4)
    assert whole.weight == sum(part.weight for part in parts)


def test_hidden_values_do_not_reach_the_prediction(generator):
    task = seeded(MaskedReconstruction).eval()
    batch = task.prepare(collate(samples(generator)), generator)
    other = replace(batch, hidden=replace(batch.hidden, values=batch.hidden.values + 100))
    assert torch.equal(task.predict(batch), task.predict(other))


def test_a_mask_given_by_the_caller_is_used_as_it_is(generator):
    given = [replace(s, hidden=torch.arange(len(s)) % 2 == 0) for s in samples(generator)]
    batch = seeded(MaskedReconstruction).prepare(collate(given))
    assert torch.equal(batch.hidden.values, torch.cat([s.values[::2] for s in given]))


def test_normalised_targets_come_back_in_the_units_of_the_data(generator):
    data = [replace(s, values=s.values * 50 + 1000) for s in samples(generator)]
    task = seeded(MaskedReconstruction, normalise=True).eval()
    batch = task.prepare(collate(data), generator)
    predicted, truth = task.predict(batch), batch.hidden.values
    assert_close(predicted.mean(), truth.mean(), rtol=0.05, atol=0)
    normalised = (truth - truth.mean(-1, keepdim=True)) / (truth.var(-1, keepdim=True) + 1e-6).sqrt()
    output = task.reconstruct(batch.tokens, batch.hidden.positions, batch.hidden.layout)
    assert_close(task(batch).total, (output - normalised).square().sum())


def test_the_same_generator_draws_the_same_batch(generator):
    task = seeded(MaskedReconstruction, drop_tokens=0.5).train()
    batch = collate(samples(generator))
    one, two = (task.prepare(batch, torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(one.tokens.values, two.tokens.values) and torch.equal(one.hidden.values, two.hidden.values)
    assert task.prepare(one) is one


def test_dropping_tokens_leaves_targets_alone_and_stops_in_evaluation(generator):
    task = seeded(MaskedReconstruction, masking=UniformTokens(ratio=0.5), drop_tokens=0.9)
    batch = collate([Sample(torch.randn(40, 3), torch.rand(40, 1)) for _ in range(50)])
    kept = task.train().prepare(batch, generator)
    assert kept.hidden.layout.lengths.tolist() == [20] * 50
    assert kept.tokens.layout.lengths.min() >= 1 and 0.4 < kept.tokens.layout.n_tokens / 1000 < 0.7
    assert task.eval().prepare(batch, generator).tokens.layout.lengths.tolist() == [20] * 50


def test_targets_of_tokens_are_dropped_with_them(generator):
    data = samples(generator)
    data = [replace(s, target=s.values[:, :2] * 7) for s in data]
    task = seeded(Regression, n_targets=2, per="token", drop_tokens=0.8).train()
    batch = task.prepare(collate(data), generator)
    assert len(batch.target) == batch.tokens.layout.n_tokens < sum(LENGTHS)
    assert torch.equal(batch.target, batch.tokens.values[:, :2] * 7)


@pytest.mark.parametrize("cls", [True, False])
def test_classification_reads_cls_or_the_mean(generator, cls):
    torch.manual_seed(0)
    task = Classification(replace(CONFIG, cls=cls), 4).eval()
    batch = collate(samples(generator, lambda i, n: i % 4))
    encoded = task.encoder(batch.tokens)
    assert_close(task.predict(batch), task.head(encoded.first() if cls else encoded.mean()))
    assert_close(task(batch).mean, F.cross_entropy(task.predict(batch), batch.target).double())


def test_confidence_is_the_probability_of_the_true_class(generator):
    task = seeded(Classification, n_classes=4, confidence=0.7).eval()
    batch = collate(samples(generator, lambda i, n: i % 4))
    target = torch.full((len(LENGTHS), 4), 0.1)
    target[torch.arange(len(LENGTHS)), batch.target] = 0.7
    assert_close(task(batch).total, F.cross_entropy(task.predict(batch), target, reduction="sum"))


@pytest.mark.parametrize("cls", [True, False])
def test_regression_per_token_leaves_cls_out(generator, cls):
    torch.manual_seed(0)
    task = Regression(replace(CONFIG, cls=cls), 2, per="token").eval()
    batch = collate(samples(generator, lambda i, n: torch.zeros(n, 2)))
    rows = task.encoder(batch.tokens).values.split([n + cls for n in LENGTHS])
    assert_close(task.predict(batch), task.head(torch.cat([row[int(cls) :] for row in rows])))
    assert_close(task(batch).total, task.predict(batch).square().sum())
    assert task(batch).weight == 2 * sum(LENGTHS)


def test_regression_per_sample_takes_plain_numbers(generator):
    task = seeded(Regression).eval()
    batch = collate(samples(generator, lambda i, n: float(i)))
    assert_close(task(batch).total, (task.predict(batch).squeeze(-1) - torch.arange(5.0)).square().sum())


def test_one_token_samples_are_no_obstacle(generator):
    task = seeded(MaskedReconstruction)
    alone = collate([Sample(torch.randn(1, 3), torch.zeros(1, 1)) for _ in range(3)])
    assert task(alone).weight == 0 and task(alone).total == 0
    mixed = collate([Sample(torch.randn(1, 3), torch.zeros(1, 1)), *samples(generator)])
    assert task(mixed).total.isfinite()


def test_the_trivial_loss_is_that_of_the_best_constant(generator):
    batch = collate(samples(generator, lambda i, n: [0, 0, 1, 0, 2][i]))
    hidden = MaskedReconstruction(CONFIG).eval().prepare(batch, generator)
    assert_close(
        MaskedReconstruction(CONFIG).trivial(hidden).mean.float(), hidden.hidden.values.var(0, correction=0).mean()
    )
    shares = torch.tensor([0.6, 0.2, 0.2], dtype=torch.float64)
    assert_close(Classification(CONFIG, 3).trivial(batch).mean, -(shares * shares.log()).sum())
    smooth = 0.1 + 0.7 * shares
    assert_close(Classification(CONFIG, 3, confidence=0.8).trivial(batch).mean, -(smooth * smooth.log()).sum())
    assert_close(Regression(CONFIG).trivial(batch).mean.item(), 0.64)
    several = collate(samples(generator, lambda i, n: [float(i), 100.0]))  # each target has a mean of its own
    assert_close(Regression(CONFIG, n_targets=2).trivial(several).mean.item(), 1.0)


def test_samples_of_one_row_are_no_obstacle_either():
    config = replace(CONFIG, position_dims=2)
    batch = collate([Sample(torch.randn(n, 3), torch.tensor([[7.0, i] for i in range(n)])) for n in (3, 5)])
    loss = MaskedReconstruction(config, masking=Rows())(batch)
    assert loss.weight == 0 and loss.mean == 0


def test_positions_that_do_not_fit_get_a_sentence(generator):
    task = seeded(MaskedReconstruction)
    tokens = collate(samples(generator)).tokens
    with refused(ValueError, "2 positions", "1 coordinates", "[2, 3]"):
        task.reconstruct(tokens, torch.zeros(2, 3), Layout.of([1, 1, 0, 0, 0]))
    with refused(ValueError, "leave Sample"):
        hidden = [
            replace(s, hidden=torch.arange(len(s)) == 0, target=torch.zeros(len(s), 1)) for s in samples(generator)
        ]
        seeded(Regression, per="token")(collate(hidden))


@pytest.mark.usefixtures("without_shape_checks")
def test_a_masking_that_is_none_is_refused_at_once():
    for masking in ("rows", UniformTokens):
        with refused(TypeError, "masking", "strategy"):
            MaskedReconstruction(CONFIG, masking=masking)


def test_every_parameter_learns(generator):
    task = seeded(MaskedReconstruction).train()
    task(collate(samples(generator))).mean.backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in task.parameters())


def test_pretraining_leaves_the_trivial_solution(generator):
    """Sines of random phase have mean 0; a model that only learns the mean stays at the variance, 0.5."""
    torch.manual_seed(0)
    small = Size(width=32, heads=2, depth=2)
    config = ModelConfig(channels=1, position_dims=1, encoder=replace(small, depth=12), decoder=small)
    task = MaskedReconstruction(config, masking=UniformTokens(ratio=0.5))
    optimiser = torch.optim.AdamW(task.parameters(), lr=2e-3)
    losses = []
    for _ in range(50):
        times = 10 * torch.rand(16, 20, 1, generator=generator)
        values = torch.sin(times + 6.3 * torch.rand(16, 1, 1, generator=generator))
        tokens = Tokens.from_padded(values, times, torch.ones(16, 20, dtype=torch.bool))
        loss = task(task.prepare(Batch(tokens), generator)).mean
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert sum(losses[-10:]) / 10 < 0.15


def test_the_core_knows_its_own_head():
    head = Head(8, 3, 1e-6)
    x = torch.randn(5, 8)
    assert_close(head(x), head.linear(x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()))


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (lambda: seeded(Classification, n_classes=1), ["two classes"]),
        (lambda: seeded(Classification, n_classes="2"), ["n_classes=2", "not '2'"]),
        (lambda: seeded(Classification, n_classes=2.5), ["two classes"]),
        (lambda: seeded(Classification, n_classes=4, confidence=0.2), ["above chance"]),
        (lambda: seeded(Regression, n_targets=0), ["one target"]),
        (lambda: seeded(Regression, n_targets=2.0), ["one target", "2.0"]),
        (lambda: seeded(Regression, drop_tokens="0.5"), ["drop_tokens", "'0.5'"]),
        (lambda: seeded(MaskedReconstruction, drop_tokens=1.0), ["drop_tokens"]),
        (lambda: MaskedReconstruction(replace(CONFIG, channels=1), normalise=True), ["nothing", "left"]),
    ],
)
def test_settings_that_make_no_sense_get_a_sentence(make, parts, without_shape_checks):
    with refused(ValueError, *parts):
        make()


def test_a_task_is_made_around_an_encoder(without_shape_checks):
    with refused(TypeError, "MaskedReconstruction", "task.encoder.rebuilt"):
        Classification(seeded(MaskedReconstruction), n_classes=2)
    with refused(TypeError, "Encoder", "ModelConfig", "not str"):
        Regression("run")
    assert Classification(CONFIG, n_classes=np.int64(3)).settings["n_classes"].__class__ is int


def test_positions_of_other_dimensions_are_named(without_shape_checks):
    batch = collate([Sample(torch.zeros(6, CONFIG.channels), torch.zeros(6, CONFIG.position_dims + 1))])
    with refused(ValueError, "position dimensions"):
        seeded(MaskedReconstruction)(batch)


@pytest.mark.parametrize(
    ("target", "parts"),
    [
        (None, ["have none"]),
        (lambda i, n: 7, ["0 to 3", "7 to 7"]),
        (lambda i, n: 0.5, ["integer per sample"]),
    ],
)
def test_classes_that_make_no_sense_get_a_sentence(generator, target, parts):
    with refused(ValueError, *parts):
        seeded(Classification, n_classes=4)(collate(samples(generator, target)))


def test_targets_of_the_wrong_shape_get_a_sentence(generator):
    with refused(ValueError, "2 targets", "[34, 2]", "[5]"):
        seeded(Regression, n_targets=2, per="token")(collate(samples(generator, lambda i, n: 1.0)))


def test_rows_of_the_paper_hide_all_variables_at_a_time():
    times = torch.arange(4.0).repeat_interleave(3)
    sample = Sample(torch.randn(12, 1), torch.stack([times, torch.arange(12.0) % 3], 1))
    config = replace(CONFIG, channels=1, position_dims=2)
    batch = MaskedReconstruction(config, masking=Rows(ratio=0.5)).prepare(collate([sample]))
    assert not set(batch.hidden.positions[:, 0].tolist()) & set(batch.tokens.positions[:, 0].tolist())


# Calibration


def smoothed_logits(n, rates, confidence, spread, seed=0):
    """Classes drawn at these rates, and the logits of a model that knows them as well as can be, but for smoothing."""
    source, k = torch.Generator().manual_seed(seed), len(rates)
    evidence = spread * torch.randn(n, k, generator=source, dtype=torch.float64)
    truth = (torch.tensor(rates, dtype=torch.float64).log() + evidence).softmax(-1)
    classes = torch.multinomial(truth, 1, generator=source).squeeze(1)
    rest = (1 - confidence) / (k - 1)
    return (rest + (confidence - rest) * truth).log(), classes, truth


@pytest.mark.parametrize("rates", [(0.9, 0.1), (0.6, 0.3, 0.1), (0.25, 0.25, 0.25, 0.25)])
@pytest.mark.parametrize("spread", [0.0, 1.0, 4.0])
@pytest.mark.parametrize("distortion", [1.0, 0.3, 3.0])
def test_calibrated_probabilities_have_the_rates_of_the_classes_and_no_larger_loss(rates, spread, distortion):
    """Whatever a model is sure of too little or too much, and however well it tells classes apart."""
    logits, classes, _ = smoothed_logits(600, rates, 0.9, spread)
    logits = distortion * logits + torch.arange(len(rates))  # and it leans to a class
    calibrated = fitted_calibration(logits, classes, 0.9).apply(logits, 0.9)
    rate = torch.bincount(classes, minlength=len(rates)) / len(classes)
    assert (calibrated.softmax(-1).mean(0) - rate).abs().max() < 0.01
    before = F.cross_entropy(logits, classes)
    assert F.cross_entropy(calibrated, classes) < before + 1e-6


@pytest.mark.parametrize("n_classes", [2, 5])
def test_smoothing_is_undone_exactly_where_no_samples_say_more(n_classes):
    rates = [1 / n_classes] * n_classes
    logits, classes, truth = smoothed_logits(300, rates, 0.9, 1.0)
    calibrated = fitted_calibration(logits[:0], classes[:0], 0.9).apply(logits, 0.9)
    assert_close(calibrated.softmax(-1), truth, atol=0.01, rtol=0)
    assert torch.equal(calibrated.argmax(-1), logits.argmax(-1))
    assert_close(Calibration(bias=(0.0,) * n_classes).apply(logits, 1.0), logits)  # nothing to undo


def test_what_is_less_probable_than_smoothing_allows_keeps_its_order():
    logits = torch.stack([torch.linspace(-40, 40, 200), torch.zeros(200)], 1)
    probability = Calibration(bias=(0.0, 0.0)).apply(logits, 0.9).softmax(-1)[:, 0]
    assert (probability.diff() >= 0).all() and probability.isfinite().all()
    rising = (logits[:, 0] > -6) & (logits[:, 0] < 6)
    assert (probability[rising].diff() > 0).all() and probability[0] < 1e-3 and probability[-1] > 0.999


def test_a_handful_of_samples_does_not_overrule_a_model():
    logits, classes, truth = smoothed_logits(2_000, (0.5, 0.5), 0.9, 2.0)
    calibration = fitted_calibration(logits[:5], classes[:5], 0.9)
    assert 0.8 < calibration.temperature < 1.25 and max(calibration.bias) < 0.2
    assert fitted_calibration(logits[:1], classes[:1], 0.9).temperature < 2  # one class alone is there


def test_a_calibration_belongs_to_a_task_and_changes_no_loss(generator, tmp_path, without_shape_checks):
    batch, task = collate(samples(generator, lambda i, n: i % 3)), seeded(Classification, n_classes=3, confidence=0.9)
    logits, loss, settings = task.eval().predict(batch), task(batch).total, dict(task.settings)
    assert "calibration" not in settings  # a checkpoint without one is what it was
    task.calibration = Calibration(temperature=0.5, bias=(1.0, 0.0, -1.0))
    assert torch.equal(task(batch).total, loss) and not torch.allclose(task.predict(batch), logits)
    task.save(tmp_path / "model")
    assert load(tmp_path / "model").calibration == task.calibration
    with refused(ValueError, "2 classes", "has 3"):
        task.calibration = Calibration(bias=(0.0, 0.0))
    with refused(TypeError, "Calibration(", "2.0"):
        task.calibration = 2.0
    task.calibration = None
    assert torch.equal(task.predict(batch), logits) and task.settings == settings
    for bad, part in (({"temperature": 0.0}, "positive"), ({"bias": (float("nan"),)}, "finite")):
        with refused(ValueError, part):
            Calibration(**{"bias": (0.0,)} | bad)

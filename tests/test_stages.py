"""Stages: one encoder goes through them all, one seed decides everything, and a stopped run goes on where it was."""

import json
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from messages import refused
from romae.config import from_dict, override, to_dict
from romae.data.scaling import fit_scaling
from romae.inference.predictions import predict
from romae.model.autoencoder import Encoder
from romae.model.config import ModelConfig, Size
from romae.model.tasks import Classification, MaskedReconstruction, Regression
from romae.tokens.augmentation import RandAugment
from romae.tokens.masking import Rows, UniformTokens
from romae.tokens.sample import Sample
from romae.training.config import TrainConfig
from romae.training.stages import Classify, Pretrain, Regress, run_stages

SMALL = Size(width=8, heads=2, depth=1)
MODEL = ModelConfig(channels=1, position_dims=1, encoder=SMALL, decoder=SMALL)
TRAIN = TrainConfig(epochs=2, batch_size=8, lr=1e-2, device="cpu")
STAGES = (Pretrain(train=TRAIN), Classify(n_classes=2, train=TRAIN))


def samples(n: int = 16, seed: int = 0) -> list[Sample]:
    """Slow and fast sines."""
    random = np.random.default_rng(seed)
    times = np.sort(random.uniform(0, 6, (n, 8)), axis=1)
    return [Sample(np.sin((1 + 2 * (i % 2)) * t)[:, None], t[:, None], target=i % 2) for i, t in enumerate(times)]


def assert_same(one: torch.nn.Module, other: torch.nn.Module) -> None:
    for (name, a), (_, b) in zip(one.state_dict().items(), other.state_dict().items(), strict=True):
        assert_close(a, b, rtol=0, atol=0, msg=lambda text, name=name: f"{name}: {text}")


def test_the_encoder_goes_from_stage_to_stage():
    """Training that moves nothing hands on the weights, with the settings of the new stage."""
    still = replace(TRAIN, epochs=1, lr=1e-30, weight_decay=0.0)
    first = run_stages(MODEL, [Pretrain(train=TRAIN)], samples()).task
    second = run_stages(
        first.encoder, [Pretrain(train=still), Classify(n_classes=2, train=still, dropout=0.2)], samples()
    ).task
    assert isinstance(first, MaskedReconstruction) and isinstance(second, Classification)
    assert_same(first.encoder, second.encoder)
    assert second.config.dropout == 0.2 and first.config.dropout == 0


def test_an_encoder_that_is_handed_over_stays_as_it_is():
    encoder = Encoder(MODEL)
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    task = run_stages(encoder, STAGES, samples()).task
    assert all(torch.equal(before[name], value) for name, value in encoder.state_dict().items())
    assert not torch.equal(task.encoder.projection.weight, encoder.projection.weight)


def test_one_seed_decides_everything():
    one, same, other = (run_stages(MODEL, STAGES, samples(), seed=seed) for seed in (3, 3, 4))
    assert_same(one.task, same.task)
    assert [h.records for h in one.histories] == [h.records for h in same.histories]
    assert not torch.equal(one.task.head.linear.weight, other.task.head.linear.weight)
    reseeded = [replace(stage, train=replace(TRAIN, seed=99)) for stage in STAGES]
    assert_same(one.task, run_stages(MODEL, reseeded, samples(), seed=3).task)


def test_a_run_stopped_in_its_second_stage_goes_on_there(tmp_path):
    whole = run_stages(MODEL, STAGES, samples(), validation=samples(seed=1), out=tmp_path / "whole")

    def stop(step, record):
        if record["stage"] == 1:
            raise KeyboardInterrupt

    arguments = {"validation": samples(seed=1), "out": tmp_path / "stopped"}
    with pytest.raises(KeyboardInterrupt):
        run_stages(MODEL, STAGES, samples(), log=stop, **arguments)
    first = tmp_path / "stopped" / "0-pretrain" / "history.jsonl"
    written = first.stat().st_mtime_ns, first.read_text()
    heard = []
    resumed = run_stages(
        MODEL, STAGES, samples(), resume=True, log=lambda step, record: heard.append(record["stage"]), **arguments
    )
    assert_same(whole.task, resumed.task)
    assert heard == [1, 1] and first.read_text() == written[1]
    assert [h.records for h in whole.histories] == [h.records for h in resumed.histories]
    with refused(ValueError, "holds a run"):
        run_stages(MODEL, STAGES, samples(), **arguments)


def test_a_run_that_does_not_say_what_its_data_held_is_resumed(tmp_path):
    """As those of older versions, whose scaling lacks it."""
    run = {"scaling": fit_scaling(samples()), "out": tmp_path, "quiet": True}
    done = run_stages(MODEL, STAGES[:1], samples(), **run)
    path = tmp_path / "0-pretrain" / "config.json"
    settings = json.loads(path.read_text())
    del settings["scaling"]["seen"]
    path.write_text(json.dumps(settings))
    assert_same(run_stages(MODEL, STAGES[:1], samples(), resume=True, **run).task, done.task)


def test_pretraining_sees_unlabelled_samples_and_other_stages_do_not():
    """Without labels of their own they could not be in a batch of the second stage."""
    unlabelled = [replace(sample, target=None) for sample in samples(24, seed=2)]
    with_more = run_stages(MODEL, STAGES, samples(), unlabelled=unlabelled)
    alone = run_stages(MODEL, STAGES[:1], unlabelled)
    assert with_more.histories[0].records == alone.histories[0].records
    assert with_more.histories[1].last["step"] == 2 * 2


def test_weights_are_those_of_the_best_validation_unless_the_last_are_wanted():
    stage = Regress(per="sample", train=replace(TRAIN, epochs=4))
    numbers = [replace(sample, target=5.0) for sample in samples()]
    opposite = [replace(sample, target=-5.0) for sample in samples()]  # learning makes it worse
    best = run_stages(MODEL, [stage], numbers, validation=opposite)
    last = run_stages(MODEL, [replace(stage, weights="last")], numbers, validation=opposite)
    assert_same(last.task, run_stages(MODEL, [stage], numbers).task)
    assert "validation" not in last.histories[0].last
    assert best.histories[0].best["step"] < best.histories[0].last["step"]
    assert not torch.equal(best.task.head.linear.weight, last.task.head.linear.weight)


def test_a_frozen_encoder_keeps_its_weights_and_the_head_learns():
    pretrained = run_stages(MODEL, STAGES[:1], samples()).task.encoder
    task = run_stages(pretrained, [Classify(n_classes=2, frozen=True, train=TRAIN)], samples(), seed=1).task
    assert_same(pretrained, task.encoder)
    assert any(p.requires_grad for p in task.head.parameters())
    thawed = run_stages(task.encoder, [Classify(n_classes=2, train=TRAIN)], samples()).task
    assert not torch.equal(thawed.encoder.projection.weight, pretrained.projection.weight)


def test_scaling_is_applied_once_and_undone_in_predictions():
    """Data in other units give the same model, which answers in those units."""
    numbers = [replace(s, target=s.target.float() + 0.25 * s.values[0, 0]) for s in samples()]
    large = [replace(s, values=1000 * s.values + 5000, target=1e4 * s.target) for s in numbers]
    stage = Regress(train=TRAIN)
    small_scaling, large_scaling = (fit_scaling(data, target=True) for data in (numbers, large))
    small = run_stages(MODEL, [stage], numbers, validation=numbers, scaling=small_scaling).task
    task = run_stages(MODEL, [stage], large, validation=large, scaling=large_scaling).task
    assert isinstance(task, Regression) and task.scaling == large_scaling
    np.testing.assert_allclose(predict(task, large), 1e4 * predict(small, numbers), rtol=1e-3, atol=1)


def test_stages_can_be_written_down_and_changed():
    for stage in (*STAGES, Pretrain(masking=Rows(ratio=0.25), drop_tokens=0.5), Regress(n_targets=3, per="token")):
        assert from_dict(type(stage), to_dict(stage)) == stage
    changed = override(STAGES[0], "train.epochs=6", "masking.ratio=0.25")
    assert changed == Pretrain(train=replace(TRAIN, epochs=6), masking=UniformTokens(ratio=0.25))


@dataclass(frozen=True)
class OwnMasking:
    def hidden(self, tokens, source=None):
        return UniformTokens(ratio=0.5).hidden(tokens, source)


def test_a_masking_of_ones_own_serves_where_nothing_is_saved(tmp_path):
    own = Pretrain(masking=OwnMasking(), train=TRAIN)
    assert_same(
        run_stages(MODEL, [own], samples()).task,
        run_stages(MODEL, [Pretrain(masking=UniformTokens(ratio=0.5), train=TRAIN)], samples()).task,
    )
    with refused(ValueError, "strategy of romae.masking"):
        run_stages(MODEL, [own], samples(), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("stages", "data", "parts"),
    [
        ((), samples(), ["no stage"]),
        (STAGES, [], ["no samples"]),
        ((*STAGES[:1], Classify(n_classes=1)), samples(), ["two classes"]),
        ((*STAGES[:1], Regress(drop_tokens=1.0)), samples(), ["drop_tokens"]),
        (STAGES, [replace(sample, target=None) for sample in samples()], ["samples have none"]),
    ],
)
def test_what_is_wrong_is_said_before_the_first_stage_begins(tmp_path, stages, data, parts):
    with refused(ValueError, *parts):
        run_stages(MODEL, stages, data, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_task_is_no_stage(without_shape_checks):
    with refused(TypeError, "a stage is"):
        run_stages(MODEL, [MaskedReconstruction(MODEL)], samples())


def fails_at_once(stages, training, parts, **more):
    """The first stage would be seen if it were begun."""
    with refused((ValueError, TypeError), *parts):
        run_stages(MODEL, stages, training, log=lambda *_: pytest.fail("a stage was begun"), **more)


@pytest.mark.parametrize(
    ("last", "parts"),
    [
        (Classify(n_classes=2, train=TRAIN), ["classes", "0 to 1", "0 to 2"]),
        (Regress(n_targets=3, train=TRAIN), ["3 targets"]),
        (Classify(n_classes=3, train=replace(TRAIN, patience=2)), ["patience", "validation samples"]),
        (Classify(n_classes=3, train=replace(TRAIN, trackers=("nosuch",))), ["'nosuch'", "not installed"]),
        (Classify(n_classes=3, augment=RandAugment(size=(8, 8), patch=(2, 2)), train=TRAIN), ["whole images", "16"]),
    ],
)
def test_what_is_wrong_with_a_later_stage_is_found_before_the_first_begins(last, parts):
    training = samples()
    training[7] = replace(training[7], target=torch.tensor(2))  # one class too many, somewhere
    fails_at_once([Pretrain(train=TRAIN), last], training, parts)


def test_validation_samples_need_targets_from_the_start():
    bare = [replace(sample, target=None) for sample in samples()]
    fails_at_once(STAGES, samples(), ["targets", "have none"], validation=bare)


def test_unlabelled_samples_without_pre_training_are_refused():
    fails_at_once(STAGES[1:], samples(), ["unlabelled", "pre-training"], unlabelled=samples())


def test_numbers_are_no_classes_from_the_start():
    numbers = [replace(sample, target=torch.tensor(0.5)) for sample in samples()]
    fails_at_once(STAGES, numbers, ["classes", "integer per sample"])

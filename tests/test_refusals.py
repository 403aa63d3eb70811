"""What training refuses, it refuses in a sentence, and leaves the task as it was."""

import numpy as np
import pandas as pd
import pytest
import torch

import training_job
from romae.data.scaling import fit_scaling
from romae.data.series import from_arrays
from romae.model.autoencoder import Encoder
from romae.model.tasks import Classification, Regression
from romae.tokens.sample import Sample
from romae.training.config import TrainConfig
from romae.training.loop import train
from romae.training.stages import Pretrain, Regress, run_stages

CONFIG = TrainConfig(epochs=1, device="cpu")
SAMPLES = from_arrays(np.random.default_rng(0).normal(size=(6, 5, 1)), y=["a", "b"] * 3)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (torch.zeros(3, 2), "samples to train on are instances of Sample, and the first is Tensor"),
        (iter(SAMPLES), "are a list, a SampleSet or a store, not .*iterator; list.* makes one"),
        (SAMPLES[0], "are a list, a SampleSet or a store, not Sample; put a single sample into a list"),
        (pd.Series(list(SAMPLES), index=list("abcdef")), "not Series; list.* makes one"),
        ({"a": SAMPLES[0]}, "not dict; list.* makes one"),
        ([], "there are no samples to train on: the list is empty"),
        (SAMPLES[:0], "there are no samples to train on: the list is empty"),
    ],
)
def test_what_are_no_samples_is_named(samples, message, without_shape_checks):
    with pytest.raises((TypeError, ValueError), match=message):
        train(training_job.task(), samples, CONFIG)
    with pytest.raises((TypeError, ValueError), match=message.replace("samples to train on", "validation samples")):
        train(training_job.task(), SAMPLES, CONFIG, validation=samples)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"config": {"epochs": 1}}, "config is a TrainConfig, for example TrainConfig.epochs=5., not dict"),
        ({"task": None}, "task is a MaskedReconstruction, Classification, .* not NoneType"),
        ({"task": Encoder(training_job.task().config)}, "or a Task of your own, not Encoder"),
        ({"scaling": "standard"}, "scaling is what romae.fit_scaling.samples. gives, not 'standard'"),
        ({"resume": True}, "to resume a run, say where it is: out="),
        ({"config": TrainConfig(epochs=1, patience=2, device="cpu")}, "give validation samples as well"),
        ({"config": TrainConfig(epochs=1, precision="fp16", device="cpu")}, "'fp16' needs a GPU; use 'bf16' or"),
    ],
)
def test_what_is_no_argument_of_training_is_named(arguments, message, without_shape_checks):
    with pytest.raises((TypeError, ValueError), match=message):
        train(**{"task": training_job.task(), "samples": SAMPLES, "config": CONFIG, **arguments})


def test_nothing_is_learned_without_gradients():
    task = training_job.task()
    with torch.no_grad(), pytest.raises(RuntimeError, match="call train outside of torch.no_grad"):
        train(task, SAMPLES, CONFIG)
    task.requires_grad_(False)
    with pytest.raises(ValueError, match="every weight of the task is frozen"):
        train(task, SAMPLES, CONFIG)


def test_more_classes_than_the_samples_have_are_refused():
    with pytest.raises(ValueError, match="have 2 classes .'a', 'b'., and the task tells 7 apart; make it with"):
        train(Classification(training_job.task().encoder, 7), SAMPLES, CONFIG)
    plain = [Sample(one.values, one.positions, target=0) for one in SAMPLES]
    train(Classification(training_job.task().encoder, 7), plain, CONFIG, quiet=True)


@pytest.mark.parametrize("labels", [[20, 60, 100, 20], ["cat", "dog", "cat", "dog"]])
def test_a_regression_learns_no_numbers_of_classes(labels):
    values = [np.ones((5, 1))] * 4
    task, config = Regression(training_job.task().encoder), CONFIG
    classes, numbers = from_arrays(values, y=labels), from_arrays(values, y=[1.0, 2.0, 3.0, 4.0])
    with pytest.raises(ValueError, match="were read as classes, and a regression learns numbers; give them as floats"):
        train(task, classes, config, quiet=True)
    with pytest.raises(ValueError, match="were read as classes"):
        train(task, numbers, config, validation=classes, quiet=True)
    with pytest.raises(ValueError, match="were read as classes"):
        run_stages(task.encoder, [Pretrain(train=config), Regress(train=config)], classes, quiet=True)


def test_samples_that_call_other_things_by_the_same_numbers_are_refused():
    random = torch.Generator().manual_seed(0)
    values = torch.randn(6, 5, 1, generator=random).numpy()
    training, validation = (from_arrays(values, y=[*names, *names]) for names in (["a", "b", "c"], ["b", "c", "d"]))
    task, config = training_job.task(), CONFIG
    with pytest.raises(ValueError, match=r"validation samples have the classes \['b', 'c', 'd'\], but the samples to"):
        train(task, training, config, validation=validation, quiet=True)
    task.schema = validation.schema
    with pytest.raises(ValueError, match=r"samples have the classes \['a', 'b', 'c'\], but the task knows"):
        train(task, training, config, quiet=True)


@pytest.mark.parametrize("is_training", [False, True])
def test_a_task_that_is_refused_is_as_it_was(tmp_path, is_training):
    task = Classification(training_job.task().encoder, 2).train(is_training)
    wrong = [Sample(one.values, one.positions, target=5) for one in SAMPLES]
    task.save(tmp_path / "model")
    for samples, folder, message in ((SAMPLES, "model", "holds a model"), (wrong, "run", "must lie in 0 to 1")):
        with pytest.raises(ValueError, match=message):
            train(task, samples, CONFIG, scaling=fit_scaling(SAMPLES), out=tmp_path / folder, quiet=True)
        assert task.scaling is None and task.schema is None and task.training == is_training
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    train(task, SAMPLES, CONFIG, quiet=True)

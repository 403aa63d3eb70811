"""What training refuses, it refuses in a sentence, and leaves the task as it was."""

import numpy as np
import pandas as pd
import pytest
import torch

import training_job
from messages import refused
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
    ("samples", "parts"),
    [
        (torch.zeros(3, 2), ["Sample", "number 0 is Tensor"]),
        (iter(SAMPLES), ["SampleSet", "not generator", "list("]),
        (SAMPLES[0], ["SampleSet", "not Sample", "into a list"]),
        (pd.Series(list(SAMPLES), index=list("abcdef")), ["not Series", "list("]),
        ({"a": SAMPLES[0]}, ["not dict", "list("]),
        ([], ["list is empty"]),
        (SAMPLES[:0], ["list is empty"]),
    ],
)
def test_what_are_no_samples_is_named(samples, parts, without_shape_checks):
    with refused((TypeError, ValueError), "samples to train on", *parts):
        train(training_job.task(), samples, CONFIG)
    with refused((TypeError, ValueError), "validation samples", *parts):
        train(training_job.task(), SAMPLES, CONFIG, validation=samples)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ({"config": {"epochs": 1}}, ["TrainConfig(epochs=5)", "not dict"]),
        ({"task": None}, ["MaskedReconstruction", "Classification", "not NoneType"]),
        ({"task": Encoder(training_job.task().config)}, ["Task", "not Encoder"]),
        ({"scaling": "standard"}, ["romae.fit_scaling(samples)", "not 'standard'"]),
        ({"resume": True}, ["resume", "out="]),
        ({"config": TrainConfig(epochs=1, patience=2, device="cpu")}, ["validation samples"]),
        ({"config": TrainConfig(epochs=1, precision="fp16", device="cpu")}, ["'fp16'", "GPU", "'bf16'"]),
    ],
)
def test_what_is_no_argument_of_training_is_named(arguments, parts, without_shape_checks):
    with refused((TypeError, ValueError), *parts):
        train(**{"task": training_job.task(), "samples": SAMPLES, "config": CONFIG, **arguments})


def test_nothing_is_learned_without_gradients():
    task = training_job.task()
    with torch.no_grad(), refused(RuntimeError, "outside of torch.no_grad"):
        train(task, SAMPLES, CONFIG)
    task.requires_grad_(False)
    with refused(ValueError, "every weight", "frozen"):
        train(task, SAMPLES, CONFIG)


def test_more_classes_than_the_samples_have_are_refused():
    with refused(ValueError, "2 classes", "'a', 'b'", "7 apart"):
        train(Classification(training_job.task().encoder, 7), SAMPLES, CONFIG)
    plain = [Sample(one.values, one.positions, target=0) for one in SAMPLES]
    train(Classification(training_job.task().encoder, 7), plain, CONFIG, quiet=True)


@pytest.mark.parametrize("labels", [[20, 60, 100, 20], ["cat", "dog", "cat", "dog"]])
def test_a_regression_learns_no_numbers_of_classes(labels):
    values = [np.ones((5, 1))] * 4
    task, config = Regression(training_job.task().encoder), CONFIG
    classes, numbers = from_arrays(values, y=labels), from_arrays(values, y=[1.0, 2.0, 3.0, 4.0])
    with refused(ValueError, "classes", "regression", "as floats"):
        train(task, classes, config, quiet=True)
    with refused(ValueError, "read as classes"):
        train(task, numbers, config, validation=classes, quiet=True)
    with refused(ValueError, "read as classes"):
        run_stages(task.encoder, [Pretrain(train=config), Regress(train=config)], classes, quiet=True)


def test_samples_that_call_other_things_by_the_same_numbers_are_refused():
    random = torch.Generator().manual_seed(0)
    values = torch.randn(6, 5, 1, generator=random).numpy()
    training, validation = (from_arrays(values, y=[*names, *names]) for names in (["a", "b", "c"], ["b", "c", "d"]))
    task, config = training_job.task(), CONFIG
    with refused(ValueError, "validation samples", "['b', 'c', 'd']"):
        train(task, training, config, validation=validation, quiet=True)
    task.schema = validation.schema
    with refused(ValueError, "['a', 'b', 'c']", "task knows"):
        train(task, training, config, quiet=True)


@pytest.mark.parametrize("is_training", [False, True])
def test_a_task_that_is_refused_is_as_it_was(tmp_path, is_training):
    task = Classification(training_job.task().encoder, 2).train(is_training)
    wrong = [Sample(one.values, one.positions, target=5) for one in SAMPLES]
    task.save(tmp_path / "model")
    for samples, folder, part in ((SAMPLES, "model", "holds a model"), (wrong, "run", "0 to 1")):
        with refused(ValueError, part):
            train(task, samples, CONFIG, scaling=fit_scaling(SAMPLES), out=tmp_path / folder, quiet=True)
        assert task.scaling is None and task.schema is None and task.training == is_training
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    train(task, SAMPLES, CONFIG, quiet=True)

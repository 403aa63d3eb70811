"""Scores of validation: those of scikit-learn, and the weights that are kept are those of the best of them."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn import metrics
from torch.testing import assert_close

import romae
from messages import refused
from romae.model.config import ModelConfig, Size
from romae.model.tasks import Classification, MaskedReconstruction, Regression
from romae.tokens.sample import Sample
from romae.training import validation
from romae.training.config import TrainConfig
from romae.training.loop import train
from romae.training.run_folder import History
from romae.training.scoring import OF_CLASSES, OF_NUMBERS, class_score, number_score
from romae.training.stages import Classify, Pretrain, Regress, run_stages
from romae.training.validation import Judged

SIZE = Size(width=16, heads=2, depth=1)
CONFIG = ModelConfig(channels=1, position_dims=1, encoder=SIZE, decoder=SIZE)
RANDOM = np.random.default_rng(0)
TIMES = RANDOM.integers(0, 4, 40)


def made(n: int = 24, seed: int = 0, n_classes: int = 2) -> list[Sample]:
    """Series whose class is their level, under noise."""
    random = np.random.default_rng(seed)
    kinds = np.arange(n) % n_classes
    return [Sample(random.normal(kind, 1.5, (4, 1)), np.arange(4.0)[:, None], target=int(kind)) for kind in kinds]


def config(**settings) -> TrainConfig:
    return TrainConfig(**{"epochs": 5, "batch_size": 8, "lr": 1e-2, "device": "cpu"} | settings)


# The numbers


@pytest.mark.parametrize("scoring", OF_CLASSES)
def test_scores_of_two_classes_are_those_of_scikit_learn(scoring):
    classes = RANDOM.integers(0, 2, 40)
    p = RANDOM.dirichlet([1, 1], 40)
    for weights in (None, TIMES.astype(float), np.ones(40)):
        expected = {
            "accuracy": lambda w: metrics.accuracy_score(classes, p.argmax(1), sample_weight=w),
            "average_precision": lambda w: metrics.average_precision_score(classes, p[:, 1], sample_weight=w),
            "f1_macro": lambda w: metrics.f1_score(classes, p.argmax(1), average="macro", sample_weight=w),
            "neg_log_loss": lambda w: -metrics.log_loss(classes, p, sample_weight=w),
            "roc_auc": lambda w: metrics.roc_auc_score(classes, p[:, 1], sample_weight=w),
            "roc_auc_ovr": lambda w: metrics.roc_auc_score(classes, p[:, 1], sample_weight=w),
        }[scoring](weights)
        assert class_score(scoring, p, classes, weights) == pytest.approx(expected)
    again = np.repeat(np.arange(40), TIMES)
    weighted = class_score(scoring, p, classes, TIMES.astype(float))
    assert weighted == pytest.approx(class_score(scoring, p[again], classes[again])), "weight 2 is the sample twice"


def test_scores_of_several_classes_are_means_over_each_against_the_others():
    classes, p = np.arange(40) % 3, RANDOM.dirichlet([1, 1, 1], 40)
    area = metrics.roc_auc_score(classes, p, multi_class="ovr")
    assert class_score("roc_auc_ovr", p, classes) == pytest.approx(area)
    precision = metrics.average_precision_score(classes, p)
    assert class_score("average_precision", p, classes) == pytest.approx(precision)
    two = classes != 2  # none of the third class: the score is the mean over the other two
    expected = np.mean([metrics.roc_auc_score(classes[two] == k, p[two, k]) for k in (0, 1)])
    assert class_score("roc_auc_ovr", p[two], classes[two]) == pytest.approx(expected)
    assert class_score("roc_auc_ovr", p, classes, two.astype(float)) == pytest.approx(expected)


@pytest.mark.parametrize("scoring", OF_NUMBERS)
def test_scores_of_numbers_are_those_of_scikit_learn(scoring):
    y, predicted = RANDOM.normal(size=(2, 40, 2)) * [1, 100]
    function = {
        "r2": metrics.r2_score,
        "neg_mean_squared_error": lambda *numbers, **w: -metrics.mean_squared_error(*numbers, **w),
        "neg_mean_absolute_error": lambda *numbers, **w: -metrics.mean_absolute_error(*numbers, **w),
    }[scoring]
    for weights in (None, TIMES.astype(float)):
        expected = function(y, predicted, sample_weight=weights)
        assert number_score(scoring, predicted, y, weights) == pytest.approx(expected)


# The weights that are kept


def scripted(monkeypatch, judged: list[Judged], **settings) -> tuple[Classification, History, list[dict]]:
    """A run whose validations say what is written here, and its weights at each of them."""
    script, weights = iter(judged), []

    def say(model, source, scoring, **arguments):
        weights.append({name: x.clone() for name, x in model.state_dict().items()})
        return next(script)

    monkeypatch.setattr(validation, "_judged", say)
    torch.manual_seed(0)
    task = Classification(CONFIG, 2)
    settings = {"scoring": "roc_auc", "epochs": len(judged)} | settings
    return task, train(task, made(), config(**settings), validation=made(8, seed=1), quiet=True), weights


def test_the_weights_that_are_kept_have_the_highest_score_and_among_those_the_lowest_loss(monkeypatch):
    script = [Judged(0.5, 0.7), Judged(0.9, 0.8), Judged(0.6, 0.8), Judged(0.7, 0.8), Judged(0.1, 0.6)]
    task, history, weights = scripted(monkeypatch, script)
    assert [record["score"] for record in history.records] == [0.7, 0.8, 0.8, 0.8, 0.6]
    assert history.best["epoch"] == 3
    assert_close(dict(task.state_dict()), weights[2], rtol=0, atol=0)
    assert (weights[2]["head.linear.weight"] != weights[4]["head.linear.weight"]).any()


def test_without_scoring_the_loss_decides(monkeypatch):
    task, history, weights = scripted(monkeypatch, [Judged(0.5), Judged(0.4), Judged(0.6)], scoring=None)
    assert history.best["epoch"] == 2 and "score" not in history.best
    assert_close(dict(task.state_dict()), weights[1], rtol=0, atol=0)


def test_patience_looks_at_the_score(monkeypatch):
    falling = [Judged(1 - 0.1 * i, score) for i, score in enumerate([0.6, 0.9, 0.8, 0.8, 0.8, 0.8])]
    _, history, _ = scripted(monkeypatch, falling, patience=2)
    assert len(history.records) == 4


@pytest.mark.parametrize("scoring", OF_CLASSES)
def test_a_run_ends_with_the_score_that_its_history_calls_the_best(scoring):
    torch.manual_seed(0)
    task, others = Classification(CONFIG, 2), made(16, seed=1)
    others = [replace(sample, weight=1 + i % 3) for i, sample in enumerate(others)]
    history = train(task, made(), config(scoring=scoring), validation=others, quiet=True)
    classes, weights = (np.array([float(getattr(sample, name)) for sample in others]) for name in ("target", "weight"))
    score = class_score(scoring, romae.predict_proba(task, others), classes.astype(int), weights)
    assert score == pytest.approx(history.best["score"], abs=1e-6)
    assert score == pytest.approx(max(record["score"] for record in history.records), abs=1e-6)


@pytest.mark.parametrize("per", ["sample", "token"])
@pytest.mark.parametrize("scoring", OF_NUMBERS)
def test_errors_of_numbers_are_in_the_units_of_the_data(scoring, per):
    random = np.random.default_rng(0)
    data = []
    for i in range(20):
        values = random.normal(size=(4, 1))
        target = 1000 + 50 * (values if per == "token" else values.mean(0))
        data.append(Sample(values, np.arange(4.0)[:, None], target=target, weight=1 + i % 2))
    torch.manual_seed(0)
    task = Regression(CONFIG, 1, per=per)
    scaling = romae.fit_scaling(data[:12], target=True)
    history = train(
        task, data[:12], config(scoring=scoring, epochs=2), validation=data[12:], scaling=scaling, quiet=True
    )
    predicted = np.concatenate([np.reshape(x, (-1, 1)) for x in romae.predict(task, data[12:])])
    truth = np.concatenate([np.asarray(sample.target).reshape(-1, 1) for sample in data[12:]])
    weights = np.repeat([float(sample.weight) for sample in data[12:]], 4 if per == "token" else 1)
    expected = number_score(scoring, predicted, truth.astype(float), weights)
    assert history.best["score"] == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_a_resumed_run_remembers_its_best_score(tmp_path):
    def run(folder, resume=False):
        torch.manual_seed(0)
        task = Classification(CONFIG, 2)
        settings = config(scoring="accuracy", epochs=4, lr=3e-2)
        history = train(task, made(), settings, validation=made(10, seed=2), out=folder, resume=resume, quiet=True)
        return task, history

    task, history = run(tmp_path / "run")
    shutil.rmtree(sorted((tmp_path / "run" / "states").glob("[0-9]*"))[-1])
    again, resumed = run(tmp_path / "run", resume=True)
    assert resumed.records == history.records
    assert_close(dict(again.state_dict()), dict(task.state_dict()), rtol=0, atol=0)


# What is refused


@pytest.mark.parametrize(
    ("task", "scoring", "parts"),
    [
        (lambda: Classification(CONFIG, 2), "auc", ["'auc'", "roc_auc", "r2", "f1_macro"]),
        (lambda: Classification(CONFIG, 2), "r2", ["'r2'", "roc_auc", "f1_macro"]),
        (lambda: Regression(CONFIG), "accuracy", ["'accuracy'", "neg_mean_squared_error"]),
        (lambda: Classification(CONFIG, 3), "roc_auc", ["two classes", "are 3", "'roc_auc_ovr'"]),
        (lambda: MaskedReconstruction(CONFIG), "r2", ["'r2'", "MaskedReconstruction", "leave"]),
    ],
)
def test_scores_that_say_nothing_of_a_task_are_refused(task, scoring, parts):
    with refused(ValueError, *parts):
        train(task(), made(), config(scoring=scoring), validation=made(), quiet=True)


def test_a_score_needs_validation_samples_that_it_can_tell_apart():
    with refused(ValueError, "scoring", "validation samples"):
        train(Classification(CONFIG, 2), made(), config(scoring="roc_auc"), quiet=True)
    for scoring in ("roc_auc", "roc_auc_ovr", "average_precision"):
        with refused(ValueError, scoring, "one class", "another score"):
            train(Classification(CONFIG, 2), made(), config(scoring=scoring), validation=made()[::2], quiet=True)
    light = [replace(sample, weight=float(sample.target == 0)) for sample in made()]
    with refused(ValueError, "roc_auc", "one class"):
        train(Classification(CONFIG, 2), made(), config(scoring="roc_auc"), validation=light, quiet=True)
    numbers = [replace(sample, target=float(sample.target)) for sample in made()]
    with refused(ValueError, "r2", "1 validation sample"):
        train(Regression(CONFIG), numbers, config(scoring="r2"), validation=numbers[:1], quiet=True)


@pytest.mark.parametrize(
    ("stage", "validated", "parts"),
    [
        (Classify(n_classes=2, train=config(scoring="r2")), True, ["'r2'", "roc_auc"]),
        (Classify(n_classes=2, train=config(scoring="roc_auc")), False, ["'classify'", "scoring", "validation"]),
        (Classify(n_classes=2, train=config(scoring="roc_auc"), weights="last"), True, ["scoring", "weights='best'"]),
        (Regress(train=config(scoring="accuracy")), True, ["'accuracy'", "r2"]),
        (Pretrain(train=config(scoring="accuracy")), True, ["'accuracy'", "MaskedReconstruction"]),
    ],
)
def test_what_is_wrong_with_the_scoring_of_a_stage_is_said_before_the_first_begins(stage, validated, parts):
    with refused(ValueError, *parts):
        run_stages(
            CONFIG, [Pretrain(train=config(epochs=10_000)), stage], made(), validation=made() if validated else None
        )
    with refused(ValueError, "one class"):
        last = Classify(n_classes=2, train=config(scoring="roc_auc"))
        run_stages(CONFIG, [Pretrain(train=config(epochs=10_000)), last], made(), validation=made()[::2])

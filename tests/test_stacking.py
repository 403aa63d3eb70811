"""Stacking: the better model counts more, few samples change little, and the whole is calibrated."""

import numpy as np
import pytest
from scipy.special import log_softmax, softmax

from romae.estimators import members, stacking
from romae.estimators.members import PENALTIES, Convolutions, _ridge
from romae.estimators.stacking import Fold, Stack, Views, fit_class_pool, fit_number_weights, fit_stack


def made(n: int, seed: int = 0) -> tuple[np.ndarray, list[np.ndarray]]:
    """Labels, and the log probabilities of a model that knows the true chances and of one that knows nothing."""
    random = np.random.default_rng(seed)
    logits = 2 * random.normal(size=(n, 3))
    labels = np.array([random.choice(3, p=chances) for chances in softmax(logits, axis=1)])
    return labels, [log_softmax(logits, axis=1), log_softmax(2 * random.normal(size=(n, 3)), axis=1)]


def log_loss(log_p: np.ndarray, labels: np.ndarray) -> float:
    return -log_p[np.arange(len(labels)), labels].mean()


def test_with_many_samples_the_model_that_knows_has_all_the_weight():
    labels, models = made(4000)
    pool = fit_class_pool(models, labels)
    np.testing.assert_allclose(pool.weights, [1, 0], atol=0.08)
    asked, others = made(4000, seed=1)
    assert log_loss(pool.log_probabilities(others), asked) < log_loss(others[0], asked) + 0.005


def test_with_hardly_a_sample_both_count_the_same():
    labels, models = made(1)
    np.testing.assert_allclose(fit_class_pool(models, labels).weights, [0.5, 0.5], atol=0.15)


def test_pooled_probabilities_are_frequencies_and_overconfidence_is_undone():
    labels, (truth, _) = made(3000)
    bold = log_softmax(3 * truth + np.array([1.0, 0.0, 0.0]), axis=1)
    pool = fit_class_pool([bold], labels)
    probabilities = np.exp(pool.log_probabilities([bold]))
    np.testing.assert_allclose(probabilities.mean(0), np.bincount(labels) / 3000, atol=0.005)
    np.testing.assert_allclose(probabilities, np.exp(truth), atol=0.05)


@pytest.mark.parametrize("n", [3, 2000])
def test_weights_of_numbers_are_parts_of_one_and_follow_the_errors(n):
    random = np.random.default_rng(0)
    targets = random.normal(size=(n, 2)) * [1, 1000]
    near, far = targets + 0.1 * random.normal(size=(n, 2)) * [1, 1000], np.zeros((n, 2))
    weights = fit_number_weights([near, far], targets)
    assert weights.sum() == pytest.approx(1) and (weights >= 0).all()
    assert (weights[0] > 0.95) if n > 1000 else (0.5 < weights[0] < 0.75)


def test_a_stack_is_fitted_on_some_samples_and_weighed_on_others():
    """Features that tell the class, and a network that guesses: the features get the weight."""
    random = np.random.default_rng(0)
    labels = np.arange(400) % 2
    features = random.normal(size=(400, 3)) + labels[:, None]
    guess = log_softmax(random.normal(size=(200, 2)), axis=1)
    fold = Fold(np.arange(200), np.arange(200, 400), guess)
    stack = fit_stack(Views(features), labels, [fold], n_classes=2, seed=0)
    assert stack.weights[0] < 0.2 and stack.weights[1:].sum() > 0.5
    answers = stack.answers(guess, Views(features[200:]))
    assert (
        answers.sum(1) == pytest.approx(np.ones(200)) and (answers.argmax(1) == labels[200:]).mean() > 0.78
    )  # 0.81 at best
    again = Stack.from_arrays({name: array.copy() for name, array in stack.arrays().items()})
    np.testing.assert_array_equal(again.answers(guess, Views(features[200:])), answers)


def test_without_validation_all_have_equal_parts():
    random = np.random.default_rng(0)
    features, targets = random.normal(size=(40, 2)), random.normal(size=(40, 1))
    stack = fit_stack(Views(features), targets, [], n_classes=None, seed=0)
    np.testing.assert_allclose(stack.weights, 1 / 3)
    members = [member.scores(features) for member in stack.members.values()]
    np.testing.assert_allclose(stack.answers(targets, Views(features)), (targets + members[0] + members[1]) / 3)


def test_what_every_fold_held_out_is_weighed_together():
    """Half of a network's answers are right and half are guesses: folds of both give it a part between."""
    random = np.random.default_rng(0)
    labels = np.arange(400) % 2
    features = random.normal(size=(400, 2))
    right, guess = np.log(np.where(np.eye(2)[labels] > 0, 0.9, 0.1)), log_softmax(random.normal(size=(400, 2)), axis=1)
    halves = np.arange(200), np.arange(200, 400)

    def weight(first: np.ndarray, second: np.ndarray) -> float:
        folds = [Fold(halves[1], halves[0], first[halves[0]]), Fold(halves[0], halves[1], second[halves[1]])]
        return fit_stack(Views(features), labels, folds, n_classes=2, seed=0).weights[0]

    assert weight(guess, guess) < weight(right, guess) < weight(right, right)


@pytest.mark.parametrize("n_classes", [3, None])
def test_convolutions_see_shapes_that_statistics_do_not(n_classes):
    """Waves of three periods: mean, spread and extremes are alike."""
    random = np.random.default_rng(0)
    labels = np.arange(90) % 3
    phase = random.uniform(0, 6.28, size=(90, 1))
    waves = np.sin(np.linspace(0, 20, 40) * (1 + labels[:, None]) + phase) + 0.3 * random.normal(size=(90, 40))
    grid = np.stack([waves, np.full_like(waves, np.nan)], axis=1)  # a column that was never measured changes nothing
    targets = labels if n_classes else labels.astype(float)
    member = Convolutions.fit(grid[:60], targets[:60], n_classes=n_classes, seed=0)
    scores = member.scores(grid[60:])
    wrong = scores.argmax(1) != labels[60:] if n_classes else np.abs(scores[:, 0] - labels[60:]) > 0.7
    assert wrong.mean() < 0.1
    again = Convolutions.from_arrays(member.arrays())
    np.testing.assert_array_equal(again.scores(grid[60:]), scores)


def test_leave_one_out_is_what_fitting_without_a_sample_says():
    from sklearn.linear_model import Ridge

    random = np.random.default_rng(0)
    for shape in ((12, 5), (9, 30)):
        features = random.normal(size=shape)
        features = (features - features.mean(0)) / features.std(0)
        targets = random.normal(size=(shape[0], 2)) + features[:, :2]
        ridge = _ridge(features, targets)
        wanted = min(
            (
                np.stack([_one_out(Ridge(alpha=penalty), features, targets, i) for i in range(len(targets))])
                for penalty in PENALTIES
            ),
            key=lambda left_out: ((left_out - targets) ** 2).mean(),
        )
        np.testing.assert_allclose(ridge.left_out, wanted, rtol=1e-6, atol=1e-8)


def _one_out(model, features: np.ndarray, targets: np.ndarray, i: int, weights: np.ndarray | None = None) -> np.ndarray:
    others = np.arange(len(targets)) != i
    return model.fit(features[others], targets[others], None if weights is None else weights[others]).predict(
        features[i : i + 1]
    )[0]


# Weights of samples


def test_leave_one_out_with_weights_is_what_fitting_without_a_sample_says():
    from sklearn.linear_model import Ridge

    random = np.random.default_rng(0)
    for shape in ((12, 5), (9, 30)):
        weights = random.uniform(0.2, 3, shape[0])
        features = random.normal(size=shape)
        mean = np.average(features, axis=0, weights=weights)
        features = (features - mean) / np.sqrt(np.average((features - mean) ** 2, axis=0, weights=weights))
        targets = random.normal(size=(shape[0], 2)) + features[:, :2]
        ridge = _ridge(features, targets, weights)
        by_penalty = {
            penalty: np.stack([_one_out(Ridge(alpha=penalty), features, targets, i, weights) for i in range(shape[0])])
            for penalty in PENALTIES
        }
        errors = {p: np.average((x - targets) ** 2, axis=0, weights=weights).mean() for p, x in by_penalty.items()}
        best = min(errors, key=errors.get)
        np.testing.assert_allclose(ridge.left_out, by_penalty[best], rtol=1e-6, atol=1e-8)
        whole = Ridge(alpha=best).fit(features, targets, weights)
        np.testing.assert_allclose(features @ ridge.weight + ridge.bias, whole.predict(features), rtol=1e-6, atol=1e-8)


TIMES = np.arange(60) % 4  # some not at all


def test_a_pool_of_classes_takes_weight_2_for_the_sample_twice():
    labels, models = made(60)
    by_weight = fit_class_pool(models, labels, TIMES.astype(float))
    by_number = fit_class_pool([np.repeat(one, TIMES, axis=0) for one in models], np.repeat(labels, TIMES))
    np.testing.assert_allclose(by_weight.weights, by_number.weights, atol=1e-4)
    np.testing.assert_allclose(by_weight.bias, by_number.bias, atol=1e-4)
    plain, ones = fit_class_pool(models, labels), fit_class_pool(models, labels, np.ones(60))
    np.testing.assert_array_equal(ones.weights, plain.weights)
    assert np.abs(plain.bias - by_weight.bias).max() > 0.01


def test_weights_of_numbers_take_weight_2_for_the_sample_twice():
    random = np.random.default_rng(0)
    targets = random.normal(size=(60, 2)) * [1, 1000]
    models = [targets + random.normal(size=(60, 2)) * [size, 1000 * size] for size in (0.5, 1.0, 0.7)]
    by_weight = fit_number_weights(models, targets, TIMES.astype(float))
    by_number = fit_number_weights([np.repeat(one, TIMES, axis=0) for one in models], np.repeat(targets, TIMES, axis=0))
    np.testing.assert_allclose(by_weight, by_number, rtol=1e-8)
    np.testing.assert_array_equal(fit_number_weights(models, targets, np.ones(60)), fit_number_weights(models, targets))
    assert np.abs(by_weight - fit_number_weights(models, targets)).max() > 1e-3


@pytest.mark.parametrize("n_classes", [2, None])
def test_a_stack_weighs_its_models_and_their_parts_by_the_weights_of_samples(n_classes, monkeypatch):
    """Half of the series are mislabelled and weigh next to nothing: the stack answers as that of the others."""
    monkeypatch.setattr(members, "ROUNDS", 20)
    random = np.random.default_rng(0)
    truth = np.arange(240) % 2
    features, wrong = random.normal(size=(240, 2)) + 2 * truth[:, None], np.arange(240) // 2 % 2 == 0
    labels = np.where(wrong, 1 - truth, truth)
    labels, guess = (
        (labels, log_softmax(random.normal(size=(120, 2)), axis=1))
        if n_classes
        else (
            labels[:, None].astype(float),
            random.normal(size=(120, 1)),
        )
    )
    folds = [Fold(np.arange(120), np.arange(120, 240), guess)]
    light = fit_stack(
        Views(features), labels, folds, n_classes=n_classes, seed=0, sample_weights=np.where(wrong, 1e-3, 2.0)
    )
    plain = fit_stack(Views(features), labels, folds, n_classes=n_classes, seed=0)

    def accuracy(stack: Stack) -> float:
        answers = stack.answers(np.zeros((240, n_classes or 1)) + 0.5, Views(features))
        return ((answers.argmax(1) if n_classes else answers[:, 0] > 0.5) == truth).mean()

    assert accuracy(light) > 0.85 > accuracy(plain)
    assert light.weights[1:].sum() > 0.9 and (n_classes is None or plain.weights[1:].sum() < 0.8)


def test_models_that_would_take_too_long_are_left_out_by_a_rule_and_not_by_a_clock(monkeypatch):
    random = np.random.default_rng(0)
    features, labels = random.normal(size=(60, 4)), np.arange(60) % 3
    views = stacking.Views(features)
    whole = stacking.fit_stack(views, labels, [], n_classes=3, seed=0)
    assert list(whole.members) == ["trees", "linear"]
    told = stacking.fitting_seconds(60, 3, 4, 0)
    monkeypatch.setattr(stacking, "LONGEST", (told["trees"] + told["linear"]) / 2)
    few = stacking.fit_stack(views, labels, [], n_classes=3, seed=0)
    assert list(few.members) == ["linear"] and few.weights.tolist() == [0.5, 0.5]
    network = np.log(np.full((60, 3), 1 / 3))
    assert few.answers(network, views).shape == (60, 3)
    again = stacking.Stack.from_arrays(few.arrays())
    np.testing.assert_array_equal(again.answers(network, views), few.answers(network, views))
    assert (
        stacking.fitting_seconds(1_600, 50, 1_800, 124)["trees"]
        > 60
        > stacking.fitting_seconds(5_000, 14, 100, 0)["trees"]
    )

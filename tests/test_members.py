"""Models on summary features: their arrays give what scikit-learn's own models give."""

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression

from romae.estimators import members
from romae.estimators.convolutions import fit_banks
from romae.estimators.members import Convolutions, Linear, Trees


@pytest.fixture(autouse=True)
def few_rounds(monkeypatch):
    monkeypatch.setattr(members, "ROUNDS", 8)


@pytest.fixture
def features() -> np.ndarray:
    random = np.random.default_rng(0)
    features = random.normal(size=(120, 4))
    features[random.uniform(size=(120, 4)) < 0.2] = np.nan
    features[:, 3] = np.nan  # never measured
    return features


def labels(features: np.ndarray, n_classes: int) -> np.ndarray:
    return np.digitize(np.nan_to_num(features[:, 0]), np.linspace(-0.7, 0.7, n_classes - 1))


def settings() -> dict:
    """Those of the trees; of features as few as here, a split sees all."""
    settings = {"learning_rate": members.RATE, "max_iter": members.ROUNDS, "max_leaf_nodes": members.LEAVES}
    return settings | {"l2_regularization": members.PENALTY, "early_stopping": False}


@pytest.mark.parametrize("n_classes", [2, 3])
def test_trees_give_the_probabilities_of_scikit_learn(features, n_classes):
    y = labels(features, n_classes)
    ours = Trees.fit(features, y, n_classes=n_classes, seed=0)
    model = HistGradientBoostingClassifier(random_state=0, **settings()).fit(
        np.nan_to_num(features, nan=np.nan)[:, :3], y
    )
    asked = np.concatenate([features, np.full((1, 4), np.nan), 100 * np.ones((1, 4))])
    probabilities = softmax(ours.scores(asked), axis=1)
    np.testing.assert_allclose(probabilities, model.predict_proba(asked[:, :3]), atol=1e-12)


def test_trees_regress_several_targets(features):
    targets = np.stack([np.nan_to_num(features[:, 0]), np.nan_to_num(features[:, 1]) ** 2], axis=1)
    ours = Trees.fit(features, targets, n_classes=None, seed=0)
    for column, predicted in zip(targets.T, ours.scores(features).T, strict=True):
        model = HistGradientBoostingRegressor(**settings())
        np.testing.assert_allclose(predicted, model.fit(features[:, :3], column).predict(features[:, :3]), atol=1e-12)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_linear_model_is_a_logistic_regression_whose_missing_features_take_their_mean(features, n_classes):
    y = labels(features, n_classes)
    ours = Linear.fit(features, y, n_classes=n_classes, seed=0)
    mean, spread = np.nanmean(features[:, :3], axis=0), np.nanstd(features[:, :3], axis=0)
    standard = np.nan_to_num((features[:, :3] - mean) / spread)
    candidates = [LogisticRegression(C=strength, max_iter=200).fit(standard, y) for strength in members.STRENGTHS]
    ours_proba = softmax(ours.scores(features), axis=1)
    distances = [np.abs(model.predict_proba(standard) - ours_proba).max() for model in candidates]
    assert min(distances) < 1e-6
    assert (ours.scores(np.full((1, 4), np.nan)) == ours.bias).all()


def test_what_was_learned_travels_as_arrays(features):
    for fitted in (Trees.fit, Linear.fit):
        member = fitted(features, labels(features, 3), n_classes=3, seed=0)
        again = type(member).from_arrays({name: array.copy() for name, array in member.arrays().items()})
        np.testing.assert_array_equal(again.scores(features), member.scores(features))


def test_an_outlier_among_the_features_decides_nothing(features):
    linear = Linear.fit(features, labels(features, 2), n_classes=2, seed=0)
    far, farther = np.zeros((1, 4)), np.zeros((1, 4))
    far[0, 0], farther[0, 0] = 1e3, 1e9
    np.testing.assert_array_equal(linear.scores(far), linear.scores(farther))


# Weights


TIMES = np.arange(120) % 3 + 1


def once_and_again(x: np.ndarray) -> np.ndarray:
    return np.repeat(x, TIMES, axis=0)


@pytest.mark.parametrize("n_classes", [2, 3, None])
def test_a_linear_model_takes_weight_2_for_the_sample_twice(features, n_classes, monkeypatch):
    monkeypatch.setattr(members, "STRENGTHS", (0.1,) * 3)  # cross-validation would tear copies apart
    monkeypatch.setattr(members, "PENALTIES", (3.0,) * 2)
    y = labels(features, n_classes) if n_classes else np.nan_to_num(features[:, :1]) ** 2
    by_weight = Linear.fit(features, y, n_classes=n_classes, seed=0, weights=TIMES.astype(float))
    by_number = Linear.fit(once_and_again(features), once_and_again(y), n_classes=n_classes, seed=0)
    np.testing.assert_allclose(by_weight.scores(features), by_number.scores(features), rtol=1e-3, atol=1e-4)
    plain = Linear.fit(features, y, n_classes=n_classes, seed=0)
    assert np.abs(by_weight.scores(features) - plain.scores(features)).max() > 0.01


@pytest.mark.parametrize("n_classes", [2, 3, None])
def test_trees_are_nearly_those_of_repeated_samples(features, n_classes):
    """Leaves have a least number of samples, whatever these weigh."""
    heavy = TIMES**3.0
    y = labels(features, n_classes) if n_classes else np.nan_to_num(features[:, :1])
    fitted = {"by weight": Trees.fit(features, y, n_classes=n_classes, seed=0, weights=heavy)}
    fitted["plain"] = Trees.fit(features, y, n_classes=n_classes, seed=0)
    again = np.repeat(np.arange(120), heavy.astype(int))
    repeated = Trees.fit(features[again], y[again], n_classes=n_classes, seed=0).scores(features)
    distance = {name: np.abs(trees.scores(features) - repeated).mean() for name, trees in fitted.items()}
    assert distance["by weight"] < 0.7 * distance["plain"]


@pytest.mark.parametrize("n_classes", [3, None])
def test_convolutions_take_weight_2_for_the_sample_twice(n_classes, monkeypatch):
    random = np.random.default_rng(0)
    grid = random.normal(size=(120, 2, 20))
    grid[:, 1, :5] = np.nan
    y = np.arange(120) % 3 if n_classes else random.normal(size=(120, 1))
    banks = fit_banks(members._as_tensor(grid, np.zeros(2), np.ones(2)), 168, np.random.default_rng(0))
    monkeypatch.setattr(members, "fit_banks", lambda *_: banks)  # which kernels there are is drawn sample by sample
    monkeypatch.setattr(members, "PENALTIES", (10.0,))
    monkeypatch.setattr(members, "_sharpness", lambda *_: 1.0)  # judged by leaving samples out, and not copies of them
    by_weight = Convolutions.fit(grid, y, n_classes=n_classes, seed=0, weights=TIMES.astype(float))
    by_number = Convolutions.fit(once_and_again(grid), once_and_again(y), n_classes=n_classes, seed=0)
    np.testing.assert_allclose(by_weight.scores(grid), by_number.scores(grid), rtol=1e-6, atol=1e-8)


def test_sharpness_takes_weight_2_for_the_sample_twice():
    random = np.random.default_rng(0)
    y, scores = np.arange(120) % 3, random.normal(size=(120, 3))
    scores[np.arange(120), y] += 2.0 * (TIMES == 3)
    by_weight = members._sharpness(scores, y, TIMES.astype(float))
    assert by_weight == pytest.approx(members._sharpness(once_and_again(scores), once_and_again(y)), rel=1e-4)
    assert by_weight != pytest.approx(members._sharpness(scores, y), rel=1e-2)


@pytest.mark.parametrize("n_classes", [2, None])
def test_weights_of_one_are_none(features, n_classes):
    y = labels(features, n_classes) if n_classes else np.nan_to_num(features[:, :1])
    for member in (Trees, Linear):
        plain = member.fit(features, y, n_classes=n_classes, seed=0)
        ones = member.fit(features, y, n_classes=n_classes, seed=0, weights=np.ones(120))
        np.testing.assert_allclose(ones.scores(features), plain.scores(features), rtol=1e-6, atol=1e-8)

"""Models on summary features: their arrays give what scikit-learn's own models give."""

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression

from romae.estimators import members
from romae.estimators.members import Linear, Trees


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


@pytest.mark.parametrize("n_classes", [2, 3])
def test_trees_give_the_probabilities_of_scikit_learn(features, n_classes):
    y = labels(features, n_classes)
    ours = Trees.fit(features, y, n_classes=n_classes, seed=0)
    model = HistGradientBoostingClassifier(
        learning_rate=members.RATE, max_iter=members.ROUNDS, random_state=0, early_stopping=False
    ).fit(np.nan_to_num(features, nan=np.nan)[:, :3], y)
    asked = np.concatenate([features, np.full((1, 4), np.nan), 100 * np.ones((1, 4))])
    probabilities = softmax(ours.scores(asked), axis=1)
    np.testing.assert_allclose(probabilities, model.predict_proba(asked[:, :3]), atol=1e-12)


def test_trees_regress_several_targets(features):
    targets = np.stack([np.nan_to_num(features[:, 0]), np.nan_to_num(features[:, 1]) ** 2], axis=1)
    ours = Trees.fit(features, targets, n_classes=None, seed=0)
    for column, predicted in zip(targets.T, ours.scores(features).T, strict=True):
        model = HistGradientBoostingRegressor(learning_rate=members.RATE, max_iter=members.ROUNDS, early_stopping=False)
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

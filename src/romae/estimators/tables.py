"""A saved classifier or regressor as a function from a table to a table, as `Predictor` is one of a checkpoint."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from romae.checkpoints.native import read_json
from romae.data.export import to_sample_table
from romae.data.schema import SampleSet, Schema
from romae.data.skipping import Skipped
from romae.estimators.saved import DESCRIPTION
from romae.estimators.supervised import RoMAEClassifier, RoMAERegressor
from romae.inference.predictor import Answer, Predictor, stamp_of
from romae.inference.tables import PredictConfig, read_to_predict
from romae.model.tasks import Task
from romae.training.config import chosen_device

if TYPE_CHECKING:
    import pandas as pd

PREDICTING: Mapping[str, type[RoMAEClassifier] | type[RoMAERegressor]] = {
    "RoMAEClassifier": RoMAEClassifier,
    "RoMAERegressor": RoMAERegressor,
}


class EstimatorPredictor(Predictor):
    """A callable from an Arrow table of measurements to an Arrow table of what a saved estimator predicts.

    The answers are those of all its networks and of the simpler models beside them, as in Python.

    Parameters
    ----------
    folder : str or Path
        The folder that `RoMAEClassifier.save` or `RoMAERegressor.save` wrote.
    config : PredictConfig, optional
        The settings; by default those that follow.
    **settings
        Settings by name, as of `Predictor`.

    Raises
    ------
    ValueError
        If the folder holds another estimator, or there is no such setting.

    Examples
    --------
    >>> import pandas as pd
    >>> import romae
    >>> from romae.estimators.tables import EstimatorPredictor
    >>> table = pd.DataFrame({"star": [1, 1, 2, 2], "day": [0, 1, 0, 1], "flux": [0.0, 1.0, 3.0, 2.0]})
    >>> columns = {"id": "star", "time": "day", "values": "flux"}
    >>> classifier = romae.RoMAEClassifier(pretrain_epochs=1, epochs=1, columns=columns, random_state=0)
    >>> classifier.fit(table, {1: "up", 2: "down"}).save("classifier")
    >>> EstimatorPredictor("classifier", device="cpu")(table).column_names
    ['star', 'label', 'probability_down', 'probability_up']
    """

    def __init__(self, folder: str | Path, *, config: PredictConfig | None = None, **settings: Any) -> None:
        super().__init__(folder, "predict", config=config, **settings)

    def _require_model(self, model: str | Path, answer: Answer) -> None:
        description = read_json(Path(model) / DESCRIPTION)
        name = description.get("estimator") if isinstance(description, dict) else None
        if name not in PREDICTING:
            raise ValueError(
                f"{model} holds a {name}, which predicts no labels; ask it with `romae interpolate`, `forecast` or "
                "`embed`, or save a RoMAEClassifier or RoMAERegressor"
            )

    @property
    def estimator(self) -> RoMAEClassifier | RoMAERegressor:
        """The estimator, which each process loads once."""
        return _loaded(self.model, self.config.device, stamp_of(self.model))

    @property
    def tasks(self) -> list[Task]:
        """Its networks."""
        return list(self.estimator.tasks_)

    def _answered(self, table: Any, skipped: list[Skipped] | None) -> "pd.DataFrame":
        assert isinstance(self.config, PredictConfig)
        estimator = self.estimator
        _, samples, schema = read_to_predict(self.config, table, self.task, skipped)
        if isinstance(estimator, RoMAERegressor):
            return _numbers(estimator, samples, schema, self.config)
        if self.config.spread.is_asked:
            raise ValueError("a classifier predicts probabilities; leave --interval and --quantiles out")
        names = tuple(estimator.classes_.tolist())
        named: dict[str, Any] = {"labels": names} if estimator.is_multilabel_ else {"classes": names}
        return to_sample_table(samples, estimator.predict_proba(samples), replace(schema, **named))


def _numbers(estimator: RoMAERegressor, samples: SampleSet, schema: Schema, config: PredictConfig) -> "pd.DataFrame":
    """Numbers and, where they are asked for, deviations and intervals in the columns that distributions have."""
    if config.quantiles is not None:
        raise ValueError("a regressor gives intervals and no quantiles; ask for --interval 0.9 instead of --quantiles")
    label = schema.label or "label"
    names = [label] if estimator.n_outputs_ == 1 else [f"{label}_{i}" for i in range(estimator.n_outputs_)]
    if config.interval is None:
        return to_sample_table(samples, estimator.predict(samples), schema, columns=names)
    means, deviations = estimator.predict(samples, return_std=True)
    lower, upper = estimator.predict_interval(samples, config.interval)
    parts = {"": means, "_std": deviations, "_lower": lower, "_upper": upper}
    columns = [f"{name}{ending}" for name in names for ending in parts]
    numbers = np.stack([part.reshape(len(samples), -1) for part in parts.values()], axis=-1)
    return to_sample_table(samples, numbers.reshape(len(samples), -1), schema, columns=columns)


@lru_cache(maxsize=4)
def _loaded(folder: str, device: str, stamp: int) -> RoMAEClassifier | RoMAERegressor:
    estimator = PREDICTING[read_json(Path(folder) / DESCRIPTION)["estimator"]].load(folder)
    for task in estimator.tasks_:
        task.to(chosen_device(device))
    return estimator

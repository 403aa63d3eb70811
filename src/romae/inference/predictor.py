"""A model as a function from an Arrow table to an Arrow table, for engines that hand such a function their data.

It can be pickled: what travels is where the model lies and what is asked of it, and each process loads the model once.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import lru_cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from romae.checkpoints.native import ESTIMATOR_FILES
from romae.data.skipping import Skipped
from romae.inference.tables import (
    AnomalyConfig,
    EmbedConfig,
    ExplainConfig,
    ForecastConfig,
    InferenceConfig,
    InterpolateConfig,
    PredictConfig,
    Read,
    anomaly_table,
    embed_table,
    explain_table,
    forecast_table,
    interpolate_table,
    predict_table,
)
from romae.model.tasks import Task
from romae.training.config import chosen_device
from romae.training.tables import Columns, load_model

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

Answer = Literal["predict", "embed", "interpolate", "forecast", "anomaly", "explain"]
CONFIGS: Mapping[str, type[InferenceConfig]] = MappingProxyType(
    {
        "predict": PredictConfig,
        "embed": EmbedConfig,
        "interpolate": InterpolateConfig,
        "forecast": ForecastConfig,
        "anomaly": AnomalyConfig,
        "explain": ExplainConfig,
    }
)
FUNCTIONS: Mapping[str, Callable[..., "pd.DataFrame"]] = MappingProxyType(
    {
        "predict": predict_table,
        "embed": embed_table,
        "interpolate": interpolate_table,
        "forecast": forecast_table,
        "anomaly": anomaly_table,
        "explain": explain_table,
    }
)


class Predictor:
    """A callable from an Arrow table of measurements to an Arrow table of answers.

    It can be pickled and sent to other processes: the model is loaded there, once in each of them, when the first table
    comes. Engines such as Ray Data (`map_batches`) and Spark (`mapInArrow`) call it for one part of their data after
    another. A part must hold whole series.

    Parameters
    ----------
    model : str or Path
        Where the model lies, a folder that every process sees, or its name on the Hub.
    answer : {"predict", "embed", "interpolate", "forecast", "anomaly", "explain"}, default "predict"
        What is asked: the label of each id, a vector of it, values on a grid of times, values after its last time, how
        surprising each measurement is, or what it contributes to the label.
    at : str, optional
        For "interpolate", the grid as `start:stop:n`, for every id and channel.
    until : float or str, optional
        For "forecast", how far: a moment, or a length of time after the last such as "+24h", as in `romae.forecast`.
    config : InferenceConfig, optional
        The settings; by default those that follow.
    **settings
        Settings by name, such as `device="cuda"`, `columns={"id": "star"}`, `interval=0.9` or `pooling="layers"`; see
        `romae predict --help`.

    Raises
    ------
    ValueError
        If there is no such answer or setting.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from romae.inference.predictor import Predictor
    >>> predictor = Predictor("models/icu-mortality", device="cpu")  # doctest: +SKIP
    >>> table = pa.table({"record": [1, 1], "minutes": [0, 60], "variable": ["HR", "HR"], "value": [80.0, 92.0]})
    >>> predictor(table).column_names  # doctest: +SKIP
    ['record', 'outcome', 'probability_survived', 'probability_died']
    """

    def __init__(
        self,
        model: str | Path,
        answer: Answer = "predict",
        *,
        at: str | None = None,
        until: float | str | None = None,
        config: InferenceConfig | None = None,
        **settings: Any,
    ) -> None:
        if answer not in FUNCTIONS:
            raise ValueError(f"an answer is one of {', '.join(FUNCTIONS)}, not {answer!r}")
        if (answer == "interpolate") != (at is not None):
            raise ValueError("at= is the grid start:stop:n of 'interpolate', which needs it, and of nothing else")
        if (answer == "forecast") != (until is not None):
            raise ValueError("until= is how far to 'forecast', which needs it, and of nothing else")
        if config is not None and settings:
            raise ValueError(f"give settings in config= or by name, not both: {', '.join(settings)}")
        self._require_model(model, answer)
        self.model, self.answer, self.at, self.until = str(model), answer, at, until
        self.config = _configured(answer, settings) if config is None else config

    def _require_model(self, model: str | Path, answer: Answer) -> None:
        """Refuse a folder that this cannot answer for."""
        if answer == "predict" and Path(model, ESTIMATOR_FILES[0]).is_file():
            raise ValueError(
                f"{model} holds an estimator, which answers with all of its models; ask it with "
                "romae.estimators.tables.EstimatorPredictor"
            )

    def __repr__(self) -> str:
        return f"Predictor({self.model!r}, {self.answer!r})"

    def __call__(self, table: Any) -> "pa.Table":
        """Answer for a table.

        Parameters
        ----------
        table : pyarrow.Table or RecordBatch
            Measurements, or anything else that `from_table` reads.

        Returns
        -------
        pyarrow.Table
            What `romae predict`, `embed`, `interpolate`, `anomaly` or `explain` would write for it.

        Raises
        ------
        ValueError
            If the table does not fit the model.
        """
        import pyarrow as pa

        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        return pa.Table.from_pandas(self.frame(table), preserve_index=False).replace_schema_metadata(None)

    def read(self, table: Any) -> Read:
        """Read a table for `frame`, such as in a thread, while another is answered.

        Parameters
        ----------
        table : table
            Measurements.

        Returns
        -------
        Read
            For `frame`, which raises the error, if there was one.
        """
        return Read.of(self.config, table, self.task)

    def frame(self, table: Any, skipped: list[Skipped] | None = None) -> "pd.DataFrame":
        """The same as a pandas table.

        Parameters
        ----------
        table : table or Read
            Measurements.
        skipped : list, optional
            What is left out with `on_error="skip"` is added to it.

        Returns
        -------
        pandas.DataFrame
            The answers.
        """
        return self._answered(table, skipped)

    def _answered(self, table: Any, skipped: list[Skipped] | None) -> "pd.DataFrame":
        ask = FUNCTIONS[self.answer]
        if self.answer == "interpolate":
            ask = partial(ask, at=self.at)
        if self.answer == "forecast":
            ask = partial(ask, until=self.until)
        return ask(self.config, table, self.task, skipped=skipped)

    @property
    def task(self) -> Task:
        """The model, which each process loads once."""
        return self.tasks[0]

    @property
    def tasks(self) -> list[Task]:
        """The networks whose answers these are."""
        return [_loaded(self.model, self.config.device, stamp_of(self.model))]


def _configured(answer: Answer, settings: dict[str, Any]) -> InferenceConfig:
    config_type = CONFIGS[answer]
    known = [field.name for field in fields(config_type)]
    if unknown := [name for name in settings if name not in known]:
        raise ValueError(f"{answer} has no setting {unknown[0]!r}; there are {', '.join(known)}")
    if isinstance(settings.get("columns"), Mapping):
        settings = settings | {"columns": Columns(**settings["columns"])}
    return config_type(**settings)


def stamp_of(model: str) -> int:
    """What changes when the files of a model do."""
    folder = Path(model)
    return max((path.stat().st_mtime_ns for path in folder.rglob("*")), default=0) if folder.is_dir() else 0


@lru_cache(maxsize=4)
def _loaded(model: str, device: str, stamp: int) -> Task:
    return load_model(model).to(chosen_device(device))

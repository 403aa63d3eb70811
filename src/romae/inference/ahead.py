"""Forecasts of a table by the model that needs no training."""

import warnings
from pathlib import Path
from typing import Any

from romae.data.queries import channel_numbers
from romae.inference.filling import UNSEEN, Answered, model_for, tell, times_and_channels
from romae.inference.forecasts import forecast
from romae.inference.own_tables import OwnTable
from romae.inference.self_check import LEVEL
from romae.inference.tables import ForecastConfig
from romae.model.tasks import Task


def ahead_table(config: ForecastConfig, data: Any, model: str | Path | Task | None = None, *, until: Any) -> Answered:
    """What comes after the last row of each series.

    Parameters
    ----------
    config : ForecastConfig
        The settings; the interval has a probability of 0.9 unless they say another.
    data : table, str or Path
        What `from_table` reads, with or without ids.
    model : str, Path or Task, optional
        A model that needs no training; by default ours.
    until : float, str, date or duration
        As in `romae.forecast`.

    Returns
    -------
    Answered
        Its table has a row for each time, or for each time and channel of a long table, with the median and the ends of
        the interval.

    Raises
    ------
    ValueError
        If a column is not there, or nothing was measured.
    """
    task, ask, _ = model_for(model, config)
    table = OwnTable.read(data, config.columns)
    samples = table.samples()
    schema = samples.schema
    has_axis = schema.channel is not None
    names = schema.channels if has_axis else schema.values
    numbers = list(range(len(names))) if config.channels is None else channel_numbers(config.channels, names)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", UNSEEN)
        ahead = forecast(
            task, samples, until=until, step=config.step, channels=numbers, returns="distribution", **config.how
        )
    times, columns = [one.times for one in ahead], [one.values for one in ahead]
    positions = [times_and_channels(x, numbers if has_axis else None) for x in times]
    told = [x.reshape((len(at), -1)) if len(at) else x for x, at in zip(columns, positions, strict=True)]
    level = LEVEL if config.interval is None else config.interval
    chosen = [names[i] for i in numbers]
    frame, n = tell(table, samples, times, columns, chosen, level, config.quantiles or ())
    lacking = sum(x.shape[0] * x.shape[1] for x in columns) - n
    notes = (
        (f"{lacking:,} numbers are missing: in their series nothing was measured of their channel",) if lacking else ()
    )
    return Answered(frame, samples, ask, positions, told, None, notes, n)

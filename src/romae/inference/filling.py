"""A table whose empty cells are filled, with an interval beside each.

Shapes: r rows, t cells, q positions that are asked of a sample, c columns of answers.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float64, Int64

from romae.data.columns import require_distinct
from romae.data.export import to_table
from romae.data.frames import text_of_csv, written_names
from romae.data.queries import MOST_TIMES, channel_numbers, grid_of_times
from romae.data.schema import SampleSet, Schema
from romae.data.uncertainty import Uncertain, require_level
from romae.inference import zero
from romae.inference.distributions import Distribution, joined
from romae.inference.own_tables import EmptyCells, OwnTable, is_csv
from romae.inference.self_check import LEVEL, Ask, interpolating
from romae.inference.tables import InferenceConfig
from romae.inference.zero import is_in_own_units
from romae.model.tasks import MaskedReconstruction, Task
from romae.training.config import chosen_device
from romae.training.tables import load_model, require_columns

if TYPE_CHECKING:
    import pandas as pd

DIGITS = 7  # of an answer; models compute in single precision
UNSEEN = "in .* of .* series a channel that is asked for has no visible value"


@dataclass(frozen=True, slots=True, kw_only=True)
class FillConfig(InferenceConfig):
    """How to fill a table: `interval` is the probability of the interval beside each cell that is filled.

    `channels` are those of a grid, by name or number; all by default.
    """

    interval: float = LEVEL
    channels: tuple[str | int, ...] | None = None

    def __post_init__(self) -> None:
        InferenceConfig.__post_init__(self)
        if self.on_error != "raise":
            raise ValueError("a table is filled as a whole, so that nothing is skipped; leave on_error out")
        object.__setattr__(self, "interval", require_level(self.interval))


@dataclass(frozen=True, eq=False)
class Answered:
    """What a model was asked about a table, and what it says.

    Parameters
    ----------
    table : pandas.DataFrame
        The answers as a table.
    samples : SampleSet
        What was measured.
    ask : callable
        The model, to ask it for more.
    positions : list of arrays [q, d]
        What was asked of each sample.
    told : list of Distribution or of arrays [q, c]
        What was said.
    columns : list of arrays [q], optional
        Of models that answer for several columns at once, the one that was asked for.
    notes : tuple of str
        What there is to say of it, in sentences.
    n_filled : int
        How many numbers there are.
    is_trained : bool, default False
        Whether the model was trained on data, perhaps these.
    """

    table: "pd.DataFrame"
    samples: SampleSet
    ask: Ask
    positions: list[Float64[np.ndarray, "_ d"]]
    told: Sequence[Any]
    columns: list[Int64[np.ndarray, "_"]] | None
    notes: tuple[str, ...]
    n_filled: int
    is_trained: bool = False


def model_for(
    model: str | Path | Task | None, config: InferenceConfig
) -> tuple[MaskedReconstruction, Ask, Schema | None]:
    """A model that fills tables, how it is asked, and the names that its data had; by default one without training."""
    task = model if isinstance(model, Task) else zero.zero_model() if model is None else load_model(model)
    if not isinstance(task, MaskedReconstruction):
        raise ValueError(
            f"the model in {model} is a {type(task).__name__}, which does not know what was measured; fill with one of "
            "romae pretrain, or without --model"
        )
    task = task.to(chosen_device(config.device))
    schema = None if is_in_own_units(task) else task.schema or Schema()
    return task, interpolating(task, **config.how), schema


def fill_table(
    config: FillConfig,
    data: Any,
    model: str | Path | Task | None = None,
    *,
    at: str | None = None,
    every: str | None = None,
    verbatim: bool = False,
) -> Answered:
    """Fill the empty cells of a table, or a grid of times.

    Parameters
    ----------
    config : FillConfig
        The settings.
    data : table, str or Path
        What `from_table` reads.
    model : str, Path or Task, optional
        A trained model; by default the one that needs no training.
    at : str, optional
        An even grid `start:stop:n` to answer for, instead of empty cells.
    every : str, optional
        The step of a grid between the first and the last time of each series, instead.
    verbatim : bool, default False
        Whether cells of a CSV file that are not filled come back as the text that they were.

    Returns
    -------
    Answered
        Its table has all rows and columns of the data in their order; beside each column of values, such as `flux`,
        `flux_filled` says where it was empty, and `flux_lower` and `flux_upper` have the interval there. Or, for a
        grid, a row for each time.

    Raises
    ------
    ValueError
        If a column is not there, nothing was measured, or no cell is empty.
    """
    if at is not None and every is not None:
        raise ValueError("a grid is given by --at or by --every, one of them")
    task, ask, model_schema = model_for(model, config)
    table = OwnTable.read(data, config.columns, model_schema)
    if model_schema is not None:
        require_columns(task, table.schema, "the model")
    samples, is_trained = table.samples(), model_schema is not None
    if at is not None or every is not None:
        return _on_a_grid(config, table, samples, ask, at, every)
    if config.channels is not None:
        raise ValueError("--channels are those of a grid; name the columns to fill with --value")
    cells = table.empty_cells(samples)
    if cells.n_empty == 0:
        raise ValueError(
            f"no cell of {', '.join(table.values)} is empty, so that there is nothing to fill; ask for other times "
            "with --at 0:10:101 or --every 1h, or name other columns with --value"
        )
    told = _told(ask, samples, cells.positions)
    answers = _columns(told, cells, config.interval)
    is_known = np.isfinite(answers[0])
    filled = np.zeros(table.numbers.shape, dtype=bool)
    filled[cells.rows[is_known], cells.columns[is_known]] = True
    frame = _with_answers(table, data, cells, answers, filled, verbatim=verbatim)
    notes = _notes(table, samples, cells, is_known)
    columns = cells.columns_by_sample if samples.schema.channel is None else None
    return Answered(frame, samples, ask, cells.positions, told, columns, notes, int(filled.sum()), is_trained)


def _told(ask: Ask, samples: SampleSet, positions: list[Float64[np.ndarray, "_ d"]]) -> list[Any]:
    """The answers for each sample; of one of which nothing is asked there are none."""
    numbers = [i for i, x in enumerate(positions) if len(x)]
    told: list[Any] = [np.zeros((0, 1))] * len(samples)
    if not numbers:
        return told
    some = samples if len(numbers) == len(samples) else samples[np.array(numbers)]  # type: ignore[call-overload]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", UNSEEN)  # it is said of the cells
        answers = ask(some, [positions[i] for i in numbers])
    for i, answer in zip(numbers, answers, strict=True):
        told[i] = answer
    return told


def _columns(told: Sequence[Any], cells: EmptyCells, level: float) -> Float64[np.ndarray, "k t"]:
    """The value of each cell and, of distributions, the ends of its interval."""
    parts = []
    for answer, columns in zip(told, cells.columns_by_sample, strict=True):
        if len(columns):
            n_columns = answer.shape[1]
            parts.append(answer[np.arange(len(columns)), columns if n_columns > 1 else np.zeros_like(columns)])
    if not parts:
        return np.zeros((1, 0))
    return told_numbers(parts, level)[:, cells.order]


def told_numbers(parts: Sequence[Any], level: float) -> Float64[np.ndarray, "k t"]:
    """The median and the ends of the interval of distributions end to end, or the numbers of arrays."""
    if not isinstance(parts[0], Uncertain):
        return _rounded(np.concatenate([np.ravel(x) for x in parts])[None])
    whole = joined([part for part in parts if isinstance(part, Distribution)])
    return _rounded(np.stack([whole.median(), *whole.interval(level)]))


def _rounded(x: Float64[np.ndarray, "k t"]) -> Float64[np.ndarray, "k t"]:
    """Numbers of as many digits as they are known to, which a CSV file then has as well."""
    size = np.floor(np.log10(np.abs(np.where(np.isfinite(x) & (x != 0), x, 1.0))))
    factor = 10.0 ** (DIGITS - 1 - size)
    rounded = np.where(np.isfinite(factor) & (factor > 0), np.rint(x * factor) / factor, x)
    return np.where(np.isfinite(rounded), rounded, x)


def _with_answers(
    table: OwnTable,
    data: Any,
    cells: EmptyCells,
    answers: Float64[np.ndarray, "k t"],
    filled: Any,
    *,
    verbatim: bool,
) -> "pd.DataFrame":
    """All rows and columns of the table, the cells that were filled, and what there is to say of them behind it."""
    is_text = verbatim and is_csv(data)
    frame = text_of_csv(data) if is_text else table.frame.copy(deep=False)
    if not is_text and not table.has_ids:
        frame = frame.drop(columns=table.schema.id)
    written = written_names(data) if is_text else {}
    names = {name: written.get(name, name) for name in table.values}
    endings = ("_filled",) if len(answers) == 1 else ("_filled", "_lower", "_upper")
    added = [f"{name}{ending}" for name in names.values() for ending in endings]
    require_distinct([*frame.columns, *added], "the columns of the filled table", "rename those of the data")
    for number, (name, written_name) in enumerate(names.items()):
        here = cells.columns == number
        rows, is_filled = cells.rows[here], filled[:, number]
        values = table.numbers[:, number].copy()
        values[rows] = answers[0][here]
        if is_text:
            column = frame[written_name].to_numpy(dtype=object, copy=True)
            column[is_filled] = [repr(x) for x in values[is_filled].tolist()]
            frame[written_name] = column
        elif is_filled.any():
            frame[name] = values
    for number, written_name in enumerate(names.values()):
        here = cells.columns == number
        frame[f"{written_name}_filled"] = filled[:, number]
        for ending, ends in zip(endings[1:], answers[1:], strict=True):
            column = np.full(len(frame), np.nan)
            column[cells.rows[here]] = ends[here]
            frame[f"{written_name}{ending}"] = column
    return frame


def _notes(table: OwnTable, samples: SampleSet, cells: EmptyCells, is_known: Any) -> tuple[str, ...]:
    """Which cells stay empty, and why."""
    notes = []
    is_empty = np.isnan(table.numbers)
    if n_placeless := int(is_empty[~table.is_placed].sum()):
        notes.append(
            f"{n_placeless:,} {_stay(n_placeless)} empty, in rows that do not say of what series or time they are"
        )
    n_unasked = int(is_empty[table.is_placed].sum()) - len(cells.rows) + int((~is_known).sum())
    if n_unasked:
        names = sorted({table.values[i] for i in cells.columns[~is_known]} if not table.is_long else set())
        which = f" in {', '.join(map(str, names[:5]))}" if names else ""
        why = "in their series nothing was measured of their channel, so that its level is not known there"
        notes.append(f"{n_unasked:,} {_stay(n_unasked)} empty{which}: {why}")
    return tuple(notes)


def _stay(n: int) -> str:
    return "cell stays" if n == 1 else "cells stay"


def _on_a_grid(
    config: FillConfig, table: OwnTable, samples: SampleSet, ask: Ask, at: str | None, every: str | None
) -> Answered:
    """Answers at even times, a row for each time, or for each time and channel of a long table."""
    schema = samples.schema
    has_axis = schema.channel is not None
    names: Sequence[Any] = schema.channels if has_axis else schema.values
    numbers = list(range(len(names))) if config.channels is None else channel_numbers(config.channels, names)
    if schema.positions:
        raise ValueError(f"a grid of times leaves the positions {list(schema.positions)} open; fill empty cells")
    if at is not None:
        grid = grid_of_times(at, replace(schema, channel=None))[:, 0]
        times = [grid] * len(samples)
    else:
        times = even_times(samples, str(every))
    positions = [times_and_channels(x, numbers if has_axis else None) for x in times]
    told = _told(ask, samples, positions)
    columns = [by_columns(x, len(numbers), numbers if not has_axis else None) for x in told]
    frame, n = tell(table, samples, times, columns, [names[i] for i in numbers], config.interval)
    return Answered(frame, samples, ask, positions, told, None, (), n, table.model_schema is not None)


def times_and_channels(times: Float64[np.ndarray, "q"], channels: Sequence[int] | None) -> Float64[np.ndarray, "n d"]:
    """The positions of times, of every channel at each where channels are an axis."""
    if channels is None:
        return times[:, None]
    return np.stack([np.repeat(times, len(channels)), np.tile(np.array(channels, float), len(times))], axis=1)


def by_columns(answer: Any, n: int, columns: Sequence[int] | None) -> Any:
    """Answers [q, n] with a column for each channel."""
    if columns is not None and answer.shape[1] > 1:
        return answer[:, np.array(columns)]
    return answer.reshape((answer.shape[0] // n, n)) if answer.shape[0] else np.zeros((0, n))


def tell(
    table: OwnTable,
    samples: SampleSet,
    times: Sequence[Float64[np.ndarray, "_"]],
    answers: Sequence[Any],
    names: Sequence[Any],
    level: float,
    quantiles: Sequence[float] = (),
) -> tuple["pd.DataFrame", int]:
    """A table in the form of the one that was asked about, wide or long, and how many numbers it has.

    Rows of which nothing is known are left out.
    """
    parts = [x for x in answers if len(x)]
    if not parts:
        raise ValueError("there are no times to answer for")
    numbers = told_numbers(parts, level)
    endings = [""] if len(numbers) == 1 else ["", "_lower", "_upper"]
    if quantiles and len(numbers) > 1:
        whole = joined(parts)
        numbers = np.concatenate([numbers, _rounded(np.stack([whole.quantile(one) for one in quantiles]))])
        endings += [f"_q{one:g}" for one in quantiles]
    sizes = [len(x) * len(names) for x in answers]
    schema = samples.schema
    by_sample = np.split(numbers, np.cumsum(sizes)[:-1], axis=1)
    if table.is_long:
        (value,) = schema.values
        channels = channel_numbers(list(map(str, names)), schema.channels)
        rows = [part.T for part in by_sample]
        positions = [times_and_channels(x, channels) for x in times]
        columns = [f"{value}{ending}" for ending in endings]
    else:
        schema = replace(schema, channel=None, channels=(), values=tuple(map(str, names)))
        shape, width = (len(numbers), -1, len(names)), len(names) * len(numbers)
        rows = [part.reshape(shape).transpose(1, 2, 0).reshape(-1, width) for part in by_sample]
        positions = [x[:, None] for x in times]
        columns = [f"{name}{ending}" for name in schema.values for ending in endings]
    frame = to_table(samples, rows, replace(schema, static=(), phase=None), positions=positions, columns=columns)
    frame = frame[frame[columns].notna().any(axis=1)].reset_index(drop=True)
    n = int(frame[columns[:: len(endings)]].notna().sum().sum())
    return (frame if table.has_ids else frame.drop(columns=schema.id)), n


def even_times(samples: SampleSet, every: str) -> list[Float64[np.ndarray, "_"]]:
    """Multiples of a step between the first and the last time of each series, such as full hours."""
    step = samples.schema.duration(every, "--every")
    if not step > 0:
        raise ValueError(f"--every is the time between one row and the next, above 0, not {every!r}")
    times = [sample.positions[:, 0].double().numpy() for sample in samples]
    first = [np.ceil(x.min() / step - 1e-9) for x in times]
    last = [np.floor(x.max() / step + 1e-9) for x in times]
    total = sum(b - a + 1 for a, b in zip(first, last, strict=True))
    if total > MOST_TIMES:
        raise ValueError(f"--every {every} asks for {total:,.0f} times; give a longer step")
    return [step * np.arange(a, b + 1) for a, b in zip(first, last, strict=True)]

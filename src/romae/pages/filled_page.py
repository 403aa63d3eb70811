"""The page of a table that was filled or forecast: curves with bands, and the errors at values that were held out.

Shapes: q times of a curve, m points that were answered.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64

from romae.data.schema import SampleSet, Schema, measured_values
from romae.data.subsets import evenly_spread
from romae.inference.distributions import Distribution
from romae.inference.filling import Answered, by_columns, times_and_channels
from romae.inference.self_check import HeldOutScore
from romae.pages import charts, page
from romae.pages.diagnostics import (
    BANDS,
    N_CHANNELS,
    Channel,
    are_magnitudes,
    as_read,
    channels,
    time_axis,
    value_axis,
)
from romae.pages.page import Block, Chart, Section, Table, Text, choice
from romae.pages.plots import Band, Panel
from romae.tokens.sample import Sample

N_PANELS, N_TIMES = 12, 200
MOST_POINTS = 6_000  # of all curves: half a second on a CPU
N_BEFORE = 60  # times before a forecast, at least
TRAINED = {
    True: "The model was trained on a table and goes by what was measured in the same series.",
    False: "The model was trained on random functions alone, on no measurements; it goes by what was measured in the "
    "same series.",
}


def write(
    place: str | Path, answered: Answered, score: HeldOutScore | None, *, title: str, is_forecast: bool = False
) -> Path:
    """Write the page of answers for a table.

    Parameters
    ----------
    place : str or Path
        The file.
    answered : Answered
        The answers.
    score : HeldOutScore, optional
        The errors at values that were held out.
    title : str
        The title of the page.
    is_forecast : bool, default False
        Whether answers lie after what was measured.

    Returns
    -------
    Path
        The file.
    """
    what = "forecasts" if is_forecast else "filled values"
    lead = (
        f"{answered.n_filled:,} {what}. A curve is the median of what the model expects; a value lies inside the dark "
        f"band with a probability of 50 %, inside the light one with 90 %. {TRAINED[answered.is_trained]}"
    )
    figures = _charts(answered, is_forecast=is_forecast)
    shown: list[Block] = [choice("Series", figures)] if figures else [Text(text="There is nothing to draw.")]
    shown += [Text(text=note, is_aside=True) for note in answered.notes]
    sections = [Section(title="Forecasts" if is_forecast else "Filled series", blocks=shown)]
    if score is not None:
        sections.append(Section(title="How far off it is on this table", blocks=_scores(score)))
    return page.write(place, title, sections, lead=lead)


def _scores(score: HeldOutScore) -> list[Block]:
    rows = score.rows()
    cells = [tuple(f"{x:.3g}" if isinstance(x, float) else str(x) for x in row.values()) for row in rows]
    hard = (
        "The last fifth of each series was hidden, and forecast from what lies before."
        if score.holes == "ahead"
        else "A fifth of the values was hidden, each for itself: holes that are longer are harder to fill."
    )
    return [
        Text(text=f"{score.title()}. {score.verdict()}"),
        Table(columns=tuple(rows[0]), rows=cells),
        Text(text=hard, is_aside=True),
    ]


def _charts(answered: Answered, *, is_forecast: bool) -> dict[str, Chart]:
    """Charts of some of the series of which something was answered."""
    numbers = [i for i, asked in enumerate(answered.positions) if len(asked)]
    if not numbers:
        return {}
    schema = answered.samples.schema
    n_channels = min(len(schema.channels) if schema.channel is not None else len(schema.values), N_CHANNELS)
    chosen = [numbers[i] for i in evenly_spread(len(numbers), max(N_PANELS // n_channels, 1))]
    samples = answered.samples[np.array(chosen)]  # type: ignore[call-overload]
    most = MOST_POINTS // (len(chosen) * n_channels)
    cut = ahead_of if is_forecast else stretch_of
    stretches = [cut(sample, answered.positions[i][:, 0], most) for sample, i in zip(samples, chosen, strict=True)]
    grids = [stretch.grid for stretch in stretches]
    drawn = [channels(sample, schema) for sample in samples]
    curves = _curves(answered, samples, grids, drawn)
    figures = {}
    for sample, i, stretch, parts, curve in zip(samples, chosen, stretches, drawn, curves, strict=True):
        panels = [
            _panel(sample, part, stretch, curve[:, :, number], answered, i, schema) for number, part in enumerate(parts)
        ]
        begin = str(as_read(stretch.grid[:1], schema)[0]) if is_forecast else None
        points = "forecast" if is_forecast else "filled"
        figure = charts.reconstruction(panels, x=time_axis(schema), predicted=points, cut=begin)
        name = "All of the table" if len(answered.samples) == 1 else str(sample.id)
        part_shown = "" if stretch.is_whole else "; a stretch of it is shown"
        caption = f"{len(sample):,} values measured, {len(answered.positions[i]):,} {points}{part_shown}."
        figures[name] = Chart(caption=caption, figure=figure)
    return figures


class Stretch(NamedTuple):
    """The part of a series that is drawn, and the times of its curve."""

    first: float
    last: float
    grid: Float64[np.ndarray, "q"]
    is_whole: bool

    def holds(self, times: Float64[np.ndarray, "m"]) -> Bool[np.ndarray, "m"]:
        """Whether times lie in it."""
        return (self.first <= times) & (times <= self.last)


def stretch_of(sample: Sample, asked: Float64[np.ndarray, "m"], most: int) -> Stretch:
    """All of a series or, of one with many times, the stretch in which most was filled.

    The curve goes through every time, so that it leaves out nothing of what was answered.
    """
    times = np.unique(np.concatenate([sample.positions[:, 0].double().numpy(), asked]))
    n = max(most - N_TIMES, N_TIMES)
    is_whole = len(times) <= n
    if not is_whole:
        running = np.searchsorted(np.sort(asked), times, side="right")
        start = int(np.argmax(running[n - 1 :] - np.concatenate([[0], running])[: len(times) - n + 1]))
        times = times[start : start + n]
    grid = np.unique(np.concatenate([times, np.linspace(times[0], times[-1], N_TIMES)]))
    return Stretch(float(times[0]), float(times[-1]), grid, is_whole)


def ahead_of(sample: Sample, asked: Float64[np.ndarray, "m"], most: int) -> Stretch:
    """The end of a series and its forecast, with four times as much before it as ahead."""
    times, end = np.unique(sample.positions[:, 0].double().numpy()), float(asked.max())
    begin = float(times[-1])
    first = min(begin - 4 * (end - begin), float(times[max(len(times) - N_BEFORE, 0)]))
    grid = np.unique(np.concatenate([asked, np.linspace(begin, end, N_TIMES)])) if len(asked) < most else asked
    return Stretch(first, end, grid, first <= times[0])


def _curves(
    answered: Answered,
    samples: SampleSet,
    grids: Sequence[Float64[np.ndarray, "_"]],
    drawn: Sequence[Sequence[Channel]],
) -> list[Float64[np.ndarray, "k q c"]]:
    """The median of each channel and the ends of each band, over time; of arrays the numbers alone."""
    schema = samples.schema
    has_axis = schema.channel is not None
    numbers = [[part.number for part in parts] for parts in drawn]
    if schema.positions:  # where else a curve lies nobody says
        return [np.full((1, len(grid), len(parts)), np.nan) for grid, parts in zip(grids, drawn, strict=True)]
    asked = [times_and_channels(grid, each if has_axis else None) for grid, each in zip(grids, numbers, strict=True)]
    curves = []
    for told, each in zip(answered.ask(samples, asked), numbers, strict=True):
        part = by_columns(told, len(each), None if has_axis else each)
        if isinstance(part, Distribution):
            ends = [end for level in BANDS for end in part.interval(level)]
            curves.append(np.stack([part.median(), *ends]))
        else:
            curves.append(np.asarray(part, dtype=np.float64)[None])
    return curves


def _panel(
    sample: Sample,
    channel: Channel,
    stretch: Stretch,
    curve: Float64[np.ndarray, "k q"],
    answered: Answered,
    number: int,
    schema: Schema,
) -> Panel:
    """One channel of a series: what was measured, what was answered, and the curve with its bands."""
    times, values = sample.positions[:, 0].double().numpy(), measured_values(sample).double().numpy()
    asked, told = answered.positions[number], answered.told[number]
    is_here = stretch.holds(asked[:, 0])
    if schema.channel is not None:
        is_here &= asked[:, -1] == channel.number
    elif answered.columns is not None:
        is_here &= answered.columns[number] == channel.column
    points = told.median() if isinstance(told, Distribution) else np.asarray(told, dtype=np.float64)
    points = points[is_here, channel.column if points.shape[1] > 1 else 0]
    x, seen = as_read(stretch.grid, schema), channel.is_here & stretch.holds(times)
    bands = [Band(level, x, curve[1 + 2 * i], curve[2 + 2 * i]) for i, level in enumerate(BANDS) if len(curve) > 1]
    return Panel(
        value_axis(schema, channel.name),
        (as_read(times[seen], schema), values[seen, channel.column]),
        curve=(x, curve[0]),
        predicted=(as_read(asked[is_here, 0], schema), points),
        bands=tuple(bands),
        inverted=are_magnitudes(schema, channel.name),
    )

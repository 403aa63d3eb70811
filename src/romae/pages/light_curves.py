"""Light curves: one sample with a colour and a symbol for each band, its errors, and curves of a model with bands.

Shapes: n tokens of the sample, q times of a curve.
"""

from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float64, Shaped

from romae.checkpoints.native import load
from romae.data.periods import columns_with_errors, find_periods, phased
from romae.data.phase import PHASE_AXIS, Phase, without_axis
from romae.data.schema import SampleSet, Schema
from romae.inference.zero import ZERO, zero_model
from romae.model.tasks import MaskedReconstruction
from romae.pages import charts, plots
from romae.pages.charts import Marked
from romae.pages.diagnostics import N_TIMES, channels, dated, panels, time_axis
from romae.pages.plots import Band, Panel
from romae.tokens.sample import Sample

N_CYCLES = 2  # that are drawn of a phase, so that what crosses its end is seen whole


class Cycles(NamedTuple):
    """The cycles of a sample: their length, when the first begins, and the times of a curve through two of them."""

    period: float
    first: float
    grid: Float64[np.ndarray, "q"]

    @classmethod
    def at(cls, sample: Sample, period: float) -> "Cycles":
        """Cycles of a given length; the curve goes through two in the middle of what is visible."""
        times = _visible_times(sample)
        first, middle = float(times.min()), float(times.min() + times.max()) / 2
        begin = first + period * max(round((middle - first) / period - N_CYCLES / 2), 0)
        return cls(period, first, begin + period * np.linspace(0, N_CYCLES, N_TIMES))

    @classmethod
    def of(cls, sample: Sample, trained: Schema | None = None) -> "Cycles | None":
        """Those of its phase, or of the one that a model adds by the schema of its training; None without a period."""
        schema = sample.schema
        if schema is None or schema.phase is None:
            if schema is None or trained is None or trained.phase is None or trained.phase.period == "given":
                return None
            sample = phased(SampleSet([sample], schema), trained.phase)[0]
        times, phase = (sample.positions[:, axis].double().numpy() for axis in (0, PHASE_AXIS))
        cycles, span = np.ptp(phase), np.ptp(times)
        return cls.at(sample, float(span / cycles)) if cycles > 0 else None

    def folded(self, panel: Panel) -> Panel:
        """A panel over the phase: points in both cycles, and the curve as it goes through the two of its grid."""
        return panel._replace(
            observed=self._twice(panel.observed),
            hidden=self._twice(panel.hidden),
            predicted=self._twice(panel.predicted),
            curve=(self._along(panel.curve[0]), panel.curve[1]),
            baseline=(self._along(panel.baseline[0]), panel.baseline[1]),
            bands=tuple(Band(band.level, self._along(band.times), band.lower, band.upper) for band in panel.bands),
            errors=tuple(np.tile(part, N_CYCLES) for part in panel.errors),
        )

    def folded_marks(self, panel: Marked) -> Marked:
        """Measurements with a number each over the phase, without their band."""
        phase, values = self._twice((panel.x, panel.y))
        errors = None if panel.errors is None else np.tile(panel.errors, N_CYCLES)
        return Marked(
            panel.title, phase, values, np.tile(panel.number, N_CYCLES), errors=errors, inverted=panel.inverted
        )

    def _twice(self, points: tuple[Any, Any]) -> tuple[Any, Any]:
        phase = np.mod((np.asarray(points[0], dtype=np.float64) - self.first) / self.period, 1.0)
        return np.concatenate([phase + cycle for cycle in range(N_CYCLES)]), np.tile(points[1], N_CYCLES)

    def _along(self, times: Shaped[np.ndarray, "q"]) -> Float64[np.ndarray, "q"]:
        return (np.asarray(times, dtype=np.float64) - self.grid[0]) / self.period


def light_curve(
    sample: Sample,
    *,
    task: Any = None,
    period: Any = None,
    magnitudes: bool | None = None,
    title: str | None = None,
    returns: Literal["chart", "picture"] = "chart",
) -> Any:
    """Draw one sample: a colour and a symbol for each band, errors, and curves of a model if one is asked.

    Parameters
    ----------
    sample : Sample
        A sample of a table or of arrays, which knows its names. Tokens that it hides have open symbols and are not
        shown to the model.
    task : MaskedReconstruction or str, optional
        A trained task, whose curves are drawn, or the folder or name of one: "romae/zero" needs no training. With a
        likelihood there are bands of 50 % and 90 %.
    period : float or "auto", optional
        Draw two cycles over the phase instead of the time. "auto" is the period of the sample's phase, or else that
        which `romae.find_periods` finds. Curves go through two cycles in the middle of the sample.
    magnitudes : bool, optional
        Whether values are magnitudes, of which small ones are bright and stand at the top. By default the names of
        columns say so, such as mag.
    title : str, optional
        What stands above; by default the id of the sample.
    returns : {"chart", "picture"}, default "chart"
        A chart of plotly, to zoom into, or a picture of matplotlib, to be saved.

    Returns
    -------
    plotly.graph_objects.Figure or matplotlib.figure.Figure
        The figure.

    Raises
    ------
    ValueError
        If the sample has no names, no period is found, one is not above 0, or a model can draw no curve of it.
    TypeError
        If something else than a sample, or a task of another kind, is given.

    See Also
    --------
    romae.find_periods : the periods of many samples.

    Notes
    -----
    Errors are those that the schema names (`from_table(error=)`), or a column of values that is called like them, such
    as flux_err beside flux. Where one is not known, there is no bar.

    Examples
    --------
    >>> import pandas as pd
    >>> from romae.pages.light_curves import light_curve
    >>> import romae
    >>> columns = {"star": "V1", "day": [0.0, 1.2, 1.9, 3.1], "band": ["g", "r", "g", "r"]}
    >>> table = pd.DataFrame(columns | {"mag": [15.2, 14.9, 15.6, 15.0], "mag_err": 0.02})
    >>> stars = romae.from_table(table, id="star", time="day", channel="band", values="mag", error="mag_err")
    >>> figure = light_curve(stars[0])
    >>> [trace.name for trace in figure.data], figure.layout.yaxis.autorange
    (['g', 'r'], 'reversed')
    """
    if not isinstance(sample, Sample):
        raise TypeError(f"a light curve is one sample, such as samples[0], not {type(sample).__name__}")
    if returns not in ("chart", "picture"):
        raise ValueError(f"returns must be 'chart' or 'picture', not {returns!r}")
    if sample.schema is None:
        raise ValueError(
            "this sample does not know its names; read it with from_table or from_arrays, or give it a schema: "
            "sample.with_schema(romae.Schema(…))"
        )
    if isinstance(task, str):
        task = zero_model() if task == ZERO else load(task)
    if not isinstance(task, MaskedReconstruction | None):
        raise TypeError(f"curves are drawn by a MaskedReconstruction, not by a {type(task).__name__}")
    if task is not None and sample.schema.positions:
        raise ValueError(
            f"a curve over time leaves the further position axes of this sample open ({sample.schema.positions[0]!r}); "
            "draw it without task="
        )
    cycles = None if period is None else _cycles(sample, period)
    shown = sample if task is not None and task.schema is not None and task.schema.phase else _without_phase(sample)
    schema = shown.schema
    drawn = panels(shown, None, schema, task, grid=None if cycles is None else cycles.grid, most=None)
    numbers = [channel.number for channel in channels(shown, schema, None)]
    if schema.channel is None:  # then values are what channels are, and no band is a column of errors
        numbers = [column for column, _ in columns_with_errors(schema.values, None)]
        drawn = [drawn[number] for number in numbers]
    names = schema.values[:1] if schema.channel is not None else [panel.title for panel in drawn]
    if magnitudes is None:
        magnitudes = all(panel.inverted for panel in drawn)
    if cycles is not None:
        drawn = [cycles.folded(panel) for panel in drawn]
    else:
        drawn = [dated(panel, schema) for panel in drawn]
    x = time_axis(schema) if cycles is None else f"phase, in periods of {cycles.period:.6g}"
    if title is None:
        title = "" if sample.id is None else f"{schema.id} {sample.id}"
    draw = charts.light_curve if returns == "chart" else plots.light_curve
    y = names[0] if len(names) == 1 else "value"
    return draw(drawn, numbers, x=x, y=y, inverted=bool(magnitudes), title=title)


def _cycles(sample: Sample, period: Any) -> Cycles:
    """The cycles of a period that is given, of a sample's phase, or of the periodogram."""
    if isinstance(period, str) and period == "auto":
        found = Cycles.of(sample)
        if found is None and sample.schema.phase is None:
            row = find_periods([sample]).iloc[0]
            if row["false_alarm"] <= Phase().false_alarm:
                found = Cycles.at(sample, float(row["period"]))
        if found is None:
            raise ValueError("no significant period is found in this sample; give one: period=0.57")
        return found
    if isinstance(period, bool) or not isinstance(period, int | float | np.integer | np.floating):
        raise ValueError(f"period is a number above 0 or 'auto', not {period!r}")
    if not 0 < period < np.inf:
        raise ValueError(f"period is a number above 0 or 'auto', not {period}")
    return Cycles.at(sample, float(period))


def _visible_times(sample: Sample) -> Float64[np.ndarray, "n"]:
    """The times of the measurements that are visible."""
    seen = np.ones(len(sample), dtype=bool) if sample.hidden is None else ~sample.hidden.numpy()
    if sample.schema is not None and sample.schema.static_from is not None:
        seen &= (sample.positions[:, -1] < sample.schema.static_from).numpy()
    return sample.positions[:, 0].double().numpy()[seen]


def _without_phase(sample: Sample) -> Sample:
    """The sample as a model without a phase takes it."""
    if sample.schema.phase is None:
        return sample
    schema = replace(sample.schema, phase=None)
    return replace(sample, positions=without_axis(sample.positions), schema=schema)

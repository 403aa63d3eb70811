"""The first minute of the demonstration: a log with holes is filled without any training, as `romae fill` does it."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from romae.experiments.datasets.station import SENSORS, Station, dates, station
from romae.experiments.zero_baselines import KERNELS, Process
from romae.files import write_whole
from romae.inference.filling import Answered, FillConfig, fill_table
from romae.inference.interpolation import interpolate
from romae.inference.tables import write_table
from romae.pages import charts
from romae.pages.page import Chart, Section, Table, Text
from romae.pages.plots import Band, Panel, interpolation

N_TIMES, LEVELS = 600, (0.9, 0.5)
UNITS = {"temperature": "temperature (°C)", "humidity": "relative humidity (%)"}
OURS = "RoMAE"
FILES = ("station.csv", "filled.csv", "filled.png")


class Filled(NamedTuple):
    """A log that was filled: mean absolute errors at the readings that it lacks, in deviations of their sensor."""

    errors: dict[str, float]
    coverage: float  # of intervals of 90 %
    n_filled: int
    panels: list[Panel]

    @property
    def wins(self) -> bool:
        """Whether the model's error is the smallest."""
        return all(self.errors[OURS] < error for name, error in self.errors.items() if name != OURS)

    @property
    def verdict(self) -> str:
        """Which error is the smallest, in a sentence."""
        name = min((name for name in self.errors if name != OURS), key=self.errors.__getitem__)
        how = "best" if self.wins else "not the best"
        return (
            f"Without training, {OURS} is {how} at the {self.n_filled} missing readings: a mean absolute error of "
            f"{self.errors[OURS]:.2f} standard deviations beside {self.errors[name]:.2f} of {name}; "
            f"{self.coverage:.0%} of them lie in its intervals of 90 %."
        )

    def rows(self) -> list[dict[str, object]]:
        """A row for each method."""
        return [{"method": name, "mean absolute error": error} for name, error in self.errors.items()]


def filled(folder: Path, seed: int) -> Filled:
    """Make the log of a station, write it as a table, fill its holes, and hold them against what was there.

    Parameters
    ----------
    folder : Path
        Gets station.csv, filled.csv and filled.png.
    seed : int
        That of the log.

    Returns
    -------
    Filled
        Errors, and what there is to draw.
    """
    log = station(seed)
    answered = fill_table(FillConfig(), log.table())
    write_table(log.table(), folder / "station.csv")
    write_table(answered.table, folder / "filled.csv")
    errors, inside = _errors(log, answered)
    result = Filled(errors, inside, int(log.lacks.sum()), _panels(log, answered))
    title = "A log with holes, filled without training: curves, bands of 50 and 90 %, and what was missing"
    figure = interpolation(result.panels, n_columns=1, title=title, x="date")
    write_whole(folder / "filled.png", lambda to: figure.savefig(to, dpi=110, format="png"))
    return result


def section(result: Filled) -> Section:
    """The part of the page."""
    text = (
        "A weather station reads two sensors at uneven times. A quarter of the readings is missing, and each sensor "
        "was out for two days once. A model that was trained on random functions alone, on no measurement, fills "
        "the log: it goes by the daily cycle, and by what one sensor says of the other. The Gaussian process is fitted "
        "to each sensor. romae fill does the same with a table of yours."
    )
    rows = [(name, f"{error:.3g}") for name, error in result.errors.items()]
    return Section(
        title="Without training",
        blocks=[
            Text(text=text),
            Text(text=result.verdict),
            Table(columns=("method", "mean absolute error at missing readings, in standard deviations"), rows=rows),
            Chart(
                caption="Curves are medians; a reading lies in the dark band with a probability of 50 %, in the light "
                "one with 90 %.",
                figure=charts.reconstruction(result.panels, x="date"),
            ),
        ],
    )


def _errors(log: Station, answered: Answered) -> tuple[dict[str, float], float]:
    """The error of each method at missing readings, and the share of these in the intervals."""
    told: dict[str, list[np.ndarray]] = {}
    inside = []
    for column, sensor in enumerate(SENSORS):
        lacks, truth = log.lacks[:, column], log.values[log.lacks[:, column], column]
        times, values, asked = log.hours[~lacks], log.values[~lacks, column].round(1), log.hours[lacks]
        before = (np.searchsorted(times, asked) - 1).clip(min=0)
        answers = {
            OURS: answered.table[sensor].to_numpy()[lacks],
            "a Gaussian process": _fitted_process(times, values, asked),
            "linear interpolation": np.interp(asked, times, values),
            "the last value": values[before],
            "the mean": np.full(len(asked), values.mean()),
        }
        for name, answer in answers.items():
            told.setdefault(name, []).append(np.abs(answer - truth) / values.std())
        low, high = (answered.table[f"{sensor}_{end}"].to_numpy()[lacks] for end in ("lower", "upper"))
        inside.append((low <= truth) & (truth <= high))
    errors = {name: float(np.concatenate(parts).mean()) for name, parts in told.items()}
    return errors, float(np.concatenate(inside).mean())


def _fitted_process(
    times: Float64[np.ndarray, "n"], values: Float64[np.ndarray, "n"], asked: Float64[np.ndarray, "q"]
) -> Float64[np.ndarray, "q"]:
    """What the Gaussian process says that suits one sensor best: smooth, rough, or with a cycle of any length."""
    begin, extent = times[0], np.ptp(times)
    level, scale, errors = values.mean(), values.std(), np.zeros(len(values))
    x, y = (times - begin) / extent, (values - level) / scale
    fits = [Process.fitted(kernel, x, y, errors) for kernel in KERNELS]
    middle, _ = max(fits, key=lambda fit: fit.log_likelihood).predict((asked - begin) / extent)
    return middle * scale + level


def _panels(log: Station, answered: Answered) -> list[Panel]:
    """Both sensors with their curves."""
    grid = np.linspace(log.hours[0], log.hours[-1], N_TIMES)
    [curve] = interpolate(answered.samples, [dates(grid)], returns="distribution")
    panels = []
    for column, sensor in enumerate(SENSORS):
        lacks, of_sensor = log.lacks[:, column], curve[:, column]
        seen = log.hours[~lacks], log.values[~lacks, column]
        panels.append(
            Panel(
                UNITS[sensor],
                (dates(seen[0]), seen[1]),
                hidden=(dates(log.hours[lacks]), log.values[lacks, column]),
                curve=(dates(grid), of_sensor.median()),
                baseline=(dates(grid), np.interp(grid, *seen)),
                bands=tuple(Band(level, dates(grid), *of_sensor.interval(level)) for level in LEVELS),
            )
        )
    return panels

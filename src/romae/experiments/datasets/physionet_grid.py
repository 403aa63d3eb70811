"""PhysioNet 2012 on an hourly grid, for imputation as PyPOTS and its benchmark TSI-Bench have it.

The 4 000 records of set a, 35 variables (without Age, Gender, Height, ICUType, Weight and MechVent), 48 hours: an hour
is that of the time stamp, values of one variable in one hour are averaged, and hour 48 is cut off. A record whose rows
all lie in one hour is left out. Records are split 64/16/20 into training, validation and test, stratified by death,
values are z-scores of the training part, and a tenth of the observed cells of each part is hidden at random. A seed
decides the split and what is hidden.

`load_minutes` has the same records, splits and hidden cells with the measurements that are seen at their own minutes.
A hidden cell is then one token at the middle of its hour, whose value is the mean of the cell; none of the cell's
measurements is left in the sample, so that nothing but its hour and its variable is known.

This is the protocol and not the split of the published numbers: the error of straight lines, 0.366 there and 0.356 to
0.368 here, says how near it is.

Shapes: r records, h hours, v variables, m measurements of all records.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float64, Int64

from romae.data.schema import Schema
from romae.experiments.datasets import physionet2012
from romae.experiments.datasets.files import data_root
from romae.tokens.sample import Sample

LEFT_OUT = ("Age", "Gender", "Height", "ICUType", "Weight", "MechVent")
VARIABLES = tuple(name for name in physionet2012.VARIABLES if name not in LEFT_OUT)
SCHEMA = Schema(id="record", time="hours", channel="variable", channels=VARIABLES)
N_HOURS = 48
N_RECORDS = 3_997
HIDDEN = 0.1  # of the observed cells
TEST, VALIDATION = 0.2, 0.2  # of all records, and of those that are left


@dataclass(frozen=True, eq=False)
class Grid:
    """The cells of records: values are NaN where nothing was observed, and `hidden` cells are observed ones."""

    record_ids: Int64[np.ndarray, "r"]
    values: Float64[np.ndarray, "r h v"]
    hidden: Bool[np.ndarray, "r h v"]

    def __len__(self) -> int:
        return len(self.record_ids)

    @property
    def visible(self) -> Float64[np.ndarray, "r h v"]:
        """The values without those that are hidden."""
        return np.where(self.hidden, np.nan, self.values)

    def first(self, n: int | None) -> "Grid":
        """The first few records, or all."""
        return Grid(self.record_ids[:n], self.values[:n], self.hidden[:n])

    def samples(self) -> list[Sample]:
        """A token per observed cell at the position (hour, variable), in the order of time, with what is hidden.

        A record of which nothing is hidden, or nothing is visible, asks nothing and is left out.
        """
        samples = []
        for record, values, hidden in zip(self.record_ids.tolist(), self.values, self.hidden, strict=True):
            cells = np.argwhere(~np.isnan(values))
            mask = hidden[tuple(cells.T)]
            if mask.any() and not mask.all():
                samples.append(_sample(record, values, cells, mask))
        return samples

    def visible_samples(self) -> list[Sample]:
        """Samples to learn from: of what is visible alone, so that nobody sees what is hidden."""
        cells = [np.argwhere(~np.isnan(values)) for values in self.visible]
        rows = zip(self.record_ids.tolist(), self.values, cells, strict=True)
        return [_sample(record, values, here, None) for record, values, here in rows if len(here)]


@dataclass(frozen=True, eq=False)
class Minutes:
    """The measurements of the records of a grid at their own minutes, in its z-scores; `records` are places in it.

    They are sorted by record, minute and variable, and those of one variable in one minute are averaged.
    """

    grid: Grid
    records: Int64[np.ndarray, "m"]
    minutes: Int64[np.ndarray, "m"]
    variables: Int64[np.ndarray, "m"]
    values: Float64[np.ndarray, "m"]

    def samples(self) -> list[Sample]:
        """A token per visible measurement at the position (hours, variable), and one per hidden cell, in the order of
        time. A record of which nothing is hidden, or nothing is visible, asks nothing and is left out."""
        return [sample for i in range(len(self.grid)) if (sample := self._asked(i, self.grid.hidden[i])) is not None]

    def questions(self, n: int, share: float, seed: int) -> list[Sample]:
        """Samples to learn from, n of each record: each hides a share of the visible cells, drawn by seed and record.

        What the grid hides is in none of them, neither seen nor asked.
        """
        cells = [np.flatnonzero(~np.isnan(values)) for values in self.grid.visible]
        return [sample for number in range(n) for sample in self._drawn(number, cells, share, seed)]

    def _drawn(self, number: int, visible: list[Int64[np.ndarray, "_"]], share: float, seed: int) -> Iterator[Sample]:
        for i, (record, cells) in enumerate(zip(self.grid.record_ids.tolist(), visible, strict=True)):
            chosen = np.zeros(self.grid.values[i].size, dtype=bool)
            n_hidden = max(round(share * len(cells)), 1)
            chosen[np.random.default_rng((seed, number, record)).permutation(cells)[:n_hidden]] = True
            sample = self._asked(i, chosen.reshape(self.grid.values[i].shape))
            if sample is not None:
                yield sample

    def _asked(self, i: int, asked: Bool[np.ndarray, "h v"]) -> Sample | None:
        """What is visible of a record without the cells that are asked, and these."""
        here = slice(*np.searchsorted(self.records, [i, i + 1]).tolist())
        minutes, variables = self.minutes[here], self.variables[here]
        keep = ~(asked | self.grid.hidden[i])[minutes // 60, variables]
        hours, of = np.nonzero(asked)
        if not keep.any() or not len(hours):
            return None
        times = np.concatenate([minutes[keep] / 60, hours + 0.5])
        columns = np.concatenate([self.values[here][keep], self.grid.values[i][asked]])
        hidden = np.concatenate([np.zeros(int(keep.sum()), dtype=bool), np.ones(len(hours), dtype=bool)])
        positions = np.stack([times, np.concatenate([variables[keep], of])], axis=1)
        order = np.argsort(times, kind="stable")
        values = columns[order, None].astype(np.float32)
        return Sample(values, positions[order], id=int(self.grid.record_ids[i]), hidden=hidden[order])


def load(seed: int, *, folder: Path | None = None) -> dict[str, Grid]:
    """The grids of training, validation and test that belong to a seed, in z-scores of all that is observed in the
    training part, as in the benchmark."""
    return divided(*read(folder=folder), seed)


def load_minutes(seed: int, n: int | None = None, *, folder: Path | None = None) -> dict[str, Minutes]:
    """What `load` has, or the first n records of each part, with the measurements at their own minutes."""
    folder = folder or data_root() / "physionet2012"
    rows = physionet2012.read_rows("a", folder)
    record_ids, means, died = _read(rows, folder)
    parts = divided(record_ids, means, died, seed)
    centre, deviation = _standard(means[np.isin(record_ids, parts["train"].record_ids)])
    kept, variable = _series(rows)
    place = np.ravel_multi_index(
        (rows.records[kept], rows.minutes[kept], variable[kept]),
        (len(rows.record_ids), N_HOURS * 60, len(VARIABLES)),
    )
    places, inverse = np.unique(place, return_inverse=True)
    values = np.bincount(inverse, rows.values[kept]) / np.bincount(inverse)
    record, minutes, variables = np.unravel_index(places, (len(rows.record_ids), N_HOURS * 60, len(VARIABLES)))
    scores = (values - centre[variables]) / deviation[variables]

    def of(grid: Grid) -> Minutes:
        number = np.full(len(rows.record_ids), -1)
        number[np.searchsorted(rows.record_ids, grid.record_ids)] = np.arange(len(grid))
        here = number[record] >= 0
        return Minutes(grid, number[record[here]], minutes[here], variables[here], scores[here])

    return {name: of(grid.first(n)) for name, grid in parts.items()}


def read(
    *, folder: Path | None = None
) -> tuple[Int64[np.ndarray, "r"], Float64[np.ndarray, "r h v"], Int64[np.ndarray, "r"]]:
    """The numbers of the records, the means of their hours in the data's own units, and who died in hospital."""
    folder = folder or data_root() / "physionet2012"
    return _read(physionet2012.read_rows("a", folder), folder)


def _read(
    rows: physionet2012.Rows, folder: Path
) -> tuple[Int64[np.ndarray, "r"], Float64[np.ndarray, "r h v"], Int64[np.ndarray, "r"]]:
    died = physionet2012.load("a", folder=folder).died
    n, hour = len(rows.record_ids), rows.minutes // 60
    named = rows.variables >= 0
    hours_of = np.zeros(
        (n, N_HOURS + 1), dtype=bool
    )  # hour 48 is a row of a record like any other, and static rows too
    hours_of[rows.records[named], hour[named]] = True
    kept, variable = _series(rows)
    cell = np.ravel_multi_index((rows.records[kept], hour[kept], variable[kept]), (n, N_HOURS, len(VARIABLES)))
    counts = np.bincount(cell, minlength=n * N_HOURS * len(VARIABLES))
    totals = np.bincount(cell, rows.values[kept], minlength=len(counts))
    means = np.divide(totals, counts, out=np.full(len(counts), np.nan), where=counts > 0)
    is_series = hours_of.sum(1) > 1
    return rows.record_ids[is_series], means.reshape(n, N_HOURS, -1)[is_series], died[is_series]


def _series(rows: physionet2012.Rows) -> tuple[Bool[np.ndarray, "m"], Int64[np.ndarray, "m"]]:
    """Which rows are of the series, before hour 48, and the variable of each."""
    number = np.array([VARIABLES.index(name) if name in VARIABLES else -1 for name in physionet2012.VARIABLES])
    variable = number[rows.variables]
    return (rows.variables >= 0) & (variable >= 0) & (rows.minutes < N_HOURS * 60), variable


def divided(
    record_ids: Int64[np.ndarray, "r"], means: Float64[np.ndarray, "r h v"], died: Int64[np.ndarray, "r"], seed: int
) -> dict[str, Grid]:
    """Split, standardise and hide."""
    from sklearn.model_selection import train_test_split

    rest, test = train_test_split(np.arange(len(died)), test_size=TEST, random_state=seed, stratify=died)
    train, validation = train_test_split(rest, test_size=VALIDATION, random_state=seed, stratify=died[rest])
    centre, deviation = _standard(means[train])
    scores = (means - centre) / deviation
    parts = {"train": train, "validation": validation, "test": test}
    random = np.random.default_rng(seed)
    return {
        name: Grid(record_ids[chosen], scores[chosen], _hidden(scores[chosen], random))
        for name, chosen in ((name, np.sort(part)) for name, part in parts.items())
    }


def _standard(train: Float64[np.ndarray, "r h v"]) -> tuple[Float64[np.ndarray, "v"], Float64[np.ndarray, "v"]]:
    """The mean and the deviation of each variable over the cells of the training records."""
    seen = train.reshape(-1, train.shape[-1])
    counts = np.maximum((~np.isnan(seen)).sum(0), 1)  # a variable that nobody has keeps its numbers
    centre = np.nansum(seen, 0) / counts
    deviation = np.sqrt(np.nansum((seen - centre) ** 2, 0) / counts)
    return centre, np.where(deviation > 0, deviation, 1.0)


def _hidden(values: Float64[np.ndarray, "r h v"], random: np.random.Generator) -> Bool[np.ndarray, "r h v"]:
    """A tenth of the observed cells, over all records."""
    observed = np.flatnonzero(~np.isnan(values))
    hidden = np.zeros(values.size, dtype=bool)
    hidden[random.choice(observed, round(HIDDEN * len(observed)), replace=False)] = True
    return hidden.reshape(values.shape)


def _sample(
    record: int,
    values: Float64[np.ndarray, "h v"],
    cells: Int64[np.ndarray, "n 2"],
    hidden: Bool[np.ndarray, "n"] | None,
) -> Sample:
    column = values[tuple(cells.T)][:, None].astype(np.float32)
    return Sample(column, cells.astype(np.float64), id=record, hidden=hidden)

"""PhysioNet 2012 on an hourly grid, for imputation as PyPOTS and its benchmark TSI-Bench have it.

The 4 000 records of set a, 35 variables (without Age, Gender, Height, ICUType, Weight and MechVent), 48 hours: an hour
is that of the time stamp, values of one variable in one hour are averaged, and hour 48 is cut off. A record whose rows
all lie in one hour is left out. Records are split 64/16/20 into training, validation and test, stratified by death,
values are z-scores of the training part, and a tenth of the observed cells of each part is hidden at random. A seed
decides the split and what is hidden.

This is the protocol and not the split of the published numbers: the error of straight lines, 0.366 there and 0.356 to
0.368 here, says how near it is.

Shapes: r records, h hours, v variables.
"""

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


def load(seed: int, *, folder: Path | None = None) -> dict[str, Grid]:
    """The grids of training, validation and test that belong to a seed, in z-scores of all that is observed in the
    training part, as in the benchmark."""
    return divided(*read(folder=folder), seed)


def read(
    *, folder: Path | None = None
) -> tuple[Int64[np.ndarray, "r"], Float64[np.ndarray, "r h v"], Int64[np.ndarray, "r"]]:
    """The numbers of the records, the means of their hours in the data's own units, and who died in hospital."""
    folder = folder or data_root() / "physionet2012"
    died = physionet2012.load("a", folder=folder).died
    rows = physionet2012.read_rows("a", folder)
    n, hour = len(rows.record_ids), rows.minutes // 60
    named = rows.variables >= 0
    hours_of = np.zeros(
        (n, N_HOURS + 1), dtype=bool
    )  # hour 48 is a row of a record like any other, and static rows too
    hours_of[rows.records[named], hour[named]] = True
    number = np.array([VARIABLES.index(name) if name in VARIABLES else -1 for name in physionet2012.VARIABLES])
    variable = number[rows.variables]
    kept = named & (variable >= 0) & (hour < N_HOURS)
    cell = np.ravel_multi_index((rows.records[kept], hour[kept], variable[kept]), (n, N_HOURS, len(VARIABLES)))
    counts = np.bincount(cell, minlength=n * N_HOURS * len(VARIABLES))
    totals = np.bincount(cell, rows.values[kept], minlength=len(counts))
    means = np.divide(totals, counts, out=np.full(len(counts), np.nan), where=counts > 0)
    is_series = hours_of.sum(1) > 1
    return rows.record_ids[is_series], means.reshape(n, N_HOURS, -1)[is_series], died[is_series]


def divided(
    record_ids: Int64[np.ndarray, "r"], means: Float64[np.ndarray, "r h v"], died: Int64[np.ndarray, "r"], seed: int
) -> dict[str, Grid]:
    """Split, standardise and hide."""
    from sklearn.model_selection import train_test_split

    rest, test = train_test_split(np.arange(len(died)), test_size=TEST, random_state=seed, stratify=died)
    train, validation = train_test_split(rest, test_size=VALIDATION, random_state=seed, stratify=died[rest])
    seen = means[train].reshape(-1, means.shape[-1])
    counts = np.maximum((~np.isnan(seen)).sum(0), 1)  # a variable that nobody has keeps its numbers
    centre = np.nansum(seen, 0) / counts
    deviation = np.sqrt(np.nansum((seen - centre) ** 2, 0) / counts)
    scores = (means - centre) / np.where(deviation > 0, deviation, 1.0)
    parts = {"train": train, "validation": validation, "test": test}
    random = np.random.default_rng(seed)
    return {
        name: Grid(record_ids[chosen], scores[chosen], _hidden(scores[chosen], random))
        for name, chosen in ((name, np.sort(part)) for name, part in parts.items())
    }


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

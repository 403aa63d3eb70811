"""PhysioNet 2012 for forecasts, in the two forms that benchmarks have.

t-PatchGNN: the first 24 hours of all 12 000 records (sets a, b and c) are seen, what is measured in the second 24 asked
for. Times are minutes, in hours, values of one variable in one minute averaged, and the code -1 is kept. The 41
variables hold static ones, which are measured at time 0. Its order of records followed the file system and is lost;
here it is that of the record numbers, and there is a split for each seed.

PyOmniTS: means of hours, and the measurements of the next three time stamps are asked for. `load_hourly` does what its
public reader does, slips included, since the published numbers rest on them:

- the row that opens a new hour is lost, and so is the last hour of a record; 19 records hold nothing then, and 11 981
  are left. An hour whose only row is lost still is a time stamp;
- MechVent, always 1, has no deviation and drops out; Weight stays as far as it was measured after admission. So there
  are 36 variables;
- z-scores are over all records, those of the test included; what lies 5 or more away is dropped;
- times are divided by 47 hours and the cut, 35.5 hours, by 48: hours 0 to 34 are seen, and not 35.

Shapes: r records, h time stamps, m measurements or means of them.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int64

from romae.data.schema import Schema
from romae.experiments.datasets import physionet2012
from romae.experiments.datasets.files import data_root
from romae.experiments.datasets.windows import Cut, Records, divided, in_parts
from romae.tokens.sample import Sample

CUT = Cut(history=24.0, horizon=24.0, stride=24.0, end=48.0)
FIRST_SPLIT, N_SPLITS = 42, 5  # t-PatchGNN: permutation seeds 42 to 46

STATIC = ("Age", "Gender", "Height", "ICUType")
HOURLY = tuple(name for name in physionet2012.VARIABLES if name not in (*STATIC, "MechVent"))
LAST_HOUR, N_ASKED, FAR = 34, 3, 5.0
N_HOURLY = {"train": 9_704, "validation": 1_078, "test": 1_199}


def schema(variables: tuple[str, ...]) -> Schema:
    """The names of the data."""
    return Schema(id="record", time="hours", channel="variable", channels=variables)


def load(*, folder: Path | None = None) -> Records:
    """All records with times in hours, as they were measured."""
    stays = physionet2012.load("abc", minus_one="keep", folder=folder)
    ids = tuple(map(str, stays.record_ids.tolist()))
    return Records(ids, stays.offsets, stays.minutes / 60, stays.variables, stays.values)


def windows(records: Records, split: int, most: int | None = None) -> dict[str, list[Sample]]:
    """The records of each split of t-PatchGNN, cut at 24 hours; one in which nothing is asked is left out."""
    parts = divided(len(records), split)
    seen = np.concatenate([parts["train"], parts["validation"]])
    return in_parts(records.as_min_max(seen), parts, CUT, most)


def load_hourly(*, folder: Path | None = None) -> dict[str, list[Sample]]:
    """The samples of each split of PyOmniTS: of the records in order, the first 81 %, the next 9 % and the last 10 %.

    Values are z-scores. A record that shows nothing, or of which nothing is asked, is left out of its split.
    """
    folder = folder or data_root() / "physionet2012"
    sets = [physionet2012.read_rows(letter, folder) for letter in "abc"]
    record_ids = np.concatenate([rows.record_ids for rows in sets])
    firsts = np.cumsum([0, *(len(rows.record_ids) for rows in sets)])
    hours = _hours(
        np.concatenate([rows.records + first for rows, first in zip(sets, firsts, strict=False)]),
        *(np.concatenate([getattr(rows, name) for rows in sets]) for name in ("minutes", "variables", "values")),
    )
    samples = _samples(hours, record_ids)
    n_test = -(-len(samples) // 10)
    n_validation = -(-(len(samples) - n_test) // 10)
    bounds = np.cumsum([len(samples) - n_test - n_validation, n_validation]).tolist()
    parts = (samples[: bounds[0]], samples[bounds[0] : bounds[1]], samples[bounds[1] :])
    asked = [[sample for sample in part if sample is not None] for part in parts]
    return dict(zip(("train", "validation", "test"), asked, strict=True))


class Hours(NamedTuple):
    """Time stamps and what was measured at each: the mean of every variable that was."""

    records: Int64[np.ndarray, "h"]
    hours: Int64[np.ndarray, "h"]
    stamps: Int64[np.ndarray, "m"]  # of each mean
    variables: Int64[np.ndarray, "m"]
    means: Float64[np.ndarray, "m"]


def _hours(
    records: Int64[np.ndarray, "m"],
    minutes: Int64[np.ndarray, "m"],
    variables: Int64[np.ndarray, "m"],
    values: Float64[np.ndarray, "m"],
) -> Hours:
    """Rows in the order of their files to means of hours, as the public reader of PyOmniTS makes them."""
    names = (*physionet2012.VARIABLES, "")  # the last is that of a row without one
    number = np.array([HOURLY.index(name) if name in HOURLY else -1 for name in names])[variables]
    descriptors = [names.index(name) for name in (*STATIC, "Weight")]
    is_series = (number >= 0) | (variables == names.index("MechVent"))
    is_series &= ~(np.isin(variables, descriptors) & (minutes == 0))
    # What a record holds before its first series, descriptors among it, is passed over; later rows may open an hour.
    n_before = np.concatenate([[0], np.cumsum(is_series)])[:-1]
    first_of_record = np.searchsorted(records, records)
    rows = (is_series | (n_before > n_before[first_of_record])) & ~(np.isin(variables, descriptors) & (minutes == 0))
    records, hours, number, values = records[rows], minutes[rows] // 60, number[rows], values[rows]

    opens = np.ones(len(records), dtype=bool)
    opens[1:] = (records[1:] != records[:-1]) | (hours[1:] != hours[:-1])
    run = np.cumsum(opens) - 1
    starts = np.flatnonzero(opens)
    run_record, run_hour = records[starts], hours[starts]
    is_last = np.append(run_record[1:] != run_record[:-1], True)
    is_first = np.concatenate([[True], is_last[:-1]])
    is_kept = (number >= 0) & ~is_last[run] & ~(opens & ~is_first[run])
    stamp_of_run = np.cumsum(~is_last) - 1
    cell, inverse = np.unique(stamp_of_run[run[is_kept]] * len(HOURLY) + number[is_kept], return_inverse=True)
    means = np.bincount(inverse, weights=values[is_kept]) / np.bincount(inverse)
    return Hours(run_record[~is_last], run_hour[~is_last], cell // len(HOURLY), cell % len(HOURLY), means)


def _samples(hours: Hours, ids: Int64[np.ndarray, "r"]) -> list[Sample | None]:
    """A sample per record that has a time stamp, or None where it shows nothing or nothing is asked of it."""
    n, variables = len(HOURLY), hours.variables
    counts = np.maximum(np.bincount(variables, minlength=n), 1)
    centre = np.bincount(variables, hours.means, n) / counts
    deviation = np.sqrt(np.bincount(variables, (hours.means - centre[variables]) ** 2, n) / counts)
    scores = (hours.means - centre[variables]) / np.where(deviation > 0, deviation, np.inf)[variables]
    records, firsts, n_stamps = np.unique(hours.records, return_index=True, return_counts=True)
    n_seen = np.add.reduceat(hours.hours <= LAST_HOUR, firsts)
    place = np.arange(len(hours.hours)) - np.repeat(firsts + n_seen, n_stamps)  # from 0 on, a time stamp is asked for
    kept = (np.abs(scores) < FAR) & (place[hours.stamps] < N_ASKED)
    stamps, variables, scores = hours.stamps[kept], variables[kept], scores[kept]
    bounds = np.searchsorted(stamps, np.append(firsts, len(hours.hours)))
    samples: list[Sample | None] = []
    for record, first, last in zip(records.tolist(), bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        here = stamps[first:last]
        hidden = place[here] >= 0
        positions = np.stack([hours.hours[here], variables[first:last]], axis=1).astype(np.float64)
        values = scores[first:last, None].astype(np.float32)
        is_asked = hidden.any() and not hidden.all()
        samples.append(Sample(values, positions, id=str(ids[record]), hidden=hidden) if is_asked else None)
    return samples

"""Durations and times of day: however they are written, they are the same numbers, and nothing wraps at midnight."""

import datetime as dt

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import romae
from messages import refused
from romae.data.dates import durations_from_numbers, read_times
from romae.data.queries import grid_of_times, read_queries

COLUMNS = {"id": "ward", "time": "when", "values": "pulse"}
HOURS = {"second": 3600, "minute": 60, "hour": 1, "day": 1 / 24}


def wards(when):
    return pd.DataFrame({"ward": ["a", "a", "b"], "when": when, "pulse": [80.0, 90.0, 70.0]})


FORMS = {
    "text": ["08:00", "20:30", "00:15"],
    "text with seconds": ["8:00:00", "20:30:00", "00:15:00.000"],
    "times": [dt.time(8), dt.time(20, 30), dt.time(0, 15)],
    "durations": pd.to_timedelta([8, 20.5, 0.25], "h"),
    "durations of Python": [dt.timedelta(hours=hours) for hours in (8, 20.5, 0.25)],
    "durations of pyarrow": pd.Series(pd.to_timedelta([8, 20.5, 0.25], "h")).astype(pd.ArrowDtype(pa.duration("us"))),
    "as pandas writes them": [str(x) for x in pd.to_timedelta([8, 20.5, 0.25], "h")],
}


@pytest.mark.parametrize("unit", HOURS)
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_duration_is_the_same_number(form, unit, tmp_path):
    frame = wards(FORMS[form])
    samples = romae.from_table(frame, **COLUMNS, time_unit=unit)
    hours = [x.item() for sample in samples for x in sample.positions[:, 0]]
    assert_allclose(hours, np.array([8, 20.5, 0.25]) * HOURS[unit], rtol=1e-12)
    assert (samples.schema.time_unit, samples.schema.durations) == (unit, True)
    for name in ("a.csv", "a.parquet"):
        getattr(frame, f"to_{name[2:]}")(tmp_path / name, index=False)
        again = romae.from_table(tmp_path / name, **COLUMNS, time_unit=unit)
        assert again.schema == samples.schema
        assert all(torch.equal(x.positions, y.positions) for x, y in zip(again, samples, strict=True))


def test_arrays_take_durations_too():
    plain = romae.from_arrays(np.zeros((2, 2, 1)), times=[0.5, 48.0])
    for times in (["00:30", "48:00"], np.array([30, 48 * 60], "timedelta64[m]"), [["00:30", "48:00"]] * 2):
        samples = romae.from_arrays(np.zeros((2, 2, 1)), times=times, time_unit="hour")
        assert torch.equal(samples[1].positions, plain[1].positions) and samples.schema.durations
    with refused(ValueError, "'1'", "of another kind"):
        romae.from_arrays(np.zeros((2, 2, 1)), times=[["00:30", "01:00"], [1.0, 2.0]], ids=["0", "1"])


def test_they_come_back_as_durations_and_are_read_again(tmp_path):
    samples = romae.from_table(wards(FORMS["text"]), **COLUMNS, time_unit="hour")
    table = romae.to_table(samples)
    assert table["when"].tolist() == list(FORMS["durations"])
    table.to_csv(tmp_path / "a.csv", index=False)
    again = romae.from_table_like(tmp_path / "a.csv", samples.schema)
    assert all(torch.equal(x.positions, y.positions) for x, y in zip(again, samples, strict=True))


@given(st.lists(st.integers(-(2**50), 2**50), min_size=1, max_size=5))
def test_durations_come_back_to_the_microsecond(microseconds):
    durations = pd.TimedeltaIndex(np.array(microseconds, "timedelta64[us]"))
    read = read_times(pd.Series(durations), "second", None, "column 't'", str)
    assert_array_equal(durations_from_numbers(read.numbers, "second").to_numpy(), durations.to_numpy())


def test_nothing_wraps_at_midnight():
    with refused(ValueError, "'when'", "23:50 to 00:10", "row 1", "midnight", "24:10"):
        romae.from_table(wards(["23:50", "00:10", "12:00"]), **COLUMNS)
    assert romae.from_table(wards(["23:50", "24:10", "12:00"]), **COLUMNS, time_unit="minute")[
        0
    ].positions.tolist() == [
        [23 * 60 + 50],
        [24 * 60 + 10],
    ]
    # A series that counts on past 24:00 is no time of day, and its rows may come in any order.
    assert romae.from_table(wards(["24:10", "23:50", "12:00"]), **COLUMNS)[0].positions[0].item() == 23 * 3600 + 50 * 60
    # Another series may begin earlier in the day, also where its rows stand between those of the first.
    frame = wards(["23:00", "23:50", "00:10"]).iloc[[0, 2, 1]]
    assert len(romae.from_table(frame, **COLUMNS)) == 2


@pytest.mark.filterwarnings("ignore:dropped")
def test_missing_times_are_dropped_and_others_named():
    assert [len(x) for x in romae.from_table(wards(["23:00", None, "00:10"]), **COLUMNS)] == [1, 1]
    with refused(TypeError, "08:00", "row 2 is 'noon'", "HH:MM"):
        romae.from_table(wards(["08:00", "09:00", "noon"]), **COLUMNS)
    with refused(TypeError, "'08:61'", "below 60"):
        romae.from_table(wards(["08:61", "09:00", "10:00"]), **COLUMNS)


def test_other_forms_than_in_training_are_refused():
    schema = romae.from_table(wards(FORMS["text"]), **COLUMNS, time_unit="hour").schema
    for when in ([8.0, 9.0, 10.0], pd.to_datetime(["2024-03-01"] * 3)):
        with refused(ValueError, "'when'", "durations", "hour"):
            romae.from_table_like(wards(when), schema)
    with refused(ValueError, "unit", "time_unit="):
        romae.Schema(durations=True)


def test_queries_are_durations_times_of_day_or_numbers():
    samples = romae.from_table(wards(FORMS["text"]), **COLUMNS, time_unit="hour")
    queries = pd.DataFrame({"ward": ["a", "a"], "when": ["23:00", "01:30"]})  # in any order
    asked, _ = read_queries(queries, samples)
    assert asked[0].tolist() == [[23.0], [1.5]]
    with refused(ValueError, "queries", "numbers", "durations"):
        read_queries(queries.assign(when=1.0), samples)
    for grid in ("0:6:3", "00:00:06:00:3"):
        assert grid_of_times(grid, samples.schema).ravel().tolist() == [0.0, 3.0, 6.0]
    with refused(ValueError, "'noon'", "a duration"):
        grid_of_times("noon:6:3", samples.schema)


@pytest.mark.usefixtures("without_shape_checks")
def test_a_model_answers_at_durations():
    size = romae.Size(width=16, heads=2, depth=1)
    when = ["08:00", "20:30", "00:15"]
    samples = romae.from_table(wards(when), **COLUMNS, time_unit="hour")
    task = romae.MaskedReconstruction(romae.ModelConfig(channels=1, position_dims=1, encoder=size, decoder=size))
    task.schema = samples.schema
    wanted = romae.interpolate(task, samples, [[8.5], [1.0]])
    for asked in ([["08:30"], ["01:00"]], [pd.to_timedelta([8.5], "h"), np.array([60], "timedelta64[m]")]):
        assert_array_equal(romae.interpolate(task, samples, asked), wanted)
    with refused(TypeError, "dates", "durations"):
        romae.interpolate(task, samples, [pd.to_datetime(["2024-03-01"])] * 2)

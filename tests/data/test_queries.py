"""Queries: a table and a grid ask for the same times, in the terms of the data."""

import pandas as pd
import pytest

from messages import refused
from romae.data.queries import grid_of_times, read_queries
from romae.data.schema import Schema
from romae.data.tables import from_table

DATES = pd.to_datetime(["2024-03-01 08:00", "2024-03-02 08:00"])


def dated(zone: str | None, id: str = "a"):
    table = pd.DataFrame({"id": id, "time": DATES.tz_localize(zone), "value": [1.0, 2.0]})
    return from_table(table, id="id", time="time", values="value", time_unit="hour")


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_dates_without_a_zone_are_in_that_of_the_data(zone):
    samples = dated(zone)
    asked, _ = read_queries(pd.DataFrame({"id": "a", "time": DATES}), samples)
    assert asked[0].tolist() == samples[0].positions.tolist()
    assert grid_of_times("2024-03-01 08:00:2024-03-02 08:00:2", samples.schema).tolist() == asked[0].tolist()


def test_dates_with_a_zone_are_asked_for_as_they_are():
    samples = dated("Europe/Berlin")
    elsewhere = DATES.tz_localize("Europe/Berlin").tz_convert("Asia/Tokyo")
    asked, _ = read_queries(pd.DataFrame({"id": "a", "time": elsewhere}), samples)
    assert asked[0].tolist() == samples[0].positions.tolist()


def test_dates_with_a_zone_are_refused_where_the_data_have_none():
    samples = dated(None)
    with refused(ValueError, "queries", "column 'time'", "time zone"):
        read_queries(pd.DataFrame({"id": "a", "time": DATES.tz_localize("Europe/Rome")}), samples)
    with refused(ValueError, "grid", "time zone"):
        grid_of_times("2024-03-01T08:00+02:00:2024-03-02T08:00+02:00:2", samples.schema)


def test_a_grid_of_more_times_than_memory_holds_is_refused():
    with refused(ValueError, "grid", "not enough memory", "10,000,000 times"):
        grid_of_times(f"0:1:{'9' * 400}", Schema())


def test_a_date_that_the_zone_lacks_is_named():
    queries = pd.DataFrame({"id": "a", "time": pd.to_datetime(["2024-03-30 02:30", "2024-03-31 02:30"])})
    with refused(ValueError, "row 1, column 'time'", "2024-03-31 02:30:00", "Europe/Berlin"):
        read_queries(queries, dated("Europe/Berlin"))


def test_ids_in_a_csv_file_are_read_as_those_of_the_data(tmp_path):
    (tmp_path / "a.csv").write_text("id,time\n12,2024-03-01 09:00:00\n")
    asked, _ = read_queries(tmp_path / "a.csv", dated(None, id="12"))
    assert len(asked[0]) == 1

"""Columns: dates survive the way to numbers and back; numbers and names are read as what they are."""

from datetime import datetime

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from messages import refused
from romae.data.columns import as_numbers, encode_names, frame_columns, to_numpy
from romae.data.dates import dates_from_numbers, numbers_from_dates, positions_as_numbers


def row(i: int) -> str:
    return f"row {i}"


@settings(deadline=None)
@given(st.lists(st.datetimes(datetime(1950, 1, 1), datetime(2050, 1, 1)), min_size=1))
def test_dates_survive_the_way_to_numbers_and_back(dates):
    dates = np.array(dates, dtype="datetime64[us]")
    for unit in ("second", "minute", "hour", "day"):
        assert dates_from_numbers(numbers_from_dates(dates, unit), unit, None).to_numpy().tolist() == dates.tolist()


@pytest.mark.parametrize(
    ("data", "read"),
    [
        ([1.0, 1e20], [1.0, np.nan]),
        ([1, 999999], [1.0, np.nan]),
        ([True, True], [1.0, np.nan]),
        (["a", "N/A"], ["a", None]),
        (np.array(["2024-03-01", "1970-01-01"], dtype="M8[D]"), np.array(["2024-03-01", "NaT"], dtype="M8[D]")),
    ],
)
def test_what_is_masked_is_missing(data, read):
    masked = np.ma.array(data, mask=[False, True])
    np.testing.assert_array_equal(to_numpy(masked), np.array(read))
    np.testing.assert_array_equal(to_numpy([masked, masked]), np.array([read, read]))
    whole = to_numpy(np.ma.array(data, mask=False))
    assert type(whole) is np.ndarray and whole.dtype == np.array(data).dtype


def test_numbers_are_brought_to_what_this_machine_knows():
    for kind, known in ((">f4", "f4"), (">i8", "i8"), (">M8[s]", "M8[s]"), ("longdouble", "f8"), ("f2", "f2")):
        assert to_numpy(np.ones(2, "i8").astype(kind)).dtype == np.dtype(known)
    x = np.ones(2)
    assert to_numpy(x) is x


def test_only_the_first_column_of_positions_may_hold_dates():
    day = pd.Timestamp("1970-01-03")
    for one in (day, day.to_datetime64(), day.to_pydatetime()):
        asked = np.array([[one, 0, 7.5], [one, 1, 2]], dtype=object)
        np.testing.assert_array_equal(positions_as_numbers(asked, "day", None, "x"), [[2, 0, 7.5], [2, 1, 2]])
    numbers = np.array([[1.0, 0.0]])
    assert positions_as_numbers(numbers, "day", None, "x") is numbers
    assert positions_as_numbers(np.empty((0, 2), dtype="M8[D]"), "day", None, "x").shape == (0, 2)


@pytest.mark.parametrize(
    ("asked", "parts"),
    [
        ([[pd.Timestamp(0), 0], [5.0, 1]], ["dates", "query 1 is 5.0", "dates throughout"]),
        ([[0.0, pd.Timestamp(0)]], ["dates", "query 0 is 0.0"]),
        ([pd.Timestamp(0), 1], ["dates", "query 1 is 1"]),
        ([[pd.Timestamp(0), "r"]], ["column 1 of x", "query 0 is 'r'"]),
        ([[pd.Timestamp(0), pd.Timestamp(1)]], ["column 1 of x", "query 0 is Timestamp"]),
        ([pd.Timestamp(0), pd.Timestamp(0, tz="UTC")], ["x cannot be read", "dates"]),
    ],
)
def test_what_stands_beside_dates_is_named(asked, parts):
    with refused((TypeError, ValueError), *parts):
        positions_as_numbers(np.array(asked, dtype=object), "day", None, "x")


def test_missing_numbers_are_nan_and_text_is_no_number():
    np.testing.assert_equal(as_numbers(pd.Series([1, None, 2.5], dtype=object), "flux", row), [1, np.nan, 2.5])
    with refused(TypeError, "flux", "numbers", "row 1 is '2'"):
        as_numbers(pd.Series([1, "2"], dtype=object), "flux", row)


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        ([1, np.complex64(1 + 2j)], ["flux", "row 1 is np.complex64"]),
        ([1, 2j], ["flux", "row 1 is 2j"]),
        ([1, np.timedelta64(3, "D")], ["flux", "row 1 is np.timedelta64"]),
        (["1,5", "2"], ["flux", "row 0 is '1,5'", "decimal comma"]),
        ([2**60, 2**60 + 1, None], ["flux", "double precision", "1.15e+18"]),
    ],
)
def test_what_is_no_number_is_named(given, parts):
    with refused((TypeError, ValueError), *parts):
        as_numbers(pd.Series(given, dtype=object), "flux", row)


@pytest.mark.parametrize("kind", ["int64", "uint64", "Int64", "int64[pyarrow]"])
def test_whole_numbers_stay_apart(kind):
    with refused(ValueError, "flux", "double precision"):
        as_numbers(pd.Series([2**60, 2**60 + 1], dtype=kind), "flux", row)
    assert as_numbers(pd.Series([2**60, 2**61], dtype=kind), "flux", row).tolist() == [2**60, 2**61]


def test_dates_with_a_zone_are_not_held_against_dates_without():
    asked = pd.date_range("2024-07-01", periods=2, tz="Europe/Rome").to_numpy()
    with refused(ValueError, "time zone", "Europe/Rome"):
        positions_as_numbers(asked, "day", None, "x")
    assert (
        positions_as_numbers(asked, "day", "UTC", "x").tolist()
        == positions_as_numbers(asked, "day", "Europe/Rome", "x").tolist()
    )


def test_a_pandas_column_may_have_an_index_only_beside_its_times():
    dated = [pd.Series([1.0, 2.0]), pd.Series([1.0, 2.0], index=[0.5, 7.0])]
    with refused(ValueError, "sample 1", "index", "times"):
        frame_columns(dated, has_times=False)
    assert frame_columns(dated, has_times=True) is None


def test_names_are_sorted_unless_they_are_known():
    column = pd.Series(["r", None, "g"], dtype=object)
    codes, names = encode_names(column, None, "band", row)
    assert codes.tolist() == [1, -1, 0] and names == ("g", "r")
    codes, names = encode_names(column, ["u", "r", "g"], "band", row)
    assert codes.tolist() == [1, -1, 2] and names == ("u", "r", "g")
    with refused(ValueError, "band 'g'", "row 2", "known are"):
        encode_names(column, ["r"], "band", row)


def test_whole_floats_are_integers_as_long_as_they_are_exact():
    assert encode_names(pd.Series([2.0, np.nan, 2.0**53 - 1]), None, "id", row)[1] == (2, 2**53 - 1)
    with refused(ValueError, "9007199254740992.0", "float too large"):
        encode_names(pd.Series([2.0, 2.0**53]), None, "id", row)

"""Columns: dates survive the way to numbers and back; numbers and names are read as what they are."""

from datetime import datetime

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from romae.data.columns import as_numbers, dates_from_numbers, encode_names, numbers_from_dates


def row(i: int) -> str:
    return f"row {i}"


@settings(deadline=None)
@given(st.lists(st.datetimes(datetime(1950, 1, 1), datetime(2050, 1, 1)), min_size=1))
def test_dates_survive_the_way_to_numbers_and_back(dates):
    dates = np.array(dates, dtype="datetime64[us]")
    for unit in ("second", "minute", "hour", "day"):
        assert dates_from_numbers(numbers_from_dates(dates, unit), unit, None).to_numpy().tolist() == dates.tolist()


def test_missing_numbers_are_nan_and_text_is_no_number():
    np.testing.assert_equal(as_numbers(pd.Series([1, None, 2.5], dtype=object), "flux", row), [1, np.nan, 2.5])
    with pytest.raises(TypeError, match="flux must hold numbers, and row 1 is '2'"):
        as_numbers(pd.Series([1, "2"], dtype=object), "flux", row)


def test_names_are_sorted_unless_they_are_known():
    column = pd.Series(["r", None, "g"], dtype=object)
    codes, names = encode_names(column, None, "band", row)
    assert codes.tolist() == [1, -1, 0] and names == ("g", "r")
    codes, names = encode_names(column, ["u", "r", "g"], "band", row)
    assert codes.tolist() == [1, -1, 2] and names == ("u", "r", "g")
    with pytest.raises(ValueError, match="band 'g' of row 2 is unknown; known are"):
        encode_names(column, ["r"], "band", row)


def test_whole_floats_are_integers_as_long_as_they_are_exact():
    assert encode_names(pd.Series([2.0, np.nan, 2.0**53 - 1]), None, "id", row)[1] == (2, 2**53 - 1)
    with pytest.raises(ValueError, match="id 9007199254740992.0 is a float too large to be exact"):
        encode_names(pd.Series([2.0, 2.0**53]), None, "id", row)

"""Codes for missing values: found in columns of measurements, and not where there are none."""

import warnings

import numpy as np
import pandas as pd
import pytest

from messages import assert_says
from romae.data.codes import codes_of
from romae.data.series import from_arrays
from romae.data.tables import from_table

RANDOM = np.random.default_rng(0)
MAGNITUDES = RANDOM.normal(13, 1.5, 400)


def with_codes(column: np.ndarray, *codes: float) -> np.ndarray:
    return np.concatenate([column[:-1], codes, column[-1:]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("code", [99.99, 99.999, 99.0, 999.0, -99.9, -999.0, -9999.0, 1e20, -1234.5])
def test_repeated_numbers_far_away_are_codes(code, dtype):
    column = with_codes(MAGNITUDES, *[code] * 5).astype(dtype)
    ((value, count),) = codes_of(column)
    assert value == pytest.approx(code, rel=1e-6) and count == 5
    assert codes_of(RANDOM.permutation(column)) == codes_of(column)


def test_a_column_may_have_several_codes():
    column = with_codes(MAGNITUDES, *[-999.0] * 4, *[-99.0] * 3, *[99.99] * 3)
    assert sorted(codes_of(column)) == [(-999.0, 4), (-99.0, 3), (99.99, 3)]


def test_minus_one_is_a_code_among_positive_numbers_alone():
    assert codes_of(with_codes(np.abs(MAGNITUDES), -1.0, -1.0, -1.0)) == [(-1.0, 3)]
    assert codes_of(with_codes(RANDOM.normal(0, 1, 300), -1.0, -1.0, -1.0)) == []
    assert codes_of(with_codes(np.arange(50.0), -1.0, -1.0, -1.0)) == []  # counts from 0 may go below
    assert codes_of(np.array([-1.0, 1.0] * 30)) == []  # a switch
    assert codes_of(with_codes(np.ones(40), -1.0, -1.0, -1.0)) == []


@pytest.mark.parametrize(
    "column",
    [
        MAGNITUDES,
        with_codes(MAGNITUDES, 99.99, 99.99),  # twice: perhaps a coincidence
        with_codes(MAGNITUDES, 900.0, 1000.0, 1100.0),  # outliers that differ
        with_codes(MAGNITUDES, *[25.0] * 8),  # near enough for a measurement
        np.clip(RANDOM.standard_cauchy(4000), -30, 30),  # clipped: what is near the limit lies below it too
        np.where(RANDOM.random(500) < 0.95, 0.0, RANDOM.exponential(5, 500)),  # rain
        np.where(RANDOM.random(500) < 0.99, 0.0, 1.0),
        np.array([1.0, 2.0, 999.0] * 20),  # categories
        with_codes(RANDOM.normal(98, 1, 300), *[99.0] * 5),  # a percentage
        np.full(20, 99.99),
        np.full(20, np.nan),
        np.zeros(0),
        10 ** RANDOM.normal(0, 2, 500),  # fluxes over orders of magnitude
    ],
)
def test_no_code_no_alarm(column):
    assert codes_of(column) == []


def test_reading_warns_once_with_column_value_and_count():
    n = len(MAGNITUDES)
    frame = pd.DataFrame({"id": np.arange(n) % 7, "time": np.arange(n), "mag": MAGNITUDES, "err": np.abs(MAGNITUDES)})
    frame.loc[[3, 50, 77, 200], "mag"] = 99.99
    frame.loc[[4, 51, 78], "err"] = -1.0
    with pytest.warns(UserWarning, match="codes") as told:
        from_table(frame, id="id", time="time", values=["mag", "err"])
    assert len(told) == 1
    assert_says(str(told[0].message), "'mag'", "99.99 (4 times)", "'err'", "-1 (3 times)", "NaN")
    with pytest.warns(UserWarning) as told:
        from_arrays([frame[["mag", "err"]].to_numpy()], channels=["mag", "err"])
    assert_says(str(told[0].message), "'mag'", "99.99 (4 times)", "'err'")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_arrays([frame[["mag", "err"]].to_numpy()], for_training=False)
        from_table(frame[frame["mag"] < 50].query("err > 0"), id="id", time="time", values=["mag", "err"])


def test_channels_are_looked_at_one_by_one():
    """A pressure of a thousand is none of the codes of a temperature, nor of both together."""
    n = 200
    long = pd.DataFrame(
        {
            "id": np.tile(np.arange(n) % 5, 2),
            "time": np.tile(np.arange(n), 2),
            "sensor": ["t"] * n + ["p"] * n,
            "value": np.concatenate([RANDOM.normal(15, 5, n), RANDOM.normal(1000, 10, n)]),
        }
    )
    long.loc[[7, 8, 9], "value"] = -999.0
    with pytest.warns(UserWarning) as told:
        from_table(long, id="id", time="time", channel="sensor", values="value")
    assert_says(str(told[0].message), "channel 't'", "-999 (3 times)")
    wide = long.pivot(index=["id", "time"], columns="sensor", values="value").reset_index()
    wide.loc[11, "p"] = np.nan
    with pytest.warns(UserWarning) as told:
        from_table(wide, id="id", time="time", values=["p", "t"], tokens="scalars")
    assert_says(str(told[0].message), "column 't'", "-999 (3 times)")

"""Predictions as tables: they line up with the data they were made for."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from messages import refused
from romae.data.export import to_sample_table, to_table
from romae.data.scaling import fit_scaling
from romae.data.schema import SampleSet, Schema
from romae.data.series import from_arrays
from romae.data.tables import from_table
from romae.tokens.sample import Sample
from romae.tokens.tokens import collate

COLUMNS = dict(id="star", time="when", channel="band", values=["flux", "error"], positions=["airmass"])


def light_curves(**changes) -> pd.DataFrame:
    table = {
        "star": [4, 4, 2, 2, 2],
        "when": [2.5, 1.0, 0.0, 0.0, 3.0],
        "airmass": [1.0, 1.5, 1.25, 1.25, 2.0],
        "band": ["r", "g", "g", "r", "r"],
        "flux": [10.0, 20.0, 30.0, 40.0, 50.0],
        "error": [1.0, 2.0, 3.0, 4.0, 5.0],
    }
    return pd.DataFrame(table | changes)


def canonical(frame: pd.DataFrame) -> pd.DataFrame:
    names = ["star", "when", "band", "flux"]
    return frame[["star", "when", "airmass", "band", "flux", "error"]].sort_values(names, ignore_index=True)


rows = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.floats(-1e9, 1e9),
        st.floats(-10, 10),
        st.sampled_from("gri"),
        st.floats(-1e6, 1e6, width=32),
        st.floats(0, 1e6, width=32),
    ),
    min_size=1,
)


@settings(deadline=None)
@given(rows)
def test_a_table_of_the_samples_is_the_table_they_came_from(rows):
    frame = pd.DataFrame(rows, columns=["star", "when", "airmass", "band", "flux", "error"])
    back = to_table(from_table(frame, **COLUMNS))
    by = list(frame.columns)
    pd.testing.assert_frame_equal(
        back[by].sort_values(by, ignore_index=True), frame.sort_values(by, ignore_index=True), check_dtype=False
    )


@pytest.mark.parametrize("zone", [None, "America/Santiago", "UTC+02:00"])
@pytest.mark.parametrize("unit", ["second", "day"])
def test_dates_come_back_as_dates(zone, unit):
    texts = ["2026-03-29T02:30:00.123456", "2031-01-01", "2000-02-29", "1969-07-20T20:17", "2024-06-01"]
    when = pd.to_datetime(texts, format="ISO8601")
    frame = light_curves(when=when if zone is None else when.tz_localize("UTC").tz_convert(zone))
    back = canonical(to_table(from_table(frame, **COLUMNS, time_unit=unit)))
    pd.testing.assert_frame_equal(back, canonical(frame), check_dtype=False)
    assert isinstance(back["when"].dtype, pd.DatetimeTZDtype) == (zone is not None)


def test_predictions_line_up_with_ids_times_and_channels():
    samples = from_table(light_curves(), **COLUMNS)
    predictions = [10 * sample.values for sample in samples]
    expected = light_curves()
    expected[["flux", "error"]] *= 10
    for form in (predictions, [p.numpy() for p in predictions], torch.cat(predictions)):
        pd.testing.assert_frame_equal(canonical(to_table(samples, form)), canonical(expected), check_dtype=False)


def test_predictions_of_a_scaled_model_come_back_in_the_units_of_the_data():
    samples = from_table(light_curves(), **COLUMNS)
    scaling = fit_scaling(samples, origin="min", unit="gap")
    scaled = samples.map(scaling.apply)
    back = [scaling.invert_values(s.values, raw.positions) for s, raw in zip(scaled, samples, strict=True)]
    pd.testing.assert_frame_equal(
        canonical(to_table(samples, back)), canonical(light_curves()), check_dtype=False, rtol=1e-6
    )


def test_predictions_of_hidden_tokens_stand_at_those_tokens():
    samples = from_table(light_curves(), **COLUMNS)
    masked = SampleSet([replace(s, hidden=[False] * (len(s) - 1) + [True]) for s in samples], samples.schema)
    hidden = collate(masked).hidden
    assert hidden is not None
    table = to_table(masked, hidden.values)
    assert table[["star", "when", "band", "flux"]].values.tolist() == [[2, 3.0, "r", 50.0], [4, 2.5, "r", 10.0]]
    assert len(to_table(masked, [s.values for s in masked])) == 5


def test_predictions_are_not_called_like_a_position():
    samples = from_table(light_curves(), **COLUMNS)
    with refused(ValueError, "['when']", "columns="):
        to_table(samples, [s.values for s in samples], columns=["when", "flux"])
    with refused(ValueError, "['star']", "more than once"):
        to_sample_table(samples, [1.0, 2.0], columns=["star"])


def test_predictions_at_other_positions():
    samples = from_table(light_curves(), **COLUMNS)
    positions = [[[7.0, 1.0, 1.0]], [[8.0, 1.0, 0.0], [9.0, 1.0, 1.0]]]
    table = to_table(samples, np.arange(6.0).reshape(3, 2), positions=positions)
    assert table["star"].tolist() == [2, 4, 4] and table["when"].tolist() == [7, 8, 9]
    assert table["band"].tolist() == ["r", "g", "r"] and table["error"].tolist() == [1, 3, 5]


def test_positions_are_taken_as_interpolation_takes_them():
    dates = np.datetime64("2024-03-01") + np.arange(4)
    dated, numbered = (from_arrays(np.ones((1, 4, 1)), times) for times in (dates, np.arange(4.0)))
    assert to_table(dated, np.ones((2, 1)), positions=[dates[1:3]])["time"].dt.day.tolist() == [2, 3]
    assert to_table(numbered, np.ones((2, 1)), positions=[[5.0, 7.0]])["time"].tolist() == [5, 7]
    with refused(TypeError, "sample 0", "dates", "numbers"):
        to_table(numbered, np.ones((2, 1)), positions=[dates[1:3]])
    with refused(TypeError, "sample 0", "numbers"):
        to_table(numbered, np.ones((2, 1)), positions=[["noon", "night"]])


def test_dates_stand_beside_the_numbers_of_other_axes():
    day = pd.Timestamp("2024-03-02")
    dated = from_arrays(np.ones((1, 2, 2)), np.array(["2024-03-01", "2024-03-03"], dtype="M8[D]"), tokens="scalars")
    for asked in (np.array([[day, 0], [day, 1]], dtype=object), pd.DataFrame({"when": [day, day], "channel": [0, 1]})):
        table = to_table(dated, np.ones((2, 1)), positions=[asked])
        assert table["time"].tolist() == [day, day] and table["channel"].tolist() == [0, 1]


def test_what_is_predicted_may_have_names_of_its_own():
    samples = from_table(light_curves(), **COLUMNS)
    table = to_table(samples, np.ones((5, 1)), columns=["period"])
    assert list(table.columns) == ["star", "when", "airmass", "band", "period"]


def test_samples_of_arrays_have_columns_too():
    samples = from_arrays([[[1.0, 2.0]], [[3.0, 4.0]]], ids=["a", "b"])
    assert to_table(samples).values.tolist() == [["a", 0.0, 1.0, 2.0], ["b", 0.0, 3.0, 4.0]]
    plain = [Sample([[1.0]], [[0.5]]), Sample([[2.0]], [[1.5]])]
    assert to_table(plain, schema=Schema()).values.tolist() == [[0, 0.5, 1], [1, 1.5, 2]]


def test_one_row_per_sample_with_the_probability_of_each_class():
    samples = from_arrays(np.ones((2, 1, 1)), y=["dog", "cat"], ids=["x", "y"])
    table = to_sample_table(samples, torch.tensor([[0.25, 0.75], [0.9, 0.1]]))
    assert list(table.columns) == ["id", "label", "probability_cat", "probability_dog"]
    assert table["id"].tolist() == ["x", "y"] and table["label"].tolist() == ["dog", "cat"]
    assert table["probability_dog"].tolist() == pytest.approx([0.75, 0.1])


def test_one_row_per_sample_with_its_numbers():
    frame = light_curves(mass=[0.5, 0.5, 1.5, 1.5, 1.5])
    samples = from_table(frame, **COLUMNS, label="mass")
    assert to_sample_table(samples, [1.0, 2.0]).to_dict("list") == {"star": [2, 4], "mass": [1.0, 2.0]}
    assert list(to_sample_table(samples, np.ones((2, 2))).columns) == ["star", "mass_0", "mass_1"]
    assert list(to_sample_table(samples, np.ones((2, 2)), columns=["m", "s"]).columns) == ["star", "m", "s"]


def test_what_does_not_line_up_is_named():
    samples = from_table(light_curves(), **COLUMNS)
    with refused(ValueError, "sample 4", "[2, 2]", "[3, 2]"):
        to_table(samples, [np.ones((3, 2)), np.ones((3, 2))])
    with refused(ValueError, "4 rows", "5 tokens"):
        to_table(samples, np.ones((4, 2)))
    with refused(ValueError, "1 samples", "there are 2"):
        to_table(samples, [np.ones((3, 2))])
    with refused(ValueError, "1 columns", "'flux', 'error'", "columns="):
        to_table(samples, np.ones((5, 1)))
    with refused(ValueError, "distinct", "'band'"):
        to_table(samples, np.ones((5, 1)), columns=["band"])
    with refused(ValueError, "schema"):
        to_table([sample.with_schema(None) for sample in samples])
    with refused(ValueError, "3 position axes", "schema names 1"):
        to_table(list(samples), schema=Schema(values=("flux", "error")))
    with refused(ValueError, "token 0 has 5.0", "0 to 1"):
        to_table(samples, np.ones((2, 2)), positions=[[[0.0, 1.0, 5.0]], [[0.0, 1.0, 0.0]]])
    with refused(ValueError, "no samples"):
        to_table(samples[:0])


def test_sample_tables_that_do_not_line_up_are_named():
    samples = from_arrays(np.ones((2, 1, 1)), y=["dog", "cat"], ids=["x", "y"])
    with refused(ValueError, "'y'", "sum to 1", "softmax"):
        to_sample_table(samples, [[0.5, 0.5], [3.0, -1.0]])
    with refused(ValueError, "3 probabilities", "2 classes"):
        to_sample_table(samples, np.ones((2, 3)) / 3)
    with refused(ValueError, "2 samples", "[3, 2]"):
        to_sample_table(samples, np.ones((3, 2)) / 2)


def test_no_column_is_lost_to_another_of_its_name():
    samples = from_arrays(np.ones((3, 4, 1)))
    for columns, schema in ((["x", "x"], None), (["id", "x"], None)):
        with refused(ValueError, "distinct"):
            to_sample_table(samples, np.ones((3, 2)), schema, columns=columns)
    with refused(ValueError, "distinct", "['label']"):
        to_sample_table(samples, np.ones(3), Schema(id="label"))
    with refused(ValueError, "must be distinct"):
        to_table(samples, np.ones((12, 2)), columns=["x", "x"])


def test_nothing_asked_of_one_sample_has_no_row():
    samples = from_arrays(np.ones((2, 4, 1)), tokens="scalars")
    table = to_table(samples, [np.zeros((0, 1)), np.ones((1, 1))], positions=[[], [[1.0, 0.0]]])
    assert table["id"].tolist() == [1]

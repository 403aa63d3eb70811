"""Tables become samples: laws, known answers and bad input."""

import gzip
import warnings
from datetime import UTC, time, timedelta, timezone

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from dateutil import tz
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import feather, parquet

from messages import refused, warned
from romae.config import from_dict, to_dict
from romae.data import tables
from romae.data.export import to_table
from romae.data.frames import require_columns
from romae.data.schema import Schema
from romae.data.tables import from_table, from_table_like

ZONES = [pd.Timestamp("2024", tz=zone) for zone in ("UTC", "Asia/Tokyo", "UTC", "UTC", "UTC")]
COLUMNS = dict(id="object", time="mjd", channel="band", values=["flux", "error"], label="kind")


@pytest.fixture
def frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "object": ["b", "a", "b", "b", "a"],
            "mjd": [59000.25, 59001.5, 58999.5, 59000.25, 59000.5],
            "band": ["r", "g", "g", "g", "i"],
            "flux": [3.0, 1.0, 2.0, 4.0, 5.0],
            "error": [0.3, 0.1, 0.2, 0.4, 0.5],
            "kind": ["SN", "RR", "SN", "SN", "RR"],
        }
    )


def same(first, second) -> bool:
    return len(first) == len(second) and all(
        a.id == b.id
        and torch.equal(a.values, b.values)
        and torch.equal(a.positions, b.positions)
        and ((a.target is None) == (b.target is None))
        and (a.target is None or torch.equal(a.target, b.target))
        for a, b in zip(first, second, strict=True)
    )


def test_labels_are_read_by_what_a_column_of_objects_holds(frame):
    for labels, classes in (
        ([2.0, 1.0, 2.0, 2.0, 1.0], None),
        ([2, 1, 2, 2, 1], (1, 2)),
        (["b", "a", "b", "b", "a"], ("a", "b")),
    ):
        samples = from_table(frame.assign(kind=pd.Series(labels, dtype=object)), **COLUMNS)
        assert samples.schema.classes == classes
        assert [float(s.target) for s in samples] == ([1, 2] if classes is None else [0, 1])
    gap = pd.Series([2.0, 1.0, None, 2.0, 1.0], dtype=object)
    with refused(ValueError, "labels", "row 2"):
        from_table(frame.assign(kind=gap), **COLUMNS)


def test_columns_may_have_any_byte_order(frame):
    frame["object"] = frame["object"].map({"a": 1, "b": 2})
    plain, read = frame.assign(kind=frame["object"]), pd.DataFrame(index=frame.index)
    for name in plain:
        column = plain[name].to_numpy()
        read[name] = column if name == "band" else column.astype(column.dtype.newbyteorder(">"))
    assert not read["object"].dtype.isnative
    assert same(from_table(read, **COLUMNS), from_table(plain, **COLUMNS))


def test_a_known_table(frame):
    samples = from_table(frame, **COLUMNS)
    assert [s.id for s in samples] == ["a", "b"]
    assert samples[1].positions.tolist() == [[58999.5, 0], [59000.25, 0], [59000.25, 2]]
    assert torch.equal(samples[1].values, torch.tensor([[2, 0.2], [4, 0.4], [3, 0.3]]))
    assert [int(s.target) for s in samples] == [0, 1]
    assert samples.schema == Schema(
        id="object",
        time="mjd",
        channel="band",
        values=("flux", "error"),
        label="kind",
        channels=("g", "i", "r"),
        classes=("RR", "SN"),
    )
    assert from_dict(Schema, to_dict(samples.schema)) == samples.schema


rows = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.sampled_from([-0.5, 0.0]),  # few times, so that they repeat
        st.sampled_from("gr"),
        st.floats(-1e6, 1e6, width=32),
        st.integers(0, 1),
    ),
    min_size=1,
)


@settings(deadline=None)
@given(rows, st.randoms(use_true_random=False))
def test_the_order_of_the_rows_does_not_matter(rows, random):
    names = ["id", "time", "channel", "value", "depth"]
    shuffled = random.sample(rows, len(rows))
    first, second = (
        from_table(
            pd.DataFrame(r, columns=names), id="id", time="time", channel="channel", values="value", positions="depth"
        )
        for r in (rows, shuffled)
    )
    assert same(first, second) and first.schema == second.schema
    assert sum(len(s) for s in first) == len(rows)


def test_every_kind_of_table_gives_the_same_samples(frame, tmp_path):
    expected = from_table(frame, **COLUMNS)
    arrow = pa.Table.from_pandas(frame.set_index("object", append=True).reset_index(level="object"))
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_csv(tmp_path / "a.csv.gz", index=False)
    parquet.write_table(arrow, tmp_path / "a.parquet")
    feather.write_feather(arrow, tmp_path / "a.feather")
    labelled = frame.set_index(pd.Index([7, 7, 7, 7, 7])).astype({"object": "category", "band": "category"})
    backed = frame.convert_dtypes(dtype_backend="pyarrow")
    tables = [arrow, tmp_path / "a.csv", str(tmp_path / "a.csv.gz"), tmp_path / "a.parquet", labelled, backed]
    tables.append(tmp_path / "a.feather")
    for table in tables:
        assert same(from_table(table, **COLUMNS), expected), table


def test_integers_as_ids_and_channels_sort_as_numbers(frame):
    frame = frame.assign(object=[10, 9, 10, 10, 9], band=[12, 2, 2, 2, 3])
    samples = from_table(frame, **COLUMNS)
    assert [s.id for s in samples] == [9, 10] and all(type(s.id) is int for s in samples)
    assert samples.schema.channels == (2, 3, 12)


@pytest.mark.parametrize("column", ["object", "band"])
@pytest.mark.parametrize(
    ("names", "parts"),
    [
        ([1, True, 1, 1, True], ["row 0 is 1", "row 1 is True", "astype(str)"]),
        ([1, 1, 1.0, 1, 1], ["row 0 is 1", "row 2 is 1.0"]),
        ([None, "1", 1, 1, "1"], ["row 1 is '1'", "row 2 is 1"]),
    ],
)
def test_names_of_several_types_are_refused_before_equal_ones_become_one(frame, column, names, parts):
    with refused(TypeError, *parts):
        from_table(frame.assign(**{column: pd.Series(names, dtype=object)}), **COLUMNS)


def test_whole_numbers_of_python_and_numpy_are_names_of_one_type(frame):
    names = pd.Series([np.int64(2), 1, 2, np.uint8(2), 1], dtype=object)
    assert [sample.id for sample in from_table(frame.assign(object=names), **COLUMNS)] == [1, 2]


@pytest.mark.parametrize("column", ["mjd", "flux"])
def test_numbers_beyond_double_precision_are_refused(frame, column):
    numbers = pd.Series([1, 2, 3, 10**400, 5], dtype=object)
    with refused(ValueError, column, "row 3", "larger units"):
        from_table(frame.assign(**{column: numbers}), **COLUMNS)


VITALS = pd.DataFrame(
    {
        "id": [2, 1, 1, 1, 2, 1],
        "hour": [1.0, 0.0, 1.0, 2.0, 0.0, 3.0],
        "HR": [np.nan, 80, np.nan, 82, 70, np.nan],
        "BP": [111, np.nan, 120, 121, np.nan, np.nan],
    }
)
WIDE = dict(id="id", time="hour", values=["HR", "BP"])


def test_a_table_with_a_column_per_channel_keeps_every_number():
    with warned(UserWarning, "4 of 6 rows", "HR, BP", "tokens='scalars'", "tokens='steps'"):
        chosen = from_table(VITALS, **WIDE)
    with warned(UserWarning, "dropped 1 of 6", "'HR and BP': 1"):
        asked = from_table(VITALS, **WIDE, tokens="scalars")
    long = VITALS.melt(id_vars=["id", "hour"], var_name="channel").dropna()
    expected = from_table(long, id="id", time="hour", channel="channel", values="value", channels=["HR", "BP"])
    for samples in (chosen, asked):
        assert same(samples, expected) and samples.schema == expected.schema
    with refused(ValueError, "sample 2"):
        from_table(VITALS, **WIDE, tokens="steps")
    with warned(UserWarning, "dropped 2 of 3"):
        assert [len(s) for s in from_table(VITALS[VITALS["id"] == 1][1:], **WIDE, tokens="steps")] == [1]


def test_a_table_whose_rows_are_whole_or_empty_has_a_token_for_each_row():
    whole = VITALS.assign(BP=VITALS["HR"] + 40)
    with warned(UserWarning, "dropped 3 of 6"):
        samples = from_table(whole, **WIDE)
    assert [s.values.tolist() for s in samples] == [[[80, 120], [82, 122]], [[70, 110]]]
    assert samples.schema.channel is None


def test_labels_and_positions_stay_with_each_number_of_a_row():
    table = VITALS.dropna(how="all", subset=["HR", "BP"]).assign(depth=5.0, kind=["x", "y", "y", "y", "x"])
    samples = from_table(table, **WIDE, tokens="scalars", positions="depth", label="kind")
    assert samples[0].positions.tolist() == [[0, 5, 0], [1, 5, 1], [2, 5, 0], [2, 5, 1]]
    assert [int(s.target) for s in samples] == [1, 0] and samples.schema.classes == ("x", "y")


def test_a_table_like_one_with_a_column_per_channel_may_be_wide_or_long(tmp_path):
    samples = from_table(VITALS[:5], **WIDE, tokens="scalars")
    VITALS[:5].to_csv(tmp_path / "wide.csv", index=False)
    for table in (VITALS[:5], tmp_path / "wide.csv", to_table(samples)):
        again = from_table_like(table, samples.schema)
        assert same(again, samples) and again.schema == samples.schema
    whole = from_table_like(VITALS[3:4], samples.schema)
    assert whole[0].positions.tolist() == [[2, 0], [2, 1]], "one complete row changes nothing"
    with refused(ValueError, "none for 'BP'", "column 'channel'"):
        from_table_like(VITALS.drop(columns="BP"), samples.schema)


def test_columns_that_are_called_channel_and_value_do_not_get_in_the_way():
    table = VITALS[:5].rename(columns={"HR": "value", "BP": "channel"})
    samples = from_table(table, id="id", time="hour", values=["value", "channel"], tokens="scalars")
    assert (samples.schema.channel, samples.schema.values) == ("channel_", ("value_",))
    assert same(from_table_like(table, samples.schema), from_table(VITALS[:5], **WIDE, tokens="scalars"))


def test_the_values_of_a_row_with_a_channel_are_no_scalars(frame, without_shape_checks):
    with refused(ValueError, "tokens='scalars'", "'band'", "column per channel"):
        from_table(frame, **COLUMNS, tokens="scalars")
    with refused(ValueError, "'steps', 'scalars'", "'rows'"):
        from_table(frame, **COLUMNS, tokens="rows")


def test_names_given_fix_the_order_of_channels(frame):
    samples = from_table(frame, **COLUMNS, channels=["g", "r", "i", "z"])
    assert samples[1].positions[:, 1].tolist() == [0, 0, 1]
    assert samples.schema.channels == ("g", "r", "i", "z")


def test_without_a_channel_positions_are_time_and_the_further_columns(frame):
    samples = from_table(frame, id="object", time="mjd", values="flux", positions=["error"])
    assert samples[0].positions.tolist() == [[59000.5, 0.5], [59001.5, 0.1]]
    assert samples[0].target is None and samples.schema.position_dims == 2


def test_floats_are_numbers_to_predict(frame):
    samples = from_table(frame.assign(kind=[0.5, 2, 0.5, 0.5, 2]), **COLUMNS)
    assert [float(s.target) for s in samples] == [2.0, 0.5] and samples.schema.classes is None


DATES = [(how, zone) for how in ("pandas", "pyarrow", "objects") for zone in (None, "UTC", "Europe/Paris")]


@pytest.mark.parametrize(("how", "zone"), [*DATES, ("csv", None), ("csv", "UTC")])  # a CSV file knows no zones but UTC
def test_dates_become_numbers_with_their_unit(frame, zone, how, tmp_path):
    dates = pd.to_datetime("1970-01-01", utc=True) + pd.to_timedelta([36, 24, 12, 48, 0], unit="h")
    frame["mjd"] = dates.tz_localize(None) if zone is None else dates.tz_convert(zone)
    if how == "pyarrow":
        frame = frame.convert_dtypes(dtype_backend="pyarrow").astype({"mjd": pd.ArrowDtype(pa.timestamp("ns", zone))})
    elif how == "objects":
        frame["mjd"] = frame["mjd"].astype(object)
    elif how == "csv":
        frame.to_csv(tmp_path / "a.csv", index=False)
        frame = tmp_path / "a.csv"
    samples = from_table(frame, **COLUMNS, time_unit="hour")
    assert [s.positions[:, 0].tolist() for s in samples] == [[0, 24], [12, 36, 48]]
    assert samples.schema.time_unit == "hour" and samples.schema.time_zone == zone


def test_rows_with_a_missing_value_are_dropped_and_counted(frame):
    frame.loc[0, "flux"] = np.nan
    frame.loc[1, ["band", "error"]] = [None, np.nan]
    with warned(UserWarning, "2 of 5 rows", "'flux': 1, 'error': 1", "'band': 1") as caught:
        samples = from_table(frame, **COLUMNS)
    assert len(caught) == 1
    assert [len(s) for s in samples] == [1, 2]


def test_an_empty_cell_of_a_csv_file_is_missing(tmp_path):
    (tmp_path / "a.csv").write_text("id,time,channel,value\np,0,HR,80\np,1,,70\np,2,pH,\np,3,pH,7.5\n")
    with warned(UserWarning, "2 of 4 rows", "'value': 1, 'channel': 1"):
        samples = from_table(tmp_path / "a.csv", id="id", time="time", channel="channel", values="value")
    assert samples[0].positions.tolist() == [[0, 0], [3, 1]] and samples.schema.channels == ("HR", "pH")


LARGE = [4295806720000000000 + i for i in range(4)]
FEW = dict(id="id", time="time", values="value")


@pytest.mark.parametrize("how", ["csv", "pyarrow", "parquet", "pandas"])
@pytest.mark.filterwarnings("ignore:dropped")
def test_large_integers_stay_apart_where_one_is_missing(how, tmp_path):
    names = pd.array([*np.repeat(LARGE, 2), None], dtype="Int64")
    table = pd.DataFrame({"id": names, "time": range(9), "value": 1.5, "band": names, "kind": names})
    if how == "csv":
        table.to_csv(tmp_path / "a.csv", index=False)
        table = tmp_path / "a.csv"
    elif how == "parquet":
        table.to_parquet(tmp_path / "a.parquet")
        table = tmp_path / "a.parquet"
    elif how == "pyarrow":
        table = pa.Table.from_pandas(table)
    samples = from_table(table, **FEW, channel="band", label="kind")
    assert [s.id for s in samples] == LARGE and [len(s) for s in samples] == [2, 2, 2, 2]
    assert samples.schema.channels == samples.schema.classes == tuple(LARGE)


def test_floats_that_may_have_lost_digits_are_no_ids():
    table = pd.DataFrame({"id": [*map(float, LARGE), np.nan], "time": 0.0, "value": 1.5})
    with refused(ValueError, "'id'", "e+18", "'Int64'"):
        from_table(table, **FEW)


@pytest.mark.parametrize(
    ("cells", "names"),
    [
        (["7", "-1", "10"], (-1, 7, 10)),
        ([" 7", "10 "], (7, 10)),
        (["007", "7"], ("007", "7")),
        (["007", "010"], ("007", "010")),
        (["+7", "7"], ("+7", "7")),
        (["0x1F", "31"], ("0x1F", "31")),
        (["99999999999999999998", "99999999999999999999"], ("99999999999999999998", "99999999999999999999")),
        (["True", "False"], (False, True)),
        (["1", "true"], ("1", "true")),
        (["2024-03-01", "2024-03-02"], ("2024-03-01", "2024-03-02")),
    ],
)
def test_names_in_a_csv_file_are_integers_only_where_nothing_of_their_text_is_lost(cells, names, tmp_path):
    rows = [f"{cell},{time},1.5,{cell},{cell}" for cell in cells for time in (0, 1)]
    (tmp_path / "a.csv").write_text("\n".join(["id,time,value,band,kind", *rows, ""]))
    samples = from_table(tmp_path / "a.csv", **FEW, channel="band", label="kind")
    found = tuple(s.id for s in samples)
    assert found == samples.schema.channels == samples.schema.classes == names
    assert {type(name) for name in found} == {type(names[0])} and [len(s) for s in samples] == [2] * len(names)


def test_a_csv_file_is_read_by_the_kind_of_the_known_names(tmp_path):
    (tmp_path / "a.csv").write_text("id,time,value,band,kind\n1,0,1.5,007,01\n2,0,1.5,12,12\n")
    (tmp_path / "b.csv").write_text("id,time,value,band,kind\n1,0,1.5,12,12\n")
    trained = from_table(tmp_path / "a.csv", **FEW, channel="band", label="kind")
    again = from_table_like(tmp_path / "b.csv", trained.schema)
    assert again[0].positions.tolist() == [[0, 1]] and int(again[0].target) == 1


def test_the_label_of_a_dropped_row_does_not_make_numbers_of_classes(tmp_path):
    (tmp_path / "a.csv").write_text("id,time,value,kind\n1,0,1,0\n1,1,2,0\n2,0,1.5,3\n2,1,1.7,3\n2,2,,\n")
    with warned(UserWarning, "1 of 5 rows"):
        samples = from_table(tmp_path / "a.csv", **FEW, label="kind")
    assert samples.schema.classes == (0, 3) and [int(s.target) for s in samples] == [0, 1]


def test_numbers_to_predict_stay_numbers_where_they_are_whole(frame, tmp_path):
    trained = from_table(frame.assign(kind=[30.5, 40.0, 30.5, 30.5, 40.0]), **COLUMNS)
    whole = frame.assign(kind=[50, 70, 50, 50, 70])
    whole.to_csv(tmp_path / "a.csv", index=False)
    for table in (whole, pa.Table.from_pandas(whole), tmp_path / "a.csv"):
        targets = [s.target for s in from_table_like(table, trained.schema)]
        assert all(t.is_floating_point() for t in targets) and [float(t) for t in targets] == [70.0, 50.0]
    with refused(TypeError, "'kind'", "numbers", "row 0 is 'SN'"):
        from_table_like(frame, trained.schema)
    with refused(ValueError, "labels", "row 3", "'b'"):
        from_table_like(frame.assign(kind=[50, 70, 50, None, 70]), trained.schema)


def test_dates_without_a_zone_are_read_in_that_of_the_schema(frame):
    dates = pd.date_range("2024-03-30 08:00", periods=5, freq="D")
    trained = from_table(frame.assign(mjd=dates.tz_localize("Europe/Berlin")), **COLUMNS)
    assert same(from_table_like(frame.assign(mjd=dates), trained.schema), trained)
    naive = from_table(frame.assign(mjd=dates), **COLUMNS)
    with refused(ValueError, "'mjd'", "time zone Europe/Berlin", "known have no"):
        from_table_like(frame.assign(mjd=dates.tz_localize("Europe/Berlin")), naive.schema)
    for unclear in ("2024-03-31 02:30", "2024-10-27 02:30"):
        with refused(ValueError, "row 0, column 'mjd'", f"{unclear}:00", "Europe/Berlin"):
            from_table_like(frame.assign(mjd=pd.Timestamp(unclear)), trained.schema)


@pytest.mark.parametrize(
    ("zone", "name"),
    [
        (UTC, "UTC"),
        (tz.tzutc(), "UTC"),
        (tz.tzoffset(None, 3600), "UTC+01:00"),
        (timezone(timedelta(hours=-5), "here"), "UTC-05:00"),
        ("Etc/GMT+5", "Etc/GMT+5"),
    ],
)
def test_dates_come_back_in_the_zone_they_had(frame, zone, name):
    dates = pd.date_range("2024-03-01", periods=5, tz="UTC").tz_convert(zone)
    samples = from_table(frame.assign(mjd=dates), **COLUMNS)
    assert samples.schema.time_zone == name
    assert sorted(to_table(samples)["mjd"].map(str)) == sorted(map(str, dates))


def test_a_zone_without_a_name_is_refused(frame):
    dates = pd.date_range("2024-03-01", periods=5).tz_localize(tz.gettz("Europe/Berlin"))
    with refused(ValueError, "'mjd'", "no name", "tz_convert('Europe/Berlin')"):
        from_table(frame.assign(mjd=dates), **COLUMNS)


def test_a_unit_that_does_not_exist_is_named(frame, without_shape_checks):
    with refused(ValueError, "'week'", "minute", "day"):
        from_table(frame.assign(mjd=pd.Timestamp("2024-03-01")), **COLUMNS, time_unit="week")


def test_what_would_not_be_looked_at_is_refused(frame, without_shape_checks):
    with refused(ValueError, "time unit", "'week'"):
        from_table(frame, **COLUMNS, time_unit="week")
    with refused(ValueError, "classes", "label="):
        from_table(frame, **COLUMNS | {"label": None}, classes=["SN", "RR"])
    with refused(TypeError, "schema", "samples.schema", "not NoneType"):
        from_table_like(frame, None)


def test_a_complete_table_does_not_warn(frame):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_table(frame, **COLUMNS)


def test_a_table_like_the_training_set(frame):
    trained = from_table(frame, **COLUMNS)
    again = from_table_like(frame[frame["band"] != "g"], trained.schema)
    assert again.schema == trained.schema
    assert again[0].positions[:, 1].tolist() == [1] and int(again[1].target) == 1
    assert from_table_like(frame.drop(columns="kind"), trained.schema)[0].target is None
    with refused(ValueError, "class 'AGN'", "known are"):
        from_table_like(frame.replace({"kind": {"SN": "AGN"}}), trained.schema)
    with refused(ValueError, "'band'", "'z'", "row 0"):
        from_table_like(frame.replace({"band": {"r": "z"}}), trained.schema)
    with refused(ValueError, "'mjd'", "dates", "numbers"):
        from_table_like(frame.assign(mjd=pd.Timestamp("2020-01-01")), trained.schema)


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (dict(flux=["1", "2", "3", "4", "5"]), ["'flux'", "numbers", "row 0 is '1'"]),
        (dict(flux=[1.0, 2.0, "bad", 4.0, 5.0]), ["'flux'", "numbers", "row 2 is 'bad'"]),
        (dict(flux=[1, 2, 3, 4, 1j]), ["'flux'", "numbers"]),
        (dict(error=[1, 2, 3, -np.inf, 5]), ["row 3, column 'error'", "-inf"]),
        (dict(flux=[1, 2, 3, 1e39, 5]), ["row 3, column 'flux'", "1e+39", "finite"]),
        (dict(mjd=[1, 2, np.inf, 4, 5]), ["row 2, column 'mjd'", "infinite"]),
        (dict(mjd=["2020-01-01"] * 5), ["row 0 is '2020-01-01'", "pandas.to_datetime"]),
        (dict(mjd=["01/01/2024 00:39"] * 5), ["'01/01/2024 00:39'", "dates", "2024-03-01 08:00"]),
        (dict(mjd=[*pd.to_timedelta(range(4), "h"), 5.0]), ["Timedelta", "pandas.Timedelta(hours=1)"]),
        (dict(mjd=pd.period_range("2024", periods=5)), ["Period", "x.dt.to_timestamp"]),
        (dict(mjd=[time(8, 30, tzinfo=UTC)] * 5), ["datetime.time", "HH:MM", "no time zone"]),
        (dict(mjd=[time(23), time(1), time(1), time(2), time(0)]), ["01:00:00 to 00:00:00", "row 4", "midnight"]),
        (dict(mjd=ZONES), ["several time zones", "utc=True"]),
        (dict(mjd=range(2**60, 2**60 + 5)), ["'mjd'", "double precision", "subtract an offset"]),
        (dict(flux=[1, np.nan, 3, 4, np.nan]), ["'a'", "missing value"]),
        (dict(flux=[np.nan] * 5), ["2 samples", "['a', 'b']"]),
        (dict(kind=["SN", "RR", "SN", None, "RR"]), ["labels", "row 3", "'b'"]),
        (dict(kind=["SN", None, "SN", "SN", None]), ["labels", "'a'"]),
        (dict(kind=["SN", "RR", "AGN", "SN", "RR"]), ["'b'", "'AGN' in row 2", "'SN' in row"]),
        (dict(kind=[1.0, np.inf, 1.0, 1.0, np.inf]), ["label", "'a'", "infinite"]),
        (dict(object=[None] * 5), ["every row", "lacks an id"]),
        (dict(object=["a", 1, "a", "a", 1]), ["'object'", "text or an integer"]),
        (
            dict(object=[[1], [2], [1], [1], [2]]),
            ["'object'", "text or an integer", "row 0 is [1]"],
        ),
        (dict(object=[0.5, 1, 1, 1, 1]), ["'object'", "text or an integer"]),
    ],
)
@pytest.mark.filterwarnings("ignore:dropped")
def test_bad_tables_are_named(frame, change, parts):
    with refused((ValueError, TypeError), *parts):
        from_table(frame.assign(**change), **COLUMNS)


def test_missing_columns_list_what_exists(frame, tmp_path):
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_parquet(tmp_path / "a.parquet")
    for table in (frame, pa.Table.from_pandas(frame), tmp_path / "a.csv", tmp_path / "a.parquet"):
        with refused(ValueError, "column 'Flux'", "'mjd', 'band', 'flux'"):
            from_table(table, id="object", time="mjd", values="Flux")


def test_unusable_tables_are_refused_in_one_sentence(frame, tmp_path):
    few = dict(id="object", time="mjd", values="flux")
    with refused(ValueError, "no rows"):
        from_table(frame[:0], **few)
    with refused(ValueError, "column 'flux'", "more than once"):
        from_table(frame[["object", "mjd", "flux", "flux"]], **few)
    with refused(ValueError, "distinct", "'mjd'"):
        from_table(frame, id="object", time="mjd", values="mjd")
    with refused(ValueError, "column of values"):
        from_table(frame, id="object", time="mjd", values=[])
    with refused(ValueError, "no channel column"):
        from_table(frame, **few, channels=["g"])
    with refused(TypeError, "pandas, polars or pyarrow", "not list"):
        from_table([[1, 2]], **few)
    with refused(ValueError, "no file", "none.csv"):
        from_table(tmp_path / "none.csv", **few)
    (tmp_path / "a.xlsx").write_bytes(b"PK")
    with refused(ValueError, "a.xlsx"):
        from_table(tmp_path / "a.xlsx", **few)


@pytest.mark.parametrize(("sign", "rows"), [(";", "a;1;2,5"), (";", "a;1;2"), ("\t", "a\t1\t2"), (";", "")])
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_other_separators_than_commas_are_named(name, sign, rows, tmp_path):
    write = gzip.open if name.endswith("gz") else open
    with write(tmp_path / name, "wt") as file:
        file.write(f"object{sign}mjd{sign}flux\n{rows}\n")
    with refused(ValueError, name, f"separated by {sign!r}", "decimal=','"):
        from_table(tmp_path / name, id="object", time="mjd", values="flux")


def test_a_comma_in_the_header_is_enough(tmp_path):
    (tmp_path / "a.csv").write_text("id,time,flux;mJy;corrected;twice\n1,2,3\n")
    assert len(from_table(tmp_path / "a.csv", id="id", time="time", values="flux;mJy;corrected;twice")) == 1


def test_broken_files_are_refused_in_one_sentence(frame, tmp_path):
    few = dict(id="object", time="mjd", values="flux")
    frame.to_parquet(tmp_path / "a.parquet")
    whole = (tmp_path / "a.parquet").read_bytes()
    frame.to_csv(tmp_path / "a.csv.gz", index=False)
    broken = {
        "cut.parquet": whole[: len(whole) // 2],
        "empty.csv": b"",
        "ragged.csv": b"object,mjd,flux\na,1,2\na,2\n",
        "cut.csv.gz": (tmp_path / "a.csv.gz").read_bytes()[:30],
        "text.csv": b"\x00\xff\xfe\x00",
        "header.csv": "étoile,object,mjd,flux\n1,a,1,2\n".encode("latin-1"),
        "names.csv": "object,mjd,flux\né,1,2\n".encode("latin-1"),
    }
    for name, content in broken.items():
        (tmp_path / name).write_bytes(content)
        with refused(ValueError, name):
            from_table(tmp_path / name, **few)
    for name in ("header.csv", "names.csv"):
        with refused(ValueError, "cannot read", name, "save it as UTF-8"):
            from_table(tmp_path / name, **few)


@pytest.mark.slow
def test_the_light_curves_of_plasticc(real_data):
    paths = [path for path in sorted((real_data / "plasticc").glob("*train*.csv*")) if "meta" not in path.name]
    if not paths:
        pytest.skip("needs the PLAsTiCC training set")
    samples = from_table(paths[0], id="object_id", time="mjd", channel="passband", values=["flux", "flux_err"])
    assert len(samples) == 7848 and sum(len(s) for s in samples) == 1_421_705
    assert samples.schema.channels == (0, 1, 2, 3, 4, 5)


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["1e3", "1000"], ["1000", "1e3"]),
        (["12e4", "34e5"], ["12e4", "34e5"]),
        (["1e+05", "7"], [7, 100000]),
        (["1.2e5", "7"], [7, 120000]),
    ],
)
def test_digits_around_an_e_are_a_name(tmp_path, names, found):
    (tmp_path / "t.csv").write_text("id,time,value\n" + "".join(f"{name},0,1\n" for name in names))
    assert [one.id for one in from_table(tmp_path / "t.csv", id="id", time="time", values="value")] == found


def test_the_slip_that_makes_a_column_text_is_the_one_that_is_named(tmp_path):
    (tmp_path / "t.csv").write_text("id,time,value\n1,0,1\n1,1,2\n1,2,oops\n")
    with refused(TypeError, "'value'", "numbers", "row 2 is 'oops'"):
        from_table(tmp_path / "t.csv", id="id", time="time", values="value")


def test_dates_of_arrow_are_dates():
    dates = pd.Series(pd.to_datetime(["2024-01-01", "2024-01-03"]).date, dtype=pd.ArrowDtype(pa.date32()))
    table = pd.DataFrame({"id": [1, 1], "time": dates, "value": [1.0, 2.0]})
    [one] = from_table(table, id="id", time="time", values="value", time_unit="day")
    assert one.positions[:, 0].diff().tolist() == [2.0]


def test_nanoseconds_are_told_apart_within_a_sample_alone():
    """Two samples may have been measured within the 256 ns that double precision has left of them."""
    start = 1_700_000_000 * 10**9
    times = [start, start + 10**9, start + 1, start + 10**9 + 1]
    table = pd.DataFrame({"id": [0, 0, 1, 1], "time": times, "value": 1.0})
    names = {"id": "id", "time": "time", "values": "value"}
    assert len(from_table(table, **names)) == 2
    with refused(ValueError, "times", "1.7e+18", "subtract an offset"):
        from_table(table.assign(id=0), **names)
    # One time may come several times in a sample: with two channels, say.
    twice = table.assign(time=[start, start, start + 10**9, start + 10**9])
    assert [s.positions[:, 0].tolist() for s in from_table(twice, **names)] == [[float(start)] * 2, [start + 1e9] * 2]


@pytest.mark.parametrize("argument", ["values", "positions", "classes"])
def test_names_are_a_list(argument, without_shape_checks):
    table = pd.DataFrame({"id": [0, 0], "time": [0.0, 1.0], "value": 1.0})
    with refused(TypeError, argument, "list of names", "not 3"):
        from_table(table, **{"id": "id", "time": "time", "values": "value", argument: 3})


def test_labels_with_half_of_a_character_are_names_like_others():
    table = pd.DataFrame({"id": [0, 1], "time": [0.0, 1.0], "value": 1.0})
    table["kind"] = pd.Series(["a", "\ud800"], dtype=object)
    assert from_table(table, id="id", time="time", values="value", label="kind").schema.classes == ("a", "\ud800")


def test_metadata_that_pandas_would_stumble_over_does_not_matter(tmp_path):
    table = pa.table({"id": [0, 0], "time": [0.0, 1.0], "value": [1.0, 2.0]})
    parquet.write_table(table.replace_schema_metadata({"pandas": b"\xff"}), tmp_path / "table.parquet")
    [sample] = from_table(tmp_path / "table.parquet", id="id", time="time", values="value")
    assert sample.values.tolist() == [[1.0], [2.0]]


@given(
    st.lists(st.tuples(*[st.integers(0, 3)] * 3), min_size=1, max_size=60),
    st.integers(2, 3),
)
def test_rows_are_ordered_as_by_a_sort_of_all_keys(rows, n_keys):
    keys = [np.array(key) * scale for key, scale in zip(zip(*rows, strict=True), (1, 0.25, -1), strict=True)][:n_keys]
    np.testing.assert_array_equal(tables._order(keys), np.lexsort(keys[::-1]))
    assert tables._are_sorted([key[np.lexsort(keys[::-1])] for key in keys])
    as_rows = list(zip(*keys, strict=True))
    assert tables._are_sorted(keys) == (as_rows == sorted(as_rows))


@pytest.mark.parametrize(
    ("column", "hint"), [("id", "id= (--id)"), ("value", "values= (--value)"), ("stars", "'star'?")]
)
def test_a_missing_column_says_what_names_it_or_what_is_near(column, hint):
    table = pd.DataFrame({"star": [1, 1], "t": [0.0, 1.0], "flux": [1.0, 2.0]})
    with refused(ValueError, f"'{column}' is not there", hint):
        require_columns(table, [column])

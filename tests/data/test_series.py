"""Arrays become samples: laws, known answers and bad input."""

from dataclasses import replace
from decimal import Decimal
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch

from messages import refused
from romae.config import from_dict, to_dict
from romae.data.columns import require_variation_kept
from romae.data.schema import SampleSet, Schema, require_same_names
from romae.data.series import from_arrays
from romae.data.tables import from_schema, from_table, from_table_like
from romae.tokens.tokens import collate

NAN = np.nan
DENSE = np.array([[[1.0, 10.0], [2.0, 20.0], [NAN, NAN]], [[3.0, 30.0], [NAN, NAN], [4.0, 40.0]]])
LARGE = 1_700_000_000_000_000_000 + np.arange(3)
GAPPY = np.array([[[1.0, NAN], [2.0, 20.0], [NAN, NAN]]])


def test_steps_hold_all_channels_and_missing_steps_are_left_out():
    samples = from_arrays(DENSE, y=["b", "a"])
    assert [s.values.tolist() for s in samples] == [[[1, 10], [2, 20]], [[3, 30], [4, 40]]]
    assert [s.positions.tolist() for s in samples] == [[[0], [1]], [[0], [2]]]
    assert [int(s.target) for s in samples] == [1, 0]
    assert samples.schema.classes == ("a", "b")
    assert samples[0].positions.dtype == torch.float64


def test_scalars_carry_their_channel_as_the_last_position():
    samples = from_arrays(GAPPY, times=[5.0, 6.5, 7.0], tokens="scalars", channels=["x", "y"])
    assert samples[0].values.tolist() == [[1], [2], [20]]
    assert samples[0].positions.tolist() == [[5.0, 0], [6.5, 0], [6.5, 1]]
    assert samples.schema.channels == ("x", "y") and samples.schema.position_dims == 2


@pytest.mark.parametrize("kind", [float, int])
def test_what_is_masked_is_missing(kind):
    """Arrays of netCDF4 and astropy hold a number below the mask as well."""
    numbers = np.where(np.isnan(DENSE), 99999, DENSE).astype(kind)
    masked = np.ma.array(numbers, mask=np.isnan(DENSE))
    for form in (masked, list(masked), [list(x) for x in masked]):
        for one, plain in zip(from_arrays(form), from_arrays(DENSE), strict=True):
            assert torch.equal(one.values, plain.values) and torch.equal(one.positions, plain.positions)
    times = np.ma.array([[0, 1, 99999], [0, 99999, 2]], mask=[[0, 0, 1], [0, 1, 0]])
    assert [s.positions.flatten().tolist() for s in from_arrays(masked, times)] == [[0, 1], [0, 2]]


@pytest.mark.parametrize("kind", [">f4", ">f8", ">i4", "longdouble"])
def test_numbers_may_have_any_byte_order_and_direction(kind):
    x, times = np.arange(12).reshape(2, 3, 2).astype(kind), np.arange(3).astype(kind)
    y = np.arange(2).astype(kind)
    read, plain = from_arrays(x[:, ::-1], times[::-1], y), from_arrays(x[:, ::-1].astype(float), [2, 1, 0], y.tolist())
    for one, other in zip(read, plain, strict=True):
        assert torch.equal(one.values, other.values) and torch.equal(one.positions, other.positions)
        assert float(one.target) == float(other.target)


def test_both_kinds_of_token_hold_the_same_numbers():
    steps, scalars = from_arrays(DENSE), from_arrays(DENSE, tokens="scalars")
    for step, scalar in zip(steps, scalars, strict=True):
        assert step.values.flatten().tolist() == scalar.values.flatten().tolist()


def test_channels_first_is_the_transpose():
    first, last = from_arrays(DENSE.transpose(0, 2, 1), layout="bcn"), from_arrays(DENSE)
    for a, b in zip(first, last, strict=True):
        assert torch.equal(a.values, b.values) and torch.equal(a.positions, b.positions)


def test_a_list_of_arrays_of_different_lengths_with_their_times():
    arrays = [np.ones((3, 2)), torch.ones(1, 2), [[1, 2], [3, 4]]]
    samples = from_arrays(arrays, times=[[0, 1, 5], [-2.0], torch.tensor([7.0, 7.0])], ids=["a", "b", "c"])
    assert [len(s) for s in samples] == [3, 1, 2]
    assert samples[1].positions.tolist() == [[-2.0]]
    assert samples[2].positions.tolist() == [[7], [7]]  # repeated times are kept
    assert len(collate(samples)) == 3


def test_times_that_pad_a_missing_step_may_be_missing_too():
    samples = from_arrays(DENSE, times=np.array([[0.0, 1.0, NAN], [0.0, NAN, 2.0]]))
    assert [s.positions.flatten().tolist() for s in samples] == [[0, 1], [0, 2]]


def test_float64_times_keep_their_digits():
    times = np.array([2459000.123456789, 2459000.123456799])
    assert from_arrays([np.ones((2, 1))], times=times)[0].positions.flatten().tolist() == times.tolist()


def test_dates_are_counted_in_the_unit_asked_for():
    times = np.array(["1970-01-02", "1970-01-03T12"], dtype="datetime64[h]")
    samples = from_arrays([np.ones((2, 1))], times=times, time_unit="day")
    assert samples[0].positions.flatten().tolist() == [1.0, 2.5]
    assert samples.schema.time_unit == "day"


SUMMER = pd.date_range("1970-07-01", periods=2, freq="12h")


@pytest.mark.parametrize("form", [lambda x: x, list, pd.Series, lambda x: [one.to_pydatetime() for one in x]])
@pytest.mark.parametrize(("zone", "start"), [(None, 181.0), ("UTC", 181.0), ("Etc/GMT-6", 180.75)])
def test_dates_come_in_any_form_and_keep_their_zone(form, zone, start):
    times = form(SUMMER.tz_localize(zone))
    for given in (times, [times, times]):
        samples = from_arrays(np.ones((2, 2, 1)), given, time_unit="day")
        assert [s.positions.flatten().tolist() for s in samples] == [[start, start + 0.5]] * 2
        assert samples.schema.time_unit == "day" and (zone is None) == (samples.schema.time_zone is None)
    if zone is None:
        local = from_arrays(np.ones((1, 2, 1)), times, time_unit="day", time_zone="Etc/GMT-6")
        assert local[0].positions[0] == 180.75 and local.schema.time_zone == "Etc/GMT-6"


@pytest.mark.parametrize(
    ("y", "targets", "classes"),
    [
        ([7, 3], [1, 0], (3, 7)),
        (np.array(["u", "v"]), [0, 1], ("u", "v")),
        ([True, False], [1, 0], (False, True)),
        ([0.5, 2], [0.5, 2.0], None),
        (np.array([1.5, 2.0], dtype=object), [1.5, 2.0], None),
        (np.array([2.0, 1.0], dtype=object), [2.0, 1.0], None),
        (np.array([2, 1], dtype=object), [1, 0], (1, 2)),
        (np.array(["2.0", "1.0"], dtype=object), [1, 0], ("1.0", "2.0")),
        (torch.tensor([4, 4]), [0, 0], (4,)),
        ([[1.0, 2.0], [3.0, 4.0]], [[1, 2], [3, 4]], None),
    ],
)
def test_targets_of_samples(y, targets, classes):
    samples = from_arrays(DENSE, y=y)
    assert [s.target.tolist() for s in samples] == targets
    assert samples.schema.classes == classes


def test_targets_of_time_steps_follow_their_steps():
    y = np.arange(6.0).reshape(2, 3, 1)
    y[0, 2] = NAN  # the step is missing, so its target may be
    samples = from_arrays(DENSE, y=y)
    assert [s.target.tolist() for s in samples] == [[[0], [1]], [[3], [5]]]


def test_known_classes_keep_their_index():
    assert [int(s.target) for s in from_arrays(DENSE, y=["b", "b"], classes=["c", "b", "a"])] == [1, 1]


def test_a_sample_set_is_a_sequence_that_keeps_its_names():
    samples = from_arrays(np.ones((4, 2, 1)), ids=list("abcd"))
    assert isinstance(samples, SampleSet) and len(samples) == 4
    assert samples[-1].id == "d"
    for one in (np.int64(1), np.array(1), torch.tensor(1)):
        assert samples[one].id == "b"
    assert [s.id for s in samples[torch.tensor([1])]] == ["b"] and not samples[[]]
    for part in (samples[1:3], samples[[1, 2]], samples[[1, 2], ...], samples[np.array([False, True, True, False])]):
        assert [s.id for s in part] == ["b", "c"] and part.schema is samples.schema
    assert [s.id for s in samples.map(lambda s: s)] == list("abcd")
    assert samples[0] in samples and list(reversed(samples))[0].id == "d"
    with pytest.raises(IndexError):
        samples[4]


def test_a_schema_survives_json():
    schema = Schema(
        channel="band", channels=("g", 3), classes=(1, 2), positions=("ra",), time_unit="hour", time_zone="Europe/Paris"
    )
    assert from_dict(Schema, to_dict(schema)) == schema


def test_a_column_that_is_known_keeps_its_place():
    known = Schema(values=("flux", "error"), time="day", positions=("x", "y"))
    for found in (
        replace(known, values=("mag", "error")),
        replace(known, values=("counts", "spread"), time="when", positions=("ra", "dec")),
        replace(known, positions=("x", "z")),
    ):
        require_same_names(found, known, subject="samples", others="others have")
    rome = dict(time_unit="hour", time_zone="Europe/Rome")
    for found, parts in (
        (replace(known, values=("error", "flux")), ["samples", "values ['error', 'flux']", "others have"]),
        (replace(known, values=("error", "mag")), ["values ['error', 'mag']", "others have ['flux', 'error']"]),
        (replace(known, positions=("y", "x")), ["positions ['day', 'y', 'x']", "['day', 'x', 'y']"]),
        (replace(known, positions=("y", "z")), ["samples", "the positions"]),
        (replace(known, time="x", positions=("day", "y")), ["samples", "the positions"]),
    ):
        with refused(ValueError, *parts):
            require_same_names(found, known, subject="samples", others="others have")
    here, naive = replace(known, **rome), replace(known, time_unit="hour")
    require_same_names(here, replace(here, time_zone="UTC"), subject="samples", others="others have")
    with refused(ValueError, "samples", "Europe/Rome", "drop the zone"):
        require_same_names(here, naive, subject="samples", others="others have")
    with refused(ValueError, "samples", "no time zone", "Europe/Rome"):
        require_same_names(naive, here, subject="samples", others="others have")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (dict(X=GAPPY), ["sample 0, row 0", "channel 1", "tokens='scalars'"]),
        (dict(X=np.full((1, 2, 1), NAN), ids=["p7"]), ["'p7'", "no measurement"]),
        (dict(X=np.ones((2, 3))), ["[2, 3]", "X[:, :, None]"]),
        (dict(X=[np.ones(3)]), ["sample 0", "[3]", "x[:, None]"]),
        (dict(X=3), ["X must", "list", "not 3"]),
        (dict(X=DENSE, times=5), ["times", "list", "not 5"]),
        (dict(X=DENSE, y="ab"), ["y must", "list", "not 'ab'"]),
        (dict(X=[]), ["X holds", "no samples"]),
        (dict(X=[np.ones((2, 1)), np.ones((2, 2))]), ["sample 1", "2 channels", "sample 0 has 1"]),
        (dict(X=[np.array([[1.0], [np.inf]])]), ["sample 0, row 1", "channel 0", "inf"]),
        (dict(X=[np.array([[1e39]])]), ["float32"]),
        (dict(X=[np.array([["3"]])]), ["sample 0", "numbers", "element 0 is '3'"]),
        (dict(X=[[[1, 2], [3]]]), ["sample 0", "cannot be read"]),
        (dict(X=[np.ones((2, 1)), ([0, 1, 5], [3, 1, 2])]), ["sample 1", "pair", "times="]),
        (dict(X=[(np.arange(3), np.ones(3))]), ["times", "from_arrays([values[:, None]"]),
        (dict(X=[(np.arange(3), np.ones((3, 2)))]), ["sample 0", "pair"]),
        (dict(X=[[[0, 1, 5], [3, 1, 2]], [[2, 3], [1, 2]]]), ["sample 1", "2 channels"]),
        (dict(X=[[[0, 1, 5], [3, 1, 2]], [[2, 3, 4], [1, 2, 3]]]), ["two rows", "climbs"]),
        (dict(X=[[np.arange(3), np.ones(3)]]), ["times", "two time steps", "np.array(x)"]),
        (dict(X=[pd.Series([1.0, 2.0])]), ["[2]", "x.to_frame()"]),
        (dict(X=DENSE, time_unit="week"), ["time unit", "'week'"]),
        (dict(X=DENSE[:, :2], times=SUMMER, time_zone="Mars"), ["time zone", "'Mars'"]),
        (
            dict(X=DENSE[:, :2], times=[SUMMER, SUMMER.tz_localize("UTC")]),
            ["sample 1 are object", "sample 0", "time zone"],
        ),
        (dict(X=DENSE[:, :2], times=[SUMMER, [0, 1]]), ["sample 1 are int64", "sample 0"]),
        (dict(X=DENSE[:, :2], times=[SUMMER[1] - SUMMER[0], 3.0]), ["Timedelta", "pandas.Timedelta(hours=1)"]),
        (dict(X=DENSE[:, :2], times=["09:30", "08:00"]), ["09:30 to 08:00", "midnight"]),
        (dict(X=DENSE, times=LARGE), ["times of sample 0", "double precision", "subtract an offset"]),
        (dict(X=DENSE, times=[LARGE.tolist(), LARGE.astype(object)]), ["times of sample 0", "double"]),
        (dict(X=[LARGE[:, None]]), ["sample 0", "double precision"]),
        (dict(X=DENSE, times=[0, 1]), ["times of sample 0", "[2]", "3 time steps"]),
        (dict(X=DENSE, times=[[0, 1, 2]]), ["times", "1 samples", "there are 2"]),
        (dict(X=DENSE, times=[0, np.inf, 1]), ["sample 0, row 1", "time inf"]),
        (dict(X=DENSE, times=[NAN, 0, 1]), ["sample 0, row 0", "time nan"]),
        (dict(X=DENSE, y=["a"]), ["y has", "1 entries", "2 samples"]),
        (dict(X=DENSE, y=["a", None]), ["labels", "sample 1"]),
        (dict(X=DENSE, y=["a", NAN]), ["labels", "sample 1"]),
        (dict(X=DENSE, y=[0.5, NAN]), ["labels", "sample 1"]),
        (dict(X=DENSE, y=np.ma.array([1, 2], mask=[0, 1])), ["labels", "sample 1"]),
        (dict(X=DENSE, y=np.ma.array(["a", "b"], mask=[0, 1])), ["labels", "sample 1"]),
        (dict(X=DENSE, y=np.ma.array([[1], [2]], mask=[[0], [1]])), ["target", "sample 1", "missing"]),
        (dict(X=DENSE, times=np.ma.array([0, 1, 2], mask=[1, 0, 0])), ["sample 0, row 0", "time nan"]),
        (dict(X=DENSE, y=["a", "z"], classes=["a", "b"]), ["class 'z'", "sample 1", "known are"]),
        (dict(X=DENSE, y=["a", 3]), ["text or an integer"]),
        (dict(X=DENSE, y=[0.5, 1.5], classes=["a"]), ["float64", "classes"]),
        (dict(X=DENSE, y=[[1.0], [2.0, 3.0]]), ["target", "sample 1", "shape"]),
        (dict(X=DENSE, y=np.zeros((2, 4, 1))), ["target", "4 rows", "3 time steps"]),
        (dict(X=DENSE, y=np.zeros((2, 3, 1)), tokens="scalars"), ["tokens='steps'"]),
        (dict(X=DENSE, y=np.full((2, 3, 1), NAN)), ["target", "sample 0", "missing or infinite"]),
        (dict(X=DENSE, ids=["a", "a"]), ["ids", "distinct"]),
        (dict(X=DENSE, ids=["a"]), ["1 ids", "2 samples"]),
        (dict(X=DENSE, ids=[[1], [2]]), ["id", "sample 0", "[1]"]),
        (dict(X=DENSE, ids={1, 2}), ["ids", "list", "{1, 2}"]),
        (dict(X=DENSE, y={1, 2}), ["y must", "list", "{1, 2}"]),
        (dict(X=DENSE, channels=["time", "x"]), ["'time'", "'time_value'"]),
        (dict(X=DENSE, channels=["x", "label"], y=[1, 2]), ["'label'", "'label_value'"]),
        (dict(X=DENSE, channels={"x", "y"}), ["channels", "list"]),
        (dict(X=DENSE, channels=["x"]), ["2 columns", "1 channels are named"]),
        (dict(X=DENSE, channels=["x", "x"]), ["columns", "distinct"]),
    ],
)
def test_bad_input_is_named(arguments, parts, without_shape_checks):
    with refused((ValueError, TypeError), *parts):
        from_arrays(**arguments)


def test_names_in_arrays_and_pandas_are_taken_by_place(without_shape_checks):
    for form in (np.array, lambda names: pd.Series(names, index=[5, 6])):
        samples = from_arrays(DENSE, ids=form(["a", "b"]), channels=form(["x", "label"]))
        assert [sample.id for sample in samples] == ["a", "b"] and samples.schema.values == ("x", "label")
    assert from_arrays(DENSE, channels=np.array([3, 4]), tokens="scalars").schema.channels == (3, 4)
    assert from_arrays(DENSE, channels=["time", "id"], tokens="scalars").schema.channels == ("time", "id")


def test_times_in_pandas_are_taken_by_place_whatever_their_index():
    values, plain = np.ones((2, 3, 1)), from_arrays(np.ones((2, 3, 1)), [1.0, 2.0, 4.0])
    for times in (pd.Series([1.0, 2.0, 4.0], index=[5, 6, 7]), pd.DataFrame([[1.0, 2.0, 4.0]] * 2, index=[8, 9])):
        assert [one.positions.tolist() for one in from_arrays(values, times)] == [
            one.positions.tolist() for one in plain
        ]
    assert (
        from_arrays(values, pd.Series(pd.date_range("2024", periods=3), index=[5, 6, 7])).schema.time_unit == "second"
    )


def test_labels_of_pandas_are_found_by_the_ids_that_are_given():
    y = pd.Series({"c": "C", "b": "B", "a": "A"})
    samples = from_arrays(np.ones((3, 2, 1)), y=y, ids=["a", "b", "c"])
    assert [samples.schema.classes[int(one.target)] for one in samples] == ["A", "B", "C"]
    by_place = from_arrays(np.ones((3, 2, 1)), y=pd.Series(["C", "B", "A"], index=[2, 1, 0]))
    assert [by_place.schema.classes[int(one.target)] for one in by_place] == ["C", "B", "A"]
    with refused(ValueError, "label", "'d'"):
        from_arrays(np.ones((3, 2, 1)), y=y, ids=["a", "b", "d"])


def test_tables_name_their_channels_and_must_agree():
    frames = [pd.DataFrame({"u": [1.0, 2.0], "v": [3.0, 4.0]}) for _ in range(2)]
    assert from_arrays(frames).schema.values == ("u", "v")
    assert from_arrays(frames, tokens="scalars").schema.channels == ("u", "v")
    assert from_arrays(frames, channels=["a", "b"]).schema.values == ("a", "b")
    with refused(ValueError, "sample 1", "'v', 'u'", "'u', 'v'"):
        from_arrays([frames[0], frames[1][["v", "u"]]])
    dated = [frame.set_axis([5.0, 70.0]) for frame in frames]
    with refused(ValueError, "index"):
        from_arrays(dated)
    assert from_arrays(dated, [frame.index for frame in dated])[0].positions[:, 0].tolist() == [5.0, 70.0]


def test_an_index_may_be_times_whatever_the_first_sample_is():
    plain, frame = np.ones((2, 2)), pd.DataFrame(np.ones((2, 2)))
    assert from_arrays([plain, frame]).schema.values == ("channel_0", "channel_1")
    for X in ([plain, frame.set_axis([5.0, 70.0])], [frame, frame.set_axis(SUMMER)]):
        for channels in (None, ["a", "b"]):
            with refused(ValueError, "sample 1", "index"):
                from_arrays(X, channels=channels)
    named = frame.set_axis(["b", "a"], axis=1)
    with refused(ValueError, "sample 1", "['b', 'a']", "no column names"):
        from_arrays([plain, named])
    with refused(ValueError, "sample 1", "no column names", "['b', 'a']"):
        from_arrays([named, plain])


def test_integers_that_name_columns_stay_integers():
    for columns in ([5, 7], pd.Index([np.int64(5), np.int64(7)], dtype=object)):
        frame = pd.DataFrame(np.ones((2, 2)), columns=columns)
        assert from_arrays([frame], tokens="scalars").schema.channels == (5, 7)
        assert from_arrays([frame]).schema.values == ("5", "7")


@pytest.mark.parametrize(
    "rows", [[[36.6, 80.0, 120.0], [36.7, 81.0, 119.0]], [[3.0, 2.0, 1.0], [0.0, 1.0, 2.0]], [[0, 1], [3, 2]]]
)
def test_two_time_steps_are_no_pair(rows):
    assert from_arrays([rows])[0].values.tolist() == torch.tensor(rows).tolist()
    assert from_arrays([np.array([[0, 1, 2], [5, 4, 5]])])[0].values.shape == (2, 3)
    assert from_arrays([([0, 1, 2], [5, 4, 5])], layout="bcn")[0].values.shape == (3, 2)


def test_a_sample_that_was_good_in_training_is_good_alone():
    random = np.random.default_rng(0)
    x = 300 + 10 * random.normal(size=(30, 8, 1))
    x[0] = 300 + 1e-5 * random.normal(size=(8, 1))
    trained = from_arrays(x)
    with refused(ValueError, "channel 0", "for_training=False"):
        from_arrays(x[:1])
    alone = from_arrays(x[:1], y=[1.7e9], for_training=False)
    assert torch.equal(alone[0].values, trained[0].values)
    assert len(from_arrays(np.ones((4, 9, 1)), y=1.7e9 + np.arange(4.0), for_training=False)) == 4
    table = pd.DataFrame({"id": np.repeat(range(30), 8), "time": 0, "value": x.ravel(), "y": np.repeat(range(30), 8)})
    names = dict(id="id", time="time", values="value", label="y")
    large = table.assign(y=1.7e9 + 1e3 * table["y"])
    schema = from_table(large, **names).schema
    assert len(from_table_like(large[:8].assign(y=1.7e9), schema)) == 1
    first_two = pd.concat([large[:8], large[:8].assign(id=1, y=1.7e9 + 1)])
    assert len(from_table_like(first_two, schema)) == len(from_schema(first_two, schema, for_training=False)) == 2
    with refused(ValueError, "'value'", "from_table_like"):
        from_table(large[:8], **names)


@pytest.mark.parametrize("column", [[0.3, 0.1 + 0.2, 0.3], [1e300, 1e300 * (1 + 1e-15)], [np.nan, np.nan], [-0.0, 0.0]])
def test_rounding_is_no_variation(column):
    require_variation_kept(np.array(column)[:, None], ["x"])


@pytest.mark.parametrize("size", [1e-44, 1e-3, 1.0, 1e6, 1e30])
@pytest.mark.parametrize("spread", [1e-9, 1e-7, 1e-6, 1e-4, 1.0])
def test_columns_in_parts_are_judged_as_one(size, spread):
    """The ranges alone spare most columns the exact look, and never one that it would refuse."""
    x = size * (1 + spread * np.random.default_rng(0).normal(size=(300, 2)))
    x[::7, 1] = np.nan
    for column in (0, 1):
        known = x[~np.isnan(x[:, column]), column]
        moved = np.abs(known - known.astype(np.float32)).max()
        if moved > 0.05 * known.std():
            with refused(ValueError, f"{column} would move"):
                require_variation_kept(np.array_split(x[:, [column]], 7), [str(column)])
        else:
            require_variation_kept(np.array_split(x[:, [column]], 7), [str(column)])


def test_what_single_precision_cannot_tell_apart_is_refused():
    north = 5_412_345.0 + np.random.default_rng(0).normal(0, 1, (4, 9, 1))
    with refused(ValueError, "channel 0", "up to 0", "subtract an offset"):
        from_arrays(north)
    assert from_arrays(north.astype(np.float32)) and from_arrays(north - north.mean())
    assert from_arrays(np.full((4, 9, 1), 5_412_345.1)), "what does not vary has nothing to lose"
    with refused(ValueError, "labels", "would move"):
        from_arrays(np.ones((4, 9, 1)), y=1.7e9 + np.arange(4.0))
    rows = {"id": np.repeat(np.arange(4), 9), "time": np.tile(np.arange(9), 4), "north": north.ravel()}
    with refused(ValueError, "'north'", "would move"):
        from_table(pd.DataFrame(rows), id="id", time="time", values="north")


def test_lists_of_two_steps_are_no_pairs_where_times_are_given():
    steps = [[[1.0, 4.0, 9.0], [2.0, 3.0, 1.0]], [[0.0, 4.0, 9.0], [2.0, 5.0, 3.0]]]
    assert [one.values.shape for one in from_arrays(steps, times=[[0.0, 1.0], [0.0, 2.0]])] == [(2, 3), (2, 3)]
    with refused((TypeError, ValueError), "times"):
        from_arrays(steps)


def test_dates_of_each_sample_are_counted_like_those_of_all():
    dates = np.array(["2024-01-01", "2024-01-03", "NaT"], dtype="datetime64[ns]")
    values = np.array([[1.0], [2.0], [np.nan]])
    one, each = (from_arrays([values] * 2, times, time_unit="day") for times in (dates, [dates, dates]))
    assert one.schema == each.schema and torch.equal(one[1].positions, each[1].positions)


@pytest.mark.parametrize(("zone", "is_welcome"), [("UTC", True), ("Europe/Rome", False)])
def test_dates_in_utc_are_welcome_where_the_known_ones_have_no_zone(zone, is_welcome):
    dates = pd.date_range("2024-01-01", periods=3)
    table = pd.DataFrame({"id": 0, "time": dates, "value": [1.0, 2.0, 4.0]})
    known = from_table(table, id="id", time="time", values="value")
    aware = table.assign(time=dates.tz_localize(zone))
    if is_welcome:
        assert torch.equal(from_table_like(aware, known.schema)[0].positions, known[0].positions)
    else:
        with refused(ValueError, "Europe/Rome", "time zone"):
            from_table_like(aware, known.schema)


def test_names_are_the_same_however_they_are_written():
    named = partial(from_arrays, [np.ones((3, 2))], tokens="scalars")
    numbers, texts, swapped = (named(channels=names) for names in ([5, 7], ["5", "7"], [7, 5]))
    require_same_names(numbers.schema, texts.schema, subject="samples", others="others have")
    with refused(ValueError, "channels"):
        require_same_names(swapped.schema, texts.schema, subject="samples", others="others have")


@pytest.mark.parametrize(
    ("arguments", "error", "parts"),
    [
        ({"time_unit": ["day"]}, ValueError, ["time unit", "['day']", "second, minute"]),
        ({"classes": [["up"]]}, TypeError, ["classes", "text or numbers", "['up']"]),
        ({"channels": [["flux"]]}, TypeError, ["channel", "text or a number", "['flux']"]),
        ({"times": [[[0.0], [1.0, 2.0]]]}, ValueError, ["cannot be read", "array"]),
        ({"y": [[[1], [2, 3]]]}, ValueError, ["cannot be read", "array"]),
        ({"y": ["\ud800"]}, ValueError, ["label", "half of a character"]),
        ({"times": [[0.0, Decimal("sNaN")]]}, ValueError, ["element 1", "signalling NaN", "use None"]),
    ],
)
def test_what_python_itself_stumbles_over_is_refused_with_a_sentence(arguments, error, parts, without_shape_checks):
    with refused(error, *parts):
        from_arrays([np.ones((2, 1))], **arguments)


def test_a_sparse_tensor_is_no_array(without_shape_checks):
    with refused(ValueError, "sample 0", "sparse", "to_dense"):
        from_arrays([torch.ones(2, 1).to_sparse()])

"""Windows for forecasts: what is seen and asked, how records are divided, and the counts of the real files."""

import io
import tarfile

import numpy as np
import pytest

from messages import refused
from romae.experiments import forecast_baselines, metrics
from romae.experiments.datasets import human_activity, physionet2012, physionet_forecasts, ushcn
from romae.experiments.datasets.files import MissingFile
from romae.experiments.datasets.windows import Cut, Records, divided, in_parts, read_records

CUT = Cut(history=3.0, horizon=1.0, stride=1.0)


def records(*times):
    """Records of one variable whose values are their times."""
    flat = np.concatenate([np.asarray(one, dtype=float) for one in times])
    offsets = np.cumsum([0, *map(len, times)])
    return Records(tuple("abc"[: len(times)]), offsets, flat, np.zeros(len(flat), dtype=np.int64), flat.copy())


def write(folder, name, **changes):
    """Two records of two variables; a row of the first goes back in time, and one measures nothing."""
    columns = {
        "id": np.array(["x", "y"]),
        "length": np.array([4, 2]),
        "time": np.array([0, 2, 1, 3, 0, 1], dtype=np.float32),
        "value": np.arange(12, dtype=np.float32).reshape(6, 2),
        "mask": np.array([[1, 0], [1, 1], [0, 1], [0, 0], [1, 0], [0, 1]], dtype=np.uint8),
    }
    np.savez(folder / name, **columns | changes)
    return folder / name


def test_windows_lie_where_the_protocol_says_and_hide_their_future_alone():
    samples = CUT.samples(records(np.arange(0, 6.01, 0.5)), np.array([0]))
    assert CUT.starts(6.0).tolist() == [0, 1, 2], "below the last time less the history"
    assert [sample.id for sample in samples] == ["a@0", "a@1", "a@2"]
    for start, sample in enumerate(samples):
        since = sample.positions[:, 0]
        assert ((since >= 3) == sample.hidden).all() and since.min() == 0
        assert (sample.values[:, 0] == since + start).all(), "times are counted from the beginning of the window"
    assert [float(sample.positions[:, 0].max()) for sample in samples] == [3.5, 3.5, 4.0], "the last one is closed"


def test_windows_in_which_nothing_is_asked_or_seen_are_counted_and_left_out():
    gappy = records([0, 1, 6.5], [0, 3.5, 9.5])
    assert CUT.n_windows(gappy).tolist() == [4, 7]
    asked = {sample.id for sample in CUT.samples(gappy, np.array([0, 1]))}
    assert asked == {"b@0"}, "windows that show something have nothing to ask, and the other way round"
    assert len(CUT.samples(records(np.arange(0, 9.0, 0.5)), np.array([0]), 2)) == 2
    assert Cut(history=3.0, horizon=1.0, stride=1.0, end=6.0).n_windows(gappy).tolist() == [3, 3]


def test_another_stride_is_for_windows_of_training_alone():
    data = records(*(np.arange(0, 9.0, 0.5) for _ in "abc"))
    parts = {"train": np.array([0]), "validation": np.array([1]), "test": np.array([2])}
    plain, denser = (in_parts(data, parts, CUT, train_stride=stride) for stride in (None, 0.5))
    assert [sample.id for sample in denser["train"][::2]] == [sample.id for sample in plain["train"]]
    assert all((denser[name][0].values == plain[name][0].values).all() for name in ("validation", "test"))
    assert [len(denser[name]) for name in parts] == [11, 6, 6]
    for wrong in (0.0, -1.0, float("nan")):
        with refused(ValueError, "a stride above 0"):
            in_parts(data, parts, CUT, train_stride=wrong)


@pytest.mark.parametrize("n", [25, 1114, 12_000])
def test_records_are_divided_without_a_rest_and_by_the_seed(n):
    parts = divided(n, 42)
    assert sorted(np.concatenate(list(parts.values())).tolist()) == list(range(n))
    assert len(parts["test"]) == n - int(0.8 * n) and parts["test"][0] == np.random.RandomState(42).permutation(n)[0]
    assert parts["test"].tolist() != divided(n, 43)["test"].tolist()


def test_values_lie_between_the_extremes_of_the_records_that_may_be_known():
    moved = records([0, 1, 2], [4, 8]).as_min_max(np.array([0]))
    assert moved.values.tolist() == [0, 0.5, 1, 2, 4]


def test_a_file_of_records_is_read_in_the_order_of_time(tmp_path):
    read = read_records(write(tmp_path, "two.npz"), 2)
    assert read.ids == ("x", "y") and read.offsets.tolist() == [0, 4, 6]
    assert read.times.tolist() == [0, 1, 2, 2, 0, 1] and read.variables.tolist() == [0, 1, 0, 1, 0, 1]
    assert read.values.tolist() == [0, 5, 2, 3, 8, 11]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"time": np.zeros(5, dtype=np.float32)}, ("time", "[5]", "[6]")),
        ({"mask": np.zeros((6, 2), dtype=np.uint8)}, ("record x", "no measurement")),
        ({"value": np.full((6, 2), np.nan)}, ("value", "finite")),
    ],
)
def test_a_damaged_file_is_refused(tmp_path, changes, said):
    with refused(ValueError, *said):
        read_records(write(tmp_path, "two.npz", **changes), 2)


@pytest.mark.parametrize("module", [human_activity, ushcn])
def test_a_file_that_is_not_there_or_other_than_the_benchmarks_is_named(tmp_path, module):
    with refused(MissingFile, module.FILE):
        module.load(folder=tmp_path)
    n = len(module.VARIABLES)
    write(tmp_path, module.FILE, value=np.zeros((6, n)), mask=np.ones((6, n), dtype=np.uint8))
    with refused(ValueError, "windows", "instead of"):
        module.check(tmp_path)


def hours(*texts):
    """The means of hours of records that are written as in the challenge: minute, parameter, value."""
    index = {name: i for i, name in enumerate(physionet2012.VARIABLES)} | {"": -1}
    rows = [(i, int(m), index[p], float(v)) for i, text in enumerate(texts) for m, p, v in map(str.split, text)]
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    return physionet_forecasts._hours(
        columns[0], *(column.astype(t) for column, t in zip(columns[1:], (int, int, float), strict=True))
    )


def test_hours_are_those_of_the_public_reader():
    """Rows that open an hour and last hours are lost, as there; the mean of an hour is over what is left."""
    made = hours(
        [
            "0 Age 50",
            "0 Weight 80",
            "5 HR 70",
            "9 HR 72",
            "61 HR 90",
            "70 HR 80",
            "80 Weight 81",
            "130 HR 1",
            "200 HR 2",
        ],
        ["0 Age 60", "7 HR 60", "8 MechVent 1"],
    )
    names = [physionet_forecasts.HOURLY[i] for i in made.variables]
    assert made.records.tolist() == [0, 0, 0] and made.hours.tolist() == [0, 1, 2]
    assert list(zip(made.stamps.tolist(), names, made.means.tolist(), strict=True)) == [
        (0, "HR", 71),
        (1, "Weight", 81),
        (1, "HR", 80),
    ]


def test_the_36_variables_of_the_hours_have_weight_and_no_ventilation():
    assert len(physionet_forecasts.HOURLY) == 36
    assert "Weight" in physionet_forecasts.HOURLY and not {"MechVent", "Age"} & set(physionet_forecasts.HOURLY)


def test_stays_are_cut_at_24_hours_and_hours_at_the_next_three_stamps(tmp_path):
    lines = ["Time,Parameter,Value", "00:00,RecordID,7", "00:00,Age,60", "00:00,Height,-1"]
    lines += [f"{hour:02d}:{minute},HR,{hour + int(minute) / 100}" for hour in range(48) for minute in ("00", "30")]
    for letter in "abc":
        with tarfile.open(tmp_path / f"set-{letter}.tar.gz", "w:gz") as archive:
            for record in range(4):
                text = "\n".join(lines).replace("RecordID,7", f"RecordID,{ord(letter)}{record}") + "\n"
                info = tarfile.TarInfo(f"set-{letter}/{ord(letter)}{record}.txt")
                info.size = len(text)
                archive.addfile(info, io.BytesIO(text.encode()))
        outcomes = [f"{ord(letter)}{record},1,1,1,1,0" for record in range(4)]
        (tmp_path / f"Outcomes-{letter}.txt").write_text(
            "\n".join([",".join(physionet2012.OUTCOME_COLUMNS), *outcomes]) + "\n"
        )
    parts = physionet_forecasts.windows(physionet_forecasts.load(folder=tmp_path), 42)
    assert [len(part) for part in parts.values()] == [6, 3, 3]
    sample = parts["test"][0]
    assert len(sample) == 98 and int(sample.hidden.sum()) == 48, "a code of -1 is a number"
    assert ((sample.positions[:, 0] >= 24) == sample.hidden).all()
    by_hour = physionet_forecasts.load_hourly(folder=tmp_path)
    assert [len(part) for part in by_hour.values()] == [9, 1, 2]
    sample = by_hour["test"][0]
    assert sample.positions[sample.hidden, 0].tolist() == [35, 36, 37] and int((~sample.hidden).sum()) == 35
    values = np.concatenate([one.values[:, 0].numpy() for part in by_hour.values() for one in part])
    assert np.abs(values).max() < 5


def last_value(parts, n_variables):
    train, test = (forecast_baselines.Observed.of(parts[name], n_variables) for name in ("train", "test"))
    error = forecast_baselines.last_value(train, test) - test.truth
    return [metrics.macro(x, test.asked)[0] for x in (error**2, np.abs(error))], error


def test_the_real_recordings_have_the_counts_and_the_last_value_of_the_protocol(real_data):
    read = human_activity.load(folder=real_data / "human_activity")
    parts = human_activity.windows(read)
    assert {name: len(part) for name, part in parts.items()} == human_activity.N_WINDOWS and len(read) == 25
    (squared, absolute), _ = last_value(parts, 12)
    assert squared == pytest.approx(3.57e-3, abs=5e-6) and absolute == pytest.approx(3.35e-2, abs=5e-5)


def test_the_real_stations_have_the_counts_and_the_last_value_of_the_protocol(real_data):
    parts = divided(1114, ushcn.SPLIT)
    read = ushcn.load(folder=real_data / "ushcn")
    assert ushcn.N_WINDOWS == {name: int(ushcn.CUT.n_windows(read)[part].sum()) for name, part in parts.items()}
    test = ushcn.CUT.samples(read, parts["test"])
    (squared, absolute), _ = last_value({"train": test, "test": test}, 5)
    assert squared == pytest.approx(1.034, abs=1e-3) and absolute == pytest.approx(0.417, abs=5e-4)


@pytest.mark.slow
def test_the_real_stays_have_the_counts_and_the_last_value_of_the_protocol(
    real_data, stays_read_once, without_shape_checks
):
    read = physionet_forecasts.load(folder=real_data / "physionet2012")
    parts = divided(len(read), 42)
    assert len(read) == 12_000 and len(set(read.variables.tolist())) == 41
    scaled = read.as_min_max(np.concatenate([parts["train"], parts["validation"]]))
    owner = np.repeat(np.arange(len(read)), np.diff(read.offsets))

    def observed(part):  # as the samples would say it, without making thousands of them
        rows = np.isin(owner, parts[part])
        columns = (owner, read.times, read.variables, scaled.values, read.times >= 24)
        return forecast_baselines.Observed(*(column[rows] for column in columns), n_samples=12_000, n_variables=41)

    train, test = observed("train"), observed("test")
    error = forecast_baselines.last_value(train, test) - test.truth
    assert len(np.unique(test.asked)) == 37
    assert metrics.macro(error**2, test.asked)[0] == pytest.approx(6.37e-3, abs=5e-6)

    by_hour = physionet_forecasts.load_hourly(folder=real_data / "physionet2012")
    assert {name: len(part) for name, part in by_hour.items()} == {"train": 9_565, "validation": 1_068, "test": 1_184}
    _, error = last_value(by_hour, 36)
    assert len(error) == 23_486 and (error**2).mean() == pytest.approx(0.3973, abs=5e-5)

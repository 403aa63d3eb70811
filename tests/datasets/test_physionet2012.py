"""PhysioNet 2012: one token per number, averaged within a minute, with codes and rows treated as documented."""

import io
import tarfile

import numpy as np
import pytest

from messages import refused
from romae.experiments.datasets import find
from romae.experiments.datasets.files import MissingFile
from romae.experiments.datasets.physionet2012 import VARIABLES, load

OUTCOMES = "RecordID,SAPS-I,SOFA,Length_of_stay,Survival,In-hospital_death\n"
FIRST = """Time,Parameter,Value
00:00,RecordID,11
00:00,Age,54
00:00,Height,-1
00:07,HR,70
00:07,HR,74
00:07,,3
01:30,Temp,36.5
01:30,HR,80
"""
SECOND = "Time,Parameter,Value\n00:00,RecordID,9\n00:00,Age,80\n"


def write_set(folder, letter="a", records=None, outcomes=OUTCOMES + "11,1,2,3,-1,0\n9,4,5,6,7,1\n", packed=True):
    """A set of records as the archive (with their folder) or as the folder itself."""
    records = {"11": FIRST, "9": SECOND} if records is None else records
    if packed:
        with tarfile.open(folder / f"set-{letter}.tar.gz", "w:gz") as archive:
            for name, text in records.items():
                info = tarfile.TarInfo(f"set-{letter}/{name}.txt")
                info.size = len(text)
                archive.addfile(info, io.BytesIO(text.encode()))
    else:
        for name, text in records.items():
            path = folder / f"set-{letter}" / f"{name}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (folder / f"set-{letter}" / "index.html").write_text("<html>")
    (folder / f"Outcomes-{letter}.txt").write_text(outcomes)
    return folder


def test_the_variables_are_the_41_of_the_protocol():
    assert len(VARIABLES) == len(set(VARIABLES)) == 41
    assert [VARIABLES.index(name) for name in ("Age", "Weight", "HR", "MAP", "WBC")] == [0, 4, 19, 23, 40]


@pytest.mark.parametrize("packed", [True, False])
def test_a_record_is_one_token_per_number(tmp_path, packed):
    stays = load("a", folder=write_set(tmp_path, packed=packed))
    assert stays.record_ids.tolist() == [9, 11] and stays.died.tolist() == [1, 0]
    first, second = stays.samples()
    assert (first.id, int(first.target), first.values.tolist()) == (9, 1, [[80]])
    assert second.values.flatten().tolist() == [54, 72, 80, 36.5], "the two rates of one minute are averaged"
    hr, temperature = VARIABLES.index("HR"), VARIABLES.index("Temp")
    assert second.positions.tolist() == [[0, 0], [7, hr], [90, hr], [90, temperature]]
    assert stays.record_of_measurement.tolist() == [0, 1, 1, 1, 1]
    assert stays.outcomes["Survival"].tolist() == [7, -1]


def test_the_code_for_unknown_is_left_out_or_kept(tmp_path):
    write_set(tmp_path)
    assert len(load("a", folder=tmp_path).values) == 5
    kept = load("a", minus_one="keep", folder=tmp_path)
    assert kept.values[kept.variables == VARIABLES.index("Height")].tolist() == [-1]
    with refused(ValueError, "minus_one", "'missing' or 'keep'", "not 'drop'"):
        load("a", minus_one="drop", folder=tmp_path)


def test_sets_follow_each_other(tmp_path):
    write_set(tmp_path)
    write_set(tmp_path, "b", {"7": FIRST.replace("11", "7")}, OUTCOMES + "7,1,1,1,1,1\n")
    both, alone = load("ab", folder=tmp_path), load("b", folder=tmp_path)
    assert both.record_ids.tolist() == [9, 11, 7] and both.offsets.tolist() == [0, 1, 5, 9]
    assert both.values[5:].tolist() == alone.values.tolist() and both.died.tolist() == [1, 0, 1]
    for sets in ("", "ax", "aa"):
        with refused(ValueError, "sets", "letters"):
            load(sets, folder=tmp_path)


def test_the_order_of_rows_does_not_matter(tmp_path):
    header, *rows = FIRST.splitlines()
    (tmp_path / "turned").mkdir()
    turned = write_set(tmp_path / "turned", records={"11": "\r\n".join([header, *rows[::-1]]), "9": SECOND})
    for name in ("minutes", "variables", "values"):
        expected = getattr(load("a", folder=write_set(tmp_path)), name)
        assert getattr(load("a", folder=turned), name).tolist() == expected.tolist()


@pytest.mark.parametrize(
    "row, parts",
    [
        ("00:10,HR,fast", ["record 11, line 10", "'00:10,HR,fast'"]),
        ("00:10,HR,", ["record 11, line 10"]),
        ("00:10,HR,nan", ["record 11, line 10"]),
        ("00:10,HR", ["record 11, line 10"]),
        ("00:10,HR,3,4", ["record 11, line 10"]),
        ("00:99,HR,70", ["record 11, line 10", "'00:99,HR,70'", "time"]),
        ("soon,HR,70", ["record 11, line 10"]),
        ("00:10,Mood,7", ["record 11, line 10", "'00:10,Mood,7'", "known variable"]),
        ("\n00:10,HR,7", ["record 11, line 10", "''"]),
        ('"00:\n10",HR,7', ["record 11, line 10"]),
        ("00:10,HR,7\r00:11,HR,8", ["11.txt, line 10", "carriage return"]),
        ("00:10,RecordID,12", ["record 11", "record 12", "mend"]),
    ],
)
def test_a_bad_row_is_named(tmp_path, row, parts):
    with refused(ValueError, *parts):
        load("a", folder=write_set(tmp_path, records={"9": SECOND, "11": FIRST + row + "\n"}))


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("other", ["009", "sub/9"])
def test_two_files_of_one_record_are_named(tmp_path, packed, other):
    write_set(tmp_path, records={"9": SECOND, other: SECOND}, packed=packed)
    with refused(ValueError, "record 9 twice", "9.txt", "remove one"):
        load("a", folder=tmp_path)


def test_an_empty_folder_does_not_hide_the_archive(tmp_path):
    (tmp_path / "set-a").mkdir()
    assert len(load("a", folder=write_set(tmp_path))) == 2


def test_bad_files_are_named(tmp_path):
    with refused(MissingFile, "set-a.tar.gz", "download https://physionet.org/", "put it"):
        load("a", folder=tmp_path)
    write_set(tmp_path, records={"9": "x" + SECOND})
    with refused(ValueError, "set-a/9.txt", "'Time,Parameter,Value'"):
        load("a", folder=tmp_path)
    write_set(tmp_path, records={"9": SECOND.replace("00:00,Age,80\n", "")})
    with refused(ValueError, "record 9", "no measurement"):
        load("a", folder=tmp_path)
    write_set(tmp_path, records={"nine": SECOND})
    with refused(ValueError, "nine.txt", "record number"):
        load("a", folder=tmp_path)
    write_set(tmp_path, records={})
    with refused(ValueError, "no record files"):
        load("a", folder=tmp_path)
    (tmp_path / "set-a.tar.gz").write_bytes(b"\x1f\x8b broken")
    with refused(ValueError, "set-a.tar.gz"):
        load("a", folder=tmp_path)


@pytest.mark.parametrize(
    "outcomes, parts",
    [
        (OUTCOMES + "11,1,2,3,-1,0\n", ["Outcomes-a.txt", "record 9"]),
        ("RecordID,SOFA\n9,1\n", ["Outcomes-a.txt", "['SAPS-I'", "['RecordID', 'SOFA']"]),
        (OUTCOMES + "11,1,2,3,-1,no\n9,4,5,6,7,1\n", ["whole number"]),
        (OUTCOMES + "11,1,2,3,-1,0\n9,4,5,6,7,1\n9,4,5,6,7,0\n", ["Outcomes-a.txt", "record 9", "differ"]),
        (OUTCOMES + "11,1,2,3,-1,0\n9,4,5,6,7,7\n", ["In-hospital_death", "record 9 is 7", "0 or 1"]),
        (OUTCOMES + "11,1,2,3,-1,-1\n9,4,5,6,7,1\n", ["In-hospital_death", "record 11 is -1", "0 or 1"]),
        ("", ["cannot read", "Outcomes-a.txt"]),
    ],
)
def test_bad_outcomes_are_named(tmp_path, outcomes, parts):
    with refused(ValueError, *parts):
        load("a", folder=write_set(tmp_path, outcomes=outcomes))


def test_a_row_of_the_outcomes_may_stand_twice(tmp_path):
    outcomes = OUTCOMES + "11,1,2,3,-1,0\n9,4,5,6,7,1\n9,4,5,6,7,1\n"
    assert load("a", folder=write_set(tmp_path, outcomes=outcomes)).died.tolist() == [1, 0]


def test_check_counts_records(tmp_path):
    write_set(tmp_path)
    write_set(tmp_path, "b")
    with refused(ValueError, "sets ab", "4 records", "8000"):
        find("physionet2012").verify(tmp_path)


@pytest.mark.slow
def test_the_real_records_have_the_published_counts(real_data, stays_read_once):
    folder = real_data / "physionet2012"
    stays = load("ab", minus_one="keep", folder=folder)
    lengths = np.diff(stays.offsets)
    assert len(stays) == 8000 and lengths.max() == 1501 and np.median(lengths) == 427
    assert lengths.mean() == pytest.approx(438.1, abs=0.1)
    places = stays.record_of_measurement * 3000 + stays.minutes.astype(int)
    assert len(np.unique(places)) / len(stays) == pytest.approx(75, abs=0.5), "distinct times per record"
    assert stays.minutes.min() == 0 and stays.minutes.max() == 2880
    assert (stays.values == -1).sum() == pytest.approx(4505, abs=10)
    assert find("physionet2012").check(folder).startswith("8000 records, 438 tokens on average")


@pytest.mark.parametrize("time", ["48:01", "99999999999:00", "9" * 400 + ":00", "00:00:1e308", "00:00:inf", "00:10:-1"])
def test_times_that_no_record_can_have_are_named(tmp_path, time):
    records = {"11": FIRST + f"{time},HR,70\n", "9": SECOND}
    with refused(ValueError, "record 11", "line 10", "48:00"):
        load("a", folder=write_set(tmp_path, records=records))


def test_a_record_may_end_with_its_last_minute(tmp_path):
    records = {"11": FIRST + "48:00,HR,70\n", "9": SECOND}
    assert load("a", folder=write_set(tmp_path, records=records)).minutes.max() == 2880


def test_a_record_number_of_hundreds_of_digits_is_named(tmp_path):
    with refused(ValueError, "999", "record number"):
        load("a", folder=write_set(tmp_path, records={"9" * 90: FIRST}))

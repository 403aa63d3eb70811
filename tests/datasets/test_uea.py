"""The .ts reader: what the directives say holds, and every error names the line."""

import zipfile

import numpy as np
import pytest
import torch

from messages import refused
from romae.experiments.datasets import find
from romae.experiments.datasets.files import MissingFile
from romae.experiments.datasets.uea import SIZES, load, parse

HEADER = """#a comment
@problemName Example
@timeStamps false
@missing {missing}
@univariate false
@dimensions 2
@equalLength false
@classLabel true walk run 
@data
"""
TEXT = HEADER.format(missing="false") + "1,2,3:4,5,6:run\n0.5,-1e-3:7,8:walk\n"


def with_cases(*cases: str) -> str:
    return HEADER.format(missing="true") + "\n".join(cases) + "\n"


def test_a_case_is_one_token_per_time_step_with_all_channels():
    samples, class_names = parse(TEXT, prefix="train/")
    assert class_names == ("run", "walk")
    assert [int(sample.target) for sample in samples] == [0, 1]
    assert [sample.id for sample in samples] == ["train/0", "train/1"]
    torch.testing.assert_close(samples[0].values, torch.tensor([[1.0, 4], [2, 5], [3, 6]]))
    torch.testing.assert_close(samples[1].values, torch.tensor([[0.5, 7], [-1e-3, 8]]))
    assert samples[0].positions.tolist() == [[0.0], [1.0], [2.0]]


def test_classes_are_sorted_with_numbers_by_value():
    text = "@classLabel true 10 9 -1 b a\n@data\n1:9\n"
    assert parse(text).class_names == ("-1", "9", "10", "a", "b")


def test_a_set_without_classes_has_no_targets():
    samples, class_names = parse("@univariate true\n@classLabel false\n@data\n1,2\n3\n")
    assert class_names == () and [len(s) for s in samples] == [2, 1] and samples[0].target is None


def test_missing_values_are_refused_dropped_or_filled():
    text = with_cases("1,2,3:4,?,?:run", "1,2:3,4:walk")
    with refused(ValueError, "line 10", "channel 1", "missing='drop'"):
        parse(text)
    dropped, filled = parse(text, missing="drop").samples[0], parse(text, missing=-7.0).samples[0]
    assert dropped.values.tolist() == [[1, 4]] and dropped.positions.tolist() == [[0]]
    assert filled.values.tolist() == [[1, 4], [2, -7], [3, -7]]
    assert parse(text.replace("?", "NaN"), missing=-7.0).samples[0].values.tolist() == filled.values.tolist()
    with refused(ValueError, "every time step"):
        parse(with_cases("1,?:?,4:run"), missing="drop")
    with refused(ValueError, "'error', 'drop'", "number", "not 'zero'"):
        parse(text, missing="zero")


def test_dropping_leaves_a_gap_in_the_positions():
    sample = parse(with_cases("1,?,3:4,5,6:run"), missing="drop").samples[0]
    assert sample.positions.tolist() == [[0], [2]]


def test_time_stamps_become_positions_and_channels_meet_on_them():
    text = "@timeStamps true\n@dimensions 2\n@classLabel true a\n@data\n(0.5,1),(2,3):(2,30),(4.5,40):a\n"
    sample = parse(text, missing=0.0).samples[0]
    assert sample.positions.tolist() == [[0.5], [2], [4.5]]
    assert sample.values.tolist() == [[1, 0], [3, 30], [0, 40]]
    with refused(ValueError, "channel 0", "twice"):
        parse(text.replace("(2,3)", "(0.5,3)"))
    with refused(ValueError, "channel 0", "(time,value)"):
        parse(text.replace("(0.5,1)", "0.5,1"))
    with refused(ValueError, "channel 1", "(time,value)"):
        parse(text.replace("(2,30)", "(2,30,31)"))


@pytest.mark.parametrize(
    "text, parts",
    [
        (with_cases("1,2:run"), ["line 10", "1 channels", "of 2"]),
        (with_cases("1,2:3,4:fly"), ["line 10", "class 'fly'", "['run', 'walk']"]),
        (with_cases("1,2:3:run"), ["line 10", "channel 1", "1 time steps"]),
        (with_cases("1,2:3,x:run"), ["line 10, channel 1", "'x' at step 1"]),
        (with_cases("1,2:3,inf:run"), ["line 10, channel 1", "step 1", "infinite"]),
        (with_cases(), ["no cases", "@data"]),
        ("hello\n", ["line 1", "directive"]),
        ("@dimensions two\n@data\n", ["line 1", "'@dimensions two'"]),
        ("@equalLength perhaps\n@data\n", ["read the directive"]),
        ("@problemName x\n", [".ts", "@data"]),
        ("@equalLength true\n@seriesLength 3\n@data\n1,2\n", ["line 4", "2 time steps", "of 3"]),
    ],
)
def test_bad_text_is_refused_with_its_place(text, parts):
    with refused(ValueError, *parts):
        parse(text)


@pytest.mark.parametrize("where", ["zip", "nested zip", "folder", "own folder"])
def test_a_set_is_found_in_the_zip_or_unpacked(tmp_path, where):
    if "zip" in where:
        with zipfile.ZipFile(tmp_path / "Example.zip", "w") as archive:
            archive.writestr("Example/Example_TRAIN.ts" if "nested" in where else "Example_TRAIN.ts", TEXT)
    else:
        folder = tmp_path / "Example" if "own" in where else tmp_path
        folder.mkdir(exist_ok=True)
        (folder / "Example_TRAIN.ts").write_bytes("#caf\xe9\r\n".encode("latin-1") + TEXT.encode())
    assert len(load("Example", "train", folder=tmp_path).samples) == 2
    with refused(MissingFile, "Example_TEST.ts", "download https://", "Example.zip"):
        load("Example", "test", folder=tmp_path)


def test_bad_names_splits_and_archives_are_refused(tmp_path):
    with refused(ValueError, "'../x'"):
        load("../x", "train", folder=tmp_path)
    with refused(ValueError, "split", "'train' or 'test'", "not 'validation'"):
        load("Example", "validation", folder=tmp_path)
    (tmp_path / "Example.zip").write_bytes(b"PK\x03\x04 and then nothing")
    with refused(ValueError, "Example.zip", "corrupt"):
        load("Example", "train", folder=tmp_path)


def test_check_compares_the_halves(tmp_path):
    (tmp_path / "Example_TRAIN.ts").write_text(TEXT)
    (tmp_path / "Example_TEST.ts").write_text(TEXT)
    assert find("uea/Example").check(tmp_path) == (
        "2 cases to train and 2 to test, 2 channels, 2 to 3 time steps, 2 classes"
    )
    (tmp_path / "Example_TEST.ts").write_text(TEXT.replace("walk", "swim"))
    with refused(ValueError, "different classes"):
        find("uea/Example").check(tmp_path)
    for split in ("TRAIN", "TEST"):
        (tmp_path / f"LSST_{split}.ts").write_text(TEXT)
    with refused(ValueError, "LSST", "(2, 2, 2, 2, 3, 2)", "(2459, 2466, 6, 36, 36, 14"):
        find("uea/LSST").check(tmp_path)


@pytest.mark.parametrize("name", [name for name in SIZES if name != "Heartbeat"])
def test_the_sets_of_the_paper_have_their_published_sizes(real_data, name):
    assert find(f"uea/{name}").verify(real_data / "uea").startswith(f"{SIZES[name][0]} cases to train")


def test_heartbeat_has_its_training_half(real_data):
    samples, class_names = load("Heartbeat", "train", folder=real_data / "uea")
    assert (len(samples), samples[0].values.shape, set(class_names)) == (204, (405, 61), {"normal", "abnormal"})
    with refused(MissingFile, "Heartbeat_TEST.ts", "Heartbeat.zip", "['Heartbeat_TRAIN.ts']"):
        load("Heartbeat", "test", folder=real_data / "uea")


@pytest.mark.parametrize("split, n_short", [("train", 21), ("test", 18)])
def test_character_trajectories_ends_early_in_one_channel_of_some_cases(real_data, split, n_short):
    folder = real_data / "uea"
    filled = load("CharacterTrajectories", split, missing=0.0, folder=folder).samples
    dropped = load("CharacterTrajectories", split, missing="drop", folder=folder).samples
    short = [(a, b) for a, b in zip(filled, dropped, strict=True) if len(a) != len(b)]
    assert len(short) == n_short
    for a, b in short:
        assert bool((a.values[len(b) :] == 0).any(1).all()), "what was dropped is the end"
    assert np.mean([len(sample) for sample in filled]) > 100

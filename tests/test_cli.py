"""The command line: what it prints, how it ends, and what it says to bad input."""

import contextlib
import io
import json
import os
import shlex
import subprocess
import sys
import warnings
from pathlib import Path
from unittest import mock

import pytest

from conftest import SHARED
from messages import assert_says
from romae import benchmark
from romae.cli.main import main
from test_reference import write_folder

PARITY = sorted(str(path) for path in (SHARED / "parity").glob("*") if path.is_dir())


def started(*arguments: str | Path) -> subprocess.CompletedProcess:
    """What a process of its own prints, and how it ends."""
    command = [sys.executable, "-m", "romae", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def romae(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess:
    """The same in this process, which saves the seconds of a start."""
    command = ["romae", *map(str, arguments)]
    with (
        mock.patch.dict(os.environ, environment),
        mock.patch.object(sys, "argv", command),
        mock.patch.object(warnings, "formatwarning"),
        contextlib.redirect_stdout(io.StringIO()) as printed,
        contextlib.redirect_stderr(io.StringIO()) as told,
        pytest.raises(SystemExit) as ended,
    ):
        main()
    return subprocess.CompletedProcess(command, ended.value.code or 0, printed.getvalue(), told.getvalue())


@pytest.fixture
def theirs(tmp_path):
    write_folder(tmp_path / "theirs", dims=2, cls=True, ragged=True, pretrain=True, feed_forward=30)
    return tmp_path / "theirs"


def test_the_version_is_told():
    done = started("--version")
    assert done.returncode == 0 and done.stdout.startswith("romae 0.")


def test_check_reference_prints_the_largest_difference(theirs):
    done = romae("check-reference", theirs)
    assert done.returncode == 0 and "largest difference" in done.stdout and "yes" in done.stdout
    rows = json.loads(romae("check-reference", theirs, "--json").stdout)
    assert rows[0]["passed"] and 0 < rows[0]["largest difference"] < 1e-4


def test_check_reference_exits_with_1_when_outputs_differ(theirs):
    from safetensors.torch import load_file, save_file

    io = load_file(theirs / "io.safetensors")
    io["logits"][0] += 1
    save_file(io, theirs / "io.safetensors")
    done = romae("check-reference", theirs, "--json")
    assert done.returncode == 1 and not json.loads(done.stdout)[0]["passed"]


def test_check_reference_goes_on_past_a_folder_it_cannot_read(theirs, tmp_path):
    done = romae("check-reference", tmp_path / "nowhere", theirs, "--json")
    rows = json.loads(done.stdout)
    assert done.returncode == 2 and [row["passed"] for row in rows] == [False, True]
    assert "model_config.json does not exist" in done.stderr


def test_the_authors_folders_pass():
    if not PARITY:
        pytest.skip("needs the authors' checkpoints in shared/parity beside the project")
    done = romae("check-reference", *PARITY, "--json")
    assert done.returncode == 0 and len(json.loads(done.stdout)) == len(PARITY)


def test_import_reference_writes_a_checkpoint_of_ours(theirs, tmp_path):
    from romae.checkpoints.native import load

    done = romae("import-reference", theirs, "--out", tmp_path / "ours")
    assert done.returncode == 0 and "MaskedReconstruction" in done.stdout
    assert load(tmp_path / "ours").config.encoder.feed_forward == 30


@pytest.mark.slow
def test_the_demo_ends_in_numbers_a_picture_a_page_and_commands_that_work(tmp_path):
    done = started("demo", "--quick", "--out", tmp_path / "demo", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert {row["method"] for row in result["rows"]} >= {"RoMAE", "linear interpolation"}
    assert {row["method"] for row in result["classification"]} >= {"RoMAE", "boosted trees on summary features"}
    assert all(0 <= row["accuracy"] <= 1 for row in result["classification"])
    assert Path(result["picture"]).read_bytes().startswith(b"\x89PNG")
    assert "<h2>Classification</h2>" in Path(result["page"]).read_text()
    commands = [shlex.split(command) for command in result["next"]]
    assert len(commands) == 3 and all(command[0] == "romae" for command in commands)
    for command in commands:
        quick = ["--set", "train.epochs=1"] if command[1] == "pretrain" else []
        done = started(*command[1:], *quick)
        assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_benchmark_leaves_its_figures(tmp_path, monkeypatch):
    monkeypatch.setitem(benchmark.SECTIONS, "attention", lambda: {"rows": [{"case": "short", "times_faster": 2.5}]})
    done = romae("benchmark", "attention", "--out", tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    written, picture = sorted(tmp_path.iterdir())
    assert written.suffix == ".json" and picture.suffix == ".svg"
    assert json.loads(written.read_text()) == json.loads(done.stdout)
    assert json.loads(done.stdout)["attention"]["rows"] == [{"case": "short", "times_faster": 2.5}]
    printed = romae("benchmark", "attention", "--out", tmp_path).stdout
    assert "times faster" in printed and "2.5" in printed and str(written) in printed


def test_data_list_says_what_is_here(tmp_path):
    (tmp_path / "uea").mkdir()
    (tmp_path / "uea" / "LSST.zip").write_bytes(b"")
    result = json.loads(romae("data", "list", "--json", ROMAE_DATA=str(tmp_path)).stdout)
    here = {row["name"]: row["here"] for row in result["datasets"]}
    assert here["uea/LSST"] and not here["plasticc"]


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["check-reference", "nowhere"], ["nowhere/model_config.json", "exist"]),
        (["data", "check", "plastic"], ["'plastic'", "mean plasticc"]),
        (["data", "check", "plasticc"], ["plasticc", "download"]),
        (["demo", "--seeds", "3"], ["No such option"]),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(tmp_path, arguments, parts):
    done = romae(*arguments, ROMAE_DATA=str(tmp_path))
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert_says(done.stderr, *parts)


@pytest.mark.parametrize(
    "arguments", [["run", "spirals/b-tuned", "--quick", "--results"], ["demo", "--out"], ["benchmark", "--out"]]
)
def test_a_place_that_cannot_be_written_to_is_found_before_the_work(tmp_path, arguments):
    (tmp_path / "file").write_text("mine")
    done = romae(*arguments, tmp_path / "file" / "folder")
    assert done.returncode == 2
    assert_says(done.stderr, "not a folder", "choose another")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("line", ["3", '{"step": 1}', '{"step": 1, "epoch": 1, "loss": null}'])
def test_a_page_of_records_that_are_none_is_refused(tmp_path, line):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "history.jsonl").write_text(line + "\n")
    done = romae("page", tmp_path)
    assert done.returncode == 2
    assert_says(done.stderr, "history.jsonl", "line 1")

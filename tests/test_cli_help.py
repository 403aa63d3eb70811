"""The command line teaches: an example for every command, completion, and after Ctrl-C the command that goes on."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from messages import assert_says
from romae.cli import main as cli
from romae.cli.options import require_there
from romae.cli.recipes import list_recipes
from romae.cli.tables import print_table
from romae.experiments.recipe import discover
from test_cli import romae
from test_cli_own_data import COLUMNS, TINY
from test_training_tables import CURVES, contents

ROMAE = [sys.executable, "-c", "import sys; from romae.cli.main import main; sys.argv[0] = 'romae'; main()"]
ROOT = typer.main.get_command(cli.app)


def leaves(group, *path: str) -> dict[tuple[str, ...], object]:
    """Every command that does something, by the words that call it."""
    found = {}
    for name, command in group.commands.items():
        found |= leaves(command, *path, name) if hasattr(command, "commands") else {(*path, name): command}
    return found


COMMANDS = leaves(ROOT)
OF_TABLES = [
    path
    for path, command in COMMANDS.items()
    if any((one.name, one.param_type_name) == ("data", "argument") for one in command.params)
]


def words(path: tuple[str, ...]) -> object:
    return pytest.param(path, id=" ".join(path))


def shown_help(*path: str) -> str:
    done = CliRunner().invoke(cli.app, [*path, "--help"], env={"COLUMNS": "200", "TERMINAL_WIDTH": "200"})
    assert done.exit_code == 0
    return done.output


# Help


@pytest.mark.parametrize("path", [words(path) for path in COMMANDS])
def test_help_holds_an_example_that_the_command_understands(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [line.strip() for line in shown_help(*path).splitlines()]
    examples = [shlex.split(line.removeprefix("Example: ")) for line in lines if line.startswith("Example: romae ")]
    assert examples
    for example in examples:
        assert example[1 : 1 + len(path)] == list(path)
        for word in example:
            if word.endswith((".csv", ".parquet")):
                Path(word).touch()
        COMMANDS[path].make_context(" ".join(path), example[1 + len(path) :])  # a wrong option is an error here


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_option_says_what_it_is(path):
    for parameter in COMMANDS[path].params:
        assert parameter.name == "help" or parameter.help, parameter.name


def test_the_help_of_everything_names_every_command_and_where_to_start():
    assert "romae demo" in shown_help()
    for path in COMMANDS:
        assert path[-1] in shown_help(*path[:-1])


def test_help_is_short_too_and_puts_commands_together():
    short = CliRunner().invoke(cli.app, ["-h"], env={"COLUMNS": "120", "TERMINAL_WIDTH": "120"})
    assert short.exit_code == 0
    places = [short.output.index(f"─ {panel} ─") for panel in (cli.FIRST, cli.OWN, cli.PAPER, cli.TOOLS)]
    assert places == sorted(places) and "─ Commands ─" not in short.output
    assert CliRunner().invoke(cli.app, ["data", "list", "-h"]).exit_code == 0


def test_a_file_that_is_not_there_is_said_before_anything_slow_is_imported():
    given = {"--model": "none", "--pretrained": "none", "--out": "none", "--label": "none", "--times": "0:1:1"}
    calls = []
    for path in OF_TABLES:
        params = COMMANDS[path].params
        options = [x for p in params for name in p.opts if p.required and name in given for x in (name, given[name])]
        calls.append([*path, *("none.csv" for p in params if p.name == "data"), *options])
    source = f"""import sys
from romae.cli import main
for words in {calls!r}:
    sys.argv = ["romae", *words]
    try:
        main.main()
    except SystemExit as stopped:
        print(stopped.code, [name for name in ("torch", "pandas", "pydantic") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert done.stdout == "2 []\n" * len(calls), done.stderr
    assert done.stderr == "romae: there is no file none.csv\n" * len(calls)


def test_what_is_not_there_is_refused_with_its_near_miss(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("curves.csv").touch()
    Path("classifier").mkdir()
    for words, parts in (
        (["fill", "curve.csv", "--out", "a.csv"], ("no file curve.csv", "'curves.csv'")),
        (["predict", "curves.csv", "--model", "clasifier", "--out", "a.csv"], ("clasifier", "'classifier'", "Hub")),
        (["page", "rum"], ("folder of a run", "rum")),
        (["fill", "curves.csv", "--config", "job.toml", "--out", "a.csv"], ("no file job.toml",)),
    ):
        with pytest.raises(ValueError) as error:
            CliRunner().invoke(cli.app, words, catch_exceptions=False)
        assert_says(str(error.value), *parts)
    require_there("someone/light-curves", None)  # may be on the Hub


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_paragraphs_of_help_are_broken_by_the_terminal_alone(path):
    paragraphs = [text for text in COMMANDS[path].help.split("\n\n") if not text.startswith("Example: ")]
    assert not [text for text in paragraphs if "\n" in text]


def test_commands_of_one_sort_have_the_same_options():
    options = {path[0]: {one for p in command.params for one in p.opts} for path, command in COMMANDS.items()}
    answering = ("predict", "embed", "interpolate", "forecast", "anomaly", "explain")
    for name in (*answering, "fill", "calibrate", "finetune"):
        assert {"--model", "--device", "--quiet", "--json"} <= options[name], name
    assert "--model" in options["export"]
    for name in ("pretrain", "run", "compare"):
        assert {"--device", "--quiet", "--json"} <= options[name], name


def test_every_command_that_writes_can_be_told_to_write_over_what_is_there():
    """But for those whose folder is a run, which is never overwritten, and one that adds to what it reads."""
    writing = {"--out", "--save", "--markdown", "--page"}
    for path, command in COMMANDS.items():
        options = {option for parameter in command.params for option in parameter.opts}
        assert ("--force" in options) == bool(options & writing and path not in {("pretrain",), ("finetune",)}), path


def test_the_next_commands_of_the_demo_start_from_where_the_user_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for found, started, expected in (
        ("/usr/bin/romae", "romae", "romae"),
        (None, str(tmp_path / ".venv/bin/romae"), ".venv/bin/romae"),
        (None, "/somewhere/romae/__main__.py", "python -m romae"),
    ):
        monkeypatch.setattr("shutil.which", lambda name, found=found: found)
        monkeypatch.setattr(sys, "argv", [started])
        assert cli._program() == expected


# For programs


def test_every_command_speaks_json():
    assert not [path for path, command in COMMANDS.items() if not any("--json" in one.opts for one in command.params)]


def test_a_check_of_data_speaks_json(monkeypatch):
    class Whole:
        def verify(self) -> str:
            return "40 series"

    monkeypatch.setattr("romae.experiments.datasets.find", lambda name: Whole())
    for options, said in (((), "one: 40 series\n"), (("--json",), '[{"name": "one", "content": "40 series"}]\n')):
        assert CliRunner().invoke(cli.app, ["data", "check", "one", *options]).output == said


def test_the_list_of_experiments_can_be_narrowed():
    named = CliRunner().invoke(cli.app, ["list", "pendulum", "--json"])
    assert {row["recipe"].split("/")[0] for row in json.loads(named.output)} == {"pendulum", "uncertainty"}
    with pytest.raises(ValueError) as error:
        CliRunner().invoke(cli.app, ["list", "pendulums"], catch_exceptions=False)
    assert_says(str(error.value), "no experiment", "pendulums", "romae list")


def test_the_list_fits_a_terminal_of_eighty_columns(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    list_recipes(results=Path(__file__).resolve().parents[1] / "results")
    lines = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    names = set(discover()) | {"zero/all"}
    assert max(map(len, lines)) <= 80 and names == {line.split()[0] for line in lines[2:] if line[:1].strip()}
    assert lines[0].split() == ["name", "metric", "result", "published"]


def test_names_in_a_table_are_never_broken(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    print_table("", [{"name": "lightcurves/plasticc-pretrain", "protocol": "a sentence of many words " * 4}])
    assert "lightcurves/plasticc-pretrain" in capsys.readouterr().out


# Completion


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("romae pre", {"pretrain", "predict"}), ("romae data c", {"check"}), ("romae finetune --pre", {"--pretrained"})],
)
def test_the_shell_completes_commands_and_options(typed, offered):
    asked = {"_ROMAE_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
    done = subprocess.run(ROMAE, capture_output=True, text=True, env=os.environ | asked, check=True)
    assert set(done.stdout.split()) == offered


def test_completion_is_a_script_for_the_shell_that_asks():
    command = f"{shlex.join([*ROMAE, '--show-completion', 'bash'])}; exit $?"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.returncode == 0 and "complete -o default -F _romae_completion romae" in done.stdout


# Tables


def test_a_table_is_plain_where_no_terminal_reads_it(capsys):
    rows = [{"name": "a", "passed": True, "error": 0.12345}, {"name": "b" * 200, "passed": False, "error": None}]
    print_table("A title", rows)
    title, head, *lines = capsys.readouterr().out.splitlines()
    assert (title, head.split()) == ("A title", ["name", "passed", "error"])
    assert [line.split() for line in lines] == [["a", "yes", "0.123"], ["b" * 200, "no", "unknown"]]


def test_a_table_has_lines_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_table("A title", [{"name": "a", "error": 0.5}])
    assert "───" in capsys.readouterr().out


# Ctrl-C


def stopped(command: list[str], folder: Path) -> str:
    """What a process says that gets Ctrl-C, as a terminal sends it to all of its processes, once a state is there."""
    process = subprocess.Popen([*ROMAE, *command], stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline and not any(folder.rglob("states/[0-9]*")):
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in said, said
    return said


def resumed(said: str) -> None:
    """Run the command that the message names."""
    _, _, command = said.partition("the run has saved its state and stopped; resume it with: romae ")
    finished(shlex.split(command))


def finished(command: list[str]) -> None:
    """Run a command in this process, which saves the seconds of a start."""
    done = romae(*command)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_pretraining_with_loading_processes_goes_on_after_ctrl_c_as_if_it_had_not_been_pressed(tmp_path):
    data, whole, halves = tmp_path / "my curves.parquet", tmp_path / "whole", tmp_path / "in two halves"
    CURVES.to_parquet(data)
    settings = [*TINY, "--set=train.epochs=25", "--set=train.save_every=10", "--set=train.validate_every=50"]
    command = ["pretrain", str(data), *COLUMNS, *settings, "--set=train.workers=1"]
    finished([*command, "--out", str(whole)])
    resumed(stopped([*command, "--out", str(halves)], halves))
    assert contents(halves) == contents(whole)


@pytest.mark.slow
def test_an_experiment_goes_on_after_ctrl_c_as_if_it_had_not_been_pressed(tmp_path):
    settings = ["--quick", "--set=train.epochs=12", "--set=train.save_every=20", "--device", "cpu"]
    command = ["run", "positions/tiny-cls", "--seed", "1", *settings]

    def told(name: str) -> list[str]:
        return [*command, "--results", str(tmp_path / name / "results"), "--out", str(tmp_path / name / "run")]

    def metrics(name: str) -> dict[str, float]:
        (result,) = (tmp_path / name / "results").rglob("*.json")
        return json.loads(result.read_text())["metrics"]

    finished(told("whole"))
    resumed(stopped(told("halves"), tmp_path / "halves"))
    assert metrics("halves") == metrics("whole")


@pytest.mark.slow
def test_an_experiment_that_keeps_no_states_says_so(tmp_path):
    command = ["run", "positions/tiny-cls", "--quick", "--set=train.epochs=100000", "--results", str(tmp_path)]
    process = subprocess.Popen([*ROMAE, *command], stderr=subprocess.PIPE, text=True)
    assert process.stderr.readline()  # the first report: training is under way
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert_says(said, "kept nothing", "--out", "resumed")
    assert "Traceback" not in said and not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "quiet", "device"), [((), False, "auto"), (("--quiet", "--device", "cpu"), True, "cpu")]
)
def test_training_is_told_of_the_device_and_whether_to_show_progress(tmp_path, monkeypatch, words, quiet, device):
    def told(config, data, out, *, resume, quiet):
        raise ValueError(f"quiet {quiet} on {config.train.device}")

    monkeypatch.setattr("romae.training.tables.pretrain", told)
    data = tmp_path / "curves.parquet"
    CURVES.to_parquet(data)
    done = romae("pretrain", str(data), *COLUMNS, "--out", str(tmp_path / "run"), *words)
    assert_says(done.stderr, f"quiet {quiet} on {device}")

"""What tutorials promise beyond their Python, which `test_docs.py` runs: commands run, pictures are there."""

import re
import shlex
import sys
import warnings
from pathlib import Path

import pytest

from romae.cli import main as cli

ROOT = Path(__file__).resolve().parents[1]
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
OWN_TABLE = ROOT / "docs" / "tutorials" / "own-table.md"
QUICK = ("--set", "train.epochs=1")  # enough to see that a command runs


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_the_commands_of_the_tutorial_run_on_its_table_and_write_what_they_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)  # the command line sets its own
    exec(blocks(OWN_TABLE, "python")[0], {"__name__": "__main__"})
    Path("small.toml").write_text(blocks(OWN_TABLE, "toml")[0])
    commands = [shlex.split(line) for block in blocks(OWN_TABLE, "console") for line in block.splitlines()]
    for command in commands:
        is_training = command[1] in ("pretrain", "finetune")
        monkeypatch.setattr(sys, "argv", [*command, *(QUICK if is_training else ())])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        assert not stopped.value.code, command
    named = [Path(command[command.index("--out") + 1]) for command in commands if "--out" in command]
    assert len(named) == 4 and all(path.exists() for path in named)
    assert len(Path("profile.csv").read_text().splitlines()) == len(Path("places.csv").read_text().splitlines())
    assert Path("run/page.html").is_file()


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_draws_the_picture_it_shows(page):
    shown = re.findall(r"!\[[^]]+\]\((\S+)\)", page.read_text(encoding="utf-8"))
    assert shown == [f"../images/tutorial-{page.stem}.png"]
    assert (page.parent / shown[0]).stat().st_size < 80_000
    assert f'"{page.stem}.png"' in "".join(blocks(page, "python"))

"""The page of promises: its figures are those of the campaigns, and every command that it names is there."""

import ast
import json
import re
import shutil

import pytest
from record import PAGE, RESULTS, ROOT, in_words, keep, write_page

TEXT = PAGE.read_text(encoding="utf-8")


def test_the_figures_are_those_that_the_campaigns_kept(tmp_path):
    shutil.copy(PAGE, tmp_path)
    write_page(tmp_path / PAGE.name)
    assert (tmp_path / PAGE.name).read_text(encoding="utf-8") == TEXT, "run python tests/reliability/record.py"
    assert set(in_words(json.loads(RESULTS.read_text()))) == {"make fuzz", "make kill", "make mutate"}


def test_no_hostile_input_and_no_kill_has_done_harm_and_tests_notice_changes():
    kept = json.loads(RESULTS.read_text(encoding="utf-8"))
    assert kept["fuzz"]["inputs"] >= 10_000 and kept["fuzz"]["failures"] == 0
    assert kept["kill"]["kills"] >= 1_000 and kept["kill"]["mismatches"] == 0
    assert kept["mutate"]["share_killed"] >= 0.95


@pytest.mark.parametrize("named", sorted(set(re.findall(r"`(tests/[^`]+)`", TEXT))))
def test_a_test_that_shows_a_promise_is_there(named):
    file, _, function = named.partition("::")
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert function in names if function else names


def test_every_campaign_is_a_target_of_make():
    targets = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert all(re.search(rf"(?m)^{command.split()[1]}:", targets) for command in set(re.findall(r"`(make \w+)`", TEXT)))


def test_a_campaign_leaves_the_figures_of_the_others(tmp_path):
    file = tmp_path / "kept.json"
    keep("kill", {"kills": 1}, file)
    keep("fuzz", {"inputs": 2}, file)
    kept = json.loads(file.read_text(encoding="utf-8"))
    assert kept["kill"]["kills"] == 1 and kept["fuzz"]["inputs"] == 2 and kept["fuzz"]["made_on"]["torch"]

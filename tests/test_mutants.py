"""The mutants of `make mutate`: one place each, the same for a seed, and none that only rewords a message."""

import ast
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "reliability"))

from children import Job, in_children
from mutants import draw, mutants_of
from mutate import ROOT, TESTS, is_equivalent, is_left_out, listed, mapped_tests, sources

SOURCE = '''
"""A docstring with 3 numbers and a < b."""
from typing import TYPE_CHECKING

LIMIT = 3

if TYPE_CHECKING:
    LIMIT = 4


def shares(values: "list[int | float]", whole: bool = True, *, least: float = 0.5) -> "tuple[int | float, ...]":
    """Not 1 of these words is changed."""
    if not values and whole:
        raise ValueError(f"needs {LIMIT + 1} values, not {len(values)}")
    total = max(sum(values), key=abs) - 1
    for value in values[1:-1]:
        if value < least:
            continue
        total += value // 2
    return [divide(value, total) for value in values if value is not None]
'''


def changed(kind: str) -> set[tuple[str, str]]:
    return {(one.before, one.after) for one in mutants_of("shares.py", SOURCE) if one.kind == kind}


def test_each_kind_of_change_is_made_where_it_can_be():
    assert changed("comparison") == {("value < least", "(value <= least)"), ("value is not None", "(value is None)")}
    assert changed("sign dropped") == {("not values", "values")}
    assert ("not values and whole", "(not values or whole)") in changed("and or")
    assert ("not values and whole", "whole") in changed("condition dropped")
    assert {("3", "4"), ("True", "False"), ("0.5", "1.0"), ("-1", "(-2)")} <= changed("constant")
    assert ("value // 2", "(-(-value // 2))") in changed("arithmetic")
    assert ("total += value // 2", "total -= value // 2") in changed("arithmetic")
    assert ("divide(value, total)", "divide(total, value)") in changed("arguments swapped")
    assert ("max(sum(values), key=abs)", "max(sum(values))") in changed("keyword dropped")
    assert ("max(sum(values), key=abs)", "min(sum(values), key=abs)") in changed("function")
    assert ("values[1:-1]", "values[:-1]") in changed("slice")
    assert ("continue", "pass") in changed("statement dropped")
    assert ("value < least", "(value < least) and False") in changed("branch")


def test_one_place_is_changed_and_the_rest_is_as_it_was():
    for mutant in mutants_of("shares.py", SOURCE):
        other = mutant.applied(SOURCE)
        assert other != SOURCE and other.replace(mutant.after, "", 1) != SOURCE
        assert SOURCE[: mutant.start] == other[: mutant.start] and other.endswith(SOURCE[mutant.end :])
        ast.parse(other)


def test_what_no_test_should_see_is_left_alone():
    texts = " ".join(one.before for one in mutants_of("shares.py", SOURCE))
    assert "LIMIT + 1" not in texts and "int | float" not in texts and "4" not in texts and "words" not in texts


def test_a_seed_gives_the_same_mutants_and_another_gives_others():
    files = {"a.py": SOURCE, "b.py": SOURCE}
    first, again, other = draw(files, 20, 0), draw(files, 20, 0), draw(files, 20, 1)
    assert first == again != other and len(set(first)) == 20
    assert len(draw(files, 10_000, 0)) == 2 * len(mutants_of("a.py", SOURCE))  # all there are
    kept = [one for one in first if one.file == "a.py"]
    assert kept == [one for one in draw({**files, "b.py": "x = 1"}, 10_000, 0) if one.file == "a.py"][: len(kept)]


def test_every_file_of_the_core_is_mapped_to_tests():
    for file in sources():
        assert mapped_tests(file, ROOT), file
    for names in TESTS.values():
        for name in names.split():
            assert list((ROOT / "tests").glob(f"{name}.py")), name


def test_what_is_not_counted_is_there_and_has_a_reason():
    """An entry whose source has changed since is taken out of the list."""
    equivalents, functions = listed()
    assert all(len(entry["reason"].split()) > 3 for entry in [*equivalents, *functions])
    core = sources()
    by_file = {entry["file"]: mutants_of(entry["file"], core[entry["file"]]) for entry in [*equivalents, *functions]}
    for entry in equivalents:
        assert any(is_equivalent(mutant, [entry]) for mutant in by_file[entry["file"]]), entry
    for entry in functions:
        assert any(is_left_out(mutant, [entry]) for mutant in by_file[entry["file"]]), entry


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that are forked")
def test_children_end_with_what_they_found_or_are_stopped(tmp_path):
    def forever(folder: Path) -> int:
        while True:
            pass

    jobs = [Job("fine", lambda folder: 0, 30), Job("wrong", lambda folder: 1, 30), Job("late", forever, 0.3)]
    jobs.append(Job("raises", lambda folder: 1 // 0, 30))
    found = {job.name: (status, printed) for job, status, printed in in_children(jobs, 2, tmp_path)}
    assert {name: status for name, (status, _) in found.items()} == {"fine": 0, "wrong": 1, "late": None, "raises": 70}
    assert "ZeroDivisionError" in found["raises"][1]
    assert list(tmp_path.iterdir()) == []

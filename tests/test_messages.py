"""Tests hold messages by their parts; what holds them can fail."""

import ast
import warnings
from pathlib import Path

import pytest

from messages import MOST_WORDS, assert_says, refused, warned, words

TESTS = Path(__file__).parent


def complain(error=ValueError, message="column 'HR' occurs twice; rename one"):
    raise error(message)


def test_parts_are_plain_text_in_any_order_and_case():
    with refused(ValueError, "Rename", "column 'hr'") as caught:
        complain()
    assert "twice" in str(caught.value)
    with refused((TypeError, ValueError), "[q, 1]", "1.5"):
        complain(TypeError, "the shape is [q, 1], not 1.5")
    with warned(UserWarning, "Dropped", "3 rows"):
        warnings.warn("dropped 3 rows", stacklevel=1)
    assert_says("one line\n  and another", "line and another")


@pytest.mark.parametrize("parts", [["HR", "drop"], ["occurs .* twice"], ["renames"]])
def test_a_missing_part_fails_with_the_message_shown(parts):
    with pytest.raises(pytest.fail.Exception) as failure:
        with refused(ValueError, *parts):
            complain()
    assert parts[-1] in str(failure.value) and "occurs twice" in str(failure.value)
    with pytest.raises(pytest.fail.Exception) as failure:
        with warned(UserWarning, *parts):
            warnings.warn("column 'HR' occurs twice", stacklevel=1)
    assert parts[-1] in str(failure.value) and "occurs twice" in str(failure.value)


def test_parts_of_different_warnings_do_not_add_up():
    with pytest.raises(pytest.fail.Exception):
        with warned(UserWarning, "flux", "error"):
            warnings.warn("flux", stacklevel=1)
            warnings.warn("error", stacklevel=1)
    with warned(UserWarning, "error"):
        warnings.warn("flux", stacklevel=1)
        warnings.warn("error", stacklevel=1)


def test_a_call_that_is_handed_over_would_never_run_and_is_refused():
    with pytest.raises(TypeError, match="with refused"):
        refused(lambda: complain(), "HR")  # type: ignore[arg-type]


def test_a_block_that_goes_through_fails():
    with pytest.raises(pytest.fail.Exception):
        with refused(ValueError, "HR"):
            pass
    with pytest.raises(pytest.fail.Exception):
        with warned(UserWarning, "HR"):
            pass


@pytest.mark.filterwarnings("ignore:HR")
def test_another_kind_of_error_does_not_pass_for_this_one():
    with pytest.raises(TypeError, match="HR"):
        with refused(ValueError, "HR"):
            complain(TypeError)
    with pytest.raises(pytest.fail.Exception, match="UnicodeError"):
        with refused(ValueError, "HR"):
            complain(UnicodeError)
    with pytest.raises(pytest.fail.Exception):
        with warned(UserWarning, "HR"):
            warnings.warn("HR", UnicodeWarning, stacklevel=1)


@pytest.mark.parametrize("parts", [[], [""], ["HR", " "], ["y"], ["column 'HR' occurs twice; rename one"]])
def test_parts_that_say_nothing_or_a_sentence_are_no_parts(parts):
    with pytest.raises(TypeError, match="part|words"):
        with refused(ValueError, *parts):
            complain()


def test_no_pattern_in_the_tests_is_a_sentence():
    long = []
    for path in sorted(TESTS.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "match":
                text = " ".join(
                    leaf.value
                    for leaf in ast.walk(node)
                    if isinstance(leaf, ast.Constant) and isinstance(leaf.value, str)
                )
                if len(words(text)) > MOST_WORDS:
                    long.append(f"{path.relative_to(TESTS)}:{node.lineno}: {text}")
    assert not long, "name the parts instead, with messages.refused:\n" + "\n".join(long)

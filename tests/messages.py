"""What an error, a warning or an output must say is told by its parts: names, numbers and the fix, in any order.

A part is plain text of a few words, upper or lower case. Messages can be reworded as long as these survive.
"""

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

MOST_WORDS = 4  # more of them are a sentence, whose wording a test would freeze


def words(text: str) -> list[str]:
    """What stands between blanks and has a letter: a path is one word, and "[2, 3]" is a value, not words."""
    return [word for word in text.split() if re.search(r"[^\W\d_]", word)]


def assert_says(text: str, *parts: str) -> None:
    """`text` must contain every part; line ends count as spaces, for a terminal breaks lines where it is narrow."""
    __tracebackhide__ = True
    if not parts or min(len(part.strip()) for part in parts) < 2:
        raise TypeError("give at least one part, each of two characters or more: others are in almost any message")
    for part in parts:
        if len(words(part)) > MOST_WORDS:
            raise TypeError(f"{part!r} has more than {MOST_WORDS} words; give the names, the numbers and the fix in it")
    flat = " ".join(text.split()).lower()
    missing = [part for part in parts if " ".join(part.split()).lower() not in flat]
    if missing:
        pytest.fail(f"{missing} not in the message: {text}")


def refused(
    error: type[Exception] | tuple[type[Exception], ...], *parts: str
) -> AbstractContextManager[pytest.ExceptionInfo[Exception]]:
    """The block of a `with` must raise `error` itself, not a kind of it, with a message that contains every part."""
    if not all(isinstance(one, type) for one in (error if isinstance(error, tuple) else (error,))):
        raise TypeError("write `with refused(ValueError, …):` above the call; a call that is handed over never runs")
    return _refused(error, *parts)


@contextmanager
def _refused(
    error: type[Exception] | tuple[type[Exception], ...], *parts: str
) -> Iterator[pytest.ExceptionInfo[Exception]]:
    __tracebackhide__ = True
    with pytest.raises(error) as caught:
        yield caught
    if caught.type not in (error if isinstance(error, tuple) else (error,)):
        pytest.fail(f"expected {error}, and {caught.type} was raised: {caught.value}")
    assert_says(str(caught.value), *parts)


@contextmanager
def warned(warning: type[Warning], *parts: str) -> Iterator[pytest.WarningsRecorder]:
    """The block must warn of `warning` itself, at least once with a message that contains every part."""
    __tracebackhide__ = True
    with pytest.warns(warning) as record:
        yield record
    messages = [str(entry.message) for entry in record if entry.category is warning]
    for message in messages:
        try:
            return assert_says(message, *parts)
        except pytest.fail.Exception:
            continue
    pytest.fail(f"no {warning.__name__} contains {list(parts)}: {messages}")

"""What cannot be read is left out and told, where that is asked for, so that the rest gets its answers."""

import warnings
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Int64

OnError = Literal["raise", "skip"]

AT_ONCE = 4096  # samples that are tried together before halves of them are
MOST_NAMED = 3  # in a warning; all are in the list
LONGEST_REASON = 160  # characters of a reason in a warning


class Skipped(NamedTuple):
    """A sample that was left out, and why.

    Parameters
    ----------
    id : hashable
        Its id in a table, or its place in a list.
    reason : str
        What is wrong with it, in the words of the error that it would be.

    Examples
    --------
    >>> from romae.data.skipping import Skipped
    >>> Skipped("star 7", "it has no row without a missing value").id
    'star 7'
    """

    id: Hashable
    reason: str


def require_on_error(on_error: Any) -> None:
    """Refuse what is no way to deal with samples that cannot be read."""
    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error must be 'raise' or 'skip', not {on_error!r}")


def refused_parts(n: int, attempt: Callable[[Int64[np.ndarray, "part"]], Any]) -> dict[int, str]:
    """Which of n samples an attempt refuses, each with its reason; if all of them, the error is raised.

    Many are tried together, and halves of them where they fail, so that k of n cost some k log n attempts.
    """
    refused: dict[int, str] = {}
    pending = [np.arange(start, min(start + AT_ONCE, n)) for start in range(0, n, AT_ONCE)][::-1]
    first_error: Exception | None = None
    while pending:
        part = pending.pop()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # those that are kept are read once more
                attempt(part)
        except (ValueError, TypeError, OverflowError) as error:
            first_error = first_error or error
            if len(part) == 1:
                refused[int(part[0])] = str(error)
            else:
                pending += [part[len(part) // 2 :], part[: len(part) // 2]]
    if first_error is not None and len(refused) == n:
        raise first_error
    return refused


def warn_of(skipped: Sequence[Skipped], n: int, stacklevel: int = 2) -> None:
    """One warning for all that was left out of n samples, or none."""
    if not skipped:
        return
    named = [
        f"{name!r} ({reason if len(reason) <= LONGEST_REASON else f'{reason[:LONGEST_REASON]}…'})"
        for name, reason in skipped[:MOST_NAMED]
    ]
    more = f"; and {len(skipped) - MOST_NAMED} more" if len(skipped) > MOST_NAMED else ""
    warnings.warn(f"skipped {len(skipped)} of {n} samples: {'; '.join(named)}{more}", stacklevel=stacklevel + 1)

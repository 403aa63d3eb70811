"""One hostile input and what became of it.

An input passes if it is refused in the library's own words, or answered rightly. Refused means: a `raise` statement of
romae itself, with a message. Whatever leaves torch, numpy, pandas, pyarrow or json as an exception, takes more than a
few seconds or more than a gibibyte, is a failure, and so is the refusal of an input that is sound.
"""

import dis
import resource
import shutil
import time
import traceback
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeVar

import numpy as np

import romae

T = TypeVar("T")

SOURCE = Path(romae.__file__).resolve().parent
MOST_BYTES = 1 << 30
MOST_SECONDS = 5.0
LONGEST_MESSAGE = 20_000  # characters
NO_REFUSALS = (AssertionError, AttributeError, LookupError, MemoryError, NotImplementedError, RecursionError)


class WrongAnswer(Exception):
    """The library answered, and not rightly."""


class Trial:
    """One input to be: what is drawn for it, where its files go, and what is said of it if it fails."""

    def __init__(self, random: np.random.Generator, folder: Path) -> None:
        self.random, self.folder = random, folder
        self.notes: list[str] = []
        self.is_sound = False  # a sound input must be answered
        self.was_refused = False  # by a command, which ends with an exit code and raises nothing

    def note(self, *parts: object) -> None:
        """Say what the input is, for those who have to repeat it."""
        self.notes.append(" ".join(str(part) if isinstance(part, str) else repr(part) for part in parts))

    def choose(self, options: Sequence[T]) -> T:
        """One of these."""
        return options[int(self.random.integers(len(options)))]

    def chance(self, share: float) -> bool:
        """True in a share of all trials."""
        return bool(self.random.random() < share)

    def number(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`."""
        return int(self.random.integers(low, high + 1))


@dataclass(frozen=True)
class Outcome:
    """What became of one input; `cause` is empty unless it failed."""

    name: str
    seed: int
    index: int
    verdict: Literal["right", "refused", "failed"]
    cause: str = ""
    details: str = ""
    seconds: float = 0.0


def judged(name: str, seed: int, index: int, folder: Path) -> Outcome:
    """Try input number `index` of a class; it has an empty folder below `folder` to itself."""
    attempt: Callable[[Trial], None] = import_module(f"fuzz.{name}").attempt
    random = np.random.default_rng([seed, zlib.crc32(name.encode()), index])
    trial = Trial(random, folder / f"{name}-{index}")
    trial.folder.mkdir(parents=True)
    begin, cause, verdict, details = time.perf_counter(), "", "right", ""
    try:
        with warnings.catch_warnings(), bounded_memory():
            warnings.simplefilter("ignore")
            attempt(trial)
        verdict = "refused" if trial.was_refused else "right"
    except Exception as error:
        verdict = "refused"
        if cause := complaint(error):
            details = "".join(traceback.format_exception(error))
        elif trial.is_sound:
            cause, details = f"refused a sound input at {place(error)}", str(error)
    finally:
        shutil.rmtree(trial.folder, ignore_errors=True)
    seconds = time.perf_counter() - begin
    if not cause and seconds > MOST_SECONDS:
        cause = f"took more than {MOST_SECONDS:g} s"
    if cause:
        details = f"{'; '.join(trial.notes)}\n{details}"
    return Outcome(name, seed, index, "failed" if cause else verdict, cause, details, seconds)  # type: ignore[arg-type]


def complaint(error: BaseException) -> str:
    """What speaks against an exception as a refusal; empty if nothing does."""
    if isinstance(error, WrongAnswer):
        return f"wrong answer: {error}"
    kind = type(error).__name__
    if not is_own(error):
        return f"{kind} at {place(error)}"
    if isinstance(error, NO_REFUSALS) and type(error) is not IndexError:
        return f"{kind} raised at {place(error)}"
    message = str(error)
    if len(message.split()) < 3:
        return f"{kind} without a sentence at {place(error)}"
    return f"{kind} of {len(message)} characters at {place(error)}" if len(message) > LONGEST_MESSAGE else ""


def is_own(error: BaseException) -> bool:
    """Whether a `raise` statement of romae made this exception, and not a function of another library that it calls."""
    last = _frames(error)[-1]
    code = last.tb_frame.f_code
    operation = dis.opname[code.co_code[last.tb_lasti]]
    return _is_ours(code.co_filename) and operation == "RAISE_VARARGS"


def place(error: BaseException) -> str:
    """The innermost line of romae that an exception went through."""
    for step in reversed(_frames(error)):
        file = step.tb_frame.f_code.co_filename
        if _is_ours(file):
            return f"{Path(file).resolve().relative_to(SOURCE)}:{step.tb_lineno}"
    step = _frames(error)[-1]
    return f"{Path(step.tb_frame.f_code.co_filename).name}:{step.tb_lineno} (not romae)"


def _is_ours(file: str) -> bool:
    return file.startswith(str(SOURCE)) or Path(file).resolve().is_relative_to(SOURCE)


def _frames(error: BaseException) -> list[TracebackType]:
    steps, step = [], error.__traceback__
    while step is not None:
        steps.append(step)
        step = step.tb_next
    return steps


@contextmanager
def answered(what: str) -> Iterator[None]:
    """What the library has accepted it must also use: an exception in the block is a wrong answer."""
    try:
        yield
    except WrongAnswer:
        raise
    except Exception as error:
        raise WrongAnswer(f"{what}: {type(error).__name__} at {place(error)}") from error


def require(is_right: Any, problem: str) -> None:
    """What an oracle has to say of an answer."""
    if not is_right:
        raise WrongAnswer(problem)


@contextmanager
def bounded_memory(n_bytes: int = MOST_BYTES) -> Iterator[None]:
    """Let this process have no more than so many further bytes, where the system can be told so."""
    status = Path("/proc/self/statm")
    if not status.exists():
        yield
        return
    n_now = int(status.read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (n_now + n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))

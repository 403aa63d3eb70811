"""Command lines in this process: what a command says, how it ends, and whether it kept its hands off people's files."""

import contextlib
import hashlib
import io
import os
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import typer.main

import romae.cli.main as cli
from fuzz.judging import Trial, WrongAnswer, complaint, place, require

ENDINGS = (0, 2)  # answered and refused; a run that failed ends with 1, and no input here is one


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


@cache
def _command_line() -> Any:
    """The commands of typer, which builds them anew at every call."""
    return typer.main.get_command(cli.app)


class _Listened:
    """The command line of typer; it keeps the exception that `main` turns into a sentence."""

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def __call__(self, *arguments: Any, **settings: Any) -> Any:
        try:
            return _command_line()(*arguments, **settings)
        except Exception as error:
            self.error = error
            raise


def run_command(trial: Trial, words: Sequence[str]) -> Ended:
    """Run `romae` with these words; whatever is not a clean end is a wrong answer."""
    _command_line()  # before what it is made of is replaced
    listened, out, err = _Listened(), io.StringIO(), io.StringIO()
    code: Any = 0
    with _as_it_was(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        cli.app, sys.argv = listened, ["romae", *words]  # type: ignore[assignment]
        try:
            cli.main()
        except SystemExit as end:
            code = 0 if end.code is None else end.code
        except BaseException as error:
            raise WrongAnswer(f"a traceback: {type(error).__name__} at {place(error)}") from error
    ended = Ended(code, out.getvalue(), err.getvalue())
    if listened.error is not None and (problem := complaint(listened.error)):
        raise WrongAnswer(f"the command line hides {problem}") from listened.error
    require(code in ENDINGS, f"exit code {code}")
    require("Traceback" not in ended.err + ended.out, "a traceback on the screen")
    require(code == 0 or (ended.err + ended.out).strip(), "a refusal without a word")
    trial.was_refused = code != 0
    return ended


@contextlib.contextmanager
def _as_it_was() -> Iterator[None]:
    """Afterwards the process is as it was: arguments, folder, environment, signals, and how warnings look."""
    app, words, folder, environment = cli.app, sys.argv, os.getcwd(), dict(os.environ)
    warning, handlers = (
        warnings.formatwarning,
        [(name, signal.getsignal(name)) for name in (signal.SIGINT, signal.SIGTERM)],
    )
    try:
        yield
    finally:
        cli.app, sys.argv, warnings.formatwarning = app, words, warning
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        for name, handler in handlers:
            signal.signal(name, handler)


def digests(folder: Path) -> dict[str, str]:
    """What is in a folder and all folders in it: every file by its name, with a digest of its content."""
    paths = sorted(path for path in folder.rglob("*") if not path.is_dir())
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "link"
        for path in paths
    }


def require_untouched(before: dict[str, str], folder: Path, *, may_change: Sequence[str] = ()) -> None:
    """The files of a folder are as they were, but for those that a command was told to write, and those beside them."""
    after = digests(folder)
    for name, digest in before.items():
        if not _is_within(name, may_change):
            require(after.get(name) == digest, "a command changed or removed a file of the user's")
    for name in after:
        if name not in before and not _is_within(name, may_change):
            raise WrongAnswer("a command left a file that nobody asked for")


def _is_within(name: str, places: Sequence[str]) -> bool:
    return any(name == where or name.startswith(f"{where}/") for where in places)

"""Runs that the command line starts: they can be stopped and resumed, and of several processes the first one speaks."""

import contextlib
import os
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import typer

CTRL_C = 128 + signal.SIGINT


def is_first_rank() -> bool:
    """Whether this is the first of several processes, or the only one."""
    return os.environ.get("RANK", "0") == "0"


def require_new(folder: Path, force: bool) -> None:
    """Refuse a folder for a model where something is, unless `force` is set."""
    if folder.is_dir() and any(folder.iterdir()) and not force:
        raise ValueError(f"{folder} holds something already; choose a new folder, or replace a checkpoint with --force")


@contextlib.contextmanager
def resumable(folder: Path | None, *command: str | Path) -> Iterator[None]:
    """Ctrl-C lets a run save its state first, and a run that was stopped says how to go on with it.

    The states lie somewhere in `folder`; a run without one keeps none. `command` is what starts the run.
    """
    from romae.training.loop import REQUEUE, Interrupted

    resume_command = shlex.join(map(str, ("romae", *command, "--resume")))
    owner, was_pressed = os.getpid(), False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal was_pressed
        if os.getpid() != owner:
            return  # a terminal tells loading processes as well; they go on until the run no longer needs them
        # A run that is under way saves and stops on SIGTERM.
        if was_pressed or not callable(signal.getsignal(signal.SIGTERM)):
            raise KeyboardInterrupt
        was_pressed = True
        typer.echo("romae: stopping after this step; press Ctrl-C again to stop at once", err=True)
        signal.raise_signal(signal.SIGTERM)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    except Interrupted:
        typer.echo(f"romae: the run has saved its state and stopped; resume it with: {resume_command}", err=True)
        raise typer.Exit(CTRL_C if was_pressed else REQUEUE) from None
    except (KeyboardInterrupt, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not was_pressed:
            raise
        typer.echo(f"romae: the run was stopped; {_resume_hint(folder, resume_command)}", err=True)
        raise typer.Exit(CTRL_C) from None
    finally:
        signal.signal(signal.SIGINT, before)


def _resume_hint(folder: Path | None, resume_command: str) -> str:
    if folder is None:
        return "it has kept nothing; with --out it can be resumed"
    if any(folder.rglob("states/[0-9]*")):
        return f"resume from its last state with: {resume_command}"
    return "it has not saved a state yet"

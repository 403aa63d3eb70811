"""Jobs in forked processes, a few at a time, each with a folder of its own and an end after which it is stopped."""

import contextlib
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

MEMORY = 32 * 2**30  # bytes of address space; a size that goes wrong must not take the machine down


@dataclass
class Job:
    """Something to do in a child, and how long it may take."""

    name: str
    work: Callable[[Path], int]
    limit: float
    started: float = 0.0
    folder: Path = field(default_factory=Path)


def in_children(jobs: Sequence[Job], n_processes: int, scratch: Path) -> Iterator[tuple[Job, int | None, str]]:
    """Each job in a process of its own; its exit status, or None where it took too long, and what it printed."""
    waiting, running = list(reversed(jobs)), {}
    while waiting or running:
        while waiting and len(running) < n_processes:
            job = waiting.pop()
            job.folder = Path(tempfile.mkdtemp(dir=scratch))
            job.started = time.monotonic()
            running[_child(job)] = job
        for process, job in list(running.items()):
            done, status = os.waitpid(process, os.WNOHANG)
            is_late = not done and time.monotonic() - job.started > job.limit
            if not done and not is_late:
                continue
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process, signal.SIGKILL)  # the child, and what its tests have started
            if not done:
                os.waitpid(process, 0)
            del running[process]
            printed = (job.folder / "printed").read_text(encoding="utf-8", errors="replace")
            yield job, None if is_late else os.waitstatus_to_exitcode(status), printed
            shutil.rmtree(job.folder, ignore_errors=True)
        time.sleep(0.02)


def _child(job: Job) -> int:
    """Fork, and do the job with its own folder for everything that tests and romae write."""
    if process := os.fork():
        return process
    status = 70
    try:
        os.setsid()
        printed = os.open(job.folder / "printed", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(printed, 1)
        os.dup2(printed, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdout, sys.stderr = (open(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        for name in ("TMPDIR", "HOME", "XDG_CACHE_HOME", "HYPOTHESIS_STORAGE_DIRECTORY"):
            os.environ[name] = str(job.folder)
        tempfile.tempdir = None
        status = job.work(job.folder)
    except BaseException as error:  # whatever a mutant does, the child ends here
        print(f"{type(error).__name__}: {error}", flush=True)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return 0

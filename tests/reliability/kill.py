"""Kill runs with SIGKILL, resume them, and compare them byte for byte with runs that were never stopped.

    python tests/reliability/kill.py --kills 1000 --seed 0 --jobs 16

A run is started again and again in the same folder. Each start but the last is killed, at a moment of its time or at an
event of its file system: before or after a call that makes, renames, flushes or removes a file, or in the middle of a
write. Some starts are asked to stop by a signal instead. The last start runs to its end; then every file of the folder,
the weights and the history must be those of the run that was never stopped.

Importing torch takes longer than such a run. So this process imports everything and computes nothing, and all others
are forked from it.
"""

import argparse
import contextlib
import ctypes
import hashlib
import io
import json
import multiprocessing
import os
import random
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import accelerate  # noqa: F401  (imported before any fork, as are the next ones)
import safetensors.torch
import torch
import torch._dynamo
import torch.distributed.fsdp  # noqa: F401
from record import RESULTS, keep

from romae.training.loop import REQUEUE

sys.path.append(str(Path(__file__).resolve().parents[1]))  # where the tests keep their small run

from kill_scenarios import SCENARIOS, Scenario, make_data  # noqa: E402

MOST_KILLS = 4  # of one run
SHARE_OF_EVENTS = 0.6  # of the starts that are cut short; at moments most of the others
SHARE_ASKED = 0.1
PATIENCE = 120  # seconds for one start, which takes less than one when nothing else runs
FIRST_PORT, PORTS_PER_JOB = 20_000, 500  # below those that the system hands out by itself
FOLDER = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path(tempfile.gettempdir())  # a kill loses no written page


# How a start ends


@dataclass(frozen=True)
class AtMoment:
    """A signal after a while."""

    seconds: float
    number: int = signal.SIGKILL


@dataclass(frozen=True)
class AtEvent:
    """SIGKILL at the `index`-th event of the file system, counted from 1."""

    index: int
    place: str  # "before", "after" or "within", which for all but writes is "before"
    share: float  # of what is written, where it is within


End = AtMoment | AtEvent | None


class Events:
    """Counts what a process does to files in a folder, and kills it at one of these events."""

    def __init__(self, folder: Path, end: AtEvent | None) -> None:
        self.folder, self.end, self.n = str(folder), end, 0

    def watch(self) -> None:
        """From now on, for the rest of this process."""
        for name in ("replace", "rename", "unlink", "rmdir", "mkdir"):
            setattr(os, name, self._counting(getattr(os, name)))
        os.fsync = self._counting(os.fsync, has_path=False)
        os.open = self._counting(os.open, counts=lambda path, flags, *_: flags & (os.O_CREAT | os.O_TRUNC))
        save_file, opened = safetensors.torch.save_file, io.open

        def save(tensors: Any, file: Any, *arguments: Any, **named: Any) -> None:
            def cut(share: float) -> None:
                save_file(tensors, file, *arguments, **named)
                os.truncate(file, int(share * os.path.getsize(file)))

            self._happens(lambda: save_file(tensors, file, *arguments, **named), cut)

        def open_(file: Any, mode: str = "r", *arguments: Any, **named: Any) -> Any:
            is_counted = isinstance(file, str | os.PathLike) and set(mode) & set("wax+") and self._is_inside(file)
            if not is_counted:
                return opened(file, mode, *arguments, **named)
            return Writing(self._happens(lambda: opened(file, mode, *arguments, **named)), self)

        safetensors.torch.save_file, io.open = save, open_

    def _is_inside(self, path: Any) -> bool:
        return os.fspath(path).startswith(self.folder)

    def _counting(self, call: Callable, *, has_path: bool = True, counts: Callable = lambda *_: True) -> Callable:
        def counted(*arguments: Any, **named: Any) -> Any:
            is_inside = not has_path or named.get("dir_fd") is not None or self._is_inside(arguments[0])
            if not is_inside or not counts(*arguments):
                return call(*arguments, **named)
            return self._happens(lambda: call(*arguments, **named))

        return counted

    def _happens(self, act: Callable[[], Any], cut: Callable[[float], object] | None = None) -> Any:
        self.n += 1
        if self.end is None or self.n != self.end.index:
            return act()
        if self.end.place == "within" and cut is not None:
            cut(self.end.share)
        if self.end.place == "after":
            act()
        os.kill(os.getpid(), signal.SIGKILL)


class Writing:
    """A file that is open for writing, each write of which is an event."""

    def __init__(self, file: Any, events: Events) -> None:
        self.file, self.events = file, events

    def write(self, text: Any) -> Any:
        def cut(share: float) -> None:
            self.file.write(text[: int(share * len(text))])
            self.file.flush()

        return self.events._happens(lambda: self.file.write(text), cut)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def __enter__(self) -> "Writing":
        return self

    def __exit__(self, *error: object) -> None:
        self.file.close()


# One start of a run, in processes of its own


@dataclass
class Case:
    """A run that is killed and resumed: its scenario, its folder, and what its processes say."""

    scenario: Scenario
    place: Path
    data: Path
    ports: Iterator[int]
    n_starts: int = 0

    @property
    def folder(self) -> Path:
        return self.place / "run"

    def start(self, end: End) -> str:
        """ "finished", "killed", "asked", or what went wrong."""
        environment = {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
        if self.scenario.n_ranks > 1:
            environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(next(self.ports))}
            environment |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(self.scenario.n_ranks))
        pids = [self._fork(rank, environment, end) for rank in range(self.scenario.n_ranks)]
        self.n_starts += 1
        deadline = time.monotonic() + PATIENCE
        if isinstance(end, AtMoment):
            _wait(pids[:1], time.monotonic() + end.seconds)
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, end.number)
        codes = _wait(pids, deadline, is_over=lambda codes: -signal.SIGKILL in codes)
        for pid, code in zip(pids, codes, strict=True):
            if code is None:  # a rank that waits for one that was killed, or a start that never ends
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        if time.monotonic() > deadline:
            return "a start did not end"
        if -signal.SIGKILL in codes:
            return "killed"
        if set(codes) == {0}:
            return "finished"
        if isinstance(end, AtMoment) and set(codes) <= {0, REQUEUE, -signal.SIGUSR1}:
            return "asked"
        said = [(self.place / f"said-{rank}").read_text()[-1000:] for rank in range(self.scenario.n_ranks)]
        return f"a start ended with {codes}: {said}"

    def _fork(self, rank: int, environment: dict[str, str], end: End) -> int:
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            _end_with_parent()
            with (self.place / f"said-{rank}").open("w") as said:
                os.dup2(said.fileno(), sys.stdout.fileno())
                os.dup2(said.fileno(), sys.stderr.fileno())
            os.environ.update(environment)
            if self.scenario.n_ranks > 1:
                os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
            code = self._run(rank, end)
        except SystemExit as stopped:
            code = int(stopped.code or 0)
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _run(self, rank: int, end: End) -> int:
        torch.set_num_threads(1)
        events = Events(self.folder, end if isinstance(end, AtEvent) else None)
        if rank == 0:  # the one that writes
            events.watch()
        task, histories = self.scenario.start(self.folder, self.data, self.n_starts)
        digest = hashlib.sha256()
        for name, weights in task.state_dict().items():
            digest.update(name.encode() + weights.numpy().tobytes())
        records = [[history.n_skipped, history.records] for history in histories]
        outcome = {"weights": digest.hexdigest(), "histories": records}
        with open(self.place / f"outcome-{rank}.json", "w") as file:
            json.dump({"outcome": outcome, "n_events": events.n}, file)
        return 0

    def n_events(self) -> int:
        return json.loads((self.place / "outcome-0.json").read_text())["n_events"]

    def result(self) -> dict[str, str]:
        """All that a finished run leaves: a digest of each file, of weights and of histories."""
        found = {}
        for path in sorted(self.folder.rglob("*")):
            content = path.read_bytes() if path.is_file() else b""
            if path == self.folder / "config.json" and self.scenario.n_workers_of_start:
                settings = json.loads(content)
                del settings["train"]["workers"]  # those of the start that began the run
                content = json.dumps(settings).encode()
            found[str(path.relative_to(self.folder))] = hashlib.sha256(content).hexdigest()
        for rank in range(self.scenario.n_ranks):
            outcome = json.loads((self.place / f"outcome-{rank}.json").read_text())["outcome"]
            found[f"what process {rank} returned"] = json.dumps(outcome)
        return found


def _end_with_parent() -> None:
    """Have Linux end this process with the one that forked it, so that a campaign that is cut short leaves nothing."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _wait(
    pids: Sequence[int], deadline: float, is_over: Callable[[list[int | None]], bool] = lambda codes: False
) -> list[int | None]:
    """The exit codes of processes once all have ended, it `is_over`, or it is time; None of those that go on.

    They stay there to be waited for again.
    """
    codes: list[int | None] = [None] * len(pids)
    while None in codes and not is_over(codes) and time.monotonic() < deadline:
        for i, pid in enumerate(pids):
            if codes[i] is None and os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                status = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
                is_normal = status.si_code == os.CLD_EXITED
                codes[i] = status.si_status if is_normal else -status.si_status
        time.sleep(0.002)
    return codes


# The campaign


@dataclass(frozen=True)
class Reference:
    """A run that was never stopped."""

    result: dict[str, str]
    n_events: int
    seconds: float


@dataclass
class Figures:
    """What became of the runs of one scenario."""

    n: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


COLUMNS = ("runs", "at a moment", "at an event", "asked", "mismatches")


def drawn_end(chance: random.Random, reference: Reference) -> AtMoment | AtEvent:
    kind = chance.random()
    if kind < SHARE_OF_EVENTS:
        index = chance.randint(1, reference.n_events)
        return AtEvent(index, chance.choice(("before", "within", "after")), chance.random())
    number = signal.SIGUSR1 if kind > 1 - SHARE_ASKED else signal.SIGKILL
    return AtMoment(chance.uniform(0, reference.seconds), number)


def tried(case: Case, reference: Reference, chance: random.Random) -> Figures:
    """Kill and resume one run, and compare what it leaves."""
    figures, outcome = Figures(), ""
    for _ in range(chance.randint(1, MOST_KILLS)):
        end = drawn_end(chance, reference)
        outcome = case.start(end)
        if outcome == "killed":
            figures.n["at an event" if isinstance(end, AtEvent) else "at a moment"] += 1
        elif outcome == "asked":
            figures.n["asked"] += 1
        else:
            break
    if outcome in ("killed", "asked"):
        outcome = case.start(None)
    figures.n["runs"] += 1
    if outcome == "finished":
        result = case.result()
        names = sorted(n for n in result.keys() | reference.result.keys() if result.get(n) != reference.result.get(n))
        outcome = f"these differ: {names}" if names else ""
    if outcome:
        figures.n["mismatches"] += 1
        figures.problems.append(outcome)
    return figures


def campaign(names: Sequence[str], n_kills: int, seed: int, n_jobs: int) -> dict[str, Figures]:
    """Kill runs of these scenarios in turn until there are enough kills; `n_jobs` runs go on at a time."""
    context, place = multiprocessing.get_context("fork"), Path(tempfile.mkdtemp(prefix="kills-", dir=FOLDER))
    killed, results = context.Value("q", 0), context.SimpleQueue()
    references: dict[str, Reference] = {}

    def make_ready() -> None:
        torch.set_num_threads(1)
        make_data(place)

    def find_references(job: int) -> None:
        for name in names[job::n_jobs]:
            case = _case(name, place / f"whole-{name}", place, job)
            started = time.monotonic()
            outcome = case.start(None)
            seconds = time.monotonic() - started
            if outcome != "finished":
                raise RuntimeError(f"{name}: {outcome}")
            results.put((name, Reference(case.result(), case.n_events(), seconds)))

    def kill_runs(job: int) -> None:
        number = job
        while killed.value < n_kills:
            name = names[number % len(names)]
            case = _case(name, place / str(number), place, job)
            figures = tried(case, references[name], random.Random(f"{seed} {number}"))
            with killed:
                killed.value += figures.n["at an event"] + figures.n["at a moment"]
            figures.problems = [f"{name}, seed {seed}, run {number}: {problem}" for problem in figures.problems]
            results.put((name, figures))
            shutil.rmtree(case.place)
            number += n_jobs
        results.put(None)

    try:
        _run_all(context, [make_ready])
        finders = [context.Process(target=find_references, args=(job,)) for job in range(n_jobs)]
        for finder in finders:
            finder.start()
        while len(references) < len(names):
            while results.empty():
                if any(finder.exitcode for finder in finders):
                    raise RuntimeError("a run that nobody killed failed")
                time.sleep(0.01)
            name, reference = results.get()
            references[name] = reference
        for finder in finders:
            finder.join()
        total, n_over = {name: Figures() for name in names}, 0
        jobs = [context.Process(target=kill_runs, args=(job,)) for job in range(n_jobs)]
        for process in jobs:
            process.start()
        while n_over < n_jobs:
            if (found := results.get()) is None:
                n_over += 1
                continue
            name, figures = found
            total[name].n += figures.n
            total[name].problems += figures.problems
            for problem in figures.problems:
                print(problem, file=sys.stderr, flush=True)
        return total
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _run_all(context: Any, functions: Sequence[Callable[[], None]]) -> None:
    """Run functions in processes of their own, since this one must not compute."""
    processes = [context.Process(target=function) for function in functions]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        if process.exitcode:
            raise RuntimeError("the campaign could not be made ready")


def _case(name: str, place: Path, data: Path, job: int) -> Case:
    place.mkdir()
    return Case(SCENARIOS[name], place, data, _ports(job))


def _ports(job: int) -> Iterator[int]:
    """Free ones of those that belong to a job, each time another."""
    while True:
        for port in range(FIRST_PORT + job * PORTS_PER_JOB, FIRST_PORT + (job + 1) * PORTS_PER_JOB):
            with socket.socket() as free:
                if free.connect_ex(("127.0.0.1", port)) != 0:
                    yield port


def printed(total: dict[str, Figures]) -> None:
    width = max(map(len, [*total, "in all"]))
    print(f"{'scenario':{width}}  " + "  ".join(COLUMNS))
    for name, figures in [*total.items(), ("in all", Figures(sum((f.n for f in total.values()), Counter())))]:
        print(f"{name:{width}}  " + "  ".join(f"{figures.n[column]:{len(column)}d}" for column in COLUMNS))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs at a time")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the figures are kept")
    parser.add_argument("--scenario", action="append", choices=SCENARIOS, help="one or more; all by default")
    chosen = parser.parse_args(arguments)
    started = time.monotonic()
    total = campaign(chosen.scenario or list(SCENARIOS), chosen.kills, chosen.seed, max(1, chosen.jobs))
    seconds = time.monotonic() - started
    printed(total)
    n = sum((figures.n for figures in total.values()), Counter())
    n_kills = n["at a moment"] + n["at an event"]
    print(f"{n_kills} kills, {n['mismatches']} mismatches, {seconds:.0f} s")
    scenarios = {name: {column: figures.n[column] for column in COLUMNS} for name, figures in total.items()}
    keep(
        "kill",
        {"kills": n_kills, "mismatches": n["mismatches"], "seed": chosen.seed, "scenarios": scenarios},
        chosen.out,
    )
    sys.exit(1 if n["mismatches"] else 0)


if __name__ == "__main__":
    main()

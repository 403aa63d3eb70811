"""The campaign of hostile inputs: a table of what became of them, kept in results/reliability.json.

    python tests/reliability/fuzz_run.py --inputs 10000 --seed 0 --jobs 2
    python tests/reliability/fuzz_run.py --only tables --first 4711 --inputs 1     # one input alone

Inputs run in processes of their own. One that is silent for too long is ended and one that dies is replaced; both are
failures of the input that it was at.
"""

import argparse
import multiprocessing as mp
import os
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from fuzz import CLASSES, fixtures
from fuzz.judging import MOST_SECONDS, Outcome, judged
from record import RESULTS, keep

SILENCE = 12 * MOST_SECONDS  # seconds after which a process counts as hanging, also on a busy machine
Input = tuple[str, int]


@dataclass
class Worker:
    """A process, what it has to do, and the input that it is at."""

    process: Any
    answers: Connection
    inputs: list[Input]
    place: int = 0
    since: float = field(default_factory=time.monotonic)


def campaign(inputs: list[Input], seed: int, n_jobs: int, folder: Path) -> list[Outcome]:
    """Try all inputs in several processes."""
    outcomes: list[Outcome] = []
    workers = [_started(inputs[i::n_jobs], seed, folder) for i in range(n_jobs) if inputs[i::n_jobs]]
    while workers:
        wait([worker.answers for worker in workers], timeout=1.0)
        for worker in list(workers):
            if not _collected(worker, outcomes, seed):
                workers.remove(worker)
                if rest := worker.inputs[worker.place :]:
                    workers.append(_started(rest, seed, folder))
        _show(outcomes, len(inputs))
    return outcomes


def _started(inputs: list[Input], seed: int, folder: Path) -> Worker:
    here, there = mp.Pipe(duplex=False)
    process = mp.get_context("fork").Process(target=_work, args=(inputs, seed, folder, there), daemon=True)
    process.start()
    there.close()
    return Worker(process, here, inputs)


def _work(inputs: list[Input], seed: int, folder: Path, answers: Connection) -> None:
    place = folder / str(os.getpid())
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # libraries of others write there whatever they like
    for name, index in inputs:
        answers.send(judged(name, seed, index, place))
    answers.close()


def _collected(worker: Worker, outcomes: list[Outcome], seed: int) -> bool:
    """Take what a process has to say; False if it has ended or was ended."""
    try:
        while worker.answers.poll():
            outcomes.append(worker.answers.recv())
            worker.place, worker.since = worker.place + 1, time.monotonic()
    except EOFError:
        worker.process.join()
        if worker.place < len(worker.inputs):
            _failed(worker, outcomes, seed, f"the process ended with code {worker.process.exitcode}")
        return False
    if time.monotonic() - worker.since > SILENCE and worker.place < len(worker.inputs):
        worker.process.kill()
        worker.process.join()
        _failed(worker, outcomes, seed, f"no end after {SILENCE:g} s")
        return False
    return True


def _failed(worker: Worker, outcomes: list[Outcome], seed: int, cause: str) -> None:
    name, index = worker.inputs[worker.place]
    outcomes.append(Outcome(name, seed, index, "failed", cause))
    worker.place += 1


def _show(outcomes: list[Outcome], n_inputs: int) -> None:
    if sys.stderr.isatty():
        n_failed = sum(outcome.verdict == "failed" for outcome in outcomes)
        print(f"\r{len(outcomes):,} of {n_inputs:,} inputs, {n_failed} failed ", end="", file=sys.stderr, flush=True)


def table(outcomes: list[Outcome]) -> str:
    """What became of the inputs of each class, in columns."""
    lines = [f"{'class':<15}{'inputs':>8}{'refused':>9}{'right':>8}{'failed':>8}{'longest':>10}"]
    for name in (*CLASSES, "all"):
        rows = [outcome for outcome in outcomes if name in (outcome.name, "all")]
        if rows:
            counts = Counter(outcome.verdict for outcome in rows)
            longest = f"{max(outcome.seconds for outcome in rows):.2f} s"
            lines.append(
                f"{name:<15}{len(rows):>8}{counts['refused']:>9}{counts['right']:>8}{counts['failed']:>8}{longest:>10}"
            )
    return "\n".join(lines)


def causes(outcomes: list[Outcome], n_details: int) -> str:
    """The failures by their causes, each with inputs that show it."""
    by_cause: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        if outcome.verdict == "failed":
            by_cause[outcome.name, outcome.cause].append(outcome)
    lines = []
    for (name, cause), rows in sorted(by_cause.items(), key=lambda entry: -len(entry[1])):
        rows = sorted(rows, key=lambda row: row.index)
        lines.append(f"\n{len(rows)} of {name}: {cause}")
        for row in rows[:n_details]:
            lines.append(f"  again: --only {name} --seed {row.seed} --first {row.index} --inputs 1")
            lines += [f"    {line}" for line in row.details.strip().splitlines()]
    return "\n".join(lines)


def figures(outcomes: list[Outcome], seed: int, seconds: float) -> dict[str, object]:
    """What is kept of a campaign."""
    verdicts = {name: Counter(o.verdict for o in outcomes if o.name == name) for name in CLASSES}
    return {
        "command": "make fuzz",
        "seed": seed,
        "inputs": len(outcomes),
        "failures": sum(outcome.verdict == "failed" for outcome in outcomes),
        "seconds": round(seconds),
        "classes": {
            name: {word: counts[word] for word in ("refused", "right", "failed")} for name, counts in verdicts.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Try hostile inputs of every class.")
    parser.add_argument("--inputs", type=int, default=10_000, help="in all, shared evenly by the classes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", nargs="+", choices=CLASSES, default=list(CLASSES), help="these classes alone")
    parser.add_argument("--first", type=int, default=0, help="the number of the first input of each class")
    parser.add_argument("--details", type=int, default=1, help="failed inputs to show of each cause")
    parser.add_argument(
        "--out", type=Path, help="the file to keep the figures in; of all classes, results/reliability.json"
    )
    chosen = parser.parse_args()
    fixtures.warm_up()
    begin = time.monotonic()
    n_each = -(-chosen.inputs // len(chosen.only))
    inputs = [(name, chosen.first + i) for i in range(n_each) for name in chosen.only][: chosen.inputs]
    with tempfile.TemporaryDirectory(prefix="romae-fuzz-") as folder:
        outcomes = campaign(inputs, chosen.seed, min(chosen.jobs, len(inputs)), Path(folder))
    print(f"\n{table(outcomes)}\n{causes(outcomes, chosen.details)}")
    is_whole = set(chosen.only) == set(CLASSES) and chosen.first == 0
    if chosen.out is not None or is_whole:
        keep("fuzz", figures(outcomes, chosen.seed, time.monotonic() - begin), chosen.out or RESULTS)
    sys.exit(any(outcome.verdict == "failed" for outcome in outcomes))


if __name__ == "__main__":
    main()

"""Which tests run which lines of romae: measured test by test in forked processes, and kept until a file changes."""

import contextlib
import hashlib
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
from children import Job, in_children
from hypothesis import Phase, settings

KEPT = Path(__file__).resolve().parents[2] / "build" / "mutants"


@dataclass
class Reached:
    """What one test reaches: its time, and the lines of each file of romae that it runs."""

    seconds: float
    lines: dict[str, list[int]]


def run_pytest(files: Sequence[str], plugin: object, folder: Path) -> int:
    """The tests of these files that the plugin leaves, without slow ones, with the same examples every time."""
    # A failure need not be made small, and examples that were kept must not help.
    phases = (Phase.explicit, Phase.generate)
    settings.register_profile("mutants", deadline=None, max_examples=50, derandomize=True, database=None, phases=phases)
    options = ["-x", "-q", "--no-header", "--tb=line", "-p", "no:cacheprovider", "-p", "no:xdist"]
    options += ["-m", "not slow and not cuda", "--hypothesis-profile=mutants", f"--basetemp={folder / 'temp'}"]
    return int(pytest.main([*options, *files], plugins=[plugin]))


class Measure:
    """A plugin that notes the lines of romae that each test runs, with those of the fixtures it uses."""

    def __init__(self, source: Path, part: int, n_parts: int) -> None:
        self.source, self.part, self.n_parts = f"{source}{os.sep}", part, n_parts
        self.reached: dict[str, Reached] = {}
        self.of_fixture: dict[Any, dict[str, set[int]]] = {}
        self.open: list[dict[str, set[int]]] = []
        self.files: dict[CodeType, str | None] = {}
        self.passed: dict[str, bool] = {}

    def pytest_collection_modifyitems(self, items: list) -> None:
        items[:] = items[self.part :: self.n_parts]

    def trace(self, frame: FrameType, event: str, _: object) -> Callable | None:
        code = frame.f_code
        if code not in self.files:
            name = code.co_filename
            self.files[code] = name.removeprefix(self.source) if name.startswith(self.source) else None
        if self.files[code] is None:
            return None
        self.note(frame)
        return self.lines

    def lines(self, frame: FrameType, event: str, _: object) -> Callable:
        if event == "line":
            self.note(frame)
        return self.lines

    def note(self, frame: FrameType) -> None:
        file = self.files[frame.f_code]
        for lines in self.open:
            lines.setdefault(file, set()).add(frame.f_lineno)

    @contextlib.contextmanager
    def noting(self, into: dict[str, set[int]]) -> Iterator[None]:
        self.open.append(into)
        if len(self.open) == 1:
            threading.settrace(self.trace)
            sys.settrace(self.trace)
        try:
            yield
        finally:
            self.open.pop()  # fixtures are set up within tests, and within each other
            if not self.open:
                sys.settrace(None)
                threading.settrace(None)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Generator[None, Any, Any]:
        lines: dict[str, set[int]] = {}
        begin = time.monotonic()
        with self.noting(lines):
            result = yield
        for fixtures in item._fixtureinfo.name2fixturedefs.values():  # also those that an earlier test has set up
            for fixture in fixtures:
                for file, more in self.of_fixture.get(fixture, {}).items():
                    lines.setdefault(file, set()).update(more)
        if self.passed.get(item.nodeid):
            seconds = time.monotonic() - begin
            self.reached[item.nodeid] = Reached(seconds, {file: sorted(lines[file]) for file in sorted(lines)})
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, Any, Any]:
        with self.noting(self.of_fixture.setdefault(fixturedef, {})):
            result = yield
        return result

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.passed[report.nodeid] = report.outcome == "passed"


def measured(files: Sequence[str], project: Path, scratch: Path, n_processes: int) -> dict[str, Reached]:
    """What each test of these files reaches, file by file from build/mutants where nothing has changed since."""
    kept = KEPT
    kept.mkdir(parents=True, exist_ok=True)
    state = _digest(project / "src", project / "tests" / "conftest.py") + sys.version.split()[0]
    jobs, results = [], {}
    for file in files:
        n_parts = 1 + (project / file).stat().st_size // 12_000  # long files in parts, so that all cores have work
        for part in range(n_parts):
            key = hashlib.sha256(f"{state} {file} {part} {_digest(project / file)}".encode()).hexdigest()[:20]
            results[kept / f"{key}.json"] = file
            if not (kept / f"{key}.json").exists():
                work = _measuring(file, part, n_parts, project, kept / f"{key}.json")
                jobs.append((n_parts, Job(f"{file} ({part + 1} of {n_parts})", work, 480)))
    jobs.sort(key=lambda pair: -pair[0])
    if jobs:
        print(f"measuring which tests reach what: {len(files)} files of tests in {len(jobs)} parts", flush=True)
    for job, status, printed in in_children([job for _, job in jobs], n_processes, scratch):
        if status not in (0, 5):
            print(f"  {job.name}: left out in part, its tests do not pass here\n{end_of(printed)}", flush=True)
    reached: dict[str, Reached] = {}
    for path in results:
        if path.exists():
            content = json.loads(path.read_text(encoding="utf-8"))
            reached |= {test: Reached(**found) for test, found in content.items()}
    return reached


def _measuring(file: str, part: int, n_parts: int, project: Path, out: Path) -> Callable[[Path], int]:
    def work(folder: Path) -> int:
        plugin = Measure(project / "src" / "romae", part, n_parts)
        status = run_pytest([f"--maxfail={10**6}", file], plugin, folder)
        content = {test: vars(found) for test, found in plugin.reached.items()}
        partial = folder / "reached.json"
        partial.write_text(json.dumps(content), encoding="utf-8")
        if status in (0, 1, 5):  # passed, failed here and there, nothing to run: the rest is a mistake of ours
            shutil.move(partial, out)
        return status

    return work


def _digest(*places: Path) -> str:
    digest = hashlib.sha256()
    for place in places:
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            digest.update(path.read_bytes())
    return digest.hexdigest()


def end_of(printed: str, n: int = 6) -> str:
    """The last lines of what a job printed."""
    return "\n".join(f"    {line[:200]}" for line in printed.strip().splitlines()[-n:])

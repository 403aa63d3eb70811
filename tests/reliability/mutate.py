"""`make mutate`: are the tests able to fail? Small changes to the core, one at a time, each of which a test must see.

A process that has loaded torch and pytest, but not romae, forks a child for each mutant. The child imports romae with
the changed file in the place of the true one and runs, quickest first, the tests that reach the changed line. Which
these are is measured once, test by test, and kept in build/mutants. A copy of the project is worked on, so that no
mutant can do harm to the files of the project.

Mutants that survive are printed. Those that change nothing anybody could notice are listed in equivalent.toml, each
with its reason, and do not count; nor do functions that need a GPU or several processes, also listed there.
"""

import argparse
import contextlib
import hashlib
import importlib.util
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.machinery import PathFinder
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

# One thread each and no GPU, whatever the machine has: the children share its cores. Before torch is imported.
os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
os.environ |= {"CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "1", "PYTHONHASHSEED": "0", "TOKENIZERS_PARALLELISM": ""}

from mutants import Mutant, draw

ROOT = Path(__file__).resolve().parents[2]
EQUIVALENT = Path(__file__).with_name("equivalent.toml")
GOAL = 0.95
WARM = (
    "torch torch._dynamo torch.utils.checkpoint torch.utils.data torch.distributed.checkpoint numpy pandas pyarrow "
    "pyarrow.parquet sklearn.base sklearn.linear_model sklearn.model_selection sklearn.utils.estimator_checks scipy "
    "accelerate safetensors.torch huggingface_hub rich typer jaxtyping beartype hypothesis hypothesis.extra.numpy "
    "pytest triton PIL soundfile matplotlib"
).split()  # what the tests import besides romae, where it is installed

# Which tests can see a change in which files; the first that fits is taken. Tests marked slow are left out.
TESTS: dict[str, str] = {
    "tokens/": "test_tokens test_masking test_patches test_augmentation test_rope test_task_details test_attention "
    "data/test_scaling data/test_series test_layers test_fixed_shape",
    "data/columns.py": "data/test_columns data/test_series data/test_tables",
    "data/dates.py": "data/test_columns data/test_series data/test_tables",
    "data/images.py": "data/test_images data/test_pixels data/test_sources",
    "data/pixels.py": "data/test_pixels data/test_sources",
    "data/audio.py": "data/test_audio data/test_filterbank",
    "data/filterbank.py": "data/test_audio data/test_filterbank",
    "data/store.py": "data/test_store data/test_loader data/test_sources",
    "data/": "data/* test_inference test_preflight",
    "model/kernels/": "test_kernels test_layers test_attention",
    "model/attention.py": "test_attention test_layers test_model test_windowed test_fixed_shape",
    "model/": "test_attention test_rope test_model test_layers test_tasks test_task_details test_windowed "
    "test_fixed_shape test_config test_reference test_checkpoint",
    "training/": "test_training test_fast_modes test_fixed_shape test_stages test_training_tables test_preflight "
    "test_device test_trackers test_task_details test_config",
    "inference/": "test_inference test_training_tables test_baselines data/test_queries test_diagnostics",
    "estimators/": "test_estimators",
    "checkpoints/": "test_checkpoint test_reference test_models",
    "": "test_config test_checkpoint data/test_store test_training datasets/test_files data/test_folder test_moved "
    "test_extras",
}
CORE = ("tokens", "data", "model", "training", "inference", "estimators", "checkpoints")
CORE_FILES = ("config.py", "files.py", "seeds.py")

MOST_SECONDS = 30.0  # of tests for one mutant, by the time they took when they were measured
FILES_SECONDS = 60.0  # of all tests of the files that reach a mutant, where those that reach it let it pass
GRACE = 45.0  # seconds beyond three times what its tests took, after which a mutant is as good as dead
MEMORY = 32 * 2**30  # bytes of address space; a changed size must not take the machine down


@dataclass
class Reached:
    """What one test reaches: its time, and the lines of each file of romae that it runs."""

    seconds: float
    lines: dict[str, list[int]]


@dataclass
class Outcome:
    """What became of a mutant: killed, timeout, survived, or unreached by any test."""

    mutant: Mutant
    verdict: str
    seconds: float = 0.0
    said: str = ""


# Children


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


def run_pytest(files: Sequence[str], plugin: object, folder: Path) -> int:
    """The tests of these files that the plugin leaves, without slow ones, with the same examples every time."""
    import pytest
    from hypothesis import Phase, settings

    # A failure need not be made small, and examples that were kept must not help.
    phases = (Phase.explicit, Phase.generate)
    settings.register_profile("mutants", deadline=None, max_examples=50, derandomize=True, database=None, phases=phases)
    options = ["-x", "-q", "--no-header", "--tb=line", "-p", "no:cacheprovider", "-p", "no:xdist"]
    options += ["-m", "not slow and not cuda", "--hypothesis-profile=mutants", f"--basetemp={folder / 'temp'}"]
    return int(pytest.main([*options, *files], plugins=[plugin]))


# Which tests reach which lines


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


def _hooks() -> None:
    """The hooks of `Measure` that need pytest's own decorator, given to it once pytest is imported."""
    import pytest

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self: Measure, item: Any) -> Iterator:
        lines: dict[str, set[int]] = {}
        begin = time.monotonic()
        with self.noting(lines):
            result = yield
        for fixtures in item._fixtureinfo.name2fixturedefs.values():
            for fixture in fixtures:
                for file, more in self.of_fixture.get(fixture, {}).items():
                    lines.setdefault(file, set()).update(more)
        if self.passed.get(item.nodeid):
            seconds = time.monotonic() - begin
            self.reached[item.nodeid] = Reached(seconds, {file: sorted(lines[file]) for file in sorted(lines)})
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self: Measure, fixturedef: Any) -> Iterator:
        with self.noting(self.of_fixture.setdefault(fixturedef, {})):
            result = yield
        return result

    def pytest_runtest_logreport(self: Measure, report: Any) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.passed[report.nodeid] = report.outcome == "passed"

    Measure.pytest_runtest_protocol = pytest_runtest_protocol
    Measure.pytest_fixture_setup = pytest_fixture_setup
    Measure.pytest_runtest_logreport = pytest_runtest_logreport


def measured(files: Sequence[str], project: Path, scratch: Path, n_processes: int) -> dict[str, Reached]:
    """What each test of these files reaches, file by file from build/mutants where nothing has changed since."""
    kept = ROOT / "build" / "mutants"
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
            print(f"  {job.name}: left out in part, its tests do not pass here\n{_end_of(printed)}", flush=True)
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


# Mutants


class Chosen:
    """A plugin that leaves these tests, in this order."""

    def __init__(self, tests: Sequence[str] | None) -> None:
        self.order = None if tests is None else {test: i for i, test in enumerate(tests)}
        self.n_run = 0

    def pytest_collection_modifyitems(self, items: list) -> None:
        if self.order is not None:
            items[:] = sorted(
                (one for one in items if one.nodeid in self.order), key=lambda one: self.order[one.nodeid]
            )
        self.n_run = len(items)


def put_in_place(mutant: Mutant, project: Path, folder: Path) -> None:
    """From now on, an import of the mutant's module finds the changed file."""
    true = project / "src" / "romae" / mutant.file
    changed = folder / true.name
    changed.write_text(mutant.applied(true.read_text(encoding="utf-8")), encoding="utf-8")
    name = ".".join(["romae", *Path(mutant.file).with_suffix("").parts])
    plain = PathFinder.find_spec

    def find_spec(fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname != name:
            return plain(fullname, path, target)
        spec = importlib.util.spec_from_file_location(fullname, changed)
        spec.origin = str(true)  # what `__file__` says: files beside it are found
        return spec

    PathFinder.find_spec = staticmethod(find_spec)  # jaxtyping's hook asks this one


def _trying(mutant: Mutant, tests: Sequence[str], project: Path) -> Callable[[Path], int]:
    files = list(dict.fromkeys(test.split("::")[0] for test in tests))

    def work(folder: Path) -> int:
        put_in_place(mutant, project, folder)
        sys.dont_write_bytecode = True
        return run_pytest(files, Chosen(tests), folder)

    return work


def tests_for(mutant: Mutant, reached: dict[str, Reached], project: Path) -> tuple[list[str], list[str]]:
    """The tests that run a mutant's lines, and all of the files that they are in, the quickest first, within bounds."""
    lines = set(range(mutant.line, mutant.end_line + 1))
    if mutant.line not in _lines_of_functions(project / "src" / "romae" / mutant.file):
        direct = [test for test, found in reached.items() if found.lines.get(mutant.file)]  # it runs when imported
    else:
        direct = [test for test, found in reached.items() if lines & set(found.lines.get(mutant.file, ()))]
    around = {test.split("::")[0] for test in direct}
    others = [test for test in reached if test.split("::")[0] in around]
    return _quickest(direct, reached, MOST_SECONDS), _quickest(others, reached, FILES_SECONDS)


def _quickest(tests: Sequence[str], reached: dict[str, Reached], seconds: float) -> list[str]:
    chosen = []
    for test in sorted(tests, key=lambda test: (reached[test].seconds, test)):
        seconds -= reached[test].seconds
        if seconds < 0 and chosen:
            break
        chosen.append(test)
    return chosen


_FUNCTION_LINES: dict[Path, set[int]] = {}


def _lines_of_functions(path: Path) -> set[int]:
    """The lines that run when a function is called; the others run once, when the file is imported."""
    if path not in _FUNCTION_LINES:

        def inner(code: CodeType, is_called: bool) -> Iterator[int]:
            if is_called:
                yield from (line for _, _, line in code.co_lines() if line is not None and line > code.co_firstlineno)
            for constant in code.co_consts:
                if isinstance(constant, CodeType):
                    yield from inner(constant, is_called or bool(constant.co_flags & 2))  # 2: has variables of its own

        text = path.read_text(encoding="utf-8")
        _FUNCTION_LINES[path] = set(inner(compile(text, str(path), "exec"), False))
    return _FUNCTION_LINES[path]


def test_files(file: str, project: Path) -> list[str]:
    """The files of tests mapped to a file of the source, as paths from the project's root."""
    names = next(names for beginning, names in TESTS.items() if file.startswith(beginning))
    found = [path for name in names.split() for path in sorted((project / "tests").glob(f"{name}.py"))]
    return [str(path.relative_to(project)) for path in found]


def try_all(
    mutants: Sequence[Mutant], reached: dict[str, Reached], project: Path, scratch: Path, n_processes: int
) -> list[Outcome]:
    """What becomes of each mutant: first with the tests that reach it, then with all of the same files."""
    chosen = {id(mutant): tests_for(mutant, reached, project) for mutant in mutants}
    outcomes = {id(mutant): Outcome(mutant, "unreached") for mutant in mutants}
    for stage in (0, 1):
        jobs = []
        for mutant in mutants:
            tests = chosen[id(mutant)][stage]
            if stage == 1 and set(tests) <= set(chosen[id(mutant)][0]):
                continue  # all of them have run
            if tests and outcomes[id(mutant)].verdict in ("unreached", "survived"):
                seconds = sum(reached[test].seconds for test in tests)
                jobs.append(Job(str(id(mutant)), _trying(mutant, tests, project), GRACE + 3 * seconds))
        jobs.sort(key=lambda job: -job.limit)  # the longest first, so that none is waited for at the end
        for job, status, printed in in_children(jobs, n_processes, scratch):
            outcome = outcomes[int(job.name)]
            outcome.verdict = "timeout" if status is None else "survived" if status == 0 else "killed"
            outcome.seconds += time.monotonic() - job.started
            outcome.said = _end_of(printed, 4)
            print(f"  {outcome.verdict:9} {outcome.seconds:5.1f} s  {outcome.mutant.where}", flush=True)
    return list(outcomes.values())


def _end_of(printed: str, n: int = 6) -> str:
    return "\n".join(f"    {line[:200]}" for line in printed.strip().splitlines()[-n:])


# The campaign


def listed() -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """The mutants that change nothing, and the functions that are not changed, of equivalent.toml."""
    content = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8"))
    return content.get("mutant", []), content.get("function", [])


def is_equivalent(mutant: Mutant, entries: Sequence[dict[str, str]]) -> bool:
    mine = {"file": mutant.file, "function": mutant.function, "before": mutant.before, "after": mutant.after}
    return any(all(entry[key] == mine[key] for key in mine) for entry in entries)


def is_left_out(mutant: Mutant, entries: Sequence[dict[str, str]]) -> bool:
    names = {entry["name"] for entry in entries if entry["file"] == mutant.file}
    return any(f"{mutant.function}.".startswith(f"{name}.") for name in names)


def sources(only: Sequence[str] = ()) -> dict[str, str]:
    """The files of the core, or those whose names begin so."""
    folder = ROOT / "src" / "romae"
    files = [folder / name for name in CORE_FILES] + [path for name in CORE for path in (folder / name).rglob("*.py")]
    names = sorted(path.relative_to(folder).as_posix() for path in files if path.name != "__init__.py")
    chosen = [name for name in names if not only or name.startswith(tuple(only))]
    return {name: (folder / name).read_text(encoding="utf-8") for name in chosen}


def difference(mutant: Mutant) -> str:
    """The lines of a mutant before and after."""
    source = (ROOT / "src" / "romae" / mutant.file).read_text(encoding="utf-8")
    changed = mutant.applied(source)
    n_after = mutant.end_line + changed.count("\n") - source.count("\n")
    before = source.splitlines()[mutant.line - 1 : mutant.end_line]
    after = changed.splitlines()[mutant.line - 1 : n_after]
    return "\n".join([f"    - {line.strip()}" for line in before] + [f"    + {line.strip()}" for line in after])


def figures(outcomes: Sequence[Outcome], equivalent: int, settings: dict[str, object]) -> dict[str, object]:
    """What is kept: how many of how many, by folder, and every survivor."""
    counts = Counter(outcome.verdict for outcome in outcomes)
    by_folder: dict[str, dict[str, int]] = {}
    for outcome in outcomes:
        folder = by_folder.setdefault(outcome.mutant.file.split("/")[0], {"mutants": 0, "killed": 0})
        folder["mutants"] += 1
        folder["killed"] += outcome.verdict in ("killed", "timeout")
    killed = counts["killed"] + counts["timeout"]
    alive = [outcome.mutant for outcome in outcomes if outcome.verdict in ("survived", "unreached")]
    return settings | {
        "mutants": len(outcomes) + equivalent,
        "equivalent": equivalent,
        "killed": killed,
        "killed_by_timeout": counts["timeout"],
        "reached_by_no_test": counts["unreached"],
        "share_killed": round(killed / max(1, len(outcomes)), 4),
        "by_folder": by_folder,
        "survivors": [f"{one.file}, {one.function or 'module'}: {one.before} -> {one.after}" for one in alive],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--number", type=int, default=300, help="mutants to draw")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes at a time")
    parser.add_argument(
        "--only", nargs="*", default=[], help="files of src/romae that begin so, as tokens/ or config.py"
    )
    parser.add_argument("--show", action="store_true", help="print the mutants and run nothing")
    parser.add_argument(
        "--keep", nargs="?", const="", help="write the figures, to results/reliability.json or this file"
    )
    options = parser.parse_args()

    begin = time.monotonic()
    equivalents, functions = listed()
    core = sources(options.only)
    drawn = draw(core, options.number, options.seed, lambda mutant: not is_left_out(mutant, functions))
    mutants = [mutant for mutant in drawn if not is_equivalent(mutant, equivalents)]
    if options.show:
        for mutant in drawn:
            print(f"{mutant.where} in {mutant.function or 'module'}: {mutant.kind}\n{difference(mutant)}")
        return 0

    for name in WARM:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    _hooks()
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        project = Path(scratch) / "romae"
        left_out = shutil.ignore_patterns(".git", ".venv", "build", "dist", "demo", "site", "runs", ".*_cache")
        shutil.copytree(ROOT, project, ignore=left_out)
        os.chdir(project)
        sys.path[:0] = [str(project / "src"), str(project / "tests")]
        os.environ["PYTHONPATH"] = str(project / "src")
        os.environ.pop("ROMAE_DATA", None)  # the same tests everywhere
        files = sorted({file for mutant in mutants for file in test_files(mutant.file, project)})
        reached = measured(files, project, Path(scratch), options.jobs)
        measuring = time.monotonic() - begin
        print(
            f"{len(reached)} tests; {len(mutants)} mutants, seed {options.seed}, {options.jobs} processes", flush=True
        )
        outcomes = try_all(mutants, reached, project, Path(scratch), options.jobs)
        os.chdir(ROOT)

    alive = [outcome for outcome in outcomes if outcome.verdict in ("survived", "unreached")]
    for outcome in alive:
        mutant = outcome.mutant
        print(f"\n{outcome.verdict}: src/romae/{mutant.where} in {mutant.function or 'module'}, {mutant.kind}")
        print(difference(mutant))
    settings = {"seed": options.seed, "jobs": options.jobs, "seconds": round(time.monotonic() - begin)}
    result = figures(outcomes, len(drawn) - len(mutants), settings)
    print(f"\n{result['killed']} of {len(outcomes)} killed ({result['share_killed']:.1%}; goal {GOAL:.0%}), of these")
    print(f"{result['killed_by_timeout']} by taking too long; {result['reached_by_no_test']} reached by no test;")
    print(
        f"{result['equivalent']} equivalent, not counted. {measuring:.0f} s to measure, {settings['seconds']} s in all."
    )
    if options.keep is not None:
        sys.path[:0] = [str(ROOT / "src"), str(Path(__file__).parent)]
        from record import RESULTS, keep

        keep("mutate", result, Path(options.keep) if options.keep else RESULTS)
    return 0 if result["share_killed"] >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())

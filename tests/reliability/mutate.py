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
import importlib.util
import os
import shutil
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from types import CodeType
from typing import Any

from children import Job, in_children
from mutants import Mutant, draw
from reach import Reached, end_of, measured, run_pytest

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
    "model/": "test_edges test_attention test_rope test_model test_layers test_tasks test_task_details test_windowed "
    "test_fixed_shape test_config test_reference test_checkpoint",
    "training/": "test_edges test_training* test_scores test_fast_modes test_fixed_shape test_stages test_preflight "
    "test_device test_trackers test_task_details test_config",
    "inference/": "test_edges test_inference test_scores test_training_tables test_baselines data/test_queries "
    "test_diagnostics",
    "estimators/": "test_edges test_estimators* test_members test_stacking",
    "checkpoints/": "test_edges test_checkpoint test_reference test_models",
    "": "test_edges test_config test_checkpoint data/test_store test_training datasets/test_files data/test_folder "
    "test_moved test_extras",
}
CORE = ("tokens", "data", "model", "training", "inference", "estimators", "checkpoints")
CORE_FILES = ("config.py", "files.py", "seeds.py")

MOST_SECONDS = 30.0  # of tests for one mutant, by the time they took when they were measured
FILES_SECONDS = 60.0  # of all tests of the files that reach a mutant, where those that reach it let it pass
GRACE = 45.0  # seconds beyond three times what its tests took, after which a mutant is as good as dead


@dataclass
class Outcome:
    """What became of a mutant: killed, timeout, survived, or unreached by any test."""

    mutant: Mutant
    verdict: str
    seconds: float = 0.0
    said: str = ""


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


def mapped_tests(file: str, project: Path) -> list[str]:
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
            outcome.said = end_of(printed, 4)
            print(f"  {outcome.verdict:9} {outcome.seconds:5.1f} s  {outcome.mutant.where}", flush=True)
    return list(outcomes.values())


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


def sources() -> dict[str, str]:
    """The files of the core and their text."""
    folder = ROOT / "src" / "romae"
    files = [folder / name for name in CORE_FILES] + [path for name in CORE for path in (folder / name).rglob("*.py")]
    names = sorted(path.relative_to(folder).as_posix() for path in files if path.name != "__init__.py")
    return {name: (folder / name).read_text(encoding="utf-8") for name in names}


def difference(mutant: Mutant, source: str) -> str:
    """The lines of a mutant before and after."""
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
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
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
    core = sources()
    drawn = draw(core, options.number, options.seed, lambda mutant: not is_left_out(mutant, functions))
    drawn = [mutant for mutant in drawn if mutant.file.startswith(tuple(options.only or [""]))]
    mutants = [mutant for mutant in drawn if not is_equivalent(mutant, equivalents)]
    if options.show:
        for mutant in drawn:
            print(f"{mutant.where} in {mutant.function or 'module'}: {mutant.kind}")
            print(difference(mutant, core[mutant.file]))
        return 0

    # One thread each and no GPU, whatever the machine has: the children share its cores.
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    os.environ |= {"CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "1"}
    for name in WARM:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        project = Path(scratch) / "romae"
        left_out = shutil.ignore_patterns(".git", ".venv", "build", "dist", "demo", "site", "runs", ".*_cache")
        shutil.copytree(ROOT, project, ignore=left_out)
        os.chdir(project)
        sys.path[:0] = [str(project / "src"), str(project / "tests")]
        os.environ["PYTHONPATH"] = str(project / "src")
        os.environ.pop("ROMAE_DATA", None)  # the same tests everywhere
        files = sorted({file for mutant in mutants for file in mapped_tests(mutant.file, project)})
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
        print(difference(mutant, core[mutant.file]))
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

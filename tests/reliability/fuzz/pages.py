"""Pages of runs: folders of runs that were damaged, tables with hostile names, and places that are taken already.

The oracle: the page shows the losses of the history, names from the data are text on it and nothing else, and neither
the run nor the table is changed.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import plotly.offline

from fuzz import fixtures, hostile
from fuzz.commands import digests, require_untouched, run_command
from fuzz.judging import Trial, answered, require

NAMES = (
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{7*7}}",
    "\u202e",
    "a\0b",
    "=1+1",
    "🦉",
    "",
)


def attempt(trial: Trial) -> None:
    original = trial.choose([fixtures.run, fixtures.classifier_run])()
    run = Path(shutil.copytree(original, trial.folder / "run"))
    table = trial.folder / "table.csv"
    frame = fixtures.curves()
    frame = frame[frame["id"].isin(["s0", "s1", "s2"])] if trial.chance(0.7) else frame
    words = ["page", str(run)]
    trial.is_sound = trial.chance(0.1)
    kind = trial.choose(["files", "files", "files", "names", "names", "options", "options", "places"])
    kind = "nothing" if trial.is_sound else kind
    trial.note(original.name, kind)
    if trial.chance(0.5) or kind in ("names", "options"):
        words += ["--data", str(table)]
    out = "run/page.html"
    name = ""
    if kind == "files":
        _damage(trial, run)
    elif kind == "names":
        name = trial.choose(NAMES)
        column, old = trial.choose([("id", "s0"), ("band", "g"), ("kind", "up")])
        trial.note(f"{old} is called {name!r}")
        frame[column] = frame[column].replace(old, name)
    elif kind == "options":
        words += _options(trial)
    elif kind == "places":
        out = trial.choose(
            ["table.csv", "run/history.jsonl", "run/job.json", "run/best", "run", "mine.txt", "new/a/b.html"]
        )
        words += ["--out", str(trial.folder / out)]
    frame.to_csv(table, index=False)
    (trial.folder / "mine.txt").write_text("mine\n")
    trial.note(repr(words[2:])[:150].replace(str(trial.folder), ""))
    before = digests(trial.folder)
    with _without_plotly():
        ended = run_command(trial, words)
    require(ended.code == 0 or not trial.is_sound, "refused a sound run")
    is_new = out not in before
    require_untouched(before, trial.folder, may_change=[out] if ended.code == 0 and is_new else [])
    if ended.code == 0:
        with answered("a page"):
            page = (trial.folder / out).read_text(encoding="utf-8")
            [*_, last] = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()] or [None]
            if last is not None:
                require(f"loss {last['loss']:.4g}" in page, "the page lacks the last loss")
            require("<script>alert(1)" not in page and "<img src=x" not in page, "a name became a part of the page")


@contextmanager
def _without_plotly() -> Iterator[None]:
    """Pages without the script of plotly, which is the same on all of them, and long."""
    script = plotly.offline.get_plotlyjs
    plotly.offline.get_plotlyjs = lambda: "/* plotly */"
    try:
        yield
    finally:
        plotly.offline.get_plotlyjs = script


def _damage(trial: Trial, run: Path) -> None:
    files = sorted(path for path in run.rglob("*") if path.is_file() and path.name != ".lock")
    path = trial.choose([run / "history.jsonl", run / "history.jsonl", run / "job.json", run / "config.json", *files])
    trial.note(path.relative_to(run).as_posix())
    if path.suffix in (".json", ".jsonl") and trial.chance(0.6):
        lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        text = "\n".join([*lines[:-1], hostile.damaged_json(trial, json.loads(lines[-1]))])
        path.write_bytes((text + "\n").encode("utf-8", "surrogatepass"))
    elif trial.chance(0.1):
        path.unlink()
        trial.note("removed")
    else:
        path.write_bytes(hostile.damaged(trial, path.read_bytes()))


def _options(trial: Trial) -> list[str]:
    settings = [
        "ratio=0.3",
        "ratio=nan",
        "ratio=2",
        "seed=-1",
        "seed=99999999999999999999",
        "columns.id=band",
        "device=tpu",
    ]
    settings += [
        "tokens_per_batch=0",
        "tokens_per_batch=-5",
        "label=time",
        "samples=some",
        "columns.values=[]",
        "ratio=1e-300",
    ]
    choices = [
        ["--kept-out"],
        ["--label", trial.choose(["kind", "time", "band", "no", "id", ""])],
        ["--set", trial.choose([*settings, f"{trial.choose(['ratio', 'seed', 'label'])}={hostile.text(trial)}"])],
    ]
    return [word for option in choices if trial.chance(0.5) for word in option]

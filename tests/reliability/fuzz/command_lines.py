"""Command lines: every command with options, files and folders that are not as they should be.

The oracle: exit code 0 or 2, a sentence for the latter, nobody's files changed, nothing half-written, and tables with
the ids of the data.
"""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pandas as pd

from fuzz import fixtures, hostile
from fuzz.commands import digests, require_untouched, run_command
from fuzz.judging import Trial, answered, require
from romae.experiments.recipe import discover

NETWORK = {"HF_HUB_OFFLINE": "1"}  # no input asks a server
SIZES = ("{width=8, heads=1, depth=1}", "{width=16, heads=2, depth=1}")


def attempt(trial: Trial) -> None:
    os.environ.update(NETWORK)
    commands = [_inference, _inference, _inference, _inference, _interpolate, _interpolate, _training, _words, _words]
    trial.choose([*commands, _recipes, _data, _reference])(trial)


def _table(trial: Trial) -> Path:
    """The table of the commands, sound or not."""
    name = trial.choose(["data.csv", "data.csv", "data.parquet", "data.csv.gz"])
    path, frame = trial.folder / name, fixtures.curves()
    if not trial.is_sound and trial.chance(0.3):
        column, row = trial.choose(list(frame.columns)), trial.number(0, len(frame) - 1)
        cells = list(frame[column])
        cells[row] = trial.choose([hostile.text(trial), str(hostile.number(trial))])
        trial.note(f"cell {row} of {column}: {cells[row]!r}"[:60])
        frame[column] = pd.Series(cells, dtype=object)
    if name == "data.parquet":
        try:
            frame.to_parquet(path, index=False)
        except Exception:  # pyarrow itself has no such table
            frame.astype({name: str for name in frame.columns if frame[name].dtype == object}).to_csv(path, index=False)
    else:
        path.write_bytes(b"")
        frame.to_csv(path, index=False, errors="replace")
    if not trial.is_sound and trial.chance(0.15):
        path.write_bytes(hostile.damaged(trial, path.read_bytes()))
    return path


def _setting(trial: Trial, sound: list[str]) -> str:
    path = trial.choose(
        ["columns.id", "columns.time", "columns.values", "device", "tokens_per_batch", "train.epochs", *sound]
    )
    values = [
        hostile.text(trial),
        str(hostile.number(trial)),
        "none",
        "[]",
        "[1, 2]",
        "0",
        "-1",
        "true",
        "cpu",
        "cuda:7",
    ]
    return f"{path}={trial.choose(values)}"


def _files(trial: Trial) -> dict[str, str]:
    (trial.folder / "mine.txt").write_text("mine\n")
    (trial.folder / "mine.csv").write_text("mine\n1\n")
    (trial.folder / "folder.csv").mkdir()
    return digests(trial.folder)


def _inference(trial: Trial) -> None:
    trial.is_sound = trial.chance(0.1)
    command = trial.choose(["predict", "embed"])
    data, out = _table(trial), "answers.csv"
    model: Any = fixtures.classifier_run()
    words: list[str] = []
    if not trial.is_sound:
        for _ in range(trial.number(0, 2)):
            words += _option(trial)
        odd = [
            "answers.parquet",
            "answers.txt",
            "answers",
            data.name,
            "folder.csv",
            "mine.txt",
            "mine.csv",
            "no/such/x.csv",
        ]
        out = trial.choose([*odd, "answers.csv.gz", "../outside.csv"]) if trial.chance(0.4) else out
        models = [
            fixtures.run(),
            trial.folder,
            "nobody/nothing",
            hostile.text(trial),
            data,
            fixtures.checkpoint(),
            "./no",
        ]
        model = trial.choose(models) if trial.chance(0.3) else model
    before = _files(trial)
    line = [command, str(data), "--model", str(model), "--out", str(trial.folder / out), *words]
    trial.note(repr(line)[:300].replace(str(trial.folder), ""))
    ended = run_command(trial, line)
    require(ended.code == 0 or not trial.is_sound, "refused a sound command")
    place = os.path.normpath(out)
    is_new = place not in before
    require_untouched(before, trial.folder, may_change=[place] if ended.code == 0 and is_new else [])
    if place.startswith(".."):
        written = trial.folder / out
        written.unlink(missing_ok=True)
    elif ended.code == 0 and not any(word.startswith("--id") or "columns" in word for word in words):
        with answered("a table of answers"):
            path = trial.folder / out
            table = pd.read_parquet(path) if path.suffix in (".parquet", ".pq") else pd.read_csv(path)
            ids = {str(name) for name in _read(data)["id"].dropna()}
            require(len(table) == len(ids), "another number of answers than ids")


def _read(path: Path) -> pd.DataFrame:
    return (
        pd.read_parquet(path)
        if path.suffix == ".parquet"
        else pd.read_csv(path, dtype={"id": str}, keep_default_na=False)
    )


def _option(trial: Trial) -> list[str]:
    columns = ["id", "time", "value", "band", "kind", "no", "", hostile.text(trial)]
    name = trial.choose(
        ["--id", "--time", "--channel", "--value", "--position", "--set", "--json", "--config", "--nothing"]
    )
    if name in ("--json", "--nothing"):
        return [name]
    if name == "--set":
        return [name, _setting(trial, ["grouped", "columns.channel", "label"])]
    if name == "--config":
        path = trial.folder / trial.choose(["settings.json", "settings.toml", "settings.txt"])
        body = {"device": "cpu", "tokens_per_batch": 4096, "columns": {"id": "id"}}
        path.write_bytes(hostile.damaged_json(trial, body).encode("utf-8", "surrogatepass"))
        return [name, str(path)]
    return [name, trial.choose(columns)]


def _interpolate(trial: Trial) -> None:
    trial.is_sound = trial.chance(0.1)
    data, words = _table(trial), []
    grids = [
        "0:10:5",
        "0:1",
        "a:b:c",
        "0:10:0",
        "0:10:-1",
        "nan:1:3",
        "0:1e400:3",
        "0:10:" + "9" * 12,
        "0:10:" + "9" * 10,
        "1:0:3",
        "::3",
        "",
    ]
    grids += [
        "2024-01-01:2024-02-01:3",
        "0:10:1e3",
        "0:10:１",
        "0:inf:2",
        "1e308:-1e308:4",
        hostile.text(trial),
        "0:10:" + "1" * 5000,
    ]
    if trial.is_sound or trial.chance(0.7):
        words += ["--at", "0:10:5" if trial.is_sound else trial.choose(grids)]
    if not trial.is_sound and trial.chance(0.4):
        queries = fixtures.curves()[["id", "time", "band"]].head(4)
        column = trial.choose(["id", "time", "band"])
        cells: list[Any] = list(queries[column])
        cells[0] = trial.choose([hostile.text(trial), hostile.number(trial)])
        trial.note(f"query {column}: {cells[0]!r}"[:60])
        queries = queries.assign(**{column: pd.Series(cells, dtype=object)})
        queries.to_csv(trial.folder / "queries.csv", index=False, errors="replace")
        words += ["--queries", str(trial.folder / trial.choose(["queries.csv", "queries.csv", "no.csv", data.name]))]
    if not trial.is_sound and trial.chance(0.3):
        words += _option(trial)
    before = _files(trial)
    line = ["interpolate", str(data), "--model", str(fixtures.run()), "--out", str(trial.folder / "filled.csv"), *words]
    trial.note(repr(line)[:300].replace(str(trial.folder), ""))
    ended = run_command(trial, line)
    require(ended.code == 0 or not trial.is_sound, "refused a sound command")
    require_untouched(before, trial.folder, may_change=["filled.csv"] if ended.code == 0 else [])
    if ended.code == 0:
        with answered("a table of answers"):
            table = pd.read_csv(trial.folder / "filled.csv")
            require(len(table) > 0 and bool(table["value"].notna().all()), "answers that are no numbers")


def _training(trial: Trial) -> None:
    trial.is_sound = trial.chance(0.1)
    data, command = _table(trial), trial.choose(["pretrain", "finetune"])
    settings = [*fixtures.SETTINGS, "validation.share=0.34"]
    out = "run"
    if command == "pretrain":
        settings += [f"model.{part}={trial.choose(SIZES)}" for part in ("encoder", "decoder")]
        words = ["--channel", "band"]
    else:
        words = ["--pretrained", str(fixtures.run()), "--label", "kind"]
    if not trial.is_sound:
        odd = [
            "train.lr=0",
            "train.lr=nan",
            "train.batch_size=0",
            "validation.share=1",
            "validation.share=nan",
            "drop_tokens=2",
        ]
        odd += [
            "masking.ratio=7",
            "train.seed=-1",
            "train.precision=fp8",
            "train.workers=-1",
            "model.encoder=huge",
            "a.b=c",
        ]
        odd += [
            "scaling.values=none",
            "train.tokens_per_batch=0",
            "label=id",
            "kind=regress",
            "model.dropout=1",
            "drop_tokens=nan",
        ]
        settings += [trial.choose(odd) for _ in range(trial.number(0, 2))]
        if trial.chance(0.3):
            settings.append(f"{trial.choose(['train.lr', 'train.warmup', 'masking', 'label'])}={hostile.text(trial)}")
        words += _option(trial) if trial.chance(0.2) else []
        words += ["--resume"] if trial.chance(0.1) else []
        out = trial.choose(["mine.txt", "folder.csv", ".", "run"]) if trial.chance(0.3) else out
    before = _files(trial)
    words += [word for setting in settings for word in ("--set", setting)]
    line = [command, str(data), "--out", str(trial.folder / out), *words]
    trial.note(repr(line)[:400].replace(str(trial.folder), ""))
    ended = run_command(trial, line)
    require(ended.code == 0 or not trial.is_sound, "refused a sound command")
    own = ["config.json", "job.json", "data.json", "history.jsonl", "states", "best", "last", ".lock"]
    places = own if out == "." else [out]
    require_untouched(before, trial.folder, may_change=places if ended.code == 0 and out not in before else [])


def _words(trial: Trial) -> None:
    """Words in any order."""
    vocabulary = [
        *("pretrain", "finetune", "predict", "embed", "interpolate", "list", "show", "report", "page", "data", "check"),
        *(
            "--help",
            "--version",
            "--json",
            "--out",
            "--id",
            "--set",
            "--model",
            "-h",
            "--",
            "-",
            "",
            "import-reference",
        ),
        *("check-reference", "benchmark", "nothing", "--quick=3", "--seed", "-1", "--results", hostile.text(trial)),
    ]
    words = [trial.choose(vocabulary) for _ in range(trial.number(0, 5))]
    if words[:1] == ["benchmark"]:
        words.insert(1, "nothing")  # without a name it measures everything
    trial.note(repr(words)[:300])
    os.chdir(trial.folder)
    before = digests(trial.folder)
    try:
        run_command(trial, [word.replace("\0", "") for word in words])
    finally:
        os.chdir("/")
    require_untouched(before, trial.folder)


def _recipes(trial: Trial) -> None:
    """`show` with any name and setting; `run` only where it must be refused before it begins."""
    name = trial.choose([*sorted(discover())[:40], "positions/tiny", "", hostile.text(trial)])
    results = str(trial.folder / "results")
    if trial.chance(0.6):
        words = ["show", name, *(["--json"] if trial.chance(0.5) else []), *(["--quick"] if trial.chance(0.3) else [])]
        if trial.chance(0.7):
            paths = [
                "train.epochs",
                "model.cls",
                "data",
                "stages.0.train.lr",
                "stages.9.train.lr",
                "stages",
                "seed",
                "model.encoder",
            ]
            words += [
                "--set",
                f"{trial.choose(paths)}={trial.choose([hostile.text(trial), str(hostile.number(trial)), '3'])}",
            ]
    else:
        wrong = [
            ["--seeds", "4-0"],
            ["--seeds", "a"],
            ["--seed", "-1"],
            ["--seed", "1", "--seeds", "0-1"],
            ["--resume"],
        ]
        wrong += [["--device", "tpu"], ["--seeds", ""], ["--seed", "x"], ["--set", "train.epochs=0"]]
        wrong += [["--seeds", "0-" + "9" * 5000], ["--device", hostile.text(trial) + "!"], ["--set", "no=1"]]
        words = ["run", name, "--results", results, *trial.choose(wrong)]
    trial.note(repr(words)[:300].replace(str(trial.folder), ""))
    ended = run_command(trial, words)
    require(words[0] == "show" or ended.code == 2, "a wrong command was run")
    require_untouched({}, trial.folder)
    if ended.code == 0 and "--json" in words:
        with answered("JSON on the screen"):
            json.loads(ended.out)


def _data(trial: Trial) -> None:
    """`data list` and `data check` in a folder of data sets that is not as it should be; nothing is downloaded."""
    root = trial.folder / "data"
    os.environ["ROMAE_DATA"] = str(root)
    names = [
        "uea/BasicMotions",
        "physionet2012",
        "physionet2012-c",
        "plasticc",
        "esc50",
        "tiny_imagenet",
        "uea/../x",
        "uea/",
    ]
    name = trial.choose([*names, hostile.text(trial), "uea/" + hostile.text(trial)])
    if trial.chance(0.6):
        files = [
            "uea/BasicMotions.zip",
            "physionet2012/set-a.tar.gz",
            "physionet2012/Outcomes-a.txt",
            "physionet2012/set-b/1.txt",
        ]
        files += ["esc50/meta/esc50.csv", "plasticc/plasticc_train_metadata.csv.gz", "tiny_imagenet", "uea"]
        for file in (trial.choose(files) for _ in range(trial.number(1, 4))):
            place = root / file
            if not place.exists() and not any(parent.is_file() for parent in place.parents):
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(trial.choose([b"", b"PK\3\4", trial.random.bytes(200), b"a,b\n1,2\n"]))
    words = trial.choose(
        [["data", "list"], ["data", "list", "--json"], ["data", "check", name], ["data", "check", name, "--json"]]
    )
    trial.note(repr(words)[:200])
    before = digests(trial.folder)
    run_command(trial, [word.replace("\0", "") for word in words])
    require_untouched(before, trial.folder)


def _reference(trial: Trial) -> None:
    """Checkpoints of the paper's authors that are none."""
    theirs = trial.folder / "theirs"
    kind = trial.choose(["empty", "ours", "json", "file", "none"])
    trial.note(kind)
    if kind == "ours":
        shutil.copytree(fixtures.checkpoint(), theirs)
    elif kind == "json":
        shutil.copytree(fixtures.checkpoint(), theirs)
        body = json.loads((theirs / "config.json").read_bytes())
        (theirs / "config.json").write_bytes(hostile.damaged_json(trial, body).encode("utf-8", "surrogatepass"))
    elif kind == "empty":
        theirs.mkdir()
    elif kind == "file":
        theirs.write_bytes(b"x")
    before = digests(trial.folder)
    words = trial.choose(
        [["import-reference", str(theirs), "--out", str(trial.folder / "new")], ["check-reference", str(theirs)]]
    )
    require(run_command(trial, words).code == 2, "it was taken for a checkpoint of the authors")
    require_untouched(before, trial.folder)

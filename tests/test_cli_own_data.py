"""The commands for people's own tables: from a file to a file, how they stop, and what they say to bad input."""

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pytest

import romae.training.tables
from messages import assert_says
from romae.cli import main as cli
from romae.config import load_config
from romae.training.loop import REQUEUE
from romae.training.tables import FinetuneConfig, PretrainConfig
from test_training_tables import CURVES, contents

SIZE = "{width=8,heads=2,depth=1}"
COLUMNS = ("--id", "star", "--time", "mjd", "--channel", "band", "--value", "flux")
TINY = [f"--set=model.encoder={SIZE}", f"--set=model.decoder={SIZE}", "--set=train.epochs=3", "--set=train.device=cpu"]
TINY += ["--set=train.batch_size=4"]


class Done(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Runs the command line in this process, as its entry point does, in a folder with a table."""
    CURVES.to_parquet(tmp_path / "curves.parquet")
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["romae", *map(str, arguments)])
        monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        code = stopped.value.code
        return Done(code if isinstance(code, int) else 0, *capsys.readouterr())

    return call


@pytest.fixture
def interrupted(monkeypatch):
    """Makes training send signals to this process when it reports for the second time."""
    train = romae.training.tables.train

    def install(*signals):
        def log(step, record):
            if record["epoch"] == 2:
                for number in signals:
                    signal.raise_signal(number)

        monkeypatch.setattr(romae.training.tables, "train", lambda *a, **k: train(*a, **k, log=log))

    yield install
    monkeypatch.setattr(romae.training.tables, "train", train)


def test_a_score_decides_which_validation_is_the_best(run):
    assert run("pretrain", "curves.parquet", *COLUMNS, "--out", "run", *TINY).code == 0
    learn = ["finetune", "curves.parquet", "--pretrained=run", "--label=kind", *TINY[2:], "--set=validation.share=0.4"]
    done = run(*learn, "--out=clf", "--set=train.scoring=f1_macro", "--json")
    summary, records = json.loads(done.out), Path("clf/history.jsonl").read_text().splitlines()
    assert summary["validation_score"] == max(json.loads(record)["score"] for record in records)
    done = run(*learn, "--out=clf2", "--set=train.scoring=accuracy")
    assert_says(done.out, "score of", "validation samples")
    for scoring, parts in (("auc", ["'auc'", "roc_auc"]), ("r2", ["'r2'", "roc_auc"])):
        done = run(*learn, "--out=clf3", f"--set=train.scoring={scoring}")
        assert done.code == 2 and not Path("clf3").exists()
        assert_says(done.err, *parts)


def test_from_a_table_to_predictions_embeddings_and_curves(run):
    done = run("pretrain", "curves.parquet", *COLUMNS, "--out", "run", *TINY, "--json")
    summary = json.loads(done.out)
    assert done.code == 0 and summary["model"] == "run/best" and summary["task"] == "MaskedReconstruction"
    assert summary["training"] + summary["validation"] == 16 and summary["steps"] == 3 * 4
    assert summary["validation_loss"] > 0 and "pre-training: step 12 of 12" in done.err

    done = run("finetune", "curves.parquet", "--pretrained", "run", "--label", "kind", "--out", "new/clf", *TINY[2:])
    assert done.code == 0 and done.out.startswith("new/clf/best: Classification with ")
    done = run("predict", "curves.parquet", "--model", "new/clf", "--out", "answers/p.csv", "--json")
    columns = ["star", "kind", "probability_fast", "probability_slow"]
    assert json.loads(done.out) == {"out": "answers/p.csv", "rows": 16, "columns": columns}
    assert list(pd.read_csv("answers/p.csv").columns) == columns

    done = run("embed", "curves.parquet", "--model", "run/last", "--out", "e.parquet", "--set", "tokens_per_batch=50")
    assert done.out.startswith("e.parquet: 16 rows of star, embedding_0, ") and done.out.endswith("… (9 columns)\n")
    assert len(pd.read_parquet("e.parquet")) == 16
    done = run("embed", "curves.parquet", "--model", "run/last", "--out", "l.parquet", "--pooling", "layers", "--json")
    own, layers = pd.read_parquet("e.parquet"), pd.read_parquet("l.parquet")
    assert layers["star"].tolist() == own["star"].tolist() and len(json.loads(done.out)["columns"]) == 1 + 8 * 2 * (
        5 + 4
    )

    done = run("interpolate", "curves.parquet", "--model", "run", "--at", "59000:59006:3", "--out", "grid.csv")
    assert done.code == 0
    assert_says(done.out, "96 rows", "star, mjd, band, flux")
    some = ("--at", "59000:59006:3", "--channels", "r, g", "--out", "some.csv")
    assert_says(run("interpolate", "curves.parquet", "--model", "run", *some).out, "96 rows")
    assert pd.read_csv("some.csv")["band"][:6].tolist() == ["r"] * 3 + ["g"] * 3
    done = run("interpolate", "curves.parquet", "--model", "run", *some[:2], "--channels", "u,r", "--out", "none.csv")
    assert done.code == 2 and not Path("none.csv").exists()
    assert_says(done.err, "unknown channel 'u'", "g, r")
    pd.read_csv("grid.csv")[5:9][["mjd", "band", "star"]].to_csv("queries.csv", index=False)
    done = run("interpolate", "curves.parquet", "--model", "run", "--queries", "queries.csv", "--out", "asked.csv")
    grid, asked = pd.read_csv("grid.csv"), pd.read_csv("asked.csv")
    pd.testing.assert_frame_equal(asked, grid[5:9].reset_index(drop=True), rtol=1e-5)


def test_ids_that_cannot_be_read_are_skipped_and_listed(run, without_shape_checks):
    run("pretrain", "curves.parquet", *COLUMNS, "--out", "run", *TINY)
    first, second = CURVES["star"].unique()[:2]
    spoiled = CURVES.astype({"flux": object})
    spoiled.loc[spoiled.index[spoiled["star"] == first][0], "flux"] = "bad"  # makes the column text
    spoiled.loc[spoiled.index[spoiled["star"] == second][0], "band"] = "z"
    spoiled.to_csv("spoiled.csv", index=False)
    CURVES[~CURVES["star"].isin([first, second])].to_csv("rest.csv", index=False)
    queries = CURVES.loc[~CURVES["star"].duplicated(), ["star", "mjd", "band"]]
    queries.to_csv("all.csv", index=False)
    queries[~queries["star"].isin([first, second])].to_csv("some.csv", index=False)
    for command, wide, narrow in (("embed", (), ()), ("interpolate", ("--queries=all.csv",), ("--queries=some.csv",))):
        assert run(command, "spoiled.csv", "--model", "run", *wide, "--out", "x.csv").code == 2
        with pytest.warns(UserWarning, match=f"skipped 2 of 16 samples: '{first}'"):
            done = run(command, "spoiled.csv", "--model=run", *wide, "--out=x.csv", "--on-error=skip", "--force")
        assert done.code == 0
        assert_says(done.out, "x.skipped.csv", "2 ids")
        run(command, "rest.csv", "--model", "run", *narrow, "--out", "y.csv", "--force")
        assert Path("x.csv").read_bytes() == Path("y.csv").read_bytes()
        skipped = pd.read_csv("x.skipped.csv", dtype=str)
        assert skipped["id"].tolist() == [str(first), str(second)] and "bad" in skipped["reason"][0]
    with pytest.warns(UserWarning, match="skipped"):
        done = run("embed", "spoiled.csv", "--model", "run", "--out", "z.csv", "--on-error", "skip", "--json")
    assert json.loads(done.out)["skipped"] == 2
    done = run("embed", "spoiled.csv", "--model", "run", "--out", "w.csv", "--on-error", "ignore")
    assert done.code == 2
    assert_says(done.err, "on_error", "'ignore'")
    Path("v.skipped.csv").write_text("mine")
    done = run("embed", "spoiled.csv", "--model", "run", "--out", "v.csv", "--on-error", "skip")
    assert done.code == 2 and Path("v.skipped.csv").read_text() == "mine"


def test_static_facts_of_ids_go_from_pretraining_to_predictions(run):
    stars = CURVES["star"].unique()
    facts = pd.DataFrame(
        {"star": stars, "distance": range(len(stars)), "galaxy": ["spiral", "disc"] * (len(stars) // 2)}
    )
    CURVES.merge(facts, on="star").to_csv("facts.csv", index=False)
    assert run("pretrain", "facts.csv", *COLUMNS, "--static", "distance,galaxy", "--out", "run", *TINY).code == 0
    task = romae.training.tables.load_model("run")
    assert task.schema.kind_names == ("g", "r", "distance", "galaxy=disc", "galaxy=spiral")
    assert task.config.static_from == 2 and task.config.kinds == 5
    assert run("finetune", "facts.csv", "--pretrained=run", "--label=kind", "--out=clf", *TINY[2:]).code == 0
    assert run("predict", "facts.csv", "--model=clf", "--out=p.csv").code == 0
    assert run("predict", "facts.csv", "--model=clf", "--out=q.csv", "--on-error=skip").code == 0
    assert Path("p.csv").read_bytes() == Path("q.csv").read_bytes()
    done = run("interpolate", "facts.csv", "--model=run", "--at=59000:59006:3", "--out=grid.csv", "--json")
    assert json.loads(done.out)["rows"] == 16 * 2 * 3
    pytest.importorskip("plotly", reason="needs romae[plots]")
    assert run("page", "run", "--data", "facts.csv").code == 0  # which hides points, and no facts
    done = run("predict", "curves.parquet", "--model", "clf", "--out", "r.csv")
    assert done.code == 2
    assert_says(done.err, "'distance'", "is not there")


def test_the_written_configuration_can_be_fed_back(run):
    run("pretrain", "curves.parquet", *COLUMNS, "--out", "first", *TINY, "--set", 'masking={kind="rows",ratio=0.4}')
    done = run("pretrain", "curves.parquet", "--config", "first/job.json", "--out", "second")
    assert done.code == 0 and contents(Path("first")) == contents(Path("second"))


def test_a_file_of_settings_gives_way_to_options_and_those_to_set(run):
    Path("job.toml").write_text(
        'label = "freq"\ndrop_tokens = 0.1\n[train]\nepochs = 1\ndevice = "cpu"\nlr = 0.5\n[columns]\nid = "nobody"\n'
    )
    run("pretrain", "curves.parquet", *COLUMNS, "--out", "run", *TINY)
    given = ("--id", "star", "--label", "kind", "--set", "train.lr=0.01")
    done = run("finetune", "curves.parquet", "--pretrained", "run", "--config", "job.toml", *given, "--out", "clf")
    assert done.code == 0
    config = load_config(FinetuneConfig, "clf/job.json")
    assert (config.columns.id, config.label, config.drop_tokens) == ("star", "kind", 0.1)
    assert (config.train.epochs, config.train.lr) == (1, 0.01)


def test_ladders_of_the_first_axes_can_be_given(run):
    given = ("--ladders", "0.5:40", "--set", "scaling.center=sample")
    assert run("pretrain", "curves.parquet", *COLUMNS, "--out", "run", *TINY, *given).code == 0
    config = load_config(PretrainConfig, "run/job.json")
    assert config.model.ladders == (romae.Ladder(shortest=0.5, longest=40.0),)
    model = json.loads(Path("run/best/config.json").read_text())
    assert model["model"]["ladders"][0]["longest"] == 40.0 and model["scaling"]["center"] == "sample"
    for text, part in (("daily", "'daily'"), ("40:0.5", "climb")):
        done = run("pretrain", "curves.parquet", *COLUMNS, "--out", "other", *TINY, "--ladders", text)
        assert done.code == 2
        assert_says(done.err, part)


def test_the_settings_in_the_documentation_are_settings(tmp_path):
    page = (Path(__file__).resolve().parents[1] / "docs" / "command-line.md").read_text(encoding="utf-8")
    (tmp_path / "job.toml").write_text(page.split("```toml\n")[1].split("```")[0])
    config = load_config(PretrainConfig, tmp_path / "job.toml")
    assert (config.model.encoder, config.masking.kind, config.train.epochs) == ("small", "rows", 50)


def test_rows_that_are_dropped_are_told_in_one_line(run, monkeypatch):
    CURVES.assign(flux=CURVES["flux"].mask(CURVES.index == 3)).to_csv("gaps.csv", index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        monkeypatch.setattr(warnings, "showwarning", lambda m, *_: print(warnings.formatwarning(m), file=sys.stderr))
        done = run("pretrain", "gaps.csv", *COLUMNS, "--out", "run", *TINY)
    assert done.code == 0
    assert_says(done.err, "warning: dropped", "1 of 160 rows")


# Stopping


def test_a_run_of_a_version_without_kinds_is_resumed(run):
    assert run("pretrain", "curves.parquet", *COLUMNS, "--out", "run", *TINY, "--set", "model.kinds=false").code == 0
    for path in (Path("run/job.json"), Path("run/config.json")):
        told = json.loads(path.read_text())
        told["model"] = {key: value for key, value in told["model"].items() if "kinds" not in key}
        path.write_text(json.dumps(told))
    done = run("pretrain", "curves.parquet", "--out", "run", "--resume")
    assert done.code == 0, done.err
    assert romae.load("run/best").config.kinds is None


@pytest.mark.parametrize(
    ("signals", "code", "parts"),
    [
        ([signal.SIGINT], 130, ["saved its state"]),
        ([signal.SIGINT, signal.SIGINT], 130, ["stopped", "resume", "last state"]),
        ([signal.SIGTERM], REQUEUE, ["saved its state"]),
    ],
    ids=["Ctrl-C", "Ctrl-C twice", "SIGTERM"],
)
def test_a_run_that_was_stopped_says_how_to_go_on_and_ends_like_one_that_was_not(
    run, interrupted, monkeypatch, signals, code, parts
):
    run("pretrain", "curves.parquet", *COLUMNS, "--out", "whole", *TINY)
    with monkeypatch.context():
        interrupted(*signals)
        done = run("pretrain", "curves.parquet", *COLUMNS, "--out", "stopped", *TINY)
    assert done.code == code and "Traceback" not in done.err
    assert_says(done.err, *parts)
    assert "romae pretrain curves.parquet --out stopped --resume" in done.err
    assert not Path("stopped/best").exists()
    interrupted()
    assert run("pretrain", "curves.parquet", "--out", "stopped", "--resume").code == 0
    assert contents(Path("stopped")) == contents(Path("whole"))


def test_a_worker_that_dies_of_ctrl_c_is_no_failed_run(run, monkeypatch):
    def train(*arguments, **settings):
        monkeypatch.setattr(signal, "getsignal", lambda number: lambda *_: None)
        monkeypatch.setattr(signal, "raise_signal", lambda number: None)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
        raise RuntimeError("a worker was interrupted")

    monkeypatch.setattr(romae.training.tables, "train", train)
    done = run("pretrain", "curves.parquet", *COLUMNS, "--out", "run", *TINY)
    assert done.code == 130
    assert_says(done.err, "not saved a state")


@pytest.mark.parametrize("error", [FloatingPointError("the loss became nan at step 2"), RuntimeError("disk is full")])
def test_a_run_that_fails_ends_in_one_sentence_and_exit_code_1(run, monkeypatch, error):
    def train(*arguments, **settings):
        raise error

    monkeypatch.setattr(romae.training.tables, "train", train)
    done = run("pretrain", "curves.parquet", *COLUMNS, "--out", "run", *TINY)
    assert done == Done(1, "", f"romae: {error}\n")


@pytest.mark.parametrize("n", [10**13, 10**18])
def test_a_grid_that_no_memory_holds_is_refused(run, n):
    run("pretrain", "curves.parquet", *COLUMNS, "--out", "run", *TINY)
    done = run("interpolate", "curves.parquet", "--model", "run", "--at", f"59000:59006:{n}", "--out", "grid.csv")
    assert done.code == 2 and len(done.err.splitlines()) == 1
    assert_says(done.err, "not enough memory")
    assert not Path("grid.csv").exists()


def test_a_loss_that_is_no_number_names_step_and_samples(run):
    done = run("pretrain", "curves.parquet", *COLUMNS, "--out", "run", *TINY, "--set=train.lr=1e30")
    assert done.code == 1 and "the loss became" in done.err and "on the samples s" in done.err


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, REQUEUE)])
def test_a_real_process_that_is_stopped_saves_first(tmp_path, number, code):
    data, out = tmp_path / "curves.parquet", tmp_path / "run"
    CURVES.to_parquet(data)
    command = [sys.executable, "-m", "romae", "pretrain", data, *COLUMNS, "--out", out, *TINY]
    process = subprocess.Popen([*command, "--set=train.epochs=100000"], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline and not any(out.glob("states/[0-9]*")):
        time.sleep(0.05)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == code, said
    assert f"romae pretrain {data} --out {out} --resume" in said and "Traceback" not in said


# Bad input


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["pretrain", "none.csv", "--out", "run"], ["no file", "none.csv"]),
        (["pretrain", "curves.parquet", "--out", "run"], ["column 'id'", "['star', 'mjd',"]),
        (["pretrain", "curves.parquet", *COLUMNS, "--out", "run", "--set", "train.epoch=1"], ["key 'train.epoch'"]),
        (["pretrain", "curves.parquet", *COLUMNS, "--out", "run", "--config", "no.toml"], ["no file no.toml"]),
        (["pretrain", "curves.parquet", *COLUMNS], ["Missing option '--out'"]),
        (["finetune", "curves.parquet", "--pretrained", "on/hub", "--out", "run"], ["fine-tuning", "label"]),
        (
            ["finetune", "curves.parquet", "--pretrained", "x", "--label", "kind", "--out", "run"],
            ["no checkpoint folder"],
        ),
        (["predict", "curves.parquet", "--model", "x", "--out", "p.csv"], ["no checkpoint folder x"]),
        (["predict", "curves.parquet", "--model", "on/hub", "--out", "p.txt"], ["p.txt"]),
        (["embed", "curves.parquet", "--model", "on/hub", "--out", "e.csv", "--set", "size=1"], ["unknown key 'size'"]),
        (["interpolate", "curves.parquet", "--model", "on/hub", "--out", "i.csv"], ["where to interpolate"]),
        (
            ["interpolate", "curves.parquet", "--model=on/hub", "--out=i.csv", "--channels=,"],
            ["--channels ','", "HR,Temp"],
        ),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(run, arguments, parts):
    done = run(*arguments)
    assert done.code == 2 and done.out == ""
    assert_says(done.err, *parts)
    assert [path.name for path in Path().iterdir()] == ["curves.parquet"]


def test_a_pooling_that_there_is_not_is_refused_before_the_model_is_read(run, without_shape_checks):
    done = run("embed", "curves.parquet", "--model", "on/hub", "--out", "e.csv", "--pooling", "all")
    assert done.code == 2 and not Path("e.csv").exists()
    assert_says(done.err, "'layers'", "not 'all'")


# What is there already


@pytest.mark.parametrize("command", ["predict", "embed", "interpolate"])
def test_a_table_that_is_there_is_left_alone(run, command):
    Path("mine.csv").write_text("years of work")
    asked = (command, "curves.parquet", "--model", "on/hub", *(("--at", "0:1:2") if command == "interpolate" else ()))
    done = run(*asked, "--out", "mine.csv")
    assert done.code == 2
    assert_says(done.err, "mine.csv", "--force")
    absent = [word.replace("on/hub", "x") for word in asked]
    assert_says(run(*absent, "--out", "mine.csv", "--force").err, "no checkpoint folder")
    for force in ((), ("--force",)):
        done = run(*asked, "--out", "curves.parquet", *force)
        assert done.code == 2
        assert_says(done.err, "curves.parquet", "is read", "another")
    Path("link.parquet").symlink_to("curves.parquet")
    assert_says(run(*asked, "--out", "link.parquet", "--force").err, "link.parquet", "is read")
    Path("folder.csv").mkdir()
    assert_says(run(*asked, "--out", "folder.csv", "--force").err, "folder.csv", "is a folder")
    assert Path("mine.csv").read_text() == "years of work"
    pd.testing.assert_frame_equal(pd.read_parquet("curves.parquet"), CURVES)


def test_a_run_writes_over_nothing_that_it_reads(run):
    Path("here").mkdir()
    Path("here/job.json").write_text('{"train": {"epochs": 1}}')
    done = run("pretrain", "curves.parquet", *COLUMNS, "--config", "here/job.json", "--out", "here")
    assert done.code == 2 and Path("here/job.json").read_text() == '{"train": {"epochs": 1}}'
    assert_says(done.err, "job.json", "is read")
    romae.Classification(romae.ModelConfig(channels=1, position_dims=2, encoder="tiny-shallow"), 2).save("mine/best")
    weights = Path("mine/best/model.safetensors").read_bytes()
    for pretrained in ("mine/best", "on/hub"):
        done = run("finetune", "curves.parquet", "--pretrained", pretrained, "--label", "kind", "--out", "mine")
        assert done.code == 2 and Path("mine/best/model.safetensors").read_bytes() == weights
        assert_says(done.err, "mine/best", "holds a model")


def test_what_is_written_respects_the_umask(run):
    before = os.umask(0o077)
    try:
        assert run("pretrain", "curves.parquet", *COLUMNS, "--out", "run", *TINY).code == 0
        assert run("embed", "curves.parquet", "--model", "run", "--out", "e.csv").code == 0
    finally:
        os.umask(before)
    written = [Path("e.csv"), Path("run"), *Path("run").rglob("*")]
    assert len(written) > 10 and not any(path.stat().st_mode & 0o077 for path in written)


@pytest.mark.parametrize(
    ("setting", "parts"),
    [
        (f"train.epochs={'9' * 400}", ["train.epochs", "400 digits"]),
        (f"train.lr={'9' * 400}", ["train.lr", "400 digits"]),
        (f"train.epochs={'9' * 5000}", ["train.epochs"]),
        (f"train.epochs={'[' * 5000}", ["train.epochs"]),
        (f"model.encoder={{width={2**40},heads=2,depth=1}}", ["width", "at most"]),
        (f"model.encoder={{width=16,heads=2,depth={2**40}}}", ["depth", "at most"]),
    ],
    ids=["int", "float", "endless", "nested", "width", "depth"],
)
def test_numbers_beyond_all_bounds_are_refused(run, setting, parts):
    done = run("pretrain", "curves.parquet", *COLUMNS, "--out", "run", "--set", setting)
    assert done.code == 2 and len(done.err.splitlines()) == 1, done.err
    assert_says(done.err, *parts)


@pytest.mark.parametrize("command", ["pretrain", "finetune", "predict", "embed", "interpolate"])
def test_help_teaches_with_an_example(run, command):
    done = run(command, "--help")
    assert done.code == 0 and f"Example: romae {command} " in done.out and "--config" in done.out

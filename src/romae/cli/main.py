"""The command line: each command is one call into the library."""

import dis
import json
import math
import os
import shutil
import sys
import traceback
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from romae import __version__
from romae.cli import answers as cli_answers
from romae.cli import compare as cli_compare
from romae.cli import data as cli_data
from romae.cli import export as cli_export
from romae.cli import filling as cli_filling
from romae.cli import learning as cli_learning
from romae.cli import recipes as cli_recipes
from romae.cli.options import Commands, Quiet, help_of
from romae.cli.runs import require_new
from romae.cli.tables import Force, Json, print_table

app = typer.Typer(
    cls=Commands,
    help="RoMAE: self-supervised learning for irregular time series and other irregularly sampled data. Start with: "
    "romae demo",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
data_app = typer.Typer(
    help="The public data sets: what is there, how to get it, whether it is whole.", no_args_is_help=True
)
# What `romae --help` puts together, in this order.
FIRST, OWN, PAPER, TOOLS = "Start here", "Your data", "Experiments and benchmarks", "Tools"


BAD_INPUT, FAILED, MISTAKE = 2, 1, 70  # exit codes; 70 is "internal software error" among those of sysexits.h


def main() -> None:
    """Run the command line; what is wrong becomes one sentence.

    The exit code is 2 for bad input, 1 for a run that failed, and 70 for a mistake of ours, which asks to be reported.
    """
    warnings.formatwarning = lambda message, *_: f"warning: {message}\n"
    try:
        app()
    except Exception as error:
        code, sentence = _told(error)
        if "--traceback" in sys.argv[1:]:
            traceback.print_exception(error)
        typer.echo(f"romae: {sentence}", err=True)
        sys.exit(code)


def _told(error: Exception) -> tuple[int, str]:
    """The exit code of an error, and what to say of it."""
    place = error.__traceback__
    assert place is not None
    while place.tb_next is not None:
        place = place.tb_next
    code = place.tb_frame.f_code
    # Sentences are raised by a statement; what is not is an operation of ours that failed, or of a library.
    is_meant = code.co_code[place.tb_lasti] == dis.opmap["RAISE_VARARGS"]
    is_ours = Path(code.co_filename).is_relative_to(Path(__file__).parents[1])
    is_torch = type(error).__module__.startswith("torch")
    if isinstance(error, MemoryError):
        return BAD_INPUT, f"there is not enough memory: {error}; ask for less at once"
    if isinstance(error, RuntimeError) and any(words in str(error) for words in ("out of memory", "allocate memory")):
        return FAILED, f"there is not enough memory: {str(error).splitlines()[0]}; ask for less at once"
    if isinstance(error, ImportError | OSError) or (isinstance(error, ValueError) and (is_meant or not is_ours)):
        return BAD_INPUT, str(error)
    if type(error) is TypeError and is_meant:
        return BAD_INPUT, str(error)
    if isinstance(error, FloatingPointError) or (type(error) is RuntimeError and is_meant) or is_torch:
        return FAILED, str(error)
    return MISTAKE, (
        f"this is a mistake of ours, not yours: {type(error).__name__}: {str(error)[:500]} "
        f"({Path(code.co_filename).name}, line {place.tb_lineno}). Please report it, with what "
        f"`romae --traceback {' '.join(sys.argv[1:2])} …` prints"
    )


def _version(is_requested: bool) -> bool:
    if is_requested:
        typer.echo(f"romae {__version__}")
        raise typer.Exit
    return is_requested


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="Where an error arose, in full, for a report; before the command.")
    ] = False,
) -> None: ...


@app.command(rich_help_panel=FIRST)
def demo(
    out: Annotated[Path, typer.Option(help="The folder for the picture, the page and a table of series.")] = Path(
        "demo"
    ),
    seed: Annotated[int, typer.Option(help="Another seed makes other data and another model.")] = 0,
    quick: Annotated[
        bool, typer.Option(help="Some 20 seconds instead of two minutes: a smaller model, which wins by less.")
    ] = False,
    force: Force = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Two minutes on two CPU cores, no download: fill a table without training, then train, classify and compare.

    Example: romae demo --out demo
    """
    from romae.experiments import demo

    def say(text: str) -> None:
        if not quiet:
            typer.echo(text, err=True)

    settings = demo.QUICK if quick else demo.FULL
    outcome = demo.run(out, seed=seed, settings=settings, force=force, say=say)
    rows = [{"method": name, "rmse": value} for name, value in outcome.rmse.items()]
    accuracies = [{"method": name, "accuracy": value} for name, value in outcome.accuracy.items()]
    if as_json:
        files = {name: str(getattr(outcome, name)) for name in ("picture", "page", "table")}
        summary = {
            "filled": outcome.filled.rows(),
            "rows": rows,
            "classification": accuracies,
            "wins": outcome.wins,
            "seconds": outcome.seconds,
            **files,
        }
        typer.echo(json.dumps(summary | {"next": outcome.next_commands}))
        return
    print_table(
        "A log with gaps, filled without training: error at missing readings, in standard deviations",
        outcome.filled.rows(),
    )
    print_table("A model trained on oscillators: error (V) at readings that were hidden from it", rows)
    print_table("Accuracy of the predicted speed of new series, from the same half of the readings", accuracies)
    for sentence in outcome.verdicts:
        typer.echo(sentence)
    if not outcome.wins:
        longer = "without --quick it is trained for longer" if quick else "another --seed makes other data"
        typer.echo(f"romae: the model does not win in all of this; {longer}", err=True)
    typer.echo(f"trained for {outcome.seconds:.0f} s; the curves are in {outcome.picture.parent}/*.png")
    typer.echo(f"open {outcome.page} in a browser to look around\n\nNext, try:")
    for command in outcome.next_commands:
        typer.echo(f"  {_program()}{command.removeprefix('romae')}")


def _program() -> str:
    """How this program is started from here: by its name or, from an environment that is not active, by its place."""
    if shutil.which("romae") is not None:
        return "romae"
    place = Path(sys.argv[0])
    return os.path.relpath(place) if place.name == "romae" else "python -m romae"


for group, file, panel in (
    (app, cli_filling, OWN),
    (app, cli_learning, OWN),
    (app, cli_answers, OWN),
    (app, cli_export, OWN),
    (app, cli_recipes, PAPER),
    (app, cli_compare, PAPER),
    (data_app, cli_data, None),
):
    for name, command in file.COMMANDS.items():
        place = OWN if name == "page" else panel
        group.command(name, rich_help_panel=place, help=help_of(command))(command)
app.add_typer(data_app, name="data", rich_help_panel=PAPER)


@app.command("import-reference", rich_help_panel=PAPER)
def import_reference(
    directory: Annotated[Path, typer.Argument(help="A checkpoint folder of the paper's authors.")],
    out: Annotated[Path, typer.Option(help="The folder to write, in the format of this library.")],
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Turn a checkpoint of the paper's authors into one of ours.

    Example: romae import-reference theirs/checkpoint-9000 --out encoder
    """
    from romae.checkpoints.authors import load_reference

    require_new(out, force)
    task = load_reference(directory)
    task.save(out)
    name, n_parameters = type(task).__name__, sum(p.numel() for p in task.parameters())
    if as_json:
        typer.echo(json.dumps({"model": str(out), "task": name, "parameters": n_parameters}))
        return
    typer.echo(f"{out}: {name} with {n_parameters:,} parameters")


@app.command(rich_help_panel=TOOLS)
def digest(
    directories: Annotated[list[Path], typer.Argument(help="Checkpoint folders.")],
    as_json: Json = False,
) -> None:
    """Write the digests of checkpoints as they are: of an older version, or changed by you. Others refuse to load.

    Example: romae digest models/icu models/light-curves
    """
    from romae.checkpoints.native import write_digests

    for path in directories:
        write_digests(path)
        if not as_json:
            typer.echo(f"{path}: digests written")
    if as_json:
        typer.echo(json.dumps([str(path) for path in directories]))


@app.command("check-reference", rich_help_panel=PAPER)
def check_reference(
    directories: Annotated[list[Path], typer.Argument(help="Checkpoint folders with io.safetensors beside the model.")],
    as_json: Json = False,
) -> None:
    """Hold our outputs against those stored beside the authors' checkpoints; exit code 1 above 1e-4.

    Example: romae check-reference parity/*
    """
    from romae.checkpoints.authors import TOLERANCE, largest_difference

    rows: list[dict[str, Any]] = []
    for path in directories:
        try:
            difference, problem = largest_difference(path), ""
        except ValueError as error:
            difference, problem = math.nan, str(error)
        shown = None if math.isnan(difference) else difference
        row = {"folder": str(path), "largest difference": shown, "passed": difference <= TOLERANCE}
        rows.append(row | ({"problem": problem} if problem else {}))
    if as_json:
        typer.echo(json.dumps(rows))
    else:
        title = f"Largest difference from the authors' outputs (at most {TOLERANCE:g})"
        print_table(title, [{k: v for k, v in row.items() if k != "problem"} for row in rows])
    for row in rows:
        if "problem" in row:
            typer.echo(f"romae: {row['problem']}", err=True)
    if any("problem" in row for row in rows):
        raise typer.Exit(2)
    if not all(row["passed"] for row in rows):
        raise typer.Exit(1)


@app.command("benchmark", rich_help_panel=TOOLS)
def benchmark(
    names: Annotated[list[str] | None, typer.Argument(help="What to measure; everything by default.")] = None,
    out: Annotated[Path, typer.Option(help="The folder for the result.")] = Path("results/benchmark"),
    rows: Annotated[int | None, typer.Option(min=1, help="How many rows the table of streaming has.")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Measure speed and memory: steps, attached, positions, lengths, attention, loading, answers, streaming.

    Example: romae benchmark steps attached
    """
    from romae import benchmark

    path, sections = benchmark.run(names or list(benchmark.SECTIONS), out, force=force, n_rows=rows)
    if as_json:
        typer.echo(json.dumps(sections))
        return
    for name, section in sections.items():
        figures = [{"figure": key, "value": value} for key, value in section.items() if isinstance(value, int | float)]
        print_table(name, [_flat(row) for row in section.get("rows", figures)])
    typer.echo(f"written to {path}")


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """A row for a table: of a spread, its median."""
    shown = {key: value["median"] if isinstance(value, dict) else value for key, value in row.items()}
    return {key.replace("_", " "): value for key, value in shown.items()}

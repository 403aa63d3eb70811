"""The command line: each command is one call into the library."""

import json
import math
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from romae import __version__
from romae.cli import data as cli_data
from romae.cli import own_data as cli_own_data
from romae.cli import recipes as cli_recipes
from romae.cli.tables import Json, print_table

app = typer.Typer(
    help="RoMAE: learn from measurements at real-valued positions. Start with: romae demo",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(
    help="The public data sets: what is there, how to get it, whether it is whole.", no_args_is_help=True
)
app.add_typer(data_app, name="data")


def main() -> None:
    """Run the command line; what is wrong becomes one sentence: exit code 2 for the input, 1 for a run that failed."""
    warnings.formatwarning = lambda message, *_: f"warning: {message}\n"
    try:
        app()
    except (ValueError, TypeError, ImportError, OSError) as error:
        typer.echo(f"romae: {error}", err=True)
        sys.exit(2)
    except MemoryError as error:
        typer.echo(f"romae: there is not enough memory: {error}; ask for less at once", err=True)
        sys.exit(2)
    except (FloatingPointError, RuntimeError) as error:
        typer.echo(f"romae: {error}", err=True)
        sys.exit(1)


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
) -> None: ...


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="The folder for the picture, the page and a table of series.")] = Path(
        "demo"
    ),
    seed: Annotated[int, typer.Option(help="Another seed makes other data and another model.")] = 0,
    quick: Annotated[bool, typer.Option(help="A few seconds instead of two minutes; the numbers mean little.")] = False,
    as_json: Json = False,
) -> None:
    """Two minutes on two CPU cores, no download: make data, pre-train, interpolate, classify, compare.

    Example: romae demo --out demo
    """
    from romae.experiments import demo

    sizes = {"epochs": 2, "n_train": 100, "n_test": 20} if quick else {}
    outcome = demo.run(out, seed=seed, **sizes)
    rows = [{"method": name, "rmse": value} for name, value in outcome.rmse.items()]
    accuracies = [{"method": name, "accuracy": value} for name, value in outcome.accuracy.items()]
    if as_json:
        files = {name: str(getattr(outcome, name)) for name in ("picture", "page", "table")}
        summary = {"rows": rows, "classification": accuracies, "seconds": outcome.seconds, **files}
        typer.echo(json.dumps(summary | {"next": outcome.next_commands}))
        return
    print_table("Error at readings that were hidden from the model", rows)
    print_table("Share of new series whose speed was told", accuracies)
    typer.echo(f"trained for {outcome.seconds:.0f} s; the curves are in {outcome.picture}")
    typer.echo(f"open {outcome.page} in a browser to look around\n\nNext, try:")
    for command in outcome.next_commands:
        typer.echo(f"  {command}")


for group, file in ((app, cli_own_data), (app, cli_recipes), (data_app, cli_data)):
    for name, command in file.COMMANDS.items():
        group.command(name)(command)


@app.command("import-reference")
def import_reference(
    directory: Annotated[Path, typer.Argument(help="A checkpoint folder of the paper's authors.")],
    out: Annotated[Path, typer.Option(help="The folder to write, in the format of this library.")],
) -> None:
    """Turn a checkpoint of the paper's authors into one of ours.

    Example: romae import-reference theirs/checkpoint-9000 --out encoder
    """
    from romae.checkpoints.authors import load_reference

    task = load_reference(directory)
    task.save(out)
    typer.echo(f"{out}: {type(task).__name__} with {sum(p.numel() for p in task.parameters()):,} parameters")


@app.command()
def digest(
    directories: Annotated[list[Path], typer.Argument(help="Checkpoint folders.")],
) -> None:
    """Write the digests of checkpoints as they are: of an older version, or changed by you. Others refuse to load.

    Example: romae digest models/icu models/light-curves
    """
    from romae.checkpoints.native import write_digests

    for path in directories:
        write_digests(path)
        typer.echo(f"{path}: digests written")


@app.command("check-reference")
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


@app.command("benchmark")
def benchmark(
    names: Annotated[list[str] | None, typer.Argument(help="What to measure; everything by default.")] = None,
    out: Annotated[Path, typer.Option(help="The folder for the result.")] = Path("results/benchmark"),
    as_json: Json = False,
) -> None:
    """Measure speed and memory on this machine: steps, attached, positions, lengths, attention, loading.

    Example: romae benchmark steps attached
    """
    from romae import benchmark

    path, sections = benchmark.run(names or list(benchmark.SECTIONS), out)
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

"""The command line: each command is one call into the library."""

import json
import math
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from romae import __version__
from romae.cli_data import COMMANDS
from romae.cli_recipes import COMMANDS as EXPERIMENTS
from romae.cli_tables import print_table

app = typer.Typer(
    help="RoMAE: learn from measurements at real-valued positions. Start with: romae demo",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(
    help="The public data sets: what is there, how to get it, whether it is whole.", no_args_is_help=True
)
app.add_typer(data_app, name="data")

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def main() -> None:
    """Run the command line; what is wrong becomes one sentence: exit code 2 for the input, 1 for a run that failed."""
    warnings.formatwarning = lambda message, *_: f"warning: {message}\n"
    try:
        app()
    except (ValueError, TypeError, ImportError, OSError) as error:
        typer.echo(f"romae: {error}", err=True)
        sys.exit(2)
    except (FloatingPointError, RuntimeError) as error:
        typer.echo(f"romae: {error}", err=True)
        sys.exit(1)


def _version(wanted: bool) -> bool:
    if wanted:
        typer.echo(f"romae {__version__}")
        raise typer.Exit
    return wanted


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
    from romae import demo

    sizes = {"epochs": 2, "n_train": 100, "n_test": 20} if quick else {}
    outcome = demo.run(out, seed=seed, **sizes)
    rows = [{"method": name, "rmse": value} for name, value in outcome.rmse.items()]
    accuracies = [{"method": name, "accuracy": value} for name, value in outcome.accuracy.items()]
    if as_json:
        files = {name: str(getattr(outcome, name)) for name in ("picture", "page", "table")}
        told = {"rows": rows, "classification": accuracies, "seconds": outcome.seconds, **files}
        typer.echo(json.dumps(told | {"next": outcome.next_commands}))
        return
    print_table("Error at readings that were hidden from the model", rows)
    print_table("Share of new series whose speed was told", accuracies)
    typer.echo(f"trained for {outcome.seconds:.0f} s; the curves are in {outcome.picture}")
    typer.echo(f"open {outcome.page} in a browser to look around\n\nNext, try:")
    for command in outcome.next_commands:
        typer.echo(f"  {command}")


for command in COMMANDS:
    app.command()(command)
for name, experiment in EXPERIMENTS.items():
    app.command(name)(experiment)


@app.command("import-reference")
def import_reference(
    directory: Annotated[Path, typer.Argument(help="A checkpoint folder of the paper's authors.")],
    out: Annotated[Path, typer.Option(help="The folder to write, in the format of this library.")],
) -> None:
    """Turn a checkpoint of the paper's authors into one of ours.

    Example: romae import-reference theirs/checkpoint-9000 --out encoder
    """
    from romae.reference import load_reference

    task = load_reference(directory)
    task.save(out)
    typer.echo(f"{out}: {type(task).__name__} with {sum(p.numel() for p in task.parameters()):,} parameters")


@app.command("check-reference")
def check_reference(
    directories: Annotated[list[Path], typer.Argument(help="Checkpoint folders with io.safetensors beside the model.")],
    as_json: Json = False,
) -> None:
    """Hold our outputs against those stored beside the authors' checkpoints; exit code 1 above 1e-4.

    Example: romae check-reference parity/*
    """
    from romae.reference import TOLERANCE, largest_difference

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


@data_app.command("list")
def data_list(as_json: Json = False) -> None:
    """The data sets that romae can read, and whether they are here.

    Example: romae data list
    """
    from romae.datasets import discover
    from romae.datasets.files import data_root

    rows = [
        {"name": d.name, "here": d.is_present(), "title": d.title, "licence": d.licence} for d in discover().values()
    ]
    if as_json:
        typer.echo(json.dumps({"folder": str(data_root()), "datasets": rows}))
    else:
        print_table(f"Data sets in {data_root()} (set ROMAE_DATA to look elsewhere)", rows)


@data_app.command("get")
def data_get(name: Annotated[str, typer.Argument(help="A name from `romae data list`, or uea/<Name>.")]) -> None:
    """Download a data set from its official address; an interrupted download goes on where it stopped.

    Example: romae data get uea/BasicMotions
    """
    from romae.datasets import find

    with _Bars() as report:
        folder = find(name).get(report=report)
    typer.echo(f"{name} is in {folder}")


@data_app.command("check")
def data_check(
    names: Annotated[list[str], typer.Argument(help="Names from `romae data list`.")], as_json: Json = False
) -> None:
    """Read data sets and compare their counts with the published ones.

    Example: romae data check uea/BasicMotions physionet2012
    """
    from romae.datasets import find

    found = []
    for name in names:
        found.append({"name": name, "content": find(name).verify()})
        if not as_json:
            typer.echo(f"{name}: {found[-1]['content']}")
    if as_json:
        typer.echo(json.dumps(found))


Results = Annotated[Path, typer.Option("--out", help="The folder for the result.")]


@app.command("benchmark")
def benchmark(
    names: Annotated[list[str] | None, typer.Argument(help="What to measure; everything by default.")] = None,
    out: Results = Path("results/benchmark"),
    as_json: Json = False,
) -> None:
    """Measure speed and memory on this machine: steps, attached, positions, lengths, attention, loading.

    Example: romae benchmark steps attached
    """
    from romae import benchmark

    path, found = benchmark.run(names or list(benchmark.SECTIONS), out)
    if as_json:
        typer.echo(json.dumps(found))
        return
    for name, section in found.items():
        figures = [{"figure": key, "value": value} for key, value in section.items() if isinstance(value, int | float)]
        print_table(name, [_flat(row) for row in section.get("rows", figures)])
    typer.echo(f"written to {path}")


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """A row for a table: of a spread, its median."""
    shown = {key: value["median"] if isinstance(value, dict) else value for key, value in row.items()}
    return {key.replace("_", " "): value for key, value in shown.items()}


class _Bars:
    """Progress bars for downloads, one per file."""

    def __enter__(self) -> Any:
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        self.progress = Progress(*columns, disable=not sys.stderr.isatty())
        self.tasks: dict[str, Any] = {}
        self.progress.start()
        return self.report

    def report(self, name: str, n_bytes: int, total: int | None) -> None:
        if name not in self.tasks:
            self.tasks[name] = self.progress.add_task(name, total=total)
        self.progress.update(self.tasks[name], completed=n_bytes, total=total)

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

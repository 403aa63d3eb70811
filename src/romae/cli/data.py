"""The commands for public data sets: data list, data get, data check."""

import json
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from romae.cli.options import Quiet
from romae.cli.tables import Json, print_table


def list_datasets(as_json: Json = False) -> None:
    """The data sets that romae can read, and whether they are here.

    Example: romae data list
    """
    from romae.experiments.datasets import discover
    from romae.experiments.datasets.files import data_root

    rows = [
        {"name": d.name, "here": d.is_present(), "title": d.title, "licence": d.licence} for d in discover().values()
    ]
    if as_json:
        typer.echo(json.dumps({"folder": str(data_root()), "datasets": rows}))
    else:
        print_table(f"Data sets in {data_root()} (set ROMAE_DATA to look elsewhere)", rows)


def get(
    name: Annotated[str, typer.Argument(help="A name from `romae data list`, or uea/<Name>.")],
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Download a data set from its official address; an interrupted download goes on where it stopped.

    Example: romae data get uea/BasicMotions
    """
    from romae.experiments.datasets import find

    with _Bars(quiet) as report:
        folder = find(name).get(report=report)
    typer.echo(json.dumps({"name": name, "folder": str(folder)}) if as_json else f"{name} is in {folder}")


def check(
    names: Annotated[list[str], typer.Argument(help="Names from `romae data list`.")], as_json: Json = False
) -> None:
    """Read data sets and compare their counts with the published ones.

    Example: romae data check uea/BasicMotions physionet2012
    """
    from romae.experiments.datasets import find

    checked = []
    for name in names:
        checked.append({"name": name, "content": find(name).verify()})
        if not as_json:
            typer.echo(f"{name}: {checked[-1]['content']}")
    if as_json:
        typer.echo(json.dumps(checked))


COMMANDS: dict[str, Callable[..., None]] = {"list": list_datasets, "get": get, "check": check}


class _Bars:
    """Progress bars for downloads, one per file; none where nobody looks, or where they are not wanted."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet

    def __enter__(self) -> Any:
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        self.progress = Progress(*columns, disable=self.quiet or not sys.stderr.isatty())
        self.tasks: dict[str, Any] = {}
        self.progress.start()
        return self.report

    def report(self, name: str, n_bytes: int, total: int | None) -> None:
        if name not in self.tasks:
            self.tasks[name] = self.progress.add_task(name, total=total)
        self.progress.update(self.tasks[name], completed=n_bytes, total=total)

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

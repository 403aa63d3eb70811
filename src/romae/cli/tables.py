"""Tables of the command line: with lines on a terminal; elsewhere plain text, each row on one line; or else JSON."""

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Force = Annotated[bool, typer.Option("--force", help="Write over what is there already; never over what is read.")]


def print_table(title: str, rows: Sequence[dict[str, Any]]) -> None:
    """Print rows that share their columns. Without a title, elsewhere than on a terminal the columns come first."""
    shown = [{column: _shown(row[column]) for column in rows[0]} for row in rows]
    if not sys.stdout.isatty():
        _print_plain(title, shown)
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(title) or None, title_justify="left")
    for number, column in enumerate(shown[0]):
        # The first column holds names, which are there to be copied.
        table.add_column(escape(column), overflow="fold", no_wrap=number == 0)
    for row in shown:
        table.add_row(*map(escape, row.values()))
    Console().print(table)


def _print_plain(title: str, rows: Sequence[dict[str, str]]) -> None:
    """Columns of plain text, for eyes and for grep."""
    if title:
        typer.echo(title)
    lines = [list(rows[0]), *(list(row.values()) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    for line in lines:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "unknown"
    return f"{value:.3g}" if isinstance(value, float) else str(value)

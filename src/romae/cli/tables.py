"""Tables of the command line: with lines on a terminal; elsewhere plain text, each row on one line; or else JSON."""

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Force = Annotated[bool, typer.Option("--force", help="Write over what is there already; never over what is read.")]

GAP = 3  # letters between columns
WIDEST_WORD = 11  # letters that a column has room for; longer words are broken where a terminal is narrow


def print_table(title: str, rows: Sequence[dict[str, Any]]) -> None:
    """Print rows that share their columns. Without a title, elsewhere than on a terminal the columns come first."""
    shown = [{column: _shown(row[column]) for column in rows[0]} for row in rows]
    if not sys.stdout.isatty():
        _print_plain(title, shown)
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    # Lines break between words where there is room for whole ones, and never in the first column, which holds names.
    words = {column: [word for row in shown for word in f"{column} {row[column]}".split()] for column in shown[0]}
    widths = {column: min(max(map(len, words[column])), WIDEST_WORD) for column in shown[0]}
    first = next(iter(shown[0]))
    widths[first] = max(len(row[first]) for row in shown)
    has_room = sum(widths.values()) + GAP * len(widths) <= console.width
    table = Table(title=escape(title) or None, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column, width in widths.items():
        table.add_column(
            escape(column), overflow="fold", no_wrap=column == first, min_width=width if has_room else None
        )
    for row in shown:
        table.add_row(*map(escape, row.values()))
    console.print(table)


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

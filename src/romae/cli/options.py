"""What commands for own tables have in common: the columns of the table, and settings from files and options."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

# Settings of a command, which have columns; their classes are imported where they are used.
C = TypeVar("C", bound=Any)


def existing(path: Path | None) -> Path | None:
    """Refuse a file that is not there before anything is imported that takes seconds."""
    if path is not None and not path.exists():
        raise ValueError(f"there is no file {path}")
    return path


Data = Annotated[
    Path,
    typer.Argument(help="A table with one row per measurement: .csv, .csv.gz, .parquet or .arrow.", callback=existing),
]
Id = Annotated[str | None, typer.Option("--id", help="The column that says which rows belong together.")]
Time = Annotated[str | None, typer.Option("--time", help="The column of times: numbers or dates.")]
Channel = Annotated[
    str | None, typer.Option("--channel", help="The column that says what was measured, such as a band or a sensor.")
]
Value = Annotated[list[str] | None, typer.Option("--value", help="A column of values; give it again for further ones.")]
Error = Annotated[
    list[str] | None,
    typer.Option("--error", help="The column of measurement errors of a column of values; repeatable."),
]
Position = Annotated[
    list[str] | None, typer.Option("--position", help="A further column of positions, such as a depth; repeatable.")
]
Static = Annotated[
    str | None,
    typer.Option("--static", help="Columns of facts that hold for an id as a whole, with commas: age,sex."),
]
Device = Annotated[
    str | None, typer.Option("--device", help="auto, cpu, cuda, or one GPU of several: cuda:1; by default auto.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress; what was written is said all the same.")]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="Settings in a .toml or .json file.")]


def columns_named(
    id: str | None,
    time: str | None,
    channel: str | None,
    value: list[str] | None,
    position: list[str] | None,
    static: str | None,
    error: list[str] | None,
) -> dict[str, Any]:
    """The columns that were named, each under its name in `Columns`."""
    facts = None if static is None else names_in(static)
    return options_given(id=id, time=time, channel=channel, values=value, positions=position, static=facts, error=error)


def names_in(text: str) -> list[str]:
    """Names that are written with commas between them."""
    return [name.strip() for name in text.split(",") if name.strip()]


def options_given(**options: Any) -> dict[str, Any]:
    """The options that were used."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in options.items() if value}


def configured(
    config_type: type[C],
    file: Path | None,
    columns: dict[str, Any],
    settings: list[str] | None,
    before: Path | None = None,
    **options: Any,
) -> C:
    """The settings of a file, or else of the run to resume, then the options, then what --set says."""
    from romae.config import load_config, override
    from romae.training.tables import read_job

    if file is not None:
        config = load_config(config_type, file)
    else:
        config = config_type() if before is None else read_job(config_type, before)
    config = replace(config, columns=replace(config.columns, **columns), **options)
    return override(config, *(settings or ()))

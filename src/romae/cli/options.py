"""What commands for own tables have in common: the columns of the table, and settings from files and options."""

import inspect
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperGroup

from romae.config import near_miss
from romae.files import readable_path

# Settings of a command, which have columns; their classes are imported where they are used.
C = TypeVar("C", bound=Any)


# Parameters that name a file or folder to read, and those that name a model, which may also be on the Hub.
READ = {"data": "file", "queries": "file", "config_file": "file", "run": "folder of a run", "directory": "folder"}
MODELS = ("model", "named_model", "pretrained")

MODELS_HELP = (
    "The folder of a run, of a checkpoint or of a saved estimator, or a name: of a model that comes with the library, "
    "such as romae/icu, or on the Hugging Face Hub."
)


class Commands(TyperGroup):
    """Commands which refuse files that are not there at once.

    Before options are read in full, which takes some 0.2 s, and before torch is imported, which takes seconds.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Look for the files that a command is to read, then read all options."""
        place = next((i for i, word in enumerate(args) if not word.startswith("-")), len(args))
        command: Any = self.commands.get(args[place]) if place < len(args) else None
        if command is not None and not ctx.resilient_parsing and not isinstance(command, TyperGroup):
            inner = command.context_class(command, info_name=args[place], parent=ctx)
            given, _, _ = command.make_parser(inner).parse_args(args=args[place + 1 :])
            for name in (*READ, *MODELS):
                if isinstance(text := given.get(name), str) and "help" not in given:
                    require_there(text, READ.get(name))
        return super().parse_args(ctx, args)


def require_there(text: str, what: str | None) -> None:
    """Refuse the name of a file or folder that is not there; a model, which is nothing else, may be on the Hub."""
    place = Path(os.path.expanduser(text))
    if readable_path(place).exists():
        return
    beside = [entry.name for entry in place.parent.iterdir()] if place.parent.is_dir() else []
    hint = near_miss(place.name, (name for name in beside if Path(name).suffix == place.suffix), likeness=0.75)
    if what is not None:
        raise ValueError(f"there is no {what} {text}{hint}")
    is_file = place.suffix != "" and place.parent.is_dir()
    if re.fullmatch(r"\w[\w.-]*/[\w.-]+", text) is None or is_file:
        raise ValueError(
            f"there is no checkpoint folder {text}; give the folder of a run, of a checkpoint or of a saved estimator, "
            f"or the name of a model on the Hub, such as someone/light-curves{hint}"
        )


def help_of(command: Callable[..., None]) -> str:
    """The docstring of a command with each paragraph on one line, which a terminal then breaks where it ends."""
    paragraphs = (inspect.getdoc(command) or "").split("\n\n")
    return "\n\n".join(text if text.startswith("Example: ") else " ".join(text.split()) for text in paragraphs)


Data = Annotated[
    Path,
    typer.Argument(help="A table with one row per measurement: .csv, .csv.gz, .parquet or .arrow."),
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

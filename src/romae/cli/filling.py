"""The commands that need no model: fill a table, and forecast it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from romae.cli.answers import (
    InferenceSettings,
    Interval,
    OnErrorOption,
    Quantiles,
    ResumeAnswers,
    Table,
    answer_in_parts,
    how_sure,
)
from romae.cli.options import (
    MODELS_HELP,
    Channel,
    ConfigFile,
    Data,
    Device,
    Error,
    Id,
    Position,
    Quiet,
    Static,
    Time,
    Value,
    columns_named,
    configured,
    names_in,
    options_given,
)
from romae.cli.tables import Force, Json, print_table
from romae.files import require_free

if TYPE_CHECKING:
    from romae.inference.filling import Answered
    from romae.inference.self_check import HeldOutScore, Holes

AnyModel = Annotated[
    str | None,
    typer.Option(
        "--model",
        help=f"{MODELS_HELP} By default the model that needs no training.",
    ),
]
PageOption = Annotated[
    Path | None,
    typer.Option("--page", help="A page to write as well, .html: curves with bands of 50 and 90 %, and the scores."),
]
ChannelsOption = Annotated[
    str | None,
    typer.Option("--channels", help="The channels to answer for, by name or number from 0 on, with commas: HR,Temp."),
]


def fill(
    data: Data,
    out: Table,
    id: Id = None,
    time: Time = None,
    channel: Channel = None,
    value: Value = None,
    at: Annotated[
        str | None, typer.Option(help="An even grid of times start:stop:n to answer for, instead of empty cells.")
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(
            help="The step of a grid from the first to the last time of each id, instead: a number, or 1h where times "
            "are dates."
        ),
    ] = None,
    channels: ChannelsOption = None,
    interval: Annotated[
        float | None, typer.Option("--interval", help="The probability of the interval of each value; 0.9 by default.")
    ] = None,
    page: PageOption = None,
    model: AnyModel = None,
    error: Error = None,
    position: Position = None,
    static: Static = None,
    device: Device = None,
    config_file: ConfigFile = None,
    settings: InferenceSettings = None,
    force: Force = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Fill the empty cells of a table, each with an interval; no model is needed, and nothing is trained.

    All rows and columns come back in their order. Beside each column of values, such as flux, flux_filled says where it
    was empty, flux_lower and flux_upper where the value lies. Without a column of ids (--id, or one called id) the
    table is one series; without --value every column of numbers is filled. What is printed are the errors at values
    that are hidden for it, beside those of linear interpolation and of the last value.

    Example: romae fill weather.csv --id station --time date --out filled.csv --page filled.html

    Example: romae fill curves.csv --id star --time mjd --channel band --value flux --every 0.5 --out grid.csv
    """
    from romae.inference import filling
    from romae.inference import tables as inference_tables

    inference_tables.require_output(out, data)
    require_free(out, force=force)
    write_page = _page_writer(page, data, out, force)
    columns = columns_named(id, time, channel, value, position, static, error)
    options = options_given(device=device, channels=_named(channels)) | how_sure(interval, None)
    config = configured(filling.FillConfig, config_file, columns, settings, **options)
    # What a user has written comes back as it was written; else it is escaped for spreadsheets.
    verbatim = filling.is_csv(data) and filling.is_csv(out) and at is None and every is None
    answered = filling.fill_table(config, data, model, at=at, every=every, verbatim=verbatim)
    score = _score(answered, "scattered", config.interval)
    inference_tables.write_table(answered.table, out, escape=config.escape and not verbatim)
    if write_page is not None:
        write_page(answered, score, title=f"{data.name}, filled")
    what = ("value", "at even times") if at is not None or every is not None else ("empty cell", "filled")
    _say(answered, score, out, page, what, config.interval, as_json)


def forecast(
    data: Data,
    out: Table,
    until: Annotated[
        str | None,
        typer.Option(
            help="How far: a moment in the form of the times of the table, such as 48 or 2024-04-01, or a length of "
            "time after the last row of each id, +24 or +24h."
        ),
    ] = None,
    length: Annotated[
        str | None,
        typer.Option("--for", help="How far, as a length of time after the last row of each id: 24, or 24h for dates."),
    ] = None,
    model: AnyModel = None,
    step: Annotated[
        str | None,
        typer.Option(help="The time between one forecast and the next; by default the median step of each id."),
    ] = None,
    channels: Annotated[
        str | None,
        typer.Option(
            help="The channels to forecast, by name or number from 0 on, with commas: HR,Temp. By default all but "
            "those that are known ahead."
        ),
    ] = None,
    interval: Interval = None,
    quantiles: Quantiles = None,
    page: PageOption = None,
    id: Id = None,
    time: Time = None,
    channel: Channel = None,
    value: Value = None,
    error: Error = None,
    position: Position = None,
    static: Static = None,
    on_error: OnErrorOption = None,
    device: Device = None,
    config_file: ConfigFile = None,
    settings: InferenceSettings = None,
    resume: ResumeAnswers = False,
    force: Force = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Forecast each id of a table after its last row.

    No model is needed: without --model there is one that was not trained on any data, with the median and an interval
    of 90 % for each number, and the errors of such forecasts at the ends of the series are printed beside those of the
    last value and of a trend. Better for many alike series is a model of your own: romae pretrain --horizon. Rows of
    channels that are known ahead (--known) then stand in the same table, at later times, and a large table is answered
    in parts, as by romae predict.

    Example: romae forecast weather.csv --id station --time date --for 24h --out ahead.csv --page ahead.html

    Example: romae forecast stations.parquet --model run --until +30 --out ahead.csv
    """
    from romae.inference import tables as inference_tables
    from romae.inference.ahead import ahead_table
    from romae.inference.predictor import Predictor
    from romae.inference.self_check import LEVEL
    from romae.inference.zero import is_in_own_units

    inference_tables.require_output(out, data)
    require_free(out, force=force)
    if (until is None) == (length is None):
        raise ValueError("say how far to forecast, with --until 2024-04-01 or with --for 24h, one of them")
    until = until if length is None else f"+{length.strip().removeprefix('+')}"
    columns = columns_named(id, time, channel, value, position, static, error)
    options = options_given(device=device, on_error=on_error, channels=_named(channels), step=step) | how_sure(
        interval, quantiles
    )
    config = configured(inference_tables.ForecastConfig, config_file, columns, settings, **options)
    predictor = None if model is None else Predictor(model, "forecast", until=until, config=config)
    if predictor is not None and not is_in_own_units(predictor.task):
        if page is not None:
            raise ValueError("--page is for forecasts without a model of your own; romae page draws what yours does")
        answer_in_parts(predictor, data, out, resume=resume, force=force, quiet=quiet, as_json=as_json)
        return
    if resume or config.on_error == "skip":
        raise ValueError("--resume and --on-error skip are for forecasts of a model of your own, with --model")
    write_page = _page_writer(page, data, out, force)
    answered = ahead_table(config, data, None if predictor is None else predictor.task, until=until)
    level = LEVEL if config.interval is None else config.interval
    score = _score(answered, "ahead", level)
    inference_tables.write_table(answered.table, out, escape=config.escape)
    if write_page is not None:
        write_page(answered, score, title=f"{data.name}, forecast", is_forecast=True)
    _say(answered, score, out, page, ("forecast", ""), level, as_json)


COMMANDS: dict[str, Callable[..., None]] = {"fill": fill, "forecast": forecast}


def _named(channels: str | None) -> list[str] | None:
    """The channels that are named."""
    names = None if channels is None else names_in(channels)
    if names == []:
        raise ValueError(f"--channels {channels!r} names no channel; write them as HR,Temp, or leave it out for all")
    return names


def _page_writer(place: Path | None, data: Path, out: Path, force: bool) -> "Callable[..., Path] | None":
    """What writes the page that is asked for; what would not work is refused before anything is computed."""
    if place is None:
        return None
    from functools import partial

    from romae.pages import filled_page
    from romae.pages.page import is_page

    if place.suffix not in (".html", ".htm"):
        raise ValueError(f"--page {place} is no name of a page; it ends in .html")
    require_free(place, force=force, inputs=[data, out], is_ours=is_page)
    return partial(filled_page.write, place)


def _score(answered: "Answered", holes: "Holes", level: float) -> "HeldOutScore | None":
    from romae.inference.self_check import held_out_score

    return held_out_score(answered.ask, answered.samples, holes=holes, level=level)


def _say(
    answered: "Answered",
    score: "HeldOutScore | None",
    out: Path,
    page: Path | None,
    what: tuple[str, str],
    level: float,
    as_json: bool,
) -> None:
    """Say what was written, how far off it is, and what is still open."""
    names = list(map(str, answered.table.columns))
    if as_json:
        summary: dict[str, Any] = {
            "out": str(out),
            "rows": len(answered.table),
            "columns": names,
            "answers": answered.n_filled,
            "notes": list(answered.notes),
            "score": None if score is None else score.to_dict(),
        }
        typer.echo(json.dumps(summary | ({} if page is None else {"page": str(page)})))
        return
    is_told = any(name.endswith("_lower") for name in names)
    intervals = f", each with an interval of {level:.0%}" if is_told else ""
    noun, did = what
    number = f"{_counted(answered.n_filled, noun)} {did}".rstrip()
    typer.echo(f"{out}: {_counted(len(answered.table), 'row')}, {number}{intervals}")
    for note in answered.notes:
        typer.echo(note)
    if score is None:
        typer.echo("there are too few values to hide some of them, so that there is no score")
    else:
        print_table(score.title(), score.rows())
        typer.echo(score.verdict())
        if answered.is_trained:
            typer.echo("if the model was trained on these ids, its errors are optimistic")
    if page is not None:
        typer.echo(f"{page}: curves with bands")


def _counted(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"

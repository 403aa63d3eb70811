"""The commands that ask a trained model about a table: predictions, vectors, curves, forecasts, anomalies and more."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

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
from romae.cli.runs import CTRL_C, require_new
from romae.cli.tables import Force, Json, print_table
from romae.files import require_free

if TYPE_CHECKING:
    from romae.data.skipping import Skipped
    from romae.inference.predictor import Predictor
    from romae.inference.reliability import Reliability
    from romae.inference.tables import InferenceConfig

InferenceSettings = Annotated[
    list[str] | None, typer.Option("--set", help="One setting, as key=value: device=cpu; repeatable.")
]
Model = Annotated[str, typer.Option("--model", help=MODELS_HELP)]
Interval = Annotated[
    float | None,
    typer.Option(
        "--interval",
        help="The probability of a central interval to write beside each number, such as 0.9, and the standard "
        "deviation; for models with a likelihood.",
    ),
]
Quantiles = Annotated[
    str | None,
    typer.Option(
        "--quantiles",
        help="Levels of quantiles to write beside each number, with commas: 0.1,0.5,0.9; for models with a likelihood.",
    ),
]
OnErrorOption = Annotated[
    str | None,
    typer.Option(
        "--on-error",
        help="What to do with ids that cannot be read: raise, or skip them and list them in a second file.",
    ),
]
ResumeAnswers = Annotated[
    bool, typer.Option("--resume", help="Go on where a run that was stopped has left off; its parts are in OUT.parts.")
]
Table = Annotated[Path, typer.Option("--out", help="The table to write: .csv, .csv.gz or .parquet.")]


def predict(
    data: Data,
    model: Model,
    out: Table,
    interval: Interval = None,
    quantiles: Quantiles = None,
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
    """Predict the label of each id: one row with the class and all probabilities, several labels, or the number.

    A large table is read, answered and written in parts, in bounded memory; it is fastest where the rows of an id lie
    together.

    Example: romae predict new.parquet --model classifier --out predictions.csv
    """
    from romae.checkpoints.native import ESTIMATOR_FILES
    from romae.inference import tables as inference_tables
    from romae.inference.predictor import Predictor

    inference_tables.require_output(out, data)
    require_free(out, force=force)
    columns = columns_named(id, time, channel, value, position, static, error)
    options = options_given(device=device, on_error=on_error) | how_sure(interval, quantiles)
    config = configured(inference_tables.PredictConfig, config_file, columns, settings, **options)
    if Path(model, ESTIMATOR_FILES[0]).is_file():
        from romae.estimators.tables import EstimatorPredictor

        predictor: Predictor = EstimatorPredictor(model, config=config)
    else:
        predictor = Predictor(model, "predict", config=config)
    answer_in_parts(predictor, data, out, resume=resume, force=force, quiet=quiet, as_json=as_json)


def embed(
    data: Data,
    model: Model,
    out: Table,
    pooling: Annotated[
        str | None,
        typer.Option(
            help="What becomes the vector: model, as wide as the encoder, or layers, statistics of several layers, for "
            "a linear model or trees."
        ),
    ] = None,
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
    """Turn each id into a vector, for search, clustering or a model of your own: one row per id.

    Example: romae embed curves.parquet --model run --pooling layers --out embeddings.parquet
    """
    from romae.inference import tables as inference_tables
    from romae.inference.predictor import Predictor

    inference_tables.require_output(out, data)
    require_free(out, force=force)
    columns = columns_named(id, time, channel, value, position, static, error)
    options = options_given(device=device, on_error=on_error, pooling=pooling)
    config = configured(inference_tables.EmbedConfig, config_file, columns, settings, **options)
    answer_in_parts(
        Predictor(model, "embed", config=config), data, out, resume=resume, force=force, quiet=quiet, as_json=as_json
    )


def interpolate(
    data: Data,
    model: Model,
    out: Table,
    queries: Annotated[
        Path | None, typer.Option(help="A table of what to ask: id, time and, where the data have one, channel.")
    ] = None,
    at: Annotated[
        str | None, typer.Option(help="An even grid start:stop:n for every id and channel, such as 0:10:101.")
    ] = None,
    channels: Annotated[
        str | None,
        typer.Option(
            help="The channels to ask for, by name or number from 0 on, with commas: HR,Temp. All by default."
        ),
    ] = None,
    interval: Interval = None,
    quantiles: Quantiles = None,
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
    """Ask a pre-trained model for values at any time: at each row of a table of queries, or on a grid.

    Of several columns of values, --channels names those to write; else it names the channels that the grid is for.

    Example: romae interpolate curves.parquet --model run --at 0:10:101 --channels g,r --out filled.csv
    """
    from romae.inference import tables as inference_tables
    from romae.inference.predictor import Predictor

    inference_tables.require_output(out, data, queries)
    require_free(out, force=force)
    columns = columns_named(id, time, channel, value, position, static, error)
    names = None if channels is None else names_in(channels)
    if names == []:
        raise ValueError(f"--channels {channels!r} names no channel; write them as HR,Temp, or leave it out for all")
    options = options_given(device=device, on_error=on_error, channels=names) | how_sure(interval, quantiles)
    config = configured(inference_tables.InterpolateConfig, config_file, columns, settings, **options)
    if queries is None and at is not None:
        predictor = Predictor(model, "interpolate", at=at, config=config)
        answer_in_parts(predictor, data, out, resume=resume, force=force, quiet=quiet, as_json=as_json)
        return
    if resume:
        raise ValueError("--resume is for a grid (--at): a table of queries is answered at once, from the beginning")
    skipped: list[Skipped] = []
    place = _place_of_skipped(config, out, force, data, queries)
    table = inference_tables.interpolate_table(config, data, model, queries=queries, at=at, skipped=skipped)
    inference_tables.write_table(table, out, escape=config.escape)
    _say_answers(out, len(table), list(table.columns), skipped, place, config, as_json)


def anomaly(
    data: Data,
    model: Model,
    out: Table,
    level: Annotated[
        float | None, typer.Option(help="The probability of the interval beside each measurement; 0.9 by default.")
    ] = None,
    folds: Annotated[
        int | None,
        typer.Option(
            help="In how many groups the measurements of an id are hidden from the model, 10 by default; 0 hides each "
            "alone, which takes as many passes as there are."
        ),
    ] = None,
    per: Annotated[
        str | None, typer.Option(help="What a row is for: measurement, the default, or sample, which is an id.")
    ] = None,
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
    """Score how surprising each measurement is to a model that sees the others: with an interval and a p-value.

    The model is a pre-trained one with a likelihood. Scores are -log10 of p-values: 2 is one in a hundred.

    Example: romae anomaly curves.parquet --model run --level 0.99 --out scores.parquet
    """
    from romae.inference import tables as inference_tables
    from romae.inference.predictor import Predictor

    inference_tables.require_output(out, data)
    require_free(out, force=force)
    columns = columns_named(id, time, channel, value, position, static, error)
    numbers = {name: number for name, number in (("level", level), ("folds", folds)) if number is not None}
    options = options_given(device=device, on_error=on_error, per=per) | numbers  # 0 is a number, too
    config = configured(inference_tables.AnomalyConfig, config_file, columns, settings, **options)
    answer_in_parts(
        Predictor(model, "anomaly", config=config), data, out, resume=resume, force=force, quiet=quiet, as_json=as_json
    )


def explain(
    data: Data,
    model: Model,
    out: Table,
    target: Annotated[
        str | None,
        typer.Option(help="The class to explain, by default the most probable one of each id; or one of many numbers."),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(help="integrated-gradients, the default, whose contributions add up, or leave-out."),
    ] = None,
    per: Annotated[
        str | None, typer.Option(help="What a row is for: measurement, the default, or channel, one of each id.")
    ] = None,
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
    """Say what each measurement contributes to the label that a model predicts for its id.

    Contributions to a class are to the logarithm of its odds (--set units=probability: to its probability), those to a
    number are in its own units.

    Example: romae explain new.parquet --model classifier --target RRL --out contributions.parquet
    """
    from romae.inference import tables as inference_tables
    from romae.inference.predictor import Predictor

    inference_tables.require_output(out, data)
    require_free(out, force=force)
    columns = columns_named(id, time, channel, value, position, static, error)
    options = options_given(device=device, on_error=on_error, target=target, method=method, per=per)
    config = configured(inference_tables.ExplainConfig, config_file, columns, settings, **options)
    answer_in_parts(
        Predictor(model, "explain", config=config), data, out, resume=resume, force=force, quiet=quiet, as_json=as_json
    )


def calibrate(
    data: Data,
    model: Model,
    out: Annotated[Path, typer.Option("--out", help="The folder for the calibrated model.")],
    label: Annotated[
        str | None, typer.Option(help="The column with the label of each id; by default that of training.")
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            help="What has intervals of its own: global, channel, distance to the nearest observation, or auto, which "
            "is channel where there are 100 ids."
        ),
    ] = None,
    id: Id = None,
    time: Time = None,
    channel: Channel = None,
    value: Value = None,
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
    """Make probabilities mean what they say, by a table of ids that the model was not trained on.

    A model with a likelihood gets conformal intervals, a classifier a temperature and a bias for each class or label.
    What is printed is measured on each fifth of the ids under a calibration by the others. The model that is read stays
    as it is.

    Example: romae calibrate new.parquet --model run --out calibrated
    """
    from romae.inference import calibrated_models
    from romae.inference.reliability import NumberReliability

    if out.resolve() in [Path(model, name).resolve() for name in (".", "best", "last")]:
        raise ValueError(f"{out} is the model that is read; name another folder for --out")
    require_new(out, force)
    columns = columns_named(id, time, channel, value, position, static, error)
    options: dict[str, Any] = {
        name: option for name, option in (("label", label), ("by", by), ("device", device)) if option is not None
    }
    config = configured(calibrated_models.CalibrateConfig, config_file, columns, settings, **options)
    calibrated = calibrated_models.calibrate_table(config, data, model)
    calibrated.task.save(out)
    before, after = calibrated.before, calibrated.after
    if as_json:
        summary = {"model": str(out), "ids": calibrated.n, "before": asdict(before), "after": asdict(after)}
        typer.echo(json.dumps(summary))
        return
    print_table(
        f"{calibrated.n:,} ids, each judged by a calibration that others made", _reliability_rows(before, after)
    )
    if isinstance(before, NumberReliability) and isinstance(after, NumberReliability):
        typer.echo(f"mean CRPS {before.crps:.4g} before, {after.crps:.4g} after")
    typer.echo(f"{out}: {type(calibrated.task).__name__}, calibrated on {calibrated.n:,} ids")


COMMANDS: dict[str, Callable[..., None]] = {
    "predict": predict,
    "embed": embed,
    "interpolate": interpolate,
    "anomaly": anomaly,
    "explain": explain,
    "calibrate": calibrate,
}


def how_sure(interval: float | None, quantiles: str | None) -> dict[str, Any]:
    """What was asked beside the mean; 0 is no level, and refused where settings are read."""
    options: dict[str, Any] = {} if interval is None else {"interval": interval}
    if quantiles is not None:
        try:
            options["quantiles"] = tuple(map(float, names_in(quantiles)))
        except ValueError:
            raise ValueError(f"--quantiles takes levels with commas, such as 0.1,0.5,0.9, not {quantiles!r}") from None
    return options


def answer_in_parts(
    predictor: "Predictor", data: Path, out: Path, *, resume: bool, force: bool, quiet: bool, as_json: bool
) -> None:
    """Answer for a table in parts, list beside the answers what was skipped where that is allowed, and say so."""
    from romae.inference.streaming import answer_file

    place = _place_of_skipped(predictor.config, out, force or resume, data)
    try:
        done = answer_file(predictor, data, out, resume=resume, force=force, quiet=quiet)
    except KeyboardInterrupt:
        folder = out.with_name(f"{out.name}.parts")
        kept = f"; {folder} has what was done, and --resume goes on with it" if folder.exists() else ""
        typer.echo(f"romae: stopped{kept}", err=True)
        raise typer.Exit(CTRL_C) from None
    _say_answers(out, done.n_rows, done.columns, done.skipped, place, predictor.config, as_json)


def _place_of_skipped(config: "InferenceConfig", out: Path, force: bool, *inputs: Path | None) -> Path | None:
    """Where the list of what is skipped goes, if anything may be; asked before anything is computed."""
    from romae.inference.tables import skipped_path

    if config.on_error == "raise":
        return None
    place = skipped_path(out)
    require_free(place, force=force, inputs=[path for path in inputs if path is not None])
    return place


def _say_answers(
    out: Path,
    n_rows: int,
    names: list[str],
    skipped: "list[Skipped]",
    place: Path | None,
    config: "InferenceConfig",
    as_json: bool,
) -> None:
    """List what was skipped, and say what was written."""
    from romae.inference.tables import write_skipped

    if place is not None:
        write_skipped(skipped, place, escape=config.escape)
    if as_json:
        summary: dict[str, Any] = {"out": str(out), "rows": n_rows, "columns": names}
        if place is not None:
            summary |= {"skipped": len(skipped), "skipped_out": str(place)}
        typer.echo(json.dumps(summary))
        return
    shown = ", ".join(names[:6]) + (f", … ({len(names)} columns)" if len(names) > 6 else "")
    typer.echo(f"{out}: {n_rows:,} rows of {shown}")
    if place is not None:
        typer.echo(f"{place}: {len(skipped):,} ids that were skipped")


def _reliability_rows(before: "Reliability", after: "Reliability") -> list[dict[str, Any]]:
    from romae.inference.reliability import ClassReliability, NumberReliability

    rows: list[dict[str, Any]] = []
    if isinstance(before, ClassReliability) and isinstance(after, ClassReliability):
        for name, value, other in (
            ("calibration error", before.error, after.error),
            ("log loss", before.log_loss, after.log_loss),
        ):
            rows.append({"": name, "before": value, "after": other})
        return rows
    assert isinstance(before, NumberReliability) and isinstance(after, NumberReliability)
    both = {"all": {"coverage": before.coverage, "width": before.width}} | before.parts
    now = {"all": {"coverage": after.coverage, "width": after.width}} | after.parts
    for name, part in both.items():
        for i, level in enumerate(before.levels):
            if name == "all" or (level == 0.9 and len(both) > 2):
                rows.append(
                    {
                        "values": name,
                        "interval": f"{level:.0%}",
                        "coverage before": part["coverage"][i],
                        "coverage after": now[name]["coverage"][i],
                        "width before": part["width"][i],
                        "width after": now[name]["width"][i],
                    }
                )
    return rows

"""The commands for people's own tables, from pretrain and finetune to what a trained model is asked."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from romae.cli.runs import CTRL_C, is_first_rank, require_new, resumable
from romae.cli.tables import Force, Json, print_table
from romae.files import require_free

if TYPE_CHECKING:
    from romae.data.skipping import Skipped
    from romae.inference.calibrated_models import CalibrateConfig
    from romae.inference.predictor import Predictor
    from romae.inference.reliability import Reliability
    from romae.inference.tables import (
        AnomalyConfig,
        EmbedConfig,
        ExplainConfig,
        ForecastConfig,
        InferenceConfig,
        InterpolateConfig,
        PredictConfig,
    )
    from romae.tokens.ladder import Ladder
    from romae.training.tables import FinetuneConfig, PretrainConfig, Trained

    C = TypeVar(
        "C",
        PretrainConfig,
        FinetuneConfig,
        PredictConfig,
        EmbedConfig,
        InterpolateConfig,
        AnomalyConfig,
        ExplainConfig,
        CalibrateConfig,
        ForecastConfig,
    )
    J = TypeVar("J", PretrainConfig, FinetuneConfig)

Data = Annotated[Path, typer.Argument(help="A table with one row per measurement: .csv, .csv.gz, .parquet or .arrow.")]
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
ConfigFile = Annotated[Path | None, typer.Option("--config", help="Settings in a .toml or .json file.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="One setting, as key=value: train.epochs=20; repeatable.")
]
InferenceSettings = Annotated[
    list[str] | None, typer.Option("--set", help="One setting, as key=value: device=cpu; repeatable.")
]
Folder = Annotated[Path, typer.Option("--out", help="The folder of the run.")]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on where the run in --out stopped, with the settings it was started with.")
]
Model = Annotated[
    str, typer.Option("--model", help="The folder of a finished run, a checkpoint, or a name on the Hugging Face Hub.")
]
Ladders = Annotated[
    list[str] | None,
    typer.Option(
        "--ladders",
        help="The shortest and the longest wavelength of times, in their unit, such as 0.1:1000; given again, those of "
        "further axes. What is not given follows from the gaps and spans of the data.",
    ),
]
Phase = Annotated[
    bool,
    typer.Option(
        "--phase",
        help="For periodic signals: find the period of each id, and make its phase one more axis. The model then does "
        "the same wherever it is used. --set phase.shortest=0.1 and the like say more.",
    ),
]
TestShare = Annotated[
    float | None,
    typer.Option(
        "--test-share",
        help="The share of ids to keep out of training and of validation and to score the model on, such as 0.2; "
        "stratified by class. By default none, so that all ids go into the model: the scores are then those of the "
        "validation ids, which chose the weights and so flatter a little.",
    ),
]
MaskingOption = Annotated[
    str | None,
    typer.Option(
        "--masking",
        help="What to hide: tokens, rows, channels, spans, future (what follows a random cut, for forecasts), or mixed "
        "(tokens or the future, drawn for each id). By default tokens; --set masking.… says more.",
    ),
]
Horizon = Annotated[
    str | None,
    typer.Option(
        "--horizon",
        help="For forecasts, how far ahead to learn to look: a number in the unit of the times, or a duration such as "
        "24h where they are dates. Implies --masking future.",
    ),
]
Known = Annotated[
    str | None,
    typer.Option("--known", help="For forecasts, the channels that are known ahead, with commas: holiday,tide."),
]
LikelihoodOption = Annotated[
    str | None,
    typer.Option(
        "--likelihood",
        help="The distribution to learn of numbers, for intervals: normal, student, mixture or quantiles. By default "
        "none, and the mean alone is learned.",
    ),
]
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


def pretrain(
    data: Data,
    out: Folder,
    id: Id = None,
    time: Time = None,
    channel: Channel = None,
    value: Value = None,
    error: Error = None,
    position: Position = None,
    ladders: Ladders = None,
    masking: MaskingOption = None,
    horizon: Horizon = None,
    known: Known = None,
    likelihood: LikelihoodOption = None,
    phase: Phase = False,
    static: Static = None,
    test_share: TestShare = None,
    config_file: ConfigFile = None,
    settings: Settings = None,
    resume: Resume = False,
    as_json: Json = False,
) -> None:
    """Learn from a table without labels: hide some rows, predict them from the others.

    It ends with the R² of hidden values on ids that were kept out, in each channel, beside linear interpolation or, for
    forecasts (--horizon), beside the last value and the linear trend. The settings in use are written to job.json in
    the folder of the run; --config job.json makes the same run again. The scores are in metrics.json, the ids of
    --test-share in test_ids.json.

    Example: romae pretrain curves.parquet --id star --time mjd --channel band --value flux --out run
    """
    from romae.config import override
    from romae.data.phase import Phase as PhaseRule
    from romae.training import tables as training_tables

    _require_place(out, config_file, None, resume)
    columns = _columns(id, time, channel, value, position, static, error)
    before = _job(out) if resume else None
    options = _given(likelihood=_likelihood(likelihood))
    config = _configured(training_tables.PretrainConfig, config_file, columns, None, before, **options)
    config = _with_test(config, test_share)
    config = _with_masking(config, masking, horizon, known)
    if ladders:
        config = replace(config, model=replace(config.model, ladders=tuple(map(_ladder, ladders))))
    if phase and config.phase is None:
        config = replace(config, phase=PhaseRule())
    config = override(config, *(settings or ()))
    with resumable(out, "pretrain", data, "--out", out):
        _finish(training_tables.pretrain(config, data, out, resume=resume), config.train.device, as_json)


def finetune(
    data: Data,
    pretrained: Annotated[str, typer.Option(help="The folder of a finished run, a checkpoint, or a name on the Hub.")],
    out: Folder,
    label: Annotated[
        str | None, typer.Option(help="The column to learn, one label per id: text and integers are classes.")
    ] = None,
    id: Id = None,
    time: Time = None,
    channel: Channel = None,
    value: Value = None,
    error: Error = None,
    position: Position = None,
    likelihood: LikelihoodOption = None,
    static: Static = None,
    test_share: TestShare = None,
    config_file: ConfigFile = None,
    settings: Settings = None,
    resume: Resume = False,
    as_json: Json = False,
) -> None:
    """Teach a pre-trained model the label of each id: a class, or a number.

    Columns are called as in pre-training unless you name others. It ends with accuracy, macro F1 and AUROC, or with R²
    and RMSE, on ids that were kept out; they are in metrics.json too, and the ids of --test-share in test_ids.json.

    Example: romae finetune labelled.parquet --pretrained run --label kind --out classifier --set frozen=true
    """
    from romae.config import override
    from romae.training import tables as training_tables

    _require_place(out, config_file, pretrained, resume)
    columns = _columns(id, time, channel, value, position, static, error)
    before = _job(out) if resume else None
    options = _given(label=label, likelihood=_likelihood(likelihood))
    config = _configured(training_tables.FinetuneConfig, config_file, columns, None, before, **options)
    config = override(_with_test(config, test_share), *(settings or ()))
    with resumable(out, "finetune", data, "--pretrained", pretrained, "--out", out):
        trained = training_tables.finetune(config, data, pretrained, out, resume=resume)
        _finish(trained, config.train.device, as_json)


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
    config_file: ConfigFile = None,
    settings: InferenceSettings = None,
    resume: ResumeAnswers = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Predict the label of each id: one row with the class and all probabilities, or with the number.

    A large table is read, answered and written in parts, in bounded memory; it is fastest where the rows of an id lie
    together.

    Example: romae predict new.parquet --model classifier --out predictions.csv
    """
    from romae.inference import tables as inference_tables
    from romae.inference.predictor import Predictor

    inference_tables.require_output(out, data)
    require_free(out, force=force)
    columns = _columns(id, time, channel, value, position, static, error)
    options = _given(on_error=on_error) | _how_sure(interval, quantiles)
    config = _configured(inference_tables.PredictConfig, config_file, columns, settings, **options)
    _answer(Predictor(model, "predict", config=config), data, out, resume=resume, force=force, as_json=as_json)


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
    config_file: ConfigFile = None,
    settings: InferenceSettings = None,
    resume: ResumeAnswers = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Turn each id into a vector, for search, clustering or a model of your own: one row per id.

    Example: romae embed curves.parquet --model run --pooling layers --out embeddings.parquet
    """
    from romae.inference import tables as inference_tables
    from romae.inference.predictor import Predictor

    inference_tables.require_output(out, data)
    require_free(out, force=force)
    columns = _columns(id, time, channel, value, position, static, error)
    given = _given(on_error=on_error, pooling=pooling)
    config = _configured(inference_tables.EmbedConfig, config_file, columns, settings, **given)
    _answer(Predictor(model, "embed", config=config), data, out, resume=resume, force=force, as_json=as_json)


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
    config_file: ConfigFile = None,
    settings: InferenceSettings = None,
    resume: ResumeAnswers = False,
    force: Force = False,
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
    columns = _columns(id, time, channel, value, position, static, error)
    numbers = {name: number for name, number in (("level", level), ("folds", folds)) if number is not None}
    given = _given(on_error=on_error, per=per) | numbers  # 0 is a number, too
    config = _configured(inference_tables.AnomalyConfig, config_file, columns, settings, **given)
    _answer(Predictor(model, "anomaly", config=config), data, out, resume=resume, force=force, as_json=as_json)


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
    config_file: ConfigFile = None,
    settings: InferenceSettings = None,
    resume: ResumeAnswers = False,
    force: Force = False,
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
    columns = _columns(id, time, channel, value, position, static, error)
    given = _given(on_error=on_error, target=target, method=method, per=per)
    config = _configured(inference_tables.ExplainConfig, config_file, columns, settings, **given)
    _answer(Predictor(model, "explain", config=config), data, out, resume=resume, force=force, as_json=as_json)


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
    config_file: ConfigFile = None,
    settings: InferenceSettings = None,
    resume: ResumeAnswers = False,
    force: Force = False,
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
    columns = _columns(id, time, channel, value, position, static, error)
    names = None if channels is None else _names(channels)
    if names == []:
        raise ValueError(f"--channels {channels!r} names no channel; write them as HR,Temp, or leave it out for all")
    options = _given(on_error=on_error, channels=names) | _how_sure(interval, quantiles)
    config = _configured(inference_tables.InterpolateConfig, config_file, columns, settings, **options)
    if queries is None and at is not None:
        predictor = Predictor(model, "interpolate", at=at, config=config)
        _answer(predictor, data, out, resume=resume, force=force, as_json=as_json)
        return
    if resume:
        raise ValueError("--resume is for a grid (--at): a table of queries is answered at once, from the beginning")
    skipped: list[Skipped] = []
    place = _place_of_skipped(config, out, force, data, queries)
    table = inference_tables.interpolate_table(config, data, model, queries=queries, at=at, skipped=skipped)
    inference_tables.write_table(table, out, escape=config.escape)
    _say_answers(out, len(table), list(table.columns), skipped, place, config, as_json)


def calibrate(
    model: Annotated[
        str, typer.Argument(help="The folder of a finished run, a checkpoint, or a name on the Hugging Face Hub.")
    ],
    data: Data,
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
    config_file: ConfigFile = None,
    settings: InferenceSettings = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Make probabilities mean what they say, by a table of ids that the model was not trained on.

    A model with a likelihood gets conformal intervals, a classifier a temperature and a bias for each class. What is
    printed is measured on each fifth of the ids under a calibration by the others. The model that is read stays as it
    is.

    Example: romae calibrate run new.parquet --out calibrated
    """
    from romae.inference import calibrated_models
    from romae.inference.reliability import NumberReliability

    if out.resolve() in [Path(model, name).resolve() for name in (".", "best", "last")]:
        raise ValueError(f"{out} is the model that is read; name another folder for --out")
    require_new(out, force)
    columns = _columns(id, time, channel, value, position, static, error)
    given: dict[str, Any] = {name: option for name, option in (("label", label), ("by", by)) if option is not None}
    config = _configured(calibrated_models.CalibrateConfig, config_file, columns, settings, **given)
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


def forecast(
    data: Data,
    model: Model,
    out: Table,
    until: Annotated[
        str,
        typer.Option(
            help="How far: a moment in the form of the times of the table, such as 48 or 2024-04-01, or a length of "
            "time after the last row of each id, +24 or +24h."
        ),
    ],
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
    id: Id = None,
    time: Time = None,
    channel: Channel = None,
    value: Value = None,
    error: Error = None,
    position: Position = None,
    static: Static = None,
    on_error: OnErrorOption = None,
    config_file: ConfigFile = None,
    settings: InferenceSettings = None,
    resume: ResumeAnswers = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Forecast each id of a table after its last row.

    For models that were trained with romae pretrain --horizon. Rows of channels that are known ahead (--known) stand in
    the same table, at later times. A large table is answered in parts, as by romae predict.

    Example: romae forecast stations.parquet --model run --until +30 --out ahead.csv
    """
    from romae.inference import tables as inference_tables
    from romae.inference.predictor import Predictor

    inference_tables.require_output(out, data)
    require_free(out, force=force)
    columns = _columns(id, time, channel, value, position, static, error)
    names = None if channels is None else _names(channels)
    if names == []:
        raise ValueError(f"--channels {channels!r} names no channel; write them as HR,Temp, or leave it out for all")
    options = _given(on_error=on_error, channels=names, step=step) | _how_sure(interval, quantiles)
    config = _configured(inference_tables.ForecastConfig, config_file, columns, settings, **options)
    predictor = Predictor(model, "forecast", until=until, config=config)
    _answer(predictor, data, out, resume=resume, force=force, as_json=as_json)


COMMANDS: dict[str, Callable[..., None]] = {
    "pretrain": pretrain,
    "finetune": finetune,
    "predict": predict,
    "embed": embed,
    "anomaly": anomaly,
    "explain": explain,
    "interpolate": interpolate,
    "calibrate": calibrate,
    "forecast": forecast,
}


def _columns(
    id: str | None,
    time: str | None,
    channel: str | None,
    value: list[str] | None,
    position: list[str] | None,
    static: str | None,
    error: list[str] | None,
) -> dict[str, Any]:
    """The columns that were named, each under its name in `Columns`."""
    facts = None if static is None else _names(static)
    return _given(id=id, time=time, channel=channel, values=value, positions=position, static=facts, error=error)


def _names(text: str) -> list[str]:
    """Names that are written with commas between them."""
    return [name.strip() for name in text.split(",") if name.strip()]


def _given(**options: Any) -> dict[str, Any]:
    """The options that were used."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in options.items() if value}


def _likelihood(name: str | None) -> str | None:
    """The name of a likelihood, if there is one of this name."""
    from romae.model.likelihoods import as_likelihood

    as_likelihood(name)
    return name


def _how_sure(interval: float | None, quantiles: str | None) -> dict[str, Any]:
    """What was asked beside the mean; 0 is no level, and refused where settings are read."""
    options: dict[str, Any] = {} if interval is None else {"interval": interval}
    if quantiles is not None:
        try:
            options["quantiles"] = tuple(map(float, _names(quantiles)))
        except ValueError:
            raise ValueError(f"--quantiles takes levels with commas, such as 0.1,0.5,0.9, not {quantiles!r}") from None
    return options


def _ladder(text: str) -> "Ladder":
    """The ladder between two wavelengths that are written as shortest:longest."""
    from romae.tokens.ladder import Ladder

    try:
        shortest, longest = map(float, text.split(":"))
    except ValueError:
        raise ValueError(
            f"--ladders takes the shortest and the longest wavelength, such as 0.1:1000, not {text!r}"
        ) from None
    return Ladder(shortest=shortest, longest=longest)


def _job(out: Path) -> Path | None:
    from romae.training.run_folder import JOB

    return out / JOB if (out / JOB).is_file() else None


def _require_place(out: Path, config_file: Path | None, pretrained: str | None, resume: bool) -> None:
    """Refuse a folder where a run would write over what it reads, or over a model that no run in it has made."""
    from romae.training.run_folder import NOTES, RunFolder

    if resume:
        return  # what is there is the run itself
    for name in NOTES:
        require_free(out / name, force=True, inputs=[config_file])
    for model in (out / "best", out / "last"):
        is_read = pretrained is not None and model.is_dir() and Path(pretrained).resolve() == model.resolve()
        if is_read or (model.is_dir() and any(model.iterdir()) and RunFolder(out).is_fresh):
            raise ValueError(f"{model} holds a model, which the run would write over; choose another folder for --out")


def _configured(
    config_type: "type[C]",
    file: Path | None,
    columns: dict[str, Any],
    settings: list[str] | None,
    before: Path | None = None,
    **options: Any,
) -> "C":
    """The settings of a file, or else of the run to resume, then the options, then what --set says."""
    from romae.config import load_config, override
    from romae.training.tables import read_job

    if file is not None:
        config = load_config(config_type, file)
    else:
        config = config_type() if before is None else read_job(config_type, before)
    config = replace(config, columns=replace(config.columns, **columns), **options)
    return override(config, *(settings or ()))


def _with_test(config: "J", share: float | None) -> "J":
    """The settings with the share of ids to test on that was given."""
    if share is None:
        return config
    return replace(config, test=replace(config.test, share=share))


def _with_masking(
    config: "PretrainConfig", kind: str | None, horizon: str | None, known: str | None
) -> "PretrainConfig":
    """The settings with the masking that was named."""
    from romae.config import from_dict
    from romae.tokens.masking import Mixed, UniformTokens
    from romae.training.rules import looking_ahead
    from romae.training.tables import PretrainConfig

    if kind is None and horizon is None and known is None:
        return config
    kind = kind or "future"
    if kind not in ("future", "mixed"):
        if horizon is not None or known is not None:
            raise ValueError(f"--horizon and --known are for forecasts, with --masking future or mixed, not {kind}")
        return replace(config, masking=from_dict(PretrainConfig, {"masking": {"kind": kind}}).masking)
    try:
        length: float | str | None = None if horizon is None else float(horizon)
    except ValueError:
        length = horizon
    future = looking_ahead(length, () if known is None else _names(known))
    masking = future if kind == "future" else Mixed(((UniformTokens(ratio=0.5), 0.5), (future, 0.5)))
    return replace(config, masking=masking)


def _finish(trained: "Trained", device: str, as_json: bool) -> None:
    """Score the model of a run, and say how it ended, once if there are several processes."""
    if not is_first_rank():
        return
    from romae.inference.calibrated_models import calibrate_run
    from romae.inference.scores import score_run

    calibration = calibrate_run(trained, device=device)
    scores = score_run(trained, device=device)
    task, history = trained.task, trained.history
    summary = {
        "model": str(trained.model),
        "task": type(task).__name__,
        "parameters": sum(p.numel() for p in task.parameters()),
        "training": trained.n_training,
        "validation": trained.n_validation,
        "test": trained.n_test,
        "steps": history.last["step"],
        "seconds": history.seconds,
        "loss": history.last["loss"],
        "validation_loss": history.best.get("validation"),
        "scores": None if scores is None else scores.to_dict(),
    }
    score = history.best.get("score")
    if score is not None:
        summary["validation_score"] = score
    if calibration is not None:
        summary["calibration_ids"] = calibration.n_samples[0]
    if as_json:
        typer.echo(json.dumps(summary))
        return
    checked = ""
    if trained.n_validation:
        scored = "" if score is None else f" with a score of {score:.4g}"
        checked = f", at best {summary['validation_loss']:.4g}{scored} on {trained.n_validation} validation samples"
    typer.echo(
        f"{trained.model}: {summary['task']} with {summary['parameters']:,} parameters, trained on "
        f"{trained.n_training:,} samples for {summary['steps']:,} steps in {history.seconds:.1f} s; "
        f"loss {summary['loss']:.4g}{checked}"
    )
    if calibration is not None:
        typer.echo(f"intervals were calibrated on {calibration.n_samples[0]} of the validation ids")
    no_scores = "no scores: every id was trained on; --test-share 0.2 keeps a fifth of them out to score the model on"
    for line in [no_scores] if scores is None else scores.lines():
        typer.echo(line)


def _answer(predictor: "Predictor", data: Path, out: Path, *, resume: bool, force: bool, as_json: bool) -> None:
    """Answer for a table in parts, list beside the answers what was skipped where that is allowed, and say so."""
    from romae.inference.streaming import answer_file

    place = _place_of_skipped(predictor.config, out, force or resume, data)
    try:
        done = answer_file(predictor, data, out, resume=resume, force=force)
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

"""The commands for people's own tables: pretrain, finetune, predict, embed, interpolate."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from romae.cli.runs import CTRL_C, is_first_rank, resumable
from romae.cli.tables import Force, Json
from romae.files import require_free

if TYPE_CHECKING:
    from romae.data.skipping import Skipped
    from romae.inference.predictor import Predictor
    from romae.inference.tables import EmbedConfig, InferenceConfig, InterpolateConfig
    from romae.tokens.ladder import Ladder
    from romae.training.tables import FinetuneConfig, PretrainConfig, Trained

    C = TypeVar("C", PretrainConfig, FinetuneConfig, InferenceConfig, EmbedConfig, InterpolateConfig)
    J = TypeVar("J", PretrainConfig, FinetuneConfig)

Data = Annotated[Path, typer.Argument(help="A table with one row per measurement: .csv, .csv.gz, .parquet or .arrow.")]
Id = Annotated[str | None, typer.Option("--id", help="The column that says which rows belong together.")]
Time = Annotated[str | None, typer.Option("--time", help="The column of times: numbers or dates.")]
Channel = Annotated[
    str | None, typer.Option("--channel", help="The column that says what was measured, such as a band or a sensor.")
]
Value = Annotated[list[str] | None, typer.Option("--value", help="A column of values; give it again for further ones.")]
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
    position: Position = None,
    ladders: Ladders = None,
    phase: Phase = False,
    static: Static = None,
    test_share: TestShare = None,
    config_file: ConfigFile = None,
    settings: Settings = None,
    resume: Resume = False,
    as_json: Json = False,
) -> None:
    """Learn from a table without labels: hide some rows, predict them from the others.

    It ends with the R² of hidden values on ids that were kept out, in each channel, beside linear interpolation. The
    settings in use are written to job.json in the folder of the run; --config job.json makes the same run again. The
    scores are in metrics.json, the ids of --test-share in test_ids.json.

    Example: romae pretrain curves.parquet --id star --time mjd --channel band --value flux --out run
    """
    from romae.config import override
    from romae.data.phase import Phase as PhaseRule
    from romae.training import tables as training_tables

    _require_place(out, config_file, None, resume)
    columns = _columns(id, time, channel, value, position, static)
    before = _job(out) if resume else None
    config = _configured(training_tables.PretrainConfig, config_file, columns, None, before)
    config = _with_test(config, test_share)
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
    position: Position = None,
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
    columns = _columns(id, time, channel, value, position, static)
    before = _job(out) if resume else None
    config = _configured(training_tables.FinetuneConfig, config_file, columns, None, before, **_given(label=label))
    config = override(_with_test(config, test_share), *(settings or ()))
    with resumable(out, "finetune", data, "--pretrained", pretrained, "--out", out):
        trained = training_tables.finetune(config, data, pretrained, out, resume=resume)
        _finish(trained, config.train.device, as_json)


def predict(
    data: Data,
    model: Model,
    out: Table,
    id: Id = None,
    time: Time = None,
    channel: Channel = None,
    value: Value = None,
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
    columns = _columns(id, time, channel, value, position, static)
    config = _configured(inference_tables.InferenceConfig, config_file, columns, settings, **_given(on_error=on_error))
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
    columns = _columns(id, time, channel, value, position, static)
    given = _given(on_error=on_error, pooling=pooling)
    config = _configured(inference_tables.EmbedConfig, config_file, columns, settings, **given)
    _answer(Predictor(model, "embed", config=config), data, out, resume=resume, force=force, as_json=as_json)


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
    id: Id = None,
    time: Time = None,
    channel: Channel = None,
    value: Value = None,
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
    columns = _columns(id, time, channel, value, position, static)
    names = None if channels is None else _names(channels)
    if names == []:
        raise ValueError(f"--channels {channels!r} names no channel; write them as HR,Temp, or leave it out for all")
    options = _given(on_error=on_error, channels=names)
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


COMMANDS: dict[str, Callable[..., None]] = {
    "pretrain": pretrain,
    "finetune": finetune,
    "predict": predict,
    "embed": embed,
    "interpolate": interpolate,
}


def _columns(
    id: str | None,
    time: str | None,
    channel: str | None,
    value: list[str] | None,
    position: list[str] | None,
    static: str | None,
) -> dict[str, Any]:
    """The columns that were named, each under its name in `Columns`."""
    facts = None if static is None else _names(static)
    return _given(id=id, time=time, channel=channel, values=value, positions=position, static=facts)


def _names(text: str) -> list[str]:
    """Names that are written with commas between them."""
    return [name.strip() for name in text.split(",") if name.strip()]


def _given(**options: Any) -> dict[str, Any]:
    """The options that were used."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in options.items() if value}


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


def _finish(trained: "Trained", device: str, as_json: bool) -> None:
    """Score the model of a run, and say how it ended, once if there are several processes."""
    if not is_first_rank():
        return
    from romae.inference.scores import score_run

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

"""The commands that learn from a table: pretrain and finetune."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

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
from romae.cli.runs import is_first_rank, resumable
from romae.cli.tables import Json
from romae.files import require_free

if TYPE_CHECKING:
    from romae.tokens.ladder import Ladder
    from romae.training.tables import FinetuneConfig, PretrainConfig, Trained

    J = TypeVar("J", PretrainConfig, FinetuneConfig)

Settings = Annotated[
    list[str] | None, typer.Option("--set", help="One setting, as key=value: train.epochs=20; repeatable.")
]
Folder = Annotated[Path, typer.Option("--out", help="The folder of the run.")]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on where the run in --out stopped, with the settings it was started with.")
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
        "validation ids, which also chose the weights, and slightly optimistic.",
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
    device: Device = None,
    config_file: ConfigFile = None,
    settings: Settings = None,
    resume: Resume = False,
    quiet: Quiet = False,
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
    columns = columns_named(id, time, channel, value, position, static, error)
    before = _job(out) if resume else None
    options = options_given(likelihood=_likelihood(likelihood))
    config = configured(training_tables.PretrainConfig, config_file, columns, None, before, **options)
    config = _with_test(config, test_share)
    config = _with_masking(config, masking, horizon, known)
    if ladders:
        config = replace(config, model=replace(config.model, ladders=tuple(map(_ladder, ladders))))
    if phase and config.phase is None:
        config = replace(config, phase=PhaseRule())
    config = override(config, *_on(device), *(settings or ()))
    with resumable(out, "pretrain", data, "--out", out):
        _finish(training_tables.pretrain(config, data, out, resume=resume, quiet=quiet), config.train.device, as_json)


def finetune(
    data: Data,
    pretrained: Annotated[
        str,
        typer.Option("--pretrained", "--model", help=MODELS_HELP),
    ],
    out: Folder,
    label: Annotated[
        list[str] | None,
        typer.Option(
            help="The column to learn, one label per id: text and integers are classes. Given several times, these are "
            "columns of 0 and 1 of several labels, of which any number may be true."
        ),
    ] = None,
    separator: Annotated[
        str | None,
        typer.Option(help="What stands between the names of several labels in one column, such as '|' in a|b."),
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
    device: Device = None,
    config_file: ConfigFile = None,
    settings: Settings = None,
    resume: Resume = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Teach a pre-trained model the label of each id: a class, several labels, or a number.

    Columns are called as in pre-training unless you name others. It ends with accuracy, macro F1 and AUROC, or with R²
    and RMSE, on ids that were kept out; they are in metrics.json too, and the ids of --test-share in test_ids.json.

    Example: romae finetune labelled.parquet --pretrained run --label kind --out classifier --set frozen=true
    """
    from romae.config import override
    from romae.training import tables as training_tables

    _require_place(out, config_file, pretrained, resume)
    columns = columns_named(id, time, channel, value, position, static, error)
    before = _job(out) if resume else None
    named = label[0] if label is not None and len(label) == 1 else label
    options = options_given(label=named, separator=separator, likelihood=_likelihood(likelihood))
    config = configured(training_tables.FinetuneConfig, config_file, columns, None, before, **options)
    config = override(_with_test(config, test_share), *_on(device), *(settings or ()))
    with resumable(out, "finetune", data, "--pretrained", pretrained, "--out", out):
        trained = training_tables.finetune(config, data, pretrained, out, resume=resume, quiet=quiet)
        _finish(trained, config.train.device, as_json)


COMMANDS: dict[str, Callable[..., None]] = {"pretrain": pretrain, "finetune": finetune}


def _on(device: str | None) -> list[str]:
    """The setting of a device that was named."""
    return [] if device is None else [f"train.device={device}"]


def _likelihood(name: str | None) -> str | None:
    """The name of a likelihood, if there is one of this name."""
    from romae.model.likelihoods import as_likelihood

    as_likelihood(name)
    return name


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
    future = looking_ahead(length, () if known is None else names_in(known))
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

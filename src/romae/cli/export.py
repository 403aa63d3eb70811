"""The command that writes a model as a file for servers: export."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from romae.cli.options import MODELS_HELP
from romae.cli.tables import Force, Json


def export(
    out: Annotated[Path, typer.Option("--out", help="The file to write: .onnx, or .pt2 for torch.export.")],
    model: Annotated[str | None, typer.Argument(help=MODELS_HELP)] = None,
    named_model: Annotated[str | None, typer.Option("--model", help="The same, as other commands take it.")] = None,
    answer: Annotated[
        str | None,
        typer.Option(
            help="What is asked of the model: predict, embed or interpolate. By default interpolate for a pre-trained "
            "model, else predict."
        ),
    ] = None,
    inputs: Annotated[
        str, typer.Option(help="How samples are handed over: packed, end to end with offsets, or padded with a mask.")
    ] = "packed",
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a model as a file that answers without romae, in ONNX or for torch.export.

    Scaling and calibration are inside. The file is held against PyTorch before it is put in its place.

    Example: romae export classifier --out classifier.onnx --inputs padded
    """
    from romae.files import require_free
    from romae.inference import export as exporting
    from romae.training.tables import load_model

    if (model is None) == (named_model is None):
        raise ValueError("name the model to write, once: romae export classifier --out classifier.onnx")
    require_free(out, force=force)
    format = "torch" if out.suffix.lower() == exporting.ENDINGS["torch"] else "onnx"
    if format == "onnx":
        exporting.require_onnx()  # before the model is looked for, perhaps on the Hub
    settings: dict[str, Any] = {"format": format, "answer": answer, "inputs": inputs, "force": force}
    exported = exporting.export(load_model(model or str(named_model)), out, **settings)
    if as_json:
        typer.echo(json.dumps(asdict(exported) | {"path": str(out)}))
        return
    checked = "not checked" if exported.difference is None else f"at most {exported.difference:.1g} off PyTorch"
    typer.echo(
        f"{out}: {exported.output} from {', '.join(exported.inputs)}; {exported.n_bytes / 1e6:,.1f} MB, {checked}"
    )


COMMANDS: dict[str, Callable[..., None]] = {"export": export}

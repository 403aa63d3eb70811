"""Export: a model as a file that answers without romae, in ONNX or as a program of torch.export.

Shapes: b samples, t tokens, q queries, n tokens and m queries of one sample, c channels, d position axes, k outputs.
"""

import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.fx import config as trace_config
from torch.fx.experimental import _config as fx_config

from romae import __version__
from romae.config import to_dict
from romae.extras import require_extra
from romae.files import readable_path, require_free, write_whole
from romae.inference.graph import Answer, Graph, Inputs
from romae.inference.parity import Runner, input_arrays, largest_difference, made_up_batch
from romae.model.blocks import Block
from romae.model.tasks import Classification, MaskedReconstruction, Regression, Task

Format = Literal["onnx", "torch"]
ENDINGS = {"onnx": ".onnx", "torch": ".pt2"}
ANSWERS = ("predict", "embed", "interpolate")
OPSET = 20
MOST_BYTES = 2_000_000_000  # of one ONNX file, which is a protocol buffer
METADATA = "romae"  # the key of the description in an ONNX file
METADATA_FILE = "romae.json"  # its name in a program of torch.export
TRACED = (5, 2, 9), (4, 1, 3)  # lengths and numbers of queries; no sizes are equal, so that none is taken for another


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What was written: the names of inputs and the output, the size of the file, and how far its answers are off.

    `difference` is the largest one from PyTorch, in units of the size of the answers; None where onnxruntime is not
    installed and nothing was checked.
    """

    path: Path
    answer: Answer
    inputs: tuple[str, ...]
    output: str
    n_bytes: int
    difference: float | None


def export(
    task: Task,
    path: str | Path,
    *,
    format: Format = "onnx",
    answer: Answer | None = None,
    inputs: Inputs = "packed",
    force: bool = False,
) -> Exported:
    """Write a model to a file that answers without romae: scaling, network and calibration in one graph.

    Parameters
    ----------
    task : Task
        A trained task, such as `romae.load` gives. It stays as it is; the file computes in single precision.
    path : str or Path
        The file to write: .onnx, or .pt2 for `format="torch"`.
    format : {"onnx", "torch"}, default "onnx"
        ONNX, for onnxruntime and other runtimes (`pip install 'romae[export]'`), or a program of `torch.export`, which
        needs torch alone.
    answer : {"predict", "embed", "interpolate"}, optional
        What is asked of the model: probabilities or numbers, a vector of each sample, or values at positions. By
        default "interpolate" for masked reconstruction, else "predict".
    inputs : {"packed", "padded"}, default "packed"
        How samples are handed over: tokens end to end with the offsets of samples, or padded to one length with a mask.
    force : bool, default False
        Whether a file that is there is overwritten.

    Returns
    -------
    Exported
        The names of the inputs and of the output, the size of the file, and the largest difference from PyTorch.

    Raises
    ------
    ValueError
        If the model cannot be exported or cannot give that answer, if the file is there already, or if its answers
        differ from those of PyTorch by more than 1e-4 of their size. Nothing is written then.
    TypeError
        If the task is none.
    ImportError
        If onnx or onnxscript is missing.

    Notes
    -----
    Numbers of samples, tokens and queries are free, from 1 on; a sample may have no query. Inputs, in the data's own
    units, are:

    - `values`, float32 [t, c], and `positions`, float64 [t, d], whose first axis is the time and whose last one is the
      index of the channel where channels are an axis;
    - `offsets`, int64 [b + 1]: sample i has the tokens from offsets[i] on, up to offsets[i + 1];
    - to interpolate, `query_positions`, float64 [q, d], and `query_offsets`, int64 [b + 1].

    Padded, they are `values` [b, n, c], `positions` [b, n, d] and `mask`, bool [b, n], which is True on tokens, and
    `query_positions` [b, m, d]; a query with NaN among its coordinates only fills up. The output is `probabilities`
    [b, k], `numbers` [b, k] (per token [t, k] or [b, n, k]), `embeddings` [b, w] or `interpolated` [q, c] ([b, m, c]).

    Where `romae.predict` would refuse a sample, because a number is not finite or a channel is unknown, the answer is
    NaN; so is that of a sample without tokens, and all if offsets do not fit. Nothing warns of data that are unlike
    those of training. With queries="joint" those of a sample are decoded together, as `interpolate(grouped=True)` does.

    The file describes itself: the metadata `romae` of an ONNX model, or `romae.json` among the `extra_files` of a
    program, is JSON with the version, the answer and the schema. Before it is put in its place, it is run on samples
    that are made up and held against PyTorch.

    Examples
    --------
    >>> import romae
    >>> size = romae.Size(width=16, heads=2, depth=1)
    >>> config = romae.ModelConfig(channels=1, position_dims=1, encoder=size)
    >>> task = romae.Classification(config, n_classes=3)
    >>> exported = romae.export(task, "classifier.pt2", format="torch")
    >>> exported.inputs, exported.output
    (('values', 'positions', 'offsets'), 'probabilities')
    >>> romae.export(task, "classifier.onnx").difference < 1e-4  # doctest: +SKIP
    True
    """
    if not isinstance(task, Task):
        raise TypeError(
            f"export needs a task, such as romae.load gives, not {type(task).__name__}; the network of an estimator is "
            "its task_"
        )
    answer = _checked_answer(task, answer)
    if format not in ENDINGS:
        raise ValueError(f"format must be 'onnx' or 'torch', not {format!r}")
    if inputs not in ("packed", "padded"):
        raise ValueError(f"inputs must be 'packed' or 'padded', not {inputs!r}")
    _require_exportable(task, answer)
    path = readable_path(path)
    if path.suffix.lower() != ENDINGS[format]:
        raise ValueError(f"the name of the file must end with {ENDINGS[format]} for format={format!r}, got {path}")
    require_free(path, force=force)
    if format == "onnx":
        require_onnx()
        _require_small(task)
    copy = deepcopy(task).to("cpu", torch.float32).eval().requires_grad_(False)
    if answer == "embed" and isinstance(copy, MaskedReconstruction):
        copy.decoder, copy.head = torch.nn.Identity(), torch.nn.Identity()  # type: ignore[assignment]  # not asked
    traced = made_up_batch(copy, *TRACED, seed=0)
    arrays = input_arrays(*traced, inputs, with_queries=answer == "interpolate")
    names, output = tuple(arrays), _output_name(task, answer)
    about = json.dumps(_description(task, answer, inputs, names, output))
    differences: list[float] = []
    with _quietly():
        program = _program(Graph(copy, answer, inputs), arrays)

        def write(to: Path) -> None:
            if format == "onnx":
                _write_onnx(program, to, arrays, output, about)
            else:
                with to.open("wb") as file:
                    torch.export.save(program, file, extra_files={METADATA_FILE: about})
            if run := _onnx_runner(to) if format == "onnx" else _torch_runner(to):
                differences.append(largest_difference(copy, answer, inputs, run))

        write_whole(path, write)
    if not differences:
        warnings.warn(
            f"{path} was not checked, since onnxruntime is missing: pip install 'romae[export]'", stacklevel=2
        )
    return Exported(
        path=path,
        answer=answer,
        inputs=names,
        output=output,
        n_bytes=path.stat().st_size,
        difference=max(differences, default=None),
    )


def _output_name(task: Task, answer: Answer) -> str:
    if answer == "predict":
        return "probabilities" if isinstance(task, Classification) else "numbers"
    return "embeddings" if answer == "embed" else "interpolated"


def _description(task: Task, answer: Answer, inputs: Inputs, names: Sequence[str], output: str) -> dict[str, Any]:
    """What a server has to know of a model, as JSON has it."""
    schema, config = task.schema, task.config
    return {
        "romae": __version__,
        "task": type(task).__name__,
        "answer": answer,
        "form": inputs,
        "inputs": list(names),
        "output": output,
        "n_values": config.channels,
        "n_errors": config.errors,
        "n_position_axes": config.position_dims,
        "origins": to_dict((task.scaling.origins if task.scaling else ()) or ("none",) * config.position_dims),
        "schema": None if schema is None else to_dict(schema) | {"kinds": to_dict(schema.kind_names)},
    }


# What is refused


def _checked_answer(task: Task, answer: Answer | None) -> Answer:
    """What is asked of a task, if it can give it."""
    is_autoencoder = isinstance(task, MaskedReconstruction)
    if answer is None:
        return "interpolate" if is_autoencoder else "predict"
    if answer not in ANSWERS:
        raise ValueError(f"answer must be 'predict', 'embed' or 'interpolate', not {answer!r}")
    if answer == "interpolate" and not is_autoencoder:
        raise ValueError(f"only a MaskedReconstruction task can interpolate, not {type(task).__name__}")
    if answer == "predict" and is_autoencoder:
        raise ValueError(
            "a MaskedReconstruction task predicts values at positions; use answer='interpolate' or 'embed'"
        )
    return answer


def _require_exportable(task: Task, answer: Answer) -> None:
    if answer == "predict" and not isinstance(task, Classification | Regression):
        raise ValueError(
            f"export knows what Classification and Regression predict, not {type(task).__name__}; use answer='embed'"
        )
    if task.config.window is not None:
        raise ValueError(
            "a model with a window cannot be exported, since it sorts tokens and cuts them into stretches; serve it "
            "with romae.inference.Predictor"
        )
    if task.scaling is not None and task.scaling.own_units:
        raise ValueError(
            "a model that takes series in units of their own cannot be exported, since these follow from medians of "
            "each series; serve it with romae.inference.Predictor"
        )
    if isinstance(task, MaskedReconstruction) and task.normalise and answer == "interpolate":
        raise ValueError(
            "this model was trained with normalise=True: it predicts values relative to each token's own mean and "
            "spread, which are unknown at new positions; use answer='embed'"
        )
    transformers = [task.encoder.transformer]
    transformers += [task.decoder.transformer] if isinstance(task, MaskedReconstruction) else []
    if not all(isinstance(block, Block) for transformer in transformers for block in transformer.blocks):
        raise ValueError(
            "export knows the blocks of romae, and the model has others; export it before they are changed"
        )
    if not all(bool(torch.isfinite(weight).all()) for weight in task.parameters()):
        raise ValueError("this model has weights that are no numbers; export one that was trained to the end")


def require_onnx() -> None:
    """Refuse to write ONNX files without the libraries for it."""
    require_extra("export", "ONNX files need", "onnx", "onnxscript")


def _require_small(task: Task) -> None:
    n_bytes = 4 * sum(p.numel() for p in task.parameters())
    if n_bytes > MOST_BYTES:
        raise ValueError(
            f"an ONNX file holds less than 2 GB, and the weights are {n_bytes / 1e9:.1f} GB; use format='torch'"
        )


# Tracing and writing


@contextmanager
def _quietly() -> Iterator[None]:
    """Without what torch says and notes for its own developers, and without warnings of samples that are made up."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")]
    before = [logger.level for logger in loggers]
    is_traceless = getattr(trace_config, "do_not_emit_stack_traces", False)  # older versions of torch always note them
    try:
        trace_config.do_not_emit_stack_traces = True  # of each operation: no file keeps them, and they take long
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            yield
    finally:
        trace_config.do_not_emit_stack_traces = is_traceless
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def _program(graph: Graph, arrays: Mapping[str, np.ndarray]) -> torch.export.ExportedProgram:
    """The graph for any number of samples, tokens and queries."""
    try:
        # Else torch takes for granted that no size is 0 or 1, since such sizes could be those of broadcasting.
        with fx_config.patch(backed_size_oblivious=True):  # type: ignore[attr-defined]
            program = torch.export.export(graph, _tensors(arrays), dynamic_shapes=_free_sizes(arrays), strict=False)
    except Exception as error:  # of layers that others have put in the place of ours
        raise ValueError(
            f"the model cannot be traced: {_first_line(error)}; export it before layers are changed"
        ) from error
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # the folders of this machine are nobody's business
    return program


def _free_sizes(arrays: Mapping[str, np.ndarray]) -> tuple[dict[int, Any], ...]:
    """The axes of each input whose size is free, by name; sizes of one name are equal."""
    names: dict[str, tuple[str, ...]]
    if "mask" in arrays:
        names = dict.fromkeys(("values", "positions", "mask"), ("samples", "tokens"))
        names["query_positions"] = ("samples", "queries")
    else:
        names = {"values": ("tokens",), "positions": ("tokens",), "offsets": ("ends",)}
        names |= {"query_positions": ("queries",), "query_offsets": ("ends",)}
    sizes = {name: torch.export.Dim(name, min=1) for name in ("samples", "tokens", "queries")}
    sizes["ends"] = torch.export.Dim("ends", min=2)
    return tuple({axis: sizes[size] for axis, size in enumerate(names[name])} for name in arrays)


def _write_onnx(
    program: torch.export.ExportedProgram, to: Path, arrays: Mapping[str, np.ndarray], output: str, about: str
) -> None:
    try:
        exported = torch.onnx.export(
            program,
            dynamo=True,
            input_names=list(arrays),
            output_names=[output],
            dynamic_shapes=_free_sizes(arrays),
            opset_version=OPSET,
            custom_translation_table=_double_precision(),
            verbose=False,
        )
    except Exception as error:
        raise ValueError(f"the model cannot be written as ONNX: {_first_line(error)}; use format='torch'") from error
    assert exported is not None
    graph, described = exported.model.graph, list[Any]()
    for node in graph.all_nodes():
        described += [node, *node.outputs]
    for part in (graph, *graph.inputs, *described):  # where each comes from, ten times as long as what it does
        part.metadata_props.clear()
    exported.model.metadata_props[METADATA] = about
    exported.save(to, external_data=False)


def _double_precision() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Functions that onnxruntime has in single precision alone, of those that it has in double precision."""
    from onnxscript import opset20

    op: Any = opset20

    def number(value: float, like: Any) -> Any:
        return op.CastLike(op.Constant(value_float=value), like)

    def asinh(x: Any) -> Any:
        size = op.Abs(x)
        return op.Mul(op.Sign(x), op.Log(op.Add(size, op.Sqrt(op.Add(op.Mul(x, x), number(1.0, x))))))

    def sinh(x: Any) -> Any:
        return op.Mul(number(0.5, x), op.Sub(op.Exp(x), op.Exp(op.Neg(x))))

    def softplus(x: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
        rest = op.Log(op.Add(number(1.0, x), op.Exp(op.Neg(op.Abs(x)))))
        return op.Add(op.Max(x, number(0.0, x)), rest)

    aten = torch.ops.aten
    return {aten.asinh.default: asinh, aten.sinh.default: sinh, aten.softplus.default: softplus}


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


# Checking


def _tensors(arrays: Mapping[str, np.ndarray]) -> tuple[Tensor, ...]:
    return tuple(map(torch.from_numpy, arrays.values()))


def _onnx_runner(path: Path) -> Runner | None:
    """What onnxruntime answers, if it is installed."""
    if find_spec("onnxruntime") is None:
        return None
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda arrays: session.run(None, dict(arrays))[0]


def _torch_runner(path: Path) -> Runner:
    with path.open("rb") as file:
        module = torch.export.load(file).module()
    return lambda arrays: module(*_tensors(arrays)).numpy()

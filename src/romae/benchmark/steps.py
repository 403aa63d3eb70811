"""Whole training steps of the four workloads in every mode: forward, backward, clipping, AdamW."""

import contextlib
import gc
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from romae.benchmark.floors import floor
from romae.benchmark.padded import PaddedReconstruction
from romae.benchmark.timing import machine, milliseconds, peak_gib
from romae.benchmark.workloads import CPU_WORKLOADS, WORKLOADS, Workload
from romae.model.tasks import MaskedReconstruction
from romae.tokens.tokens import Batch, collate
from romae.training.fixed_shape import DeviceBuffer, FixedShape, FlatBatch
from romae.training.optim import optimiser
from romae.training.step import Captured, Step, compile_blocks, optimised

# Each way of taking a step, padded and packed. What pads is given its best: a batch that is always the same, so that it
# is recorded and compiled for one shape, where batches of a run are padded to another length each time.
WAYS = ("eager", "graph", "compiled", "compiled graph")
PADDED = "padded"
MODES = (*(PADDED if way == "eager" else f"{PADDED} {way}" for way in WAYS), *WAYS)
ON_CPU = ("padded", "padded compiled", "eager", "compiled")


def steps(
    *,
    workloads: dict[str, Workload] | None = None,
    modes: tuple[str, ...] | None = None,
    in_tf32: tuple[str, ...] = ("lightcurves",),
    n_runs: int = 20,
) -> dict[str, Any]:
    """Milliseconds and memory of a step in every mode, the same batch and the same work in all of them.

    `error` is that of all gradients against the padded mathematics in double precision, in units of their size, and
    `output_error` that of what is predicted. Full precision, with TF32 allowed, is measured on the workloads named in
    `in_tf32`. `times_padded` is how often as fast as the padded step of the same means, compiled beside compiled;
    `times_padded_eager` as the one that PyTorch runs as it is written. `floors` are in floors.py.
    """
    on_gpu = torch.cuda.is_available()
    rows: list[dict[str, Any]] = []
    floors, padded = {}, {}
    for name, workload in (workloads or (WORKLOADS if on_gpu else CPU_WORKLOADS)).items():
        floors[name] = floor(workload, machine()["device"])
        truth = computed(workload, "padded", "float64")
        for precision in (["bf16", "tf32"] if name in in_tf32 else ["bf16"]) if on_gpu else ["float32"]:
            for mode in modes or (MODES if on_gpu else ON_CPU):
                row: dict[str, Any] = {"workload": name, "precision": precision, "mode": mode}
                row |= computed(workload, mode, precision).errors(truth)
                row |= measured(workload, mode, precision, n_runs)
                median = row["milliseconds"]["median"]
                padded[name, precision, mode] = median
                for ratio, rival in (("times_padded", beside(mode)), ("times_padded_eager", PADDED)):
                    if (name, precision, rival) in padded:
                        row[ratio] = round(padded[name, precision, rival] / median, 2)
                rows.append(row)
    return {"rows": rows, "floors": floors}


def beside(mode: str) -> str:
    """The padded mode of the same means."""
    if mode.startswith(PADDED):
        return mode
    return PADDED if mode == "eager" else f"{PADDED} {mode}"


def measured(workload: Workload, mode: str, precision: str, n_runs: int, **changes: Any) -> dict[str, Any]:
    """How long a step takes and what memory it needs."""
    device = _device()
    with _fresh(), tf32(precision == "tf32"):
        prepared: list[Callable[[], object]] = []

        def make_and_run() -> None:
            task = workload.task(**changes).to(device)
            prepared.append(step(task, batch_for(task, workload, mode, device), mode, precision))
            prepared[0]()

        memory = peak_gib(make_and_run)
        time = milliseconds(prepared[0], n_runs)
    return {"milliseconds": time.rounded(), "gib": None if memory is None else round(memory, 2)}


class Computed(NamedTuple):
    """What a mode makes of a batch: the values of all hidden tokens and all gradients, each end to end."""

    outputs: Tensor
    gradients: Tensor

    def errors(self, truth: "Computed") -> dict[str, float]:
        """How far both are from the truth, in units of its size."""
        pairs = {"output_error": (self.outputs, truth.outputs), "error": (self.gradients, truth.gradients)}
        return {name: float(f"{float((x - y).norm() / y.norm()):.2g}") for name, (x, y) in pairs.items()}


def computed(workload: Workload, mode: str, precision: str) -> Computed:
    """What this mode makes of one batch of the workload."""
    device = _device()
    task = workload.task().to(device)
    if precision == "float64":
        task = task.double()
    batch = batch_for(task, workload, mode, device)
    hidden = batch_for(task, workload, "eager", torch.device("cpu")).hidden
    assert hidden is not None
    n_outputs = hidden.layout.n_tokens * workload.channels  # what a batch of fixed size has beyond them counts nothing
    model = PaddedReconstruction(task) if mode.startswith(PADDED) else task
    parameters = list(model.parameters())

    def work() -> Tensor:
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
            outputs = model.predict(batch).detach()  # and with them what a backward pass would need
            loss = model(batch).mean
        parts = [outputs.flatten()[:n_outputs], *torch.autograd.grad(loss, parameters)]
        return torch.cat([part.flatten().to(loss.dtype) for part in parts])

    with _fresh(), tf32(precision == "tf32"):
        _compile(model, mode)
        result = Captured(work, lambda: []).play() if "graph" in mode else work()
        return Computed(*result.double().cpu().tensor_split([n_outputs]))


def batch_for(task: MaskedReconstruction, workload: Workload, mode: str, device: torch.device) -> Batch:
    """One batch of the workload on the device, its masks drawn; of fixed size where the mode wants that."""
    batch = task.prepare(collate(workload.samples(workload.n_samples)), torch.Generator().manual_seed(0))
    if mode.startswith(PADDED) or mode == "eager":
        return batch.to(device)
    shape = FixedShape.around([batch], workload.n_samples, workload.longest)
    filled = shape.filled(batch)
    assert filled is not None
    buffer = DeviceBuffer(shape, filled, device)
    buffer.load(FlatBatch.of(filled, n_tokens=0))
    return buffer.batch


def step(task: MaskedReconstruction, batch: Batch, mode: str, precision: str) -> Callable[[], object]:
    """A whole training step in one of the modes, ready to be taken again and again."""
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state()
    on_gpu = batch.tokens.device.type == "cuda"
    accelerator = Accelerator(mixed_precision="bf16" if precision == "bf16" else "no", cpu=not on_gpu)
    inner: nn.Module = PaddedReconstruction(task) if mode.startswith(PADDED) else task
    plain = optimiser(
        inner,
        "adamw",
        lr=1e-4,
        betas=(0.9, 0.95),
        momentum=0.9,
        weight_decay=0.05,
        is_fused=on_gpu,
        is_captured="graph" in mode,
    )
    model, wrapped = accelerator.prepare(inner, plain)
    _compile(inner, mode)
    take = Step(accelerator, model, wrapped, 1.0, False, None).take

    def work() -> Tensor:
        sums = take(iter([(batch, 1.0)]), 1, 1.0)
        assert sums is not None
        return sums

    return Captured(work, lambda: optimised(plain)).play if "graph" in mode else work


def _compile(model: nn.Module, mode: str) -> None:
    """Compile the blocks of a task, or of what pads it, where the mode says so."""
    if "compiled" not in mode:
        return
    if isinstance(model, PaddedReconstruction):
        model.compile_blocks()
    else:
        compile_blocks(model, is_fixed=True)


@contextlib.contextmanager
def tf32(is_allowed: bool) -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = is_allowed
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


@contextlib.contextmanager
def _fresh() -> Iterator[None]:
    """Without what was compiled or kept before."""
    torch.compiler.reset()
    if torch.cuda.is_available():  # where memory is measured
        gc.collect()
        torch.cuda.empty_cache()
    yield


def _device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")

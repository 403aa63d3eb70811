"""The training loop with its loader beside the step alone: what everything around a step costs."""

import time
from typing import Any

import numpy as np
import torch
from torch._dynamo.utils import counters

from romae.benchmark.steps import measured, step
from romae.benchmark.timing import Spread, milliseconds
from romae.benchmark.workloads import WORKLOADS, Workload
from romae.data.loader import Loader
from romae.tokens.sample import Sample
from romae.training.batches import Preparation, probe_shape
from romae.training.config import TrainConfig
from romae.training.fixed_shape import DeviceBuffer, FlatBatch
from romae.training.loop import train


def attached(
    *,
    workloads: dict[str, Workload] = WORKLOADS,
    n_steps: int = 200,
    n_stretches: int = 3,
    workers: tuple[int, ...] = (0, 8),
    is_compiled: bool = True,
) -> dict[str, Any]:
    """Tokens per second over consecutive different batches, from samples in memory to changed weights.

    Ragged samples come by token budget, so that batches of fixed size are nearly full. The rate, over stretches of
    `n_steps` batches after as many to warm up, stands beside that of the step alone, on one batch that lies on the
    device and has no room to spare. `loop_share` is the time that the loop adds to the step that it takes;
    `recompilations` counts what was compiled after warming up.
    """
    on_gpu = torch.cuda.is_available()
    mode = ("compiled graph" if is_compiled else "graph") if on_gpu else "eager"
    rows = []
    for name, workload in workloads.items():
        alone = measured(workload, mode, "bf16" if on_gpu else "float32", 20)["milliseconds"]["median"]
        n_alone = sum(len(sample) for sample in workload.samples(workload.n_samples))
        is_ragged = workload.shortest < workload.longest
        n_batches = max(16, 3200 // workload.n_samples) if is_ragged else 16  # an epoch's last batch is hardly filled
        samples = workload.samples(n_batches * workload.n_samples)
        n_tokens = sum(len(sample) for sample in samples) // n_batches
        for n_workers in workers:
            config = TrainConfig(
                epochs=-(-(1 + n_stretches) * n_steps // n_batches) + 1,
                batch_size=workload.n_samples,
                tokens_per_batch=n_tokens if is_ragged else None,
                precision="bf16" if on_gpu else "float32",
                workers=n_workers,
                warmup=0,
                lr=1e-4,
                validate_every=n_steps,
                compile=is_compiled and on_gpu,
                graph=on_gpu,
            )
            loader = Loader(
                samples,
                batch_size=None if is_ragged else workload.n_samples,
                tokens_per_batch=config.tokens_per_batch,
                shuffle=True,
            )
            whole, n_compiled = _per_step(workload, samples, config, n_steps, n_stretches)
            own = _milliseconds_of_the_step(workload, loader, mode)
            rate = 1e3 * sum(len(sample) for sample in samples) / (loader.n_batches() * whole.median)
            rows.append(
                {
                    "workload": name,
                    "workers": n_workers,
                    "milliseconds": whole.rounded(),
                    "milliseconds_of_its_step": round(own, 2),
                    "loop_share": round(whole.median / own - 1, 3),
                    "tokens_per_second": round(rate),
                    "share_of_the_rate_alone": round(rate * alone / (1e3 * n_alone), 3),
                    "recompilations": n_compiled,
                }
            )
    return {"rows": rows, "mode": mode, "steps": n_steps, "stretches": n_stretches}


def _per_step(
    workload: Workload, samples: list[Sample], config: TrainConfig, n_steps: int, n_stretches: int
) -> tuple[Spread, int]:
    """Milliseconds from one report to another, with none in between (a report waits for the device), and what was
    compiled meanwhile."""
    moments: list[tuple[float, int]] = []

    def log(step: int, record: Any) -> None:
        if step % n_steps == 0 and len(moments) <= n_stretches:
            moments.append((time.perf_counter(), counters["stats"]["unique_graphs"]))

    train(workload.task(), samples, config, log=log, title="attached")
    times, n_compiled = (np.diff(column) for column in zip(*moments, strict=True))
    return Spread.of(1e3 * times / n_steps), int(n_compiled.sum())


def _milliseconds_of_the_step(workload: Workload, loader: Loader, mode: str) -> float:
    """The step that the loop takes, on batches of the same fixed size, without the loop."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    task = workload.task().to(device)
    shape, example = probe_shape(loader, Preparation(task, 0, is_training=True))
    buffer = DeviceBuffer(shape, example, device)
    buffer.load(FlatBatch.of(example, n_tokens=0))
    precision = "bf16" if device.type == "cuda" else "float32"
    return milliseconds(step(task, buffer.batch, mode, precision), 20).median

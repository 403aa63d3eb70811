"""The training loop with its loader beside the step alone: what everything around a step costs."""

import time
from typing import Any

import torch

from romae.benchmark.steps import measured
from romae.benchmark.workloads import WORKLOADS, Workload
from romae.training import TrainConfig, train


def attached(
    *,
    workloads: dict[str, Workload] = WORKLOADS,
    n_steps: int = 200,
    n_warm: int = 50,
    workers: tuple[int, ...] = (0, 8),
    is_compiled: bool = True,
) -> dict[str, Any]:
    """Milliseconds per step over consecutive different batches, from samples in memory to changed weights.

    The step alone works on one batch that lies on the device. `loop_share` is what the loop adds to it.
    """
    on_gpu = torch.cuda.is_available()
    mode = ("compiled graph" if is_compiled else "graph") if on_gpu else "eager"
    rows = []
    for name, workload in workloads.items():
        alone = measured(workload, mode, "bf16" if on_gpu else "float32", 20)["milliseconds"]["median"]
        for n_workers in workers:
            config = TrainConfig(
                epochs=-(-(n_steps + n_warm) // 16),
                batch_size=workload.n_samples,
                precision="bf16" if on_gpu else "float32",
                workers=n_workers,
                warmup=0,
                lr=1e-4,
                validate_every=n_warm,
                compile=is_compiled and on_gpu,
                graph=on_gpu,
            )
            moments: dict[int, float] = {}

            def log(step: int, record: Any, moments: dict[int, float] = moments) -> None:
                moments[step] = time.perf_counter()

            train(
                workload.task(),
                workload.samples(16 * workload.n_samples),
                config,
                log=log,
                title=name,
            )
            first, last = n_warm, max(moment for moment in moments if moment <= n_warm + n_steps)
            whole = 1e3 * (moments[last] - moments[first]) / (last - first)
            rows.append(
                {
                    "workload": name,
                    "workers": n_workers,
                    "steps": last - first,
                    "milliseconds": round(whole, 2),
                    "milliseconds_alone": alone,
                    "share_of_the_rate": round(alone / whole, 3),
                    "loop_share": round(whole / alone - 1, 3),
                }
            )
    return {"rows": rows, "mode": mode}

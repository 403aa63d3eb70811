"""Time and memory as samples grow longer while the tokens of a batch stay the same, and as batches grow.

Training steps, and inference: hidden tokens predicted from visible ones.
"""

from typing import Any

import torch

from romae.benchmark.steps import batch_for, measured
from romae.benchmark.timing import milliseconds, peak_gib
from romae.benchmark.workloads import Workload


def lengths(*, n_tokens: int = 65_536, shortest: int = 256, n_runs: int = 5, size: str = "tiny") -> dict[str, Any]:
    """A training step on the same number of tokens in samples of growing length, and on more tokens; and inference."""
    precision = "bf16" if torch.cuda.is_available() else "float32"
    growing: list[int] = []
    while shortest * 4 ** len(growing) <= n_tokens:
        growing.append(shortest * 4 ** len(growing))
    rows = [
        _step(_workload(n_tokens // length, length, size), checkpointing, precision, n_runs)
        for length in growing
        for checkpointing in (False, True)
    ]
    counts = [int(n_tokens / shortest * 2**i) for i in range(-3, 3)]
    return {
        "rows": rows,
        "inference": [_inference(_workload(n_tokens // length, length, size), precision, n_runs) for length in growing],
        "growing_batches": [_step(_workload(max(1, n), shortest, size), False, precision, n_runs) for n in counts],
        "precision": precision,
    }


def _workload(n_samples: int, length: int, size: str) -> Workload:
    return Workload(n_samples=n_samples, shortest=length, longest=length, channels=1, size=size, ratio=0.5)


def _token_counts(workload: Workload) -> dict[str, Any]:
    return {"tokens_per_sample": workload.longest, "tokens": workload.n_samples * workload.longest}


def _step(workload: Workload, checkpointing: bool, precision: str, n_runs: int) -> dict[str, Any]:
    row = _token_counts(workload) | {"checkpointing": checkpointing}
    return row | measured(workload, "eager", precision, n_runs, checkpointing=checkpointing)


def _inference(workload: Workload, precision: str, n_runs: int) -> dict[str, Any]:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    task = workload.task().to(device).eval()
    batch = batch_for(task, workload, "eager", device)

    @torch.inference_mode()
    def predict() -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
            task.predict(batch)

    memory = peak_gib(predict)
    row = _token_counts(workload) | {"milliseconds": milliseconds(predict, n_runs).rounded()}
    return row | {"gib": None if memory is None else round(memory, 2)}

"""Time and memory as samples grow longer while the tokens of a batch stay the same, and as batches grow."""

from typing import Any

import torch

from romae.benchmark.steps import measured
from romae.benchmark.workloads import Workload


def lengths(*, n_tokens: int = 65_536, shortest: int = 256, n_runs: int = 5) -> dict[str, Any]:
    """A training step of RoMAE-tiny on the same number of tokens in samples of growing length, and on more tokens."""
    on_gpu = torch.cuda.is_available()
    precision = "bf16" if on_gpu else "float32"
    rows = []
    length = shortest
    while length <= n_tokens:
        for checkpointing in (False, True):
            rows.append(_row(n_tokens // length, length, checkpointing, precision, n_runs))
        length *= 4
    counts = [int(n_tokens / shortest * 2**i) for i in range(-3, 3)]
    more = [_row(max(1, n), shortest, False, precision, n_runs) for n in counts]
    return {"rows": rows, "growing_batches": more, "precision": precision}


def _row(n_samples: int, length: int, checkpointing: bool, precision: str, n_runs: int) -> dict[str, Any]:
    workload = Workload(n_samples=n_samples, shortest=length, longest=length, channels=1, size="tiny", ratio=0.5)
    row = {"tokens_per_sample": length, "tokens": n_samples * length, "checkpointing": checkpointing}
    return row | measured(workload, "eager", precision, n_runs, checkpointing=checkpointing)

"""The speed of continuous positions beside absolute and quantised ones (the paper's Table 8)."""

from typing import Any

import torch
from jaxtyping import Float32
from torch import Tensor

from romae.benchmark.steps import batch_for, step
from romae.benchmark.timing import milliseconds
from romae.benchmark.workloads import OF_POSITIONS, Workload
from romae.model.rope import AxialRope, Rotation
from romae.model.tasks import MaskedReconstruction


class QuantisedRope(AxialRope):
    """Rotary positions as they are used for pixels: whole numbers, looked up in a table."""

    N_POSITIONS = 128

    def forward(self, positions: Float32[Tensor, "t d"]) -> Rotation:
        whole = torch.arange(self.N_POSITIONS, device=positions.device, dtype=torch.float32)
        table = super().forward(whole[:, None].expand(-1, positions.shape[1]))
        index = positions.round().long().clamp(0, self.N_POSITIONS - 1)
        axis = torch.arange(positions.shape[1], device=positions.device)
        return Rotation(table.cos[index, 0, axis].unsqueeze(1), table.sin[index, 0, axis].unsqueeze(1))


def positions(
    *, workloads: dict[str, Workload] = OF_POSITIONS, n_runs: int = 30, mode: str = "compiled graph"
) -> dict[str, Any]:
    """Milliseconds per step with each kind of positions; speeds are in units of absolute positions."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    mode = mode if device.type == "cuda" else "eager"
    rows = []
    for name, workload in workloads.items():
        times = {}
        for encoding in ("absolute", "quantised", "continuous"):
            torch.compiler.reset()
            task = workload.task(positions="absolute" if encoding == "absolute" else "rope").to(device)
            if encoding == "quantised":
                _quantise(task)
            work = step(task, batch_for(task, workload, mode, device), mode, "bf16" if device.type == "cuda" else "no")
            times[encoding] = milliseconds(work, n_runs)
        row: dict[str, Any] = {"workload": name}
        row |= {f"{encoding}_milliseconds": time.rounded(3) for encoding, time in times.items()}
        medians = {encoding: time.median for encoding, time in times.items()}
        row |= {
            f"{encoding}_speed": round(medians["absolute"] / medians[encoding], 3)
            for encoding in ("quantised", "continuous")
        }
        rows.append(row)
    return {"rows": rows, "mode": mode}


def _quantise(task: MaskedReconstruction) -> None:
    for stack in (task.encoder.transformer, task.decoder.transformer):
        assert stack.rope is not None
        dims, pairs = stack.rope.frequencies.shape
        stack.rope = QuantisedRope(2 * dims * pairs, dims).to(stack.rope.frequencies.device)

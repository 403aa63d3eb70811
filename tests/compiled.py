"""Run by test_compile in a process of its own, where signatures are not checked: compiled against eager.

Prints the largest relative difference of loss and gradients over ragged and equal batches of every task.
"""

import sys

import torch

from romae.model import ModelConfig, Size
from romae.tasks import Classification, MaskedReconstruction
from romae.tokens import Sample, collate

torch.set_num_threads(2)


def batches(device: str):
    generator = torch.Generator().manual_seed(0)
    for lengths in ([7, 3, 12, 12, 1], [6, 6, 6]):
        yield collate(
            [
                Sample(torch.randn(n, 2, generator=generator), torch.rand(n, 2, generator=generator) * 9, target=n % 3)
                for n in lengths
            ]
        ).to(device)


def difference(task: torch.nn.Module, device: str) -> float:
    task = task.to(device)
    compiled = torch.compile(task)
    worst = 0.0
    for batch in batches(device):
        batch = task.prepare(batch, torch.Generator().manual_seed(1))
        results = []
        for run in (task, compiled):
            task.zero_grad()
            loss = run(batch)
            loss.total.backward()
            results.append([loss.total.detach(), *(p.grad.clone() for p in task.parameters())])
        for eager, fast in zip(*results, strict=True):
            worst = max(worst, ((fast - eager).norm() / eager.norm().clamp(min=1e-6)).item())
    return worst


if __name__ == "__main__":
    config = ModelConfig(
        channels=2, position_dims=2, encoder=Size(width=24, heads=2, depth=1), decoder=Size(width=12, heads=1, depth=1)
    )
    torch.manual_seed(0)
    tasks = [MaskedReconstruction(config), Classification(config, 3)]
    print(max(difference(task, sys.argv[1]) for task in tasks))

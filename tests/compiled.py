"""Run by test_compile in a process of its own, where signatures are not checked: compiled against eager.

Prints what it is asked for, as JSON. `tasks` is the largest relative difference of loss and gradients over ragged and
equal batches of every task, or nan if anything is not finite. On a GPU code is generated for the two cases that differ
most; for the others, and on a CPU, compilation ends with the graphs, where the choices of this library are made. A CPU
does the two that differ most. `padded` is the difference of the padded baseline and its number of graphs, and `blocks`
are the losses of a run as it is written and with compiled blocks.
"""

import json
import sys
from dataclasses import replace

import torch

from romae.benchmark.padded import PaddedReconstruction
from romae.benchmark.steps import batch_for
from romae.model.config import ModelConfig, Size
from romae.model.tasks import Classification, MaskedReconstruction, Regression, Task
from romae.tokens.masking import UniformTokens
from romae.tokens.sample import Sample
from romae.tokens.tokens import Batch, collate
from romae.training.config import TrainConfig
from romae.training.loop import train
from test_fast_modes import RAGGED as WORKLOAD
from test_fast_modes import TASKS, series

RAGGED, EQUAL = [7, 3, 12, 12, 1], [6, 6, 6]
GRAPHS = "aot_eager"

torch.set_num_threads(1)
# How long the guards of each graph take is measured with empty caches: an eighth of a second each, for a log.
torch._dynamo.guards.profile_guard_manager = lambda *_: 0.0


def made(task: Task, lengths: list[int]) -> Batch:
    generator = torch.Generator().manual_seed(0)
    values = [torch.randn(n, 2, generator=generator) for n in lengths]
    positions = [torch.rand(n, 2, generator=generator) * 9 for n in lengths]
    targets = [x[:, :1] if isinstance(task, Regression) else len(x) % 3 for x in values]
    samples = [Sample(v, p, target=t) for v, p, t in zip(values, positions, targets, strict=True)]
    return task.prepare(collate(samples), torch.Generator().manual_seed(1))


def difference(task: Task, lengths: list[int], backend: str, device: str) -> torch.Tensor:
    torch.compiler.reset()  # after several versions of one function, the next would run uncompiled
    batch, task = made(task, lengths).to(device), task.to(device)
    results = []
    for run in (task, torch.compile(task, backend=backend)):
        task.zero_grad()
        loss = run(batch)
        loss.total.backward()
        results.append([loss.total.detach(), *(p.grad.clone() for p in task.parameters())])
    errors = [(fast - eager).norm() / eager.norm().clamp(min=1e-6) for eager, fast in zip(*results, strict=True)]
    return torch.stack(errors).max().cpu()


def compile_layers_once(config: ModelConfig, device: str) -> None:
    """Layers that are left out at rates of their own share what is compiled for the first, or this raises."""
    task = Classification(replace(config, encoder=replace(config.encoder, depth=5), stochastic_depth=0.5), 3)
    batch, task = made(task, EQUAL).to(device), task.to(device)
    for block in task.encoder.transformer.blocks:
        block.compile(backend=GRAPHS, dynamic=False)
    with torch._dynamo.config.patch(error_on_recompile=True):
        task(batch)


def of_tasks(device: str) -> float:
    config = ModelConfig(
        channels=2, position_dims=2, encoder=Size(width=24, heads=2, depth=1), decoder=Size(width=12, heads=1, depth=1)
    )
    compile_layers_once(config, device)
    headless, half = replace(config, cls=False, positions="absolute"), UniformTokens(ratio=0.5)
    whole = "inductor" if device == "cuda" else GRAPHS
    torch.manual_seed(0)
    cases = [
        (Classification(config, 3), RAGGED, whole),
        (MaskedReconstruction(replace(headless, queries="joint")), RAGGED, GRAPHS),
    ]
    if device == "cuda":
        cases += [
            (Classification(headless, 3), EQUAL, GRAPHS),
            (MaskedReconstruction(config), RAGGED, GRAPHS),
            (MaskedReconstruction(config, masking=half), EQUAL, whole),
            (Regression(config, per="token"), RAGGED, GRAPHS),
        ]
    # A tensor's maximum is nan where any entry is; Python's max would overlook it.
    return torch.stack([difference(*case, device) for case in cases]).max().item()


def of_the_padded_baseline(device: str) -> tuple[float, int]:
    workload = replace(WORKLOAD, longest=20, size="tiny-shallow", n_samples=4)
    task = workload.task()
    batch, found = batch_for(task, workload, "padded", torch.device(device)), []
    for is_compiled in (False, True):
        model = PaddedReconstruction(task)
        if is_compiled:
            model.compile_blocks(GRAPHS)
        loss = model(batch).mean
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        found.append(torch.cat([x.flatten() for x in (loss, *gradients)]))
    error = float((found[0] - found[1]).norm() / found[0].norm())
    return error, torch._dynamo.utils.counters["stats"]["unique_graphs"]


def of_blocks(device: str) -> list[list[float]]:
    found = []
    for is_compiled in (False, True):
        torch.manual_seed(0)
        task = TASKS["classification"]()
        config = TrainConfig(epochs=2, batch_size=8, lr=1e-3, device=device, compile=is_compiled)
        history = train(task, series(16, target=True), config)  # alone: each other form of a block takes many seconds
        found.append([record["loss"] for record in history.records])
        assert all(module._compiled_call_impl is None for module in task.modules())
        assert (torch._dynamo.utils.counters["stats"]["calls_captured"] > 0) == is_compiled
    return found


PARTS = {"tasks": of_tasks, "padded": of_the_padded_baseline, "blocks": of_blocks}

if __name__ == "__main__":
    device, *parts = sys.argv[1:]
    results = {}
    for part in parts:
        torch.compiler.reset()
        torch._dynamo.utils.counters.clear()
        results[part] = PARTS[part](device)
    print(json.dumps(results))

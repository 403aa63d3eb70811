"""A model spread over several processes, for one that outgrows a card.

Each rank keeps its share of every weight, gradient and moment (PyTorch's fully sharded data parallelism), and a block's
weights come together when it is their turn. On disk nothing differs: tensors are whole there, so that a run may go on,
and a model be loaded, with any number of processes.
"""

from collections.abc import Mapping
from copy import deepcopy

import torch
from torch import Tensor

from romae.model.blocks import Block
from romae.model.tasks import Task


def sharded(task: Task, device: torch.device, n_ranks: int) -> Task:
    """A copy of the task whose weights are spread over all ranks, block by block; the task itself stays as it is."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.type, (n_ranks,))
    copy = deepcopy(task)
    for module in copy.modules():
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh)  # brings its weights to the device, and keeps a share
    fully_shard(copy, mesh=mesh)
    return copy.to(device)


def whole(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors put together, one at a time, on the host; those that are whole stay where they are.

    Every rank has to call it.
    """
    from torch.distributed.tensor import DTensor

    return {name: x.full_tensor().cpu() if isinstance(x, DTensor) else x for name, x in tensors.items()}


def distributed_like(tensors: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Whole tensors spread over the ranks as those of the same name are; every rank has to call it."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    def distribute(name: str, x: Tensor) -> Tensor:
        template = like.get(name)
        if not isinstance(template, DTensor) or x.shape != template.shape:
            return x
        return distribute_tensor(x.to(template.device), template.device_mesh, template.placements)

    return {name: distribute(name, x) for name, x in tensors.items()}

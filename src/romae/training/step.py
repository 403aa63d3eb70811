"""Optimiser steps: batches in, weights changed, the sums of the loss out.

A step is taken as it comes, or recorded once as a CUDA graph and played back: then the host launches one thing instead
of a thousand, which is what small models spend their time on.
"""

import contextlib
import gc
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from romae.model.attention import MOST_PADDING
from romae.model.blocks import Block
from romae.tokens.tokens import Batch
from romae.training.optim import WeightAverage

# Steps from which on preparing a faster one pays: recording takes about a second, compiling about fifteen.
STEPS_TO_RECORD, STEPS_TO_COMPILE = 100, 20_000

Sums = Tensor  # [2]: the sum of the loss and the number of things summed, over all ranks


class Modes(NamedTuple):
    """How steps are taken: with batches of a fixed size, compiled, recorded."""

    is_fixed: bool
    is_compiled: bool
    is_recorded: bool

    @classmethod
    def of(
        cls, config: Any, accelerator: Any, n_steps: int, *, is_windowed: bool = False, padding: float = 1.0
    ) -> "Modes":
        """What the configuration asks for, or what pays where it leaves that open.

        `padding` is how many times its tokens a batch of fixed size has in attention, where that pads.
        """
        on_gpu = accelerator.device.type == "cuda"
        obstacles = {
            "there is no GPU": not on_gpu,
            "several processes share a step": accelerator.num_processes > 1,
            "accumulate divides a step": config.accumulate > 1,
            "fp16 looks at every step's gradients": config.precision == "fp16",
            "nonfinite='skip' looks at every step's loss": config.nonfinite == "skip",
            "attention has a window, cut by the lengths of samples": is_windowed,
            "attention pads (all but bf16 without dropout on its scores does) and the longest sample is more than "
            f"{MOST_PADDING:g} times the mean": padding > MOST_PADDING,
        }
        found = [reason for reason, is_met in obstacles.items() if is_met]
        if config.graph and found:
            raise ValueError(f"a step cannot be recorded as a CUDA graph (graph=True) where {found[0]}")
        is_recorded = (not found and n_steps >= STEPS_TO_RECORD) if config.graph is None else config.graph
        is_compiled = config.compile
        if is_compiled is None:
            is_compiled = is_recorded and n_steps >= STEPS_TO_COMPILE and find_spec("triton") is not None
        may_be_fixed = on_gpu and not is_windowed and padding <= MOST_PADDING
        return cls(may_be_fixed and (is_recorded or is_compiled), is_compiled, is_recorded)


class Step:
    """One optimiser step over the batches that make up this rank's share.

    Where a step is shared by ranks or taken in pieces, gradients are summed in units of its tokens, which all ranks
    know, and divided by the true number of targets once it is known.
    """

    def __init__(
        self,
        accelerator: Any,
        model: nn.Module,
        optimiser: Any,
        clip: float | None,
        is_skipping: bool,
        average: WeightAverage | None,
    ) -> None:
        self.accelerator, self.model, self.optimiser = accelerator, model, optimiser
        self.clip, self.is_skipping, self.average = clip, is_skipping, average
        self.parameters = [p for p in model.parameters() if p.requires_grad]

    def take(self, batches: Iterator[tuple[Batch, float]], n_batches: int, unit: float) -> Sums | None:
        """Each batch comes with 1, or with 0 if it is there to keep ranks together and counts nothing.

        Returns None for a step that was left out because its loss is not a number.
        """
        accelerator = self.accelerator
        is_shared = n_batches > 1 or accelerator.num_processes > 1
        sums = torch.zeros(2, dtype=torch.float64, device=accelerator.device)
        for number, (batch, part) in enumerate(batches, start=1):
            is_last = number == n_batches
            with contextlib.nullcontext() if is_last else accelerator.no_sync(self.model):
                with accelerator.autocast():
                    loss = self.model(batch)
                accelerator.backward(loss.total * (part / unit) if is_shared else loss.mean)
            sums += torch.stack([loss.total.detach().double(), loss.weight]) * part
        sums = accelerator.reduce(sums, "sum")
        accelerator.unscale_gradients(self.optimiser)
        if self.is_skipping and not bool(torch.isfinite(sums[0])):
            self.optimiser.zero_grad()
            return None
        if is_shared:
            gradients = [p.grad for p in self.parameters if p.grad is not None]
            factor = unit * accelerator.num_processes / sums[1].clamp(min=1)
            torch._foreach_mul_(gradients, factor.to(gradients[0].dtype))
        if self.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.clip)
        self.optimiser.step()
        self.optimiser.zero_grad()
        if self.average is not None:
            self.average.update()
        return sums


class Captured:
    """Work on the device, recorded once and played back; it must read and write the same memory every time."""

    @torch.no_grad()
    def __init__(self, work: Callable[[], Tensor], changed: Callable[[], Sequence[Tensor]]) -> None:
        """`changed` are the tensors that the work changes: they are put back after the trials that recording needs."""
        before = [(x, x.clone()) for x in changed()]
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside), torch.enable_grad():
            for _ in range(3):
                work()
        torch.cuda.current_stream().wait_stream(aside)
        for x in changed():  # what is new, such as the moments of an optimiser, begins with zeros
            x.zero_()
        for x, was in before:
            x.copy_(was)
        gc.collect()
        self.graph = torch.cuda.CUDAGraph()
        # Other threads may go on meanwhile, such as one that makes the next batch.
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"), torch.enable_grad():
            self.result = work()

    def play(self) -> Tensor:
        self.graph.replay()
        return self.result


def optimised(optimiser: torch.optim.Optimizer) -> list[Tensor]:
    """Every tensor that an optimiser changes."""
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    return parameters + [x for one in optimiser.state.values() for x in one.values() if isinstance(x, Tensor)]


def compile_blocks(model: nn.Module, *, is_fixed: bool) -> None:
    """Compile the transformer blocks in place; all blocks of a stack share what is compiled for the first."""
    for module in model.modules():
        if isinstance(module, Block):
            module.compile(dynamic=not is_fixed)


def uncompile_blocks(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, Block):
            module._compiled_call_impl = None


def uncompiled() -> contextlib.AbstractContextManager:
    """Within, compiled blocks run as they are written: for batches of another size than they were compiled for."""
    return torch.compiler.set_stance("force_eager")

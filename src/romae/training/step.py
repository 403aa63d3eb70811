"""Optimiser steps: batches in, weights changed, the sums of the loss out.

A step is taken as it comes, or recorded once as a CUDA graph and played back: then the host launches one thing instead
of a thousand, which is what small models spend their time on. `Stepper` holds what a step changes, and chooses.
"""

import contextlib
import gc
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from romae.model.attention import MOST_PADDING
from romae.model.blocks import Block
from romae.model.tasks import Task
from romae.tokens.tokens import Batch
from romae.training.batches import StepShare
from romae.training.config import TrainConfig
from romae.training.optim import WeightAverage, optimiser, warmup_cosine
from romae.training.sharding import distributed_like, sharded, whole

# Steps from which on preparing a faster one pays: recording takes about a second, compiling about fifteen.
STEPS_TO_RECORD, STEPS_TO_COMPILE = 100, 20_000
N_TRIALS = 3  # before a step is recorded, as PyTorch's notes on CUDA graphs advise

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
        reasons = [reason for reason, is_met in obstacles.items() if is_met]
        if config.graph and reasons:
            raise ValueError(f"a step cannot be recorded as a CUDA graph (graph=True) where {reasons[0]}")
        is_recorded = (not reasons and n_steps >= STEPS_TO_RECORD) if config.graph is None else config.graph
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
        if self.is_skipping and not bool(torch.isfinite(sums[0])):
            self.optimiser.zero_grad()  # still scaled, in fp16: the scaler wants a step after each `unscale_`
            return None
        accelerator.unscale_gradients(self.optimiser)
        if is_shared:
            gradients = [p.grad for p in self.parameters if p.grad is not None]
            factor = unit * accelerator.num_processes / torch.where(sums[1] > 0, sums[1], 1.0)
            torch._foreach_mul_(gradients, factor.to(gradients[0].dtype))
        if self.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.clip)
        self.optimiser.step()
        self.optimiser.zero_grad()
        if self.average is not None:
            self.average.update()
        return sums


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """Cycles of objects wait to be freed: memory of the device that is freed while a graph is recorded breaks it.

    To collect them before would do as well, and takes some 0.2 s for each graph.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class Captured:
    """Work on the device, recorded once and played back; it must read and write the same memory every time."""

    @torch.no_grad()
    def __init__(
        self,
        work: Callable[[], Tensor],
        changed: Callable[[], Sequence[Tensor]],
        pool: Any = None,
        n_trials: int = N_TRIALS,
    ) -> None:
        """`changed` are the tensors that the work changes: they are put back after the trials that recording needs.

        Recordings of one `pool` share their memory: the result of one is gone once another is played.
        """
        before = [(x, x.clone()) for x in changed()]
        # Trials come first, on a stream of their own: they make what is made once, such as the moments of an optimiser,
        # the workspaces of cuBLAS and compiled kernels, none of which may be made while a graph is recorded.
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(aside), torch.enable_grad():
                for _ in range(n_trials):
                    work()
        finally:  # also where a trial fails, so that the weights are those of before
            torch.cuda.current_stream().wait_stream(aside)
            for x in changed():  # what is new, such as the moments of an optimiser, begins with zeros
                x.zero_()
            for x, initial in before:
                x.copy_(initial)
        self.graph = torch.cuda.CUDAGraph()
        # Other threads may go on meanwhile, such as one that makes the next batch.
        recording = torch.cuda.graph(self.graph, pool=pool, capture_error_mode="thread_local")
        with _without_collection(), recording, torch.enable_grad():
            self.result = work()

    def play(self) -> Tensor:
        self.graph.replay()
        return self.result


class Stepper:
    """What is trained, and how a step is taken: model, optimiser, averaged weights, and the modes of its steps."""

    def __init__(self, task: Task, config: TrainConfig, accelerator: Any, modes: Modes, n_steps: int) -> None:
        self.config, self.accelerator, self.modes, self.n_steps = config, accelerator, modes, n_steps
        self.device = accelerator.device
        self.module = sharded(task, self.device, accelerator.num_processes) if config.shard else task
        plain = optimiser(
            self.module,
            config.optimiser,
            lr=config.lr,
            betas=config.betas,
            momentum=config.momentum,
            weight_decay=config.weight_decay,
            is_fused=self.device.type == "cuda" or (self.device.type == "cpu" and not config.shard),
            is_captured=modes.is_recorded,
        )
        if config.shard:
            self.model, self.optimiser = self.module, accelerator.prepare(plain)
        else:
            self.model, self.optimiser = accelerator.prepare(task, plain)
        self.average = None if config.ema is None else WeightAverage(self.module, config.ema)
        self.step = Step(accelerator, self.model, self.optimiser, config.clip, config.nonfinite == "skip", self.average)
        self.captured: Captured | None = None
        self.lr = torch.zeros((), device=self.device)  # where a recorded step looks for the rate
        self.n_warmup = round(config.warmup * n_steps) if config.warmup < 1 else int(config.warmup)

    def take(self, share: StepShare, step: int) -> Sums | None:
        """Step number `step` over this rank's share of its batch; None where it was left out."""
        self._set_rate(self.config.lr * warmup_cosine(step, n_steps=self.n_steps, n_warmup=self.n_warmup))
        if self.modes.is_recorded and share.has_fixed_shape:
            [(batch, _)] = share.batches()
            return self._played(batch)
        is_off_shape = self.modes.is_fixed and not share.has_fixed_shape
        with uncompiled() if is_off_shape else contextlib.nullcontext():
            return self.step.take(share.batches(), len(share), float(share.n_tokens_of_step))

    def _played(self, batch: Batch) -> Sums:
        """A step of a recorded graph, which is recorded here at the first."""
        if self.captured is None:

            def work() -> Sums:
                sums = self.step.take(iter([(batch, 1.0)]), 1, 1.0)
                assert sums is not None
                return sums

            def changed() -> list[Tensor]:
                averaged = [] if self.average is None else list(self.average.weights.values())
                return optimised(self.plain_optimiser) + averaged

            random = torch.cuda.get_rng_state(self.device)
            try:
                self.captured = Captured(work, changed)
            except RuntimeError as error:  # a task of the user's own may look at numbers on the device
                self.optimiser.zero_grad()  # of a trial that did not come to its end
                _restart_generator(self.device, random)
                if self.config.graph:
                    raise
                reason = str(error).splitlines()[0]
                warnings.warn(
                    f"a step could not be recorded as a CUDA graph ({reason}), so steps are taken as they come; "
                    "with graph=False they are from the start",
                    stacklevel=2,
                )
                self.modes = self.modes._replace(is_recorded=False)
                return work()
        return self.captured.play()

    def _set_rate(self, lr: float) -> None:
        rate: float | Tensor = self.lr.fill_(lr) if self.modes.is_recorded else lr
        for group in self.optimiser.param_groups:
            group["lr"] = rate

    @property
    def rate(self) -> float:
        """The learning rate of the last step."""
        return float(self.optimiser.param_groups[0]["lr"])

    @property
    def plain_optimiser(self) -> torch.optim.Optimizer:
        """The optimiser without what Accelerate puts around it."""
        return getattr(self.optimiser, "optimizer", self.optimiser)

    def averaged(self) -> contextlib.AbstractContextManager:
        """Within, the averaged weights are in the model, where there are any."""
        return contextlib.nullcontext() if self.average is None else self.average.applied()

    def weights(self) -> dict[str, Tensor]:
        """The weights that are in the model now, whole. Every rank has to call it."""
        return whole(self.module.state_dict())

    def final_weights(self) -> dict[str, Tensor]:
        """The weights that people want: the averaged ones, where there are any. Every rank has to call it."""
        return whole(self.module.state_dict() if self.average is None else self.average.weights)

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """What a state keeps of it, whole and by name. Every rank has to call it; without shards nothing is copied."""
        groups = {"model": self.weights(), "optimiser": whole(optimiser_tensors(self.plain_optimiser))}
        if self.average is not None:
            groups["average"] = whole(self.average.weights)
        return groups

    def load_tensors(self, groups: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Put back what `tensors` gave, on any number of ranks."""
        now = self.module.state_dict()
        self.module.load_state_dict(distributed_like(groups["model"], now))
        moments: Mapping[str, Tensor] = groups["optimiser"]
        if self.config.shard:  # they are spread as the parameters that they belong to
            parameters = enumerate(p for group in self.optimiser.param_groups for p in group["params"])
            like = {f"{i}.{name}": p for i, p in parameters for name in {key.partition(".")[2] for key in moments}}
            moments = distributed_like(moments, like)
        load_optimiser_tensors(self.plain_optimiser, moments)
        if self.average is not None:
            self.average.load(distributed_like(groups["average"], now))


def _restart_generator(device: torch.device, state: Tensor) -> None:
    """Bring the generator of a GPU back to a state of before a recording that failed.

    It still counts itself as recorded then, and refuses to draw, so it gets a new state in the place of the old one.
    """
    fresh = torch.Generator(device)
    fresh.set_state(state)
    index = torch.cuda.current_device() if device.index is None else device.index
    torch.cuda.default_generators[index].graphsafe_set_state(fresh.graphsafe_get_state())


def optimiser_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The state of an optimiser as flat tensors, by parameter number and name."""
    state = optimiser.state_dict()["state"]
    return {
        f"{i}.{name}": torch.as_tensor(x)
        for i, moments in state.items()
        for name, x in moments.items()
        if x is not None
    }


def load_optimiser_tensors(optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put the tensors of `optimiser_tensors` back."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        number, _, name = key.partition(".")
        state.setdefault(int(number), {})[name] = value
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})


def optimised(optimiser: torch.optim.Optimizer) -> list[Tensor]:
    """Every tensor that an optimiser changes."""
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    moments = [x for state in optimiser.state.values() for x in state.values() if isinstance(x, Tensor)]
    return parameters + moments


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

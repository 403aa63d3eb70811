"""Answers to batches of a few fixed shapes, each recorded once as a CUDA graph and played back for every batch.

A small model spends most of its time on the host, which launches hundreds of kernels for each batch; a recording is
three copies and one launch. Recordings are kept with their task, so that the parts of a long table share them.

Shapes: b samples, t tokens, q queries, d position dimensions, c values.
"""

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float, Float32, Int32
from torch import Tensor, nn

from romae.inference.shapes import LengthClass
from romae.model.tasks import Task
from romae.tokens.layout import Layout
from romae.tokens.tokens import Tokens
from romae.training.fixed_shape import FixedShape, TokenRoom
from romae.training.step import Captured, compile_blocks

N_TRIALS = 1  # before answers are recorded: no gradients and no other processes, which take more
MOST_RECORDED = 24  # shapes of one task
RECOMPILATIONS = 64  # of the blocks: one for each shape and precision

# A row for each sample, or for each query; the batch has a layout on the device alone where it is recorded.
Ask = Callable[[Tokens, "Asked | None"], Tensor]


class Asked(NamedTuple):
    """The positions that samples are asked for, as the model sees them, and how many belong to each."""

    positions: Float32[Tensor, "q d"]
    layout: Layout


class Question(NamedTuple):
    """What is asked of samples: under which name it is recorded, and whether it may be."""

    name: str
    ask: Ask
    may_be_recorded: bool = True


class Recorded:
    """The memory of batches of one shape, and their answers: recorded on a GPU, computed as they come elsewhere."""

    def __init__(self, shape: FixedShape, like: Tokens) -> None:
        device, n = like.device, shape.n_samples
        self.shape = shape
        self.captured: Captured | None = None
        values = like.values.new_zeros(shape.tokens.n_tokens, like.channels)
        positions = like.positions.new_zeros(shape.tokens.n_tokens, like.position_dims)
        self.tokens = Tokens(values, positions, _fixed(shape.tokens, n, device))
        self.asked: Asked | None = None
        if shape.hidden is not None:
            places = like.positions.new_zeros(shape.hidden.n_tokens, like.position_dims)
            self.asked = Asked(places, _fixed(shape.hidden, n, device))

    def record(self, ask: Ask, pool: Any) -> None:
        """Record the answers; RuntimeError where that cannot be."""
        if self.tokens.device.type == "cuda":
            self.captured = Captured(lambda: self._answers(ask), list, pool=pool, n_trials=N_TRIALS)

    def _answers(self, ask: Ask) -> Tensor:
        with torch.no_grad():
            return ask(self.tokens, self.asked)

    def play(
        self,
        ask: Ask,
        tokens: tuple[Float[Tensor, "t c"], Float32[Tensor, "t d"], Int32[Tensor, "_"]],
        asked: tuple[Float32[Tensor, "q d"], Int32[Tensor, "_"]] | None,
    ) -> Tensor:
        """The answers to a batch, in memory that the next one takes; what fills it up does not count."""
        values, positions, offsets = tokens
        self.tokens.values[: len(values)].copy_(values)
        self.tokens.positions[: len(positions)].copy_(positions)
        self.tokens.layout.offsets.copy_(offsets)
        if asked is not None:
            assert self.asked is not None
            self.asked.positions[: len(asked[0])].copy_(asked[0])
            self.asked.layout.offsets.copy_(asked[1])
        return self._answers(ask) if self.captured is None else self.captured.play()


def _fixed(room: TokenRoom, n_samples: int, device: torch.device) -> Layout:
    """A layout whose offsets may change; samples share its tokens evenly at first."""
    offsets = torch.linspace(0, room.n_tokens, n_samples + 1, dtype=torch.float64).round().int().to(device)
    return Layout.fixed(offsets, room.n_tokens, room.longest, room.is_equal)


class Recorder:
    """The recordings of one task. They read its weights where they lie, so that they hold as long as those stay."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.weights: tuple[Any, ...] = ()
        self.recorded: dict[Any, Recorded | None] = {}
        self.seen: dict[Any, dict[LengthClass, int]] = {}
        self.pool: Any = None

    def renewed(self, task: Task) -> None:
        """Forget what was recorded with other weights than those that the task has now."""
        weights = _weights(task)
        if weights != self.weights or len(self.recorded) >= MOST_RECORDED:
            self.recorded, self.seen, self.pool, self.weights = {}, {}, None, weights

    def make(self, key: Any, task: Task, question: Question, one: LengthClass, like: Tokens, *, compiled: bool) -> None:
        """Record a shape, unless that was done, or tried in vain."""
        if key in self.recorded:
            return
        if self.pool is None and like.device.type == "cuda":
            self.pool = torch.cuda.graph_pool_handle()
        try:
            recorded = Recorded(one.shape, like)
            with _compiled(task) if compiled else nullcontext():
                recorded.record(question.ask, self.pool)
            self.recorded[key] = recorded
        except RuntimeError as error:
            self.recorded[key] = None
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            warnings.warn(
                f"answers could not be recorded as a CUDA graph ({reason}), so batches are answered as they come",
                stacklevel=2,
            )


_RECORDERS: WeakKeyDictionary[Task, Recorder] = WeakKeyDictionary()
_RECORDERS_LOCK = threading.Lock()


def recorder_of(task: Task) -> Recorder:
    """The recordings that were made of a task."""
    with _RECORDERS_LOCK:
        return _RECORDERS.setdefault(task, Recorder())


def _weights(task: Task) -> tuple[Any, ...]:
    """What changes where a recording would read other memory than that of the weights, or compute otherwise."""
    tensors = [*task.named_parameters(), *task.named_buffers()]
    here = tuple((name, x.data_ptr(), x.dtype, tuple(x.shape)) for name, x in tensors)
    return *here, task.scaling


def can_be_recorded(task: Task) -> bool:
    """Whether a task computes what its layers say and nothing else: all of them ours or torch's, without hooks.

    Hooks, adapters such as LoRA and forwards of a user's own are called batch by batch, as they expect.
    """
    from torch.nn.modules import module as of_all

    hooks_of_all = (of_all._global_forward_hooks, of_all._global_forward_pre_hooks)
    if any(hooks_of_all) or task.config.window is not None:
        return False
    devices = {parameter.device for parameter in task.parameters()}
    return len(devices) == 1 and all(map(_is_plain, task.modules()))


def _is_plain(module: nn.Module) -> bool:
    home = type(module).__module__
    is_known = home.startswith(("romae.model.", "torch.nn.modules."))
    return is_known and not (module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module))


@contextmanager
def _compiled(task: Task) -> Iterator[None]:
    """Blocks are compiled for what is recorded within, and afterwards run as they did."""
    from torch import _dynamo

    before = {module: module._compiled_call_impl for module in task.modules()}  # a user may have compiled some
    compile_blocks(task, is_fixed=True)
    try:
        with _dynamo.config.patch(recompile_limit=RECOMPILATIONS):
            yield
    finally:
        for module, compiled in before.items():
            module._compiled_call_impl = compiled

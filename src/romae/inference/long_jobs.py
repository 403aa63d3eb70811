"""Long jobs on a card: samples brought there and scaled there many at a time, and answers recorded for fixed shapes.

What a small model spends its time on is the host: packing and scaling batch after batch, and launching hundreds of
kernels for each. So samples come to the card by the million tokens, as they lie, and are checked, scaled and sorted by
length there, by a thread, while the card answers for those before. Batches are cut from what is sorted and filled up
to one of a few shapes, for which the forward pass was recorded once as a CUDA graph: then a batch is three copies and
one launch. Recordings are kept with the task, so that the parts of a long table share them.

    samples ── a slab: copied, scaled, sorted ──> batch | batch | … ──> shapes by length ──> graph ──> rows of the slab

Everything here runs on a CPU as well, where shapes are played as they come; tests do that. Shapes: b samples, t tokens,
q queries, d position dimensions, k outputs.
"""

import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64, Int32, Int64
from torch import Tensor, nn

from romae.model.attention import HAS_TRITON
from romae.model.tasks import Task
from romae.tokens.layout import Layout
from romae.tokens.tokens import Batch, PackedSamples, Tokens
from romae.training.fixed_shape import TOKEN_MULTIPLE, FixedShape, TokenRoom
from romae.training.step import Captured, compile_blocks

TOKENS_PER_SLAB, NUMBERS_PER_SLAB = 1 << 20, 1 << 24  # with copies in double precision some hundred MB on the card
FEWEST_BATCHES = 8  # of a job that is taken for long, and of a shape that is recorded: recording takes four of them
TOKENS_TO_COMPILE = 1_000_000_000  # of one call: compiling takes seconds for each shape
SHORTEST_CLASS = 16  # tokens, CLS included; samples are put into classes of 16, 32, 64 … tokens at most
FEWEST_IN_BATCH = 4  # of the longest samples of a class; longer ones are answered as they come
MOST_UNEVEN = 4  # times the mean number of queries that a sample may have where answers are recorded
SECONDS_FOR_OTHERS = 60.0  # that a thread waits for another which answers from the same recordings
MOST_RECORDED = 24  # shapes of one task
RECOMPILATIONS = 64  # of the blocks: one for each shape and precision

Switch = bool | None
T = TypeVar("T")
# A row for each sample, or for each query; the batch has a layout on the device alone where it is recorded.
Ask = Callable[[Tokens, "Asked | None"], Tensor]


class Modes(NamedTuple):
    """How long jobs are answered: None where it is left to what pays."""

    slabs: Switch = None
    graph: Switch = None
    compile: Switch = None


_LEFT_OPEN = Modes()
_MODES: ContextVar[Modes] = ContextVar("modes", default=_LEFT_OPEN)


@contextmanager
def answering(*, slabs: Switch = None, graph: Switch = None, compile: Switch = None) -> Iterator[None]:
    """Within, long jobs are answered in these modes, for those who measure or doubt them.

    Parameters
    ----------
    slabs : bool, optional
        Whether samples are scaled on the device, many at a time. By default they are not: that has been checked on CPUs
        alone.
    graph : bool, optional
        Whether answers are recorded for fixed shapes. By default where samples come in slabs and the model is of this
        library, without hooks; True does not change that it must be.
    compile : bool, optional
        Whether what is recorded is compiled first. By default from a billion tokens on.

    Examples
    --------
    >>> from romae.inference.long_jobs import answering
    >>> with answering(graph=False):
    ...     pass  # romae.predict(task, samples)
    """
    token = _MODES.set(Modes(slabs, graph, compile))
    try:
        yield
    finally:
        _MODES.reset(token)


class Asked(NamedTuple):
    """The positions that samples are asked for, as the model sees them, and how many belong to each."""

    positions: Float32[Tensor, "q d"]
    layout: Layout


class Question(NamedTuple):
    """What is asked of samples: under which name it is recorded, and whether it may be."""

    name: str
    ask: Ask
    may_be_recorded: bool = True


class Slab(NamedTuple):
    """Many samples on the device, scaled and sorted by length, and their places in the source.

    `sizes` are their tokens, `origins` what scaling has subtracted from their positions, and `places` what they are
    asked for.
    """

    indices: Int64[np.ndarray, "b"]
    sizes: Int64[np.ndarray, "b"]
    tokens: Tokens
    origins: Float64[Tensor, "b d"] | None
    places: "Places | None" = None

    @property
    def tensors(self) -> list[Tensor]:
        """All that lies on the device."""
        found = [self.tokens.values, self.tokens.positions, self.tokens.layout.offsets]
        found += [] if self.origins is None else [self.origins]
        return found if self.places is None else [*found, self.places.positions, self.places.centre, self.places.scale]


class Places(NamedTuple):
    """The positions that samples are asked for, as the model sees them, and how many each; what undoes the scaling."""

    positions: Float32[Tensor, "q d"]
    counts: Int64[np.ndarray, "b"]
    centre: Float64[Tensor, "_ c"]
    scale: Float64[Tensor, "_ c"]


def is_long(device: torch.device, n_tokens: int, budget: int) -> bool:
    """Whether a job is answered in slabs: where that is asked for, on a GPU if it is long enough to pay."""
    if not _MODES.get().slabs:
        return False
    return device.type != "cuda" or n_tokens >= FEWEST_BATCHES * budget


def tokens_per_slab(task: Task, budget: int) -> int:
    """How many tokens are scaled at once: fewer where they hold many numbers, such as patches of images."""
    width = task.config.channels + task.config.position_dims
    return max(min(TOKENS_PER_SLAB, NUMBERS_PER_SLAB // width), budget)


# Slabs


def slab_of(
    packed: PackedSamples,
    indices: Int64[np.ndarray, "b"],
    device: torch.device,
    prepare: Callable[[PackedSamples], Batch],
) -> Slab:
    """Samples that hide nothing, brought to the device, prepared and sorted there.

    What is wrong with them is found on the device; who it is, is asked on the host once more.
    """
    try:
        batch = prepare(on_device(packed, device))
    except (ValueError, TypeError, RuntimeError):
        batch = prepare(packed)
    return sorted_by_length(batch, packed, indices)


def on_device(packed: PackedSamples, device: torch.device) -> PackedSamples:
    """Samples in the data's own units, brought to the device."""
    values, positions = packed.values.to(device), packed.positions.to(device)
    return replace(packed, values=values, positions=positions, layout=packed.layout.to(device))


def sorted_by_length(batch: Batch, packed: PackedSamples, indices: Int64[np.ndarray, "b"]) -> Slab:
    """What was made of samples, on the device that it is on."""
    sizes = packed.layout.lengths.numpy()
    order = np.argsort(sizes, kind="stable")
    origins = batch.origins
    if origins is not None:
        origins = origins.index_select(0, torch.from_numpy(order).to(origins.device))
    return Slab(indices[order], sizes[order], taken(batch.tokens, sizes, order), origins)


def taken(tokens: Tokens, sizes: Int64[np.ndarray, "b"], order: Int64[np.ndarray, "n"]) -> Tokens:
    """The samples at these places, gathered on the device that they are on."""
    chosen = sizes[order]
    shifts = (np.cumsum(sizes) - sizes)[order] - (np.cumsum(chosen) - chosen)
    device, n = tokens.device, int(chosen.sum())
    lengths, by = (torch.from_numpy(x).to(device) for x in (chosen, shifts))
    rows = torch.repeat_interleave(by, lengths, output_size=n) + torch.arange(n, device=device)
    values, positions = tokens.values.index_select(0, rows), tokens.positions.index_select(0, rows)
    return Tokens(values, positions, Layout.of(torch.from_numpy(chosen), device))


class Aside:
    """Work of another thread on a stream of its own, so that what it waits for is its own alone."""

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def slabs(self, make: Iterator[Slab]) -> Iterator[tuple[Slab, Any]]:
        """The slabs, each with what tells that it is there; to be asked for by the other thread."""
        while True:
            with nullcontext() if self.stream is None else torch.cuda.stream(self.stream):
                slab = next(make, None)
                if slab is None:
                    return
                arrived = None if self.stream is None else self.stream.record_event()
            yield slab, arrived


def here(slab: Slab, arrived: Any) -> Slab:
    """A slab for this thread's stream, which waits for it."""
    if arrived is not None:
        now = torch.cuda.current_stream(slab.tokens.device)
        now.wait_event(arrived)
        for part in slab.tensors:
            part.record_stream(now)  # its memory is not given to the next slab while this stream reads it
    return slab


class Leaving:
    """Rows on their way to the host, which does not wait for them until they are asked for."""

    def __init__(self, rows: Tensor) -> None:
        self.event = None
        if rows.device.type == "cuda":
            self.rows = torch.empty(rows.shape, dtype=rows.dtype, pin_memory=True)
            self.rows.copy_(rows, non_blocking=True)
            self.event = torch.cuda.current_stream(rows.device).record_event()
        else:
            self.rows = rows

    def get(self) -> Tensor:
        """The rows on the host."""
        if self.event is not None:
            self.event.synchronize()
        return self.rows


def in_advance(items: Iterator[T], n: int) -> Iterator[T]:
    """The same items, up to n of them made by a thread before they are asked for; an error comes in its place."""
    end: Any = object()
    with ThreadPoolExecutor(1) as thread:
        waiting = deque(thread.submit(next, items, end) for _ in range(n))
        while (item := waiting.popleft().result()) is not end:
            waiting.append(thread.submit(next, items, end))
            yield item


# Shapes


class Class(NamedTuple):
    """Samples of so many tokens at most, asked for so many positions at most; the shape of their batches."""

    shape: FixedShape
    longest: int
    most_queries: int

    def cuts(
        self, sizes: Int64[np.ndarray, "b"], queries: Int64[np.ndarray, "b"] | None
    ) -> Iterator[tuple[int, int, Layout, Layout | None]]:
        """Where samples are cut into batches, and the layouts that are filled up to the shape."""
        shape, n = self.shape, self.shape.n_samples
        rooms = [(shape.tokens, sizes, 1)]
        if queries is not None and shape.hidden is not None:
            rooms.append((shape.hidden, queries, 0))
        limits: list[tuple[np.ndarray, int]] = []
        for room, counts, at_least in rooms:
            if not room.is_equal:
                # Fillers have at least so many tokens, and at most as many as the longest sample.
                limits.append((_running(counts - at_least), room.n_tokens - at_least * n))
                limits.append((_running(room.longest - counts), n * room.longest - room.n_tokens))
        most = n if shape.tokens.is_equal else n - 1
        start = 0
        while start < len(sizes):
            ends = [int(np.searchsorted(sums, sums[start] + limit, side="right")) - 1 for sums, limit in limits]
            stop = max(min([start + most, len(sizes), *ends]), start + 1)
            filled = [
                room.filled(Layout.of(torch.from_numpy(counts[start:stop])), n, least) for room, counts, least in rooms
            ]
            if any(layout is None for layout in filled):
                raise RuntimeError(f"samples {start} to {stop} do not fit into {shape}")
            yield start, stop, filled[0], filled[1] if len(filled) > 1 else None  # type: ignore[misc]
            start = stop


def _running(counts: Int64[np.ndarray, "b"]) -> Int64[np.ndarray, "_"]:
    """How much there is before each, and in all."""
    return np.concatenate([[0], np.cumsum(counts)])


def classes_of(
    sizes: Int64[np.ndarray, "b"],
    queries: Int64[np.ndarray, "b"] | None,
    budget: int,
    *,
    cls: bool,
    seen: dict[Class, int] | None = None,
) -> list[Class]:
    """Shapes for these samples, from short to long: for classes of length that make enough batches.

    `seen` counts what calls have had of each shape, this one included. Samples of a class that makes few batches go
    into the next. Shapes follow from classes, not from samples, so that others of the same kind find them again.
    """
    seen = {} if seen is None else seen
    if sizes.min() == sizes.max() and (queries is None or queries.min() == queries.max()):
        one = _equal(int(sizes[0]), None if queries is None else int(queries[0]), budget, cls)
        if one is None:
            return []
        seen[one] = seen.get(one, 0) + int(sizes.sum() + (0 if queries is None else queries.sum()))
        return [one] if seen[one] >= FEWEST_BATCHES * budget else []
    found: list[Class] = []
    classes = _class_of(sizes + cls)
    below = 0, 0  # the class before, where it makes too few batches: its top, and its tokens and queries
    for top in np.unique(classes).tolist():
        chosen = classes == top
        asked = None if queries is None else queries[chosen]
        cost = int(sizes[chosen].sum()) + (0 if asked is None else int(asked.sum()))
        cost += below[1] if 2 * below[0] == top else 0
        one = _shape(top, sizes[chosen], asked, budget, cls)
        if one is not None:
            cost = seen[one] = seen.get(one, 0) + cost
        if one is not None and cost >= FEWEST_BATCHES * budget:
            found.append(one)
            below = 0, 0
        else:
            below = top, cost
    return found


def _class_of(n: Int64[np.ndarray, "b"]) -> Int64[np.ndarray, "b"]:
    """The power of two that so many tokens fit into."""
    return 2 ** np.ceil(np.log2(np.maximum(n, SHORTEST_CLASS))).astype(np.int64)


def _shape(
    top: int, sizes: Int64[np.ndarray, "b"], queries: Int64[np.ndarray, "b"] | None, budget: int, cls: bool
) -> Class | None:
    longest = top - cls
    share, most_queries = 1.0, 0
    if queries is not None:
        if queries.max() > MOST_UNEVEN * queries.mean():
            return None
        most_queries = int(_class_of(queries.max()[None])[0])
        # To the next of a few ratios, so that other samples of the kind have the same shape.
        ratio = 2.0 ** (round(4 * np.log2(queries.sum() / sizes.sum())) / 4)
        share = 1 / (1 + ratio)
    n_tokens = int(budget * share) // TOKEN_MULTIPLE * TOKEN_MULTIPLE
    n_queries = 0 if queries is None else (budget - n_tokens) // TOKEN_MULTIPLE * TOKEN_MULTIPLE
    n_samples = n_tokens // max(top // 2, FEWEST_IN_BATCH) + 2
    if queries is not None:
        n_samples = max(n_samples, n_queries // most_queries + 2)
    if longest * FEWEST_IN_BATCH > n_tokens or most_queries * FEWEST_IN_BATCH > n_queries or n_samples > n_tokens:
        return None
    hidden = None if queries is None else TokenRoom(n_tokens=n_queries, longest=most_queries)
    tokens = TokenRoom(n_tokens=n_tokens, longest=longest)
    return Class(FixedShape(n_samples=n_samples, tokens=tokens, hidden=hidden), longest, most_queries)


def _equal(size: int, n_queries: int | None, budget: int, cls: bool) -> Class | None:
    """The shape of samples that all have as many tokens and queries."""
    n_samples = budget // (size + cls + (n_queries or 0))
    if n_samples < FEWEST_IN_BATCH or n_queries == 0:
        return None
    tokens = TokenRoom(n_tokens=n_samples * size, longest=size, is_equal=True)
    hidden = None
    if n_queries is not None:
        hidden = TokenRoom(n_tokens=n_samples * n_queries, longest=n_queries, is_equal=True)
    return Class(FixedShape(n_samples=n_samples, tokens=tokens, hidden=hidden), size, n_queries or 0)


# Recordings


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
            self.captured = Captured(lambda: self._answers(ask), list, pool=pool)

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
        self.seen: dict[Any, dict[Class, int]] = {}
        self.pool: Any = None

    def renewed(self, task: Task) -> None:
        """Forget what was recorded with other weights than those that the task has now."""
        weights = _weights(task)
        if weights != self.weights or len(self.recorded) >= MOST_RECORDED:
            self.recorded, self.seen, self.pool, self.weights = {}, {}, None, weights

    def make(self, key: Any, task: Task, question: Question, one: Class, like: Tokens, *, compiled: bool) -> None:
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


# Answers


@dataclass(frozen=True, eq=False)
class Job:
    """A question to many samples: in which precision, and what is recorded of it."""

    task: Task
    question: Question
    budget: int
    precision: Literal["float32", "tf32", "bf16"]
    device: torch.device
    recordings: Mapping[Class, Recorded]

    @classmethod
    @contextmanager
    def of(
        cls,
        task: Task,
        question: Question,
        sizes: Int64[np.ndarray, "b"],
        queries: Int64[np.ndarray, "b"] | None,
        budget: int,
        precision: Literal["float32", "tf32", "bf16"],
    ) -> Iterator["Job"]:
        """The job, with what it needs recorded; a thread that waits too long for others does without."""
        modes, device = _MODES.get(), next(task.parameters()).device
        job = cls(task, question, budget, precision, device, {})
        recorder = recorder_of(task)
        may_record = modes.graph is not False and question.may_be_recorded and can_be_recorded(task)
        if not (may_record and recorder.lock.acquire(timeout=SECONDS_FOR_OTHERS)):
            yield job
            return
        stack = ExitStack()
        try:
            stack.enter_context(nullcontext() if device.type != "cuda" else torch.cuda.device(device))
            recorder.renewed(task)
            n = int(sizes.sum()) + (0 if queries is None else int(queries.sum()))
            compiled = HAS_TRITON and n >= TOKENS_TO_COMPILE if modes.compile is None else modes.compile
            how = question.name, precision, torch.backends.cuda.matmul.allow_tf32, compiled
            seen = recorder.seen.setdefault((how, budget), {})
            classes = classes_of(sizes, queries, budget, cls=task.config.cls, seen=seen)
            for one in classes:
                with job.computing():
                    recorder.make((*how, one), task, question, one, job._like(), compiled=compiled)
            found = {one: recorder.recorded[*how, one] for one in classes}
            yield replace(job, recordings={one: recorded for one, recorded in found.items() if recorded is not None})
        finally:
            stack.close()
            recorder.lock.release()

    def _like(self) -> Tokens:
        """A token as samples come in slabs."""
        weight, config, scaling = next(self.task.encoder.parameters()), self.task.config, self.task.scaling
        dtype = torch.float32 if scaling is not None and scaling.centres_samples else weight.dtype
        values = torch.zeros(1, config.channels, dtype=dtype, device=self.device)
        return Tokens(values, torch.zeros(1, config.position_dims, device=self.device), Layout.of([1], self.device))

    def computing(self) -> AbstractContextManager[Any]:
        """In half precision weights are cast where they are used: what was cast before is gone at the next call."""
        enabled = self.precision == "bf16"
        return torch.autocast(self.device.type, torch.bfloat16, enabled=enabled, cache_enabled=False)

    def answers(self, slab: Slab, advance: Callable[[int], None]) -> Tensor:
        """The rows of a slab, on the device: one for each sample, or for each query of each."""
        counts = None if slab.places is None else slab.places.counts
        rows: Tensor | None = None
        tokens_before = _running(slab.sizes)
        rows_before = np.arange(len(slab.sizes) + 1) if counts is None else _running(counts)
        for start, stop, output in self._batches(slab, tokens_before, rows_before):
            first, last = int(rows_before[start]), int(rows_before[stop])
            if rows is None:
                rows = output.new_empty(int(rows_before[-1]), *output.shape[1:])
            rows[first:last].copy_(output[: last - first])
            advance(int(tokens_before[stop] - tokens_before[start]) + (0 if counts is None else last - first))
        assert rows is not None  # no slab is empty
        return rows

    def _batches(
        self, slab: Slab, tokens_before: Int64[np.ndarray, "_"], rows_before: Int64[np.ndarray, "_"]
    ) -> Iterator[tuple[int, int, Tensor]]:
        """The answers to batches of a slab, from where to where they are."""
        classes = list(self.recordings)
        counts = None if slab.places is None else slab.places.counts
        chosen = _class_of_samples(classes, slab.sizes, counts)
        edges = [0, *(np.flatnonzero(np.diff(chosen)) + 1).tolist(), len(chosen)]
        for first, last in zip(edges[:-1], edges[1:], strict=True):
            if chosen[first] == len(classes):
                yield from self._as_they_come(slab, tokens_before, rows_before, first, last)
                continue
            one = classes[int(chosen[first])]
            cuts = list(one.cuts(slab.sizes[first:last], None if counts is None else counts[first:last]))
            offsets = _together([layout.offsets for _, _, layout, _ in cuts], self.device)
            of_places = _together([layout.offsets for *_, layout in cuts if layout is not None], self.device)
            for number, (begin, end, *_) in enumerate(cuts):
                start, stop = first + begin, first + end
                part = slice(int(tokens_before[start]), int(tokens_before[stop]))
                mine = slab.tokens.values[part], slab.tokens.positions[part], offsets[number]
                asked = None
                if slab.places is not None:
                    here = slice(int(rows_before[start]), int(rows_before[stop]))
                    asked = slab.places.positions[here], of_places[number]
                with self.computing():
                    output = self.recordings[one].play(self.question.ask, mine, asked)
                yield start, stop, output

    def _as_they_come(
        self,
        slab: Slab,
        tokens_before: Int64[np.ndarray, "_"],
        rows_before: Int64[np.ndarray, "_"],
        first: int,
        last: int,
    ) -> Iterator[tuple[int, int, Tensor]]:
        """Batches that nothing was recorded for."""
        costs, places = slab.sizes[first:last] + self.task.config.cls, slab.places
        if places is not None:
            costs = costs + places.counts[first:last]
        for run in runs(costs.tolist(), self.budget):
            start, stop = first + run.start, first + run.stop
            part = slice(int(tokens_before[start]), int(tokens_before[stop]))
            layout = Layout.of(torch.from_numpy(slab.sizes[start:stop]), self.device)
            tokens = Tokens(slab.tokens.values[part], slab.tokens.positions[part], layout)
            asked = None
            if places is not None:
                counts = Layout.of(torch.from_numpy(places.counts[start:stop]), self.device)
                asked = Asked(places.positions[int(rows_before[start]) : int(rows_before[stop])], counts)
            yield start, stop, self.question.ask(tokens, asked)


def _class_of_samples(
    classes: Sequence[Class], sizes: Int64[np.ndarray, "b"], counts: Int64[np.ndarray, "b"] | None
) -> Int64[np.ndarray, "b"]:
    """The number of the first class that each sample fits into, one beyond the last where it fits into none."""
    chosen = np.full(len(sizes), len(classes))
    for number, one in reversed(list(enumerate(classes))):
        tokens, hidden = one.shape.tokens, one.shape.hidden
        # Samples of a much shorter class would leave most of a batch to fillers.
        shortest = 0 if one.longest <= SHORTEST_CLASS else one.longest // 4
        fits = sizes == one.longest if tokens.is_equal else (sizes <= one.longest) & (sizes > shortest)
        if counts is not None and hidden is not None:
            fits = fits & (counts == one.most_queries if hidden.is_equal else counts <= one.most_queries)
        chosen[fits] = number
    return chosen


def _together(offsets: Sequence[Int32[Tensor, "_"]], device: torch.device) -> Int32[Tensor, "n _"]:
    """The offsets of many batches, in one copy to the device that nobody waits for."""
    if not offsets:
        return torch.zeros(0, 0, dtype=torch.int32)
    together = torch.stack(list(offsets))
    return together.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else together


def runs(costs: list[int], budget: int) -> Iterator[slice]:
    """Stretches of neighbours that fit into the budget together; one that exceeds it stands alone."""
    start, total = 0, 0
    for i, cost in enumerate(costs):
        if i > start and total + cost > budget:
            yield slice(start, i)
            start, total = i, 0
        total += cost
    if costs:
        yield slice(start, len(costs))

"""Long jobs on a card: samples scaled there many at a time, and answers recorded for fixed shapes.

What a small model spends its time on is the host: packing and scaling batch after batch, and launching hundreds of
kernels for each. So samples come to the card by the million tokens (slabs.py), batches are cut from what is sorted
there and filled up to one of a few shapes (shapes.py), for which the forward pass was recorded (recordings.py).

    samples ── a slab: copied, scaled, sorted ──> batch | batch | … ──> shapes by length ──> graph ──> rows of the slab

Everything here runs on a CPU as well, where shapes are played as they come; tests do that. Shapes: b samples, n of
some.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Int32, Int64
from torch import Tensor

from romae.inference.recordings import Asked, Question, Recorded, can_be_recorded, recorder_of
from romae.inference.shapes import FEWEST_BATCHES, LengthClass, before_each, class_of_samples, classes_of
from romae.inference.slabs import Slab
from romae.model.attention import HAS_TRITON
from romae.model.tasks import Task
from romae.tokens.layout import Layout
from romae.tokens.tokens import Tokens

TOKENS_PER_SLAB, NUMBERS_PER_SLAB = 1 << 20, 1 << 24  # with copies in double precision some hundred MB on the card
TOKENS_TO_COMPILE = 1_000_000_000  # of one call: compiling takes seconds for each shape
SECONDS_FOR_OTHERS = 60.0  # that a thread waits for another which answers from the same recordings

Precision = Literal["float32", "tf32", "bf16"]
Switch = bool | None


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
        Whether samples are scaled on the device, many at a time. By default they are on a GPU, in bfloat16.
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


def is_long(device: torch.device, n_tokens: int, budget: int, precision: Precision) -> bool:
    """Whether a job is answered in slabs.

    By default on a GPU in bfloat16, if it is long enough to pay: with products in single precision the card is what
    takes the time, and filling batches up costs more than launching their kernels.
    """
    is_wanted, on_gpu = _MODES.get().slabs, device.type == "cuda"
    if is_wanted is None:
        is_wanted = on_gpu and precision == "bf16"
    return is_wanted and (not on_gpu or n_tokens >= FEWEST_BATCHES * budget)


def tokens_per_slab(task: Task, budget: int) -> int:
    """How many tokens are scaled at once: fewer where they hold many numbers, such as patches of images."""
    width = task.config.channels + task.config.position_dims
    return max(min(TOKENS_PER_SLAB, NUMBERS_PER_SLAB // width), budget)


@dataclass(frozen=True, eq=False)
class Job:
    """A question to many samples: in which precision, and what is recorded of it."""

    task: Task
    question: Question
    budget: int
    precision: Precision
    device: torch.device
    recordings: Mapping[LengthClass, Recorded]

    @classmethod
    @contextmanager
    def of(
        cls,
        task: Task,
        question: Question,
        sizes: Int64[np.ndarray, "b"],
        queries: Int64[np.ndarray, "b"] | None,
        budget: int,
        precision: Precision,
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
        tokens_before = before_each(slab.sizes)
        rows_before = np.arange(len(slab.sizes) + 1) if counts is None else before_each(counts)
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
        chosen = class_of_samples(classes, slab.sizes, counts)
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

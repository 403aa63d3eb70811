"""What training on the future comes to with these samples: how far it looks, and which samples have none.

Shapes: b samples, t tokens of all samples.
"""

import warnings
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch

from romae.data.fitting import READ_AT_ONCE
from romae.data.sources import Source, evenly
from romae.model.tasks import Task
from romae.tokens.cuts import extremes
from romae.tokens.masking import Future, RandomSource, SampleKeys, SparingStatic, drawn_by, futures_in
from romae.tokens.tokens import Batch

DRAWS = (-1, -2, -3, -4)  # epochs that no training has: a sample counts that cannot be cut in any of these draws
MOST_READ = 512  # samples that are not in memory


@dataclass
class Ahead:
    """How many samples were looked at, how many of them cannot be cut, and the longest look ahead."""

    n: int = 0
    n_without_past: int = 0
    n_without_future: int = 0
    horizon: float | None = None

    def warn(self, masking: Any, subject: str) -> None:
        """One warning for the samples that are left out of the loss, if there are any."""
        reasons = [
            f"{n} of {self.n} {subject} have nothing to predict {where} the cut"
            for n, where in ((self.n_without_past, "before"), (self.n_without_future, "after"))
            if n > 0
        ]
        if reasons:
            warnings.warn(
                f"{' and '.join(reasons)} of {_in_short(masking)}; they are left out of the loss",
                stacklevel=4,
            )


def _in_short(masking: Any) -> str:
    """A masking with the settings that are not its defaults."""
    if not isinstance(masking, Future):
        return type(masking).__name__
    given = [(one.name, getattr(masking, one.name)) for one in fields(masking)]
    plain = Future()
    shown = ", ".join(f"{name}={value!r}" for name, value in given if value != getattr(plain, name))
    return f"Future({shown})"


def look_ahead(task: Task, source: Source, seed: int) -> Ahead:
    """How a masking that hides the future of samples cuts these, which are scaled; of others nothing is said.

    Of samples that are read from a disk some are looked at.
    """
    found, masking = Ahead(), getattr(task, "masking", None)
    futures = futures_in(masking)
    if not futures or not source.is_quick:
        return found
    chosen = np.arange(len(source)) if source.is_in_memory else evenly(len(source), MOST_READ)
    for start in range(0, len(chosen), READ_AT_ONCE):
        indices = chosen[start : start + READ_AT_ONCE]
        batch = source.batch(indices)
        if batch.hidden is not None:
            continue  # these samples say themselves what they hide
        draws = [_drawn(task, masking, batch, SampleKeys(seed, epoch, torch.from_numpy(indices))) for epoch in DRAWS]
        found.n += len(batch)
        if draws[0].lacks_past is not None:
            no_past = torch.stack([drawn.lacks_past for drawn in draws])
            lacking = (no_past | torch.stack([drawn.lacks_future for drawn in draws])).all(0)
            found.n_without_past += int((lacking & no_past[0]).sum())
            found.n_without_future += int((lacking & ~no_past[0]).sum())
        horizons = [_horizon(task, future, batch) for future in futures]
        found.horizon = max((x for x in (found.horizon, *horizons) if x is not None), default=None)
    return found


def _drawn(task: Task, masking: Any, batch: Batch, source: RandomSource) -> Any:
    first = task.config.static_from
    masking = masking if first is None else SparingStatic(masking, first)
    return drawn_by(masking, batch.tokens, source, task.clock(batch))  # type: ignore[operator]


def _horizon(task: Task, future: Future, batch: Batch) -> float | None:
    """From the last time that is seen before the earliest cut to the last that is predicted, in the data's own time."""
    earliest = future
    for name in ("after", "share"):
        if isinstance(ends := getattr(future, name), tuple):
            earliest = replace(earliest, **{name: ends[0]})
    hidden = _drawn(task, earliest, batch, None).hidden
    if not bool(hidden.any()):
        return None
    axis = future.axis % batch.tokens.position_dims
    layout, times = batch.tokens.layout, batch.tokens.positions[:, axis].double()
    first, _ = extremes(torch.where(hidden, times, torch.inf), layout)
    _, last = extremes(torch.where(hidden, times, -torch.inf), layout)
    is_before = ~hidden & (times < first[layout.sample_of_token])
    _, seen = extremes(torch.where(is_before, times, -torch.inf), layout)
    ahead = (last - seen)[torch.isfinite(last) & torch.isfinite(seen)]
    if len(ahead) == 0:
        return None
    clock = task.clock(batch)  # type: ignore[operator]
    longest = float(ahead.max()) * clock.unit(axis)
    # Behind a gap a cut may lie far from what is seen, and the horizon is what was meant to be learned.
    return longest if future.horizon is None else min(longest, clock.duration(future.horizon))

"""How long something takes, and how much memory it needs."""

import platform
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch


class Spread(NamedTuple):
    """The median of several runs, and the quarter and three-quarter points."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, numbers: Sequence[float] | np.ndarray) -> "Spread":
        low, median, high = np.percentile(numbers, [25, 50, 75])
        return cls(float(median), float(low), float(high))

    def rounded(self, digits: int = 2) -> dict[str, float]:
        return {name: round(value, digits) for name, value in self._asdict().items()}


def milliseconds(run: Callable[[], object], n_runs: int = 20, *, n_warm: int = 3) -> Spread:
    """Time one run after another, each to its end on the device."""
    times = []
    for _ in range(n_runs + n_warm):
        wait()
        started = time.perf_counter()
        run()
        wait()
        times.append(1e3 * (time.perf_counter() - started))
    return Spread.of(times[n_warm:])


def wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def peak_gib(run: Callable[[], object]) -> float | None:
    """The most memory of the GPU that a run took at a time; what was in use before it does not count."""
    if not torch.cuda.is_available():
        run()
        return None
    wait()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    wait()
    return (torch.cuda.max_memory_allocated() - before) / 2**30


def machine() -> dict[str, Any]:
    return {
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "processor": platform.machine(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }

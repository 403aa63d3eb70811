"""From a store to packed batches: tokens per second, memory and start-up."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from romae.data.loader import Loader
from romae.data.store import Store, write_store
from romae.tokens.sample import Sample


def loading(folder: str | Path = ".", *, n_samples: int = 50_000, memory_budget: int = 8 << 20) -> dict[str, Any]:
    """Light curves of 20 to 200 tokens from a store to packed batches.

    Three figures: tokens per second on one core; memory while a store ten times its budget is read, in a process of
    its own; and how long a store of a million short samples takes to open.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        store = write_store(curves(n_samples, 20, 200), Path(name) / "curves.arrow")
        rates = [_tokens_per_second(store, epoch) for epoch in range(3)]
        n_bytes = store.path.stat().st_size
        budget = min(memory_budget, n_bytes // 10)
        growth = _memory_growth(store.path, budget)
        many = write_store(curves(1_000_000, 1, 3), Path(name) / "many.arrow").path
        started = time.perf_counter()
        opened = Loader(Store(many), batch_size=1024, shuffle=True)
        next(opened.epoch())
        start_up = time.perf_counter() - started
    return {
        "tokens_per_second": round(float(np.median(rates))),
        "tokens_per_second_runs": [round(rate) for rate in rates],
        "store_bytes": n_bytes,
        "memory_budget_bytes": budget,
        "memory_growth_bytes": growth,
        "start_up_seconds_for_a_million_samples": round(start_up, 3),
    }


def curves(n_samples: int, shortest: int, longest: int) -> Iterator[Sample]:
    random = np.random.default_rng(0)
    for i in range(n_samples):
        n = int(random.integers(shortest, longest + 1))
        yield Sample(random.random((n, 2), dtype=np.float32), random.random((n, 2)), target=i % 14, id=i)


def _tokens_per_second(store: Store, epoch: int) -> float:
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    started, n_tokens = time.perf_counter(), 0
    for batch in Loader(store, batch_size=1024, shuffle=True).epoch(epoch):
        assert batch is not None
        n_tokens += batch.tokens.layout.n_tokens
    torch.set_num_threads(n_threads)
    return n_tokens / (time.perf_counter() - started)


def _memory_growth(path: Path, budget: int) -> int:
    """How much a fresh process grows while it reads the whole store once, after its first batches."""
    code = "import sys; from romae.benchmark.loading import read_all; read_all(sys.argv[1], int(sys.argv[2]))"
    done = subprocess.run([sys.executable, "-c", code, path, str(budget)], capture_output=True, text=True, check=True)
    return int(done.stdout)


def read_all(path: str, budget: int) -> None:
    """Read a store in random order and print by how many bytes this process grew on the way."""
    batches = Loader(Store(path, memory_budget=budget), batch_size=64, shuffle=True).epoch()
    for _ in range(5):
        next(batches)
    before = peak = resident_bytes()
    for _ in batches:
        peak = max(peak, resident_bytes())
    print(peak - before)


def resident_bytes() -> int:
    """The memory that this process has now; the most that it ever had where the system does not tell more."""
    try:
        n_pages = Path("/proc/self/statm").read_text().split()[1]
        return int(n_pages) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024

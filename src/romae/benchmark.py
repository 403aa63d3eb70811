"""Benchmarks: figures that anyone can have again on their own machine, as JSON."""

import json
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from romae.data.loading import Loader
from romae.data.store import Store, write_store
from romae.layout import Layout
from romae.tokens import Batch, Sample


def loading(folder: str | Path, *, n_samples: int = 50_000, memory_budget: int = 8 << 20) -> dict[str, Any]:
    """Light curves of 20 to 200 tokens from a store to packed batches.

    Three figures: tokens per second on one core; memory while a store ten times its budget is read, in a process of
    its own; and how long a store of a million short samples takes to open.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        curves = write_store(_curves(n_samples, 20, 200), Path(name) / "curves.arrow")
        rates = [_tokens_per_second(curves, epoch) for epoch in range(3)]
        n_bytes = curves.path.stat().st_size
        budget = min(memory_budget, n_bytes // 10)
        growth = _memory_growth(curves.path, budget)
        many = write_store(_curves(1_000_000, 1, 3), Path(name) / "many.arrow").path
        started = time.perf_counter()
        opened = Loader(Store(many), batch_size=1024, shuffle=True)
        next(opened.epoch())
        start_up = time.perf_counter() - started
    return {
        "benchmark": "loading",
        "tokens_per_second": round(float(np.median(rates))),
        "tokens_per_second_runs": [round(rate) for rate in rates],
        "store_bytes": n_bytes,
        "memory_budget_bytes": budget,
        "memory_growth_bytes": growth,
        "start_up_seconds_for_a_million_samples": round(start_up, 3),
        "machine": machine(),
    }


def attention(*, n_runs: int = 9) -> dict[str, Any]:
    """Ragged attention beside padding to the longest sample: the same mathematics, forward and backward, in one run."""
    from romae.attention import attend

    device = "cuda" if torch.cuda.is_available() else "cpu"
    random = np.random.default_rng(0)
    cases = {
        "light curves": np.where(np.arange(256) < 8, 220, random.integers(20, 146, 256)),
        "ICU records": np.where(np.arange(16) < 2, 1300, random.integers(100, 820, 16)),
        "short series": np.where(np.arange(512) < 16, 40, random.integers(4, 28, 512)),
        "equal lengths": np.full(64, 100),
    }
    rows = []
    for name, lengths in cases.items():
        layout = Layout.of(lengths.tolist(), device)
        q, k, v = (torch.randn(layout.n_tokens, 3, 60, device=device, requires_grad=True) for _ in range(3))
        ours, padded = attend(q, k, v, layout), _padded_attention(q, k, v, layout)
        times = {
            "ragged": _median_milliseconds(partial(attend, q, k, v, layout), n_runs),
            "padded": _median_milliseconds(partial(_padded_attention, q, k, v, layout), n_runs),
        }
        rows.append(
            {
                "case": name,
                "useful_share": round(float(lengths.mean() / lengths.max()), 3),
                "largest_difference": (ours - padded).detach().abs().max().item(),
                **{f"{kind}_milliseconds": round(value, 2) for kind, value in times.items()},
                "times_faster": round(times["padded"] / times["ragged"], 2),
            }
        )
    return {"benchmark": "attention", "rows": rows, "threads": torch.get_num_threads(), "machine": machine()}


def _padded_attention(q: Tensor, k: Tensor, v: Tensor, layout: Layout) -> Tensor:
    """What people do otherwise: pad to the longest sample and mask."""
    n, columns = layout.n_samples, torch.arange(layout.longest, device=q.device)
    valid = columns < layout.device_lengths.unsqueeze(-1)
    places = valid.flatten().nonzero().squeeze(-1)

    def padded(x: Tensor) -> Tensor:
        rows = x.new_zeros(valid.numel(), *x.shape[1:]).index_copy(0, places, x)
        return rows.unflatten(0, (n, layout.longest)).transpose(1, 2)

    mask = valid[:, None, None, :]
    out = torch.nn.functional.scaled_dot_product_attention(padded(q), padded(k), padded(v), attn_mask=mask)
    return out.transpose(1, 2).flatten(0, 1).index_select(0, places)


def _median_milliseconds(run: Callable[[], Tensor], n_runs: int) -> float:
    times = []
    for _ in range(n_runs + 2):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        started = time.perf_counter()
        run().sum().backward()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - started))
    return float(np.median(times[2:]))


def write(result: dict[str, Any], path: str | Path) -> Path:
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=2) + "\n")
    return path


def machine() -> dict[str, Any]:
    return {
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "processor": platform.machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def _curves(n_samples: int, shortest: int, longest: int) -> Iterator[Sample]:
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
    code = "import sys; from romae.benchmark import read_all; read_all(sys.argv[1], int(sys.argv[2]))"
    done = subprocess.run([sys.executable, "-c", code, path, str(budget)], capture_output=True, text=True, check=True)
    return int(done.stdout)


def read_all(path: str, budget: int) -> None:
    """Read a store in random order and print by how many bytes this process grew on the way."""
    import psutil

    process = psutil.Process()
    batches = Loader(Store(path, memory_budget=budget), batch_size=64, shuffle=True).epoch()
    for _ in range(5):
        next(batches)
    before = peak = process.memory_info().rss
    for _ in batches:
        peak = max(peak, process.memory_info().rss)
    print(peak - before)


def loop(*, n_steps: int = 100, workers: int = 2) -> dict[str, Any]:
    """What the training loop costs: its time per step beside forward, backward and optimiser alone.

    Both run the same model over batches of the same kind; alone, the batches lie ready on the device.
    """
    from romae.model import ModelConfig, Size
    from romae.optim import optimiser
    from romae.tasks import MaskedReconstruction
    from romae.tokens import collate
    from romae.training import TrainConfig, train

    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if on_gpu else "cpu")
    size = Size(width=768, heads=12, depth=4) if on_gpu else Size(width=48, heads=2, depth=3)
    batch_size = 256 if on_gpu else 32
    config = ModelConfig(channels=2, position_dims=2, encoder=size, decoder=size)
    settings = TrainConfig(
        epochs=1,
        batch_size=batch_size,
        workers=workers,
        precision="bf16" if on_gpu else "float32",
        warmup=0,
        validate_every=n_steps // 4,
    )
    samples = list(_curves(batch_size * n_steps, 20, 200))
    task = MaskedReconstruction(config).to(device)
    made = optimiser(task, "adamw", lr=1e-4, betas=(0.9, 0.95), momentum=0.9, weight_decay=0.05)
    ready = [task.prepare(collate(samples[i : i + batch_size]).to(device)) for i in range(0, len(samples), batch_size)]

    def step(batch: Batch) -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=on_gpu):
            loss = task(batch)
        loss.mean.backward()
        torch.nn.utils.clip_grad_norm_(task.parameters(), 1.0)
        made.step()
        made.zero_grad()

    def alone() -> float:
        started = time.perf_counter()
        for batch in ready:
            step(batch)
        if on_gpu:
            torch.cuda.synchronize()
        return (time.perf_counter() - started) / n_steps

    def looped() -> float:
        """From the first report, when all is warm, to the last; a report waits for the device."""
        moments: list[float] = []
        train(
            MaskedReconstruction(config),
            samples,
            settings,
            log=lambda *_: moments.append(time.perf_counter()),
            title="loop",
        )
        return (moments[-1] - moments[0]) / (n_steps - n_steps // 4)

    alone()
    runs = [(alone(), looped()) for _ in range(5)]
    bare, whole = (float(np.median([run[i] for run in runs])) for i in (0, 1))
    return {
        "benchmark": "loop",
        "milliseconds_per_step": round(1e3 * whole, 3),
        "milliseconds_per_step_without_the_loop": round(1e3 * bare, 3),
        "overhead_share": round(whole / bare - 1, 4),
        "runs": [[round(1e3 * x, 3) for x in run] for run in runs],
        "machine": machine(),
    }

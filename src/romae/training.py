"""Training: the only loop. It works for every task, and every step draws its randomness from (seed, step) alone."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch

from romae.data.loading import Loader
from romae.optim import optimiser, warmup_cosine
from romae.tasks import Loss, Task
from romae.tokens import Batch, Sample

Log = Callable[[int, Mapping[str, float]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """How to train. `warmup` is a number of steps, or a share of all steps if it is below 1."""

    epochs: int = 10
    batch_size: int | None = 64
    tokens_per_batch: int | None = None
    optimiser: Literal["adamw", "sgd"] = "adamw"
    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.95)
    momentum: float = 0.9
    weight_decay: float = 0.05
    warmup: float = 0.1
    clip: float | None = 1.0
    precision: Literal["float32", "bf16", "fp16"] = "float32"
    device: Literal["auto", "cpu"] = "auto"
    workers: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise ValueError(f"epochs must be at least 1, not {self.epochs}")
        if not self.lr > 0:
            raise ValueError(f"lr must be above 0, not {self.lr}")
        if self.warmup < 0:
            raise ValueError(f"warmup is a number of steps or a share of them, not {self.warmup}")
        if self.clip is not None and not self.clip > 0:
            raise ValueError(f"clip must be above 0, or none to leave gradients alone, not {self.clip}")


@dataclass(slots=True)
class History:
    """What happened: one record per epoch."""

    records: list[dict[str, float]] = field(default_factory=list)

    @property
    def last(self) -> dict[str, float]:
        return self.records[-1]


def train(
    task: Task,
    samples: Sequence[Sample],
    config: TrainConfig,
    *,
    validation: Sequence[Sample] | None = None,
    log: Log | None = None,
    title: str = "training",
) -> History:
    """Train a task in place and return its history; the validation masks are the same in every epoch."""
    from accelerate import Accelerator

    mixed = {"float32": "no"}.get(config.precision, config.precision)
    accelerator = Accelerator(mixed_precision=mixed, cpu=config.device == "cpu")
    if accelerator.num_processes > 1:
        raise ValueError("training runs in one process; start it without a launcher")
    loader = Loader(
        samples,
        batch_size=None if config.tokens_per_batch else config.batch_size,
        tokens_per_batch=config.tokens_per_batch,
        shuffle=True,
        seed=config.seed,
        workers=config.workers,
        pin=accelerator.device.type == "cuda",
    )
    made = optimiser(
        task,
        config.optimiser,
        lr=config.lr,
        betas=config.betas,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
    )
    model, stepper = accelerator.prepare(task, made)
    plans = [len(loader.plan(epoch)) for epoch in range(config.epochs)]
    n_steps = sum(plans)
    n_warmup = round(config.warmup * n_steps) if config.warmup < 1 else int(config.warmup)
    history, step = History(), 0
    with _Progress(title, n_steps) as advance:
        for epoch in range(config.epochs):
            model.train()
            started = time.perf_counter()
            total, weight = torch.zeros(2, dtype=torch.float64, device=accelerator.device)
            for batch in loader.epoch(epoch):
                assert batch is not None  # there is one rank
                for group in stepper.param_groups:
                    group["lr"] = config.lr * warmup_cosine(step, n_steps=n_steps, n_warmup=n_warmup)
                generator = _seeded(config.seed, step)
                prepared = task.prepare(batch, generator).to(accelerator.device, non_blocking=True)
                with accelerator.autocast():
                    loss: Loss = model(prepared)
                accelerator.backward(loss.total / loss.weight.clamp(min=1))
                if config.clip is not None:
                    accelerator.clip_grad_norm_(model.parameters(), config.clip)
                stepper.step()
                stepper.zero_grad()
                total, weight = total + loss.total.detach(), weight + loss.weight
                step += 1
                advance(1, "")
            record = {"epoch": epoch + 1, "step": step, "loss": _mean(total, weight)}
            record["seconds"] = round(time.perf_counter() - started, 3)
            if validation is not None:
                record["validation"] = evaluate(task, validation, config)
            history.records.append(record)
            advance(0, " ".join(f"{k} {v:.4g}" for k, v in record.items() if k in ("loss", "validation")))
            if log is not None:
                log(step, record)
    task.eval()
    return history


@torch.no_grad()
def evaluate(task: Task, samples: Sequence[Sample], config: TrainConfig) -> float:
    """The mean loss over samples, with masks that depend on the seed alone."""
    was_training = task.training
    task.eval()
    device = next(task.parameters()).device
    total, weight = 0.0, 0.0
    loader = Loader(samples, batch_size=config.batch_size or 64)
    for number, batch in enumerate(loader):
        assert isinstance(batch, Batch)
        loss = task(task.prepare(batch, _seeded(config.seed, number)).to(device))
        total, weight = total + loss.total, weight + loss.weight
    task.train(was_training)
    return _mean(total, weight)


def _seeded(*key: int) -> torch.Generator:
    """A generator for this key, with the global one (dropout, stochastic depth) seeded alike."""
    words = np.random.SeedSequence(key).generate_state(2)
    torch.manual_seed(int(words[0]))
    return torch.Generator().manual_seed(int(words[1]))


def _mean(total: torch.Tensor | float, weight: torch.Tensor | float) -> float:
    return float(total) / max(float(weight), 1.0)


class _Progress:
    """A progress bar on a terminal, plain lines elsewhere."""

    def __init__(self, title: str, n_steps: int) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self.title, self.is_terminal = title, sys.stderr.isatty()
        columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()]
        self.bar = Progress(*columns, TextColumn("{task.fields[news]}"))
        self.task = self.bar.add_task(title, total=n_steps, news="")

    def __enter__(self) -> Callable[[int, str], None]:
        if self.is_terminal:
            self.bar.start()
        return self.advance

    def advance(self, n: int, news: str) -> None:
        if self.is_terminal:
            self.bar.advance(self.task, n)
            if news:
                self.bar.update(self.task, news=news)
        elif news:
            print(f"{self.title}: {news}", file=sys.stderr)

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

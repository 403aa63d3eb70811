"""Training: the only loop. It serves every task, on CPU and GPU, in one process or many, and can be resumed exactly.

What a step draws at random follows from the seed and the step, and what a sample draws from the seed, the epoch and
the sample. So a state needs no random state, and the number of ranks changes nothing but rounding.
"""

import contextlib
import json
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from romae.capacity import Filled
from romae.checkpoint import described, read_json
from romae.config import differences, from_dict, to_dict
from romae.data.loading import Loader
from romae.data.packed import packed
from romae.data.scaling import Scaling, scaled
from romae.data.series import SampleSet, require_same_names
from romae.evaluation import evaluate
from romae.feeding import Feed
from romae.guards import LossWatch, stop_signals
from romae.model import ModelConfig
from romae.optim import WeightAverage, optimiser, warmup_cosine
from romae.preparation import Piece
from romae.progress import Progress
from romae.runs import History, Run, State, digest_of, fill_optimiser, optimiser_tensors
from romae.seeds import seed_step
from romae.sharding import sharded, spread, whole
from romae.steps import Captured, Modes, Step, compile_blocks, optimised, uncompile_blocks, uncompiled
from romae.tasks import Regression, Task
from romae.tokens import Sample
from romae.train_config import FREE, TrainConfig, chosen_device

Log = Callable[[int, Mapping[str, float]], None]
REQUEUE = 75  # EX_TEMPFAIL: a batch system may start the run again


class Interrupted(Exception):
    """The run was asked to stop, has saved its state, and can be resumed."""


def train(
    task: Task,
    samples: Sequence[Sample],
    config: TrainConfig,
    *,
    validation: Sequence[Sample] | None = None,
    scaling: Scaling | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    log: Log | None = None,
    title: str = "training",
    quiet: bool = False,
) -> History:
    """Train a task in place and return its history.

    With a `scaling`, samples are handed over as they were read, and the task keeps it for its predictions. Without one,
    they are taken as they are. The task keeps the names of a `SampleSet` as well.

    With `out`, the run leaves states, a history and its best and last model in that folder, and `resume=True` goes on
    from the newest whole state, if there is one. With validation samples, the task ends with the weights of the best
    validation. `quiet` shows no progress.
    """
    _require_kinds_of_arguments(samples, config)
    _require_names_alike(task, samples, validation)
    for part in (samples, validation):
        require_numbers(task, part)
    if scaling is None and task.scaling is not None:
        raise ValueError(
            "the task has a scaling, which its predictions apply; train with it, scaling=task.scaling, or forget it: "
            "task.scaling = None"
        )
    if task.schema is None and isinstance(samples, SampleSet):
        # Dates that someone has scaled are no longer counted as the names say.
        task.schema = None if scaling is None and samples.schema.time_unit is not None else samples.schema
    if scaling is not None:
        if task.config.kinds is not None:
            scaling.require_still_channels()
        task.scaling = scaling
        samples, validation = scaled(samples, scaling), None if validation is None else scaled(validation, scaling)
    trainer = _Trainer(task, samples, config, validation, out, resume, log, title, quiet)
    try:
        return trainer.train()
    finally:
        trainer.let_go()


def _require_kinds_of_arguments(samples: Any, config: Any) -> None:
    if not isinstance(config, TrainConfig):
        raise TypeError(f"config is a TrainConfig, for example TrainConfig(epochs=5), not {type(config).__name__}")
    if not hasattr(samples, "__len__") or not hasattr(samples, "__getitem__"):
        raise TypeError(f"samples are a list, a SampleSet or a store, not {type(samples).__name__}; list(…) makes one")
    if len(samples) and not isinstance(samples[0], Sample):
        raise TypeError(
            f"samples are instances of Sample, and the first is {type(samples[0]).__name__}; romae.from_arrays, "
            "from_table and the like make them"
        )


def _require_names_alike(task: Task, samples: Sequence[Sample], validation: Sequence[Sample] | None) -> None:
    """Refuse samples that call other things by the same numbers than the task, or than the other samples."""
    known = samples.schema if isinstance(samples, SampleSet) else task.schema
    if isinstance(samples, SampleSet) and task.schema is not None:
        others = "the task knows"
        require_same_names(samples.schema, task.schema, whose="samples", others=others, with_classes=True)
    if isinstance(validation, SampleSet) and known is not None:
        others = "the samples to train on have"
        require_same_names(validation.schema, known, whose="validation samples", others=others, with_classes=True)


def require_numbers(task: Task, samples: Sequence[Sample] | None) -> None:
    """Refuse classes where numbers are to be learned."""
    classes = samples.schema.classes if isinstance(samples, SampleSet) else None
    if not isinstance(task, Regression) or samples is None or classes is None or samples[0].target is None:
        return
    if not samples[0].target.is_floating_point():
        raise ValueError(
            f"the labels {', '.join(map(repr, classes[:3]))}{', …' * (len(classes) > 3)} were read as classes, and a "
            "regression learns numbers; give them as floats, for example y.astype(float)"
        )


class _Trainer:
    """The loop and what it keeps between steps."""

    def __init__(
        self,
        task: Task,
        samples: Sequence[Sample],
        config: TrainConfig,
        validation: Sequence[Sample] | None,
        out: str | Path | None,
        resume: bool,
        log: Log | None,
        title: str,
        quiet: bool,
    ) -> None:
        from accelerate import Accelerator
        from accelerate.state import AcceleratorState

        if config.patience is not None and validation is None:
            raise ValueError("patience stops when the validation loss no longer falls; give validation samples as well")
        self.task, self.config, self.log, self.title, self.quiet = task, config, log, title, quiet
        mixed = config.precision if config.precision in ("bf16", "fp16") else "no"
        trackers = require_trackers(config.trackers)
        AcceleratorState._reset_state()  # an earlier run in this process may have had another precision
        on_cpu = chosen_device(config.device) == "cpu"
        if on_cpu and config.precision == "fp16":
            raise ValueError("precision 'fp16' needs a GPU; use 'bf16' or 'float32' on a CPU")
        self.accelerator = Accelerator(
            mixed_precision=mixed, cpu=on_cpu, log_with=trackers, project_dir=str(out or "runs")
        )
        self.device, self.is_first = self.accelerator.device, self.accelerator.is_main_process
        torch.backends.cuda.matmul.allow_tf32 = config.precision == "tf32"
        self.samples, self.validation = samples, validation
        self.claimed: Run | None = None
        self.held_validation = None if validation is None else packed(validation) or validation
        self.feed = Feed(task, samples, config, self.accelerator)
        self.n_steps = sum(self.feed.n_batches)
        self.modes = Modes.of(
            config,
            self.accelerator,
            self.n_steps,
            is_windowed=task.config.window is not None,
            padding=self.feed.padding_factor,
        )
        self.module = self._spread_out() if config.shard else task  # what is trained; on one rank alone, the task
        made = optimiser(
            self.module,
            config.optimiser,
            lr=config.lr,
            betas=config.betas,
            momentum=config.momentum,
            weight_decay=config.weight_decay,
            is_fused=self.device.type == "cuda",
            is_captured=self.modes.is_recorded,
        )
        if config.shard:
            self.model, self.optimiser = self.module, self.accelerator.prepare(made)
        else:
            self.model, self.optimiser = self.accelerator.prepare(task, made)
        self.n_warmup = round(config.warmup * self.n_steps) if config.warmup < 1 else int(config.warmup)
        self.average = None if config.ema is None else WeightAverage(self.module, config.ema)
        self.take = Step(
            self.accelerator, self.model, self.optimiser, config.clip, config.nonfinite == "skip", self.average
        ).take
        self.captured: Captured | None = None
        self.lr = torch.zeros((), device=self.device)
        self.step, self.epoch, self.batch = 0, 0, 0
        self.best_loss, self.best_step, self.n_worse = float("inf"), 0, 0
        self.best_weights: dict[str, Tensor] | None = None
        self.sums = torch.zeros(2, dtype=torch.float64, device=self.device)  # loss and weight since the last report
        self.history, self.is_asked_to_stop = History(), False
        self.out, self.is_resumed = out, resume
        self.run: Run | None = None  # opened when training begins, so that what is refused is let go as well
        self.watch = LossWatch(lambda: "no state is kept" if self.run is None else self.run.last_state())

    # The loop

    def train(self) -> History:
        started = time.perf_counter()
        self.run = self._opened(self.out, self.is_resumed)
        if self.config.trackers:
            settings = {name: str(value) for name, value in to_dict(self.config).items()}
            self.accelerator.init_trackers("romae", config=settings)
        trivial = self.feed.trivial_loss(self.feed.loader, "there is nothing to learn from these samples")
        if self.held_validation is not None:
            loader = Loader(self.held_validation, batch_size=1)
            self.feed.trivial_loss(loader, "the validation samples cannot be judged")
        self.model.train()
        self.feed.make_ready(is_fixed=self.modes.is_fixed)
        if self.modes.is_compiled:
            compile_blocks(self.module, is_fixed=self.modes.is_fixed)
        shown = Progress(self.title, self.n_steps, start=self.step, is_shown=self.is_first and not self.quiet)
        with shown, contextlib.nullcontext() if self.run is None else stop_signals(self._ask_to_stop):
            for pieces in self._left():
                n_tokens = self._step(pieces)
                self.step, self.batch = self.step + 1, self.batch + 1
                shown.advance(n_tokens)
                if self.batch == self.feed.n_batches[self.epoch]:
                    self.epoch, self.batch = self.epoch + 1, 0
                self._after_step(shown, trivial)
                if self._is_over():
                    break
        self.watch.check()
        self._finish()
        self.history.seconds = time.perf_counter() - started
        return self.history

    @property
    def plain_optimiser(self) -> torch.optim.Optimizer:
        """The optimiser without what Accelerate puts around it."""
        return getattr(self.optimiser, "optimizer", self.optimiser)

    def let_go(self) -> None:
        """Take off the task what Accelerate put around its loss, a precision above all, which would stay there.

        Others may write to the folder of the run again.
        """
        if self.claimed is not None:
            self.claimed.release()
        if not self.config.shard:
            self.accelerator.unwrap_model(self.model, keep_fp32_wrapper=False)

    def _left(self) -> Iterator[list[Piece]]:
        """The batches that are left of this run: none where it was at its end, or ended early before."""
        if self.epoch >= self.config.epochs or self._is_over():
            return iter(())
        return self.feed.batches(self.epoch, self.batch)

    def _step(self, pieces: list[Piece]) -> int:
        """One optimiser step over this rank's share of a batch. Returns the number of its tokens."""
        config = self.config
        self._set_rate(config.lr * warmup_cosine(self.step, n_steps=self.n_steps, n_warmup=self.n_warmup))
        seed = seed_step(config.seed, self.step, self.accelerator.process_index)
        if self.task.augment is not None:
            self.feed.generator.manual_seed(seed)
        found = [piece for piece in pieces if piece is not None]
        if self.modes.is_recorded and isinstance(pieces[0], Filled):
            sums: Tensor | None = self._played(pieces[0])
        else:
            unit = float(self.feed.n_tokens(self.epoch, self.batch))
            is_off_size = self.modes.is_fixed and not isinstance(pieces[0], Filled)
            with uncompiled() if is_off_size else contextlib.nullcontext():
                arrived = (self.feed.arrived(piece, self.epoch) for piece in pieces)
                sums = self.take(arrived, len(pieces), unit)
        if sums is None:
            self.history.n_skipped += 1
        else:
            self.sums += sums
            if self.accelerator.scaler is None:  # which would leave such steps out, and lower its scale
                self.watch.add(self.step, [id for piece in found for id in piece.ids], sums[0])
        return sum(piece.n_tokens if isinstance(piece, Filled) else piece.tokens.layout.n_tokens for piece in found)

    def _played(self, filled: Filled) -> Tensor:
        """A step of a recorded graph, which is recorded here at the first."""
        batch = self.feed.in_place(filled)
        if self.captured is None:

            def work() -> Tensor:
                sums = self.take(iter([(batch, 1.0)]), 1, 1.0)
                assert sums is not None
                return sums

            def changed() -> list[Tensor]:
                return optimised(self.plain_optimiser) + (
                    [] if self.average is None else list(self.average.weights.values())
                )

            try:
                self.captured = Captured(work, changed)
            except RuntimeError as error:  # a task of the user's own may look at numbers on the device
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

    def _after_step(self, shown: Progress, trivial: float) -> None:
        if self._is_due(self.config.validate_every):
            self._report(shown, trivial)
        is_stopping = self._agreed(self.is_asked_to_stop)
        if is_stopping or self._is_due(self.config.save_every):
            self._save()
        if is_stopping:
            resume = f" Resume it with resume=True and the folder {self.run.folder}." if self.run else ""
            raise Interrupted(f"the run was asked to stop and did so after step {self.step}.{resume}")

    def _is_due(self, every: int | None) -> bool:
        """Whether it is time for what happens every so many steps, or after each epoch, and at the end."""
        is_end_of_epoch = self.batch == 0
        return self.step == self.n_steps or (is_end_of_epoch if every is None else self.step % every == 0)

    def _report(self, shown: Progress, trivial: float) -> None:
        total, weight = self.sums.tolist()
        if weight == 0 and self.history.n_skipped > 0:  # nothing was learned since the last report
            if self.step == self.n_steps and not self.history.records:
                raise FloatingPointError(
                    f"no loss was a number, and all {self.step} batches were left out; look at the samples' values"
                )
            return
        self.sums.zero_()
        record: dict[str, Any] = {"step": self.step, "epoch": self.epoch, "loss": total / max(weight, 1.0)}
        record["lr"] = float(self.optimiser.param_groups[0]["lr"])
        if self.held_validation is not None:
            with contextlib.nullcontext() if self.average is None else self.average.applied():
                record["validation"] = evaluate(
                    self.model,
                    self.held_validation,
                    seed=self.config.seed,
                    workers=self.config.workers,
                    accelerator=self.accelerator,
                )
                self._compare(record["validation"])
            if not math.isfinite(record["validation"]):
                raise FloatingPointError(
                    f"the validation loss became {record['validation']} at step {self.step}; "
                    f"{self.watch.last_state()}. Look at the values of the validation samples, or lower lr"
                )
        self.history.records.append(record)
        if self.run is not None and self.is_first:
            self.run.log(record)
        shown.report({"loss": record["loss"], "validation": record.get("validation"), "trivial": trivial})
        if self.config.trackers:
            self.accelerator.log({k: v for k, v in record.items() if k != "step"}, step=self.step)
        if self.log is not None and self.is_first:
            self.log(self.step, record)

    def _compare(self, loss: float) -> None:
        """Keep the weights of the best validation, which are in the task now."""
        if not loss < self.best_loss:
            self.n_worse += 1
            return
        self.best_loss, self.best_step, self.n_worse = loss, self.step, 0
        self.best_weights = {k: v.detach().cpu().clone() for k, v in whole(self.module.state_dict()).items()}

    def _is_over(self) -> bool:
        return self.config.patience is not None and self.n_worse >= self.config.patience

    def _spread_out(self) -> Task:
        n_ranks = self.accelerator.num_processes
        if n_ranks == 1:
            raise ValueError(
                "shard=True spreads a model over several processes, and this is one: use accelerate launch"
            )
        if self.config.precision == "fp16":
            raise ValueError("shard=True does not go with fp16, whose scaler wants whole gradients; use bf16")
        return sharded(self.task, self.device, n_ranks)

    # Stopping

    def _ask_to_stop(self) -> None:
        self.is_asked_to_stop = True

    def _agreed(self, flag: bool) -> bool:
        """Whether any rank was asked; looked up now and then where there are several."""
        if self.accelerator.num_processes == 1:
            return flag
        if self.step % 10 and self.step != self.n_steps:
            return False
        flags = self.accelerator.reduce(torch.tensor(float(flag), device=self.device), "sum")
        return bool(flags > 0)

    # Saving and resuming

    def _opened(self, out: str | Path | None, resume: bool) -> Run | None:
        if out is None:
            if resume:
                raise ValueError("to resume a run, say where it is: out=…")
            return None
        description = {"train": to_dict(self.config), **described(self.task), "data": self._digests()}
        run = Run(out, n_states=self.config.n_states)
        self.accelerator.wait_for_everyone()
        if not resume and not run.is_fresh:
            raise ValueError(f"{run.folder} already holds a run; resume it, or choose another folder")
        if self.is_first:
            run.claim()
            self.claimed = run
        if not run.is_fresh:
            self._resume(run, description)
        elif self.is_first:
            (run.folder / "config.json").write_text(json.dumps(description, indent=2) + "\n")
        self.accelerator.wait_for_everyone()
        return run

    def _digests(self, *, of_few: bool = False) -> dict[str, str | None]:
        """What tells the samples from others, by all of them if they are in memory."""

        def digest(part: Sequence[Sample] | None) -> str | None:
            if part is None or of_few or not isinstance(part, list | tuple | SampleSet):
                return None if part is None else digest_of(part)
            return digest_of(part, len(part))

        return {"training": digest(self.samples), "validation": digest(self.validation)}

    def _resume(self, run: Run, description: dict[str, Any]) -> None:
        was = _known(run.folder / "config.json")
        if was.get("data") == (few := self._digests(of_few=True)):
            description = description | {"data": few}  # an older run, which looked at few samples
        if changed := [name for name in differences(was, description) if name not in FREE]:
            raise ValueError(f"{run.folder} was started with other settings ({', '.join(changed)}); start a new run")
        state = run.read()
        if state is not None:
            self._restore(state)
        if self.is_first:
            run.sweep()
            run.rewrite(self.history.records)

    def _restore(self, state: State) -> None:
        now = self.module.state_dict()
        self.module.load_state_dict(spread(state.tensors["model"], now))
        moments = state.tensors["optimiser"]
        if self.config.shard:  # they are spread as the parameters that they belong to
            parameters = enumerate(p for group in self.optimiser.param_groups for p in group["params"])
            like = {f"{i}.{name}": p for i, p in parameters for name in {key.partition(".")[2] for key in moments}}
            moments = spread(moments, like)
        fill_optimiser(self.plain_optimiser, moments)
        if self.average is not None:
            self.average.fill(spread(state.tensors["average"], now))
        self.best_weights = state.tensors.get("best")
        numbers = state.numbers
        self.step, self.epoch, self.batch = numbers["step"], numbers["epoch"], numbers["batch"]
        best = numbers["best_loss"]
        self.best_loss, self.best_step = float("inf") if best is None else best, numbers["best_step"]
        self.n_worse, self.history.n_skipped = numbers["n_worse"], numbers["n_skipped"]
        self.sums = state.tensors["sums"]["sums"].to(self.device)
        self.history.records = numbers["records"]
        if self.accelerator.scaler is not None and numbers["scaler"]:
            self.accelerator.scaler.load_state_dict(numbers["scaler"])

    def _save(self) -> None:
        self.watch.check()
        if self.run is None:
            return
        # Every rank takes part in putting shards together; without any, nothing is copied here.
        tensors = {"model": whole(self.module.state_dict()), "sums": {"sums": self.sums}}
        tensors["optimiser"] = whole(optimiser_tensors(self.plain_optimiser))
        if self.average is not None:
            tensors["average"] = whole(self.average.weights)
        if self.is_first:
            if self.best_weights is not None:
                tensors["best"] = self.best_weights
            scaler = self.accelerator.scaler
            numbers = {
                "step": self.step,
                "epoch": self.epoch,
                "batch": self.batch,
                "best_loss": None if self.best_loss == float("inf") else self.best_loss,
                "best_step": self.best_step,
                "n_worse": self.n_worse,
                "n_skipped": self.history.n_skipped,
                "records": self.history.records,
                "scaler": None if scaler is None else scaler.state_dict(),
            }
            self.run.write(self.step, State(tensors, numbers))
        self.accelerator.wait_for_everyone()

    def _finish(self) -> None:
        """Save the last model and the best one, and leave the task with the weights that people want."""
        weights = self.module.state_dict() if self.average is None else self.average.weights
        self.task.load_state_dict(whole(weights))
        self.task.eval()
        uncompile_blocks(self.task)
        if self.run is not None and self.is_first:
            self.task.save(self.run.folder / "last")
        if self.best_weights is not None:
            self.task.load_state_dict(self.best_weights)
            if self.run is not None and self.is_first:
                self.task.save(self.run.folder / "best")
        if self.config.trackers:
            self.accelerator.end_training()
        self.accelerator.wait_for_everyone()


def _known(path: Path) -> dict[str, Any]:
    """What a run was started with; settings that are newer than the run have their defaults."""
    was, parts = read_json(path), {"train": TrainConfig, "model": ModelConfig}
    try:
        if not isinstance(was, dict) or not parts.keys() <= was.keys():
            raise ValueError("it lacks the settings of training or model")
        return was | {name: to_dict(from_dict(kind, was[name], where=name)) for name, kind in parts.items()}
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged, or of a newer version: {error}; start a new run") from None


def require_trackers(trackers: tuple[str, ...]) -> list[str] | None:
    """The trackers by name, refused where their package is missing: Accelerate would leave them out in silence."""
    from accelerate.tracking import get_available_trackers

    here = [str(getattr(tracker, "value", tracker)) for tracker in get_available_trackers()]
    for tracker in trackers:
        if tracker not in here:
            package = f"'romae[{tracker}]'" if tracker in ("tensorboard", "wandb") else tracker
            raise ValueError(f"the tracker {tracker!r} is not installed: pip install {package}; there are {here}")
    return list(trackers) or None

"""Training: the only loop. It serves every task, on CPU and GPU, in one process or many, and can be resumed exactly.

What a step draws at random follows from the seed and the step, and what a sample draws from the seed, the epoch and
the sample. So a state needs no random state, and the number of ranks changes nothing but rounding.
"""

import contextlib
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from romae.config import to_dict
from romae.data.loader import Loader
from romae.data.packed import packed
from romae.data.scaling import Scaling, scaled
from romae.data.schema import SampleSet, Schema
from romae.model.tasks import Task
from romae.seeds import seed_step
from romae.tokens.sample import Sample
from romae.training.batches import Feed
from romae.training.config import TrainConfig, chosen_device
from romae.training.fixed_shape import Filled
from romae.training.identity import identity, require_same_run
from romae.training.optim import WeightAverage, optimiser, warmup_cosine
from romae.training.preflight import require_trainable
from romae.training.preparation import Piece
from romae.training.progress import Progress
from romae.training.run_folder import CONFIG, History, Run, State, fill_optimiser, optimiser_tensors
from romae.training.sharding import sharded, spread, whole
from romae.training.step import Captured, Modes, Step, compile_blocks, optimised, uncompile_blocks, uncompiled
from romae.training.validation import evaluate
from romae.training.watch import LossWatch, stop_signals

Log = Callable[[int, Mapping[str, float]], None]
REQUEUE = 75  # EX_TEMPFAIL: a batch system may start the run again


class Interrupted(Exception):
    """Raised when a run with a folder is asked to stop (SIGTERM or SIGUSR1); it has saved its state and can be resumed.

    On the command line it is exit code 75, after which a batch system may start the run again.

    Examples
    --------
    >>> import romae
    >>> try:
    ...     raise romae.Interrupted("the run was asked to stop and did so after step 40")
    ... except romae.Interrupted as stopped:
    ...     print(stopped)
    the run was asked to stop and did so after step 40
    """


def train(
    task: Task,
    samples: Sequence[Sample],
    config: TrainConfig,
    *,
    validation: Sequence[Sample] | None = None,
    scaling: Scaling | None = None,
    out: str | Path | Run | None = None,
    resume: bool = False,
    log: Log | None = None,
    title: str = "training",
    quiet: bool = False,
) -> History:
    """Train a task in place, on CPU or GPU, in one process or several.

    Parameters
    ----------
    task : Task
        What to train, such as `Classification(config, n_classes=3)`.
    samples : sequence of Sample
        The training data: a list, `SampleSet`, `Store` or folder of files.
    config : TrainConfig
        The settings.
    validation : sequence of Sample, optional
        Samples to validate on. With them, the task ends with the weights of the best validation.
    scaling : Scaling, optional
        The normalisation. With it, samples are handed over as they were read, and the task keeps it for its
        predictions. Without it, samples are taken as they are.
    out : str or Path, optional
        A folder for the run: its states, its history, its best and its last model. One that holds a run already is
        refused unless it is resumed.
    resume : bool, default False
        Whether to go on from the newest whole state in `out`, if there is one; the result is that of a run that was
        never stopped.
    log : callable, optional
        `log(step, values)`, called at every report.
    title : str, default "training"
        What the progress bar says.
    quiet : bool, default False
        Whether to show no progress.

    Returns
    -------
    History
        The losses over time.

    Raises
    ------
    ValueError
        If the samples, the task and the settings do not fit together, or the folder holds another run. Nothing is
        changed then.
    TypeError
        If something else than samples or a task is given.
    Interrupted
        If a run with a folder is asked to stop by a signal; its state is saved.
    FloatingPointError
        If the loss is no longer a number.

    Notes ----- The task keeps the schema of a `SampleSet`, except where times are dates and there is no scaling, since
    samples scaled by hand no longer count time as the schema says. Start several processes with `accelerate launch`.

    Examples
    --------
    >>> import numpy as np
    >>> import romae
    >>> random = np.random.default_rng(0)
    >>> samples = romae.from_arrays(random.normal(size=(16, 8, 1)), y=[0, 1] * 8)
    >>> size = romae.Size(width=16, heads=2, depth=1)
    >>> model = romae.ModelConfig(channels=1, position_dims=1, encoder=size, decoder=size)
    >>> config = romae.TrainConfig(epochs=2, batch_size=8, device="cpu")
    >>> task = romae.Classification(model, n_classes=2)
    >>> scaling = romae.fit_scaling(samples)
    >>> history = romae.train(task, samples[:12], config, validation=samples[12:], scaling=scaling, quiet=True)
    >>> [record["epoch"] for record in history.records]
    [1, 2]
    >>> romae.predict(task, samples[12:]).shape
    (4,)
    """
    require_trainable(task, samples, config, validation, scaling)
    if out is None and resume:
        raise ValueError("to resume a run, say where it is: out=…")
    before = task.scaling, task.schema
    task.scaling, task.schema = scaling, _names(task, samples, scaling)
    trainer = None
    try:
        if scaling is not None:
            samples, validation = scaled(samples, scaling), None if validation is None else scaled(validation, scaling)
        trainer = _Trainer(task, samples, config, validation, out, resume, log, title, quiet)
        return trainer.train()
    except (ImportError, TypeError, ValueError):
        if trainer is None or trainer.step == 0:
            task.scaling, task.schema = before
        if trainer is not None and trainer.claimed is not None:
            trainer.claimed.forget()
        raise
    finally:
        if trainer is not None:
            trainer.let_go()


def _names(task: Task, samples: Sequence[Sample], scaling: Scaling | None) -> Schema | None:
    """The names that a task keeps: those it has, or those of the samples."""
    if task.schema is not None or not isinstance(samples, SampleSet):
        return task.schema
    return None if scaling is None and samples.schema.time_unit is not None else samples.schema


class _Trainer:
    """The loop and what it keeps between steps."""

    def __init__(
        self,
        task: Task,
        samples: Sequence[Sample],
        config: TrainConfig,
        validation: Sequence[Sample] | None,
        out: str | Path | Run | None,
        resume: bool,
        log: Log | None,
        title: str,
        quiet: bool,
    ) -> None:
        from accelerate import Accelerator
        from accelerate.state import AcceleratorState

        self.task, self.config, self.log, self.title, self.quiet = task, config, log, title, quiet
        mixed = config.precision if config.precision in ("bf16", "fp16") else "no"
        # An earlier run in this process may have had another precision or device.
        is_alone = not (torch.distributed.is_available() and torch.distributed.is_initialized())
        AcceleratorState._reset_state(reset_partial_state=is_alone)
        self.accelerator = Accelerator(
            mixed_precision=mixed,
            cpu=chosen_device(config.device) == "cpu",
            log_with=list(config.trackers) or None,
            project_dir=str((out.folder if isinstance(out, Run) else out) or "runs"),
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
        self.out, self.may_resume = out, resume
        self.run: Run | None = None  # opened when training begins, so that what is refused is let go as well
        self.watch = LossWatch(lambda: "no state is kept" if self.run is None else self.run.last_state())

    # The loop

    def train(self) -> History:
        started = time.perf_counter()
        self.run = self._opened()
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

    def _opened(self) -> Run | None:
        """The folder of this run, begun or gone on with. What it is, is written down once the folder is ours."""
        if self.out is None:
            return None
        run = self.out if isinstance(self.out, Run) else Run(self.out)
        run.n_states = self.config.n_states
        now = identity(self.task, self.config, self.samples, self.validation)
        self.accelerator.wait_for_everyone()
        if not self.may_resume and not run.is_fresh:
            raise ValueError(f"{run.folder} already holds a run; resume it, or choose another folder")
        if self.is_first:
            run.claim()
            self.claimed = run
        if run.is_fresh:
            run.notes[CONFIG] = now
        else:
            require_same_run(run, now, self.samples, self.validation)
            self._go_on(run)
        if self.is_first:
            run.write_notes()
        self.accelerator.wait_for_everyone()
        return run

    def _go_on(self, run: Run) -> None:
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

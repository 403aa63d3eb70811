"""Training: the only loop. It serves every task, on CPU and GPU, in one process or many, and can be resumed exactly.

    samples ── as_source ──> Source ── Batches ──> shares of each step ── Stepper ──> weights changed
                                                 reports, validation (BestWeights), states (RunFolder) now and then

What a step draws at random follows from the seed and the step, and what a sample draws from the seed, the epoch and
the sample. So a state needs no random state, and the number of ranks changes nothing but rounding.
"""

import contextlib
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from romae.config import to_dict
from romae.data.atoms import sentence_on_atoms
from romae.data.scaling import Scaling, scaled
from romae.data.schema import Schema
from romae.data.sources import SampleSource, Source, as_source, digests
from romae.model.kernels.onednn import without_onednn
from romae.model.likelihoods import Quantiles
from romae.model.tasks import MaskedReconstruction, Task
from romae.seeds import seed_step
from romae.training.ahead import look_ahead
from romae.training.batches import NOTHING, Batches, StepShare
from romae.training.config import TrainConfig, chosen_device
from romae.training.identity import identity, require_same_run
from romae.training.preflight import require_samples, require_trainable
from romae.training.process import process_as_before
from romae.training.progress import Progress
from romae.training.run_folder import CONFIG, History, RunFolder, State
from romae.training.step import Modes, Stepper, compile_blocks, uncompile_blocks
from romae.training.validation import BestWeights, require_scorable
from romae.training.watch import LossWatch, stop_signals

if TYPE_CHECKING:
    from accelerate import Accelerator

Log = Callable[[int, Mapping[str, float]], None]
REQUEUE = 75  # EX_TEMPFAIL: a batch system may start the run again
STEPS_BETWEEN_STOP_CHECKS = 10  # in which several ranks agree whether any was asked to stop


class Interrupted(SystemExit):
    """Raised when a run with a folder is asked to stop (SIGTERM or SIGUSR1); it has saved its state and can be resumed.

    A script or command that does not catch it ends with exit code 75, after which a batch system may start it again.

    Parameters
    ----------
    message : str
        After which step the run stopped, and how to resume it.

    Notes
    -----
    It is a `SystemExit`, so that `except Exception` does not catch it, as with Ctrl-C: a loop over runs that goes on
    when one fails ends when it is asked to. A notebook shows the message, and its kernel lives on.

    Examples
    --------
    >>> import romae
    >>> try:
    ...     raise romae.Interrupted("the run was asked to stop and did so after step 40")
    ... except romae.Interrupted as stopped:
    ...     print(stopped)
    ...     print(stopped.code)
    the run was asked to stop and did so after step 40
    75
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.code = REQUEUE


def train(
    task: Task,
    samples: SampleSource,
    config: TrainConfig,
    *,
    validation: SampleSource | None = None,
    scaling: Scaling | None = None,
    out: str | Path | RunFolder | None = None,
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
        Samples to validate on. With them, the task ends with the weights of the best validation: of the lowest loss, or
        of the highest score that `TrainConfig(scoring=…)` names.
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

    Notes
    -----
    The task keeps the schema of the samples, except where times are dates and there is no scaling, since samples scaled
    by hand no longer count time as the schema says. Start several processes with `accelerate launch`.

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
    require_trainable(task, config, scaling, has_validation=validation is not None)
    source = as_source(samples, "samples to train on")
    validation_source = as_source(validation, "validation samples")
    require_samples(task, source.profile(), None if validation_source is None else validation_source.profile())
    if out is None and resume:
        raise ValueError("to resume a run, say where it is: out=…")
    folder = RunFolder(out) if isinstance(out, str | Path) else out
    before = task.scaling, task.schema
    loop = None
    with process_as_before(on_gpu=chosen_device(config.device) != "cpu"), without_onednn():
        task.scaling, task.schema = scaling, _kept_schema(task, source, scaling)
        try:
            training_data = scaled(source, scaling)
            validation_data = None if validation_source is None else scaled(validation_source, scaling)
            _look_ahead(task, training_data, validation_data, config.seed)
            run_identity = None if folder is None else identity(task, config, digests(source, validation_source))
            loop = _Loop.ready(task, training_data, validation_data, config, folder)
            loop.identity, loop.reporter = run_identity, Reporter(log, title, quiet)
            if _learns_density(task) and not quiet and source.is_quick:
                loop.reporter.remark = sentence_on_atoms(source)
            return loop.train(may_resume=resume)
        except (ImportError, TypeError, ValueError):
            if loop is None or loop.place.step == 0:
                task.scaling, task.schema = before
            if loop is not None and folder is not None:
                folder.forget()
            raise
        finally:
            if folder is not None:
                folder.release()
            if loop is not None:
                loop.unwrap_task()


def _learns_density(task: Task) -> bool:
    """Whether a task learns the density of the values."""
    return isinstance(task, MaskedReconstruction) and not isinstance(task.likelihood, Quantiles | None)


def _kept_schema(task: Task, source: Source, scaling: Scaling | None) -> Schema | None:
    """The names that a task keeps: those it has, or those of the samples."""
    if task.schema is not None or source.schema is None:
        return task.schema
    return None if scaling is None and source.schema.time_unit is not None else source.schema


def _look_ahead(task: Task, training: Source, validation: Source | None, seed: int) -> None:
    """Tell which samples have no future to learn from, and keep how far training looks."""
    ahead = look_ahead(task, training, seed)
    ahead.warn(getattr(task, "masking", None), "samples")
    if validation is not None:
        look_ahead(task, validation, seed).warn(getattr(task, "masking", None), "validation samples")
    if ahead.horizon is not None and task.scaling is not None and task.scaling.seen is not None:
        seen = task.scaling.seen
        further = max(ahead.horizon, seen.horizon or 0.0)
        task.scaling = replace(task.scaling, seen=replace(seen, horizon=further))


@dataclass(slots=True)
class Place:
    """Where a run is: steps done in all, whole epochs, and batches of the epoch that is under way."""

    step: int = 0
    epoch: int = 0
    batch: int = 0


@dataclass(slots=True)
class Reporter:
    """Where a run reports to: the caller's `log`, and the progress on the screen."""

    log: Log | None = None
    title: str = "training"
    quiet: bool = False
    trivial: float | None = None
    remark: str | None = None  # on the samples, said when training begins


@dataclass(slots=True, kw_only=True)
class _Loop:
    """A run under way. Each part has a file of its own; what lies between them is here."""

    task: Task
    config: TrainConfig
    accelerator: "Accelerator"
    batches: Batches
    stepper: Stepper
    best: BestWeights | None
    folder: RunFolder | None
    identity: dict[str, Any] | None = None  # what the run is, for its folder
    reporter: Reporter = field(default_factory=Reporter)
    place: Place = field(default_factory=Place)
    history: History = field(default_factory=History)
    sums: Tensor  # [2]: the sum of the loss and the number of things summed, since the last report
    is_asked_to_stop: bool = False

    @classmethod
    def ready(
        cls, task: Task, source: Source, validation: Source | None, config: TrainConfig, folder: RunFolder | None
    ) -> "_Loop":
        """All parts of a run, in the order in which they need each other."""
        accelerator = _accelerator(config, folder)
        batches = Batches(task, source, config, accelerator)
        n_steps = sum(batches.n_batches)
        is_windowed = task.config.window is not None
        modes = Modes.of(config, accelerator, n_steps, is_windowed=is_windowed, padding=batches.padding_factor)
        return cls(
            task=task,
            config=config,
            accelerator=accelerator,
            batches=batches,
            stepper=Stepper(task, config, accelerator, modes, n_steps),
            best=None if validation is None else BestWeights(validation, config),
            folder=folder,
            sums=torch.zeros(2, dtype=torch.float64, device=accelerator.device),
        )

    def train(self, *, may_resume: bool) -> History:
        started = time.perf_counter()
        self._open_folder(may_resume)
        if self.config.trackers:
            settings = {name: str(value) for name, value in to_dict(self.config).items()}
            self.accelerator.init_trackers("romae", config=settings)
        self._check_samples()
        stepper, is_shown = self.stepper, self.accelerator.is_main_process and not self.reporter.quiet
        stepper.model.train()
        self.batches.make_ready(is_fixed=stepper.modes.is_fixed)
        if stepper.modes.is_compiled:
            compile_blocks(stepper.module, is_fixed=stepper.modes.is_fixed)
        watch = LossWatch(lambda: "no state is kept" if self.folder is None else self.folder.last_state())
        progress = Progress(self.reporter.title, stepper.n_steps, start=self.place.step, is_shown=is_shown)
        if self.reporter.remark is not None and self.place.step == 0:
            progress.say(self.reporter.remark)
        with progress, contextlib.nullcontext() if self.folder is None else stop_signals(self._ask_to_stop):
            if self.place.epoch < self.config.epochs and not self._is_over():
                for share in self.batches.shares(self.place.epoch, self.place.batch):
                    self._step(share, watch)
                    progress.advance(share.n_tokens)
                    self._after_step(progress, watch)
                    if self._is_over():
                        break
        watch.check()
        self._finish()
        self.history.seconds = time.perf_counter() - started
        return self.history

    def _check_samples(self) -> None:
        """Compute the loss of a trivial model, and refuse samples from which nothing can be learned."""
        if self.batches.source.is_quick:
            problem = "there is nothing to learn from these samples"
            self.reporter.trivial = self.batches.trivial_loss(self.batches.source, problem)
        if self.best is not None and self.best.source.is_quick:
            self.batches.trivial_loss(self.best.source, "the validation samples cannot be judged")
        if self.best is not None:
            require_scorable(self.config.scoring, self.best.source)

    def _step(self, share: StepShare, watch: LossWatch) -> None:
        """One optimiser step over this rank's share of a batch."""
        if self.reporter.trivial is None:
            self.reporter.trivial = self.batches.trivial_loss_of(share)
        seed = seed_step(
            self.config.seed, self.place.step, self.accelerator.process_index, device=self.accelerator.device
        )
        if self.task.augment is not None:
            self.batches.generator.manual_seed(seed)
        sums = self.stepper.take(share, self.place.step)
        if sums is None:
            self.history.n_skipped += 1
        else:
            self.sums += sums
            watch.add(self.place.step, share.ids, sums[0])
        place = self.place
        place.step, place.batch = place.step + 1, place.batch + 1
        if place.batch == self.batches.n_batches[place.epoch]:
            place.epoch, place.batch = place.epoch + 1, 0

    def _after_step(self, progress: Progress, watch: LossWatch) -> None:
        if self._is_due(self.config.validate_every):
            self._report(progress, watch)
        is_stopping = self._is_any_rank_stopping(self.is_asked_to_stop)
        if is_stopping or self._is_due(self.config.save_every):
            watch.check()
            self._save()
        if is_stopping:
            progress.say(f"asked to stop; the state after step {self.place.step} is saved")
            resume = f" Resume it with resume=True and the folder {self.folder.folder}." if self.folder else ""
            raise Interrupted(f"the run was asked to stop and did so after step {self.place.step}.{resume}")

    def _is_due(self, every: int | None) -> bool:
        """Whether it is time for what happens every so many steps, or after each epoch, and at the end."""
        is_end_of_epoch = self.place.batch == 0
        is_time = is_end_of_epoch if every is None else self.place.step % every == 0
        return is_time or self.place.step == self.stepper.n_steps

    def _is_over(self) -> bool:
        return self.best is not None and self.best.is_patience_over

    def _report(self, progress: Progress, watch: LossWatch) -> None:
        place = self.place
        total, weight = self.sums.tolist()
        if weight == 0 and self.history.n_skipped > 0:  # nothing was learned since the last report
            if place.step == self.stepper.n_steps and not self.history.records:
                raise FloatingPointError(
                    f"no loss was a number, and all {place.step} batches were left out; look at the samples' values"
                )
            return
        if weight == 0 and not self.history.records:  # of files that were not looked at before
            raise ValueError(f"there is nothing to learn from these samples: {NOTHING}")
        self.sums.zero_()
        record: dict[str, Any] = {"step": place.step, "epoch": place.epoch, "loss": total / weight if weight else 0.0}
        record["lr"] = self.stepper.rate
        if self.best is not None:
            judged = self.best.validate(self.stepper, place.step)
            record["validation"] = judged.loss
            if judged.score is not None:
                record["score"] = judged.score
            if not math.isfinite(record["validation"]):
                raise FloatingPointError(
                    f"the validation loss became {record['validation']} at step {place.step}; "
                    f"{watch.last_state()}. Look at the values of the validation samples, or lower lr"
                )
        self.history.records.append(record)
        is_first = self.accelerator.is_main_process
        if self.folder is not None and is_first:
            self.folder.log(record)
        shown = {"loss": record["loss"], "validation": record.get("validation"), "trivial": self.reporter.trivial}
        if "score" in record:
            shown[str(self.config.scoring)] = record["score"]
        progress.report(shown)
        if self.config.trackers:
            self.accelerator.log({k: v for k, v in record.items() if k != "step"}, step=place.step)
        if self.reporter.log is not None and is_first:
            self.reporter.log(place.step, record)

    # Stopping

    def _ask_to_stop(self) -> None:
        self.is_asked_to_stop = True

    def _is_any_rank_stopping(self, flag: bool) -> bool:
        """Whether any rank was asked to stop; several ranks sum their flags every few steps."""
        if self.accelerator.num_processes == 1:
            return flag
        if self.place.step % STEPS_BETWEEN_STOP_CHECKS and self.place.step != self.stepper.n_steps:
            return False
        flags = self.accelerator.reduce(torch.tensor(float(flag), device=self.accelerator.device), "sum")
        return bool(flags > 0)

    def unwrap_task(self) -> None:
        """Take off the task what Accelerate put around its loss, a precision above all, which would stay there."""
        if not self.config.shard:
            self.accelerator.unwrap_model(self.stepper.model, keep_fp32_wrapper=False)

    # Saving and resuming

    def _open_folder(self, may_resume: bool) -> None:
        """The folder of this run, begun or gone on with. What it is, is written down once the folder is ours."""
        run = self.folder
        if run is None:
            return
        assert self.identity is not None
        run.n_states = self.config.n_states
        self.accelerator.wait_for_everyone()
        if not may_resume and not run.is_fresh:
            raise ValueError(f"{run.folder} already holds a run; resume it, or choose another folder")
        is_first = self.accelerator.is_main_process
        if is_first:
            run.claim()
        if run.is_fresh:
            run.notes[CONFIG] = self.identity
        else:
            validation = None if self.best is None else self.best.source
            require_same_run(run, self.identity, self.batches.source, validation)
            state = run.read()
            if state is not None:
                self._restore(state)
        self.accelerator.wait_for_everyone()  # before anything that another rank may read is removed
        if is_first:
            run.sweep(self.place.step)
            if not run.is_fresh:
                run.rewrite(self.history.records)
            run.write_notes()
        self.accelerator.wait_for_everyone()

    def _save(self) -> None:
        if self.folder is None:
            return
        tensors = self.stepper.tensors() | {"sums": {"sums": self.sums}}
        if self.accelerator.is_main_process:
            best, scaler = self.best, self.accelerator.scaler
            if best is not None and best.weights is not None:
                tensors["best"] = best.weights
            numbers = {
                "step": self.place.step,
                "epoch": self.place.epoch,
                "batch": self.place.batch,
                "best_loss": None if best is None or best.loss == float("inf") else best.loss,
                "best_score": None if best is None else best.score,
                "best_step": 0 if best is None else best.step,
                "n_worse": 0 if best is None else best.n_worse,
                "n_skipped": self.history.n_skipped,
                "records": self.history.records,
                "scaler": None if scaler is None else scaler.state_dict(),
            }
            self.folder.write(self.place.step, State(tensors, numbers))
        self.accelerator.wait_for_everyone()

    def _restore(self, state: State) -> None:
        self.stepper.load_tensors(state.tensors)
        numbers = state.numbers
        self.place = Place(numbers["step"], numbers["epoch"], numbers["batch"])
        if self.best is not None:
            self.best.loss = float("inf") if numbers["best_loss"] is None else numbers["best_loss"]
            self.best.score = numbers.get("best_score")  # states of before have none
            self.best.step, self.best.n_worse = numbers["best_step"], numbers["n_worse"]
            self.best.weights = state.tensors.get("best")
        self.sums = state.tensors["sums"]["sums"].to(self.accelerator.device)
        self.history.n_skipped, self.history.records = numbers["n_skipped"], numbers["records"]
        if self.accelerator.scaler is not None and numbers["scaler"]:
            self.accelerator.scaler.load_state_dict(numbers["scaler"])

    def _finish(self) -> None:
        """Save the last model and the best one, and leave the task with the weights that people want."""
        self.task.load_state_dict(self.stepper.final_weights())
        self.task.eval()
        uncompile_blocks(self.task)
        folder = self.folder if self.accelerator.is_main_process else None
        if folder is not None:
            self.task.save(folder.folder / "last")
        if self.best is not None and self.best.weights is not None:
            self.task.load_state_dict(self.best.weights)
            if folder is not None:
                self.task.save(folder.folder / "best")
        if self.config.trackers:
            self.accelerator.end_training()
        self.accelerator.wait_for_everyone()


def _accelerator(config: TrainConfig, folder: RunFolder | None) -> "Accelerator":
    """Accelerate's object for the device, the precision and the other processes."""
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    # An earlier run in this process may have had another precision or device.
    is_alone = not (torch.distributed.is_available() and torch.distributed.is_initialized())
    AcceleratorState._reset_state(reset_partial_state=is_alone)
    accelerator = Accelerator(
        mixed_precision=config.precision if config.precision in ("bf16", "fp16") else "no",
        cpu=chosen_device(config.device) == "cpu",
        log_with=list(config.trackers) or None,
        project_dir=str("runs" if folder is None else folder.folder),
    )
    torch.backends.cuda.matmul.allow_tf32 = config.precision == "tf32"
    if config.shard and accelerator.num_processes == 1:
        raise ValueError("shard=True spreads a model over several processes, and this is one: use accelerate launch")
    if config.shard and config.precision == "fp16":
        raise ValueError("shard=True does not go with fp16, whose scaler wants whole gradients; use bf16")
    return accelerator

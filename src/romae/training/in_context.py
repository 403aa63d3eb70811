"""Fine-tuning of a model that needs no training, on series of one's own."""

from dataclasses import replace

from romae.data.sources import SampleSource
from romae.model.tasks import MaskedReconstruction
from romae.tokens.masking import Masking, Strategy
from romae.training.config import TrainConfig
from romae.training.hidden_copies import HiddenCopies
from romae.training.loop import Log, train
from romae.training.run_folder import History

FEWEST_JUDGED = 100  # copies that a validation asks: several of each series where these are few


def n_judged(n_series: int) -> int:
    """How many copies of each of so many series a validation asks."""
    return max(1, min(8, FEWEST_JUDGED // n_series))


def with_masking(task: MaskedReconstruction, masking: Strategy | Masking) -> MaskedReconstruction:
    """A copy of a task in single precision that hides something else; fine-tuning it leaves the first as it is."""
    copy = MaskedReconstruction(
        task.encoder.rebuilt(),
        masking=masking,
        likelihood=task.likelihood,
        calibration=task.calibration,
        gate=task.gate,
    )
    copy.load_state_dict(task.state_dict())
    copy.scaling, copy.schema = task.scaling, task.schema
    return copy.eval()


def finetune_in_context(
    task: MaskedReconstruction,
    samples: SampleSource,
    config: TrainConfig,
    *,
    masking: Strategy | Masking | None = None,
    validation: SampleSource | None = None,
    log: Log | None = None,
    title: str = "fine-tuning",
    quiet: bool = False,
) -> History:
    """Train a model in units of its own on series, in place.

    Each epoch hides something else of each series, and the series is then brought to the units that follow from what is
    left visible, as it is for answers.

    Parameters
    ----------
    task : MaskedReconstruction
        A model that needs no training, such as `romae.load("romae/zero")`, or one that was fine-tuned from it.
    samples : sequence of Sample
        Series with one time axis, as they were read.
    config : TrainConfig
        The settings.
    masking : UniformTokens, Rows, Channels, Spans, Future, Mixed or Masking, optional
        What is hidden; by default what the task's own masking says.
    validation : sequence of Sample, optional
        Series to validate on; the task ends with the weights of the best validation.
    log : callable, optional
        `log(step, values)`, called at every report.
    title : str, default "fine-tuning"
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
        If the task does not take series in units of their own, or the series do not fit it.
    """
    scaling, calibration = task.scaling, task.calibration
    if scaling is None or not scaling.own_units:
        raise ValueError(
            "this model does not take series in units of their own; train it with romae.train(task, samples, config)"
        )
    masking, with_errors = task.masking if masking is None else masking, bool(task.config.errors)
    form = {"with_errors": with_errors, "from_lines": scaling.from_lines}
    copies = HiddenCopies(samples, masking, n_copies=config.epochs, seed=config.seed, **form)
    judged = None
    if validation is not None:
        judged = HiddenCopies(
            validation, masking, n_copies=n_judged(len(validation)), seed=config.seed + 1, **form
        ).in_memory()
    # All copies are one pass of the loop, which reports after as many of them as there are series.
    n_steps = -(-copies.n_series // config.batch_size)
    if config.tokens_per_batch:
        n_steps = max(1, int(copies.lengths[: copies.n_series].sum()) // config.tokens_per_batch)
    every = n_steps if config.validate_every is None else config.validate_every
    once = replace(config, epochs=1, validate_every=every, save_every=None)
    task.calibration = None  # of other weights
    try:
        learning = replace(
            scaling, own_units=False, from_lines=False
        )  # copies are in units of their own when they reach the loop
        history = train(task, copies, once, validation=judged, scaling=learning, log=log, title=title, quiet=quiet)
    except BaseException:
        task.calibration = calibration
        raise
    finally:
        task.scaling = scaling
    for record in history.records:
        record["epoch"] = min(config.epochs, -(-record["step"] // n_steps))
    return history

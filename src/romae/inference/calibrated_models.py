"""Models on disk that are calibrated: by a table of ids that they were not trained on, or at the end of a run."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from romae.data.schema import SampleSet, Schema
from romae.inference.calibration import Grouping, calibrate, with_hidden
from romae.inference.reliability import Reliability, cross_fitted
from romae.inference.tables import InferenceConfig
from romae.model.calibration import Calibration
from romae.model.conformal import FEWEST, Conformal
from romae.model.tasks import Classification, MaskedReconstruction, Regression, Task
from romae.training.config import chosen_device
from romae.training.tables import Trained, load_model, read_table, require_columns, schema_with_label


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrateConfig(InferenceConfig):
    """What calibrating a model by a table is told; `by` and `seed` are those of `romae.calibrate`."""

    label: str | None = None
    by: Grouping = "auto"
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """A task with its new calibration, and how it does on samples without one and with one that others made."""

    task: Task
    n: int
    calibration: Calibration | Conformal
    before: Reliability
    after: Reliability


def calibrate_table(config: CalibrateConfig, data: Any, model: str | Path) -> Calibrated:
    """Calibrate a model by a table, which is whatever `from_table` reads, of ids that it was not trained on."""
    task = load_model(model).to(chosen_device(config.device))
    samples = labelled_samples(task, data, config, f"the model in {model}")
    before, after = cross_fitted(task, samples, by=config.by, seed=config.seed, **config.how)
    calibration = calibrate(task, samples, by=config.by, seed=config.seed, **config.how)
    return Calibrated(task=task, n=len(samples), calibration=calibration, before=before, after=after)


def labelled_samples(task: Task, data: Any, config: CalibrateConfig, model: str) -> SampleSet:
    """The samples of a table, with the classes or numbers of a model as their targets."""
    trained = task.schema or Schema()
    if isinstance(task, MaskedReconstruction):
        schema = config.columns.schema(trained.without_label)
    else:
        schema = schema_with_label(config.columns, trained, config.label)
    require_columns(task, schema, model)
    samples = read_table(data, schema, task.schema, for_training=False, static=config.columns.static)
    classes = samples.schema.classes
    if isinstance(task, Classification):
        known = {str(name): i for i, name in enumerate(trained.classes or range(task.n_classes))}
        if classes is None:
            raise ValueError(f"the table has no classes in column {schema.label!r}; name another with --label")
        if unknown := sorted(str(name) for name in classes if str(name) not in known):
            raise ValueError(f"the table has the class {unknown[0]!r}, which the model does not know: {list(known)}")
        index = [known[str(name)] for name in classes]
        samples = samples.map(lambda sample: replace(sample, target=index[int(sample.target)]))
        return SampleSet(samples.samples, replace(samples.schema, classes=trained.classes))
    if isinstance(task, Regression) and classes is not None:  # whole numbers are read as classes
        if any(isinstance(name, str | bool) for name in classes):
            raise ValueError(
                f"column {schema.label!r} holds {classes[0]!r}, which is no number; name another with --label"
            )
        numbers = [float(name) for name in classes]
        samples = samples.map(lambda sample: replace(sample, target=numbers[int(sample.target)]))
        return SampleSet(samples.samples, replace(samples.schema, classes=None))
    return samples


def calibrate_run(trained: Trained, *, device: str = "auto") -> Conformal | None:
    """Calibrate the model of a finished run on its validation ids, on disk and in memory.

    That is done where it has learned a distribution and there are enough of these ids; else nothing happens.
    """
    task, samples = trained.task, trained.validation
    is_told = isinstance(task, MaskedReconstruction | Regression) and task.likelihood is not None
    if not is_told or samples is None or getattr(task, "normalise", False):
        return None
    model = load_model(trained.model).to(chosen_device(device))
    held_out = with_hidden(model, samples, seed=0) if isinstance(model, MaskedReconstruction) else samples
    if len(held_out) < FEWEST:
        return None
    calibration = calibrate(model, held_out)
    assert isinstance(calibration, Conformal)
    model.save(trained.model)
    task.calibration = calibration
    return calibration

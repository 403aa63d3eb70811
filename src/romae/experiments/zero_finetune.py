"""What fine-tuning from the model that needs no training brings, beside that model as it is and beside new weights.

    python -m romae.experiments.zero_finetune --out results/zero/finetune.json      an hour on one CPU core
    python -m romae.experiments.zero_finetune --out finetune.json --quick           a minute; numbers mean nothing

Each start learns from 50, 100 and 1 000 series of three data sets: two sensors of an oscillator (made on the spot),
ten variables of stays in intensive care (PhysioNet 2012, set a) and variable stars (ASAS). What is judged are series
that nothing was learned from: the mean absolute error of hidden values, in mean deviations of their channel, so that 1
is the error of saying the median everywhere, and the balanced accuracy of a logistic regression on the vectors of
series; the same error of the last quarter of each series, of a forecaster; and the balanced accuracy of a whole
network that is tuned to tell the classes (`whole`), which the model as it is cannot. Fine-tuning keeps the model as it
is where held-out series say so, as the estimators do; `kept` and `kept ahead` say which it was.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from romae.checkpoints.native import load
from romae.data.own_units import OwnUnits
from romae.data.scalars import Scalars
from romae.data.schema import Schema
from romae.data.sources import as_source
from romae.estimators.forecasting import RoMAEForecaster
from romae.estimators.starts import Judge
from romae.estimators.supervised import RoMAEClassifier
from romae.estimators.unsupervised import RoMAEInterpolator
from romae.experiments.datasets import asas, physionet2012
from romae.experiments.datasets.files import MissingFile
from romae.experiments.datasets.oscillators import SCHEMA, oscillators
from romae.files import require_writable, write_whole_text
from romae.inference.predictions import embed, predict
from romae.inference.zero import ZERO
from romae.model.tasks import Classification, MaskedReconstruction, Task
from romae.prior.relative import LEARNING
from romae.tokens.masking import Future, UniformTokens
from romae.tokens.sample import Sample
from romae.tokens.tokens import PackedSamples
from romae.training.config import TrainConfig
from romae.training.loop import train
from romae.training.rules import looking_ahead

STARTS = ("zero-shot", "fine-tuned", "from scratch")
MASKING = UniformTokens(ratio=0.5)
AHEAD = Future(share=0.75)
# Of a whole network that begins as the model that needs no training: of 3e-4, 1e-3 and 3e-3 on the training series.
TUNING = TrainConfig(epochs=60, batch_size=16, lr=1e-3, weight_decay=0.05, warmup=0.1, device="cpu")
HELD_OUT = 5  # one in so many training series says when to stop
# Variables that fifty stays hold for sure: new weights know nothing of one that they never saw.
OFTEN = ("HR", "MAP", "SysABP", "DiasABP", "NIMAP", "NISysABP", "NIDiasABP", "Temp", "Urine", "GCS")
FEWEST = 8  # measurements of a stay
MOST_POINTS = 160  # of a star: every so many of its nights
MOST_EPOCHS, FEWEST_EPOCHS, SERIES_SEEN = 300, 20, 20_000
SPLIT = 0  # seed


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """How much is learned from, and for how long."""

    sizes: tuple[int, ...] = (50, 100, 1_000)
    n_test: int = 200
    seconds: float | None = 60.0  # of a fit
    epochs: int | None = None
    settings: dict[str, Any]

    def epochs_of(self, n: int) -> int:
        """Passes of fine-tuning over so many series."""
        return self.epochs or int(np.clip(SERIES_SEEN // n, FEWEST_EPOCHS, MOST_EPOCHS))


FULL = Trial(settings={})
QUICK = Trial(sizes=(24,), n_test=12, seconds=None, epochs=1, settings={"size": {"width": 16, "heads": 2, "depth": 1}})


def _oscillators(n: int) -> list[Sample]:
    return [replace(sample, hidden=None, schema=SCHEMA) for sample in oscillators(n, seed=SPLIT)]


def _stays(n: int) -> list[Sample]:
    often = [physionet2012.VARIABLES.index(name) for name in OFTEN]
    stays = []
    for sample in physionet2012.load("a").samples():
        here = np.isin(sample.positions[:, 1].numpy(), often)
        if here.sum() >= FEWEST:
            stays.append(replace(sample, values=sample.values[here], positions=sample.positions[here]))
    return [replace(sample, schema=physionet2012.SCHEMA) for sample in _some(stays, n)]


def _stars(n: int) -> list[Sample]:
    schema = Schema(values=("magnitude",), errors=("error",))
    stars = []
    for star in _some(asas.load().samples, n):
        every = slice(None, None, -(-len(star) // MOST_POINTS))
        stars.append(Sample(star.values[every], star.positions[every], target=star.target, id=star.id, schema=schema))
    return stars


DATA: dict[str, Callable[[int], list[Sample]]] = {
    "oscillators": _oscillators,
    "PhysioNet 2012": _stays,
    "ASAS": _stars,
}


def class_of(sample: Sample) -> int:
    """The number of its class."""
    assert sample.target is not None
    return int(sample.target)


def _some(samples: Sequence[Sample], n: int) -> list[Sample]:
    order = np.random.default_rng(SPLIT).permutation(len(samples))[:n]
    return [samples[i] for i in order.tolist()]


def fitted(
    start: str, samples: list[Sample], trial: Trial, model: str, estimator: type[RoMAEInterpolator | RoMAEForecaster]
) -> RoMAEInterpolator | RoMAEForecaster:
    """An interpolator or a forecaster that learned from these series, or did not."""
    settings: dict[str, Any] = {"random_state": 0, "device": "cpu", "verbose": -1}
    if estimator is RoMAEForecaster:
        settings["masking"] = looking_ahead(None) if start == "from scratch" else AHEAD
    if start == "from scratch":
        settings |= {"start": "scratch", "time_limit": trial.seconds, "pretrain_epochs": trial.epochs, **trial.settings}
        return estimator(**settings).fit(samples)
    epochs = 0 if start == "zero-shot" else trial.epochs_of(len(samples))
    limit = None if start == "zero-shot" else trial.seconds
    return estimator(pretrained=model, pretrain_epochs=epochs, time_limit=limit, **settings).fit(samples)


def whole_accuracy(start: str, training: list[Sample], test: list[Sample], trial: Trial, model: str) -> float | None:
    """The balanced accuracy of a whole network that is tuned to tell classes; None of the model as it is."""
    if start == "zero-shot":
        return None
    known = sorted({class_of(sample) for sample in training})
    asked = [sample for sample in test if class_of(sample) in known]
    if start == "from scratch":
        fit = RoMAEClassifier(
            random_state=0,
            device="cpu",
            verbose=-1,
            class_weight="balanced",
            features=None,
            time_limit=trial.seconds,
            epochs=trial.epochs,
            pretrain_epochs=trial.epochs,
            **trial.settings,
        )
        bare = [replace(sample, target=None) for sample in training]
        told = fit.fit(bare, [class_of(sample) for sample in training]).predict(asked)
    else:
        task = tuned_classifier(training, known, trial, load(model))
        told = np.array(known)[np.asarray(predict(task, in_own_units(asked)))]
    return float(balanced_accuracy_score([class_of(sample) for sample in asked], told))


def tuned_classifier(training: list[Sample], known: list[int], trial: Trial, before: Task) -> Classification:
    """A classifier whose encoder begins as that of the model that needs no training, and reads series as it does."""
    classes = [class_of(sample) for sample in training]
    weight = {kind: len(classes) / (len(known) * classes.count(kind)) for kind in known}
    numbers = {kind: known.index(kind) for kind in known}
    own = [
        replace(sample, weight=weight[kind])
        for sample, kind in zip(in_own_units(training, numbers), classes, strict=True)
    ]
    held_out, learned = own[::HELD_OUT], [sample for i, sample in enumerate(own) if i % HELD_OUT]

    def begun() -> Classification:
        task = Classification(before.encoder.rebuilt(dropout=0.1), n_classes=len(known), drop_tokens=0.2)
        task.scaling = LEARNING
        return task

    torch.manual_seed(SPLIT)
    config = replace(TUNING, epochs=trial.epochs or TUNING.epochs)
    began = time.monotonic()
    train(begun(), learned, replace(config, epochs=1), validation=held_out, scaling=LEARNING, quiet=True)
    a_pass = time.monotonic() - began
    if trial.seconds is not None:
        config = replace(config, epochs=int(np.clip(trial.seconds / a_pass, 1, config.epochs)))
    task = begun()
    train(task, learned, config, validation=held_out, scaling=LEARNING, quiet=True)
    return task


def in_own_units(samples: Sequence[Sample], numbers: Mapping[int, int] | None = None) -> list[Sample]:
    """Series as the model that needs no training reads them, all of it visible, with the numbers of their classes."""
    source = Scalars.of(as_source(list(samples), with_targets=False), with_errors=True)
    assert source.schema is not None
    packed = source.packed(np.arange(len(source)))
    packed = replace(packed, target=None, is_target_per_token=False)
    own: PackedSamples = OwnUnits.of(packed, len(source.schema.channels)).apply(packed)
    return [
        replace(own.sample(i), target=torch.tensor(numbers[class_of(sample)]) if numbers else None)
        for i, sample in enumerate(samples)
    ]


def balanced_accuracy(task: Task, training: Sequence[Sample], test: Sequence[Sample]) -> float:
    """Of a logistic regression on the vectors of series: the mean share of each class that it tells."""
    classes = [np.array([class_of(sample) for sample in part]) for part in (training, test)]
    vectors = [np.asarray(embed(task, list(part), pooling="layers")) for part in (training, test)]
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, class_weight="balanced", max_iter=2_000))
    told = model.fit(vectors[0], classes[0]).predict(vectors[1])
    is_known = np.isin(classes[1], classes[0])  # of a few series, some classes have none
    return float(balanced_accuracy_score(classes[1][is_known], told[is_known]))


def rows_of(data: str, trial: Trial, model: str, sizes: Sequence[int]) -> list[dict[str, Any]]:
    """The table of one data set: a row for each number of series and each start."""
    samples = DATA[data](trial.n_test + max(trial.sizes))
    test, rows = samples[: trial.n_test], []
    judge, judge_ahead = (Judge.of(test, samples, masking, SPLIT) for masking in (MASKING, AHEAD))
    assert judge is not None and judge_ahead is not None
    for n in sizes:
        training = samples[trial.n_test : trial.n_test + n]
        for start in STARTS:
            began = time.monotonic()
            curve = fitted(start, training, trial, model, RoMAEInterpolator)
            seconds, task = time.monotonic() - began, curve.task_
            assert isinstance(task, MaskedReconstruction)
            ahead = fitted(start, training, trial, model, RoMAEForecaster)
            row = {
                "data": data,
                "series": n,
                "start": start,
                "kept": curve.start_,
                "error": judge.error(task),
                "balanced accuracy": balanced_accuracy(task, training, test),
                "kept ahead": ahead.start_,
                "error ahead": judge_ahead.error(ahead.task_),
                "whole": whole_accuracy(start, training, test, trial, model),
                "seconds": seconds,
            }
            rows.append(row)
            whole = "none" if row["whole"] is None else f"{row['whole']:.3f}"
            print(
                f"{data:16s}{n:6d}  {start:13s} error {row['error']:.3f} ({curve.start_}), ahead "
                f"{row['error ahead']:.3f} ({ahead.start_}); balanced accuracy of vectors "
                f"{row['balanced accuracy']:.3f}, whole {whole}  {seconds:5.0f} s",
                flush=True,
            )
    return rows


def _rows_of_others(out: Path, data: str, sizes: Sequence[int], model: str) -> list[dict[str, Any]]:
    """What a file says of what is not run now, where it is of the same model."""
    if not out.is_file():
        return []
    before = json.loads(out.read_text())
    if not isinstance(before, dict) or set(before) != {"model", "rows"}:
        raise ValueError(f"{out} is no table of this command; remove it, or name another file")
    if before["model"] != model:
        return []
    return [row for row in before["rows"] if row["data"] != data or row["series"] not in sizes]


def _in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    names = list(DATA)
    return sorted(rows, key=lambda row: (names.index(row["data"]), row["series"]))


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line of this file."""
    parser = argparse.ArgumentParser(
        prog="python -m romae.experiments.zero_finetune", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--out", required=True, help="a JSON file for the table")
    parser.add_argument("--model", default=ZERO, help=f"the model to start from; {ZERO} by default")
    parser.add_argument("--data", nargs="+", choices=list(DATA), help="some of the data sets; all by default")
    parser.add_argument("--series", nargs="+", type=int, help="some of the numbers of series; all by default")
    parser.add_argument("--seconds", type=float, help=f"that a fit may take; {FULL.seconds:.0f} by default")
    parser.add_argument(
        "--quick", action="store_true", help="oscillators alone, a tiny model; the numbers mean nothing"
    )
    given = parser.parse_args(arguments)
    trial = QUICK if given.quick else FULL
    trial = trial if given.seconds is None else replace(trial, seconds=given.seconds)
    chosen, out = given.data or (["oscillators"] if given.quick else list(DATA)), Path(given.out)
    sizes = given.series or trial.sizes
    try:
        if unknown := sorted(set(sizes) - set(trial.sizes)):
            raise ValueError(f"--series {unknown[0]} is none of {', '.join(map(str, trial.sizes))}")
        require_writable(out.parent)
        _rows_of_others(out, "", (), given.model)  # a file of something else is refused before an hour is spent
        for data in chosen:
            try:
                rows = rows_of(data, trial, given.model, sizes)
            except MissingFile as missing:
                print(f"{data}: left out, {missing}", file=sys.stderr)
                continue
            # Read again now: other processes may have added rows of other data sets.
            rows = _in_order(_rows_of_others(out, data, sizes, given.model) + rows)
            write_whole_text(out, json.dumps({"model": given.model, "rows": rows}, indent=1) + "\n")
    except ValueError as error:
        print(f"romae: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()

"""What fine-tuning from the model that needs no training brings, beside that model as it is and beside new weights.

    python -m romae.experiments.zero_finetune --out results/zero/finetune.json      half an hour on one CPU core
    python -m romae.experiments.zero_finetune --out finetune.json --quick           a minute; numbers mean nothing

Each start learns from 50, 100 and 1 000 series of three data sets: two sensors of an oscillator (made on the spot),
ten variables of stays in intensive care (PhysioNet 2012, set a) and variable stars (ASAS). What is judged are series
that nothing was learned from: the mean absolute error of hidden values, in mean deviations of their channel, so that 1
is the error of saying the median everywhere, and the balanced accuracy of a logistic regression on the vectors of
series. Fine-tuning keeps the model as it is where held-out series say so, as the estimators do; `kept` says which it
was.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from romae.data.schema import Schema
from romae.estimators.starts import Judge
from romae.estimators.unsupervised import RoMAEInterpolator
from romae.experiments.datasets import asas, physionet2012
from romae.experiments.datasets.files import MissingFile
from romae.experiments.datasets.oscillators import SCHEMA, oscillators
from romae.files import require_writable, write_whole_text
from romae.inference.predictions import embed
from romae.inference.zero import ZERO
from romae.model.tasks import MaskedReconstruction, Task
from romae.tokens.masking import UniformTokens
from romae.tokens.sample import Sample

STARTS = ("zero-shot", "fine-tuned", "from scratch")
MASKING = UniformTokens(ratio=0.5)
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


def _some(samples: Sequence[Sample], n: int) -> list[Sample]:
    order = np.random.default_rng(SPLIT).permutation(len(samples))[:n]
    return [samples[i] for i in order.tolist()]


def fitted(start: str, samples: list[Sample], trial: Trial, model: str) -> RoMAEInterpolator:
    """An interpolator that learned from these series, or did not."""
    settings: dict[str, Any] = {"random_state": 0, "device": "cpu", "verbose": -1}
    if start == "from scratch":
        settings |= {"time_limit": trial.seconds, "pretrain_epochs": trial.epochs, **trial.settings}
        return RoMAEInterpolator(**settings).fit(samples)
    epochs = 0 if start == "zero-shot" else trial.epochs_of(len(samples))
    limit = None if start == "zero-shot" else trial.seconds
    return RoMAEInterpolator(pretrained=model, pretrain_epochs=epochs, time_limit=limit, **settings).fit(samples)


def balanced_accuracy(task: Task, training: Sequence[Sample], test: Sequence[Sample]) -> float:
    """Of a logistic regression on the vectors of series: the mean share of each class that it tells."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import balanced_accuracy_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    classes = [np.array([int(sample.target) for sample in part]) for part in (training, test)]
    vectors = [np.asarray(embed(task, list(part), pooling="layers")) for part in (training, test)]
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, class_weight="balanced", max_iter=2_000))
    told = model.fit(vectors[0], classes[0]).predict(vectors[1])
    is_known = np.isin(classes[1], classes[0])  # of a few series, some classes have none
    return float(balanced_accuracy_score(classes[1][is_known], told[is_known]))


def rows_of(data: str, trial: Trial, model: str) -> list[dict[str, Any]]:
    """The table of one data set: a row for each number of series and each start."""
    samples = DATA[data](trial.n_test + max(trial.sizes))
    test, rows = samples[: trial.n_test], []
    judge = Judge.of(test, samples, MASKING, SPLIT)
    assert judge is not None
    for n in trial.sizes:
        training = samples[trial.n_test : trial.n_test + n]
        for start in STARTS:
            began = time.monotonic()
            fit = fitted(start, training, trial, model)
            seconds, task = time.monotonic() - began, fit.task_
            assert isinstance(task, MaskedReconstruction)
            row = {
                "data": data,
                "series": n,
                "start": start,
                "kept": fit.start_,
                "error": judge.error(task),
                "balanced accuracy": balanced_accuracy(task, training, test),
                "seconds": seconds,
            }
            rows.append(row)
            print(
                f"{data:16s}{n:6d}  {start:13s} error {row['error']:.3f}  balanced accuracy "
                f"{row['balanced accuracy']:.3f}  {seconds:5.0f} s ({fit.start_})",
                flush=True,
            )
    return rows


def _rows_of_others(out: Path, chosen: Sequence[str], model: str) -> list[dict[str, Any]]:
    """What a file says of data sets that are not run now, where it is of the same model."""
    if not out.is_file():
        return []
    before = json.loads(out.read_text())
    if not isinstance(before, dict) or set(before) != {"model", "rows"}:
        raise ValueError(f"{out} is no table of this command; remove it, or name another file")
    return [row for row in before["rows"] if row["data"] not in chosen] if before["model"] == model else []


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line of this file."""
    parser = argparse.ArgumentParser(
        prog="python -m romae.experiments.zero_finetune", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--out", required=True, help="a JSON file for the table")
    parser.add_argument("--model", default=ZERO, help=f"the model to start from; {ZERO} by default")
    parser.add_argument("--data", nargs="+", choices=list(DATA), help="some of the data sets; all by default")
    parser.add_argument("--seconds", type=float, help=f"that a fit may take; {FULL.seconds:.0f} by default")
    parser.add_argument(
        "--quick", action="store_true", help="oscillators alone, a tiny model; the numbers mean nothing"
    )
    given = parser.parse_args(arguments)
    trial = QUICK if given.quick else FULL
    trial = trial if given.seconds is None else replace(trial, seconds=given.seconds)
    chosen, out = given.data or (["oscillators"] if given.quick else list(DATA)), Path(given.out)
    try:
        require_writable(out.parent)
        rows = _rows_of_others(out, chosen, given.model)
        for data in chosen:
            try:
                rows += rows_of(data, trial, given.model)
            except MissingFile as missing:
                print(f"{data}: left out, {missing}", file=sys.stderr)
            write_whole_text(out, json.dumps({"model": given.model, "rows": rows}, indent=1) + "\n")
    except ValueError as error:
        print(f"romae: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()

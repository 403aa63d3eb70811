"""Embeddings beside summary features: the same logistic regression on both, from training data to test data.

`RoMAEEmbedder` with its defaults is fitted to the training samples without their labels; its vectors, and
`romae.summary_features` of the same samples, are standardised and go to a logistic regression whose strength of
regularisation is chosen by cross-validation among the training samples. A third row has the vectors that the model
pools itself (`pooling="model"`).

    python -m romae.experiments.embeddings --out results/embeddings                    all data sets
    python -m romae.experiments.embeddings --out results/embeddings --sets uea/LSST    one of them
    python -m romae.experiments.embeddings --out trial --quick                         a few seconds each

Each data set is written to <machine>.json as soon as it is done, beside what was measured before. An embedder takes two
minutes at most on a GPU and five on two CPU cores, where it has fewer passes and a smaller model. Files are read from
ROMAE_DATA.

The pooling of the embedder was chosen by cross-validation within training data of uea/LSST-30, uea/Epilepsy, asas and
physionet2012 (docs/log.md). Sets with folds are tested on their first one, unless others are named.
"""

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int64

from romae.config import parsed_json
from romae.data.subsets import rank_in_class
from romae.data.summary import summary_features
from romae.estimators.unsupervised import RoMAEEmbedder
from romae.experiments import baselines
from romae.experiments.datasets import asas, esc50, physionet2012, plasticc, uea
from romae.experiments.datasets.light_curves import SCHEMA as LIGHT_CURVES
from romae.experiments.results import commit, device_name, versions
from romae.files import require_writable, write_whole_text
from romae.tokens.sample import Sample

Metric = Literal["accuracy", "f1_macro", "roc_auc"]
STRENGTHS = np.logspace(-4, 3, 8)  # C of the regression
N_FOLDS = 5
N_JOBS = -1  # all processors
DROP = 0.3  # of the time steps of uea/…-30
LABELS_PER_CLASS, FEWEST_STARS = 100, 50  # of asas; one class has 7 stars
QUICK_TRAIN, QUICK_TEST = 200, 60  # samples
QUICK = {"size": {"width": 24, "heads": 2, "depth": 1}, "pretrain_epochs": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """Samples with labels to learn from and to be tested on; all of `unlabelled` are for the embedder."""

    train: Sequence[Sample]
    test: Sequence[Sample]
    metric: Metric
    unlabelled: Sequence[Sample] | None = None


def _uea(name: str, drop: float, fold: int) -> Division:
    halves = [uea.load(name, half, missing=0.0).samples for half in ("train", "test")]
    if drop:
        halves = [
            [uea.thinned(sample, drop, (0, number, i)) for i, sample in enumerate(half)]
            for number, half in enumerate(halves)
        ]
    return Division(train=halves[0], test=halves[1], metric="accuracy")


def _physionet(fold: int) -> Division:
    train, test = (
        [sample.with_schema(physionet2012.SCHEMA) for sample in physionet2012.load(letter).samples()] for letter in "ab"
    )
    return Division(train=train, test=test, metric="roc_auc")


def _plasticc(fold: int) -> Division:
    samples = [sample.with_schema(LIGHT_CURVES) for sample in plasticc.load().samples]
    train, test = _fold(samples, fold)
    return Division(train=train, test=test, metric="f1_macro")


def _asas(fold: int) -> Division:
    everything, test = _fold(asas.load(fewest=FEWEST_STARS).samples, fold)
    order = np.random.default_rng(fold).permutation(len(everything))
    train = _first_of_each([everything[i] for i in order.tolist()], LABELS_PER_CLASS)
    return Division(train=train, test=test, metric="f1_macro", unlabelled=everything)


def _esc50(fold: int) -> Division:
    clips = esc50.load()
    folds = range(1, esc50.N_FOLDS + 1)
    train, test = (
        clips.of_folds([number for number in folds if (number == 1 + fold) == is_test]).samples()
        for is_test in (False, True)
    )
    return Division(train=train, test=test, metric="accuracy")


def _of_uea(name: str, drop: float) -> Callable[[int], Division]:
    return lambda fold: _uea(name, drop, fold)


UEA = ("BasicMotions", "CharacterTrajectories", "Epilepsy", "LSST")
SETS: dict[str, Callable[[int], Division]] = {
    **{f"uea/{name}": _of_uea(name, 0.0) for name in UEA},
    **{f"uea/{name}-30": _of_uea(name, DROP) for name in UEA},
    "physionet2012": _physionet,
    "plasticc": _plasticc,
    "asas": _asas,
    "esc50": _esc50,
}
HAVE_FOLDS = ("plasticc", "asas", "esc50")


def compare(
    division: Division, *, quick: bool = False, seed: int = 0, device: str = "auto", time_limit: float | None = None
) -> dict[str, Any]:
    """Scores on the test samples with vectors, with the model's own pooling and with summary features."""
    train, test, unlabelled = division.train, division.test, division.unlabelled
    if quick:
        n_classes = len(np.unique(baselines.classes(train)))
        train = _first_of_each(train, max(QUICK_TRAIN // n_classes, N_FOLDS))
        test, unlabelled = _first_of_each(test, max(QUICK_TEST // n_classes, 1)), None
    began = time.monotonic()
    settings = QUICK if quick else {"time_limit": time_limit}
    embedder = RoMAEEmbedder(**settings, device=device, random_state=seed)
    embedder.fit(train if unlabelled is None else unlabelled)
    seconds = time.monotonic() - began
    parts = train, test
    features = {"summary features": [summary_features(part).values for part in parts]}
    for name, pooling in (("embeddings", "layers"), ("embeddings as the model pools", "model")):
        embedder.set_params(pooling=pooling)
        features[name] = [np.asarray(embedder.transform(part)) for part in parts]
    labels, truth = baselines.classes(train), baselines.classes(test)
    rows = {name: regression(x, labels, y, truth, division.metric) for name, (x, y) in features.items()}
    return {
        "metric": division.metric,
        "scores": {name: row.score for name, row in rows.items()},
        "n_features": {name: both[0].shape[1] for name, both in features.items()},
        "C": {name: row.strength for name, row in rows.items()},
        "n_samples": {
            "train": len(train),
            "test": len(test),
            "unlabelled": len(train if unlabelled is None else unlabelled),
        },
        "epochs": embedder.histories_[0][-1]["epoch"],
        "seconds": {"fit": round(seconds), "all": round(time.monotonic() - began)},
        "quick": quick,
        "seed": seed,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Regressed:
    """A score on the test samples, and the strength C that cross-validation chose for it."""

    score: float
    strength: float


def regression(
    train: Float[np.ndarray, "b k"],
    labels: Int64[np.ndarray, "b"],
    test: Float[np.ndarray, "q k"],
    truth: Int64[np.ndarray, "q"],
    metric: Metric,
) -> Regressed:
    """The score of a logistic regression on standardised features; a missing one takes the mean."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import get_scorer
    from sklearn.model_selection import GridSearchCV, StratifiedKFold
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(
        SimpleImputer(keep_empty_features=True), StandardScaler(), LogisticRegression(max_iter=500, tol=1e-3)
    )
    folds = StratifiedKFold(N_FOLDS, shuffle=True, random_state=0)
    grid = {"logisticregression__C": STRENGTHS}
    with warnings.catch_warnings():
        # Weak regularisation does not always converge, which is its own punishment; some classes have few samples.
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", UserWarning)
        search = GridSearchCV(model, grid, scoring=metric, cv=folds, n_jobs=N_JOBS)
        search.fit(np.asarray(train, dtype=np.float64), labels)
        score = get_scorer(metric)(search.best_estimator_, np.asarray(test, dtype=np.float64), truth)
    return Regressed(score=float(score), strength=float(search.best_params_["logisticregression__C"]))


def run(
    names: Sequence[str],
    out: str | Path,
    *,
    folds: Sequence[int] = (0,),
    quick: bool = False,
    device: str = "auto",
    time_limit: float | None = None,
) -> Path:
    """Compare on these data sets and write each as soon as it is done; what was measured before stays."""
    if unknown := [name for name in names if name not in SETS]:
        raise ValueError(f"there is no data set {unknown[0]!r} here; there are {', '.join(SETS)}")
    if wrong := [fold for fold in folds if not 0 <= fold < N_FOLDS]:
        raise ValueError(f"folds are numbers from 0 to {N_FOLDS - 1}, not {wrong[0]}")
    require_writable(out)
    machine = device_name(device)
    path = Path(out) / f"{machine.lower().replace(' ', '-')}.json"
    measured = _previous(path)
    for name in names:
        for fold in folds if name in HAVE_FOLDS else (0,):
            comparison = compare(SETS[name](fold), quick=quick, device=device, time_limit=time_limit)
            about = {"commit": commit(), "device": machine, "versions": versions()}
            measured.setdefault(name, {})[str(fold)] = comparison | about
            write_whole_text(path, json.dumps(measured, indent=1) + "\n")
            scores = ", ".join(f"{key} {value:.4f}" for key, value in comparison["scores"].items())
            print(f"{name}, fold {fold}: {comparison['metric']}: {scores}", flush=True)
    return path


def _previous(path: Path) -> dict[str, dict[str, Any]]:
    """What was measured before; looked at first, so that nothing is measured in vain."""
    try:
        previous = parsed_json(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except ValueError:
        previous = None
    if not isinstance(previous, dict) or not all(
        name in SETS and isinstance(parts, dict) for name, parts in previous.items()
    ):
        raise ValueError(f"{path} is torn or no comparison of embeddings; remove it or name another folder with --out")
    return previous


def _fold(samples: Sequence[Sample], fold: int) -> tuple[list[Sample], list[Sample]]:
    """All folds but one, and that one; every fold has its share of each class."""
    from sklearn.model_selection import StratifiedKFold

    labels = baselines.classes(samples)
    parts = list(StratifiedKFold(N_FOLDS, shuffle=True, random_state=0).split(labels, labels))
    rest, chosen = ([samples[i] for i in part.tolist()] for part in parts[fold])
    return rest, chosen


def _first_of_each(samples: Sequence[Sample], n: int) -> list[Sample]:
    return [samples[i] for i in np.flatnonzero(rank_in_class(baselines.classes(samples)) < n).tolist()]


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line of this file."""
    parser = argparse.ArgumentParser(prog="python -m romae.experiments.embeddings", description=__doc__.split("\n")[0])
    parser.add_argument("--out", required=True, help="the folder of <machine>.json")
    parser.add_argument("--sets", nargs="+", default=list(SETS), metavar="SET", help=f"some of {', '.join(SETS)}")
    parser.add_argument("--folds", nargs="+", type=int, default=[0], help="of plasticc, asas and esc50; 0 by default")
    parser.add_argument("--time-limit", type=float, help="seconds for each embedder; by default what its rules say")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--quick", action="store_true", help="a few samples and one epoch; the numbers mean nothing")
    given = parser.parse_args(arguments)
    try:
        path = run(
            given.sets,
            given.out,
            folds=given.folds,
            quick=given.quick,
            device=given.device,
            time_limit=given.time_limit,
        )
    except ValueError as error:
        sys.exit(_refused(error))
    print(f"written to {path}")


def _refused(error: ValueError) -> int:
    print(f"romae: {error}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()

"""What stands beside ours on the page of results: which baselines are simple, which are peers, and what peers scored.

A method is simple where nothing is trained: it is a constant, a rule, or a statistic of what is visible. It is a peer
where something is fitted to the training data, or to each series, by which people would answer the question without
RoMAE. A baseline of no name below counts as a peer, which is the stricter comparison.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from romae.config import parsed_json
from romae.experiments.compare import trial
from romae.experiments.compare.methods import OURS
from romae.experiments.recipe import Better
from romae.experiments.results import numbered_files

SIMPLE = MappingProxyType(
    {
        "constant": "the mean or the most frequent class of the training data, whatever the sample",
        "mean": "the mean of what is visible of the channel in the sample",
        "last value": "the last visible value of the channel",
        "linear": "linear interpolation between neighbours; of distributions, with a spread that grows with the gap",
        "linear trend": "a straight line through what is visible, continued",
        "cubic spline": "cubic interpolation between neighbours",
        "1-NN": "the class of the nearest training series; nothing is fitted",
        "length": "the length of the stay alone, which shows what a leak gives away",
        "Lomb-Scargle": "the highest peak of the periodogram of what is visible",
        "harmonics": "a Fourier series of a known period through what is visible",
    }
)
PEERS = MappingProxyType(
    {
        "logistic regression": "fitted to summary features",
        "boosting": "boosted trees on summary features",
        "gradient boosting": "boosted trees on summary features",
        "gradient boosting, adjusted": "the same, classes adjusted to their frequency as ours are",
        "gradient boosting without periods": "boosted trees on features that know no period",
        "random forest": "on summary features",
        "gaussian process": "kernels fitted to each series",
        "MiniRocket": "random convolutions and a ridge classifier",
    }
)

# Data of results/peers, by the task whose arrays, splits and hidden cells they are.
DATA_OF_PEERS = MappingProxyType(
    {"physionet-grid": "uncertainty/physionet-grid", "p12": "clinical/p12", "p19": "clinical/p19"}
)

# Problems of `romae compare` with the training and test data, labels and metric of a task. The others differ in one of
# these: Heartbeat is divided otherwise, ESC-50 and ASAS are one fold, interpolators are judged by R².
DEFAULTS = MappingProxyType(
    {
        "uea/basic-motions": "BasicMotions-thinned",
        "uea/character-trajectories": "CharacterTrajectories-thinned",
        "uea/epilepsy": "Epilepsy-thinned",
        "uea/lsst": "LSST-thinned",
        "physionet/mortality": "mortality",
        "lightcurves/plasticc": "plasticc",
        "lightcurves/plasticc-few": "plasticc-20",
    }
)


class Score(NamedTuple):
    """The mean of a method over `n` seeds or folds."""

    name: str
    value: float
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What is not in the results of recipes, by task: metrics of peers, and the score of the default estimator."""

    peers: Mapping[str, Mapping[str, Mapping[str, Score]]] = field(default_factory=dict)  # task, metric, peer
    defaults: Mapping[str, Score] = field(default_factory=dict)


def is_simple(baseline: str) -> bool:
    return baseline in SIMPLE


def best(scores: Iterable[Score], better: Better) -> Score | None:
    """The best of some scores, the first of equals."""
    strictest = min if better == "lower" else max
    return strictest(scores, key=lambda score: score.value, default=None)


def read_beside(folder: str | Path) -> Beside:
    """What `romae compare` wrote into a folder of results: peers, and default estimators."""
    peers = {task: _peers(Path(folder, "peers", data)) for data, task in DATA_OF_PEERS.items()}
    scores = {task: _default(Path(folder, "compare"), problem) for task, problem in DEFAULTS.items()}
    return Beside(
        peers={task: metrics for task, metrics in peers.items() if metrics},
        defaults={task: score for task, score in scores.items() if score is not None},
    )


def _peers(folder: Path) -> dict[str, dict[str, Score]]:
    """The means over seeds of every metric, by peer; quick runs count for nothing."""
    values: dict[str, dict[str, list[float]]] = {}
    for path in sorted(folder.glob("*-*.json")):
        name, metrics = _peer(path)
        for metric, value in metrics.items():
            values.setdefault(metric, {}).setdefault(name, []).append(value)
    return {
        metric: {name: Score(name, float(np.mean(found)), len(found)) for name, found in by_name.items()}
        for metric, by_name in values.items()
    }


def _peer(path: Path) -> tuple[str, dict[str, float]]:
    """The name of a peer and what it scored on one seed."""
    try:
        result = parsed_json(path.read_text(encoding="utf-8"))
        metrics = {} if result["quick"] else result["metrics"]
        return str(result["peer"]).upper(), {str(name): float(value) for name, value in metrics.items()}
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{path} is no result of a peer ({error}); remove it and run it again") from None


def _default(folder: Path, problem: str) -> Score | None:
    """The default estimator on a problem, on the machine that has most of its folds; a GPU rather than a CPU."""
    scores = []
    for home in sorted(folder.glob(f"*/{problem}")):
        if home.parent.name not in (trial.TRIALS, trial.CHOICES):
            found = [trial.read(path).scores.get(OURS) for path in numbered_files(home)]
            values = [value for value in found if value is not None]
            is_gpu = home.parent.name != "cpu"
            scores += [(len(values), is_gpu, float(np.mean(values)))] if values else []
    n, _, mean = max(scores, key=lambda score: score[:2], default=(0, False, 0.0))
    return Score("default", mean, n) if n else None

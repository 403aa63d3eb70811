"""Classes by models of PyPOTS on the official splits of P12 and P19, beside the rows `clinical/p12` and `clinical/p19`.

They take an even grid: the mean of each hour, in z-scores of the training stays, of 48 hours of P12 and 60 of P19.
Facts of a stay are further series, the same in every hour, and words one series each, of 0 and 1; PyPOTS's Raindrop
knows no facts of its own. Seed k is split k, as in those rows.

Shapes: r records, h hours, v series and facts, f facts.
"""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float32, Float64, Int64

from romae.experiments.datasets import raindrop
from romae.experiments.datasets.raindrop import Cohort, Name
from romae.experiments.peers.fitting import Fit, fitted

N_HOURS: Mapping[str, int] = {"p12": 48, "p19": 60}
DEVIATIONS = 20.0  # no z-score is larger: data-entry errors, such as a weight in grams, lie beyond


def run(name: str, cohort: Name, seed: int, fit: Fit) -> dict[str, Any]:
    """Train a peer on a split, and judge it."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    whole, split = raindrop.load(cohort), (seed - 1) % raindrop.N_SPLITS + 1
    parts = {part: chosen(whole, part, split, fit) for part in raindrop.PARTS}
    grids = standardised(hourly(whole, N_HOURS[cohort]), of_facts(whole.facts), parts["train"])
    sets = {part: {"X": grids[rows], "y": whole.labels[rows]} for part, rows in parts.items()}
    sizes = {"n_steps": N_HOURS[cohort], "n_features": grids.shape[-1], "n_classes": 2}
    trained = fitted(name, seed, fit, sets, sizes)
    began = time.monotonic()
    score = np.asarray(trained.model.predict_proba({"X": sets["test"]["X"]}))[:, 1]
    trained.seconds["answer"] = round(time.monotonic() - began, 2)
    truth = sets["test"]["y"]
    return trained.result() | {
        "data": cohort,
        "metrics": {
            "auroc": float(roc_auc_score(truth, score)),
            "auprc": float(average_precision_score(truth, score)),
        },
        "n_records": {part: len(rows) for part, rows in parts.items()},
    }


def chosen(whole: Cohort, part: str, split: int, fit: Fit) -> Int64[np.ndarray, "r"]:
    """The records of a part of a split; in a quick run a few of both classes."""
    rows = whole.parts[part, split]
    limit = fit.n_validation if part == "validation" and fit.n_validation is not None else fit.n_records
    if limit is None or limit >= len(rows):
        return rows
    labels = whole.labels[rows]
    some = [rows[labels == label][: max(limit // 2, 1)] for label in (0, 1)]
    return np.sort(np.concatenate(some))


def hourly(whole: Cohort, n_hours: int) -> Float64[np.ndarray, "r h v"]:
    """The mean of the measurements of each hour, NaN where there is none; what comes later is left out."""
    n, n_series = len(whole), int(whole.variables.max()) + 1
    record, hour = np.repeat(np.arange(n), np.diff(whole.offsets)), whole.times.astype(np.int64)
    kept = (hour >= 0) & (hour < n_hours)
    cell = np.ravel_multi_index((record[kept], hour[kept], whole.variables[kept]), (n, n_hours, n_series))
    counts = np.bincount(cell, minlength=n * n_hours * n_series)
    totals = np.bincount(cell, whole.values[kept], minlength=len(counts))
    means = np.divide(totals, counts, out=np.full(len(counts), np.nan), where=counts > 0)
    return means.reshape(n, n_hours, n_series)


def of_facts(facts: pd.DataFrame) -> Float64[np.ndarray, "r f"]:
    """Facts as numbers: of a word, one column for each."""
    words = [name for name in facts.columns if not pd.api.types.is_numeric_dtype(facts[name])]
    return pd.get_dummies(facts, columns=words, dtype=np.float64).to_numpy(np.float64)


def standardised(
    grids: Float64[np.ndarray, "r h v"], facts: Float64[np.ndarray, "r f"], train: Int64[np.ndarray, "_"]
) -> Float32[np.ndarray, "r h w"]:
    """Series and facts in z-scores of the training records, facts in every hour."""
    constant = np.broadcast_to(facts[:, None], (*grids.shape[:2], facts.shape[1]))
    together = np.concatenate([grids, constant], axis=2)
    seen = together[train].reshape(-1, together.shape[2])
    counts = np.maximum((~np.isnan(seen)).sum(0), 1)  # a series that nobody has stays without numbers
    centre = np.nansum(seen, 0) / counts
    deviation = np.sqrt(np.nansum((seen - centre) ** 2, 0) / counts)
    scores = (together - centre) / np.where(deviation > 0, deviation, 1.0)
    return scores.clip(-DEVIATIONS, DEVIATIONS).astype(np.float32)

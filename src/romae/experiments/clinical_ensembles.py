"""Ensembles of seeds on P12 and P19: the mean of the logits of all seeds of a split, from results that are there.

    romae run clinical/p12 --seeds 1-15                     three seeds of each of the five splits
    python -m romae.experiments.clinical_ensembles --results results

Nothing is trained or chosen: every seed counts alike. Beside the ensemble stand the mean of its seeds and the sum of
the ranks of the ensemble and of boosting. Logits are kept with four digits.

Shapes: b test stays of a split.
"""

import argparse
import sys
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64

from romae.experiments.datasets import raindrop
from romae.experiments.results import Result, results_of
from romae.experiments.stays import ranks

ROWS = tuple(f"clinical/{name}" for name in raindrop.LABELS)
COLUMNS = ("one seed", "ensemble", "ensemble and boosting")


def by_split(results: Sequence[Result]) -> dict[int, list[Result]]:
    """The results of each split."""
    groups: dict[int, list[Result]] = {}
    for result in results:
        groups.setdefault(raindrop.split_of(result.seed), []).append(result)
    return dict(sorted(groups.items()))


def areas_of_split(results: Sequence[Result]) -> Float64[np.ndarray, "3 2"]:
    """AUROC and AUPRC of `COLUMNS`, from results of one split."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    labels = np.array(results[0].figure["labels"], dtype=np.int64)
    logits = np.array([result.figure["logits"] for result in results], dtype=np.float64)
    boosting = np.array(results[0].figure["logits_of_boosting"], dtype=np.float64)
    ensemble = logits.mean(axis=0)

    def both(score: Float64[np.ndarray, "b"]) -> list[float]:
        return [float(roc_auc_score(labels, score)), float(average_precision_score(labels, score))]

    together = (ranks(ensemble) + ranks(boosting)).astype(np.float64)
    return np.array([np.mean([both(one) for one in logits], axis=0), both(ensemble), both(together)])


def main(arguments: Sequence[str] | None = None) -> None:
    """Print AUROC and AUPRC of seeds and of their ensembles, by split and in the mean."""
    parser = argparse.ArgumentParser(prog="python -m romae.experiments.clinical_ensembles", description=main.__doc__)
    parser.add_argument("--results", default="results", help="the folder of results")
    given = parser.parse_args(arguments)
    try:
        tables = {name: by_split(results_of(name, given.results)) for name in ROWS}
        if not any(tables.values()):
            raise ValueError(f"there are no results of {' or '.join(ROWS)} in {given.results}; run them first")
        for name, splits in tables.items():
            areas = [areas_of_split(results) for results in splits.values()]
            for (split, results), numbers in zip(splits.items(), areas, strict=True):
                print(f"{name} split {split}, {len(results)} seeds: {_words(numbers)}")
            if len(areas) > 1:
                print(f"{name} mean of {len(areas)} splits: {_words(np.mean(areas, axis=0))}")
    except (ValueError, OSError) as error:
        print(f"romae: {error}", file=sys.stderr)
        sys.exit(2)


def _words(numbers: Float64[np.ndarray, "3 2"]) -> str:
    return ", ".join(f"{name} {100 * a:.1f} | {100 * b:.1f}" for name, (a, b) in zip(COLUMNS, numbers, strict=True))


if __name__ == "__main__":
    main()

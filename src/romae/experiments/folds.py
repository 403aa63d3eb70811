"""Objects with classes, divided: the first of each class, and folds with equal shares of them."""

import numpy as np

from romae.data.subsets import rank_in_class
from romae.experiments import baselines
from romae.tokens.sample import Sample


def first_of_each(samples: list[Sample], n: int | None) -> list[Sample]:
    """The first objects of each class."""
    if n is None:
        return samples
    return [samples[i] for i in np.flatnonzero(rank_in_class(baselines.classes(samples)) < n)]


def fold_of(samples: list[Sample], n_folds: int, fold: int, state: int) -> tuple[list[Sample], list[Sample]]:
    """All folds but one, and that one; every fold has its share of each class."""
    from sklearn.model_selection import StratifiedKFold

    labels = baselines.classes(samples)
    if (fewest := int(np.bincount(labels)[np.unique(labels)].min())) < n_folds:
        raise ValueError(f"a class has {fewest} objects, too few for {n_folds} folds; take more of each class")
    parts = list(StratifiedKFold(n_folds, shuffle=True, random_state=state).split(labels, labels))
    rest, chosen = ([samples[i] for i in part] for part in parts[fold])
    return rest, chosen

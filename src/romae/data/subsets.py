"""Some of many samples: evenly spread, or balanced over classes."""

import numpy as np
from jaxtyping import Int64


def evenly_spread(n: int, n_wanted: int) -> list[int]:
    """Up to so many indices from 0 to n - 1, evenly spread, the first and the last among them."""
    return np.unique(np.linspace(0, n - 1, min(n, n_wanted)).round().astype(int)).tolist()


def rank_in_class(classes: Int64[np.ndarray, "b"]) -> Int64[np.ndarray, "b"]:
    """How many of the samples before it have the class of a sample."""
    import pandas as pd

    return pd.Series(classes).groupby(classes).cumcount().to_numpy()


def balanced(classes: Int64[np.ndarray, "b"], n_wanted: int) -> list[int]:
    """Indices of up to so many samples: as many of each class as there are, or as of the others."""
    return np.sort(np.argsort(rank_in_class(classes), kind="stable")[:n_wanted]).tolist()

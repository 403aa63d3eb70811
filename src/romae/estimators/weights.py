"""Weights of samples and of classes: any form of them becomes one array, in the order of the samples.

Shapes: b samples, k classes.
"""

from collections.abc import Mapping, Sequence
from numbers import Number
from typing import Any, Literal

import numpy as np
from jaxtyping import Float32, Float64, Int64, Shaped

from romae.estimators.labels import in_order_of
from romae.tokens.sample import Sample

Weights = Float64[np.ndarray, "b"]
ClassWeight = Literal["balanced"] | Mapping[Any, float]


def weights_of(X: Any, samples: Sequence[Sample], sample_weight: Any) -> Weights | None:
    """One weight per sample: those that are given, or those that the samples bring along; None where there are none.

    For a table, a pandas column indexed by id or a dictionary gives the weight of each id; one number is for all.
    """
    if sample_weight is None:
        sample_weight = sample_weights(samples)
        if sample_weight is None:
            return None
    elif isinstance(sample_weight, Number):
        sample_weight = [sample_weight] * len(samples)
    else:
        sample_weight = in_order_of(X, samples, sample_weight, "sample_weight", "weight")
    try:
        weights = np.array(sample_weight, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(
            f"sample_weight must be a list or an array with a number for each of the {len(samples)} samples, and it is "
            f"of type {type(sample_weight).__name__}"
        ) from None
    if weights.shape != (len(samples),):
        raise ValueError(
            f"sample_weight has the shape {list(weights.shape)} for {len(samples)} samples: each needs one weight"
        )
    wrong = ~((weights >= 0) & np.isfinite(weights))
    if wrong.any():
        first = int(wrong.argmax())
        name = first if samples[first].id is None else samples[first].id
        raise ValueError(
            f"sample_weight is {weights[first]:g} for sample {name!r} ({int(wrong.sum())} of {len(weights)} are not "
            "finite, or negative); weights are numbers from 0 on, and 0 leaves a sample out"
        )
    if not weights.any():
        raise ValueError("every weight in sample_weight is zero, so that there is nothing to learn from")
    return weights


def class_factors(
    class_weight: ClassWeight | None,
    classes: Shaped[np.ndarray, "k"],
    index: Int64[np.ndarray, "b"],
    weights: Weights | None,
) -> Float64[np.ndarray, "k"] | None:
    """What the weight of each class is multiplied by.

    "balanced" gives all classes the same weight in all. Classes that a dictionary does not name have weight 1.
    """
    if class_weight is None:
        return None
    if isinstance(class_weight, str):
        totals = np.bincount(index, weights, minlength=len(classes))
        return totals.sum() / (len(classes) * totals)
    names = classes.tolist()
    unknown = [name for name in class_weight if name not in names]
    if unknown and not all(name in class_weight for name in names):  # else y lacks a class, as a fold of it may
        raise ValueError(f"class_weight names {unknown[0]!r}, which is no class in y; there are {names}")
    return np.array([class_weight.get(name, 1.0) for name in names], dtype=np.float64)


def require_class_weight(class_weight: Any) -> None:
    """Refuse weights of classes that are not above 0."""
    for name, weight in class_weight.items() if isinstance(class_weight, Mapping) else ():
        if not 0 < weight < np.inf:
            raise ValueError(
                f"class_weight gives the class {name!r} the weight {weight:g}, and weights are above 0; to leave a "
                "class out, leave its series out"
            )


def normalised(weights: Weights | None) -> Float32[np.ndarray, "b"] | None:
    """Weights of mean 1, so that a factor of all of them changes nothing; None where all are the same."""
    if weights is None or (weights == weights[0]).all():
        return None
    relative = weights / weights.max()
    return np.maximum(relative / relative.mean(), np.finfo(np.float32).tiny).astype(np.float32)


def sample_weights(samples: Sequence[Sample]) -> Weights | None:
    """The weights that samples have, 1 where one has none; None where none has any."""
    if all(sample.weight is None for sample in samples):
        return None
    return np.array([1.0 if sample.weight is None else float(sample.weight) for sample in samples])

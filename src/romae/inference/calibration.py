"""A classifier is calibrated on samples that it was not trained on."""

from collections.abc import Sequence

import numpy as np
import torch

from romae.inference.predictions import predict_proba
from romae.model.calibration import Calibration, fitted
from romae.model.tasks import Classification
from romae.tokens.sample import Sample


def calibration_of(parts: Sequence[tuple[Classification, Sequence[Sample]]]) -> Calibration:
    """The calibration of a task by samples with classes, such as its validation samples; there may be none of them.

    Several tasks that were trained alike, each with the samples that it was not trained on, have one together. Samples
    count by their weights, where they have such, so that probabilities are those of the weighted samples.
    """
    logits, classes, weights = [], [], []
    for task, samples in parts:
        if len(samples) == 0:
            continue
        before, task.calibration = task.calibration, None
        try:
            probabilities = predict_proba(task, samples)
        finally:
            task.calibration = before
        logits.append(torch.from_numpy(np.log(np.maximum(probabilities, 1e-300))))
        classes += [int(sample.target) for sample in samples]
        weights += [None if sample.weight is None else float(sample.weight) for sample in samples]
    first = parts[0][0]
    together = torch.cat(logits) if logits else torch.zeros(0, first.n_classes)
    by_sample = None
    if any(weight is not None for weight in weights):
        by_sample = torch.tensor([1.0 if weight is None else weight for weight in weights], dtype=torch.float64)
    return fitted(together, torch.tensor(classes, dtype=torch.long), first.confidence, by_sample)

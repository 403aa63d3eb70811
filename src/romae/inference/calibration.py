"""A classifier is calibrated on samples that it was not trained on."""

from collections.abc import Sequence

import numpy as np
import torch

from romae.inference.predictions import predict_proba
from romae.model.calibration import Calibration, fitted
from romae.model.tasks import Classification
from romae.tokens.sample import Sample


def calibration_of(task: Classification, samples: Sequence[Sample]) -> Calibration:
    """The calibration of a task by samples with classes, such as its validation samples; there may be none of them."""
    if len(samples) == 0:
        return fitted(torch.zeros(0, task.n_classes), torch.zeros(0, dtype=torch.long), task.confidence)
    before, task.calibration = task.calibration, None
    try:
        probabilities = predict_proba(task, samples)
    finally:
        task.calibration = before
    logits = torch.from_numpy(np.log(np.maximum(probabilities, 1e-300)))
    return fitted(logits, torch.tensor([int(sample.target) for sample in samples]), task.confidence)

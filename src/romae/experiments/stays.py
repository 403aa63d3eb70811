"""Stays of PhysioNet 2012 as experiments take them: how they are divided, what is hidden, how they are scaled."""

from collections.abc import Sequence

import numpy as np

from romae.data.fitting import Method
from romae.data.scaling import Scaling, fit_scaling
from romae.tokens.masking import Rows, Strategy, UniformTokens, hide
from romae.tokens.sample import Sample

SPLIT = 5  # the seed of the split and of the test masks; docs/experiments.md says why 5
PLAUSIBLE = 10.0  # standard deviations; what lies beyond is mostly a data-entry error
MASKING: dict[str, Strategy] = {"rows": Rows(ratio=0.5, axis=0), "tokens": UniformTokens(ratio=0.5)}
LIMITS = (
    "For research, never for the care of a patient. It has seen adults in the intensive-care units of one hospital, in "
    "their first 48 hours, two decades ago; other hospitals measure other things at other times, and it was not judged "
    "on them. Slips of the pen in the records were kept."
)


def divided(samples: Sequence[Sample], share: float = 1.0) -> tuple[list[Sample], list[Sample], list[Sample]]:
    """Test (a fifth), validation (a twenty-fifth) and training stays, always the same; a share of each of them."""
    order, n = np.random.default_rng(SPLIT).permutation(len(samples)), len(samples)
    test, validation, train = (
        [samples[i] for i in part[: max(round(share * len(part)), 1)].tolist()]
        for part in np.split(order, [n // 5, n // 5 + n // 25])
    )
    return test, validation, train


def masked(samples: Sequence[Sample], masking: Strategy) -> list[Sample]:
    """The samples with what they hide, which follows from the record alone; one of a single time is left out."""
    records = [int(str(sample.id)) for sample in samples]
    return hide(samples, masking, SPLIT, records)


def stay_scaling(samples: Sequence[Sample], minutes: float, values: Method = "standard") -> Scaling:
    """Each variable in its own standard deviations, or as told, and time in units of so many minutes."""
    return fit_scaling(samples, values=values, per="channel", unit=minutes)

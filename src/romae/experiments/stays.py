"""Stays of PhysioNet 2012 as experiments take them: how they are divided, what is hidden, how they are scaled.

And how scores of patients are put together and drawn. Shapes: b patients.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from romae.data.fitting import Method
from romae.data.scaling import Scaling, fit_scaling
from romae.pages.charts import Line, bands
from romae.tokens.masking import Rows, Strategy, UniformTokens, hide
from romae.tokens.sample import Sample

SPLIT = 5  # the seed of the split and of the test masks; docs/experiments.md says why 5
PLAUSIBLE = 10.0  # standard deviations; what lies beyond is mostly a data-entry error
ALARMS = tuple(np.linspace(0, 1, 51).tolist())
MASKING: dict[str, Strategy] = {
    "rows": Rows(ratio=0.5, axis=0),
    "tokens": UniformTokens(ratio=0.5),
    "rows-30": Rows(ratio=0.3, axis=0),
}
LIMITS = (
    "For research, never for the care of a patient. It has seen adults in the intensive-care units of one hospital, in "
    "their first 48 hours, two decades ago; other hospitals measure other things at other times, and it was not judged "
    "on them. Data-entry errors were not removed."
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


def ranks(score: Float64[np.ndarray, "b"]) -> Int64[np.ndarray, "b"]:
    """The place of each patient in the order of the scores."""
    return score.argsort(kind="stable").argsort(kind="stable")


def recall_by_alarms(score: Float64[np.ndarray, "b"], is_positive: np.ndarray) -> list[float]:
    """Recall: the share of all positives among the patients with the highest scores, for each share of patients."""
    order = np.argsort(-score, kind="stable")
    recall = np.concatenate([[0], np.cumsum(is_positive[order])]) / is_positive.sum()
    return np.interp(np.array(ALARMS) * len(order), np.arange(len(recall)), recall).tolist()


def alarm_figure(figures: Sequence[Mapping[str, Any]], names: Sequence[str], what: str) -> dict[str, Any]:
    """The recall of each score over the share of patients with an alarm, by its caption."""
    x = np.array(ALARMS)
    lines = [Line(name, x, np.array([figure[name] for figure in figures], dtype=float)) for name in names]
    caption = f"{what} found when an alarm is raised for a share of the patients, {len(figures)} seeds"
    return {caption: bands(lines, x="share of patients with an alarm", y=f"share of {what.lower()} found")}

"""How good predicted distributions are: what they give away, and whether intervals hold what they promise.

The continuous ranked probability score (CRPS) of a single number is its absolute error; the log score is the negative
log density of what came. Both are in the units that a recipe scores in, one for each number, as are widths. Shapes: q
hidden numbers of all samples, end to end.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from romae.experiments import baselines
from romae.inference.calibration import conformal_of
from romae.inference.distributions import Distribution
from romae.model.conformal import FEWEST, Conformal
from romae.model.tasks import Task
from romae.pages.charts import Line, bands
from romae.tokens.sample import Sample

LEVELS = (0.5, 0.8, 0.9, 0.95)
CALIBRATED = "_calibrated"
N_QUANTILES = 99
N_BINS = 3  # of distances to the nearest observation, by which residuals of lines are told apart

Numbers = Float64[np.ndarray, "q"]


@dataclass(frozen=True, eq=False)
class Predicted:
    """What a task says of numbers, and what they are; `unit` is that of scores, in the data's own."""

    parts: Sequence[Distribution]
    truth: Numbers
    unit: Numbers

    @property
    def ends(self) -> Int64[np.ndarray, "b"]:
        """Where the numbers of each part end."""
        return np.cumsum([math.prod(part.shape) for part in self.parts])

    def scores(self, calibration: Conformal | None = None) -> dict[str, float]:
        """CRPS, log score, and how many numbers lie in central intervals that are how wide."""
        found = self.by_number(calibration)
        return {name: float(np.mean(numbers)) for name, numbers in found.items()}

    def by_number(self, calibration: Conformal | None = None) -> dict[str, Numbers]:
        """The same of each number."""
        rows: dict[str, list[np.ndarray]] = {}
        for part, x in zip(self.parts, np.split(self.truth, self.ends[:-1]), strict=True):
            whole = part.with_calibration(calibration)
            x = x.reshape(whole.shape)
            row = {"crps": whole.crps(x), "nll": -whole.log_prob(x)}
            for level in LEVELS:
                low, high = whole.interval(level)
                row |= {f"coverage_{level:.0%}": (low <= x) & (x <= high), f"width_{level:.0%}": high - low}
            for name, numbers in row.items():
                rows.setdefault(name.replace("%", ""), []).append(np.asarray(numbers, dtype=float).ravel())
        joined = {name: np.concatenate(parts) for name, parts in rows.items()}
        joined["nll"] -= np.log(self.unit)
        for name in ("crps", *(name for name in joined if name.startswith("width"))):
            joined[name] /= self.unit
        return joined


def calibrated_scores(
    task: Task, predicted: Predicted, held_out: Sequence[Sample] | None
) -> tuple[dict[str, float], dict[str, Any]]:
    """Scores as they are and, where there are samples enough that were held out, after split conformal calibration.

    The second part is a figure of what intervals hold.
    """
    scores = predicted.scores()
    figure: dict[str, Any] = {"levels": list(LEVELS), "as it is": _held(scores)}
    if held_out is not None and len(held_out) >= FEWEST:
        scores |= {f"{name}{CALIBRATED}": x for name, x in predicted.scores(conformal_of([(task, held_out)])).items()}
        figure["calibrated"] = [scores[f"coverage_{level * 100:.0f}{CALIBRATED}"] for level in LEVELS]
    return scores, figure


def drawn(figures: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A chart of what `calibrated_scores` says of several seeds."""
    x = np.array(figures[0]["levels"], dtype=float)
    names = [name for name in ("as it is", "calibrated") if all(name in figure for figure in figures)]
    lines = [Line(name, x, np.array([figure[name] for figure in figures], dtype=float)) for name in names]
    lines.append(Line("what they promise", x, x[None]))
    caption = f"What central intervals hold of what was hidden, {len(figures)} seeds"
    return {caption: bands(lines, x="level of the interval", y="share of numbers inside")}


def crps_of_quantiles(quantiles: Float64[np.ndarray, "q l"], truth: Numbers) -> Numbers:
    """The CRPS of distributions that are known by even quantiles: twice the mean pinball loss."""
    n = quantiles.shape[1]
    levels = (np.arange(n) + 0.5) / n
    error = truth[:, None] - quantiles
    return 2 * np.maximum(levels * error, (levels - 1) * error).mean(1)


def climatology_crps(
    seen: Float64[np.ndarray, "n"], of_seen: Int64[np.ndarray, "n"], truth: Numbers, of: Int64[np.ndarray, "q"]
) -> Numbers:
    """The CRPS of saying what the training values of a channel are distributed like; of all where it has none."""
    return crps_of_quantiles(_quantiles_by(seen, of_seen, of), truth)


class Lines:
    """Straight lines between visible measurements, with the spread of their residuals by channel and distance.

    Parameters
    ----------
    samples : list of Sample
        Training samples that hide something, as the test does, in the units of the scores.
    channels : list of arrays
        The channel of each hidden number of each sample.
    """

    def __init__(self, samples: Sequence[Sample], channels: Sequence[Int64[np.ndarray, "_"]]) -> None:
        told, truth, distance = _of_lines(samples)
        self.residual, self.edges = truth - told, np.quantile(distance, np.arange(1, N_BINS) / N_BINS)
        self.group = self._group(np.concatenate(channels), distance)

    def crps(self, samples: Sequence[Sample], channels: Sequence[Int64[np.ndarray, "_"]]) -> Numbers:
        """Of what other samples hide."""
        told, truth, distance = _of_lines(samples)
        spread = _quantiles_by(self.residual, self.group, self._group(np.concatenate(channels), distance))
        return crps_of_quantiles(told[:, None] + spread, truth)

    def _group(self, channel: Int64[np.ndarray, "q"], distance: Numbers) -> Int64[np.ndarray, "q"]:
        return channel * N_BINS + np.searchsorted(self.edges, distance)


def _held(scores: Mapping[str, float]) -> list[float]:
    return [scores[f"coverage_{level * 100:.0f}"] for level in LEVELS]


def _quantiles_by(
    values: Float64[np.ndarray, "n"], groups: Int64[np.ndarray, "n"], asked: Int64[np.ndarray, "q"]
) -> Float64[np.ndarray, "q l"]:
    """Even quantiles of the values of a group, those of all for a group without any."""
    levels = (np.arange(N_QUANTILES) + 0.5) / N_QUANTILES
    of_all = np.quantile(values, levels)
    table = np.tile(of_all, (int(max(groups.max(), asked.max())) + 1, 1))
    for group in np.unique(groups):
        table[group] = np.quantile(values[groups == group], levels)
    return table[asked]


def _of_lines(samples: Sequence[Sample]) -> tuple[Numbers, Numbers, Numbers]:
    """What lines say of hidden numbers, what these are, and how far the nearest visible time of the sample is."""
    told = np.concatenate([baselines.fill(baselines.linear, sample)[:, 0] for sample in samples])
    truth = np.concatenate([baselines.truth(sample)[:, 0] for sample in samples])
    distance = []
    for sample in samples:
        assert sample.hidden is not None
        times, hidden = sample.positions[:, 0].double().numpy(), sample.hidden.numpy()
        seen = np.sort(times[~hidden])
        after = np.searchsorted(seen, times[hidden])
        sides = [np.abs(times[hidden] - seen[np.clip(after - k, 0, len(seen) - 1)]) for k in (0, 1)]
        distance.append(np.minimum(*sides))
    return told, truth, np.concatenate(distance)

"""Variable stars as experiments take them: what is shown of them, their periods, phases and features.

Everything that is said of a star follows from its visible points. Shapes: b stars, k features.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from romae.data.periods import Phased
from romae.data.phase import Phase
from romae.data.schema import SampleSet, Schema
from romae.data.sources import as_source
from romae.data.static import with_static
from romae.experiments import baselines
from romae.experiments.datasets import asas
from romae.experiments.datasets.files import data_root
from romae.experiments.folds import first_of_each
from romae.experiments.periodic_baselines import Seen
from romae.experiments.recipe import Source
from romae.model.config import ModelConfig
from romae.tokens.ladder import Ladder
from romae.tokens.sample import Sample

N_FOLDS = 5
FALSE_ALARM = 0.01  # above which a period counts as none, as in `add_phase`
OF_PERIOD = ("log period", "log runner-up", "power")
QUANTILES = (0.05, 0.25, 0.75, 0.95)
OF_SHAPE = (
    "deviation",
    "amplitude",
    *(f"quantile {share:g}" for share in QUANTILES),
    "skewness",
    "kurtosis",
    "error",
    "change",
    "slope",
    "points",
    "span",
)
FACTS = {"none": (), "period": OF_PERIOD, "summary": (*OF_PERIOD, *OF_SHAPE)}
TIME = Ladder(shortest=12.7, longest=17_000.0)


class Stars(NamedTuple):
    """The stars with what is hidden of them, and what their visible points say: a row of `features` for each id.

    `periods` are NaN where they are not significant; `highest` are those of the highest peak, whatever it is. Of each
    class in `names` there are so many stars in all, in `counts`.
    """

    samples: list[Sample]
    names: tuple[str, ...]
    counts: Int64[np.ndarray, "k"]
    features: pd.DataFrame
    periods: pd.Series
    highest: pd.Series

    def rows(self, samples: Sequence[Sample], columns: Sequence[str]) -> Float64[np.ndarray, "b k"]:
        """Features of some of the stars."""
        return self.features.loc[[sample.id for sample in samples], list(columns)].to_numpy(np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class StarSource(Source):
    """Stars of which a share of the points is shown, with or without phase and facts.

    Periods are looked for from `shortest` days on. `most_per_class` takes the first few stars of each class; classes of
    fewer than `rare` stars in all are judged apart.
    """

    share: float = 1.0
    phase: bool = True
    features: Literal["none", "period", "summary"] = "none"
    ladder: Ladder = TIME
    shortest: float = asas.SHORTEST
    most_per_class: int | None = None
    rare: int = 50

    def shaped(self, model: ModelConfig) -> ModelConfig:
        """The model with an axis for the phase and one for the facts, where there are such."""
        n_facts = len(FACTS[self.features])
        ladders = (self.ladder, *([self._rule().ladder] if self.phase else []), *([Ladder()] if n_facts else []))
        return replace(
            model,
            position_dims=len(ladders),
            ladders=ladders,
            kinds=1 + n_facts if n_facts else None,
            static_from=1 if n_facts else None,
            pool="kinds" if n_facts and not model.cls else "tokens",
        )

    def _rule(self) -> Phase:
        return Phase(shortest=self.shortest, longest=asas.LONGEST, false_alarm=FALSE_ALARM)

    def stars(self, share: float | None = None) -> Stars:
        """The stars with another share of their points, or with that of the settings."""
        if not 0 < (share := self.share if share is None else share) <= 1:
            raise ValueError(f"data.share is a share of the points, above 0 and at most 1, not {share:g}")
        if self.most_per_class is not None and self.most_per_class < N_FOLDS:
            raise ValueError(f"data.most_per_class must be at least {N_FOLDS}, one for each fold, or none for all")
        path = data_root() / "asas" / asas.FILE
        written = path.stat().st_mtime_ns if path.exists() else 0
        return _read(path, written, share, self.shortest, self.most_per_class)

    def inputs(self, stars: Stars, samples: Sequence[Sample], schema: Schema) -> SampleSet:
        """Samples of these stars with their facts and their phase."""
        if self.features != "none":
            schema = replace(schema, channel="band", channels=("V",))
            samples = [_with_axis(sample) for sample in samples]
            facts = pd.DataFrame(stars.rows(samples, FACTS[self.features]), columns=list(FACTS[self.features]))
            named = with_static(SampleSet(samples, schema), facts)
        else:
            named = SampleSet(list(samples), schema)
        if not self.phase:
            return named
        # The rule is one that a saved model follows by itself; its periods are those that were found already.
        periods = stars.periods.loc[[sample.id for sample in samples]].to_numpy()
        phased = Phased(as_source(named, with_targets=False), self._rule(), periods)
        packed = phased.packed(np.arange(len(named)))
        parts = packed.positions.split(packed.layout.lengths.tolist())
        assert phased.schema is not None
        return SampleSet(
            [replace(sample, positions=part, schema=phased.schema) for sample, part in zip(named, parts, strict=True)],
            phased.schema,
        )


@lru_cache(maxsize=2)  # two shares of the points; a file that has changed was written at another time
def _read(path: Path, written: int, share: float, shortest: float, most_per_class: int | None) -> Stars:
    samples, names = asas.load(folder=path.parent)
    counts = np.bincount(baselines.classes(samples), minlength=len(names))
    stars = asas.shown(first_of_each(samples, most_per_class), share)
    peaks = asas.peaks(stars, shortest=shortest, folder=path.parent)
    ids = pd.Index([star.id for star in stars])
    is_significant = (peaks["false_alarm"] <= FALSE_ALARM).to_numpy()
    highest = pd.Series(peaks["period"].to_numpy(), ids)
    return Stars(stars, names, counts, _features(stars, peaks, is_significant), highest.where(is_significant), highest)


def _features(stars: Sequence[Sample], peaks: pd.DataFrame, is_significant: np.ndarray) -> pd.DataFrame:
    """What visible points say: NaN where there is no significant period."""
    periods = np.log10(np.where(is_significant[:, None], peaks[["period", "runner_up"]].to_numpy(), np.nan))
    table = np.concatenate([periods, peaks[["power"]].to_numpy(), [_shape(star) for star in stars]], axis=1)
    return pd.DataFrame(table, columns=list(FACTS["summary"]), index=[star.id for star in stars])


def _shape(star: Sample) -> list[float]:
    """The features `OF_SHAPE` of a star, whatever its mean magnitude."""
    seen = seen_points(star)
    order = np.argsort(seen.times, kind="stable")
    days, x = seen.times[order], (seen.values - seen.values.mean())[order]
    deviation = float(x.std())
    z = x / (deviation or 1.0)
    low, *inner, high = np.quantile(x, QUANTILES)
    change = float(np.abs(np.diff(x)).mean()) if len(x) > 1 else 0.0
    late = days - days.mean()
    slope = float(late @ x) / (float(late @ late) or 1.0)
    return [
        deviation,
        high - low,
        low,
        *inner,
        high,
        float((z**3).mean()),
        float((z**4).mean()),
        float(np.median(seen.errors)),
        change / (deviation or 1.0),
        slope,
        float(len(x)),
        float(np.ptp(days)),
    ]


def seen_points(star: Sample) -> Seen:
    """The visible points of a star, without facts."""
    is_seen = _is_point(star) if star.hidden is None else _is_point(star) & ~star.hidden
    magnitudes, errors = star.values[is_seen].double().numpy().T
    return Seen(star.positions[is_seen, 0].double().numpy(), magnitudes, errors)


def _is_point(star: Sample) -> Bool[Tensor, "n"]:
    """True on measurements: all tokens but facts."""
    has_facts = star.schema is not None and bool(star.schema.static)
    return star.positions[:, -1] == 0 if has_facts else torch.ones(len(star), dtype=torch.bool)


def _with_axis(sample: Sample) -> Sample:
    """The sample with a last position axis of channels, of which it has one."""
    return replace(sample, positions=torch.nn.functional.pad(sample.positions, (0, 1)))


def relative(sample: Sample) -> Sample:
    """What is visible of a star, relative to its mean; the rest is taken out."""
    keep = slice(None) if sample.hidden is None else ~sample.hidden
    values = sample.values[keep].clone()
    values[:, 0] -= values[:, 0].double().mean().float()
    return replace(sample, values=values, positions=sample.positions[keep], hidden=None)

"""Which ids are trained on, which choose the weights, and which are only scored at the end."""

from collections import Counter
from collections.abc import Collection, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from romae.checkpoints.native import read_json
from romae.data import labels
from romae.data.schema import SampleSet, Schema
from romae.data.sources import as_source
from romae.tokens.sample import Sample
from romae.training.run_folder import TEST_IDS


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitConfig:
    """The share of ids that are kept out of training and choose the weights, drawn by the seed; 0 keeps none out."""

    share: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        _require_split(self.share, self.seed, "validation", "to validate on")


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldoutConfig:
    """The share of ids that are kept out of training and of validation, drawn by the seed; 0 keeps none out."""

    share: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        _require_split(self.share, self.seed, "test", "to test on")


def _require_split(share: float, seed: int, name: str, purpose: str) -> None:
    if not 0 <= share < 1:
        raise ValueError(f"share is the part of the ids {purpose} ({name}.share), from 0 to below 1, not {share}")
    if seed < 0:
        raise ValueError(f"{name}.seed must be at least 0, not {seed}")


def validation_split(samples: SampleSet, config: SplitConfig) -> tuple[SampleSet, SampleSet | None]:
    """Samples to train on and to validate on, in order; which is which depends on the seed and the number of ids.

    An id with a channel or a class that would be missing in training is trained on, and the next one drawn instead.
    """
    if config.share == 0:
        return samples, None
    order = np.random.default_rng(config.seed).permutation(len(samples))
    n_validation = _n_kept_out(samples, config.share, "validation")
    return _divided(samples, _drawn(samples, order, Counter({None: n_validation}), [None] * len(samples), "validation"))


def holdout_split(
    samples: SampleSet, config: HoldoutConfig, first: Collection[Hashable] = ()
) -> tuple[SampleSet, SampleSet | None]:
    """The samples that are left, and those to test on, in order; every class has the same share of its ids tested on.

    An id with a channel or a class that would be missing in the rest is not tested on. Ids in `first` are drawn before
    others: those that pre-training has kept out as well.
    """
    if config.share == 0:
        return samples, None
    n_test = _n_kept_out(samples, config.share, "test")
    strata = _strata_of(samples)
    order = np.random.default_rng(config.seed).permutation(len(samples))
    is_later = np.array([sample.id not in first for sample in samples])
    order = order[np.argsort(is_later[order], kind="stable")]
    return _divided(samples, _drawn(samples, order, _quotas(Counter(strata), n_test), strata, "test"))


def _quotas(counts: Counter[Any], n_kept_out: int) -> Counter[Any]:
    """How many ids of each class are kept out: its share rounded down, and one more where most is lost by that.

    Of 10, 5 and 5 ids, 5 are kept out: 2.5, 1.25 and 1.25 are wanted, 2, 1 and 1 are sure, and the first gets one more.
    """
    wanted = {name: n_kept_out * count / counts.total() for name, count in counts.items()}
    quotas = Counter({name: int(number) for name, number in wanted.items()})
    by_loss = sorted(wanted, key=lambda name: (quotas[name] - wanted[name], -counts[name], str(name)))
    quotas.update(by_loss[: n_kept_out - quotas.total()])
    return quotas


def _drawn(
    samples: SampleSet, order: Int64[np.ndarray, "b"], quotas: Counter[Any], strata: list[Any], name: str
) -> list[int]:
    """The samples that are kept out, in this order, as many of each stratum as its quota allows."""
    categories = [_categories(sample, samples.schema) for sample in samples]
    n_left = Counter(category for sample_categories in categories for category in sample_categories)
    open_places, drawn = Counter(quotas), []
    for i in order.tolist():
        if open_places[strata[i]] > 0 and all(n_left[category] > 1 for category in categories[i]):
            drawn.append(i)
            open_places[strata[i]] -= 1
            n_left.subtract(categories[i])
    if not drawn:
        raise ValueError(f"every id has a channel or a class that no other has; use {name}.share=0")
    return drawn


def _n_kept_out(samples: SampleSet, share: float, name: str) -> int:
    n = max(1, round(share * len(samples)))
    if n >= len(samples):
        raise ValueError(f"{name} takes {n} of {len(samples)} ids and leaves none to train on; lower {name}.share")
    return n


def _divided(samples: SampleSet, drawn: list[int]) -> tuple[SampleSet, SampleSet]:
    is_drawn = np.isin(np.arange(len(samples)), drawn)
    # A SampleSet takes index arrays and masks as well as slices.
    return samples[~is_drawn], samples[is_drawn]  # type: ignore[call-overload]


def _categories(sample: Sample, schema: Schema) -> set[tuple[str, float]]:
    """The channels of a sample, and its class or labels: each must occur in training."""
    channels = [] if schema.channel is None else sample.positions[:, -1].unique().tolist()
    if schema.labels is not None and sample.target is not None:
        classes = [float(label) for label in np.flatnonzero(np.asarray(sample.target))]
    else:
        classes = [] if _class_of(sample, schema) is None else [float(sample.target)]
    return {("channel", index) for index in channels} | {("class", index) for index in classes}


def _strata_of(samples: SampleSet) -> list[Any]:
    """What is to have the same share in every part: the class of each sample, or the rarest of its labels."""
    if samples.schema.labels is None or len(samples) == 0:
        return [_class_of(sample, samples.schema) for sample in samples]
    return labels.strata(np.stack([np.asarray(sample.target, dtype=np.int64) for sample in samples])).tolist()


def _class_of(sample: Sample, schema: Schema) -> int | None:
    return None if schema.classes is None or sample.target is None else int(sample.target)


def holdout_note(test: SampleSet) -> dict[str, Any]:
    """What a run writes down of the ids that it is tested on: their names, and what tells them from others."""
    return {"id": test.schema.id, "ids": [sample.id for sample in test], "digest": as_source(test).digest()}


def was_tested_on(folder: Path, test: SampleSet) -> bool:
    """Whether these are the samples that a run kept out for its test, or there are none in either."""
    return (read_json(folder / TEST_IDS) if (folder / TEST_IDS).is_file() else None) == (
        holdout_note(test) if len(test) else None
    )


def read_test_ids(run: str | Path) -> set[Hashable]:
    """The ids that a run kept out for its test, by its folder or one of its models; none where it lists none."""
    folder = Path(run)
    path = (folder.parent if folder.name in ("best", "last") else folder) / TEST_IDS
    if not path.is_file():
        return set()
    note = read_json(path)
    if not isinstance(note, dict) or not isinstance(note.get("ids"), list):
        raise ValueError(f"{path} is damaged: it does not list the ids that the run was tested on")
    return {name for name in note["ids"] if isinstance(name, str | int)}  # what an id can be

"""Static facts: what is known of a sample as a whole, such as age or sex, as tokens beside its measurements.

A number is a token of a kind of its own, a category one of a kind for each category, with the value 1. The kinds of
facts follow the channels on the last position axis, so that samples, stores and batches hold them like any token, and
facts stand at the first time of their sample, where a clock that begins there rotates nothing.
"""

import warnings
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from romae.data.columns import as_numbers, encode_names, inferred
from romae.data.schema import Fact, SampleSet
from romae.tokens.sample import Sample

if TYPE_CHECKING:
    import pandas as pd

MOST_NAMED = 3  # unknown categories in a warning


def with_static(samples: SampleSet, frame: "pd.DataFrame", expected: Sequence[Fact] = ()) -> SampleSet:
    """Samples with static facts, of which the frame has one row for each sample; what is missing is left out.

    `expected` are the facts of the training data: a category that is not among them is told in a warning and left out.
    """
    if samples.schema.channel is None:
        raise ValueError(
            "static facts are tokens of kinds of their own, so that each number has to be a token; read the series "
            "with tokens='scalars'"
        )
    known = list(dict.fromkeys(fact.column for fact in expected)) if expected else list(frame.columns)
    if lacking := [name for name in known if name not in frame.columns]:
        raise ValueError(f"the static fact {lacking[0]!r} of the training data is not there; there are {list(frame)}")
    facts: list[Fact] = []
    columns: list[tuple[np.ndarray, np.ndarray]] = []  # of each fact: which samples have it, and its value
    n_left_out, unknown = 0, []
    for name in known:
        expected_here = [fact for fact in expected if fact.column == name]
        column = inferred(frame[name])
        if expected_here[0].category is None if expected else _is_number(column):
            numbers = as_numbers(column, f"the static fact {name!r}", lambda i: f"that of sample {samples[i].id!r}")
            if np.isinf(numbers).any():
                infinite = samples[int(np.isinf(numbers).argmax())].id
                raise ValueError(f"the static fact {name!r} of sample {infinite!r} is infinite; leave it out")
            facts.append(Fact(column=name))
            columns.append((~np.isnan(numbers), np.nan_to_num(numbers)))
            continue
        index, categories = encode_names(column, None, f"category of {name!r}", lambda i: f"sample {samples[i].id!r}")
        here = expected_here or [Fact(column=name, category=category) for category in categories]
        strange = [category for category in categories if category not in [fact.category for fact in here]]
        unknown += [f"{name}={category}" for category in strange]
        n_left_out += int(np.isin(index, [categories.index(category) for category in strange]).sum())
        for fact in here:
            has = index == (categories.index(fact.category) if fact.category in categories else -2)
            facts.append(fact)
            columns.append((has, np.ones(len(samples))))
    if unknown:
        warnings.warn(
            f"left out {n_left_out} static facts of categories that the training data did not have "
            f"({', '.join(unknown[:MOST_NAMED])}{', …' if len(unknown) > MOST_NAMED else ''})",
            stacklevel=4,
        )
    first = len(samples.schema.channels)
    joined = [
        _joined(sample, [(first + k, values[i]) for k, (has, values) in enumerate(columns) if has[i]])
        for i, sample in enumerate(samples)
    ]
    return SampleSet(joined, replace(samples.schema, static=tuple(facts)))


def _joined(sample: Sample, facts: Sequence[tuple[int, float]]) -> Sample:
    """A sample with facts behind its measurements, at its first time; a value beside the first is 0."""
    if not facts:
        return sample
    values = sample.values.new_zeros(len(facts), sample.values.shape[1])
    values[:, 0] = torch.tensor([value for _, value in facts])
    positions = sample.positions[sample.positions[:, 0].argmin()].repeat(len(facts), 1)
    positions[:, -1] = torch.tensor([kind for kind, _ in facts], dtype=positions.dtype)
    hidden = None if sample.hidden is None else torch.cat([sample.hidden, sample.hidden.new_zeros(len(facts))])
    return replace(
        sample,
        values=torch.cat([sample.values, values]),
        positions=torch.cat([sample.positions, positions]),
        hidden=hidden,
    )


def without_static(samples: Sequence[Sample]) -> Sequence[Sample]:
    """The samples as they were before `with_static`."""
    return [_measured(sample) for sample in samples]


def _measured(sample: Sample) -> Sample:
    if sample.schema is None or not sample.schema.static:
        return sample
    keep = sample.positions[:, -1] < len(sample.schema.channels)
    hidden = None if sample.hidden is None else sample.hidden[keep]
    schema = replace(sample.schema, static=())
    return replace(sample, values=sample.values[keep], positions=sample.positions[keep], hidden=hidden, schema=schema)


def n_measured(sample: Sample) -> int:
    """The number of tokens that are measurements."""
    if sample.schema is None or not sample.schema.static:
        return len(sample)
    return int((sample.positions[:, -1] < len(sample.schema.channels)).sum())


def one_row_per_id(frame: "pd.DataFrame", id: str, ids: Sequence[Hashable]) -> "pd.DataFrame":
    """The facts of each id, which all its rows must agree on; a missing one says nothing."""
    import pandas as pd

    names = [name for name in frame.columns if name != id]
    grouped = frame.groupby(id, sort=False, observed=True)
    for name in names:
        counts = grouped[name].nunique()
        if (counts > 1).any():
            first = counts.index[(counts > 1).to_numpy()].tolist()[0]
            raise ValueError(
                f"the static fact {name!r} changes within {id} {first!r}; a fact belongs to the whole sample, and what "
                "changes is a value or a position"
            )
    facts = grouped[names].first() if names else pd.DataFrame(index=pd.Index(frame[id].unique()))
    return facts.reindex(ids).reset_index(drop=True)


def _is_number(column: "pd.Series") -> bool:
    from pandas.api import types

    return types.is_numeric_dtype(column.dtype) and not types.is_bool_dtype(column.dtype)

"""Atoms: numbers that a considerable share of the values is exactly, such as 0 mm of rain."""

from typing import NamedTuple

import numpy as np

from romae.data.schema import Schema
from romae.data.sources import SampleSource, Source, as_source
from romae.data.subsets import evenly_spread
from romae.tokens.tokens import channel_index

SHARE = 0.05  # of the values of a channel
FEWEST = 10  # times that a number occurs, so that a few values hold no atom
MOST_SAMPLES = 1_000  # looked at, evenly spread
MOST_NAMED = 4  # in the sentence; of more, their number is told


class Atom(NamedTuple):
    """A number that a share of the values is exactly.

    Attributes
    ----------
    name : str
        The channel or the column of values.
    value : float
        The number, in the data's own units.
    share : float
        The share of the values of this channel or column.
    """

    name: str
    value: float
    share: float


def atoms(samples: SampleSource, *, share: float = SHARE) -> list[Atom]:
    """Numbers that a considerable share of a channel's values is exactly: zeros, limits of an instrument, rounding.

    Where a model learns a density (`likelihood="normal"`, "student" or "mixture"), such numbers pull its scale towards
    0, and the loss says less about all the others. Training tells them in a line when it begins.

    Parameters
    ----------
    samples : sequence of Sample
        The samples, in the data's own units; of more than 1000, so many that are evenly spread are looked at.
    share : float, default 0.05
        The least share of the values of a channel or column. A number that occurs fewer than 10 times is none.

    Returns
    -------
    list of Atom
        By channel and column, the most frequent first. Measurement errors and static facts are not looked at.

    Raises
    ------
    ValueError
        If there are no samples, or the share does not lie between 0 and 1.

    Examples
    --------
    >>> import numpy as np
    >>> import romae
    >>> rain = np.maximum(np.random.default_rng(0).normal(size=(20, 30, 1)), 0)
    >>> [(name, value, share)] = romae.atoms(romae.from_arrays(rain, channels=["rain"]))
    >>> name, value, round(share, 1)
    ('rain', 0.0, 0.5)
    """
    if not 0 < share <= 1:
        raise ValueError(f"share is a part of the values, above 0 and at most 1, not {share}")
    source = as_source(samples, with_targets=False)
    schema = source.schema or Schema()
    packed = source.packed(np.array(evenly_spread(len(source), MOST_SAMPLES)))
    values = packed.values[:, : packed.values.shape[1] - schema.n_errors].numpy()
    parts = [values]
    if schema.channel is not None and schema.channels:
        channel = channel_index(packed.positions, len(schema.kind_names)).numpy()
        parts = [values[channel == i] for i in range(len(schema.channels))]
    names = _names(schema, values.shape[1])
    columns = [column for part in parts for column in part.T]
    return [atom for name, column in zip(names, columns, strict=True) for atom in _of_column(name, column, share)]


def _names(schema: Schema, n_values: int) -> list[str]:
    """What each column in each channel is called."""
    columns = list(schema.values) if len(schema.values) == n_values else [f"value {i}" for i in range(n_values)]
    if schema.channel is None or not schema.channels:
        return columns
    channels = [str(name) for name in schema.channels]
    return channels if n_values == 1 else [f"{name} {column}" for name in channels for column in columns]


def _of_column(name: str, column: np.ndarray, share: float) -> list[Atom]:
    numbers, counts = np.unique(column, return_counts=True)
    is_atom = (counts >= share * len(column)) & (counts >= FEWEST)
    found = [
        Atom(name, float(number), float(count / len(column)))
        for number, count in zip(numbers[is_atom], counts[is_atom], strict=True)
    ]
    return sorted(found, key=lambda atom: -atom.share)


def sentence_on_atoms(source: Source) -> str | None:
    """What training says of the atoms of its samples; None where there are none."""
    found = sorted(atoms(source), key=lambda atom: -atom.share)
    if not found:
        return None
    named = ", ".join(f"{atom.share:.0%} of {atom.name} are {atom.value:g}" for atom in found[:MOST_NAMED])
    more = f", and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return f"exact numbers hold much of the values ({named}{more}), and a density learns them as narrow peaks"

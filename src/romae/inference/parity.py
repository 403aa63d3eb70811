"""Whether an exported model answers as the library does, tried on samples that are made up.

Their numbers are like those of the training data, as far as these are known. Shapes: b samples, n tokens and q queries
of a sample, c channels, d position axes, k outputs.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Float64, Int64

from romae.data.scaling import Scaling
from romae.inference.graph import Answer, Inputs, known_channels
from romae.inference.predictions import embed, interpolate, predict, predict_proba
from romae.model.tasks import Classification, Regression, Task
from romae.tokens.sample import Sample

Runner = Callable[[Mapping[str, np.ndarray]], np.ndarray]

TOLERANCE = 1e-4  # of the size of the answers: single precision in another order of operations
# Lengths and numbers of queries of what is tried: one token alone, and more samples than a trace has seen.
TRIED = ((1,), (1,)), ((3, 1, 7, 12, 2), (2, 0, 5, 1, 3))
FAR = 1000.0  # units of a position axis: where samples begin that have origins of their own
LONG = 10.0  # units of a position axis: how long samples are where nothing is known of it


def largest_difference(task: Task, answer: Answer, inputs: Inputs, run: Runner) -> float:
    """That of a file from PyTorch in units of the size of answers; refused if it is more than is tolerated."""
    largest = 0.0
    for number, (lengths, n_queries) in enumerate(TRIED):
        samples, queries = made_up_batch(task, lengths, n_queries, seed=1 + number)
        expected = expected_answers(task, samples, queries, answer, inputs)
        given = run(input_arrays(samples, queries, inputs, with_queries=answer == "interpolate"))
        if given.shape != expected.shape or not np.array_equal(np.isnan(given), np.isnan(expected)):
            raise ValueError(
                "the exported model has other answers than PyTorch: "
                f"{_described(given)} instead of {_described(expected)}; nothing was written"
            )
        sizes = np.nanmax(np.abs(expected), axis=tuple(range(expected.ndim - 1)), initial=0.0)
        off = np.nanmax(np.abs(given - expected) / np.maximum(sizes, _units(task, answer)), initial=0.0)
        if not off <= TOLERANCE:
            raise ValueError(
                f"the exported model differs from PyTorch by {off:.2g} of the size of its answers, more than "
                f"{TOLERANCE:g}; nothing was written"
            )
        largest = max(largest, float(off))
    return largest


def expected_answers(
    task: Task, samples: Sequence[Sample], queries: Sequence[np.ndarray], answer: Answer, inputs: Inputs
) -> np.ndarray:
    """What the library answers, in the form of a graph's output."""
    rows: Any
    if answer == "interpolate":
        rows = interpolate(task, samples, queries, grouped=True)
    elif answer == "embed":
        return np.asarray(embed(task, samples))
    elif isinstance(task, Classification):
        return predict_proba(task, samples)
    elif isinstance(task, Regression) and task.per == "token":
        rows = predict(task, samples)
    else:
        return np.asarray(predict(task, samples)).reshape(len(samples), -1)
    return np.concatenate(rows) if inputs == "packed" else _padded(rows, np.nan)


def _described(answers: np.ndarray) -> str:
    return f"{list(answers.shape)} with {int(np.isnan(answers).sum())} NaN"


def _units(task: Task, answer: Answer) -> np.ndarray | float:
    """How large answers are in the units of the data, where those of a few samples may be close to 0."""
    scaling = task.scaling
    if scaling is None or answer == "embed":
        return 1.0
    if answer == "interpolate":
        return np.max(scaling.scale, axis=0) if scaling.scale else 1.0
    return 1.0 if scaling.target_scale is None else np.asarray(scaling.target_scale)


def input_arrays(
    samples: Sequence[Sample], queries: Sequence[Float64[np.ndarray, "_ d"]], inputs: Inputs, *, with_queries: bool
) -> dict[str, np.ndarray]:
    """Samples and the positions that are asked of each, as the inputs of a graph by name."""
    values, positions = ([np.asarray(getattr(one, part)) for one in samples] for part in ("values", "positions"))
    lengths = [len(one) for one in samples]
    if inputs == "packed":
        arrays = {"values": np.concatenate(values), "positions": np.concatenate(positions), "offsets": _ends(lengths)}
        asked = {"query_positions": np.concatenate(queries), "query_offsets": _ends([len(one) for one in queries])}
    else:
        mask = np.arange(max(lengths)) < np.array(lengths)[:, None]
        arrays = {"values": _padded(values, 0), "positions": _padded(positions, 0), "mask": mask}
        asked = {"query_positions": _padded(queries, np.nan)}
    arrays["values"], arrays["positions"] = arrays["values"].astype(np.float32), arrays["positions"].astype(np.float64)
    return arrays | asked if with_queries else arrays


def _ends(lengths: Sequence[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _padded(arrays: Sequence[np.ndarray], fill: float) -> Float[np.ndarray, "b n k"]:
    padded = np.full((len(arrays), max(map(len, arrays)), arrays[0].shape[1]), float(fill))
    for row, array in zip(padded, arrays, strict=True):
        row[: len(array)] = array
    return padded


def made_up_batch(
    task: Task, lengths: Sequence[int], n_queries: Sequence[int], *, seed: int
) -> tuple[list[Sample], list[Float64[np.ndarray, "_ d"]]]:
    """Samples of these lengths, and positions of which a model could be asked for values, so many of each sample."""
    random = np.random.default_rng(seed)
    known, askable = _channels(task)
    samples, queries = [], []
    for n, m in zip(lengths, n_queries, strict=True):
        begin = FAR * random.uniform(1, 2)
        positions, asked = (_positions(task, random, size, begin) for size in (n, m))
        if known is not None and askable is not None:
            positions[:, -1], asked[:, -1] = random.choice(known, n), random.choice(askable, m)
        values = _values(task, random, positions)
        errors = random.choice([0.0, 0.1, 1.0], values.shape) * np.abs(values)  # some are not known
        samples.append(Sample(np.hstack([values, errors]) if task.config.errors else values, positions))
        queries.append(asked)
    return samples, queries


def _channels(task: Task) -> tuple[Int64[np.ndarray, "_"], Int64[np.ndarray, "_"]] | tuple[None, None]:
    """The channels that tokens may have and those that can be asked for; None where there are no channels."""
    scaling = task.scaling or Scaling()
    n_known, n_askable = known_channels(task)
    if n_known is None and task.schema is not None:
        n_known = task.schema.n_channels
    if n_known is None:
        return None, None
    known = np.flatnonzero(scaling.is_known(n_known).numpy()[:n_known])
    if scaling.seen is not None and scaling.seen.by_channel:
        known = np.array([i for i in known if any(scaling.seen.lowest[i : i + 1])], dtype=np.int64)
    return known, known[known < (n_known if n_askable is None else n_askable)]


def _positions(task: Task, random: np.random.Generator, n: int, begin: float) -> Float64[np.ndarray, "n d"]:
    """Coordinates as in the training data; samples that have origins of their own begin far from 0."""
    scaling, dims = task.scaling or Scaling(), task.config.position_dims
    units = scaling.units or (1.0,) * dims
    columns = []
    for axis, rule in enumerate(scaling.origins or ("none",) * dims):
        origin = begin * units[axis] if rule in ("first", "min") else 0.0 if rule == "none" else float(rule)
        low, high = 0.0, LONG * units[axis]
        if scaling.seen is not None and scaling.seen.earliest:
            low, high = scaling.seen.earliest[axis], scaling.seen.latest[axis]
        columns.append(origin + random.uniform(low, high, n))
    return np.stack(columns, 1)


def _values(
    task: Task, random: np.random.Generator, positions: Float64[np.ndarray, "n d"]
) -> Float64[np.ndarray, "n c"]:
    """Values between the lowest and the highest of training, or around their centre."""
    scaling = task.scaling or Scaling()
    if (seen := scaling.seen) is not None and seen.lowest:
        rows = _rows(positions, seen.by_channel)
        low, high = (np.stack([bounds[row] for row in rows]) for bounds in (seen.lowest, seen.highest))
        return random.uniform(low, high)
    values = random.normal(size=(len(positions), task.config.n_values))
    if scaling.method == "none":
        return values
    rows = _rows(positions, scaling.by_channel)
    return np.asarray(scaling.centre)[rows] + values * np.asarray(scaling.scale)[rows]


def _rows(positions: Float64[np.ndarray, "n d"], by_channel: bool) -> Int64[np.ndarray, "n"]:
    """The row of a table that each token belongs to."""
    return positions[:, -1].astype(np.int64) if by_channel else np.zeros(len(positions), dtype=np.int64)

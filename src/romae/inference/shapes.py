"""A few fixed shapes for samples of any length, and where sorted samples are cut into batches of these shapes.

Samples are put into classes of length, 16, 32, 64 … tokens at most, each with one shape: a number of samples, of tokens
and of queries that its batches are filled up to. Shapes follow from the classes and not from the samples, so that later
samples of the same kind find the shapes of earlier ones, for which the forward pass was recorded.

Shapes: b samples.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int64

from romae.tokens.layout import Layout
from romae.training.fixed_shape import TOKEN_MULTIPLE, FixedShape, TokenRoom

# Of a job that is taken for long, and of a shape that is recorded, which takes the time of many. The parts of a long
# table (streaming.py) must have more.
FEWEST_BATCHES = 12
SHORTEST_CLASS = 16  # tokens, CLS included; samples are put into classes of 16, 32, 64 … tokens at most
FEWEST_IN_BATCH = 4  # of the longest samples of a class; longer ones are answered as they come
MOST_UNEVEN = 4  # times the mean number of queries that a sample may have where answers are recorded


class LengthClass(NamedTuple):
    """Samples of so many tokens at most, asked for so many positions at most; the shape of their batches."""

    shape: FixedShape
    longest: int
    most_queries: int

    def cuts(
        self, sizes: Int64[np.ndarray, "b"], queries: Int64[np.ndarray, "b"] | None
    ) -> Iterator[tuple[int, int, Layout, Layout | None]]:
        """Where samples are cut into batches, and the layouts that are filled up to the shape."""
        shape, n = self.shape, self.shape.n_samples
        rooms = [(shape.tokens, sizes, 1)]
        if queries is not None and shape.hidden is not None:
            rooms.append((shape.hidden, queries, 0))
        limits: list[tuple[np.ndarray, int]] = []
        for room, counts, at_least in rooms:
            if not room.is_equal:
                # Fillers have at least so many tokens, and at most as many as the longest sample.
                limits.append((before_each(counts - at_least), room.n_tokens - at_least * n))
                limits.append((before_each(room.longest - counts), n * room.longest - room.n_tokens))
        most = n if shape.tokens.is_equal else n - 1
        start = 0
        while start < len(sizes):
            ends = [int(np.searchsorted(sums, sums[start] + limit, side="right")) - 1 for sums, limit in limits]
            stop = max(min([start + most, len(sizes), *ends]), start + 1)
            filled = [
                room.filled(Layout.of(torch.from_numpy(counts[start:stop])), n, least) for room, counts, least in rooms
            ]
            if any(layout is None for layout in filled):
                raise RuntimeError(f"samples {start} to {stop} do not fit into {shape}")
            yield start, stop, filled[0], filled[1] if len(filled) > 1 else None  # type: ignore[misc]
            start = stop


def before_each(counts: Int64[np.ndarray, "b"]) -> Int64[np.ndarray, "_"]:
    """How much there is before each, and in all."""
    return np.concatenate([[0], np.cumsum(counts)])


def classes_of(
    sizes: Int64[np.ndarray, "b"],
    queries: Int64[np.ndarray, "b"] | None,
    budget: int,
    *,
    cls: bool,
    seen: dict[LengthClass, int] | None = None,
) -> list[LengthClass]:
    """Shapes for these samples, from short to long: for classes of length that make enough batches.

    `seen` counts what calls have had of each shape, this one included. Samples of a class that makes few batches go
    into the next. Shapes follow from classes, not from samples, so that others of the same kind find them again.
    """
    seen = {} if seen is None else seen
    if sizes.min() == sizes.max() and (queries is None or queries.min() == queries.max()):
        one = _equal(int(sizes[0]), None if queries is None else int(queries[0]), budget, cls)
        if one is None:
            return []
        seen[one] = seen.get(one, 0) + int(sizes.sum() + (0 if queries is None else queries.sum()))
        return [one] if seen[one] >= FEWEST_BATCHES * budget else []
    found: list[LengthClass] = []
    classes = _class_of(sizes + cls)
    below = 0, 0  # the class before, where it makes too few batches: its top, and its tokens and queries
    for top in np.unique(classes).tolist():
        chosen = classes == top
        asked = None if queries is None else queries[chosen]
        cost = int(sizes[chosen].sum()) + (0 if asked is None else int(asked.sum()))
        cost += below[1] if 2 * below[0] == top else 0
        one = _shape(top, sizes[chosen], asked, budget, cls)
        if one is not None:
            cost = seen[one] = seen.get(one, 0) + cost
        if one is not None and cost >= FEWEST_BATCHES * budget:
            found.append(one)
            below = 0, 0
        else:
            below = top, cost
    return found


def _class_of(n: Int64[np.ndarray, "b"]) -> Int64[np.ndarray, "b"]:
    """The power of two that so many tokens fit into."""
    return 2 ** np.ceil(np.log2(np.maximum(n, SHORTEST_CLASS))).astype(np.int64)


def _shape(
    top: int, sizes: Int64[np.ndarray, "b"], queries: Int64[np.ndarray, "b"] | None, budget: int, cls: bool
) -> LengthClass | None:
    longest = top - cls
    share, most_queries = 1.0, 0
    if queries is not None:
        if queries.max() > MOST_UNEVEN * queries.mean():
            return None
        most_queries = int(_class_of(queries.max()[None])[0])
        # To the next of a few ratios, so that other samples of the kind have the same shape.
        ratio = 2.0 ** (round(4 * np.log2(queries.sum() / sizes.sum())) / 4)
        share = 1 / (1 + ratio)
    n_tokens = int(budget * share) // TOKEN_MULTIPLE * TOKEN_MULTIPLE
    n_queries = 0 if queries is None else (budget - n_tokens) // TOKEN_MULTIPLE * TOKEN_MULTIPLE
    n_samples = n_tokens // max(top // 2, FEWEST_IN_BATCH) + 2
    if queries is not None:
        n_samples = max(n_samples, n_queries // most_queries + 2)
    if longest * FEWEST_IN_BATCH > n_tokens or most_queries * FEWEST_IN_BATCH > n_queries or n_samples > n_tokens:
        return None
    hidden = None if queries is None else TokenRoom(n_tokens=n_queries, longest=most_queries)
    tokens = TokenRoom(n_tokens=n_tokens, longest=longest)
    return LengthClass(FixedShape(n_samples=n_samples, tokens=tokens, hidden=hidden), longest, most_queries)


def _equal(size: int, n_queries: int | None, budget: int, cls: bool) -> LengthClass | None:
    """The shape of samples that all have as many tokens and queries."""
    n_samples = budget // (size + cls + (n_queries or 0))
    if n_samples < FEWEST_IN_BATCH or n_queries == 0:
        return None
    tokens = TokenRoom(n_tokens=n_samples * size, longest=size, is_equal=True)
    hidden = None
    if n_queries is not None:
        hidden = TokenRoom(n_tokens=n_samples * n_queries, longest=n_queries, is_equal=True)
    return LengthClass(FixedShape(n_samples=n_samples, tokens=tokens, hidden=hidden), size, n_queries or 0)


def class_of_samples(
    classes: Sequence[LengthClass], sizes: Int64[np.ndarray, "b"], counts: Int64[np.ndarray, "b"] | None
) -> Int64[np.ndarray, "b"]:
    """The number of the first class that each sample fits into, one beyond the last where it fits into none."""
    chosen = np.full(len(sizes), len(classes))
    for number, one in reversed(list(enumerate(classes))):
        tokens, hidden = one.shape.tokens, one.shape.hidden
        # Samples of a much shorter class would leave most of a batch to fillers.
        shortest = 0 if one.longest <= SHORTEST_CLASS else one.longest // 4
        fits = sizes == one.longest if tokens.is_equal else (sizes <= one.longest) & (sizes > shortest)
        if counts is not None and hidden is not None:
            fits = fits & (counts == one.most_queries if hidden.is_equal else counts <= one.most_queries)
        chosen[fits] = number
    return chosen

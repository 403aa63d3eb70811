"""Windows of neighbours in long series, which overlap by half: what a model that needs no training answers from.

Shapes: t tokens, q queries, c channels.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64, Int64

WINDOW = 192  # visible tokens that are answered for at once: as many as the random series of its training had at most
HOP = WINDOW // 2
FEWEST = 4  # tokens of a channel in a window, if there are so many: else its nearest ones join


def cut(
    positions: Float64[np.ndarray, "t 2"], times: Float64[np.ndarray, "q"], n_channels: int
) -> tuple[list[Int64[np.ndarray, "_"]], Float64[np.ndarray, "q"]]:
    """The tokens of each window of a long series, and where queries lie on the axis of windows.

    A query at the middle of window 2 lies at 2.0; one at 2.25 is a quarter of the way to the middle of window 3.
    """
    order, n = np.argsort(positions[:, 0], kind="stable"), len(positions)
    starts = np.unique(np.minimum(np.arange(0, n - WINDOW + HOP, HOP), n - WINDOW))
    unique, first, count = np.unique(positions[order, 0], return_index=True, return_counts=True)
    rank = np.interp(times, unique, first + (count - 1) / 2)
    place = np.interp(rank, starts + (WINDOW - 1) / 2, np.arange(len(starts)))
    channel = positions[order, 1].astype(np.int64)
    of_channel = [np.flatnonzero(channel == c) for c in range(n_channels)]
    parts = []
    for start in starts.tolist():
        window = np.arange(start, start + WINDOW)
        held = np.bincount(channel[window], minlength=n_channels)
        parts.append(order[np.concatenate([window, *_nearest(of_channel, held, start)])])
    return parts, place


def _nearest(
    of_channel: Sequence[Int64[np.ndarray, "_"]], held: Int64[np.ndarray, "c"], start: int
) -> list[Int64[np.ndarray, "_"]]:
    """Of channels that a window holds too little of, those tokens outside it that are nearest to its middle."""
    joining = []
    for ranks, n in zip(of_channel, held.tolist(), strict=True):
        if n < FEWEST and len(ranks) > n:
            outside = ranks[(ranks < start) | (ranks >= start + WINDOW)]
            far = np.abs(outside - (start + WINDOW / 2))
            joining.append(outside[np.argsort(far, kind="stable")[: FEWEST - n]])
    return joining

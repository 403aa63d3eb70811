"""When random series are measured, and in which channel: grids, holes, nights, clusters, gaps, together or apart.

Shapes: b samples, n tokens of the longest, c channels.
"""

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from romae.prior.draws import Draws
from romae.prior.functions import Function

PATTERNS = ("uniform", "grid", "jittered", "holes", "clusters", "nights", "gap", "denser")
_SHARES = (0.24, 0.14, 0.12, 0.12, 0.1, 0.1, 0.1, 0.08)


def row_times(draws: Draws, n_rows: Int64[Tensor, "b"], n: int) -> Float[Tensor, "b n"]:
    """Times between 0 and 1 of so many rows, in no order; those beyond a sample's rows mean nothing."""
    u, z, where = draws.uniform(n), draws.normal(n), draws.uniform(n)
    count = n_rows.unsqueeze(1)
    place = torch.arange(n, device=draws.device).expand(len(draws), -1)
    cell = place.float()
    n_clusters = draws.whole(low=2, high=6).unsqueeze(1)
    centres = draws.uniform(6)
    spread = draws.log_uniform(low=0.005, high=0.08).unsqueeze(1)
    centre = centres.gather(1, (where * n_clusters).long())
    n_nights = draws.whole(low=3, high=40).unsqueeze(1)
    begins, length = draws.uniform(high=0.8).unsqueeze(1), draws.uniform(low=0.1, high=0.5).unsqueeze(1)
    power = draws.log_uniform(low=0.3, high=3.0).unsqueeze(1)
    share = u * (1 - length)
    of_each = (
        u,
        (cell + 0.5) / count,
        (cell + u) / count,
        (2 * cell + (u > 0.5) + 0.5) / (2 * count),
        centre + spread * z,
        ((where * n_nights).floor() + 0.35 * u) / n_nights,
        torch.where(share > begins * (1 - length), share + length, share),
        u**power,
    )
    pattern = draws.choice(_SHARES).reshape(1, -1, 1).expand(1, -1, n)
    times = torch.stack([x.expand(len(draws), n) for x in of_each]).gather(0, pattern)[0].abs()
    return 1 - (1 - times).abs()  # what falls beyond the ends is folded back


def where_much_happens(draws: Draws, function: Function, n_rows: Int64[Tensor, "b"], n: int) -> Float[Tensor, "b n"]:
    """Times that are the likelier, the farther a function is from its mean: as where an alarm makes people look."""
    candidates = draws.uniform(n, 2)  # two for each place, so that they do not depend on how many places there are
    height = function(candidates.flatten(1)).reshape(len(draws), n, 2).abs()
    return candidates.gather(2, height.argmax(2, keepdim=True)).squeeze(2)


def cells(
    draws: Draws, lengths: Int64[Tensor, "b"], n_channels: Int64[Tensor, "b"], n: int, most_channels: int
) -> tuple[Int64[Tensor, "b n"], Int64[Tensor, "b n"], Int64[Tensor, "b"]]:
    """The row and the channel of each token, and how many rows there are.

    Measured together, a row has most of the channels; apart, each token is a row of its own, and some channels are
    measured more rarely than others.
    """
    is_together = draws.chance(0.5) & (n_channels > 1)
    density = draws.uniform(low=0.5, high=1.0)
    c = n_channels.unsqueeze(1)
    n_rows = torch.where(is_together, (lengths / (n_channels * density)).ceil().long(), lengths)
    # Of all cells of rows and channels, as many at random as there are tokens: those with the lowest numbers.
    number = torch.arange(2 * n + most_channels, device=draws.device)
    order = draws.uniform(len(number))
    order = torch.where(number < (n_rows * n_channels).unsqueeze(1), order, 2.0)
    chosen = order.argsort(dim=1, stable=True)[:, :n]
    weights = torch.exp(draws.normal(most_channels)) * (torch.arange(most_channels, device=draws.device) < c)
    edges = weights.cumsum(1) / weights.sum(1, keepdim=True)
    apart = torch.searchsorted(edges, draws.uniform(n), right=True).clamp(max=most_channels - 1).minimum(c - 1)
    place = torch.arange(n, device=draws.device).expand(len(draws), -1)
    together = is_together.unsqueeze(1)
    return torch.where(together, chosen // c, place), torch.where(together, chosen % c, apart), n_rows


QUESTIONS = ("holes", "gap", "rows", "channel", "future")
_QUESTIONS = (0.35, 0.15, 0.15, 0.1, 0.25)
FEWEST_VISIBLE = 2  # in a channel that is asked for, which would have no unit otherwise


def questions(
    draws: Draws,
    times: Float[Tensor, "b n"],
    channel: Int64[Tensor, "b n"],
    valid: Bool[Tensor, "b n"],
    most_channels: int,
) -> Bool[Tensor, "b n"]:
    """True on the tokens to predict: random holes, a long gap, rows, most of a channel, or the future."""
    n = times.shape[1]
    u = draws.uniform(n)
    ratio = draws.uniform(low=0.1, high=0.6).unsqueeze(1)
    begins, length = draws.uniform(high=0.85).unsqueeze(1), draws.uniform(low=0.1, high=0.4).unsqueeze(1)
    cut = draws.uniform(low=0.4, high=0.9).unsqueeze(1)
    # A number that follows from the time alone, the same for all tokens of a row.
    of_row = torch.frac(torch.sin(times.double() * 7919.0 + 1e4 * begins) * 43758.5453).abs()
    asked = channel.gather(1, (draws.uniform().unsqueeze(1) * valid.sum(1, keepdim=True)).long())
    of_each = (
        u < ratio,
        (times >= begins) & (times < begins + length),
        of_row < ratio,
        (channel == asked) & (u < 0.9),
        times > cut,
    )
    kind = draws.choice(_QUESTIONS).reshape(1, -1, 1).expand(1, -1, n)
    hidden = torch.stack(of_each).gather(0, kind)[0] & valid
    # Channels of which too little is left are shown, and of a sample that hides nothing one token is asked for.
    one_hot = torch.nn.functional.one_hot(channel, most_channels) * valid.unsqueeze(2)
    n_visible = (one_hot * ~hidden.unsqueeze(2)).sum(1)
    hidden = hidden & (n_visible >= FEWEST_VISIBLE).gather(1, channel)
    most = one_hot.sum(1).argmax(1, keepdim=True)
    last = torch.where((channel == most) & valid, u, -1.0).argmax(1, keepdim=True)
    alone = torch.zeros_like(hidden).scatter(1, last, True)
    return torch.where(hidden.any(1, keepdim=True), hidden, alone)

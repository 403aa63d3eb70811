"""What averaged Gaussian processes say of series: the smoothness, periods and other channels of each, without training.

A process with a kernel and a level of noise answers for a series in closed form, and its evidence (the probability of
what is visible) says how well it suits. A grid of kernels and noises is answered for at once and averaged by evidence,
so that nothing is fitted and no optimiser can get stuck. Channels are taken each by itself (`alone`) and all together
(`together`), and evidence decides between both as well.

All is as a model in units of its own sees it: times from 0 to `SPAN`, values bent where they are far out.

Shapes: q queries, m components.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float64
from torch import Tensor

from romae.data.bends import bent, straightened
from romae.data.own_units import METHOD
from romae.processes.alone import MOST_TOKENS, NOISES, OFFSET, each_alone, kernels, n_matrices, periods_of
from romae.processes.cells import Cells, Group, for_each
from romae.processes.evidence import N_COMPONENTS, Posterior, chosen_of
from romae.processes.together import answer_together
from romae.tokens.layout import Layout
from romae.tokens.tokens import Tokens

FARTHEST = 2.0  # ranges of what is visible, by which answers lie beyond it at most: a trend goes on for a while
# Of the deviations of an answer. Values are bent, so that three of these are forty times the spread of what is visible:
# wider ones are what a smooth kernel says far outside of a series that bursts, and would be infinite in its own units.
WIDEST = 3.0


class Averaged(NamedTuple):
    """Mixtures of normal distributions for queries, and what they rest on.

    Attributes
    ----------
    log_weight, centre, scale : Float64 Tensor [q, m]
        The components of each query, as the model sees numbers.
    evidence : Float64 Tensor [q]
        The logarithm of the evidence of the channel of each query, by token.
    surprise : Float64 Tensor [q]
        The mean logarithm of the density of its visible values, each left out.
    outlier : Float64 Tensor [q]
        By how many deviations the farthest of them misses.
    together : Float64 Tensor [q]
        The probability that channels are answered for together.
    n_own, n_others : Float64 Tensor [q]
        Visible tokens of its channel, and of other channels.
    repeated : Float64 Tensor [q]
        The share of its visible values that occur more than once.
    distance : Float64 Tensor [q]
        How far the nearest visible time of its channel is, in shares of the visible span.
    """

    log_weight: Float64[Tensor, "q m"]
    centre: Float64[Tensor, "q m"]
    scale: Float64[Tensor, "q m"]
    evidence: Float64[Tensor, "q"]
    surprise: Float64[Tensor, "q"]
    outlier: Float64[Tensor, "q"]
    together: Float64[Tensor, "q"]
    n_own: Float64[Tensor, "q"]
    n_others: Float64[Tensor, "q"]
    repeated: Float64[Tensor, "q"]
    distance: Float64[Tensor, "q"]


def averaged(visible: Tokens, positions: Tensor, layout: Layout) -> Averaged:
    """What averaged processes say of queries, all as a model in units of its own sees it.

    Parameters
    ----------
    visible : Tokens
        What is visible of each series: a value, and its error where there is a second column.
    positions : Tensor [q, 2]
        Times and coordinates of channels.
    layout : Layout
        Where the queries of each series lie.

    Returns
    -------
    Averaged
        On the host. Where nothing is visible of a channel, or more than `MOST_TOKENS`, it is a standard normal.
    """
    device = visible.device if visible.device.type == "cuda" else torch.device("cpu")
    cells = Cells.of(visible, positions, layout, device)
    n_queries = len(cells.cell_of_query)
    centre = torch.zeros(n_queries, N_COMPONENTS, dtype=torch.float64, device=device)
    log_weight, scale = torch.full_like(centre, -math.log(N_COMPONENTS)), torch.ones_like(centre)
    evidence = torch.zeros(len(cells.count), dtype=torch.float64, device=device)
    surprise, outlier, period = torch.zeros_like(evidence), torch.zeros_like(evidence), torch.ones_like(evidence)

    def answer(group: Group) -> None:
        periods = periods_of(group)
        posterior = each_alone(group, periods)
        evidence[group.rows], period[group.rows] = posterior.evidence, periods[:, 0]
        surprise[group.rows], outlier[group.rows] = posterior.left_out(group)
        for row, query, inside in cells.rounds(group, cells.cell_of_query, N_COMPONENTS):
            at = (group.time[row].unsqueeze(2) - cells.query_time[query].unsqueeze(1)).abs()
            part = Posterior(*(x[row] for x in posterior))
            between = chosen_of(kernels(at, periods[row]) + OFFSET, part.chosen // len(NOISES))
            noise = torch.tensor(NOISES, dtype=torch.float64, device=device)[part.chosen % len(NOISES)]
            mean, deviation = part.predict(between * group.valid[row][:, None, :, None], 1 + OFFSET + noise.square())
            asked = query[inside]
            log_weight[asked] = part.log_weight.unsqueeze(1).expand(*query.shape, -1)[inside]
            centre[asked], scale[asked] = mean.transpose(1, 2)[inside], deviation.transpose(1, 2)[inside]

    rows = ((cells.count > 0) & (cells.count <= MOST_TOKENS)).nonzero().squeeze(1)
    for_each(cells.groups(cells.cell_of_token, cells.count, n_matrices(), rows), answer, device)
    together = answer_together(cells, evidence, period, log_weight, centre, scale)
    of_query = cells.cell_of_query
    low, high = (x[of_query].unsqueeze(1) for x in _bounds(cells))
    centre, scale = torch.minimum(torch.maximum(centre, low), high), scale.clamp(max=WIDEST)
    n_own = cells.count[of_query].double()
    n_all = torch.bincount(cells.sample_of_token, minlength=cells.n_samples)[cells.sample_of_query].double()
    return Averaged(
        log_weight.cpu(),
        centre.cpu(),
        scale.cpu(),
        (evidence / cells.count.clamp(min=1))[of_query].cpu(),
        surprise[of_query].cpu(),
        outlier[of_query].cpu(),
        together[cells.sample_of_query].cpu(),
        n_own.cpu(),
        (n_all - n_own).cpu(),
        cells.repeated()[of_query].cpu(),
        cells.distances().cpu(),
    )


def _bounds(cells: Cells) -> tuple[Float64[Tensor, "k"], Float64[Tensor, "k"]]:
    """Between which values the answers of each cell lie."""
    low, high = (straightened(x, METHOD) for x in cells.ranges())
    reach = FARTHEST * (high - low).clamp(min=1.0)
    return bent(low - reach, METHOD), bent(high + reach, METHOD)

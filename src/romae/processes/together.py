"""Gaussian processes for all channels of a sample together: what changes at one time is told from each other.

    Cov(c t, c' t') = R[c, c'] (k(t - t') + noise where t = t') + OFFSET where c = c'

with the correlation R of the channels, shrunk by several amounts. The noise is shared, as what moves one channel for
a moment moves those that depend on it.

Shapes: b rows of a group, n tokens of the longest of them, c channels, g combinations, m components, q queries.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float64, Int64
from torch import Tensor
from torch.nn.functional import one_hot

from romae.processes.alone import ODDS_OF_PERIODS, OFFSET
from romae.processes.cells import Cells, Group, for_each
from romae.processes.evidence import (
    N_COMPONENTS,
    TINY,
    Posterior,
    chosen_of,
    correlation_at,
    log_evidence,
    posterior_of,
)

# Kernels with their length scales in shares of the visible span.
KERNELS = (
    ("rbf", 0.03), ("rbf", 0.1), ("rbf", 0.4), ("matern32", 0.03), ("matern32", 0.08), ("matern32", 0.3),
    ("matern12", 0.03), ("matern12", 0.12), ("matern12", 0.5),
)  # fmt: skip
CYCLE = (4.0, 1.0)  # of one more kernel, which repeats: over how long a cycle keeps its form, and how smooth it is
NOISES = (0.1, 0.4, 1.2)  # deviations that channels share, beside functions of variance 1
KEPT = (0.8, 0.95, 0.99)  # shares of the correlation
OWN_NOISES = (0.02, 0.15)  # deviations of each measurement
N_REFINED = 4  # kernels with a noise, of which all shares and noises of their own are tried
AT_ONE_TIME = 1e-3  # of the span: measurements so close say how channels correlate
MOST_TOKENS = 256  # of a sample: the cube of their number is the work


def answer_together(
    cells: Cells,
    evidence: Float64[Tensor, "k"],
    period: Float64[Tensor, "k"],
    log_weight: Float64[Tensor, "q m"],
    centre: Float64[Tensor, "q m"],
    scale: Float64[Tensor, "q m"],
) -> Float64[Tensor, "b"]:
    """Take into mixtures, in place, what channels say of each other; how probable it is that they do.

    `evidence` is that of each cell by itself, and `period` the one at the highest peak of its periodogram.
    """
    count = torch.bincount(cells.sample_of_token, minlength=cells.n_samples)
    is_visible = cells.count > 0
    sample_of_cell = torch.zeros_like(cells.count).scatter(0, cells.cell_of_token, cells.sample_of_token)
    n_channels = torch.bincount(sample_of_cell[is_visible], minlength=cells.n_samples)
    alone = torch.zeros(cells.n_samples, dtype=torch.float64, device=evidence.device)
    alone = alone.index_add(0, sample_of_cell[is_visible], evidence[is_visible])
    share = torch.zeros_like(alone)
    rows = ((n_channels > 1) & (count <= MOST_TOKENS)).nonzero().squeeze(1)
    # Cells of a sample follow each other; of those that something is visible of, each has a number.
    number = is_visible.long().cumsum(0) - 1
    first = n_channels.cumsum(0) - n_channels
    n_matrices = (len(KERNELS) + 1) * len(NOISES)
    most_measured = _most_measured(cells.count, sample_of_cell, cells.n_samples)

    def answer(group: Group) -> None:
        origin = first[group.rows].unsqueeze(1)
        most = int(n_channels[group.rows].max())
        channel = (number[group.cell] - origin).clamp(0, most - 1)
        shared = Shared.of(group, channel, most, period[most_measured[group.rows]])
        posterior, noises = shared.posterior(group, channel)
        share[group.rows] = torch.sigmoid(posterior.evidence - alone[group.rows])
        for row, query, inside in cells.rounds(group, cells.sample_of_query, (len(KERNELS) + 1) * N_COMPONENTS):
            place = number[cells.cell_of_query[query]] - origin[row]
            known = inside & is_visible[cells.cell_of_query[query]]
            part = Posterior(*(x[row] for x in posterior))
            lag = (group.time[row].unsqueeze(2) - cells.query_time[query].unsqueeze(1)).abs()
            between = shared.of_rows(row).between(lag, channel[row], place.clamp(0, most - 1), part.chosen)
            between = between * group.valid[row][:, None, :, None]
            mean, deviation = part.predict(between, noises[row] + 1 + OFFSET)
            asked, by_row = query[known], row.unsqueeze(1).expand_as(query)[known]
            own = share[group.rows[by_row]].clamp(TINY, 1 - TINY).unsqueeze(1)
            apart, joint = log_weight[asked].log_softmax(1), posterior.log_weight[by_row]
            weights = torch.cat([apart + torch.log1p(-own), joint + own.log()], 1)
            best, index = weights.topk(N_COMPONENTS, 1)
            centres = torch.cat([centre[asked], mean.transpose(1, 2)[known]], 1)
            scales = torch.cat([scale[asked], deviation.transpose(1, 2)[known]], 1)
            log_weight[asked] = best.log_softmax(1)
            centre[asked], scale[asked] = centres.gather(1, index), scales.gather(1, index)

    for_each(cells.groups(cells.sample_of_token, count, n_matrices, rows), answer, evidence.device)
    return share


def _most_measured(count: Int64[Tensor, "k"], sample: Int64[Tensor, "k"], n_samples: int) -> Int64[Tensor, "b"]:
    """The cell of each sample with the most visible tokens, of equals the first."""
    most = torch.zeros(n_samples, dtype=count.dtype, device=count.device).scatter_reduce(0, sample, count, "amax")
    is_most = (count == most[sample]).nonzero().squeeze(1)
    first = torch.full((n_samples,), len(count) - 1, device=count.device)
    return first.scatter_reduce(0, sample[is_most], is_most, "amin")


_COMBINATIONS = [
    (kernel, noise, kept, own)
    for kernel in range(len(KERNELS) + 1)
    for noise in range(len(NOISES))
    for kept in range(len(KEPT))
    for own in range(len(OWN_NOISES))
]


class Shared(NamedTuple):
    """How the channels of each row correlate, shrunk by several amounts."""

    correlation: Float64[Tensor, "b kept c c"]
    period: Float64[Tensor, "b"]

    @classmethod
    def of(cls, group: Group, channel: Int64[Tensor, "b n"], n_channels: int, period: Float64[Tensor, "b"]) -> "Shared":
        """By values that were measured at about the same time; few of them say little."""
        near = torch.exp(-0.5 * (group.lag / AT_ONE_TIME).square()) * group.pairs
        of_channel = one_hot(channel, n_channels).double() * group.valid.unsqueeze(2)
        value, across = group.value, of_channel.transpose(1, 2)
        product = across @ (near * value.unsqueeze(2) * value.unsqueeze(1)) @ of_channel
        square = across @ (near * value.square().unsqueeze(2)) @ of_channel
        count = across @ near @ of_channel
        found = product / (square * square.transpose(1, 2)).clamp(min=TINY).sqrt() * count / (count + 1)
        eye = torch.eye(n_channels, dtype=torch.float64, device=value.device)
        found = torch.where(eye > 0, 1.0, (found + found.transpose(1, 2)) / 2)
        # Correlations of pairs need not be those of anything together; the nearest that are have no negative parts.
        length, direction = torch.linalg.eigh(found)
        found = (direction * length.clamp(min=1e-4).unsqueeze(1)) @ direction.transpose(1, 2)
        size = found.diagonal(dim1=1, dim2=2).rsqrt()
        found = found * size.unsqueeze(2) * size.unsqueeze(1)
        kept = torch.tensor(KEPT, dtype=torch.float64, device=value.device).reshape(-1, 1, 1)
        return cls(kept * found.unsqueeze(1) + (1 - kept) * eye, period)

    def of_rows(self, rows: Int64[Tensor, "r"]) -> "Shared":
        """Of some of the rows."""
        return Shared(self.correlation[rows], self.period[rows])

    def _kernels(self, lag: Float64[Tensor, "b n *q"]) -> Float64[Tensor, "b s n *q"]:
        scale, width = CYCLE
        wave = torch.sin(math.pi * lag / self.period.reshape(-1, *[1] * (lag.ndim - 1))).square()
        cycle = correlation_at("rbf", lag, scale) * torch.exp(-2 / width**2 * wave)
        return torch.stack([*(correlation_at(kernel, lag, length) for kernel, length in KERNELS), cycle], 1)

    def posterior(self, group: Group, channel: Int64[Tensor, "b n"]) -> tuple[Posterior, Float64[Tensor, "b m"]]:
        """The combinations that suit, found in two rounds, and the variance of the noises of each."""
        device = group.time.device
        kernels = self._kernels(group.lag)
        at_once = (group.lag < TINY).double().unsqueeze(1)
        pairs = group.pairs.unsqueeze(1)
        same = (channel.unsqueeze(2) == channel.unsqueeze(1)).double().unsqueeze(1) * OFFSET
        table = torch.tensor(_COMBINATIONS, device=device)
        noise, own = (torch.tensor(x, dtype=torch.float64, device=device).square() for x in (NOISES, OWN_NOISES))
        n, rows = group.time.shape[1], torch.arange(len(channel), device=device)

        def covariance(index: Int64[Tensor, "b g"]) -> tuple[Tensor, Tensor]:
            which = table[index]
            correlation = self.correlation[rows.unsqueeze(1), which[..., 2]]  # b g c c
            across = channel.unsqueeze(1).expand(-1, index.shape[1], -1)
            of_pairs = correlation.gather(2, across.unsqueeze(3).expand(-1, -1, -1, correlation.shape[3]))
            of_pairs = of_pairs.gather(3, across.unsqueeze(2).expand(-1, -1, n, -1))
            along = chosen_of(kernels, which[..., 0]) + noise[which[..., 1]][..., None, None] * at_once
            added = own[which[..., 3]].unsqueeze(2) + group.variance.unsqueeze(1)
            return torch.where(pairs, of_pairs * along + same, 0.0), torch.where(group.valid.unsqueeze(1), added, 1.0)

        middle = torch.tensor(
            [i for i, (_, _, kept, own_noise) in enumerate(_COMBINATIONS) if (kept, own_noise) == (1, 0)], device=device
        )
        index = middle.expand(len(channel), -1)
        best = log_evidence(*covariance(index), group, torch.float64).topk(N_REFINED, 1).indices
        fine = torch.arange(len(KEPT) * len(OWN_NOISES), device=device)
        index = (index.gather(1, best).div(len(fine), rounding_mode="floor") * len(fine)).unsqueeze(2) + fine
        index = index.flatten(1)
        # A period was picked among hundreds, so that it has to convince.
        odds = torch.where(table[:, 0] == len(KERNELS), math.log(ODDS_OF_PERIODS), 0.0).double()
        evidence = log_evidence(*covariance(index), group, torch.float64) + odds[index]
        # The rounds have looked at all combinations, of which most have no evidence to speak of.
        total = evidence.logsumexp(1) - math.log(len(_COMBINATIONS))
        log_weight, chosen = evidence.topk(N_COMPONENTS, 1)
        chosen = index.gather(1, chosen)
        kept, added = covariance(chosen)
        kept.diagonal(dim1=-2, dim2=-1).add_(added)
        which = table[chosen]
        return posterior_of(kept, group, log_weight, total, chosen), noise[which[..., 1]] + own[which[..., 3]]

    def between(
        self,
        lag: Float64[Tensor, "b n q"],
        channel: Int64[Tensor, "b n"],
        asked: Int64[Tensor, "b q"],
        chosen: Int64[Tensor, "b m"],
    ) -> Float64[Tensor, "b m n q"]:
        """Covariances of visible tokens with queries, by component."""
        which = torch.tensor(_COMBINATIONS, device=lag.device)[chosen]
        kernels = self._kernels(lag)
        noise = torch.tensor(NOISES, dtype=torch.float64, device=lag.device).square()
        rows = torch.arange(len(lag), device=lag.device)
        correlation = self.correlation[rows.unsqueeze(1), which[..., 2]]
        n_parts = chosen.shape[1]
        of_seen = correlation.gather(2, channel[:, None, :, None].expand(-1, n_parts, -1, correlation.shape[3]))
        of_pairs = of_seen.gather(3, asked[:, None, None, :].expand(-1, n_parts, channel.shape[1], -1))
        along = chosen_of(kernels, which[..., 0]) + noise[which[..., 1]][..., None, None] * (
            lag < TINY
        ).double().unsqueeze(1)
        same = (channel.unsqueeze(2) == asked.unsqueeze(1)).double().unsqueeze(1) * OFFSET
        return of_pairs * along + same

"""Gaussian processes for each channel by itself: a grid of smooth, rough and periodic kernels and of noises.

Shapes: b rows of a group, n tokens of the longest of them, s kernels, p periods.
"""

import math

import torch
from jaxtyping import Float64
from torch import Tensor

from romae.processes.cells import Group
from romae.processes.evidence import N_COMPONENTS, Posterior, chosen_of, correlation_at, log_evidence, posterior_of

# Length scales are shares of the visible span.
SMOOTH = (0.03, 0.05, 0.08, 0.12, 0.2, 0.3, 0.5, 0.8, 1.2)  # close: without noise one of them has to suit
ROUGH, ROUGHEST = (0.05, 0.2, 0.8), (0.05, 0.25, 1.2, 5.0)
PERIODIC = ((0.7, 1.0), (4.0, 0.5), (4.0, 1.2))  # over how long a cycle keeps its form, and how smooth it is
NOISES = (1e-3, 0.1, 0.4, 1.2)  # deviations, beside a function of variance 1
N_REFINED = 8  # kernels, by the two in the middle, of which the others are tried
OFFSET = 1.0  # the variance of the mean of a channel, which its median need not be
# Prior odds of all periodic kernels together: their periods were picked among hundreds, so that they have to convince.
ODDS_OF_PERIODS = 0.01
MOST_TOKENS = 512  # of a channel: the square of their number is the memory of each of some hundred matrices
N_PERIODS, LOWEST, HIGHEST, N_FREQUENCIES = 2, 0.7, 33.0, 400  # cycles in the visible span


def n_matrices() -> int:
    """How many covariances a channel is held against."""
    return (len(SMOOTH) + len(ROUGH) + len(ROUGHEST) + len(PERIODIC) * N_PERIODS) * len(NOISES)


def kernels(lag: Float64[Tensor, "b *n"], periods: Float64[Tensor, "b p"]) -> Float64[Tensor, "b s *n"]:
    """The correlations of all kernels at times that lie so far apart, in shares of the visible span."""
    parts = [correlation_at("rbf", lag, scale) for scale in SMOOTH]
    parts += [correlation_at("matern32", lag, scale) for scale in ROUGH]
    parts += [correlation_at("matern12", lag, scale) for scale in ROUGHEST]
    for period in periods.unbind(1):
        wave = torch.sin(math.pi * lag / period.reshape(-1, *[1] * (lag.ndim - 1))).square()
        parts += [correlation_at("rbf", lag, scale) * torch.exp(-2 / width**2 * wave) for scale, width in PERIODIC]
    return torch.stack(parts, 1)


def each_alone(group: Group, periods: Float64[Tensor, "b p"]) -> Posterior:
    """The kernels and noises that suit each channel, and what they say."""
    device = group.time.device
    among = torch.where(group.pairs.unsqueeze(1), kernels(group.lag, periods) + OFFSET, 0.0)
    noise = torch.tensor(NOISES, dtype=torch.float64, device=device).square()
    added = torch.where(group.valid.unsqueeze(1), noise.unsqueeze(1) + group.variance.unsqueeze(1), 1.0)  # b noises n
    # In two rounds: all kernels with some noise, and those that suit then with next to none and with much. Without any,
    # single precision does not do; with some it does, in half the time.
    first = log_evidence(among.unsqueeze(2), added[:, None, 1:3], group, torch.float32)
    best = first.amax(2).topk(N_REFINED, 1).indices
    finer = chosen_of(among, best).unsqueeze(2)
    without = log_evidence(finer, added[:, None, :1], group, torch.float64)
    much = log_evidence(finer, added[:, None, 3:], group, torch.float32)
    evidence = torch.full((*among.shape[:2], len(NOISES)), -torch.inf, dtype=torch.float64, device=device)
    evidence[:, :, 1:3] = first
    evidence[:, :, ::3] = evidence[:, :, ::3].scatter(
        1, best.unsqueeze(2).expand(-1, -1, 2), torch.cat([without, much], 2)
    )
    n_plain = len(SMOOTH) + len(ROUGH) + len(ROUGHEST)
    odds = torch.zeros(among.shape[1], dtype=torch.float64, device=device)
    odds[n_plain:] = math.log(ODDS_OF_PERIODS * n_plain / (len(PERIODIC) * N_PERIODS))
    odds = odds - odds.logsumexp(0) - math.log(len(NOISES))
    evidence = (evidence + odds[:, None]).flatten(1)
    log_weight, chosen = evidence.topk(N_COMPONENTS, 1)
    covariance = chosen_of(among, chosen // len(NOISES))
    covariance.diagonal(dim1=-2, dim2=-1).add_(chosen_of(added, chosen % len(NOISES)))
    return posterior_of(covariance, group, log_weight, evidence.logsumexp(1), chosen)


def periods_of(group: Group) -> Float64[Tensor, "b p"]:
    """The periods at the highest peaks of the periodogram of each row, in shares of the visible span."""
    frequency = torch.linspace(LOWEST, HIGHEST, N_FREQUENCIES, dtype=torch.float64, device=group.time.device)
    angle = 2 * math.pi * group.time.unsqueeze(2) * frequency
    here = group.valid.unsqueeze(2)
    cosine, sine = torch.where(here, angle.cos(), 0.0), torch.where(here, angle.sin(), 0.0)
    centred = torch.where(group.valid, group.value - group.value.sum(1, keepdim=True) / group.n, 0.0).unsqueeze(1)
    with_cosine, with_sine = (centred @ cosine).squeeze(1), (centred @ sine).squeeze(1)
    cc, ss, cs = cosine.square().sum(1), sine.square().sum(1), (cosine * sine).sum(1)
    explained = with_cosine.square() * ss - 2 * with_cosine * with_sine * cs + with_sine.square() * cc
    power = explained / (cc * ss - cs.square()).clamp(min=1e-9)
    is_peak = torch.zeros_like(power, dtype=torch.bool)
    is_peak[:, 1:-1] = (power[:, 1:-1] >= power[:, :-2]) & (power[:, 1:-1] >= power[:, 2:])
    return 1 / frequency[power.masked_fill(~is_peak, -1.0).topk(N_PERIODS, 1).indices]

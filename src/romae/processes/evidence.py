"""The evidence of Gaussian processes, and what they say: closed forms, for many covariances at once.

The variance of the function has an inverse gamma prior and is integrated out, so that values of few measurements, whose
spread is not known well, get wide tails.

Shapes: b rows of a group, n tokens of the longest, m components, q queries, g and h axes of combinations, i both.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from romae.processes.cells import Group

N_COMPONENTS = 6  # of a prediction; what has less evidence than six others hardly counts
SHAPE, RATE = 1.5, 1.5  # of the prior of the variance, which is about 1 in units of a series' own
TINY = 1e-12


class Posterior(NamedTuple):
    """What processes say of the rows of a group, by component."""

    log_weight: Float64[Tensor, "b m"]
    evidence: Float64[Tensor, "b"]  # of all combinations together
    chosen: Int64[Tensor, "b m"]  # which combinations these are
    inverse: Float64[Tensor, "b m n n"]  # of the factor of their covariance
    weights: Float64[Tensor, "b m n"]  # covariances times these are means
    size: Float64[Tensor, "b m"]  # the variance of the function

    def predict(
        self, between: Float64[Tensor, "b m n q"], prior: Float64[Tensor, "b m"]
    ) -> tuple[Float64[Tensor, "b m q"], Float64[Tensor, "b m q"]]:
        """Means and deviations where covariances with visible tokens are these, and the variance is `prior`."""
        mean = torch.einsum("bmnq,bmn->bmq", between, self.weights)
        explained = (self.inverse @ between).square().sum(2)
        variance = (prior.unsqueeze(2) - explained).clamp(min=TINY) * self.size.unsqueeze(2)
        return mean, variance.sqrt()

    def left_out(self, group: Group) -> tuple[Float64[Tensor, "b"], Float64[Tensor, "b"]]:
        """The mean log density of visible values, each left out, and by how many deviations the farthest misses."""
        precision = self.inverse.square().sum(2)  # the diagonal of the inverse of the covariance
        miss, variance = self.weights / precision, self.size.unsqueeze(2) / precision
        log_density = -0.5 * (miss.square() / variance + variance.log() + math.log(2 * math.pi))
        mixed = torch.logsumexp(self.log_weight.unsqueeze(2) + log_density, 1)
        far = (self.log_weight.exp().unsqueeze(2) * miss.abs() / variance.sqrt()).sum(1)
        here = group.valid
        surprise = torch.where(here, mixed, 0.0).sum(1) / here.sum(1).clamp(min=1)
        return surprise, torch.where(here, far, 0.0).amax(1)


def log_evidence(
    among: Float64[Tensor, "b *g n n"], added: Float64[Tensor, "b *h n"], group: Group, precision: torch.dtype
) -> Float64[Tensor, "b *i"]:
    """The logarithm of the evidence for covariances, to whose diagonals variances are added.

    The values are the last row of the matrix that is factorised, so that what they come to, once brought to white
    noise, is the last row of its factor:

        C  y     L  0
        y' *  =  z' *  times its transpose, with L z = y, so that |z|^2 = y' C^-1 y
    """
    shape, n = torch.broadcast_shapes(among.shape[:-1], added.shape), among.shape[-1]
    matrix = torch.empty(*shape[:-1], n + 1, n + 1, dtype=precision, device=among.device)
    matrix[..., :n, :n] = among
    matrix.diagonal(dim1=-2, dim2=-1)[..., :n] += added
    matrix[..., n, :n] = group.value.reshape(len(group.rows), *[1] * (len(shape) - 2), n)
    matrix[..., n, n] = 1e8 if precision == torch.float32 else 1e12  # so large that it stays positive
    factor, failed = torch.linalg.cholesky_ex(matrix)
    square = factor[..., n, :n].double().square().sum(-1)
    log_determinant = 2 * factor.diagonal(dim1=-2, dim2=-1)[..., :n].double().log().sum(-1)
    return _of_squares(square, log_determinant, group).masked_fill(failed > 0, -torch.inf).nan_to_num(nan=-torch.inf)


def _of_squares(square: Tensor, log_determinant: Tensor, group: Group) -> Tensor:
    """Of a Student process: the variance of the function is integrated out."""
    n = group.n.reshape(-1, *[1] * (square.ndim - 1))
    shape = SHAPE + n / 2
    constant = torch.lgamma(shape) - math.lgamma(SHAPE) + SHAPE * math.log(RATE) - n / 2 * math.log(2 * math.pi)
    return constant - shape * torch.log(RATE + square / 2) - log_determinant / 2


def posterior_of(
    covariance: Float64[Tensor, "b m n n"],
    group: Group,
    log_weight: Float64[Tensor, "b m"],
    evidence: Float64[Tensor, "b"],
    chosen: Int64[Tensor, "b m"],
) -> Posterior:
    """What follows from the covariances that are kept."""
    n = covariance.shape[-1]
    factor, _ = torch.linalg.cholesky_ex(covariance)
    eye = torch.eye(n, dtype=torch.float64, device=covariance.device)
    inverse = torch.linalg.solve_triangular(factor, eye.expand_as(covariance), upper=False)
    whitened = (inverse @ group.value[:, None, :, None]).squeeze(-1)
    weights = torch.einsum("bmij,bmi->bmj", inverse, whitened)
    # The deviation of Student's distribution with so many degrees of freedom, which a normal one stands in for.
    freedom = 2 * SHAPE + group.n
    size = (RATE + whitened.square().sum(-1) / 2) / (freedom / 2) * freedom / (freedom - 2)
    return Posterior(log_weight.log_softmax(1), evidence, chosen, inverse, weights, size)


def chosen_of(x: Float64[Tensor, "b s *n"], index: Int64[Tensor, "b m"]) -> Float64[Tensor, "b m *n"]:
    """Some of the entries of each row, copied."""
    return x.gather(1, index.reshape(*index.shape, *[1] * (x.ndim - 2)).expand(-1, -1, *x.shape[2:]))


def correlation_at(kernel: str, lag: Tensor, scale: float) -> Tensor:
    """Of a kernel, "rbf", "matern32" or "matern12", at times that lie so far apart."""
    r = lag / scale
    if kernel == "rbf":
        return torch.exp(-0.5 * r.square())
    if kernel == "matern12":
        return torch.exp(-r)
    return (1 + math.sqrt(3) * r) * torch.exp(-math.sqrt(3) * r)

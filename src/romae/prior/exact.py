"""Gaussian functions whose best prediction is known: how far a model is from what nothing can beat is then a number.

Shapes: b samples, n observed times, q query times.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from romae.prior.draws import Draws
from romae.prior.functions import Kernel

JITTER = 1e-10  # of the variance, so that a smooth kernel can be factorised


@dataclass(frozen=True, eq=False)
class GaussianSeries:
    """Noisy values of Gaussian functions of one kernel each, some observed and some asked for, with all that is known.

    Parameters
    ----------
    kernel : Kernel
        That of each function.
    noise : Float64 Tensor [b]
        The standard deviation of the noise.
    times, values : Float64 Tensor [b, n]
        What is observed.
    queries, truth : Float64 Tensor [b, q]
        What is asked for, and the noisy values there.
    """

    kernel: Kernel
    noise: Float64[Tensor, "b"]
    times: Float64[Tensor, "b n"]
    values: Float64[Tensor, "b n"]
    queries: Float64[Tensor, "b q"]
    truth: Float64[Tensor, "b q"]

    @classmethod
    def drawn(cls, n: int, seed: int, n_observed: int = 32, n_queries: int = 16) -> "GaussianSeries":
        """Series drawn exactly, by the factor of their covariance, at times that are even between 0 and 1.

        Parameters
        ----------
        n : int
            How many.
        seed : int
            Another seed draws others.
        n_observed, n_queries : int, default 32 and 16
            How many values of each are observed and asked for.

        Returns
        -------
        GaussianSeries
            In double precision.
        """
        draws = Draws(seed, torch.arange(n))
        kernel = Kernel.drawn(draws)
        quiet = draws.chance(0.25)
        noise = torch.where(quiet, 1e-2, draws.log_uniform(low=0.02, high=0.7)).double()
        times = draws.uniform(n_observed + n_queries).double()
        covariance = kernel.covariance(times.unsqueeze(2) - times.unsqueeze(1))
        factor = torch.linalg.cholesky(covariance + JITTER * 100 * torch.eye(times.shape[1], dtype=torch.float64))
        z = draws.normal(times.shape[1]).double()
        values = torch.einsum("bij,bj->bi", factor, z) + noise.unsqueeze(1) * draws.normal(times.shape[1])
        return cls(
            kernel, noise, times[:, :n_observed], values[:, :n_observed], times[:, n_observed:], values[:, n_observed:]
        )

    def posterior(self) -> tuple[Float64[Tensor, "b q"], Float64[Tensor, "b q"]]:
        """The mean and the standard deviation of what is asked for, noise included, given what is observed.

        Returns
        -------
        tuple of two Float64 Tensors [b, q]
            Those of a normal distribution, which is exact.
        """
        among = self.kernel.covariance(self.times.unsqueeze(2) - self.times.unsqueeze(1))
        between = self.kernel.covariance(self.times.unsqueeze(2) - self.queries.unsqueeze(1))
        variance = self.noise.square()[:, None, None]
        factor = torch.linalg.cholesky(among + (variance + JITTER) * torch.eye(among.shape[1], dtype=torch.float64))
        mean = torch.einsum("bnq,bn->bq", between, torch.cholesky_solve(self.values.unsqueeze(2), factor).squeeze(2))
        explained = torch.linalg.solve_triangular(factor, between, upper=False).square().sum(1)
        return mean, (1 - explained).clamp(min=0).add(variance.squeeze(2)).sqrt()

"""Mixtures of two neighbouring windows as one, without a seam from window to window.

Components of a network have their places: those of both windows stand for the same, and are averaged. Components of
Gaussian processes are those that suit each window best, so that those of both windows are kept, by how near each is.

Shapes: a answers of windows, n queries, m components, p raw parameters.
"""

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from romae.inference.distributions import Units
from romae.model.likelihoods import Mixture
from romae.processes.evidence import N_COMPONENTS

NOTHING = -1e4  # the logarithm of a weight that is 0


def blended_mixtures(
    raw: Float64[np.ndarray, "a p"],
    n_own: int,
    query: Int64[np.ndarray, "a"],
    share: Float64[np.ndarray, "a"],
    side: Int64[np.ndarray, "a"],
    n: int,
    units: tuple[Units, Units],
) -> tuple[Mixture, Float64[np.ndarray, "n p2"]]:
    """One mixture for each query, of what one window says or two.

    Parameters
    ----------
    raw : Float64 array [a, p]
        The raw parameters of each answer: components of the network first, then those of processes.
    n_own : int
        How many components are the network's.
    query : Int64 array [a]
        Which query each answers.
    share : Float64 array [a]
        How much it counts; those of a query add up to 1.
    side : Int64 array [a]
        0 or 1, and not the same for two answers to a query.
    n : int
        How many queries there are.
    units : tuple of two Units
        Those of each answer, and those that the mixtures are to have.

    Returns
    -------
    tuple of Mixture and Float64 array [n, p2]
        With components of processes for either side; those of a side that says nothing weigh nothing.
    """
    own, theirs = slice(n_own), slice(n_own, None)
    weight, centre, scale = Mixture(n=n_own + N_COMPONENTS).parts(torch.from_numpy(raw).unsqueeze(1))
    weight, centre, scale = weight.squeeze(1), centre.squeeze(1), scale.squeeze(1)
    at, part = torch.from_numpy(query), torch.from_numpy(share).unsqueeze(1)

    def summed(x: Float64[Tensor, "a m"]) -> Float64[Tensor, "n m"]:
        return torch.zeros(n, x.shape[1], dtype=torch.float64).index_add(0, at, part * x)

    columns = [[summed(weight[:, own])], [summed(centre[:, own])], [summed(scale[:, own].log()).exp()]]
    moved, stretch = _in_other_units(centre[:, theirs].numpy(), units)
    there = weight[:, theirs] + part.log(), torch.from_numpy(moved), scale[:, theirs] * torch.from_numpy(stretch)
    for one in (0, 1):
        here = torch.from_numpy(side == one)
        for column, x, empty in zip(columns, there, (NOTHING, 0.0, 1.0), strict=True):
            column.append(torch.full((n, N_COMPONENTS), empty, dtype=torch.float64).index_copy(0, at[here], x[here]))
    whole = Mixture(n=n_own + 2 * N_COMPONENTS)
    parameters = whole.raw(*(torch.cat(column, 1).unsqueeze(1) for column in columns))
    return whole, parameters.squeeze(1).numpy()


def _in_other_units(
    z: Float64[np.ndarray, "a m"], units: tuple[Units, Units]
) -> tuple[Float64[np.ndarray, "a m"], Float64[np.ndarray, "a m"]]:
    """Numbers as they are seen in other units, and how much small differences grow."""
    one, zero = np.ones(1), np.zeros(1)
    before, after = (Units(one, zero, u.scale[:, None], u.centre[:, None], u.method) for u in units)
    x = before.to_data(z)
    return after.to_model(x), np.exp(after.log_slope(x) - before.log_slope(x))

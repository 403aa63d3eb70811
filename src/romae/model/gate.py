"""How much of an answer is a network's, and how much that of averaged Gaussian processes: a small network decides.

Shapes: q queries, f features, h hidden units.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from romae.config import check_types

N_FEATURES, N_OUTPUTS = 11, 3
LEAST_SHARE = 0.01  # of either: an answer never rests on one of them alone
MOST_STRETCH = 0.5  # of the logarithm of a scale, either way


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """What decides between a network and averaged Gaussian processes, query by query.

    Two linear layers with a hyperbolic tangent between them, in numbers that are kept beside the model, rounded to five
    digits. `python -m romae.experiments.zero_gate` fits them on random functions.

    Parameters
    ----------
    hidden : tuple of tuples of float
        For each hidden unit the weights of the features, and its bias.
    output : tuple of tuples of float
        For the share of the processes, the widths of the network and those of the processes: the weights of the hidden
        units, and a bias.
    stretch : float, default 1.0
        What all scales are multiplied by besides, where real series are less like random functions than those are like
        each other.

    Raises
    ------
    ValueError
        If rows do not have as many numbers as they need, or the stretch is not above 0.
    """

    hidden: tuple[tuple[float, ...], ...]
    output: tuple[tuple[float, ...], ...]
    stretch: float = 1.0

    def __post_init__(self) -> None:
        check_types(self)
        if not self.hidden or {len(row) for row in self.hidden} != {N_FEATURES + 1}:
            raise ValueError(f"each hidden unit of a gate has {N_FEATURES} weights and a bias")
        if len(self.output) != N_OUTPUTS or {len(row) for row in self.output} != {len(self.hidden) + 1}:
            raise ValueError(f"a gate has {N_OUTPUTS} outputs, each with a weight for every hidden unit and a bias")
        if not 0 < self.stretch < float("inf"):
            raise ValueError(f"scales are multiplied by a stretch above 0, not {self.stretch}")

    def __call__(
        self, features: Float64[Tensor, "q f"]
    ) -> tuple[Float64[Tensor, "q"], Float64[Tensor, "q"], Float64[Tensor, "q"]]:
        """The share of the processes, and what the scales of the network and of the processes are multiplied by.

        Parameters
        ----------
        features : Float64 Tensor [q, f]
            What the decision rests on, of about unit size.

        Returns
        -------
        tuple of three Float64 Tensors [q]
            The share lies between 0 and 1.
        """
        hidden, output = (torch.tensor(x, dtype=torch.float64) for x in (self.hidden, self.output))
        share, ours, theirs = decided(features, hidden, output)
        return share, self.stretch * ours, self.stretch * theirs


def decided(
    features: Float64[Tensor, "q f"], hidden: Float64[Tensor, "h f1"], output: Float64[Tensor, "three h1"]
) -> tuple[Float64[Tensor, "q"], Float64[Tensor, "q"], Float64[Tensor, "q"]]:
    """What `Gate` does, by tensors, whose gradients fit them."""
    unit = torch.tanh(features @ hidden[:, :-1].T + hidden[:, -1])
    share, ours, theirs = (unit @ output[:, :-1].T + output[:, -1]).unbind(1)
    share = LEAST_SHARE + (1 - 2 * LEAST_SHARE) * torch.sigmoid(share)
    return share, torch.exp(MOST_STRETCH * torch.tanh(ours)), torch.exp(MOST_STRETCH * torch.tanh(theirs))

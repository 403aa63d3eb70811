"""A network's answers and those of averaged Gaussian processes as one mixture, by a gate.

Shapes: q queries, f features, m components, p raw parameters.
"""

from typing import Any

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from romae.model.gate import Gate
from romae.model.likelihoods import Mixture
from romae.processes.alone import MOST_TOKENS
from romae.processes.average import Averaged, averaged
from romae.processes.evidence import N_COMPONENTS
from romae.tokens.layout import Layout
from romae.tokens.tokens import Tokens

NO_SHARE = 1e-30  # which no probability knows of
# The logarithms of the weights, the centres and the scales of the components of each query.
Parts = tuple[Float64[Tensor, "q _"], Float64[Tensor, "q _"], Float64[Tensor, "q _"]]


def mixed_with_processes(
    gate: Gate,
    likelihood: Any,
    raw: Float64[Tensor, "q 1 p"],
    line: Float64[Tensor, "q 1"],
    visible: Tokens,
    positions: Float[Tensor, "q 2"],
    layout: Layout,
) -> tuple[Mixture, Float64[Tensor, "q 1 _"]]:
    """The raw parameters of a network's mixtures with those of averaged processes among their components.

    Parameters
    ----------
    gate : Gate
        What decides how much each counts.
    likelihood : Mixture
        That of the network.
    raw : Float64 Tensor [q, 1, p]
        What the network says of each query.
    line : Float64 Tensor [q, 1]
        What the network's answers are deviations from; 0 where they are values.
    visible : Tokens
        What is visible of each series.
    positions : Tensor [q, 2]
        Times and coordinates of channels, as the network sees them.
    layout : Layout
        Where the queries of each series lie.

    Returns
    -------
    tuple of Mixture and Float64 Tensor [q, 1, p]
        The mixture of both, of values; the components of the network come first.
    """
    assert isinstance(likelihood, Mixture)
    weight, centre, scale = (x.squeeze(1) for x in likelihood.parts(raw))
    own = weight, centre + line, scale
    theirs = averaged(visible, positions, layout)
    share, ours, others = gate(features(own, theirs))
    share = torch.where(theirs.n_own > MOST_TOKENS, NO_SHARE, share)
    both = mixed(share, ours, others, own, (theirs.log_weight, theirs.centre, theirs.scale))
    whole = Mixture(n=likelihood.n + N_COMPONENTS)
    return whole, whole.raw(*(x.unsqueeze(1) for x in both))


def mixed(
    share: Float64[Tensor, "q"],
    ours: Float64[Tensor, "q"],
    theirs: Float64[Tensor, "q"],
    own: Parts,
    processes: Parts,
) -> Parts:
    """The mixture for a share of the processes, and what the scales of both are multiplied by."""
    (weight, centre, scale), (their_weight, their_centre, their_scale) = own, processes
    return (
        torch.cat([weight + torch.log1p(-share).unsqueeze(1), their_weight + share.log().unsqueeze(1)], 1),
        torch.cat([centre, their_centre], 1),
        torch.cat([scale * ours.unsqueeze(1), their_scale * theirs.unsqueeze(1)], 1),
    )


def features(own: Parts, theirs: Averaged) -> Float64[Tensor, "q f"]:
    """What the decision rests on: how well processes suit what is visible, and how far both answers are apart.

    Parameters
    ----------
    own : tuple of three Float64 Tensors [q, m]
        The components of the network.
    theirs : Averaged
        What the processes say, and what that rests on.

    Returns
    -------
    Float64 Tensor [q, f]
        Of about unit size.
    """
    mean, deviation = _moments(own)
    other, spread = _moments((theirs.log_weight, theirs.centre, theirs.scale))
    return torch.stack(
        [
            theirs.evidence.clamp(-4, 4),
            theirs.surprise.clamp(-4, 4),
            theirs.outlier.clamp(min=1e-3).log(),
            theirs.together,
            theirs.n_own.log1p() / 2 - 1,
            theirs.n_others.log1p() / 2,
            2 * theirs.repeated,
            torch.log(theirs.distance.clamp(1e-4, 10)) / 2 + 2,
            deviation.log().clamp(-6, 4) + 1,
            (spread.log() - deviation.log()).clamp(-6, 6),
            ((other - mean).abs() / torch.hypot(deviation, spread)).log1p(),
        ],
        1,
    )


def _moments(parts: Parts) -> tuple[Float64[Tensor, "q"], Float64[Tensor, "q"]]:
    """Means and deviations."""
    weight, centre, scale = parts
    share = weight.exp()
    mean = (share * centre).sum(1)
    return mean, (share * (scale.square() + (centre - mean.unsqueeze(1)).square())).sum(1).sqrt()

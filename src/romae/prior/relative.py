"""Random series as a model learns from them: in units of their own, with channels at random coordinates.

Shapes: k cells of a sample and a channel.
"""

from dataclasses import dataclass, replace

import torch

from romae.data.own_units import WIDEST, OwnUnits
from romae.data.scaling import Scaling
from romae.prior.draws import Draws
from romae.tokens.sample import Sample
from romae.tokens.tokens import PackedSamples

# What a model that reads measurement errors is trained with: its series come in units of their own already.
LEARNING = Scaling(centre=((0.0,),), scale=((1.0,),), errors=1)
# What it keeps for its answers.
ANSWERING = replace(LEARNING, own_units=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class InOwnUnits:
    """Brings the samples of a prior to units of their own: what training does between drawing and learning.

    Parameters
    ----------
    n_channels : int
        The most channels of a sample.
    seed : int, default 0
        Draws the coordinates of channels by the ids of samples, which are whole numbers.
    from_lines : bool, default False
        Whether what is hidden is a deviation from the line between its visible neighbours.
    """

    n_channels: int
    seed: int = 0
    from_lines: bool = False

    def apply(self, sample: Sample) -> Sample:
        """One sample."""
        return self.apply_packed(PackedSamples.of([sample])).sample(0)

    def apply_packed(self, packed: PackedSamples) -> PackedSamples:
        """Samples end to end."""
        ids = torch.tensor([int(name) for name in packed.ids], device=packed.values.device)  # type: ignore[call-overload]
        coordinate = WIDEST * Draws(self.seed, ids).uniform(self.n_channels).double().flatten()
        own = replace(OwnUnits.of(packed, self.n_channels), coordinate=coordinate)
        return own.apply(packed, from_lines=self.from_lines)

"""Random numbers of which every sample has its own, on any device and in any batch.

Shapes: b samples, *n of each.
"""

import math

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from romae.tokens.masking import SCORE_BITS, mixed

# Streams of one sample lie so far apart that no draw reaches into the next.
STREAM = 1 << 40
LONGEST = 1 << 20  # numbers on the last axis


class Draws:
    """Random numbers for samples, each of which has the same ones in whatever batch it is drawn.

    They follow from a seed and the number of a sample by hashing, as those of `SampleKeys` do. The order of the calls
    matters; how many samples there are does not, nor how long a last axis is: a longer one begins with the same
    numbers.

    Parameters
    ----------
    seed : int
        Another seed draws other numbers.
    indices : Int64 Tensor [b]
        The numbers of the samples; those drawn are on its device.

    Examples
    --------
    >>> import torch
    >>> from romae.prior.draws import Draws
    >>> together = Draws(0, torch.arange(3)).uniform(4)
    >>> alone = Draws(0, torch.tensor([2])).uniform(4)
    >>> bool((together[2] == alone[0]).all())
    True
    """

    def __init__(self, seed: int, indices: Int64[Tensor, "b"]) -> None:
        self.keys = mixed(mixed(indices.new_tensor(seed)) + indices)
        self.n_drawn = 0

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def device(self) -> torch.device:
        """Where numbers are drawn."""
        return self.keys.device

    def of(self, rows: Bool[Tensor, "b"] | Int64[Tensor, "k"]) -> "Draws":
        """Numbers for some of the samples, other than any that all of them draw.

        Parameters
        ----------
        rows : Bool Tensor [b] or Int64 Tensor [k]
            Which samples.

        Returns
        -------
        Draws
            In their order.
        """
        self.n_drawn += 1
        part = object.__new__(Draws)
        part.keys, part.n_drawn = mixed(self.keys + self.n_drawn * STREAM)[rows], 0
        return part

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Float[Tensor, "b *n"]:
        """Numbers between two bounds, evenly.

        Parameters
        ----------
        *shape : int
            How many for each sample, on any number of axes; none for a single one.
        low, high : float, default 0.0 and 1.0
            The bounds; the upper one is never reached.

        Returns
        -------
        Float Tensor [b, …]
            In single precision.
        """
        bits = self._bits(shape)
        return low + (high - low) * (bits.float() / 2**SCORE_BITS)

    def log_uniform(self, *shape: int, low: float, high: float) -> Float[Tensor, "b *n"]:
        """Numbers between two bounds above 0, whose logarithms are even."""
        return torch.exp(self.uniform(*shape, low=math.log(low), high=math.log(high)))

    def normal(self, *shape: int) -> Float[Tensor, "b *n"]:
        """Standard normal numbers; none lies farther out than 5.4."""
        # From the middles of 2**24 cells, each an exact number in single precision: neither end is drawn, where the
        # inverse is infinite.
        half = 2 ** (SCORE_BITS - 1)
        return math.sqrt(2) * torch.erfinv((self._bits(shape) - half + 0.5) / half)

    def chance(self, probability: float, *shape: int) -> Bool[Tensor, "b *n"]:
        """True with this probability."""
        return self.uniform(*shape) < probability

    def whole(self, *shape: int, low: int, high: int) -> Int64[Tensor, "b *n"]:
        """Whole numbers from `low` to `high`, both of them drawn as often as the others."""
        return (low + (self.uniform(*shape) * (high - low + 1)).long()).clamp(max=high)

    def choice(self, weights: tuple[float, ...], *shape: int) -> Int64[Tensor, "b *n"]:
        """The number of one of several things, drawn as often as its weight says."""
        edges = torch.tensor(weights, device=self.device, dtype=torch.float64).cumsum(0)
        return torch.searchsorted(edges / edges[-1], self.uniform(*shape).double(), right=True).clamp(
            max=len(weights) - 1
        )

    def _bits(self, shape: tuple[int, ...]) -> Int64[Tensor, "b *n"]:
        """Whole numbers of 24 bits."""
        self.n_drawn += 1
        *rows, n = shape if shape else (1,)
        row = torch.arange(math.prod(rows), device=self.device).unsqueeze(1)
        place = row * LONGEST + torch.arange(n, device=self.device)
        bits = mixed(mixed(self.keys + self.n_drawn * STREAM).reshape(-1, 1, 1) + place)
        return ((bits >> (64 - SCORE_BITS)) & (2**SCORE_BITS - 1)).reshape(len(self), *shape)

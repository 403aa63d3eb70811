"""Positions: continuous axial p-RoPE, and the absolute sinusoid it is compared with.

Shapes: t tokens, h heads, e head size, d position dimensions, w width.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Float32
from torch import Tensor, nn

from romae.tokens.ladder import Ladder, nearest_multiples


@dataclass(frozen=True, eq=False)
class Rotation:
    """The cosine and sine of every token's angles, [t, 1, d, pairs]; shared by all heads and layers."""

    cos: Float32[Tensor, "t 1 d pairs"]
    sin: Float32[Tensor, "t 1 d pairs"]

    @property
    def n_axes(self) -> int:
        return self.cos.shape[-2]

    @property
    def n_pairs(self) -> int:
        return self.cos.shape[-1]

    def padded(self, n_pairs: int) -> "Rotation":
        """The same rotation for heads with more channel pairs on every axis; those added are left as they are."""
        missing = (0, n_pairs - self.n_pairs)
        return Rotation(nn.functional.pad(self.cos, missing, value=1.0), nn.functional.pad(self.sin, missing))

    def rows(self, n_heads: int) -> "RotationRows":
        """The same for whole rows of heads; made once for all layers."""
        found = self.__dict__.get("_rows")
        if found is None or found.cos.shape[1] != n_heads * found.partner.shape[0]:
            found = RotationRows.of(self, n_heads)
            object.__setattr__(self, "_rows", found)
        return found


class RotationRows(NamedTuple):
    """A rotation as x cos + (x partner) sin, for rows of h heads end to end.

    The matrix `partner` swaps the channels of every pair and turns the sign of the first, (a, b) to (-b, a), which is
    exact. On a CPU that takes a third of the time of `rotate`, whose parts of a head are too short for its units.
    """

    cos: Float32[Tensor, "t he"]
    sin: Float32[Tensor, "t he"]
    partner: Float32[Tensor, "e e"]

    @classmethod
    def of(cls, rotation: Rotation, n_heads: int) -> "RotationRows":
        cos, sin = (
            torch.stack([x, x], dim=-2).flatten(2).expand(-1, n_heads, -1) for x in (rotation.cos, rotation.sin)
        )
        size = cos.shape[-1]
        first, second = torch.arange(size).unflatten(0, (rotation.n_axes, 2, rotation.n_pairs)).unbind(1)
        partner = torch.zeros(size, size)
        partner[second, first], partner[first, second] = -1.0, 1.0
        return cls(cos.flatten(1), sin.flatten(1), partner)

    def turn(self, x: Float32[Tensor, "t h e"]) -> Float32[Tensor, "t h e"]:
        """Queries or keys, turned."""
        partners = (x.reshape(-1, x.shape[-1]) @ self.partner).view(self.cos.shape)
        return torch.addcmul(x.flatten(1) * self.cos, partners, self.sin).view(x.shape)


class _Frequencies(nn.Module):
    """The angular frequencies of every axis, [d, pairs]: on the module's device, float32 whatever it is cast to."""

    def __init__(self, n_pairs: int, position_dims: int, keep: float, ladders: Sequence[Ladder] | None) -> None:
        super().__init__()
        if position_dims < 1:
            raise ValueError(f"a model needs at least one position dimension, not {position_dims}")
        if not 0 <= keep <= 1:
            raise ValueError(f"keep is the share of frequencies that rotate, between 0 and 1, not {keep}")
        ladders = ladders or (Ladder(),) * position_dims
        if len(ladders) != position_dims:
            raise ValueError(f"{len(ladders)} ladders for {position_dims} position dimensions")
        self._table = torch.stack([ladder.frequencies(n_pairs, keep) for ladder in ladders]).tolist()
        self.register_buffer("frequencies", torch.tensor(self._table), persistent=False)
        self.frequencies: Float32[Tensor, "d pairs"]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
        super()._apply(fn, recurse)
        self.frequencies = torch.tensor(self._table, device=self.frequencies.device)
        return self

    def angles(self, positions: Float32[Tensor, "t d"]) -> Float32[Tensor, "t d pairs"]:
        """The angles of every token.

        Parameters
        ----------
        positions : Float32 Tensor [t, d]
            The positions, as the model sees them.

        Returns
        -------
        Float32 Tensor [t, d, pairs]
            Radians.
        """
        return positions.unsqueeze(-1) * self.frequencies


class AxialRope(_Frequencies):
    """Axial p-RoPE: rotary position embedding for real-valued positions on several axes.

    The channels of a head are split evenly over the position axes, and each pair of channels is rotated by its
    frequency times the coordinate. Nothing is trained.

    Parameters
    ----------
    head_dim : int
        The size of a head, a multiple of 2 x `position_dims`.
    position_dims : int
        The number of position axes.
    keep : float, default 0.75
        The share of channel pairs that rotate (the p of p-RoPE), from 0 to 1; those with the highest frequencies are
        kept.
    ladders : sequence of Ladder, optional
        The wavelengths of each axis; by default the paper's.

    Raises
    ------
    ValueError
        If the head cannot be split over the axes, or a number lies outside its range.

    Examples
    --------
    >>> import torch
    >>> import romae
    >>> rope = romae.AxialRope(head_dim=8, position_dims=2)
    >>> rotation = rope(torch.tensor([[0.0, 0.0], [1.5, 3.0]]))  # two tokens
    >>> rotation.cos.shape  # tokens, heads, axes, pairs
    torch.Size([2, 1, 2, 2])
    """

    def __init__(
        self, head_dim: int, position_dims: int, *, keep: float = 0.75, ladders: Sequence[Ladder] | None = None
    ) -> None:
        if position_dims > 0 and head_dim % (2 * position_dims):
            raise ValueError(
                f"head size {head_dim} must be a multiple of 2 x {position_dims} position dimensions; "
                f"the nearest are {nearest_multiples(head_dim, 2 * position_dims)}"
            )
        super().__init__(head_dim // (2 * max(position_dims, 1)), position_dims, keep, ladders)

    def forward(self, positions: Float32[Tensor, "t d"]) -> Rotation:
        """The rotation of every token, for all heads and layers.

        Parameters
        ----------
        positions : Float32 Tensor [t, d]
            The positions, as the model sees them.

        Returns
        -------
        Rotation
            Cosine and sine of the angles.
        """
        angles = self.angles(positions).unsqueeze(1)
        return Rotation(angles.cos(), angles.sin())


def rotate(x: Float[Tensor, "t h e"], rotation: Rotation) -> Float[Tensor, "t h e"]:
    """Rotate queries or keys. Within an axis of size a, channel i turns with channel i + a/2."""
    first, second = x.unflatten(-1, (rotation.n_axes, 2, rotation.n_pairs)).unbind(-2)
    turned = (first * rotation.cos - second * rotation.sin, second * rotation.cos + first * rotation.sin)
    return torch.stack([part.to(x.dtype) for part in turned], dim=-2).flatten(-3)


class Sinusoid(_Frequencies):
    """Absolute positions: sine and cosine of real-valued coordinates, the width shared evenly by the axes."""

    def __init__(self, width: int, position_dims: int, *, ladders: Sequence[Ladder] | None = None) -> None:
        n_pairs = width // (2 * max(position_dims, 1))
        if n_pairs == 0:
            raise ValueError(f"width {width} is too small for sine and cosine of {position_dims} position dimensions")
        super().__init__(n_pairs, position_dims, 1.0, ladders)
        self.width = width

    def forward(self, positions: Float32[Tensor, "t d"]) -> Float32[Tensor, "t w"]:
        angles = self.angles(positions)
        features = torch.cat([angles.sin(), angles.cos()], dim=-1).flatten(1)
        return nn.functional.pad(features, (0, self.width - features.shape[1]))

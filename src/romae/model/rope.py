"""Positions: continuous axial p-RoPE, and the absolute sinusoid it is compared with.

Shapes: t tokens, h heads, e head size, d position dimensions, w width.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float32, Float64
from torch import Tensor, nn

from romae.config import check_types


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """The frequencies of one position axis.

    Positions are divided by `scale` first, so the wavelengths are in units of it. By default the wavelengths
    climb as in the paper, from 2π by powers of `base`. `shortest` and `longest` give the two ends instead, and
    `wavelengths` names them one by one.
    """

    scale: float = 1.0
    base: float = 10000.0
    shortest: float | None = None
    longest: float | None = None
    wavelengths: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        check_types(self)
        if not (math.isfinite(self.scale) and self.scale > 0):
            raise ValueError(f"the scale of a position axis must be positive, not {self.scale}")
        if not (math.isfinite(self.base) and self.base > 1):
            raise ValueError(f"the base of a ladder must be above 1, not {self.base}")
        if (self.shortest is None) != (self.longest is None):
            raise ValueError("give both the shortest and the longest wavelength of a ladder, or neither")
        if self.shortest is not None and self.longest is not None and not 0 < self.shortest <= self.longest:
            raise ValueError(f"wavelengths must climb from above 0: shortest {self.shortest}, longest {self.longest}")
        if self.wavelengths is not None:
            if self.shortest is not None:
                raise ValueError("give either the two ends of a ladder or its wavelengths one by one, not both")
            if not self.wavelengths or not all(0 < w < math.inf for w in self.wavelengths):
                raise ValueError(f"wavelengths must be above 0, got {list(self.wavelengths)}")

    def frequencies(self, n_pairs: int, keep: float) -> Float64[Tensor, "n"]:
        """Radians per unit of position for each pair of channels; zero for the pairs that are not rotated.

        p-RoPE keeps the share `keep` of the pairs, those with the highest frequencies.
        """
        n_kept = int(keep * n_pairs)
        if self.wavelengths is not None:
            if len(self.wavelengths) > n_pairs:
                raise ValueError(f"{len(self.wavelengths)} wavelengths do not fit into {n_pairs} pairs of channels")
            kept = 2 * math.pi / _numbers(sorted(self.wavelengths))
        elif self.shortest is not None and self.longest is not None:
            steps = _numbers(range(n_kept)) / max(n_kept - 1, 1)
            kept = 2 * math.pi / (self.shortest * (self.longest / self.shortest) ** steps)
        else:
            kept = self.base ** -(_numbers(range(n_kept)) / n_pairs)
        return torch.cat([kept / self.scale, _numbers([0.0] * (n_pairs - len(kept)))])


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
        return positions.unsqueeze(-1) * self.frequencies


class AxialRope(_Frequencies):
    """Turns positions into a rotation. The head is split evenly over the axes, and nothing is trained."""

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


def _numbers(numbers: Iterable[float]) -> Float64[Tensor, "n"]:
    """On the host, also where a model is being built on another device."""
    return torch.tensor(list(numbers), dtype=torch.float64, device="cpu")


def nearest_multiples(size: int, step: int) -> str:
    """The multiples of a step around a size, for messages."""
    below, above = size // step * step, (size // step + 1) * step
    return f"{below} and {above}" if below else f"{above}"

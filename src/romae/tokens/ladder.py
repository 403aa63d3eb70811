"""Ladders: the wavelengths by which positions on one axis are told apart."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from romae.config import check_types


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """Wavelengths of the rotary embedding (RoPE) along one position axis.

    By default the wavelengths are the paper's: they grow from 2π by powers of `base`. `shortest` and `longest` give a
    geometric series between two ends instead, and `wavelengths` lists them.

    Parameters
    ----------
    scale : float, default 1.0
        Positions are divided by it first, so that wavelengths are in units of it. Above 0.
    base : float, default 10000.0
        The base of the default wavelengths, above 1.
    shortest : float, optional
        The shortest wavelength of a geometric series; comes with `longest`.
    longest : float, optional
        The longest wavelength of a geometric series.
    wavelengths : tuple of float, optional
        Every wavelength by itself; channel pairs beyond them are not rotated.

    Raises
    ------
    ValueError
        If a number is not positive, only one end is given, or both ends and wavelengths are.
    TypeError
        If a setting is of another type.

    See Also
    --------
    fit_ladders : the ladders that suit a data set.

    Examples
    --------
    >>> import math
    >>> import romae
    >>> ladder = romae.Ladder(shortest=1.0, longest=100.0)
    >>> (2 * math.pi / ladder.frequencies(n_pairs=3, keep=1.0)).tolist()
    [1.0, 10.0, 100.0]
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
        """Angular frequencies of the channel pairs.

        Parameters
        ----------
        n_pairs : int
            Pairs of channels that a head has for this axis.
        keep : float
            The share of pairs that rotate (the p of p-RoPE), from 0 to 1; those with the highest frequencies are kept.

        Returns
        -------
        Float64 Tensor [n_pairs]
            Radians per unit of position; 0 for pairs that are not rotated.

        Raises
        ------
        ValueError
            If there are more `wavelengths` than pairs.
        """
        n_kept = int(keep * n_pairs)
        if self.wavelengths is not None:
            if len(self.wavelengths) > n_pairs:
                raise ValueError(
                    f"{len(self.wavelengths)} wavelengths do not fit into {n_pairs} pairs of channels; take wider "
                    "heads, or fewer wavelengths (of a phase, harmonics)"
                )
            kept = 2 * math.pi / _host_tensor(sorted(self.wavelengths))
        elif self.shortest is not None and self.longest is not None:
            steps = _host_tensor(range(n_kept)) / max(n_kept - 1, 1)
            kept = 2 * math.pi / (self.shortest * (self.longest / self.shortest) ** steps)
        else:
            kept = self.base ** -(_host_tensor(range(n_kept)) / n_pairs)
        return torch.cat([kept / self.scale, _host_tensor([0.0] * (n_pairs - len(kept)))])


def _host_tensor(numbers: Iterable[float]) -> Float64[Tensor, "n"]:
    """Numbers in double precision on the host, also where a model is being built on another device."""
    return torch.tensor(list(numbers), dtype=torch.float64, device="cpu")


def nearest_multiples(size: int, step: int) -> str:
    """The multiples of a step around a size, for messages."""
    below, above = size // step * step, (size // step + 1) * step
    return f"{below} and {above}" if below else f"{above}"

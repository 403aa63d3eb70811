"""Patches: grids of any number of dimensions to tokens and back.

The model knows nothing of grids. What is regular (pixels, mel bins) is cut into patches here, and each patch
becomes one token at the grid position of the patch. Within a token the values run over the patch in order, the
channels fastest.
"""

import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float64
from torch import Tensor

from romae.tokens.arrays import require_dense


def grid_counts(size: Sequence[int], patch: Sequence[int]) -> tuple[int, ...]:
    """How many patches lie along each dimension of a grid of this size."""
    _require_sizes(patch, "patch sizes")
    if len(size) != len(patch):
        raise ValueError(f"the grid has {len(size)} dimensions {list(size)}, the patch {len(patch)} {list(patch)}")
    for axis, (n, p) in enumerate(zip(size, patch, strict=True)):
        if n < p:
            raise ValueError(f"dimension {axis} has size {n}, smaller than one patch of {p}")
        if n % p:
            raise ValueError(
                f"dimension {axis} has size {n}, which patches of {p} do not divide; crop it to {n - n % p}, "
                f"pad it to {n + p - n % p}, or use a patch of {_divisors_near(n, p)}"
            )
    return tuple(n // p for n, p in zip(size, patch, strict=True))


def patchify(x: Tensor, patch: Sequence[int], *, channels: int | None = None, irregular: Sequence[int] = ()) -> Tensor:
    """Cut a grid (image, spectrogram, video) into patches, one token each.

    Parameters
    ----------
    x : Tensor [..., *grid]
        The grid. Dimensions in front of it are batch dimensions.
    patch : sequence of int
        The size of a patch along each dimension of the grid, channels not counted, such as (16, 16). It must divide the
        grid.
    channels : int or None, default None
        The dimension that holds the channels, counted within the grid: 0 for an image [3, h, w], -1 for [h, w, 3]. None
        if there is none.
    irregular : sequence of int, default ()
        The grid dimensions, channels not counted, whose coordinates are not evenly spaced. Their patch must be 1, since
        the steps inside a patch share one position.

    Returns
    -------
    Tensor [..., n, k]
        n patches in row-major order with k values each; within a patch the channels run fastest.

    Raises
    ------
    ValueError
        If the patch does not divide the grid, or does not fit its dimensions.

    See Also
    --------
    unpatchify : the exact inverse.
    grid_positions : the positions of the patches, in the same order.

    Examples
    --------
    >>> import torch
    >>> import romae
    >>> image = torch.arange(16.0).reshape(4, 4)
    >>> tokens = romae.patchify(image, (2, 2))
    >>> tokens.shape
    torch.Size([4, 4])
    >>> tokens[0]
    tensor([0., 1., 4., 5.])
    """
    _require_sizes(patch, "patch sizes")
    dims = len(patch)
    for axis in irregular:
        if not 0 <= axis < dims:
            raise ValueError(f"irregular names dimension {axis}, but the patch has 0 to {dims - 1}")
        _require_unpatched(axis, patch[axis])
    x, n_batch = _channels_last(x, dims, channels)
    counts = grid_counts(x.shape[n_batch:-1], patch)
    grid_and_patch = [size for count, p in zip(counts, patch, strict=True) for size in (count, p)]
    x = x.reshape(*x.shape[:n_batch], *grid_and_patch, x.shape[-1])
    order = _patch_order(n_batch, dims)
    return x.permute(order).reshape(*x.shape[:n_batch], math.prod(counts), math.prod(patch) * x.shape[-1])


def unpatchify(tokens: Tensor, patch: Sequence[int], counts: Sequence[int], *, channels: int | None = None) -> Tensor:
    """Put patches back into their grid: the exact inverse of `patchify`.

    Parameters
    ----------
    tokens : Tensor [..., n, k]
        The patches, in the order of `patchify`.
    patch : sequence of int
        The size of a patch along each dimension of the grid.
    counts : sequence of int
        How many patches lie along each dimension; their product is n.
    channels : int or None, default None
        The dimension of the grid that the channels go to, such as 0 for [3, h, w]. None if there is one channel, which
        then has no dimension of its own.

    Returns
    -------
    Tensor [..., *grid]
        The grid.

    Raises
    ------
    ValueError
        If the tokens do not fill the grid, or hold several channels and `channels` is None.

    Examples
    --------
    >>> import torch
    >>> import romae
    >>> image = torch.randn(3, 8, 8)
    >>> tokens = romae.patchify(image, (4, 4), channels=0)
    >>> torch.equal(romae.unpatchify(tokens, (4, 4), counts=(2, 2), channels=0), image)
    True
    """
    _require_sizes(patch, "patch sizes")
    _require_sizes(counts, "counts")
    dims, n_batch = len(patch), tokens.ndim - 2
    if len(counts) != dims:
        raise ValueError(f"the patch has {dims} dimensions, but there are {len(counts)} counts")
    if n_batch < 0:
        raise ValueError(f"tokens must be [..., n, values], got shape {list(tokens.shape)}")
    if tokens.shape[-2] != math.prod(counts):
        raise ValueError(f"{tokens.shape[-2]} tokens do not fill a grid of {list(counts)} patches")
    n_channels, rest = divmod(tokens.shape[-1], math.prod(patch))
    if rest or n_channels < 1:
        raise ValueError(f"tokens of {tokens.shape[-1]} values do not hold whole patches of {list(patch)}")
    if channels is None and n_channels != 1:
        raise ValueError(f"tokens hold {n_channels} channels; say which dimension they go to with channels=")
    _require_channels(channels, dims)
    batch = tokens.shape[:n_batch]
    x = tokens.reshape(*batch, *counts, *patch, n_channels)
    order = _patch_order(n_batch, dims)
    x = x.permute([order.index(i) for i in range(len(order))])
    x = x.reshape(*batch, *(count * p for count, p in zip(counts, patch, strict=True)), n_channels)
    return x.squeeze(-1) if channels is None else x.movedim(-1, n_batch + channels % (dims + 1))


def grid_positions(
    counts: Sequence[int], coordinates: Mapping[int, Any] | None = None, *, patch: Sequence[int] | None = None
) -> Float64[Tensor, "n d"]:
    """Positions of the patches of a grid, in the order of `patchify`.

    Parameters
    ----------
    counts : sequence of int
        How many patches lie along each dimension.
    coordinates : mapping of int to numbers, optional
        Coordinates of dimensions that are not evenly spaced: for each such dimension one number per step. All others
        count 0, 1, 2, …
    patch : sequence of int, optional
        The size of a patch. With it, a dimension that has `coordinates` but is patched is refused.

    Returns
    -------
    Float64 Tensor [n, d]
        One row per patch, one column per dimension.

    Raises
    ------
    ValueError
        If coordinates are not finite, are too many or too few, or belong to a patched dimension.
    TypeError
        If coordinates cannot be read as numbers.

    Examples
    --------
    >>> import romae
    >>> romae.grid_positions((2, 2)).tolist()
    [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]

    Two images taken 3.5 days apart, of one patch each:

    >>> romae.grid_positions((2, 1, 1), {0: [0.0, 3.5]})[:, 0].tolist()
    [0.0, 3.5]
    """
    _require_sizes(counts, "counts")
    if patch is not None and len(patch) != len(counts):
        raise ValueError(f"the patch has {len(patch)} dimensions, but there are {len(counts)} counts")
    coordinates = coordinates or {}
    unknown = sorted(axis for axis in coordinates if not 0 <= axis < len(counts))
    if unknown:
        raise ValueError(f"coordinates for dimensions {unknown}, but the grid has 0 to {len(counts) - 1}")
    axes = []
    for axis, count in enumerate(counts):
        if axis not in coordinates:
            axes.append(torch.arange(count, dtype=torch.float64))
            continue
        if patch is not None:
            _require_unpatched(axis, patch[axis])
        axes.append(_own_coordinates(axis, count, coordinates[axis]))
    return torch.cartesian_prod(*axes).reshape(-1, len(counts))


def _own_coordinates(axis: int, count: int, coordinates: Any) -> Float64[Tensor, "n"]:
    try:
        read = torch.as_tensor(coordinates, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"the coordinates of dimension {axis} cannot be read as numbers: {error}") from None
    if read.shape != (count,):
        raise ValueError(f"dimension {axis} has {count} steps but coordinates of shape {list(read.shape)}")
    if not read.isfinite().all():
        step = int((~read.isfinite()).nonzero()[0])
        raise ValueError(f"coordinates must be finite, and step {step} of dimension {axis} is at {read[step].item()}")
    return read


def _require_sizes(sizes: Sequence[int], name: str) -> None:
    if not hasattr(sizes, "__len__"):
        raise TypeError(f"{name} are one number for each dimension, such as (16, 16), not {sizes!r}")
    if len(sizes) == 0:
        raise ValueError(f"there are no {name}; a grid has at least one dimension")
    for axis, size in enumerate(sizes):
        if not isinstance(size, numbers.Integral) or size < 1:
            raise ValueError(f"{name} must be whole numbers of at least 1, and dimension {axis} has {size}")


def _require_unpatched(axis: int, patch: int) -> None:
    if patch != 1:
        raise ValueError(
            f"dimension {axis} has coordinates of its own, so its patch must be 1, not {patch}: the steps inside a "
            "patch share one position, and unevenly spaced steps would lose theirs"
        )


def _require_channels(channels: int | None, dims: int) -> None:
    if channels is not None and not -dims - 1 <= channels <= dims:
        raise ValueError(f"channels={channels} is outside a grid of {dims} dimensions and one for channels")


def _require_tensor(x: Any, name: str) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} is a tensor, not {type(x).__name__}; make one of an array: torch.as_tensor(x)")
    require_dense(x)


def _channels_last(x: Tensor, dims: int, channels: int | None) -> tuple[Tensor, int]:
    _require_tensor(x, "the grid")
    n_batch = x.ndim - dims - (channels is not None)
    if n_batch < 0:
        with_channels = "" if channels is None else " and a channel dimension"
        raise ValueError(f"a grid of shape {list(x.shape)} lacks dimensions for a patch of {dims}{with_channels}")
    if channels is None:
        return x.unsqueeze(-1), n_batch
    _require_channels(channels, dims)
    return x.movedim(n_batch + channels % (dims + 1), -1), n_batch


def _patch_order(n_batch: int, dims: int) -> list[int]:
    """From (batch, count, patch, count, patch, …, channel) to (batch, counts, patches, channel)."""
    counts = [n_batch + 2 * i for i in range(dims)]
    return [*range(n_batch), *counts, *(i + 1 for i in counts), n_batch + 2 * dims]


def _divisors_near(n: int, p: int) -> str:
    divisors = [k for k in range(1, n + 1) if n % k == 0]
    near = sorted(sorted(divisors, key=lambda k: abs(k - p))[:3])
    return " or ".join(str(k) for k in near)

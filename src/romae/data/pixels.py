"""Pixels: 8-bit images of one size as samples, made as they are asked for.

As samples of floats, a hundred thousand images take four times their memory, and more when they are scaled up. Here
they stay bytes: a batch is gathered, cut into patches, and turned into numbers last. `patches_of` and `values_of` do so
on any device, and `all_patches` puts every image there, of which a step then gathers its rows.

Shapes: r images, h height, w width, c channels, n tokens of an image, t tokens of all images at hand, k values of a
token.
"""

from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import cached_property
from operator import index as whole
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64, UInt8
from torch import Tensor
from torch.nn import functional as F

from romae.data.sources import Gather, Indices, Source
from romae.tokens.layout import Layout
from romae.tokens.patches import grid_counts, grid_positions, patchify
from romae.tokens.sample import Sample
from romae.tokens.tokens import Batch, PackedSamples

IMAGES_AT_ONCE = 1024  # images that are cut into patches together


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Pixels(Source):
    """Images with a class and an id each; values are (x - mean) / std with x from 0 to 1, for each channel.

    `size` scales images to a height and width, bilinearly, and rounds them to the 256 levels that they had before.
    """

    is_in_memory: ClassVar[bool] = True
    is_quick: ClassVar[bool] = True  # type: ignore[misc]

    images: UInt8[Tensor, "r h w c"]
    targets: Int64[Tensor, "r"]
    ids: tuple[Hashable, ...]
    patch: tuple[int, int]
    size: tuple[int, int] | None = None
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        if not len(self.images) == len(self.targets) == len(self.ids):
            raise ValueError(
                f"{len(self.images)} images, {len(self.targets)} targets and {len(self.ids)} ids: each image has one"
            )
        if not len(self.mean) == len(self.std) == self.images.shape[-1]:
            raise ValueError(f"mean and std must have a number for each of {self.images.shape[-1]} channels")
        grid_counts(self.shape, self.patch)

    def __repr__(self) -> str:
        height, width = self.shape
        return f"Pixels({len(self)} images of {height} x {width} pixels, {len(self.positions)} tokens each)"

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: Any) -> Any:
        """The sample at an index, or the pixels of a slice."""
        if isinstance(index, slice):
            return self.chosen(np.arange(len(self))[index])
        i = whole(index)
        values = self.values_of(self.patches_of(self.images[i].unsqueeze(0)))
        return Sample(values, self.positions, target=self.targets[i], id=self.ids[i])

    @property
    def shape(self) -> tuple[int, int]:
        """The height and width that are cut into patches."""
        return self.size or (self.images.shape[1], self.images.shape[2])

    @cached_property
    def positions(self) -> Float64[Tensor, "n 2"]:
        """The row and column of each patch, the same for all images."""
        return grid_positions(grid_counts(self.shape, self.patch))

    @property
    def schema(self) -> None:  # type: ignore[override]
        """Images have no columns to name."""

    @property
    def lengths(self) -> Int64[np.ndarray, "r"]:  # type: ignore[override]
        return np.full(len(self), len(self.positions))

    def chosen(self, indices: Int64[np.ndarray, "b"]) -> "Pixels":
        """The images at these indices."""
        rows = torch.from_numpy(indices)
        ids = tuple(self.ids[i] for i in indices)
        return replace(self, images=self.images[rows], targets=self.targets[rows], ids=ids)

    @property
    def n_value_bytes(self) -> int:
        """What `values_on` takes on a device."""
        return len(self) * len(self.positions) * self.patch[0] * self.patch[1] * len(self.mean)

    def values_on(self, device: torch.device) -> Gather:
        """All patches on a device as bytes, to be gathered there by the rows that batches bring `by_row`."""
        patches = self.all_patches(device)
        return lambda rows: self.values_of(patches.index_select(0, rows))

    def packed(self, indices: Indices, *, by_row: bool = False) -> PackedSamples:
        """The images at these indices; `by_row` names the rows of their patches in `all_patches`, without values."""
        images, n_tokens = torch.from_numpy(indices), len(self.positions)
        rows = (images.unsqueeze(1) * n_tokens + torch.arange(n_tokens)).flatten()
        values = torch.zeros(len(rows), 0) if by_row else self.values_of(self.patches_of(self.images[images]))
        return PackedSamples(
            values,
            self.positions.float().repeat(len(images), 1),
            Layout.of(torch.full((len(images),), n_tokens)),
            target=self.targets[images],
            ids=tuple(self.ids[i] for i in indices),
            rows=rows.int() if by_row else None,
        )

    def batch(self, indices: Indices, *, by_row: bool = False) -> Batch:
        return self.packed(indices, by_row=by_row).batch()

    def patches_of(self, images: UInt8[Tensor, "b h w c"]) -> UInt8[Tensor, "t k"]:
        """The patches of images end to end, on the device of the images."""
        if self.shape == images.shape[1:3]:
            return patchify(images, self.patch, channels=-1).flatten(0, 1)
        planes = images.movedim(-1, 1).float()
        is_shrunk = self.shape[0] < images.shape[1] or self.shape[1] < images.shape[2]  # else it would only take longer
        planes = F.interpolate(planes, size=self.shape, mode="bilinear", antialias=is_shrunk)
        return patchify(planes.round().clamp(0, 255).to(torch.uint8), self.patch, channels=0).flatten(0, 1)

    def values_of(self, patches: UInt8[Tensor, "t k"]) -> Float32[Tensor, "t k"]:
        """What a model sees of these patches, on their device, without waiting for it."""
        channels = (patches.unflatten(-1, (-1, len(self.mean))).float() / 255).unbind(-1)
        scaled = [(x - mean) / std for x, mean, std in zip(channels, self.mean, self.std, strict=True)]
        return torch.stack(scaled, dim=-1).flatten(-2)

    def all_patches(self, device: torch.device | str = "cpu") -> UInt8[Tensor, "t k"]:
        """The patches of every image, as bytes; those of one image lie together, in the order of the images."""
        n_tokens, n_values = len(self.positions), self.patch[0] * self.patch[1] * len(self.mean)
        patches = torch.empty(len(self) * n_tokens, n_values, dtype=torch.uint8, device=device)
        for start in range(0, len(self), IMAGES_AT_ONCE):
            part = self.images[start : start + IMAGES_AT_ONCE].to(device)
            patches[start * n_tokens : (start + len(part)) * n_tokens] = self.patches_of(part)
        return patches

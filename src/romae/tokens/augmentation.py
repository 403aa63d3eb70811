"""Augmentation: values changed at random while a model learns from them, on the device that they are on.

The fourteen operations of `RandAugment` do to 8-bit images what Pillow does, but to a whole batch at once: one gather
moves the pixels of all images, one blend changes their light and colour, one table per image and channel maps their
levels, and each image is touched by its own operation alone. Nothing asks the device for a number, and shapes follow
from those of the batch.

Shapes: t tokens, k values of a token, b images, c channels, h height, w width.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Float32, Int64, UInt8
from torch import Tensor

from romae.config import check_types
from romae.tokens.patches import grid_counts, patchify, unpatchify

OPERATIONS = (
    "identity",
    "shear-x",
    "shear-y",
    "translate-x",
    "translate-y",
    "rotate",
    "brightness",
    "colour",
    "contrast",
    "sharpness",
    "posterise",
    "solarise",
    "autocontrast",
    "equalise",
)
STRONGEST = 30  # magnitudes are 0 to 30
# What the strongest magnitude does: a slope, a share of the image's side, degrees, a share of the light, bits.
SHEAR, SHIFT, TURN, LIGHT, BITS = 0.3, 150 / 331, 30.0, 0.9, 4
GREY = (19595 / 65536, 38470 / 65536, 7471 / 65536)  # red, green and blue in grey, as Pillow has them

Images = UInt8[Tensor, "b c h w"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RandAugment:
    """RandAugment for batches of images that come as patches: random operations of a fixed strength.

    Every image goes through `n` operations of its own, each drawn with equal probability from fourteen: identity, shear
    and translation in x and y, rotation, brightness, colour, contrast, sharpness, posterise, solarise, autocontrast,
    equalise. Operations that have a direction take either with equal probability.

    Parameters
    ----------
    n : int, default 2
        Operations per image, at least 1.
    magnitude : int, default 9
        Their strength, from 0 to 30.
    size : tuple of int
        Height and width of the images in pixels, at least 3 x 3.
    patch : tuple of int
        Height and width of a patch, as in `from_image`.
    mean : tuple of float, default (0.0,)
        The mean that was subtracted from pixel values between 0 and 1: one number for all channels, or one for each.
    std : tuple of float, default (1.0,)
        The standard deviation that they were divided by, likewise.
    kind : "rand-augment"
        The name of this augmentation in a configuration file.

    Raises
    ------
    ValueError
        If the patch does not divide the size, or a number lies outside its range.
    TypeError
        If a setting is of another type.

    Notes
    -----
    Operations work on whole levels from 0 to 255, as they do in Pillow, and on all images of a batch at once, on its
    device. It is for whole images: `Classification` refuses it together with `drop_tokens`.

    Examples
    --------
    >>> import torch
    >>> import romae
    >>> augment = romae.RandAugment(size=(8, 8), patch=(4, 4))
    >>> values = torch.rand(3 * 4, 16)  # three grey images of four patches
    >>> augment(values, torch.Generator().manual_seed(0)).shape
    torch.Size([12, 16])
    """

    n: int = 2
    magnitude: int = 9
    size: tuple[int, int]
    patch: tuple[int, int]
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    kind: Literal["rand-augment"] = "rand-augment"

    def __post_init__(self) -> None:
        check_types(self)
        grid_counts(self.size, self.patch)
        if self.n < 1:
            raise ValueError(
                f"n is the number of operations, at least 1, not {self.n}; to change nothing, do not augment"
            )
        if not 0 <= self.magnitude <= STRONGEST:
            raise ValueError(f"magnitude must lie between 0 and {STRONGEST}, not {self.magnitude}")
        if min(self.size) < 3:
            raise ValueError(f"images must have at least 3 x 3 pixels, not {self.size[0]} x {self.size[1]}")
        if not self.mean or not self.std or not min(self.std) > 0 or not all(map(math.isfinite, self.mean + self.std)):
            raise ValueError(f"mean and std are numbers, and std is above 0, not {self.mean} and {self.std}")

    @property
    def n_tokens(self) -> int:
        """Tokens per image."""
        return math.prod(grid_counts(self.size, self.patch))

    def __call__(self, values: Float[Tensor, "t k"], generator: torch.Generator | None = None) -> Float[Tensor, "t k"]:
        """Augment the images of a batch.

        Parameters
        ----------
        values : Tensor [t, k]
            The patches of whole images, end to end.
        generator : torch.Generator, optional
            The source of random numbers, on the device of the values.

        Returns
        -------
        Tensor [t, k]
            The patches of the augmented images.

        Raises
        ------
        ValueError
            If the values are no whole images of this size and patch.
        """
        counts = grid_counts(self.size, self.patch)
        self._require_images(values)
        tokens = values.unflatten(0, (-1, self.n_tokens))
        operations, signs = self.drawn(len(tokens), generator, values.device)
        grid = unpatchify(tokens.float(), self.patch, counts, channels=0)
        mean, std = (_per_channel(statistic, grid) for statistic in (self.mean, self.std))
        images = ((grid * std + mean) * 255).round().clamp(0, 255).to(torch.uint8)
        for operation, sign in zip(operations, signs, strict=True):
            images = changed(images, operation, sign, self.magnitude)
        new = patchify((images.float() / 255 - mean) / std, self.patch, channels=0).to(values.dtype)
        is_same = (operations == 0).all(0).reshape(-1, 1, 1)  # not even rounded
        return torch.where(is_same, tokens, new).flatten(0, 1)

    def drawn(
        self, n_images: int, generator: torch.Generator | None, device: torch.device | str
    ) -> tuple[Int64[Tensor, "n b"], Float32[Tensor, "n b"]]:
        """Draw the operations of each image.

        Parameters
        ----------
        n_images : int
            How many images there are.
        generator : torch.Generator or None
            The source of random numbers, on the device.
        device : torch.device or str
            Where to draw.

        Returns
        -------
        tuple of Tensor [n, b]
            The indices of the operations, and their directions, 1 or -1.
        """
        shape = (self.n, n_images)
        operations = torch.randint(len(OPERATIONS), shape, generator=generator, device=device)
        return operations, 1.0 - 2.0 * torch.randint(2, shape, generator=generator, device=device)

    def _require_images(self, values: Tensor) -> None:
        n_values = math.prod(self.patch)
        if values.shape[1] not in (n_values, 3 * n_values):
            raise ValueError(
                f"patches of {self.patch[0]} x {self.patch[1]} pixels in grey or colour have {n_values} or "
                f"{3 * n_values} values, but the tokens have {values.shape[1]}; give the patch that they were cut by"
            )
        if len(values) % self.n_tokens:
            raise ValueError(
                f"images of {self.size[0]} x {self.size[1]} pixels have {self.n_tokens} tokens each, which do not "
                f"divide the {len(values)} of this batch; give the size that was cut into patches"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Gaussian noise on the values of every token, as augmentation in training.

    Each token draws its own standard deviation, uniformly between 0 and `scale`, so that some tokens stay almost clean.

    Parameters
    ----------
    scale : float
        The largest standard deviation of the noise, above 0, in units of the values as the model sees them (scaled).
    kind : "noise"
        The name of this augmentation in a configuration file.

    Raises
    ------
    ValueError
        If `scale` is not a positive, finite number.
    TypeError
        If `scale` is no number.

    Examples
    --------
    >>> import torch
    >>> import romae
    >>> noisy = romae.Noise(scale=0.1)(torch.zeros(1000, 1), torch.Generator().manual_seed(0))
    >>> bool(noisy.std() < 0.1)
    True
    """

    scale: float
    kind: Literal["noise"] = "noise"

    def __post_init__(self) -> None:
        check_types(self)
        if not 0 < self.scale < math.inf:
            raise ValueError(f"scale is the largest standard deviation of the noise, above 0, not {self.scale}")

    def __call__(self, values: Float[Tensor, "t k"], generator: torch.Generator | None = None) -> Float[Tensor, "t k"]:
        """Add noise to the values of a batch.

        Parameters
        ----------
        values : Tensor [t, k]
            The values of all tokens.
        generator : torch.Generator, optional
            The source of random numbers, on the device of the values.

        Returns
        -------
        Tensor [t, k]
            The values with noise.
        """
        strength = self.scale * torch.rand(len(values), 1, generator=generator, device=values.device)
        noise = strength * torch.randn(values.shape, generator=generator, device=values.device)
        return values + noise.to(values.dtype)


Augmentation = RandAugment | Noise


def changed(images: Images, operation: Int64[Tensor, "b"], sign: Float32[Tensor, "b"], magnitude: int) -> Images:
    """Each image after its own operation, in its own direction."""
    share = magnitude / STRONGEST
    images = _moved(images, operation, sign, share)
    images = _blended(images, operation, 1 + LIGHT * share * sign)
    return _mapped(images, operation, share)


def _is_operation(operation: Int64[Tensor, "b"], name: str) -> Bool[Tensor, "b 1 1"]:
    return (operation == OPERATIONS.index(name)).reshape(-1, 1, 1)


def _moved(images: Images, operation: Int64[Tensor, "b"], sign: Float32[Tensor, "b"], share: float) -> Images:
    """Shear, translation and rotation: each pixel is the one that its centre comes from, and black if there is none."""
    height, width = images.shape[-2:]

    def only(name: str) -> Float32[Tensor, "b 1 1"]:
        return torch.where(_is_operation(operation, name), sign.reshape(-1, 1, 1), 0.0)

    x = torch.arange(width, device=images.device) + 0.5
    y = (torch.arange(height, device=images.device) + 0.5).unsqueeze(1)
    angle = only("rotate") * math.radians(TURN * share)
    cos, sin, right, down = angle.cos(), angle.sin(), x - width / 2, y - height / 2
    from_x = width / 2 + cos * right - sin * down + only("shear-x") * (SHEAR * share) * y
    from_y = height / 2 + sin * right + cos * down + only("shear-y") * (SHEAR * share) * x
    from_x = from_x - only("translate-x") * int(SHIFT * share * width)
    from_y = from_y - only("translate-y") * int(SHIFT * share * height)
    is_inside = (from_x >= 0) & (from_x < width) & (from_y >= 0) & (from_y < height)
    index = from_y.clamp(0, height - 1).long() * width + from_x.clamp(0, width - 1).long()
    index = index.flatten(1).unsqueeze(1).expand(-1, images.shape[1], -1)
    return images.flatten(2).gather(2, index).reshape(images.shape) * is_inside.unsqueeze(1)


def _blended(images: Images, operation: Int64[Tensor, "b"], factor: Float32[Tensor, "b"]) -> Images:
    """Brightness, colour, contrast and sharpness: away from or towards black, grey, the mean grey, a smooth image."""
    x = images.float()
    grey = x if x.shape[1] == 1 else ((x * _per_channel(GREY, x)).sum(1, keepdim=True) + 0.5).floor()
    mean_grey = (grey.mean((2, 3), keepdim=True) + 0.5).floor()
    other = x
    for name, plain in (("brightness", 0.0), ("colour", grey), ("contrast", mean_grey), ("sharpness", _smooth(x))):
        other = torch.where(_is_operation(operation, name).unsqueeze(1), plain, other)
    return (other + factor.reshape(-1, 1, 1, 1) * (x - other)).clamp(0, 255).to(torch.uint8)


def _smooth(x: Float32[Tensor, "b c h w"]) -> Float32[Tensor, "b c h w"]:
    """The mean of a pixel and its neighbours, in which it counts five times; the border stays."""
    columns = x[..., :-2, :] + x[..., 1:-1, :] + x[..., 2:, :]
    total = columns[..., :-2] + columns[..., 1:-1] + columns[..., 2:] + 4 * x[..., 1:-1, 1:-1]
    smooth = x.clone()
    smooth[..., 1:-1, 1:-1] = (total / 13 + 0.5).floor()
    return smooth


def _mapped(images: Images, operation: Int64[Tensor, "b"], share: float) -> Images:
    """Operations that map levels to levels: fewer of them, the bright ones inverted, all stretched or equalised."""
    pixels = images.flatten(2).long()
    level = torch.arange(256, device=images.device).reshape(1, 1, -1)
    counts = pixels.new_zeros(*pixels.shape[:2], 256)
    counts.scatter_add_(2, pixels, counts.new_ones(()).expand_as(pixels))
    lowest = torch.where(counts > 0, level, 255).amin(2, keepdim=True)
    highest = torch.where(counts > 0, level, 0).amax(2, keepdim=True)
    coarse = 1 << round(BITS * share)
    tables = {
        "posterise": level // coarse * coarse,
        "solarise": torch.where(level < 255 * (1 - share), level, 255 - level),
        "autocontrast": torch.where(highest > lowest, (level - lowest) * 255 // (highest - lowest).clamp(min=1), level),
        "equalise": _equalised(counts, counts.gather(2, highest), level),
    }
    table = level.expand_as(counts)
    for name, mapped in tables.items():
        table = torch.where(_is_operation(operation, name), mapped, table)
    return table.clamp(0, 255).to(torch.uint8).gather(2, pixels).reshape(images.shape)


def _equalised(
    counts: Int64[Tensor, "b c 256"], n_brightest: Int64[Tensor, "b c 1"], level: Int64[Tensor, "1 1 256"]
) -> Int64[Tensor, "b c 256"]:
    """The table that makes all levels equally frequent; a channel of too few pixels or of one level stays."""
    step = (counts.sum(2, keepdim=True) - n_brightest) // 255
    below = counts.cumsum(2) - counts
    return torch.where(step > 0, (step // 2 + below) // step.clamp(min=1), level)


def _per_channel(numbers: Sequence[float], like: Float32[Tensor, "b c h w"]) -> Float32[Tensor, "_ 1 1"]:
    """A number for each channel, or one for all, made on the device: a copy to it would make the host wait."""
    if len(numbers) not in (1, like.shape[1]):
        raise ValueError(f"{len(numbers)} numbers for {like.shape[1]} channels; give one for all, or one for each")
    return torch.stack([like.new_full((1, 1), number) for number in numbers])

"""Images, folders of images, stacks of images at irregular times, and video.

Every size is taken as it is: a larger image simply has more tokens. Whatever comes in becomes a grid with the
channels last, whole numbers are brought to the range 0 to 1, and each patch of the grid becomes one token at the
index of its row and column. Shapes: h height, w width, c channels, n tokens, k values of a token.
"""

import os
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64, UInt8
from torch import Tensor

from romae.data.columns import to_numpy
from romae.data.folder import Folder
from romae.extras import require_extra
from romae.tokens.patches import grid_counts, grid_positions, patchify, unpatchify
from romae.tokens.sample import Sample

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".pgm", ".ppm")

AXES = ("time", "height", "width")
WHITE = {torch.bool: 1, torch.uint8: 255, torch.uint16: 65535}

Mode = Literal["L", "RGB"]
Fit = Literal["crop", "resize"]
Statistic = float | Sequence[float]


def from_image(
    image: Any,
    patch: Sequence[int],
    *,
    channels: int | None = None,
    mode: Mode | None = None,
    size: tuple[int, int] | None = None,
    fit: Fit | None = None,
    mean: Statistic = 0.0,
    std: Statistic = 1.0,
    target: Any = None,
    id: Hashable = None,
) -> Sample:
    """A sample from one image: a path, a pillow image, an array or a tensor.

    `channels` says which dimension of an array holds the channels (0 or -1; None for a grey image [h, w]), `mode`
    converts a file to grey ("L") or colour ("RGB"). Files and pillow images are turned upright as their EXIF
    orientation says. `size` scales the image to a height and width. If the patch does not divide the size, `fit` cuts
    the border off ("crop") or scales to the nearest multiple ("resize"). Values are (x - mean) / std, with x from 0
    to 1 for images of whole numbers.
    """
    if id is None and isinstance(image, str | os.PathLike):
        id = str(image)
    grid = read_image(image, mode=mode, channels=channels)
    return _as_sample(grid, patch, size=size, fit=fit, mean=mean, std=std, target=target, id=id)


def from_image_folder(
    folder: str | Path,
    patch: Sequence[int],
    *,
    has_classes: bool = False,
    classes: Sequence[str] | None = None,
    mode: Mode | None = None,
    size: tuple[int, int] | None = None,
    fit: Fit | None = None,
    mean: Statistic = 0.0,
    std: Statistic = 1.0,
) -> Folder:
    """The images in a folder and all folders in it, as a sequence that reads each one when it is asked for.

    With `has_classes` each folder directly inside is a class, also an empty one. Classes are sorted by name; for test
    data hand over those of training, `classes=train.class_names`. See `from_image` for the other arguments.
    """
    read = partial(from_image, patch=patch, mode=mode, size=size, fit=fit, mean=mean, std=std)
    return Folder.of(folder, SUFFIXES, read, has_classes=has_classes, classes=classes)


def from_stack(
    images: Any,
    times: Any,
    patch: Sequence[int],
    *,
    channels: int | None = None,
    mode: Mode | None = None,
    size: tuple[int, int] | None = None,
    fit: Fit | None = None,
    mean: Statistic = 0.0,
    std: Statistic = 1.0,
    target: Any = None,
    id: Hashable = None,
) -> Sample:
    """A sample from images of one scene at irregular times, with positions (time, row, column).

    `images` is a list of what `from_image` takes, or one array of them; `times` has one number for each
    (turn dates into days or seconds first); `channels` is counted within one image. The patch is (1, height, width),
    since images at irregular times do not share a position.
    """
    grid = _read_frames(images, mode=mode, channels=channels)
    coordinates = {0: _read_times(times, len(grid))}
    return _as_sample(grid, patch, coordinates, size=size, fit=fit, mean=mean, std=std, target=target, id=id)


def from_video(
    video: Any,
    patch: Sequence[int],
    *,
    channels: int | None = None,
    mode: Mode | None = None,
    size: tuple[int, int] | None = None,
    fit: Fit | None = None,
    mean: Statistic = 0.0,
    std: Statistic = 1.0,
    target: Any = None,
    id: Hashable = None,
) -> Sample:
    """A sample from evenly spaced frames, with the patch (time, height, width) and positions in patches.

    `video` is a list of what `from_image` takes, one array of such frames, or the path of an animated image (GIF,
    PNG, WebP). Other video files need a decoder, whose frames can be handed over as an array.
    """
    if isinstance(video, str | os.PathLike):
        id = str(video) if id is None else id
        video = _animation_frames(Path(video), mode)
    grid = _read_frames(video, mode=mode, channels=channels)
    return _as_sample(grid, patch, size=size, fit=fit, mean=mean, std=std, target=target, id=id)


def to_image(
    values: Float[Tensor, "n k"] | Float[np.ndarray, "n k"],
    patch: Sequence[int],
    size: Sequence[int],
    *,
    channels: int | None = -1,
    mean: Statistic = 0.0,
    std: Statistic = 1.0,
    as_uint8: bool = False,
) -> Float32[Tensor, "..."] | UInt8[Tensor, "..."]:
    """The image that tokens make up: the inverse of `from_image`, `from_stack` and `from_video`.

    `size` is (height, width) or (time, height, width), the size that was cut into patches. The channels go to
    dimension `channels` of each image, or nowhere for a grey image if that is None. With `as_uint8` the values are
    brought from 0 to 1 to whole numbers from 0 to 255, and what lies outside is clipped.
    """
    if channels is not None and channels not in range(-3, 3):
        raise ValueError(f"channels={channels} is no dimension of an image; use -1 for [h, w, c] or 0 for [c, h, w]")
    n_axes = 3 if _length(size) == 3 else 2
    _require_sizes("size", size, n_axes)
    _require_sizes("patch", patch, n_axes)
    grid = unpatchify(_as_tensor(values), patch, grid_counts(size, patch), channels=-1)
    centre, spread = _statistics(mean, std, grid.shape[-1])
    grid = grid * spread + centre
    if as_uint8:
        grid = (grid * 255).round().clamp(0, 255).to(torch.uint8)
    if channels is not None:
        return grid.movedim(-1, len(size) - 2 + channels % 3)
    if grid.shape[-1] != 1:
        raise ValueError(f"the tokens hold {grid.shape[-1]} channels; say which dimension they go to with channels=")
    return grid.squeeze(-1)


def read_image(image: Any, *, mode: Mode | None = None, channels: int | None = None) -> Float32[Tensor, "h w c"]:
    """An image of any kind as numbers with the channels last; see `from_image` for the arguments."""
    if isinstance(image, np.ndarray | Tensor):
        if mode is not None:
            raise ValueError(f"mode={mode!r} converts files and pillow images; an array has the channels that it has")
        return _from_array(image, channels)
    if isinstance(image, str | os.PathLike):
        with open_image(image) as opened:
            return _from_pillow(opened, mode, f"the image {image}")
    if hasattr(image, "getbands"):  # only pillow's images have it, and pillow need not be installed for arrays
        return _from_pillow(image, mode, "the image")
    raise TypeError(f"an image is a path, a pillow image, an array or a tensor, not {type(image).__name__}")


def open_image(path: str | os.PathLike) -> "Image":
    """The pillow image in a file that holds no more than one; pillow reads its pixels when they are asked for."""
    pillow = _pillow()
    with _decoding(f"the image {path}"):
        image = pillow.open(path)
        n_pages = image.n_frames if image.format == "TIFF" else 1
    if n_pages > 1:
        image.close()
        raise ValueError(f"the image {path} has {n_pages} pages; hand over one, or a list of all to from_stack")
    return image


def _as_sample(
    grid: Float32[Tensor, "*grid c"],
    patch: Sequence[int],
    coordinates: Mapping[int, Any] | None = None,
    *,
    size: tuple[int, int] | None,
    fit: Fit | None,
    mean: Statistic,
    std: Statistic,
    target: Any,
    id: Hashable,
) -> Sample:
    _require_sizes("patch", patch, grid.ndim - 1)
    if size is not None:
        _require_sizes("size", size, 2)
        grid = _resized(grid, size)
    if fit is not None:
        grid = _fitted(grid, patch, fit)
    centre, spread = _statistics(mean, std, grid.shape[-1])
    counts = grid_counts(grid.shape[:-1], patch)
    values = patchify((grid - centre) / spread, patch, channels=-1, irregular=tuple(coordinates or ()))
    return Sample(values, grid_positions(counts, coordinates, patch=patch), target=target, id=id)


def _fitted(grid: Float32[Tensor, "*grid c"], patch: Sequence[int], fit: Fit) -> Float32[Tensor, "*fitted c"]:
    """The grid at a size that the patch divides. Time is cut at its end, and never scaled."""
    if fit == "resize":
        height, width = (max(1, round(n / p)) * p for n, p in zip(grid.shape[-3:-1], patch[-2:], strict=True))
        return _resized(grid, (height, width))
    if fit != "crop":
        raise ValueError(f"fit must be 'crop' or 'resize', not {fit!r}")
    for axis, p in enumerate(patch):
        left = grid.shape[axis] % p if grid.shape[axis] >= p else 0
        start = left // 2 if axis >= grid.ndim - 3 else 0
        grid = grid.narrow(axis, start, grid.shape[axis] - left)
    return grid


def _resized(grid: Float32[Tensor, "*grid c"], size: tuple[int, int]) -> Float32[Tensor, "*resized c"]:
    planes = grid.movedim(-1, 0)
    flat = planes.reshape(1, -1, *planes.shape[-2:])
    flat = torch.nn.functional.interpolate(flat, size=tuple(size), mode="bilinear", antialias=True)
    return flat.reshape(*planes.shape[:-2], *size).movedim(0, -1)


def _require_sizes(name: str, sizes: Any, n_axes: int) -> None:
    if _length(sizes) != n_axes or not all(isinstance(n, int | np.integer) and n >= 1 for n in sizes):
        axes = ", ".join(AXES[-n_axes:])
        raise ValueError(f"the {name} must be ({axes}), whole numbers of at least 1, not {sizes}")


def _length(sizes: Any) -> int | None:
    return len(sizes) if hasattr(sizes, "__len__") else None


def _as_tensor(values: Any) -> Float32[Tensor, "..."]:
    if isinstance(values, Tensor):
        return values.detach().float().cpu()
    if isinstance(values, np.ndarray) and values.dtype.kind in "buif":
        _require_unmasked(values, "the array of values")
        return torch.tensor(np.ascontiguousarray(values, dtype=np.float32))
    raise TypeError(f"the values of tokens are numbers in an array or a tensor, not {type(values).__name__}")


def _statistics(mean: Statistic, std: Statistic, n_channels: int) -> tuple[Float32[Tensor, "k"], Float32[Tensor, "k"]]:
    """The mean and the standard deviation of each channel, or one of both for all."""
    pair = []
    for name, given in (("mean", mean), ("std", std)):
        x = torch.as_tensor(given, dtype=torch.float32).reshape(-1)
        if len(x) not in (1, n_channels):
            raise ValueError(f"{name} has {len(x)} numbers for {n_channels} channels; give one, or one for each")
        if not x.isfinite().all() or (name == "std" and not (x > 0).all()):
            raise ValueError(f"{name} must be finite{' and above 0' if name == 'std' else ''}, not {given}")
        pair.append(x)
    return pair[0], pair[1]


def _read_times(times: Any, n_images: int) -> Float64[Tensor, "t"]:
    try:
        given = to_numpy(times)
    except (TypeError, ValueError) as error:
        raise TypeError(f"times must be a list of numbers: {error}") from None
    if given.dtype.kind not in "buif":
        raise TypeError(f"times must be numbers, not {given.dtype}; turn dates into days or seconds first")
    read = torch.from_numpy(given.astype(np.float64, order="C"))
    if read.shape != (n_images,):
        raise ValueError(f"{n_images} images need as many times, not times of shape {list(read.shape)}")
    if not read.isfinite().all():
        raise ValueError(f"times must be finite, and image {int((~read.isfinite()).nonzero()[0])} has none")
    return read


def _read_frames(images: Any, *, mode: Mode | None, channels: int | None) -> Float32[Tensor, "t h w c"]:
    if isinstance(images, str | bytes | os.PathLike) or not isinstance(images, Iterable):
        raise TypeError(f"images are handed over as a list, or as one array of them, not as {type(images).__name__}")
    if isinstance(images, np.ndarray | Tensor) and images.ndim < 3:
        raise ValueError(f"an array of images has at least 3 dimensions, not the shape {list(images.shape)}")
    frames: list[Tensor] = []
    for i, image in enumerate(images):
        try:
            frames.append(read_image(image, mode=mode, channels=channels))
        except (TypeError, ValueError) as error:
            raise type(error)(f"image {i}: {error}") from None
        if frames[i].shape != frames[0].shape:
            raise ValueError(
                f"images of one sample must agree in size and channels: image 0 has {list(frames[0].shape)}, "
                f"image {i} has {list(frames[i].shape)}"
            )
    if not frames:
        raise ValueError("there is no image in the list")
    return torch.stack(frames)


def _from_array(image: np.ndarray | Tensor, channels: int | None) -> Float32[Tensor, "h w c"]:
    shape = list(image.shape)
    if channels is None and len(shape) != 2:
        raise ValueError(
            f"an array of shape {shape} is not a grey image [h, w]; for colours say where the channels are, "
            "channels=-1 for [h, w, 3] or channels=0 for [3, h, w]"
        )
    if channels is not None and (len(shape) != 3 or channels not in range(-3, 3)):
        raise ValueError(f"an array of shape {shape} is not an image with its channels in dimension {channels}")
    if 0 in shape:
        raise ValueError(f"an image of shape {shape} has no pixels")
    if isinstance(image, np.ndarray):
        if image.dtype.kind not in "buif":
            raise TypeError(f"an image must hold numbers, not {image.dtype}")
        _require_unmasked(image, "the image")
        image = torch.tensor(np.ascontiguousarray(to_numpy(image)))
    if image.dtype in WHITE:
        image = image.float() / WHITE[image.dtype]
    elif not image.is_floating_point():
        raise TypeError(
            f"the range of an image of {str(image.dtype).removeprefix('torch.')} is not known; divide it by its "
            "largest possible value, or use uint8 (0 to 255) or uint16 (0 to 65535)"
        )
    image = image.detach().float().cpu()
    return image.unsqueeze(-1) if channels is None else image.movedim(channels, -1)


def _require_unmasked(x: np.ndarray, what: str) -> None:
    if np.ma.is_masked(x):
        raise ValueError(
            f"{what} is masked in part, and a patch has no place for missing pixels; fill them first, for example with "
            "image.filled(0), or cut them off"
        )


def _from_pillow(image: "Image", mode: Mode | None, name: str) -> Float32[Tensor, "h w c"]:
    from PIL import ImageOps

    _require_depth(image, mode, name)
    is_wide = _is_wide(image)
    if mode is None and not is_wide and image.mode not in ("L", "RGB"):
        raise ValueError(f"{name} has the pillow mode {image.mode!r}; say mode='RGB' or mode='L' to convert it")
    with _decoding(name):
        image = ImageOps.exif_transpose(image)
        if mode is not None and not is_wide:
            image = image.convert(mode)
        array = np.asarray(image)
    return _from_array(array, None if array.ndim == 2 else -1)


def _require_depth(image: "Image", mode: Mode | None, name: str) -> None:
    is_wide = _is_wide(image)
    if is_wide and mode == "RGB" or image.mode == "I" or (not is_wide and _has_wide_colours(image)):
        raise ValueError(
            f"{name} holds values of more than 8 bits (pillow mode {image.mode!r}), which pillow would clip; "
            "hand it over as an array"
        )


def _is_wide(image: "Image") -> bool:
    return image.mode == "F" or image.mode.startswith("I")


def _has_wide_colours(image: "Image") -> bool:
    """Whether each colour has more than 8 bits in the file, which pillow no longer knows once it has read them."""
    for tile in getattr(image, "tile", ()):
        layout = tile[3]  # such as "RGB;16B", or ("RGB", 65535) with the largest number of a PPM file
        if any(depth in str(layout) for depth in (";16B", ";16L", ";16N")):
            return True
        if image.format == "PPM" and isinstance(layout, tuple) and layout[-1] > 255:
            return True
    return False


def _animation_frames(path: Path, mode: Mode | None) -> list[Any]:
    pillow = _pillow()
    from PIL import ImageSequence

    name = f"the image {path}"
    with _decoding(name):
        opened = pillow.open(path)
    with opened:
        _require_depth(opened, mode, name)
        with _decoding(name):
            return ImageSequence.all_frames(opened)


@contextmanager
def _decoding(name: str) -> Iterator[None]:
    """Whatever a decoder stumbles over becomes one sentence with the name of the image."""
    try:
        yield
    except Exception as error:  # decoders raise what they like: OSError, SyntaxError, EOFError, struct.error, …
        raise ValueError(f"cannot read {name}: {getattr(error, 'strerror', None) or error}") from None


def _pillow() -> Any:
    require_extra("images", "reading images needs")
    from PIL import Image

    return Image

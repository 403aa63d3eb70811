"""Images, folders of images, stacks of images at irregular times, and video.

Every size is taken as it is: a larger image simply has more tokens. Whatever comes in becomes a grid with the
channels last, whole numbers are brought to the range 0 to 1, and each patch of the grid becomes one token at the
index of its row and column. Shapes: h height, w width, c channels, n tokens, k values of a token.
"""

import math
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
ORIENTATION, LYING = 0x0112, (5, 6, 7, 8)  # EXIF: which way up an image is, and the ways that swap height and width
MOST_PIXELS = 1 << 27  # that an image is scaled to: half a gibibyte for each channel
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
    """A sample from one image of any size, cut into patches.

    Parameters
    ----------
    image : str, Path, Pillow image, array or tensor
        The image. Files and Pillow images are turned upright as their EXIF orientation says.
    patch : sequence of int
        Height and width of a patch in pixels; each patch is one token.
    channels : int, optional
        The dimension of an array that holds the channels: 0 for [c, h, w], -1 for [h, w, c]; None for grey images
        [h, w]. Files and Pillow images bring their own.
    mode : "L", "RGB" or None, default None
        Convert a file or Pillow image to grey or colour.
    size : tuple of int, optional
        Scale to this height and width in pixels first.
    fit : "crop", "resize" or None, default None
        What to do where the patch does not divide the size: cut the border off, or scale to the nearest multiple.
        Without it, such images are refused.
    mean : float or sequence of float, default 0.0
        Subtracted from pixel values, which are from 0 to 1 for images of whole numbers; one number, or one per channel.
    std : float or sequence of float, default 1.0
        What they are divided by, likewise.
    target : int, float or array, optional
        A class index or numbers to predict.
    id : hashable, optional
        A name for the sample; by default the path of a file.

    Returns
    -------
    Sample
        One token per patch, at the row and column of the patch, with all its pixels as values.

    Raises
    ------
    ValueError
        If the image cannot be read, or the patch does not divide its size and `fit` is None.
    TypeError
        If it is no image.
    ImportError
        If a file is to be read and Pillow is not installed: pip install 'romae[images]'.

    See Also
    --------
    to_image : the inverse.

    Examples
    --------
    >>> import numpy as np
    >>> import romae
    >>> sample = romae.from_image(np.zeros((32, 48, 3), dtype=np.uint8), (16, 16), channels=-1)
    >>> sample.values.shape, sample.positions[-1].tolist()
    (torch.Size([6, 768]), [1.0, 2.0])
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
    """The images of a folder and all folders in it, as samples that are read when they are asked for.

    Parameters
    ----------
    folder : str or Path
        The folder.
    patch : sequence of int
        Height and width of a patch in pixels.
    has_classes : bool, default False
        Whether each folder directly inside is a class, as in ImageNet; also an empty one.
    classes : sequence of str, optional
        The names of the classes in their order; by default sorted. For test data hand over those of training:
        `classes=train.class_names`.
    mode : "L", "RGB" or None, default None
        Convert all images to grey or colour.
    size : tuple of int, optional
        Scale to this height and width in pixels first.
    fit : "crop", "resize" or None, default None
        What to do where the patch does not divide the size: cut the border off, or scale to the nearest multiple.
        Without it, such images are refused.
    mean : float or sequence of float, default 0.0
        Subtracted from pixel values, which are from 0 to 1 for images of whole numbers; one number, or one per channel.
    std : float or sequence of float, default 1.0
        What they are divided by, likewise.

    Returns
    -------
    Folder
        A sequence of samples in the order of their paths, which are their ids; `class_names` are its classes.

    Raises
    ------
    ValueError
        If there is no such folder, no image in it, or a class that is not among `classes`. An image that cannot be read
        is named when it is asked for.

    Examples
    --------
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from PIL import Image
    >>> import romae
    >>> for name in ("cat", "dog"):
    ...     Path("pets", name).mkdir(parents=True)
    ...     Image.fromarray(np.zeros((8, 8), dtype=np.uint8)).save(Path("pets", name, "1.png"))
    >>> images = romae.from_image_folder("pets", (4, 4), has_classes=True)
    >>> len(images), images.class_names, images[1]
    (2, ('cat', 'dog'), Sample('dog/1.png': 4 tokens, 16 channels, 2 position dims, target 1))
    """
    read = partial(from_image, patch=patch, mode=mode, size=size, fit=fit, mean=mean, std=std)
    measure = partial(image_length, patch=tuple(patch), size=size, fit=fit)
    return Folder.of(folder, SUFFIXES, read, has_classes=has_classes, classes=classes, measure=measure)


def image_length(
    path: Path, *, patch: Sequence[int], size: tuple[int, int] | None = None, fit: Fit | None = None
) -> int:
    """The tokens that `from_image` makes of a file, from its header alone; none is opened where all have one size."""
    _require_sizes("patch", patch, 2)
    if size is None:
        with open_image(path) as image, _decoding(f"the image {path}"):
            width, height = image.size
            is_lying = image.getexif().get(ORIENTATION) in LYING
        size = (width, height) if is_lying else (height, width)
    if fit is not None:
        size = _fitted_size(size, patch, fit)
    try:
        return math.prod(grid_counts(size, patch))
    except ValueError as error:
        raise ValueError(f"the image {path}: {error}") from None


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
    """A sample from images of one scene at irregular times, such as satellite passes.

    Parameters
    ----------
    images : list of images, or array
        The images, as `from_image` takes them, all of one size.
    times : sequence of float
        The time of each image. Turn dates into days or seconds first.
    patch : sequence of int
        (1, height, width): images at irregular times do not share a position.
    channels : int, optional
        The dimension of an array that holds the channels, counted within one image: 0 for [c, h, w], -1 for [h, w, c];
        None for grey images [h, w]. Files and Pillow images bring their own.
    mode : "L", "RGB" or None, default None
        Convert a file or Pillow image to grey or colour.
    size : tuple of int, optional
        Scale to this height and width in pixels first.
    fit : "crop", "resize" or None, default None
        What to do where the patch does not divide the size: cut the border off, or scale to the nearest multiple.
        Without it, such images are refused.
    mean : float or sequence of float, default 0.0
        Subtracted from pixel values, which are from 0 to 1 for images of whole numbers; one number, or one per channel.
    std : float or sequence of float, default 1.0
        What they are divided by, likewise.
    target : int, float or array, optional
        A class index or numbers to predict.
    id : hashable, optional
        A name for the sample; none by default.

    Returns
    -------
    Sample
        One token per patch and time, at the positions (time, row, column).

    Raises
    ------
    ValueError
        If images differ in size, times do not fit, or the patch does not divide the images.
    TypeError
        If something is no image, or times are no numbers.

    Examples
    --------
    >>> import numpy as np
    >>> import romae
    >>> stack = romae.from_stack(np.zeros((3, 8, 8)), times=[0.0, 2.5, 10.0], patch=(1, 4, 4))
    >>> len(stack), stack.positions[-1].tolist()
    (12, [10.0, 1.0, 1.0])
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
    """A sample from a video: evenly spaced frames, cut into patches of time, height and width.

    Parameters
    ----------
    video : list of images, array, str or Path
        The frames, as `from_image` takes them, or the path of an animated image (GIF, PNG, WebP). Other video files
        need a decoder, whose frames can be handed over as an array.
    patch : sequence of int
        Frames, height and width of a patch.
    channels : int, optional
        The dimension of an array that holds the channels, counted within one frame: 0 for [c, h, w], -1 for [h, w, c];
        None for grey images [h, w]. Files and Pillow images bring their own.
    mode : "L", "RGB" or None, default None
        Convert a file or Pillow image to grey or colour.
    size : tuple of int, optional
        Scale to this height and width in pixels first.
    fit : "crop", "resize" or None, default None
        What to do where the patch does not divide the size: cut the border off, or scale to the nearest multiple.
        Without it, such images are refused.
    mean : float or sequence of float, default 0.0
        Subtracted from pixel values, which are from 0 to 1 for images of whole numbers; one number, or one per channel.
    std : float or sequence of float, default 1.0
        What they are divided by, likewise.
    target : int, float or array, optional
        A class index or numbers to predict.
    id : hashable, optional
        A name for the sample; by default the path of a file.

    Returns
    -------
    Sample
        One token per patch, at its index along time, height and width.

    Raises
    ------
    ValueError
        If frames differ in size, cannot be read, or the patch does not divide the video.
    TypeError
        If something is no image.

    Examples
    --------
    >>> import numpy as np
    >>> import romae
    >>> clip = romae.from_video(np.zeros((4, 8, 8)), patch=(2, 4, 4))
    >>> clip.values.shape
    torch.Size([8, 32])
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
    """The image that patches make up: the inverse of `from_image`, `from_stack` and `from_video`.

    Parameters
    ----------
    values : array or tensor [n, k]
        The values of all patches, such as a sample's own or predicted ones.
    patch : sequence of int
        The patch that the image was cut by.
    size : sequence of int
        (height, width) or (time, height, width), the size that was cut.
    channels : int or None, default -1
        The dimension of each image that the channels go to; None for a grey image [h, w].
    mean : float or sequence of float, default 0.0
        The mean that was subtracted.
    std : float or sequence of float, default 1.0
        The standard deviation that values were divided by.
    as_uint8 : bool, default False
        Whether to round to whole numbers from 0 to 255; what lies outside is clipped.

    Returns
    -------
    Float32 or UInt8 Tensor
        The image, with values from 0 to 1 if it was made of whole numbers.

    Raises
    ------
    ValueError
        If the values do not fill an image of this size.
    TypeError
        If the values are no numbers.

    Examples
    --------
    >>> import numpy as np
    >>> import romae
    >>> image = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    >>> sample = romae.from_image(image, (4, 4), channels=-1)
    >>> again = romae.to_image(sample.values, (4, 4), (8, 8), as_uint8=True)
    >>> bool((again.numpy() == image).all())
    True
    """
    if channels is not None and channels not in range(-3, 3):
        raise ValueError(f"channels={channels} is no dimension of an image; use -1 for [h, w, c] or 0 for [c, h, w]")
    n_axes = 3 if _length(size) == 3 else 2
    _require_sizes("size", size, n_axes)
    _require_sizes("patch", patch, n_axes)
    grid = unpatchify(_as_tensor(values), patch, grid_counts(size, patch), channels=-1)
    centre, deviation = _statistics(mean, std, grid.shape[-1])
    grid = grid * deviation + centre
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
        if math.prod(size) > MOST_PIXELS:
            raise ValueError(f"the size {tuple(size)} has more than {MOST_PIXELS:,} pixels; choose a smaller one")
        grid = _resized(grid, size)
    if fit is not None:
        grid = _fitted(grid, patch, fit)
    centre, deviation = _statistics(mean, std, grid.shape[-1])
    counts = grid_counts(grid.shape[:-1], patch)
    values = patchify((grid - centre) / deviation, patch, channels=-1, irregular=tuple(coordinates or ()))
    return Sample(values, grid_positions(counts, coordinates, patch=patch), target=target, id=id)


def _fitted(grid: Float32[Tensor, "*grid c"], patch: Sequence[int], fit: Fit) -> Float32[Tensor, "*fitted c"]:
    """The grid at a size that the patch divides. Time is cut at its end, and never scaled."""
    if fit == "resize":
        return _resized(grid, _fitted_size((grid.shape[-3], grid.shape[-2]), patch[-2:], fit))
    if fit != "crop":
        raise ValueError(f"fit must be 'crop' or 'resize', not {fit!r}")
    for axis, p in enumerate(patch):
        rest = grid.shape[axis] % p if grid.shape[axis] >= p else 0
        start = rest // 2 if axis >= grid.ndim - 3 else 0
        grid = grid.narrow(axis, start, grid.shape[axis] - rest)
    return grid


def _fitted_size(size: tuple[int, int], patch: Sequence[int], fit: Fit) -> tuple[int, int]:
    """The height and width that `_fitted` brings an image to."""
    if fit == "resize":
        height, width = (max(1, round(n / p)) * p for n, p in zip(size, patch, strict=True))
    else:
        height, width = (n - n % p if n >= p else n for n, p in zip(size, patch, strict=True))
    return height, width


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
    for name, statistic in (("mean", mean), ("std", std)):
        try:
            x = torch.as_tensor(statistic, dtype=torch.float32).reshape(-1)
        except (TypeError, ValueError, RuntimeError):
            raise TypeError(f"{name} is a number, or one for each channel, not {statistic!r}") from None
        if len(x) not in (1, n_channels):
            raise ValueError(f"{name} has {len(x)} numbers for {n_channels} channels; give one, or one for each")
        if not x.isfinite().all() or (name == "std" and not (x > 0).all()):
            raise ValueError(f"{name} must be finite{' and above 0' if name == 'std' else ''}, not {statistic}")
        pair.append(x)
    return pair[0], pair[1]


def _read_times(times: Any, n_images: int) -> Float64[Tensor, "t"]:
    try:
        array = to_numpy(times)
    except (TypeError, ValueError) as error:
        raise TypeError(f"times must be a list of numbers: {error}") from None
    if array.dtype.kind not in "buif":
        raise TypeError(f"times must be numbers, not {array.dtype}; turn dates into days or seconds first")
    read = torch.from_numpy(array.astype(np.float64, order="C"))
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
    if channels is not None and (len(shape) != 3 or type(channels) is not int or channels not in range(-3, 3)):
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


def _require_unmasked(x: np.ndarray, name: str) -> None:
    if np.ma.is_masked(x):
        raise ValueError(
            f"{name} is masked in part, and a patch has no place for missing pixels; fill them first, for example with "
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

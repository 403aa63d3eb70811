"""Numbers in arrays of any byte order, lists and tensors, as tensors; what cannot be read as numbers is refused."""

from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64, Shaped
from torch import Tensor

LARGEST_EXACT = 2**53 - 1  # beyond it, floats stand for several integers


def as_real(x: Any, name: str) -> Tensor:
    """Numbers as a tensor; plain lists are read in double precision, like arrays. Errors call them by the name."""
    require_readable(x, name)
    is_plain = isinstance(x, list | tuple) and not _holds_arrays(x)
    try:
        tensor = as_tensor(x, torch.float64 if is_plain and isinstance(_first(x), float) else None)
        if is_plain and tensor.dtype == torch.float32:  # an integer before floats
            tensor = as_tensor(x, torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} cannot be read as numbers: {error}") from None
    if tensor.is_complex():
        raise TypeError(f"{name} are complex; use the real and the imaginary part as two channels")
    return tensor


def as_tensor(x: Any, dtype: torch.dtype | None = None) -> Tensor:
    """A tensor without its gradient; of anything else a copy, so that later changes do not reach the sample."""
    if isinstance(x, Tensor):
        require_dense(x)
        return x.detach() if x.requires_grad else x
    if not (isinstance(x, np.ndarray | np.generic) or _holds_arrays(x)):
        return torch.tensor(x, dtype=dtype)
    x = np.asarray(x)
    copy = torch.from_numpy(np.array(x, dtype=native(x.dtype), order="C"))  # torch knows no steps backwards either
    return copy if dtype is None else copy.to(dtype)


def require_dense(x: Tensor) -> None:
    """Refuse tensors that keep a part of their numbers only, which few functions of torch take."""
    if x.layout != torch.strided:
        raise TypeError(f"a tensor of the layout {x.layout} came where all numbers are needed; use x.to_dense()")


def native(dtype: np.dtype) -> np.dtype:
    """The nearest type of numbers that torch and pandas know: not the other byte order, nor more than 64 bits."""
    return np.dtype(np.float64) if dtype.char == "g" else dtype.newbyteorder("=")


def _holds_arrays(x: Any) -> bool:
    return isinstance(x, list | tuple) and any(isinstance(entry, np.ndarray) for entry in x)


def require_readable(x: Any, name: str) -> None:
    """Refuse what is masked in part, and what torch does not know: pandas, dates and objects."""
    if x is None or isinstance(x, Tensor):
        return
    parts = x if _holds_arrays(x) else [x]
    if any(map(np.ma.is_masked, parts)):
        raise ValueError(f"the array of {name} is masked in part, and masked means missing; leave what is missing out")
    first = _first(x)
    if hasattr(first, "iloc"):
        raise TypeError(f"{name} came as a pandas {type(first).__name__}; hand over its numbers alone: x.to_numpy()")
    dtypes = [part.dtype for part in [*parts, first] if isinstance(part, np.ndarray | np.generic)]
    if isinstance(first, date | timedelta) or any(dtype.kind in "mM" for dtype in dtypes):
        raise TypeError(
            f"{name} must be numbers, not dates or durations; turn them into days, for example: "
            "(x - x[0]) / np.timedelta64(1, 'D')"
        )
    for dtype in dtypes:
        if dtype.kind not in "biufc":
            raise TypeError(f"the array of {name} holds {dtype.name}, not numbers; convert it: x.astype(float)")


def _first(x: Any) -> Any:
    """The first entry of nested lists."""
    while isinstance(x, list | tuple) and x:
        x = x[0]
    return x


def require_exact(read: Float64[np.ndarray, "..."], n_given: Callable[[], int], name: str) -> None:
    """Refuse numbers of which double precision makes fewer than were given, as it does beyond 2**53."""
    if not (np.abs(read) > LARGEST_EXACT).any():
        return
    present = read[~np.isnan(read)]
    if len(np.unique(present)) < n_given():
        raise ValueError(
            f"{name} cannot be read in double precision, which makes several numbers of up to "
            f"{np.abs(present).max():.3g} the same; subtract an offset first"
        )


def as_values(x: Shaped[Tensor, "n c"]) -> Tensor:
    """In single precision, or in half precision where they came so; they must be finite."""
    kept = x if x.dtype in (torch.float16, torch.bfloat16, torch.float32) else x.float()
    finite = torch.isfinite(kept)
    if not finite.all():
        row, column = (~finite).nonzero()[0].tolist()
        require_finite(x, "values")
        raise ValueError(
            f"values are too large for single precision: token {row} has {x[row, column].item():.3g} in column "
            f"{column}; give them in larger units"
        )
    return kept


def as_positions(x: Shaped[Tensor, "n d"]) -> Tensor:
    """In single or double precision, as they came, and whole numbers in double precision; they must be finite."""
    require_finite(x, "positions")
    if x.is_floating_point():
        require_precise(x)
        return x
    read = x.double()
    require_exact(read.cpu().numpy(), lambda: len(np.unique(x.cpu().numpy())), "positions")
    return read


def require_finite(x: Shaped[Tensor, "n k"], name: str) -> None:
    finite = torch.isfinite(x)
    if not finite.all():
        row, column = (~finite).nonzero()[0].tolist()
        raise ValueError(
            f"{name} must be finite, and token {row} has {x[row, column].item()} in column {column}; "
            "leave missing measurements out"
        )


def require_precise(positions: Tensor) -> None:
    if positions.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"positions are {positions.dtype}, but angles need float32 or float64")

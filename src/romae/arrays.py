"""What people have their numbers in, as tensors: arrays of any byte order, lists, tensors; and what is refused."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor


def as_float(x: Any, name: str) -> Tensor:
    """Values or positions, by that name, as a tensor of floats."""
    require_unmasked(x, name)
    try:
        # Plain lists of positions are read in double precision, like arrays, where torch alone would make them single.
        x = as_tensor(x, torch.float64 if name == "positions" and isinstance(x, list | tuple) else None)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} cannot be read as numbers: {error}") from None
    if x.is_complex():
        raise TypeError(f"{name} are complex; use the real and the imaginary part as two channels")
    if name == "values":
        return as_values(x)
    return x if x.is_floating_point() else x.double()


def as_tensor(x: Any, dtype: torch.dtype | None = None) -> Tensor:
    """A tensor as it is; of anything else a copy, so that later changes of an array do not reach the sample."""
    if isinstance(x, Tensor):
        return x
    if not (isinstance(x, np.ndarray | np.generic) or _holds_arrays(x)):
        return torch.tensor(x, dtype=dtype)
    x = np.asarray(x)
    copy = torch.from_numpy(np.array(x, dtype=native(x.dtype), order="C"))  # torch knows no steps backwards either
    return copy if dtype is None else copy.to(dtype)


def native(kind: np.dtype) -> np.dtype:
    """The nearest type of numbers that torch and pandas know: not the other byte order, nor more than 64 bits."""
    return np.dtype(np.float64) if kind.char == "g" else kind.newbyteorder("=")


def _holds_arrays(x: Any) -> bool:
    return isinstance(x, list | tuple) and any(isinstance(one, np.ndarray) for one in x)


def require_unmasked(x: Any, name: str) -> None:
    if any(map(np.ma.is_masked, x if _holds_arrays(x) else [x])):
        raise ValueError(f"the array of {name} is masked in part, and masked means missing; leave what is missing out")


def as_values(x: Tensor) -> Tensor:
    """In single precision, or in half precision where they came so."""
    return x if x.dtype in (torch.float16, torch.bfloat16, torch.float32) else x.float()


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

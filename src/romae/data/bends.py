"""Values that lie far out, bent towards the others, and straightened again.

Shapes: *n of values, c columns.
"""

from typing import Literal

import torch
from jaxtyping import Float64
from torch import Tensor

Method = Literal["none", "standard", "robust", "asinh", "robust-asinh"]
BENT = {"asinh": 1.0, "robust-asinh": 3.0}  # methods that are no straight line, and from which size on they bend


def bent(values: Float64[Tensor, "*n c"], method: Method) -> Float64[Tensor, "*n c"]:
    """What a method does to values that have been divided by their scale."""
    bend = BENT.get(method)
    return values if bend is None else bend * (values / bend).asinh()


def straightened(values: Float64[Tensor, "*n c"], method: Method) -> Float64[Tensor, "*n c"]:
    """The inverse of `bent`."""
    bend = BENT.get(method)
    return values if bend is None else bend * (values / bend).sinh()


def steepness(straight: Float64[Tensor, "*n c"], method: Method) -> Float64[Tensor, "*n c"]:
    """The derivative of `bent`: by how much small differences of values grow."""
    bend = BENT.get(method)
    return torch.ones_like(straight) if bend is None else 1 / torch.sqrt(1 + (straight / bend).square())

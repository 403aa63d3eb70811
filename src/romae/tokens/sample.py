"""One sample: a set of measurements at real-valued positions, checked when it is made.

Shapes: n tokens, c channels, d position dimensions.
"""

from collections.abc import Hashable
from copy import copy
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float32
from torch import Tensor

from romae.tokens.arrays import as_positions, as_real, as_tensor, as_values, require_readable


@dataclass(frozen=True, eq=False)
class Sample:
    """One sample: a set of measurements (tokens) at real-valued positions.

    A token has one or more values and one or more coordinates. A light curve has tokens of flux at times; an image has
    patches of pixels at rows and columns.

    Parameters
    ----------
    values : array, tensor or nested list [n, c]
        The values of n tokens in c channels. They must be finite; a single column is `x[:, None]`.
    positions : array, tensor or nested list [n, d]
        The coordinates of each token. Double precision is kept until a batch is made.
    target : int, float, array or tensor, optional
        A class index, a number, a vector [k] for the whole sample, or one row per token [n, k].
    id : hashable, optional
        A name for the sample; messages and tables use it.
    hidden : array or tensor of bool [n], optional
        True on the tokens to predict, for those who choose the mask themselves. It must hide some and leave some.
    schema : Schema, optional
        The names of the data that the sample comes from. It stays with the sample in any list, so that what is learned
        does not depend on the container.
    weight : float, optional
        How much the sample counts in the loss: 2 as much as the sample twice, 0 not at all. None counts as 1.

    Raises
    ------
    ValueError
        If shapes do not agree, there is no token, a number is not finite, or the weight is negative.
    TypeError
        If something cannot be read as real numbers.

    See Also
    --------
    from_table, from_arrays, from_image, from_audio : samples from common data.

    Notes
    -----
    Tensors are taken without their gradients. Positions such as Julian dates or Unix seconds are too large
    for the single precision of a model: subtract an origin, for example with `fit_scaling(samples, origin="first")`.

    Examples
    --------
    >>> import romae
    >>> sample = romae.Sample(values=[[0.1], [0.7], [0.4]], positions=[[0.0], [1.5], [1.6]], target=1, id="star 7")
    >>> sample
    Sample('star 7': 3 tokens, 1 channels, 1 position dims, target 1)
    >>> len(sample)
    3
    """

    values: Any
    positions: Any
    target: Any = None
    id: Hashable = None
    hidden: Any = None
    schema: Any = None  # data.schema.Schema
    weight: Any = None

    def __post_init__(self) -> None:
        values = as_real(self.values, "values")
        positions = as_real(self.positions, "positions")
        for name, x, letter in (("values", values, "c"), ("positions", positions, "d")):
            if x.ndim != 2:
                raise ValueError(
                    f"{name} must be [n, {letter}], got shape {list(x.shape)}"
                    + (f"; for a single column use {name}[:, None]" if x.ndim == 1 else "")
                )
        if len(values) != len(positions):
            raise ValueError(f"{len(values)} values but {len(positions)} positions: each token needs one of both")
        if len(values) == 0:
            raise ValueError("a sample needs at least one token, and this one is empty")
        if values.shape[1] == 0 or positions.shape[1] == 0:
            raise ValueError("a sample needs at least one channel and one position dimension")
        object.__setattr__(self, "values", as_values(values))
        object.__setattr__(self, "positions", as_positions(positions))
        require_readable(self.target, "target")
        require_readable(self.hidden, "hidden")
        object.__setattr__(self, "target", None if self.target is None else self._checked_target(len(values)))
        object.__setattr__(self, "hidden", None if self.hidden is None else self._checked_mask(len(values)))
        object.__setattr__(self, "weight", None if self.weight is None else self._checked_weight())

    def _checked_target(self, n: int) -> Tensor:
        try:
            target = as_tensor(self.target)
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(f"target {_shown(self.target)} is not a number or an array: {error}") from None
        if target.is_complex():
            raise TypeError("targets are complex; use the real and the imaginary part as two targets")
        if target.dtype == torch.uint64:
            raise TypeError("targets of 64 unsigned bits do not fit; use signed integers or floats")
        target = target.float() if target.is_floating_point() else target.long()
        if target.ndim > 2 or target.numel() == 0 or (target.ndim == 2 and len(target) != n):
            raise ValueError(
                f"target must be a number, a vector [k], or one row per token [{n}, k]; got shape {list(target.shape)}"
            )
        if target.is_floating_point() and not bool(torch.isfinite(target).all()):
            raise ValueError("the target must be finite in single precision; leave samples without one out")
        return target

    def _checked_mask(self, n: int) -> Bool[Tensor, "n"]:
        try:
            hidden = as_tensor(self.hidden)
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(f"hidden must be {n} booleans: {error}") from None
        if hidden.dtype != torch.bool or hidden.shape != (n,):
            raise ValueError(f"hidden must be {n} booleans, got {hidden.dtype} of shape {list(hidden.shape)}")
        if bool(hidden.all()) or not bool(hidden.any()):
            raise ValueError("hidden must hide some tokens and leave some: it marks all or none of them")
        return hidden

    def _checked_weight(self) -> Float32[Tensor, ""]:
        try:
            weight = as_tensor(self.weight)
        except (TypeError, ValueError, RuntimeError):
            raise TypeError(f"weight {_shown(self.weight)} is not a number") from None
        if weight.ndim != 0 or weight.is_complex():
            raise TypeError(f"the weight of a sample is one number, not {_shown(self.weight)}")
        single = weight.float()
        if not bool(torch.isfinite(single)) or bool(single < 0):
            raise ValueError(f"the weight of a sample must be finite and at least 0, not {_shown(weight.item())}")
        return single

    def with_schema(self, schema: Any) -> "Sample":
        """The same sample under other names.

        Parameters
        ----------
        schema : Schema or None
            The names of the data that it comes from.

        Returns
        -------
        Sample
            The same tensors; they have been checked, and are not looked at again.
        """
        if self.schema is schema:
            return self
        named = copy(self)
        object.__setattr__(named, "schema", schema)
        return named

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        name = "" if self.id is None else f"{self.id!r}: "
        target = "" if self.target is None else f", target {list(self.target.shape) or self.target.item()}"
        hidden = "" if self.hidden is None else f" ({int(self.hidden.sum())} hidden)"
        weight = "" if self.weight is None else f", weight {self.weight.item():g}"
        channels, dims = self.values.shape[1], self.positions.shape[1]
        return f"Sample({name}{len(self)} tokens{hidden}, {channels} channels, {dims} position dims{target}{weight})"


def _shown(x: Any) -> str:
    """What messages show of an argument: it may be a number of hundreds of digits, or a long list."""
    text = repr(x)
    return text if len(text) <= 80 else f"{text[:80]}…"


def sample_list(samples: Any) -> list[Sample]:
    """The samples as a list, each read once; what is no sample is refused."""
    if isinstance(samples, Sample):
        raise TypeError("a single sample came where several are expected; put it into a list: [sample]")
    if not (hasattr(samples, "__iter__") or hasattr(samples, "__getitem__")):
        raise TypeError(f"expected a list of samples, not {type(samples).__name__}")
    items = list(samples)
    for i, item in enumerate(items):
        if not isinstance(item, Sample):
            raise TypeError(
                f"expected samples, and number {i} is {type(item).__name__}; make one of it: romae.Sample(…)"
            )
    return items

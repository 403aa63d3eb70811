"""Where each sample lies in a packed batch.

Shapes: t tokens in a batch, b samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Int32, Int64
from torch import Tensor

LARGEST_OFFSET = 2**31 - 1


@dataclass(frozen=True, eq=False)
class Layout:
    """Where each sample lies in a packed batch, as in variable-length attention.

    Use `Layout.of(lengths)`. Lengths stay on the host, so that shapes are known without waiting for the device; offsets
    (cumulative lengths) are on the device, for the kernels.

    Parameters
    ----------
    lengths : Int64 Tensor [b]
        The number of tokens in each sample, on the host.
    offsets : Int32 Tensor [b + 1]
        The cumulative lengths, from 0, on the device.
    n_tokens : int
        The number of tokens in the batch.
    longest : int
        An upper bound of the lengths.
    is_equal : bool
        Whether all samples have the same length.
    is_fixed : bool, default False
        Whether this is the layout of a batch of fixed size whose memory is filled again and again: it has bounds
        instead of lengths on the host.

    Examples
    --------
    >>> import romae
    >>> layout = romae.Layout.of([3, 1, 2])
    >>> layout.n_samples, layout.n_tokens, layout.longest
    (3, 6, 3)
    >>> layout.sample_of_token.tolist()
    [0, 0, 0, 1, 2, 2]
    """

    lengths: Int64[Tensor, "b"]
    offsets: Int32[Tensor, "b+1"]
    n_tokens: int
    longest: int
    is_equal: bool
    is_fixed: bool = False

    @classmethod
    def of(cls, lengths: Sequence[int] | Tensor, device: torch.device | str = "cpu") -> "Layout":
        """The layout of samples with these lengths.

        Parameters
        ----------
        lengths : sequence of int or Tensor
            The number of tokens in each sample. Zero is allowed: a sample may have no token to predict.
        device : torch.device or str, default "cpu"
            Where the offsets are needed.

        Returns
        -------
        Layout
            With offsets on the device.

        Raises
        ------
        ValueError
            If there is no sample, a length is negative, or the batch is too large for 32-bit offsets.
        TypeError
            If lengths are no whole numbers.
        """
        lengths = torch.as_tensor(lengths, device="cpu")
        if lengths.numel() == 0:
            raise ValueError("a batch needs at least one sample, and this one is empty")
        if lengths.ndim != 1 or lengths.is_floating_point() or lengths.is_complex():
            raise TypeError(f"lengths must be whole numbers, one per sample, not {lengths.dtype} {list(lengths.shape)}")
        lengths = lengths.long()
        if int(lengths.min()) < 0:
            raise ValueError(f"lengths cannot be negative, and sample {int(lengths.argmin())} has {int(lengths.min())}")
        n_tokens, longest = sum(lengths.tolist()), int(lengths.max())
        if n_tokens > LARGEST_OFFSET:
            raise ValueError(
                f"{n_tokens} tokens in one batch overflow the 32-bit offsets (at most {LARGEST_OFFSET}); "
                "use smaller batches"
            )
        offsets = torch.zeros(len(lengths) + 1, dtype=torch.int32)
        offsets[1:] = lengths.cumsum(0)
        return cls(
            lengths=lengths,
            offsets=offsets.to(device, non_blocking=True),  # from the host, so nothing is read too early
            n_tokens=n_tokens,
            longest=longest,
            is_equal=longest == int(lengths.min()),
        )

    @classmethod
    def singles(cls, n_samples: int, device: torch.device | str = "cpu") -> "Layout":
        """The layout of samples with one token each.

        Parameters
        ----------
        n_samples : int
            How many samples there are.
        device : torch.device or str, default "cpu"
            Where the offsets are needed.

        Returns
        -------
        Layout
            With `n_samples` tokens.
        """
        offsets = torch.arange(n_samples + 1, dtype=torch.int32, device=device)
        lengths = torch.ones(n_samples, dtype=torch.int64)
        return cls(lengths=lengths, offsets=offsets, n_tokens=n_samples, longest=1, is_equal=True)

    @classmethod
    def fixed(cls, offsets: Int32[Tensor, "bounds"], n_tokens: int, longest: int, is_equal: bool) -> "Layout":
        """The layout of a batch of fixed size: the offsets may change, the bounds may not.

        Parameters
        ----------
        offsets : Int32 Tensor [b + 1]
            Cumulative lengths, on the device.
        n_tokens : int
            The number of tokens for which there is room.
        longest : int
            An upper bound of the lengths.
        is_equal : bool
            Whether all samples have the same length.

        Returns
        -------
        Layout
            With `is_fixed` set.
        """
        lengths = torch.full((len(offsets) - 1,), longest)
        return cls(lengths, offsets, n_tokens, longest, is_equal, is_fixed=True)

    @property
    def n_samples(self) -> int:
        """The number of samples."""
        return self.lengths.shape[0]

    @property
    def device(self) -> torch.device:
        """Where the offsets are."""
        return self.offsets.device

    @property
    def device_lengths(self) -> Int32[Tensor, "b"]:
        """The number of tokens in each sample, on the device."""
        return self.offsets.diff()

    @property
    def sample_of_token(self) -> Int64[Tensor, "t"]:
        """The index of the sample that each token belongs to."""
        return torch.repeat_interleave(self.device_lengths.long(), output_size=self.n_tokens)

    @cached_property
    def host_offsets(self) -> Int64[Tensor, "bounds"]:
        """The cumulative lengths on the host."""
        return torch.cat([self.lengths.new_zeros(1), self.lengths.cumsum(0)])

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "Layout":
        """Move the offsets to a device.

        Parameters
        ----------
        device : torch.device or str
            The device.
        non_blocking : bool, default False
            Whether the host goes on without waiting, from pinned memory.

        Returns
        -------
        Layout
            The same layout there.
        """
        return replace(self, offsets=self.offsets.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> "Layout":
        """Copy the offsets to pinned memory, from where they reach a GPU without waiting.

        Returns
        -------
        Layout
            The same layout there.
        """
        return replace(self, offsets=self.offsets.pin_memory())

    def joined(self, other: "Layout") -> "Layout":
        """The layout in which each sample of `self` is followed by the same sample of `other`.

        Parameters
        ----------
        other : Layout
            The layout of what follows, with as many samples.

        Returns
        -------
        Layout
            With the tokens of both.

        Raises
        ------
        ValueError
            If the numbers of samples differ.
        """
        if self.n_samples != other.n_samples:
            raise ValueError(f"cannot join {self.n_samples} samples with {other.n_samples}")
        lengths = self.lengths + other.lengths
        # Reading a number out of a tensor would cut a compiled graph in two; there the bound will do.
        is_compiling = torch.compiler.is_compiling()
        return Layout(
            lengths=lengths,
            offsets=self.offsets + other.offsets,
            n_tokens=self.n_tokens + other.n_tokens,
            longest=self.longest + other.longest if is_compiling else int(lengths.max()),
            is_equal=self.is_equal and other.is_equal,
            is_fixed=self.is_fixed or other.is_fixed,
        )

    def places_in_joined(self, other: "Layout") -> tuple[Int64[Tensor, "t"], Int64[Tensor, "u"]]:
        """Where the tokens of both layouts come to lie in `self.joined(other)`.

        Parameters
        ----------
        other : Layout
            The layout of what follows.

        Returns
        -------
        tuple of Int64 Tensor
            The indices of the tokens of `self`, and of those of `other`.
        """
        mine, theirs = self.sample_of_token, other.sample_of_token
        first = torch.arange(self.n_tokens, device=self.device) + other.offsets[mine]
        second = torch.arange(other.n_tokens, device=self.device) + self.offsets[theirs + 1]
        return first, second

    def selected(
        self, keep: Bool[Tensor, "t"], lengths: Int64[Tensor, "b"] | None = None
    ) -> tuple["Layout", Int64[Tensor, "u"]]:
        """The layout of a subset of the tokens.

        Parameters
        ----------
        keep : Bool Tensor [t]
            True on the tokens to keep.
        lengths : Int64 Tensor [b], optional
            The number of kept tokens in each sample, on the host. Hand it over where it is known: counting them makes
            the host wait for the device.

        Returns
        -------
        tuple of Layout and Int64 Tensor
            The layout of the kept tokens, and their indices in order.

        Raises
        ------
        ValueError
            If `keep` has another shape than the tokens.
        """
        if keep.shape != (self.n_tokens,):
            raise ValueError(f"keep has shape {tuple(keep.shape)}, but there are {self.n_tokens} tokens")
        if lengths is None:
            running = torch.cat([keep.new_zeros(1, dtype=torch.int64), keep.cumsum(0)])
            lengths = running[self.offsets].diff().cpu()
        layout = Layout.of(lengths, self.device)
        if keep.device.type == "cpu":
            return layout, keep.nonzero().squeeze(-1)
        # A stable sort brings the kept ones forward in order, and its length is known in advance.
        return layout, keep.logical_not().argsort(stable=True)[: layout.n_tokens]

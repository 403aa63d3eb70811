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
    """Where each sample lies in a packed batch.

    Lengths stay on the host, so that shapes are known without asking the device; offsets are on the device,
    for the kernels. `longest` bounds the length of every sample. The layout of a batch of fixed size, whose memory is
    filled again and again, `is_fixed`: it has bounds instead of lengths on the host.
    """

    lengths: Int64[Tensor, "b"]
    offsets: Int32[Tensor, "b+1"]
    n_tokens: int
    longest: int
    is_equal: bool
    is_fixed: bool = False

    @classmethod
    def of(cls, lengths: Sequence[int] | Tensor, device: torch.device | str = "cpu") -> "Layout":
        """The layout of samples with these lengths. Zero is allowed: a sample may have no token to predict."""
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
        """The layout of samples with one token each."""
        offsets = torch.arange(n_samples + 1, dtype=torch.int32, device=device)
        lengths = torch.ones(n_samples, dtype=torch.int64)
        return cls(lengths=lengths, offsets=offsets, n_tokens=n_samples, longest=1, is_equal=True)

    @classmethod
    def fixed(cls, offsets: Int32[Tensor, "bounds"], n_tokens: int, longest: int, is_equal: bool) -> "Layout":
        """The layout of a batch of fixed size: the offsets may change, the bounds may not."""
        lengths = torch.full((len(offsets) - 1,), longest)
        return cls(lengths, offsets, n_tokens, longest, is_equal, is_fixed=True)

    @property
    def n_samples(self) -> int:
        return self.lengths.shape[0]

    @property
    def device(self) -> torch.device:
        return self.offsets.device

    @property
    def device_lengths(self) -> Int32[Tensor, "b"]:
        return self.offsets.diff()

    @property
    def sample_of_token(self) -> Int64[Tensor, "t"]:
        return torch.repeat_interleave(self.device_lengths.long(), output_size=self.n_tokens)

    @cached_property
    def host_offsets(self) -> Int64[Tensor, "bounds"]:
        return torch.cat([self.lengths.new_zeros(1), self.lengths.cumsum(0)])

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "Layout":
        return replace(self, offsets=self.offsets.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> "Layout":
        return replace(self, offsets=self.offsets.pin_memory())

    def joined(self, other: "Layout") -> "Layout":
        """The layout in which each sample of `self` is followed by the same sample of `other`."""
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
        """Where the tokens of `self` and those of `other` come to lie in `self.joined(other)`."""
        mine, theirs = self.sample_of_token, other.sample_of_token
        first = torch.arange(self.n_tokens, device=self.device) + other.offsets[mine]
        second = torch.arange(other.n_tokens, device=self.device) + self.offsets[theirs + 1]
        return first, second

    def selected(
        self, keep: Bool[Tensor, "t"], lengths: Int64[Tensor, "b"] | None = None
    ) -> tuple["Layout", Int64[Tensor, "u"]]:
        """The layout of the kept tokens and their indices, in order.

        Hand over `lengths` (the kept tokens of each sample, on the host) where they are known: counting them
        makes the host wait for the device.
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

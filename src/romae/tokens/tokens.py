"""Tokens: sets of measurements at real-valued positions, packed end to end.

A batch holds the tokens of all its samples one after the other, without padding, and a `Layout` that says
where each sample begins. Shapes: t tokens in a batch, n in one sample, b samples, c channels, d position
dimensions, w any width.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Float64, Int32, Int64, Shaped
from torch import Tensor

from romae.tokens.arrays import as_positions, as_values
from romae.tokens.layout import Layout
from romae.tokens.packed import require_tokens, sample_extreme, sample_mean, take_rows
from romae.tokens.sample import Sample, sample_list


@dataclass(frozen=True, eq=False)
class Tokens:
    """Tokens of a batch, packed: values and positions of all samples end to end, without padding.

    Parameters
    ----------
    values : Float Tensor [t, c]
        The values of all tokens.
    positions : Float32 Tensor [t, d]
        Their coordinates, as the model sees them.
    layout : Layout
        Where each sample lies.
    rows : Int32 Tensor [t], optional
        Where the values of all samples lie on a device already, the row of each token in that array; values then have
        no columns.

    Raises
    ------
    ValueError
        If values, positions and layout do not agree in the number of tokens.
    TypeError
        If positions are not in single precision.

    Examples
    --------
    >>> import torch
    >>> import romae
    >>> lengths = (3, 2)
    >>> tokens = romae.Tokens.pack([torch.ones(n, 1) for n in lengths], [torch.rand(n, 2) for n in lengths])
    >>> tokens
    Tokens(2 samples of 2 to 3 tokens, 5 in all; 1 channels, 2 position dims, float32 on cpu)
    >>> tokens.mean().tolist()
    [[1.0], [1.0]]
    """

    values: Float[Tensor, "t c"]
    positions: Float32[Tensor, "t d"]
    layout: Layout
    rows: Int32[Tensor, "t"] | None = None

    def __post_init__(self) -> None:
        if self.positions.dtype != torch.float32:
            raise TypeError(
                f"positions are {self.positions.dtype}, but angles need torch.float32; convert them after "
                "subtracting each sample's origin"
            )
        if not self.values.shape[0] == self.positions.shape[0] == self.layout.n_tokens:
            raise ValueError(
                f"{self.values.shape[0]} values, {self.positions.shape[0]} positions and a layout of "
                f"{self.layout.n_tokens} tokens must agree"
            )

    def __repr__(self) -> str:
        lengths = self.layout.lengths
        sizes = f"{int(lengths.min())} to {int(lengths.max())}" if not self.layout.is_equal else f"{int(lengths[0])}"
        return (
            f"Tokens({len(self)} samples of {sizes} tokens, {self.layout.n_tokens} in all; {self.channels} channels, "
            f"{self.position_dims} position dims, {str(self.values.dtype).removeprefix('torch.')} "
            f"on {self.values.device})"
        )

    def __len__(self) -> int:
        return self.layout.n_samples

    @property
    def channels(self) -> int:
        """The number of values of a token."""
        return self.values.shape[1]

    @property
    def position_dims(self) -> int:
        """The number of position axes."""
        return self.positions.shape[1]

    @property
    def device(self) -> torch.device:
        """Where the values are."""
        return self.values.device

    @classmethod
    def pack(cls, values: Sequence[Tensor], positions: Sequence[Tensor]) -> "Tokens":
        """Pack samples end to end.

        Parameters
        ----------
        values : sequence of Tensor [n, c]
            The values of each sample.
        positions : sequence of Tensor [n, d]
            The positions of each sample.

        Returns
        -------
        Tokens
            The packed batch, without gradients.

        Raises
        ------
        ValueError
            If there are not as many values as positions, or they do not agree.
        """
        if len(values) != len(positions):
            raise ValueError(f"{len(values)} samples of values but {len(positions)} of positions")
        return collate([Sample(v, p) for v, p in zip(values, positions, strict=True)]).tokens

    def unpack(self) -> list["Sample"]:
        """The samples of this batch, one by one: the inverse of `pack`.

        Returns
        -------
        list of Sample
            Without gradients, targets and ids.
        """
        lengths = self.layout.lengths.tolist()
        return [Sample(v, p) for v, p in zip(self.values.split(lengths), self.positions.split(lengths), strict=True)]

    @classmethod
    def from_padded(
        cls, values: Shaped[Tensor, "b n c"], positions: Float[Tensor, "b n d"], valid: Bool[Tensor, "b n"]
    ) -> "Tokens":
        """Pack padded tensors.

        Parameters
        ----------
        values : Tensor [b, n, c]
            Padded values.
        positions : Tensor [b, n, d]
            Padded positions.
        valid : Bool Tensor [b, n]
            True on real tokens, wherever they stand. Mind the polarity: the padding mask of many libraries is its
            opposite.

        Returns
        -------
        Tokens
            The real tokens.

        Raises
        ------
        ValueError
            If shapes do not agree, or a sample has no valid token.
        TypeError
            If `valid` is not boolean.
        """
        if values.ndim != 3 or positions.ndim != 3 or valid.ndim != 2:
            raise ValueError(
                f"expected values [b, n, c], positions [b, n, d] and valid [b, n], got {list(values.shape)}, "
                f"{list(positions.shape)} and {list(valid.shape)}"
            )
        if valid.dtype != torch.bool:
            raise TypeError(f"valid must be boolean (True on real tokens), not {valid.dtype}")
        if not values.shape[:2] == positions.shape[:2] == valid.shape:
            raise ValueError(
                f"values {list(values.shape)}, positions {list(positions.shape)} and valid {list(valid.shape)} "
                "must agree in samples and tokens"
            )
        lengths = valid.sum(1).cpu()
        if not lengths.all():
            raise ValueError(f"sample {int((lengths == 0).nonzero()[0])} has no valid token")
        values, positions = values[valid], positions[valid]
        layout = Layout.of(lengths, values.device)
        return cls(as_values(values), to_single(as_positions(positions), layout), layout)

    def to_padded(self) -> tuple[Float[Tensor, "b n c"], Float32[Tensor, "b n d"], Bool[Tensor, "b n"]]:
        """Pad with zeros to the longest sample: the inverse of `from_padded`.

        Returns
        -------
        tuple of Tensor
            Values [b, n, c], positions [b, n, d], and `valid` [b, n], which is True on real tokens.
        """
        longest = int(self.layout.lengths.max())
        columns = torch.arange(longest, device=self.device)
        valid = columns < self.layout.device_lengths.unsqueeze(-1)
        values = self.values.new_zeros(*valid.shape, self.channels)
        positions = self.positions.new_zeros(*valid.shape, self.position_dims)
        values[valid], positions[valid] = self.values, self.positions
        return values, positions, valid

    def select(self, keep: Bool[Tensor, "t"], lengths: Int64[Tensor, "b"] | None = None) -> "Tokens":
        """A subset of the tokens.

        Parameters
        ----------
        keep : Bool Tensor [t]
            True on the tokens to keep.
        lengths : Int64 Tensor [b], optional
            The number of kept tokens in each sample, on the host, where it is known; counting makes the host wait.

        Returns
        -------
        Tokens
            The kept tokens, in order.
        """
        layout, index = self.layout.selected(keep, lengths)
        rows = None if self.rows is None else self.rows.index_select(0, index)
        return Tokens(self.values.index_select(0, index), self.positions.index_select(0, index), layout, rows)

    def first(self) -> Float[Tensor, "b c"]:
        """The values of each sample's first token, which is CLS in the output of an encoder that has one.

        Returns
        -------
        Tensor [b, c]
            One row per sample.

        Raises
        ------
        ValueError
            If a sample has no token.
        """
        require_tokens(self.layout)
        return self.values.index_select(0, self.layout.offsets[:-1])

    def mean(self) -> Float[Tensor, "b c"]:
        """The mean of each sample's values (mean pooling).

        Returns
        -------
        Tensor [b, c]
            One row per sample.
        """
        return sample_mean(self.values, self.layout)

    def to(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None, non_blocking: bool = False
    ) -> "Tokens":
        """Move to a device, or convert the values.

        Parameters
        ----------
        device : torch.device or str, optional
            The device; None leaves them where they are.
        dtype : torch.dtype, optional
            The type of the values; positions stay in single precision.
        non_blocking : bool, default False
            Whether the host goes on without waiting, from pinned memory.

        Returns
        -------
        Tokens
            The same tokens there.
        """
        device = self.device if device is None else device
        return Tokens(
            self.values.to(device=device, dtype=dtype, non_blocking=non_blocking),
            self.positions.to(device=device, non_blocking=non_blocking),
            self.layout.to(device, non_blocking),
            None if self.rows is None else self.rows.to(device, non_blocking=non_blocking),
        )

    def pin_memory(self) -> "Tokens":
        """Copy to pinned memory, from where tokens reach a GPU without waiting.

        Returns
        -------
        Tokens
            The same tokens there.
        """
        rows = None if self.rows is None else self.rows.pin_memory()
        return Tokens(self.values.pin_memory(), self.positions.pin_memory(), self.layout.pin_memory(), rows)


def concat(first: Tokens, second: Tokens) -> Tokens:
    """Join two sets of tokens sample by sample.

    Parameters
    ----------
    first : Tokens
        What comes first in every sample.
    second : Tokens
        What follows, with as many samples, channels and position axes.

    Returns
    -------
    Tokens
        Each sample of `first` followed by the same sample of `second`.

    Raises
    ------
    ValueError
        If channels, position axes or numbers of samples differ.

    Examples
    --------
    >>> import torch
    >>> import romae
    >>> first = romae.Tokens.pack([torch.full((1, 1), 1.0)] * 2, [torch.zeros(1, 1)] * 2)
    >>> second = romae.Tokens.pack([torch.full((2, 1), 2.0)] * 2, [torch.zeros(2, 1)] * 2)
    >>> romae.concat(first, second).values.flatten().tolist()
    [1.0, 2.0, 2.0, 1.0, 2.0, 2.0]
    """
    if first.channels != second.channels or first.position_dims != second.position_dims:
        raise ValueError(f"cannot join tokens of different kinds: {first} and {second}")
    layout = first.layout.joined(second.layout)
    if layout.is_equal:
        first_shape, second_shape = (layout.n_samples, first.layout.longest), (layout.n_samples, second.layout.longest)

        def join(x: Tensor, y: Tensor) -> Tensor:
            return torch.cat([x.unflatten(0, first_shape), y.unflatten(0, second_shape)], dim=1).flatten(0, 1)

        return Tokens(join(first.values, second.values), join(first.positions, second.positions), layout)
    places = torch.cat(first.layout.places_in_joined(second.layout))
    order = torch.empty_like(places).scatter(0, places, torch.arange(layout.n_tokens, device=places.device))
    return Tokens(
        take_rows(torch.cat([first.values, second.values]), order),
        torch.cat([first.positions, second.positions]).index_select(0, order),
        layout,
    )


def channel_index(positions: Float[Tensor, "n d"], n_channels: int) -> Int64[Tensor, "n"]:
    """The channel of each token: the last position axis as indices below `n_channels`."""
    coordinates = positions[:, -1]
    if (token := _first_beyond(coordinates, n_channels)) is not None:
        raise ValueError(
            f"token {token} has {float(coordinates[token])} as its channel, but channels are 0 to {n_channels - 1}"
        )
    return coordinates.round().long()


def require_kinds(tokens: Tokens, n_kinds: int, ids: Sequence[Hashable] = ()) -> None:
    """Refuse tokens whose last position is not the number of a kind that the model has."""
    coordinates = tokens.positions[:, -1]
    if (token := _first_beyond(coordinates, n_kinds)) is not None:
        sample = int(tokens.layout.sample_of_token[token])
        name = repr(ids[sample]) if ids and ids[sample] is not None else sample
        raise ValueError(
            f"sample {name} has a token of kind {float(coordinates[token]):g}, which is its last position, but the "
            f"model has kinds 0 to {n_kinds - 1}"
        )


def _first_beyond(numbers: Float[Tensor, "n"], n: int) -> int | None:
    """The first that is no whole number from 0 to n - 1."""
    if len(numbers) == 0:
        return None
    lowest, highest = torch.stack(numbers.aminmax()).tolist()
    if lowest >= 0 and highest < n and bool((numbers == numbers.long()).all()):  # as nearly always
        return None
    wrong = (numbers != numbers.round()) | (numbers < 0) | (numbers >= n)
    return int(wrong.int().argmax()) if bool(wrong.any()) else None


@dataclass(frozen=True, eq=False)
class Batch:
    """A packed batch of samples with their targets, on its way through a task.

    Use `collate(samples)` or a `Loader`.

    Parameters
    ----------
    tokens : Tokens
        The tokens that the encoder sees.
    target : Tensor, optional
        One entry or row per sample, or one row per token, end to end.
    ids : tuple of hashable, default ()
        The ids of the samples.
    hidden : Tokens, optional
        The tokens to predict, once they have been taken out of `tokens`.
    indices : Int64 Tensor, optional
        The places of the samples in the sequence that a loader took them from, on the host.
    is_prepared : bool, default False
        Whether the task has drawn its masks and dropped its tokens, so that the loss is a function of the batch alone,
        but for dropout.
    real : Bool Tensor [b], optional
        True on the samples that count; None means all. The others fill a batch of fixed size.
    weight : Float32 Tensor [b], optional
        How much each sample counts in the loss; None means 1.
    origins : Float64 Tensor [b, d], optional
        What scaling has subtracted from the positions of each sample, until masks are drawn: a mask may be meant in the
        data's own time. None where they were not scaled on their way.

    Examples
    --------
    >>> import romae
    >>> samples = [romae.Sample([[0.1], [0.2]], [[0.0], [1.0]], target=0), romae.Sample([[0.3]], [[0.5]], target=1)]
    >>> batch = romae.collate(samples)
    >>> len(batch), batch.tokens.layout.n_tokens, batch.target.tolist()
    (2, 3, [0, 1])
    """

    tokens: Tokens
    target: Tensor | None = None
    ids: tuple[Hashable, ...] = ()
    hidden: Tokens | None = None
    indices: Int64[Tensor, "n"] | None = None
    is_prepared: bool = False
    real: Bool[Tensor, "b"] | None = None
    weight: Float32[Tensor, "b"] | None = None
    origins: Float64[Tensor, "b d"] | None = None

    def __len__(self) -> int:
        return len(self.tokens)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "Batch":
        """Move to a device.

        Parameters
        ----------
        device : torch.device or str
            The device.
        non_blocking : bool, default False
            Whether the host goes on without waiting, from pinned memory.

        Returns
        -------
        Batch
            The same batch there.
        """
        return replace(
            self,
            tokens=self.tokens.to(device, non_blocking=non_blocking),
            target=None if self.target is None else self.target.to(device, non_blocking=non_blocking),
            hidden=None if self.hidden is None else self.hidden.to(device, non_blocking=non_blocking),
            real=None if self.real is None else self.real.to(device, non_blocking=non_blocking),
            weight=None if self.weight is None else self.weight.to(device, non_blocking=non_blocking),
            origins=None if self.origins is None else self.origins.to(device, non_blocking=non_blocking),
        )

    def pin_memory(self) -> "Batch":
        """Copy to pinned memory, from where a batch reaches a GPU without waiting.

        Returns
        -------
        Batch
            The same batch there.
        """
        return replace(
            self,
            tokens=self.tokens.pin_memory(),
            target=None if self.target is None else self.target.pin_memory(),
            hidden=None if self.hidden is None else self.hidden.pin_memory(),
            real=None if self.real is None else self.real.pin_memory(),
            weight=None if self.weight is None else self.weight.pin_memory(),
            origins=None if self.origins is None else self.origins.pin_memory(),
        )


@dataclass(frozen=True, eq=False)
class PackedSamples:
    """Samples end to end as they were read: in their own units, positions in their own precision, nothing taken out.

    It lies between the place that samples come from and a `Batch`: scaling works on it, for all samples at once.
    `hidden` is True on the tokens to predict, of the samples that say so themselves. `rows` is as in `Tokens`, and
    `weight` and `origins` as in `Batch`.
    """

    values: Float[Tensor, "t c"]
    positions: Float[Tensor, "t d"]
    layout: Layout
    target: Tensor | None = None
    ids: tuple[Hashable, ...] = ()
    hidden: Bool[Tensor, "t"] | None = None
    is_target_per_token: bool = False
    rows: Int32[Tensor, "t"] | None = None
    weight: Float32[Tensor, "b"] | None = None
    origins: Float64[Tensor, "b d"] | None = None

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> "PackedSamples":
        """These samples, which must agree in channels, position dimensions and targets."""
        _require_alike([s.values.shape[1] for s in samples], "channels")
        _require_alike([s.positions.shape[1] for s in samples], "position dimensions")
        hidden = None
        if any(s.hidden is not None for s in samples):
            masks = [s.values.new_zeros(len(s), dtype=torch.bool) if s.hidden is None else s.hidden for s in samples]
            hidden = torch.cat(masks)
        target = _packed_targets(samples)
        return cls(
            torch.cat([s.values for s in samples]),
            torch.cat([s.positions for s in samples]),
            Layout.of([len(s) for s in samples], samples[0].values.device),
            target=target,
            ids=tuple(s.id for s in samples),
            hidden=hidden,
            is_target_per_token=target is not None and samples[0].target.ndim == 2,
            weight=_packed_weights(samples),
        )

    @classmethod
    def joined(cls, parts: Sequence["PackedSamples"]) -> "PackedSamples":
        """The samples of several of these, end to end; all of them have the same of what is optional."""

        def cat(name: str) -> Any:
            found = [getattr(part, name) for part in parts]
            return None if found[0] is None else torch.cat(found)

        return cls(
            cat("values"),
            cat("positions"),
            Layout.of(torch.cat([part.layout.lengths for part in parts])),
            target=cat("target"),
            ids=tuple(name for part in parts for name in part.ids),
            hidden=cat("hidden"),
            is_target_per_token=parts[0].is_target_per_token,
            weight=cat("weight"),
            origins=cat("origins"),
        )

    def __len__(self) -> int:
        return self.layout.n_samples

    def take(self, indices: Int64[np.ndarray, "b"], *, by_row: bool = False) -> "PackedSamples":
        """The samples at these indices, in this order; `by_row` leaves their values where they are and names them."""
        if not by_row and _is_run(indices):
            return self._run(int(indices[0]), int(indices[-1]) + 1)
        chosen = torch.from_numpy(indices)
        layout = Layout.of(self.layout.lengths[chosen])
        # Token j of a batch comes from row j + shift, where the shift belongs to its sample:
        # samples of 2, 3, 2 tokens, of which 2 and 0 are taken: offsets 0, 2; starts 5, 0; shifts 5, -2; rows 5 6 0 1.
        shifts = self.layout.host_offsets[:-1][chosen] - layout.host_offsets[:-1]
        rows = torch.repeat_interleave(shifts, layout.lengths) + torch.arange(layout.n_tokens)
        target = self.target
        if target is not None:
            target = target.index_select(0, rows if self.is_target_per_token else chosen)
        return replace(
            self,
            values=self.values.new_zeros(len(rows), 0) if by_row else self.values.index_select(0, rows),
            positions=self.positions.index_select(0, rows),
            layout=layout,
            target=target,
            ids=tuple(map(self.ids.__getitem__, indices.tolist())),
            hidden=None if self.hidden is None else self.hidden.index_select(0, rows),
            rows=rows.int() if by_row else None,
            weight=None if self.weight is None else self.weight.index_select(0, chosen),
            origins=None if self.origins is None else self.origins.index_select(0, chosen),
        )

    def _run(self, start: int, stop: int) -> "PackedSamples":
        """The samples from start to stop, whose tensors are parts of these: nothing is copied."""
        first, last = self.layout.host_offsets[[start, stop]].tolist()
        target = self.target
        if target is not None:
            target = target[first:last] if self.is_target_per_token else target[start:stop]
        return replace(
            self,
            values=self.values[first:last],
            positions=self.positions[first:last],
            layout=Layout.of(self.layout.lengths[start:stop]),
            target=target,
            ids=self.ids[start:stop],
            hidden=None if self.hidden is None else self.hidden[first:last],
            weight=None if self.weight is None else self.weight[start:stop],
            origins=None if self.origins is None else self.origins[start:stop],
        )

    @property
    def n_hidden(self) -> Int64[Tensor, "b"]:
        """How many tokens each sample hides by a mask of its own."""
        if self.hidden is None:
            return torch.zeros_like(self.layout.lengths)
        running = torch.cat([torch.zeros(1, dtype=torch.int64), self.hidden.cpu().cumsum(0)])
        return running[self.layout.host_offsets].diff()

    def sample(self, i: int) -> Sample:
        """Sample number i, whose tensors are parts of these."""
        here = slice(*self.layout.host_offsets[i : i + 2].tolist())
        target = self.target
        if target is not None:
            target = target[here] if self.is_target_per_token else target[i]
        hidden = None if self.hidden is None or not bool(self.hidden[here].any()) else self.hidden[here]
        weight = None if self.weight is None else self.weight[i]
        return Sample(
            self.values[here], self.positions[here], target=target, id=self.ids[i], hidden=hidden, weight=weight
        )

    def visible(self) -> "PackedSamples":
        """The samples without the tokens that they hide."""
        if self.hidden is None:
            return self
        layout, index = self.layout.selected(~self.hidden)
        target = self.target
        if target is not None and self.is_target_per_token:
            target = target.index_select(0, index)
        values, positions = (x.index_select(0, index) for x in (self.values, self.positions))
        return replace(self, values=values, positions=positions, layout=layout, target=target, hidden=None)

    def batch(self) -> Batch:
        """The samples as a task takes them: positions in single precision, and hidden tokens taken out."""
        positions = to_single(self.positions, self.layout, self.ids)
        tokens = Tokens(self.values, positions, self.layout, self.rows)
        batch = Batch(tokens, target=self.target, ids=self.ids, weight=self.weight, origins=self.origins)
        if self.hidden is None:
            return batch
        _require_alike((self.n_hidden > 0).tolist(), "masks of their own (True: has one)")
        return replace(batch, tokens=tokens.select(~self.hidden), hidden=tokens.select(self.hidden))


def _is_run(indices: Int64[np.ndarray, "b"]) -> bool:
    """Whether these are neighbours in their order."""
    return (
        len(indices) > 0 and int(indices[-1] - indices[0]) == len(indices) - 1 and bool((np.diff(indices) == 1).all())
    )


def collate(samples: Sequence[Sample]) -> Batch:
    """Pack samples into a batch, for a `torch.utils.data.DataLoader` or a loop of your own.

    Parameters
    ----------
    samples : sequence of Sample
        At least one; they agree in channels, position axes and the shape of their targets, not in length.

    Returns
    -------
    Batch
        All tokens end to end. Tokens that the samples hide themselves are in `Batch.hidden`.

    Raises
    ------
    ValueError
        If there is no sample, samples do not agree, or positions are too large for single precision.
    TypeError
        If something else than samples is given.

    Examples
    --------
    >>> import romae
    >>> samples = [romae.Sample([[0.1], [0.2]], [[0.0], [1.0]]), romae.Sample([[0.3]], [[0.5]])]
    >>> romae.collate(samples).tokens.layout.lengths.tolist()
    [2, 1]
    """
    samples = sample_list(samples)
    if len(samples) == 0:
        raise ValueError("a batch needs at least one sample, and this one is empty")
    return PackedSamples.of(samples).batch()


def _packed_targets(samples: Sequence[Sample]) -> Tensor | None:
    _require_alike([s.target is not None for s in samples], "targets (True: has one)")
    if samples[0].target is None:
        return None
    targets = [s.target for s in samples]
    _require_alike([t.ndim for t in targets], "target dimensions")
    if targets[0].ndim:
        _require_alike([t.shape[-1] for t in targets], "target columns")
    return torch.cat(targets) if targets[0].ndim == 2 else torch.stack(targets)


def _packed_weights(samples: Sequence[Sample]) -> Float32[Tensor, "b"] | None:
    """The weight of each sample, 1 where it has none; None where none has any."""
    if all(s.weight is None for s in samples):
        return None
    return torch.stack([s.values.new_ones(()) if s.weight is None else s.weight for s in samples])


def _require_alike(properties: list[Any], name: str) -> None:
    for i, value in enumerate(properties):
        if value != properties[0]:
            raise ValueError(
                f"samples of a batch must agree in {name}: sample 0 has {properties[0]}, sample {i} has {value}"
            )


def _mean_gaps(positions: Float[Tensor, "t d"], layout: Layout) -> Float[Tensor, "b d"]:
    """How far apart neighbours of each sample are on the average, on each axis."""
    extent = sample_extreme(positions, layout, "max") - sample_extreme(positions, layout, "min")
    return extent / (layout.device_lengths - 1).clamp(min=1).unsqueeze(-1)


def to_single(positions: Float[Tensor, "t d"], layout: Layout, ids: Sequence[Hashable] = ()) -> Float32[Tensor, "t d"]:
    """Positions in single precision, refused where rounding would move them by a twentieth of the mean gap."""
    single = positions.float()
    if positions.dtype == torch.float32:
        return single
    moved = (single - positions).abs()
    most = moved.amax(0) if len(moved) else moved.sum(0)
    if not bool((most != 0).any()):
        return single
    gaps = _mean_gaps(positions[:, most != 0], layout)
    gaps = torch.where(gaps > 0, gaps, torch.inf).amin(0)
    if bool((most[most != 0] <= 0.05 * gaps).all()) and bool(torch.isfinite(most).all()):  # whoever moved most
        return single
    worst = sample_extreme(moved, layout, "max")
    extent = sample_extreme(positions, layout, "max") - sample_extreme(positions, layout, "min")
    gap = extent / (layout.device_lengths - 1).clamp(min=1).unsqueeze(-1)
    is_lost = ((worst > 0.05 * gap) & (gap > 0)) | ~torch.isfinite(worst)
    if bool(is_lost.any()):
        number, axis = is_lost.nonzero()[0].tolist()
        name = ids[number] if ids and ids[number] is not None else number
        if extent[number, axis] > torch.finfo(torch.float32).max:  # no origin would help
            raise ValueError(
                f"positions of sample {name!r} on axis {axis} are too far apart for single precision, by "
                f"{extent[number, axis]:.3g}; give them in larger units"
            )
        raise ValueError(
            f"positions of sample {name!r} on axis {axis} are too large for single precision: they would move by up to "
            f"{worst[number, axis]:.3g}, with a mean gap of {gap[number, axis]:.3g}; subtract an origin first, for "
            "example with romae.fit_scaling(samples, origin='first')"
        )
    return single

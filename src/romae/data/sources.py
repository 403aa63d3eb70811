"""Where samples come from: one protocol for lists, tables in memory, stores, folders of files and what users write.

A `SampleSource` knows the lengths and the names of its samples without reading them, and hands out any of them packed
end to end. Everything behind this border (loading, scaling, training, inference) knows sources alone, so that the same
samples give the same scaling, model, losses and answers, whatever they are kept in.

Shapes: n samples of a source, b of a batch, t tokens, c columns of values.
"""

import hashlib
import os
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol, overload, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int32, Int64
from torch import Tensor

from romae.data.schema import SampleSet, Schema, require_same_names
from romae.tokens.sample import Sample
from romae.tokens.tokens import Batch, PackedSamples

Indices = Int64[np.ndarray, "b"]
Gather = Callable[[Int32[Tensor, "t"]], Float[Tensor, "t c"]]

SHARE_OF_MEMORY = 0.125  # of the machine: samples that take more are not copied to be packed
ASSUMED_MEMORY = 8 << 30  # bytes, where the system does not say how much there is
N_DIGEST = 16  # samples that are read to tell a source on disk from others
AT_ONCE = 1 << 22  # numbers that are scaled together: their copies in double precision take 32 MB


@runtime_checkable
class Transform(Protocol):
    """What is done to samples on their way to a model, such as a `Scaling`."""

    def apply(self, sample: Sample) -> Sample: ...
    def apply_packed(self, packed: PackedSamples) -> PackedSamples: ...


@runtime_checkable
class SampleSource(Protocol):
    """What a class of the user's own has to offer at the border: the samples by their index, and how many there are.

    It may offer more, and is then asked for less: `lengths`, so that no sample is read to know how long it is,
    `schema`, the names of the data, and `packed(indices)`, many samples at once. `Source` has all of it.
    """

    def __len__(self) -> int: ...
    def __getitem__(self, index: Any, /) -> Any: ...


class Profile(NamedTuple):
    """The names of samples, and whether their targets are numbers; None where there are none, or nobody asks."""

    schema: Schema | None
    has_numbers: bool | None = None


class Source(Sequence):  # of samples; were that said here, a type checker at run time would read them
    """What sources share. `lengths` are the tokens of each sample, `schema` the names of the data, if they have any."""

    schema: Schema | None
    lengths: Int64[np.ndarray, "n"]
    is_in_memory: ClassVar[bool] = False  # whether `values_on` has them
    is_quick: bool = False  # whether some samples may be read twice; else each is a file, or who knows what

    @abstractmethod
    def packed(self, indices: Indices) -> PackedSamples:
        """Samples end to end, in the data's own units.

        Parameters
        ----------
        indices : Int64 array
            Which samples.

        Returns
        -------
        PackedSamples
            These samples, in this order.
        """

    def batch(self, indices: Indices) -> Batch:
        """Samples as a task takes them.

        Parameters
        ----------
        indices : Int64 array
            Which samples.

        Returns
        -------
        Batch
            These samples, in this order.
        """
        return self.packed(indices).batch()

    def profile(self) -> "Profile":
        """What can be said of the samples before any is learned from.

        Returns
        -------
        Profile
            Their names, and whether their targets are numbers.
        """
        if self.schema is None or self.schema.classes is None:
            return Profile(self.schema)
        target = self[0].target
        return Profile(self.schema, None if target is None else target.is_floating_point())

    def scaled(self, scaling: Transform | None) -> "Source":
        """The same samples as a model sees them; each is scaled when it is asked for, and stays where it is.

        Parameters
        ----------
        scaling : Scaling or None
            What `fit_scaling` gives; with None nothing is scaled.

        Returns
        -------
        Source
            For `Loader`, `evaluate` or a loop of your own.
        """
        return self if scaling is None else Scaled(self, scaling)

    @property
    def n_value_bytes(self) -> int:
        """What `values_on` takes on a device."""
        raise TypeError(f"the values of a {type(self).__name__} are not in memory")

    def values_on(self, device: torch.device) -> Gather:
        """For samples in memory: all values on a device, to be gathered there by the rows that batches bring.

        Parameters
        ----------
        device : torch.device
            Where to.

        Returns
        -------
        callable
            Rows [t] to values [t, c].

        Raises
        ------
        TypeError
            If the samples are not in memory.
        """
        raise TypeError(f"the values of a {type(self).__name__} are not in memory")

    def digest(self) -> str:
        """What tells these samples from others.

        Returns
        -------
        str
            A digest of their number, their lengths, and what is in some of them.
        """
        return digest_of(self, evenly(len(self), N_DIGEST))


class InMemory(Source):
    """Samples in memory, packed once, so that a batch is gathered instead of put together sample by sample."""

    is_in_memory = True
    is_quick = True

    def __init__(self, samples: Sequence[Sample], schema: Schema | None = None) -> None:
        self.samples: Sequence[Sample] | None = samples
        self.schema = schema
        self.all = PackedSamples.of(samples)

    @classmethod
    def of_packed(cls, packed: PackedSamples, schema: Schema | None = None) -> "InMemory":
        """Samples that are packed already; each is made when it is asked for."""
        source = object.__new__(cls)
        source.samples, source.schema, source.all = None, schema, packed
        return source

    @cached_property
    def lengths(self) -> Int64[np.ndarray, "n"]:  # type: ignore[override]
        # A copy, since torch moves what it hands to worker processes to other memory, under the eyes of numpy.
        return self.all.layout.lengths.numpy().copy()

    def __len__(self) -> int:
        return len(self.all)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if self.samples is not None:
            return self.samples[index]
        return self.all.sample(range(len(self))[index]).with_schema(self.schema)

    def packed(self, indices: Indices, *, by_row: bool = False) -> PackedSamples:
        return self.all.take(indices, by_row=by_row)

    def batch(self, indices: Indices, *, by_row: bool = False) -> Batch:
        return self.packed(indices, by_row=by_row).batch()

    def scaled(self, scaling: Transform | None) -> Source:
        """The same samples, all of them scaled now."""
        if scaling is None:
            return self
        return InMemory.of_packed(_scaled_in_parts(self.all, scaling), self.schema)

    def digest(self) -> str:
        """All of them are at hand, and all are looked at."""
        digest = hashlib.sha256(self.lengths.tobytes())
        digest.update(repr(self.all.ids).encode())
        for part in (self.all.values, self.all.positions, self.all.target, self.all.hidden, self.all.weight):
            digest.update(_bytes(part))
        return digest.hexdigest()

    @property
    def n_value_bytes(self) -> int:
        return self.all.values.nbytes

    def values_on(self, device: torch.device) -> Gather:
        """All values on a device, to be gathered there by the rows that batches bring `by_row`."""
        values = self.all.values.to(device)
        return lambda rows: values.index_select(0, rows)


class Lazy(Source):
    """A sequence that makes each sample when it is asked for: what users write themselves, or too much to be copied."""

    def __init__(self, samples: SampleSource, schema: Schema | None = None, name: str = "samples") -> None:
        self.samples, self.schema = samples, schema or getattr(samples, "schema", None)
        self.first: Sample | None = None
        if not isinstance(samples, Source):
            self.first = _require_sample(samples[0], 0, name)  # kept until it is asked for: reading may be slow
            self.schema = self.schema or self.first.schema

    @cached_property
    def lengths(self) -> Int64[np.ndarray, "n"]:  # type: ignore[override]
        """As the sequence says, or else each sample is read once."""
        lengths = getattr(self.samples, "lengths", None)
        return np.asarray([len(sample) for sample in self] if lengths is None else lengths, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.samples)

    def __iter__(self) -> Iterator[Sample]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if index == 0 and self.first is not None:
            sample, self.first = self.first, None
        else:
            sample = _require_sample(self.samples[index], index)
        return sample if self.schema is None else sample.with_schema(self.schema)

    def packed(self, indices: Indices) -> PackedSamples:
        if hasattr(self.samples, "packed"):
            return self.samples.packed(indices)
        return PackedSamples.of([self[int(i)] for i in indices])


class Scaled(Source):
    """A source whose samples are scaled when they are asked for."""

    def __init__(self, source: Source, scaling: Transform) -> None:
        self.source, self.scaling, self.schema = source, scaling, source.schema
        self.is_quick = source.is_quick

    @property
    def lengths(self) -> Int64[np.ndarray, "n"]:  # type: ignore[override]
        return self.source.lengths

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self.scaling.apply(sample) for sample in self.source[index]]
        return self.scaling.apply(self.source[index])

    def packed(self, indices: Indices) -> PackedSamples:
        return self.scaling.apply_packed(self.source.packed(indices))


@overload
def as_source(samples: None, name: str = ..., *, with_targets: bool = ...) -> None: ...
@overload
def as_source(samples: Any, name: str = ..., *, with_targets: bool = ...) -> Source: ...
def as_source(samples: Any, name: str = "samples", *, with_targets: bool = True) -> Source | None:
    """Whatever holds samples, as a source; what is no sequence of samples is refused under this name.

    Without targets, samples in memory need not agree in theirs.
    """
    if samples is None or isinstance(samples, Source):
        return samples
    require_sequence(samples, name)
    inner, schema = (samples.samples, samples.schema) if isinstance(samples, SampleSet) else (samples, None)
    if isinstance(inner, Source):
        return inner if inner.schema == schema else Lazy(inner, schema)
    if not isinstance(inner, list | tuple):
        return Lazy(inner, schema, name)
    for i, sample in enumerate(inner):
        _require_sample(sample, i, name)
    schema = schema or common_schema(inner)
    if not with_targets and any(sample.target is not None for sample in inner):
        inner = [replace(sample, target=None) for sample in inner]
    n_bytes = sum(sample.values.nbytes for sample in inner)
    is_small = n_bytes <= SHARE_OF_MEMORY * _memory()
    return InMemory(inner, schema) if is_small else Lazy(inner, schema)


def lengths_of(samples: Any) -> Int64[np.ndarray, "n"]:
    """The tokens of each sample, whatever holds them."""
    if isinstance(samples, SampleSet):
        return lengths_of(samples.samples)
    if isinstance(samples, list | tuple):
        return np.array([len(sample) for sample in samples], dtype=np.int64)
    return as_source(samples).lengths


def ids_of(samples: Any) -> list[Any]:
    """The id of each sample, or its place where it has none; of samples in memory without making each of them."""
    inner = samples.samples if isinstance(samples, SampleSet) else samples
    ids = inner.all.ids if isinstance(inner, InMemory) else [sample.id for sample in inner]
    return [i if name is None else name for i, name in enumerate(ids)]


def schema_of(samples: Any) -> Schema | None:
    """The names of the data that samples come from, whatever holds them; None where they have none."""
    if isinstance(samples, list | tuple):
        return common_schema([sample for sample in samples if isinstance(sample, Sample)])
    schema = getattr(samples, "schema", None)
    if schema is None and not isinstance(samples, Source | SampleSet) and hasattr(samples, "__getitem__"):
        first = samples[0] if len(samples) else None
        return first.schema if isinstance(first, Sample) else None
    return schema


def common_schema(samples: Sequence[Sample]) -> Schema | None:
    """The schema that samples share; samples that call other things by the same numbers are refused."""
    first_with = {id(sample.schema): i for i, sample in reversed(list(enumerate(samples))) if sample.schema is not None}
    if not first_with:
        return None
    places = sorted(first_with.values())
    # Channels and classes may be missing at the end; whoever has all of them names them for the others.
    fullest = max(places, key=lambda i: (len(samples[i].schema.channels), samples[i].schema.classes is not None))
    shared = samples[fullest].schema
    for i in places:
        if samples[i].schema != shared:
            subject, others = f"samples (number {i})", f"number {fullest} has"
            require_same_names(samples[i].schema, shared, subject=subject, others=others, with_classes=True)
    return shared


def digests(source: Source, validation: Source | None) -> dict[str, str | None]:
    """What tells samples to train and to validate on from others."""
    return {"training": source.digest(), "validation": None if validation is None else validation.digest()}


def digest_of(samples: Source, indices: Sequence[int] | np.ndarray) -> str:
    """What tells samples from others: how many there are, how long they are, and what is in these of them."""
    digest = hashlib.sha256(np.ascontiguousarray(samples.lengths, dtype=np.int64).tobytes())
    for i in np.asarray(indices).tolist():
        sample = samples[i]
        digest.update(repr(sample.id).encode())
        for part in (sample.values, sample.positions, sample.target, sample.hidden, sample.weight):
            digest.update(_bytes(part))
    return digest.hexdigest()


def evenly(n: int, n_chosen: int) -> Int64[np.ndarray, "chosen"]:
    """So many of n numbers, from the first to the last, or all of them."""
    return np.unique(np.linspace(0, n - 1, n_chosen).astype(np.int64))


def _bytes(x: Tensor | None) -> bytes:
    return b"" if x is None else x.contiguous().flatten().view(torch.uint8).numpy().tobytes()


def require_sequence(samples: Any, name: str) -> None:
    """Refuse what is no sequence of samples, or an empty one."""
    message = f"{name} are a list, a SampleSet or a store, not {type(samples).__name__}"
    if isinstance(samples, Sample):
        raise TypeError(f"{message}; put a single sample into a list")
    if not hasattr(samples, "__len__") or not hasattr(samples, "__getitem__") or hasattr(samples, "keys"):
        raise TypeError(f"{message}; list(…) makes one")
    if len(samples) == 0:
        raise ValueError(f"there are no {name}: the list is empty")


def _memory() -> int:
    """The memory of this machine in bytes: all of it, since what is free would differ from run to run."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # Windows does not say
        return ASSUMED_MEMORY


def _require_sample(sample: Any, i: Any, name: str = "samples") -> Sample:
    if not isinstance(sample, Sample):
        raise TypeError(
            f"{name} are instances of Sample, and number {i} is {type(sample).__name__}; romae.from_arrays, "
            "from_table and the like make them"
        )
    return sample


def _scaled_in_parts(packed: PackedSamples, scaling: Transform) -> PackedSamples:
    """All samples scaled, so many at a time that the copies in double precision stay small."""
    per_sample = packed.layout.lengths * (packed.values.shape[1] + packed.positions.shape[1])
    if int(per_sample.sum()) <= AT_ONCE:
        return scaling.apply_packed(packed)
    part_of_sample = (per_sample.cumsum(0) // AT_ONCE).numpy()
    numbers = np.arange(len(packed))
    parts = [scaling.apply_packed(packed.take(numbers[part_of_sample == part])) for part in np.unique(part_of_sample)]
    return PackedSamples(
        torch.cat([part.values for part in parts]),
        torch.cat([part.positions for part in parts]),
        packed.layout,
        target=None if packed.target is None else torch.cat([part.target for part in parts if part.target is not None]),
        ids=packed.ids,
        hidden=packed.hidden,
        is_target_per_token=packed.is_target_per_token,
        weight=packed.weight,
        origins=None if parts[0].origins is None else torch.cat([x for p in parts if (x := p.origins) is not None]),
    )

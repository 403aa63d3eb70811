"""The names of the data that samples come from, and samples that keep them.

The time is the first position axis; further positions follow; where each scalar is a token of its own, the index of
its channel comes last.
"""

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, overload

import numpy as np
from jaxtyping import Float
from torch import Tensor

from romae.data.columns import Name, require_distinct, to_numpy
from romae.data.dates import TimeUnit, duration_as_number, moment_as_number, require_same_zone, require_unit
from romae.data.phase import Phase
from romae.tokens.sample import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A static fact of samples, which is a kind of token: a number, or one category of a column.

    Parameters
    ----------
    column : str
        The column that it comes from.
    category : str, int or bool, optional
        The category; None where the fact is a number.

    Examples
    --------
    >>> from romae.data.schema import Fact
    >>> Fact(column="age").name, Fact(column="sex", category="F").name
    ('age', 'sex=F')
    """

    column: str
    category: Name | None = None

    @property
    def name(self) -> str:
        """What it is called in tables and messages."""
        return self.column if self.category is None else f"{self.column}={self.category}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """The names of the data that samples come from: columns, channels, classes, and the unit of time.

    The functions that read data make it, a task keeps it, and results are handed back under its names.

    Parameters
    ----------
    id : str, default "id"
        The column of ids.
    time : str, default "time"
        The column of times, the first position axis.
    positions : tuple of str, default ()
        The columns of further position axes.
    channel : str, optional
        The column that names what was measured, the last position axis; None where a token holds all channels as
        values.
    values : tuple of str, default ("value",)
        The columns of values.
    label : str, optional
        The column of targets.
    channels : tuple of str, int or bool, default ()
        The name of each index on the channel axis.
    classes : tuple of str, int or bool, optional
        The name of each class index; None where targets are numbers or absent.
    labels : tuple of str, int or bool, optional
        The names of several labels, of which any number may be true of a sample: targets are vectors of 0 and 1 in
        their order. Without a column of targets they are columns themselves.
    separator : str, optional
        What stands between the labels of a sample in the column of targets, such as "|".
    time_unit : "second", "minute", "hour", "day" or None, default None
        What dates were counted in, since 1970, or durations; None where times are numbers.
    time_zone : str, optional
        The zone that dates are shown in.
    durations : bool, default False
        Whether times were durations or times of day, counted in `time_unit` from 0, and no dates.
    static : tuple of Fact, default ()
        The static facts of samples, whose kinds follow the channels on the channel axis.
    errors : tuple of str, default ()
        The columns of measurement errors, one for each column of values, which follow the values of a token in their
        order; or, for a table with a column per channel, one for each channel. An error of 0 is not known.
    phase : Phase, optional
        How the phase was found, which is then the second position axis and no column (`add_phase`).
    fluxes : {"difference"}, optional
        That values are fluxes relative to a reference, around 0, so that a model warns of others.

    Raises
    ------
    ValueError
        If there is no column of values, a name occurs twice, or errors are more or fewer than what they belong to.
    TypeError
        If a column's name is no text.

    Examples
    --------
    >>> import romae
    >>> schema = romae.Schema(id="star", time="day", channel="band", values=("flux",), channels=("g", "r"))
    >>> schema.columns, schema.position_dims, schema.n_channels
    (('star', 'day', 'flux', 'band'), 2, 2)
    """

    id: str = "id"
    time: str = "time"
    positions: tuple[str, ...] = ()
    channel: str | None = None
    values: tuple[str, ...] = ("value",)
    label: str | None = None
    channels: tuple[Name, ...] = ()
    classes: tuple[Name, ...] | None = None
    labels: tuple[Name, ...] | None = None
    separator: str | None = None
    time_unit: TimeUnit | None = None
    time_zone: str | None = None
    durations: bool = False
    static: tuple[Fact, ...] = ()
    errors: tuple[str, ...] = ()
    phase: Phase | None = None
    fluxes: Literal["difference"] | None = None

    def __post_init__(self) -> None:
        if not self.values:
            raise ValueError("name at least one column of values")
        if len(self.errors) not in (0, len(self.values), len(self.channels)):
            raise ValueError(
                f"each column of values has an error of its own: {len(self.errors)} are named "
                f"({', '.join(map(str, self.errors))}) for {len(self.values)} ({', '.join(map(str, self.values))})"
            )
        if not all(isinstance(column, str) for column in self.errors):
            raise TypeError(f"column names must be text, got {list(self.errors)}; rename them with columns=str")
        require_distinct(self.errors, "columns of errors")
        if not all(isinstance(column, str) for column in self.columns):
            raise TypeError(f"column names must be text, got {list(self.columns)}; rename them with columns=str")
        if self.time_unit is not None:
            require_unit(self.time_unit)
        elif self.durations:
            raise ValueError("durations are counted in a unit; name it with time_unit=")
        require_distinct(self.columns, "columns")
        require_distinct(self.channels, "channels")
        require_distinct(self.classes or (), "classes")
        require_distinct(self.labels or (), "labels")
        if self.separator is not None and (self.separator == "" or self.label is None):
            raise ValueError("a separator stands between the labels of one column: name it with label=, such as '|'")

    @property
    def without_label(self) -> "Schema":
        """The same names without those of targets."""
        return replace(self, label=None, classes=None, labels=None, separator=None)

    @property
    def has_several_labels(self) -> bool:
        """Whether targets are vectors of 0 and 1, or will be once the names in the column of targets are read."""
        return self.labels is not None or self.separator is not None

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column that is read."""
        optional = [column for column in (self.channel, self.label) if column is not None]
        return (self.id, self.time, *self.positions, *self.values, *self.error_names, *optional)

    @property
    def n_errors(self) -> int:
        """How many columns of errors follow those of values: none, or one for each."""
        return len(self.values) if self.errors else 0

    @property
    def error_names(self) -> tuple[str, ...]:
        """What the errors are called beside the values: as their columns, or after the values if channels had some."""
        if len(self.errors) in (0, len(self.values)):
            return self.errors
        return tuple(f"{name}_error" for name in self.values)

    @property
    def position_dims(self) -> int:
        """The number of position axes: time, phase and channel where there are such, and further positions."""
        return len(self.coordinates) + (self.channel is not None)

    @property
    def coordinates(self) -> tuple[str, ...]:
        """The names of the position axes before the channel."""
        phase = () if self.phase is None else ("phase",)
        return (self.time, *phase, *self.positions)

    @property
    def form_of_times(self) -> str:
        """What the times are, in words: numbers, or dates or durations with their unit."""
        if self.time_unit is None:
            return "numbers"
        return f"{'durations' if self.durations else 'dates'}, counted by the {self.time_unit}"

    @property
    def n_channels(self) -> int | None:
        """The number of indices on the channel axis, static facts among them; None where there is no such axis."""
        return len(self.kind_names) if self.channel is not None and self.channels else None

    @property
    def kind_names(self) -> tuple[Name, ...]:
        """The name of each index on the channel axis: the channels, then the static facts."""
        return (*self.channels, *(fact.name for fact in self.static))

    @property
    def static_from(self) -> int | None:
        """The index on the channel axis from which on tokens are static facts; None where there are none."""
        return len(self.channels) if self.static else None

    def moment(self, moment: Any, where: str = "the moment") -> float:
        """A moment as a number of the time axis.

        Parameters
        ----------
        moment : float, str, date or duration
            In the form of the times of the data; dates and durations may be text.
        where : str, default "the moment"
            What messages call it.

        Returns
        -------
        float
            In the unit of the data.

        Raises
        ------
        ValueError
            If it is no date or duration.
        TypeError
            If times have another form.
        """
        return moment_as_number(moment, self.time_unit, self.time_zone, where, are_durations=self.durations)

    def duration(self, length: Any, where: str = "the duration") -> float:
        """A length of time as a number of the time axis.

        Parameters
        ----------
        length : float, str or duration
            A number in the unit of the data, a duration, or text such as "24h".
        where : str, default "the duration"
            What messages call it.

        Returns
        -------
        float
            In the unit of the data.

        Raises
        ------
        ValueError
            If it is no duration.
        TypeError
            If times have no unit.
        """
        return duration_as_number(length, self.time_unit, where)

    def numbers_of_channels(self, names: Sequence[Name]) -> list[int]:
        """The indices of channels on the channel axis.

        Parameters
        ----------
        names : sequence of str or int
            By name or by number from 0 on; a name goes before a number.

        Returns
        -------
        list of int
            In the same order.

        Raises
        ------
        ValueError
            If there is no such channel, or channels are no axis.
        """
        if self.channel is None:
            raise ValueError(
                f"the channels {list(names)} are columns of one token here; read the data with a token for each number "
                "(tokens='scalars')"
            )
        by_name = {str(name): i for i, name in enumerate(self.channels)}
        by_number = {str(i): i for i in range(len(self.channels))}
        for name in names:
            if str(name) not in by_name and str(name) not in by_number:
                raise ValueError(f"there is no channel {name!r}; there are {', '.join(map(str, self.channels))}")
        return [by_name.get(str(name), by_number.get(str(name), -1)) for name in names]


def require_same_names(
    schema: Schema, expected: Schema, *, subject: str, others: str, with_classes: bool = False
) -> None:
    """Refuse data whose numbers mean something else than the expected schema says.

    Channels without names, 0 to n - 1, stand for any that have some; of the expected ones the last may be missing.
    Columns may have other names, but an expected one keeps its place.

    Messages begin with the `subject`, such as "validation samples", and say of `others` what they have.
    """
    n = len(schema.channels)
    is_unnamed = schema.channels == tuple(range(n)) and not all(isinstance(name, int) for name in expected.channels)
    wrong: tuple[str, Any, Any] | None = None
    facts, expected_facts = ([fact.name for fact in one.static] or "none" for one in (schema, expected))
    if schema.durations != expected.durations:
        wrong = ("times", schema.form_of_times, expected.form_of_times)
    elif schema.time_unit != expected.time_unit:
        numbers = "none (times are numbers)"
        wrong = ("time unit", schema.time_unit or numbers, expected.time_unit or numbers)
    elif (schema.channel is None) != (expected.channel is None):
        wrong = ("channel column", schema.channel, expected.channel)
    elif schema.phase is not None and expected.phase is None:
        wrong = ("position axes", list(schema.coordinates), list(expected.coordinates))
    elif n > len(expected.channels) or not (is_unnamed or _as_text(schema.channels) == _as_text(expected.channels[:n])):
        wrong = ("channels", list(schema.channels), list(expected.channels))
    elif facts != expected_facts or (schema.static and n != len(expected.channels)):
        wrong = ("static facts", facts, expected_facts)
    elif bool(schema.errors) != bool(expected.errors):
        wrong = ("measurement errors", list(schema.errors) or "none", list(expected.errors) or "none")
    elif _is_reordered(schema.values, expected.values):
        wrong = ("values", list(schema.values), list(expected.values))
    elif _is_reordered((schema.time, *schema.positions), (expected.time, *expected.positions)):
        wrong = ("positions", [schema.time, *schema.positions], [expected.time, *expected.positions])
    elif with_classes and None not in (schema.classes, expected.classes) and schema.classes != expected.classes:
        wrong = ("classes", list(schema.classes or ()), list(expected.classes or ()))
    elif with_classes and None not in (schema.labels, expected.labels) and schema.labels != expected.labels:
        wrong = ("labels", list(schema.labels or ()), list(expected.labels or ()))
    if wrong is not None:
        part, has, wants = wrong
        raise ValueError(
            f"the {subject} have the {part} {has}, but {others} {wants}; read them in the same way, for example with "
            "from_table_like(table, schema)"
        )
    if expected.time_unit is not None:
        require_same_zone(schema.time_zone, expected.time_zone, f"the {subject}")


def _as_text(names: Sequence[Name]) -> list[str]:
    """Names as they are written: 5 and '5' are one."""
    return [str(name) for name in names]


def _is_reordered(names: Sequence[str], expected: Sequence[str]) -> bool:
    """Whether an expected name stands at another place; names that are not expected may stand for any."""
    return any(name in expected and expected.index(name) != i for i, name in enumerate(names))


def measured_values(sample: Sample) -> Float[Tensor, "n c"]:
    """The values of a sample without the measurement errors that may follow them."""
    n_errors = 0 if sample.schema is None else sample.schema.n_errors
    return sample.values[:, : sample.values.shape[1] - n_errors]


@dataclass(frozen=True, eq=False, repr=False)
class SampleSet(Sequence[Sample]):
    """Samples together with the names of the data they come from: what `from_table` and `from_arrays` return.

    It is a sequence. Slices, index arrays and boolean masks give smaller sets with the same names, so that
    `train_test_split` and cross-validation of scikit-learn work on it.

    Parameters
    ----------
    samples : sequence of Sample
        The samples.
    schema : Schema
        Their names.

    Examples
    --------
    >>> import numpy as np
    >>> import romae
    >>> samples = romae.from_arrays(np.zeros((4, 3, 1)), y=["up", "down", "up", "up"])
    >>> samples[1:3]
    SampleSet(2 samples of channel_0, 2 classes)
    >>> samples.schema.classes
    ('down', 'up')
    """

    samples: Sequence[Sample]
    schema: Schema

    def __post_init__(self) -> None:
        if isinstance(self.samples, list | tuple):  # each keeps the names, also where it leaves the set
            named = [sample.with_schema(self.schema) for sample in self.samples]
            object.__setattr__(self, "samples", named)

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def shape(self) -> tuple[int]:
        """(number of samples,), as of an array, for scikit-learn's splitters."""
        return (len(self),)

    def __iter__(self) -> Iterator[Sample]:
        return (sample.with_schema(self.schema) for sample in self.samples)

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> "SampleSet": ...
    def __getitem__(self, index: Any) -> Any:
        if hasattr(index, "__index__") and getattr(index, "ndim", 0) == 0:
            return self.samples[operator.index(index)].with_schema(self.schema)
        chosen = np.arange(len(self))[to_numpy(index) if isinstance(index, Tensor) else index]
        return SampleSet([self.samples[int(i)] for i in chosen], self.schema)

    def __repr__(self) -> str:
        labelled = "" if self.schema.classes is None else f", {len(self.schema.classes)} classes"
        labelled = labelled if self.schema.labels is None else f", {len(self.schema.labels)} labels"
        return f"SampleSet({len(self)} samples of {', '.join(self.schema.values)}{labelled})"

    def map(self, function: Callable[[Sample], Sample]) -> "SampleSet":
        """Apply a function to every sample.

        Parameters
        ----------
        function : callable
            Takes a sample and returns one, such as `scaling.apply`.

        Returns
        -------
        SampleSet
            The new samples with the same names.
        """
        return SampleSet([function(sample) for sample in self.samples], self.schema)

"""What lies far outside the training data: counted batch by batch, and told in one warning.

A model answers for any numbers. Those in other units, or of another clock than in training, get answers that mean
nothing, and nothing in them shows it. Shapes: t tokens, m channels, c columns of values, d position axes.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float64

from romae.data.phase import PHASE_AXIS
from romae.data.photometry import looks_undifferenced
from romae.data.ranges import Ranges, gaps_and_spans
from romae.data.scaling import Scaling
from romae.data.schema import Schema
from romae.tokens.tokens import PackedSamples, channel_index

# How far beyond their range numbers may lie, as a share of it. A longer series differs little from what was seen; on a
# clock that samples share, each coordinate stands for itself.
BEYOND, BEYOND_ON_A_SHARED_CLOCK = 0.5, 0.1
DENSER = 5  # times as dense, and as short, as what was seen: times in another unit; units of time differ by 7 and more
MOST_NAMED = 4  # channels and axes; of more, their number is told
UNDIFFERENCED = 0.5  # share of samples with fluxes far above 0, from which on a model of differences warns
WHAT_TO_DO = "predictions for them are extrapolations; check units, channels and the origin of times"


@dataclass
class _Count:
    """How many numbers were looked at, how many lie outside, and the extremes of those."""

    n: int = 0
    n_outside: int = 0
    lowest: float = np.inf
    highest: float = -np.inf

    def add(self, x: Float64[np.ndarray, "n"], is_outside: Bool[np.ndarray, "n"]) -> None:
        self.n += len(x)
        if is_outside.any():
            self.n_outside += int(is_outside.sum())
            self.lowest = min(self.lowest, float(x[is_outside].min()))
            self.highest = max(self.highest, float(x[is_outside].max()))

    def parts(self) -> tuple[str, str]:
        """How many of how many, and between which numbers they lie."""
        between = f"{self.lowest:.4g}"
        if self.lowest != self.highest:
            between += f" to {self.highest:.4g}"
        return f"{self.n_outside} of {self.n}", between


class Outside:
    """Counts what lies far outside the data that a scaling was fitted on; it says nothing where that is not known."""

    def __init__(self, scaling: Scaling | None, schema: Schema | None) -> None:
        self.scaling = Scaling() if scaling is None else scaling
        self.schema = schema or Schema()
        self.n_samples = self.n_undifferenced = 0
        self.seen: Ranges | None = self.scaling.seen
        if self.seen is None:
            return
        self.values: dict[tuple[int, int], _Count] = {}
        self.positions: dict[tuple[str, int], _Count] = {}
        self.gaps = _Count()
        self.value_limits = _limits_of_values(self.scaling, self.seen)
        # What lies within these lies within the limits of every channel; one that the data did not have, has none.
        self.inner_limits: tuple[np.ndarray, np.ndarray] | None = None
        if all(len(low) for low, _ in self.value_limits):
            lows, highs = zip(*self.value_limits, strict=True)
            self.inner_limits = np.max(lows, axis=0), np.min(highs, axis=0)
        # The last axis is no coordinate where it is the index of a channel.
        # How many cycles a sample covers says nothing of its phase, of which fractions alone matter.
        without = (PHASE_AXIS,) if self.schema.phase is not None else ()
        self.axes = [axis for axis in range(len(self.seen.earliest) - self.seen.by_channel) if axis not in without]

    def add(self, packed: PackedSamples) -> None:
        """Count samples, in the data's own units. What they hide is not shown to the model, so it does not count."""
        if self.seen is None and self.schema.fluxes is None:
            return
        shown = packed.visible() if packed.hidden is not None else packed
        n_values = shown.values.shape[1] - self.scaling.errors
        values = shown.values[:, :n_values].double()
        if self.schema.fluxes == "difference":
            self._add_fluxes(shown, values[:, 0].cpu().numpy())
        if self.seen is None:
            return
        if not self._are_values_within(values, shown):
            self._add_values(values.cpu().numpy(), shown)
        origins = self.scaling.origins_of(packed)
        own = packed.positions
        if any(rule != "none" for rule in self.scaling.origins):
            own = own - origins[packed.layout.sample_of_token]
        self.add_positions(own, "tokens")
        if self.seen.shortest_gap is not None and self.seen.shortest_span is not None:
            self._add_gaps(packed, self.seen.shortest_gap / DENSER, self.seen.shortest_span / DENSER)

    def _are_values_within(self, values: Float64[torch.Tensor, "t c"], shown: PackedSamples) -> bool:
        """Whether all lie within the limits of every channel, as most do; they are counted if so."""
        if self.inner_limits is None or len(values) == 0:
            return False
        low, high = (torch.from_numpy(limit).to(values.device) for limit in self.inner_limits)
        lowest, highest = values.aminmax(dim=0)
        if not bool(((lowest >= low) & (highest <= high)).all()):
            return False
        counts = [len(values)]
        if self.seen is not None and self.seen.by_channel:
            n = len(self.seen.lowest)
            counts = torch.bincount(channel_index(shown.positions, n), minlength=n).tolist()
        for row, count in enumerate(counts):
            for column in range(values.shape[1] if count else 0):
                self.values.setdefault((row, column), _Count()).n += count
        return True

    def _add_values(self, values: Float64[np.ndarray, "t c"], shown: PackedSamples) -> None:
        assert self.seen is not None
        channel = np.zeros(len(values), dtype=np.int64)
        if self.seen.by_channel:
            channel = channel_index(shown.positions, len(self.seen.lowest)).cpu().numpy()
        for row, (low, high) in enumerate(self.value_limits):
            rows = values if not self.seen.by_channel else values[channel == row]
            for column in range(values.shape[1] if len(rows) else 0):
                x = rows[:, column]
                # A channel that the data did not have has no limits.
                is_outside = (x < low[column]) | (x > high[column]) if len(low) else np.ones(len(x), dtype=bool)
                self.values.setdefault((row, column), _Count()).add(x, is_outside)

    def _add_gaps(self, packed: PackedSamples, gap: float, span: float) -> None:
        """Count samples that are denser and shorter than that."""
        times = packed.positions[:, 0].double()
        offsets = packed.layout.offsets.to(times.device).long()
        if len(times) == 0 or not bool(packed.layout.lengths.all()):
            return self._add_gaps_of(packed, gap, span)
        steps = times.diff()
        steps[offsets[1:-1] - 1] = 0  # between two samples
        spans = times[offsets[1:] - 1] - times[offsets[:-1]]
        if bool((steps < 0).any() | ((spans > 0) & (spans < span)).any()):
            return self._add_gaps_of(packed, gap, span)
        self.gaps.n += int((spans > 0).sum())
        return None

    def _add_gaps_of(self, packed: PackedSamples, gap: float, span: float) -> None:
        times = packed.positions[:, 0].double().cpu().numpy()
        gaps, spans = gaps_and_spans(times, packed.layout.sample_of_token.cpu().numpy(), len(packed))
        is_dense = (gaps < gap) & (spans < span)
        self.gaps.add(gaps[gaps > 0], is_dense[gaps > 0])

    def _add_fluxes(self, shown: PackedSamples, flux: Float64[np.ndarray, "t"]) -> None:
        """Count samples whose fluxes are far above 0 in most bands: no difference fluxes, as the model was taught."""
        n, n_bands = len(shown), max(len(self.schema.channels), 1)
        cell = shown.layout.sample_of_token.cpu().numpy() * n_bands
        if self.schema.channel is not None:
            cell = cell + channel_index(shown.positions, n_bands).cpu().numpy()
        is_far, is_judged = looks_undifferenced(flux, cell, np.repeat(np.arange(n), n_bands))
        self.n_samples += int(is_judged.sum())
        self.n_undifferenced += int(is_far.sum())

    def add_positions(self, positions: torch.Tensor, of: str) -> None:
        """Count coordinates from which the origins of their samples are subtracted."""
        if self.seen is None:
            return
        limits = {
            axis: _limits(
                self.seen.earliest[axis],
                self.seen.latest[axis],
                BEYOND if self._has_own_origin(axis) else BEYOND_ON_A_SHARED_CLOCK,
            )
            for axis in self.axes
        }
        if len(positions):
            lowest, highest = torch.stack(positions.double().aminmax(dim=0)).tolist()
            if all(low <= lowest[axis] and highest[axis] <= high for axis, (low, high) in limits.items()):
                for axis in self.axes:  # as nearly always
                    self.positions.setdefault((of, axis), _Count()).n += len(positions)
                return
        x = positions.double().cpu().numpy()
        for axis, (low, high) in limits.items():
            is_outside = (x[:, axis] < low) | (x[:, axis] > high)
            self.positions.setdefault((of, axis), _Count()).add(x[:, axis], is_outside)

    def warn(self, stacklevel: int = 2) -> None:
        """One warning for all that was counted, or none; and one for fluxes of another kind."""
        if self.n_undifferenced > UNDIFFERENCED * self.n_samples:
            warnings.warn(
                f"{self.n_undifferenced} of {self.n_samples} samples have fluxes far above 0, and the model was "
                "trained on difference fluxes, whose reference is subtracted: its answers will be wrong; "
                "romae.data.photometry.difference_flux subtracts a reference, or the median of each band",
                stacklevel=stacklevel + 1,
            )
        if self.seen is None:
            return
        found = list(self._told())
        if found:
            more = f"; and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
            warnings.warn(
                f"data far outside those of training: {'; '.join(found[:MOST_NAMED])}{more}; {WHAT_TO_DO}",
                stacklevel=stacklevel + 1,
            )

    def _told(self) -> Iterator[str]:
        assert self.seen is not None
        for (row, column), count in self.values.items():
            if count.n_outside:
                many, between = count.parts()
                known = "a channel that was not in training"
                if self.seen.lowest[row]:
                    known = f"{self.seen.lowest[row][column]:.4g} to {self.seen.highest[row][column]:.4g} in training"
                yield f"{many} values of {self._value_name(row, column)} ({between}; {known})"
        for (of, axis), count in self.positions.items():
            if count.n_outside:
                many, between = count.parts()
                counted = ", counted from each sample's first" if self._has_own_origin(axis) else ""
                known = f"{self.seen.earliest[axis]:.4g} to {self.seen.latest[axis]:.4g} in training"
                yield f"{many} {of} on the axis {self._axis_name(axis)} ({between}; {known}{counted})"
        if self.gaps.n_outside:
            many, between = self.gaps.parts()
            known = f"{self.seen.shortest_gap:.4g} or more in training"
            yield f"{many} samples in mean gaps and spans of {self._axis_name(0)} (gaps of {between}; {known})"

    def _has_own_origin(self, axis: int) -> bool:
        return bool(self.scaling.origins) and self.scaling.origins[axis] in ("first", "min")

    def _value_name(self, row: int, column: int) -> str:
        values, channels = self.schema.values, self.schema.kind_names
        name = repr(values[column] if column < len(values) else column)
        if self.seen is None or not self.seen.by_channel:
            return name
        channel = repr(channels[row] if row < len(channels) else row)
        return channel if len(values) == 1 else f"{name} in channel {channel}"

    def _axis_name(self, axis: int) -> str:
        names = self.schema.coordinates
        return repr(names[axis] if axis < len(names) else axis)


def _limits(low: float, high: float, beyond: float) -> tuple[float, float]:
    """Where far outside begins; what was constant in training may differ by rounding alone."""
    margin = beyond * (high - low) + 1e-5 * max(abs(low), abs(high))
    return low - margin, high + margin


def _limits_of_values(
    scaling: Scaling, seen: Ranges
) -> list[tuple[Float64[np.ndarray, "_"], Float64[np.ndarray, "_"]]]:
    """For each channel where far outside begins, by column: as far as the model sees it, so that asinh counts."""
    limits = []
    for row, (lowest, highest) in enumerate(zip(seen.lowest, seen.highest, strict=True)):
        if not lowest:
            limits.append((np.zeros(0), np.zeros(0)))
            continue
        place = torch.full((2, max(len(seen.earliest), 1)), float(row), dtype=torch.float64)
        ends = scaling.scale_values(torch.tensor([lowest, highest], dtype=torch.float64), place)
        margin = BEYOND * (ends[1] - ends[0])
        low, high = scaling.invert_values(torch.stack([ends[0] - margin, ends[1] + margin]), place).numpy()
        slack = 1e-5 * np.maximum(np.abs(lowest), np.abs(highest))
        limits.append((low - slack, high + slack))
    return limits

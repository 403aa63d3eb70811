"""Scaling: values, positions and targets brought to sizes that suit a model, and exactly back.

A `Scaling` is fitted on the training data alone and saved with the model. Shapes: t tokens of all samples, n tokens
of one, c columns of values, d position dimensions, k targets.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from romae.data.bends import BENT, Method, bent, steepness, straightened
from romae.data.fitting import Center, Values, fit_centring, fit_target, fit_values, median_errors
from romae.data.own_units import OwnUnits
from romae.data.packed_numbers import PackedNumbers
from romae.data.phase import PHASE_AXIS
from romae.data.ranges import Ranges, ranges_of
from romae.data.schema import Schema
from romae.data.sources import SampleSource, Source, as_source
from romae.tokens.errors import original_errors, scaled_errors
from romae.tokens.packed import sample_extreme
from romae.tokens.sample import Sample
from romae.tokens.tokens import PackedSamples, channel_index

Origin = float | int | Literal["none", "first", "min"]
Unit = float | int | Literal["gap"]
# Median errors, at least, that "asinh" leaves nearly straight: a likelihood takes the noise of a value for that of a
# small error, and where noise is as wide as the bend, intervals hold too much (docs/log.md has what was seen).
IN_LINE = 6.0


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """Normalisation of values, positions and targets, and its exact inverse.

    `fit_scaling` finds the numbers; `Scaling()` leaves everything as it is. A task that was trained with a scaling
    keeps it and answers in the data's own units.

    Parameters
    ----------
    method : {"none", "standard", "robust", "asinh", "robust-asinh"}, default "none"
        What is done to values: z = (x - centre) / scale, for "asinh" then asinh(z), for "robust-asinh" 3 asinh(z / 3).
    by_channel : bool, default False
        Whether `centre` and `scale` have one row for each index on the last position axis, instead of one row for all.
    centre : tuple of tuple of float, default ()
        What is subtracted: rows as above, with one number per column of values.
    scale : tuple of tuple of float, default ()
        What values are divided by, likewise. 0 marks a channel that the training data did not have.
    origins : tuple, default ()
        For each position axis what is subtracted from coordinates, in double precision: a number, or "first" or "min"
        for the sample's own first or smallest coordinate, or "none".
    units : tuple of float, default ()
        For each position axis what coordinates are divided by.
    target_mean : tuple of float, optional
        What is subtracted from targets that are numbers, one entry per target.
    target_scale : tuple of float, optional
        What they are divided by.
    seen : Ranges, optional
        Between which numbers the data lay; predictions for others come with a warning. Models of older versions have
        none.
    center : {"global", "sample", "instance"}, default "global"
        Whether a model sees values as they are scaled, or relative to the mean of what is visible in their sample and
        channel, and for "instance" to its standard deviation as well. What is visible is known once masks are drawn, so
        `apply` does not do it: the task does (Notes).
    n_channels : int, optional
        For samples that are centred, how many channels the last position axis tells apart; None where channels are
        columns of values.
    within : tuple of tuple of float, default ()
        For samples that are centred, the spread of values within a sample and channel, in rows as `scale`.
    errors : int, default 0
        How many columns of measurement errors follow those of values, one for each (`Schema.errors`). A model sees the
        logarithm of an error in units of what its value was divided by, so that exp(2 e) is a variance in scaled units;
        errors of 0, which are not known, are seen as -7, and so are smaller ones.
    own_units : bool, default False
        Whether each series is first brought to units of its own, by what is visible of it: times to shares of the
        visible span, values of a channel to deviations from their median in units of their spread, channels to places
        on an axis. The scaling of a model that needs no training; position axes are time and channel.
    from_lines : bool, default False
        With `own_units`, whether what is hidden is predicted as a deviation from the line between its visible
        neighbours.

    Raises
    ------
    ValueError
        If parts are missing or contradict each other.

    Notes
    -----
    With center="sample", masked reconstruction subtracts from each value the mean of the visible values of its sample
    and channel, and divides by the spread `within` samples instead of `scale`; predictions are brought back. The mean,
    because it is what answers best where nothing else is known under a squared error, and because it shifts exactly
    with the data. A channel of which a sample shows nothing stays as it is scaled. Where labels are learned and in
    embeddings the level may matter: deviations from it are enlarged by `scale` / `within`, and a quarter of it stays.

    With center="instance" (instance normalisation) the standard deviation of the visible values of a sample and channel
    takes the place of `within`: answers stretch with the data too. It needs 4 visible values that vary by more than a
    thousandth of `within`, and elsewhere `within` is used. In labels and embeddings the fourth root of the spread
    stays, as a number of times `within`.

    Examples
    --------
    >>> import numpy as np
    >>> import romae
    >>> samples = romae.from_arrays(np.random.default_rng(0).normal(5.0, 2.0, size=(20, 30, 1)))
    >>> scaling = romae.fit_scaling(samples)
    >>> scaled = scaling.apply(samples[0])
    >>> np.allclose(scaling.invert_values(scaled.values), samples[0].values)
    True
    """

    method: Method = "none"
    by_channel: bool = False
    centre: tuple[tuple[float, ...], ...] = ()
    scale: tuple[tuple[float, ...], ...] = ()
    origins: tuple[Origin, ...] = ()
    units: tuple[float, ...] = ()
    target_mean: tuple[float, ...] | None = None
    target_scale: tuple[float, ...] | None = None
    seen: Ranges | None = None
    center: Literal["global", "sample", "instance"] = "global"
    n_channels: int | None = None
    within: tuple[tuple[float, ...], ...] = ()
    errors: int = 0
    own_units: bool = False
    from_lines: bool = False

    def __post_init__(self) -> None:
        if self.errors < 0 or (self.errors and any(len(row) != self.errors for row in self.scale)):
            raise ValueError(
                f"measurement errors are as many as columns of values, or none, not {self.errors} beside scales of "
                f"{len(self.scale[0]) if self.scale else 0}"
            )
        if self.method != "none" and not (self.scale and len(self.centre) == len(self.scale)):
            raise ValueError(f"{self.method} scaling needs a centre and a scale; fit_scaling finds them")
        for origin in self.origins:
            if origin not in ("none", "first", "min") and (isinstance(origin, str) or not math.isfinite(origin)):
                raise ValueError(f"an origin must be 'none', 'first', 'min' or a finite number, not {origin!r}")
        if any(isinstance(unit, str) or not (math.isfinite(unit) and unit > 0) for unit in self.units):
            raise ValueError(f"the unit of a position axis must be positive, got {list(self.units)}")
        if len(self.origins) != len(self.units):
            raise ValueError(f"{len(self.origins)} origins and {len(self.units)} units: each position axis has both")
        if (self.target_mean is None) != (self.target_scale is None):
            raise ValueError("targets need both a mean and a scale, or neither")
        self._require_center()
        if self.own_units and (self.method != "none" or self.origins or self.center != "global"):
            raise ValueError("own_units=True leaves nothing for a method, origins, units or a center to do")
        if self.from_lines and not self.own_units:
            raise ValueError("from_lines=True is for series in units of their own, own_units=True")

    def apply(self, sample: Sample) -> Sample:
        """Scale a sample, as the model sees it.

        Parameters
        ----------
        sample : Sample
            In the data's own units.

        Returns
        -------
        Sample
            Scaled. Positions stay in double precision if they were.

        Raises
        ------
        ValueError
            If the sample has other columns or axes than the scaling was fitted on, or a channel that it does not know.
        """
        if self.own_units:
            return self.apply_packed(PackedSamples.of([sample])).sample(0)
        try:
            values = sample.values
            if self._changes_values:
                values = self.scale_values(values, sample.positions)  # of half precision, could be too large for it
            self._require_channels(sample.positions)
            positions = self.scale_positions(sample.positions, self.origin(sample.positions))
            target = sample.target
            if self.target_mean is not None and target is not None:
                target = self.scale_target(target)
            return replace(sample, values=values, positions=positions, target=target)
        except ValueError as error:
            raise ValueError(f"sample {sample.id!r}: {error}") from None

    def apply_packed(self, packed: PackedSamples) -> PackedSamples:
        """Scale many samples at once, to the last bit as `apply` does one by one.

        Parameters
        ----------
        packed : PackedSamples
            Samples end to end, in the data's own units.

        Returns
        -------
        PackedSamples
            As the model sees them.

        Raises
        ------
        ValueError
            If a sample does not fit the scaling; it is named.
        """
        if self.own_units:
            own = OwnUnits.of(packed).apply(packed, from_lines=self.from_lines)
            if len(unknown := torch.isnan(own.values[:, 0]).nonzero()):
                token = int(unknown[0])
                number = int(packed.layout.sample_of_token[token])
                name = packed.ids[number] if packed.ids and packed.ids[number] is not None else number
                raise ValueError(
                    f"sample {name!r} hides all that it has of channel {packed.positions[token, 1]:g}, of which a "
                    "model in units of each series' own then knows nothing; show it some, or leave these tokens out"
                )
            return replace(self, own_units=False, from_lines=False).apply_packed(own)
        try:
            values = packed.values
            if self._changes_values:
                values = self.scale_values(values, packed.positions).float()
                if not bool(torch.isfinite(values).all()):
                    raise ValueError("values are too large for single precision")
            self._require_channels(packed.positions)
            origins = self.origins_of(packed)
            positions = self.scale_positions(packed.positions, origins[packed.layout.sample_of_token])
            target = packed.target
            if self.target_mean is not None and target is not None:
                target = self.scale_target(target).float()
            return replace(packed, values=values, positions=positions, target=target, origins=origins)
        except ValueError:
            for i in range(len(packed)):  # one after the other, to name the sample
                self.apply(packed.sample(i))
            raise

    def origins_of(self, packed: PackedSamples) -> Float64[Tensor, "b d"]:
        """What `apply_packed` subtracts from the positions of each sample.

        Parameters
        ----------
        packed : PackedSamples
            Samples end to end, in the data's own units.

        Returns
        -------
        Float64 Tensor [b, d]
            One row per sample.

        Raises
        ------
        ValueError
            If the positions have other axes than the scaling was fitted on.
        """
        positions, layout = packed.positions.double(), packed.layout
        self._require_axes(positions)
        origins = positions.new_zeros(len(packed), positions.shape[1])
        for axis, rule in enumerate(self.origins):
            if rule == "first":
                origins[:, axis] = positions[layout.offsets[:-1].long(), axis]
            elif rule == "min":
                origins[:, axis] = sample_extreme(positions[:, axis : axis + 1], layout, "min").squeeze(1)
            elif rule != "none":
                origins[:, axis] = float(rule)
        return origins

    def scale_values(
        self, values: Float[Tensor, "n c"], positions: Float[Tensor, "n d"] | None = None
    ) -> Float64[Tensor, "n c"]:
        """Scale values.

        Parameters
        ----------
        values : Tensor [n, c]
            In the data's own units.
        positions : Tensor [n, d], optional
            The positions of these values in the data's own units, which say what channel each belongs to. A scaling by
            channel needs them.

        Returns
        -------
        Float64 Tensor [n, c]
            As the model sees them.

        Raises
        ------
        ValueError
            If they have other columns than the scaling was fitted on, or a measurement error is negative.
        """
        values = values.double()
        if not self._changes_values:
            return values
        measured, errors = self._split(values)
        centre, scale = self._tables_of(measured, positions)
        relative = (measured - centre) / scale
        scaled = bent(relative, self.method)
        if errors is None:
            return scaled
        if bool((errors < 0).any()):
            raise ValueError(
                f"measurement errors are above 0, or 0 where they are not known, and one is {float(errors.min()):.6g}"
            )
        return torch.cat([scaled, scaled_errors(errors, scale / steepness(relative, self.method))], 1)

    def invert_values(
        self, values: Float[Tensor, "n c"], positions: Float[Tensor, "n d"] | None = None
    ) -> Float64[Tensor, "n c"]:
        """Scale values back to the data's own units: the inverse of `scale_values`.

        Parameters
        ----------
        values : Tensor [n, c]
            As the model sees them.
        positions : Tensor [n, d], optional
            The positions of these values in the data's own units, which say what channel each belongs to. A scaling by
            channel needs them.

        Returns
        -------
        Float64 Tensor [n, c]
            In the data's own units. Predictions, which are values without errors, may come alone.

        Raises
        ------
        ValueError
            If they have other columns than the scaling was fitted on.
        """
        values = values.double()
        if not self._changes_values:
            return values
        measured, errors = self._split(values)
        centre, scale = self._tables_of(measured, positions)
        relative = straightened(measured, self.method)
        original = relative * scale + centre
        if errors is None:
            return original
        return torch.cat([original, original_errors(errors, scale / steepness(relative, self.method))], 1)

    @property
    def _changes_values(self) -> bool:
        return self.method != "none" or self.errors > 0

    def _split(self, values: Float64[Tensor, "n c"]) -> tuple[Float64[Tensor, "n v"], Float64[Tensor, "n e"] | None]:
        """What was measured, and its errors, if they are there."""
        if self.errors == 0 or values.shape[1] == self.errors:
            return values, None
        if values.shape[1] != 2 * self.errors:
            raise ValueError(
                f"{values.shape[1]} columns, but the scaling was fitted on {self.errors} of values and as many of "
                "their errors"
            )
        return values[:, : self.errors], values[:, self.errors :]

    def tables_at(
        self, positions: Float[Tensor, "n d"], n_columns: int
    ) -> tuple[Float64[Tensor, "#n c"], Float64[Tensor, "#n c"]]:
        """What `invert_values` adds to values at positions, and what it multiplies them by, once they are straightened.

        Parameters
        ----------
        positions : Tensor [n, d]
            In the data's own units; they say what channel each belongs to.
        n_columns : int
            The number of values at a position.

        Returns
        -------
        tuple of two Float64 Tensors [n, c] or [1, c]
            Centres and scales.
        """
        zeros = torch.zeros(len(positions), n_columns, dtype=torch.float64, device=positions.device)
        return self._tables_of(zeros, positions)

    def _tables_of(
        self, values: Float64[Tensor, "n c"], positions: Float[Tensor, "n d"] | None
    ) -> tuple[Float64[Tensor, "#n c"], Float64[Tensor, "#n c"]]:
        """The centre and scale of each token, or of all."""
        if self.method == "none":
            return values.new_zeros(1, values.shape[1]), values.new_ones(1, values.shape[1])
        return self._value_tables(values, positions)

    def origin(self, positions: Float[Tensor, "n d"]) -> Float64[Tensor, "d"]:
        """What `apply` subtracts from the positions of a sample; keep it to invert positions later.

        Parameters
        ----------
        positions : Tensor [n, d]
            All positions of the sample, in the data's own units.

        Returns
        -------
        Float64 Tensor [d]
            The origin of each axis.

        Raises
        ------
        ValueError
            If the positions have other axes than the scaling was fitted on.
        """
        positions = positions.double()
        self._require_axes(positions)
        origin = positions.new_zeros(positions.shape[1])
        for axis, rule in enumerate(self.origins):
            if rule == "first":
                origin[axis] = positions[0, axis]
            elif rule == "min":
                origin[axis] = positions[:, axis].min()
            elif rule != "none":
                origin[axis] = float(rule)
        return origin

    def scale_positions(self, positions: Float[Tensor, "n d"], origin: Float64[Tensor, "*n d"]) -> Float[Tensor, "n d"]:
        """Scale positions of a sample, such as those of its tokens or those asked for in interpolation.

        Parameters
        ----------
        positions : Tensor [n, d]
            In the data's own units.
        origin : Float64 Tensor [d]
            That of the sample, from `origin`.

        Returns
        -------
        Tensor [n, d]
            As the model sees them.

        Raises
        ------
        ValueError
            If the positions have other axes than the scaling was fitted on.
        """
        self._require_axes(positions)
        return ((positions.double() - origin) / self._unit(positions)).to(positions.dtype)

    def invert_positions(self, positions: Float[Tensor, "n d"], origin: Float64[Tensor, "d"]) -> Float64[Tensor, "n d"]:
        """Scale positions back to the data's own units: the inverse of `scale_positions`.

        Parameters
        ----------
        positions : Tensor [n, d]
            As the model sees them.
        origin : Float64 Tensor [d]
            That of the sample, from `origin`.

        Returns
        -------
        Float64 Tensor [n, d]
            In the data's own units.

        Raises
        ------
        ValueError
            If the positions have other axes than the scaling was fitted on.
        """
        self._require_axes(positions)
        return positions.double() * self._unit(positions) + origin

    def scale_target(self, target: Float[Tensor, "..."]) -> Float64[Tensor, "..."]:
        """Scale targets that are numbers.

        Parameters
        ----------
        target : Float Tensor
            A number, a vector [k] or rows [n, k], in the data's own units.

        Returns
        -------
        Float64 Tensor
            As the model sees them.
        """
        mean, scale = self._target_tables(target)
        return (target.double() - mean) / scale

    def invert_target(self, target: Float[Tensor, "..."]) -> Float64[Tensor, "..."]:
        """Scale predicted numbers back to the data's own units: the inverse of `scale_target`.

        Parameters
        ----------
        target : Float Tensor
            A number, a vector [k] or rows [n, k], as the model gives them.

        Returns
        -------
        Float64 Tensor
            In the data's own units.
        """
        if self.target_mean is None:
            return target.double()
        mean, scale = self._target_tables(target)
        return target.double() * scale + mean

    def is_known(self, n_channels: int) -> Bool[Tensor, "m"]:
        """Which channels the training data had, as far as this scaling can tell.

        Parameters
        ----------
        n_channels : int
            How many channels there are.

        Returns
        -------
        Bool Tensor [n_channels]
            True on those that have a scale.
        """
        return (self._tables[1] != 0).all(1) if self.by_channel else torch.ones(n_channels, dtype=torch.bool)

    def with_target(self, samples: SampleSource) -> "Scaling":
        """The same scaling of values and positions, with targets standardised.

        Parameters
        ----------
        samples : sequence of Sample
            The training samples, whose targets are numbers.

        Returns
        -------
        Scaling
            With the mean and standard deviation of these targets.
        """
        fitted = fit_scaling(samples, values="none", target=True)
        return replace(self, target_mean=fitted.target_mean, target_scale=fitted.target_scale)

    def without_target(self) -> "Scaling":
        """The same scaling of values and positions, with targets left as they are.

        Returns
        -------
        Scaling
            Without `target_mean` and `target_scale`.
        """
        return replace(self, target_mean=None, target_scale=None)

    @cached_property
    def _tables(self) -> tuple[Float64[Tensor, "m c"], Float64[Tensor, "m c"]]:
        return torch.tensor(self.centre, dtype=torch.float64), torch.tensor(self.scale, dtype=torch.float64)

    def _value_tables(self, values: Tensor, positions: Tensor | None) -> tuple[Tensor, Tensor]:
        """The centre and scale of each token."""
        centre, scale = (table.to(values.device) for table in self._tables)
        if values.shape[1] != scale.shape[1]:
            raise ValueError(f"{values.shape[1]} columns of values, but the scaling was fitted on {scale.shape[1]}")
        if not self.by_channel:
            return centre, scale
        if positions is None:
            raise ValueError("this scaling differs by channel: hand over the positions, whose last axis is the channel")
        channel = channel_index(positions, len(scale)).to(values.device)
        has_unseen = any(entry == 0 for row in self.scale for entry in row)  # told from the table, not the tokens
        centre, scale = centre[channel], scale[channel]
        if has_unseen and bool((scale == 0).any()):
            unseen = int(channel[(scale == 0).any(1)][0])
            raise ValueError(f"channel {unseen} was not in the training data, so it has no scale; leave it out")
        return centre, scale

    @property
    def moves_channels(self) -> bool:
        """Whether the last position axis has an origin or a unit, so that it no longer holds channel indices."""
        return bool(self.origins) and (self.origins[-1], self.units[-1]) != ("none", 1.0)

    def require_still_channels(self) -> None:
        """Refuse, for a model with kinds, a scaling that moves the axis whose whole numbers they are.

        Raises
        ------
        ValueError
            If the last position axis has an origin or a unit.
        """
        if self.moves_channels:
            raise ValueError(
                "the scaling moves the last position axis, whose whole numbers are the kinds of the model; give that "
                "axis the origin 'none' and the unit 1, or the model no kinds"
            )

    @property
    def centres_samples(self) -> bool:
        """Whether a model sees values relative to what is visible of their own sample."""
        return self.center != "global"

    @property
    def gain(self) -> Float64[Tensor, "rows columns"]:
        """By how much deviations from the level of a sample are enlarged: `scale` / `within`, or 1 for each."""
        if not self.within:
            return torch.ones(1, 1, dtype=torch.float64)
        within = torch.tensor(self.within, dtype=torch.float64)
        return torch.where(within > 0, self._tables[1] / within, 1.0)

    def _require_center(self) -> None:
        if self.center not in ("global", "sample", "instance"):
            raise ValueError(f"center must be 'global', 'sample' or 'instance', not {self.center!r}")
        if self.center == "global":
            if self.n_channels is not None or self.within:
                raise ValueError("n_channels and within belong to a scaling with center='sample' or 'instance'")
            return
        if self.method in BENT:
            raise ValueError(
                f"{self.method} scaling bends values around one centre for all; use center='global' with it"
            )
        if [len(row) for row in self.within] != [len(row) for row in self.scale]:
            raise ValueError(f"a scaling with center={self.center!r} needs a spread within samples for each scale")
        if self.center == "instance" and not self.within:
            raise ValueError(
                "center='instance' compares the spread of a sample with that of the training data, which values='none' "
                "does not know; use 'standard' or 'robust'"
            )
        if self.by_channel and self.n_channels != len(self.scale):
            raise ValueError(f"{self.n_channels} channels to centre, but scales for {len(self.scale)}")
        if self.n_channels is not None:
            if self.n_channels < 1:
                raise ValueError(f"n_channels must be at least 1, not {self.n_channels}")
            if self.moves_channels:
                raise ValueError(
                    "the scaling moves the last position axis, whose whole numbers are the channels to centre; give "
                    "that axis the origin 'none' and the unit 1, or use center='global'"
                )

    def _require_channels(self, positions: Tensor) -> None:
        """Refuse channels that cannot be centred, here on the host: on a GPU, a model could not."""
        if self.n_channels is not None and not self.by_channel:  # else the scales of values were looked up already
            channel_index(positions, self.n_channels)

    def _require_axes(self, positions: Tensor) -> None:
        if self.units and len(self.units) != positions.shape[1]:
            raise ValueError(f"{positions.shape[1]} position axes, but the scaling was fitted on {len(self.units)}")

    def _unit(self, positions: Tensor) -> Tensor | float:
        return torch.tensor(self.units, dtype=torch.float64, device=positions.device) if self.units else 1.0

    def _target_tables(self, target: Tensor) -> tuple[Tensor, Tensor]:
        if not target.is_floating_point():
            raise ValueError(f"only numbers can be scaled, and the target is {target.dtype}, a class")
        mean, scale = (
            torch.tensor(numbers, dtype=torch.float64, device=target.device)
            for numbers in (self.target_mean, self.target_scale)
        )
        if target.ndim == 0:
            return mean.squeeze(), scale.squeeze()
        if len(mean) != 1 and target.shape[-1] != len(mean):
            raise ValueError(f"targets have {target.shape[-1]} columns, but the scaling was fitted on {len(mean)}")
        return mean, scale


def fit_scaling(
    samples: SampleSource,
    *,
    values: Values = "standard",
    per: Literal["all", "column", "channel"] | None = None,
    origin: Origin | Sequence[Origin] = "none",
    unit: Unit | Sequence[Unit] = 1.0,
    target: bool = False,
    center: Center = "global",
) -> Scaling:
    """Fit the normalisation of values, times and targets to training data.

    Parameters
    ----------
    samples : sequence of Sample
        The training data, or a share of it that fits into memory. Never the test data.
    values : {"standard", "robust", "asinh", "robust-asinh", "auto", "none"}, default "standard"
        "standard" subtracts the mean and divides by the standard deviation. "robust" takes the median and the
        interquartile range, in standard deviations of a normal distribution, for data with outliers. "asinh" is the
        inverse hyperbolic sine of the value over the median size of values, for fluxes that span orders of magnitude
        around 0; where errors are named, over six median errors if that is more, so that noise is hardly bent.
        "robust-asinh" is "robust" for most values, and bends those that lie more than some three deviations away, for
        heavy tails around any centre. "auto" takes that, but "standard" where samples are centred by themselves: for
        models that learn labels, to which the error of a value is nothing.
    per : "all", "column", "channel" or None, default None
        One scale for everything, for each column of values, or for each column in each channel (the index on the last
        position axis). By default "channel" where the schema has such an axis, else "column".
    origin : {"none", "first", "min"}, float, or sequence of them, default "none"
        What is subtracted from coordinates: nothing, the sample's own first or smallest coordinate, or a number. One is
        for the first axis (time); a sequence starts with it, and axes that are not named keep theirs. "first" suits
        series whose absolute date means nothing. A phase is no axis that is named: it stays as it is.
    unit : float, "gap", or sequence of them, default 1.0
        What coordinates are divided by, likewise. "gap" is the median gap between neighbouring coordinates of a sample.
    target : bool, default False
        Whether to standardise targets, which are numbers; for regression.
    center : {"global", "sample", "instance", "auto"}, default "global"
        "sample" lets a model see values relative to the mean of what is visible in their sample and channel, in units
        of the spread within samples; answers are brought back (`Scaling` says how, and what holds for labels). It suits
        samples whose levels differ more than their values do within, such as light curves of stars. "instance" takes
        the spread of what is visible too (instance normalisation), for samples whose amplitudes or units differ.
        "auto" takes "sample" where levels lie more than 3 times farther apart than values within a sample, medians
        over samples. "asinh" and "robust-asinh", which bend values around one centre, go with "global" alone, and
        "auto" takes that.

    Returns
    -------
    Scaling
        For `train(…, scaling=…)`, which keeps it in the task, or for `scaling.apply(sample)`.

    Raises
    ------
    ValueError
        If there are no samples, they do not agree, or an axis has no gap.

    Notes
    -----
    What is constant has the scale 1. Where the schema names measurement errors, the numbers are fitted to values alone.

    Examples
    --------
    >>> import numpy as np
    >>> import romae
    >>> values = np.random.default_rng(0).normal(5.0, 2.0, size=(20, 30, 1))
    >>> samples = romae.from_arrays(values, times=np.arange(30) + 60000.0)
    >>> scaling = romae.fit_scaling(samples, origin="first")
    >>> scaled = samples.map(scaling.apply)
    >>> scaled[0].positions[:3, 0].tolist()
    [0.0, 1.0, 2.0]
    >>> round(float(np.concatenate([sample.values for sample in scaled]).std()), 3)
    1.0
    """
    source = as_source(samples)
    schema = source.schema
    n_errors = 0 if schema is None else schema.n_errors
    with_errors = PackedNumbers.of(source)
    packed = with_errors.without_errors(n_errors)
    if per is None:
        per = "channel" if schema is not None and schema.channel is not None else "column"
    if per == "channel" and schema is not None and schema.channel is None:
        raise ValueError("these samples have no axis of channels, their channels are columns; use per='column'")
    n_dims = packed.positions.shape[1]
    centre, scale = np.zeros((0, 0)), np.zeros((0, 0))
    n_channels = len(schema.kind_names) if schema is not None and schema.channels else None
    method: Method = "standard" if values == "auto" else values
    if method != "none":
        centre, scale = fit_values(packed, method, per, n_channels)
    if method == "asinh" and n_errors:
        scale = np.maximum(scale, IN_LINE * median_errors(with_errors.errors_alone(n_errors), per, n_channels))
    centring = fit_centring(packed, method, per, n_channels, scale, center)
    if values == "auto" and not centring:
        method = "robust-asinh"
        centre, scale = fit_values(packed, method, per, n_channels)
    mean, deviation = fit_target(source) if target else (None, None)
    units = [
        _require_gap(packed, axis) if axis_unit == "gap" else axis_unit
        for axis, axis_unit in enumerate(_per_axis(unit, n_dims, 1.0, "units", schema))
    ]
    fitted = Scaling(
        method=method,
        by_channel=per == "channel" and method != "none",
        centre=tuple(map(tuple, centre.tolist())),
        scale=tuple(map(tuple, scale.tolist())),
        origins=tuple(_per_axis(origin, n_dims, "none", "origins", schema)),
        units=tuple(units),
        target_mean=mean,
        target_scale=deviation,
        errors=n_errors,
        **centring,
    )
    return replace(fitted, seen=_ranges(packed, fitted, schema))


def seen_also(scaling: Scaling, samples: SampleSource) -> Scaling:
    """The same scaling for a model that goes on to learn from these samples: it has then seen both data sets.

    A scaling that does not say what it was fitted on, as in models of older versions, stays as it is.
    """
    if scaling.seen is None:
        return scaling
    source = as_source(samples)
    packed = PackedNumbers.of(source).without_errors(scaling.errors)
    return replace(scaling, seen=scaling.seen.joined(_ranges(packed, scaling, source.schema)))


def scaled(samples: SampleSource, scaling: Scaling | None) -> Source:
    """The samples as a model sees them; what is read from a disk is still read when it is asked for."""
    if not isinstance(scaling, Scaling | None):
        raise TypeError(f"the scaling must be what fit_scaling gives, or None, not {scaling!r}")
    return as_source(samples).scaled(scaling)


def _ranges(packed: PackedNumbers, scaling: Scaling, schema: Schema | None) -> Ranges:
    """Between which numbers the data lie; by channel where an axis names it."""
    values, positions, starts = packed
    own = np.zeros((len(starts), positions.shape[1]))
    for axis, rule in enumerate(scaling.origins):
        x = positions[:, axis]
        if rule == "first":
            own[:, axis] = x[starts]
        elif rule == "min":
            own[:, axis] = np.minimum.reduceat(x, starts)
        elif rule != "none":
            own[:, axis] = float(rule)
    n_channels = 0 if schema is None else schema.n_channels or 0
    n_channels = len(scaling.scale) if scaling.by_channel else n_channels
    channel = channel_index(torch.from_numpy(positions), n_channels).numpy() if n_channels else None
    return ranges_of(values, positions, starts, own, channel, n_channels)


def _per_axis(setting: Any, n_dims: int, default: Any, name: str, schema: Schema | None) -> list[Any]:
    """One entry for each axis, text or a float; a phase has the default."""
    entries = list(setting) if isinstance(setting, list | tuple) else [setting]
    if schema is not None and schema.phase is not None:
        entries.insert(PHASE_AXIS, default)
    if len(entries) > n_dims:
        raise ValueError(f"{len(entries)} {name} for {n_dims} position axes")
    entries += [default] * (n_dims - len(entries))
    try:
        return [entry if isinstance(entry, str) else float(entry) for entry in entries]
    except (TypeError, ValueError):
        raise TypeError(f"{name} are numbers or text, one for each position axis, not {setting!r}") from None


def _require_gap(packed: PackedNumbers, axis: int) -> float:
    gap = packed.median_gap(axis, packed.sample())
    if gap is None:
        raise ValueError(f"no sample has two different coordinates on position axis {axis}; give its unit as a number")
    return gap

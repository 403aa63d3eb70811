"""Random irregular data sets: a seeded source of series that nobody measured, to train a model that needs no training.

Shapes: b samples, n tokens of the longest, t tokens of all, c channels, l latent functions.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from romae.config import check_types
from romae.data.sources import Indices, InMemory, Source, Transform
from romae.prior.draws import Draws
from romae.prior.dynamics import oscillators
from romae.prior.functions import Family, composed, events, gaussian, seasons, walk
from romae.prior.measuring import measured
from romae.prior.times import cells, questions, row_times, where_much_happens
from romae.tokens.layout import Layout
from romae.tokens.tokens import PackedSamples

N_LATENTS = 4
AT_ONCE, AT_ONCE_ON_GPU = 256, 8192  # samples, which are as long as the longest of them while they are drawn
# A sample of a channel for every four tokens at the most, so that of some channel enough is left to be asked for.
TOKENS_A_CHANNEL = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """Random irregular series: functions, couplings of channels, times, noise and questions, drawn at random.

    What it contains is what a model trained on it knows of the world; docs/zero.md tells what that is. Series of your
    own physics can be mixed in.

    Parameters
    ----------
    fewest, most : int, default 8 and 192
        Tokens of a series; between them, logarithms are even.
    most_channels : int, default 8
        The most channels of a series; four of ten have one.
    errors : bool, default False
        Whether a second column of values states the measurement errors, 0 where they are not known.
    gaussian, seasons, oscillators, walks, events : float
        How often each family of functions is drawn, relative to the others; 0 leaves it out.
    kind : "prior"
        The name of this value in a configuration file.

    Raises
    ------
    ValueError
        If there are fewer than 8 tokens or no channel, or no family is left.

    Examples
    --------
    >>> import romae
    >>> series = romae.Prior(most=32).series(1000, seed=0)
    >>> len(series), series[7].id
    (1000, 7)
    >>> bool((series[7].values == series[:8][7].values).all())
    True
    """

    fewest: int = 8
    most: int = 192
    most_channels: int = 8
    errors: bool = False
    gaussian: float = 0.5
    seasons: float = 0.15
    oscillators: float = 0.13
    walks: float = 0.1
    events: float = 0.12
    kind: Literal["prior"] = "prior"

    def __post_init__(self) -> None:
        check_types(self)
        if not 8 <= self.fewest <= self.most:
            raise ValueError(
                "a series has at least 8 tokens, of which some are asked for: fewest is "
                f"{self.fewest} and most {self.most}"
            )
        if self.most_channels < 1:
            raise ValueError(f"a series has at least one channel, not {self.most_channels}")
        weights = (self.gaussian, self.seasons, self.oscillators, self.walks, self.events)
        if min(weights) < 0 or sum(weights) <= 0:
            raise ValueError(f"families of functions are drawn by weights of at least 0, and not all 0: {weights}")

    def series(
        self,
        n: int,
        seed: int = 0,
        functions: Mapping[str, tuple[float, Family]] | None = None,
        device: str = "cpu",
    ) -> "Series":
        """Random series, made when they are asked for: the same ones in any order, batch or process.

        Parameters
        ----------
        n : int
            How many.
        seed : int, default 0
            Another seed draws others.
        functions : mapping of str to (weight, family), optional
            Functions of your own beside those of the prior, and how often they are drawn. A family takes `Draws` for b
            samples and gives a function of times [b, n], from 0 to 1, to values [b, n] of about unit variance.
        device : str, default "cpu"
            Where they are drawn, such as "cuda"; they are handed out on the host. Another device rounds otherwise.

        Returns
        -------
        Series
            A source of samples, for `romae.train` and the like.

        Raises
        ------
        ValueError
            If n is below 1.
        """
        return Series(self, n, seed, functions, device)


class Series(Source):
    """Series drawn from a prior; each hides what is to be predicted. `Prior.series` makes one."""

    is_quick = True

    def __init__(
        self,
        prior: Prior,
        n: int,
        seed: int,
        functions: Mapping[str, tuple[float, Family]] | None = None,
        device: str = "cpu",
    ) -> None:
        if n < 1:
            raise ValueError(f"at least one series can be drawn, n=1 or more, not {n}")
        self.prior, self.n, self.seed, self.schema = prior, n, seed, None
        self.device = torch.device(device)
        own = (
            (prior.gaussian, gaussian),
            (prior.seasons, seasons),
            (prior.oscillators, oscillators),
            (prior.walks, walk),
            (prior.events, events),
        )
        self.names = tuple(functions or {})
        self.families: tuple[tuple[float, Callable[..., Any]], ...] = own + tuple((functions or {}).values())
        draws = Draws(seed, torch.arange(n))
        self.lengths = draws.log_uniform(low=prior.fewest, high=prior.most + 1).long().clamp(max=prior.most).numpy()

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self.n))]
        return self.packed(np.array([range(self.n)[index]])).sample(0)

    def digest(self) -> str:
        """The prior and its seed say it all, but for functions of the user's own."""
        return repr((self.prior, self.n, self.seed, self.names))

    def packed(self, indices: Indices) -> PackedSamples:
        return self._in_parts(np.asarray(indices, dtype=np.int64), None)

    def in_memory(self, transform: Transform | None = None) -> InMemory:
        """All series, drawn now: on a GPU far faster than a model learns from them.

        Parameters
        ----------
        transform : Transform, optional
            What is done to them while they are on the device where they are drawn.

        Returns
        -------
        InMemory
            On the host.
        """
        return InMemory.of_packed(self._in_parts(np.arange(self.n), transform))

    def _in_parts(self, indices: Indices, transform: Transform | None) -> PackedSamples:
        """Samples end to end, drawn some at a time, those of like lengths together."""
        order = np.argsort(self.lengths[indices], kind="stable")
        at_once = AT_ONCE if self.device.type == "cpu" else AT_ONCE_ON_GPU
        parts = []
        for part in np.array_split(indices[order], -(-len(indices) // at_once)):
            drawn = self._drawn(part)
            parts.append(_on_host(drawn if transform is None else transform.apply_packed(drawn)))
        return PackedSamples.joined(parts).take(np.argsort(order, kind="stable"))

    def _drawn(self, indices: Indices) -> PackedSamples:
        prior, device = self.prior, self.device
        lengths = torch.from_numpy(self.lengths[indices]).to(device)
        n, most = int(self.lengths[indices].max()), prior.most_channels
        draws = Draws(self.seed, torch.from_numpy(indices).to(device))
        draws.uniform()  # the length
        valid = torch.arange(n, device=device) < lengths.unsqueeze(1)

        n_channels = _n_channels(draws, lengths, most)
        row, channel, n_rows = cells(draws, lengths, n_channels, n, most)
        lag, mixing = _coupling(draws, most, min(N_LATENTS, most))
        mixing = mixing * (torch.arange(most, device=device) < n_channels.unsqueeze(1)).unsqueeze(2)
        # Of most series one or two functions are all that is needed, and every one has the first.
        rows = [part.nonzero().squeeze(1) for part in (mixing != 0).any(1).unbind(1)]
        latents = [composed(draws.of(part), self.families) for part in rows]
        times = row_times(draws, n_rows, n)
        drawn_to = where_much_happens(draws, latents[0], n_rows, n)
        times = torch.where(draws.chance(0.06).unsqueeze(1), drawn_to, times).gather(1, row.clamp(max=n - 1))

        when = times - lag.gather(1, channel)
        function = torch.zeros_like(times)
        for number, (part, latent) in enumerate(zip(rows, latents, strict=True)):
            share = mixing[part, :, number].gather(1, channel[part])
            function = function.index_add(0, part, latent(when[part]) * share)
        values, errors = measured(draws, _bent(draws, function, channel, most), channel, most)
        hidden = questions(draws, times, channel, valid, most)

        columns = torch.stack([values, errors] if prior.errors else [values], 2)
        positions = torch.stack([times, channel.to(times.dtype)], 2)
        return PackedSamples(
            columns[valid],
            positions[valid],
            Layout.of(torch.from_numpy(self.lengths[indices]), device),
            ids=tuple(indices.tolist()),
            hidden=hidden[valid],
        )


def _on_host(packed: PackedSamples) -> PackedSamples:
    values, positions, hidden = packed.values.cpu(), packed.positions.cpu(), packed.hidden
    layout = Layout.of(packed.layout.lengths)
    return replace(
        packed, values=values, positions=positions, layout=layout, hidden=None if hidden is None else hidden.cpu()
    )


def _n_channels(draws: Draws, lengths: Int64[Tensor, "b"], most: int) -> Int64[Tensor, "b"]:
    several = (2 + draws.uniform() ** 1.5 * (most - 1)).long()
    n = torch.where(draws.chance(0.4), 1, several).clamp(max=most)
    return n.minimum(lengths // TOKENS_A_CHANNEL).clamp(min=1)


def _coupling(draws: Draws, most: int, n_latents: int) -> tuple[Float[Tensor, "b c"], Float[Tensor, "b c l"]]:
    """By how much each channel lags behind, and how much it has of each latent function.

    Channels are strangers, mixtures of all functions, mixtures of two, or one function with another sign or size.
    """
    lag = draws.normal(most) * draws.log_uniform(low=0.005, high=0.15).unsqueeze(1)
    lag = torch.where(draws.chance(0.3).unsqueeze(1), lag, 0.0)
    form = draws.choice((0.2, 0.25, 0.3, 0.25)).reshape(-1, 1, 1)
    own = torch.nn.functional.one_hot(torch.arange(most, device=draws.device) % n_latents, n_latents).float()
    mixed = draws.normal(most, n_latents)
    of_two = mixed * (torch.arange(n_latents, device=draws.device) < 2)
    sign = torch.where(draws.chance(0.3, most), -1.0, 1.0).unsqueeze(2)
    of_one = sign * (torch.arange(n_latents, device=draws.device) == 0)
    mixing = torch.where(form == 0, own, torch.where(form == 1, mixed, torch.where(form == 2, of_two, of_one)))
    return lag, mixing / mixing.square().sum(2, keepdim=True).sqrt().clamp(min=1e-3)


def _bent(
    draws: Draws, function: Float[Tensor, "b n"], channel: Int64[Tensor, "b n"], most: int
) -> Float[Tensor, "b n"]:
    """Channels that follow from others in no straight line: squares, sizes, waves, saturation."""
    form = draws.choice((0.85, 0.04, 0.03, 0.04, 0.04), most).gather(1, channel)
    of_each = (function, (function.square() - 1) / 1.4, function.abs() * 1.6 - 1.3, torch.sin(2 * function) * 1.4)
    bent = torch.stack([*of_each, torch.tanh(2 * function) * 1.2])
    return bent.gather(0, form.unsqueeze(0))[0]

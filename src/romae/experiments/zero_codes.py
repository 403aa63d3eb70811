"""How a model that needs no training should tell channels apart: three codes, chosen between on random functions.

    python -m romae.experiments.zero_codes --out results/zero/codes.json    one core of a CPU, some two hours
    python -m romae.experiments.zero_codes --out results/zero/codes.json --device cuda
    python -m romae.experiments.zero_codes --out codes.json --quick         seconds; the numbers mean nothing

`coordinate`: a channel is a place on a rotary axis, drawn at random for each sample, so that the same channel is at
distance zero; the model that is bundled does this. `embedding`: a vector drawn at random for each sample is added to
what enters the encoder and the decoder. `axes`: coordinates, and every other layer attends within the channel alone.
All three are of one size, see the same series in the same order, and take the same number of steps.

They learn from random series of the prior, and from as many of three channels that are measured together, of which
in half of them the third follows from the other two but for some noise. What decides is the continuous ranked
probability score (CRPS) of hidden values of this third channel where both others are visible, beside that of the same
model when it is shown the third alone: how much channels help each other. Where the third is a stranger, the same
ratio says what being misled costs. No measured number is read.

Shapes: t tokens and queries, b samples, m tokens and queries of the longest, w width, d axes, q what is asked.
"""

import argparse
import json
import sys
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Float64
from torch import Tensor, nn
from torch.nn import functional as F

from romae.config import to_dict
from romae.data.own_units import WIDEST
from romae.data.schema import Schema
from romae.data.sources import InMemory
from romae.experiments.zero_model import LADDERS, Making
from romae.files import require_writable, write_whole_text
from romae.inference.zero import answers
from romae.model.attention import turned
from romae.model.blocks import Block, Transformer
from romae.model.config import ModelConfig, Size
from romae.model.likelihoods import Mixture
from romae.model.rope import Rotation
from romae.model.tasks import MaskedReconstruction
from romae.prior.draws import Draws
from romae.prior.functions import composed, gaussian, seasons, walk
from romae.prior.relative import ANSWERING, LEARNING, InOwnUnits
from romae.prior.series import Prior
from romae.tokens.ladder import Ladder
from romae.tokens.layout import Layout
from romae.tokens.sample import Sample
from romae.tokens.tokens import PackedSamples, Tokens
from romae.training.config import TrainConfig, require_device_name
from romae.training.loop import train

CODES = ("coordinate", "embedding", "axes")
FAMILIES = ((0.6, gaussian), (0.2, seasons), (0.2, walk))
ROWS = (8, 24)
HIDDEN = 0.3
N_RANDOM = 32  # numbers of a vector that is drawn at random
N_CHANNELS = 4  # of the series of the prior, at the most
FEWEST = 4  # visible values of the third channel
FIRST = 10_000_000  # the number of the first triple, beyond those of the prior
N_BOOTSTRAP = 1_000
SCHEMA = Schema(channel="channel", channels=("first", "second", "third"), values=("value",))
NOWHERE = Ladder(shortest=1e9, longest=1e10)  # on which no channel turns anything
SEEDS = {"training": 0, "validation": 1, "judged": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """How the codes are compared."""

    series: int = 24_000  # of each of the two kinds
    epochs: int = 6
    batch_size: int = 128
    lr: float = 1e-3
    size: Size = Size(width=72, heads=3, depth=4)
    most: int = 64
    n_judged: int = 1_500
    n_validation: int = 1_000


QUICK = Trial(series=64, epochs=1, batch_size=32, size=Size(width=24, heads=1, depth=2), n_judged=24, n_validation=24)


class RandomVectors(nn.Module):
    """A vector for each channel of each sample, by the coordinate that was drawn for it; how it is used is learned."""

    table: Float32[Tensor, "n r"]

    def __init__(self, width: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(SEEDS["training"])  # the same for the encoder and the decoder
        self.register_buffer("table", torch.randn(int(WIDEST) + 1, N_RANDOM, generator=generator))
        self.used = nn.Linear(N_RANDOM, width, bias=False)

    def forward(self, tokens: Tokens) -> Tokens:
        drawn = self.table[tokens.positions[:, -1].long()]
        return replace(tokens, values=tokens.values + self.used(drawn))


class WithinChannels(Block):
    """A block whose tokens and queries attend to the visible tokens of their own channel."""

    channel: Float[Tensor, "t"]

    def attention(
        self,
        x: Float[Tensor, "t w"],
        rotation: Rotation | None,
        layout: Layout,
        queries: Layout | None,
        is_aligned: bool = False,
    ) -> Float[Tensor, "t w"]:
        q, k, v = turned(self.qkv(x).unflatten(-1, (3, self.heads, -1)), rotation)
        sample = layout.sample_of_token
        if queries is not None:
            sample = torch.cat([sample, queries.sample_of_token])
        sample = sample.to(x.device)
        order = torch.argsort(sample, stable=True)
        counts = torch.bincount(sample, minlength=layout.n_samples)
        place = torch.empty_like(order)
        place[order] = torch.arange(len(sample), device=x.device) - (counts.cumsum(0) - counts)[sample[order]]
        at, shape = sample * int(counts.max()) + place, (layout.n_samples, int(counts.max()))

        def padded(rows: Tensor) -> Tensor:
            empty = rows.new_zeros(shape[0] * shape[1], *rows.shape[1:])
            return empty.index_copy(0, at, rows).unflatten(0, shape)

        is_seen = padded(torch.arange(len(sample), device=x.device) < layout.n_tokens)
        channel = padded(self.channel)
        mask: Bool[Tensor, "b m m"] = is_seen.unsqueeze(1) & (channel.unsqueeze(1) == channel.unsqueeze(2))
        # A query of a channel without visible tokens looks at itself, which says nothing.
        mask = mask | (torch.eye(shape[1], dtype=torch.bool, device=x.device) & ~mask.any(2, keepdim=True))
        q, k, v = (padded(part).transpose(1, 2) for part in (q, k, v))
        attended = F.scaled_dot_product_attention(q, k, v, mask.unsqueeze(1), scale=self.head_dim**-0.5)
        return self.out(attended.transpose(1, 2).flatten(0, 1)[at].flatten(1))


class AlongAxes(Transformer):
    """Blocks of which every other one, from the first, attends within channels."""

    def __init__(self, size: Size, config: ModelConfig) -> None:
        super().__init__(size, config)
        for block in self.blocks[::2]:
            block.__class__ = WithinChannels

    def layers(
        self,
        x: Float[Tensor, "t w"],
        positions: Float32[Tensor, "t d"],
        layout: Layout,
        queries: Layout | None = None,
        *,
        numbers: Collection[int],
    ) -> list[Float[Tensor, "t w"]]:
        for block in self.blocks[::2]:
            block.channel = positions[:, -1]
        return super().layers(x, positions, layout, queries, numbers=numbers)


def model_of(code: str, size: Size) -> MaskedReconstruction:
    """A model that tells channels apart by one of `CODES`."""
    config = Making(size=size).model
    if code == "embedding":
        config = replace(config, ladders=(LADDERS[0], NOWHERE))
    torch.manual_seed(SEEDS["training"])
    task = MaskedReconstruction(config, likelihood=Mixture(n=8))
    assert task.decoder is not None
    for part, of in ((task.encoder, config.encoder), (task.decoder, config.decoder)):
        if code == "embedding":
            part.kinds = RandomVectors(of.width)  # type: ignore[assignment]  # called in the same way
        if code == "axes":
            state = part.transformer.state_dict()
            part.transformer = AlongAxes(of, config)
            part.transformer.load_state_dict(state)
    return task


class Triples:
    """Series of three channels that are measured together; the third follows from the others, or is a stranger.

    Parameters
    ----------
    n : int
        How many; every second one has a stranger.
    seed : int
        Another seed draws others.
    """

    def __init__(self, n: int, seed: int) -> None:
        draws = Draws(seed, torch.arange(n) + FIRST)
        n_rows = draws.whole(low=ROWS[0], high=ROWS[1])
        self.n_rows, self.is_stranger = n_rows, torch.arange(n) % 2 == 1
        most = ROWS[1]
        beyond = torch.arange(most) >= n_rows.unsqueeze(1)
        times = draws.uniform(most).masked_fill(beyond, 2.0).sort(1).values
        latents = torch.stack([composed(draws.of(torch.arange(n)), FAMILIES)(times) for _ in range(3)], 2)
        share = draws.normal(2)
        mixed = (latents[:, :, :2] * share.unsqueeze(1)).sum(2) / share.square().sum(1, keepdim=True).sqrt()
        third = torch.where(self.is_stranger.unsqueeze(1), latents[:, :, 2], mixed)
        noise = draws.log_uniform(low=0.02, high=0.3).reshape(-1, 1, 1)
        self.values = torch.stack([*latents[:, :, :2].unbind(2), third], 2) + noise * draws.normal(most, 3)
        self.times, self.hidden = times, draws.uniform(most, 3) < HIDDEN

    def sample(self, i: int) -> Sample:
        """One of them, with values whose errors are not known."""
        n = int(self.n_rows[i])
        values, hidden = self.values[i, :n].flatten(), self.hidden[i, :n].flatten()
        hidden[0], hidden[-1] = False, bool(hidden[-1]) or not hidden[1:].any()  # some are visible, and some are not
        positions = torch.stack([self.times[i, :n].repeat_interleave(3), torch.arange(3.0).repeat(n)], 1).double()
        return Sample(torch.stack([values, torch.zeros_like(values)], 1), positions, id=FIRST + i, hidden=hidden)

    def question(self, i: int) -> tuple[Sample, Sample, Float64[np.ndarray, "q 2"], Float64[np.ndarray, "q"]] | None:
        """The sample, its third channel alone, where both others are visible and it is not, and what it is there."""
        learned = self.sample(i)
        whole = replace(learned, values=learned.values[:, :1], schema=SCHEMA)
        assert whole.hidden is not None
        hidden = whole.hidden.reshape(-1, 3)
        asked = hidden[:, 2] & ~hidden[:, 0] & ~hidden[:, 1]
        if not asked.any() or (~hidden[:, 2]).sum() < FEWEST:
            return None
        channel = whole.positions[:, 1] == 2
        seen_alone = replace(
            whole, values=whole.values[channel], positions=whole.positions[channel], hidden=whole.hidden[channel]
        )
        truth = whole.values[channel, 0][asked].double().numpy()
        return whole, seen_alone, whole.positions[channel][asked].double().numpy(), truth


def _drawn(n: int, seed: int, trial: Trial) -> list[PackedSamples]:
    """Series of the prior and as many triples, in units of their own."""
    own, triples = InOwnUnits(n_channels=N_CHANNELS), Triples(n, seed)
    prior = Prior(most=trial.most, most_channels=N_CHANNELS, errors=True).series(n, seed)
    of_three = PackedSamples.of([triples.sample(i) for i in range(n)])
    return [prior.in_memory(own).packed(np.arange(n)), own.apply_packed(of_three)]


def learned(code: str, trial: Trial, device: str = "cpu") -> tuple[MaskedReconstruction, dict[str, float]]:
    """A model that has learned with one of the codes, and what training says of it."""
    task = model_of(code, trial.size)
    source, validation = (
        InMemory.of_packed(PackedSamples.joined(_drawn(n, seed, trial)))
        for n, seed in ((trial.series, SEEDS["training"]), (trial.n_validation, SEEDS["validation"]))
    )
    config = TrainConfig(
        epochs=trial.epochs,
        batch_size=trial.batch_size,
        lr=trial.lr,
        betas=(0.9, 0.99),
        weight_decay=0.01,
        warmup=0.05,
        device=device,
        graph=False,  # attention within a channel counts tokens on the host
        compile=False,
    )
    began = time.monotonic()
    history = train(task, source, config, validation=validation, scaling=LEARNING)
    last = history.records[-1]
    return task, {
        "parameters": sum(p.numel() for p in task.parameters()),
        "tokens": int(source.lengths.sum()) * trial.epochs,
        "steps": last["step"],
        "seconds": round(time.monotonic() - began),
        "validation": last["validation"],
    }


def judged(task: MaskedReconstruction, trial: Trial) -> dict[str, float]:
    """CRPS of the third channel beside the others and alone, in deviations of what is visible of it."""
    task.scaling = ANSWERING
    triples = Triples(trial.n_judged, SEEDS["judged"])
    scores: dict[str, float] = {}
    for name, wanted in (("follows", False), ("stranger", True)):
        chosen = [i for i in range(trial.n_judged) if bool(triples.is_stranger[i]) == wanted]
        found = [question for i in chosen if (question := triples.question(i)) is not None]
        wholes, alone, places, truths = (list(part) for part in zip(*found, strict=True))
        spread = [part.values[~part.hidden, 0].double().std().item() for part in alone]
        crps = {}
        for way, samples in (("together", wholes), ("alone", alone)):
            parts = answers(task, samples, places)
            crps[way] = np.array(
                [one.crps(x[:, None]).mean() / s for one, x, s in zip(parts, truths, spread, strict=True)]
            )
            scores[f"{name}, {way}"] = float(crps[way].mean())
        ratios = crps["together"].mean() / crps["alone"].mean()
        random = np.random.default_rng(0)
        drawn = random.integers(len(spread), size=(N_BOOTSTRAP, len(spread)))
        of_drawn = crps["together"][drawn].mean(1) / crps["alone"][drawn].mean(1)
        scores[f"{name}, ratio"], scores[f"{name}, ratio, standard error"] = float(ratios), float(of_drawn.std())
        scores[f"{name}, series"] = len(spread)
    return scores


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line of this file."""
    parser = argparse.ArgumentParser(prog="python -m romae.experiments.zero_codes", description=__doc__.split("\n")[0])
    parser.add_argument("--out", required=True, help="the JSON file to write; codes that are in it are not run again")
    parser.add_argument("--code", choices=CODES, action="append", help="one of the codes; repeatable, by default all")
    parser.add_argument("--epochs", type=int, help=f"passes over the series; {Trial().epochs} by default")
    parser.add_argument("--device", default="cpu", help="cpu by default, or cuda")
    parser.add_argument("--quick", action="store_true", help="tiny models and few series; the numbers mean nothing")
    given = parser.parse_args(arguments)
    trial, path = QUICK if given.quick else Trial(), Path(given.out)
    if given.epochs is not None:
        trial = replace(trial, epochs=given.epochs)
    try:
        require_device_name(given.device)
        require_writable(path.parent)
        table: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"codes": {}}
        if table.setdefault("trial", to_dict(trial)) != json.loads(json.dumps(to_dict(trial))):
            raise ValueError(f"{path} holds a comparison with other settings; name another file")
    except ValueError as error:
        print(f"romae: {error}", file=sys.stderr)
        sys.exit(2)
    for code in given.code or CODES:
        if code in table["codes"]:
            continue
        task, of_training = learned(code, trial, given.device)
        row = of_training | judged(task, trial)
        table["codes"][code] = row
        write_whole_text(path, json.dumps(table, indent=1) + "\n")
        print(f"{code:12}", ", ".join(f"{name} {value:.4g}" for name, value in row.items()), flush=True)


if __name__ == "__main__":
    main()

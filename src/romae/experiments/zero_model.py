"""The model that needs no training, trained on random series alone.

    python -m romae.experiments.zero_model --out zero --device cuda      some minutes on a GPU; again to go on
    python -m romae.experiments.zero_model --out trial --quick           seconds on a CPU; numbers mean nothing

It never sees a measured number: series are drawn from `romae.Prior`, brought to units of their own, and asked for what
they hide. What it is judged by here are functions whose exact posterior is known: its CRPS over that of the posterior,
which nothing can beat, and how many of its 50, 80 and 90 % intervals hold the truth. A run that was stopped goes on
with the same command; its folder holds all of its state.

Shapes: b series, n observed values of each, q that are asked for.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from romae.files import require_writable, write_whole_text
from romae.inference.distributions import Distribution, Units
from romae.inference.relative import InOwnUnits
from romae.inference.zero import answers
from romae.model.config import ModelConfig, Size
from romae.model.likelihoods import Mixture, Normal
from romae.model.tasks import MaskedReconstruction
from romae.prior.exact import GaussianSeries
from romae.prior.series import Prior
from romae.tokens.ladder import Ladder
from romae.tokens.sample import Sample
from romae.training.config import TrainConfig, chosen_device
from romae.training.loop import train

# In units of a 64th of the visible span, and of the axis on which channels lie between 0 and 256.
LADDERS = (Ladder(shortest=1.0, longest=512.0), Ladder(shortest=2.0, longest=512.0))
LEVELS = (0.5, 0.8, 0.9)
SIZE = Size(width=96, heads=3, depth=4)
N_VALIDATION, N_JUDGED = 2_000, 512
SEEDS = {"training": 0, "validation": 1, "judged": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Making:
    """How the model is made."""

    series: int = 4_000_000
    epochs: int = 4
    size: Size = SIZE
    prior: Prior = Prior()
    batch_size: int = 1024
    lr: float = 2e-3
    device: str = "auto"
    n_judged: int = N_JUDGED
    n_validation: int = N_VALIDATION

    @property
    def model(self) -> ModelConfig:
        """The architecture: no CLS, since only differences of times and channels mean anything, and all pairs turn."""
        decoder = replace(self.size, depth=min(self.size.depth, 2))
        return ModelConfig(
            channels=1, position_dims=2, encoder=self.size, decoder=decoder, cls=False, keep=1.0, ladders=LADDERS
        )

    @property
    def train(self) -> TrainConfig:
        """The settings of training, on a GPU in bfloat16."""
        on_gpu = chosen_device(self.device) != "cpu"
        n_steps = -(-self.series // self.batch_size) * self.epochs
        return TrainConfig(
            epochs=self.epochs,
            batch_size=self.batch_size,
            lr=self.lr,
            betas=(0.9, 0.99),
            weight_decay=0.01,
            warmup=0.02,
            ema=0.999 if n_steps > 5_000 else None,
            precision="bf16" if on_gpu else "float32",
            device=self.device,
            validate_every=max(n_steps // 20, 1),
            save_every=max(n_steps // 20, 1),
            n_states=1,
        )


QUICK = Making(
    series=64,
    epochs=1,
    size=Size(width=32, heads=2, depth=1),
    prior=Prior(most=24, most_channels=2),
    batch_size=32,
    n_judged=12,
    n_validation=16,
)


def make(out: Path, making: Making) -> dict[str, float]:
    """Train the model into a folder, or go on where it stopped, and judge it; writes the model and its scores."""
    prior, own = making.prior, InOwnUnits(n_channels=making.prior.most_channels)
    device = "cuda" if str(chosen_device(making.device)).startswith("cuda") else "cpu"
    torch.manual_seed(SEEDS["training"])
    task = MaskedReconstruction(making.model, likelihood=Mixture(n=8))
    samples = prior.series(making.series, SEEDS["training"], device=device)
    validation = prior.series(making.n_validation, SEEDS["validation"], device=device).in_memory(own)
    # On a GPU all series are drawn in less time than a pass over them takes.
    source = samples.in_memory(own) if device == "cuda" else samples.scaled(own)
    train(task, source, making.train, validation=validation, out=out / "run", resume=(out / "run").exists())
    scores = judged(task, making.n_judged)
    task.save(out / "model", half=True)
    write_whole_text(out / "scores.json", json.dumps(scores, indent=1) + "\n")
    return scores


def judged(task: MaskedReconstruction, n: int) -> dict[str, float]:
    """The CRPS of a model over that of the exact posterior of Gaussian functions, and what its intervals hold."""
    series = GaussianSeries.drawn(n, SEEDS["judged"])
    samples = [Sample(x[:, None], t[:, None]) for x, t in zip(series.values, series.times, strict=True)]
    own = answers(task, samples, [times.numpy() for times in series.queries])
    truth = series.truth.numpy()
    crps = np.mean([one.crps(x[:, None]).mean() for one, x in zip(own, truth, strict=True)])
    mean, deviation = (x.numpy() for x in series.posterior())
    raw = np.stack([mean, _raw_scale(deviation)], -1)
    one, zero = np.ones(()), np.zeros(())
    floor = Distribution(Normal(), raw, Units(one, zero, one, zero)).crps(truth).mean()
    scores = {"crps": float(crps), "crps of the exact posterior": float(floor), "ratio": float(crps / floor)}
    for level in LEVELS:
        ends = [part.interval(level) for part in own]
        held = [((low[:, 0] <= x) & (x <= high[:, 0])).mean() for (low, high), x in zip(ends, truth, strict=True)]
        scores[f"share in {level:.0%}"] = float(np.mean(held))
    return scores


def _raw_scale(deviation: np.ndarray) -> np.ndarray:
    """The raw parameter of which a likelihood makes this scale."""
    from romae.model.likelihoods import LOG_RANGE

    return LOG_RANGE * np.arctanh(np.log(deviation) / LOG_RANGE)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line of this file."""
    parser = argparse.ArgumentParser(prog="python -m romae.experiments.zero_model", description=__doc__.split("\n")[0])
    parser.add_argument("--out", required=True, help="the folder of the run, its model and its scores")
    parser.add_argument("--series", type=int, help=f"random series to draw; {Making().series:,} by default")
    parser.add_argument("--epochs", type=int, help=f"passes over them; {Making().epochs} by default")
    parser.add_argument("--width", type=int, help=f"of the model, a multiple of 48; {SIZE.width} by default")
    parser.add_argument("--depth", type=int, help=f"layers of the encoder; {SIZE.depth} by default")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--quick", action="store_true", help="a tiny model and few series; the numbers mean nothing")
    given = parser.parse_args(arguments)
    try:
        making = QUICK if given.quick else Making()
        size = {name: value for name in ("width", "depth") if (value := getattr(given, name)) is not None}
        counts = {name: value for name in ("series", "epochs") if (value := getattr(given, name)) is not None}
        making = replace(making, device=given.device, size=replace(making.size, **size), **counts)
        require_writable(given.out)
        began = time.monotonic()
        scores = make(Path(given.out), making)
    except ValueError as error:
        print(f"romae: {error}", file=sys.stderr)
        sys.exit(2)
    print(", ".join(f"{name} {value:.4f}" for name, value in scores.items()))
    print(f"{given.out}: {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()

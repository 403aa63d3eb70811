"""The model that needs no training, trained on random series alone.

    python -m romae.experiments.zero_model --out zero --device cuda      some minutes on a GPU; again to go on
    python -m romae.experiments.zero_model --out zero --device cpu --width 96 --depth 4 --series 240000 --batch-size 256
                                                                         two hours on one CPU core
    python -m romae.experiments.zero_model --out trial --quick           seconds on a CPU; numbers mean nothing

It never sees a measured number: series are drawn from `romae.Prior`, brought to units of their own, and asked for what
they hide. What it is judged by here are functions whose exact posterior is known: its CRPS over that of the posterior,
which nothing can beat, and how many of its 50, 80 and 90 % intervals hold the truth. A run that was stopped goes on
with the same command; its folder holds all of its state. With --after, a run of its own begins from the averaged
weights of another, finished or not, on series that no run before it has seen.

Shapes: b series, n observed values of each, q that are asked for.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from romae import __version__
from romae.experiments.results import device_name
from romae.files import require_writable, write_whole_text
from romae.inference.distributions import Distribution, Units
from romae.inference.zero import answers
from romae.model.config import ModelConfig, Size
from romae.model.likelihoods import Mixture, Normal, raw_of_scale
from romae.model.tasks import MaskedReconstruction
from romae.prior.exact import GaussianSeries
from romae.prior.relative import ANSWERING, LEARNING, InOwnUnits
from romae.prior.series import Prior
from romae.tokens.ladder import Ladder
from romae.tokens.sample import Sample
from romae.training.config import TrainConfig, chosen_device
from romae.training.loop import train

# In units of a 64th of the visible span, and of the axis on which channels lie between 0 and 256.
LADDERS = (Ladder(shortest=1.0, longest=512.0), Ladder(shortest=2.0, longest=512.0))
LEVELS = (0.5, 0.8, 0.9)
SIZE = Size(width=144, heads=3, depth=5)
N_VALIDATION, N_JUDGED = 2_000, 512
SEEDS = {"training": 0, "validation": 1, "judged": 2}
EXAMPLE = """import numpy as np
import romae

random = np.random.default_rng(0)
times = np.sort(random.uniform(0, 10, 120))
values = np.sin(2 * times) + np.cos(0.7 * times) + 0.4 * random.normal(size=120)
samples = romae.from_arrays([values[::2, None]], times=[times[::2]])  # every second measurement is held out
[curve] = romae.interpolate(samples, [times[1::2]], returns="distribution")  # this model, where no task is named
lines = np.interp(times[1::2], times[::2], values[::2])
low, high = curve.interval(0.9)
truth = values[1::2, None]
print(f"CRPS of romae {curve.crps(truth).mean():.3f}, of lines {np.abs(lines[:, None] - truth).mean():.3f}")
print(f"{np.mean((low <= truth) & (truth <= high)):.0%} lie in intervals of 90 %")
"""
N_SEEDS = len(SEEDS)
NUMBERS = "## Numbers"  # of a card, what a gate changes
GOES = "goes.json"  # what was done, one entry each time the command trained
AVERAGES = ("average.safetensors", "model.safetensors")  # of a state, the one that was validated first


@dataclass(frozen=True, slots=True, kw_only=True)
class Making:
    """How the model is made."""

    series: int = 6_000_000
    epochs: int = 5
    size: Size = SIZE
    prior: Prior = Prior(errors=True)
    batch_size: int = 1024
    lr: float = 1.5e-3
    device: str = "auto"
    compile: bool | None = True  # on one core of a CPU 11 000 tokens/s beside 8 000
    from_lines: bool = False
    n_judged: int = N_JUDGED
    n_validation: int = N_VALIDATION

    @property
    def model(self) -> ModelConfig:
        """The architecture: no CLS, since only differences of times and channels mean anything, and all pairs turn.

        A token has a value and its measurement error, which is read and never predicted.
        """
        decoder = replace(self.size, depth=min(self.size.depth, 2))
        return ModelConfig(
            channels=2,
            errors=1,
            position_dims=2,
            encoder=self.size,
            decoder=decoder,
            cls=False,
            keep=1.0,
            ladders=LADDERS,
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
            compile=None if on_gpu else self.compile,
            validate_every=max(n_steps // 20, 1),
            save_every=max(n_steps // 20, 1),
            n_states=1,
        )


QUICK = Making(
    series=64,
    epochs=1,
    size=Size(width=32, heads=2, depth=1),
    prior=Prior(most=24, most_channels=2, errors=True),
    batch_size=32,
    compile=False,
    n_judged=12,
    n_validation=16,
)


def make(out: Path, making: Making, after: Path | None = None) -> dict[str, float]:
    """Train the model into a folder, or go on where it stopped, and judge it; writes the model and its scores.

    With `after` it begins from the weights of another run, and draws other series than that one.
    """
    prior = making.prior
    own = InOwnUnits(n_channels=prior.most_channels, from_lines=making.from_lines)
    device = "cuda" if str(chosen_device(making.device)).startswith("cuda") else "cpu"
    torch.manual_seed(SEEDS["training"])
    task = MaskedReconstruction(making.model, likelihood=Mixture(n=8))
    earlier = [] if after is None else take_over(task, after)
    number = 1 + max((go["run"] for go in earlier), default=-1)
    samples = prior.series(making.series, SEEDS["training"] + N_SEEDS * number, device=device)
    validation = prior.series(making.n_validation, SEEDS["validation"], device=device).in_memory(own)
    source = samples.in_memory(own)  # drawn once: a pass over them takes twice as long on a CPU
    run, resume, began = out / "run", (out / "run").exists(), time.monotonic()
    goes = json.loads((out / GOES).read_text()) if (out / GOES).exists() else earlier
    go = {
        "run": number,
        "series": making.series,
        "epochs": making.epochs,
        "batch_size": making.batch_size,
        "lr": making.lr,
        "tokens": int(source.lengths.sum()) * making.epochs,
        "device": device_name(making.device),
        "steps": 0,
        "seconds": 0,
    }
    out.mkdir(parents=True, exist_ok=True)
    write_whole_text(
        out / GOES, json.dumps([*goes, go], indent=1) + "\n"
    )  # a run that begins after this one counts on it
    history = train(task, source, making.train, validation=validation, scaling=LEARNING, out=run, resume=resume)
    go |= {"steps": history.records[-1]["step"], "seconds": round(time.monotonic() - began)}
    goes = [*goes, go]
    write_whole_text(out / GOES, json.dumps(goes, indent=1) + "\n")
    task.scaling = replace(ANSWERING, from_lines=making.from_lines)
    scores = judged(task, making.n_judged)
    task.to("cpu").save(out / "model", half=True, card=card(task, goes, scores))
    write_whole_text(out / "scores.json", json.dumps(scores, indent=1) + "\n")
    return scores


def card(task: MaskedReconstruction, goes: Sequence[dict[str, Any]], scores: dict[str, float]) -> str:
    """The README.md beside the weights."""
    n, last = sum(p.numel() for p in task.parameters()), {go["run"]: go for go in goes}
    hours = sum(go["seconds"] for go in goes) / 3600
    of_runs = [
        f"| {go['run'] + 1} | {go['series']:,} | {go['epochs']} | {go['steps']:,} | {go['batch_size']} | {go['lr']:g} "
        f"| {go['tokens'] / 1e6:,.0f} million |"
        for go in last.values()
    ]
    parts = [
        "---\nlibrary_name: romae\nlicense: mit\ntags:\n- time-series\n- irregular-time-series\n- imputation\n"
        "- time-series-forecasting\n- zero-shot\n---",
        "# Any irregular series, without training",
        f"A `{type(task).__name__}` of romae {__version__} with {n / 1e6:.2f} million parameters, made by `python -m "
        f"romae.experiments.zero_model` ({', '.join(sorted({go['device'] for go in goes}))}, {hours:.1f} hours).",
        f"```python\n{EXAMPLE}```",
        "It takes any series with one time axis: one channel or many, measured together or apart, with measurement "
        "errors or without. Units do not matter: each series is brought to units of its own by what is visible of it, "
        "and answers come back in the data's.",
        "## Data",
        "None: it has learned from random functions alone (`romae.Prior`) and has never seen a measured number. "
        "Licence: MIT.",
        "## Protocol",
        "Random series with holes, long gaps, rows, channels and futures to fill; each pass shows the same series. "
        f"Seed {SEEDS['training']}; runs that follow begin from the weights of the one before, with other series.",
        "| run | series | passes | steps | series a step | peak rate | tokens |\n|---|---|---|---|---|---|---|\n"
        + "\n".join(of_runs),
        numbers_section(scores),
        "## Limits",
        f"It has seen at most {Making().prior.most} measurements at once, a span of time no longer than the visible "
        "one before and after it, and nothing but random functions: it knows no physics, no trend that turns, and not "
        "what a variable usually is. A channel of which nothing is visible is not answered.",
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def numbers_section(scores: dict[str, float]) -> str:
    """What a card says of functions whose exact posterior is known."""
    levels = [f"{level:.0%}" for level in LEVELS]
    numbers = " | ".join(f"{scores[key]:.3f}" for key in ("ratio", *(f"share in {x}" for x in levels)))
    head = " | ".join(f"in {x}" for x in levels)
    return (
        f"{NUMBERS}\n\nOn Gaussian functions whose exact posterior is known, 32 values visible and 16 asked for: the "
        "continuous ranked probability score (CRPS) over that of the exact posterior, which nothing can beat, and how "
        f"many of the asked values lie in central intervals.\n\n| CRPS / exact | {head} |\n|"
        + "---|" * (1 + len(levels))
        + f"\n| {numbers} |\n\nReal series are in docs/zero.md, with all baselines."
    )


def take_over(task: MaskedReconstruction, before: Path) -> list[dict[str, Any]]:
    """Give a task the averaged weights of a run, its newest; what led to them."""
    states = sorted((before / "run" / "states").glob("*/"), key=lambda state: state.name)
    found = [path for state in states[-1:] for name in AVERAGES if (path := state / name).exists()]
    if not found or not (before / GOES).exists():
        raise ValueError(f"{before} holds no run of this command, which keeps its states in run/states")
    try:
        task.load_state_dict(load_file(found[0]))
    except (RuntimeError, SafetensorError) as error:
        raise ValueError(
            f"cannot go on from {found[0]}: {str(error).splitlines()[0]} (another --width or --depth?)"
        ) from None
    return json.loads((before / GOES).read_text())


def judged(task: MaskedReconstruction, n: int) -> dict[str, float]:
    """The CRPS of a model over that of the exact posterior of Gaussian functions, and what its intervals hold."""
    series = GaussianSeries.drawn(n, SEEDS["judged"])
    samples = [Sample(x[:, None], t[:, None]) for x, t in zip(series.values, series.times, strict=True)]
    own = answers(task, samples, [times.numpy() for times in series.queries])
    truth = series.truth.numpy()
    crps = np.mean([one.crps(x[:, None]).mean() for one, x in zip(own, truth, strict=True)])
    mean, deviation = (x.numpy() for x in series.posterior())
    raw = np.stack([mean, raw_of_scale(torch.from_numpy(deviation)).numpy()], -1)
    one, zero = np.ones(()), np.zeros(())
    floor = Distribution(Normal(), raw, Units(one, zero, one, zero)).crps(truth).mean()
    scores = {"crps": float(crps), "crps of the exact posterior": float(floor), "ratio": float(crps / floor)}
    for level in LEVELS:
        ends = [part.interval(level) for part in own]
        held = [((low[:, 0] <= x) & (x <= high[:, 0])).mean() for (low, high), x in zip(ends, truth, strict=True)]
        scores[f"share in {level:.0%}"] = float(np.mean(held))
    return scores


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line of this file."""
    parser = argparse.ArgumentParser(prog="python -m romae.experiments.zero_model", description=__doc__.split("\n")[0])
    parser.add_argument("--out", required=True, help="the folder of the run, its model and its scores")
    parser.add_argument("--series", type=int, help=f"random series to draw; {Making().series:,} by default")
    parser.add_argument("--epochs", type=int, help=f"passes over them; {Making().epochs} by default")
    parser.add_argument("--width", type=int, help=f"of the model, a multiple of 48; {SIZE.width} by default")
    parser.add_argument("--depth", type=int, help=f"layers of the encoder; {SIZE.depth} by default")
    parser.add_argument("--from-lines", action="store_true", help="predict deviations from lines instead of values")
    parser.add_argument("--after", metavar="OUT", help="begin from the weights of this run, with series of its own")
    parser.add_argument("--judged", type=int, help=f"functions it is judged by; {N_JUDGED} by default")
    parser.add_argument("--batch-size", type=int, help=f"series of a step; {Making().batch_size} by default")
    parser.add_argument("--lr", type=float, help=f"the highest learning rate; {Making().lr} by default")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--quick", action="store_true", help="a tiny model and few series; the numbers mean nothing")
    given = parser.parse_args(arguments)
    try:
        making = QUICK if given.quick else Making()
        size = {name: value for name in ("width", "depth") if (value := getattr(given, name)) is not None}
        counts = {
            name: value
            for name in ("series", "epochs", "lr", "batch_size")
            if (value := getattr(given, name)) is not None
        }
        counts |= {"from_lines": True} if given.from_lines else {}
        counts |= {} if given.judged is None else {"n_judged": given.judged}
        making = replace(making, device=given.device, size=replace(making.size, **size), **counts)
        require_writable(given.out)
        began = time.monotonic()
        scores = make(Path(given.out), making, None if given.after is None else Path(given.after))
    except ValueError as error:
        print(f"romae: {error}", file=sys.stderr)
        sys.exit(2)
    print(", ".join(f"{name} {value:.4f}" for name, value in scores.items()))
    print(f"{given.out}: {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()

"""The gate between the network that needs no training and averaged Gaussian processes, fitted on random series alone.

    python -m romae.experiments.zero_gate --model zero/model      some eight minutes on one CPU core
    python -m romae.experiments.zero_gate --model trial/model --quick      seconds; numbers mean nothing

Network and processes answer for what random series hide, and a few hundred numbers learn how much each of them counts
and how much wider or narrower both should be, by the log density and the CRPS of their mixture. The gate is written
into the model's folder and told of on its card; the weights stay as they are. Series are none that the network has
learned from or was validated on.

Shapes: q hidden values, m components, f features, h hidden units.
"""

import argparse
import json
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor
from torch.distributions import Normal

from romae.checkpoints.native import CARD, load
from romae.experiments.results import commit, versions
from romae.experiments.zero_model import N_JUDGED, NUMBERS, QUICK, Making, judged, numbers_section
from romae.files import require_writable, write_whole_text
from romae.inference.distributions import mixture_crps
from romae.inference.zero import is_in_own_units
from romae.model.gate import N_FEATURES, N_OUTPUTS, Gate, decided
from romae.model.likelihoods import Mixture
from romae.model.tasks import MaskedReconstruction
from romae.prior.relative import LEARNING, InOwnUnits
from romae.prior.series import Prior
from romae.processes.average import averaged
from romae.processes.mixing import Parts, features, mixed
from romae.tokens.errors import variances
from romae.tokens.tokens import PackedSamples
from romae.training.config import chosen_device

SEED = 1_000_003  # far from those of training, whose runs count upwards
N_SERIES, N_HELD_OUT, AT_ONCE = 8_000, 1_000, 256
N_UNITS, N_STEPS, N_A_STEP, RATE, DECAY = 16, 3_000, 4_096, 5e-3, 1e-3
# Of all scales, after the fit: on the three development sets (`zero_sets.DEVELOPMENT`) intervals of 90 % then hold 88
# to 96 % of the values instead of 82 to 96 %, at the same CRPS. Of 1, 1.07, 1.15 and 1.25 it was nearest to nominal.
STRETCH = 1.15
WEIGHTS = torch.tensor([1.0, 2.0], dtype=torch.float64)  # of the log score and of the CRPS, which is smaller


class Answered(NamedTuple):
    """What both say of hidden values, and what these are."""

    features: Float64[Tensor, "q f"]
    own: Parts
    processes: Parts
    truth: Float64[Tensor, "q"]
    variance: Float64[Tensor, "q"]

    def at(self, rows: Tensor) -> "Answered":
        """Some of the values."""
        own, processes = (tuple(x[rows] for x in parts) for parts in (self.own, self.processes))
        return Answered(self.features[rows], own, processes, self.truth[rows], self.variance[rows])  # type: ignore[arg-type]

    def scores(self, parts: Parts) -> Float64[Tensor, "2"]:
        """The mean negative log density and the mean CRPS of mixtures."""
        weight, centre, scale = parts
        scale = torch.hypot(scale, self.variance.sqrt().unsqueeze(1))
        density = Normal(centre, scale).log_prob(self.truth.unsqueeze(1)).clamp(min=-100)
        surprise = -torch.logsumexp(weight + density, 1)
        return torch.stack([surprise.mean(), mixture_crps(self.truth, weight, centre, scale).mean()])


def answered(task: MaskedReconstruction, packed: PackedSamples) -> Answered:
    """What network and processes say of what series hide, as the model sees numbers."""
    batch, likelihood = packed.batch(), task.likelihood
    assert batch.hidden is not None and isinstance(likelihood, Mixture)
    device = next(task.parameters()).device
    visible, hidden = batch.tokens.to(device), batch.hidden
    with torch.inference_mode():
        raw = task.output(visible, hidden.positions.to(device), hidden.layout.to(device), None)
        own = tuple(x.squeeze(1) for x in likelihood.parts(raw.double().cpu().unsqueeze(1)))
        theirs = averaged(visible, hidden.positions, hidden.layout)
        values = hidden.values.double()
        return Answered(
            features(own, theirs),  # type: ignore[arg-type]
            own,  # type: ignore[arg-type]
            (theirs.log_weight, theirs.centre, theirs.scale),
            values[:, 0],
            variances(values[:, 1]) if values.shape[1] > 1 else torch.zeros_like(values[:, 0]),
        )


def answered_series(task: MaskedReconstruction, n: int, seed: int, prior: Prior) -> Answered:
    """The same of so many random series."""
    packed = LEARNING.apply_packed(
        prior.series(n, seed).in_memory(InOwnUnits(n_channels=prior.most_channels)).packed(np.arange(n))
    )
    parts = []
    for start in range(0, n, AT_ONCE):
        parts.append(answered(task, packed.take(np.arange(start, min(start + AT_ONCE, n)))))
        print(f"{min(start + AT_ONCE, n):,} of {n:,} series answered", file=sys.stderr, flush=True)
    feature, own, processes, truth, variance = zip(*parts, strict=True)

    def joined(mixtures: Sequence[Parts]) -> Parts:
        weight, centre, scale = zip(*mixtures, strict=True)
        return torch.cat(weight), torch.cat(centre), torch.cat(scale)

    return Answered(torch.cat(feature), joined(own), joined(processes), torch.cat(truth), torch.cat(variance))


def fitted(training: Answered, n_steps: int) -> Gate:
    """The gate of the least mean of log score and CRPS."""
    generator = torch.Generator().manual_seed(SEED)
    hidden = torch.randn(N_UNITS, N_FEATURES + 1, generator=generator, dtype=torch.float64) / 4
    output = torch.zeros(N_OUTPUTS, N_UNITS + 1, dtype=torch.float64)
    weights = [hidden.requires_grad_(), output.requires_grad_()]
    optimiser = torch.optim.AdamW(weights, lr=RATE, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=n_steps)
    for _ in range(n_steps):
        part = training.at(torch.randint(len(training.truth), (N_A_STEP,), generator=generator))
        loss = part.scores(mixed(*decided(part.features, *weights), part.own, part.processes)) @ WEIGHTS
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    rows = [tuple(tuple(float(f"{x:.5g}") for x in row) for row in part.tolist()) for part in weights]
    return Gate(hidden=rows[0], output=rows[1])


def fit(
    folder: str, *, n_series: int, n_held_out: int, n_steps: int, n_judged: int, device: str, prior: Prior
) -> dict[str, Any]:
    """Fit a gate, write it into the folder of a model, and say what it brings on held-out series."""
    task = load(folder)
    if (
        not isinstance(task, MaskedReconstruction)
        or not is_in_own_units(task)
        or not isinstance(task.likelihood, Mixture)
    ):
        raise ValueError(
            f"{folder} holds no model that answers for series in units of their own with a mixture; one is made in "
            "OUT/model by python -m romae.experiments.zero_model --out OUT"
        )
    task.to(chosen_device(device)).eval()
    training, held_out = (
        answered_series(task, n, seed, prior) for n, seed in ((n_series, SEED), (n_held_out, SEED + 1))
    )
    gate = replace(fitted(training, n_steps), stretch=STRETCH)
    share, ours, theirs = gate(held_out.features)
    both = mixed(share, ours, theirs, held_out.own, held_out.processes)
    scores = {
        name: dict(zip(("log score", "CRPS"), held_out.scores(parts).tolist(), strict=True))
        for name, parts in (("network", held_out.own), ("processes", held_out.processes), ("both", both))
    }
    scores["share of the processes"] = {"mean": float(share.mean())}
    task.to("cpu").gate = gate
    scores["Gaussian functions"] = judged(task, n_judged)
    path = Path(folder) / CARD
    card = path.read_text() if path.is_file() else f"{NUMBERS}\n\n## Limits\n"
    section = numbers_section(scores["Gaussian functions"]) + "\n\n" + about(scores, n_series, n_held_out)
    task.save(folder, half=True, card=re.sub(f"{NUMBERS}.*?(?=\n## )", lambda _: section + "\n", card, flags=re.DOTALL))
    return scores


def about(scores: dict[str, dict[str, float]], n_series: int, n_held_out: int) -> str:
    """The paragraph of the card about the gate."""
    rows = [
        f"| {name} | {scores[key]['log score']:.3f} | {scores[key]['CRPS']:.4f} |"
        for name, key in (("network", "network"), ("averaged processes", "processes"), ("both, by the gate", "both"))
    ]
    return (
        "Answers are mixtures of those of the network and of Gaussian processes averaged over kernels; how much "
        f"each counts is learned from {n_series:,} random series (`python -m romae.experiments.zero_gate`). On "
        f"{n_held_out:,} others, in units of each series' own:\n\n"
        "| answers of | negative log density | CRPS |\n|---|---|---|\n" + "\n".join(rows)
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line of this file."""
    parser = argparse.ArgumentParser(prog="python -m romae.experiments.zero_gate", description=__doc__.split("\n")[0])
    parser.add_argument("--model", required=True, metavar="FOLDER", help="the folder of the model, which gets the gate")
    parser.add_argument("--out", help="a JSON file for what it brings on held-out series")
    parser.add_argument(
        "--series", type=int, default=N_SERIES, help=f"random series to learn from; {N_SERIES:,} by default"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--quick", action="store_true", help="few series and steps; the numbers mean nothing")
    given = parser.parse_args(arguments)
    counts = {"n_series": given.series, "n_held_out": N_HELD_OUT, "n_steps": N_STEPS, "n_judged": N_JUDGED}
    if given.quick:
        counts = {"n_series": 24, "n_held_out": 12, "n_steps": 5, "n_judged": QUICK.n_judged}
    try:
        if given.out:
            require_writable(Path(given.out).parent)
        began = time.monotonic()
        prior = QUICK.prior if given.quick else Making().prior
        scores = fit(given.model, device=given.device, prior=prior, **counts)
    except ValueError as error:
        print(f"romae: {error}", file=sys.stderr)
        sys.exit(2)
    if given.out:
        about_run = {"series": counts["n_series"], "commit": commit(), "versions": versions(), "quick": given.quick}
        write_whole_text(Path(given.out), json.dumps(about_run | {"scores": scores}, indent=1) + "\n")
    for name in ("network", "processes", "both"):
        print(f"{name}: negative log density {scores[name]['log score']:.3f}, CRPS {scores[name]['CRPS']:.4f}")
    print(f"{given.model}: {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()

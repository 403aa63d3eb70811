"""The demonstration: irregular two-channel series made on the spot, pre-training, and interpolation at hidden times.

Two sensors watch one oscillator. Each is read at times of its own, a dozen in all, so that neither alone says enough
to draw its curve; the model has to put them together.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from romae import baselines, metrics
from romae.data.scaling import fit_ladders
from romae.masking import UniformTokens
from romae.model import ModelConfig, Size
from romae.plots import Panel, interpolation
from romae.tasks import MaskedReconstruction
from romae.tokens import Layout, Sample, collate
from romae.training import TrainConfig, train

DURATION, NOISE, N_READINGS = 6.0, 0.05, 24


class Outcome(NamedTuple):
    """The error at hidden readings, beside what people would do without a model, and the picture."""

    romae: float
    linear: float
    spline: float
    constant: float
    noise: float
    seconds: float
    picture: Path


def oscillators(n_samples: int, seed: int) -> list[Sample]:
    """Series of scalar readings at (time, sensor), half of them hidden."""
    random = np.random.default_rng(seed)
    samples = []
    for i in range(n_samples):
        frequency, phase, lag = random.uniform(0.2, 0.6), random.uniform(0, 2 * np.pi), np.pi / 2
        times = random.uniform(0, DURATION, N_READINGS)
        sensor = np.arange(N_READINGS) % 2
        clean = np.sin(2 * np.pi * frequency * times + phase + lag * sensor)
        values = clean + random.normal(0, NOISE, N_READINGS)
        hidden = np.zeros(N_READINGS, dtype=bool)
        for which in (0, 1):
            hidden[random.permutation(np.flatnonzero(sensor == which))[: N_READINGS // 4]] = True
        samples.append(Sample(values[:, None], np.stack([times, sensor], 1), id=i, hidden=hidden))
    return samples


def run(folder: str | Path, *, seed: int = 0, epochs: int = 30, n_train: int = 1500, n_test: int = 300) -> Outcome:
    """Pre-train on generated series, interpolate, compare, and write `interpolation.png` into the folder."""
    training = [replace(sample, hidden=None) for sample in oscillators(n_train, seed)]
    testing = oscillators(n_test, seed + 1)
    torch.manual_seed(seed)
    task = MaskedReconstruction(
        ModelConfig(
            channels=1,
            position_dims=2,
            encoder=Size(width=64, heads=2, depth=4),
            decoder=Size(width=64, heads=2, depth=2),
            ladders=fit_ladders(training),
        ),
        masking=UniformTokens(ratio=0.5),
    )
    config = TrainConfig(epochs=epochs, batch_size=25, lr=2e-3, device="cpu", seed=seed)
    history = train(task, training, config, title="pre-training")
    with torch.no_grad():
        predicted = task.predict(collate(testing)).numpy()
    truth = np.concatenate([baselines.truth(sample) for sample in testing])
    errors = {
        name: metrics.rmse(np.concatenate([baselines.fill(method, sample) for sample in testing]), truth)
        for name, method in (
            ("linear", baselines.linear),
            ("spline", baselines.cubic_spline),
            ("constant", baselines.constant(training)),
        )
    }
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    picture = folder / "interpolation.png"
    title = "Two sensors, one oscillator: each curve is drawn from the black points of both"
    interpolation(panels(task, testing[:3]), title=title).savefig(picture, dpi=150)
    return Outcome(metrics.rmse(predicted, truth), **errors, noise=NOISE, seconds=history.seconds, picture=picture)


@torch.no_grad()
def panels(task: MaskedReconstruction, samples: Sequence[Sample]) -> list[Panel]:
    """The curves of both sensors, asked for at many times."""
    grid = np.linspace(0, DURATION, 241)
    found = []
    for sample in samples:
        visible = collate([sample]).tokens
        for sensor in (0, 1):
            queries = torch.tensor(np.stack([grid, np.full_like(grid, sensor)], 1), dtype=torch.float32)
            curve = task.reconstruct(visible, queries, Layout.of([len(grid)]))
            is_here = sample.positions[:, 1].numpy() == sensor
            times, values = sample.positions[:, 0].numpy(), sample.values[:, 0].numpy().astype(np.float64)
            seen, unseen = is_here & ~sample.hidden.numpy(), is_here & sample.hidden.numpy()
            line = baselines.linear(times[seen], values[seen][:, None], grid)[:, 0]
            found.append(
                Panel(
                    f"series {sample.id}, sensor {sensor}",
                    (times[seen], values[seen]),
                    (times[unseen], values[unseen]),
                    (grid, curve[:, 0].numpy()),
                    (grid, line),
                )
            )
    return found

"""Imputation by models of PyPOTS on the arrays of the row `uncertainty/physionet-grid`, and what it is worth.

Scores are of the hidden cells of the test stays, in z-scores: `mse` of the mean, `mae` of the median (`mae_of_mean` is
what others report of CSDI), CRPS, and what central intervals hold. The CRPS of samples is the unbiased estimate of what
more samples would come to; `crps_of_samples` takes the few that there are for the whole distribution. SAITS and BRITS
answer with one number, whose CRPS is its absolute error. PyPOTS answers with the mean of GP-VAE, however often it is
asked; samples are drawn here as that model says, from the posterior of its latent curves, with the noise of standard
deviation 1 that its decoder has (`crps_of_curves` is without that noise).

Shapes: r records, h hours, v variables, q hidden cells, s samples.
"""

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float64

from romae.experiments.datasets.physionet_grid import Grid, load
from romae.experiments.density_scores import LEVELS
from romae.experiments.peers.fitting import Fit, fitted
from romae.experiments.peers.models import PEERS, Peer

ANSWERED_AT_ONCE = 64  # stays whose latent curves are drawn

Samples = Float[np.ndarray, "q s"]
Numbers = Float64[np.ndarray, "q"]


class Answers(NamedTuple):
    """What a peer says of the hidden cells: a number each, or samples, and those without the noise of a measurement."""

    point: Numbers | None
    samples: Samples | None = None
    curves: Samples | None = None


def handed_over(parts: Mapping[str, Grid]) -> dict[str, dict[str, Float[np.ndarray, "r h v"]]]:
    """The arrays of each part as PyPOTS takes them. Only validation comes with what it hides."""
    sets = {name: {"X": grid.visible.astype(np.float32)} for name, grid in parts.items()}
    sets["validation"]["X_ori"] = parts["validation"].values.astype(np.float32)
    return sets


def scores(answers: Answers, truth: Numbers) -> dict[str, float]:
    """Errors, CRPS, and how much central intervals hold and how wide they are."""
    point, samples, curves = answers
    if samples is None:
        assert point is not None
        mae = float(np.abs(point - truth).mean())
        return {"mae": mae, "mse": float(((point - truth) ** 2).mean()), "crps": mae}
    samples = samples.astype(np.float64)
    # An answer of its own is better than the mean and the median of a few samples.
    mean, median = (samples.mean(1), np.median(samples, 1)) if point is None else (point, point)
    found = {
        "mae": float(np.abs(median - truth).mean()),
        "mse": float(((mean - truth) ** 2).mean()),
        "mae_of_mean": float(np.abs(mean - truth).mean()),
        "crps": float(crps_of_samples(samples, truth).mean()),
        "crps_of_samples": float(crps_of_samples(samples, truth, is_whole=True).mean()),
    }
    if curves is not None:
        found["crps_of_curves"] = float(crps_of_samples(curves.astype(np.float64), truth).mean())
    for level in LEVELS:
        low, high = np.quantile(samples, [(1 - level) / 2, (1 + level) / 2], axis=1)
        found[f"coverage_{level * 100:.0f}"] = float(((low <= truth) & (truth <= high)).mean())
        found[f"width_{level * 100:.0f}"] = float((high - low).mean())
    return found


def crps_of_samples(samples: Float64[np.ndarray, "q s"], truth: Numbers, *, is_whole: bool = False) -> Numbers:
    """The mean distance of samples to the truth, less half of the mean distance between two of them.

    Two different ones: this is unbiased for the distribution that they are drawn from. With `is_whole` they are the
    distribution, and a sample may be drawn twice.
    """
    n = samples.shape[1]
    apart = np.sort(samples, axis=1) @ (2.0 * np.arange(n) - n + 1)  # the sum of the distances of all pairs
    return np.abs(samples - truth[:, None]).mean(1) - apart / (n * n if is_whole else n * (n - 1))


def run(name: str, seed: int, fit: Fit) -> dict[str, Any]:
    """Train a peer on the arrays of a seed, and judge it."""
    parts = {part: grid.first(fit.n_records) for part, grid in load(seed).items()}
    parts["validation"] = parts["validation"].first(fit.n_validation)
    sets, test = handed_over(parts), parts["test"]
    _, n_steps, n_features = test.values.shape
    trained = fitted(name, seed, fit, sets, {"n_steps": n_steps, "n_features": n_features})
    began = time.monotonic()
    answers = answers_of(PEERS[name], trained.model, sets["test"]["X"], test, fit.n_samples)
    trained.seconds["answer"] = round(time.monotonic() - began, 2)
    return trained.result() | {
        "data": "physionet-grid",
        "metrics": scores(answers, test.values[test.hidden]),
        "n_hidden": int(test.hidden.sum()),
        "n_records": {part: len(grid) for part, grid in parts.items()},
        "n_samples": None if answers.samples is None else fit.n_samples,
    }


def answers_of(peer: Peer, model: Any, visible: Float[np.ndarray, "r h v"], test: Grid, n: int) -> Answers:
    """What a trained model of PyPOTS says of the hidden cells of the test."""
    if peer.answers == "samples":
        drawn = np.asarray(model.predict({"X": visible}, n_sampling_times=n)["imputation"])
        return Answers(None, drawn.transpose(0, 2, 3, 1)[test.hidden])
    imputed = np.asarray(model.predict({"X": visible})["imputation"])
    point = imputed.reshape(test.values.shape)[test.hidden].astype(np.float64)
    if peer.answers == "point":
        return Answers(point)
    curves, noisy = _latent_curves(model, visible, n)
    return Answers(point, noisy[test.hidden], curves[test.hidden])


@torch.no_grad()
def _latent_curves(
    model: Any, visible: Float[np.ndarray, "r h v"], n: int
) -> tuple[Float[np.ndarray, "r h v s"], Float[np.ndarray, "r h v s"]]:
    """Curves of GP-VAE from its latent posterior, and the same with the noise of its decoder."""
    network = model.model.eval().backbone
    device = next(network.parameters()).device
    curves, noisy = [], []
    for x in torch.from_numpy(np.nan_to_num(visible)).split(ANSWERED_AT_ONCE):
        latent = network.encode(x.to(device))
        decoded = [network.decode(latent.sample()) for _ in range(n)]
        curves.append(torch.stack([one.mean for one in decoded], -1).cpu().numpy())
        noisy.append(torch.stack([one.sample() for one in decoded], -1).cpu().numpy())
    return np.concatenate(curves), np.concatenate(noisy)

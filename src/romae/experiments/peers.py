"""Imputation models of PyPOTS on the very arrays of the row `uncertainty/physionet-grid`: CSDI, GP-VAE and SAITS.

    python -m romae.experiments.peers csdi gp-vae saits --seeds 0-2 --out results/peers/physionet-grid --device cuda
    python -m romae.experiments.peers saits --seeds 0 --out peers --quick      seconds; numbers mean nothing

Steps a seed: 80 a pass, at most 100 passes, fewer where 10 of them bring nothing. CSDI is validated at each of its 50
noise levels, 1 000 forward passes a pass, and its answers are 50 more for each sample and batch of stays, so it takes
far longer than the others. It may have what our rows have, products in bfloat16 and a compiled network, and fewer
validation stays to choose its pass by; `--minutes` ends a fit, and what was best by then answers. Its row here:

    python -m romae.experiments.peers csdi --precision bf16 --compile --n-validation 160 --out … --device cuda

Settings are those that the authors of PyPOTS found for this data set in their benchmark TSI-Bench (Awesome_Imputation,
hpo_results/physionet2012.py); what these do not name is the default of PyPOTS. Each peer and seed has a file of its
own, NAME-SEED.json, and is not run again where there is one. Scores are of the hidden cells of the test stays, in
z-scores: `mse` of the mean, `mae` of the median (`mae_of_mean` is what others report of CSDI), CRPS, and what central
intervals hold. The CRPS of samples is the unbiased estimate of what more samples would come to; `crps_of_samples`
takes the few that there are for the whole distribution. SAITS answers with one number, whose CRPS is its absolute
error. PyPOTS answers with the mean of GP-VAE, however often it is asked; samples are drawn here as that model says,
from the posterior of its latent curves, with the noise of standard deviation 1 that its decoder has (`crps_of_curves`
is without that noise).
"""

import argparse
import json
import math
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float64

from romae.experiments.datasets.physionet_grid import Grid, load
from romae.experiments.density_scores import LEVELS
from romae.experiments.results import commit, device_name, versions
from romae.extras import require_extra
from romae.files import require_writable, write_whole_text

ANSWERED_AT_ONCE = 64  # stays whose latent curves are drawn

Samples = Float[np.ndarray, "q s"]
Numbers = Float64[np.ndarray, "q"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A model of PyPOTS: the name of its class there, its settings, and others for a quick run."""

    model: str
    lr: float
    settings: Mapping[str, Any]
    quick: Mapping[str, Any]
    answers: Literal["samples", "latent curves", "point"]
    network: str | None = None  # the module that takes all the time, where it can be compiled or computed in bfloat16


PEERS = {
    "csdi": Peer(
        model="CSDI",
        lr=0.0004496995494581241,
        settings={
            "n_layers": 5,
            "n_heads": 8,
            "n_channels": 128,
            "d_time_embedding": 32,
            "d_feature_embedding": 8,
            "d_diffusion_embedding": 256,
        },
        quick={"n_layers": 1, "n_heads": 2, "n_channels": 8, "d_diffusion_embedding": 16, "n_diffusion_steps": 3},
        answers="samples",
        network="model.backbone.diff_model",
    ),
    "gp-vae": Peer(
        model="GPVAE",
        lr=0.0006284348862580636,
        settings={
            "latent_size": 37,
            "encoder_sizes": (256, 256),
            "decoder_sizes": (256, 256),
            "window_size": 36,
            "beta": 0.2,
            "sigma": 1.005,
            "length_scale": 7,
        },
        quick={"latent_size": 3, "encoder_sizes": (8, 8), "decoder_sizes": (8, 8), "window_size": 4},
        answers="latent curves",
    ),
    "saits": Peer(
        model="SAITS",
        lr=0.00010230680340587147,
        settings={
            "n_layers": 3,
            "d_model": 64,  # PyPOTS takes the product of heads and d_k instead, and says so
            "d_ffn": 512,
            "n_heads": 8,
            "d_k": 128,
            "d_v": 256,
            "dropout": 0.2,
            "attn_dropout": 0.1,
        },
        quick={"n_layers": 1, "d_model": 8, "d_ffn": 8, "n_heads": 2, "d_k": 4, "d_v": 4},
        answers="point",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How long a peer learns, and how often it is asked."""

    epochs: int = 100
    patience: int = 10
    minutes: float | None = None
    batch_size: int = 32
    n_samples: int = 20
    n_records: int | None = None  # of each part
    n_validation: int | None = None  # the first of the validation stays, which choose the pass
    precision: str = "float32"
    compile: bool = False
    device: str = "auto"
    is_quick: bool = False

    def __post_init__(self) -> None:
        for name in ("epochs", "patience"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name} must be at least 1, not {getattr(self, name)}")
        if self.n_samples < 2:
            raise ValueError(f"--n-samples must be at least 2, or there is no spread, not {self.n_samples}")
        if self.minutes is not None and not 0 < self.minutes < math.inf:
            raise ValueError(f"--minutes must be above 0, not {self.minutes:g}")
        if self.n_validation is not None and self.n_validation < 1:
            raise ValueError(f"--n-validation must be at least 1, not {self.n_validation}")
        if self.precision not in ("float32", "tf32", "bf16"):
            raise ValueError(f"--precision must be float32, tf32 or bf16, not {self.precision!r}")
        if self.device not in ("auto", "cpu", "cuda"):
            raise ValueError(f"--device must be auto, cpu or cuda, not {self.device!r}")
        if self.device == "cuda" and not torch.cuda.is_available():
            raise ValueError("--device cuda: torch finds no GPU here; give --device cpu")

    @property
    def torch_device(self) -> str:
        is_gpu = self.device == "cuda" or (self.device == "auto" and torch.cuda.is_available())
        return "cuda" if is_gpu else "cpu"


FULL = Fit()
QUICK = Fit(epochs=1, n_records=24, n_samples=3, batch_size=8, is_quick=True)


class Answers(NamedTuple):
    """What a peer says of the hidden cells: a number each, or samples, and those without the noise of a measurement."""

    point: Numbers | None
    samples: Samples | None = None
    curves: Samples | None = None


@dataclass(eq=False, slots=True)
class Clock:
    """Counts steps and ends a fit when its time is up, but not before a whole pass has been validated."""

    steps_per_epoch: int
    minutes: float | None
    n_steps: int = 0
    is_up: bool = False
    began: float = field(default_factory=time.monotonic)

    def tick(self) -> None:
        """To be called after each step. PyPOTS takes an interruption for the end of training."""
        self.n_steps += 1
        late = self.minutes is not None and time.monotonic() - self.began > 60 * self.minutes
        if late and self.n_steps > self.steps_per_epoch:
            self.is_up = True
            raise KeyboardInterrupt

    def ended_by(self, epochs: int) -> str:
        """What ended a fit; a stranger's interruption goes on."""
        if self.is_up:
            return "minutes"
        if self.n_steps % self.steps_per_epoch:
            raise KeyboardInterrupt
        return "epochs" if self.n_steps == epochs * self.steps_per_epoch else "patience"


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


def settings_of(peer: Peer, fit: Fit) -> dict[str, Any]:
    """Those of a model of PyPOTS, but for its optimiser and device."""
    chosen = {**peer.settings, **(peer.quick if fit.is_quick else {})}
    patience = min(fit.patience, fit.epochs)  # PyPOTS refuses more
    return chosen | {"batch_size": fit.batch_size, "epochs": fit.epochs, "patience": patience}


def run(name: str, seed: int, fit: Fit) -> dict[str, Any]:
    """Train a peer on the arrays of a seed, and judge it."""
    require_extra("peers", "peers need")
    import pypots.imputation
    from pypots.optim import Adam
    from pypots.utils.random import set_random_seed

    parts = {part: grid.first(fit.n_records) for part, grid in load(seed).items()}
    parts["validation"] = parts["validation"].first(fit.n_validation)
    sets, test = handed_over(parts), parts["test"]
    peer, device = PEERS[name], fit.torch_device
    clock = Clock(math.ceil(len(parts["train"]) / fit.batch_size), fit.minutes)

    class Timed(Adam):
        def step(self, closure: Any = None) -> None:
            super().step(closure)
            clock.tick()

    set_random_seed(seed)
    settings = settings_of(peer, fit)
    _, n_steps, n_features = test.values.shape
    model = getattr(pypots.imputation, peer.model)(
        n_steps=n_steps,
        n_features=n_features,
        optimizer=Timed(lr=peer.lr),
        device=device,
        model_saving_strategy=None,
        verbose=False,
        **settings,
    )
    speed_up(name, model, fit)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    clock.began = time.monotonic()
    model.fit(sets["train"], sets["validation"])
    seconds = {"fit": round(time.monotonic() - clock.began, 2)}
    ended_by = clock.ended_by(fit.epochs)
    began = time.monotonic()
    answers = answers_of(peer, model, sets["test"]["X"], test, fit.n_samples)
    seconds["answer"] = round(time.monotonic() - began, 2)
    return {
        "peer": name,
        "seed": seed,
        "data": "physionet-grid",
        "metrics": scores(answers, test.values[test.hidden]),
        "n_hidden": int(test.hidden.sum()),
        "n_records": {part: len(grid) for part, grid in parts.items()},
        "n_samples": None if answers.samples is None else fit.n_samples,
        "settings": {"model": peer.model, "lr": peer.lr, **settings},
        "n_parameters": sum(p.numel() for p in model.model.parameters() if p.requires_grad),
        "steps": clock.n_steps,
        "epochs": clock.n_steps / clock.steps_per_epoch,
        "best_epoch": int(model.best_epoch),
        "ended_by": ended_by,
        "minutes": fit.minutes,
        "precision": fit.precision,
        "compiled": fit.compile,
        "seconds": seconds,
        "peak_memory_mb": round(_peak_memory(device) / 2**20),
        "device": device_name(device),
        "versions": versions() | {"pypots": version("pypots")},
        "commit": commit(),
        "quick": fit.is_quick,
    }


def require_speed(name: str, fit: Fit) -> None:
    """Refuse what `speed_up` could not do."""
    if PEERS[name].network is None and (fit.compile or fit.precision == "bf16"):
        able = " and ".join(other for other, peer in PEERS.items() if peer.network is not None)
        raise ValueError(f"--compile and --precision bf16 are for {able}; run {name} without them")


def speed_up(name: str, model: Any, fit: Fit) -> None:
    """Compute the products of a model of PyPOTS in another precision, and compile its network."""
    require_speed(name, fit)
    if fit.precision == "tf32":
        torch.set_float32_matmul_precision("high")
    path = PEERS[name].network
    if path is None:
        return
    network: torch.nn.Module = attrgetter(path)(model)
    if fit.precision == "bf16":
        inner, device = network.forward, fit.torch_device

        def forward(*inputs: torch.Tensor) -> torch.Tensor:
            with torch.autocast(device, torch.bfloat16):
                return inner(*inputs).float()

        network.forward = forward
    if fit.compile:
        # The last batch of a pass is smaller: a case of its own, since one for all sizes would be slower for each.
        network.compile(dynamic=False)


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


def _peak_memory(device: str) -> int:
    """The most bytes that torch had on the GPU, or that the process had, since it began."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    try:
        import resource
    except ImportError:  # of systems without it
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def read_seeds(text: str) -> list[int]:
    """0-2, or 0,3,5."""
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", part.strip())
        span = range(int(match[1]), int(match[2] or match[1]) + 1) if match else range(0)
        if not span or len(span) > 1000:
            raise ValueError(f"cannot read the seeds {text[:80]!r}; write them as 0-2 or 0,3,5")
        seeds += span
    return seeds


def is_done(path: Path, fit: Fit) -> bool:
    """Whether a file holds this peer and seed; one of a quick run does not stand for a real one."""
    if not path.exists():
        return False
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
        is_quick = bool(before["quick"])
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"{path} is no result of a peer; remove it, or name another folder") from None
    if is_quick != fit.is_quick:
        kinds = ("a quick run", "a real one") if is_quick else ("a real run", "a quick one")
        raise ValueError(f"{path} is of {kinds[0]}, not of {kinds[1]}; remove it, or name another folder")
    return True


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line of this file."""
    parser = argparse.ArgumentParser(prog="python -m romae.experiments.peers", description=__doc__.split("\n")[0])
    parser.add_argument("peers", nargs="+", choices=list(PEERS), help="the models to run")
    parser.add_argument("--seeds", default="0-2", help="0-2, or 0,3,5; each has its own split")
    parser.add_argument("--out", required=True, help="the folder of the results")
    parser.add_argument("--epochs", type=int, help=f"passes at most; {FULL.epochs} by default")
    parser.add_argument("--patience", type=int, help=f"passes that may bring nothing; {FULL.patience} by default")
    parser.add_argument("--minutes", type=float, help="of a fit, answers not counted; no limit by default")
    parser.add_argument("--n-samples", type=int, help=f"of each hidden cell; {FULL.n_samples} by default")
    parser.add_argument("--n-validation", type=int, help="the first of the validation stays; all by default")
    parser.add_argument("--precision", help="of products: float32 (the default), tf32, or bf16 for csdi")
    parser.add_argument("--compile", action="store_true", default=None, help="the network of csdi")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--quick", action="store_true", help="a few stays and tiny models; the numbers mean nothing")
    given = parser.parse_args(arguments)
    names = ("epochs", "patience", "minutes", "n_samples", "n_validation", "precision", "compile", "device")
    options = {name: getattr(given, name) for name in names}
    out = Path(given.out)
    try:
        fit = replace(
            QUICK if given.quick else FULL, **{name: value for name, value in options.items() if value is not None}
        )
        for name in given.peers:
            require_speed(name, fit)
        require_writable(out)
        todo = [(name, seed) for seed in read_seeds(given.seeds) for name in given.peers]
        for name, seed in todo:
            path = out / f"{name}-{seed}.json"
            if is_done(path, fit):
                print(f"{name}, seed {seed}: done before, {path}")
                continue
            result = run(name, seed, fit)
            write_whole_text(path, json.dumps(result, indent=1) + "\n")
            metrics, seconds = result["metrics"], result["seconds"]
            print(
                f"{name}, seed {seed}: MAE {metrics['mae']:.3f}, MSE {metrics['mse']:.3f}, CRPS {metrics['crps']:.3f}; "
                f"{result['epochs']:.0f} passes, ended by {result['ended_by']}; {seconds['fit']:.0f} s of fit, "
                f"{seconds['answer']:.0f} s of answers",
                flush=True,
            )
    except (ValueError, ImportError, OSError) as error:
        print(f"romae: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()

"""Fits of models of PyPOTS: how long, how fast, and what came of them but for the scores."""

import math
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import version
from operator import attrgetter
from typing import Any

import torch

from romae.experiments.peers.models import PEERS, Peer
from romae.experiments.results import commit, device_name, versions


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


@dataclass(eq=False, slots=True)
class Fitted:
    """A trained model of PyPOTS, and what its file says of the way there."""

    model: Any
    about: dict[str, Any]
    seconds: dict[str, float]
    device: str

    def result(self) -> dict[str, Any]:
        """What its file says, with the memory that was needed until now."""
        memory = {"peak_memory_mb": round(_peak_memory(self.device) / 2**20)}
        return {**self.about, "seconds": self.seconds, **memory, "device": device_name(self.device)}


def fitted(name: str, seed: int, fit: Fit, sets: Mapping[str, Mapping[str, Any]], sizes: Mapping[str, int]) -> Fitted:
    """Train a peer on arrays; `sizes` are those that its class asks for, such as the number of series."""
    from pypots.optim import Adam
    from pypots.utils.random import set_random_seed

    peer, device = PEERS[name], fit.torch_device
    clock = Clock(math.ceil(len(sets["train"]["X"]) / fit.batch_size), fit.minutes)

    class Timed(Adam):
        def step(self, closure: Any = None) -> None:
            super().step(closure)
            clock.tick()

    set_random_seed(seed)
    settings = settings_of(peer, fit, sizes["n_features"])
    model = getattr(import_module(f"pypots.{peer.task}"), peer.model)(
        **sizes, optimizer=Timed(lr=peer.lr), device=device, model_saving_strategy=None, verbose=False, **settings
    )
    speed_up(name, model, fit)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    clock.began = time.monotonic()
    model.fit(sets["train"], sets["validation"])
    seconds = {"fit": round(time.monotonic() - clock.began, 2)}
    about = {
        "peer": name,
        "seed": seed,
        "settings": {"model": peer.model, "lr": peer.lr, **settings},
        "n_parameters": sum(p.numel() for p in model.model.parameters() if p.requires_grad),
        "steps": clock.n_steps,
        "epochs": clock.n_steps / clock.steps_per_epoch,
        "best_epoch": int(model.best_epoch),
        "ended_by": clock.ended_by(fit.epochs),
        "minutes": fit.minutes,
        "precision": fit.precision,
        "compiled": fit.compile,
        "versions": versions() | {"pypots": version("pypots")},
        "commit": commit(),
        "quick": fit.is_quick,
    }
    return Fitted(model, about, seconds, device)


def settings_of(peer: Peer, fit: Fit, n_features: int) -> dict[str, Any]:
    """Those of a model of PyPOTS, but for its optimiser and device."""
    multiples = {name: factor * n_features for name, factor in peer.per_feature.items()}
    chosen = {**peer.settings, **multiples, **(peer.quick if fit.is_quick else {})}
    patience = min(fit.patience, fit.epochs)  # PyPOTS refuses more
    return chosen | {"batch_size": fit.batch_size, "epochs": fit.epochs, "patience": patience}


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


def _peak_memory(device: str) -> int:
    """The most bytes that torch had on the GPU, or that the process had, since it began."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    try:
        import resource
    except ImportError:  # of systems without it
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

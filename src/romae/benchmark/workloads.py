"""The four workloads on which steps are timed: light curves, images, audio, ICU records."""

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch

from romae.model.config import SIZES, ModelConfig
from romae.model.tasks import MaskedReconstruction
from romae.tokens.masking import UniformTokens
from romae.tokens.sample import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Pre-training on samples of `shortest` to `longest` tokens, the decoder the paper's unless `queries` says else."""

    n_samples: int
    shortest: int
    longest: int
    channels: int
    size: str
    ratio: float
    skew: float = 1.0
    cls: bool = True
    queries: Literal["joint", "independent"] = "joint"

    def lengths(self, random: np.random.Generator, n_samples: int) -> list[int]:
        """Lengths between the shortest and the longest, evenly spread, or with a skew mostly short."""
        share = random.random(n_samples) ** self.skew
        return (self.shortest + share * (self.longest + 1 - self.shortest)).astype(int).tolist()

    def samples(self, n_samples: int, seed: int = 0) -> list[Sample]:
        """Samples of noise: what is in them makes no difference to the time."""
        random = np.random.default_rng(seed)
        lengths = self.lengths(random, n_samples)
        values = torch.from_numpy(random.standard_normal((sum(lengths), self.channels), dtype=np.float32))
        positions = torch.from_numpy(random.uniform(0, 100, (sum(lengths), 2)).astype(np.float32))
        pairs = zip(values.half().split(lengths), positions.split(lengths), strict=True)
        return [Sample(v, p, id=i) for i, (v, p) in enumerate(pairs)]

    def task(self, **changes: Any) -> MaskedReconstruction:
        config = ModelConfig(
            channels=self.channels, position_dims=2, encoder=SIZES[self.size], queries=self.queries, cls=self.cls
        )
        torch.manual_seed(0)
        return MaskedReconstruction(replace(config, **changes), masking=UniformTokens(ratio=self.ratio))


WORKLOADS = {
    "lightcurves": Workload(n_samples=1024, shortest=20, longest=220, channels=2, size="tiny", ratio=0.5),
    "images": Workload(n_samples=1024, shortest=16, longest=16, channels=768, size="small", ratio=0.75),
    "audio": Workload(n_samples=64, shortest=512, longest=512, channels=256, size="small", ratio=0.75),
    "icu": Workload(n_samples=16, shortest=100, longest=1300, channels=1, size="tiny", ratio=0.5),
}
# On which positions are timed; photographs are those of the paper, 224 pixels in patches of 16.
OF_POSITIONS = {
    "images": WORKLOADS["images"],
    "photographs": replace(WORKLOADS["images"], n_samples=64, shortest=196, longest=196, cls=False),
    "audio": WORKLOADS["audio"],
}
# On a CPU: light curves that fill two fifths of a padded batch, and samples of one length.
CPU_WORKLOADS = {
    "lightcurves": replace(WORKLOADS["lightcurves"], n_samples=64, skew=2.0),
    "equal lengths": replace(WORKLOADS["lightcurves"], n_samples=64, shortest=100, longest=100),
}

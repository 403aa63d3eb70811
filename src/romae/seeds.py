"""Seeds: what torch draws at random, made to follow from numbers such as the seed of a run and its step."""

import contextlib
from collections.abc import Iterator

import numpy as np
import torch


def seed_everything(*key: int) -> int:
    """Seed torch's own generators, which dropout and stochastic depth draw from, by a key of several numbers."""
    seed = _seed_of(key)
    torch.manual_seed(seed)
    return seed


def seed_step(*key: int, device: torch.device) -> int:
    """The same for the generators that a step on this device draws from, in a tenth of the time.

    `torch.manual_seed` also takes note of its call for devices that are not there, at every step.
    """
    seed = _seed_of(key)
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed_all(seed)
    return seed


@contextlib.contextmanager
def generators_as_before(*, has_gpus: bool | None = None) -> Iterator[None]:
    """What is seeded within changes nothing for the caller: torch's own generators end where they began.

    `has_gpus` says whether those of GPUs are meant too, which starts CUDA; by default if it is in use already.
    """
    has_gpus = torch.cuda.is_initialized() if has_gpus is None else has_gpus
    cpu, gpus = torch.get_rng_state(), torch.cuda.get_rng_state_all() if has_gpus else []
    try:
        yield
    finally:
        torch.set_rng_state(cpu)
        if has_gpus:
            torch.cuda.set_rng_state_all(gpus)


def _seed_of(key: tuple[int, ...]) -> int:
    return int(np.random.SeedSequence(key).generate_state(1)[0])

"""Seeds: what torch draws at random, made to follow from numbers such as the seed of a run and its step."""

import numpy as np
import torch


def seed_everything(*key: int) -> int:
    """Seed torch's own generators, which dropout and stochastic depth draw from, by a key of several numbers."""
    seed = _seed_of(key)
    torch.manual_seed(seed)
    return seed


def seed_step(*key: int) -> int:
    """The same for the generators of CPU and CUDA alone, in a tenth of the time.

    `torch.manual_seed` also takes note of its call for devices that are not there, at every step.
    """
    seed = _seed_of(key)
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)
    return seed


def _seed_of(key: tuple[int, ...]) -> int:
    return int(np.random.SeedSequence(key).generate_state(1)[0])

"""Rules: how to train where nothing is said, by a few lines that hold from 40 to 100 000 samples.

Small data need many passes with small batches; large data need few passes. Each rule is a function of the number of
samples, their lengths, the size of the model and the kind of device, never of the time that something took, so that the
same data give the same settings on every machine of a kind. On two CPU cores a fit ends within about five minutes for
up to 5 000 samples or a million tokens, on a GPU within about two.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Int64, Shaped

from romae.model.config import Size
from romae.tokens.masking import Future
from romae.tokens.sample import Sample

Precision = Literal["float32", "bf16"]

TOKENS_PER_BATCH = 32_768
SMALLEST_SPLIT = 20  # samples; of fewer, none can be spared


# Cuts in the training of forecasts are drawn from here, as shares of the span of a sample: most of it must be seen for
# the end to be forecast, and an early cut has more ahead to learn from.
EARLIEST_CUT, LATEST_CUT = 0.3, 0.95


def looking_ahead(horizon: float | str | None, known: Sequence[str | int] = ()) -> Future:
    """What training hides for forecasts where nothing else is said: what follows a random cut, up to a horizon."""
    return Future(share=(EARLIEST_CUT, LATEST_CUT), horizon=horizon, known=tuple(known))


class Device(NamedTuple):
    """How long a step takes, in seconds: what every step costs, and every layer, and each token in a layer of width w.

    The latter is `per_width` w + `per_square` w² + `per_pair` w l, where the token attends to l others. `budget` is
    what all steps of a fit may take.
    """

    per_step: float
    per_layer: float
    per_width: float
    per_square: float
    per_pair: float
    budget: float


# Two cores of a Neoverse N1, both busy, where a token of 2 layers of width 72 takes 50, 70 and 114 µs in samples of
# 120, 450 and 1 000; and an H200 with bfloat16 and recorded steps, where a layer takes 0.2 ms or more: 1.3 ms for
# 2 layers of width 180 and 4 600 tokens, 4.0 ms for 12 layers; with 28 000 tokens 2.1 and 11.6.
CPU = Device(per_step=0.012, per_layer=0.0, per_width=2.2e-7, per_square=7.2e-10, per_pair=5.1e-10, budget=220.0)
GPU = Device(per_step=0.001, per_layer=2.2e-4, per_width=8e-11, per_square=3e-13, per_pair=0.0, budget=80.0)


class Course(NamedTuple):
    """How a stage goes: its rate at the width that it was found for, and its steps within limits of passes."""

    lr: float
    width: int
    n_steps: int
    at_least: int
    at_most: int


PRETRAINING = Course(lr=1e-3, width=180, n_steps=4_000, at_least=5, at_most=400)
FINE_TUNING = Course(lr=1e-3, width=90, n_steps=3_000, at_least=2, at_most=60)
IN_CONTEXT = Course(lr=1e-3, width=144, n_steps=3_000, at_least=3, at_most=300)  # from a model that knows much already
PROBING = Course(lr=1e-2, width=180, n_steps=1_500, at_least=10, at_most=60)  # a head on a frozen encoder

# Of the budget, for pre-training before labels are learned, where it then is long enough to teach anything; with
# further samples that have no labels, it always is. It is only a beginning, and need not go on for long.
PRETRAINING_SHARE, FEWEST_PASSES, MOST_PASSES = 0.3, 10, 60
UNLABELLED_SHARE = 0.5

# A network of few samples depends on chance, and so does what a small split says of it: several are trained, so that
# every sample is held out once.
SEVERAL, FEW, PASSES_OF_EACH = 5, 1_000, 40


def fitting_batch(lengths: Int64[np.ndarray, "b"]) -> int:
    """An eighth of the samples, as a power of two from 8 to 128, and no more tokens than fit into memory."""
    power = 2 ** int(np.log2(max(len(lengths) / 8, 1)))
    return int(np.clip(power, 8, max(1, min(128, TOKENS_PER_BATCH // max(int(lengths.mean()), 1)))))


def step_seconds(lengths: Int64[np.ndarray, "b"], n_steps: int, size: Size, device: Device) -> float:
    """About how long one of so many steps over samples of these lengths takes."""
    n_tokens, n_pairs = float(lengths.sum()) / n_steps, float((lengths.astype(np.float64) ** 2).sum()) / n_steps
    per_token = device.per_width * size.width + device.per_square * size.width**2
    return device.per_step + size.depth * (
        device.per_layer + n_tokens * per_token + n_pairs * device.per_pair * size.width
    )


def fitting_precision(device: str) -> Precision:
    """bfloat16 on GPUs that have it, where attention in float32 is several times as slow; float32 elsewhere.

    Measured on an H200, one split of training data each: R² of hidden readings of oscillators is 0.9875 with bfloat16
    and 0.9883 without; of hidden numbers of stays 0.690 after 103 passes in 81 s, and 0.682 after 42 passes in 245 s.
    """
    import torch

    return "bf16" if device != "cpu" and torch.cuda.is_bf16_supported(including_emulation=False) else "float32"


def fitting_epochs(
    lengths: Int64[np.ndarray, "b"], batch_size: int, size: Size, course: Course, device: Device, share: float = 1.0
) -> int:
    """Passes for the steps that are wanted, or for those that a share of the budget allows, within limits."""
    steps_per_pass = -(-len(lengths) // batch_size)
    pass_seconds = steps_per_pass * step_seconds(lengths, steps_per_pass, size, device)
    wanted = min(-(-course.n_steps // steps_per_pass), int(share * device.budget / pass_seconds))
    return int(np.clip(wanted, course.at_least, course.at_most))


def fitting_models(lengths: Int64[np.ndarray, "b"], size: Size, device: Device) -> int:
    """Several networks, each with a fifth of the samples held out, where there is time for enough passes of each."""
    passes = fitting_epochs(lengths, fitting_batch(lengths), size, FINE_TUNING, device, 1 / SEVERAL)
    return SEVERAL if len(lengths) < FEW and passes >= PASSES_OF_EACH else 1


def fitting_rate(size: Size, course: Course) -> float:
    """That of the course up to its width, and less in proportion for wider models."""
    return course.lr * course.width / max(size.width, course.width)


def fitting_patience(epochs: int) -> int:
    """A quarter of all passes, but at least five, may go by without improvement."""
    return max(5, epochs // 4)


def fitting_share(n_samples: int) -> float:
    """The share of samples to validate on: a fifth of some hundred, a tenth of many, none of a handful."""
    return 0.0 if n_samples < SMALLEST_SPLIT else float(np.clip(100 / n_samples, 0.1, 0.2))


def held_out(groups: Shaped[np.ndarray, "b"], share: float, random: np.random.Generator) -> Bool[np.ndarray, "b"]:
    """True on the samples to validate on: the same share of every group, of which at least one member stays."""
    chosen = np.zeros(len(groups), dtype=bool)
    for group in np.unique(groups):
        members = random.permutation(np.flatnonzero(groups == group))
        n_chosen = min(int(share * len(members) + random.uniform()), len(members) - 1)
        chosen[members[:n_chosen]] = True
    return chosen


def folds(groups: Shaped[np.ndarray, "b"], n_folds: int, random: np.random.Generator) -> Int64[np.ndarray, "b"]:
    """The fold of each sample, every group spread evenly over them; a group's only member is in none (-1)."""
    assigned = np.full(len(groups), -1, dtype=np.int64)
    for group in np.unique(groups):
        members = random.permutation(np.flatnonzero(groups == group))
        if len(members) > 1:
            assigned[members] = (np.arange(len(members)) + random.integers(n_folds)) % n_folds
    return assigned


def first_time(samples: Sequence[Sample]) -> float:
    """When the first of the samples begins: the origin of a clock that they share."""
    return min(float(sample.positions[:, 0].min()) for sample in samples)

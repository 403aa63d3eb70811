"""Calibration: probabilities that mean what they say. Shapes: b samples, k classes.

Label smoothing teaches a classifier to be wrong in a known way: it learns probabilities that are drawn to 1 / k, which
for a rare class is twice its rate or more. That is undone exactly. What then is left, from overfitting or stopping
early, is mended by a temperature and a bias for each class, fitted to samples that were not trained on.
"""

from dataclasses import dataclass
from math import isfinite

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor
from torch.nn import functional as F

# Over how wide a range of probabilities the lower end is rounded, so that classes less probable than smoothing allows
# for keep their order instead of being cut off at 0.
SOFTNESS = 0.01
# So many samples say as much as the model says itself, and fewer count less, by the square: validation samples have
# also chosen the weights, so that a few dozen of them flatter the model, and fitting them costs accuracy and log loss.
HALF_THE_EVIDENCE = 60
# From so many samples on, the mean probability of a class is held to its rate among them: of fewer, a rate is known to
# ten points at best.
ENOUGH_FOR_RATES, AT_MOST_OFF = 20, 0.005
COLDEST, HOTTEST = 0.05, 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What is done to the logits of a classifier: smoothing undone, a temperature, a bias for each class or label."""

    temperature: float = 1.0
    bias: tuple[float, ...]

    def __post_init__(self) -> None:
        if not (isfinite(self.temperature) and self.temperature > 0):
            raise ValueError(f"the temperature of a calibration must be positive, not {self.temperature}")
        if not all(map(isfinite, self.bias)):
            raise ValueError(f"the bias of a calibration must be finite, got {list(self.bias)}")

    def apply(self, logits: Float[Tensor, "b k"], confidence: float) -> Float64[Tensor, "b k"]:
        """Logits of calibrated probabilities, for a classifier that was taught with this confidence."""
        bias = torch.tensor(self.bias, dtype=torch.float64, device=logits.device)
        return without_smoothing(logits, confidence) / self.temperature + bias


def without_smoothing(logits: Float[Tensor, "b k"], confidence: float) -> Float64[Tensor, "b k"]:
    """Logits of the probabilities that smoothing has drawn together; the order of classes stays."""
    if confidence == 1:
        return logits.double()
    n_classes = logits.shape[1]
    rest = (1 - confidence) / (n_classes - 1)  # what smoothing gives to each wrong class
    probability = (logits.double().softmax(-1) - rest) / (confidence - rest)
    # softplus(x) ~ exp(x) far below 0, where its logarithm would be that of 0
    return torch.where(
        probability < -20 * SOFTNESS,
        probability / SOFTNESS,
        F.softplus(probability / SOFTNESS).clamp(min=1e-300).log(),
    ).log_softmax(-1)


def fitted(
    logits: Float[Tensor, "b k"],
    classes: Int64[Tensor, "b"],
    confidence: float,
    weights: Float64[Tensor, "b"] | None = None,
) -> Calibration:
    """The calibration that suits samples that were not trained on; without any, smoothing is undone and that is all.

    Means of probabilities become the rates of the classes among the samples, where these are enough to tell; else what
    the model says itself keeps a share. With weights, a sample of weight 2 is the sample twice.
    """
    if len(logits) == 0:
        return Calibration(bias=(0.0,) * logits.shape[1])
    scale, bias = _fitted(without_smoothing(logits, confidence).detach(), classes, weights)
    return Calibration(temperature=1 / scale, bias=tuple((bias - bias.mean()).tolist()))


def fitted_to_labels(
    logits: Float[Tensor, "b k"], truth: Int64[Tensor, "b k"], weights: Float64[Tensor, "b"] | None = None
) -> Calibration:
    """The same for several labels, of which each is true or not: one temperature, and a bias for each label."""
    if len(logits) == 0:
        return Calibration(bias=(0.0,) * logits.shape[1])
    pairs = torch.stack([torch.zeros_like(logits), logits], dim=-1).double().detach()
    scale, bias = _fitted(pairs, truth, weights)
    return Calibration(temperature=1 / scale, bias=tuple((bias[:, 1] - bias[:, 0]).tolist()))


def _fitted(
    own: Float64[Tensor, "b *k c"], classes: Int64[Tensor, "b *k"], weights: Float64[Tensor, "b"] | None
) -> tuple[float, Float64[Tensor, "*k c"]]:
    """What to multiply logits by and what to add, for one choice of c classes per sample or several."""
    n_classes = own.shape[-1]
    n = len(own) if weights is None else float(weights.sum())
    truth, belief = F.one_hot(classes.long(), n_classes).double(), own.softmax(-1)
    mean = _mean(own, weights)
    sharpness = torch.ones((), dtype=torch.float64, requires_grad=True)
    bias = mean.clone().requires_grad_()  # about the mean, where it does not trade with the sharpness
    share = HALF_THE_EVIDENCE**2 / (HALF_THE_EVIDENCE**2 + n**2)
    _minimise(own - mean, (1 - share) * truth + share * belief, weights, sharpness, bias, [sharpness, bias])
    with torch.no_grad():
        sharpness.clamp_(1 / HOTTEST, 1 / COLDEST)
    if n >= ENOUGH_FOR_RATES:
        off = float((_mean(belief, weights) - _mean(truth, weights)).abs().max())
        share = min(share, AT_MOST_OFF / max(off, AT_MOST_OFF))
    _minimise(own - mean, (1 - share) * truth + share * belief, weights, sharpness, bias, [bias])
    return float(sharpness.detach()), (bias - sharpness * mean).detach()


def _mean(x: Float64[Tensor, "b *k"], weights: Float64[Tensor, "b"] | None) -> Float64[Tensor, "*k"]:
    """The mean over samples."""
    return x.mean(0) if weights is None else torch.tensordot(weights / weights.sum(), x, 1)


def _minimise(
    logits: Float64[Tensor, "b *k c"],
    target: Float64[Tensor, "b *k c"],
    weights: Float64[Tensor, "b"] | None,
    sharpness: Float64[Tensor, ""],
    bias: Float64[Tensor, "*k c"],
    parameters: list[Tensor],
) -> None:
    """Bring some of the parameters to the smallest cross-entropy; the problem is convex."""
    optimiser = torch.optim.LBFGS(
        parameters, max_iter=500, tolerance_grad=1e-6, tolerance_change=1e-14, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        optimiser.zero_grad()
        total = _mean(-(target * (sharpness * logits + bias).log_softmax(-1)).flatten(1).sum(-1), weights)
        total.backward()
        return total

    with torch.enable_grad():
        optimiser.step(loss)

"""What becomes of a function when it is measured: outputs of many kinds, noise, outliers, and errors that are known.

Shapes: b samples, n tokens of the longest, c channels.
"""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from romae.prior.draws import Draws

OUTPUTS = ("as it is", "log-normal", "counts", "levels", "bursts", "bounded", "heavy", "two values")
_SHARES = (0.62, 0.08, 0.05, 0.07, 0.06, 0.05, 0.04, 0.03)
_SPREAD = (1.0, 1.3, 1.0, 1.0, 0.4, 0.33, 1.5, 0.5)  # about the deviation of each


def measured(
    draws: Draws, function: Float[Tensor, "b n"], channel: Int64[Tensor, "b n"], most_channels: int
) -> tuple[Float[Tensor, "b n"], Float[Tensor, "b n"]]:
    """Values as they are measured, and the errors that are stated of them; 0 where none is known.

    Noise is next to nothing in a quarter of the channels, else from a fiftieth to seven tenths of the deviation of the
    function; in some samples of another size for each value, with heavy tails, or with outliers. Errors are stated in a
    third of the samples, and in a fifth of those they are wrong by a factor.
    """
    n, by_channel = function.shape[1], lambda x: x.gather(1, channel)
    output = by_channel(draws.choice(_SHARES, most_channels))
    n_levels = by_channel(draws.whole(most_channels, low=2, high=8))
    mean_count = by_channel(draws.log_uniform(most_channels, low=0.3, high=30.0))
    threshold = by_channel(draws.uniform(most_channels, low=0.0, high=1.2))
    is_quiet = draws.chance(0.25, most_channels)
    size = draws.log_uniform(most_channels, low=0.02, high=0.7)
    sigma = by_channel(torch.where(is_quiet, draws.log_uniform(most_channels, low=1e-3, high=1e-2), size))
    varies = draws.chance(0.25).unsqueeze(1)
    sigma = sigma * torch.where(varies, torch.exp(0.6 * draws.normal(n)), 1.0)

    z = draws.normal(n)
    tail = (draws.normal(n, 3).square().sum(2) / 3).sqrt()  # of a Student's t with three degrees of freedom
    z = torch.where(draws.chance(0.12).unsqueeze(1), z / tail.clamp(min=0.1), z)
    is_out = draws.chance(0.1).unsqueeze(1) & (draws.uniform(n) < 0.03)
    outlier = 8.0 * draws.normal(n)

    f = function.clamp(-6, 6)
    noisy = f + sigma * z  # of what is rounded afterwards
    rate = mean_count * torch.exp(0.7 * f)
    counts = (rate + rate.sqrt() * draws.normal(n)).round().clamp(min=0)
    of_each = (
        f,
        torch.exp(0.8 * f),
        counts / mean_count.sqrt(),
        ((noisy + 2) / 4 * n_levels).floor().clamp(min=0).minimum(n_levels - 1) * 4 / n_levels,
        (f - threshold).clamp(min=0),
        torch.sigmoid(2 * f),
        torch.sinh(1.2 * f) / 1.5,
        (noisy > threshold - 0.6).float(),
    )
    values = torch.stack([x.to(f.dtype) for x in of_each]).gather(0, output.unsqueeze(0))[0]
    spread = torch.tensor(_SPREAD, device=f.device, dtype=f.dtype)[output]
    is_discrete = (output == 2) | (output == 3) | (output == 7)
    # Bursts begin from exact zeros.
    is_zero = (output == 4) & (values == 0)
    noise = torch.where(is_discrete | is_zero, 0.0, sigma * spread * z)
    values = values + noise + torch.where(is_out & ~is_discrete, outlier * spread, 0.0)

    factor = torch.where(draws.chance(0.2), draws.log_uniform(low=0.3, high=3.0), 1.0).unsqueeze(1)
    is_stated = draws.chance(0.35).unsqueeze(1) & ~is_discrete & ~is_zero
    return values, torch.where(is_stated, sigma * spread * factor, 0.0)

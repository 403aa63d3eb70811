"""The log-mel filterbank in the Kaldi convention, and spectrograms in 8 bits.

Frames of 25 ms every 10 ms, only where a whole frame fits; from each frame its mean is taken off, then 0.97 of
the sample before each sample; a Hann window; the power spectrum, with frames padded to a power of two; triangular
filters evenly spaced in mel from 20 Hz to half the sample rate; the natural logarithm, no lower than that of the
smallest float32 step at 1. Shapes: n samples, f frames, m mel bins, k frequencies.
"""

import math
import numbers
from functools import lru_cache

import torch
from jaxtyping import Float, Float32, Float64, UInt8
from torch import Tensor

PRE_EMPHASIS = 0.97
LOWEST_HZ = 20.0
N_MELS = 128
MOST_FRAMES = 1 << 21  # close to six hours, in a gibibyte
FLOOR = torch.finfo(torch.float32).eps
SILENCE = math.log(FLOOR)


def log_mel(waveform: Float[Tensor, "*b n"], rate: int) -> Float32[Tensor, "*b f m"]:
    """The log-mel spectrogram of a waveform (or of a batch of equally long ones) at this sample rate."""
    n_frames(waveform.shape[-1], rate)
    window, step = _frame(rate)
    n_fft = 1 << (window - 1).bit_length()
    frames = waveform.float().unfold(-1, window, step)
    frames = frames - frames.mean(-1, keepdim=True)
    before = torch.cat([frames[..., :1], frames[..., :-1]], dim=-1)
    frames = (frames - PRE_EMPHASIS * before) * torch.hann_window(window, periodic=False, device=frames.device)
    spectrum = torch.fft.rfft(frames, n=n_fft)
    power = spectrum.real.square() + spectrum.imag.square()
    energies = power @ _filters(rate, n_fft).to(device=power.device, dtype=power.dtype).T
    return energies.clamp(min=FLOOR).log()


def n_frames(n_samples: int, rate: int) -> int:
    """How many whole frames fit into a waveform of so many samples."""
    window, step = _frame(rate)
    if step < 1 or window < 2:
        raise ValueError(f"a sample rate of {rate} Hz is too low for frames of 25 ms every 10 ms")
    if n_samples < window:
        raise ValueError(f"{n_samples} samples at {rate} Hz are shorter than one frame of 25 ms ({window} samples)")
    return 1 + (n_samples - window) // step


def _frame(rate: int) -> tuple[int, int]:
    """The samples of a frame, 25 ms, and those between the beginnings of two, 10 ms."""
    return rate // 40, rate // 100


def with_frames(x: Float[Tensor, "*b f m"], n_frames: int, fill: float = SILENCE) -> Float[Tensor, "*b g m"]:
    """The spectrogram cut at its end, or lengthened with `fill`, to this many frames."""
    if not 1 <= n_frames <= MOST_FRAMES:
        raise ValueError(f"a spectrogram has from 1 to {MOST_FRAMES:,} frames, not {n_frames}")
    if not isinstance(fill, numbers.Real):
        raise TypeError(f"fill is the number that a spectrogram is lengthened with, not {fill!r}")
    return torch.nn.functional.pad(x, (0, 0, 0, n_frames - x.shape[-2]), value=fill)


def mel(hertz: Float64[Tensor, "*s"]) -> Float64[Tensor, "*s"]:
    """Frequencies on the mel scale, 1127 ln(1 + f / 700)."""
    return 1127.0 * torch.log1p(hertz / 700.0)


@lru_cache(maxsize=8)
def _filters(rate: int, n_fft: int) -> Float64[Tensor, "m k"]:
    """Triangles that rise and fall linearly in mel; the last frequency, half the rate, belongs to none of them.

    Low filters narrower than the distance of two frequencies may be empty: 128 bins at 16 kHz have some.
    """
    frequencies = torch.arange(n_fft // 2 + 1, dtype=torch.float64) * rate / n_fft
    lowest, highest = mel(torch.tensor([LOWEST_HZ, rate / 2], dtype=torch.float64)).tolist()
    if highest <= lowest:
        raise ValueError(f"a sample rate of {rate} Hz leaves nothing above {LOWEST_HZ:.0f} Hz")
    edges = torch.linspace(lowest, highest, N_MELS + 2, dtype=torch.float64).unsqueeze(-1)
    left, centre, right = edges[:-2], edges[1:-1], edges[2:]
    place = mel(frequencies)
    filters = torch.minimum((place - left) / (centre - left), (right - place) / (right - centre)).clamp(min=0)
    filters[:, -1] = 0
    return filters


def quantise(x: Float[Tensor, "*s"]) -> tuple[UInt8[Tensor, "*s"], float, float]:
    """Numbers in 8 bits: codes, the lowest number, and the step from one code to the next.

    The 256 codes are spread evenly over the range of the numbers, so that `dequantise` is off by half a step at
    most, 1/510 of the range: for log-mel spectrograms of sounds between -1 and 1, about 0.05, or 0.2 decibels.
    """
    if x.numel() == 0 or not x.isfinite().all():
        raise ValueError("only finite numbers, and at least one, can be written in 8 bits")
    low, high = x.min().item(), x.max().item()
    step = (high - low) / 255 or 1.0
    return ((x - low) / step).round().clamp(0, 255).to(torch.uint8), low, step


def dequantise(
    codes: UInt8[Tensor, "*s"], low: float | Float[Tensor, "..."], step: float | Float[Tensor, "..."]
) -> Float32[Tensor, "*s"]:
    """The numbers that codes of `quantise` stand for, to half a step, on the device of the codes.

    Where parts were quantised on their own, `low` and `step` are tensors that broadcast against the codes.
    """
    return codes.float() * step + low

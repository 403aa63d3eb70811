"""The filterbank: against one written out number by number, against torchaudio's, and in eight bits."""

import cmath
import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from messages import refused
from romae.data.audio import read_waveform
from romae.data.filterbank import SILENCE, dequantise, log_mel, mel, quantise
from sounds import RATE, noise, spectrogram, tone


def literal_frame(samples: list[float], rate: int) -> list[float]:
    """One frame of the filterbank, written out number by number as the convention describes it."""
    n, n_fft = len(samples), 512
    centre = sum(samples) / n
    plain = [x - centre for x in samples]
    risen = [plain[0] - 0.97 * plain[0]] + [plain[i] - 0.97 * plain[i - 1] for i in range(1, n)]
    faded = [x * (0.5 - 0.5 * math.cos(2 * math.pi * i / (n - 1))) for i, x in enumerate(risen)]
    turns = [cmath.exp(-2j * math.pi * k / n_fft) for k in range(n_fft)]
    power = [abs(sum(x * turns[i * k % n_fft] for i, x in enumerate(faded))) ** 2 for k in range(n_fft // 2)]

    def to_mel(hertz: float) -> float:
        return 1127 * math.log(1 + hertz / 700)

    low = to_mel(20)
    width = (to_mel(rate / 2) - low) / 129
    energies = []
    for j in range(128):
        total = 0.0
        for k, p in enumerate(power):
            place = (to_mel(k * rate / n_fft) - low) / width - j  # 0 and 2 at the feet of the triangle, 1 at its tip
            total += p * max(0.0, min(place, 2 - place))
        energies.append(math.log(max(total, 2.0**-23)))
    return energies


def test_the_filterbank_agrees_with_one_written_out_in_full():
    sound = noise(800) + tone(700)[:800] + 0.3
    ours = log_mel(torch.from_numpy(sound), RATE)
    assert ours.shape == (3, 128)
    for frame in (0, 2):
        expected = literal_frame(sound[160 * frame : 160 * frame + 400].astype(float).tolist(), RATE)
        assert_close(ours[frame], torch.tensor(expected), atol=2e-3, rtol=0)


@pytest.mark.parametrize("rate", [8000, 16_000, 44_100])
def test_the_filterbank_agrees_with_torchaudio(rate):
    kaldi = pytest.importorskip("torchaudio.compliance.kaldi", reason="needs torchaudio")
    sound = torch.from_numpy(noise(rate) + tone(440, rate=rate))
    theirs = kaldi.fbank(
        sound[None],
        htk_compat=True,
        sample_frequency=rate,
        use_energy=False,
        window_type="hanning",
        num_mel_bins=128,
        dither=0.0,
        frame_shift=10,
    )
    assert_close(log_mel(sound, rate), theirs, atol=2e-3, rtol=0)


@pytest.mark.parametrize("hertz", [500.0, 1000.0, 3000.0, 6000.0])
def test_a_tone_peaks_in_the_bin_of_its_pitch(hertz):
    low, high, pitch = mel(torch.tensor([20.0, RATE / 2, hertz], dtype=torch.float64)).tolist()
    expected = (pitch - low) / (high - low) * 129 - 1
    peaks = log_mel(torch.from_numpy(tone(hertz)), RATE).argmax(1)
    assert (peaks - expected).abs().max() <= 1


def test_five_seconds_have_498_frames_and_silence_is_the_floor():
    quiet = spectrogram(np.zeros(5 * RATE, np.float32))
    assert quiet.shape == (498, 128)
    assert bool((quiet == torch.tensor(SILENCE)).all())
    assert SILENCE == pytest.approx(-15.9424, abs=1e-4)


def test_twice_the_sound_is_four_times_the_power():
    sound = torch.from_numpy(noise(RATE))
    louder, plain = log_mel(2 * sound, RATE), log_mel(sound, RATE)
    above = plain > SILENCE
    assert_close((louder - plain)[above], torch.full_like(plain[above], math.log(4)), atol=1e-3, rtol=0)


def test_a_batch_of_sounds_is_each_sound_on_its_own():
    sounds = torch.from_numpy(np.stack([noise(2000, 1), noise(2000, 2)]))
    assert_close(log_mel(sounds, RATE), torch.stack([log_mel(s, RATE) for s in sounds]))


def test_the_mean_of_the_sound_does_not_matter():
    assert_close(spectrogram(noise(RATE) + 0.5), spectrogram(noise(RATE)), atol=1e-2, rtol=0)
    assert abs(read_waveform(noise(RATE) + 0.5, RATE).mean().item()) < 1e-6


def test_eight_bits_are_off_by_half_a_step_at_most():
    x = spectrogram(noise(RATE))
    codes, low, step = quantise(x)
    assert codes.dtype == torch.uint8
    assert step == pytest.approx((x.max() - x.min()).item() / 255)
    assert (dequantise(codes, low, step) - x).abs().max() <= 0.5001 * step
    assert_close(dequantise(codes[[0, 0]], low, step)[1], dequantise(codes, low, step)[0])


def test_parts_quantised_on_their_own_come_back_together():
    parts = [quantise(torch.randn(3, 4) * scale) for scale in (1.0, 100.0)]
    codes = torch.stack([part[0] for part in parts])
    low, step = (torch.tensor([part[i] for part in parts])[:, None, None] for i in (1, 2))
    assert_close(dequantise(codes, low, step), torch.stack([dequantise(*part) for part in parts]))


def test_a_constant_is_exact_in_eight_bits_and_nan_is_refused():
    constant = torch.full((3, 4), -2.5)
    assert_close(dequantise(*quantise(constant)), constant)
    with refused(ValueError, "only finite numbers"):
        quantise(torch.tensor([1.0, float("nan")]))

"""Audio: the filterbank against a literal one and torchaudio's, the way of a sound to tokens, and bad input."""

import cmath
import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from romae.data.audio import from_audio, from_audio_folder, read_waveform
from romae.data.filterbank import SILENCE, dequantise, log_mel, mel, quantise, with_frames
from romae.data.images import to_image
from romae.tokens import collate

soundfile = pytest.importorskip("soundfile", reason="needs soundfile: pip install 'romae[audio]'")

RATE = 16_000


def tone(hertz: float, seconds: float = 1.0, rate: int = RATE) -> np.ndarray:
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(int(seconds * rate)) / rate)).astype(np.float32)


def noise(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.1, n).astype(np.float32)


def spectrogram(sound: np.ndarray) -> torch.Tensor:
    return log_mel(read_waveform(sound, RATE), RATE)


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


@pytest.mark.parametrize("rate", [8000, 22_050, 44_100, 48_000])
def test_resampling_keeps_a_tone(rate):
    waveform = read_waveform(tone(440, rate=rate), rate)
    assert len(waveform) == RATE
    inside = slice(200, -200)
    assert_close(waveform[inside], torch.from_numpy(tone(440))[inside], atol=5e-3, rtol=0)


@pytest.mark.parametrize("form", ["wav", "flac", "float64", "int16", "tensor", "two channels", "channels first"])
def test_every_form_of_a_sound_gives_the_same_waveform(form, tmp_path):
    sound = np.round(tone(440) * 2**15) / 2**15
    if form in ("wav", "flac"):
        soundfile.write(tmp_path / f"a.{form}", sound, RATE)
    audio, rate, channels = {
        "wav": (tmp_path / "a.wav", None, None),
        "flac": (str(tmp_path / "a.flac"), RATE, None),
        "float64": (sound.astype(np.float64), RATE, None),
        "int16": ((sound * 2**15).astype(np.int16), RATE, None),
        "tensor": (torch.from_numpy(sound), RATE, None),
        "two channels": (np.stack([1.5 * sound, 0.5 * sound], axis=1), RATE, -1),
        "channels first": (np.stack([1.5 * sound, 0.5 * sound]), RATE, 0),
    }[form]
    expected = torch.from_numpy(sound - sound.mean()).float()
    assert_close(read_waveform(audio, rate, channels=channels), expected, atol=1e-6, rtol=0)


def test_tokens_are_patches_of_time_and_frequency():
    sound = noise(5 * RATE)
    sample = from_audio(sound, RATE, frames=512, mean=-6.0, std=8.0, target=7)
    assert sample.values.shape == (32 * 8, 256)
    assert sample.positions[8 * 3 + 5].tolist() == [3, 5]
    plain = with_frames(spectrogram(sound), 512)
    assert_close(sample.values[8 * 3 + 5], (plain[48:64, 80:96].reshape(-1) + 6) / 8)
    assert_close(to_image(sample.values, (16, 16), (512, 128), channels=None, mean=-6.0, std=8.0), plain)
    assert int(sample.target) == 7


def test_frames_cut_or_fill_at_the_end():
    sound = noise(RATE)
    plain = spectrogram(sound)
    assert len(plain) == 98
    assert_close(with_frames(plain, 64), plain[:64])
    longer = with_frames(plain, 112, fill=-3.0)
    assert_close(longer[:98], plain)
    assert bool((longer[98:] == -3.0).all())
    assert bool((with_frames(plain, 112)[98:] == torch.tensor(SILENCE)).all())


def test_without_frames_the_patch_must_divide_the_length():
    with pytest.raises(ValueError, match="dimension 0 has size 98, which patches of 16 do not divide; crop it to 96"):
        from_audio(noise(RATE), RATE)
    sounds = [from_audio(noise(n), RATE, patch=(2, 16)) for n in (RATE, 2 * RATE)]
    assert collate(sounds).tokens.layout.lengths.tolist() == [49 * 8, 99 * 8]


def test_a_folder_of_sounds_is_read_lazily(tmp_path):
    for name, hertz in (("b/low.wav", 300), ("a/high.flac", 3000)):
        (tmp_path / name).parent.mkdir()
        soundfile.write(
            tmp_path / name, tone(hertz, rate=44_100), 44_100, subtype="FLOAT" if name.endswith("wav") else None
        )
    (tmp_path / "b" / "broken.wav").write_bytes(b"RIFFnothing")
    folder = from_audio_folder(tmp_path, has_classes=True, frames=96)
    assert folder.class_names == ("a", "b")
    assert [folder[i].id for i in (0, 2)] == ["a/high.flac", "b/low.wav"]
    assert_close(folder[2].values, from_audio(tone(300, rate=44_100), 44_100, frames=96).values, atol=1e-3, rtol=0)
    with pytest.raises(ValueError, match="cannot read the sound .*broken.wav"):
        folder[1]


@pytest.mark.parametrize("kind", ["wav", "flac", "ogg"])
@pytest.mark.parametrize("share", [0.3, 0.7, 0.999])
def test_a_file_cut_short_is_named(kind, share, tmp_path):
    path = tmp_path / f"short.{kind}"
    soundfile.write(path, noise(10 * RATE), RATE)
    assert len(read_waveform(path)) == 10 * RATE
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(ValueError, match=f"cannot read the sound .*short.{kind}"):
        read_waveform(path)


@pytest.mark.parametrize(
    ("audio", "options", "message"),
    [
        (np.zeros(800, np.float32), {}, "needs its sample rate"),
        (np.zeros(800, np.float32), {"rate": 0}, "whole number of Hz above 0, not 0"),
        (np.zeros(800, np.float32), {"rate": RATE, "resample_to": -1}, "resample_to must be a whole number"),
        (np.zeros(800, np.float32), {"rate": RATE, "resample_to": 30}, "a sample rate of 30 Hz is too low"),
        (np.zeros(399, np.float32), {"rate": RATE}, "399 samples at 16000 Hz are shorter than one frame"),
        (np.zeros(0, np.float32), {"rate": RATE}, "holds no samples"),
        (np.zeros((800, 2), np.float32), {"rate": RATE}, "say where they are, channels=-1"),
        (np.zeros(800, np.float32), {"rate": RATE, "channels": 0}, "holds no channels in dimension 0"),
        (np.array([0.0] * 500 + [np.inf]), {"rate": RATE}, "must be finite, and sample 500 is not"),
        (np.zeros(800, np.int64), {"rate": RATE}, "samples of int64 are not a form of sound"),
        ([0.0] * 800, {"rate": RATE}, "a sound is a path, an array or a tensor, not list"),
        (np.zeros(800, np.float32), {"rate": RATE, "frames": 0}, "at least 1 frame, not 0"),
        (np.zeros(800, np.float32), {"rate": RATE, "std": 0.0}, "std above 0, not 0.0 and 0.0"),
        ("absent.wav", {}, "cannot read the sound absent.wav: there is no such file"),
    ],
)
def test_bad_sounds_are_refused_with_a_sentence(audio, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        from_audio(audio, **options)


def test_a_wrong_sample_rate_and_an_empty_file_are_named(tmp_path):
    soundfile.write(tmp_path / "a.wav", tone(440), RATE)
    with pytest.raises(ValueError, match="a.wav has a sample rate of 16000 Hz, not 44100 Hz"):
        from_audio(tmp_path / "a.wav", 44_100)
    soundfile.write(tmp_path / "empty.wav", np.zeros(0), RATE)
    with pytest.raises(ValueError, match="empty.wav holds no samples"):
        from_audio(tmp_path / "empty.wav")


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
    with pytest.raises(ValueError, match="only finite numbers"):
        quantise(torch.tensor([1.0, float("nan")]))

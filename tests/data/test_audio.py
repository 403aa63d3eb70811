"""Audio: the way of a sound to tokens, and bad input."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from messages import refused
from romae.data.audio import from_audio, from_audio_folder, read_waveform
from romae.data.filterbank import SILENCE, with_frames
from romae.data.images import to_image
from romae.tokens.tokens import collate
from sounds import RATE, noise, spectrogram, tone

soundfile = pytest.importorskip("soundfile", reason="needs soundfile: pip install 'romae[audio]'")


@pytest.mark.parametrize("rate", [8000, 22_050, 44_100, 48_000])
def test_resampling_keeps_a_tone(rate):
    waveform = read_waveform(tone(440, rate=rate), rate)
    assert len(waveform) == RATE
    inside = slice(200, -200)
    assert_close(waveform[inside], torch.from_numpy(tone(440))[inside], atol=5e-3, rtol=0)


@pytest.mark.parametrize(
    "form", ["wav", "flac", "float64", "int16", "tensor", "backwards", "two channels", "channels first"]
)
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
        "backwards": (sound[::-1].copy()[::-1], RATE, None),
        "two channels": (np.stack([1.5 * sound, 0.5 * sound], axis=1), RATE, -1),
        "channels first": (np.stack([1.5 * sound, 0.5 * sound]), RATE, 0),
    }[form]
    expected = torch.from_numpy(sound - sound.mean()).float()
    assert_close(read_waveform(audio, rate, channels=channels), expected, atol=1e-6, rtol=0)


def test_bfloat16_is_taken_as_float32():
    sound = torch.from_numpy(tone(440)).bfloat16()
    assert_close(read_waveform(sound, RATE), read_waveform(sound.float(), RATE))


def test_rates_may_be_whole_floats(without_shape_checks):
    expected = from_audio(noise(RATE), RATE, frames=96)
    assert_close(from_audio(noise(RATE), 16_000.0, resample_to=16_000.0, frames=96).values, expected.values)


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
    with refused(ValueError, "size 98", "patches of 16", "crop it to 96"):
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
    with refused(ValueError, "cannot read", "broken.wav"):
        folder[1]
    assert from_audio_folder(tmp_path, has_classes=True, classes=["c", "b", "a"]).targets == (2, 1, 1)


@pytest.mark.parametrize("kind", ["wav", "flac", "ogg", "aiff"])
@pytest.mark.parametrize("share", [0.3, 0.7, 0.999])
def test_a_file_cut_short_is_named(kind, share, tmp_path):
    path = tmp_path / f"short.{kind}"
    soundfile.write(path, noise(10 * RATE), RATE)
    assert len(read_waveform(path)) == 10 * RATE
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with refused(ValueError, "cannot read", f"short.{kind}"):
        read_waveform(path)


@pytest.mark.parametrize(
    ("audio", "options", "parts"),
    [
        (np.zeros(800, np.float32), {}, ["sample rate"]),
        (np.zeros(800, np.float32), {"rate": 0}, ["Hz", "not 0"]),
        (np.zeros(800, np.float32), {"rate": RATE, "resample_to": -1}, ["resample_to", "whole number"]),
        (np.zeros(800, np.float32), {"rate": RATE, "resample_to": 30}, ["30 Hz", "too low"]),
        (np.zeros(399, np.float32), {"rate": RATE}, ["399 samples", "16000 Hz"]),
        (np.zeros(0, np.float32), {"rate": RATE}, ["no samples"]),
        (np.zeros((800, 2), np.float32), {"rate": RATE}, ["channels=-1"]),
        (np.zeros(800, np.float32), {"rate": RATE, "channels": 0}, ["no channels", "dimension 0"]),
        (np.array([0.0] * 500 + [np.inf]), {"rate": RATE}, ["finite", "sample 500"]),
        (np.zeros(800, np.int64), {"rate": RATE}, ["int64"]),
        (np.ma.array(np.zeros(800, np.int16), mask=np.arange(800) < 9), {"rate": RATE}, ["masked"]),
        ([0.0] * 800, {"rate": RATE}, ["path", "not list"]),
        (np.zeros(800, np.float32), {"rate": RATE, "frames": 0}, ["frame", "not 0"]),
        (np.zeros(800, np.float32), {"rate": RATE, "std": 0.0}, ["std", "not 0.0"]),
        ("absent.wav", {}, ["absent.wav", "no such file"]),
    ],
)
def test_bad_sounds_are_refused_with_a_sentence(audio, options, parts):
    with refused((TypeError, ValueError), *parts):
        from_audio(audio, **options)


@pytest.mark.parametrize("kind", [">f4", ">i2", "longdouble"])
def test_sound_may_have_any_byte_order_and_direction(kind):
    native = (1000 * tone(440)).astype(np.int16 if kind == ">i2" else np.float32)
    assert torch.equal(read_waveform(native.astype(kind)[::-1], RATE), read_waveform(native[::-1].copy(), RATE))


def test_a_wrong_sample_rate_and_an_empty_file_are_named(tmp_path):
    soundfile.write(tmp_path / "a.wav", tone(440), RATE)
    with refused(ValueError, "a.wav", "16000 Hz", "not 44100 Hz"):
        from_audio(tmp_path / "a.wav", 44_100)
    soundfile.write(tmp_path / "empty.wav", np.zeros(0), RATE)
    with refused(ValueError, "empty.wav", "no samples"):
        from_audio(tmp_path / "empty.wav")


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"rate": "16k"}, ["Hz", "not '16k'"]),
        ({"rate": float("nan")}, ["Hz", "not nan"]),
        ({"rate": float("inf")}, ["Hz", "not inf"]),
        ({"rate": RATE, "resample_to": "16k"}, ["resample_to", "Hz", "not '16k'"]),
        ({"rate": RATE, "frames": 16.5}, ["frames", "whole number", "not 16.5"]),
        ({"rate": RATE, "frames": "16"}, ["frames", "whole number", "not '16'"]),
        ({"rate": RATE, "frames": 10**9}, ["frames", "2,097,152", "not 1000000000"]),
        ({"rate": RATE, "frames": 200, "fill": "0"}, ["fill", "number", "not '0'"]),
        ({"rate": RATE, "mean": "0"}, ["mean and std", "finite", "not 0"]),
        ({"rate": RATE, "std": 10**400}, ["mean and std", "finite"]),
        ({"rate": 10**400}, ["sample rate", "16000 Hz cannot be", "resample_to="]),
        ({"rate": 2**31 - 1}, ["2147483647 Hz", "16000 Hz cannot be", "resample_to="]),
        ({"rate": 1}, ["sample rate of 1 Hz", "cannot be made"]),
    ],
)
def test_numbers_of_the_wrong_kind_are_refused_with_a_sentence(options, parts, without_shape_checks):
    with refused((TypeError, ValueError), *parts):
        from_audio(np.zeros(RATE, np.float32), **options)

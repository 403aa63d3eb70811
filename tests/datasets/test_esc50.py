"""ESC-50: a small folder of the public layout, the real one where it is at hand, and what happens to a broken one."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from messages import refused
from romae.data.audio import from_audio, read_waveform
from romae.data.filterbank import log_mel
from romae.experiments.datasets import esc50, find
from romae.experiments.datasets.files import MissingFile

soundfile = pytest.importorskip("soundfile", reason="needs soundfile: pip install 'romae[audio]'")

NAMES = ("dog", "rain", "clock")
HEADER = "filename,fold,target,category,esc10,src_file,take"


def sound(fold: int, target: int) -> np.ndarray:
    return np.random.default_rng(10 * fold + target).normal(0, 0.05, 8000)


@pytest.fixture
def folder(tmp_path) -> Path:
    """Six clips of half a second at 16 kHz: three classes in the folds 1 and 2, the second fold as Ogg."""
    (tmp_path / "meta").mkdir()
    (tmp_path / "audio").mkdir()
    rows = [HEADER]
    for fold in (1, 2):
        for target, name in enumerate(NAMES):
            stem = f"{fold}-100-A-{target}"
            rows.append(f"{stem}.wav,{fold},{target},{name},False,100,A")
            soundfile.write(tmp_path / "audio" / f"{stem}.{('wav', 'ogg')[fold - 1]}", sound(fold, target), 16_000)
    (tmp_path / "meta" / "esc50.csv").write_text("\n".join(rows) + "\n")
    return tmp_path


def test_clips_are_those_of_the_table_in_either_format(folder):
    clips = esc50.clips(folder=folder)
    assert [clip.path.suffix for clip in clips] == [".wav"] * 3 + [".ogg"] * 3
    assert [clip.category for clip in esc50.clips([2], folder=folder)] == list(NAMES)
    assert clips[4] == esc50.Clip("2-100-A-1", folder / "audio" / "2-100-A-1.ogg", 2, 1, "rain")


def test_the_unpacked_public_archive_is_found_too(folder, tmp_path_factory):
    outside = tmp_path_factory.mktemp("data")
    (outside / "ESC-50-master").symlink_to(folder)
    assert len(esc50.clips(folder=outside)) == 6
    assert find("esc50").missing(outside) == [] and find("esc50").missing(folder) == []


def test_spectrograms_are_those_of_the_files_to_half_a_step(folder):
    made = esc50.load(folder=folder)
    assert made.codes.shape == (6, 48, 128) and made.codes.dtype == torch.uint8
    assert made.targets.tolist() == [0, 1, 2, 0, 1, 2] and made.folds.tolist() == [1, 1, 1, 2, 2, 2]
    assert made.class_names == NAMES
    for i, clip in enumerate(esc50.clips(folder=folder)):
        exact = log_mel(read_waveform(clip.path), 16_000)
        assert (made.values()[i] - exact).abs().max() <= 0.5001 * made.step[i]


def test_choosing_folds_before_or_after_is_the_same(folder):
    before, after = esc50.load([2], folder=folder), esc50.load(folder=folder).of_folds([2])
    assert before.names == after.names == ("2-100-A-0", "2-100-A-1", "2-100-A-2")
    assert_close(before.values(), after.values())
    assert_close(before.values(torch.tensor([2, 0])), after.values()[[2, 0]])
    assert before.class_names == NAMES
    with refused(ValueError, "folds [3]", "there are [2]"):
        after.of_folds([3])
    with refused(ValueError, "1 to 5", "[0]"):
        esc50.load([0], folder=folder)


def test_the_mean_and_std_are_those_of_all_values(folder):
    made = esc50.load(folder=folder)
    values = made.values().double()
    assert made.mean_and_std() == pytest.approx((values.mean().item(), values.std(correction=0).item()), rel=1e-6)


def test_samples_are_those_of_the_audio_up_to_the_8_bits(folder):
    made = esc50.load([1], folder=folder)
    sample = made.samples(frames=64, mean=-6.0, std=10.0)[1]
    assert sample.id == "1-100-A-1" and int(sample.target) == 1
    exact = from_audio(folder / "audio" / "1-100-A-1.wav", frames=64, mean=-6.0, std=10.0)
    assert_close(sample.values, exact.values, atol=0.51 * made.step[1].item() / 10, rtol=0)
    assert_close(sample.positions, exact.positions)


def test_a_prepared_file_stands_in_for_the_audio_to_half_a_step(folder, tmp_path_factory):
    made, outside = esc50.load(folder=folder), tmp_path_factory.mktemp("prepared")
    coarse = made.save(outside / "coarse.npz", step=0.5)
    assert coarse.stat().st_size < 0.8 * made.save(outside / esc50.PREPARED, step=1e-3).stat().st_size
    assert (esc50.Spectrograms.read(coarse).values() - made.values()).abs().max() <= 0.2501
    assert find("esc50").missing(outside) == []
    same, part = esc50.load(folder=outside), esc50.load([2], folder=outside)
    for key in esc50.TENSORS:  # steps finer than its own add nothing
        assert_close(getattr(same, key), getattr(made, key))
    assert same.names == made.names and same.class_names == NAMES and part.names == made.of_folds([2]).names
    made.save(folder / esc50.PREPARED, step=5.0)
    assert_close(esc50.load(folder=folder).values(), made.values())  # the audio is better, where it is there


def test_a_torn_prepared_file_is_named(folder, tmp_path_factory):
    outside = tmp_path_factory.mktemp("prepared")
    path = esc50.load(folder=folder).save(outside / esc50.PREPARED)
    assert [one.name for one in outside.iterdir()] == [esc50.PREPARED], "nothing half-written stays"
    for content in (path.read_bytes()[:-500], b"", b"no archive"):
        path.write_bytes(content)
        with refused(ValueError, "cannot read", "spectrograms.npz"):
            esc50.load(folder=outside)
    with refused(ValueError, "cannot write", "no/where.npz"):
        esc50.load(folder=folder).save(outside / "no" / "where.npz")


@pytest.mark.parametrize("key", ["targets", "folds", "low", "names"])
def test_a_prepared_file_of_unequal_lengths_is_named(folder, key, without_shape_checks):
    path = esc50.load(folder=folder).save(folder / esc50.PREPARED)
    with np.load(path) as held:
        arrays = dict(held)
    np.savez(path, **arrays | {key: arrays[key][:-1]})
    with refused(ValueError, "spectrograms.npz", f"5 {key}", "write it again"):
        esc50.Spectrograms.read(path)


@pytest.mark.parametrize(
    ("row", "parts"),
    [
        ("3-1-A-0.wav,1,0,dog,False,1,A", ["line 8", "3-1-A-0.wav", ".ogg"]),
        ("1-100-A-0.wav,one,0,dog,False,1,A", ["line 8"]),
        ("1-100-A-0.wav,1", ["line 8"]),
        ("1-100-A-0.wav,6,0,dog,False,1,A", ["line 8", "fold 6"]),
        ("1-100-A-0.wav,1,0,cat,False,1,A", ["class 0", "'dog' and 'cat'"]),
        ("1-100-A-0.wav,1,4,cat,False,1,A", ["no clip", "class 3"]),
    ],
)
def test_a_bad_row_of_the_table_is_named(row, parts, folder):
    table = folder / "meta" / "esc50.csv"
    table.write_text(table.read_text() + row + "\n")
    with refused(ValueError, *parts):
        esc50.clips(folder=folder)


def test_a_bad_table_is_named(folder, tmp_path):
    table = folder / "meta" / "esc50.csv"
    table.write_text("filename,fold\n")
    with refused(ValueError, "esc50.csv", "['target', 'category']"):
        esc50.clips(folder=folder)
    table.write_text(HEADER + "\n")
    with refused(ValueError, "no clips"):
        esc50.clips(folder=folder)
    table.write_bytes(b"\xff\xfe\x00")
    with refused(ValueError, "cannot read", "esc50.csv"):
        esc50.clips(folder=folder)
    table.unlink()
    with refused(MissingFile, "esc50.csv", "download https://github.com/", "put it at"):
        esc50.clips(folder=folder)


def test_a_clip_that_is_broken_or_of_another_length_is_named(folder):
    path = folder / "audio" / "1-100-A-1.wav"
    soundfile.write(path, sound(1, 1)[:6000], 16_000)
    with refused(ValueError, "1-100-A-1.wav", "36 frames", "48"):
        esc50.load(folder=folder)
    path.write_bytes(path.read_bytes()[:1000])
    with refused(ValueError, "1-100-A-1.wav", "cut short"):
        esc50.load(folder=folder)


def test_check_refuses_a_set_of_another_size(folder):
    with refused(ValueError, "(6, 3, 2, 48)", "(2000"):
        find("esc50").verify(folder)


def test_the_real_table_has_forty_clips_of_each_class_in_five_folds(real_data):
    clips = esc50.clips(folder=real_data / "esc50")
    assert len(clips) == 2000
    assert np.bincount([clip.target for clip in clips]).tolist() == [40] * 50
    assert np.bincount([clip.fold for clip in clips]).tolist() == [0, *[400] * 5]
    assert {clip.category for clip in clips if clip.target == 0} == {"dog"}
    assert len(read_waveform(clips[0].path)) == 80_000


@pytest.mark.slow
def test_the_clips_of_a_real_fold_are_whole(real_data):
    """One of five: `romae data check esc50` reads all of them."""
    fold = esc50.load((1,), folder=real_data / "esc50")
    assert fold.codes.shape[:2] == (400, esc50.N_FRAMES) and fold.targets.bincount().tolist() == [8] * 50
    mean, std = fold.mean_and_std()
    assert mean == pytest.approx(-6.79, abs=0.3) and std == pytest.approx(5.45, abs=0.3)  # of all folds

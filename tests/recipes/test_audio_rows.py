"""The recipes for ESC-50, on a small folder of the public layout with sounds that the tests make."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from quick import check_quick
from torch.testing import assert_close

import romae
from romae.data.audio import read_waveform
from romae.data.filterbank import log_mel
from romae.data.scaling import scaled
from romae.experiments import baselines, metrics
from romae.experiments.datasets import esc50
from romae.experiments.recipe import find, run
from romae.experiments.recipes.audio import RECIPES, Esc50, _from_text, _lines, _to_text
from romae.inference.predictions import predict_proba
from romae.model.autoencoder import Encoder
from romae.tokens.tokens import collate
from sounds import RATE, noise, tone

soundfile = pytest.importorskip("soundfile", reason="needs soundfile: pip install 'romae[audio]'")

N_FRAMES = 48  # of half a second


@pytest.fixture(scope="session")
def root(tmp_path_factory) -> Path:
    """The folder that ROMAE_DATA names: 50 classes in 5 folds; of the first four, two recordings cut in two clips each.

    The first four classes are tones of 200 to 3 000 Hz in noise, the others noise.
    """
    root = tmp_path_factory.mktemp("data")
    (root / "esc50" / "meta").mkdir(parents=True)
    (root / "esc50" / "audio").mkdir()
    rows = ["filename,fold,target,category"]
    for fold in range(1, 6):
        for target in range(50):
            for take in range(4 if target < 4 else 1):
                name = f"{fold}-{1000 * fold + 2 * target + take // 2}-{'ABCD'[take]}-{target}.wav"
                sound = noise(RATE // 2, seed=len(rows))
                if target < 4:
                    sound = 0.2 * sound + tone((200, 600, 1500, 3000)[target], 0.5)
                soundfile.write(root / "esc50" / "audio" / name, 0.5 * sound, RATE)
                rows.append(f"{name},{fold},{target},class {target}")
    (root / "esc50" / "meta" / "esc50.csv").write_text("\n".join(rows) + "\n")
    return root


@pytest.fixture(scope="session")
def prepared(root, tmp_path_factory) -> Path:
    """The same without the sounds, as one prepared file."""
    place = tmp_path_factory.mktemp("prepared")
    (place / "esc50").mkdir()
    esc50.load(folder=root / "esc50").save(place / "esc50" / esc50.PREPARED, step=0.01)
    return place


@pytest.fixture
def data(prepared, monkeypatch) -> Path:
    monkeypatch.setenv("ROMAE_DATA", str(prepared))
    return prepared


def shorter(recipe):
    """The recipe for clips of half a second."""
    return replace(recipe, quick=(*recipe.quick, "data.frames=48"))


# The scratch row is run from the sounds, the others from the prepared file.
PREPARED = [recipe for recipe in RECIPES if recipe.name != "audio/esc50-scratch"]


@pytest.mark.slow
@pytest.mark.parametrize("recipe", PREPARED, ids=lambda recipe: recipe.name)
def test_a_quick_run_learns(recipe, data, tmp_path, without_shape_checks):
    result = check_quick(shorter(recipe), tmp_path, learns=recipe.name != "audio/esc50-tuned-scratch")
    if recipe.metric == "accuracy":
        assert result.baselines["logistic regression"] > result.baselines["constant"]
        assert result.views["confusion"]["classes"][0] == "class 0" and result.views["embeddings"]


@pytest.mark.slow
def test_a_quick_run_starts_from_the_sounds_as_well(root, tmp_path, monkeypatch, without_shape_checks):
    monkeypatch.setenv("ROMAE_DATA", str(root))
    check_quick(shorter(find("audio/esc50-scratch")), tmp_path)


@pytest.mark.slow
def test_a_model_is_pre_trained_on_any_folder_of_sounds(data, tmp_path):
    for name, seconds in (("a/one.wav", 0.3), ("b/c/two.flac", 2.0)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(tmp_path / name, tone(440, seconds, 22_050), 22_050)
    source = Esc50(unlabelled=str(tmp_path), n_classes=2, frames=N_FRAMES)
    made = source.splits(0)
    assert [one.id for one in made.unlabelled] == ["a/one.wav", "b/c/two.flac"]
    assert {one.values.shape for one in made.unlabelled} == {(24, 256)} and made.unlabelled[0].target is None
    seen = scaled(made.unlabelled, made.scaling)
    assert not isinstance(seen, list) and torch.equal(seen[1].values, made.scaling.apply(made.unlabelled[1]).values)
    recipe = find("audio/esc50-paper")
    check_quick(
        shorter(replace(recipe, data=replace(recipe.data, unlabelled=str(tmp_path)))),
        tmp_path / "results",
        learns=False,
    )


def test_a_seed_tests_an_official_fold_and_nothing_is_taken_from_it(data, monkeypatch):
    made = Esc50(frames=N_FRAMES).splits(1)
    assert {str(one.id)[0] for one in made.test} == {"2"} and {str(one.id)[0] for one in made.train} == set("1345")
    assert {one.id for one in Esc50(frames=N_FRAMES).splits(6).test} == {one.id for one in made.test}
    silent = esc50.load()
    silent = replace(silent, low=torch.where(silent.folds == 2, silent.low - 5, silent.low))
    monkeypatch.setattr(esc50, "load", lambda: silent)
    other = Esc50(frames=N_FRAMES).splits(1)
    assert made.scaling == other.scaling
    assert all(torch.equal(a.values, b.values) for a, b in zip(made.train, other.train, strict=True))
    assert not any(torch.equal(a.values, b.values) for a, b in zip(made.test, other.test, strict=True))


def test_training_values_have_the_papers_scale(data):
    """(x - mean) / (2 std) over the training folds."""
    made = Esc50(frames=esc50.N_FRAMES // 16 * 16).splits(0)
    values = torch.stack([made.scaling.apply(one).values for one in made.train]).double()
    known = esc50.load([2, 3, 4, 5])
    mean, std = known.mean_and_std()
    exact = torch.stack([one.values for one in known.samples(mean=mean, std=2 * std)]).double()
    assert_close(values, exact[:, : values.shape[1]], atol=1e-5, rtol=1e-5)


@pytest.mark.slow
def test_a_saved_model_takes_sounds_as_they_are_read(data, tmp_path):
    recipe = shorter(find("audio/esc50-scratch"))
    result, task = run(recipe, 0, quick=True)
    task.save(tmp_path / "model")
    made = recipe.overridden(*recipe.quick).data.splits(0)
    found = predict_proba(romae.load(tmp_path / "model"), made.test).argmax(1)
    assert np.mean(found == baselines.classes(made.test)) == pytest.approx(result.metrics["accuracy"])


def test_spectrograms_lose_far_less_than_two_clips_of_one_kind_differ_by(root):
    """In 8 bits, and in a prepared file; the sounds are exact."""
    clips = [clip for clip in esc50.clips([1], folder=root / "esc50") if clip.target < 4]
    exact = torch.stack([log_mel(read_waveform(clip.path), RATE) for clip in clips])
    differ = (exact[0::2] - exact[1::2]).square().mean().sqrt()
    made = esc50.load([1], folder=root / "esc50")
    for stored, share in ((made, 0.02), (made.coarser(esc50.PREPARED_STEP), 0.15)):
        lost = (stored.values()[made.targets < 4] - exact).square().mean().sqrt()
        assert 0 < lost < share * differ


@pytest.mark.slow
def test_a_prepared_file_changes_next_to_no_answer_on_the_real_clips(real_data, monkeypatch, without_shape_checks):
    """A logistic regression learns from half of a fold and is asked for the rest, in 8 bits and from a coarser file."""
    folder = real_data / "esc50"
    if not (folder / "audio").is_dir():
        pytest.skip(f"needs the clips of ESC-50 in {folder}")
    whole = esc50.load([1], folder=folder)
    answers = []
    for clips in (whole, whole.coarser(esc50.PREPARED_STEP)):
        features = Esc50()._statistics(clips.samples())
        learned = baselines.logistic_regression().fit(features[::2], whole.targets[::2])
        answers.append(learned.predict(features[1::2]))
    right = [np.mean(answer == whole.targets[1::2].numpy()) for answer in answers]
    assert abs(right[0] - right[1]) < 0.03 and np.mean(answers[0] == answers[1]) > 0.95 and right[0] > 0.3, right


def test_validation_clips_come_from_recordings_that_are_not_trained_on(data):
    made = Esc50(validation=0.25, n_classes=4, frames=N_FRAMES).splits(0)
    trained, held_out = ({str(one.id).split("-")[1] for one in part} for part in (made.train, made.validation))
    assert not trained & held_out and len(made.train) + len(made.validation) == 64
    assert {int(one.target) for one in made.validation} == set(range(4)) and len(made.validation) == 16


def test_the_error_of_hidden_patches_is_the_loss_of_the_model(data):
    recipe = find("audio/esc50-pretrain")
    recipe = recipe.overridden(*recipe.quick, "data.frames=48", "data.n_classes=2")
    made, again = recipe.data.splits(0), recipe.data.splits(0)
    assert {int(one.hidden.sum()) for one in made.test} == {18}, "three quarters of 24 patches"
    assert all(torch.equal(a.hidden, b.hidden) for a, b in zip(made.test, again.test, strict=True))
    silent = [replace(one, values=torch.full_like(one.values, -12.0)) for one in made.test[:2]]
    made = replace(made, test=[*silent, *made.test[2:]])
    torch.manual_seed(0)
    task = recipe.stages[0].task(Encoder(recipe.model)).eval()
    task.scaling = made.scaling
    with torch.no_grad():
        loss = task(collate(scaled(made.test, made.scaling))).mean.item()
    assert recipe.data.measure(task, made).metrics["mse"] == pytest.approx(loss, rel=1e-4)


def test_lines_are_trusted_as_far_as_training_clips_allow(data):
    recipe = find("audio/esc50-pretrain")
    recipe = recipe.overridden(*recipe.quick, "data.frames=48", "data.n_classes=2")
    made = recipe.data.splits(0)
    steady = [replace(one, values=one.values[:1].expand_as(one.values)) for one in made.train]
    task = recipe.stages[0].task(Encoder(recipe.model)).eval()
    blind, trusting = (
        recipe.data.measure(task, replace(made, train=train)).baselines for train in (made.train, steady)
    )
    lines, wanted = _lines(scaled(made.test, made.scaling))
    assert trusting["linear"] == pytest.approx(metrics.mse(lines, wanted)), "lines are right about clips of one patch"
    assert blind["linear"] < trusting["linear"] and blind["constant"] == trusting["constant"]


def test_pictures_survive_being_text(data):
    x = np.random.default_rng(0).uniform(-1, 1, (64, 128)).astype(np.float32)
    picture = _from_text(_to_text(x, -1, 1))
    assert picture.shape == (64, 16)
    assert_close(picture[3, 2] / 127.5 - 1, float(x[8:12, 6:8].mean()), atol=1 / 127, rtol=0)


def test_the_paper_rows_have_the_papers_settings():
    pretrain, classify = find("audio/esc50-paper").stages
    assert find("audio/esc50-scratch").stages == (classify,)
    wanted = {"epochs": 150, "batch_size": 64, "lr": 5e-4, "betas": (0.9, 0.95), "weight_decay": 0.05, "warmup": 1000}
    assert {key: getattr(pretrain.train, key) for key in wanted} == wanted
    assert pretrain.normalise and pretrain.masking.ratio == 0.75 and pretrain.weights == "last"
    wanted = {"epochs": 50, "batch_size": 48, "lr": 1e-3, "betas": (0.9, 0.99), "weight_decay": 0.02, "warmup": 50}
    assert {key: getattr(classify.train, key) for key in wanted} == wanted and classify.confidence == 0.8
    model = find("audio/esc50-paper").model
    assert not model.cls and model.encoder.width == 432 and model.queries == "joint" and model.channels == 256


def test_without_files_one_sentence_says_what_belongs_where(tmp_path, monkeypatch, capsys):
    from romae.cli.main import main

    monkeypatch.setenv("ROMAE_DATA", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["romae", "run", "audio/esc50-tuned", "--results", str(tmp_path / "results")])
    with pytest.raises(SystemExit) as ended:
        main()
    told = capsys.readouterr().err
    assert ended.value.code == 2 and "esc50.csv; download https" in told.replace("\n", " ") and str(tmp_path) in told
    assert not (tmp_path / "results").exists()

"""Checkpoints: strict, whole or not at all, and harmless."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from messages import refused
from romae.checkpoints.native import load
from romae.data.scaling import fit_scaling
from romae.data.series import from_arrays
from romae.inference.predictions import predict_proba
from romae.model.config import ModelConfig, Size
from romae.model.tasks import Classification, MaskedReconstruction, Regression
from romae.tokens.ladder import Ladder
from romae.tokens.masking import Rows
from romae.tokens.sample import Sample

CONFIG = ModelConfig(
    channels=2,
    position_dims=1,
    encoder=Size(width=16, heads=2, depth=1),
    decoder=Size(width=8, heads=1, depth=1),
    ladders=(Ladder(shortest=0.5, longest=80.0),),
    dropout=0.1,
)
TASKS = [
    MaskedReconstruction(CONFIG, masking=Rows(ratio=0.3), normalise=True, drop_tokens=0.2),
    Classification(CONFIG, 4, confidence=0.9),
    Regression(CONFIG, 3, per="token"),
]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: type(task).__name__)
def test_a_task_comes_back_as_it_was(tmp_path, task):
    task.save(tmp_path / "a")
    again = load(tmp_path / "a")
    assert type(again) is type(task) and again.config == task.config and again.settings == task.settings
    assert not again.training
    for (name, one), (_, other) in zip(task.state_dict().items(), again.state_dict().items(), strict=True):
        assert torch.equal(one, other), name


def test_scaling_and_names_are_kept(tmp_path):
    samples = from_arrays([np.arange(6.0).reshape(3, 2)] * 2, y=["a", "b"], channels=["u", "v"])
    task = Classification(CONFIG, 2)
    task.scaling, task.schema = fit_scaling(samples), samples.schema
    task.save(tmp_path / "a")
    again = load(tmp_path / "a")
    assert again.scaling == task.scaling and again.schema == task.schema


def test_weights_in_16_bits_come_back_in_full_precision_rounded(tmp_path):
    TASKS[1].save(tmp_path / "whole")
    TASKS[1].save(tmp_path / "half", half=True)
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("whole", "half")]
    assert sizes[1] < 0.6 * sizes[0]
    again = load(tmp_path / "half").state_dict()
    for name, value in TASKS[1].state_dict().items():
        assert again[name].dtype == torch.float32
        assert torch.equal(again[name], value.half().float()), name


def test_a_task_in_half_precision_comes_back_in_it(tmp_path):
    Classification(CONFIG, 2).half().save(tmp_path / "a", half=True)
    assert {value.dtype for value in load(tmp_path / "a").state_dict().values()} == {torch.half}


def test_double_precision_is_halved_as_well_and_comes_back(tmp_path):
    task = Classification(CONFIG, 2).double()
    task.save(tmp_path / "a", half=True)
    assert {value.dtype for value in load_file(tmp_path / "a" / "model.safetensors").values()} == {torch.half}
    again = load(tmp_path / "a").state_dict()
    assert all(torch.equal(again[name], value.half().double()) for name, value in task.state_dict().items())


def test_weights_that_16_bits_cannot_hold_are_named(tmp_path):
    task = Classification(CONFIG, 2)
    with torch.no_grad():
        task.encoder.projection.weight[0, 0] = 1e6
    with refused(ValueError, "encoder.projection.weight", "16 bits"):
        task.save(tmp_path / "a", half=True)
    assert not (tmp_path / "a").exists()


def test_a_card_is_kept_until_another_is_given(tmp_path):
    TASKS[1].save(tmp_path / "a", card="# One")
    TASKS[2].save(tmp_path / "a")
    assert (tmp_path / "a" / "README.md").read_text() == "# One" and isinstance(load(tmp_path / "a"), Regression)
    TASKS[1].save(tmp_path / "a", card="# Two")
    assert (tmp_path / "a" / "README.md").read_text() == "# Two"


def test_a_readme_of_ones_own_is_left_alone(tmp_path):
    (tmp_path / "README.md").write_text("my notes")
    with refused(ValueError, "'README.md'", "checkpoint"):
        TASKS[1].save(tmp_path, card="# One")
    assert (tmp_path / "README.md").read_text() == "my notes"


def test_a_checkpoint_of_the_first_format_is_read(tmp_path):
    TASKS[1].save(tmp_path / "a")
    path = tmp_path / "a" / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({k: v for k, v in config.items() if k not in ("scaling", "schema")} | {"format": 1}))
    assert load(tmp_path / "a").scaling is None


@pytest.mark.parametrize(
    "path",
    ["./someone/sines", "../sines", "~/sines", "/someone/sines", "someone/sines/", "runs/a/b", "a\\b", "runs/best.pt"],
)
def test_what_looks_like_a_path_is_never_looked_up_on_the_hub(path, tmp_path, monkeypatch):
    def snapshot_download(*name, **asked):
        raise AssertionError("the Hub was asked")

    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    with pytest.raises(ValueError) as caught:
        load(path)
    assert path in str(caught.value) and "someone/light-curves" in str(caught.value)


def test_a_folder_has_no_revision(tmp_path):
    TASKS[0].save(tmp_path / "a")
    with pytest.raises(ValueError) as caught:
        load(tmp_path / "a", revision="v2")
    assert "'v2'" in str(caught.value) and "revision" in str(caught.value)


def test_the_hub_is_a_folder_far_away(tmp_path, monkeypatch, without_shape_checks):
    uploaded = {}

    class Hub:
        def create_repo(self, name, private, exist_ok):
            uploaded["name"] = name

        def upload_folder(self, repo_id, folder_path):
            shutil.copytree(folder_path, tmp_path / "hub" / repo_id)

    def snapshot_download(name, allow_patterns, **asked):
        assert set(allow_patterns) == {"config.json", "model.safetensors"}
        uploaded["asked"] = asked
        if not (tmp_path / "hub" / name).exists():
            raise OSError("404 not found")
        return str(tmp_path / "hub" / name)

    monkeypatch.setattr("huggingface_hub.HfApi", Hub)
    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    TASKS[0].push_to_hub("someone/sines")
    assert load("someone/sines").config == CONFIG and uploaded["name"] == "someone/sines"
    assert uploaded["asked"] == {"revision": None, "token": None, "cache_dir": None}
    asked = {"revision": "v2", "token": "secret", "cache_dir": tmp_path / "cache"}
    load("someone/sines", **asked)
    assert uploaded["asked"] == asked
    with refused(ValueError, "the Hub", "404"):
        load("someone/cosines")
    with refused(TypeError, "folder", "the Hub", "None"):
        load(None)
    with refused(ValueError, "someone/sines", "log in"):
        TASKS[0].push_to_hub("someone/sines")  # the folder is there already


def test_saving_again_replaces_the_checkpoint_and_leaves_nothing_else(tmp_path):
    TASKS[0].save(tmp_path / "a")
    TASKS[1].save(tmp_path / "a")
    assert isinstance(load(tmp_path / "a"), Classification)
    assert os.listdir(tmp_path) == ["a"] and sorted(os.listdir(tmp_path / "a")) == ["config.json", "model.safetensors"]


def test_a_write_that_fails_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    TASKS[0].save(tmp_path / "a")

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("safetensors.torch.save_file", full)
    with refused(OSError, "No space left"):
        TASKS[1].save(tmp_path / "a")
    assert isinstance(load(tmp_path / "a"), MaskedReconstruction) and os.listdir(tmp_path) == ["a"]


def test_other_peoples_folders_are_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    (tmp_path / "config.json").write_text("{}")
    with refused(ValueError, "'thesis.tex'", "checkpoint"):
        TASKS[0].save(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["config.json", "thesis.tex"]
    with refused(ValueError, "is a file", "a folder"):
        TASKS[0].save(tmp_path / "thesis.tex")


def test_a_link_and_the_present_folder_are_places_like_others(tmp_path, monkeypatch):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    TASKS[0].save(tmp_path / "link")
    TASKS[1].save(tmp_path / "link")
    assert isinstance(load(tmp_path / "real"), Classification) and sorted(os.listdir(tmp_path)) == ["link", "real"]
    monkeypatch.chdir(tmp_path / "real")
    TASKS[2].save(".")
    assert isinstance(load(tmp_path / "real"), Regression) and sorted(os.listdir(tmp_path)) == ["link", "real"]


@pytest.mark.usefixtures("without_shape_checks")
def test_a_strategy_of_ones_own_is_not_lost_in_silence(tmp_path):
    class Mine:
        def hidden(self, tokens, source=None):
            return torch.arange(tokens.layout.n_tokens) % 2 == 0

    with refused(ValueError, "cannot be saved"):
        MaskedReconstruction(CONFIG, masking=Mine()).save(tmp_path / "a")
    assert not os.listdir(tmp_path)


@pytest.mark.usefixtures("without_shape_checks")
def test_precision_and_numpy_numbers_survive(tmp_path):
    Classification(CONFIG, np.int64(3)).double().save(tmp_path / "a")
    assert load(tmp_path / "a").head.linear.weight.dtype == torch.float64


def edit(path, **changes):
    config = json.loads(path.read_text())
    config.update(changes)
    path.write_text(json.dumps(config))


def test_what_does_not_fit_is_reported(tmp_path):
    TASKS[1].save(tmp_path / "a")
    weights = load_file(tmp_path / "a" / "model.safetensors")
    weights["head.linear.bias"] = torch.zeros(7)
    weights["stranger"] = weights.pop("encoder.cls")
    save_file(weights, tmp_path / "a" / "model.safetensors")
    with refused(ValueError, "missing encoder.cls", "unexpected stranger", "[7] instead of [4]"):
        load(tmp_path / "a")


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"format": 99}, ["format 99", "up to 2", "update romae"]),
        ({"format": None}, ["which format"]),
        ({"extra": 3}, ["'extra'"]),
        ({"task": []}, ["names the task"]),
        ({"schema": {"colour": "red"}}, ["unknown key 'schema.colour'"]),
        ({"task": "Divination"}, ["'Divination'", "there are"]),
        ({"settings": {"n_classes": 4, "oracle": True}}, ["unknown key 'settings.oracle'"]),
    ],
)
def test_a_configuration_that_is_not_understood_is_refused(tmp_path, changes, parts):
    TASKS[1].save(tmp_path / "a")
    edit(tmp_path / "a" / "config.json", **changes)
    with refused(ValueError, *parts):
        load(tmp_path / "a")


def test_damaged_files_are_named(tmp_path):
    TASKS[1].save(tmp_path / "a")
    whole = (tmp_path / "a" / "model.safetensors").read_bytes()
    (tmp_path / "a" / "model.safetensors").write_bytes(whole[:-20])
    with refused(ValueError, "model.safetensors is damaged"):
        load(tmp_path / "a")
    (tmp_path / "a" / "config.json").write_text("{'")
    with refused(ValueError, "config.json is damaged"):
        load(tmp_path / "a")
    with refused(ValueError, "no checkpoint folder", "nowhere"):
        load(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["best", "last", "model"])
def test_a_folder_around_a_checkpoint_leads_to_it(tmp_path, name):
    TASKS[1].save(tmp_path / "run" / name)
    (tmp_path / "run" / "config.json").write_text("{}")
    with refused(ValueError, "no checkpoint", str(tmp_path / "run" / name)):
        load(tmp_path / "run")


def test_a_malicious_file_runs_nothing(tmp_path):
    import pickle

    class Malice:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "owned"),)

    TASKS[1].save(tmp_path / "a")
    (tmp_path / "a" / "model.safetensors").write_bytes(pickle.dumps(Malice()))
    with refused(ValueError, "no safetensors file"):
        load(tmp_path / "a")
    assert not (tmp_path / "owned").exists()


def test_checkpoints_of_this_format_stay_readable():
    """A checkpoint written when the format was new, with what it predicted then."""
    folder = Path(__file__).with_name("checkpoints")
    task = load(folder / "format-2")
    expected = load_file(folder / "format-2-expected.safetensors")
    assert task.schema.classes == ("cat", "dog") and task.schema.values == ("height", "weight")
    lengths = expected["lengths"].tolist()
    parts = zip(expected["values"].split(lengths), expected["positions"].split(lengths), strict=True)
    found = predict_proba(task, [Sample(values, positions) for values, positions in parts])
    np.testing.assert_allclose(found, expected["probabilities"].numpy(), rtol=1e-4)


def test_a_model_of_someone_else_is_not_replaced(tmp_path):
    for name, text in (("config.json", '{"model_type": "vit"}'), ("model.safetensors", "weights")):
        (tmp_path / name).write_text(text)
        with refused(ValueError, "not romae's", "new folder"):
            TASKS[0].save(tmp_path)
        assert (tmp_path / name).read_text() == text


@pytest.mark.parametrize("kind", ["int32", "float8", "nan"])
def test_weights_that_are_no_numbers_of_one_precision_are_refused(tmp_path, kind):
    TASKS[1].save(tmp_path / "a")
    path = tmp_path / "a" / "model.safetensors"
    weights = load_file(path)
    name = next(name for name in weights if name.startswith("head."))
    damaged = {
        "int32": weights[name].int(),
        "float8": weights[name].to(torch.float8_e4m3fn),
        "nan": weights[name] * float("nan"),
    }[kind]
    save_file(weights | {name: damaged}, path)
    parts = [name, "no numbers"] if kind == "nan" else ["one precision"]
    with refused(ValueError, "is damaged", *parts):
        load(tmp_path / "a")


def test_a_card_in_any_encoding_stays_as_it_is(tmp_path):
    TASKS[1].save(tmp_path / "a", card="# One")
    (tmp_path / "a" / "README.md").write_bytes(b"caf\xe9")
    TASKS[1].save(tmp_path / "a")
    assert (tmp_path / "a" / "README.md").read_bytes() == b"caf\xe9"

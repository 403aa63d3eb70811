"""Checkpoints: strict, whole or not at all, and harmless."""

import hashlib
import json
import os
import resource
import shutil
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from messages import refused, warned
from romae.checkpoints.native import load, write_digests
from romae.data.scaling import fit_scaling
from romae.data.series import from_arrays
from romae.files import write_whole_text
from romae.inference.predictions import predict_proba
from romae.model.config import ModelConfig, Size
from romae.model.tasks import Classification, MaskedReconstruction, Regression, Task
from romae.tokens.ladder import Ladder
from romae.tokens.masking import Rows
from romae.tokens.sample import Sample
from romae.tokens.tokens import collate

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
    older = {k: v for k, v in config.items() if k not in ("scaling", "schema", "digests")} | {"format": 1}
    path.write_text(json.dumps(older))
    with warned(UserWarning, "no digests", f"romae digest {tmp_path / 'a'}"):
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
    TASKS[0].push_to_hub("someone/sines", card="Sines of a clock.")
    assert load("someone/sines").config == CONFIG and uploaded["name"] == "someone/sines"
    assert (tmp_path / "hub" / "someone/sines" / "README.md").read_text() == "Sines of a clock."
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


def seal(folder):
    """Write the digests of whatever is in a checkpoint, as a stranger could, by the rule and not by our code."""
    config = json.loads((folder / "config.json").read_text())
    config["digests"] = {"weights": hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()}
    digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()
    config["digests"]["config"] = digest
    (folder / "config.json").write_text(json.dumps(config))


def edit(path, **changes):
    config = json.loads(path.read_text())
    config.update(changes)
    path.write_text(json.dumps(config))
    seal(path.parent)


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
        ({"format": 99}, ["format 99", "up to 3", "update romae"]),
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
    with warned(UserWarning, "no digests", "format-2"):
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
    seal(tmp_path / "a")
    parts = [name, "no numbers"] if kind == "nan" else ["one precision"]
    with refused(ValueError, "is damaged", *parts):
        load(tmp_path / "a")


def test_a_card_in_any_encoding_stays_as_it_is(tmp_path):
    TASKS[1].save(tmp_path / "a", card="# One")
    (tmp_path / "a" / "README.md").write_bytes(b"caf\xe9")
    TASKS[1].save(tmp_path / "a")
    assert (tmp_path / "a" / "README.md").read_bytes() == b"caf\xe9"


# Digests


def flipped(content: bytes, bit: int) -> bytes:
    damaged = bytearray(content)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_flipped_bit_is_refused(tmp_path, name):
    """In a sentence, wherever it is; only what says the same in other letters, such as 1E-06, may pass."""
    task = Classification(CONFIG, 2)
    task.schema = from_arrays([np.zeros((3, 2))] * 2, y=["a", "b"], channels=["u", "v"]).schema
    task.save(tmp_path / "a")
    path = tmp_path / "a" / name
    whole = path.read_bytes()
    random = np.random.default_rng(0)
    for bit in random.choice(8 * len(whole), 40, replace=False).tolist():
        damaged = flipped(whole, bit)
        path.write_bytes(damaged)
        try:
            load(tmp_path / "a")
        except ValueError as error:
            assert str(tmp_path) in str(error), error
        else:
            assert name == "config.json" and json.loads(damaged) == json.loads(whole)
    path.write_bytes(whole)
    load(tmp_path / "a")


@pytest.mark.parametrize("version", [1, 2])
def test_an_older_format_does_not_hide_a_change(tmp_path, version):
    """One bit makes a 3 a 2 or a 1, which have no digests of their own."""
    TASKS[1].save(tmp_path / "a")
    path = tmp_path / "a" / "config.json"
    path.write_text(path.read_text().replace('"format": 3', f'"format": {version}'))
    with refused(ValueError, "config.json", "digest", "romae digest"):
        load(tmp_path / "a")


def test_digests_that_were_taken_out_are_missed(tmp_path):
    TASKS[1].save(tmp_path / "a")
    path = tmp_path / "a" / "config.json"
    config = json.loads(path.read_text())
    for digests in ({}, {"digests": None}, {"digests": 3}):
        path.write_text(json.dumps({key: value for key, value in config.items() if key != "digests"} | digests))
        with refused(ValueError, "config.json", "digest"):
            load(tmp_path / "a")


def test_digests_do_not_depend_on_line_ends_and_spaces(tmp_path):
    TASKS[1].save(tmp_path / "a")
    path = tmp_path / "a" / "config.json"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    load(tmp_path / "a")


def test_what_was_changed_on_purpose_gets_new_digests(tmp_path):
    TASKS[1].save(tmp_path / "a", card="# One")
    path = tmp_path / "a" / "config.json"
    path.write_text(path.read_text().replace('"confidence": 0.9', '"confidence": 0.8'))
    with refused(ValueError, "config.json", "changed", f"romae digest {tmp_path / 'a'}"):
        load(tmp_path / "a")
    write_digests(tmp_path / "a")
    assert load(tmp_path / "a").confidence == 0.8 and (tmp_path / "a" / "README.md").read_text() == "# One"
    path.write_text(path.read_text().replace('"n_classes": 4', '"n_classes": 5'))
    before = path.read_bytes()
    with refused(ValueError, "do not fit", "[4] instead of [5]"):
        write_digests(tmp_path / "a")
    assert path.read_bytes() == before


# What a stranger's configuration may cost


def hostile(**changes):
    """The description of a model with some sizes changed, by their paths."""
    changed = {}
    for path, value in changes.items():
        *parents, key = path.split("__")
        place = changed
        for parent in parents:
            place = place.setdefault(parent, {})
        place[key] = value
    return changed


@pytest.mark.parametrize(
    ("number", "changes"),
    [
        (1, {"model__encoder__depth": 10**8}),
        (1, {"model__encoder__width": 2**33}),
        (1, {"model__encoder__feed_forward": 2**28}),
        (1, {"model__channels": 2**28}),
        (1, {"model__kinds": 2**28}),
        (1, {"settings__n_classes": 2**28}),
        (1, {"settings__n_classes": 2**63}),
        (0, {"model__decoder__depth": 10**8}),
        (0, {"model__decoder__width": 2**33}),
        (2, {"settings__n_targets": 2**40}),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_a_small_file_cannot_ask_for_much_memory(tmp_path, number, changes):
    TASKS[number].save(tmp_path / "a")
    path = tmp_path / "a" / "config.json"
    config = json.loads(path.read_text())
    for part, settings in hostile(**changes).items():
        for key, value in settings.items():
            config[part][key] = config[part][key] | value if isinstance(value, dict) else value
    edit(path, **config)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with refused(ValueError, str(tmp_path)):
        load(tmp_path / "a")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB


def test_loading_initialises_nothing(tmp_path, monkeypatch):
    """Weights that the file replaces are not drawn: torch's generator is where it was."""
    TASKS[0].save(tmp_path / "a")
    before = torch.get_rng_state()
    load(tmp_path / "a")
    assert torch.equal(torch.get_rng_state(), before)


def test_a_loaded_task_does_not_read_its_file_any_more(tmp_path):
    TASKS[1].save(tmp_path / "a")
    task = load(tmp_path / "a")
    path = tmp_path / "a" / "model.safetensors"
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))
    for name, value in TASKS[1].state_dict().items():
        assert torch.equal(task.state_dict()[name], value), name


def test_all_of_a_loaded_task_is_there(tmp_path):
    """Also what no file holds: rotary frequencies, and the rates of stochastic depth."""
    task = Classification(replace(CONFIG, stochastic_depth=0.5, positions="absolute"), 3)
    task.save(tmp_path / "a")
    again = dict(load(tmp_path / "a").named_buffers())
    assert again and all(torch.equal(again[name], value) for name, value in task.named_buffers())


# Tasks of one's own


class Spread(Task):
    """Its own head, a buffer that no file holds, and no parameter but these."""

    def __init__(self, encoder, n_outputs=2, *, sharpness: float = 1.0):
        super().__init__(encoder, drop_tokens=0.25, settings={"n_outputs": n_outputs, "sharpness": sharpness})
        self.head = torch.nn.Linear(self.config.encoder.width, n_outputs)
        self.register_buffer("scale", torch.empty(2).fill_(sharpness), persistent=False)

    def predict(self, batch):
        return self.head(self.pooled(self.encoder(batch.tokens))) * self.scale


class Louder(Regression):
    """Hands its settings on."""

    def __init__(self, encoder, *, loudness: int = 1, **settings):
        super().__init__(encoder, **settings)
        self.settings["loudness"] = self.loudness = loudness


def test_a_task_of_ones_own_is_saved_and_loaded_with_its_class(tmp_path):
    batch = collate([Sample([[0.1, 0.2], [0.3, 0.4]], [[0.0], [1.5]])])
    for task in (Spread(CONFIG, 2, sharpness=3.0), Louder(CONFIG, loudness=5, n_targets=2)):
        task.save(tmp_path / "a")
        again = load(tmp_path / "a", task=type(task))
        assert type(again) is type(task) and again.settings == task.settings
        assert torch.equal(again.predict(batch), task.eval().predict(batch))


def test_no_class_is_looked_for_by_a_name_in_a_file(tmp_path):
    Spread(CONFIG).save(tmp_path / "a")
    with refused(ValueError, "'Spread'", "task="):
        load(tmp_path / "a")
    with refused(ValueError, "'Spread'", "Louder"):
        load(tmp_path / "a", task=Louder)


@pytest.mark.usefixtures("without_shape_checks")
def test_a_class_is_handed_over_and_not_named(tmp_path):
    Spread(CONFIG).save(tmp_path / "a")
    with refused(TypeError, "the class", "'test_checkpoint:Spread'"):
        load(tmp_path / "a", task="test_checkpoint:Spread")


# Rights


@pytest.mark.skipif(os.name != "posix", reason="only POSIX has a umask")
@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_the_umask_is_respected(tmp_path, mask):
    before = os.umask(mask)
    try:
        TASKS[1].save(tmp_path / "new" / "a", card="# One")
        TASKS[1].save(tmp_path / "new" / "a")  # in place of another
        write_whole_text(tmp_path / "page.html", "a page")
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert len(modes) == 6
    for path, mode in modes.items():
        assert mode == (0o777 if path.is_dir() else 0o666) & ~mask, path


def test_a_name_that_no_system_has_is_no_checkpoint():
    with refused(ValueError, "no name of"):
        load("./" + "x" * 5000)

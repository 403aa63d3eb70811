"""The container changes nothing: the same samples give the same scaling, model, losses and answers, bit for bit."""

import os
import subprocess
import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

import romae
from romae import Sample, SampleSet, fit_ladders, fit_scaling, write_store
from romae.data import folder as folder_module
from romae.data.folder import Folder
from romae.data.sources import Lazy, Scaled, as_source, lengths_of, schema_of
from romae.model.config import ModelConfig, Size
from romae.model.tasks import Classification, MaskedReconstruction
from romae.training.config import TrainConfig
from romae.training.loop import train

SMALL = Size(width=24, heads=2, depth=1)


def table(n_ids: int = 12, seed: int = 0):
    """Temperature (deviation 1) and pressure (deviation 1 000), measured at times of their own."""
    import pandas as pd

    random = np.random.default_rng(seed)
    rows = []
    for number in range(n_ids):
        for channel, size in (("temperature", 1.0), ("pressure", 1000.0)):
            for time in np.sort(random.uniform(0, 10, random.integers(3, 8))):
                value = size * (np.sin(time + number % 2) + 0.1 * random.normal())
                rows.append((f"s{number}", time, channel, value, "ab"[number % 2]))
    return pd.DataFrame(rows, columns=["id", "time", "channel", "value", "label"])


class Own:
    """What a user might write: samples by their index, made when they are asked for."""

    def __init__(self, samples):
        self.samples, self.n_read = samples, 0

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        self.n_read += 1
        return self.samples[index]


class OwnPacked(Own):
    """The same, with all that a source may offer."""

    @property
    def lengths(self):
        return [len(sample) for sample in self.samples]

    @property
    def schema(self):
        return self.samples.schema

    def packed(self, indices):
        return as_source(self.samples).packed(indices)


def containers(samples, path) -> dict:
    half = len(samples) // 2
    return {
        "set": samples,
        "list": list(samples),
        "tuple": tuple(samples),
        "two lists": [*samples[:half], *samples[half:]],
        "set of a lazy sequence": SampleSet(Lazy(Own(list(samples))), samples.schema),
        "store": write_store(samples, path / "samples.arrow"),
        "own": Own(samples),
        "own, packed": OwnPacked(samples),
        "source": as_source(samples),
        "too large to be copied": Lazy(list(samples)),
    }


def outcome(samples, validation) -> list:
    """Everything that follows from samples: scaling, ladders, model, losses, and answers of every sort."""
    scaling = fit_scaling(samples, origin="first")
    ladders = fit_ladders(samples, scaling)
    kinds = schema_of(samples).n_channels
    config = ModelConfig(channels=1, position_dims=2, encoder=SMALL, decoder=SMALL, ladders=ladders, kinds=kinds)
    settings = TrainConfig(epochs=2, batch_size=5, lr=1e-2)
    torch.manual_seed(0)
    task = MaskedReconstruction(config, drop_tokens=0.2)
    history = train(task, samples, settings, validation=validation, scaling=scaling, quiet=True)
    torch.manual_seed(0)
    classifier = Classification(task.encoder.rebuilt(), 2)
    more = train(classifier, samples, settings, validation=validation, scaling=scaling, quiet=True)
    curves = romae.interpolate(task, samples, [[[1.0, 0], [2.5, 1]]] * len(samples))
    hidden = romae.hide(list(samples), romae.UniformTokens(ratio=0.5))
    return [
        scaling,
        ladders,
        kinds,
        task.schema,
        history.records,
        more.records,
        romae.predict_proba(classifier, samples).tolist(),
        romae.predict(classifier, samples).tolist(),
        romae.embed(task, samples).tolist(),
        [curve.tolist() for curve in curves],
        [values.tolist() for values in romae.predict(task, hidden)],
        romae.to_table(samples, [np.ones((len(one), 1)) for one in samples]).to_csv(),
    ]


def test_the_container_changes_nothing(tmp_path):
    columns = dict(id="id", time="time", channel="channel", values="value", label="label")
    samples = romae.from_table(table(), **columns)
    validation = romae.from_table(table(5, seed=1), **columns)
    expected = outcome(samples, validation)
    scaling = expected[0]
    assert scaling.by_channel and scaling.scale[0][0] > 100 * scaling.scale[1][0]  # each channel has its own
    assert expected[2] == 2 and expected[3].classes == ("a", "b")
    judged = containers(validation, tmp_path / "validation")
    for name, container in containers(samples, tmp_path).items():
        for part, was, now in zip(range(len(expected)), expected, outcome(container, judged[name]), strict=True):
            assert now == was, (name, part)


def test_estimators_learn_the_same_from_any_container(tmp_path):
    samples = romae.from_table(table(), id="id", time="time", channel="channel", values="value", label="label")
    settings = dict(size=SMALL, pretrain_epochs=1, epochs=1, batch_size=4, random_state=0, device="cpu")
    answers = {}
    for name, container in containers(samples, tmp_path).items():
        if name in ("set", "list", "two lists", "store", "source"):
            fitted = romae.RoMAEClassifier(**settings).fit(container)
            assert fitted.task_.config.kinds == 2, name
            answers[name] = fitted.predict_proba(container).tolist()
    assert all(answer == answers["set"] for answer in answers.values())


def test_lists_of_unlike_data_are_refused():
    first = romae.from_table(table(), id="id", time="time", channel="channel", values="value")
    turned = table().replace({"temperature": "x", "pressure": "a"})
    second = romae.from_table(turned, id="id", time="time", channel="channel", values="value")
    with pytest.raises(ValueError, match="channels"):
        as_source([*first, *second])


def test_a_store_keeps_the_names_of_the_data(tmp_path):
    samples = romae.from_table(table(), id="id", time="time", channel="channel", values="value", label="label")
    store = write_store(samples, tmp_path / "a.arrow", metadata={"note": 1})
    assert store.schema == samples.schema and store[3].schema == samples.schema and store.metadata == {"note": 1}
    plain = write_store([Sample([[1.0]], [[0.0]])], tmp_path / "b.arrow")
    assert plain.schema is None


def test_packed_scaling_equals_scaling_one_by_one():
    random = np.random.default_rng(0)
    samples = [
        Sample(
            random.lognormal(size=(n, 2)) * 1e3,
            np.stack([2.4e6 + random.uniform(0, 9, n), random.integers(0, 3, n)], 1),
            target=random.normal(size=2),
            id=n,
            hidden=np.arange(n) == 1,
        )
        for n in (3, 9, 2, 5)
    ]
    for origin in ("first", "min", 2.4e6):
        for method in ("standard", "robust", "asinh", "none"):
            scaling = fit_scaling(samples, values=method, per="channel", origin=origin, unit="gap", target=True)
            packed = as_source(samples).scaled(scaling)
            alone = as_source([scaling.apply(sample) for sample in samples])
            lazy = Scaled(Lazy(samples), scaling)
            for other in (alone, lazy):
                indices = np.array([2, 0, 3])
                one, two = packed.packed(indices), other.packed(indices)
                for name in ("values", "positions", "target", "hidden"):
                    assert torch.equal(getattr(one, name), getattr(two, name)), (origin, method, name)
                assert one.values.dtype == two.values.dtype and one.ids == two.ids


def test_scaling_in_parts_is_scaling_at_once(monkeypatch):
    samples = [Sample(np.random.rand(n, 3), np.random.rand(n, 1), target=1.0 * n) for n in (4, 1, 7, 3)]
    scaling = fit_scaling(samples, target=True)
    whole = as_source(samples).scaled(scaling)
    monkeypatch.setattr("romae.data.sources.AT_ONCE", 16)
    parts = as_source(samples).scaled(scaling)
    for name in ("values", "positions", "target"):
        assert torch.equal(getattr(whole.all, name), getattr(parts.all, name))


def test_a_sample_that_cannot_be_scaled_is_named_among_many():
    scaling = fit_scaling([Sample([[1.0], [2.0]], [[0.0, 0], [1.0, 1]])], per="channel")
    good, bad = Sample([[1.0]], [[0.0, 1]], id="good"), Sample([[1.0]], [[0.0, 5]], id="bad")
    with pytest.raises(ValueError, match="bad.*channel"):
        as_source([good, bad]).scaled(scaling)


def test_a_large_source_is_fitted_to_an_even_share_of_it(monkeypatch, tmp_path):
    samples = [Sample(np.full((4, 1), float(i)), np.arange(4.0)[:, None], id=i) for i in range(10)]
    monkeypatch.setattr("romae.data.packed_numbers.MOST_NUMBERS", 40)
    expected = fit_scaling(samples[::2])
    assert fit_scaling(samples) == fit_scaling(write_store(samples, tmp_path / "s.arrow")) == expected


def test_a_sample_of_a_packed_source_is_the_sample():
    samples = [Sample([[1.0], [2.0]], [[0.0], [1.0]], target=t, id="x", hidden=[True, False]) for t in (1, 2)]
    scaled = as_source(samples).scaled(fit_scaling(samples, values="none"))
    for i in (0, -1):
        assert torch.equal(scaled[i].values, samples[i].values) and scaled[i].target == samples[i].target
        assert scaled[i].id == "x" and scaled[i].hidden.tolist() == [True, False]
    assert [int(sample.target) for sample in scaled[:2]] == [1, 2]


@pytest.mark.parametrize("bad", [3, {"a": 1}, Sample([[1.0]], [[0.0]]), (x for x in ())])
def test_what_is_no_sequence_of_samples_is_refused(bad, without_shape_checks):
    with pytest.raises(TypeError, match="list"):
        as_source(bad)


def test_a_stranger_among_samples_is_named():
    with pytest.raises(TypeError, match="number 1 is int"):
        as_source([Sample([[1.0]], [[0.0]]), 3])
    with pytest.raises(ValueError, match="empty"):
        as_source([])


# Files: lengths come from headers, and each file is read once an epoch.


@pytest.fixture
def images(tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    random = np.random.default_rng(0)
    for name, (height, width) in {"a.png": (8, 12), "b.png": (16, 8), "c.jpg": (9, 13), "d.png": (8, 8)}.items():
        pillow.fromarray(random.integers(0, 255, (height, width, 3), dtype=np.uint8)).save(tmp_path / name)
    turned = pillow.fromarray(random.integers(0, 255, (8, 16, 3), dtype=np.uint8))
    exif = turned.getexif()
    exif[0x0112] = 6  # to be turned by a quarter
    turned.save(tmp_path / "e.jpg", exif=exif)
    return tmp_path


def counting(folder: Folder) -> tuple[Folder, list]:
    read = []

    def counted(path, **arguments):
        read.append(path.name)
        return folder.read(path, **arguments)

    return replace(folder, read=counted), read


def test_a_folder_of_images_gives_what_its_samples_give_in_any_container(images, tmp_path_factory):
    folder = romae.from_image_folder(images, (4, 4), fit="crop")
    path = tmp_path_factory.mktemp("store")
    outcomes = []
    for container in (folder, list(folder), write_store(folder, path / "images.arrow"), Own(list(folder))):
        scaling = fit_scaling(container)
        ladders = fit_ladders(container, scaling)
        config = ModelConfig(channels=48, position_dims=2, encoder=SMALL, decoder=SMALL, ladders=ladders)
        torch.manual_seed(0)
        task = MaskedReconstruction(config)
        settings = TrainConfig(epochs=2, batch_size=2)
        history = train(task, container, settings, validation=container, scaling=scaling, quiet=True)
        outcomes.append([scaling, ladders, history.records, romae.embed(task, container).tolist()])
    assert all(outcome == outcomes[0] for outcome in outcomes)


@pytest.mark.parametrize("settings", [dict(fit="crop"), dict(fit="resize"), dict(size=(8, 8))])
def test_lengths_of_images_come_from_headers(images, settings):
    folder, read = counting(romae.from_image_folder(images, (4, 4), **settings))
    lengths = lengths_of(folder).tolist()
    assert not read
    assert lengths == [len(sample) for sample in folder]


def test_lengths_of_sounds_come_from_headers(tmp_path):
    soundfile = pytest.importorskip("soundfile")
    for name, (n, rate) in {"a.wav": (16_000, 16_000), "b.flac": (9_001, 8_000), "c.ogg": (44_111, 44_100)}.items():
        soundfile.write(tmp_path / name, np.random.default_rng(0).normal(0, 0.1, n), rate)
    folder, read = counting(romae.from_audio_folder(tmp_path, patch=(1, 128)))
    lengths = folder.lengths.tolist()
    assert not read
    assert lengths == [len(sample) for sample in folder]
    cut = romae.from_audio_folder(tmp_path, frames=32)
    assert cut.lengths.tolist() == [16, 16, 16]


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_training_reads_each_file_once_an_epoch(images, workers, tmp_path_factory):
    folder = romae.from_image_folder(images, (4, 4), fit="crop")
    log = tmp_path_factory.mktemp("log") / "read"
    counted = replace(folder, read=partial(_noted, read=folder.read, log=log))
    config = ModelConfig(channels=48, position_dims=2, encoder=SMALL, decoder=SMALL)
    settings = TrainConfig(epochs=3, batch_size=2, workers=workers)
    out = tmp_path_factory.mktemp("run")
    train(MaskedReconstruction(config), counted, settings, validation=counted[:2], out=out, quiet=True)
    read = log.read_text().split()
    assert {name: read.count(name) for name in set(read)} == {
        "a.png": 6,
        "b.png": 6,
        "c.jpg": 3,
        "d.png": 3,
        "e.jpg": 3,
    }


def _noted(path, read, log, **arguments):
    with log.open("a") as file:
        file.write(path.name + "\n")
    return read(path, **arguments)


def test_headers_of_many_files_are_read_once_and_again_where_a_file_changes(images, monkeypatch, tmp_path_factory):
    monkeypatch.setattr(folder_module, "KEPT_FROM", 1)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    OPENED.clear()
    folder = replace(romae.from_image_folder(images, (4, 4), fit="crop"), measure=partial(_opened))
    expected = folder.lengths.tolist()
    assert OPENED == ["a.png", "b.png", "c.jpg", "d.png", "e.jpg"]
    assert replace(folder).lengths.tolist() == expected and len(OPENED) == 5
    os.utime(images / "b.png", ns=(1, 1))
    assert replace(folder).lengths.tolist() == expected and OPENED[5:] == ["b.png"]
    [kept] = (tmp_path_factory.getbasetemp()).rglob("lengths/*.npy")
    kept.write_bytes(b"torn")
    assert replace(folder).lengths.tolist() == expected and len(OPENED) == 11


OPENED: list[str] = []


def _opened(path):
    OPENED.append(path.name)
    from romae.data.images import image_length

    return image_length(path, patch=(4, 4), fit="crop")


def test_a_file_that_is_not_what_its_header_said_is_named(images):
    folder = replace(romae.from_image_folder(images, (4, 4), fit="crop"), measure=partial(_wrong))
    with pytest.raises(ValueError, match="a.png.*header"):
        folder.packed(np.array([0]))


def _wrong(path):
    return 99


# A scaled store stays on disk.


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read as Linux counts it")
def test_training_and_answers_on_a_scaled_store_stay_within_a_tenth_of_its_size(tmp_path):
    """The store holds 100 MB; what training and answering add to the peak of memory is less than a tenth of that."""
    samples = (
        Sample(torch.full((200, 60), float(i % 7)), torch.arange(200.0)[:, None], target=i % 2, id=i)
        for i in range(2_100)
    )
    store = write_store(samples, tmp_path / "large.arrow")
    assert store.path.stat().st_size > 100e6
    code = f"""
import resource, sys, torch, romae
from romae.training.config import TrainConfig
store = romae.Store({str(store.path)!r}, memory_budget=4 << 20)
size = romae.Size(width=12, heads=1, depth=1)
config = romae.ModelConfig(channels=60, position_dims=1, encoder=size, decoder=size, cls=False)
task = romae.Classification(config, 2, drop_tokens=0.99)
scaling = romae.fit_scaling(store[:70])
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
few = [store[i] for i in range(40)]
settings = TrainConfig(epochs=1, batch_size=40, device="cpu")
romae.train(task, few, settings, scaling=scaling, quiet=True)
romae.predict_proba(task, few, tokens_per_batch=4_000)
before = peak()
romae.train(task, store, settings, scaling=scaling, quiet=True)
romae.predict_proba(task, store, tokens_per_batch=4_000)
print(peak() - before)
"""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 10, f"{done.stdout} MiB more than before"


def test_every_source_ends_and_counts_from_its_end(tmp_path):
    samples = [Sample([[float(i)]], [[0.0]], target=i, id=i) for i in range(3)]
    scaled = as_source(samples).scaled(fit_scaling(samples, values="none"))
    store = write_store(samples, tmp_path / "s.arrow")
    for source in (as_source(samples), scaled, Lazy(samples), Scaled(Lazy(samples), fit_scaling(samples)), store):
        assert [sample.id for sample in source] == [0, 1, 2] and source[-1].id == 2
        with pytest.raises(IndexError):
            source[3]


def test_a_set_names_what_a_store_of_before_had_no_names_for(tmp_path):
    samples = romae.from_table(table(), id="id", time="time", channel="channel", values="value", label="label")
    plain = write_store([sample.with_schema(None) for sample in samples], tmp_path / "old.arrow")
    named = SampleSet(plain, samples.schema)
    assert plain.schema is None and as_source(named).schema == named[0].schema == samples.schema
    assert fit_scaling(named) == fit_scaling(samples) != fit_scaling(plain)


def test_files_with_nothing_to_predict_are_refused(tmp_path):
    samples = Own([Sample([[1.0]], [[0.0]]) for _ in range(3)])
    config = ModelConfig(channels=1, position_dims=1, encoder=SMALL, decoder=SMALL)
    with pytest.raises(ValueError, match="nothing to learn"):
        train(MaskedReconstruction(config), samples, TrainConfig(epochs=1), quiet=True)

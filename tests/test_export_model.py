"""Exported models: a file answers what the library answers, for any number of samples, tokens and queries."""

import json
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from typer.testing import CliRunner

import romae
from messages import assert_says, refused, warned
from romae.cli import main as cli
from romae.data.ranges import Ranges
from romae.data.scaling import Scaling
from romae.data.schema import Fact, Schema
from romae.inference import export as exporting
from romae.inference.graph import Graph
from romae.inference.parity import made_up_batch
from romae.model.calibration import Calibration
from romae.model.tasks import Classification, MaskedReconstruction, Regression, Task
from romae.tokens.sample import Sample

SIZE = romae.Size(width=24, heads=2, depth=1)
BATCHES = ([1], [4, 1, 9, 2], [3] * 12 + [1, 20, 7])  # lengths of samples
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


class Case(NamedTuple):
    """A task, what it is asked, and how many channels the last position axis tells apart."""

    task: Any
    answer: str = "predict"
    n_channels: int = 0


def made(kind: type[Task], scaling: Scaling | None = None, own: dict[str, Any] | None = None, **settings: Any) -> Any:
    """A task with weights so large that its answers differ from sample to sample."""
    config = romae.ModelConfig(**{"channels": 1, "position_dims": 1, "encoder": SIZE, "decoder": SIZE} | settings)
    task = kind(config, **({"n_classes": 3} if kind is Classification and own is None else own or {}))
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in task.parameters():
            weight.normal_(std=0.4)
    task.scaling = scaling
    return task.eval()


CALIBRATED = {"n_classes": 3, "confidence": 0.9, "calibration": Calibration(temperature=1.4, bias=(0.3, 0.0, -0.2))}
TABLES = {"by_channel": True, "centre": ((5.0,), (-2.0,), (0.0,)), "scale": ((2.0,), (0.5,), (30.0,))}
AXES = {"origins": ("first", "none"), "units": (3.0, 1.0)}
KINDS = {"position_dims": 2, "kinds": 3}
COLUMNS = {"method": "robust", "centre": ((5.0, 0.0),), "scale": ((2.0, 9.0),)}
WITHIN = {"n_channels": 3, "within": ((0.5,), (0.5,), (8.0,))}
OF_TARGETS = {"target_mean": (50.0, -3.0), "target_scale": (7.0, 0.1)}

CASES = {
    "calibrated classes from CLS": lambda: Case(
        made(
            Classification,
            Scaling(method="robust-asinh", centre=((5.0,),), scale=((2.0,),), origins=("min",), units=(3.0,)),
            CALIBRATED,
        )
    ),
    "classes from the means of kinds": lambda: Case(
        made(Classification, Scaling(method="standard", **TABLES, **AXES), cls=False, pool="kinds", **KINDS),
        n_channels=3,
    ),
    "numbers with sinusoids": lambda: Case(
        made(
            Regression,
            Scaling(**COLUMNS, origins=(1000.5,), units=(24.0,), **OF_TARGETS),
            {"n_targets": 2},
            channels=2,
            positions="absolute",
            cls=False,
        )
    ),
    "a number of each token": lambda: Case(made(Regression, None, {"per": "token"}, channels=2, position_dims=3)),
    "a number, samples centred by channel": lambda: Case(
        made(Regression, Scaling(method="standard", center="sample", **WITHIN, **TABLES), position_dims=2),
        n_channels=3,
    ),
    "values, independent queries": lambda: Case(
        made(MaskedReconstruction, Scaling(method="asinh", **TABLES, **AXES), **KINDS), "interpolate", 3
    ),
    "values, joint queries": lambda: Case(
        made(MaskedReconstruction, None, channels=2, queries="joint", cls=False), "interpolate"
    ),
    "values, samples centred by channel": lambda: Case(
        made(
            MaskedReconstruction,
            Scaling(method="standard", center="instance", **WITHIN, **TABLES, **AXES),
            cls=False,
            static_from=2,
            **KINDS,
        ),
        "interpolate",
        2,
    ),
    "values, columns centred": lambda: Case(
        made(MaskedReconstruction, Scaling(**COLUMNS, center="sample", within=((1.0, 2.0),)), channels=2),
        "interpolate",
    ),
    "means of mixtures": lambda: Case(
        made(
            MaskedReconstruction,
            Scaling(method="standard", center="sample", **WITHIN, **TABLES),
            {"likelihood": "mixture"},
            **KINDS,
        ),
        "interpolate",
        3,
    ),
    "means of quantiles of each token": lambda: Case(
        made(Regression, None, {"per": "token", "likelihood": "quantiles"}, channels=2, position_dims=3)
    ),
    "vectors, samples centred": lambda: Case(
        made(MaskedReconstruction, Scaling(method="standard", center="instance", **WITHIN, **TABLES), **KINDS),
        "embed",
        3,
    ),
    "vectors of a classifier": lambda: Case(made(Classification, cls=False), "embed"),
}


@cache
def case_of(name: str) -> Case:
    return CASES[name]()


def made_samples(case: Case, lengths: Sequence[int]) -> tuple[list[Sample], list[np.ndarray]]:
    """Samples far from 0 on their first axis, and positions to ask for: none of some of them."""
    random, config = np.random.default_rng(len(lengths)), case.task.config
    samples, queries = [], []
    for i, n in enumerate(lengths):
        positions = random.uniform(0, 30, (n + (i + 1) % 4, config.position_dims)) + 1000.0
        if case.n_channels:
            positions[:, -1] = random.integers(case.n_channels, size=len(positions))
        samples.append(Sample(random.normal(3.0, 5.0, (n, config.channels)), positions[:n]))
        queries.append(positions[n:])
    return samples, queries


def fed(samples: Sequence[Sample], queries: Sequence[np.ndarray], inputs: str, answer: str) -> dict[str, np.ndarray]:
    """What a server would hand over."""
    values, positions = ([getattr(one, name).numpy() for one in samples] for name in ("values", "positions"))
    n_most = max(map(len, queries))
    if inputs == "packed":
        ends, asked_ends = (np.cumsum([0, *map(len, one)]) for one in (samples, queries))
        arrays = {"values": np.concatenate(values), "positions": np.concatenate(positions), "offsets": ends}
        asked = {"query_positions": np.concatenate(queries), "query_offsets": asked_ends}
    else:
        longest = max(map(len, samples))
        filled = [[np.resize(x, (longest, x.shape[1])) for x in part] for part in (values, positions)]
        mask = np.stack([np.arange(longest) < len(one) for one in samples])
        arrays = {"values": np.stack(filled[0]), "positions": np.stack(filled[1]), "mask": mask}
        asked = {
            "query_positions": np.stack(
                [np.pad(x, ((0, n_most - len(x)), (0, 0)), constant_values=np.nan) for x in queries]
            )
        }
    return arrays | asked if answer == "interpolate" else arrays


def end_to_end(output: np.ndarray, arrays: dict[str, np.ndarray]) -> np.ndarray:
    """Answers in the packed form; what only fills up must be NaN."""
    if "mask" not in arrays or output.ndim == 2:
        return output
    is_real = ~np.isnan(arrays["query_positions"]).any(-1) if "query_positions" in arrays else arrays["mask"]
    assert np.isnan(output[~is_real]).all()
    return output[is_real]


def library(case: Case, samples: Sequence[Sample], queries: Sequence[np.ndarray]) -> np.ndarray:
    if case.answer == "interpolate":
        return np.concatenate(romae.interpolate(case.task, samples, queries, grouped=True))
    if case.answer == "embed":
        return romae.embed(case.task, samples)
    if isinstance(case.task, Classification):
        return romae.predict_proba(case.task, samples)
    numbers = romae.predict(case.task, samples)
    return np.concatenate(numbers) if case.task.per == "token" else numbers.reshape(len(samples), -1)


def assert_same_answers(run: Any, case: Case, inputs: str) -> None:
    for lengths in BATCHES:
        samples, queries = made_samples(case, lengths)
        arrays = fed(samples, queries, inputs, case.answer)
        assert_allclose(end_to_end(run(arrays), arrays), library(case, samples, queries), **CLOSE)


def eager(case: Case, inputs: str) -> Any:
    graph = Graph(case.task, case.answer, inputs).requires_grad_(False)
    return lambda arrays: graph(*map(torch.from_numpy, arrays.values())).numpy()


@pytest.mark.parametrize("inputs", ["packed", "padded"])
@pytest.mark.parametrize("name", CASES)
def test_the_graph_answers_as_the_library_does(name, inputs):
    case = case_of(name)
    samples, queries = made_samples(case, BATCHES[2])
    answers = library(case, samples, queries)
    assert np.ptp(answers, axis=0).min() > 1e-2, "answers that are all alike would show nothing"
    assert_same_answers(eager(case, inputs), case, inputs)


# Files


@cache
def opened(path: Path) -> Any:
    """What an exported file answers."""
    if path.suffix == ".onnx":
        onnxruntime = pytest.importorskip("onnxruntime", reason="needs pip install 'romae[export]'")
        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 3, 1
        session = onnxruntime.InferenceSession(path, options)
        return lambda arrays: session.run(None, arrays)[0]
    module = torch.export.load(path).module()
    return lambda arrays: module(*map(torch.from_numpy, arrays.values())).numpy()


FILES = {
    "classes.onnx": ("calibrated classes from CLS", "packed"),
    "curves.onnx": ("values, independent queries", "padded"),
    "joint.pt2": ("values, joint queries", "packed"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("exported")


@cache
def exported(folder: Path, file: str) -> exporting.Exported:
    """An export takes seconds: each is made once."""
    if file.endswith(".onnx"):
        for module in ("onnx", "onnxruntime", "onnxscript"):
            pytest.importorskip(module, reason="needs pip install 'romae[export]'")
    name, inputs = FILES[file]
    case, format = case_of(name), "onnx" if file.endswith(".onnx") else "torch"
    return romae.export(case.task, folder / file, format=format, answer=case.answer, inputs=inputs)


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_a_file_answers_as_the_library_does(file, folder):
    name, inputs = FILES[file]
    done = exported(folder, file)
    assert done.difference < 1e-5 and done.n_bytes == (folder / file).stat().st_size
    assert_same_answers(opened(folder / file), case_of(name), inputs)
    arrays = fed(*made_samples(case_of(name), BATCHES[1]), inputs, case_of(name).answer)
    arrays["values"].reshape(-1)[0] = np.nan  # one sample is refused, the others are not
    answers = opened(folder / file)(arrays)
    assert np.isnan(answers).any() and np.isfinite(answers).any()
    assert_allclose(answers, eager(case_of(name), inputs)(arrays), **CLOSE)


@pytest.mark.slow
def test_a_server_needs_neither_romae_nor_torch(folder, tmp_path):
    """The file says itself what it takes, what it answers and what names there are."""
    case = case_of(FILES["classes.onnx"][0])
    exported(folder, "classes.onnx")
    samples, queries = made_samples(case, BATCHES[1])
    np.savez(tmp_path / "in.npz", **fed(samples, queries, "packed", "predict"))
    serve = """
import json, sys
import numpy as np, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1])
about = json.loads(session.get_modelmeta().custom_metadata_map["romae"])
arrays = dict(np.load("in.npz"))
(answers,) = session.run([about["output"]], {name: arrays[name] for name in about["inputs"]})
np.save("out.npy", answers)
print(json.dumps([about, sorted({"romae", "torch"} & set(sys.modules))]))
"""
    command = [sys.executable, "-I", "-c", serve, str(folder / "classes.onnx")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    about, imported = json.loads(done.stdout)
    assert imported == [] and about["answer"] == "predict" and about["romae"] == romae.__version__
    assert_allclose(np.load(tmp_path / "out.npy"), romae.predict_proba(case.task, samples), **CLOSE)


@pytest.mark.slow
def test_a_file_tells_nothing_of_the_machine_it_was_written_on(folder):
    exported(folder, "classes.onnx"), exported(folder, "joint.pt2")
    archive = zipfile.ZipFile(folder / "joint.pt2")
    content = [(folder / "classes.onnx").read_bytes(), *map(archive.read, archive.namelist())]
    assert not any(str(Path(romae.__file__).parents[2]).encode() in one for one in content)


# What no sentence can refuse is NaN


def answers_to(
    case: Case, inputs: str, change: Any, lengths: Sequence[int] = (4, 2, 3)
) -> tuple[np.ndarray, np.ndarray]:
    """Answers of one model before and after its inputs were changed."""
    arrays = fed(*made_samples(case, lengths), inputs, case.answer)
    run = eager(case, inputs)
    before = run(arrays)
    arrays = {name: array.copy() for name, array in arrays.items()}
    change(arrays)
    return before, run(arrays)


def put(name: str, place: tuple[int, ...], value: float) -> Any:
    return lambda arrays: arrays[name].__setitem__(place, value)


@pytest.mark.parametrize(
    "change",
    [
        put("values", (1, 1, 0), np.nan),
        put("values", (1, 1, 0), np.inf),
        put("positions", (1, 0, 0), np.nan),
        put("positions", (1, 0, 0), 1e200),
        put("positions", (1, 1, 1), 3.0),  # of three channels
        put("positions", (1, 1, 1), 0.5),
        put("positions", (1, 1, 1), -1.0),
        put("mask", (1, slice(None)), False),
    ],
    ids=["nan", "inf", "when", "far", "fourth channel", "between channels", "no channel", "empty"],
)
def test_a_sample_that_would_be_refused_is_nan_and_no_other_changes(change):
    before, after = answers_to(case_of("classes from the means of kinds"), "padded", change)
    assert np.isnan(after[1]).all()
    assert_allclose(after[[0, 2]], before[[0, 2]], rtol=1e-6)


def test_the_same_is_true_of_packed_samples():
    before, after = answers_to(case_of("classes from the means of kinds"), "packed", put("values", (5, 0), np.nan))
    assert np.isnan(after[1]).all()
    assert_allclose(after[[0, 2]], before[[0, 2]], rtol=1e-6)


def test_padding_may_hold_anything():
    def fill(arrays: dict[str, np.ndarray]) -> None:
        arrays["values"][~arrays["mask"]] = np.nan
        arrays["positions"][~arrays["mask"]] = -1e300

    before, after = answers_to(case_of("values, samples centred by channel"), "padded", fill)
    assert_allclose(after, before, rtol=1e-6)


@pytest.mark.parametrize("offsets", [[0, 4, 6, 8], [1, 4, 6, 9], [0, 6, 4, 9], [0, 4, 6, 10]])
def test_offsets_that_do_not_fit_give_no_answer(offsets):
    case = case_of("vectors of a classifier")
    _, after = answers_to(case, "packed", put("offsets", (slice(None),), np.array(offsets)))
    assert np.isnan(after).all()


def test_an_empty_sample_has_no_answer_and_spoils_none():
    case = case_of("vectors of a classifier")
    _, whole = answers_to(case, "packed", put("offsets", (slice(None),), np.array([0, 4, 4, 9])))
    assert np.isnan(whole[1]).all() and np.isfinite(whole[[0, 2]]).all()


@pytest.mark.parametrize("name", ["values, samples centred by channel", "values, joint queries"])
@pytest.mark.parametrize("inputs", ["packed", "padded"])
def test_a_query_that_cannot_be_asked_is_nan_and_no_other_changes(name, inputs):
    case = case_of(name)
    samples, queries = made_samples(case, [5])
    queries = [np.concatenate([queries[0], queries[0] + 1.0])[:2]]
    queries[0][:, 1:] = 0
    wrong = np.full_like(queries[0][:1], 7.0 if case.n_channels else np.nan)  # no channel, or nowhere
    run = eager(case, inputs)
    alone = run(fed(samples, queries, inputs, "interpolate"))
    with_wrong = run(fed(samples, [np.concatenate([queries[0], wrong])], inputs, "interpolate"))
    assert np.isnan(with_wrong[..., -1, :]).all()
    assert_allclose(with_wrong[..., :-1, :], alone, rtol=1e-5)


def test_a_channel_that_training_did_not_have_is_nan():
    case = case_of("classes from the means of kinds")
    task = made(Classification, None, cls=False, pool="kinds", **KINDS)
    task.scaling = replace(case.task.scaling, scale=((2.0,), (0.0,), (30.0,)))
    before, after = answers_to(case._replace(task=task, n_channels=1), "padded", put("positions", (0, 0, 1), 1.0))
    assert np.isfinite(before).all() and np.isnan(after[0]).all() and np.isfinite(after[1:]).all()


# Refusals


@pytest.mark.parametrize(
    ("task", "settings", "parts"),
    [
        (lambda: made(Classification), {"format": "tensorflow"}, ("format", "'onnx' or 'torch'")),
        (lambda: made(Classification), {"inputs": "nested"}, ("inputs", "'packed' or 'padded'")),
        (lambda: made(Classification), {"answer": "explain"}, ("answer", "'explain'")),
        (lambda: made(Classification), {"answer": "interpolate"}, ("MaskedReconstruction", "Classification")),
        (lambda: made(MaskedReconstruction), {"answer": "predict"}, ("answer='interpolate'",)),
        (lambda: made(Classification, window=4), {}, ("window", "Predictor")),
        (lambda: romae.load("romae/zero"), {}, ("units of their own", "Predictor")),
        (
            lambda: made(MaskedReconstruction, None, {"normalise": True}, channels=2),
            {},
            ("normalise=True", "answer='embed'"),
        ),
        (lambda: Task(made(Classification).encoder, 0.0, {}), {}, ("Classification and Regression", "answer='embed'")),
        (lambda: damaged(made(Classification)), {}, ("no numbers",)),
        (lambda: with_other_blocks(made(Classification)), {}, ("blocks",)),
        (lambda: made(Classification), {"path": "model.pb"}, (".onnx",)),
        (lambda: made(Classification), {"path": "model.onnx", "format": "torch"}, (".pt2",)),
        (lambda: made(Classification), {"path": "there.onnx"}, ("there already", "force=True")),
        (lambda: made(Classification), {"path": "nowhere\0.onnx"}, ("no name of",)),
    ],
)
def test_what_cannot_be_exported_is_refused_in_a_sentence(
    task, settings, parts, tmp_path, monkeypatch, without_shape_checks
):
    monkeypatch.chdir(tmp_path)
    Path("there.onnx").write_text("mine")
    settings = {"path": "model.onnx"} | settings
    with refused(ValueError, *parts):
        romae.export(task(), settings.pop("path"), **settings)
    assert [path.name for path in tmp_path.iterdir()] == ["there.onnx"] and Path("there.onnx").read_text() == "mine"


def damaged(task: Any) -> Any:
    with torch.no_grad():
        task.head.linear.bias[0] = torch.nan
    return task


def with_other_blocks(task: Any) -> Any:
    task.encoder.transformer.blocks[0] = torch.nn.Identity()
    return task


def test_an_estimator_is_told_where_its_network_is(tmp_path, without_shape_checks):
    with refused(TypeError, "RoMAEClassifier", "task_"):
        romae.export(romae.RoMAEClassifier(), tmp_path / "model.onnx")


@pytest.mark.parametrize("module", ["onnx", "onnxscript"])
def test_without_the_extra_a_sentence_says_what_to_install(module, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with refused(ImportError, module, "pip install 'romae[export]'"):
        romae.export(made(Classification), tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_weights_that_fill_no_onnx_file_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(exporting, "MOST_BYTES", 1000)
    with refused(ValueError, "2 GB", "format='torch'"):
        romae.export(made(Classification), tmp_path / "model.onnx")


@pytest.fixture
def joint(folder, monkeypatch) -> Any:
    """Lets every export be that of a file that is there: to trace takes seconds."""
    exported(folder, "joint.pt2")
    program = torch.export.load(folder / "joint.pt2")
    monkeypatch.setattr(exporting, "_program", lambda graph, arrays: program)
    return case_of(FILES["joint.pt2"][0]).task


@pytest.mark.slow
def test_a_file_that_differs_from_pytorch_is_not_left_behind(joint, folder, tmp_path, monkeypatch):
    run = opened(folder / "joint.pt2")
    for wrong in (lambda x: x + 1e-2, lambda x: x[:, :1], lambda x: x * np.nan):
        monkeypatch.setattr(exporting, "_torch_runner", lambda path, wrong=wrong: lambda arrays: wrong(run(arrays)))
        with refused(ValueError, "exported model", "PyTorch", "nothing was written"):
            romae.export(joint, tmp_path / "model.pt2", format="torch")
        assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_file_that_cannot_be_checked_comes_with_a_warning(joint, tmp_path, monkeypatch):
    monkeypatch.setattr(exporting, "_torch_runner", lambda path: None)
    with warned(UserWarning, "not checked", "romae[export]"):
        done = romae.export(joint, tmp_path / "model.pt2", format="torch")
    assert done.difference is None and done.path.exists()


def test_the_task_stays_as_it_is(tmp_path, monkeypatch):
    """In training, in half precision and with gradients; what is exported is a copy."""
    task = made(Classification).bfloat16().train()
    seen = []
    monkeypatch.setattr(exporting, "_program", lambda graph, arrays: seen.append(graph) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        romae.export(task, tmp_path / "model.onnx")
    (copy,) = (graph.task for graph in seen)
    assert not copy.training and next(copy.parameters()).dtype == torch.float32
    assert task.training and next(task.parameters()).dtype == torch.bfloat16
    assert all(weight.requires_grad for weight in task.parameters())


# Samples that are made up


def test_samples_are_made_up_between_the_numbers_that_training_has_seen():
    seen = Ranges(
        by_channel=True,
        lowest=((5.0,), (), (-2.0,)),
        highest=((6.0,), (), (-1.0,)),
        earliest=(0.0, 0.0),
        latest=(48.0, 2.0),
    )
    scaling = Scaling(method="standard", seen=seen, **TABLES, origins=(100.0, "none"), units=(1.0, 1.0))
    task = made(MaskedReconstruction, scaling, **KINDS)
    task.schema = Schema(channel="sensor", channels=("a", "b"), static=(Fact(column="age"),))
    samples, queries = made_up_batch(task, (50,), (20,), seed=0)
    values, positions = samples[0].values[:, 0], samples[0].positions
    assert set(positions[:, 1].tolist()) == {0.0, 2.0}, "no channel that training did not have"
    assert ((values >= 5) & (values <= 6))[positions[:, 1] == 0].all() and (values[positions[:, 1] == 2] <= -1).all()
    assert 100 <= positions[:, 0].min() and positions[:, 0].max() <= 148
    assert set(queries[0][:, 1]) == {0.0}, "static facts are not asked for"


# The command


@pytest.mark.slow
def test_the_command_writes_a_file_and_says_how_far_it_is_off(tmp_path):
    case_of("vectors of a classifier").task.save(tmp_path / "model")
    out = tmp_path / "vectors.pt2"
    command = ["export", str(tmp_path / "model"), "--out", str(out), "--answer", "embed", "--json"]
    done = CliRunner().invoke(cli.app, command)
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["output"] == "embeddings" and said["difference"] < 1e-5 and said["n_bytes"] == out.stat().st_size
    assert_same_answers(opened(out), case_of("vectors of a classifier"), "packed")
    again = CliRunner().invoke(cli.app, command)
    assert again.exit_code == 1
    assert_says(str(again.exception), "there already", "--force")


def test_the_command_refuses_what_it_does_not_know(tmp_path, without_shape_checks):
    case_of("vectors of a classifier").task.save(tmp_path / "model")
    for options, part in ((["--out", "model.txt"], ".onnx"), (["--out", "x.onnx", "--inputs", "both"], "'padded'")):
        done = CliRunner().invoke(cli.app, ["export", str(tmp_path / "model"), *options])
        assert done.exit_code == 1 and isinstance(done.exception, ValueError)
        assert_says(str(done.exception), part)

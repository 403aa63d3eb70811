"""Sound models, runs and stores, made once per process, that hostile inputs are made of."""

import atexit
import contextlib
import ctypes
import importlib
import io
import pkgutil
import shutil
import tempfile
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import torch

import romae

SETTINGS = ("train.epochs=1", "train.batch_size=8", "train.device=cpu")
SLOW = ("romae.__main__", "romae.model.kernels")  # the one runs when it is imported, the others need Triton
SIZE = romae.Size(width=8, heads=1, depth=1)


@cache
def root() -> Path:
    """A folder that is removed when the process that made it ends."""
    folder = Path(tempfile.mkdtemp(prefix="romae-fuzz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def warm_up(*, without: tuple[str, ...] = ()) -> None:
    """Import and build everything now, so that no input is charged with it, and let threads reserve little memory.

    Every thread that asks for memory reserves up to 128 MiB of addresses, which would count as if they were used.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(-8, 1)  # M_ARENA_MAX of the C library of Linux
    pa.allocate_buffer(1 << 20)  # Arrow reserves a gibibyte when it is first asked for memory
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    torch.set_num_threads(1)
    for module in pkgutil.walk_packages(romae.__path__, "romae."):
        if not module.name.startswith((*SLOW, *(f"romae.{name}" for name in without))):
            importlib.import_module(module.name)
    for name in ("scipy.signal", "scipy.stats", "sklearn.metrics", "plotly.offline", "matplotlib.figure", "pooch"):
        importlib.import_module(name)
    with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        checkpoint(), estimator(), run(), classifier_run(), table()


def curves() -> pd.DataFrame:
    """A long table of six labelled series in two bands."""
    random = np.random.default_rng(0)
    rows = [(f"s{i}", band, kind) for i, kind in enumerate(["up", "down"] * 3) for band in "gr" for _ in range(4)]
    frame = pd.DataFrame(rows, columns=["id", "band", "kind"])
    frame["time"] = np.round(random.uniform(0, 10, size=len(frame)), 2)
    frame["value"] = np.round(random.normal(size=len(frame)), 3)
    return frame


@cache
def table() -> Path:
    """That table as a CSV file."""
    path = root() / "curves.csv"
    curves().to_csv(path, index=False)
    return path


@cache
def checkpoint() -> Path:
    """A classifier on disk."""
    torch.manual_seed(0)
    samples = romae.from_table(curves(), id="id", time="time", channel="band", values="value", label="kind")
    config = romae.ModelConfig(channels=1, position_dims=2, encoder=SIZE, decoder=SIZE)
    task = romae.Classification(config, n_classes=2)
    task.schema, task.scaling = samples.schema, romae.fit_scaling(samples)
    task.save(root() / "checkpoint")
    return root() / "checkpoint"


@cache
def estimator() -> Path:
    """A fitted classifier with the interface of scikit-learn on disk."""
    model = romae.RoMAEClassifier(size=SIZE, epochs=1, pretrain_epochs=0, device="cpu")
    random = np.random.default_rng(0)
    model.fit(random.normal(size=(8, 5, 1)), ["up", "down"] * 4)
    model.save(root() / "estimator")
    return root() / "estimator"


@cache
def run() -> Path:
    """The folder of a finished pre-training."""
    from romae.config import override
    from romae.training.tables import PretrainConfig, pretrain

    columns = ('columns.channel="band"', *SETTINGS, "validation.share=0.34")
    size = "{width=8, heads=1, depth=1}"
    config = override(PretrainConfig(), *columns, f"model.encoder={size}", f"model.decoder={size}")
    pretrain(config, curves(), root() / "run")
    return root() / "run"


@cache
def classifier_run() -> Path:
    """The folder of a finished fine-tuning of that."""
    from romae.config import override
    from romae.training.tables import FinetuneConfig, finetune

    config = override(FinetuneConfig(), "label=kind", *SETTINGS, "validation.share=0.34")
    finetune(config, curves(), run(), root() / "classifier")
    return root() / "classifier"

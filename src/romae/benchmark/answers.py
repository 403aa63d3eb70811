"""From samples to answers, end to end: tokens per second of a classifier and of its kin, and where the time goes.

The workload is a night of light curves: 20 000 of 20 to 220 measurements in six bands, fourteen classes. On a GPU the
model is RoMAE-tiny, on a CPU the size that estimators take there, with a tenth of the night. Shapes: b samples.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from romae.benchmark.timing import milliseconds
from romae.data.scaling import fit_scaling
from romae.data.schema import SampleSet, Schema
from romae.data.sources import InMemory, as_source
from romae.data.store import Store, write_store
from romae.inference.long_jobs import answering
from romae.inference.predictions import (
    TOKENS_PER_BATCH,
    Precision,
    embed,
    interpolate,
    predict_proba,
    seconds_by_stage,
)
from romae.inference.predictor import Predictor
from romae.inference.streaming import answer_file
from romae.model.config import SIZES, ModelConfig, Size
from romae.model.tasks import Classification, MaskedReconstruction
from romae.tokens.layout import Layout
from romae.tokens.tokens import PackedSamples

N_RUNS = 3
N_QUERIES = 50  # of each sample
SURE = 1.0  # spread of the weights of a head, with which two classes are close in one sample of a hundred
MODES: dict[str, dict[str, bool]] = {
    "as they come": {"slabs": False},
    "slabs": {"slabs": True, "graph": False},
    "recorded": {"slabs": True, "compile": False},
    "compiled and recorded": {"slabs": True, "compile": True},
}
BANDS = tuple("ugrizY")
CLASSES = tuple("abcdefghijklmn")


def answers(folder: str | Path = ".", *, n_samples: int | None = None) -> dict[str, Any]:
    """Tokens and queries per second from memory, a store and a Parquet file to answers, by precision and mode."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    n_samples = (20_000 if device == "cuda" else 2_000) if n_samples is None else n_samples
    samples = night(n_samples)
    size = SIZES["tiny" if device == "cuda" else "mini"]
    classifier, interpolator = classifier_of(samples, size).to(device), interpolator_of(samples, size).to(device)
    n_tokens, n_queries = int(as_source(samples).lengths.sum()), n_samples * N_QUERIES
    queries = [np.column_stack([np.linspace(0, 900, N_QUERIES), np.zeros(N_QUERIES)])] * n_samples
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    with tempfile.TemporaryDirectory(dir=folder) as name:
        place = Path(name)
        store = write_store(samples, place / "night.arrow")
        table_of(samples, place / "night.parquet")
        classifier.save(place / "model")
        asked: dict[str, tuple[int, Callable[..., Any]]] = {
            "predict_proba, samples in memory": (n_tokens, partial(predict_proba, classifier, samples)),
            "embed, samples in memory": (n_tokens, partial(embed, classifier, samples)),
            "predict_proba, a store": (n_tokens, partial(predict_proba, classifier, store)),
            "predict, Parquet to Parquet": (n_tokens, _from_table(place, device)),
            "interpolate, queries": (n_queries, partial(interpolate, interpolator, samples, queries)),
        }
        for mode, precision, how in _ways(device):
            for what, (n, ask) in asked.items():
                with answering(**MODES[mode]):
                    began = time.perf_counter()
                    ask(precision=precision, **how)
                    first = time.perf_counter() - began
                    spread = milliseconds(partial(ask, precision=precision, **how), N_RUNS, n_warm=0)
                row = {"what": what, "mode": mode, "precision": precision, **how}
                row |= {"per_second": round(1e3 * n / spread.median), "ms": spread.rounded()}
                rows.append(row | {"first_ms": round(1e3 * first)})  # with all that is made once
        reading = _reading(place, store)
    stages = []
    for mode, precision, how in _ways(device):
        if mode != "as they come" or device == "cpu":
            with answering(**MODES[mode]):
                seconds_by_stage(classifier, samples, precision=precision, **how)  # whatever is made once
                found = seconds_by_stage(classifier, samples, precision=precision, **how)
            taken = {stage: round(seconds, 4) for stage, seconds in found.items()}
            stages.append({"mode": mode, "precision": precision, **how, **taken})
    figures = {"samples": n_samples, "tokens": n_tokens, "queries": n_queries, "rows": rows}
    return figures | {"reading_seconds": reading, "stages_in_seconds": stages}


def _ways(device: str) -> Iterator[tuple[str, Precision, dict[str, int]]]:
    """In which modes and precisions, and with how many tokens at once where that is not as it is by default."""
    if device == "cpu":
        yield "as they come", "float32", {}
        return
    yield "as they come", "float32", {}
    yield "as they come", "tf32", {}
    yield "as they come", "bf16", {}
    yield "slabs", "bf16", {}
    yield "recorded", "float32", {}
    yield "recorded", "bf16", {}
    yield "recorded", "bf16", {"tokens_per_batch": 4 * TOKENS_PER_BATCH}
    yield "compiled and recorded", "bf16", {}


def _reading(place: Path, store: Store) -> dict[str, float]:
    """Seconds until samples of all the night are packed on the host: from Parquet, and from a store."""
    predictor = Predictor(place / "model", "predict", device="cpu")
    read: dict[str, Callable[[], object]] = {
        "parquet": partial(predictor.read, place / "night.parquet"),
        "store": partial(store.packed, np.arange(len(store))),
    }
    return {name: round(milliseconds(one, N_RUNS, n_warm=1).median / 1e3, 3) for name, one in read.items()}


def night(n_samples: int) -> SampleSet:
    """Light curves end to end, as a table is read."""
    random = np.random.default_rng(0)
    lengths = random.integers(20, 221, n_samples)
    n_tokens = int(lengths.sum())
    times = random.uniform(0, 1_000, n_tokens)
    sample = np.repeat(np.arange(n_samples), lengths)
    order = np.lexsort((times, sample))
    positions = np.column_stack([times[order], random.integers(0, len(BANDS), n_tokens)])
    values = torch.from_numpy(50 * random.normal(size=(n_tokens, 1))).float()
    packed = PackedSamples(
        values, torch.from_numpy(positions), Layout.of(lengths.tolist()), ids=tuple(range(n_samples))
    )
    schema = Schema(id="star", time="day", channel="band", channels=BANDS, values=("flux",))
    return SampleSet(InMemory.of_packed(packed, schema), schema)


def classifier_of(samples: SampleSet, size: Size) -> Classification:
    """A classifier of such light curves that has learned nothing, which makes no difference to the time.

    It is as sure of its answers as one that has: those between two classes would be asked for twice.
    """
    torch.manual_seed(0)
    task = Classification(_config(size), len(CLASSES))
    torch.nn.init.normal_(task.head.linear.weight, std=SURE)
    task.scaling = fit_scaling(samples[:500], origin=("first", "none"))
    task.schema = replace(samples.schema, label="type", classes=CLASSES)
    return task.eval()


def interpolator_of(samples: SampleSet, size: Size) -> MaskedReconstruction:
    """Likewise a model that answers for any time and band."""
    torch.manual_seed(0)
    task = MaskedReconstruction(_config(size))
    task.scaling, task.schema = fit_scaling(samples[:500], origin=("first", "none")), samples.schema
    return task.eval()


def _config(size: Size) -> ModelConfig:
    decoder = min(size, SIZES["mini"], key=lambda one: one.width)
    return ModelConfig(channels=1, position_dims=2, encoder=size, decoder=decoder, kinds=len(BANDS), cls=False)


def table_of(samples: SampleSet, path: Path) -> None:
    """Write light curves as a Parquet file, a row for each measurement."""
    import pyarrow as pa
    from pyarrow import parquet

    packed = as_source(samples).packed(np.arange(len(samples)))
    bands = np.array(BANDS)[packed.positions[:, 1].long().numpy()]
    sample = packed.layout.sample_of_token.numpy()
    columns = {
        "star": sample,
        "day": packed.positions[:, 0].numpy(),
        "band": bands,
        "flux": packed.values[:, 0].numpy(),
    }
    parquet.write_table(pa.table(columns), path)


def _from_table(place: Path, device: str) -> Callable[..., None]:
    """From file to file, with a model that is loaded once for each precision, as a process does for many files."""

    @cache
    def predictor(precision: str, tokens_per_batch: int) -> Predictor:
        return Predictor(
            place / "model", "predict", device=device, precision=precision, tokens_per_batch=tokens_per_batch
        )

    def ask(precision: str, tokens_per_batch: int = TOKENS_PER_BATCH) -> None:
        one = predictor(precision, tokens_per_batch)
        answer_file(one, place / "night.parquet", place / "answers.parquet", force=True, quiet=True)

    return ask

"""From samples to answers, end to end: tokens per second of a classifier and of its kin, and where the time goes.

The workload is a night of light curves: 20 000 of 20 to 220 measurements in six bands, fourteen classes. On a GPU the
model is RoMAE-tiny, on a CPU the size that estimators take there. Shapes: b samples.
"""

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from romae.benchmark.timing import milliseconds, wait
from romae.data.scaling import fit_scaling
from romae.data.schema import SampleSet, Schema
from romae.data.sources import InMemory, as_source
from romae.data.store import write_store
from romae.inference.predictions import Precision, embed, interpolate, predict_proba, prepared
from romae.inference.predictor import Predictor
from romae.inference.streaming import answer_file
from romae.model.config import SIZES, ModelConfig, Size
from romae.model.tasks import Classification, MaskedReconstruction, Task
from romae.tokens.layout import Layout
from romae.tokens.tokens import PackedSamples

N_RUNS = 3
N_QUERIES = 50  # of each sample
BANDS = tuple("ugrizY")
CLASSES = tuple("abcdefghijklmn")


def answers(folder: str | Path = ".", *, n_samples: int = 20_000) -> dict[str, Any]:
    """Tokens and queries per second from memory, from a store and from a Parquet file to answers, in each precision."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    samples = night(n_samples)
    size = SIZES["tiny" if device == "cuda" else "mini"]
    classifier, interpolator = classifier_of(samples, size).to(device), interpolator_of(samples, size).to(device)
    n_tokens = int(as_source(samples).lengths.sum())
    precisions: tuple[Precision, ...] = ("float32", "tf32", "bf16") if device == "cuda" else ("float32",)
    queries = [np.column_stack([np.linspace(0, 900, N_QUERIES), np.zeros(N_QUERIES)])] * n_samples
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    with tempfile.TemporaryDirectory(dir=folder) as name:
        place = Path(name)
        store = write_store(samples, place / "night.arrow")
        table_of(samples, place / "night.parquet")
        classifier.save(place / "model")
        for precision in precisions:
            asked: dict[str, tuple[int, Callable[[], Any]]] = {
                "predict_proba, samples in memory": (
                    n_tokens,
                    partial(predict_proba, classifier, samples, precision=precision),
                ),
                "embed, samples in memory": (n_tokens, partial(embed, classifier, samples, precision=precision)),
                "predict_proba, a store": (n_tokens, partial(predict_proba, classifier, store, precision=precision)),
                "predict, Parquet to Parquet": (n_tokens, partial(_from_table, place, device, precision)),
                "interpolate, queries": (
                    n_samples * N_QUERIES,
                    partial(interpolate, interpolator, samples, queries, precision=precision),
                ),
            }
            for what, (n, ask) in asked.items():
                spread = milliseconds(ask, N_RUNS, n_warm=1)
                per_second = round(1e3 * n / spread.median)
                rows.append({"what": what, "precision": precision, "per_second": per_second, "ms": spread.rounded()})
    return {
        "samples": n_samples,
        "tokens": n_tokens,
        "queries": n_samples * N_QUERIES,
        "rows": rows,
        "stages": _stages(classifier, samples),
    }


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
    """A classifier of such light curves that has learned nothing, which makes no difference to the time."""
    torch.manual_seed(0)
    task = Classification(_config(size), len(CLASSES))
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


def _from_table(place: Path, device: str, precision: str) -> None:
    predictor = Predictor(place / "model", "predict", device=device, precision=precision)
    answer_file(predictor, place / "night.parquet", place / "answers.parquet", force=True, quiet=True)


def _stages(task: Task, samples: SampleSet) -> dict[str, float]:
    """Seconds for all samples: gathered, scaled and brought to the device, and then the encoder alone, in float32."""
    begin = time.perf_counter()
    batches = list(prepared(task, samples))
    wait()
    seconds = time.perf_counter() - begin

    def encode() -> None:
        with torch.no_grad():
            for batch in batches:
                task.encode(batch.tokens)

    encoding = milliseconds(encode, 1, n_warm=1).median / 1e3
    return {"preparing": round(seconds, 3), "encoding_in_float32": round(encoding, 3)}

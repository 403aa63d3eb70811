"""A long table on disk to answers on disk: rows per second, and the memory that this takes beside the model.

The table is written a million rows at a time and answered in a process of its own, which notes its memory as it goes.
A second process is killed halfway and the run is resumed, which must give the answers of the first; where the table is
longer than `N_ROWS`, that is left out.
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from romae.benchmark.answers import BANDS, classifier_of, night, table_of
from romae.benchmark.loading import resident_bytes
from romae.model.config import Size

N_ROWS = 20_000_000
SERIES_AT_ONCE = 8_000  # of 120 rows on average
SMALLEST = Size(width=8, heads=1, depth=1)  # so that what is measured is the way of the rows, not the network
EVERY = 0.1  # seconds between two looks at the memory
STRETCHES = 5  # of a run, whose peaks are told one by one: memory that grows shows there
MIB = 2**20
WAIT = 0.2  # seconds between two looks at how far a run is that will be killed


def streaming(folder: str | Path = ".", *, n_rows: int = N_ROWS) -> dict[str, Any]:
    """Rows per second and memory of `romae predict` from Parquet to Parquet, at once and killed and resumed."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        place = Path(name)
        began = time.perf_counter()
        written = write_long_table(place / "long.parquet", n_rows)
        writing = time.perf_counter() - began
        few = night(200)
        classifier_of(few, SMALLEST).save(place / "model")
        table_of(few, place / "warm.parquet")
        whole = _answered(place, "whole")
        found = {
            **written,
            "table_bytes": (place / "long.parquet").stat().st_size,
            "writing_seconds": round(writing, 1),
            "at_once": whole | {"rows_per_second": round(n_rows / max(whole["seconds"], 1e-3))},
        }
        if n_rows > N_ROWS:
            return found
        killed_at = _killed(place, "again", written["series"] // 2)
        if not killed_at:  # a table so short was answered before
            return found
        return found | {
            "killed_after_series": killed_at,
            "resumed": _answered(place, "again", "--resume"),
            "resumed_gives_the_same_answers": _digest(place / "whole.parquet") == _digest(place / "again.parquet"),
        }


def write_long_table(path: Path, n_rows: int) -> dict[str, int]:
    """Light curves, written some thousand at a time; the last is as long as is left. Tells how many there are."""
    import pyarrow as pa
    from pyarrow import parquet

    schema = pa.schema({"star": pa.int64(), "day": pa.float64(), "band": pa.string(), "flux": pa.float32()})
    n_series, left, bands = 0, n_rows, pa.array(BANDS)
    with parquet.ParquetWriter(path, schema) as writer:
        while left:
            random = np.random.default_rng([0, n_series])
            ends = np.minimum(np.cumsum(random.integers(20, 221, SERIES_AT_ONCE)), left)
            lengths = np.diff(ends, prepend=0)
            lengths = lengths[lengths > 0]
            n = int(lengths.sum())
            star = np.repeat(np.arange(len(lengths)), lengths)
            columns = {
                "star": n_series + star,
                "day": 1_000 * (np.sort(star + random.random(n)) - star),  # in order within each series
                "band": bands.take(pa.array(random.integers(0, len(BANDS), n))),
                "flux": 50 * random.standard_normal(n, dtype=np.float32),
            }
            writer.write_table(pa.table(columns, schema=schema))
            n_series, left = n_series + len(lengths), left - n
    return {"table_rows": n_rows, "series": n_series}


def answer(place: str, name: str, *flags: str) -> None:
    """Answer for the long table in this process, and print what that took."""
    from romae.inference.predictor import Predictor
    from romae.inference.streaming import answer_file

    folder = Path(place)
    predictor = Predictor(folder / "model", "predict")
    predictor(folder / "warm.parquet")  # the model is loaded, and so are the libraries that tables need
    with Watched() as watched:
        began = time.perf_counter()
        done = answer_file(
            predictor, folder / "long.parquet", folder / f"{name}.parquet", resume="--resume" in flags, quiet=True
        )
        seconds = time.perf_counter() - began
    print(json.dumps({"seconds": round(seconds, 2), "series": done.n_rows, **watched.told()}))


class Watched:
    """Notes the memory of this process at even times, from before its work to the end of it."""

    def __enter__(self) -> "Watched":
        self.before = resident_bytes()
        self.seen = [self.before]
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_over.set()
        self.thread.join()

    def _watch(self) -> None:
        while not self.is_over.wait(EVERY):
            self.seen.append(resident_bytes())

    def told(self) -> dict[str, Any]:
        """The memory with the model loaded, and above it the most of the run and of each stretch of it, in MiB."""
        peaks = [max(part) for part in np.array_split(np.array(self.seen), min(STRETCHES, len(self.seen)))]
        return {
            "mib_with_the_model": round(self.before / MIB),
            "mib_more_at_most": round((max(self.seen) - self.before) / MIB),
            "mib_more_by_fifths_of_the_run": [round((int(peak) - self.before) / MIB) for peak in peaks],
        }


def _command(place: Path, name: str, flags: tuple[str, ...] = ()) -> list[str]:
    code = "import sys; from romae.benchmark.streaming import answer; answer(*sys.argv[1:])"
    return [sys.executable, "-c", code, str(place), name, *flags]


def _answered(place: Path, name: str, *flags: str) -> dict[str, Any]:
    done = subprocess.run(_command(place, name, flags), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"a run over the long table failed: {done.stderr[-2000:]}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def _killed(place: Path, name: str, n_series: int) -> int:
    """Begin a run and kill it once so many series are answered; returns how many that were, 0 if it came to its end."""
    from pyarrow import parquet

    run = subprocess.Popen(_command(place, name), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    parts = place / f"{name}.parquet.parts"
    counted: dict[Path, int] = {}
    while run.poll() is None:
        for path in parts.glob("[0-9]*.parquet"):
            if path not in counted:
                counted[path] = parquet.read_metadata(path).num_rows
        if sum(counted.values()) >= n_series:
            os.kill(run.pid, getattr(signal, "SIGKILL", signal.SIGTERM))
            run.wait()
            return sum(counted.values())
        time.sleep(WAIT)
    return 0


def _digest(path: Path) -> str:
    """What tells the answers in a file from others."""
    from pyarrow import parquet

    digest = hashlib.sha256()
    with parquet.ParquetFile(path, pre_buffer=False) as file:
        for batch in file.iter_batches():
            for column in batch.columns:
                digest.update(repr(column.type).encode())
                digest.update(column.to_pandas().to_numpy().tobytes() if column.type != "string" else b"")
                digest.update("".join(column.to_pylist()).encode() if column.type == "string" else b"")
    return digest.hexdigest()

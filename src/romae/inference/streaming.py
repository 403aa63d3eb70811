"""From a table on disk to a table on disk, whatever their size: read, answered and written in parts.

Answers are written to OUT.parts, a file for each part, and put together when all are there; a run that was stopped goes
on behind the last part that is there. OUT.parts holds

    job.json               the table, the model and the settings; another job is refused
    START-STOP.parquet     the answers to the rows from START up to STOP, or .csv
    START-STOP.json        what was left out of them; where that is all, there is START-STOP.none instead of answers
    gathered/              the rows by ranges of ids, where those of an id do not lie together
"""

import gzip
import hashlib
import json
import shutil
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from romae.config import differences, to_dict
from romae.data.frames import column_names, missing_column
from romae.data.schema import Schema
from romae.data.skipping import Skipped, warn_of
from romae.data.streams import (
    Ids,
    Part,
    TableFile,
    gather,
    order_of_ids,
    parts_gathered,
    parts_together,
    table_file,
)
from romae.data.tables import are_columns
from romae.files import require_free, write_whole, write_whole_text
from romae.inference.predictor import Predictor
from romae.inference.tables import Read, require_output, write_table
from romae.model.tasks import Task
from romae.training.progress import FIRST_LINE, NEXT_LINES, in_words

if TYPE_CHECKING:
    import pandas as pd

ROWS_PER_PART = 500_000
JOB, NONE = "job.json", ".none"
LATER = ("interval", "quantiles")  # settings that jobs of older versions lack


class Streamed(NamedTuple):
    """What was written: how many rows, in which columns, and what was left out."""

    n_rows: int
    columns: list[str]
    skipped: list[Skipped]


def answer_file(
    predictor: Predictor,
    data: str | Path,
    out: str | Path,
    *,
    resume: bool = False,
    force: bool = False,
    rows_per_part: int = ROWS_PER_PART,
    quiet: bool = False,
) -> Streamed:
    """Answer for a table of any size, in bounded memory.

    Parameters
    ----------
    predictor : Predictor
        The model, and what is asked of it.
    data : str or Path
        A CSV, Parquet or Arrow file. It is fastest where the rows of each id lie together; else they are gathered
        first, in temporary files beside the answers that take as much room as the table.
    out : str or Path
        Where the answers go, a CSV (also .csv.gz) or Parquet file. Ids come in the order in which they begin in the
        table, or sorted where rows had to be gathered, or where the table has no more rows than a part.
    resume : bool, default False
        Whether to go on with what a run that was stopped has left; its parts are not answered again.
    force : bool, default False
        Whether to write over answers that are there, and to begin anew where a run was stopped.
    rows_per_part : int, default 500000
        How many rows are read and answered at once, and kept when a run is stopped.
    quiet : bool, default False
        Whether to keep silent about how far it is.

    Returns
    -------
    Streamed
        How many rows were written, in which columns, and what was left out.

    Raises
    ------
    ValueError
        If the table does not fit the model, answers are there already, or those of another job.
    """
    out, data = Path(out), Path(data)
    require_output(out, data)
    if rows_per_part < 1:
        raise ValueError(f"rows_per_part must be at least 1, not {rows_per_part}")
    folder = out.with_name(f"{out.name}.parts")
    require_free(out, force=force, inputs=[data])
    if folder.exists() and not (resume or force):
        raise ValueError(
            f"{folder} holds what a run that was stopped has done; go on with it with --resume (resume=True), or begin "
            "anew with --force (force=True)"
        )
    if folder.exists() and not (folder / JOB).is_file():
        raise ValueError(
            f"{folder} is there and holds something else than parts of answers; name another file for them"
        )
    if force and not resume:
        shutil.rmtree(folder, ignore_errors=True)
    file = _table_file(predictor, data)
    ids = None if file.has_at_most(rows_per_part) else file.look_at_ids()
    if ids is None or ids.n_rows <= rows_per_part:
        skipped: list[Skipped] = []
        table = predictor.frame(data, skipped)
        write_table(table, out, escape=predictor.config.escape)
        shutil.rmtree(folder, ignore_errors=True)
        return Streamed(len(table), list(table.columns), skipped)
    _begin(folder, _job(predictor, data, rows_per_part), resume=resume)
    done = _done(folder)
    parts = _parts(file, ids, folder, rows_per_part, skip=done[-1].stop if done else 0)
    ending = ".parquet" if out.suffix in (".parquet", ".pq") else ".csv"
    with _one_warning_of_each(), _Rows(predictor.answer, ids.n_rows, done, quiet) as rows:
        # No thread reads ahead: warnings are gathered for the whole process, and two threads would lose some.
        for part in parts:
            _answer(predictor, part, predictor.read(part.table), file.id, folder, ending, in_order=ids.are_together)
            rows.advance(len(part.table))
    answered = _done(folder)
    left_out = [Skipped(*entry) for one in answered for entry in json.loads(one.path.with_suffix(".json").read_text())]
    paths = [one.path for one in answered if one.path.suffix != NONE]
    if not paths:
        raise ValueError(f"nothing of {data} can be answered: {left_out[0].id!r} ({left_out[0].reason}) and all others")
    n, columns = _put_together(paths, out)
    shutil.rmtree(folder)
    return Streamed(n, columns, left_out)


def _answer(
    predictor: Predictor, part: Part, read: Read, id: str, folder: Path, ending: str, *, in_order: bool
) -> None:
    """Write the answers to a part, and what was left out of it."""
    place = folder / f"{part.start:015d}-{part.stop:015d}"
    skipped: list[Skipped] = []
    table = None
    try:
        table = predictor.frame(read, skipped)
    except (ValueError, TypeError) as error:  # of whom all are left out, nobody is
        if predictor.config.on_error == "raise":
            raise
        skipped = [Skipped(name, str(error)) for name in order_of_ids(part.table, id)]
        warn_of(skipped, len(skipped))
    write_whole_text(place.with_suffix(".json"), json.dumps([[str(name), reason] for name, reason in skipped]))
    if table is None:
        write_whole_text(place.with_suffix(NONE), "")
        return
    table = _in_order(table, order_of_ids(part.table, id), id) if in_order else table
    write_table(table, place.with_suffix(ending), escape=predictor.config.escape)


def _table_file(predictor: Predictor, data: Path) -> TableFile:
    """The table with the columns that the model reads."""
    task, given = predictor.task, predictor.config.columns
    model_schema = task.schema or Schema()
    schema = given.schema(model_schema)
    existing = column_names(data)
    facts = list(given.static or ()) if are_columns(given.static) else []
    facts += [fact.column for fact in model_schema.static]
    per_channel = [] if schema.channel in existing else list(map(str, model_schema.channels))
    wanted = [schema.id, schema.time, *schema.positions, *schema.values]
    wanted += [] if schema.channel is None else [schema.channel]
    wanted += [*schema.errors, *schema.error_names]
    columns = [name for name in dict.fromkeys([*wanted, *per_channel, *facts]) if name in existing]
    if schema.id not in columns:
        raise ValueError(missing_column(schema.id, existing))
    names: dict[str, Sequence[Any] | None] = {schema.id: None}
    if schema.channel in columns:
        names[str(schema.channel)] = model_schema.channels
    return table_file(data, schema.id, columns, names)


class _Answered(NamedTuple):
    start: int
    stop: int
    path: Path


def _done(folder: Path) -> list[_Answered]:
    """The parts that have been answered, in order, up to the first that lacks."""
    found: list[_Answered] = []
    for path in sorted(folder.iterdir()):
        if path.suffix in (".parquet", ".csv", NONE) and not path.name.startswith("."):
            start, stop = map(int, path.stem.split("-"))
            if start != (found[-1].stop if found else 0):
                break
            found.append(_Answered(start, stop, path))
    return found


def _parts(file: TableFile, ids: Ids, folder: Path, n: int, *, skip: int) -> Iterator[Part]:
    if ids.are_together:
        return parts_together(file, n, skip=skip)
    home, note = folder / "gathered", folder / "gathered.json"
    if not note.exists():
        print(
            f"romae: the rows of an id do not lie together in {file.path}; they are gathered first, in {home}",
            file=sys.stderr,
        )
        paths = gather(file, ids, home, n)
        write_whole_text(note, json.dumps([path.name for path in paths]))
    return parts_gathered([home / name for name in json.loads(note.read_text())], file.id, skip=skip)


def _job(predictor: Predictor, data: Path, rows_per_part: int) -> dict[str, Any]:
    """What tells a job from others: parts of two jobs do not belong together."""
    state = data.stat()
    return {
        "data": str(data.resolve()),
        "size": state.st_size,
        "changed": state.st_mtime_ns,
        "model": _digest(predictor.tasks),
        "answer": predictor.answer,
        "at": predictor.at,
        **({} if predictor.until is None else {"until": str(predictor.until)}),
        "settings": to_dict(predictor.config),
        "rows_per_part": rows_per_part,
    }


def _digest(tasks: Sequence[Task]) -> str:
    digest = hashlib.sha256()
    for name, tensor in (item for task in tasks for item in task.state_dict().items()):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(tensor.detach().cpu().float().numpy()).data)
    return digest.hexdigest()[:16]


def _begin(folder: Path, job: dict[str, Any], *, resume: bool) -> None:
    """The folder of parts, with the job that they are of."""
    place = folder / JOB
    if resume and place.exists():
        before = json.loads(place.read_text(encoding="utf-8"))
        lacking = {name: None for name in LATER if name in job["settings"]}
        before["settings"] = {**lacking, **before["settings"]}
        free = ("settings.device", "settings.tokens_per_batch")  # they change no answer
        if changed := [name for name in differences(before, json.loads(json.dumps(job))) if name not in free]:
            raise ValueError(
                f"{folder} is of another job ({', '.join(changed)} differ); give the same table, model and "
                "settings, or begin anew with --force (force=True)"
            )
        return
    folder.mkdir(parents=True, exist_ok=True)
    write_whole_text(place, json.dumps(job, indent=1) + "\n")


def _in_order(table: "pd.DataFrame", ids: Sequence[Any], id: str) -> "pd.DataFrame":
    """Rows in the order of ids, those of one id as they are."""
    place = {str(name): i for i, name in enumerate(ids)}
    order = np.argsort([place[str(name)] for name in table[id].tolist()], kind="stable")
    return table.iloc[order].reset_index(drop=True)


def _put_together(paths: Sequence[Path], out: Path) -> tuple[int, list[str]]:
    """Write the rows of all parts to one file; how many they are, and their columns."""
    found: list[Any] = []
    if paths[0].suffix == ".parquet":
        write_whole(out, lambda to: found.append(_joined_parquet(paths, to)))
    else:
        write_whole(out, lambda to: found.append(_joined_csv(paths, to, compressed=out.suffix == ".gz")))
    return found[0]


def _joined_parquet(paths: Sequence[Path], to: Path) -> tuple[int, list[str]]:
    from pyarrow import parquet

    schema, n = parquet.read_schema(paths[0]), 0
    with parquet.ParquetWriter(to, schema) as writer:
        for path in paths:
            table = parquet.read_table(path).cast(schema)
            writer.write_table(table)
            n += len(table)
    return n, list(schema.names)


def _joined_csv(paths: Sequence[Path], to: Path, *, compressed: bool) -> tuple[int, list[str]]:
    import pandas as pd

    header, n = _header(paths[0]), 0
    with _opened(to, compressed=compressed) as written:
        written.write(header)
        for path in paths:
            with path.open("rb") as part:
                part.seek(len(header))
                shutil.copyfileobj(part, written, 1 << 20)
            n += len(pd.read_csv(path, usecols=[0]))
    return n, list(pd.read_csv(paths[0], nrows=0).columns)


def _header(path: Path) -> bytes:
    """The first line of a CSV file; a name may hold the end of one, between quotes."""
    header = b""
    with path.open("rb") as opened:
        for line in opened:
            header += line
            if header.count(b'"') % 2 == 0:
                return header
    return header


def _opened(path: Path, *, compressed: bool) -> Any:  # both write bytes
    return gzip.GzipFile(path, "wb", mtime=0) if compressed else path.open("wb")


@contextmanager
def _one_warning_of_each() -> Iterator[None]:
    """Warnings that parts repeat with other numbers are told once, when all is done."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    told: dict[str, list[str]] = {}
    for one in caught:
        text = str(one.message)
        told.setdefault("".join(character for character in text if not character.isdigit())[:40], []).append(text)
    for texts in told.values():
        more = f" (and the like in {len(texts) - 1} more parts)" if len(texts) > 1 else ""
        warnings.warn(f"{texts[0]}{more}", stacklevel=3)


class _Rows:
    """How many rows are answered: a bar on a terminal, and lines elsewhere, with the time that is left."""

    def __init__(self, title: str, n_rows: int, done: Sequence[_Answered], quiet: bool) -> None:
        self.title, self.n_rows, self.quiet = title, n_rows, quiet
        self.first = self.n = done[-1].stop if done else 0
        self.began = time.monotonic()
        self.due = self.began + FIRST_LINE
        self.bar: Any = None

    def __enter__(self) -> "_Rows":
        if not self.quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress

            self.bar = Progress(console=Console(stderr=True), transient=True)
            self.bar.add_task(self.title, total=self.n_rows, completed=self.n)
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def advance(self, n: int) -> None:
        """So many rows more."""
        self.n += n
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], completed=self.n)
        elif not self.quiet and (time.monotonic() >= self.due or self.n == self.n_rows):
            seconds = time.monotonic() - self.began
            rate = (self.n - self.first) / max(seconds, 1e-9)
            left = in_words((self.n_rows - self.n) / max(rate, 1e-9))
            print(
                f"{self.title}: {self.n:,} of {self.n_rows:,} rows, {rate:,.0f} rows/s, about {left} left",
                file=sys.stderr,
                flush=True,
            )
            self.due = time.monotonic() + NEXT_LINES

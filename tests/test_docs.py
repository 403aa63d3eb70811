"""The documentation is true: its examples run, print what they say, and its sentences are those that people read.

Python blocks of a file run in order in one namespace, in an empty folder; a block after
`<!-- not run: reason -->` is skipped. A comment `# -> text` after a print, on its line or alone on the next, is what
the print must say.
"""

import contextlib
import io
import os
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np
import pandas as pd
import pytest

import romae
from romae.experiments.datasets import find, plasticc

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "docs" / "data.md"
PAGES = [page for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))) if page.exists()]
BLOCK = re.compile(
    r"(?P<skip><!-- not run: \S[^>]*-->\n)?^```python\n(?P<code>.*?)^```$(?:\n\n^```text\n(?P<shown>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
NUMBER = re.compile(r"\d+(?:\.\d+)?")
PROMISE = re.compile(r"# -> (.*)$", re.MULTILINE)


class Block(NamedTuple):
    """A block of Python, after as many empty lines as stand before it in its file, so that errors name the line.

    `shown` is what a block of text right behind it says that it prints.
    """

    code: str
    is_run: bool
    shown: str | None = None


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block("\n" * text[: found.start("code")].count("\n") + found["code"], found["skip"] is None, found["shown"])
        for found in BLOCK.finditer(text)
    ]


FIRST_CODE = ("README.md", "index.md")


def require_alike(printed: str, shown: str) -> None:
    """The same words, and numbers that differ by little, as they do from machine to machine."""
    assert NUMBER.sub("#", printed).split() == NUMBER.sub("#", shown).split()
    pairs = zip(NUMBER.findall(printed), NUMBER.findall(shown), strict=True)
    for number, promised in pairs:
        n_decimals = len(promised.partition(".")[2])
        assert float(number) == pytest.approx(float(promised), rel=0.15, abs=2 * 10.0**-n_decimals), (printed, shown)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_examples_run_and_print_what_they_say(page, tmp_path, monkeypatch, without_shape_checks):
    for module in ("PIL", "soundfile", "onnxruntime", "onnxscript"):
        pytest.importorskip(module, reason="the examples need pip install 'romae[audio,export,images]'")
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    with mock.patch.dict(os.environ):
        for block in blocks(page):
            program = compile(block.code, str(page), "exec")  # a block that is not run is still Python
            if not block.is_run:
                continue
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(program, namespace)
            if block.shown is not None:
                require_alike(printed.getvalue(), block.shown)
            if page.name in FIRST_CODE and (errors := re.findall(r"(?:error|RMSE) (\S+)", printed.getvalue())):
                ours, linear = map(float, errors)
                assert ours < linear / 2, "the first code that people run wins by a clear margin"
            if promises := PROMISE.findall(block.code):
                assert printed.getvalue().splitlines() == promises


def test_every_block_is_found():
    for page in PAGES:
        assert len(blocks(page)) == len(re.findall(r"^```python$", page.read_text(encoding="utf-8"), re.MULTILINE))


def test_every_public_name_for_data_is_explained():
    text = DATA.read_text(encoding="utf-8")
    names = [
        name for name in romae.__all__ if getattr(getattr(romae, name), "__module__", "").startswith("romae.data.")
    ]
    assert "from_table" in names and not [name for name in names if not re.search(rf"\b{name}\b", text)]


POINTS = pd.DataFrame(
    {
        "object": ["a", "a", "b"],
        "time": [0.0, 1.5, -3.0],
        "band": ["g", "r", "g"],
        "flux": [1.0, 2.0, 3.0],
        "kind": ["Ia", "Ia", "II"],
    }
)


def read(table: pd.DataFrame = POINTS, **changes: object) -> romae.SampleSet:
    return romae.from_table(table, **{"id": "object", "time": "time", "values": "flux", "label": "kind"} | changes)


def changed(column: str, *entries: object) -> pd.DataFrame:
    return POINTS.assign(**{column: pd.Series(entries, dtype=object).infer_objects()})


def damaged(write: Callable[[], object], path: str, n_bytes: int) -> str:
    """The path of a file that was written whole and has lost its end."""
    write()
    whole = Path(path).read_bytes()
    Path(path).write_bytes(whole[:n_bytes])
    return path


def sound(path: str) -> str:
    import soundfile

    soundfile.write(path, np.zeros(4000), 8000)
    return path


def picture(path: str) -> str:
    from PIL import Image

    Image.new("RGB", (64, 64)).save(path)
    return path


def new_band() -> None:
    known = read(POINTS[POINTS["band"] == "g"], channel="band", channels=["g", "r"])
    romae.fit_scaling(known).apply(read(channel="band")[0])


def small_store() -> romae.Store:
    return romae.write_store(read(), "curves.arrow")


MISTAKES: dict[str, Callable[[], object]] = {
    "a column that is not there": lambda: read(id="star"),
    "text among the numbers": lambda: read(changed("flux", 1.0, "bad", 3.0)),
    "dates that are text": lambda: read(changed("time", "2024-03-01", "2024-03-02", "2024-03-03")),
    "an infinite time": lambda: read(changed("time", 0.0, np.inf, 1.0)),
    "a sample without a whole row": lambda: read(changed("flux", 1.0, 2.0, np.nan)),
    "labels missing in part": lambda: read(changed("kind", "Ia", "Ia", None)),
    "two labels for one sample": lambda: read(changed("kind", "Ia", "II", "II")),
    "a class unknown at prediction": lambda: romae.from_table_like(changed("kind", "Ib", "Ib", "II"), read().schema),
    "a Parquet file cut short": lambda: read(
        damaged(lambda: POINTS.to_parquet("points.parquet"), "points.parquet", 200)
    ),
    "a step with gaps": lambda: romae.from_arrays([[[1.0, np.nan], [2.0, 3.0]]]),
    "a sample of gaps alone": lambda: romae.from_arrays(np.full((1, 2, 1), np.nan)),
    "one channel without its dimension": lambda: romae.from_arrays(np.ones((2, 3))),
    "labels for some samples": lambda: romae.from_arrays(np.ones((2, 3, 1)), y=["up"]),
    "an image smaller than a patch": lambda: romae.from_image(np.zeros((8, 8)), (16, 16)),
    "a patch that does not divide the image": lambda: romae.from_image(np.zeros((60, 60)), (16, 16)),
    "a damaged image": lambda: romae.from_image(damaged(lambda: picture("photo.jpg"), "photo.jpg", 300), (16, 16)),
    "a sound cut short": lambda: romae.from_audio(damaged(lambda: sound("clip.wav"), "clip.wav", 3000)),
    "a wrong sample rate": lambda: romae.from_audio(sound("clip.wav"), 16000),
    "an array of sound without a rate": lambda: romae.from_audio(np.zeros(16000)),
    "a channel that was never trained on": new_band,
    "logits for probabilities": lambda: romae.to_sample_table(read(), [[3.0, -1.0], [0.5, 0.5]]),
    "a damaged store": lambda: romae.Store(damaged(small_store, "curves.arrow", 500)),
    "a budget below the longest sample": lambda: romae.Loader(small_store(), tokens_per_batch=1),
    "a data set that is not there": lambda: plasticc.load(folder=Path("data/plasticc")),
    "a misspelt data set": lambda: find("plastic"),
}


def table_of_errors() -> dict[str, str]:
    section = DATA.read_text(encoding="utf-8").split("## What errors look like")[1].split("\n## ")[0]
    return dict(re.findall(r"^\| ([^|`]+) \| `(.*)` \|$", section, re.MULTILINE))


def test_the_table_of_errors_holds_every_mistake():
    assert list(table_of_errors()) == list(MISTAKES)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_gives_the_sentence_in_the_table(mistake, tmp_path, monkeypatch, without_shape_checks):
    """In the table an ellipsis at the end stands for what another library says."""
    for module in ("PIL", "soundfile"):
        pytest.importorskip(module, reason="the examples need pip install 'romae[audio,images]'")
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ValueError, TypeError)) as caught:
        MISTAKES[mistake]()
    start, *rest = table_of_errors()[mistake].split("…")
    assert str(caught.value).startswith(start) if rest else str(caught.value) == start


def test_the_warning_about_dropped_rows_is_the_one_in_the_docs():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        read(changed("flux", 1.0, np.nan, 3.0))
    assert f"`{caught[0].message}`" in DATA.read_text(encoding="utf-8")

"""Benchmarks: figures that anyone can have again on their own machine, as JSON and as a picture.

Every section is a function that returns a dictionary; `run` puts what it measured into one file per device, where it
replaces what was measured before, and draws it.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from romae.benchmark.answers import answers
from romae.benchmark.attached import attached
from romae.benchmark.attention import attention
from romae.benchmark.lengths import lengths
from romae.benchmark.loading import loading
from romae.benchmark.picture import write_picture
from romae.benchmark.positions import positions
from romae.benchmark.steps import steps
from romae.benchmark.streaming import streaming
from romae.benchmark.timing import machine
from romae.config import parsed_json
from romae.files import require_free, require_writable, write_whole_text

SECTIONS: dict[str, Callable[..., dict[str, Any]]] = {
    "steps": steps,
    "attached": attached,
    "positions": positions,
    "lengths": lengths,
    "attention": attention,
    "loading": loading,
    "answers": answers,
    "streaming": streaming,
}


def run(
    names: Sequence[str], folder: str | Path, *, force: bool = False, n_rows: int | None = None
) -> tuple[Path, dict[str, Any]]:
    """Measure these sections, one after the other, and write each as soon as it is done.

    With `n_rows`, `streaming` takes a table of that length, whose figures stand beside those of the usual one. Figures
    of before stay; files that are no benchmark are only overwritten by `force`.
    """
    unknown = [name for name in names if name not in SECTIONS]
    if unknown:
        raise ValueError(f"there is no benchmark {unknown[0]!r}; there are {', '.join(SECTIONS)}")
    require_writable(folder)
    here = machine()
    path = Path(folder) / f"{here['device'].lower().replace(' ', '-')}.json"
    previous, measured = _previous_sections(path, force), {}
    require_free(path.with_suffix(".svg"), force=force, is_ours=lambda picture: path.is_file())
    for name in names:
        if name == "streaming" and n_rows is not None:
            measured[f"{name} of {n_rows} rows"] = streaming(n_rows=n_rows) | {"machine": here}
        else:
            measured[name] = SECTIONS[name]() | {"machine": here}
        write_whole_text(path, json.dumps(previous | measured, indent=1) + "\n")
        write_picture(previous | measured, path.with_suffix(".svg"))
    return path, measured


def _previous_sections(path: Path, force: bool) -> dict[str, Any]:
    """What was measured before on this device; looked at first, so that nothing is measured in vain."""
    try:
        previous = parsed_json(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except ValueError:
        previous = None
    if not isinstance(previous, dict) or not all(isinstance(x, dict) and "machine" in x for x in previous.values()):
        if force:
            return {}
        raise ValueError(
            f"{path} is torn or no benchmark; remove it, name another folder with --out, or overwrite it with --force"
        )
    return previous

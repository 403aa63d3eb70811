"""Files written whole or not at all, and folders looked at before the work begins."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path


def require_writable(folder: str | Path) -> None:
    """Refuse a folder that could not be written to when the work is done; none is made here."""
    place = Path(folder).absolute()
    while not place.exists():
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        raise ValueError(f"cannot write to {folder}: {place} is not a folder that may be written to; choose another")


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let a function write a file under another name, then put it in its place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    os.close(handle)
    try:
        write(Path(name))
        os.chmod(name, 0o644)
        os.replace(name, path)
    finally:
        Path(name).unlink(missing_ok=True)


def write_whole_text(path: Path, text: str) -> None:
    """Put a text in its place, in UTF-8."""
    write_whole(path, lambda to: to.write_text(text, encoding="utf-8"))

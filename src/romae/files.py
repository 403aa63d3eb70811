"""Files written whole or not at all, folders looked at before the work begins, and the user's cache folder."""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path


def cache_folder() -> Path:
    """The folder `romae` among the user's caches."""
    if cache := os.environ.get("XDG_CACHE_HOME" if os.name == "posix" else "LOCALAPPDATA"):
        return Path(cache) / "romae"
    return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "romae"


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


def write_whole_folder(folder: Path, write: Callable[[Path], object]) -> None:
    """Let a function fill a folder under another name, then put it in its place, also of a folder that is there.

    A crash leaves the old one, the new one, or the old one set aside.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    written = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        write(written)
        for path in (written, *written.rglob("*")):
            os.chmod(path, 0o755 if path.is_dir() else 0o644)
            if path.is_file():
                with path.open("rb+") as opened:  # Windows flushes no file that is only read
                    os.fsync(opened.fileno())
        _swap(written, folder)
    finally:
        shutil.rmtree(written, ignore_errors=True)


def _swap(written: Path, folder: Path) -> None:
    if not folder.exists():
        os.replace(written, folder)
        return
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-old-", dir=folder.parent))
    aside.rmdir()  # only its name was wanted; Windows replaces no folder
    os.replace(folder, aside)
    try:
        os.replace(written, folder)
    except BaseException:
        os.replace(aside, folder)
        raise
    shutil.rmtree(aside)


def write_whole_text(path: Path, text: str) -> None:
    """Put a text in its place, in UTF-8."""
    write_whole(path, lambda to: to.write_text(text, encoding="utf-8"))

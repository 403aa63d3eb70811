"""Files written whole or not at all, folders looked at before the work begins, and the user's cache folder."""

import os
import secrets
import shutil
import stat
import sys
from collections.abc import Callable, Iterable
from pathlib import Path


def cache_folder() -> Path:
    """The folder `romae` among the user's caches."""
    if cache := os.environ.get("XDG_CACHE_HOME" if os.name == "posix" else "LOCALAPPDATA"):
        return Path(cache) / "romae"
    return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "romae"


def readable_path(path: str | Path) -> Path:
    """A path that the system can look up, whether there is something or not; others are refused."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        pass
    except (OSError, ValueError) as error:  # too long, or with a character that no name has
        reason = getattr(error, "strerror", None) or error
        raise ValueError(f"{str(path)[:200]!r} is no name of a file: {reason}") from None
    return Path(path)


def require_writable(folder: str | Path) -> None:
    """Refuse a folder that could not be written to when the work is done; none is made here."""
    place = Path(folder).absolute()
    while not place.exists():
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        raise ValueError(f"cannot write to {folder}: {place} is not a folder that may be written to; choose another")


def require_free(
    path: str | Path,
    *,
    force: bool = False,
    inputs: Iterable[str | Path | None] = (),
    is_ours: Callable[[Path], bool] = lambda path: False,
) -> None:
    """Refuse to write over what the user has: a file that is there, unless it `is_ours` or `force` is set.

    What the work reads is never written over, `force` or not.
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"cannot write {path}: it is a folder; name a file in it")
    for source in inputs:
        if source is not None and _is_same(path, Path(source)):
            raise ValueError(f"{path} is read here, and writing the output to it would destroy it; name another file")
    if path.exists() and not force and not is_ours(path):
        raise ValueError(
            f"{path} is there already, and it cannot be told that this command wrote it; name another file, or let it "
            "be overwritten with --force (force=True)"
        )
    require_writable(path.parent)


def _is_same(path: Path, other: Path) -> bool:
    """Whether two paths are one file, by links or by a file system that does not tell cases apart as well."""
    if path.exists() and other.exists():
        return os.path.samefile(path, other)
    return path.resolve() == other.resolve()


def new_file_beside(path: Path) -> Path:
    """An empty file of a name of its own in the folder of a path, with the rights that the umask leaves."""
    return _created(path, lambda name: name.touch(exist_ok=False))


def new_folder_beside(path: Path) -> Path:
    """An empty folder of a name of its own in the folder of a path, with the rights that the umask leaves."""
    return _created(path, lambda name: name.mkdir())


def _created(path: Path, create: Callable[[Path], object]) -> Path:
    # Not by `tempfile`, whose files are for their owner alone and would have to be given rights afterwards: a process
    # cannot read its umask without changing it for all of its threads, and the kernel applies it to what is created.
    while True:
        name = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
        try:
            create(name)
        except FileExistsError:
            continue
        return name


def _rights(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let a function write a file under another name, then put it in its place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = new_file_beside(path)
    rights = _rights(written)
    try:
        write(written)
        os.chmod(written, rights)  # what is written may be another file, which safetensors keeps to its owner
        os.replace(written, path)
    finally:
        written.unlink(missing_ok=True)


def write_whole_folder(folder: Path, write: Callable[[Path], object]) -> None:
    """Let a function fill a folder under another name, then put it in its place, also of a folder that is there.

    A crash leaves the old one, the new one, or the old one set aside.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    written = new_folder_beside(folder)
    try:
        probe = new_file_beside(written / "file")
        rights = _rights(probe)
        probe.unlink()
        write(written)
        for path in written.rglob("*"):
            if path.is_file():
                os.chmod(path, rights)
                with path.open("rb+") as opened:  # Windows flushes no file that is only read
                    os.fsync(opened.fileno())
        _swap(written, folder)
    finally:
        shutil.rmtree(written, ignore_errors=True)


def _swap(written: Path, folder: Path) -> None:
    if not folder.exists():
        os.replace(written, folder)
        return
    aside = new_folder_beside(folder.with_name(f"{folder.name}-old"))
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

"""Where data sets live on disk, how they get there, and how archives are read and unpacked."""

import contextlib
import gzip
import hashlib
import lzma
import os
import shutil
import stat
import struct
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from io import FileIO
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, Any

from romae.extras import require_extra

TIMEOUT_S = 60
CHUNK = 1 << 16  # bytes; as many at most are lost where a connection breaks
BLOCK = 1 << 20
# What a file may unpack to. Those of the data sets here unpack to 2 to 5 times their size; one that was made to fill
# the memory of whoever opens it, to a thousand times.
EXPANSION = 30
SMALL = 1 << 26  # bytes, which may come of any file


class MissingFile(ValueError, FileNotFoundError):
    """A file that a data set needs is not there; the message says which one to put where."""


def data_root() -> Path:
    """The folder that holds one folder per data set: ROMAE_DATA, or `romae` in the user's cache folder."""
    if chosen := os.environ.get("ROMAE_DATA"):
        return Path(chosen).expanduser().absolute()
    if cache := os.environ.get("XDG_CACHE_HOME" if os.name == "posix" else "LOCALAPPDATA"):
        return Path(cache) / "romae"
    return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "romae"


def is_filled(path: Path) -> bool:
    """Whether this is a file, or a folder that is not empty."""
    return path.is_file() or (path.is_dir() and any(path.iterdir()))


def download(
    url: str,
    target: Path,
    size: int | None = None,
    sha256: str | None = None,
    report: Callable[[int, int | None], None] | None = None,
) -> Path:
    """Download a file, or do nothing if it is there already.

    The bytes go to `<name>.part`, which a later call resumes; only a file of the right size and checksum gets the
    final name. `report` is called with the bytes so far and the bytes in all, where the server tells them.
    """
    target = Path(target)
    if target.exists():
        verify_file(target, size, sha256)
        return target
    require_extra("experiments", "downloading data sets needs", "pooch")
    from pooch import HTTPDownloader
    from requests import RequestException

    part = _Part(target, report)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        headers = {"User-Agent": "romae", "Accept-Encoding": "identity"} | part.rest(is_verified=sha256 is not None)
        fetch = HTTPDownloader(headers=headers, hooks={"response": part.begin}, timeout=TIMEOUT_S, chunk_size=CHUNK)
        with contextlib.closing(part):
            fetch(url, part, None)
    except RequestException as error:
        if error.response is not None and error.response.status_code == 416:  # the part is longer than the file
            part.path.unlink()
            return download(url, target, size, sha256, report)
        raise ValueError(
            f"cannot download {url} ({part.reason(error)}); run the command again to resume, or fetch the file by "
            f"other means and put it at {target}"
        ) from None
    except OSError as error:
        raise ValueError(f"cannot write {part.path}: {error.strerror or error}") from None
    try:
        verify_file(part.path, size, sha256)
    except ValueError as error:
        part.path.unlink()
        raise ValueError(f"the file at {url} is not the one expected, and was not kept: {error}") from None
    finally:
        part.tag.unlink(missing_ok=True)
    os.replace(part.path, target)
    return target


class _Part:
    """The file that pooch downloads to, with the version of the server's file beside it, for a later call to go on."""

    def __init__(self, target: Path, report: Callable[[int, int | None], None] | None) -> None:
        self.path, self.tag = (target.with_name(target.name + end) for end in (".part", ".part.tag"))
        self.report = report
        self.file: IO[bytes] | None = None
        self.n_bytes = 0
        self.n_total: int | None = None

    def rest(self, *, is_verified: bool) -> dict[str, str]:
        """Headers that ask for what is missing, where it is known to be of the same file or will be found out."""
        n_bytes = self.path.stat().st_size if self.path.exists() else 0
        version = self.tag.read_text() if self.tag.exists() else ""
        if not n_bytes or not (version or is_verified):
            return {}
        return {"Range": f"bytes={n_bytes}-"} | ({"If-Range": version} if version else {})

    def begin(self, response: Any, **_: Any) -> None:
        """Called with each answer of the server: what is no redirection and no error begins or continues the file."""
        if response.status_code not in (200, 206):
            return
        self.file = open(self.path, "ab" if response.status_code == 206 else "wb")
        self.n_bytes = self.file.tell()
        length = response.headers.get("Content-Length")
        self.n_total = self.n_bytes + int(length) if length else None
        etag = response.headers.get("ETag", "W/")
        is_strong = not etag.startswith("W/")  # a weak tag is no promise of the same bytes
        self.tag.write_text(etag if is_strong else response.headers.get("Last-Modified", ""))

    def write(self, block: bytes) -> None:
        assert self.file is not None
        self.file.write(block)
        self.n_bytes += len(block)
        if self.report is not None:
            self.report(self.n_bytes, self.n_total)

    def flush(self) -> None:
        """Called after each block; the system decides when they reach the disk."""

    def reason(self, error: Exception) -> str:
        if self.file is not None:
            return f"the connection broke off after {self.n_bytes} of {self.n_total or 'unknown'} bytes"
        response = getattr(error, "response", None)
        return str(error) if response is None else f"{response.status_code} {response.reason}"

    def close(self) -> None:
        if self.file is not None:
            self.file.close()


def verify_file(path: Path, size: int | None = None, sha256: str | None = None) -> None:
    """Compare a file with its known size and checksum."""
    n_bytes = path.stat().st_size
    if size is not None and n_bytes != size:
        raise ValueError(f"{path} has {n_bytes} bytes instead of {size}; remove it and download it again")
    if sha256 is None:
        return
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != sha256.lower():
        raise ValueError(f"{path} has sha256 {digest} instead of {sha256}; remove it and download it again")


def shortened(text: str, most: int = 80) -> str:
    """A text as messages show it: whole, or its first characters."""
    return text if len(text) <= most else f"{text[:most]}…"


class _Allowance:
    """The bytes that may come of a compressed file, and how many have."""

    def __init__(self, path: Path) -> None:
        self.path, self.n_packed = path, path.stat().st_size
        self.left = max(SMALL, EXPANSION * self.n_packed)

    def take(self, n_bytes: int) -> None:
        """Refuse the file once more has come of it than may."""
        self.left -= n_bytes
        if self.left < 0:
            raise ValueError(
                f"{self.path} unpacks to more than {EXPANSION} times its {self.n_packed} bytes, as no data set here "
                "does; download it again from its publisher, or unpack it yourself if you trust it"
            )


def require_bounded_zip(path: Path) -> None:
    """Refuse a zip archive, such as an .npz file, that says it unpacks to far more than data do."""
    allowance = _Allowance(path)
    with _archive_errors(path), zipfile.ZipFile(path) as file:
        for info in file.infolist():
            allowance.take(info.file_size)


class BoundedGzip(gzip.GzipFile):
    """A .gz file that is read up to where no data set would end."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "rb")
        self.allowance = _Allowance(path)

    def read(self, size: int | None = -1) -> bytes:
        return self._bounded(super().read, -1 if size is None else size)

    def read1(self, size: int = -1) -> bytes:
        return self._bounded(super().read1, size)

    def _bounded(self, read: Callable[[int], bytes], size: int) -> bytes:
        most = self.allowance.left - self.tell()
        content = read(most + 1 if size < 0 or size > most else size)
        if len(content) > most:
            self.allowance.take(self.allowance.left + 1)
        return content


@dataclass(frozen=True, slots=True)
class Member:
    """One file of an archive or a folder, named with forward slashes; an archive says how large it is."""

    source: Path
    name: str
    open: Callable[[], IO[bytes]]
    is_folder: bool = False
    problem: str = ""
    size: int | None = None

    def read(self) -> bytes:
        with _archive_errors(self.source), self.open() as file:
            if self.size is None:
                return file.read()
            content = file.read(self.size + 1)
        if len(content) > self.size:
            raise ValueError(f"{self.source} is corrupt: {self.name!r} is longer than its {self.size} bytes")
        return content


def members(source: Path) -> Iterator[Member]:
    """The files of a zip or tar archive, or of a folder and the folders in it; read each before the next."""
    if source.is_dir():
        for path in sorted(p for p in source.rglob("*") if p.is_file()):
            yield Member(source, path.relative_to(source).as_posix(), partial(FileIO, path))
        return
    for member in _entries(source):
        if not (member.is_folder or member.problem):
            yield member


def extract(archive: Path, folder: Path) -> Path:
    """Unpack a zip or tar archive into a folder: everything or nothing.

    An archive with a member outside the folder, a link or a device is refused, and nothing is overwritten.
    """
    archive, folder = Path(archive), Path(folder)
    tops = set()
    for member in _entries(archive):
        if member.problem:
            raise ValueError(f"{archive} is not safe to unpack: its member {member.name!r} {member.problem}")
        tops.add(member.name.split("/")[0])
    for top in sorted(tops):
        if (folder / top).exists():
            raise ValueError(f"{archive} would overwrite {folder / top}; move that away and unpack again")
    with _archive_errors(archive):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".unpacking-") as temporary:
            for member in _entries(archive):
                path = Path(temporary, member.name)
                (path if member.is_folder else path.parent).mkdir(parents=True, exist_ok=True)
                if not member.is_folder:
                    with member.open() as file, open(path, "wb") as copy:
                        shutil.copyfileobj(file, copy, BLOCK)
            for top in sorted(tops):
                os.replace(Path(temporary, top), folder / top)
    return folder


def _entries(archive: Path) -> Iterator[Member]:
    """Everything in an archive, with what speaks against unpacking it."""
    with _archive_errors(archive):
        allowance = _Allowance(archive)
        entries = _zip_entries(archive) if zipfile.is_zipfile(archive) else _tar_entries(archive, allowance)
        for name, open_member, entry_type, size in entries:
            allowance.take(size)
            path = PurePosixPath(name)
            is_outside = path.is_absolute() or ".." in path.parts or "\\" in name or PureWindowsPath(name).drive
            problem = "" if entry_type in ("file", "folder") else f"is a {entry_type}"
            problem = "lies outside the folder" if is_outside else problem
            if path.parts:  # not the folder itself
                yield Member(archive, str(path), open_member, entry_type == "folder", problem, size)


_Entry = tuple[str, Callable[[], IO[bytes]], str, int]  # name, how to open it, what it is, bytes


def _zip_entries(archive: Path) -> Iterator[_Entry]:
    with zipfile.ZipFile(archive) as file:
        for info in file.infolist():
            entry_type = "link" if stat.S_ISLNK(info.external_attr >> 16) else "folder" if info.is_dir() else "file"
            yield info.filename, partial(file.open, info), entry_type, info.file_size


def _tar_entries(archive: Path, allowance: _Allowance) -> Iterator[_Entry]:
    with tarfile.open(archive) as file:
        for info in file:
            is_link = info.issym() or info.islnk()
            entry_type = "link" if is_link else "folder" if info.isdir() else "file" if info.isfile() else "device"
            # None only for the others
            yield info.name, partial(file.extractfile, info), entry_type, info.size  # type: ignore[misc]
        while file.fileobj is not None and (block := file.fileobj.read(BLOCK)):
            allowance.take(len(block))  # the checksum of a compressed tar stands at its very end


@contextlib.contextmanager
def _archive_errors(archive: Path) -> Iterator[None]:
    """Turn what the archive modules raise on corrupt, truncated or locked files into one sentence."""
    try:
        yield
    except (
        zipfile.BadZipFile,
        tarfile.TarError,
        zlib.error,
        lzma.LZMAError,
        EOFError,
        struct.error,
        UnicodeError,  # names that are no text
        LookupError,
        OverflowError,
    ) as error:
        raise ValueError(f"{archive} is corrupt or not a zip or tar archive: {error}") from None
    except (OSError, RuntimeError) as error:  # no space, no permission; a password, an unknown compression
        raise ValueError(f"cannot read or unpack {archive}: {error}") from None

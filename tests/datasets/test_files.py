"""Downloads, archives and the catalogue: complete files or none, and sentences that say what to do."""

import gzip
import hashlib
import io
import os
import random
import stat
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from messages import refused
from romae.experiments.datasets import discover, find
from romae.experiments.datasets import files as module
from romae.experiments.datasets.catalogue import DataFile, DataSet
from romae.experiments.datasets.files import (
    BoundedGzip,
    MissingFile,
    data_root,
    download,
    extract,
    members,
    require_bounded_zip,
    verify_file,
)

CONTENT = random.Random(0).randbytes(300_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def server():
    """A server of one file that knows ranges. `breaks_at` cuts the first answers off; `ranges` keeps what was asked."""
    state = SimpleNamespace(content=CONTENT, etag='"one"', breaks_at=None, ranges=[], knows_ranges=True)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked = self.headers.get("Range")
            state.ranges.append(asked)
            if self.path == "/nothing":
                return self.send_error(404)
            start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and state.knows_ranges else 0
            if self.headers.get("If-Range", state.etag) != state.etag:
                start = 0
            if start >= len(state.content):
                return self.send_error(416)
            body = state.content[start:]
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(body)))
            if state.etag:
                self.send_header("ETag", state.etag)
            self.end_headers()
            self.wfile.write(body if state.breaks_at is None else body[: state.breaks_at])

        def log_message(self, *words):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        state.url = f"http://127.0.0.1:{httpd.server_port}/file.bin"
        yield state
        httpd.shutdown()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*"))


def test_the_data_root_is_the_variable_or_a_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("ROMAE_DATA", str(tmp_path))
    assert data_root() == tmp_path
    monkeypatch.delenv("ROMAE_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_root() == tmp_path / "cache" / "romae"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data_root().name == "romae" and data_root().is_absolute()


def test_a_download_is_complete_and_leaves_nothing_else(server, tmp_path):
    target, reports = tmp_path / "deep" / "file.bin", []
    download(server.url, target, len(CONTENT), SHA256, lambda n, total: reports.append((n, total)))
    assert target.read_bytes() == CONTENT and names(tmp_path) == ["deep", "file.bin"]
    assert reports[-1] == (len(CONTENT), len(CONTENT))
    download(server.url, target, len(CONTENT), SHA256)
    assert len(server.ranges) == 1, "a file that is there is not asked for again"


@pytest.mark.parametrize("sha256", [SHA256, None])
def test_a_broken_download_has_no_final_name_and_is_resumed(server, tmp_path, sha256):
    target, server.breaks_at = tmp_path / "file.bin", 100_000
    with refused(ValueError, "of 300000 bytes", "resume", "put it at"):
        download(server.url, target, sha256=sha256)
    n_bytes = (tmp_path / "file.bin.part").stat().st_size
    assert 0 < n_bytes <= 100_000
    assert names(tmp_path) == ["file.bin.part", "file.bin.part.tag"]
    server.breaks_at = None
    assert download(server.url, target, sha256=sha256).read_bytes() == CONTENT
    assert server.ranges == [None, f"bytes={n_bytes}-"] and names(tmp_path) == ["file.bin"]


def test_a_file_that_changed_meanwhile_is_fetched_from_the_start(server, tmp_path):
    server.breaks_at = 100_000
    with refused(ValueError, "broke off"):
        download(server.url, tmp_path / "file.bin")
    server.breaks_at, server.etag, server.content = None, '"two"', b"new" * 50_000
    assert download(server.url, tmp_path / "file.bin").read_bytes() == server.content


def test_without_a_version_or_checksum_nothing_is_resumed(server, tmp_path):
    server.breaks_at, server.etag = 100_000, ""
    with refused(ValueError, "broke off"):
        download(server.url, tmp_path / "file.bin")
    server.breaks_at, server.content = None, b"other" * 50_000
    assert download(server.url, tmp_path / "file.bin").read_bytes() == server.content
    assert server.ranges == [None, None]


def test_a_server_without_ranges_and_a_part_that_is_too_long_start_again(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(b"x" * 1000)
    server.knows_ranges = False
    assert download(server.url, tmp_path / "file.bin", sha256=SHA256).read_bytes() == CONTENT
    server.knows_ranges = True
    (tmp_path / "again.bin.part").write_bytes(b"x" * (len(CONTENT) + 5))
    assert download(server.url, tmp_path / "again.bin", sha256=SHA256).read_bytes() == CONTENT


@pytest.mark.parametrize("expected", [{"size": 5}, {"sha256": "0" * 64}])
def test_a_wrong_file_is_not_kept(server, tmp_path, expected):
    with refused(ValueError, "not kept"):
        download(server.url, tmp_path / "file.bin", **expected)
    assert names(tmp_path) == []


def test_a_file_in_place_that_is_wrong_is_reported_and_not_replaced(server, tmp_path):
    (tmp_path / "file.bin").write_bytes(b"mine")
    with refused(ValueError, "4 bytes", "300000", "remove it"):
        download(server.url, tmp_path / "file.bin", len(CONTENT), SHA256)
    assert (tmp_path / "file.bin").read_bytes() == b"mine" and server.ranges == []
    with refused(ValueError, "sha256", "instead of"):
        verify_file(tmp_path / "file.bin", 4, SHA256)


def test_without_a_network_the_message_says_which_file_to_put_where(server, tmp_path):
    with refused(ValueError, "http://127.0.0.1:9/x", "put it at", "x.zip"):
        download("http://127.0.0.1:9/x", tmp_path / "x.zip")
    with refused(ValueError, "Not Found", "put it at", "x.zip"):
        download(server.url.replace("file.bin", "nothing"), tmp_path / "x.zip")
    assert names(tmp_path) == []


def make_zip(path: Path, **contents: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in contents.items():
            archive.writestr(name, text)
    return path


def make_tar(path: Path, *infos: tarfile.TarInfo, **contents: str) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, text in contents.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
        for info in infos:
            archive.addfile(info)
    return path


GOOD = {"top/a.txt": "A", "top/deep/b.txt": "B", "c.txt": "C"}


@pytest.mark.parametrize("make, end", [(make_zip, "zip"), (make_tar, "tar.gz")])
def test_an_archive_is_unpacked_and_read_alike(tmp_path, make, end):
    archive = make(tmp_path / f"x.{end}", **GOOD)
    folder = extract(archive, tmp_path / "out")
    for source in (archive, folder):
        assert {member.name: member.read().decode() for member in members(source)} == GOOD
    assert names(folder) == ["a.txt", "b.txt", "c.txt", "deep", "top"]
    with refused(ValueError, "overwrite", "c.txt"):
        extract(archive, folder)


@pytest.mark.parametrize("make, end", [(make_zip, "zip"), (make_tar, "tar.gz")])
@pytest.mark.parametrize("name", ["../evil.txt", "/evil.txt", "a/../../evil.txt", "C:\\evil.txt", "..\\evil.txt"])
def test_a_member_outside_the_folder_is_refused(tmp_path, make, end, name):
    archive = make(tmp_path / f"x.{end}", **{"good.txt": "G", name: "E"})
    with refused(ValueError, "not safe", "evil.txt", "outside the folder"):
        extract(archive, tmp_path / "out")
    assert names(tmp_path) == [f"x.{end}"]
    assert [member.name for member in members(archive)] == ["good.txt"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_in_a_tar_are_refused(tmp_path, kind):
    info = tarfile.TarInfo("odd")
    info.type, info.linkname = kind, "/etc/passwd"
    with refused(ValueError, "'odd'", "a link" if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE) else "a device"):
        extract(make_tar(tmp_path / "x.tar.gz", info, **GOOD), tmp_path / "out")
    assert names(tmp_path) == ["x.tar.gz"]


def test_a_link_in_a_zip_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        info = zipfile.ZipInfo("odd")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "/etc/passwd")
    with refused(ValueError, "'odd'", "a link"):
        extract(tmp_path / "x.zip", tmp_path / "out")


@pytest.mark.parametrize("make, end", [(make_zip, "zip"), (make_tar, "tar.gz")])
@pytest.mark.parametrize("damage", ["cut", "flip", "text"])
def test_a_damaged_archive_gives_a_sentence_and_leaves_nothing(tmp_path, make, end, damage):
    archive = make(tmp_path / f"x.{end}", **{"a.txt": os.urandom(20_000).hex()})
    content = bytearray(archive.read_bytes())
    if damage == "cut":
        content = content[: len(content) // 2]
    elif damage == "flip":
        content[len(content) // 2] ^= 0xFF
    archive.write_bytes(b"not an archive" if damage == "text" else content)
    with refused(ValueError, f"x.{end}"):
        extract(archive, tmp_path / "out")
    assert [name for name in names(tmp_path) if name not in ("out", f"x.{end}")] == []
    with refused(ValueError, f"x.{end}"):
        [member.read() for member in members(archive)]


def example(server, folder: str = "example") -> DataSet:
    archive = DataFile(path="x.zip", url=server.url, unpacked="top", unpack=True)
    return DataSet(
        name="example",
        title="An example",
        files=(archive,),
        licence="none",
        citation="none",
        homepage=server.url,
        check=lambda path: (path / "top" / "a.txt").read_text(),
        folder=folder,
    )


def test_a_data_set_is_fetched_unpacked_and_checked(server, tmp_path, monkeypatch):
    monkeypatch.setenv("ROMAE_DATA", str(tmp_path))
    server.content = make_zip(tmp_path / "source.zip", **GOOD).read_bytes()
    dataset, seen = example(server), []
    assert not dataset.is_present() and dataset.missing() == list(dataset.files)
    with refused(MissingFile, "example", "download http", "example/x.zip"):
        dataset.verify()
    assert dataset.get(report=lambda name, n, total: seen.append((name, n, total))) == tmp_path / "example"
    assert dataset.verify() == "A" and dataset.is_present()
    assert seen[-1] == ("x.zip", len(server.content), len(server.content))
    dataset.get()
    assert len(server.ranges) == 1


def test_an_empty_folder_is_not_the_unpacked_data_set(tmp_path):
    dataset = find("uea/Example")
    (tmp_path / "Example").mkdir()
    assert dataset.missing(tmp_path) == list(dataset.files) and not dataset.is_present(tmp_path)
    (tmp_path / "Example" / "Example_TRAIN.ts").touch()
    assert dataset.missing(tmp_path) == [] and dataset.is_present(tmp_path)


@pytest.mark.parametrize("name", ["", ".", "../../zz/q", "/q", "a/b", "a\\b"])
def test_find_refuses_uea_names_that_lead_elsewhere(name):
    with refused(ValueError, "UEA archive"):
        find(f"uea/{name}")


def test_every_data_set_describes_itself():
    found = discover()
    assert {"uea/LSST", "physionet2012", "plasticc", "elasticc"} <= set(found)
    for name, dataset in found.items():
        assert dataset.name == name and dataset.title and dataset.licence and dataset.citation
        assert dataset.homepage.startswith("http")
        assert all(file.url.startswith("http") for file in dataset.files)


def test_find_knows_any_uea_name_and_suggests_near_ones():
    assert find("plasticc") is discover()["plasticc"]
    assert find("uea/PenDigits").files[0].path == "PenDigits.zip"
    with refused(ValueError, "'plastic'", "mean plasticc"):
        find("plastic")


def test_a_data_set_without_a_list_of_files_points_to_its_page(tmp_path):
    with refused(ValueError, "elasticc", "https://portal"):
        find("elasticc").get(tmp_path)


# Archives that unpack to far more than data do


@pytest.fixture
def bombs(tmp_path, monkeypatch) -> Path:
    """A zip, a tar and a .gz file of 200 kB of zeros each, where 10 kB may come of any file."""
    monkeypatch.setattr(module, "SMALL", 10_000)
    zeros = bytes(200_000)
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("small.txt", "a few words")
        archive.writestr("large.txt", zeros)
    with tarfile.open(tmp_path / "bomb.tar.gz", "w:gz") as archive:
        for i in range(40):  # of which each alone is small
            info = tarfile.TarInfo(f"{i}.txt")
            info.size = 5_000
            archive.addfile(info, io.BytesIO(zeros[:5_000]))
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(zeros))
    (tmp_path / "after.tar.gz").write_bytes(
        gzip.compress(bytes(1_000_000))
    )  # an archive that ends at once, and goes on
    return tmp_path


@pytest.mark.parametrize("name", ["bomb.zip", "bomb.tar.gz", "after.tar.gz"])
def test_an_archive_that_unpacks_to_far_more_than_data_do_is_refused(bombs, name):
    before = names(bombs)
    for use in (lambda: [member.read() for member in members(bombs / name)], lambda: extract(bombs / name, bombs)):
        with refused(ValueError, name, "30 times", "publisher"):
            use()
    assert names(bombs) == before


def test_a_compressed_file_is_read_up_to_a_bound(bombs, monkeypatch):
    for read in (lambda file: file.read(), lambda file: file.read(10**9), lambda file: [*iter(file.read1, b"")]):
        with BoundedGzip(bombs / "bomb.gz") as file, refused(ValueError, "bomb.gz", "30 times"):
            read(file)
    with refused(ValueError, "bomb.zip", "30 times"):
        require_bounded_zip(bombs / "bomb.zip")
    monkeypatch.setattr(module, "SMALL", 200_000)
    with BoundedGzip(bombs / "bomb.gz") as file:
        assert file.read() == bytes(200_000)


def test_flipped_bits_in_the_names_of_an_archive_get_a_sentence(tmp_path):
    """The flag that names are UTF-8, their lengths, and their letters, in both places where a zip file has them."""
    with zipfile.ZipFile(tmp_path / "whole.zip", "w") as archive:
        archive.writestr("records/é.txt", "a few words")
    whole, random_bits = (tmp_path / "whole.zip").read_bytes(), random.Random(0)
    directory = whole.index(b"PK\x01\x02")
    for place in [*range(44), *range(directory, len(whole))]:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << random_bits.randrange(8)
        (tmp_path / "a.zip").write_bytes(damaged)
        try:
            contents = {member.read() for member in members(tmp_path / "a.zip")}
        except ValueError as error:
            assert type(error) is ValueError and "a.zip" in str(error)
        else:
            assert contents <= {b"a few words"}

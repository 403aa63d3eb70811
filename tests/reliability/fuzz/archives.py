"""Archives: zip and tar files that were damaged, lead out of their folder, or hold far more than they weigh.

The oracle: what comes out of an archive is what was packed, byte by byte, nothing lies outside the folder, and a
refused archive leaves nothing behind.
"""

import io
import os
import struct
import tarfile
import zipfile
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import romae
from fuzz import hostile
from fuzz.commands import run_command
from fuzz.files import OUTCOMES, RECORDS, TS
from fuzz.judging import Trial, answered, require
from romae.experiments.datasets import physionet2012, uea
from romae.experiments.datasets.files import extract, members

CONTENT = {"Toy/Toy_TRAIN.ts": TS.encode(), "Toy/Toy_TEST.ts": TS.encode() + b"\n", "Toy/readme.txt": b"hello " * 300}
KINDS = ("zip", "stored", "tar", "tar.gz", "tar.bz2", "tar.xz")
BOMB = 3 << 29  # bytes: half a gibibyte more than an input may take


def attempt(trial: Trial) -> None:
    trial.choose([_unpack, _unpack, _unpack, _names, _names, _uea, _uea, _records, _bomb])(trial)


def packed(content: dict[str, bytes], kind: str) -> bytes:
    """An archive with these members."""
    written = io.BytesIO()
    if kind in ("zip", "stored"):
        with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED if kind == "zip" else zipfile.ZIP_STORED) as file:
            for name, data in content.items():
                file.writestr(zipfile.ZipInfo(name), data, file.compression)
    else:
        mode: Any = "w:" + kind.partition(".")[2]
        with tarfile.open(fileobj=written, mode=mode) as archive:
            for name, data in content.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    return written.getvalue()


@cache
def _sound(kind: str) -> bytes:
    return packed(CONTENT, kind)


def _unpack(trial: Trial) -> None:
    kind = trial.choose(KINDS)
    trial.note(kind)
    trial.is_sound = trial.chance(0.1)
    archive = trial.folder / f"toy.{kind}"
    content = _sound(kind)
    archive.write_bytes(content if trial.is_sound else hostile.damaged(trial, content))
    # Of a tar without compression nobody can tell that a byte has changed: what it says is what it holds.
    holds_digests = kind not in ("tar",)
    if trial.chance(0.5):
        found = {member.name: member.read() for member in members(archive)}
        with answered("the members of an archive"):
            _right(found, holds_digests)
    else:
        _extracted(trial, archive, holds_digests)


def _extracted(trial: Trial, archive: Path, holds_digests: bool) -> None:
    before = archive.read_bytes()
    target = trial.folder / "in" / "out"
    try:
        extract(archive, target)
    except Exception:
        with answered("a refused archive"):
            left = [path.name for path in target.rglob("*")] if target.exists() else []
            require(not left, "a refused archive left files behind")
            _nothing_outside(trial, archive)
        raise
    with answered("an archive that was unpacked"):
        require(archive.read_bytes() == before, "the archive was changed")
        _nothing_outside(trial, archive)
        found = {path.relative_to(target).as_posix(): path.read_bytes() for path in target.rglob("*") if path.is_file()}
        _right(found, holds_digests)


def _nothing_outside(trial: Trial, archive: Path) -> None:
    names = {path.name for path in trial.folder.iterdir()} | {
        f"in/{path.name}" for path in (trial.folder / "in").glob("*")
    }
    require(names <= {archive.name, "in", "in/out"}, "something lies outside the folder")


def _right(found: dict[str, bytes], holds_digests: bool) -> None:
    if holds_digests:
        known = set(CONTENT.values())
        require(all(data in known for data in found.values()), "a member with another content")


def _names(trial: Trial) -> None:
    """Members with names that lead elsewhere, links and devices."""
    kind = trial.choose(["zip", "tar"])
    odd = [
        *(
            "../x",
            "/etc/x",
            "a/../../x",
            "C:\\x",
            "..\\x",
            "\\\\server\\x",
            "a\0b",
            "",
            ".",
            "a/./b",
            "a//b",
            "./a",
            "a" * 300,
        ),
        *("con", "a/", "é\udcff", "Toy", "a\nb", " ", "~/x", "-rf", "..", "a/..", "Toy/Toy_TRAIN.ts"),
    ]
    name = trial.choose(odd)
    trial.note(kind, name[:40])
    archive = trial.folder / f"toy.{kind}"
    written = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(written, "w") as file:
            file.writestr("Toy/Toy_TRAIN.ts", TS)
            info = zipfile.ZipInfo("x")
            info.filename = name.encode("utf-8", "replace").decode()
            if trial.chance(0.3):
                info.external_attr = 0o120777 << 16  # a link
            file.writestr(info, TS)
    else:
        with tarfile.open(fileobj=written, mode="w") as archive_file:
            info_tar = tarfile.TarInfo(name)
            info_tar.type = trial.choose(
                [tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE]
            )
            info_tar.linkname = trial.choose(["/etc/passwd", "../..", "Toy"])
            info_tar.size = len(TS) if info_tar.type == tarfile.REGTYPE else 0
            archive_file.addfile(info_tar, io.BytesIO(TS.encode()))
    archive.write_bytes(written.getvalue())
    _extracted(trial, archive, holds_digests=True)


def _uea(trial: Trial) -> None:
    """A set of the UEA archive in a zip file, by the function and by the command line."""
    trial.is_sound = trial.chance(0.1)
    home = trial.folder / "uea"
    home.mkdir()
    content = dict(CONTENT)
    if trial.chance(0.3) and not trial.is_sound:
        dropped = trial.choose(sorted(content))
        trial.note(f"without {dropped}")
        del content[dropped]
    archive = packed(content, "zip")
    (home / "Toy.zip").write_bytes(archive if trial.is_sound else hostile.damaged(trial, archive))
    if trial.chance(0.5):
        os.environ["ROMAE_DATA"] = str(trial.folder)
        ended = run_command(trial, ["data", "check", "uea/Toy", *(["--json"] if trial.chance(0.3) else [])])
        require(ended.code == 0 or not trial.is_sound, "refused a sound archive")
        require(ended.code == 2 or "3 cases to train and 3 to test" in ended.out, "other counts")
        return
    read = uea.load("Toy", "train", folder=home)
    with answered("a set of the UEA archive"):
        expected = uea.parse(TS).samples
        require(len(read.samples) == len(expected), "another number of cases")
        for a, b in zip(read.samples, expected, strict=True):
            require(bool((a.values == b.values).all()) and a.target == b.target, "another case")


def _records(trial: Trial) -> None:
    trial.is_sound = trial.chance(0.1)
    content = {f"set-a/{record}.txt": text.encode() for record, text in RECORDS.items()}
    archive = packed(content, "tar.gz")
    (trial.folder / "set-a.tar.gz").write_bytes(archive if trial.is_sound else hostile.damaged(trial, archive))
    (trial.folder / "Outcomes-a.txt").write_text(OUTCOMES)
    stays = physionet2012.load("a", folder=trial.folder)
    with answered("the records of PhysioNet"):
        require(stays.record_ids.tolist() == sorted(RECORDS), "other records")
        require(stays.values.tolist() == [54.0, 75.0, 35.6, 76.0, 7.45, 80.0], "other values")


# Archives that hold far more than they weigh


@cache
def _zeros(n_bytes: int) -> bytes:
    """A deflate stream of so many zeros; its blocks are all alike."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    return block * (n_bytes >> 20) + b"\x03\x00"


@cache
def _zip_bomb(name: str, announced: int | None) -> bytes:
    stream, check = _zeros(BOMB), 0  # nobody should get as far as the checksum
    size, label = (BOMB if announced is None else announced), name.encode()
    sizes = struct.pack("<III", check, len(stream), size)
    local = b"PK\3\4" + struct.pack("<HHHHH", 20, 0, 8, 0, 0) + sizes + struct.pack("<HH", len(label), 0) + label
    central = b"PK\1\2" + struct.pack("<HHHHHH", 20, 20, 0, 8, 0, 0) + sizes
    central += struct.pack("<HHHHHII", len(label), 0, 0, 0, 0, 0, 0) + label
    end = b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(central), len(local) + len(stream), 0)
    return local + stream + central + end


@cache
def _tar_bomb(name: str) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = BOMB
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    head = packer.compress(info.tobuf()) + packer.flush(zlib.Z_FULL_FLUSH)
    return head + _zeros(BOMB) + bytes(8)


def _bomb(trial: Trial) -> None:
    """A small archive of zeros without end, for whoever reads members whole."""
    kind = trial.choose(["uea", "uea, announced small", "command", "records", "csv.gz"])
    trial.note(kind)
    announced = 1000 if "small" in kind else None
    if kind.startswith("uea"):
        (trial.folder / "Toy.zip").write_bytes(_zip_bomb("Toy/Toy_TRAIN.ts", announced))
        uea.load("Toy", "train", folder=trial.folder)
    elif kind == "command":
        (trial.folder / "uea").mkdir()
        (trial.folder / "uea" / "Toy.zip").write_bytes(_zip_bomb("Toy/Toy_TRAIN.ts", None))
        os.environ["ROMAE_DATA"] = str(trial.folder)
        require(run_command(trial, ["data", "check", "uea/Toy"]).code == 2, "it was taken for a data set")
        return
    elif kind == "records":
        (trial.folder / "set-a.tar.gz").write_bytes(_tar_bomb("set-a/132539.txt"))
        (trial.folder / "Outcomes-a.txt").write_text(OUTCOMES)
        physionet2012.load("a", folder=trial.folder)
    else:
        packer = zlib.compressobj(9, zlib.DEFLATED, 31)
        head = packer.compress(b"id,time,value\n") + packer.flush(zlib.Z_FULL_FLUSH)
        (trial.folder / "table.csv.gz").write_bytes(head + _zeros(BOMB) + bytes(8))
        romae.from_table(trial.folder / "table.csv.gz", id="id", time="time", values="value")
    require(False, "zeros were taken for data")

"""FITS binary tables: the first table of a .FITS or .FITS.gz file, as numpy columns."""

import gzip
import re
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

BLOCK, CARD = 2880, 80
TYPES = {"L": "S1", "B": "u1", "I": ">i2", "J": ">i4", "K": ">i8", "E": ">f4", "D": ">f8", "A": "S"}
WIDTHS = {"X": 0, "C": 8, "M": 16, "P": 8, "Q": 16}  # bytes per element of the types that are only skipped

Header = dict[str, str | int]


def read_columns(path: Path, columns: Sequence[str]) -> dict[str, np.ndarray]:
    """The named columns of the first binary table in a file; text as bytes, without its trailing blanks."""
    try:
        content = path.read_bytes()
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"cannot read {path}: {error}") from None
    if not content.startswith(b"SIMPLE  ="):
        raise ValueError(f"{path} is not a FITS file")
    start = 0
    while start < len(content):
        header, start = _read_header(content, start, path)
        if header.get("XTENSION") == "BINTABLE":
            return _read_table(content, start, header, columns, path)
        start += -(-_data_size(header) // BLOCK) * BLOCK
    raise ValueError(f"{path} holds no binary table")


def _read_header(content: bytes, start: int, path: Path) -> tuple[Header, int]:
    """The keywords of a header that begins here, and where its data begins."""
    header: Header = {}
    for place in range(start, len(content) - CARD + 1, CARD):
        card = content[place : place + CARD].decode("latin-1")
        key, equals, rest = card[:8].strip(), card[8:10], card[10:]
        if key == "END":
            return header, start + -(-(place + CARD - start) // BLOCK) * BLOCK
        if equals != "= ":
            continue
        if text := re.match(r"\s*'((?:[^']|'')*)'", rest):
            header[key] = text[1].replace("''", "'").rstrip()
        elif number := re.match(r"\s*([+-]?\d+)\s*(/|$)", rest):
            header[key] = int(number[1])
    raise ValueError(f"{path} is cut off: a header has no end")


def _data_size(header: Header) -> int:
    axes = [_whole(header, f"NAXIS{i + 1}") for i in range(_whole(header, "NAXIS"))]
    n_elements = int(np.prod(axes)) if axes else 0
    return abs(_whole(header, "BITPIX")) // 8 * (n_elements + _whole(header, "PCOUNT"))


def _whole(header: Header, key: str) -> int:
    value = header.get(key, 0)
    return value if isinstance(value, int) else 0


def _read_table(
    content: bytes, start: int, header: Header, columns: Sequence[str], path: Path
) -> dict[str, np.ndarray]:
    width, n_rows = _whole(header, "NAXIS1"), _whole(header, "NAXIS2")
    places: dict[str, tuple[str, int]] = {}
    offset = 0
    for i in range(1, _whole(header, "TFIELDS") + 1):
        name, form = str(header.get(f"TTYPE{i}", "")), str(header.get(f"TFORM{i}", ""))
        found = re.match(r"(\d*)([A-Z])", form)
        if found is None or found[2] not in {**TYPES, **WIDTHS}:
            raise ValueError(f"{path}: column {i} has the unknown format {form!r}")
        repeat, letter = int(found[1] or 1), found[2]
        if name in columns:
            if letter not in TYPES or (letter != "A" and repeat != 1) or {f"TSCAL{i}", f"TZERO{i}"} & header.keys():
                raise ValueError(f"{path}: column {name} is scaled or has the format {form!r}, which is not read here")
            places[name] = (f"S{repeat}" if letter == "A" else TYPES[letter], offset)
        size = np.dtype(TYPES[letter]).itemsize if letter in TYPES and letter != "A" else WIDTHS.get(letter, 1)
        offset += -(-repeat // 8) if letter == "X" else repeat * size
    if absent := [name for name in columns if name not in places]:
        names = [header.get(f"TTYPE{i}", "") for i in range(1, _whole(header, "TFIELDS") + 1)]
        raise ValueError(f"{path} lacks the columns {absent}; it has {names}")
    if offset != width or len(content) < start + n_rows * width:
        raise ValueError(f"{path} is cut off or damaged: {n_rows} rows of {width} bytes do not fit")
    formats, offsets = [places[name][0] for name in columns], [places[name][1] for name in columns]
    layout = np.dtype({"names": list(columns), "formats": formats, "offsets": offsets, "itemsize": width})
    table = np.frombuffer(content, layout, count=n_rows, offset=start)
    return {name: _native(table[name]) for name in columns}


def _native(column: np.ndarray) -> np.ndarray:
    if column.dtype.kind == "S":
        return np.strings.rstrip(column)
    return column.astype(column.dtype.newbyteorder("="))

"""FITS files as SNANA writes them, for the tests of ELAsTiCC."""

import gzip
from pathlib import Path

import numpy as np


def card(key: str, value) -> bytes:
    text = f"'{value:<8}'" if isinstance(value, str) else "T" if value is True else str(value)
    return f"{key:<8}= {text:>20} / a comment".ljust(80).encode()


def block(content: bytes, fill: bytes = b"\0") -> bytes:
    return content + fill * (-len(content) % 2880)


def fits(columns: dict) -> bytes:
    """A FITS file with an empty primary part and one binary table."""
    primary = [card("SIMPLE", True), card("BITPIX", 8), card("NAXIS", 0), b"COMMENT free text".ljust(80)]
    codes = {"D": ">f8", "E": ">f4", "J": ">i4", "I": ">i2", "K": ">i8"}
    dtype = np.dtype([(n, f"S{f[:-1]}" if f[-1] == "A" else codes[f[-1]]) for n, (_, f) in columns.items()])
    table = np.empty(len(next(iter(columns.values()))[0]), dtype)
    for name, (values, form) in columns.items():
        table[name] = np.char.ljust(values.astype(str), int(form[:-1])) if form[-1] == "A" else values
    cards = [card("XTENSION", "BINTABLE"), card("BITPIX", 8), card("NAXIS", 2), card("NAXIS1", dtype.itemsize)]
    cards += [card("NAXIS2", len(table)), card("PCOUNT", 0), card("GCOUNT", 1), card("TFIELDS", len(columns))]
    for i, (name, (_, form)) in enumerate(columns.items(), start=1):
        cards += [card(f"TTYPE{i}", name), card(f"TFORM{i}", form)]
    end = b"END".ljust(80)
    parts = [block(b"".join([*primary, end]), b" "), block(b"".join([*cards, end]), b" "), block(table.tobytes())]
    return b"".join(parts)


def write_pair(folder: Path, model: str, head: dict, phot: dict, *, is_packed: bool = True) -> Path:
    """The tables of one model in their public layout: objects, and their points."""
    place = folder / f"ELASTICC_TRAIN_{model}"
    place.mkdir(exist_ok=True)
    for name, columns in (("HEAD", head), ("PHOT", phot)):
        path = place / f"ELASTICC_TRAIN_NONIaMODEL0-0001_{name}.FITS"
        if is_packed:
            path.with_suffix(".FITS.gz").write_bytes(gzip.compress(fits(columns)))
        else:
            path.write_bytes(fits(columns))
    return folder

"""Checksums of a file that is mapped and read at random: the numbers in it a piece at a time, when they are asked for.

A file has pieces of numbers, and a frame around them: everything else, such as the header, the names and where each
sample begins. The frame is read when a file is opened, and checked then. Checksums are hexadecimal, `DIGITS` each.
"""

import hashlib
from collections.abc import Sequence

import numpy as np

PIECE = 1 << 18  # bytes: a quarter of a millisecond to check, so that a first sample costs no more than that
DIGITS = 32

Range = tuple[int, int]  # of bytes of a file: from the first to before the last


def checksum(*parts: bytes | memoryview) -> str:
    """The checksum of bytes that come in several parts."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:DIGITS]


def checksums_of_pieces(numbers: np.ndarray) -> str:
    """The checksums of an array, one piece after the other; the last piece may be short."""
    content = np.ascontiguousarray(numbers).reshape(-1).view(np.uint8)
    return "".join(checksum(content[i : i + PIECE].data) for i in range(0, len(content), PIECE))


def checksum_of_frame(file: memoryview, numbers: Sequence[Range], seal: str) -> str:
    """The checksum of a file without its numbers. The seal is this checksum itself in the file, and counts as zeros.

    The seal stands behind all numbers, where the file has it once.
    """
    ends, parts = 0, []
    for start, stop in sorted(numbers):
        parts.append(file[ends:start])
        ends = max(ends, stop)
    rest = bytes(file[ends:])
    if rest.count(seal.encode()) != 1:
        raise ValueError("its seal is not where it should be")
    return checksum(*parts, rest.replace(seal.encode(), b"0" * DIGITS))


class Pieces:
    """The pieces of the numbers of a file, of which each is checked once, before it is first used."""

    def __init__(self, file: memoryview, numbers: Sequence[Range], checksums: str) -> None:
        self.file, self.checksums = file, checksums
        counts = [-((start - stop) // PIECE) for start, stop in numbers]
        if len(checksums) != DIGITS * sum(counts):
            raise ValueError(f"it has {len(checksums)} digits of checksums for {sum(counts)} pieces")
        self.first = dict(zip(numbers, np.cumsum([0, *counts]).tolist(), strict=False))
        self.is_checked = bytearray(sum(counts))
        self.n_left = sum(counts)

    def check(self, numbers: Range, start: int, stop: int) -> int:
        """Check the bytes from start to stop of a range of numbers; how many were read to do so.

        Raises ValueError where they are not what was written.
        """
        first, n_read = self.first[numbers], 0
        for i in range(start // PIECE, -(-stop // PIECE)):
            if self.is_checked[first + i]:
                continue
            begin = numbers[0] + i * PIECE
            piece = self.file[begin : min(begin + PIECE, numbers[1])]
            if checksum(piece) != self.checksums[DIGITS * (first + i) : DIGITS * (first + i + 1)]:
                raise ValueError(f"the bytes {begin} to {begin + len(piece) - 1} are not what was written")
            self.is_checked[first + i] = True
            self.n_left -= 1
            n_read += len(piece)
        return n_read

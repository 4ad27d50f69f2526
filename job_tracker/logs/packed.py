"""Compressed logs that can be read from any position.

A log is a sequence of blocks. Each block is a gzip member with about a mebibyte of records. The last member
is empty, and has the index of the blocks in its header. So any program that reads gzip, even an earlier
version of the service, can read the whole log. A log of one block has no index.
"""

import gzip
import struct
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import BinaryIO, Final

from job_tracker.logs.records import TIME, first_time

_LEVEL: Final = 1  # this level reduces most logs to a tenth; higher levels take long and save little
_ENTRY: Final = struct.Struct(f"<QQ{TIME}s")
_TRAILER: Final = struct.Struct("<QI8s")
_MAGIC: Final = b"TLINDEX1"
_HEADER: Final = struct.Struct("<4sIBBH2sH")
_BEGIN: Final = b"\x1f\x8b\x08\x04"
"""The beginning of a gzip member with an extra field."""
_NAME: Final = b"tl"
_END: Final = b"\x03\x00" + bytes(8)
"""The rest of a gzip member without content: empty compressed data, its checksum and its length."""
_MOST_ENTRIES: Final = 1400
"""The largest number of entries of an index, since an extra field has at most 65,535 bytes."""


@dataclass(frozen=True, slots=True)
class Block:
    """The offset of a block in the file, the number of lines before it, and the time of its first record."""

    offset: int
    lines: int
    time: bytes


@dataclass(frozen=True, slots=True)
class Start:
    """The offset at which reading begins, and the number of lines to skip from there."""

    offset: int = 0
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class Index:
    """The blocks of a log (of a long log, only every 2nd, or every 4th, …), and its number of lines."""

    blocks: tuple[Block, ...]
    lines: int

    def start(self, after: bytes, tail_lines: int | None) -> Start:
        """Return the last known position at or before the first wanted record.

        The wanted records are later than `after` and, with `tail_lines`, within the last `tail_lines` lines.
        """
        found = self._last(lambda block: block.time <= after)
        if tail_lines is None:
            return Start(found.offset)
        skipped = max(0, self.lines - tail_lines)
        tail = self._last(lambda block: block.lines <= skipped)
        if found.lines > tail.lines:
            return Start(found.offset, max(0, skipped - found.lines))
        return Start(tail.offset, skipped - tail.lines)

    def _last(self, begins_early: Callable[[Block], bool]) -> Block:
        """Return the last block for which `begins_early` is true; the first block if there is none.

        These blocks come before all others.
        """
        found = self.blocks[0]
        for block in self.blocks[1:]:
            if not begins_early(block):
                break
            found = block
        return found


class BlockWriter:
    """Writes blocks, and then the index."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._blocks: list[Block] = []
        self._size = self._lines = self._written = 0
        self._stride = 1

    def write(self, records: bytes) -> None:
        """Write whole records as a block. An empty block is written only if it is the first."""
        if not records and self._written:
            return
        packed = gzip.compress(
            records, compresslevel=_LEVEL, mtime=0
        )  # without the time, so that equal logs make equal files
        if self._written % self._stride == 0:
            self._blocks.append(Block(self._size, self._lines, first_time(records).ljust(TIME)))
        if len(self._blocks) > _MOST_ENTRIES:
            self._blocks, self._stride = self._blocks[::2], 2 * self._stride
        self._file.write(packed)
        self._written += 1
        self._size += len(packed)
        self._lines += records.count(b"\n")

    def finish(self) -> None:
        """Write the index, if there are several blocks."""
        if len(self._blocks) > 1:
            self._file.write(_member(self._blocks, self._lines))


def read_index(file: BinaryIO) -> Index | None:
    """Return the index at the end of a file; None if there is none, or it is damaged.

    A job may have written the file, so the values are checked.
    """
    size = file.seek(0, 2)
    tail_size = _TRAILER.size + len(_END)
    if size < tail_size:
        return None
    file.seek(size - tail_size)
    tail = file.read(tail_size)
    lines, length, magic = _TRAILER.unpack(tail[: _TRAILER.size])
    if magic != _MAGIC or tail[_TRAILER.size :] != _END or not tail_size < length <= min(size, 1 << 17):
        return None
    file.seek(size - length)
    entries = file.read(length)[_HEADER.size : -tail_size]
    if not entries or len(entries) % _ENTRY.size:
        return None
    blocks = tuple(Block(*entry) for entry in _ENTRY.iter_unpack(entries))
    is_sound = blocks[0].offset == 0 and blocks[-1].offset < size and blocks[-1].lines <= lines
    rising = all(a.offset < b.offset and a.lines <= b.lines for a, b in pairwise(blocks))
    return Index(blocks, lines) if is_sound and rising else None


def _member(blocks: list[Block], lines: int) -> bytes:
    entries = b"".join(_ENTRY.pack(block.offset, block.lines, block.time) for block in blocks)
    field = len(entries) + _TRAILER.size
    length = _HEADER.size + field + len(_END)
    header = _HEADER.pack(_BEGIN, 0, 0, 255, field + 4, _NAME, field)
    return header + entries + _TRAILER.pack(lines, length, _MAGIC) + _END

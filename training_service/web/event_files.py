"""Writes metrics as event files, which TensorBoard reads.

An event file is a sequence of records. Each record has a length, the checksum of the length, a message, and
the checksum of the message. A message is an `Event` of tensorflow/core/util/event.proto, but only scalars are
written. The checksum is a CRC-32C that is rotated (tensorflow/core/lib/hash/crc32c.h, "Mask").
"""

import math
import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

from job_tracker.domain.telemetry import MetricSeries

_VERSION: Final = b"brain.Event:2"
_DELTA: Final = 0xA282EAD8
_POLYNOMIAL: Final = 0x82F63B78
_LARGEST: Final = 3.4028234663852886e38
"""The largest number in single precision, in which TensorBoard keeps values."""
_PIECE: Final = 1 << 16

Row = tuple[int, float, str, float]
"""Step, Unix time, name and value."""


def event_files(run: str, series: Iterable[MetricSeries]) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Yield the path and the content of an event file for each attempt in `series`.

    TensorBoard shows each folder as a separate run. Each attempt has its own folder, so that the steps that
    an attempt repeats are not mixed with those of the previous attempt. `run` is the name of the first
    attempt's folder.
    """
    rows: dict[int, list[Row]] = {}
    for each in series:
        for point in each.points:
            row = (point.step, point.at.timestamp(), each.name, point.value)
            rows.setdefault(point.attempt, []).append(row)
    for attempt, found in sorted(rows.items()):
        folder = f"{run}-attempt-{attempt}" if attempt > 1 else run
        found.sort(key=lambda row: (row[1], row[0], row[2]))
        yield f"{folder}/events.out.tfevents.{int(found[0][1]):010d}.training-service", content_of(found)


def content_of(rows: Sequence[Row]) -> Iterator[bytes]:
    """Yield the content of an event file in pieces.

    Adjacent rows with the same step and time share an event.
    """
    piece = bytearray(record(_time(rows[0][1]) + _field(3, _VERSION)))
    for (step, at), group in groupby(rows, key=lambda row: row[:2]):
        values = b"".join(_field(1, _scalar(name, value)) for _, _, name, value in group)
        piece += record(_time(at) + _number(2, step) + _field(5, values))
        if len(piece) >= _PIECE:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece)


def record(message: bytes) -> bytes:
    """Return the record of an event file with this message."""
    length = struct.pack("<Q", len(message))
    return length + struct.pack("<I", masked(length)) + message + struct.pack("<I", masked(message))


def masked(content: bytes) -> int:
    """Return the checksum of the content, in the rotated ("masked") form of event files."""
    checksum = crc32c(content)
    return ((checksum >> 15 | checksum << 17) + _DELTA) & 0xFFFFFFFF


def crc32c(content: bytes) -> int:
    """Return the CRC-32C (Castagnoli) of the content.

    The CRC-32 of the standard library has another polynomial.
    """
    checksum, table = 0xFFFFFFFF, _TABLE
    for byte in content:
        checksum = table[(checksum ^ byte) & 0xFF] ^ checksum >> 8
    return checksum ^ 0xFFFFFFFF


def _entry(number: int) -> int:
    for _ in range(8):
        number = number >> 1 ^ (_POLYNOMIAL if number & 1 else 0)
    return number


_TABLE: Final = tuple(map(_entry, range(256)))


# --- messages (protobuf.dev/programming-guides/encoding) -------------------------------------------


def _scalar(name: str, value: float) -> bytes:
    # NaN stays NaN, since `NaN > _LARGEST` is false.
    single = math.copysign(math.inf, value) if abs(value) > _LARGEST else value
    return _field(1, name.encode()) + b"\x15" + struct.pack("<f", single)


def _time(at: float) -> bytes:
    return b"\x09" + struct.pack("<d", at)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value & 0xFFFFFFFFFFFFFFFF)


def _field(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)

"""Functions on pieces of a log: bytes of one or more whole records, in the format of writing.py."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from job_tracker.logs.writing import LONGEST_PART, time_at

TIME = 30
"""Length of a time, in bytes."""

LONGEST_RECORD = TIME + LONGEST_PART + 100
"""Upper bound for the length of a record, in bytes."""

BEGINNING = b""
"""A time before all others."""

_RECORD = re.compile(rb".{30} (?:F (.*\n)|P (.*)\n)")
_EACH = re.compile(rb".+\n")
_IS_TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = 10**9


def text_of(piece: bytes) -> str:
    """Return the printed text. Bytes that are not UTF-8 become replacement characters."""
    return text_bytes(piece).decode(errors="replace")


def text_bytes(piece: bytes) -> bytes:
    """Return the bytes that the rank printed: the records without times, with long lines in one piece."""
    return _RECORD.sub(rb"\1\2", piece)


def timed_text_of(piece: bytes) -> str:
    """Return the printed text with the time before each line."""
    texts, goes_on = [], False
    for record in records_of(piece):
        printed = record[TIME + 3 :]
        is_part = is_partial(record)
        texts.append((b"" if goes_on else record[: TIME + 1]) + (printed[:-1] if is_part else printed))
        goes_on = is_part
    return b"".join(texts).decode(errors="replace")


def lines_of(piece: bytes) -> Iterator[tuple[datetime, str]]:
    """Yield the printed lines without line breaks, each with the time of its first record.

    Lines without a valid time are skipped: training code wrote them directly into its log file.
    """
    began, parts = b"", list[bytes]()
    for record in records_of(piece):
        began = began or record[:TIME]
        parts.append(text_bytes(record))
        if not is_partial(record):
            if is_time(began):
                yield moment_of(began), b"".join(parts).decode(errors="replace").rstrip("\r\n")
            began, parts = b"", []
    if parts and is_time(began):
        yield moment_of(began), b"".join(parts).decode(errors="replace")


def records_of(piece: bytes) -> list[bytes]:
    """Return the records as a list."""
    return _EACH.findall(piece)


def is_partial(record: bytes) -> bool:
    """Return whether the line continues in the next record."""
    return record[TIME + 1 : TIME + 2] == b"P"


def first_time(piece: bytes) -> bytes:
    """Return the time of the first record."""
    return piece[:TIME]


def last_time(piece: bytes) -> bytes:
    """Return the time of the last record."""
    begin = piece.rfind(b"\n", 0, len(piece) - 1) + 1
    return piece[begin : begin + TIME]


def later(piece: bytes, time: bytes) -> bytes:
    """Return the records after this time; b"" if there are none."""
    if first_time(piece) > time:
        return piece
    if last_time(piece) <= time:
        return b""
    return b"".join(record for record in records_of(piece) if record[:TIME] > time)


def is_time(text: bytes) -> bool:
    """Return whether this is a valid time of a record, from 1970 on."""
    if _IS_TIME.fullmatch(text) is None:
        return False
    try:
        return nanoseconds(text) >= 0
    except ValueError:
        return False


def time_of(moment: datetime) -> bytes:
    """Return a moment as the time of a record. Moments before 1970 become the beginning of 1970."""
    return time_at((max(moment, _EPOCH) - _EPOCH) // datetime.resolution * 1000)


def nanoseconds(time: bytes) -> int:
    """Return the time of a record in nanoseconds since 1970."""
    second = datetime.fromisoformat(time[:19].decode()).replace(tzinfo=UTC)
    return int((second - _EPOCH).total_seconds()) * _SECOND + int(time[20:29])


def moment_of(time: bytes) -> datetime:
    """Return the time of a record as a datetime, rounded down to microseconds."""
    return _EPOCH + timedelta(microseconds=nanoseconds(time) // 1000)


def left_out(number: int, time: bytes) -> bytes:
    """Return a record, with this time, that says that `number` bytes are missing."""
    return b"%b F [... %d bytes of this log, times included, are not kept ...]\n" % (time, number)

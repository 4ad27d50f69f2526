"""Writes what a program prints as a log that stays within a bound.

A log is a folder of segments, each named by the place in the whole log at which it begins, in bytes. The
first one stays; of those after it, the oldest goes when another begins. What is missing between two is
what their names do not account for. So there is no state but the files, and any process may read them.

A log consists of records, one a line: a time, a tag, and what was printed.

    2026-11-21T12:00:00.123456789Z F a line
    2026-11-21T12:00:00.123456790Z P the beginning of a line that goes on in the next record

Of two records, the later one has the later time, so that a time is also a place in the log.

Every rank's supervisor imports this, and a job waits for it: only what is quick to import.
"""

import os
import time

TYPE_CHECKING = False  # what typing has takes longer to import than all of this
if TYPE_CHECKING:
    from collections.abc import Callable

LONGEST_PART = 16 * 1024
"""Bytes of a line that are in one record, as for container runtimes."""

SMALLEST_LOG = 1 << 20
"""Bytes: a segment holds more than the longest record."""

_LATER_SEGMENTS = 6
_SECOND = 10**9


def time_at(nanoseconds: int) -> bytes:
    """The time of a record: RFC 3339 in UTC, of one length, so that text compares as times do."""
    second, nanos = divmod(nanoseconds, _SECOND)
    return b"%b.%09dZ" % (_second_at(second), nanos)


def parts_of(line: bytes) -> list[bytes]:
    """The parts of a line, each for a record of its own; one that is not too long is its only part."""
    parts = []
    while len(line) > LONGEST_PART:
        end = LONGEST_PART
        while end > LONGEST_PART - 4 and line[end] & 0xC0 == 0x80:  # not within a character
            end -= 1
        parts.append(line[:end])
        line = line[end:]
    return [*parts, line]


class RecordMaker:
    """Makes records of a stream of bytes. A line's time is when its end was seen."""

    def __init__(self, clock: "Callable[[], int]" = time.time_ns) -> None:
        """`clock` gives nanoseconds since 1970."""
        self._clock = clock
        self._last = 0
        self._rest = b""

    def records(self, data: bytes) -> bytes:
        """The records that these further bytes complete."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) <= LONGEST_PART and (not lines or len(max(lines, key=len)) <= LONGEST_PART):
            return self._made(lines, b"F")
        made = []
        for line in lines:
            *parts, end = parts_of(line)
            made += [self._made(parts, b"P"), self._made([end], b"F")]
        *parts, self._rest = parts_of(self._rest)
        return b"".join([*made, self._made(parts, b"P")])

    def rest(self) -> bytes:
        """The record of a last line without an end, if there is one."""
        rest, self._rest = self._rest, b""
        return self._made([rest], b"P") if rest else b""

    def _made(self, lines: list[bytes], tag: bytes) -> bytes:
        # A clock that is set back does not disturb the order.
        second, nanos = divmod(max(self._clock(), self._last + 1), _SECOND)
        if nanos + len(lines) > _SECOND:
            second, nanos = second + 1, 0
        if lines:
            self._last = second * _SECOND + nanos + len(lines) - 1
        head = _second_at(second)
        return b"".join([b"%b.%09dZ %b %b\n" % (head, n, tag, line) for n, line in enumerate(lines, nanos)])


class LogWriter:
    """Writes records into segments in a folder: at most `most_bytes`, at least SMALLEST_LOG.

    The first quarter stays, and five eighths or more of what came last. On a disk that is full, records
    are left out until there is room again: a program is never held up, nor ended, by its log.
    """

    def __init__(self, folder: str, most_bytes: int) -> None:
        """Goes on with a log that is there. Raises OSError if there is no such folder, and cannot be."""
        os.makedirs(folder, mode=0o750, exist_ok=True)
        self._folder = folder
        self._first_limit = most_bytes // 4
        self._later_limit = most_bytes // 8
        self._limit = self._first_limit
        self._segments = sorted(name for name in os.listdir(folder) if name.isdigit())
        self._file = -1
        self._size = 0
        self._end = 0
        if self._segments:
            last = self._segments[-1]
            self._end = int(last) + os.stat(os.path.join(folder, last)).st_size

    def write(self, records: bytes) -> None:
        """Add whole records."""
        while records:
            room = self._limit - self._size
            fits = len(records) if len(records) <= room else records.rfind(b"\n", 0, max(0, room)) + 1
            if fits:
                self._append(records[:fits])
                records = records[fits:]
            else:
                self._close_segment()

    def close(self) -> None:
        """Write no more."""
        self._close_segment()

    @property
    def end(self) -> int:
        """How long the whole log is, in bytes, what is not kept included."""
        return self._end

    def _append(self, records: bytes) -> None:
        try:
            if self._file < 0:
                self._open_segment()
            if os.write(self._file, records) < len(records):
                os.ftruncate(self._file, self._size)  # half a record is none
                self._close_segment()
            else:
                self._size += len(records)
        except OSError:
            self._close_segment()
        self._end += len(records)  # what could not be written as well: the next name tells how much

    def _open_segment(self) -> None:
        while len(self._segments) > _LATER_SEGMENTS:
            os.unlink(os.path.join(self._folder, self._segments.pop(1)))
        name = f"{self._end:020d}"
        # What a program has put in its place, a link or a pipe, is no segment: see job_tracker.untrusted.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        self._file = os.open(os.path.join(self._folder, name), flags, 0o640)
        self._size = 0
        self._limit = self._later_limit if self._segments else self._first_limit
        if name not in self._segments[-1:]:
            self._segments.append(name)

    def _close_segment(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        self._size = 0


def _second_at(second: int) -> bytes:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)).encode()

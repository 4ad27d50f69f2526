"""Writes the output of a program as a log of bounded size.

A log is a folder of segments. The name of a segment is its offset in the whole log, in bytes. The first
segment always stays. If the log is too long when a new segment begins, the oldest segment after the first is
removed. The names show how many bytes are missing between two segments. So the files are the only state of a
log, and any process can read them.

A log consists of records, one on each line: a time, a tag, and the printed text.

    2026-11-21T12:00:00.123456789Z F a line
    2026-11-21T12:00:00.123456790Z P the beginning of a line that continues in the next record

Each record has a later time than the record before it, so a time is also a position in the log.

The supervisor of every rank imports this module before the job starts, so this module imports little.
"""

import os
import stat
import time

TYPE_CHECKING = False  # importing typing takes longer than this module
if TYPE_CHECKING:
    from collections.abc import Callable

LONGEST_PART = 16 * 1024
"""Largest part of a line in one record, in bytes; the same as in container runtimes."""

SMALLEST_LOG = 1 << 20
"""The smallest allowed bound of a log, in bytes: a segment must be able to hold the longest record."""

_LATER_SEGMENTS = 6
_SECOND = 10**9


def time_at(nanoseconds: int) -> bytes:
    """Return the time of a record: RFC 3339 in UTC with a fixed length, so that times sort as strings."""
    second, nanos = divmod(nanoseconds, _SECOND)
    return b"%b.%09dZ" % (_second_at(second), nanos)


def parts_of(line: bytes) -> list[bytes]:
    """Split a line into parts of at most LONGEST_PART bytes. Each part becomes a record."""
    parts = []
    while len(line) > LONGEST_PART:
        end = LONGEST_PART
        while end > LONGEST_PART - 4 and line[end] & 0xC0 == 0x80:  # do not split a UTF-8 character
            end -= 1
        parts.append(line[:end])
        line = line[end:]
    return [*parts, line]


class RecordMaker:
    """Makes records from a stream of bytes. The time of a line is the time at which its end arrives."""

    def __init__(self, clock: "Callable[[], int]" = time.time_ns) -> None:
        """`clock` gives nanoseconds since 1970."""
        self._clock = clock
        self._last = 0
        self._rest = b""

    def records(self, data: bytes) -> bytes:
        """Return the records that are complete after these bytes."""
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
        """Return the record of a last line without a line break; b"" if there is none."""
        rest, self._rest = self._rest, b""
        return self._made([rest], b"P") if rest else b""

    def _made(self, lines: list[bytes], tag: bytes) -> bytes:
        # Times increase even if the clock is set back.
        second, nanos = divmod(max(self._clock(), self._last + 1), _SECOND)
        if nanos + len(lines) > _SECOND:
            second, nanos = second + 1, 0
        if lines:
            self._last = second * _SECOND + nanos + len(lines) - 1
        head = _second_at(second)
        return b"".join([b"%b.%09dZ %b %b\n" % (head, n, tag, line) for n, line in enumerate(lines, nanos)])


class LogWriter:
    """Writes records to segments in a folder. Together, the segments have at most `most_bytes` bytes.

    `most_bytes` must be at least SMALLEST_LOG. A quarter of it is for the first records, and at least five
    eighths are for the newest. If the disk is full, records are dropped until there is room again, so that a
    log never blocks or ends a program.
    """

    def __init__(self, folder: str, most_bytes: int) -> None:
        """Continue the log in the folder. Raises OSError if the folder cannot be created."""
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
        """Close the current segment."""
        self._close_segment()

    @property
    def end(self) -> int:
        """Return the length of the whole log in bytes, including removed segments."""
        return self._end

    def _append(self, records: bytes) -> None:
        try:
            if self._file < 0:
                self._open_segment()
            if os.write(self._file, records) < len(records):
                os.ftruncate(self._file, self._size)  # remove these records, since one is incomplete
                self._close_segment()
            else:
                self._size += len(records)
        except OSError:
            self._close_segment()
        self._end += len(records)  # dropped records count, too: the name of the next segment shows the gap

    def _open_segment(self) -> None:
        while len(self._segments) > _LATER_SEGMENTS:
            os.unlink(os.path.join(self._folder, self._segments.pop(1)))
        name = f"{self._end:020d}"
        # Never follow a link, or write to a pipe, that the program has put there: see files/untrusted.py.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        self._file = os.open(os.path.join(self._folder, name), flags, 0o640)
        if not stat.S_ISREG(os.fstat(self._file).st_mode):
            raise OSError(f"{name} is not a regular file")
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

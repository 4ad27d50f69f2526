"""Reads logs in the format of writing.py, even while they grow: in pieces, with bounded memory."""

import asyncio
import logging
import os
import re
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from typing import BinaryIO

from job_tracker.domain.errors import LogsNotFound
from job_tracker.files.untrusted import Place, Suspicious, open_regular
from job_tracker.logs.records import (
    BEGINNING,
    LONGEST_RECORD,
    TIME,
    first_time,
    left_out,
    nanoseconds,
    text_of,
)
from job_tracker.logs.writing import time_at

log = logging.getLogger(__name__)

_PIECE = 64 * 1024
_SHORTEST_POLL, _LONGEST_POLL = 0.1, 1.0  # seconds; the pause grows while a log is quiet

_Place = tuple[int, int]
"""A segment, named by its offset in the whole log, and an offset in the segment."""

_BEFORE_ALL: _Place = (-1, 1)
"""The place before the first segment. Its two numbers add up to 0, which is its offset in the whole log."""

_SEGMENT = re.compile(r"[0-9]{20}")
_MOST_PLACINGS = 5  # tries to open a segment before the writer removes it; if all fail, a gap is reported
_MOST_SEGMENTS = 1000  # writing.py keeps fewer than twelve
_MOST_SEARCHED = 1 << 30  # bytes searched for a tail, in case training code wrote a huge file


async def read(
    folder: Place,
    *,
    after: bytes = BEGINNING,
    tail_lines: int | None = None,
    is_growing: Callable[[], bool] | None = None,
    ended: asyncio.Event | None = None,
) -> AsyncGenerator[bytes, None]:
    """Yield the records later than `after`; with `tail_lines`, only those in the last `tail_lines` lines.

    While `is_growing` returns true, wait for new records, and yield them, too. `ended`, if given, is an event
    that is set when the log stops growing: it cuts the pause between two reads short. For a gap in the log, a
    record with the number of missing bytes is yielded. Raises LogsNotFound if there is no log, or if it was
    removed while it was read. Files are read, and `is_growing` is called, in threads.
    """
    reader = _Reader(folder, after, is_growing)
    try:
        poll = _SHORTEST_POLL
        look: Callable[[], tuple[list[bytes], bool]] = partial(reader.begin, tail_lines)
        while True:
            pieces, is_over = await asyncio.to_thread(look)
            look = reader.next
            for piece in pieces:
                poll = _SHORTEST_POLL
                yield piece
            if is_over:
                return
            if not pieces:
                if ended is not None and await _is_set(ended, within=poll):
                    ended = None  # from now on, the log is polled, in case it still grows
                elif ended is None:
                    await asyncio.sleep(poll)
                poll = min(poll * 1.5, _LONGEST_POLL)
    finally:
        reader.close()


async def _is_set(event: asyncio.Event, *, within: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(within):
            await event.wait()
    return event.is_set()


def tail(folder: Place, lines: int, most_bytes: int = 4096) -> str:
    """Return the end of the output: at most `lines` lines and `most_bytes` characters; "" if unreadable."""
    try:
        log = _Folder(folder)
    except (LogsNotFound, OSError):
        return ""
    try:
        end = b""
        for segment in reversed(log.segments()):
            file = log.open(segment)
            if file is None or len(end) >= 2 * most_bytes:
                break
            file.seek(max(0, file.seek(0, os.SEEK_END) - 2 * most_bytes))
            end = file.read(2 * most_bytes) + end
    except (LogsNotFound, OSError):
        return ""
    finally:
        log.close()
    text = text_of(end[end.find(b"\n", 0, -1) + 1 :] if len(end) > most_bytes else end)
    return "\n".join(text[-most_bytes:].splitlines()[-lines:])


def end(folder: Place) -> int:
    """Return the length of the whole log in bytes, including removed segments; 0 if there is no log.

    Raises LogsNotFound if the log is removed meanwhile, and OSError if it cannot be read.
    """
    try:
        log = _Folder(folder)
    except LogsNotFound:
        return 0
    try:
        last = max(log.segments(), default=0)
        file = log.open(last)
        return last + (file.seek(0, os.SEEK_END) if file else 0)
    finally:
        log.close()


class _Reader:
    """Reads a log piece by piece: `begin`, then `next`, each in a thread.

    Both return new records, and whether the log has ended.
    """

    def __init__(self, folder: Place, after: bytes, is_growing: Callable[[], bool] | None) -> None:
        self._place = folder
        self._after = after
        self._is_growing = is_growing or (lambda: False)
        self._log: _Folder | None = None
        self._segment = 0
        self._file: BinaryIO | None = None
        self._end = 0
        self._missing = 0
        self._guard = threading.Lock()
        self._in_use = False
        self._is_closed = False

    def begin(self, tail_lines: int | None) -> tuple[list[bytes], bool]:
        """Find the first wanted record, and read from there. Raises LogsNotFound."""
        with self._using():
            log = self._log = _Folder(self._place)
            for _ in range(_MOST_PLACINGS):
                self._segment, offset = _place(log, self._after, tail_lines)
                self._file = log.open(self._segment, offset)
                if self._file is not None or (self._segment, offset) == _BEFORE_ALL:
                    break  # otherwise, the segment was removed meanwhile, and the loop searches again
            self._end = self._segment + offset
        return self.next()

    def next(self) -> tuple[list[bytes], bool]:
        """Read the next records. Raises LogsNotFound."""
        with self._using():
            assert self._log is not None, "begin was called"
            while True:
                # These two lookups come before the read. So if the log no longer grows, or another segment
                # follows, the read finds even the last records of the segment.
                growing = self._is_growing()
                following = self._log.next(self._segment)
                if self._file is not None and (piece := _whole_records(self._file)):
                    self._end += len(piece)
                    is_over = (
                        not growing and following is None and self._end - self._segment == _size(self._file)
                    )
                    return [*self._gap_before(piece), piece], is_over
                if following is None:
                    if not growing:
                        self._log.check()
                    return [], not growing
                self._missing += following - self._end
                self._segment = self._end = following
                self._file = self._log.open(following)

    def close(self) -> None:
        """Close the log. If a thread is still reading it, that thread closes it."""
        with self._guard:
            self._is_closed = True
            if not self._in_use:
                self._let_go()

    @contextmanager
    def _using(self) -> Iterator[None]:
        with self._guard:
            if self._is_closed:
                raise LogsNotFound(f"the log at {self._place.name} was closed")
            self._in_use = True
        try:
            yield
        finally:
            self._used()

    def _used(self) -> None:
        with self._guard:
            self._in_use = False
            if self._is_closed:
                self._let_go()

    def _let_go(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    def _gap_before(self, piece: bytes) -> list[bytes]:
        missing, self._missing = self._missing, 0
        try:
            at = time_at(nanoseconds(first_time(piece)) - 1)
        except ValueError:
            return []  # training code wrote to the file
        return [left_out(missing, at)] if missing and at > self._after else []


class _Folder:
    """An open folder of a log. The folder stays open even if it is moved."""

    def __init__(self, place: Place) -> None:
        """Open the folder. Raises LogsNotFound if it does not exist, is not readable, or is not a folder."""
        self._name = place.name
        self._file: BinaryIO | None = None
        try:
            self._folder = place.open_folder()
        except (FileNotFoundError, NotADirectoryError, PermissionError, Suspicious) as error:
            raise LogsNotFound(f"there is no log at {place.name}") from error

    def check(self) -> None:
        """Raise LogsNotFound if the folder has been removed."""
        if os.fstat(self._folder).st_nlink == 0:
            raise LogsNotFound(f"the log at {self._name} was removed")

    def segments(self) -> list[int]:
        """Return the offsets of the folder's segments, in order.

        Raises LogsNotFound if the folder has been removed.
        """
        self.check()
        with os.scandir(self._folder) as entries:
            names = [entry.name for entry in islice(entries, _MOST_SEGMENTS)]
        return sorted(int(name) for name in names if _SEGMENT.fullmatch(name))

    def next(self, segment: int) -> int | None:
        """Return the offset of the next segment; None if there is none."""
        return next((each for each in self.segments() if each > segment), None)

    def open(self, segment: int, offset: int = 0) -> BinaryIO | None:
        """Open the file of a segment at `offset`, and close the file that was open before.

        Return None if there is no such file, if it is not a regular file, or if it is not readable.
        """
        self._close_file()
        try:
            self._file = open_regular(f"{segment:020d}", self._folder)
        except FileNotFoundError:
            return None
        except (Suspicious, PermissionError) as error:
            log.warning("a segment of the log at %s is skipped: %s", self._name, error)
            return None
        self._file.seek(offset)
        return self._file

    def close(self) -> None:
        """Close the folder."""
        self._close_file()
        os.close(self._folder)

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _size(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size


def _whole_records(file: BinaryIO) -> bytes:
    data = file.read(_PIECE)
    end = data.rfind(b"\n") + 1
    file.seek(end - len(data), os.SEEK_CUR)  # go back to the start of a record that is still being written
    return data[:end]


def _place(log: _Folder, after: bytes, tail_lines: int | None) -> _Place:
    """Return the place of the first record later than `after` that is in the last `tail_lines` lines."""
    place = _place_after(log, after) if after else _BEFORE_ALL
    return place if tail_lines is None else max(place, _place_of_tail(log, tail_lines))


def _place_after(log: _Folder, time: bytes) -> _Place:
    for segment in reversed(log.segments()):
        file = log.open(segment)
        if file is not None and (start := file.read(TIME)) and start <= time:
            return segment, _offset_after(file, time)
    return _BEFORE_ALL


def _offset_after(file: BinaryIO, time: bytes) -> int:
    """Return the offset of the first record after the time, found by binary search."""
    low, high = 0, file.seek(0, os.SEEK_END)
    while low < high:
        middle = (low + high) // 2
        file.seek(max(0, middle - 1))
        if middle:
            file.readline(LONGEST_RECORD)
        start = file.tell()
        record = file.readline(LONGEST_RECORD)
        if start >= high or not record.endswith(b"\n") or record[:TIME] > time:
            high = middle
        else:
            low = start + len(record)
    return low


def _place_of_tail(log: _Folder, lines: int) -> _Place:
    missing, left = lines, _MOST_SEARCHED
    for segment in reversed(log.segments()):
        file = log.open(segment)
        if file is None:
            break  # the oldest segment was removed meanwhile
        position = file.seek(0, os.SEEK_END)
        if missing == 0:
            return segment, position
        missing += 1  # the line break before the first wanted line
        while position > 0:
            left -= _PIECE
            if left < 0:
                return segment, position
            size = min(_PIECE, position)
            position -= size
            file.seek(position)
            block = file.read(size)
            breaks = block.count(b"\n")
            if breaks >= missing:
                found = size
                for _ in range(missing):
                    found = block.rfind(b"\n", 0, found)
                return segment, position + found + 1
            missing -= breaks
        missing -= 1
    return _BEFORE_ALL

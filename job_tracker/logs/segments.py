"""Reads a log that writing.py writes, or has written: in pieces, from anywhere, in bounded memory."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import BinaryIO

from job_tracker.errors import LogsNotFound
from job_tracker.logs.records import BEGINNING, TIME, first_time, left_out, nanoseconds, text_of
from job_tracker.logs.writing import time_at

_PIECE = 64 * 1024
_SHORTEST_POLL, _LONGEST_POLL = 0.1, 1.0  # seconds; the quieter a log, the rarer it is looked at

_Place = tuple[int, int]
"""A segment, by where it begins in the whole log, and a byte in it."""

_BEFORE_ALL: _Place = (-1, 1)


async def read(
    folder: Path,
    *,
    after: bytes = BEGINNING,
    tail_lines: int | None = None,
    is_growing: Callable[[], bool] = lambda: False,
) -> AsyncGenerator[bytes, None]:
    """The records after a time, or the last of them; goes on until `is_growing` says no and all are read.

    What is missing in between has a record that says so. Raises LogsNotFound if there is no log; also in
    the middle, if it was taken away: by then it is elsewhere.
    """
    log = _Folder(folder)
    try:
        # Logs have gigabytes: nobody else's calls are to wait for a place to be found.
        segment, offset = await asyncio.to_thread(_place, log, after, tail_lines)
        file = log.open(segment, offset)
        end, missing, poll = segment + offset, 0, _SHORTEST_POLL
        while True:
            growing = is_growing()  # asked before reading: what was written before the end is read
            following = log.next(segment)  # likewise: one that has a successor is complete
            if file is not None and (piece := _whole_records(file)):
                end, poll = end + len(piece), _SHORTEST_POLL
                if missing and (at := time_at(nanoseconds(first_time(piece)) - 1)) > after:
                    yield left_out(missing, at)
                missing = 0
                yield piece
            elif following is not None:
                segment, file = following, log.open(following)
                end, missing = following, missing + following - end
            elif growing:
                await asyncio.sleep(poll)
                poll = min(poll * 1.5, _LONGEST_POLL)
            else:
                log.check()
                return
    finally:
        log.close()


def tail(folder: Path, lines: int, most_bytes: int = 4096) -> str:
    """The last lines of what was printed, or what of them fits; "" if they cannot be read."""
    try:
        log = _Folder(folder)
    except LogsNotFound:
        return ""
    try:
        end = b""
        for segment in reversed(log.segments()):
            file = log.open(segment)
            if file is None or len(end) >= 2 * most_bytes:
                break
            file.seek(max(0, file.seek(0, os.SEEK_END) - 2 * most_bytes))
            end = file.read() + end
    finally:
        log.close()
    text = text_of(end[end.find(b"\n", 0, -1) + 1 :] if len(end) > most_bytes else end)
    return "\n".join(text[-most_bytes:].splitlines()[-lines:])


def end(folder: Path) -> int:
    """How long the whole log is, in bytes, what is not kept included; 0 if there is none."""
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


class _Folder:
    """The folder of a log, wherever it is moved to."""

    def __init__(self, path: Path) -> None:
        """Raises LogsNotFound if there is none."""
        self._name = path.name
        self._file: BinaryIO | None = None
        try:
            self._folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise LogsNotFound(f"there is no log at {path.name}") from error

    def check(self) -> None:
        """Raise LogsNotFound if it has been removed."""
        if os.fstat(self._folder).st_nlink == 0:
            raise LogsNotFound(f"the log at {self._name} is not there any more")

    def segments(self) -> list[int]:
        """Where its segments begin, in order. Raises LogsNotFound if it has been removed."""
        self.check()
        return sorted(int(name) for name in os.listdir(self._folder) if name.isdigit())  # noqa: PTH208

    def next(self, segment: int) -> int | None:
        """The segment after that one."""
        return next((each for each in self.segments() if each > segment), None)

    def open(self, segment: int, offset: int = 0) -> BinaryIO | None:
        """The segment's file, in place of the one that was open; None if it is gone, or never was."""
        self._close_file()
        try:
            flags = os.O_RDONLY | os.O_CLOEXEC
            self._file = os.fdopen(os.open(f"{segment:020d}", flags, dir_fd=self._folder), "rb")
        except FileNotFoundError:
            return None
        self._file.seek(offset)
        return self._file

    def close(self) -> None:
        """Let go of it."""
        self._close_file()
        os.close(self._folder)

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _whole_records(file: BinaryIO) -> bytes:
    data = file.read(_PIECE)
    end = data.rfind(b"\n") + 1
    file.seek(end - len(data), os.SEEK_CUR)  # the rest of it is being written now
    return data[:end]


def _place(log: _Folder, after: bytes, tail_lines: int | None) -> _Place:
    """Where reading begins: after a time, and no earlier than so many lines before the end."""
    place = _place_after(log, after) if after else _BEFORE_ALL
    return place if tail_lines is None else max(place, _place_of_tail(log, tail_lines))


def _place_after(log: _Folder, time: bytes) -> _Place:
    for segment in reversed(log.segments()):
        file = log.open(segment)
        if file is not None and (start := file.read(TIME)) and start <= time:
            return segment, _offset_after(file, time)
    return _BEFORE_ALL


def _offset_after(file: BinaryIO, time: bytes) -> int:
    """Where the first record after the time begins, of a file in which all are in order."""
    low, high = 0, file.seek(0, os.SEEK_END)
    while low < high:
        middle = (low + high) // 2
        file.seek(max(0, middle - 1))
        if middle:
            file.readline()
        start = file.tell()
        record = file.readline()
        if start >= high or not record.endswith(b"\n") or record[:TIME] > time:
            high = middle
        else:
            low = start + len(record)
    return low


def _place_of_tail(log: _Folder, lines: int) -> _Place:
    missing = lines
    for segment in reversed(log.segments()):
        file = log.open(segment)
        if file is None:
            break  # the oldest has gone meanwhile
        position = file.seek(0, os.SEEK_END)
        if missing == 0:
            return segment, position
        missing += 1  # the line break before the first line that is wanted
        while position > 0:
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

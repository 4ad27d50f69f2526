"""Lines of logs as pages show them, and the part of a log that a page asks for."""

import re
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final

from job_tracker.common.printable import quoted
from job_tracker.domain.errors import InvalidField
from job_tracker.logs import records
from job_tracker.logs.positions import Position
from job_tracker.logs.reader import LogPiece, LogRequest
from job_tracker.logs.writing import time_at

LINES: Final = 1000
MOST_LINES: Final = 20_000
_MOST_BYTES: Final = 2 << 20
"""The length of the text, in characters, at which a page ends."""
_MOST_SEARCHED: Final = 64 << 20
"""The largest number of bytes that one search reads."""
_LONGEST_LINE: Final = 10_000
_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Line:
    """A printed line, its rank, and the time of its record. Links use the time as the line's position."""

    time: str
    rank: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The part of a log that a page shows."""

    rank: int | None
    """The rank. None: all ranks."""
    attempt: int
    """The number of the attempt. 0: the last attempt."""
    lines: int = LINES
    at: str = ""
    """The time of the first line, or "start" for the beginning of the log.

    Empty: the last lines of the log; with `find`, the first lines that contain the text `find`.
    """
    find: str = ""
    wrap: bool = False

    def request(self, attempt: int) -> LogRequest:
        """Return the request that reads this part of the attempt's log."""
        begun = LogRequest(rank=self.rank or 0, all_ranks=self.rank is None, attempt=attempt)
        if not self.at:
            return begun if self.find else replace(begun, tail_lines=self.lines)
        if self.at == "start":
            return begun
        if self.rank is None:
            return replace(begun, since=records.moment_of(self.at.encode()))
        before = time_at(max(0, records.nanoseconds(self.at.encode()) - 1))
        return replace(begun, position=str(Position(attempt, {self.rank: before})))

    def pairs(self, **changes: str) -> list[tuple[str, str]]:
        """Return the part as names and values for a URL. `changes` replace values of the part."""
        fields = {
            "rank": "all" if self.rank is None else str(self.rank),
            "attempt": str(self.attempt) if self.attempt else "",
            "lines": str(self.lines) if self.lines != LINES else "",
            "at": self.at,
            "find": self.find,
            "wrap": "1" if self.wrap else "",
        }
        return [(name, value) for name, value in {**fields, **changes}.items() if value]


def part_of(query: Mapping[str, str]) -> Part:
    """Read the query of a URL. Raises InvalidField if a value is not allowed."""
    rank, at, find = query.get("rank", "") or "0", query.get("at", ""), query.get("find", "")
    if at not in ("", "start") and not records.is_time(at.encode()):
        raise InvalidField(
            "at", f"{quoted(at)} is not the time of a line, such as 2026-11-24T12:00:00.000000000Z"
        )
    if len(find) > 200:
        raise InvalidField("find", "it is too long; at most 200 characters are allowed")
    return Part(
        rank=None if rank == "all" else _number("rank", rank, 0, 2**31 - 1),
        attempt=_number("attempt", query.get("attempt", "") or "0", 0, 2**31 - 1),
        lines=_number("lines", query.get("lines", "") or str(LINES), 1, MOST_LINES),
        at=at,
        find=find,
        wrap=query.get("wrap", "") == "1",
    )


@dataclass(frozen=True, slots=True)
class Read:
    """Lines that were read."""

    lines: list[Line]
    position: str
    """The position after the last piece; empty if nothing was read."""
    goes_on: bool
    """Whether the log may have further lines that were not read."""
    is_cut: bool = False
    """Whether earlier lines were left out because the length of the text is limited."""


async def read(pieces: AsyncGenerator[LogPiece, None], part: Part) -> Read:
    """Read the lines of a part from pieces of the log.

    If the part is too large, lines are left out: with `at` or `find`, the later ones; otherwise, the earlier
    ones.
    """
    kept: deque[Line] = deque()
    size, searched, position, is_cut = 0, 0, "", False
    wanted = part.find.casefold()
    async with aclosing(pieces):
        async for piece in pieces:
            position = str(piece.position)
            searched += len(piece.records)
            for line in lines_of(piece):
                if wanted and wanted not in line.text.casefold():
                    continue
                kept.append(line)
                size += len(line.text)
                if (part.at or wanted) and (len(kept) >= part.lines or size >= _MOST_BYTES):
                    return Read(list(kept), position, goes_on=True)
                while size > _MOST_BYTES and len(kept) > 1:
                    is_cut, size = True, size - len(kept.popleft().text)
            if wanted and searched >= _MOST_SEARCHED:
                return Read(list(kept), position, goes_on=True)
    return Read(list(kept), position, goes_on=False, is_cut=is_cut)


def lines_of(piece: LogPiece) -> Iterator[Line]:
    """Yield the lines of a piece.

    A line that consists of several records is yielded once, with the time of its first record.
    """
    began, parts = b"", list[bytes]()
    for record in records.records_of(piece.records):
        began = began or record[: records.TIME]
        parts.append(records.text_bytes(record))
        if records.is_partial(record):
            continue
        if records.is_time(began):
            yield Line(began.decode(), piece.rank, shown(b"".join(parts).decode(errors="replace")))
        began, parts = b"", []
    if parts and records.is_time(began):
        yield Line(began.decode(), piece.rank, shown(b"".join(parts).decode(errors="replace")))


def shown(text: str) -> str:
    """Return a line without escape sequences for terminals, and shortened if it is very long.

    If a progress bar has overwritten the line, return only the last version.
    """
    text = _ESCAPES.sub("", text.rstrip("\r\n"))
    text = text.rpartition("\r")[2] if "\r" in text else text
    text = _CONTROLS.sub("\ufffd", text)
    return text if len(text) <= _LONGEST_LINE else f"{text[:_LONGEST_LINE]} … ({len(text)} characters)"


def _number(name: str, text: str, least: int, most: int) -> int:
    is_number = text.isascii() and text.isdecimal() and len(text) < 20
    if not is_number or not least <= int(text) <= most:
        raise InvalidField(name, f"{quoted(text)} is not allowed; allowed: {least} to {most}")
    return int(text)

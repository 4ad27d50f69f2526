"""What the tests of logs share."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from pathlib import Path

from job_tracker.logs.archive import LogArchive
from job_tracker.logs.collector import LogCollector
from job_tracker.logs.records import text_of
from job_tracker.logs.spool import Spool
from job_tracker.logs.writing import RecordMaker, time_at
from job_tracker.store.base import Store

SECOND = 10**9
NOON = 1_795_262_400 * SECOND


def collector(store: Store, spool: Spool, folder: Path) -> LogCollector:
    """One that keeps logs below a folder."""
    return LogCollector(store, spool, LogArchive(str(folder / "storage" / "logs")))


def record(text: str, at: float = 0) -> bytes:
    """A line that was printed so many seconds after noon."""
    return b"%b F %b\n" % (time(at), text.encode())


def time(at: float) -> bytes:
    """So many seconds after noon, as the time of a record."""
    return time_at(NOON + round(at * SECOND))


def records(*lines: str, first: float = 0) -> bytes:
    """Lines that were printed a second after each other."""
    return b"".join(record(line, first + number) for number, line in enumerate(lines))


def made(text: str) -> bytes:
    """The records of a whole log."""
    maker = RecordMaker()
    return maker.records(text.encode()) + maker.rest()


async def pieces_of(pieces: Iterable[bytes]) -> AsyncGenerator[bytes, None]:
    """Pieces that are all there."""
    for piece in pieces:
        yield piece


async def texts_of(pieces: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """What was printed, piece by piece."""
    async for piece in pieces:
        yield text_of(piece)

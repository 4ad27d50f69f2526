"""Records and collectors for the tests of logs."""

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
    """Return a collector that keeps logs in a folder."""
    return LogCollector(store, spool, LogArchive(str(folder / "storage" / "logs")))


def record(text: str, at: float = 0) -> bytes:
    """Return the record of a line that was printed `at` seconds after noon."""
    return b"%b F %b\n" % (time(at), text.encode())


def time(at: float) -> bytes:
    """Return the time `at` seconds after noon, in the form of records."""
    return time_at(NOON + round(at * SECOND))


def records(*lines: str, first: float = 0) -> bytes:
    """Return the records of lines that were printed one second apart, the first one `first` seconds after
    noon.
    """
    return b"".join(record(line, first + number) for number, line in enumerate(lines))


def made(text: str) -> bytes:
    """Return the records of a whole log with this text."""
    maker = RecordMaker()
    return maker.records(text.encode()) + maker.rest()


async def pieces_of(pieces: Iterable[bytes]) -> AsyncGenerator[bytes, None]:
    """Yield the pieces at once."""
    for piece in pieces:
        yield piece


async def texts_of(pieces: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """Yield the printed text of each piece."""
    async for piece in pieces:
        yield text_of(piece)

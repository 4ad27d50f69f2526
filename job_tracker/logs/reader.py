"""Reads logs: of running groups from the backend; of ended groups from storage, or else from the backend."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import NamedTuple

from job_tracker.common.printable import quoted
from job_tracker.domain.caller import Caller
from job_tracker.domain.errors import InvalidField, LogsNotFound, StorageUnavailable
from job_tracker.domain.group import Phase
from job_tracker.domain.job import Job
from job_tracker.logs.archive import LogArchive
from job_tracker.logs.live import LiveLogs
from job_tracker.logs.merging import WINDOW_SECONDS, merged
from job_tracker.logs.open_logs import OF_ENDED, OF_LIVE, LogBounds, OpenLogs
from job_tracker.logs.positions import Position
from job_tracker.logs.records import BEGINNING, is_time, last_time, text_of, time_of, timed_text_of
from job_tracker.store.jobs import JobReader

_LOG_SECONDS = 0.2  # between two checks whether a live rank has a log
_IN_POSITION = 40  # bytes of one rank in the text of a position


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRequest:
    """Selects a log, or a part of it."""

    rank: int = 0
    all_ranks: bool = False
    """Read all ranks, merged by time."""
    attempt: int = 0
    """The number of the attempt. 0: the last attempt."""
    follow: bool = False
    tail_lines: int | None = None
    """Read only the last `tail_lines` lines of each rank's log and, with `follow`, new ones. None: all."""
    since: datetime | None = None
    position: str = ""
    """The position of an earlier piece, after which reading continues."""


@dataclass(frozen=True, slots=True)
class LogPiece:
    """A part of one rank's log, and the position after it."""

    records: bytes
    rank: int
    position: Position

    @property
    def size(self) -> int:
        """Return the approximate size in bytes of the message with this piece and its position.

        A position has a time for each rank.
        """
        return len(self.records) + _IN_POSITION * len(self.position.read)

    @property
    def attempt(self) -> int:
        """The number of the attempt that printed the piece."""
        return self.position.attempt

    @property
    def text(self) -> str:
        """The printed text: whole lines, except for a log's last line and for parts of very long lines."""
        return text_of(self.records)

    @property
    def timed_text(self) -> str:
        """The printed text with the time before each line."""
        return timed_text_of(self.records)


class _RankLog(NamedTuple):
    """A log that a caller reads."""

    caller: Caller
    attempt: int
    rank: int
    follow: bool


class LogReader:
    """Reads the logs of running and of ended attempts."""

    def __init__(
        self,
        store: JobReader,
        backend: LiveLogs,
        archive: LogArchive,
        live: LogBounds = OF_LIVE,
        ended: LogBounds = OF_ENDED,
    ) -> None:
        self._store = store
        self._backend = backend
        self._archive = archive
        self._live = OpenLogs("running", live)
        self._kept = OpenLogs("ended", ended)

    async def read(self, caller: Caller, job_id: int, wanted: LogRequest) -> AsyncGenerator[LogPiece, None]:
        """Yield the output of an attempt; nothing if there is no log.

        With `follow`, new output is yielded until the attempt has ended; if `attempt` is 0, until the job has
        ended. Raises JobNotFound, BackendUnavailable and StorageUnavailable. Raises LimitExceeded if too many
        logs are open, and InvalidField, for example for a rank or attempt that the job does not have.
        """
        job = await self._store.get(job_id)
        position = _start(job, wanted)
        after = BEGINNING if wanted.since is None else time_of(wanted.since)
        tail_lines = wanted.tail_lines
        while True:
            if wanted.follow:
                job = await self._at_attempt(job_id, position.attempt)
            if job.attempt < position.attempt:
                return
            ranks = range(_instances(job, position.attempt)) if wanted.all_ranks else (wanted.rank,)
            logs = {
                rank: self._log(
                    _RankLog(caller, position.attempt, rank, wanted.follow),
                    job,
                    max(after, position.after(rank)),
                    tail_lines,
                )
                for rank in ranks
            }
            async with aclosing(_together(logs, follow=wanted.follow)) as pieces:
                async for rank, records in pieces:
                    if is_time(time := last_time(records)):  # false if training code wrote to the file
                        position = position.moved(rank, time)
                    yield LogPiece(records, rank, position)
            if wanted.attempt or not wanted.follow:
                return
            position, tail_lines = Position(position.attempt + 1), None

    async def _log(
        self, wanted: _RankLog, job: Job, after: bytes, tail_lines: int | None
    ) -> AsyncGenerator[bytes, None]:
        """Yield a rank's log; with `follow`, also what the rank prints after restarts within the attempt."""
        while True:
            async with aclosing(self._log_of_start(wanted, job, after, tail_lines)) as pieces:
                async for piece in pieces:
                    after, tail_lines = last_time(piece), None
                    yield piece
            if not (wanted.follow and job.spec.group.elastic and _goes_on(job, wanted.attempt)):
                return
            job = await self._until_restarted(job, wanted.attempt, wanted.rank)

    async def _log_of_start(
        self, wanted: _RankLog, job: Job, after: bytes, tail_lines: int | None
    ) -> AsyncGenerator[bytes, None]:
        """Yield the log of one start of a rank. With `follow`, wait for new lines until the rank ends.

        After a restart of the rank, `_log` calls this method again.
        """
        caller, attempt, rank, follow = wanted
        group = job.groups[attempt - 1]
        living = self._live, partial(self._backend.logs, group, rank, follow=follow)
        kept = self._kept, partial(self._archive.logs, group, rank)
        while True:
            is_live, away = _is_live(job, attempt), None
            # Once the end of the attempt is decided, the log may move from its machine to storage at any
            # moment, even between the tries below. So storage is tried twice.
            may_move = not _goes_on(job, attempt)
            for bounded, source in (kept, living, kept) if may_move else (living,):
                try:
                    with bounded.one(caller, job.id):
                        async with aclosing(source(after=after, tail_lines=tail_lines)) as pieces:
                            async for piece in pieces:
                                after, tail_lines = last_time(piece), None
                                yield piece
                    return
                except LogsNotFound:
                    continue
                except StorageUnavailable as error:
                    away = error
            if away is not None:
                raise away
            if not is_live:
                return
            if follow:
                await asyncio.sleep(_LOG_SECONDS)
            job = await self._store.get(job.id)
            if not follow and (_goes_on(job, attempt) or (may_move and _is_live(job, attempt))):
                return  # there is no log

    async def _until_restarted(self, read: Job, attempt: int, rank: int) -> Job:
        """Wait until the rank has started again, or the end of its attempt is decided. Return the job.

        `read` is the version of the job with which the log of the previous start was read.
        """
        with self._store.changes(read.id) as changes:
            while True:
                job = await self._store.get(read.id)
                if not _goes_on(job, attempt) or _starts(job, rank) > _starts(read, rank):
                    return job
                await anext(changes)

    async def _at_attempt(self, job_id: int, attempt: int) -> Job:
        """Wait until the job has reached this attempt or has ended, and return it."""
        with self._store.changes(job_id) as changes:
            while True:
                job = await self._store.get(job_id)
                if job.attempt >= attempt or job.state.is_terminal:
                    return job
                await anext(changes)


def _together(
    logs: dict[int, AsyncGenerator[bytes, None]], *, follow: bool
) -> AsyncGenerator[tuple[int, bytes], None]:
    if len(logs) == 1:
        return _with_rank(*next(iter(logs.items())))
    return merged(logs, window=WINDOW_SECONDS if follow else None)


async def _with_rank(
    rank: int, pieces: AsyncGenerator[bytes, None]
) -> AsyncGenerator[tuple[int, bytes], None]:
    async with aclosing(pieces):
        async for piece in pieces:
            yield rank, piece


def _instances(job: Job, attempt: int) -> int:
    """Return the number of instances of the attempt; for earlier attempts, the number the job asks for."""
    return job.instances if job.attempt == attempt else job.spec.instances


def _is_live(job: Job, attempt: int) -> bool:
    return job.state.is_live and job.attempt == attempt


def _goes_on(job: Job, attempt: int) -> bool:
    """Return whether the attempt is live, and its end is not decided."""
    return _is_live(job, attempt) and job.ending is None


def _starts(job: Job, rank: int) -> int:
    """Return how many starts of the rank were observed in its attempt."""
    if rank >= len(job.ranks):
        return 0
    status = job.ranks[rank]
    return status.restarts + (status.phase is not Phase.PENDING)


def _start(job: Job, wanted: LogRequest) -> Position:
    """Return the position at which reading begins. Raises InvalidField if `wanted` does not fit the job."""
    latest = max(job.attempt, 1)
    if not wanted.all_ranks and not 0 <= wanted.rank < job.spec.instances:
        raise InvalidField(
            "rank", f"{wanted.rank} is not a rank of job {job.id}; allowed: 0 to {job.spec.instances - 1}"
        )
    if wanted.all_ranks and wanted.rank:
        raise InvalidField("rank", f"{wanted.rank} is not allowed with all_ranks; leave out one of them")
    if not 0 <= wanted.attempt <= latest:
        raise InvalidField(
            "attempt",
            f"{wanted.attempt} is not an attempt of job {job.id}; allowed: 0 (the latest) to {latest}",
        )
    if wanted.tail_lines is not None and wanted.tail_lines < 0:
        raise InvalidField("tail_lines", f"{wanted.tail_lines} is not allowed; at least 0 is allowed")
    if not wanted.position:
        return Position(wanted.attempt or latest)
    if wanted.tail_lines is not None:
        raise InvalidField(
            "tail_lines", f"{wanted.tail_lines} is not allowed with position; leave out one of them"
        )
    position = Position.parse(wanted.position)
    if not 1 <= position.attempt <= latest or wanted.attempt not in (0, position.attempt):
        raise InvalidField(
            "position", f"{quoted(wanted.position)} belongs to a different attempt than the request"
        )
    if position.read and (rank := max(position.read)) >= job.spec.instances:
        raise InvalidField(
            "position",
            f"rank {rank} is not a rank of job {job.id}; send the position of an earlier response "
            "for this job",
        )
    return position

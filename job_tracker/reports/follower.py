"""Follows the logs of running masters to find reports."""

import asyncio
import logging
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from datetime import datetime

from job_tracker.common.backoff import Backoff
from job_tracker.common.tasks import background, end
from job_tracker.domain.errors import (
    AttemptOver,
    BackendUnavailable,
    LogsNotFound,
    StoreUnavailable,
    TrackerError,
)
from job_tracker.domain.group import MASTER_RANK, GroupRef
from job_tracker.domain.job import Job
from job_tracker.domain.progress import Progress
from job_tracker.logs.live import LiveLogs
from job_tracker.logs.records import BEGINNING, last_time, lines_of
from job_tracker.reports.buffer import Attempt, ReportBuffer
from job_tracker.reports.lines import parse
from job_tracker.reports.report import Report
from job_tracker.reports.turns import Turns

log = logging.getLogger(__name__)

_TAIL_LINES = 200  # the first turn begins at most this many lines before the end of a log
_DRAIN_SECONDS = 2.0
_PLACES = 128
"""The largest number of logs that are followed at the same time.

On Kubernetes, each of these logs needs a connection. All readers of logs share a limit on connections.
"""
_TURN_SECONDS = 5.0
_LONGEST_PAUSE = 300.0  # seconds between two turns of a silent log, while other logs wait


@dataclass(slots=True)
class _Follower:
    """The position in the log of a group, and the task that reads it."""

    group: GroupRef
    after: bytes = BEGINNING
    has_reported: bool = False
    """True if a report was found in the log."""
    is_reading: bool = False
    known: Progress | None = None
    """The progress of the attempt when following began."""
    task: asyncio.Task[None] | None = None
    """None if the attempt reports by calls."""

    @property
    def attempt(self) -> Attempt:
        return self.group.job_id, self.group.attempt


class LogFollower:
    """Follows the log of each running group until the group is stopped.

    Groups that report by calls are not followed. A bounded number of logs is followed at the same time. If
    there are more logs, they take turns, and reports come later. The first turn of a log begins with its last
    _TAIL_LINES lines; each later turn continues where the previous turn stopped.
    """

    def __init__(
        self,
        buffer: ReportBuffer,
        backend: LiveLogs,
        turns: Turns | None = None,
    ) -> None:
        self._buffer = buffer
        self._backend = backend
        self._turns = turns or Turns(_PLACES, _TURN_SECONDS)
        self._followers: dict[Attempt, _Follower] = {}
        buffer.on_call = self._reports_by_calls

    def follow(self, job: Job) -> None:
        """Follow the log of the job's group, unless it is followed or the attempt reports by calls."""
        attempt = (job.id, job.attempt)
        if attempt in self._followers:
            return
        follower = self._followers[attempt] = _Follower(job.group)
        if not self._buffer.has_called(attempt):
            follower.task = background(self._follow(follower), f"reports of job {job.id}")

    async def finish(self, group: GroupRef) -> None:
        """Read the last reports of an ended group, and write them to the store."""
        attempt = (group.job_id, group.attempt)
        follower = self._followers.pop(attempt, None)
        if follower is not None and (task := follower.task) is not None:
            if follower.is_reading:
                await asyncio.wait([task], timeout=_DRAIN_SECONDS)
            await end(task)
            # A live log may end early while its group is stopped. After the stop, the whole log can be read.
            try:
                async with asyncio.timeout(_DRAIN_SECONDS):
                    await self._read_to_the_end(follower)
            except (LogsNotFound, AttemptOver):
                pass
            except (TrackerError, TimeoutError) as error:
                why = str(error) or f"its log was not read within {_DRAIN_SECONDS:g} s"
                log.warning("job %d: its last reports may be missing: %s", group.job_id, why)
        with suppress(TrackerError):  # a lost report must not delay the end of the job
            await self._buffer.write()
        self._buffer.close(attempt)

    async def close(self) -> None:
        """Stop following all logs."""
        for follower in self._followers.values():
            if follower.task is not None:
                await end(follower.task)
        self._followers.clear()

    def _reports_by_calls(self, attempt: Attempt) -> None:
        """Stop following the log of an attempt that has reported by a call."""
        follower = self._followers.get(attempt)
        if follower is not None and follower.task is not None:
            follower.task.cancel()
            follower.task = None

    async def _follow(self, follower: _Follower) -> None:
        """Read the log to its end, in turns."""
        backoff = Backoff(2 * self._turns.seconds, _LONGEST_PAUSE)
        stored: datetime | None = None
        try:
            while True:
                before = follower.after
                try:
                    if await self._is_read_to_its_end(follower):
                        return
                    earlier, stored = stored, await self._buffer.stored_at(follower.attempt)
                except (BackendUnavailable, StoreUnavailable) as error:
                    job_id = follower.group.job_id
                    log.warning("job %d: its log cannot be read for reports now: %s", job_id, error)
                else:
                    if earlier is not None and stored != earlier and not follower.has_reported:
                        follower.task = None  # the attempt reports by calls to another replica
                        return
                if follower.after == before:
                    await asyncio.sleep(backoff.next())
                else:
                    backoff.reset()
        except (LogsNotFound, AttemptOver):
            pass
        except TrackerError as error:
            log.warning("job %d: its log is no longer followed for reports: %s", follower.group.job_id, error)

    async def _is_read_to_its_end(self, follower: _Follower) -> bool:
        """Read for one turn. Return whether the log has ended."""
        if follower.known is None:
            follower.known = await self._buffer.progress_of(follower.attempt)
        async with self._turns.one() as turn:
            follower.is_reading = True
            try:
                await self._read(follower, follower.known, follow=True)
            finally:
                follower.is_reading = False
        return not turn.expired()

    async def _read_to_the_end(self, follower: _Follower) -> None:
        """Read the rest of the log of an ended group, from where this follower stopped."""
        known = await self._buffer.progress_of(follower.attempt)
        await self._read(follower, known, follow=False)

    async def _read(self, follower: _Follower, known: Progress, *, follow: bool) -> None:
        tail_lines = None if follower.after else _TAIL_LINES
        pieces = self._backend.logs(
            follower.group, MASTER_RANK, follow=follow, after=follower.after, tail_lines=tail_lines
        )
        async with aclosing(pieces):
            async for piece in pieces:
                for at, line in lines_of(piece):
                    step = (await self._buffer.progress_of(follower.attempt)).step
                    if report := parse(line, at, step):
                        follower.has_reported = True
                        await self._buffer.take(follower.attempt, _news(report, known))
                follower.after = last_time(piece)


def _news(report: Report, known: Progress) -> Report:
    """Return the report without the points that an earlier follower of this log has already added."""
    if known.reported_at is None:
        return report
    return replace(report, points=[point for point in report.points if point.step > known.step])

"""Follows what running masters print, for the reports in it."""

import asyncio
import logging
from contextlib import suppress
from dataclasses import replace
from typing import Any

from job_tracker.backends.base import Backend
from job_tracker.errors import AttemptOver, LogsNotFound, TrackerError
from job_tracker.logs.records import lines_of
from job_tracker.model import MASTER_RANK, GroupRef, Job, Progress
from job_tracker.reports.book import ReportBook
from job_tracker.reports.lines import parse
from job_tracker.reports.report import Report

log = logging.getLogger(__name__)

# A log that is taken up again is read from near its end: what came before is in the store.
_TAIL_LINES = 200
_DRAIN_SECONDS = 2.0


class LogFollower:
    """One follower for each running group, from when it runs until it is stopped."""

    def __init__(self, book: ReportBook, backend: Backend[Any]) -> None:
        self._book = book
        self._backend = backend
        self._followers: dict[GroupRef, asyncio.Task[None]] = {}

    def follow(self, job: Job) -> None:
        """See to it that the job's group is followed."""
        if job.group not in self._followers:
            self._followers[job.group] = asyncio.create_task(
                self._follow(job.group), name=f"reports-{job.id}"
            )

    async def finish(self, group: GroupRef) -> None:
        """Take in, and write down, what an ended group reported last."""
        follower = self._followers.pop(group, None)
        if follower is not None:
            await asyncio.wait([follower], timeout=_DRAIN_SECONDS)
            await _cancel(follower)
        with suppress(TrackerError):  # its end matters more
            await self._book.write()
        self._book.close((group.job_id, group.attempt))

    async def close(self) -> None:
        """Follow nothing any more."""
        for follower in self._followers.values():
            await _cancel(follower)
        self._followers.clear()

    async def _follow(self, group: GroupRef) -> None:
        attempt = (group.job_id, group.attempt)
        try:
            known = await self._book.progress_of(attempt)
            pieces = self._backend.logs(group, MASTER_RANK, follow=True, tail_lines=_TAIL_LINES)
            async for piece in pieces:
                for at, line in lines_of(piece):
                    step = (await self._book.progress_of(attempt)).step
                    if report := parse(line, at, step):
                        await self._book.take(attempt, _news(report, known))
        except (LogsNotFound, AttemptOver):
            pass
        except TrackerError as error:
            log.warning("job %d: its reports are not followed any more: %s", group.job_id, error)


def _news(report: Report, known: Progress) -> Report:
    """The report without points that an earlier follower of this log has taken already."""
    if known.reported_at is None:
        return report
    return replace(report, points=[point for point in report.points if point.step > known.step])


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task

"""Takes reports in as they come, and writes them down together now and then."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from job_tracker.domain.errors import AttemptOver, JobNotFound, StoreUnavailable
from job_tracker.domain.job import Job, Progress
from job_tracker.domain.telemetry import Artifact, AttemptReport, MetricPoint
from job_tracker.reports.report import Report, advanced
from job_tracker.store.jobs import JobReader
from job_tracker.store.reports import ReportStore

log = logging.getLogger(__name__)

_WRITE_SECONDS = 0.5
_MOST_WAITING_POINTS = 10_000  # of an attempt, while the store is away
_IDLE = timedelta(minutes=10)
_MOST_ATTEMPTS = 100_000

Attempt = tuple[int, int]
"""A job's id and the number of an attempt."""


@dataclass(slots=True)
class _Page:
    """What is known of one attempt, and what of it is not written yet."""

    progress: Progress
    heard_at: datetime
    has_called: bool = False
    points: list[MetricPoint] = field(default_factory=list)
    artifacts: list[Artifact] = field(default_factory=list)


class _Store(JobReader, ReportStore, Protocol):
    """What the buffer needs of a store."""


class ReportBuffer:
    """Reports of all attempts that report to this replica.

    To take one costs no write: what came within half a second is written at once, of all jobs together,
    so that many reporters share a commit. What is not written when the service dies is lost; the next
    report says more.
    """

    def __init__(self, store: _Store, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._clock = clock
        self._pages: dict[Attempt, _Page] = {}
        self._changed: dict[Attempt, None] = {}
        self._wake = asyncio.Event()
        self._writing = asyncio.Lock()
        self.on_call: Callable[[Attempt], None] = _ignore
        """Is called with an attempt at its first report by a call: its log need not be read for any."""

    async def take(self, attempt: Attempt, report: Report, *, by_call: bool = False) -> None:
        """Take a report in. Raises AttemptOver if the attempt is not the one that the job is at, and live."""
        page = self._pages.get(attempt) or await self._open(attempt)
        if by_call and not page.has_called:
            page.has_called = True
            self.on_call(attempt)
        page.heard_at = self._clock()
        self._pages[attempt] = self._pages.pop(attempt, page)  # the last to be heard is the last of them
        page.progress = advanced(page.progress, report, page.heard_at)
        page.points += report.points
        page.artifacts += report.artifacts
        del page.points[:-_MOST_WAITING_POINTS]
        self._changed[attempt] = None
        self._wake.set()

    async def progress_of(self, attempt: Attempt) -> Progress:
        """What was reported last. Raises AttemptOver."""
        return (self._pages.get(attempt) or await self._open(attempt)).progress

    async def stored_at(self, attempt: Attempt) -> datetime | None:
        """When the attempt reported last, as far as any replica has written that. Raises AttemptOver."""
        return ((await self._live(attempt)).progress or Progress()).reported_at

    def has_called(self, attempt: Attempt) -> bool:
        """Whether the attempt has reported to this replica by a call."""
        page = self._pages.get(attempt)
        return page is not None and page.has_called

    @property
    def reporters(self) -> int:
        """How many attempts report to this replica."""
        return len(self._pages)

    async def run(self) -> None:
        """Write until cancelled, and then what is left."""
        try:
            while True:
                await self._wake.wait()
                await asyncio.sleep(_WRITE_SECONDS)
                await self._write_if_possible()
        finally:
            await self._write_if_possible()

    async def _write_if_possible(self) -> None:
        try:
            await self.write()
        except StoreUnavailable as error:
            log.debug("reports wait: %s", error)
        except Exception:  # were the writing to end, no report of any job would be kept
            log.exception("reports cannot be written")

    async def write(self) -> None:
        """Write what is not written yet. Raises StoreUnavailable; then it is kept for the next time."""
        async with self._writing:
            self._wake.clear()
            attempts = list(self._changed)
            if not attempts:  # as at the end of most jobs: each would wait for the commits of those before it
                return
            self._changed.clear()
            reports = [self._unwritten(attempt) for attempt in attempts]
            try:
                accepted = await self._store.record_reports(reports)
            except BaseException:
                self._keep(reports)
                raise
        for attempt, was_accepted in zip(attempts, accepted, strict=True):
            if not was_accepted:
                self.close(attempt)  # the next report is refused when its page is opened
        self._close_idle()

    def close(self, attempt: Attempt) -> None:
        """Forget an attempt that has ended."""
        self._pages.pop(attempt, None)
        self._changed.pop(attempt, None)

    def _close_idle(self) -> None:
        """Forget who has not reported for long: of most, another replica has seen the end."""
        while self._pages:
            attempt, page = next(iter(self._pages.items()))  # the one whose last report is the oldest
            if attempt in self._changed or self._clock() - page.heard_at < _IDLE:
                return
            self.close(attempt)

    async def _open(self, attempt: Attempt) -> _Page:
        job = await self._live(attempt)
        while len(self._pages) >= _MOST_ATTEMPTS:
            self.close(next(iter(self._pages)))
        return self._pages.setdefault(attempt, _Page(job.progress or Progress(), self._clock()))

    async def _live(self, attempt: Attempt) -> Job:
        """The job, which is at this attempt. Raises AttemptOver."""
        job_id, number = attempt
        try:
            job = await self._store.get(job_id)
        except JobNotFound:
            raise AttemptOver(*attempt) from None
        if job.attempt != number or not job.state.is_live:
            raise AttemptOver(*attempt)
        return job

    def _unwritten(self, attempt: Attempt) -> AttemptReport:
        page = self._pages[attempt]
        points, artifacts = tuple(page.points), tuple(page.artifacts)
        page.points.clear()
        page.artifacts.clear()
        job_id, number = attempt
        return AttemptReport(
            job_id=job_id,
            attempt=number,
            at=self._clock(),
            progress=page.progress,
            points=points,
            artifacts=artifacts,
        )

    def _keep(self, reports: Sequence[AttemptReport]) -> None:
        for report in reports:
            attempt = (report.job_id, report.attempt)
            if page := self._pages.get(attempt):
                page.points[:0] = report.points
                page.artifacts[:0] = report.artifacts
                self._changed[attempt] = None
        self._wake.set()


def _ignore(attempt: Attempt) -> None:
    """For a book whose reader does not care."""

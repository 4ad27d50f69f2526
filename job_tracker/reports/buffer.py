"""Buffers reports, and writes the reports of all jobs together to the store."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Protocol

from job_tracker.domain.errors import AttemptOver, JobNotFound, StoreUnavailable
from job_tracker.domain.job import Job
from job_tracker.domain.pace import RankPace
from job_tracker.domain.policies import NumberPolicy
from job_tracker.domain.progress import Progress
from job_tracker.domain.telemetry import Artifact, AttemptReport, MetricPoint
from job_tracker.reports.ranks import RankBoard
from job_tracker.reports.report import Report, advanced
from job_tracker.store.jobs import JobReader
from job_tracker.store.reports import ReportStore

log = logging.getLogger(__name__)

_WRITE_SECONDS = 0.5
_MOST_WAITING = 10_000  # points, and artifacts, of one attempt while the store is unavailable
_IDLE = timedelta(minutes=10)
_MOST_ATTEMPTS = 100_000

Attempt = tuple[int, int]
"""A job's id and the number of an attempt."""


@dataclass(slots=True)
class _Page:
    """The state of one attempt, and its unwritten points and artifacts."""

    progress: Progress
    heard_at: datetime
    numbers: NumberPolicy
    has_called: bool = False
    points: list[MetricPoint] = field(default_factory=list)
    artifacts: list[Artifact] = field(default_factory=list)


class _Store(JobReader, ReportStore, Protocol):
    """The part of a store that the buffer uses."""


class ReportBuffer:
    """Reports of all attempts that report to this replica.

    A new report is kept only in memory at first. Every half second, the new reports of all jobs are written
    in one commit. A crash of the service loses unwritten reports; the progress is up to date again after the
    next report.
    """

    def __init__(self, store: _Store, clock: Callable[[], datetime], ranks: RankBoard | None = None) -> None:
        self.ranks = ranks or RankBoard(now=clock)
        """The positions of the attempts' processes."""
        self._store = store
        self._clock = clock
        self._pages: dict[Attempt, _Page] = {}
        self._changed: dict[Attempt, None] = {}
        self._wake = asyncio.Event()
        self._writing = asyncio.Lock()
        self.on_call: Callable[[Attempt], None] = _ignore
        """A function that is called with an attempt when the attempt first reports to this replica by a call.

        After that, the log of the attempt need not be followed any longer.
        """

    async def take(
        self, attempt: Attempt, report: Report, *, by_call: bool = False, ago: float = 0.0
    ) -> None:
        """Add a report of values that are `ago` seconds old.

        Raises AttemptOver if the attempt is not the live attempt of its job. If the attempt has reported
        before, its end may be noticed only at the next write.
        """
        page = self._pages.get(attempt) or await self._open(attempt)
        if by_call and not page.has_called:
            page.has_called = True
            self.on_call(attempt)
        page.heard_at = self._clock()
        self._pages[attempt] = self._pages.pop(
            attempt, page
        )  # move the page to the end: pages are in the order of their latest reports
        page.progress = advanced(page.progress, report, page.heard_at, page.numbers.forbids)
        page.points += report.points
        page.artifacts += report.artifacts
        del page.points[:-_MOST_WAITING], page.artifacts[:-_MOST_WAITING]
        self._note_change(attempt)
        self.ranks.has_moved(attempt, has_all_steps=page.progress.has_all_steps, ago=ago)

    def show_ranks(self, attempt: Attempt, ranks: tuple[RankPace, ...]) -> None:
        """Set the pace of the processes, if the attempt has reported. It is written with the reports."""
        page = self._pages.get(attempt)
        if page is not None and page.progress.ranks != ranks:
            page.progress = replace(page.progress, ranks=ranks)
            self._note_change(attempt)

    def _note_change(self, attempt: Attempt) -> None:
        self._changed[attempt] = None
        self._wake.set()

    async def progress_of(self, attempt: Attempt) -> Progress:
        """Return the latest progress. Raises AttemptOver if the attempt is not the live attempt of its job.

        If the attempt has reported before, its end may be noticed only at the next write.
        """
        return (self._pages.get(attempt) or await self._open(attempt)).progress

    async def check(self, attempt: Attempt) -> None:
        """Raise AttemptOver unless the attempt is the live attempt of its job.

        If the attempt has reported before, its end may be noticed only at the next write.
        """
        if self.ranks.watches(attempt):
            await self.progress_of(attempt)  # the first call keeps the attempt in memory, for later checks
        else:
            await self.live_job(attempt)

    async def stored_at(self, attempt: Attempt) -> datetime | None:
        """Return the time of the attempt's latest report in the store, from any replica; None: no report.

        Raises AttemptOver.
        """
        return ((await self.live_job(attempt)).progress or Progress()).reported_at

    def has_called(self, attempt: Attempt) -> bool:
        """Return whether the attempt has reported to this replica by a call."""
        page = self._pages.get(attempt)
        return page is not None and page.has_called

    @property
    def reporters(self) -> int:
        """Return the number of attempts that report to this replica."""
        return len(self._pages)

    async def run(self) -> None:
        """Write periodically until cancelled, then write the remaining reports."""
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
            log.debug("reports are not written yet: %s", error)
        except Exception:  # the loop must continue, for the reports of all jobs
            log.exception("reports cannot be written")

    async def write(self) -> None:
        """Write the unwritten reports.

        Raises StoreUnavailable; the reports are then kept for the next try.
        """
        async with self._writing:
            self._wake.clear()
            attempts = list(self._changed)
            if not attempts:  # this is common at the end of a job: do not wait for a commit
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
                self.close(attempt)  # the next report raises AttemptOver
        self._close_idle()

    def close(self, attempt: Attempt) -> None:
        """Forget an attempt that has ended."""
        self._pages.pop(attempt, None)
        self._changed.pop(attempt, None)

    def _close_idle(self) -> None:
        """Forget attempts that have not reported for a long time.

        Usually, another replica has handled their ends.
        """
        while self._pages:
            attempt, page = next(iter(self._pages.items()))  # the attempt whose last report is the oldest
            if attempt in self._changed or self._clock() - page.heard_at < _IDLE:
                return
            self.close(attempt)

    async def _open(self, attempt: Attempt) -> _Page:
        job = await self.live_job(attempt)
        while len(self._pages) >= _MOST_ATTEMPTS:
            self.close(next(iter(self._pages)))
        page = _Page(job.progress or Progress(), self._clock(), job.spec.numbers)
        return self._pages.setdefault(attempt, page)

    async def live_job(self, attempt: Attempt) -> Job:
        """Return the job of the attempt. Raises AttemptOver if the attempt is not the job's live attempt."""
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
            at=page.heard_at,
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
    """Do nothing. The default of `on_call`."""

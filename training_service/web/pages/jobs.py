"""The list of jobs."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from starlette.responses import Response

from job_tracker.domain.caller import Caller
from job_tracker.domain.errors import InvalidField, StoreUnavailable, TrackerError
from job_tracker.domain.job import Job, JobState
from job_tracker.jobs import JobView, Page
from job_tracker.store.jobs import Changes
from training_service.web import live as streams
from training_service.web.filters import Wanted, wanted
from training_service.web.pages.account import local
from training_service.web.row_list import RowList, whole
from training_service.web.shared import digest_of, rights_of
from training_service.web.templates import render
from training_service.web.visits import Parts, Visit, see

_AWAY_SECONDS: Final = 3.0
MOST_SELECTED: Final = 100


@dataclass(frozen=True, slots=True)
class Row:
    """A job in a list."""

    job: Job
    position: int
    began: datetime | None
    """The time when the job's state began.

    For an ended job, the time when it last began to run; if it never ran, the time when it was submitted.
    """
    lasted: timedelta | None
    """The time from `began` to the end of the job. None: the job has not ended."""

    @property
    def share(self) -> float | None:
        """The part of the job's steps that is done. None: unknown."""
        progress = self.job.progress
        if progress is None or not progress.total_steps:
            return None
        return min(1.0, progress.step / progress.total_steps)


def row_of(view: JobView) -> Row:
    """Return the row of a job."""
    job = view.job
    if job.finished_at is not None:
        began = job.started_at or job.submitted_at
        return Row(job, view.position, began, job.finished_at - began)
    moves = [move.at for move in job.history if not move.is_restart]
    return Row(job, view.position, moves[-1] if moves else job.submitted_at, None)


async def home(_visit: Visit) -> Response:
    """Redirect to the list of jobs."""
    return see("/jobs")


async def table(visit: Visit) -> Response:
    """Show a page of jobs, newest first, and the filter."""
    filtered = wanted(visit.request.query_params)
    page = await _page(visit, filtered, visit.who)
    projects = await visit.parts.access.list_projects(visit.who)
    rows = whole(rows_of(page))
    return visit.page(
        "jobs.html",
        wanted=filtered,
        states=list(JobState),
        projects=[view.project.name for view in projects],
        rows=rows,
        next=filtered.query(before=page.next_before) if page.next_before else "",
        live=_live_query(filtered, digest_of(rows)),
        is_empty=not page.jobs,
    )


async def live(visit: Visit) -> Response:
    """First send all rows, unless the browser already shows them. Then send rows that change, come or go."""
    filtered = wanted(visit.request.query_params)
    filtered.where(visit.who)  # errors here get an error page; later ones do not
    return visit.stream(_versions(visit, filtered, visit.shown_before))


async def cancel(visit: Visit) -> Response:
    """Cancel the selected jobs. If some cannot be cancelled, show why, and cancel the others."""
    chosen = job_ids(visit.lists.get("job", []))
    problems: list[tuple[int, str]] = []
    for job_id in chosen:
        try:
            await visit.jobs.cancel(visit.who, job_id)
        except StoreUnavailable:
            raise
        except TrackerError as error:
            problems.append((job_id, str(error)))
    if problems:
        return visit.page("problems.html", 409, title="Not all jobs were cancelled", problems=problems)
    return see(local(visit.form.get("next", "") or visit.query.get("next", "")))


def job_ids(texts: Sequence[str]) -> list[int]:
    """Return the ids in the texts, without repetitions.

    Raises InvalidField if there are no texts or more than MOST_SELECTED, or if one of them is not an id.
    """
    if not 0 < len(texts) <= MOST_SELECTED:
        raise InvalidField("job", f"{len(texts)} jobs are selected; select 1 to {MOST_SELECTED}")
    for text in texts:
        if not (text.isascii() and text.isdecimal() and len(text) < 19):
            raise InvalidField("job", f"{text[:40]!r} is not the id of a job")
    return list(dict.fromkeys(map(int, texts)))


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of a page, and the highest id among them."""

    list: RowList
    newest: float
    """The highest id of the page. Jobs with higher ids are new, and may belong to the page.

    Infinite: the page is not the first one, so new jobs never belong to it.
    """

    def concern(self, job_id: int) -> bool:
        """Return whether a change of this job may change the rows."""
        return job_id in self.list.rows or job_id > self.newest


async def _versions(visit: Visit, filtered: Wanted, seen: str) -> AsyncGenerator[str | bytes, None]:
    parts = visit.parts
    loop = asyncio.get_running_loop()
    before: RowList | None = None
    with parts.changes(None) as changes:
        since = loop.time()
        while True:
            try:
                visit.caller = await parts.visitors.still(visit.who)
                rows = await _shared_rows(visit, filtered, since)
            except StoreUnavailable as error:
                yield streams.event("problem", visit.rendered("problem_part.html", problem=str(error)))
                await parts.live.wait(asyncio.sleep(_AWAY_SECONDS))
                seen, before, since = "", None, loop.time()
                continue
            except TrackerError as error:
                yield streams.event("problem", visit.rendered("problem_part.html", problem=str(error)))
                return
            if rows.list.digest != seen:
                if not seen:
                    yield streams.event("problem", "")
                yield rows.list.event_after(before)
            seen, before = rows.list.digest, rows.list
            while not any(map(rows.concern, batch := await _batch(parts, changes))):
                if not batch:
                    yield streams.QUIET
            since = loop.time()


async def _shared_rows(visit: Visit, filtered: Wanted, since: float) -> _Rows:
    """Return the rows, made at `since` or later. Viewers with the same rights and filter share them."""
    caller = visit.who

    async def make() -> _Rows:
        page = await _page(visit, filtered, caller)
        shown = RowList(rows_of(page))
        newest = max(shown.rows, default=0) if filtered.before is None else float("inf")
        return _Rows(shown, newest)

    key = ("jobs", filtered.where(caller), filtered.size, filtered.before, rights_of(caller))
    return await visit.parts.shared.made(key, since, make)


async def _batch(parts: Parts, changes: Changes) -> dict[int, JobState]:
    return await parts.live.wait(changes.batch()) or {}


async def _page(visit: Visit, filtered: Wanted, caller: Caller) -> Page:
    where = filtered.where(caller)
    return await visit.jobs.list(caller, where, limit=filtered.size, before=filtered.before)


def rows_of(page: Page) -> dict[int, str]:
    """Return the HTML of each row by the id of its job, in the order of the page."""
    return {view.job.id: render("jobs_row.html", row=row_of(view)) for view in page.jobs}


def _live_query(filtered: Wanted, digest: str) -> str:
    query = filtered.query(before=filtered.before)
    return f"{query}&seen={digest}" if query else f"seen={digest}"

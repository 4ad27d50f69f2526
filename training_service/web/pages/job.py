"""The page of a job: its state and history, its ranks, its parameters, and the possible actions."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Final

from starlette.responses import Response

from job_tracker.domain.caller import Caller
from job_tracker.domain.errors import TrackerError
from job_tracker.domain.job import JobState
from job_tracker.jobs import JobView
from job_tracker.scheduling.waiting_view import Explanation
from training_service._generated import training_service_pb2 as pb
from training_service.api.convert.requests import request_for, request_of
from training_service.web import commands
from training_service.web import live as streams
from training_service.web.pages.jobs import row_of
from training_service.web.ranks import ranks_of
from training_service.web.shared import Version, rights_of, version
from training_service.web.stacks import standings_of
from training_service.web.templates import render
from training_service.web.timeline import timeline_of
from training_service.web.visits import LONGEST_KEY, Visit, see

_EXPLAINED_SECONDS: Final = 0.04
"""The longest time that the page waits for the reasons why a job waits. Reasons that take longer come with
the page's first event."""
_EXPLANATION_SECONDS: Final = 1.0
"""A page may show an explanation that was begun up to this many seconds before the page asks for it."""


async def overview(visit: Visit) -> Response:
    """Show a job."""
    view = await visit.jobs.get(visit.who, visit.job_id)
    job = view.job
    request = request_for(job)
    return visit.page(
        "job.html",
        **await _shown(visit, view, visit.who, _EXPLAINED_SECONDS),
        tab="",
        clone=commands.submit_line(request, job.spec.project),
        status_line=commands.grpcurl_line(
            *("GetTrainingStatus", pb.GetTrainingStatusRequest(job_id=job.id), visit.parts.api_address),
            is_encrypted=visit.parts.visitors.is_encrypted,
        ),
    )


async def live(visit: Visit) -> Response:
    """Send the changing part of the page again whenever the job changes."""
    await visit.jobs.get(visit.who, visit.job_id)  # errors here get an error page; later ones do not
    return visit.stream(_versions(visit))


async def cancel(visit: Visit) -> Response:
    """Cancel the job."""
    await visit.jobs.cancel(visit.who, visit.job_id)
    return see(f"/jobs/{visit.job_id}")


async def rerun(visit: Visit) -> Response:
    """Queue a new job with the same request, and show the new job."""
    before = (await visit.jobs.get(visit.who, visit.job_id)).job
    caller = visit.who.using(before.spec.project)
    request = request_for(before)
    request.request_key = visit.form.get("key", "")[:LONGEST_KEY]
    job = await visit.jobs.submit(caller, request_of(request))
    return see(f"/jobs/{job.id}")


async def _versions(visit: Visit) -> AsyncGenerator[str | bytes, None]:
    parts, job_id = visit.parts, visit.job_id
    loop = asyncio.get_running_loop()
    seen = visit.shown_before
    try:
        async for view in parts.live.each(visit.jobs.watch(visit.who, job_id)):
            if view is None:
                yield streams.QUIET
                continue
            visit.caller = await parts.visitors.still(visit.who)
            made = await _shared_part(visit, loop.time())
            if made.digest != seen:
                seen = made.digest
                yield made.event
    except TrackerError as error:
        yield streams.event("problem", visit.rendered("problem_part.html", problem=str(error)))
    else:
        yield streams.event("end", "")


async def _shared_part(visit: Visit, since: float) -> Version:
    """Return a version of the page's changing part. The version was made at `since` or later.

    Viewers with the same rights share the version.
    """
    caller = visit.who

    async def make() -> Version:
        view = await visit.jobs.get(caller, visit.job_id)
        return version("job", render("job_part.html", **await _shown(visit, view, caller)))

    return await visit.parts.shared.made(("job", visit.job_id, rights_of(caller)), since, make)


async def _explained(visit: Visit, caller: Caller) -> Explanation:
    """Return an explanation of why the job waits. It was begun at most _EXPLANATION_SECONDS before this call.

    If a page stops waiting for the explanation, it is still completed, for other pages.
    """

    async def make() -> Explanation:
        return await visit.jobs.explain(caller, visit.job_id)

    since = asyncio.get_running_loop().time() - _EXPLANATION_SECONDS
    return await visit.parts.shared.made(("why", visit.job_id, rights_of(caller)), since, make)


async def _shown(
    visit: Visit, view: JobView, caller: Caller, patience: float | None = None
) -> dict[str, Any]:
    """Return the template's values for the part of the page that changes.

    In a long queue, it takes time to find out why a job waits. If this takes longer than `patience` seconds,
    the reasons are left out. If `patience` is None, they are never left out.
    """
    job, waiting, is_late = view.job, None, False
    if job.state is JobState.QUEUED or job.is_gated:
        try:
            async with asyncio.timeout(patience) as timeout:
                waiting = await _explained(visit, caller)
        except TimeoutError:
            if not timeout.expired():
                raise
            is_late = True
    return {
        "job": job,
        "explains_later": is_late,
        "row": row_of(view),
        "waiting": waiting,
        "timeline": timeline_of(job, visit.parts.clock()),
        "ranks": ranks_of(job),
        "failure": job.last_failure,
        "standings": standings_of(job.last_failure),
    }

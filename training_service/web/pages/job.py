"""A job: its state and history, its ranks, its parameters, and what can be done with it."""

from collections.abc import AsyncGenerator
from typing import Any, Final

from starlette.responses import Response

from job_tracker.domain.errors import TrackerError
from job_tracker.domain.job import JobState
from job_tracker.jobs import JobView
from training_service._generated import training_service_pb2 as pb
from training_service.api.convert.requests import request_for, request_of
from training_service.web import commands
from training_service.web import live as streams
from training_service.web.pages.jobs import row_of
from training_service.web.ranks import ranks_of
from training_service.web.stacks import standings_of
from training_service.web.timeline import timeline_of
from training_service.web.visits import LONGEST_KEY, Visit, see

SHORTEST_PAUSE: Final = 1.0
"""Seconds between two versions of a page."""


async def overview(visit: Visit) -> Response:
    """Show a job."""
    view = await visit.jobs.get(visit.who, visit.job_id)
    job = view.job
    request = request_for(job)
    return visit.page(
        "job.html",
        **await _shown(visit, view),
        tab="",
        clone=commands.submit_line(request, job.spec.project),
        status_line=commands.grpcurl_line(
            "GetTrainingStatus", pb.GetTrainingStatusRequest(job_id=job.id), visit.parts.api_address
        ),
    )


async def live(visit: Visit) -> Response:
    """Send the changing part of the page again whenever the job changes."""
    view = await visit.jobs.get(visit.who, visit.job_id)  # so that its errors are answers
    return visit.parts.live.response(_versions(visit, view.job.id))


async def cancel(visit: Visit) -> Response:
    """Cancel the job."""
    await visit.jobs.cancel(visit.who, visit.job_id)
    return see(f"/jobs/{visit.job_id}")


async def rerun(visit: Visit) -> Response:
    """Queue the same job again, and show the new one."""
    before = (await visit.jobs.get(visit.who, visit.job_id)).job
    caller = visit.who.using(before.spec.project)
    request = request_for(before)
    request.request_key = visit.form.get("key", "")[:LONGEST_KEY]
    job = await visit.jobs.submit(caller, request_of(request))
    return see(f"/jobs/{job.id}")


async def _versions(visit: Visit, job_id: int) -> AsyncGenerator[str, None]:
    seen = ""
    try:
        async for view in visit.parts.live.each(visit.jobs.watch(visit.who, job_id), SHORTEST_PAUSE):
            if view is None:
                yield streams.QUIET
                continue
            text = visit.rendered("job_part.html", **await _shown(visit, view))
            if text != seen:
                seen = text
                yield streams.event("job", text)
    except TrackerError as error:
        yield streams.event("problem", visit.rendered("problem_part.html", problem=str(error)))
    else:
        yield streams.event("end", "")


async def _shown(visit: Visit, view: JobView) -> dict[str, Any]:
    """Return the values of the changing part."""
    job = view.job
    waiting = await visit.jobs.explain(visit.who, job.id) if job.state is JobState.QUEUED else None
    return {
        "job": job,
        "row": row_of(view),
        "waiting": waiting,
        "timeline": timeline_of(job, visit.parts.clock()),
        "ranks": ranks_of(job),
        "failure": job.last_failure,
        "standings": standings_of(job.last_failure),
    }

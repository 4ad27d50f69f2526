"""The queue: the waiting jobs with their reasons and expected starts, and the use by each queue."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlencode

from starlette.responses import Response

from job_tracker.common.printable import quoted
from job_tracker.domain.caller import Caller
from job_tracker.domain.errors import Forbidden, InvalidField, TrackerError
from training_service._generated import training_service_pb2 as pb
from training_service.api.convert.waiting import queue_request_of
from training_service.web import live as streams
from training_service.web.gantt import MOST_LANES, Gantt, gantt_of
from training_service.web.shared import Version, rights_of, version
from training_service.web.templates import render
from training_service.web.use_chart import use_charts
from training_service.web.visits import Visit

_PAGE: Final = 100
_FIELDS: Final = ("project", "queue", "after", "over")
_SPANS: Final = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7)}
"""The lengths of time over which the history of queues can be shown."""


async def queue(visit: Visit) -> Response:
    """Show the waiting jobs, sorted by queue and place."""
    shown = await _shown(visit, visit.who)
    return visit.page("queue.html", **shown, live=_query(visit, visit.query.get("after", "")))


async def live(visit: Visit) -> Response:
    """Send the changing part of the page again whenever it has changed."""
    await _shown(visit, visit.who)  # errors here get an error page; later ones do not
    return visit.stream(_versions(visit))


async def _versions(visit: Visit) -> AsyncGenerator[str | bytes, None]:
    parts = visit.parts
    loop = asyncio.get_running_loop()
    seen = visit.shown_before
    with parts.changes(None) as changes:
        while True:
            since = loop.time()
            try:
                visit.caller = await parts.visitors.still(visit.who)
                # A copy of the queue that was read earlier may lack the change, and no later event would
                # show this change.
                await visit.jobs.mirror.catch_up(since)
                made = await _shared_part(visit, loop.time())
            except TrackerError as error:
                yield streams.event("problem", visit.rendered("problem_part.html", problem=str(error)))
                return
            if made.digest != seen:
                seen = made.digest
                yield made.event
            while await parts.live.wait(changes.batch()) is None:
                yield streams.QUIET


async def _shared_part(visit: Visit, since: float) -> Version:
    """Return a version of the page's changing part. The version was made at `since` or later.

    Viewers with the same rights and filter share the version.
    """
    caller = visit.who

    async def make() -> Version:
        return version("queue", render("queue_part.html", **await _shown(visit, caller)))

    key = ("queue", *(visit.query.get(name, "") for name in _FIELDS), rights_of(caller))
    return await visit.parts.shared.made(key, since, make)


async def _shown(visit: Visit, caller: Caller) -> dict[str, Any]:
    request = pb.GetQueueRequest(
        project=visit.query.get("project", ""),
        queue=visit.query.get("queue", ""),
        page_size=_PAGE,
        page_token=visit.query.get("after", ""),
    )
    where, limit, after = queue_request_of(request)
    over = visit.query.get("over", "") or "day"
    if over not in _SPANS:
        raise InvalidField("over", f"{quoted(over)} is not allowed; allowed: {', '.join(_SPANS)}")
    views = await visit.parts.access.list_projects(caller)
    projects = [where.project] if where.project else [view.project.name for view in views]
    page = await visit.jobs.queue(
        caller, where, limit=limit, after=after, history=_SPANS[over], projects=projects
    )
    now, seconds = visit.parts.clock().timestamp(), _SPANS[over].total_seconds()
    charts, ticks = use_charts(page.history, now, seconds)
    of_projects, _ = use_charts(page.of_projects, now, seconds)
    return {
        "page": page,
        "where": where,
        "over": over,
        "spans": list(_SPANS),
        "charts": charts,
        "of_projects": of_projects,
        "use_ticks": ticks,
        "gantt": await _gantt(visit, caller, where.project) if after is None else None,
        "next": _query(visit, "/".join(map(str, page.after))) if page.after is not None else "",
    }


async def _gantt(visit: Visit, caller: Caller, project: str) -> Gantt | None:
    """Return the picture of the queue. None: the caller may not see the queue in this project."""
    try:
        return gantt_of(await visit.jobs.snapshot(caller, project, lanes=MOST_LANES))
    except Forbidden:
        return None


def _query(visit: Visit, after: str) -> str:
    fields = {name: visit.query.get(name, "") for name in ("project", "queue", "over")} | {"after": after}
    return urlencode({name: value for name, value in fields.items() if value})

"""The queue: which jobs wait for what and until when, and what each queue uses."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlencode

from starlette.responses import Response

from job_tracker.common.printable import quoted
from job_tracker.domain.errors import Forbidden, InvalidField, TrackerError
from training_service._generated import training_service_pb2 as pb
from training_service.api.convert.waiting import queue_request_of
from training_service.web import live as streams
from training_service.web.gantt import Gantt, gantt_of
from training_service.web.use_chart import use_charts
from training_service.web.visits import Visit

_PAGE: Final = 100
_PAUSE: Final = 2.0
"""Seconds between two versions at least."""
_SPANS: Final = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7)}
"""For how long the history of queues is shown."""


async def queue(visit: Visit) -> Response:
    """Show the waiting jobs by queue and place."""
    shown = await _shown(visit)
    return visit.page("queue.html", **shown, live=_query(visit, visit.query.get("after", "")))


async def live(visit: Visit) -> Response:
    """Send the page again whenever it has changed."""
    await _shown(visit)  # so that its errors are answers
    return visit.parts.live.response(_versions(visit))


async def _versions(visit: Visit) -> AsyncGenerator[str, None]:
    seen = ""
    with visit.parts.changes(None) as changes:
        while True:
            try:
                visit.caller = await visit.parts.visitors.still(visit.who)
                text = visit.rendered("queue_part.html", **await _shown(visit))
            except TrackerError as error:
                yield streams.event("problem", visit.rendered("problem_part.html", problem=str(error)))
                return
            yield streams.event("queue", text) if text != seen else streams.QUIET
            seen = text
            await visit.parts.live.wait(asyncio.sleep(_PAUSE))
            await visit.parts.live.wait(changes.batch())


async def _shown(visit: Visit) -> dict[str, Any]:
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
    page = await visit.jobs.queue(visit.who, where, limit=limit, after=after, history=_SPANS[over])
    now = visit.parts.clock().timestamp()
    charts, ticks = use_charts(page.queues, page.history, now, _SPANS[over].total_seconds())
    return {
        "page": page,
        "where": where,
        "over": over,
        "spans": list(_SPANS),
        "charts": charts,
        "use_ticks": ticks,
        "gantt": await _gantt(visit, where.project) if after is None else None,
        "next": _query(visit, "/".join(map(str, page.after))) if page.after is not None else "",
    }


async def _gantt(visit: Visit, project: str) -> Gantt | None:
    """Return the picture; None for a caller that has no role in its default project."""
    try:
        return gantt_of(await visit.jobs.snapshot(visit.who, project))
    except Forbidden:
        return None


def _query(visit: Visit, after: str) -> str:
    fields = {name: visit.query.get(name, "") for name in ("project", "queue", "over")} | {"after": after}
    return urlencode({name: value for name, value in fields.items() if value})

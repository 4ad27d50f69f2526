"""The results of a job: artifacts to download, and its metrics as curves."""

import asyncio
import json
import math
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Final
from urllib.parse import quote

from starlette.responses import Response, StreamingResponse

from job_tracker.domain.errors import TrackerError
from job_tracker.domain.telemetry import MetricSeries
from training_service.web import live as streams
from training_service.web.visits import Visit

SERIES_AT_ONCE: Final = 8
"""The largest number of series in an answer: other requests wait while the answer is made. static/curves.js
has the same number."""
_PAUSE: Final = 2.0


async def artifacts(visit: Visit) -> Response:
    """List the artifacts of the job."""
    job, made = await visit.jobs.artifacts(visit.who, visit.job_id)
    return visit.page("artifacts.html", job=job, artifacts=made, tab="artifacts")


async def fetch(visit: Visit) -> Response:
    """Send an artifact as a file to keep. Browsers must not show it, because training code has written it."""
    name = visit.request.path_params["name"]
    pieces = visit.jobs.fetch(visit.who, visit.job_id, name)
    first = await anext(pieces, b"")  # errors here get an error page; later ones do not

    async def content() -> AsyncGenerator[bytes, None]:
        async with aclosing(pieces):
            yield first
            async for piece in pieces:
                yield piece

    file = quote(name.rpartition("/")[2] or "artifact", safe="")
    headers = {"content-disposition": f"attachment; filename*=utf-8''{file}"}
    return StreamingResponse(content(), headers=headers, media_type="application/octet-stream")


async def curves(visit: Visit) -> Response:
    """Show the metrics of the job over steps or time."""
    job = (await visit.jobs.get(visit.who, visit.job_id)).job
    return visit.page("curves.html", job=job, tab="curves")


async def series(visit: Visit) -> Response:
    """Return at most SERIES_AT_ONCE of the job's metrics as JSON, in the order of their names.

    The URL may select metrics by their names (`name`) or by a text in the names (`find`). With `after`, only
    metrics whose names come after the name `after` are returned.
    """
    names = frozenset(visit.request.query_params.getlist("name"))
    find, after = visit.query.get("find", ""), visit.query.get("after", "")
    found = await visit.jobs.metrics(
        visit.who, visit.job_id, names, containing=find, after=after, most=SERIES_AT_ONCE
    )
    text = await asyncio.to_thread(json_of, found)  # there may be many points
    return Response(text, media_type="application/json")


async def fresh(visit: Visit) -> Response:
    """Send an event whenever the job has reported something, so that the page reads the metrics again."""
    await visit.jobs.get(visit.who, visit.job_id)
    return visit.stream(_reports(visit))


async def _reports(visit: Visit) -> AsyncGenerator[str, None]:
    last = None
    try:
        async for view in visit.parts.live.each(visit.jobs.watch(visit.who, visit.job_id), _PAUSE):
            at = view.job.progress.reported_at if view and view.job.progress else None
            if at != last and view is not None:
                last = at
                yield streams.event("report", "")
            else:
                yield streams.QUIET
    except TrackerError:
        return  # the browser connects again, and gets the error as its answer
    yield streams.event("report", "")
    yield streams.event("end", "")


def json_of(found: Sequence[MetricSeries]) -> str:
    """Return series as JSON."""
    return json.dumps([series_of(each) for each in found], separators=(",", ":"))


def series_of(series: MetricSeries) -> dict[str, Any]:
    """Return a series as values for JSON.

    JSON has neither NaN nor infinity, so these values become null. `gaps` is their number.
    """
    points, finite = series.points, math.isfinite
    values = [point.value for point in points]
    return {
        "name": series.name,
        "steps": [point.step for point in points],
        "times": [round(point.at.timestamp(), 3) for point in points],
        "values": [value if finite(value) else None for value in values],
        "gaps": len(values) - sum(map(finite, values)),
    }

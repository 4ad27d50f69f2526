"""The logs of a job: the last lines first, other parts by links, and new lines as they are printed."""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Final

from starlette.responses import Response, StreamingResponse

from job_tracker.domain.errors import TrackerError
from job_tracker.logs.reader import LogRequest
from training_service.web import live as streams
from training_service.web.log_lines import MOST_LINES, Read, lines_of, part_of, read
from training_service.web.visits import Visit

_PAUSE: Final = 0.2
"""Seconds between two events of a log that grows fast. Pieces that come meanwhile are sent later."""
_NO_LINES: Final = Read([], "", goes_on=False)
_MOST_RANKS: Final = 256


async def page(visit: Visit) -> Response:
    """Show a part of a log."""
    part = part_of(visit.query)
    job = (await visit.jobs.get(visit.who, visit.job_id)).job
    attempt = part.attempt or job.attempt
    found = _NO_LINES
    if attempt:
        found = await read(visit.jobs.logs(visit.who, job.id, part.request(attempt)), part)
    older = min(MOST_LINES, 4 * part.lines)
    next_at = found.lines[-1].time if found.goes_on and found.lines and not part.find else ""
    return visit.page(
        "logs.html",
        job=job,
        tab="logs",
        part=part,
        attempt=attempt,
        found=found,
        older=older if not (part.at or part.find) and len(found.lines) >= part.lines < MOST_LINES else 0,
        next_at=next_at,
        ranks=range(min(job.spec.instances, _MOST_RANKS)),
        is_live=job.state.is_live and attempt == job.attempt and not part.at and not part.find,
        follow=part.pairs(attempt=str(attempt), lines="", wrap="", at="", find="", position=found.position),
    )


async def follow(visit: Visit) -> Response:
    """Send new lines as they are printed.

    A browser that connects again continues after the last line that it has.
    """
    part = part_of(visit.query)
    position = visit.request.headers.get("last-event-id") or visit.query.get("position", "")
    wanted = LogRequest(
        rank=part.rank or 0,
        all_ranks=part.rank is None,
        attempt=part.attempt,
        follow=True,
        position=position,
    )
    await visit.jobs.get(visit.who, visit.job_id)
    return visit.stream(_lines(visit, wanted))


async def text(visit: Visit) -> Response:
    """Send the whole log as a file to keep."""
    part = part_of(visit.query)
    wanted = LogRequest(rank=part.rank or 0, all_ranks=part.rank is None, attempt=part.attempt)
    pieces = visit.jobs.logs(visit.who, visit.job_id, wanted)
    first = await anext(pieces, None)  # errors here get an error page; later ones do not

    async def content() -> AsyncIterator[bytes]:
        async with aclosing(pieces):
            if first is not None:
                yield first.text.encode()
            async for piece in pieces:
                yield piece.text.encode()

    name = f"job-{visit.job_id}-rank-{'all' if part.rank is None else part.rank}.log"
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(content(), headers=headers, media_type="text/plain; charset=utf-8")


async def _lines(visit: Visit, wanted: LogRequest) -> AsyncGenerator[str, None]:
    try:
        async for piece in visit.parts.live.each(visit.jobs.logs(visit.who, visit.job_id, wanted), _PAUSE):
            if piece is None:
                yield streams.QUIET
                continue
            lines = [[line.time, line.rank, line.text] for line in lines_of(piece)]
            yield f"id: {piece.position}\n" + streams.event("lines", json.dumps(lines))
    except TrackerError as error:
        yield streams.event("problem", json.dumps(str(error)))
    yield streams.event("end", "")

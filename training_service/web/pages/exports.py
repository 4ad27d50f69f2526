"""Exports: the metrics of jobs as a table, and as files for TensorBoard."""

import asyncio
import csv
import io
import zipfile
from collections.abc import AsyncGenerator, Iterator, Sequence
from datetime import datetime
from typing import Any

from starlette.responses import Response, StreamingResponse

from job_tracker.domain.job import Job
from job_tracker.domain.naming import slug
from job_tracker.domain.telemetry import MetricSeries
from training_service.web.event_files import event_files
from training_service.web.pages.compare import chosen_jobs
from training_service.web.visits import Visit

_LONGEST_NAME = 40


async def table(visit: Visit) -> Response:
    """Send the chosen series of the chosen jobs as comma-separated values."""
    jobs = [view.job for view in await chosen_jobs(visit)]

    async def content() -> AsyncGenerator[str, None]:
        yield "job,metric,attempt,step,time,value\r\n"
        for job in jobs:
            yield await asyncio.to_thread(_rows, job, await _series(visit, job))

    return StreamingResponse(content(), headers=_to_keep(jobs, "csv"), media_type="text/csv; charset=utf-8")


async def events(visit: Visit) -> Response:
    """Send the chosen series of the chosen jobs as an archive, with an event file for each attempt."""
    jobs = [view.job for view in await chosen_jobs(visit)]

    async def content() -> AsyncGenerator[bytes, None]:
        sink = _Sink()
        with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
            for job in jobs:
                for path, pieces in event_files(run_of(job), await _series(visit, job)):
                    await asyncio.to_thread(_add, archive, path, pieces, visit.parts.clock())
                    yield sink.taken()
        yield sink.taken()

    return StreamingResponse(content(), headers=_to_keep(jobs, "zip"), media_type="application/zip")


def run_of(job: Job) -> str:
    """Return the name of the job's run in TensorBoard: its id, and its name without special characters."""
    return f"{job.id}-{slug(job.spec.name or job.spec.algorithm, _LONGEST_NAME)}"


async def _series(visit: Visit, job: Job) -> Sequence[MetricSeries]:
    """Return the job's series that the URL selects by their names, or by a text in the names.

    If the URL has both, a series must match both. If it has neither, return all series.
    """
    names = frozenset(visit.request.query_params.getlist("name"))
    return await visit.jobs.metrics(visit.who, job.id, names, containing=visit.query.get("find", ""))


def _rows(job: Job, series: Sequence[MetricSeries]) -> str:
    text = io.StringIO()
    rows = csv.writer(text)
    for each in series:
        # A spreadsheet would read a name that begins with one of these characters as a formula.
        name = f"'{each.name}" if each.name.startswith(("=", "+", "-", "@")) else each.name
        rows.writerows(
            (job.id, name, p.attempt, p.step, p.at.isoformat(), repr(p.value)) for p in each.points
        )
    return text.getvalue()


def _add(archive: zipfile.ZipFile, path: str, pieces: Iterator[bytes], at: datetime) -> None:
    info = zipfile.ZipInfo(path, at.timetuple()[:6])
    info.compress_type = zipfile.ZIP_DEFLATED
    with archive.open(info, "w") as file:
        for piece in pieces:
            file.write(piece)


class _Sink(io.RawIOBase):
    """A file in memory. It keeps the written bytes until `taken` returns them."""

    def __init__(self) -> None:
        super().__init__()
        self._kept = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._kept += data
        return len(data)

    def taken(self) -> bytes:
        kept, self._kept = bytes(self._kept), bytearray()
        return kept


def _to_keep(jobs: Sequence[Job], kind: str) -> dict[str, str]:
    name = f"job-{jobs[0].id}" if len(jobs) == 1 else f"jobs-{jobs[0].id}-and-{len(jobs) - 1}-more"
    return {"content-disposition": f'attachment; filename="{name}.{kind}"'}

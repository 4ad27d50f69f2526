"""The present queue as text."""

from collections.abc import Callable, Iterator

from google.protobuf.timestamp_pb2 import Timestamp
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from training_service._generated.training_service_pb2 import (
    GetQueueResponse,
    QueueStanding,
    UsedResource,
    WaitingJob,
)
from training_service.client.cli.render import words

_QUEUES = ("QUEUE", "WEIGHT", "WAITING", "RUNNING", "INSTANCES", "SHARE", "USED")
_JOBS = ("PLACE", "ID", "QUEUE", "PROJECT", "PRIORITY", "INSTANCES", "WHY", "START", "AT THE LATEST", "NAME")


def ids(found: GetQueueResponse) -> str:
    """Return the ids of the waiting jobs, one per line."""
    return "\n".join(str(job.job_id) for job in found.jobs)


def lines(found: GetQueueResponse) -> str:
    """Return a line for each waiting job, with its columns separated by tabs. Times are in UTC."""
    return "\n".join("\t".join(_line(job)) for job in found.jobs)


def tables(found: GetQueueResponse) -> RenderableType:
    """Return a table of the queues, and one of the waiting jobs."""
    queues = _table(_QUEUES, (_standing(queue) for queue in found.queues))
    if not found.jobs:
        return Group(queues, Text("\nNo jobs wait."))
    jobs = _table(_JOBS, (_row(job) for job in found.jobs))
    marks = {job.estimate.basis for job in found.jobs if job.HasField("estimate")}
    notes = [Text(_NOTES[mark]) for mark in ("learned", "assumed") if mark in marks]
    stops = [Text(note) for job in found.jobs for note in _stops(job)]
    return Group(queues, Text(), jobs, *notes, *stops)


def _stops(job: WaitingJob) -> Iterator[str]:
    """Yield a line if jobs are being stopped for the waiting job, and a line if the waiting job itself was
    stopped: for another job, for a resize or by an eviction.
    """
    if job.stopping:
        jobs = ", ".join(map(str, job.stopping))
        yield f"job {job.job_id}: these jobs are being stopped for it: {jobs}"
    if job.stopped:
        yield f"job {job.job_id}: {words.printable(job.stopped)}"


_MARKS = {"learned": "*", "assumed": "?"}
_NOTES = {
    "learned": "* rests on run times of earlier attempts",
    "assumed": "? also rests on assumed run times, since some are unknown",
}


def _table(titles: tuple[str, ...], rows: Iterator[list[str]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for title in titles:
        table.add_column(title, justify="right" if title in _NUMBERS else "left")
    for row in rows:
        table.add_row(*(Text(words.printable(cell)) for cell in row))
    return table


_NUMBERS = ("PLACE", "ID", "PRIORITY", "INSTANCES", "WEIGHT", "WAITING", "RUNNING", "SHARE")


def _standing(queue: QueueStanding) -> list[str]:
    running = f"{queue.running}/{queue.max_running}" if queue.HasField("max_running") else str(queue.running)
    return [
        queue.name,
        f"{queue.weight:.6g}",
        str(queue.waiting),
        running,
        str(queue.instances),
        f"{queue.share:.0%}",
        " ".join(map(_used, queue.used)) or "-",
    ]


def _used(used: UsedResource) -> str:
    of = f"{used.nominal} (of {used.capacity})" if used.HasField("nominal") else used.capacity
    return f"{used.flavor}/{used.resource}={used.used}/{of}"


def _line(job: WaitingJob) -> list[str]:
    start, latest, basis = "-", "-", "-"
    if job.HasField("estimate"):
        start, latest = words.moment(job.estimate.median), words.moment(job.estimate.high)
        basis = job.estimate.basis
    cells = (
        *(str(job.place), str(job.job_id), job.queue, job.project, str(job.priority), str(job.instances)),
        *(job.reason.code, start, latest, basis, job.name),
    )
    return [words.printable(cell) for cell in cells]


def _row(job: WaitingJob) -> list[str]:
    return [
        *(str(job.place), str(job.job_id), job.queue, job.project, str(job.priority), str(job.instances)),
        job.reason.code,
        *_start(job, words.local_moment),
        job.name,
    ]


def _start(job: WaitingJob, moment: Callable[[Timestamp], str]) -> tuple[str, str]:
    if not job.HasField("estimate"):
        return "-", "-"
    mark = _MARKS.get(job.estimate.basis, "")
    return moment(job.estimate.median) + mark, moment(job.estimate.high) + mark

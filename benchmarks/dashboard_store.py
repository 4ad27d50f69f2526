"""The store for measurements of the dashboard: many jobs of several projects, and a few large jobs."""

import asyncio
import json
import math
import random
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from benchmarks.filled import write_jobs
from benchmarks.support import stored_spec
from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.group import Phase, RankStatus
from job_tracker.domain.job import Ending, Job, JobState, new_job
from job_tracker.domain.job_spec import JobSpec
from job_tracker.domain.progress import Progress
from job_tracker.domain.telemetry import MAX_POINTS, MAX_SERIES, AttemptReport, MetricPoint
from job_tracker.logs.archive import LogArchive
from job_tracker.scheduling.use_history import DAYS, OF_PROJECTS, OF_QUEUES
from job_tracker.store.sqlite import SqliteStore

RANKS: Final = 10_000
SERIES: Final = 20
RUNNING: Final = 200
WAITING: Final = 2000
COMPARED: Final = 20
LINES_OF_SECOND: Final = 10_000
_LINE: Final = 100
_SEED: Final = 24
_PROJECTS: Final = ("default", "vision", "speech", "search")
_PEOPLE: Final = tuple(f"person-{number}" for number in range(50))
_STATES: Final = (JobState.SUCCEEDED,) * 7 + (JobState.FAILED,) * 2 + (JobState.CANCELLED,)
_CRASH: Final = Diagnosis(
    category=Category.CRASHED,
    summary="Rank 0 exited with code 1",
    resolution="Look at its log.",
    detail="ValueError: no such file\n" * 20,
    rank=0,
)


@dataclass(frozen=True, slots=True)
class Filled:
    """The jobs of the store. `jobs` is their number; the newest ones are queued. `log_bytes` is the size of
    the long log.
    """

    jobs: int
    log_bytes: int

    @property
    def large(self) -> int:
        """The id of the ended job with RANKS ranks."""
        return self.jobs - WAITING - RUNNING - 3

    @property
    def measured(self) -> int:
        """The id of the ended job with SERIES metrics."""
        return self.large + 1

    @property
    def noisy(self) -> int:
        """The id of the ended job with as many metrics as a job may have."""
        return self.large + 2

    @property
    def logged(self) -> int:
        """The id of the ended job with a long log."""
        return self.large + 3

    @property
    def running(self) -> range:
        """The ids of the queued jobs that the service starts as soon as it runs."""
        return range(self.logged + 1, self.logged + 1 + RUNNING)


def fill(data_dir: Path, filled: Filled) -> None:
    """Write the jobs, the metrics of two jobs, a history of the use of queues and projects, and the log of
    one job.
    """
    data_dir.mkdir(parents=True, exist_ok=True)
    write_jobs(data_dir / "jobs.db", _jobs(filled))
    asyncio.run(_fill_rest(data_dir, filled))


def _jobs(filled: Filled) -> Iterator[Job]:
    pick = random.Random(_SEED)
    begin = datetime.now(UTC) - timedelta(days=20)
    step = timedelta(days=20) / filled.jobs
    specs = [_spec(number) for number in range(200)]
    for job_id in range(1, filled.jobs + 1):
        at = begin + job_id * step
        spec = specs[pick.randrange(len(specs))]
        if job_id > filled.logged:
            yield new_job(job_id, replace(spec, project="default", submitted_by=""), at)
            continue
        if filled.large <= job_id:
            ranks = RANKS if job_id == filled.large else 1
            roles = {"master": 1, "worker": ranks - 1} if ranks > 1 else {"master": 1}
            group = replace(spec.group, roles=roles)
            spec = replace(spec, group=group, name="large", project="default")
        tags = (f"sweep-{job_id % 100}",) if job_id % 5 == 0 else ()
        yield _ended(new_job(job_id, spec, at, tags), pick.choice(_STATES))


def _spec(number: int) -> JobSpec:
    spec = stored_spec(LR=str(number / 100), FC_SIZE=str(64 + number))
    return replace(
        spec,
        name=f"training-{number}",
        algorithm=("intent-classification", "language-model", spec.algorithm)[number % 3],
        project=_PROJECTS[number % len(_PROJECTS)],
        submitted_by=_PEOPLE[number % len(_PEOPLE)],
    )


def _ended(job: Job, state: JobState) -> Job:
    at = job.submitted_at + timedelta(minutes=1)
    end = at + timedelta(minutes=20)
    phase = Phase.SUCCEEDED if state is JobState.SUCCEEDED else Phase.FAILED
    ranks = tuple(
        RankStatus(rank, phase, 0 if phase is Phase.SUCCEEDED else 1) for rank in range(job.instances)
    )
    running = job.admitted(at).observed(ranks).running(at)
    metrics = {"loss": 0.25, "accuracy": 0.9}
    measured = replace(
        running, progress=Progress(step=900, total_steps=1000, metrics=metrics, reported_at=end)
    )
    return measured.ended(Ending(state, end, _CRASH if state is JobState.FAILED else None), end)


async def _fill_rest(data_dir: Path, filled: Filled) -> None:
    store = await SqliteStore.open(data_dir / "jobs.db")
    try:
        for job_id, number in ((filled.measured, SERIES), (filled.noisy, MAX_SERIES)):
            job = await store.get(job_id)
            assert job.finished_at is not None
            points = tuple(_points(job.finished_at, number))
            report = AttemptReport(job_id=job_id, attempt=1, at=job.finished_at, points=points)
            assert all(await store.record_reports([report]))
        await store.keep_scheduling_notes(dict(_history()))
        group = (await store.get(filled.logged)).groups[0]
    finally:
        await store.close()
    archive = LogArchive(str(data_dir / "storage" / "logs"))
    (data_dir / "storage" / "logs").mkdir(parents=True, exist_ok=True)
    await archive.write(group, 0, _log(filled.log_bytes))


def _history() -> Iterator[tuple[tuple[str, str], str]]:
    """Yield the history of the queue and of the projects: notes with their keys, as the store keeps them.

    The queue and each project have one note for each of the DAYS days before today. In a note, the use and
    the number of waiting jobs change every five minutes.
    """
    pick, today = random.Random(_SEED), int(datetime.now(UTC).timestamp() // 86_400)
    for day in range(today - DAYS, today):
        for kind, names in ((OF_QUEUES, ("default",)), (OF_PROJECTS, _PROJECTS)):
            for name in names:
                slots = [[slot, pick.randrange(1000), 500, pick.randrange(3000)] for slot in range(288)]
                yield (kind, f"{day} {name}"), json.dumps(slots)


def _points(at: datetime, series: int) -> Iterator[MetricPoint]:
    pick = random.Random(_SEED)
    for number in range(series):
        for step in range(MAX_POINTS):
            value = math.exp(-step / 300) + pick.random() / 10
            yield MetricPoint(f"metric-{number:03}", step, at + timedelta(seconds=step), value)


async def _log(size: int) -> AsyncGenerator[bytes, None]:
    """Yield the records of a log with `size` bytes of text. Each second of the log has 10,000 lines."""
    second = b"".join(
        b"@@@@@@@@@@@@@@@@@@@.%09dZ F line %06d %b\n" % (number, number, b"x" * (_LINE - 13))
        for number in range(LINES_OF_SECOND)
    )
    begin = datetime(2026, 11, 24, tzinfo=UTC)
    for number in range(size // (_LINE * LINES_OF_SECOND)):
        at = (begin + timedelta(seconds=number)).strftime("%Y-%m-%dT%H:%M:%S").encode()
        yield second.replace(b"@" * len(at), at)

"""Measures how many jobs the tracker admits per second, with many queues, SQLite and the fake backend.

An admitted job goes from QUEUED to LAUNCHING. 50,000 jobs wait in 1,000 queues of 10 cohorts, and the
capacity is enough for all of them. Meanwhile, the tracker also launches and observes the admitted jobs. The
measured time runs from the start of the tracker, which first reads all waiting jobs, until the last job has
been admitted. The baseline is Kueue's own performance test: 42 admissions per second, with 50,000 workloads
in 1,000 queues.

In a second part, 5,000 jobs wait, and the capacity is enough for a tenth of them at a time. Each job ends at
once and makes room for another, so the tracker also records the ends of jobs and collects their logs. A third
part measures the memory of a queued job in the leader.
"""

import asyncio
import gc
import time
import tracemalloc
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.support import Row, many, stored_spec, workspace
from job_tracker.backends.fake import FakeBackend, FakeWorld
from job_tracker.common.clock import boot_seconds, utc_now
from job_tracker.domain.job import JobState, new_job
from job_tracker.logs.archive import LogArchive
from job_tracker.logs.collector import LogCollector
from job_tracker.reports import ReportBuffer
from job_tracker.scheduling.board import Board, Pool
from job_tracker.scheduling.model import Flavor, Queue
from job_tracker.store.sqlite import SqliteStore
from job_tracker.tracking.leadership import Tenure
from job_tracker.tracking.tracker import Tracker, TrackerOptions

_JOBS, _QUEUES, _COHORTS = 50_000, 1_000, 10
_KUEUE = 42.0  # admissions a second
_TARGET = 10.0  # as a multiple of Kueue's rate
_MOST_BYTES = 1500
_PATIENCE = 600.0
_TERM = timedelta(hours=1)


def measure(quick: bool) -> list[Row]:
    jobs, queues = (5_000, 100) if quick else (_JOBS, _QUEUES)
    with workspace() as folder:
        rate, _ = asyncio.run(_admit(folder, jobs, queues, jobs, "forever"))
    with workspace() as folder:
        few, room = 5_000, 500
        whole, passes = asyncio.run(_admit(folder, few, queues, room, "0"))
    size = _bytes_of_a_job(jobs, queues)
    name = f"admissions: {jobs:,} jobs in {queues:,} queues"
    return [
        Row(
            f"{name}, committed",
            f"{rate:.0f}/s",
            f"{_KUEUE:.0f}/s",
            f"{rate / _KUEUE:.1f}",
            f"≥ {_TARGET:.0f}",
            rate / _KUEUE >= _TARGET,
        ),
        Row(f"admissions: {few:,} jobs that end at once, room for {room}", f"{whole:.0f}/s, {passes} passes"),
        Row(
            f"{name}, memory of a queued job",
            f"{size:.0f} B",
            "",
            "",
            f"≤ {_MOST_BYTES} B",
            size <= _MOST_BYTES,
        ),
    ]


def _queue(number: int) -> str:
    return f"queue-{number}"


def _pool(capacity: int, queues: int) -> Pool:
    cohorts = {f"cohort-{n}": Queue(name=f"cohort-{n}") for n in range(_COHORTS)}
    leaves = {
        _queue(n): Queue(name=_queue(n), parent=f"cohort-{n % _COHORTS}", weight=1.0 + n % 3)
        for n in range(queues)
    }
    return (Flavor(name="default", capacity={"instances": capacity}),), {**cohorts, **leaves}


async def _admit(folder: Path, jobs: int, queues: int, capacity: int, run_seconds: str) -> tuple[float, int]:
    """Let the tracker admit the jobs, which run for `run_seconds` in the fake backend.

    Return the admissions per second, and the number of the tracker's passes.
    """
    store = await SqliteStore.open(folder / "jobs.db")
    spec = stored_spec()
    spec = replace(spec, environment={**spec.environment, "RUN_SECONDS": run_seconds})
    now = datetime.now(UTC)

    async def submit(number: int) -> None:
        await store.submit(replace(spec, queue=_queue(number % queues)), now, None, 1 << 40)

    await many(submit, range(jobs))
    pool = _pool(capacity, queues)
    world, reports = FakeWorld(), ReportBuffer(store, utc_now)
    logs = LogCollector(store, world, LogArchive(str(folder / "storage" / "logs")))
    term = await store.lead("benchmark", _TERM)
    assert term is not None
    tenure = Tenure(term, boot_seconds() + _TERM.total_seconds())
    options = TrackerOptions(capacity=capacity)
    tracker = Tracker(store, FakeBackend(world), logs, options, tenure, reports, pool=lambda: pool)
    began = time.monotonic()
    tracking = asyncio.create_task(tracker.run())
    try:
        async with asyncio.timeout(_PATIENCE):
            while (await store.tallies())[JobState.QUEUED].jobs:
                await asyncio.sleep(0.05)
        seconds = time.monotonic() - began
    finally:
        tracking.cancel()
        await asyncio.wait([tracking])
        await logs.close()
        await store.close()
    return jobs / seconds, tracker.passes


def _bytes_of_a_job(jobs: int, queues: int) -> float:
    spec, now = stored_spec(), datetime.now(UTC)
    gc.collect()
    tracemalloc.start()
    board = Board(lambda: _pool(jobs, queues), half_life=1e6)
    before, _ = tracemalloc.get_traced_memory()
    for number in range(jobs):
        board.read(new_job(number + 1, replace(spec, queue=_queue(number % queues)), now), 0.0)
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(board.waiting) == jobs
    return (after - before) / jobs

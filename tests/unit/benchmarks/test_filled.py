"""Jobs that are written directly are as if they had been submitted."""

import asyncio
from dataclasses import replace
from pathlib import Path

from benchmarks.filled import write_jobs
from job_tracker.domain.group import Phase, RankStatus
from job_tracker.domain.job import Ending, JobState, new_job
from job_tracker.domain.progress import Progress
from job_tracker.store.jobs import JobFilter
from job_tracker.store.sqlite import SqliteStore
from tests.support.jobs import NOON, spec


async def test_jobs_that_are_written_directly_are_counted_listed_and_followed(tmp_path: Path) -> None:
    waiting = new_job(2, spec(project="vision", submitted_by="ada"), NOON, ("blue",))
    launched = new_job(1, spec(), NOON).admitted(NOON).observed((RankStatus(0, Phase.SUCCEEDED, 0),))
    running = replace(launched.running(NOON), progress=Progress(step=3))
    ended = running.ended(Ending(JobState.SUCCEEDED, NOON), NOON)
    path = tmp_path / "jobs.db"
    await asyncio.to_thread(write_jobs, path, [ended, waiting])  # the function has its own event loop
    store = await SqliteStore.open(path)
    assert [await store.get(1), await store.get(2)] == [ended, waiting]
    tallies = await store.tallies()
    assert (tallies[JobState.SUCCEEDED].jobs, tallies[JobState.QUEUED].jobs) == (1, 1)
    found = await store.list_jobs(JobFilter(tags=frozenset({"blue"})), limit=9)
    assert [job.id for job in found.jobs] == [2]
    following = await store.submit(spec(), NOON, None, 9)
    assert (following.id, await store.queue_position(following)) == (3, 1)
    await store.close()

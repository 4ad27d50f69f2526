"""Queues with jobs that have not ended."""

from pathlib import Path

from job_tracker.declarations.occupied import Occupied
from job_tracker.domain.job import Ending, JobState
from job_tracker.store.sqlite import SqliteStore
from tests.support.jobs import NOON, spec


async def test_queues_are_occupied_by_jobs_that_have_not_ended(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "jobs.db")
    first, *_ = [await store.submit(spec(queue=queue), NOON, None, 10) for queue in ("a", "b", "b")]
    assert await Occupied(store)(["a", "b", "c"]) == {"a", "b"}
    assert await Occupied(store)(["c"]) == frozenset()
    await store.update(first.ended(Ending(JobState.CANCELLED, NOON), NOON))
    assert await Occupied(store)(["a", "b"]) == {"b"}
    await store.close()
